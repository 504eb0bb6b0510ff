/* kernels/matmul/product.h: one call of cuBLASLt: count products op(a) op(b) -> c of matrices without gaps, row after row.
 *
 *     a [m, k] or, transposed, [k, m]      b [k, n] or [n, k]      c [m, n], f32 or of the factors' dtype
 *
 * The library knows columns: what lies row after row is to it the transposed matrix, so it is asked for c^T = op(b)^T
 * op(a)^T. Sums are f32, and f32 factors are multiplied as such (no tf32). Ways whose sums have no fixed order are left
 * out.
 *
 * Which of its ways the library takes is asked once for each distinct problem: sizes, steps, dtypes, room, and how
 * addresses are aligned. So a call has the same bits each time. A session asks when it is opened (product_prepare()), and
 * has the way that was chosen run once then, since its code is loaded by the first who runs it.
 *
 * The bias joins in the product. Where the result is half, the library wants it in that dtype: it is rounded to it, into
 * the workspace.
 *
 *     PRODUCT_GELU        c = gelu(p), aux = p     p: the product with its bias. aux may be NULL
 *     PRODUCT_GELU_GRAD   c = gelu'(aux) p
 *     PRODUCT_BIAS_GRAD   c = p, sums = the sums over the rows of b
 *
 * These are epilogues of the library's where it has a way for them: it wants rows of aux that are a multiple of 8 elements,
 * 16-byte aligned. PRODUCT_BIAS_GRAD is none of a small product of many terms, which the library splits only without it.
 * Elsewhere the product is made without, and `apart` makes the rest. Which of both is the same for each call, too. Any
 * thread; enqueues and returns.
 */
#ifndef KERNELS_MATMUL_PRODUCT_H
#define KERNELS_MATMUL_PRODUCT_H

#include <weir/op.h>

enum product_epilogue { PRODUCT_PLAIN, PRODUCT_GELU, PRODUCT_GELU_GRAD, PRODUCT_BIAS_GRAD };

typedef struct product_call {
    bool trans_a, trans_b;
    bool add;                           /* to what c is */
    int64_t count, m, n, k;
    int64_t a_step, b_step, c_step;     /* elements from one product's matrix to the next one's */
    weir_dtype dtype, c_dtype;
    const void *a, *b;
    void *c;
    const float *bias;                  /* [n] of the first product; or NULL */
    int64_t bias_step;
    /* Makes it by other calls where the library has no way for all at once; NULL: that is an error. With an epilogue, p is in
     * aux then, if PRODUCT_GELU has it, else in c; else nothing was made. */
    weir_status (*apart)(const weir_kernel_args *args);
    /* with an epilogue, of which there is one product, that does not add */
    product_epilogue epilogue;
    void *aux;                          /* [m, n], of c's dtype */
    float *sums;                        /* [n]; then c is f32 */
} product_call;

weir_status product_run(const weir_kernel_args *args, const product_call *call);

/* Chooses how this call is made, and makes it once if that way has never run: nothing of it is left to be loaded. */
weir_status product_prepare(const weir_kernel_args *args, const product_call *call);

#endif
