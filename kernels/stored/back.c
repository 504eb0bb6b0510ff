/* kernels/stored/back.c: dx = dy w, see stored.h. Some rows of w, and some of their columns, are unpacked and multiplied at a time.
 *
 * dy and a weight of blocks or bf16 are rounded to bf16, unless the call wants f32: gradients are sums of many such products, and with
 * AVX512_BF16 they take half of the time. Else all is f32.
 */
#include "kernels/stored/stored.h"

#include "kernels/matmul/half.h"
#include "kernels/matmul/rows.h"

#include <string.h>

enum {
    ROWS = 32,    /* of w as f32 at a time */
    DEPTH = 512,  /* rows of w as bf16 */
    COLUMNS = 256 /* of these; whole blocks */
};

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static bool rounds(const stored_weight *w, bool exact)
{
    return !exact && (w->is || w->dtype == WEIR_BF16);
}

/* ---- f32 ---- */

static void multiply_f32(const stored_product *b)
{
    const int64_t in = b->w.in, out = b->w.out;
    float *rows = b->workspace;
    for (int64_t o = 0, count; o < out; o += count) {
        count = least(out - o, ROWS);
        for (int64_t r = 0; r < count; r++)
            stored_read(&b->w, o + r, 0, in, rows + r * in);
        gemm_rows(b->rows, in, count, b->x + o, out, rows, in, o > 0, b->y, in);
    }
}

/* ---- bf16 ---- */

/* The workspace: dy, a part of w, and that packed. */
typedef struct parts {
    uint16_t *dy, *w;
    half_packed packed;
    void *rows;
} parts;

static size_t dy_bytes(const stored_weight *w, int64_t rows)
{
    return ((size_t)rows * (size_t)w->out * sizeof(uint16_t) + 63) / 64 * 64;
}

static parts parts_of(const stored_product *b)
{
    char *memory = b->workspace;
    parts p = {.dy = b->workspace, .w = (uint16_t *)(void *)(memory + dy_bytes(&b->w, b->rows))};
    p.packed = (half_packed){WEIR_BF16, COLUMNS, DEPTH, p.w + DEPTH * COLUMNS};
    p.rows = (char *)p.packed.at + half_packed_bytes(COLUMNS, DEPTH);
    return p;
}

/* Rows [o, o + depth) of w, columns [column, column + count), which are added to dx. */
static void multiply_part(const stored_product *b, parts *p, int64_t o, int64_t depth, int64_t column, int64_t count)
{
    float row[COLUMNS];
    for (int64_t r = 0; r < depth; r++) {
        stored_read(&b->w, o + r, column, count, row);
        weir_from_f32(row, count, WEIR_BF16, p->w + r * count);
    }
    p->packed.n = count;
    p->packed.k = depth;
    half_pack(&p->packed, false, p->w, count);
    half_multiply(&(half_product){.m = b->rows, .n = count, .k = depth, .dtype = WEIR_BF16, .a = p->dy + o, .lda = b->w.out,
                                  .c_dtype = WEIR_F32, .c = b->y + column, .ldc = b->w.in, .add = o > 0, .workspace = p->rows},
                  &p->packed);
}

static void multiply_bf16(const stored_product *b)
{
    parts p = parts_of(b);
    weir_from_f32(b->x, b->rows * b->w.out, WEIR_BF16, p.dy);
    for (int64_t column = 0; column < b->w.in; column += COLUMNS)
        for (int64_t o = 0; o < b->w.out; o += DEPTH)
            multiply_part(b, &p, o, least(DEPTH, b->w.out - o), column, least(COLUMNS, b->w.in - column));
}

/* ---- both ---- */

size_t stored_back_bytes(const stored_weight *w, bool exact, int64_t rows)
{
    if (!rounds(w, exact))
        return ROWS * (size_t)w->in * sizeof(float);
    return dy_bytes(w, rows) + DEPTH * COLUMNS * sizeof(uint16_t) + half_packed_bytes(COLUMNS, DEPTH) + half_rows_bytes(DEPTH);
}

void stored_multiply_back(const stored_product *b)
{
    if (!b->w.out)
        memset(b->y, 0, (size_t)b->rows * (size_t)b->w.in * sizeof *b->y);
    else if (rounds(&b->w, b->exact))
        multiply_bf16(b);
    else
        multiply_f32(b);
}
