/* kernels/matmul/product.h: one call of cuBLASLt: count products op(a) op(b) -> c of matrices without gaps, row after row.
 *
 *     a [m, k] or, transposed, [k, m]      b [k, n] or [n, k]      c [m, n], f32 or of the factors' dtype
 *
 * The library knows columns: what lies row after row is to it the transposed matrix, so it is asked for c^T = op(b)^T
 * op(a)^T. Sums are f32, and f32 factors are multiplied as such (no tf32). Which of its ways it takes is asked once for each
 * distinct problem and kept, so that a run's bits stay the same; ways whose sums have no fixed order are left out.
 *
 * The bias joins in the product. Where the result is half, the library wants it in that dtype: it is rounded to it, into
 * the workspace. Any thread; enqueues and returns.
 */
#ifndef KERNELS_MATMUL_PRODUCT_H
#define KERNELS_MATMUL_PRODUCT_H

#include <weir/op.h>

typedef struct product_call {
    bool trans_a, trans_b;
    bool add;                           /* to what c is */
    int64_t count, m, n, k;
    int64_t a_step, b_step;             /* elements from one product's factor to the next one's; of c: m n */
    weir_dtype dtype, c_dtype;
    const void *a, *b;
    void *c;
    const float *bias;                  /* [n]; or NULL */
} product_call;

weir_status product_run(const weir_kernel_args *args, const product_call *call);

#endif
