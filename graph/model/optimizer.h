/* graph/model/optimizer.h: a weir_optimizer, checked and with its defaults, and the ops that it means.
 *
 *     kind --> the op of the update, or LAMB's two          .schedule, .rate --> a node that updates multiply their rate by
 *
 * Warm-up and a half cosine are attributes of the updates themselves, so a plan without another schedule has no such node. Owns
 * nothing. One thread at a time, as the graph.
 */
#ifndef GRAPH_MODEL_OPTIMIZER_H
#define GRAPH_MODEL_OPTIMIZER_H

#include "graph/model/build.h"
#include "kernels/optim/optim.h"

/* Checks all but the groups (groups.h). Reports. */
bool optimizer_ok(weir_graph *g, const weir_optimizer *o, weir_src src);

/* Replaces options that are left out by their defaults; `o` must be right. */
void optimizer_defaults(weir_optimizer *o);

/* The op that updates a parameter in place. */
const weir_op *optimizer_op(const weir_optimizer *o);

/* Its attributes. `o` has the options of the parameter (groups_options()). */
struct optim_attrs optimizer_attrs(const weir_optimizer *o);

/* The number that all rates of a step are multiplied by, f32 [1] on `where`; NULL: there is none. */
weir_tensor *optimizer_rate(weir_graph *g, const weir_optimizer *o, weir_mesh *where, weir_src src);

#endif
