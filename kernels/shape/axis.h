/* kernels/shape/axis.h: ops along one dimension, the axis. A tensor is seen as [outside, axis, inside]: the elements inside the axis
 * lie together, and those of a range of the axis, too. Header-only; pure functions; any thread.
 */
#ifndef KERNELS_SHAPE_AXIS_H
#define KERNELS_SHAPE_AXIS_H

#include "kernels/common/rules.h"
#include "kernels/common/view.h"

/* A negative axis counts from the end. */
static inline int axis_of(int64_t axis, int rank)
{
    return (int)(axis < 0 ? axis + rank : axis);
}

static inline bool axis_is_right(int64_t axis, int rank, char *error, size_t error_bytes)
{
    if (axis < -rank || axis >= rank)
        return REFUSE("axis %lld is not one of the %d dimensions", (long long)axis, rank);
    return true;
}

static inline int64_t outside(const weir_shape *shape, int axis)
{
    return shape_size(shape, 0, axis);
}

static inline int64_t inside(const weir_shape *shape, int axis)
{
    return shape_size(shape, axis + 1, shape->rank);
}

/* Bytes of one step along the axis. */
static inline size_t step_bytes(const weir_view *view, int axis)
{
    return weir_dtype_bytes(view->dtype) * (size_t)inside(&view->shape, axis);
}

/* signatures: all dimensions but the axis, of all inputs and outputs. */
static inline void sign_but_axis(const weir_op_args *args, weir_signature_list *list, int axis)
{
    for (int d = 0; d < args->in[0].shape.rank; d++) {
        if (d == axis)
            continue;
        weir_signature *s = weir_signature_new(list);
        for (int i = 0; i < args->in_count; i++)
            s->in[i] = WEIR_S(d);
        for (int o = 0; o < args->out_count; o++)
            s->out[o] = WEIR_S(d);
    }
}

/* And P -> P. */
static inline void sign_but(const weir_op_args *args, weir_signature_list *list, int axis)
{
    sign_but_axis(args, list, axis);
    if (weir_dtype_real(args->in[0].dtype))
        sign_linear(args, list);
}

#endif
