/* tests/graph/verify/test_verify.c: plans that the compiler makes are proven to compute their graphs. Plans that are wrong are in
 * test_mutants.c and test_changes.c.
 */
#include "tests/graph/verify/models.h"

#include <stdlib.h>
#include <string.h>

#include "graph/plan/form/plan.h"
#include "tests/support/effort.h"
#include "tests/support/random_model.h"
#include "tests/support/sample_plan.h"

TestSuite(verify, .timeout = FULL(6000, 600));

enum { MODELS = EFFORT(FULL(300, 40), 4, 1), LAYOUTS = 5, SEED = 4711 };

#define OK(call) cr_assert_eq((call), WEIR_OK, "%s", weir_error())

/* ---- plans that are right ---- */

static void expect_right(weir_graph *g, weir_plan *plan, const char *what)
{
    cr_assert(plan, "%s: %s", what, weir_error());
    weir_status status = weir_plan_verify(g, plan, .seed = SEED);
    cr_expect_eq(status, WEIR_OK, "%s: %s", what, weir_error());
    status = weir_plan_verify(g, plan, .seed = SEED, .local = true);
    cr_expect_eq(status, WEIR_OK, "%s, each kernel alone: %s", what, weir_error());
    weir_plan_free(plan);
}

Test(verify, a_perceptron_on_two_devices_is_right)
{
    for (int i = 0; i < 4; i++) {
        weir_graph *g = mlp(i % 2 ? TENSOR : DATA, i >= 2);
        for (int micro = 1; micro <= 3; micro += 2)
            expect_right(g, weir_compile(g, .micro_batches = micro), "mlp");
        weir_graph_free(g);
    }
}

Test(verify, a_gpt_is_right_in_every_layout_and_precision)
{
    const layout lies[] = {{0}, {.dp = 2, .zero = true}, {.dp = 3}, {.tp = 2}, {.dp = 2, .tp = 2, .micro = 2}, {.pp = 2, .micro = 2},
                           {.tp = 4, .pp = 2, .micro = 4}, {.dp = 2, .tp = 2, .pp = 2, .micro = 4, .zero = true}};
    const weir_dtype precisions[] = {WEIR_F32, WEIR_BF16, WEIR_F16};
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        weir_graph *g = gpt(lies[i]);
        const int micro = lies[i].micro ? lies[i].micro : 1;
        for (int p = 0; p < 3; p++)
            expect_right(g, weir_compile(g, .micro_batches = micro, .precision = precisions[p]), "gpt");
        expect_right(g, weir_compile(g, .micro_batches = micro, .no_fusion = true), "gpt without fusion");
        expect_right(g, weir_compile(g, .micro_batches = micro, .per_host = 2), "gpt on hosts of two devices");
        weir_graph_free(g);
    }
}

/* Functions, pairs, comparisons, choices and integers, of which rows or columns are split, or a sum is in terms. */
static weir_graph *choosing(weir_sbp x_lies, weir_sbp weight_lies)
{
    weir_graph *g = weir_graph_new("choosing");
    WEIR_ON(weir_mesh_new(g, "cpu:0-2")) {
        weir_tensor *x = weir_input(g, WEIR_F32, {7, 5}, .name = "x", .sbp = {x_lies}, .micro = true);
        weir_tensor *id = weir_input(g, WEIR_I64, {7, 1}, .name = "id", .sbp = {x_lies == WEIR_S(0) ? x_lies : WEIR_B}, .micro = true);
        weir_tensor *kind = weir_cast(weir_min2(weir_mul(id, id), weir_abs(id)), WEIR_F32);
        weir_tensor *h = weir_linear(x, 6, .name = "up", .weight = {weight_lies});
        weir_tensor *row = weir_param(g, WEIR_F32, {6}, .name = "row", .init = WEIR_NORMAL(1));
        weir_tensor *near = weir_and(weir_less(h, row), weir_not(weir_equal(kind, row)));
        weir_tensor *y = weir_where(near, weir_clip(h, .lo = -1, .hi = 2), weir_mul(weir_sin(row), weir_softplus(h)));
        y = weir_add(weir_max2(y, weir_gelu_erf(h)), weir_pow(weir_exp(row), weir_reciprocal(weir_erf(h))));
        weir_fetch(weir_where(weir_greater(id, weir_sign(id)), id, weir_neg(id)), .name = "chosen");
        weir_train(weir_mean(weir_mul(weir_round(y), y)), weir_sgd(.lr = 0.1));
    }
    return graph_made(g);
}

Test(verify, choices_and_comparisons_are_right_in_every_layout)
{
    const weir_sbp x[] = {WEIR_B, WEIR_S(0), WEIR_S(1), WEIR_B, WEIR_AUTO};
    const weir_sbp weight[] = {WEIR_B, WEIR_B, WEIR_S(0), WEIR_S(1), WEIR_AUTO};
    for (int i = 0; i < 5; i++) {
        weir_graph *g = choosing(x[i], weight[i]);
        expect_right(g, weir_compile(g, .micro_batches = 1 + i % 2), "choosing");
        expect_right(g, weir_compile(g, .precision = WEIR_BF16), "choosing in bf16");
        cr_expect_eq(weir_gradients_verify(g, .seed = SEED), WEIR_OK, "%s", weir_error());
        weir_graph_free(g);
    }
}

/* Tensors without inputs, slices by steps and elements by index, over two axes of devices. */
static weir_graph *indexed(weir_sbp first, weir_sbp second)
{
    weir_graph *g = weir_graph_new("indexed");
    WEIR_ON(weir_mesh_new(g, "cpu:0-5", .shape = {2, 3})) {
        weir_tensor *x = weir_input(g, WEIR_F32, {6, 7, 4}, .name = "x", .sbp = {first, second}, .micro = true);
        weir_tensor *w = weir_param(g, WEIR_F32, {7, 4}, .name = "w", .init = WEIR_NORMAL(0.5));
        weir_tensor *steps = weir_add(weir_range(g, WEIR_F32, 4, .start = 1), weir_constant(g, WEIR_F32, {7, 1}, .value = 0.5));
        weir_tensor *h = weir_mul(weir_add(x, weir_expand(w, {6, 7, 4})), steps);
        weir_tensor *back = weir_add(weir_slice(h, 1, 6, 3, .step = -3), weir_slice(h, 1, 0, 3, .step = 2));
        weir_tensor *least = weir_min(back, .axes = {2}, .axis_count = 1), *all = weir_prod(back, .axes = {-1}, .axis_count = 1);
        weir_tensor *wide = weir_matmul(weir_reshape(h, {6, 1, 7, 4}), weir_slice(h, 0, 0, 2), .trans_b = true); /* [6, 2, 7, 7] */
        weir_tensor *ids = weir_input(g, WEIR_I32, {2, 3}, .name = "ids", .sbp = {first == WEIR_S(1) ? first : WEIR_AUTO}, .micro = true);
        weir_tensor *picked = weir_gather(h, weir_slice(ids, 0, 0, 1), 1), *few = weir_gather_nd(w, weir_slice(ids, 1, 0, 2), 0);
        weir_tensor *lines = weir_gather_elements(weir_slice(h, 0, 0, 2), weir_reshape(ids, {2, 3, 1}), 1);
        picked = weir_add(weir_mean(weir_mul(picked, picked)), weir_add(weir_mean(few), weir_mean(lines)));
        weir_tensor *places, *best = weir_top_k(h, 3, 1, &places, .smallest = true);
        weir_fetch(weir_cumsum(places, 0), .name = "places");
        weir_fetch(weir_one_hot(ids, 5, 1), .name = "hot");
        picked = weir_add(picked, weir_mean(weir_cumsum(best, 2)));
        weir_tensor *sized = weir_resize(weir_pad(h, .before = {0, 2}, .value = 0.5), {6, 5, 8}, .mode = WEIR_RESIZE_LINEAR);
        sized = weir_pad(weir_resize(sized, {4, 5, 8}), .after = {1, 0, 2}, .mode = WEIR_PAD_REFLECT);
        picked = weir_add(picked, weir_mean(weir_mul(sized, sized)));
        weir_fetch(weir_sum(wide), .name = "wide");
        all = weir_add(weir_add(all, weir_mean(wide)), picked);
        weir_fetch(weir_argmin(back, .axis = 0), .name = "where");
        weir_fetch(weir_range(g, WEIR_I32, 5, .start = 9, .step = -2), .name = "range");
        weir_train(weir_mean(weir_add(least, all)), weir_sgd(.lr = 0.1));
    }
    return graph_made(g);
}

Test(verify, elements_by_index_are_right_in_every_layout)
{
    const weir_sbp sbps[] = {WEIR_AUTO, WEIR_B, WEIR_S(0), WEIR_S(1), WEIR_S(2), WEIR_P};
    for (size_t i = 0; i < sizeof sbps / sizeof *sbps; i++) {
        weir_graph *g = indexed(sbps[i], sbps[(i + 2) % 6]);
        expect_right(g, weir_compile(g, .micro_batches = 1 + (int)i % 2, .precision = i % 3 ? WEIR_F32 : WEIR_BF16), "indexed");
        weir_graph_free(g);
    }
}

/* Projections that turn by rotary positions: of whole rows, of positions that are an input. */
static weir_graph *positioned(weir_sbp first, weir_sbp second)
{
    weir_graph *g = weir_graph_new("positioned");
    WEIR_ON(weir_mesh_new(g, "cpu:0-5", .shape = {2, 3})) {
        weir_tensor *x = weir_input(g, WEIR_F32, {6, 7, 24}, .name = "x", .sbp = {first, second}, .micro = true);
        weir_tensor *w = weir_param(g, WEIR_F32, {7, 24}, .name = "w", .init = WEIR_NORMAL(0.5)), *h = weir_add(x, w);
        weir_tensor *places = weir_input(g, WEIR_I32, {6, 7}, .name = "places", .micro = true), *at = weir_input(g, WEIR_I32, {1}, .name = "at");
        weir_tensor *q = weir_rope(h, NULL, .heads = 6), *k = weir_rope(h, places, .heads = 2, .interleaved = true, .rotary_dim = 6);
        weir_tensor *v = weir_rope(h, at, .heads = 3, .base = 500000,
                                   .scaling = {.factor = 8, .low_freq_factor = 1, .high_freq_factor = 4, .original_max_position = 64});
        weir_train(weir_mean(weir_mul(weir_add(q, k), v)), weir_sgd(.lr = 0.1));
    }
    return graph_made(g);
}

Test(verify, rotary_positions_are_right_in_every_layout)
{
    const weir_sbp sbps[] = {WEIR_AUTO, WEIR_B, WEIR_S(0), WEIR_S(1), WEIR_S(2), WEIR_P};
    for (size_t i = 0; i < sizeof sbps / sizeof *sbps; i++) {
        weir_graph *g = positioned(sbps[i], sbps[(i + 2) % 6]);
        cr_assert_eq(weir_gradients_verify(g, .seed = SEED), WEIR_OK, "%s", weir_error());
        expect_right(g, weir_compile(g, .micro_batches = 1 + (int)i % 2, .precision = i % 3 ? WEIR_F32 : WEIR_BF16), "positioned");
        weir_graph_free(g);
    }
}

/* Groups of heads, windows and masks, split over both axes. */
static weir_graph *attending(weir_sbp first, weir_sbp second)
{
    weir_graph *g = weir_graph_new("attending");
    WEIR_ON(weir_mesh_new(g, "cpu:0-5", .shape = {2, 3})) {
        weir_tensor *x = weir_input(g, WEIR_F32, {6, 4, 24}, .name = "x", .sbp = {first, second}, .micro = true);
        weir_tensor *pads = weir_input(g, WEIR_U8, {6, 4}, .name = "pads", .micro = true), *at = weir_input(g, WEIR_I32, {1}, .name = "at");
        weir_tensor *bias = weir_input(g, WEIR_F32, {12, 4, 4}, .name = "bias"), *cache = weir_input(g, WEIR_F32, {6, 7, 12}, .name = "cache", .micro = true);
        weir_tensor *q = weir_linear(x, 24, .name = "q"), *few = weir_linear(x, 12, .name = "few"), *one = weir_linear(x, 2, .name = "one");
        bias = weir_reshape(bias, {1, 12, 4, 4});
        weir_tensor *y = weir_attention(q, few, few, .heads = 12, .kv_heads = 6, .causal = true, .window = 2, .mask = pads);
        y = weir_add(y, weir_attention(q, one, one, .heads = 12, .kv_heads = 1, .mask = bias));
        y = weir_add(y, weir_attention(q, few, few, .heads = 12, .kv_heads = 6));
        weir_fetch(weir_attention_kept(q, few, few, cache, cache, at, .heads = 12, .kv_heads = 6, .window = 3), .name = "kept");
        weir_train(weir_mean(weir_mul(y, y)), weir_sgd(.lr = 0.1));
    }
    return graph_made(g);
}

Test(verify, groups_of_heads_windows_and_masks_are_right_in_every_layout)
{
    const weir_sbp sbps[] = {WEIR_AUTO, WEIR_B, WEIR_S(0), WEIR_S(1), WEIR_S(2), WEIR_P};
    for (size_t i = 0; i < sizeof sbps / sizeof *sbps; i++) {
        weir_graph *g = attending(sbps[i], sbps[(i + 2) % 6]);
        cr_assert_eq(weir_gradients_verify(g, .seed = SEED), WEIR_OK, "%s", weir_error());
        expect_right(g, weir_compile(g, .micro_batches = 1 + (int)i % 2, .precision = i % 3 ? WEIR_F32 : WEIR_BF16), "attending");
        weir_graph_free(g);
    }
}

Test(verify, random_models_are_right_in_random_layouts)
{
    for (uint64_t model = 0; model < MODELS; model++)
        for (uint64_t lies = 0; lies < LAYOUTS; lies++) {
            char what[64];
            weir_graph *g = random_model(SEED + model, lies);
            snprintf(what, sizeof what, "model %llu, layout %llu", (unsigned long long)model, (unsigned long long)lies);
            expect_right(g, weir_compile(g, .micro_batches = random_model_micro(SEED + model), .seed = model), what);
            weir_graph_free(g);
        }
}

Test(verify, a_plan_of_another_graph_is_refused)
{
    weir_graph *one = mlp(DATA, false), *other = gpt((layout){0});
    weir_plan *plan = weir_compile(one);
    cr_expect_eq(weir_plan_verify(other, plan), WEIR_E_ARGUMENT);
    cr_expect(strstr(weir_error(), "was not compiled from this graph"), "%s", weir_error());
    weir_plan_free(plan);
    weir_graph_free(one);
    weir_graph_free(other);
}

Test(verify, a_parameter_that_the_plan_does_not_name_is_missed)
{
    weir_graph *g = mlp(DATA, false);
    weir_plan *plan = weir_compile(g), *other = plan_copy(plan);
    other->params[0] = other->params[--other->params_count];
    cr_expect_eq(weir_plan_verify(g, other), WEIR_E_WRONG);
    cr_expect(strstr(weir_error(), "keeps \""), "%s", weir_error());
    weir_plan_free(other);
    weir_plan_free(plan);
    weir_graph_free(g);
}

Test(verify, a_shard_that_the_plan_does_not_name_is_missed)
{
    weir_graph *g = mlp(TENSOR, false);
    weir_plan *plan = weir_compile(g), *other = plan_copy(plan);
    for (uint32_t p = 0; p < other->params_count; p++)
        if (!strcmp(plan_text(other, other->params[p].name), "up/bias"))
            other->params[p].shards.count--;
    cr_expect_eq(weir_plan_verify(g, other), WEIR_E_WRONG);
    cr_expect(strstr(weir_error(), "\"up/bias\" has a shard that the plan does not name, element [6]"), "%s", weir_error());
    weir_plan_free(other);
    weir_plan_free(plan);
    weir_graph_free(g);
}

Test(verify, a_proof_that_takes_more_memory_than_it_may_is_not_begun)
{
    weir_graph *g = mlp(DATA, true);
    weir_plan *plan = weir_compile(g);
    cr_expect_eq(weir_plan_verify(g, plan, .memory = "10KiB"), WEIR_E_MEMORY);
    cr_expect(strstr(weir_error(), "test_verify.c:") && strstr(weir_error(), "verify a smaller version of the model"), "%s", weir_error());
    cr_expect_eq(weir_plan_verify(g, plan, .memory = "some"), WEIR_E_ARGUMENT);
    cr_expect(strstr(weir_error(), "\"some\" is not an amount of memory"), "%s", weir_error());
    OK(weir_plan_verify(g, plan, .memory = "100MiB"));
    weir_plan_free(plan);
    weir_graph_free(g);
}

Test(verify, the_environment_asks_for_a_proof_of_each_plan)
{
    weir_graph *g = mlp(DATA, false);
    setenv("WEIR_VERIFY", "1", 1);
    weir_plan *plan = weir_compile(g);
    cr_expect(plan, "%s", weir_error());
    weir_plan_free(plan);
    setenv("WEIR_VERIFY", "yes", 1);
    cr_expect_null(weir_compile(g));
    cr_expect(strstr(weir_error(), "WEIR_VERIFY is 'yes': give 1"), "%s", weir_error());
    unsetenv("WEIR_VERIFY");
    weir_graph_free(g);
}
