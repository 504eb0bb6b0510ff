/* graph/verify/bound.h: which values an integer may have where it is read: an id is below the rows of its table, a label below
 * the classes, or the one of rows that do not count, and rows fit where a position puts them.
 *
 *     source -> ids -> box -> ids on cpu:1 -> embedding      readers tell; whatever passes integers on hands the bound back
 *
 * One table says which op bounds which input, for graphs and for plans. Pure functions; any thread.
 */
#ifndef GRAPH_VERIFY_BOUND_H
#define GRAPH_VERIFY_BOUND_H

#include "graph/plan/form/plan.h"

#define BOUND_NONE INT64_MAX /* no reader says */

typedef struct bound {
    int64_t below;  /* values are 0 and larger, and below this, */
    bool has_other; /* or `other` */
    int64_t other;
} bound;

static inline bound bound_none(void)
{
    return (bound){.below = BOUND_NONE};
}

/* The integers that both readers take. */
bound bound_of_both(bound a, bound b);

/* The integers that an op takes in an input, by the logical types of its inputs and its attributes. */
bound bound_of_input(const weir_op *op, const plan_word *words, const weir_type *in, int in_count, int input);

/* For each tensor of the plan the integers that all its readers take, directly or behind ops that pass integers on. The array is
 * the caller's to free. NULL: no memory. */
bound *bound_of_tensors(const weir_plan *plan);

#endif
