/* kernels/optim/optim.c: the updates but for LAMB's, and the ops of gradient clipping.
 *
 * An update reads and writes every element of a parameter and its state once, which is all that it does for long: at
 * 28 bytes an element adamw is bound by memory, so all of it is one pass, and what does not depend on the element
 * (the rate, the bias corrections, the clipping factor) is folded into a few constants in double before the loop.
 * The loops are plain C that the compiler vectorises: square root and division included, since no errno is asked for.
 *
 * The bias-corrected step lr * (m / c1) / (sqrt(v / c2) + eps) is computed as (lr / c1) * m / (sqrt(v) * (1 /
 * sqrt(c2)) + eps): the same value, with one division an element. Decay is decoupled (Loshchilov and Hutter 2019,
 * algorithm 2).
 */
#include "kernels/optim/optim.h"

#include "kernels/cuda/chunks.h"
#include "kernels/optim/scalars.h"
#include "kernels/common/lanes.h"
#include "kernels/common/view.h"
#include <math.h>

const weir_field optim_fields[OPTIM_FIELD_COUNT] = {
    WEIR_FIELD_REAL(struct optim_attrs, lr),
    WEIR_FIELD_REAL(struct optim_attrs, lr_min),
    WEIR_FIELD_REAL(struct optim_attrs, momentum),
    WEIR_FIELD_REAL(struct optim_attrs, beta1),
    WEIR_FIELD_REAL(struct optim_attrs, beta2),
    WEIR_FIELD_REAL(struct optim_attrs, eps),
    WEIR_FIELD_REAL(struct optim_attrs, weight_decay),
    WEIR_FIELD_INT(struct optim_attrs, warmup),
    WEIR_FIELD_INT(struct optim_attrs, total),
};

static bool is_scalar(const weir_type *type, int rank)
{
    return type->dtype == WEIR_F32 && type->shape.rank == rank && weir_shape_count(&type->shape) == 1;
}

static bool update_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    int next = 1;
    if (args->in[0].dtype != WEIR_F32)
        return REFUSE("the gradient is %s, not f32", weir_dtype_name(args->in[0].dtype));
    next += next < args->in_count && is_scalar(&args->in[next], 0);
    next += next < args->in_count && is_scalar(&args->in[next], 1);
    if (next < args->in_count)
        return REFUSE("input %d is neither the scale of the gradient, an f32 scalar, nor the rate, f32 [1] behind it", next);
    args->out[0] = args->in[0];
    return true;
}

static void update_signatures(const weir_op_args *args, weir_signature_list *list)
{
    for (int d = 0; d < args->in[0].shape.rank; d++) {
        weir_signature *s = weir_signature_new(list);
        s->in[0] = s->out[0] = WEIR_S(d);
    }
}

static void update_cost(const weir_op_args *args, weir_cost *cost, double flops, int states)
{
    const double count = (double)weir_shape_count(&args->out[0].shape);
    cost->flops = flops * count;
    cost->bytes = (12 + 8 * states) * count; /* reads the gradient; reads and writes p and its states */
}

#define UPDATE(op, ...)                           \
    .name = #op,                                  \
    OPTIM_FIELDS,                                 \
    .in_min = 1,                                  \
    .in_max = 3,                                  \
    .out_count = 1,                               \
    .infer = update_infer,                        \
    .signatures = update_signatures,              \
    .cost = op##_cost,                            \
    .states = op##_states,                        \
    .state_names = {__VA_ARGS__},                 \
    .kernel = {[WEIR_CPU] = op##_cpu}

/* ---- sgd ---- */

static int sgd_states(const weir_op_args *args, weir_type *states)
{
    const struct optim_attrs *attrs = args->attrs;
    states[0] = args->out[0];
    return attrs->momentum != 0 ? 1 : 0;
}

static void sgd_cost(const weir_op_args *args, weir_cost *cost)
{
    const struct optim_attrs *attrs = args->attrs;
    update_cost(args, cost, attrs->momentum != 0 ? 7 : 5, attrs->momentum != 0);
}

/* `update` for each element, with its state if there is one; nothing if the step is left out. */
#define EACH_ELEMENT(args, update)                                                      \
    do {                                                                                \
        const float *restrict g = view_f32(&(args)->in[0]);                             \
        float *restrict p = view_f32(&(args)->out[0]);                                  \
        float *restrict s = (args)->state_count ? view_f32(&(args)->state[0]) : p;      \
        const struct update_scalars from = update_scalars_of(args, 0);                  \
        const update_constants c = update_of((args)->attrs, (args)->step, from);        \
        const int64_t count = leaves_out(from) ? 0 : view_count(&(args)->out[0]);       \
        for (int64_t i = 0; i < count; i++)                                             \
            update(&c, g[i], p + i, s + i);                                             \
    } while (0)

static inline void plain_update(const update_constants *c, float g, float *p, float *none)
{
    (void)none;
    sgd_update(c, g, p);
}

static weir_status sgd_cpu(const weir_kernel_args *args)
{
    const struct optim_attrs *attrs = args->attrs;
    if (attrs->momentum != 0)
        EACH_ELEMENT(args, sgd_momentum_update);
    else
        EACH_ELEMENT(args, plain_update);
    return WEIR_OK;
}

const weir_op op_sgd = {UPDATE(sgd, "momentum")};

/* ---- nesterov, adagrad, lion ---- */

#define ONE_STATE(op, flops, state_name)                                       \
    static int op##_states(const weir_op_args *args, weir_type *states)        \
    {                                                                          \
        states[0] = args->out[0];                                              \
        return 1;                                                              \
    }                                                                          \
    static void op##_cost(const weir_op_args *args, weir_cost *cost)           \
    {                                                                          \
        update_cost(args, cost, flops, 1);                                     \
    }                                                                          \
    static weir_status op##_cpu(const weir_kernel_args *args)                  \
    {                                                                          \
        EACH_ELEMENT(args, op##_update);                                       \
        return WEIR_OK;                                                        \
    }                                                                          \
    const weir_op op_##op = {UPDATE(op, state_name)};

ONE_STATE(nesterov, 9, "momentum")
ONE_STATE(adagrad, 9, "sum")
ONE_STATE(lion, 12, "m")

/* ---- adamw, adam ---- */

static int adamw_states(const weir_op_args *args, weir_type *states)
{
    states[0] = states[1] = args->out[0];
    states[2] = (weir_type){.dtype = WEIR_I32};
    return 3;
}

static void adamw_cost(const weir_op_args *args, weir_cost *cost)
{
    update_cost(args, cost, 15, 2);
}

#define adam_states adamw_states
#define adam_cost adamw_cost

#define TWO_STATES(op)                                                                                   \
    static weir_status op##_cpu(const weir_kernel_args *args)                                            \
    {                                                                                                    \
        const struct optim_attrs *attrs = args->attrs;                                                   \
        const float *restrict g = view_f32(&args->in[0]);                                                \
        float *restrict p = view_f32(&args->out[0]);                                                     \
        float *restrict m = view_f32(&args->state[0]);                                                   \
        float *restrict v = view_f32(&args->state[1]);                                                   \
        const int64_t count = view_count(&args->out[0]);                                                 \
        int32_t *updates = args->state[2].data;                                                          \
        const struct update_scalars from = update_scalars_of(args, 0);                                   \
                                                                                                         \
        if (leaves_out(from))                                                                            \
            return WEIR_OK;                                                                              \
        *updates = adamw_count(*updates);                                                                \
        const adamw_constants c = adamw_of(attrs, rate_of(attrs, args->step, from), *updates, scale_of(from)); \
        for (int64_t i = 0; i < count; i++)                                                              \
            op##_update(&c, g[i], p + i, m + i, v + i);                                                  \
        return WEIR_OK;                                                                                  \
    }                                                                                                    \
    const weir_op op_##op = {UPDATE(op, "m", "v", "updates")};

TWO_STATES(adamw)
TWO_STATES(adam)

/* ---- clipping ---- */

static bool square_sum_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    if (args->in[0].dtype != WEIR_F32)
        return REFUSE("the input is %s, not f32", weir_dtype_name(args->in[0].dtype));
    args->out[0] = (weir_type){WEIR_F32, {1, {SQUARES}}};
    return true;
}

static void square_sum_signatures(const weir_op_args *args, weir_signature_list *list)
{
    for (int d = 0; d < args->in[0].shape.rank; d++) {
        weir_signature *s = weir_signature_new(list);
        s->in[0] = WEIR_S(d);
        s->out[0] = WEIR_P;
    }
}

static void square_sum_cost(const weir_op_args *args, weir_cost *cost)
{
    double count = (double)weir_shape_count(&args->in[0].shape);
    cost->flops = 2 * count;
    cost->bytes = 4 * count;
}

/* On a GPU, the sums of blocks. */
static size_t square_sum_workspace(const weir_op_args *args, weir_device_kind kind)
{
    return kind == WEIR_CUDA ? (size_t)sum_blocks(weir_shape_count(&args->in[0].shape)) * sizeof(double) : 0;
}

static weir_status square_sum_cpu(const weir_kernel_args *args)
{
    squares_put(row_squares(view_f32(&args->in[0]), view_count(&args->in[0])), view_f32(&args->out[0]));
    return WEIR_OK;
}

const weir_op op_square_sum = {
    .name = "square_sum",
    .in_min = 1,
    .in_max = 1,
    .out_count = 1,
    .infer = square_sum_infer,
    .signatures = square_sum_signatures,
    .cost = square_sum_cost,
    .workspace = square_sum_workspace,
    .kernel = {[WEIR_CPU] = square_sum_cpu},
};

static const weir_field clip_fields[] = {WEIR_FIELD_REAL(struct clip_attrs, max_norm)};

static bool clip_scale_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    const struct clip_attrs *attrs = args->attrs;
    if (args->in[0].dtype != WEIR_F32 || weir_shape_count(&args->in[0].shape) != SQUARES)
        return REFUSE("the sum of squares is not %d numbers in f32", SQUARES);
    if (!(attrs->max_norm >= 0))
        return REFUSE("the largest norm is %g; it must be 0 or more", attrs->max_norm);
    if (args->in_count > 1 && (args->in[1].dtype != WEIR_F32 || weir_shape_count(&args->in[1].shape) != 1))
        return REFUSE("the count is not an f32 scalar");
    args->out[0] = (weir_type){.dtype = WEIR_F32};
    return true;
}

static int clip_scale_states(const weir_op_args *args, weir_type *states)
{
    (void)args;
    states[0] = (weir_type){.dtype = WEIR_I32};
    return 1;
}

static weir_status clip_scale_cpu(const weir_kernel_args *args)
{
    *view_f32(&args->out[0]) = clip_step(args->attrs, view_f32(&args->in[0]),
                                         args->in_count > 1 ? view_f32(&args->in[1]) : NULL, args->state[0].data);
    return WEIR_OK;
}

const weir_op op_clip_scale = {
    .name = "clip_scale",
    .fields = clip_fields,
    .field_count = 1,
    .attrs_bytes = sizeof(struct clip_attrs),
    .in_min = 1,
    .in_max = 2,
    .out_count = 1,
    .infer = clip_scale_infer,
    .states = clip_scale_states,
    .state_names = {"skipped"},
    .kernel = {[WEIR_CPU] = clip_scale_cpu},
};

static bool clip_norm_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    const struct clip_attrs *attrs = args->attrs;
    if (args->in[0].dtype != WEIR_F32 || weir_shape_count(&args->in[0].shape) != SQUARES)
        return REFUSE("the sum of squares is not %d numbers in f32", SQUARES);
    if (args->in[1].dtype != WEIR_F32 || weir_shape_count(&args->in[1].shape) != 1)
        return REFUSE("the factor of the gradients is not an f32 scalar");
    if (!(attrs->max_norm >= 0))
        return REFUSE("the largest norm is %g; it must be 0 or more", attrs->max_norm);
    args->out[0] = args->out[1] = (weir_type){.dtype = WEIR_F32};
    return true;
}

static weir_status clip_norm_cpu(const weir_kernel_args *args)
{
    *view_f32(&args->out[0]) =
        clip_part(args->attrs, view_f32(&args->in[0]), *view_f32(&args->in[1]), view_f32(&args->out[1]));
    return WEIR_OK;
}

const weir_op op_clip_norm = {
    .name = "clip_norm",
    .fields = clip_fields,
    .field_count = 1,
    .attrs_bytes = sizeof(struct clip_attrs),
    .in_min = 2,
    .in_max = 2,
    .out_count = 2,
    .infer = clip_norm_infer,
    .kernel = {[WEIR_CPU] = clip_norm_cpu},
};
