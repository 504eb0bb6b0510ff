/* reduce.c: sum, mean, max, min and prod over dimensions, and sum_to, the sum that undoes a broadcast. Sums of f16 and bf16 are f32.
 *
 * Split over a dimension that stays, a reduction is split there; split over one that is reduced, a sum (and a mean,
 * which divides by the logical count whatever the shard holds) is partial. A maximum and a product are not sums of terms, so
 * they have no such signature. A minimum is the maximum of the negated values, negated.
 */
#include "kernels/reduce/reduce.h"

#include "kernels/cuda/chunks.h"
#include "kernels/common/nest.h"
#include "kernels/common/ops.h"
#include "kernels/common/opts.h"
#include "kernels/common/real.h"
#include "kernels/reduce/fold.h"
#include "kernels/common/rules.h"
#include "kernels/common/written.h"
#include "kernels/shape/shape.h"
#include "kernels/common/view.h"

#include "graph/base/base.h"

#include <string.h>
#include <weir/ops.h>

/* ---- which dimensions ---- */

const weir_field reduce_fields[3] = {
    WEIR_FIELD_INT(reduce_attrs, axes),
    WEIR_FIELD_INT(reduce_attrs, axis_count),
    WEIR_FIELD_INT(reduce_attrs, keep),
};

/* `shape` without the reduced dimensions. */
static weir_shape dropped_shape(const weir_shape *shape, unsigned mask)
{
    weir_shape dropped = {0};
    for (int d = 0; d < shape->rank; d++)
        if (!(mask >> d & 1))
            dropped.dim[dropped.rank++] = shape->dim[d];
    return dropped;
}

static bool axes_are_right(const reduce_attrs *attrs, int rank, char *error, size_t error_bytes)
{
    unsigned seen = 0;
    if (attrs->axis_count < 0 || attrs->axis_count > WEIR_DIMS_MAX)
        return REFUSE(".axis_count is %lld, of a tensor with %d dimensions", (long long)attrs->axis_count, rank);
    for (int i = 0; i < attrs->axis_count; i++) {
        int64_t axis = attrs->axes[i];
        if (axis < -rank || axis >= rank)
            return REFUSE("axis %lld is not one of the %d dimensions", (long long)axis, rank);
        unsigned bit = 1u << (axis < 0 ? axis + rank : axis);
        if (seen & bit)
            return REFUSE("axis %lld is named twice", (long long)axis);
        seen |= bit;
    }
    return true;
}

bool reduce_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    const reduce_attrs *attrs = args->attrs;
    const weir_shape *in = &args->in[0].shape;
    if (!rule_all_real(args, error, error_bytes) || !axes_are_right(attrs, in->rank, error, error_bytes))
        return false;
    unsigned mask = reduced_mask(attrs, in->rank);
    args->out[0] = (weir_type){WEIR_F32, attrs->keep ? kept_shape(in, mask) : dropped_shape(in, mask)};
    return true;
}

/* ---- signatures and cost ---- */

static void sign_kept(const weir_op_args *args, weir_signature_list *list)
{
    const reduce_attrs *attrs = args->attrs;
    int rank = args->in[0].shape.rank, own = 0;
    unsigned mask = reduced_mask(attrs, rank);
    for (int d = 0; d < rank; d++) {
        bool reduced = mask >> d & 1;
        if (!reduced) {
            weir_signature *s = weir_signature_new(list);
            s->in[0] = WEIR_S(d);
            s->out[0] = WEIR_S(own);
        }
        own += !reduced || attrs->keep;
    }
}

static void sign_reduce(const weir_op_args *args, weir_signature_list *list)
{
    int rank = args->in[0].shape.rank;
    unsigned mask = reduced_mask(args->attrs, rank);
    sign_kept(args, list);
    sign_linear(args, list);
    for (int d = 0; d < rank; d++) {
        if (!(mask >> d & 1))
            continue;
        weir_signature *s = weir_signature_new(list);
        s->in[0] = WEIR_S(d);
        s->out[0] = WEIR_P;
    }
}

static void reduce_cost(const weir_op_args *args, weir_cost *cost)
{
    cost_moved(args, cost, (double)weir_shape_count(&args->in[0].shape));
}

/* On a GPU, sums of chunks. */
static size_t reduce_workspace(const weir_op_args *args, weir_device_kind kind)
{
    const weir_shape kept = kept_shape(&args->in[0].shape, reduced_mask(args->attrs, args->in[0].shape.rank));
    return kind == WEIR_CUDA ? fold_bytes(weir_shape_count(&kept), weir_shape_count(&args->in[0].shape)) : 0;
}

/* ---- kernels ---- */

static weir_shape kept_of(const weir_kernel_args *args)
{
    return kept_shape(&args->in[0].shape, reduced_mask(args->attrs, args->in[0].shape.rank));
}

static weir_status sum_kernel(const weir_kernel_args *args)
{
    weir_shape kept = kept_of(args);
    fold_sum(&args->in[0], &kept, view_f32(&args->out[0]), args->accumulate);
    return WEIR_OK;
}

static weir_status mean_kernel(const weir_kernel_args *args)
{
    weir_shape kept = kept_of(args);
    float *y = view_f32(&args->out[0]);
    double terms = (double)weir_shape_count(&args->in[0].global) / (double)weir_shape_count(&args->out[0].global);
    const float share = (float)(1 / terms);
    fold_sum(&args->in[0], &kept, y, false);
    for (int64_t i = 0; i < view_count(&args->out[0]); i++)
        y[i] *= share;
    return WEIR_OK;
}

static weir_status max_kernel(const weir_kernel_args *args)
{
    weir_shape kept = kept_of(args);
    fold_max(&args->in[0], &kept, view_f32(&args->out[0]));
    return WEIR_OK;
}

static weir_status prod_kernel(const weir_kernel_args *args)
{
    weir_shape kept = kept_of(args);
    fold_prod(&args->in[0], &kept, view_f32(&args->out[0]));
    return WEIR_OK;
}

/* ---- gradients ---- */

/* `dy`, repeated over the dimensions that were reduced. */
static weir_tensor *spread(const weir_grad_args *args, weir_tensor *dy)
{
    weir_type type = weir_tensor_type(args->in[0]);
    weir_shape kept = kept_shape(&type.shape, reduced_mask(args->attrs, type.shape.rank));
    return shape_broadcast_to(shape_reshape(dy, &kept, args->src), &type.shape, args->src);
}

static void sum_backward(weir_grad_args *args)
{
    args->din[0] = spread(args, args->dout[0]);
}

static void mean_backward(weir_grad_args *args)
{
    weir_type in = weir_tensor_type(args->in[0]), out = weir_tensor_type(args->out[0]);
    double terms = (double)weir_shape_count(&in.shape) / (double)weir_shape_count(&out.shape);
    args->din[0] = spread(args, weir_affine_at(args->dout[0], WEIR_OPTS_AT(args->src, weir_affine_opts,
                                                                           .scale = 1 / terms)));
}

static void max_backward(weir_grad_args *args)
{
    weir_tensor *in[3] = {args->in[0], args->out[0], args->dout[0]};
    args->din[0] = weir_op_apply(&(weir_apply){args->src, NULL, &op_max_grad, NULL, in, 3, args->attrs}, NULL);
}

static void prod_backward(weir_grad_args *args)
{
    weir_tensor *in[2] = {args->in[0], args->dout[0]};
    args->din[0] = weir_op_apply(&(weir_apply){args->src, NULL, &op_prod_grad, NULL, in, 2, args->attrs}, NULL);
}

/* ---- definitions ---- */

/* Whether `.axes` was given without how many there are: {0} is seen in nothing but what was written. */
static bool axes_uncounted(const weir_reduce_opts *opts)
{
    bool given = written_member(opts->written, ".axes");
    for (int i = 0; i < WEIR_DIMS_MAX; i++)
        given |= opts->axes[i] != 0;
    return given && !opts->axis_count;
}

static weir_tensor *reduce_apply(const weir_op *op, const char *what, weir_tensor *x, const weir_reduce_opts *opts)
{
    reduce_attrs attrs = {.axis_count = opts->axis_count, .keep = opts->keep};
    if (x && axes_uncounted(opts))
        return weir_mistake(x, opts->src, "%s: .axes says which dimensions, but not how many: say .axis_count, as in "
                            ".axes = {-1}, .axis_count = 1", what);
    for (int i = 0; i < WEIR_DIMS_MAX; i++)
        attrs.axes[i] = opts->axes[i];
    return weir_op_apply(&(weir_apply){opts->src, opts->name, op, NULL, &x, 1, &attrs}, NULL);
}

#define REDUCE(opname, infers, signs, adds)                                                                        \
    const weir_op op_##opname = {                                                                                  \
        .name = #opname,                                                                                           \
        .fields = reduce_fields,                                                                                   \
        .field_count = 3,                                                                                          \
        .attrs_bytes = sizeof(reduce_attrs),                                                                       \
        .in_min = 1,                                                                                               \
        .in_max = 1,                                                                                               \
        .out_count = 1,                                                                                            \
        .infer = infers,                                                                                           \
        .signatures = signs,                                                                                       \
        .grad = opname##_backward,                                                                                 \
        .cost = reduce_cost,                                                                                       \
        .workspace = reduce_workspace,                                                                             \
        .kernel = {[WEIR_CPU] = opname##_kernel},                                                                  \
        .accumulates = adds,                                                                                       \
        .half = WEIR_HALF_FOLLOW,                                                                                  \
    };                                                                                                             \
    weir_tensor *weir_##opname##_at(weir_tensor *x, const weir_reduce_opts *given)                                 \
    {                                                                                                              \
        weir_reduce_opts opts;                                                                                     \
        x = op_opts(x, #opname, given, &opts, sizeof opts);                                                        \
        return reduce_apply(&op_##opname, #opname, x, &opts);                                                             \
    }
REDUCE(sum, reduce_infer, sign_reduce, true)
REDUCE(mean, reduce_infer, sign_reduce, false)
REDUCE(max, reduce_infer, sign_kept, false)
REDUCE(prod, reduce_infer, sign_kept, false)

weir_tensor *weir_min_at(weir_tensor *x, const weir_reduce_opts *given)
{
    weir_reduce_opts opts;
    x = op_opts(x, "min", given, &opts, sizeof opts);
    const char *name = opts.name;
    opts.name = NULL;
    weir_tensor *most = reduce_apply(&op_max, "min", weir_neg_at(x, WEIR_OPTS_AT(opts.src, weir_op_opts)), &opts);
    return weir_neg_at(most, WEIR_OPTS_AT(opts.src, weir_op_opts, .name = name));
}

/* ---- max_grad: (x, y, dy) -> dx. Equal maxima share dy evenly ---- */

static bool max_grad_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    char got[RULES_SHAPE_TEXT];
    weir_op_args x = *args;
    x.in_count = 1;
    if (!reduce_infer(&x, error, error_bytes))
        return false;
    for (int i = 1; i < 3; i++)
        if (args->in[i].dtype != WEIR_F32 || !weir_shape_equal(&args->in[i].shape, &args->out[0].shape))
            return REFUSE("input %d is %s of shape %s, not f32 of that of the maximum", i,
                          weir_dtype_name(args->in[i].dtype), shape_text(&args->in[i].shape, got, sizeof got));
    args->out[0] = args->in[0];
    return true;
}

static void max_grad_signatures(const weir_op_args *args, weir_signature_list *list)
{
    const reduce_attrs *attrs = args->attrs;
    int rank = args->in[0].shape.rank, own = 0;
    unsigned mask = reduced_mask(attrs, rank);
    for (int d = 0; d < rank; d++) {
        bool reduced = mask >> d & 1;
        if (!reduced) {
            weir_signature *s = weir_signature_new(list);
            s->in[0] = s->out[0] = WEIR_S(d);
            s->in[1] = s->in[2] = WEIR_S(own);
        }
        own += !reduced || attrs->keep;
    }
    sign_linear_in(args, list, 2);
}

/* How many elements are the maximum, per maximum; on a GPU behind what chunks count. */
static size_t max_grad_workspace(const weir_op_args *args, weir_device_kind kind)
{
    return reduce_workspace(args, kind) + (size_t)weir_shape_count(&args->in[1].shape) * sizeof(float);
}

static nest max_grad_nest(const weir_kernel_args *args)
{
    weir_shape kept = kept_of(args);
    nest n = nest_over(&args->in[0].shape);
    nest_broadcast(&n, &kept);
    nest_collapse(&n);
    return n;
}

/* Which part of a row of x it is that is looked at, and where its maxima are. */
typedef struct max_part {
    const float *x;
    int64_t at, count;     /* elements of x */
    int64_t to, stride;    /* positions among the maxima */
} max_part;

/* Calls `each` for all of x, a part of a row at a time. */
static void max_parts(const weir_kernel_args *args, void (*each)(const weir_kernel_args *args, const max_part *part))
{
    float block[REAL_BLOCK];
    const nest n = max_grad_nest(args);
    const int64_t rows = nest_rows(&n), inner = nest_inner(&n), stride = n.stride[0][n.rank - 1];
    nest_pos pos = {0};
    for (int64_t r = 0; r < rows; r++, nest_step(&n, &pos))
        for (int64_t i = 0, count; i < inner; i += count) {
            count = real_part(args, inner - i);
            const int64_t at = r * inner + i;
            each(args, &(max_part){real_in(&args->in[0], at, count, block), at, count, pos.at[0] + i * stride, stride});
        }
}

static void count_maxima(const weir_kernel_args *args, const max_part *part)
{
    const float *y = view_f32(&args->in[1]);
    float *count = args->workspace;
    for (int64_t i = 0; i < part->count; i++)
        count[part->to + i * part->stride] += part->x[i] == y[part->to + i * part->stride];
}

static void share_gradient(const weir_kernel_args *args, const max_part *part)
{
    const float *y = view_f32(&args->in[1]), *dy = view_f32(&args->in[2]), *count = args->workspace;
    float block[REAL_BLOCK], *dx = real_out(&args->out[0], part->at, block);
    for (int64_t i = 0; i < part->count; i++) {
        const int64_t at = part->to + i * part->stride;
        dx[i] = part->x[i] == y[at] ? dy[at] / count[at] : 0;
    }
    real_put(&args->out[0], part->at, part->count, dx);
}

static weir_status max_grad_kernel(const weir_kernel_args *args)
{
    if (!view_count(&args->in[0]))
        return WEIR_OK;
    memset(args->workspace, 0, (size_t)view_count(&args->in[1]) * sizeof(float));
    max_parts(args, count_maxima);
    max_parts(args, share_gradient);
    return WEIR_OK;
}

const weir_op op_max_grad = {
    .name = "max_grad",
    .fields = reduce_fields,
    .field_count = 3,
    .attrs_bytes = sizeof(reduce_attrs),
    .in_min = 3,
    .in_max = 3,
    .out_count = 1,
    .infer = max_grad_infer,
    .signatures = max_grad_signatures,
    .cost = reduce_cost,
    .workspace = max_grad_workspace,
    .kernel = {[WEIR_CPU] = max_grad_kernel},
    .half = WEIR_HALF_FOLLOW,
    .full_in = 1 << 1 | 1 << 2,
};
