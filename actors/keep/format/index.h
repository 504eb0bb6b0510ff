/* actors/keep/format/index.h: what a checkpoint has: its facts, its files, its tensors with their shards, its sources.
 *
 * On disk it is index.json (docs/checkpoint.md describes it); the part of it that one rank knows, its own files and
 * shards, is a document of the same form, and merging parts is all that rank 0 does. In memory it is the structs of
 * <weir/checkpoint.h>, in a pool.
 *
 * An index is *complete* when, of every tensor and slot, the shards hold every element once. Replicas (the same box,
 * with the same checksum, from several ranks) are made one when parts are merged; boxes that overlap otherwise are an
 * error, as nothing says which of two values counts. If the checkpoint is in the memory of several hosts, each has a folder
 * with a *part* (part.h): the same, but that elements may be missing.
 *
 * One owner thread. Errors are E_IO (it is not what it should be) or E_MEMORY.
 */
#ifndef ACTORS_KEEP_FORMAT_INDEX_H
#define ACTORS_KEEP_FORMAT_INDEX_H

#include "graph/base/pool.h"

#include <weir/checkpoint.h>

#define KEEP_INDEX_NAME "index.json"
#define KEEP_INDEX_BYTES_MAX 1000000000 /* of the JSON text */
#define KEEP_SLOTS_MAX 65536
#define KEEP_VERSION 1

struct keep_tensor {
    weir_checkpoint_tensor is; /* what others see; is.shard follows `shards` */
    POOL_LIST(weir_checkpoint_shard) shards;
};

struct keep_index {
    struct pool pool;           /* everything here is in it */
    weir_checkpoint_info info;
    uint64_t nonce;             /* of the save; parts of another are not merged */
    POOL_LIST(weir_checkpoint_file) files;
    POOL_LIST(struct keep_tensor) tensors;
    POOL_LIST(weir_checkpoint_source) sources;
    void *named;                 /* owned: a tree (tsearch) of the first `named_count` tensors by name */
    int named_count;
    struct keep_tensor **sorted; /* by name, once settled */
    const char *folder;          /* that files' names are in; NULL: they are paths */
    bool unsummed;               /* there are no checksums */
    bool gguf;                   /* its file is a GGUF file */
};

void keep_index_free(struct keep_index *index);

/* Adding. Texts and bytes are copied. E_MEMORY; of a tensor that is there already: E_ARGUMENT when it is another. */
weir_status keep_index_add_file(struct keep_index *index, const char *name, uint64_t bytes, uint64_t checksum);
weir_status keep_index_add_tensor(struct keep_index *index, const weir_checkpoint_tensor *tensor,
                                  struct keep_tensor **to);
weir_status keep_index_add_shard(struct keep_index *index, struct keep_tensor *to, const weir_checkpoint_shard *shard);
weir_status keep_index_add_source(struct keep_index *index, const weir_checkpoint_source *source);

/* Not settled; or NULL. Invalid when another tensor is added. */
struct keep_tensor *keep_index_look_up(struct keep_index *index, const char *name);

/* Takes in the files, shards and sources of a part. `where` begins messages. */
weir_status keep_index_merge(struct keep_index *index, const struct keep_index *part, const char *where);

/* Makes replicas one, counts, and sorts; then whether it is complete, and every shard within its file. For a part all but
 * that it is complete. */
weir_status keep_index_settle(struct keep_index *index, const char *where);
weir_status keep_index_settle_part(struct keep_index *index, const char *where);

const struct keep_tensor *keep_index_find(const struct keep_index *index, const char *name); /* settled; or NULL */

/* The JSON text, freed by the caller; NULL and weir_error(). And back: all but what settle() proves. */
char *keep_index_encode(const struct keep_index *index, size_t *count);
weir_status keep_index_decode(struct keep_index *index, const char *where, const char *text, size_t count);
/* The same without a look at its checksum, for tests of all the rest. */
weir_status keep_index_decode_unsealed(struct keep_index *index, const char *where, const char *text, size_t count);

/* Reads folder/index.json and settles it. info.path is then `folder`. */
weir_status keep_index_read(struct keep_index *index, const char *folder);
weir_status keep_index_read_part(struct keep_index *index, const char *folder);

/* "parameter", "optimizer", "state"; and bytes of a text of lower hexadecimal digits. False: it is none. */
const char *keep_kind_name(weir_param_kind kind);
bool keep_kind_of(const char *name, weir_param_kind *kind);
bool keep_unhex(const char *text, unsigned char *to);

/* Whether a name of a file, or of a checkpoint, is one within its folder: no slashes, not "" or "..". */
bool keep_name_is_plain(const char *name);

#endif
