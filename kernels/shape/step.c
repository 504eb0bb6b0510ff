/* kernels/shape/step.c: slices whose elements lie some places apart, and the gradient of one.
 *
 *     slice_step   x -> y     y[i] = x[first + step i] along the axis; a step below 0 goes backwards
 *     place_step   y -> x     x[first + step i] = y[i] in `size` places; the others are 0
 *
 * The second is the gradient of the first. As in slice.c a tensor is seen as [outside, axis, inside], and the axis is never split.
 */
#include "kernels/shape/axis.h"
#include "kernels/shape/shape.h"

#include "kernels/common/ops.h"
#include "kernels/common/rules.h"
#include "kernels/common/view.h"

#include <string.h>

static const weir_field step_fields[] = {
    WEIR_FIELD_INT(step_attrs, axis),
    WEIR_FIELD_INT(step_attrs, first),
    WEIR_FIELD_INT(step_attrs, count),
    WEIR_FIELD_INT(step_attrs, step),
    WEIR_FIELD_INT(step_attrs, size),
};

/* Whether the elements of the slice are all within `size` places; nothing overflows on the way. */
static bool steps_are_within(const step_attrs *attrs, int64_t size, char *error, size_t error_bytes)
{
    const int64_t first = attrs->first, count = attrs->count, step = attrs->step;
    if (!step || step == INT64_MIN)
        return REFUSE("a step of %lld: it must not be 0", (long long)step);
    const bool begins = first >= 0 && first < size;
    const int64_t room = !begins ? 0 : step > 0 ? size - 1 - first : first;
    if (!begins || count < 1 || count - 1 > room / (step > 0 ? step : -step))
        return REFUSE("%lld elements from %lld on with a step of %lld are not all within the dimension, which has %lld",
                      (long long)count, (long long)first, (long long)step, (long long)size);
    return true;
}

static bool step_infer(weir_op_args *args, bool places, char *error, size_t error_bytes)
{
    const step_attrs *attrs = args->attrs;
    const weir_shape *in = &args->in[0].shape;
    if (!axis_is_right(attrs->axis, in->rank, error, error_bytes))
        return false;
    const int axis = axis_of(attrs->axis, in->rank);
    const int64_t from = places ? attrs->count : attrs->size;
    if (in->dim[axis] != from)
        return REFUSE("dimension %d has %lld elements, not %lld", axis, (long long)in->dim[axis], (long long)from);
    args->out[0] = args->in[0];
    args->out[0].shape.dim[axis] = places ? attrs->size : attrs->count;
    return steps_are_within(attrs, attrs->size, error, error_bytes);
}

static bool slice_step_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    return step_infer(args, false, error, error_bytes);
}

static bool place_step_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    return step_infer(args, true, error, error_bytes);
}

static void step_signatures(const weir_op_args *args, weir_signature_list *list)
{
    const step_attrs *attrs = args->attrs;
    sign_but(args, list, axis_of(attrs->axis, args->in[0].shape.rank));
}

static void step_cost(const weir_op_args *args, weir_cost *cost)
{
    const double in = (double)type_bytes(&args->in[0]), out = (double)type_bytes(&args->out[0]);
    *cost = (weir_cost){.bytes = out + (in < out ? in : out)};
}

/* ---- kernels ---- */

static weir_status slice_step_kernel(const weir_kernel_args *args)
{
    const step_attrs *attrs = args->attrs;
    const weir_view *in = &args->in[0], *out = &args->out[0];
    const int axis = axis_of(attrs->axis, in->shape.rank);
    const size_t bytes = step_bytes(in, axis);
    const char *x = in->data;
    char *y = out->data;
    for (int64_t r = 0; r < outside(&in->shape, axis); r++, x += (size_t)attrs->size * bytes)
        for (int64_t i = 0; i < attrs->count; i++, y += bytes)
            memcpy(y, x + (size_t)(attrs->first + i * attrs->step) * bytes, bytes);
    return WEIR_OK;
}

static weir_status place_step_kernel(const weir_kernel_args *args)
{
    const step_attrs *attrs = args->attrs;
    const weir_view *in = &args->in[0], *out = &args->out[0];
    const int axis = axis_of(attrs->axis, in->shape.rank);
    const size_t bytes = step_bytes(in, axis);
    const char *y = in->data;
    char *x = out->data;
    memset(x, 0, (size_t)view_count(out) * weir_dtype_bytes(out->dtype));
    for (int64_t r = 0; r < outside(&in->shape, axis); r++, x += (size_t)attrs->size * bytes)
        for (int64_t i = 0; i < attrs->count; i++, y += bytes)
            memcpy(x + (size_t)(attrs->first + i * attrs->step) * bytes, y, bytes);
    return WEIR_OK;
}

static void slice_step_backward(weir_grad_args *args)
{
    args->din[0] = weir_op_apply(&(weir_apply){args->src, NULL, &op_place_step, NULL, args->dout, 1, args->attrs}, NULL);
}

#define STEP(opname, gradient)                          \
    const weir_op op_##opname = {                       \
        .name = #opname,                                \
        .fields = step_fields,                          \
        .field_count = 5,                               \
        .attrs_bytes = sizeof(step_attrs),              \
        .in_min = 1,                                    \
        .in_max = 1,                                    \
        .out_count = 1,                                 \
        .infer = opname##_infer,                        \
        .signatures = step_signatures,                  \
        .grad = gradient,                               \
        .cost = step_cost,                              \
        .kernel = {[WEIR_CPU] = opname##_kernel},       \
        .half = WEIR_HALF_FOLLOW,                       \
    };
STEP(slice_step, slice_step_backward)
STEP(place_step, NULL)
