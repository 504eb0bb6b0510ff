/* Every op of the first families through compiler and runtime, on 2 and 3 devices, in every layout that it lists. Sizes
 * do not divide, and some are smaller than the number of devices. */
#include "kernels/elementwise/elementwise.h"
#include "kernels/common/ops.h"
#include "kernels/reduce/reduce.h"
#include "kernels/shape/fill.h"
#include "kernels/shape/shape.h"
#include "tests/support/op_check.h"
#include "tests/support/run.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

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

Test(signatures, of_choices, .timeout = 60)
{
    const weir_shape a[] = {SHAPE(5, 7), SHAPE(7), SHAPE(2, 1, 7)}, b[] = {SHAPE(5, 7), SHAPE(5, 1), SHAPE()};
    const masked_attrs kept = {0}, dropped = {1};
    const clip_attrs both = {-0.5, 0.75}, below = {0, INFINITY};
    for (int i = 0; i < 3; i++) {
        kernel_check c = kernel_check_new(&op_where, NULL, SEED), m = kernel_check_new(&op_masked, i ? &kept : &dropped, SEED);
        kernel_check_in(&c, WEIR_U8, SHAPE(5, 7));
        kernel_check_in(&c, WEIR_F32, a[i]);
        kernel_check_in(&c, WEIR_F32, b[i]);
        check(&c);
        kernel_check_in(&m, WEIR_U8, b[i]);
        kernel_check_in(&m, WEIR_F32, a[i]);
        check(&m);
    }
    check_one(&op_clip, &both, SHAPE(5, 2, 7));
    check_one(&op_clip, &below, SHAPE(5, 7));
    check_two(&op_clip_grad, &both, SHAPE(5, 7), SHAPE(5, 7));
    check_one(&op_is_nan, NULL, SHAPE(5, 7));
}

/* As the functions of the DSL say it: greater and less share an op. Element i of a and b is an integer from 0 to 4. */
static double told(const char *name, double a, double b)
{
    const double values[] = {a == b, a < b, a <= b, a > b, a >= b, a > b && a != 3, a > b || a == 3, a == b ? a == 0 : a != 0,
                             fmin(a, b), fmax(a, b), a == b ? -a : b, b < 2 ? 2 : b, fmin(fmax(a, 0), 3)};
    static const char *const names[] = {"equal", "less", "less_equal", "greater", "greater_equal", "and", "or", "xor",
                                        "min", "max", "where", "lo", "both"};
    int at = 0;
    while (strcmp(names[at], name))
        at++;
    return values[at];
}

Test(signatures, functions_of_two_say_what_their_names_say)
{
    weir_graph *g = weir_graph_new("two");
    weir_mesh_new(g, "cpu:0-1");
    weir_tensor *a = weir_input(g, WEIR_I64, {5, 3}, .name = "a", .sbp = {WEIR_S(0)});
    weir_tensor *b = weir_input(g, WEIR_I64, {5, 3}, .name = "b"), *three = weir_cast(weir_equal(a, a), WEIR_I64);
    three = weir_add(weir_add(three, three), three);
    weir_tensor *equal = weir_equal(a, b), *greater = weir_greater(a, b), *zero = weir_equal(a, weir_sub(a, a));
    weir_fetch(equal, .name = "equal");
    weir_fetch(weir_less(a, b), .name = "less");
    weir_fetch(weir_less_equal(a, b), .name = "less_equal");
    weir_fetch(greater, .name = "greater");
    weir_fetch(weir_greater_equal(a, b), .name = "greater_equal");
    weir_fetch(weir_and(greater, weir_not(weir_equal(a, three))), .name = "and");
    weir_fetch(weir_or(greater, weir_equal(a, three)), .name = "or");
    weir_fetch(weir_xor(weir_not(equal), zero), .name = "xor");
    weir_fetch(weir_min2(a, b), .name = "min");
    weir_fetch(weir_max2(a, b), .name = "max");
    weir_fetch(weir_where(equal, weir_neg(a), b), .name = "where");
    weir_fetch(weir_clip(weir_cast(b, WEIR_F32), .lo = 2), .name = "lo");
    weir_fetch(weir_clip(weir_cast(a, WEIR_F32), .lo = WEIR_ZERO, .hi = 3), .name = "both");
    weir_plan *plan = run_compile(g, (weir_compile_opts){.size = sizeof(weir_compile_opts), .src = WEIR_HERE});
    run r = run_plan(plan, 2, 2);
    cr_expect_eq(r.count, 13);
    for (int e = 0; e < r.count; e++)
        for (int64_t i = 0; i < r.entry[e].count; i++) {
            const double x = run_input("a", WEIR_I64, i / 15, 0, i % 15), y = run_input("b", WEIR_I64, i / 15, 0, i % 15);
            cr_expect_eq(r.entry[e].value[i], told(r.entry[e].name, x, y), "%s of %g and %g is %g", r.entry[e].name, x, y,
                         r.entry[e].value[i]);
        }
    run_free(&r);
    weir_plan_free(plan);
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
/* With a mask of one sequence and one head, and with one of all. */
Test(signatures, of_attention_of_groups_with_a_window_and_a_mask, .timeout = 60)
{
    const struct { int64_t head_dim, causal; double scale; int64_t window; } whole = {4, 1, 0.5, 3};
    const struct { int64_t head_dim; double scale; int64_t window; } kept = {4, 0.5, 3};
    const weir_shape masks[] = {SHAPE(5, 7), SHAPE(1, 7), SHAPE(5, 6, 7, 7), SHAPE(1, 6, 1, 7)};
    for (int i = 0; i < 8; i++) {
        const int64_t columns = i % 2 ? 12 : 4; /* of k: 3 heads or one */
        kernel_check c = kernel_check_new(&op_attention_masked, &whole, SEED), k = kernel_check_new(&op_attention_kept_masked, &kept, SEED);
        for (int in = 0; in < 3; in++)
            kernel_check_in(&c, WEIR_F32, SHAPE(5, 7, in ? columns : 24));
        kernel_check_in(&c, i < 4 ? WEIR_U8 : WEIR_F32, masks[i / 2]);
        check(&c);
        for (int in = 0; in < 5; in++)
            kernel_check_in(&k, WEIR_F32, SHAPE(5, in < 3 ? 1 : 7, in ? columns : 24));
        *(int32_t *)kernel_check_in(&k, WEIR_I32, SHAPE())->data = 4;
        if (i / 2 != 2)
            kernel_check_in(&k, i < 4 ? WEIR_U8 : WEIR_F32, masks[i / 2]);
        check(&k);
    }
}

Test(signatures, of_rotary_positions, .timeout = 60)
{
    const struct { int64_t sizes[5]; double base[4]; } rope = {{4, 4, 0, 0, 0}, {100, 1, 0, 0}};
    check_one(&op_rope, &rope, SHAPE(5, 7, 12));
    for (int each = 0; each < 2; each++) {
        kernel_check c = kernel_check_new(&op_rope, &rope, SEED);
        kernel_check_in(&c, WEIR_F32, SHAPE(5, 7, 12));
        kernel_check_in(&c, WEIR_I32, each ? SHAPE(5, 7) : SHAPE(1));
        check(&c);
    }
}

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
