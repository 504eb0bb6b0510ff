/* kernels/reduce/reduce.cu: sums, means, maxima and products over any dimensions, sum_to and argmax on a GPU; reduce.c, sum_to.c and
 * softmax.c have the rules.
 *
 * The input is a walk over results and one over the terms of each. A block has some results and some threads for each of
 * them, WAYS, which take its terms in turn; what they have is folded in a tree. Where terms lie together neighbours among
 * the threads take neighbours among the terms, else results. Few results of many terms are cut into chunks
 * (kernels/cuda/chunks.h), whose folds are folded by another kernel. So the order follows from the shapes alone. Sums are
 * made as double.
 */
#include "kernels/reduce/reduce.h"

#include "kernels/cuda/walk.h"

enum { FOLD_THREADS = 256 };

/* NaN is larger than everything. */
DEVICE float larger(float a, float b)
{
    return a > b || a != a ? a : b;
}

struct sum_fold {
    using value = double;
    DEVICE double none() { return 0; }
    DEVICE double term(float x, float) { return x; }
    DEVICE double both(double a, double b) { return a + b; }
};

struct max_fold {
    using value = float;
    DEVICE float none() { return -INFINITY; }
    DEVICE float term(float x, float) { return x; }
    DEVICE float both(float a, float b) { return larger(a, b); }
};

struct prod_fold {
    using value = double;
    DEVICE double none() { return 1; }
    DEVICE double term(float x, float) { return x; }
    DEVICE double both(double a, double b) { return a * b; }
};

/* How many terms are what is given. */
struct count_fold {
    using value = double;
    DEVICE double none() { return 0; }
    DEVICE double term(float x, float y) { return x == y; }
    DEVICE double both(double a, double b) { return a + b; }
};

template <class I> struct fold_sizes {
    int64_t count, terms, chunk, chunks;
    walk<I, 2> results; /* operand 0: of the first term; 1: of the result */
    walk<I, 1> rest;    /* terms */
    float share;        /* what a result is multiplied with */
    bool add;
};

/* WAYS threads for a result; `across`: neighbours have neighbouring results. `part`: of chunks, or NULL. */
template <class F, class T, class I, int WAYS, bool ACROSS>
KERNEL_OF(fold_terms, FOLD_THREADS)(fold_sizes<I> z, const T *x, const float *y, float *out, typename F::value *part)
{
    enum { EACH = FOLD_THREADS / WAYS };
    SHARED(typename F::value, have, FOLD_THREADS);
    const int mine = ACROSS ? (int)threadIdx.x % EACH : (int)threadIdx.x / WAYS;
    const int way = ACROSS ? (int)threadIdx.x / EACH : (int)threadIdx.x % WAYS;
    const int64_t index = blockIdx.x / z.chunks * EACH + mine, chunk = blockIdx.x % z.chunks;
    const int64_t end = (chunk + 1) * z.chunk < z.terms ? (chunk + 1) * z.chunk : z.terms;
    typename F::value all = F::none();
    int64_t at[2] = {0, 0};
    if (index < z.count) {
        z.results.to((I)index, at);
        const float given = y ? y[at[1]] : 0;
        for (int64_t t = chunk * z.chunk + way; t < end; t += WAYS) {
            int64_t from[1];
            z.rest.to((I)t, from);
            all = F::both(all, F::term(real_load(x + at[0] + from[0]), given));
        }
    }
    have[mine * WAYS + way] = all;
    for (int half = WAYS / 2; half; half /= 2) {
        BARRIER();
        if (way < half)
            have[mine * WAYS + way] = F::both(have[mine * WAYS + way], have[mine * WAYS + way + half]);
    }
    if (way || index >= z.count)
        return;
    if (part)
        part[chunk * z.count + at[1]] = have[mine * WAYS];
    else
        out[at[1]] = (float)F::both(z.add ? (typename F::value)out[at[1]] : F::none(), have[mine * WAYS]) * z.share;
}

template <class F>
KERNEL_OF(fold_parts, FOLD_THREADS)(const typename F::value *part, int64_t chunks, int64_t count, float share, bool add,
                                    float *out)
{
    for (int64_t i = THREAD; i < count; i += THREADS) {
        typename F::value all = add ? (typename F::value)out[i] : F::none();
        for (int64_t c = 0; c < chunks; c++)
            all = F::both(all, part[c * count + i]);
        out[i] = (float)all * share;
    }
}

/* ---- a call ---- */

struct fold_call {
    nest results, rest; /* of the input: results, and the terms of each */
    const float *y;
    float *out, share;
    bool add;
};

static int64_t count_in(const nest &n)
{
    int64_t count = 1;
    for (int d = 0; d < n.rank; d++)
        count *= n.dim[d];
    return count;
}

static void add_dim(nest *to, int64_t dim, int64_t first, int64_t second)
{
    to->dim[to->rank] = dim;
    to->stride[0][to->rank] = first;
    to->stride[1][to->rank++] = second;
}

/* The dimensions in which `kept` moves are those of the results. */
static fold_call fold_of(const weir_shape *in, const weir_shape *kept, float *out)
{
    fold_call c = {};
    int64_t own[WEIR_DIMS_MAX];
    nest n = nest_over(in);
    nest_strides(in, own);
    nest_operand(&n, own);
    nest_broadcast(&n, kept);
    nest_collapse(&n);
    c.results.operands = c.rest.operands = 2;
    for (int d = 0; d < n.rank; d++)
        add_dim(n.stride[1][d] ? &c.results : &c.rest, n.dim[d], n.stride[0][d], n.stride[1][d]);
    if (!c.results.rank)
        add_dim(&c.results, 1, 0, 0);
    if (!c.rest.rank)
        add_dim(&c.rest, 1, 0, 0);
    c.out = out;
    c.share = 1;
    return c;
}

template <class F, class T, class I, int WAYS, bool ACROSS>
static void launch_ways(const weir_kernel_args *args, const fold_call &c, const fold_sizes<I> &z)
{
    typename F::value *part = z.chunks > 1 ? (typename F::value *)args->workspace : nullptr;
    const int64_t each = FOLD_THREADS / WAYS, blocks = (z.count + each - 1) / each * z.chunks;
    LAUNCH((fold_terms<F, T, I, WAYS, ACROSS>), blocks, FOLD_THREADS, args->queue, z, data_of<T>(&args->in[0]), c.y, c.out,
           part);
    if (part)
        LAUNCH((fold_parts<F>), each_blocks(z.count), FOLD_THREADS, args->queue, part, z.chunks, z.count, c.share, c.add,
               c.out);
}

template <class F, class T, class I> static void launch_fold(const weir_kernel_args *args, const fold_call &c)
{
    const int64_t count = count_in(c.results), terms = count_in(c.rest);
    walk<I, 1> rest = {c.rest.rank, {}, {}};
    for (int d = 0; d < c.rest.rank; d++) {
        rest.dim[d] = (I)c.rest.dim[d];
        rest.stride[0][d] = c.rest.stride[0][d];
    }
    const fold_sizes<I> z = {count, terms, fold_chunk(count, terms), fold_chunks(count, terms), walk_of<I, 2>(c.results),
                             rest, c.share, c.add};
    if (c.rest.stride[0][c.rest.rank - 1] != 1 && count > 1)
        launch_ways<F, T, I, 8, true>(args, c, z);
    else if (terms <= 1024)
        launch_ways<F, T, I, 32, false>(args, c, z);
    else
        launch_ways<F, T, I, FOLD_THREADS, false>(args, c, z);
}

template <class F> struct empty_fold {
    float *out, share;
    template <int N> METHOD void at(int64_t i) const { out[i] = (float)F::none() * share; }
};

/* Without terms results are the fold of none. */
template <class F> static weir_status fold_run(const weir_kernel_args *args, const weir_shape *kept, const fold_call &c)
{
    const int64_t all = count_of(&args->in[0].shape), count = count_of(kept);
    if (count && all)
        WITH_REAL(args->in[0].dtype, T, WITH_INDEX(all, I, launch_fold<F, T, I>(args, c)));
    else if (!c.add)
        each<1>(args, empty_fold<F>{c.out, c.share}, count, false);
    return launched(args);
}

static weir_shape kept_of(const weir_kernel_args *args)
{
    return kept_shape(&args->in[0].shape, reduced_mask((const reduce_attrs *)args->attrs, args->in[0].shape.rank));
}

/* ---- ops ---- */

extern "C" weir_status op_sum_cuda(const weir_kernel_args *args)
{
    const weir_shape kept = kept_of(args);
    fold_call c = fold_of(&args->in[0].shape, &kept, view_f32(&args->out[0]));
    c.add = args->accumulate;
    return fold_run<sum_fold>(args, &kept, c);
}

extern "C" weir_status op_mean_cuda(const weir_kernel_args *args)
{
    const weir_shape kept = kept_of(args);
    fold_call c = fold_of(&args->in[0].shape, &kept, view_f32(&args->out[0]));
    c.share = (float)((double)count_of(&args->out[0].global) / (double)count_of(&args->in[0].global));
    return fold_run<sum_fold>(args, &kept, c);
}

extern "C" weir_status op_max_cuda(const weir_kernel_args *args)
{
    const weir_shape kept = kept_of(args);
    return fold_run<max_fold>(args, &kept, fold_of(&args->in[0].shape, &kept, view_f32(&args->out[0])));
}

extern "C" weir_status op_prod_cuda(const weir_kernel_args *args)
{
    const weir_shape kept = kept_of(args);
    return fold_run<prod_fold>(args, &kept, fold_of(&args->in[0].shape, &kept, view_f32(&args->out[0])));
}

extern "C" weir_status op_sum_to_cuda(const weir_kernel_args *args)
{
    const weir_shape *in = &args->in[0].shape, *out = &args->out[0].shape;
    const int missing = in->rank - out->rank;
    weir_shape kept = *in;
    for (int d = 0; d < in->rank; d++)
        kept.dim[d] = d < missing ? 1 : out->dim[d - missing];
    fold_call c = fold_of(in, &kept, view_f32(&args->out[0]));
    c.add = args->accumulate;
    return fold_run<sum_fold>(args, &kept, c);
}

/* ---- max_grad ---- */

template <class T, class I> struct share_of {
    const T *x;
    const float *y, *dy, *count;
    T *dx;
    walk<I, 1> w; /* over x: where its maximum is */
    template <int N> METHOD void at(int64_t i) const
    {
        int64_t at[1];
        w.to((I)i, at);
        real_store(dx + i, real_load(x + i) == y[at[0]] ? dy[at[0]] / count[at[0]] : 0);
    }
};

template <class T, class I> static void share_launch(const weir_kernel_args *args, const weir_shape *kept, const float *count)
{
    nest n = nest_over(&args->in[0].shape);
    nest_broadcast(&n, kept);
    nest_collapse(&n);
    const share_of<T, I> f = {data_of<T>(&args->in[0]), view_f32(&args->in[1]), view_f32(&args->in[2]), count,
                              data_of<T>(&args->out[0]), walk_of<I, 1>(n)};
    each<1>(args, f, count_of(&args->in[0].shape), false);
}

extern "C" weir_status op_max_grad_cuda(const weir_kernel_args *args)
{
    const weir_shape kept = kept_of(args), *in = &args->in[0].shape;
    const int64_t all = count_of(in);
    float *count = (float *)((char *)args->workspace + fold_bytes(count_of(&kept), all));
    fold_call c = fold_of(in, &kept, count);
    c.y = view_f32(&args->in[1]);
    if (!all)
        return launched(args);
    const weir_status status = fold_run<count_fold>(args, &kept, c);
    WITH_REAL(args->in[0].dtype, T, WITH_INDEX(all, I, share_launch<T, I>(args, &kept, count)));
    return status ? status : launched(args);
}

/* ---- prod_grad: a thread walks the terms of a result forwards and backwards (prod.c) ---- */

template <class T, class I> struct other_terms {
    const T *x;
    const float *dy;
    T *dx;
    double *before; /* the workspace: the products in front of each term, result after result */
    int64_t terms;
    walk<I, 2> results;
    walk<I, 2> rest;
    template <int N> METHOD void at(int64_t i) const
    {
        int64_t first[2], term[2];
        double product = 1;
        results.to((I)i, first);
        for (int64_t t = 0; t < terms; t++) {
            rest.to((I)t, term);
            before[i * terms + t] = product;
            product *= real_load(x + first[0] + term[0]);
        }
        product = dy[first[1]];
        for (int64_t t = terms; t-- > 0;) {
            rest.to((I)t, term);
            const double own = real_load(x + first[0] + term[0]);
            real_store(dx + first[0] + term[0], (float)(before[i * terms + t] * product));
            product *= own;
        }
    }
};

template <class T, class I> static void other_terms_launch(const weir_kernel_args *args, const fold_call &c)
{
    const other_terms<T, I> f = {data_of<T>(&args->in[0]), view_f32(&args->in[1]), data_of<T>(&args->out[0]),
                                 (double *)args->workspace, count_in(c.rest), walk_of<I, 2>(c.results), walk_of<I, 2>(c.rest)};
    each<1>(args, f, count_in(c.results), false);
}

extern "C" weir_status op_prod_grad_cuda(const weir_kernel_args *args)
{
    const weir_shape kept = kept_of(args);
    const int64_t all = count_of(&args->in[0].shape);
    const fold_call c = fold_of(&args->in[0].shape, &kept, nullptr);
    if (all)
        WITH_REAL(args->in[0].dtype, T, WITH_INDEX(all, I, other_terms_launch<T, I>(args, c)));
    return launched(args);
}

/* ---- argmax ---- */

/* Whether element `a` at index `i` comes before `b` at `j`: it is larger, or as large and in front. */
DEVICE bool before(float a, int32_t i, float b, int32_t j)
{
    const bool a_nan = a != a, b_nan = b != b;
    if (a_nan || b_nan)
        return a_nan && (!b_nan || i < j);
    return a > b || (a == b && i < j);
}

template <class T> KERNEL_OF(argmax_row, FOLD_THREADS)(const T *x, int64_t count, int32_t *y)
{
    SHARED(float, most, FOLD_THREADS);
    SHARED(int32_t, where, FOLD_THREADS);
    const int own = (int)threadIdx.x, threads = (int)blockDim.x;
    x += blockIdx.x * count;
    float best = -INFINITY;
    int32_t at = INT32_MAX;
    for (int64_t i = own; i < count; i += threads) {
        const float each = real_load(x + i);
        if (before(each, (int32_t)i, best, at)) {
            best = each;
            at = (int32_t)i;
        }
    }
    most[own] = best;
    where[own] = at;
    for (int half = threads / 2; half; half /= 2) {
        BARRIER();
        if (own < half && before(most[own + half], where[own + half], most[own], where[own])) {
            most[own] = most[own + half];
            where[own] = where[own + half];
        }
    }
    if (own == 0)
        y[blockIdx.x] = where[0];
}

extern "C" weir_status op_argmax_cuda(const weir_kernel_args *args)
{
    const weir_view *x = &args->in[0];
    const int64_t rows = count_of(&args->out[0].shape), count = shape_last(&x->shape);
    const int threads = count > 256 ? (int)FOLD_THREADS : (int)WARP;
    if (count)
        WITH_REAL(x->dtype, T,
                  LAUNCH((argmax_row<T>), rows, threads, args->queue, data_of<T>(x), count, view_i32(&args->out[0])));
    return launched(args);
}
