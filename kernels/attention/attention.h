/* kernels/attention/attention.h: what attention of f32 (attention.c) and of halves (half.c) share: the block of scores
 * in the workspace, who sees what, and the softmax over blocks, which is f32 in both. Header-only but for what half.c
 * gives; any thread.
 */
#ifndef KERNELS_ATTENTION_ATTENTION_H
#define KERNELS_ATTENTION_ATTENTION_H

#include "kernels/attention/formula.h"
#include "kernels/common/lanes.h"
#include "kernels/common/view.h"

#define QUERIES 64 /* rows of a block */
#define KEYS 256   /* columns of a block */

/* The kernels of f16 and bf16, and their scratch bytes. */
weir_status attention_half(const weir_kernel_args *args);
weir_status attention_grad_half(const weir_kernel_args *args);
size_t attention_half_workspace(const weir_op_args *args, bool gradient);

static inline int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Sizes that do not change within a call. */
typedef struct attention_call {
    int64_t batch, heads, seq, keys, dim, head_dim;
    float scale;
    bool causal;
    float *scores; /* QUERIES x KEYS; the gradient of f32 has another block behind it */
    void *product; /* of f32: for gemm(), behind them */
} attention_call;

static inline attention_call call_of(const weir_kernel_args *args)
{
    const struct attention_attrs *attrs = args->attrs;
    const weir_shape *q = &args->in[0].shape;
    return (attention_call){
        .batch = q->dim[0],
        .heads = q->dim[2] / attrs->head_dim,
        .seq = q->dim[1],
        .keys = args->in[1].shape.dim[1],
        .dim = q->dim[2],
        .head_dim = attrs->head_dim,
        .scale = (float)attrs->scale,
        .causal = attrs->causal,
        .scores = args->workspace,
    };
}

/* Where a block lies in scores: queries [query, query + rows), keys [key, key + columns). */
typedef struct block {
    int64_t query, rows, key, columns;
} block;

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
            softmax_raise(call, &row, row_max(x, seen), at->key == 0);
        row_exp(x, seen, at->columns, *row.most);
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
