/* kernels/optim/ema.c: ema, which changes the average of a parameter in place.
 *
 *     p -> the average, with p in it
 *
 * Its state counts the values that are in the average: until it has seen enough of them, the average is their mean, so it does not
 * depend on the value with which it began. out[0] is the average itself, as the parameter is of an update.
 */
#include "kernels/optim/optim.h"

#include "kernels/common/rules.h"
#include "kernels/common/view.h"

static const weir_field ema_fields[] = {WEIR_FIELD_REAL(struct ema_attrs, decay)};

static bool ema_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    const struct ema_attrs *attrs = args->attrs;
    if (args->in[0].dtype != WEIR_F32)
        return REFUSE("the parameter is %s, not f32", weir_dtype_name(args->in[0].dtype));
    if (!(attrs->decay >= 0 && attrs->decay < 1))
        return REFUSE("the average has a decay of %g; it is 0 or more, and less than 1", attrs->decay);
    args->out[0] = args->in[0];
    return true;
}

static void ema_signatures(const weir_op_args *args, weir_signature_list *list)
{
    for (int d = 0; d < args->in[0].shape.rank; d++) {
        weir_signature *s = weir_signature_new(list);
        s->in[0] = s->out[0] = WEIR_S(d);
    }
}

static int ema_states(const weir_op_args *args, weir_type *states)
{
    (void)args;
    states[0] = (weir_type){.dtype = WEIR_I32};
    return 1;
}

static weir_status ema_cpu(const weir_kernel_args *args)
{
    const float *restrict p = view_f32(&args->in[0]);
    float *restrict average = view_f32(&args->out[0]);
    int32_t *values = args->state[0].data;
    const float fresh = ema_fresh(args->attrs, *values);
    for (int64_t i = 0; i < view_count(&args->out[0]); i++)
        average[i] = ema_next(fresh, average[i], p[i]);
    *values = adamw_count(*values);
    return WEIR_OK;
}

const weir_op op_ema = {
    .name = "ema",
    .fields = ema_fields,
    .field_count = 1,
    .attrs_bytes = sizeof(struct ema_attrs),
    .in_min = 1,
    .in_max = 1,
    .out_count = 1,
    .infer = ema_infer,
    .signatures = ema_signatures,
    .states = ema_states,
    .state_names = {"values"},
    .kernel = {[WEIR_CPU] = ema_cpu},
};
