/* kernels/index/resize.h: where the elements of a resized dimension come from; for all kinds of devices.
 *
 * Place j of `count` is at a coordinate of the `size` places of the input, with scale = count / size or as given:
 *
 *     half_pixel           (j + 1/2) / scale - 1/2
 *     pytorch_half_pixel   the same; 0 if count is 1
 *     asymmetric           j / scale
 *     align_corners        j (size - 1) / (count - 1); 0 if count is 1
 *
 * The nearest mode takes the place that the coordinate rounds to, the linear mode two neighbours with weights. Coordinates beyond the
 * ends are moved to the ends. These are the formulas of ONNX's Resize. Pure functions; any thread.
 */
#ifndef KERNELS_INDEX_RESIZE_H
#define KERNELS_INDEX_RESIZE_H

#include <math.h>
#include <weir/ops.h>

#include "graph/base/formula.h"

typedef struct resize_attrs {
    int64_t axis; /* may be negative */
    int64_t size, count;
    int64_t mode, coordinates, round;
    double scale; /* above 0 */
} resize_attrs;

/* The value at a place is (1 - weight) x[first] + weight x[next]. */
struct resize_tap {
    int64_t first, next;
    float weight;
};

FORMULA double resize_coordinate(const resize_attrs *a, int64_t j)
{
    if (a->coordinates == WEIR_COORDINATES_ASYMMETRIC)
        return (double)j / a->scale;
    if (a->coordinates == WEIR_COORDINATES_ALIGN_CORNERS)
        return a->count > 1 ? (double)j * (double)(a->size - 1) / (double)(a->count - 1) : 0;
    if (a->coordinates == WEIR_COORDINATES_PYTORCH_HALF_PIXEL && a->count == 1)
        return 0;
    return ((double)j + 0.5) / a->scale - 0.5;
}

FORMULA double resize_rounded(const resize_attrs *a, double at)
{
    if (a->round == WEIR_ROUND_FLOOR)
        return floor(at);
    if (a->round == WEIR_ROUND_CEIL)
        return ceil(at);
    return a->round == WEIR_ROUND_PREFER_CEIL ? floor(at + 0.5) : ceil(at - 0.5);
}

FORMULA struct resize_tap resize_tap_at(const resize_attrs *a, int64_t j)
{
    const double last = (double)(a->size - 1);
    double at = resize_coordinate(a, j);
    at = a->mode == WEIR_RESIZE_NEAREST ? resize_rounded(a, at) : at;
    at = at > 0 ? at < last ? at : last : 0;
    const int64_t first = (int64_t)at;
    const struct resize_tap tap = {first, first + 1 < a->size ? first + 1 : first, (float)(at - (double)first)};
    return tap;
}

#endif
