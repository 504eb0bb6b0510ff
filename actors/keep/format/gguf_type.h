/* actors/keep/format/gguf_type.h: types of tensors in GGUF files, and quantised numbers as f32.
 *
 * A quantised tensor is a row of blocks (graph/base/blocks.h), whose formulas are those of ggml.
 *
 * Any thread; keeps no state. */
#ifndef ACTORS_KEEP_FORMAT_GGUF_TYPE_H
#define ACTORS_KEEP_FORMAT_GGUF_TYPE_H

#include "actors/keep/format/box.h"

#include <stddef.h>

struct gguf_type {
    uint32_t number;
    const char *name;
    int elements, bytes; /* so many elements are in so many bytes: one, or those of a block */
    weir_dtype read_as;  /* WEIR_DTYPE_NONE: not read */
    weir_format blocks;  /* of a quantised type that is read; WEIR_DENSE: elements are read as they are stored, if at all */
};

/* NULL: there is no such type. */
const struct gguf_type *gguf_type_of(uint32_t number);
const struct gguf_type *gguf_type_named(const char *name);

/* Reads `count` bytes of a tensor's data, from byte `offset`. False: it cannot. */
typedef bool gguf_bytes_fn(void *ctx, uint64_t offset, void *to, size_t count);

/* Reads runs of a tensor of blocks: runs.from counts the tensor's elements, runs.to those of `to`. False: `bytes` has failed. */
bool gguf_type_read(const struct gguf_type *type, gguf_bytes_fn *bytes, void *ctx, struct keep_runs runs, float *to);

#endif
