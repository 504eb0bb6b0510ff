/* kernels/cast/cast.cu: from any dtype to any other on a GPU; cast.c has the rules. A thread has four elements. */
#include "kernels/cast/formula.h"
#include "kernels/cuda/packs.h"

/* An element as the number that is converted: integers as such, reals as f32. */
DEVICE int32_t number(const uint8_t *x) { return *x; }
DEVICE int32_t number(const int32_t *x) { return *x; }
template <class T> DEVICE float number(const T *x) { return real_load(x); }

DEVICE void convert(int32_t x, int32_t *to) { *to = x; }
DEVICE void convert(int32_t x, uint8_t *to) { *to = i32_to_u8(x); }
DEVICE void convert(float x, int32_t *to) { *to = f32_to_i32(x); }
DEVICE void convert(float x, uint8_t *to) { *to = f32_to_u8(x); }
template <class T, class X> DEVICE void convert(X x, T *to) { real_store(to, (float)x); }

template <class X, class Y> struct cast_of {
    const X *x;
    Y *y;
    template <int N> METHOD void at(int64_t i) const
    {
        const pack<X, N> from = pack_load<N>(x + i);
        pack<Y, N> to;
        UNROLL
        for (int k = 0; k < N; k++)
            convert(number(&from.at[k]), &to.at[k]);
        pack_store<N>(y + i, to);
    }
};

/* Does `...` with T as the type of elements of a dtype. */
#define WITH_DTYPE(dtype, T, ...)          \
    do {                                   \
        if ((dtype) == WEIR_I32) {         \
            using T = int32_t;             \
            __VA_ARGS__;                   \
        } else if ((dtype) == WEIR_U8) {   \
            using T = uint8_t;             \
            __VA_ARGS__;                   \
        } else {                           \
            WITH_REAL(dtype, T, __VA_ARGS__); \
        }                                  \
    } while (0)

template <class X, class Y> static void cast_launch(const weir_kernel_args *args)
{
    const cast_of<X, Y> f = {data_of<X>(&args->in[0]), data_of<Y>(&args->out[0])};
    each<4>(args, f, count_of(&args->out[0].shape), packs_fit_all(args));
}

extern "C" weir_status op_cast_cuda(const weir_kernel_args *args)
{
    WITH_DTYPE(args->in[0].dtype, X, WITH_DTYPE(args->out[0].dtype, Y, cast_launch<X, Y>(args)));
    return launched(args);
}
