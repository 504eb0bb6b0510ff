/* actors/keep/prove.h: whether a box of a tensor can be read, before anything is done with it.
 *
 * A session that loads a checkpoint asks this of every box that it will read, and changes nothing of its own until all
 * have been proven: so a damaged file leaves it as it was. The bytes are read twice then, the second time from the
 * page cache, and hashed once.
 */
#ifndef ACTORS_KEEP_PROVE_H
#define ACTORS_KEEP_PROVE_H

#include <weir/checkpoint.h>

/* The shards that hold elements of the box are there, with the bytes that were saved; and where the file's type has values
 * that `dtype`, as which the box will be read, does not hold, the box has none of them. Errors are those of weir_checkpoint_read(). */
weir_status keep_checkpoint_prove(weir_checkpoint *checkpoint, const weir_checkpoint_tensor *tensor, int slot,
                                  const int64_t *start, const weir_shape *shape, weir_dtype dtype);

#endif
