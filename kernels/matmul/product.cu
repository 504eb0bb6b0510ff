/* product.cu: see the header. Descriptors live as long as a call; what is kept, as long as the process, is the library's
 * handle for each device, and for each problem what was chosen, in a table under a lock. It grows when a session is opened;
 * by calls alone where nobody prepared them (tests of single kernels). The library knows the problem alone when it chooses an
 * algorithm: it sees no address, but what the address is aligned to. */
#include "kernels/matmul/product.h"

#include "kernels/cuda/library.h"
#include "kernels/cuda/rows.h"
#include "kernels/matmul/sizes.h"

#include <pthread.h>
#include <stdlib.h>

enum { LISTS = 256, DEVICES = 64, FILL_THREADS = 256, ALIGNED_MOST = 64, AUX_ALIGNED = 16, AUX_COLUMNS = 8 };

/* The key of the choice; compared as bytes, so it has no gaps. */
struct problem {
    int64_t device, trans_a, trans_b, biased, epilogue, count, m, n, k, a_step, b_step, c_step, bias_step, dtype, c_dtype, room;
    int64_t aligned[5]; /* of a, b, c, the bias or its sums, and aux, in bytes; the last two 0: there is none */
};

struct choice {
    problem asked;
    cublasLtMatmulAlgo_t algo;
    bool way; /* the library has one */
    bool ran; /* it was enqueued once */
    choice *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static choice *choices[LISTS];         /* owned; by hash; under `lock`, as the others */
static cublasLtHandle_t handles[DEVICES];

/* The descriptors of a call; those that are not there are NULL. */
struct descriptors {
    const blas_calls *blas;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulPreference_t preference;
};

static const char *epilogue_text(const product_call *call)
{
    static const char *const texts[] = {"", " with gelu", " with gelu's gradient", " with the bias's gradient"};
    return texts[call->epilogue];
}

static weir_status blas_failed(const weir_kernel_args *args, const product_call *call, const char *what, int status)
{
    if (args->error_bytes)
        snprintf(args->error, args->error_bytes, "cuBLASLt %s of %lld products [%lld, %lld] [%lld, %lld]%s: status %d", what,
                 (long long)call->count, (long long)call->m, (long long)call->k, (long long)call->k, (long long)call->n,
                 epilogue_text(call), status);
    return WEIR_E_KERNEL;
}

static const char *dtype_text(weir_dtype dtype)
{
    return dtype == WEIR_F32 ? "f32" : dtype == WEIR_F16 ? "f16" : "bf16";
}

static weir_status no_way(const weir_kernel_args *args, const product_call *call, int64_t room)
{
    if (args->error_bytes)
        snprintf(args->error, args->error_bytes,
                 "cuBLASLt has no way for %lld products [%lld, %lld] [%lld, %lld] of %s into %s with a workspace of %lld bytes",
                 (long long)call->count, (long long)call->m, (long long)call->k, (long long)call->k, (long long)call->n,
                 dtype_text(call->dtype), dtype_text(call->c_dtype), (long long)room);
    return WEIR_E_UNSUPPORTED;
}

static cudaDataType_t blas_type(weir_dtype dtype)
{
    return dtype == WEIR_F32 ? CUDA_R_32F : dtype == WEIR_F16 ? CUDA_R_16F : CUDA_R_16BF;
}

/* NULL: 0. */
static int64_t aligned(const void *at)
{
    const int64_t least = (int64_t)((uintptr_t)at & -(uintptr_t)at);
    return least < ALIGNED_MOST ? least : (int64_t)ALIGNED_MOST;
}

/* As the library sees the biases: in the workspace, where they are narrowed. */
static int64_t bias_step(const product_call *call)
{
    return call->c_dtype == WEIR_F32 ? call->bias_step : (int64_t)(product_bias_bytes(call->n) / sizeof(uint16_t));
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

static cublasLtEpilogue_t blas_epilogue(const product_call *call)
{
    switch (call->epilogue) {
    case PRODUCT_GELU:
        if (call->aux)
            return call->bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
        return call->bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    case PRODUCT_GELU_GRAD:
        return CUBLASLT_EPILOGUE_DGELU;
    case PRODUCT_BIAS_GRAD:
        return CUBLASLT_EPILOGUE_BGRADA; /* b is the first factor for the library */
    default:
        return call->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    }
}

template <class T> static cublasStatus_t set(const descriptors *d, cublasLtMatmulDescAttributes_t attribute, T value)
{
    return d->blas->MatmulDescSetAttribute(d->product, attribute, &value, sizeof value);
}

/* The operands that the epilogue reads and writes besides. */
static cublasStatus_t operands(const descriptors *d, const product_call *call, const void *bias, const void *aux)
{
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    if (bias)
        status = set(d, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    if (!status && aux)
        status = set(d, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux);
    if (!status && aux)
        status = set(d, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, call->n);
    return status;
}

static cublasStatus_t product_desc(descriptors *d, const product_call *call)
{
    cublasStatus_t status = d->blas->MatmulDescCreate(&d->product, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (!status)
        status = set(d, CUBLASLT_MATMUL_DESC_TRANSA, call->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (!status)
        status = set(d, CUBLASLT_MATMUL_DESC_TRANSB, call->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (!status && blas_epilogue(call) != CUBLASLT_EPILOGUE_DEFAULT)
        status = set(d, CUBLASLT_MATMUL_DESC_EPILOGUE, blas_epilogue(call));
    if (!status && call->bias && call->count > 1)
        status = set(d, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, bias_step(call));
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
        status = layout_of(d->blas, &d->c, call->c_dtype, m, n, call->count, call->c_step);
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

/* An address in the place of one that is aligned so. */
static const void *stands_for(int64_t aligned)
{
    return (const void *)(uintptr_t)aligned;
}

/* *way is false when the library says that it has none. */
static cublasStatus_t ask(descriptors *d, cublasLtHandle_t handle, const product_call *call, const problem *asked,
                          cublasLtMatmulAlgo_t *algo, bool *way)
{
    cublasLtMatmulHeuristicResult_t found[1] = {};
    int count = 0;
    cublasStatus_t status = preference(d, asked);
    if (!status)
        status = operands(d, call, stands_for(asked->aligned[3]), stands_for(asked->aligned[4]));
    if (!status)
        status = d->blas->MatmulAlgoGetHeuristic(handle, d->product, d->b, d->a, d->c, d->c, d->preference, 1, found,
                                                 &count);
    *algo = found[0].algo;
    *way = !status && count && found[0].state == CUBLAS_STATUS_SUCCESS;
    return status == CUBLAS_STATUS_NOT_SUPPORTED ? CUBLAS_STATUS_SUCCESS : status;
}

static choice **list_of(const problem *asked)
{
    const int64_t *word = (const int64_t *)asked;
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof *asked / sizeof *word; i++)
        hash = (hash ^ (uint64_t)word[i]) * UINT64_C(0x9e3779b97f4a7c15);
    return &choices[(hash >> 32) % LISTS];
}

static choice *add(choice **list, const choice *made)
{
    choice *const kept = (choice *)malloc(sizeof *kept);
    if (!kept)
        return nullptr;
    *kept = *made;
    kept->next = *list;
    *list = kept;
    return kept;
}

/* Under the lock. An error is not kept: it may be gone the next time. */
static cublasStatus_t chosen(descriptors *d, const product_call *call, const problem *asked, choice **is)
{
    choice **const list = list_of(asked);
    choice made = {*asked, {}, false, false, nullptr};
    for (*is = *list; *is; *is = (*is)->next)
        if (!memcmp(&(*is)->asked, asked, sizeof *asked))
            return CUBLAS_STATUS_SUCCESS;
    cublasStatus_t status = handles[asked->device] ? CUBLAS_STATUS_SUCCESS : d->blas->Create(&handles[asked->device]);
    if (!status)
        status = ask(d, handles[asked->device], call, asked, &made.algo, &made.way);
    if (!status && !(*is = add(list, &made)))
        status = CUBLAS_STATUS_ALLOC_FAILED;
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

/* Rounds the biases of `count` products, [n] each. */
template <class T> KERNEL(narrow_bias)(const float *bias, int64_t step, int64_t count, int64_t n, T *to, int64_t to_step)
{
    for (int64_t i = THREAD; i < count * n; i += THREADS)
        real_store(to + i / n * to_step + i % n, bias[i / n * step + i % n]);
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
    const size_t bias = call->bias ? (size_t)call->count * product_bias_bytes(call->n) : 0;
    return {first, first + bias, (int64_t)(args->workspace_bytes - PRODUCT_ALIGNMENT - bias)};
}

static const void *bias_of(const weir_kernel_args *args, const product_call *call, void *room)
{
    if (!call->bias || call->c_dtype == WEIR_F32)
        return call->bias;
    WITH_REAL(call->c_dtype, T,
              LAUNCH((narrow_bias<T>), fill_blocks(call->count * call->n), FILL_THREADS, args->queue, call->bias, call->bias_step,
                     call->count, call->n, (T *)room, bias_step(call)));
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

static bool has_terms(const product_call *call)
{
    return call->count && call->m && call->n && call->k;
}

/* Whether the library is asked for all at once: not for sums that would keep it from splitting terms; the kernel that
 * makes them reads b once more. How many digits its tanh has is not documented, and that of the
 * processor has 11 bits: enough for a half, and not for f32. */
static bool may_join(const product_call *call)
{
    const bool aux = !call->aux || (call->n % AUX_COLUMNS == 0 && aligned(call->aux) >= AUX_ALIGNED);
    const bool exact = call->epilogue == PRODUCT_BIAS_GRAD || call->c_dtype != WEIR_F32;
    const bool split = call->epilogue == PRODUCT_BIAS_GRAD && product_wants_split(call->m, call->n, call->k);
    return has_terms(call) && (call->epilogue == PRODUCT_PLAIN || (call->count == 1 && !call->add && aux && exact && !split));
}

static problem problem_of(const product_call *call, int device, const rooms *room)
{
    const bool narrowed = call->bias && call->c_dtype != WEIR_F32;
    const void *const beside = narrowed ? (const void *)room->bias : call->sums ? call->sums : call->bias;
    return {device, call->trans_a, call->trans_b, call->bias != nullptr, call->epilogue, call->count, call->m,
            call->n, call->k, call->a_step, call->b_step, call->c_step, call->bias ? bias_step(call) : 0, call->dtype, call->c_dtype, room->bytes,
            {aligned(call->a), aligned(call->b), aligned(call->c), aligned(beside), aligned(call->aux)}};
}

/* Also tells whether the library has a way, and whether someone had it before, and so has run it. */
static cublasStatus_t choose(descriptors *d, const product_call *call, const problem *asked, choice **is, bool *ran,
                             bool *way)
{
    pthread_mutex_lock(&lock);
    const cublasStatus_t status = chosen(d, call, asked, is);
    *way = !status && (*is)->way;
    *ran = !status && (*is)->ran;
    if (!status)
        (*is)->ran = true;
    pthread_mutex_unlock(&lock);
    return status;
}

/* The library may refuse what it said it has a way for. An epilogue, or a batch, is then made apart: the choice becomes that
 * there is no way, when a session opens. */
static bool refused(const product_call *call, cublasStatus_t status, choice *is)
{
    if (!call->apart || (status != CUBLAS_STATUS_NOT_SUPPORTED && status != CUBLAS_STATUS_INVALID_VALUE))
        return false;
    pthread_mutex_lock(&lock);
    is->way = false;
    pthread_mutex_unlock(&lock);
    return true;
}

/* *way becomes false when the library refuses what may be made apart. */
static weir_status multiply(const weir_kernel_args *args, const product_call *call, descriptors *d, choice *is,
                            const rooms *room, bool *way)
{
    const float one = 1, beta = call->add ? 1 : 0;
    const void *const beside = call->sums ? call->sums : bias_of(args, call, room->bias);
    cublasStatus_t status = operands(d, call, beside, call->aux);
    if (!status)
        status = d->blas->Matmul(handles[is->asked.device], d->product, &one, call->b, d->b, call->a, d->a, &beta, call->c,
                                 d->c, call->c, d->c, &is->algo, room->rest, (size_t)room->bytes,
                                 (cudaStream_t)args->queue);
    const weir_status told = launched(args); /* what the driver says of it is clearer than the library's number */
    if (status && !told && refused(call, status, is)) {
        *way = false;
        return WEIR_OK;
    }
    return status && !told ? blas_failed(args, call, "does not start", status) : told;
}

/* By the library as it is described, which sets *way to whether it has one. `once`: not if that has run before. */
static weir_status described(const weir_kernel_args *args, const product_call *call, descriptors *d, bool once, bool *way)
{
    const rooms room = rooms_of(args, call);
    const int device = device_here();
    choice *is = nullptr;
    bool ran = false;
    if (device < 0)
        return blas_failed(args, call, "finds no device for", 0);
    const problem asked = problem_of(call, device, &room);
    cublasStatus_t status = product_desc(d, call);
    if (!status)
        status = layouts(d, call);
    if (status)
        return blas_failed(args, call, "takes no description", status);
    status = choose(d, call, &asked, &is, &ran, way);
    if (status)
        return blas_failed(args, call, "finds no way for", status);
    return *way && !(once && ran) ? multiply(args, call, d, is, &room, way) : WEIR_OK;
}

static weir_status by_library(const weir_kernel_args *args, const product_call *call, bool once, bool *way)
{
    descriptors d = {};
    if (!(d.blas = blas_library(args)))
        return WEIR_E_UNSUPPORTED;
    const weir_status status = described(args, call, &d, once, way);
    descriptors_free(&d);
    return status;
}

static weir_status plain(const weir_kernel_args *args, const product_call *call, bool once)
{
    bool way = false;
    if (!has_terms(call))
        return nothing(args, call);
    const weir_status status = by_library(args, call, once, &way);
    return status || way ? status : no_way(args, call, rooms_of(args, call).bytes);
}

/* The product, and then what its epilogue would have made; or each of a batch by itself. */
static weir_status in_two(const weir_kernel_args *args, const product_call *call, bool once)
{
    product_call first = *call;
    if (call->epilogue == PRODUCT_PLAIN)
        return call->apart(args);
    first.epilogue = PRODUCT_PLAIN;
    first.apart = nullptr;
    first.c = call->epilogue == PRODUCT_GELU && call->aux ? call->aux : call->c;
    first.aux = nullptr;
    first.sums = nullptr;
    const weir_status status = plain(args, &first, once);
    return status ? status : call->apart(args);
}

static const char choice_name[] = "WEIR_CUDA_EPILOGUES";
static const char *choice_is; /* NULL: the environment says nothing */
static pthread_once_t choice_once = PTHREAD_ONCE_INIT;

static void read_choice()
{
    const char *const is = getenv(choice_name);
    choice_is = is && *is ? is : nullptr;
}

/* Whether every epilogue is left to kernels of its own, and no products are a batch, so that what one saves can be measured. */
static weir_status choose_apart(const weir_kernel_args *args, bool *apart)
{
    pthread_once(&choice_once, read_choice);
    *apart = choice_is && !strcmp(choice_is, "apart");
    if (!choice_is || *apart)
        return WEIR_OK;
    if (args->error_bytes)
        snprintf(args->error, args->error_bytes, "%s is \"%.40s\"; it may be apart", choice_name, choice_is);
    return WEIR_E_ARGUMENT;
}

static weir_status make(const weir_kernel_args *args, const product_call *call, bool once)
{
    bool way = false, apart = false;
    if (!call->apart)
        return plain(args, call, once);
    weir_status status = choose_apart(args, &apart);
    if (status)
        return status;
    status = may_join(call) && !apart ? by_library(args, call, once, &way) : WEIR_OK;
    return status || way ? status : in_two(args, call, once);
}

weir_status product_run(const weir_kernel_args *args, const product_call *call)
{
    return make(args, call, false);
}

weir_status product_prepare(const weir_kernel_args *args, const product_call *call)
{
    return make(args, call, true);
}
