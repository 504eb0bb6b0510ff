/* softmax.c: softmax over the last dimension, its gradient, and argmax.
 *
 * A row is normalised while it is in the cache: its maximum, then exp(x - max) into the output, then their sum, then
 * the scaling; three short passes that vectorise are faster than one that does not. The gradient needs the output
 * alone: dx = y (dy - sum(y dy)). Rows of f16 and bf16 lie as f32 in the workspace meanwhile, and are rounded once.
 */
#include "kernels/common/lanes.h"
#include "kernels/common/ops.h"
#include "kernels/common/opts.h"
#include "kernels/common/real.h"
#include "kernels/reduce/fold.h"
#include "kernels/reduce/reduce.h"
#include "kernels/reduce/softmax.h"
#include "kernels/common/rules.h"
#include "kernels/common/view.h"
#include "kernels/common/written.h"

#include <weir/ops.h>

static bool has_rows(const weir_op_args *args, char *error, size_t error_bytes)
{
    if (!args->in[0].shape.rank)
        return REFUSE("a scalar has no last dimension");
    return true;
}

static bool softmax_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    return infer_alike_real(args, error, error_bytes) && has_rows(args, error, error_bytes);
}

static void softmax_signatures(const weir_op_args *args, weir_signature_list *list)
{
    sign_split_alike(args, list, args->in[0].shape.rank - 1);
}

static size_t softmax_workspace(const weir_op_args *args, weir_device_kind kind)
{
    return kind == WEIR_CUDA ? 0 : real_rows_bytes(&args->in[0], args->in_count);
}

static void softmax_cost(const weir_op_args *args, weir_cost *cost)
{
    cost_moved(args, cost, 22 * (double)weir_shape_count(&args->out[0].shape));
}

/* ---- softmax ---- */

static void softmax_row(const float *x, float *y, int64_t count)
{
    const float most = row_max(x, count);
    FAST_LOOP
    for (int64_t i = 0; i < count; i++)
        y[i] = fast_exp(x[i] - most);
    const float share = 1.0f / row_sum(y, count);
    for (int64_t i = 0; i < count; i++)
        y[i] *= share;
}

static weir_status softmax_kernel(const weir_kernel_args *args)
{
    int64_t rows = shape_rows(&args->out[0].shape), count = shape_last(&args->out[0].shape);
    for (int64_t r = 0; r < rows && count; r++) {
        float *y = real_out(&args->out[0], r * count, args->workspace);
        softmax_row(real_in(&args->in[0], r * count, count, args->workspace), y, count);
        real_put(&args->out[0], r * count, count, y);
    }
    return WEIR_OK;
}

static void softmax_backward(weir_grad_args *args)
{
    weir_tensor *in[2] = {args->out[0], args->dout[0]};
    args->din[0] = weir_op_apply(&(weir_apply){args->src, NULL, &op_softmax_grad, NULL, in, 2, NULL}, NULL);
}

const weir_op op_softmax = {
    .name = "softmax",
    .in_min = 1,
    .in_max = 1,
    .out_count = 1,
    .infer = softmax_infer,
    .signatures = softmax_signatures,
    .grad = softmax_backward,
    .cost = softmax_cost,
    .workspace = softmax_workspace,
    .kernel = {[WEIR_CPU] = softmax_kernel},
    .half = WEIR_HALF_BETWEEN,
    .inplace = 1,
    .rows_in = 1,
    .rows_out = 1,
};

weir_tensor *weir_softmax_at(weir_tensor *x, const weir_op_opts *given)
{
    weir_op_opts opts;
    x = op_opts(x, "softmax", given, &opts, sizeof opts);
    return weir_op_apply(&(weir_apply){opts.src, opts.name, &op_softmax, NULL, &x, 1, NULL}, NULL);
}

/* ---- softmax_grad: (y, dy) -> dx ---- */

static void softmax_grad_signatures(const weir_op_args *args, weir_signature_list *list)
{
    softmax_signatures(args, list);
    sign_linear_in(args, list, 1);
}

static void softmax_grad_cost(const weir_op_args *args, weir_cost *cost)
{
    cost_moved(args, cost, 4 * (double)weir_shape_count(&args->out[0].shape));
}

static weir_status softmax_grad_kernel(const weir_kernel_args *args)
{
    int64_t rows = shape_rows(&args->out[0].shape), count = shape_last(&args->out[0].shape);
    float *const block = args->workspace;
    for (int64_t r = 0; r < rows; r++) {
        const float *y = real_in(&args->in[0], r * count, count, block);
        const float *dy = real_in(&args->in[1], r * count, count, block + count);
        float *dx = real_out(&args->out[0], r * count, block + count);
        const float dot = row_dot(y, dy, count);
        FAST_LOOP
        for (int64_t i = 0; i < count; i++)
            dx[i] = softmax_dx(y[i], dy[i], dot);
        real_put(&args->out[0], r * count, count, dx);
    }
    return WEIR_OK;
}

const weir_op op_softmax_grad = {
    .name = "softmax_grad",
    .in_min = 2,
    .in_max = 2,
    .out_count = 1,
    .infer = softmax_infer,
    .signatures = softmax_grad_signatures,
    .cost = softmax_grad_cost,
    .workspace = softmax_workspace,
    .kernel = {[WEIR_CPU] = softmax_grad_kernel},
    .half = WEIR_HALF_BETWEEN,
    .inplace = 2,
    .rows_in = 1 << 0 | 1 << 1,
    .rows_out = 1,
};

/* ---- argmax ---- */

static bool argmax_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    if (!rule_all_real(args, error, error_bytes) || !has_rows(args, error, error_bytes))
        return false;
    args->out[0] = (weir_type){WEIR_I32, args->in[0].shape};
    args->out[0].shape.dim[--args->out[0].shape.rank] = 0;
    return true;
}

static void argmax_signatures(const weir_op_args *args, weir_signature_list *list)
{
    sign_split_alike(args, list, args->out[0].shape.rank);
}

static void argmax_cost(const weir_op_args *args, weir_cost *cost)
{
    cost_moved(args, cost, (double)weir_shape_count(&args->in[0].shape));
}

static int32_t argmax_row(const float *x, int64_t count)
{
    const float most = fold_max_row(x, count);
    int64_t i = 0;
    while (i + 1 < count && x[i] != most && (most == most || x[i] == x[i]))
        i++;
    return (int32_t)i;
}

static weir_status argmax_kernel(const weir_kernel_args *args)
{
    int32_t *y = view_i32(&args->out[0]);
    int64_t rows = view_count(&args->out[0]), count = shape_last(&args->in[0].shape);
    for (int64_t r = 0; r < rows && count; r++)
        y[r] = argmax_row(real_in(&args->in[0], r * count, count, args->workspace), count);
    return WEIR_OK;
}

const weir_op op_argmax = {
    .name = "argmax",
    .in_min = 1,
    .in_max = 1,
    .out_count = 1,
    .infer = argmax_infer,
    .signatures = argmax_signatures,
    .cost = argmax_cost,
    .workspace = softmax_workspace,
    .kernel = {[WEIR_CPU] = argmax_kernel},
    .half = WEIR_HALF_FOLLOW,
};

weir_tensor *weir_argmax_at(weir_tensor *x, const weir_op_opts *given)
{
    weir_op_opts opts;
    x = op_opts(x, "argmax", given, &opts, sizeof opts);
    return weir_op_apply(&(weir_apply){opts.src, opts.name, &op_argmax, NULL, &x, 1, NULL}, NULL);
}

/* ---- along any dimension: it is moved behind the others, and comes back as 1 if it is kept ---- */

static weir_tensor *axis_moved_last(weir_tensor *x, int axis, int rank, weir_src src)
{
    weir_dims_opts order = {.size = sizeof order, .src = src};
    for (int d = 0, at = 0; d < rank; d++)
        if (d != axis)
            order.dims[at++] = d;
    order.dims[rank - 1] = axis;
    return axis == rank - 1 ? x : weir_transpose_at(x, &order);
}

static weir_tensor *arg_along(const char *what, weir_tensor *x, const weir_arg_opts *opts, bool least)
{
    const weir_shape shape = weir_tensor_type(x).shape;
    const bool given = opts->axis || written_member(opts->written, ".axis");
    const int axis = !given ? shape.rank - 1 : opts->axis < 0 ? opts->axis + shape.rank : opts->axis;
    weir_src src = opts->src;
    if (weir_tensor_poisoned(x) || !shape.rank)
        return x ? weir_argmax_at(x, WEIR_OPTS_AT(src, weir_op_opts)) : weir_mistake(NULL, src, "%s: input 0 is NULL", what);
    if (axis < 0 || axis >= shape.rank)
        return weir_mistake(x, src, "%s: axis %d is not one of the %d dimensions", what, opts->axis, shape.rank);
    if (least)
        x = weir_neg_at(x, WEIR_OPTS_AT(src, weir_op_opts));
    x = weir_argmax_at(axis_moved_last(x, axis, shape.rank, src),
                       WEIR_OPTS_AT(src, weir_op_opts, .name = opts->keep ? NULL : opts->name));
    weir_dims_opts kept = {.size = sizeof kept, .src = src, .name = opts->name};
    for (int d = 0; d < shape.rank; d++)
        kept.dims[d] = d == axis ? 1 : shape.dim[d];
    return opts->keep ? weir_reshape_at(x, &kept) : x;
}

weir_tensor *weir_argmax_along_at(weir_tensor *x, const weir_arg_opts *given)
{
    weir_arg_opts opts;
    x = op_opts(x, "argmax", given, &opts, sizeof opts);
    return arg_along("argmax", x, &opts, false);
}

weir_tensor *weir_argmin_along_at(weir_tensor *x, const weir_arg_opts *given)
{
    weir_arg_opts opts;
    x = op_opts(x, "argmin", given, &opts, sizeof opts);
    return arg_along("argmin", x, &opts, true);
}
