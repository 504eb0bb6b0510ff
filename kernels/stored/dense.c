/* kernels/stored/dense.c: see the header. A tile is some rows of x and some of w: each vector that is loaded serves several sums.
 *
 *     f32              as it is
 *     halves           widened, OUTPUTS rows of w at a time; x has been rounded to the dtype, unless it stays f32
 *     bf16, rounded x  with AVX512_BF16 in pairs of terms (VDPBF16PS), where they lie; with AMX in tiles (kernels/matmul/half.h), for which
 *                      w is packed, or x if it has few rows
 *
 * The library finds out when it runs whether the last two are used, as half.c does. The number of rows does not decide it, because the
 * three add in different orders and a row's bits must not depend on the rows beside it. So without AMX many rows do not use half.c
 * either: it sums along one chain over a packed w, and a single row, the product of a model that writes, would have to pack w, too.
 */
#include "kernels/stored/dense.h"

#include "kernels/common/lanes.h"
#include "kernels/common/real.h"
#include "kernels/common/unroll.h"
#include "kernels/matmul/amx.h"
#include "kernels/matmul/half.h"

#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

/* Of a tile. */
#ifdef __AVX512F__
enum { ROWS = 4, OUTPUTS = 4 };
#else
enum { ROWS = 2, OUTPUTS = 2 };
#endif
enum {
    OUTPUTS_MAX = 4, /* so that the workspace is the same everywhere */
    PACKED = 64,     /* rows of w */
    FEW = LANES,     /* rows of x that take no packing of w */
    AHEAD = 8192     /* bytes of w that a single row of x asks for */
};

/* Elements of a row: f32; or bf16, which are multiplied two at a time. The value is the bytes of one. */
typedef enum terms { SINGLE = 4, PAIRED = 2 } terms;

/* Rows of x and of w: their first bytes, and how far they lie apart. */
typedef struct factors {
    const unsigned char *x, *w;
    int64_t x_row, w_row; /* bytes */
    int64_t count;        /* elements of a row */
} factors;

static inline __attribute__((always_inline)) lanes load(const unsigned char *at)
{
    lanes v;
    memcpy(&v, at, sizeof v);
    return v;
}

/* The last elements, fewer than a vector has, and zeros. */
static inline __attribute__((always_inline)) lanes load_part(const unsigned char *at, size_t bytes)
{
    lanes v = {};
    memcpy(&v, at, bytes);
    return v;
}

static inline __attribute__((always_inline)) void multiply_add(terms kind, lanes *sum, const lanes *a, const lanes *b)
{
#ifdef __AVX512BF16__
    if (kind == PAIRED) {
        *sum = (lanes)_mm512_dpbf16_ps((__m512)*sum, (__m512bh)*a, (__m512bh)*b);
        return;
    }
#endif
    (void)kind;
    *sum += *a * *b;
}

/* rows x outputs sums */
static inline __attribute__((always_inline)) void tile(terms kind, int rows, int outputs, const factors *f, float *y, int64_t y_row)
{
    const int64_t bytes = f->count * (int)kind;
    lanes sum[ROWS * OUTPUTS], of_w[OUTPUTS];
    UNROLL
    for (int s = 0; s < rows * outputs; s++)
        sum[s] = (lanes){};
    int64_t i = 0;
    for (; i + (int64_t)sizeof(lanes) <= bytes; i += (int64_t)sizeof(lanes)) {
        UNROLL
        for (int o = 0; o < outputs; o++) {
            of_w[o] = load(f->w + o * f->w_row + i);
            if (rows == 1)
                __builtin_prefetch(f->w + o * f->w_row + i + AHEAD, 0, 2);
        }
        UNROLL
        for (int r = 0; r < rows; r++) {
            const lanes of_x = load(f->x + r * f->x_row + i);
            UNROLL
            for (int o = 0; o < outputs; o++)
                multiply_add(kind, &sum[r * outputs + o], &of_x, &of_w[o]);
        }
    }
    for (int s = 0; s < rows * outputs; s++) {
        const int r = s / outputs, o = s % outputs;
        if (i < bytes) {
            const lanes last_x = load_part(f->x + r * f->x_row + i, (size_t)(bytes - i));
            const lanes last_w = load_part(f->w + o * f->w_row + i, (size_t)(bytes - i));
            multiply_add(kind, &sum[s], &last_x, &last_w);
        }
        y[r * y_row + o] = lanes_sum(&sum[s]);
    }
}

/* All rows of x times `outputs` rows of w, from output `first` on. */
static inline __attribute__((always_inline)) void strip(terms kind, int outputs, const stored_product *p, factors f, int64_t first)
{
    const int64_t out = p->w.out;
    int64_t r = 0;
    for (; r + ROWS <= p->rows; r += ROWS, f.x += ROWS * f.x_row)
        tile(kind, ROWS, outputs, &f, p->y + r * out + first, out);
    for (; r < p->rows; r++, f.x += f.x_row)
        tile(kind, 1, outputs, &f, p->y + r * out + first, out);
}

/* ---- f32, and halves that are widened ---- */

/* x, rounded to the weight's dtype where that is wanted. */
static const float *widened_x(const stored_product *p)
{
    uint16_t half[REAL_BLOCK];
    const int64_t count = p->rows * p->w.in;
    float *to = p->workspace;
    if (p->exact || p->w.dtype == WEIR_F32)
        return p->x;
    for (int64_t i = 0, part; i < count; i += part) {
        part = count - i < REAL_BLOCK ? count - i : REAL_BLOCK;
        weir_from_f32(p->x + i, part, p->w.dtype, half);
        weir_to_f32(p->w.dtype, half, part, to + i);
    }
    return to;
}

static size_t x_bytes(const stored_weight *w, bool exact, int64_t rows)
{
    return exact || w->dtype == WEIR_F32 ? 0 : ((size_t)rows * (size_t)w->in * sizeof(float) + 63) / 64 * 64;
}

/* Rows [first, first + count) of w as f32. */
static const void *widened_w(const stored_weight *w, int64_t first, int64_t count, float *memory)
{
    if (w->dtype == WEIR_F32)
        return w->at + first * w->row_bytes;
    for (int64_t r = 0; r < count; r++)
        stored_read(w, first + r, 0, w->in, memory + r * w->in);
    return memory;
}

static void multiply_widened(const stored_product *p)
{
    const int64_t row = p->w.in * (int64_t)sizeof(float);
    float *memory = (float *)(void *)((char *)p->workspace + x_bytes(&p->w, p->exact, p->rows));
    factors f = {(const unsigned char *)widened_x(p), NULL, row, row, p->w.in};
    int64_t o = 0;
    for (; o + OUTPUTS <= p->w.out; o += OUTPUTS) {
        f.w = widened_w(&p->w, o, OUTPUTS, memory);
        strip(SINGLE, OUTPUTS, p, f, o);
    }
    for (; o < p->w.out; o++) {
        f.w = widened_w(&p->w, o, 1, memory);
        strip(SINGLE, 1, p, f, o);
    }
}

/* ---- bf16 in pairs ---- */

static bool has_pairs(void)
{
#ifdef __AVX512BF16__
    return pairs_usable();
#else
    return false;
#endif
}

static void multiply_pairs(const stored_product *p)
{
    const int64_t row = p->w.row_bytes;
    factors f = {p->workspace, p->w.at, row, row, p->w.in};
    int64_t o = 0;
    weir_from_f32(p->x, p->rows * p->w.in, WEIR_BF16, p->workspace);
    for (; o + OUTPUTS <= p->w.out; o += OUTPUTS, f.w += OUTPUTS * row)
        strip(PAIRED, OUTPUTS, p, f, o);
    for (; o < p->w.out; o++, f.w += row)
        strip(PAIRED, 1, p, f, o);
}

/* ---- bf16 in tiles of AMX ---- */

static size_t tiles_bytes(const stored_weight *w)
{
    return half_packed_bytes(PACKED, w->in) + half_rows_bytes(w->in) + PACKED * (size_t)w->row_bytes;
}

/* Rows [first, first + count) of w: where they lie, or copied where their address is odd. */
static const uint16_t *aligned_rows(const stored_weight *w, int64_t first, int64_t count, void *memory)
{
    const void *at = w->at + first * w->row_bytes;
    return (uintptr_t)at % sizeof(uint16_t) ? memcpy(memory, at, (size_t)(count * w->row_bytes)) : at;
}

static void multiply_tiles(const stored_product *p)
{
    char *memory = (char *)p->workspace + x_bytes(&p->w, p->exact, p->rows);
    half_packed packed = {WEIR_BF16, 0, p->w.in, memory};
    half_product h = {.m = p->rows, .k = p->w.in, .dtype = WEIR_BF16, .a = p->workspace, .lda = p->w.in, .c_dtype = WEIR_F32,
                      .ldc = p->w.out, .workspace = memory + half_packed_bytes(PACKED, p->w.in)};
    void *copy = (char *)h.workspace + half_rows_bytes(p->w.in);
    weir_from_f32(p->x, p->rows * p->w.in, WEIR_BF16, p->workspace);
    for (int64_t o = 0; o < p->w.out; o += PACKED) {
        h.n = packed.n = p->w.out - o < PACKED ? p->w.out - o : PACKED;
        h.c = p->y + o;
        half_pack(&packed, true, aligned_rows(&p->w, o, h.n, copy), p->w.in);
        half_multiply(&h, &packed);
    }
}

/* A few rows of x are packed and become columns, so that w is read where it lies and needs no packing: the rows of the first factor are
 * those of w. A tile adds the products of an element in the same order if its factors change places, so the bits are those of
 * multiply_tiles(). */
static void multiply_few(const stored_product *p)
{
    void *columns = (char *)p->workspace + x_bytes(&p->w, p->exact, p->rows);
    const half_packed packed = {WEIR_BF16, p->rows, p->w.in, columns};
    float sums[AMX_ROWS * FEW];
    amx_tiles tiles = {0};
    weir_from_f32(p->x, p->rows * p->w.in, WEIR_BF16, p->workspace);
    half_pack(&packed, true, p->workspace, p->w.in);
    for (int64_t o = 0; o < p->w.out; o += AMX_ROWS) {
        const int64_t outputs = p->w.out - o < AMX_ROWS ? p->w.out - o : AMX_ROWS;
        const amx_factors f = {(const char *)p->w.at + o * p->w.row_bytes, p->w.row_bytes, columns, FEW, p->w.in / 2};
        amx_sums(&tiles, &f, outputs, 1, sums, FEW);
        for (int64_t r = 0; r < p->rows; r++)
            for (int64_t i = 0; i < outputs; i++)
                p->y[r * p->w.out + o + i] = sums[i * FEW + r];
    }
    amx_end(&tiles);
}

/* ---- all ---- */

size_t dense_product_bytes(const stored_weight *w, bool exact, int64_t rows)
{
    const bool tiles = w->dtype == WEIR_BF16 && !exact;
    return x_bytes(w, exact, rows) + (tiles ? tiles_bytes(w) : OUTPUTS_MAX * (size_t)w->in * sizeof(float));
}

void dense_multiply(const stored_product *p)
{
    if (p->w.dtype == WEIR_BF16 && !p->exact && amx_usable())
        (p->rows <= FEW && p->w.in % 2 == 0 ? multiply_few : multiply_tiles)(p);
    else if (p->w.dtype == WEIR_BF16 && !p->exact && has_pairs())
        multiply_pairs(p);
    else
        multiply_widened(p);
}
