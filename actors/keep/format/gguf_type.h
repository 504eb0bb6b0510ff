/* actors/keep/format/gguf_type.h: types of tensors in GGUF files, and quantised numbers as f32.
 *
 * A quantised tensor is a row of blocks. A block has a scale, often a minimum, and a small integer for each of its 32 or 256
 * elements. Rows of the tensor are whole numbers of blocks, so element i is in block i / elements. The formulas, with the order of
 * their operations, are those of ggml (dequantize_row_* in ggml-quants.c), and so the bits are equal.
 *
 *     Q4_0, Q5_0, Q8_0    d * q          d: f16, a scale
 *     Q4_1, Q5_1          d * q + m      m: f16, a minimum
 *     Q4_K                (d * scale) * q - (least * minimum): scale and minimum of 6 bits for 32 elements each
 *     Q6_K                (d * scale) * q: a scale of 8 bits for 16 elements each
 *
 * Any thread; keeps no state. */
#ifndef ACTORS_KEEP_FORMAT_GGUF_TYPE_H
#define ACTORS_KEEP_FORMAT_GGUF_TYPE_H

#include "actors/keep/format/box.h"

#include <stddef.h>

#define GGUF_ELEMENTS_MAX 256 /* of a block */

struct gguf_type {
    uint32_t number;
    const char *name;
    int elements, bytes; /* so many elements are in so many bytes: one, or those of a block */
    weir_dtype read_as;  /* WEIR_DTYPE_NONE: not read */
    void (*read)(const unsigned char *block, float *to); /* one block. NULL: elements are read as they are stored */
};

/* NULL: there is no such type. */
const struct gguf_type *gguf_type_of(uint32_t number);
const struct gguf_type *gguf_type_named(const char *name);

/* Reads `count` bytes of a tensor's data, from byte `offset`. False: it cannot. */
typedef bool gguf_bytes_fn(void *ctx, uint64_t offset, void *to, size_t count);

/* Reads runs of a tensor of blocks: runs.from counts the tensor's elements, runs.to those of `to`. False: `bytes` has failed. */
bool gguf_type_read(const struct gguf_type *type, gguf_bytes_fn *bytes, void *ctx, struct keep_runs runs, float *to);

#endif
