/* apps/common/bench_actors.c: the plans are made by hand, since a compiler would rightly fuse a chain on one device into one
 * actor.
 *
 * The raw figures do the least that could do the same job: a bounded ring between stages (so backpressure is there), one
 * indirect call per stage, nothing else. They are the floor, not a competitor.
 */
#include "apps/common/bench_actors.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "actors/park.h"
#include "apps/common/measure.h"
#include "graph/plan_build.h"

#define STAGES 8
#define SLOTS 64
#define ROUNDS 7
#define CHAIN_TOKENS 400000
#define PING_TOKENS 100000
#define NS 1e9

/* ---- plans ---- */

static bool infer_empty(weir_op_args *args, char *error, size_t error_bytes)
{
    (void)args, (void)error, (void)error_bytes;
    return true;
}

static weir_status kernel_empty(const weir_kernel_args *args)
{
    (void)args;
    return WEIR_OK;
}

static const weir_op op_empty = {.name = "bench_empty", .infer = infer_empty, .kernel = {[WEIR_CPU] = kernel_empty}};

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

/* Stage i of `stages`: reads register i - 1, writes register i; the last one writes none. What is downstream fires first. */
static void add_stage(plan_builder *builder, uint32_t i, uint32_t stages, uint32_t slots, uint32_t device)
{
    plan_str name = plan_add_text(builder, "stage");
    plan_actor actor = {.queue = {device}, .name = name, .fires = 1, .priority = stages - i, .kernels = {i, 1}};
    actor.ports = (plan_range){i ? i - 1 : 0, i > 0};
    actor.regsts = (plan_range){i, i + 1 < stages};
    plan_add_actors(builder, actor);
    plan_add_kernels(builder, (plan_kernel){.actor = {i}, .op = plan_add_text(builder, op_empty.name), .name = name,
                                            .host = PLAN_NONE});
    if (i > 0)
        plan_add_ports(builder, (plan_port){.actor = {i}, .regst = {i - 1}, .hold = 1});
    if (i + 1 < stages)
        plan_add_regsts(builder, (plan_regst){.producer = {i}, .space = {device}, .slots = slots, .fill = 1});
}

static weir_plan *chain_plan(uint32_t stages, uint32_t slots, uint32_t devices)
{
    plan_builder *builder = plan_builder_new();
    if (!builder)
        return NULL;
    plan_builder_plan(builder)->micro_batches = 1;
    add_devices(builder, devices);
    for (uint32_t i = 0; i < stages; i++)
        add_stage(builder, i, stages, slots, i % devices);
    weir_plan *plan = plan_builder_finish(builder, NULL);
    if (plan && plan_validate(plan)) {
        weir_plan_free(plan);
        plan = NULL;
    }
    return plan;
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

/* ---- one thread by hand ---- */

struct ring {
    uint32_t head, tail; /* tail - head values are in it */
};

struct stage {
    struct ring *in, *out; /* NULL at the ends */
    weir_kernel_fn call;
};

static bool stage_fire(struct stage *stage, const weir_kernel_args *args)
{
    if ((stage->in && stage->in->head == stage->in->tail) || (stage->out && stage->out->tail - stage->out->head == SLOTS))
        return false;
    if (stage->call(args))
        return false;
    if (stage->in)
        stage->in->head++;
    if (stage->out)
        stage->out->tail++;
    return true;
}

static double time_raw_ring(int64_t tokens)
{
    struct ring rings[STAGES - 1] = {0};
    struct stage stages[STAGES];
    weir_kernel_args args = {0};
    weir_kernel_fn volatile call = kernel_empty; /* the compiler is not to see through it */
    for (int i = 0; i < STAGES; i++)
        stages[i] = (struct stage){i ? &rings[i - 1] : NULL, i + 1 < STAGES ? &rings[i] : NULL, call};
    double start = measure_seconds();
    for (int64_t done = 0; done < tokens;)
        for (int i = 0; i < STAGES; i++)
            done += stage_fire(&stages[i], &args) && i + 1 == STAGES;
    return (measure_seconds() - start) / (double)tokens;
}

/* ---- two threads by hand ---- */

struct wire {
    _Alignas(64) _Atomic uint64_t cell; /* 0: empty */
};

struct rally {
    struct wire there, back;
    int64_t tokens;
};

static uint64_t wire_take(struct wire *wire)
{
    uint64_t value;
    /* acquire: pairs with the store in wire_put() */
    while (!(value = atomic_load_explicit(&wire->cell, memory_order_acquire)))
        park_pause();
    atomic_store_explicit(&wire->cell, 0, memory_order_relaxed); /* the answer tells the other side */
    return value;
}

static void wire_put(struct wire *wire, uint64_t value)
{
    atomic_store_explicit(&wire->cell, value, memory_order_release); /* pairs with the load in wire_take() */
}

static void *rally_answer(void *argument)
{
    struct rally *rally = argument;
    for (int64_t i = 0; i < rally->tokens; i++)
        wire_put(&rally->back, wire_take(&rally->there));
    return NULL;
}

/* Negative when there is no thread. */
static double time_raw_pingpong(int64_t tokens)
{
    static struct rally rally;
    rally.tokens = tokens;
    pthread_t thread;
    if (pthread_create(&thread, NULL, rally_answer, &rally))
        return -1;
    double start = measure_seconds();
    for (int64_t i = 0; i < tokens; i++) {
        wire_put(&rally.there, 1);
        wire_take(&rally.back);
    }
    double seconds = (measure_seconds() - start) / (double)tokens;
    pthread_join(thread, NULL);
    return seconds;
}

/* ---- all of it ---- */

/* name, stages, slots, workers, tokens of a round */
#define CASE_LIST(X)                          \
    X(chain8_1w, STAGES, SLOTS, 1, CHAIN_TOKENS) \
    X(chain8_2w, STAGES, SLOTS, 2, CHAIN_TOKENS) \
    X(pingpong, 2, 1, 2, PING_TOKENS)

enum {
#define X(name, stages, slots, workers, tokens) CASE_##name,
    CASE_LIST(X)
#undef X
        CASES
};

struct bench_case {
    const char *name;
    uint32_t stages, slots;
    int workers;
    int64_t tokens;
    weir_plan *plan;
    weir_session *session;
    double seconds[ROUNDS];
};

struct bench {
    struct bench_case cases[CASES];
    double raw_ring[ROUNDS], raw_pingpong[ROUNDS];
};

static weir_status case_run(struct bench_case *c, int round)
{
    weir_status status = WEIR_OK;
    c->plan = chain_plan(c->stages, c->slots, (uint32_t)c->workers);
    c->session = c->plan ? weir_session_open(c->plan, .workers = c->workers) : NULL;
    if (!c->session)
        status = WEIR_E_MEMORY; /* the sentence is there */
    if (!status)
        status = time_session(c->session, c->tokens / 10, &c->seconds[round]); /* warms up */
    if (!status)
        status = time_session(c->session, c->tokens, &c->seconds[round]);
    weir_session_close(c->session);
    weir_plan_free(c->plan);
    return status;
}

static weir_status measure_all(struct bench *bench)
{
    weir_status status = WEIR_OK;
    for (int round = 0; round < ROUNDS && !status; round++) {
        bench->raw_ring[round] = time_raw_ring(CHAIN_TOKENS);
        bench->raw_pingpong[round] = time_raw_pingpong(PING_TOKENS);
        for (int i = 0; i < CASES && !status; i++)
            status = case_run(&bench->cases[i], round);
    }
    return status;
}

static void report(struct bench *bench, bool json, FILE *to)
{
    double chain1 = measure_median(bench->cases[CASE_chain8_1w].seconds, ROUNDS) / STAGES * NS;
    double chain2 = measure_median(bench->cases[CASE_chain8_2w].seconds, ROUNDS) / STAGES * NS;
    double pingpong = measure_median(bench->cases[CASE_pingpong].seconds, ROUNDS) * NS;
    double raw_ring = measure_median(bench->raw_ring, ROUNDS) / STAGES * NS;
    double raw_pingpong = measure_median(bench->raw_pingpong, ROUNDS) * NS;
    if (json) {
        fprintf(to, "{\"chain8_1w_ns\": %.2f, \"chain8_2w_ns\": %.2f, \"pingpong_ns\": %.1f, ", chain1, chain2, pingpong);
        fprintf(to, "\"raw_ring_ns\": %.2f, \"raw_pingpong_ns\": %.1f}\n", raw_ring, raw_pingpong);
        return;
    }
    fprintf(to, "chain of 8, one worker    %8.2f ns per token and actor\n", chain1);
    fprintf(to, "  by hand                 %8.2f ns\n", raw_ring);
    fprintf(to, "chain of 8, two workers   %8.2f ns per token and actor\n", chain2);
    fprintf(to, "ping-pong, two workers    %8.1f ns there and back\n", pingpong);
    fprintf(to, "  by hand                 %8.1f ns\n", raw_pingpong);
}

weir_status bench_actors(bool json, FILE *to)
{
    struct bench bench = {.cases = {
#define X(name_, stages_, slots_, workers_, tokens_) \
    {.name = #name_, .stages = stages_, .slots = slots_, .workers = workers_, .tokens = tokens_},
                              CASE_LIST(X)
#undef X
                          }};
    weir_status status = weir_op_register(&op_empty);
    if (!status)
        status = measure_all(&bench);
    if (!status)
        report(&bench, json, to);
    return status;
}
