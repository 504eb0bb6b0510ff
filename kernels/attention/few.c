/* kernels/attention/few.c: see the header. With one row and three heads to a group, a third of the time went into laying keys and values
 * down as f32, and as much into waiting for memory: the processor by itself does not foresee reads of a head's columns. */
#include "kernels/attention/few.h"

#include "kernels/attention/turn.h"
#include "kernels/common/unroll.h"

enum { MOST = 4, COLUMNS = 4 * LANES, AHEAD = LANES };

#ifdef __AVX512F__
enum { VECTORS = 4 }; /* of values at a time */
#else
enum { VECTORS = 1 };
#endif

bool few_fit(weir_dtype dtype, int64_t queries, int64_t head_dim)
{
    return dtype == WEIR_BF16 && queries <= MOST && head_dim % COLUMNS == 0;
}

static void ask_for_row(const few_queries *of, const uint16_t *row)
{
    for (int64_t i = 0; i < of->kv_dim; i += 64 / (int64_t)sizeof *row)
        __builtin_prefetch(row + i, 0, 2);
}

/* score [queries] of up to LANES keys += q times 2 LANES of their columns */
static inline __attribute__((always_inline)) void score_tile(const few_queries *of, int queries, const float *q, const uint16_t *keys, int64_t count,
                                                             lanes score[MOST])
{
    const int64_t apart = of->kv_dim * (int64_t)sizeof *keys;
    lanes t[LANES];
    if (count >= LANES)
        load_keys((const char *)keys, apart, LANES, t);
    else
        load_keys((const char *)keys, apart, count, t);
    turn(t);
    UNROLL
    for (int i = 0; i < LANES; i++) {
        const lanes even = widened((words)t[i] & 0xFFFF, true), odd = widened((words)t[i] >> 16, true);
        UNROLL
        for (int j = 0; j < queries; j++)
            score[j] += q[j * of->head_dim + 2 * i] * even;
        UNROLL
        for (int j = 0; j < queries; j++)
            score[j] += q[j * of->head_dim + 2 * i + 1] * odd;
    }
}

static inline __attribute__((always_inline)) void scores(const few_queries *of, int queries, const float *q, const uint16_t *keys, int64_t count,
                                                         float *to)
{
    for (int64_t key = 0; key < count; key += LANES) {
        lanes score[MOST] = {};
        for (int64_t i = 0; of->ahead && i < LANES; i++)
            ask_for_row(of, keys + (key + i + AHEAD) * of->kv_dim);
        for (int64_t at = 0; at < of->head_dim; at += 2 * LANES)
            score_tile(of, queries, q + at, keys + key * of->kv_dim + at, count - key, score);
        UNROLL
        for (int j = 0; j < queries; j++)
            lanes_store(to + j * of->apart + key, &score[j]);
    }
}

void few_scores(const few_queries *of, const float *q, const uint16_t *keys, int64_t count, float *to)
{
    switch (of->count) {
    case 1: scores(of, 1, q, keys, count, to); break;
    case 2: scores(of, 2, q, keys, count, to); break;
    case 3: scores(of, 3, q, keys, count, to); break;
    default: scores(of, MOST, q, keys, count, to);
    }
}

/* VECTORS * LANES columns of the values. */
static inline __attribute__((always_inline)) void value_columns(const few_queries *of, int queries, const float *weights, const uint16_t *values,
                                                                int64_t count, bool ahead, float *out)
{
    lanes sum[MOST * VECTORS];
    UNROLL
    for (int s = 0; s < queries * VECTORS; s++)
        sum[s] = lanes_load(out + s / VECTORS * of->head_dim + s % VECTORS * LANES);
    for (int64_t key = 0; key < count; key++, values += of->kv_dim) {
        if (ahead)
            ask_for_row(of, values + AHEAD * of->kv_dim);
        UNROLL
        for (int v = 0; v < VECTORS; v++) {
            halves half;
            memcpy(&half, values + v * LANES, sizeof half);
            const lanes wide = widened(__builtin_convertvector(half, words), true);
            UNROLL
            for (int j = 0; j < queries; j++)
                sum[j * VECTORS + v] += weights[j * of->apart + key] * wide;
        }
    }
    UNROLL
    for (int s = 0; s < queries * VECTORS; s++)
        lanes_store(out + s / VECTORS * of->head_dim + s % VECTORS * LANES, &sum[s]);
}

void few_values(const few_queries *of, const float *weights, const uint16_t *values, int64_t count, float *out)
{
    for (int64_t at = 0; at < of->head_dim; at += VECTORS * LANES) {
        const bool ahead = of->ahead && !at;
        switch (of->count) {
        case 1: value_columns(of, 1, weights, values + at, count, ahead, out + at); break;
        case 2: value_columns(of, 2, weights, values + at, count, ahead, out + at); break;
        case 3: value_columns(of, 3, weights, values + at, count, ahead, out + at); break;
        default: value_columns(of, MOST, weights, values + at, count, ahead, out + at);
        }
    }
}
