/* kernels/loss/gradient.h: the gradient of a row of logits by a block of threads. Header-only; for nvcc and the
 * emulator.
 *
 * Elements do not depend on each other, so packs begin at the first address that is a multiple of 16. The threads take
 * the elements before and behind the packs one by one. If x and dx are not aligned alike, they take all elements one by
 * one. dx may be x: the thread that writes an element has read it before.
 */
#ifndef KERNELS_LOSS_GRADIENT_H
#define KERNELS_LOSS_GRADIENT_H

#include "kernels/loss/stream.h"

/* dx = exp(x - lse) weight; `less` is taken off element `label`, unless that is -1. */
struct logit_grads {
    float lse, weight, less;
    int64_t label;
    METHOD float of(float x) const { return near_exp(x - lse) * weight; }
};

/* The elements of a row, and the thread of each. */
struct stream_split {
    int64_t head; /* elements before the packs */
    int packs, pack;
    METHOD int thread_of(int64_t i) const
    {
        const int64_t j = i - head, behind = j - (int64_t)packs * pack;
        return (int)((unsigned)(j < 0 ? i : behind < 0 ? j / pack : behind) % blockDim.x);
    }
};

template <class T> DEVICE stream_split split_of(const T *x, const T *dx, int64_t count)
{
    const int64_t first = stream_head(dx);
    const int64_t head = ((uintptr_t)x - (uintptr_t)dx) % 16 || first > count ? count : first;
    return {head, (int)((count - head) / PACK<T>), PACK<T>};
}

template <class T> DEVICE void block_zero(T *dx, int64_t count)
{
    const stream_split split = split_of(dx, dx, count);
    T *const body = dx + split.head, *const tail = body + (int64_t)split.packs * PACK<T>;
    const pack<T, PACK<T>> none = pack_all<T, PACK<T>>(0);
    for (int64_t i = threadIdx.x; i < split.head; i += blockDim.x)
        dx[i] = none.at[0];
    for (int p = (int)threadIdx.x; p < split.packs; p += (int)blockDim.x)
        pack_store_once(body + (int64_t)p * PACK<T>, none);
    if (threadIdx.x < dx + count - tail)
        tail[threadIdx.x] = none.at[0];
}

template <class T> DEVICE pack<T, PACK<T>> pack_grad(const pack<T, PACK<T>> &x, const logit_grads &grad)
{
    pack<T, PACK<T>> dx;
    UNROLL for (int j = 0; j < PACK<T>; j += 2) {
        const float2 two = two_load(x.at + j);
        two_store(dx.at + j, grad.of(two.x), grad.of(two.y));
    }
    return dx;
}

/* The thread of the label's element writes it twice, the second time with `less` taken off: this needs no test in the
 * loop. */
template <class T> DEVICE void block_grad(const T *x, T *dx, int64_t count, const logit_grads &grad)
{
    enum { N = PACK<T> };
    const stream_split split = split_of(x, dx, count);
    const bool mine = grad.label >= 0 && split.thread_of(grad.label) == (int)threadIdx.x;
    const float label = mine ? grad.of(real_load(x + grad.label)) - grad.less : 0;
    for (int64_t i = threadIdx.x; i < split.head; i += blockDim.x)
        real_store(dx + i, grad.of(real_load(x + i)));
    const T *from = x + split.head;
    T *to = dx + split.head;
    const int step = (int)blockDim.x;
    int p = (int)threadIdx.x;
    for (; p + (IN_FLIGHT - 1) * step < split.packs; p += IN_FLIGHT * step) {
        pack<T, N> some[IN_FLIGHT];
        UNROLL for (int k = 0; k < IN_FLIGHT; k++)
            some[k] = pack_load_once<N>(from + (int64_t)(p + k * step) * N);
        UNROLL for (int k = 0; k < IN_FLIGHT; k++)
            pack_store_once(to + (int64_t)(p + k * step) * N, pack_grad<T>(some[k], grad));
    }
    pack<T, N> some[IN_FLIGHT] = {};
    UNROLL for (int k = 0; k < IN_FLIGHT; k++)
        if (p + k * step < split.packs)
            some[k] = pack_load_once<N>(from + (int64_t)(p + k * step) * N);
    UNROLL for (int k = 0; k < IN_FLIGHT; k++)
        if (p + k * step < split.packs)
            pack_store_once(to + (int64_t)(p + k * step) * N, pack_grad<T>(some[k], grad));
    const int64_t end = split.head + (int64_t)split.packs * N;
    for (int64_t i = end + threadIdx.x; i < count; i += blockDim.x)
        real_store(dx + i, grad.of(real_load(x + i)));
    if (mine)
        real_store(dx + grad.label, label);
}

#endif
