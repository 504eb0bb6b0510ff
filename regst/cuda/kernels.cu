/* regst/cuda/kernels.cu: see kernels.h. */
#include "kernels/cuda/kernel.h"
#include "regst/cuda/kernels.h"

static const int64_t BLOCK = 256, BLOCKS_MAX = 1024;

DEVICE float value(float x)
{
    return x;
}

DEVICE float value(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}

DEVICE float value(__half x)
{
    return __half2float(x);
}

DEVICE void put(float *to, float x)
{
    *to = x;
}

DEVICE void put(__nv_bfloat16 *to, float x)
{
    *to = __float2bfloat16_rn(x);
}

DEVICE void put(__half *to, float x)
{
    *to = __float2half_rn(x);
}

KERNEL(set_clock)(weir_clock *clock, weir_clock now)
{
    if (THREAD == 0)
        *clock = now;
}

template <class T> KERNEL(sum)(struct sum_terms terms, T *out, int64_t items)
{
    for (int64_t i = THREAD; i < items; i += THREADS) {
        float all = value(((const T *)terms.of[0])[i]);
        for (int m = 1; m < terms.count; m++)
            all += value(((const T *)terms.of[m])[i]);
        put(out + i, all);
    }
}

extern "C" weir_status kernels_set_clock(const weir_kernel_args *args, weir_clock *clock, weir_clock now)
{
    LAUNCH(set_clock, 1, 1, args->queue, clock, now);
    return launched(args);
}

extern "C" weir_status kernels_sum(const weir_kernel_args *args, const struct sum_terms *terms, weir_dtype dtype,
                                   void *out, int64_t items)
{
    int64_t blocks = (items + BLOCK - 1) / BLOCK;
    blocks = blocks < BLOCKS_MAX ? blocks : BLOCKS_MAX;
    if (dtype == WEIR_F32)
        LAUNCH((sum<float>), blocks, BLOCK, args->queue, *terms, (float *)out, items);
    else if (dtype == WEIR_BF16)
        LAUNCH((sum<__nv_bfloat16>), blocks, BLOCK, args->queue, *terms, (__nv_bfloat16 *)out, items);
    else
        LAUNCH((sum<__half>), blocks, BLOCK, args->queue, *terms, (__half *)out, items);
    return launched(args);
}
