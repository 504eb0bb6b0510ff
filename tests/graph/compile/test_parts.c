/* tests/graph/compile/test_parts.c: parts that are too many to be placed one by one share bytes in bundles.
 *
 * The number of parts that are placed as they are is shrunk, so that small models have bundles. A plan with bundles is
 * held against the plan of the same model without them, and must be valid; and models around the real number must not
 * need more for each layer than those below it.
 */
#include "graph/compile/actors/passes.h"
#include "graph/compile/memory/parts.h"
#include "graph/plan/form/plan.h"
#include "tests/support/effort.h"
#include "tests/support/random_model.h"
#include "tests/support/run.h"

#include <criterion/criterion.h>

enum { MODELS = EFFORT(60, 20, 8), STEPS = 2, SEED = 11 };

static uint64_t drawn;

static int draw(int from, int to)
{
    drawn = drawn * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return from + (int)((drawn >> 33) % (uint64_t)(to - from + 1));
}

static uint64_t largest(const weir_plan *plan)
{
    uint64_t most = 0;
    for (uint32_t s = 0; s < plan->spaces_count; s++)
        most = plan->spaces[s].bytes > most ? plan->spaces[s].bytes : most;
    return most;
}

static weir_graph *chain(int count)
{
    weir_graph *g = weir_graph_new("chain");
    weir_tensor *x = weir_input(g, WEIR_F32, {64, 64}, .name = "x"), *w = weir_param(g, WEIR_F32, {64, 64}, .name = "w");
    for (int i = 0; i < count; i++)
        x = weir_tanh(weir_matmul(x, w));
    weir_train(weir_mean(weir_mul(x, x), .name = "loss"), weir_sgd());
    return g;
}

/* Layers of different widths, of which some are joined by what was before. */
static weir_graph *layers(int count)
{
    weir_graph *g = weir_graph_new("layers");
    weir_tensor *x = weir_input(g, WEIR_F32, {256, 32}, .name = "x");
    for (int i = 0; i < count; i++) {
        weir_tensor *h = weir_linear(draw(0, 1) ? weir_layernorm(x) : x, 32 * draw(1, 4));
        h = draw(0, 1) ? weir_gelu(h) : weir_tanh(h);
        h = weir_linear(h, 32);
        x = draw(0, 2) ? weir_add(x, h) : h;
    }
    weir_train(weir_mean(weir_mul(x, x), .name = "loss"), weir_sgd());
    return g;
}

/* Bytes of the plan when so many parts are placed at the most. */
static uint64_t bytes_at(weir_graph *(*model)(int), int count, uint64_t seed, int most)
{
    int before = parts_max;
    parts_max = most;
    drawn = seed;
    weir_graph *g = model(count);
    weir_plan *plan = weir_compile(g);
    cr_assert_not_null(plan, "%s", weir_error());
    uint64_t bytes = largest(plan);
    weir_plan_free(plan);
    weir_graph_free(g);
    parts_max = before;
    return bytes;
}

Test(parts, bundles_take_little_more_than_parts_that_are_placed_one_by_one, .timeout = 120)
{
    for (uint64_t seed = SEED; seed < SEED + MODELS; seed++) {
        drawn = seed;
        int count = draw(20, 60), most = draw(64, 160);
        weir_graph *(*model)(int) = seed % 2 ? layers : chain;
        uint64_t exact = bytes_at(model, count, seed, INT32_MAX), bundled = bytes_at(model, count, seed, most);
        cr_expect_leq(bundled, exact + exact / 4, "seed %d, %d layers, %d parts: %ld bytes, not %ld", (int)seed, count, most,
                      (long)bundled, (long)exact);
    }
}

static weir_plan *compile_drawn(uint64_t seed)
{
    group_own_bytes = 64; /* what is done with large tensors is to be done with those of small models */
    weir_graph *g = random_model(seed, seed % 5);
    weir_plan *plan = weir_compile(g, .micro_batches = random_model_micro(seed), .seed = seed);
    weir_graph_free(g);
    cr_assert_not_null(plan, "%s", weir_error());
    return plan;
}

Test(parts, random_models_compute_the_same_with_bundles, .timeout = 120)
{
    int before = parts_max;
    for (uint64_t seed = 1; seed <= MODELS; seed++) {
        char text[64];
        weir_plan *exact = compile_drawn(seed);
        parts_max = 2 + (int)(seed % 11);
        weir_plan *bundled = compile_drawn(seed);
        parts_max = before;
        cr_expect_eq(plan_validate(bundled), WEIR_OK, "model %d: %s", (int)seed, weir_error());
        run want = run_plan(exact, STEPS, 2), got = run_plan(bundled, STEPS, 2);
        snprintf(text, sizeof text, "model %d", (int)seed);
        run_near(&got, &want, 0, text);
        run_free(&want);
        run_free(&got);
        weir_plan_free(exact);
        weir_plan_free(bundled);
    }
}

/* Every layer of a chain keeps as much, so bytes grow as the number of layers does. */
Test(parts, there_is_no_number_of_layers_from_which_on_bytes_are_not_shared, .timeout = 120)
{
    uint64_t each = bytes_at(chain, 300, 0, parts_max) / 300;
    for (int count = 400; count <= EFFORT(4800, 1600, 800); count += count / 3) {
        uint64_t now = bytes_at(chain, count, 0, parts_max) / (uint64_t)count;
        cr_expect_leq(now, each + each / 8, "%ld bytes for each of %d layers, and %ld of 300", (long)now, count, (long)each);
    }
}
