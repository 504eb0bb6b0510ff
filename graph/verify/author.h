/* graph/verify/author.h: what the author wrote: the logical graph, computed over the field.
 *
 * Whole tensors, node by node, in the order in which the graph was built: no devices, layouts, slots or fusion. A tensor that
 * exists once a micro-batch is computed for all of them in turn. Inputs, parameters and states have random values (draw.h), as the
 * plan's have.
 *
 * One thread. The graph is borrowed and not changed.
 */
#ifndef GRAPH_VERIFY_AUTHOR_H
#define GRAPH_VERIFY_AUTHOR_H

#include "graph/model/build.h"
#include "graph/verify/rule.h"

typedef struct author author;

/* Whether a plan of the graph can be held against it. E_UNSUPPORTED: a call is split by hand. */
weir_status author_can(const weir_graph *graph);

/* A graph with so many micro-batches a step; `key_seed` is that of the plan, for the streams of dropout. E_MEMORY. */
weir_status author_open(author **to, const weir_graph *graph, int micros, uint64_t key_seed, uint64_t seed);
void author_close(author *a);

/* Bytes that it takes for a graph. */
uint64_t author_bytes(const weir_graph *graph, int micros);

/* The next step of a program. */
weir_status author_step(author *a, int program);

/* One node of the next step, for all micro-batches: those before it have been computed. */
weir_status author_node(author *a, const graph_node *node);

/* A value that lives from step to step, as it is after the last step: a parameter, a state, an optimizer's. Without
 * elements (`at` is NULL): there is none. `src`: where the author made it. Its elements are the author's until the next step, as
 * those of author_tensor(). */
rule_array author_kept(const author *a, const char *name, weir_src *src);

/* A tensor of the last step, of one micro-batch where it exists once for each. */
rule_array author_tensor(const author *a, const weir_tensor *tensor, int micro);

/* Fills an array with what an input gives: by its logical indexes. False: there is no such input. */
bool author_input(const author *a, const char *name, int64_t step, int micro, const rule_array *array);

/* Fills an array with what a value that lives from step to step begins with. */
void author_begin(const author *a, const char *name, const rule_array *array);

/* A parameter or a state of the graph. NULL: there is none of this name. */
const weir_tensor *author_kept_named(const weir_graph *graph, const char *name);

/* Writes the name of state s of a node, as a plan has it: "h0/q/weight:adamw.m". */
void author_state_name(const graph_node *node, int s, char *name, size_t bytes);

/* Whether a parameter or state of the graph begins as this says; true of all that the graph does not know. */
bool author_begins_so(const weir_graph *graph, uint64_t key_seed, const char *name, const plan_init *init);

#endif
