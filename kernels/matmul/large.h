/* kernels/matmul/large.h: products that do not fit into the caches as they lie: gemm() for all but small ones.
 *
 * Arguments are those of gemm() (gemm.h); no size is 0. `workspace` is of gemm_large_workspace() bytes, aligned to 64,
 * of a size that is bounded whatever the product's is. Any thread.
 */
#ifndef KERNELS_MATMUL_LARGE_H
#define KERNELS_MATMUL_LARGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct gemm_large_call {
    bool trans_a, trans_b;
    int64_t m, n, k;
    float alpha;
    const float *a;
    int64_t lda;
    const float *b;
    int64_t ldb;
    float beta;
    float *c;
    int64_t ldc;
    void *workspace;
} gemm_large_call;

size_t gemm_large_workspace(bool trans_a, int64_t m, int64_t n, int64_t k);
void gemm_large(const gemm_large_call *g);

#endif
