/* graph/verify/local.h: proves a large plan kernel by kernel: each is judged alone, and its inputs are taken for right.
 *
 *     claim of a shard: "a box of the graph's tensor T, whole, or a term with this share, times a scale"
 *
 *     parameters, inputs --claims--> kernel --judge--> claims --> box: pieces cover the box once, shares add up --> ...
 *
 * The proof is an induction over the plan's dataflow. Parameters and inputs are claimed by their names. A kernel whose inputs have
 * claims is held against the op of the graph that reads the same tensors with the same attributes (judge.h), and its outputs
 * get claims. A conversion adds up the shares of its inputs, element by element. At the end each fetch, and each shard of a parameter
 * that the graph updates, must be the whole value of its tensor.
 *
 * The cost depends on the number of operands and of classes of calls, not on sizes and steps. It does not see the order of
 * firings: which slot is read, which micro-batch or step a value belongs to, and whether bytes are overwritten too early. The
 * token game and the lives of bytes prove those (graph/plan/prove, graph/plan/lives), and the full mode plays them (player.h).
 *
 * One thread; graph and plan are borrowed and not changed.
 */
#ifndef GRAPH_VERIFY_LOCAL_H
#define GRAPH_VERIFY_LOCAL_H

#include "graph/model/build.h"
#include "graph/verify/proof.h"

/* With the seed of the proof, which is told of each kernel. E_WRONG: a kernel is not what the graph says, and weir_error() names
 * it. E_UNSUPPORTED: the plan has a kernel that cannot be judged alone. E_MEMORY: a call has more than `bytes_max`. */
weir_status local_verify(const weir_graph *graph, const weir_plan *plan, proof *p, uint64_t bytes_max);

#endif
