/* kernels/attention/attention.c: softmax(scale q k^T) v per head, in blocks, and its gradient; op.c has the rules.
 *
 *     q [batch, seq, dim]   k, v [batch, keys, kv_dim]   ->   out [batch, seq, dim], lse [batch, heads, seq]
 *
 * A head is a slice of head_dim columns, so it is a matrix with the leading dimension dim, and every product below
 * is a gemm on the tensors where they lie: nothing is transposed or gathered.
 *
 *                 keys -->
 *     queries   [ block ][ block ]        a block is QUERIES x KEYS scores, in the workspace; it fits in the
 * second-level
 *               [ block ][ block ]        cache together with its keys and values. seq x keys never exists as a
 * whole.
 *
 * Forward, for each row of blocks: softmax over a row is done block by block, with the largest score so far and the
 * sum so far (Milakov and Gimelshein 2018, arXiv:1805.02867; Dao et al. 2022, arXiv:2205.14135, algorithm 1). When a
 * block raises the maximum, what has been summed is scaled down. A row's log-sum-exp is kept for the backward pass.
 *
 * Backward, for each block (algorithm 4 there): the probabilities come back from scores and lse, without a softmax:
 *
 *     P = exp(scale q k^T - lse)     dP = do v^T     dS = scale P (dP - delta),  delta = row sums of do * out
 *     dv += P^T do                   dq += dS k      dk += dS^T q
 *
 * dim is kv_dim, or some times that: then so many neighbouring heads of q, a group, share a head of k and v (Ainslie et al. 2023,
 * arXiv:2305.13245). The heads of a group follow each other, so k and v are still in the cache; dk and dv are sums over the group.
 *
 * Causal: query i sees keys 0..i. Blocks above the diagonal are skipped, and a block is cut at the last key that any
 * of its rows sees; within it the scores that a row does not see count as 0. A window: blocks in front of that of the first row of
 * queries are skipped. See attention.h.
 *
 * q, k, v, out and their gradients may be f16 or bf16 (half.c); lse is f32.
 *
 * The number of heads is not an attribute: a shard that holds some of the heads has a smaller dim and the same
 * head_dim.
 */
#include "kernels/attention/attention.h"

#include "kernels/matmul/gemm.h"

/* ---- one head ---- */

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Blocks of scores; behind them what the products need. */
size_t attention_single_workspace(int64_t head_dim, bool gradient)
{
    const size_t scores = QUERIES * KEYS * sizeof(float);
    const size_t forward = scores + larger(gemm_workspace(false, true, QUERIES, KEYS, head_dim),
                                          gemm_workspace(false, false, QUERIES, head_dim, KEYS));
    return gradient ? scores + larger(forward, scores + gemm_workspace(true, false, KEYS, head_dim, QUERIES)) : forward;
}

/* `blocks` of scores lie before what gemm() needs. */
static attention_call call_with(const weir_kernel_args *args, bool masked, int blocks)
{
    attention_call call = call_of(args, masked);
    call.product = call.scores + (ptrdiff_t)blocks * QUERIES * KEYS;
    return call;
}

/* scores = scale q k^T of the block, as its rows see them */
static void block_scores(const attention_call *call, const block *at, const float *q, const float *k)
{
    gemm(false, true, at->rows, at->columns, call->head_dim, call->scale, q + at->query * call->dim, call->dim,
         k + at->key * call->kv_dim, call->kv_dim, 0, call->scores, KEYS, call->product);
    block_hide(call, at);
}

/* One row of blocks of one head. */
static void head_forward(const attention_call *call, block at, const float *q, const float *k, const float *v, float *out,
                         float *lse)
{
    float most[QUERIES] = {0}, total[QUERIES] = {0};
    const int64_t keys = keys_seen(call, at.query + at.rows);
    float *rows = out + at.query * call->dim;

    for (; at.key < keys; at.key += KEYS) {
        at.columns = least(KEYS, keys - at.key);
        block_scores(call, &at, q, k);
        block_softmax(call, &at, most, total, rows, call->dim);
        gemm(false, false, at.rows, call->head_dim, at.columns, 1, call->scores, KEYS, v + at.key * call->kv_dim,
             call->kv_dim, at.key > at.from, rows, call->dim, call->product);
    }
    for (int64_t row = 0; row < at.rows; row++)
        lse[at.query + row] = softmax_end(call, most[row], total[row], rows + row * call->dim);
}

weir_status attention_single(const weir_kernel_args *args, bool masked)
{
    const attention_call call = call_with(args, masked, 1);
    for (int64_t i = 0; i < call.batch * call.heads; i++) {
        const int64_t batch = i / call.heads, head = i % call.heads;
        const int64_t q = batch * call.seq * call.dim + head * call.head_dim;
        const int64_t k = batch * call.keys * call.kv_dim + head / call.group * call.head_dim;
        for (int64_t query = 0; query < call.seq; query += QUERIES)
            head_forward(&call, block_of(&call, batch, head, query), view_f32(&args->in[0]) + q, view_f32(&args->in[1]) + k,
                         view_f32(&args->in[2]) + k, view_f32(&args->out[0]) + q,
                         view_f32(&args->out[1]) + i * call.seq);
    }
    return WEIR_OK;
}

/* ---- the gradient ---- */

/* One head's matrices. */
typedef struct attention_head {
    const float *q, *k, *v, *out, *lse, *dout;
    float *dq, *dk, *dv;
} attention_head;

static void block_backward(const attention_call *call, const attention_head *head, const block *at,
                           const float *delta)
{
    const int64_t dim = call->dim, kv_dim = call->kv_dim, width = call->head_dim, rows = at->rows, columns = at->columns;
    const float *q = head->q + at->query * dim, *dout = head->dout + at->query * dim;
    const float *k = head->k + at->key * kv_dim, *v = head->v + at->key * kv_dim;
    float *dq = head->dq + at->query * dim, *dk = head->dk + at->key * kv_dim, *dv = head->dv + at->key * kv_dim;
    float *p = call->scores, *ds = p + QUERIES * KEYS;

    block_scores(call, at, head->q, head->k);
    gemm(false, true, rows, columns, width, 1, dout, dim, v, kv_dim, 0, ds, KEYS, call->product);
    block_softmax_grad(call, at, head->lse, delta, ds);
    gemm(true, false, columns, width, rows, 1, p, KEYS, dout, dim, 1, dv, kv_dim, call->product);
    gemm(true, false, columns, width, rows, 1, ds, KEYS, q, dim, 1, dk, kv_dim, call->product);
    gemm(false, false, rows, width, columns, 1, ds, KEYS, k, kv_dim, at->key > at->from, dq, dim, call->product);
}

/* One row of blocks of one head. */
static void head_backward(const attention_call *call, const attention_head *head, block at)
{
    float delta[QUERIES];
    const int64_t keys = keys_seen(call, at.query + at.rows);
    for (int64_t row = at.query; row < at.query + at.rows; row++)
        delta[row - at.query] = row_dot(head->dout + row * call->dim, head->out + row * call->dim, call->head_dim);
    for (; at.key < keys; at.key += KEYS) {
        at.columns = least(KEYS, keys - at.key);
        block_backward(call, head, &at, delta);
    }
}

static void clear_rows(const attention_call *call, float *rows)
{
    for (int64_t key = 0; key < call->keys; key++)
        memset(rows + key * call->kv_dim, 0, (size_t)call->head_dim * sizeof *rows);
}

/* Head `head` of queries of a sequence; the first of each group clears what the group adds to. */
static void one_backward(const attention_call *call, const weir_kernel_args *args, int64_t batch, int64_t head)
{
    const int64_t q = batch * call->seq * call->dim + head * call->head_dim;
    const int64_t k = batch * call->keys * call->kv_dim + head / call->group * call->head_dim;
    const attention_head at = {
        .q = view_f32(&args->in[0]) + q,
        .k = view_f32(&args->in[1]) + k,
        .v = view_f32(&args->in[2]) + k,
        .out = view_f32(&args->in[3]) + q,
        .lse = view_f32(&args->in[4]) + (batch * call->heads + head) * call->seq,
        .dout = view_f32(&args->in[5]) + q,
        .dq = view_f32(&args->out[0]) + q,
        .dk = view_f32(&args->out[1]) + k,
        .dv = view_f32(&args->out[2]) + k,
    };
    if (head % call->group == 0) {
        clear_rows(call, at.dk);
        clear_rows(call, at.dv);
    }
    for (int64_t query = 0; query < call->seq; query += QUERIES)
        head_backward(call, &at, block_of(call, batch, head, query));
}

weir_status attention_grad_single(const weir_kernel_args *args, bool masked)
{
    const attention_call call = call_with(args, masked, 2);
    for (int64_t i = 0; i < call.batch * call.heads; i++)
        one_backward(&call, args, i / call.heads, i % call.heads);
    return WEIR_OK;
}
