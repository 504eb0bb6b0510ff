/* graph/plan/spread/branch.h: which readers of a register are told together.
 *
 *     register --- branch, one message ---> a reader            all that one thread runs, on
 *                                      '--> another reader      another thread than the producer
 *
 * A *branch* of a register is all of its readers on one thread. It has the edge of the first of them, in the order of
 * ports: READY goes there once for all, and FREE comes back when the last of them has let go of a slot. A plan does not name the
 * threads of another process, so there the readers of one queue are a branch. Both ends work that out from the same plan.
 *
 * Alone in its branch is a reader that the producer's own thread runs, which is told without a message; one that the program
 * calls (a pull), which is a thread by itself; and each reader of a register whose producer's device runs ahead, as it is told
 * with a ticket of its own (actors/ahead.h).
 */
#ifndef GRAPH_PLAN_SPREAD_BRANCH_H
#define GRAPH_PLAN_SPREAD_BRANCH_H

#include "graph/plan/form/plan.h"

/* Sets first[p], for each port, to the first port of its branch; PLAN_NONE: it reads a constant, or what another program
 * made, and is told nothing. `thread_of`, by queue, of those of `rank`; NULL: each queue is one. `part_of`, by port: only
 * ports of one number are told together; NULL: all have one. E_MEMORY. */
weir_status plan_branches(const weir_plan *plan, uint32_t rank, const uint32_t *thread_of, const uint32_t *part_of,
                          uint32_t *first);

#endif
