/* kernels/matmul/gemm.h: the one matrix product that all kernels call.
 *
 *     C [m, n] = alpha op(A) op(B) + beta C          op(A) [m, k], op(B) [k, n]
 *
 * Row-major; lda, ldb and ldc are the distances in elements between rows as stored, so a head of an attention layer
 * or a slice of columns is a matrix too. With trans_a (trans_b) A is stored as [k, m] (B as [n, k]). With beta 0 C
 * need not be initialised. Sizes of 0 are allowed: k = 0 leaves beta C. A, B and C do not overlap.
 *
 * Runs on the calling thread alone and keeps nothing between calls; any number of threads may call at once. Same
 * shape and values, same bits. The caller gives the memory that large blocks are packed into: a step allocates nothing.
 */
#ifndef KERNELS_MATMUL_GEMM_H
#define KERNELS_MATMUL_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* `workspace` is aligned to 64 and of gemm_workspace() bytes; its contents are lost. */
void gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
          const float *b, int64_t ldb, float beta, float *c, int64_t ldc, void *workspace);

/* The bytes of a product of these sizes; never more than a few MB. */
size_t gemm_workspace(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k);

#endif
