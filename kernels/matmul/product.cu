/* product.cu: see the header. Descriptors live as long as a call; what is kept is the library's handle for each device,
 * and the algorithm that it chose for each problem: a list that grows to PROBLEMS at most, under a lock. What comes later is
 * asked for each time, with the same answer. */
#include "kernels/matmul/product.h"

#include "kernels/cuda/library.h"
#include "kernels/cuda/rows.h"
#include "kernels/matmul/sizes.h"

#include <pthread.h>

enum { PROBLEMS = 1024, DEVICES = 64, FILL_THREADS = 256, ALIGNED_MOST = 16 };

/* What the choice depends on; compared as bytes, so it has no gaps. */
struct problem {
    int64_t device, trans_a, trans_b, biased, count, m, n, k, a_step, b_step, dtype, c_dtype, room;
    int64_t aligned[3]; /* of a, b and c, in bytes */
};

struct choice {
    problem asked;
    cublasLtMatmulAlgo_t algo;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static choice choices[PROBLEMS];       /* under `lock`, as the others */
static int choice_count;
static cublasLtHandle_t handles[DEVICES];

/* The descriptors of a call; those that are not there are NULL. */
struct descriptors {
    const blas_calls *blas;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulPreference_t preference;
};

static weir_status blas_failed(const weir_kernel_args *args, const product_call *call, const char *what, int status)
{
    if (args->error_bytes)
        snprintf(args->error, args->error_bytes, "cuBLASLt %s of %lld products [%lld, %lld] [%lld, %lld]: status %d", what,
                 (long long)call->count, (long long)call->m, (long long)call->k, (long long)call->k, (long long)call->n,
                 status);
    return WEIR_E_KERNEL;
}

static cudaDataType_t blas_type(weir_dtype dtype)
{
    return dtype == WEIR_F32 ? CUDA_R_32F : dtype == WEIR_F16 ? CUDA_R_16F : CUDA_R_16BF;
}

static int64_t aligned(const void *at)
{
    const int64_t least = (int64_t)((uintptr_t)at & -(uintptr_t)at);
    return least < ALIGNED_MOST ? least : (int64_t)ALIGNED_MOST;
}

/* ---- descriptors ---- */

/* A matrix of so many rows of so many columns, row after row. */
static cublasStatus_t layout_of(const blas_calls *blas, cublasLtMatrixLayout_t *layout, weir_dtype dtype, int64_t rows,
                                int64_t columns, int64_t batch, int64_t step)
{
    const int32_t count = (int32_t)batch;
    cublasStatus_t status = blas->MatrixLayoutCreate(layout, blas_type(dtype), (uint64_t)columns, (uint64_t)rows, columns);
    if (status || batch == 1)
        return status;
    status = blas->MatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count);
    if (!status)
        status = blas->MatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, sizeof step);
    return status;
}

static cublasStatus_t product_desc(descriptors *d, const product_call *call, const void *bias)
{
    const cublasOperation_t first = call->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t second = call->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    const blas_calls *blas = d->blas;
    cublasStatus_t status = blas->MatmulDescCreate(&d->product, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (!status)
        status = blas->MatmulDescSetAttribute(d->product, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first);
    if (!status)
        status = blas->MatmulDescSetAttribute(d->product, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second);
    if (!status && bias)
        status = blas->MatmulDescSetAttribute(d->product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    if (!status && bias)
        status = blas->MatmulDescSetAttribute(d->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
    return status;
}

static cublasStatus_t layouts(descriptors *d, const product_call *call)
{
    const bool ta = call->trans_a, tb = call->trans_b;
    const int64_t m = call->m, n = call->n, k = call->k;
    cublasStatus_t status = layout_of(d->blas, &d->a, call->dtype, ta ? k : m, ta ? m : k, call->count, call->a_step);
    if (!status)
        status = layout_of(d->blas, &d->b, call->dtype, tb ? n : k, tb ? k : n, call->count, call->b_step);
    if (!status)
        status = layout_of(d->blas, &d->c, call->c_dtype, m, n, call->count, m * n);
    return status;
}

/* a and b change places for the library. */
static cublasStatus_t preference(descriptors *d, const problem *asked)
{
    const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, sides[] = {(uint32_t)asked->aligned[1],
                             (uint32_t)asked->aligned[0], (uint32_t)asked->aligned[2], (uint32_t)asked->aligned[2]};
    const uint64_t room = (uint64_t)asked->room;
    static const cublasLtMatmulPreferenceAttributes_t side[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const blas_calls *blas = d->blas;
    cublasStatus_t status = blas->MatmulPreferenceCreate(&d->preference);
    if (!status)
        status = blas->MatmulPreferenceSetAttribute(d->preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room,
                                                    sizeof room);
    if (!status)
        status = blas->MatmulPreferenceSetAttribute(d->preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes,
                                                    sizeof schemes);
    for (int i = 0; i < 4 && !status; i++)
        status = blas->MatmulPreferenceSetAttribute(d->preference, side[i], &sides[i], sizeof sides[i]);
    return status;
}

static void descriptors_free(descriptors *d)
{
    if (d->preference)
        d->blas->MatmulPreferenceDestroy(d->preference);
    if (d->c)
        d->blas->MatrixLayoutDestroy(d->c);
    if (d->b)
        d->blas->MatrixLayoutDestroy(d->b);
    if (d->a)
        d->blas->MatrixLayoutDestroy(d->a);
    if (d->product)
        d->blas->MatmulDescDestroy(d->product);
}

/* ---- the choice ---- */

static cublasStatus_t ask(descriptors *d, cublasLtHandle_t handle, const problem *asked, cublasLtMatmulAlgo_t *algo)
{
    cublasLtMatmulHeuristicResult_t found[1] = {};
    int count = 0;
    cublasStatus_t status = preference(d, asked);
    if (!status)
        status = d->blas->MatmulAlgoGetHeuristic(handle, d->product, d->b, d->a, d->c, d->c, d->preference, 1, found,
                                                 &count);
    if (!status && (!count || found[0].state))
        status = count ? found[0].state : CUBLAS_STATUS_NOT_SUPPORTED;
    *algo = found[0].algo;
    return status;
}

/* Under the lock. */
static cublasStatus_t chosen(descriptors *d, const problem *asked, cublasLtHandle_t *handle, cublasLtMatmulAlgo_t *algo)
{
    cublasStatus_t status = handles[asked->device] ? CUBLAS_STATUS_SUCCESS : d->blas->Create(&handles[asked->device]);
    *handle = handles[asked->device];
    if (status)
        return status;
    for (int i = 0; i < choice_count; i++)
        if (!memcmp(&choices[i].asked, asked, sizeof *asked)) {
            *algo = choices[i].algo;
            return status;
        }
    status = ask(d, *handle, asked, algo);
    if (!status && choice_count < PROBLEMS)
        choices[choice_count++] = {*asked, *algo};
    return status;
}

/* The device that this thread has chosen; -1: there is none, or there are too many. */
static int device_here()
{
    int device = 0;
#ifndef WEIR_EMULATED
    if (cudaGetDevice(&device) != cudaSuccess)
        return -1;
#endif
    return device < DEVICES ? device : -1;
}

/* ---- the call ---- */

KERNEL(narrow_bias_f16)(const float *bias, int64_t count, __half *to)
{
    for (int64_t i = THREAD; i < count; i += THREADS)
        real_store(to + i, bias[i]);
}

KERNEL(narrow_bias_bf16)(const float *bias, int64_t count, __nv_bfloat16 *to)
{
    for (int64_t i = THREAD; i < count; i += THREADS)
        real_store(to + i, bias[i]);
}

/* A product of no terms. */
template <class T> KERNEL(product_of_nothing)(T *c, const float *bias, int64_t count, int64_t n)
{
    for (int64_t i = THREAD; i < count; i += THREADS)
        real_store(c + i, bias ? bias[i % n] : 0);
}

static int64_t fill_blocks(int64_t count)
{
    const int64_t blocks = (count + FILL_THREADS - 1) / FILL_THREADS;
    return blocks < 1024 ? blocks : 1024;
}

/* The workspace from its first byte that is aligned on; behind it, the bias as the library wants it. */
struct rooms {
    char *bias, *rest;
    int64_t bytes;
};

static rooms rooms_of(const weir_kernel_args *args, const product_call *call)
{
    const uintptr_t up = (uintptr_t)PRODUCT_ALIGNMENT - 1;
    char *const first = (char *)(((uintptr_t)args->workspace + up) & ~up);
    const size_t bias = call->bias ? ((size_t)call->n * sizeof(float) + up) & ~up : 0;
    return {first, first + bias, (int64_t)(args->workspace_bytes - PRODUCT_ALIGNMENT - bias)};
}

static const void *bias_of(const weir_kernel_args *args, const product_call *call, void *room)
{
    if (!call->bias || call->c_dtype == WEIR_F32)
        return call->bias;
    if (call->c_dtype == WEIR_F16)
        LAUNCH(narrow_bias_f16, fill_blocks(call->n), FILL_THREADS, args->queue, call->bias, call->n, (__half *)room);
    else
        LAUNCH(narrow_bias_bf16, fill_blocks(call->n), FILL_THREADS, args->queue, call->bias, call->n,
               (__nv_bfloat16 *)room);
    return room;
}

static weir_status nothing(const weir_kernel_args *args, const product_call *call)
{
    const int64_t count = call->count * call->m * call->n;
    if (!call->add)
        WITH_REAL(call->c_dtype, T,
                  LAUNCH((product_of_nothing<T>), fill_blocks(count), FILL_THREADS, args->queue, (T *)call->c, call->bias,
                         count, call->n));
    return launched(args);
}

static weir_status multiply(const weir_kernel_args *args, const product_call *call, descriptors *d, const problem *asked,
                            const rooms *room)
{
    const float one = 1, beta = call->add ? 1 : 0;
    cublasLtMatmulAlgo_t algo;
    cublasLtHandle_t handle;
    pthread_mutex_lock(&lock);
    cublasStatus_t status = chosen(d, asked, &handle, &algo);
    pthread_mutex_unlock(&lock);
    if (status)
        return blas_failed(args, call, "has no way for", status);
    status = d->blas->Matmul(handle, d->product, &one, call->b, d->b, call->a, d->a, &beta, call->c, d->c, call->c, d->c,
                             &algo, room->rest, (size_t)asked->room, (cudaStream_t)args->queue);
    const weir_status told = launched(args); /* what the driver says of it is clearer than the library's number */
    return status && !told ? blas_failed(args, call, "does not start", status) : told;
}

weir_status product_run(const weir_kernel_args *args, const product_call *call)
{
    if (!call->count || !call->m || !call->n || !call->k)
        return nothing(args, call);
    descriptors d = {};
    const rooms room = rooms_of(args, call);
    const int device = device_here();
    const problem asked = {device, call->trans_a, call->trans_b, call->bias != nullptr, call->count, call->m, call->n,
                           call->k, call->a_step, call->b_step, call->dtype, call->c_dtype, room.bytes,
                           {aligned(call->a), aligned(call->b), aligned(call->c)}};
    if (device < 0)
        return blas_failed(args, call, "finds no device for", 0);
    if (!(d.blas = blas_library(args)))
        return WEIR_E_UNSUPPORTED;
    cublasStatus_t status = product_desc(&d, call, bias_of(args, call, room.bias));
    if (!status)
        status = layouts(&d, call);
    const weir_status result = status ? blas_failed(args, call, "takes no description", status)
                                      : multiply(args, call, &d, &asked, &room);
    descriptors_free(&d);
    return result;
}
