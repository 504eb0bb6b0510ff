/* kernels/reduce/softmax.cu: softmax over the last dimension and its gradient on a GPU; softmax.c has the rules. A block of
 * threads does a row and reads it three times, or twice, mostly from the caches; an output may lie where its input is, as who reads an
 * element for the last time writes it.
 */
#include "kernels/cuda/rows.h"
#include "kernels/reduce/softmax.h"

template <class T> KERNEL_OF(softmax_row, ROW_THREADS_MAX)(const T *x, T *y, int64_t count)
{
    SHARED(float, part, WARP);
    x += blockIdx.x * count;
    y += blockIdx.x * count;
    float most = real_load(x);
    thread_sum sum;
    for (int64_t i = threadIdx.x; i < count; i += blockDim.x) {
        const float value = real_load(x + i);
        most = value > most ? value : most;
    }
    most = block_max(most, part);
    for (int64_t i = threadIdx.x; i < count; i += blockDim.x)
        sum.add(fast_exp(real_load(x + i) - most));
    const float share = 1.0f / block_sum<float>(sum.all(), part);
    for (int64_t i = threadIdx.x; i < count; i += blockDim.x)
        real_store(y + i, fast_exp(real_load(x + i) - most) * share);
}

extern "C" weir_status op_softmax_cuda(const weir_kernel_args *args)
{
    const weir_view *out = &args->out[0];
    const int64_t count = shape_last(&out->shape), rows = count ? shape_rows(&out->shape) : 0;
    WITH_REAL(out->dtype, T,
              LAUNCH((softmax_row<T>), rows, threads_for(count, ROW_THREADS_MAX), args->queue,
                     data_of<T>(&args->in[0]), data_of<T>(out), count));
    return launched(args);
}

template <class T> KERNEL_OF(softmax_grad_row, ROW_THREADS_MAX)(const T *y, const T *dy, T *dx, int64_t count)
{
    SHARED(float, part, WARP);
    const int64_t at = blockIdx.x * count;
    thread_sum products;
    for (int64_t i = threadIdx.x; i < count; i += blockDim.x)
        products.add(real_load(y + at + i) * real_load(dy + at + i));
    const float dot = block_sum<float>(products.all(), part);
    for (int64_t i = threadIdx.x; i < count; i += blockDim.x)
        real_store(dx + at + i, softmax_dx(real_load(y + at + i), real_load(dy + at + i), dot));
}

extern "C" weir_status op_softmax_grad_cuda(const weir_kernel_args *args)
{
    const weir_view *out = &args->out[0];
    const int64_t count = shape_last(&out->shape), rows = count ? shape_rows(&out->shape) : 0;
    WITH_REAL(out->dtype, T,
              LAUNCH((softmax_grad_row<T>), rows, threads_for(count, ROW_THREADS_MAX), args->queue,
                     data_of<T>(&args->in[0]), data_of<T>(&args->in[1]), data_of<T>(out), count));
    return launched(args);
}
