/* kernels/stored/unpack.h: blocks of several rows of a weight taken apart, by AVX-512 or AVX2 (vectors.h).
 *
 * All formats are taken apart in the same way: sixteen bytes of each row are loaded, and steps on whole vectors make bytes of
 * elements of them. No step is by single elements. A vector of bytes has one of two orders:
 *
 *     by words    a word of each row, as panels have them (panel.h): vector i has elements 4 i .. 4 i + 3 of every row
 *     by rows     sixteen bytes of every fourth row: vector 4 i + j has elements 16 i .. 16 i + 15 of rows j, j + 4, j + 8 and j + 12
 *
 * The second is the order of the file, and saves turning words over. Header-only; any thread.
 */
#ifndef KERNELS_STORED_UNPACK_H
#define KERNELS_STORED_UNPACK_H

#include "kernels/common/unroll.h"
#include "kernels/common/vectors.h"
#include "kernels/stored/panel.h"

#ifdef VECTOR_ROWS

/* The first bytes of a block of 32 of each row: a scale, perhaps a minimum. They are volatile so that the compiler stores one by one: to
 * make vectors of single words takes longer than all the other steps. */
typedef union block_header {
    volatile uint16_t scale[VECTOR_ROWS];
    volatile uint32_t both[VECTOR_ROWS];
} block_header;

/* Where a block of VECTOR_ROWS rows goes: into these columns of a panel. */
typedef struct place {
    row_places rows;
    const block_header *header;
    bool by_rows; /* the order of q; a constant where it is inlined */
    uint8_t *q;
    float *scales, *minima;
} place;

enum { VECTORS = PANEL_ROWS / VECTOR_ROWS, HEADERS = 8, HEADERS_AHEAD = 6 };

/* The header of the block that is `bytes` further on. */
VECTOR void header_read(const row_places *rows, int bytes, bool minimum, block_header *to)
{
    UNROLL
    for (int r = 0; r < VECTOR_ROWS; r++) {
        const unsigned char *at = rows->four[r / 4] + r % 4 * rows->step + bytes;
        if (minimum)
            to->both[r] = word_at(at);
        else
            to->scale[r] = half_at(at);
    }
}

/* The header of block b, the next of `blocks`. It also reads that of a later block, and before the first block those of all up to there. */
VECTOR const block_header *header_of(const row_places *rows, int64_t b, int64_t blocks, int bytes, bool minimum, block_header to[HEADERS])
{
    for (int i = 0; i < HEADERS_AHEAD && !b && i < blocks; i++)
        header_read(rows, i * bytes, minimum, &to[i]);
    if (b + HEADERS_AHEAD < blocks)
        header_read(rows, HEADERS_AHEAD * bytes, minimum, &to[(b + HEADERS_AHEAD) % HEADERS]);
    return &to[b % HEADERS];
}

/* Sixteen bytes of each row. */
VECTOR void load_elements(const place *p, int at, words q[4])
{
    rows_load(&p->rows, at, q);
    if (!p->by_rows)
        words_turn(q);
}

VECTOR void put_words(const place *p, int64_t word, words q)
{
    memcpy(p->q + word * PANEL_ROWS * 4, &q, sizeof q);
}

VECTOR void put_scales(const place *p, int64_t unit, reals scale)
{
    memcpy(p->scales + unit * PANEL_ROWS, &scale, sizeof scale);
}

VECTOR void put_minima(const place *p, int64_t unit, reals minimum)
{
    memcpy(p->minima + unit * PANEL_ROWS, &minimum, sizeof minimum);
}

/* Four bits of each byte. */
VECTOR words bits_of(words x, int shift)
{
    return x >> shift & 0x0F0F0F0F;
}

/* ---- blocks of 32; `header`: bytes in front of the 16 or 32 bytes of elements ---- */

VECTOR void put_four_bits(const place *p, int header, bool five)
{
    words q[4], high[4] = {};
    if (five && p->by_rows)
        rows_load(&p->rows, header - 4, high);
    else if (five)
        high[0] = words_of(&p->rows, header - 4);
    load_elements(p, header, q);
    UNROLL
    for (int g = 0; g < 8; g++) {
        const words low = bits_of(q[g % 4], g / 4 * 4);
        put_words(p, g, !five ? low : p->by_rows ? add_fifth_bits_by_rows(low, high[g % 4], g / 4) : add_fifth_bits(low, high[0], g));
    }
}

VECTOR void put_header(const place *p, bool minimum)
{
    words both;
    if (!minimum) {
        put_scales(p, 0, reals_load_f16(p->header));
        return;
    }
    memcpy(&both, p->header, sizeof both);
    put_scales(p, 0, reals_of_f16(both));
    put_minima(p, 0, reals_of_f16(both >> 16));
}

VECTOR void block_q4_0(const place *p)
{
    put_header(p, false);
    put_four_bits(p, 2, false);
}

VECTOR void block_q4_1(const place *p)
{
    put_header(p, true);
    put_four_bits(p, 4, false);
}

VECTOR void block_q5_0(const place *p)
{
    put_header(p, false);
    put_four_bits(p, 6, true);
}

VECTOR void block_q5_1(const place *p)
{
    put_header(p, true);
    put_four_bits(p, 8, true);
}

VECTOR void block_q8_0(const place *p)
{
    words q[4];
    put_header(p, false);
    UNROLL
    for (int g = 0; g < 8; g++) {
        if (g % 4 == 0)
            load_elements(p, 2 + 4 * g, q);
        put_words(p, g, q[g % 4] ^ 0x80808080);
    }
}

/* ---- blocks of 256 ---- */

/* Scales and minima of eight units: bytes of two words each, see block_scale_and_minimum(). */
VECTOR void put_scales_of_six_bits(const place *p)
{
    words h[4];
    words_load(&p->rows, 0, h);
    const reals d = reals_of_f16(h[0]), least = -reals_of_f16(h[0] >> 16);
    const words scale[2] = {h[1] & 0x3F3F3F3F, (h[3] & 0x0F0F0F0F) | (h[1] >> 6 & 0x03030303) << 4};
    const words minimum[2] = {h[2] & 0x3F3F3F3F, (h[3] >> 4 & 0x0F0F0F0F) | (h[2] >> 6 & 0x03030303) << 4};
    UNROLL
    for (int j = 0; j < 8; j++) {
        put_scales(p, j, d * reals_of(scale[j / 4] >> j % 4 * 8 & 255));
        put_minima(p, j, least * reals_of(minimum[j / 4] >> j % 4 * 8 & 255));
    }
}

VECTOR void block_q4_k(const place *p)
{
    words q[4];
    put_scales_of_six_bits(p);
    for (int part = 0; part < 8; part++) { /* of 16 bytes: the first or second half of two units */
        load_elements(p, 16 + 16 * part, q);
        UNROLL
        for (int g = 0; g < 8; g++)
            put_words(p, (part / 2 * 2 + g / 4) * 8 + part % 2 * 4 + g % 4, bits_of(q[g % 4], g / 4 * 4));
    }
}

/* Half of a block, eight units of 16: four times 16 bytes of low bits, twice 16 of high ones. */
VECTOR void put_six_bits(const place *p, int half)
{
    words high[2][4];
    load_elements(p, 128 + 32 * half, high[0]);
    load_elements(p, 144 + 32 * half, high[1]);
    UNROLL
    for (int part = 0; part < 4; part++) {
        words low[4];
        load_elements(p, 64 * half + 16 * part, low);
        UNROLL
        for (int g = 0; g < 8; g++) {
            const int unit = part + g / 4 * 4;
            const words upper = (high[part % 2][g % 4] >> unit / 2 * 2 & 0x03030303) << 4;
            put_words(p, (8 * half + unit) * 4 + g % 4, bits_of(low[g % 4], g / 4 * 4) | upper);
        }
    }
}

VECTOR void block_q6_k(const place *p)
{
    words scale[4];
    words_load(&p->rows, 192, scale);
    const reals d = reals_of_f16(words_of(&p->rows, 206) >> 16);
    UNROLL
    for (int unit = 0; unit < 16; unit++)
        put_scales(p, unit, d * __builtin_convertvector((whole_words)(scale[unit / 4] << (24 - unit % 4 * 8)) >> 24, reals));
    put_six_bits(p, 0);
    put_six_bits(p, 1);
}

/* ---- all ---- */

/* name, function; elements, bytes and units of a block, whether units have a minimum, how integers are summed without VPDPBUSD (dots.h) */
#define UNPACKED_FORMATS(X)                                                                  \
    X(Q4_0, q4_0, 32, 18, 1, false, EIGHT_WORDS) X(Q4_1, q4_1, 32, 20, 1, true, EIGHT_WORDS) \
    X(Q5_0, q5_0, 32, 22, 1, false, FOUR_WORDS) X(Q5_1, q5_1, 32, 24, 1, true, FOUR_WORDS)   \
    X(Q8_0, q8_0, 32, 34, 1, false, ONE_WORD) X(Q4_K, q4_k, 256, 144, 8, true, EIGHT_WORDS)  \
    X(Q6_K, q6_k, 256, 210, 16, false, TWO_WORDS)

/* As many bytes as a block of 16 rows has are asked for from `at` on: the processor by itself foresees no reads that go on in 16 rows at
 * once, and took three times as long. */
VECTOR void ask_for_blocks(const unsigned char *at, int bytes)
{
    for (int line = 0; line < PANEL_ROWS * bytes; line += 64)
        __builtin_prefetch(at + line, 0, 2);
}

#endif
#endif
