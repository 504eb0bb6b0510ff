/* apps/weir/launch/process.c: one rank.
 *
 * A pipe that exec closes tells whether it worked: the child writes errno into it if not. posix_spawn() is no choice:
 * it can ask neither for a process group nor for a signal at the launcher's death in one order that has no gap.
 */
#define _GNU_SOURCE
#include "apps/weir/launch/process.h"
#include "apps/common/options.h"
#include "apps/weir/launch/script.h"
#include "transport/mail/cores.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define SHELL_WORDS_MAX 64

/* The pipes of one start; [0] is read, [1] written. */
typedef struct pipes {
    int out[2], err[2], in[2], failure[2];
} pipes;

static const pipes no_pipes = {{-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}};

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void close_both(int fd[2])
{
    close_fd(&fd[0]);
    close_fd(&fd[1]);
}

static void close_pipes(pipes *p)
{
    close_both(p->out);
    close_both(p->err);
    close_both(p->in);
    close_both(p->failure);
}

static bool open_pipes(pipes *p, bool remote)
{
    *p = no_pipes;
    return !pipe2(p->out, O_CLOEXEC) && !pipe2(p->err, O_CLOEXEC) && !pipe2(p->failure, O_CLOEXEC) &&
           (!remote || !pipe2(p->in, O_CLOEXEC));
}

/* ---- in the child ---- */

static void set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

static void set_environment(const launch_job *job, int rank)
{
    char snapshots[LAUNCH_SNAPSHOTS_BYTES];
    for (const launch_setting *s = job->settings; s->name; s++)
        if (s->value)
            setenv(s->name, s->value, 1);
        else
            unsetenv(s->name);
    if (*launch_snapshots_path(job->snapshots, &job->slots[rank], snapshots))
        setenv("WEIR_SNAPSHOTS", snapshots, 1);
    set_number("RANK", rank);
    set_number("WORLD_SIZE", job->ranks);
    set_number("LOCAL_RANK", job->slots[rank].local_rank);
    set_number("LOCAL_WORLD_SIZE", job->slots[rank].local_size);
}

/* "ssh -o BatchMode=yes" and the rest as words. */
void launch_process_shell(const char *shell, const char *host, const char *command)
{
    char *words[SHELL_WORDS_MAX + 3], *rest = NULL, *text = strdup(shell);
    int count = 0;
    for (char *word = text ? strtok_r(text, " \t", &rest) : NULL; word && count < SHELL_WORDS_MAX;
         word = strtok_r(NULL, " \t", &rest))
        words[count++] = word;
    words[count++] = (char *)host;
    words[count++] = (char *)command;
    words[count] = NULL;
    execvp(words[0], words);
}

/* Dies when the launcher dies; also if it has died before this could be asked for. */
static void follow(const launch_origin *origin)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != origin->launcher)
        _exit(1);
}

static void restore(const launch_origin *origin)
{
    cores_use(); /* an OpenMP that was loaded into the launcher may have bound it */
    setrlimit(RLIMIT_NOFILE, &origin->files);
    sigaction(SIGPIPE, &origin->pipe_action, NULL);
    sigprocmask(SIG_SETMASK, &origin->mask, NULL);
}

_Noreturn static void become(const launch_process *process, const launch_job *job, const launch_origin *origin,
                             const pipes *p)
{
    if (process->own_group)
        setpgid(0, 0);
    follow(origin);
    int in = process->remote ? p->in[0] : process->rank ? open("/dev/null", O_RDONLY | O_CLOEXEC) : STDIN_FILENO;
    dup2(in, STDIN_FILENO);
    dup2(p->out[1], STDOUT_FILENO);
    dup2(p->err[1], STDERR_FILENO);
    restore(origin);
    if (process->remote)
        /* The other side's login shell is whatever it is; all know exec, and then there is one that is known. */
        launch_process_shell(job->shell, job->slots[process->rank].host, "exec sh -s");
    else {
        set_environment(job, process->rank);
        execvp(job->argv[0], job->argv);
    }
    int error = errno;
    ssize_t written = write(p->failure[1], &error, sizeof error);
    _exit(written == sizeof error ? 127 : 126);
}

/* ---- in the launcher ---- */

/* 0 when exec worked; errno of the child when not. */
static int wait_for_exec(pipes *p)
{
    int error = 0;
    close_fd(&p->failure[1]);
    while (read(p->failure[0], &error, sizeof error) < 0 && errno == EINTR)
        continue;
    return error;
}

static int report(const launch_process *process, const launch_job *job, int error)
{
    const launch_slot *slot = &job->slots[process->rank];
    if (process->remote)
        options_wrong(job->name, "cannot start %s for rank %d on %s: %s", job->shell, process->rank, slot->host,
                      strerror(error));
    else
        options_wrong(job->name, "cannot start %s: %s", job->argv[0], strerror(error));
    return error;
}

static void keep(launch_process *process, pipes *p)
{
    process->out = p->out[0];
    process->err = p->err[0];
    process->control = p->in[1];
    fcntl(process->out, F_SETFL, O_NONBLOCK);
    fcntl(process->err, F_SETFL, O_NONBLOCK);
    if (process->control >= 0)
        fcntl(process->control, F_SETFL, O_NONBLOCK);
    p->out[0] = p->err[0] = p->in[1] = -1;
}

static pid_t target(const launch_process *process)
{
    return process->own_group ? -process->id : process->id;
}

/* The key is in it. */
static void forget_script(launch_process *process)
{
    if (process->script)
        explicit_bzero(process->script, process->script_bytes);
    free(process->script);
    process->script = NULL;
}

static bool prepare(launch_process *process, const launch_job *job, int rank, pipes *p)
{
    bool remote = job->slots[rank].remote;
    *p = no_pipes;
    *process = (launch_process){.rank = rank, .remote = remote, .out = -1, .err = -1, .control = -1};
    process->own_group = remote || rank || !isatty(STDIN_FILENO);
    process->script = remote ? launch_script_write(job, rank, &process->script_bytes) : NULL;
    if (process->script || !remote)
        return open_pipes(p, remote);
    errno = ENOMEM;
    return false;
}

static void give_up(launch_process *process)
{
    if (process->id > 0)
        waitpid(process->id, NULL, 0);
    process->id = 0;
    forget_script(process);
}

int launch_process_start(launch_process *process, const launch_job *job, int rank, const launch_origin *origin,
                         launch_guard *guard)
{
    pipes p;
    bool prepared = prepare(process, job, rank, &p);
    int error = prepared ? 0 : errno;
    process->id = prepared ? fork() : -1;
    if (process->id == 0)
        become(process, job, origin, &p);
    if (prepared)
        error = process->id < 0 ? errno : wait_for_exec(&p);
    if (!error) {
        launch_guard_watch(guard, target(process));
        keep(process, &p);
    } else
        give_up(process);
    close_pipes(&p);
    return error ? report(process, job, error) : 0;
}

void launch_process_feed(launch_process *process)
{
    if (process->control < 0 || !process->script)
        return;
    ssize_t written = write(process->control, process->script + process->script_sent,
                            process->script_bytes - process->script_sent);
    process->script_sent += written > 0 ? (size_t)written : 0;
    bool failed = written < 0 && errno != EAGAIN && errno != EINTR;
    if (!failed && process->script_sent < process->script_bytes)
        return;
    forget_script(process);
    if (failed)
        close_fd(&process->control);
}

/* ---- signals ---- */

/* A line for the other side; it goes whole into a pipe that holds nothing else by now. */
static void send_line(const launch_process *process, int sig)
{
    char line[32];
    int length = snprintf(line, sizeof line, "%s\n", sigabbrev_np(sig));
    ssize_t written = write(process->control, line, (size_t)length);
    (void)written;
}

void launch_process_signal(launch_process *process, int sig, bool from_terminal)
{
    if (!process->id || (from_terminal && !process->own_group))
        return;
    if (process->arrived && process->control >= 0)
        send_line(process, sig);
    else
        kill(target(process), sig);
}

void launch_process_kill(launch_process *process, bool here)
{
    if (!process->id)
        return;
    bool reached = process->arrived && process->control >= 0;
    close_fd(&process->control);
    if (here || !reached)
        kill(target(process), SIGKILL);
}

void launch_process_leave(launch_process *process, launch_guard *guard)
{
    if (process->own_group)
        kill(target(process), SIGKILL);
    launch_guard_forget(guard, target(process));
    close_fd(&process->control);
    forget_script(process);
    process->id = 0;
}
