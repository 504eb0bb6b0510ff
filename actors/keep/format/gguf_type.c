/* actors/keep/format/gguf_type.c: types of tensors in GGUF files, and quantised numbers as f32. */
#include "actors/keep/format/gguf_type.h"

#include "graph/base/blocks.h"

#include <string.h>

enum { READ_BYTES = 16384 }; /* at once */

/* ---- types ---- */

static const struct gguf_type types[] = {
    {0, "F32", 1, 4, WEIR_F32, WEIR_DENSE},
    {1, "F16", 1, 2, WEIR_F16, WEIR_DENSE},
    {2, "Q4_0", 32, 18, WEIR_F32, WEIR_Q4_0},
    {3, "Q4_1", 32, 20, WEIR_F32, WEIR_Q4_1},
    {6, "Q5_0", 32, 22, WEIR_F32, WEIR_Q5_0},
    {7, "Q5_1", 32, 24, WEIR_F32, WEIR_Q5_1},
    {8, "Q8_0", 32, 34, WEIR_F32, WEIR_Q8_0},
    {9, "Q8_1", 32, 40, WEIR_DTYPE_NONE, WEIR_DENSE},
    {10, "Q2_K", 256, 84, WEIR_DTYPE_NONE, WEIR_DENSE},
    {11, "Q3_K", 256, 110, WEIR_DTYPE_NONE, WEIR_DENSE},
    {12, "Q4_K", 256, 144, WEIR_F32, WEIR_Q4_K},
    {13, "Q5_K", 256, 176, WEIR_DTYPE_NONE, WEIR_DENSE},
    {14, "Q6_K", 256, 210, WEIR_F32, WEIR_Q6_K},
    {15, "Q8_K", 256, 292, WEIR_DTYPE_NONE, WEIR_DENSE},
    {16, "IQ2_XXS", 256, 66, WEIR_DTYPE_NONE, WEIR_DENSE},
    {17, "IQ2_XS", 256, 74, WEIR_DTYPE_NONE, WEIR_DENSE},
    {18, "IQ3_XXS", 256, 98, WEIR_DTYPE_NONE, WEIR_DENSE},
    {19, "IQ1_S", 256, 50, WEIR_DTYPE_NONE, WEIR_DENSE},
    {20, "IQ4_NL", 32, 18, WEIR_DTYPE_NONE, WEIR_DENSE},
    {21, "IQ3_S", 256, 110, WEIR_DTYPE_NONE, WEIR_DENSE},
    {22, "IQ2_S", 256, 82, WEIR_DTYPE_NONE, WEIR_DENSE},
    {23, "IQ4_XS", 256, 136, WEIR_DTYPE_NONE, WEIR_DENSE},
    {24, "I8", 1, 1, WEIR_I8, WEIR_DENSE},
    {25, "I16", 1, 2, WEIR_DTYPE_NONE, WEIR_DENSE},
    {26, "I32", 1, 4, WEIR_I32, WEIR_DENSE},
    {27, "I64", 1, 8, WEIR_I64, WEIR_DENSE},
    {28, "F64", 1, 8, WEIR_F32, WEIR_DENSE},
    {29, "IQ1_M", 256, 56, WEIR_DTYPE_NONE, WEIR_DENSE},
    {30, "BF16", 1, 2, WEIR_BF16, WEIR_DENSE},
    {34, "TQ1_0", 256, 54, WEIR_DTYPE_NONE, WEIR_DENSE},
    {35, "TQ2_0", 256, 66, WEIR_DTYPE_NONE, WEIR_DENSE},
    {39, "MXFP4", 32, 17, WEIR_DTYPE_NONE, WEIR_DENSE},
    {40, "NVFP4", 64, 36, WEIR_DTYPE_NONE, WEIR_DENSE},
    {41, "Q1_0", 128, 18, WEIR_DTYPE_NONE, WEIR_DENSE},
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

static bool read_run(const struct gguf_type *type, gguf_bytes_fn *bytes, void *ctx, int64_t from, int64_t count, float *to)
{
    unsigned char raw[READ_BYTES];
    const int64_t elements = type->elements, most = READ_BYTES / type->bytes;
    while (count > 0) {
        const int64_t skip = from % elements;
        const int64_t wanted = (skip + count + elements - 1) / elements, have = wanted < most ? wanted : most;
        const int64_t some = have * elements - skip < count ? have * elements - skip : count;
        if (!bytes(ctx, (uint64_t)(from / elements) * (uint64_t)type->bytes, raw, (size_t)(have * type->bytes)))
            return false;
        block_read_row(type->blocks, raw, skip, some, to);
        from += some;
        to += some;
        count -= some;
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
