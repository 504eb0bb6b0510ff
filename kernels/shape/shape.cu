/* kernels/shape/shape.cu: ops that move elements, on a GPU; shape.c, slice.c, transpose.c and append.c have the rules. Each is
 * a move (kernels/cuda/moves.h), or several; but for append, whose position is in the device's memory.
 */
#include "kernels/shape/shape.h"

#include "kernels/cuda/moves.h"

static size_t element_bytes(const weir_kernel_args *args)
{
    return bytes_of(args->out[0].dtype);
}

extern "C" weir_status op_reshape_cuda(const weir_kernel_args *args)
{
    move_run(args, args->in[0].data, args->out[0].data, element_bytes(args), count_of(&args->out[0].shape));
    return launched(args);
}

extern "C" weir_status op_broadcast_to_cuda(const weir_kernel_args *args)
{
    nest n = nest_over(&args->out[0].shape);
    nest_broadcast(&n, &args->in[0].shape);
    nest_broadcast(&n, &args->out[0].shape);
    if (count_of(&args->out[0].shape))
        move_elements(args, args->in[0].data, args->out[0].data, element_bytes(args), n);
    return launched(args);
}

extern "C" weir_status op_transpose_cuda(const weir_kernel_args *args)
{
    const transpose_attrs *attrs = (const transpose_attrs *)args->attrs;
    const weir_shape *in = &args->in[0].shape, *out = &args->out[0].shape;
    int64_t own[WEIR_DIMS_MAX] = {}, from[WEIR_DIMS_MAX] = {}, to[WEIR_DIMS_MAX] = {};
    nest n = nest_over(out);
    nest_strides(in, own);
    nest_strides(out, to);
    for (int d = 0; d < out->rank; d++)
        from[d] = own[attrs->perm[d]];
    nest_operand(&n, from);
    nest_operand(&n, to);
    if (count_of(out))
        move_elements(args, args->in[0].data, args->out[0].data, element_bytes(args), n);
    return launched(args);
}

/* ---- along an axis: a tensor as [outside, axis, inside] ---- */

struct along {
    int axis;
    int64_t outside, inside;
};

static along along_of(const weir_shape *shape, int64_t axis)
{
    along a = {(int)(axis < 0 ? axis + shape->rank : axis), 1, 1};
    for (int d = 0; d < shape->rank; d++)
        if (d != a.axis)
            (d < a.axis ? a.outside : a.inside) *= shape->dim[d];
    return a;
}

/* Elements [first, first + count) of the axis of `from`, which are those from `to_first` on of `to`. */
static void move_range(const weir_kernel_args *args, const along &a, const weir_view *from, int64_t first, const weir_view *to,
                       int64_t to_first, int64_t count)
{
    const size_t bytes = bytes_of(to->dtype);
    nest n = {};
    n.rank = n.operands = 2;
    n.dim[0] = a.outside;
    n.dim[1] = count * a.inside;
    n.stride[0][0] = from->shape.dim[a.axis] * a.inside;
    n.stride[1][0] = to->shape.dim[a.axis] * a.inside;
    n.stride[0][1] = n.stride[1][1] = 1;
    if (n.dim[0] && n.dim[1])
        move_elements(args, (const char *)from->data + (size_t)(first * a.inside) * bytes,
                      (char *)to->data + (size_t)(to_first * a.inside) * bytes, bytes, n);
}

extern "C" weir_status op_slice_cuda(const weir_kernel_args *args)
{
    const range_attrs *attrs = (const range_attrs *)args->attrs;
    const weir_view *in = &args->in[0], *out = &args->out[0];
    const along a = along_of(&in->shape, attrs->axis);
    move_range(args, a, in, attrs->range[0], out, 0, out->shape.dim[a.axis]);
    return launched(args);
}

extern "C" weir_status op_pad_cuda(const weir_kernel_args *args)
{
    const range_attrs *attrs = (const range_attrs *)args->attrs;
    const weir_view *in = &args->in[0], *out = &args->out[0];
    const along a = along_of(&in->shape, attrs->axis);
    move_zeros(args, out->data, (size_t)count_of(&out->shape) * bytes_of(out->dtype));
    move_range(args, a, in, 0, out, attrs->range[0], in->shape.dim[a.axis]);
    return launched(args);
}

extern "C" weir_status op_concat_cuda(const weir_kernel_args *args)
{
    const concat_attrs *attrs = (const concat_attrs *)args->attrs;
    const weir_view *out = &args->out[0];
    const along a = along_of(&out->shape, attrs->axis);
    int64_t first = 0;
    for (int i = 0; i < args->in_count; i++) {
        const int64_t count = args->in[i].shape.dim[a.axis];
        move_range(args, a, &args->in[i], 0, out, first, count);
        first += count;
    }
    return launched(args);
}

/* ---- by steps: the slice's elements lie some places apart in the other tensor ---- */

static nest steps_nest(const along &a, const step_attrs *attrs, bool places)
{
    const int64_t apart[3] = {attrs->size * a.inside, attrs->step * a.inside, 1}, close[3] = {attrs->count * a.inside, a.inside, 1};
    nest n = {};
    n.rank = 3;
    n.dim[0] = a.outside;
    n.dim[1] = attrs->count;
    n.dim[2] = a.inside;
    nest_operand(&n, places ? close : apart);
    nest_operand(&n, places ? apart : close);
    return n;
}

extern "C" weir_status op_slice_step_cuda(const weir_kernel_args *args)
{
    const step_attrs *attrs = (const step_attrs *)args->attrs;
    const along a = along_of(&args->in[0].shape, attrs->axis);
    const size_t bytes = element_bytes(args);
    if (a.outside && a.inside)
        move_elements(args, (const char *)args->in[0].data + (size_t)(attrs->first * a.inside) * bytes, args->out[0].data, bytes,
                      steps_nest(a, attrs, false));
    return launched(args);
}

extern "C" weir_status op_place_step_cuda(const weir_kernel_args *args)
{
    const step_attrs *attrs = (const step_attrs *)args->attrs;
    const weir_view *out = &args->out[0];
    const along a = along_of(&out->shape, attrs->axis);
    const size_t bytes = element_bytes(args);
    move_zeros(args, out->data, (size_t)count_of(&out->shape) * bytes);
    if (a.outside && a.inside)
        move_elements(args, args->in[0].data, (char *)out->data + (size_t)(attrs->first * a.inside) * bytes, bytes,
                      steps_nest(a, attrs, true));
    return launched(args);
}

/* ---- append ---- */

/* A position at which the rows do not fit is refused, and x stays as it is. */
template <class U>
KERNEL_OF(append_rows, EACH_THREADS)(refusals say, const U *rows, U *to, const int32_t *position, int64_t room, int64_t count,
                                     int64_t row, int64_t all)
{
    const int64_t at = *position;
    if (at < 0 || at > room - count) {
        if (THREAD == 0)
            refuse(say, 0, *position);
        return;
    }
    for (int64_t i = THREAD; i < all; i += THREADS)
        to[(i / (count * row) * room + at) * row + i % (count * row)] = rows[i];
}

template <class U> static void append_launch(const weir_kernel_args *args, int64_t room, int64_t count, int64_t row)
{
    const int64_t all = count_of(&args->in[1].shape);
    LAUNCH((append_rows<U>), each_blocks(all), EACH_THREADS, args->queue, refusing(args), data_of<U>(&args->in[1]),
           data_of<U>(&args->out[0]), view_i32(&args->in[2]), room, count, row, all);
}

extern "C" weir_status op_append_cuda(const weir_kernel_args *args)
{
    const weir_shape *x = &args->in[0].shape;
    const int axis = x->rank - 2;
    const int64_t room = x->dim[axis], count = args->in[1].shape.dim[axis], row = x->dim[axis + 1];
    const size_t bytes = element_bytes(args);
    move_run(args, args->in[0].data, args->out[0].data, bytes, count_of(x));
    if (bytes == 8)
        append_launch<uint2>(args, room, count, row);
    else if (bytes == 4)
        append_launch<uint32_t>(args, room, count, row);
    else if (bytes == 2)
        append_launch<uint16_t>(args, room, count, row);
    else
        append_launch<uint8_t>(args, room, count, row);
    return launched(args);
}
