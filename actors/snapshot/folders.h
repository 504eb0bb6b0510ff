/* actors/snapshot/folders.h: snapshots in the memory of several hosts: which folders there are, and what is in them.
 *
 * Every host has a folder of its own in memory, which outlives its ranks. A snapshot is a part (actors/keep/part.h) in
 * each of them, written by the ranks that see the folder: together they write all that they hold, so that with replicas
 * on several hosts each host has the whole, and else all have it together.
 *
 *     host a   step-00000008 (nonce 71)                              complete: a has h0/q whole, b has h1/q
 *              step-00000016 (nonce 72)
 *     host b   step-00000008 (nonce 71)                              of 16 nobody has h1/q: b was killed before its
 *                                                                    part had its name
 *
 * A *survey* is two rounds: each rank tells rank 0 which folder it sees and what is in it, a bit for each shard of the
 * plan; rank 0 chooses the newest snapshot of which every shard is in some folder, and tells all. It precedes each save,
 * which lets just that one stay beside the new one, and each load, which takes it. So whatever is killed when, the
 * snapshot that the last survey has chosen is in all folders that are left.
 *
 * A shard counts as there when one folder has all of its elements. One that lies in several folders in pieces, as it
 * may after a change of layout, does not: then the disk is what is left.
 *
 * The session's thread; all ranks call it together.
 */
#ifndef ACTORS_SNAPSHOT_FOLDERS_H
#define ACTORS_SNAPSHOT_FOLDERS_H

#include <weir/checkpoint.h>

#include "actors/cluster/cluster.h"
#include "graph/base/pool.h"

#define FOLDERS_NOBODY UINT32_MAX

struct snapshots;

struct folders_ask {
    const char *dir;      /* this rank's folder, there or not */
    enum round_kind kind; /* ROUND_SAVE or ROUND_LOAD */
    int64_t after;        /* on rank 0: only a snapshot of a later step is of use */
    uint64_t nonce;       /* on rank 0: a number that all are to know */
    const weir_checkpoint_source *sources; /* positions that all are to know; to load none, those of the snapshot are */
    int sources_count;
};

/* The facts that all ranks know after a survey. */
struct folders {
    struct pool pool;    /* of all that follows */
    uint64_t asked;      /* the number of rank 0's */
    int64_t step;        /* the snapshot that is chosen; -1: none */
    uint64_t nonce;      /* its */
    uint32_t *leader;    /* by rank: the first rank that sees the same folder */
    uint32_t *sender;    /* by plan shard: the rank that has to send it to its holder, whose folder lacks it; or NOBODY */
    POOL_LIST(weir_checkpoint_source) sources;
    int64_t lost_step;   /* on rank 0: of a later snapshot that is not complete any more; -1: none */
    char lost[512];      /* what nobody has of it */
};

/* E_PEER, E_MEMORY; *folders is to be freed in any case. */
weir_status folders_survey(struct snapshots *owner, const struct folders_ask *ask, struct folders *folders);
void folders_free(struct folders *folders); /* also a zeroed one */

/* This rank's number among those that see its folder, and how many they are. */
uint32_t folders_place(const struct snapshots *owner, const struct folders *folders, uint32_t *count);

/* Whether this rank writes shard i into its folder: of those there with the same elements one, at turns. */
bool folders_writes(const struct snapshots *owner, const struct folders *folders, const plan_param *param,
                    uint32_t i);

/* The rank that holds shard i of a parameter. */
uint32_t folders_holder(const struct snapshots *owner, const plan_param *param, uint32_t i);

#endif
