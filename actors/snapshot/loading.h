/* actors/snapshot/loading.h: one load under way, between load.c and load_memory.c.
 *
 * The source is a checkpoint on disk, of which `from` has everything, or a snapshot in the memory of several hosts
 * (folders.h), of which `from` is this host's part; what that lacks is sent by other ranks.
 */
#ifndef ACTORS_SNAPSHOT_LOADING_H
#define ACTORS_SNAPSHOT_LOADING_H

#include <weir/session.h>
#include <weir/checkpoint.h>

#include "actors/snapshot/folders.h"

struct loading {
    struct snapshots *s;
    const weir_load_opts *opts;
    weir_checkpoint *from; /* owned; NULL: this host has nothing of the snapshot */
    const char *path;      /* the checkpoint's */
    int64_t step;          /* its */
    struct folders folders; /* of a snapshot; its step is -1 when a checkpoint is loaded */
    char path_text[4096];
    void *buffer;          /* owned; room for all kept slots of the largest box */
    uint64_t buffer_bytes;
    bool *shared;          /* owned; by register: it has been sent to those who cannot see it */
};

static inline bool load_is_snapshot(const struct loading *l)
{
    return l->folders.step >= 0;
}

/* All ranks have come so far, or none goes on. */
weir_status load_agree(struct loading *l, weir_status mine, char *word);

/* Whether the parameter or state is to be loaded. One that is mapped stays where it is. */
bool load_wants(const struct loading *l, const plan_param *param);

/* Whether this rank holds shard i, and no earlier one of it has the same elements. */
bool load_stands(const struct loading *l, const plan_param *param, uint32_t i);

/* Puts a value into all shards of this rank that have the elements of shard i, into the slot of its age. */
weir_status load_put(const struct loading *l, const plan_param *param, uint32_t i, uint32_t slot, const void *data);

/* ---- load_memory.c ---- */

/* Chooses between `dir` and what is in memory: all ranks alike. */
weir_status load_choose(struct loading *l, const char *dir);

/* Opens this host's part of the snapshot, if it has one. */
weir_status load_open_part(struct loading *l);

/* Whether this rank can read what it needs of its host's part, and what it is to send. Finds how large the buffer has to
 * be. */
weir_status load_prove_parts(struct loading *l);

/* Puts everything where it belongs, with the others' help. */
weir_status load_copy_parts(struct loading *l);

#endif
