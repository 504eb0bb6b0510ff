/* kernels/embedding/embedding.cu: rows of a table on a GPU, and the gradient of the table; embedding.c has their rules.
 *
 * The gradient needs neither atomics nor a sort: a block owns OWNED rows and COLUMNS columns of it, kept in shared memory
 * meanwhile, as double. It reads all ids, TILE at a time, lists those of its rows in their order, and adds their rows of
 * dy. So each sum goes in the order of the ids, as on the CPU. An id that is not in the whole table is refused:
 * its row is NaN, and its gradient goes nowhere.
 */
#include "kernels/cuda/rows.h"
#include "kernels/embedding/formula.h"

enum {
    COPY_THREADS = 256,
    OWNED = 32,
    COLUMNS = 128, /* and threads of a block */
    WARPS = COLUMNS / WARP,
    ROUNDS = 8,
    TILE = COLUMNS * ROUNDS,
    AT_ONCE = 8 /* rows of dy that are on their way */
};

template <class T, class U>
KERNEL_OF(embedding_row, COPY_THREADS)(refusals say, const int32_t *ids, const T *table, int64_t vocab, int64_t first,
                                       int64_t rows, int64_t dim, U *out)
{
    const int32_t id = ids[blockIdx.x];
    const bool known = id_known(id, vocab);
    if (!known && threadIdx.x == 0)
        refuse(say, blockIdx.x, id);
    const int64_t row = known ? row_at(id, first, rows) : -1;
    const float other = known ? 0 : NAN;
    out += blockIdx.x * dim;
    for (int64_t i = threadIdx.x; i < dim; i += blockDim.x)
        real_store(out + i, row < 0 ? other : real_load(table + row * dim + i));
}

extern "C" weir_status op_embedding_cuda(const weir_kernel_args *args)
{
    const weir_view *table = &args->in[1], *out = &args->out[0];
    const int64_t count = count_of(&args->in[0].shape), rows = table->shape.dim[0], dim = table->shape.dim[1];
    WITH_REAL(table->dtype, T,
              WITH_REAL(out->dtype, U,
                        LAUNCH((embedding_row<T, U>), count, threads_for(dim, COPY_THREADS), args->queue,
                               refusing(args), view_i32(&args->in[0]), data_of<T>(table), table->global.dim[0],
                               table->offset[0], rows, dim, data_of<U>(out))));
    return launched(args);
}

struct table_grad {
    refusals say;
    const int32_t *ids;
    const void *dy;
    float *out;
    int64_t count, vocab, first, rows, dim;
    bool add;
};

/* Round `round` of the tile: a warp has a run of ROUNDS * WARP ids. The row of the block's that this lane's id is of; -1:
 * another one's. */
DEVICE int owned_row(const table_grad &g, int64_t tile, int64_t owned, int round, int64_t *at)
{
    const int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    *at = tile + warp * ROUNDS * WARP + round * WARP + lane;
    if (*at >= g.count)
        return -1;
    const int32_t id = g.ids[*at];
    if (!id_known(id, g.vocab)) {
        refuse(g.say, *at, id);
        return -1;
    }
    const int64_t row = row_at(id, g.first, g.rows) - owned;
    return row >= 0 && row < OWNED ? (int)row : -1;
}

/* Lists the tile's ids of the block's rows, in order: where[] says which of dy, what[] the row. Returns how many. */
DEVICE int list_tile(const table_grad &g, int64_t tile, int64_t owned, int *counts, int *where, int *what)
{
    const int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    int64_t at;
    int found = 0, before = 0, all = 0;
    for (int round = 0; round < ROUNDS; round++)
        found += bits_set(BALLOT(owned_row(g, tile, owned, round, &at) >= 0));
    if (lane == 0)
        counts[warp] = found;
    BARRIER();
    for (int w = 0; w < WARPS; w++) {
        before += w < warp ? counts[w] : 0;
        all += counts[w];
    }
    for (int round = 0; round < ROUNDS && found; round++) {
        const int row = owned_row(g, tile, owned, round, &at);
        const unsigned mine = BALLOT(row >= 0);
        const int place = before + bits_set(mine & ((1u << lane) - 1));
        if (row >= 0) {
            where[place] = (int)(at - tile);
            what[place] = row;
        }
        before += bits_set(mine);
    }
    BARRIER();
    return all;
}

template <class T> KERNEL_OF(table_grad_block, COLUMNS)(table_grad g, int64_t slices)
{
    SHARED(double, sums, OWNED * COLUMNS);
    SHARED(int, counts, WARPS);
    SHARED(int, where, TILE);
    SHARED(int, what, TILE);
    const int64_t owned = blockIdx.x / slices * OWNED, column = blockIdx.x % slices * COLUMNS + threadIdx.x;
    const int64_t rows = g.rows - owned < OWNED ? g.rows - owned : (int64_t)OWNED;
    const T *dy = (const T *)g.dy + column;
    float *out = g.out + owned * g.dim + column;
    const bool mine = column < g.dim;
    for (int64_t row = 0; row < rows; row++)
        sums[row * COLUMNS + threadIdx.x] = mine && g.add ? out[row * g.dim] : 0;
    for (int64_t tile = 0; tile < g.count; tile += TILE) {
        const int listed = list_tile(g, tile, owned, counts, where, what);
        for (int i = 0; i < listed && mine; i += AT_ONCE) {
            float value[AT_ONCE];
            UNROLL
            for (int k = 0; k < AT_ONCE; k++)
                value[k] = i + k < listed ? real_load(dy + (tile + where[i + k]) * g.dim) : 0;
            for (int k = 0; k < AT_ONCE && i + k < listed; k++)
                sums[what[i + k] * COLUMNS + threadIdx.x] += value[k];
        }
        BARRIER();
    }
    for (int64_t row = 0; row < rows && mine; row++)
        out[row * g.dim] = (float)sums[row * COLUMNS + threadIdx.x];
}

extern "C" weir_status op_embedding_grad_cuda(const weir_kernel_args *args)
{
    const weir_view *out = &args->out[0], *dy = &args->in[1];
    const table_grad g = {refusing(args), view_i32(&args->in[0]), dy->data, view_f32(out), count_of(&args->in[0].shape),
                          ((const embedding_attrs *)args->attrs)->vocab, out->offset[0], out->shape.dim[0],
                          out->shape.dim[1], args->accumulate};
    const int64_t slices = (g.dim + COLUMNS - 1) / COLUMNS;
    WITH_REAL(dy->dtype, T,
              LAUNCH((table_grad_block<T>), (g.rows + OWNED - 1) / OWNED * slices, COLUMNS, args->queue, g, slices));
    return launched(args);
}
