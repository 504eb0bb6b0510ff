/* kernels/attention/formula.h: what the ops of attention are told, how many keys a query sees, and in how many parts a
 * library makes a gradient; for all kinds of devices. Any thread. */
#ifndef KERNELS_ATTENTION_FORMULA_H
#define KERNELS_ATTENTION_FORMULA_H

#include "kernels/elementwise/fastmath.h"

#include <stdbool.h>

struct attention_attrs {
    int64_t head_dim;
    int64_t causal;
    double scale;
};

struct kept_attrs {
    int64_t head_dim;
    double scale;
};

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
