/* kernels/index/index.cu: elements and slices picked by ids, on a GPU, and the gradients; gather.c and elements.c have their rules.
 *
 * An id that is out of range is refused: what is picked has all bits set, which is NaN, and its gradient goes nowhere. The gradient of
 * gather and gather_nd finds the row of each id first, in the workspace. The gradient of gather_elements has a thread for each line along the
 * axis, which adds in the order of the ids.
 */
#include "kernels/index/index.h"

#include "kernels/cuda/moves.h"
#include "kernels/embedding/table.h"

/* Does `...` with ID as the type of the ids. */
#define WITH_IDS(ids, ID, ...)              \
    do {                                    \
        if ((ids)->dtype == WEIR_I32) {     \
            using ID = int32_t;             \
            __VA_ARGS__;                    \
        } else {                            \
            using ID = int64_t;             \
            __VA_ARGS__;                    \
        }                                   \
    } while (0)

/* Does `...` with U as an unsigned integer of an element's size. */
#define WITH_UNIT(bytes, U, ...)            \
    do {                                    \
        if ((bytes) == 8) {                 \
            using U = uint64_t;             \
            __VA_ARGS__;                    \
        } else if ((bytes) == 4) {          \
            using U = uint32_t;             \
            __VA_ARGS__;                    \
        } else if ((bytes) == 2) {          \
            using U = uint16_t;             \
            __VA_ARGS__;                    \
        } else {                            \
            using U = uint8_t;              \
            __VA_ARGS__;                    \
        }                                   \
    } while (0)

/* ---- gather, gather_nd ---- */

enum { ELSEWHERE = -1, NOWHERE = -2 };

/* The row here of slice number `i` of all. */
template <class ID> DEVICE int64_t row_found(const refusals &say, const index_sizes &z, const ID *ids, int64_t i)
{
    int64_t row = 0;
    for (int p = 0; p < z.parts; p++) {
        int64_t id = ids[i * z.parts + p];
        if (!place_of(&id, z.size[p])) {
            refuse(say, i * z.parts + p, id_said(id));
            return NOWHERE;
        }
        row = row * z.size[p] + id;
    }
    row -= z.first;
    return row >= 0 && row < z.rows ? row : (int64_t)ELSEWHERE;
}

template <class U, class ID> struct picked {
    refusals say;
    index_sizes z;
    const U *x;
    const ID *ids;
    U *y;
    template <int N> METHOD void at(int64_t i) const
    {
        const int64_t slice = i / z.inside, outside = slice / z.count;
        const int64_t row = row_found(say, z, ids, outside * z.id_step + slice % z.count);
        y[i] = row >= 0 ? x[(outside * z.rows + row) * z.inside + i % z.inside] : row == NOWHERE ? (U)~(U)0 : (U)0;
    }
};

template <class ID> struct finds_rows {
    refusals say;
    index_sizes z;
    const ID *ids;
    int64_t *rows;
    template <int N> METHOD void at(int64_t i) const { rows[i] = row_found(say, z, ids, i); }
};

struct found_rows {
    const int64_t *rows;
    int64_t step;
    METHOD int64_t row(int64_t outside, int64_t i) const { return rows[outside * step + i]; }
};

static int axis_given(const weir_kernel_args *args, int rank)
{
    const int64_t given = *(const int64_t *)args->attrs; /* both structures begin with the axis */
    return (int)(given < 0 ? given + rank : given);
}

static index_sizes sizes_of(const weir_kernel_args *args, bool grad, bool nd)
{
    const weir_view *x = grad ? &args->out[0] : &args->in[0], *ids = &args->in[grad ? 0 : 1];
    const int axis = axis_given(args, x->shape.rank);
    if (nd)
        return gather_nd_sizes(x, ids, axis);
    return gather_sizes(x, ids, axis, grad ? ((const index_grad_attrs *)args->attrs)->dim[axis] : x->global.dim[axis]);
}

template <class U, class ID> static void pick(const weir_kernel_args *args, const index_sizes &z)
{
    const picked<U, ID> f = {refusing(args), z, data_of<U>(&args->in[0]), data_of<ID>(&args->in[1]), data_of<U>(&args->out[0])};
    each<1>(args, f, count_of(&args->out[0].shape), false);
}

template <class ID> static weir_status find_rows(const weir_kernel_args *args, const index_sizes &z, const weir_view *ids)
{
    const finds_rows<ID> f = {refusing(args), z, data_of<ID>(ids), (int64_t *)args->workspace};
    each<1>(args, f, z.parts ? count_of(&ids->shape) / z.parts : 0, false);
    return launched(args);
}

static weir_status gather_run(const weir_kernel_args *args, bool nd)
{
    const index_sizes z = sizes_of(args, false, nd);
    WITH_IDS(&args->in[1], ID, WITH_UNIT(bytes_of(args->out[0].dtype), U, pick<U, ID>(args, z)));
    return launched(args);
}

static weir_status gather_grad_run(const weir_kernel_args *args, bool nd)
{
    const index_sizes z = sizes_of(args, true, nd);
    const weir_view *dy = &args->in[1];
    const found_rows rows = {(const int64_t *)args->workspace, z.id_step};
    const table_grad<found_rows> g = {rows, dy->data, view_f32(&args->out[0]), z.outside, z.count, z.rows, z.inside,
                                      args->accumulate};
    weir_status status = WEIR_OK;
    WITH_IDS(&args->in[0], ID, status = find_rows<ID>(args, z, &args->in[0]));
    return status ? status : table_grad_run(args, g, dy->dtype);
}

extern "C" weir_status op_gather_cuda(const weir_kernel_args *args)
{
    return gather_run(args, false);
}

extern "C" weir_status op_gather_nd_cuda(const weir_kernel_args *args)
{
    return gather_run(args, true);
}

extern "C" weir_status op_gather_grad_cuda(const weir_kernel_args *args)
{
    return gather_grad_run(args, false);
}

extern "C" weir_status op_gather_nd_grad_cuda(const weir_kernel_args *args)
{
    return gather_grad_run(args, true);
}

/* ---- gather_elements ---- */

/* Along the axis: where x begins here, how much is here and in all, and the elements from one place to the next. */
struct along_axis {
    int64_t first, here, all, step;
    METHOD int64_t place(int64_t id) const
    {
        if (!place_of(&id, all))
            return NOWHERE;
        id -= first;
        return id >= 0 && id < here ? id * step : (int64_t)ELSEWHERE;
    }
};

static along_axis along_x(const weir_kernel_args *args, bool grad)
{
    const weir_view *x = grad ? &args->out[0] : &args->in[0];
    const int axis = axis_given(args, x->shape.rank);
    const int64_t all = grad ? ((const index_grad_attrs *)args->attrs)->dim[axis] : x->global.dim[axis];
    return {x->offset[axis], x->shape.dim[axis], all, shape_size(&x->shape, axis + 1, x->shape.rank)};
}

template <class U, class ID> struct picked_elements {
    refusals say;
    along_axis a;
    walk<int64_t, 1> w; /* over the ids: x, with a stride of 0 along the axis */
    const U *x;
    const ID *ids;
    U *y;
    template <int N> METHOD void at(int64_t i) const
    {
        int64_t from[1];
        w.to(i, from);
        const int64_t place = a.place(ids[i]);
        if (place == NOWHERE)
            refuse(say, i, id_said(ids[i]));
        y[i] = place >= 0 ? x[from[0] + place] : place == NOWHERE ? (U)~(U)0 : (U)0;
    }
};

template <class U, class ID> static void pick_elements(const weir_kernel_args *args)
{
    const weir_view *x = &args->in[0], *ids = &args->in[1];
    int64_t stride[WEIR_DIMS_MAX] = {};
    nest n = nest_over(&ids->shape);
    nest_strides(&x->shape, stride);
    stride[axis_given(args, x->shape.rank)] = 0;
    nest_operand(&n, stride);
    const picked_elements<U, ID> f = {refusing(args), along_x(args, false), walk_of<int64_t, 1>(n), data_of<U>(x), data_of<ID>(ids),
                                      data_of<U>(&args->out[0])};
    each<1>(args, f, count_of(&ids->shape), false);
}

extern "C" weir_status op_gather_elements_cuda(const weir_kernel_args *args)
{
    WITH_IDS(&args->in[1], ID, WITH_UNIT(bytes_of(args->out[0].dtype), U, pick_elements<U, ID>(args)));
    return launched(args);
}

/* A line of dx along the axis, and that of the ids: none, where x has more lines than they have. */
template <class T, class ID> struct line_sums {
    refusals say;
    along_axis a;
    int rank, axis;
    int64_t dx_dim[WEIR_DIMS_MAX], id_dim[WEIR_DIMS_MAX], dx_stride[WEIR_DIMS_MAX], id_stride[WEIR_DIMS_MAX];
    const ID *ids;
    const T *dy;
    float *dx;
    double *sums;
    bool add;
    template <int N> METHOD void at(int64_t line) const
    {
        int64_t to = 0, from = 0;
        bool have = true;
#pragma unroll 1 /* so that few registers are needed */
        for (int d = rank - 1; d >= 0; d--) {
            if (d == axis)
                continue;
            const int64_t index = line % dx_dim[d];
            line /= dx_dim[d];
            to += index * dx_stride[d];
            from += index * id_stride[d];
            have = have && index < id_dim[d];
        }
#pragma unroll 1
        for (int64_t i = 0; i < a.here; i++)
            sums[to + i * a.step] = add ? dx[to + i * a.step] : 0;
#pragma unroll 1
        for (int64_t i = 0; have && i < id_dim[axis]; i++) {
            const int64_t at = from + i * id_stride[axis], place = a.place(ids[at]);
            if (place >= 0)
                sums[to + place] += real_load(dy + at);
            else if (place == NOWHERE)
                refuse(say, at, id_said(ids[at]));
        }
#pragma unroll 1
        for (int64_t i = 0; i < a.here; i++)
            dx[to + i * a.step] = (float)sums[to + i * a.step];
    }
};

template <class T, class ID> static void sum_lines(const weir_kernel_args *args)
{
    const weir_view *ids = &args->in[0], *dx = &args->out[0];
    line_sums<T, ID> f = {};
    f.say = refusing(args);
    f.a = along_x(args, true);
    f.rank = dx->shape.rank;
    f.axis = axis_given(args, f.rank);
    nest_strides(&dx->shape, f.dx_stride);
    nest_strides(&ids->shape, f.id_stride);
    int64_t lines = 1;
    for (int d = 0; d < f.rank; d++) {
        f.dx_dim[d] = dx->shape.dim[d];
        f.id_dim[d] = ids->shape.dim[d];
        lines *= d == f.axis ? 1 : f.dx_dim[d];
    }
    f.ids = data_of<ID>(ids);
    f.dy = data_of<T>(&args->in[1]);
    f.dx = view_f32(dx);
    f.sums = (double *)args->workspace;
    f.add = args->accumulate;
    each<1>(args, f, lines, false);
}

extern "C" weir_status op_gather_elements_grad_cuda(const weir_kernel_args *args)
{
    WITH_IDS(&args->in[0], ID, WITH_REAL(args->in[1].dtype, T, sum_lines<T, ID>(args)));
    return launched(args);
}
