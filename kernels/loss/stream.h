/* kernels/loss/stream.h: a block of threads goes over a row of logits, 16 bytes at a time. Each thread has IN_FLIGHT
 * runs of elements in flight: it issues their loads before it uses the first. The number of threads follows from the
 * row's length alone. Header-only; for nvcc and the emulator.
 */
#ifndef KERNELS_LOSS_STREAM_H
#define KERNELS_LOSS_STREAM_H

#include "kernels/cuda/packs.h"
#include "kernels/elementwise/fastmath.h"

enum { LOSS_THREADS = 128, LOSS_BLOCKS = 8, IN_FLIGHT = 4 };

/* Elements of 16 bytes. */
template <class T> constexpr int PACK = 16 / (int)sizeof(T);

/* Elements of a run. The types share it, so a sum has the same order in f32 as in halves. */
enum { RUN = 8 };

/* Threads for a row, a whole number of warps: the threads take equal numbers of batches of IN_FLIGHT runs. */
static inline int stream_threads(int64_t count)
{
    const int64_t batch = RUN * IN_FLIGHT, most = batch * LOSS_THREADS;
    const int64_t batches = count > most ? (count + most - 1) / most : 1;
    const int64_t threads = (count + batches * batch - 1) / (batches * batch);
    return threads > WARP ? (int)(threads + WARP - 1) / WARP * WARP : (int)WARP;
}

/* Whether rows of `count` elements that lie one after the other from x on are whole runs at multiples of 16 bytes. */
static inline bool stream_fits(const void *x, int64_t count)
{
    return packs_fit(x, 16) && count % RUN == 0;
}

/* e^x with the hardware's 2^x: its relative error is below 3e-7 + 1e-7 |x|. */
DEVICE float near_exp(float x)
{
    return EXP2(x * 1.44269504f);
}

/* Elements of a row before the first whose address is a multiple of 16. */
template <class T> DEVICE int64_t stream_head(const T *x)
{
    return (int64_t)((16 - (uintptr_t)x % 16) % 16 / sizeof(T));
}

template <class T, int N> DEVICE pack<T, N> pack_all(float value)
{
    pack<T, N> x;
    UNROLL for (int j = 0; j < N; j++)
        real_store(x.at + j, value);
    return x;
}

/* ---- runs ---- */

template <class T> DEVICE pack<T, RUN> run_from(const uint32_t *words)
{
    pack<T, RUN> x;
    memcpy((void *)&x, words, sizeof x);
    return x;
}

/* The run at x, an address that is a multiple of 16. */
template <class T> DEVICE pack<T, RUN> run_load(const T *x)
{
    pack<T, PACK<T>> part[RUN / PACK<T>];
    uint32_t words[sizeof part / 4];
    UNROLL for (int i = 0; i < RUN / PACK<T>; i++)
        part[i] = pack_load_once<PACK<T>>(x + i * PACK<T>);
    memcpy(words, part, sizeof part);
    return run_from<T>(words);
}

/* The run at x, an address `shift` bytes behind a multiple of 16, out of loads that overlap it. */
template <class T> DEVICE pack<T, RUN> run_shifted(const T *x, unsigned shift)
{
    enum { PARTS = RUN / PACK<T> + 1, WORDS = 4 * PARTS };
    pack<T, PACK<T>> part[PARTS];
    uint32_t words[WORDS];
    UNROLL for (int i = 0; i < PARTS; i++)
        part[i] = pack_load<PACK<T>>((const T *)((const char *)x - shift) + i * PACK<T>);
    memcpy(words, part, sizeof words);
    UNROLL for (int i = 0; i < WORDS - 2; i++)
        words[i] = shift & 8 ? words[i + 2] : words[i];
    UNROLL for (int i = 0; i < WORDS - 3; i++)
        words[i] = shift & 4 ? words[i + 1] : words[i];
    UNROLL for (int i = 0; i < WORDS - 4; i++)
        words[i] = (uint32_t)(((uint64_t)words[i + 1] << 32 | words[i]) >> (shift & 3) * 8);
    return run_from<T>(words);
}

/* A run of `count` elements at x, and `other` behind them. A row has three such runs at most, so this saves registers
 * rather than time: it shifts in one element after the other, at the run's end. */
template <class T> DEVICE pack<T, RUN> run_of(const T *x, int count, float other)
{
    enum { WORDS = RUN * sizeof(T) / 4 };
    uint32_t words[WORDS + 1] = {};
    ROLLED for (int j = 0; j < RUN; j++) {
        T next;
        if (j < count)
            next = x[j];
        else
            real_store(&next, other);
        memcpy(words + WORDS, &next, sizeof next);
        UNROLL for (int i = 0; i < WORDS; i++)
            words[i] = (uint32_t)(((uint64_t)words[i + 1] << 32 | words[i]) >> (sizeof(T) * 8 - 1) >> 1);
    }
    return run_from<T>(words);
}

/* ---- two elements that lie together ---- */

DEVICE __half2 two_of(const __half *x) { return {x[0], x[1]}; }
DEVICE __nv_bfloat162 two_of(const __nv_bfloat16 *x) { return {x[0], x[1]}; }

DEVICE float2 two_load(const float *x) { return {x[0], x[1]}; }
DEVICE float2 two_load(const __half *x) { return __half22float2(two_of(x)); }
DEVICE float2 two_load(const __nv_bfloat16 *x)
{
    uint32_t bits;
    memcpy(&bits, x, sizeof bits);
    return {fast_float(bits << 16), fast_float(bits & 0xffff0000u)};
}

template <class T, class TWO> DEVICE void two_store(T *to, const TWO &two)
{
    to[0] = two.x;
    to[1] = two.y;
}

DEVICE void two_store(__half *to, float first, float second) { two_store(to, __floats2half2_rn(first, second)); }
DEVICE void two_store(__nv_bfloat16 *to, float first, float second)
{
    two_store(to, __floats2bfloat162_rn(first, second));
}
DEVICE void two_store(float *to, float first, float second)
{
    to[0] = first;
    to[1] = second;
}

/* The largest element of some runs; NaN if there is no other. */
DEVICE float runs_max(const pack<float, RUN> (&x)[IN_FLIGHT])
{
    float most = x[0].at[0];
    UNROLL for (int k = 0; k < IN_FLIGHT; k++)
        UNROLL for (int j = 0; j < RUN; j++)
            most = fmaxf(most, x[k].at[j]);
    return most;
}

template <class T> DEVICE float runs_max(const pack<T, RUN> (&x)[IN_FLIGHT])
{
    auto most = two_of(x[0].at);
    UNROLL for (int k = 0; k < IN_FLIGHT; k++)
        UNROLL for (int j = 0; j < RUN; j += 2)
            most = __hmax2(most, two_of(x[k].at + j));
    return fmaxf(real_load(&most.x), real_load(&most.y));
}

#endif
