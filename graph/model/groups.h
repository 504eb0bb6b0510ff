/* graph/model/groups.h: which options of an optimizer a parameter has.
 *
 *     "h0/up/weight" -- first .groups[k].match that fits --> group k, or GROUP_NONE
 *
 * A group freezes its parameters before the backward graph is built, so that no gradient of them is made. Names are compared
 * whole (glob_fits() of graph/base/locale.h). Owns nothing. One thread at a time, as the graph.
 */
#ifndef GRAPH_MODEL_GROUPS_H
#define GRAPH_MODEL_GROUPS_H

#include "graph/model/build.h"

enum { GROUP_NONE = -1 };

/* Groups up to the first without .match. */
int groups_count(const weir_optimizer *o);

/* The group that the parameter belongs to. */
int groups_of(const weir_optimizer *o, const weir_tensor *parameter);

/* Whether the group clips its gradients by itself. */
bool groups_clips(const weir_optimizer *o, int group);

/* Checks the options of each group, and that some parameter of the graph belongs to it. Reports. */
bool groups_ok(weir_graph *g, const weir_optimizer *o, weir_src src);

/* Freezes the parameters of frozen groups, and with them all that depends on no other parameter. */
void groups_freeze(weir_graph *g, const weir_optimizer *o);

/* `o` as it is for the parameter: the options of its group, and no decay where there is none by default. */
weir_optimizer groups_options(const weir_optimizer *o, const weir_tensor *parameter);

#endif
