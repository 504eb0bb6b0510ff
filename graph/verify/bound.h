/* graph/verify/bound.h: how many values an integer may have where it is read: an id is below the rows of its table, a label below
 * the classes, and rows fit where a position puts them.
 *
 *     source -> ids -> box -> ids on cpu:1 -> embedding      readers tell; whatever passes integers on hands the bound back
 *
 * One table says which op bounds which input, for graphs and for plans. Pure functions; any thread.
 */
#ifndef GRAPH_VERIFY_BOUND_H
#define GRAPH_VERIFY_BOUND_H

#include "graph/plan/form/plan.h"

#define BOUND_NONE INT64_MAX /* no reader says */

/* The number of values that an op takes in an input, by the logical types of its inputs; BOUND_NONE. */
int64_t bound_of_input(const char *op, const weir_type *in, int in_count, int input);

/* The least bound of all that read a tensor of the plan, directly or behind ops that pass integers on: for each tensor. The
 * array is the caller's to free. NULL: no memory. */
int64_t *bound_of_tensors(const weir_plan *plan);

#endif
