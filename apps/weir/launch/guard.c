/* apps/weir/launch/guard.c: what ends the ranks when the launcher itself is killed. */
#define _GNU_SOURCE
#include "apps/weir/launch/guard.h"
#include "apps/weir/launch/hosts.h"
#include "apps/weir/launch/snapshots.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define GONE_MS 2000 /* for what was killed to be gone */

typedef struct note {
    pid_t target;
    bool watch;
    bool let_go; /* the launcher ends, and does the rest itself */
} note;

static void apply(const note *n, pid_t targets[LAUNCH_RANKS_MAX])
{
    pid_t old = n->watch ? 0 : n->target;
    for (int i = 0; i < LAUNCH_RANKS_MAX; i++)
        if (targets[i] == old) {
            targets[i] = n->watch ? n->target : 0;
            return;
        }
}

/* No signal of a terminal or a hang-up may end it before its work is done, and it may keep no reader of the launcher's
 * output waiting. */
static void step_aside(void)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    setpgid(0, 0);
    prctl(PR_SET_NAME, "weir-guard");
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd <= 2 && null >= 0; fd++)
        dup2(null, fd);
}

/* A writer to it would make it again. */
static void remove_after(const char *folder, const pid_t targets[LAUNCH_RANKS_MAX])
{
    int turns = GONE_MS;
    for (int i = 0; i < LAUNCH_RANKS_MAX && *folder; i++)
        while (targets[i] && !kill(targets[i], 0) && turns-- > 0)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    launch_snapshots_remove(folder);
}

_Noreturn static void guard_main(int pipe, const char *folder)
{
    static pid_t targets[LAUNCH_RANKS_MAX];
    note n = {.target = 0};
    step_aside();
    while (!n.let_go && read(pipe, &n, sizeof n) == sizeof n)
        apply(&n, targets);
    for (int i = 0; i < LAUNCH_RANKS_MAX; i++)
        if (targets[i])
            kill(targets[i], SIGKILL);
    if (!n.let_go)
        remove_after(folder, targets);
    _exit(0);
}

bool launch_guard_start(launch_guard *guard, const char *folder)
{
    int ends[2];
    *guard = (launch_guard){.pipe = -1};
    if (pipe2(ends, O_CLOEXEC))
        return false;
    guard->process = fork();
    if (guard->process == 0) {
        close(ends[1]);
        guard_main(ends[0], folder);
    }
    close(ends[0]);
    guard->pipe = ends[1];
    return guard->process > 0;
}

static void tell(launch_guard *guard, note n)
{
    ssize_t written = write(guard->pipe, &n, sizeof n); /* less than PIPE_BUF: whole, or the guard is gone */
    (void)written;
}

void launch_guard_watch(launch_guard *guard, pid_t target)
{
    tell(guard, (note){.target = target, .watch = true});
}

void launch_guard_forget(launch_guard *guard, pid_t target)
{
    tell(guard, (note){.target = target});
}

void launch_guard_stop(launch_guard *guard)
{
    if (guard->pipe >= 0) {
        tell(guard, (note){.let_go = true});
        close(guard->pipe);
    }
    if (guard->process > 0)
        waitpid(guard->process, NULL, 0);
    *guard = (launch_guard){.pipe = -1};
}
