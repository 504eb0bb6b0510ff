/* tests/cuda/faults.h: kernels with a planted fault, and the same ones without it: what the emulator has to find.
 *
 * faults.cu is compiled as the kernels of the emulated plugin are, and linked with an emulator of its own to a shared
 * object that the suite loads. All kernels take x and y of FAULT_COUNT floats. Any thread.
 */
#ifndef TESTS_CUDA_FAULTS_H
#define TESTS_CUDA_FAULTS_H

#include <weir/op.h>

/* name, threads of a block, blocks */
#define FAULTS(X)                                                                                             \
    X(missing_barrier, 64, 1)       /* y[0]: a sum in a tree, whose rounds do not wait for each other */      \
    X(early_reuse, 64, 1)           /* the next tile is written while the last one is still read */           \
    X(unwritten_read, 64, 1)        /* an element of shared memory is read, and never written */              \
    X(missing_warp_barrier, 32, 1)  /* lanes read what others of the warp write */                            \
    X(outside_index, 64, 1)         /* an index of one too many */                                            \
    X(outside_write, 64, 1)         /* a write through a pointer behind an array */                           \
    X(rest_index, 64, 1)            /* an index behind what the launch asked for */                           \
    X(two_barriers, 64, 1)          /* the halves of a block wait at different ones */                        \
    X(barrier_after_end, 64, 1)     /* one half waits for the other, which has ended */                       \
    X(partial_warp, 64, 1)          /* the first half of each warp shuffles */                                \
    X(two_shuffles, 64, 1)          /* the halves of a warp shuffle at different places */                    \
    X(short_warp, 48, 1)            /* the last warp of a block is no whole one */                            \
    X(partial_ballot, 64, 1)        /* one lane does not vote */                                              \
    X(trapped, 64, 1)               /* thread 5 traps */                                                      \
    X(race, 64, 1)                  /* two warps write one word, the same value */                            \
    X(race_of_blocks, 32, 4)        /* blocks write one word, the same value */

enum { FAULT_COUNT = 256, FAULT_TILES = 4 };

typedef enum fault_name {
#define X(name, threads, blocks) FAULT_##name,
    FAULTS(X)
#undef X
    FAULT_NAMES
} fault_name;

/* Runs the kernel with its fault, or mended, on args->queue; of the arguments only that and the error are used. Orders
 * follow from the seed. */
typedef weir_status fault_run_fn(fault_name name, bool mended, uint64_t seed, const weir_kernel_args *args,
                                 const float *x, float *y);

#endif
