/* graph/verify/blame.h: which kernel made a plan wrong. Everything that kernels made is kept, and held against the author's
 * tensors of the same names, in the order of the graph: the first that is wrong is to blame.
 *
 * Several shards of a tensor may have the same element: then each has its value (B), or together they have it (P).
 */
#ifndef GRAPH_VERIFY_BLAME_H
#define GRAPH_VERIFY_BLAME_H

#include "graph/verify/author.h"

/* The first element of a shard that is not the whole tensor's; -1: there is none. */
int64_t blame_first(const rule_array *shard, const rule_array *whole);

/* Writes ", element [1, 2]" of a whole tensor. */
void blame_element(const rule_array *whole, int64_t place, char *text, size_t bytes);

typedef struct blame blame;

/* NULL: no memory. */
blame *blame_new(const weir_plan *plan, const weir_graph *graph);
void blame_free(blame *b);

/* Looks up by what the plan scales its loss; before the plan runs. */
void blame_find_scale(blame *b, const author *a);

/* Keeps what a kernel made in a step. */
void blame_add(blame *b, uint32_t kernel, const plan_tensor *tensor, int64_t step, int micro, const rule_array *array);

/* Looks at conversions of parameters and states in a step, which the author is about to make. */
bool blame_find_read(blame *b, const author *a, int64_t step, char *text, size_t bytes);

/* Looks at what was made in a step, which the author has just made: true, and a sentence, when something of it is wrong. */
bool blame_find(blame *b, const author *a, int64_t step, char *text, size_t bytes);

#endif
