/* apps/weir/launch/watch.c: starts the ranks of a job and stays with them until all have ended, generation by
 * generation.
 *
 * One poll() loop over a signalfd, the pipes and the two sinks. A generation is over when all its ranks have ended;
 * what they left behind is then killed, and what they printed is read to its end, before the next one begins. So two of
 * them are never there at the same time on this host; on another, which may be out of reach, they may be, and the ranks
 * themselves keep generations apart when they meet.
 */
#define _GNU_SOURCE
#include "apps/weir/launch/watch.h"
#include "apps/common/measure.h"
#include "apps/common/options.h"
#include "apps/weir/launch/ending.h"
#include "apps/weir/launch/output.h"
#include "apps/weir/launch/self.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define ASKED_SECONDS 2        /* from SIGTERM to SIGKILL */
#define STOP_SECONDS 60        /* the same, when it means that there is something to save */
#define LOST_SECONDS 0.5       /* from a loss to SIGKILL for the others, when all are to be started anew */
#define DRAIN_SECONDS 2        /* for output that is still in pipes when all have ended */
#define FDS_OWN 3 /* signals, sinks */
#define FDS_PER_RANK 3

typedef enum phase { RUNNING, WAITING, ASKED, KILLED } phase;

typedef struct watched {
    struct watch *watch; /* borrowed */
    launch_process process;
    launch_stream out, err;
    long remote_id;  /* of the program on the other side; 0: not known (yet) */
    launch_ending told;  /* remote: what the other side says of the program */
    launch_ending ended;
    bool lost;           /* another rank has declared it lost */
} watched;

typedef struct watch {
    launch_job *job;
    launch_pool *pool;
    launch_origin origin;
    launch_guard guard;
    launch_sink sinks[2], *out, *err; /* out and err point to one when both are the same file */
    int signals;                      /* signalfd */
    int interrupts, interrupt;        /* how many SIGINT and SIGTERM came, and the last of them */
    /* of a generation: */
    watched *ranks;                   /* owned: job->ranks */
    struct pollfd *fds;               /* owned */
    int started, alive;
    phase phase;
    double deadline;                  /* INFINITY: none */
    watched *failed;                  /* the first that failed */
    bool reported;
    bool changes;                     /* they were asked to stop, as another number of ranks is wanted */
    bool stopped;                     /* and one of them did, before it was done */
    bool again;                       /* there is to be another generation */
} watch;

/* ---- what a rank's end means ---- */

/* Whether they are to be started anew; how that goes on in the sentence. */
static bool is_restarted(watch *w, char *text, size_t bytes)
{
    launch_job *job = w->job;
    text[0] = '\0';
    if (w->interrupts || !job->restarts || !launch_ending_is_loss(&w->failed->ended))
        return false;
    if (job->restarted == job->restarts) {
        snprintf(text, bytes, "; it was the last of %d restarts", job->restarts);
        return false;
    }
    job->restarted++;
    snprintf(text, bytes, "; restart %d of %d as generation %d with %d ranks", job->restarted, job->restarts,
             job->generation + 1, launch_pool_count(w->pool));
    return true;
}

static void describe(const watch *w, const watched *r, char *text, size_t bytes)
{
    const launch_slot *slot = &w->job->slots[r->process.rank];
    char where[LAUNCH_HOST_BYTES + 32];
    snprintf(where, sizeof where, "(pid %ld on %s)", r->remote_id, slot->host);
    if (!r->remote_id && !r->ended.by_signal)
        snprintf(text, bytes, "did not start on %s: the remote shell ended with status %d", slot->host,
                 launch_ending_status(&r->ended));
    else if (slot->remote && !r->told.known && !r->ended.by_signal)
        snprintf(text, bytes, "%s was lost with the connection to its host", where);
    else if (r->ended.by_signal)
        snprintf(text, bytes, "%s was ended by signal %d (%s)", where, r->ended.number, strsignal(r->ended.number));
    else
        snprintf(text, bytes, "%s ended with status %d", where, r->ended.number);
}

/* A rank that was interrupted and stopped for that is no news. */
static void report_failure(watch *w)
{
    char what[LAUNCH_HOST_BYTES + 128], next[128];
    const launch_ending *e = &w->failed->ended;
    w->reported = true;
    if (w->interrupts && !e->by_signal && launch_ending_is_stop(e))
        return;
    describe(w, w->failed, what, sizeof what);
    w->again = is_restarted(w, next, sizeof next);
    launch_sink_say(w->err, "%s: rank %d %s%s", w->job->name, w->failed->process.rank, what, next);
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

/* If several have ended since the last look, one that was ended by a signal is the more likely cause. */
static void note_failure(watch *w, watched *r)
{
    if (!w->failed || (!w->reported && r->ended.by_signal && !w->failed->ended.by_signal))
        w->failed = r;
}

/* Whether it ended because it was asked to, for the sake of another number of ranks. Some may not have come to hear
 * that when they are asked, and end by the signal; then others miss them, and end with an error. */
static bool is_for_the_change(const watch *w, const watched *r)
{
    if (!w->changes || w->interrupts)
        return false;
    return launch_ending_is_stop(&r->ended) ||
           (w->stopped && !r->ended.by_signal && launch_ending_is_loss(&r->ended));
}

static void note_end(watch *w, watched *r)
{
    const launch_slot *slot = &w->job->slots[r->process.rank];
    if (slot->remote && !r->told.known && w->phase != KILLED)
        launch_pool_lose(w->pool, slot);
    if (is_for_the_change(w, r))
        w->stopped = true;
    else if (launch_ending_status(&r->ended))
        note_failure(w, r);
}

/* The others of a lost rank find that out by themselves, and the sooner all are gone the sooner they are back. */
static void act_on_failure(watch *w)
{
    if (!w->failed || w->reported)
        return;
    report_failure(w);
    if (w->again)
        enter(w, ASKED, LOST_SECONDS);
    else if (w->phase == RUNNING)
        enter(w, WAITING, w->job->grace_s);
}

/* When one has failed, those that it declared lost have nothing more to say. */
static void end_lost(watch *w)
{
    int others = 0;
    for (int i = 0; i < w->started && w->phase == WAITING; i++) {
        watched *r = &w->ranks[i];
        others += !r->ended.known && !r->lost;
        if (!r->ended.known && r->lost)
            launch_process_kill(&r->process, false);
    }
    if (w->phase == WAITING && !others)
        kill_all(w);
}

/* ---- output ---- */

static void read_stream(launch_stream *stream)
{
    while (launch_sink_has_room(stream->sink) && launch_stream_read(stream))
        launch_sink_write(stream->sink);
}

/* A rank's session speaks of another rank (WEIR_LAUNCHER), or the script on the other side of its program
 * (launch_script.h). */
static void take_word(void *ctx, const char *words)
{
    watched *r = ctx;
    int status = 0, lost = 0;
    if (sscanf(words, " lost %d", &lost) == 1 && lost >= 0 && lost < r->watch->started)
        r->watch->ranks[lost].lost = true;
    if (!r->process.remote)
        return;
    if (sscanf(words, " pid %ld", &r->remote_id) == 1)
        r->process.arrived = true;
    if (sscanf(words, " status %d", &status) != 1)
        return;
    r->told = launch_ending_of_shell(status);
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
static launch_ending guess_ending(const watch *w, const launch_ending *of_shell)
{
    if (w->phase == KILLED)
        return (launch_ending){.known = true, .by_signal = true, .number = SIGKILL};
    int status = launch_ending_status(of_shell);
    return (launch_ending){.known = true, .number = status ? status : 255}; /* 255: as ssh has it */
}

static void end_rank(watch *w, watched *r, int status)
{
    read_stream(&r->out);
    read_stream(&r->err);
    r->ended = r->told.known ? r->told : launch_ending_of(status);
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
    else if (launch_snapshots_is_keeper(w->job->snapshots, info.si_pid))
        launch_snapshots_ended(w->job->snapshots, info.si_pid);
    else
        launch_pool_probed(w->pool, info.si_pid, status);
    return true;
}

static void reap(watch *w)
{
    while (reap_one(w))
        continue;
    act_on_failure(w);
    end_lost(w);
}

/* ---- signals ---- */

static void pass_on(watch *w, int sig, bool from_terminal)
{
    bool ends = sig == SIGINT || sig == SIGTERM;
    if (ends)
        w->interrupt = sig;
    if (ends && w->interrupts++) {
        kill_all(w);
        return;
    }
    signal_all(w, sig, from_terminal);
    if (ends && w->phase < ASKED)
        enter(w, ASKED, STOP_SECONDS);
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
    double seconds = fmin(w->deadline - measure_seconds(), launch_pool_pause(w->pool));
    return seconds > 3600 ? 3600000 : seconds <= 0 ? 0 : (int)ceil(1e3 * seconds);
}

/* Waits for something to do, and does it. */
static void turn(watch *w)
{
    if (poll(w->fds, fill_fds(w), wait_ms(w)) < 0)
        return;
    for (int i = 0; i < w->started; i++) {
        watched *r = &w->ranks[i];
        const struct pollfd *p = &w->fds[FDS_OWN + FDS_PER_RANK * i];
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

static bool open_watch(watch *w)
{
    launch_self_fill_files();
    w->out = &w->sinks[0];
    w->err = &w->sinks[same_file(STDOUT_FILENO, STDERR_FILENO) ? 0 : 1];
    bool guarded = launch_guard_start(&w->guard, w->job->snapshots->here);
    w->signals = launch_self_change(&w->origin);
    w->job->slots = calloc((size_t)w->pool->room, sizeof *w->job->slots);
    return guarded && launch_sink_open(&w->sinks[0], STDOUT_FILENO) && launch_sink_open(&w->sinks[1], STDERR_FILENO) &&
           w->signals >= 0 && w->job->slots;
}

static void close_watch(watch *w)
{
    launch_guard_stop(&w->guard);
    launch_sink_close(&w->sinks[0]);
    launch_sink_close(&w->sinks[1]);
    if (w->signals >= 0)
        close(w->signals);
    free(w->job->slots);
    w->job->slots = NULL;
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
    r->watch = w;
    r->err.marker = w->job->token, r->err.control = take_word, r->err.ctx = r;
    if (!r->process.remote)
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

/* ---- generations ---- */

/* Another number of ranks is wanted: those that run are to stop after their step, and to save. */
static void act_on_change(watch *w)
{
    if (w->phase != RUNNING || w->pool->wanted == w->job->ranks)
        return;
    w->changes = true;
    launch_sink_say(w->err, "%s: from %d to %d ranks: those that run stop, and go on as generation %d", w->job->name,
                    w->job->ranks, w->pool->wanted, w->job->generation + 1);
    signal_all(w, SIGTERM, false);
    enter(w, ASKED, STOP_SECONDS);
}

static bool begin_generation(watch *w)
{
    launch_job *job = w->job;
    job->ranks = launch_pool_take(w->pool, job->slots);
    launch_snapshots_keep(job->snapshots, job->slots, job->ranks, job->shell);
    job->tell(job->tell_ctx, job);
    w->ranks = calloc((size_t)job->ranks, sizeof *w->ranks);
    w->started = w->alive = 0;
    w->phase = RUNNING;
    w->deadline = INFINITY;
    w->failed = NULL;
    w->reported = w->changes = w->stopped = w->again = false;
    free(w->fds);
    w->fds = calloc(FDS_OWN + FDS_PER_RANK * (size_t)job->ranks, sizeof *w->fds);
    return w->ranks && w->fds;
}

/* Returns the exit status, if this was the last. */
static int end_generation(watch *w)
{
    int status = w->failed ? launch_ending_status(&w->failed->ended) : 0;
    w->again |= w->stopped && !w->failed;
    w->again &= !w->interrupts;
    for (int i = 0; i < w->started; i++) {
        launch_stream_close(&w->ranks[i].out);
        launch_stream_close(&w->ranks[i].err);
    }
    free(w->ranks);
    w->ranks = NULL;
    w->failed = NULL;
    w->started = 0;
    return status;
}

/* If one could not be started, nobody cares about what the others began to say. */
static int run_generation(watch *w)
{
    bool begun = begin_generation(w);
    int status = begun ? start_all(w) : options_wrong(w->job->name, "out of memory") - 1;
    while (w->alive) {
        turn(w);
        pass_deadline(w);
        if (launch_pool_look(w->pool))
            act_on_change(w);
    }
    if (w->started)
        launch_self_kill_strays(w->guard.process, w->job->snapshots);
    if (status < 0)
        drain(w);
    int ended = end_generation(w);
    w->again &= status < 0;
    return status < 0 ? ended : status;
}

static bool is_interrupted(watch *w, int *status)
{
    if (w->interrupts)
        *status = 128 + w->interrupt;
    return w->interrupts;
}

/* Until enough hosts are there. Returns -1, or the exit status of a job that does not go on. */
static int wait_for_hosts(watch *w)
{
    char gone[512];
    int status = -1;
    bool told = false;
    w->deadline = measure_seconds() + w->job->patience_s;
    while (!is_interrupted(w, &status) && !launch_pool_is_enough(w->pool)) {
        bool late = measure_seconds() >= w->deadline;
        if (!told || late)
            launch_sink_say(w->err, "%s: %s for hosts that are gone (%s): there is room for %d ranks", w->job->name,
                            late ? "no longer waits" : "waits", launch_pool_gone(w->pool, gone, sizeof gone),
                            launch_pool_count(w->pool));
        if (late)
            return 1;
        told = true;
        turn(w);
        launch_pool_look(w->pool);
    }
    return status;
}

/* Returns the exit status of the last. */
static int run_generations(watch *w)
{
    int status = run_generation(w);
    while (w->again) {
        int ended = wait_for_hosts(w);
        if (ended >= 0)
            return ended;
        w->job->generation++;
        status = run_generation(w);
    }
    return status;
}

/* All has been written that could be. A job whose output is lost has failed. */
static int end_output(const watch *w, int status)
{
    if (w->out->broken)
        options_wrong(w->job->name, "cannot write standard output: %s", strerror(w->out->broken));
    return !status && (w->out->broken || w->err->broken) ? 1 : status;
}

int launch_watch(launch_job *job, launch_pool *pool)
{
    watch w = {.job = job, .pool = pool, .deadline = INFINITY, .signals = -1, .guard = {.pipe = -1}};
    w.fds = calloc(FDS_OWN, sizeof *w.fds);
    bool open = open_watch(&w) && w.fds;
    int status = open ? run_generations(&w) : options_wrong(job->name, "out of memory, files or processes") - 1;
    if (open)
        drain(&w); /* what it has said itself */
    if (open)
        status = end_output(&w, status);
    close_watch(&w);
    free(w.fds);
    return status;
}
