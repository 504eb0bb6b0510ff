/* kernels/optim/optim.cu: updates of parameters and the clipping of gradients on a GPU; optim.c, moved.c and scale.c have
 * their rules and say what they compute.
 *
 * The first thread of each block computes the constants of the step, in double, from the device's clock; then the block
 * takes elements four at a time, where all operands begin at a multiple of 16 bytes.
 */
#include "kernels/cuda/rows.h"
#include "kernels/optim/formula.h"

enum { UPDATE_THREADS = 256, UPDATE_BLOCKS = 1024 };

/* A call: states are read at from[], and written to to[], which may be the same. Borrowed. */
struct update_call {
    optim_attrs attrs;
    const weir_clock *clock;
    const float *g, *scale; /* `scale` may be NULL */
    int32_t *updates;       /* adamw's count */
    float *p;
    const float *from[2];
    float *to[2];
    int64_t count;
    int states;
};

/* The three rules; momentum and adamw have as many states as are used. */
struct sgd_rule {
    sgd_constants c;
};
struct momentum_rule {
    sgd_constants c;
};
struct adamw_rule {
    adamw_constants c;
};

DEVICE void rule_begin(sgd_rule *rule, const update_call &call, float scale)
{
    rule->c = sgd_of(&call.attrs, call.clock->step, scale);
}

DEVICE void rule_begin(momentum_rule *rule, const update_call &call, float scale)
{
    rule->c = sgd_of(&call.attrs, call.clock->step, scale);
}

DEVICE void rule_begin(adamw_rule *rule, const update_call &call, float scale)
{
    rule->c = adamw_of(&call.attrs, call.clock->step, *call.updates, scale);
}

DEVICE void rule_step(const sgd_rule &rule, float g, float *p, float *, float *)
{
    sgd_update(&rule.c, g, p);
}

DEVICE void rule_step(const momentum_rule &rule, float g, float *p, float *v, float *)
{
    sgd_momentum_update(&rule.c, g, p, v);
}

DEVICE void rule_step(const adamw_rule &rule, float g, float *p, float *m, float *v)
{
    adamw_update(&rule.c, g, p, m, v);
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

/* Before the update, of which every block reads the number. */
KERNEL(count_update)(update_call call)
{
    if (!call.scale || !isnan(*call.scale))
        *call.updates = adamw_count(*call.updates);
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
        rule_begin(&rules[0], call, scale);
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

static weir_status update_run(const weir_kernel_args *args, const update_call *call, bool adamw)
{
    bool by_four = aligned(call->g) && aligned(call->p);
    for (int s = 0; s < call->states; s++)
        by_four = by_four && aligned(call->from[s]) && aligned(call->to[s]);
    const int64_t quads = by_four ? call->count / 4 : 0, blocks = blocks_for(quads ? quads : call->count);
    if (adamw) {
        LAUNCH(count_update, 1, 1, args->queue, *call);
        LAUNCH((update<adamw_rule, 2>), blocks, UPDATE_THREADS, args->queue, *call, quads);
    } else if (call->attrs.momentum != 0)
        LAUNCH((update<momentum_rule, 1>), blocks, UPDATE_THREADS, args->queue, *call, quads);
    else
        LAUNCH((update<sgd_rule, 0>), blocks, UPDATE_THREADS, args->queue, *call, quads);
    return launched(args);
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

static weir_status update_in_place(const weir_kernel_args *args, bool adamw)
{
    update_call call = call_of(args, args->in_count - 1);
    call.states = adamw ? 2 : args->state_count;
    call.updates = adamw ? (int32_t *)args->state[2].data : nullptr;
    for (int s = 0; s < call.states; s++)
        call.from[s] = call.to[s] = view_f32(&args->state[s]);
    return update_run(args, &call, adamw);
}

static weir_status update_moved(const weir_kernel_args *args, bool adamw)
{
    const int states = args->out_count - 1;
    update_call call = call_of(args, args->in_count - states - 1);
    call.states = states;
    call.updates = adamw ? (int32_t *)args->state[0].data : nullptr;
    for (int s = 0; s < states; s++) {
        call.from[s] = view_f32(&args->in[args->in_count - states + s]);
        call.to[s] = view_f32(&args->out[1 + s]);
    }
    if (!adamw && call.attrs.momentum == 0) /* a state that nothing is done with */
        LAUNCH(move, blocks_for(call.count), UPDATE_THREADS, args->queue, call);
    return update_run(args, &call, adamw);
}

extern "C" weir_status op_sgd_cuda(const weir_kernel_args *args)
{
    return update_in_place(args, false);
}

extern "C" weir_status op_adamw_cuda(const weir_kernel_args *args)
{
    return update_in_place(args, true);
}

extern "C" weir_status op_sgd_moved_cuda(const weir_kernel_args *args)
{
    return update_moved(args, false);
}

extern "C" weir_status op_adamw_moved_cuda(const weir_kernel_args *args)
{
    return update_moved(args, true);
}

/* ---- clipping ---- */

KERNEL_OF(square_part, SUM_THREADS)(const float *x, int64_t count, double *sums)
{
    SHARED(double, part, WARP);
    double sum = 0;
    for (int64_t i = THREAD; i < count; i += THREADS)
        sum += (double)x[i] * x[i];
    sum = block_sum<double>(sum, part);
    if (threadIdx.x == 0)
        sums[blockIdx.x] = sum;
}

KERNEL_OF(square_fold, SUM_THREADS)(const double *sums, int64_t count, float *out)
{
    SHARED(double, part, WARP);
    double sum = 0;
    for (int64_t i = threadIdx.x; i < count; i += blockDim.x)
        sum += sums[i];
    sum = block_sum<double>(sum, part);
    if (threadIdx.x == 0)
        squares_put(sum, out);
}

extern "C" weir_status op_square_sum_cuda(const weir_kernel_args *args)
{
    const int64_t count = count_of(&args->in[0].shape), blocks = sum_blocks(count);
    double *sums = (double *)args->workspace;
    LAUNCH(square_part, blocks, SUM_THREADS, args->queue, view_f32(&args->in[0]), count, sums);
    LAUNCH(square_fold, 1, SUM_THREADS, args->queue, sums, blocks, view_f32(&args->out[0]));
    return launched(args);
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
