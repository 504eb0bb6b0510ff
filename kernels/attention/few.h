/* kernels/attention/few.h: few queries behind rows of bf16: scores and weighted sums whose keys and values stay in registers.
 *
 *     scores [count, keys]      = q [count, head_dim] times keys        a chain of multiply-adds in the order of the dimension
 *     out    [count, head_dim] += weights [count, keys] times values    one in the order of the keys
 *
 * The bits are those of gemm_rows() with the same keys, or values, as f32. Keys may be scored in whole vectors of 16: there are places
 * for them behind the last score. Without AVX2 or AVX-512, few_fit() is false. Pure functions; any thread.
 */
#ifndef KERNELS_ATTENTION_FEW_H
#define KERNELS_ATTENTION_FEW_H

#include <stdbool.h>
#include <stdint.h>
#include <weir/base.h>

typedef struct few_queries {
    int64_t count;    /* 1 to 4 */
    int64_t head_dim; /* a multiple of 64 */
    int64_t kv_dim;   /* elements from one key, or value, to the next */
    int64_t apart;    /* elements from a query's weights to the next one's */
    bool ahead;       /* asks for whole rows that come next, kv_dim elements from the first one on */
} few_queries;

bool few_fit(weir_dtype dtype, int64_t queries, int64_t head_dim);

void few_scores(const few_queries *of, const float *q, const uint16_t *keys, int64_t count, float *scores);
void few_values(const few_queries *of, const float *weights, const uint16_t *values, int64_t count, float *out);

#endif
