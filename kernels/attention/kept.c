/* kernels/attention/kept.c: causal attention of a few new rows behind those that were kept.
 *
 *     q [batch, n, dim]   k, v [batch, n, kv_dim]   keys, values [batch, room, kv_dim]   position   ->   out [batch, n, dim]
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
 * The heads of a group (attention.c) are done together, a run of keys after the other, so that keys and values pass through the
 * cache once. A window and a mask (attention_kept_masked; formula.h) are as in attention; key j of a mask is that at position j.
 *
 * q, k, v and the result may be f16 or bf16; what was kept is f32 then, or as they are. Rows of a head are widened into the
 * workspace and computed with as in f32, and the result is rounded once.
 *
 * The position is a value, so it is the kernel that refuses one at which the new rows would not fit.
 */
#include "kernels/attention/formula.h"
#include "kernels/attention/heads.h"
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
    WEIR_FIELD_INT(struct kept_masked_attrs, window),
};

/* ---- rules ---- */

/* NULL: the call has none. */
static const weir_type *mask_type(const weir_op_args *args)
{
    return args->in_count > 6 ? &args->in[6] : NULL;
}

static bool kept_shapes(const weir_op_args *args, char *error, size_t error_bytes)
{
    const weir_shape *q = &args->in[0].shape, *k = &args->in[1].shape, *keys = &args->in[3].shape;
    for (int i = 2; i < 5; i += 2)
        if (!weir_shape_equal(&args->in[i].shape, &args->in[i - 1].shape))
            return REFUSE("the shapes of %s differ", i == 2 ? "k and v" : "the kept keys and values");
    if (q->dim[0] != k->dim[0] || q->dim[1] != k->dim[1])
        return REFUSE("batch and rows of q, %lld and %lld, and of k, %lld and %lld, differ", (long long)q->dim[0],
                      (long long)q->dim[1], (long long)k->dim[0], (long long)k->dim[1]);
    if (k->dim[0] != keys->dim[0] || k->dim[2] != keys->dim[2])
        return REFUSE("batch and dim of k, %lld and %lld, and of the kept keys, %lld and %lld, differ",
                      (long long)k->dim[0], (long long)k->dim[2], (long long)keys->dim[0], (long long)keys->dim[2]);
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
    for (int i = 0; i < 2; i++)
        if (attrs->head_dim < 1 || args->in[i].shape.dim[2] % attrs->head_dim)
            return REFUSE("dim %lld does not consist of heads of %lld", (long long)args->in[i].shape.dim[2],
                          (long long)attrs->head_dim);
    args->out[0] = args->in[0];
    return heads_share(args->in[0].shape.dim[2] / attrs->head_dim, args->in[1].shape.dim[2] / attrs->head_dim, error, error_bytes);
}

static bool kept_masked_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    const struct kept_masked_attrs *attrs = args->attrs;
    if (attrs->window < 0)
        return REFUSE("a window of %lld; it needs to be above 0", (long long)attrs->window);
    return kept_infer(args, error, error_bytes) &&
           mask_fits(mask_type(args), &args->in[0].shape, attrs->own.head_dim, args->in[3].shape.dim[1], error, error_bytes);
}

static void sign(const weir_op_args *args, weir_signature_list *list, weir_sbp q, weir_sbp keys, weir_sbp mask, int64_t granules)
{
    weir_signature *s = weir_signature_new(list);
    s->in[0] = s->out[0] = q;
    for (int i = 1; i < 5; i++)
        s->in[i] = keys;
    if (mask_type(args))
        s->in[6] = mask;
    s->granules = granules;
}

/* All but the position are split alike, over the batch or over heads of k with their groups; or heads that share a single one of
 * k without it. */
static void kept_signatures(const weir_op_args *args, weir_signature_list *list)
{
    const struct kept_attrs *attrs = args->attrs;
    const int64_t heads = args->in[0].shape.dim[2] / attrs->head_dim, kv_heads = args->in[1].shape.dim[2] / attrs->head_dim;
    const weir_sbp head = mask_split(mask_type(args), 1);
    sign(args, list, WEIR_S(0), WEIR_S(0), mask_split(mask_type(args), 0), 0);
    sign(args, list, WEIR_S(2), WEIR_S(2), head, kv_heads);
    if (kv_heads == 1 && heads > 1)
        sign(args, list, WEIR_S(2), WEIR_B, head, heads);
}

/* As if half of the room were filled. */
static void kept_cost(const weir_op_args *args, weir_cost *cost)
{
    const double group = (double)group_of(args->in[0].shape.dim[2], args->in[1].shape.dim[2]);
    cost->flops = 2.0 * group * (double)args->in[0].shape.dim[1] * (double)weir_shape_count(&args->in[3].shape);
    cost->bytes = (double)type_bytes(&args->in[3]) + 2.0 * (double)(type_bytes(&args->in[0]) + type_bytes(&args->in[1]));
}

/* The weights of a row of each head of a group, a number for each head if there are several, and as f32 what is half of the group: new rows, a row of the result, kept rows. */
static size_t kept_workspace(const weir_op_args *args, weir_device_kind kind)
{
    if (kind == WEIR_CUDA)
        return 0;
    const int64_t rows = args->in[0].shape.dim[1], room = args->in[3].shape.dim[1];
    const int64_t head_dim = ((const struct kept_attrs *)args->attrs)->head_dim;
    const int64_t group = group_of(args->in[0].shape.dim[2], args->in[1].shape.dim[2]);
    const int64_t width = args->in[0].shape.dim[2] ? head_dim : 0; /* a shard without heads says nothing of their size */
    const int64_t wide = dtype_half(args->in[0].dtype) ? (group + 2) * rows + group : 0;
    const int64_t kept = dtype_half(args->in[3].dtype) ? 2 * room : 0;
    const int64_t weights = group > 1 ? (room + 1) * group : room;
    return (size_t)(weights + (wide + kept) * width) * sizeof(float);
}

/* ---- one group of heads ---- */

/* Sizes that do not change within a call. */
typedef struct kept_call {
    int64_t rows, room, position, dim, kv_dim, head_dim, group, window;
    float scale;
    float *weights; /* room of them for each head of a group; behind them, of several heads, a number for each */
    struct attention_mask mask;
} kept_call;

/* Rows of one head, or of the heads of a group, as f32: they are `apart` from each other. */
typedef struct kept_rows {
    const float *at;
    int64_t apart;
} kept_rows;

typedef struct kept_group {
    kept_rows q, k, v, keys, values;
    const weir_view *out;
    int64_t first;       /* of it, in `out` */
    int64_t mask;        /* of its first head */
    float *row;          /* room for a row of an `out` that is half */
} kept_group;

/* `rows` rows of `width` elements that begin at element `first`, `dim` apart; what is half is widened to where *spare is. */
static kept_rows rows_of(const weir_view *view, int64_t first, int64_t rows, int64_t dim, int64_t width, float **spare)
{
    if (!dtype_half(view->dtype))
        return (kept_rows){view_f32(view) + first, dim};
    const kept_rows wide = {*spare, width};
    for (int64_t r = 0; r < rows; r++, *spare += width)
        real_in(view, first + r * dim, width, *spare);
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

/* The rows from `first` to `end` for all heads of a group: a run of keys stays in the cache for the next head. */
static void group_scores(const kept_call *call, const float *q, kept_rows k, int64_t first, int64_t end, float *score)
{
    enum { RUN = 64 };
    for (; first < end; first += RUN, score += RUN)
        for (int64_t head = 0; head < call->group; head++)
            row_scores(call, q + head * call->head_dim, (kept_rows){k.at + first * k.apart, k.apart},
                       end - first < RUN ? end - first : (int64_t)RUN, score + head * call->room);
}

/* Hides scores of `count` keys from `first` on, or adds to them. */
static void row_mask(const struct attention_mask *mask, int64_t first, int64_t count, float *score)
{
    for (int64_t i = 0; i < count; i++)
        if (!mask->bytes)
            score[i] += ((const float *)mask->at)[first + i];
        else if (!((const uint8_t *)mask->at)[first + i])
            score[i] = -INFINITY;
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

/* Masked scores to weights; returns what the weighted sum is to be multiplied by. */
static float masked_share(const kept_call *call, int64_t first, int64_t count, float *x)
{
    row_mask(&call->mask, first, count, x);
    if (row_max(x, count) > -INFINITY)
        return 1 / row_exp(x, count);
    memset(x, 0, (size_t)count * sizeof *x);
    return 0;
}

/* A row of all heads of a group: it sees kept rows from `old` on, and new ones from `new` on. */
static void group_row(const kept_call *call, const kept_group *group, int64_t row)
{
    const int64_t kept = call->position, width = call->head_dim, from = key_from(call->window, kept + row);
    const int64_t old = from < kept ? from : kept, new = from - old, seen = kept - old, count = kept + row + 1 - from;
    const int64_t at = group->first + row * call->dim;
    const float *q = group->q.at + row * group->q.apart;
    float *weights = call->weights, *out = real_out(group->out, at, group->row), one = 0;
    float *share = call->group > 1 ? weights + call->group * call->room : &one;
    group_scores(call, q, group->keys, old, kept, weights);
    group_scores(call, q, group->k, new, row + 1, weights + seen);
    for (int64_t head = 0; head < call->group; head++) {
        float *own = weights + head * call->room;
        const int64_t mask = group->mask + head * call->mask.head + row * call->mask.row + from;
        share[head] = call->mask.at ? masked_share(call, mask, count, own) : 1 / row_exp(own, count);
    }
    gemm_rows(call->group, width, seen, weights, call->room, group->values.at + old * group->values.apart, group->values.apart,
              false, out, width);
    gemm_rows(call->group, width, count - seen, weights + seen, call->room, group->v.at + new * group->v.apart, group->v.apart,
              true, out, width);
    for (int64_t i = 0; i < call->group * width; i++)
        out[i] *= share[i / width];
    real_put(group->out, at, call->group * width, out);
}

/* The group of head `head` of the keys of a sequence. */
static void one_group(const kept_call *call, const weir_kernel_args *args, int64_t batch, int64_t head)
{
    const int64_t width = call->head_dim, rows = call->rows, dim = call->kv_dim, group_width = call->group * width;
    const int64_t new = batch * rows * dim + head * width, old = batch * call->room * dim + head * width;
    float *spare = call->weights + (call->group > 1 ? (call->room + 1) * call->group : call->room);
    kept_group group = {.out = &args->out[0], .first = batch * rows * call->dim + head * group_width};
    group.mask = mask_row(&call->mask, batch, head * call->group, 0);
    group.q = rows_of(&args->in[0], group.first, rows, call->dim, group_width, &spare);
    group.k = rows_of(&args->in[1], new, rows, dim, width, &spare);
    group.v = rows_of(&args->in[2], new, rows, dim, width, &spare);
    group.keys = rows_of(&args->in[3], old, call->position, dim, width, &spare);
    group.values = rows_of(&args->in[4], old, call->position, dim, width, &spare);
    group.row = spare;
    for (int64_t row = 0; row < rows; row++)
        group_row(call, &group, row);
}

static weir_status kept_refused(const weir_kernel_args *args, int64_t at, int32_t position)
{
    (void)at;
    return KERNEL_FAIL(args, "%lld rows from position %d on do not fit into %lld", (long long)args->in[0].shape.dim[1],
                       position, (long long)args->in[3].shape.dim[1]);
}

static weir_status kept_run(const weir_kernel_args *args, int64_t window)
{
    const struct kept_attrs *attrs = args->attrs;
    const int64_t *q = args->in[0].shape.dim, *keys = args->in[3].shape.dim;
    kept_call call = {.rows = q[1], .room = keys[1], .position = *view_i32(&args->in[5]), .dim = q[2], .kv_dim = keys[2],
                      .head_dim = attrs->head_dim, .group = group_of(q[2], keys[2]), .window = window,
                      .scale = (float)attrs->scale, .weights = args->workspace};
    if (args->in_count > 6)
        call.mask = mask_of(&args->in[6]);
    if (call.position < 0 || call.position > call.room - call.rows)
        return kept_refused(args, 0, *view_i32(&args->in[5]));
    for (int64_t batch = 0; batch < q[0]; batch++)
        for (int64_t head = 0; head < call.kv_dim / call.head_dim; head++)
            one_group(&call, args, batch, head);
    return WEIR_OK;
}

static weir_status kept_cpu(const weir_kernel_args *args)
{
    return kept_run(args, 0);
}

static weir_status kept_masked_cpu(const weir_kernel_args *args)
{
    return kept_run(args, ((const struct kept_masked_attrs *)args->attrs)->window);
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

const weir_op op_attention_kept_masked = {
    .name = "attention_kept_masked",
    .fields = kept_fields,
    .field_count = 3,
    .attrs_bytes = sizeof(struct kept_masked_attrs),
    .in_min = 6,
    .in_max = 7,
    .out_count = 1,
    .infer = kept_masked_infer,
    .signatures = kept_signatures,
    .cost = kept_cost,
    .workspace = kept_workspace,
    .kernel = {[WEIR_CPU] = kept_masked_cpu},
    .refused = kept_refused,
    .half = WEIR_HALF_FOLLOW,
    .full_in = 1 << 3 | 1 << 4 | 1 << 6,
};

/* ---- the DSL ---- */

weir_tensor *weir_attention_kept_at(weir_tensor *q, weir_tensor *k, weir_tensor *v, weir_tensor *keys,
                                    weir_tensor *values, weir_tensor *position, const weir_attention_kept_opts *given)
{
    weir_attention_kept_opts opts;
    q = op_opts(q, "attention_kept", given, &opts, sizeof opts);
    const attention_asked asked = {"attention_kept", opts.src, opts.heads, opts.kv_heads, opts.window, opts.scale};
    struct kept_masked_attrs attrs = {.window = opts.window};
    weir_tensor *wrong = attention_heads(&asked, q, k, &attrs.own.head_dim, &attrs.own.scale);
    if (wrong)
        return wrong;
    weir_tensor *in[7] = {q, k, v, keys, values, position, opts.mask};
    const weir_op *op = opts.window || opts.mask ? &op_attention_kept_masked : &op_attention_kept;
    return weir_op_apply(&(weir_apply){opts.src, opts.name, op, NULL, in, opts.mask ? 7 : 6, &attrs}, NULL);
}
