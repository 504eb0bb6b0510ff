/* kernels/conv/conv.c: convolution, transposed convolution and the gradient by their weight: rules, and the DSL.
 *
 *     conv             x [batch, in, d...]   w [out, in / groups, k...]   b [out]   y [batch, out, d'...]
 *     conv_transpose   x [batch, in, d...]   w [in, out / groups, k...]   b [out]   y [batch, out, d'...]
 *     conv_dw          x and dy of a conv, or dy and x of a conv_transpose -> dw
 *
 * Each is the gradient of the others: by its input a conv has a conv_transpose and the reverse; the sum of dy over all but the
 * channels is that of the bias.
 *
 * Over a mesh axis: the batch (the weight whole; dw comes out as partial sums), the output channels, or the input channels, whose
 * products are terms of a sum, as in tensor parallelism (Shoeybi et al. 2019, arXiv:1909.08053). With several groups both kinds
 * of channels are split along the groups, together.
 *
 * x, w and dy may be f16 or bf16, both factors the same. y then is too, or f32 where the graph wants that; dw and the bias are f32.
 */
#include "kernels/conv/sizes.h"
#include "kernels/matmul/factors.h"
#include "kernels/common/ops.h"
#include "kernels/common/opts.h"
#include "kernels/common/param.h"
#include "kernels/common/real.h"
#include "kernels/common/rules.h"

#include <math.h>
#include <string.h>
#include <weir/ops.h>

/* ---- rules that the three share ---- */

/* Dtypes, ranks and attributes. `second` is the name of input 1. */
static bool operands_right(const weir_op_args *args, const char *second, char *error, size_t error_bytes)
{
    const conv_attrs *attrs = args->attrs;
    const int rank = args->in[0].shape.rank;
    if (!factors_are_real(args, error, error_bytes) || !window_right(&attrs->window, rank, error, error_bytes))
        return false;
    if (args->in[1].shape.rank != rank)
        return REFUSE("x has %d dimensions and %s %d; they must be equal", rank, second, args->in[1].shape.rank);
    return true;
}

static bool kernel_right(const weir_op_args *args, char *error, size_t error_bytes)
{
    const conv_attrs *attrs = args->attrs;
    const weir_shape *w = &args->in[1].shape;
    for (int d = 2; d < w->rank; d++)
        if (w->dim[d] != attrs->window.kernel[d - 2])
            return REFUSE("dimension %d of the weight is %lld; the kernel has %lld there", d, (long long)w->dim[d],
                          (long long)attrs->window.kernel[d - 2]);
    return true;
}

static bool bias_right(const weir_op_args *args, int64_t channels, char *error, size_t error_bytes)
{
    if (args->in_count < 3)
        return true;
    const weir_type *bias = &args->in[2];
    if (bias->dtype != WEIR_F32)
        return REFUSE("the bias is %s, not f32", weir_dtype_name(bias->dtype));
    return (bias->shape.rank == 1 && bias->shape.dim[0] == channels) ||
           REFUSE("the bias must have one dimension, of %lld channels", (long long)channels);
}

static bool groups_right(const conv_attrs *attrs, int64_t channels, const char *what, char *error, size_t error_bytes)
{
    if (attrs->groups < 1)
        return REFUSE(".groups is %lld; it must be at least 1", (long long)attrs->groups);
    return channels % attrs->groups == 0 ||
           REFUSE("%lld groups do not divide %lld channels of %s", (long long)attrs->groups, (long long)channels, what);
}

static void signature(weir_signature_list *list, weir_sbp x, weir_sbp w, weir_sbp b, weir_sbp y, int64_t granules)
{
    weir_signature *s = weir_signature_new(list);
    s->in[0] = x;
    s->in[1] = w;
    s->in[2] = b;
    s->out[0] = y;
    s->granules = granules;
}

/* A bias has one term in each term of a sum, as that of a linear layer. */
static void sign_conv(weir_signature_list *list, int64_t groups, int w_in, int w_out)
{
    signature(list, WEIR_S(0), WEIR_B, WEIR_B, WEIR_S(0), 0);
    if (groups == 1) {
        signature(list, WEIR_B, WEIR_S(w_out), WEIR_S(0), WEIR_S(1), 0);
        signature(list, WEIR_S(1), WEIR_S(w_in), WEIR_P, WEIR_P, 0);
    } else {
        signature(list, WEIR_S(1), WEIR_S(0), WEIR_S(0), WEIR_S(1), groups);
    }
    signature(list, WEIR_P, WEIR_B, WEIR_P, WEIR_P, 0);
}

static void cost_of(const weir_op_args *args, const weir_shape *large, const weir_shape *small, const weir_shape *weight,
                    weir_cost *cost)
{
    const conv_attrs *attrs = args->attrs;
    const conv_sizes s = conv_sizes_of(&attrs->window, large, small, weight);
    cost_moved(args, cost, 2.0 * (double)weir_shape_count(small) * (double)(s.large_channels * s.taps) +
                               (args->in_count > 2 ? (double)weir_shape_count(&args->out[0].shape) : 0));
}

/* ---- conv ---- */

static bool conv_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    const conv_attrs *attrs = args->attrs;
    const weir_shape *x = &args->in[0].shape, *w = &args->in[1].shape;
    if (!operands_right(args, "the weight", error, error_bytes) || !kernel_right(args, error, error_bytes))
        return false;
    const int64_t in = w->dim[1], groups = in ? x->dim[1] / in : x->dim[1] == 0;
    if (groups * in != x->dim[1] || (!groups && w->dim[0]))
        return REFUSE("x has %lld channels, which are not groups of the weight's %lld", (long long)x->dim[1], (long long)in);
    if (groups && w->dim[0] % groups)
        return REFUSE("%lld groups do not divide %lld output channels", (long long)groups, (long long)w->dim[0]);
    args->out[0] = (weir_type){args->in[0].dtype, *x};
    args->out[0].shape.dim[1] = w->dim[0];
    return bias_right(args, w->dim[0], error, error_bytes) &&
           window_shrinks(&attrs->window, false, x, &args->out[0].shape, error, error_bytes);
}

static int64_t groups_of(const weir_shape *x, const weir_shape *w)
{
    return w->dim[1] ? x->dim[1] / w->dim[1] : 1;
}

static void conv_signatures(const weir_op_args *args, weir_signature_list *list)
{
    sign_conv(list, groups_of(&args->in[0].shape, &args->in[1].shape), 1, 0);
}

static void conv_cost(const weir_op_args *args, weir_cost *cost)
{
    cost_of(args, &args->in[0].shape, &args->out[0].shape, &args->in[1].shape, cost);
}

static weir_tensor *apply(const weir_grad_args *args, const weir_op *op, weir_tensor *a, weir_tensor *b, const conv_attrs *attrs)
{
    weir_tensor *in[2] = {a, b};
    return weir_op_apply(&(weir_apply){args->src, NULL, op, NULL, in, 2, attrs}, NULL);
}

/* The sum over all but the channels. */
static weir_tensor *bias_grad(const weir_grad_args *args)
{
    weir_reduce_opts opts = {.size = sizeof opts, .src = args->src, .axes = {0, 2, 3, 4},
                             .axis_count = weir_tensor_type(args->out[0]).shape.rank - 1};
    return weir_sum_at(args->dout[0], &opts);
}

static void conv_grad(weir_grad_args *args)
{
    const weir_shape x = weir_tensor_type(args->in[0]).shape, w = weir_tensor_type(args->in[1]).shape;
    const weir_shape y = weir_tensor_type(args->out[0]).shape;
    conv_attrs attrs = *(const conv_attrs *)args->attrs;
    attrs.groups = groups_of(&x, &w);
    if (args->needed[1])
        args->din[1] = apply(args, &op_conv_dw, args->in[0], args->dout[0], &attrs);
    for (int d = 0; d < x.rank - 2; d++) /* elements at the end that no window reads */
        attrs.output_pad[d] = x.dim[d + 2] + attrs.window.pad[d] + attrs.window.pad_end[d] -
                              attrs.window.dilation[d] * (attrs.window.kernel[d] - 1) - 1 -
                              (y.dim[d + 2] - 1) * attrs.window.stride[d];
    if (args->needed[0])
        args->din[0] = apply(args, &op_conv_transpose, args->dout[0], args->in[1], &attrs);
    if (args->in_count > 2 && args->needed[2])
        args->din[2] = bias_grad(args);
}

#define CONV_OP(opname, most, ...)              \
    const weir_op op_##opname = {               \
        .name = #opname,                        \
        .fields = conv_fields,                  \
        .field_count = CONV_FIELDS,             \
        .attrs_bytes = sizeof(conv_attrs),      \
        .in_min = 2,                            \
        .in_max = most,                         \
        .out_count = 1,                         \
        .infer = opname##_infer,                \
        .signatures = opname##_signatures,      \
        .cost = opname##_cost,                  \
        .half = WEIR_HALF_WANT,                 \
        __VA_ARGS__                             \
    };

CONV_OP(conv, 3, .fits = fits_either, .grad = conv_grad, .workspace = conv_workspace, .kernel = {[WEIR_CPU] = conv_cpu},
        .full_in = 1 << 2, .either_out = true)

/* ---- conv_transpose ---- */

static bool transpose_infer(const weir_op_args *args, weir_type *out, int64_t groups, char *error, size_t error_bytes)
{
    const conv_attrs *attrs = args->attrs;
    const weir_shape *x = &args->in[0].shape, *w = &args->in[1].shape;
    if (x->dim[1] != w->dim[0])
        return REFUSE("x has %lld channels and the weight %lld", (long long)x->dim[1], (long long)w->dim[0]);
    *out = (weir_type){args->in[0].dtype, *x};
    if (w->dim[1] > INT64_MAX / 4 / groups)
        return REFUSE("%lld groups of %lld channels are too many", (long long)groups, (long long)w->dim[1]);
    out->shape.dim[1] = w->dim[1] * groups;
    return bias_right(args, out->shape.dim[1], error, error_bytes) && window_grows(attrs, x, &out->shape, error, error_bytes);
}

static bool conv_transpose_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    const conv_attrs *attrs = args->attrs;
    return operands_right(args, "the weight", error, error_bytes) && kernel_right(args, error, error_bytes) &&
           groups_right(attrs, args->in[1].shape.dim[0], "the weight", error, error_bytes) &&
           transpose_infer(args, &args->out[0], attrs->groups, error, error_bytes);
}

/* The output tells how many of the groups the shards have. */
static bool conv_transpose_fits(const weir_op_args *local, char *error, size_t error_bytes)
{
    weir_type out;
    const weir_type *given = &local->out[0];
    if (!operands_right(local, "the weight", error, error_bytes) || !kernel_right(local, error, error_bytes))
        return false;
    const weir_shape *w = &local->in[1].shape;
    const int64_t channels = given->shape.rank > 1 ? given->shape.dim[1] : 0;
    const int64_t groups = w->dim[1] && channels > w->dim[1] ? channels / w->dim[1] : 1;
    if (w->dim[0] % groups)
        return REFUSE("%lld groups do not divide %lld channels of the weight", (long long)groups, (long long)w->dim[0]);
    if (!transpose_infer(local, &out, groups, error, error_bytes))
        return false;
    const bool dtype = given->dtype == out.dtype || given->dtype == WEIR_F32;
    return (dtype && weir_shape_equal(&given->shape, &out.shape)) || REFUSE("the output does not have the type of the result");
}

static void conv_transpose_signatures(const weir_op_args *args, weir_signature_list *list)
{
    sign_conv(list, ((const conv_attrs *)args->attrs)->groups, 0, 1);
}

static void conv_transpose_cost(const weir_op_args *args, weir_cost *cost)
{
    cost_of(args, &args->out[0].shape, &args->in[0].shape, &args->in[1].shape, cost);
}

static void conv_transpose_grad(weir_grad_args *args)
{
    conv_attrs attrs = *(const conv_attrs *)args->attrs;
    memset(attrs.output_pad, 0, sizeof attrs.output_pad);
    if (args->needed[0])
        args->din[0] = apply(args, &op_conv, args->dout[0], args->in[1], &attrs);
    if (args->needed[1])
        args->din[1] = apply(args, &op_conv_dw, args->dout[0], args->in[0], &attrs);
    if (args->in_count > 2 && args->needed[2])
        args->din[2] = bias_grad(args);
}

CONV_OP(conv_transpose, 3, .fits = conv_transpose_fits, .grad = conv_transpose_grad, .workspace = conv_dx_workspace,
        .kernel = {[WEIR_CPU] = conv_dx_cpu}, .full_in = 1 << 2, .either_out = true)

/* ---- conv_dw ---- */

static bool dw_infer(const weir_op_args *args, weir_type *out, int64_t groups, char *error, size_t error_bytes)
{
    const conv_attrs *attrs = args->attrs;
    const weir_shape *x = &args->in[0].shape, *dy = &args->in[1].shape;
    weir_shape y = *dy;
    if (x->dim[0] != dy->dim[0])
        return REFUSE("batches of %lld and %lld differ", (long long)x->dim[0], (long long)dy->dim[0]);
    if (!window_shrinks(&attrs->window, false, x, &y, error, error_bytes))
        return false;
    for (int d = 2; d < x->rank; d++)
        if (dy->dim[d] != y.dim[d])
            return REFUSE("dimension %d of dy is %lld; the window has %lld positions there", d, (long long)dy->dim[d],
                          (long long)y.dim[d]);
    *out = (weir_type){WEIR_F32, {x->rank, {dy->dim[1], x->dim[1] / groups}}};
    memcpy(out->shape.dim + 2, attrs->window.kernel, (size_t)(x->rank - 2) * sizeof *out->shape.dim);
    return true;
}

static bool conv_dw_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    const conv_attrs *attrs = args->attrs;
    return operands_right(args, "dy", error, error_bytes) && groups_right(attrs, args->in[0].shape.dim[1], "x", error, error_bytes) &&
           groups_right(attrs, args->in[1].shape.dim[1], "dy", error, error_bytes) &&
           dw_infer(args, &args->out[0], attrs->groups, error, error_bytes);
}

static bool conv_dw_fits(const weir_op_args *local, char *error, size_t error_bytes)
{
    weir_type out;
    const weir_type *given = &local->out[0];
    if (!operands_right(local, "dy", error, error_bytes))
        return false;
    const int64_t x = local->in[0].shape.dim[1], dy = local->in[1].shape.dim[1];
    const int64_t in = given->shape.rank > 1 ? given->shape.dim[1] : 0, groups = in && x > in ? x / in : 1;
    if (x % groups || dy % groups)
        return REFUSE("%lld groups do not divide %lld channels of x and %lld of dy", (long long)groups, (long long)x, (long long)dy);
    if (!dw_infer(local, &out, groups, error, error_bytes))
        return false;
    return (given->dtype == WEIR_F32 && weir_shape_equal(&given->shape, &out.shape)) ||
           REFUSE("the output does not have the type of the weight's gradient");
}

static void conv_dw_signatures(const weir_op_args *args, weir_signature_list *list)
{
    const int64_t groups = ((const conv_attrs *)args->attrs)->groups;
    signature(list, WEIR_S(0), WEIR_S(0), WEIR_B, WEIR_P, 0);
    if (groups == 1) {
        signature(list, WEIR_B, WEIR_S(1), WEIR_B, WEIR_S(0), 0);
        signature(list, WEIR_S(1), WEIR_B, WEIR_B, WEIR_S(1), 0);
    } else {
        signature(list, WEIR_S(1), WEIR_S(1), WEIR_B, WEIR_S(0), groups);
    }
    signature(list, WEIR_P, WEIR_B, WEIR_B, WEIR_P, 0);
    signature(list, WEIR_B, WEIR_P, WEIR_B, WEIR_P, 0);
}

static void conv_dw_cost(const weir_op_args *args, weir_cost *cost)
{
    cost_of(args, &args->in[0].shape, &args->in[1].shape, &args->out[0].shape, cost);
}

CONV_OP(conv_dw, 2, .fits = conv_dw_fits, .workspace = conv_dw_workspace, .kernel = {[WEIR_CPU] = conv_dw_cpu}, .accumulates = true)

/* ---- the DSL ---- */

static weir_tensor *conv_apply(const weir_op *op, weir_tensor *x, weir_tensor *weight, weir_tensor *bias, const conv_attrs *attrs,
                               weir_src src, const char *name)
{
    weir_tensor *in[3] = {x, weight, bias};
    return weir_op_apply(&(weir_apply){src, name, op, NULL, in, bias ? 3 : 2, attrs}, NULL);
}

/* The kernel's sizes from the weight; it is poisoned, or NULL, if there are none. */
static conv_attrs attrs_with(weir_tensor *x, weir_tensor *weight, const weir_conv_with_opts *opts)
{
    int64_t kernel[WINDOW_DIMS] = {0};
    conv_attrs attrs = {.groups = opts->groups ? opts->groups : 1};
    if (!x || !weight || weir_tensor_poisoned(x) || weir_tensor_poisoned(weight))
        return attrs;
    const weir_shape w = weir_tensor_type(weight).shape;
    for (int d = 0; d < WINDOW_DIMS && d + 2 < w.rank; d++)
        kernel[d] = w.dim[d + 2];
    attrs.window = window_options(weir_tensor_type(x).shape.rank, kernel, opts->stride, opts->pad,
                                  window_pads_end(opts->written, opts->pad, opts->pad_end), opts->dilation);
    memcpy(attrs.output_pad, opts->output_pad, sizeof attrs.output_pad);
    return attrs;
}

/* Whether .groups, if it is given, is what the shapes say. */
static weir_tensor *check_groups(weir_tensor *x, weir_tensor *weight, const weir_conv_with_opts *opts)
{
    if (!opts->groups || !x || !weight || weir_tensor_poisoned(x) || weir_tensor_poisoned(weight))
        return x;
    const weir_shape in = weir_tensor_type(x).shape, w = weir_tensor_type(weight).shape;
    if (in.rank > 1 && w.rank > 1 && opts->groups * w.dim[1] != in.dim[1])
        return weir_mistake(x, opts->src, "conv_with: .groups is %lld, but x has %lld channels and the weight is for %lld in a group",
                            (long long)opts->groups, (long long)in.dim[1], (long long)w.dim[1]);
    return x;
}

weir_tensor *weir_conv_with_at(weir_tensor *x, weir_tensor *weight, weir_tensor *bias, const weir_conv_with_opts *given)
{
    weir_conv_with_opts opts;
    x = op_opts(x, "conv_with", given, &opts, sizeof opts);
    conv_attrs attrs = attrs_with(x, weight, &opts);
    for (int d = 0; d < WINDOW_DIMS; d++)
        if (opts.output_pad[d] && x)
            x = weir_mistake(x, opts.src, "conv_with: .output_pad[%d] is %lld; only a transposed convolution has it", d,
                             (long long)opts.output_pad[d]);
    attrs.groups = 1;
    memset(attrs.output_pad, 0, sizeof attrs.output_pad);
    return conv_apply(&op_conv, check_groups(x, weight, &opts), weight, bias, &attrs, opts.src, opts.name);
}

weir_tensor *weir_conv_transpose_with_at(weir_tensor *x, weir_tensor *weight, weir_tensor *bias, const weir_conv_with_opts *given)
{
    weir_conv_with_opts opts;
    x = op_opts(x, "conv_transpose_with", given, &opts, sizeof opts);
    const conv_attrs attrs = attrs_with(x, weight, &opts);
    return conv_apply(&op_conv_transpose, x, weight, bias, &attrs, opts.src, opts.name);
}

/* [out, in / groups, k...]; kernel sizes that are wrong are refused by the op. */
static weir_tensor *conv_weight(weir_tensor *x, int64_t out, int64_t in, const char *name, const weir_conv_opts *opts)
{
    weir_param_opts param = {.shape = {out, in}, .src = opts->src, .frozen = opts->frozen};
    double terms = (double)in;
    for (int d = 0; d < WINDOW_DIMS && opts->kernel[d]; d++) {
        param.shape[d + 2] = opts->kernel[d];
        terms *= (double)opts->kernel[d];
    }
    param.init = init_or(opts->init, (weir_init)WEIR_NORMAL(1 / sqrt(terms)));
    memcpy(param.sbp, opts->weight, sizeof param.sbp);
    return op_param(x, name, "weight", param);
}

/* Where the output channels of the weight are split, so is the bias. */
static weir_tensor *conv_bias(weir_tensor *x, int64_t out, const char *name, const weir_conv_opts *opts)
{
    weir_param_opts param = {.shape = {out}, .src = opts->src, .frozen = opts->frozen};
    for (int axis = 0; axis < WEIR_AXES_MAX; axis++)
        if (opts->weight[axis] == WEIR_S(0))
            param.sbp[axis] = WEIR_S(0);
    return op_param(x, name, "bias", param);
}

/* A half x meets a weight of its dtype: the parameter cast to it. */
static weir_tensor *weight_like(weir_dtype dtype, weir_tensor *weight, const char *name, weir_src src)
{
    char path[512];
    if (!dtype_half(dtype) || weir_tensor_poisoned(weight))
        return weight;
    snprintf(path, sizeof path, "%s/weight>%s", name, weir_dtype_name(dtype));
    return weir_cast_at(weight, dtype, WEIR_OPTS_AT(src, weir_op_opts, .name = path));
}

/* NULL, or the mistake in the sizes of a layer. */
static weir_tensor *layer_mistake(weir_tensor *x, const weir_shape *shape, int64_t out, const weir_conv_opts *opts)
{
    int kernels = 0;
    while (kernels < WINDOW_DIMS && opts->kernel[kernels] > 0)
        kernels++;
    if (shape->rank < 3 || shape->rank > WINDOW_DIMS + 2)
        return weir_mistake(x, opts->src, "conv: x has %d dimensions; it needs a batch, channels and 1 to %d more", shape->rank,
                            WINDOW_DIMS);
    if (kernels != shape->rank - 2)
        return weir_mistake(x, opts->src, "conv: the kernel has %d sizes; x has %d spatial dimensions", kernels, shape->rank - 2);
    if (opts->groups < 0)
        return weir_mistake(x, opts->src, "conv: .groups is %lld; it must be at least 1", (long long)opts->groups);
    const int64_t groups = opts->groups ? opts->groups : 1;
    if (out < 1 || out % groups || shape->dim[1] % groups)
        return weir_mistake(x, opts->src, "conv: %lld input and %lld output channels; both must be multiples of %lld groups",
                            (long long)shape->dim[1], (long long)out, (long long)groups);
    return NULL;
}

weir_tensor *weir_conv_at(weir_tensor *x, int64_t out, const weir_conv_opts *given)
{
    weir_conv_opts opts;
    x = op_opts(x, "conv", given, &opts, sizeof opts);
    if (!x || weir_tensor_poisoned(x))
        return op_of_none(&op_conv, x, opts.src);
    const weir_type type = weir_tensor_type(x);
    weir_tensor *wrong = layer_mistake(x, &type.shape, out, &opts);
    if (wrong)
        return wrong;
    const char *name = weir_name_for(x, opts.name, "conv");
    const int64_t groups = opts.groups ? opts.groups : 1;
    weir_tensor *weight = conv_weight(x, out, type.shape.dim[1] / groups, name, &opts);
    weight = weight_like(type.dtype, weight, name, opts.src);
    weir_tensor *bias = opts.no_bias ? NULL : conv_bias(x, out, name, &opts);
    const conv_attrs attrs = {.window = window_options(type.shape.rank, opts.kernel, opts.stride, opts.pad,
                                                       window_pads_end(opts.written, opts.pad, opts.pad_end), opts.dilation),
                              .groups = 1};
    return conv_apply(&op_conv, x, weight, bias, &attrs, opts.src, name);
}
