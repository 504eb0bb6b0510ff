/* kernels/elementwise/elementwise.h: what the family gives to other families beyond <weir/ops.h>. */
#ifndef KERNELS_ELEMENTWISE_ELEMENTWISE_H
#define KERNELS_ELEMENTWISE_ELEMENTWISE_H

#include <weir/op.h>

typedef struct affine_attrs {
    double scale, shift;
} affine_attrs;

/* No bound: infinite. */
typedef struct clip_attrs {
    double lo, hi;
} clip_attrs;

typedef struct masked_attrs {
    int64_t inverted;
} masked_attrs;

/* x where the condition (u8) is true, or false if `inverted`, and 0 elsewhere; broadcasting. */
weir_tensor *choice_masked(weir_tensor *condition, weir_tensor *x, bool inverted, weir_src src);

/* infer: out[0] is of `dtype` and of the shape to which all inputs broadcast. */
bool infer_broadcast(weir_op_args *args, weir_dtype dtype, char *error, size_t error_bytes);

/* signatures: a split of each dimension of out[0], of inputs that broadcast to it. */
void sign_broadcast(const weir_op_args *args, weir_signature_list *list);

/* The shape to which the two broadcast, as NumPy does it. False when they do not. */
bool broadcast_shapes(const weir_shape *a, const weir_shape *b, weir_shape *both);

#endif
