/* kernels/stored/product.c: see stored.h. These are the loops over rows of x, parts of `in` and panels of w.
 *
 * Rows of x go by in blocks: for each, the weight is unpacked again, which costs as much as a few rows. Panels hold a part of `in` that
 * stays in the second-level cache.
 */
#include "kernels/stored/dense.h"
#include "kernels/stored/panel.h"
#include "kernels/stored/single.h"
#include "kernels/stored/sums.h"

#include "kernels/common/real.h"
#include "kernels/matmul/rows.h"

#include <string.h>

enum {
    COLUMNS = SUMS_PANELS * PANEL_ROWS,
    ROWS = 128,      /* of a block */
    DEPTH = 256,     /* of a panel of f32 */
};
_Static_assert((int)DEPTH <= (int)PANEL_ELEMENTS && DEPTH % BLOCK_ELEMENTS_MAX == 0, "a part of a panel, of whole blocks");

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- one row of w ---- */

/* Halves at an odd address are copied first. */
static void read_dense(const stored_weight *w, const unsigned char *at, int64_t count, float *to)
{
    uint32_t part[REAL_BLOCK];
    const size_t bytes = weir_dtype_bytes(w->dtype);
    for (int64_t i = 0, some; i < count; i += some) {
        some = least(count - i, REAL_BLOCK);
        memcpy(part, at + (size_t)i * bytes, (size_t)some * bytes);
        weir_to_f32(w->dtype, part, some, to + i);
    }
}

void stored_read(const stored_weight *w, int64_t row, int64_t from, int64_t count, float *to)
{
    const unsigned char *at = w->at + row * w->row_bytes;
    if (w->is)
        block_read_row(w->format, at, from, count, to);
    else
        read_dense(w, at + from * (int64_t)weir_dtype_bytes(w->dtype), count, to);
}

/* ---- blocks, x rounded ---- */

/* Outputs [first, first + columns) of rows [row, row + rows). */
static void rounded_part(const stored_product *p, const rounded_rows *x, const panel *panels, panel_sums call, int64_t first, int64_t columns)
{
    float wide[ROWS * COLUMNS];
    float *y = p->y + call.row * p->w.out + first;
    call.x = x;
    call.panels = panels;
    call.y = columns < COLUMNS ? wide : y;
    call.y_row = columns < COLUMNS ? COLUMNS : p->w.out;
    for (int64_t r = 0; r < call.rows && columns < COLUMNS && call.add; r++)
        memcpy(wide + r * COLUMNS, y + r * p->w.out, (size_t)columns * sizeof *y);
    panel_sums_make(&call);
    for (int64_t r = 0; r < call.rows && columns < COLUMNS; r++)
        memcpy(y + r * p->w.out, wide + r * COLUMNS, (size_t)columns * sizeof *y);
}

/* Outputs from `output` on. */
static void multiply_block(const stored_product *p, const rounded_rows *x, panel *panels, int64_t row, int64_t rows, int64_t output)
{
    const stored_weight *w = &p->w;
    for (int64_t from = 0, elements; from < w->in; from += elements) {
        elements = least(w->in - from, PANEL_ELEMENTS);
        for (int64_t first = output; first < w->out; first += COLUMNS) {
            const int64_t columns = least(w->out - first, COLUMNS);
            for (int k = 0; k < SUMS_PANELS; k++) {
                const int64_t at = least(k * PANEL_ROWS, columns - 1); /* the last row once more, where there is no panel */
                panel_unpack(w, first + at, least(columns - at, PANEL_ROWS), from, elements, &panels[k]);
            }
            const panel_sums call = {.row = row, .rows = rows, .from = from, .elements = elements, .add = from > 0};
            rounded_part(p, x, panels, call, first, columns);
        }
    }
}

static void multiply_rounded(const stored_product *p)
{
    panel *panels = p->workspace;
    const rounded_rows x = rounded_make(p->w.is, p->rows, p->w.in, p->x, panels + SUMS_PANELS);
    const int64_t output = p->rows == 1 ? single_multiply(&p->w, &x, p->y) : 0;
    for (int64_t row = 0; row < p->rows; row += ROWS)
        multiply_block(p, &x, panels, row, least(p->rows - row, ROWS), output);
}

/* ---- blocks, x as it is ---- */

/* One panel unpacked, and some as f32 side by side. */
typedef struct wide_panels {
    panel one;
    float at[DEPTH * COLUMNS];
} wide_panels;

static void multiply_exact(const stored_product *p)
{
    const stored_weight *w = &p->w;
    wide_panels *wide = p->workspace;
    for (int64_t first = 0; first < w->out; first += COLUMNS) {
        const int64_t columns = least(w->out - first, COLUMNS);
        for (int64_t from = 0, elements; from < w->in; from += elements) {
            elements = least(w->in - from, DEPTH);
            for (int64_t k = 0; k < columns; k += PANEL_ROWS) {
                panel_unpack(w, first + k, least(columns - k, PANEL_ROWS), from, elements, &wide->one);
                panel_to_f32(w->is, &wide->one, elements, wide->at + k, COLUMNS);
            }
            gemm_rows(p->rows, columns, elements, p->x + from, w->in, wide->at, COLUMNS, from > 0, p->y + first, w->out);
        }
    }
}

/* ---- all ---- */

size_t stored_product_bytes(const stored_weight *w, bool exact, int64_t rows)
{
    if (!w->is)
        return dense_product_bytes(w, exact, rows);
    return exact ? sizeof(wide_panels) : SUMS_PANELS * sizeof(panel) + rounded_bytes(w->is, rows, w->in);
}

void stored_multiply(const stored_product *p)
{
    if (!p->w.in)
        memset(p->y, 0, (size_t)p->rows * (size_t)p->w.out * sizeof *p->y);
    else if (!p->w.is)
        dense_multiply(p);
    else if (p->exact)
        multiply_exact(p);
    else
        multiply_rounded(p);
}
