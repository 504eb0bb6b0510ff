/* moves.cu: see the header. */
#include "kernels/cuda/moves.h"

enum { TILE = 32, TILE_LINES = 8 };

template <class U, class I> struct move_of {
    const U *from;
    U *to;
    walk<I, 2> w;
    template <int N> METHOD void at(int64_t i) const
    {
        int64_t at[2];
        w.to((I)i, at);
        to[at[1]] = from[at[0]];
    }
};

/* A tile of `rows` (the input's innermost) x `columns` (the output's), of which there are `wide` beside each other. */
struct tile_shape {
    int64_t rows, columns, tall, wide;
    int64_t from_step, to_step; /* from one column to the next in the input, from one row to the next in the output */
};

template <class U, class I>
KERNEL_OF(move_tile, TILE *TILE_LINES)(const U *from, U *to, tile_shape t, walk<I, 2> outside)
{
    SHARED(U, tile, TILE * (TILE + 1));
    const int64_t wide = blockIdx.x % t.wide, tall = blockIdx.x / t.wide % t.tall;
    const int line = (int)threadIdx.x / TILE, lane = (int)threadIdx.x % TILE;
    int64_t at[2];
    outside.to((I)(blockIdx.x / t.wide / t.tall), at);
    for (int k = line; k < TILE; k += TILE_LINES) {
        const int64_t row = tall * TILE + lane, column = wide * TILE + k;
        if (row < t.rows && column < t.columns)
            tile[k * (TILE + 1) + lane] = from[at[0] + row + column * t.from_step];
    }
    BARRIER();
    for (int k = line; k < TILE; k += TILE_LINES) {
        const int64_t row = tall * TILE + k, column = wide * TILE + lane;
        if (row < t.rows && column < t.columns)
            to[at[1] + row * t.to_step + column] = tile[lane * (TILE + 1) + k];
    }
}

static int64_t count_in(const nest &n)
{
    int64_t count = 1;
    for (int d = 0; d < n.rank; d++)
        count *= n.dim[d];
    return count;
}

/* Dimension `d` of the nest, taken out of it. */
static void take_out(nest *n, int d)
{
    n->rank--;
    for (; d < n->rank; d++) {
        n->dim[d] = n->dim[d + 1];
        for (int k = 0; k < 2; k++)
            n->stride[k][d] = n->stride[k][d + 1];
    }
}

/* The dimension in which the input runs, where the output runs in another and tiles are worth it; -1: there is none. */
static int across(const nest &n)
{
    const int last = n.rank - 1;
    if (n.stride[1][last] != 1 || n.stride[0][last] == 1 || n.dim[last] < TILE_LINES)
        return -1;
    for (int d = 0; d < last; d++)
        if (n.stride[0][d] == 1 && n.dim[d] >= TILE_LINES)
            return d;
    return -1;
}

template <class U> static void launch_tiles(const weir_kernel_args *args, const void *from, void *to, nest n, int fast)
{
    const int last = n.rank - 1;
    const tile_shape t = {n.dim[fast], n.dim[last], (n.dim[fast] + TILE - 1) / TILE, (n.dim[last] + TILE - 1) / TILE,
                          n.stride[0][last], n.stride[1][fast]};
    take_out(&n, last);
    take_out(&n, fast);
    const int64_t tiles = count_in(n) * t.tall * t.wide;
    WITH_INDEX(tiles, I,
               LAUNCH((move_tile<U, I>), tiles, TILE * TILE_LINES, args->queue, (const U *)from, (U *)to, t,
                      walk_of<I, 2>(n)));
}

template <class U, class I> static void launch_units(const weir_kernel_args *args, const void *from, void *to, const nest &n)
{
    const move_of<U, I> f = {(const U *)from, (U *)to, walk_of<I, 2>(n)};
    each<1>(args, f, count_in(n), false);
}

template <class U> static void launch(const weir_kernel_args *args, const void *from, void *to, const nest &n, bool tiles)
{
    const int fast = tiles ? across(n) : -1;
    if (fast >= 0)
        launch_tiles<U>(args, from, to, n, fast);
    else
        WITH_INDEX(count_in(n), I, launch_units<U, I>(args, from, to, n));
}

/* Whether `unit` elements of so many bytes may be moved as one. */
static bool moves_as(const nest &n, const void *from, const void *to, size_t bytes, int64_t unit)
{
    const int last = n.rank - 1;
    const size_t all = bytes * (size_t)unit;
    bool fit = n.stride[0][last] == 1 && n.stride[1][last] == 1 && n.dim[last] % unit == 0 && packs_fit(from, all) &&
               packs_fit(to, all);
    for (int d = 0; d < last; d++)
        fit &= n.stride[0][d] % unit == 0 && n.stride[1][d] % unit == 0;
    return fit;
}

void move_elements(const weir_kernel_args *args, const void *from, void *to, size_t bytes, nest n)
{
    const size_t element = bytes;
    nest_collapse(&n);
    while (bytes < 16 && moves_as(n, from, to, element, (int64_t)(2 * bytes / element)))
        bytes *= 2;
    const int64_t unit = (int64_t)(bytes / element);
    n.dim[n.rank - 1] /= unit;
    for (int d = 0; d < n.rank - 1; d++)
        for (int k = 0; k < 2; k++)
            n.stride[k][d] /= unit;
    if (bytes == 16)
        launch<uint4>(args, from, to, n, false);
    else if (bytes == 8)
        launch<uint2>(args, from, to, n, false);
    else if (bytes == 4)
        launch<uint32_t>(args, from, to, n, unit == 1);
    else if (bytes == 2)
        launch<uint16_t>(args, from, to, n, unit == 1);
    else
        launch<uint8_t>(args, from, to, n, true);
}

void move_run(const weir_kernel_args *args, const void *from, void *to, size_t bytes, int64_t count)
{
    nest n = {};
    n.rank = 1;
    n.operands = 2;
    n.dim[0] = count;
    n.stride[0][0] = n.stride[1][0] = 1;
    if (from != to && count)
        move_elements(args, from, to, bytes, n);
}

template <class U> struct zero_of {
    U *to;
    template <int N> METHOD void at(int64_t i) const { to[i] = U(); }
};

void move_zeros(const weir_kernel_args *args, void *to, size_t bytes)
{
    const size_t whole = packs_fit(to, 16) ? bytes / 16 * 16 : 0;
    const zero_of<uint4> packs = {(uint4 *)to};
    const zero_of<uint8_t> rest = {(uint8_t *)to + whole};
    each<1>(args, packs, (int64_t)(whole / 16), false);
    each<1>(args, rest, (int64_t)(bytes - whole), false);
}
