/* kernels/attention/cores.cu: softmax(scale q k^T) v of halves by tensor cores; see cores.h. Tiles with the most keys are started
 * first. Scores are powers of two, so that one instruction makes the exponential. */
#include "kernels/attention/cores.h"

#define LOG2_E 1.4426950408889634f
#define LN_2 0.6931471805599453f

/* The sum, and the largest, over the four lanes that share rows. */
DEVICE float quad_sum(float x)
{
    x += SHUFFLE_XOR(x, 1);
    return x + SHUFFLE_XOR(x, 2);
}

DEVICE float quad_max(float x)
{
    float other = SHUFFLE_XOR(x, 1);
    x = other > x ? other : x;
    other = SHUFFLE_XOR(x, 2);
    return other > x ? other : x;
}

/* For a lane's two rows: the largest score so far, and the sum of 2^(score - most) of its columns. */
struct row_state {
    float most[2], total[2];
};

/* Scales a lane's scores of a tile and hides some, as tile_hide() does. Its first query and key are these. across: rows are keys. */
template <bool ACROSS, int N>
DEVICE float cores_hide(const attention_sizes &z, int64_t mask, int query, int key, tile_c (&s)[N])
{
    if (!z.hides)
        return z.scale;
    UNROLL
    for (int n = 0; n < 4 * N; n++) {
        const int row = n % 4 / 2 * 8, column = n / 4 * 8 + n % 2;
        float &x = s[n / 4].r[n % 4];
        x = shown_score(z, mask, query + (ACROSS ? column : row), key + (ACROSS ? row : column), x);
    }
    return 1;
}

/* Scores to 2^(score - most); what was summed under an older maximum is brought to the same scale. Row i of a lane, query
 * own + 8 i, sees `seen[i]` columns of the tile, which begins at `key`. */
template <int D, int N>
DEVICE void cores_softmax(const attention_sizes &z, int64_t mask, int own, int key, const int (&seen)[2], tile_c (&s)[N],
                          row_state &row, tile_c (&o)[D / 8])
{
    const int column = 2 * (lane_here() % 4);
    const float scale = cores_hide<false>(z, mask, own, key + column, s) * LOG2_E;
    UNROLL
    for (int i = 0; i < 2; i++) {
        float largest = row.most[i], sum = 0;
        UNROLL
        for (int n = 0; n < 2 * N; n++) {
            float &x = s[n / 2].r[2 * i + n % 2];
            x = n / 2 * 8 + column + n % 2 < seen[i] ? x * scale : -INFINITY;
            largest = x > largest ? x : largest;
        }
        largest = quad_max(largest);
        const float shift = softmax_shift(z, largest), shrink = exp2f(row.most[i] - shift);
        UNROLL
        for (int n = 0; n < 2 * N; n++) {
            float &x = s[n / 2].r[2 * i + n % 2];
            x = exp2f(x - shift);
            sum += x;
        }
        row.most[i] = largest;
        row.total[i] = row.total[i] * shrink + sum;
        UNROLL
        for (int n = 0; n < D / 4; n++)
            o[n / 2].r[2 * i + n % 2] *= shrink;
    }
}

/* The rows' results, and their log sum exp. */
template <int D, class T>
DEVICE void cores_end(const attention_sizes &z, const head_rows<T> &out, int query, const row_state &state, tile_c (&o)[D / 8], float *lse)
{
    const int row = query + (int)threadIdx.x / WARP * 16 + lane_here() / 4;
    UNROLL
    for (int i = 0; i < 2; i++) {
        const float all = quad_sum(state.total[i]), share = softmax_share(z, all);
        UNROLL
        for (int n = 0; n < D / 4; n++)
            o[n / 2].r[2 * i + n % 2] *= share;
        if (lane_here() % 4 == 0 && row + 8 * i < out.rows)
            lse[row + 8 * i] = share == 0 ? 0 : state.most[i] * LN_2 + logf(all);
    }
    cores_store<D>(out, query, o);
}

template <class T, int D>
KERNEL_OF(attention_cores, CORES_THREADS)(attention_sizes z, const T *q, const T *k, const T *v, T *out, float *lse)
{
    enum { KEYS = 64 };
    SHARED_REST(T, room);
    T *const keys = room, *const values = keys + KEYS * cores_step<D>();
    const int64_t head = blockIdx.x / z.tiles;
    const int query = (z.tiles - 1 - (int)(blockIdx.x % z.tiles)) * CORES_ROWS;
    const int end = seen_by(z, query + CORES_ROWS < z.seq ? query + CORES_ROWS - 1 : z.seq - 1, 0);
    const int own = query + (int)threadIdx.x / WARP * 16 + lane_here() / 4;
    const int64_t shared = shared_head(z, head), mask = mask_of_head(z, head);
    const head_rows<const T> k_rows = keys_of(k, z, shared), v_rows = keys_of(v, z, shared);
    row_state row = {{-INFINITY, -INFINITY}, {0, 0}};
    tile_a queries[D / 16];
    tile_c s[KEYS / 8], o[D / 8];
    cores_load<D>(head_of(q, z, head, z.seq), query, CORES_ROWS, keys);
    BARRIER();
    cores_rows<D>(cores_own<D>(keys), queries);
    cores_clear(o);
    for (int key = first_key(z, query, KEYS); key < end; key += KEYS) {
        BARRIER();
        cores_load<D>(k_rows, key, KEYS, keys);
        cores_load<D>(v_rows, key, KEYS, values);
        BARRIER();
        const int seen[2] = {seen_by(z, own, key), seen_by(z, own + 8, key)};
        cores_scores<T, D>(queries, keys, s);
        cores_softmax<D>(z, mask, own, key, seen, s, row, o);
        cores_add<T, D>(s, values, o);
    }
    cores_end<D>(z, head_of(out, z, head, z.seq), query, row, o, lse + head * z.seq);
}

template <class T, int D> static void attention_launch(const weir_kernel_args *args, attention_sizes z)
{
    const size_t bytes = (size_t)(2 * CORES_ROWS * cores_step<D>()) * sizeof(T);
    z.tiles = (int)tiles_of(z.seq, CORES_ROWS);
    LAUNCH_SHARED((attention_cores<T, D>), z.all * z.tiles, CORES_THREADS, bytes, args->queue, z, data_of<T>(&args->in[0]),
                  data_of<T>(&args->in[1]), data_of<T>(&args->in[2]), data_of<T>(&args->out[0]), view_f32(&args->out[1]));
}

weir_status cores_attention(const weir_kernel_args *args, attention_sizes z)
{
    WITH_HALF(args->in[0].dtype, T, WITH_CORES(z.head_dim, D, attention_launch<T, D>(args, z)));
    return launched(args);
}

/* ---- the gradient ---- */

/* Operands of a call. */
template <class T> struct cores_grads {
    const T *q, *k, *v, *dout;
    const float *lse, *delta;
    T *dq, *dk, *dv;
};

/* From scores and dP: P and dS, in their places. A lane's row i, query own + 8 i, sees `seen[i]` columns from `key` on. */
template <int N>
DEVICE void cores_softmax_grad(const attention_sizes &z, int64_t mask, int own, int key, const int (&seen)[2],
                               const float (&shift)[2], const float (&off)[2], tile_c (&p)[N],
                               tile_c (&ds)[N])
{
    const int column = 2 * (lane_here() % 4);
    const float scale = cores_hide<false>(z, mask, own, key + column, p);
    UNROLL
    for (int n = 0; n < 4 * N; n++) {
        const int i = n % 4 / 2;
        float &x = p[n / 4].r[n % 4], &d = ds[n / 4].r[n % 4];
        const bool sees = n / 4 * 8 + column + n % 2 < seen[i];
        x = sees ? exp2f((scale * x - shift[i]) * LOG2_E) : 0;
        d = sees ? z.scale * x * (d - off[i]) : 0;
    }
}

/* Keys of a tile while dq is made. */
template <int D> FORMULA constexpr int dq_keys()
{
    return D > 64 ? 16 : 32;
}

template <class T, int D> KERNEL_OF(cores_dq, CORES_THREADS)(attention_sizes z, cores_grads<T> g)
{
    enum { KEYS = dq_keys<D>() };
    SHARED_REST(T, room);
    T *const queries = room, *const douts = queries + CORES_ROWS * cores_step<D>();
    T *const keys = room, *const values = keys + KEYS * cores_step<D>();
    const int64_t head = blockIdx.x / z.tiles;
    const int query = (z.tiles - 1 - (int)(blockIdx.x % z.tiles)) * CORES_ROWS;
    const int end = seen_by(z, query + CORES_ROWS < z.seq ? query + CORES_ROWS - 1 : z.seq - 1, 0);
    const int own = query + (int)threadIdx.x / WARP * 16 + lane_here() / 4;
    const int64_t shared = shared_head(z, head), mask = mask_of_head(z, head);
    const head_rows<const T> k_rows = keys_of(g.k, z, shared), v_rows = keys_of(g.v, z, shared);
    float shift[2], off[2];
    tile_a q_rows[D / 16], dout_rows[D / 16];
    tile_c p[KEYS / 8], ds[KEYS / 8], dq[D / 8];
    for (int i = 0; i < 2; i++) {
        const int row = own + 8 * i < z.seq ? own + 8 * i : z.seq - 1;
        shift[i] = g.lse[head * z.seq + row];
        off[i] = g.delta[head * z.seq + row];
    }
    cores_load<D>(head_of(g.q, z, head, z.seq), query, CORES_ROWS, queries);
    cores_load<D>(head_of(g.dout, z, head, z.seq), query, CORES_ROWS, douts);
    BARRIER();
    cores_rows<D>(cores_own<D>(queries), q_rows);
    cores_rows<D>(cores_own<D>(douts), dout_rows);
    cores_clear(dq);
    for (int key = first_key(z, query, KEYS); key < end; key += KEYS) {
        BARRIER();
        cores_load<D>(k_rows, key, KEYS, keys);
        cores_load<D>(v_rows, key, KEYS, values);
        BARRIER();
        const int seen[2] = {seen_by(z, own, key), seen_by(z, own + 8, key)};
        cores_scores<T, D>(q_rows, keys, p);
        cores_scores<T, D>(dout_rows, values, ds);
        cores_softmax_grad(z, mask, own, key, seen, shift, off, p, ds);
        cores_add<T, D>(ds, keys, dq);
    }
    cores_store<D>(head_of(g.dq, z, head, z.seq), query, dq);
}

/* P^T and dS^T from scores and dP, whose rows are keys and whose columns are the tile's queries. */
template <int N>
DEVICE void cores_softmax_grad_across(const attention_sizes &z, int64_t mask, int key, int query, const float *shift, const float *off,
                                      tile_c (&p)[N], tile_c (&ds)[N])
{
    const int column = 2 * (lane_here() % 4);
    const float scale = cores_hide<true>(z, mask, query + column, key, p);
    UNROLL
    for (int n = 0; n < 4 * N; n++) {
        const int c = n / 4 * 8 + column + n % 2, row = key + n % 4 / 2 * 8;
        float &x = p[n / 4].r[n % 4], &d = ds[n / 4].r[n % 4];
        const bool sees = query + c < z.seq && row < seen_by(z, query + c, 0);
        x = sees ? exp2f((scale * x - shift[c]) * LOG2_E) : 0;
        d = sees ? z.scale * x * (d - off[c]) : 0;
    }
}

/* Queries of a tile while dk and dv are made, and whether the keys' rows stay in registers. */
template <int D> FORMULA constexpr int dkv_queries()
{
    return D > 64 ? 16 : 32;
}

template <class T, int D> KERNEL_OF(cores_dkv, CORES_THREADS)(attention_sizes z, cores_grads<T> g)
{
    enum { QUERIES = dkv_queries<D>(), TILE = CORES_ROWS * (D + 8), PART = QUERIES * (D + 8) };
    SHARED_REST(T, room);
    SHARED(float, shift, QUERIES);
    SHARED(float, off, QUERIES);
    T *const keys = room, *const values = keys + TILE, *const queries = values + TILE, *const douts = queries + PART;
    const int64_t shared = blockIdx.x / z.tiles;
    const int key = (int)(blockIdx.x % z.tiles) * CORES_ROWS, first = z.causal ? key : 0, end = queries_end(z, key + CORES_ROWS);
    const int own = key + (int)threadIdx.x / WARP * 16 + lane_here() / 4;
    tile_c p[QUERIES / 8], ds[QUERIES / 8], dk[D / 8], dv[D / 8];
    cores_load<D>(keys_of(g.k, z, shared), key, CORES_ROWS, keys);
    cores_load<D>(keys_of(g.v, z, shared), key, CORES_ROWS, values);
    cores_clear(dk);
    cores_clear(dv);
    for (int64_t head = shared * z.group; head < (shared + 1) * z.group; head++) {
        const int64_t mask = mask_of_head(z, head);
        for (int query = first; query < end; query += QUERIES) {
            cores_load<D>(head_of(g.q, z, head, z.seq), query, QUERIES, queries);
            cores_load<D>(head_of(g.dout, z, head, z.seq), query, QUERIES, douts);
            const int row = query + (int)threadIdx.x;
            if (threadIdx.x < QUERIES) {
                shift[threadIdx.x] = row < z.seq ? g.lse[head * z.seq + row] : 0;
                off[threadIdx.x] = row < z.seq ? g.delta[head * z.seq + row] : 0;
            }
            BARRIER();
            tile_a rows[D / 16];
            cores_rows<D>(cores_own<D>(keys), rows);
            cores_scores<T, D>(rows, queries, p);
            cores_rows<D>(cores_own<D>(values), rows);
            cores_scores<T, D>(rows, douts, ds);
            cores_softmax_grad_across(z, mask, own, query, shift, off, p, ds);
            cores_add<T, D>(p, douts, dv);
            cores_add<T, D>(ds, queries, dk);
            BARRIER();
        }
    }
    cores_store<D>(keys_of(g.dk, z, shared), key, dk);
    cores_store<D>(keys_of(g.dv, z, shared), key, dv);
}

template <class T, int D>
static void gradient_launch(const weir_kernel_args *args, attention_sizes z, const cores_grads<T> &g)
{
    const size_t row = cores_step<D>() * sizeof(T);
    z.tiles = (int)tiles_of(z.seq, CORES_ROWS);
    LAUNCH_SHARED((cores_dq<T, D>), z.all * z.tiles, CORES_THREADS, 2 * CORES_ROWS * row, args->queue, z, g);
    z.tiles = (int)tiles_of(z.keys, CORES_ROWS);
    LAUNCH_SHARED((cores_dkv<T, D>), z.kv_all * z.tiles, CORES_THREADS, 2 * (CORES_ROWS + dkv_queries<D>()) * row, args->queue, z,
                  g);
}

template <class T> static cores_grads<T> grads_of(const weir_kernel_args *args, const float *delta)
{
    const weir_view *in = args->in, *out = args->out;
    return {data_of<T>(&in[0]), data_of<T>(&in[1]), data_of<T>(&in[2]), data_of<T>(&in[5]), view_f32(&in[4]), delta,
            data_of<T>(&out[0]), data_of<T>(&out[1]), data_of<T>(&out[2])};
}

weir_status cores_gradient(const weir_kernel_args *args, attention_sizes z, const float *delta)
{
    WITH_HALF(args->in[0].dtype, T,
              WITH_CORES(z.head_dim, D, gradient_launch<T, D>(args, z, grads_of<T>(args, delta))));
    return launched(args);
}
