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

#if defined(__AVX512BW__) && defined(__AVX512VL__)
#define HALF_AVX512
#endif
#if defined(HALF_AVX512) || defined(__F16C__)
#include <immintrin.h>
#endif

#ifdef HALF_AVX512

enum { WIDTH = 16 };

static inline __m512 widen_bf16(__m256i half)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

/* half_to_bf16() of each */
static inline __m256i narrow_bf16(__m512 x)
{
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i even = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(even, _mm512_set1_epi32(0x7FFF)));
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    const __m512i kept = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x00400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(kept, 16));
}

static inline __m256i narrow_f16(__m512 x)
{
    return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* The last, fewer than WIDTH, go through a mask; others do not, because what reads a masked store waits for it. */
static inline __mmask16 mask_of(int64_t left)
{
    return (__mmask16)((1u << left) - 1);
}

#define WIDEN(name, function)                                                                                   \
    static void f32_from_##name(const uint16_t *from, int64_t count, float *to)                                 \
    {                                                                                                           \
        int64_t i = 0;                                                                                          \
        for (; i + WIDTH <= count; i += WIDTH)                                                                  \
            _mm512_storeu_ps(to + i, function(_mm256_loadu_si256((const __m256i *)(const void *)(from + i))));  \
        const __mmask16 some = mask_of(count - i);                                                              \
        if (some)                                                                                               \
            _mm512_mask_storeu_ps(to + i, some, function(_mm256_maskz_loadu_epi16(some, from + i)));            \
    }
#define NARROW(name, function)                                                                                  \
    static void f32_to_##name(const float *from, int64_t count, uint16_t *to)                                   \
    {                                                                                                           \
        int64_t i = 0;                                                                                          \
        for (; i + WIDTH <= count; i += WIDTH)                                                                  \
            _mm256_storeu_si256((__m256i *)(void *)(to + i), function(_mm512_loadu_ps(from + i)));              \
        const __mmask16 some = mask_of(count - i);                                                              \
        if (some)                                                                                               \
            _mm256_mask_storeu_epi16(to + i, some, function(_mm512_maskz_loadu_ps(some, from + i)));            \
    }
WIDEN(bf16, widen_bf16)
WIDEN(f16, _mm512_cvtph_ps)
NARROW(bf16, narrow_bf16)
NARROW(f16, narrow_f16)

#else

static void f32_from_bf16(const uint16_t *from, int64_t count, float *to)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = half_from_bf16(from[i]);
}

static void f32_to_bf16(const float *from, int64_t count, uint16_t *to)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = half_to_bf16(from[i]);
}

static void f32_from_f16(const uint16_t *from, int64_t count, float *to)
{
    int64_t i = 0;
#ifdef __F16C__
    for (; i + 8 <= count; i += 8)
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(from + i))));
#endif
    for (; i < count; i++)
        to[i] = half_from_f16(from[i]);
}

static void f32_to_f16(const float *from, int64_t count, uint16_t *to)
{
    int64_t i = 0;
#ifdef __F16C__
    for (; i + 8 <= count; i += 8)
        _mm_storeu_si128((__m128i *)(void *)(to + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
#endif
    for (; i < count; i++)
        to[i] = half_to_f16(from[i]);
}

#endif

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
