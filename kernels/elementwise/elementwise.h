/* kernels/elementwise/elementwise.h: what the family gives to other families beyond <weir/ops.h>. */
#ifndef KERNELS_ELEMENTWISE_ELEMENTWISE_H
#define KERNELS_ELEMENTWISE_ELEMENTWISE_H

#include <weir/op.h>

typedef struct affine_attrs {
    double scale, shift;
} affine_attrs;

/* The shape to which the two broadcast, as NumPy does it. False when they do not. */
bool broadcast_shapes(const weir_shape *a, const weir_shape *b, weir_shape *both);

#endif
