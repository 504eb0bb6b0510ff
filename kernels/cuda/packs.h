/* kernels/cuda/packs.h: elements one by one, or as many at a time as a thread reads best.
 *
 * A pack is N elements that lie together, at an address that is a multiple of their bytes: then they are one access. What is
 * done with elements i ... i + N - 1 is a structure with operands and
 *
 *     template <int N> METHOD void at(int64_t i) const;
 *
 * which reads what it needs before it writes. each() launches it over all elements: in packs of N, and what is left over of
 * them one by one; where an operand is not aligned all go one by one. Results do not depend on that. Header-only; for nvcc and
 * the emulator.
 */
#ifndef KERNELS_CUDA_PACKS_H
#define KERNELS_CUDA_PACKS_H

#include "kernels/cuda/rows.h"

enum { EACH_THREADS = 256, EACH_BLOCKS = 2048 };

template <class T, int N> struct alignas(N * sizeof(T)) pack {
    T at[N];
};

template <int N, class T> DEVICE pack<T, N> pack_load(const T *from)
{
    return *(const pack<T, N> *)from;
}

template <int N, class T> DEVICE void pack_store(T *to, const pack<T, N> &x)
{
    *(pack<T, N> *)to = x;
}

/* The same, 16 bytes, for memory that nobody reads again soon: the cache gives such lines up first. */
template <int N, class T> DEVICE pack<T, N> pack_load_once(const T *from)
{
#ifdef WEIR_EMULATED
    return pack_load<N>(from);
#else
    const uint4 words = __ldcs((const uint4 *)from);
    pack<T, N> x;
    static_assert(sizeof x == sizeof words);
    memcpy(&x, &words, sizeof x);
    return x;
#endif
}

template <int N, class T> DEVICE void pack_store_once(T *to, const pack<T, N> &x)
{
#ifdef WEIR_EMULATED
    pack_store(to, x);
#else
    uint4 words;
    static_assert(sizeof x == sizeof words);
    memcpy(&words, &x, sizeof x);
    __stcs((uint4 *)to, words);
#endif
}

/* Whether packs of so many bytes, 16 or a part of them, may be read there. */
static inline bool packs_fit(const void *at, size_t bytes)
{
    return (uintptr_t)at % bytes == 0;
}

/* The same for all operands of a call. */
static inline bool packs_fit_all(const weir_kernel_args *args)
{
    bool fit = true;
    for (int i = 0; i < args->out_count; i++)
        fit &= packs_fit(args->out[i].data, 16);
    for (int i = 0; i < args->in_count; i++)
        fit &= packs_fit(args->in[i].data, 16);
    return fit;
}

/* Blocks for so many threads' work. */
static inline int64_t each_blocks(int64_t count)
{
    const int64_t blocks = (count + EACH_THREADS - 1) / EACH_THREADS;
    return blocks < EACH_BLOCKS ? blocks : (int64_t)EACH_BLOCKS;
}

/* Elements first ... count - 1, N at a time. */
template <class F, int N> KERNEL_OF(each_pack, EACH_THREADS)(F f, int64_t first, int64_t count)
{
    for (int64_t i = first + THREAD * N; i < count; i += THREADS * N)
        f.template at<N>(i);
}

template <int N, class F> static inline void each(const weir_kernel_args *args, const F &f, int64_t count, bool fit)
{
    const int64_t whole = fit && N > 1 ? count / N * N : 0;
    LAUNCH((each_pack<F, N>), each_blocks(whole / N), EACH_THREADS, args->queue, f, (int64_t)0, whole);
    LAUNCH((each_pack<F, 1>), each_blocks(count - whole), EACH_THREADS, args->queue, f, whole, count);
}

#endif
