/* kernels/matmul/gemm.c: one product, two ways.
 *
 * Both are weir's own: small products are over before they are worth packing (small.h), all others are packed block by
 * block into the caller's scratch (large.h). The choice is a function of the shape alone, because the two do not round
 * alike: the same plan must give the same bits in every run. A timing at start would not.
 *
 * Why not a library. oneDNN's sgemm takes a buffer for packed blocks from malloc in every call and gives it back, which
 * was the only allocation of a step; its primitives, which take a buffer from their caller, allocate more: they look up
 * their arguments in a hash map that is made for each execution. OpenBLAS does not allocate, but starts threads when it
 * is loaded and has one setting for how many it uses: that belongs to the program around weir. They are not faster either
 * where it matters. One core with AVX-512 of a busy machine, GFLOP/s of processor time, oneDNN 2.6, this:
 *
 *     A B    2048 x  384 x  384  217, 208    A B^T 2048 x  384 x 1536  211, 210    A B     8 x 1024 x 1024  199, 183
 *     A B    2048 x 1536 x  384  225, 223    A B^T 2048 x 1536 x  384  215, 214    A B    32 x  384 x  384  232, 241
 *     A B    2048 x  384 x 1536  204, 205    A^T B  384 x 1536 x 2048  202, 195    A B^T  64 x   64 x   64  143, 214
 *     A B    1024 x 1024 x 1024  218, 212    A^T B 1536 x  384 x 2048  197, 189    A B^T  64 x  256 x   64  209, 211
 */
#include "kernels/matmul/gemm.h"
#include "kernels/matmul/large.h"
#include "kernels/matmul/small.h"

/* C = beta C */
static void scale(int64_t m, int64_t n, float beta, float *c, int64_t ldc)
{
    for (int64_t row = 0; row < m; row++)
        for (int64_t i = 0; i < n; i++)
            c[row * ldc + i] = beta == 0 ? 0 : beta * c[row * ldc + i];
}

size_t gemm_workspace(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k)
{
    return gemm_is_small(trans_b, m, n, k) ? 0 : gemm_large_workspace(trans_a, m, n, k);
}

void gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
          const float *b, int64_t ldb, float beta, float *c, int64_t ldc, void *workspace)
{
    if (m == 0 || n == 0)
        return;
    if (k == 0)
        scale(m, n, beta, c, ldc);
    else if (gemm_is_small(trans_b, m, n, k))
        gemm_small(trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    else
        gemm_large(&(gemm_large_call){trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, workspace, NULL, NULL});
}
