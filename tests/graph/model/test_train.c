/* test_train.c: weir_train() against the formulas, in double, on a model small enough to write them down:
 *
 *     y = x w + b        loss = mean((y - t)^2)        dw = 2 / (rows columns) x^T (y - t)        db likewise
 *
 * averaged over the micro-batches of a step. The reference starts from the initial values that weir documents and
 * follows the optimizers as <weir/train.h> states them; parameters and losses must agree, on one device and on several,
 * whether what belongs to the optimizer is split or not.
 */
#include "graph/base/base.h"
#include "graph/plan/form/plan.h"
#include "tests/support/run.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 6, IN = 5, OUT = 3, MICRO = 3, STEPS = 12, SEED = 77, WEIGHTS = IN * OUT + OUT };

typedef struct spread { /* where it is trained */
    const char *devices;
    int shape[WEIR_AXES_MAX];
    bool zero;
    weir_sbp weight[WEIR_AXES_MAX], rows[WEIR_AXES_MAX];
} spread;

static const spread one_device = {.devices = "cpu:0"};

/* ---- the reference ---- */

typedef struct reference {
    double p[WEIGHTS]; /* w, then b */
    double g[WEIGHTS], m[WEIGHTS], v[WEIGHTS];
    double loss[STEPS * MICRO];
} reference;

/* Adds the gradient of one micro-batch, over MICRO, to r->g and returns the loss. */
static double reference_gradient(reference *r, int step, int micro)
{
    double loss = 0;
    for (int i = 0; i < ROWS; i++)
        for (int o = 0; o < OUT; o++) {
            double y = r->p[IN * OUT + o], scale = 2.0 / (ROWS * OUT * MICRO);
            for (int k = 0; k < IN; k++)
                y += (float)run_input("x", WEIR_F32, step, micro, i * IN + k) * r->p[k * OUT + o];
            double off = y - (float)run_input("t", WEIR_F32, step, micro, i * OUT + o);
            loss += off * off / (ROWS * OUT);
            r->g[IN * OUT + o] += scale * off;
            for (int k = 0; k < IN; k++)
                r->g[k * OUT + o] += scale * off * (float)run_input("x", WEIR_F32, step, micro, i * IN + k);
        }
    return loss;
}

/* An option as its header states it. */
static double given(double option, double fallback)
{
    return option ? option : signbit(option) ? 0 : fallback;
}

static double reference_rate(const weir_optimizer *o, int step)
{
    double lr = given(o->lr, o->kind == WEIR_SGD ? 0.01 : 0.001);
    if (step < o->warmup)
        return lr * (step + 1) / (double)o->warmup;
    if (!o->total)
        return lr;
    double done = step < o->total ? (double)(step - o->warmup) / (double)(o->total - o->warmup) : 1;
    return o->lr_min + (lr - o->lr_min) * (1 + cos(3.14159265358979323846 * done)) / 2;
}

static double reference_clip(const weir_optimizer *o, const reference *r)
{
    double squares = 0;
    for (int i = 0; i < WEIGHTS; i++)
        squares += r->g[i] * r->g[i];
    return o->clip_norm && sqrt(squares) > o->clip_norm ? o->clip_norm / sqrt(squares) : 1;
}

static void reference_update(const weir_optimizer *o, reference *r, int step)
{
    double lr = reference_rate(o, step), clip = reference_clip(o, r);
    double beta1 = given(o->beta1, 0.9), beta2 = given(o->beta2, 0.999), eps = given(o->eps, 1e-8);
    for (int i = 0; i < WEIGHTS; i++) {
        double g = clip * r->g[i], decay = i < IN * OUT ? o->weight_decay : 0; /* not of the bias */
        if (o->kind == WEIR_SGD) {
            r->m[i] = o->momentum * r->m[i] + g + decay * r->p[i];
            r->p[i] -= lr * r->m[i];
            continue;
        }
        r->m[i] = beta1 * r->m[i] + (1 - beta1) * g;
        r->v[i] = beta2 * r->v[i] + (1 - beta2) * g * g;
        r->p[i] -= lr * decay * r->p[i];
        r->p[i] -= lr * r->m[i] / (1 - pow(beta1, step + 1)) / (sqrt(r->v[i] / (1 - pow(beta2, step + 1))) + eps);
    }
}

static reference reference_run(const weir_optimizer *o)
{
    reference r = {.loss = {0}};
    for (int i = 0; i < IN * OUT; i++)
        r.p[i] = 0.5 * weir_random_normal(name_key(SEED, "w"), (uint64_t)i);
    for (int i = 0; i < OUT; i++)
        r.p[IN * OUT + i] = -1 + 2 * weir_random_uniform(name_key(SEED, "b"), (uint64_t)i);
    for (int step = 0; step < STEPS; step++) {
        memset(r.g, 0, sizeof r.g);
        for (int micro = 0; micro < MICRO; micro++)
            r.loss[step * MICRO + micro] = reference_gradient(&r, step, micro);
        reference_update(o, &r, step);
    }
    return r;
}

/* ---- weir ---- */

static weir_graph *regression(const weir_optimizer *o, const spread *s)
{
    weir_graph *g = weir_graph_new("regression");
    weir_mesh_new(g, s->devices, .shape = {s->shape[0], s->shape[1], s->shape[2]});
    weir_tensor *x = weir_input(g, WEIR_F32, {ROWS, IN}, .name = "x", .micro = true,
                                .sbp = {s->rows[0], s->rows[1]});
    weir_tensor *t = weir_input(g, WEIR_F32, {ROWS, OUT}, .name = "t", .micro = true);
    weir_tensor *w = weir_param(g, WEIR_F32, {IN, OUT}, .name = "w", .init = WEIR_NORMAL(0.5),
                                .sbp = {s->weight[0], s->weight[1]});
    weir_tensor *b = weir_param(g, WEIR_F32, {OUT}, .name = "b", .init = WEIR_UNIFORM(-1, 1));
    weir_tensor *off = weir_sub(weir_add(weir_matmul(x, w), b), t);
    weir_tensor *loss = weir_mean(weir_mul(off, off), .name = "loss");
    weir_train(loss, *o, .zero = {s->zero});
    weir_fetch(loss, .name = "loss");
    cr_assert_null(weir_graph_mistake(g), "%s", weir_graph_mistake(g));
    return g;
}

static weir_plan *regression_plan(const weir_optimizer *o, const spread *s)
{
    weir_graph *g = regression(o, s);
    weir_plan *plan = weir_compile(g, .micro_batches = MICRO, .seed = SEED);
    cr_assert_not_null(plan, "%s", weir_error());
    weir_graph_free(g);
    return plan;
}

static run train(const weir_optimizer *o, const spread *s)
{
    weir_plan *plan = regression_plan(o, s);
    run r = run_plan(plan, STEPS, 2);
    weir_plan_free(plan);
    return r;
}

static void expect_values(const run *r, const char *name, const double *want, int count)
{
    const run_entry *e = run_find(r, name);
    cr_assert(e && e->count == count, "%s", name);
    for (int i = 0; i < count; i++)
        cr_assert_float_eq(e->value[i], want[i], 2e-5 * (1 + fabs(want[i])), "%s[%d] is %.8g, not %.8g", name, i,
                           e->value[i], want[i]);
}

static void expect_reference(const weir_optimizer *o, const spread *s)
{
    reference want = reference_run(o);
    run got = train(o, s);
    expect_values(&got, "loss", want.loss, STEPS * MICRO);
    expect_values(&got, "w", want.p, IN * OUT);
    expect_values(&got, "b", want.p + IN * OUT, OUT);
    run_free(&got);
}

static void expect_reference_everywhere(weir_optimizer o)
{
    static const spread places[] = {
        {.devices = "cpu:0"},
        {.devices = "cpu:0-1", .rows = {S(0)}},
        {.devices = "cpu:0-2", .rows = {S(0)}, .zero = true},
        {.devices = "cpu:0-1", .weight = {S(1)}},
        {.devices = "cpu:0-3", .shape = {2, 2}, .rows = {S(0)}, .weight = {B, S(0)}, .zero = true},
        {.devices = "cpu:0-5", .zero = true}, /* more than b has elements, and than w has rows */
    };
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        expect_reference(&o, &places[i]);
}

TestSuite(train, .timeout = 120);

Test(train, sgd_follows_its_formula)
{
    expect_reference_everywhere(weir_sgd(.lr = 0.1));
    expect_reference(&weir_sgd(), &one_device);
}

Test(train, momentum_and_decay_of_sgd_follow_their_formula)
{
    expect_reference_everywhere(weir_sgd(.lr = 0.05, .momentum = 0.9, .weight_decay = 0.1));
}

Test(train, adamw_follows_its_formula)
{
    expect_reference_everywhere(weir_adamw(.lr = 0.02, .weight_decay = 0.2));
    expect_reference(&weir_adamw(), &one_device);
    expect_reference(&weir_adamw(.lr = 0.1, .beta1 = 0.5, .beta2 = 0.9, .eps = 0.1), &one_device);
}

Test(train, clipping_takes_the_norm_of_all_gradients)
{
    expect_reference_everywhere(weir_sgd(.lr = 0.3, .clip_norm = 0.4));
    expect_reference(&weir_sgd(.lr = 0.1, .clip_norm = 1e6), &one_device);
}

Test(train, the_rate_rises_and_falls)
{
    expect_reference_everywhere(weir_sgd(.lr = 0.2, .warmup = 4, .total = 10, .lr_min = 0.05));
    expect_reference(&weir_sgd(.lr = 0.2, .warmup = 5), &one_device);
    expect_reference(&weir_adamw(.lr = 0.05, .total = 8), &one_device);
}

/* ---- zeros ---- */

static void expect_still(weir_optimizer o)
{
    weir_plan *plan = regression_plan(&o, &one_device);
    run before = run_plan(plan, 1, 1), after = run_plan(plan, STEPS, 1);
    for (int p = 0; p < 2; p++) {
        const run_entry *a = run_find(&before, p ? "b" : "w"), *b = run_find(&after, p ? "b" : "w");
        cr_assert(a && b);
        cr_expect_arr_eq(a->value, b->value, (size_t)a->count * sizeof *a->value);
    }
    run_free(&before);
    run_free(&after);
    weir_plan_free(plan);
}

Test(train, a_rate_of_zero_changes_no_parameter)
{
    expect_still(weir_sgd(.lr = WEIR_ZERO, .momentum = 0.9, .weight_decay = 0.1));
    expect_still(weir_adamw(.lr = WEIR_ZERO, .weight_decay = 0.1));
}

Test(train, options_can_be_zero)
{
    expect_reference(&weir_adamw(.lr = 0.02, .beta1 = WEIR_ZERO), &one_device);
    expect_reference(&weir_adamw(.lr = 0.02, .beta2 = WEIR_ZERO, .eps = 0.1), &one_device);
    expect_reference(&weir_adamw(.lr = 0.02, .eps = WEIR_ZERO), &one_device);
    expect_reference(&weir_sgd(.lr = WEIR_ZERO, .total = 8, .lr_min = 0.05), &one_device);
}

/* The parameter's first values, all of it. */
static double largest(const run *r, const char *name)
{
    const run_entry *e = run_find(r, name);
    double most = 0;
    cr_assert_not_null(e, "%s", name);
    for (int64_t i = 0; i < e->count; i++)
        most = fabs(e->value[i]) > most ? fabs(e->value[i]) : most;
    return most;
}

Test(train, layers_can_start_with_zeros)
{
    weir_graph *g = weir_graph_new("zeros");
    weir_tensor *ids = weir_input(g, WEIR_I32, {4}, .name = "ids");
    weir_tensor *x = weir_embedding(ids, RUN_CLASSES, 3, .name = "table", .init = WEIR_VALUE(0));
    weir_tensor *y = weir_add(weir_linear(x, 2, .name = "zero", .init = {.kind = WEIR_INIT_ZERO}),
                              weir_linear(x, 2, .name = "default", .init = {.kind = WEIR_INIT_DEFAULT}));
    weir_tensor *z = weir_param(g, WEIR_F32, {4, 2}, .name = "z", .init = {.kind = WEIR_INIT_ZERO});
    weir_fetch(weir_add(weir_add(y, weir_linear(x, 2, .name = "left out")), z), .name = "y");
    weir_plan *plan = weir_compile(g);
    cr_assert_not_null(plan, "%s", weir_error());
    run r = run_plan(plan, 1, 1);
    cr_expect_eq(largest(&r, "table/weight"), 0);
    cr_expect_eq(largest(&r, "zero/weight"), 0);
    cr_expect_eq(largest(&r, "z"), 0);
    cr_expect_gt(largest(&r, "default/weight"), 0.1);
    cr_expect_gt(largest(&r, "left out/weight"), 0.1);
    run_free(&r);
    weir_plan_free(plan);
    weir_graph_free(g);
}

Test(train, options_of_ops_can_be_zero)
{
    weir_graph *g = weir_graph_new("zeros");
    weir_tensor *x = weir_input(g, WEIR_F32, {1, 2, 2}, .name = "x"), *small = weir_affine(x, 1e-4);
    weir_fetch(weir_rmsnorm(small, .eps = WEIR_ZERO), .name = "norm");
    weir_fetch(weir_attention(x, x, x, .scale = WEIR_ZERO), .name = "mean");
    weir_plan *plan = weir_compile(g);
    cr_assert_not_null(plan, "%s", weir_error());
    run r = run_plan(plan, 1, 1);
    for (int i = 0; i < 4; i++) {
        double a = run_input("x", WEIR_F32, 0, 0, i / 2 * 2), b = run_input("x", WEIR_F32, 0, 0, i / 2 * 2 + 1);
        double own = run_input("x", WEIR_F32, 0, 0, i), other = run_input("x", WEIR_F32, 0, 0, (i + 2) % 4);
        cr_expect_float_eq(run_find(&r, "norm")->value[i], own / sqrt((a * a + b * b) / 2), 1e-5);
        cr_expect_float_eq(run_find(&r, "mean")->value[i], (own + other) / 2, 1e-5);
    }
    run_free(&r);
    weir_plan_free(plan);
    weir_graph_free(g);
}

Test(train, an_epsilon_below_zero_is_a_mistake)
{
    weir_graph *g = weir_graph_new("negative");
    weir_layernorm(weir_input(g, WEIR_F32, {2, 2}, .name = "x"), .eps = -1);
    cr_assert_not_null(weir_graph_mistake(g));
    cr_expect(strstr(weir_graph_mistake(g), "layernorm: .eps is -1"), "%s", weir_graph_mistake(g));
    weir_graph_free(g);
}

/* ---- the norm over many meshes ---- */

/* One number on each of so many devices, whose gradient is 1: more meshes than an op has inputs. */
Test(train, the_norm_is_that_of_all_meshes, .timeout = 60)
{
    enum { MESHES = WEIR_ARGS_MAX + 30, HALF = MESHES / 2 };
    weir_graph *g = weir_graph_new("many");
    weir_mesh *first = weir_mesh_new(g, "cpu:0");
    weir_tensor *p[MESHES], *half[2] = {NULL};
    for (int i = 0; i < MESHES; i++) {
        char device[16], name[16];
        snprintf(device, sizeof device, "cpu:%d", i);
        snprintf(name, sizeof name, "p%d", i);
        p[i] = weir_param(g, WEIR_F32, {}, .name = name, .mesh = weir_mesh_new(g, device), .init = WEIR_VALUE(3));
    }
    WEIR_ON(first)
        for (int h = 0; h < 2; h++)
            half[h] = weir_add_many_at(p + h * HALF, HALF, WEIR_OPTS(weir_op_opts));
    weir_train(weir_add(half[0], half[1]), weir_sgd(.lr = 1, .clip_norm = 1));
    weir_plan *plan = weir_compile(g);
    cr_assert_not_null(plan, "%s", weir_error());
    weir_session *s = weir_session_open(plan, .workers = 1, .stall_s = -1);
    cr_assert_not_null(s, "%s", weir_error());
    cr_assert_eq(weir_session_run(s, 1), WEIR_OK, "%s", weir_error());
    for (int i = 0; i < MESHES; i += MESHES - 1) {
        char name[16];
        float value = 0;
        snprintf(name, sizeof name, "p%d", i);
        cr_assert_eq(weir_session_read(s, name, &(weir_array){&value, WEIR_F32, {.rank = 0}}), WEIR_OK);
        cr_expect_float_eq(value, 3 - 1 / sqrt(MESHES), 1e-6, "%s is %.8g", name, value);
    }
    weir_session_close(s);
    weir_plan_free(plan);
    weir_graph_free(g);
}

/* ---- splitting what belongs to the optimizer ---- */

static void expect_zero_changes_nothing(weir_optimizer o, double tolerance)
{
    spread s = {.devices = "cpu:0-3", .shape = {2, 2}, .rows = {S(0)}};
    run none = train(&o, &s);
    s.zero = true;
    run zero = train(&o, &s);
    run_near(&zero, &none, tolerance, "zero");
    run_free(&none);
    run_free(&zero);
}

Test(train, splitting_the_optimizer_changes_no_bit_but_in_the_order_of_the_norm)
{
    expect_zero_changes_nothing(weir_adamw(.lr = 0.02, .weight_decay = 0.1), 0);
    expect_zero_changes_nothing(weir_sgd(.lr = 0.02, .momentum = 0.5), 0);
    expect_zero_changes_nothing(weir_adamw(.lr = 0.02, .clip_norm = 0.5), 1e-6);
}

/* One parameter large enough for its size to show. */
static uint64_t state_of(bool zero)
{
    weir_graph *g = weir_graph_new("large");
    weir_mesh_new(g, "cpu:0-3");
    weir_tensor *x = weir_input(g, WEIR_F32, {8, 64}, .name = "x", .sbp = {S(0)});
    weir_tensor *loss = weir_mean(weir_linear(x, 64, .name = "layer", .no_bias = true));
    weir_train(loss, weir_adamw(), .zero = {zero});
    weir_plan *plan = weir_compile(g);
    cr_assert_not_null(plan, "%s", weir_error());
    uint64_t bytes = 0;
    for (uint32_t t = 0; t < plan->tensors_count; t++)
        bytes += plan->tensors[t].home == PLAN_IN_STATE && plan->tensors[t].rank ? plan_tensor_bytes(&plan->tensors[t]) : 0;
    weir_plan_free(plan);
    weir_graph_free(g);
    return bytes;
}

Test(train, splitting_the_optimizer_splits_its_state)
{
    cr_expect_eq(state_of(false), 4 * 2 * 64 * 64 * sizeof(float));
    cr_expect_eq(state_of(true), 2 * 64 * 64 * sizeof(float));
}

/* ---- reading and writing parameters ---- */

static weir_array array_of(float *data, int rows, int columns)
{
    weir_array a = {data, WEIR_F32, {.rank = columns ? 2 : 1, .dim = {rows, columns}}};
    return a;
}

static void write_and_read(const spread *s)
{
    weir_optimizer o = weir_sgd();
    weir_plan *plan = regression_plan(&o, s);
    weir_session *session = weir_session_open(plan);
    cr_assert_not_null(session, "%s", weir_error());
    float w[IN * OUT], back[IN * OUT] = {0}, b[OUT] = {7, 8, 9};
    for (int i = 0; i < IN * OUT; i++)
        w[i] = (float)(i * i) - 3;
    weir_array of_w = array_of(w, IN, OUT), of_back = array_of(back, IN, OUT), of_b = array_of(b, OUT, 0);
    cr_assert_eq(weir_session_read(session, "w", &of_back), WEIR_OK, "%s", weir_error());
    for (int i = 0; i < IN * OUT; i++)
        cr_assert_float_eq(back[i], 0.5f * weir_random_normal(name_key(SEED, "w"), (uint64_t)i), 1e-6f);
    cr_assert_eq(weir_session_write(session, "w", &of_w), WEIR_OK, "%s", weir_error());
    cr_assert_eq(weir_session_write(session, "b", &of_b), WEIR_OK, "%s", weir_error());
    cr_assert_eq(weir_session_read(session, "w", &of_back), WEIR_OK, "%s", weir_error());
    cr_expect_arr_eq(back, w, sizeof w);
    cr_assert_eq(weir_session_close(session), WEIR_OK);
    weir_plan_free(plan);
}

Test(train, parameters_are_read_and_written_whole_however_they_lie)
{
    write_and_read(&one_device);
    write_and_read(&(spread){.devices = "cpu:0-2", .weight = {S(0)}});
    write_and_read(&(spread){.devices = "cpu:0-2", .weight = {B}, .zero = true});
    write_and_read(&(spread){.devices = "cpu:0-5", .shape = {3, 2}, .weight = {S(1), S(0)}});
    write_and_read(&(spread){.devices = "cpu:0-5", .shape = {2, 3}, .weight = {S(0), S(0)}, .zero = true});
}

/* The moments that AdamW keeps are read by name, whole, on every layout; and which model it is does not depend on
 * it. */
static uint64_t expect_moments(const weir_optimizer *o, const spread *s)
{
    weir_plan *plan = regression_plan(o, s);
    reference want = reference_run(o);
    weir_param_info info = {0};
    cr_assert_eq(weir_plan_param_count(plan), 8);
    for (int i = 0; i < 8 && strcmp(info.name ? info.name : "", "w:adamw.m"); i++)
        weir_plan_param(plan, i, &info);
    cr_expect_str_eq(info.name, "w:adamw.m");
    cr_expect(info.kind == WEIR_OPTIMIZER_STATE && !info.frozen);
    run got = run_plan(plan, STEPS, 2);
    expect_values(&got, "w:adamw.m", want.m, IN * OUT);
    expect_values(&got, "w:adamw.v", want.v, IN * OUT);
    expect_values(&got, "w:adamw.updates", &(double){STEPS}, 1);
    expect_values(&got, "b:adamw.updates", &(double){STEPS}, 1);
    run_free(&got);
    uint64_t graph = plan->graph;
    weir_plan_free(plan);
    return graph;
}

Test(train, what_the_optimizer_keeps_has_names)
{
    weir_optimizer o = weir_adamw(.lr = 0.02);
    uint64_t graph = expect_moments(&o, &one_device);
    cr_expect_eq(expect_moments(&o, &(spread){.devices = "cpu:0-2", .weight = {B}, .zero = true}), graph);
    cr_expect_eq(expect_moments(&o, &(spread){.devices = "cpu:0-5", .shape = {3, 2}, .weight = {S(1), S(0)}}), graph);
}

/* Loss of the step after all parameters have been set to `value`. */
static double loss_after(const spread *s, float value)
{
    weir_optimizer o = weir_sgd();
    weir_plan *plan = regression_plan(&o, s);
    weir_session *session = weir_session_open(plan);
    cr_assert_not_null(session, "%s", weir_error());
    float w[IN * OUT], x[ROWS * IN], t[ROWS * OUT], loss = 0;
    for (int i = 0; i < IN * OUT; i++)
        w[i] = value;
    for (int i = 0; i < ROWS * IN; i++)
        x[i] = 1;
    for (int i = 0; i < ROWS * OUT; i++)
        t[i] = 0;
    weir_array of_w = array_of(w, IN, OUT), of_b = array_of(w, OUT, 0), of_x = array_of(x, ROWS, IN),
               of_t = array_of(t, ROWS, OUT), of_loss = {&loss, WEIR_F32, {.rank = 0}};
    cr_assert_eq(weir_session_write(session, "w", &of_w), WEIR_OK, "%s", weir_error());
    cr_assert_eq(weir_session_write(session, "b", &of_b), WEIR_OK, "%s", weir_error());
    cr_assert_eq(weir_session_start(session, 1), WEIR_OK, "%s", weir_error());
    for (int micro = 0; micro < MICRO; micro++) {
        cr_assert_eq(weir_session_push(session, "x", &of_x, 5000), WEIR_OK, "%s", weir_error());
        cr_assert_eq(weir_session_push(session, "t", &of_t, 5000), WEIR_OK, "%s", weir_error());
        cr_assert_eq(weir_session_pull(session, "loss", &of_loss, 5000), WEIR_OK, "%s", weir_error());
    }
    cr_assert_eq(weir_session_wait(session, 5000), WEIR_OK, "%s", weir_error());
    weir_session_close(session);
    weir_plan_free(plan);
    return loss;
}

Test(train, what_is_written_is_used_on_every_device)
{
    static const spread places[] = {{.devices = "cpu:0"},
                                    {.devices = "cpu:0-2", .rows = {S(0)}, .zero = true},
                                    {.devices = "cpu:0-3", .shape = {2, 2}, .rows = {S(0)}, .weight = {B, S(1)}}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        cr_expect_float_eq(loss_after(&places[i], 0.5f), (IN + 1) * (IN + 1) / 4.0, 1e-5);
}

/* ---- a parameter that many read ---- */

enum { USES = 64, SIDE = 64 };

/* Bytes of the plan of a chain of products with one weight. */
static uint64_t chain_bytes(int uses)
{
    weir_graph *g = weir_graph_new("chain");
    weir_tensor *w = weir_param(g, WEIR_F32, {SIDE, SIDE}, .name = "w");
    weir_tensor *x = weir_input(g, WEIR_F32, {1, SIDE}, .name = "x");
    for (int i = 0; i < uses; i++)
        x = weir_tanh(weir_matmul(x, w));
    weir_train(weir_mean(x), weir_sgd(.lr = 0.1));
    weir_plan *plan = weir_compile(g);
    cr_assert_not_null(plan, "%s", weir_error());
    uint64_t bytes = plan->spaces[0].bytes;
    weir_plan_free(plan);
    weir_graph_free(g);
    return bytes;
}

Test(train, gradients_of_a_weight_are_added_as_they_come)
{
    const uint64_t weight = SIDE * SIDE * sizeof(float);
    cr_expect_lt(chain_bytes(USES), 8 * weight, "%.1f weights", (double)chain_bytes(USES) / (double)weight);
    cr_expect_lt(chain_bytes(2 * USES), chain_bytes(USES) + 2 * weight);
}

static weir_status draw_ones(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    (void)ctx, (void)step, (void)micro;
    for (int64_t i = 0; i < weir_shape_count(&dst->shape); i++)
        ((float *)dst->data)[i] = 1;
    return WEIR_OK;
}

Test(train, sum_of_any_number_of_gradients_is_whole)
{
    for (int uses = 1; uses < 24; uses++) {
        weir_graph *g = weir_graph_new("uses");
        weir_tensor *p = weir_param(g, WEIR_F32, {4}, .name = "p", .init = WEIR_VALUE(0)), *loss = NULL;
        weir_tensor *x = weir_input(g, WEIR_F32, {4}, .name = "x", .source = draw_ones);
        for (int i = 0; i < uses; i++) {
            weir_tensor *term = weir_sum(weir_mul(p, weir_affine(x, i + 1)));
            loss = loss ? weir_add(loss, term) : term;
        }
        weir_train(loss, weir_sgd(.lr = 1));
        weir_plan *plan = weir_compile(g);
        cr_assert_not_null(plan, "%s", weir_error());
        weir_session *s = weir_session_open(plan, .workers = 1);
        float got[4];
        cr_assert_eq(weir_session_run(s, 1), WEIR_OK, "%s", weir_error());
        cr_assert_eq(weir_session_read(s, "p", WEIR_ARRAY(got, WEIR_F32, 4)), WEIR_OK);
        cr_expect_eq(got[0], -(float)(uses * (uses + 1) / 2), "%d uses: %g", uses, (double)got[0]);
        weir_session_close(s);
        weir_plan_free(plan);
        weir_graph_free(g);
    }
}
