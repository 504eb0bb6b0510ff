/* kernels/cuda/rows.h: what kernels that work by rows share: reals read and written as f32, sums over a block of threads
 * in a fixed order, and sums over columns.
 *
 * A block's threads take the elements of a row in turn (thread t has t, t + threads, ...), so what each of them sums up
 * follows from the size of the row and of the block alone; sums of threads are added in a tree of shuffles, and those of
 * warps in another. Norms and softmax have neighbours instead (kernels/cuda/near.h). Sums over rows are made in two
 * kernels: `chunks` blocks each sum up a run of rows (their number follows from that of the rows), and columns_fold() adds
 * those, in a fixed order as well. Both add in double, so that millions of rows lose no digits. Header-only; for nvcc and
 * the emulator.
 */
#ifndef KERNELS_CUDA_ROWS_H
#define KERNELS_CUDA_ROWS_H

#include "kernels/cuda/chunks.h"
#include "kernels/cuda/kernel.h"
#include "kernels/common/view.h"

DEVICE float real_load(const float *x) { return *x; }
DEVICE float real_load(const __half *x) { return __half2float(*x); }
DEVICE float real_load(const __nv_bfloat16 *x) { return __bfloat162float(*x); }
DEVICE void real_store(float *to, float x) { *to = x; }
DEVICE void real_store(__half *to, float x) { *to = __float2half_rn(x); }
DEVICE void real_store(__nv_bfloat16 *to, float x) { *to = __float2bfloat16_rn(x); }

/* Does `...` with T as the type of elements of a dtype that is f32, f16 or bf16. */
#define WITH_REAL(dtype, T, ...)                  \
    do {                                          \
        if ((dtype) == WEIR_F32) {                \
            using T = float;                      \
            __VA_ARGS__;                          \
        } else if ((dtype) == WEIR_F16) {         \
            using T = __half;                     \
            __VA_ARGS__;                          \
        } else {                                  \
            using T = __nv_bfloat16;              \
            __VA_ARGS__;                          \
        }                                         \
    } while (0)

template <class T> static inline T *data_of(const weir_view *view)
{
    return (T *)view->data;
}

/* Elements of a view, of the logical tensor. */
static inline int64_t count_of(const weir_shape *shape)
{
    int64_t count = 1;
    for (int d = 0; d < shape->rank; d++)
        count *= shape->dim[d];
    return count;
}

DEVICE int bits_set(unsigned word)
{
#ifdef WEIR_EMULATED
    return __builtin_popcount(word);
#else
    return __popc(word);
#endif
}

DEVICE int warps_here()
{
    return (int)blockDim.x / WARP;
}

template <class T> DEVICE T warp_sum(T x)
{
    for (int lanes = WARP / 2; lanes; lanes /= 2)
        x += SHUFFLE_XOR(x, lanes);
    return x;
}

DEVICE float warp_max(float x)
{
    for (int lanes = WARP / 2; lanes; lanes /= 2) {
        const float other = SHUFFLE_XOR(x, lanes);
        x = other > x ? other : x;
    }
    return x;
}

/* The sum over all threads of the block, for each of them. `part`: WARP elements of shared memory. */
template <class T> DEVICE T block_sum(T x, T *part)
{
    const int lane = (int)threadIdx.x % WARP;
    x = warp_sum(x);
    if (lane == 0)
        part[threadIdx.x / WARP] = x;
    BARRIER();
    x = warp_sum(lane < warps_here() ? part[lane] : (T)0);
    BARRIER();
    return x;
}

DEVICE float block_max(float x, float *part)
{
    const int lane = (int)threadIdx.x % WARP;
    x = warp_max(x);
    if (lane == 0)
        part[threadIdx.x / WARP] = x;
    BARRIER();
    x = warp_max(part[lane < warps_here() ? lane : 0]);
    BARRIER();
    return x;
}

/* A thread's sum over its elements of a row: runs of a few are added in double, so that a row of millions loses no digits.
 * One run is all that a thread has of shorter rows. */
struct thread_sum {
    enum { RUN = 16 };
    float part = 0;
    int count = 0;
    double runs = 0;
    METHOD void add(float x)
    {
        part += x;
        if (++count < RUN)
            return;
        runs += part;
        part = 0;
        count = 0;
    }
    METHOD void shrink(float by)
    {
        part *= by;
        runs *= by;
    }
    METHOD float all() const { return (float)(runs + part); }
};

/* ---- sums over chunks ---- */

enum { FOLD_COLUMNS = 8, FOLD_WAYS = 32 };

/* out[c] (+)= the sum over `chunks` rows of `part`; thread (way, column) takes every FOLD_WAYS-th row. */
KERNEL(columns_fold)(const double *part, int64_t chunks, int64_t columns, float *out, bool add)
{
    SHARED(double, sums, FOLD_COLUMNS * FOLD_WAYS);
    const int way = (int)threadIdx.x / FOLD_COLUMNS;
    const int64_t column = (int64_t)blockIdx.x * FOLD_COLUMNS + threadIdx.x % FOLD_COLUMNS;
    double sum = 0;
    if (column < columns)
        for (int64_t chunk = way; chunk < chunks; chunk += FOLD_WAYS)
            sum += part[chunk * columns + column];
    sums[threadIdx.x] = sum;
    BARRIER();
    if (way || column >= columns)
        return;
    for (int w = 1; w < FOLD_WAYS; w++)
        sum += sums[w * FOLD_COLUMNS + threadIdx.x];
    out[column] = (float)(add ? out[column] + sum : sum);
}

static inline void fold_columns(const weir_kernel_args *args, const double *part, int64_t chunks, int64_t columns,
                                float *out, bool add)
{
    LAUNCH(columns_fold, (columns + FOLD_COLUMNS - 1) / FOLD_COLUMNS, FOLD_COLUMNS * FOLD_WAYS, args->queue, part,
           chunks, columns, out, add);
}

#endif
