/* actors/keep/format/safetensors.h: the header of a safetensors file (https://github.com/huggingface/safetensors).
 *
 *     8 bytes       length of the JSON text, little-endian
 *     JSON text     {"__metadata__": {"key": "text"}, "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0,
 * 24]}}
 *     data          tensors one behind the other, without holes, row-major, little-endian
 *
 * Offsets count from the beginning of the data. The text is padded with spaces so that the data is aligned. Headers are
 * parsed as what a stranger wrote: lengths, sums and counts are bounded, and what comes out is consistent: the tensors,
 * in the order of their data, cover it exactly. A tensor of a type that is not known, or of more than six dimensions, is
 * there as any other: somebody may want the rest of the file.
 *
 * Everything lives in a pool of the caller's. Any thread; keeps no state.
 */
#ifndef ACTORS_KEEP_FORMAT_SAFETENSORS_H
#define ACTORS_KEEP_FORMAT_SAFETENSORS_H

#include "graph/base/pool.h"

#include <weir/base.h>

#define SAFETENSORS_PREFIX 8               /* bytes of the length */
#define SAFETENSORS_TEXT_MAX 100000000     /* bytes of the text, as the format has it */
#define SAFETENSORS_DIMS_MAX 64            /* of a tensor that is listed */
#define SAFETENSORS_ALIGN 64               /* of the data, in what is written here */

/* name in the file, bytes of an element, what it is read as */
#define SAFETENSORS_DTYPE_LIST(X)       \
    X(F32, 4, WEIR_F32)                 \
    X(I32, 4, WEIR_I32)                 \
    X(U8, 1, WEIR_U8)                   \
    X(F16, 2, WEIR_F16)                 \
    X(BF16, 2, WEIR_BF16)               \
    X(F64, 8, WEIR_F32)                 \
    X(I64, 8, WEIR_I64)                 \
    X(BOOL, 1, WEIR_U8)                 \
    X(I8, 1, WEIR_I8)                   \
    X(F8_E5M2, 1, WEIR_DTYPE_NONE)      \
    X(F8_E4M3, 1, WEIR_DTYPE_NONE)      \
    X(I16, 2, WEIR_DTYPE_NONE)          \
    X(U16, 2, WEIR_DTYPE_NONE)          \
    X(U32, 4, WEIR_DTYPE_NONE)          \
    X(U64, 8, WEIR_DTYPE_NONE)

enum safetensors_dtype {
#define X(name, bytes, dtype) SAFETENSORS_##name,
    SAFETENSORS_DTYPE_LIST(X)
#undef X
        SAFETENSORS_DTYPES
};

const char *safetensors_dtype_name(enum safetensors_dtype dtype);
size_t safetensors_dtype_bytes(enum safetensors_dtype dtype);
weir_dtype safetensors_dtype_read_as(enum safetensors_dtype dtype);
enum safetensors_dtype safetensors_dtype_of(weir_dtype dtype); /* that a weir_dtype is stored as */

struct safetensors_tensor {
    const char *name;
    enum safetensors_dtype dtype; /* SAFETENSORS_DTYPES: of none of these types */
    const char *type;    /* what the file calls it; NULL in one that is written: the dtype's name */
    weir_shape shape;    /* of more than six dimensions: one, which counts the elements */
    int dims;            /* that the file has */
    const int64_t *dim;  /* owned by the pool */
    uint64_t begin, end; /* in the data */
};

struct safetensors_text {
    const char *key, *value;
};

struct safetensors_header {
    POOL_LIST(struct safetensors_tensor) tensors;
    POOL_LIST(struct safetensors_text) metadata;
    uint64_t data_at; /* where the data begins in the file */
};

/* Gives every tensor its offsets, in the order that they have, and writes the header: the first `data_at` bytes of the
 * file. From `p`; NULL and weir_error() when there is no memory. */
const void *safetensors_encode(struct pool *p, struct safetensors_header *header);

/* Parses `count` bytes: the header of the file `file` (for messages), which has `file_bytes` in all. The tensors are
 * sorted by their data. E_IO: it is not what it should be. */
weir_status safetensors_decode(struct pool *p, const char *file, const void *bytes, size_t count, uint64_t file_bytes,
                               struct safetensors_header *header);

/* Reads the header of an open file. *raw, when not NULL, gets the bytes themselves (data_at of them), from `p`. */
weir_status safetensors_read(struct pool *p, const char *file, int fd, struct safetensors_header *header,
                             const void **raw);

#endif
