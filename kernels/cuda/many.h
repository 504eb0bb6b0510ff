/* kernels/cuda/many.h: one launch for several tensors, in the place of one for each (device_ops.launch_many).
 *
 * The work for each tensor is cut into chunks, and blocks take the chunks of all in turn:
 *
 *     tensors    A               B     C
 *     chunks     0 | 1 | 2 | 3   4     5 | 6
 *     block 0    ^           ^             ^        of three
 *
 * X says what a kernel has to know of a tensor. A list is an argument of a kernel, so it has room for few tensors: when it is
 * full, its user launches the kernel and begins the list anew. Header-only; for nvcc and the emulator.
 */
#ifndef KERNELS_CUDA_MANY_H
#define KERNELS_CUDA_MANY_H

#include "kernels/cuda/list.h"
#include "kernels/cuda/rows.h"

enum { MANY_MAX = 48, MANY_BYTES = 4000 /* of arguments, which CUDA's limit of 4096 leaves room for */ };

template <class X> struct many {
    X of[MANY_MAX];
    uint32_t first[MANY_MAX + 1]; /* chunks: those of tensor i are first[i] ... first[i + 1] - 1 */
    int count;
    METHOD int tensor_of(uint32_t chunk) const
    {
        int i = 0;
        while (first[i + 1] <= chunk)
            i++;
        return i;
    }
    uint32_t chunks() const { return first[count]; }
    bool full() const { return count == MANY_MAX; }
    void add(const X &x, int64_t its_chunks)
    {
        of[count] = x;
        first[count + 1] = first[count] + (uint32_t)its_chunks;
        count++;
    }
    void clear() { count = 0; }
};

#endif
