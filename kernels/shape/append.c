/* kernels/shape/append.c: rows written into a buffer from a position on, as keys and values are kept.
 *
 *     x [..., room, dim]   rows [..., n, dim]   position   ->   x with rows position .. position + n - 1 replaced
 *
 * The result may lie where x does; then only the new rows are touched. That is how it is meant to be used: x is a
 * state, and this is what it is set to, so what a step costs does not grow with the room.
 *
 * The position is a value, so it is the kernel that refuses one at which the rows would not fit. Any dimension but that
 * of the rows may be split.
 */
#include "kernels/common/ops.h"
#include "kernels/common/opts.h"
#include "kernels/common/view.h"

#include <string.h>
#include <weir/ops.h>

static bool append_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    const weir_type *x = &args->in[0], *rows = &args->in[1], *position = &args->in[2];
    const int axis = x->shape.rank - 2;
    if (axis < 0)
        return REFUSE("x has %d dimensions; it needs two or more", x->shape.rank);
    weir_type like = *x;
    like.shape.dim[axis] = rows->shape.rank == x->shape.rank ? rows->shape.dim[axis] : 0;
    if (rows->dtype != x->dtype || !weir_shape_equal(&rows->shape, &like.shape))
        return REFUSE("the rows are not of x's dtype and dimensions");
    if (rows->shape.dim[axis] > x->shape.dim[axis])
        return REFUSE("%lld rows are more than x has, %lld", (long long)rows->shape.dim[axis],
                      (long long)x->shape.dim[axis]);
    if (position->dtype != WEIR_I32 || weir_shape_count(&position->shape) != 1)
        return REFUSE("the position is not one i32");
    args->out[0] = *x;
    return true;
}

static void append_signatures(const weir_op_args *args, weir_signature_list *list)
{
    const int rank = args->in[0].shape.rank;
    for (int d = 0; d < rank; d++) {
        if (d == rank - 2)
            continue;
        weir_signature *s = weir_signature_new(list);
        s->in[0] = s->in[1] = s->out[0] = WEIR_S(d);
    }
}

static void append_cost(const weir_op_args *args, weir_cost *cost)
{
    *cost = (weir_cost){.bytes = 2.0 * (double)type_bytes(&args->in[1])};
}

static weir_status append_refused(const weir_kernel_args *args, int64_t at, int32_t position)
{
    const weir_shape *x = &args->in[0].shape, *rows = &args->in[1].shape;
    (void)at;
    return KERNEL_FAIL(args, "%lld rows from position %d on do not fit into %lld", (long long)rows->dim[x->rank - 2],
                       position, (long long)x->dim[x->rank - 2]);
}

static weir_status append_cpu(const weir_kernel_args *args)
{
    const weir_view *x = &args->in[0], *rows = &args->in[1], *out = &args->out[0];
    const int axis = x->shape.rank - 2;
    const int64_t room = x->shape.dim[axis], count = rows->shape.dim[axis], position = *view_i32(&args->in[2]);
    const size_t row = (size_t)shape_last(&x->shape) * weir_dtype_bytes(x->dtype);
    int64_t outside = 1;
    for (int d = 0; d < axis; d++)
        outside *= x->shape.dim[d];
    if (position < 0 || position > room - count)
        return append_refused(args, 0, *view_i32(&args->in[2]));
    if (out->data != x->data)
        memcpy(out->data, x->data, (size_t)(outside * room) * row);
    for (int64_t i = 0; i < outside; i++)
        memcpy((char *)out->data + (size_t)(i * room + position) * row,
               (const char *)rows->data + (size_t)(i * count) * row, (size_t)count * row);
    return WEIR_OK;
}

const weir_op op_append = {
    .name = "append",
    .in_min = 3,
    .in_max = 3,
    .out_count = 1,
    .infer = append_infer,
    .signatures = append_signatures,
    .cost = append_cost,
    .kernel = {[WEIR_CPU] = append_cpu},
    .refused = append_refused,
    .inplace = 1, /* x */
};

/* ---- the DSL ---- */

weir_tensor *weir_append_at(weir_tensor *x, weir_tensor *rows, weir_tensor *position, const weir_op_opts *given)
{
    weir_op_opts opts;
    x = op_opts(x, "append", given, &opts, sizeof opts);
    weir_tensor *in[3] = {x, rows, position};
    return weir_op_apply(&(weir_apply){opts.src, opts.name, &op_append, NULL, in, 3, NULL}, NULL);
}
