/* kernels/stored/vectors.h: words of several rows of a weight side by side, by AVX-512 or AVX2.
 *
 * A vector has a word of 32 bits of each of VECTOR_ROWS rows. Words of sixteen bytes of each row come as four vectors: rows are loaded
 * as they lie, and each 4 x 4 words of four of them are turned over. Arithmetic on vectors is the compiler's. Header-only; any thread.
 */
#ifndef KERNELS_STORED_VECTORS_H
#define KERNELS_STORED_VECTORS_H

#if defined __AVX512BW__ && defined __AVX512VL__
#define VECTOR_ROWS 16
#elif defined __AVX2__ && defined __FMA__ && defined __F16C__
#define VECTOR_ROWS 8
#endif

#ifdef VECTOR_ROWS

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#pragma GCC diagnostic ignored "-Wpsabi" /* vectors never cross a call that is not inlined */

typedef uint32_t words __attribute__((vector_size(VECTOR_ROWS * 4)));
typedef int32_t whole_words __attribute__((vector_size(VECTOR_ROWS * 4)));
typedef float reals __attribute__((vector_size(VECTOR_ROWS * 4)));

#define VECTOR static inline __attribute__((always_inline))

VECTOR __m128i sixteen_bytes(const unsigned char *at)
{
    return _mm_loadu_si128((const __m128i *)(const void *)at);
}

VECTOR uint32_t word_at(const unsigned char *at)
{
    uint32_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

VECTOR __m128i four_words(const unsigned char *rows, int64_t step)
{
    return _mm_set_epi32((int)word_at(rows + 3 * step), (int)word_at(rows + 2 * step), (int)word_at(rows + step),
                         (int)word_at(rows));
}

#if VECTOR_ROWS == 16

#define V(name) _mm512_##name
typedef __m512i vector;

/* Sixteen bytes of rows 0, 4, 8 and 12, which are `step` bytes apart. */
VECTOR vector every_fourth(const unsigned char *rows, int64_t step)
{
    const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(sixteen_bytes(rows)), sixteen_bytes(rows + 4 * step), 1);
    const __m256i high =
        _mm256_inserti128_si256(_mm256_castsi128_si256(sixteen_bytes(rows + 8 * step)), sixteen_bytes(rows + 12 * step), 1);
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

/* The first word of each row. */
VECTOR words words_of(const unsigned char *rows, int64_t step)
{
    const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(four_words(rows, step)), four_words(rows + 4 * step, step), 1);
    const __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(four_words(rows + 8 * step, step)), four_words(rows + 12 * step, step), 1);
    return (words)_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

/* The lower halves of words, which are f16. */
VECTOR reals reals_of_f16(words x)
{
    return (reals)_mm512_cvtph_ps(_mm512_cvtepi32_epi16((__m512i)x));
}

/* Adds 16 to byte k of each word whose bit 4 * `group` + k of `high` is set. */
VECTOR words add_fifth_bits(words q, words high, int group)
{
    const int byte = group / 2;
    const __m512i from = _mm512_set4_epi32(0x0c0c0c0c + byte * 0x01010101, 0x08080808 + byte * 0x01010101, 0x04040404 + byte * 0x01010101,
                                           byte * 0x01010101);
    const __m512i bits = _mm512_set1_epi32(group % 2 ? (int)0x80402010 : 0x08040201);
    const __mmask64 set = _mm512_test_epi8_mask(_mm512_shuffle_epi8((__m512i)high, from), bits);
    return (words)_mm512_mask_add_epi8((__m512i)q, set, (__m512i)q, _mm512_set1_epi8(16));
}

#else

#define V(name) _mm256_##name
typedef __m256i vector;

VECTOR vector every_fourth(const unsigned char *rows, int64_t step)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(sixteen_bytes(rows)), sixteen_bytes(rows + 4 * step), 1);
}

VECTOR words words_of(const unsigned char *rows, int64_t step)
{
    return (words)_mm256_inserti128_si256(_mm256_castsi128_si256(four_words(rows, step)), four_words(rows + 4 * step, step), 1);
}

VECTOR reals reals_of_f16(words x)
{
    const __m256i low = (__m256i)(x & 0xFFFF), packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, low), 8);
    return (reals)_mm256_cvtph_ps(_mm256_castsi256_si128(packed));
}

VECTOR words add_fifth_bits(words q, words high, int group)
{
    const int byte = group / 2, none = 0x01010101;
    const __m256i from = _mm256_setr_epi32(byte * none, (4 + byte) * none, (8 + byte) * none, (12 + byte) * none, byte * none,
                                           (4 + byte) * none, (8 + byte) * none, (12 + byte) * none);
    const __m256i bits = _mm256_set1_epi32(group % 2 ? (int)0x80402010 : 0x08040201);
    const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_shuffle_epi8((__m256i)high, from), bits), bits);
    return q | ((words)set & 0x10101010);
}

#endif

/* The first four words of each row. */
VECTOR void words_load(const unsigned char *rows, int64_t step, words to[4])
{
    const vector a = every_fourth(rows, step), b = every_fourth(rows + step, step), c = every_fourth(rows + 2 * step, step),
                 d = every_fourth(rows + 3 * step, step);
    const vector ab = V(unpacklo_epi32)(a, b), ba = V(unpackhi_epi32)(a, b), cd = V(unpacklo_epi32)(c, d), dc = V(unpackhi_epi32)(c, d);
    to[0] = (words)V(unpacklo_epi64)(ab, cd);
    to[1] = (words)V(unpackhi_epi64)(ab, cd);
    to[2] = (words)V(unpacklo_epi64)(ba, dc);
    to[3] = (words)V(unpackhi_epi64)(ba, dc);
}

VECTOR reals reals_of(words x)
{
    return __builtin_convertvector((whole_words)x, reals);
}

#endif
#endif
