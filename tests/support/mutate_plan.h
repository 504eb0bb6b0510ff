/* tests/support/mutate_plan.h: plans that nobody compiled: valid ones, changed at random.
 *
 *     weir_plan *base = mutate_room(compiled);            // NULL: no memory
 *     uint64_t random = SEED;
 *     weir_plan *plan = plan_copy(base);
 *     mutate_plan(plan, &random);                         // one change; a few make a stranger plan
 *     if (mutate_tighten(plan)) ...
 *
 * Most single values that are changed anyhow are refused at once. So that more of them pass, there are changes that
 * keep together what belongs together: a size wherever it occurs, the dtype of all operands of a kernel, an operand
 * for another one, an op for another. Their results are plans that a careful enemy would write.
 */
#ifndef TESTS_SUPPORT_MUTATE_PLAN_H
#define TESTS_SUPPORT_MUTATE_PLAN_H

#include "graph/plan/form/plan.h"

/* A copy with four times the memory for everything but scratch, so that tensors may grow where they lie, and with the
 * names of all built-in ops among its strings. Owned by the caller. */
weir_plan *mutate_room(const weir_plan *plan);

/* One random change in place. The hash is not kept. */
void mutate_plan(weir_plan *plan, uint64_t *random);

/* The same, of one value of one member of an element: a word of the encoded plan. */
void mutate_word(weir_plan *plan, uint64_t *random);

/* One random change of the table of the graph, which the plan must have. The table's hash is not kept. */
void mutate_table(weir_plan *plan, uint64_t *random);

/* Whether the plan is valid once it says no more memory than it has something for; then it does. */
bool mutate_tighten(weir_plan *plan);

/* The next number of a sequence that follows from *random (splitmix64). */
uint64_t mutate_draw(uint64_t *random);

#endif
