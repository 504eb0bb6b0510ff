/* kernels/cuda/list.h: the built-in ops that have a kernel on CUDA devices, op_NAME_cuda; a line per family. A process
 * without the plugin (regst/plugin.h) goes by it, too: so plans for CUDA devices are made and checked anywhere.
 */
#ifndef KERNELS_CUDA_LIST_H
#define KERNELS_CUDA_LIST_H

#include "kernels/common/elements.h"

#define CUDA_CORE(X) X(copy) X(shard) X(box) X(accumulate) X(grad_seed)
#define CUDA_FUSED(X) X(fused_launch) X(fused_launch_over)
#define CUDA_ELEMENTWISE(X) ELEMENT_FUNCTIONS(X) ELEMENT_GRADIENTS(X) ELEMENT_PAIRS(X) ELEMENT_TESTS(X) X(add_many) X(affine) \
    X(cast) X(where) X(masked) X(clip) X(clip_grad) X(logical_not) X(is_nan)
#define CUDA_SHAPE(X) X(reshape) X(broadcast_to) X(transpose) X(slice) X(pad) X(concat) X(append)
#define CUDA_INDEX(X) X(constant) X(range) X(slice_step) X(place_step) X(prod) X(prod_grad) \
    X(gather) X(gather_grad) X(gather_nd) X(gather_nd_grad) X(gather_elements) X(gather_elements_grad) \
    X(resize) X(resize_grad) X(cumsum) X(top_k)
#define CUDA_NORM(X) X(layernorm) X(layernorm_grad) X(rmsnorm) X(rmsnorm_grad)
#define CUDA_LOSS(X)                                                                                           \
    X(cross_entropy) X(cross_entropy_grad) X(label_count) X(class_lse) X(class_lse_grad) X(class_loss)         \
    X(class_loss_grad)
#define CUDA_EMBEDDING(X) X(embedding) X(embedding_grad)
#define CUDA_STORED(X) X(linear_stored) X(linear_stored_dx) X(embedding_stored)
#define CUDA_OPTIM(X) \
    X(sgd) X(nesterov) X(adagrad) X(lion) X(adamw) X(adam) X(sgd_moved) X(nesterov_moved) X(adagrad_moved) X(lion_moved) \
    X(adamw_moved) X(adam_moved) X(lamb) X(lamb_apply) X(schedule) X(ema) X(square_sum) X(clip_scale) X(clip_norm) X(loss_scale)
#define CUDA_RANDOM(X) X(dropout) X(dropout_grad)
#define CUDA_FUSED_ATTENTION(X) X(attention) X(attention_grad)
#define CUDA_ATTENTION(X) CUDA_FUSED_ATTENTION(X) X(attention_kept) X(attention_masked) X(attention_masked_grad) \
    X(attention_kept_masked) X(rope)
#define CUDA_SINGLE_PRODUCTS(X) X(linear) X(linear_dw) X(linear_gelu) X(matmul_gelu_grad) X(linear_dw_db) X(linear_many) \
    X(linear_dw_many)
#define CUDA_PRODUCTS(X) X(matmul) CUDA_SINGLE_PRODUCTS(X)
#define CUDA_MATMUL(X) CUDA_PRODUCTS(X) X(linear_by_row) X(linear_db)
#define CUDA_CONV(X) X(conv) X(conv_transpose) X(conv_dw) X(max_pool) X(max_pool_grad) X(average_pool) X(average_pool_grad)
#define CUDA_REDUCE(X) X(sum) X(mean) X(max) X(max_grad) X(sum_to) X(softmax) X(softmax_grad) X(argmax)

/* By libraries, which are to be asked before the first of them: these have op_NAME_cuda_prepare besides. */
#define CUDA_PREPARED(X) CUDA_PRODUCTS(X) CUDA_FUSED_ATTENTION(X)

/* One launch may do many calls, of which none touches what another writes: these have op_NAME_cuda_many besides, for up to
 * JOINED_MAX of them. */
#define CUDA_JOINED(X) X(adamw) X(adamw_moved) X(adam) X(adam_moved) X(square_sum) X(cast)
enum { JOINED_MAX = 256 };

#define CUDA_OPS(X)                                                                                            \
    CUDA_CORE(X) CUDA_FUSED(X) CUDA_ELEMENTWISE(X) CUDA_REDUCE(X) CUDA_SHAPE(X) CUDA_INDEX(X) CUDA_RANDOM(X)   \
    CUDA_MATMUL(X) CUDA_NORM(X) CUDA_ATTENTION(X) CUDA_EMBEDDING(X) CUDA_STORED(X) CUDA_LOSS(X) CUDA_OPTIM(X) CUDA_CONV(X)

#endif
