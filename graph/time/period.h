/* graph/time/period.h: the cycle of firings that bounds a step: a second way to the period that the clock finds, and the reason
 * for it.
 *
 * In the steady state every step, or every few steps, repeat those before. Their firings are nodes. An edge from u to v says that v
 * begins when u has ended, `tokens` repetitions earlier, and a message later:
 *
 *     data     v reads what u wrote
 *     slot     v writes into the slot that u freed
 *     order    v is fired by u's worker, next after u
 *
 * No repetition can be shorter than the sum of times around a cycle, divided by the sum of its tokens. The largest such ratio is the
 * period, and its cycle is what bounds the step: Howard's algorithm finds it (Cochet-Terrasson et al. 1998; Dasdan 2004).
 */
#ifndef GRAPH_TIME_PERIOD_H
#define GRAPH_TIME_PERIOD_H

#include <weir/time.h>

#include "graph/plan/form/plan.h"

typedef struct period_firing { /* as it was played */
    uint32_t actor, firing, worker; /* PLAN_NONE: outside */
    uint64_t begin, end;
} period_firing;

/* An edge of the critical cycle, in the order of time. */
typedef struct period_edge {
    uint32_t from, to;         /* actors */
    uint32_t from_firing;      /* in the step */
    weir_bound_kind kind;
    uint32_t port;             /* of data and slot */
    uint64_t ps;               /* of the firing `from`, and of the message */
    int32_t tokens;
} period_edge;

typedef struct period_result {
    double ps;                 /* of a step */
    period_edge *cycle;        /* owned by the caller */
    uint32_t count;
} period_result;

typedef struct period_spec {
    const weir_plan *plan;
    uint32_t program;
    const period_firing *firings; /* in the order of their ends; of all steps that were played */
    uint64_t count;
    uint32_t steps;            /* that were played to their end: at least 2 * unroll */
    uint32_t unroll;           /* so many steps repeat: the last ones but one are the nodes */
    uint64_t period;           /* of a step as played: a search that begins with the edges that it was tight on ends at once */
    uint32_t workers;
    void *ctx;
    uint64_t (*message)(void *ctx, uint32_t port, bool freed); /* between two workers; on a line without others */
    const uint32_t *slots;     /* by register; NULL: the plan's */
} period_spec;

/* E_MEMORY. */
weir_status period_find(const period_spec *spec, period_result *result);

#endif
