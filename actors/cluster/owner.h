/* actors/cluster/owner.h: all that a cluster sees of its session. ranks.c makes one. */
#ifndef ACTORS_CLUSTER_OWNER_H
#define ACTORS_CLUSTER_OWNER_H

#include "actors/ending.h"
#include "actors/run.h"

struct wire_frame;

struct cluster_owner {
    struct ending *ending;
    struct session_run *run;

    void (*lost)(struct cluster_owner *owner, uint32_t culprit, const char *sentence); /* the session cannot go on */
    void (*told)(struct cluster_owner *owner, uint32_t from, uint32_t culprit, bool cancelled, const char *sentence);
    void (*ends)(struct cluster_owner *owner, const struct last_step *last); /* elsewhere a source has no more values */
    void (*leave_run)(struct cluster_owner *owner); /* is due, after one of those below; without the lock */
    void (*waits)(struct cluster_owner *owner, uint32_t rank, const void *entries, uint32_t count); /* the rank says so */
    void (*beat)(struct cluster_owner *owner, struct wire_frame *frame); /* what this rank has done */
    uint32_t (*slot)(struct cluster_owner *owner, uint32_t regst); /* that is published next. At rest */

    /* With the lock of `ending`: the run is held; it ends before this step; the run that this rank follows is over (false:
     * it follows none). */
    void (*hold)(struct cluster_owner *owner);
    void (*limit)(struct cluster_owner *owner, int64_t step);
    bool (*follow)(struct cluster_owner *owner, int64_t step);
};

#endif
