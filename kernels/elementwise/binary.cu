/* kernels/elementwise/binary.cu: y = a op b on a GPU, broadcast as binary.c says. A thread has a pack of neighbours of the
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

template <class F, class T, class I> struct binary_of {
    const T *a, *b;
    T *y;
    bool a_runs, b_runs;
    walk<I, 2> w;
    template <int N> METHOD void at(int64_t i) const
    {
        int64_t from[2];
        w.to((I)i, from);
        const pack<T, N> left = run_load<N>(a + from[0], a_runs), right = run_load<N>(b + from[1], b_runs);
        pack<T, N> all;
        UNROLL
        for (int k = 0; k < N; k++)
            real_store(&all.at[k], F::of(real_load(&left.at[k]), real_load(&right.at[k])));
        pack_store<N>(y + i, all);
    }
};

template <class F, class T, class I> static void binary_launch(const weir_kernel_args *args, const nest &n)
{
    enum { N = 16 / sizeof(T) };
    const int last = n.rank - 1;
    bool fit = packs_fit_all(args) && n.dim[last] % N == 0;
    for (int d = 0; d < last; d++)
        fit &= (n.stride[0][d] % N == 0 || !n.stride[0][last]) && (n.stride[1][d] % N == 0 || !n.stride[1][last]);
    const binary_of<F, T, I> f = {data_of<T>(&args->in[0]), data_of<T>(&args->in[1]), data_of<T>(&args->out[0]),
                                  n.stride[0][last] != 0, n.stride[1][last] != 0, walk_of<I, 2>(n)};
    each<N>(args, f, count_of(&args->out[0].shape), fit);
}

template <class F> static weir_status binary_run(const weir_kernel_args *args)
{
    nest n = nest_over(&args->out[0].shape);
    nest_broadcast(&n, &args->in[0].shape);
    nest_broadcast(&n, &args->in[1].shape);
    nest_collapse(&n);
    WITH_REAL(args->out[0].dtype, T,
              WITH_INDEX(count_of(&args->out[0].shape), I, binary_launch<F, T, I>(args, n)));
    return launched(args);
}

#define WRAP(name)                                                        \
    extern "C" weir_status op_##name##_cuda(const weir_kernel_args *args) \
    {                                                                     \
        return binary_run<name##_function>(args);                         \
    }
ELEMENT_PAIRS(WRAP)
