/* kernels/norm/norm.cu: layernorm, rmsnorm and their gradients on a GPU; norm.c has their rules and says what they compute.
 *
 * A block of threads does a row. In the gradient it does the rows of a chunk one after the other, so that the sums over
 * rows (of gain and bias) stay with the thread that has the column, in shared memory where there is room; those of the
 * chunks lie in the workspace and are added by a second kernel.
 */
#include "kernels/cuda/rows.h"
#include "kernels/norm/formula.h"

enum { SUMS_SHARED = 64 << 10 /* bytes */ };

/* The mean of a row whose sum is beyond f32. */
template <class T> DEVICE float mean_of_parts(const T *x, int64_t count, float *part)
{
    thread_sum mean;
    for (int64_t i = threadIdx.x; i < count; i += blockDim.x)
        mean.add(real_load(x + i) / (float)count);
    return block_sum<float>(mean.all(), part);
}

template <class T> DEVICE float scaled_squares(const T *x, int64_t count, float mean, float scale, float *part)
{
    thread_sum squares;
    for (int64_t i = threadIdx.x; i < count; i += blockDim.x) {
        const float d = (real_load(x + i) - mean) * scale;
        squares.add(d * d);
    }
    return block_sum<float>(squares.all(), part);
}

template <class T, bool CENTRED>
KERNEL_OF(norm_row, ROW_THREADS_MAX)(const T *x, const float *gain, const float *bias, T *y, float *means, float *rstds,
                                  int64_t count, double eps)
{
    SHARED(float, part, WARP);
    const int64_t row = blockIdx.x;
    x += row * count;
    y += row * count;
    float mean = 0;
    if (CENTRED) {
        thread_sum sum;
        for (int64_t i = threadIdx.x; i < count; i += blockDim.x)
            sum.add(real_load(x + i));
        mean = block_sum<float>(sum.all(), part);
        if (isfinite(mean))
            mean /= (float)count;
        else
            mean = mean_of_parts(x, count, part);
    }
    float squares = scaled_squares(x, count, mean, 1, part);
    const float scale = norm_scale(squares);
    if (scale != 1)
        squares = scaled_squares(x, count, mean, scale, part);
    const float rstd = norm_rstd(squares, scale, count, eps);
    for (int64_t i = threadIdx.x; i < count; i += blockDim.x)
        real_store(y + i, CENTRED ? layernorm_value(real_load(x + i), mean, rstd, gain[i], bias[i])
                                  : rmsnorm_value(real_load(x + i), rstd, gain[i]));
    if (threadIdx.x == 0) {
        rstds[row] = rstd;
        if (CENTRED)
            means[row] = mean;
    }
}

template <bool CENTRED> static weir_status norm_forward(const weir_kernel_args *args)
{
    const weir_view *x = &args->in[0];
    const int64_t rows = shape_rows(&x->shape), count = shape_last(&x->shape);
    const float *bias = CENTRED ? view_f32(&args->in[2]) : nullptr;
    float *means = CENTRED ? view_f32(&args->out[1]) : nullptr, *rstds = view_f32(&args->out[CENTRED ? 2 : 1]);
    const double eps = ((const norm_attrs *)args->attrs)->eps;
    WITH_REAL(x->dtype, T,
              LAUNCH((norm_row<T, CENTRED>), rows, threads_for(count, ROW_THREADS_MAX), args->queue, data_of<T>(x),
                     view_f32(&args->in[1]), bias, data_of<T>(&args->out[0]), means, rstds, count, eps));
    return launched(args);
}

/* Of a call. Pointers to f32 but for x, dy and dx; no means and no dbias for rmsnorm. */
struct norm_grads {
    const void *x, *dy;
    void *dx;
    const float *gain, *means, *rstds;
    double *dgains, *dbiases; /* of chunks */
    int64_t rows, count, chunk;
    bool shared; /* the sums of a chunk fit there */
};

/* dx of one row, and its share of the sums. dx may be dy: each element is read for the last time by who writes it. */
template <class T, bool CENTRED>
DEVICE void norm_grad_row(const norm_grads &g, int64_t row, double *dgain, double *dbias, float *part)
{
    const T *x = (const T *)g.x + row * g.count, *dy = (const T *)g.dy + row * g.count;
    T *dx = (T *)g.dx + row * g.count;
    const float mean = CENTRED ? g.means[row] : 0, rstd = g.rstds[row], per = 1 / (float)g.count;
    thread_sum g_sum, tilts;
    for (int64_t i = threadIdx.x; i < g.count; i += blockDim.x) {
        const float d = real_load(dy + i) * g.gain[i];
        g_sum.add(d);
        tilts.add(d * (real_load(x + i) - mean));
    }
    const float shift = CENTRED ? block_sum<float>(g_sum.all(), part) * per : 0;
    float gx_sum = block_sum<float>(tilts.all(), part);
    if (isfinite(gx_sum)) {
        gx_sum *= rstd;
    } else { /* beyond f32: of xhat, which is not */
        thread_sum xhats;
        for (int64_t i = threadIdx.x; i < g.count; i += blockDim.x)
            xhats.add(real_load(dy + i) * g.gain[i] * ((real_load(x + i) - mean) * rstd));
        gx_sum = block_sum<float>(xhats.all(), part);
    }
    const float tilt = gx_sum * per;
    for (int64_t i = threadIdx.x; i < g.count; i += blockDim.x) {
        const float xhat = (real_load(x + i) - mean) * rstd, d = real_load(dy + i);
        real_store(dx + i, norm_dx(rstd, d, g.gain[i], shift, xhat, tilt));
        dgain[i] += d * xhat;
        if (CENTRED)
            dbias[i] += d;
    }
}

template <class T, bool CENTRED> KERNEL_OF(norm_grad_chunk, ROW_THREADS_MAX)(norm_grads g)
{
    SHARED(float, part, WARP);
    SHARED_REST(double, sums);
    const int64_t chunk = blockIdx.x, first = chunk * g.chunk;
    const int64_t end = first + g.chunk < g.rows ? first + g.chunk : g.rows;
    double *const shared = sums;
    double *dgain = g.shared ? shared : g.dgains + chunk * g.count;
    double *dbias = g.shared ? shared + g.count : g.dbiases + chunk * g.count;
    for (int64_t i = threadIdx.x; i < g.count; i += blockDim.x) {
        dgain[i] = 0;
        if (CENTRED)
            dbias[i] = 0;
    }
    for (int64_t row = first; row < end; row++)
        norm_grad_row<T, CENTRED>(g, row, dgain, dbias, part);
    for (int64_t i = threadIdx.x; g.shared && i < g.count; i += blockDim.x) {
        g.dgains[chunk * g.count + i] = dgain[i];
        if (CENTRED)
            g.dbiases[chunk * g.count + i] = dbias[i];
    }
}

template <bool CENTRED> static weir_status norm_backward(const weir_kernel_args *args)
{
    const weir_view *x = &args->in[0], *dy = &args->in[args->in_count - 1];
    const int64_t rows = shape_rows(&x->shape), count = shape_last(&x->shape), chunks = chunks_of(rows);
    double *const sums = (double *)args->workspace;
    norm_grads g = {x->data, dy->data, args->out[0].data, view_f32(&args->in[1]),
                    CENTRED ? view_f32(&args->in[2]) : nullptr, view_f32(&args->in[CENTRED ? 3 : 2]), sums,
                    sums + chunks * count, rows, count, chunk_rows(rows), false};
    size_t bytes = (size_t)(CENTRED ? 2 : 1) * (size_t)count * sizeof(double);
    g.shared = bytes <= SUMS_SHARED;
    bytes = g.shared ? bytes : 0;
    WITH_REAL(x->dtype, T,
              LAUNCH_SHARED((norm_grad_chunk<T, CENTRED>), chunks, threads_for(count, ROW_THREADS_MAX), bytes, args->queue,
                            g));
    fold_columns(args, g.dgains, chunks, count, view_f32(&args->out[1]), args->continues);
    if (CENTRED)
        fold_columns(args, g.dbiases, chunks, count, view_f32(&args->out[2]), args->continues);
    return launched(args);
}

extern "C" weir_status op_layernorm_cuda(const weir_kernel_args *args)
{
    return norm_forward<true>(args);
}

extern "C" weir_status op_rmsnorm_cuda(const weir_kernel_args *args)
{
    return norm_forward<false>(args);
}

extern "C" weir_status op_layernorm_grad_cuda(const weir_kernel_args *args)
{
    return norm_backward<true>(args);
}

extern "C" weir_status op_rmsnorm_grad_cuda(const weir_kernel_args *args)
{
    return norm_backward<false>(args);
}
