/* weir run: runs a plan that some other program compiled. This process never saw the graph: it asks the plan where
 * values go in and come out, binds its own functions there, and knows nothing else.
 *
 *     source, push   from an .npy file given by --feed NAME=FILE; with --made-up those that have none get normal numbers,
 *                    and zeros for integers (an index that is always allowed)
 *     sink, pull     to an .npy file given by --fetch NAME=FILE; else printed, as the mean over the micro-batches of a
 *                    step; of tensors, the mean of the elements
 *
 * Each push or pull of the plan's program needs a thread here: a push waits while the plan has no room.
 *
 * SIGINT and SIGTERM end the run after the step, on all ranks; what was made by then is printed or in its file, and the
 * trace written.
 *
 * In a cluster every rank does this with its part of the plan, which may lack some of the places: a sink prints where
 * it is, a pull, of which every rank gets the value, on the first rank.
 */
#include "apps/common/train/interrupt.h"
#include "apps/common/measure.h"
#include "apps/common/options.h"
#include "apps/common/ranks.h"
#include "apps/common/train/workers.h"
#include "apps/weir/command.h"
#include "apps/weir/run_port.h"
#include "actors/keep/near.h"
#include "graph/base/names.h"
#include "graph/plan/form/plan.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WAIT_MS 500  /* at a time, for a run */
#define STEPS 10     /* when neither an option nor a file says how many */

static const char program[] = "weir run";

/* A place of the plan, with the thread that pushes or pulls there. */
typedef struct mover {
    struct port port;
    struct runner *runner;   /* borrowed */
    void *value;             /* owned: room for one value */
    pthread_t thread;
    bool threaded;
    weir_status status;
    char error[512];         /* the thread's, when status is not OK */
} mover;

typedef struct runner {
    const char *path;        /* of the plan; borrowed */
    weir_plan *plan;         /* owned */
    weir_session *session;   /* owned */
    mover *places;           /* owned */
    int place_count;
    weir_binding *bindings;  /* owned; ends at name NULL */
    int steps;               /* 0: not known yet */
    const char *name;        /* of the program that runs */
    int workers;             /* 0: nobody chose */
    bool pin;
    bool check_finite;
    bool made_up;
    bool has_device;         /* of this rank; else nothing is pushed or pulled here */
    atomic_bool stop;
} runner;

/* Whether the place belongs to the program that runs. */
static bool is_used(const runner *r, const struct port *p)
{
    return p->info.program && !strcmp(p->info.program, r->name);
}

/* A value between the file and `data`, one way or the other. A file that fails ends the run: no value will come, or
 * go. */
static bool move_file(mover *m, void *data, int64_t step, int micro)
{
    struct port *p = &m->port;
    bool ok = port_is_input(p) ? port_fill(p, data, step, micro) : port_take(p, data, step, micro);
    if (!ok)
        weir_session_cancel(m->runner->session);
    return ok;
}

/* ---- the session's own calls ---- */

static weir_status source(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    mover *m = ctx;
    if (!m->port.split && weir_shape_equal(&dst->shape, &dst->global))
        return move_file(m, dst->data, step, micro) ? WEIR_OK : WEIR_E_CANCELLED;
    const bool ok = port_fill_shard(&m->port, dst, step, micro);
    if (!ok)
        weir_session_cancel(m->runner->session);
    return ok ? WEIR_OK : WEIR_E_CANCELLED;
}

static weir_status sink(void *ctx, const weir_view *value, int64_t step, int micro)
{
    return move_file(ctx, value->data, step, micro) ? WEIR_OK : WEIR_E_CANCELLED;
}

/* ---- what the plan's program did itself ---- */

/* Pushes or pulls, looking up now and then whether the run is given up. */
static weir_status move_value(mover *m)
{
    struct port *p = &m->port;
    weir_array array = {m->value, p->info.type.dtype, p->info.type.shape};
    weir_session *session = m->runner->session;
    weir_status status = WEIR_E_TIMEOUT;
    bool stop = false;
    while (status == WEIR_E_TIMEOUT && !stop) {
        stop = atomic_load_explicit(&m->runner->stop, memory_order_relaxed); /* before: what is there then is still taken */
        int wait_ms = stop ? 0 : 200;
        status = port_is_input(p) ? weir_session_push(session, p->info.name, &array, wait_ms)
                                  : weir_session_pull(session, p->info.name, &array, wait_ms);
    }
    return status;
}

static void *push_or_pull(void *arg)
{
    mover *m = arg;
    int per_step = m->port.info.per_step;
    bool in = port_is_input(&m->port), ok = true;
    for (int64_t i = 0; i < (int64_t)m->runner->steps * per_step && ok && !m->status; i++) {
        int64_t step = i / per_step;
        int micro = (int)(i % per_step);
        ok = !in || move_file(m, m->value, step, micro);
        m->status = ok ? move_value(m) : WEIR_OK;
        ok = ok && (in || m->status || move_file(m, m->value, step, micro));
    }
    if (m->status)
        snprintf(m->error, sizeof m->error, "%s", options_error(program));
    return NULL;
}

static bool needs_thread(const runner *r, const struct port *p)
{
    return is_used(r, p) && (p->info.kind == WEIR_HOST_PUSH || p->info.kind == WEIR_HOST_PULL);
}

static int start_threads(runner *r)
{
    for (mover *m = r->places; r->has_device && m < r->places + r->place_count; m++) {
        if (!needs_thread(r, &m->port))
            continue;
        m->value = malloc(port_bytes(&m->port) + 1);
        m->threaded = m->value && !pthread_create(&m->thread, NULL, push_or_pull, m);
        if (!m->threaded)
            return options_wrong(program, "no memory or no thread for \"%s\"", m->port.info.name), 1;
    }
    return -1;
}

/* ---- setting up ---- */

static struct port *find_port(runner *r, const char *name, size_t length)
{
    for (int i = 0; i < r->place_count; i++) {
        const char *known = r->places[i].port.info.name;
        if (known && strlen(known) == length && !memcmp(known, name, length))
            return &r->places[i].port;
    }
    return NULL;
}

/* Lists the places that values of the program go into, or come out of. Not `all`: those that have nothing yet. */
static const char *ports_text(const runner *r, bool in, bool all, char *text, size_t bytes)
{
    size_t at = 0;
    char own[700];
    snprintf(text, bytes, "none");
    for (int i = 0; i < r->place_count && at < bytes; i++) {
        const struct port *p = &r->places[i].port;
        if (port_is_input(p) == in && is_used(r, p) && (all || !p->in))
            at += (size_t)snprintf(text + at, bytes - at, "%s%s", at ? ", " : "", port_text(p, own, sizeof own));
    }
    return text;
}

/* Whether a place that this rank's part of the plan does not have may be another's. The first rank, which has the
 * file, looks it up there, so that a wrong name is no silent one. */
static bool is_elsewhere(const runner *r, const char *name, size_t length, bool in)
{
    if (weir_world_size() == 1)
        return false;
    weir_plan *whole = ranks_first() ? weir_plan_load(r->path) : NULL;
    bool found = !ranks_first();
    for (int i = 0; whole && i < weir_plan_host_count(whole); i++) {
        struct port p = {.program = NULL};
        found |= !weir_plan_host(whole, i, &p.info) && strlen(p.info.name) == length &&
                 !memcmp(p.info.name, name, length) && port_is_input(&p) == in;
    }
    weir_plan_free(whole);
    return found;
}

/* " (did you mean 'loss'?)", of the places that could have been named; or nothing. */
static const char *meant_text(const runner *r, bool in, const char *wanted, char *text, size_t bytes)
{
    struct names names = {.wanted = wanted};
    for (int i = 0; i < r->place_count; i++)
        if (port_is_input(&r->places[i].port) == in && is_used(r, &r->places[i].port))
            names_add(&names, r->places[i].port.info.name);
    const char *meant = names_meant(&names);
    snprintf(text, bytes, meant ? " (did you mean '%s'?)" : "", meant);
    return text;
}

/* The place that `text`, NAME=FILE of --feed or --fetch, names. NULL: another rank's, or *status, after reporting. */
static struct port *named_port(runner *r, const char *text, bool in, int *status)
{
    char names[2048], meant[NAMES_TEXT_BYTES], wanted[NAMES_LETTERS];
    const char *option = in ? "--feed" : "--fetch", *equals = strchr(text, '=');
    int length = equals ? (int)(equals - text) : 0;
    if (!length || !equals[1])
        return *status = options_wrong(program, "%s takes NAME=FILE, not \"%s\"", option, text), NULL;
    struct port *p = find_port(r, text, (size_t)length);
    if (!p && is_elsewhere(r, text, (size_t)length, in))
        return NULL;
    if (p && is_used(r, p) && port_is_input(p) == in && !(in ? p->in : p->out))
        return p;
    const char *what = p && (in ? p->in : p->out) ? "given twice" : in ? "no input" : "no output";
    snprintf(wanted, sizeof wanted, "%.*s", length, text);
    *status = options_wrong(program, "%s: \"%.*s\" is %s%s; %s are: %s", option, length, text, what,
                            p ? "" : meant_text(r, in, wanted, meant, sizeof meant),
                            weir_world_size() > 1      ? "this rank's"
                            : strcmp(r->name, "main") ? "those of that program"
                                                       : "the plan's",
                            ports_text(r, in, true, names, sizeof names));
    return NULL;
}

static int add_feed(runner *r, const char *text)
{
    int status = -1;
    struct port *p = named_port(r, text, true, &status);
    return p ? port_feed(p, strchr(text, '=') + 1) : status;
}

/* The first rank writes what all ranks pull. */
static int add_fetch(runner *r, const char *text)
{
    int status = -1;
    struct port *p = named_port(r, text, false, &status);
    if (!p)
        return status;
    if (p->info.kind == WEIR_HOST_SINK || ranks_first())
        return port_fetch(p, strchr(text, '=') + 1, (int64_t)r->steps * p->info.per_step);
    p->out = true;
    return -1;
}

/* Inputs without a file. */
static int add_made_up(runner *r)
{
    char names[2048];
    ports_text(r, true, false, names, sizeof names);
    for (int i = 0; i < r->place_count; i++) {
        struct port *p = &r->places[i].port;
        p->made_up = port_is_input(p) && !p->in;
        if (p->made_up && is_used(r, p) && !r->made_up)
            return options_wrong(program, "no file is given for %s; give each one with --feed NAME=FILE.npy, or let weir "
                                 "invent values with --made-up", names);
    }
    return -1;
}

/* Steps that the files have values for, when nobody said how many: as many in each. */
static int count_steps(runner *r)
{
    const struct port *first = NULL;
    for (int i = 0; i < r->place_count; i++) {
        const struct port *p = &r->places[i].port;
        if (!p->in)
            continue;
        int64_t steps = p->values / p->info.per_step;
        if (!steps || p->values % p->info.per_step || steps > INT32_MAX)
            return options_wrong(program, "--feed %s: %s has %lld values, and a step takes %d; --steps says how many steps",
                                 p->info.name, p->file.path, (long long)p->values, p->info.per_step);
        if (first && steps != r->steps)
            return options_wrong(program, "--feed: %s has values for %d steps, %s for %lld; --steps says how many",
                                 first->file.path, r->steps, p->file.path, (long long)steps);
        r->steps = (int)steps;
        first = p;
    }
    r->steps = first ? r->steps : STEPS;
    return -1;
}

/* Ranks know their own inputs alone, and have to agree. */
static int settle_steps(runner *r, bool fed)
{
    if (!r->steps && fed && weir_world_size() > 1)
        return options_wrong(program, "--feed with several ranks needs --steps");
    int status = r->steps ? -1 : count_steps(r);
    for (int i = 0; i < r->place_count && status < 0; i++) {
        const struct port *p = &r->places[i].port;
        int64_t needed = (int64_t)r->steps * p->info.per_step;
        if (p->in && p->values < needed)
            status = options_wrong(program, "--feed %s: %s has %lld value%s, and %d step%s take%s %lld", p->info.name,
                                   p->file.path, (long long)p->values, p->values == 1 ? "" : "s", r->steps,
                                   r->steps == 1 ? "" : "s", r->steps == 1 ? "s" : "", (long long)needed);
    }
    return status;
}

/* Takes in the plan's host function number `index`. In a plan for several ranks a pull is there for each, by one
 * name; a source that is split is there for each device. */
static int add_place(runner *r, int index)
{
    weir_host_info info;
    if (weir_plan_host(r->plan, index, &info))
        return options_failed(program);
    if (info.kind == WEIR_HOST_CALL)
        return options_wrong(program, "the plan calls a function of its program (\"%s\"), so only that program can run it",
                             info.name), 1;
    struct port *known = find_port(r, info.name, strlen(info.name));
    if (known)
        return known->split = true, -1;
    bool prints = info.kind == WEIR_HOST_SINK || ranks_first();
    r->places[r->place_count++] =
        (mover){.port = {.info = info, .program = program, .print = prints ? stdout : NULL, .turn = PTHREAD_MUTEX_INITIALIZER},
                .runner = r};
    return -1;
}

static void bind_places(runner *r)
{
    weir_binding *bind = r->bindings;
    for (mover *m = r->places; m < r->places + r->place_count; m++)
        if (m->port.info.kind == WEIR_HOST_SOURCE)
            *bind++ = (weir_binding){.name = m->port.info.name, .source = source, .ctx = m};
        else if (m->port.info.kind == WEIR_HOST_SINK)
            *bind++ = (weir_binding){.name = m->port.info.name, .sink = sink, .ctx = m};
}

/* Before places are asked for, which are a program's. */
static int check_program(const runner *r)
{
    struct names names = {.wanted = r->name};
    char text[NAMES_TEXT_BYTES];
    for (uint32_t i = 0; i < r->plan->programs_count; i++) {
        const char *name = plan_text(r->plan, r->plan->programs[i].name);
        if (!strcmp(name, r->name))
            return -1;
        names_add(&names, name);
    }
    return options_wrong(program, "--program: the plan has no program \"%s\"%s", r->name,
                         names_text(&names, text, sizeof text));
}

static int make_places(runner *r)
{
    int hosts = weir_plan_host_count(r->plan), status = -1;
    r->places = calloc((size_t)hosts + 1, sizeof *r->places);
    r->bindings = calloc((size_t)hosts + 1, sizeof *r->bindings);
    if (!r->places || !r->bindings)
        return options_wrong(program, "out of memory"), 1;
    for (int i = 0; i < hosts && status < 0; i++)
        status = add_place(r, i);
    bind_places(r);
    return status;
}

/* "-", standard input or output, can be one place's; what is printed then goes beside it. */
static int settle_dash(runner *r, const options_list *list, const char *option)
{
    int dashes = 0;
    for (int i = 0; i < list->count; i++)
        dashes += strlen(list->value[i]) > 1 && !strcmp(list->value[i] + strlen(list->value[i]) - 2, "=-");
    if (dashes > 1)
        return options_wrong(program, "%s: only one NAME may have - (standard %s) as its file", option,
                             strcmp(option, "--feed") ? "output" : "input");
    for (int i = 0; i < r->place_count && dashes && !strcmp(option, "--fetch"); i++)
        if (r->places[i].port.print)
            r->places[i].port.print = stderr;
    return -1;
}

static int prepare_files(runner *r, const options_list *feeds, const options_list *fetches)
{
    int status = settle_dash(r, feeds, "--feed");
    if (status < 0)
        status = settle_dash(r, fetches, "--fetch");
    for (int i = 0; i < feeds->count && status < 0; i++)
        status = add_feed(r, feeds->value[i]);
    if (status < 0)
        status = add_made_up(r);
    if (status < 0)
        status = settle_steps(r, feeds->count);
    for (int i = 0; i < fetches->count && status < 0; i++)
        status = add_fetch(r, fetches->value[i]);
    return status;
}

/* Tells of a plan of which every value starts as zeros and every parameter stays so: it lacks the file of its parameters. */
static void tell_zeros(const weir_plan *plan)
{
    uint32_t parameters = 0;
    for (uint32_t i = 0; i < plan->inits_count; i++)
        if (plan->inits[i].kind != WEIR_INIT_ZERO)
            return;
    for (uint32_t p = 0; p < plan->params_count; p++) {
        if (plan->params[p].kind != PLAN_KEEP_PARAMETER)
            continue;
        if (!plan->params[p].frozen)
            return;
        parameters++;
    }
    if (parameters)
        fprintf(stderr, "%s: all %u parameters are zeros; load them with --load-params PATH\n", program, parameters);
}

/* Whether parameters of the plan stay in the file of parameters. */
static bool maps(const weir_plan *plan)
{
    for (uint32_t s = 0; s < plan->spaces_count; s++)
        if (plan->spaces[s].kind == WEIR_MAPPED)
            return true;
    return false;
}

static int open_session(runner *r, const char *params, const char *trace)
{
    char own[PATHS_BYTES], near[KEEP_NEAR_BYTES];
    trace = ranks_path(trace, own);
    if (params && access(params, R_OK))
        return options_wrong(program, "--load-params: cannot read %s: %s%s", params, strerror(errno),
                             keep_near(params, near, sizeof near));
    if (!params && maps(r->plan))
        return options_wrong(program, "--load-params: the plan reads parameters in a file, so it needs the file's path");
    r->session = weir_session_open(r->plan, .workers = r->workers, .pin = r->pin, .trace = trace,
                                   .check_finite = r->check_finite,
                                   .weights = maps(r->plan) ? params : NULL,
                                   .bindings = r->bindings);
    if (!r->session || (params && weir_session_load(r->session, params, .parameters = true)))
        return options_failed(program);
    if (!params && ranks_first())
        tell_zeros(r->plan);
    if (!r->workers)
        workers_tell(program, r->session);
    return -1;
}

/* ---- running ---- */

static bool is_main(const runner *r)
{
    return !strcmp(r->name, "main");
}

/* Whether the run was ended before its time. A session counts the steps of main alone. */
static bool ended_early(const runner *r)
{
    return is_main(r) ? weir_session_step(r->session) < r->steps : interrupt_caught() != 0;
}

static void print_stats(const runner *r)
{
    weir_session_stats stats;
    char time[32], planned[32], peak[32];
    weir_session_get_stats(r->session, &stats);
    long long done = is_main(r) ? stats.steps : r->steps;
    double each = done ? stats.seconds / (double)done : 0;
    fprintf(stderr, "%lld steps in %s, %.3f ms each; %d workers; planned %s, peak of the process %s\n",
            done, measure_time_text(stats.seconds, time), 1e3 * each,
            stats.workers, measure_bytes_text(stats.planned_bytes, planned),
            measure_bytes_text(measure_peak_rss(), peak));
}

/* Joins what start_threads() began; NULL, or what went wrong in one of them. */
static const char *join_threads(runner *r)
{
    const char *error = NULL;
    for (mover *m = r->places; m < r->places + r->place_count; m++)
        if (m->threaded) {
            pthread_join(m->thread, NULL);
            bool ended = m->status == WEIR_E_TIMEOUT || m->status == WEIR_E_STATE;
            if (!error && m->status && !(ended && atomic_load(&r->stop)))
                error = m->error;
        }
    return error;
}

/* Ends all files; NULL, or what went wrong with one of them. */
static const char *finish_files(runner *r)
{
    const char *error = NULL;
    for (mover *m = r->places; m < r->places + r->place_count; m++)
        if (!port_finish(&m->port) && !error)
            error = m->port.error;
    return error;
}

/* A bit at a time: what hands a signal to its handler between two calls, as the thread sanitizer does, gets to it. */
static weir_status wait_over(weir_session *session)
{
    weir_status status = WEIR_E_TIMEOUT;
    while (status == WEIR_E_TIMEOUT)
        status = weir_session_wait(session, WAIT_MS);
    return status;
}

static int run(runner *r)
{
    r->has_device = ranks_has_device(r->session);
    interrupt_stops(r->session);
    if (weir_session_start(r->session, r->steps, .program = r->name))
        return options_failed(program);
    int status = start_threads(r);
    weir_status ran = status < 0 ? wait_over(r->session) : WEIR_OK;
    bool early = ended_early(r);
    if (status >= 0 || ran || early)
        atomic_store_explicit(&r->stop, true, memory_order_relaxed);
    const char *error = join_threads(r), *file_error = finish_files(r);
    if (file_error)
        options_wrong(program, "%s", file_error), status = 1;
    else if (ran)
        status = options_failed(program);
    else if (error && status < 0)
        options_wrong(program, "%s", error), status = 1;
    if (status < 0 && ranks_first())
        print_stats(r);
    if (status < 0 && early)
        status = interrupt_status(interrupt_caught() ? interrupt_caught() : SIGTERM);
    return status < 0 ? 0 : status;
}

/* Returns the exit status: `status`, or that of a trace that could not be written. */
static int release(runner *r, int status)
{
    interrupt_stops(NULL);
    if (weir_session_close(r->session)) {
        int failed = options_failed(program);
        status = status ? status : failed;
    }
    for (mover *m = r->places; m && m < r->places + r->place_count; m++) {
        npy_close(&m->port.file);
        free(m->value);
    }
    free(r->places);
    free(r->bindings);
    weir_plan_free(r->plan);
    return status;
}

/* This rank's part; all of it when alone. Only the first rank needs the file. */
static weir_plan *load(const char *path, int *status)
{
    if (weir_world_size() == 1)
        return command_load(program, path, status);
    if (ranks_first() && (*status = command_check_readable(program, path)) >= 0)
        return NULL;
    weir_plan *plan = weir_plan_load_part(path);
    if (!plan)
        *status = options_failed(program);
    return plan;
}

int command_run(int argc, char **argv)
{
    const char *path = NULL, *trace = NULL, *params = NULL;
    options_list feeds = {0}, fetches = {0}, objects = {0};
    runner r = {.name = "main"};
    const options_entry table[] = {
        {"PLAN", OPTIONS_TEXT, &path, .file = OPTIONS_READS, .help = "a saved plan"},
        {"--steps", OPTIONS_INT, &r.steps, .min = 1, .max = 1e9, .help = "steps to run; default: as many as --feed has, or 10"},
        {"--program", OPTIONS_TEXT, &r.name, .value = "NAME", .help = "the plan's program to run"},
        {"--load-params", OPTIONS_TEXT, &params, .value = "PATH", .file = OPTIONS_READS,
         .help = "load parameters from a checkpoint, or a .safetensors or .gguf file; those that are mapped are read there"},
        {"--feed", OPTIONS_LIST, &feeds, .value = "NAME=FILE", .file = OPTIONS_READS_NAMED,
         .help = "read an input from a .npy file; -: standard input"},
        {"--made-up", OPTIONS_FLAG, &r.made_up, .help = "give inputs without a file random numbers, or zeros"},
        {"--fetch", OPTIONS_LIST, &fetches, .value = "NAME=FILE", .file = OPTIONS_WRITES_NAMED,
         .help = "write a value to a .npy file; -: standard output"},
        COMMAND_OPS_OPTION(objects),
        WORKERS_OPTIONS(r.workers, r.pin),
        CHECK_FINITE_OPTION(r.check_finite),
        {"--trace", OPTIONS_TEXT, &trace, .value = "FILE", .file = OPTIONS_WRITES_RANKS,
         .help = "write a trace for ui.perfetto.dev"},
        {.name = NULL},
    };
    int status = options_parse(&(options_spec){program, "Run a plan with your own values.", table}, argc, argv);
    if (status >= 0)
        return status;
    if ((status = command_load_ops(program, &objects)) >= 0)
        return status;
    interrupt_catch(ranks_first() ? program : NULL);
    r.path = path;
    r.plan = load(path, &status);
    if (r.plan)
        status = check_program(&r);
    if (status < 0)
        status = make_places(&r);
    if (status < 0)
        status = prepare_files(&r, &feeds, &fetches);
    if (status < 0)
        status = open_session(&r, params, trace);
    if (status < 0)
        status = run(&r);
    return release(&r, status);
}
