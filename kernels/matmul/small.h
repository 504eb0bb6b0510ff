/* kernels/matmul/small.h: small matrix products, which a library is too slow for.
 *
 * Arguments are those of gemm() (gemm.h), but m, n and k are at least 1. Right for any size; gemm_is_small() says for
 * which it is also the faster way. Same shape and values, same bits.
 */
#ifndef KERNELS_MATMUL_SMALL_H
#define KERNELS_MATMUL_SMALL_H

#include <stdbool.h>
#include <stdint.h>

bool gemm_is_small(bool trans_b, int64_t m, int64_t n, int64_t k);

void gemm_small(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
                const float *b, int64_t ldb, float beta, float *c, int64_t ldc);

#endif
