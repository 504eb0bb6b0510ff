/* graph/onnx/emit_shape.c: shapes, reductions and elements by index, as nodes of an ONNX file. */
#include "graph/onnx/emit.h"

#include "graph/base/base.h"

#include <math.h>
#include <string.h>
#include <weir/ops.h>

/* ---- reductions ---- */

/* In f32, if the result is. */
static const char *widened(onnx_exporter *ex)
{
    const weir_dtype from = emit_type(ex, 0)->dtype, to = ex->node->out[0]->type.dtype;
    return from == to ? emit_in(ex, 0) : emit_cast(ex, NULL, emit_in(ex, 0), export_type(to));
}

static const char *reduction(const char *op)
{
    return !strcmp(op, "sum") ? "ReduceSum" : !strcmp(op, "mean") ? "ReduceMean" : !strcmp(op, "max") ? "ReduceMax" : "ReduceProd";
}

/* No axes: all of them. */
bool emit_op_reduce(onnx_exporter *ex)
{
    const int rank = emit_shape(ex, 0)->rank, given = (int)emit_int(ex, "axis_count", 0);
    const char *op = reduction(ex->node->op->name), *x = widened(ex);
    int64_t axes[WEIR_DIMS_MAX] = {0};
    for (int i = 0; i < given; i++)
        axes[i] = emit_int(ex, "axes", i) + (emit_int(ex, "axes", i) < 0 ? rank : 0);
    const bool input = given && !strcmp(op, "ReduceSum");
    const char *list = input ? emit_ints(ex, axes, given) : NULL;
    EMIT_BEGIN(ex, op, x, list);
    if (given && !input)
        emit_set_ints(ex, "axes", axes, given);
    emit_set_int(ex, "keepdims", emit_int(ex, "keep", 0));
    return emit_end(ex, emit_out(ex, 0));
}

/* Over the dimensions in front that the result lacks, and those of which it has 1. */
bool emit_op_sum_to(onnx_exporter *ex)
{
    const weir_shape *from = emit_shape(ex, 0), *to = &ex->node->out[0]->type.shape;
    const int lacks = from->rank - to->rank;
    int64_t axes[WEIR_DIMS_MAX] = {0};
    int count = 0;
    for (int d = 0; d < from->rank; d++)
        if (d < lacks || (to->dim[d - lacks] == 1 && from->dim[d] != 1))
            axes[count++] = d;
    if (!count)
        return emit_alias(ex, 0, emit_in(ex, 0));
    const char *sum = EMIT(ex, NULL, "ReduceSum", widened(ex), emit_ints(ex, axes, count));
    return emit_reshape(ex, emit_out(ex, 0), sum, to->dim, to->rank);
}

bool emit_op_softmax(onnx_exporter *ex)
{
    EMIT_BEGIN(ex, "Softmax", emit_in(ex, 0));
    emit_set_int(ex, "axis", -1);
    return emit_end(ex, emit_out(ex, 0));
}

bool emit_op_argmax(onnx_exporter *ex)
{
    EMIT_BEGIN(ex, "ArgMax", emit_in(ex, 0));
    emit_set_int(ex, "axis", emit_shape(ex, 0)->rank - 1);
    emit_set_int(ex, "keepdims", 0);
    return emit_cast(ex, emit_out(ex, 0), emit_end(ex, NULL), ONNX_INT32);
}

/* ---- shapes ---- */

bool emit_op_reshape(onnx_exporter *ex)
{
    const weir_shape *shape = &ex->node->out[0]->type.shape;
    return emit_reshape(ex, emit_out(ex, 0), emit_in(ex, 0), shape->dim, shape->rank);
}

bool emit_op_expand(onnx_exporter *ex)
{
    const weir_shape *shape = &ex->node->out[0]->type.shape;
    return EMIT_OUT(ex, "Expand", emit_in(ex, 0), emit_ints(ex, shape->dim, shape->rank));
}

bool emit_op_transpose(onnx_exporter *ex)
{
    const int rank = emit_shape(ex, 0)->rank;
    int64_t perm[WEIR_DIMS_MAX] = {0};
    for (int d = 0; d < rank; d++)
        perm[d] = emit_int(ex, "perm", d);
    return emit_transpose(ex, emit_out(ex, 0), emit_in(ex, 0), perm, rank);
}

/* Backwards to the first element, the end is one in front of it, which -1 would not say. */
static bool slice(onnx_exporter *ex, int64_t first, int64_t count, int64_t step)
{
    const int64_t axis = emit_axis(ex, emit_shape(ex, 0)->rank), last = first + (count - 1) * step;
    const int64_t end = step > 0 ? last + 1 : last ? last - 1 : INT64_MIN;
    return EMIT_OUT(ex, "Slice", emit_in(ex, 0), emit_ints(ex, &first, 1), emit_ints(ex, &end, 1), emit_ints(ex, &axis, 1),
                    emit_ints(ex, &step, 1));
}

bool emit_op_slice(onnx_exporter *ex)
{
    return slice(ex, emit_int(ex, "range", 0), emit_int(ex, "range", 1), 1);
}

bool emit_op_slice_step(onnx_exporter *ex)
{
    return slice(ex, emit_int(ex, "first", 0), emit_int(ex, "count", 0), emit_int(ex, "step", 0));
}

bool emit_op_pad(onnx_exporter *ex)
{
    const int rank = emit_shape(ex, 0)->rank, axis = emit_axis(ex, rank);
    int64_t pads[2 * WEIR_DIMS_MAX] = {0};
    pads[axis] = emit_int(ex, "range", 0);
    pads[rank + axis] = emit_int(ex, "range", 1);
    return EMIT_OUT(ex, "Pad", emit_in(ex, 0), emit_ints(ex, pads, 2 * rank));
}

bool emit_op_concat(onnx_exporter *ex)
{
    const char *in[WEIR_ARGS_MAX + 1] = {NULL};
    for (int i = 0; i < ex->node->in_count; i++)
        in[i] = emit_in(ex, i);
    emit_begin(ex, "Concat", in);
    emit_set_int(ex, "axis", emit_axis(ex, emit_shape(ex, 0)->rank));
    return emit_end(ex, emit_out(ex, 0));
}

/* The rows in front of the position, the new ones, and those behind them. */
bool emit_op_append(onnx_exporter *ex)
{
    const int64_t axis = emit_shape(ex, 0)->rank - 2, n = emit_shape(ex, 1)->dim[axis], room = emit_shape(ex, 0)->dim[axis], zero = 0;
    const int64_t one = 1;
    const char *x = emit_in(ex, 0), *at = emit_cast(ex, NULL, emit_reshape(ex, NULL, emit_in(ex, 2), &one, 1), ONNX_INT64);
    const char *axes = emit_ints(ex, &axis, 1), *behind = EMIT(ex, NULL, "Add", at, emit_ints(ex, &n, 1));
    const char *before = EMIT(ex, NULL, "Slice", x, emit_ints(ex, &zero, 1), at, axes);
    const char *after = EMIT(ex, NULL, "Slice", x, behind, emit_ints(ex, &room, 1), axes);
    EMIT_BEGIN(ex, "Concat", before, emit_in(ex, 1), after);
    emit_set_int(ex, "axis", axis);
    return emit_end(ex, emit_out(ex, 0));
}

/* ---- tensors that are made of nothing ---- */

bool emit_op_constant(onnx_exporter *ex)
{
    const weir_type *type = &ex->node->out[0]->type;
    EMIT_BEGIN(ex, "ConstantOfShape", emit_ints(ex, type->shape.dim, type->shape.rank));
    emit_set_scalar(ex, "value", type->dtype, emit_real(ex, "value"));
    return emit_end(ex, emit_out(ex, 0));
}

bool emit_op_range(onnx_exporter *ex)
{
    const weir_type *type = &ex->node->out[0]->type;
    return emit_alias(ex, 0, emit_range(ex, type->dtype, &type->shape, emit_real(ex, "start"), emit_real(ex, "step")));
}

/* ---- by index ---- */

/* Along an axis: gather, gather_elements. */
bool emit_op_gather(onnx_exporter *ex)
{
    const bool elements = strcmp(ex->node->op->name, "gather") != 0;
    EMIT_BEGIN(ex, elements ? "GatherElements" : "Gather", emit_in(ex, 0), emit_in(ex, 1));
    emit_set_int(ex, "axis", emit_axis(ex, emit_shape(ex, 0)->rank));
    return emit_end(ex, emit_out(ex, 0));
}

bool emit_op_gather_nd(onnx_exporter *ex)
{
    const char *ids = emit_cast(ex, NULL, emit_in(ex, 1), ONNX_INT64);
    EMIT_BEGIN(ex, "GatherND", emit_in(ex, 0), ids);
    emit_set_int(ex, "batch_dims", emit_int(ex, "batch_dims", 0));
    return emit_end(ex, emit_out(ex, 0));
}

bool emit_op_cumsum(onnx_exporter *ex)
{
    const char *axis = emit_number(ex, WEIR_I64, emit_axis(ex, emit_shape(ex, 0)->rank));
    EMIT_BEGIN(ex, "CumSum", emit_in(ex, 0), axis);
    emit_set_int(ex, "exclusive", emit_int(ex, "exclusive", 0));
    emit_set_int(ex, "reverse", emit_int(ex, "reverse", 0));
    return emit_end(ex, emit_out(ex, 0));
}

bool emit_op_top_k(onnx_exporter *ex)
{
    const int64_t count = emit_int(ex, "count", 0);
    const char *values = emit_out(ex, 0), *indices = emit_out(ex, 1), *wide = pool_text(&ex->pool, "%s/i64", indices);
    const char *name = wide ? export_name(ex, wide) : NULL;
    if (!name)
        return export_no_memory(ex);
    EMIT_BEGIN(ex, "TopK", emit_in(ex, 0), emit_ints(ex, &count, 1));
    emit_set_int(ex, "axis", emit_axis(ex, emit_shape(ex, 0)->rank));
    emit_end_two(ex, values, name);
    return emit_cast(ex, indices, name, ONNX_INT32);
}

/* ---- resize ---- */

static const char *coordinates_of(int64_t coordinates)
{
    static const char *const names[] = {[WEIR_COORDINATES_HALF_PIXEL] = "half_pixel",
                                        [WEIR_COORDINATES_PYTORCH_HALF_PIXEL] = "pytorch_half_pixel",
                                        [WEIR_COORDINATES_ASYMMETRIC] = "asymmetric",
                                        [WEIR_COORDINATES_ALIGN_CORNERS] = "align_corners"};
    return names[coordinates];
}

static const char *rounding_of(int64_t round)
{
    static const char *const names[] = {[WEIR_ROUND_PREFER_FLOOR] = "round_prefer_floor", [WEIR_ROUND_PREFER_CEIL] = "round_prefer_ceil",
                                        [WEIR_ROUND_FLOOR] = "floor", [WEIR_ROUND_CEIL] = "ceil"};
    return names[round];
}

/* Sizes say the scale, if it is that of the sizes; else scales have to give the size. */
bool emit_op_resize(onnx_exporter *ex)
{
    const weir_shape *from = emit_shape(ex, 0), *to = &ex->node->out[0]->type.shape;
    const int axis = emit_axis(ex, from->rank);
    const double scale = emit_real(ex, "scale"), size = (double)from->dim[axis], count = (double)to->dim[axis];
    const bool by_size = scale == count / size;
    double list[WEIR_DIMS_MAX] = {0};
    if (!by_size && floor(size * (double)(float)scale) != count)
        return ex->why = "its scale gives another size", false;
    for (int d = 0; d < from->rank; d++)
        list[d] = d == axis ? scale : 1;
    const char *sizes = by_size ? emit_ints(ex, to->dim, to->rank) : NULL, *scales = by_size ? "" : emit_reals(ex, list, from->rank);
    EMIT_BEGIN(ex, "Resize", emit_in(ex, 0), "", scales, sizes);
    emit_set_text(ex, "mode", emit_int(ex, "mode", 0) == WEIR_RESIZE_LINEAR ? "linear" : "nearest");
    emit_set_text(ex, "coordinate_transformation_mode", coordinates_of(emit_int(ex, "coordinates", 0)));
    emit_set_text(ex, "nearest_mode", rounding_of(emit_int(ex, "round", 0)));
    return emit_end(ex, emit_out(ex, 0));
}
