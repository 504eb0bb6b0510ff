/* graph/compile/sbp/machine.h: the seconds that work and transfers take, by which the compiler chooses layouts and what to
 * give up under a memory limit.
 *
 * With rates (weir_compile(.rates)) they follow from calls that were measured, of the same op and of as much work
 * (graph/time/fit.h): what conversions move, by calls of `box`, and a copy, by those of `copy`. Ops without such a call,
 * accelerators and disks have the model's figures. Without rates all is the model, which is no measurement: there ratios are
 * all that matters. Equal plans on all ranks need equal numbers, so all have the same rates.
 */
#ifndef GRAPH_COMPILE_SBP_MACHINE_H
#define GRAPH_COMPILE_SBP_MACHINE_H

#include "graph/compile/ir/ir.h"

/* To turn one tensor of `bytes` from one SBP into another on an axis of `parts` devices, of which one holds the share
 * `longest` of what is split: it is the last to be done. `rates` may be NULL here and below. */
double convert_seconds(const weir_rates *rates, weir_sbp from, weir_sbp to, int parts, double longest, double bytes, bool same_mesh);
/* The longest part's share when what the axes before leave of dimension `dim` is cut once more on this one: `sbp` tells
 * how it lies on them. One row is no way to share anything. */
double longest_share(const ir_tensor *t, const weir_mesh *mesh, const weir_sbp *sbp, int dim, int axis);
/* Seconds that one device is busy with a node by this signature on this axis, where no other axis splits it. */
double compute_seconds(const weir_rates *rates, const ir_graph *ir, const ir_node *node, const weir_signature *s, int axis);
/* Seconds of one firing of the node; its layouts are chosen. */
double node_seconds(const weir_rates *rates, const ir_graph *ir, const ir_node *node);
/* One transfer between devices, one way to a disk or from it, one copy by a core. */
double transfer_seconds(const weir_rates *rates, uint64_t bytes);
double disk_seconds(uint64_t bytes);
double copy_seconds(const weir_rates *rates, double bytes);

#endif
