/* kernels/attention/kept.c: causal attention of a few new rows behind those that were kept.
 *
 *     q, k, v [batch, n, dim]   keys, values [batch, room, dim]   position   ->   out [batch, n, dim]
 *
 *     keys     [ 0 ............ position - 1 | unused ]       what was kept; only read
 *     k                        [ 0 .. n - 1 ]                 the new rows, at position .. position + n - 1
 *
 * The kept rows are a state that an append (kernels/shape/append.c) writes once all have read it, as an optimizer does
 * with a parameter; so the new rows are not among them yet, and come beside them.
 *
 * A row must give the same bits whether the ones before it were kept or come with it: a text that is written a row a
 * step is then the one that the whole window gives. So each row is done by itself, in an order that follows from its
 * place alone: its scores, one dot product each, whose order of terms is that of the dimension; their softmax over as
 * many as it sees; and the weighted sum of values, which goes on from the kept rows to the new ones (gemm_rows). It is
 * for few rows: many are faster in blocks (attention.c), which round otherwise.
 *
 * q, k, v and the result may be f16 or bf16; what was kept is f32 then, or as they are. Rows of a head are widened into the
 * workspace and computed with as in f32, and the result is rounded once.
 *
 * The position is a value, so it is the kernel that refuses one at which the new rows would not fit.
 */
#include "kernels/attention/formula.h"
#include "kernels/common/lanes.h"
#include "kernels/matmul/rows.h"
#include "kernels/common/ops.h"
#include "kernels/common/opts.h"
#include "kernels/common/real.h"
#include "kernels/common/view.h"

#include <math.h>
#include <string.h>
#include <weir/ops.h>

static const weir_field kept_fields[] = {
    WEIR_FIELD_INT(struct kept_attrs, head_dim),
    WEIR_FIELD_REAL(struct kept_attrs, scale),
};

/* ---- rules ---- */

static bool kept_shapes(const weir_op_args *args, char *error, size_t error_bytes)
{
    const weir_shape *q = &args->in[0].shape, *keys = &args->in[3].shape;
    for (int i = 1; i < 5; i++) {
        const weir_shape *like = i < 3 ? q : keys;
        if (!weir_shape_equal(&args->in[i].shape, like))
            return REFUSE("the shapes of %s differ", i < 3 ? "q, k and v" : "the kept keys and values");
    }
    if (q->dim[0] != keys->dim[0] || q->dim[2] != keys->dim[2])
        return REFUSE("batch and dim of q, %lld and %lld, and of the kept keys, %lld and %lld, differ",
                      (long long)q->dim[0], (long long)q->dim[2], (long long)keys->dim[0], (long long)keys->dim[2]);
    if (q->dim[1] > keys->dim[1])
        return REFUSE("%lld new rows are more than there is room for, %lld", (long long)q->dim[1],
                      (long long)keys->dim[1]);
    return true;
}

static bool kept_types(const weir_op_args *args, char *error, size_t error_bytes)
{
    static const char *const names[] = {"q", "k", "v", "the kept keys", "the kept values"};
    const weir_dtype first = args->in[0].dtype, kept = args->in[3].dtype;
    for (int i = 0; i < 5; i++)
        if (!weir_dtype_real(args->in[i].dtype) || args->in[i].shape.rank != 3)
            return REFUSE("%s: %s with %d dimensions; needs to be f32, f16 or bf16 with three", names[i],
                          weir_dtype_name(args->in[i].dtype), args->in[i].shape.rank);
    if (args->in[1].dtype != first || args->in[2].dtype != first)
        return REFUSE("the dtypes of q, k and v differ");
    if (args->in[4].dtype != kept || (kept != first && kept != WEIR_F32))
        return REFUSE("the kept keys are %s and the kept values %s; both need to be f32 or %s", weir_dtype_name(kept),
                      weir_dtype_name(args->in[4].dtype), weir_dtype_name(first));
    return true;
}

static bool kept_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    const struct kept_attrs *attrs = args->attrs;
    if (!kept_types(args, error, error_bytes))
        return false;
    if (args->in[5].dtype != WEIR_I32 || weir_shape_count(&args->in[5].shape) != 1)
        return REFUSE("the position is not one i32");
    if (!kept_shapes(args, error, error_bytes))
        return false;
    if (attrs->head_dim < 1 || args->in[0].shape.dim[2] % attrs->head_dim)
        return REFUSE("dim %lld does not consist of heads of %lld", (long long)args->in[0].shape.dim[2],
                      (long long)attrs->head_dim);
    args->out[0] = args->in[0];
    return true;
}

/* All but the position are split alike, over the batch or over heads. */
static void kept_signatures(const weir_op_args *args, weir_signature_list *list)
{
    const struct kept_attrs *attrs = args->attrs;
    weir_signature *batch = weir_signature_new(list), *heads = weir_signature_new(list);
    for (int i = 0; i < 5; i++) {
        batch->in[i] = WEIR_S(0);
        heads->in[i] = WEIR_S(2);
    }
    batch->out[0] = WEIR_S(0);
    heads->out[0] = WEIR_S(2);
    heads->granules = args->in[0].shape.dim[2] / attrs->head_dim;
}

/* As if half of the room were filled. */
static void kept_cost(const weir_op_args *args, weir_cost *cost)
{
    cost->flops = 2.0 * (double)args->in[0].shape.dim[1] * (double)weir_shape_count(&args->in[3].shape);
    cost->bytes = (double)type_bytes(&args->in[3]) + 4.0 * (double)type_bytes(&args->in[0]);
}

/* The weights of a row, and what is half of a head as f32: new rows, a row of the result, rows that were kept. */
static size_t kept_workspace(const weir_op_args *args, weir_device_kind kind)
{
    if (kind == WEIR_CUDA)
        return 0;
    const int64_t rows = args->in[0].shape.dim[1], room = args->in[3].shape.dim[1];
    const int64_t head_dim = ((const struct kept_attrs *)args->attrs)->head_dim;
    const int64_t width = args->in[0].shape.dim[2] ? head_dim : 0; /* a shard without heads says nothing of their size */
    const int64_t wide = dtype_half(args->in[0].dtype) ? 3 * rows + 1 : 0;
    const int64_t kept = dtype_half(args->in[3].dtype) ? 2 * room : 0;
    return (size_t)(room + (wide + kept) * width) * sizeof(float);
}

/* ---- one head ---- */

/* Sizes that do not change within a call. */
typedef struct kept_call {
    int64_t rows, room, position, dim, head_dim;
    float scale;
    float *weights; /* room of them */
} kept_call;

/* Rows of one head as f32: they are `apart` from each other. */
typedef struct kept_rows {
    const float *at;
    int64_t apart;
} kept_rows;

typedef struct kept_head {
    kept_rows q, k, v, keys, values;
    const weir_view *out;
    int64_t first;       /* of it, in `out` */
    float *row;          /* room for a row of an `out` that is half */
} kept_head;

/* `rows` rows of a head that begin at element `first`; what is half is widened to where *spare is. */
static kept_rows rows_of(const kept_call *call, const weir_view *view, int64_t first, int64_t rows, float **spare)
{
    if (!dtype_half(view->dtype))
        return (kept_rows){view_f32(view) + first, call->dim};
    const kept_rows wide = {*spare, call->head_dim};
    for (int64_t r = 0; r < rows; r++, *spare += call->head_dim)
        real_in(view, first + r * call->dim, call->head_dim, *spare);
    return wide;
}

/* Lane l of the result is the sum of t[l]'s lanes. A step of width w adds lanes that are w apart, of t[i] where bit w
 * of the lane is 0 and of t[i + w] where it is 1. Both addends change places with the bit, so a vector's sum has the
 * same bits wherever it stands. */
static inline __attribute__((always_inline)) lanes sums_of(lanes t[LANES])
{
#pragma GCC unroll 4
    for (int w = LANES / 2; w; w /= 2) {
        lane_numbers own, other;
        for (int l = 0; l < LANES; l++) {
            own[l] = l & w ? LANES + l : l;
            other[l] = own[l] ^ w;
        }
#pragma GCC unroll 8
        for (int i = 0; i < w; i++)
            t[i] = lanes_pick(t[i], t[i + w], own) + lanes_pick(t[i], t[i + w], other);
    }
    return t[0];
}

/* scale q k^T for the next `count` keys, up to LANES of them; where there are fewer, the last one is taken again. */
static inline __attribute__((always_inline)) lanes some_scores(const kept_call *call, const float *q, kept_rows k,
                                                               int64_t count)
{
    const int64_t width = call->head_dim;
    const float *key[LANES];
    lanes t[LANES];
    for (int j = 0; j < LANES; j++) {
        key[j] = k.at + (j < count ? j : count - 1) * k.apart;
        t[j] = (lanes){};
    }
    int64_t i = 0;
    for (; i + LANES <= width; i += LANES)
        for (int j = 0; j < LANES; j++)
            t[j] += lanes_load(q + i) * lanes_load(key[j] + i);
    for (int j = 0; j < LANES && i < width; j++)
        t[j] += lanes_load_part(q + i, width - i, 0) * lanes_load_part(key[j] + i, width - i, 0);
    return call->scale * sums_of(t);
}

static void row_scores(const kept_call *call, const float *q, kept_rows k, int64_t count, float *score)
{
    for (; count > 0; count -= LANES, k.at += LANES * k.apart, score += LANES) {
        const lanes some = some_scores(call, q, k, count);
        memcpy(score, &some, (size_t)(count < LANES ? count : LANES) * sizeof *score);
    }
}

/* Scores to exp(score - the largest); returns their sum. */
static float row_exp(float *x, int64_t count)
{
    const float most = row_max(x, count);
    FAST_LOOP
    for (int64_t i = 0; i < count; i++)
        x[i] = fast_exp(x[i] - most);
    return row_sum(x, count);
}

static void head_row(const kept_call *call, const kept_head *head, int64_t row)
{
    const int64_t kept = call->position, width = call->head_dim, at = head->first + row * call->dim;
    const float *q = head->q.at + row * head->q.apart;
    float *weights = call->weights, *out = real_out(head->out, at, head->row);
    row_scores(call, q, head->keys, kept, weights);
    row_scores(call, q, head->k, row + 1, weights + kept);
    const float share = 1 / row_exp(weights, kept + row + 1);
    gemm_rows(1, width, kept, weights, 0, head->values.at, head->values.apart, false, out, 0);
    gemm_rows(1, width, row + 1, weights + kept, 0, head->v.at, head->v.apart, true, out, 0);
    for (int64_t i = 0; i < width; i++)
        out[i] *= share;
    real_put(head->out, at, width, out);
}

/* New rows of a head begin at element `new`, kept ones at `old`. */
static void one_head(const kept_call *call, const weir_kernel_args *args, int64_t new, int64_t old)
{
    float *spare = call->weights + call->room;
    kept_head head = {.out = &args->out[0], .first = new};
    head.q = rows_of(call, &args->in[0], new, call->rows, &spare);
    head.k = rows_of(call, &args->in[1], new, call->rows, &spare);
    head.v = rows_of(call, &args->in[2], new, call->rows, &spare);
    head.keys = rows_of(call, &args->in[3], old, call->position, &spare);
    head.values = rows_of(call, &args->in[4], old, call->position, &spare);
    head.row = spare;
    for (int64_t row = 0; row < call->rows; row++)
        head_row(call, &head, row);
}

static weir_status kept_refused(const weir_kernel_args *args, int64_t at, int32_t position)
{
    (void)at;
    return KERNEL_FAIL(args, "%lld rows from position %d on do not fit into %lld", (long long)args->in[0].shape.dim[1],
                       position, (long long)args->in[3].shape.dim[1]);
}

static weir_status kept_cpu(const weir_kernel_args *args)
{
    const struct kept_attrs *attrs = args->attrs;
    const weir_shape *q = &args->in[0].shape;
    const kept_call call = {q->dim[1], args->in[3].shape.dim[1], *view_i32(&args->in[5]), q->dim[2], attrs->head_dim,
                            (float)attrs->scale, args->workspace};
    if (call.position < 0 || call.position > call.room - call.rows)
        return kept_refused(args, 0, *view_i32(&args->in[5]));
    for (int64_t batch = 0; batch < q->dim[0]; batch++)
        for (int64_t column = 0; column < call.dim; column += call.head_dim)
            one_head(&call, args, batch * call.rows * call.dim + column, batch * call.room * call.dim + column);
    return WEIR_OK;
}

const weir_op op_attention_kept = {
    .name = "attention_kept",
    .fields = kept_fields,
    .field_count = 2,
    .attrs_bytes = sizeof(struct kept_attrs),
    .in_min = 6,
    .in_max = 6,
    .out_count = 1,
    .infer = kept_infer,
    .signatures = kept_signatures,
    .cost = kept_cost,
    .workspace = kept_workspace,
    .kernel = {[WEIR_CPU] = kept_cpu},
    .refused = kept_refused,
    .half = WEIR_HALF_FOLLOW,
    .full_in = 1 << 3 | 1 << 4,
};

/* ---- the DSL ---- */

weir_tensor *weir_attention_kept_at(weir_tensor *q, weir_tensor *k, weir_tensor *v, weir_tensor *keys,
                                    weir_tensor *values, weir_tensor *position, const weir_attention_kept_opts *given)
{
    weir_attention_kept_opts opts;
    q = op_opts(q, "attention_kept", given, &opts, sizeof opts);
    int64_t heads = opts.heads ? opts.heads : 1;
    weir_type type = weir_tensor_type(q);
    int64_t dim = shape_last(&type.shape);
    if (!weir_tensor_poisoned(q) && (heads < 1 || dim % heads || dim < heads))
        return weir_mistake(q, opts.src, "attention_kept: %lld heads do not divide dim %lld", (long long)heads,
                            (long long)dim);
    struct kept_attrs attrs = {.head_dim = dim / heads};
    attrs.scale = weir_option(opts.scale, 1 / sqrt((double)attrs.head_dim));
    weir_tensor *in[6] = {q, k, v, keys, values, position};
    return weir_op_apply(&(weir_apply){opts.src, opts.name, &op_attention_kept, NULL, in, 6, &attrs}, NULL);
}
