/* apps/weir/launch_watch.c: starts the ranks of a job and stays with them until all have ended.
 *
 * One poll() loop over a signalfd, the pipes and the two sinks. The launcher is a subreaper: what a rank leaves behind
 * outside of its process group (a daemon in a session of its own) becomes its child, and is killed at the end.
 */
#define _GNU_SOURCE
#include "apps/weir/launch_watch.h"
#include "apps/common/measure.h"
#include "apps/common/options.h"
#include "apps/weir/launch_output.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define ASKED_SECONDS 2        /* from SIGTERM to SIGKILL */
#define INTERRUPTED_SECONDS 10 /* from the user's SIGINT or SIGTERM to SIGKILL */
#define DRAIN_SECONDS 2        /* for output that is still in pipes when all have ended */
#define FDS_PER_RANK 3

typedef enum phase { RUNNING, WAITING, ASKED, KILLED } phase;

/* How a rank ended. */
typedef struct ending {
    bool known;
    bool by_signal;
    int number; /* exit status or signal */
} ending;

typedef struct watched {
    launch_process process;
    launch_stream out, err;
    long remote_id;  /* of the program on the other side; 0: not known (yet) */
    ending told;     /* remote: what the other side says of the program */
    ending ended;
} watched;

typedef struct watch {
    const launch_job *job;
    launch_origin origin;
    launch_guard guard;
    launch_sink sinks[2], *out, *err; /* out and err point to one when both are the same file */
    watched *ranks;                   /* owned: job->ranks */
    struct pollfd *fds;               /* owned */
    int signals;                      /* signalfd */
    int started, alive;
    phase phase;
    double deadline;                  /* INFINITY: none */
    int interrupts;
    watched *failed;                  /* the first that failed */
    bool reported;
} watch;

/* ---- what a rank's end means ---- */

static ending read_status(int status)
{
    bool by_signal = WIFSIGNALED(status);
    return (ending){.known = true, .by_signal = by_signal,
                    .number = by_signal ? WTERMSIG(status) : WEXITSTATUS(status)};
}

/* A shell tells of a signal in the only way it has. */
static ending read_shell_status(int status)
{
    bool by_signal = status > 128 && status < 128 + SIGRTMIN;
    return (ending){.known = true, .by_signal = by_signal, .number = by_signal ? status - 128 : status};
}

static int exit_status(const ending *e)
{
    return e->by_signal ? 128 + e->number : e->number;
}

static void report_failure(watch *w)
{
    watched *r = w->failed;
    const launch_place *place = &w->job->places[r->process.rank];
    int rank = r->process.rank;
    char where[LAUNCH_HOST_BYTES + 32];
    snprintf(where, sizeof where, "(pid %ld on %s)", r->remote_id, place->host);
    if (!r->remote_id && !r->ended.by_signal)
        launch_sink_say(w->err, "%s: rank %d did not start on %s: the remote shell ended with status %d",
                        w->job->name, rank, place->host, exit_status(&r->ended));
    else if (place->remote && !r->told.known && !r->ended.by_signal)
        launch_sink_say(w->err, "%s: rank %d %s was lost with the connection to its host", w->job->name, rank, where);
    else if (r->ended.by_signal)
        launch_sink_say(w->err, "%s: rank %d %s was ended by signal %d (%s)", w->job->name, rank, where,
                        r->ended.number, strsignal(r->ended.number));
    else
        launch_sink_say(w->err, "%s: rank %d %s ended with status %d", w->job->name, rank, where, r->ended.number);
    w->reported = true;
}

/* ---- ending the others ---- */

static void signal_all(watch *w, int sig, bool from_terminal)
{
    for (int i = 0; i < w->started; i++)
        launch_process_signal(&w->ranks[i].process, sig, from_terminal);
}

static void enter(watch *w, phase next, double seconds)
{
    double deadline = measure_seconds() + seconds;
    w->phase = next;
    if (deadline < w->deadline || next == KILLED)
        w->deadline = deadline;
}

/* Remote shells get a moment to bring the end to the other side. */
static void kill_all(watch *w)
{
    bool again = w->phase == KILLED;
    for (int i = 0; i < w->started; i++)
        launch_process_kill(&w->ranks[i].process, again);
    enter(w, KILLED, again ? INFINITY : ASKED_SECONDS);
}

static void pass_deadline(watch *w)
{
    if (measure_seconds() < w->deadline)
        return;
    w->deadline = INFINITY;
    if (w->phase == WAITING) {
        signal_all(w, SIGTERM, false);
        enter(w, ASKED, ASKED_SECONDS);
    } else
        kill_all(w);
}

/* Of several that have ended since the last look, one that was ended by a signal is the more likely cause. */
static void note_end(watch *w, watched *r)
{
    if (!exit_status(&r->ended))
        return;
    if (!w->failed || (!w->reported && r->ended.by_signal && !w->failed->ended.by_signal))
        w->failed = r;
}

static void act_on_failure(watch *w)
{
    if (!w->failed || w->reported)
        return;
    report_failure(w);
    if (w->phase == RUNNING)
        enter(w, WAITING, w->job->grace_s);
}

/* ---- output ---- */

static void read_stream(launch_stream *stream)
{
    while (launch_sink_has_room(stream->sink) && launch_stream_read(stream))
        launch_sink_write(stream->sink);
}

/* What the script on the other side says (launch_script.h). */
static void take_word(void *ctx, const char *words)
{
    watched *r = ctx;
    int status = 0;
    if (sscanf(words, " pid %ld", &r->remote_id) == 1)
        r->process.arrived = true;
    if (sscanf(words, " status %d", &status) != 1)
        return;
    r->told = read_shell_status(status);
    launch_process_kill(&r->process, false); /* what it has left behind there, and the connection */
}

/* ---- children ---- */

static watched *find_rank(watch *w, pid_t id)
{
    for (int i = 0; i < w->started; i++)
        if (w->ranks[i].process.id == id)
            return &w->ranks[i];
    return NULL;
}

/* The connection to another host ended, and nothing was told of the program there. */
static ending guess_ending(const watch *w, const ending *of_shell)
{
    if (w->phase == KILLED)
        return (ending){.known = true, .by_signal = true, .number = SIGKILL};
    int status = exit_status(of_shell);
    return (ending){.known = true, .number = status ? status : 255}; /* 255: as ssh has it */
}

static void end_rank(watch *w, watched *r, int status)
{
    read_stream(&r->out);
    read_stream(&r->err);
    r->ended = r->told.known ? r->told : read_status(status);
    if (r->process.remote && !r->told.known)
        r->ended = guess_ending(w, &r->ended);
    w->alive--;
    note_end(w, r);
}

/* Takes leave of one child that has ended; false when none has. */
static bool reap_one(watch *w)
{
    siginfo_t info = {.si_pid = 0};
    int status = 0;
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) || !info.si_pid)
        return false;
    watched *r = find_rank(w, info.si_pid);
    if (r)
        launch_process_leave(&r->process, &w->guard);
    waitpid(info.si_pid, &status, 0);
    if (r)
        end_rank(w, r, status);
    return true;
}

static void reap(watch *w)
{
    while (reap_one(w))
        continue;
    act_on_failure(w);
}

/* Kills children that no rank's group had, until none is left: theirs come after them. */
static void kill_strays(watch *w)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    for (bool found = true; found;) {
        FILE *file = fopen(path, "r");
        int id = 0;
        found = false;
        while (file && fscanf(file, "%d", &id) == 1)
            if (id != w->guard.process) {
                found = true;
                kill(id, SIGKILL);
                waitpid(id, NULL, 0);
            }
        if (file)
            fclose(file);
    }
}

/* ---- signals ---- */

static void pass_on(watch *w, int sig, bool from_terminal)
{
    bool ends = sig == SIGINT || sig == SIGTERM;
    if (ends && w->interrupts++) {
        kill_all(w);
        return;
    }
    signal_all(w, sig, from_terminal);
    if (ends && w->phase < ASKED)
        enter(w, ASKED, INTERRUPTED_SECONDS);
}

static void take_signals(watch *w)
{
    struct signalfd_siginfo info;
    while (read(w->signals, &info, sizeof info) == sizeof info)
        if (info.ssi_signo == SIGCHLD)
            reap(w);
        else
            pass_on(w, (int)info.ssi_signo, info.ssi_code == SI_KERNEL);
}

/* ---- the loop ---- */

static void want(struct pollfd *p, int fd, bool wanted, short events)
{
    *p = (struct pollfd){.fd = wanted ? fd : -1, .events = events};
}

static nfds_t fill_fds(watch *w)
{
    nfds_t count = 0;
    want(&w->fds[count++], w->signals, true, POLLIN);
    for (int i = 0; i < 2; i++)
        want(&w->fds[count++], w->sinks[i].fd, !launch_sink_empty(&w->sinks[i]), POLLOUT);
    for (int i = 0; i < w->started; i++) {
        watched *r = &w->ranks[i];
        want(&w->fds[count++], r->out.fd, launch_sink_has_room(w->out), POLLIN);
        want(&w->fds[count++], r->err.fd, launch_sink_has_room(w->err), POLLIN);
        want(&w->fds[count++], r->process.control, r->process.script, POLLOUT);
    }
    return count;
}

static int wait_ms(const watch *w)
{
    double seconds = w->deadline - measure_seconds();
    return seconds > 3600 ? 3600000 : seconds <= 0 ? 0 : (int)ceil(1e3 * seconds);
}

/* Waits for something to do, and does it. */
static void turn(watch *w)
{
    if (poll(w->fds, fill_fds(w), wait_ms(w)) < 0)
        return;
    for (int i = 0; i < w->started; i++) {
        watched *r = &w->ranks[i];
        const struct pollfd *p = &w->fds[3 + FDS_PER_RANK * i];
        if (p[0].revents && launch_sink_has_room(w->out))
            launch_stream_read(&r->out);
        if (p[1].revents && launch_sink_has_room(w->err))
            launch_stream_read(&r->err);
        if (p[2].revents)
            launch_process_feed(&r->process);
    }
    take_signals(w);
    launch_sink_write(w->out);
    launch_sink_write(w->err);
}

static bool has_output(const watch *w)
{
    for (int i = 0; i < w->started; i++)
        if (w->ranks[i].out.fd >= 0 || w->ranks[i].err.fd >= 0)
            return true;
    return false;
}

/* All have ended; what they printed is still on its way. A second interrupt gives up on a reader that stands still. */
static void drain(watch *w)
{
    w->deadline = measure_seconds() + DRAIN_SECONDS;
    while (has_output(w) && measure_seconds() < w->deadline && w->interrupts < 2)
        turn(w);
    w->deadline = INFINITY;
    while ((!launch_sink_empty(w->out) || !launch_sink_empty(w->err)) && w->interrupts < 2)
        turn(w);
}

/* ---- beginning and end ---- */

static bool same_file(int a, int b)
{
    struct stat sa, sb;
    return !fstat(a, &sa) && !fstat(b, &sb) && sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino;
}

/* Descriptors 0 to 2 are there from now on, so that no pipe gets their numbers. */
static void fill_standard_files(void)
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

static void take_signals_over(watch *w)
{
    static const int passed[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
    sigset_t set;
    sigemptyset(&set);
    signal(SIGCHLD, SIG_DFL);
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++)
        if (!is_ignored(passed[i]))
            sigaddset(&set, passed[i]);
    sigaction(SIGPIPE, &(struct sigaction){.sa_handler = SIG_IGN}, &w->origin.pipe_action);
    sigprocmask(SIG_BLOCK, &set, &w->origin.mask);
    w->signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

/* Three pipes a rank may be more than a process is allowed by default. */
static void allow_files(watch *w)
{
    getrlimit(RLIMIT_NOFILE, &w->origin.files);
    struct rlimit most = w->origin.files;
    most.rlim_cur = most.rlim_max;
    setrlimit(RLIMIT_NOFILE, &most);
}

static bool open_watch(watch *w)
{
    size_t ranks = (size_t)w->job->ranks;
    fill_standard_files();
    w->origin.launcher = getpid();
    if (!launch_guard_start(&w->guard))
        return false;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    allow_files(w);
    take_signals_over(w);
    w->ranks = calloc(ranks, sizeof *w->ranks);
    w->fds = calloc(3 + FDS_PER_RANK * ranks, sizeof *w->fds);
    bool one = same_file(STDOUT_FILENO, STDERR_FILENO);
    w->out = &w->sinks[0];
    w->err = &w->sinks[one ? 0 : 1];
    return launch_sink_open(&w->sinks[0], STDOUT_FILENO) && launch_sink_open(&w->sinks[1], STDERR_FILENO) &&
           w->signals >= 0 && w->ranks && w->fds;
}

static void close_watch(watch *w)
{
    for (int i = 0; i < w->started; i++) {
        launch_stream_close(&w->ranks[i].out);
        launch_stream_close(&w->ranks[i].err);
    }
    launch_guard_stop(&w->guard);
    launch_sink_close(&w->sinks[0]);
    launch_sink_close(&w->sinks[1]);
    if (w->signals >= 0)
        close(w->signals);
    free(w->fds);
    free(w->ranks);
}

/* Returns 0, or errno. */
static int start_rank(watch *w, int rank)
{
    watched *r = &w->ranks[rank];
    char prefix[16];
    int error = launch_process_start(&r->process, w->job, rank, &w->origin, &w->guard);
    if (error)
        return error;
    snprintf(prefix, sizeof prefix, "[%d] ", rank);
    bool out = launch_stream_open(&r->out, r->process.out, w->out, w->job->prefix ? prefix : NULL);
    bool err = launch_stream_open(&r->err, r->process.err, w->err, w->job->prefix ? prefix : NULL);
    if (r->process.remote)
        r->err.marker = w->job->token, r->err.control = take_word, r->err.ctx = r;
    else
        r->remote_id = r->process.id;
    w->started++;
    w->alive++;
    return out && err ? 0 : ENOMEM;
}

/* Returns -1, or the exit status of a job that could not be started; what was started of it is then killed. */
static int start_all(watch *w)
{
    int error = 0;
    for (int i = 0; i < w->job->ranks && !error; i++)
        error = start_rank(w, i);
    if (!error)
        return -1;
    kill_all(w);
    kill_all(w);
    return error == ENOENT ? 127 : 126;
}

int launch_watch(const launch_job *job)
{
    watch w = {.job = job, .deadline = INFINITY, .signals = -1, .guard = {.pipe = -1}};
    int status = open_watch(&w) ? start_all(&w) : options_wrong(job->name, "out of memory, files or processes") - 1;
    while (w.alive) {
        turn(&w);
        pass_deadline(&w);
    }
    if (w.started)
        kill_strays(&w);
    if (status < 0) /* else nobody cares about what the others began to say */
        drain(&w);
    if (status < 0)
        status = w.failed ? exit_status(&w.failed->ended) : 0;
    close_watch(&w);
    return status;
}
