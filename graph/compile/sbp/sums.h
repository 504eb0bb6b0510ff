/* graph/compile/sbp/sums.h: sums that accelerators make themselves (weir_compile(.reduce = WEIR_FAST)).
 *
 * By default a partial sum is a matter of moves: devices hand terms to each other, and a kernel adds them in the order of
 * the devices (exchange.h), which has the same bits everywhere. A communicator adds faster, in an order of its own. Where
 * that is asked for, a conversion along one axis of a mesh of accelerators is one collective that adds, for each group
 * of devices that differ on that axis alone:
 *
 *     P -> B       all_reduce         all of the sum on each
 *     P -> S(d)    reduce_scatter     the k-th part of it on the k-th
 *
 * A device hands over one tensor and takes one, so parts must be of equal size and lie in one piece, in the order of the
 * devices, in the shard that is their sum's; terms are f32. Conversions that change more than one axis do so one after the
 * other, parts first, as then less is left to move. A sum whose parts would not lie so is scattered over the first
 * dimension where they do, and goes on from there. Everything that cannot be had so is as it is without the option: other
 * dtypes, shards that do not divide, devices that do not rise along the axis, what only the host reads.
 */
#ifndef GRAPH_COMPILE_SBP_SUMS_H
#define GRAPH_COMPILE_SBP_SUMS_H

#include "graph/compile/ir/ir.h"

/* Whether the conversion of `t` to this layout begins with such a sum, and how its result lies, on the mesh of `t`. It is all
 * of the conversion when it lies as asked for. */
bool sum_first(const compile *c, const ir_tensor *t, const weir_mesh *mesh, const weir_sbp *sbp, weir_sbp *between);

/* Whether a conversion is such a sum, and which. */
bool sum_is(const compile *c, const ir_tensor *from, const ir_tensor *to, plan_collective_kind *kind);

/* The axis that it adds along, and how far apart on the mesh devices are that are next to each other on an axis. */
int sum_axis(const ir_tensor *from, const ir_tensor *to);
int sum_stride(const weir_mesh *mesh, int axis);

#endif
