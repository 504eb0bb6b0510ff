/* kernels/attention/gradient.cu: the gradient of attention on a GPU; attention.c has the rules and says what it computes.
 *
 * Three kernels. delta = row sums of dout * out goes to the workspace. Then a block has a tile of queries and goes over the
 * keys that they see, for dq; and a block has a tile of keys and goes over the queries that see them, for dk and dv. Each
 * makes the scores again: that is two products more than if one kernel made all three, and no two blocks add to the same element, so
 * that every sum has its order.
 */
#include "kernels/attention/cores.h"
#include "kernels/attention/cudnn.h"

/* Operands of a call. */
template <class T> struct attention_grads {
    const T *q, *k, *v, *out, *dout;
    const float *lse;
    float *delta; /* like lse */
    T *dq, *dk, *dv;
};

enum { DELTA_THREADS = 128, DELTA_ROWS = DELTA_THREADS / WARP };

template <class T> KERNEL_OF(delta_rows, DELTA_THREADS)(attention_sizes z, attention_grads<T> g)
{
    const int64_t row = (int64_t)blockIdx.x * DELTA_ROWS + threadIdx.x / WARP, head = row / z.seq;
    if (row >= z.all * z.seq)
        return;
    const int64_t at = row % z.seq * z.dim;
    const T *out = head_of(g.out, z, head, z.seq).at + at, *dout = head_of(g.dout, z, head, z.seq).at + at;
    float sum = 0;
    for (int64_t i = threadIdx.x % WARP; i < z.head_dim; i += WARP)
        sum += real_load(out + i) * real_load(dout + i);
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0)
        g.delta[row] = sum;
}

/* From scores and dP: P and dS, in their places; 0 where a query does not see a key, or there is none. */
template <int B>
DEVICE void softmax_grad_tile(const attention_sizes &z, int64_t mask, int query, int key, const float *lse, const float *delta,
                              float (&p)[B / SIDE][B / SIDE], float (&ds)[B / SIDE][B / SIDE])
{
    enum { R = B / SIDE };
    const float scale = tile_hide(z, mask, query, key, p);
    UNROLL
    for (int i = 0; i < R; i++) {
        const int row = query + tile_row() * R + i;
        const int seen = row < z.seq ? seen_by(z, row, key) : 0;
        const float shift = row < z.seq ? lse[row] : 0, off = row < z.seq ? delta[row] : 0;
        UNROLL
        for (int j = 0; j < R; j++) {
            const bool sees = tile_lane() + SIDE * j < seen;
            p[i][j] = sees ? fast_exp(scale * p[i][j] - shift) : 0;
            ds[i][j] = sees ? z.scale * p[i][j] * (ds[i][j] - off) : 0;
        }
    }
}

template <class T, int D, int B>
TILE_KERNEL(attention_dq, D)(attention_sizes z, attention_grads<T> g)
{
    SHARED_REST(float, room);
    float *const queries = room, *const douts = queries + rows_floats<D, B>(), *const keys = douts + rows_floats<D, B>();
    float *const values = keys + rows_floats<D, B>(), *const scores = values + rows_floats<D, B>();
    const int64_t head = blockIdx.x / z.tiles;
    const int query = (z.tiles - 1 - (int)(blockIdx.x % z.tiles)) * B;
    const int end = seen_by(z, query + B < z.seq ? query + B - 1 : z.seq - 1, 0);
    const int64_t shared = shared_head(z, head), mask = mask_of_head(z, head);
    const head_rows<const T> k_rows = keys_of(g.k, z, shared), v_rows = keys_of(g.v, z, shared);
    float p[B / SIDE][B / SIDE], ds[B / SIDE][B / SIDE], dq[B / SIDE][D / SIDE];
    clear(dq);
    tile_load<D, B>(head_of(g.q, z, head, z.seq), query, queries);
    tile_load<D, B>(head_of(g.dout, z, head, z.seq), query, douts);
    for (int key = first_key(z, query, B); key < end; key += B) {
        tile_load<D, B>(k_rows, key, keys);
        tile_load<D, B>(v_rows, key, values);
        BARRIER();
        tile_scores<D, B>(queries, keys, p);
        tile_scores<D, B>(douts, values, ds);
        softmax_grad_tile<B>(z, mask, query, key, g.lse + head * z.seq, g.delta + head * z.seq, p, ds);
        scores_put<B>(ds, scores);
        BARRIER();
        tile_add<D, B>(scores, keys, dq);
        BARRIER();
    }
    tile_store<D, B>(head_of(g.dq, z, head, z.seq), query, dq);
}

template <class T, int D, int B>
TILE_KERNEL(attention_dkv, D)(attention_sizes z, attention_grads<T> g)
{
    SHARED_REST(float, room);
    float *const queries = room, *const douts = queries + rows_floats<D, B>(), *const keys = douts + rows_floats<D, B>();
    float *const values = keys + rows_floats<D, B>(), *const scores = values + rows_floats<D, B>();
    const int64_t shared = blockIdx.x / z.tiles;
    const int key = (int)(blockIdx.x % z.tiles) * B, first = z.causal ? key : 0, end = queries_end(z, key + B);
    float p[B / SIDE][B / SIDE], ds[B / SIDE][B / SIDE], dk[B / SIDE][D / SIDE], dv[B / SIDE][D / SIDE];
    clear(dk);
    clear(dv);
    tile_load<D, B>(keys_of(g.k, z, shared), key, keys);
    tile_load<D, B>(keys_of(g.v, z, shared), key, values);
    for (int64_t head = shared * z.group; head < (shared + 1) * z.group; head++) {
        const int64_t mask = mask_of_head(z, head);
        for (int query = first; query < end; query += B) {
            tile_load<D, B>(head_of(g.q, z, head, z.seq), query, queries);
            tile_load<D, B>(head_of(g.dout, z, head, z.seq), query, douts);
            BARRIER();
            tile_scores<D, B>(queries, keys, p);
            tile_scores<D, B>(douts, values, ds);
            softmax_grad_tile<B>(z, mask, query, key, g.lse + head * z.seq, g.delta + head * z.seq, p, ds);
            scores_put<B>(p, scores);
            BARRIER();
            tile_add_across<D, B>(scores, douts, dv);
            BARRIER();
            scores_put<B>(ds, scores);
            BARRIER();
            tile_add_across<D, B>(scores, queries, dk);
            BARRIER();
        }
    }
    tile_store<D, B>(keys_of(g.dk, z, shared), key, dk);
    tile_store<D, B>(keys_of(g.dv, z, shared), key, dv);
}

template <class T> static void delta_launch(const weir_kernel_args *args, const attention_sizes &z, const attention_grads<T> &g)
{
    LAUNCH((delta_rows<T>), tiles_of(z.all * z.seq, DELTA_ROWS), DELTA_THREADS, args->queue, z, g);
}

template <class T, int D, int B>
static void gradient_launch(const weir_kernel_args *args, attention_sizes z, const attention_grads<T> &g)
{
    const size_t bytes = (size_t)(4 * rows_floats<D, B>() + scores_floats<B>()) * sizeof(float);
    z.tiles = (int)tiles_of(z.seq, B);
    LAUNCH_SHARED((attention_dq<T, D, B>), z.all * z.tiles, TILE_THREADS, bytes, args->queue, z, g);
    z.tiles = (int)tiles_of(z.keys, B);
    LAUNCH_SHARED((attention_dkv<T, D, B>), z.kv_all * z.tiles, TILE_THREADS, bytes, args->queue, z, g);
}

template <class T> static attention_grads<T> grads_of(const weir_kernel_args *args)
{
    const weir_view *in = args->in, *out = args->out;
    return {data_of<T>(&in[0]), data_of<T>(&in[1]), data_of<T>(&in[2]), data_of<T>(&in[3]), data_of<T>(&in[5]),
            view_f32(&in[4]), (float *)args->workspace, data_of<T>(&out[0]), data_of<T>(&out[1]), data_of<T>(&out[2])};
}

static weir_status gradient_own(const weir_kernel_args *args, const attention_sizes &z)
{
    WITH_REAL(args->in[0].dtype, T, delta_launch(args, z, grads_of<T>(args)));
    if (cores_fit(args, z))
        return cores_gradient(args, z, (const float *)args->workspace);
    WITH_REAL(args->in[0].dtype, T,
              WITH_TILES(z.head_dim, D, B, gradient_launch<T, D, B>(args, z, grads_of<T>(args))));
    return launched(args);
}

extern "C" weir_status op_attention_grad_cuda(const weir_kernel_args *args)
{
    const attention_sizes z = sizes_of(args, false);
    bool taken;
    if (!tiles_fit(args))
        return WEIR_E_UNSUPPORTED;
    const weir_status status = cudnn_attention(args, z, true, false, &taken);
    return status || taken ? status : gradient_own(args, z);
}

extern "C" weir_status op_attention_grad_cuda_prepare(const weir_kernel_args *args)
{
    bool taken;
    return tiles_fit(args) ? cudnn_attention(args, sizes_of(args, false), true, true, &taken) : WEIR_E_UNSUPPORTED;
}

extern "C" weir_status op_attention_masked_grad_cuda(const weir_kernel_args *args)
{
    return tiles_fit(args) ? gradient_own(args, sizes_of(args, true)) : WEIR_E_UNSUPPORTED;
}
