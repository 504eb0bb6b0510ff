/* actors/keep/format/sharded.h: a model in several safetensors files, as other programs save large ones:
 *
 *     model.safetensors.index.json       {"metadata": {...}, "weight_map": {"wte.weight": "model-00001-of-00002.safetensors", ...}}
 *     model-00001-of-00002.safetensors   whole tensors
 *     model-00002-of-00002.safetensors
 *
 * Files are in the folder of the index. A tensor that the map names must be in that file; one that the map does not name
 * is there too, so that nothing of a file is lost. There are no checksums, and all tensors are parameters: what headers
 * say besides tensors is not looked at.
 *
 * One owner thread.
 */
#ifndef ACTORS_KEEP_FORMAT_SHARDED_H
#define ACTORS_KEEP_FORMAT_SHARDED_H

#include "actors/keep/format/index.h"

#define KEEP_SHARDED_NAME "model.safetensors.index.json"
#define KEEP_SHARDED_FILES_MAX 4096 /* that one map may name */

/* Whether the name is that of such an index: it ends with ".safetensors.index.json". */
bool keep_sharded_is(const char *path);

/* Reads the map at `path` and the header of each file as an index, settled. */
weir_status keep_sharded_read(struct keep_index *index, const char *path);

#endif
