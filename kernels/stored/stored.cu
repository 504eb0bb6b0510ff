/* kernels/stored/stored.cu: products and embeddings of weights as they are stored, on a GPU; op.c has their rules and says what they
 * compute.
 *
 * A warp makes an output of a few rows of x: its lanes take the units of the row of w in turn, and a tree of shuffles adds them. So an
 * output's bits do not depend on how many rows there are. x is rounded first, by a kernel of its own, as on the CPU. In the gradient of x
 * a thread has a unit of columns and goes down the rows of w.
 *
 * Blocks are read byte by byte, at any address. Dense weights are aligned, as all that lies in a device's memory is.
 */
#include "kernels/cuda/rows.h"
#include "kernels/embedding/formula.h"
#include "kernels/stored/rounded.h"
#include "kernels/stored/stored.h"

enum { STORED_THREADS = 256, STORED_WARPS = STORED_THREADS / WARP, STORED_ROWS = 4 /* of x, of a warp */ };

/* The weight, for kernels. */
struct stored_blocks {
    weir_format format;
    block_format is;
    const unsigned char *at;
    int64_t out, in, row_bytes;

    /* Unit `unit` of a row. */
    METHOD void read(int64_t row, int64_t unit, block_unit *to) const
    {
        const int units = is.elements / is.unit;
        block_unit_read(format, at + row * row_bytes + unit / units * is.bytes, (int)(unit % units), to);
    }
    METHOD float element(const block_unit &unit, int i) const
    {
        return is.minimum ? unit.scale * (float)unit.q[i] + unit.minimum : unit.scale * (float)(unit.q[i] - is.zero);
    }
};

static stored_blocks blocks_of(const stored_weight &w)
{
    return {w.format, *w.is, w.at, w.out, w.in, w.row_bytes};
}

/* ---- x as bytes ---- */

KERNEL_OF(stored_round, STORED_THREADS)(const float *x, int64_t count, block_format format, int8_t *q, rounded_unit *units)
{
    for (int64_t i = THREAD * ROUNDED_ELEMENTS; i < count; i += THREADS * ROUNDED_ELEMENTS)
        rounded_sums(&format, rounded_elements(x + i, q + i), q + i, units + i / format.unit);
}

/* ---- y = x w^T ---- */

/* The sums of a lane, one for each of a few rows of x. */
struct stored_sums {
    float sum[STORED_ROWS] = {};
    METHOD void put(float *y, int64_t row, int64_t rows, int64_t out, int64_t o)
    {
        UNROLL
        for (int r = 0; r < STORED_ROWS; r++) {
            const float all = warp_sum(sum[r]);
            if (row + r < rows && threadIdx.x % WARP == 0)
                y[(row + r) * out + o] = all;
        }
    }
};

DEVICE int64_t stored_warp()
{
    return (int64_t)blockIdx.x * STORED_WARPS + threadIdx.x / WARP;
}

/* With x as bytes; or, ROUNDED false, as it is. */
template <bool ROUNDED>
KERNEL_OF(stored_linear, STORED_THREADS)(stored_blocks w, const float *x, const int8_t *q, const rounded_unit *units, int64_t rows, float *y)
{
    const int64_t o = stored_warp() % w.out, row = stored_warp() / w.out * STORED_ROWS, count = w.in / w.is.unit;
    stored_sums sums;
    for (int64_t u = threadIdx.x % WARP; u < count && row < rows; u += WARP) {
        block_unit unit;
        w.read(o, u, &unit);
        for (int r = 0; r < STORED_ROWS && row + r < rows; r++) {
            const int64_t from = (row + r) * w.in + u * w.is.unit;
            const rounded_unit of = ROUNDED ? units[from / w.is.unit] : rounded_unit{};
            int32_t whole = ROUNDED && !w.is.minimum ? of.start : 0;
            for (int i = 0; i < w.is.unit; i++)
                if (ROUNDED)
                    whole += unit.q[i] * q[from + i];
                else
                    sums.sum[r] += x[from + i] * w.element(unit, i);
            if (ROUNDED)
                sums.sum[r] += (float)whole * (unit.scale * of.scale);
            if (ROUNDED && w.is.minimum)
                sums.sum[r] += unit.minimum * of.mass;
        }
    }
    sums.put(y, row, rows, w.out, o);
}

/* As the dtype has it. */
template <class T> DEVICE float stored_as(float x)
{
    T half;
    real_store(&half, x);
    return real_load(&half);
}

template <class T, bool ROUNDED>
KERNEL_OF(stored_linear_dense, STORED_THREADS)(const T *w, int64_t out, int64_t in, const float *x, int64_t rows, float *y)
{
    const int64_t o = stored_warp() % out, row = stored_warp() / out * STORED_ROWS;
    stored_sums sums;
    for (int64_t i = threadIdx.x % WARP; i < in && row < rows; i += WARP) {
        const float value = real_load(w + o * in + i);
        for (int r = 0; r < STORED_ROWS && row + r < rows; r++) {
            const float of_x = x[(row + r) * in + i];
            sums.sum[r] += value * (ROUNDED ? stored_as<T>(of_x) : of_x);
        }
    }
    sums.put(y, row, rows, out, o);
}

/* Blocks of warps, one for each output of STORED_ROWS rows. */
static int64_t stored_grid(int64_t rows, int64_t out)
{
    const int64_t warps = (rows + STORED_ROWS - 1) / STORED_ROWS * out;
    return (warps + STORED_WARPS - 1) / STORED_WARPS;
}

static int64_t stored_each(int64_t count)
{
    return (count + STORED_THREADS - 1) / STORED_THREADS;
}

static void linear_of_blocks(const weir_kernel_args *args, const stored_weight &w, bool exact, int64_t rows)
{
    const float *x = view_f32(&args->in[0]);
    const int64_t count = rows * w.in;
    int8_t *q = (int8_t *)args->workspace;
    rounded_unit *units = (rounded_unit *)(q + rounded_units_at((size_t)count));
    if (exact) {
        LAUNCH((stored_linear<false>), stored_grid(rows, w.out), STORED_THREADS, args->queue, blocks_of(w), x, nullptr, nullptr, rows,
               view_f32(&args->out[0]));
        return;
    }
    LAUNCH(stored_round, stored_each(count / ROUNDED_ELEMENTS), STORED_THREADS, args->queue, x, count, *w.is, q, units);
    LAUNCH((stored_linear<true>), stored_grid(rows, w.out), STORED_THREADS, args->queue, blocks_of(w), nullptr, q, units, rows,
           view_f32(&args->out[0]));
}

extern "C" weir_status op_linear_stored_cuda(const weir_kernel_args *args)
{
    const stored_weight w = stored_weight_in(args, 1);
    const bool exact = ((const stored_attrs *)args->attrs)->f32_activations;
    const int64_t rows = shape_rows(&args->in[0].shape);
    const float *x = view_f32(&args->in[0]);
    float *y = view_f32(&args->out[0]);
    if (w.is)
        linear_of_blocks(args, w, exact, rows);
    else if (exact)
        WITH_REAL(w.dtype, T, LAUNCH((stored_linear_dense<T, false>), stored_grid(rows, w.out), STORED_THREADS, args->queue,
                                     data_of<T>(&args->in[1]), w.out, w.in, x, rows, y));
    else
        WITH_REAL(w.dtype, T, LAUNCH((stored_linear_dense<T, true>), stored_grid(rows, w.out), STORED_THREADS, args->queue,
                                     data_of<T>(&args->in[1]), w.out, w.in, x, rows, y));
    return launched(args);
}

/* ---- dx = dy w ---- */

KERNEL_OF(stored_back_blocks, STORED_THREADS)(stored_blocks w, const float *dy, int64_t rows, float *dx)
{
    const int64_t units = w.in / w.is.unit;
    for (int64_t n = THREAD; n < rows * units; n += THREADS) {
        const int64_t row = n / units, u = n % units;
        float sum[BLOCK_UNIT_MAX] = {};
        for (int64_t o = 0; o < w.out; o++) {
            const float by = dy[row * w.out + o];
            block_unit unit;
            w.read(o, u, &unit);
            for (int i = 0; i < w.is.unit; i++)
                sum[i] += by * w.element(unit, i);
        }
        for (int i = 0; i < w.is.unit; i++)
            dx[row * w.in + u * w.is.unit + i] = sum[i];
    }
}

template <class T>
KERNEL_OF(stored_back_dense, STORED_THREADS)(const T *w, int64_t out, int64_t in, const float *dy, int64_t rows, float *dx)
{
    for (int64_t n = THREAD; n < rows * in; n += THREADS) {
        float sum = 0;
        for (int64_t o = 0; o < out; o++)
            sum += dy[n / in * out + o] * real_load(w + o * in + n % in);
        dx[n] = sum;
    }
}

extern "C" weir_status op_linear_stored_dx_cuda(const weir_kernel_args *args)
{
    const stored_weight w = stored_weight_in(args, 1);
    const int64_t rows = shape_rows(&args->in[0].shape);
    const float *dy = view_f32(&args->in[0]);
    float *dx = view_f32(&args->out[0]);
    if (w.is)
        LAUNCH(stored_back_blocks, stored_each(rows * (w.in / w.is->unit)), STORED_THREADS, args->queue, blocks_of(w), dy, rows, dx);
    else
        WITH_REAL(w.dtype, T, LAUNCH((stored_back_dense<T>), stored_each(rows * w.in), STORED_THREADS, args->queue,
                                     data_of<T>(&args->in[1]), w.out, w.in, dy, rows, dx));
    return launched(args);
}

/* ---- w[ids] ---- */

/* The row of this block's id; -1: it is elsewhere. *other is what the output then has: 0, or NaN where no row has the id. */
DEVICE int64_t stored_row(const refusals &say, const int32_t *ids, int64_t vocab, int64_t first, int64_t rows, float *other)
{
    const int32_t id = ids[blockIdx.x];
    const bool known = id_known(id, vocab);
    if (!known && threadIdx.x == 0)
        refuse(say, blockIdx.x, id);
    *other = known ? 0 : NAN;
    return known ? row_at(id, first, rows) : -1;
}

KERNEL_OF(stored_row_blocks, STORED_THREADS)(refusals say, stored_blocks w, const int32_t *ids, int64_t vocab, int64_t first, float *out)
{
    float other;
    const int64_t row = stored_row(say, ids, vocab, first, w.out, &other);
    out += blockIdx.x * w.in;
    for (int64_t u = threadIdx.x; u < w.in / w.is.unit; u += blockDim.x) {
        block_unit unit;
        if (row >= 0)
            w.read(row, u, &unit);
        for (int i = 0; i < w.is.unit; i++)
            out[u * w.is.unit + i] = row >= 0 ? w.element(unit, i) : other;
    }
}

template <class T>
KERNEL_OF(stored_row_dense, STORED_THREADS)(refusals say, const T *w, int64_t rows, int64_t in, const int32_t *ids, int64_t vocab,
                                            int64_t first, float *out)
{
    float other;
    const int64_t row = stored_row(say, ids, vocab, first, rows, &other);
    for (int64_t i = threadIdx.x; i < in; i += blockDim.x)
        out[blockIdx.x * in + i] = row >= 0 ? real_load(w + row * in + i) : other;
}

extern "C" weir_status op_embedding_stored_cuda(const weir_kernel_args *args)
{
    const weir_view *view = &args->in[1];
    const stored_weight w = stored_weight_in(args, 1);
    const int64_t count = count_of(&args->in[0].shape), vocab = view->global.dim[0], first = view->offset[0];
    const int32_t *ids = view_i32(&args->in[0]);
    float *out = view_f32(&args->out[0]);
    if (w.is)
        LAUNCH(stored_row_blocks, count, STORED_THREADS, args->queue, refusing(args), blocks_of(w), ids, vocab, first, out);
    else
        WITH_REAL(w.dtype, T, LAUNCH((stored_row_dense<T>), count, STORED_THREADS, args->queue, refusing(args), data_of<T>(view), w.out,
                                     w.in, ids, vocab, first, out));
    return launched(args);
}
