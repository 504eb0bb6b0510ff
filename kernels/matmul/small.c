/* kernels/matmul/small.c: products that are over before it pays to pack them.
 *
 *                  columns j .. j + 15
 *     rows       [ sum of a[i, 0 .. k) b[0 .. k, j ..] ]   up to ROWS sums at a time, each a vector (kernels/common/lanes.h);
 *     i .. i + 7 [ .                                   ]   a row of b is loaded once for all of them
 *
 * B is read where it lies when its rows are whole vectors. Otherwise (it is stored transposed, or these are the last
 * columns) the 16 columns are first copied side by side and filled up with zeros, DEPTH rows at a time, which stay in
 * the nearest cache. An element's terms are added in the order of k, in blocks of DEPTH.
 *
 * One core with AVX-512, ns, OpenBLAS 0.3.21 (told to use Haswell's kernels / with its own for AVX-512), this, oneDNN:
 * NN 8x8x8 91 / 25, 58, 240; 16x16x16 175 / 67, 65, 270; 32x32x32 797 / 306, 422, 516; NT 16x16x16 195 / 185, 143, 348;
 * 32x32x32 901 / 603, 690, 800.
 */
#include "kernels/matmul/small.h"

#include "kernels/common/lanes.h"

enum {
    ROWS = 8,
    DEPTH = 256,
    WORK_MAX = 32 * 32 * 32, /* beyond, packing pays */
    PACK_WORK = 6            /* multiplications in the time in which an element is copied */
};

typedef struct panel { /* 16 columns of B, one row after the other */
    const float *b;
    int64_t ldb;
    int columns; /* that exist */
} panel;

typedef struct left { /* op(A): element (i, k) at a[i * row + k * step] */
    const float *a;
    int64_t row, step;
} left;

static inline __attribute__((always_inline)) void store(float *c, lanes sum, float alpha, float beta, int columns)
{
    sum *= alpha;
    if (columns == LANES) {
        if (beta != 0)
            sum += beta * lanes_load(c);
        lanes_store(c, &sum);
        return;
    }
    for (int i = 0; i < columns; i++)
        c[i] = beta == 0 ? sum[i] : sum[i] + beta * c[i];
}

/* `rows` is a constant where this is inlined. */
static inline __attribute__((always_inline)) void tile(int rows, left a, const panel *p, int64_t k, float alpha,
                                                       float beta, float *c, int64_t ldc)
{
    lanes sum[ROWS];
    for (int r = 0; r < rows; r++)
        sum[r] = (lanes){};
    for (int64_t i = 0; i < k; i++) {
        const lanes b = lanes_load(p->b + i * p->ldb);
        for (int r = 0; r < rows; r++)
            sum[r] += a.a[r * a.row + i * a.step] * b;
    }
    for (int r = 0; r < rows; r++)
        store(c + r * ldc, sum[r], alpha, beta, p->columns);
}

static void tiles(int64_t m, left a, const panel *p, int64_t k, float alpha, float beta, float *c, int64_t ldc)
{
    for (; m >= ROWS; m -= ROWS, a.a += ROWS * a.row, c += ROWS * ldc)
        tile(ROWS, a, p, k, alpha, beta, c, ldc);
    switch (m) {
#define X(rows)                                      \
    case rows:                                       \
        tile(rows, a, p, k, alpha, beta, c, ldc);    \
        break;
        X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#undef X
    default:
        break;
    }
}

static void pack(panel *p, bool trans, const float *b, int64_t ldb, int64_t k, float *buffer)
{
    const int64_t row = trans ? 1 : ldb, column = trans ? ldb : 1;
    for (int64_t i = 0; i < k; i++)
        for (int j = 0; j < LANES; j++)
            buffer[i * LANES + j] = j < p->columns ? b[i * row + j * column] : 0;
    p->b = buffer;
    p->ldb = LANES;
}

/* Counts what is done for columns that do not exist. */
bool gemm_is_small(bool trans_b, int64_t m, int64_t n, int64_t k)
{
    if (m > WORK_MAX || n > WORK_MAX || k > WORK_MAX)
        return false; /* and products below are in range */
    int64_t columns = (n + LANES - 1) / LANES * LANES;
    int64_t packed = trans_b ? columns : n % LANES ? LANES : 0;
    return m * columns * k + PACK_WORK * packed * k <= WORK_MAX;
}

void gemm_small(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
                const float *b, int64_t ldb, float beta, float *c, int64_t ldc)
{
    float buffer[DEPTH * LANES];
    for (int64_t i = 0; i < k; i += DEPTH, beta = 1) {
        const int64_t depth = k - i < DEPTH ? k - i : DEPTH;
        const left rows = trans_a ? (left){a + i * lda, 1, lda} : (left){a + i, lda, 1};
        for (int64_t j = 0; j < n; j += LANES) {
            const float *at = trans_b ? b + j * ldb + i : b + i * ldb + j;
            panel p = {at, ldb, n - j < LANES ? (int)(n - j) : LANES};
            if (trans_b || p.columns < LANES)
                pack(&p, trans_b, at, ldb, depth, buffer);
            tiles(m, rows, &p, depth, alpha, beta, c + j, ldc);
        }
    }
}
