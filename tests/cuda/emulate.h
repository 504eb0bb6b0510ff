/* tests/cuda/emulate.h: CUDA's model of execution on the host, for the kernels of the tree.
 *
 * The names of kernels/cuda/kernel.h are defined here for the C++ compiler of the host. A grid runs one block at a
 * time, in random order; the threads of a block are fibers, of which one runs until it waits (at a barrier, or for its
 * warp) or ends, and the next is drawn at random among those that can go on. The order follows from a seed
 * (emulate_seed), the name of the kernel and how many grids the thread has run. Shared memory is filled with bytes of
 * 0xff, which are NaN, before each block.
 *
 * Found, and told as one sentence (the first of a grid; the grid ends there):
 *   - threads of a block that wait at different barriers, or for one that has ended;
 *   - shuffles and ballots without all 32 lanes, or with lanes at different ones;
 *   - an index outside of an array of shared memory, and writes beside one;
 *   - a trap.
 * By results: shared memory read before it is written (NaN), a missing barrier (another order gives other bits).
 * By AddressSanitizer: what lies outside of a buffer. By ThreadSanitizer: accesses of two threads of a grid that no barrier
 * orders. It takes each fiber for a thread of its own; warps and blocks order nothing. Blocks that run one after the other
 * have different fibers, so that races between blocks are seen, too.
 *
 * LAUNCH packs the arguments by value and gives the grid to standin_launch(), which a stand-in for CUDA's streams may
 * define; without one it runs at once. Threads: any number, each with fibers of its own. A grid is run by one thread.
 */
#ifndef TESTS_CUDA_EMULATE_H
#define TESTS_CUDA_EMULATE_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <tuple>
#include <type_traits>
#include <utility>

#include "tests/cuda/emulated.h"

#define DEVICE static inline
#define METHOD inline
#define KERNEL(name) static void name
#define KERNEL_OF(name, ...) static void name
#define UNROLL
#define ROLLED
#define EXP2(x) emulate_exp2(x)
#define EMULATE_HERE __FILE__, __LINE__
#define threadIdx (emulate_self()->thread)
#define blockIdx (emulate_self()->block)
#define blockDim (emulate_self()->threads)
#define gridDim (emulate_self()->blocks)
#define BARRIER() emulate_barrier(EMULATE_HERE)
#define WARP_BARRIER() emulate_warp_barrier(EMULATE_HERE)
#define SHUFFLE_XOR(x, mask) emulate_shuffle(x, EMULATE_XOR, mask, EMULATE_HERE)
#define SHUFFLE_DOWN(x, by) emulate_shuffle(x, EMULATE_DOWN, by, EMULATE_HERE)
#define SHUFFLE_FROM(x, lane) emulate_shuffle(x, EMULATE_FROM, lane, EMULATE_HERE)
#define BALLOT(condition) emulate_ballot(condition, EMULATE_HERE)
#define TRAP() emulate_trap(EMULATE_HERE)
#define ATOMIC_SWAP(at, from, to) emulate_swap(at, from, to)
#define ATOMIC_MIN(at, value) emulate_min(at, value)

static inline float emulate_exp2(float x)
{
    const float y = exp2f(x);
    return y < 0x1p-126f ? 0 : y;
}

/* relaxed: as on a device, what others see of it hangs on the end of the kernel */
static inline uint64_t emulate_swap(uint64_t *at, uint64_t from, uint64_t to)
{
    __atomic_compare_exchange_n(at, &from, to, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return from;
}

static inline void emulate_min(uint64_t *at, uint64_t value)
{
    uint64_t is = __atomic_load_n(at, __ATOMIC_RELAXED);
    while (value < is && !__atomic_compare_exchange_n(at, &is, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

/* An array of shared memory: indexed with a check, or used as a pointer, without one. */
template <class T> class emulate_array {
public:
    emulate_array(T *first, int64_t count, const char *name) : first(first), count(count), name(name) {}
    template <class I, class = std::enable_if_t<std::is_integral_v<I>>> T &operator[](I i) const
    {
        if ((int64_t)i < 0 || (int64_t)i >= count)
            emulate_outside(name, (int64_t)i, count);
        return first[i];
    }
    operator T *() const { return first; }

private:
    T *first;
    int64_t count;
    const char *name;
};

#define SHARED(type, name, count)                                                                                       \
    const emulate_array<type> name((type *)emulate_shared(#name, __FILE__, __LINE__, (size_t)(count) * sizeof(type)),   \
                                   count, #name)
#define SHARED_REST(type, name)                                                                    \
    const emulate_array<type> name((type *)emulate_shared(#name, nullptr, 0, emulate_rest_bytes()), \
                                   (int64_t)(emulate_rest_bytes() / sizeof(type)), #name)

template <class T> static inline T emulate_shuffle(T x, int kind, int by, const char *file, int line)
{
    static_assert(sizeof(T) <= 8, "a shuffle moves 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &x, sizeof x);
    bits = emulate_exchange(bits, kind, by, file, line);
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The kernel with its arguments, as they were at launch. */
template <class... P> struct emulate_call {
    emulate_grid grid;
    void (*kernel)(P...);
    std::tuple<P...> given;
    static void thread(void *data)
    {
        emulate_call *call = (emulate_call *)data;
        std::apply(call->kernel, call->given);
    }
    static void run(void *data)
    {
        emulate_call *call = (emulate_call *)data;
        emulate_run(&call->grid, thread, call);
        delete call;
    }
};

template <class... P, class... A>
static inline void emulate_launch(const char *name, void (*kernel)(P...), int64_t grid, int64_t block, size_t bytes,
                                  void *queue, A &&...given)
{
    if (grid <= 0)
        return;
    standin_uses(queue, (const void *)kernel, name);
    auto *call = new emulate_call<P...>{{name, grid, block, bytes}, kernel, {(P)std::forward<A>(given)...}};
    standin_launch(queue, emulate_call<P...>::run, call);
}

#define LAUNCH_SHARED(kernel, grid, block, bytes, queue, ...) \
    ((void)&kernel_is_listed<(kernel)>, emulate_launch(#kernel, kernel, grid, block, bytes, queue, __VA_ARGS__))
#define LAUNCH(kernel, grid, block, queue, ...) LAUNCH_SHARED(kernel, grid, block, 0, queue, __VA_ARGS__)

static inline weir_status launched(const weir_kernel_args *args)
{
    return emulate_fault(args->error, args->error_bytes) || standin_refused(args->error, args->error_bytes) ? WEIR_E_KERNEL
                                                                                                           : WEIR_OK;
}

#endif
