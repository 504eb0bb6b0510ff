/* kernels/reduce/reduce.h: what the family gives to other families beyond <weir/ops.h>. */
#ifndef KERNELS_REDUCE_REDUCE_H
#define KERNELS_REDUCE_REDUCE_H

#include <weir/op.h>

typedef struct reduce_attrs {
    int64_t axes[WEIR_DIMS_MAX]; /* as the user gave them: negative ones count from the end */
    int64_t axis_count;          /* 0: over all dimensions */
    int64_t keep;                /* reduced dimensions stay, as 1 */
} reduce_attrs;

/* `x` summed to `shape`, which broadcasts to x's shape: what flows back through a broadcast. x itself when the shapes
 * are equal. */
weir_tensor *reduce_sum_to(weir_tensor *x, const weir_shape *shape, weir_src src);

#endif
