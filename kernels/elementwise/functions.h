/* kernels/elementwise/functions.h: functions of one element, or of two, as types that kernels on a GPU are made with:
 * `gelu_function::of(x)`. Slopes have the names of the gradients' ops. Of integers: `abs_whole::of(x)`, as unsigned ones. Header-only; for nvcc and the emulator. */
#ifndef KERNELS_ELEMENTWISE_FUNCTIONS_H
#define KERNELS_ELEMENTWISE_FUNCTIONS_H

#include "kernels/common/elements.h"
#include "kernels/cuda/kernel.h"
#include "kernels/elementwise/formula.h"

#define FUNCTION(X, name, f, ...)                 \
    struct name##_function {                      \
        DEVICE float of(float x) { return f(x); } \
    };
#define SLOPE(X, name, f, operations, cheap, half, whole, saved, slope, more) FUNCTION(X, name, f) FUNCTION(X, name##_grad, slope)
#define WHOLE(X, name, f)                                     \
    struct name##_whole {                                     \
        template <class U> DEVICE U of(U x) { return f(x); }  \
    };
#define PAIR(X, name, f, ...)                                            \
    struct name##_function {                                             \
        template <class T> DEVICE T of(T a, T b) { return f(a, b); }     \
    };
#define TEST(X, name, f, ...)                                            \
    struct name##_function {                                             \
        template <class T> DEVICE uint8_t of(T a, T b) { return f(a, b); } \
    };
FUNCTION_ROWS(FUNCTION, )
SLOPE_ROWS(SLOPE, )
FLAT_ROWS(FUNCTION, )
WHOLE_ROWS(WHOLE, )
PAIR_ROWS(PAIR, )
SLOPE_PAIR_ROWS(PAIR, )
TEST_ROWS(TEST, )
#undef FUNCTION
#undef SLOPE
#undef WHOLE
#undef PAIR
#undef TEST

#endif
