/* test_fuse.c: kernels that are put together compute what they compute one by one, to the bit; which are, is seen in
 * the plan; and a plan that says so wrongly is refused, or harmless.
 *
 * The pass is for tensors of megabytes; here it is for every tensor (fuse_bytes_min), in blocks of a few rows
 * (fuse_block_bytes).
 */
#include "graph/compile/actors/passes.h"
#include "graph/compile/ir/ir.h"
#include "graph/plan/form/plan.h"
#include "kernels/fused/fused.h"
#include "tests/support/effort.h"
#include "tests/support/mutate_plan.h"
#include "tests/support/random_model.h"
#include "tests/support/run.h"
#include "tests/support/untrusted.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEED = 8117, MODELS = EFFORT(24, 12, 8), MUTANTS = 4000, BLOCK_BYTES = 1 << 17 };

static weir_plan *compiled(const weir_graph *g, int micro, weir_dtype precision, bool no_fusion)
{
    uint64_t bytes_min = fuse_bytes_min, block_bytes = fuse_block_bytes;
    fuse_bytes_min = 1;
    fuse_block_bytes = BLOCK_BYTES;
    weir_plan *plan = weir_compile(g, .micro_batches = micro, .seed = SEED, .precision = precision,
                                   .no_fusion = no_fusion);
    fuse_bytes_min = bytes_min;
    fuse_block_bytes = block_bytes;
    cr_assert_not_null(plan, "%s", weir_error());
    return plan;
}

static bool is_fused(const weir_plan *plan, uint32_t k)
{
    return !strncmp(plan_text(plan, plan->kernels[k].op), "fused", 5);
}

static int fused_count(const weir_plan *plan)
{
    int count = 0;
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        count += is_fused(plan, k);
    return count;
}

/* Whether a kernel of the plan is of these members. */
static bool has_members(const weir_plan *plan, const char *members)
{
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        if (is_fused(plan, k) && !strncmp(plan_text(plan, plan->kernels[k].name), members, strlen(members)))
            return true;
    return false;
}

/* Runs the graph with and without; returns how many kernels were fused. */
static int same_bits(const weir_graph *g, int micro, weir_dtype precision, const char *what)
{
    weir_plan *fused = compiled(g, micro, precision, false), *apart = compiled(g, micro, precision, true);
    int count = fused_count(fused);
    cr_expect_eq(fused_count(apart), 0);
    cr_expect_eq(weir_plan_check(fused), WEIR_OK, "%s", weir_error());
    run one = run_plan(fused, 2, 2), other = run_plan(apart, 2, 1);
    run_near(&one, &other, 0, what);
    run_free(&one);
    run_free(&other);
    weir_plan_free(fused);
    weir_plan_free(apart);
    return count;
}

Test(fuse, random_models_in_random_layouts_keep_their_bits, .timeout = 120)
{
    int fused = 0;
    for (uint64_t i = 0; i < MODELS; i++) {
        char what[64];
        snprintf(what, sizeof what, "model %lu", (long)(SEED + i));
        weir_graph *g = random_model(SEED + i, i % 3 ? SEED + 7 * i : 0);
        fused += same_bits(g, random_model_micro(SEED + i), WEIR_F32, what);
        weir_graph_free(g);
    }
    cr_expect_gt(fused, MODELS, "%d kernels were fused", fused);
}

/* Every other model is computed in f16, whose loss has a scale. */
Test(fuse, random_models_in_half_precision_keep_their_bits, .timeout = 120)
{
    int fused = 0;
    for (uint64_t i = 0; i < MODELS / 4; i++) {
        char what[64];
        snprintf(what, sizeof what, "model %lu in half", (long)(SEED + i));
        weir_graph *g = random_model(SEED + i, i % 3 ? SEED + 7 * i : 0);
        fused += same_bits(g, random_model_micro(SEED + i), i % 2 ? WEIR_F16 : WEIR_BF16, what);
        weir_graph_free(g);
    }
    cr_expect_gt(fused, MODELS / 4, "%d kernels were fused", fused);
}

/* Blocks that do not divide the rows, of every kind of member, with what is between needed elsewhere or not. */
static weir_graph *chain(const char *devices, int rows, int columns)
{
    weir_graph *g = weir_graph_new("chain");
    weir_mesh_new(g, devices);
    weir_tensor *x = weir_input(g, WEIR_F32, {3, rows, columns}, .name = "x", .sbp = {S(1)});
    weir_tensor *z = weir_input(g, WEIR_F32, {3, rows, columns}, .name = "z", .sbp = {S(1)});
    weir_tensor *column = weir_input(g, WEIR_F32, {3, rows, 1}, .name = "column", .sbp = {S(1)});
    weir_tensor *bias = weir_param(g, WEIR_F32, {columns}, .name = "bias", .init = WEIR_NORMAL(1));
    weir_tensor *h = weir_mul(weir_add(weir_affine(x, 1), bias), weir_affine(z, 2, .shift = 1));
    weir_fetch(weir_relu(weir_dropout(weir_mul(h, column), 0.5, .name = "drop")), .name = "dropped");
    h = weir_add(h, z, .name = "kept");
    weir_fetch(weir_softmax(weir_tanh(h)), .name = "soft");
    weir_tensor *y = weir_layernorm(weir_gelu(h), .name = "ln");
    weir_fetch(h, .name = "kept");
    weir_tensor *loss = weir_mean(weir_mul(weir_rmsnorm(weir_add(y, h), .name = "rms"), y), .name = "loss");
    weir_train(loss, weir_sgd(.lr = 0.1));
    weir_fetch(loss, .name = "loss");
    return g;
}

Test(fuse, chains_of_every_kind_keep_their_bits, .timeout = 60)
{
    static const int sizes[][2] = {{1, 5}, {7, 33}, {64, 48}, {250, 200}, {1000, 300}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes - EFFORT(0, 0, 1); i++)
        for (int devices = 1; devices <= 3; devices += 2) {
            weir_graph *g = chain(devices == 1 ? "cpu:0" : "cpu:0-2", sizes[i][0], sizes[i][1]);
            char what[64];
            snprintf(what, sizeof what, "%d x %d on %d", sizes[i][0], sizes[i][1], devices);
            cr_expect_gt(same_bits(g, 1, WEIR_F32, what), 3, "%s", what);
            cr_expect_gt(same_bits(g, 1, WEIR_BF16, what), 0, "%s", what);
            weir_graph_free(g);
        }
}

/* Two blocks of a transformer without attention: residuals and norms, activations and biases. */
static weir_graph *blocks(void)
{
    weir_graph *g = weir_graph_new("blocks");
    weir_mesh_new(g, "cpu:0");
    weir_tensor *x = weir_input(g, WEIR_F32, {4, 48, 64}, .name = "x", .micro = true);
    x = weir_linear(x, 64, .name = "in");
    for (int i = 0; i < 3; i++)
        WEIR_ON(weir_tensor_mesh(x), .name = "h%d", i) {
            weir_tensor *h = weir_linear(weir_layernorm(x, .name = "ln"), 256, .name = "up");
            x = weir_add(x, weir_linear(weir_gelu(h), 64, .name = "down"), .name = "add");
        }
    weir_tensor *loss = weir_mean(weir_mul(x, x), .name = "loss");
    weir_train(loss, weir_adamw(.lr = 0.01));
    weir_fetch(loss, .name = "loss");
    return g;
}

Test(fuse, residuals_and_norms_activations_and_biases_are_put_together, .timeout = 120)
{
    weir_graph *g = blocks();
    weir_plan *plan = compiled(g, 1, WEIR_F32, false);
    cr_expect(has_members(plan, "fused(add, layernorm) h0/add..h1/ln"));
    cr_expect(has_members(plan, "fused(gelu_grad, linear_db) "));
    cr_expect(has_members(plan, "fused(layernorm_grad, add_many"));
    weir_plan_free(plan);
    plan = compiled(g, 1, WEIR_BF16, false);
    cr_expect(has_members(plan, "fused(add, layernorm) h0/add..h1/ln"));
    cr_expect(has_members(plan, "fused(gelu_grad, linear_db) "));
    cr_expect(has_members(plan, "fused(layernorm_grad, add_many"));
    weir_plan_free(plan);
    same_bits(g, 1, WEIR_F32, "blocks");
    same_bits(g, 3, WEIR_F32, "blocks, micro-batches");
    same_bits(g, 3, WEIR_BF16, "blocks in bf16, micro-batches");
    weir_graph_free(g);
}

/* The gradient of the sum of all elements is 0.1 everywhere, so that of each bias is a tenth of the number of rows; the
 * table's is a tenth of how often an id comes. With micro-batches it is their mean. */
static weir_graph *many_rows(const char *devices, int rows)
{
    weir_graph *g = weir_graph_new("rows");
    weir_mesh_new(g, devices);
    weir_tensor *x = weir_input(g, WEIR_F32, {rows, 3}, .name = "x", .micro = true, .sbp = {S(0)});
    weir_tensor *ids = weir_input(g, WEIR_I32, {rows}, .name = "ids", .micro = true, .sbp = {S(0)});
    weir_tensor *bias = weir_param(g, WEIR_F32, {4}, .name = "bias", .init = WEIR_VALUE(0));
    weir_tensor *h = weir_layernorm(weir_linear(x, 4, .name = "in"), .name = "norm");
    h = weir_add(h, weir_embedding(ids, RUN_CLASSES, 4, .name = "table", .init = WEIR_VALUE(0)));
    h = weir_add(weir_add(h, weir_linear(x, 4, .name = "out")), bias);
    weir_train(weir_sum(weir_affine(h, 0.1)), weir_sgd(.lr = 1));
    return g;
}

static void expect_tenths(const run *r, const char *name, const double *times, const char *what)
{
    const run_entry *e = run_find(r, name);
    cr_assert_not_null(e, "%s", name);
    for (int64_t i = 0; i < e->count; i++) {
        const double want = -(double)0.1f * times[i / 4];
        cr_expect(fabs(e->value[i] - want) <= 3e-7 * fabs(want), "%s: %s[%ld] is %.9g, not %.9g", what, name, (long)i,
                  e->value[i], want);
    }
}

static void check_many_rows(const char *devices, int rows, int micro)
{
    char what[64];
    double all = (double)rows / micro, times[RUN_CLASSES] = {0};
    weir_graph *g = many_rows(devices, rows / micro);
    snprintf(what, sizeof what, "%d rows on %s, %d micro-batches", rows, devices, micro);
    for (int m = 0; m < micro; m++)
        for (int64_t i = 0; i < rows / micro; i++)
            times[(int)run_input("ids", WEIR_I32, 0, m, i)] += 1 / (double)micro;
    weir_plan *fused = compiled(g, micro, WEIR_F32, false), *apart = compiled(g, micro, WEIR_F32, true);
    run one = run_plan(fused, 1, 2), other = run_plan(apart, 1, 1);
    run_near(&one, &other, 0, what);
    cr_expect_gt(fused_count(fused), 0, "%s", what);
    expect_tenths(&one, "bias", &all, what);
    expect_tenths(&one, "out/bias", &all, what);
    expect_tenths(&one, "norm/bias", &all, what);
    expect_tenths(&one, "table/weight", times, what);
    run_free(&one);
    run_free(&other);
    weir_plan_free(fused);
    weir_plan_free(apart);
    weir_graph_free(g);
}

Test(fuse, sums_of_many_rows_keep_their_digits, .timeout = 120)
{
    static const char *const devices[] = {"cpu:0", "cpu:0-1", "cpu:0-2"};
    for (int i = 0; i < 3; i++)
        for (int micro = 1; micro <= 4; micro += 3)
            check_many_rows(devices[i], EFFORT(1 << 18, 1 << 14, 1 << 14), micro);
}

Test(fuse, small_tensors_are_left_alone, .timeout = 120)
{
    weir_graph *g = blocks();
    weir_plan *plan = weir_compile(g);
    cr_assert_not_null(plan, "%s", weir_error());
    cr_expect_eq(fused_count(plan), 0);
    weir_plan_free(plan);
    weir_graph_free(g);
}

/* Tensors that the chain alone touches are in no register and no temporary. */
Test(fuse, what_is_between_takes_no_memory_but_a_block, .timeout = 120)
{
    weir_graph *g = weir_graph_new("inner");
    weir_tensor *x = weir_input(g, WEIR_F32, {4096, 64}, .name = "x");
    weir_tensor *z = weir_input(g, WEIR_F32, {4096, 64}, .name = "z");
    weir_fetch(weir_relu(weir_affine(weir_mul(x, z, .name = "product"), 2, .name = "twice")), .name = "y");
    weir_plan *fused = compiled(g, 1, WEIR_F32, false), *apart = compiled(g, 1, WEIR_F32, true);
    cr_expect(has_members(fused, "fused(mul, affine, relu) "));
    for (uint32_t t = 0; t < fused->tensors_count; t++) {
        const char *name = plan_text(fused, fused->tensors[t].name);
        cr_expect(strcmp(name, "product") && strcmp(name, "twice"), "%s is in the plan", name);
    }
    cr_expect_lt(weir_plan_bytes(fused, -1), weir_plan_bytes(apart, -1));
    weir_plan_free(fused);
    weir_plan_free(apart);
    weir_graph_free(g);
}

/* ---- plans from anywhere ---- */

#if EFFORT(1, 1, 0) /* one thread */
static uint32_t first_fused(const weir_plan *plan, uint64_t skip)
{
    uint32_t last = 0;
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        if (is_fused(plan, k)) {
            last = k;
            if (!skip--)
                break;
        }
    return last;
}

/* Changes a few words of the attributes, mostly to other small numbers. */
static void change_words(weir_plan *plan, uint64_t *random)
{
    static const int64_t odd[] = {INT64_MIN, INT64_MAX, -1, INT64_C(1) << 40, 4096, 32, 33, 64, 65};
    uint32_t k = first_fused(plan, mutate_draw(random) % 6);
    const plan_range *attrs = &plan->kernels[k].attrs;
    for (uint64_t changes = 1 + mutate_draw(random) % 3; changes > 0; changes--) {
        uint64_t at = mutate_draw(random) % 2 ? mutate_draw(random) % 60 : mutate_draw(random) % attrs->count;
        plan_word *word = &plan->words[attrs->first + at];
        if (mutate_draw(random) % 3)
            word->i = (int64_t)((uint64_t)word->i + mutate_draw(random) % 5 - 2);
        else
            word->i = odd[mutate_draw(random) % (sizeof odd / sizeof *odd)];
    }
}

Test(fuse, a_plan_with_wrong_members_is_refused_or_harmless, .timeout = 120)
{
    weir_graph *g = chain("cpu:0", 7, 33);
    weir_plan *plan = compiled(g, 1, WEIR_F32, false);
    cr_assert_geq(fused_count(plan), 4);
    plan_word *kept = malloc(plan->words_count * sizeof *kept);
    memcpy(kept, plan->words, plan->words_count * sizeof *kept);
    uint64_t random = SEED;
    int refused = 0, called = 0;
    cr_log_info("seed %d", SEED);
    for (int i = 0; i < MUTANTS; i++) {
        change_words(plan, &random);
        if (plan_validate(plan) != WEIR_OK)
            refused++;
        else if (untrusted_small(plan))
            called += untrusted_calls(plan, random) > 0;
        memcpy(plan->words, kept, plan->words_count * sizeof *kept);
    }
    cr_expect_gt(refused, MUTANTS / 4, "%d refused", refused);
    cr_expect_gt(called, MUTANTS / 20, "%d called", called);
    free(kept);
    weir_plan_free(plan);
    weir_graph_free(g);
}
#endif
