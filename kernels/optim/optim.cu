/* kernels/optim/optim.cu: updates of parameters and the clipping of gradients on a GPU; optim.c, moved.c and scale.c have
 * their rules and say what they compute.
 *
 * The first thread of each block computes the constants of the step, in double, from the device's clock; then the block
 * takes elements four at a time, where all operands begin at a multiple of 16 bytes. AdamW and sums of squares are made for
 * many parameters by one launch, with the bits of a launch for each: a model has hundreds of parameters, most of them small.
 */
#include "kernels/cuda/many.h"
#include "kernels/cuda/packs.h"
#include "kernels/optim/formula.h"

enum { UPDATE_THREADS = 256, UPDATE_BLOCKS = 1024, UPDATE_CHUNK = 16384 /* elements */ };

/* A call of sgd: states are read at from[], and written to to[], which may be the same. Borrowed. */
struct update_call {
    optim_attrs attrs;
    const weir_clock *clock;
    const float *g, *scale; /* `scale` may be NULL */
    float *p;
    const float *from[2];
    float *to[2];
    int64_t count;
    int states;
};

/* The two rules of sgd; momentum has as many states as are used. */
struct sgd_rule {
    sgd_constants c;
};
struct momentum_rule {
    sgd_constants c;
};

DEVICE void rule_step(const sgd_rule &rule, float g, float *p, float *, float *)
{
    sgd_update(&rule.c, g, p);
}

DEVICE void rule_step(const momentum_rule &rule, float g, float *p, float *v, float *)
{
    sgd_momentum_update(&rule.c, g, p, v);
}

/* A parameter whose gradients' scale is NaN stays as it is; states only move. */
DEVICE void move_states(const update_call &call)
{
    for (int s = 0; s < call.states; s++)
        for (int64_t i = THREAD; call.from[s] != call.to[s] && i < call.count; i += THREADS)
            call.to[s][i] = call.from[s][i];
}

KERNEL_OF(move, UPDATE_THREADS)(update_call call)
{
    move_states(call);
}

/* Elements [i, i + N), of which each operand is loaded and stored at once. */
template <int STATES, class R, class F> DEVICE void update_some(const R &rule, const update_call &call, int64_t i)
{
    enum { N = sizeof(F) / sizeof(float) };
    union {
        F all;
        float each[N];
    } g, p, s[2];
    g.all = *(const F *)(call.g + i);
    p.all = *(const F *)(call.p + i);
    for (int k = 0; k < STATES; k++)
        s[k].all = *(const F *)(call.from[k] + i);
    UNROLL
    for (int j = 0; j < N; j++)
        rule_step(rule, g.each[j], &p.each[j], &s[0].each[j], &s[1].each[j]);
    *(F *)(call.p + i) = p.all;
    for (int k = 0; k < STATES; k++)
        *(F *)(call.to[k] + i) = s[k].all;
}

template <class R, int STATES> KERNEL_OF(update, UPDATE_THREADS)(update_call call, int64_t quads)
{
    SHARED(R, rules, 1);
    const float scale = call.scale ? *call.scale : 1.0f;
    if (isnan(scale)) {
        move_states(call);
        return;
    }
    if (threadIdx.x == 0)
        rules[0].c = sgd_of(&call.attrs, call.clock->step, scale);
    BARRIER();
    const R rule = rules[0];
    for (int64_t i = THREAD; i < quads; i += THREADS)
        update_some<STATES, R, float4>(rule, call, 4 * i);
    for (int64_t i = 4 * quads + THREAD; i < call.count; i += THREADS)
        update_some<STATES, R, float>(rule, call, i);
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

/* `scalars` inputs follow the gradient. */
static update_call call_of(const weir_kernel_args *args, int scalars)
{
    update_call call = {};
    call.attrs = *(const optim_attrs *)args->attrs;
    call.clock = args->clock;
    call.g = view_f32(&args->in[0]);
    call.scale = scalars > 0 ? view_f32(&args->in[1]) : nullptr;
    call.p = view_f32(&args->out[0]);
    call.count = count_of(&args->out[0].shape);
    return call;
}

static weir_status sgd_run(const weir_kernel_args *args, const update_call *call)
{
    bool by_four = aligned(call->g) && aligned(call->p);
    for (int s = 0; s < call->states; s++)
        by_four = by_four && aligned(call->from[s]) && aligned(call->to[s]);
    const int64_t quads = by_four ? call->count / 4 : 0, blocks = blocks_for(quads ? quads : call->count);
    if (call->attrs.momentum != 0)
        LAUNCH((update<momentum_rule, 1>), blocks, UPDATE_THREADS, args->queue, *call, quads);
    else
        LAUNCH((update<sgd_rule, 0>), blocks, UPDATE_THREADS, args->queue, *call, quads);
    return launched(args);
}

extern "C" weir_status op_sgd_cuda(const weir_kernel_args *args)
{
    update_call call = call_of(args, args->in_count - 1);
    call.states = args->state_count;
    for (int s = 0; s < call.states; s++)
        call.from[s] = call.to[s] = view_f32(&args->state[s]);
    return sgd_run(args, &call);
}

extern "C" weir_status op_sgd_moved_cuda(const weir_kernel_args *args)
{
    const int states = args->out_count - 1;
    update_call call = call_of(args, args->in_count - states - 1);
    call.states = states;
    for (int s = 0; s < states; s++) {
        call.from[s] = view_f32(&args->in[args->in_count - states + s]);
        call.to[s] = view_f32(&args->out[1 + s]);
    }
    if (call.attrs.momentum == 0) /* a state that nothing is done with */
        LAUNCH(move, blocks_for(call.count), UPDATE_THREADS, args->queue, call);
    return sgd_run(args, &call);
}

/* ---- adamw, for many parameters ---- */

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
    const float *scale; /* may be NULL */
    many<adamw_parameter> all;
};
static_assert(sizeof(adamw_call) <= MANY_BYTES, "it is an argument of a kernel");

/* Before the update, of which every block reads the numbers. */
KERNEL_OF(count_updates, UPDATE_THREADS)(adamw_call call)
{
    const int i = (int)threadIdx.x;
    if (i < call.all.count && (!call.scale || !isnan(*call.scale)))
        *call.all.of[i].updates = adamw_count(*call.all.of[i].updates);
}

template <int N> DEVICE void adamw_some(const adamw_constants &c, const adamw_parameter &x, int64_t i)
{
    const pack<float, N> g = pack_load<N>(x.g + i);
    pack<float, N> p = pack_load<N>(x.p + i), m = pack_load<N>(x.from[0] + i), v = pack_load<N>(x.from[1] + i);
    UNROLL
    for (int k = 0; k < N; k++)
        adamw_update(&c, g.at[k], &p.at[k], &m.at[k], &v.at[k]);
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

DEVICE void adamw_chunk(const adamw_constants &c, const adamw_parameter &x, int64_t first, int64_t end)
{
    const int64_t whole = x.count < 0 ? first : end / 4 * 4;
    for (int64_t i = first + 4 * threadIdx.x; i < whole; i += 4 * blockDim.x)
        adamw_some<4>(c, x, i);
    for (int64_t i = whole + threadIdx.x; i < end; i += blockDim.x)
        adamw_some<1>(c, x, i);
}

KERNEL_OF(adamw_all, UPDATE_THREADS)(adamw_call call)
{
    SHARED(adamw_constants, constants, 1);
    const float scale = call.scale ? *call.scale : 1.0f;
    int last = -1;
    for (uint32_t chunk = blockIdx.x; chunk < call.all.first[call.all.count]; chunk += gridDim.x) {
        const int t = call.all.tensor_of(chunk);
        const adamw_parameter &x = call.all.of[t];
        const int64_t count = x.count < 0 ? -x.count : x.count;
        const int64_t first = (int64_t)(chunk - call.all.first[t]) * UPDATE_CHUNK;
        const int64_t end = first + UPDATE_CHUNK < count ? first + UPDATE_CHUNK : count;
        if (isnan(scale)) {
            adamw_move(x, first, end);
            continue;
        }
        if (t != last) {
            BARRIER();
            if (threadIdx.x == 0)
                constants[0] = adamw_of(&call.attrs, call.clock->step, *x.updates, scale);
            BARRIER();
        }
        last = t;
        adamw_chunk(constants[0], x, first, end);
    }
}

static void adamw_launch(const weir_kernel_args *args, adamw_call *call)
{
    const uint32_t chunks = call->all.chunks();
    if (call->all.count) {
        LAUNCH(count_updates, 1, UPDATE_THREADS, args->queue, *call);
        LAUNCH(adamw_all, chunks < UPDATE_BLOCKS ? chunks : (uint32_t)UPDATE_BLOCKS, UPDATE_THREADS, args->queue, *call);
    }
    call->all.clear();
}

static int scalars_of(const weir_kernel_args *args, bool moved)
{
    return args->in_count - 1 - (moved ? args->out_count - 1 : 0);
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

static bool same_call(const weir_kernel_args *a, const weir_kernel_args *b, bool moved)
{
    const bool scaled = scalars_of(a, moved) > 0;
    return !memcmp(a->attrs, b->attrs, sizeof(optim_attrs)) && scaled == (scalars_of(b, moved) > 0) &&
           (!scaled || a->in[1].data == b->in[1].data);
}

/* The calls from `of` on that have the same in common as that one. `done` is by call. */
static void adamw_like(const weir_kernel_args *const *args, int count, int of, bool moved, bool *done)
{
    adamw_call call = {};
    call.attrs = *(const optim_attrs *)args[of]->attrs;
    call.clock = args[of]->clock;
    call.scale = scalars_of(args[of], moved) > 0 ? view_f32(&args[of]->in[1]) : nullptr;
    for (int i = of; i < count; i++) {
        if (done[i] || !same_call(args[of], args[i], moved))
            continue;
        const int64_t elements = count_of(&args[i]->out[0].shape);
        call.all.add(parameter_of(args[i], moved), (elements + UPDATE_CHUNK - 1) / UPDATE_CHUNK);
        done[i] = true;
        if (call.all.full())
            adamw_launch(args[of], &call);
    }
    adamw_launch(args[of], &call);
}

static weir_status adamw_run(const weir_kernel_args *const *args, int count, bool moved)
{
    bool done[JOINED_MAX] = {};
    for (int i = 0; i < count; i++)
        if (!done[i])
            adamw_like(args, count, i, moved, done);
    return launched(args[0]);
}

extern "C" weir_status op_adamw_cuda_many(const weir_kernel_args *const *args, int count)
{
    return adamw_run(args, count, false);
}

extern "C" weir_status op_adamw_moved_cuda_many(const weir_kernel_args *const *args, int count)
{
    return adamw_run(args, count, true);
}

extern "C" weir_status op_adamw_cuda(const weir_kernel_args *args)
{
    return adamw_run(&args, 1, false);
}

extern "C" weir_status op_adamw_moved_cuda(const weir_kernel_args *args)
{
    return adamw_run(&args, 1, true);
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
