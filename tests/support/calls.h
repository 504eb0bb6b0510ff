/* tests/support/calls.h: one call of an op's kernel with a workspace of its own, on the CPU or an emulated card, whose memory is the
 * host's; and the views for it. A fault fails the Criterion test.
 */
#ifndef TESTS_SUPPORT_CALLS_H
#define TESTS_SUPPORT_CALLS_H

#include "tests/support/kernel_check.h"

void call_on_cpu(const weir_op *op, const void *attrs, const weir_view *in, int in_count, const weir_view *out);
void call_on_card(const weir_op *op, const void *attrs, const weir_view *in, int in_count, const weir_view *out, int out_count);

/* Views of garbage, and of N(0, 1); freed with kernel_view_free(). */
weir_view view_blank(weir_dtype dtype, weir_shape shape);
weir_view view_drawn(weir_dtype dtype, weir_shape shape, uint64_t *random);

#endif
