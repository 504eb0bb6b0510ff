/* actors/session/session.c: the life of a session: open, start, wait, close.
 *
 * Everything is acquired in open, in the order of struct weir_session, and released in close in the reverse one;
 * close takes whatever open got to, so open has one way out.
 */
#include "actors/session/session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "actors/cluster/cluster.h"
#include "graph/base/base.h"
#include "graph/base/error.h"
#include "graph/base/filed.h"
#include "graph/base/names.h"
#include "graph/base/opts.h"
#include "graph/plan/spread/spread.h"
#include "transport/mail/park.h"

#define TRACE_EVENTS_DEFAULT (1 << 18)
#define TRACE_EVENTS_MAX (INT64_C(1) << 32)
#define NUMBER_LETTERS 13 /* " (4294967295)" */
#define AWAY_NS 1000000 /* between two times that those inside are woken */
#define STALL_MIN_NS 1000000
#define STALL_MAX_NS (INT64_C(1) << 60)

static weir_status open_bus(struct weir_session *s)
{
    weir_status status = bus_open(&s->bus, s->plan->actors_count);
    for (uint32_t a = 0; !status && a < s->plan->actors_count; a++)
        if (s->built.lane_of[a])
            bus_attach(&s->bus, a, &s->built.lane_of[a]->mailbox.end);
    return status ? status : cluster_route(s->built.cluster, s->built.arenas, &s->bus, &s->workers.list[0].lane);
}

/* ---- trace ---- */

static weir_status open_trace(struct weir_session *s, const weir_session_opts *opts)
{
    if (!opts->trace)
        return WEIR_OK;
    int64_t events = opts->trace_events ? opts->trace_events : TRACE_EVENTS_DEFAULT;
    if (events < 0 || events > TRACE_EVENTS_MAX)
        return error_set(WEIR_E_ARGUMENT, "weir_session_open: .trace_events is %lld; it must be from 1 to %lld, or 0 for the "
                         "default", (long long)events, (long long)TRACE_EVENTS_MAX);
    weir_status status = trace_file_open(&s->observed.trace, opts->trace);
    for (uint32_t w = 0; !status && w < s->workers.count; w++)
        status = trace_open(&s->workers.list[w].trace, (uint64_t)events);
    return status;
}

static weir_status close_trace(struct weir_session *s)
{
    if (!s->observed.trace.to)
        return WEIR_OK;
    trace_begin(&s->observed.trace, s->plan, s->observed.name);
    for (uint32_t w = 0; w < s->workers.count; w++)
        if (s->workers.list[w].trace.events)
            trace_write(&s->workers.list[w].trace, &s->observed.trace, s->plan, s->progress.open_ns);
    return trace_end(&s->observed.trace);
}

/* ---- open ---- */

static weir_status open_arenas(struct weir_session *s)
{
    uint32_t count = s->plan->spaces_count;
    char **bases = calloc(count + (size_t)1, sizeof(*bases));
    bool *elsewhere = calloc(count + (size_t)1, sizeof(*elsewhere));
    weir_status status = WEIR_OK;
    s->built.arenas = calloc(count + (size_t)1, sizeof(*s->built.arenas));
    if (!bases || !elsewhere || !s->built.arenas)
        status = error_set(WEIR_E_MEMORY, "no memory for %u arenas", count);
    for (uint32_t i = 0; !status && i < count; i++) {
        elsewhere[i] = !built_owns(&s->built, i);
        bases[i] = s->built.cluster ? share_arena(&s->built.cluster->own, i) : NULL;
    }
    if (!status)
        status = arenas_open(s->built.arenas, s->plan, bases, elsewhere, s->devices.directory);
    free(bases);
    free(elsewhere);
    return status;
}

static weir_status share_memory(struct weir_session *s, const struct lane_size *sizes)
{
    uint32_t *ring_of = calloc(s->plan->actors_count + (size_t)1, sizeof(*ring_of));
    if (!ring_of)
        return error_set(WEIR_E_MEMORY, "no memory for %u actors", s->plan->actors_count);
    for (uint32_t a = 0; a < s->plan->actors_count; a++)
        ring_of[a] = session_lane_number(s, a);
    weir_status status = cluster_share(s->built.cluster, sizes, s->workers.count + s->outside.count, ring_of);
    free(ring_of);
    return status;
}

/* Memory: what other ranks share in is known before it is made. */
static weir_status open_memory(struct weir_session *s)
{
    uint32_t count = s->workers.count + s->outside.count;
    struct lane_size *sizes = calloc(count + (size_t)1, sizeof(*sizes));
    if (!sizes)
        return error_set(WEIR_E_MEMORY, "no memory for %u lanes", count);
    session_size_lanes(s, sizes);
    weir_status status = share_memory(s, sizes);
    if (!status)
        status = open_arenas(s);
    if (!status)
        status = session_open_lanes(s, sizes);
    if (!status)
        status = session_open_queues(s);
    free(sizes);
    return status;
}

/* The shortest that makes sense is a few wake-ups of the watch; the longest fits the clock. */
static int64_t stall_ns(double stall_s)
{
    if (stall_s < 0)
        return 0;
    double ns = stall_s * 1e9;
    return ns < STALL_MIN_NS ? STALL_MIN_NS : ns > STALL_MAX_NS ? STALL_MAX_NS : (int64_t)ns;
}

static weir_status check_part(const weir_plan *plan, const struct cluster_env *env)
{
    if (!plan->part || (plan->part == env->rank + 1 && plan->ranks == env->size))
        return WEIR_OK;
    return error_set(WEIR_E_ARGUMENT, "the plan is the part of rank %u of %u; this is rank %u of %u", plan->part - 1,
                     plan->ranks, env->rank, env->size);
}

/* With one rank there is no cluster; with several the plan has an owner for every device. */
static weir_status open_cluster(struct weir_session *s, const weir_session_opts *opts)
{
    struct cluster_env env;
    weir_status status = cluster_env_read(&opts->cluster, &env);
    s->observed.stall_ns = env.stall_ns;
    s->workers.pin = env.pin;
    s->workers.spin_ns = env.spin_ns;
    s->debug.poisons = env.poison;
    s->devices.directory = env.offload;
    if (!status)
        status = check_part(s->plan, &env);
    if (!status && env.size > 1 && !s->plan->part) {
        s->plan = s->built.plan = s->spread = plan_spread(s->plan, env.size, env.devices);
        status = s->plan ? WEIR_OK : WEIR_E_ARGUMENT;
    }
    if (!status && env.size > 1)
        status = cluster_open(&s->built.cluster, &s->ranks, s->plan, &env, &s->observed.report);
    cluster_env_wipe(&env);
    return status;
}

static weir_status meet(struct weir_session *s)
{
    bool only = s->workers.compute_count == 1 && !s->devices.queues;
    weir_status status = cluster_meet(s->built.cluster, s->workers.compute_count, only, s->built.arenas);
    bool crowded = !status && s->built.cluster && s->workers.spin_ns < 0 && cluster_crowded(s->built.cluster);
    for (uint32_t w = 0; crowded && w < s->workers.count; w++) {
        s->workers.list[w].lane.mailbox.spin = spin_fixed(0);
        s->workers.list[w].lane.mailbox.team = NULL;
    }
    for (uint32_t i = 0; crowded && i < s->outside.count; i++)
        s->outside.lanes[i].mailbox.spin = spin_fixed(0);
    return status;
}

/* Of "disk:DIRECTORY"; NULL: the plan's. */
static weir_status choose_directory(struct weir_session *s, const char *place)
{
    s->devices.directory = place ? filed_place(place) : NULL;
    if (place && !s->devices.directory)
        return error_set(WEIR_E_ARGUMENT, "\"%s\" is no place to offload to; write \"disk:DIRECTORY\"", place);
    return WEIR_OK;
}

static weir_status read_spin(struct weir_session *s, const weir_session_opts *opts)
{
    char name[512];
    snprintf(name, sizeof name, "%s:%d: weir_session_open: .spin", opts->src.file, opts->src.line);
    return cluster_spin_read(name, opts->spin, &s->workers.spin_ns);
}

static weir_status session_open(struct weir_session *s, const weir_session_opts *opts)
{
    const char *level;
    weir_status status = home_open(&s->callers.home);
    if (!status)
        status = op_level(&level);
    if (!status)
        status = ending_open(&s->ending);
    if (!status)
        status = open_cluster(s, opts);
    if (!status)
        status = read_spin(s, opts);
    s->workers.pin |= opts->pin;
    s->debug.poisons |= opts->poison;
    s->debug.checks_finite = opts->check_finite;
    if (!status)
        status = choose_directory(s, opts->offload ? opts->offload : s->devices.directory);
    if (!status)
        status = session_bind(s, opts);
    if (!status)
        status = session_open_crew(s, opts);
    if (!status)
        status = session_assign_queues(s);
    if (!status)
        status = session_alloc_lanes(s);
    if (!status)
        status = open_memory(s);
    if (!status)
        status = session_open_weights(s, opts);
    if (!status && s->workers.guest && s->devices.queues)
        status = session_unsupported(opts, "workers of accelerators are not shared");
    if (!status)
        status = session_prepare_kernels(s); /* of zeros */
    if (!status)
        status = session_fill(s); /* before other ranks can look */
    if (!status)
        snapshot_touch(&s->built);
    if (!status)
        status = open_trace(s, opts);
    if (!status)
        status = meet(s);
    if (!status)
        status = open_bus(s);
    if (!status)
        status = session_build(s);
    if (!status)
        status = session_start_workers(s);
    if (!status)
        status = session_watch(s, opts->stall_s ? stall_ns(opts->stall_s) : s->observed.stall_ns);
    if (!status)
        status = cluster_begin(s->built.cluster);
    if (!status)
        status = session_join_groups(s);
    return status ? status : session_open_calls(s);
}

/* The mistake in the options of open, or NULL. Firings are counted from step 0 on, so the count has to fit. */
static const char *opts_wrong(const weir_plan *plan, const weir_session_opts *opts, char *text, size_t bytes)
{
    if (!plan)
        return "the plan is NULL";
    if (opts->workers < 0 || opts->workers > WEIR_DEVICES_MAX)
        return snprintf(text, bytes,
                        ".workers is %d; from 1 to %d can be, and no more than there are devices are started",
                        opts->workers, WEIR_DEVICES_MAX), text;
    if (opts->workers && opts->workers_of)
        return "there are both workers and workers_of";
    if (opts->first_step < 0 || opts->first_step > INT64_MAX / plan->micro_batches)
        return snprintf(text, bytes, ".first_step is %lld; from 0 to %lld can be", (long long)opts->first_step,
                        (long long)(INT64_MAX / plan->micro_batches)), text;
    if (isnan(opts->stall_s))
        return ".stall_s is not a number";
    if (opts->bindings && !opts->binding_size)
        return "binding_size is not set: it is sizeof(weir_binding)";
    return NULL;
}

static weir_status session_end(struct weir_session *s);

/* The program's name for the session; else what its plan is called and, for all but the first, a number. */
static void name_session(struct weir_session *s, const char *given)
{
    static _Atomic uint32_t opened;
    uint32_t number = ++opened;
    const char *name = given ? given : plan_text(s->plan, s->plan->name);
    int letters = REPORT_NAME - (given || number == 1 ? 0 : NUMBER_LETTERS);
    int count = snprintf(s->observed.name, sizeof(s->observed.name), "%.*s", letters, name);
    if (!given && number > 1)
        snprintf(s->observed.name + count, sizeof(s->observed.name) - (size_t)count, " (%u)", number);
    report_name(&s->observed.report, s->observed.name, given != NULL);
}

weir_session *weir_session_open_at(const weir_plan *plan, const weir_session_opts *given)
{
    weir_session_opts opts;
    if (caller_check_report("open") || opts_read(&opts, sizeof(opts), given, "weir_session_open"))
        return NULL;
    char text[160];
    const char *wrong = opts_wrong(plan, &opts, text, sizeof(text));
    if (wrong) {
        error_set(WEIR_E_ARGUMENT, "%s:%d: weir_session_open: %s", opts.src.file, opts.src.line, wrong);
        return NULL;
    }
    if (opts.workers_of && caller_check(opts.workers_of, "open"))
        return NULL;
    weir_session *s = calloc(1, sizeof(*s));
    if (!s) {
        error_set(WEIR_E_MEMORY, "no memory for a session");
        return NULL;
    }
    s->plan = s->built.plan = s->given = plan;
    plan_hold(plan);
    s->observed.report = (struct report){opts.report, opts.report_ctx, NULL};
    report_open(&s->observed.report);
    name_session(s, opts.cluster.name);
    s->run.first_step = opts.first_step;
    s->progress.ran = calloc(plan->programs_count + (size_t)1, sizeof(*s->progress.ran));
    s->progress.open_ns = park_now_ns();
    atomic_init(&s->outside.ready_fd, -1);
    session_own(s);
    session_own_ranks(s);
    session_own_snapshots(s);
    if (!s->progress.ran)
        error_set(WEIR_E_MEMORY, "no memory for a session");
    if (!s->progress.ran || session_open(s, &opts) || caller_opens(s)) {
        trace_file_drop(&s->observed.trace);
        session_end(s);
        return NULL;
    }
    return s;
}

/* ---- close ---- */

void session_order(struct weir_session *s, uint32_t orders)
{
    for (uint32_t w = 0; w < s->workers.count; w++)
        mailbox_order(&s->workers.list[w].lane.mailbox, orders);
}

void session_order_outside(struct weir_session *s, uint32_t orders)
{
    for (uint32_t i = 0; i < s->outside.count; i++)
        mailbox_order(&s->outside.lanes[i].mailbox, orders);
    session_announce(s);
}

/* ---- who is inside ---- */

weir_status session_closes(const struct weir_session *s, const char *function)
{
    if (LIKELY(atomic_load(&s->callers.closing) != CLOSING_WAKES))
        return WEIR_OK;
    return error_set(WEIR_E_STATE, "weir_session_%s: the session is being closed", function);
}

/* Wakes who waits in push, pull or wait, until none does. One that was just about to sleep is woken the next time. */
static void send_away(struct weir_session *s)
{
    atomic_store(&s->callers.closing, CLOSING_WAKES);
    for (uint32_t inside; s->callers.entry && (inside = atomic_load(&s->callers.entry->inside)) != 0;) {
        park_wake(&s->ending.state);
        session_order_outside(s, LANE_REST);
        park_wait(&s->callers.entry->inside, inside, park_now_ns() + AWAY_NS);
    }
    atomic_store(&s->callers.closing, CLOSING_ALONE);
    caller_closed(s->callers.entry);
}

/* A session that is closed in the middle of a run has not done its steps. */
static void leave(struct weir_session *s)
{
    bool failed = ending_failure_for_pull(&s->ending) != WEIR_OK;
    if (!failed && session_at_rest(s) && session_steps_all(s))
        session_drop_pulls(s);
    failed = ending_failure_for_pull(&s->ending) != WEIR_OK;
    cluster_leave(s->built.cluster, failed ? -1 : session_steps_all(s));
}

static weir_status session_end(struct weir_session *s)
{
    send_away(s);
    session_close_ringers(s);
    ending_await_sent(&s->ending);
    snapshot_close(&s->snapshots);
    if (s->built.cluster && s->built.cluster->net)
        leave(s); /* after it nobody calls the watch */
    watch_close(s->observed.watch);
    session_stop_workers(s);
    if (s->built.actors && ending_failed(&s->ending))
        session_tell_failure(s);
    weir_status status = close_trace(s);
    session_close_calls(s);
    session_close_groups(s);
    session_close_queues(s);
    session_unbuild(s);
    bus_close(&s->bus);
    session_close_lanes(s);
    session_close_fd(s); /* nobody posts any more */
    cluster_close(s->built.cluster);
    report_close(&s->observed.report); /* of which nobody is left who says something */
    if (s->built.arenas)
        arenas_close(s->built.arenas, s->plan->spaces_count);
    free(s->built.arenas);
    session_close_weights(&s->weights);
    free(s->callbacks.bindings);
    free(s->progress.ran);
    weir_plan_free(s->spread);
    weir_plan_free((weir_plan *)s->given);
    ending_close(&s->ending);
    home_close(&s->callers.home);
    free(s);
    return status;
}

weir_status weir_session_close(weir_session *s)
{
    weir_status status = s ? session_enter_outside(s, "close") : WEIR_OK;
    if (!s || status)
        return status;
    status = caller_closes(s);
    session_exit(s);
    return status ? status : session_end(s);
}

/* ---- runs ---- */

/* Every actor's number of firings has to fit its counter, over the session's whole life. */
static bool steps_fit(const struct weir_session *s, uint32_t program, const weir_run_opts *run)
{
    int64_t total, firings, before = program ? run->first_step : s->run.first_step + session_steps_of(s, 0);
    if (run->steps <= 0 || before < 0 || __builtin_add_overflow(before, run->steps, &total) ||
        __builtin_add_overflow(session_steps_all(s), run->steps, &firings))
        return false;
    return !__builtin_mul_overflow(total, (int64_t)s->plan->micro_batches, &firings);
}

static weir_status no_program(const weir_plan *plan, const char *name)
{
    struct names names = {.wanted = name};
    char text[NAMES_TEXT_BYTES];
    for (uint32_t p = 0; p < plan->programs_count; p++)
        names_add(&names, plan_text(plan, plan->programs[p].name));
    return error_set(WEIR_E_ARGUMENT, "weir_session_start: the plan has no program '%s'%s", name,
                     names_text(&names, text, sizeof(text)));
}

static weir_status find_program(const struct weir_session *s, const weir_run_opts *run, uint32_t *program)
{
    const char *name = run->program ? run->program : "main";
    bool empty = true;
    for (*program = 0; *program < s->plan->programs_count; ++*program)
        if (!run->program || !strcmp(plan_text(s->plan, s->plan->programs[*program].name), name))
            break;
    if (*program == s->plan->programs_count)
        return no_program(s->plan, name);
    for (uint32_t a = 0; a < s->plan->actors_count; a++)
        empty &= s->plan->actors[a].program.i != *program;
    if (empty)
        return error_set(WEIR_E_ARGUMENT, "weir_session_start: there is nothing to do in the program '%s'", name);
    if (!*program && run->first_step)
        return error_set(WEIR_E_ARGUMENT, "weir_session_start: main goes on where its last run ended, not at step %lld",
                         (long long)run->first_step);
    return WEIR_OK;
}

weir_status weir_session_start_at(weir_session *s, const weir_run_opts *given)
{
    uint32_t program = 0;
    weir_run_opts run;
    weir_status status = caller_check_outside(s, "start");
    if (!status)
        status = opts_read(&run, sizeof(run), given, "weir_session_start");
    if (!status)
        status = ending_failure(&s->ending);
    if (!status)
        status = find_program(s, &run, &program);
    if (!status && !program)
        status = ending_ended(&s->ending, built_rank(&s->built));
    if (status)
        return status;
    if (ending_state(&s->ending) == ENDING_RUNNING)
        return error_set(WEIR_E_STATE, "weir_session_start: %lld steps are under way",
                         (long long)s->workers.owner.steps);
    if (!steps_fit(s, program, &run))
        return error_set(WEIR_E_ARGUMENT, "weir_session_start: cannot run %lld steps; .steps must be 1 or more, .first_step 0 "
                         "or more, and the last step times the micro-batches must fit in 63 bits", (long long)run.steps);
    int64_t before = session_steps_all(s);
    struct cluster_steps steps = {.before = before, .others = before - session_steps(s), .more = run.steps};
    status = cluster_start(s->built.cluster, program, program != s->progress.program, &steps);
    return status ? status : session_begin(s, program, &run);
}

/* A failure is known before the other workers have ended what they were firing. False: the deadline was over first. */
static bool wait_halted(const struct weir_session *s, int64_t deadline)
{
    /* acquire: pairs with the decrement in owner_halted() */
    for (uint32_t firing; (firing = atomic_load_explicit(&s->progress.firing, memory_order_acquire)) != 0;)
        if (!park_wait((_Atomic uint32_t *)&s->progress.firing, firing, deadline))
            return false;
    return true;
}

void session_await_halted(const struct weir_session *s)
{
    wait_halted(s, PARK_FOREVER);
}

static weir_status run_wait(struct weir_session *s, int timeout_ms)
{
    int64_t deadline = park_deadline(timeout_ms);
    weir_status status = WEIR_OK;
    while (!status && ending_state(&s->ending) == ENDING_RUNNING) {
        if (!park_wait(&s->ending.state, ENDING_RUNNING, deadline))
            break;
        status = session_closes(s, "wait");
    }
    enum ending_state state = ending_state(&s->ending);
    if (status)
        return status;
    if (state == ENDING_RUNNING)
        return error_set(WEIR_E_TIMEOUT, "weir_session_wait: the run is not over after %d ms", timeout_ms);
    if (state >= ENDING_FAILED_AT_END && wait_halted(s, deadline))
        session_tell_failure(s);
    return s->progress.program ? ending_failure(&s->ending) : ending_ended(&s->ending, built_rank(&s->built));
}

weir_status weir_session_wait(weir_session *s, int timeout_ms)
{
    weir_status status = session_enter_outside(s, "wait");
    if (status)
        return status;
    status = run_wait(s, timeout_ms);
    session_exit(s);
    return status;
}

weir_status weir_session_run_at(weir_session *s, const weir_run_opts *run)
{
    weir_status status = weir_session_start_at(s, run);
    return status ? status : weir_session_wait(s, -1);
}
