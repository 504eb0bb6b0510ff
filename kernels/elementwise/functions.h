/* kernels/elementwise/functions.h: functions of one element, or of two, as types that kernels on a GPU are made with:
 * `gelu_function::of(x)`. Slopes have the names of the gradients' ops. Header-only; for nvcc and the emulator. */
#ifndef KERNELS_ELEMENTWISE_FUNCTIONS_H
#define KERNELS_ELEMENTWISE_FUNCTIONS_H

#include "kernels/cuda/kernel.h"
#include "kernels/elementwise/formula.h"

#define FUNCTION(name, expression)                      \
    struct name##_function {                            \
        DEVICE float of(float x) { return expression; } \
    };
FUNCTION(neg, neg_of(x))
FUNCTION(exp, fast_exp(x))
FUNCTION(log, fast_log(x))
FUNCTION(sqrt, sqrtf(x))
FUNCTION(tanh, fast_tanh(x))
FUNCTION(sigmoid, fast_sigmoid(x))
FUNCTION(relu, relu_of(x))
FUNCTION(gelu, gelu_of(x))
FUNCTION(silu, silu_of(x))
FUNCTION(sqrt_grad, sqrt_slope(x))
FUNCTION(tanh_grad, tanh_slope(x))
FUNCTION(sigmoid_grad, sigmoid_slope(x))
FUNCTION(relu_grad, relu_slope(x))
FUNCTION(gelu_grad, gelu_slope(x))
FUNCTION(silu_grad, silu_slope(x))
#undef FUNCTION

#define PAIR(name, expression)                                   \
    struct name##_function {                                     \
        DEVICE float of(float a, float b) { return expression; } \
    };
PAIR(add, a + b)
PAIR(sub, a - b)
PAIR(mul, a *b)
PAIR(div, a / b)
#undef PAIR

#endif
