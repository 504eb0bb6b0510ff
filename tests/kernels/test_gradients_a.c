/* test_gradients_a.c: the gradient builders of elementwise, reduction, shape and random ops against finite differences,
 * built in the DSL as a user would. Sizes are small, so that no element lies within a step of a kink (the seed is
 * fixed). */
#include "tests/support/gradient_check.h"

#include "kernels/reduce/reduce.h"
#include "kernels/shape/shape.h"

#include <criterion/criterion.h>

#define SEED 1618 /* of all random values here */
#define TOLERANCE 2e-3

static weir_tensor *param(weir_graph *g, const char *name, int64_t a, int64_t b, int64_t c)
{
    return weir_param(g, WEIR_F32, {a, b, c}, .name = name);
}

/* A positive tensor, away from 0. */
static weir_tensor *positive(weir_graph *g, const char *name, int64_t a, int64_t b)
{
    return weir_affine(weir_sigmoid(param(g, name, a, b, 0)), 2, .shift = 0.5);
}

/* ---- elementwise ---- */

#define UNARY_MODEL(name)                              \
    static weir_tensor *name##_model(weir_graph *g)    \
    {                                                  \
        return weir_##name(param(g, "x", 3, 4, 0));    \
    }
UNARY_MODEL(neg)
UNARY_MODEL(exp)
UNARY_MODEL(tanh)
UNARY_MODEL(sigmoid)
UNARY_MODEL(relu)
UNARY_MODEL(gelu)
UNARY_MODEL(silu)
UNARY_MODEL(softmax)
UNARY_MODEL(abs)
UNARY_MODEL(sin)
UNARY_MODEL(cos)
UNARY_MODEL(erf)
UNARY_MODEL(gelu_erf)
UNARY_MODEL(softplus)
/* Away from the steps: of numbers from 0.1 to 0.4. */
#define FLAT_MODEL(name)                                                                                           \
    static weir_tensor *name##_model(weir_graph *g)                                                                \
    {                                                                                                              \
        return weir_##name(weir_affine(weir_sigmoid(param(g, "x", 3, 4, 0)), 0.3, .shift = 0.1));                  \
    }
FLAT_MODEL(floor)
FLAT_MODEL(ceil)
FLAT_MODEL(round)
FLAT_MODEL(sign)

static weir_tensor *clip_model(weir_graph *g)
{
    return weir_clip(param(g, "x", 3, 4, 0), .lo = -0.3, .hi = 0.6);
}
static weir_tensor *where_model(weir_graph *g)
{
    weir_tensor *a = param(g, "a", 3, 4, 0), *b = param(g, "b", 4, 0, 0);
    return weir_where(weir_greater(a, b), a, weir_mul(b, b));
}
static weir_tensor *pow_model(weir_graph *g)
{
    return weir_pow(positive(g, "a", 3, 4), param(g, "b", 4, 0, 0));
}

static weir_tensor *log_model(weir_graph *g)
{
    return weir_log(positive(g, "x", 3, 4));
}
static weir_tensor *sqrt_model(weir_graph *g)
{
    return weir_sqrt(positive(g, "x", 3, 4));
}
static weir_tensor *reciprocal_model(weir_graph *g)
{
    return weir_reciprocal(positive(g, "x", 3, 4));
}
static weir_tensor *affine_model(weir_graph *g)
{
    return weir_affine(param(g, "x", 3, 4, 0), -1.5, .shift = 2);
}
static weir_tensor *cast_model(weir_graph *g)
{
    return weir_cast(param(g, "x", 3, 4, 0), WEIR_F32);
}

Test(gradients, of_functions, .timeout = 120)
{
    const gradient_model models[] = {neg_model,  exp_model,  tanh_model, sigmoid_model, relu_model,   gelu_model,
                                     silu_model, log_model,  sqrt_model, affine_model,  softmax_model, cast_model,
                                     abs_model,  sin_model,  cos_model,  erf_model,     gelu_erf_model, softplus_model,
                                     reciprocal_model, floor_model, ceil_model, round_model, sign_model, clip_model, where_model, pow_model};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        gradient_check(models[m], SEED, TOLERANCE);
}

/* Every op with both operands of one shape, and with either broadcast in front, behind and in between. */
#define BINARY_MODELS(name)                                                         \
    static weir_tensor *name##_same(weir_graph *g)                                  \
    {                                                                               \
        return weir_##name(param(g, "a", 3, 4, 0), positive(g, "b", 3, 4));         \
    }                                                                               \
    static weir_tensor *name##_row(weir_graph *g)                                   \
    {                                                                               \
        return weir_##name(param(g, "a", 3, 4, 0), positive(g, "b", 4, 0));         \
    }                                                                               \
    static weir_tensor *name##_column(weir_graph *g)                                \
    {                                                                               \
        return weir_##name(param(g, "a", 3, 1, 0), positive(g, "b", 3, 4));         \
    }                                                                               \
    static weir_tensor *name##_outer(weir_graph *g)                                 \
    {                                                                               \
        return weir_##name(param(g, "a", 2, 1, 3), positive(g, "b", 4, 1));         \
    }                                                                               \
    static weir_tensor *name##_scalar(weir_graph *g)                                \
    {                                                                               \
        return weir_##name(param(g, "a", 0, 0, 0), positive(g, "b", 3, 2));         \
    }
BINARY_MODELS(add)
BINARY_MODELS(sub)
BINARY_MODELS(mul)
BINARY_MODELS(div)
BINARY_MODELS(min2)
BINARY_MODELS(max2)

Test(gradients, of_binary_ops_are_summed_over_what_was_broadcast, .timeout = 120)
{
    const gradient_model models[] = {add_same, add_row, add_column, add_outer, add_scalar, sub_same, sub_row,
                                     sub_column, sub_outer, sub_scalar, mul_same, mul_row, mul_column, mul_outer,
                                     mul_scalar, div_same, div_row, div_column, div_outer, div_scalar,
                                     min2_same, min2_row, min2_column, min2_outer, min2_scalar, max2_same, max2_row,
                                     max2_column, max2_outer, max2_scalar};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        gradient_check(models[m], SEED, TOLERANCE);
}

static weir_tensor *square_model(weir_graph *g)
{
    weir_tensor *x = param(g, "x", 3, 4, 0);
    return weir_mul(x, x);
}
static weir_tensor *half_frozen_model(weir_graph *g)
{
    weir_tensor *x = weir_param(g, WEIR_F32, {3, 4}, .name = "frozen", .frozen = true);
    return weir_add(weir_mul(x, param(g, "a", 4, 0, 0)), weir_div(param(g, "b", 3, 1, 0), positive(g, "c", 3, 4)));
}
static weir_tensor *add_many_model(weir_graph *g)
{
    weir_tensor *x = param(g, "x", 3, 4, 0), *y = param(g, "y", 3, 4, 0);
    weir_tensor *all[4] = {x, weir_tanh(y), y, x};
    return weir_add_many_at(all, 4, WEIR_OPTS(weir_op_opts));
}

Test(gradients, of_a_tensor_that_is_used_more_than_once, .timeout = 120)
{
    gradient_check(square_model, SEED, TOLERANCE);
    gradient_check(half_frozen_model, SEED, TOLERANCE);
    gradient_check(add_many_model, SEED, TOLERANCE);
}

/* ---- reductions ---- */

#define REDUCE_MODELS(name)                                                                        \
    static weir_tensor *name##_all(weir_graph *g)                                                  \
    {                                                                                              \
        return weir_##name(param(g, "x", 3, 4, 2));                                                \
    }                                                                                              \
    static weir_tensor *name##_last(weir_graph *g)                                                 \
    {                                                                                              \
        return weir_##name(param(g, "x", 3, 4, 2), .axes = {-1}, .axis_count = 1);                 \
    }                                                                                              \
    static weir_tensor *name##_middle(weir_graph *g)                                               \
    {                                                                                              \
        return weir_##name(param(g, "x", 3, 4, 2), .axes = {1}, .axis_count = 1, .keep = true);    \
    }                                                                                              \
    static weir_tensor *name##_ends(weir_graph *g)                                                 \
    {                                                                                              \
        return weir_##name(param(g, "x", 3, 4, 2), .axes = {2, 0}, .axis_count = 2);               \
    }
REDUCE_MODELS(sum)
REDUCE_MODELS(mean)
REDUCE_MODELS(max)
REDUCE_MODELS(min)
REDUCE_MODELS(prod)

Test(gradients, of_reductions, .timeout = 120)
{
    const gradient_model models[] = {sum_all,  sum_last,  sum_middle,  sum_ends, mean_all, mean_last, mean_middle,
                                     mean_ends, max_all, max_last, max_middle, max_ends, min_all, min_last, min_middle,
                                     min_ends, prod_all, prod_last, prod_middle, prod_ends};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        gradient_check(models[m], SEED, TOLERANCE);
}

static weir_tensor *sum_to_model(weir_graph *g)
{
    return reduce_sum_to(param(g, "x", 3, 4, 2), &(weir_shape){2, {4, 1}}, WEIR_HERE);
}
static weir_tensor *broadcast_to_model(weir_graph *g)
{
    return shape_broadcast_to(param(g, "x", 3, 1, 0), &(weir_shape){3, {2, 3, 4}}, WEIR_HERE);
}

Test(gradients, of_sum_to_and_broadcast_to_are_each_other, .timeout = 120)
{
    gradient_check(sum_to_model, SEED, TOLERANCE);
    gradient_check(broadcast_to_model, SEED, TOLERANCE);
}

/* ---- shapes ---- */

static weir_tensor *reshape_model(weir_graph *g)
{
    return weir_reshape(param(g, "x", 3, 4, 2), {6, -1});
}
static weir_tensor *transpose_model(weir_graph *g)
{
    return weir_transpose(param(g, "x", 3, 4, 2), {2, 0, 1});
}
static weir_tensor *slice_model(weir_graph *g)
{
    return weir_slice(param(g, "x", 3, 4, 2), 1, 1, 2);
}
static weir_tensor *slice_end_model(weir_graph *g)
{
    return weir_slice(param(g, "x", 3, 4, 2), -1, 1, 1);
}
static weir_tensor *slice_step_model(weir_graph *g)
{
    return weir_slice(param(g, "x", 3, 7, 2), 1, 1, 3, .step = 2);
}
static weir_tensor *reverse_model(weir_graph *g)
{
    return weir_slice(param(g, "x", 3, 4, 2), 0, 2, 3, .step = -1);
}
static weir_tensor *expand_model(weir_graph *g)
{
    weir_tensor *x = weir_expand(param(g, "x", 3, 1, 0), {2, 3, 4});
    return weir_mul(x, weir_add(weir_range(g, WEIR_F32, 4, .start = 0.5), weir_constant(g, WEIR_F32, {3, 4}, .value = -0.25)));
}
/* Ids -1, 0, 1, ... */
static weir_tensor *some_ids(weir_graph *g, int64_t rows, int64_t columns)
{
    return weir_reshape(weir_range(g, WEIR_I32, rows * columns, .start = -1), {rows, columns});
}
static weir_tensor *gather_model(weir_graph *g)
{
    return weir_gather(param(g, "x", 3, 4, 2), some_ids(g, 2, 2), 1);
}
static weir_tensor *gather_nd_model(weir_graph *g)
{
    return weir_gather_nd(param(g, "x", 4, 4, 2), some_ids(g, 2, 2), 0);
}
static weir_tensor *gather_elements_model(weir_graph *g)
{
    return weir_gather_elements(param(g, "x", 6, 2, 0), some_ids(g, 3, 2), 0);
}
static weir_tensor *cumsum_model(weir_graph *g)
{
    return weir_cumsum(param(g, "x", 3, 4, 2), 1);
}
static weir_tensor *cumsum_back_model(weir_graph *g)
{
    return weir_cumsum(param(g, "x", 3, 4, 2), -1, .exclusive = true, .reverse = true);
}
static weir_tensor *top_k_model(weir_graph *g)
{
    return weir_top_k(param(g, "x", 3, 4, 2), 2, 1, NULL);
}
static weir_tensor *top_k_smallest_model(weir_graph *g)
{
    return weir_top_k(param(g, "x", 3, 4, 2), 3, 0, NULL, .smallest = true);
}
#define RESIZE_MODEL(name, ...)                                             \
    static weir_tensor *name(weir_graph *g)                                 \
    {                                                                       \
        return weir_resize(param(g, "x", 3, 4, 2), {3, 7, 5}, __VA_ARGS__); \
    }
RESIZE_MODEL(resize_nearest, .mode = WEIR_RESIZE_NEAREST)
RESIZE_MODEL(resize_linear, .mode = WEIR_RESIZE_LINEAR)
RESIZE_MODEL(resize_corners, .mode = WEIR_RESIZE_LINEAR, .coordinates = WEIR_COORDINATES_ALIGN_CORNERS)
#define PAD_MODEL(name, ...)                                                                                      \
    static weir_tensor *name(weir_graph *g)                                                                       \
    {                                                                                                             \
        return weir_pad(param(g, "x", 3, 4, 2), .before = {2, 0, 1}, .after = {1, 3}, .mode = WEIR_PAD_##__VA_ARGS__); \
    }
PAD_MODEL(pad_zeros, CONSTANT)
PAD_MODEL(pad_value, CONSTANT, .value = 0.5)
PAD_MODEL(pad_edge, EDGE)
PAD_MODEL(pad_reflect, REFLECT)
static weir_tensor *pad_model(weir_graph *g)
{
    return shape_pad(param(g, "x", 3, 4, 2), 1, 2, 1, WEIR_HERE);
}
static weir_tensor *concat_model(weir_graph *g)
{
    weir_tensor *x = param(g, "x", 3, 1, 2);
    return weir_concat(-2, {x, param(g, "y", 3, 3, 2), x, param(g, "z", 3, 2, 2)});
}

Test(gradients, of_shape_ops, .timeout = 120)
{
    const gradient_model models[] = {reshape_model, transpose_model, slice_model,
                                     slice_end_model, pad_model, concat_model, slice_step_model, reverse_model,
                                     expand_model, gather_model, gather_nd_model, gather_elements_model,
                                     resize_nearest, resize_linear, resize_corners, pad_zeros, pad_value, pad_edge, pad_reflect,
                                     cumsum_model, cumsum_back_model, top_k_model, top_k_smallest_model};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        gradient_check(models[m], SEED, TOLERANCE);
}

/* ---- dropout ---- */

static weir_tensor *dropout_model(weir_graph *g)
{
    return weir_dropout(weir_tanh(param(g, "x", 5, 6, 0)), 0.4);
}

Test(gradients, of_dropout_go_where_the_forward_pass_kept, .timeout = 120)
{
    gradient_check(dropout_model, SEED, TOLERANCE);
}
