/* kernels/cast/cast.cu: from any dtype to any other on a GPU; cast.c has the rules. A thread has four elements. Parameters that
 * become halves are cast by one launch for many. */
#include "kernels/cast/formula.h"
#include "kernels/cuda/many.h"
#include "kernels/cuda/packs.h"

/* An element as the number that is converted: integers as such, reals as f32. */
DEVICE int32_t number(const uint8_t *x) { return *x; }
DEVICE int32_t number(const int8_t *x) { return *x; }
DEVICE int32_t number(const int32_t *x) { return *x; }
DEVICE int64_t number(const int64_t *x) { return *x; }
template <class T> DEVICE float number(const T *x) { return real_load(x); }

DEVICE void convert(int32_t x, int32_t *to) { *to = x; }
DEVICE void convert(int32_t x, uint8_t *to) { *to = i32_to_u8(x); }
DEVICE void convert(int32_t x, int8_t *to) { *to = i32_to_i8(x); }
DEVICE void convert(int32_t x, int64_t *to) { *to = x; }
DEVICE void convert(int64_t x, int32_t *to) { *to = i64_to_i32(x); }
DEVICE void convert(int64_t x, uint8_t *to) { *to = i32_to_u8(i64_to_i32(x)); }
DEVICE void convert(int64_t x, int8_t *to) { *to = i32_to_i8(i64_to_i32(x)); }
DEVICE void convert(int64_t x, int64_t *to) { *to = x; }
DEVICE void convert(float x, int32_t *to) { *to = f32_to_i32(x); }
DEVICE void convert(float x, uint8_t *to) { *to = f32_to_u8(x); }
DEVICE void convert(float x, int8_t *to) { *to = f32_to_i8(x); }
DEVICE void convert(float x, int64_t *to) { *to = f32_to_i64(x); }
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
        } else if ((dtype) == WEIR_I64) {  \
            using T = int64_t;             \
            __VA_ARGS__;                   \
        } else if ((dtype) == WEIR_I8) {   \
            using T = int8_t;              \
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

/* ---- many at once ---- */

enum { CAST_CHUNK = 8192 /* elements */ };

template <class Y> struct cast_item {
    cast_of<float, Y> of;
    int64_t count;
};

template <class Y> KERNEL_OF(cast_all, EACH_THREADS)(many<cast_item<Y>> all)
{
    for (uint32_t chunk = blockIdx.x; chunk < all.first[all.count]; chunk += gridDim.x) {
        const int t = all.tensor_of(chunk);
        const cast_item<Y> &x = all.of[t];
        const int64_t first = (int64_t)(chunk - all.first[t]) * CAST_CHUNK;
        const int64_t end = first + CAST_CHUNK < x.count ? first + CAST_CHUNK : x.count;
        for (int64_t i = first + 4 * threadIdx.x; i < end / 4 * 4; i += 4 * blockDim.x)
            x.of.template at<4>(i);
        for (int64_t i = end / 4 * 4 + threadIdx.x; i < end; i += blockDim.x)
            x.of.template at<1>(i);
    }
}

template <class Y> static void cast_list_launch(const weir_kernel_args *args, many<cast_item<Y>> *all)
{
    LAUNCH((cast_all<Y>), all->chunks() < EACH_BLOCKS ? all->chunks() : (uint32_t)EACH_BLOCKS, EACH_THREADS, args->queue, *all);
    all->clear();
}

/* Whether it may be one of many: from f32 to this type, at aligned addresses. */
static bool is_one_of(const weir_kernel_args *args, weir_dtype dtype)
{
    return args->in[0].dtype == WEIR_F32 && args->out[0].dtype == dtype && packs_fit_all(args);
}

template <class Y> static void cast_many(const weir_kernel_args *const *args, int count, weir_dtype dtype)
{
    many<cast_item<Y>> all = {};
    static_assert(sizeof all <= MANY_BYTES, "it is an argument of a kernel");
    for (int i = 0; i < count; i++) {
        const int64_t elements = count_of(&args[i]->out[0].shape);
        if (!is_one_of(args[i], dtype))
            continue;
        all.add({{data_of<float>(&args[i]->in[0]), data_of<Y>(&args[i]->out[0])}, elements}, (elements + CAST_CHUNK - 1) / CAST_CHUNK);
        if (all.full())
            cast_list_launch<Y>(args[0], &all);
    }
    cast_list_launch<Y>(args[0], &all);
}

extern "C" weir_status op_cast_cuda_many(const weir_kernel_args *const *args, int count)
{
    weir_status status = WEIR_OK;
    cast_many<__half>(args, count, WEIR_F16);
    cast_many<__nv_bfloat16>(args, count, WEIR_BF16);
    for (int i = 0; i < count && !status; i++)
        if (!is_one_of(args[i], WEIR_F16) && !is_one_of(args[i], WEIR_BF16))
            status = op_cast_cuda(args[i]);
    return status ? status : launched(args[0]);
}
