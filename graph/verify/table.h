/* graph/verify/table.h: the author's graph in a plan, so that a proof needs no program.
 *
 *     weir_graph --table_keep()--> plan->graph_tensors, graph_nodes, ...  --weir_plan_save()--> file
 *                                       (graph/plan/form/plan.h)                                  |
 *     weir_graph <-weir_plan_graph()-- plan <-----------------------------weir_plan_load()--------'
 *
 * The table has what a proof (author.c, verify.c, blame.c), graph_hash() and a check of gradients read: types, names and lines of
 * tensors, nodes with ops and attributes, phases, programs, rates, what is updated, how values begin, the loss, and the node whose
 * gradient a node is part of. It has nothing of where the graph runs: no meshes, layouts, slots, functions. So a graph that comes
 * out of it can be proven against, and not compiled.
 *
 * plan_validate() has accepted the table before it is read (graph/plan/prove/validate_graph.c), so weir_plan_graph() checks
 * nothing but whether it is the graph of this model. The new graph owns all that it has: the plan may be freed. One thread at a
 * time, as always with graphs.
 */
#ifndef GRAPH_VERIFY_TABLE_H
#define GRAPH_VERIFY_TABLE_H

#include "graph/model/build.h"

/* Enters the graph that the plan was compiled from. The plan's hash stays as it is. E_MEMORY; E_PLAN: the graph is none that a
 * table can keep. Then the plan is as it was. */
weir_status table_keep(weir_plan *plan, const weir_graph *graph);

#endif
