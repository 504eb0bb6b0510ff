/* graph/compile/ir/verify.h: verifiers of what passes promise to those behind them; each room has its own beside the list of its
 * passes. A verifier looks at the whole form and takes time in proportion to it. The plan is verified by plan_validate() and the
 * game, and so is what offsets and emit promise.
 */
#ifndef GRAPH_COMPILE_IR_VERIFY_H
#define GRAPH_COMPILE_IR_VERIFY_H

#include "graph/compile/ir/ir.h"

/* NULL: all is well. Else the promise that is broken; `at` is the number of the node, tensor, group or register then. */
typedef const char *verifier(const compile *c, int *at);

/* Nodes know their tensors, and tensors their nodes; what a node reads is made before it. */
verifier verify_nodes;

/* ---- for verifiers ---- */

bool list_has(const int *item, int count, int value);

#endif
