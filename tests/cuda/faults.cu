/* faults.cu: see the header. With FAULT false, a kernel is as it should be. */
#include "kernels/cuda/kernel.h"
#include "tests/cuda/faults.h"

enum { MOST = 64 /* threads */ };

template <bool FAULT> KERNEL(missing_barrier)(const float *x, float *y)
{
    SHARED(float, sums, MOST);
    const int t = (int)threadIdx.x;
    sums[t] = x[t];
    BARRIER();
    for (int half = (int)blockDim.x / 2; half; half /= 2) {
        if (t < half)
            sums[t] += sums[t + half];
        if (!FAULT)
            BARRIER();
    }
    if (t == 0)
        y[0] = sums[0];
}

template <bool FAULT> KERNEL(early_reuse)(const float *x, float *y)
{
    SHARED(float, tile, MOST);
    const int t = (int)threadIdx.x;
    for (int i = 0; i < FAULT_TILES; i++) {
        tile[t] = x[i * MOST + t];
        BARRIER();
        y[i * MOST + t] = tile[MOST - 1 - t];
        if (!FAULT)
            BARRIER();
    }
}

template <bool FAULT> KERNEL(unwritten_read)(const float *x, float *y)
{
    SHARED(float, tile, MOST + 1);
    const int t = (int)threadIdx.x;
    tile[t] = x[t];
    if (!FAULT && t == 0)
        tile[MOST] = 0;
    BARRIER();
    y[t] = tile[t + 1];
}

template <bool FAULT> KERNEL(missing_warp_barrier)(const float *x, float *y)
{
    SHARED(float, tile, WARP);
    const int t = (int)threadIdx.x;
    tile[t] = x[t];
    if (!FAULT)
        WARP_BARRIER();
    y[t] = tile[WARP - 1 - t];
}

template <bool FAULT> KERNEL(outside_index)(const float *x, float *y)
{
    SHARED(float, tile, MOST);
    const int t = (int)threadIdx.x;
    tile[t + FAULT] = x[t];
    BARRIER();
    y[t] = tile[t];
}

template <bool FAULT> KERNEL(outside_write)(const float *x, float *y)
{
    SHARED(float, tile, MOST);
    SHARED(float, other, MOST);
    const int t = (int)threadIdx.x;
    float *const to = tile;
    to[t + FAULT] = x[t];
    other[t] = x[t];
    BARRIER();
    y[t] = other[t];
}

template <bool FAULT> KERNEL(rest_index)(const float *x, float *y)
{
    SHARED_REST(float, tile);
    const int t = (int)threadIdx.x;
    tile[t + FAULT] = x[t];
    BARRIER();
    y[t] = tile[t];
}

template <bool FAULT> KERNEL(two_barriers)(const float *x, float *y)
{
    const int t = (int)threadIdx.x;
    if (FAULT && t >= MOST / 2)
        BARRIER();
    else
        BARRIER();
    y[t] = x[t];
}

template <bool FAULT> KERNEL(barrier_after_end)(const float *x, float *y)
{
    const int t = (int)threadIdx.x;
    y[t] = x[t];
    if (FAULT && t >= MOST / 2)
        return;
    BARRIER();
}

template <bool FAULT> KERNEL(partial_warp)(const float *x, float *y)
{
    const int t = (int)threadIdx.x;
    y[t] = x[t];
    if (!FAULT || t % WARP < WARP / 2)
        y[t] = SHUFFLE_XOR(x[t], 1);
}

template <bool FAULT> KERNEL(two_shuffles)(const float *x, float *y)
{
    const int t = (int)threadIdx.x;
    if (!FAULT || t % WARP < WARP / 2)
        y[t] = SHUFFLE_XOR(x[t], 1);
    else
        y[t] = SHUFFLE_XOR(x[t], 2);
}

template <bool FAULT> KERNEL(short_warp)(const float *x, float *y)
{
    const int t = (int)threadIdx.x;
    y[t] = x[t];
    if (FAULT || t < WARP)
        y[t] = SHUFFLE_DOWN(x[t], 1);
}

template <bool FAULT> KERNEL(partial_ballot)(const float *x, float *y)
{
    const int t = (int)threadIdx.x;
    y[t] = 0;
    if (!FAULT || t != 3)
        y[t] = BALLOT(x[t] > 0) ? 1.0f : 2.0f;
}

template <bool FAULT> KERNEL(trapped)(const float *x, float *y)
{
    const int t = (int)threadIdx.x;
    if (FAULT && t == 5)
        TRAP();
    y[t] = x[t];
}

template <bool FAULT> KERNEL(race)(const float *x, float *y)
{
    const int t = (int)threadIdx.x;
    if (t == 0 || (FAULT && t == WARP))
        y[0] = x[0];
}

template <bool FAULT> KERNEL(race_of_blocks)(const float *x, float *y)
{
    if (threadIdx.x == 0 && (FAULT || blockIdx.x == 0))
        y[0] = x[0];
}

#define RUN(name, threads, blocks, FAULT)                                                                           \
    LAUNCH_SHARED((name<FAULT>), blocks, threads, FAULT_##name == FAULT_rest_index ? MOST * sizeof(float) : 0,      \
                  args->queue, x, y)

extern "C" __attribute__((visibility("default"))) fault_run_fn fault_run;

extern "C" weir_status fault_run(fault_name name, bool mended, uint64_t seed, const weir_kernel_args *args,
                                 const float *x, float *y)
{
    emulate_seed(seed);
    switch (name) {
#define X(name, threads, blocks)                 \
    case FAULT_##name:                           \
        if (mended)                              \
            RUN(name, threads, blocks, false);   \
        else                                     \
            RUN(name, threads, blocks, true);    \
        break;
        FAULTS(X)
#undef X
    case FAULT_NAMES:
        break;
    }
    return launched(args);
}
