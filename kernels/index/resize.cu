/* kernels/index/resize.cu: a dimension with more or fewer places, on a GPU; resize.c has the rules. */
#include "kernels/index/resize.h"

#include "kernels/cuda/moves.h"

/* Element i of a tensor that is seen as [outside, places, inside]. */
struct place_at {
    int64_t outside, place, inside;
};

DEVICE place_at place_of(int64_t i, int64_t places, int64_t inside)
{
    return {i / inside / places, i / inside % places, i % inside};
}

template <class U> struct nearest_places {
    resize_attrs a;
    int64_t inside;
    const U *x;
    U *y;
    template <int N> METHOD void at(int64_t i) const
    {
        const place_at p = place_of(i, a.count, inside);
        y[i] = x[(p.outside * a.size + resize_tap_at(&a, p.place).first) * inside + p.inside];
    }
};

template <class T> struct mixed_places {
    resize_attrs a;
    int64_t inside;
    const T *x;
    T *y;
    template <int N> METHOD void at(int64_t i) const
    {
        const place_at p = place_of(i, a.count, inside);
        const resize_tap tap = resize_tap_at(&a, p.place);
        const T *from = x + p.outside * a.size * inside + p.inside;
        const float first = real_load(from + tap.first * inside), next = real_load(from + tap.next * inside);
        const float more = tap.weight * (next - first);
        real_store(y + i, first + more);
    }
};

/* The places of dy go up with those of x. */
template <class T> struct place_gradients {
    resize_attrs a;
    int64_t inside;
    const T *dy;
    float *dx;
    METHOD int64_t run_of(int64_t s) const
    {
        int64_t low = 0, high = a.count;
        while (low < high) {
            const int64_t middle = (low + high) / 2;
            if (resize_tap_at(&a, middle).next < s)
                low = middle + 1;
            else
                high = middle;
        }
        return low;
    }
    template <int N> METHOD void at(int64_t i) const
    {
        const place_at p = place_of(i, a.size, inside);
        double sum = 0;
        for (int64_t j = run_of(p.place); j < a.count; j++) {
            const resize_tap tap = resize_tap_at(&a, j);
            if (tap.first > p.place)
                break;
            const double weight = (tap.first == p.place ? 1 - (double)tap.weight : 0) + (tap.next == p.place ? (double)tap.weight : 0);
            sum += weight * (double)real_load(dy + (p.outside * a.count + j) * inside + p.inside);
        }
        dx[i] = (float)sum;
    }
};

static int64_t inside_of(const weir_kernel_args *args)
{
    const weir_shape *in = &args->in[0].shape;
    const int64_t axis = ((const resize_attrs *)args->attrs)->axis;
    return shape_size(in, (int)(axis < 0 ? axis + in->rank : axis) + 1, in->rank);
}

template <class U> static void nearest_launch(const weir_kernel_args *args)
{
    const nearest_places<U> f = {*(const resize_attrs *)args->attrs, inside_of(args), data_of<U>(&args->in[0]),
                                 data_of<U>(&args->out[0])};
    each<1>(args, f, count_of(&args->out[0].shape), false);
}

template <class T> static void mixed_launch(const weir_kernel_args *args)
{
    const mixed_places<T> f = {*(const resize_attrs *)args->attrs, inside_of(args), data_of<T>(&args->in[0]),
                               data_of<T>(&args->out[0])};
    each<1>(args, f, count_of(&args->out[0].shape), false);
}

template <class T> static void gradient_launch(const weir_kernel_args *args)
{
    const place_gradients<T> f = {*(const resize_attrs *)args->attrs, inside_of(args), data_of<T>(&args->in[0]),
                                  view_f32(&args->out[0])};
    each<1>(args, f, count_of(&args->out[0].shape), false);
}

extern "C" weir_status op_resize_cuda(const weir_kernel_args *args)
{
    const size_t bytes = bytes_of(args->out[0].dtype);
    if (((const resize_attrs *)args->attrs)->mode == WEIR_RESIZE_LINEAR)
        WITH_REAL(args->out[0].dtype, T, mixed_launch<T>(args));
    else if (bytes == 8)
        nearest_launch<uint64_t>(args);
    else if (bytes == 4)
        nearest_launch<uint32_t>(args);
    else if (bytes == 2)
        nearest_launch<uint16_t>(args);
    else
        nearest_launch<uint8_t>(args);
    return launched(args);
}

extern "C" weir_status op_resize_grad_cuda(const weir_kernel_args *args)
{
    WITH_REAL(args->in[0].dtype, T, gradient_launch<T>(args));
    return launched(args);
}
