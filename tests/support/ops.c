/* tests/support/ops.c: see the header. */
#include "tests/support/ops.h"

#include "kernels/common/view.h"

#define FAIL_STEP 17

static bool infer_vectors(weir_op_args *args, char *error, size_t error_bytes)
{
    for (int i = 0; i < args->in_count; i++)
        if (args->in[i].dtype != WEIR_F32)
            return REFUSE("input %d is not f32", i);
    for (int i = 0; i < args->out_count; i++)
        args->out[i] = args->in_count ? args->in[0] : (weir_type){WEIR_F32, {1, {1}}};
    return true;
}

/* How long a vector is made of nothing, only the plan says. */
static bool fits_vectors(const weir_op_args *local, char *error, size_t error_bytes)
{
    for (int i = 0; i < local->in_count; i++)
        if (local->in[i].dtype != WEIR_F32 || !weir_shape_equal(&local->in[i].shape, &local->out[0].shape))
            return REFUSE("input %d is not f32 of the shape of the output", i);
    return local->out[0].dtype == WEIR_F32 || REFUSE("the output is not f32");
}

static weir_status kernel_none(const weir_kernel_args *args)
{
    (void)args;
    return WEIR_OK;
}

static weir_status kernel_sum(const weir_kernel_args *args)
{
    float *out = view_f32(&args->out[0]);
    for (int64_t i = 0; i < view_count(&args->out[0]); i++) {
        float sum = 1;
        for (int k = 0; k < args->in_count; k++)
            sum += view_f32(&args->in[k])[i];
        out[i] = args->accumulate ? out[i] + sum : sum;
    }
    return WEIR_OK;
}

static weir_status kernel_fail(const weir_kernel_args *args)
{
    return args->step == FAIL_STEP ? KERNEL_FAIL(args, "the sky fell") : WEIR_OK;
}

static const weir_op op_test_none = {.name = "test_none", .infer = infer_vectors, .kernel = {[WEIR_CPU] = kernel_none}};
static const weir_op op_test_sum = {.name = "test_sum", .in_max = 64, .out_count = 1, .infer = infer_vectors,
                                    .fits = fits_vectors, .kernel = {[WEIR_CPU] = kernel_sum}, .accumulates = true};
static const weir_op op_test_fail = {.name = "test_fail", .in_max = 64, .out_count = 1, .infer = infer_vectors,
                                     .fits = fits_vectors, .kernel = {[WEIR_CPU] = kernel_fail}};

static bool fits_tail(const weir_op_args *local, char *error, size_t error_bytes)
{
    const weir_type *in = &local->in[0], *out = &local->out[0];
    return (in->dtype == WEIR_F32 && out->dtype == WEIR_F32 && in->shape.rank == 1 && out->shape.rank == 1 &&
            out->shape.dim[0] <= in->shape.dim[0]) ||
           REFUSE("the output is no end of the input");
}

/* By the view: it may be given that part alone. */
static weir_status kernel_tail(const weir_kernel_args *args)
{
    int64_t count = view_count(&args->out[0]), first = view_count(&args->in[0]) - count;
    for (int64_t i = 0; i < count; i++)
        view_f32(&args->out[0])[i] = view_f32(&args->in[0])[first + i];
    return WEIR_OK;
}

static void reads_tail(const weir_kernel_args *call, int input, weir_view *part)
{
    part->offset[0] += call->in[input].shape.dim[0] - call->out[0].shape.dim[0];
    part->shape.dim[0] = call->out[0].shape.dim[0];
}

static void reads_outside(const weir_kernel_args *call, int input, weir_view *part)
{
    part->offset[0] = call->in[input].offset[0] + 1;
    part->shape.dim[0] = INT64_MAX;
}

static weir_status kernel_ones(const weir_kernel_args *args)
{
    for (int64_t i = 0; i < view_count(&args->out[0]); i++)
        view_f32(&args->out[0])[i] = 1;
    return WEIR_OK;
}

static void reads_nothing(const weir_kernel_args *call, int input, weir_view *part)
{
    (void)call, (void)input;
    part->shape.dim[0] = 0;
}

#define TAIL(op, does, says)                                                                                          \
    {                                                                                                                 \
        .name = op, .in_min = 1, .in_max = 1, .out_count = 1, .infer = infer_vectors, .fits = fits_tail,              \
        .kernel = {[WEIR_CPU] = does}, .reads = says                                                                  \
    }
static const weir_op op_test_tail = TAIL("test_tail", kernel_tail, reads_tail);
static const weir_op op_test_wild = TAIL("test_wild", kernel_tail, reads_outside);
static const weir_op op_test_blind = TAIL("test_blind", kernel_ones, reads_nothing);

void test_ops(void)
{
    weir_op_register(&op_test_tail);
    weir_op_register(&op_test_wild);
    weir_op_register(&op_test_blind);
    weir_op_register(&op_test_none);
    weir_op_register(&op_test_sum);
    weir_op_register(&op_test_fail);
}
