/* tests/graph/compile/test_fold.c: of casts those that change nothing are left out, and those that round are not.
 *
 * The results of a program with chains of casts must be, bit for bit, those of each cast by itself.
 */
#include "graph/plan/form/plan.h"
#include "tests/support/run.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

enum { ROWS = 4, COLUMNS = 32 };

typedef weir_tensor *(*chain_fn)(weir_tensor *x);

static weir_status fill(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    float *to = dst->data;
    (void)ctx, (void)micro;
    for (int64_t i = 0; i < weir_shape_count(&dst->shape); i++)
        to[i] = weir_random_normal(5, (uint64_t)(step * 1000 + dst->offset[0] * COLUMNS + i));
    return WEIR_OK;
}

static weir_plan *chain_plan(chain_fn chain, weir_dtype precision, const char *devices, int count)
{
    weir_graph *g = weir_graph_new("chain");
    weir_mesh *mesh = weir_mesh_new(g, devices, .shape = {count});
    WEIR_ON(mesh)
        weir_fetch(chain(weir_input(g, WEIR_F32, {ROWS, COLUMNS}, .name = "x", .sbp = {S(0)}, .source = fill)),
                   .name = "y");
    weir_plan *plan = weir_compile(g, .precision = precision);
    cr_assert_not_null(plan, "%s", weir_error());
    weir_graph_free(g);
    return plan;
}

/* Casts to the dtype, on the first device. */
static int casts(const weir_plan *plan, weir_dtype to)
{
    int count = 0;
    for (uint32_t k = 0; k < plan->kernels_count; k++) {
        const plan_kernel *kernel = &plan->kernels[k];
        const plan_tensor *out = &plan->tensors[plan->operands[kernel->out.first].tensor.i];
        count += !strcmp(plan_text(plan, kernel->op), "cast") && out->dtype == (uint32_t)to &&
                 plan->queues[plan->actors[kernel->actor.i].queue.i].space.i == 0;
    }
    return count;
}

/* Checks the results of a chain for the elements of x in each step. */
static void expect_values(const weir_plan *plan, float (*want)(float x))
{
    enum { STEPS = 2 };
    run r = run_plan(plan, STEPS, 2);
    const run_entry *y = run_find(&r, "y");
    cr_assert_not_null(y);
    for (int step = 0; step < STEPS; step++)
        for (int i = 0; i < ROWS * COLUMNS; i++) {
            const float x = weir_random_normal(5, (uint64_t)(step * 1000 + i)), is = want(x);
            const float got = (float)y->value[step * ROWS * COLUMNS + i];
            cr_assert_eq(got, is, "%a of %a, not %a", (double)got, (double)x, (double)is);
        }
    run_free(&r);
}

static float rounded(weir_dtype to, float x)
{
    uint16_t half;
    weir_from_f32(&x, 1, to, &half);
    weir_to_f32(to, &half, 1, &x);
    return x;
}

static void check(chain_fn chain, float (*want)(float), int to_bf16, int to_f16, int to_f32)
{
    for (int devices = 1; devices <= 2; devices++) {
        weir_plan *plan = chain_plan(chain, WEIR_F32, devices > 1 ? "cpu:0-1" : "cpu:0", devices);
        cr_expect_eq(casts(plan, WEIR_BF16), to_bf16, "%d to bf16", casts(plan, WEIR_BF16));
        cr_expect_eq(casts(plan, WEIR_F16), to_f16, "%d to f16", casts(plan, WEIR_F16));
        cr_expect_eq(casts(plan, WEIR_F32), to_f32, "%d to f32", casts(plan, WEIR_F32));
        expect_values(plan, want);
        weir_plan_free(plan);
    }
}

/* ---- there and back ---- */

static weir_tensor *there_and_back(weir_tensor *x)
{
    return weir_neg(weir_cast(weir_cast(x, WEIR_BF16), WEIR_F32));
}

static float want_there_and_back(float x)
{
    return -rounded(WEIR_BF16, x);
}

Test(fold, what_rounds_stays, .timeout = 120)
{
    check(there_and_back, want_there_and_back, 1, 0, 1);
}

static weir_tensor *many_times(weir_tensor *x)
{
    for (int i = 0; i < 3; i++)
        x = weir_cast(weir_cast(x, WEIR_BF16), WEIR_F32);
    return weir_neg(x);
}

Test(fold, what_was_widened_is_not_narrowed_again, .timeout = 120)
{
    check(many_times, want_there_and_back, 1, 0, 1);
}

static weir_tensor *on_to_f16(weir_tensor *x)
{
    x = weir_cast(weir_cast(x, WEIR_BF16), WEIR_F32);
    return weir_neg(weir_cast(weir_cast(x, WEIR_F16), WEIR_F32));
}

static float want_on_to_f16(float x)
{
    return -rounded(WEIR_F16, rounded(WEIR_BF16, x));
}

Test(fold, two_casts_that_round_are_two, .timeout = 120)
{
    check(on_to_f16, want_on_to_f16, 1, 1, 1);
}

static weir_tensor *through_a_half(weir_tensor *x)
{
    return weir_neg(weir_cast(weir_cast(weir_cast(x, WEIR_F16), WEIR_BF16), WEIR_F32));
}

static float want_through_a_half(float x)
{
    return -rounded(WEIR_BF16, rounded(WEIR_F16, x));
}

Test(fold, from_one_half_to_the_other_is_no_widening, .timeout = 120)
{
    check(through_a_half, want_through_a_half, 1, 1, 1);
}

/* ---- more of the same ---- */

static weir_tensor *twice(weir_tensor *x)
{
    weir_tensor *a = weir_cast(x, WEIR_BF16), *b = weir_cast(x, WEIR_BF16), *c = weir_cast(x, WEIR_F32);
    return weir_sub(weir_cast(weir_add(a, b), WEIR_F32), weir_neg(c));
}

static float want_twice(float x)
{
    return 2 * rounded(WEIR_BF16, x) + x;
}

Test(fold, the_same_cast_is_made_once_and_one_to_the_same_dtype_not_at_all, .timeout = 120)
{
    check(twice, want_twice, 1, 0, 1);
}

static weir_tensor *of_slots(weir_tensor *x)
{
    weir_tensor *kept = weir_cast(x, WEIR_BF16);
    weir_slots(kept, 3);
    return weir_add(weir_cast(weir_cast(x, WEIR_BF16), WEIR_F32), weir_cast(kept, WEIR_F32));
}

static float want_of_slots(float x)
{
    return 2 * rounded(WEIR_BF16, x);
}

Test(fold, what_has_slots_of_the_authors_stays, .timeout = 120)
{
    check(of_slots, want_of_slots, 2, 0, 2);
}

/* A tensor that the compiler computes in bf16 and the author casts to bf16 is not cast by way of f32. */
static weir_tensor *half_already(weir_tensor *x)
{
    weir_tensor *h = weir_linear(x, COLUMNS, .name = "up");
    return weir_cast(weir_relu(weir_cast(h, WEIR_BF16)), WEIR_F32);
}

Test(fold, casts_of_the_author_join_those_of_the_compiler, .timeout = 120)
{
    weir_plan *plan = chain_plan(half_already, WEIR_BF16, "cpu:0", 1);
    cr_expect_eq(casts(plan, WEIR_BF16), 2, "of x and of the weight, not %d", casts(plan, WEIR_BF16));
    cr_expect_eq(casts(plan, WEIR_F32), 1, "of y, not %d", casts(plan, WEIR_F32));
    weir_plan_free(plan);
}

/* ---- terms of a sum ---- */

/* The product's terms are added before the sum is rounded, and the sum is of terms that were rounded. */
static weir_tensor *summed(weir_tensor *x)
{
    weir_tensor *ones = weir_param(weir_tensor_graph(x), WEIR_F32, {COLUMNS, 1}, .name = "ones", .init = WEIR_VALUE(1));
    weir_tensor *y = weir_matmul(weir_shard(x, .sbp = {S(1)}), ones);
    return weir_cast(weir_cast(weir_cast(y, WEIR_BF16), WEIR_F32), WEIR_BF16);
}

Test(fold, sums_over_devices_are_rounded_as_they_were, .timeout = 120)
{
    weir_plan *plan = chain_plan(summed, WEIR_F32, "cpu:0-1", 2);
    run r = run_plan(plan, 1, 2);
    const run_entry *y = run_find(&r, "y");
    for (int row = 0; row < ROWS; row++) {
        double sum = 0;
        for (int i = 0; i < COLUMNS; i++)
            sum += (double)weir_random_normal(5, (uint64_t)(row * COLUMNS + i));
        const double digit = fabs(sum) / 256 + 1e-5;
        cr_expect_float_eq((double)y->value[row], sum, digit, "%g, not %g", (double)y->value[row], sum);
    }
    run_free(&r);
    weir_plan_free(plan);
}

/* ---- layers behind a cast ---- */

static weir_tensor *layers(weir_tensor *x)
{
    x = weir_cast(x, WEIR_BF16);
    x = weir_gelu(weir_layernorm(weir_linear(x, 16, .name = "up"), .name = "norm"));
    return weir_cast(weir_linear(x, COLUMNS, .name = "down", .no_bias = true), WEIR_F32);
}

static bool is_bf16(const weir_plan *plan, plan_range operands, uint32_t i)
{
    return plan->tensors[plan->operands[operands.first + i].tensor.i].dtype == WEIR_BF16;
}

Test(fold, a_layer_of_what_is_half_casts_its_own_weight, .timeout = 120)
{
    weir_plan *plan = chain_plan(layers, WEIR_F32, "cpu:0-1", 2);
    int products = 0, copies = 0;
    for (uint32_t k = 0; k < plan->kernels_count; k++) {
        const plan_kernel *kernel = &plan->kernels[k];
        if (!strcmp(plan_text(plan, kernel->op), "linear")) {
            cr_expect(is_bf16(plan, kernel->in, 0) && is_bf16(plan, kernel->in, 1) && is_bf16(plan, kernel->out, 0));
            products++;
        }
        copies += !strcmp(plan_text(plan, kernel->op), "cast") && strstr(plan_text(plan, kernel->name), "/weight>bf16");
    }
    cr_expect_eq(products, 4);
    cr_expect_eq(copies, 4, "%d", copies);
    weir_plan_free(plan);
}
