/* graph/onnx/emit_element.c: functions of elements, comparisons and choices, as nodes of an ONNX file. */
#include "graph/onnx/emit.h"

#include <math.h>
#include <string.h>

/* ---- one to one ---- */

static const struct same {
    const char *op, *onnx;
} same[] = {
    {"neg", "Neg"},         {"exp", "Exp"},       {"log", "Log"},     {"sqrt", "Sqrt"},   {"tanh", "Tanh"},   {"sigmoid", "Sigmoid"},
    {"relu", "Relu"},       {"abs", "Abs"},       {"sin", "Sin"},     {"cos", "Cos"},     {"erf", "Erf"},     {"reciprocal", "Reciprocal"},
    {"softplus", "Softplus"}, {"floor", "Floor"}, {"ceil", "Ceil"},   {"round", "Round"}, {"sign", "Sign"},   {"add", "Add"},
    {"sub", "Sub"},         {"mul", "Mul"},       {"div", "Div"},     {"min2", "Min"},    {"max2", "Max"},    {"pow", "Pow"},
    {"equal", "Equal"},     {"less", "Less"},     {"less_equal", "LessOrEqual"},          {"logical_and", "And"},
    {"logical_or", "Or"},   {"logical_xor", "Xor"}, {"logical_not", "Not"},               {"is_nan", "IsNaN"},
};

static const char *onnx_of(const onnx_exporter *ex)
{
    size_t i = 0;
    while (strcmp(same[i].op, ex->node->op->name) != 0)
        i++;
    return same[i].onnx;
}

bool emit_op_alias(onnx_exporter *ex)
{
    return emit_alias(ex, 0, emit_in(ex, 0));
}

bool emit_op_function(onnx_exporter *ex)
{
    return EMIT_OUT(ex, onnx_of(ex), emit_in(ex, 0));
}

bool emit_op_pair(onnx_exporter *ex)
{
    return EMIT_OUT(ex, onnx_of(ex), emit_in(ex, 0), emit_in(ex, 1));
}

/* One operand or two, to a bool. */
bool emit_op_test(onnx_exporter *ex)
{
    const char *b = ex->node->in_count > 1 ? emit_in(ex, 1) : NULL;
    return emit_cast(ex, emit_out(ex, 0), EMIT(ex, NULL, onnx_of(ex), emit_in(ex, 0), b), ONNX_UINT8);
}

bool emit_op_logical(onnx_exporter *ex)
{
    const char *a = emit_bool(ex, emit_in(ex, 0)), *b = ex->node->in_count > 1 ? emit_bool(ex, emit_in(ex, 1)) : NULL;
    return emit_cast(ex, emit_out(ex, 0), EMIT(ex, NULL, onnx_of(ex), a, b), ONNX_UINT8);
}

bool emit_op_add_many(onnx_exporter *ex)
{
    const char *in[WEIR_ARGS_MAX + 1] = {NULL};
    for (int i = 0; i < ex->node->in_count; i++)
        in[i] = emit_in(ex, i);
    emit_begin(ex, "Sum", in);
    return emit_end(ex, emit_out(ex, 0));
}

/* ---- with numbers ---- */

bool emit_op_affine(onnx_exporter *ex)
{
    const double scale = emit_real(ex, "scale"), shift = emit_real(ex, "shift");
    const weir_dtype dtype = emit_type(ex, 0)->dtype;
    const char *x = emit_in(ex, 0);
    if (shift == 0)
        return emit_by_number(ex, emit_out(ex, 0), "Mul", x, dtype, scale);
    x = scale == 1 ? x : emit_by_number(ex, NULL, "Mul", x, dtype, scale);
    return emit_by_number(ex, emit_out(ex, 0), "Add", x, dtype, shift);
}

bool emit_op_cast(onnx_exporter *ex)
{
    return emit_cast(ex, emit_out(ex, 0), emit_in(ex, 0), export_type(ex->node->out[0]->type.dtype));
}

/* A bound that is infinite is none. */
static const char *bound(onnx_exporter *ex, double value)
{
    return isfinite(value) ? emit_number(ex, emit_type(ex, 0)->dtype, value) : "";
}

bool emit_op_clip(onnx_exporter *ex)
{
    const char *lo = bound(ex, emit_real(ex, "lo")), *hi = bound(ex, emit_real(ex, "hi"));
    return EMIT_OUT(ex, "Clip", emit_in(ex, 0), lo, hi);
}

/* x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
bool emit_op_gelu(onnx_exporter *ex)
{
    const weir_dtype dtype = emit_type(ex, 0)->dtype;
    const char *x = emit_in(ex, 0), *square = EMIT(ex, NULL, "Mul", x, x);
    square = emit_by_number(ex, NULL, "Mul", square, dtype, 0.044715);
    square = emit_by_number(ex, NULL, "Add", square, dtype, 1);
    const char *inner = emit_by_number(ex, NULL, "Mul", EMIT(ex, NULL, "Mul", x, square), dtype, 0.7978845608028654);
    const char *one = emit_by_number(ex, NULL, "Add", EMIT(ex, NULL, "Tanh", inner), dtype, 1);
    return EMIT_OUT(ex, "Mul", emit_by_number(ex, NULL, "Mul", x, dtype, 0.5), one);
}

bool emit_op_silu(onnx_exporter *ex)
{
    const char *x = emit_in(ex, 0);
    return EMIT_OUT(ex, "Mul", x, EMIT(ex, NULL, "Sigmoid", x));
}

/* x/2 (1 + erf(x / sqrt(2))) */
bool emit_op_gelu_erf(onnx_exporter *ex)
{
    const weir_dtype dtype = emit_type(ex, 0)->dtype;
    const char *x = emit_in(ex, 0), *inner = emit_by_number(ex, NULL, "Mul", x, dtype, 0.7071067811865476);
    const char *one = emit_by_number(ex, NULL, "Add", EMIT(ex, NULL, "Erf", inner), dtype, 1);
    return EMIT_OUT(ex, "Mul", emit_by_number(ex, NULL, "Mul", x, dtype, 0.5), one);
}

/* ---- choices ---- */

bool emit_op_where(onnx_exporter *ex)
{
    return EMIT_OUT(ex, "Where", emit_bool(ex, emit_in(ex, 0)), emit_in(ex, 1), emit_in(ex, 2));
}

bool emit_op_masked(onnx_exporter *ex)
{
    const char *zero = emit_number(ex, emit_type(ex, 1)->dtype, 0), *truth = emit_bool(ex, emit_in(ex, 0)), *x = emit_in(ex, 1);
    return emit_int(ex, "inverted", 0) ? EMIT_OUT(ex, "Where", truth, zero, x) : EMIT_OUT(ex, "Where", truth, x, zero);
}
