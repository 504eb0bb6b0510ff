/* kernels/matmul/rows_half.c: the product of rows.h where factors or result are f16 or bf16.
 *
 * Values are widened and multiplied by gemm_rows(), a block at a time, and sums stay f32 until all of k is in them: so an
 * element has the bits of the product of the same values in f32, rounded once. B is widened anew for every ROWS rows of
 * A. With few rows, what this is for, that is once, and from half the bytes; gemm_half() would pack all of B first.
 */
#include "kernels/matmul/rows.h"
#include "kernels/common/real.h"

#include <string.h>

enum { ROWS = 32, COLUMNS = 256, DEPTH = 32 };

typedef struct rows_block {
    const rows_product *p;
    int64_t first, rows;   /* of A */
    const float *a;        /* those rows, p->k apart */
    float *b, *sums;       /* DEPTH x COLUMNS, ROWS x COLUMNS */
} rows_block;

size_t gemm_rows_half_workspace(int64_t k)
{
    return (size_t)(ROWS * k + DEPTH * COLUMNS + ROWS * COLUMNS) * sizeof(float);
}

/* sums += A B, of `count` columns of B from `column` on. */
static void block_multiply(const rows_block *o, int64_t column, int64_t count)
{
    const rows_product *p = o->p;
    for (int64_t l = 0, depth; l < p->k; l += depth) {
        depth = p->k - l < DEPTH ? p->k - l : DEPTH;
        for (int64_t i = 0; i < depth && dtype_half(p->b->dtype); i++)
            real_in(p->b, (l + i) * p->n + column, count, o->b + i * COLUMNS);
        if (dtype_half(p->b->dtype))
            gemm_rows(o->rows, count, depth, o->a + l, p->k, o->b, COLUMNS, true, o->sums, COLUMNS);
        else
            gemm_rows(o->rows, count, depth, o->a + l, p->k, view_f32(p->b) + l * p->n + column, p->n, true, o->sums,
                      COLUMNS);
    }
}

static void block_columns(const rows_block *o, int64_t column, int64_t count)
{
    const rows_product *p = o->p;
    for (int64_t r = 0; r < o->rows; r++) {
        float *sums = o->sums + r * COLUMNS;
        if (p->bias)
            memcpy(sums, p->bias + column, (size_t)count * sizeof *sums);
        else
            memset(sums, 0, (size_t)count * sizeof *sums);
    }
    block_multiply(o, column, count);
    for (int64_t r = 0; r < o->rows; r++) {
        const int64_t at = (o->first + r) * p->n + column;
        if (dtype_half(p->c->dtype))
            real_put(p->c, at, count, o->sums + r * COLUMNS);
        else
            memcpy(view_f32(p->c) + at, o->sums + r * COLUMNS, (size_t)count * sizeof(float));
    }
}

void gemm_rows_half(const rows_product *p)
{
    float *const a = p->workspace;
    rows_block o = {.p = p, .b = a + ROWS * p->k, .sums = a + ROWS * p->k + DEPTH * COLUMNS};
    for (; o.first < p->m; o.first += ROWS) {
        o.rows = p->m - o.first < ROWS ? p->m - o.first : ROWS;
        o.a = real_in(p->a, o.first * p->k, o.rows * p->k, a);
        for (int64_t column = 0; column < p->n; column += COLUMNS)
            block_columns(&o, column, p->n - column < COLUMNS ? p->n - column : COLUMNS);
    }
}
