/* weir run: runs a plan that some other program compiled. This process never saw the graph: it asks the plan where
 * values go in and come out, binds its own functions there, and knows nothing else.
 *
 *     source, push   from a file given by --feed NAME=FILE, read round and round; else made up: normal numbers for f32,
 *                    zeros for integers (an index that is always allowed)
 *     sink, pull     printed, as the mean over the micro-batches of a step; of tensors, the mean of the elements
 *
 * What the plan's program pushed or pulled itself needs a thread each here: a push waits while the plan has no room.
 *
 * SIGINT and SIGTERM end the run after the step, on all ranks; what was made by then is printed, and the trace written.
 *
 * In a cluster every rank does this with its part of the plan, which may lack some of the places: a sink prints where
 * it is, a pull, of which every rank gets the value, on the first rank.
 */
#include "apps/common/interrupt.h"
#include "apps/common/measure.h"
#include "apps/common/options.h"
#include "apps/common/ranks.h"
#include "apps/common/workers.h"
#include "apps/weir/command.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_MS 500 /* at a time, for a run */

static const char program[] = "weir run";

/* One place where values go in or come out. Used by the worker or thread that owns the place. */
typedef struct port {
    weir_host_info info;
    weir_session *session;   /* borrowed */
    int64_t steps;           /* of the run */
    uint8_t *feed;           /* owned: the file's bytes; NULL: made up */
    size_t feed_bytes;
    double sum;              /* of the values of this step so far */
    void *value;             /* owned: room for one value, for push and pull */
    pthread_t thread;
    bool threaded;
    const atomic_bool *stop; /* borrowed: the run is given up */
    weir_status status;
    char error[512];         /* the thread's, when status is not OK */
} port;

typedef struct runner {
    const char *path;        /* of the plan; borrowed */
    weir_plan *plan;         /* owned */
    weir_session *session;   /* owned */
    port *ports;             /* owned */
    int port_count;
    weir_binding *bindings;  /* owned; ends at name NULL */
    int64_t steps;
    const char *name;        /* of the program that runs */
    int workers;             /* 0: nobody chose */
    bool pin;
    bool check_finite;
    bool has_device;         /* of this rank; else nothing is pushed or pulled here */
    atomic_bool stop;
} runner;

static bool goes_in(const port *p)
{
    return p->info.kind == WEIR_HOST_SOURCE || p->info.kind == WEIR_HOST_PUSH;
}

static size_t value_bytes(const port *p)
{
    return (size_t)weir_shape_count(&p->info.type.shape) * weir_dtype_bytes(p->info.type.dtype);
}

/* ---- values in ---- */

static void fill_from_file(const port *p, uint8_t *to, uint64_t value)
{
    size_t bytes = value_bytes(p), at = (size_t)(value * bytes % p->feed_bytes);
    for (size_t done = 0; done < bytes; at = 0) {
        size_t part = p->feed_bytes - at < bytes - done ? p->feed_bytes - at : bytes - done;
        memcpy(to + done, p->feed + at, part);
        done += part;
    }
}

/* Fills `to` with the value number `value` of this place. */
static void fill(const port *p, void *to, uint64_t value)
{
    uint64_t count = (uint64_t)weir_shape_count(&p->info.type.shape);
    if (p->feed)
        fill_from_file(p, to, value);
    else if (weir_dtype_real(p->info.type.dtype))
        for (uint64_t i = 0; i < count; i++) {
            float x = weir_random_normal((uint64_t)strlen(p->info.name), value * count + i);
            weir_from_f32(&x, 1, p->info.type.dtype, (char *)to + i * weir_dtype_bytes(p->info.type.dtype));
        }
    else
        memset(to, 0, value_bytes(p));
}

static weir_status source(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    const port *p = ctx;
    fill(p, dst->data, (uint64_t)(step * p->info.per_step + micro));
    return WEIR_OK;
}

/* ---- values out ---- */

static double element(weir_dtype dtype, const void *data, int64_t i)
{
    float half;
    switch (dtype) {
    case WEIR_F32:
        return ((const float *)data)[i];
    case WEIR_I32:
        return ((const int32_t *)data)[i];
    case WEIR_U8:
        return ((const uint8_t *)data)[i];
    default:
        weir_to_f32(dtype, (const uint16_t *)data + i, 1, &half);
        return half;
    }
}

/* Counts a value in; prints when it was the step's last. */
static void take(port *p, const void *data, int64_t step, int micro)
{
    int64_t count = weir_shape_count(&p->info.type.shape);
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += element(p->info.type.dtype, data, i);
    p->sum += count ? sum / (double)count : 0;
    if (micro + 1 < p->info.per_step)
        return;
    if (p->info.kind == WEIR_HOST_SINK || ranks_first())
        printf("step %lld  %s%s %.6g\n", (long long)step, p->info.name, p->info.type.shape.rank ? " (mean)" : "",
               p->sum / p->info.per_step);
    p->sum = 0;
}

static weir_status sink(void *ctx, const weir_view *value, int64_t step, int micro)
{
    take(ctx, value->data, step, micro);
    return WEIR_OK;
}

/* ---- what the plan's program did itself ---- */

static weir_status push(weir_session *session, const char *name, weir_array *value, int timeout_ms)
{
    return weir_session_push(session, name, value, timeout_ms);
}

/* Pushes or pulls value number `i`, looking up now and then whether the run is given up. */
static weir_status move_value(port *p, int64_t i)
{
    weir_array array = {p->value, p->info.type.dtype, p->info.type.shape};
    weir_status status = WEIR_E_TIMEOUT;
    if (goes_in(p))
        fill(p, p->value, (uint64_t)i);
    bool stop = false;
    while (status == WEIR_E_TIMEOUT && !stop) {
        stop = atomic_load_explicit(p->stop, memory_order_relaxed); /* before: what is there then is still taken */
        status = (goes_in(p) ? push : weir_session_pull)(p->session, p->info.name, &array, stop ? 0 : 200);
    }
    if (!status && !goes_in(p))
        take(p, p->value, i / p->info.per_step, (int)(i % p->info.per_step));
    return status;
}

static void *push_or_pull(void *arg)
{
    port *p = arg;
    for (int64_t i = 0; i < p->steps * p->info.per_step && !p->status; i++)
        p->status = move_value(p, i);
    if (p->status)
        snprintf(p->error, sizeof p->error, "%s", weir_error());
    return NULL;
}

static bool needs_thread(const port *p)
{
    return p->info.kind == WEIR_HOST_PUSH || p->info.kind == WEIR_HOST_PULL;
}

static int start_threads(runner *r)
{
    for (int i = 0; r->has_device && i < r->port_count; i++) {
        port *p = &r->ports[i];
        p->session = r->session;
        p->stop = &r->stop;
        if (!needs_thread(p))
            continue;
        p->value = malloc(value_bytes(p) + 1);
        p->threaded = p->value && !pthread_create(&p->thread, NULL, push_or_pull, p);
        if (!p->threaded)
            return options_wrong(program, "no memory or no thread for \"%s\"", p->info.name), 1;
    }
    return -1;
}

/* ---- setting up ---- */

static port *find_port(runner *r, const char *name, size_t length)
{
    for (int i = 0; i < r->port_count; i++) {
        const char *known = r->ports[i].info.name;
        if (known && strlen(known) == length && !memcmp(known, name, length))
            return &r->ports[i];
    }
    return NULL;
}

/* Lists the places that values go into, for messages. */
static const char *inputs_text(const runner *r, char *text, size_t bytes)
{
    size_t at = 0;
    text[0] = '\0';
    for (int i = 0; i < r->port_count && at < bytes; i++)
        if (goes_in(&r->ports[i]))
            at += (size_t)snprintf(text + at, bytes - at, "%s%s", at ? ", " : "", r->ports[i].info.name);
    return text;
}

static int read_feed(port *p, const char *path)
{
    FILE *file = fopen(path, "rb");
    long size = file && !fseek(file, 0, SEEK_END) ? ftell(file) : -1;
    int status = -1;
    if (size > 0 && size < 1L << 40 && (p->feed = malloc((size_t)size))) {
        rewind(file);
        p->feed_bytes = fread(p->feed, 1, (size_t)size, file);
    }
    if (!file || size < 0 || p->feed_bytes != (size_t)size)
        status = options_wrong(program, "--feed: cannot read %s: %s", path, strerror(errno));
    else if (!size || size % (long)weir_dtype_bytes(p->info.type.dtype))
        status = options_wrong(program, "--feed: %s has %ld bytes, which are no whole number of %s", path, size,
                               weir_dtype_name(p->info.type.dtype));
    if (file)
        fclose(file);
    return status;
}

/* Whether an input that this rank's part of the plan does not have may be another's. The first rank, which has the
 * file, looks it up there, so that a wrong name is no silent one. */
static bool is_elsewhere(const runner *r, const char *name, size_t length)
{
    if (weir_world_size() == 1)
        return false;
    weir_plan *whole = ranks_first() ? weir_plan_load(r->path) : NULL;
    bool found = !ranks_first();
    for (int i = 0; whole && i < weir_plan_host_count(whole); i++) {
        weir_host_info info;
        found |= !weir_plan_host(whole, i, &info) && strlen(info.name) == length && !memcmp(info.name, name, length) &&
                 (info.kind == WEIR_HOST_SOURCE || info.kind == WEIR_HOST_PUSH);
    }
    weir_plan_free(whole);
    return found;
}

static int add_feed(runner *r, const char *text)
{
    char names[512];
    const char *equals = strchr(text, '=');
    if (!equals)
        return options_wrong(program, "--feed takes NAME=FILE, not \"%s\"", text);
    port *p = find_port(r, text, (size_t)(equals - text));
    if (!p && is_elsewhere(r, text, (size_t)(equals - text)))
        return -1;
    if (!p || !goes_in(p) || p->feed)
        return options_wrong(program, "--feed: \"%.*s\" is %s; %s are: %s", (int)(equals - text), text,
                             p && p->feed ? "given twice" : "no input",
                             weir_world_size() > 1 ? "this rank's" : "the plan's", inputs_text(r, names, sizeof names));
    return read_feed(p, equals + 1);
}

/* Takes in the plan's host function number `index`. In a plan for several ranks a pull is there for each, by one
 * name. */
static int add_port(runner *r, int index)
{
    weir_host_info info;
    if (weir_plan_host(r->plan, index, &info))
        return options_failed(program);
    if (find_port(r, info.name, strlen(info.name)))
        return -1;
    r->ports[r->port_count++] = (port){.info = info, .steps = strcmp(info.program, r->name) ? 0 : r->steps};
    return -1;
}

static void bind_ports(runner *r)
{
    weir_binding *bind = r->bindings;
    for (port *p = r->ports; p < r->ports + r->port_count; p++)
        if (p->info.kind == WEIR_HOST_SOURCE)
            *bind++ = (weir_binding){.name = p->info.name, .source = source, .ctx = p};
        else if (p->info.kind == WEIR_HOST_SINK)
            *bind++ = (weir_binding){.name = p->info.name, .sink = sink, .ctx = p};
}

static int make_ports(runner *r)
{
    int hosts = weir_plan_host_count(r->plan), status = -1;
    r->ports = calloc((size_t)hosts + 1, sizeof *r->ports);
    r->bindings = calloc((size_t)hosts + 1, sizeof *r->bindings);
    if (!r->ports || !r->bindings)
        return options_wrong(program, "out of memory"), 1;
    for (int i = 0; i < hosts && status < 0; i++)
        status = add_port(r, i);
    bind_ports(r);
    return status;
}

static int prepare(runner *r, const options_list *feeds, const char *trace)
{
    int status = make_ports(r);
    for (int i = 0; i < feeds->count && status < 0; i++)
        status = add_feed(r, feeds->value[i]);
    if (status >= 0)
        return status;
    char own[PATHS_BYTES];
    trace = ranks_path(trace, own);
    r->session = weir_session_open(r->plan, .workers = r->workers, .pin = r->pin, .trace = trace,
                                   .check_finite = r->check_finite,
                                   .bindings = r->bindings);
    if (r->session && !r->workers)
        workers_tell(program, r->session);
    return r->session ? -1 : options_failed(program);
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
    for (int i = 0; i < r->port_count; i++)
        if (r->ports[i].threaded) {
            pthread_join(r->ports[i].thread, NULL);
            bool ended = r->ports[i].status == WEIR_E_TIMEOUT || r->ports[i].status == WEIR_E_STATE;
            if (!error && r->ports[i].status && !(ended && atomic_load(&r->stop)))
                error = r->ports[i].error;
        }
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
    const char *error = join_threads(r);
    if (ran)
        status = options_failed(program);
    else if (error && status < 0)
        options_wrong(program, "%s", error), status = 1;
    if (status < 0 && ranks_first())
        print_stats(r);
    if (status < 0 && early)
        status = interrupt_status(interrupt_caught() ? interrupt_caught() : SIGTERM);
    return status < 0 ? 0 : status;
}

static void release(runner *r)
{
    interrupt_stops(NULL);
    weir_session_close(r->session);
    for (int i = 0; i < r->port_count && r->ports; i++) {
        free(r->ports[i].feed);
        free(r->ports[i].value);
    }
    free(r->ports);
    free(r->bindings);
    weir_plan_free(r->plan);
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
    const char *path = NULL, *trace = NULL;
    options_list feeds = {0};
    int steps = 10;
    runner r = {.name = "main"};
    const options_entry table[] = {
        {"PLAN", OPTIONS_TEXT, &path, .help = "a saved plan"},
        {"--steps", OPTIONS_INT, &steps, .min = 1, .max = 1e9, .help = "steps to run"},
        {"--program", OPTIONS_TEXT, &r.name, .value = "NAME", .help = "which of the plan's programs [main]"},
        {"--feed", OPTIONS_LIST, &feeds, .value = "NAME=FILE", .help = "values of an input, as raw numbers"},
        WORKERS_OPTIONS(r.workers, r.pin),
        CHECK_FINITE_OPTION(r.check_finite),
        {"--trace", OPTIONS_TEXT, &trace, .value = "FILE", .help = "write a trace for ui.perfetto.dev"},
        {.name = NULL},
    };
    int status = options_parse(&(options_spec){program, "Runs a plan with its own inputs.", table}, argc, argv);
    if (status >= 0)
        return status;
    interrupt_catch(ranks_first() ? program : NULL);
    r.path = path;
    r.steps = steps;
    r.plan = load(path, &status);
    if (r.plan)
        status = prepare(&r, &feeds, trace);
    if (status < 0)
        status = run(&r);
    release(&r);
    return status;
}
