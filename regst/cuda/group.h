/* regst/cuda/group.h: groups inside the driver: what group.c and nccl.c have in common. Everything is under
 * group.c's lock. */
#ifndef REGST_CUDA_GROUP_H
#define REGST_CUDA_GROUP_H

#include "regst/cuda/driver.h"

struct part {
    void *at;
    uint64_t bytes;
};

enum deferred_kind { DEFERRED_MARK, DEFERRED_AWAIT, DEFERRED_MEETING };

struct deferred {
    struct deferred *next;
    enum deferred_kind kind;
    uint64_t ticket;               /* of the mark, awaited, or of the next mark */
    struct queue *other;           /* awaited */
    struct device_meeting meeting;
    weir_dtype dtype;              /* of what is added */
    int in_count, out_count;
    struct part parts[];           /* those given, then those taken */
};

struct group {
    struct device_group head;
    struct hall *hall;
    struct queue *queue;           /* borrowed */
    cudaEvent_t came, went;        /* owned */
    cudaEvent_t all_came, all_went; /* owned: member 0's, behind those of all */
    struct ncclComm *comm;         /* owned, of a group with members elsewhere; NULL: there is none yet, or any more */
    uint32_t next[];               /* by member, in a meeting: the first of what that gives that is not taken yet */
};

/* How far a group with members elsewhere has come. */
enum hall_stage { HALL_NEW, HALL_MADE, HALL_REHEARSES, HALL_WHOLE };

/* All members of a group. Members of other processes are NULL. */
struct hall {
    struct hall *next;
    struct device_group_id id;
    uint32_t count, here, joined;  /* members, those of this process, and how many of these there are */
    bool apart;                    /* there are two that do not reach each other's memory */
    enum hall_stage stage;
    uint32_t rehearsed;            /* meetings */
    bool launching;                /* what the members here are at: it is called, and not launched */
    struct group *member[];
};

static inline bool hall_spreads(const struct hall *hall)
{
    return hall->here < hall->count;
}

/* A member's part in a meeting, with the views of a call; not in its queue. NULL: there is no memory. */
struct deferred *group_part(const struct device_meeting *meeting, const weir_kernel_args *args);

/* Sleeps without the lock. */
void group_pause(long ns);

/* The members that a queue is, one after the other; `at` NULL: the first. */
struct group *group_next(const struct queue *queue, const struct group *at);

/* ---- nccl.c: groups with members in several processes ---- */

/* A new key. E_UNSUPPORTED where the library is not there. */
weir_status nccl_key(uint32_t index, unsigned char key[DEVICE_KEY_BYTES]);

/* Goes on with the communicators of the members here; *whole: all members everywhere have come, and are connected. */
weir_status nccl_join(struct hall *hall, const unsigned char key[DEVICE_KEY_BYTES], bool *whole);

/* Enqueues what the members here are at (queue->first), all of them at once. Until it is launched nothing may be enqueued
 * behind it; nccl_launched() waits for that a little while, the first time. */
weir_status nccl_meet(const struct hall *hall);
weir_status nccl_launched(const struct hall *hall, bool *over);

/* A sentence of what is wrong with the member's communicator. */
weir_status nccl_health(const struct group *group, char *error, size_t error_bytes);

/* Ends what is under way on the queue, by all of its communicators. Waits a while, without the lock; what has not ended
 * by then is left as it is, and the card's memory to it. */
void nccl_abort(struct queue *queue);

/* Gives back the communicators of all members here; waits a while for those elsewhere, without the lock. */
void nccl_leave(struct hall *hall);

#endif
