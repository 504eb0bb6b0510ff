/* graph/time/duration.h: how long a firing takes, by rates, and by what the caches of its worker hold.
 *
 * A call was measured with its operands in three places. Which of them holds an operand when a firing begins is found as it is
 * played: each worker counts the bytes that its firings touch, and each piece of memory remembers the count of its last firing
 * and whose it was. As many bytes as were touched since lie in caches before it.
 *
 *     less than half of the core's cache since, by the same worker     warm
 *     less than its share of the cache of all cores                    near; also what another worker touched last
 *     more                                                             far
 *
 * A queue of an accelerator is a worker of its own, whose firings take no time of the host's. Its accelerator's cache is near and warm at
 * once. Copies and collectives take what their curves say (graph/time/card.h).
 *
 * Times of the three places are mixed by the bytes of the operands that are there. A call takes longer beside others by as much as it did
 * when it was measured beside them: by the part of its bytes that is far, beside streams; by the rest, beside arithmetic.
 */
#ifndef GRAPH_TIME_DURATION_H
#define GRAPH_TIME_DURATION_H

#include "graph/plan/form/plan.h"
#include "graph/time/rates.h"
#include "graph/time/share.h"

/* Where a call's time comes from. */
typedef enum time_source { TIME_MEASURED, TIME_SCALED, TIME_GUESSED, TIME_NONE, TIME_SOURCES } time_source;

typedef struct durations {
    const weir_plan *plan;     /* borrowed */
    const uint32_t *worker;    /* borrowed; by queue */
    const uint32_t *slots;     /* borrowed; by register */
    struct kernel_time {
        uint64_t ps[TIME_PLACES];
        uint64_t stream_ps, busy_ps; /* how much longer far takes beside streams, and warm beside arithmetic */
        time_source source;
        uint32_t first;        /* in `operands`; there is one more than kernels */
    } *kernels;                /* owned, as all arrays below; by kernel */
    struct touchable {
        uint64_t bytes;
        uint32_t tensor;
        uint32_t first, slots; /* the tensor's pieces of memory; one per slot */
        uint32_t hold;         /* firings for a slot */
    } *operands;               /* of each kernel those that it reads, that it writes, and its states */
    struct touched {
        uint64_t count;
        uint32_t worker;       /* PLAN_NONE: nobody's yet */
    } *pieces;                 /* NULL before durations_begin() */
    struct cached {
        uint64_t near, far;    /* bytes touched since: so many are warm no more, near no more */
    } *caches;                 /* by worker */
    bool beside;               /* some call takes longer beside others */
    uint64_t *counts;          /* by worker: bytes that its firings touched */
    double by_source[TIME_SOURCES]; /* ps, of all that were played */
} durations;

/* With a speed of each kernel, in CHANGE_SPEEDths (graph/time/change.h). The first `threads` workers are the host's, the others queues of
 * accelerators. E_MEMORY. */
weir_status durations_open(durations *d, const weir_plan *plan, const weir_rates *rates, const uint64_t *speed, const uint32_t *worker,
                           uint32_t workers, uint32_t threads);
void durations_close(durations *d);

/* Nothing has been touched yet; registers have so many slots. Before the first firing. E_MEMORY. */
weir_status durations_begin(durations *d, const uint32_t *slots, uint32_t workers);

/* How long the kernels of the actor's firing number `firing` take, which begins now; at most SHARE_MAX. */
share_work durations_firing(durations *d, uint32_t actor, uint32_t firing);

#endif
