/* fold.c: see the header.
 *
 * A sum takes the dimensions apart into those of the results and those of the terms, and finishes a tile of neighbouring
 * results before it begins the next. So the accumulators of a tile lie on the stack as double, and memory is read in
 * runs. A maximum loses no digits and goes through its input in memory order.
 */
#include "kernels/reduce/fold.h"

#include "kernels/common/lanes.h"
#include "kernels/common/nest.h"
#include "kernels/common/real.h"

#include <math.h>

enum { ROW_BLOCK = 512, COLUMN_TILE = 256 };

/* NaN is larger than everything. */
static inline float larger(float a, float b)
{
    return a > b || a != a ? a : b;
}

/* ---- maxima ---- */

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

static void max_rows(const nest *n, const weir_view *in, float *out)
{
    const int64_t rows = nest_rows(n), inner = nest_inner(n);
    nest_pos pos = {0};
    for (int64_t r = 0; r < rows; r++, nest_step(n, &pos))
        out[pos.at[0]] = larger(out[pos.at[0]], max_row(in, r * inner, inner));
}

/* The last dimension is kept; the one before it, if any, is reduced (they would have been joined otherwise). */
static void max_all_columns(const nest *n, const weir_view *in, float *out)
{
    int64_t columns = nest_inner(n), rows = n->rank > 1 ? n->dim[n->rank - 2] : 1, outer = 1;
    for (int d = 0; d + 2 < n->rank; d++)
        outer *= n->dim[d];
    nest_pos pos = {0};
    for (int64_t r = 0; r < outer; r++, nest_step_outside(n, &pos, 2))
        max_columns(in, r * rows * columns, rows, columns, out + pos.at[0]);
}

void fold_max(const weir_view *in, const weir_shape *kept, float *out)
{
    const int64_t count = weir_shape_count(kept);
    for (int64_t i = 0; i < count; i++)
        out[i] = -INFINITY;
    if (!view_count(in) || !count)
        return;
    nest n = nest_over(&in->shape);
    nest_broadcast(&n, kept);
    nest_collapse(&n);
    if (n.stride[0][n.rank - 1])
        max_all_columns(&n, in, out);
    else
        max_rows(&n, in, out);
}

/* ---- sums ---- */

/* `results` walks over the results and `terms` over the terms of one result. Operand 0 is the input, operand 1 the output.
 * The last dimension of the input is the last of one of the two; the other ends with the dimension before it. */
typedef struct sum_walk {
    nest results, terms;
    bool columns; /* the last dimension of the input is one of the results */
} sum_walk;

static void add_dim(nest *to, const nest *from, int d)
{
    for (int k = 0; k < from->operands; k++)
        to->stride[k][to->rank] = from->stride[k][d];
    to->dim[to->rank++] = from->dim[d];
}

/* Dimensions of 1 stand where there is no other. */
static void end_nest(nest *n)
{
    n->operands = 2;
    if (!n->rank)
        n->dim[n->rank++] = 1;
}

static sum_walk walk_of(const weir_shape *in, const weir_shape *kept)
{
    int64_t own[WEIR_DIMS_MAX] = {0};
    sum_walk w = {0};
    nest n = nest_over(in);
    nest_strides(in, own);
    nest_operand(&n, own);
    nest_broadcast(&n, kept);
    nest_collapse(&n);
    for (int d = 0; d < n.rank; d++)
        add_dim(n.stride[1][d] ? &w.results : &w.terms, &n, d);
    w.columns = n.stride[1][n.rank - 1] != 0;
    end_nest(&w.results);
    end_nest(&w.terms);
    return w;
}

/* tile[i] += the elements of the rows at x, x + step, ... */
static void add_rows(const weir_view *in, int64_t x, int64_t step, int64_t rows, int64_t count, double *restrict tile)
{
    float block[LANES_ROWS][COLUMN_TILE];
    int64_t r = 0;
    for (; r + LANES_ROWS <= rows; r += LANES_ROWS) {
        const float *row[LANES_ROWS];
        for (int k = 0; k < LANES_ROWS; k++)
            row[k] = real_in(in, x + (r + k) * step, count, block[k]);
        rows_add(row, count, tile);
    }
    for (; r < rows; r++)
        row_add(real_in(in, x + r * step, count, block[0]), count, tile);
}

/* Elements [x, x + count) of the input. */
static double sum_row(const weir_view *in, int64_t x, int64_t count)
{
    float block[ROW_BLOCK];
    double sum = 0;
    const int64_t most = dtype_half(in->dtype) ? ROW_BLOCK : count;
    for (int64_t i = 0, part; i < count; i += part) {
        part = count - i < most ? count - i : most;
        sum += row_total(real_in(in, x + i, part, block), part);
    }
    return sum;
}

/* tile[i] = the sum of the terms of result i of `count`, of which the first term of the first is at `x`. */
static void sum_tile(const sum_walk *w, const weir_view *in, int64_t x, int64_t count, double *tile)
{
    const nest *terms = &w->terms;
    const int64_t step = w->results.stride[0][w->results.rank - 1], runs = nest_rows(terms), length = nest_inner(terms);
    nest_pos pos = {0};
    for (int64_t i = 0; i < count; i++)
        tile[i] = 0;
    for (int64_t r = 0; r < runs; r++, nest_step(terms, &pos)) {
        if (w->columns)
            add_rows(in, x + pos.at[0], terms->stride[0][terms->rank - 1], length, count, tile);
        else
            for (int64_t i = 0; i < count; i++)
                tile[i] += sum_row(in, x + pos.at[0] + i * step, length);
    }
}

void fold_sum(const weir_view *in, const weir_shape *kept, float *out, bool accumulate)
{
    const int64_t count = weir_shape_count(kept);
    double tile[COLUMN_TILE];
    if (!accumulate)
        for (int64_t i = 0; i < count; i++)
            out[i] = 0;
    if (!view_count(in) || !count)
        return;
    const sum_walk w = walk_of(&in->shape, kept);
    const int64_t rows = nest_rows(&w.results), inner = nest_inner(&w.results);
    const int64_t step = w.results.stride[0][w.results.rank - 1];
    nest_pos pos = {0};
    for (int64_t r = 0; r < rows; r++, nest_step(&w.results, &pos))
        for (int64_t i = 0, part; i < inner; i += part) {
            part = inner - i < COLUMN_TILE ? inner - i : COLUMN_TILE;
            sum_tile(&w, in, pos.at[0] + i * step, part, tile);
            for (int64_t k = 0; k < part; k++)
                out[pos.at[1] + i + k] = (float)((double)out[pos.at[1] + i + k] + tile[k]);
        }
}

/* ---- products ---- */

/* product *= the elements [x, x + count) of the input */
static double times_row(const weir_view *in, int64_t x, int64_t count, double product)
{
    float block[ROW_BLOCK];
    for (int64_t i = 0, part; i < count; i += part) {
        part = count - i < ROW_BLOCK ? count - i : ROW_BLOCK;
        const float *row = real_in(in, x + i, part, block);
        for (int64_t k = 0; k < part; k++)
            product *= (double)row[k];
    }
    return product;
}

/* tile[i] *= the elements of the rows at x, x + step, ... */
static void times_rows(const weir_view *in, int64_t x, int64_t step, int64_t rows, int64_t count, double *restrict tile)
{
    float block[COLUMN_TILE];
    for (int64_t r = 0; r < rows; r++) {
        const float *row = real_in(in, x + r * step, count, block);
        for (int64_t i = 0; i < count; i++)
            tile[i] *= (double)row[i];
    }
}

/* As sum_tile(). */
static void prod_tile(const sum_walk *w, const weir_view *in, int64_t x, int64_t count, double *tile)
{
    const nest *terms = &w->terms;
    const int64_t step = w->results.stride[0][w->results.rank - 1], runs = nest_rows(terms), length = nest_inner(terms);
    nest_pos pos = {0};
    for (int64_t i = 0; i < count; i++)
        tile[i] = 1;
    for (int64_t r = 0; r < runs; r++, nest_step(terms, &pos)) {
        if (w->columns)
            times_rows(in, x + pos.at[0], terms->stride[0][terms->rank - 1], length, count, tile);
        else
            for (int64_t i = 0; i < count; i++)
                tile[i] = times_row(in, x + pos.at[0] + i * step, length, tile[i]);
    }
}

void fold_prod(const weir_view *in, const weir_shape *kept, float *out)
{
    const int64_t count = weir_shape_count(kept);
    double tile[COLUMN_TILE];
    for (int64_t i = 0; i < count && !view_count(in); i++)
        out[i] = 1;
    if (!view_count(in) || !count)
        return;
    const sum_walk w = walk_of(&in->shape, kept);
    const int64_t rows = nest_rows(&w.results), inner = nest_inner(&w.results);
    const int64_t step = w.results.stride[0][w.results.rank - 1];
    nest_pos pos = {0};
    for (int64_t r = 0; r < rows; r++, nest_step(&w.results, &pos))
        for (int64_t i = 0, part; i < inner; i += part) {
            part = inner - i < COLUMN_TILE ? inner - i : COLUMN_TILE;
            prod_tile(&w, in, pos.at[0] + i * step, part, tile);
            for (int64_t k = 0; k < part; k++)
                out[pos.at[1] + i + k] = (float)tile[k];
        }
}
