/* graph/plan/spread/spread.h: a plan for one process becomes one for many.
 *
 * A plan says nothing about processes. plan_spread() makes a copy that does: every space gets the rank that owns it, and
 * every PULL host is repeated for each rank, so that all of them can pull its values. Nothing else changes: the same
 * kernels in the same order on the same slices, so the same bits whatever the number of ranks.
 *
 *     spaces of one kind, by index:  0 .. d-1 -> rank 0,  d .. 2d-1 -> rank 1, ...      d devices a rank
 *
 * plan_part() leaves of a spread plan what one rank needs: the skeleton of the whole (spaces, queues, actors, ports,
 * registers: so that ids, counters and names mean the same on all ranks), and bodies (kernels, operands, attributes,
 * temps, states, tensors, initial values, hosts, parameters) for its own actors, and for actors of other ranks that
 * read its registers (what they read of them decides what is sent). A part is a valid plan by itself. Indexes of spaces,
 * queues, actors, ports, registers, parameters and their shards are those of the whole, those of tensors, kernels and
 * hosts are not; but their order is. A register of another rank has those of its tensors that somebody here names.
 *
 * Neither keeps the table of the graph (form/plan.h): a proof is made of the plan before it is spread.
 *
 * In both, a pull's name alone does not tell which host is meant: it is the one whose actor is of this rank.
 */
#ifndef GRAPH_PLAN_SPREAD_SPREAD_H
#define GRAPH_PLAN_SPREAD_SPREAD_H

#include "graph/plan/form/plan.h"

/* `devices` per rank; 0: the highest device index + 1, divided by `ranks`, rounded up. E_ARGUMENT when a device is
 * beyond the last rank's, naming it. NULL and weir_error(). Owned by the caller; bindings are copied. A plan that is
 * spread already (plan->ranks > 1) over as many ranks is copied; over another number: E_ARGUMENT. */
weir_plan *plan_spread(const weir_plan *plan, uint32_t ranks, uint32_t devices);

/* The part of a spread plan (plan->ranks > rank). Owned by the caller. */
weir_plan *plan_part(const weir_plan *spread, uint32_t rank);

#endif
