/* kernels/shape/shape.h: what the family gives to other families beyond <weir/ops.h>. */
#ifndef KERNELS_SHAPE_SHAPE_H
#define KERNELS_SHAPE_SHAPE_H

#include <weir/op.h>

/* A shape as attributes of an op. It is logical, so rules may use it; kernels look at their views. */
typedef struct shape_attrs {
    int64_t dim[WEIR_DIMS_MAX];
    int64_t rank;
} shape_attrs;
extern const weir_field shape_fields[2];

/* `range` is first and count for a slice, the zeros before and after for a pad. */
typedef struct range_attrs {
    int64_t axis; /* may be negative */
    int64_t range[2];
} range_attrs;

/* A slice by steps: element i is at first + step i of `size` places. */
typedef struct step_attrs {
    int64_t axis; /* may be negative */
    int64_t first, count, step, size;
} step_attrs;

typedef struct concat_attrs {
    int64_t axis; /* may be negative */
} concat_attrs;

typedef struct transpose_attrs {
    int64_t perm[WEIR_DIMS_MAX]; /* dimension i of the output is dimension perm[i] of the input */
} transpose_attrs;

shape_attrs shape_attrs_of(const weir_shape *shape);
/* Refuses a rank or a dimension that no shape has. */
bool shape_of_attrs(const shape_attrs *attrs, weir_shape *shape, char *error, size_t error_bytes);

/* Whether `small` is of a shape that broadcasts to that of `large`; refuses if not. */
bool shape_repeats(const weir_type *small, const weir_type *large, char *error, size_t error_bytes);

/* DSL functions for gradients; x itself when it has the shape already. */
weir_tensor *shape_reshape(weir_tensor *x, const weir_shape *shape, weir_src src);
weir_tensor *shape_broadcast_to(weir_tensor *x, const weir_shape *shape, weir_src src);

/* x under another name; NULL: a new one. */
weir_tensor *shape_same(weir_tensor *x, const char *name, weir_src src);

/* `x` with `before` zeros in front of it and `after` behind it along dimension `axis`. */
weir_tensor *shape_pad(weir_tensor *x, int axis, int64_t before, int64_t after, weir_src src);

#endif
