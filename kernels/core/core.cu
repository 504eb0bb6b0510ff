/* kernels/core/core.cu: conversions, sums of micro-batches and the first gradient on a GPU; core.c and box.c have the rules.
 *
 * A copy is a move. Sums are added as on the CPU: the terms in their order, those of halves as f32, rounded once. A thread
 * reads all terms of an element before it writes it, so a sum may be written over one of them.
 */
#include "kernels/core/core.h"
#include "kernels/core/region.h"
#include "kernels/cuda/moves.h"

/* ---- box ---- */

static nest nest_of(const region &r, int rank)
{
    nest n = {};
    n.rank = rank;
    n.operands = 2;
    for (int d = 0; d < rank; d++) {
        n.dim[d] = r.count[d];
        n.stride[0][d] = r.from_stride[d];
        n.stride[1][d] = r.to_stride[d];
    }
    return n;
}

static void *element(const weir_view *view, int64_t at)
{
    return (char *)view->data + (size_t)at * bytes_of(view->dtype);
}

/* to = (or, with `add`, +=) the sum of the terms, where the walk has them and it. Elements of a run go in packs. */
template <class T, class I, int MOST> struct terms_of {
    T *y;
    bool add;
    int count;
    walk<I, 2> w;
    const T *term[MOST];
    template <int N> METHOD void at(int64_t i) const
    {
        int64_t at[2];
        w.to((I)i, at);
        float sum[N];
        pack<T, N> all = pack_load<N>(add ? y + at[1] : term[0] + at[0]);
        UNROLL
        for (int k = 0; k < N; k++)
            sum[k] = real_load(&all.at[k]);
        for (int t = add ? 0 : 1; t < count; t++) {
            all = pack_load<N>(term[t] + at[0]);
            UNROLL
            for (int k = 0; k < N; k++)
                sum[k] += real_load(&all.at[k]);
        }
        UNROLL
        for (int k = 0; k < N; k++)
            real_store(&all.at[k], sum[k]);
        pack_store<N>(y + at[1], all);
    }
};

/* Whether packs of N elements of the run are aligned, everywhere. */
template <class T> static bool runs_fit(const nest &n, int64_t each, const void *const *at, int count)
{
    const int last = n.rank - 1;
    bool fit = n.stride[0][last] == 1 && n.stride[1][last] == 1 && n.dim[last] % each == 0;
    for (int d = 0; d < last; d++)
        fit &= n.stride[0][d] % each == 0 && n.stride[1][d] % each == 0;
    for (int t = 0; t < count; t++)
        fit &= packs_fit(at[t], 16);
    return fit;
}

template <class T, int MOST>
static void terms_launch(const weir_kernel_args *args, void *to, const void *const *term, int count, nest n, bool add)
{
    int64_t all = 1;
    nest_collapse(&n);
    for (int d = 0; d < n.rank; d++)
        all *= n.dim[d];
    const bool fit = runs_fit<T>(n, 16 / sizeof(T), term, count) && packs_fit(to, 16);
    WITH_INDEX(all, I, {
        terms_of<T, I, MOST> f = {(T *)to, add, count, walk_of<I, 2>(n), {}};
        for (int t = 0; t < count; t++)
            f.term[t] = (const T *)term[t];
        each<16 / sizeof(T)>(args, f, all, fit);
    });
}

/* `term`: where the first element of each is. */
static void sum_terms(const weir_kernel_args *args, void *to, const void *const *term, int count, const nest &n, bool add)
{
    WITH_REAL(args->out[0].dtype, T, {
        if (count <= 16)
            terms_launch<T, 16>(args, to, term, count, n, add);
        else
            terms_launch<T, WEIR_ARGS_MAX>(args, to, term, count, n, add);
    });
}

/* Puts the terms, which all lie as the first does, where they meet the output; with `add` onto what is there. */
static void region_move(const weir_kernel_args *args, const weir_view *term, int terms, const region &r, bool add)
{
    const weir_view *to = &args->out[0];
    const nest n = nest_of(r, to->shape.rank);
    const void *from[WEIR_ARGS_MAX];
    for (int t = 0; t < terms; t++)
        from[t] = element(&term[t], r.from_first);
    if (terms > 1 || add)
        sum_terms(args, element(to, r.to_first), from, terms, n, add);
    else if (from[0] != element(to, r.to_first))
        move_elements(args, from[0], element(to, r.to_first), bytes_of(to->dtype), n);
}

/* Terms of which each has all of the output as one run, in whatever way. False: they are not such ones. */
static bool runs_move(const weir_kernel_args *args, const weir_view *term, int terms)
{
    const weir_view *to = &args->out[0];
    const void *from[WEIR_ARGS_MAX];
    nest n = {};
    n.rank = 1;
    n.operands = 2;
    n.dim[0] = count_of(&to->shape);
    n.stride[0][0] = n.stride[1][0] = 1;
    for (int t = 0; t < terms; t++) {
        region r;
        if (!region_meet(&term[t], to, &r))
            return false;
        region_fold(&term[t], to, &r);
        if (r.run != n.dim[0])
            return false;
        from[t] = element(&term[t], r.from_first);
    }
    sum_terms(args, to->data, from, terms, n, false);
    return true;
}

/* The terms of one slice; those that lie in still another way go one by one. */
static void slice_move(const weir_kernel_args *args, const weir_view *term, int terms)
{
    int alike = 1;
    region r;
    while (alike < terms && views_alike(&term[0], &term[alike]))
        alike++;
    if (alike < terms && runs_move(args, term, terms))
        return;
    for (int done = 0, count = alike == terms ? terms : 1; done < terms; done += count)
        if (region_meet(&term[done], &args->out[0], &r))
            region_move(args, &term[done], count, r, done > 0);
}

extern "C" weir_status op_box_cuda(const weir_kernel_args *args)
{
    const box_attrs *a = (const box_attrs *)args->attrs;
    const weir_view *to = &args->out[0];
    if (a->zero)
        move_zeros(args, to->data, (size_t)count_of(&to->shape) * bytes_of(to->dtype));
    for (int i = 0, terms; i < args->in_count; i += terms) {
        terms = a->terms < args->in_count - i ? (int)a->terms : args->in_count - i;
        slice_move(args, &args->in[i], terms);
    }
    return launched(args);
}

/* ---- accumulate, grad_seed ---- */

extern "C" weir_status op_accumulate_cuda(const weir_kernel_args *args)
{
    const weir_view *from = &args->in[0], *to = &args->out[0];
    const void *term[] = {from->data};
    nest n = {};
    n.rank = 1;
    n.operands = 2;
    n.dim[0] = count_of(&to->shape);
    n.stride[0][0] = n.stride[1][0] = 1;
    if (args->accumulate)
        terms_launch<float, 16>(args, to->data, term, 1, n, true);
    else
        move_run(args, from->data, to->data, bytes_of(to->dtype), n.dim[0]);
    return launched(args);
}

KERNEL(seed)(float value, const float *scale, float *to)
{
    *to = value * (scale ? *scale : 1.0f);
}

extern "C" weir_status op_grad_seed_cuda(const weir_kernel_args *args)
{
    const seed_attrs *a = (const seed_attrs *)args->attrs;
    LAUNCH(seed, 1, 1, args->queue, (float)a->value, args->in_count > 1 ? view_f32(&args->in[1]) : nullptr,
           view_f32(&args->out[0]));
    return launched(args);
}
