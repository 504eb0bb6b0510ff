/* kernels/elementwise/choice.cu: ops that choose between values, on a GPU; choice.c has the rules. where and masked move
 * elements of one width, one by one. A thread reads its elements before it writes. */
#include "graph/base/dtype.h"
#include "kernels/cuda/walk.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/formula.h"

static nest nest_of_call(const weir_kernel_args *args)
{
    nest n = nest_over(&args->out[0].shape);
    for (int i = 0; i < args->in_count; i++)
        nest_broadcast(&n, &args->in[i].shape);
    nest_collapse(&n);
    return n;
}

/* ---- where, masked ---- */

template <class U, class I> struct where_of {
    const uint8_t *c;
    const U *a, *b;
    U *y;
    walk<I, 3> w;
    template <int N> METHOD void at(int64_t i) const
    {
        int64_t from[3];
        w.to((I)i, from);
        y[i] = c[from[0]] ? a[from[1]] : b[from[2]];
    }
};

template <class U, class I> static void where_launch(const weir_kernel_args *args)
{
    const where_of<U, I> f = {data_of<uint8_t>(&args->in[0]), data_of<U>(&args->in[1]), data_of<U>(&args->in[2]),
                              data_of<U>(&args->out[0]), walk_of<I, 3>(nest_of_call(args))};
    each<1>(args, f, count_of(&args->out[0].shape), false);
}

template <class U> static void where_typed(const weir_kernel_args *args)
{
    WITH_INDEX(count_of(&args->out[0].shape), I, where_launch<U, I>(args));
}

extern "C" weir_status op_where_cuda(const weir_kernel_args *args)
{
    const size_t bytes = dtype_bytes(args->out[0].dtype);
    if (bytes == 8)
        where_typed<uint64_t>(args);
    else if (bytes == 4)
        where_typed<uint32_t>(args);
    else if (bytes == 2)
        where_typed<uint16_t>(args);
    else
        where_typed<uint8_t>(args);
    return launched(args);
}

template <class U, class I> struct masked_of {
    const uint8_t *c;
    const U *x;
    U *y;
    bool inverted;
    walk<I, 2> w;
    template <int N> METHOD void at(int64_t i) const
    {
        int64_t from[2];
        w.to((I)i, from);
        y[i] = (c[from[0]] != 0) != inverted ? x[from[1]] : (U)0;
    }
};

template <class U, class I> static void masked_launch(const weir_kernel_args *args)
{
    const masked_attrs *attrs = (const masked_attrs *)args->attrs;
    const masked_of<U, I> f = {data_of<uint8_t>(&args->in[0]), data_of<U>(&args->in[1]), data_of<U>(&args->out[0]),
                               attrs->inverted != 0, walk_of<I, 2>(nest_of_call(args))};
    each<1>(args, f, count_of(&args->out[0].shape), false);
}

extern "C" weir_status op_masked_cuda(const weir_kernel_args *args)
{
    if (args->out[0].dtype == WEIR_F32)
        WITH_INDEX(count_of(&args->out[0].shape), I, masked_launch<uint32_t, I>(args));
    else
        WITH_INDEX(count_of(&args->out[0].shape), I, masked_launch<uint16_t, I>(args));
    return launched(args);
}

/* ---- clip ---- */

template <class T> struct clip_to {
    const T *x, *dy; /* dy NULL: x within the bounds */
    T *y;
    float lo, hi;
    template <int N> METHOD void at(int64_t i) const
    {
        const pack<T, N> from = pack_load<N>(x + i);
        pack<T, N> all = dy ? pack_load<N>(dy + i) : from;
        UNROLL
        for (int k = 0; k < N; k++) {
            const float value = real_load(&from.at[k]);
            if (!dy)
                real_store(&all.at[k], clip_of(value, lo, hi));
            else if (!clip_slope(value, lo, hi))
                real_store(&all.at[k], 0.0f);
        }
        pack_store<N>(y + i, all);
    }
};

template <class T> static void clip_launch(const weir_kernel_args *args)
{
    const clip_attrs *attrs = (const clip_attrs *)args->attrs;
    const clip_to<T> f = {data_of<T>(&args->in[0]), args->in_count > 1 ? data_of<T>(&args->in[1]) : nullptr,
                          data_of<T>(&args->out[0]), (float)attrs->lo, (float)attrs->hi};
    each<16 / sizeof(T)>(args, f, count_of(&args->out[0].shape), packs_fit_all(args));
}

extern "C" weir_status op_clip_cuda(const weir_kernel_args *args)
{
    WITH_REAL(args->out[0].dtype, T, clip_launch<T>(args));
    return launched(args);
}

extern "C" weir_status op_clip_grad_cuda(const weir_kernel_args *args)
{
    return op_clip_cuda(args);
}

/* ---- of one value, true or false ---- */

struct not_of {
    const uint8_t *x;
    uint8_t *y;
    template <int N> METHOD void at(int64_t i) const { y[i] = !x[i]; }
};

extern "C" weir_status op_logical_not_cuda(const weir_kernel_args *args)
{
    const not_of f = {data_of<uint8_t>(&args->in[0]), data_of<uint8_t>(&args->out[0])};
    each<1>(args, f, count_of(&args->out[0].shape), false);
    return launched(args);
}

template <class T> struct nan_of {
    const T *x;
    uint8_t *y;
    template <int N> METHOD void at(int64_t i) const { y[i] = real_load(x + i) != real_load(x + i); }
};

template <class T> static void nan_launch(const weir_kernel_args *args)
{
    const nan_of<T> f = {data_of<T>(&args->in[0]), data_of<uint8_t>(&args->out[0])};
    each<1>(args, f, count_of(&args->out[0].shape), false);
}

extern "C" weir_status op_is_nan_cuda(const weir_kernel_args *args)
{
    WITH_REAL(args->in[0].dtype, T, nan_launch<T>(args));
    return launched(args);
}
