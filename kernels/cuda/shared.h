/* kernels/cuda/shared.h: how much of a multiprocessor's shared memory a block may take. A block's arrays, which are known
 * when a kernel is compiled, and the rest, which a launch asks for, count together: up to 48 KiB they are there, for more a
 * kernel has to ask before it is launched (CUDA C++ Programming Guide, "Shared Memory"). C++, for nvcc and the emulator.
 */
#ifndef KERNELS_CUDA_SHARED_H
#define KERNELS_CUDA_SHARED_H

#include <stddef.h>

enum { SHARED_UNASKED = 48 << 10 };

/* Whether a launch asks for so many bytes, of arrays and of the rest. */
inline bool shared_asks(size_t arrays, size_t rest)
{
    return arrays + rest > SHARED_UNASKED;
}

#endif
