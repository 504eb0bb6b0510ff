/* actors/keep/part.h: a checkpoint of which every host has a part, in a folder of its own.
 *
 * That is how snapshots lie in memory (actors/snapshot/folders.h): a host's folder has what the ranks of the host hold,
 * and so is whole where each host holds everything, else only together with the others'. In form it is a checkpoint
 * whose index lacks elements; parts of one save have its nonce. weir_checkpoint_open() refuses one that lacks any, so
 * nothing takes a part for the whole by mistake.
 *
 * Reading (weir_checkpoint_read(), keep_checkpoint_prove()) is for boxes that are there: ask keep_part_has() first.
 * One thread at a time, as of every open checkpoint.
 */
#ifndef ACTORS_KEEP_PART_H
#define ACTORS_KEEP_PART_H

#include "actors/keep/format/files.h"

#include <weir/checkpoint.h>

/* A folder with an index, whole or not. NULL and weir_error(). Closed by weir_checkpoint_close(). */
weir_checkpoint *keep_part_open(const char *folder);

uint64_t keep_part_nonce(const weir_checkpoint *part);

/* Whether every element of the box is in the part, in all slots. */
bool keep_part_has(const weir_checkpoint_tensor *tensor, const int64_t *start, const weir_shape *shape);

/* The numbers of the newest step-... folders of a root, at most `room`, the newest first; returns how many. */
int keep_part_steps(const char *root, int64_t *steps, int room);

/* Removes all step-... folders of a root but that of this step; -1: all. */
void keep_part_prune(const struct keep_files *files, const char *root, int64_t step);

#endif
