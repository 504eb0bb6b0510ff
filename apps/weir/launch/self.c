/* apps/weir/launch/self.c: what the launcher changes for itself. */
#include "apps/weir/launch/self.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

void launch_self_fill_files(void)
{
    int fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= 2)
        fd = open("/dev/null", O_RDWR);
    if (fd >= 0)
        close(fd);
}

/* As nohup has it: then the ranks are not to get it either. */
static bool is_ignored(int sig)
{
    struct sigaction action;
    return !sigaction(sig, NULL, &action) && action.sa_handler == SIG_IGN && sig != SIGCHLD;
}

static int take_signals_over(launch_origin *origin)
{
    static const int passed[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
    sigset_t set;
    sigemptyset(&set);
    signal(SIGCHLD, SIG_DFL);
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++)
        if (!is_ignored(passed[i]))
            sigaddset(&set, passed[i]);
    sigaction(SIGPIPE, &(struct sigaction){.sa_handler = SIG_IGN}, &origin->pipe_action);
    sigprocmask(SIG_BLOCK, &set, &origin->mask);
    return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

/* Three pipes a rank may be more than a process is allowed by default. */
static void allow_files(launch_origin *origin)
{
    getrlimit(RLIMIT_NOFILE, &origin->files);
    struct rlimit most = origin->files;
    most.rlim_cur = most.rlim_max;
    setrlimit(RLIMIT_NOFILE, &most);
}

int launch_self_change(launch_origin *origin)
{
    origin->launcher = getpid();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    allow_files(origin);
    return take_signals_over(origin);
}

void launch_self_kill_strays(pid_t guard, const launch_snapshots *snapshots)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    for (bool found = true; found;) {
        FILE *file = fopen(path, "r");
        int id = 0;
        found = false;
        while (file && fscanf(file, "%d", &id) == 1)
            if (id != guard && !launch_snapshots_is_keeper(snapshots, id)) {
                found = true;
                kill(id, SIGKILL);
                waitpid(id, NULL, 0);
            }
        if (file)
            fclose(file);
    }
}
