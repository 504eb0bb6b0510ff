/* graph/base/blocks.c: see the header. Where a sum follows a product, the product is exact in f32: f16 has 11 bits, and the integers
 * that it is multiplied by have 10 together. So a compiler that joins the two into one instruction changes no bit. */
#include "graph/base/blocks.h"

#include "graph/base/half.h"

#include <string.h>

static float f16_at(const unsigned char *at)
{
    uint16_t half;
    memcpy(&half, at, sizeof half);
    return half_from_f16(half);
}

/* ---- blocks of 32: element i in the low half of byte i, element i + 16 in its high half ---- */

static inline void four_bits(const unsigned char *low, uint8_t q[32])
{
    for (int i = 0; i < 16; i++) {
        q[i] = low[i] & 15;
        q[i + 16] = low[i] >> 4;
    }
}

/* `high` has the fifth bit of element i in bit i, little-endian; the 16 bytes after it the rest. */
static inline void five_bits(const unsigned char *high, uint8_t q[32])
{
    four_bits(high + 4, q);
    for (int i = 0; i < 32; i++)
        q[i] |= (uint8_t)((high[i / 8] >> i % 8 & 1) << 4);
}

static void read_q4_0(const unsigned char *block, int unit, block_unit *to)
{
    (void)unit;
    to->scale = f16_at(block);
    to->minimum = 0;
    four_bits(block + 2, to->q);
}

static void read_q4_1(const unsigned char *block, int unit, block_unit *to)
{
    (void)unit;
    to->scale = f16_at(block);
    to->minimum = f16_at(block + 2);
    four_bits(block + 4, to->q);
}

static void read_q5_0(const unsigned char *block, int unit, block_unit *to)
{
    (void)unit;
    to->scale = f16_at(block);
    to->minimum = 0;
    five_bits(block + 2, to->q);
}

static void read_q5_1(const unsigned char *block, int unit, block_unit *to)
{
    (void)unit;
    to->scale = f16_at(block);
    to->minimum = f16_at(block + 2);
    five_bits(block + 4, to->q);
}

/* Signed bytes, made unsigned: from -128 to 127 becomes from 0 to 255. */
static void read_q8_0(const unsigned char *block, int unit, block_unit *to)
{
    (void)unit;
    to->scale = f16_at(block);
    to->minimum = 0;
    for (int i = 0; i < 32; i++)
        to->q[i] = block[2 + i] ^ 128;
}

/* ---- blocks of 256 ---- */

/* Scale and minimum of elements 32 * j to 32 * j + 31: twice eight numbers of 6 bits in 12 bytes. The upper two bits of the last
 * four of each are the upper bits of the first eight bytes. */
static inline void scale_and_minimum(const unsigned char *s, int j, float *scale, float *minimum)
{
    *scale = (float)(j < 4 ? s[j] & 63 : (s[j + 4] & 15) | s[j - 4] >> 6 << 4);
    *minimum = (float)(j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | s[j] >> 6 << 4);
}

static void read_q4_k(const unsigned char *block, int unit, block_unit *to)
{
    const unsigned char *q = block + 16 + unit / 2 * 32;
    float scale, minimum;
    scale_and_minimum(block + 4, unit, &scale, &minimum);
    to->scale = f16_at(block) * scale;
    to->minimum = -(f16_at(block + 2) * minimum);
    for (int i = 0; i < 32; i++)
        to->q[i] = q[i] >> unit % 2 * 4 & 15;
}

/* 128 bytes of low halves, 64 bytes of upper two bits, 16 scales, d. */
static void read_q6_k(const unsigned char *block, int unit, block_unit *to)
{
    const int half = unit / 8, part = unit % 8; /* of 128 elements; 16 of these */
    const unsigned char *low = block + 64 * half + part % 4 * 16, *high = block + 128 + 32 * half + part % 2 * 16;
    to->scale = f16_at(block + 208) * (float)(signed char)block[192 + unit];
    to->minimum = 0;
    for (int i = 0; i < 16; i++)
        to->q[i] = (uint8_t)((low[i] >> part / 4 * 4 & 15) | (high[i] >> part / 2 * 2 & 3) << 4);
}

/* ---- formats ---- */

static const struct entry {
    block_format is;
    void (*read)(const unsigned char *block, int unit, block_unit *to);
} formats[] = {
    [WEIR_Q4_0] = {{"Q4_0", 32, 18, 32, 8, 15, false}, read_q4_0},
    [WEIR_Q4_1] = {{"Q4_1", 32, 20, 32, 0, 15, true}, read_q4_1},
    [WEIR_Q5_0] = {{"Q5_0", 32, 22, 32, 16, 31, false}, read_q5_0},
    [WEIR_Q5_1] = {{"Q5_1", 32, 24, 32, 0, 31, true}, read_q5_1},
    [WEIR_Q8_0] = {{"Q8_0", 32, 34, 32, 128, 255, false}, read_q8_0},
    [WEIR_Q4_K] = {{"Q4_K", 256, 144, 32, 0, 15, true}, read_q4_k},
    [WEIR_Q6_K] = {{"Q6_K", 256, 210, 16, 32, 63, false}, read_q6_k},
};
enum { FORMATS = sizeof formats / sizeof *formats };

const block_format *block_format_of(int64_t format)
{
    return format > WEIR_DENSE && format < FORMATS ? &formats[format].is : NULL;
}

weir_format block_format_named(const char *name)
{
    for (int i = WEIR_DENSE + 1; i < FORMATS; i++)
        if (!strcmp(formats[i].is.name, name))
            return (weir_format)i;
    return WEIR_DENSE;
}

void block_unit_read(weir_format format, const unsigned char *block, int unit, block_unit *to)
{
    formats[format].read(block, unit, to);
}

void block_read(weir_format format, const unsigned char *block, float *to)
{
    const struct entry *entry = &formats[format];
    const int count = entry->is.unit, zero = entry->is.zero;
    block_unit unit;
    for (int u = 0; u < entry->is.elements / count; u++, to += count) {
        entry->read(block, u, &unit);
        if (entry->is.minimum)
            for (int i = 0; i < count; i++)
                to[i] = unit.scale * (float)unit.q[i] + unit.minimum;
        else
            for (int i = 0; i < count; i++)
                to[i] = unit.scale * (float)(unit.q[i] - zero);
    }
}

void block_read_row(weir_format format, const unsigned char *row, int64_t from, int64_t count, float *to)
{
    const struct block_format *is = &formats[format].is;
    float part[BLOCK_ELEMENTS_MAX];
    for (int64_t some; count > 0; from += some, to += some, count -= some) {
        const int64_t skip = from % is->elements;
        const unsigned char *block = row + from / is->elements * is->bytes;
        some = is->elements - skip < count ? is->elements - skip : count;
        block_read(format, block, some == is->elements ? to : part);
        if (some < is->elements)
            memcpy(to, part + skip, (size_t)some * sizeof *to);
    }
}
