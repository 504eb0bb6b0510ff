/* kernels/cuda/kernel.h: what every .cu file includes, and all that it uses of CUDA. It is C++17.
 *
 * A .cu file is compiled twice: by nvcc for the device, and by the C++ compiler of the host (-DWEIR_EMULATED) for the
 * emulator of the tests (tests/cuda/emulate.h), which runs each block of threads as fibers. So a kernel is written with
 * these, in place of the keywords of CUDA's:
 *
 *     template <class T> KERNEL(scale)(const T *x, T *y, int64_t count, float by)
 *     {
 *         SHARED(float, part, 8);                                  // shared memory: 8 floats
 *         for (int64_t i = THREAD; i < count; i += THREADS)        // of the whole grid
 *             store(y + i, by * load(x + i));
 *         BARRIER();                                               // all threads of the block
 *     }
 *     LAUNCH((scale<T>), grid, block, args->queue, x, y, count, 0.5f);
 *     return launched(args);
 *
 *     KERNEL(name)            static __global__ void name; KERNEL_OF(name, threads): of so many threads a block at most;
 *                             KERNEL_OF(name, threads, blocks): so that a multiprocessor holds so many blocks of them;
 *                             1: registers count for more than blocks
 *     SHARED(type, name, n)   n elements of one dimension; SHARED_REST(type, name): what LAUNCH_SHARED asked for, in bytes
 *     BARRIER()               __syncthreads; WARP_BARRIER(): __syncwarp
 *     SHUFFLE_XOR(x, mask)    also SHUFFLE_DOWN(x, by), SHUFFLE_FROM(x, lane), BALLOT(condition): always of the whole warp
 *     threadIdx.x, blockIdx.x, blockDim.x, gridDim.x   as in CUDA; grids and blocks have one dimension
 *     DEVICE                  before a function that kernels call; METHOD: of a structure; FORMULA: one that the host may call
 *     UNROLL                  before a loop; ROLLED: before one that stays a loop
 *     EXP2(x)                 2^x by the hardware: within 2 ulp, and 0 in the place of a subnormal result
 *     TRAP()                  ends the whole grid with an error, and with it the device's context
 *     refuse(say, at, value)  says that element `at` of an input is out of range (weir_refusal); say = refusing(args), an
 *                             argument of the kernel's, which goes on with something harmless
 *
 * A grid of 0 blocks is not launched. Arguments are passed by value: pointers, numbers, small structures. A kernel must be
 * deterministic: no atomics on floats, and no sum whose order follows from the size of the grid. It reads a call's step,
 * micro-batch and firing from args->clock alone, in device memory.
 */
#ifndef KERNELS_CUDA_KERNEL_H
#define KERNELS_CUDA_KERNEL_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include <weir/op.h>

#include "kernels/cuda/listed.h"
#include "kernels/cuda/shared.h"

#ifdef WEIR_EMULATED
#include "tests/cuda/emulate.h"
#else

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdio.h>

#define DEVICE static __device__ __forceinline__
#define METHOD __device__ __forceinline__
#define KERNEL(name) static __global__ void name
#define KERNEL_OF(name, ...) static __global__ void __launch_bounds__(__VA_ARGS__) name
#define SHARED(type, name, count) __shared__ type name[count]
#define SHARED_REST(type, name)                                      \
    extern __shared__ __align__(16) unsigned char shared_rest_[];    \
    type *const name = reinterpret_cast<type *>(shared_rest_)
#define BARRIER() __syncthreads()
#define WARP_BARRIER() __syncwarp()
#define SHUFFLE_XOR(x, mask) __shfl_xor_sync(0xffffffffu, x, mask)
#define SHUFFLE_DOWN(x, by) __shfl_down_sync(0xffffffffu, x, by)
#define SHUFFLE_FROM(x, lane) __shfl_sync(0xffffffffu, x, lane)
#define BALLOT(condition) __ballot_sync(0xffffffffu, condition)
#define UNROLL _Pragma("unroll")
#define ROLLED _Pragma("unroll 1")
#define EXP2(x) exp2_flushed(x)
#define TRAP() __trap()
#define ATOMIC_SWAP(at, from, to) atomicCAS((unsigned long long *)(at), (unsigned long long)(from), (unsigned long long)(to))
#define ATOMIC_MIN(at, value) atomicMin((unsigned long long *)(at), (unsigned long long)(value))

DEVICE float exp2_flushed(float x)
{
    asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(x));
    return x;
}

/* Bytes of a kernel's arrays; 0 when the driver does not tell, which the launch will say. */
template <auto KERNEL_> inline size_t shared_arrays()
{
    static const size_t bytes = [] {
        cudaFuncAttributes found;
        return cudaFuncGetAttributes(&found, (const void *)KERNEL_) == cudaSuccess ? found.sharedSizeBytes : 0;
    }();
    return bytes;
}

#define LAUNCH_SHARED(kernel, grid, block, bytes, queue, ...)                                                     \
    do {                                                                                                          \
        (void)&kernel_is_listed<(kernel)>;                                                                        \
        if ((grid) > 0) {                                                                                         \
            if (shared_asks(shared_arrays<(kernel)>(), (bytes)))                                                  \
                cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)(bytes));          \
            (kernel)<<<(unsigned)(grid), (unsigned)(block), (bytes), (cudaStream_t)(queue)>>>(__VA_ARGS__);       \
        }                                                                                                         \
    } while (0)
#define LAUNCH(kernel, grid, block, queue, ...)                                                                   \
    do {                                                                                                          \
        (void)&kernel_is_listed<(kernel)>;                                                                        \
        if ((grid) > 0)                                                                                           \
            (kernel)<<<(unsigned)(grid), (unsigned)(block), 0, (cudaStream_t)(queue)>>>(__VA_ARGS__);             \
    } while (0)

/* After the launches of a call: what the driver thinks of them. */
static inline weir_status launched(const weir_kernel_args *args)
{
    const cudaError_t error = cudaGetLastError();
    if (error == cudaSuccess)
        return WEIR_OK;
    if (args->error_bytes)
        snprintf(args->error, args->error_bytes, "the device takes no kernel: %s", cudaGetErrorString(error));
    return WEIR_E_KERNEL;
}
#endif

/* Of the grid: the number of this thread, and how many there are. */
#define THREAD ((int64_t)blockIdx.x * blockDim.x + threadIdx.x)
#define THREADS ((int64_t)gridDim.x * blockDim.x)

enum { WARP = 32 };

/* Where a kernel says what it cannot take, and as which call. */
struct refusals {
    weir_refusal *to; /* NULL: nobody wants to know */
    uint64_t call;
};

static inline refusals refusing(const weir_kernel_args *args)
{
    return {args->refusal, args->call};
}

/* The memory is the host's, which reads it when the kernel is over: atomic among the threads of the device is enough. */
DEVICE void refuse(const refusals &say, int64_t at, int32_t value)
{
    if (!say.to)
        return;
    const uint64_t place = at < (int64_t)UINT32_MAX ? (uint64_t)at : UINT32_MAX;
    const uint64_t first = ATOMIC_SWAP(&say.to->call, 0, say.call);
    if (!first || first == say.call)
        ATOMIC_MIN(&say.to->least, place << 32 | (uint32_t)value);
}

#endif
