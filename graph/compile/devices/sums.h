/* graph/compile/devices/sums.h: the calls of sums that accelerators make themselves (sbp/sums.h). */
#ifndef GRAPH_COMPILE_DEVICES_SUMS_H
#define GRAPH_COMPILE_DEVICES_SUMS_H

#include "graph/compile/ir/ir.h"

/* Makes the pops of such a node (node->sum), one per device of its mesh, and the collectives that they are members of. False: no
 * memory. */
bool sum_lower(compile *c, int n);

/* Marks the node's pops dead, of which `last` is the last one, but for those of groups somebody needs the sum of; what those
 * add is used, too. Returns the first of the pops. */
int sum_sweep(compile *c, int last, bool *used);

#endif
