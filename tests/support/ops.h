/* tests/support/ops.h: ops for hand-made plans. test_ops() makes them known; it may be called any number of times.
 *
 *     test_none   no operands, does nothing
 *     test_sum    any f32 vectors of one length -> one: the sum of the inputs plus 1; accumulates
 *     test_fail   any -> one; fails with "the sky fell" in step 17
 *     test_tail   a vector -> its last elements, as many as the output has; says that it reads no others
 *     test_wild   the same, but says that it reads what lies outside of the vector
 *     test_blind  a vector -> one: 1 in every element; says that it reads nothing
 */
#ifndef TESTS_SUPPORT_OPS_H
#define TESTS_SUPPORT_OPS_H

#include <weir/op.h>

void test_ops(void);

#endif
