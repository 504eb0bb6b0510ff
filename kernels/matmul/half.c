/* kernels/matmul/half.c: tiles of sums in registers, over a packed B.
 *
 *     packed B: panels of 64 columns (the last may have 16, 32 or 48), one behind the other; in a panel
 *
 *         pair 0   b[0, j] b[1, j]   b[0, j + 1] b[1, j + 1]   ...      two terms of a sum lie together, as
 *         pair 1   b[2, j] b[3, j]   b[2, j + 1] b[3, j + 1]   ...      VDPBF16PS multiplies and adds them
 *
 *     a tile: 6 rows x 4 vectors of 16 sums. For each pair 4 vectors of B are loaded and 6 pairs of A repeated. Without
 *     AVX-512 these sums are made in four parts, of 6 rows x 1 vector: that fits the 16 registers of 8 floats.
 *
 * Up to COLUMNS columns of B are packed; then the rows pass by, ROWS at a time, and for each panel all of these: A's
 * rows stay in the second-level cache, a panel too. A is read where it lies, unless it is stored transposed or k is
 * odd: then those rows are packed as well.
 *
 * Where the processor has AMX a tile is 32 rows x 2 vectors, in its tile registers (amx.h): B's panels are as it wants
 * them. Whether it is so is asked when the library runs, so the plan, its scratch and the packing are the same.
 *
 * Without AVX512-BF16 and AMX, and for f16, the same is done with pairs of one f32: half as many rows and columns fit.
 *
 * Why not oneDNN, not even for its tiles of AMX. A primitive allocates in each execution, 6 or 7 times, also where it is
 * given its scratch, and how much scratch it wants is known only on the processor that it runs on, while a plan is made
 * on any. Where A is transposed a row's bits depend on how many rows are beside it. It is to be made for each shape (0.2 to 20 ms), brings
 * OpenMP's, OpenCL's and C++'s libraries into the program, and attention, which has its blocks packed already, would
 * gain nothing. It is not ahead without AMX either: one core with AVX512-BF16 of a machine of two in use by others, GFLOP/s
 * of processor time, medians in turns, oneDNN 2.6 and this:
 *
 *     NN 1024 x  512 x  512  435, 423    NT 1024 x  512 x  512  441, 430    TN  512 x  512 x 1024  403, 418
 *     NN 1024 x 2048 x  512  422, 421    NT 1024 x  512 x 2048  422, 437    TN  512 x 2048 x 1024  366, 411
 *     NN 1024 x  512 x 2048  421, 437    NT 1024 x 2048 x  512  434, 424    TN 2048 x  512 x 1024  377, 415
 *
 * VDPBF16PS alone, without loads, comes to 450 there.
 */
#include "kernels/matmul/half.h"

#include "graph/base/half.h"
#include "kernels/common/lanes.h"
#include "kernels/matmul/amx.h"
#include "kernels/common/unroll.h"

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

static inline bool has_pairs(void)
{
#ifdef __AVX512BF16__
    return pairs_usable();
#else
    return false;
#endif
}

static terms terms_of(weir_dtype dtype)
{
    return dtype == WEIR_BF16 && (has_pairs() || amx_usable()) ? TERMS_PAIRS : TERMS_F32;
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

typedef uint32_t lane_bits __attribute__((vector_size(LANES * sizeof(uint32_t))));

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

/* Which lanes of two rows, `width` apart, become the upper one when blocks of that width change places; the lower one
 * takes those `width` further. */
#define UPPER(l, width) ((l) & (width) ? LANES + (l) - (width) : (l))
#define UPPER_4(l, width) UPPER(l, width), UPPER((l) + 1, width), UPPER((l) + 2, width), UPPER((l) + 3, width)
#define UPPER_ROW(width) {UPPER_4(0, width), UPPER_4(4, width), UPPER_4(8, width), UPPER_4(12, width)}
static const lane_numbers upper_row[] = {UPPER_ROW(8), UPPER_ROW(4), UPPER_ROW(2), UPPER_ROW(1)};

/* A square's rows become its columns: blocks beside its diagonal change places, ever smaller ones. */
static inline __attribute__((always_inline)) void transpose(lane_bits square[LANES])
{
    UNROLL
    for (int step = 0, width = LANES / 2; width; step++, width /= 2) {
        const lane_numbers upper = upper_row[step], lower = upper + width;
        UNROLL
        for (int i = 0; i < LANES; i++)
            if (!(i & width)) {
                const lanes a = (lanes)square[i], b = (lanes)square[i + width];
                square[i] = (lane_bits)lanes_pick(a, b, upper);
                square[i + width] = (lane_bits)lanes_pick(a, b, lower);
            }
    }
}

static inline __attribute__((always_inline)) void store_square(const lane_bits square[LANES], uint32_t *to,
                                                               int64_t to_row)
{
    UNROLL
    for (int i = 0; i < LANES; i++)
        memcpy(to + i * to_row, &square[i], sizeof square[i]);
}

/* Elements [e, e + 16) of sixteen lines whose pairs are words of the memory, to rows of one element each. */
static void pack_square(const lines *from, int64_t e, uint32_t *to, int64_t to_row)
{
    lane_bits square[LANES];
    UNROLL
    for (int l = 0; l < LANES; l++)
        memcpy(&square[l], from->at + l * from->line + 2 * e, sizeof square[l]);
    transpose(square);
    store_square(square, to, to_row);
}

/* The same of `count` lines whose terms become floats, zeros behind the last line. */
static void pack_square_f32(const lines *from, int64_t e, int64_t count, uint32_t *to, int64_t to_row)
{
    float square[LANES][LANES] = {0};
    for (int64_t l = 0; l < count; l++)
        weir_to_f32(from->dtype, from->at + l * from->line + e, LANES, square[l]);
    for (int64_t i = 0; i < LANES; i++)
        for (int64_t l = 0; l < LANES; l++)
            memcpy(to + i * to_row + l, &square[l][i], sizeof *to);
}

/* The same of lines that lie beside each other, to rows of one line each. */
static void pack_square_across(const lines *from, int64_t e, uint32_t *to, int64_t to_row)
{
    lane_bits square[LANES];
    UNROLL
    for (int i = 0; i < LANES; i++) {
        const uint16_t *even = from->at + 2 * (e + i) * from->term, *odd = even + from->term;
        for (int l = 0; l < LANES; l++)
            square[i][l] = even[l] | (uint32_t)odd[l] << 16;
    }
    transpose(square);
    store_square(square, to, to_row);
}

/* Elements [0, elements) of sixteen lines or fewer, whose terms lie together; to_row apart, zeros behind the last. */
static void pack_along(lines from, terms kind, int64_t elements, int64_t k, int64_t count, uint32_t *to, int64_t to_row)
{
    int64_t e = 0;
    if (kind == TERMS_PAIRS && count == LANES)
        for (; 2 * (e + LANES) <= k; e += LANES)
            pack_square(&from, e, to + e * to_row, to_row);
    if (kind == TERMS_F32)
        for (; e + LANES <= k; e += LANES)
            pack_square_f32(&from, e, count, to + e * to_row, to_row);
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

/* Lines as rows of elements: elements of a line lie together. */
static void pack_rows(const lines *from, terms kind, int64_t k, int64_t count, uint32_t *to)
{
    const int64_t elements = (k + kind - 1) / kind, square = kind == TERMS_PAIRS && from->line == 1 ? LANES : 0;
    const int64_t whole_lines = square ? count / square * square : 0;
    const int64_t whole_elements = square ? k / 2 / square * square : 0;
    lines at = *from;
    if (kind == TERMS_F32 && from->term == 1) {
        for (int64_t l = 0; l < count; l++)
            weir_to_f32(from->dtype, from->at + l * from->line, k, (float *)(to + l * elements));
        return;
    }
    for (int64_t l = 0; l < count; l++)
        for (int64_t e = l < whole_lines ? whole_elements : 0; e < elements; e++)
            to[l * elements + e] = element(from, kind, l, e, k);
    for (int64_t l = 0; l < whole_lines; l += LANES, at.at += LANES)
        for (int64_t e = 0; e < whole_elements; e += LANES)
            pack_square_across(&at, e, to + l * elements + e, elements);
}

/* ---- tiles ---- */

/* The sizes that a tile is made of. Pair p of row r of A is the 4 bytes at a + r * row + p * step. */
typedef struct strip {
    const char *a;
    int64_t row, step; /* bytes */
    const uint32_t *b; /* a panel, or the part of one */
    int64_t b_row;     /* elements of a row of it */
    int64_t elements;
} strip;

/* One register's worth of sums: GCC keeps wider vectors in the memory. */
#ifdef __AVX512F__
enum { WIDTH = LANES, LANES_AT_ONCE = TILE_VECTORS }; /* 24 of 32 registers hold sums */
#else
enum { WIDTH = LANES / 2, LANES_AT_ONCE = 1 }; /* 12 of 16 */
#endif
typedef float wide __attribute__((vector_size(WIDTH * sizeof(float))));
typedef uint32_t words __attribute__((vector_size(WIDTH * sizeof(uint32_t))));
typedef uint16_t halves __attribute__((vector_size(WIDTH * sizeof(uint16_t))));

static inline __attribute__((always_inline)) wide load(const float *from)
{
    wide x;
    memcpy(&x, from, sizeof x);
    return x;
}

static inline __attribute__((always_inline)) wide repeat(const char *at)
{
    uint32_t one; /* a float would be added to 0, and a pair is not one */
    memcpy(&one, at, sizeof one);
    return (wide)((words){} + one);
}

/* sum += the products of the terms of each element of a and b */
static inline __attribute__((always_inline)) wide multiply_add(terms kind, wide sum, wide a, wide b)
{
#ifdef __AVX512BF16__
    if (kind == TERMS_PAIRS)
        return (wide)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
#endif
    (void)kind;
    return sum + a * b;
}

/* kind, rows and registers (of sums of a row) are constants where this is inlined. */
static inline __attribute__((always_inline)) void tile(terms kind, int rows, int registers, const strip *s, float *to)
{
    wide sum[TILE_ROWS * LANES_AT_ONCE * LANES / WIDTH];
    const char *a = s->a;
    const float *b = (const float *)s->b;
    UNROLL
    for (int i = 0; i < rows * registers; i++)
        sum[i] = (wide){};
    for (int64_t e = 0; e < s->elements; e++, a += s->step, b += s->b_row) {
        wide row_of_b[LANES_AT_ONCE * LANES / WIDTH];
        UNROLL
        for (int v = 0; v < registers; v++)
            row_of_b[v] = load(b + v * WIDTH);
        UNROLL
        for (int r = 0; r < rows; r++) {
            const wide pair = repeat(a + r * s->row);
            UNROLL
            for (int v = 0; v < registers; v++)
                sum[r * registers + v] = multiply_add(kind, sum[r * registers + v], pair, row_of_b[v]);
        }
    }
    UNROLL
    for (int i = 0; i < rows * registers; i++)
        memcpy(to + i / registers * PANEL + i % registers * WIDTH, &sum[i], sizeof sum[i]);
}

typedef void (*tile_fn)(const strip *s, float *to);
#define TILE(kind, rows, vectors)                                              \
    static void tile_##kind##_##rows##x##vectors(const strip *s, float *to)    \
    {                                                                          \
        enum { AT_ONCE = vectors < LANES_AT_ONCE ? vectors : LANES_AT_ONCE };  \
        strip part = *s;                                                       \
        for (int v = 0; v < vectors; v += AT_ONCE, part.b += AT_ONCE * LANES)  \
            tile(TERMS_##kind, rows, AT_ONCE * LANES / WIDTH, &part, to + v * LANES); \
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

/* half_to_bf16() of each. The processor's own rounding (`own`) is that, but for denormals, which it takes for zeros. */
static inline __attribute__((always_inline)) void store_bf16(uint16_t *to, wide x, bool own)
{
    (void)own;
#ifdef __AVX512BF16__
    enum { DENORMAL = 0x20 };
    if (own && !_mm512_fpclass_ps_mask((__m512)x, DENORMAL)) {
        const __m256bh rounded = _mm512_cvtneps_pbh((__m512)x);
        memcpy(to, &rounded, sizeof rounded);
        return;
    }
#endif
    const words bits = (words)x, nan = (words)((bits & 0x7FFFFFFF) > 0x7F800000);
    const words rounded = bits + 0x7FFF + (bits >> 16 & 1);
    const words kept = ((nan & (bits | 0x00400000)) | (~nan & rounded)) >> 16;
    const halves narrow = __builtin_convertvector(kept, halves);
    memcpy(to, &narrow, sizeof narrow);
}

/* `count` columns of a row, a multiple of WIDTH, to f32 or bf16. */
static void put_vectors(const half_product *p, const float *sum, int64_t row, int64_t column, int64_t count)
{
    const float alpha = p->alpha == 0 ? 1 : p->alpha;
    const int64_t to = row * p->ldc + column;
    const bool own = has_pairs();
    for (int64_t i = 0; i < count; i += WIDTH) {
        wide x = load(sum + i) * alpha;
        if (p->bias)
            x += load(p->bias + column + i);
        if (p->add)
            x += load((const float *)p->c + to + i);
        if (p->c_dtype == WEIR_F32)
            memcpy((float *)p->c + to + i, &x, sizeof x);
        else
            store_bf16((uint16_t *)p->c + to + i, x, own);
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

/* One row of `vectors` vectors of sums, of which `count` columns exist. */
static void put(const half_product *p, float *sums, int64_t row, int64_t column, int64_t count)
{
    if (count % WIDTH || p->c_dtype == WEIR_F16)
        put_row(p, sums, row, column, count);
    else
        put_vectors(p, sums, row, column, count);
}

/* `rows` rows of A against one panel, of which `count` columns exist. amx: NULL where there is none, or of no use. */
static void panel_rows(const half_product *p, terms kind, amx_tiles *amx, strip s, int64_t row, int64_t rows,
                       int64_t column, int64_t count)
{
    const int64_t vectors = (count + LANES - 1) / LANES, most = amx ? AMX_ROWS : TILE_ROWS;
    float sums[AMX_ROWS * PANEL] __attribute__((aligned(64)));
    for (int64_t done = 0; done < rows; done += most, s.a += most * s.row) {
        const int64_t height = least(most, rows - done);
        if (amx)
            amx_sums(amx, &(amx_factors){s.a, s.row, s.b, s.b_row, s.elements}, height, vectors, sums, PANEL);
        else
            tile_of[kind][height][vectors](&s, sums);
        for (int64_t r = 0; r < height; r++)
            put(p, sums + r * PANEL, row + done + r, column, count);
    }
}

/* ---- the product ---- */

static int64_t elements_of(terms kind, int64_t k)
{
    return (k + kind - 1) / kind;
}

/* Where rows [row, row + rows) of A can be read pair by pair: where they lie, or packed into the workspace. */
static strip rows_of_a(const half_product *p, terms kind, bool by_row, int64_t row, int64_t rows)
{
    const int64_t elements = elements_of(kind, p->k);
    uint32_t *to = p->workspace;
    const lines from = {p->a + (p->trans_a ? row : row * p->lda), p->trans_a ? 1 : p->lda, p->trans_a ? p->lda : 1,
                        p->dtype};
    if (kind == TERMS_PAIRS && !p->trans_a && p->k % 2 == 0)
        return (strip){.a = (const char *)from.at, .row = 2 * p->lda, .step = 4, .elements = elements};
    if (p->trans_a && !by_row) {
        pack(from, kind, p->k, rows, rows, to);
        return (strip){.a = (const char *)to, .row = 4, .step = 4 * rows, .elements = elements};
    }
    pack_rows(&from, kind, p->k, rows, to);
    return (strip){.a = (const char *)to, .row = 4 * elements, .step = 4, .elements = elements};
}

void half_multiply(const half_product *p, const half_packed *b)
{
    const terms kind = terms_of(p->dtype);
    const int64_t most = ROWS * kind / 2, elements = elements_of(kind, b->k);
    amx_tiles tiles = {0}, *amx = kind == TERMS_PAIRS && amx_usable() ? &tiles : NULL;
    for (int64_t row = 0; row < p->m; row += most) {
        const int64_t rows = least(most, p->m - row);
        strip s = rows_of_a(p, kind, amx != NULL, row, rows);
        s.b = b->at;
        for (int64_t column = 0; column < p->n; column += PANEL) {
            s.b_row = round_up(least(PANEL, b->n - column), LANES);
            panel_rows(p, kind, amx, s, row, rows, column, least(PANEL, p->n - column));
            s.b += s.b_row * elements;
        }
    }
    amx_end(&tiles);
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
