/* half.c: f16 and bf16 as f32, and back.
 *
 *     f32    sign, 8 bits of exponent, 23 of fraction        bf16 is its upper half: the same range, 8 digits
 *     f16    sign, 5 bits of exponent, 10 of fraction        11 digits, up to 65504, subnormals below 2^-14
 *
 * Widening is exact; narrowing rounds to the nearest, ties to even; what is too large becomes infinite, and a NaN stays
 * one (quiet, with the upper bits of its payload). Subnormals are kept on both sides. The processor's own instruction
 * for bf16 (VCVTNEPS2BF16) would take them for zeros, and so give other bits on other machines: rounding by integers is
 * a few operations on sixteen lanes, and the loop is bound by memory. That for f16 (VCVTPS2PH) does what is wanted.
 */
#include "graph/base/half.h"

#include <string.h>

#if defined(__AVX512F__) || defined(__F16C__)
#include <immintrin.h>
#endif

#ifdef __clang__
#define HALF_LOOP _Pragma("clang loop vectorize(assume_safety)")
#else
#define HALF_LOOP _Pragma("GCC ivdep")
#endif

static void f32_from_bf16(const uint16_t *from, int64_t count, float *to)
{
    HALF_LOOP
    for (int64_t i = 0; i < count; i++)
        to[i] = half_from_bf16(from[i]);
}

static void f32_to_bf16(const float *from, int64_t count, uint16_t *to)
{
    HALF_LOOP
    for (int64_t i = 0; i < count; i++)
        to[i] = half_to_bf16(from[i]);
}

static void f32_from_f16(const uint16_t *from, int64_t count, float *to)
{
    int64_t i = 0;
#ifdef __AVX512F__
    for (; i + 16 <= count; i += 16)
        _mm512_storeu_ps(to + i, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(from + i))));
#elif defined(__F16C__)
    for (; i + 8 <= count; i += 8)
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(from + i))));
#endif
    for (; i < count; i++)
        to[i] = half_from_f16(from[i]);
}

static void f32_to_f16(const float *from, int64_t count, uint16_t *to)
{
    int64_t i = 0;
#ifdef __AVX512F__
    for (; i + 16 <= count; i += 16)
        _mm256_storeu_si256((__m256i *)(void *)(to + i),
                            _mm512_cvtps_ph(_mm512_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif defined(__F16C__)
    for (; i + 8 <= count; i += 8)
        _mm_storeu_si128((__m128i *)(void *)(to + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
#endif
    for (; i < count; i++)
        to[i] = half_to_f16(from[i]);
}

bool weir_dtype_real(weir_dtype dtype)
{
    return dtype == WEIR_F32 || dtype == WEIR_F16 || dtype == WEIR_BF16;
}

void weir_to_f32(weir_dtype dtype, const void *from, int64_t count, float *to)
{
    if (dtype == WEIR_BF16)
        f32_from_bf16(from, count, to);
    else if (dtype == WEIR_F16)
        f32_from_f16(from, count, to);
    else if (count)
        memmove(to, from, (size_t)count * sizeof *to);
}

void weir_from_f32(const float *from, int64_t count, weir_dtype dtype, void *to)
{
    if (dtype == WEIR_BF16)
        f32_to_bf16(from, count, to);
    else if (dtype == WEIR_F16)
        f32_to_f16(from, count, to);
    else if (count)
        memmove(to, from, (size_t)count * sizeof *from);
}
