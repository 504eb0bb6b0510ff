/* kernels/common/elements.h: the functions of elements, a row for each. The ops, their gradients and costs, their kernels on CPUs and
 * cards, and their steps in chains are made of these rows; formulas are in kernels/elementwise/formula.h.
 *
 *     FUNCTION_ROWS   name, f, operations, signatures, cheap, half                           y = f(x)
 *     SLOPE_ROWS      name, f, operations, cheap, half, saved, slope, operations             y = f(x), dx = slope(saved) dy
 *     PAIR_ROWS       name, operator                                                         y = a operator b
 *
 * operations: floating-point ones for an element, about. cheap: the backward pass may compute it once more. half: the policy of half
 * precision. saved: the gradient NAME_grad reads it, in or out, whichever the forward pass keeps anyway. unary.c and binary.c have the
 * gradients of the first and the last kind.
 *
 *     #define NAME(X, name, ...) X(name)
 *     SLOPE_ROWS(NAME, X)                    X(sqrt) X(tanh) ...       X goes through as it is
 */
#ifndef KERNELS_COMMON_ELEMENTS_H
#define KERNELS_COMMON_ELEMENTS_H

#define FUNCTION_ROWS(ROW, X)                                           \
    ROW(X, neg, neg_of, 1, sign_alike_linear, false, WEIR_HALF_FOLLOW)  \
    ROW(X, exp, fast_exp, 18, sign_alike, false, WEIR_HALF_NEVER)       \
    ROW(X, log, fast_log, 22, sign_alike, false, WEIR_HALF_NEVER)

#define SLOPE_ROWS(ROW, X)                                                               \
    ROW(X, sqrt, sqrtf, 1, false, WEIR_HALF_NEVER, out, sqrt_slope, 2)                   \
    ROW(X, tanh, fast_tanh, 32, false, WEIR_HALF_FOLLOW, out, tanh_slope, 3)             \
    ROW(X, sigmoid, fast_sigmoid, 21, false, WEIR_HALF_FOLLOW, out, sigmoid_slope, 3)    \
    ROW(X, relu, relu_of, 1, false, WEIR_HALF_FOLLOW, out, relu_slope, 1)                \
    ROW(X, gelu, gelu_of, 27, true, WEIR_HALF_FOLLOW, in, gelu_slope, 36)                \
    ROW(X, silu, silu_of, 22, true, WEIR_HALF_FOLLOW, in, silu_slope, 26)

#define PAIR_ROWS(ROW, X) ROW(X, add, +) ROW(X, sub, -) ROW(X, mul, *) ROW(X, div, /)

/* Names: of functions, of their gradients' ops, of pairs. */
#define ELEMENT_NAME(X, name, ...) X(name)
#define ELEMENT_GRAD(X, name, ...) X(name##_grad)
#define ELEMENT_FUNCTIONS(X) FUNCTION_ROWS(ELEMENT_NAME, X) SLOPE_ROWS(ELEMENT_NAME, X)
#define ELEMENT_GRADIENTS(X) SLOPE_ROWS(ELEMENT_GRAD, X)
#define ELEMENT_PAIRS(X) PAIR_ROWS(ELEMENT_NAME, X)

#endif
