/* kernels/stored/rounded.h: rows of f32 as bytes, with a scale for each 32 elements.
 *
 *     scale = largest |x| / 127        q = round(x * (127 / largest |x|)), ties to even        x is nearly scale * q
 *
 * A product with a unit of a weight, whose elements are s (w - zero) + m (graph/base/blocks.h), is
 *
 *     scale * s * (sum of q w - zero * sum of q) + m * scale * sum of q
 *
 * where the sums are of integers, and exact. The last term of either kind does not depend on the weight, so it is kept with the scale.
 *
 * If the largest is below 1e-30 all are 0. If one is not finite, the scale is NaN, and so is every product with it.
 */
#ifndef KERNELS_STORED_ROUNDED_H
#define KERNELS_STORED_ROUNDED_H

#include "graph/base/blocks.h"

enum { ROUNDED_ELEMENTS = 32 }; /* that share a scale */

/* Of one unit of the weight's format. */
typedef struct rounded_unit {
    float scale;
    union {
        int32_t start; /* -zero * sum of q: of a format without a minimum */
        float mass;    /* scale * sum of q: of one with a minimum */
    };
} rounded_unit;

/* `rows` rows of `in` elements, which is a multiple of 32, for a weight of a format. */
typedef struct rounded_rows {
    const block_format *format;
    int64_t in;
    int8_t *q;           /* [rows, in] */
    rounded_unit *units; /* [rows, in / format->unit] */
} rounded_rows;

/* Lays it out in `memory`, which has rounded_bytes() bytes, and rounds the rows of x into it. */
rounded_rows rounded_make(const block_format *format, int64_t rows, int64_t in, const float *x, void *memory);
size_t rounded_bytes(const block_format *format, int64_t rows, int64_t in);

#endif
