/* kernels/matmul/rows.h: a product whose rows do not know of each other.
 *
 *     C [m, n] = A [m, k] B [k, n], or with `add` C += A B
 *
 * Arguments are those of gemm() (gemm.h). The bits of a row of C depend on that row of A, on B and on C's old row
 * alone, not on m: so a model that computes one row a step gives what it gives over a whole window. gemm() does not
 * promise that; a product that is small is summed in other blocks of k than one that is large.
 */
#ifndef KERNELS_MATMUL_ROWS_H
#define KERNELS_MATMUL_ROWS_H

#include <stdbool.h>
#include <stdint.h>
#include <weir/base.h>

void gemm_rows(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b, int64_t ldb, bool add,
               float *c, int64_t ldc);

/* The same where A, B or C is f16 or bf16, each by itself: what f32 gives for these values, rounded once. Without gaps;
 * offsets of the views are not used. */
typedef struct rows_product {
    int64_t m, n, k;
    const weir_view *a, *b, *c;
    const float *bias; /* in every row of C at first; NULL: 0 */
    void *workspace;   /* gemm_rows_half_workspace(k) bytes */
} rows_product;

void gemm_rows_half(const rows_product *product);
size_t gemm_rows_half_workspace(int64_t k);

#endif
