/* tests/net/rank.c: what runs in the tests between processes: a small GPT that writes down, exactly, all it learns; or,
 * with --pass, next to no work on slots of a given size, each of which goes from its device to the next.
 *
 *     rank --dp 2 --pp 2 --micro 2 --steps 5 --out /tmp/run          alone, or a rank of many; writes /tmp/run.RANK
 *
 * One line for each thing that happened, so that a script can compare two runs, and find what a rank said and when.
 * Times are seconds of the system's clock, which all network namespaces share:
 *
 *     rank 1 of 4, pid 4711            first, and when: begin 1700000000.123
 *     compiled 1700000000.123          there is a plan
 *     start 1700000000.123             the session is open
 *     memory 123456                    bytes of this rank's arenas
 *     loss 0 0x1.62e42ep+2             step, the mean of its micro-batches' losses
 *     first 1700000000.123             after the first of these
 *     saved 5, snapshot 5, loaded 5 1700000000.123 from memory, or disk    what is kept after so many steps
 *     link 1 187Mbit 50012us           to rank 1, as measured; "or more": it was never full
 *     param h0/q/weight 9ae16a3b2f90404f   after the last step; a hash of the bits
 *     report 1700000000.123 text       a report of the session's, its lines joined by " | "
 *     end 1700000000.123 OK            last; or the status and the session's error
 *
 * The text that it learns from is drawn from words at random, the same for everybody. With --twice it does all of it
 * with two sessions at once, in two threads, of which the second has a name and a seed of its own. With --pause it is
 * slow, and with --leave, --die and --stop-pulling it misbehaves.
 *
 * With --save it keeps checkpoints, goes on from the newest when it is of a later generation (it then writes on where
 * the last process of its rank ended), and SIGTERM stops it after the step: it saves, and exits with 143. With
 * --snapshot-every it does the same in the memory of its host. --kill-save, --kill-snapshot and --kill-load let a rank die while it does that: there is no other way to hit so short a time.
 */
#include "apps/common/model/gpt.h"
#include "apps/common/measure.h"
#include "apps/common/options.h"
#include "tests/support/reference.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char program[] = "rank";

#define STOPPED 143 /* exit status of who was asked to by SIGTERM */

/* A death: of a rank, in a generation, so many microseconds after it has begun the action. */
struct death {
    int generation, rank, after_us;
};

struct rank {
    gpt_config config;
    int steps, workers, params;
    int pass_bytes, devices; /* 0: the GPT */
    const char *link;   /* between hosts, that the plan is made for; NULL: nothing is known of it */
    bool to_stderr;     /* reports, which then are in no file */
    int pause_ms;       /* after each step's loss */
    const char *hurry;  /* when this file is there, pauses are over */
    int leave;          /* after so many steps: closes the session though the run goes on; -1: never */
    int die;            /* after so many steps: exits at once */
    int stop_pulling;   /* after so many steps: takes no more losses, for ever */
    const char *save;      /* folder of checkpoints; NULL: none */
    int save_every;        /* steps; on disk when there is a folder for it */
    int snapshot_every;    /* steps; in memory, in $WEIR_SNAPSHOTS; 0: never */
    const char *memory;    /* where those go */
    int kill_snapshot_at;  /* so many steps are done at least when kill_snapshot counts */
    const char *kill_save, *kill_snapshot, *kill_load; /* "GENERATION,RANK,MICROSECONDS": dies so long after it has begun to */
    bool stopped;          /* before the last step */
    int first;             /* losses so far */
    uint64_t seed;
    uint64_t twice;     /* seed of a second session at the same time; 0: there is none */
    const char *name;   /* of the session */
    const char *out_prefix;
    FILE *out;          /* owned */
    weir_plan *plan;    /* owned */
    weir_session *session; /* owned */
};

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void pause_for(int ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

/* Called from a thread of the session's; stdio's own lock keeps lines whole. */
static void keep_report(void *ctx, const char *said)
{
    const struct rank *r = ctx;
    flockfile(r->out);
    fprintf(r->out, "report %.3f ", seconds_now());
    for (; *said; said++)
        if (*said != '\n')
            putc_unlocked(*said, r->out);
        else if (said[1])
            fputs(" | ", r->out);
    putc_unlocked('\n', r->out);
    funlockfile(r->out);
}

static weir_status pull_loss(struct rank *r, double *loss)
{
    int micro = r->config.layout.micro;
    double sum = 0;
    for (int m = 0; m < micro; m++) {
        float value = 0;
        weir_status status = weir_session_pull(r->session, "loss", &(weir_array){&value, WEIR_F32, {0}}, -1);
        if (status)
            return status;
        sum += (double)value;
    }
    *loss = sum / micro;
    return WEIR_OK;
}

/* The acts of a bad rank; false: it has left. */
static bool behave(const struct rank *r, int done)
{
    if (done == r->die)
        _exit(3);
    while (done == r->stop_pulling)
        pause();
    if (!r->hurry || access(r->hurry, F_OK))
        pause_for(r->pause_ms);
    return done != r->leave;
}

/* ---- checkpoints ---- */

static void *die_later(void *argument)
{
    int after_us = *(int *)argument;
    nanosleep(&(struct timespec){.tv_sec = after_us / 1000000, .tv_nsec = after_us % 1000000 * 1000L}, NULL);
    kill(getpid(), SIGKILL);
    return NULL;
}

static void begin_to_die(const char *when)
{
    static struct death death;
    pthread_t thread;
    if (!when || sscanf(when, "%d,%d,%d", &death.generation, &death.rank, &death.after_us) != 3 ||
        death.generation != weir_generation() || death.rank != weir_rank())
        return;
    pthread_create(&thread, NULL, die_later, &death.after_us);
}

static weir_session *to_stop; /* by SIGTERM */

static void stop(int sig)
{
    (void)sig;
    weir_session_stop(to_stop);
}

static weir_status save(struct rank *r)
{
    int done = (int)weir_session_step(r->session);
    if (!r->save || (done % r->save_every && done < r->steps && !r->stopped))
        return WEIR_OK;
    begin_to_die(r->kill_save);
    weir_status status = weir_session_save(r->session, r->save, .keep = 3);
    if (!status)
        fprintf(r->out, "saved %d\n", done);
    return status;
}

/* A snapshot without its name does not count when this rank is killed; so the rank does not wait for the name. */
static weir_status snapshot(struct rank *r)
{
    int done = (int)weir_session_step(r->session);
    if (!r->snapshot_every || done % r->snapshot_every || r->stopped)
        return WEIR_OK;
    if (done >= r->kill_snapshot_at)
        begin_to_die(r->kill_snapshot);
    weir_status status = weir_session_save(r->session, r->memory, .memory = true, .async = true);
    if (!status)
        fprintf(r->out, "snapshot %d\n", done);
    return status;
}

/* The save of the last generation, if it came to that. */
static weir_status load(struct rank *r)
{
    const char *memory = r->snapshot_every ? r->memory : NULL;
    if (!r->save && !memory)
        return WEIR_OK;
    to_stop = r->session;
    signal(SIGTERM, stop);
    if (!weir_generation())
        return WEIR_OK;
    begin_to_die(r->kill_load);
    weir_checkpoint *newest = r->save ? weir_checkpoint_open(r->save) : NULL;
    int64_t kept = newest ? weir_checkpoint_get_info(newest)->step : 0;
    weir_checkpoint_close(newest);
    if (!newest && !memory)
        return WEIR_OK;
    weir_status status = weir_session_load(r->session, newest ? r->save : NULL, .memory = memory);
    if (!status && weir_session_step(r->session))
        fprintf(r->out, "loaded %d %.3f %s\n", (int)weir_session_step(r->session), seconds_now(),
                weir_session_step(r->session) > kept ? "from memory" : "from disk");
    return status;
}

/* ---- steps ---- */

/* Runs up to step `until`, or until the run was stopped; false: it has left. */
static bool run_part(struct rank *r, int from, int until, weir_status *status)
{
    bool stays = true;
    *status = weir_session_start(r->session, until - from);
    for (int step = from; !*status && stays && step < until; step++) {
        double loss = 0;
        if ((*status = pull_loss(r, &loss)))
            break;
        fprintf(r->out, "loss %d %a\n", step, loss);
        if (!r->first++)
            fprintf(r->out, "first %.3f\n", seconds_now());
        stays = behave(r, step + 1);
    }
    if (!stays)
        return false;
    bool short_run = (r->save || r->snapshot_every) && (*status == WEIR_E_STATE || *status == WEIR_E_END);
    if (!*status || short_run)
        *status = weir_session_wait(r->session, -1);
    r->stopped = !*status && weir_session_step(r->session) < until;
    return true;
}

static int next_of(int every, int done, int last)
{
    int next = every ? done - done % every + every : last;
    return next < last ? next : last;
}

static weir_status run_steps(struct rank *r)
{
    weir_status status = load(r);
    int done = (int)weir_session_step(r->session);
    while (!status && !r->stopped && done < r->steps) {
        int until = next_of(r->save ? r->save_every : 0, done, next_of(r->snapshot_every, done, r->steps));
        if (!run_part(r, done, until, &status))
            break;
        done = (int)weir_session_step(r->session);
        if (!status)
            status = save(r);
        if (!status)
            status = snapshot(r);
    }
    return status;
}

/* FNV-1a (Fowler, Noll and Vo). */
static uint64_t hash_bytes(const unsigned char *bytes, size_t count)
{
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3;
    return hash;
}

static weir_status write_param(struct rank *r, const weir_param_info *info)
{
    size_t bytes = (size_t)weir_shape_count(&info->type.shape) * weir_dtype_bytes(info->type.dtype);
    weir_array value = {malloc(bytes), info->type.dtype, info->type.shape};
    if (!value.data)
        return WEIR_E_MEMORY;
    weir_status status = weir_session_read(r->session, info->name, &value);
    if (!status)
        fprintf(r->out, "param %s %016llx\n", info->name, (unsigned long long)hash_bytes(value.data, bytes));
    free(value.data);
    return status;
}

static weir_status write_params(struct rank *r)
{
    weir_status status = WEIR_OK;
    int count = weir_plan_param_count(r->plan);
    for (int i = 0; i < count && i < r->params && !status; i++) {
        weir_param_info info;
        status = weir_plan_param(r->plan, i, &info);
        if (!status)
            status = write_param(r, &info);
    }
    return status;
}

static void write_links(struct rank *r)
{
    weir_link link;
    for (int other = 0; other < weir_world_size(); other++)
        if (!weir_session_link(r->session, other, &link))
            fprintf(r->out, "link %d %s%s\n", other, link.text, link.full ? "" : " or more");
}

static weir_status train(struct rank *r)
{
    r->session = weir_session_open(r->plan, .workers = r->workers, .report = r->to_stderr ? NULL : keep_report,
                                   .report_ctx = r, .cluster.name = r->name);
    if (!r->session)
        return WEIR_E_PEER;
    weir_session_stats stats;
    weir_session_get_stats(r->session, &stats);
    fprintf(r->out, "start %.3f\nmemory %llu\n", seconds_now(), (unsigned long long)stats.arena_bytes);
    weir_status status = run_steps(r);
    if (!status) /* else weir_error() is what ended it */
        write_links(r);
    if (!status && r->leave < 0 && !r->stopped)
        status = write_params(r);
    return status;
}

/* Devices in a ring, each of which hands its shard to the next; the loss is the mean of all. */
static weir_graph *pass_graph(int devices, int bytes)
{
    char ring[64], turned[64];
    weir_graph *graph = weir_graph_new("pass");
    if (!graph)
        return NULL;
    snprintf(ring, sizeof ring, "cpu:0-%d", devices - 1);
    snprintf(turned, sizeof turned, devices > 2 ? "cpu:1-%d,0" : "cpu:%d,0", devices - 1);
    weir_mesh *from = weir_mesh_new(graph, ring), *to = weir_mesh_new(graph, turned);
    weir_tensor *x = weir_param(graph, WEIR_F32, {(int64_t)devices * bytes / 4}, .name = "x", .mesh = from,
                                .sbp = {S(0)}, .init = WEIR_UNIFORM(-1, 1));
    weir_tensor *passed = weir_shard(weir_affine(x, 2, .shift = 1), .mesh = to, .sbp = {S(0)});
    weir_fetch(weir_mean(passed), .name = "loss");
    return graph;
}

static weir_status compile(struct rank *r)
{
    weir_graph *graph = r->pass_bytes ? pass_graph(r->devices, r->pass_bytes) : gpt_train_graph(&r->config);
    if (!graph)
        return WEIR_E_MEMORY;
    r->plan = weir_compile(graph, .micro_batches = r->config.layout.micro, .seed = r->seed,
                           .link = r->link);
    weir_graph_free(graph);
    fprintf(r->out, "compiled %.3f\n", seconds_now());
    return r->plan ? WEIR_OK : WEIR_E_GRAPH;
}

/* Opens what is written to; unbuffered by lines, so that what happened before a kill is there. */
static int open_out(struct rank *r)
{
    char path[512];
    snprintf(path, sizeof path, "%s.%d", r->out_prefix ? r->out_prefix : "", weir_rank());
    r->out = r->out_prefix ? fopen(path, weir_generation() ? "a" : "w") : stdout;
    if (!r->out)
        return options_wrong(program, "cannot write %s", path);
    setvbuf(r->out, NULL, _IOLBF, 0);
    fprintf(r->out, "rank %d of %d, pid %d\n", weir_rank(), weir_world_size(), (int)getpid());
    fprintf(r->out, "begin %.3f\n", seconds_now());
    return -1;
}

/* Everything; the exit status is 0 when the session ended well. */
static int work(struct rank *r)
{
    char error[1200] = "";
    weir_status status = compile(r);
    if (!status)
        status = train(r);
    if (status)
        snprintf(error, sizeof error, " %s", weir_error());
    weir_status closed = weir_session_close(r->session);
    if (!status && closed) {
        status = closed;
        snprintf(error, sizeof error, " %s", weir_error());
    }
    fprintf(r->out, "end %.3f %s%s\n", seconds_now(), weir_status_name(status), error);
    weir_plan_free(r->plan);
    return status ? 1 : r->stopped ? STOPPED : 0;
}

/* All of it; with a session that is open at the same time when there is to be one. */
static void *work_second(void *argument)
{
    struct rank *r = argument;
    int status = open_out(r);
    if (status < 0)
        status = work(r);
    if (r->out)
        fclose(r->out);
    return status ? r : NULL;
}

static int work_all(struct rank *r)
{
    char prefix[512];
    struct rank second = *r;
    pthread_t thread;
    void *failed = NULL;
    snprintf(prefix, sizeof prefix, "%s-twice", r->out_prefix ? r->out_prefix : "rank");
    second.out_prefix = prefix;
    second.seed = r->twice;
    second.name = "another";
    if (r->twice && pthread_create(&thread, NULL, work_second, &second))
        return 1;
    int status = work(r);
    if (r->twice)
        pthread_join(thread, &failed);
    return failed ? 1 : status;
}

int main(int argc, char **argv)
{
    text corpus = reference_text();
    struct rank r = {.config = reference_gpt(&corpus, REFERENCE_FULL), .steps = 3, .workers = 1, .params = 1000,
                     .devices = 2, .leave = -1, .die = -1, .stop_pulling = -1, .save_every = 5,
                     .seed = REFERENCE_SEED, .name = "net"};
    r.memory = getenv("WEIR_SNAPSHOTS");
    r.config.layout = (layout){1, 1, 1, 1, false};
    r.config.dim = 48, r.config.heads = 6, r.config.seq = 16, r.config.batch = 24;
    const options_entry table[] = {
        LAYOUT_OPTIONS(r.config.layout),
        {"--layers", OPTIONS_INT, &r.config.layers, .min = 1, .max = 1000, .help = "transformer blocks"},
        {"--dim", OPTIONS_INT, &r.config.dim, .min = 1, .max = 1e5, .help = "of a token"},
        {"--seq", OPTIONS_INT, &r.config.seq, .min = 1, .max = 1e5, .help = "tokens of a text"},
        {"--batch", OPTIONS_INT, &r.config.batch, .min = 1, .max = 1e5, .help = "texts of a step"},
        {"--steps", OPTIONS_INT, &r.steps, .min = 1, .max = 1e9, .help = "training steps"},
        {"--seed", OPTIONS_U64, &r.seed, .help = "of the initial values"},
        {"--twice", OPTIONS_U64, &r.twice, .value = "SEED",
         .help = "another session at once; it writes to PREFIX-twice.RANK"},
        {"--workers", OPTIONS_INT, &r.workers, .min = 1, .max = 1024, .help = "threads"},
        {"--pass", OPTIONS_INT, &r.pass_bytes, .min = 4, .max = 1e9, .value = "BYTES",
         .help = "pass slots of this size on, rather than train"},
        {"--devices", OPTIONS_INT, &r.devices, .min = 2, .max = 1e4, .help = "that pass slots on"},
        {"--link", OPTIONS_TEXT, &r.link, .value = "RATE TIME", .help = "between hosts: what the plan is made for"},
        {"--params", OPTIONS_INT, &r.params, .min = 0, .max = 1e9, .help = "parameters to write, of all"},
        {"--pause", OPTIONS_INT, &r.pause_ms, .min = 0, .max = 1e6, .help = "milliseconds of rest after each step"},
        {"--hurry", OPTIONS_TEXT, &r.hurry, .value = "FILE", .help = "no more pauses when this file is there"},
        {"--leave", OPTIONS_INT, &r.leave, .min = 1, .max = 1e9, .help = "close after so many steps"},
        {"--die", OPTIONS_INT, &r.die, .min = 1, .max = 1e9, .help = "exit at once after so many steps"},
        {"--stop-pulling", OPTIONS_INT, &r.stop_pulling, .min = 1, .max = 1e9, .help = "hang after so many steps"},
        {"--save", OPTIONS_TEXT, &r.save, .value = "DIR", .help = "keep checkpoints there"},
        {"--save-every", OPTIONS_INT, &r.save_every, .min = 1, .max = 1e9, .help = "steps between them"},
        {"--snapshot-every", OPTIONS_INT, &r.snapshot_every, .min = 1, .max = 1e9, .help = "steps between snapshots"},
        {"--kill-snapshot", OPTIONS_TEXT, &r.kill_snapshot, .value = "GENERATION,RANK,US", .help = "die during one"},
        {"--kill-snapshot-at", OPTIONS_INT, &r.kill_snapshot_at, .min = 0, .max = 1e9, .help = "after so many steps"},
        {"--kill-save", OPTIONS_TEXT, &r.kill_save, .value = "GENERATION,RANK,US", .help = "die during a save"},
        {"--kill-load", OPTIONS_TEXT, &r.kill_load, .value = "GENERATION,RANK,US", .help = "die during the load"},
        {"--stderr", OPTIONS_FLAG, &r.to_stderr, .help = "reports go there, as by default, rather than to the file"},
        {"--out", OPTIONS_TEXT, &r.out_prefix, .value = "PREFIX", .help = "write to PREFIX.RANK [standard output]"},
        {.name = NULL},
    };
    int status = options_parse(&(options_spec){program, "Trains a small GPT and writes down what it learns.", table},
                               argc, argv);
    if (status < 0 && !r.pass_bytes)
        status = layout_check(program, &r.config.layout, r.config.batch, r.config.layers);
    if (status < 0)
        status = open_out(&r);
    if (status < 0)
        status = work_all(&r);
    if (r.out && r.out_prefix)
        fclose(r.out);
    text_free(&corpus);
    return status;
}
