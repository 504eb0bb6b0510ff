/* tests/support/small_plans.h: compiled plans of a few kilobytes, among which every op occurs.
 *
 *     mlp     three devices that do not divide the rows, ZeRO, AdamW with clipping, two micro-batches
 *     gpt     two stages of two devices, the weights split; SGD with momentum; embedding, attention, dropout
 *     zoo     one of everything else, forward and backward, on two devices
 *     pair    two programs over the same parameters and states, on two devices
 *     chains  the zoo, with chains of kernels in one pass
 *     choices functions of elements, comparisons, and what goes by them
 *     llama   two blocks with rotary positions, groups of heads, a window and a mask; rows behind kept ones; the weights split;
 *             products of weights as they are stored
 *     filed   a network with AdamW, gpt, and the network with SGD, in as little memory as can be, the rest on a disk
 */
#ifndef TESTS_SUPPORT_SMALL_PLANS_H
#define TESTS_SUPPORT_SMALL_PLANS_H

#include "graph/plan/form/plan.h"

enum { SMALL_PLANS = 20 };

/* Owned by the caller; without bindings. A mistake is said, and aborts. */
weir_plan *small_plan(int which);
weir_plan *small_plan_with_graph(int which); /* keeps it */

#endif
