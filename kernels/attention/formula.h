/* kernels/attention/formula.h: the attributes of the ops of attention, the keys that a query sees, and in how many parts a
 * library makes a gradient; for all kinds of devices. Any thread.
 *
 * attention, attention_grad and attention_kept have no window and no mask. An op whose name ends in `masked` is the same with both:
 * its attributes are those of the other and a window, and its mask, if there is one, is its last input. So a plan without either is
 * what it was before there were any.
 */
#ifndef KERNELS_ATTENTION_FORMULA_H
#define KERNELS_ATTENTION_FORMULA_H

#include "kernels/elementwise/fastmath.h"

#include <stdbool.h>
#include <weir/op.h>

struct attention_attrs {
    int64_t head_dim;
    int64_t causal;
    double scale;
};

struct attention_masked_attrs {
    struct attention_attrs own;
    int64_t window; /* row i sees i - window + 1 .. i; 0: no window */
};

struct kept_attrs {
    int64_t head_dim;
    double scale;
};

struct kept_masked_attrs {
    struct kept_attrs own;
    int64_t window;
};

/* A mask, and the elements from one sequence, head or row to the next of a mask that has several. Keys are without gaps. */
struct attention_mask {
    const void *at; /* NULL: there is none */
    int64_t batch, head, row;
    bool bytes;     /* u8: a key is seen where it is not 0. Else f32, which is added to the score. */
};

/* [batch, keys], or [batch or 1, heads or 1, rows or 1, keys]. */
FORMULA struct attention_mask mask_of(const weir_view *view)
{
    const int64_t *dim = view->shape.dim;
    const bool four = view->shape.rank == 4;
    const int64_t keys = dim[four ? 3 : 1], rows = four ? dim[2] : 1, heads = four ? dim[1] : 1;
    struct attention_mask mask = {view->data, dim[0] == 1 ? 0 : heads * rows * keys, heads == 1 ? 0 : rows * keys,
                                  rows == 1 ? 0 : keys, view->dtype == WEIR_U8};
    return mask;
}

/* The first element of a row of keys. */
FORMULA int64_t mask_row(const struct attention_mask *mask, int64_t batch, int64_t head, int64_t row)
{
    return batch * mask->batch + head * mask->head + row * mask->row;
}

/* Heads of queries that share a head of keys and values; 1 where there are none. */
FORMULA int64_t group_of(int64_t q_dim, int64_t k_dim)
{
    return k_dim && q_dim > k_dim ? q_dim / k_dim : 1;
}

/* The first key that a row sees. */
FORMULA int64_t key_from(int64_t window, int64_t row)
{
    return window && row >= window ? row - window + 1 : 0;
}

/* Keys that any of the queries before `end` sees, of `keys`. */
FORMULA int64_t keys_before(bool causal, int64_t keys, int64_t end)
{
    return causal && end < keys ? end : keys;
}

/* A gradient that repeats bit for bit has the library (cudnn.cu) write dS of so many sequences and heads at a time to the
 * workspace, `bytes` of them: at most FUSED_BYTES_MOST. No heads: one alone is more than that. */
struct attention_parts {
    int64_t batch, heads, bytes;
};

enum { FUSED_BYTES_MOST = 256 << 20, FUSED_BYTES_MORE = 4096, FUSED_ALIGNMENT = 256, FUSED_HEAD_MOST = 128 };

/* The most of `count` that divides it and takes no more than `most` of `each`. */
FORMULA int64_t share_of(int64_t count, int64_t each, int64_t most)
{
    int64_t share = most / each < count ? most / each : count;
    while (share > 0 && count % share)
        share--;
    return share;
}

FORMULA struct attention_parts parts_of(int64_t batch, int64_t heads, int64_t seq, int64_t keys)
{
    const int64_t one = (seq + 63) / 64 * 64 * ((keys + 127) / 128 * 128) * 2;
    struct attention_parts parts = {1, heads, 0};
    if (!one || !heads || !batch)
        return parts;
    if (heads * one <= FUSED_BYTES_MOST)
        parts.batch = share_of(batch, heads * one, FUSED_BYTES_MOST);
    else
        parts.heads = share_of(heads, one, FUSED_BYTES_MOST);
    parts.bytes = parts.batch * parts.heads * one;
    return parts;
}

#endif
