/* graph/onnx/ops.h: the functions that build operators of the graph: table.c lists them by the operators' names. As in import.h:
 * false after a fault. One thread. */
#ifndef GRAPH_ONNX_OPS_H
#define GRAPH_ONNX_OPS_H

#include "graph/onnx/fold.h"

#define ONNX_OP_LIST(X)                                                                                          \
    X(unary) X(leaky) X(exponential) X(softsign) X(arithmetic) X(sum) X(cast) X(ratio)                                    \
    X(identity) X(dropout) X(reshape) X(transpose) X(slice) X(concat) X(split) X(gather) X(tile) \
    X(matmul) X(gemm) X(reduce) X(global_pool) X(softmax) X(batch_norm) X(layer_norm) X(instance_norm) X(mean_variance) X(lp_norm) \
    X(recurrent) X(depth) X(expand) X(arg) X(conv) X(conv_transpose) X(pool) X(lrn) \
    X(pair) X(pow) X(where) X(truth) X(is_inf) X(clip) X(hard) X(threshold) X(trilu) X(gather_at) X(one_hot) X(pad) X(resize) \
    X(hardmax) X(cumsum) X(top_k) X(loss)
#define X(name) bool onnx_op_##name(onnx_importer *im);
ONNX_OP_LIST(X)
#undef X

/* x with the shape of `rank` sizes, as output 0 of the node, or a part of it. */
weir_tensor *onnx_reshape(onnx_importer *im, weir_tensor *x, int rank, const int64_t *dim, const char *name);
/* log softmax(x) over the last dimension. */
weir_tensor *onnx_log_softmax(onnx_importer *im, weir_tensor *x);
/* Input 0 at the ids of input 1; NULL after a fault. */
weir_tensor *onnx_gather(onnx_importer *im, int axis);
/* x with dimension d taken from perm[d]. */
weir_tensor *onnx_transpose(onnx_importer *im, weir_tensor *x, const int *perm, const char *name);
/* The factor and the shift for each of so many channels that a BatchNormalization with known statistics is.
 * False if it is none; no fault. */
bool onnx_norm_known(onnx_importer *im, const onnx_node *node, int64_t channels, onnx_array **scale, onnx_array **shift);
/* The sum, mean or maximum ("Sum", "Mean", "Max") over axes. */
weir_tensor *onnx_reduced(onnx_importer *im, weir_tensor *x, const char *kind, const int *axes, int count, bool keep, const char *name);
/* The tensors one after the other along the axis. */
weir_tensor *onnx_concat(onnx_importer *im, int axis, weir_tensor **x, int count, const char *name);

#endif
