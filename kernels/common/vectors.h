/* kernels/common/vectors.h: words of several rows side by side, by AVX-512 or AVX2: of a weight, or of keys.
 *
 * A vector has a word of 32 bits of each of VECTOR_ROWS rows. Words of sixteen bytes of each row come as four vectors: rows are loaded
 * as they lie, and each 4 x 4 words of four of them are turned over. Arithmetic on vectors is the compiler's. Header-only; any thread.
 */
#ifndef KERNELS_COMMON_VECTORS_H
#define KERNELS_COMMON_VECTORS_H

#if defined __AVX512BW__ && defined __AVX512VL__
#define VECTOR_ROWS 16
#elif defined __AVX2__ && defined __FMA__ && defined __F16C__
#define VECTOR_ROWS 8
#endif

#ifdef VECTOR_ROWS

#include "kernels/common/unroll.h"

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

VECTOR uint16_t half_at(const unsigned char *at)
{
    uint16_t half;
    memcpy(&half, at, sizeof half);
    return half;
}

/* VECTOR_ROWS rows: the first of each four, and how far rows lie apart. These few pointers stay in registers. */
typedef struct row_places {
    const unsigned char *four[VECTOR_ROWS / 4];
    int64_t step;
} row_places;

VECTOR row_places row_places_of(const unsigned char *rows, int64_t step)
{
    row_places p = {.step = step};
    for (int i = 0; i < VECTOR_ROWS / 4; i++)
        p.four[i] = rows + 4 * i * step;
    return p;
}

/* `bytes` further on in each row. */
VECTOR void rows_move(row_places *rows, int bytes)
{
    for (int i = 0; i < VECTOR_ROWS / 4; i++) {
        rows->four[i] += bytes;
        __asm__("" : "+r"(rows->four[i])); /* else the compiler keeps a pointer for each row, in memory */
    }
}

/* Sixteen bytes of a row, from `at` on. */
VECTOR __m128i of_row(const row_places *rows, int row, int at)
{
    return sixteen_bytes(rows->four[row / 4] + row % 4 * rows->step + at);
}

VECTOR __m128i four_words(const row_places *rows, int row, int at)
{
    const unsigned char *first = rows->four[row / 4] + at;
    return _mm_set_epi32((int)word_at(first + 3 * rows->step), (int)word_at(first + 2 * rows->step), (int)word_at(first + rows->step),
                         (int)word_at(first));
}

#if VECTOR_ROWS == 16

#define V(name) _mm512_##name
typedef __m512i vector;

/* Sixteen bytes of rows j, j + 4, j + 8 and j + 12. */
VECTOR vector every_fourth(const row_places *rows, int j, int at)
{
    vector v = _mm512_castsi128_si512(of_row(rows, j, at));
    v = _mm512_inserti32x4(v, of_row(rows, j + 4, at), 1);
    v = _mm512_inserti32x4(v, of_row(rows, j + 8, at), 2);
    return _mm512_inserti32x4(v, of_row(rows, j + 12, at), 3);
}

/* A word of each row. */
VECTOR words words_of(const row_places *rows, int at)
{
    const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(four_words(rows, 0, at)), four_words(rows, 4, at), 1);
    const __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(four_words(rows, 8, at)), four_words(rows, 12, at), 1);
    return (words)_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

VECTOR reals reals_load_f16(const void *at)
{
    return (reals)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)at));
}

/* The lower halves of words, which are f16. */
VECTOR reals reals_of_f16(words x)
{
    return (reals)_mm512_cvtph_ps(_mm512_cvtepi32_epi16((__m512i)x));
}

VECTOR vector in_every_lane(int a, int b, int c, int d)
{
    return _mm512_set4_epi32(d, c, b, a);
}

VECTOR vector sixteen_bytes_of_all(const void *at)
{
    return _mm512_broadcast_i32x4(sixteen_bytes(at));
}

/* Elements 2 i of `from` to element i of [0], 2 i + 1 to [1]; and back. */
VECTOR void pairs_apart(const float *from, reals to[2])
{
    const __m512 a = _mm512_loadu_ps(from), b = _mm512_loadu_ps(from + 16);
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    to[0] = (reals)_mm512_permutex2var_ps(a, even, b);
    to[1] = (reals)_mm512_permutex2var_ps(a, _mm512_add_epi32(even, _mm512_set1_epi32(1)), b);
}

VECTOR void pairs_together(const reals from[2], float *to)
{
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    _mm512_storeu_ps(to, _mm512_permutex2var_ps((__m512)from[0], low, (__m512)from[1]));
    _mm512_storeu_ps(to + 16, _mm512_permutex2var_ps((__m512)from[0], _mm512_add_epi32(low, _mm512_set1_epi32(8)), (__m512)from[1]));
}

/* Adds 16 to the bytes of q where the bits of `high`, as `from` shuffles it, meet `bits`. */
VECTOR words add_sixteen(words q, words high, vector from, vector bits)
{
    const __mmask64 set = _mm512_test_epi8_mask(_mm512_shuffle_epi8((__m512i)high, from), bits);
    return (words)_mm512_mask_add_epi8((__m512i)q, set, (__m512i)q, _mm512_set1_epi8(16));
}

#else

#define V(name) _mm256_##name
typedef __m256i vector;

VECTOR vector every_fourth(const row_places *rows, int j, int at)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(of_row(rows, j, at)), of_row(rows, j + 4, at), 1);
}

VECTOR words words_of(const row_places *rows, int at)
{
    return (words)_mm256_inserti128_si256(_mm256_castsi128_si256(four_words(rows, 0, at)), four_words(rows, 4, at), 1);
}

VECTOR reals reals_load_f16(const void *at)
{
    return (reals)_mm256_cvtph_ps(sixteen_bytes(at));
}

VECTOR reals reals_of_f16(words x)
{
    const __m256i low = (__m256i)(x & 0xFFFF), packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, low), 8);
    return (reals)_mm256_cvtph_ps(_mm256_castsi256_si128(packed));
}

VECTOR vector in_every_lane(int a, int b, int c, int d)
{
    return _mm256_setr_epi32(a, b, c, d, a, b, c, d);
}

VECTOR vector sixteen_bytes_of_all(const void *at)
{
    return _mm256_broadcastsi128_si256(sixteen_bytes(at));
}

VECTOR void pairs_apart(const float *from, reals to[2])
{
    const __m256 a = _mm256_loadu_ps(from), b = _mm256_loadu_ps(from + 8);
    to[0] = (reals)_mm256_permute4x64_pd((__m256d)_mm256_shuffle_ps(a, b, 0x88), 0xD8);
    to[1] = (reals)_mm256_permute4x64_pd((__m256d)_mm256_shuffle_ps(a, b, 0xDD), 0xD8);
}

VECTOR void pairs_together(const reals from[2], float *to)
{
    const __m256 a = _mm256_unpacklo_ps((__m256)from[0], (__m256)from[1]), b = _mm256_unpackhi_ps((__m256)from[0], (__m256)from[1]);
    _mm256_storeu_ps(to, _mm256_permute2f128_ps(a, b, 0x20));
    _mm256_storeu_ps(to + 8, _mm256_permute2f128_ps(a, b, 0x31));
}

VECTOR words add_sixteen(words q, words high, vector from, vector bits)
{
    const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_shuffle_epi8((__m256i)high, from), bits), bits);
    return q | ((words)set & 0x10101010);
}

#endif

/* Adds 16 to byte k of each word whose bit 4 * `group` + k of `high` is set. */
VECTOR words add_fifth_bits(words q, words high, int group)
{
    const int first = group / 2 * 0x01010101, next = 0x04040404;
    return add_sixteen(q, high, in_every_lane(first, next + first, 2 * next + first, 3 * next + first),
                       V(set1_epi32)(group % 2 ? (int)0x80402010 : 0x08040201));
}

/* The same by rows: to byte k of sixteen whose bit 16 * `half` + k is set in the first word of these in `high`. */
VECTOR words add_fifth_bits_by_rows(words q, words high, int half)
{
    const int first = half * 0x02020202, next = first + 0x01010101;
    return add_sixteen(q, high, in_every_lane(first, first, next, next), in_every_lane(0x08040201, (int)0x80402010, 0x08040201, (int)0x80402010));
}

/* Sixteen bytes of each row, from `at` on: to[j] has those of rows j, j + 4, j + 8 and j + 12. */
VECTOR void rows_load(const row_places *rows, int at, words to[4])
{
    UNROLL
    for (int j = 0; j < 4; j++)
        to[j] = (words)every_fourth(rows, j, at);
}

/* These rows become words: to[i] has word i of each row. */
VECTOR void words_turn(words q[4])
{
    const vector a = (vector)q[0], b = (vector)q[1], c = (vector)q[2], d = (vector)q[3];
    const vector ab = V(unpacklo_epi32)(a, b), ba = V(unpackhi_epi32)(a, b), cd = V(unpacklo_epi32)(c, d), dc = V(unpackhi_epi32)(c, d);
    q[0] = (words)V(unpacklo_epi64)(ab, cd);
    q[1] = (words)V(unpackhi_epi64)(ab, cd);
    q[2] = (words)V(unpacklo_epi64)(ba, dc);
    q[3] = (words)V(unpackhi_epi64)(ba, dc);
}

/* Four words of each row. */
VECTOR void words_load(const row_places *rows, int at, words to[4])
{
    rows_load(rows, at, to);
    words_turn(to);
}

/* The sum of each row's four words. `of` is as rows_load() makes it. */
VECTOR vector rows_sum(const vector of[4])
{
    const vector ab = V(add_epi32)(V(unpacklo_epi32)(of[0], of[1]), V(unpackhi_epi32)(of[0], of[1]));
    const vector cd = V(add_epi32)(V(unpacklo_epi32)(of[2], of[3]), V(unpackhi_epi32)(of[2], of[3]));
    return V(add_epi32)(V(unpacklo_epi64)(ab, cd), V(unpackhi_epi64)(ab, cd));
}

VECTOR reals reals_of(words x)
{
    return __builtin_convertvector((whole_words)x, reals);
}

#endif
#endif
