/* actors/keep/stored.h: how tensors are stored in the files of an open checkpoint.
 *
 * A quantised tensor of a GGUF file, [.., elements], is also a tensor of bytes, u8 [.., blocks, bytes of a block]: the blocks as
 * they are. Nothing here reads a file. One thread at a time, as of every open checkpoint.
 */
#ifndef ACTORS_KEEP_STORED_H
#define ACTORS_KEEP_STORED_H

#include "actors/keep/format/gguf_type.h"

#include <weir/checkpoint.h>

/* The path of a file of shards; owned by the checkpoint. */
const char *keep_stored_path(const weir_checkpoint *checkpoint, int file);

/* The type of the blocks of a quantised tensor; NULL: it is none. */
const struct gguf_type *keep_stored_blocks(const weir_checkpoint *checkpoint, const weir_checkpoint_tensor *tensor);

/* Whether the tensor, of blocks of this type (NULL: of none), is these bytes. */
bool keep_stored_is_bytes(const weir_checkpoint_tensor *tensor, const struct gguf_type *blocks, weir_dtype dtype,
                          const weir_shape *shape);

/* Whether it can be read as a value of this type, with what weir_checkpoint_read() converts; or is one already, byte by
 * byte. */
bool keep_stored_reads_as(const weir_checkpoint *checkpoint, const weir_checkpoint_tensor *tensor, weir_dtype dtype,
                          const weir_shape *shape);
bool keep_stored_is(const weir_checkpoint *checkpoint, const weir_checkpoint_tensor *tensor, weir_dtype dtype,
                    const weir_shape *shape);

/* "F32 [2, 3]". Returns `text`. */
const char *keep_stored_text(const weir_checkpoint_tensor *tensor, char *text, size_t bytes);

#endif
