/* kernels/matmul/factors.h: what products share: the dtypes of their two factors, and how those of halves are called.
 *
 * in[0] and in[1] are f32, f16 or bf16, both the same. Header-only; any thread.
 */
#ifndef KERNELS_MATMUL_FACTORS_H
#define KERNELS_MATMUL_FACTORS_H

#include "kernels/matmul/gemm.h"
#include "kernels/matmul/half.h"
#include "kernels/common/view.h"

static inline bool factors_are_real(const weir_op_args *args, char *error, size_t error_bytes)
{
    for (int i = 0; i < 2; i++)
        if (!weir_dtype_real(args->in[i].dtype))
            return REFUSE("input %d is %s, not f32, f16 or bf16", i, weir_dtype_name(args->in[i].dtype));
    return args->in[0].dtype == args->in[1].dtype ||
           REFUSE("dtypes %s and %s differ", weir_dtype_name(args->in[0].dtype), weir_dtype_name(args->in[1].dtype));
}

/* Scratch bytes of a product [m, k] [k, n] of these factors. */
static inline size_t factors_workspace(const weir_op_args *args, bool trans_a, bool trans_b, int64_t m, int64_t n,
                                       int64_t k)
{
    return args->in[0].dtype == WEIR_F32 ? gemm_workspace(trans_a, trans_b, m, n, k) : gemm_half_workspace(n, k);
}

/* op(in[0]) op(in[1]) of halves into out[0], all without gaps. */
static inline half_product factors_product(const weir_kernel_args *args, bool trans_a, bool trans_b, int64_t m,
                                           int64_t n, int64_t k)
{
    return (half_product){
        .trans_a = trans_a, .trans_b = trans_b, .m = m, .n = n, .k = k, .dtype = args->in[0].dtype,
        .a = view_half(&args->in[0]), .b = view_half(&args->in[1]), .lda = trans_a ? m : k, .ldb = trans_b ? k : n,
        .c_dtype = args->out[0].dtype, .c = args->out[0].data, .ldc = n, .workspace = args->workspace,
    };
}

#endif
