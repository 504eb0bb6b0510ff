/* kernels/embedding/table.h: the gradient of rows that were picked from tables, on a GPU: each row of `out` is the sum of the rows of dy
 * that belong to it.
 *
 *     out [outside, rows, dim] (+)= dy [outside, count, dim]; F says which row of `out` number i of dy belongs to
 *
 * It needs neither atomics nor a sort: a block owns OWNED rows and COLUMNS columns, kept in shared memory meanwhile, as double. It asks
 * for the rows of all of dy, TILE at a time, lists those that are its own in their order, and adds them. So each sum goes in the
 * order of dy, as on the CPU.
 *
 *     METHOD int64_t row(int64_t outside, int64_t i) const;      of F; -1: to none here. Every block asks for each i, most twice
 *
 * Header-only; for nvcc and the emulator.
 */
#ifndef KERNELS_EMBEDDING_TABLE_H
#define KERNELS_EMBEDDING_TABLE_H

#include "kernels/cuda/rows.h"

enum {
    OWNED = 32,
    COLUMNS = 128, /* and threads of a block */
    WARPS = COLUMNS / WARP,
    ROUNDS = 8,
    TILE = COLUMNS * ROUNDS,
    AT_ONCE = 8 /* rows of dy that are on their way */
};

template <class F> struct table_grad {
    F of;
    const void *dy;
    float *out;
    int64_t outside, count, rows, dim;
    bool add;
};

/* Round `round` of the tile: a warp has a run of ROUNDS * WARP ids. The row of the block's that this lane's id is of; -1:
 * another one's. */
template <class F>
DEVICE int owned_row(const table_grad<F> &g, int64_t outside, int64_t tile, int64_t owned, int round, int64_t *at)
{
    const int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    *at = tile + warp * ROUNDS * WARP + round * WARP + lane;
    if (*at >= g.count)
        return -1;
    const int64_t row = g.of.row(outside, *at);
    return row >= owned && row < owned + OWNED ? (int)(row - owned) : -1;
}

/* Lists the tile's ids of the block's rows, in order: where[] says which of dy, what[] the row. Returns how many. */
template <class F>
DEVICE int list_tile(const table_grad<F> &g, int64_t outside, int64_t tile, int64_t owned, int *counts, int *where, int *what)
{
    const int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    int64_t at;
    int found = 0, before = 0, all = 0;
    for (int round = 0; round < ROUNDS; round++)
        found += bits_set(BALLOT(owned_row(g, outside, tile, owned, round, &at) >= 0));
    if (lane == 0)
        counts[warp] = found;
    BARRIER();
    for (int w = 0; w < WARPS; w++) {
        before += w < warp ? counts[w] : 0;
        all += counts[w];
    }
    for (int round = 0; round < ROUNDS && found; round++) {
        const int row = owned_row(g, outside, tile, owned, round, &at);
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

template <class F, class T> KERNEL_OF(table_grad_block, COLUMNS)(table_grad<F> g, int64_t slices, int64_t blocks)
{
    SHARED(double, sums, OWNED * COLUMNS);
    SHARED(int, counts, WARPS);
    SHARED(int, where, TILE);
    SHARED(int, what, TILE);
    const int64_t outside = blockIdx.x / blocks, block = blockIdx.x % blocks;
    const int64_t owned = block / slices * OWNED, column = block % slices * COLUMNS + threadIdx.x;
    const int64_t rows = g.rows - owned < OWNED ? g.rows - owned : (int64_t)OWNED;
    const T *dy = (const T *)g.dy + outside * g.count * g.dim + column;
    float *out = g.out + (outside * g.rows + owned) * g.dim + column;
    const bool mine = column < g.dim;
    for (int64_t row = 0; row < rows; row++)
        sums[row * COLUMNS + threadIdx.x] = mine && g.add ? out[row * g.dim] : 0;
    for (int64_t tile = 0; tile < g.count; tile += TILE) {
        const int listed = list_tile(g, outside, tile, owned, counts, where, what);
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

template <class F> static inline weir_status table_grad_run(const weir_kernel_args *args, const table_grad<F> &g, weir_dtype dtype)
{
    const int64_t slices = (g.dim + COLUMNS - 1) / COLUMNS, blocks = (g.rows + OWNED - 1) / OWNED * slices;
    WITH_REAL(dtype, T, LAUNCH((table_grad_block<F, T>), g.outside * blocks, COLUMNS, args->queue, g, slices, blocks));
    return launched(args);
}

#endif
