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
 * A window and a mask (attention_kept_masked; formula.h) are as in attention; key j of a mask is that at position j.
 *
 * q, and with it the result, may be f32, f16 or bf16. k and v are as q is, or as the kept rows are; the kept rows are as k is, or
 * f32. So a cache of halves takes rows that are halves already, and a row is the same number whether it is new or kept. All is computed
 * in f32, and the result is rounded once.
 *
 * The position is a value, so it is the kernel that refuses one at which the new rows would not fit.
 */
#include "kernels/attention/heads.h"
#include "kernels/attention/kept.h"
#include "kernels/common/ops.h"
#include "kernels/common/opts.h"
#include "kernels/common/view.h"

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
    const weir_dtype q = args->in[0].dtype, new = args->in[1].dtype, kept = args->in[3].dtype;
    for (int i = 0; i < 5; i++)
        if (!weir_dtype_real(args->in[i].dtype) || args->in[i].shape.rank != 3)
            return REFUSE("%s: %s with %d dimensions; needs to be f32, f16 or bf16 with three", names[i],
                          weir_dtype_name(args->in[i].dtype), args->in[i].shape.rank);
    if (args->in[2].dtype != new || args->in[4].dtype != kept)
        return REFUSE("the dtypes of %s differ", args->in[2].dtype != new ? "k and v" : "the kept keys and values");
    if (kept != new && kept != WEIR_F32)
        return REFUSE("k and v are %s and the kept rows %s: convert k and v by weir_cast(), or keep f32", weir_dtype_name(new),
                      weir_dtype_name(kept));
    if (new != q && new != kept)
        return REFUSE("k and v are %s; they need to be as q, %s, or as the kept rows, %s", weir_dtype_name(new), weir_dtype_name(q),
                      weir_dtype_name(kept));
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

static size_t kept_workspace(const weir_op_args *args, weir_device_kind kind)
{
    const int64_t q_dim = args->in[0].shape.dim[2], head_dim = ((const struct kept_attrs *)args->attrs)->head_dim;
    if (kind == WEIR_CUDA || !q_dim) /* a shard without heads says nothing of their size */
        return 0;
    return kept_rows_workspace(args->in[0].shape.dim[1], args->in[3].shape.dim[1], group_of(q_dim, args->in[1].shape.dim[2]), head_dim);
}

/* ---- the kernels ---- */

weir_status kept_refused(const weir_kernel_args *args, int64_t at, int32_t position)
{
    (void)at;
    return KERNEL_FAIL(args, "%lld rows from position %d on do not fit into %lld", (long long)args->in[0].shape.dim[1],
                       position, (long long)args->in[3].shape.dim[1]);
}

static weir_status kept_cpu(const weir_kernel_args *args)
{
    return kept_rows_run(args, 0);
}

static weir_status kept_masked_cpu(const weir_kernel_args *args)
{
    return kept_rows_run(args, ((const struct kept_masked_attrs *)args->attrs)->window);
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
