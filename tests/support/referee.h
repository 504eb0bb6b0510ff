/* tests/support/referee.h: plays plans in double precision, and says whether two come to the same.
 *
 *     referee *j = referee_new(right, 16);           // NULL: no memory, or not all of its values are finite
 *     if (referee_differs(j, changed, order)) ...
 *     referee_free(j);
 *
 * It is the player of the proof and its rules, compiled over doubles in the place of the field (tests/graph/verify/doubles.h): exp
 * is exp, and the values are numbers as a user has them. Two plans differ if a fetch, a parameter or a state of theirs does after
 * some steps of `main`, by more than 1e-9 of the largest element of the tensor, on one of two data sets. Integers that are given are
 * below `classes`.
 *
 * How parameters begin is not looked at: both plans begin with the same numbers, which follow from the names. One thread.
 */
#ifndef TESTS_SUPPORT_REFEREE_H
#define TESTS_SUPPORT_REFEREE_H

#include "graph/plan/form/plan.h"

typedef struct referee referee;

referee *referee_new(const weir_plan *plan, int classes);
void referee_free(referee *j);

/* Whether the plan comes to other values when its actors fire in an order that follows from `order`, or cannot be played. */
bool referee_differs(const referee *j, const weir_plan *plan, uint64_t order);

#endif
