/* graph/plan/prove/turns.h: in which order collectives come.
 *
 * Any order in which a step can be played will do: the game then plays it again. A good one is that in which they become
 * ready, so the game is played against a clock: each queue runs one actor at a time, of those that may fire the one of the
 * lowest priority, and a firing takes as many ticks as it has kernels. A collective fires as soon as all its members may,
 * and that is its turn; ties go by priority.
 */
#ifndef GRAPH_PLAN_PROVE_TURNS_H
#define GRAPH_PLAN_PROVE_TURNS_H

#include "graph/plan/form/build.h"

/* Appends the turns of a plan that has actors and collectives: as many as there are firings, in the order of collectives. */
void plan_add_all_turns(plan_builder *builder);

/* Brings them into such an order; offsets do not matter. Where a step cannot be played to its end, the rest come in the order
 * of the collectives; the game then finds out. False: no memory. */
bool plan_order_turns(weir_plan *plan);

#endif
