/* kernels/matmul/large.h: products that do not fit into the caches as they lie: gemm() for all but small ones.
 *
 * Arguments are those of gemm() (gemm.h); no size is 0. The order in which an element's terms are added depends on k alone. `workspace` is of gemm_large_workspace() bytes, aligned to 64,
 * of a size that is bounded whatever the product's is. Any thread.
 */
#ifndef KERNELS_MATMUL_LARGE_H
#define KERNELS_MATMUL_LARGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A block of B, [depth, width] from row p and column j on, as the product wants it: panels of `columns` columns, each with its
 * rows one after the other, `step` floats apart. Columns of the last panel beyond `width` may have any values; the 8 floats behind
 * a panel's last row may be overwritten. */
typedef struct gemm_block {
    int64_t p, depth, j, width;
    int64_t columns, step;
    float *to;
} gemm_block;

enum { GEMM_DEPTH = 384, GEMM_WIDTH = 512 }; /* no block has more, of a B that is made so */

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
    void (*make)(void *ctx, const gemm_block *block); /* makes B, which lies nowhere as a matrix, a block at a time; then
                                                         trans_a and trans_b are false, and b is not used. NULL: b is B */
    void *ctx;
} gemm_large_call;

/* Terms that are added at a time, of k. */
int64_t gemm_large_depth(int64_t k);
size_t gemm_large_workspace(bool trans_a, int64_t m, int64_t n, int64_t k);
void gemm_large(const gemm_large_call *g);

#endif
