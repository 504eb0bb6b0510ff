/* kernels/common/position.h: where an element lies in its logical tensor, for the error messages of kernels. Header-only. */
#ifndef KERNELS_COMMON_POSITION_H
#define KERNELS_COMMON_POSITION_H

#include <stdio.h>
#include <weir/base.h>

#define POSITION_TEXT 160 /* bytes that are always enough */

/* Writes the logical index of element `at` of a shard, "[2, 17]", to `text` (POSITION_TEXT bytes) and returns it. */
static inline const char *position_text(const weir_view *view, int64_t at, char *text)
{
    int64_t index[WEIR_DIMS_MAX];
    for (int d = view->shape.rank - 1; d >= 0; d--) {
        index[d] = view->offset[d] + at % view->shape.dim[d];
        at /= view->shape.dim[d];
    }
    int used = snprintf(text, POSITION_TEXT, "[");
    for (int d = 0; d < view->shape.rank; d++)
        used += snprintf(text + used, POSITION_TEXT - (size_t)used, "%s%lld", d ? ", " : "", (long long)index[d]);
    snprintf(text + used, POSITION_TEXT - (size_t)used, "]");
    return text;
}

#endif
