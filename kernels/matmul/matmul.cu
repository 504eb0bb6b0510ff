/* kernels/matmul/matmul.cu: matmul, linear and linear_dw on a GPU, alone, with what comes behind them, and several at once, on
 * top of product_run(); matmul.c, linear.c, epilogue.c and many.c have their rules. linear_by_row and linear_db have kernels of their own.
 *
 * linear_by_row gives a row the same bits whatever rows are beside it, which a library's product does not promise: each
 * element is summed up by WAYS threads, which take the terms in turn, and those sums are added in order.
 */
#include "kernels/cuda/list.h"
#include "kernels/cuda/near.h"
#include "kernels/matmul/product.h"
#include "kernels/matmul/sizes.h"

static product_call factors_call(const weir_kernel_args *args, int64_t m, int64_t n, int64_t k)
{
    product_call call = {};
    call.count = 1;
    call.m = m;
    call.n = n;
    call.k = k;
    call.c_step = m * n;
    call.dtype = args->in[0].dtype;
    call.c_dtype = args->out[0].dtype;
    call.a = args->in[0].data;
    call.b = args->in[1].data;
    call.c = args->out[0].data;
    return call;
}

static nest matmul_batches(const weir_kernel_args *args)
{
    return batches_of(&args->in[0].shape, &args->in[1].shape, (const matmul_attrs *)args->attrs);
}

/* The innermost run of the batches, whose matrices lie at equal distances: 0 where a matrix is repeated. */
static product_call matmul_call(const weir_kernel_args *args)
{
    const matmul_attrs *attrs = (const matmul_attrs *)args->attrs;
    const gemms g = gemms_of(&args->in[0].shape, &args->in[1].shape, attrs);
    const nest batches = matmul_batches(args);
    product_call call = factors_call(args, g.m, g.n, g.k);
    call.trans_a = attrs->trans_a;
    call.trans_b = attrs->trans_b;
    call.count = nest_inner(&batches);
    call.a_step = batches.stride[0][batches.rank - 1] * g.m * g.k;
    call.b_step = batches.stride[1][batches.rank - 1] * g.k * g.n;
    return call;
}

/* Each run of the batches. */
static weir_status matmul_each(const weir_kernel_args *args, weir_status (*each)(const weir_kernel_args *, const product_call *))
{
    const product_call first = matmul_call(args);
    const nest batches = matmul_batches(args);
    const int64_t factor = first.dtype == WEIR_F32 ? 4 : 2, result = first.c_dtype == WEIR_F32 ? 4 : 2;
    weir_status status = WEIR_OK;
    nest_pos pos = {};
    for (int64_t i = 0; i < nest_rows(&batches) && !status; i++, nest_step(&batches, &pos)) {
        product_call call = first;
        call.a = (const char *)first.a + pos.at[0] * first.m * first.k * factor;
        call.b = (const char *)first.b + pos.at[1] * first.k * first.n * factor;
        call.c = (char *)first.c + pos.at[2] * first.m * first.n * result;
        status = each(args, &call);
    }
    return status;
}

static const float *bias_given(const weir_kernel_args *args)
{
    return args->in_count > 2 ? view_f32(&args->in[2]) : nullptr;
}

static product_call linear_call(const weir_kernel_args *args)
{
    const weir_shape *w = &args->in[1].shape;
    product_call call = factors_call(args, shape_rows(&args->out[0].shape), w->dim[1], w->dim[0]);
    call.bias = bias_given(args);
    return call;
}

static product_call linear_dw_call(const weir_kernel_args *args)
{
    const weir_shape *x = &args->in[0].shape, *dy = &args->in[1].shape;
    product_call call = factors_call(args, shape_last(x), shape_last(dy), shape_rows(x));
    call.trans_a = true;
    call.add = args->accumulate;
    return call;
}

/* ---- with what comes behind; where the library has no way for both, by the other op's kernel ---- */

extern "C" weir_status op_gelu_cuda(const weir_kernel_args *args);
extern "C" weir_status op_gelu_grad_cuda(const weir_kernel_args *args);
extern "C" weir_status op_linear_db_cuda(const weir_kernel_args *args);

static weir_status call_other(const weir_kernel_args *args, weir_kernel_fn other, const weir_view *in, int in_count,
                              const weir_view *out)
{
    weir_kernel_args call = *args;
    call.in = in;
    call.in_count = in_count;
    call.out = out;
    call.out_count = 1;
    return other(&call);
}

static weir_status gelu_apart(const weir_kernel_args *args)
{
    return call_other(args, op_gelu_cuda, &args->out[args->out_count - 1], 1, &args->out[0]);
}

static product_call linear_gelu_call(const weir_kernel_args *args)
{
    product_call call = linear_call(args);
    call.epilogue = PRODUCT_GELU;
    call.aux = args->out_count > 1 ? args->out[1].data : nullptr;
    call.apart = gelu_apart;
    return call;
}

static weir_status gelu_grad_apart(const weir_kernel_args *args)
{
    const weir_view in[] = {args->in[2], args->out[0]};
    return call_other(args, op_gelu_grad_cuda, in, 2, &args->out[0]);
}

static product_call matmul_gelu_grad_call(const weir_kernel_args *args)
{
    product_call call = matmul_call(args);
    call.epilogue = PRODUCT_GELU_GRAD;
    call.aux = args->in[2].data;
    call.apart = gelu_grad_apart;
    return call;
}

static weir_status db_apart(const weir_kernel_args *args)
{
    return call_other(args, op_linear_db_cuda, &args->in[1], 1, &args->out[1]);
}

static product_call linear_dw_db_call(const weir_kernel_args *args)
{
    product_call call = linear_dw_call(args);
    call.epilogue = PRODUCT_BIAS_GRAD;
    call.sums = view_f32(&args->out[1]);
    call.apart = db_apart;
    return call;
}

/* ---- several of one tensor: as a batch where matrices lie at equal distances, else one by one ---- */

/* Elements from one of the tensors to the next; 0: they do not lie so. */
static int64_t step_of(const weir_view *views, int count)
{
    const int64_t bytes = count > 1 ? (const char *)views[1].data - (const char *)views[0].data : 0;
    const int64_t one = views[0].dtype == WEIR_F32 ? (int64_t)sizeof(float) : (int64_t)sizeof(uint16_t);
    for (int i = 1; i < count; i++)
        if ((const char *)views[i].data - (const char *)views[0].data != i * bytes)
            return 0;
    return bytes > 0 && bytes % one == 0 ? bytes / one : 0;
}

/* A batch of none is made apart. */
static product_call batch_call(const weir_kernel_args *args, product_call first, weir_status (*apart)(const weir_kernel_args *))
{
    const int count = args->out_count;
    first.b_step = step_of(&args->in[1], count);
    first.c_step = step_of(args->out, count);
    first.bias_step = first.bias ? step_of(&args->in[1 + count], count) : 0;
    first.apart = apart;
    first.count = first.b_step && first.c_step >= first.m * first.n && (!first.bias || first.bias_step) ? count : 0;
    return first;
}

static weir_status each_apart(const weir_kernel_args *args, weir_kernel_fn one)
{
    const int count = args->out_count;
    weir_status status = WEIR_OK;
    for (int i = 0; i < count && !status; i++) {
        const weir_view in[] = {args->in[0], args->in[1 + i], args->in[args->in_count > 1 + count ? 1 + count + i : 0]};
        status = call_other(args, one, in, args->in_count > 1 + count ? 3 : 2, &args->out[i]);
    }
    return status;
}

extern "C" weir_status op_linear_cuda(const weir_kernel_args *args);
extern "C" weir_status op_linear_dw_cuda(const weir_kernel_args *args);

static weir_status linears_apart(const weir_kernel_args *args)
{
    return each_apart(args, op_linear_cuda);
}

static product_call linear_many_call(const weir_kernel_args *args)
{
    product_call first = linear_call(args);
    first.bias = args->in_count > 1 + args->out_count ? view_f32(&args->in[1 + args->out_count]) : nullptr;
    return batch_call(args, first, linears_apart);
}

static weir_status linear_dws_apart(const weir_kernel_args *args)
{
    return each_apart(args, op_linear_dw_cuda);
}

static product_call linear_dw_many_call(const weir_kernel_args *args)
{
    return batch_call(args, linear_dw_call(args), linear_dws_apart);
}

/* ---- the kernels, and what a session has done before the first of them ---- */

#define PRODUCT(name)                                                               \
    extern "C" weir_status op_##name##_cuda(const weir_kernel_args *args)           \
    {                                                                               \
        const product_call call = name##_call(args);                                \
        return product_run(args, &call);                                            \
    }                                                                               \
    extern "C" weir_status op_##name##_cuda_prepare(const weir_kernel_args *args)   \
    {                                                                               \
        const product_call call = name##_call(args);                                \
        return product_prepare(args, &call);                                        \
    }
CUDA_SINGLE_PRODUCTS(PRODUCT)

extern "C" weir_status op_matmul_cuda(const weir_kernel_args *args)
{
    return matmul_each(args, product_run);
}
extern "C" weir_status op_matmul_cuda_prepare(const weir_kernel_args *args)
{
    return matmul_each(args, product_prepare);
}

/* ---- linear_by_row ---- */

enum { BY_COLUMNS = 32, WAYS = 8 };

template <class X, class W, class Y>
KERNEL_OF(by_row, BY_COLUMNS *WAYS)(const X *x, const W *w, const float *bias, Y *y, int64_t in, int64_t out, int64_t tiles)
{
    SHARED(float, sums, BY_COLUMNS * WAYS);
    const int way = (int)threadIdx.x / BY_COLUMNS;
    const int64_t row = blockIdx.x / tiles, column = blockIdx.x % tiles * BY_COLUMNS + threadIdx.x % BY_COLUMNS;
    float sum = 0;
    if (column < out)
        for (int64_t i = way; i < in; i += WAYS)
            sum += real_load(x + row * in + i) * real_load(w + i * out + column);
    sums[threadIdx.x] = sum;
    BARRIER();
    if (way || column >= out)
        return;
    for (int k = 1; k < WAYS; k++)
        sum += sums[k * BY_COLUMNS + threadIdx.x];
    real_store(y + row * out + column, bias ? sum + bias[column] : sum);
}

extern "C" weir_status op_linear_by_row_cuda(const weir_kernel_args *args)
{
    const weir_view *x = &args->in[0], *w = &args->in[1], *y = &args->out[0];
    const int64_t in = w->shape.dim[0], out = w->shape.dim[1], rows = shape_rows(&y->shape);
    const int64_t tiles = (out + BY_COLUMNS - 1) / BY_COLUMNS;
    WITH_REAL(x->dtype, X,
              WITH_REAL(w->dtype, W,
                        WITH_REAL(y->dtype, Y,
                                  LAUNCH((by_row<X, W, Y>), rows * tiles, BY_COLUMNS * WAYS, args->queue, data_of<X>(x),
                                         data_of<W>(w), bias_given(args), data_of<Y>(y), in, out, tiles))));
    return launched(args);
}

/* ---- linear_db ---- */

enum { DB_THREADS = 64, DB_NEAR = 4, DB_ROWS = 8 /* that are loaded before one is used */ };

template <class T, int N> DEVICE void add_row(double (&sum)[N], const near_bits<T, N> &row)
{
    float values[N];
    near_widen(row, values);
    UNROLL
    for (int k = 0; k < N; k++)
        sum[k] += values[k];
}

/* The sums over the rows of a chunk: a thread has N neighbouring columns, and adds their rows in order. */
template <class T, int N>
KERNEL_OF(column_sums, DB_THREADS)(const T *x, int64_t rows, int64_t columns, int64_t chunk, int64_t tiles, double *part)
{
    const cells<N, true> at = {0, (int64_t)(blockIdx.x % tiles * DB_THREADS + threadIdx.x) * N, columns};
    const int64_t first = blockIdx.x / tiles * chunk, end = first + chunk < rows ? first + chunk : rows;
    double sum[N] = {};
    if (!at.any())
        return;
    int64_t row = first;
    ROLLED
    for (; row + DB_ROWS <= end; row += DB_ROWS) {
        near_bits<T, N> some[DB_ROWS];
        UNROLL
        for (int r = 0; r < DB_ROWS; r++)
            some[r] = near_load(x + (row + r) * columns, at, true);
        UNROLL
        for (int r = 0; r < DB_ROWS; r++)
            add_row(sum, some[r]);
    }
    ROLLED
    for (; row < end; row++)
        add_row(sum, near_load(x + row * columns, at, true));
    for (int k = 0; k < N; k++)
        part[blockIdx.x / tiles * columns + at.column(k)] = sum[k];
}

template <class T, int N>
static void sums_launch(const weir_kernel_args *args, int64_t rows, int64_t columns, double *part)
{
    const int64_t tiles = (columns + DB_THREADS * N - 1) / (DB_THREADS * N);
    LAUNCH((column_sums<T, N>), chunks_of(rows) * tiles, DB_THREADS, args->queue, data_of<T>(&args->in[0]), rows, columns,
           chunk_rows(rows), tiles, part);
}

extern "C" weir_status op_linear_db_cuda(const weir_kernel_args *args)
{
    const weir_view *x = &args->in[0];
    const int64_t rows = shape_rows(&x->shape), columns = shape_last(&x->shape), chunks = chunks_of(rows);
    double *part = (double *)args->workspace;
    WITH_REAL(x->dtype, T,
              columns % DB_NEAR == 0 && packs_fit(x->data, DB_NEAR * sizeof(T))
                  ? sums_launch<T, DB_NEAR>(args, rows, columns, part)
                  : sums_launch<T, 1>(args, rows, columns, part));
    fold_columns(args, part, chunks, columns, view_f32(&args->out[0]), args->accumulate || args->continues);
    return launched(args);
}
