/* graph/compile/budget/estimate.h: about how many bytes a device needs with what is dropped now; see recompute.h.
 *
 * The ladder asks hundreds of times, so this is an estimate: every tensor is there from the event that makes it to the last
 * that reads it, in the order of events, and their sum is largest somewhere. The real offsets are the judge (limit.c), and
 * rate every rung that is considered. Parameters, states and whatever else no rung changes are left out, as they do not
 * matter to a difference. Registers of several slots are there all the time, and with several micro-batches so is what is
 * made once a step.
 *
 * Devices that hold the same tensors need the same, so each such *class* of devices is counted once.
 */
#ifndef GRAPH_COMPILE_BUDGET_ESTIMATE_H
#define GRAPH_COMPILE_BUDGET_ESTIMATE_H

#include "graph/compile/budget/recompute.h"

typedef struct stay {              /* a value in memory: of a tensor, or of its repetition */
    int born, died;                /* events */
    bool crosses;                  /* from one phase to another: through a register */
    bool always;                   /* is there all the time */
} stay;

typedef struct device_class {             /* devices that hold the same tensors */
    weir_device_kind kind;
    int index;
    uint64_t meshes;               /* on which it is, a bit each */
    double *bytes;                 /* by tensor; of those that count */
    double needs;
    int peak;                      /* the event at which it needs that */
} device_class;

typedef struct estimate {          /* lives in the compilation's pool; one thread */
    recompute *x;
    POOL_LIST(const weir_mesh *) meshes;
    POOL_LIST(device_class) classes;
    int *slots;                    /* by tensor, if it crosses */
    stay *stays;                   /* by tensor, then by repetition */
    double *change;                /* by event: of the bytes that are there */
    double effort;                 /* events that were counted */
} estimate;

/* False: no memory. */
bool estimate_begin(estimate *of, recompute *x);

/* Orders the events of what is dropped now, and counts: returns the class that needs the most; NULL: there is none. */
const device_class *estimate_count(estimate *of);

#endif
