/* tests/cuda/emulated.h: what of the emulator is compiled once (emulate.cc); see emulate.h. C++ and C. */
#ifndef TESTS_CUDA_EMULATED_H
#define TESTS_CUDA_EMULATED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A grid of `blocks` blocks of `threads` threads, each with `rest` bytes of SHARED_REST. Names are borrowed. */
typedef struct emulate_grid {
    const char *name;
    int64_t blocks, threads;
    size_t rest;
} emulate_grid;

typedef struct emulate_index {
    unsigned x;
} emulate_index;

/* Where the running fiber is. */
typedef struct emulate_place {
    emulate_index thread, block, threads, blocks;
} emulate_place;

enum { EMULATE_XOR, EMULATE_DOWN, EMULATE_FROM, EMULATE_ALL, EMULATE_TOGETHER, EMULATE_GIVEN_MOST = 32 };

const emulate_place *emulate_self(void);
void emulate_barrier(const char *file, int line);
void emulate_warp_barrier(const char *file, int line);
uint64_t emulate_exchange(uint64_t bits, int kind, int by, const char *file, int line);
unsigned emulate_ballot(bool condition, const char *file, int line);
/* Gathers the operands of all lanes of the warp, lane by lane: `bytes` each, up to EMULATE_GIVEN_MOST. */
void emulate_gather(const void *given, size_t bytes, void *all, const char *file, int line);

/* Computes a result for each lane from those of all: `made` is called when all have given. */
typedef void emulate_made(const unsigned char *const *given, unsigned char *const *taken);
void emulate_together(const void *given, size_t bytes, void *taken, size_t taken_bytes, emulate_made *made,
                      const char *file, int line);
void emulate_trap(const char *file, int line) __attribute__((noreturn));
void emulate_outside(const char *array, int64_t index, int64_t count) __attribute__((noreturn));

/* The block's array that is declared at this place; made by the first thread that gets there. */
void *emulate_shared(const char *name, const char *file, int line, size_t bytes);
size_t emulate_rest_bytes(void);

/* Calls thread(data) in every thread of the grid. A fault is kept for emulate_fault(). */
void emulate_run(const emulate_grid *grid, void (*thread)(void *), void *data);

/* Whether the calling thread has had a fault since the last call; the sentence of the first, which is forgotten
 * then. */
bool emulate_fault(char *error, size_t error_bytes);

/* Orders of the calling thread's grids from now on. */
void emulate_seed(uint64_t seed);

/* Enqueues run(data) on a stream; with `stream` NULL it runs at once. Defined by a stand-in for streams; without one, it
 * runs at once. */
void standin_launch(void *stream, void (*run)(void *), void *data);

/* Whether cuBLASLt lacks a call; NULL: all of it. */
bool standin_no_blas(const char *call);

/* Before the launch of a kernel: it should have been loaded. */
void standin_uses(void *stream, const void *kernel, const char *name);

/* Whether the calling thread's last launch was refused, and a sentence; it is forgotten then. */
bool standin_refused(char *error, size_t error_bytes);

/* The stand-in for cuBLASLt: begins a call, and tells whether it succeeds. Whether it has an algorithm for a product,
 * with no epilogue but a bias if `plain`. Counts descriptors. */
bool standin_blas_call(const char *name);
bool standin_blas_has(bool plain, bool sums);
bool standin_blas_refuses(void);
void standin_blas_made(int by);

#ifdef __cplusplus
}
#endif
#endif
