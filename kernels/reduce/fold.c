/* fold.c: see the header. */
#include "kernels/reduce/fold.h"

#include "kernels/lanes.h"
#include "kernels/nest.h"
#include "kernels/real.h"

#include <math.h>

enum { ROW_BLOCK = 512, COLUMN_TILE = 256, COLUMN_BLOCK = 32 };

/* NaN is larger than everything. */
static inline float larger(float a, float b)
{
    return a > b || a != a ? a : b;
}

/* ---- a row to a number ---- */

/* Elements [x, x + count) of the input. */
static float sum_row(const weir_view *in, int64_t x, int64_t count)
{
    float block[ROW_BLOCK];
    double sum = 0;
    for (int64_t i = 0; i < count; i += ROW_BLOCK) {
        const int64_t part = count - i < ROW_BLOCK ? count - i : ROW_BLOCK;
        sum += row_sum(real_in(in, x + i, part, block), part);
    }
    return (float)sum;
}

float fold_max_row(const float *x, int64_t count)
{
    float most[LANES];
    for (int l = 0; l < LANES; l++)
        most[l] = -INFINITY;
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (int l = 0; l < LANES; l++)
            most[l] = larger(most[l], x[i + l]);
    for (; i < count; i++)
        most[0] = larger(most[0], x[i]);
    for (int l = 1; l < LANES; l++)
        most[0] = larger(most[0], most[l]);
    return most[0];
}

/* f32 is taken whole: which of two zeros is the larger depends on the blocks. */
static float max_row(const weir_view *in, int64_t x, int64_t count)
{
    float block[ROW_BLOCK], most = -INFINITY;
    const int64_t part_max = dtype_half(in->dtype) ? ROW_BLOCK : count;
    for (int64_t i = 0, part; i < count; i += part) {
        part = count - i < part_max ? count - i : part_max;
        most = larger(most, fold_max_row(real_in(in, x + i, part, block), part));
    }
    return most;
}

/* ---- rows to a row ---- */

/* tile = the sum of a block of rows of `stride` elements, of which the tile covers the first `count` */
static void sum_block(const weir_view *in, int64_t x, int64_t rows, int64_t stride, int64_t count, float *restrict tile)
{
    float block[COLUMN_TILE];
    const float *first = real_in(in, x, count, block);
    for (int64_t i = 0; i < count; i++)
        tile[i] = first[i];
    for (int64_t r = 1; r < rows; r++) {
        const float *row = real_in(in, x + r * stride, count, block);
        for (int64_t i = 0; i < count; i++)
            tile[i] += row[i];
    }
}

static void sum_columns(const weir_view *in, int64_t x, int64_t rows, int64_t columns, float *out)
{
    float tile[COLUMN_TILE];
    for (int64_t c = 0; c < columns; c += COLUMN_TILE) {
        int64_t width = columns - c < COLUMN_TILE ? columns - c : COLUMN_TILE;
        for (int64_t r = 0; r < rows; r += COLUMN_BLOCK) {
            int64_t height = rows - r < COLUMN_BLOCK ? rows - r : COLUMN_BLOCK;
            sum_block(in, x + r * columns + c, height, columns, width, tile);
            for (int64_t i = 0; i < width; i++)
                out[c + i] += tile[i];
        }
    }
}

static void max_columns(const weir_view *in, int64_t x, int64_t rows, int64_t columns, float *restrict out)
{
    float block[COLUMN_TILE];
    const int64_t part_max = dtype_half(in->dtype) ? COLUMN_TILE : columns;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0, part; c < columns; c += part) {
            part = columns - c < part_max ? columns - c : part_max;
            const float *row = real_in(in, x + r * columns + c, part, block);
            for (int64_t i = 0; i < part; i++)
                out[c + i] = larger(out[c + i], row[i]);
        }
}

/* ---- the walk ---- */

static void fold_rows(fold_kind kind, const nest *n, const weir_view *in, float *out)
{
    int64_t rows = nest_rows(n), inner = nest_inner(n);
    nest_pos pos = {0};
    for (int64_t r = 0; r < rows; r++, nest_step(n, &pos)) {
        float *y = &out[pos.at[0]];
        if (kind == FOLD_SUM)
            *y += sum_row(in, r * inner, inner);
        else
            *y = larger(*y, max_row(in, r * inner, inner));
    }
}

/* The last dimension is kept; the one before it, if any, is reduced (they would have been joined otherwise). */
static void fold_columns(fold_kind kind, const nest *n, const weir_view *in, float *out)
{
    int64_t columns = nest_inner(n), rows = n->rank > 1 ? n->dim[n->rank - 2] : 1, outer = 1;
    for (int d = 0; d + 2 < n->rank; d++)
        outer *= n->dim[d];
    nest_pos pos = {0};
    for (int64_t r = 0; r < outer; r++, nest_step_outside(n, &pos, 2)) {
        if (kind == FOLD_SUM)
            sum_columns(in, r * rows * columns, rows, columns, out + pos.at[0]);
        else
            max_columns(in, r * rows * columns, rows, columns, out + pos.at[0]);
    }
}

void fold(fold_kind kind, const weir_view *in, const weir_shape *kept, float *out, bool accumulate)
{
    int64_t count = weir_shape_count(kept);
    if (!accumulate)
        for (int64_t i = 0; i < count; i++)
            out[i] = kind == FOLD_SUM ? 0 : -INFINITY;
    if (!view_count(in) || !count)
        return;
    nest n = nest_over(&in->shape);
    nest_broadcast(&n, kept);
    nest_collapse(&n);
    if (n.stride[0][n.rank - 1])
        fold_columns(kind, &n, in, out);
    else
        fold_rows(kind, &n, in, out);
}
