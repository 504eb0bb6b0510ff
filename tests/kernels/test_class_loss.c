/* test_class_loss.c: the cross-entropy by groups of classes: each kernel against plain loops in double, every way to be
 * split, gradients against finite differences; and that a head that is split over the classes gathers no logits. */
#include "graph/plan/form/plan.h"
#include "graph/plan/spread/spread.h"
#include "kernels/loss/loss.h"
#include "kernels/common/ops.h"
#include "tests/support/gradient_check.h"
#include "tests/support/run.h"
#include "tests/support/shard_check.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <weir/weir.h>

enum { SEED = 7117, GROUPS = 6, IGNORED = 5 };

typedef struct words {
    int64_t ignore, ignore_index, groups;
} words;

static int64_t last_of(const weir_view *view)
{
    return view->shape.dim[view->shape.rank - 1];
}

/* log sum exp of elements [first, first + count) */
static double lse_of(const weir_view *x, int64_t first, int64_t count)
{
    double total = 0;
    for (int64_t i = 0; i < count; i++)
        total += exp(kernel_at(x, first + i));
    return log(total);
}

static bool ignored(const kernel_check *c, int labels, int64_t row)
{
    const words *attrs = c->attrs;
    return attrs->ignore && (int64_t)kernel_at(&c->in[labels], row) == attrs->ignore_index;
}

/* All labels in turns, so that each group has some. */
static void add_labels(kernel_check *c, weir_shape rows, int64_t classes)
{
    weir_view *labels = kernel_check_in(c, WEIR_I32, rows);
    for (int64_t i = 0; i < weir_shape_count(&rows); i++)
        ((int32_t *)labels->data)[i] = (int32_t)(i * 7 % classes);
}

static void run_all_ways(kernel_check *c, int at_least)
{
    kernel_check_run(c);
    for (int devices = 2; devices <= 3; devices++)
        cr_assert_geq(shard_check(c, devices, 1e-4), at_least);
}

/* ---- class_lse ---- */

static void reference_lse(const kernel_check *c, int out, double *want)
{
    int64_t classes = last_of(&c->in[0]), each = classes / GROUPS, rows = weir_shape_count(&c->in[1].shape);
    for (int64_t row = 0; row < rows; row++)
        for (int64_t g = 0; g < GROUPS; g++) {
            if (out == 0)
                want[row * GROUPS + g] = lse_of(&c->in[0], row * classes + g * each, each);
            else if (!ignored(c, 1, row))
                want[row] = kernel_at(&c->in[0], row * classes + (int64_t)kernel_at(&c->in[1], row));
        }
}

static void check_lse(weir_shape rows, int64_t classes, words attrs)
{
    kernel_check c = kernel_check_new(&op_class_lse, &attrs, SEED);
    weir_shape logits = rows;
    logits.dim[logits.rank++] = classes;
    kernel_check_in(&c, WEIR_F32, logits);
    add_labels(&c, rows, classes);
    run_all_ways(&c, rows.rank + 1);
    kernel_check_near(&c, 0, reference_lse, 1e-5);
    kernel_check_near(&c, 1, reference_lse, 1e-6);
    kernel_check_free(&c);
}

Test(class_lse, is_made_and_picked_group_by_group, .timeout = 120)
{
    check_lse(SHAPE(17), 36, (words){0, 0, GROUPS});
    check_lse(SHAPE(3, 4), 6 * 67, (words){0, 0, GROUPS});
    check_lse(SHAPE(4, 9), 36, (words){1, IGNORED, GROUPS});
}

Test(class_lse, survives_logits_as_large_as_there_are, .timeout = 120)
{
    words attrs = {0, 0, 2};
    float logits[4] = {3e38f, -3e38f, -3e38f, -3e38f}, lse[2], picked;
    int32_t label = 0;
    weir_view in[2] = {{logits, WEIR_F32, SHAPE(4), {0}, SHAPE(4), NULL}, {.data = &label, .dtype = WEIR_I32}};
    weir_view out[2] = {{lse, WEIR_F32, SHAPE(2), {0}, SHAPE(2), NULL}, {.data = &picked, .dtype = WEIR_F32}};
    weir_kernel_args args = {.in = in, .in_count = 2, .out = out, .out_count = 2, .attrs = &attrs};
    cr_assert_eq(op_class_lse.kernel[WEIR_CPU](&args), WEIR_OK);
    cr_expect_eq(lse[0], 3e38f);
    cr_expect_eq(lse[1], -3e38f);
    cr_expect_eq(picked, 3e38f);
}

Test(class_lse, names_the_label_that_is_no_class_of_any_shard, .timeout = 120)
{
    words attrs = {0, 0, 2};
    float logits[6] = {0}, lse[2], picked[2];
    int32_t labels[2] = {5, 6};
    char error[256] = "";
    weir_view in[2] = {{logits, WEIR_F32, SHAPE(2, 3), {2, 3}, SHAPE(4, 6), NULL},
                       {labels, WEIR_I32, SHAPE(2), {2}, SHAPE(4), NULL}};
    weir_view out[2] = {{lse, WEIR_F32, SHAPE(2, 1), {2, 1}, SHAPE(4, 2), NULL},
                        {picked, WEIR_F32, SHAPE(2), {2}, SHAPE(4), NULL}};
    weir_kernel_args args = {.in = in, .in_count = 2, .out = out, .out_count = 2, .attrs = &attrs,
                             .error = error, .error_bytes = sizeof error};
    cr_assert_eq(kernel_check_kernel(&op_class_lse)(&args), WEIR_E_KERNEL);
    cr_expect_str_eq(error, "label 6 of row [3] is not in 0..5");
}

static void reference_lse_grad(const kernel_check *c, int out, double *want)
{
    int64_t classes = last_of(&c->in[0]), each = classes / GROUPS, count = weir_shape_count(&c->in[0].shape);
    (void)out;
    for (int64_t i = 0; i < count; i++) {
        int64_t row = i / classes, g = i % classes / each;
        if (ignored(c, 1, row))
            continue;
        want[i] = exp(kernel_at(&c->in[0], i) - kernel_at(&c->in[2], row * GROUPS + g)) *
                  kernel_at(&c->in[3], row * GROUPS + g);
        if (i % classes == (int64_t)kernel_at(&c->in[1], row))
            want[i] += kernel_at(&c->in[4], row);
    }
}

static void check_lse_grad(weir_shape rows, int64_t classes, words attrs)
{
    kernel_check c = kernel_check_new(&op_class_lse_grad, &attrs, SEED);
    weir_shape logits = rows, groups = rows;
    logits.dim[logits.rank++] = classes;
    groups.dim[groups.rank++] = GROUPS;
    kernel_check_in(&c, WEIR_F32, logits);
    add_labels(&c, rows, classes);
    kernel_check_in(&c, WEIR_F32, groups);
    kernel_check_in(&c, WEIR_F32, groups);
    kernel_check_in(&c, WEIR_F32, rows);
    run_all_ways(&c, rows.rank + 2);
    kernel_check_near(&c, 0, reference_lse_grad, 1e-5);
    kernel_check_free(&c);
}

Test(class_lse, has_a_gradient_by_groups, .timeout = 120)
{
    check_lse_grad(SHAPE(17), 36, (words){0, 0, GROUPS});
    check_lse_grad(SHAPE(3, 4), 6 * 67, (words){1, IGNORED, GROUPS});
}

/* ---- addresses ---- */

enum { ALIKE = 16 };

/* Shifts `count` elements so that their log sum exp is near 0, where an f32 shows the last bits of the sum. */
static void shift_to_zero(weir_view *x, int64_t count)
{
    const double lse = lse_of(x, 0, count);
    for (int64_t i = 0; i < count; i++)
        kernel_set(x, i, kernel_at(x, i) - lse);
}

/* Input 0 has the same `classes` elements again and again, and all labels are `label`. */
static void make_alike(kernel_check *c, weir_dtype dtype, int64_t classes, int64_t groups, int32_t label)
{
    weir_view *logits = kernel_check_in(c, dtype, SHAPE(ALIKE, classes * groups));
    const size_t bytes = (size_t)classes * weir_dtype_bytes(dtype);
    shift_to_zero(logits, classes);
    for (int64_t i = 1; i < ALIKE * groups; i++)
        memcpy((char *)logits->data + (size_t)i * bytes, logits->data, bytes);
    weir_view *labels = kernel_check_in(c, WEIR_I32, SHAPE(ALIKE));
    for (int row = 0; row < ALIKE; row++)
        ((int32_t *)labels->data)[row] = label;
}

/* Every part of output `out` has the bits of the first. */
static void expect_alike(const kernel_check *c, int out, int64_t parts)
{
    const size_t bytes = (size_t)weir_shape_count(&c->out[out].shape) * weir_dtype_bytes(c->out[out].dtype);
    for (int64_t i = 1; i < parts; i++)
        cr_expect_eq(memcmp((char *)c->out[out].data + (size_t)i * (bytes / (size_t)parts), c->out[out].data,
                            bytes / (size_t)parts), 0, "%s: part %ld of %zu bytes", c->op->name, (long)i, bytes);
}

/* 131: a thread has one pack at most. 9001: some have several loads of IN_FLIGHT packs (kernels/loss/stream.h). */
static const int64_t odd_lengths[] = {1, 5, 13, 131, 9001};

static void check_alike(weir_dtype dtype, int64_t classes, int32_t label)
{
    kernel_check c = kernel_check_new(&op_cross_entropy, &(words){0}, SEED);
    make_alike(&c, dtype, classes, 1, label);
    kernel_check_run(&c);
    expect_alike(&c, 1, ALIKE);
    const float lse = *(float *)c.out[1].data;
    kernel_check_free(&c);

    c = kernel_check_new(&op_cross_entropy_grad, &(words){0}, SEED);
    make_alike(&c, dtype, classes, 1, label);
    weir_view *shifts = kernel_check_in(&c, WEIR_F32, SHAPE(ALIKE));
    for (int row = 0; row < ALIKE; row++)
        ((float *)shifts->data)[row] = lse;
    kernel_check_in(&c, WEIR_F32, SHAPE());
    kernel_check_run(&c);
    expect_alike(&c, 0, ALIKE);
    kernel_check_free(&c);
}

Test(losses, of_equal_rows_have_the_same_bits_at_every_address, .timeout = 120)
{
    const weir_dtype dtypes[] = {WEIR_F32, WEIR_F16, WEIR_BF16};
    for (int d = 0; d < 3; d++)
        for (int i = 0; i < 5; i++) {
            const int64_t classes = odd_lengths[i];
            for (int64_t label = 0; label < classes; label += label + 1 < classes ? (classes + 3) / 4 : 1)
                check_alike(dtypes[d], classes, (int32_t)label);
            check_alike(dtypes[d], classes, (int32_t)classes - 1);
            kernel_check c = kernel_check_new(&op_class_lse, &(words){0, 0, GROUPS}, SEED);
            make_alike(&c, dtypes[d], classes, GROUPS, 0);
            kernel_check_run(&c);
            expect_alike(&c, 0, ALIKE * GROUPS);
            kernel_check_free(&c);
        }
}

/* The log sum exp of rows that begin `offset` elements behind a multiple of 16 bytes. */
static float lse_at(weir_dtype dtype, int offset)
{
    enum { CLASSES_HERE = 4608 };
    static _Alignas(16) char room[(2 * CLASSES_HERE + 8) * sizeof(float)];
    uint64_t random = SEED;
    int32_t labels[2] = {0};
    float lse[2], picked[2];
    weir_view in[2] = {{room + (size_t)offset * weir_dtype_bytes(dtype), dtype, SHAPE(2, CLASSES_HERE), {0},
                        SHAPE(2, CLASSES_HERE), NULL},
                       {labels, WEIR_I32, SHAPE(2), {0}, SHAPE(2), NULL}};
    weir_view out[2] = {{lse, WEIR_F32, SHAPE(2, 1), {0}, SHAPE(2, 1), NULL},
                        {picked, WEIR_F32, SHAPE(2), {0}, SHAPE(2), NULL}};
    for (int i = 0; i < 2 * CLASSES_HERE; i++)
        kernel_set(&in[0], i, kernel_random_normal(&random));
    shift_to_zero(&in[0], CLASSES_HERE);
    static float workspace[2 * CLASSES_HERE];
    weir_kernel_args args = {.in = in, .in_count = 2, .out = out, .out_count = 2, .attrs = &(words){0, 0, 1},
                             .workspace = workspace, .workspace_bytes = sizeof workspace};
    cr_assert_eq(kernel_check_kernel(&op_class_lse)(&args), WEIR_OK);
    return lse[0];
}

Test(losses, of_rows_of_whole_runs_have_the_same_bits_at_every_address, .timeout = 120)
{
    const weir_dtype dtypes[] = {WEIR_F32, WEIR_F16, WEIR_BF16};
    for (int d = 0; d < 3; d++)
        for (int offset = 1; offset < 8; offset++)
            cr_expect_eq(lse_at(dtypes[d], offset), lse_at(dtypes[d], 0), "%d elements", offset);
}

static double lse_with(weir_dtype dtype, double everywhere, double at_200, double at_last)
{
    enum { CLASSES_HERE = 331 };
    kernel_check c = kernel_check_new(&op_class_lse, &(words){0, 0, 1}, SEED);
    make_alike(&c, dtype, CLASSES_HERE, 1, 0);
    for (int64_t i = 0; i < ALIKE * CLASSES_HERE; i++)
        kernel_set(&c.in[0], i, i % CLASSES_HERE == 200                ? at_200
                                : i % CLASSES_HERE == CLASSES_HERE - 1 ? at_last
                                                                       : everywhere);
    kernel_check_run(&c);
    for (int row = 1; row < ALIKE; row++)
        cr_expect(kernel_near(kernel_at(&c.out[0], row), kernel_at(&c.out[0], 0), 0));
    const double lse = kernel_at(&c.out[0], 0);
    kernel_check_free(&c);
    return lse;
}

Test(losses, of_rows_that_are_not_finite, .timeout = 120)
{
    const weir_dtype dtypes[] = {WEIR_F32, WEIR_F16, WEIR_BF16};
    for (int d = 0; d < 3; d++) {
        cr_expect(kernel_near(lse_with(dtypes[d], -INFINITY, 2, -INFINITY), 2, 1e-6));
        cr_expect(kernel_near(lse_with(dtypes[d], -INFINITY, -INFINITY, 2), 2, 1e-6));
        cr_expect(kernel_near(lse_with(dtypes[d], -60000, 60000, 0), kernel_round(dtypes[d], 60000), 1e-6));
        cr_expect(kernel_near(lse_with(dtypes[d], 60000, -60000, 0), kernel_round(dtypes[d], 60000) + log(329), 1e-6));
        cr_expect(isnan(lse_with(dtypes[d], 1, NAN, 2)));
        cr_expect(isnan(lse_with(dtypes[d], 1, 0, NAN)));
        cr_expect(isnan(lse_with(dtypes[d], NAN, NAN, NAN)));
        cr_expect(isnan(lse_with(dtypes[d], 1, INFINITY, 2)));
    }
    cr_expect_eq(lse_with(WEIR_F32, -3e38f, 3e38f, 3e38f), 3e38f);
    cr_expect_eq(lse_with(WEIR_F32, -3e38f, -3e38f, -3e38f), -3e38f);
}

/* ---- class_loss ---- */

static double rows_counted(const kernel_check *c, int labels)
{
    double counted = 0;
    for (int64_t row = 0; row < weir_shape_count(&c->in[labels].shape); row++)
        counted += !ignored(c, labels, row);
    return counted;
}

static void reference_loss(const kernel_check *c, int out, double *want)
{
    (void)out;
    for (int64_t row = 0; row < weir_shape_count(&c->in[2].shape); row++)
        if (!ignored(c, 2, row))
            want[0] += (lse_of(&c->in[0], row * GROUPS, GROUPS) - kernel_at(&c->in[1], row)) / rows_counted(c, 2);
}

static void reference_loss_grad(const kernel_check *c, int out, double *want)
{
    double weight = kernel_at(&c->in[2], 0) / rows_counted(c, 1);
    for (int64_t row = 0; row < weir_shape_count(&c->in[1].shape); row++)
        for (int64_t g = 0; g < GROUPS && !ignored(c, 1, row); g++) {
            if (out == 0)
                want[row * GROUPS + g] = weight * exp(kernel_at(&c->in[0], row * GROUPS + g) -
                                                      lse_of(&c->in[0], row * GROUPS, GROUPS));
            else
                want[row] = -weight;
        }
}

static void add_count(kernel_check *c, int labels)
{
    if (((const words *)c->attrs)->ignore)
        *(float *)kernel_check_in(c, WEIR_F32, SHAPE())->data = (float)rows_counted(c, labels);
}

static void check_loss(weir_shape rows, words attrs)
{
    weir_shape groups = rows;
    groups.dim[groups.rank++] = GROUPS;
    kernel_check c = kernel_check_new(&op_class_loss, &attrs, SEED);
    kernel_check_in(&c, WEIR_F32, groups);
    kernel_check_in(&c, WEIR_F32, rows);
    add_labels(&c, rows, 36);
    add_count(&c, 2);
    run_all_ways(&c, rows.rank);
    kernel_check_near(&c, 0, reference_loss, 1e-5);
    kernel_check_free(&c);

    c = kernel_check_new(&op_class_loss_grad, &attrs, SEED);
    kernel_check_in(&c, WEIR_F32, groups);
    add_labels(&c, rows, 36);
    kernel_check_in(&c, WEIR_F32, SHAPE());
    add_count(&c, 1);
    run_all_ways(&c, rows.rank + 1);
    kernel_check_near(&c, 0, reference_loss_grad, 1e-5);
    kernel_check_near(&c, 1, reference_loss_grad, 1e-6);
    kernel_check_free(&c);
}

Test(class_loss, is_the_mean_over_rows_with_its_gradient, .timeout = 120)
{
    check_loss(SHAPE(17), (words){0, 0, GROUPS});
    check_loss(SHAPE(5, 7), (words){1, IGNORED, GROUPS});
}

/* ---- together ---- */

static weir_tensor *by_groups(weir_graph *g)
{
    weir_mesh_new(g, "cpu:0-3");
    weir_tensor *labels = weir_input(g, WEIR_I32, {3, 4}, .name = "labels");
    return weir_cross_entropy(weir_param(g, WEIR_F32, {3, 4, 64}, .name = "logits", .init = WEIR_NORMAL(1)), labels);
}
static weir_tensor *by_groups_ignore(weir_graph *g)
{
    weir_mesh_new(g, "cpu:0-3");
    weir_tensor *labels = weir_input(g, WEIR_I32, {20}, .name = "labels");
    return weir_cross_entropy(weir_param(g, WEIR_F32, {20, 64}, .name = "logits", .init = WEIR_NORMAL(1)), labels,
                              .ignore = true, .ignore_index = 3);
}

Test(class_loss, gradient, .timeout = 120)
{
    gradient_check(by_groups, SEED, 1e-3);
    gradient_check(by_groups_ignore, SEED, 1e-3);
}

enum { ROWS = 192, DIM = 64, CLASSES = 512 };

/* A head whose classes are split over the last axis of a mesh, or with {1} one on one device. */
static weir_plan *head_plan(int rows_over, int classes_over, bool ignore)
{
    char devices[32];
    weir_graph *g = weir_graph_new("head");
    snprintf(devices, sizeof devices, "cpu:0-%d", rows_over * classes_over - 1);
    weir_mesh_new(g, devices, .shape = {rows_over, classes_over});
    weir_tensor *x = weir_input(g, WEIR_F32, {ROWS, DIM}, .name = "x", .micro = true, .sbp = {S(0)});
    weir_tensor *labels = weir_input(g, WEIR_I32, {ROWS}, .name = "labels", .micro = true, .sbp = {S(0)});
    weir_tensor *logits = weir_linear(x, CLASSES, .name = "head", .weight = {WEIR_AUTO, S(1)},
                                      .init = WEIR_NORMAL(0.3));
    weir_tensor *loss = weir_cross_entropy(logits, labels, .name = "loss", .ignore = ignore, .ignore_index = 3);
    weir_train(loss, weir_sgd(.lr = 0.1));
    weir_fetch(loss, .name = "loss");
    weir_plan *plan = weir_compile(g, .micro_batches = 2, .seed = 11);
    cr_assert_not_null(plan, "%s", weir_error());
    weir_graph_free(g);
    return plan;
}

/* No device has, at any time, logits or their gradients of classes that are another's. */
static void expect_no_logits_gathered(const weir_plan *plan, int classes_over)
{
    int found = 0;
    for (uint32_t t = 0; t < plan->tensors_count; t++) {
        const plan_tensor *tensor = &plan->tensors[t];
        bool logits = tensor->rank == 2 && tensor->global[0] == ROWS && tensor->global[1] == CLASSES;
        cr_expect(!logits || tensor->shape[1] == CLASSES / classes_over, "%s has %ld classes",
                  plan_text(plan, tensor->name), (long)tensor->shape[1]);
        found += logits;
    }
    cr_expect_gt(found, 0);
}

static void can_be_spread(const weir_plan *plan, const run *here)
{
    for (uint32_t ranks = 2; ranks <= 3 && ranks <= plan->spaces_count; ranks++) {
        weir_plan *spread = plan_spread(plan, ranks, 0);
        cr_assert_not_null(spread, "%s", weir_error());
        cr_expect_eq(weir_plan_check(spread), WEIR_OK, "%s", weir_error());
        weir_plan_free(spread);
    }
    run again = run_plan(plan, 3, 1);
    run_near(&again, here, 0, "one worker");
    run_free(&again);
}

Test(class_loss, is_split_over_classes_without_gathering_logits, .timeout = 60)
{
    for (int ignore = 0; ignore < 2; ignore++) {
        weir_plan *alone = head_plan(1, 1, ignore);
        run one = run_plan(alone, 3, 1);
        for (int rows_over = 1; rows_over <= 3; rows_over++)
            for (int classes_over = 2; classes_over <= 4; classes_over *= 2) {
                weir_plan *plan = head_plan(rows_over, classes_over, ignore);
                run many = run_plan(plan, 3, 2);
                expect_no_logits_gathered(plan, classes_over);
                run_near(&many, &one, 1e-4, "split over classes");
                can_be_spread(plan, &many);
                run_free(&many);
                weir_plan_free(plan);
            }
        run_free(&one);
        weir_plan_free(alone);
    }
}
