/* kernels/matmul/rows.c: each element is one sum, in the order of k and in no other.
 *
 *     c[i, j] = (((start + a[i, 0] b[0, j]) + a[i, 1] b[1, j]) + ...) + a[i, k - 1] b[k - 1, j]
 *
 * How many rows and columns are done at a time is a matter of speed alone: a tile is some rows and some vectors
 * (kernels/common/lanes.h) of sums, and each lane of each sum is that same chain of multiply-adds, whatever lies beside it.
 * With many rows a vector of B serves several of them. A single row takes as many vectors as hide the latency of an
 * addition, and is bound by how fast B can be read: it asks for it AHEAD rows before (a tenth less time for a model
 * whose weights lie in the third-level cache). DEPTH rows of B at a time stay in the second-level cache. The last
 * columns are copied side by side and filled up with zeros, which end up in lanes that nobody reads.
 *
 * One core with AVX-512, of two in use, GFLOP/s, gemm() and this: 1x512x512 70, 53; 1x1536x1536 66, 50; 128x512x512
 * 395, 212.
 */
#include "kernels/matmul/rows.h"

#include "kernels/common/lanes.h"

enum { DEPTH = 256, AHEAD = 8 };

typedef struct operands {
    const float *a, *b;
    float *c;
    int64_t lda, ldb, ldc;
    int64_t depth;
    bool add; /* to what c holds */
} operands;

/* rows x vectors sums; both are constants where this is inlined. */
static inline __attribute__((always_inline)) void tile(const operands *o, int rows, int vectors)
{
    lanes sum[16];
    for (int s = 0; s < rows * vectors; s++)
        sum[s] = o->add ? lanes_load(o->c + s / vectors * o->ldc + s % vectors * LANES) : (lanes){};
    for (int64_t i = 0; i < o->depth; i++)
        for (int v = 0; v < vectors; v++) {
            const lanes b = lanes_load(o->b + i * o->ldb + v * LANES);
            if (rows == 1)
                __builtin_prefetch(o->b + (i + AHEAD) * o->ldb + v * LANES);
            for (int r = 0; r < rows; r++)
                sum[r * vectors + v] += o->a[r * o->lda + i] * b;
        }
    for (int s = 0; s < rows * vectors; s++)
        lanes_store(o->c + s / vectors * o->ldc + s % vectors * LANES, &sum[s]);
}

/* rows, vectors: more rows first; of as many rows the wider tile first, the last one of a single vector */
#define TILES(X) X(8, 2) X(8, 1) X(4, 4) X(4, 1) X(3, 4) X(3, 1) X(2, 8) X(2, 4) X(2, 1) X(1, 16) X(1, 8) X(1, 4) X(1, 2) X(1, 1)

#define X(rows, vectors)                                       \
    static void tile_##rows##x##vectors(const operands *o)     \
    {                                                          \
        tile(o, rows, vectors);                                \
    }
TILES(X)
#undef X

typedef struct tile_kind {
    int rows, vectors;
    void (*run)(const operands *o);
} tile_kind;
static const tile_kind tiles[] = {
#define X(rows, vectors) {rows, vectors, tile_##rows##x##vectors},
    TILES(X)
#undef X
};

/* The columns that are whole vectors, of as many rows as `t` has. */
static void strip(const tile_kind *t, operands o, int64_t columns)
{
    for (; columns >= LANES; t++)
        for (const int64_t width = t->vectors * LANES; columns >= width; columns -= width) {
            t->run(&o);
            o.b += width;
            o.c += width;
        }
}

static void whole_columns(int64_t m, operands o, int64_t columns)
{
    for (const tile_kind *t = tiles; m > 0; m -= t->rows, o.a += t->rows * o.lda, o.c += t->rows * o.ldc) {
        while (t->rows > m)
            t++;
        strip(t, o, columns);
    }
}

/* Fewer than LANES columns: of a copy of B's, into a row that has room for a vector. */
static void last_columns(int64_t m, operands o, int columns)
{
    float b[DEPTH * LANES], c[LANES] = {0}, *to = o.c;
    for (int64_t i = 0; i < o.depth; i++)
        for (int j = 0; j < LANES; j++)
            b[i * LANES + j] = j < columns ? o.b[i * o.ldb + j] : 0;
    o.b = b;
    o.ldb = LANES;
    o.c = c;
    for (; m > 0; m--, o.a += o.lda, to += o.ldc) {
        if (o.add)
            memcpy(c, to, (size_t)columns * sizeof *c);
        tile_1x1(&o);
        memcpy(to, c, (size_t)columns * sizeof *c);
    }
}

void gemm_rows(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b, int64_t ldb, bool add,
               float *c, int64_t ldc)
{
    const int64_t columns = n / LANES * LANES;
    for (int64_t i = 0; i < k || (i == 0 && !add); i += DEPTH, add = true) {
        operands o = {a + i, b + i * ldb, c, lda, ldb, ldc, k - i < DEPTH ? k - i : DEPTH, add};
        whole_columns(m, o, columns);
        o.b += columns;
        o.c += columns;
        if (columns < n)
            last_columns(m, o, (int)(n - columns));
    }
}
