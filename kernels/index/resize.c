/* kernels/index/resize.c: a dimension with more or fewer places. See resize.h.
 *
 *     resize        x [outside, size, inside]    -> y [outside, count, inside]
 *     resize_grad   dy [outside, count, inside]  -> dx [outside, size, inside]
 *
 * Several dimensions are resized one after the other: linear interpolation comes apart into dimensions. The places of y go up with
 * those of x, so the gradient of a place of x is the sum over a run of places of y, in their order, in double.
 */
#include "kernels/index/resize.h"

#include "kernels/common/ops.h"
#include "kernels/common/opts.h"
#include "kernels/common/param.h"
#include "kernels/common/real.h"
#include "kernels/common/rules.h"
#include "kernels/shape/axis.h"
#include "kernels/shape/shape.h"

#include <float.h>
#include <string.h>

static const weir_field resize_fields[] = {
    WEIR_FIELD_INT(resize_attrs, axis),  WEIR_FIELD_INT(resize_attrs, size),        WEIR_FIELD_INT(resize_attrs, count),
    WEIR_FIELD_INT(resize_attrs, mode),  WEIR_FIELD_INT(resize_attrs, coordinates), WEIR_FIELD_INT(resize_attrs, round),
    WEIR_FIELD_REAL(resize_attrs, scale),
};

/* ---- rules ---- */

static bool choices_are_right(const resize_attrs *a, char *error, size_t error_bytes)
{
    if (a->mode < WEIR_RESIZE_NEAREST || a->mode > WEIR_RESIZE_LINEAR)
        return REFUSE("mode %lld: it must be WEIR_RESIZE_NEAREST or WEIR_RESIZE_LINEAR", (long long)a->mode);
    if (a->coordinates < WEIR_COORDINATES_HALF_PIXEL || a->coordinates > WEIR_COORDINATES_PYTORCH_HALF_PIXEL)
        return REFUSE("coordinates %lld: they must be one of WEIR_COORDINATES_...", (long long)a->coordinates);
    if (a->round < WEIR_ROUND_PREFER_FLOOR || a->round > WEIR_ROUND_CEIL)
        return REFUSE("rounding %lld: it must be one of WEIR_ROUND_...", (long long)a->round);
    return (a->scale > 0 && a->scale <= DBL_MAX) || REFUSE("a scale of %g: it must be above 0", a->scale);
}

static bool infer(weir_op_args *args, bool grad, char *error, size_t error_bytes)
{
    const resize_attrs *a = args->attrs;
    const weir_shape *in = &args->in[0].shape;
    const bool copies = a->mode == WEIR_RESIZE_NEAREST && !grad;
    if ((!copies && !rule_all_real(args, error, error_bytes)) || !axis_is_right(a->axis, in->rank, error, error_bytes) ||
        !choices_are_right(a, error, error_bytes))
        return false;
    const int axis = axis_of(a->axis, in->rank);
    if (a->size < 1 || a->count < 1)
        return REFUSE("a dimension of %lld becomes one of %lld: both must be at least 1", (long long)a->size, (long long)a->count);
    if (in->dim[axis] != (grad ? a->count : a->size))
        return REFUSE("dimension %d has %lld elements, not %lld", axis, (long long)in->dim[axis],
                      (long long)(grad ? a->count : a->size));
    args->out[0] = (weir_type){grad ? WEIR_F32 : args->in[0].dtype, *in};
    args->out[0].shape.dim[axis] = grad ? a->size : a->count;
    return true;
}

static bool resize_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    return infer(args, false, error, error_bytes);
}

static bool resize_grad_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    return infer(args, true, error, error_bytes);
}

static void resize_signatures(const weir_op_args *args, weir_signature_list *list)
{
    sign_but(args, list, axis_of(((const resize_attrs *)args->attrs)->axis, args->in[0].shape.rank));
}

static void resize_cost(const weir_op_args *args, weir_cost *cost)
{
    cost_moved(args, cost, 3 * (double)weir_shape_count(&args->out[0].shape));
}

/* ---- kernels ---- */

static void copy_places(const weir_kernel_args *args, const resize_attrs *a, int axis)
{
    const weir_view *x = &args->in[0], *y = &args->out[0];
    const size_t bytes = step_bytes(x, axis);
    char *to = y->data;
    for (int64_t o = 0; o < outside(&x->shape, axis); o++)
        for (int64_t j = 0; j < a->count; j++, to += bytes)
            memcpy(to, (const char *)x->data + (size_t)(o * a->size + resize_tap_at(a, j).first) * bytes, bytes);
}

static void mix_places(const weir_kernel_args *args, const resize_attrs *a, int axis)
{
    const weir_view *x = &args->in[0], *y = &args->out[0];
    const int64_t inner = inside(&x->shape, axis);
    float first_block[REAL_BLOCK], next_block[REAL_BLOCK], block[REAL_BLOCK];
    for (int64_t o = 0; o < outside(&x->shape, axis); o++)
        for (int64_t j = 0; j < a->count; j++) {
            const struct resize_tap tap = resize_tap_at(a, j);
            for (int64_t c = 0, part; c < inner; c += part) {
                part = real_part(args, inner - c);
                const int64_t at = (o * a->count + j) * inner + c;
                const float *first = real_in(x, (o * a->size + tap.first) * inner + c, part, first_block);
                const float *next = real_in(x, (o * a->size + tap.next) * inner + c, part, next_block);
                float *to = real_out(y, at, block);
                for (int64_t i = 0; i < part; i++)
                    to[i] = first[i] + tap.weight * (next[i] - first[i]);
                real_put(y, at, part, to);
            }
        }
}

static weir_status resize_kernel(const weir_kernel_args *args)
{
    const resize_attrs *a = args->attrs;
    const int axis = axis_of(a->axis, args->in[0].shape.rank);
    if (a->mode == WEIR_RESIZE_NEAREST)
        copy_places(args, a, axis);
    else
        mix_places(args, a, axis);
    return WEIR_OK;
}

/* The gradient of columns [column, column + width) of place s, from the run of places of dy that begins at *run; that goes on with s. */
static void place_gradient(const weir_kernel_args *args, const resize_attrs *a, int64_t o, int64_t s, int64_t inner, int64_t column,
                           int64_t width, int64_t run)
{
    float block[REAL_BLOCK], *dx = view_f32(&args->out[0]) + (o * a->size + s) * inner + column;
    double sum[REAL_BLOCK] = {0};
    for (int64_t j = run; j < a->count; j++) {
        const struct resize_tap tap = resize_tap_at(a, j);
        if (tap.first > s)
            break;
        const double weight = (tap.first == s ? 1 - (double)tap.weight : 0) + (tap.next == s ? (double)tap.weight : 0);
        const float *dy = real_in(&args->in[0], (o * a->count + j) * inner + column, width, block);
        for (int64_t i = 0; i < width; i++)
            sum[i] += weight * (double)dy[i];
    }
    for (int64_t i = 0; i < width; i++)
        dx[i] = (float)sum[i];
}

static weir_status resize_grad_kernel(const weir_kernel_args *args)
{
    const resize_attrs *a = args->attrs;
    const int axis = axis_of(a->axis, args->in[0].shape.rank);
    const int64_t inner = inside(&args->in[0].shape, axis);
    for (int64_t o = 0; o < outside(&args->in[0].shape, axis); o++)
        for (int64_t s = 0, run = 0; s < a->size; s++) {
            while (run < a->count && resize_tap_at(a, run).next < s)
                run++;
            for (int64_t c = 0; c < inner; c += REAL_BLOCK)
                place_gradient(args, a, o, s, inner, c, inner - c < REAL_BLOCK ? inner - c : REAL_BLOCK, run);
        }
    return WEIR_OK;
}

static void resize_backward(weir_grad_args *args)
{
    args->din[0] = weir_op_apply(&(weir_apply){args->src, NULL, &op_resize_grad, NULL, args->dout, 1, args->attrs}, NULL);
}

#define RESIZE(opname, gradient)                        \
    const weir_op op_##opname = {                       \
        .name = #opname,                                \
        .fields = resize_fields,                        \
        .field_count = 7,                               \
        .attrs_bytes = sizeof(resize_attrs),            \
        .in_min = 1,                                    \
        .in_max = 1,                                    \
        .out_count = 1,                                 \
        .infer = opname##_infer,                        \
        .signatures = resize_signatures,                \
        .grad = gradient,                               \
        .cost = resize_cost,                            \
        .kernel = {[WEIR_CPU] = opname##_kernel},       \
        .half = WEIR_HALF_FOLLOW,                       \
    };
RESIZE(resize, resize_backward)
RESIZE(resize_grad, NULL)

/* ---- the DSL ---- */

/* A dimension whose size and scale stay is left as it is. */
weir_tensor *weir_resize_at(weir_tensor *x, const weir_resize_opts *given)
{
    weir_resize_opts opts;
    x = op_opts(x, "resize", given, &opts, sizeof opts);
    const weir_shape shape = weir_tensor_type(x).shape;
    int last = -1, named = 0;
    if (weir_tensor_poisoned(x))
        return op_of_none(&op_resize, x, opts.src);
    while (named < WEIR_DIMS_MAX && opts.dims[named])
        named++;
    if (named != shape.rank)
        return weir_mistake(x, opts.src, "resize: %d dimensions are given, and x has %d", named, shape.rank);
    for (int d = 0; d < shape.rank; d++)
        last = opts.dims[d] != shape.dim[d] || (opts.scale[d] != 0 && opts.scale[d] != 1) ? d : last;
    for (int d = 0; d <= last; d++) {
        resize_attrs attrs = {d, shape.dim[d], opts.dims[d], opts.mode, opts.coordinates, opts.round,
                              weir_option(opts.scale[d], (double)opts.dims[d] / (double)shape.dim[d])};
        if (opts.dims[d] != shape.dim[d] || attrs.scale != 1)
            x = weir_op_apply(&(weir_apply){opts.src, d == last ? opts.name : NULL, &op_resize, NULL, &x, 1, &attrs}, NULL);
    }
    return last < 0 ? shape_same(x, opts.name, opts.src) : x;
}
