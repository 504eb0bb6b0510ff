/* kernels/optim/scale.c: loss_scale, which keeps the gradients of f16 within its range (Micikevicius et al. 2018).
 *
 *     scale, sum of squares of the scaled gradients (, count) -> the next step's scale, the factor for this step's gradients
 *
 * The loss is multiplied by the scale, so every gradient is; the factor takes it out again, and clips. When a gradient
 * is infinite or not a number, so is the sum: then the factor is NaN, which updates take as the word to leave all
 * as it is, and the scale is halved: the step is left out, and counted. After `good_steps` steps without that it is doubled. Scales are powers of two if
 * the first is, so scaling rounds nothing.
 *
 * A step that counts nothing (clip_scale, in optim.h) is left out and counted, and changes no scale. The scale is a state of
 * the plan: out[0] is written over it.
 */
#include "kernels/optim/optim.h"

#include "kernels/common/view.h"
#include <math.h>

static const weir_field scale_fields[] = {
    WEIR_FIELD_REAL(struct scale_attrs, max_norm),
    WEIR_FIELD_INT(struct scale_attrs, good_steps),
};

static bool scale_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    const struct scale_attrs *attrs = args->attrs;
    if (args->in[0].dtype != WEIR_F32 || args->in[0].shape.rank)
        return REFUSE("the scale is not an f32 scalar");
    if (args->in[1].dtype != WEIR_F32 || weir_shape_count(&args->in[1].shape) != SQUARES)
        return REFUSE("the sum of squares is not %d numbers in f32", SQUARES);
    if (args->in_count > 2 && (args->in[2].dtype != WEIR_F32 || weir_shape_count(&args->in[2].shape) != 1))
        return REFUSE("the count is not an f32 scalar");
    if (!(attrs->max_norm >= 0) || attrs->good_steps < 1)
        return REFUSE("a norm of at most %g, and %lld good steps", attrs->max_norm, (long long)attrs->good_steps);
    args->out[0] = args->out[1] = args->in[0];
    return true;
}

static int scale_states(const weir_op_args *args, weir_type *states)
{
    states[0] = args->out[0];
    states[1] = (weir_type){.dtype = WEIR_I32};
    return 2;
}

static weir_status scale_cpu(const weir_kernel_args *args)
{
    float scale = *view_f32(&args->in[0]);
    const float *count = args->in_count > 2 ? view_f32(&args->in[2]) : NULL;
    *view_f32(&args->out[1]) = scale_step(args->attrs, view_f32(&args->in[1]), count, &scale, view_f32(&args->state[0]),
                                          args->state[1].data);
    *view_f32(&args->out[0]) = scale;
    return WEIR_OK;
}

const weir_op op_loss_scale = {
    .name = "loss_scale",
    .fields = scale_fields,
    .field_count = 2,
    .attrs_bytes = sizeof(struct scale_attrs),
    .in_min = 2,
    .in_max = 3,
    .out_count = 2,
    .infer = scale_infer,
    .states = scale_states,
    .state_names = {"good", "skipped"},
    .kernel = {[WEIR_CPU] = scale_cpu},
    .inplace = 1,
};
