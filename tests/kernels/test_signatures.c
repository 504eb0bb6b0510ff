/* Every op of the first families through compiler and runtime, on 2 and 3 devices, in every layout that it lists. Sizes
 * do not divide, and some are smaller than the number of devices. */
#include "kernels/elementwise/elementwise.h"
#include "kernels/common/ops.h"
#include "kernels/reduce/reduce.h"
#include "kernels/shape/fill.h"
#include "kernels/shape/shape.h"
#include "tests/support/op_check.h"

#include <criterion/criterion.h>
#include <math.h>

enum { SEED = 31337 };

#define TOLERANCE 2e-5

/* Takes the case over. */
static void check(kernel_check *c)
{
    cr_assert_geq(op_check(c, 2, TOLERANCE), 1, "%s has no layout but B", c->op->name);
    op_check(c, 3, TOLERANCE);
    kernel_check_free(c);
}

static void check_one(const weir_op *op, const void *attrs, weir_shape shape)
{
    kernel_check c = kernel_check_new(op, attrs, SEED);
    kernel_check_in(&c, WEIR_F32, shape);
    check(&c);
}

static void check_two(const weir_op *op, const void *attrs, weir_shape a, weir_shape b)
{
    kernel_check c = kernel_check_new(op, attrs, SEED);
    kernel_check_in(&c, WEIR_F32, a);
    weir_view *second = kernel_check_in(&c, WEIR_F32, b);
    for (int64_t i = 0; i < weir_shape_count(&b); i++)
        ((float *)second->data)[i] += ((float *)second->data)[i] < 0 ? -0.5f : 0.5f;
    check(&c);
}

Test(signatures, of_functions, .timeout = 60)
{
#define OP(name) &op_##name,
    const weir_op *ops[] = {ELEMENT_FUNCTIONS(OP) &op_softmax, &op_argmax};
    for (size_t o = 0; o < sizeof ops / sizeof *ops; o++)
        check_one(ops[o], NULL, SHAPE(5, 2, 7));
    check_one(&op_affine, &(affine_attrs){2, 0}, SHAPE(5, 7));
    check_one(&op_affine, &(affine_attrs){2, 1}, SHAPE(5, 7));
    check_one(&op_neg, NULL, SHAPE());
}

Test(signatures, of_gradients, .timeout = 60)
{
    const weir_op *ops[] = {ELEMENT_GRADIENTS(OP) &op_softmax_grad};
#undef OP
    for (size_t o = 0; o < sizeof ops / sizeof *ops; o++)
        check_two(ops[o], NULL, SHAPE(5, 7), SHAPE(5, 7));
}

Test(signatures, of_binary_ops, .timeout = 60)
{
    const weir_op *ops[] = {&op_add, &op_sub, &op_mul, &op_div, &op_min2, &op_less};
    for (size_t o = 0; o < sizeof ops / sizeof *ops; o++) {
        check_two(ops[o], NULL, SHAPE(5, 7), SHAPE(5, 7));
        check_two(ops[o], NULL, SHAPE(5, 7), SHAPE(7));
        check_two(ops[o], NULL, SHAPE(5, 1), SHAPE(2, 1, 7));
        check_two(ops[o], NULL, SHAPE(), SHAPE(4));
    }
    check_two(&op_add_many, NULL, SHAPE(5, 7), SHAPE(5, 7));
}

Test(signatures, of_reductions, .timeout = 60)
{
    const weir_op *ops[] = {&op_sum, &op_mean, &op_max};
    for (int o = 0; o < 3; o++) {
        if (ops[o] != &op_max) /* over everything, a maximum has no layout but B */
            check_one(ops[o], &(reduce_attrs){0}, SHAPE(5, 2, 7));
        check_one(ops[o], &(reduce_attrs){{1}, 1, 0}, SHAPE(5, 2, 7));
        check_one(ops[o], &(reduce_attrs){{0, -1}, 2, 1}, SHAPE(5, 2, 7));
    }
    check_one(&op_prod, &(reduce_attrs){{0, -1}, 2, 1}, SHAPE(5, 2, 7));
    check_one(&op_sum_to, &(shape_attrs){{2, 1}, 2}, SHAPE(5, 2, 7));
}

Test(signatures, of_shape_ops, .timeout = 60)
{
    check_one(&op_reshape, &(shape_attrs){{6, 2, 5}, 3}, SHAPE(12, 5));
    check_one(&op_reshape, &(shape_attrs){{-1}, 1}, SHAPE(6, 5));
    check_one(&op_broadcast_to, &(shape_attrs){{5, 2, 7}, 3}, SHAPE(2, 1));
    check_one(&op_transpose, (int64_t[WEIR_DIMS_MAX]){2, 0, 1}, SHAPE(5, 2, 7));
    check_one(&op_slice, (int64_t[3]){1, 2, 3}, SHAPE(5, 7));
    check_one(&op_pad, (int64_t[3]){-1, 2, 3}, SHAPE(5, 7));
    check_two(&op_concat, (int64_t[1]){0}, SHAPE(5, 7), SHAPE(2, 7));
    check_one(&op_slice_step, &(step_attrs){1, 6, 4, -2, 7}, SHAPE(5, 7));
    check_one(&op_place_step, &(step_attrs){1, 6, 4, -2, 7}, SHAPE(5, 4));
}

Test(signatures, of_ops_without_inputs, .timeout = 60)
{
    kernel_check c = kernel_check_new(&op_constant, &(constant_attrs){{5, 7}, 2, WEIR_F32, 0.5}, SEED);
    check(&c);
    c = kernel_check_new(&op_range, &(steps_attrs){WEIR_I32, 5, 3, 2}, SEED);
    check(&c);
}

Test(signatures, of_dropout_and_casts, .timeout = 60)
{
    check_one(&op_dropout, (double[1]){0.5}, SHAPE(5, 2, 7));
    for (int64_t dtype = WEIR_F32 + 1; dtype < WEIR_DTYPES; dtype++) /* from f32 to f32 there is no kernel */
        check_one(&op_cast, &dtype, SHAPE(5, 7));
    kernel_check c = kernel_check_new(&op_dropout_grad, (double[1]){0.5}, SEED);
    kernel_check_in(&c, WEIR_U8, SHAPE(5, 7));
    kernel_check_in(&c, WEIR_F32, SHAPE(5, 7));
    check(&c);
}

/* The gradient reads the maximum itself, so it is run on one that was computed. */
Test(signatures, of_the_gradient_of_max, .timeout = 60)
{
    reduce_attrs attrs = {{1}, 1, 0};
    kernel_check y = kernel_check_new(&op_max, &attrs, SEED), c = kernel_check_new(&op_max_grad, &attrs, SEED);
    kernel_check_in(&y, WEIR_F32, SHAPE(5, 2, 7));
    kernel_check_run(&y);
    kernel_check_in(&c, WEIR_F32, SHAPE(5, 2, 7)); /* the same seed, so the same values */
    weir_view *most = kernel_check_in(&c, WEIR_F32, SHAPE(5, 7));
    for (int64_t i = 0; i < 35; i++)
        ((float *)most->data)[i] = (float)kernel_at(&y.out[0], i);
    kernel_check_in(&c, WEIR_F32, SHAPE(5, 7));
    check(&c);
    kernel_check_free(&y);
}
