/* Walks over slots, held against all vectors of slots. Times are made up; nothing is measured. */
#include "graph/time/rates.h"
#include "graph/time/walk.h"
#include "tests/support/effort.h"
#include "tests/support/random_model.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

enum { FREE_MAX = 4, SLOTS_MAX = 4, MODELS = EFFORT(16, 4, 2), STAGES = 3 };

/* A machine of many cores, and the same time for calls wherever their operands are. */
static weir_rates *machine(void)
{
    weir_rates *r = rates_new();
    cr_assert_not_null(r);
    r->same = 1000, r->worker = 100000, r->process = 300000, r->cores = 64;
    return r;
}

static void add_call(weir_rates *r, const char *op, uint64_t ps)
{
    char text[64];
    snprintf(text, sizeof text, "%s a=0 f32:1>f32:1", op);
    cr_assert(rates_add(r, &(time_call){.text = text, .ps = {ps, ps, ps}, .bytes = 4 * 8 * 16 * 2, .samples = 1}));
}

/* Stages on devices of their own; each micro-batch goes through all of them. */
static weir_plan *pipeline(int micro, int fixed)
{
    static const char *const devices[] = {"cpu:0", "cpu:1", "cpu:2"};
    weir_graph *g = weir_graph_new("pipeline");
    weir_tensor *x = NULL;
    for (int i = 0; i < STAGES; i++)
        WEIR_ON(weir_mesh_new(g, devices[i]))
        {
            x = i ? x : weir_input(g, WEIR_F32, {8, 16}, .name = "x", .micro = true);
            x = i == 1 ? weir_tanh(x, .name = "slow") : weir_relu(x, .name = i ? "last" : "first");
            if (fixed && i < STAGES - 1)
                weir_slots(x, fixed);
        }
    weir_fetch(x, .name = "y");
    weir_plan *plan = weir_compile(g, .micro_batches = micro);
    weir_graph_free(g);
    cr_assert_not_null(plan, "%s", weir_error());
    return plan;
}

/* Leaves at most FREE_MAX registers free, of at most SLOTS_MAX slots; how many. */
static uint32_t make_small(walk *w, uint32_t *is_free)
{
    uint32_t count = 0;
    for (uint32_t r = 0; r < w->prediction->plan->regsts_count; r++) {
        if (w->least[r] == w->most[r])
            continue;
        w->most[r] = w->most[r] < SLOTS_MAX ? w->most[r] : SLOTS_MAX;
        const uint32_t given = w->prediction->changes.slots[r];
        if (count == FREE_MAX || given > SLOTS_MAX)
            w->least[r] = w->most[r] = given;
        else
            is_free[count++] = r;
    }
    return count;
}

/* Plays every vector; false: one is better than the walk's best, in time or in bytes. */
static bool nothing_is_better(walk *w, const uint32_t *is_free, uint32_t count, char *why, size_t why_bytes)
{
    const walk_point *best = &w->points[w->best];
    uint32_t *slots = malloc((w->prediction->plan->regsts_count + 1) * sizeof *slots), vectors = 1;
    bool right = true;
    for (uint32_t i = 0; i < count; i++)
        vectors *= w->most[is_free[i]];
    for (uint32_t v = 0; v < vectors && right; v++) {
        clock_result played;
        period_result period;
        uint64_t bytes = 0;
        uint32_t rest = v;
        memcpy(slots, best->slots, w->prediction->plan->regsts_count * sizeof *slots);
        for (uint32_t i = 0; i < count; rest /= w->most[is_free[i]], i++)
            slots[is_free[i]] = 1 + rest % w->most[is_free[i]];
        for (uint32_t r = 0; r < w->prediction->plan->regsts_count; r++)
            bytes += slots[r] * w->prediction->plan->regsts[r].slot_bytes;
        const weir_status status = prediction_play(w->prediction, slots, &played, &period);
        cr_assert(!status || status == WEIR_E_LIVE, "%s", weir_error());
        right = status || (played.period >= best->ps - best->ps / 1000 * (WALK_SLACK + 1) && (played.period > best->ps || bytes >= best->bytes));
        if (!right)
            snprintf(why, why_bytes, "%llu ps with %llu B, the walk found %llu ps with %llu B", (unsigned long long)played.period,
                     (unsigned long long)bytes, (unsigned long long)best->ps, (unsigned long long)best->bytes);
        free(played.busy);
        free(period.cycle);
    }
    free(slots);
    return right;
}

/* The walk of a plan; the caller closes. */
static void walk_small(walk *w, prediction *p, const weir_plan *plan, const weir_rates *rates, weir_predict_opts *opts, uint32_t *is_free,
                       uint32_t *count)
{
    opts->size = sizeof *opts;
    opts->src = (weir_src){"test_walk.c", 1};
    cr_assert_eq(prediction_open(p, plan, rates, opts), WEIR_OK, "%s", weir_error());
    cr_assert_eq(walk_open(w, p), WEIR_OK, "%s", weir_error());
    *count = make_small(w, is_free);
    cr_assert_eq(walk_find(w), WEIR_OK, "%s", weir_error());
}

Test(walk, a_pipeline_gets_the_fewest_bytes_at_the_throughput_of_its_slow_stage, .timeout = 60)
{
    char why[256];
    for (int slow = 1; slow <= 64; slow *= 4)
        for (int micro = 1; micro <= 4; micro++) {
            weir_plan *plan = pipeline(micro, 0);
            weir_rates *rates = machine();
            add_call(rates, "relu", 1000000);
            add_call(rates, "tanh", (uint64_t)slow * 500000);
            weir_predict_opts opts = {.workers = STAGES};
            prediction p;
            walk w;
            uint32_t is_free[FREE_MAX], count;
            walk_small(&w, &p, plan, rates, &opts, is_free, &count);
            cr_expect_gt(count, 0);
            cr_expect(w.ends);
            cr_expect(nothing_is_better(&w, is_free, count, why, sizeof why), "tanh %d, micro %d: %s", slow, micro, why);
            walk_close(&w);
            prediction_close(&p);
            weir_rates_free(rates);
            weir_plan_free(plan);
        }
}

/* Workers fire by priority, so another slot may change the order and make a step longer: then the walk may end elsewhere. */
Test(walk, of_random_models_hardly_any_vector_is_better, .timeout = 300)
{
    int wrong = 0, walked = 0;
    char why[256], last[300] = "";
    for (uint64_t seed = 1; seed <= MODELS; seed++) {
        weir_graph *g = random_model(seed, seed + 1);
        weir_plan *plan = weir_compile(g, .micro_batches = random_model_micro(seed));
        weir_rates *rates = machine();
        weir_predict_opts opts = {.workers = 4};
        prediction p;
        walk w;
        uint32_t is_free[FREE_MAX], count;
        weir_graph_free(g);
        cr_assert_not_null(plan, "%s", weir_error());
        walk_small(&w, &p, plan, rates, &opts, is_free, &count);
        walked += count > 0;
        if (count && !nothing_is_better(&w, is_free, count, why, sizeof why)) {
            wrong++;
            snprintf(last, sizeof last, "model %d: %s", (int)seed, why);
        }
        walk_close(&w);
        prediction_close(&p);
        weir_rates_free(rates);
        weir_plan_free(plan);
    }
    cr_expect_gt(walked, MODELS / 4);
    cr_expect_leq(wrong, 1 + walked / 10, "%d of %d: %s", wrong, walked, last);
}
