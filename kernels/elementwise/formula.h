/* kernels/elementwise/formula.h: functions of one element, and their slopes, from the input or from the output; for all kinds
 * of devices. Any thread. */
#ifndef KERNELS_ELEMENTWISE_FORMULA_H
#define KERNELS_ELEMENTWISE_FORMULA_H

#include "kernels/elementwise/fastmath.h"

#define GELU_SLOPE 1.5957691216057308f /* 2 sqrt(2/pi) */
#define GELU_CUBIC 0.044715f

FORMULA float neg_of(float x)
{
    return -x;
}

FORMULA float relu_of(float x)
{
    return x < 0 ? 0 : x;
}

/* x/2 (1 + tanh u) is x sigmoid(2u), which keeps its digits where 1 + tanh(u) cancels. Below -200 it is -0; without the
 * bound -infinity would give 0 * infinity. */
FORMULA float gelu_of(float x)
{
    x = x < -200.0f ? -200.0f : x;
    return x * fast_sigmoid(GELU_SLOPE * x * (1.0f + GELU_CUBIC * x * x));
}

FORMULA float silu_of(float x)
{
    x = x < -200.0f ? -200.0f : x;
    return x * fast_sigmoid(x);
}

/* Beyond +-20 the derivative is 1 or 0 to the last digit, and x^2 may not overflow. */
FORMULA float gelu_slope(float x)
{
    x = x > 20.0f ? 20.0f : x;
    x = x < -20.0f ? -20.0f : x;
    float s = fast_sigmoid(GELU_SLOPE * x * (1.0f + GELU_CUBIC * x * x));
    return s + x * s * (1.0f - s) * GELU_SLOPE * (1.0f + 3.0f * GELU_CUBIC * x * x);
}

FORMULA float silu_slope(float x)
{
    x = x > 200.0f ? 200.0f : x;
    x = x < -200.0f ? -200.0f : x;
    float s = fast_sigmoid(x);
    return s + x * s * (1.0f - s);
}

FORMULA float tanh_slope(float y)
{
    return 1.0f - y * y;
}

FORMULA float sigmoid_slope(float y)
{
    return y * (1.0f - y);
}

FORMULA float relu_slope(float y)
{
    return y > 0 ? 1.0f : 0.0f;
}

FORMULA float sqrt_slope(float y)
{
    return 0.5f / y;
}

#endif
