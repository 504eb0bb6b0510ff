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
    float scale, rate; /* 1: the kernel has no such input */
    bool moved;
} update_check;

/* Calls the op, or the one with moved states, which is given these as inputs and outputs. */
static void update_kernel(update_check *u, const weir_op *op, int64_t step)
{
    const weir_view vector = {.data = u->got, .dtype = WEIR_F32, .shape = SHAPE(PARAMS), .global = SHAPE(PARAMS)};
    const weir_clock clock = {.firing = step, .step = step};
    weir_view in[5] = {vector}, out[3] = {vector, vector, vector}, state[3] = {vector, vector, {.data = &u->updates, .dtype = WEIR_I32}};
    float before[2][PARAMS];
    weir_kernel_args args = {.in = in, .in_count = 1, .out = out, .out_count = 1, .attrs = &u->attrs, .step = step, .clock = &clock};
    weir_type types[4];
    const weir_type type = {WEIR_F32, SHAPE(PARAMS)};
    weir_type out_type = type;
    const int states = op->states(&(weir_op_args){op, &type, 1, &out_type, 1, &u->attrs}, types), large = states > 1 ? 2 : states;
    in[0].data = u->grad;
    if (u->scale != 1)
        in[args.in_count++] = (weir_view){.data = &u->scale, .dtype = WEIR_F32};
    if (u->rate != 1)
        in[args.in_count++] = (weir_view){.data = &u->rate, .dtype = WEIR_F32, .shape = SHAPE(1), .global = SHAPE(1)};
    memcpy(before, u->state, sizeof before);
    for (int s = 0; s < large; s++) {
        state[s].data = out[1 + s].data = u->state[s];
        if (u->moved) {
            in[args.in_count] = vector;
            in[args.in_count++].data = before[s];
            memset(u->state[s], 0xff, sizeof u->state[s]);
        }
    }
    args.out_count += u->moved ? large : 0;
    args.state = u->moved ? state + large : state;
    args.state_count = u->moved ? states - large : states;
    cr_assert_eq(kernel_check_kernel(u->moved && large ? optim_moved(op) : op)(&args), WEIR_OK);
}

static void update_begin(update_check *u, uint64_t *random)
{
    for (int i = 0; i < PARAMS; i++)
        u->p[i] = u->got[i] = (float)(kernel_random(random) - 0.5);
}

static void sgd_reference(update_check *u, bool ahead, double rate)
{
    for (int i = 0; i < PARAMS; i++) {
        double g = (double)u->scale * u->grad[i] + u->attrs.weight_decay * u->p[i];
        u->v[i] = u->attrs.momentum * u->v[i] + g;
        u->p[i] -= rate * (ahead ? g + u->attrs.momentum * u->v[i] : u->v[i]);
    }
}

/* Loshchilov and Hutter 2019, algorithm 2, line by line; and with the decay in the gradient. */
static void adamw_reference(update_check *u, bool l2, double rate, int64_t step)
{
    for (int i = 0; i < PARAMS; i++) {
        double g = (double)u->scale * u->grad[i] + (l2 ? u->attrs.weight_decay * u->p[i] : 0);
        u->m[i] = u->attrs.beta1 * u->m[i] + (1 - u->attrs.beta1) * g;
        u->v[i] = u->attrs.beta2 * u->v[i] + (1 - u->attrs.beta2) * g * g;
        double m = u->m[i] / (1 - pow(u->attrs.beta1, (double)step + 1));
        double v = u->v[i] / (1 - pow(u->attrs.beta2, (double)step + 1));
        u->p[i] -= rate * (m / (sqrt(v) + u->attrs.eps) + (l2 ? 0 : u->attrs.weight_decay * u->p[i]));
    }
}

static void adagrad_reference(update_check *u, double rate)
{
    for (int i = 0; i < PARAMS; i++) {
        double g = (double)u->scale * u->grad[i] + u->attrs.weight_decay * u->p[i];
        u->v[i] += g * g;
        u->p[i] -= rate * g / (sqrt(u->v[i]) + u->attrs.eps);
    }
}

/* Chen et al. 2023, algorithm 2. */
static void lion_reference(update_check *u, double rate)
{
    for (int i = 0; i < PARAMS; i++) {
        double g = (double)u->scale * u->grad[i], c = u->attrs.beta1 * u->m[i] + (1 - u->attrs.beta1) * g;
        u->p[i] -= rate * ((c > 0) - (c < 0) + u->attrs.weight_decay * u->p[i]);
        u->m[i] = u->attrs.beta2 * u->m[i] + (1 - u->attrs.beta2) * g;
    }
}

static void reference(update_check *u, const weir_op *op, int64_t step)
{
    const double rate = (double)u->rate * optim_rate(&u->attrs, step);
    if (op == &op_sgd || op == &op_nesterov)
        sgd_reference(u, op == &op_nesterov, rate);
    else if (op == &op_adagrad)
        adagrad_reference(u, rate);
    else if (op == &op_lion)
        lion_reference(u, rate);
    else
        adamw_reference(u, op == &op_adam, rate, step);
}

static void check_one(const weir_op *op, struct optim_attrs attrs, float scale, float rate, bool moved)
{
    uint64_t random = SEED;
    update_check u = {.attrs = attrs, .scale = scale, .rate = rate, .moved = moved};
    update_begin(&u, &random);
    for (int64_t step = 0; step < STEPS; step++) {
        for (int i = 0; i < PARAMS; i++)
            u.grad[i] = (float)(kernel_random(&random) - 0.5);
        update_kernel(&u, op, step);
        reference(&u, op, step);
        for (int i = 0; i < PARAMS; i++)
            cr_assert(kernel_near(u.got[i], u.p[i], 2e-6), "%s%s: step %ld: %g at %d, not %g", op->name, moved ? "_moved" : "",
                      (long)step, u.got[i], i, u.p[i]);
    }
}

static void check_update(const weir_op *op, struct optim_attrs attrs, float scale)
{
    for (int way = 0; way < 4; way++)
        check_one(op, attrs, scale, way & 1 ? 0.75f : 1, way & 2);
}

Test(optim, updates_follow_their_formulas, .timeout = 120)
{
    struct optim_attrs attrs = {.lr = 0.05, .momentum = 0.9, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-3};
    const weir_op *ops[] = {&op_nesterov, &op_adam, &op_adagrad, &op_lion};
    for (size_t o = 0; o < sizeof ops / sizeof *ops; o++) {
        attrs.weight_decay = 0;
        check_update(ops[o], attrs, 1);
        attrs.weight_decay = 0.1;
        check_update(ops[o], attrs, 0.25f);
    }
}

/* Neither the parameter nor a state changes; a state that is moved comes as it went. */
Test(optim, a_step_is_left_out_where_the_scale_or_the_rate_is_no_number, .timeout = 120)
{
    const weir_op *ops[] = {&op_sgd, &op_nesterov, &op_adamw, &op_adam, &op_adagrad, &op_lion};
    for (int way = 0; way < 4; way++)
        for (size_t o = 0; o < sizeof ops / sizeof *ops; o++) {
            update_check u = {.attrs = {.lr = 1, .momentum = 0.5}, .scale = way & 1 ? NAN : 1, .rate = way & 1 ? 1 : NAN, .moved = way & 2};
            for (int i = 0; i < PARAMS; i++)
                u.got[i] = u.grad[i] = u.state[0][i] = u.state[1][i] = (float)i;
            update_kernel(&u, ops[o], 3);
            for (int i = 0; i < PARAMS; i++)
                cr_assert(u.got[i] == (float)i && u.state[0][i] == (float)i && u.state[1][i] == (float)i, "%s, %d", ops[o]->name, way);
            cr_assert_eq(u.updates, 0);
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
    update_check u = {.attrs = {.lr = 0.5, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8}, .scale = 1, .rate = 1};
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

/* ---- the factor of the rate ---- */

static float scheduled(struct schedule_attrs attrs, int64_t step, const float *given)
{
    float rate = -1;
    const weir_clock clock = {.step = step};
    const weir_view in = {.data = (void *)given, .dtype = WEIR_F32}, out = {.data = &rate, .dtype = WEIR_F32, .shape = SHAPE(1)};
    weir_kernel_args args = {.in = &in, .in_count = given != NULL, .out = &out, .out_count = 1, .attrs = &attrs, .step = step, .clock = &clock};
    cr_assert_eq(kernel_check_kernel(&op_schedule)(&args), WEIR_OK);
    return rate;
}

Test(schedule, rises_stays_and_falls_along_a_line, .timeout = 120)
{
    const struct schedule_attrs attrs = {.least = 0.25, .warmup = 4, .hold = 8, .total = 12};
    const float want[] = {0.25f, 0.5f, 0.75f, 1, 1, 1, 1, 1, 1, 0.8125f, 0.625f, 0.4375f, 0.25f, 0.25f};
    for (int step = 0; step < 14; step++)
        cr_expect_eq(scheduled(attrs, step, NULL), want[step], "step %d", step);
    cr_expect_eq(scheduled((struct schedule_attrs){.total = 0}, 1000, NULL), 1);
    cr_expect_eq(scheduled(attrs, 10, &(float){2}), 1.25f);
    cr_expect(isnan(scheduled(attrs, 0, &(float){INFINITY})) && isnan(scheduled(attrs, 0, &(float){NAN})));
}

/* ---- averages ---- */

Test(ema, is_a_mean_first_and_then_forgets, .timeout = 120)
{
    struct ema_attrs attrs = {.decay = 0.75};
    float p[PARAMS], average[PARAMS];
    double want = 0;
    int32_t values = 0;
    const weir_view in = {.data = p, .dtype = WEIR_F32, .shape = SHAPE(PARAMS), .global = SHAPE(PARAMS)};
    weir_view out = in, state = {.data = &values, .dtype = WEIR_I32};
    out.data = average;
    memset(average, 0, sizeof average);
    weir_kernel_args args = {.in = &in, .in_count = 1, .out = &out, .out_count = 1, .state = &state, .state_count = 1, .attrs = &attrs};
    for (int n = 0; n < 10; n++) {
        for (int i = 0; i < PARAMS; i++)
            p[i] = (float)(n * n + 1);
        cr_assert_eq(kernel_check_kernel(&op_ema)(&args), WEIR_OK);
        want += fmax(0.25, 1 / (n + 1.0)) * (n * n + 1 - want);
        cr_expect_eq(values, n + 1);
        for (int i = 0; i < PARAMS; i++)
            cr_assert_float_eq(average[i], (float)want, 1e-4f);
    }
}

/* ---- lamb ---- */

Test(lamb, moves_by_the_norm_of_the_parameter, .timeout = 120)
{
    float p[PARAMS], u[PARAMS], squares[2][SQUARES], rate = 0.5f;
    double want = 0, length = 0;
    struct optim_attrs attrs = {.lr = 0.1};
    const weir_view all = {.data = p, .dtype = WEIR_F32, .shape = SHAPE(PARAMS), .global = SHAPE(PARAMS)};
    const weir_view pair = {.dtype = WEIR_F32, .shape = SHAPE(SQUARES), .global = SHAPE(SQUARES)};
    weir_view in[4] = {all, pair, pair, {.data = &rate, .dtype = WEIR_F32, .shape = SHAPE(1), .global = SHAPE(1)}};
    const weir_clock clock = {.step = 0};
    weir_kernel_args args = {.in = in, .in_count = 4, .out = &all, .out_count = 1, .attrs = &attrs, .clock = &clock};
    in[0].data = u, in[1].data = squares[0], in[2].data = squares[1];
    for (int i = 0; i < PARAMS; i++) {
        p[i] = (float)i;
        u[i] = 2;
        want += 4, length += (double)i * i;
    }
    squares_put(want, squares[0]);
    squares_put(length, squares[1]);
    cr_assert_eq(kernel_check_kernel(&op_lamb_apply)(&args), WEIR_OK);
    for (int i = 0; i < PARAMS; i++)
        cr_assert_float_eq(p[i], (float)(i - 0.05 * sqrt(length / want) * 2), 1e-5f);
    squares_put(NAN, squares[0]);
    const float before = p[0];
    cr_assert_eq(kernel_check_kernel(&op_lamb_apply)(&args), WEIR_OK);
    cr_assert_eq(p[0], before, "a step that is left out");
}

Test(lamb, takes_its_direction_from_moments_and_the_parameter, .timeout = 120)
{
    struct optim_attrs attrs = {.lr = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-3, .weight_decay = 0.1};
    kernel_check c = kernel_check_new(&op_lamb, &attrs, SEED);
    kernel_check_in(&c, WEIR_F32, SHAPE(5, 7));
    kernel_check_in(&c, WEIR_F32, SHAPE(5, 7));
    run_all_ways(&c, 1e-5);
    cr_expect_eq(*(int32_t *)c.state[2].data, 1);
    for (int i = 0; i < 35; i++) {
        const double g = kernel_at(&c.in[0], i), want = g / (fabs(g) + attrs.eps) + attrs.weight_decay * kernel_at(&c.in[1], i);
        cr_expect(kernel_near(kernel_at(&c.out[0], i), want, 1e-5), "%d", i);
    }
    kernel_check_free(&c);
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
    cr_assert_eq(kernel_check_kernel(&op_clip_norm)(&args), WEIR_OK);
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
