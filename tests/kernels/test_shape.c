/* reshape, broadcast_to, transpose, slice, pad and concat against index arithmetic, and every signature on 2 and 3
 * devices. */
#include "kernels/common/ops.h"
#include "kernels/shape/shape.h"
#include "tests/support/kernel_check.h"
#include "tests/support/shard_check.h"

#include <criterion/criterion.h>

enum { SEED = 515 };

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

/* ---- reshape ---- */

static void ref_same_order(const kernel_check *c, int out, double *want)
{
    for (int64_t i = 0; i < weir_shape_count(&c->out[out].shape); i++)
        want[i] = kernel_at(&c->in[0], i);
}

/* `splits` is how many signatures split on 2 devices, besides P. */
static void check_reshape(weir_shape from, shape_attrs to, weir_dtype dtype, int splits)
{
    kernel_check c = kernel_check_new(&op_reshape, &to, SEED);
    kernel_check_in(&c, dtype, from);
    kernel_check_run(&c);
    kernel_check_near(&c, 0, ref_same_order, 0);
    cr_assert_eq(shard_check(&c, 2, 1e-6), splits + weir_dtype_real((weir_dtype)dtype));
    shard_check(&c, 3, 1e-6);
    kernel_check_free(&c);
}

Test(shape, reshape_splits_where_both_sides_come_apart_alike)
{
    check_reshape(SHAPE(6, 4), (shape_attrs){{6, 4}, 2}, WEIR_F32, 2);
    check_reshape(SHAPE(6, 4), (shape_attrs){{-1}, 1}, WEIR_U8, 1);
    check_reshape(SHAPE(24), (shape_attrs){{6, 4}, 2}, WEIR_I32, 1);
    check_reshape(SHAPE(24), (shape_attrs){{6, 4}, 2}, WEIR_I64, 1);
    check_reshape(SHAPE(24), (shape_attrs){{6, 4}, 2}, WEIR_I8, 1);
    check_reshape(SHAPE(7, 6), (shape_attrs){{7, 2, 3}, 3}, WEIR_F32, 2);
    check_reshape(SHAPE(3, 4), (shape_attrs){{4, 3}, 2}, WEIR_F32, 0);
    check_reshape(SHAPE(6, 4), (shape_attrs){{2, -1, 4}, 3}, WEIR_F32, 2);
    check_reshape(SHAPE(5, 1, 3), (shape_attrs){{1, 5, 3}, 3}, WEIR_F32, 2);
    check_reshape(SHAPE(1), (shape_attrs){{0}, 0}, WEIR_F32, 0);
    check_reshape(SHAPE(), (shape_attrs){{1, 1}, 2}, WEIR_F32, 0);
}

Test(shape, impossible_reshapes_are_refused)
{
    const weir_type x = {WEIR_F32, SHAPE(6, 4)};
    const shape_attrs more = {{5, 5}, 2}, twice = {{-1, -1}, 2}, uneven = {{5, -1}, 2}, negative = {{-2, 12}, 2};
    const shape_attrs huge = {{INT64_MAX / 2, 4, 4}, 3};
    kernel_check_refuses(&op_reshape, &more, &x, 1, "shapes [6, 4] and [5, 5] have different numbers of elements");
    kernel_check_refuses(&op_reshape, &twice, &x, 1, "dimensions 0 and 1 are both -1");
    kernel_check_refuses(&op_reshape, &uneven, &x, 1, "24 elements leave no whole number for the -1");
    kernel_check_refuses(&op_reshape, &negative, &x, 1, "dimension 0 is -2");
    kernel_check_refuses(&op_reshape, &huge, &x, 1, "different numbers of elements");
}

/* ---- broadcast_to ---- */

static void ref_broadcast(const kernel_check *c, int out, double *want)
{
    const weir_shape *from = &c->in[0].shape, *to = &c->out[out].shape;
    for (int64_t i = 0; i < weir_shape_count(to); i++) {
        int64_t index[WEIR_DIMS_MAX], own[WEIR_DIMS_MAX];
        unravel(to, i, index);
        for (int d = 0; d < from->rank; d++)
            own[d] = from->dim[d] == 1 ? 0 : index[d + to->rank - from->rank];
        want[i] = kernel_at(&c->in[0], ravel(from, own));
    }
}

static void check_broadcast(weir_shape from, weir_shape to, weir_dtype dtype)
{
    shape_attrs attrs = shape_attrs_of(&to);
    kernel_check c = kernel_check_new(&op_broadcast_to, &attrs, SEED);
    kernel_check_in(&c, dtype, from);
    kernel_check_run(&c);
    kernel_check_near(&c, 0, ref_broadcast, 0);
    cr_assert_geq(shard_check(&c, 2, 1e-6), 1);
    shard_check(&c, 3, 1e-6);
    kernel_check_free(&c);
}

Test(shape, broadcast_repeats_on_every_layout)
{
    check_broadcast(SHAPE(), SHAPE(3, 4), WEIR_F32);
    check_broadcast(SHAPE(4), SHAPE(3, 4), WEIR_F32);
    for (int dtype = WEIR_F32; dtype < WEIR_DTYPES; dtype++) {
        check_broadcast(SHAPE(3, 1), SHAPE(3, 4), (weir_dtype)dtype);
        check_broadcast(SHAPE(2, 1, 3, 1), SHAPE(5, 2, 4, 3, 2), (weir_dtype)dtype);
    }
    check_broadcast(SHAPE(1), SHAPE(1, 1), WEIR_F32);
    const shape_attrs attrs = {{3, 4}, 2};
    kernel_check_refuses(&op_broadcast_to, &attrs, &(weir_type){WEIR_F32, SHAPE(3)}, 1,
                         "shape [3] does not broadcast to [3, 4]");
}

/* ---- transpose ---- */

static void ref_transpose(const kernel_check *c, int out, double *want)
{
    const transpose_attrs *attrs = c->attrs;
    for (int64_t i = 0; i < weir_shape_count(&c->out[out].shape); i++) {
        int64_t index[WEIR_DIMS_MAX], from[WEIR_DIMS_MAX];
        unravel(&c->out[out].shape, i, index);
        for (int d = 0; d < c->out[out].shape.rank; d++)
            from[attrs->perm[d]] = index[d];
        want[i] = kernel_at(&c->in[0], ravel(&c->in[0].shape, from));
    }
}

static void check_transpose(weir_shape shape, transpose_attrs attrs, weir_dtype dtype)
{
    kernel_check c = kernel_check_new(&op_transpose, &attrs, SEED);
    kernel_check_in(&c, dtype, shape);
    kernel_check_run(&c);
    kernel_check_near(&c, 0, ref_transpose, 0);
    cr_assert_geq(shard_check(&c, 2, 1e-6), shape.rank);
    shard_check(&c, 3, 1e-6);
    kernel_check_free(&c);
}

Test(shape, transpose_permutes_any_rank_on_every_layout, .timeout = 120)
{
    check_transpose(SHAPE(), (transpose_attrs){{0}}, WEIR_F32);
    check_transpose(SHAPE(5), (transpose_attrs){{0}}, WEIR_F32);
    for (int dtype = WEIR_F32; dtype < WEIR_DTYPES; dtype++) {
        check_transpose(SHAPE(33, 70), (transpose_attrs){{1, 0}}, (weir_dtype)dtype);
        check_transpose(SHAPE(2, 5, 3, 16), (transpose_attrs){{0, 2, 1, 3}}, (weir_dtype)dtype);
    }
    check_transpose(SHAPE(1, 4, 1, 3), (transpose_attrs){{3, 2, 1, 0}}, WEIR_F32);
}

static void shuffle(int64_t *perm, int count, uint64_t *random)
{
    for (int i = 0; i < count; i++)
        perm[i] = i;
    for (int i = count - 1; i > 0; i--) {
        int j = (int)(kernel_random(random) * (i + 1));
        int64_t kept = perm[i];
        perm[i] = perm[j];
        perm[j] = kept;
    }
}

Test(shape, random_transposes, .timeout = 120)
{
    uint64_t random = SEED;
    for (int round = 0; round < 100; round++) {
        weir_shape shape = {.rank = 1 + (int)(kernel_random(&random) * 6)};
        transpose_attrs attrs = {{0}};
        for (int d = 0; d < shape.rank; d++)
            shape.dim[d] = 1 + (int64_t)(kernel_random(&random) * 4);
        shuffle(attrs.perm, shape.rank, &random);
        check_transpose(shape, attrs, WEIR_F32);
    }
}

Test(shape, what_is_no_permutation_is_refused)
{
    const weir_type x = {WEIR_F32, SHAPE(2, 3)};
    const transpose_attrs twice = {{1, 1}}, far = {{0, 2}};
    kernel_check_refuses(&op_transpose, &twice, &x, 1, "dimension 1 is used twice");
    kernel_check_refuses(&op_transpose, &far, &x, 1, "there is no dimension 2 among the 2");
}

/* ---- slice and pad ---- */

static int axis_of(const kernel_check *c)
{
    int64_t axis = *(const int64_t *)c->attrs;
    return (int)(axis < 0 ? axis + c->in[0].shape.rank : axis);
}

static void ref_slice(const kernel_check *c, int out, double *want)
{
    const range_attrs *attrs = c->attrs;
    for (int64_t i = 0; i < weir_shape_count(&c->out[out].shape); i++) {
        int64_t index[WEIR_DIMS_MAX];
        unravel(&c->out[out].shape, i, index);
        index[axis_of(c)] += attrs->range[0];
        want[i] = kernel_at(&c->in[0], ravel(&c->in[0].shape, index));
    }
}

static void ref_pad(const kernel_check *c, int out, double *want)
{
    const range_attrs *attrs = c->attrs;
    for (int64_t i = 0; i < weir_shape_count(&c->in[0].shape); i++) {
        int64_t index[WEIR_DIMS_MAX];
        unravel(&c->in[0].shape, i, index);
        index[axis_of(c)] += attrs->range[0];
        want[ravel(&c->out[out].shape, index)] = kernel_at(&c->in[0], i);
    }
}

static void check_range(const weir_op *op, range_attrs attrs, weir_dtype dtype, weir_shape shape)
{
    kernel_check c = kernel_check_new(op, &attrs, SEED);
    kernel_check_in(&c, dtype, shape);
    kernel_check_run(&c);
    kernel_check_near(&c, 0, op == &op_slice ? ref_slice : ref_pad, 0);
    cr_assert_eq(shard_check(&c, 2, 1e-6), shape.rank - 1 + weir_dtype_real((weir_dtype)dtype));
    shard_check(&c, 3, 1e-6);
    kernel_check_free(&c);
}

Test(shape, slice_and_pad_move_ranges_of_any_axis_on_every_layout)
{
    for (int dtype = WEIR_F32; dtype < WEIR_DTYPES; dtype++)
        for (int axis = -3; axis < 3; axis++) {
            check_range(&op_slice, (range_attrs){axis, {1, 2}}, (weir_dtype)dtype, SHAPE(4, 3, 5));
            check_range(&op_slice, (range_attrs){axis, {0, 3}}, (weir_dtype)dtype, SHAPE(4, 3, 5));
            check_range(&op_pad, (range_attrs){axis, {1, 2}}, (weir_dtype)dtype, SHAPE(4, 3, 5));
            check_range(&op_pad, (range_attrs){axis, {0, 0}}, (weir_dtype)dtype, SHAPE(4, 3, 5));
        }
}

Test(shape, ranges_outside_are_refused)
{
    const weir_type x = {WEIR_F32, SHAPE(4, 3)};
    const range_attrs far = {1, {2, 2}}, none = {0, {0, 0}}, huge = {0, {INT64_MAX, 1}}, axis = {2, {0, 1}};
    kernel_check_refuses(&op_slice, &far, &x, 1, "2 elements from 2 on are not all within dimension 1, which has 3");
    kernel_check_refuses(&op_slice, &none, &x, 1, "0 elements from 0 on");
    kernel_check_refuses(&op_slice, &huge, &x, 1, "are not all within dimension 0");
    kernel_check_refuses(&op_slice, &axis, &x, 1, "axis 2 is not one of the 2 dimensions");
    kernel_check_refuses(&op_pad, &(range_attrs){0, {-1, 0}}, &x, 1, "-1 zeros before");
    kernel_check_refuses(&op_pad, &(range_attrs){0, {INT64_MAX, 0}}, &x, 1, "zeros before");
}

/* ---- concat ---- */

static void ref_concat(const kernel_check *c, int out, double *want)
{
    int64_t first = 0;
    for (int k = 0; k < c->in_count; k++) {
        for (int64_t i = 0; i < weir_shape_count(&c->in[k].shape); i++) {
            int64_t index[WEIR_DIMS_MAX];
            unravel(&c->in[k].shape, i, index);
            index[axis_of(c)] += first;
            want[ravel(&c->out[out].shape, index)] = kernel_at(&c->in[k], i);
        }
        first += c->in[k].shape.dim[axis_of(c)];
    }
}

Test(shape, concat_puts_one_after_the_other_on_every_layout)
{
    for (int64_t axis = -3; axis < 3; axis++)
        for (int dtype = WEIR_F32; dtype < WEIR_DTYPES; dtype++) {
            kernel_check c = kernel_check_new(&op_concat, &axis, SEED);
            for (int k = 0; k < 3; k++) {
                weir_shape shape = SHAPE(4, 3, 5);
                shape.dim[axis < 0 ? axis + 3 : axis] = k + 1;
                kernel_check_in(&c, (weir_dtype)dtype, shape);
            }
            kernel_check_run(&c);
            kernel_check_near(&c, 0, ref_concat, 0);
            cr_assert_eq(shard_check(&c, 2, 1e-6), 2 + weir_dtype_real((weir_dtype)dtype));
            shard_check(&c, 3, 1e-6);
            kernel_check_free(&c);
        }
}

Test(shape, what_does_not_fit_is_not_concatenated)
{
    const int64_t axis = 0;
    const weir_type wide[2] = {{WEIR_F32, SHAPE(2, 3)}, {WEIR_F32, SHAPE(2, 4)}};
    const weir_type mixed[2] = {{WEIR_F32, SHAPE(2, 3)}, {WEIR_I32, SHAPE(2, 3)}};
    kernel_check_refuses(&op_concat, &axis, wide, 2, "f32 [2, 3] and f32 [2, 4] differ beside dimension 0");
    kernel_check_refuses(&op_concat, &axis, mixed, 2, "f32 [2, 3] and i32 [2, 3] differ");
}
