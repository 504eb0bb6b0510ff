/* kernels/reduce/reduce.h: what the family gives to other families beyond <weir/ops.h>. */
#ifndef KERNELS_REDUCE_REDUCE_H
#define KERNELS_REDUCE_REDUCE_H

#include <weir/op.h>

typedef struct reduce_attrs {
    int64_t axes[WEIR_DIMS_MAX]; /* as the user gave them: negative ones count from the end */
    int64_t axis_count;          /* 0: over all dimensions */
    int64_t keep;                /* reduced dimensions stay, as 1 */
} reduce_attrs;

#ifndef __cplusplus
extern const weir_field reduce_fields[3];
#endif
/* infer, of an op whose first input is reduced to out[0], an f32. */
bool reduce_infer(weir_op_args *args, char *error, size_t error_bytes);

/* A bit per reduced dimension. Axes must have been checked by reduce_infer. */
static inline unsigned reduced_mask(const reduce_attrs *attrs, int rank)
{
    unsigned mask = 0;
    if (!attrs->axis_count)
        return (1u << rank) - 1;
    for (int i = 0; i < attrs->axis_count; i++)
        mask |= 1u << (attrs->axes[i] < 0 ? attrs->axes[i] + rank : attrs->axes[i]);
    return mask;
}

/* `shape` with 1 for the reduced dimensions. */
static inline weir_shape kept_shape(const weir_shape *shape, unsigned mask)
{
    weir_shape kept = *shape;
    for (int d = 0; d < shape->rank; d++)
        if (mask >> d & 1)
            kept.dim[d] = 1;
    return kept;
}

/* `x` summed to `shape`, which broadcasts to x's shape: what flows back through a broadcast. x itself when the shapes
 * are equal. */
weir_tensor *reduce_sum_to(weir_tensor *x, const weir_shape *shape, weir_src src);

#endif
