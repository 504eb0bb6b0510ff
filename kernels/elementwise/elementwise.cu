/* kernels/elementwise/elementwise.cu: functions of one element, their gradients, affine and add_many on a GPU; unary.c and
 * many.c have the rules. All is computed in f32, whatever is read and written. A thread reads its elements before it writes,
 * so the result may lie over an operand. */
#include "kernels/cuda/packs.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/functions.h"

/* ---- functions and their gradients ---- */

/* y = f(x) */
template <class F, class T> struct function_of {
    const T *x;
    T *y;
    template <int N> METHOD void at(int64_t i) const
    {
        pack<T, N> all = pack_load<N>(x + i);
        UNROLL
        for (int k = 0; k < N; k++)
            real_store(&all.at[k], F::of(real_load(&all.at[k])));
        pack_store<N>(y + i, all);
    }
};

/* dx = f(saved) dy */
template <class F, class T> struct gradient_of {
    const T *saved, *dy;
    T *dx;
    template <int N> METHOD void at(int64_t i) const
    {
        const pack<T, N> from = pack_load<N>(saved + i);
        pack<T, N> all = pack_load<N>(dy + i);
        UNROLL
        for (int k = 0; k < N; k++)
            real_store(&all.at[k], F::of(real_load(&from.at[k])) * real_load(&all.at[k]));
        pack_store<N>(dx + i, all);
    }
};

template <class F, class T> static void function_launch(const weir_kernel_args *args)
{
    const function_of<F, T> f = {data_of<T>(&args->in[0]), data_of<T>(&args->out[0])};
    each<16 / sizeof(T)>(args, f, count_of(&args->out[0].shape), packs_fit_all(args));
}

template <class F, class T> static void gradient_launch(const weir_kernel_args *args)
{
    const gradient_of<F, T> f = {data_of<T>(&args->in[0]), data_of<T>(&args->in[1]), data_of<T>(&args->out[0])};
    each<16 / sizeof(T)>(args, f, count_of(&args->out[0].shape), packs_fit_all(args));
}

/* The same of integers, as unsigned ones. */
template <class F, class U> struct whole_of {
    const U *x;
    U *y;
    template <int N> METHOD void at(int64_t i) const
    {
        pack<U, N> all = pack_load<N>(x + i);
        UNROLL
        for (int k = 0; k < N; k++)
            all.at[k] = F::of(all.at[k]);
        pack_store<N>(y + i, all);
    }
};

struct none_whole {};

/* False: the elements are no integers. */
template <class F> static bool whole_launch(const weir_kernel_args *args)
{
    const int64_t count = count_of(&args->out[0].shape);
    const whole_of<F, uint32_t> narrow = {data_of<uint32_t>(&args->in[0]), data_of<uint32_t>(&args->out[0])};
    const whole_of<F, uint64_t> wide = {data_of<uint64_t>(&args->in[0]), data_of<uint64_t>(&args->out[0])};
    if (args->out[0].dtype == WEIR_I32)
        each<4>(args, narrow, count, packs_fit_all(args));
    else if (args->out[0].dtype == WEIR_I64)
        each<2>(args, wide, count, packs_fit_all(args));
    else
        return false;
    return true;
}

template <> bool whole_launch<none_whole>(const weir_kernel_args *)
{
    return false;
}

#define WRAP(name, launch)                                                                      \
    extern "C" weir_status op_##name##_cuda(const weir_kernel_args *args)                       \
    {                                                                                           \
        WITH_REAL(args->out[0].dtype, T, launch<name##_function, T>(args));                     \
        return launched(args);                                                                  \
    }
#define FUNCTION(name, whole)                                                                   \
    extern "C" weir_status op_##name##_cuda(const weir_kernel_args *args)                       \
    {                                                                                           \
        if (!whole_launch<whole##_whole>(args))                                                 \
            WITH_REAL(args->out[0].dtype, T, function_launch<name##_function, T>(args));        \
        return launched(args);                                                                  \
    }
#define PLAIN(X, name, f, operations, signs, cheap, half, whole) FUNCTION(name, whole)
#define SLOPED(X, name, f, operations, cheap, half, whole, ...) FUNCTION(name, whole) WRAP(name##_grad, gradient_launch)
#define FLAT(X, name, f, operations, half, whole) FUNCTION(name, whole)
FUNCTION_ROWS(PLAIN, )
SLOPE_ROWS(SLOPED, )
FLAT_ROWS(FLAT, )

/* ---- affine ---- */

template <class T> struct affine_of {
    const T *x;
    T *y;
    float scale, shift;
    template <int N> METHOD void at(int64_t i) const
    {
        pack<T, N> all = pack_load<N>(x + i);
        UNROLL
        for (int k = 0; k < N; k++)
            real_store(&all.at[k], scale * real_load(&all.at[k]) + shift);
        pack_store<N>(y + i, all);
    }
};

template <class T> static void affine_launch(const weir_kernel_args *args)
{
    const affine_attrs *attrs = (const affine_attrs *)args->attrs;
    const affine_of<T> f = {data_of<T>(&args->in[0]), data_of<T>(&args->out[0]), (float)attrs->scale, (float)attrs->shift};
    each<16 / sizeof(T)>(args, f, count_of(&args->out[0].shape), packs_fit_all(args));
}

extern "C" weir_status op_affine_cuda(const weir_kernel_args *args)
{
    WITH_REAL(args->out[0].dtype, T, affine_launch<T>(args));
    return launched(args);
}

/* ---- add_many ---- */

/* As which integers are added, which wrap around; reals are added as f32. */
template <class T> struct term_sum {
    using type = float;
    DEVICE float load(const T *x) { return real_load(x); }
    DEVICE void store(T *to, float x) { real_store(to, x); }
};
template <class T, class U> struct integer_sum {
    using type = U;
    DEVICE U load(const T *x) { return (U)*x; }
    DEVICE void store(T *to, U x) { *to = (T)x; }
};
template <> struct term_sum<int64_t> : integer_sum<int64_t, uint64_t> {};
template <> struct term_sum<int32_t> : integer_sum<int32_t, uint32_t> {};
template <> struct term_sum<int8_t> : integer_sum<int8_t, uint32_t> {};
template <> struct term_sum<uint8_t> : integer_sum<uint8_t, uint32_t> {};

/* y = the sum of the terms, in their order; up to MOST of them. */
template <class T, int MOST> struct sum_of {
    T *y;
    int count;
    const T *term[MOST];
    template <int N> METHOD void at(int64_t i) const
    {
        typename term_sum<T>::type sum[N];
        pack<T, N> all = pack_load<N>(term[0] + i);
        UNROLL
        for (int k = 0; k < N; k++)
            sum[k] = term_sum<T>::load(&all.at[k]);
        for (int t = 1; t < count; t++) {
            all = pack_load<N>(term[t] + i);
            UNROLL
            for (int k = 0; k < N; k++)
                sum[k] += term_sum<T>::load(&all.at[k]);
        }
        UNROLL
        for (int k = 0; k < N; k++)
            term_sum<T>::store(&all.at[k], sum[k]);
        pack_store<N>(y + i, all);
    }
};

template <class T, int MOST> static void sum_launch(const weir_kernel_args *args)
{
    sum_of<T, MOST> f = {data_of<T>(&args->out[0]), args->in_count, {}};
    for (int t = 0; t < args->in_count; t++)
        f.term[t] = data_of<T>(&args->in[t]);
    each<16 / sizeof(T)>(args, f, count_of(&args->out[0].shape), packs_fit_all(args));
}

template <class T> static void many_launch(const weir_kernel_args *args)
{
    if (args->in_count <= 16)
        sum_launch<T, 16>(args);
    else
        sum_launch<T, WEIR_ARGS_MAX>(args);
}

extern "C" weir_status op_add_many_cuda(const weir_kernel_args *args)
{
    const weir_dtype dtype = args->out[0].dtype;
    if (dtype == WEIR_I32)
        many_launch<int32_t>(args);
    else if (dtype == WEIR_U8)
        many_launch<uint8_t>(args);
    else if (dtype == WEIR_I64)
        many_launch<int64_t>(args);
    else if (dtype == WEIR_I8)
        many_launch<int8_t>(args);
    else
        WITH_REAL(dtype, T, many_launch<T>(args));
    return launched(args);
}
