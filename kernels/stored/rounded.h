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
#include "graph/base/formula.h"

#include <math.h>

enum { ROUNDED_ELEMENTS = 32 }; /* that share a scale */

/* The numbers that belong to one unit of the weight's format. */
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
#ifndef __cplusplus
rounded_rows rounded_make(const block_format *format, int64_t rows, int64_t in, const float *x, void *memory);
size_t rounded_bytes(const block_format *format, int64_t rows, int64_t in);
#endif

/* ---- for all kinds of devices ---- */

/* The units lie behind `count` bytes. */
FORMULA size_t rounded_units_at(size_t count)
{
    return (count + 63) / 64 * 64;
}

/* The bits of the largest |x|; NaN is larger than infinity, and that than all others. */
FORMULA int32_t rounded_largest(const float *x)
{
    int32_t most = 0;
    for (int i = 0; i < ROUNDED_ELEMENTS; i++) {
        const int32_t size = (int32_t)(half_bits(x[i]) & 0x7FFFFFFF);
        most = size > most ? size : most;
    }
    return most;
}

/* Rounds 32 elements; returns their scale. */
FORMULA float rounded_elements(const float *x, int8_t *q)
{
    const int32_t infinite = 0x7F800000;
    const int32_t bits = rounded_largest(x);
    const float largest = half_float((uint32_t)bits), by = bits < infinite && largest >= 1e-30F ? 127 / largest : 0;
    float whole[ROUNDED_ELEMENTS];
    for (int i = 0; i < ROUNDED_ELEMENTS; i++)
        whole[i] = by > 0 ? rintf(x[i] * by) : 0;
    for (int i = 0; i < ROUNDED_ELEMENTS; i++)
        q[i] = (int8_t)(int32_t)whole[i];
    return bits >= infinite ? NAN : by > 0 ? largest / 127 : 0;
}

FORMULA void rounded_sums(const block_format *format, float scale, const int8_t *q, rounded_unit *to)
{
    for (int from = 0; from < ROUNDED_ELEMENTS; from += format->unit, to++) {
        int32_t sum = 0;
        for (int i = 0; i < format->unit; i++)
            sum += q[from + i];
        to->scale = scale;
        if (format->minimum)
            to->mass = scale * (float)sum;
        else
            to->start = -format->zero * sum;
    }
}

#endif
