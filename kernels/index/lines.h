/* kernels/index/lines.h: ops on the lines of a tensor along an axis.
 *
 *     cumsum   x -> y                  y[i] = x[0] + ... + x[i]; exclusive: without x[i]; reverse: from the end
 *     top_k    x -> values, indices    the `count` largest of each line, the largest first; of equals the one in front first
 *
 * Sums are made in double, of integers in 64 bits. NaN is larger than everything. The axis is never split.
 */
#ifndef KERNELS_INDEX_LINES_H
#define KERNELS_INDEX_LINES_H

#include <weir/op.h>

#include "graph/base/formula.h"

typedef struct cumsum_attrs {
    int64_t axis; /* may be negative */
    int64_t exclusive, reverse;
} cumsum_attrs;

typedef struct top_k_attrs {
    int64_t axis; /* may be negative */
    int64_t count;
} top_k_attrs;

/* Whether a comes before b, which is in front of it. */
FORMULA bool comes_first(float a, float b)
{
    return a > b || (a != a && b == b);
}

#endif
