/* test_batchnorm.c: weir_batchnorm() in programs that train and in those that do not, in all layouts, held against the formulas in
 * double precision: the result, the gradients and the running statistics. */
#include "tests/support/gradient_check.h"
#include "tests/support/kernel_check.h"
#include "tests/support/run.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include <weir/weir.h>

TestSuite(batchnorm, .timeout = 120);

#define OK(call) cr_assert_eq((call), WEIR_OK, "%s", weir_error())
#define EPS 1e-3
#define MOMENTUM 0.3

enum { MOST = 512, CHANNELS_MOST = 8 };

/* ---- the formulas ---- */

typedef struct truth {
    double y[MOST], dx[MOST], dgain[CHANNELS_MOST], dbias[CHANNELS_MOST];
    double mean[CHANNELS_MOST], var[CHANNELS_MOST]; /* unbiased */
} truth;

/* Element i of channel c, of `each` to an image. */
static int64_t place(int64_t c, int64_t i, int64_t channels, int64_t each)
{
    return (i / each * channels + c) * each + i % each;
}

/* x [batch, channels, each], the gain 1 and the bias 0, as they begin; r is the gradient of the result. */
static void truth_of(const double *x, const double *r, int64_t batch, int64_t channels, int64_t each, truth *t)
{
    const int64_t n = batch * each;
    for (int64_t c = 0; c < channels; c++) {
        double sum = 0, squares = 0, dot = 0, all = 0;
        for (int64_t i = 0; i < n; i++)
            sum += x[place(c, i, channels, each)];
        const double mean = sum / (double)n;
        for (int64_t i = 0; i < n; i++)
            squares += pow(x[place(c, i, channels, each)] - mean, 2);
        const double rstd = 1 / sqrt(squares / (double)n + EPS);
        for (int64_t i = 0; i < n; i++) {
            const int64_t at = place(c, i, channels, each);
            t->y[at] = (x[at] - mean) * rstd;
            dot += r[at] * t->y[at];
            all += r[at];
        }
        for (int64_t i = 0; i < n; i++) {
            const int64_t at = place(c, i, channels, each);
            t->dx[at] = rstd * (r[at] - all / (double)n - t->y[at] * dot / (double)n);
        }
        t->dgain[c] = dot;
        t->dbias[c] = all;
        t->mean[c] = mean;
        t->var[c] = squares / (double)(n - 1);
    }
}

static void expect_near(const float *got, const double *want, int64_t count, double tolerance, const char *what, const char *where)
{
    for (int64_t i = 0; i < count; i++)
        cr_assert(kernel_near((double)got[i], want[i], tolerance), "%s: %s[%d] is %.9g, not %.9g", where, what, (int)i, (double)got[i],
                  want[i]);
}

/* ---- against them ---- */

typedef struct sample {
    weir_shape shape;
    const char *devices;
    weir_sbp sbp;
} sample;

static void read_to(weir_session *s, const char *name, weir_shape shape, float *to)
{
    weir_array array = {to, WEIR_F32, shape};
    OK(weir_session_read(s, name, &array));
}

/* x is a parameter, so that a step of SGD with the rate 1 shows its gradient. */
static weir_plan *plan_of(const sample *a)
{
    weir_graph *g = weir_graph_new("batchnorm");
    weir_mesh_new(g, a->devices);
    weir_param_opts x_opts = {.size = sizeof x_opts, .src = WEIR_HERE, .name = "x", .sbp = {a->sbp}, .init = WEIR_NORMAL(2)};
    weir_input_opts r_opts = {.size = sizeof r_opts, .src = WEIR_HERE, .name = "r", .sbp = {a->sbp}};
    memcpy(x_opts.shape, a->shape.dim, sizeof x_opts.shape);
    memcpy(r_opts.shape, a->shape.dim, sizeof r_opts.shape);
    weir_tensor *x = weir_param_at(g, WEIR_F32, &x_opts), *r = weir_input_at(g, WEIR_F32, &r_opts);
    weir_tensor *y = weir_batchnorm(x, .name = "bn", .eps = EPS, .momentum = MOMENTUM);
    weir_fetch(y, .name = "y");
    weir_train(weir_sum(weir_mul(y, r)), weir_sgd(.lr = 1));
    return run_compile(g, (weir_compile_opts){0});
}

static void follows(const sample *a, const char *where)
{
    static float x[MOST], r[MOST], y[MOST], after[MOST];
    static double x64[MOST], r64[MOST];
    float of_channel[4][CHANNELS_MOST];
    truth t;
    const int64_t count = weir_shape_count(&a->shape), channels = a->shape.dim[1];
    weir_array r_array = {r, WEIR_F32, a->shape}, y_array = {y, WEIR_F32, a->shape};
    cr_assert(count <= MOST && channels <= CHANNELS_MOST);
    weir_plan *plan = plan_of(a);
    weir_session *s = weir_session_open(plan);
    cr_assert_not_null(s, "%s", weir_error());
    read_to(s, "x", a->shape, x);
    for (int64_t i = 0; i < count; i++) {
        x64[i] = (double)x[i];
        r64[i] = (double)(r[i] = (float)run_input("r", WEIR_F32, 0, 0, i));
    }
    truth_of(x64, r64, a->shape.dim[0], channels, count / a->shape.dim[0] / channels, &t);
    OK(weir_session_push(s, "r", &r_array, 10000));
    OK(weir_session_run(s, 1));
    OK(weir_session_pull(s, "y", &y_array, 10000));
    expect_near(y, t.y, count, 2e-6, "y", where);
    read_to(s, "x", a->shape, after);
    for (int64_t i = 0; i < count; i++)
        after[i] = x[i] - after[i];
    expect_near(after, t.dx, count, 3e-6, "dx", where);
    const char *const names[] = {"bn/gain", "bn/bias", "bn/running_mean", "bn/running_var"};
    for (int k = 0; k < 4; k++)
        read_to(s, names[k], (weir_shape){1, {channels}}, of_channel[k]);
    for (int64_t c = 0; c < channels; c++) {
        t.dgain[c] = 1 - t.dgain[c];
        t.dbias[c] = -t.dbias[c];
        t.mean[c] *= MOMENTUM;
        t.var[c] = 1 - MOMENTUM + MOMENTUM * t.var[c];
    }
    const double *const want[] = {t.dgain, t.dbias, t.mean, t.var};
    for (int k = 0; k < 4; k++)
        expect_near(of_channel[k], want[k], channels, 3e-6, names[k], where);
    weir_session_close(s);
    weir_plan_free(plan);
}

Test(batchnorm, a_step_follows_the_formulas_in_every_layout)
{
    static const weir_shape shapes[] = {{2, {16, 5}}, {3, {7, 4, 9}}, {4, {5, 3, 4, 6}}, {5, {2, 8, 3, 2, 4}}};
    static const char *const devices[] = {"cpu:0", "cpu:0-1", "cpu:0-2"};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int d = 0; d < 3; d++)
            for (int dim = d ? 0 : 1; dim < 2; dim++) {
                char where[64];
                snprintf(where, sizeof where, "%d dimensions, %s, %s", shapes[i].rank, devices[d], !d ? "whole" : dim ? "S(1)" : "S(0)");
                follows(&(sample){shapes[i], devices[d], d ? WEIR_S(dim) : WEIR_B}, where);
            }
}

/* The formulas themselves, against decimal arithmetic of 30 digits. */
Test(batchnorm, the_formulas_give_written_numbers)
{
    const double x[8] = {1, 2, 3, 4, 5, 6, 7, 8.5}, r[8] = {1, 4, 9, 16, 25, 36, 49, 64};
    const double y[8] = {-1.3415066425, -1.2978233923, -0.4471688808, -0.4672164212, 0.4471688808, 0.3633905498, 1.3415066425, 1.4016492637};
    const double dx[8] = {1.7865295420, 1.3456825011, -1.7893908505, -1.4425624725, -1.7879601962, -0.9083795618, 1.7908215048, 1.0052595332};
    truth t;
    truth_of(x, r, 4, 2, 1, &t);
    for (int i = 0; i < 8; i++) {
        cr_expect_float_eq(t.y[i], y[i], 1e-9);
        cr_expect_float_eq(t.dx[i], dx[i], 1e-9);
    }
    cr_expect_float_eq(t.dgain[0], 71.547020936, 1e-8);
    cr_expect_float_eq(t.dgain[1], 90.120856362, 1e-8);
    cr_expect(t.dbias[0] == 84 && t.dbias[1] == 120 && t.mean[0] == 4 && t.mean[1] == 5.125);
    cr_expect_float_eq(t.var[0], 6.6666666667, 1e-9);
    cr_expect_float_eq(t.var[1], 7.7291666667, 1e-9);
}

static weir_tensor *image_net(weir_graph *g)
{
    weir_tensor *x = weir_param(g, WEIR_F32, {4, 3, 2, 3}, .name = "x");
    return weir_tanh(weir_batchnorm(x, .name = "bn"));
}

static weir_tensor *rows_net(weir_graph *g)
{
    weir_tensor *x = weir_param(g, WEIR_F32, {6, 4}, .name = "x");
    return weir_batchnorm(weir_tanh(weir_batchnorm(x)), .eps = 0.1);
}

Test(batchnorm, gradients_are_those_of_finite_differences)
{
    gradient_check(image_net, 1, 2e-3);
    gradient_check(rows_net, 2, 2e-3);
}

/* ---- over steps ---- */

/* `micro`: x exists once a micro-batch. */
static weir_graph *two_programs(const char *devices, bool micro)
{
    weir_graph *g = weir_graph_new("programs");
    weir_mesh_new(g, devices);
    weir_tensor *x = weir_input(g, WEIR_F32, {6, 3, 4}, .name = "x", .sbp = {WEIR_S(0)}, .micro = micro);
    weir_tensor *y = weir_batchnorm(x, .name = "bn", .momentum = MOMENTUM, .eps = EPS);
    weir_fetch(y, .name = "y");
    weir_train(weir_mean(weir_mul(y, weir_tanh(y))), weir_sgd(.lr = WEIR_ZERO));
    WEIR_PROGRAM(g, "eval") {
        x = weir_input(g, WEIR_F32, {6, 3, 4}, .name = "x", .sbp = {WEIR_S(0)});
        weir_fetch(weir_batchnorm(x, .name = "bn", .eps = EPS), .name = "y");
    }
    return g;
}

static void push_to(weir_session *s, const char *name, int64_t step, int micro, double *values)
{
    float x[72];
    for (int i = 0; i < 72; i++) {
        x[i] = (float)(2 + 3 * run_input("x", WEIR_F32, step, micro, i));
        values[i] = (double)x[i];
    }
    OK(weir_session_push(s, name, WEIR_ARRAY(x, WEIR_F32, 6, 3, 4), 10000));
}

static void expect_pulled(weir_session *s, const char *name, const double *want)
{
    float y[72];
    OK(weir_session_pull(s, name, WEIR_ARRAY(y, WEIR_F32, 6, 3, 4), 10000));
    expect_near(y, want, 72, 3e-6, name, "steps");
}

/* Three steps of so many micro-batches, then one of the other program. Every statistic of a step is the mean over its
 * micro-batches. */
static void runs(const char *devices, int micro)
{
    double running_mean[3] = {0}, running_var[3] = {1, 1, 1}, x[72], none[72] = {0};
    truth t;
    weir_plan *plan = run_compile(two_programs(devices, micro > 1), (weir_compile_opts){.micro_batches = micro});
    weir_session *s = weir_session_open(plan);
    cr_assert_not_null(s, "%s", weir_error());
    for (int step = 0; step < 3; step++) {
        double mean[3] = {0}, var[3] = {0};
        OK(weir_session_start(s, 1));
        for (int m = 0; m < micro; m++) {
            push_to(s, "x", step, m, x);
            truth_of(x, none, 6, 3, 4, &t);
            expect_pulled(s, "y", t.y);
            for (int c = 0; c < 3; c++) {
                mean[c] += t.mean[c] / micro;
                var[c] += t.var[c] / micro;
            }
        }
        OK(weir_session_wait(s, 10000));
        for (int c = 0; c < 3; c++) {
            running_mean[c] = (1 - MOMENTUM) * running_mean[c] + MOMENTUM * mean[c];
            running_var[c] = (1 - MOMENTUM) * running_var[c] + MOMENTUM * var[c];
        }
    }
    for (int twice = 0; twice < 2; twice++) { /* the second finds what the first has found */
        float got[3];
        push_to(s, "eval/x", 9, 0, x);
        OK(weir_session_run(s, 1, .program = "eval"));
        for (int i = 0; i < 72; i++)
            x[i] = (x[i] - running_mean[i / 4 % 3]) / sqrt(running_var[i / 4 % 3] + EPS);
        expect_pulled(s, "eval/y", x);
        read_to(s, "bn/running_mean", (weir_shape){1, {3}}, got);
        expect_near(got, running_mean, 3, 2e-6, "running_mean", devices);
        read_to(s, "bn/running_var", (weir_shape){1, {3}}, got);
        expect_near(got, running_var, 3, 2e-6, "running_var", devices);
    }
    weir_session_close(s);
    weir_plan_free(plan);
}

Test(batchnorm, another_program_uses_the_running_statistics_of_all_steps)
{
    runs("cpu:0", 1);
    runs("cpu:0-1", 1);
}

Test(batchnorm, each_micro_batch_counts_as_a_batch)
{
    runs("cpu:0", 3);
    runs("cpu:0-3", 2);
}

Test(batchnorm, a_checkpoint_has_two_parameters_and_two_states)
{
    static const char *const names[] = {"bn/bias", "bn/gain", "bn/running_mean", "bn/running_var"};
    weir_plan *plan = run_compile(two_programs("cpu:0", false), (weir_compile_opts){0});
    int found = 0;
    for (int i = 0; i < weir_plan_param_count(plan); i++) {
        weir_param_info info;
        OK(weir_plan_param(plan, i, &info));
        for (int k = 0; k < 4; k++)
            if (!strcmp(info.name, names[k])) {
                found++;
                cr_expect_eq(info.kind, k < 2 ? WEIR_PARAMETER : WEIR_STATE, "%s", names[k]);
                cr_expect(info.type.shape.rank == 1 && info.type.shape.dim[0] == 3, "%s", names[k]);
            }
    }
    cr_expect_eq(found, 4);
    weir_plan_free(plan);
}

/* ---- layouts and precisions ---- */

static weir_graph *small_net(const char *devices, bool micro)
{
    weir_graph *g = weir_graph_new("net");
    weir_mesh_new(g, devices);
    weir_tensor *x = weir_input(g, WEIR_F32, {8, 2, 6, 6}, .name = "x", .sbp = {WEIR_S(0)}, .micro = micro);
    for (int i = 0; i < 2; i++)
        WEIR_NAMED(g, "h%d", .index = i)
            x = weir_relu(weir_batchnorm(weir_conv(x, 4, {3, 3}, .pad = {1, 1}, .name = "conv", .no_bias = true), .name = "bn"));
    weir_tensor *loss = weir_mean(weir_mul(x, weir_tanh(x)));
    weir_train(loss, weir_sgd(.lr = 0.1));
    weir_fetch(loss, .name = "loss");
    return g;
}

static run run_net(const char *devices, weir_compile_opts opts, int workers)
{
    weir_plan *plan = run_compile(small_net(devices, opts.micro_batches > 1), opts);
    run r = run_plan(plan, 4, workers);
    weir_plan_free(plan);
    return r;
}

static void like_one(const char *devices, weir_compile_opts opts, int workers, double tolerance, const char *base)
{
    run want = run_net(base, (weir_compile_opts){.micro_batches = opts.micro_batches}, 1), got = run_net(devices, opts, workers);
    run_near(&got, &want, tolerance, devices);
    run_free(&want);
    run_free(&got);
}

Test(batchnorm, a_net_learns_the_same_on_any_devices)
{
    like_one("cpu:0-1", (weir_compile_opts){.micro_batches = 1}, 2, 1e-5, "cpu:0");
    like_one("cpu:0-3", (weir_compile_opts){.micro_batches = 1}, 2, 1e-5, "cpu:0");
    like_one("cpu:0-2", (weir_compile_opts){.micro_batches = 3}, 1, 1e-5, "cpu:0");
}

Test(batchnorm, workers_and_fusion_change_no_bit)
{
    like_one("cpu:0-3", (weir_compile_opts){.micro_batches = 2}, 3, 0, "cpu:0-3");
    like_one("cpu:0-1", (weir_compile_opts){.micro_batches = 1, .no_fusion = true}, 1, 0, "cpu:0-1");
}

Test(batchnorm, plans_are_proven_to_compute_it)
{
    for (int micro = 1; micro <= 2; micro++)
        for (int one = 0; one < 2; one++) {
            weir_graph *g = two_programs(one ? "cpu:0" : "cpu:0-1", micro > 1);
            weir_plan *plan = weir_compile(g, .micro_batches = micro);
            cr_assert_not_null(plan, "%s", weir_error());
            cr_expect_eq(weir_plan_verify(g, plan), WEIR_OK, "%s", weir_error());
            weir_plan_free(plan);
            weir_graph_free(g);
        }
}

Test(batchnorm, half_precision_is_near)
{
    like_one("cpu:0-1", (weir_compile_opts){.micro_batches = 1, .precision = WEIR_BF16}, 1, 0.05, "cpu:0");
}

Test(batchnorm, halves_stay_halves)
{
    weir_graph *g = weir_graph_new("halves");
    weir_tensor *x = weir_cast(weir_input(g, WEIR_F32, {4, 3}, .name = "x"), WEIR_F16);
    weir_tensor *y = weir_batchnorm(x, .name = "bn");
    cr_expect_eq(weir_tensor_type(y).dtype, WEIR_F16);
    cr_expect_str_eq(weir_tensor_name(y), "bn");
    cr_expect_null(weir_graph_mistake(g));
    weir_graph_free(g);
}

Test(batchnorm, frozen_gain_and_bias_do_not_train)
{
    weir_graph *g = weir_graph_new("frozen");
    weir_tensor *x = weir_linear(weir_input(g, WEIR_F32, {4, 3}, .name = "x"), 3, .name = "fc");
    weir_tensor *y = weir_batchnorm(x, .name = "bn", .frozen = true);
    weir_train(weir_mean(weir_mul(y, weir_tanh(y))), weir_sgd(.lr = 1));
    weir_plan *plan = run_compile(g, (weir_compile_opts){0});
    run r = run_plan(plan, 2, 1);
    for (int c = 0; c < 3; c++) {
        cr_expect_eq(run_find(&r, "bn/gain")->value[c], 1);
        cr_expect_eq(run_find(&r, "bn/bias")->value[c], 0);
        cr_expect_neq(run_find(&r, "bn/running_mean")->value[c], 0);
    }
    run_free(&r);
    weir_plan_free(plan);
}
