/* kernels/elementwise/formula.h: functions of one element, and their slopes, from the input or from the output, and of two
 * elements; for all kinds of devices. A name of kernels/common/elements.h may be a macro: then it is for any dtype. Any thread. */
#ifndef KERNELS_ELEMENTWISE_FORMULA_H
#define KERNELS_ELEMENTWISE_FORMULA_H

#include "kernels/elementwise/fastmath.h"

#include <stdbool.h>

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

/* 1, -1, or x itself where that is 0 or NaN. */
FORMULA float sign_of(float x)
{
    return x > 0 ? 1.0f : x < 0 ? -1.0f : x;
}

FORMULA float cos_slope(float x)
{
    return -fast_sin(x);
}

FORMULA float erf_slope(float x)
{
    return 1.1283791670955126f * fast_exp(-x * x); /* 2 / sqrt(pi) */
}

/* x times the distribution function of N(0, 1) (Hendrycks and Gimpel 2016). Below -40 it is -0; see gelu_of(). */
FORMULA float gelu_erf_of(float x)
{
    x = x < -40.0f ? -40.0f : x;
    return x * fast_normal(x);
}

FORMULA float gelu_erf_slope(float x)
{
    x = x > 40.0f ? 40.0f : x;
    x = x < -40.0f ? -40.0f : x;
    return fast_normal(x) + x * 0.3989422804014327f * fast_exp(-0.5f * x * x);
}

FORMULA float reciprocal_of(float x)
{
    return 1.0f / x;
}

FORMULA float reciprocal_slope(float y)
{
    return -y * y;
}

/* log(1 + exp(x)) as max(x, 0) + log(1 + e). log(u) e / (u - 1), where u is 1 + e rounded, has the digits of e that u has
 * lost (Kahan). */
FORMULA float softplus_of(float x)
{
    const float e = fast_exp(-fabsf(x)), u = 1.0f + e;
    const float rest = u == 1.0f ? e : fast_log(u) * (e / (u - 1.0f));
    return (x > 0 ? x : 0.0f) + rest;
}

/* ---- of two elements of any dtype; pair_min and pair_max of a NaN are NaN, and a comparison with one is false ---- */

#define pair_add(a, b) ((a) + (b))
#define pair_sub(a, b) ((a) - (b))
#define pair_mul(a, b) ((a) * (b))
#define pair_div(a, b) ((a) / (b))
#define pair_min(a, b) (((b) < (a)) | ((b) != (b)) ? (b) : (a))
#define pair_max(a, b) (((b) > (a)) | ((b) != (b)) ? (b) : (a))
#define pair_equal(a, b) ((a) == (b))
#define pair_less(a, b) ((a) < (b))
#define pair_less_equal(a, b) ((a) <= (b))
#define pair_and(a, b) (((a) != 0) & ((b) != 0))
#define pair_or(a, b) (((a) != 0) | ((b) != 0))
#define pair_xor(a, b) (((a) != 0) ^ ((b) != 0))

/* d(a^b)/da, 0 for a constant power of 0, and d(a^b)/db, 0 at a = 0, where a^b does not change with b. */
FORMULA float pow_slope_a(float a, float b)
{
    return b == 0 ? 0 : b * powf(a, b - 1);
}

FORMULA float pow_slope_b(float a, float b)
{
    return a == 0 && b >= 0 ? 0 : powf(a, b) * fast_log(a);
}

FORMULA float clip_of(float x, float lo, float hi)
{
    x = x < lo ? lo : x;
    return x > hi ? hi : x;
}

FORMULA bool clip_slope(float x, float lo, float hi)
{
    return (x >= lo) & (x <= hi);
}

/* ---- of i32 and i64, as the unsigned integers of the same size: they wrap around, as -INT32_MIN is INT32_MIN ---- */

#define WHOLE_NEGATIVE(x) ((x) >> (sizeof(x) * 8 - 1) != 0)
#define whole_neg(x) (0 - (x))
#define whole_abs(x) (WHOLE_NEGATIVE(x) ? 0 - (x) : (x))
#define whole_sign(x) (WHOLE_NEGATIVE(x) ? 0 * (x) - 1 : 0 * (x) + ((x) != 0))

#endif
