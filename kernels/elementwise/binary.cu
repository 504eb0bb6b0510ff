/* kernels/elementwise/binary.cu: y = f(a, b) on a GPU, broadcast as binary.c says. A thread has a pack of neighbours of the
 * innermost dimension, in which each operand runs or stands still. It reads them before it writes, so y may lie over a. */
#include "kernels/cuda/walk.h"
#include "kernels/elementwise/functions.h"

/* N neighbours, or one of which all are copies. */
template <int N, class T> DEVICE pack<T, N> run_load(const T *from, bool runs)
{
    pack<T, N> x;
    if (runs)
        return pack_load<N>(from);
    UNROLL
    for (int k = 0; k < N; k++)
        x.at[k] = *from;
    return x;
}

/* An element as what is computed with: reals as f32, integers as such. */
template <class T> DEVICE float pair_load(const T *x) { return real_load(x); }
DEVICE uint8_t pair_load(const uint8_t *x) { return *x; }
DEVICE int32_t pair_load(const int32_t *x) { return *x; }
DEVICE int64_t pair_load(const int64_t *x) { return *x; }
DEVICE uint32_t pair_load(const uint32_t *x) { return *x; }
DEVICE uint64_t pair_load(const uint64_t *x) { return *x; }

template <class T, class X> DEVICE void pair_store(T *to, X x) { *to = x; }
DEVICE void pair_store(__half *to, float x) { real_store(to, x); }
DEVICE void pair_store(__nv_bfloat16 *to, float x) { real_store(to, x); }

template <class F, class T, class Y, class I> struct binary_of {
    const T *a, *b;
    Y *y;
    bool a_runs, b_runs;
    walk<I, 2> w;
    template <int N> METHOD void at(int64_t i) const
    {
        int64_t from[2];
        w.to((I)i, from);
        const pack<T, N> left = run_load<N>(a + from[0], a_runs), right = run_load<N>(b + from[1], b_runs);
        pack<Y, N> all;
        UNROLL
        for (int k = 0; k < N; k++)
            pair_store(&all.at[k], F::of(pair_load(&left.at[k]), pair_load(&right.at[k])));
        pack_store<N>(y + i, all);
    }
};

template <class F, class T, class Y, class I> static void binary_launch(const weir_kernel_args *args, const nest &n)
{
    enum { N = 16 / sizeof(T) };
    const int last = n.rank - 1;
    bool fit = packs_fit_all(args) && n.dim[last] % N == 0;
    for (int d = 0; d < last; d++)
        fit &= (n.stride[0][d] % N == 0 || !n.stride[0][last]) && (n.stride[1][d] % N == 0 || !n.stride[1][last]);
    const binary_of<F, T, Y, I> f = {data_of<T>(&args->in[0]), data_of<T>(&args->in[1]), data_of<Y>(&args->out[0]),
                                     n.stride[0][last] != 0, n.stride[1][last] != 0, walk_of<I, 2>(n)};
    each<N>(args, f, count_of(&args->out[0].shape), fit);
}

template <class F, class T, class Y> static void binary_typed(const weir_kernel_args *args)
{
    nest n = nest_over(&args->out[0].shape);
    nest_broadcast(&n, &args->in[0].shape);
    nest_broadcast(&n, &args->in[1].shape);
    nest_collapse(&n);
    WITH_INDEX(count_of(&args->out[0].shape), I, binary_launch<F, T, Y, I>(args, n));
}

template <class F> static void run_real(const weir_kernel_args *args)
{
    WITH_REAL(args->in[0].dtype, T, binary_typed<F, T, T>(args));
}

template <class F> static void run_wrapping(const weir_kernel_args *args)
{
    if (args->in[0].dtype == WEIR_I32)
        binary_typed<F, uint32_t, uint32_t>(args);
    else if (args->in[0].dtype == WEIR_I64)
        binary_typed<F, uint64_t, uint64_t>(args);
    else
        run_real<F>(args);
}

template <class F> static void run_ordered(const weir_kernel_args *args)
{
    if (args->in[0].dtype == WEIR_I32)
        binary_typed<F, int32_t, int32_t>(args);
    else if (args->in[0].dtype == WEIR_I64)
        binary_typed<F, int64_t, int64_t>(args);
    else
        run_real<F>(args);
}

template <class F> static void run_bytes(const weir_kernel_args *args)
{
    binary_typed<F, uint8_t, uint8_t>(args);
}

template <class F> static void run_compared(const weir_kernel_args *args)
{
    if (args->in[0].dtype == WEIR_I32)
        binary_typed<F, int32_t, uint8_t>(args);
    else if (args->in[0].dtype == WEIR_I64)
        binary_typed<F, int64_t, uint8_t>(args);
    else if (args->in[0].dtype == WEIR_U8)
        run_bytes<F>(args);
    else
        WITH_REAL(args->in[0].dtype, T, binary_typed<F, T, uint8_t>(args));
}

#define WRAP(name, dtypes)                                                \
    extern "C" weir_status op_##name##_cuda(const weir_kernel_args *args) \
    {                                                                     \
        run_##dtypes<name##_function>(args);                              \
        return launched(args);                                            \
    }
#define PAIR(X, name, f, signs, half, dtypes) WRAP(name, dtypes)
#define PLAIN(X, name, f, dtypes) WRAP(name, dtypes)
PAIR_ROWS(PAIR, )
SLOPE_PAIR_ROWS(PLAIN, )
TEST_ROWS(PLAIN, )
