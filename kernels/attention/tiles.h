/* kernels/attention/tiles.h: tiles of attention on a GPU: B rows of a head as f32 in shared memory, and the products of such.
 *
 * A block has 256 threads as 16 x 16 (tile_row, tile_lane). A thread has the rows tile_row * R + i and the columns tile_lane
 * + 16 j of a tile of scores, B x B, and of a result, B x D. Rows lie PAD floats further apart than they are long, so that
 * threads which read the same column of different rows meet different banks. D is the next size of heads for which there is a
 * kernel; what is beyond the head's columns, or its rows, is 0. Half operands become f32 as they are loaded; all sums are
 * f32, in the order of the rows or columns that are summed over. Header-only; for nvcc and the emulator.
 *
 * A score that a window or a mask hides is -infinity: scores are scaled and hidden in a pass of their own (tile_hide), so a call
 * without either has no branch for each score. The largest score of a row that has seen none is that as well,
 * so 0 is subtracted in its place (softmax_shift). The result and the log-sum-exp of a row that sees no key are 0.
 */
#ifndef KERNELS_ATTENTION_TILES_H
#define KERNELS_ATTENTION_TILES_H

#include "kernels/attention/formula.h"
#include "kernels/cuda/rows.h"

/* TILE_KERNEL: a kernel of tiles, of which a multiprocessor has room for two blocks, or for one where heads are large.
 * The others: before a loop of which one round, or two, are enough at a time: more need registers that there are not. */
#ifdef WEIR_EMULATED
#define UNROLL_NOT
#define UNROLL_TWO
#define TILE_KERNEL(name, D) KERNEL(name)
#else
#define UNROLL_NOT _Pragma("unroll 1")
#define UNROLL_TWO _Pragma("unroll 2")
#define TILE_KERNEL(name, D) static __global__ void __launch_bounds__(TILE_THREADS, (D) > 64 ? 1 : 2) name
#endif

enum { SIDE = 16, TILE_THREADS = SIDE * SIDE, PAD = 4, HEAD_MOST = 256 };

/* Sizes of a call; `tiles`: of the rows that blocks have. */
struct attention_sizes {
    int64_t dim, all;       /* columns of a tensor; heads of all of the batch */
    int64_t kv_dim, kv_all; /* the same of keys and values */
    int heads, kv_heads, group, seq, keys, head_dim, tiles;
    float scale;
    bool causal, hides; /* hides: there is a window or a mask */
    int window;         /* 0: none */
    attention_mask mask;
};

/* masked: of an op with a window and a mask. */
static inline attention_sizes sizes_of(const weir_kernel_args *args, bool masked)
{
    const attention_attrs *attrs = (const attention_attrs *)args->attrs;
    const int64_t *q = args->in[0].shape.dim, *k = args->in[1].shape.dim;
    attention_sizes z = {};
    z.dim = q[2];
    z.kv_dim = k[2];
    z.heads = (int)(q[2] / attrs->head_dim);
    z.kv_heads = (int)(k[2] / attrs->head_dim);
    z.group = (int)group_of(q[2], k[2]);
    z.all = q[0] * z.heads;
    z.kv_all = q[0] * z.kv_heads;
    z.seq = (int)q[1];
    z.keys = (int)k[1];
    z.head_dim = (int)attrs->head_dim;
    z.scale = (float)attrs->scale;
    z.causal = attrs->causal != 0;
    if (masked) {
        const int64_t window = ((const attention_masked_attrs *)args->attrs)->window;
        z.window = window < INT32_MAX ? (int)window : 0; /* sequences are shorter */
        if (args->in_count == 4 || args->in_count == 7)
            z.mask = mask_of(&args->in[args->in_count - 1]);
        z.hides = z.window || z.mask.at;
    }
    return z;
}

/* Does `...` with D and B, columns and rows of tiles for heads of this size; at most HEAD_MOST. */
#define WITH_TILES(head_dim, D, B, ...)           \
    do {                                          \
        if ((head_dim) <= 32) {                   \
            enum { D = 32, B = 64 };              \
            __VA_ARGS__;                          \
        } else if ((head_dim) <= 64) {            \
            enum { D = 64, B = 64 };              \
            __VA_ARGS__;                          \
        } else if ((head_dim) <= 128) {           \
            enum { D = 128, B = 64 };             \
            __VA_ARGS__;                          \
        } else {                                  \
            enum { D = 256, B = 32 };             \
            __VA_ARGS__;                          \
        }                                         \
    } while (0)

/* Refuses, with a sentence, what there is no kernel for. */
static inline bool tiles_fit(const weir_kernel_args *args)
{
    const int64_t head_dim = ((const attention_attrs *)args->attrs)->head_dim, seq = args->in[0].shape.dim[1];
    const int64_t keys = args->in[1].shape.dim[1], most = INT32_MAX / 2;
    if (head_dim <= HEAD_MOST && seq <= most && keys <= most)
        return true;
    if (args->error_bytes)
        snprintf(args->error, args->error_bytes, "%lld queries and %lld keys of heads of %lld: here heads are of %d at most",
                 (long long)seq, (long long)keys, (long long)head_dim, (int)HEAD_MOST);
    return false;
}

/* Floats of a tile of rows, and of one of scores. */
template <int D, int B> FORMULA int rows_floats()
{
    return B * (D + PAD);
}

template <int B> FORMULA int scores_floats()
{
    return B * (B + PAD);
}

DEVICE int tile_row()
{
    return (int)threadIdx.x / SIDE;
}

DEVICE int tile_lane()
{
    return (int)threadIdx.x % SIDE;
}

/* The sum, and the largest, over the 16 threads that share rows. */
DEVICE float lanes_sum(float x)
{
    for (int lanes = SIDE / 2; lanes; lanes /= 2)
        x += SHUFFLE_XOR(x, lanes);
    return x;
}

DEVICE float lanes_max(float x)
{
    for (int lanes = SIDE / 2; lanes; lanes /= 2) {
        const float other = SHUFFLE_XOR(x, lanes);
        x = other > x ? other : x;
    }
    return x;
}

/* Rows of one head of a tensor: row 0 begins at `at`, `rows` of them, `dim` elements apart. */
template <class T> struct head_rows {
    T *at;
    int64_t dim;
    int rows, head_dim;
};

template <class T> DEVICE head_rows<T> head_of(T *data, const attention_sizes &z, int64_t index, int rows)
{
    const int64_t batch = index / z.heads, column = index % z.heads * z.head_dim;
    return {data + batch * rows * z.dim + column, z.dim, rows, z.head_dim};
}

/* The same for a head of keys or values. */
template <class T> DEVICE head_rows<T> keys_of(T *data, const attention_sizes &z, int64_t index)
{
    const int64_t batch = index / z.kv_heads, column = index % z.kv_heads * z.head_dim;
    return {data + batch * z.keys * z.kv_dim + column, z.kv_dim, z.keys, z.head_dim};
}

/* The head of keys that a head of queries shares; heads are counted through the batch. */
DEVICE int64_t shared_head(const attention_sizes &z, int64_t index)
{
    return z.group == 1 ? index : index / z.group;
}

template <int D, int B, class T> DEVICE void tile_load(const head_rows<const T> &from, int first, float *to)
{
    UNROLL_TWO
    for (int i = (int)threadIdx.x; i < B * D; i += TILE_THREADS) {
        const int row = i / D, column = i % D;
        const bool there = first + row < from.rows && column < from.head_dim;
        to[row * (D + PAD) + column] = there ? real_load(from.at + (int64_t)(first + row) * from.dim + column) : 0;
    }
}

template <int D, int B, class T>
DEVICE void tile_store(const head_rows<T> &to, int first, const float (&x)[B / SIDE][D / SIDE])
{
    UNROLL
    for (int i = 0; i < B / SIDE; i++) {
        const int row = first + tile_row() * (B / SIDE) + i;
        UNROLL
        for (int j = 0; j < D / SIDE; j++) {
            const int column = tile_lane() + SIDE * j;
            if (row < to.rows && column < to.head_dim)
                real_store(to.at + row * to.dim + column, x[i][j]);
        }
    }
}

template <int N, int M> DEVICE void clear(float (&x)[N][M])
{
    UNROLL
    for (int i = 0; i < N; i++) {
        UNROLL
        for (int j = 0; j < M; j++)
            x[i][j] = 0;
    }
}

DEVICE float4 four(const float *at)
{
    return *(const float4 *)at;
}

/* s = a b^T, of two tiles of rows. */
template <int D, int B> DEVICE void tile_scores(const float *a, const float *b, float (&s)[B / SIDE][B / SIDE])
{
    enum { R = B / SIDE };
    a += tile_row() * R * (D + PAD);
    b += tile_lane() * (D + PAD);
    clear(s);
    UNROLL_NOT
    for (int d = 0; d < D; d += 4) {
        float4 x[R], y[R];
        UNROLL
        for (int i = 0; i < R; i++) {
            x[i] = four(a + i * (D + PAD) + d);
            y[i] = four(b + i * SIDE * (D + PAD) + d);
        }
        UNROLL
        for (int i = 0; i < R; i++) {
            UNROLL
            for (int j = 0; j < R; j++)
                s[i][j] += x[i].x * y[j].x + x[i].y * y[j].y + x[i].z * y[j].z + x[i].w * y[j].w;
        }
    }
}

/* A thread's scores to where all see them. */
template <int B> DEVICE void scores_put(const float (&s)[B / SIDE][B / SIDE], float *to)
{
    enum { R = B / SIDE };
    UNROLL
    for (int i = 0; i < R; i++) {
        UNROLL
        for (int j = 0; j < R; j++)
            to[(tile_row() * R + i) * (B + PAD) + tile_lane() + SIDE * j] = s[i][j];
    }
}

/* o += p x, of a tile of scores and one of rows. */
template <int D, int B> DEVICE void tile_add(const float *p, const float *x, float (&o)[B / SIDE][D / SIDE])
{
    enum { R = B / SIDE };
    p += tile_row() * R * (B + PAD);
    x += tile_lane();
    UNROLL_TWO
    for (int k = 0; k < B; k++) {
        float value[D / SIDE];
        UNROLL
        for (int j = 0; j < D / SIDE; j++)
            value[j] = x[k * (D + PAD) + SIDE * j];
        UNROLL
        for (int i = 0; i < R; i++) {
            UNROLL
            for (int j = 0; j < D / SIDE; j++)
                o[i][j] += p[i * (B + PAD) + k] * value[j];
        }
    }
}

/* o += p^T x. */
template <int D, int B> DEVICE void tile_add_across(const float *p, const float *x, float (&o)[B / SIDE][D / SIDE])
{
    enum { R = B / SIDE };
    p += tile_row() * R;
    x += tile_lane();
    UNROLL_TWO
    for (int k = 0; k < B; k++) {
        float value[D / SIDE];
        UNROLL
        for (int j = 0; j < D / SIDE; j++)
            value[j] = x[k * (D + PAD) + SIDE * j];
        UNROLL
        for (int i = 0; i < R; i++) {
            UNROLL
            for (int j = 0; j < D / SIDE; j++)
                o[i][j] += p[k * (B + PAD) + i] * value[j];
        }
    }
}

/* Columns of the tile of keys from `key` on that a query sees. */
DEVICE int seen_by(const attention_sizes &z, int query, int key)
{
    return (z.causal && query + 1 < z.keys ? query + 1 : z.keys) - key;
}

/* The first row of a head in the mask. */
DEVICE int64_t mask_of_head(const attention_sizes &z, int64_t index)
{
    return z.mask.at ? mask_row(&z.mask, index / z.heads, index % z.heads, 0) : 0;
}

/* The scaled score of a query and a key, as far as there are such; `mask`: where the head's rows begin there. */
DEVICE float shown_score(const attention_sizes &z, int64_t mask, int query, int key, float score)
{
    score *= z.scale;
    if (z.window && key < key_from(z.window, query))
        return -INFINITY;
    if (!z.mask.at || query >= z.seq || key >= z.keys)
        return score;
    const int64_t at = mask + query * z.mask.row + key;
    return !z.mask.bytes ? score + ((const float *)z.mask.at)[at] : ((const uint8_t *)z.mask.at)[at] ? score : -INFINITY;
}

/* Scales the scores of a tile and hides those that a window or a mask hides. Returns what is left to scale them by. */
template <int R> DEVICE float tile_hide(const attention_sizes &z, int64_t mask, int query, int key, float (&s)[R][R])
{
    if (!z.hides)
        return z.scale;
    UNROLL
    for (int i = 0; i < R; i++) {
        UNROLL
        for (int j = 0; j < R; j++)
            s[i][j] = shown_score(z, mask, query + tile_row() * R + i, key + tile_lane() + SIDE * j, s[i][j]);
    }
    return 1;
}

DEVICE float softmax_shift(const attention_sizes &z, float most)
{
    return z.hides && most == -INFINITY ? 0 : most;
}

/* 1 / total, unless the row sees no key. */
DEVICE float softmax_share(const attention_sizes &z, float total)
{
    return z.hides && total == 0 ? 0 : 1 / total;
}

/* The first key of the first tile of B keys that queries from `query` on see. */
DEVICE int first_key(const attention_sizes &z, int query, int B)
{
    return (int)key_from(z.window, query) / B * B;
}

/* Behind the last query that sees keys before `key`. */
DEVICE int queries_end(const attention_sizes &z, int key)
{
    const int64_t end = (int64_t)key + z.window - 1;
    return z.window && end < z.seq ? (int)end : z.seq;
}

static inline int64_t tiles_of(int64_t rows, int64_t each)
{
    return (rows + each - 1) / each;
}

#endif
