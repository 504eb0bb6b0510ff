/* kernels/conv/conv.cu: convolutions on a GPU, in the plainest way: a thread has an element of the result, and goes through the
 * window and the channels that it is a sum of, in order; conv.c has the rules. An element of the weight's gradient is the sum over
 * all images and positions, so a block has one. There is no library for them yet (docs/gpu.md).
 */
#include "kernels/cuda/rows.h"

extern "C" {
#include "kernels/conv/sizes.h"
}

enum { CONV_THREADS = 256, CONV_BLOCKS = 1 << 14, DW_THREADS = 64 };

static int64_t blocks_for(int64_t count)
{
    const int64_t blocks = (count + CONV_THREADS - 1) / CONV_THREADS;
    return blocks < CONV_BLOCKS ? blocks : (int64_t)CONV_BLOCKS;
}

/* Where element `i` of a tensor [batch, groups channels, each] is. */
struct conv_place {
    int64_t image, group, channel, at;
};

DEVICE conv_place place_of(int64_t i, int64_t groups, int64_t channels, int64_t each)
{
    return {i / each / channels / groups, i / each / channels % groups, i / each % channels, i % each};
}

template <class T, class U>
KERNEL_OF(conv_small, CONV_THREADS)(conv_sizes s, const T *x, const T *weight, const float *bias, U *y, int64_t count)
{
    for (int64_t i = THREAD; i < count; i += THREADS) {
        const conv_place p = place_of(i, s.groups, s.small_channels, s.small);
        const int64_t o = p.group * s.small_channels + p.channel;
        const T *from = x + (p.image * s.groups + p.group) * s.large_channels * s.large;
        const T *w = weight + o * s.large_channels * s.taps;
        int64_t position[WINDOW_DIMS], tap[WINDOW_DIMS];
        window_index(s.w.small, p.at, position);
        float sum = bias ? bias[o] : 0;
        for (int64_t c = 0; c < s.large_channels; c++, from += s.large, w += s.taps)
            for (int64_t t = 0; t < s.taps; t++) {
                window_index(s.w.kernel, t, tap);
                const int64_t at = window_at(&s.w, position, tap);
                if (at >= 0)
                    sum += real_load(w + t) * real_load(from + at);
            }
        real_store(y + i, sum);
    }
}

template <class T, class U>
KERNEL_OF(conv_large, CONV_THREADS)(conv_sizes s, const T *x, const T *weight, const float *bias, U *y, int64_t count)
{
    for (int64_t i = THREAD; i < count; i += THREADS) {
        const conv_place p = place_of(i, s.groups, s.large_channels, s.large);
        const T *from = x + (p.image * s.groups + p.group) * s.small_channels * s.small;
        const T *w = weight + (p.group * s.small_channels * s.large_channels + p.channel) * s.taps;
        int64_t position[WINDOW_DIMS], tap[WINDOW_DIMS];
        window_index(s.w.large, p.at, position);
        float sum = bias ? bias[p.group * s.large_channels + p.channel] : 0;
        for (int64_t o = 0; o < s.small_channels; o++, from += s.small, w += s.large_channels * s.taps)
            for (int64_t t = 0; t < s.taps; t++) {
                window_index(s.w.kernel, t, tap);
                const int64_t at = window_reader(&s.w, position, tap);
                if (at >= 0)
                    sum += real_load(w + t) * real_load(from + at);
            }
        real_store(y + i, sum);
    }
}

template <class T>
KERNEL_OF(conv_weight, DW_THREADS)(conv_sizes s, const T *x, const T *dy, float *dw, bool add)
{
    SHARED(float, part, WARP);
    const int64_t i = blockIdx.x, t = i % s.taps, c = i / s.taps % s.large_channels, o = i / s.taps / s.large_channels;
    const int64_t group = o / s.small_channels;
    int64_t position[WINDOW_DIMS], tap[WINDOW_DIMS];
    float sum = 0;
    window_index(s.w.kernel, t, tap);
    for (int64_t n = threadIdx.x; n < s.batch * s.small; n += blockDim.x) {
        const int64_t image = n / s.small, p = n % s.small;
        window_index(s.w.small, p, position);
        const int64_t at = window_at(&s.w, position, tap);
        if (at >= 0)
            sum += real_load(dy + (image * s.groups * s.small_channels + o) * s.small + p) *
                   real_load(x + ((image * s.groups + group) * s.large_channels + c) * s.large + at);
    }
    sum = block_sum<float>(sum, part);
    if (threadIdx.x == 0)
        dw[i] = add ? dw[i] + sum : sum;
}

static conv_sizes sizes_of(const weir_kernel_args *args, const weir_view *large, const weir_view *small, const weir_view *weight)
{
    const conv_attrs *attrs = (const conv_attrs *)args->attrs;
    return conv_sizes_of(&attrs->window, &large->shape, &small->shape, &weight->shape);
}

static const float *bias_of(const weir_kernel_args *args)
{
    return args->in_count > 2 ? view_f32(&args->in[2]) : nullptr;
}

extern "C" weir_status op_conv_cuda(const weir_kernel_args *args)
{
    const weir_view *x = &args->in[0], *w = &args->in[1], *y = &args->out[0];
    const int64_t count = count_of(&y->shape);
    if (!count)
        return WEIR_OK;
    const conv_sizes s = sizes_of(args, x, y, w);
    WITH_REAL(x->dtype, T,
              WITH_REAL(y->dtype, U,
                        LAUNCH((conv_small<T, U>), blocks_for(count), CONV_THREADS, args->queue, s, data_of<T>(x), data_of<T>(w),
                               bias_of(args), data_of<U>(y), count)));
    return launched(args);
}

extern "C" weir_status op_conv_transpose_cuda(const weir_kernel_args *args)
{
    const weir_view *x = &args->in[0], *w = &args->in[1], *y = &args->out[0];
    const int64_t count = count_of(&y->shape);
    if (!count)
        return WEIR_OK;
    const conv_sizes s = sizes_of(args, y, x, w);
    WITH_REAL(x->dtype, T,
              WITH_REAL(y->dtype, U,
                        LAUNCH((conv_large<T, U>), blocks_for(count), CONV_THREADS, args->queue, s, data_of<T>(x), data_of<T>(w),
                               bias_of(args), data_of<U>(y), count)));
    return launched(args);
}

extern "C" weir_status op_conv_dw_cuda(const weir_kernel_args *args)
{
    const weir_view *x = &args->in[0], *dy = &args->in[1], *dw = &args->out[0];
    const int64_t count = count_of(&dw->shape);
    if (!count)
        return WEIR_OK;
    const conv_sizes s = sizes_of(args, x, dy, dw);
    WITH_REAL(x->dtype, T,
              LAUNCH((conv_weight<T>), count, DW_THREADS, args->queue, s, data_of<T>(x), data_of<T>(dy), view_f32(dw),
                     args->accumulate));
    return launched(args);
}
