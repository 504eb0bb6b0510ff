/* kernels/common/ops.h: the table of built-in ops. A family is a folder; adding an op is its definition there (a global
 * `const weir_op op_NAME`) and its name here.
 *
 * These may include this file: the compiler (for the few ops that it inserts by itself) and the registry. The DSL functions
 * of a family live beside its definitions and use the family's own header, if it has one.
 */
#ifndef KERNELS_COMMON_OPS_H
#define KERNELS_COMMON_OPS_H

#include <weir/op.h>

#include "kernels/common/elements.h"

/* core: what the compiler inserts */
#define OPS_CORE(X) X(source) X(sink) X(call) X(shard) X(box) X(accumulate) X(batch) X(unbatch) X(grad_seed) X(copy) X(fused) \
    X(fused_over) X(collective)
#define OPS_ELEMENTWISE(X) ELEMENT_FUNCTIONS(X) ELEMENT_GRADIENTS(X) ELEMENT_PAIRS(X) ELEMENT_TESTS(X) X(add_many) X(affine) \
    X(cast) X(where) X(masked) X(clip) X(clip_grad) X(logical_not) X(is_nan)
#define OPS_REDUCE(X) X(sum) X(mean) X(max) X(max_grad) X(sum_to) X(softmax) X(softmax_grad) X(argmax)
#define OPS_SHAPE(X) X(reshape) X(broadcast_to) X(transpose) X(slice) X(pad) X(concat) X(append)
#define OPS_INDEX(X) X(constant) X(range) X(slice_step) X(place_step) X(prod) X(prod_grad) \
    X(gather) X(gather_grad) X(gather_nd) X(gather_nd_grad) X(gather_elements) X(gather_elements_grad) \
    X(resize) X(resize_grad) X(cumsum) X(top_k)
#define OPS_RANDOM(X) X(dropout) X(dropout_grad)
#define OPS_MATMUL(X)                                                                                          \
    X(matmul) X(linear) X(linear_by_row) X(linear_dw) X(linear_db) X(linear_gelu) X(matmul_gelu_grad)          \
    X(linear_dw_db) X(linear_many) X(linear_dw_many)
#define OPS_CONV(X) X(conv) X(conv_transpose) X(conv_dw) X(max_pool) X(max_pool_grad) X(average_pool) X(average_pool_grad)
#define OPS_NORM(X) X(layernorm) X(layernorm_grad) X(rmsnorm) X(rmsnorm_grad)
#define OPS_ATTENTION(X) X(attention) X(attention_grad) X(attention_kept) X(attention_masked) X(attention_masked_grad) \
    X(attention_kept_masked) X(rope)
#define OPS_EMBEDDING(X) X(embedding) X(embedding_grad)
#define OPS_STORED(X) X(linear_stored) X(linear_stored_dx) X(embedding_stored)
#define OPS_LOSS(X)                                                                                            \
    X(cross_entropy) X(cross_entropy_grad) X(label_count) X(class_lse) X(class_lse_grad) X(class_loss)         \
    X(class_loss_grad)
#define OPS_OPTIM(X) \
    X(sgd) X(nesterov) X(adagrad) X(lion) X(adamw) X(adam) X(sgd_moved) X(nesterov_moved) X(adagrad_moved) X(lion_moved) \
    X(adamw_moved) X(adam_moved) X(lamb) X(lamb_apply) X(schedule) X(ema) X(square_sum) X(clip_scale) X(clip_norm) X(loss_scale)

#define OPS_LAUNCH(X) X(fused_launch) X(fused_launch_over) /* inserted, too */

#define OPS_LIST(X)                                                                                            \
    OPS_CORE(X) OPS_ELEMENTWISE(X) OPS_REDUCE(X) OPS_SHAPE(X) OPS_INDEX(X) OPS_RANDOM(X) OPS_MATMUL(X) OPS_NORM(X) \
    OPS_ATTENTION(X) OPS_EMBEDDING(X) OPS_STORED(X) OPS_LOSS(X) OPS_OPTIM(X) OPS_CONV(X) OPS_LAUNCH(X)

#define X(name) extern const weir_op op_##name;
OPS_LIST(X)
#undef X

/* All of them, in this order: of a copy of the kernels that is for some processors (kernels/table/levels.c), or of the only
 * one. */
#define X(name) +1
enum { OPS_COUNT = 0 OPS_LIST(X) };
#undef X
#ifndef LEVEL_OPS
#define LEVEL_OPS level_ops
#endif
extern const weir_op *const LEVEL_OPS[OPS_COUNT];

#endif
