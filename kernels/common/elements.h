/* kernels/common/elements.h: the functions of elements, a row for each. The ops, their gradients and costs, their kernels on CPUs and
 * cards, and their steps in chains are made of these rows; formulas are in kernels/elementwise/formula.h.
 *
 *     FUNCTION_ROWS   name, f, operations, signatures, cheap, half, whole                           y = f(x)
 *     SLOPE_ROWS      name, f, operations, cheap, half, whole, saved, slope, operations             y = f(x), dx = slope(saved) dy
 *     FLAT_ROWS       name, f, operations, half, whole                                              y = f(x), dx = 0
 *     PAIR_ROWS       name, f, signatures, half, dtypes                                             y = f(a, b)
 *     SLOPE_PAIR_ROWS name, f, dtypes                                                               y = f(a, b), of a gradient
 *     TEST_ROWS       name, f, dtypes                                                               y = f(a, b), 1 or 0 (u8)
 *
 * operations: floating-point ones for an element, about. cheap: the backward pass may compute it once more. half: the policy of half
 * precision. whole: what the function is for i32 and i64, one of WHOLE_ROWS; none: it has no such elements. saved: the gradient
 * NAME_grad reads it, in or out, whichever the forward pass keeps anyway. unary.c and binary.c have the gradients of the first kind
 * and of pairs. dtypes, of both operands:
 *
 *     real       f32, f16, bf16
 *     wrapping   and i32, i64, computed as unsigned integers of that size
 *     ordered    and i32, i64
 *     compared   and i32, i64, u8
 *     bytes      u8 alone
 *
 *     #define NAME(X, name, ...) X(name)
 *     SLOPE_ROWS(NAME, X)                    X(sqrt) X(tanh) ...       X goes through as it is
 */
#ifndef KERNELS_COMMON_ELEMENTS_H
#define KERNELS_COMMON_ELEMENTS_H

#define FUNCTION_ROWS(ROW, X)                                                 \
    ROW(X, neg, neg_of, 1, sign_alike_linear, false, WEIR_HALF_FOLLOW, neg)   \
    ROW(X, exp, fast_exp, 18, sign_alike, false, WEIR_HALF_NEVER, none)       \
    ROW(X, log, fast_log, 22, sign_alike, false, WEIR_HALF_NEVER, none)

#define PLAIN_SLOPE_ROWS(ROW, X)                                                                        \
    ROW(X, sqrt, sqrtf, 1, false, WEIR_HALF_NEVER, none, out, sqrt_slope, 2)                            \
    ROW(X, tanh, fast_tanh, 32, false, WEIR_HALF_FOLLOW, none, out, tanh_slope, 3)                      \
    ROW(X, sigmoid, fast_sigmoid, 21, false, WEIR_HALF_FOLLOW, none, out, sigmoid_slope, 3)             \
    ROW(X, relu, relu_of, 1, false, WEIR_HALF_FOLLOW, none, out, relu_slope, 1)                         \
    ROW(X, gelu, gelu_of, 27, true, WEIR_HALF_FOLLOW, none, in, gelu_slope, 36)                         \
    ROW(X, silu, silu_of, 22, true, WEIR_HALF_FOLLOW, none, in, silu_slope, 26)                         \
    ROW(X, abs, fabsf, 1, false, WEIR_HALF_FOLLOW, abs, in, sign_of, 3)                                 \
    ROW(X, erf, fast_erf, 40, false, WEIR_HALF_FOLLOW, none, in, erf_slope, 21)                         \
    ROW(X, gelu_erf, gelu_erf_of, 44, true, WEIR_HALF_FOLLOW, none, in, gelu_erf_slope, 66)             \
    ROW(X, reciprocal, reciprocal_of, 1, false, WEIR_HALF_FOLLOW, none, out, reciprocal_slope, 3)       \
    ROW(X, softplus, softplus_of, 46, false, WEIR_HALF_FOLLOW, none, in, fast_sigmoid, 22)

#define SLOPE_ROWS(ROW, X)                                                          \
    PLAIN_SLOPE_ROWS(ROW, X)                                                        \
    ROW(X, sin, fast_sin, 40, false, WEIR_HALF_NEVER, none, in, fast_cos, 41)       \
    ROW(X, cos, fast_cos, 40, false, WEIR_HALF_NEVER, none, in, cos_slope, 41)

#define FLAT_ROWS(ROW, X)                                        \
    ROW(X, floor, floorf, 1, WEIR_HALF_FOLLOW, none)             \
    ROW(X, ceil, ceilf, 1, WEIR_HALF_FOLLOW, none)               \
    ROW(X, round, rintf, 1, WEIR_HALF_FOLLOW, none)              \
    ROW(X, sign, sign_of, 2, WEIR_HALF_FOLLOW, sign)

/* name, f: of integers, which wrap around */
#define WHOLE_ROWS(ROW, X) ROW(X, neg, whole_neg) ROW(X, abs, whole_abs) ROW(X, sign, whole_sign)

#define PLAIN_PAIR_ROWS(ROW, X)                                           \
    ROW(X, add, pair_add, sign_sum, WEIR_HALF_FOLLOW, wrapping)           \
    ROW(X, sub, pair_sub, sign_sum, WEIR_HALF_FOLLOW, wrapping)           \
    ROW(X, mul, pair_mul, sign_product, WEIR_HALF_FOLLOW, wrapping)       \
    ROW(X, div, pair_div, sign_quotient, WEIR_HALF_FOLLOW, real)          \
    ROW(X, min2, pair_min, sign_broadcast, WEIR_HALF_FOLLOW, ordered)     \
    ROW(X, max2, pair_max, sign_broadcast, WEIR_HALF_FOLLOW, ordered)

#define PAIR_ROWS(ROW, X) PLAIN_PAIR_ROWS(ROW, X) ROW(X, pow, powf, sign_broadcast, WEIR_HALF_NEVER, real)

#define SLOPE_PAIR_ROWS(ROW, X) ROW(X, pow_da, pow_slope_a, real) ROW(X, pow_db, pow_slope_b, real)

#define TEST_ROWS(ROW, X)                             \
    ROW(X, equal, pair_equal, compared)               \
    ROW(X, less, pair_less, compared)                 \
    ROW(X, less_equal, pair_less_equal, compared)     \
    ROW(X, logical_and, pair_and, bytes)              \
    ROW(X, logical_or, pair_or, bytes)                \
    ROW(X, logical_xor, pair_xor, bytes)

/* Names: of functions, of their gradients' ops, of pairs. */
#define ELEMENT_NAME(X, name, ...) X(name)
#define ELEMENT_GRAD(X, name, ...) X(name##_grad)
#define ELEMENT_FUNCTIONS(X) FUNCTION_ROWS(ELEMENT_NAME, X) SLOPE_ROWS(ELEMENT_NAME, X) FLAT_ROWS(ELEMENT_NAME, X)
#define ELEMENT_GRADIENTS(X) SLOPE_ROWS(ELEMENT_GRAD, X)
#define ELEMENT_PAIRS(X) PAIR_ROWS(ELEMENT_NAME, X) SLOPE_PAIR_ROWS(ELEMENT_NAME, X)
/* The steps of chains on a card: all but pow, sin and cos, which take more registers than a chain has. */
#define ELEMENT_PLAIN_FUNCTIONS(X) FUNCTION_ROWS(ELEMENT_NAME, X) PLAIN_SLOPE_ROWS(ELEMENT_NAME, X) FLAT_ROWS(ELEMENT_NAME, X)
#define ELEMENT_PLAIN_GRADIENTS(X) PLAIN_SLOPE_ROWS(ELEMENT_GRAD, X)
#define ELEMENT_PLAIN_PAIRS(X) PLAIN_PAIR_ROWS(ELEMENT_NAME, X)
#define ELEMENT_TESTS(X) TEST_ROWS(ELEMENT_NAME, X)

#endif
