/* kernels/stored/panel.h: some units of 16 rows of a weight, unpacked so that the rows lie side by side.
 *
 *     q         of each four elements a word of every row: unit 0: row 0's elements 0 .. 3, row 1's, ... row 15's; 4 .. 7; ...
 *     scales    of each unit 16
 *     minima    of each unit 16, where the format has them
 *
 * A word of four bytes is what a product of bytes takes at once (VPDPBUSD). Rows that do not exist are zeros.
 */
#ifndef KERNELS_STORED_PANEL_H
#define KERNELS_STORED_PANEL_H

#include "kernels/stored/stored.h"

enum {
    PANEL_ROWS = 16,
    PANEL_ELEMENTS = 2048, /* of a row, at most */
    PANEL_UNITS = PANEL_ELEMENTS / 16,
    PANEL_BYTES = PANEL_ELEMENTS / 32 * 34, /* of the largest blocks */
};

/* Owns its memory; 64-byte aligned. */
typedef struct panel {
    uint8_t q[PANEL_ELEMENTS * PANEL_ROWS];
    float scales[PANEL_UNITS][PANEL_ROWS];
    float minima[PANEL_UNITS][PANEL_ROWS];
    unsigned char few[PANEL_ROWS][PANEL_BYTES]; /* blocks, where there are fewer rows */
} panel;

/* Rows [row, row + count), count <= 16, elements [from, from + elements), both multiples of a block's. */
void panel_unpack(const stored_weight *w, int64_t row, int64_t count, int64_t from, int64_t elements, panel *to);

/* The values of the first `elements` elements: element i of row r at to[i * step + r]. */
void panel_to_f32(const block_format *format, const panel *from, int64_t elements, float *to, int64_t step);

#endif
