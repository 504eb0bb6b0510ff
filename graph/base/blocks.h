/* graph/base/blocks.h: formats of quantised weights: rows of blocks, as GGUF files have them.
 *
 * A block has a scale, often a minimum, and a small integer for each of its 32 or 256 elements. A row of a tensor is a whole number
 * of blocks, so element i is in block i / elements. The formulas, with the order of their operations, are those of ggml
 * (dequantize_row_* in ggml-quants.c), and so the bits are equal.
 *
 *     Q4_0, Q5_0, Q8_0    d * q          d: f16, a scale
 *     Q4_1, Q5_1          d * q + m      m: f16, a minimum
 *     Q4_K                (d * scale) * q - (least * minimum): scale and minimum of 6 bits for 32 elements each
 *     Q6_K                (d * scale) * q: a scale of 8 bits for 16 elements each
 *
 * A *unit* is the elements that share a scale: 32, or 16 of Q6_K. Each format gives its units in one form, which is what products
 * compute with:
 *
 *     element = scale * (q - zero) + minimum      q: a byte from 0 to `most`; zero: a constant of the format
 *
 * The scale and the minimum of a unit are exact in f32. Q4_0 and Q8_0 are also written. Blocks need no alignment. Pure functions;
 * any thread.
 */
#ifndef GRAPH_BASE_BLOCKS_H
#define GRAPH_BASE_BLOCKS_H

#include "graph/base/half.h"

#include <weir/base.h>

enum { BLOCK_ELEMENTS_MAX = 256, BLOCK_UNIT_MAX = 32, BLOCK_BYTES_MAX = 210 };

typedef struct block_format {
    const char *name;    /* "Q4_1" */
    int elements, bytes; /* of a block */
    int unit;            /* elements of a unit */
    int zero, most;
    bool minimum;        /* whether units have a minimum; else zero is not 0 */
} block_format;

/* Unit `unit` of a block. *minimum is 0 where the format has none. */
typedef struct block_unit {
    uint8_t q[BLOCK_UNIT_MAX];
    float scale, minimum;
} block_unit;

/* NULL: WEIR_DENSE, or a number that is no format. */
static inline const block_format *block_format_of(int64_t format)
{
    static const block_format formats[] = {
        {"", 1, 0, 1, 0, 0, false},          {"Q4_0", 32, 18, 32, 8, 15, false},    {"Q4_1", 32, 20, 32, 0, 15, true},
        {"Q5_0", 32, 22, 32, 16, 31, false}, {"Q5_1", 32, 24, 32, 0, 31, true},     {"Q8_0", 32, 34, 32, 128, 255, false},
        {"Q4_K", 256, 144, 32, 0, 15, true}, {"Q6_K", 256, 210, 16, 32, 63, false},
    };
    return format > WEIR_DENSE && format <= WEIR_Q6_K ? &formats[format] : NULL;
}

/* The format that has the name; WEIR_DENSE: none has it. */
weir_format block_format_named(const char *name);

/* All elements of a block. */
void block_read(weir_format format, const unsigned char *block, float *to);

/* Elements [from, from + count) of a row of blocks. */
void block_read_row(weir_format format, const unsigned char *row, int64_t from, int64_t count, float *to);

/* Writes `count` elements, a whole number of blocks, as blocks of Q4_0 or Q8_0, with the bits of ggml's reference (quantize_row_*_ref).
 * False: an element is not finite, or too large for the scale, an f16. */
bool block_write_row(weir_format format, const float *from, int64_t count, unsigned char *to);

/* ---- units ---- */

FORMULA float block_f16(const unsigned char *at)
{
    uint16_t half;
    memcpy(&half, at, sizeof half);
    return half_from_f16(half);
}

/* Blocks of 32: element i in the low half of byte i, element i + 16 in its high half. */

FORMULA void block_four_bits(const unsigned char *low, uint8_t q[32])
{
    for (int i = 0; i < 16; i++) {
        q[i] = low[i] & 15;
        q[i + 16] = low[i] >> 4;
    }
}

/* `high` has the fifth bit of element i in bit i, little-endian; the 16 bytes after it the rest. */
FORMULA void block_five_bits(const unsigned char *high, uint8_t q[32])
{
    block_four_bits(high + 4, q);
    for (int i = 0; i < 32; i++)
        q[i] |= (uint8_t)((high[i / 8] >> i % 8 & 1) << 4);
}

/* Q4_0, Q4_1, Q5_0, Q5_1: a scale, perhaps a minimum, and the elements. */
FORMULA void block_unit_small(const unsigned char *block, bool minimum, bool five_bits, block_unit *to)
{
    const unsigned char *elements = block + (minimum ? 4 : 2);
    to->scale = block_f16(block);
    to->minimum = minimum ? block_f16(block + 2) : 0;
    if (five_bits)
        block_five_bits(elements, to->q);
    else
        block_four_bits(elements, to->q);
}

/* Signed bytes, made unsigned: from -128 to 127 becomes from 0 to 255. */
FORMULA void block_unit_q8_0(const unsigned char *block, block_unit *to)
{
    to->scale = block_f16(block);
    to->minimum = 0;
    for (int i = 0; i < 32; i++)
        to->q[i] = block[2 + i] ^ 128;
}

/* Scale and minimum of elements 32 * j to 32 * j + 31: twice eight numbers of 6 bits in 12 bytes. The upper two bits of the last
 * four of each are the upper bits of the first eight bytes. */
FORMULA void block_scale_and_minimum(const unsigned char *s, int j, float *scale, float *minimum)
{
    *scale = (float)(j < 4 ? s[j] & 63 : (s[j + 4] & 15) | s[j - 4] >> 6 << 4);
    *minimum = (float)(j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | s[j] >> 6 << 4);
}

FORMULA void block_unit_q4_k(const unsigned char *block, int unit, block_unit *to)
{
    const unsigned char *q = block + 16 + unit / 2 * 32;
    float scale, minimum;
    block_scale_and_minimum(block + 4, unit, &scale, &minimum);
    to->scale = block_f16(block) * scale;
    to->minimum = -(block_f16(block + 2) * minimum);
    for (int i = 0; i < 32; i++)
        to->q[i] = q[i] >> unit % 2 * 4 & 15;
}

/* 128 bytes of low halves, 64 bytes of upper two bits, 16 scales, d. */
FORMULA void block_unit_q6_k(const unsigned char *block, int unit, block_unit *to)
{
    const int half = unit / 8, part = unit % 8; /* of 128 elements; 16 of these */
    const unsigned char *low = block + 64 * half + part % 4 * 16, *high = block + 128 + 32 * half + part % 2 * 16;
    to->scale = block_f16(block + 208) * (float)(signed char)block[192 + unit];
    to->minimum = 0;
    for (int i = 0; i < 16; i++)
        to->q[i] = (uint8_t)((low[i] >> part / 4 * 4 & 15) | (high[i] >> part / 2 * 2 & 3) << 4);
}

FORMULA void block_unit_read(weir_format format, const unsigned char *block, int unit, block_unit *to)
{
    switch (format) {
    case WEIR_Q4_0:
    case WEIR_Q4_1:
    case WEIR_Q5_0:
    case WEIR_Q5_1:
        block_unit_small(block, format == WEIR_Q4_1 || format == WEIR_Q5_1, format == WEIR_Q5_0 || format == WEIR_Q5_1, to);
        break;
    case WEIR_Q8_0: block_unit_q8_0(block, to); break;
    case WEIR_Q4_K: block_unit_q4_k(block, unit, to); break;
    case WEIR_Q6_K:
    case WEIR_DENSE: /* has no blocks */
    default: block_unit_q6_k(block, unit, to); break;
    }
}

#endif
