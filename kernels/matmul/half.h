/* kernels/matmul/half.h: matrix products of f16 and bf16, summed in f32.
 *
 *     C [m, n] = alpha op(A) op(B) + start          op(A) [m, k], op(B) [k, n], of one half dtype; C f32, f16 or bf16
 *
 * Row-major; lda, ldb, ldc in elements; with trans_a (trans_b) A is stored as [k, m] (B as [n, k]), as for gemm()
 * (gemm.h). An element is one sum in the order of k, rounded to C's dtype once, when all is in it: so its bits depend
 * on its row of A and its column of B alone, however the rows and columns around it are split. Sizes of 0 are allowed.
 *
 * Nothing is allocated: B is packed into `workspace`, a part at a time. Any number of threads may call at once, each
 * with a workspace of its own. A, B and C do not overlap.
 */
#ifndef KERNELS_MATMUL_HALF_H
#define KERNELS_MATMUL_HALF_H

#include <stdbool.h>
#include <weir/base.h>

typedef struct half_product {
    bool trans_a, trans_b;
    int64_t m, n, k;
    float alpha;         /* 0 means 1 */
    weir_dtype dtype;    /* of A and B: WEIR_F16 or WEIR_BF16 */
    const uint16_t *a, *b;
    int64_t lda, ldb;
    weir_dtype c_dtype;  /* f32, f16 or bf16 */
    void *c;
    int64_t ldc;
    const float *bias;   /* start: bias[j] in every row; NULL: 0 */
    bool add;            /* start: what C, f32, holds; then bias is NULL */
    void *workspace;     /* 64-byte aligned */
} half_product;

void gemm_half(const half_product *product);

/* Bytes of workspace; the same on every machine, so that plans are. */
size_t gemm_half_workspace(int64_t n, int64_t k);

/* ---- a B that several products share ---- */

/* op(B) [k, n], packed once. */
typedef struct half_packed {
    weir_dtype dtype;
    int64_t n, k;
    void *at; /* half_packed_bytes(n, k) of them, 64-byte aligned */
} half_packed;

size_t half_packed_bytes(int64_t n, int64_t k);
void half_pack(const half_packed *to, bool trans_b, const uint16_t *b, int64_t ldb);

/* gemm_half() with a B that is packed: the first p->n of its columns and the first p->k of its terms. b, ldb
 * and trans_b of p are not used; its workspace has half_rows_bytes(p->k). */
size_t half_rows_bytes(int64_t k);
void half_multiply(const half_product *product, const half_packed *b);

#endif
