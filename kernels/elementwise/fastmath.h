/* kernels/elementwise/fastmath.h: exp, log, tanh, the logistic function, sin, cos and erf for loops that the compiler turns
 * into vector code: no branches, no calls, no tables. Each is within 4 ulp of the true value over all of f32
 * (tests/kernels/test_elementwise.c sweeps them), with two exceptions: sigmoid gives 0 where the true value is below 2^-128,
 * and sin and cos of numbers beyond 2^28 lose the phase, digit by digit, and stay within [-1, 1]. Infinities and NaN behave
 * as in libm.
 *
 * A loop vectorises when it is no more than `y[i] = fast_exp(x[i])` over int64_t i; put FAST_LOOP before it. That
 * pragma says that no iteration reads what another one wrote, which also holds when x == y. `restrict` would not allow
 * that, and without either, gcc's own overlap test sends the in-place case to scalar code.
 */
#ifndef KERNELS_ELEMENTWISE_FASTMATH_H
#define KERNELS_ELEMENTWISE_FASTMATH_H

#include "graph/base/formula.h"

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

/* The nearest integer of a double; one beyond 2^51 may become another beside it. */
FORMULA double fast_nearest(double x)
{
    const double round = 0x1.8p52;
    return (x + round) - round;
}

/* sin(x + quarter pi / 2) in double: x = n pi / 2 + y, then the polynomials of fdlibm's __kernel_sindf and __kernel_cosdf
 * (Bruce Evans) of y. The two parts of pi / 2 are FreeBSD's: n times the first is exact up to |x| = 2^28. Larger numbers lose
 * whole turns before that, as well as a double knows them. The quadrant is n modulo 4, as a double. */
FORMULA float fast_turn(float x, double quarter)
{
    const double far = (double)x - fast_nearest((double)x * 0.15915494309189535) * 6.283185307179586;
    const double bound = far > 0x1p28 ? 0x1p28 : far < -0x1p28 ? -0x1p28 : far;
    const double v = fabsf(x) <= 0x1p28f ? (double)x : bound;
    const double n = fast_nearest(v * 0.6366197723675814);
    const double y = v - n * 1.57079631090164184570 - n * 1.58932547735281966916e-08, z = y * y;
    const double s = y + y * z * ((-0.166666666416265235595 + z * 0.0083333293858894631756) +
                                  z * z * (-0.000198393348360966317347 + z * 0.0000027183114939898219064));
    const double c = (1 + z * -0.499999997251031003120) + z * z * (0.0416666233237390631894 +
                                  z * (-0.00138867637746099294692 + z * 0.0000243904487962774090654));
    const double turned = n + quarter, quadrant = turned - 4 * fast_nearest(turned * 0.25 - 0.375);
    const double picked = quadrant == 1 || quadrant == 3 ? c : s;
    return (float)(quadrant >= 2 ? -picked : picked);
}

/* A card's own functions know the phase of all numbers. */
FORMULA float fast_sin(float x)
{
#ifdef __CUDA_ARCH__
    return sinf(x);
#endif
    return x == 0 ? x : fast_turn(x, 0);
}

FORMULA float fast_cos(float x)
{
#ifdef __CUDA_ARCH__
    return cosf(x);
#endif
    return fast_turn(x, 1);
}

/* log(erfc(|x|)) for |x| above 475/512, and erf(x) / x - 1 below: minimax polynomials of N. Juffa (2016, published in the
 * public domain), with about 1 ulp of erf. */
FORMULA float fast_erfc_log(float a)
{
    const float s = a * a;
    float r = -1.72853470e-5f * a + 3.83197126e-4f;
    float u = -3.88396438e-3f * a + 2.42546219e-2f;
    r = r * s + u;
    r = r * a - 1.06777877e-1f;
    r = r * a - 6.34846687e-1f;
    r = r * a - 1.28717512e-1f;
    return r * a - a;
}

FORMULA float fast_erf_near(float s)
{
    float r = -5.96761703e-4f;
    r = r * s + 4.99119423e-3f;
    r = r * s - 2.67681349e-2f;
    r = r * s + 1.12819925e-1f;
    r = r * s - 3.76125336e-1f;
    return r * s + 1.28379166e-1f;
}

enum { FAST_ERF_NEAR = 475 }; /* of 512 */

FORMULA float fast_erf(float x)
{
    const float a = fabsf(x), far = 1.0f - fast_exp(fast_erfc_log(a));
    const float near = fast_erf_near(x * x) * x + x;
    return a > FAST_ERF_NEAR / 512.0f ? copysignf(far, x) : near;
}

/* The distribution function of N(0, 1), (1 + erf(x / sqrt 2)) / 2. Its tail is no difference, so it keeps falling. */
FORMULA float fast_normal(float x)
{
    const float u = x * 0.70710678118654752f, tail = 0.5f * fast_exp(fast_erfc_log(fabsf(u)));
    const float near = 0.5f + 0.5f * (fast_erf_near(u * u) * u + u);
    const float far = u > 0 ? 1.0f - tail : tail;
    return fabsf(u) > FAST_ERF_NEAR / 512.0f ? far : near;
}

#endif
