/* kernels/matmul/half.c: tiles of sums in registers, over a packed B.
 *
 *     packed B: panels of 64 columns (the last may have 16, 32 or 48), one behind the other; in a panel
 *
 *         pair 0   b[0, j] b[1, j]   b[0, j + 1] b[1, j + 1]   ...      two terms of a sum lie together, as
 *         pair 1   b[2, j] b[3, j]   b[2, j + 1] b[3, j + 1]   ...      VDPBF16PS multiplies and adds them
 *
 *     a tile: 6 rows x 4 vectors of 16 sums. For each pair 4 vectors of B are loaded and 6 pairs of A repeated.
 *
 * Up to COLUMNS columns of B are packed; then the rows pass by, ROWS at a time, and for each panel all of these: A's
 * rows stay in the second-level cache, a panel too. A is read where it lies, unless it is stored transposed or k is
 * odd: then those rows are packed as well.
 *
 * Without AVX512-BF16, and for f16, the same is done with pairs of one f32: half as many rows and columns fit.
 *
 * Why not oneDNN: its primitives allocate in each execution, need one for each shape, and are not ahead. One core with
 * AVX512-BF16 of two in use, GFLOP/s, oneDNN 2.6 in f32, in bf16 over the same layouts, and this: NN
 * 2048x384x384 208, 429, 412; 2048x384x1536 206, 409, 451; 2048x1536x384 222, 417, 414; NT 2048x384x1536 203, 409, 445;
 * 2048x1536x384 220, 421, 413; TN 384x384x2048 196, 376, 406; 1536x384x2048 181, 362, 423. (AMX, which oneDNN would use
 * where there is some, is not used here.)
 */
#include "kernels/matmul/half.h"

#include "graph/base/half.h"
#include "kernels/lanes.h"

#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

enum {
    TILE_ROWS = 6,
    TILE_VECTORS = 4,
    PANEL = TILE_VECTORS * LANES,
    COLUMNS = 384, /* of B that are packed at once, as pairs; a multiple of PANEL */
    ROWS = 96      /* of A */
};

/* How terms lie: pairs of bf16, or single ones widened to f32. In both an element of a pack is 4 bytes. */
typedef enum terms { TERMS_F32 = 1, TERMS_PAIRS = 2 } terms;

static terms terms_of(weir_dtype dtype)
{
#ifdef __AVX512BF16__
    return dtype == WEIR_BF16 ? TERMS_PAIRS : TERMS_F32;
#else
    (void)dtype;
    return TERMS_F32;
#endif
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t round_up(int64_t count, int64_t unit)
{
    return (count + unit - 1) / unit * unit;
}

size_t half_rows_bytes(int64_t k)
{
    return ROWS * ((size_t)k + 1) / 2 * 2 * sizeof(uint16_t);
}

size_t half_packed_bytes(int64_t n, int64_t k)
{
    return ((size_t)n + LANES - 1) / LANES * LANES * (((size_t)k + 1) / 2 * 2) * sizeof(float);
}

/* As pairs, columns are half as wide as in half_packed_bytes(), and twice as many are packed at once. */
size_t gemm_half_workspace(int64_t n, int64_t k)
{
    return half_packed_bytes(least(n, COLUMNS / 2), k) + half_rows_bytes(k);
}

/* ---- packing ---- */

/* A matrix of halves: term t of line l (a column of B, a row of A) at at[l * line + t * term]. */
typedef struct lines {
    const uint16_t *at;
    int64_t line, term;
    weir_dtype dtype;
} lines;

/* Element e of line l: its terms side by side, 0 beyond the last. */
static inline uint32_t element(const lines *from, terms kind, int64_t l, int64_t e, int64_t k)
{
    const uint16_t *at = from->at + l * from->line + e * kind * from->term;
    float wide;
    if (kind == TERMS_PAIRS)
        return at[0] | (e * 2 + 1 < k ? (uint32_t)at[from->term] << 16 : 0);
    weir_to_f32(from->dtype, at, 1, &wide);
    return half_bits(wide);
}

/* Lines lie beside each other in the memory: two rows are woven into one. */
static void weave(const uint16_t *even, const uint16_t *odd, int64_t count, uint32_t *to)
{
    if (!odd)
        for (int64_t l = 0; l < count; l++)
            to[l] = even[l];
    else
        for (int64_t l = 0; l < count; l++)
            to[l] = even[l] | (uint32_t)odd[l] << 16;
}

/* One element of `count` lines whose terms lie a row apart, to to[0 .. count). */
static void pack_across(const lines *from, terms kind, int64_t e, int64_t k, int64_t count, uint32_t *to)
{
    const uint16_t *row = from->at + e * kind * from->term;
    if (kind == TERMS_PAIRS)
        weave(row, e * 2 + 1 < k ? row + from->term : NULL, count, to);
    else
        weir_to_f32(from->dtype, row, count, (float *)to);
}

/* Sixteen elements of sixteen lines whose pairs are words of the memory: a transpose, in registers' worth. */
static void pack_square(const lines *from, int64_t e, uint32_t *to, int64_t to_row)
{
    uint32_t square[LANES][LANES];
    for (int l = 0; l < LANES; l++)
        memcpy(square[l], from->at + l * from->line + 2 * e, sizeof square[l]);
    for (int i = 0; i < LANES; i++) {
        uint32_t out[LANES];
        for (int l = 0; l < LANES; l++)
            out[l] = square[l][i];
        memcpy(to + i * to_row, out, sizeof out);
    }
}

/* Elements [0, elements) of sixteen lines or fewer, whose terms lie together; to_row apart, zeros behind the last. */
static void pack_along(lines from, terms kind, int64_t elements, int64_t k, int64_t count, uint32_t *to, int64_t to_row)
{
    int64_t e = 0;
    if (kind == TERMS_PAIRS && count == LANES)
        for (; 2 * (e + LANES) <= k; e += LANES)
            pack_square(&from, e, to + e * to_row, to_row);
    for (; e < elements; e++)
        for (int64_t l = 0; l < LANES; l++)
            to[e * to_row + l] = l < count ? element(&from, kind, l, e, k) : 0;
}

/* `width` lines, of which `count` exist, as rows of `width` elements. */
static void pack(lines from, terms kind, int64_t k, int64_t count, int64_t width, uint32_t *to)
{
    const int64_t elements = (k + kind - 1) / kind;
    if (from.line == 1) {
        for (int64_t e = 0; e < elements; e++) {
            pack_across(&from, kind, e, k, count, to + e * width);
            if (count < width)
                memset(to + e * width + count, 0, (size_t)(width - count) * sizeof *to);
        }
        return;
    }
    for (int64_t l = 0; l < width; l += LANES, from.at += LANES * from.line)
        pack_along(from, kind, elements, k, count - l < LANES ? count - l : LANES, to + l, width);
}

/* ---- tiles ---- */

/* What a tile is made of. Pair p of row r of A is the 4 bytes at a + r * row + p * step. */
typedef struct strip {
    const char *a;
    int64_t row, step; /* bytes */
    const uint32_t *b; /* a panel, or the part of one */
    int64_t b_row;     /* elements of a row of it */
    int64_t elements;
} strip;

static inline __attribute__((always_inline)) lanes repeat(const char *at)
{
    int32_t one; /* a float would be added to 0, and a pair is not one */
    memcpy(&one, at, sizeof one);
    return (lanes)((lane_numbers){} + one);
}

/* sum += the products of the terms of each element of a and b */
static inline __attribute__((always_inline)) lanes multiply_add(terms kind, lanes sum, lanes a, lanes b)
{
#ifdef __AVX512BF16__
    if (kind == TERMS_PAIRS)
        return (lanes)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
#endif
    (void)kind;
    return sum + a * b;
}

/* kind, rows and vectors are constants where this is inlined. */
static inline __attribute__((always_inline)) void tile(terms kind, int rows, int vectors, const strip *s, float *to)
{
    lanes sum[TILE_ROWS * TILE_VECTORS];
    const char *a = s->a;
    const float *b = (const float *)s->b;
#pragma GCC unroll 24 /* or the sums would have a place in memory, to be cleared and copied */
    for (int i = 0; i < rows * vectors; i++)
        sum[i] = (lanes){};
    for (int64_t e = 0; e < s->elements; e++, a += s->step, b += s->b_row) {
        lanes row_of_b[TILE_VECTORS];
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            row_of_b[v] = lanes_load(b + v * LANES);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            const lanes pair = repeat(a + r * s->row);
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++)
                sum[r * vectors + v] = multiply_add(kind, sum[r * vectors + v], pair, row_of_b[v]);
        }
    }
#pragma GCC unroll 24
    for (int i = 0; i < rows * vectors; i++)
        lanes_store(to + i / vectors * PANEL + i % vectors * LANES, &sum[i]);
}

typedef void (*tile_fn)(const strip *s, float *to);
#define TILE(kind, rows, vectors)                                              \
    static void tile_##kind##_##rows##x##vectors(const strip *s, float *to)    \
    {                                                                          \
        tile(TERMS_##kind, rows, vectors, s, to);                              \
    }
#define TILES_OF_ROWS(X, kind, rows) X(kind, rows, 1) X(kind, rows, 2) X(kind, rows, 3) X(kind, rows, 4)
#define TILES(X, kind)                                                         \
    TILES_OF_ROWS(X, kind, 1) TILES_OF_ROWS(X, kind, 2) TILES_OF_ROWS(X, kind, 3) TILES_OF_ROWS(X, kind, 4) \
    TILES_OF_ROWS(X, kind, 5) TILES_OF_ROWS(X, kind, 6)
TILES(TILE, F32)
TILES(TILE, PAIRS)

#define NAME(kind, rows, vectors) [TERMS_##kind][rows][vectors] = tile_##kind##_##rows##x##vectors,
static const tile_fn tile_of[TERMS_PAIRS + 1][TILE_ROWS + 1][TILE_VECTORS + 1] = {TILES(NAME, F32) TILES(NAME, PAIRS)};

/* ---- what becomes of the sums ---- */

typedef uint32_t lane_bits __attribute__((vector_size(LANES * sizeof(uint32_t))));
typedef uint16_t lane_halves __attribute__((vector_size(LANES * sizeof(uint16_t))));

/* half_to_bf16() of each lane */
static inline __attribute__((always_inline)) void store_bf16(uint16_t *to, lanes x)
{
    const lane_bits bits = (lane_bits)x, nan = (lane_bits)((bits & 0x7FFFFFFF) > 0x7F800000);
    const lane_bits rounded = bits + 0x7FFF + (bits >> 16 & 1);
    const lane_bits kept = ((nan & (bits | 0x00400000)) | (~nan & rounded)) >> 16;
    const lane_halves halves = __builtin_convertvector(kept, lane_halves);
    memcpy(to, &halves, sizeof halves);
}

/* A row of whole vectors, to f32 or bf16. */
static void put_vectors(const half_product *p, const float *sum, int64_t row, int64_t column, int64_t vectors)
{
    const float alpha = p->alpha == 0 ? 1 : p->alpha;
    const int64_t to = row * p->ldc + column;
    for (int64_t v = 0; v < vectors * LANES; v += LANES) {
        lanes x = lanes_load(sum + v) * alpha;
        if (p->bias)
            x += lanes_load(p->bias + column + v);
        if (p->add)
            x += lanes_load((const float *)p->c + to + v);
        if (p->c_dtype == WEIR_F32)
            lanes_store((float *)p->c + to + v, &x);
        else
            store_bf16((uint16_t *)p->c + to + v, x);
    }
}

/* One row of a tile to its place in C. */
static void put_row(const half_product *p, float *sum, int64_t row, int64_t column, int64_t count)
{
    const float alpha = p->alpha == 0 ? 1 : p->alpha;
    float *c = (float *)p->c + row * p->ldc + column;
    if (alpha != 1)
        for (int64_t i = 0; i < count; i++)
            sum[i] *= alpha;
    if (p->bias)
        for (int64_t i = 0; i < count; i++)
            sum[i] += p->bias[column + i];
    if (p->add)
        for (int64_t i = 0; i < count; i++)
            c[i] += sum[i];
    else
        weir_from_f32(sum, count, p->c_dtype,
                      (char *)p->c + (size_t)(row * p->ldc + column) * weir_dtype_bytes(p->c_dtype));
}

/* `rows` rows of A against one panel, of which `count` columns exist. */
static void panel_rows(const half_product *p, terms kind, strip s, int64_t row, int64_t rows, int64_t column,
                       int64_t count)
{
    const int64_t vectors = (count + LANES - 1) / LANES;
    float sums[TILE_ROWS * PANEL] __attribute__((aligned(64)));
    for (int64_t done = 0; done < rows; done += TILE_ROWS, s.a += TILE_ROWS * s.row) {
        const int64_t height = least(TILE_ROWS, rows - done);
        tile_of[kind][height][vectors](&s, sums);
        for (int64_t r = 0; r < height; r++)
            if (count % LANES || p->c_dtype == WEIR_F16)
                put_row(p, sums + r * PANEL, row + done + r, column, count);
            else
                put_vectors(p, sums + r * PANEL, row + done + r, column, vectors);
    }
}

/* ---- the product ---- */

static int64_t elements_of(terms kind, int64_t k)
{
    return (k + kind - 1) / kind;
}

/* Where rows [row, row + rows) of A can be read pair by pair: where they lie, or packed into the workspace. */
static strip rows_of_a(const half_product *p, terms kind, bool odd, int64_t row, int64_t rows)
{
    const int64_t elements = elements_of(kind, p->k);
    uint32_t *to = p->workspace;
    const lines from = {p->a + (p->trans_a ? row : row * p->lda), p->trans_a ? 1 : p->lda, p->trans_a ? p->lda : 1,
                        p->dtype};
    strip s = {.a = (const char *)to, .row = 4, .step = 4 * rows, .elements = elements};
    if (kind == TERMS_PAIRS && !p->trans_a && !odd)
        return (strip){.a = (const char *)from.at, .row = 2 * p->lda, .step = 4, .elements = elements};
    if (p->trans_a) {
        pack(from, kind, p->k, rows, rows, to);
        return s;
    }
    s.row = 4 * elements;
    s.step = 4;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t e = 0; e < elements; e++)
            to[r * elements + e] = element(&from, kind, r, e, p->k);
    return s;
}

void half_multiply(const half_product *p, const half_packed *b)
{
    const terms kind = terms_of(p->dtype);
    const int64_t most = ROWS * kind / 2, elements = elements_of(kind, b->k);
    for (int64_t row = 0; row < p->m; row += most) {
        const int64_t rows = least(most, p->m - row);
        strip s = rows_of_a(p, kind, p->k % 2, row, rows);
        s.b = b->at;
        for (int64_t column = 0; column < p->n; column += PANEL) {
            s.b_row = round_up(least(PANEL, b->n - column), LANES);
            panel_rows(p, kind, s, row, rows, column, least(PANEL, p->n - column));
            s.b += s.b_row * elements;
        }
    }
}

void half_pack(const half_packed *to, bool trans_b, const uint16_t *b, int64_t ldb)
{
    const terms kind = terms_of(to->dtype);
    lines from = {b, trans_b ? ldb : 1, trans_b ? 1 : ldb, to->dtype};
    uint32_t *at = to->at;
    for (int64_t column = 0; column < to->n; column += PANEL, from.at += PANEL * from.line) {
        const int64_t count = least(PANEL, to->n - column), width = round_up(count, LANES);
        pack(from, kind, to->k, count, width, at);
        at += width * elements_of(kind, to->k);
    }
}

void gemm_half(const half_product *product)
{
    half_product p = *product;
    const int64_t most = COLUMNS * terms_of(p.dtype) / 2, columns = p.n;
    half_packed b = {p.dtype, least(columns, most), p.k, p.workspace};
    p.workspace = (char *)p.workspace + half_packed_bytes(least(columns, COLUMNS / 2), p.k);
    for (int64_t column = 0; column < columns && p.m; column += most) {
        p.n = b.n = least(most, columns - column);
        half_pack(&b, p.trans_b, p.b, p.ldb);
        half_multiply(&p, &b);
        p.b += p.trans_b ? p.n * p.ldb : p.n;
        p.c = (char *)p.c + (size_t)p.n * weir_dtype_bytes(p.c_dtype);
        p.bias = p.bias ? p.bias + p.n : NULL;
    }
}
