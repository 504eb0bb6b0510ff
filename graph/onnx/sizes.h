/* graph/onnx/sizes.h: the sizes that operators give, for known values and tensors alike, from the node's inputs and attributes. `dim`
 * has the `rank` sizes of input 0, and `to` has room for ONNX_DIMS_MAX. One thread. */
#ifndef GRAPH_ONNX_SIZES_H
#define GRAPH_ONNX_SIZES_H

#include "graph/onnx/import.h"

/* Axes of an input or, in older files, of an attribute. -1 after a fault; 0: there are none. */
int onnx_axes(onnx_importer *im, int input, int rank, int *axes);
/* The sizes that a Reshape, Flatten, Squeeze or Unsqueeze gives; their number, or -1 after a fault. */
int onnx_reshaped(onnx_importer *im, const int64_t *dim, int rank, int64_t *to);
/* Those of an Expand. */
int onnx_expanded(onnx_importer *im, const int64_t *dim, int rank, int64_t *to);
/* The bounds of a Slice along each axis: the first element, the step, and the number of elements. False after a fault. */
typedef struct onnx_range {
    int64_t first, step, count;
} onnx_range;
/* Elements [start, end) of `size`, each `step` behind the one before, as NumPy cuts them. */
onnx_range onnx_range_of(int64_t size, int64_t start, int64_t end, int64_t step);
bool onnx_slices(onnx_importer *im, const int64_t *dim, int rank, onnx_range *ranges);
/* The sizes of a Split's parts along its axis; their number, or -1 after a fault. */
int onnx_splits(onnx_importer *im, int64_t size, int64_t *parts, int room);

#endif
