/* graph/compile/backend/backend.h: a plan for what has been decided: the passes from copies on, for nodes whose layouts are chosen.
 *
 *     backend_begin()      the devices' form: copies, lower, group, ... order; written once, as a plan that has all but slots
 *                          and offsets
 *     backend_offsets()    enters the slots that registers have now, and finds offsets for them
 *     backend_fit()        that; takes slots away until each device is within its limit, if there is one
 *     backend_plan()       that; then offsets are entered, the plan is played, and what is short of slots is given some
 *
 * Besides slots nothing is given up here for a limit: budget/ changes the nodes and begins again.
 */
#ifndef GRAPH_COMPILE_BACKEND_BACKEND_H
#define GRAPH_COMPILE_BACKEND_BACKEND_H

#include "graph/compile/memory/offsets.h"

typedef struct backend {
    compile *c;                    /* borrowed: it has the devices' form */
    offsets offsets;
    weir_plan *plan;               /* owned, until backend_plan() hands it out */
    lives *known;                  /* owned: of that plan, with the slots that offsets were found for last */
    bool over;                     /* set: it was given up as too large, rather than for an error */
} backend;

/* `hasty`: offsets are to be found quickly, rather than as low as can be. Ended by backend_end() in any case, before the
 * compilation's pool is freed. False: an error. */
bool backend_begin(backend *b, compile *c, bool hasty);
void backend_end(backend *b);

/* False: an error. */
bool backend_offsets(backend *b);

/* Slots whose loss costs the least go first. False: an error, or, with b->over, there are none left that may go. */
bool backend_fit(backend *b);

/* NULL: an error, or, with b->over, it does not fit when it is live. */
weir_plan *backend_plan(backend *b);

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
