/* apps/weir/bench/peers/half.h: how fast a machine multiplies the matrices of a GPT in bf16: with oneDNN's own product, and
 * with weir's, called without a graph around it. One thread each; a product is of one of the shapes of sgemm.h.
 *
 * oneDNN's primitives are made when the bench is opened, so what is timed is the product alone.
 */
#ifndef APPS_WEIR_BENCH_HALF_H
#define APPS_WEIR_BENCH_HALF_H

#include <stdbool.h>
#include <stdint.h>

#include "apps/weir/bench/peers/blas.h"

typedef struct half_shape {
    bool trans_a, trans_b; /* not both; trans_a: the gradient of a weight, which is f32 */
    int64_t m, n, k;
} half_shape;

typedef struct half_bench half_bench; /* of one thread */

/* `count` shapes are copied. NULL when there is no memory, or oneDNN has no such product. */
half_bench *half_bench_new(const blas_calls *dnnl, const half_shape *shape, int count);
void half_bench_free(half_bench *bench);

/* The product of shape i. */
void half_bench_onednn(half_bench *bench, int i);
void half_bench_weir(half_bench *bench, int i);

#endif
