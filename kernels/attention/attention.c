/* kernels/attention/attention.c: softmax(scale q k^T) v per head, in blocks, and its gradient.
 *
 *     q [batch, seq, dim]   k, v [batch, keys, dim]   ->   out [batch, seq, dim], lse [batch, heads, seq]
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
 * Causal: query i sees keys 0..i. Blocks above the diagonal are skipped, and a block is cut at the last key that any
 * of its rows sees; within it the scores that a row does not see count as 0.
 *
 * q, k, v, out and their gradients may be f16 or bf16 (half.c); lse is f32.
 *
 * The number of heads is not an attribute: a shard that holds some of the heads has a smaller dim and the same
 * head_dim.
 */
#include "kernels/attention/attention.h"

#include "kernels/matmul/gemm.h"
#include "kernels/common/ops.h"
#include "kernels/common/opts.h"

#include <math.h>
#include <string.h>
#include <weir/ops.h>

static const weir_field attention_fields[] = {
    WEIR_FIELD_INT(struct attention_attrs, head_dim),
    WEIR_FIELD_INT(struct attention_attrs, causal),
    WEIR_FIELD_REAL(struct attention_attrs, scale),
};
#define ATTENTION_FIELDS .fields = attention_fields, .field_count = 3, .attrs_bytes = sizeof(struct attention_attrs)

/* ---- rules ---- */

static weir_type lse_type(const weir_type *q, int64_t head_dim)
{
    return (weir_type){WEIR_F32, {3, {q->shape.dim[0], q->shape.dim[2] / head_dim, q->shape.dim[1]}}};
}

static bool attention_inputs(const weir_op_args *args, char *error, size_t error_bytes)
{
    const struct attention_attrs *attrs = args->attrs;
    const weir_shape *q = &args->in[0].shape, *k = &args->in[1].shape;
    for (int i = 0; i < 3; i++)
        if (!weir_dtype_real(args->in[i].dtype) || args->in[i].shape.rank != 3)
            return REFUSE("%c is %s with %d dimensions; it needs to be f32, f16 or bf16 with three", "qkv"[i],
                          weir_dtype_name(args->in[i].dtype), args->in[i].shape.rank);
    if (args->in[1].dtype != args->in[0].dtype || args->in[2].dtype != args->in[0].dtype)
        return REFUSE("q, k and v are of different dtypes");
    if (!weir_shape_equal(k, &args->in[2].shape))
        return REFUSE("the shapes of k and v differ");
    if (q->dim[0] != k->dim[0] || q->dim[2] != k->dim[2])
        return REFUSE("batch and dim of q, %lld and %lld, and of k, %lld and %lld, differ", (long long)q->dim[0],
                      (long long)q->dim[2], (long long)k->dim[0], (long long)k->dim[2]);
    if (k->dim[1] < 1)
        return REFUSE("there are no keys");
    if (attrs->head_dim < 1 || q->dim[2] % attrs->head_dim)
        return REFUSE("dim %lld does not consist of heads of %lld", (long long)q->dim[2], (long long)attrs->head_dim);
    return true;
}

static bool attention_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    const struct attention_attrs *attrs = args->attrs;
    if (!attention_inputs(args, error, error_bytes))
        return false;
    args->out[0] = args->in[0];
    args->out[1] = lse_type(&args->in[0], attrs->head_dim);
    return true;
}

/* q, k, v and the output are split alike, over the batch or over heads; lse has its heads in dimension 1. */
static void attention_signatures(const weir_op_args *args, weir_signature_list *list)
{
    const struct attention_attrs *attrs = args->attrs;
    weir_signature *batch = weir_signature_new(list), *heads = weir_signature_new(list);
    for (int i = 0; i < 3; i++) {
        batch->in[i] = WEIR_S(0);
        heads->in[i] = WEIR_S(2);
    }
    batch->out[0] = batch->out[1] = WEIR_S(0);
    heads->out[0] = WEIR_S(2);
    heads->out[1] = WEIR_S(1);
    heads->granules = args->in[0].shape.dim[2] / attrs->head_dim;
}

/* Pairs of a query and a key that it sees, over the batch; times dim and 2, the operations of one product. */
static double pairs(const weir_op_args *args)
{
    const struct attention_attrs *attrs = args->attrs;
    double seq = (double)args->in[0].shape.dim[1], keys = (double)args->in[1].shape.dim[1], seen = seq * keys;
    if (attrs->causal)
        seen = seq <= keys ? seq * (seq + 1) / 2 : keys * (keys + 1) / 2 + (seq - keys) * keys;
    return seen * (double)args->in[0].shape.dim[0];
}

static void attention_cost(const weir_op_args *args, weir_cost *cost)
{
    cost->flops = 2 * 2 * pairs(args) * (double)args->in[0].shape.dim[2];
    cost->bytes = 2.0 * (double)(type_bytes(&args->in[0]) + type_bytes(&args->in[1]));
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Whether a library may make it on a CUDA device (cudnn.cu). */
static bool may_be_fused(const weir_op_args *args)
{
    const int64_t width = ((const struct attention_attrs *)args->attrs)->head_dim;
    return args->in[0].dtype != WEIR_F32 && width % 8 == 0 && width <= FUSED_HEAD_MOST;
}

/* A block of scores; behind it what the products need. */
static size_t attention_workspace(const weir_op_args *args, weir_device_kind kind)
{
    const int64_t width = ((const struct attention_attrs *)args->attrs)->head_dim;
    if (kind == WEIR_CUDA)
        return may_be_fused(args) ? FUSED_ALIGNMENT + FUSED_BYTES_MORE : 0;
    if (args->in[0].dtype != WEIR_F32)
        return attention_half_workspace(args, false);
    return QUERIES * KEYS * sizeof(float) + larger(gemm_workspace(false, true, QUERIES, KEYS, width),
                                                   gemm_workspace(false, false, QUERIES, width, KEYS));
}

/* q, k, v, out, lse, dout -> dq, dk, dv */
static bool attention_grad_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    const struct attention_attrs *attrs = args->attrs;
    if (!attention_inputs(args, error, error_bytes))
        return false;
    weir_type lse = lse_type(&args->in[0], attrs->head_dim);
    for (int i = 3; i < 6; i++) {
        const weir_dtype wanted = i == 4 ? WEIR_F32 : args->in[0].dtype;
        if (args->in[i].dtype != wanted)
            return REFUSE("input %d is %s, not %s", i, weir_dtype_name(args->in[i].dtype), weir_dtype_name(wanted));
    }
    if (!weir_shape_equal(&args->in[4].shape, &lse.shape))
        return REFUSE("lse does not have one value per row and head");
    if (!weir_shape_equal(&args->in[3].shape, &args->in[0].shape) ||
        !weir_shape_equal(&args->in[5].shape, &args->in[0].shape))
        return REFUSE("the shapes of q, the output and its gradient differ");
    for (int i = 0; i < 3; i++)
        args->out[i] = args->in[i];
    return true;
}

static void attention_grad_signatures(const weir_op_args *args, weir_signature_list *list)
{
    const struct attention_attrs *attrs = args->attrs;
    weir_signature *batch = weir_signature_new(list), *heads = weir_signature_new(list);
    for (int i = 0; i < 6; i++) {
        batch->in[i] = WEIR_S(0);
        heads->in[i] = i == 4 ? WEIR_S(1) : WEIR_S(2);
    }
    for (int i = 0; i < 3; i++) {
        batch->out[i] = WEIR_S(0);
        heads->out[i] = WEIR_S(2);
    }
    heads->granules = args->in[0].shape.dim[2] / attrs->head_dim;
}

static void attention_grad_cost(const weir_op_args *args, weir_cost *cost)
{
    cost->flops = 2 * 5 * pairs(args) * (double)args->in[0].shape.dim[2];
    cost->bytes = 4.0 * (double)(type_bytes(&args->in[0]) + type_bytes(&args->in[1]));
}

/* On a CUDA device: a sum for each row of a head; behind them what a library may need. */
static size_t gradient_room(const weir_op_args *args)
{
    const int64_t *lse = args->in[4].shape.dim;
    const size_t sums = (size_t)weir_shape_count(&args->in[4].shape) * sizeof(float);
    if (!may_be_fused(args))
        return sums;
    return 2 * FUSED_ALIGNMENT + sums + FUSED_BYTES_MORE +
           (size_t)parts_of(lse[0], lse[1], lse[2], args->in[1].shape.dim[1]).bytes;
}

static size_t attention_grad_workspace(const weir_op_args *args, weir_device_kind kind)
{
    const int64_t width = ((const struct attention_attrs *)args->attrs)->head_dim;
    if (kind == WEIR_CUDA)
        return gradient_room(args);
    if (args->in[0].dtype != WEIR_F32)
        return attention_half_workspace(args, true);
    return QUERIES * KEYS * sizeof(float) +
           larger(attention_workspace(args, kind),
                  QUERIES * KEYS * sizeof(float) + gemm_workspace(true, false, KEYS, width, QUERIES));
}

/* ---- one head ---- */

/* `blocks` of scores lie before what gemm() needs. */
static attention_call call_with(const weir_kernel_args *args, int blocks)
{
    attention_call call = call_of(args);
    call.product = call.scores + (ptrdiff_t)blocks * QUERIES * KEYS;
    return call;
}

/* scores = scale q k^T of the block */
static void block_scores(const attention_call *call, const block *at, const float *q, const float *k)
{
    gemm(false, true, at->rows, at->columns, call->head_dim, call->scale, q + at->query * call->dim, call->dim,
         k + at->key * call->dim, call->dim, 0, call->scores, KEYS, call->product);
}

/* One row of blocks: queries [query, query + rows) of one head. */
static void head_forward(const attention_call *call, int64_t query, const float *q, const float *k, const float *v,
                         float *out, float *lse)
{
    float most[QUERIES] = {0}, total[QUERIES] = {0};
    block at = {.query = query, .rows = least(QUERIES, call->seq - query)};
    const int64_t keys = keys_seen(call, query + at.rows);

    for (at.key = 0; at.key < keys; at.key += KEYS) {
        at.columns = least(KEYS, keys - at.key);
        block_scores(call, &at, q, k);
        block_softmax(call, &at, most, total, out + query * call->dim, call->dim);
        gemm(false, false, at.rows, call->head_dim, at.columns, 1, call->scores, KEYS, v + at.key * call->dim,
             call->dim, at.key > 0, out + query * call->dim, call->dim, call->product);
    }
    for (int64_t row = 0; row < at.rows; row++) {
        row_scale(out + (query + row) * call->dim, call->head_dim, 1 / total[row]);
        lse[query + row] = most[row] + logf(total[row]);
    }
}

static weir_status attention_cpu(const weir_kernel_args *args)
{
    if (args->in[0].dtype != WEIR_F32)
        return attention_half(args);
    const attention_call call = call_with(args, 1);
    for (int64_t i = 0; i < call.batch * call.heads; i++) {
        const int64_t batch = i / call.heads, column = i % call.heads * call.head_dim;
        const int64_t q = batch * call.seq * call.dim + column, k = batch * call.keys * call.dim + column;
        for (int64_t query = 0; query < call.seq; query += QUERIES)
            head_forward(&call, query, view_f32(&args->in[0]) + q, view_f32(&args->in[1]) + k,
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
    const int64_t dim = call->dim, width = call->head_dim, rows = at->rows, columns = at->columns;
    const float *q = head->q + at->query * dim, *dout = head->dout + at->query * dim;
    const float *k = head->k + at->key * dim, *v = head->v + at->key * dim;
    float *dq = head->dq + at->query * dim, *dk = head->dk + at->key * dim, *dv = head->dv + at->key * dim;
    float *p = call->scores, *ds = p + QUERIES * KEYS;

    block_scores(call, at, head->q, head->k);
    gemm(false, true, rows, columns, width, 1, dout, dim, v, dim, 0, ds, KEYS, call->product);
    block_softmax_grad(call, at, head->lse, delta, ds);
    gemm(true, false, columns, width, rows, 1, p, KEYS, dout, dim, 1, dv, dim, call->product);
    gemm(true, false, columns, width, rows, 1, ds, KEYS, q, dim, 1, dk, dim, call->product);
    gemm(false, false, rows, width, columns, 1, ds, KEYS, k, dim, at->key > 0, dq, dim, call->product);
}

static void head_backward(const attention_call *call, const attention_head *head)
{
    for (int64_t key = 0; key < call->keys; key++) {
        memset(head->dk + key * call->dim, 0, (size_t)call->head_dim * sizeof *head->dk);
        memset(head->dv + key * call->dim, 0, (size_t)call->head_dim * sizeof *head->dv);
    }
    for (int64_t query = 0; query < call->seq; query += QUERIES) {
        float delta[QUERIES];
        block at = {.query = query, .rows = least(QUERIES, call->seq - query)};
        const int64_t keys = keys_seen(call, query + at.rows);
        for (int64_t row = query; row < query + at.rows; row++)
            delta[row - query] = row_dot(head->dout + row * call->dim, head->out + row * call->dim, call->head_dim);
        for (at.key = 0; at.key < keys; at.key += KEYS) {
            at.columns = least(KEYS, keys - at.key);
            block_backward(call, head, &at, delta);
        }
    }
}

static weir_status attention_grad_cpu(const weir_kernel_args *args)
{
    if (args->in[0].dtype != WEIR_F32)
        return attention_grad_half(args);
    const attention_call call = call_with(args, 2);
    for (int64_t i = 0; i < call.batch * call.heads; i++) {
        const int64_t batch = i / call.heads, column = i % call.heads * call.head_dim;
        const int64_t q = batch * call.seq * call.dim + column, k = batch * call.keys * call.dim + column;
        const attention_head head = {
            .q = view_f32(&args->in[0]) + q,
            .k = view_f32(&args->in[1]) + k,
            .v = view_f32(&args->in[2]) + k,
            .out = view_f32(&args->in[3]) + q,
            .lse = view_f32(&args->in[4]) + i * call.seq,
            .dout = view_f32(&args->in[5]) + q,
            .dq = view_f32(&args->out[0]) + q,
            .dk = view_f32(&args->out[1]) + k,
            .dv = view_f32(&args->out[2]) + k,
        };
        head_backward(&call, &head);
    }
    return WEIR_OK;
}

static void attention_backward(weir_grad_args *args)
{
    weir_tensor *in[6] = {args->in[0], args->in[1], args->in[2], args->out[0], args->out[1], args->dout[0]}, *d[3];
    weir_op_apply(&(weir_apply){args->src, NULL, &op_attention_grad, NULL, in, 6, args->attrs}, d);
    for (int i = 0; i < 3; i++)
        if (args->needed[i])
            args->din[i] = d[i];
}

const weir_op op_attention = {
    .name = "attention",
    ATTENTION_FIELDS,
    .in_min = 3,
    .in_max = 3,
    .out_count = 2,
    .infer = attention_infer,
    .signatures = attention_signatures,
    .grad = attention_backward,
    .cost = attention_cost,
    .workspace = attention_workspace,
    .kernel = {[WEIR_CPU] = attention_cpu},
    .half = WEIR_HALF_WANT,
};

const weir_op op_attention_grad = {
    .name = "attention_grad",
    ATTENTION_FIELDS,
    .in_min = 6,
    .in_max = 6,
    .out_count = 3,
    .infer = attention_grad_infer,
    .signatures = attention_grad_signatures,
    .cost = attention_grad_cost,
    .workspace = attention_grad_workspace,
    .kernel = {[WEIR_CPU] = attention_grad_cpu},
    .half = WEIR_HALF_WANT,
    .full_in = 1 << 4,
};

/* ---- the DSL ---- */

weir_tensor *weir_attention_at(weir_tensor *q, weir_tensor *k, weir_tensor *v, const weir_attention_opts *given)
{
    weir_attention_opts opts;
    q = op_opts(q, "attention", given, &opts, sizeof opts);
    int64_t heads = opts.heads ? opts.heads : 1;
    weir_type type = weir_tensor_type(q);
    int64_t dim = shape_last(&type.shape);
    if (!weir_tensor_poisoned(q) && (heads < 1 || dim % heads || dim < heads))
        return weir_mistake(q, opts.src, "attention: %lld heads do not divide dim %lld", (long long)heads,
                            (long long)dim);
    struct attention_attrs attrs = {.head_dim = dim / heads, .causal = opts.causal};
    attrs.scale = weir_option(opts.scale, 1 / sqrt((double)attrs.head_dim));
    weir_tensor *in[3] = {q, k, v};
    return weir_op_apply(&(weir_apply){opts.src, opts.name, &op_attention, NULL, in, 3, &attrs}, NULL);
}
