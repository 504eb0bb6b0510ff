/* actors/keep/format/gguf_type.c: types of tensors in GGUF files, and quantised numbers as f32. Where a sum follows a product, the
 * product is exact in f32: f16 has 11 bits, and the integers that it is multiplied by have 10 together. So a compiler that joins the
 * two into one instruction changes no bit. */
#include "actors/keep/format/gguf_type.h"

#include "graph/base/half.h"

#include <string.h>

enum { READ_BYTES = 16384 }; /* at once */

static float f16_at(const unsigned char *at)
{
    uint16_t half;
    memcpy(&half, at, sizeof half);
    return half_from_f16(half);
}

/* ---- blocks of 32: element i in the low half of byte i, element i + 16 in its high half ---- */

static void read_q4_0(const unsigned char *block, float *to)
{
    const float d = f16_at(block);
    const unsigned char *q = block + 2;
    for (int i = 0; i < 16; i++) {
        to[i] = d * (float)((q[i] & 15) - 8);
        to[i + 16] = d * (float)((q[i] >> 4) - 8);
    }
}

static void read_q4_1(const unsigned char *block, float *to)
{
    const float d = f16_at(block), m = f16_at(block + 2);
    const unsigned char *q = block + 4;
    for (int i = 0; i < 16; i++) {
        to[i] = d * (float)(q[i] & 15) + m;
        to[i + 16] = d * (float)(q[i] >> 4) + m;
    }
}

/* The integers of 5 bits: `high` has the fifth of element i in bit i, little-endian; the 16 bytes after it the rest. */
static void five_bits(const unsigned char *high, int q[32])
{
    const unsigned char *low = high + 4;
    for (int i = 0; i < 16; i++) {
        q[i] = (low[i] & 15) | (high[i / 8] >> i % 8 & 1) << 4;
        q[i + 16] = low[i] >> 4 | (high[i / 8 + 2] >> i % 8 & 1) << 4;
    }
}

static void read_q5_0(const unsigned char *block, float *to)
{
    const float d = f16_at(block);
    int q[32];
    five_bits(block + 2, q);
    for (int i = 0; i < 32; i++)
        to[i] = d * (float)(q[i] - 16);
}

static void read_q5_1(const unsigned char *block, float *to)
{
    const float d = f16_at(block), m = f16_at(block + 2);
    int q[32];
    five_bits(block + 4, q);
    for (int i = 0; i < 32; i++)
        to[i] = d * (float)q[i] + m;
}

static void read_q8_0(const unsigned char *block, float *to)
{
    const float d = f16_at(block);
    for (int i = 0; i < 32; i++)
        to[i] = d * (float)(signed char)block[2 + i];
}

/* ---- blocks of 256 ---- */

/* Scale and minimum of elements 32 * j to 32 * j + 31: twice eight numbers of 6 bits in 12 bytes. The upper two bits of the last
 * four of each are the upper bits of the first eight bytes. */
static void scale_and_minimum(const unsigned char *s, int j, float *scale, float *minimum)
{
    *scale = (float)(j < 4 ? s[j] & 63 : (s[j + 4] & 15) | s[j - 4] >> 6 << 4);
    *minimum = (float)(j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | s[j] >> 6 << 4);
}

static void read_q4_k(const unsigned char *block, float *to)
{
    const float d = f16_at(block), least = f16_at(block + 2);
    for (int j = 0; j < 8; j++) {
        const unsigned char *q = block + 16 + j / 2 * 32;
        float scale, minimum;
        scale_and_minimum(block + 4, j, &scale, &minimum);
        const float dl = d * scale, m = least * minimum;
        for (int i = 0; i < 32; i++)
            to[32 * j + i] = dl * (float)(q[i] >> j % 2 * 4 & 15) - m;
    }
}

/* 128 bytes of low halves, 64 bytes of upper two bits, 16 scales, d. */
static void read_q6_k(const unsigned char *block, float *to)
{
    const unsigned char *low = block, *high = block + 128, *scale = block + 192;
    const float d = f16_at(block + 208);
    for (int i = 0; i < 256; i++) {
        const int half = i / 128, in = i % 128;
        const int q = (low[64 * half + in % 64] >> in / 64 * 4 & 15) | (high[32 * half + in % 32] >> in / 32 * 2 & 3) << 4;
        to[i] = d * (float)(signed char)scale[i / 16] * (float)(q - 32);
    }
}

/* ---- types ---- */

static const struct gguf_type types[] = {
    {0, "F32", 1, 4, WEIR_F32, NULL},
    {1, "F16", 1, 2, WEIR_F16, NULL},
    {2, "Q4_0", 32, 18, WEIR_F32, read_q4_0},
    {3, "Q4_1", 32, 20, WEIR_F32, read_q4_1},
    {6, "Q5_0", 32, 22, WEIR_F32, read_q5_0},
    {7, "Q5_1", 32, 24, WEIR_F32, read_q5_1},
    {8, "Q8_0", 32, 34, WEIR_F32, read_q8_0},
    {9, "Q8_1", 32, 40, WEIR_DTYPE_NONE, NULL},
    {10, "Q2_K", 256, 84, WEIR_DTYPE_NONE, NULL},
    {11, "Q3_K", 256, 110, WEIR_DTYPE_NONE, NULL},
    {12, "Q4_K", 256, 144, WEIR_F32, read_q4_k},
    {13, "Q5_K", 256, 176, WEIR_DTYPE_NONE, NULL},
    {14, "Q6_K", 256, 210, WEIR_F32, read_q6_k},
    {15, "Q8_K", 256, 292, WEIR_DTYPE_NONE, NULL},
    {16, "IQ2_XXS", 256, 66, WEIR_DTYPE_NONE, NULL},
    {17, "IQ2_XS", 256, 74, WEIR_DTYPE_NONE, NULL},
    {18, "IQ3_XXS", 256, 98, WEIR_DTYPE_NONE, NULL},
    {19, "IQ1_S", 256, 50, WEIR_DTYPE_NONE, NULL},
    {20, "IQ4_NL", 32, 18, WEIR_DTYPE_NONE, NULL},
    {21, "IQ3_S", 256, 110, WEIR_DTYPE_NONE, NULL},
    {22, "IQ2_S", 256, 82, WEIR_DTYPE_NONE, NULL},
    {23, "IQ4_XS", 256, 136, WEIR_DTYPE_NONE, NULL},
    {24, "I8", 1, 1, WEIR_I8, NULL},
    {25, "I16", 1, 2, WEIR_DTYPE_NONE, NULL},
    {26, "I32", 1, 4, WEIR_I32, NULL},
    {27, "I64", 1, 8, WEIR_I64, NULL},
    {28, "F64", 1, 8, WEIR_F32, NULL},
    {29, "IQ1_M", 256, 56, WEIR_DTYPE_NONE, NULL},
    {30, "BF16", 1, 2, WEIR_BF16, NULL},
    {34, "TQ1_0", 256, 54, WEIR_DTYPE_NONE, NULL},
    {35, "TQ2_0", 256, 66, WEIR_DTYPE_NONE, NULL},
    {39, "MXFP4", 32, 17, WEIR_DTYPE_NONE, NULL},
    {40, "NVFP4", 64, 36, WEIR_DTYPE_NONE, NULL},
    {41, "Q1_0", 128, 18, WEIR_DTYPE_NONE, NULL},
};
enum { TYPES = sizeof types / sizeof *types };

const struct gguf_type *gguf_type_of(uint32_t number)
{
    for (int i = 0; i < TYPES; i++)
        if (types[i].number == number)
            return &types[i];
    return NULL;
}

const struct gguf_type *gguf_type_named(const char *name)
{
    for (int i = 0; i < TYPES; i++)
        if (!strcmp(types[i].name, name))
            return &types[i];
    return NULL;
}

/* ---- runs of elements ---- */

/* Writes elements skip .. skip + count - 1 of one block. */
static void read_part(const struct gguf_type *type, const unsigned char *block, int64_t skip, int64_t count, float *to)
{
    float part[GGUF_ELEMENTS_MAX];
    type->read(block, part);
    memcpy(to, part + skip, (size_t)count * sizeof *to);
}

static bool read_run(const struct gguf_type *type, gguf_bytes_fn *bytes, void *ctx, int64_t from, int64_t count, float *to)
{
    unsigned char raw[READ_BYTES];
    const int64_t elements = type->elements, most = READ_BYTES / type->bytes;
    while (count > 0) {
        int64_t skip = from % elements;
        const int64_t wanted = (skip + count + elements - 1) / elements, have = wanted < most ? wanted : most;
        if (!bytes(ctx, (uint64_t)(from / elements) * (uint64_t)type->bytes, raw, (size_t)(have * type->bytes)))
            return false;
        for (int64_t b = 0; b < have; b++, skip = 0) {
            const int64_t some = elements - skip < count ? elements - skip : count;
            if (some == elements)
                type->read(raw + b * type->bytes, to);
            else
                read_part(type, raw + b * type->bytes, skip, some, to);
            from += some;
            to += some;
            count -= some;
        }
    }
    return true;
}

bool gguf_type_read(const struct gguf_type *type, gguf_bytes_fn *bytes, void *ctx, struct keep_runs runs, float *to)
{
    do
        if (!read_run(type, bytes, ctx, runs.from, runs.count, to + runs.to))
            return false;
    while (keep_runs_next(&runs));
    return true;
}
