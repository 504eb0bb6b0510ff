/* Constants, ranges, slices by steps, products of elements, and what is made of them, against index arithmetic in double precision, and
 * every signature on 2 and 3 devices. */
#include "kernels/common/ops.h"
#include "kernels/reduce/reduce.h"
#include "kernels/shape/fill.h"
#include "kernels/shape/shape.h"
#include "tests/support/kernel_check.h"
#include "tests/support/shard_check.h"

#include <criterion/criterion.h>
#include <math.h>

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
