/* kernels/attention/attention.cu: softmax(scale q k^T) v per head on a GPU; attention.c has the rules and says what it computes.
 *
 * A block has a tile of queries of one head and goes over the tiles of keys that they see, with the largest score and the sum
 * so far of each row (the sum of each thread's columns; those are added at the end). Keys and values take turns in the
 * same shared memory. Tiles with the most keys are started first.
 */
#include "kernels/attention/cores.h"
#include "kernels/attention/cudnn.h"

/* Scores to exp(score - most); what was summed under an older maximum is brought to the same scale. */
template <int D, int B>
DEVICE void softmax_tile(const attention_sizes &z, int64_t mask, int query, int key, float (&s)[B / SIDE][B / SIDE],
                         float (&most)[B / SIDE], float (&total)[B / SIDE], float (&o)[B / SIDE][D / SIDE])
{
    enum { R = B / SIDE };
    const float scale = tile_hide(z, mask, query, key, s);
    UNROLL
    for (int i = 0; i < R; i++) {
        const int seen = seen_by(z, query + tile_row() * R + i, key);
        float largest = -INFINITY, sum = 0;
        UNROLL
        for (int j = 0; j < R; j++) {
            s[i][j] = tile_lane() + SIDE * j < seen ? s[i][j] * scale : -INFINITY;
            largest = s[i][j] > largest ? s[i][j] : largest;
        }
        largest = lanes_max(largest);
        largest = most[i] > largest ? most[i] : largest;
        const float shift = softmax_shift(z, largest), shrink = fast_exp(most[i] - shift);
        UNROLL
        for (int j = 0; j < R; j++) {
            s[i][j] = tile_lane() + SIDE * j < seen ? fast_exp(s[i][j] - shift) : 0;
            sum += s[i][j];
        }
        most[i] = largest;
        total[i] = total[i] * shrink + sum;
        UNROLL
        for (int j = 0; j < D / SIDE; j++)
            o[i][j] *= shrink;
    }
}

/* The rows' results, and their log sum exp. */
template <int D, int B, class T>
DEVICE void softmax_end(const attention_sizes &z, const head_rows<T> &out, int query, const float (&most)[B / SIDE], const float (&total)[B / SIDE],
                        float (&o)[B / SIDE][D / SIDE], float *lse)
{
    enum { R = B / SIDE };
    UNROLL
    for (int i = 0; i < R; i++) {
        const float all = lanes_sum(total[i]), share = softmax_share(z, all);
        const int row = query + tile_row() * R + i;
        UNROLL
        for (int j = 0; j < D / SIDE; j++)
            o[i][j] *= share;
        if (tile_lane() == 0 && row < out.rows)
            lse[row] = share == 0 ? 0 : most[i] + logf(all);
    }
    tile_store<D, B>(out, query, o);
}

template <class T, int D, int B>
TILE_KERNEL(attention_tile, D)(attention_sizes z, const T *q, const T *k, const T *v, T *out, float *lse)
{
    SHARED_REST(float, room);
    float *const queries = room, *const keys = queries + rows_floats<D, B>(), *const weights = keys + rows_floats<D, B>();
    const int64_t head = blockIdx.x / z.tiles;
    const int query = (z.tiles - 1 - (int)(blockIdx.x % z.tiles)) * B;
    const int end = seen_by(z, query + B < z.seq ? query + B - 1 : z.seq - 1, 0);
    const int64_t shared = shared_head(z, head), mask = mask_of_head(z, head);
    const head_rows<const T> k_rows = keys_of(k, z, shared), v_rows = keys_of(v, z, shared);
    float most[B / SIDE], total[B / SIDE], s[B / SIDE][B / SIDE], o[B / SIDE][D / SIDE];
    clear(o);
    for (int i = 0; i < B / SIDE; i++) {
        most[i] = -INFINITY;
        total[i] = 0;
    }
    tile_load<D, B>(head_of(q, z, head, z.seq), query, queries);
    for (int key = first_key(z, query, B); key < end; key += B) {
        tile_load<D, B>(k_rows, key, keys);
        BARRIER();
        tile_scores<D, B>(queries, keys, s);
        softmax_tile<D, B>(z, mask, query, key, s, most, total, o);
        scores_put<B>(s, weights);
        BARRIER();
        tile_load<D, B>(v_rows, key, keys);
        BARRIER();
        tile_add<D, B>(weights, keys, o);
        BARRIER();
    }
    softmax_end<D, B>(z, head_of(out, z, head, z.seq), query, most, total, o, lse + head * z.seq);
}

template <class T, int D, int B> static void attention_launch(const weir_kernel_args *args, attention_sizes z)
{
    const size_t bytes = (size_t)(2 * rows_floats<D, B>() + scores_floats<B>()) * sizeof(float);
    z.tiles = (int)tiles_of(z.seq, B);
    LAUNCH_SHARED((attention_tile<T, D, B>), z.all * z.tiles, TILE_THREADS, bytes, args->queue, z,
                  data_of<T>(&args->in[0]), data_of<T>(&args->in[1]), data_of<T>(&args->in[2]), data_of<T>(&args->out[0]),
                  view_f32(&args->out[1]));
}

static weir_status attention_own(const weir_kernel_args *args, const attention_sizes &z)
{
    if (cores_fit(args, z))
        return cores_attention(args, z);
    WITH_REAL(args->in[0].dtype, T, WITH_TILES(z.head_dim, D, B, attention_launch<T, D, B>(args, z)));
    return launched(args);
}

extern "C" weir_status op_attention_cuda(const weir_kernel_args *args)
{
    const attention_sizes z = sizes_of(args, false);
    bool taken;
    if (!tiles_fit(args))
        return WEIR_E_UNSUPPORTED;
    const weir_status status = cudnn_attention(args, z, false, false, &taken);
    return status || taken ? status : attention_own(args, z);
}

extern "C" weir_status op_attention_cuda_prepare(const weir_kernel_args *args)
{
    bool taken;
    return tiles_fit(args) ? cudnn_attention(args, sizes_of(args, false), false, true, &taken) : WEIR_E_UNSUPPORTED;
}

extern "C" weir_status op_attention_masked_cuda(const weir_kernel_args *args)
{
    return tiles_fit(args) ? attention_own(args, sizes_of(args, true)) : WEIR_E_UNSUPPORTED;
}
