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
 * Times of the three places are mixed by the bytes of the operands that are there.
 */
#ifndef GRAPH_TIME_DURATION_H
#define GRAPH_TIME_DURATION_H

#include "graph/plan/form/plan.h"
#include "graph/time/rates.h"

/* Where a call's time comes from. */
typedef enum time_source { TIME_MEASURED, TIME_SCALED, TIME_GUESSED, TIME_NONE, TIME_SOURCES } time_source;

typedef struct durations {
    const weir_plan *plan;     /* borrowed */
    const uint32_t *worker;    /* borrowed; by queue */
    const uint32_t *slots;     /* borrowed; by register */
    uint64_t near_bytes, far_bytes; /* touched since: so many are warm no more, near no more */
    struct kernel_time {
        uint64_t ps[TIME_PLACES];
        time_source source;
    } *kernels;                /* owned, as all arrays below; by kernel */
    uint32_t *piece;           /* by tensor: its first piece of memory; one per slot */
    struct touched {
        uint64_t count;
        uint32_t worker;       /* PLAN_NONE: nobody's yet */
    } *pieces;                 /* NULL before durations_begin() */
    uint64_t *counts;          /* by worker: bytes that its firings touched */
    uint64_t by_source[TIME_SOURCES]; /* ps, of all that were played */
} durations;

/* Seconds of a call of the op with such a cost, by the call of that op that was measured nearest to it; its operands are where as
 * many bytes have room. 0: none was measured. */
double duration_of(const weir_rates *rates, const char *op, double flops, double bytes);

/* E_MEMORY. */
weir_status durations_open(durations *d, const weir_plan *plan, const weir_rates *rates, const uint32_t *worker, uint32_t workers);
void durations_close(durations *d);

/* Nothing has been touched yet; registers have so many slots. Before the first firing. E_MEMORY. */
weir_status durations_begin(durations *d, const uint32_t *slots, uint32_t workers);

/* Picoseconds that the kernels of the actor's firing number `firing` take, which begins now. */
uint64_t durations_firing(durations *d, uint32_t actor, uint32_t firing);

#endif
