/* slice.c: slice, pad and concat: copies of whole runs along one dimension.
 *
 * A tensor is seen as [outside, axis, inside]: the elements inside the axis and those of a range of it lie together, so
 * each of the three ops is one memcpy per outside index. slice and pad are each other's gradients.
 *
 * The axis itself is never split, so the positions in the attributes are also local ones.
 */
#include "kernels/shape/axis.h"
#include "kernels/shape/shape.h"

#include "kernels/common/ops.h"
#include "kernels/common/param.h"
#include "kernels/common/rules.h"
#include "kernels/common/view.h"

#include "graph/base/base.h"
#include "kernels/common/opts.h"

#include <string.h>
#include <weir/ops.h>

static const weir_field range_fields[] = {
    WEIR_FIELD_INT(range_attrs, axis),
    WEIR_FIELD_INT(range_attrs, range),
};

static const weir_field concat_fields[] = {WEIR_FIELD_INT(concat_attrs, axis)};

static void range_signatures(const weir_op_args *args, weir_signature_list *list)
{
    const range_attrs *attrs = args->attrs;
    sign_but(args, list, axis_of(attrs->axis, args->in[0].shape.rank));
}

/* A slice reads no more than it writes. */
static void range_cost(const weir_op_args *args, weir_cost *cost)
{
    double in = (double)type_bytes(&args->in[0]), out = (double)type_bytes(&args->out[0]);
    *cost = (weir_cost){.bytes = out + (in < out ? in : out)};
}

/* ---- slice ---- */

static bool slice_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    const range_attrs *attrs = args->attrs;
    const weir_shape *in = &args->in[0].shape;
    if (!axis_is_right(attrs->axis, in->rank, error, error_bytes))
        return false;
    int axis = axis_of(attrs->axis, in->rank);
    int64_t first = attrs->range[0], count = attrs->range[1];
    if (first < 0 || count < 1 || count > in->dim[axis] || first > in->dim[axis] - count)
        return REFUSE("%lld elements from %lld on are not all within dimension %d, which has %lld", (long long)count,
                      (long long)first, axis, (long long)in->dim[axis]);
    args->out[0] = args->in[0];
    args->out[0].shape.dim[axis] = count;
    return true;
}

static weir_status slice_kernel(const weir_kernel_args *args)
{
    const range_attrs *attrs = args->attrs;
    const weir_view *in = &args->in[0], *out = &args->out[0];
    int axis = axis_of(attrs->axis, in->shape.rank);
    size_t step = step_bytes(in, axis);
    size_t row_in = (size_t)in->shape.dim[axis] * step, row_out = (size_t)out->shape.dim[axis] * step;
    const char *x = (const char *)in->data + (size_t)attrs->range[0] * step;
    for (int64_t r = 0; r < outside(&in->shape, axis); r++)
        memcpy((char *)out->data + (size_t)r * row_out, x + (size_t)r * row_in, row_out);
    return WEIR_OK;
}

static void slice_backward(weir_grad_args *args)
{
    const range_attrs *attrs = args->attrs;
    weir_type type = weir_tensor_type(args->in[0]);
    int axis = axis_of(attrs->axis, type.shape.rank);
    int64_t after = type.shape.dim[axis] - attrs->range[0] - attrs->range[1];
    args->din[0] = shape_pad(args->dout[0], axis, attrs->range[0], after, args->src);
}

const weir_op op_slice = {
    .name = "slice",
    .fields = range_fields,
    .field_count = 2,
    .attrs_bytes = sizeof(range_attrs),
    .in_min = 1,
    .in_max = 1,
    .out_count = 1,
    .infer = slice_infer,
    .signatures = range_signatures,
    .grad = slice_backward,
    .cost = range_cost,
    .kernel = {[WEIR_CPU] = slice_kernel},
    .half = WEIR_HALF_FOLLOW,
};

static weir_tensor *slice_by_steps(weir_tensor *x, const step_attrs *given, const weir_slice_opts *opts)
{
    const weir_shape shape = weir_tensor_type(x).shape;
    step_attrs attrs = *given;
    char error[128];
    if (weir_tensor_poisoned(x))
        return op_of_none(&op_slice_step, x, opts->src);
    if (!axis_is_right(attrs.axis, shape.rank, error, sizeof error))
        return weir_mistake(x, opts->src, "slice: %s", error);
    attrs.size = shape.dim[axis_of(attrs.axis, shape.rank)];
    return weir_op_apply(&(weir_apply){opts->src, opts->name, &op_slice_step, NULL, &x, 1, &attrs}, NULL);
}

weir_tensor *weir_slice_at(weir_tensor *x, int axis, int64_t first, int64_t count, const weir_slice_opts *given)
{
    weir_slice_opts opts;
    x = op_opts(x, "slice", given, &opts, sizeof opts);
    range_attrs attrs = {axis, {first, count}};
    if (opts.step && opts.step != 1)
        return slice_by_steps(x, &(step_attrs){axis, first, count, opts.step, 0}, &opts);
    return weir_op_apply(&(weir_apply){opts.src, opts.name, &op_slice, NULL, &x, 1, &attrs}, NULL);
}

/* ---- pad ---- */

static bool pad_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    const range_attrs *attrs = args->attrs;
    const int64_t most = INT64_MAX / 4;
    args->out[0] = args->in[0];
    if (!axis_is_right(attrs->axis, args->in[0].shape.rank, error, error_bytes))
        return false;
    if (attrs->range[0] < 0 || attrs->range[1] < 0 || attrs->range[0] > most || attrs->range[1] > most)
        return REFUSE("%lld zeros before and %lld after", (long long)attrs->range[0], (long long)attrs->range[1]);
    args->out[0].shape.dim[axis_of(attrs->axis, args->in[0].shape.rank)] += attrs->range[0] + attrs->range[1];
    return true;
}

static weir_status pad_kernel(const weir_kernel_args *args)
{
    const range_attrs *attrs = args->attrs;
    const weir_view *in = &args->in[0], *out = &args->out[0];
    int axis = axis_of(attrs->axis, in->shape.rank);
    size_t step = step_bytes(in, axis), before = (size_t)attrs->range[0] * step, after = (size_t)attrs->range[1] * step;
    size_t row = (size_t)in->shape.dim[axis] * step;
    const char *x = in->data;
    char *y = out->data;
    for (int64_t r = 0; r < outside(&in->shape, axis); r++, x += row, y += before + row + after) {
        memset(y, 0, before);
        memcpy(y + before, x, row);
        memset(y + before + row, 0, after);
    }
    return WEIR_OK;
}

static void pad_backward(weir_grad_args *args)
{
    const range_attrs *attrs = args->attrs;
    weir_type type = weir_tensor_type(args->in[0]);
    int axis = axis_of(attrs->axis, type.shape.rank);
    args->din[0] = weir_slice_at(args->dout[0], axis, attrs->range[0], type.shape.dim[axis],
                                 WEIR_OPTS_AT(args->src, weir_slice_opts));
}

const weir_op op_pad = {
    .name = "pad",
    .fields = range_fields,
    .field_count = 2,
    .attrs_bytes = sizeof(range_attrs),
    .in_min = 1,
    .in_max = 1,
    .out_count = 1,
    .infer = pad_infer,
    .signatures = range_signatures,
    .grad = pad_backward,
    .cost = range_cost,
    .kernel = {[WEIR_CPU] = pad_kernel},
    .half = WEIR_HALF_FOLLOW,
};

weir_tensor *shape_pad(weir_tensor *x, int axis, int64_t before, int64_t after, weir_src src)
{
    range_attrs attrs = {axis, {before, after}};
    return weir_op_apply(&(weir_apply){src, NULL, &op_pad, NULL, &x, 1, &attrs}, NULL);
}

/* ---- concat ---- */

/* Whether the two may follow each other along the axis. */
static bool follows(const weir_type *a, const weir_type *b, int axis)
{
    weir_shape like = b->shape;
    if (a->dtype != b->dtype || a->shape.rank != b->shape.rank)
        return false;
    like.dim[axis] = a->shape.dim[axis];
    return weir_shape_equal(&a->shape, &like);
}

static bool concat_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    const concat_attrs *attrs = args->attrs;
    char first[RULES_SHAPE_TEXT], other[RULES_SHAPE_TEXT];
    if (!axis_is_right(attrs->axis, args->in[0].shape.rank, error, error_bytes))
        return false;
    int axis = axis_of(attrs->axis, args->in[0].shape.rank);
    args->out[0] = args->in[0];
    for (int i = 1; i < args->in_count; i++) {
        if (!follows(&args->in[0], &args->in[i], axis))
            return REFUSE("%s %s and %s %s differ beside dimension %d", weir_dtype_name(args->in[0].dtype),
                          shape_text(&args->in[0].shape, first, sizeof first), weir_dtype_name(args->in[i].dtype),
                          shape_text(&args->in[i].shape, other, sizeof other), axis);
        args->out[0].shape.dim[axis] += args->in[i].shape.dim[axis];
    }
    return true;
}

static void concat_signatures(const weir_op_args *args, weir_signature_list *list)
{
    const concat_attrs *attrs = args->attrs;
    sign_but(args, list, axis_of(attrs->axis, args->in[0].shape.rank));
}

static weir_status concat_kernel(const weir_kernel_args *args)
{
    const concat_attrs *attrs = args->attrs;
    const weir_view *out = &args->out[0];
    int axis = axis_of(attrs->axis, out->shape.rank);
    size_t step = step_bytes(out, axis), row_out = (size_t)out->shape.dim[axis] * step;
    char *y = out->data;
    for (int i = 0; i < args->in_count; i++) {
        size_t row = (size_t)args->in[i].shape.dim[axis] * step;
        for (int64_t r = 0; r < outside(&out->shape, axis); r++)
            memcpy(y + (size_t)r * row_out, (const char *)args->in[i].data + (size_t)r * row, row);
        y += row;
    }
    return WEIR_OK;
}

static void concat_backward(weir_grad_args *args)
{
    const concat_attrs *attrs = args->attrs;
    int64_t first = 0;
    for (int i = 0; i < args->in_count; i++) {
        weir_type type = weir_tensor_type(args->in[i]);
        int axis = axis_of(attrs->axis, type.shape.rank);
        if (args->needed[i])
            args->din[i] = weir_slice_at(args->dout[0], axis, first, type.shape.dim[axis],
                                         WEIR_OPTS_AT(args->src, weir_slice_opts));
        first += type.shape.dim[axis];
    }
}

const weir_op op_concat = {
    .name = "concat",
    .fields = concat_fields,
    .field_count = 1,
    .attrs_bytes = sizeof(concat_attrs),
    .in_min = 1,
    .in_max = WEIR_ARGS_MAX,
    .out_count = 1,
    .infer = concat_infer,
    .signatures = concat_signatures,
    .grad = concat_backward,
    .kernel = {[WEIR_CPU] = concat_kernel},
    .half = WEIR_HALF_FOLLOW,
};

weir_tensor *weir_concat_at(int axis, const weir_concat_opts *given)
{
    weir_concat_opts opts;
    weir_tensor *first = op_opts(given ? given->x[0] : NULL, "concat", given, &opts, sizeof opts);
    if (first != opts.x[0])
        return first;
    concat_attrs attrs = {axis};
    int count = 0;
    while (count < 16 && opts.x[count])
        count++;
    return weir_op_apply(&(weir_apply){opts.src, opts.name, &op_concat, NULL, opts.x, count, &attrs}, NULL);
}
