/* kernels/matmul/gemm.c: one product, two ways.
 *
 * oneDNN's sgemm does all but small products. It generates code for the processor it finds, and was measured ahead of
 * OpenBLAS 0.3.21 by 4 to 15 % on the shapes of a GPT (one core with AVX-512, GFLOP/s, OpenBLAS with its AVX-512
 * kernels against oneDNN 2.6: NN 2048x384x384 238, 263; NN 2048x1536x384 239, 249; NT 2048x384x1536 214, 232; TN
 * 384x384x2048 212, 250). Small ones are over before it has looked up its code, and are weir's own (small.h). OpenBLAS,
 * which did them before, starts threads when it is loaded and has one setting for how many it uses: that belongs to the
 * program around weir.
 *
 * The choice is a function of the shape alone, because the two do not round alike: the same plan must give the same
 * bits in every run. A timing at start would not.
 *
 * oneDNN takes a buffer for packed blocks from malloc in every call, and gives it back. It is the only allocation of
 * a step. Its primitives, which take a buffer from their caller, allocate more: they look up their arguments in a
 * hash map that is made for each execution. When it gets no buffer, a large product is done as a small one is.
 */
#include "kernels/matmul/gemm.h"
#include "kernels/matmul/small.h"

#include <dnnl.h>

/* Neither takes a leading dimension of 0, which a product over nothing may well have. */
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
    if (gemm_is_small(trans_b, m, n, k) || dnnl_sgemm(trans_a ? 'T' : 'N', trans_b ? 'T' : 'N', m, n, k, alpha, a, lda,
                                                      b, ldb, beta, c, ldc) != dnnl_success)
        gemm_small(trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
