/* The functions of constants, ranges and elements by index as a program calls them: their values, and the sentences about mistakes. */
#include "tests/support/run.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

TestSuite(index_calls, .timeout = 60);

enum { ROWS = 3, COLUMNS = 4 };

typedef weir_tensor *(*call_fn)(weir_graph *g, weir_tensor *x);

/* Element (row, column) of x. */
static double x_at(int64_t row, int64_t column)
{
    return run_input("x", WEIR_F32, 0, 0, row * COLUMNS + column);
}

/* Runs what is made of x [3, 4] on 1 and on 3 devices, which must have the same bits, and returns the first. */
static run values_of(call_fn made)
{
    run r[2];
    for (int several = 0; several < 2; several++) {
        weir_graph *g = weir_graph_new("calls");
        weir_mesh_new(g, several ? "cpu:0-2" : "cpu:0");
        weir_tensor *x = weir_input(g, WEIR_F32, {ROWS, COLUMNS}, .name = "x", .sbp = {several ? WEIR_S(0) : WEIR_AUTO});
        weir_fetch(made(g, x), .name = "y");
        weir_plan *plan = run_compile(g, (weir_compile_opts){0});
        r[several] = run_plan(plan, 1, 1);
        weir_plan_free(plan);
    }
    run_near(&r[1], &r[0], 0, "on 3 devices");
    run_free(&r[1]);
    return r[0];
}

/* The values are these. */
static void expect_values(call_fn made, const double *want, int64_t count)
{
    run r = values_of(made);
    const run_entry *y = run_find(&r, "y");
    cr_assert_eq(y->count, count, "%lld values", (long long)y->count);
    for (int64_t i = 0; i < count; i++)
        cr_expect(fabs(y->value[i] - want[i]) <= 1e-6 * (1 + fabs(want[i])), "element %lld is %g, not %g", (long long)i, y->value[i],
                  want[i]);
    run_free(&r);
}

#define VALUES(call, ...)                                                                           \
    do {                                                                                            \
        const double want_[] = {__VA_ARGS__};                                                       \
        expect_values(call, want_, (int64_t)(sizeof want_ / sizeof *want_));                        \
    } while (0)

#define CALL(name, ...)                                        \
    static weir_tensor *name(weir_graph *g, weir_tensor *x)    \
    {                                                          \
        (void)g, (void)x;                                      \
        return __VA_ARGS__;                                    \
    }

/* The sentence about the mistake, behind the place. */
static void expect_mistake(call_fn made, const char *sentence)
{
    weir_graph *g = weir_graph_new("mistakes");
    weir_tensor *x = weir_input(g, WEIR_F32, {ROWS, COLUMNS}, .name = "x");
    cr_expect(weir_tensor_poisoned(made(g, x)), "%s", sentence);
    const char *mistake = weir_graph_mistake(g), *said = mistake ? strstr(mistake, ": ") : NULL;
    cr_assert(said, "no mistake: %s", sentence);
    cr_expect_eq(strncmp(mistake, "tests/kernels/test_index_calls.c:", 33), 0, "%s", mistake);
    cr_expect_str_eq(said + 2, sentence);
    weir_graph_free(g);
}

/* ---- without inputs ---- */

CALL(constant, weir_constant(g, WEIR_F32, {2, 2}, .value = -1.5))
CALL(scalar, weir_constant(g, WEIR_I32, {0}, .value = 7))
CALL(range, weir_range(g, WEIR_I32, 4))
CALL(range_of_steps, weir_range(g, WEIR_F32, 3, .start = 1, .step = -0.25))
CALL(range_of_none, weir_range(g, WEIR_F32, 2, .start = 3, .step = WEIR_ZERO))
CALL(constant_gap, weir_constant(g, WEIR_F32, {2, 0, 2}))
CALL(constant_wrong, weir_constant(g, WEIR_U8, {2}, .value = 256))
CALL(range_empty, weir_range(g, WEIR_I32, 0))

Test(index_calls, tensors_without_inputs)
{
    VALUES(constant, -1.5, -1.5, -1.5, -1.5);
    VALUES(scalar, 7);
    VALUES(range, 0, 1, 2, 3);
    VALUES(range_of_steps, 1, 0.75, 0.5);
    VALUES(range_of_none, 3, 3);
    expect_mistake(constant_gap, "constant: dimension 1 is 0, and 2 follows it; a dimension is at least 1");
    expect_mistake(constant_wrong, "constant: 256 is no u8: it must be a whole number from 0 to 255");
    expect_mistake(range_empty, "range: a range of 0 numbers: it must have at least 1");
}

/* ---- slices, expansions ---- */

CALL(every_second, weir_slice(x, 1, 1, 2, .step = 2))
CALL(backwards, weir_slice(x, -2, 2, 3, .step = -1))
CALL(expanded, weir_expand(weir_slice(x, 0, 1, 1), {2, 1, COLUMNS}))
CALL(slice_far, weir_slice(x, 1, 1, 3, .step = 2))
CALL(slice_axis, weir_slice(x, 2, 0, 1, .step = 2))
CALL(expand_wrong, weir_expand(x, {ROWS, 5}))
CALL(expand_gap, weir_expand(x, {ROWS, 0, 5}))

Test(index_calls, slices_by_steps_and_expansions)
{
    VALUES(every_second, x_at(0, 1), x_at(0, 3), x_at(1, 1), x_at(1, 3), x_at(2, 1), x_at(2, 3));
    VALUES(backwards, x_at(2, 0), x_at(2, 1), x_at(2, 2), x_at(2, 3), x_at(1, 0), x_at(1, 1), x_at(1, 2), x_at(1, 3), x_at(0, 0),
           x_at(0, 1), x_at(0, 2), x_at(0, 3));
    VALUES(expanded, x_at(1, 0), x_at(1, 1), x_at(1, 2), x_at(1, 3), x_at(1, 0), x_at(1, 1), x_at(1, 2), x_at(1, 3));
    expect_mistake(slice_far, "slice_step: 3 elements from 1 on with a step of 2 are not all within the dimension, which has 4");
    expect_mistake(slice_axis, "slice: axis 2 is not one of the 2 dimensions");
    expect_mistake(expand_wrong, "broadcast_to: shape [3, 4] does not broadcast to [3, 5]");
    expect_mistake(expand_gap, "expand: dimension 1 is 0, and 5 follows it; a dimension is at least 1");
}

/* ---- reductions ---- */

/* The index of the largest (sign 1) or smallest (sign -1) of `count` elements. */
static double most_at(double sign, int64_t count, int64_t row, int64_t column, int64_t row_step, int64_t column_step)
{
    int64_t most = 0;
    for (int64_t i = 1; i < count; i++)
        if (sign * x_at(row + i * row_step, column + i * column_step) > sign * x_at(row + most * row_step, column + most * column_step))
            most = i;
    return (double)most;
}
#define OF_ROW(sign, row) most_at(sign, COLUMNS, row, 0, 0, 1)
#define OF_COLUMN(sign, column) most_at(sign, ROWS, 0, column, 1, 0)

CALL(argmax_last, weir_argmax(x))
CALL(argmax_first, weir_argmax(x, .axis = 0))
CALL(argmin_first, weir_argmin(x, .axis = -2))
CALL(argmin_kept, weir_reshape(weir_argmin(weir_reshape(x, {ROWS, 2, 2}), .axis = 0, .keep = true), {1, 2, 2}))
CALL(argmax_equal, weir_argmax(weir_constant(g, WEIR_F32, {2, 3})))
CALL(minima, weir_min(x, .axes = {1}, .axis_count = 1))
CALL(product, weir_prod(weir_slice(x, 0, 1, 1)))
CALL(argmax_axis, weir_argmax(x, .axis = 2))
CALL(min_axes, weir_min(x, .axes = {1}))

Test(index_calls, reductions)
{
    VALUES(argmax_last, OF_ROW(1, 0), OF_ROW(1, 1), OF_ROW(1, 2));
    VALUES(argmax_first, OF_COLUMN(1, 0), OF_COLUMN(1, 1), OF_COLUMN(1, 2), OF_COLUMN(1, 3));
    VALUES(argmin_first, OF_COLUMN(-1, 0), OF_COLUMN(-1, 1), OF_COLUMN(-1, 2), OF_COLUMN(-1, 3));
    VALUES(argmin_kept, OF_COLUMN(-1, 0), OF_COLUMN(-1, 1), OF_COLUMN(-1, 2), OF_COLUMN(-1, 3));
    VALUES(argmax_equal, 0, 0);
    VALUES(minima, x_at(0, (int64_t)OF_ROW(-1, 0)), x_at(1, (int64_t)OF_ROW(-1, 1)), x_at(2, (int64_t)OF_ROW(-1, 2)));
    VALUES(product, x_at(1, 0) * x_at(1, 1) * x_at(1, 2) * x_at(1, 3));
    expect_mistake(argmax_axis, "argmax: axis 2 is not one of the 2 dimensions");
    expect_mistake(min_axes,
                   "min: .axes says which dimensions, but not how many: say .axis_count, as in .axes = {-1}, .axis_count = 1");
}

/* ---- by index ---- */

CALL(columns, weir_gather(x, weir_range(g, WEIR_I32, 2, .start = -1), 1))
CALL(points, weir_gather_nd(x, weir_reshape(weir_range(g, WEIR_I32, 4, .start = -1), {2, 2}), 0))
CALL(places, weir_gather_elements(x, weir_reshape(weir_range(g, WEIR_I32, 4, .start = -2), {1, 4}), 0))
CALL(gather_real, weir_gather(x, x, 0))
CALL(gather_far, weir_gather(x, weir_range(g, WEIR_I32, 2), -3))

Test(index_calls, elements_by_ids)
{
    VALUES(columns, x_at(0, 3), x_at(0, 0), x_at(1, 3), x_at(1, 0), x_at(2, 3), x_at(2, 0));
    VALUES(points, x_at(2, 0), x_at(1, 2));
    VALUES(places, x_at(1, 0), x_at(2, 1), x_at(0, 2), x_at(1, 3));
    expect_mistake(gather_real, "gather: ids are f32, not i32 or i64");
    expect_mistake(gather_far, "gather: axis -3 is not one of the 2 dimensions");
}

/* ---- borders and sizes ---- */

#define LINE() weir_reshape(weir_range(g, WEIR_F32, 3, .start = 1), {1, 3})
CALL(pad_zeros, weir_pad(LINE(), .before = {1, 1}, .after = {0, 2}))
CALL(pad_value, weir_pad(LINE(), .after = {0, 2}, .value = -0.5))
CALL(pad_edge, weir_pad(LINE(), .before = {0, 2}, .after = {0, 1}, .mode = WEIR_PAD_EDGE))
CALL(pad_reflect, weir_pad(LINE(), .before = {0, 2}, .after = {0, 1}, .mode = WEIR_PAD_REFLECT))
CALL(pad_nothing, weir_pad(LINE(), .mode = WEIR_PAD_EDGE))
CALL(pad_integers, weir_pad(weir_range(g, WEIR_I32, 2), .before = {1}, .value = 9))
CALL(pad_below, weir_pad(x, .after = {0, -1}))
CALL(pad_far, weir_pad(x, .before = {ROWS}, .mode = WEIR_PAD_REFLECT))
CALL(pad_dims, weir_pad(x, .before = {0, 0, 1}))
CALL(pad_mode, weir_pad(x, .before = {1}, .mode = 3))
CALL(pad_number, weir_pad(weir_range(g, WEIR_I32, 2), .before = {1}, .value = 0.5))
CALL(twice, weir_resize(weir_range(g, WEIR_F32, 2, .start = 1), {4}))
CALL(twice_linear, weir_resize(weir_range(g, WEIR_F32, 2, .start = 1), {4}, .mode = WEIR_RESIZE_LINEAR))
CALL(corners, weir_resize(LINE(), {1, 5}, .mode = WEIR_RESIZE_LINEAR, .coordinates = WEIR_COORDINATES_ALIGN_CORNERS))
CALL(asymmetric, weir_resize(LINE(), {2, 5}, .coordinates = WEIR_COORDINATES_ASYMMETRIC, .round = WEIR_ROUND_FLOOR))
CALL(scaled, weir_resize(LINE(), {1, 3}, .mode = WEIR_RESIZE_LINEAR, .coordinates = WEIR_COORDINATES_ASYMMETRIC, .scale = {0, 2}))
CALL(resize_nothing, weir_resize(LINE(), {1, 3}))
CALL(resize_dims, weir_resize(x, {ROWS}))
CALL(resize_mode, weir_resize(x, {ROWS, 8}, .mode = 2))

Test(index_calls, borders_and_sizes)
{
    VALUES(pad_zeros, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 0, 0);
    VALUES(pad_value, 1, 2, 3, -0.5, -0.5);
    VALUES(pad_edge, 1, 1, 1, 2, 3, 3);
    VALUES(pad_reflect, 3, 2, 1, 2, 3, 2);
    VALUES(pad_nothing, 1, 2, 3);
    VALUES(pad_integers, 9, 0, 1);
    VALUES(twice, 1, 1, 2, 2);
    VALUES(twice_linear, 1, 1.25, 1.75, 2);
    VALUES(corners, 1, 1.5, 2, 2.5, 3);
    VALUES(asymmetric, 1, 1, 2, 2, 3, 1, 1, 2, 2, 3);
    VALUES(scaled, 1, 1.5, 2);
    VALUES(resize_nothing, 1, 2, 3);
    expect_mistake(pad_below, "pad: 0 elements before and -1 behind dimension 1 must not be below 0; weir_slice() takes elements away");
    expect_mistake(pad_far, "pad: 3 elements before and 0 behind dimension 0 must be fewer than the dimension has, to be reflected");
    expect_mistake(pad_dims, "pad: 1 elements before and 0 behind dimension 2 are given, and x has fewer dimensions");
    expect_mistake(pad_mode, "pad: mode 3: it must be WEIR_PAD_CONSTANT, WEIR_PAD_EDGE or WEIR_PAD_REFLECT");
    expect_mistake(pad_number, "constant: 0.5 is no i32: it must be a whole number from -2147483648 to 2147483647");
    expect_mistake(resize_dims, "resize: 1 dimensions are given, and x has 2");
    expect_mistake(resize_mode, "resize: mode 2: it must be WEIR_RESIZE_NEAREST or WEIR_RESIZE_LINEAR");
}

CALL(hot_last, weir_one_hot(weir_range(g, WEIR_I32, 3, .start = -1), 3, -1))
CALL(hot_first, weir_one_hot(weir_range(g, WEIR_I64, 2, .start = 2), 3, 0))
CALL(hot_real, weir_one_hot(x, 3, 0))
CALL(hot_axis, weir_one_hot(weir_range(g, WEIR_I32, 3), 3, 2))
CALL(hot_none, weir_one_hot(weir_range(g, WEIR_I32, 3), 0, 0))

Test(index_calls, one_hot)
{
    VALUES(hot_last, 0, 0, 1, 1, 0, 0, 0, 1, 0);
    VALUES(hot_first, 0, 0, 0, 0, 1, 0);
    expect_mistake(hot_real, "one_hot: ids are f32, not i32 or i64");
    expect_mistake(hot_axis, "one_hot: axis 2 is not one of the 2 dimensions");
    expect_mistake(hot_none, "range: a range of 0 numbers: it must have at least 1");
}

/* ---- lines along an axis ---- */

CALL(running, weir_cumsum(weir_range(g, WEIR_I64, 4, .start = 1), 0))
CALL(running_back, weir_cumsum(weir_range(g, WEIR_F32, 4, .start = 1), -1, .exclusive = true, .reverse = true))
CALL(largest, weir_top_k(weir_range(g, WEIR_F32, 4), 2, 0, NULL))
CALL(smallest, weir_top_k(weir_range(g, WEIR_F32, 4), 2, 0, NULL, .smallest = true))
CALL(too_many, weir_top_k(x, 5, 1, NULL))
static weir_tensor *places_of_smallest(weir_graph *g, weir_tensor *x)
{
    (void)x;
    weir_tensor *indices = NULL;
    weir_top_k(weir_range(g, WEIR_F32, 4, .step = -1), 2, 0, &indices, .smallest = true);
    return indices;
}

Test(index_calls, sums_and_the_largest_along_an_axis)
{
    VALUES(running, 1, 3, 6, 10);
    VALUES(running_back, 9, 7, 4, 0);
    VALUES(largest, 3, 2);
    VALUES(smallest, 0, 1);
    VALUES(places_of_smallest, 3, 2);
    expect_mistake(too_many, "top_k: the 5 largest of 4 elements: it must be 1 to all of them");
}
