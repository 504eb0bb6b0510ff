/* kernels/stored/sums.h: a panel of a weight times rows of bytes.
 *
 * For each unit u, in their order, an output of a row of x grows by
 *
 *     x.scale * scale * (x.start + sum of q w)                           of a format without a minimum
 *     x.scale * scale * (sum of q w), then by minimum * x.mass           of one with a minimum
 *
 * Each step is a product and a sum of f32, fused where the processor has that. All processors of a level compute the same bits,
 * however they make the sums of integers: by AMX, by VPDPBUSD or without both.
 */
#ifndef KERNELS_STORED_SUMS_H
#define KERNELS_STORED_SUMS_H

#include "kernels/stored/panel.h"
#include "kernels/stored/rounded.h"

enum { SUMS_PANELS = 2 }; /* side by side */

/* One call: rows of x from `row` on, `rows` of them, `elements` of each from `from` on; the panels have the same elements of w. */
typedef struct panel_sums {
    const rounded_rows *x;
    int64_t row, rows, from, elements;
    const panel *panels; /* SUMS_PANELS of them */
    bool add;            /* to what y holds; else y is written */
    float *y;            /* [rows, SUMS_PANELS * 16], y_row apart */
    int64_t y_row;
} panel_sums;

void panel_sums_make(const panel_sums *call);

#endif
