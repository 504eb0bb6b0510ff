/* tests/support/ops.c: see the header. */
#include "tests/support/ops.h"

#include "kernels/view.h"

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

void test_ops(void)
{
    weir_op_register(&op_test_none);
    weir_op_register(&op_test_sum);
    weir_op_register(&op_test_fail);
}
