/* apps/weir/bench/actors.c: the plans are made by hand, since a compiler would rightly fuse a chain on one device
 * into one actor.
 *
 * The raw figures do the least that could do the same job: a bounded ring between stages (so backpressure is there),
 * one indirect call per stage, nothing else. They are the floor, not a competitor.
 */
#include "apps/weir/bench/actors.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "apps/common/measure.h"
#include "graph/plan/build.h"
#include "transport/mail/park.h"

#define STAGES 8
#define SLOTS 64
#define ROUNDS 9
#define ROUND_SECONDS 0.05
#define TOKENS_MIN 2000
#define TOKENS_MAX 400000
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

/* Stage i of `stages`: reads register i - 1, writes register i; the last one writes none. What is downstream fires
 * first. */
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
    if (stage->in && stage->in->head == stage->in->tail)
        return false;
    if (stage->out && stage->out->tail - stage->out->head == SLOTS)
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

#define PLACES 64

/* One producer, one consumer (Lamport 1983): each owns an index, and keeps a copy of the other's that it renews when
 * it has to. */
struct spsc {
    _Alignas(64) _Atomic uint64_t tail; /* producer's */
    uint64_t head_seen;
    _Alignas(64) _Atomic uint64_t head; /* consumer's */
    uint64_t tail_seen;
    _Alignas(64) uint64_t place[PLACES];
};

static void spsc_put(struct spsc *ring, uint64_t value)
{
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed); /* own index */
    while (tail - ring->head_seen == PLACES)
        ring->head_seen = atomic_load_explicit(&ring->head, memory_order_acquire); /* pairs with spsc_take()'s store */
    ring->place[tail % PLACES] = value;
    atomic_store_explicit(&ring->tail, tail + 1, memory_order_release); /* pairs with spsc_take()'s load */
}

static uint64_t spsc_take(struct spsc *ring)
{
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed); /* own index */
    /* acquire: pairs with the store in spsc_put() */
    while ((ring->tail_seen = atomic_load_explicit(&ring->tail, memory_order_acquire)) == head)
        park_pause();
    uint64_t value = ring->place[head % PLACES];
    atomic_store_explicit(&ring->head, head + 1, memory_order_release); /* pairs with spsc_put()'s load */
    return value;
}

/* The least there is: one word, full or empty. */
struct word {
    _Alignas(64) _Atomic uint64_t value; /* 0: empty */
};

static void word_put(struct word *word, uint64_t value)
{
    atomic_store_explicit(&word->value, value, memory_order_release); /* pairs with the load in word_take() */
}

static uint64_t word_take(struct word *word)
{
    uint64_t value;
    while (!(value = atomic_load_explicit(&word->value, memory_order_acquire))) /* pairs with word_put() */
        park_pause();
    atomic_store_explicit(&word->value, 0, memory_order_relaxed); /* the answer tells the other side */
    return value;
}

struct rally {
    struct spsc ring[2]; /* there and back */
    struct word word[2];
    int64_t tokens;
};

static void *answer_ring(void *argument)
{
    struct rally *rally = argument;
    for (int64_t i = 0; i < rally->tokens; i++)
        spsc_put(&rally->ring[1], spsc_take(&rally->ring[0]));
    return NULL;
}

static void *answer_word(void *argument)
{
    struct rally *rally = argument;
    for (int64_t i = 0; i < rally->tokens; i++)
        word_put(&rally->word[1], word_take(&rally->word[0]));
    return NULL;
}

static void play_ring(struct rally *rally)
{
    for (int64_t i = 0; i < rally->tokens; i++) {
        spsc_put(&rally->ring[0], 1);
        spsc_take(&rally->ring[1]);
    }
}

static void play_word(struct rally *rally)
{
    for (int64_t i = 0; i < rally->tokens; i++) {
        word_put(&rally->word[0], 1);
        word_take(&rally->word[1]);
    }
}

/* Seconds per token, there and back; 0 when there is no thread. */
static double time_rally(int64_t tokens, void (*play)(struct rally *), void *(*answer)(void *))
{
    struct rally rally = {.tokens = tokens};
    pthread_t thread;
    if (pthread_create(&thread, NULL, answer, &rally))
        return 0;
    double start = measure_seconds();
    play(&rally);
    double seconds = (measure_seconds() - start) / (double)tokens;
    pthread_join(thread, NULL);
    return seconds;
}

static double time_raw_pingpong(int64_t tokens)
{
    return time_rally(tokens, play_ring, answer_ring);
}

static double time_raw_handoff(int64_t tokens)
{
    return time_rally(tokens, play_word, answer_word);
}

/* ---- all of it ---- */

/* name, stages, slots, workers */
#define CASE_LIST(X)                \
    X(chain8_1w, STAGES, SLOTS, 1)  \
    X(chain8_2w, STAGES, SLOTS, 2)  \
    X(pingpong, 2, 1, 2)

/* name */
#define RAW_LIST(X) X(raw_ring) X(raw_pingpong) X(raw_handoff)

enum {
#define X(name, stages, slots, workers) CASE_##name,
    CASE_LIST(X)
#undef X
        CASES
};
enum {
#define X(name) CASE_##name,
    RAW_LIST(X)
#undef X
        RAWS
};

struct bench_case {
    uint32_t stages, slots;
    int workers;
};

static const struct bench_case cases[CASES] = {
#define X(name, stages, slots, workers) {stages, slots, workers},
    CASE_LIST(X)
#undef X
};
static double (*const raws[RAWS])(int64_t tokens) = {
#define X(name) time_##name,
    RAW_LIST(X)
#undef X
};

struct bench {
    int rounds;
    double seconds[CASES][ROUNDS], raw[RAWS][ROUNDS]; /* per token */
};

/* So many tokens take about ROUND_SECONDS when one takes `seconds`. A busy machine can be a thousand times slower. */
static int64_t tokens_for(double seconds)
{
    double tokens = ROUND_SECONDS / (seconds > 0 ? seconds : 1);
    return tokens < TOKENS_MIN ? TOKENS_MIN : tokens > TOKENS_MAX ? TOKENS_MAX : (int64_t)tokens;
}

/* The first run warms up and says how long the second may be. */
static weir_status run_case(const struct bench_case *c, double *seconds)
{
    weir_plan *plan = chain_plan(c->stages, c->slots, (uint32_t)c->workers);
    weir_session *session = plan ? weir_session_open(plan, .workers = c->workers) : NULL;
    weir_status status = session ? WEIR_OK : WEIR_E_MEMORY; /* the sentence is there */
    if (!status)
        status = time_session(session, TOKENS_MIN, seconds);
    if (!status)
        status = time_session(session, tokens_for(*seconds), seconds);
    weir_session_close(session);
    weir_plan_free(plan);
    return status;
}

static weir_status measure_all(struct bench *bench)
{
    weir_status status = WEIR_OK;
    for (int round = 0; round < bench->rounds && !status; round++) {
        for (int i = 0; i < RAWS; i++)
            bench->raw[i][round] = raws[i](tokens_for(raws[i](TOKENS_MIN)));
        for (int i = 0; i < CASES && !status; i++)
            status = run_case(&cases[i], &bench->seconds[i][round]);
    }
    return status;
}

static void report(struct bench *bench, bool json, FILE *to)
{
    double chain1 = measure_median(bench->seconds[CASE_chain8_1w], bench->rounds) / STAGES * NS;
    double chain2 = measure_median(bench->seconds[CASE_chain8_2w], bench->rounds) / STAGES * NS;
    double pingpong = measure_median(bench->seconds[CASE_pingpong], bench->rounds) * NS;
    double raw_ring = measure_median(bench->raw[CASE_raw_ring], bench->rounds) / STAGES * NS;
    double raw_pingpong = measure_median(bench->raw[CASE_raw_pingpong], bench->rounds) * NS;
    double raw_handoff = measure_median(bench->raw[CASE_raw_handoff], bench->rounds) * NS;
    if (json) {
        fprintf(to, "{\"chain8_1w_ns\": %.2f, \"chain8_2w_ns\": %.2f, ", chain1, chain2);
        fprintf(to, "\"pingpong_ns\": %.1f, \"raw_ring_ns\": %.2f, ", pingpong, raw_ring);
        fprintf(to, "\"raw_pingpong_ns\": %.1f, \"raw_handoff_ns\": %.1f}\n", raw_pingpong, raw_handoff);
        return;
    }
    fprintf(to, "chain of 8, one worker    %8.2f ns per token and actor\n", chain1);
    fprintf(to, "  by hand                 %8.2f ns\n", raw_ring);
    fprintf(to, "chain of 8, two workers   %8.2f ns per token and actor\n", chain2);
    fprintf(to, "ping-pong, two workers    %8.1f ns there and back\n", pingpong);
    fprintf(to, "  by hand, two rings      %8.1f ns\n", raw_pingpong);
    fprintf(to, "  by hand, two words      %8.1f ns\n", raw_handoff);
}

weir_status bench_actors(bool json, bool quick, FILE *to)
{
    struct bench bench = {.rounds = quick ? 1 : ROUNDS};
    weir_status status = weir_op_register(&op_empty);
    if (!status)
        status = measure_all(&bench);
    if (!status)
        report(&bench, json, to);
    return status;
}
