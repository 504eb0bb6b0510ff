/* graph/onnx/table.c: the operators of ONNX that are known, in alphabetical order. A new one is a line here. */
#include "graph/onnx/ops.h"

#include <stdlib.h>
#include <string.h>

#define NONE NULL
#define ROW(op, fold, convert) {op, fold, convert}
#define F(name) onnx_fold_##name
#define C(name) onnx_op_##name

static const onnx_operator operators[] = {
    ROW("Abs", F(unary), NONE),
    ROW("Add", F(binary), C(arithmetic)),
    ROW("And", F(binary), NONE),
    ROW("ArgMax", NONE, C(arg)),
    ROW("ArgMin", NONE, C(arg)),
    ROW("BatchNormalization", NONE, C(batch_norm)),
    ROW("Cast", F(cast), C(cast)),
    ROW("Ceil", F(unary), NONE),
    ROW("Celu", NONE, C(exponential)),
    ROW("Concat", F(concat), C(concat)),
    ROW("Constant", F(constant), NONE),
    ROW("ConstantOfShape", F(constant_of_shape), NONE),
    ROW("Cos", F(unary), NONE),
    ROW("DepthToSpace", NONE, C(depth)),
    ROW("Div", F(binary), C(arithmetic)),
    ROW("Dropout", NONE, C(dropout)),
    ROW("Elu", NONE, C(exponential)),
    ROW("Equal", F(binary), NONE),
    ROW("Erf", F(unary), NONE),
    ROW("Exp", F(unary), C(unary)),
    ROW("Expand", F(expand), C(expand)),
    ROW("EyeLike", F(eye_like), NONE),
    ROW("Flatten", F(flatten), C(flatten)),
    ROW("Floor", F(unary), NONE),
    ROW("GRU", NONE, C(recurrent)),
    ROW("Gather", F(gather), C(gather)),
    ROW("Gemm", NONE, C(gemm)),
    ROW("GlobalAveragePool", NONE, C(global_pool)),
    ROW("GlobalMaxPool", NONE, C(global_pool)),
    ROW("Greater", F(binary), NONE),
    ROW("GreaterOrEqual", F(binary), NONE),
    ROW("Identity", F(identity), C(identity)),
    ROW("If", F(if), NONE),
    ROW("InstanceNormalization", NONE, C(instance_norm)),
    ROW("IsNaN", F(unary), NONE),
    ROW("LSTM", NONE, C(recurrent)),
    ROW("LayerNormalization", NONE, C(layer_norm)),
    ROW("LeakyRelu", NONE, C(leaky)),
    ROW("Less", F(binary), NONE),
    ROW("LessOrEqual", F(binary), NONE),
    ROW("Log", F(unary), C(unary)),
    ROW("LogSoftmax", NONE, C(softmax)),
    ROW("LpNormalization", NONE, C(lp_norm)),
    ROW("MatMul", NONE, C(matmul)),
    ROW("Max", F(binary), NONE),
    ROW("Mean", NONE, C(sum)),
    ROW("MeanVarianceNormalization", NONE, C(mean_variance)),
    ROW("Min", F(binary), NONE),
    ROW("Mod", F(binary), NONE),
    ROW("Mul", F(binary), C(arithmetic)),
    ROW("Neg", F(unary), C(unary)),
    ROW("NonZero", F(non_zero), NONE),
    ROW("Not", F(unary), NONE),
    ROW("Or", F(binary), NONE),
    ROW("PRelu", NONE, C(leaky)),
    ROW("Pow", F(binary), NONE),
    ROW("RNN", NONE, C(recurrent)),
    ROW("Range", F(range), NONE),
    ROW("Reciprocal", F(unary), NONE),
    ROW("ReduceL2", NONE, C(reduce)),
    ROW("ReduceLogSum", NONE, C(reduce)),
    ROW("ReduceLogSumExp", NONE, C(reduce)),
    ROW("ReduceMax", F(reduce), C(reduce)),
    ROW("ReduceMean", F(reduce), C(reduce)),
    ROW("ReduceMin", F(reduce), C(reduce)),
    ROW("ReduceProd", F(reduce), C(reduce)),
    ROW("ReduceSum", F(reduce), C(reduce)),
    ROW("ReduceSumSquare", NONE, C(reduce)),
    ROW("Relu", F(unary), C(unary)),
    ROW("Reshape", F(reshape), C(reshape)),
    ROW("Round", F(unary), NONE),
    ROW("Selu", NONE, C(exponential)),
    ROW("Shape", F(shape), NONE),
    ROW("Sigmoid", F(unary), C(unary)),
    ROW("Sign", F(unary), NONE),
    ROW("Sin", F(unary), NONE),
    ROW("Size", F(size), NONE),
    ROW("Slice", F(slice), C(slice)),
    ROW("Softmax", NONE, C(softmax)),
    ROW("Softsign", NONE, C(softsign)),
    ROW("SpaceToDepth", NONE, C(depth)),
    ROW("Split", F(split), C(split)),
    ROW("Sqrt", F(unary), C(unary)),
    ROW("Squeeze", F(squeeze), C(squeeze)),
    ROW("Sub", F(binary), C(arithmetic)),
    ROW("Sum", F(binary), C(sum)),
    ROW("Tanh", F(unary), C(unary)),
    ROW("Tile", F(tile), C(tile)),
    ROW("Transpose", F(transpose), C(transpose)),
    ROW("Unsqueeze", F(unsqueeze), C(unsqueeze)),
    ROW("Where", F(where), NONE),
    ROW("Xor", F(binary), NONE),
};

static int compare(const void *name, const void *op)
{
    return strcmp(name, ((const onnx_operator *)op)->op);
}

const onnx_operator *onnx_operator_find(const char *op)
{
    return bsearch(op, operators, sizeof operators / sizeof *operators, sizeof *operators, compare);
}
