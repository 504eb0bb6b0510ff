/* kernels/matmul/gemm.c: one product, two libraries.
 *
 * oneDNN's sgemm does all but small products. It generates code for the processor it finds, and was measured ahead of
 * OpenBLAS 0.3.21 by 4 to 15 % on the shapes of a GPT (one core with AVX-512, GFLOP/s, OpenBLAS with its AVX-512
 * kernels against oneDNN 2.6: NN 2048x384x384 238, 263; NN 2048x1536x384 239, 249; NT 2048x384x1536 214, 232; TN
 * 384x384x2048 212, 250), and by a factor of two where OpenBLAS does not know the processor, or is told by
 * OPENBLAS_CORETYPE to use another one's kernels. OpenBLAS does the small ones, which are over before oneDNN has
 * looked up its code.
 *
 * The choice is a function of the shape alone, because the two do not round alike: the same plan must give the same
 * bits in every run. A timing at start would not.
 *
 * oneDNN takes a buffer for packed blocks from malloc in every call, and gives it back. It is the only allocation of
 * a step. Its primitives, which take a buffer from their caller, allocate more: they look up their arguments in a
 * hash map that is made for each execution.
 */
#include "kernels/matmul/gemm.h"

#include <cblas.h>
#include <dnnl.h>

enum { SMALL = 32 * 32 * 32 }; /* multiplications */

/* Neither library takes a leading dimension of 0, which a product over nothing may well have. */
static void scale(int64_t m, int64_t n, float beta, float *c, int64_t ldc)
{
    for (int64_t row = 0; row < m; row++)
        for (int64_t i = 0; i < n; i++)
            c[row * ldc + i] = beta == 0 ? 0 : beta * c[row * ldc + i];
}

static void gemm_openblas(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                          int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc)
{
    if (openblas_get_num_threads() != 1)
        openblas_set_num_threads(1);
    cblas_sgemm(CblasRowMajor, trans_a ? CblasTrans : CblasNoTrans, trans_b ? CblasTrans : CblasNoTrans, (blasint)m,
                (blasint)n, (blasint)k, alpha, a, (blasint)lda, b, (blasint)ldb, beta, c, (blasint)ldc);
}

void gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
          const float *b, int64_t ldb, float beta, float *c, int64_t ldc)
{
    if (m == 0 || n == 0)
        return;
    if (k == 0) {
        scale(m, n, beta, c, ldc);
        return;
    }
    if (m * n * k <= SMALL || dnnl_sgemm(trans_a ? 'T' : 'N', trans_b ? 'T' : 'N', m, n, k, alpha, a, lda, b, ldb, beta,
                                         c, ldc) != dnnl_success)
        gemm_openblas(trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
