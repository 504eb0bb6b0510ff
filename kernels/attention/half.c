/* kernels/attention/half.c: attention of f16 and bf16, in the blocks of attention.c.
 *
 * Products take halves and sum in f32 (kernels/matmul/half.h); the softmax, its statistics and what is summed over
 * blocks are f32. The weights P and their gradient dS are rounded to halves for the products that they are factors of.
 *
 *     of a head, packed once, for each block of keys     forward: k^T, v       backward: k^T, v^T, k
 *     of a block of queries, packed once                 backward: q, do (they stand on the right of dS^T q, P^T do)
 *
 * The sums over blocks lie in the workspace as f32 (out and dq of a block of queries, dk and dv of a head) and are
 * rounded when they are complete.
 */
#include "kernels/attention/attention.h"

#include "kernels/matmul/half.h"

#include <assert.h>
#include <math.h>
#include <string.h>

typedef struct half_attention {
    attention_call call;
    weir_dtype dtype;
    float *dp;               /* QUERIES x KEYS, as call.scores; then dS */
    uint16_t *p, *ds;        /* the same, rounded */
    float *out;              /* QUERIES x head_dim: of what is summed over blocks of keys */
    float *dk, *dv;          /* keys x head_dim */
    float *rows;             /* two of head_dim */
    void *scratch;           /* of half_multiply() */
    char *k_across, *v, *k;  /* packed blocks of keys: k^T, v (backward: v^T), k */
    char *q_rows, *do_rows;  /* packed blocks of queries */
    size_t across_bytes, along_bytes;
} half_attention;

/* ---- the workspace ---- */

/* The next `bytes` of the workspace; NULL when only their number is asked for. */
static void *take(char *from, size_t *used, size_t bytes)
{
    void *at = from ? from + *used : NULL;
    *used += (bytes + 63) / 64 * 64;
    return at;
}

/* Lays everything out from `from` on; returns how many bytes that takes. */
static size_t lay_out(half_attention *h, char *from, bool gradient)
{
    const size_t width = (size_t)h->call.head_dim, square = QUERIES * KEYS;
    const size_t blocks = ((size_t)h->call.keys + KEYS - 1) / KEYS;
    size_t used = 0;
    h->across_bytes = half_packed_bytes(KEYS, h->call.head_dim);
    h->along_bytes = half_packed_bytes(h->call.head_dim, KEYS);
    h->call.scores = take(from, &used, square * sizeof(float));
    h->p = take(from, &used, square * sizeof(uint16_t));
    h->out = take(from, &used, QUERIES * width * sizeof(float));
    h->scratch = take(from, &used, half_rows_bytes(h->call.head_dim) + half_rows_bytes(KEYS));
    h->k_across = take(from, &used, blocks * h->across_bytes);
    h->v = take(from, &used, blocks * (gradient ? h->across_bytes : h->along_bytes));
    if (!gradient)
        return used;
    h->dp = take(from, &used, square * sizeof(float));
    h->ds = take(from, &used, square * sizeof(uint16_t));
    h->dk = take(from, &used, (size_t)h->call.keys * width * sizeof(float));
    h->dv = take(from, &used, (size_t)h->call.keys * width * sizeof(float));
    h->rows = take(from, &used, 2 * width * sizeof(float));
    h->k = take(from, &used, blocks * h->along_bytes);
    h->q_rows = take(from, &used, half_packed_bytes(h->call.head_dim, QUERIES));
    h->do_rows = take(from, &used, half_packed_bytes(h->call.head_dim, QUERIES));
    return used;
}

size_t attention_half_workspace(const weir_op_args *args, bool gradient)
{
    const struct attention_attrs *attrs = args->attrs;
    half_attention h = {.call = {.keys = args->in[1].shape.dim[1], .head_dim = attrs->head_dim}};
    return lay_out(&h, NULL, gradient);
}

static half_attention half_of(const weir_kernel_args *args, bool masked, bool gradient)
{
    half_attention h = {.call = call_of(args, masked), .dtype = args->in[0].dtype};
    assert(args->workspace);
    lay_out(&h, args->workspace, gradient);
    return h;
}

/* ---- packed blocks ---- */

/* Rows [first, first + count) of a head, as k^T (head_dim terms) or as they are (as many terms as there are rows). */
static half_packed packed(const half_attention *h, char *at, bool across, int64_t count)
{
    return across ? (half_packed){h->dtype, count, h->call.head_dim, at}
                  : (half_packed){h->dtype, h->call.head_dim, count, at};
}

static int64_t columns_of(const attention_call *call, int64_t key)
{
    return least(KEYS, call->keys - key);
}

static half_packed key_block(const half_attention *h, char *first, bool across, int64_t key)
{
    const size_t bytes = across ? h->across_bytes : h->along_bytes;
    return packed(h, first + (size_t)(key / KEYS) * bytes, across, columns_of(&h->call, key));
}

static void pack_keys(const half_attention *h, char *first, bool across, const uint16_t *from)
{
    for (int64_t key = 0; key < h->call.keys; key += KEYS) {
        const half_packed to = key_block(h, first, across, key);
        half_pack(&to, across, from + key * h->call.kv_dim, h->call.kv_dim);
    }
}

/* c [m, n] = alpha a b, or with `add` c +=; all sums f32. */
static void multiply(const half_attention *h, half_product p, const half_packed *b)
{
    p.dtype = h->dtype;
    p.c_dtype = WEIR_F32;
    p.workspace = h->scratch;
    half_multiply(&p, b);
}

/* scores (or dP) of a block: rows of a head, `a`, with the keys' (or values') */
static void multiply_across(const half_attention *h, const block *at, float alpha, const uint16_t *a, char *packed_keys,
                            float *to)
{
    const half_packed b = key_block(h, packed_keys, true, at->key);
    multiply(h, (half_product){.m = at->rows, .n = at->columns, .k = h->call.head_dim, .alpha = alpha,
                               .a = a + at->query * h->call.dim, .lda = h->call.dim, .c = to, .ldc = KEYS}, &b);
}

/* out += P v, dq += dS k: weights of a block with rows of keys or values */
static void multiply_along(const half_attention *h, const block *at, const uint16_t *weights, char *packed_keys)
{
    const half_packed b = key_block(h, packed_keys, false, at->key);
    multiply(h, (half_product){.m = at->rows, .n = h->call.head_dim, .k = at->columns, .a = weights, .lda = KEYS,
                               .c = h->out, .ldc = h->call.head_dim, .add = at->key > at->from}, &b);
}

/* dv += P^T do, dk += dS^T q */
static void multiply_back(const half_attention *h, const block *at, const uint16_t *weights, char *packed_rows,
                          float *to)
{
    const half_packed b = packed(h, packed_rows, false, at->rows);
    multiply(h, (half_product){.trans_a = true, .m = at->columns, .n = h->call.head_dim, .k = at->rows, .a = weights,
                               .lda = KEYS, .c = to + at->key * h->call.head_dim, .ldc = h->call.head_dim,
                               .add = true}, &b);
}

/* ---- rows of scores ----
 *
 * They are taken by whole vectors: behind what a row sees -infinity fills up the last one. Most rows of a causal block
 * would otherwise end with a loop over some elements, which took as long as all the vectors before it. */

/* Columns that the row sees, rounded up to whole vectors. */
static int64_t hide(const attention_call *call, const block *at, int64_t row, float *x)
{
    int64_t seen = columns_seen(call, at, row);
    for (; seen % LANES; seen++)
        x[seen] = -INFINITY;
    return seen;
}

/* For at least one vector. */
static float vectors_max(const float *x, int64_t count)
{
    lanes most = lanes_load(x);
    for (int64_t i = LANES; i < count; i += LANES)
        most = lanes_larger(lanes_load(x + i), most);
    return lanes_max(&most);
}

static void vectors_exp(float *x, int64_t count, float shift)
{
    for (int64_t i = 0; i < count; i += LANES)
        for (int l = 0; l < LANES; l++)
            x[i + l] = fast_exp(x[i + l] - shift);
}

/* The weights of a row, rounded, and zeros in the columns that it does not see. */
static void put_weights(const half_attention *h, const block *at, int64_t seen, const float *x, uint16_t *to)
{
    weir_from_f32(x, seen, h->dtype, to);
    if (seen < at->columns)
        memset(to + seen, 0, (size_t)(at->columns - seen) * sizeof *to);
}

/* ---- forward ---- */

/* Turns the block's scores into weights, as block_softmax() does, and rounds them. */
static void block_weights(const half_attention *h, const block *at, float *most, float *total)
{
    for (int64_t i = 0; i < at->rows; i++) {
        const softmax_row row = {most + i, total + i, h->out + i * h->call.head_dim};
        float *x = h->call.scores + i * KEYS;
        const int64_t seen = hide(&h->call, at, i, x);
        if (seen > 0)
            softmax_raise(&h->call, &row, vectors_max(x, seen), at->key == at->from);
        vectors_exp(x, seen, softmax_shift(&h->call, *row.most));
        *row.total += row_sum(x, seen);
        put_weights(h, at, seen, x, h->p + i * KEYS);
    }
}

/* One row of blocks of one head. */
static void head_forward(const half_attention *h, block at, const uint16_t *q, uint16_t *out, float *lse)
{
    const attention_call *call = &h->call;
    float most[QUERIES] = {0}, total[QUERIES] = {0};
    const int64_t keys = keys_seen(call, at.query + at.rows);
    for (; at.key < keys; at.key += KEYS) {
        at.columns = least(KEYS, keys - at.key);
        multiply_across(h, &at, call->scale, q, h->k_across, call->scores);
        block_hide(call, &at);
        block_weights(h, &at, most, total);
        multiply_along(h, &at, h->p, h->v);
    }
    for (int64_t row = 0; row < at.rows; row++) {
        lse[at.query + row] = softmax_end(call, most[row], total[row], h->out + row * call->head_dim);
        weir_from_f32(h->out + row * call->head_dim, call->head_dim, h->dtype, out + (at.query + row) * call->dim);
    }
}

weir_status attention_half(const weir_kernel_args *args, bool masked)
{
    const half_attention h = half_of(args, masked, false);
    const attention_call *call = &h.call;
    for (int64_t i = 0; i < call->batch * call->heads; i++) {
        const int64_t batch = i / call->heads, head = i % call->heads, q = batch * call->seq * call->dim + head * call->head_dim;
        const int64_t k = batch * call->keys * call->kv_dim + head / call->group * call->head_dim;
        if (head % call->group == 0) {
            pack_keys(&h, h.k_across, true, view_half(&args->in[1]) + k);
            pack_keys(&h, h.v, false, view_half(&args->in[2]) + k);
        }
        for (int64_t query = 0; query < call->seq; query += QUERIES)
            head_forward(&h, block_of(call, batch, head, query), view_half(&args->in[0]) + q, view_half(&args->out[0]) + q,
                         view_f32(&args->out[1]) + i * call->seq);
    }
    return WEIR_OK;
}

/* ---- the gradient ---- */

/* One head's matrices. */
typedef struct half_head {
    const uint16_t *q, *k, *v, *out, *dout;
    const float *lse;
    uint16_t *dq;
} half_head;

/* Row sums of do * out. */
static void block_delta(const half_attention *h, const half_head *head, const block *at, float *delta)
{
    const int64_t width = h->call.head_dim;
    for (int64_t row = 0; row < at->rows; row++) {
        const int64_t from = (at->query + row) * h->call.dim;
        weir_to_f32(h->dtype, head->dout + from, width, h->rows);
        weir_to_f32(h->dtype, head->out + from, width, h->rows + width);
        delta[row] = row_dot(h->rows, h->rows + width, width);
    }
}

/* From scores and dP: P and dS, rounded. */
static void block_gradient(const half_attention *h, const block *at, const float *lse, const float *delta)
{
    for (int64_t i = 0; i < at->rows; i++) {
        float *restrict p = h->call.scores + i * KEYS, *restrict ds = h->dp + i * KEYS;
        const int64_t seen = hide(&h->call, at, i, p);
        const float scale = h->call.scale, lower = delta[i];
        vectors_exp(p, seen, lse[at->query + i]);
        for (int64_t j = 0; j < seen; j++)
            ds[j] = scale * p[j] * (ds[j] - lower);
        put_weights(h, at, seen, p, h->p + i * KEYS);
        put_weights(h, at, seen, ds, h->ds + i * KEYS);
    }
}

static void block_backward(const half_attention *h, const half_head *head, const block *at, const float *delta)
{
    multiply_across(h, at, h->call.scale, head->q, h->k_across, h->call.scores);
    block_hide(&h->call, at);
    multiply_across(h, at, 1, head->dout, h->v, h->dp);
    block_gradient(h, at, head->lse, delta);
    multiply_back(h, at, h->p, h->do_rows, h->dv);
    multiply_back(h, at, h->ds, h->q_rows, h->dk);
    multiply_along(h, at, h->ds, h->k);
}

/* Rows of f32 without gaps to rows of the head. */
static void store_rows(const half_attention *h, const float *from, int64_t rows, uint16_t *to, int64_t dim)
{
    for (int64_t row = 0; row < rows; row++)
        weir_from_f32(from + row * h->call.head_dim, h->call.head_dim, h->dtype, to + row * dim);
}

/* One row of blocks. */
static void queries_backward(const half_attention *h, const half_head *head, block at)
{
    const attention_call *call = &h->call;
    const int64_t query = at.query;
    float delta[QUERIES];
    const half_packed q = packed(h, h->q_rows, false, at.rows), dout = packed(h, h->do_rows, false, at.rows);
    const int64_t keys = keys_seen(call, query + at.rows);
    half_pack(&q, false, head->q + query * call->dim, call->dim);
    half_pack(&dout, false, head->dout + query * call->dim, call->dim);
    block_delta(h, head, &at, delta);
    for (; at.key < keys; at.key += KEYS) {
        at.columns = least(KEYS, keys - at.key);
        block_backward(h, head, &at, delta);
    }
    store_rows(h, h->out, at.rows, head->dq + query * call->dim, call->dim);
}

/* All heads of a group begin with this. */
static void group_begin(const half_attention *h, const half_head *head)
{
    const size_t bytes = (size_t)(h->call.keys * h->call.head_dim) * sizeof(float);
    pack_keys(h, h->k_across, true, head->k);
    pack_keys(h, h->v, true, head->v);
    pack_keys(h, h->k, false, head->k);
    memset(h->dk, 0, bytes);
    memset(h->dv, 0, bytes);
}

/* Head `head` of queries of a sequence; the gradients of its keys and values are stored when the last of its group is added. */
static void one_backward(const half_attention *h, const weir_kernel_args *args, int64_t batch, int64_t head)
{
    const attention_call *call = &h->call;
    const int64_t q = batch * call->seq * call->dim + head * call->head_dim;
    const int64_t k = batch * call->keys * call->kv_dim + head / call->group * call->head_dim;
    const half_head at = {
        .q = view_half(&args->in[0]) + q,
        .k = view_half(&args->in[1]) + k,
        .v = view_half(&args->in[2]) + k,
        .out = view_half(&args->in[3]) + q,
        .dout = view_half(&args->in[5]) + q,
        .lse = view_f32(&args->in[4]) + (batch * call->heads + head) * call->seq,
        .dq = view_half(&args->out[0]) + q,
    };
    if (head % call->group == 0)
        group_begin(h, &at);
    for (int64_t query = 0; query < call->seq; query += QUERIES)
        queries_backward(h, &at, block_of(call, batch, head, query));
    if (head % call->group == call->group - 1) {
        store_rows(h, h->dk, call->keys, view_half(&args->out[1]) + k, call->kv_dim);
        store_rows(h, h->dv, call->keys, view_half(&args->out[2]) + k, call->kv_dim);
    }
}

weir_status attention_grad_half(const weir_kernel_args *args, bool masked)
{
    const half_attention h = half_of(args, masked, true);
    for (int64_t i = 0; i < h.call.batch * h.call.heads; i++)
        one_backward(&h, args, i / h.call.heads, i % h.call.heads);
    return WEIR_OK;
}
