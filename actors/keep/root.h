/* actors/keep/root.h: a folder of checkpoints.
 *
 *     step-00000100            whole
 *     step-00000200            whole; the newest, as it has the greatest number
 *     best                     whole, under a name of its own: pruning leaves it alone
 *     .step-00000300.NONCE     being written, with a lock on it, or left by a save that crashed; NONCE is 16
 *                              hexadecimal digits
 *     best.old-NONCE           for a moment, where a file system cannot let two names change places
 *
 * Any thread; one save at a time in a root.
 */
#ifndef ACTORS_KEEP_ROOT_H
#define ACTORS_KEEP_ROOT_H

#include "actors/keep/files.h"
#include "graph/base/pool.h"

/* Removes what crashed saves of `name` have left, and of all steps when `name` is one. What cannot be removed is left.
 * False: a save of these goes on, of which rank 0 is on this host, or on one that has its locks in common with this. */
bool keep_root_clean(const struct keep_files *files, const char *root, const char *name);

/* The numbers of its step-... folders that have an index, ascending; from `p`. -1: the folder cannot be read. */
int keep_root_steps(struct pool *p, const char *root, int64_t **steps);

/* Gives `temporary` (a folder of the root) the name `name`, in the place of what had it: at every moment either is
 * whole. False: errno. */
bool keep_root_publish(const struct keep_files *files, const char *root, const char *temporary, const char *name,
                       uint64_t nonce);

/* Removes all but the last `keep` of the step-... folders up to `step`. */
void keep_root_prune(const struct keep_files *files, const char *root, int64_t step, int keep, uint64_t nonce);

/* Makes a folder go: first from its name, at once, then from the disk. `aside` is where in the meantime. */
bool keep_root_remove(const struct keep_files *files, const char *path, const char *aside);

#endif
