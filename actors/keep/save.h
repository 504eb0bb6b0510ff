/* actors/keep/save.h: writes one checkpoint, as one of the ranks that hold its shards.
 *
 *     struct keep_save *save = keep_save_begin(&(struct keep_save_opts){.root = "runs/a", .name = "step-00000100",
 *                                                                       .nonce = nonce, .rank = 1, .ranks = 4, ...});
 *     keep_save_add(save, &piece);     // for every shard that this rank writes
 *     status = keep_save_run(save);    // writes; on any thread
 *     keep_save_free(save);
 *
 * begin, on rank 0, takes the root's lock (lock.h) until the save is freed, removes what crashed saves have left, makes
 * sure that the name is free or a checkpoint's (own.h), and makes the folder .step-00000100.NONCE; only when it has may
 * the other ranks begin (the session's round with the nonce tells them). run writes the shards to files of the rank's
 * own, and its part of the index beside them; rank 0 waits for all parts, writes the index, and gives the folder its
 * name:
 *
 *     rank 0        files, fsync ... waits for parts ... index, fsync, fsync folder, rename, fsync root, prune
 *     rank r        files, fsync, part by rename ... waits: the folder has its name, or is gone
 *
 * A rank that fails makes the folder go away, which needs no space on the disk, and that is how the others know: so all ranks
 * succeed, or all fail. (After its part rank r has nothing to take back: rank 0 decides.) A crash at any point leaves
 * checkpoints with their names as they were, or the new one whole under its name.
 *
 * A frozen shard (nothing in the plan changes it) goes to a second file, which is linked from the newest checkpoint of
 * the root rather than written when its header and the checksums of its shards are the same there.
 *
 * If several ranks hold shards alike, one rank writes them; replicas by several are taken once. Shards that do not cover a
 * tensor, or overlap and differ, fail the save.
 *
 * One thread at a time; begin and add may be on another than run. All memory that pieces name stays as it is until run
 * is over, or write, which is the first half of it. Nothing here knows of sessions: a save has no effect but on its folder.
 */
#ifndef ACTORS_KEEP_SAVE_H
#define ACTORS_KEEP_SAVE_H

#include "actors/keep/format/files.h"

#include <weir/checkpoint.h>

struct keep_save;

struct keep_save_opts {
    const char *root;    /* folder of checkpoints; made when it is not there */
    const char *name;    /* of this one: "step-00000100" (keep_step_name()), or any that does not begin with a dot */
    uint64_t nonce;      /* of this save: the same on all ranks, another each time */
    int rank, ranks;     /* ranks 0: 1 */
    int keep;            /* on rank 0: of step-... up to this one so many stay, itself included [0: all] */
    bool part;           /* elements may be missing: other hosts have them in folders of their own (part.h) */
    weir_checkpoint_create_opts facts; /* the same on all ranks */
    bool (*stop)(void *ctx, bool waits); /* asked now and then while it writes, or waits for other ranks: true gives the
                                            save up, E_CANCELLED */
    void *stop_ctx;
    int64_t wait_ns;     /* on rank 0: how long to wait for another process that saves in the root */
    void (*tell)(void *ctx, const char *sentence); /* what is worth a report and no failure; may be NULL */
    void *tell_ctx;
    const struct keep_files *files; /* [the system's] */
};

/* A shard that this rank writes, and the tensor that it is a part of. */
struct keep_piece {
    weir_checkpoint_tensor tensor; /* name, kind, dtype, shape, frozen, slots (0: 1) count; the same for all pieces */
    int slot;
    int64_t start[WEIR_DIMS_MAX];  /* of its first element in the tensor */
    weir_shape shape;              /* of what lies at `data`, row-major without gaps */
    const void *data;              /* borrowed until run is over */
};

#define KEEP_STEP_NAME_BYTES 32
const char *keep_step_name(int64_t step, char name[KEEP_STEP_NAME_BYTES]); /* "step-00000100" */
int64_t keep_step_of(const char *name);                                    /* -1: it is no such name */

/* Options are copied. NULL and weir_error(). */
struct keep_save *keep_save_begin(const struct keep_save_opts *opts);
weir_status keep_save_add(struct keep_save *save, const struct keep_piece *piece);     /* the piece is copied */
weir_status keep_save_add_source(struct keep_save *save, const char *name, const void *bytes, size_t count); /* too */
/* As it was in another checkpoint, with its rank. */
weir_status keep_save_copy_source(struct keep_save *save, const weir_checkpoint_source *source);

/* Bytes of shards that this rank writes, for reports. */
uint64_t keep_save_bytes(const struct keep_save *save);

/* Writes the shards, once; after it no memory of the caller's is needed. For who wants that at a time of his own: run
 * does it otherwise. E_IO, E_CANCELLED; then it is not to be run, only freed. */
weir_status keep_save_write(struct keep_save *save);

/* Once. E_IO: it cannot be written, or another rank failed; E_CANCELLED: stop() said so. */
weir_status keep_save_run(struct keep_save *save);

/* Whether the frozen shards were linked rather than written. */
bool keep_save_linked(const struct keep_save *save);

/* In any state, also NULL; a save that has not run is taken back. */
void keep_save_free(struct keep_save *save);

#endif
