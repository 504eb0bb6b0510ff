/* kernels/matmul/large.c: the matrix product, blocked for caches as in Goto and van de Geijn 2008 ("Anatomy of
 * high-performance matrix multiplication") and written with the compiler's vectors.
 *
 *                n ->   [ width ]                        for each `width` columns of B and C
 *                       [       ]  DEPTH                   for each DEPTH of k: pack that block of B      (L2, L3)
 *                       [ | | | ]                            for each BAND rows of A and C                (L2)
 *     m   [ DEPTH ]     [ C     ]                              for each panel of COLUMNS of B             (L1)
 *     |   [       ]     [       ]  BAND                          for each ROWS of A: one tile of C        (registers)
 *     v   [  A    ]     [       ]
 *
 * A tile of ROWS x COLUMNS of C stays in registers while DEPTH products are added to it: each step loads one row of a
 * packed panel of B and multiplies it by ROWS elements of A, one broadcast each. B is packed into panels of COLUMNS
 * adjacent columns, so that the step reads 2 vectors one after the other; an A that is stored as it is used is read
 * in place (its rows are contiguous along k), a transposed one is packed into panels of ROWS rows. A transposed B is
 * packed through a transposition in registers: products with few rows, as in attention, would spend half of their
 * time on it otherwise. Where there are few rows and B is not transposed, packing would be read as seldom as it is
 * written: then B is read where it lies.
 *
 * The order in which an element's terms are added depends on k alone. A convolution makes its B block by block, in panels, from
 * an image (kernels/conv): as a matrix that would be as many times larger as its window has elements.
 *
 * The vectors are GCC's, so nothing here names an instruction set but the three sizes: 16 floats and 8 x 32 tiles
 * where there are 32 registers of 64 bytes, else 8 floats and 6 x 16 tiles, which fill the 16 registers of AVX2.
 */
#include "kernels/matmul/large.h"

#include "kernels/common/unroll.h"

#include <string.h>

#pragma GCC diagnostic ignored "-Wpsabi" /* vectors are never passed to a function that is not inlined */

#ifdef __AVX512F__
#define VECTOR 16 /* floats */
#define ROWS 8
#else
#define VECTOR 8
#define ROWS 6
#endif
#define COLUMNS (2 * VECTOR)

/* A panel of B is DEPTH x COLUMNS floats, 48 kB: it streams through the first level. All of them, and the band of A
 * that they meet, are about the second level's size; where A is packed too, which each `width` does anew, both are
 * larger. */
#define DEPTH GEMM_DEPTH
#define BAND 240 /* multiples of ROWS */
#define BAND_PACKED 480
#define WIDTH GEMM_WIDTH
#define WIDTH_PACKED 1536
#define FEW_ROWS 48 /* up to so many B is read where it lies */
#define PANEL_GAP 16 /* floats between packed panels, so that they do not all begin in the same set of the cache */

typedef float vector __attribute__((vector_size(VECTOR * sizeof(float))));
typedef int32_t lanes __attribute__((vector_size(VECTOR * sizeof(int32_t))));

#define INLINE static inline __attribute__((always_inline))

_Static_assert(BAND % ROWS == 0 && BAND_PACKED % ROWS == 0 && WIDTH % COLUMNS == 0 && WIDTH_PACKED % COLUMNS == 0,
               "blocks consist of whole tiles");

INLINE vector load(const float *from)
{
    vector v;
    memcpy(&v, from, sizeof v);
    return v;
}

INLINE void store(float *to, const vector *v)
{
    memcpy(to, v, sizeof *v);
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t round_up(int64_t count, int64_t to)
{
    return (count + to - 1) / to * to;
}

/* The size of the largest of as few equal parts as possible of which none is larger than `most`; of any count, as
 * sizes may come from a plan that nobody has checked yet. */
static int64_t even_part(int64_t count, int64_t most)
{
    const int64_t parts = count / most + (count % most != 0);
    return count / parts + (count % parts != 0);
}

/* ---- a tile ---- */

/* C [rows, columns] = alpha A [rows, depth] B [depth, columns] + beta C */
typedef struct tile {
    int64_t depth;
    const float *a;
    int64_t a_step;  /* between rows of A; packed: ROWS elements of a column lie together */
    const float *b;
    int64_t b_step;  /* between rows of B */
    float *c;
    int64_t ldc;
    int64_t columns; /* that exist in C, of those that B has */
    float alpha, beta;
} tile;

/* The columns that exist, one by one. Not inlined into dozens of tiles. */
static __attribute__((noinline)) void tile_store_part(const tile *t, int row, const float *sum)
{
    float *c = t->c + row * t->ldc;
    for (int64_t j = 0; j < t->columns; j++)
        c[j] = t->beta == 0 ? t->alpha * sum[j] : t->alpha * sum[j] + t->beta * c[j];
}

INLINE void tile_store(const tile *t, int rows, int vectors, vector (*sum)[2])
{
    const float alpha = t->alpha, beta = t->beta;
    float *c = t->c;
    if (t->columns < vectors * VECTOR) {
        UNROLL for (int i = 0; i < rows; i++) {
            float row[COLUMNS] = {0};
            memcpy(row, sum[i], (size_t)vectors * sizeof(vector));
            tile_store_part(t, i, row);
        }
        return;
    }
    UNROLL for (int i = 0; i < rows; i++, c += t->ldc)
        for (int j = 0; j < vectors; j++) {
            vector v = alpha * sum[i][j];
            if (beta != 0)
                v += beta * load(c + j * VECTOR);
            store(c + j * VECTOR, &v);
        }
}

/* `rows`, `vectors` and `packed` are constants where this is inlined, so that sum[][] is registers. */
INLINE void tile_run(const tile *t, int rows, int vectors, bool packed)
{
    vector sum[ROWS][2];
    const float *a = t->a, *b = t->b;
    const int64_t a_row = packed ? 1 : t->a_step, a_column = packed ? ROWS : 1, b_step = t->b_step;
    UNROLL for (int i = 0; i < rows; i++) {
        sum[i][0] = sum[i][1] = (vector){};
        __builtin_prefetch(t->c + i * t->ldc);
        __builtin_prefetch(t->c + i * t->ldc + t->columns - 1);
    }
    for (int64_t p = 0; p < t->depth; p++, a += a_column, b += b_step) {
        vector row[2];
        for (int j = 0; j < vectors; j++)
            row[j] = load(b + j * VECTOR);
        UNROLL for (int i = 0; i < rows; i++) {
            vector each = a[i * a_row] - (vector){}; /* a broadcast: x - 0 is x, x + 0 would not keep -0 */
            for (int j = 0; j < vectors; j++)
                sum[i][j] += each * row[j];
        }
    }
    tile_store(t, rows, vectors, sum);
}

/* One function per number of rows, vectors in a row (1 or 2) and kind of A. */
#define TILE(rows, vectors, packed)                                  \
    static void tile_##rows##_##vectors##_##packed(const tile *t)    \
    {                                                                \
        tile_run(t, rows, vectors, packed);                          \
    }
#define TILES(rows) TILE(rows, 1, 0) TILE(rows, 2, 0) TILE(rows, 1, 1) TILE(rows, 2, 1)
#define ENTRY(rows) {{tile_##rows##_1_0, tile_##rows##_2_0}, {tile_##rows##_1_1, tile_##rows##_2_1}},

TILES(1) TILES(2) TILES(3) TILES(4) TILES(5) TILES(6)
#if ROWS == 8
TILES(7) TILES(8)
#endif

static void (*const tiles[ROWS][2][2])(const tile *) = { /* [rows - 1][packed][vectors - 1] */
    ENTRY(1) ENTRY(2) ENTRY(3) ENTRY(4) ENTRY(5) ENTRY(6)
#if ROWS == 8
    ENTRY(7) ENTRY(8)
#endif
};

/* ---- packing ---- */

/* Lane l of the result is lane from[l] of a, or lane from[l] - VECTOR of b. */
#ifdef __clang__
INLINE vector pick(vector a, vector b, lanes from)
{
    vector v;
    for (int l = 0; l < VECTOR; l++)
        v[l] = from[l] < VECTOR ? a[from[l]] : b[from[l] - VECTOR];
    return v;
}
#else
#define pick(a, b, from) __builtin_shuffle(a, b, from)
#endif

/* Transposes VECTOR x VECTOR elements: stage d exchanges element e with e ^ d of the rows i and i ^ d, for the pairs
 * that lie across the diagonal. */
#define LOW(d, e) ((e) & (d) ? VECTOR + ((e) ^ (d)) : (e))
#define HIGH(d, e) ((e) & (d) ? VECTOR + (e) : (e) ^ (d))
#define FOUR(f, d, e) f(d, e), f(d, e + 1), f(d, e + 2), f(d, e + 3)
#define EIGHT(f, d, e) FOUR(f, d, e), FOUR(f, d, e + 4)
#if VECTOR == 16
#define EACH(f, d) EIGHT(f, d, 0), EIGHT(f, d, 8)
#else
#define EACH(f, d) EIGHT(f, d, 0)
#endif
#define STAGE(d)                                                                        \
    UNROLL for (int i = 0; i < VECTOR; i++)                                             \
        if (!(i & d)) {                                                                 \
            vector low = pick(x[i], x[i + d], ((lanes){EACH(LOW, d)}));                     \
            x[i + d] = pick(x[i], x[i + d], ((lanes){EACH(HIGH, d)}));                      \
            x[i] = low;                                                                 \
        }

INLINE void transpose(vector x[VECTOR])
{
    STAGE(1)
    STAGE(2)
    STAGE(4)
#if VECTOR == 16
    STAGE(8)
#endif
}

/* A panel of B: row p of `to` is row p of the columns, zeros behind them. The distance between rows is too large for
 * the processor to foresee the next one by itself. */
static void pack_rows(const float *b, int64_t ldb, int64_t depth, int64_t columns, float *to)
{
    for (int64_t p = 0; p < depth; p++, b += ldb, to += COLUMNS) {
        __builtin_prefetch(b + 8 * ldb);
        __builtin_prefetch(b + 8 * ldb + VECTOR);
        if (columns == COLUMNS) {
            memcpy(to, b, COLUMNS * sizeof *to);
            continue;
        }
        memset(to, 0, COLUMNS * sizeof *to);
        for (int64_t j = 0; j < columns; j++)
            to[j] = b[j];
    }
}

/* The same, half a panel, of a B that is stored transposed. */
static void pack_columns(const float *b, int64_t ldb, int64_t depth, int64_t columns, float *to)
{
    int64_t p = 0;
    for (; columns == VECTOR && p + VECTOR <= depth; p += VECTOR) {
        vector x[VECTOR];
        UNROLL for (int j = 0; j < VECTOR; j++)
            x[j] = load(b + j * ldb + p);
        transpose(x);
        UNROLL for (int j = 0; j < VECTOR; j++)
            store(to + (p + j) * COLUMNS, &x[j]);
    }
    for (; p < depth; p++)
        for (int64_t j = 0; j < VECTOR; j++)
            to[p * COLUMNS + j] = j < columns ? b[j * ldb + p] : 0;
}

static int64_t b_panel(int64_t depth)
{
    return depth * COLUMNS + PANEL_GAP;
}

static void pack_b(bool trans, const float *b, int64_t ldb, int64_t depth, int64_t width, float *to)
{
    for (int64_t j = 0; j < width; j += COLUMNS, to += b_panel(depth)) {
        const int64_t columns = least(COLUMNS, width - j), first = least(columns, VECTOR);
        if (!trans) {
            pack_rows(b + j, ldb, depth, columns, to);
            continue;
        }
        pack_columns(b + j * ldb, ldb, depth, first, to);
        if (columns > first)
            pack_columns(b + (j + first) * ldb, ldb, depth, columns - first, to + VECTOR);
    }
}

static int64_t a_panel(int64_t depth)
{
    return depth * ROWS + PANEL_GAP;
}

/* Panels of ROWS rows of an A that is stored transposed. A row of what is stored is read once, from end to end. */
static void pack_a(const float *a, int64_t lda, int64_t depth, int64_t rows, float *to)
{
    const int64_t whole = rows / ROWS;
    for (int64_t p = 0; p < depth; p++, a += lda) {
        float *at = to + p * ROWS;
        for (int64_t i = 0; i < whole; i++, at += a_panel(depth))
            memcpy(at, a + i * ROWS, ROWS * sizeof *at);
        for (int64_t i = whole * ROWS; i < rows; i++)
            at[i - whole * ROWS] = a[i];
    }
}

/* ---- the product ---- */

int64_t gemm_large_depth(int64_t k)
{
    return even_part(k, DEPTH);
}

/* The sizes of the blocks of one product. */
typedef struct blocks {
    int64_t depth, band, width;
} blocks;

static blocks blocks_of(bool trans_a, int64_t m, int64_t n, int64_t k)
{
    return (blocks){
        .depth = gemm_large_depth(k),
        .band = round_up(even_part(m, trans_a ? BAND_PACKED : BAND), ROWS),
        .width = round_up(even_part(n, trans_a ? WIDTH_PACKED : WIDTH), COLUMNS),
    };
}

static size_t b_bytes(const blocks *most)
{
    return (size_t)(most->width / COLUMNS * b_panel(most->depth)) * sizeof(float);
}

/* The floats of `count` lines in panels of `each`, or of `other`, whichever is more. */
static size_t panels_bytes(int64_t count, int64_t each, int64_t other, int64_t depth)
{
    const int64_t one = round_up(count, each) / each * (depth * each + PANEL_GAP);
    const int64_t two = round_up(count, other) / other * (depth * other + PANEL_GAP);
    return (size_t)(one > two ? one : two) * sizeof(float);
}

/* For the tiles of any processor, so that a plan made on one runs on another. */
size_t gemm_large_workspace(bool trans_a, int64_t m, int64_t n, int64_t k)
{
    if (!m || !n || !k)
        return 0;
    const int64_t depth = gemm_large_depth(k), width = even_part(n, trans_a ? WIDTH_PACKED : WIDTH);
    return panels_bytes(width, 16, 32, depth) + (trans_a ? panels_bytes(even_part(m, BAND_PACKED), 6, 8, depth) : 0);
}

/* A block of B as tiles read it: whole panels where they lie, or all packed. */
typedef struct right {
    const float *in_place; /* or NULL */
    int64_t ldb;
    const float *packed;   /* in place: the last panel alone, where it is not a whole one */
} right;

static void right_panel(const right *b, int64_t j, tile *t)
{
    if (b->in_place && t->columns == COLUMNS) {
        t->b = b->in_place + j;
        t->b_step = b->ldb;
        return;
    }
    t->b = b->packed + (b->in_place ? 0 : j / COLUMNS * b_panel(t->depth));
    t->b_step = COLUMNS;
}

/* A band of C. t has all but the columns and B; t.a and t.c are where the band begins. */
static void band_run(tile t, const right *b, int64_t rows, int64_t width, bool packed)
{
    const tile band = t;
    const int64_t height = packed ? ROWS : even_part(rows, ROWS);
    for (int64_t j = 0; j < width; j += COLUMNS) {
        t.columns = least(COLUMNS, width - j);
        right_panel(b, j, &t);
        for (int64_t i = 0; i < rows; i += height) {
            t.a = band.a + (packed ? i / ROWS * a_panel(t.depth) : i * t.a_step);
            t.c = band.c + i * t.ldc + j;
            tiles[least(height, rows - i) - 1][packed][t.columns > VECTOR](&t);
        }
    }
}

/* The block of B from row p and column j on, ready for tiles; `to` is for what has to be packed. */
static right right_of(const gemm_large_call *g, int64_t p, int64_t j, int64_t depth, int64_t width, float *to)
{
    if (g->make) {
        g->make(g->ctx, &(gemm_block){p, depth, j, width, COLUMNS, b_panel(depth), to});
        return (right){.packed = to};
    }
    const float *b = g->trans_b ? g->b + j * g->ldb + p : g->b + p * g->ldb + j;
    const int64_t whole = width / COLUMNS * COLUMNS;
    if (g->trans_b || g->m > FEW_ROWS) {
        pack_b(g->trans_b, b, g->ldb, depth, width, to);
        return (right){.packed = to};
    }
    pack_b(false, b + whole, g->ldb, depth, width - whole, to);
    return (right){b, g->ldb, to};
}

/* C's columns [j, j + width) take up `depth` terms from p on. */
static void block_run(const gemm_large_call *g, const blocks *most, int64_t j, int64_t p)
{
    const int64_t width = least(most->width, g->n - j), depth = least(most->depth, g->k - p);
    float *b_packed = g->workspace, *a_packed = (float *)((char *)g->workspace + b_bytes(most));
    const right b = right_of(g, p, j, depth, width, b_packed);
    tile t = {.depth = depth, .a_step = g->lda, .ldc = g->ldc, .alpha = g->alpha, .beta = p ? 1 : g->beta};
    for (int64_t i = 0; i < g->m; i += most->band) {
        const int64_t rows = least(most->band, g->m - i);
        if (g->trans_a)
            pack_a(g->a + p * g->lda + i, g->lda, depth, rows, a_packed);
        t.a = g->trans_a ? a_packed : g->a + i * g->lda + p;
        t.c = g->c + i * g->ldc + j;
        band_run(t, &b, rows, width, g->trans_a);
    }
}

void gemm_large(const gemm_large_call *g)
{
    const blocks most = blocks_of(g->trans_a, g->m, g->n, g->k);
    for (int64_t j = 0; j < g->n; j += most.width)
        for (int64_t p = 0; p < g->k; p += most.depth)
            block_run(g, &most, j, p);
}
