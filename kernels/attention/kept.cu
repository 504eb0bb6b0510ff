/* kernels/attention/kept.cu: attention of a few new rows behind those that were kept, on a GPU; kept.c has the rules.
 *
 * A block has one row of one head. Keys are taken KEPT_THREADS at a time, counted from the first that the row sees: a thread
 * makes the score of one, in the order of the dimension, and then sums up values for a column. So the bits follow from the
 * row's place alone, and not from how many rows come with it. A position at which the new rows do not fit is refused,
 * and they are NaN.
 */
#include "kernels/attention/formula.h"
#include "kernels/cuda/rows.h"

enum { KEPT_THREADS = 128 };

/* Sizes of a call. */
struct kept_sizes {
    int64_t rows, room, dim, kv_dim, head_dim, heads, group, window;
    float scale;
    attention_mask mask;
};

/* The score of a key at a position, for a row of a head. */
DEVICE float kept_shown(const kept_sizes &z, int64_t mask, int64_t at, float score)
{
    if (!z.mask.at)
        return score;
    return !z.mask.bytes ? score + ((const float *)z.mask.at)[mask + at] : ((const uint8_t *)z.mask.at)[mask + at] ? score : -INFINITY;
}

template <class K> DEVICE float score_of(const float *query, const K *key, int64_t count)
{
    float score = 0;
    for (int64_t i = 0; i < count; i++)
        score += query[i] * real_load(key + i);
    return score;
}

/* sum += weights[first..end) of the rows of a column, of which the first of the tile is at `values`. */
template <class K>
DEVICE float column_add(const float *weights, int64_t first, int64_t end, const K *values, int64_t dim, float sum)
{
    for (int64_t j = first; j < end; j++)
        sum += weights[j] * real_load(values + j * dim);
    return sum;
}

/* q and the result are of T, new keys and values of N, kept ones of K. */
template <class T, class N, class K>
KERNEL_OF(kept_row, KEPT_THREADS, 1)(refusals say, kept_sizes z, const T *q, const N *k, const N *v, const K *keys,
                                  const K *values, const int32_t *positions, T *out)
{
    SHARED(float, part, WARP);
    SHARED(float, weights, KEPT_THREADS);
    SHARED_REST(float, sums); /* head_dim of them; behind them, q */
    float *const sum = sums, *const query = sum + z.head_dim;
    const int32_t told = *positions;
    const bool fits = told >= 0 && told <= z.room - z.rows;
    const int64_t position = fits ? told : 0, row = blockIdx.x % z.rows, head = blockIdx.x / z.rows;
    const int64_t column = head % z.heads * z.head_dim, batch = head / z.heads;
    const int64_t own = batch * z.rows * z.dim + column, shared = head % z.heads / z.group * z.head_dim;
    const int64_t fresh = batch * z.rows * z.kv_dim + shared, old = batch * z.room * z.kv_dim + shared;
    const int64_t count = position + row + 1, mask = z.mask.at ? mask_row(&z.mask, batch, head % z.heads, row) : 0;
    if (!fits && threadIdx.x == 0)
        refuse(say, 0, told);
    float most = -INFINITY, total = 0;
    for (int64_t i = threadIdx.x; i < z.head_dim; i += blockDim.x) {
        sum[i] = fits ? 0 : NAN;
        query[i] = real_load(q + own + row * z.dim + i);
    }
    BARRIER();
    for (int64_t first = key_from(z.window, position + row); first < count; first += KEPT_THREADS) {
        const int64_t at = first + threadIdx.x, here = count - first < KEPT_THREADS ? count - first : (int64_t)KEPT_THREADS;
        const int64_t kept = position < first ? 0 : position - first < here ? position - first : here;
        float score = 0;
        if (at < position)
            score = score_of(query, keys + old + at * z.kv_dim, z.head_dim);
        else if (at < count)
            score = score_of(query, k + fresh + (at - position) * z.kv_dim, z.head_dim);
        score = at < count ? kept_shown(z, mask, at, score * z.scale) : -INFINITY;
        const float tile = block_max(score, part), largest = tile > most ? tile : most;
        const float shift = z.mask.at && largest == -INFINITY ? 0 : largest;
        const float shrink = fast_exp(most - shift), weight = at < count ? fast_exp(score - shift) : 0;
        weights[threadIdx.x] = weight;
        most = largest;
        total = total * shrink + block_sum<float>(weight, part);
        for (int64_t i = threadIdx.x; i < z.head_dim; i += blockDim.x) {
            const float add = column_add<K>(weights, 0, kept, values + old + first * z.kv_dim + i, z.kv_dim, 0);
            const N *const behind = v + fresh + (first - position) * z.kv_dim + i;
            sum[i] = sum[i] * shrink + column_add<N>(weights, kept, here, behind, z.kv_dim, add);
        }
        BARRIER();
    }
    for (int64_t i = threadIdx.x; i < z.head_dim; i += blockDim.x)
        real_store(out + own + row * z.dim + i, z.mask.at && total == 0 ? 0 : sum[i] / total);
}

template <class T, class N, class K> static weir_status kept_launch(const weir_kernel_args *args, const kept_sizes &z)
{
    const int64_t blocks = args->in[0].shape.dim[0] * z.heads * z.rows;
    const size_t bytes = 2 * (size_t)z.head_dim * sizeof(float);
    LAUNCH_SHARED((kept_row<T, N, K>), blocks, KEPT_THREADS, bytes, args->queue, refusing(args), z, data_of<T>(&args->in[0]),
                  data_of<N>(&args->in[1]), data_of<N>(&args->in[2]), data_of<K>(&args->in[3]), data_of<K>(&args->in[4]),
                  view_i32(&args->in[5]), data_of<T>(&args->out[0]));
    return launched(args);
}

/* New rows are as the kept ones are, or as q is while f32 is kept. */
static weir_status kept_run(const weir_kernel_args *args, int64_t window)
{
    const kept_attrs *attrs = (const kept_attrs *)args->attrs;
    const weir_view *q = &args->in[0], *keys = &args->in[3];
    const int64_t dim = q->shape.dim[2], kv_dim = keys->shape.dim[2];
    kept_sizes z = {q->shape.dim[1], keys->shape.dim[1], dim, kv_dim, attrs->head_dim, dim / attrs->head_dim,
                    group_of(dim, kv_dim), window, (float)attrs->scale, {}};
    if (args->in_count > 6)
        z.mask = mask_of(&args->in[6]);
    if (args->in[1].dtype != keys->dtype)
        WITH_REAL(q->dtype, T, return (kept_launch<T, T, float>(args, z)));
    WITH_REAL(q->dtype, T, WITH_REAL(keys->dtype, K, return (kept_launch<T, K, K>(args, z))));
    return launched(args);
}

extern "C" weir_status op_attention_kept_cuda(const weir_kernel_args *args)
{
    return kept_run(args, 0);
}

extern "C" weir_status op_attention_kept_masked_cuda(const weir_kernel_args *args)
{
    return kept_run(args, ((const kept_masked_attrs *)args->attrs)->window);
}
