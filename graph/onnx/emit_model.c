/* graph/onnx/emit_model.c: products, convolutions, norms and losses, as nodes of an ONNX file. */
#include "graph/onnx/emit.h"

#include "graph/base/base.h"

#include <math.h>
#include <string.h>

/* ---- products ---- */

/* x with its last two dimensions swapped. */
static const char *swapped(onnx_exporter *ex, const char *x, int rank)
{
    int64_t perm[WEIR_DIMS_MAX] = {0};
    for (int d = 0; d < rank; d++)
        perm[d] = d < rank - 2 ? d : d == rank - 2 ? rank - 1 : rank - 2;
    return emit_transpose(ex, NULL, x, perm, rank);
}

bool emit_op_matmul(onnx_exporter *ex)
{
    const char *a = emit_in(ex, 0), *b = emit_in(ex, 1);
    a = emit_int(ex, "trans_a", 0) ? swapped(ex, a, emit_shape(ex, 0)->rank) : a;
    b = emit_int(ex, "trans_b", 0) ? swapped(ex, b, emit_shape(ex, 1)->rank) : b;
    return EMIT_OUT(ex, "MatMul", a, b);
}

/* x, weight [in, out] (, bias) */
bool emit_op_linear(onnx_exporter *ex)
{
    if (ex->node->in_count < 3)
        return EMIT_OUT(ex, "MatMul", emit_in(ex, 0), emit_in(ex, 1));
    const char *bias = emit_in(ex, 2);
    if (emit_type(ex, 2)->dtype != emit_type(ex, 0)->dtype)
        bias = emit_cast(ex, NULL, bias, export_type(emit_type(ex, 0)->dtype));
    return EMIT_OUT(ex, "Add", EMIT(ex, NULL, "MatMul", emit_in(ex, 0), emit_in(ex, 1)), bias);
}

bool emit_op_embedding(onnx_exporter *ex)
{
    const weir_dtype table = emit_type(ex, 1)->dtype, dtype = ex->node->out[0]->type.dtype;
    EMIT_BEGIN(ex, "Gather", emit_in(ex, 1), emit_in(ex, 0));
    emit_set_int(ex, "axis", 0);
    return table == dtype ? emit_end(ex, emit_out(ex, 0)) : emit_cast(ex, emit_out(ex, 0), emit_end(ex, NULL), export_type(dtype));
}

/* ---- windows ---- */

static void set_list(onnx_exporter *ex, const char *name, const char *field, int dims)
{
    int64_t list[WEIR_DIMS_MAX] = {0};
    for (int d = 0; d < dims; d++)
        list[d] = emit_int(ex, field, d);
    emit_set_ints(ex, name, list, dims);
}

static void set_window(onnx_exporter *ex, int dims)
{
    int64_t pads[2 * WEIR_DIMS_MAX] = {0};
    for (int d = 0; d < dims; d++) {
        pads[d] = emit_int(ex, "pad", d);
        pads[dims + d] = emit_int(ex, "pad_end", d);
    }
    set_list(ex, "kernel_shape", "kernel", dims);
    set_list(ex, "strides", "stride", dims);
    emit_set_ints(ex, "pads", pads, 2 * dims);
}

/* A convolution's groups follow from its shapes; those of a transposed one are an attribute. */
bool emit_op_conv(onnx_exporter *ex)
{
    const weir_shape *x = emit_shape(ex, 0), *weight = emit_shape(ex, 1);
    const bool transposed = !strcmp(ex->node->op->name, "conv_transpose");
    const char *bias = ex->node->in_count > 2 ? emit_in(ex, 2) : NULL;
    const weir_dtype dtype = emit_type(ex, 0)->dtype;
    if (bias && emit_type(ex, 2)->dtype != dtype)
        bias = emit_cast(ex, NULL, bias, export_type(dtype));
    EMIT_BEGIN(ex, transposed ? "ConvTranspose" : "Conv", emit_in(ex, 0), emit_in(ex, 1), bias);
    set_window(ex, x->rank - 2);
    set_list(ex, "dilations", "dilation", x->rank - 2);
    if (transposed)
        set_list(ex, "output_padding", "output_pad", x->rank - 2);
    emit_set_int(ex, "group", transposed ? emit_int(ex, "groups", 0) : x->dim[1] / weight->dim[1]);
    return emit_end(ex, emit_out(ex, 0));
}

bool emit_op_pool(onnx_exporter *ex)
{
    const bool max = !strcmp(ex->node->op->name, "max_pool");
    const int dims = emit_shape(ex, 0)->rank - 2;
    bool dilated = false;
    for (int d = 0; d < dims; d++)
        dilated |= emit_int(ex, "dilation", d) != 1;
    if (dilated && !max)
        return ex->why = "an average pool of this version of ONNX has no dilation", false;
    EMIT_BEGIN(ex, max ? "MaxPool" : "AveragePool", emit_in(ex, 0));
    set_window(ex, dims);
    if (max)
        set_list(ex, "dilations", "dilation", dims);
    else
        emit_set_int(ex, "count_include_pad", emit_int(ex, "count_pad", 0));
    emit_set_int(ex, "ceil_mode", emit_int(ex, "ceil", 0));
    return emit_end(ex, emit_out(ex, 0));
}

/* ---- norms: in f32, as their gain is ---- */

const char *emit_in_f32(onnx_exporter *ex, int i)
{
    return emit_type(ex, i)->dtype == WEIR_F32 ? emit_in(ex, i) : emit_cast(ex, NULL, emit_in(ex, i), ONNX_FLOAT);
}

bool emit_out_f32(onnx_exporter *ex, const char *y)
{
    return emit_cast(ex, emit_out(ex, 0), y, export_type(ex->node->out[0]->type.dtype));
}

bool emit_op_layernorm(onnx_exporter *ex)
{
    const bool half = ex->node->out[0]->type.dtype != WEIR_F32;
    EMIT_BEGIN(ex, "LayerNormalization", emit_in_f32(ex, 0), emit_in_f32(ex, 1), emit_in_f32(ex, 2));
    emit_set_int(ex, "axis", -1);
    emit_set_real(ex, "epsilon", emit_real(ex, "eps"));
    const char *y = emit_end(ex, half ? NULL : emit_out(ex, 0));
    return half ? emit_out_f32(ex, y) : true;
}

bool emit_op_rmsnorm(onnx_exporter *ex)
{
    const char *x = emit_in_f32(ex, 0), *square = EMIT(ex, NULL, "Mul", x, x);
    const char *mean = emit_reduce(ex, NULL, "ReduceMean", square, emit_shape(ex, 0)->rank - 1, true);
    const char *root = EMIT(ex, NULL, "Sqrt", emit_by_number(ex, NULL, "Add", mean, WEIR_F32, emit_real(ex, "eps")));
    const char *y = EMIT(ex, NULL, "Div", x, root);
    if (ex->node->out[0]->type.dtype == WEIR_F32)
        return EMIT_OUT(ex, "Mul", y, emit_in_f32(ex, 1));
    return emit_out_f32(ex, EMIT(ex, NULL, "Mul", y, emit_in_f32(ex, 1)));
}

/* ---- losses: rows whose label is ignored are left out ---- */

/* A bool for each label: it is ignored. NULL: none is. */
static const char *ignored(onnx_exporter *ex, const char *labels)
{
    if (!emit_int(ex, "ignore", 0))
        return NULL;
    return emit_by_number(ex, NULL, "Equal", labels, WEIR_I32, (double)emit_int(ex, "ignore_index", 0));
}

/* log sum exp over the last of `rank` dimensions, in f32. */
static const char *row_lse(onnx_exporter *ex, const char *x, int rank)
{
    return emit_reduce(ex, NULL, "ReduceLogSumExp", x, rank - 1, false);
}

/* The logit of each row's label; of a row that is ignored, any. */
static const char *picked(onnx_exporter *ex, const char *x, const weir_shape *shape, const char *labels, const char *left_out)
{
    weir_shape rows = *shape;
    rows.dim[rows.rank - 1] = 1;
    if (left_out)
        labels = EMIT(ex, NULL, "Where", left_out, emit_number(ex, WEIR_I32, 0), labels);
    EMIT_BEGIN(ex, "GatherElements", x, emit_reshape(ex, NULL, labels, rows.dim, rows.rank));
    emit_set_int(ex, "axis", rows.rank - 1);
    return emit_reshape(ex, NULL, emit_end(ex, NULL), rows.dim, rows.rank - 1);
}

/* The sum of lse - logit over the rows that count, divided by their number, at least 1. */
static bool mean_loss(onnx_exporter *ex, const char *lse, const char *logit, const char *left_out, int64_t rows, const char *count)
{
    const char *loss = EMIT(ex, NULL, "Sub", lse, logit);
    if (left_out)
        loss = EMIT(ex, NULL, "Where", left_out, emit_number(ex, WEIR_F32, 0), loss);
    EMIT_BEGIN(ex, "ReduceSum", loss);
    emit_set_int(ex, "keepdims", 0);
    const char *sum = emit_end(ex, NULL);
    if (!count)
        return emit_by_number(ex, emit_out(ex, 0), "Div", sum, WEIR_F32, rows > 1 ? (double)rows : 1);
    return EMIT_OUT(ex, "Div", sum, emit_by_number(ex, NULL, "Max", count, WEIR_F32, 1));
}

bool emit_op_cross_entropy(onnx_exporter *ex)
{
    const weir_shape *shape = emit_shape(ex, 0);
    const char *x = emit_in_f32(ex, 0), *labels = emit_in(ex, 1), *left_out = ignored(ex, labels);
    return mean_loss(ex, row_lse(ex, x, shape->rank), picked(ex, x, shape, labels, left_out), left_out,
                     weir_shape_count(emit_shape(ex, 1)), ex->node->in_count > 2 ? emit_in(ex, 2) : NULL);
}

bool emit_op_label_count(onnx_exporter *ex)
{
    const char *left_out = ignored(ex, emit_in(ex, 0));
    const double all = (double)weir_shape_count(emit_shape(ex, 0));
    if (!left_out)
        return emit_alias(ex, 0, emit_number(ex, WEIR_F32, all));
    const char *counts = emit_cast(ex, NULL, EMIT(ex, NULL, "Not", left_out), ONNX_FLOAT);
    EMIT_BEGIN(ex, "ReduceSum", counts);
    emit_set_int(ex, "keepdims", 0);
    return emit_end(ex, emit_out(ex, 0));
}

/* By groups of classes, each with a sum of its own. */
bool emit_op_class_lse(onnx_exporter *ex)
{
    const weir_shape *shape = emit_shape(ex, 0);
    const char *x = emit_in_f32(ex, 0), *labels = emit_in(ex, 1);
    weir_shape grouped = ex->node->out[0]->type.shape;
    if (grouped.rank == WEIR_DIMS_MAX)
        return ex->why = "its logits have too many dimensions", false;
    const int64_t classes = shape->dim[shape->rank - 1] / grouped.dim[grouped.rank - 1];
    grouped.dim[grouped.rank++] = classes;
    const char *lse = row_lse(ex, emit_reshape(ex, NULL, x, grouped.dim, grouped.rank), grouped.rank);
    return emit_alias(ex, 0, lse) && emit_alias(ex, 1, picked(ex, x, shape, labels, ignored(ex, labels)));
}

bool emit_op_class_loss(onnx_exporter *ex)
{
    const char *labels = emit_in(ex, 2);
    return mean_loss(ex, row_lse(ex, emit_in(ex, 0), emit_shape(ex, 0)->rank), emit_in(ex, 1), ignored(ex, labels),
                     weir_shape_count(emit_shape(ex, 2)), ex->node->in_count > 3 ? emit_in(ex, 3) : NULL);
}
