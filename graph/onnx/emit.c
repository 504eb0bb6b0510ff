/* graph/onnx/emit.c: writes nodes and constants of an ONNX file. See emit.h. The numbers of fields are those of
 * https://github.com/onnx/onnx/blob/main/onnx/onnx.proto.
 */
#include "graph/onnx/emit.h"

#include "graph/base/base.h"
#include "graph/base/dtype.h"

#include <string.h>

enum { NODE_IN = 1, NODE_OUT = 2, NODE_NAME = 3, NODE_OP = 4, NODE_ATTRIBUTE = 5 };
enum { ATTRIBUTE_NAME = 1, ATTRIBUTE_F = 2, ATTRIBUTE_I = 3, ATTRIBUTE_S = 4, ATTRIBUTE_T = 5, ATTRIBUTE_INTS = 8, ATTRIBUTE_TYPE = 20 };
enum { TYPE_FLOAT = 1, TYPE_INT = 2, TYPE_STRING = 3, TYPE_TENSOR = 4, TYPE_INTS = 7 };
enum { TENSOR_DIMS = 1, TENSOR_TYPE = 2, TENSOR_NAME = 8, TENSOR_RAW = 9 };
enum { GRAPH_NODE = 1, GRAPH_INITIALIZER = 5 };

/* ---- the node that is converted ---- */

const char *emit_in(onnx_exporter *ex, int i)
{
    return ex->name[ex->node->in[i]->id];
}

const char *emit_out(onnx_exporter *ex, int o)
{
    const char **name = &ex->name[ex->node->out[o]->id];
    if (!*name)
        *name = export_name(ex, ex->node->out[o]->name);
    return *name;
}

/* An output of the file has its name already. */
bool emit_alias(onnx_exporter *ex, int o, const char *name)
{
    const char **own = &ex->name[ex->node->out[o]->id];
    if (*own)
        EMIT(ex, *own, "Identity", name);
    else
        *own = name;
    return true;
}

static const weir_field *field_of(const onnx_exporter *ex, const char *name)
{
    const weir_op *op = ex->node->op;
    for (int f = 0; f < op->field_count; f++)
        if (!strcmp(op->fields[f].name, name))
            return &op->fields[f];
    return NULL;
}

int64_t emit_int(const onnx_exporter *ex, const char *name, int i)
{
    const weir_field *field = field_of(ex, name);
    int64_t value = 0;
    if (field && i < field->count)
        memcpy(&value, (const char *)ex->node->attrs + field->offset + 8 * (size_t)i, sizeof value);
    return value;
}

double emit_real(const onnx_exporter *ex, const char *name)
{
    const weir_field *field = field_of(ex, name);
    double value = 0;
    if (field)
        memcpy(&value, (const char *)ex->node->attrs + field->offset, sizeof value);
    return value;
}

int emit_axis(const onnx_exporter *ex, int rank)
{
    const int64_t axis = emit_int(ex, "axis", 0);
    return (int)(axis < 0 ? axis + rank : axis);
}

/* ---- nodes of the file ---- */

void emit_begin(onnx_exporter *ex, const char *op, const char *const *in)
{
    ex->op = op;
    for (; *in; in++)
        proto_put_text(&ex->making, NODE_IN, *in);
}

static struct proto_out attribute(const char *name, int type)
{
    struct proto_out a = {0};
    proto_put_text(&a, ATTRIBUTE_NAME, name);
    proto_put_number(&a, ATTRIBUTE_TYPE, type);
    return a;
}

void emit_set_int(onnx_exporter *ex, const char *name, int64_t value)
{
    struct proto_out a = attribute(name, TYPE_INT);
    proto_put_number(&a, ATTRIBUTE_I, value);
    proto_put_message(&ex->making, NODE_ATTRIBUTE, &a);
}

void emit_set_ints(onnx_exporter *ex, const char *name, const int64_t *value, int count)
{
    struct proto_out a = attribute(name, TYPE_INTS);
    for (int i = 0; i < count; i++)
        proto_put_number(&a, ATTRIBUTE_INTS, value[i]);
    proto_put_message(&ex->making, NODE_ATTRIBUTE, &a);
}

void emit_set_real(onnx_exporter *ex, const char *name, double value)
{
    struct proto_out a = attribute(name, TYPE_FLOAT);
    proto_put_float(&a, ATTRIBUTE_F, (float)value);
    proto_put_message(&ex->making, NODE_ATTRIBUTE, &a);
}

void emit_set_text(onnx_exporter *ex, const char *name, const char *value)
{
    struct proto_out a = attribute(name, TYPE_STRING);
    proto_put_text(&a, ATTRIBUTE_S, value);
    proto_put_message(&ex->making, NODE_ATTRIBUTE, &a);
}

/* A TensorProto without its name. */
static struct proto_out tensor_of(int type, const weir_shape *shape, const void *data)
{
    struct proto_out t = {0};
    for (int d = 0; d < shape->rank; d++)
        proto_put_number(&t, TENSOR_DIMS, shape->dim[d]);
    proto_put_number(&t, TENSOR_TYPE, type);
    proto_put_bytes(&t, TENSOR_RAW, data, (size_t)weir_shape_count(shape) * onnx_type_bytes(type));
    return t;
}

void emit_set_scalar(onnx_exporter *ex, const char *name, weir_dtype dtype, double value)
{
    struct proto_out a = attribute(name, TYPE_TENSOR);
    int64_t element = 0; /* of any dtype */
    dtype_set(dtype, &element, 0, value);
    struct proto_out t = tensor_of(export_type(dtype), &(weir_shape){1, {1}}, &element);
    proto_put_message(&a, ATTRIBUTE_T, &t);
    proto_put_message(&ex->making, NODE_ATTRIBUTE, &a);
}

static const char *fresh(onnx_exporter *ex, const char *what)
{
    const char *wanted = pool_text(&ex->pool, "%s/%s", ex->node->name, what);
    return wanted ? export_name(ex, wanted) : NULL;
}

void emit_end_two(onnx_exporter *ex, const char *first, const char *second)
{
    const char *out[2] = {first, second};
    for (int o = 0; o < 2 && out[o]; o++)
        proto_put_text(&ex->making, NODE_OUT, out[o]);
    if (first)
        proto_put_text(&ex->making, NODE_NAME, first);
    proto_put_text(&ex->making, NODE_OP, ex->op);
    proto_put_message(&ex->nodes, GRAPH_NODE, &ex->making);
    if (!first)
        export_no_memory(ex);
}

const char *emit_end(onnx_exporter *ex, const char *out)
{
    out = out ? out : fresh(ex, ex->op);
    emit_end_two(ex, out, NULL);
    return out;
}

/* ---- constants ---- */

static const char *constant(onnx_exporter *ex, int type, const weir_shape *shape, const void *data)
{
    struct proto_out t = tensor_of(type, shape, data);
    const char *name = fresh(ex, "constant");
    if (name)
        proto_put_text(&t, TENSOR_NAME, name);
    proto_put_message(&ex->constants, GRAPH_INITIALIZER, &t);
    return name ? name : (export_no_memory(ex), "");
}

const char *emit_number(onnx_exporter *ex, weir_dtype dtype, double value)
{
    int64_t element = 0;
    dtype_set(dtype, &element, 0, value);
    return constant(ex, export_type(dtype), &(weir_shape){.rank = 0}, &element);
}

const char *emit_ints(onnx_exporter *ex, const int64_t *value, int count)
{
    return constant(ex, ONNX_INT64, &(weir_shape){1, {count}}, value);
}

const char *emit_reals(onnx_exporter *ex, const double *value, int count)
{
    float data[WEIR_DIMS_MAX];
    for (int i = 0; i < count; i++)
        data[i] = (float)value[i];
    return emit_f32(ex, &(weir_shape){1, {count}}, data);
}

const char *emit_f32(onnx_exporter *ex, const weir_shape *shape, const float *data)
{
    return constant(ex, ONNX_FLOAT, shape, data);
}

const char *emit_f64(onnx_exporter *ex, const weir_shape *shape, const double *data)
{
    return constant(ex, ONNX_DOUBLE, shape, data);
}

const char *emit_range(onnx_exporter *ex, weir_dtype dtype, const weir_shape *shape, double start, double step)
{
    const int64_t count = weir_shape_count(shape);
    void *data = pool_alloc(&ex->pool, (size_t)count * weir_dtype_bytes(dtype));
    for (int64_t i = 0; data && i < count; i++)
        dtype_set(dtype, data, i, start + step * (double)i);
    return data ? constant(ex, export_type(dtype), shape, data) : (export_no_memory(ex), "");
}

/* ---- often used ---- */

const char *emit_cast(onnx_exporter *ex, const char *out, const char *x, int type)
{
    EMIT_BEGIN(ex, "Cast", x);
    emit_set_int(ex, "to", type);
    return emit_end(ex, out);
}

const char *emit_bool(onnx_exporter *ex, const char *x)
{
    return emit_cast(ex, NULL, x, ONNX_BOOL);
}

const char *emit_reshape(onnx_exporter *ex, const char *out, const char *x, const int64_t *dim, int rank)
{
    return EMIT(ex, out, "Reshape", x, emit_ints(ex, dim, rank));
}

const char *emit_transpose(onnx_exporter *ex, const char *out, const char *x, const int64_t *perm, int rank)
{
    EMIT_BEGIN(ex, "Transpose", x);
    emit_set_ints(ex, "perm", perm, rank);
    return emit_end(ex, out);
}

/* ReduceSum takes its axes as an input since version 13, the others in version 17 as an attribute. */
const char *emit_reduce(onnx_exporter *ex, const char *out, const char *op, const char *x, int64_t axis, bool keep)
{
    const bool input = !strcmp(op, "ReduceSum");
    const char *axes = input ? emit_ints(ex, &axis, 1) : NULL;
    EMIT_BEGIN(ex, op, x, axes);
    if (!input)
        emit_set_ints(ex, "axes", &axis, 1);
    emit_set_int(ex, "keepdims", keep);
    return emit_end(ex, out);
}

const char *emit_by_number(onnx_exporter *ex, const char *out, const char *op, const char *x, weir_dtype dtype, double value)
{
    return EMIT(ex, out, op, x, emit_number(ex, dtype, value));
}
