/* actors/keep/format/gguf.h: a GGUF file, version 3, as a checkpoint that is read
 * (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).
 *
 *     "GGUF", u32 3          little-endian, as all numbers
 *     u64, u64               how many tensors and key/values there are
 *     key/values             a text, a type, a value: facts, hyperparameters, the tokenizer
 *     tensors                name, dimensions (the fastest first), type, offset of the data
 *     padding, data          the data begins at a multiple of general.alignment [32], and each tensor in it too
 *
 * A text is a u64 length and bytes. The key/values are skipped but for general.architecture and general.alignment.
 *
 * Headers are parsed as what a stranger wrote. The header ends within the first GGUF_HEADER_MAX bytes (graph/base/gguf.h), memory
 * grows with what was read and never with a claim, every tensor lies in the file, and no two overlap. A tensor of a type that weir
 * does not read, or does not know, is listed with the others; its data may then be all bytes up to the next tensor.
 *
 * Everything lives in a pool of the caller's. Any thread; keeps no state.
 */
#ifndef ACTORS_KEEP_FORMAT_GGUF_H
#define ACTORS_KEEP_FORMAT_GGUF_H

#include "actors/keep/format/gguf_type.h"
#include "actors/keep/format/index.h"

#define GGUF_NAME_MAX 1024        /* bytes of a tensor's name, and of general.architecture */
#define GGUF_DIMS_MAX 4

struct gguf_tensor {
    const char *name;
    const struct gguf_type *type; /* NULL: not known */
    uint32_t number;              /* of the type */
    weir_shape shape;             /* row-major: the file's dimensions in reverse */
    uint64_t begin, end;          /* in the data */
};

struct gguf_header {
    POOL_LIST(struct gguf_tensor) tensors; /* by their data */
    const char *architecture;              /* "llama"; NULL: the file does not say */
    uint32_t alignment;
    uint64_t data_at, file_bytes;          /* where the data begins in the file, and the file's size */
};

/* Reads the header of an open file, `file` in messages. E_IO: it is not as it should be. */
weir_status gguf_read(struct pool *p, const char *file, int fd, struct gguf_header *header);

/* Whether it is to be read as such a file: its name ends with ".gguf", or it begins with "GGUF". */
bool keep_gguf_is(const char *path);

/* Reads the header of `path` as an index of one file, settled. */
weir_status keep_gguf_read(struct keep_index *index, const char *path);

#endif
