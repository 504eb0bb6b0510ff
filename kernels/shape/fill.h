/* kernels/shape/fill.h: tensors that are made of no input: a constant, and numbers at equal distances.
 *
 *     constant -> x      each element is `value`
 *     range    -> x      element i of the one dimension is start + step i
 *
 * Such a tensor exists once a step, and has no bytes in a checkpoint: its kernel fills it. A shard of a range knows from its view
 * where it begins, so all layouts have the same bits. The numbers are doubles, which have all integers up to 2^53. Pure functions; any
 * thread.
 */
#ifndef KERNELS_SHAPE_FILL_H
#define KERNELS_SHAPE_FILL_H

#include <weir/op.h>

typedef struct constant_attrs {
    int64_t dim[WEIR_DIMS_MAX];
    int64_t rank;
    int64_t dtype;
    double value;
} constant_attrs;

typedef struct steps_attrs {
    int64_t dtype;
    int64_t count;
    double start, step;
} steps_attrs;

#endif
