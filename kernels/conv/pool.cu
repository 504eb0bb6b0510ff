/* kernels/conv/pool.cu: pools on a GPU; pool.c has the rules. A thread has an element of the result: of a gradient, the sum of what
 * the windows give that the element is in, in the order of their positions from the last to the first.
 */
#include "kernels/cuda/rows.h"

extern "C" {
#include "kernels/conv/window.h"
}

enum { POOL_THREADS = 256, POOL_BLOCKS = 1 << 14 };

static int64_t blocks_for(int64_t count)
{
    const int64_t blocks = (count + POOL_THREADS - 1) / POOL_THREADS;
    return blocks < POOL_BLOCKS ? blocks : (int64_t)POOL_BLOCKS;
}

/* A call: its window, and the elements of a plane and of the window. */
struct pool_call {
    pool_attrs attrs;
    window w;
    int rank;
    int64_t large, small, taps;
};

/* The first of the largest elements of the window at `position`; -1: it has none. */
template <class T> DEVICE int64_t pool_largest(const pool_call &p, const T *x, const int64_t (&position)[WINDOW_DIMS])
{
    int64_t tap[WINDOW_DIMS], largest = -1;
    ROLLED
    for (int64_t t = 0; t < p.taps; t++) {
        window_index(p.w.kernel, t, tap);
        const int64_t at = window_at(&p.w, position, tap);
        if (at >= 0 && (largest < 0 || pool_larger(real_load(x + at), real_load(x + largest))))
            largest = at;
    }
    return largest;
}

template <class T> KERNEL_OF(pool_max, POOL_THREADS)(pool_call p, const T *x, T *y, int64_t count)
{
    for (int64_t i = THREAD; i < count; i += THREADS) {
        const T *plane = x + i / p.small * p.large;
        int64_t position[WINDOW_DIMS];
        window_index(p.w.small, i % p.small, position);
        const int64_t at = pool_largest(p, plane, position);
        real_store(y + i, at < 0 ? -INFINITY : real_load(plane + at));
    }
}

template <class T> KERNEL_OF(pool_average, POOL_THREADS)(pool_call p, const T *x, T *y, int64_t count)
{
    for (int64_t i = THREAD; i < count; i += THREADS) {
        const T *plane = x + i / p.small * p.large;
        int64_t position[WINDOW_DIMS], tap[WINDOW_DIMS];
        window_index(p.w.small, i % p.small, position);
        float sum = 0;
        ROLLED
        for (int64_t t = 0; t < p.taps; t++) {
            window_index(p.w.kernel, t, tap);
            const int64_t at = window_at(&p.w, position, tap);
            sum += at < 0 ? 0 : real_load(plane + at);
        }
        real_store(y + i, sum / (float)pool_terms(&p.attrs, &p.w, p.rank, position));
    }
}

/* Each window that the element is in has it as the tap by which it is found. */
template <class T, bool MAX>
KERNEL_OF(pool_grad, POOL_THREADS)(pool_call p, const T *x, const T *dy, T *dx, int64_t count)
{
    for (int64_t i = THREAD; i < count; i += THREADS) {
        const int64_t plane = i / p.large, own = i % p.large;
        int64_t here[WINDOW_DIMS], position[WINDOW_DIMS], tap[WINDOW_DIMS];
        window_index(p.w.large, own, here);
        float sum = 0;
        ROLLED
        for (int64_t t = 0; t < p.taps; t++) {
            window_index(p.w.kernel, t, tap);
            const int64_t at = window_reader(&p.w, here, tap);
            if (at < 0)
                continue;
            window_index(p.w.small, at, position);
            const float each = real_load(dy + plane * p.small + at);
            if (!MAX)
                sum += each / (float)pool_terms(&p.attrs, &p.w, p.rank, position);
            else if (pool_largest(p, x + plane * p.large, position) == own)
                sum += each;
        }
        real_store(dx + i, sum);
    }
}

static pool_call call_of(const weir_kernel_args *args, const weir_view *large, const weir_view *small)
{
    pool_call p;
    p.attrs = *(const pool_attrs *)args->attrs;
    p.w = window_of(&p.attrs.window, &large->shape, &small->shape);
    p.rank = large->shape.rank;
    p.large = window_large(&p.w);
    p.small = window_small(&p.w);
    p.taps = window_taps(&p.w);
    return p;
}

extern "C" weir_status op_max_pool_cuda(const weir_kernel_args *args)
{
    const weir_view *x = &args->in[0], *y = &args->out[0];
    const int64_t count = count_of(&y->shape);
    WITH_REAL(y->dtype, T, LAUNCH((pool_max<T>), blocks_for(count), POOL_THREADS, args->queue, call_of(args, x, y), data_of<T>(x),
                                  data_of<T>(y), count));
    return launched(args);
}

extern "C" weir_status op_average_pool_cuda(const weir_kernel_args *args)
{
    const weir_view *x = &args->in[0], *y = &args->out[0];
    const int64_t count = count_of(&y->shape);
    WITH_REAL(y->dtype, T, LAUNCH((pool_average<T>), blocks_for(count), POOL_THREADS, args->queue, call_of(args, x, y),
                                  data_of<T>(x), data_of<T>(y), count));
    return launched(args);
}

extern "C" weir_status op_max_pool_grad_cuda(const weir_kernel_args *args)
{
    const weir_view *x = &args->in[0], *dy = &args->in[1], *dx = &args->out[0];
    const int64_t count = count_of(&dx->shape);
    WITH_REAL(dx->dtype, T, LAUNCH((pool_grad<T, true>), blocks_for(count), POOL_THREADS, args->queue, call_of(args, dx, dy),
                                   data_of<T>(x), data_of<T>(dy), data_of<T>(dx), count));
    return launched(args);
}

extern "C" weir_status op_average_pool_grad_cuda(const weir_kernel_args *args)
{
    const weir_view *dy = &args->in[0], *dx = &args->out[0];
    const int64_t count = count_of(&dx->shape);
    WITH_REAL(dx->dtype, T, LAUNCH((pool_grad<T, false>), blocks_for(count), POOL_THREADS, args->queue, call_of(args, dx, dy),
                                   (const T *)nullptr, data_of<T>(dy), data_of<T>(dx), count));
    return launched(args);
}
