/* graph/onnx/fold.h: operators on known values, computed on the host while a file is imported. Integers are computed as integers of
 * 64 bits, reals in double and rounded to the array's type, as in import.h: false after a fault. One thread. */
#ifndef GRAPH_ONNX_FOLD_H
#define GRAPH_ONNX_FOLD_H

#include "graph/onnx/import.h"

#define ONNX_ELEMENTS_MAX (INT64_C(1) << 31) /* of one constant that is made */

#define ONNX_FOLD_LIST(X)                                                                                        \
    X(constant) X(constant_of_shape) X(shape) X(size) X(identity) X(cast) X(reshape) X(flatten) X(squeeze)       \
    X(unsqueeze) X(transpose) X(slice) X(concat) X(split) X(gather) X(expand) X(tile) X(range) X(non_zero) X(unary) \
    X(binary) X(where) X(reduce) X(eye_like) X(if)
#define X(name) bool onnx_fold_##name(onnx_importer *im, const onnx_node *node);
ONNX_FOLD_LIST(X)
#undef X

/* The sizes after a Reshape of `rank` dimensions `from` to `to`, which has 0 and -1 with ONNX's meanings. False after a fault. */
bool onnx_reshaped(onnx_importer *im, const int64_t *from, int rank, int64_t *to, int to_rank, bool zero_is_zero);
/* The bounds of a Slice along each axis: the first element, the step, and the number of elements. False after a fault. */
typedef struct onnx_range {
    int64_t first, step, count;
} onnx_range;
bool onnx_slices(onnx_importer *im, const int64_t *dim, int rank, onnx_range *ranges);
/* Axes of an input or, in older files, of an attribute. -1 after a fault; 0: there are none. */
int onnx_axes(onnx_importer *im, int input, int rank, int *axes);
/* The sizes of a Split's parts along its axis; their number, or -1 after a fault. */
int onnx_splits(onnx_importer *im, int64_t size, int64_t *parts, int room);

#endif
