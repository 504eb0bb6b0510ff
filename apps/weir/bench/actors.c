/* apps/weir/bench/actors.c: the plans are made by hand, since a compiler would rightly fuse a chain on one device
 * into one actor. The same by hand, beside the figures, is in apps/weir/bench/peers/hand.h.
 *
 *     chains     stage i reads stage i - 1; stages are dealt out to the workers in turn
 *     columns    every column fires once a step and reads what it and those around it published in the step before:
 *                a fan-in and fan-out as wide as `reach` says, of which every second edge is between workers
 *
 * Rounds go over all cases, so that a busy minute of the machine harms all alike.
 */
#include "apps/weir/bench/actors.h"

#include <stdlib.h>

#include "apps/common/measure.h"
#include "apps/weir/bench/peers/hand.h"
#include "apps/weir/bench/cards/instant.h"
#include "graph/plan/form/build.h"

#define ROUNDS 9
#define ROUND_SECONDS 0.05
#define WARM_SECONDS 0.005
#define TOKENS_MIN 2000 /* of empty kernels; of others at least TOKENS_FEW */
#define TOKENS_FEW 20
#define TOKENS_MAX 400000
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

/* The kind that runs ahead. */
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

/* The queue of a stage. */
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
    fprintf(to, "\"raw_handoff_ns\": %.1f}\n", NS * measure_median(bench->handoff, bench->rounds));
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
