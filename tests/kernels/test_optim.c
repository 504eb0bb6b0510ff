/* test_optim.c: kernels of optimizers, and what clips their gradients, against plain loops in double. */
#include "kernels/common/ops.h"
#include "kernels/optim/optim.h"
#include "tests/kernels/by_name.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SEED 20210 /* of all random inputs here */

enum { PARAMS = 37, STEPS = 5 };

typedef struct update_check {
    struct optim_attrs attrs;
    double p[PARAMS], m[PARAMS], v[PARAMS]; /* the reference's */
    float got[PARAMS], state[2][PARAMS], grad[PARAMS];
    int32_t updates;
    float scale;
} update_check;

static void update_kernel(update_check *u, const weir_op *op, int64_t step)
{
    const weir_view in[2] = {{.data = u->grad, .dtype = WEIR_F32, .shape = SHAPE(PARAMS)},
                             {.data = &u->scale, .dtype = WEIR_F32}};
    const weir_view out = {.data = u->got, .dtype = WEIR_F32, .shape = SHAPE(PARAMS)};
    weir_view state[3] = {out, out, {.data = &u->updates, .dtype = WEIR_I32}};
    state[0].data = u->state[0];
    state[1].data = u->state[1];
    const weir_type type = {WEIR_F32, SHAPE(PARAMS)};
    weir_type out_type = type, states[4];
    weir_op_args rule = {op, &type, 1, &out_type, 1, &u->attrs};
    weir_kernel_args args = {.in = in, .in_count = u->scale == 1 ? 1 : 2, .out = &out, .out_count = 1};
    args.state = state;
    args.state_count = op->states(&rule, states);
    args.attrs = &u->attrs;
    args.step = step;
    cr_assert_eq(op->kernel[WEIR_CPU](&args), WEIR_OK);
}

static void update_begin(update_check *u, uint64_t *random)
{
    for (int i = 0; i < PARAMS; i++)
        u->p[i] = u->got[i] = (float)(kernel_random(random) - 0.5);
}

static void sgd_reference(update_check *u, double rate)
{
    for (int i = 0; i < PARAMS; i++) {
        double g = (double)u->scale * u->grad[i] + u->attrs.weight_decay * u->p[i];
        u->v[i] = u->attrs.momentum * u->v[i] + g;
        u->p[i] -= rate * u->v[i];
    }
}

/* Loshchilov and Hutter 2019, algorithm 2, line by line. */
static void adamw_reference(update_check *u, double rate, int64_t step)
{
    for (int i = 0; i < PARAMS; i++) {
        double g = (double)u->scale * u->grad[i];
        u->m[i] = u->attrs.beta1 * u->m[i] + (1 - u->attrs.beta1) * g;
        u->v[i] = u->attrs.beta2 * u->v[i] + (1 - u->attrs.beta2) * g * g;
        double m = u->m[i] / (1 - pow(u->attrs.beta1, (double)step + 1));
        double v = u->v[i] / (1 - pow(u->attrs.beta2, (double)step + 1));
        u->p[i] -= rate * (m / (sqrt(v) + u->attrs.eps) + u->attrs.weight_decay * u->p[i]);
    }
}

static void check_update(const weir_op *op, struct optim_attrs attrs, float scale)
{
    uint64_t random = SEED;
    update_check u = {.attrs = attrs, .scale = scale};
    update_begin(&u, &random);
    for (int64_t step = 0; step < STEPS; step++) {
        for (int i = 0; i < PARAMS; i++)
            u.grad[i] = (float)(kernel_random(&random) - 0.5);
        update_kernel(&u, op, step);
        if (op == &op_sgd)
            sgd_reference(&u, optim_rate(&attrs, step));
        else
            adamw_reference(&u, optim_rate(&attrs, step), step);
        for (int i = 0; i < PARAMS; i++)
            cr_assert(kernel_near(u.got[i], u.p[i], 2e-6), "%s: step %ld: %g at %d, not %g", op->name, (long)step,
                      u.got[i], i, u.p[i]);
    }
}

Test(sgd, steps_against_the_gradient, .timeout = 120)
{
    check_update(&op_sgd, (struct optim_attrs){.lr = 0.1}, 1);
    check_update(&op_sgd, (struct optim_attrs){.lr = 0.1, .weight_decay = 0.1}, 0.5f);
    check_update(&op_sgd, (struct optim_attrs){.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1}, 0.5f);
}

Test(adamw, follows_its_algorithm, .timeout = 120)
{
    struct optim_attrs attrs = {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
    check_update(&op_adamw, attrs, 1);
    attrs.weight_decay = 0.1;
    attrs.warmup = 3;
    attrs.total = 10;
    check_update(&op_adamw, attrs, 0.25f);
}

/* The state is as new as its count says, whatever the step of the run is. */
Test(adamw, corrects_its_bias_by_the_updates_that_are_in_its_state, .timeout = 120)
{
    update_check u = {.attrs = {.lr = 0.5, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8}, .scale = 1};
    for (int i = 0; i < PARAMS; i++)
        u.grad[i] = 1;
    for (int n = 1; n <= 10; n++) {
        update_kernel(&u, &op_adamw, 3000 + n);
        cr_expect_eq(u.updates, n);
        cr_expect_float_eq(u.got[0], -0.5f * (float)n, 1e-4, "%g after %d updates", (double)u.got[0], n);
    }
    const float before = u.got[0];
    u.scale = NAN;
    update_kernel(&u, &op_adamw, 3011);
    cr_expect(u.updates == 10 && u.got[0] == before, "a step that is left out counts");
}

Test(optim, rate_rises_then_falls_along_a_cosine, .timeout = 120)
{
    struct optim_attrs attrs = {.lr = 1, .lr_min = 0.1, .warmup = 4, .total = 12};
    cr_assert_float_eq(optim_rate(&attrs, 0), 0.25, 1e-12);
    cr_assert_float_eq(optim_rate(&attrs, 3), 1, 1e-12);
    cr_assert_float_eq(optim_rate(&attrs, 4), 1, 1e-12);
    cr_assert_float_eq(optim_rate(&attrs, 8), 0.55, 1e-12);
    cr_assert_float_eq(optim_rate(&attrs, 12), 0.1, 1e-12);
    cr_assert_float_eq(optim_rate(&attrs, 1000), 0.1, 1e-12);
    attrs.total = 0;
    cr_assert_float_eq(optim_rate(&attrs, 1000), 1, 1e-12);
}

static void reference_squares(const kernel_check *c, int out, double *want)
{
    (void)out;
    want[1] = 0;
    for (int64_t i = 0; i < weir_shape_count(&c->in[0].shape); i++)
        want[0] += kernel_at(&c->in[0], i) * kernel_at(&c->in[0], i);
}

/* The norm that the two floats mean, of four gradients. */
static double norm_of(const float x[4])
{
    kernel_check c = kernel_check_new(&op_square_sum, NULL, SEED);
    memcpy(kernel_check_in(&c, WEIR_F32, SHAPE(4))->data, x, 4 * sizeof *x);
    kernel_check_run(&c);
    const double norm = sqrt(squares_of(c.out[0].data));
    kernel_check_free(&c);
    return norm;
}

Test(clip, norm_of_gradients_of_any_size_is_known, .timeout = 120)
{
    static const float sizes[] = {1e-18f, 1, 1e15f, 1.8e19f, 2e19f, 1e30f, 1.6e38f};
    for (int i = 0; i < 7; i++) {
        const float x[4] = {sizes[i], -sizes[i], sizes[i], sizes[i]};
        cr_expect(fabs(norm_of(x) / (2 * (double)sizes[i]) - 1) < 1e-6, "%g of %g", norm_of(x), (double)sizes[i]);
    }
    cr_expect(isnan(norm_of((float[4]){1, NAN, 2, 3})));
    cr_expect(isinf(norm_of((float[4]){1, 2, -INFINITY, 3})));
}

Test(clip, sum_of_squares_keeps_its_digits, .timeout = 120)
{
    kernel_check c = kernel_check_new(&op_square_sum, NULL, SEED);
    kernel_check_in(&c, WEIR_F32, SHAPE(1000, 301));
    run_all_ways(&c, 1e-4);
    kernel_check_near(&c, 0, reference_squares, 1e-7);
    kernel_check_free(&c);
}

static int32_t skipped; /* steps, by clip() */

static float clip(double max_norm, double squares)
{
    float scale = -1, sum[SQUARES];
    squares_put(squares, sum);
    weir_view in = {.data = sum, .dtype = WEIR_F32, .shape = SHAPE(SQUARES)}, out = {.data = &scale, .dtype = WEIR_F32};
    weir_view state = {.data = &skipped, .dtype = WEIR_I32};
    weir_kernel_args args = {.in = &in, .in_count = 1, .out = &out, .out_count = 1, .attrs = &max_norm,
                             .state = &state, .state_count = 1};
    cr_assert_eq(op_clip_scale.kernel[WEIR_CPU](&args), WEIR_OK);
    return scale;
}

Test(clip, scales_down_to_the_largest_norm_and_never_up, .timeout = 120)
{
    cr_assert_float_eq(clip(1, 4), 0.5, 1e-7);
    cr_assert_eq(clip(3, 4), 1);
    cr_assert_eq(clip(1, 0), 1);
    cr_assert_float_eq(clip(1, 1e60), 1e-30f, 1e-36f);
    cr_assert_eq(skipped, 0);
    cr_assert(isnan(clip(1, NAN)) && isnan(clip(1, INFINITY)));
    cr_assert_eq(skipped, 2);
    double below = -1;
    weir_type in = {WEIR_F32, SHAPE(SQUARES)};
    kernel_check_refuses(&op_clip_scale, &below, &in, 1, "must be 0 or more");
}

/* The factor of a part of the gradients, and their norm. */
static float clip_part_by(double max_norm, double squares, float base, float *norm)
{
    float factor = -1, sum[SQUARES];
    squares_put(squares, sum);
    const weir_view in[2] = {{.data = sum, .dtype = WEIR_F32, .shape = SHAPE(SQUARES)}, {.data = &base, .dtype = WEIR_F32}};
    const weir_view out[2] = {{.data = &factor, .dtype = WEIR_F32}, {.data = norm, .dtype = WEIR_F32}};
    weir_kernel_args args = {.in = in, .in_count = 2, .out = out, .out_count = 2, .attrs = &max_norm};
    cr_assert_eq(op_clip_norm.kernel[WEIR_CPU](&args), WEIR_OK);
    return factor;
}

Test(clip, a_part_has_its_own_norm, .timeout = 120)
{
    float norm = -1;
    cr_assert(clip_part_by(0, 4, 0.5f, &norm) == 0.5f && norm == 1);
    cr_assert(clip_part_by(3, 4, 0.5f, &norm) == 0.5f && norm == 1);
    cr_assert_float_eq(clip_part_by(0.25, 4, 0.5f, &norm), 0.125, 1e-7);
    cr_assert_float_eq(clip_part_by(1, 1e60, 1, &norm), 1e-30f, 1e-36f);
    cr_assert(isnan(clip_part_by(1, 4, NAN, &norm)) && isnan(norm), "a step that is left out");
}
