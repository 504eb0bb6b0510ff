/* tests/actors/session/test_label_sums.c: a loss that leaves labels out, summed and divided by the labels of the whole step:
 * however a step is cut into micro-batches and spread, each label weighs the same.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

enum { ROWS = 16, WIDTH = 4, CLASSES = 32, STEPS = 4, NONE_AT = 2 };
#define LR 0.5
#define CLIP 0.05

TestSuite(label_sums, .timeout = 120);

#define assert_ok(call) cr_assert_eq(call, WEIR_OK, "%s: %s", #call, weir_error())

/* ---- what a step is given: of half of the rows one label counts, of the other half all; in step NONE_AT none ---- */

static float row_value(int64_t step, int64_t row, int64_t k)
{
    return (float)((double)((step * 131 + row * 17 + k * 29) % 23) / 11.0 - 1);
}

static int32_t row_label(int64_t step, int64_t row)
{
    if (step == NONE_AT || (row < ROWS / 2 && row != 3))
        return -1;
    return (int32_t)((step * 7 + row * 5) % CLASSES);
}

struct draw {
    int micros;
};

/* The view's first row of the whole step: micro-batches are cut of it in order, shards of these. */
static int64_t first_row(const struct draw *d, const weir_view *to, int micro)
{
    return (int64_t)micro * ROWS / d->micros + to->offset[0];
}

static weir_status draw_x(void *ctx, const weir_view *to, int64_t step, int micro)
{
    for (int64_t r = 0; r < to->shape.dim[0]; r++)
        for (int64_t k = 0; k < WIDTH; k++)
            ((float *)to->data)[r * WIDTH + k] = row_value(step, first_row(ctx, to, micro) + r, k);
    return WEIR_OK;
}

static weir_status draw_labels(void *ctx, const weir_view *to, int64_t step, int micro)
{
    for (int64_t r = 0; r < to->shape.dim[0]; r++)
        ((int32_t *)to->data)[r] = row_label(step, first_row(ctx, to, micro) + r);
    return WEIR_OK;
}

/* ---- the same in double ---- */

struct truth {
    double w[WIDTH][CLASSES];
    int skipped;
};

static void gradient_of_row(const struct truth *t, int64_t step, int64_t row, double g[WIDTH][CLASSES])
{
    double logit[CLASSES], sum = 0;
    for (int c = 0; c < CLASSES; c++) {
        logit[c] = 0;
        for (int k = 0; k < WIDTH; k++)
            logit[c] += (double)row_value(step, row, k) * t->w[k][c];
        sum += exp(logit[c]);
    }
    for (int c = 0; c < CLASSES; c++)
        for (int k = 0; k < WIDTH; k++)
            g[k][c] += (double)row_value(step, row, k) * (exp(logit[c]) / sum - (c == row_label(step, row)));
}

static void truth_step(struct truth *t, int64_t step, bool clips)
{
    double g[WIDTH][CLASSES] = {{0}}, squares = 0, factor = 1;
    int count = 0;
    for (int64_t row = 0; row < ROWS; row++)
        if (row_label(step, row) >= 0) {
            gradient_of_row(t, step, row, g);
            count++;
        }
    t->skipped += !count;
    for (int i = 0; count && i < WIDTH * CLASSES; i++)
        squares += (&g[0][0])[i] / count * ((&g[0][0])[i] / count);
    if (clips && sqrt(squares) > CLIP)
        factor = CLIP / sqrt(squares);
    for (int i = 0; count && i < WIDTH * CLASSES; i++)
        (&t->w[0][0])[i] -= LR * factor * (&g[0][0])[i] / count;
}

/* ---- layouts ---- */

struct layout {
    int micros, dp, tp;
    bool pipeline, zero, clips;
    weir_dtype precision;
};

static weir_plan *plan_of(const struct layout *l, struct draw *d)
{
    weir_graph *g = weir_graph_new("labels");
    char devices[2][32];
    int each = l->dp * l->tp;
    snprintf(devices[0], sizeof devices[0], "cpu:0-%d", each - 1);
    snprintf(devices[1], sizeof devices[1], "cpu:%d-%d", each, 2 * each - 1);
    weir_mesh *first = weir_mesh_new(g, each == 1 ? "cpu:0" : devices[0], .shape = {l->dp, l->tp});
    weir_mesh *last = l->pipeline ? weir_mesh_new(g, each == 1 ? "cpu:1" : devices[1], .shape = {l->dp, l->tp}) : first;
    weir_tensor *x = NULL, *loss = NULL, *count = NULL;
    WEIR_ON(first)
        x = weir_input(g, WEIR_F32, {ROWS / l->micros, WIDTH}, .name = "x", .source = draw_x, .ctx = d, .micro = true,
                       .sbp = {WEIR_S(0)});
    WEIR_ON(last) {
        weir_tensor *labels = weir_input(g, WEIR_I32, {ROWS / l->micros}, .name = "labels", .source = draw_labels, .ctx = d, .micro = true,
                                         .sbp = {WEIR_S(0)});
        weir_tensor *w = weir_param(g, WEIR_F32, {WIDTH, CLASSES}, .name = "w", .init = WEIR_VALUE(0),
                                    .sbp = {WEIR_B, l->tp > 1 ? WEIR_S(1) : WEIR_B});
        loss = weir_cross_entropy(weir_matmul(x, w), labels, .name = "loss", .ignore = true, .ignore_index = -1, .sum = true);
        count = weir_label_count(labels, .ignore = true, .ignore_index = -1);
    }
    weir_optimizer sgd = weir_sgd(.lr = LR, .clip_norm = l->clips ? CLIP : 0);
    weir_train(loss, sgd, .count = count, .zero = {l->zero});
    weir_plan *plan = weir_compile(g, .micro_batches = l->micros, .precision = l->precision);
    cr_assert(plan, "%s", weir_error());
    weir_graph_free(g);
    return plan;
}

static void learn(const struct layout *l, float w[WIDTH][CLASSES], int *skipped)
{
    struct draw d = {l->micros};
    weir_plan *plan = plan_of(l, &d);
    weir_session *s = weir_session_open(plan, .cluster = {.alone = true});
    cr_assert(s, "%s", weir_error());
    assert_ok(weir_session_run(s, STEPS));
    assert_ok(weir_session_read(s, "w", &(weir_array){w, WEIR_F32, {2, {WIDTH, CLASSES}}}));
    weir_session_stats stats;
    weir_session_get_stats(s, &stats);
    *skipped = (int)stats.skipped;
    weir_session_close(s);
    weir_plan_free(plan);
}

Test(label_sums, each_label_of_a_step_weighs_the_same_in_every_layout)
{
    static const struct layout layouts[] = {
        {.micros = 1, .dp = 1, .tp = 1}, {.micros = 2, .dp = 1, .tp = 1}, {.micros = 4, .dp = 1, .tp = 1}, {.micros = 8, .dp = 1, .tp = 1}, {.micros = 1, .dp = 2, .tp = 1}, {.micros = 2, .dp = 2, .tp = 1}, {.micros = 4, .dp = 4, .tp = 1}, {.micros = 2, .dp = 1, .tp = 2}, {.micros = 2, .dp = 2, .tp = 2},
        {.micros = 2, .dp = 1, .tp = 1, .pipeline = true}, {.micros = 4, .dp = 2, .tp = 1, .pipeline = true}, {.micros = 4, .dp = 2, .tp = 2, .pipeline = true}, {.micros = 2, .dp = 2, .tp = 1, .zero = true},
        {.micros = 4, .dp = 2, .tp = 2, .pipeline = true, .zero = true}, {.micros = 2, .dp = 1, .tp = 1, .precision = WEIR_F16}, {.micros = 4, .dp = 2, .tp = 1, .precision = WEIR_F16},
    };
    for (int clips = 0; clips < 2; clips++) {
        struct truth truth = {.skipped = 0};
        for (int64_t step = 0; step < STEPS; step++)
            truth_step(&truth, step, clips);
        cr_assert_eq(truth.skipped, 1);
        for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
            struct layout l = layouts[i];
            float w[WIDTH][CLASSES];
            int skipped = -1;
            l.clips = clips;
            learn(&l, w, &skipped);
            double most = 0;
            for (int k = 0; k < WIDTH * CLASSES; k++)
                most = fmax(most, fabs((double)(&w[0][0])[k] - (&truth.w[0][0])[k]));
            cr_expect_lt(most, l.precision == WEIR_F16 ? 2e-3 : 2e-6, "layout %d, clips %d: %g", (int)i, clips, most);
            cr_expect_eq(skipped, 1, "layout %d, clips %d: %d", (int)i, clips, skipped);
        }
    }
}

/* Where a value is computed changes no bit, nor does who keeps an optimizer's state. */
Test(label_sums, stages_and_split_states_change_no_bit)
{
    static const struct layout pairs[][2] = {
        {{.micros = 2, .dp = 1, .tp = 1}, {.micros = 2, .dp = 1, .tp = 1, .pipeline = true}},
        {{.micros = 4, .dp = 2, .tp = 1}, {.micros = 4, .dp = 2, .tp = 1, .pipeline = true}},
        {{.micros = 2, .dp = 2, .tp = 1, .clips = true}, {.micros = 2, .dp = 2, .tp = 1, .zero = true, .clips = true}},
        {{.micros = 4, .dp = 2, .tp = 2}, {.micros = 4, .dp = 2, .tp = 2, .pipeline = true, .zero = true}},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        float w[2][WIDTH][CLASSES];
        int skipped[2];
        for (int j = 0; j < 2; j++)
            learn(&pairs[i][j], w[j], &skipped[j]);
        cr_expect(!memcmp(w[0], w[1], sizeof w[0]), "pair %d", (int)i);
        cr_expect_eq(skipped[0], skipped[1]);
    }
}

/* The mean of means, which is the default, weighs the one label of the first half as much as all of the second. */
Test(label_sums, the_mean_of_means_weighs_labels_of_small_micro_batches_more)
{
    struct draw d = {2};
    weir_graph *g = weir_graph_new("means");
    weir_mesh_new(g, "cpu:0");
    weir_tensor *x = weir_input(g, WEIR_F32, {ROWS / 2, WIDTH}, .name = "x", .source = draw_x, .ctx = &d, .micro = true);
    weir_tensor *labels = weir_input(g, WEIR_I32, {ROWS / 2}, .name = "labels", .source = draw_labels, .ctx = &d, .micro = true);
    weir_tensor *w = weir_param(g, WEIR_F32, {WIDTH, CLASSES}, .name = "w", .init = WEIR_VALUE(0));
    weir_tensor *loss = weir_cross_entropy(weir_matmul(x, w), labels, .ignore = true, .ignore_index = -1);
    weir_train(loss, weir_sgd(.lr = LR));
    weir_plan *plan = weir_compile(g, .micro_batches = 2);
    cr_assert(plan, "%s", weir_error());
    weir_graph_free(g);
    weir_session *s = weir_session_open(plan, .cluster = {.alone = true});
    float value[WIDTH][CLASSES];
    assert_ok(weir_session_run(s, 1));
    assert_ok(weir_session_read(s, "w", &(weir_array){value, WEIR_F32, {2, {WIDTH, CLASSES}}}));
    weir_session_close(s);
    weir_plan_free(plan);
    struct truth truth = {.skipped = 0};
    truth_step(&truth, 0, false);
    cr_expect_gt(fabs((double)value[0][row_label(0, 3)] - truth.w[0][row_label(0, 3)]), 0.01);
}

/* ---- mistakes ---- */

static void expect_mistake(const char *part, weir_graph *g)
{
    cr_expect_null(weir_compile(g));
    cr_expect(strstr(weir_error(), "test_label_sums.c:") && strstr(weir_error(), part), "%s", weir_error());
    weir_graph_free(g);
}

static weir_tensor *loss_in(weir_graph *g, weir_tensor **labels)
{
    weir_mesh_new(g, "cpu:0");
    weir_tensor *x = weir_input(g, WEIR_F32, {4, CLASSES}, .name = "x");
    *labels = weir_input(g, WEIR_I32, {4}, .name = "labels");
    weir_tensor *w = weir_param(g, WEIR_F32, {CLASSES}, .name = "w");
    return weir_cross_entropy(weir_mul(x, w), *labels, .sum = true);
}

Test(label_sums, a_count_that_is_none_is_refused)
{
    weir_tensor *labels;
    weir_graph *g = weir_graph_new("i32"), *other = weir_graph_new("other");
    weir_tensor *loss = loss_in(g, &labels);
    weir_train(loss, weir_sgd(), .count = labels);
    expect_mistake(".count must be one f32 number, as weir_label_count() makes; \"labels", g);
    g = weir_graph_new("another");
    loss = loss_in(g, &labels);
    weir_tensor *elsewhere, *there = loss_in(other, &elsewhere);
    (void)there;
    weir_train(loss, weir_sgd(), .count = weir_label_count(elsewhere));
    expect_mistake("is of another graph than the loss", g);
    weir_graph_free(other);
}
