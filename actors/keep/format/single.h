/* actors/keep/format/single.h: a checkpoint as one safetensors file.
 *
 * Every tensor is whole, under its own name, so any program that knows the format reads it. Values for which the format has
 * no place stand in its texts ("__metadata__"), and are missing in files of other programs:
 *
 *     weir.step, weir.seed, weir.plan, weir.graph, weir.program      as in index.json
 *     weir.kind:NAME                     "optimizer" or "state", of what is no parameter
 *     weir.frozen:NAME                   "true"
 *     weir.slots:NAME                    "3": the first dimension in the file counts the values that the state keeps
 *     weir.source:RANK:NAME              position of a source, hexadecimal
 *     format                             "pt": row-major; what readers of such files ask for
 *
 * One owner thread.
 */
#ifndef ACTORS_KEEP_FORMAT_SINGLE_H
#define ACTORS_KEEP_FORMAT_SINGLE_H

#include "actors/keep/format/index.h"
#include "actors/keep/format/safetensors.h"

/* Reads the header of `path` as an index of one file, settled. */
weir_status keep_single_read(struct keep_index *index, const char *path);

/* Whether the file at `path` was written by keep_single_write(). Keeps the thread's error. */
bool keep_single_is_ours(const char *path);
/* The two halves of that, for several files that are one index. Reads the header of a file, which is added under the
 * name; everything is from the index's pool. Adds a tensor of it. */
weir_status keep_single_header(struct keep_index *index, const char *path, const char *name,
                               struct safetensors_header *header);
weir_status keep_single_add(struct keep_index *index, const struct safetensors_tensor *t, int file, uint64_t data_at);

/* Writes the tensors (data[i] is of index->tensors.item[i]: all slots one behind the other) beside `path`, and renames
 * it when it is on the disk. */
weir_status keep_single_write(struct keep_index *index, const void *const *data, const char *path, uint64_t nonce);

#endif
