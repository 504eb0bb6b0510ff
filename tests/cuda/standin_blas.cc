/* standin_blas.cc: see the header. */
#include "tests/cuda/standin_blas.h"

#include "tests/cuda/emulated.h"

#include <algorithm>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <vector>

/* What is behind the library's handles; `magic` goes with the object. */
struct thing {
    uint64_t magic;
};
struct layout : thing {
    cudaDataType_t type;
    int64_t rows, columns, ld, step;
    int32_t count;
};
struct product_desc : thing {
    cublasOperation_t trans[2];
    cublasLtEpilogue_t epilogue;
    void *bias; /* or where its gradient goes */
    void *aux;
    int64_t aux_ld, bias_step;
};
struct preference : thing {
    uint64_t room;
    uint32_t schemes, aligned[4];
};
/* In place of an algorithm: what it was chosen for. */
struct promise {
    uint64_t magic, room;
    uint32_t epilogue;
    uint16_t aligned[6]; /* of a, b, c, d, bias, aux */
};
static_assert(sizeof(promise) <= sizeof(cublasLtMatmulAlgo_t), "it fits there");

enum : uint64_t { LAYOUT = 0x6c61796f7574, PRODUCT = 0x70726f64756374, PREFERENCE = 0x70726566, PROMISE = 0x70726f6d697365 };

template <class T> static cublasStatus_t make(void *to, uint64_t magic, T **made)
{
    *made = new T();
    (*made)->magic = magic;
    memcpy(to, made, sizeof *made);
    standin_blas_made(1);
    return CUBLAS_STATUS_SUCCESS;
}

template <class T> static T *here(void *handle, uint64_t magic)
{
    T *at = (T *)handle;
    return at && at->magic == magic ? at : nullptr;
}

template <class T> static cublasStatus_t destroy(void *handle, uint64_t magic)
{
    T *at = here<T>(handle, magic);
    if (!at)
        return CUBLAS_STATUS_INVALID_VALUE;
    delete at;
    standin_blas_made(-1);
    return CUBLAS_STATUS_SUCCESS;
}

/* An attribute of exactly that size. */
static cublasStatus_t take(void *to, size_t bytes, const void *from, size_t given)
{
    if (bytes != given)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, from, bytes);
    return CUBLAS_STATUS_SUCCESS;
}
#define TAKE(member) take(&(member), sizeof(member), from, bytes)

/* Begins a call that may be made to fail. */
#define ENTER()                              \
    if (!standin_blas_call(__func__))        \
    return CUBLAS_STATUS_INTERNAL_ERROR

static cublasStatus_t create(cublasLtHandle_t *handle)
{
    static int one;
    ENTER();
    *handle = (cublasLtHandle_t)&one;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t desc_create(cublasLtMatmulDesc_t *to, cublasComputeType_t compute, cudaDataType_t scale)
{
    product_desc *made;
    ENTER();
    if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    make(to, PRODUCT, &made);
    made->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    made->trans[0] = made->trans[1] = CUBLAS_OP_N;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t desc_destroy(cublasLtMatmulDesc_t desc)
{
    return destroy<product_desc>(desc, PRODUCT);
}

static cublasStatus_t desc_set(cublasLtMatmulDesc_t handle, cublasLtMatmulDescAttributes_t attribute, const void *from,
                               size_t bytes)
{
    product_desc *desc = here<product_desc>(handle, PRODUCT);
    ENTER();
    if (!desc)
        return CUBLAS_STATUS_INVALID_VALUE;
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return TAKE(desc->trans[0]);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return TAKE(desc->trans[1]);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return TAKE(desc->epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return TAKE(desc->bias);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        return TAKE(desc->aux);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        return TAKE(desc->aux_ld);
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE:
        return TAKE(desc->bias_step);
    default:
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

static cublasStatus_t layout_create(cublasLtMatrixLayout_t *to, cudaDataType_t type, uint64_t rows, uint64_t columns,
                                    int64_t ld)
{
    layout *made;
    ENTER();
    if (!rows || !columns || ld < (int64_t)rows)
        return CUBLAS_STATUS_INVALID_VALUE;
    make(to, LAYOUT, &made);
    made->type = type;
    made->rows = (int64_t)rows;
    made->columns = (int64_t)columns;
    made->ld = ld;
    made->count = 1;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t layout_destroy(cublasLtMatrixLayout_t at)
{
    return destroy<layout>(at, LAYOUT);
}

static cublasStatus_t layout_set(cublasLtMatrixLayout_t handle, cublasLtMatrixLayoutAttribute_t attribute,
                                 const void *from, size_t bytes)
{
    layout *at = here<layout>(handle, LAYOUT);
    ENTER();
    if (!at)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)
        return TAKE(at->count);
    return attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET ? TAKE(at->step) : CUBLAS_STATUS_NOT_SUPPORTED;
}

static cublasStatus_t preference_create(cublasLtMatmulPreference_t *to)
{
    preference *made;
    ENTER();
    make(to, PREFERENCE, &made);
    made->schemes = CUBLASLT_REDUCTION_SCHEME_MASK;
    for (uint32_t &side : made->aligned)
        side = 256;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t preference_destroy(cublasLtMatmulPreference_t at)
{
    return destroy<preference>(at, PREFERENCE);
}

static cublasStatus_t preference_set(cublasLtMatmulPreference_t handle, cublasLtMatmulPreferenceAttributes_t attribute,
                                     const void *from, size_t bytes)
{
    preference *at = here<preference>(handle, PREFERENCE);
    ENTER();
    if (!at)
        return CUBLAS_STATUS_INVALID_VALUE;
    switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return TAKE(at->room);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return TAKE(at->schemes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
        return TAKE(at->aligned[0]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
        return TAKE(at->aligned[1]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
        return TAKE(at->aligned[2]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return TAKE(at->aligned[3]);
    default:
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

/* ---- a product ---- */

/* The operands of a call, as they were when it was made. */
struct work {
    layout a, b, c;
    product_desc desc;
    const void *from[3]; /* a, b, c */
    void *to;
    float alpha, beta;
};

static int64_t bytes_of(cudaDataType_t type)
{
    return type == CUDA_R_32F ? 4 : 2;
}

static double element(cudaDataType_t type, const void *from, int64_t at)
{
    if (type == CUDA_R_32F)
        return ((const float *)from)[at];
    return type == CUDA_R_16F ? (double)__half2float(((const __half *)from)[at])
                              : (double)__bfloat162float(((const __nv_bfloat16 *)from)[at]);
}

static void store(cudaDataType_t type, void *to, int64_t at, float x)
{
    if (type == CUDA_R_32F)
        ((float *)to)[at] = x;
    else if (type == CUDA_R_16F)
        ((__half *)to)[at] = __float2half_rn(x);
    else
        ((__nv_bfloat16 *)to)[at] = __float2bfloat16_rn(x);
}

static double factor(const layout &at, cublasOperation_t trans, const void *from, int64_t batch, int64_t row,
                     int64_t column)
{
    const int64_t r = trans == CUBLAS_OP_T ? column : row, c = trans == CUBLAS_OP_T ? row : column;
    return element(at.type, from, batch * at.step + c * at.ld + r);
}

/* Factor `which` of a batch, as rows of columns: of b's columns, of a's terms. */
static std::vector<double> factors(const work &w, int which, int64_t batch, int64_t rows, int64_t columns)
{
    std::vector<double> all((size_t)(rows * columns));
    const layout &at = which ? w.b : w.a;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            all[(size_t)(r * columns + c)] = which ? factor(at, w.desc.trans[1], w.from[1], batch, c, r)
                                                   : factor(at, w.desc.trans[0], w.from[0], batch, c, r);
    return all;
}

static bool has(const product_desc &desc, cublasLtEpilogue_t part)
{
    return (desc.epilogue & part) == part;
}

/* As the processor's: within 2^-11 of it (PTX ISA, tanh.approx.f32). */
static double tanh_near(double x)
{
    const double t = tanh(x);
    return t * (1 + ldexp(sin(1e4 * x), -11));
}

/* What the documentation names no other formula for: the one with tanh. */
static double gelu(double x)
{
    return 0.5 * x * (1 + tanh_near(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x)
{
    const double root = sqrt(2 / M_PI), t = tanh_near(root * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * root * (1 + 3 * 0.044715 * x * x);
}

/* The epilogue of one element, which is f32 until it is stored. */
static double finish(const work &w, int64_t batch, int64_t row, int64_t column, double sum)
{
    const int64_t at = column * w.desc.aux_ld + row;
    if (has(w.desc, CUBLASLT_EPILOGUE_BIAS))
        sum += element(w.c.type, w.desc.bias, batch * w.desc.bias_step + row);
    if (has(w.desc, CUBLASLT_EPILOGUE_GELU_AUX))
        store(w.c.type, w.desc.aux, at, (float)sum);
    if (has(w.desc, CUBLASLT_EPILOGUE_GELU))
        return gelu(sum);
    return w.desc.epilogue == CUBLASLT_EPILOGUE_DGELU ? sum * gelu_slope(element(w.c.type, w.desc.aux, at)) : sum;
}

static void product_store(const work &w, int64_t batch, int64_t row, int64_t column, double sum)
{
    const int64_t at = batch * w.c.step + column * w.c.ld + row;
    sum *= w.alpha;
    if (w.beta != 0)
        sum += w.beta * element(w.c.type, w.from[2], at);
    store(w.c.type, w.to, at, (float)finish(w, batch, row, column, sum));
}

/* The sums over the terms of the first factor: `a` has a row of rows for each. */
static void bias_gradient(const work &w, const std::vector<double> &a, int64_t inner)
{
    for (int64_t row = 0; row < w.c.rows; row++) {
        double sum = 0;
        for (int64_t k = 0; k < inner; k++)
            sum += a[(size_t)(k * w.c.rows + row)];
        store(w.c.type, w.desc.bias, row, (float)sum);
    }
}

static void product_work(void *data)
{
    const work *w = (const work *)data;
    const int64_t inner = w->desc.trans[0] == CUBLAS_OP_T ? w->a.rows : w->a.columns, rows = w->c.rows;
    std::vector<double> sum((size_t)rows);
    for (int64_t batch = 0; batch < w->c.count; batch++) {
        const std::vector<double> a = factors(*w, 0, batch, inner, rows), b = factors(*w, 1, batch, w->c.columns, inner);
        for (int64_t column = 0; column < w->c.columns; column++) {
            std::fill(sum.begin(), sum.end(), 0.0);
            for (int64_t k = 0; k < inner; k++)
                for (int64_t row = 0; row < rows; row++)
                    sum[(size_t)row] += a[(size_t)(k * rows + row)] * b[(size_t)(column * inner + k)];
            for (int64_t row = 0; row < rows; row++)
                product_store(*w, batch, row, column, sum[(size_t)row]);
        }
        if (w->desc.epilogue == CUBLASLT_EPILOGUE_BGRADA)
            bias_gradient(*w, a, inner);
    }
    delete w;
}

/* Whether the library has products of such matrices: sizes meet, and types are f32, or a half into itself or f32. */
static bool sizes_meet(const product_desc *desc, const layout *a, const layout *b, const layout *c)
{
    const bool ta = desc->trans[0] == CUBLAS_OP_T, tb = desc->trans[1] == CUBLAS_OP_T;
    return (ta ? a->columns : a->rows) == c->rows && (tb ? b->rows : b->columns) == c->columns &&
           (ta ? a->rows : a->columns) == (tb ? b->columns : b->rows) && a->count == c->count && b->count == c->count &&
           (c->count == 1 || c->step >= c->ld * c->columns) && a->type == b->type &&
           (c->type == a->type || c->type == CUDA_R_32F);
}

/* A product that every library has: with a bias it is one of no batch. */
static bool is_plain(const product_desc *product, const layout *c)
{
    return product->epilogue == CUBLASLT_EPILOGUE_DEFAULT || (product->epilogue == CUBLASLT_EPILOGUE_BIAS && c->count == 1);
}

/* Whether an epilogue has what it wants: the bias, or room for its gradient, of c's type; and aux, of c's type, whose
 * leading dimension is a multiple of 8 and not below c's rows, and whose address is aligned to 16 bytes. A batch has a bias for
 * each product, and none of the others. */
static bool epilogue_fits(const product_desc *desc, const layout *c)
{
    const cublasLtEpilogue_t is = desc->epilogue;
    const bool bias = has(*desc, CUBLASLT_EPILOGUE_BIAS) || is == CUBLASLT_EPILOGUE_BGRADA;
    const bool aux = has(*desc, CUBLASLT_EPILOGUE_GELU_AUX) || is == CUBLASLT_EPILOGUE_DGELU;
    const bool known = is == CUBLASLT_EPILOGUE_DEFAULT || is == CUBLASLT_EPILOGUE_BIAS || is == CUBLASLT_EPILOGUE_GELU ||
                       is == CUBLASLT_EPILOGUE_GELU_BIAS || is == CUBLASLT_EPILOGUE_GELU_AUX ||
                       is == CUBLASLT_EPILOGUE_GELU_AUX_BIAS || is == CUBLASLT_EPILOGUE_DGELU ||
                       is == CUBLASLT_EPILOGUE_BGRADA;
    return known && bias == (desc->bias != nullptr) && aux == (desc->aux != nullptr) &&
           (!bias || (uintptr_t)desc->bias % (uintptr_t)bytes_of(c->type) == 0) && (!aux || c->count == 1) && (!bias || c->count == 1 || (is == CUBLASLT_EPILOGUE_BIAS && desc->bias_step >= c->rows)) &&
           (!aux || ((uintptr_t)desc->aux % 16 == 0 && desc->aux_ld % 8 == 0 && desc->aux_ld >= c->rows));
}

/* The most that an address is known to be aligned to; of none, 1. */
static uint16_t alignment(const void *at)
{
    const uintptr_t least = (uintptr_t)at & -(uintptr_t)at;
    return (uint16_t)(!least ? 1 : least < 256 ? least : 256);
}

static cublasStatus_t heuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                cublasLtMatmulPreference_t handle, int wanted, cublasLtMatmulHeuristicResult_t *found,
                                int *count)
{
    const preference *preferred = here<preference>(handle, PREFERENCE);
    const layout *la = here<layout>(a, LAYOUT), *lb = here<layout>(b, LAYOUT), *lc = here<layout>(c, LAYOUT);
    const product_desc *product = here<product_desc>(desc, PRODUCT);
    promise made = {PROMISE, 0, 0, {}};
    ENTER();
    if (!preferred || !product || !la || !lb || !lc || c != d || wanted < 1 || !sizes_meet(product, la, lb, lc) ||
        !epilogue_fits(product, lc))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!standin_blas_has(is_plain(product, lc), product->epilogue == CUBLASLT_EPILOGUE_BGRADA))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    made.room = preferred->room;
    made.epilogue = (uint32_t)product->epilogue;
    for (int i = 0; i < 4; i++)
        made.aligned[i] = (uint16_t)preferred->aligned[i];
    made.aligned[4] = alignment(product->bias);
    made.aligned[5] = alignment(product->aux);
    memset(&found[0], 0, sizeof found[0]);
    memcpy(&found[0].algo, &made, sizeof made);
    *count = 1;
    return CUBLAS_STATUS_SUCCESS;
}

static bool keeps(const promise &made, const void *const at[6], const layout *const of[4], const product_desc *product,
                  const void *workspace, size_t room)
{
    bool right = made.magic == PROMISE && made.epilogue == (uint32_t)product->epilogue && room >= made.room &&
                 (uintptr_t)workspace % 256 == 0;
    for (int i = 0; i < 6; i++)
        right = right && (uintptr_t)at[i] % made.aligned[i] == 0;
    for (int i = 0; i < 4; i++)
        right = right && (uintptr_t)at[i] % (uintptr_t)bytes_of(of[i]->type) == 0;
    return right;
}

static cublasStatus_t matmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,
                             cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout,
                             const void *beta, const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                             cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo, void *workspace,
                             size_t room, cudaStream_t stream)
{
    const layout *la = here<layout>(a_layout, LAYOUT), *lb = here<layout>(b_layout, LAYOUT);
    const layout *lc = here<layout>(c_layout, LAYOUT);
    const product_desc *product = here<product_desc>(desc, PRODUCT);
    promise made;
    ENTER();
    memcpy(&made, algo, sizeof made);
    if (!la || !lb || !lc || !product || d_layout != c_layout || c != d || !sizes_meet(product, la, lb, lc) ||
        !epilogue_fits(product, lc))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!is_plain(product, lc) && standin_blas_refuses())
        return CUBLAS_STATUS_NOT_SUPPORTED;
    const void *const at[] = {a, b, c, d, product->bias, product->aux};
    const layout *const of[] = {la, lb, lc, lc};
    if (!keeps(made, at, of, product, workspace, room))
        return CUBLAS_STATUS_INVALID_VALUE;
    work *w = new work{*la, *lb, *lc, *product, {a, b, c}, d, *(const float *)alpha, *(const float *)beta};
    standin_launch((void *)stream, product_work, w);
    return cudaPeekAtLastError() ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}

static const blas_calls calls = {create,        desc_create,    desc_destroy,      desc_set,
                                 layout_create, layout_destroy, layout_set,        preference_create,
                                 preference_destroy, preference_set, heuristic,    matmul};

extern "C" void *blas_open(char *why, size_t bytes)
{
    const bool missing = standin_no_blas(NULL);
    if (missing)
        snprintf(why, bytes, "libcublasLt.so.13: cannot open shared object file: No such file or directory");
    return missing ? nullptr : (void *)&calls;
}

extern "C" void *blas_call(void *, const char *name)
{
    if (standin_no_blas(name))
        return nullptr;
#define X(call)                               \
    if (!strcmp(name, "cublasLt" #call))      \
        return (void *)calls.call;
    BLAS_CALLS(X)
#undef X
    return nullptr;
}
