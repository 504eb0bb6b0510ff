/* graph/verify/draw.h: the values that a proof begins with, drawn from a seed and from names, so that both of its sides have the
 * same ones: of inputs, by step and row of the step; of all that lives from step to step.
 *
 * Reals are any values of the field. Integers lie within a bound (bound.h); some are equal, some are the first and the last, and
 * some are labels of rows that do not count.
 * Pure functions; any thread.
 */
#ifndef GRAPH_VERIFY_DRAW_H
#define GRAPH_VERIFY_DRAW_H

#include "graph/verify/bound.h"
#include "graph/verify/rule.h"

/* An integer within a bound, from random bits. With so few values some are equal. */
field_value draw_int(uint64_t bits, bound of);

/* Fills an array with what an input gives in micro-batch `micro` of a step: the rows of all micro-batches are those of the step, in
 * order, so a step has the same rows in however many micro-batches they come. Integers are within `of`. */
void draw_input(uint64_t seed, const char *name, int64_t step, int micro, bound of, const rule_array *array);

/* Fills an array with what a value that lives from step to step begins with. Integers are `*begin`; or, if that is NULL, as an
 * optimizer's count after a few updates. */
void draw_kept(uint64_t seed, const char *name, const int64_t *begin, const rule_array *array);

#endif
