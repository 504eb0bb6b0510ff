/* kernels/attention/attention.h: what attention of f32 (attention.c) and of halves (half.c) share: the block of scores
 * in the workspace, who sees what, and the softmax over blocks, which is f32 in both. Header-only but for the kernels; any
 * thread.
 *
 * Keys that a row does not see are of two kinds. Those behind the last that it sees, of a causal call, are left out of each loop.
 * Those in front of a window, and those that a mask hides, get a score of -infinity (block_hide), of which exp is 0. A row that
 * sees no key has a result of 0, and a log-sum-exp of 0, under which its weights are 0 in the gradient as well.
 */
#ifndef KERNELS_ATTENTION_ATTENTION_H
#define KERNELS_ATTENTION_ATTENTION_H

#include "kernels/attention/formula.h"
#include "kernels/common/lanes.h"
#include "kernels/common/view.h"

#include <math.h>
#include <string.h>

#define QUERIES 64 /* rows of a block */
#define KEYS 256   /* columns of a block */

/* The kernels of f32, and of f16 and bf16, and their scratch bytes. Masked: attributes and inputs are those of such an op. */
weir_status attention_single(const weir_kernel_args *args, bool masked);
weir_status attention_grad_single(const weir_kernel_args *args, bool masked);
size_t attention_single_workspace(int64_t head_dim, bool gradient);
weir_status attention_half(const weir_kernel_args *args, bool masked);
weir_status attention_grad_half(const weir_kernel_args *args, bool masked);
size_t attention_half_workspace(const weir_op_args *args, bool gradient);

static inline int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Sizes that do not change within a call. */
typedef struct attention_call {
    int64_t batch, heads, kv_heads, group, seq, keys, dim, kv_dim, head_dim, window;
    float scale;
    bool causal, hides; /* hides: there is a window or a mask */
    struct attention_mask mask;
    float *scores; /* QUERIES x KEYS; the gradient of f32 has another block behind it */
    void *product; /* of f32: for gemm(), behind them */
} attention_call;

static inline attention_call call_of(const weir_kernel_args *args, bool masked)
{
    const struct attention_attrs *attrs = args->attrs;
    const weir_shape *q = &args->in[0].shape, *k = &args->in[1].shape;
    attention_call call = {
        .batch = q->dim[0],
        .heads = q->dim[2] / attrs->head_dim,
        .kv_heads = k->dim[2] / attrs->head_dim,
        .group = group_of(q->dim[2], k->dim[2]),
        .seq = q->dim[1],
        .keys = k->dim[1],
        .dim = q->dim[2],
        .kv_dim = k->dim[2],
        .head_dim = attrs->head_dim,
        .scale = (float)attrs->scale,
        .causal = attrs->causal,
        .scores = args->workspace,
    };
    if (masked) {
        call.window = ((const struct attention_masked_attrs *)attrs)->window;
        if (args->in_count == 4 || args->in_count == 7)
            call.mask = mask_of(&args->in[args->in_count - 1]);
        call.hides = call.window || call.mask.at;
    }
    return call;
}

/* Where a block lies in scores: queries [query, query + rows), keys [key, key + columns). `from`: the first key of the first block
 * for these queries. `mask`: of the head's first row. */
typedef struct block {
    int64_t query, rows, key, columns, from, mask;
} block;

/* The row of blocks that begins at `query` of a head; its first block is where the window of the first row begins. */
static inline block block_of(const attention_call *call, int64_t batch, int64_t head, int64_t query)
{
    const int64_t from = key_from(call->window, query), last = call->keys - 1;
    block at = {.query = query, .rows = least(QUERIES, call->seq - query), .from = least(from, last) / KEYS * KEYS};
    at.key = at.from;
    at.mask = mask_row(&call->mask, batch, head, 0);
    return at;
}

/* Keys that any of the queries up to `end` sees. */
static inline int64_t keys_seen(const attention_call *call, int64_t end)
{
    return keys_before(call->causal, call->keys, end);
}

static inline int64_t columns_seen(const attention_call *call, const block *at, int64_t row)
{
    int64_t seen = keys_seen(call, at->query + row + 1) - at->key;
    return seen < 0 ? 0 : least(seen, at->columns);
}

/* Adds a mask to scores, or hides those where it is 0. */
static inline void row_mask(const struct attention_mask *mask, int64_t first, float *x, int64_t count)
{
    const uint8_t *sees = (const uint8_t *)mask->at + first;
    const float *bias = (const float *)mask->at + first;
    if (mask->bytes)
        for (int64_t i = 0; i < count; i++)
            x[i] = sees[i] ? x[i] : -INFINITY;
    else
        for (int64_t i = 0; i < count; i++)
            x[i] += bias[i];
}

/* The window and the mask, for the block's scores. */
static inline void block_hide(const attention_call *call, const block *at)
{
    for (int64_t i = 0; i < at->rows && call->hides; i++) {
        const int64_t seen = columns_seen(call, at, i), row = at->query + i, before = key_from(call->window, row) - at->key;
        float *x = call->scores + i * KEYS;
        for (int64_t j = 0; j < before && j < seen; j++)
            x[j] = -INFINITY;
        if (call->mask.at)
            row_mask(&call->mask, at->mask + row * call->mask.row + at->key, x, seen);
    }
}

static inline void row_scale(float *x, int64_t count, float by)
{
    for (int64_t i = 0; i < count; i++)
        x[i] *= by;
}

/* x = exp(x - shift) for the first `seen` of `columns` elements, 0 for the others. */
static inline void row_exp(float *x, int64_t seen, int64_t columns, float shift)
{
    FAST_LOOP
    for (int64_t i = 0; i < seen; i++)
        x[i] = fast_exp(x[i] - shift);
    if (seen < columns)
        memset(x + seen, 0, (size_t)(columns - seen) * sizeof *x);
}

/* The softmax of a row so far: the largest score, the sum of exp(score - most), and the sum of values weighted so. */
typedef struct softmax_row {
    float *most, *total, *out;
} softmax_row;

/* The number that is subtracted from scores: the largest, unless all so far are hidden. */
static inline float softmax_shift(const attention_call *call, float most)
{
    return call->hides && most == -INFINITY ? 0 : most;
}

/* The row's result, and its log-sum-exp. */
static inline float softmax_end(const attention_call *call, float most, float total, float *out)
{
    const bool none = call->hides && total == 0;
    row_scale(out, call->head_dim, none ? 0 : 1 / total);
    return none ? 0 : most + logf(total);
}

/* Takes `largest` for the maximum if it is larger, and brings what was summed under an older one to the same scale. */
static inline void softmax_raise(const attention_call *call, const softmax_row *row, float largest, bool first)
{
    if (first) {
        *row->most = largest;
        *row->total = 0;
    } else if (largest > *row->most) {
        float shrink = fast_exp(*row->most - largest);
        *row->most = largest;
        *row->total *= shrink;
        row_scale(row->out, call->head_dim, shrink);
    }
}

/* Turns the block's scores into exp(score - most), with the largest score that each row has seen up to this block.
 * `out` is the first of the rows that are summed, `step` apart. */
static inline void block_softmax(const attention_call *call, const block *at, float *most, float *total, float *out,
                                 int64_t step)
{
    for (int64_t i = 0; i < at->rows; i++) {
        const softmax_row row = {most + i, total + i, out + i * step};
        const int64_t seen = columns_seen(call, at, i);
        float *x = call->scores + i * KEYS;
        if (seen > 0)
            softmax_raise(call, &row, row_max(x, seen), at->key == at->from);
        row_exp(x, seen, at->columns, softmax_shift(call, *row.most));
        *row.total += row_sum(x, seen);
    }
}

/* From scores and dP: P and dS, in their places. */
static inline void block_softmax_grad(const attention_call *call, const block *at, const float *lse, const float *delta,
                                      float *dp)
{
    const float scale = call->scale;
    for (int64_t row = 0; row < at->rows; row++) {
        float *restrict p = call->scores + row * KEYS, *restrict ds = dp + row * KEYS;
        row_exp(p, columns_seen(call, at, row), at->columns, lse[at->query + row]);
        for (int64_t i = 0; i < at->columns; i++)
            ds[i] = scale * p[i] * (ds[i] - delta[row]);
    }
}

#endif
