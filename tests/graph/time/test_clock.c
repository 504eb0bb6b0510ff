/* Plans played against a clock with made-up times, and the cycle that bounds them. */
#include "graph/plan/form/build.h"
#include "graph/time/clock.h"
#include "graph/time/period.h"
#include "tests/support/effort.h"
#include "tests/support/random_model.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

enum { MODELS = EFFORT(300, 20, 10), TIMES = 8, REPEAT_LEAST = MODELS * TIMES * 5 / 6, WORKERS_MAX = 16, FIRINGS_MAX = 1 << 19, BETWEEN = 997 };

typedef struct made {
    uint64_t key;
    uint64_t scale;             /* of all times */
    uint32_t worker[256];
    uint32_t workers;
    uint32_t turned;            /* workers are numbered from here on */
    const weir_plan *plan;
    period_firing *firings;
    uint64_t count;
    const uint32_t *slots;
    uint32_t cores;             /* that all workers share; 0: each has its own */
    uint64_t stream, busy;      /* how much longer a firing takes beside others: thousandths */
} made;

static uint64_t drawn(uint64_t key, uint64_t counter, uint64_t below)
{
    return (uint64_t)(weir_random_uniform(key, counter) * (float)below);
}

static uint64_t alone(const made *m, uint32_t actor)
{
    return m->scale * (1 + drawn(m->key, actor, 1 << 20));
}

static share_work duration(void *ctx, uint32_t actor, uint32_t firing)
{
    const made *m = ctx;
    const uint64_t ps = alone(m, actor);
    (void)firing;
    return (share_work){ps, ps * m->stream / 1000, ps * m->busy / 1000, m->stream ? ps / m->scale : 0};
}

static uint64_t message_alone(void *ctx, uint32_t port, bool freed)
{
    const made *m = ctx;
    return m->scale * (BETWEEN + drawn(m->key + 1, port, 5000) * !freed);
}

static uint64_t message(void *ctx, uint32_t port, bool freed, uint64_t now)
{
    (void)now;
    return message_alone(ctx, port, freed);
}

static void fired(void *ctx, uint32_t actor, uint32_t firing, uint64_t begin, uint64_t end)
{
    made *m = ctx;
    const uint32_t queue = m->plan->actors[actor].queue.i;
    cr_assert_lt(m->count, FIRINGS_MAX);
    m->firings[m->count++] = (period_firing){actor, firing, m->plan->queues[queue].kind == PLAN_OUTSIDE ? PLAN_NONE : m->worker[queue], begin, end};
}

/* Some queues share a worker. */
static void deal(made *m)
{
    m->workers = 1 + (uint32_t)drawn(m->key + 2, 0, WORKERS_MAX);
    cr_assert_leq(m->plan->queues_count, sizeof m->worker / sizeof *m->worker);
    for (uint32_t q = 0; q < m->plan->queues_count; q++)
        m->worker[q] = (q + m->turned) % m->workers;
}

static clock_result play(made *m)
{
    static const uint32_t first_host[WORKERS_MAX] = {0};
    const share_host host = {.cores = m->cores, .bytes_s = UINT64_C(1000000000000) / m->scale};
    clock_result result;
    deal(m);
    m->count = 0;
    const clock_spec spec = {.plan = m->plan, .worker = m->worker, .workers = m->workers, .ctx = m, .duration = duration, .message = message,
                             .fired = fired, .slots = m->slots, .host = &host, .hosts = m->cores > 0, .host_of = first_host};
    cr_assert_eq(clock_play(&spec, &result), WEIR_OK, "%s", weir_error());
    free(result.busy);
    return result;
}

/* Every other time workers share one to three cores, and half of these slow each other down. */
static void share_on(made *m, uint64_t key)
{
    m->cores = (uint32_t)(key % 2 ? 1 + key / 2 % 3 : 0);
    m->stream = key % 4 == 3 ? 700 : 0;
    m->busy = key % 4 == 3 ? 300 : 0;
}

/* The cycle that is found with the period as it was played (0: not known). */
static double cycle_with(made *m, const clock_result *played, uint64_t period)
{
    period_result result;
    const period_spec spec = {.plan = m->plan, .firings = m->firings, .count = m->count, .steps = played->steps,
                              .unroll = played->repeat ? played->repeat : 1, .period = period,
                              .workers = m->workers, .ctx = m, .message = message_alone, .slots = m->slots};
    cr_assert_eq(period_find(&spec, &result), WEIR_OK, "%s", weir_error());
    cr_assert_gt(result.count, 0);
    uint64_t around = 0;
    int64_t tokens = 0;
    for (uint32_t i = 0; i < result.count; i++) {
        around += result.cycle[i].ps;
        tokens += result.cycle[i].tokens;
        cr_expect_eq(result.cycle[i].to, result.cycle[(i + 1) % result.count].from);
    }
    cr_expect_float_eq((double)around / (double)(tokens * spec.unroll), result.ps, 1e-6 * result.ps);
    free(result.cycle);
    return result.ps;
}

static double cycle(made *m, const clock_result *played)
{
    const double without = cycle_with(m, played, 0), with = cycle_with(m, played, played->period);
    cr_expect_float_eq(with, without, 1e-9 * without + 1);
    return without;
}

static made begin(uint64_t seed)
{
    weir_graph *graph = random_model(seed, seed + 1);
    made m = {.key = 77 * seed + 5, .scale = 1, .firings = malloc(FIRINGS_MAX * sizeof *m.firings)};
    m.plan = weir_compile(graph, .micro_batches = random_model_micro(seed));
    cr_assert_not_null(m.plan, "%s", weir_error());
    weir_graph_free(graph);
    return m;
}

static void end(made *m)
{
    weir_plan_free((weir_plan *)m->plan);
    free(m->firings);
}

/* The mean over a pattern is in whole picoseconds. */
#define expect_same(a, b, ...) cr_expect(fabs((double)(a) - (double)(b)) <= 1 + 2e-6 * (double)(b), __VA_ARGS__)

Test(clock, the_critical_cycle_takes_as_long_as_a_step, .timeout = 300)
{
    int steady = 0, several = 0;
    for (uint64_t seed = 1; seed <= MODELS; seed++) {
        made m = begin(seed);
        for (uint64_t t = 0; t < TIMES; t++) {
            m.key = 1000 * seed + t;
            share_on(&m, t);
            const clock_result played = play(&m);
            if (!played.repeat)
                continue;
            const double bound = cycle(&m, &played);
            expect_same(played.period, bound, "model %d, times %d: a step takes %.0f, the cycle %.3f, %u steps repeat", (int)seed, (int)t,
                        (double)played.period, bound, played.repeat);
            steady++;
            several += played.repeat > 1;
        }
        end(&m);
    }
    /* others have parts that run apart: one is ever further ahead */
    cr_expect_geq(steady, REPEAT_LEAST, "%d of %d repeat", steady, MODELS * TIMES);
    cr_expect(MODELS < 100 || several);
}

Test(clock, times_that_are_three_times_as_long_make_steps_three_times_as_long, .timeout = 120)
{
    for (uint64_t seed = 1; seed <= EFFORT(40, 10, 5); seed++) {
        made m = begin(seed);
        share_on(&m, seed);
        const clock_result once = play(&m);
        m.scale = 3;
        const clock_result thrice = play(&m);
        cr_expect_eq(thrice.steps, once.steps);
        for (uint32_t s = 0; s < once.steps; s++) { /* where cores are shared, each change of speed rounds to a picosecond */
            const double wanted = 3 * (double)once.end[s], off = fabs((double)thrice.end[s] - wanted);
            cr_expect(off <= (m.cores ? 1e-5 * wanted : 0), "model %d", (int)seed);
        }
        end(&m);
    }
}

Test(clock, workers_that_are_numbered_otherwise_change_nothing, .timeout = 120)
{
    for (uint64_t seed = 1; seed <= EFFORT(40, 10, 5); seed++) {
        made m = begin(seed);
        share_on(&m, seed);
        const clock_result before = play(&m);
        m.turned = 1 + (uint32_t)seed % 3;
        const clock_result after = play(&m);
        cr_expect_eq(after.steps, before.steps);
        cr_expect_eq(after.end[after.steps - 1], before.end[before.steps - 1], "model %d", (int)seed);
        end(&m);
    }
}

Test(clock, in_the_same_order_a_longer_firing_makes_no_step_shorter, .timeout = 120)
{
    int longer = 0;
    for (uint64_t seed = 1; seed <= EFFORT(40, 10, 5); seed++) {
        made m = begin(seed);
        const clock_result played = play(&m);
        const double before = played.repeat ? cycle(&m, &played) : 0;
        const uint32_t actor = (uint32_t)drawn(seed, 3, m.plan->actors_count);
        for (uint64_t i = 0; i < m.count; i++)
            m.firings[i].end += m.firings[i].actor == actor ? 300000 : 0;
        const double after = played.repeat ? cycle_with(&m, &played, 0) : 0; /* the firings are no more as they were played */
        cr_expect_geq(after, before - 1e-3, "model %d, actor %u", (int)seed, actor);
        longer += after > before;
        end(&m);
    }
    cr_expect_gt(longer, EFFORT(5, 0, 0));
}

Test(clock, in_the_same_order_more_slots_make_no_step_longer, .timeout = 120)
{
    for (uint64_t seed = 1; seed <= EFFORT(40, 10, 5); seed++) {
        made m = begin(seed);
        uint32_t *slots = calloc(m.plan->regsts_count + 1, sizeof *slots);
        const clock_result played = play(&m);
        const double before = played.repeat ? cycle(&m, &played) : 0;
        for (uint32_t r = 0; r < m.plan->regsts_count; r++)
            slots[r] = m.plan->regsts[r].slots + 1;
        m.slots = slots;
        cr_expect(!played.repeat || cycle_with(&m, &played, 0) <= before + 1e-3, "model %d", (int)seed);
        free(slots);
        end(&m);
    }
}

Test(clock, a_pipeline_of_two_workers_is_as_fast_as_the_slower_one, .timeout = 30)
{
    weir_graph *g = weir_graph_new("pipeline");
    weir_tensor *x = NULL;
    WEIR_ON(weir_mesh_new(g, "cpu:0"))
        x = weir_relu(weir_input(g, WEIR_F32, {4, 8}, .name = "x"));
    WEIR_ON(weir_mesh_new(g, "cpu:1"))
        weir_fetch(weir_relu(x), .name = "y");
    made m = {.scale = 1, .key = 3, .plan = weir_compile(g), .firings = malloc(FIRINGS_MAX * sizeof *m.firings)};
    weir_graph_free(g);
    cr_assert_not_null(m.plan, "%s", weir_error());
    const clock_result played = play(&m);
    uint64_t sums[WORKERS_MAX] = {0}, most = 0;
    for (uint32_t a = 0; a < m.plan->actors_count; a++)
        if (m.plan->queues[m.plan->actors[a].queue.i].kind != PLAN_OUTSIDE)
            sums[m.worker[m.plan->actors[a].queue.i]] += m.plan->actors[a].fires * alone(&m, a);
    for (int w = 0; w < WORKERS_MAX; w++)
        most = sums[w] > most ? sums[w] : most;
    cr_expect_geq(played.period, most);
    expect_same(played.period, cycle(&m, &played), "the cycle");
    end(&m);
}

/* So many devices with an actor each, and nothing between them: their workers are always busy. */
static made apart(uint32_t devices)
{
    plan_builder *builder = plan_builder_new();
    cr_assert_not_null(builder);
    plan_builder_plan(builder)->micro_batches = 1;
    plan_add_programs(builder, (plan_program){plan_add_text(builder, "main")});
    for (uint32_t i = 0; i < devices; i++) {
        plan_add_spaces(builder, (plan_space){.kind = WEIR_CPU, .index = i, .name = plan_add_text(builder, "cpu")});
        plan_add_queues(builder, (plan_queue){.space = {i}, .kind = PLAN_COMPUTE, .name = plan_add_text(builder, "queue")});
        plan_add_actors(builder, (plan_actor){.queue = {i}, .name = plan_add_text(builder, "actor"), .fires = 1});
    }
    made m = {.scale = 1, .key = 1, .workers = devices, .plan = plan_builder_finish(builder, NULL),
              .firings = malloc(FIRINGS_MAX * sizeof *m.firings)};
    cr_assert_not_null(m.plan);
    return m;
}

static share_work equal(void *ctx, uint32_t actor, uint32_t firing)
{
    const made *m = ctx;
    (void)actor, (void)firing;
    return (share_work){6000000, 6000 * m->stream, 6000 * m->busy, 6000000};
}

/* The first step of workers that are always busy with firings of six microseconds, each of which takes the whole bandwidth. */
static uint64_t first_step(uint32_t devices, uint32_t cores, uint64_t stream, uint64_t busy)
{
    static const uint32_t first_host[WORKERS_MAX] = {0}, worker[WORKERS_MAX] = {0, 1, 2, 3, 4, 5};
    const share_host host = {cores, 1000000000000};
    made m = apart(devices);
    m.stream = stream, m.busy = busy;
    clock_result result;
    const clock_spec spec = {.plan = m.plan, .worker = worker, .workers = devices, .ctx = &m, .duration = equal, .message = message, .host = &host,
                             .hosts = 1, .host_of = first_host};
    cr_assert_eq(clock_play(&spec, &result), WEIR_OK, "%s", weir_error());
    cr_expect_eq(result.period, result.end[0]);
    free(result.busy);
    end(&m);
    return result.end[0];
}

Test(clock, workers_beyond_the_cores_take_turns, .timeout = 30)
{
    cr_expect_eq(first_step(1, 1, 0, 0), 6000000);
    cr_expect_eq(first_step(2, 1, 0, 0), 12000000);
    cr_expect_eq(first_step(2, 2, 0, 0), 6000000);
    cr_expect_eq(first_step(3, 2, 0, 0), 9000000);
    cr_expect_eq(first_step(4, 2, 0, 0), 12000000);
    cr_expect_eq(first_step(5, 3, 0, 0), 10000000);
    cr_expect_eq(first_step(6, 8, 0, 0), 6000000);
}

Test(clock, neighbours_slow_a_firing_by_as_much_as_was_measured, .timeout = 30)
{
    cr_expect_eq(first_step(1, 2, 500, 250), 6000000, "no neighbour");
    cr_expect_eq(first_step(2, 2, 500, 0), 9000000, "the bandwidth is gone");
    cr_expect_eq(first_step(2, 2, 0, 250), 7500000, "the other core is busy");
    cr_expect_eq(first_step(2, 3, 0, 250), 6750000, "one of two others is busy");
    cr_expect_eq(first_step(4, 2, 500, 250), 21000000, "half of the time of a core, at 4/7 of its speed");
}

Test(clock, no_step_is_shorter_than_its_work_on_all_cores, .timeout = 60)
{
    for (uint64_t seed = 1; seed <= EFFORT(40, 10, 5); seed++) {
        made m = begin(seed);
        m.cores = 1 + (uint32_t)seed % 3;
        const clock_result played = play(&m);
        uint64_t sum = 0;
        for (uint32_t a = 0; a < m.plan->actors_count; a++)
            if (m.plan->queues[m.plan->actors[a].queue.i].kind != PLAN_OUTSIDE)
                sum += m.plan->actors[a].fires * alone(&m, a);
        cr_expect(!played.repeat || (played.period + 1) * m.cores >= sum, "model %d", (int)seed);
        end(&m);
    }
}

Test(clock, rates_of_years_are_refused, .timeout = 30)
{
    made m = begin(3);
    clock_result result;
    m.scale = UINT64_MAX >> 20;
    for (m.cores = 0; m.cores < 3; m.cores++) {
        static const uint32_t first_host[WORKERS_MAX] = {0};
        const share_host host = {.cores = m.cores, .bytes_s = 1};
        deal(&m);
        const clock_spec spec = {.plan = m.plan, .worker = m.worker, .workers = m.workers, .ctx = &m, .duration = duration, .message = message,
                                 .host = &host, .hosts = m.cores > 0, .host_of = first_host};
        cr_expect_eq(clock_play(&spec, &result), WEIR_E_ARGUMENT);
        cr_expect(strstr(weir_error(), "longer than 50 days"), "%s", weir_error());
        free(result.busy);
    }
    end(&m);
}
