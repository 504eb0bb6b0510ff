/* graph/verify/lookup.h: finds in a graph the node that computes what a kernel computes: the same op, with the same attributes, of the
 * same tensors.
 *
 * Two tensors are the *same* value if one is a copy or a cast of the other, or if two equal nodes make them of the same values. The
 * first of such tensors stands for all.
 *
 * Borrows the graph and the plan. After it was opened, nothing changes; any thread.
 */
#ifndef GRAPH_VERIFY_LOOKUP_H
#define GRAPH_VERIFY_LOOKUP_H

#include "graph/model/build.h"
#include "graph/verify/rule.h"

typedef struct lookup lookup;

/* For plans with so many micro-batches and this seed. NULL: no memory. */
lookup *lookup_new(const weir_graph *graph, int micros, uint64_t seed);
void lookup_free(lookup *l);

/* The tensor that stands for this one. NULL of NULL. */
const weir_tensor *lookup_same(const lookup *l, const weir_tensor *tensor);

/* An input or a fetch. NULL: there is none. */
const graph_node *lookup_host(const lookup *l, const char *name, plan_host_kind kind);

/* The node of this program that the call is; in[i]: the tensor (one that stands for others) of which input i has a part, or NULL:
 * any. If several are, one of this name is preferred. NULL: there is none. */
const graph_node *lookup_node(const lookup *l, const rule_call *call, const weir_tensor *const *in, uint32_t program, const char *name);

/* The sum of a tensor over the micro-batches. NULL: the graph does not have it. */
const weir_tensor *lookup_accumulated(const lookup *l, const weir_tensor *tensor);

/* Whether the array is a part of a tensor of this shape. */
bool lookup_same_shape(const rule_array *array, const weir_type *type);

#endif
