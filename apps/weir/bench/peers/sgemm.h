/* apps/weir/bench/peers/sgemm.h: how fast this machine's BLAS multiplies the matrices of a GPT, to hold weir's steps
 * against.
 *
 * The shapes are those of the model's linear layers, forward, for the gradient of the input and for that of the
 * weight, with the rows that one device has. OpenBLAS and oneDNN are called directly, each on `threads` threads at
 * once that share nothing, one product a thread; per shape the faster of the two counts. With `bf16` the same shapes
 * are multiplied in bf16, too, by oneDNN and by weir's own kernels (half.h), of which the faster counts. One thread owns a
 * bench; its helpers end with each call.
 */
#ifndef APPS_WEIR_BENCH_SGEMM_H
#define APPS_WEIR_BENCH_SGEMM_H

#include <stdbool.h>
#include <stdint.h>
#include <weir/base.h>

#include "apps/weir/bench/peers/blas.h"

#define BENCH_SGEMM_SHAPES 12
#define BENCH_SGEMM_ROUNDS 64

typedef enum bench_blas { BENCH_OPENBLAS, BENCH_ONEDNN, BENCH_ONEDNN_BF16, BENCH_WEIR_BF16, BENCH_BLASES } bench_blas;

typedef struct bench_shape {
    bool trans_a, trans_b;
    int64_t m, n, k;
    double count; /* of such products in a step */
} bench_shape;

typedef struct bench_sgemm {
    const blas_calls *calls;              /* borrowed */
    int threads;                          /* at most 2 */
    bench_shape shape[BENCH_SGEMM_SHAPES];
    double seconds[BENCH_BLASES][BENCH_SGEMM_SHAPES][BENCH_SGEMM_ROUNDS];
    int rounds;
    float *buffer[2][3];                  /* owned: A, B and C of each thread */
    struct half_bench *half[2];           /* owned; NULL: without bf16 */
} bench_sgemm;

/* For a model of `layers` layers with `rows` tokens per thread. E_UNSUPPORTED: a library is missing. */
weir_status bench_sgemm_open(bench_sgemm *bench, int threads, int layers, int dim, int vocab, int64_t rows, bool bf16);
void bench_sgemm_close(bench_sgemm *bench);

/* Times every shape once with each library; at most BENCH_SGEMM_ROUNDS times. */
void bench_sgemm_round(bench_sgemm *bench);

/* Floating-point operations per second of all threads together: each shape's median over the rounds, weighted by how
 * much of the step's work it is. */
double bench_sgemm_rate(const bench_sgemm *bench);
double bench_sgemm_rate_bf16(const bench_sgemm *bench);

#endif
