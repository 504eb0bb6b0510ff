/* Reductions, softmax and argmax against plain loops in double precision, and every signature on 2 and 3 devices. */
#include "kernels/common/ops.h"
#include "kernels/reduce/reduce.h"
#include "kernels/shape/shape.h"
#include "tests/support/kernel_check.h"
#include "tests/support/shard_check.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

enum { SEED = 7001 };

/* ---- sum, mean, max ---- */

static bool is_reduced(const reduce_attrs *attrs, int rank, int d)
{
    for (int i = 0; i < attrs->axis_count; i++)
        if (attrs->axes[i] == d || attrs->axes[i] + rank == d)
            return true;
    return !attrs->axis_count;
}

/* The output element to which element i of the input belongs. */
static int64_t home_of(const kernel_check *c, int64_t i)
{
    const weir_shape *in = &c->in[0].shape;
    int64_t at = 0, step = 1;
    for (int d = in->rank - 1; d >= 0; d--) {
        if (!is_reduced(c->attrs, in->rank, d)) {
            at += i % in->dim[d] * step;
            step *= in->dim[d];
        }
        i /= in->dim[d];
    }
    return at;
}

static void ref_reduce(const kernel_check *c, int out, double *want)
{
    int64_t from = weir_shape_count(&c->in[0].shape), to = weir_shape_count(&c->out[out].shape);
    for (int64_t i = 0; i < to && c->op == &op_max; i++)
        want[i] = -INFINITY;
    for (int64_t i = 0; i < from; i++) {
        double x = kernel_at(&c->in[0], i), *y = &want[home_of(c, i)];
        if (c->op == &op_max)
            *y = fmax(*y, x);
        else
            *y += c->op == &op_mean ? x * (double)to / (double)from : x;
    }
}

static void check_reduce(const weir_op *op, const reduce_attrs *attrs, weir_shape shape)
{
    kernel_check c = kernel_check_new(op, attrs, SEED);
    kernel_check_in(&c, WEIR_F32, shape);
    kernel_check_run(&c);
    kernel_check_near(&c, 0, ref_reduce, 2e-6);
    shard_check(&c, 2, 1e-5);
    shard_check(&c, 3, 1e-5);
    kernel_check_free(&c);
}

static void check_all(reduce_attrs attrs, weir_shape shape)
{
    const weir_op *ops[] = {&op_sum, &op_mean, &op_max};
    for (int o = 0; o < 3; o++)
        for (attrs.keep = 0; attrs.keep < 2; attrs.keep++)
            check_reduce(ops[o], &attrs, shape);
}

Test(reduce, any_set_of_axes_on_every_layout, .timeout = 120)
{
    check_all((reduce_attrs){0}, SHAPE());
    check_all((reduce_attrs){0}, SHAPE(1000));
    check_all((reduce_attrs){0}, SHAPE(3, 5, 7));
    check_all((reduce_attrs){{0}, 1, 0}, SHAPE(70, 300));
    check_all((reduce_attrs){{-1}, 1, 0}, SHAPE(70, 300));
    check_all((reduce_attrs){{1}, 1, 0}, SHAPE(5, 40, 6));
    check_all((reduce_attrs){{2, 0}, 2, 0}, SHAPE(5, 40, 6));
    check_all((reduce_attrs){{-1, 1}, 2, 0}, SHAPE(2, 3, 4, 5));
    check_all((reduce_attrs){{1, 3, 5}, 3, 0}, SHAPE(2, 3, 2, 3, 2, 3));
    check_all((reduce_attrs){{0, 2, 4}, 3, 0}, SHAPE(2, 3, 2, 3, 2, 3));
    check_all((reduce_attrs){{1}, 1, 0}, SHAPE(2, 1, 3));
}

Test(reduce, a_long_sum_keeps_its_digits)
{
    reduce_attrs all = {0};
    kernel_check c = kernel_check_new(&op_sum, &all, SEED);
    weir_view *x = kernel_check_in(&c, WEIR_F32, SHAPE(1 << 22));
    for (int i = 0; i < 1 << 22; i++)
        ((float *)x->data)[i] = 0.1f;
    kernel_check_run(&c);
    kernel_check_near(&c, 0, ref_reduce, 5e-7);
    kernel_check_free(&c);
}

Test(reduce, a_sum_is_partial_over_what_is_reduced_and_a_maximum_is_not)
{
    reduce_attrs last = {{-1}, 1, 0};
    const weir_op *ops[] = {&op_sum, &op_mean, &op_max};
    const int signatures[] = {1 + 1 + 1, 1 + 1 + 1, 1}; /* S -> S, S -> P, P -> P */
    for (int o = 0; o < 3; o++) {
        kernel_check c = kernel_check_new(ops[o], &last, SEED);
        kernel_check_in(&c, WEIR_F32, SHAPE(4, 6));
        kernel_check_run(&c);
        cr_assert_eq(shard_check(&c, 2, 1e-5), signatures[o], "%s", ops[o]->name);
        kernel_check_free(&c);
    }
}

Test(reduce, nan_is_the_largest)
{
    reduce_attrs last = {{-1}, 1, 0}, first = {{0}, 1, 0};
    for (int at = 0; at < 40; at += 13) {
        kernel_check c = kernel_check_new(&op_max, &last, SEED), d = kernel_check_new(&op_max, &first, SEED),
                     e = kernel_check_new(&op_argmax, NULL, SEED);
        ((float *)kernel_check_in(&c, WEIR_F32, SHAPE(1, 40))->data)[at] = NAN;
        ((float *)kernel_check_in(&d, WEIR_F32, SHAPE(40, 1))->data)[at] = NAN;
        ((float *)kernel_check_in(&e, WEIR_F32, SHAPE(1, 40))->data)[at] = NAN;
        kernel_check_run(&c);
        kernel_check_run(&d);
        kernel_check_run(&e);
        cr_assert(isnan(kernel_at(&c.out[0], 0)) && isnan(kernel_at(&d.out[0], 0)));
        cr_assert_eq(kernel_at(&e.out[0], 0), at);
        kernel_check_free(&c);
        kernel_check_free(&d);
        kernel_check_free(&e);
    }
}

Test(reduce, wrong_axes_are_refused)
{
    const weir_type x = {WEIR_F32, SHAPE(2, 3)}, labels = {WEIR_I32, SHAPE(2, 3)};
    reduce_attrs far = {{2}, 1, 0}, twice = {{1, -1}, 2, 0};
    kernel_check_refuses(&op_sum, &far, &x, 1, "axis 2 is not one of the 2 dimensions");
    kernel_check_refuses(&op_sum, &twice, &x, 1, "axis -1 is named twice");
    kernel_check_refuses(&op_mean, &(reduce_attrs){0}, &labels, 1, "input 0 is i32");
}

/* ---- the gradient of max ---- */

static void ref_max_grad(const kernel_check *c, int out, double *want)
{
    int64_t from = weir_shape_count(&c->out[out].shape);
    double *count = calloc((size_t)weir_shape_count(&c->in[1].shape), sizeof *count);
    cr_assert_not_null(count);
    for (int64_t i = 0; i < from; i++)
        count[home_of(c, i)] += kernel_at(&c->in[0], i) == kernel_at(&c->in[1], home_of(c, i));
    for (int64_t i = 0; i < from; i++) {
        int64_t at = home_of(c, i);
        if (kernel_at(&c->in[0], i) == kernel_at(&c->in[1], at))
            want[i] = kernel_at(&c->in[2], at) / count[at];
    }
    free(count);
}

/* Small whole numbers, so that there are equal ones. */
static void make_ties(weir_view *view, float *x)
{
    for (int64_t i = 0; i < weir_shape_count(&view->shape); i++)
        x[i] = roundf(x[i]);
}

Test(reduce, equal_maxima_share_the_gradient)
{
    const reduce_attrs cases[] = {{{0}, 0, 0}, {{0}, 1, 0}, {{1}, 1, 1}, {{2}, 1, 0}, {{0, 2}, 2, 1}};
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        kernel_check y = kernel_check_new(&op_max, &cases[n], SEED);
        kernel_check c = kernel_check_new(&op_max_grad, &cases[n], SEED);
        weir_view *x = kernel_check_in(&y, WEIR_F32, SHAPE(4, 5, 6));
        make_ties(x, x->data);
        kernel_check_run(&y);
        x = kernel_check_in(&c, WEIR_F32, SHAPE(4, 5, 6));
        make_ties(x, x->data);
        weir_view *most = kernel_check_in(&c, WEIR_F32, y.out[0].shape);
        for (int64_t i = 0; i < weir_shape_count(&most->shape); i++)
            ((float *)most->data)[i] = (float)kernel_at(&y.out[0], i);
        kernel_check_in(&c, WEIR_F32, y.out[0].shape);
        kernel_check_run(&c);
        kernel_check_near(&c, 0, ref_max_grad, 1e-6);
        cr_assert_geq(shard_check(&c, 2, 1e-5), 1);
        shard_check(&c, 3, 1e-5);
        kernel_check_free(&c);
        kernel_check_free(&y);
    }
}

/* ---- sum_to ---- */

static void ref_sum_to(const kernel_check *c, int out, double *want)
{
    const weir_shape *in = &c->in[0].shape, *to = &c->out[out].shape;
    for (int64_t i = 0; i < weir_shape_count(in); i++) {
        int64_t at = 0, step = 1, rest = i;
        for (int d = in->rank - 1, own = to->rank - 1; own >= 0; d--, own--) {
            at += (to->dim[own] == 1 ? 0 : rest % in->dim[d]) * step;
            step *= to->dim[own];
            rest /= in->dim[d];
        }
        want[at] += kernel_at(&c->in[0], i);
    }
}

static void check_sum_to(weir_shape from, weir_shape to)
{
    shape_attrs attrs = shape_attrs_of(&to);
    kernel_check c = kernel_check_new(&op_sum_to, &attrs, SEED);
    kernel_check_in(&c, WEIR_F32, from);
    kernel_check_run(&c);
    kernel_check_near(&c, 0, ref_sum_to, 2e-6);
    shard_check(&c, 2, 1e-5);
    shard_check(&c, 3, 1e-5);
    kernel_check_free(&c);
}

Test(reduce, sum_to_undoes_a_broadcast_on_every_layout)
{
    check_sum_to(SHAPE(70, 300), SHAPE(300));
    check_sum_to(SHAPE(70, 300), SHAPE(70, 1));
    check_sum_to(SHAPE(7, 3), SHAPE());
    check_sum_to(SHAPE(4, 5, 6), SHAPE(5, 1));
    check_sum_to(SHAPE(4, 5, 6), SHAPE(4, 1, 6));
    check_sum_to(SHAPE(2, 3, 2, 3, 2, 3), SHAPE(3, 1, 3, 1, 3));
    check_sum_to(SHAPE(5, 1, 2), SHAPE(1, 2));
    shape_attrs wrong = {{4}, 1};
    kernel_check_refuses(&op_sum_to, &wrong, &(weir_type){WEIR_F32, SHAPE(2, 3)}, 1, "shape [4] is no sum of [2, 3]");
    kernel_check_refuses(&op_sum_to, &wrong, &(weir_type){WEIR_F32, SHAPE(1)}, 1, "shape [4] is no sum of [1]");
}

/* ---- softmax ---- */

static void ref_softmax(const kernel_check *c, int out, double *want)
{
    const weir_shape *shape = &c->out[out].shape;
    int64_t last = shape->dim[shape->rank - 1], rows = weir_shape_count(shape) / last;
    for (int64_t r = 0; r < rows; r++) {
        double most = -INFINITY, sum = 0;
        for (int64_t i = 0; i < last; i++)
            most = fmax(most, kernel_at(&c->in[0], r * last + i));
        for (int64_t i = 0; i < last; i++)
            sum += exp(kernel_at(&c->in[0], r * last + i) - most);
        for (int64_t i = 0; i < last; i++)
            want[r * last + i] = exp(kernel_at(&c->in[0], r * last + i) - most) / sum;
    }
}

Test(reduce, softmax_rows_sum_to_one_and_are_never_split, .timeout = 120)
{
    const weir_shape shapes[] = {SHAPE(1), SHAPE(5), SHAPE(3, 33), SHAPE(2, 3, 1000)};
    for (int n = 0; n < 4; n++) {
        kernel_check c = kernel_check_new(&op_softmax, NULL, SEED);
        weir_view *x = kernel_check_in(&c, WEIR_F32, shapes[n]);
        ((float *)x->data)[0] = 1000; /* must not overflow */
        kernel_check_run(&c);
        kernel_check_near(&c, 0, ref_softmax, 1e-6);
        cr_assert_eq(shard_check(&c, 2, 0), shapes[n].rank - 1);
        cr_assert_eq(shard_check(&c, 3, 0), shapes[n].rank - 1);
        kernel_check_free(&c);
    }
    kernel_check_refuses(&op_softmax, NULL, &(weir_type){WEIR_F32, SHAPE()}, 1, "a scalar has no last dimension");
}

static void ref_softmax_grad(const kernel_check *c, int out, double *want)
{
    const weir_shape *shape = &c->out[out].shape;
    int64_t last = shape->dim[shape->rank - 1], rows = weir_shape_count(shape) / last;
    for (int64_t r = 0; r < rows; r++) {
        double dot = 0;
        for (int64_t i = r * last; i < (r + 1) * last; i++)
            dot += kernel_at(&c->in[0], i) * kernel_at(&c->in[1], i);
        for (int64_t i = r * last; i < (r + 1) * last; i++)
            want[i] = kernel_at(&c->in[0], i) * (kernel_at(&c->in[1], i) - dot);
    }
}

Test(reduce, softmax_gradient_on_every_layout)
{
    kernel_check c = kernel_check_new(&op_softmax_grad, NULL, SEED);
    weir_view *y = kernel_check_in(&c, WEIR_F32, SHAPE(2, 5, 100));
    for (int i = 0; i < 1000; i++)
        ((float *)y->data)[i] = (float)(i % 100) / 4950;
    kernel_check_in(&c, WEIR_F32, SHAPE(2, 5, 100));
    kernel_check_run(&c);
    kernel_check_near(&c, 0, ref_softmax_grad, 1e-6);
    cr_assert_eq(shard_check(&c, 2, 1e-6), 3);
    cr_assert_eq(shard_check(&c, 3, 1e-6), 3);
    kernel_check_free(&c);
}

/* ---- argmax ---- */

static void ref_argmax(const kernel_check *c, int out, double *want)
{
    int64_t rows = weir_shape_count(&c->out[out].shape), last = weir_shape_count(&c->in[0].shape) / rows;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 1; i < last; i++)
            if (kernel_at(&c->in[0], r * last + i) > kernel_at(&c->in[0], r * last + (int64_t)want[r]))
                want[r] = (double)i;
}

Test(reduce, argmax_gives_the_first_of_equals)
{
    const weir_shape shapes[] = {SHAPE(1), SHAPE(50), SHAPE(7, 33), SHAPE(2, 3, 4)};
    for (int n = 0; n < 4; n++) {
        kernel_check c = kernel_check_new(&op_argmax, NULL, SEED);
        weir_view *x = kernel_check_in(&c, WEIR_F32, shapes[n]);
        make_ties(x, x->data);
        kernel_check_run(&c);
        cr_assert_eq(c.out[0].dtype, WEIR_I32);
        kernel_check_near(&c, 0, ref_argmax, 0);
        cr_assert_eq(shard_check(&c, 3, 0), shapes[n].rank - 1);
        kernel_check_free(&c);
    }
}
