/* tests/support/op_check.h: an op through the whole stack, in every layout that it lists.
 *
 * shard_check() plays the devices by itself; op_check() has the compiler and the runtime do it. For every signature of
 * the op it builds a graph on a mesh of so many devices in which the op's inputs and outputs are fixed to that
 * signature, compiles it, looks into the plan whether the op's kernels really lie so, pushes the inputs of `c`, runs
 * two steps and pulls the outputs, which must be those of the same graph on one device.
 *
 *     kernel_check c = kernel_check_new(&op_softmax, NULL, 42);
 *     kernel_check_in(&c, WEIR_F32, SHAPE(4, 6));
 *     op_check(&c, 3, 1e-6);      // c need not have been run
 *     kernel_check_free(&c);
 */
#ifndef TESTS_SUPPORT_OP_CHECK_H
#define TESTS_SUPPORT_OP_CHECK_H

#include "tests/support/kernel_check.h"

/* Returns how many signatures were run (not counting the one that is all B). */
int op_check(const kernel_check *c, int devices, double tolerance);

#endif
