/* kernels/reduce/softmax.cu: softmax over the last dimension and its gradient on a GPU; softmax.c has the rules. A block of
 * threads does a row. HELD: it has the row in registers; a longer row is read again for each pass, mostly from the caches.
 * An output may lie where its input is: the thread that reads an element for the last time writes it.
 */
#include "kernels/reduce/softmax_row.h"

/* Of a call: x -> y, or y, dy -> dx. */
template <class T> struct softmax_call {
    const T *x, *dy;
    T *to;
    int64_t count;
    bool packs;
};

template <class T> struct softmax_load {
    softmax_call<T> c;
    METHOD softmax_values operator()(const cells<ROW_NEAR> &at) const
    {
        softmax_values v;
        near_get(c.x + at.row * c.count, at, c.packs, v.x);
        return v;
    }
};

template <class T> struct softmax_grad_load {
    softmax_call<T> c;
    METHOD softmax_grad_values operator()(const cells<ROW_NEAR> &at) const
    {
        softmax_grad_values v;
        near_get(c.x + at.row * c.count, at, c.packs, v.y);
        near_get(c.dy + at.row * c.count, at, c.packs, v.dy);
        return v;
    }
};

template <class T, class ROW> DEVICE void softmax_do(const softmax_call<T> &c, const ROW &row, near_parts &parts)
{
    float most, share;
    softmax_of_row(row, parts, most, share);
    row.each([&](const cells<ROW_NEAR> &at, const softmax_values &v) {
        float y[ROW_NEAR];
        UNROLL
        for (int k = 0; k < ROW_NEAR; k++)
            y[k] = fast_exp(v.x[k] - most) * share;
        near_put(c.to + at.row * c.count, at, c.packs, y);
    });
}

template <class T, bool HELD> KERNEL_OF(softmax_row, ROW_THREADS_MAX)(softmax_call<T> c)
{
    SHARED(near_quad, part, NEAR_PARTS);
    near_parts parts = near_shared(part);
    const cells<ROW_NEAR> at = {blockIdx.x, (int64_t)threadIdx.x * ROW_NEAR, c.count};
    const softmax_load<T> load = {c};
    if constexpr (HELD)
        softmax_do(c, held_row<softmax_values>{at, load(at)}, parts);
    else
        softmax_do(c, far_row<softmax_values, softmax_load<T>>{at, load}, parts);
}

template <class T, class ROW> DEVICE void softmax_grad_do(const softmax_call<T> &c, const ROW &row, near_parts &parts)
{
    const float dot = softmax_dot_of(row, parts);
    row.each([&](const cells<ROW_NEAR> &at, const softmax_grad_values &v) {
        float dx[ROW_NEAR];
        UNROLL
        for (int k = 0; k < ROW_NEAR; k++)
            dx[k] = softmax_dx(v.y[k], v.dy[k], dot);
        near_put(c.to + at.row * c.count, at, c.packs, dx);
    });
}

template <class T, bool HELD> KERNEL_OF(softmax_grad_row, ROW_THREADS_MAX)(softmax_call<T> c)
{
    SHARED(near_quad, part, NEAR_PARTS);
    near_parts parts = near_shared(part);
    const cells<ROW_NEAR> at = {blockIdx.x, (int64_t)threadIdx.x * ROW_NEAR, c.count};
    const softmax_grad_load<T> load = {c};
    if constexpr (HELD)
        softmax_grad_do(c, held_row<softmax_grad_values>{at, load(at)}, parts);
    else
        softmax_grad_do(c, far_row<softmax_grad_values, softmax_grad_load<T>>{at, load}, parts);
}

template <class T> static void launch_softmax(const weir_kernel_args *args)
{
    const bool grad = args->in_count == 2;
    const weir_view *out = &args->out[0];
    softmax_call<T> c = {data_of<T>(&args->in[0]), grad ? data_of<T>(&args->in[1]) : nullptr, data_of<T>(out),
                         shape_last(&out->shape), false};
    c.packs = near_fits(c.x, c.count) && near_fits(c.dy, c.count) && near_fits(c.to, c.count);
    const int64_t rows = c.count ? shape_rows(&out->shape) : 0;
    const int threads = row_threads(c.count);
    if (grad && c.count <= ROW_HELD)
        LAUNCH((softmax_grad_row<T, true>), rows, threads, args->queue, c);
    else if (grad)
        LAUNCH((softmax_grad_row<T, false>), rows, threads, args->queue, c);
    else if (c.count <= ROW_HELD)
        LAUNCH((softmax_row<T, true>), rows, threads, args->queue, c);
    else
        LAUNCH((softmax_row<T, false>), rows, threads, args->queue, c);
}

extern "C" weir_status op_softmax_cuda(const weir_kernel_args *args)
{
    WITH_REAL(args->out[0].dtype, T, launch_softmax<T>(args));
    return launched(args);
}

extern "C" weir_status op_softmax_grad_cuda(const weir_kernel_args *args)
{
    WITH_REAL(args->out[0].dtype, T, launch_softmax<T>(args));
    return launched(args);
}
