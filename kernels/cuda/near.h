/* kernels/cuda/near.h: a row whose elements lie with the threads of a block, ROW_NEAR neighbours at a time.
 *
 *     thread 0: 0 ... 7     thread 1: 8 ... 15     ...     a row of more than ROW_HELD: from the block's end on again
 *
 * The thread that has an element follows from the row's length alone (row_threads), and the order of sums follows from
 * that: a thread adds its neighbours, a tree of shuffles adds the threads of a warp, and each thread adds the warps. Only
 * the width of loads follows from addresses: where all rows begin at a multiple of a pack's bytes, a pack is one load, else
 * the same thread loads the same elements one by one.
 *
 * A function of a row reads it as a held_row, which lies in registers, or as a far_row, which is longer and is read again
 * for each pass. Both have
 *
 *     row.sums(all, f)    f(at, values, part) adds a pack's terms to `part`; all[n]: the thread's own sums
 *     row.each(f)         f(at, values) for each pack
 *
 * Header-only; for nvcc and the emulator.
 */
#ifndef KERNELS_CUDA_NEAR_H
#define KERNELS_CUDA_NEAR_H

#include <type_traits>

#include "kernels/cuda/packs.h"

/* Elements first ... first + K - 1 of a row. WHOLE: rows are whole packs, so all of them are there, or none. */
template <int K, bool WHOLE = false> struct cells {
    int64_t row, first, columns;
    METHOD int64_t column(int k) const { return first + k; }
    METHOD bool any() const { return first < columns; }
    METHOD bool there(int k) const { return WHOLE || first + k < columns; } /* where any() is */
    METHOD bool pack_there() const { return WHOLE ? any() : K > 1 && first + K <= columns; }
};

/* ---- elements as they lie in memory ---- */

/* K elements. Types of less than 32 bits lie in words: nvcc takes a pack of them apart as soon as it is loaded, which waits for
 * memory, and stores halves one by one. */
template <class T, int K> constexpr bool near_words = sizeof(T) < 4 && K * sizeof(T) % 4 == 0;
template <class T, int K, bool WORDS = near_words<T, K>> struct near_bits {
    T at[K];
};
template <class T, int K> struct near_bits<T, K, true> {
    uint32_t word[K * sizeof(T) / 4];
};

DEVICE float near_real(uint8_t x) { return x; }
template <class T> DEVICE float near_real(T x) { return real_load(&x); }
DEVICE void near_round(uint8_t *to, float x) { *to = (uint8_t)x; }
template <class T> DEVICE void near_round(T *to, float x) { real_store(to, x); }

/* The elements of a word. */
DEVICE void word_widen(uint32_t word, float *x, const uint8_t *)
{
    UNROLL
    for (int i = 0; i < 4; i++)
        x[i] = (float)(word >> 8 * i & 0xff);
}

DEVICE void word_widen(uint32_t word, float *x, const __half *)
{
    __half2 pair;
    memcpy((void *)&pair, &word, sizeof pair);
    x[0] = __low2float(pair);
    x[1] = __high2float(pair);
}

DEVICE void word_widen(uint32_t word, float *x, const __nv_bfloat16 *)
{
    const uint32_t bits[2] = {word << 16, word & 0xffff0000u};
    memcpy(&x[0], &bits[0], sizeof x[0]);
    memcpy(&x[1], &bits[1], sizeof x[1]);
}

DEVICE uint32_t word_narrow(const float *x, const uint8_t *)
{
    uint32_t word = 0;
    UNROLL
    for (int i = 0; i < 4; i++)
        word |= (uint32_t)x[i] << 8 * i;
    return word;
}

DEVICE uint32_t word_narrow(const float *x, const __half *)
{
    const __half2 pair = __floats2half2_rn(x[0], x[1]);
    uint32_t word;
    memcpy(&word, &pair, sizeof word);
    return word;
}

DEVICE uint32_t word_narrow(const float *x, const __nv_bfloat16 *)
{
    const __nv_bfloat162 pair = __floats2bfloat162_rn(x[0], x[1]);
    uint32_t word;
    memcpy(&word, &pair, sizeof word);
    return word;
}

/* One, two or four words at once. */
DEVICE void words_load(const uint32_t *from, uint32_t (&word)[1]) { word[0] = *from; }
DEVICE void words_store(uint32_t *to, const uint32_t (&word)[1]) { *to = word[0]; }

DEVICE void words_load(const uint32_t *from, uint32_t (&word)[2])
{
    const uint2 all = *(const uint2 *)from;
    word[0] = all.x, word[1] = all.y;
}

DEVICE void words_load(const uint32_t *from, uint32_t (&word)[4])
{
    const uint4 all = *(const uint4 *)from;
    word[0] = all.x, word[1] = all.y, word[2] = all.z, word[3] = all.w;
}

DEVICE void words_store(uint32_t *to, const uint32_t (&word)[2])
{
    *(uint2 *)to = make_uint2(word[0], word[1]);
}

DEVICE void words_store(uint32_t *to, const uint32_t (&word)[4])
{
    *(uint4 *)to = make_uint4(word[0], word[1], word[2], word[3]);
}

template <class T> using near_unsigned = std::conditional_t<sizeof(T) == 1, uint8_t, uint16_t>;

/* The elements of a row that begins at `from`; what is not there is 0. `packs`: a pack may be read as one. */
template <class T, int K, bool WHOLE>
DEVICE near_bits<T, K> near_load(const T *from, const cells<K, WHOLE> &at, bool packs)
{
    near_bits<T, K> x = {};
    from += at.first;
    if constexpr (near_words<T, K>) {
        constexpr int E = 4 / sizeof(T);
        if (packs && at.pack_there()) {
            words_load((const uint32_t *)from, x.word);
        } else if (!WHOLE) {
            UNROLL
            for (int k = 0; k < K; k++)
                if (at.there(k))
                    x.word[k / E] |= (uint32_t)((const near_unsigned<T> *)from)[k] << k % E * (32 / E);
        }
    } else if (packs && at.pack_there()) {
        const pack<T, K> all = pack_load<K>(from);
        UNROLL
        for (int k = 0; k < K; k++)
            x.at[k] = all.at[k];
    } else if (!WHOLE) {
        UNROLL
        for (int k = 0; k < K; k++)
            if (at.there(k))
                x.at[k] = from[k];
    }
    return x;
}

template <class T, int K, bool WHOLE>
DEVICE void near_store(T *to, const cells<K, WHOLE> &at, bool packs, const near_bits<T, K> &x)
{
    to += at.first;
    if constexpr (near_words<T, K>) {
        constexpr int E = 4 / sizeof(T);
        if (packs && at.pack_there()) {
            words_store((uint32_t *)to, x.word);
        } else if (!WHOLE) {
            UNROLL
            for (int k = 0; k < K; k++)
                if (at.there(k))
                    ((near_unsigned<T> *)to)[k] = (near_unsigned<T>)(x.word[k / E] >> k % E * (32 / E));
        }
    } else if (packs && at.pack_there()) {
        pack<T, K> all;
        UNROLL
        for (int k = 0; k < K; k++)
            all.at[k] = x.at[k];
        pack_store<K>(to, all);
    } else if (!WHOLE) {
        UNROLL
        for (int k = 0; k < K; k++)
            if (at.there(k))
                to[k] = x.at[k];
    }
}

template <class T, int K> DEVICE void near_widen(const near_bits<T, K> &bits, float (&x)[K])
{
    if constexpr (near_words<T, K>) {
        constexpr int E = 4 / sizeof(T);
        UNROLL
        for (int k = 0; k < K; k += E)
            word_widen(bits.word[k / E], x + k, (const T *)nullptr);
    } else {
        UNROLL
        for (int k = 0; k < K; k++)
            x[k] = near_real(bits.at[k]);
    }
}

template <class T, int K> DEVICE near_bits<T, K> near_narrow(const float (&x)[K])
{
    near_bits<T, K> bits;
    if constexpr (near_words<T, K>) {
        constexpr int E = 4 / sizeof(T);
        UNROLL
        for (int k = 0; k < K; k += E)
            bits.word[k / E] = word_narrow(x + k, (const T *)nullptr);
    } else {
        UNROLL
        for (int k = 0; k < K; k++)
            near_round(&bits.at[k], x[k]);
    }
    return bits;
}

/* K times the same element. */
template <class T, int K> DEVICE near_bits<T, K> near_all(T x)
{
    near_bits<T, K> bits;
    if constexpr (near_words<T, K>) {
        UNROLL
        for (uint32_t &word : bits.word)
            word = x * (sizeof(T) == 1 ? 0x01010101u : 0x00010001u);
    } else {
        UNROLL
        for (int k = 0; k < K; k++)
            bits.at[k] = x;
    }
    return bits;
}

/* The bits in the place of the values that they are widened to. */
template <class T, int K> DEVICE void near_keep(const near_bits<T, K> &bits, float (&x)[K])
{
    UNROLL
    for (int k = 0; k < (int)(sizeof bits / sizeof x[0]); k++)
        memcpy(&x[k], (const char *)&bits + k * sizeof x[0], sizeof x[0]);
    if (sizeof bits < sizeof x[0])
        memcpy(&x[0], &bits, sizeof bits);
}

template <class T, int K> DEVICE near_bits<T, K> near_kept(const float (&x)[K])
{
    near_bits<T, K> bits;
    UNROLL
    for (int k = 0; k < (int)(sizeof bits / sizeof x[0]); k++)
        memcpy((char *)&bits + k * sizeof x[0], &x[k], sizeof x[0]);
    if (sizeof bits < sizeof x[0])
        memcpy((void *)&bits, &x[0], sizeof bits);
    return bits;
}

/* As f32. */
template <class T, int K, bool WHOLE>
DEVICE void near_get(const T *from, const cells<K, WHOLE> &at, bool packs, float (&x)[K])
{
    near_widen(near_load(from, at, packs), x);
}

template <class T, int K, bool WHOLE>
DEVICE void near_put(T *to, const cells<K, WHOLE> &at, bool packs, const float (&x)[K])
{
    near_store(to, at, packs, near_narrow<T>(x));
}

/* Whether rows of `count` elements at `data` may be read in packs. */
template <class T> static inline bool near_fits(const T *data, int64_t count)
{
    return count % ROW_NEAR == 0 && packs_fit(data, ROW_NEAR * sizeof(T));
}

/* The same address, as one that differs between threads for all that nvcc knows. It moves a value that all threads load from
 * one address to a uniform register at once, which waits for memory. All threads of a warp call it. */
template <class T> DEVICE const T *near_apart(const T *at)
{
    return at + SHUFFLE_FROM(0, (int)threadIdx.x % WARP);
}

/* ---- sums of a block ---- */

/* Shared memory for them: NEAR_PARTS quads. Sums use its halves in turn, so one barrier is enough for each. */
enum { NEAR_WARPS = ROW_THREADS_MAX / WARP, NEAR_SUMS = 2, NEAR_PARTS = 2 * NEAR_SUMS * NEAR_WARPS / 4 };
using near_quad = pack<float, 4>;

struct near_parts {
    float *first;
    int half; /* which the next one uses */
    METHOD float *take()
    {
        float *const part = first + half * (NEAR_SUMS * NEAR_WARPS);
        half = !half;
        return part;
    }
};

DEVICE near_parts near_shared(near_quad *part)
{
    return {(float *)part, 0};
}

/* x[n] over all threads of the block, for each of them. All threads call it, or none. */
template <int N> DEVICE void near_sums(float (&x)[N], near_parts &parts)
{
    float *const part = parts.take();
    const int warp = (int)threadIdx.x / WARP, warps = warps_here();
    UNROLL
    for (int n = 0; n < N; n++) {
        x[n] = warp_sum(x[n]);
        if (threadIdx.x % WARP == 0)
            part[n * NEAR_WARPS + warp] = x[n];
    }
    BARRIER();
    UNROLL
    for (int n = 0; n < N; n++)
        x[n] = 0;
    ROLLED
    for (int w = 0; w < warps; w += 4) {
        UNROLL
        for (int n = 0; n < N; n++) {
            const near_quad four = pack_load<4>(part + n * NEAR_WARPS + w);
            x[n] += four.at[0];
            UNROLL
            for (int i = 1; i < 4; i++)
                x[n] += w + i < warps ? four.at[i] : 0.0f;
        }
    }
}

DEVICE float near_sum(float x, near_parts &parts)
{
    float all[1] = {x};
    near_sums(all, parts);
    return all[0];
}

DEVICE float near_max(float x, near_parts &parts)
{
    float *const part = parts.take();
    x = warp_max(x);
    if (threadIdx.x % WARP == 0)
        part[threadIdx.x / WARP] = x;
    BARRIER();
    for (int w = 0; w < warps_here(); w++)
        x = part[w] > x ? part[w] : x;
    return x;
}

/* ---- rows ---- */

/* The thread's pack, as values V. */
template <class V, bool WHOLE = false> struct held_row {
    cells<ROW_NEAR, WHOLE> at;
    V values;
    template <int N, class F> METHOD void sums(float (&all)[N], F f) const
    {
        UNROLL
        for (int n = 0; n < N; n++)
            all[n] = 0;
        each([&](const cells<ROW_NEAR, WHOLE> &own, const V &v) { f(own, v, all); });
    }
    template <class F> METHOD void each(F f) const
    {
        if (at.any())
            f(at, values);
    }
};

/* The packs of a row of any length; `load(at)` makes the values V. Sums of packs are added in double, so that a row of millions
 * loses no digits. */
template <class V, class L> struct far_row {
    cells<ROW_NEAR> at; /* the thread's first */
    L load;
    template <int N, class F> METHOD void sums(float (&all)[N], F f) const
    {
        double total[N] = {};
        each([&](const cells<ROW_NEAR> &own, const V &v) {
            float part[N] = {};
            f(own, v, part);
            UNROLL
            for (int n = 0; n < N; n++)
                total[n] += part[n];
        });
        UNROLL
        for (int n = 0; n < N; n++)
            all[n] = (float)total[n];
    }
    template <class F> METHOD void each(F f) const
    {
        ROLLED
        for (cells<ROW_NEAR> own = at; own.any(); own.first += (int64_t)blockDim.x * ROW_NEAR)
            f(own, load(own));
    }
};

#endif
