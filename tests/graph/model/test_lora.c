/* test_lora.c: weir_lora() beside a layer that does not train: two steps of SGD against the formulas in double, in all layouts; its names,
 * and the bytes that a frozen base does not cost. */
#include "tests/support/gradient_check.h"
#include "tests/support/kernel_check.h"
#include "tests/support/ranks.h"
#include "tests/support/run.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <weir/weir.h>

TestSuite(lora, .timeout = 120);

enum { BATCH = 4, SEQ = 3, ROWS = BATCH * SEQ, IN = 6, OUT = 10, RANK = 2, STEPS = 2 };
static const double alpha = 5, rate = 0.25;

typedef struct layout {
    const char *devices, *name;
    int axes[2];
    weir_sbp rows, columns, in, weight_in, weight_out; /* on the one axis; rows on the first of two */
} layout;

static const layout layouts[] = {
    {"cpu:0", "one device", {1}, WEIR_B, WEIR_AUTO, WEIR_AUTO, WEIR_AUTO, WEIR_AUTO},
    {"cpu:0-1", "rows", {2}, WEIR_S(0), WEIR_AUTO, WEIR_AUTO, WEIR_AUTO, WEIR_AUTO},
    {"cpu:0-2", "rows on three", {3}, WEIR_S(0), WEIR_AUTO, WEIR_AUTO, WEIR_AUTO, WEIR_AUTO},
    {"cpu:0-1", "columns", {2}, WEIR_B, WEIR_S(0), WEIR_AUTO, WEIR_AUTO, WEIR_S(0)},
    {"cpu:0-1", "inputs", {2}, WEIR_S(2), WEIR_S(1), WEIR_AUTO, WEIR_S(1), WEIR_AUTO},
    {"cpu:0-3", "rows and columns", {2, 2}, WEIR_S(0), WEIR_AUTO, WEIR_S(0), WEIR_AUTO, WEIR_S(0)},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

/* A frozen layer with an addend of rank 2; the loss is the sum of the result times an input r. */
static weir_graph *model(const layout *l, bool micro)
{
    weir_graph *g = weir_graph_new("lora");
    const int last = l->axes[1] ? 1 : 0;
    weir_mesh_new(g, l->devices, .shape = {l->axes[0], l->axes[1]});
    weir_tensor *x = weir_input(g, WEIR_F32, {BATCH, SEQ, IN}, .name = "x", .sbp = {l->rows}, .micro = micro);
    weir_tensor *r = weir_input(g, WEIR_F32, {BATCH, SEQ, OUT}, .name = "r", .micro = micro);
    weir_param_opts weight = {.size = sizeof weight, .src = WEIR_HERE, .shape = {OUT, IN}, .name = "w", .frozen = true, .init = WEIR_NORMAL(1)};
    weir_lora_opts lora = {.size = sizeof lora, .src = WEIR_HERE, .name = "layers.0.q_proj"};
    weight.sbp[last] = l->columns != WEIR_AUTO ? l->columns : l->in;
    lora.a[last] = l->weight_in;
    lora.b[last] = l->weight_out;
    weir_tensor *y = weir_matmul(x, weir_param_at(g, WEIR_F32, &weight), .trans_b = true);
    y = weir_lora_at(x, y, RANK, alpha, &lora);
    weir_fetch(y, .name = "y");
    weir_train(weir_sum(weir_mul(y, r)), weir_sgd(.lr = rate));
    return g;
}

static run run_model(const layout *l, weir_compile_opts opts, int workers)
{
    weir_plan *plan = run_compile(model(l, opts.micro_batches > 1), opts);
    run r = run_plan(plan, STEPS, workers);
    weir_plan_free(plan);
    return r;
}

/* ---- the formulas ---- */

static double a[RANK][IN], b[OUT][RANK], w[OUT][IN], y_of[STEPS][ROWS][OUT];

static double given(const char *name, int step, int i)
{
    return (double)(float)run_input(name, WEIR_F32, step, 0, i);
}

static void truth_step(int step)
{
    static double da[RANK][IN], db[OUT][RANK];
    memset(da, 0, sizeof da), memset(db, 0, sizeof db);
    for (int row = 0; row < ROWS; row++) {
        double h[RANK] = {0}, dh[RANK] = {0};
        for (int k = 0; k < RANK; k++)
            for (int i = 0; i < IN; i++)
                h[k] += a[k][i] * given("x", step, row * IN + i) * alpha / RANK;
        for (int o = 0; o < OUT; o++) {
            const double r = given("r", step, row * OUT + o);
            double y = 0;
            for (int i = 0; i < IN; i++)
                y += w[o][i] * given("x", step, row * IN + i);
            for (int k = 0; k < RANK; k++) {
                y += h[k] * b[o][k];
                db[o][k] += r * h[k];
                dh[k] += r * b[o][k] * alpha / RANK;
            }
            y_of[step][row][o] = y;
        }
        for (int k = 0; k < RANK; k++)
            for (int i = 0; i < IN; i++)
                da[k][i] += dh[k] * given("x", step, row * IN + i);
    }
    for (int k = 0; k < RANK; k++) {
        for (int i = 0; i < IN; i++)
            a[k][i] -= rate * da[k][i];
        for (int o = 0; o < OUT; o++)
            b[o][k] -= rate * db[o][k];
    }
}

/* Reads a parameter of a new session. */
static void initial(const char *name, int rows, int columns, double *to)
{
    float value[64];
    weir_plan *plan = run_compile(model(&layouts[0], false), (weir_compile_opts){0});
    weir_session *s = weir_session_open(plan);
    cr_assert_eq(weir_session_read(s, name, WEIR_ARRAY(value, WEIR_F32, rows, columns)), WEIR_OK, "%s", weir_error());
    for (int i = 0; i < rows * columns; i++)
        to[i] = (double)value[i];
    weir_session_close(s);
    weir_plan_free(plan);
}

static void expect_near(const run *r, const char *name, const double *want, int count, const char *where)
{
    const run_entry *e = run_find(r, name);
    cr_assert(e && e->count == count, "%s: %s", where, name);
    for (int i = 0; i < count; i++)
        cr_assert(kernel_near(e->value[i], want[i], 1e-5), "%s: %s[%d] is %.9g, not %.9g", where, name, i, e->value[i], want[i]);
}

Test(lora, two_steps_follow_the_formulas_in_every_layout)
{
    initial("layers.0.q_proj.lora_A.weight", RANK, IN, *a);
    initial("layers.0.q_proj.lora_B.weight", OUT, RANK, *b);
    initial("w", OUT, IN, *w);
    for (int k = 0; k < RANK; k++) {
        for (int i = 0; i < IN; i++)
            cr_expect(a[k][i] != 0 && fabs(a[k][i]) <= 1 / sqrt(IN));
        for (int o = 0; o < OUT; o++)
            cr_expect_eq(b[o][k], 0);
    }
    for (int step = 0; step < STEPS; step++)
        truth_step(step);
    for (int l = 0; l < LAYOUTS; l++) {
        run r = run_model(&layouts[l], (weir_compile_opts){0}, 2);
        expect_near(&r, "y", **y_of, STEPS * ROWS * OUT, layouts[l].name);
        expect_near(&r, "layers.0.q_proj.lora_A.weight", *a, RANK * IN, layouts[l].name);
        expect_near(&r, "layers.0.q_proj.lora_B.weight", *b, OUT * RANK, layouts[l].name);
        run_free(&r);
    }
}

static weir_tensor *layer(weir_graph *g)
{
    weir_tensor *x = weir_param(g, WEIR_F32, {2, 3, 4}, .name = "x");
    weir_tensor *y = weir_linear(x, 5, .name = "up");
    return weir_tanh(weir_lora(x, y, 2, 3, .name = "up"));
}

Test(lora, gradients_are_those_of_finite_differences)
{
    gradient_check(layer, 1, 2e-3);
}

/* ---- the same bits ---- */

Test(lora, workers_and_fusion_change_no_bit)
{
    for (int l = 1; l < LAYOUTS; l++) {
        run want = run_model(&layouts[l], (weir_compile_opts){.micro_batches = 2}, 1);
        run workers = run_model(&layouts[l], (weir_compile_opts){.micro_batches = 2}, 3);
        run plain = run_model(&layouts[l], (weir_compile_opts){.micro_batches = 2, .no_fusion = true}, 1);
        run_near(&workers, &want, 0, layouts[l].name);
        run_near(&plain, &want, 0, layouts[l].name);
        run_free(&want), run_free(&workers), run_free(&plain);
    }
}

static void fill(float *to, const char *name, int count)
{
    for (int i = 0; i < count; i++)
        to[i] = (float)given(name, 0, i);
}

/* Three steps on two devices, to the bits of A and B. */
static weir_status trained(const layout *l, const weir_cluster_opts *cluster, float *to)
{
    static float x[BATCH * SEQ * IN], r[BATCH * SEQ * OUT];
    weir_graph *g = model(l, false);
    weir_plan *plan = weir_compile(g);
    weir_session *s = plan ? weir_session_open(plan, .cluster = *cluster) : NULL;
    weir_status status = s ? weir_session_start(s, 3) : WEIR_E_STATE;
    fill(x, "x", BATCH * SEQ * IN), fill(r, "r", BATCH * SEQ * OUT);
    for (int step = 0; step < 3 && !status; step++) {
        float y[BATCH * SEQ * OUT];
        status = weir_session_push(s, "x", WEIR_ARRAY(x, WEIR_F32, BATCH, SEQ, IN), -1);
        status = status ? status : weir_session_push(s, "r", WEIR_ARRAY(r, WEIR_F32, BATCH, SEQ, OUT), -1);
        status = status ? status : weir_session_pull(s, "y", WEIR_ARRAY(y, WEIR_F32, BATCH, SEQ, OUT), -1);
    }
    status = status ? status : weir_session_wait(s, -1);
    status = status ? status : weir_session_read(s, "layers.0.q_proj.lora_A.weight", WEIR_ARRAY(to, WEIR_F32, RANK, IN));
    status = status ? status : weir_session_read(s, "layers.0.q_proj.lora_B.weight", WEIR_ARRAY(to + RANK * IN, WEIR_F32, OUT, RANK));
    weir_session_close(s);
    weir_plan_free(plan);
    weir_graph_free(g);
    return status;
}

static void train_part(struct rank *rank)
{
    const weir_cluster_opts cluster = ranks_cluster(rank);
    RANK_OK(rank, trained(rank->ctx, &cluster, rank->result));
}

Test(lora, two_processes_have_the_bits_of_one)
{
    static const int which[] = {1, 3, 4};
    for (int i = 0; i < 3; i++) {
        float want[RANK * IN + OUT * RANK];
        const layout *l = &layouts[which[i]];
        cr_assert_eq(trained(l, &(weir_cluster_opts){.alone = true}, want), WEIR_OK, "%s", weir_error());
        struct ranks *ranks = ranks_run(train_part, (void *)l, .count = 2, .link = RANKS_SHM, .result_bytes = sizeof want);
        for (int r = 0; r < 2; r++)
            cr_expect_arr_eq(ranks->rank[r].result, want, sizeof want, "%s", l->name);
        ranks_free(ranks);
    }
}

/* ---- what it costs ---- */

enum { DIM = 256, WEIGHT_BYTES = DIM * DIM * (int)sizeof(float) };

/* Of the plan; to *states, how many values the optimizer keeps of the base's weight. */
static uint64_t planned_bytes(bool frozen, bool trains, int *states)
{
    weir_graph *g = weir_graph_new("wide");
    weir_tensor *x = weir_input(g, WEIR_F32, {2, DIM}, .name = "x");
    weir_tensor *weight = weir_param(g, WEIR_F32, {DIM, DIM}, .name = "w", .frozen = frozen, .init = WEIR_NORMAL(0.1));
    weir_tensor *y = weir_lora(x, weir_matmul(x, weight, .trans_b = true), 4, 4, .name = "w");
    weir_fetch(y, .name = "y");
    if (trains)
        weir_train(weir_mean(weir_mul(y, y)), weir_adamw());
    weir_plan *plan = run_compile(g, (weir_compile_opts){0});
    const uint64_t bytes = weir_plan_bytes(plan, -1);
    *states = 0;
    for (int i = 0; i < weir_plan_param_count(plan); i++) {
        weir_param_info info;
        cr_assert_eq(weir_plan_param(plan, i, &info), WEIR_OK);
        *states += !strncmp(info.name, "w:", 2);
    }
    weir_plan_free(plan);
    return bytes;
}

Test(lora, a_frozen_base_has_no_gradient_and_no_state)
{
    int states[3];
    const uint64_t forward = planned_bytes(true, false, &states[0]), frozen = planned_bytes(true, true, &states[1]);
    const uint64_t all = planned_bytes(false, true, &states[2]);
    cr_expect(states[1] == 0 && states[2] > 0);
    cr_expect_lt(frozen, forward + WEIGHT_BYTES / 4, "%llu bytes, and %llu forward", (unsigned long long)frozen, (unsigned long long)forward);
    cr_expect_gt(all, frozen + 2 * WEIGHT_BYTES, "%llu bytes, and %llu frozen", (unsigned long long)all, (unsigned long long)frozen);
}

Test(lora, half_precision_is_near)
{
    run want = run_model(&layouts[0], (weir_compile_opts){0}, 1);
    run got = run_model(&layouts[1], (weir_compile_opts){.precision = WEIR_BF16}, 1);
    run_near(&got, &want, 0.1, "bf16");
    run_free(&want), run_free(&got);
}

Test(lora, halves_stay_halves_and_a_base_keeps_its_dtype)
{
    weir_graph *g = weir_graph_new("halves");
    weir_tensor *x = weir_input(g, WEIR_F32, {4, 3}, .name = "x"), *half = weir_cast(x, WEIR_BF16);
    weir_tensor *y = weir_lora(half, weir_linear(half, 5, .no_bias = true), 2, 2, .name = "halves");
    cr_expect_eq(weir_tensor_type(y).dtype, WEIR_BF16);
    cr_expect_eq(weir_tensor_type(weir_lora(half, weir_linear(x, 5), 2, 2)).dtype, WEIR_F32);
    cr_expect_null(weir_graph_mistake(g), "%s", weir_graph_mistake(g));
    weir_graph_free(g);
}

Test(lora, dropout_is_of_the_addend_alone)
{
    weir_graph *g = weir_graph_new("dropped");
    weir_tensor *x = weir_input(g, WEIR_F32, {4, 3}, .name = "x"), *base = weir_affine(x, 2);
    weir_fetch(base, .name = "base");
    weir_fetch(weir_lora(x, base, 2, 2, .dropout = 0.5), .name = "y");
    weir_plan *plan = run_compile(g, (weir_compile_opts){0});
    run r = run_plan(plan, 1, 1);
    for (int i = 0; i < 12; i++)
        cr_expect_eq(run_find(&r, "y")->value[i], run_find(&r, "base")->value[i]); /* B is 0 */
    run_free(&r);
    weir_plan_free(plan);
}
