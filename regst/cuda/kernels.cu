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

/* ---- moves ---- */

enum { MOVE_THREADS = 256, MOVE_BLOCKS = 64 };

struct alignas(16) move_pack {
    uint32_t of[4];
};

/* A chunk by a block, whose threads load all that is theirs before they store; and what is left over, byte by byte. */
template <class T> DEVICE void move_chunk(char *to, const char *from, int bytes)
{
    enum { EACH = MOVE_CHUNK / (int)sizeof(T) / MOVE_THREADS < 8 ? MOVE_CHUNK / (int)sizeof(T) / MOVE_THREADS : 8 };
    const int count = bytes / (int)sizeof(T);
    for (int first = 0; first < count; first += EACH * MOVE_THREADS) {
        T x[EACH];
        UNROLL
        for (int k = 0; k < EACH; k++) {
            const int i = first + k * MOVE_THREADS + (int)threadIdx.x;
            if (i < count)
                x[k] = ((const T *)from)[i];
        }
        UNROLL
        for (int k = 0; k < EACH; k++) {
            const int i = first + k * MOVE_THREADS + (int)threadIdx.x;
            if (i < count)
                ((T *)to)[i] = x[k];
        }
    }
    for (int i = count * (int)sizeof(T) + (int)threadIdx.x; i < bytes; i += MOVE_THREADS)
        to[i] = from[i];
}

KERNEL_OF(move_all, MOVE_THREADS)(struct move_parts parts)
{
    for (uint64_t chunk = blockIdx.x; chunk < parts.chunks; chunk += gridDim.x) {
        int p = 0;
        while (p + 1 < parts.count && parts.of[p + 1].first <= chunk)
            p++;
        const uint64_t at = (chunk - parts.of[p].first) * MOVE_CHUNK, left = parts.of[p].bytes - at;
        char *to = (char *)parts.of[p].to + at;
        const char *from = (const char *)parts.of[p].from + at;
        const int bytes = left < MOVE_CHUNK ? (int)left : (int)MOVE_CHUNK;
        const uintptr_t both = (uintptr_t)to | (uintptr_t)from;
        if (both % sizeof(move_pack) == 0)
            move_chunk<move_pack>(to, from, bytes);
        else if (both % sizeof(uint32_t) == 0)
            move_chunk<uint32_t>(to, from, bytes);
        else
            move_chunk<char>(to, from, bytes);
    }
}

extern "C" weir_status kernels_move(const weir_kernel_args *args, const struct move_parts *parts)
{
    LAUNCH(move_all, parts->chunks < MOVE_BLOCKS ? parts->chunks : (uint64_t)MOVE_BLOCKS, MOVE_THREADS, args->queue, *parts);
    return launched(args);
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
