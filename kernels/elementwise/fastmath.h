/* kernels/elementwise/fastmath.h: exp, log, tanh and the logistic function for loops that the compiler turns into
 * vector code: no branches, no calls, no tables. Each is within 4 ulp of the true value over all of f32
 * (tests/kernels/test_elementwise.c sweeps them), except that sigmoid gives 0 where the true value is below 2^-128.
 * Infinities and NaN behave as in libm.
 *
 * A loop vectorises when it is no more than `y[i] = fast_exp(x[i])` over int64_t i; put FAST_LOOP before it. That
 * pragma says that no iteration reads what another one wrote, which also holds when x == y. `restrict` would not allow
 * that, and without either, gcc's own overlap test sends the in-place case to scalar code.
 */
#ifndef KERNELS_ELEMENTWISE_FASTMATH_H
#define KERNELS_ELEMENTWISE_FASTMATH_H

#include "kernels/common/formula.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef __clang__
#define FAST_LOOP _Pragma("clang loop vectorize(assume_safety)")
#else
#define FAST_LOOP _Pragma("GCC ivdep")
#endif

FORMULA uint32_t fast_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

FORMULA float fast_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* 2^k for k in -126..127 */
FORMULA float fast_pow2(int32_t k)
{
    return fast_float(((uint32_t)k + 127u) << 23);
}

/* x = n ln 2 + r, exp(x) = 2^n exp(r); the polynomial and the two parts of ln 2 are those of Cephes expf (Moshier
 * 1989). Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits, with no conversion that is undefined for
 * NaN. 2^n is applied in two halves, so that results fade into subnormals and overflow to infinity by themselves. */
FORMULA float fast_exp(float x)
{
    const float round = 0x1.8p23f;
    x = x > 89.0f ? 89.0f : x;
    x = x < -105.0f ? -105.0f : x;
    float shifted = x * 1.44269504088896341f + round;
    float n = shifted - round;
    float r = x - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    int32_t k = (int32_t)(fast_bits(shifted) - fast_bits(round));
    int32_t half = k >> 1;
    return p * fast_pow2(half) * fast_pow2(k - half);
}

/* x = 2^k (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)); the series in s = f / (2 + f) is that of fdlibm's logf (Sun
 * Microsystems 1993). Subnormals are scaled by 2^23 first. */
FORMULA float fast_log(float x)
{
    const uint32_t one = 0x3f800000u, sqrt_half = 0x3f3504f3u;
    float scaled = x < 0x1p-126f ? x * 0x1p23f : x;
    uint32_t bits = fast_bits(scaled) + (one - sqrt_half);
    float k = (float)((int32_t)(bits >> 23) - 127) - (x < 0x1p-126f ? 23.0f : 0.0f);
    float f = fast_float((bits & 0x007fffffu) + sqrt_half) - 1.0f;
    float s = f / (2.0f + f), z = s * s, w = z * z;
    float series = z * (0.66666662693f + w * 0.28498786688f) + w * (0.40000972152f + w * 0.24279078841f);
    float half = 0.5f * f * f;
    float y = s * (half + series) + k * 9.0580006145e-06f - half + f + k * 6.9313812256e-01f;
    y = x == 0.0f ? -INFINITY : y;
    y = x == INFINITY ? INFINITY : y;
    return x >= 0.0f ? y : NAN;
}

/* Near 0 the odd polynomial of Cephes tanhf, else 1 - 2 / (exp(2|x|) + 1). */
FORMULA float fast_tanh(float x)
{
    float a = fabsf(x), z = x * x;
    float big = 1.0f - 2.0f / (fast_exp(2.0f * a) + 1.0f);
    float p = -5.70498872745e-3f;
    p = p * z + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    return copysignf(a < 0.625f ? p * z * a + a : big, x);
}

FORMULA float fast_sigmoid(float x)
{
    return 1.0f / (1.0f + fast_exp(-x));
}

#endif
