/* graph/onnx/fold.h: operators on known values, computed on the host while a file is imported. Integers are computed as integers of
 * 64 bits, reals in double and rounded to the array's type, as in import.h: false after a fault. One thread. */
#ifndef GRAPH_ONNX_FOLD_H
#define GRAPH_ONNX_FOLD_H

#include "graph/onnx/sizes.h"

#define ONNX_ELEMENTS_MAX (INT64_C(1) << 31) /* of one constant that is made */

#define ONNX_FOLD_LIST(X)                                                                                        \
    X(constant) X(constant_of_shape) X(shape) X(size) X(identity) X(cast) X(reshape)                               \
    X(transpose) X(slice) X(concat) X(split) X(gather) X(expand) X(tile) X(range) X(non_zero) X(unary) \
    X(binary) X(where) X(reduce) X(eye_like) X(if)
#define X(name) bool onnx_fold_##name(onnx_importer *im);
ONNX_FOLD_LIST(X)
#undef X

#endif
