/* apps/weir/bench/actors.c: the plans are made by hand, since a compiler would rightly fuse a chain on one device
 * into one actor. The same by hand, beside the figures, is in apps/weir/bench/peers/hand.h.
 *
 *     chains     stage i reads stage i - 1; stages are dealt out to the workers in turn
 *     columns    every column fires once a step and reads what it and those around it published in the step before:
 *                a fan-in and fan-out as wide as `reach` says, of which every second edge is between workers
 *
 * Rounds go over all cases, so that a busy minute of the machine harms all alike. Behind them come many short runs of the
 * columns, each beside one of the threads that spin: medians hide that a run now and then is slow.
 */
#include "apps/weir/bench/actors.h"

#include <stdlib.h>
#include <sys/resource.h>

#include "apps/common/measure.h"
#include "apps/weir/bench/peers/hand.h"
#include "apps/weir/bench/cards/instant.h"
#include "graph/plan/form/build.h"
#include "transport/mail/cores.h"

#define ROUNDS 9
#define ROUND_SECONDS 0.05
#define WARM_SECONDS 0.005
#define TOKENS_MIN 2000 /* of empty kernels; of others at least TOKENS_FEW */
#define TOKENS_FEW 20
#define TOKENS_MAX 400000
#define SHORT_RUNS 100
#define SHORT_SECONDS 0.005
#define SHORT_STEPS_MIN 20
#define NS 1e9

/* ---- ops ---- */

static bool infer_empty(weir_op_args *args, char *error, size_t error_bytes)
{
    (void)args, (void)error, (void)error_bytes;
    return true;
}

/* One for each length of its kernel. */
static const weir_op ops[] = {
    {.name = "bench_empty", .infer = infer_empty, .kernel = {[WEIR_CPU] = bench_empty, [WEIR_CUDA] = bench_empty}},
#define X(us) {.name = "bench_" #us "us", .infer = infer_empty, .kernel = {[WEIR_CPU] = bench_##us##us}},
    BENCH_SPIN_LIST(X)
#undef X
    {.name = "bench_44us", .infer = infer_empty, .kernel = {[WEIR_CPU] = bench_44us}},
};
#define OPS (sizeof ops / sizeof *ops)
static const int op_us[OPS] = {
    0,
#define X(us) us,
    BENCH_SPIN_LIST(X)
#undef X
    44,
};

/* ---- plans ---- */

/* A chain, or columns if it has a reach. */
struct bench_case {
    uint32_t actors, slots, reach;
    int workers, us;
    enum bench_ahead ahead;
};

static const weir_op *case_op(const struct bench_case *c)
{
    size_t i = 0;
    while (op_us[i] != c->us)
        i++;
    return &ops[i];
}

static void add_devices(plan_builder *builder, uint32_t count)
{
    char name[16];
    for (uint32_t i = 0; i < count; i++) {
        snprintf(name, sizeof name, "cpu:%u", i);
        plan_str text = plan_add_text(builder, name);
        plan_add_spaces(builder, (plan_space){.kind = WEIR_CPU, .index = i, .name = text});
        plan_add_queues(builder, (plan_queue){.space = {i}, .kind = PLAN_COMPUTE, .name = text});
    }
}

static weir_device_kind ahead_kind = WEIR_FAKE;

/* Queues 0 and 1 of one device, which runs ahead; 2 of the host. */
static void add_ahead(plan_builder *builder)
{
    plan_str ahead = plan_add_text(builder, "ahead:0"), host = plan_add_text(builder, "cpu:0");
    plan_add_spaces(builder, (plan_space){.kind = ahead_kind, .name = ahead});
    plan_add_spaces(builder, (plan_space){.kind = WEIR_CPU, .name = host});
    plan_add_queues(builder, (plan_queue){.kind = PLAN_COMPUTE, .name = ahead});
    plan_add_queues(builder, (plan_queue){.kind = PLAN_COMPUTE, .name = plan_add_text(builder, "ahead:0 too")});
    plan_add_queues(builder, (plan_queue){.space = {1}, .kind = PLAN_COMPUTE, .name = host});
}

static uint32_t stage_queue(const struct bench_case *c, uint32_t i)
{
    switch (c->ahead) {
    case BENCH_AHEAD_ONE:
        return 0;
    case BENCH_AHEAD_TWO:
        return i % 2;
    case BENCH_AHEAD_HOST:
        return i % 2 ? 0 : 2;
    default:
        return i % (uint32_t)c->workers;
    }
}

static void add_actor(plan_builder *builder, const struct bench_case *c, plan_actor actor)
{
    const plan_str name = plan_add_text(builder, "stage");
    uint32_t i = actor.kernels.first;
    actor.queue = (plan_queue_id){stage_queue(c, i)};
    actor.name = name;
    actor.fires = 1;
    plan_add_actors(builder, actor);
    plan_add_kernels(builder, (plan_kernel){.actor = {i}, .op = plan_add_text(builder, case_op(c)->name), .name = name,
                                            .host = PLAN_NONE});
}

static void add_regst(plan_builder *builder, const struct bench_case *c, uint32_t i, uint32_t initial)
{
    plan_space_id space = plan_builder_plan(builder)->queues[stage_queue(c, i)].space;
    plan_add_regsts(builder, (plan_regst){.producer = {i}, .space = space, .slots = c->slots, .fill = 1,
                                          .initial = initial});
}

/* Stage i reads register i - 1, writes register i; the last one writes none. The stage that is downstream fires first. */
static void add_stage(plan_builder *builder, const struct bench_case *c, uint32_t i)
{
    bool last = i + 1 == c->actors;
    add_actor(builder, c, (plan_actor){.priority = c->actors - i, .kernels = {i, 1}, .ports = {i ? i - 1 : 0, i > 0},
                                       .regsts = {i, !last}});
    if (i > 0)
        plan_add_ports(builder, (plan_port){.actor = {i}, .regst = {i - 1}, .hold = 1});
    if (!last)
        add_regst(builder, c, i, 0);
}

static void add_column(plan_builder *builder, const struct bench_case *c, uint32_t i)
{
    struct bench_columns shape = {.columns = c->actors, .reach = c->reach};
    uint32_t first = plan_builder_plan(builder)->ports_count, count = 0;
    for (uint32_t j = 0; j < c->actors; j++)
        if (bench_columns_read(&shape, i, j)) {
            plan_add_ports(builder, (plan_port){.actor = {i}, .regst = {j}, .hold = 1});
            count++;
        }
    add_actor(builder, c, (plan_actor){.priority = i, .kernels = {i, 1}, .ports = {first, count}, .regsts = {i, 1}});
    add_regst(builder, c, i, 1);
}

static weir_plan *case_plan(const struct bench_case *c)
{
    plan_builder *builder = plan_builder_new();
    if (!builder)
        return NULL;
    plan_builder_plan(builder)->micro_batches = 1;
    plan_add_programs(builder, (plan_program){plan_add_text(builder, "main")});
    if (c->ahead)
        add_ahead(builder);
    else
        add_devices(builder, (uint32_t)c->workers);
    for (uint32_t i = 0; i < c->actors; i++)
        (c->reach ? add_column : add_stage)(builder, c, i);
    weir_plan *plan = plan_builder_finish(builder, NULL);
    if (plan && plan_validate(plan)) {
        weir_plan_free(plan);
        plan = NULL;
    }
    return plan;
}

/* ---- cases ---- */

enum {
#define X(name, ...) CASE_##name,
    BENCH_ACTORS_LIST(X)
#undef X
        CASES
};

static const struct bench_case cases[CASES] = {
#define X(name, text, ...) {__VA_ARGS__},
    BENCH_ACTORS_LIST(X)
#undef X
};
static const char *const case_names[CASES] = {
#define X(name, ...) #name,
    BENCH_ACTORS_LIST(X)
#undef X
};
static const char *const case_texts[CASES] = {
#define X(name, text, ...) text,
    BENCH_ACTORS_LIST(X)
#undef X
};

/* For a chain that is filled: per token and actor. Else per token, or step. */
static double case_divisor(const struct bench_case *c)
{
    return c->reach || c->slots == 1 ? 1 : c->actors;
}

struct bench {
    int rounds;
    bool device; /* only cases of a device that runs ahead */
    double seconds[CASES][ROUNDS], by_hand[CASES][ROUNDS], handoff[ROUNDS];
};

/* So many tokens take about `total` seconds when one takes `seconds`. A busy machine can be a thousand times slower. */
static int64_t tokens_for(double seconds, double total)
{
    double tokens = total / (seconds > 0 ? seconds : 1);
    return tokens < TOKENS_MIN ? TOKENS_MIN : tokens > TOKENS_MAX ? TOKENS_MAX : (int64_t)tokens;
}

/* A kernel that takes its time gets fewer. */
static int64_t case_tokens(const struct bench_case *c, double seconds, double total)
{
    if (!c->us)
        return tokens_for(seconds, total);
    double tokens = total / (seconds > 0 ? seconds : c->us * 1e-6 * c->actors);
    return tokens < TOKENS_FEW ? TOKENS_FEW : (int64_t)tokens;
}

/* Seconds per token, over one run of a session that is warm. */
static weir_status time_session(weir_session *session, int64_t tokens, double *seconds)
{
    weir_session_stats stats;
    weir_status status = weir_session_run(session, tokens);
    weir_session_get_stats(session, &stats);
    *seconds = stats.seconds / (double)tokens;
    return status;
}

/* The first run warms up and says how long the second may be. */
static weir_status run_case(const struct bench_case *c, double *seconds)
{
    weir_plan *plan = case_plan(c);
    weir_session *session = plan ? weir_session_open(plan, .workers = c->workers) : NULL;
    weir_status status = session ? WEIR_OK : WEIR_E_MEMORY; /* the sentence is there */
    if (!status)
        status = time_session(session, case_tokens(c, 0, WARM_SECONDS), seconds);
    if (!status)
        status = time_session(session, case_tokens(c, *seconds, ROUND_SECONDS), seconds);
    weir_session_close(session);
    weir_plan_free(plan);
    return status;
}

/* 0: nobody wrote that by hand. */
static double run_by_hand(const struct bench_case *c, int64_t tokens)
{
    struct bench_columns shape = {c->actors, c->reach, case_op(c)->kernel[WEIR_CPU]};
    if (c->ahead)
        return 0;
    if (c->reach)
        return bench_hand_columns(&shape, tokens);
    if (c->slots == 1)
        return bench_hand_pingpong(tokens);
    return c->workers == 1 ? bench_hand_ring(tokens) : 0;
}

static weir_status measure_round(struct bench *bench, int round)
{
    weir_status status = WEIR_OK;
    bench->handoff[round] = bench_hand_handoff(tokens_for(bench_hand_handoff(TOKENS_MIN), ROUND_SECONDS));
    for (int i = 0; i < CASES && !status; i++) {
        if (bench->device && !cases[i].ahead)
            continue;
        double first = run_by_hand(&cases[i], case_tokens(&cases[i], 0, WARM_SECONDS));
        bench->by_hand[i][round] = run_by_hand(&cases[i], case_tokens(&cases[i], first, ROUND_SECONDS));
        status = run_case(&cases[i], &bench->seconds[i][round]);
    }
    return status;
}

/* ---- short runs ---- */

/* The times of a step in each run, and how the workers slept in weir's. */
struct short_runs {
    int runs;
    int64_t steps;
    double seconds[SHORT_RUNS], by_hand[SHORT_RUNS];
    double sleeps_per_s, sleep_seconds;
};

/* The process's sleeps and its processors' time. */
static void read_usage(long *sleeps, double *busy)
{
    struct rusage now;
    getrusage(RUSAGE_SELF, &now);
    *sleeps = now.ru_nvcsw;
    *busy = (double)(now.ru_utime.tv_sec + now.ru_stime.tv_sec) + 1e-6 * (double)(now.ru_utime.tv_usec + now.ru_stime.tv_usec);
}

/* The caller, who waits for the end of the run, sleeps once. */
static weir_status time_short(weir_session *session, struct short_runs *of, int run, double *ran, double *asleep)
{
    long before, after;
    double busy, busy_after;
    read_usage(&before, &busy);
    weir_status status = time_session(session, of->steps, &of->seconds[run]);
    read_usage(&after, &busy_after);
    const double seconds = of->seconds[run] * (double)of->steps, idle = 2 * seconds - (busy_after - busy);
    of->sleeps_per_s += after - before > 1 ? (double)(after - before - 1) : 0;
    *ran += seconds;
    *asleep += idle > 0 ? idle : 0;
    return status;
}

static weir_status measure_short(const struct bench_case *c, bool quick, struct short_runs *of)
{
    double ran = 0, asleep = 0;
    weir_plan *plan = case_plan(c);
    weir_session *session = plan ? weir_session_open(plan, .workers = c->workers) : NULL;
    weir_status status = session ? WEIR_OK : WEIR_E_MEMORY; /* the sentence is there */
    double tokens = SHORT_SECONDS / run_by_hand(c, case_tokens(c, 0, WARM_SECONDS));
    *of = (struct short_runs){.runs = quick ? 3 : SHORT_RUNS, .steps = tokens < SHORT_STEPS_MIN ? SHORT_STEPS_MIN : (int64_t)tokens};
    for (int run = 0; run < of->runs && !status; run++) {
        of->by_hand[run] = run_by_hand(c, of->steps);
        status = time_short(session, of, run, &ran, &asleep);
    }
    of->sleep_seconds = of->sleeps_per_s > 0 ? asleep / of->sleeps_per_s : 0;
    of->sleeps_per_s /= ran > 0 ? ran : 1;
    weir_session_close(session);
    weir_plan_free(plan);
    return status;
}

static const int quantiles[] = {50, 90, 99};
#define QUANTILES (sizeof quantiles / sizeof *quantiles)

static void report_short(const char *name, const char *text, struct short_runs *of, bool json, FILE *to)
{
    double ns[QUANTILES], by_hand[QUANTILES];
    for (size_t i = 0; i < QUANTILES; i++) {
        ns[i] = NS * measure_quantile(of->seconds, of->runs, quantiles[i] / 100.0);
        by_hand[i] = NS * measure_quantile(of->by_hand, of->runs, quantiles[i] / 100.0);
    }
    for (size_t i = 0; json && i < QUANTILES; i++)
        fprintf(to, ", \"short_%s_p%d_ns\": %.2f, \"raw_short_%s_p%d_ns\": %.2f", name, quantiles[i], ns[i], name, quantiles[i],
                by_hand[i]);
    if (json)
        fprintf(to, ", \"short_%s_sleeps_per_s\": %.0f, \"short_%s_sleep_us\": %.1f", name, of->sleeps_per_s, name,
                1e6 * of->sleep_seconds);
    else
        fprintf(to, "%-40s %9.0f %9.0f %9.0f   by hand %9.0f %9.0f %9.0f   %7.0f sleeps/s of %.0f us\n", text, ns[0], ns[1],
                ns[2], by_hand[0], by_hand[1], by_hand[2], of->sleeps_per_s, 1e6 * of->sleep_seconds);
}

static weir_status short_runs(bool json, bool quick, FILE *to)
{
    weir_status status = WEIR_OK;
    if (!json)
        fprintf(to, "\nruns of 5 ms, ns a step: 50, 90 and 99 of 100 take at most so long\n");
    for (int i = 0; i < CASES && !status; i++) {
        struct short_runs of;
        if (!cases[i].reach)
            continue;
        status = measure_short(&cases[i], quick, &of);
        if (!status)
            report_short(case_names[i], case_texts[i], &of, json, to);
    }
    return status;
}

/* The smallest cache that the first two cores that this process may use share: "L1", "L2", "L3"; or "none". */
static const char *shared_cache(void)
{
    static const char *const name[] = {"L1", "L1", "L2", "L3"};
    for (int index = 0; index < 4; index++) {
        char path[96], list[128] = "";
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cache/index%d/shared_cpu_list", cores_at(0), index);
        FILE *file = fopen(path, "r");
        if (!file)
            return "none";
        const bool read = fgets(list, sizeof list, file) != NULL;
        fclose(file);
        for (char *at = read ? list : NULL; at && *at;) {
            int first = (int)strtol(at, &at, 10), last = *at == '-' ? (int)strtol(at + 1, &at, 10) : first;
            if (cores_at(1) >= first && cores_at(1) <= last && cores_at(1) != cores_at(0))
                return name[index];
            at += *at == ',';
            if (*at == '\n')
                break;
        }
    }
    return "none";
}

/* ---- telling ---- */

/* The median of a case's rounds in its unit; `by_hand` 0: there is none. */
static void case_ns(struct bench *bench, int i, double *ns, double *by_hand)
{
    double unit = NS / case_divisor(&cases[i]);
    *ns = unit * measure_median(bench->seconds[i], bench->rounds);
    *by_hand = unit * measure_median(bench->by_hand[i], bench->rounds);
}

static void report_json(struct bench *bench, FILE *to)
{
    double ns, by_hand;
    fputc('{', to);
    for (int i = 0; i < CASES; i++) {
        if (bench->device && !cases[i].ahead)
            continue;
        case_ns(bench, i, &ns, &by_hand);
        fprintf(to, "\"%s_ns\": %.2f, ", case_names[i], ns);
        if (by_hand > 0)
            fprintf(to, "\"raw_%s_ns\": %.2f, ", case_names[i], by_hand);
    }
    fprintf(to, "\"raw_handoff_ns\": %.1f", NS * measure_median(bench->handoff, bench->rounds));
}

static void report(struct bench *bench, FILE *to)
{
    double ns, by_hand;
    for (int i = 0; i < CASES; i++) {
        if (bench->device && !cases[i].ahead)
            continue;
        case_ns(bench, i, &ns, &by_hand);
        fprintf(to, "%-40s %12.2f ns", case_texts[i], ns);
        if (by_hand > 0)
            fprintf(to, "   by hand %12.2f ns", by_hand);
        fputc('\n', to);
    }
    fprintf(to, "%-40s %38.2f ns\n", "a word there and back, by hand",
            NS * measure_median(bench->handoff, bench->rounds));
}

static weir_status measure(struct bench *bench, bool json, bool quick, FILE *to)
{
    weir_status status = WEIR_OK;
    bench->rounds = quick ? 1 : ROUNDS;
    for (size_t i = 0; i < OPS && !status; i++)
        status = weir_op_register(&ops[i]);
    for (int round = 0; round < bench->rounds && !status; round++)
        status = measure_round(bench, round);
    if (!status)
        (json ? report_json : report)(bench, to);
    if (!status && !bench->device)
        status = short_runs(json, quick, to);
    if (!status && !bench->device)
        fprintf(to, json ? ", \"shared_cache\": \"%s\"" : "the first two cores share: %s\n", shared_cache());
    if (!status && json)
        fputs("}\n", to);
    return status;
}

weir_status bench_actors(bool json, bool quick, FILE *to)
{
    bench_instant();
    return measure(&(struct bench){.device = false}, json, quick, to);
}

weir_status bench_actors_device(weir_device_kind kind, bool json, bool quick, FILE *to)
{
    ahead_kind = kind;
    return measure(&(struct bench){.device = true}, json, quick, to);
}
