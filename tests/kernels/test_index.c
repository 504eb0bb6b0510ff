/* Constants, ranges, slices by steps, products of elements, elements by ids, and what is made of them, against index arithmetic in double precision, and
 * every signature on 2 and 3 devices. */
#include "kernels/common/ops.h"
#include "kernels/index/index.h"
#include "kernels/index/lines.h"
#include "kernels/index/resize.h"
#include "kernels/reduce/reduce.h"
#include "kernels/shape/fill.h"
#include "kernels/shape/shape.h"
#include "tests/support/kernel_check.h"
#include "tests/support/shard_check.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

TestSuite(index, .timeout = 60);

enum { SEED = 2718 };

static void unravel(const weir_shape *shape, int64_t i, int64_t *index)
{
    for (int d = shape->rank - 1; d >= 0; d--) {
        index[d] = i % shape->dim[d];
        i /= shape->dim[d];
    }
}

static int64_t ravel(const weir_shape *shape, const int64_t *index)
{
    int64_t at = 0;
    for (int d = 0; d < shape->rank; d++)
        at = at * shape->dim[d] + index[d];
    return at;
}

/* Runs the op, holds output 0 against the reference and plays all signatures; `splits` of them on 2 devices, -1: any number. Takes
 * the check over. */
static void hold(kernel_check *c, kernel_reference reference, double tolerance, int splits)
{
    kernel_check_run(c);
    kernel_check_near(c, 0, reference, tolerance);
    const int played = shard_check(c, 2, 1e-5);
    cr_expect(splits < 0 || played == splits, "%s: %d signatures", c->op->name, played);
    shard_check(c, 3, 1e-5);
    kernel_check_free(c);
}

/* ---- without inputs ---- */

static void ref_constant(const kernel_check *c, int out, double *want)
{
    for (int64_t i = 0; i < weir_shape_count(&c->out[out].shape); i++)
        want[i] = ((const constant_attrs *)c->attrs)->value;
}

static void ref_range(const kernel_check *c, int out, double *want)
{
    const steps_attrs *attrs = c->attrs;
    for (int64_t i = 0; i < weir_shape_count(&c->out[out].shape); i++)
        want[i] = attrs->start + attrs->step * (double)i;
}

Test(index, a_constant_and_a_range_fill_each_shard)
{
    for (int dtype = WEIR_F32; dtype < WEIR_DTYPES; dtype++) {
        const constant_attrs value = {{5, 7}, 2, dtype, 3}, scalar = {{0}, 0, dtype, 1};
        const steps_attrs steps = {dtype, 7, 2, 3}, one = {dtype, 1, 9, 2.5};
        kernel_check c = kernel_check_new(&op_constant, &value, SEED), d = kernel_check_new(&op_constant, &scalar, SEED);
        hold(&c, ref_constant, 0, 2);
        hold(&d, ref_constant, 0, 0);
        c = kernel_check_new(&op_range, &steps, SEED);
        d = kernel_check_new(&op_range, &one, SEED);
        hold(&c, ref_range, 0, 1);
        hold(&d, ref_range, 0, 1);
    }
    const steps_attrs real = {WEIR_F32, 11, 0.1, -0.3};
    kernel_check c = kernel_check_new(&op_range, &real, SEED);
    hold(&c, ref_range, 1e-7, 1);
}

Test(index, numbers_that_a_dtype_does_not_have_are_refused)
{
    const constant_attrs half = {{2}, 1, WEIR_I32, 2.5}, below = {{2}, 1, WEIR_U8, -1}, nan = {{2}, 1, WEIR_I32, NAN},
                         none = {{2}, 1, 99, 0}, negative = {{-2}, 1, WEIR_F32, 0};
    const steps_attrs empty = {WEIR_F32, 0, 0, 1}, high = {WEIR_U8, 300, 0, 1}, uneven = {WEIR_I32, 3, 0, 0.5};
    kernel_check_refuses(&op_constant, &half, NULL, 0, "2.5 is no i32: it must be a whole number from -2147483648 to 2147483647");
    kernel_check_refuses(&op_constant, &below, NULL, 0, "-1 is no u8: it must be a whole number from 0 to 255");
    kernel_check_refuses(&op_constant, &nan, NULL, 0, "nan is no i32");
    kernel_check_refuses(&op_constant, &none, NULL, 0, "there is no dtype 99");
    kernel_check_refuses(&op_constant, &negative, NULL, 0, "dimension 0 is -2");
    kernel_check_refuses(&op_range, &empty, NULL, 0, "a range of 0 numbers: it must have at least 1");
    kernel_check_refuses(&op_range, &high, NULL, 0, "299 is no u8");
    kernel_check_refuses(&op_range, &uneven, NULL, 0, "a step of 0.5 between numbers that are i32: it must be a whole number");
}

/* ---- slices by steps ---- */

static void ref_slice_step(const kernel_check *c, int out, double *want)
{
    const step_attrs *attrs = c->attrs;
    const int axis = (int)(attrs->axis < 0 ? attrs->axis + c->in[0].shape.rank : attrs->axis);
    for (int64_t i = 0; i < weir_shape_count(&c->out[out].shape); i++) {
        int64_t index[WEIR_DIMS_MAX];
        unravel(&c->out[out].shape, i, index);
        index[axis] = attrs->first + attrs->step * index[axis];
        want[i] = kernel_at(&c->in[0], ravel(&c->in[0].shape, index));
    }
}

static void ref_place_step(const kernel_check *c, int out, double *want)
{
    const step_attrs *attrs = c->attrs;
    const int axis = (int)(attrs->axis < 0 ? attrs->axis + c->in[0].shape.rank : attrs->axis);
    for (int64_t i = 0; i < weir_shape_count(&c->in[0].shape); i++) {
        int64_t index[WEIR_DIMS_MAX];
        unravel(&c->in[0].shape, i, index);
        index[axis] = attrs->first + attrs->step * index[axis];
        want[ravel(&c->out[out].shape, index)] = kernel_at(&c->in[0], i);
    }
}

static void check_step(weir_dtype dtype, step_attrs attrs)
{
    weir_shape shape = SHAPE(4, 3, 5);
    const int axis = (int)(attrs.axis < 0 ? attrs.axis + 3 : attrs.axis);
    const int splits = 2 + weir_dtype_real(dtype);
    kernel_check c = kernel_check_new(&op_slice_step, &attrs, SEED), d = kernel_check_new(&op_place_step, &attrs, SEED);
    shape.dim[axis] = attrs.size;
    kernel_check_in(&c, dtype, shape);
    shape.dim[axis] = attrs.count;
    kernel_check_in(&d, dtype, shape);
    hold(&c, ref_slice_step, 0, splits);
    hold(&d, ref_place_step, 0, splits);
}

Test(index, slices_by_steps_go_forwards_and_backwards_on_every_layout)
{
    for (int dtype = WEIR_F32; dtype < WEIR_DTYPES; dtype++)
        for (int axis = -1; axis < 2; axis++) {
            check_step((weir_dtype)dtype, (step_attrs){axis, 1, 3, 2, 7});
            check_step((weir_dtype)dtype, (step_attrs){axis, 6, 7, -1, 7});
            check_step((weir_dtype)dtype, (step_attrs){axis, 4, 2, -4, 5});
            check_step((weir_dtype)dtype, (step_attrs){axis, 0, 1, 100, 1});
        }
}

Test(index, steps_outside_are_refused)
{
    const weir_type x = {WEIR_F32, SHAPE(4, 7)};
    const step_attrs far = {1, 2, 4, 2, 7}, back = {1, 3, 3, -2, 7}, none = {1, 0, 1, 0, 7}, least = {1, 0, 1, INT64_MIN, 7},
                     other = {0, 0, 1, 2, 7}, axis = {2, 0, 1, 2, 7}, empty = {1, 0, 0, 2, 7}, first = {1, 7, 1, 2, 7},
                     huge = {1, 0, INT64_MAX, 1, 7};
    kernel_check_refuses(&op_slice_step, &far, &x, 1,
                         "4 elements from 2 on with a step of 2 are not all within the dimension, which has 7");
    kernel_check_refuses(&op_slice_step, &back, &x, 1, "3 elements from 3 on with a step of -2 are not all within");
    kernel_check_refuses(&op_slice_step, &none, &x, 1, "a step of 0: it must not be 0");
    kernel_check_refuses(&op_slice_step, &least, &x, 1, "a step of -9223372036854775808: it must not be 0");
    kernel_check_refuses(&op_slice_step, &other, &x, 1, "dimension 0 has 4 elements, not 7");
    kernel_check_refuses(&op_slice_step, &axis, &x, 1, "axis 2 is not one of the 2 dimensions");
    kernel_check_refuses(&op_slice_step, &empty, &x, 1, "0 elements from 0 on");
    kernel_check_refuses(&op_slice_step, &first, &x, 1, "1 elements from 7 on");
    kernel_check_refuses(&op_slice_step, &huge, &x, 1, "are not all within");
    kernel_check_refuses(&op_place_step, &far, &x, 1, "dimension 1 has 7 elements, not 4");
}

Test(index, an_expansion_is_of_any_dtype)
{
    const shape_attrs attrs = {{2, 5, 7}, 3};
    for (int dtype = WEIR_F32; dtype < WEIR_DTYPES; dtype++) {
        kernel_check c = kernel_check_new(&op_broadcast_to, &attrs, SEED);
        const weir_view *x = kernel_check_in(&c, (weir_dtype)dtype, SHAPE(5, 1));
        kernel_check_run(&c);
        for (int64_t i = 0; i < 70; i++)
            cr_assert_eq(kernel_at(&c.out[0], i), kernel_at(x, i / 7 % 5));
        cr_expect_eq(shard_check(&c, 2, 1e-6), 3 + weir_dtype_real((weir_dtype)dtype));
        shard_check(&c, 3, 1e-6);
        kernel_check_free(&c);
    }
}

/* ---- products of elements ---- */

/* The product to which element i of the input belongs. */
static int64_t home_of(const kernel_check *c, int64_t i)
{
    const reduce_attrs *attrs = c->attrs;
    const unsigned mask = reduced_mask(attrs, c->in[0].shape.rank);
    int64_t index[WEIR_DIMS_MAX], at = 0;
    unravel(&c->in[0].shape, i, index);
    for (int d = 0; d < c->in[0].shape.rank; d++)
        at = mask >> d & 1 ? at : at * c->in[0].shape.dim[d] + index[d];
    return at;
}

static void ref_prod(const kernel_check *c, int out, double *want)
{
    for (int64_t i = 0; i < weir_shape_count(&c->out[out].shape); i++)
        want[i] = 1;
    for (int64_t i = 0; i < weir_shape_count(&c->in[0].shape); i++)
        want[home_of(c, i)] *= kernel_at(&c->in[0], i);
}

static void ref_prod_grad(const kernel_check *c, int out, double *want)
{
    const int64_t count = weir_shape_count(&c->out[out].shape);
    for (int64_t i = 0; i < count; i++) {
        want[i] = kernel_at(&c->in[1], home_of(c, i));
        for (int64_t j = 0; j < count; j++)
            want[i] *= j != i && home_of(c, j) == home_of(c, i) ? kernel_at(&c->in[0], j) : 1;
    }
}

static void check_prod(weir_dtype dtype, reduce_attrs attrs, weir_shape shape)
{
    const int kept = shape.rank - (attrs.axis_count ? (int)attrs.axis_count : shape.rank);
    kernel_check c = kernel_check_new(&op_prod, &attrs, SEED), d = kernel_check_new(&op_prod_grad, &attrs, SEED);
    kernel_check_in(&c, dtype, shape);
    const weir_view *x = kernel_check_in(&d, dtype, shape);
    for (int64_t i = 0; i < weir_shape_count(&shape); i += 11)
        kernel_set(x, i, 0); /* the other terms have gradients, or not, if there are more */
    kernel_check_run(&c);
    kernel_check_in(&d, WEIR_F32, c.out[0].shape);
    kernel_check_near(&c, 0, ref_prod, 1e-6);
    cr_expect_eq(shard_check(&c, 2, 1e-5), kept);
    shard_check(&c, 3, 1e-5);
    kernel_check_free(&c);
    hold(&d, ref_prod_grad, 1e-6, kept + 1);
}

Test(index, products_go_over_any_axes_on_every_layout)
{
    const weir_dtype dtypes[] = {WEIR_F32, WEIR_F16, WEIR_BF16};
    for (int t = 0; t < 3; t++)
        for (int keep = 0; keep < 2; keep++) {
            check_prod(dtypes[t], (reduce_attrs){{0}, 0, keep}, SHAPE());
            check_prod(dtypes[t], (reduce_attrs){{0}, 0, keep}, SHAPE(3, 5));
            check_prod(dtypes[t], (reduce_attrs){{-1}, 1, keep}, SHAPE(5, 7));
            check_prod(dtypes[t], (reduce_attrs){{0}, 1, keep}, SHAPE(7, 5));
            check_prod(dtypes[t], (reduce_attrs){{1}, 1, keep}, SHAPE(3, 5, 4));
            check_prod(dtypes[t], (reduce_attrs){{2, 0}, 2, keep}, SHAPE(3, 5, 2));
        }
    const weir_type wrong[2] = {{WEIR_F32, SHAPE(2, 3)}, {WEIR_F32, SHAPE(3)}};
    kernel_check_refuses(&op_prod_grad, &(reduce_attrs){{-1}, 1, 0}, wrong, 2,
                         "input 1 is f32 of shape [3], not f32 of that of the product");
}

/* ---- elements and slices by ids ---- */

/* Ids of places among `size`, some of them from the end. */
static void fill_ids(const weir_view *ids, int64_t size, uint64_t *random)
{
    for (int64_t i = 0; i < weir_shape_count(&ids->shape); i++)
        kernel_set(ids, i, floor((kernel_random(random) * 2 - 1) * (double)size));
}

/* The element of x to which element n of y belongs. */
static int64_t place_of_gather(const index_attrs *attrs, const weir_view *x, const weir_view *ids, const weir_view *y, int64_t n)
{
    const int axis = (int)(attrs->axis < 0 ? attrs->axis + x->shape.rank : attrs->axis);
    int64_t at[WEIR_DIMS_MAX] = {0}, index[WEIR_DIMS_MAX] = {0};
    unravel(&y->shape, n, at);
    for (int d = 0; d < x->shape.rank; d++)
        index[d] = d == axis ? 0 : at[d < axis ? d : d - 1 + ids->shape.rank];
    const int64_t id = (int64_t)kernel_at(ids, ravel(&ids->shape, at + axis));
    index[axis] = id < 0 ? id + x->shape.dim[axis] : id;
    return ravel(&x->shape, index);
}

static int64_t place_of_nd(const index_attrs *attrs, const weir_view *x, const weir_view *ids, const weir_view *y, int64_t n)
{
    const int lead = ids->shape.rank - 1, parts = (int)ids->shape.dim[lead], batch = (int)attrs->axis;
    int64_t at[WEIR_DIMS_MAX] = {0}, of[WEIR_DIMS_MAX] = {0}, index[WEIR_DIMS_MAX] = {0};
    unravel(&y->shape, n, at);
    for (int d = 0; d < lead; d++)
        of[d] = at[d];
    for (int d = 0; d < x->shape.rank; d++) {
        of[lead] = d - batch;
        const bool told = d >= batch && d < batch + parts;
        const int64_t id = told ? (int64_t)kernel_at(ids, ravel(&ids->shape, of)) : 0;
        index[d] = told ? (id < 0 ? id + x->shape.dim[d] : id) : d < batch ? at[d] : at[lead + d - batch - parts];
    }
    return ravel(&x->shape, index);
}

static int64_t place_of_elements(const index_attrs *attrs, const weir_view *x, const weir_view *ids, const weir_view *y, int64_t n)
{
    const int axis = (int)(attrs->axis < 0 ? attrs->axis + x->shape.rank : attrs->axis);
    int64_t index[WEIR_DIMS_MAX] = {0};
    unravel(&y->shape, n, index);
    const int64_t id = (int64_t)kernel_at(ids, n);
    index[axis] = id < 0 ? id + x->shape.dim[axis] : id;
    return ravel(&x->shape, index);
}

typedef int64_t (*place_fn)(const index_attrs *attrs, const weir_view *x, const weir_view *ids, const weir_view *y, int64_t n);
static place_fn place; /* of the op that is held */

static void ref_picked(const kernel_check *c, int out, double *want)
{
    for (int64_t n = 0; n < weir_shape_count(&c->out[out].shape); n++)
        want[n] = kernel_at(&c->in[0], place(c->attrs, &c->in[0], &c->in[1], &c->out[out], n));
}

static void ref_summed(const kernel_check *c, int out, double *want)
{
    for (int64_t n = 0; n < weir_shape_count(&c->in[1].shape); n++)
        want[place(c->attrs, &c->out[out], &c->in[0], &c->in[1], n)] += kernel_at(&c->in[1], n);
}

/* Both the op and its gradient; `size`: the least of the indexed dimensions. */
static void check_indexed(place_fn at, const weir_op *op, const weir_op *grad, index_attrs attrs, weir_dtype dtype, weir_shape x,
                          weir_shape ids, int64_t size)
{
    index_grad_attrs grad_attrs = {.axis = attrs.axis, .rank = x.rank};
    kernel_check c = kernel_check_new(op, &attrs, SEED), d = kernel_check_new(grad, &grad_attrs, SEED);
    uint64_t random = SEED;
    place = at;
    memcpy(grad_attrs.dim, x.dim, sizeof x.dim);
    kernel_check_in(&c, dtype, x);
    fill_ids(kernel_check_in(&c, x.rank % 2 ? WEIR_I64 : WEIR_I32, ids), size, &random);
    kernel_check_run(&c);
    kernel_check_near(&c, 0, ref_picked, 0);
    shard_check(&c, 2, 1e-6);
    shard_check(&c, 3, 1e-6);
    if (weir_dtype_real(dtype)) {
        fill_ids(kernel_check_in(&d, x.rank % 2 ? WEIR_I64 : WEIR_I32, ids), size, &random);
        kernel_check_in(&d, dtype, c.out[0].shape);
        hold(&d, ref_summed, 1e-6, -1);
    }
    kernel_check_free(&c);
}

Test(index, slices_are_picked_along_any_axis_on_every_layout)
{
    for (int dtype = WEIR_F32; dtype < WEIR_DTYPES; dtype++) {
        const weir_dtype t = (weir_dtype)dtype;
        check_indexed(place_of_gather, &op_gather, &op_gather_grad, (index_attrs){0}, t, SHAPE(5, 7), SHAPE(3, 4), 5);
        check_indexed(place_of_gather, &op_gather, &op_gather_grad, (index_attrs){1}, t, SHAPE(2, 5, 3), SHAPE(7), 5);
        check_indexed(place_of_gather, &op_gather, &op_gather_grad, (index_attrs){-1}, t, SHAPE(3, 2, 5), SHAPE(4, 2), 5);
        check_indexed(place_of_gather, &op_gather, &op_gather_grad, (index_attrs){1}, t, SHAPE(3, 5), SHAPE(), 5);
    }
    check_indexed(place_of_gather, &op_gather, &op_gather_grad, (index_attrs){0}, WEIR_F32, SHAPE(40, 5), SHAPE(1100), 40);
}

Test(index, elements_of_several_dimensions_are_picked_on_every_layout)
{
    for (int dtype = WEIR_F32; dtype < WEIR_DTYPES; dtype++) {
        const weir_dtype t = (weir_dtype)dtype;
        check_indexed(place_of_nd, &op_gather_nd, &op_gather_nd_grad, (index_attrs){0}, t, SHAPE(5, 6, 3), SHAPE(7, 2), 5);
        check_indexed(place_of_nd, &op_gather_nd, &op_gather_nd_grad, (index_attrs){0}, t, SHAPE(4, 5), SHAPE(2, 3, 2), 4);
        check_indexed(place_of_nd, &op_gather_nd, &op_gather_nd_grad, (index_attrs){1}, t, SHAPE(3, 5, 4), SHAPE(3, 6, 1), 5);
        check_indexed(place_of_nd, &op_gather_nd, &op_gather_nd_grad, (index_attrs){0}, t, SHAPE(5, 2), SHAPE(1), 5);
    }
}

Test(index, elements_are_picked_along_an_axis_on_every_layout)
{
    for (int dtype = WEIR_F32; dtype < WEIR_DTYPES; dtype++) {
        const weir_dtype t = (weir_dtype)dtype;
        check_indexed(place_of_elements, &op_gather_elements, &op_gather_elements_grad, (index_attrs){0}, t, SHAPE(5, 7),
                      SHAPE(6, 7), 5);
        check_indexed(place_of_elements, &op_gather_elements, &op_gather_elements_grad, (index_attrs){-1}, t, SHAPE(3, 4, 5),
                      SHAPE(3, 2, 7), 5);
        check_indexed(place_of_elements, &op_gather_elements, &op_gather_elements_grad, (index_attrs){1}, t, SHAPE(4, 5, 3),
                      SHAPE(2, 5, 3), 5);
    }
}

/* The kernel refuses element [1, 1] of the ids, with this sentence. */
static void expect_id_refused(const weir_op *op, const void *attrs, weir_dtype dtype, const weir_shape *shapes, int64_t id,
                              const char *sentence)
{
    const bool grad = op->in_min == 2 && op->accumulates;
    char error[256] = "";
    weir_type in[2], out = {0};
    weir_view views[2], y;
    for (int i = 0; i < 2; i++) {
        in[i] = (weir_type){i == (grad ? 0 : 1) ? dtype : WEIR_F32, shapes[i]};
        views[i] = kernel_view_new(in[i], 0);
    }
    kernel_set(&views[grad ? 0 : 1], 3, (double)id);
    kernel_check_infers(op, attrs, in, 2, &out);
    y = kernel_view_new(out, 0);
    const weir_op_args rule = {op, in, 2, &out, 1, attrs};
    const size_t bytes = op->workspace ? op->workspace(&rule, kernel_check_kind()) : 0;
    void *workspace = aligned_alloc(64, (bytes + 64) / 64 * 64);
    const weir_kernel_args args = {.in = views, .in_count = 2, .out = &y, .out_count = 1, .attrs = attrs, .workspace = workspace,
                                   .workspace_bytes = bytes, .error = error, .error_bytes = sizeof error};
    cr_expect_eq(kernel_check_kernel(op)(&args), WEIR_E_KERNEL, "%s", op->name);
    cr_expect_str_eq(error, sentence);
    free(workspace);
    kernel_view_free(&y);
    for (int i = 0; i < 2; i++)
        kernel_view_free(&views[i]);
}

Test(index, ids_out_of_range_are_refused)
{
    const index_attrs first = {0}, last = {1};
    const index_grad_attrs of_first = {0, {5, 6}, 2}, of_last = {1, {5, 6}, 2};
    const weir_shape x = SHAPE(5, 6), ids = SHAPE(2, 2), y = SHAPE(2, 2, 6), z = SHAPE(2), x_ids[] = {x, ids}, ids_y[] = {ids, y},
                     ids_ids[] = {ids, ids}, ids_z[] = {ids, z};
    expect_id_refused(&op_gather, &first, WEIR_I32, x_ids, 5, "id 5 at [1, 1] is not in -5..4");
    expect_id_refused(&op_gather, &first, WEIR_I64, x_ids, -6, "id -6 at [1, 1] is not in -5..4");
    expect_id_refused(&op_gather_grad, &of_first, WEIR_I32, ids_y, 5, "id 5 at [1, 1] is not in -5..4");
    expect_id_refused(&op_gather_nd, &first, WEIR_I32, x_ids, 6, "id 6 at [1, 1] is not in -6..5");
    expect_id_refused(&op_gather_nd_grad, &of_first, WEIR_I32, ids_z, -7, "id -7 at [1, 1] is not in -6..5");
    expect_id_refused(&op_gather_elements, &last, WEIR_I32, x_ids, 6, "id 6 at [1, 1] is not in -6..5");
    expect_id_refused(&op_gather_elements_grad, &of_last, WEIR_I64, ids_ids, INT64_C(1) << 40,
                      "id 2147483647 or more at [1, 1] is not in -6..5");
}

Test(index, wrong_ids_are_refused)
{
    const weir_type real[2] = {{WEIR_F32, SHAPE(5, 6)}, {WEIR_F32, SHAPE(2)}}, wide[2] = {{WEIR_F32, SHAPE(5, 6)}, {WEIR_I32, SHAPE(7, 7)}},
                    deep[2] = {{WEIR_F32, SHAPE(5, 6, 2)}, {WEIR_I32, SHAPE(1, 1, 1, 1, 1)}},
                    batches[2] = {{WEIR_F32, SHAPE(5, 6)}, {WEIR_I32, SHAPE(4, 1)}},
                    many[2] = {{WEIR_F32, SHAPE(5, 6)}, {WEIR_I32, SHAPE(4, 3)}};
    kernel_check_refuses(&op_gather, &(index_attrs){0}, real, 2, "ids are f32, not i32 or i64");
    kernel_check_refuses(&op_gather, &(index_attrs){2}, wide, 2, "axis 2 is not one of the 2 dimensions");
    kernel_check_refuses(&op_gather, &(index_attrs){0}, deep, 2, "the result would have more than 6 dimensions");
    kernel_check_refuses(&op_gather_nd, &(index_attrs){1}, batches, 2, "shapes [5, 6] and [4, 1] differ in batch dimension 0");
    kernel_check_refuses(&op_gather_nd, &(index_attrs){2}, batches, 2, "2 batch dimensions: x has 2 dimensions and the ids have 2");
    kernel_check_refuses(&op_gather_nd, &(index_attrs){0}, many, 2,
                         "the last dimension of the ids is 3: it must be 1 to 2, the dimensions of x behind the batch");
    kernel_check_refuses(&op_gather_elements, &(index_attrs){0}, wide, 2, "ids [7, 7] are not within x [5, 6] beside the axis");
    kernel_check_refuses(&op_gather_grad, &(index_grad_attrs){0, {5, 6}, 2}, wide, 2, "ids are f32, not i32 or i64");
    kernel_check_refuses(&op_gather_grad, &(index_grad_attrs){0, {5, 6}, 7}, wide, 2, "a tensor of 7 dimensions");
}

/* ---- other sizes ---- */

/* The weight of place s of the input in place j of the output. */
static double weight_of(const resize_attrs *a, int64_t s, int64_t j)
{
    const double most = (double)(a->size - 1);
    double at = ((double)j + 0.5) / a->scale - 0.5;
    if (a->coordinates == WEIR_COORDINATES_ASYMMETRIC)
        at = (double)j / a->scale;
    else if (a->coordinates == WEIR_COORDINATES_ALIGN_CORNERS)
        at = a->count > 1 ? (double)j * most / (double)(a->count - 1) : 0;
    else if (a->coordinates == WEIR_COORDINATES_PYTORCH_HALF_PIXEL && a->count == 1)
        at = 0;
    const double rounded[] = {ceil(at - 0.5), floor(at + 0.5), floor(at), ceil(at)};
    at = fmin(fmax(a->mode == WEIR_RESIZE_NEAREST ? rounded[a->round] : at, 0), most);
    return fmax(0, 1 - fabs(at - (double)s));
}

static void ref_resize(const kernel_check *c, int out, double *want)
{
    const resize_attrs *a = c->attrs;
    const bool grad = c->op == &op_resize_grad;
    for (int64_t n = 0; n < weir_shape_count(&c->out[out].shape); n++) {
        int64_t index[WEIR_DIMS_MAX];
        unravel(&c->out[out].shape, n, index);
        const int64_t own = index[a->axis];
        for (int64_t from = 0; from < c->in[0].shape.dim[a->axis]; from++) {
            index[a->axis] = from;
            want[n] += kernel_at(&c->in[0], ravel(&c->in[0].shape, index)) * (grad ? weight_of(a, own, from) : weight_of(a, from, own));
        }
    }
}

static void check_resize(weir_dtype dtype, resize_attrs attrs)
{
    weir_shape shape = SHAPE(3, 2, 5);
    kernel_check c = kernel_check_new(&op_resize, &attrs, SEED), d = kernel_check_new(&op_resize_grad, &attrs, SEED);
    const double exact = attrs.mode == WEIR_RESIZE_NEAREST ? 0 : 1e-6;
    shape.dim[attrs.axis] = attrs.size;
    kernel_check_in(&c, dtype, shape);
    hold(&c, ref_resize, exact, 2 + weir_dtype_real(dtype));
    if (!weir_dtype_real(dtype))
        return;
    shape.dim[attrs.axis] = attrs.count;
    kernel_check_in(&d, dtype, shape);
    hold(&d, ref_resize, 1e-6, 3);
}

Test(index, dimensions_are_resized_on_every_layout)
{
    for (int dtype = WEIR_F32; dtype < WEIR_DTYPES; dtype++)
        check_resize((weir_dtype)dtype, (resize_attrs){1, 3, 7, WEIR_RESIZE_NEAREST, 0, 0, 7.0 / 3});
    for (int coordinates = 0; coordinates < 4; coordinates++)
        for (int round = 0; round < 4; round++) {
            const int mode = round % 2;
            check_resize(WEIR_F32, (resize_attrs){0, 5, 3, mode, coordinates, round, 0.6});
            check_resize(WEIR_F32, (resize_attrs){2, 4, 8, mode, coordinates, round, 2});
            check_resize(WEIR_BF16, (resize_attrs){1, 3, 1, !mode, coordinates, round, 1.0 / 3});
        }
}

Test(index, wrong_sizes_are_refused)
{
    const weir_type x = {WEIR_F32, SHAPE(4, 6)}, ids = {WEIR_I32, SHAPE(4, 6)};
    const resize_attrs mode = {0, 4, 8, 2, 0, 0, 2}, coordinates = {0, 4, 8, 0, 4, 0, 2}, round = {0, 4, 8, 0, 0, -1, 2},
                       scale = {0, 4, 8, 0, 0, 0, 0}, size = {0, 5, 8, 0, 0, 0, 2}, none = {0, 4, 0, 0, 0, 0, 2},
                       linear = {0, 4, 8, 1, 0, 0, 2}, axis = {2, 4, 8, 0, 0, 0, 2};
    kernel_check_refuses(&op_resize, &mode, &x, 1, "mode 2: it must be WEIR_RESIZE_NEAREST or WEIR_RESIZE_LINEAR");
    kernel_check_refuses(&op_resize, &coordinates, &x, 1, "coordinates 4: they must be one of WEIR_COORDINATES_");
    kernel_check_refuses(&op_resize, &round, &x, 1, "rounding -1: it must be one of WEIR_ROUND_");
    kernel_check_refuses(&op_resize, &scale, &x, 1, "a scale of 0: it must be above 0");
    kernel_check_refuses(&op_resize, &size, &x, 1, "dimension 0 has 4 elements, not 5");
    kernel_check_refuses(&op_resize, &none, &x, 1, "a dimension of 4 becomes one of 0: both must be at least 1");
    kernel_check_refuses(&op_resize, &linear, &ids, 1, "input 0 is i32");
    kernel_check_refuses(&op_resize, &axis, &x, 1, "axis 2 is not one of the 2 dimensions");
}

/* ---- lines along an axis ---- */

static void ref_cumsum(const kernel_check *c, int out, double *want)
{
    const cumsum_attrs *a = c->attrs;
    const weir_shape *shape = &c->out[out].shape;
    for (int64_t n = 0; n < weir_shape_count(shape); n++) {
        int64_t index[WEIR_DIMS_MAX];
        unravel(shape, n, index);
        const int64_t own = index[a->axis];
        for (int64_t i = 0; i < shape->dim[a->axis]; i++) {
            index[a->axis] = i;
            if (i == own ? !a->exclusive : a->reverse ? i > own : i < own)
                want[n] += kernel_at(&c->in[0], ravel(shape, index));
        }
    }
}

Test(index, sums_run_along_any_axis_on_every_layout)
{
    const weir_dtype dtypes[] = {WEIR_F32, WEIR_F16, WEIR_BF16, WEIR_I32, WEIR_I64};
    for (int t = 0; t < 5; t++)
        for (int way = 0; way < 4; way++) {
            const cumsum_attrs attrs = {way % 3, way & 1, way >> 1};
            kernel_check c = kernel_check_new(&op_cumsum, &attrs, SEED);
            kernel_check_in(&c, dtypes[t], SHAPE(5, 7, 3));
            hold(&c, ref_cumsum, weir_dtype_real(dtypes[t]) ? 1e-6 : 0, 2 + weir_dtype_real(dtypes[t]));
        }
    const weir_type bytes = {WEIR_U8, SHAPE(5)}, x = {WEIR_F32, SHAPE(5)};
    kernel_check_refuses(&op_cumsum, &(cumsum_attrs){0, 0, 0}, &bytes, 1, "input 0 is u8, not f32, f16, bf16, i32 or i64");
    kernel_check_refuses(&op_cumsum, &(cumsum_attrs){1, 0, 0}, &x, 1, "axis 1 is not one of the 1 dimensions");
}

/* The place of each element is the number of those that come before it. */
static void ref_top_k(const kernel_check *c, int out, double *want)
{
    const top_k_attrs *a = c->attrs;
    const weir_shape *shape = &c->in[0].shape;
    for (int64_t n = 0; n < weir_shape_count(shape); n++) {
        int64_t index[WEIR_DIMS_MAX], to = 0;
        unravel(shape, n, index);
        const int64_t own = index[a->axis];
        for (int64_t i = 0; i < shape->dim[a->axis]; i++) {
            index[a->axis] = i;
            const double other = kernel_at(&c->in[0], ravel(shape, index)), x = kernel_at(&c->in[0], n);
            to += other > x || (isnan(other) && !isnan(x)) || ((other == x || (isnan(other) && isnan(x))) && i < own);
        }
        index[a->axis] = to;
        if (to < a->count)
            want[ravel(&c->out[out].shape, index)] = out ? (double)own : kernel_at(&c->in[0], n);
    }
}

Test(index, the_largest_come_first_and_of_equals_the_one_in_front)
{
    const weir_dtype dtypes[] = {WEIR_F32, WEIR_F16, WEIR_BF16};
    for (int t = 0; t < 3; t++)
        for (int axis = 0; axis < 3; axis++) {
            const top_k_attrs attrs = {axis, 1 + 2 * (axis % 2 + t % 2)};
            kernel_check c = kernel_check_new(&op_top_k, &attrs, SEED);
            const weir_view *x = kernel_check_in(&c, dtypes[t], SHAPE(5, 7, 6));
            for (int64_t i = 0; i < 5 * 7 * 6; i++)
                kernel_set(x, i, i % 41 ? round(2 * kernel_at(x, i)) : NAN);
            kernel_check_run(&c);
            for (int out = 0; out < 2; out++)
                kernel_check_near(&c, out, ref_top_k, 0);
            for (int64_t i = 0; i < 5 * 7 * 6; i++) /* NaN is not equal to itself when shards are compared */
                kernel_set(x, i, i % 41 ? kernel_at(x, i) : 9);
            kernel_check d = kernel_check_new(&op_top_k, &attrs, SEED);
            weir_view *same = kernel_check_in(&d, dtypes[t], SHAPE(5, 7, 6));
            memcpy(same->data, x->data, (size_t)(5 * 7 * 6) * weir_dtype_bytes(dtypes[t]));
            hold(&d, ref_top_k, 0, 2);
            kernel_check_free(&c);
        }
    const weir_type x = {WEIR_F32, SHAPE(4, 6)}, ids = {WEIR_I32, SHAPE(4)};
    kernel_check_refuses(&op_top_k, &(top_k_attrs){0, 5}, &x, 1, "the 5 largest of 4 elements: it must be 1 to all of them");
    kernel_check_refuses(&op_top_k, &(top_k_attrs){0, 0}, &x, 1, "the 0 largest of 4 elements");
    kernel_check_refuses(&op_top_k, &(top_k_attrs){0, 1}, &ids, 1, "input 0 is i32");
}
