/* tests/support/blocks.h: random blocks of quantised weights (graph/base/blocks.h) whose scales and minima are about as large as those
 * of models, and what they stand for. Header-only. */
#ifndef TESTS_SUPPORT_BLOCKS_H
#define TESTS_SUPPORT_BLOCKS_H

#include "graph/base/blocks.h"
#include "graph/base/half.h"
#include "tests/support/kernel_check.h"

#include <string.h>

static inline void blocks_put_f16(unsigned char *at, double value)
{
    const uint16_t half = half_to_f16((float)value);
    memcpy(at, &half, sizeof half);
}

/* Fills `count` blocks. */
static inline void blocks_fill(weir_format format, int64_t count, unsigned char *to, uint64_t *random)
{
    const block_format *is = block_format_of(format);
    for (int64_t b = 0; b < count; b++, to += is->bytes) {
        for (int i = 0; i < is->bytes; i++)
            to[i] = (unsigned char)(kernel_random(random) * 256);
        const double scale = 0.01 * kernel_random_normal(random) / (is->elements == 256 ? 32 : 1);
        blocks_put_f16(to + (format == WEIR_Q6_K ? 208 : 0), scale);
        if (is->minimum)
            blocks_put_f16(to + 2, 7 * scale);
    }
}

/* The type of a weight [out, in]: of blocks, or dense and of `dtype`. */
static inline weir_type blocks_type(weir_format format, weir_dtype dtype, int64_t out, int64_t in)
{
    const block_format *is = block_format_of(format);
    return is ? (weir_type){WEIR_U8, {3, {out, in / is->elements, is->bytes}}} : (weir_type){dtype, {2, {out, in}}};
}

/* Elements [0, in) of row `row`. */
static inline void blocks_row(weir_format format, const weir_view *w, int64_t row, int64_t in, float *to)
{
    const block_format *is = block_format_of(format);
    if (is)
        block_read_row(format, (const unsigned char *)w->data + row * w->shape.dim[1] * is->bytes, 0, in, to);
    for (int64_t i = 0; i < in && !is; i++)
        to[i] = (float)kernel_at(w, row * in + i);
}

#endif
