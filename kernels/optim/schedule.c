/* kernels/optim/schedule.c: schedule, which makes the number that updates multiply their rate by.
 *
 *     [the program's rate] -> its value times the factor of the step, f32 [1]
 *
 * Schedules that the attributes of updates can say (warm-up, cosine) are computed there, and need no op.
 */
#include "kernels/optim/optim.h"

#include "kernels/common/rules.h"
#include "kernels/common/view.h"

static const weir_field schedule_fields[] = {
    WEIR_FIELD_REAL(struct schedule_attrs, least),
    WEIR_FIELD_INT(struct schedule_attrs, warmup),
    WEIR_FIELD_INT(struct schedule_attrs, hold),
    WEIR_FIELD_INT(struct schedule_attrs, total),
};

static bool schedule_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    if (args->in_count && (args->in[0].dtype != WEIR_F32 || args->in[0].shape.rank))
        return REFUSE("the rate is not an f32 scalar");
    args->out[0] = (weir_type){WEIR_F32, {1, {1}}};
    return true;
}

static weir_status schedule_cpu(const weir_kernel_args *args)
{
    *view_f32(&args->out[0]) = schedule_rate(args->attrs, args->step, args->in_count ? view_f32(&args->in[0]) : NULL);
    return WEIR_OK;
}

const weir_op op_schedule = {
    .name = "schedule",
    .fields = schedule_fields,
    .field_count = 4,
    .attrs_bytes = sizeof(struct schedule_attrs),
    .in_max = 1,
    .out_count = 1,
    .infer = schedule_infer,
    .kernel = {[WEIR_CPU] = schedule_cpu},
};
