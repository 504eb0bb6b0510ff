/* graph/compile/sbp/machine.h: the seconds that work and transfers take, by which the compiler chooses layouts and what to
 * give up under a memory limit. The machine is a model, not a measurement: ratios are all that matters, and equal plans on
 * all ranks need equal numbers.
 */
#ifndef GRAPH_COMPILE_SBP_MACHINE_H
#define GRAPH_COMPILE_SBP_MACHINE_H

#include "graph/compile/ir/ir.h"

/* To turn one tensor of `bytes` from one SBP into another on an axis of `parts` devices, of which one holds the share
 * `longest` of what is split: it is the last to be done. */
double convert_seconds(weir_sbp from, weir_sbp to, int parts, double longest, double bytes, bool same_mesh);
/* The longest part's share when what the axes before leave of dimension `dim` is cut once more on this one: `sbp` tells
 * how it lies on them. One row is no way to share anything. */
double longest_share(const ir_tensor *t, const weir_mesh *mesh, const weir_sbp *sbp, int dim, int axis);
/* Seconds that one device is busy with a node by this signature on this axis, where no other axis splits it. */
double compute_seconds(const ir_graph *ir, const ir_node *node, const weir_signature *s, int axis);
/* Seconds of one firing of the node; its layouts are chosen. */
double node_seconds(const ir_graph *ir, const ir_node *node);
/* One transfer between devices, one way to a disk or from it, one copy by a core. */
double transfer_seconds(uint64_t bytes);
double disk_seconds(uint64_t bytes);
double copy_seconds(double bytes);

#endif
