/* graph/onnx/emit_table.c: the ops of weir that an ONNX file can have, in alphabetical order. Dropout does nothing outside of training;
 * shard and copy tell where values are. */
#include "graph/onnx/emit.h"

#include <stdlib.h>
#include <string.h>

#define E(op, name) {op, emit_op_##name}

static const struct row {
    const char *op;
    onnx_emit emit;
} rows[] = {
    E("abs", function),
    E("add", pair),
    E("add_many", add_many),
    E("affine", affine),
    E("append", append),
    E("argmax", argmax),
    E("attention", attention),
    E("attention_kept", attention_kept),
    E("attention_kept_masked", attention_kept),
    E("attention_masked", attention),
    E("average_pool", pool),
    E("broadcast_to", expand),
    E("cast", cast),
    E("ceil", function),
    E("class_loss", class_loss),
    E("class_lse", class_lse),
    E("clip", clip),
    E("concat", concat),
    E("constant", constant),
    E("conv", conv),
    E("conv_transpose", conv),
    E("copy", alias),
    E("cos", function),
    E("cross_entropy", cross_entropy),
    E("cumsum", cumsum),
    E("div", pair),
    E("dropout", alias),
    E("embedding", embedding),
    E("equal", test),
    E("erf", function),
    E("exp", function),
    E("floor", function),
    E("gather", gather),
    E("gather_elements", gather),
    E("gather_nd", gather_nd),
    E("gelu", gelu),
    E("gelu_erf", gelu_erf),
    E("is_nan", test),
    E("label_count", label_count),
    E("layernorm", layernorm),
    E("less", test),
    E("less_equal", test),
    E("linear", linear),
    E("linear_by_row", linear),
    E("log", function),
    E("logical_and", logical),
    E("logical_not", logical),
    E("logical_or", logical),
    E("logical_xor", logical),
    E("masked", masked),
    E("matmul", matmul),
    E("max", reduce),
    E("max2", pair),
    E("max_pool", pool),
    E("mean", reduce),
    E("min2", pair),
    E("mul", pair),
    E("neg", function),
    E("pad", pad),
    E("pow", pair),
    E("prod", reduce),
    E("range", range),
    E("reciprocal", function),
    E("relu", function),
    E("reshape", reshape),
    E("resize", resize),
    E("rmsnorm", rmsnorm),
    E("rope", rope),
    E("round", function),
    E("shard", alias),
    E("sigmoid", function),
    E("sign", function),
    E("silu", silu),
    E("sin", function),
    E("slice", slice),
    E("slice_step", slice_step),
    E("softmax", softmax),
    E("softplus", function),
    E("sqrt", function),
    E("sub", pair),
    E("sum", reduce),
    E("sum_to", sum_to),
    E("tanh", function),
    E("top_k", top_k),
    E("transpose", transpose),
    E("where", where),
};

static int compare(const void *op, const void *row)
{
    return strcmp(op, ((const struct row *)row)->op);
}

onnx_emit export_find(const char *op)
{
    const struct row *row = bsearch(op, rows, sizeof rows / sizeof *rows, sizeof *rows, compare);
    return row ? row->emit : NULL;
}
