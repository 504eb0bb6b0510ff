/* kernels/optim/lamb.c: the two ops of LAMB (You et al. 2020, algorithm 2).
 *
 *     lamb          gradient [, scale] [, rate], p -> the direction u, in which m and v are taken further
 *     lamb_apply    u, squares of u, squares of p [, rate] -> p, changed in place by rate |p| / |u| u
 *
 * A norm is that of the whole parameter, which may be split, so sums of squares (square_sum) come from all devices between the two.
 * Where a step is left out, u is NaN, and so is what its squares add up to.
 */
#include "kernels/optim/optim.h"

#include "kernels/common/rules.h"
#include "kernels/common/view.h"
#include "kernels/optim/scalars.h"
#include <math.h>

/* ---- lamb ---- */

static bool lamb_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    weir_op_args inner = *args;
    const weir_type *p = &args->in[--inner.in_count];
    if (!op_adamw.infer(&inner, error, error_bytes))
        return false;
    if (p->dtype != WEIR_F32 || !weir_shape_equal(&args->in[0].shape, &p->shape))
        return REFUSE("the parameter is not f32 of the gradient's shape");
    return true;
}

static void lamb_signatures(const weir_op_args *args, weir_signature_list *list)
{
    for (int d = 0; d < args->in[0].shape.rank; d++) {
        weir_signature *s = weir_signature_new(list);
        s->in[0] = s->in[args->in_count - 1] = s->out[0] = WEIR_S(d);
    }
}

static void lamb_cost(const weir_op_args *args, weir_cost *cost)
{
    const double count = (double)weir_shape_count(&args->out[0].shape);
    cost->flops = 17 * count;
    cost->bytes = 28 * count;
}

static int lamb_states(const weir_op_args *args, weir_type *states)
{
    states[0] = states[1] = args->out[0];
    states[2] = (weir_type){.dtype = WEIR_I32};
    return 3;
}

static weir_status lamb_cpu(const weir_kernel_args *args)
{
    const float *restrict g = view_f32(&args->in[0]), *restrict p = view_f32(&args->in[args->in_count - 1]);
    float *restrict u = view_f32(&args->out[0]), *restrict m = view_f32(&args->state[0]);
    float *restrict v = view_f32(&args->state[1]);
    const int64_t count = view_count(&args->out[0]);
    const struct update_scalars from = update_scalars_of(args, 1);
    int32_t *updates = args->state[2].data;
    if (leaves_out(from)) {
        for (int64_t i = 0; i < count; i++)
            u[i] = NAN;
        return WEIR_OK;
    }
    *updates = adamw_count(*updates);
    const adamw_constants c = adamw_of(args->attrs, 1, *updates, scale_of(from));
    for (int64_t i = 0; i < count; i++)
        u[i] = lamb_direction(&c, g[i], p[i], m + i, v + i);
    return WEIR_OK;
}

const weir_op op_lamb = {
    .name = "lamb",
    OPTIM_FIELDS,
    .in_min = 2,
    .in_max = 4,
    .out_count = 1,
    .infer = lamb_infer,
    .signatures = lamb_signatures,
    .cost = lamb_cost,
    .states = lamb_states,
    .state_names = {"m", "v", "updates"},
    .kernel = {[WEIR_CPU] = lamb_cpu},
};

/* ---- lamb_apply ---- */

static bool apply_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    if (args->in[0].dtype != WEIR_F32)
        return REFUSE("the direction is %s, not f32", weir_dtype_name(args->in[0].dtype));
    for (int i = 1; i < 3; i++)
        if (args->in[i].dtype != WEIR_F32 || weir_shape_count(&args->in[i].shape) != SQUARES)
            return REFUSE("the sum of squares is not %d numbers in f32", SQUARES);
    if (args->in_count > 3 && (args->in[3].dtype != WEIR_F32 || weir_shape_count(&args->in[3].shape) != 1))
        return REFUSE("the rate is not one f32 number");
    args->out[0] = args->in[0];
    return true;
}

static void apply_signatures(const weir_op_args *args, weir_signature_list *list)
{
    for (int d = 0; d < args->in[0].shape.rank; d++) {
        weir_signature *s = weir_signature_new(list);
        s->in[0] = s->out[0] = WEIR_S(d);
    }
}

static weir_status apply_cpu(const weir_kernel_args *args)
{
    const float *restrict u = view_f32(&args->in[0]);
    float *restrict p = view_f32(&args->out[0]);
    const struct update_scalars from = {NULL, args->in_count > 3 ? view_f32(&args->in[3]) : NULL};
    const float rate = lamb_rate(args->attrs, args->step, from, view_f32(&args->in[1]), view_f32(&args->in[2]));
    const int64_t count = isnan(rate) ? 0 : view_count(&args->out[0]);
    for (int64_t i = 0; i < count; i++)
        p[i] -= rate * u[i];
    return WEIR_OK;
}

const weir_op op_lamb_apply = {
    .name = "lamb_apply",
    OPTIM_FIELDS,
    .in_min = 3,
    .in_max = 4,
    .out_count = 1,
    .infer = apply_infer,
    .signatures = apply_signatures,
    .kernel = {[WEIR_CPU] = apply_cpu},
};
