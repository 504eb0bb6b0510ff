/* graph/compile/ir/verify.h: what passes promise to those behind them. Each verifier looks at the whole form and takes time in
 * proportion to it; plan_validate() and the game verify the plan, and so what offsets and emit promise.
 */
#ifndef GRAPH_COMPILE_IR_VERIFY_H
#define GRAPH_COMPILE_IR_VERIFY_H

#include "graph/compile/ir/ir.h"

/* NULL: all is well. Else the promise that is broken; `at` is the number of the node, tensor, group or register then. */
typedef const char *verifier(const compile *c, int *at);

verifier verify_nodes;             /* ir_new to fold: nodes know their tensors, and tensors their nodes */
verifier verify_dtypes;            /* precision: what a node reads in has a dtype */
verifier verify_rules;             /* rules: each node has signatures, the first of which is all B */
verifier verify_layouts;           /* shard: nodes have a signature, tensors what their maker makes, users what they fixed */
verifier verify_conversions;       /* box, copies: an input lies as it is read; what is read is made before */
verifier verify_calls;             /* lower: calls and shards know each other, and are on one device */
verifier verify_groups;            /* group to tie: each call is in one group, and each register knows who reads it */
verifier verify_slots;             /* slots: each register has slots, and those that start full as many as are full */
verifier verify_order;             /* order: each group has a priority of its own */

#endif
