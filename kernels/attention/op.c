/* kernels/attention/op.c: the ops of attention and of its gradient: rules, gradient, DSL. The kernels are in attention.c (f32)
 * and half.c (f16, bf16).
 *
 *     attention               q, k, v -> out, lse
 *     attention_grad          q, k, v, out, lse, dout -> dq, dk, dv
 *     attention_masked        q, k, v (, mask) -> out, lse
 *     attention_masked_grad   q, k, v, out, lse, dout (, mask) -> dq, dk, dv
 *
 * The number of heads is no attribute: a shard that holds some of the heads has a smaller dim and the same head_dim. How many
 * heads of q share one of k and v follows from the two dims.
 */
#include "kernels/attention/attention.h"

#include "graph/base/base.h"
#include "kernels/attention/heads.h"
#include "kernels/common/ops.h"
#include "kernels/common/opts.h"
#include "kernels/common/rules.h"

#include <math.h>
#include <weir/ops.h>

static const weir_field attention_fields[] = {
    WEIR_FIELD_INT(struct attention_attrs, head_dim),
    WEIR_FIELD_INT(struct attention_attrs, causal),
    WEIR_FIELD_REAL(struct attention_attrs, scale),
    WEIR_FIELD_INT(struct attention_masked_attrs, window),
};
#define ATTENTION_FIELDS .fields = attention_fields, .field_count = 3, .attrs_bytes = sizeof(struct attention_attrs)
#define MASKED_FIELDS .fields = attention_fields, .field_count = 4, .attrs_bytes = sizeof(struct attention_masked_attrs)

/* ---- rules ---- */

static bool is_gradient(const weir_op_args *args)
{
    return args->in_count >= 6;
}

/* NULL: the call has none. */
static const weir_type *mask_type(const weir_op_args *args)
{
    const int at = is_gradient(args) ? 6 : 3;
    return args->in_count > at ? &args->in[at] : NULL;
}

static int64_t window_of(const weir_op_args *args)
{
    return args->op->field_count == 4 ? ((const struct attention_masked_attrs *)args->attrs)->window : 0;
}

static int64_t heads_of(const weir_op_args *args, int input)
{
    return args->in[input].shape.dim[2] / ((const struct attention_attrs *)args->attrs)->head_dim;
}

static weir_type lse_type(const weir_type *q, int64_t head_dim)
{
    return (weir_type){WEIR_F32, {3, {q->shape.dim[0], q->shape.dim[2] / head_dim, q->shape.dim[1]}}};
}

static bool dims_fit(const weir_op_args *args, char *error, size_t error_bytes)
{
    const int64_t width = ((const struct attention_attrs *)args->attrs)->head_dim;
    const weir_shape *q = &args->in[0].shape, *k = &args->in[1].shape;
    if (q->dim[0] != k->dim[0])
        return REFUSE("batches of q, %lld, and of k, %lld, differ", (long long)q->dim[0], (long long)k->dim[0]);
    if (k->dim[1] < 1)
        return REFUSE("there are no keys");
    for (int i = 0; i < 2; i++)
        if (width < 1 || args->in[i].shape.dim[2] % width)
            return REFUSE("dim %lld does not consist of heads of %lld", (long long)args->in[i].shape.dim[2], (long long)width);
    return heads_share(q->dim[2] / width, k->dim[2] / width, error, error_bytes);
}

static bool attention_inputs(const weir_op_args *args, char *error, size_t error_bytes)
{
    const struct attention_attrs *attrs = args->attrs;
    const int64_t window = window_of(args);
    for (int i = 0; i < 3; i++)
        if (!weir_dtype_real(args->in[i].dtype) || args->in[i].shape.rank != 3)
            return REFUSE("%c is %s with %d dimensions; it needs to be f32, f16 or bf16 with three", "qkv"[i],
                          weir_dtype_name(args->in[i].dtype), args->in[i].shape.rank);
    if (args->in[1].dtype != args->in[0].dtype || args->in[2].dtype != args->in[0].dtype)
        return REFUSE("q, k and v are of different dtypes");
    if (!weir_shape_equal(&args->in[1].shape, &args->in[2].shape))
        return REFUSE("the shapes of k and v differ");
    if (window < 0 || (window && !attrs->causal))
        return REFUSE("a window of %lld; it needs to be above 0, of causal attention", (long long)window);
    if (!dims_fit(args, error, error_bytes))
        return false;
    return mask_fits(mask_type(args), &args->in[0].shape, attrs->head_dim, args->in[1].shape.dim[1], error, error_bytes);
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

/* How tensors are split: those like q, those like k, lse, the mask, and the gradients of k and v. */
typedef struct attention_split {
    weir_sbp q, k, lse, mask, dk;
} attention_split;

static void sign(const weir_op_args *args, weir_signature_list *list, attention_split by, int64_t granules)
{
    weir_signature *s = weir_signature_new(list);
    const bool gradient = is_gradient(args);
    s->in[0] = s->out[0] = by.q;
    s->in[1] = s->in[2] = by.k;
    s->granules = granules;
    if (gradient) {
        s->in[3] = s->in[5] = by.q;
        s->in[4] = by.lse;
        s->out[1] = s->out[2] = by.dk;
    } else {
        s->out[1] = by.lse;
    }
    if (mask_type(args))
        s->in[gradient ? 6 : 3] = by.mask;
}

/* All are split alike, over the batch or over heads of k with their groups; lse has its heads in dimension 1. Heads that share a
 * single one of k may be split without it; then each device makes terms of its gradient. */
static void attention_signatures(const weir_op_args *args, weir_signature_list *list)
{
    const int64_t heads = heads_of(args, 0), kv_heads = heads_of(args, 1);
    const weir_sbp batch = mask_split(mask_type(args), 0), head = mask_split(mask_type(args), 1);
    sign(args, list, (attention_split){WEIR_S(0), WEIR_S(0), WEIR_S(0), batch, WEIR_S(0)}, 0);
    sign(args, list, (attention_split){WEIR_S(2), WEIR_S(2), WEIR_S(1), head, WEIR_S(2)}, kv_heads);
    if (kv_heads == 1 && heads > 1)
        sign(args, list, (attention_split){WEIR_S(2), WEIR_B, WEIR_S(1), head, WEIR_P}, heads);
}

/* Pairs of a query and a key that it sees, over the batch; times dim and 2, the operations of one product. */
static double pairs(const weir_op_args *args)
{
    const struct attention_attrs *attrs = args->attrs;
    double seq = (double)args->in[0].shape.dim[1], keys = (double)args->in[1].shape.dim[1], seen = seq * keys;
    const double window = (double)window_of(args), least_size = seq < keys ? seq : keys;
    if (attrs->causal)
        seen = seq <= keys ? seq * (seq + 1) / 2 : keys * (keys + 1) / 2 + (seq - keys) * keys;
    if (window > 0 && window < least_size)
        seen = window * (window + 1) / 2 + (least_size - window) * window;
    return seen * (double)args->in[0].shape.dim[0];
}

/* flops: of 2 or 5 products; bytes: q, k, out and v, or twice as many. */
static void attention_cost(const weir_op_args *args, weir_cost *cost)
{
    const bool gradient = is_gradient(args);
    const weir_type *mask = mask_type(args);
    cost->flops = 2 * (gradient ? 5 : 2) * pairs(args) * (double)args->in[0].shape.dim[2];
    cost->bytes = (gradient ? 4.0 : 2.0) * (double)(type_bytes(&args->in[0]) + type_bytes(&args->in[1]));
    cost->bytes += mask ? (double)type_bytes(mask) : 0;
}

/* Whether a library may make it on a CUDA device (cudnn.cu). */
static bool may_be_fused(const weir_op_args *args)
{
    const int64_t width = ((const struct attention_attrs *)args->attrs)->head_dim;
    return args->op->field_count == 3 && args->in[0].shape.dim[2] == args->in[1].shape.dim[2] && args->in[0].dtype != WEIR_F32 &&
           width % 8 == 0 && width <= FUSED_HEAD_MOST;
}

static size_t attention_workspace(const weir_op_args *args, weir_device_kind kind)
{
    const int64_t width = ((const struct attention_attrs *)args->attrs)->head_dim;
    if (kind == WEIR_CUDA)
        return may_be_fused(args) ? FUSED_ALIGNMENT + FUSED_BYTES_MORE : 0;
    return args->in[0].dtype == WEIR_F32 ? attention_single_workspace(width, false) : attention_half_workspace(args, false);
}

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
    return args->in[0].dtype == WEIR_F32 ? attention_single_workspace(width, true) : attention_half_workspace(args, true);
}

/* ---- the ops ---- */

static weir_status attention_cpu(const weir_kernel_args *args)
{
    return args->in[0].dtype == WEIR_F32 ? attention_single(args, false) : attention_half(args, false);
}

static weir_status attention_grad_cpu(const weir_kernel_args *args)
{
    return args->in[0].dtype == WEIR_F32 ? attention_grad_single(args, false) : attention_grad_half(args, false);
}

static weir_status attention_masked_cpu(const weir_kernel_args *args)
{
    return args->in[0].dtype == WEIR_F32 ? attention_single(args, true) : attention_half(args, true);
}

static weir_status attention_masked_grad_cpu(const weir_kernel_args *args)
{
    return args->in[0].dtype == WEIR_F32 ? attention_grad_single(args, true) : attention_grad_half(args, true);
}

static void backward_by(weir_grad_args *args, const weir_op *op)
{
    weir_tensor *in[7] = {args->in[0], args->in[1], args->in[2], args->out[0], args->out[1], args->dout[0]}, *d[3];
    if (args->in_count == 4)
        in[6] = args->in[3];
    weir_op_apply(&(weir_apply){args->src, NULL, op, NULL, in, 3 + args->in_count, args->attrs}, d);
    for (int i = 0; i < 3; i++)
        if (args->needed[i])
            args->din[i] = d[i];
    if (args->in_count == 4 && args->needed[3])
        args->din[3] = weir_mistake(args->in[3], args->src, "attention: no gradient flows through a mask, and this one depends on "
                                    "a parameter that trains; freeze the parameter (.frozen)");
}

static void attention_backward(weir_grad_args *args)
{
    backward_by(args, &op_attention_grad);
}

static void attention_masked_backward(weir_grad_args *args)
{
    backward_by(args, &op_attention_masked_grad);
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
    .signatures = attention_signatures,
    .cost = attention_cost,
    .workspace = attention_grad_workspace,
    .kernel = {[WEIR_CPU] = attention_grad_cpu},
    .half = WEIR_HALF_WANT,
    .full_in = 1 << 4,
};

const weir_op op_attention_masked = {
    .name = "attention_masked",
    MASKED_FIELDS,
    .in_min = 3,
    .in_max = 4,
    .out_count = 2,
    .infer = attention_infer,
    .signatures = attention_signatures,
    .grad = attention_masked_backward,
    .cost = attention_cost,
    .workspace = attention_workspace,
    .kernel = {[WEIR_CPU] = attention_masked_cpu},
    .half = WEIR_HALF_WANT,
    .full_in = 1 << 3,
};

const weir_op op_attention_masked_grad = {
    .name = "attention_masked_grad",
    MASKED_FIELDS,
    .in_min = 6,
    .in_max = 7,
    .out_count = 3,
    .infer = attention_grad_infer,
    .signatures = attention_signatures,
    .cost = attention_cost,
    .workspace = attention_grad_workspace,
    .kernel = {[WEIR_CPU] = attention_masked_grad_cpu},
    .half = WEIR_HALF_WANT,
    .full_in = 1 << 4 | 1 << 6,
};

/* ---- the DSL ---- */

weir_tensor *weir_attention_at(weir_tensor *q, weir_tensor *k, weir_tensor *v, const weir_attention_opts *given)
{
    weir_attention_opts opts;
    q = op_opts(q, "attention", given, &opts, sizeof opts);
    const attention_asked asked = {"attention", opts.src, opts.heads, opts.kv_heads, opts.window, opts.scale};
    struct attention_masked_attrs attrs = {.own = {.causal = opts.causal}, .window = opts.window};
    weir_tensor *wrong = attention_heads(&asked, q, k, &attrs.own.head_dim, &attrs.own.scale);
    if (wrong)
        return wrong;
    if (opts.window && !opts.causal && !weir_tensor_poisoned(q))
        return weir_mistake(q, opts.src, "attention: .window needs .causal = true");
    weir_tensor *in[4] = {q, k, v, opts.mask};
    const weir_op *op = opts.window || opts.mask ? &op_attention_masked : &op_attention;
    return weir_op_apply(&(weir_apply){opts.src, opts.name, op, NULL, in, opts.mask ? 4 : 3, &attrs}, NULL);
}
