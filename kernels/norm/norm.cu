/* kernels/norm/norm.cu: layernorm, rmsnorm and their gradients on a GPU; norm.c has their rules and says what they compute.
 *
 * A block of threads does a row, or the rows of a chunk one after the other. HELD: rows lie in the block's registers, and the
 * next row is loaded before this one is computed; the sums over the rows of a chunk (of gain and bias) stay with the thread
 * that has the columns. Longer rows are read again for each pass, and their sums lie in shared memory where there is room.
 * The sums of chunks lie in the workspace and are added by a second kernel.
 */
#include "kernels/norm/row.h"

enum { SUMS_SHARED = 64 << 10 /* bytes */ };

/* ---- norms ---- */

/* Of a call; no bias and no means for rmsnorm. */
template <class T> struct norm_call {
    const T *x;
    T *y;
    const float *gain, *bias;
    float *means, *rstds;
    int64_t rows, count, chunk;
    double eps;
    bool packs, weights; /* rows, gain and bias may be read in packs */
};

template <class T> struct norm_load {
    const T *x;
    bool packs;
    METHOD norm_values operator()(const cells<ROW_NEAR> &at) const
    {
        norm_values v;
        near_get(x, at, packs, v.x);
        return v;
    }
};

/* Row at.row, of the values of which `row` has. */
template <bool CENTRED, class T, class ROW> DEVICE void norm_row_do(const norm_call<T> &c, const ROW &row, near_parts &parts)
{
    float mean, rstd;
    norm_of_row<CENTRED>(row, parts, c.eps, mean, rstd);
    row.each([&](const cells<ROW_NEAR> &at, const norm_values &v) {
        float gain[ROW_NEAR], bias[ROW_NEAR] = {}, y[ROW_NEAR];
        near_get(c.gain, at, c.weights, gain);
        if (CENTRED)
            near_get(c.bias, at, c.weights, bias);
        UNROLL
        for (int k = 0; k < ROW_NEAR; k++)
            y[k] = CENTRED ? layernorm_value(v.x[k], mean, rstd, gain[k], bias[k]) : rmsnorm_value(v.x[k], rstd, gain[k]);
        near_put(c.y + at.row * c.count, at, c.packs, y);
    });
    if (threadIdx.x)
        return;
    c.rstds[row.at.row] = rstd;
    if (CENTRED)
        c.means[row.at.row] = mean;
}

template <class T, bool CENTRED, bool HELD> KERNEL_OF(norm_row, ROW_THREADS_MAX, 1)(norm_call<T> c)
{
    SHARED(near_quad, part, NEAR_PARTS);
    near_parts parts = near_shared(part);
    const int64_t first = blockIdx.x * c.chunk, end = first + c.chunk < c.rows ? first + c.chunk : c.rows;
    cells<ROW_NEAR> at = {first, (int64_t)threadIdx.x * ROW_NEAR, c.count};
    if constexpr (HELD) {
        near_bits<T, ROW_NEAR> next = near_load(c.x + first * c.count, at, c.packs);
        for (; at.row < end; at.row++) {
            held_row<norm_values> row = {at, {}};
            near_widen(next, row.values.x);
            if (at.row + 1 < end)
                next = near_load(c.x + (at.row + 1) * c.count, at, c.packs);
            norm_row_do<CENTRED>(c, row, parts);
        }
    } else {
        for (; at.row < end; at.row++) {
            const norm_load<T> load = {c.x + at.row * c.count, c.packs};
            norm_row_do<CENTRED>(c, far_row<norm_values, norm_load<T>>{at, load}, parts);
        }
    }
}

template <class T, bool CENTRED> static void launch_norm(const weir_kernel_args *args)
{
    const weir_view *x = &args->in[0];
    norm_call<T> c = {};
    c.x = data_of<T>(x);
    c.y = data_of<T>(&args->out[0]);
    c.rows = shape_rows(&x->shape);
    c.count = shape_last(&x->shape);
    c.chunk = rows_of_block(c.rows);
    c.gain = view_f32(&args->in[1]);
    c.bias = CENTRED ? view_f32(&args->in[2]) : nullptr;
    c.means = CENTRED ? view_f32(&args->out[1]) : nullptr;
    c.rstds = view_f32(&args->out[CENTRED ? 2 : 1]);
    c.eps = ((const norm_attrs *)args->attrs)->eps;
    c.packs = near_fits(c.x, c.count) && near_fits(c.y, c.count);
    c.weights = near_fits(c.gain, c.count) && near_fits(c.bias, c.count);
    const int64_t blocks = (c.rows + c.chunk - 1) / c.chunk;
    if (c.count <= ROW_HELD)
        LAUNCH((norm_row<T, CENTRED, true>), blocks, row_threads(c.count), args->queue, c);
    else
        LAUNCH((norm_row<T, CENTRED, false>), blocks, row_threads(c.count), args->queue, c);
}

template <bool CENTRED> static weir_status norm_forward(const weir_kernel_args *args)
{
    WITH_REAL(args->in[0].dtype, T, launch_norm<T, CENTRED>(args));
    return launched(args);
}

/* ---- gradients ---- */

/* Of a call; no means and no dbiases for rmsnorm. */
template <class T> struct norm_grads {
    const T *x, *dy;
    T *dx;
    const float *gain, *means, *rstds;
    double *dgains, *dbiases; /* of chunks */
    int64_t rows, count, chunk;
    bool packs, weights; /* rows and gain may be read in packs */
    bool shared;         /* the sums of a chunk of rows that are not held fit there */
};

/* Elements of shared memory for a sum over rows of `count`. */
FORMULA int64_t near_room(int64_t count)
{
    const int64_t wide = (int64_t)ROW_THREADS_MAX * ROW_NEAR;
    return (count + wide - 1) / wide * wide;
}

template <class T> struct norm_grad_load {
    const norm_grads<T> &g;
    METHOD norm_grad_values operator()(const cells<ROW_NEAR> &at) const
    {
        norm_grad_values v;
        near_get(g.x + at.row * g.count, at, g.packs, v.x);
        near_get(g.dy + at.row * g.count, at, g.packs, v.dy);
        near_get(g.gain, at, g.weights, v.gain);
        return v;
    }
};

/* dx of row at.row, and its shares of the sums: gains(at, k, share). dx may be dy: who writes an element has read it. */
template <bool CENTRED, class T, class ROW, class G, class B>
DEVICE void norm_grad_do(const norm_grads<T> &g, const ROW &row, near_parts &parts, float mean, float rstd, G gains, B biases)
{
    float shift, tilt;
    norm_grad_of_row<CENTRED>(row, parts, mean, rstd, shift, tilt);
    row.each([&](const cells<ROW_NEAR> &at, const norm_grad_values &v) {
        float dx[ROW_NEAR];
        norm_dx_of<CENTRED>(
            at, v, mean, rstd, shift, tilt, dx, [&](int k, float share) { gains(at, k, share); },
            [&](int k, float share) { biases(at, k, share); });
        near_put(g.dx + at.row * g.count, at, g.packs, dx);
    });
}

/* The chunk's rows, held: their sums are in registers. */
template <class T, bool CENTRED>
DEVICE void norm_grad_held(const norm_grads<T> &g, cells<ROW_NEAR> at, int64_t end, int64_t chunk, near_parts &parts)
{
    double dgain[ROW_NEAR] = {}, dbias[ROW_NEAR] = {};
    held_row<norm_grad_values> row = {at, {}};
    near_get(g.gain, at, g.weights, row.values.gain);
    near_bits<T, ROW_NEAR> x = near_load(g.x + at.row * g.count, at, g.packs);
    near_bits<T, ROW_NEAR> dy = near_load(g.dy + at.row * g.count, at, g.packs);
    const float *means = near_apart(g.means), *rstds = near_apart(g.rstds);
    float next_mean = CENTRED ? means[at.row] : 0, next_rstd = rstds[at.row];
    for (; row.at.row < end; row.at.row++) {
        const float mean = next_mean, rstd = next_rstd;
        near_widen(x, row.values.x);
        near_widen(dy, row.values.dy);
        const int64_t next = row.at.row + 1;
        if (next < end) {
            x = near_load(g.x + next * g.count, at, g.packs);
            dy = near_load(g.dy + next * g.count, at, g.packs);
            next_mean = CENTRED ? means[next] : 0;
            next_rstd = rstds[next];
        }
        norm_grad_do<CENTRED>(
            g, row, parts, mean, rstd, [&](const auto &, int k, float share) { dgain[k] += share; },
            [&](const auto &, int k, float share) { dbias[k] += share; });
    }
    UNROLL
    for (int k = 0; k < ROW_NEAR; k++)
        if (at.there(k)) {
            g.dgains[chunk * g.count + at.column(k)] = dgain[k];
            if (CENTRED)
                g.dbiases[chunk * g.count + at.column(k)] = dbias[k];
        }
}

/* The chunk's rows, read again for each pass: their sums are in shared memory, where a thread's neighbours lie as far apart
 * as there are threads, or where the chunk's lie. */
template <class T, bool CENTRED>
DEVICE void norm_grad_far(const norm_grads<T> &g, cells<ROW_NEAR> at, int64_t end, int64_t chunk, double *shared,
                          near_parts &parts)
{
    double *const dgain = g.shared ? shared : g.dgains + chunk * g.count;
    double *const dbias = g.shared ? shared + near_room(g.count) : g.dbiases + chunk * g.count;
    const auto place = [&](const cells<ROW_NEAR> &own, int k) {
        const int64_t packs = own.first / ROW_NEAR / blockDim.x;
        return g.shared ? (packs * ROW_NEAR + k) * blockDim.x + threadIdx.x : own.column(k);
    };
    const norm_grad_load<T> load = {g};
    const auto all = [&](auto f) {
        for (cells<ROW_NEAR> own = at; own.any(); own.first += (int64_t)blockDim.x * ROW_NEAR)
            for (int k = 0; k < ROW_NEAR && own.there(k); k++)
                f(place(own, k), chunk * g.count + own.column(k));
    };
    all([&](int64_t to, int64_t) {
        dgain[to] = 0;
        if (CENTRED)
            dbias[to] = 0;
    });
    for (; at.row < end; at.row++) {
        const float mean = CENTRED ? g.means[at.row] : 0, rstd = g.rstds[at.row];
        const far_row<norm_grad_values, norm_grad_load<T>> row = {at, load};
        norm_grad_do<CENTRED>(
            g, row, parts, mean, rstd, [&](const auto &own, int k, float share) { dgain[place(own, k)] += share; },
            [&](const auto &own, int k, float share) { dbias[place(own, k)] += share; });
    }
    if (!g.shared)
        return;
    all([&](int64_t from, int64_t to) {
        g.dgains[to] = dgain[from];
        if (CENTRED)
            g.dbiases[to] = dbias[from];
    });
}

template <class T, bool CENTRED, bool HELD> KERNEL_OF(norm_grad_chunk, ROW_THREADS_MAX, 1)(norm_grads<T> g)
{
    SHARED(near_quad, part, NEAR_PARTS);
    near_parts parts = near_shared(part);
    const int64_t chunk = blockIdx.x, first = chunk * g.chunk;
    const int64_t end = first + g.chunk < g.rows ? first + g.chunk : g.rows;
    const cells<ROW_NEAR> at = {first, (int64_t)threadIdx.x * ROW_NEAR, g.count};
    if constexpr (HELD) {
        norm_grad_held<T, CENTRED>(g, at, end, chunk, parts);
    } else {
        SHARED_REST(double, sums);
        norm_grad_far<T, CENTRED>(g, at, end, chunk, sums, parts);
    }
}

template <class T, bool CENTRED> static void launch_grad(const weir_kernel_args *args)
{
    const weir_view *x = &args->in[0];
    norm_grads<T> g = {};
    g.x = data_of<T>(x);
    g.dy = data_of<T>(&args->in[args->in_count - 1]);
    g.dx = data_of<T>(&args->out[0]);
    g.rows = shape_rows(&x->shape);
    g.count = shape_last(&x->shape);
    g.chunk = chunk_rows(g.rows);
    g.gain = view_f32(&args->in[1]);
    g.means = CENTRED ? view_f32(&args->in[2]) : nullptr;
    g.rstds = view_f32(&args->in[CENTRED ? 3 : 2]);
    const int64_t chunks = chunks_of(g.rows);
    g.dgains = (double *)args->workspace;
    g.dbiases = g.dgains + chunks * g.count;
    g.packs = near_fits(g.x, g.count) && near_fits(g.dy, g.count) && near_fits(g.dx, g.count);
    g.weights = near_fits(g.gain, g.count);
    if (g.count <= ROW_HELD) {
        LAUNCH((norm_grad_chunk<T, CENTRED, true>), chunks, row_threads(g.count), args->queue, g);
    } else {
        const size_t bytes = (CENTRED ? 2 : 1) * (size_t)near_room(g.count) * sizeof(double);
        g.shared = bytes <= SUMS_SHARED;
        LAUNCH_SHARED((norm_grad_chunk<T, CENTRED, false>), chunks, row_threads(g.count), g.shared ? bytes : 0,
                      args->queue, g);
    }
    fold_columns(args, g.dgains, chunks, g.count, view_f32(&args->out[1]), args->continues);
    if (CENTRED)
        fold_columns(args, g.dbiases, chunks, g.count, view_f32(&args->out[2]), args->continues);
}

template <bool CENTRED> static weir_status norm_backward(const weir_kernel_args *args)
{
    WITH_REAL(args->in[0].dtype, T, launch_grad<T, CENTRED>(args));
    return launched(args);
}

extern "C" weir_status op_layernorm_cuda(const weir_kernel_args *args)
{
    return norm_forward<true>(args);
}

extern "C" weir_status op_rmsnorm_cuda(const weir_kernel_args *args)
{
    return norm_forward<false>(args);
}

extern "C" weir_status op_layernorm_grad_cuda(const weir_kernel_args *args)
{
    return norm_backward<true>(args);
}

extern "C" weir_status op_rmsnorm_grad_cuda(const weir_kernel_args *args)
{
    return norm_backward<false>(args);
}
