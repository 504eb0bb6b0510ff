/* actors/keep/root.h: a folder of checkpoints.
 *
 *     step-00000100            whole
 *     step-00000200            whole; the newest, as it has the greatest number
 *     best                     whole, under a name of its own: pruning leaves it alone
 *     .step-00000300.NONCE     being written, or left by a save that crashed; NONCE is 16 hexadecimal digits
 *     best.old-NONCE           for a moment, where a file system cannot let two names change places
 *
 * A caller that changes a root holds its lock (lock.h). Any thread; one save at a time in a root.
 */
#ifndef ACTORS_KEEP_ROOT_H
#define ACTORS_KEEP_ROOT_H

#include "actors/keep/format/files.h"
#include "graph/base/pool.h"

/* Removes what crashed saves of `name` have left, and of all steps when `name` is one. The caller knows that no such
 * save goes on: its lock holds others off. It leaves a folder that it cannot remove, or that is not
 * proven to be a save's. */
void keep_root_clean(const struct keep_files *files, const char *root, const char *name);

/* The numbers of its step-... folders that have an index, ascending; from `p`. -1: the folder cannot be read. */
int keep_root_steps(struct pool *p, const char *root, int64_t **steps);

/* Gives `temporary` (a folder of the root) the name `name`, in the place of what had it, which is ours (own.h) or
 * nothing: at every moment either is whole. False: errno. */
bool keep_root_publish(const struct keep_files *files, const char *root, const char *temporary, const char *name,
                       uint64_t nonce);

/* Removes all but the last `keep` of the step-... folders up to `step`. A folder that has to stay, because something
 * foreign is in it, is told once. */
struct keep_prune {
    int64_t step;
    int keep;
    uint64_t nonce; /* of the save */
    void (*tell)(void *ctx, const char *sentence); /* may be NULL */
    void *tell_ctx;
};
void keep_root_prune(const struct keep_files *files, const char *root, const struct keep_prune *prune);

/* Makes a folder that is ours go: first from its name, at once, then from the disk. `aside` is where in the meantime.
 * False with errno; ENOTEMPTY: it is foreign, and nothing has changed. */
bool keep_root_remove(const struct keep_files *files, const char *path, const char *aside);

#endif
