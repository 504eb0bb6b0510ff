/* graph/compile/backend/backend.h: makes a plan from nodes whose layouts are chosen: the passes from `copies` on.
 *
 *     devices      copies, lower, group, ... order; writes a plan that has everything but slots and offsets
 *     offsets      enters the registers' slots, and finds offsets for them
 *     fit          does both; takes slots away until each device is within its limit, if there is one
 *     plan         does all three; enters the offsets, simulates the plan, and adds slots where it would deadlock
 *
 * For a limit only slots are taken away here; budget/ makes all other trades: it changes the nodes and calls backend_try()
 * again. Each call leaves its result in c->phys, in the compilation's pool.
 */
#ifndef GRAPH_COMPILE_BACKEND_BACKEND_H
#define GRAPH_COMPILE_BACKEND_BACKEND_H

#include "graph/compile/ir/ir.h"

typedef enum backend_effort {
    BACKEND_WHOLE,                 /* offsets are found as low as can be, and no slot is taken away */
    BACKEND_HASTY                  /* offsets are found quickly, and slots are taken away, those whose loss costs the least first */
} backend_effort;

typedef struct backend_outcome {
    bool over;                     /* a device is over the limit, with as few slots as there can be if they may be taken away */
    uint64_t bytes;                /* of the device that needs the most */
    int device;                    /* which that is */
} backend_outcome;

/* The bytes that a plan would need. False: an error. */
bool backend_try(compile *c, backend_effort effort, backend_outcome *o);

/* The plan. NULL: an error, or, with o->over, it does not fit when it is live. */
weir_plan *backend_plan(compile *c, backend_outcome *o);

/* How many slots have been taken away; and whether micro-batches are under way because of a register: it is saved by forward
 * for a later phase. */
int backend_slots_taken(const compile *c);
bool backend_feeds_pipeline(const compile *c, const reg *r);

/* Sets the error anew, behind the file and line of the call: for what has none of the user's. */
void backend_blame_call(const compile *c, weir_status status);

#endif
