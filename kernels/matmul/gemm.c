#include "kernels/matmul/gemm.h"

#include <cblas.h>

/* OpenBLAS refuses a leading dimension of 0, which a product over nothing may well have. */
static void scale(int64_t m, int64_t n, float beta, float *c, int64_t ldc)
{
    for (int64_t row = 0; row < m; row++)
        for (int64_t i = 0; i < n; i++)
            c[row * ldc + i] = beta == 0 ? 0 : beta * c[row * ldc + i];
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
    if (openblas_get_num_threads() != 1)
        openblas_set_num_threads(1);
    cblas_sgemm(CblasRowMajor, trans_a ? CblasTrans : CblasNoTrans, trans_b ? CblasTrans : CblasNoTrans, (blasint)m,
                (blasint)n, (blasint)k, alpha, a, (blasint)lda, b, (blasint)ldb, beta, c, (blasint)ldc);
}
