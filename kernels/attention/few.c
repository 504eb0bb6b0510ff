/* kernels/attention/few.c: see the header. Words of two columns of some keys are laid side by side in registers (vectors.h), and taken
 * apart by a shift and a mask. A chain of multiply-adds waits for each of its steps, so two vectors of keys go together. Values are
 * words of two columns already: even and odd columns have sums of their own. */
#include "kernels/attention/few.h"

#include "kernels/common/unroll.h"
#include "kernels/common/vectors.h"

#ifdef VECTOR_ROWS

enum { MOST = 4, COLUMNS = 64, PAIR = 2, AHEAD = 32 };

bool few_fit(weir_dtype dtype, int64_t queries, int64_t head_dim)
{
    return dtype == WEIR_BF16 && queries <= MOST && head_dim % COLUMNS == 0;
}

/* The processor by itself does not foresee reads of a head's columns. */
static void ask_for_row(const few_queries *of, const uint16_t *row)
{
    for (int64_t i = 0; i < of->kv_dim; i += 64 / (int64_t)sizeof *row)
        __builtin_prefetch(row + i, 0, 2);
}

/* score [queries][PAIR] += q times `columns` columns of `vectors` vectors of keys, which lie `step` bytes apart. */
VECTOR void score_columns(const few_queries *of, int queries, int vectors, const float *q, const void *keys, int64_t step, int64_t columns,
                          reals score[MOST * PAIR])
{
    row_places rows[PAIR];
    UNROLL
    for (int v = 0; v < vectors; v++)
        rows[v] = row_places_of((const unsigned char *)keys + v * VECTOR_ROWS * step, step);
    for (int64_t at = 0; at < columns; at += 8, q += 8) {
        UNROLL
        for (int v = 0; v < vectors; v++) {
            words w[4];
            words_load(&rows[v], 0, w);
            rows_move(&rows[v], 16);
            UNROLL
            for (int i = 0; i < 4; i++) {
                const reals even = (reals)(w[i] << 16), odd = (reals)(w[i] & 0xFFFF0000);
                UNROLL
                for (int j = 0; j < queries; j++)
                    score[j * PAIR + v] += q[j * of->head_dim + 2 * i] * even;
                UNROLL
                for (int j = 0; j < queries; j++)
                    score[j * PAIR + v] += q[j * of->head_dim + 2 * i + 1] * odd;
            }
        }
    }
}

VECTOR void put_scores(const few_queries *of, int queries, int vectors, const reals *score, float *to)
{
    UNROLL
    for (int s = 0; s < queries * vectors; s++)
        memcpy(to + s / vectors * of->apart + s % vectors * VECTOR_ROWS, &score[s / vectors * PAIR + s % vectors], sizeof *score);
}

VECTOR void score_vectors(const few_queries *of, int queries, int vectors, const float *q, const uint16_t *keys, float *to)
{
    reals score[MOST * PAIR] = {};
    for (int64_t i = 0; of->ahead && i < vectors * VECTOR_ROWS; i++)
        ask_for_row(of, keys + (i + AHEAD) * of->kv_dim);
    score_columns(of, queries, vectors, q, keys, of->kv_dim * (int64_t)sizeof *keys, of->head_dim, score);
    put_scores(of, queries, vectors, score, to);
}

/* The last keys, fewer than a vector has: copied, and zeros behind them. */
VECTOR void score_last(const few_queries *of, int queries, const float *q, const uint16_t *keys, int64_t count, float *to)
{
    reals score[MOST * PAIR] = {};
    uint16_t some[VECTOR_ROWS][COLUMNS] = {};
    for (int64_t at = 0; at < of->head_dim; at += COLUMNS) {
        for (int64_t i = 0; i < count; i++)
            memcpy(some[i], keys + i * of->kv_dim + at, sizeof some[i]);
        score_columns(of, queries, 1, q + at, some, sizeof some[0], COLUMNS, score);
    }
    put_scores(of, queries, 1, score, to);
}

VECTOR void scores(const few_queries *of, int queries, const float *q, const uint16_t *keys, int64_t count, float *to)
{
    int64_t key = 0;
    for (; key + PAIR * VECTOR_ROWS <= count; key += PAIR * VECTOR_ROWS)
        score_vectors(of, queries, PAIR, q, keys + key * of->kv_dim, to + key);
    for (; key + VECTOR_ROWS <= count; key += VECTOR_ROWS)
        score_vectors(of, queries, 1, q, keys + key * of->kv_dim, to + key);
    if (key < count)
        score_last(of, queries, q, keys + key * of->kv_dim, count - key, to + key);
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

/* ---- values ---- */

/* Columns of a vector of words, and vectors at a time, whose sums are in registers. */
enum { WIDE = 2 * VECTOR_ROWS, VECTORS = VECTOR_ROWS / 8 };

/* VECTORS * WIDE columns of the values. */
VECTOR void value_columns(const few_queries *of, int queries, const float *weights, const uint16_t *values, int64_t count, bool ahead,
                          float *out)
{
    reals sum[MOST * VECTORS][2];
    UNROLL
    for (int s = 0; s < queries * VECTORS; s++)
        pairs_apart(out + s / VECTORS * of->head_dim + s % VECTORS * WIDE, sum[s]);
    for (int64_t key = 0; key < count; key++, values += of->kv_dim) {
        if (ahead)
            ask_for_row(of, values + AHEAD * of->kv_dim);
        UNROLL
        for (int v = 0; v < VECTORS; v++) {
            words w;
            memcpy(&w, values + v * WIDE, sizeof w);
            const reals even = (reals)(w << 16), odd = (reals)(w & 0xFFFF0000);
            UNROLL
            for (int j = 0; j < queries; j++) {
                sum[j * VECTORS + v][0] += weights[j * of->apart + key] * even;
                sum[j * VECTORS + v][1] += weights[j * of->apart + key] * odd;
            }
        }
    }
    UNROLL
    for (int s = 0; s < queries * VECTORS; s++)
        pairs_together(sum[s], out + s / VECTORS * of->head_dim + s % VECTORS * WIDE);
}

void few_values(const few_queries *of, const float *weights, const uint16_t *values, int64_t count, float *out)
{
    for (int64_t at = 0; at < of->head_dim; at += VECTORS * WIDE) {
        const bool ahead = of->ahead && !at;
        switch (of->count) {
        case 1: value_columns(of, 1, weights, values + at, count, ahead, out + at); break;
        case 2: value_columns(of, 2, weights, values + at, count, ahead, out + at); break;
        case 3: value_columns(of, 3, weights, values + at, count, ahead, out + at); break;
        default: value_columns(of, MOST, weights, values + at, count, ahead, out + at);
        }
    }
}

#else

bool few_fit(weir_dtype dtype, int64_t queries, int64_t head_dim)
{
    (void)dtype, (void)queries, (void)head_dim;
    return false;
}

void few_scores(const few_queries *of, const float *q, const uint16_t *keys, int64_t count, float *to)
{
    (void)of, (void)q, (void)keys, (void)count, (void)to;
}

void few_values(const few_queries *of, const float *weights, const uint16_t *values, int64_t count, float *out)
{
    (void)of, (void)weights, (void)values, (void)count, (void)out;
}

#endif
