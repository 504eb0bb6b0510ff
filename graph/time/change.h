/* graph/time/change.h: what-ifs: a machine or a plan that is not quite what is there.
 *
 *     bandwidth=10Gbit      of the link between ranks, each way
 *     latency=200us         of a message between ranks
 *     slots(h0)=3           of registers that hold a tensor h0
 *     speed(cpu:3)=0.5      of all kernels of a device: they take twice as long; not copies and collectives of an accelerator
 *     speed(matmul)=2       of all kernels of an op; or of those of an actor, or of that name. Speeds of one kernel are multiplied
 *     workers(1)=2          of rank 1
 */
#ifndef GRAPH_TIME_CHANGE_H
#define GRAPH_TIME_CHANGE_H

#include "graph/plan/form/plan.h"

#define CHANGE_SPEED 1000000 /* as it is */

typedef struct changes {
    uint32_t *slots;      /* owned, as all arrays: by register; the plan's where nothing changes it */
    uint64_t *speed;      /* by kernel: millionths, at least 1 */
    uint32_t *workers;    /* by rank; 0: as without */
    uint64_t bits_s;      /* 0: a link takes no time for its bytes */
    uint64_t latency_ps;
    bool has_latency;
} changes;

/* Reads texts as above; the list ends with NULL, and may be NULL itself. `call` begins the sentence ("model.c:3: weir_predict").
 * E_ARGUMENT; E_MEMORY. */
weir_status changes_read(changes *c, const weir_plan *plan, const char *const *texts, const char *call);
void changes_free(changes *c);

#endif
