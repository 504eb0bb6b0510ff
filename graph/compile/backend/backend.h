/* graph/compile/backend/backend.h: a plan for what has been decided: the passes from lower on, for nodes whose layouts are chosen.
 *
 *     backend_devices()    copies, lower, group, ... order: actors and registers, with as many slots as are wanted
 *     backend_fit()        offsets; takes slots away until each device is within its limit, if there is one
 *     backend_plan()       that; then the plan is written and played, and what is short of slots is given some
 *
 * Besides slots nothing is given up here for a limit: budget/ changes the nodes and asks again.
 */
#ifndef GRAPH_COMPILE_BACKEND_BACKEND_H
#define GRAPH_COMPILE_BACKEND_BACKEND_H

#include "graph/compile/ir/ir.h"

bool backend_devices(compile *c);

/* Slots whose loss costs the least go first. False: an error, or, with c->over, there are none left that may go. */
bool backend_fit(compile *c);

/* NULL: an error, or, with c->over, it does not fit when it is live. */
weir_plan *backend_plan(compile *c);

/* After backend_fit(): how many slots have been taken away; and whether micro-batches are under way because of a register: it is
 * saved by forward for a later phase. */
int backend_slots_taken(const compile *c);
bool backend_feeds_pipeline(const compile *c, const reg *r);

/* Bytes of the device that the limit is about, and the most that one needs. */
uint64_t backend_needs(const compile *c, int device);
uint64_t backend_largest(const compile *c, int *device);

/* Sets the error anew, behind the file and line of the call: for what has none of the user's. */
void backend_blame_call(const compile *c, weir_status status);

#endif
