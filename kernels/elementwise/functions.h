/* kernels/elementwise/functions.h: functions of one element, or of two, as types that kernels on a GPU are made with:
 * `gelu_function::of(x)`. Slopes have the names of the gradients' ops. Header-only; for nvcc and the emulator. */
#ifndef KERNELS_ELEMENTWISE_FUNCTIONS_H
#define KERNELS_ELEMENTWISE_FUNCTIONS_H

#include "kernels/common/elements.h"
#include "kernels/cuda/kernel.h"
#include "kernels/elementwise/formula.h"

#define FUNCTION(X, name, f, ...)                 \
    struct name##_function {                      \
        DEVICE float of(float x) { return f(x); } \
    };
#define SLOPE(X, name, f, operations, cheap, half, saved, slope, more) FUNCTION(X, name, f) FUNCTION(X, name##_grad, slope)
#define PAIR(X, name, operator_)                                    \
    struct name##_function {                                        \
        DEVICE float of(float a, float b) { return a operator_ b; } \
    };
FUNCTION_ROWS(FUNCTION, )
SLOPE_ROWS(SLOPE, )
PAIR_ROWS(PAIR, )
#undef FUNCTION
#undef SLOPE
#undef PAIR

#endif
