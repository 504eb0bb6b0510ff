/* kernels/optim/optim.cu: updates of parameters and the clipping of gradients on a GPU; optim.c, moved.c and scale.c have
 * their rules and say what they compute.
 *
 * The first thread of each block computes the constants of the step, in double, from the device's clock; then the block
 * takes elements four at a time, where all operands begin at a multiple of 16 bytes. AdamW and sums of squares are made for
 * many parameters by one launch, with the bits of a launch for each: a model has hundreds of parameters, most of them small.
 */
#include "kernels/cuda/many.h"
#include "kernels/cuda/packs.h"
#include "kernels/optim/scalars.h"

enum { UPDATE_THREADS = 256, UPDATE_BLOCKS = 1024, UPDATE_CHUNK = 16384 /* elements */ };

/* A call of an update with at most one state, which is read at from, and written to `to`, which may be the same. Borrowed. */
struct update_call {
    optim_attrs attrs;
    const weir_clock *clock;
    update_scalars scalars;
    const float *g;
    float *p;
    const float *from;
    float *to;
    int64_t count;
    int states;
};

/* The rules: what an element becomes. */
struct sgd_rule {
    static METHOD void step(const update_constants &c, float g, float *p, float *) { sgd_update(&c, g, p); }
};
struct momentum_rule {
    static METHOD void step(const update_constants &c, float g, float *p, float *v) { sgd_momentum_update(&c, g, p, v); }
};
struct nesterov_rule {
    static METHOD void step(const update_constants &c, float g, float *p, float *v) { nesterov_update(&c, g, p, v); }
};
struct adagrad_rule {
    static METHOD void step(const update_constants &c, float g, float *p, float *s) { adagrad_update(&c, g, p, s); }
};
struct lion_rule {
    static METHOD void step(const update_constants &c, float g, float *p, float *m) { lion_update(&c, g, p, m); }
};

/* A parameter whose gradients' scale is NaN stays as it is; states only move. */
DEVICE void move_states(const update_call &call)
{
    for (int64_t i = THREAD; call.states && call.from != call.to && i < call.count; i += THREADS)
        call.to[i] = call.from[i];
}

KERNEL_OF(move, UPDATE_THREADS)(update_call call)
{
    move_states(call);
}

/* Elements [i, i + N), of which each operand is loaded and stored at once. */
template <int STATES, class R, class F> DEVICE void update_some(const update_constants &c, const update_call &call, int64_t i)
{
    enum { N = sizeof(F) / sizeof(float) };
    union {
        F all;
        float each[N];
    } g, p, s;
    g.all = *(const F *)(call.g + i);
    p.all = *(const F *)(call.p + i);
    if (STATES)
        s.all = *(const F *)(call.from + i);
    UNROLL
    for (int j = 0; j < N; j++)
        R::step(c, g.each[j], &p.each[j], &s.each[j]);
    *(F *)(call.p + i) = p.all;
    if (STATES)
        *(F *)(call.to + i) = s.all;
}

template <class R, int STATES> KERNEL_OF(update, UPDATE_THREADS)(update_call call, int64_t quads)
{
    SHARED(update_constants, constants, 1);
    if (leaves_out(call.scalars)) {
        move_states(call);
        return;
    }
    if (threadIdx.x == 0)
        constants[0] = update_of(&call.attrs, call.clock->step, call.scalars);
    BARRIER();
    const update_constants &c = constants[0];
    for (int64_t i = THREAD; i < quads; i += THREADS)
        update_some<STATES, R, float4>(c, call, 4 * i);
    for (int64_t i = 4 * quads + THREAD; i < call.count; i += THREADS)
        update_some<STATES, R, float>(c, call, i);
}

static bool aligned(const void *at)
{
    return (uintptr_t)at % 16 == 0;
}

static int64_t blocks_for(int64_t items)
{
    const int64_t blocks = (items + UPDATE_THREADS - 1) / UPDATE_THREADS;
    return blocks < UPDATE_BLOCKS ? blocks : (int64_t)UPDATE_BLOCKS;
}

/* A state that is moved is the last input and the second output. */
static update_call call_of(const weir_kernel_args *args, bool moved)
{
    update_call call = {};
    call.attrs = *(const optim_attrs *)args->attrs;
    call.clock = args->clock;
    call.g = view_f32(&args->in[0]);
    call.scalars = update_scalars_of(args, moved);
    call.p = view_f32(&args->out[0]);
    call.count = count_of(&args->out[0].shape);
    call.states = moved ? 1 : args->state_count;
    if (call.states) {
        call.from = view_f32(moved ? &args->in[args->in_count - 1] : &args->state[0]);
        call.to = view_f32(moved ? &args->out[1] : &args->state[0]);
    }
    return call;
}

template <class R, int STATES> static weir_status update_run(const weir_kernel_args *args, const update_call *call)
{
    const bool by_four = aligned(call->g) && aligned(call->p) && aligned(call->from) && aligned(call->to);
    const int64_t quads = by_four ? call->count / 4 : 0, blocks = blocks_for(quads ? quads : call->count);
    LAUNCH((update<R, STATES>), blocks, UPDATE_THREADS, args->queue, *call, quads);
    return launched(args);
}

static weir_status sgd_run(const weir_kernel_args *args, bool moved)
{
    const update_call call = call_of(args, moved);
    if (call.attrs.momentum != 0)
        return update_run<momentum_rule, 1>(args, &call);
    if (call.states) /* a state that nothing is done with */
        LAUNCH(move, blocks_for(call.count), UPDATE_THREADS, args->queue, call);
    return update_run<sgd_rule, 0>(args, &call);
}

extern "C" weir_status op_sgd_cuda(const weir_kernel_args *args)
{
    return sgd_run(args, false);
}

extern "C" weir_status op_sgd_moved_cuda(const weir_kernel_args *args)
{
    return sgd_run(args, true);
}

#define ONE_STATE(name)                                                              \
    extern "C" weir_status op_##name##_cuda(const weir_kernel_args *args)            \
    {                                                                                \
        const update_call call = call_of(args, false);                               \
        return update_run<name##_rule, 1>(args, &call);                              \
    }                                                                                \
    extern "C" weir_status op_##name##_moved_cuda(const weir_kernel_args *args)      \
    {                                                                                \
        const update_call call = call_of(args, true);                                \
        return update_run<name##_rule, 1>(args, &call);                              \
    }

ONE_STATE(nesterov)
ONE_STATE(adagrad)
ONE_STATE(lion)

/* ---- adamw and adam, for many parameters ---- */

/* m and v are read at from[], and written to to[], which may be the same. */
struct adamw_parameter {
    const float *g, *from[2];
    float *p, *to[2];
    int32_t *updates;
    int64_t count; /* elements; below 0: so many, and the operands are not aligned */
};

/* The parameters have these in common. */
struct adamw_call {
    optim_attrs attrs;
    const weir_clock *clock;
    update_scalars scalars;
    many<adamw_parameter> all;
};
static_assert(sizeof(adamw_call) <= MANY_BYTES, "it is an argument of a kernel");

/* Before the update, of which every block reads the numbers. */
KERNEL_OF(count_updates, UPDATE_THREADS)(adamw_call call)
{
    const int i = (int)threadIdx.x;
    if (i < call.all.count && !leaves_out(call.scalars))
        *call.all.of[i].updates = adamw_count(*call.all.of[i].updates);
}

struct adamw_rule {
    static METHOD void step(const adamw_constants &c, float g, float *p, float *m, float *v) { adamw_update(&c, g, p, m, v); }
};
struct adam_rule {
    static METHOD void step(const adamw_constants &c, float g, float *p, float *m, float *v) { adam_update(&c, g, p, m, v); }
};

template <class R, int N> DEVICE void adamw_some(const adamw_constants &c, const adamw_parameter &x, int64_t i)
{
    const pack<float, N> g = pack_load<N>(x.g + i);
    pack<float, N> p = pack_load<N>(x.p + i), m = pack_load<N>(x.from[0] + i), v = pack_load<N>(x.from[1] + i);
    UNROLL
    for (int k = 0; k < N; k++)
        R::step(c, g.at[k], &p.at[k], &m.at[k], &v.at[k]);
    pack_store(x.p + i, p);
    pack_store(x.to[0] + i, m);
    pack_store(x.to[1] + i, v);
}

/* A parameter whose gradients' scale is NaN stays as it is; states only move. */
DEVICE void adamw_move(const adamw_parameter &x, int64_t first, int64_t end)
{
    for (int s = 0; s < 2; s++)
        for (int64_t i = first + threadIdx.x; x.from[s] != x.to[s] && i < end; i += blockDim.x)
            x.to[s][i] = x.from[s][i];
}

template <class R> DEVICE void adamw_chunk(const adamw_constants &c, const adamw_parameter &x, int64_t first, int64_t end)
{
    const int64_t whole = x.count < 0 ? first : end / 4 * 4;
    for (int64_t i = first + 4 * threadIdx.x; i < whole; i += 4 * blockDim.x)
        adamw_some<R, 4>(c, x, i);
    for (int64_t i = whole + threadIdx.x; i < end; i += blockDim.x)
        adamw_some<R, 1>(c, x, i);
}

template <class R> KERNEL_OF(adamw_all, UPDATE_THREADS)(adamw_call call)
{
    SHARED(adamw_constants, constants, 1);
    const bool skips = leaves_out(call.scalars);
    int last = -1;
    for (uint32_t chunk = blockIdx.x; chunk < call.all.first[call.all.count]; chunk += gridDim.x) {
        const int t = call.all.tensor_of(chunk);
        const adamw_parameter &x = call.all.of[t];
        const int64_t count = x.count < 0 ? -x.count : x.count;
        const int64_t first = (int64_t)(chunk - call.all.first[t]) * UPDATE_CHUNK;
        const int64_t end = first + UPDATE_CHUNK < count ? first + UPDATE_CHUNK : count;
        if (skips) {
            adamw_move(x, first, end);
            continue;
        }
        if (t != last) {
            BARRIER();
            if (threadIdx.x == 0)
                constants[0] = adamw_of(&call.attrs, rate_of(&call.attrs, call.clock->step, call.scalars), *x.updates,
                                        scale_of(call.scalars));
            BARRIER();
        }
        last = t;
        adamw_chunk<R>(constants[0], x, first, end);
    }
}

template <class R> static void adamw_launch(const weir_kernel_args *args, adamw_call *call)
{
    const uint32_t chunks = call->all.chunks();
    if (call->all.count) {
        LAUNCH(count_updates, 1, UPDATE_THREADS, args->queue, *call);
        LAUNCH(adamw_all<R>, chunks < UPDATE_BLOCKS ? chunks : (uint32_t)UPDATE_BLOCKS, UPDATE_THREADS, args->queue, *call);
    }
    call->all.clear();
}

static adamw_parameter parameter_of(const weir_kernel_args *args, bool moved)
{
    adamw_parameter x = {};
    x.g = view_f32(&args->in[0]);
    x.p = view_f32(&args->out[0]);
    x.updates = (int32_t *)args->state[moved ? 0 : 2].data;
    bool by_four = aligned(x.g) && aligned(x.p);
    for (int s = 0; s < 2; s++) {
        x.from[s] = view_f32(moved ? &args->in[args->in_count - 2 + s] : &args->state[s]);
        x.to[s] = moved ? view_f32(&args->out[1 + s]) : view_f32(&args->state[s]);
        by_four = by_four && aligned(x.from[s]) && aligned(x.to[s]);
    }
    x.count = count_of(&args->out[0].shape);
    x.count = by_four ? x.count : -x.count;
    return x;
}

static update_scalars scalars_of(const weir_kernel_args *args, bool moved)
{
    return update_scalars_of(args, moved ? 2 : 0);
}

static bool same_call(const weir_kernel_args *a, const weir_kernel_args *b, bool moved)
{
    const update_scalars of_a = scalars_of(a, moved), of_b = scalars_of(b, moved);
    return !memcmp(a->attrs, b->attrs, sizeof(optim_attrs)) && of_a.scale == of_b.scale && of_a.rate == of_b.rate;
}

/* The calls from `of` on that have the same in common as that one. `done` is by call. */
template <class R> static void adamw_like(const weir_kernel_args *const *args, int count, int of, bool moved, bool *done)
{
    adamw_call call = {};
    call.attrs = *(const optim_attrs *)args[of]->attrs;
    call.clock = args[of]->clock;
    call.scalars = scalars_of(args[of], moved);
    for (int i = of; i < count; i++) {
        if (done[i] || !same_call(args[of], args[i], moved))
            continue;
        const int64_t elements = count_of(&args[i]->out[0].shape);
        call.all.add(parameter_of(args[i], moved), (elements + UPDATE_CHUNK - 1) / UPDATE_CHUNK);
        done[i] = true;
        if (call.all.full())
            adamw_launch<R>(args[of], &call);
    }
    adamw_launch<R>(args[of], &call);
}

template <class R> static weir_status adamw_run(const weir_kernel_args *const *args, int count, bool moved)
{
    bool done[JOINED_MAX] = {};
    for (int i = 0; i < count; i++)
        if (!done[i])
            adamw_like<R>(args, count, i, moved, done);
    return launched(args[0]);
}

#define TWO_STATES(name, moved)                                                                       \
    extern "C" weir_status op_##name##_cuda_many(const weir_kernel_args *const *args, int count)      \
    {                                                                                                 \
        return adamw_run<R_##name>(args, count, moved);                                               \
    }                                                                                                 \
    extern "C" weir_status op_##name##_cuda(const weir_kernel_args *args)                             \
    {                                                                                                 \
        return adamw_run<R_##name>(&args, 1, moved);                                                  \
    }

typedef adamw_rule R_adamw, R_adamw_moved;
typedef adam_rule R_adam, R_adam_moved;
TWO_STATES(adamw, false)
TWO_STATES(adamw_moved, true)
TWO_STATES(adam, false)
TWO_STATES(adam_moved, true)

/* ---- lamb ---- */

struct lamb_call {
    optim_attrs attrs;
    const weir_clock *clock;
    update_scalars scalars;
    const float *g, *p; /* of lamb_apply g is the direction */
    float *out, *m, *v;
    int32_t *updates;
    int64_t count;
};

KERNEL(lamb_count)(lamb_call call)
{
    if (!leaves_out(call.scalars))
        *call.updates = adamw_count(*call.updates);
}

KERNEL_OF(lamb, UPDATE_THREADS)(lamb_call call)
{
    SHARED(adamw_constants, constants, 1);
    const bool skips = leaves_out(call.scalars);
    if (threadIdx.x == 0 && !skips)
        constants[0] = adamw_of(&call.attrs, 1, *call.updates, scale_of(call.scalars));
    BARRIER();
    for (int64_t i = THREAD; i < call.count; i += THREADS)
        call.out[i] = skips ? NAN : lamb_direction(&constants[0], call.g[i], call.p[i], &call.m[i], &call.v[i]);
}

extern "C" weir_status op_lamb_cuda(const weir_kernel_args *args)
{
    lamb_call call = {};
    call.attrs = *(const optim_attrs *)args->attrs;
    call.clock = args->clock;
    call.scalars = update_scalars_of(args, 1);
    call.g = view_f32(&args->in[0]);
    call.p = view_f32(&args->in[args->in_count - 1]);
    call.out = view_f32(&args->out[0]);
    call.m = view_f32(&args->state[0]);
    call.v = view_f32(&args->state[1]);
    call.updates = (int32_t *)args->state[2].data;
    call.count = count_of(&args->out[0].shape);
    LAUNCH(lamb_count, 1, 1, args->queue, call);
    LAUNCH(lamb, blocks_for(call.count), UPDATE_THREADS, args->queue, call);
    return launched(args);
}

KERNEL_OF(lamb_apply, UPDATE_THREADS)(lamb_call call, const float *of_u, const float *of_p)
{
    SHARED(float, rate, 1);
    if (threadIdx.x == 0)
        rate[0] = lamb_rate(&call.attrs, call.clock->step, call.scalars, of_u, of_p);
    BARRIER();
    for (int64_t i = THREAD; !isnan(rate[0]) && i < call.count; i += THREADS)
        call.out[i] -= rate[0] * call.g[i];
}

extern "C" weir_status op_lamb_apply_cuda(const weir_kernel_args *args)
{
    lamb_call call = {};
    call.attrs = *(const optim_attrs *)args->attrs;
    call.clock = args->clock;
    call.scalars.rate = args->in_count > 3 ? view_f32(&args->in[3]) : nullptr;
    call.g = view_f32(&args->in[0]);
    call.out = view_f32(&args->out[0]);
    call.count = count_of(&args->out[0].shape);
    LAUNCH(lamb_apply, blocks_for(call.count), UPDATE_THREADS, args->queue, call, view_f32(&args->in[1]), view_f32(&args->in[2]));
    return launched(args);
}

/* ---- the schedule of the rate, averages ---- */

KERNEL(schedule)(schedule_attrs attrs, const weir_clock *clock, const float *given, float *out)
{
    *out = schedule_rate(&attrs, clock->step, given);
}

extern "C" weir_status op_schedule_cuda(const weir_kernel_args *args)
{
    LAUNCH(schedule, 1, 1, args->queue, *(const schedule_attrs *)args->attrs, args->clock,
           args->in_count ? view_f32(&args->in[0]) : nullptr, view_f32(&args->out[0]));
    return launched(args);
}

KERNEL(ema_count)(int32_t *values)
{
    *values = adamw_count(*values);
}

KERNEL_OF(ema, UPDATE_THREADS)(ema_attrs attrs, const int32_t *values, const float *p, float *average, int64_t count)
{
    const float fresh = ema_fresh(&attrs, *values);
    for (int64_t i = THREAD; i < count; i += THREADS)
        average[i] = ema_next(fresh, average[i], p[i]);
}

extern "C" weir_status op_ema_cuda(const weir_kernel_args *args)
{
    const int64_t count = count_of(&args->out[0].shape);
    int32_t *const values = (int32_t *)args->state[0].data;
    LAUNCH(ema, blocks_for(count), UPDATE_THREADS, args->queue, *(const ema_attrs *)args->attrs, values, view_f32(&args->in[0]),
           view_f32(&args->out[0]), count);
    LAUNCH(ema_count, 1, 1, args->queue, values);
    return launched(args);
}

/* ---- clipping ---- */

/* A chunk is what one block sums up. Threads take four neighbours at a time, whatever the address. */
struct squared {
    const float *x;
    double *sums; /* by chunk */
    float *out;
    int64_t count;
    bool fit;     /* four are one load */
};
typedef many<squared> squared_list;
static_assert(sizeof(squared_list) <= MANY_BYTES, "it is an argument of a kernel");

DEVICE double quad_squares(const pack<float, 4> &x)
{
    double sum = 0;
    UNROLL
    for (int k = 0; k < 4; k++)
        sum += (double)x.at[k] * x.at[k];
    return sum;
}

KERNEL_OF(square_part, SUM_THREADS)(squared_list all)
{
    SHARED(double, part, WARP);
    const int t = all.tensor_of(blockIdx.x);
    const squared &of = all.of[t];
    const int64_t block = blockIdx.x - all.first[t], threads = (int64_t)(all.first[t + 1] - all.first[t]) * blockDim.x;
    const int64_t thread = block * blockDim.x + threadIdx.x, quads = of.count / 4;
    double sum = 0;
    if (of.fit)
        for (int64_t i = thread; i < quads; i += threads)
            sum += quad_squares(pack_load<4>(of.x + 4 * i));
    else
        for (int64_t i = thread; i < quads; i += threads)
            sum += quad_squares({of.x[4 * i], of.x[4 * i + 1], of.x[4 * i + 2], of.x[4 * i + 3]});
    for (int64_t i = 4 * quads + thread; i < of.count; i += threads)
        sum += (double)of.x[i] * of.x[i];
    sum = block_sum<double>(sum, part);
    if (threadIdx.x == 0)
        of.sums[block] = sum;
}

KERNEL_OF(square_fold, SUM_THREADS)(squared_list all)
{
    SHARED(double, part, WARP);
    const squared &of = all.of[blockIdx.x];
    const int64_t count = all.first[blockIdx.x + 1] - all.first[blockIdx.x];
    double sum = 0;
    for (int64_t i = threadIdx.x; i < count; i += blockDim.x)
        sum += of.sums[i];
    sum = block_sum<double>(sum, part);
    if (threadIdx.x == 0)
        squares_put(sum, of.out);
}

static void square_launch(const weir_kernel_args *args, squared_list *all)
{
    LAUNCH(square_part, all->chunks(), SUM_THREADS, args->queue, *all);
    LAUNCH(square_fold, all->count, SUM_THREADS, args->queue, *all);
    all->clear();
}

extern "C" weir_status op_square_sum_cuda_many(const weir_kernel_args *const *args, int count)
{
    squared_list all = {};
    for (int i = 0; i < count; i++) {
        const int64_t elements = count_of(&args[i]->in[0].shape);
        const float *const x = view_f32(&args[i]->in[0]);
        all.add({x, (double *)args[i]->workspace, view_f32(&args[i]->out[0]), elements, aligned(x)}, sum_blocks(elements));
        if (all.full())
            square_launch(args[0], &all);
    }
    square_launch(args[0], &all);
    return launched(args[0]);
}

extern "C" weir_status op_square_sum_cuda(const weir_kernel_args *args)
{
    return op_square_sum_cuda_many(&args, 1);
}

KERNEL(clip_scale)(clip_attrs attrs, const float *squares, const float *count, float *out, int32_t *skipped)
{
    *out = clip_step(&attrs, squares, count, skipped);
}

extern "C" weir_status op_clip_scale_cuda(const weir_kernel_args *args)
{
    LAUNCH(clip_scale, 1, 1, args->queue, *(const clip_attrs *)args->attrs, view_f32(&args->in[0]),
           args->in_count > 1 ? view_f32(&args->in[1]) : nullptr, view_f32(&args->out[0]), (int32_t *)args->state[0].data);
    return launched(args);
}

KERNEL(clip_norm)(clip_attrs attrs, const float *squares, const float *base, float *out, float *norm)
{
    *out = clip_part(&attrs, squares, *base, norm);
}

extern "C" weir_status op_clip_norm_cuda(const weir_kernel_args *args)
{
    LAUNCH(clip_norm, 1, 1, args->queue, *(const clip_attrs *)args->attrs, view_f32(&args->in[0]), view_f32(&args->in[1]),
           view_f32(&args->out[0]), view_f32(&args->out[1]));
    return launched(args);
}

KERNEL(loss_scale)(scale_attrs attrs, const float *squares, const float *count, const float *scale, float *good,
                   int32_t *skipped, float *next, float *factor)
{
    float now = *scale;
    *factor = scale_step(&attrs, squares, count, &now, good, skipped);
    *next = now;
}

extern "C" weir_status op_loss_scale_cuda(const weir_kernel_args *args)
{
    LAUNCH(loss_scale, 1, 1, args->queue, *(const scale_attrs *)args->attrs, view_f32(&args->in[1]),
           args->in_count > 2 ? view_f32(&args->in[2]) : nullptr, view_f32(&args->in[0]), view_f32(&args->state[0]), (int32_t *)args->state[1].data,
           view_f32(&args->out[0]), view_f32(&args->out[1]));
    return launched(args);
}
