/* many.c: the sum of many tensors of one shape, and scale * x + shift.
 *
 * add_many is what gradients that meet are summed with, so it is made for many operands: the sum is made in blocks that
 * stay in the first-level cache while every operand passes by, in the order in which they are given. A block is written
 * only when all has been read, so the output may lie over an input, also one that is given twice.
 */
#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/fastmath.h"
#include "kernels/common/ops.h"
#include "kernels/common/opts.h"
#include "kernels/common/real.h"
#include "kernels/common/rules.h"
#include "kernels/common/view.h"

#include <weir/ops.h>

/* ---- add_many ---- */

enum { ADD_BLOCK = 1024 }; /* elements */

/* y = the sum of the inputs at first .. first + count. Integers wrap around. */
#define ADD_BLOCK_OF(name, type, sum_type)                                                             \
    static void add_block_##name(const weir_kernel_args *args, int64_t first, int64_t count)           \
    {                                                                                                  \
        type sum[ADD_BLOCK];                                                                           \
        memcpy(sum, (const type *)args->in[0].data + first, (size_t)count * sizeof *sum);              \
        for (int k = 1; k < args->in_count; k++) {                                                     \
            const type *x = (const type *)args->in[k].data + first;                                    \
            for (int64_t i = 0; i < count; i++)                                                        \
                sum[i] = (type)((sum_type)sum[i] + (sum_type)x[i]);                                    \
        }                                                                                              \
        memcpy((type *)args->out[0].data + first, sum, (size_t)count * sizeof *sum);                   \
    }
ADD_BLOCK_OF(f32, float, float)
ADD_BLOCK_OF(i32, int32_t, uint32_t)
ADD_BLOCK_OF(u8, uint8_t, uint32_t)
ADD_BLOCK_OF(i64, int64_t, uint64_t)
ADD_BLOCK_OF(i8, int8_t, uint32_t)

/* Halves are summed in f32 and rounded once. */
static void add_block_half(const weir_kernel_args *args, int64_t first, int64_t count)
{
    const weir_dtype dtype = args->out[0].dtype;
    float sum[ADD_BLOCK], term[ADD_BLOCK];
    weir_to_f32(dtype, view_half(&args->in[0]) + first, count, sum);
    for (int k = 1; k < args->in_count; k++) {
        weir_to_f32(dtype, view_half(&args->in[k]) + first, count, term);
        for (int64_t i = 0; i < count; i++)
            sum[i] += term[i];
    }
    weir_from_f32(sum, count, dtype, view_half(&args->out[0]) + first);
}

static weir_status add_many_kernel(const weir_kernel_args *args)
{
    static void (*const add_block[WEIR_DTYPES])(const weir_kernel_args *, int64_t, int64_t) = {
        [WEIR_F32] = add_block_f32,   [WEIR_I32] = add_block_i32, [WEIR_U8] = add_block_u8, [WEIR_F16] = add_block_half,
        [WEIR_BF16] = add_block_half, [WEIR_I64] = add_block_i64, [WEIR_I8] = add_block_i8,
    };
    const int64_t count = view_count(&args->out[0]);
    for (int64_t first = 0; first < count; first += ADD_BLOCK)
        add_block[args->out[0].dtype](args, first, count - first < ADD_BLOCK ? count - first : ADD_BLOCK);
    return WEIR_OK;
}

static void add_many_cost(const weir_op_args *args, weir_cost *cost)
{
    cost_moved(args, cost, (double)(args->in_count - 1) * (double)weir_shape_count(&args->out[0].shape));
}

static void add_many_backward(weir_grad_args *args)
{
    for (int i = 0; i < args->in_count; i++)
        if (args->needed[i])
            args->din[i] = args->dout[0];
}

const weir_op op_add_many = {
    .name = "add_many",
    .in_min = 1,
    .in_max = WEIR_ARGS_MAX,
    .out_count = 1,
    .infer = infer_alike,
    .signatures = sign_alike_linear,
    .grad = add_many_backward,
    .cost = add_many_cost,
    .kernel = {[WEIR_CPU] = add_many_kernel},
    .inplace = 1,
    .rows_in = UINT32_MAX,
    .rows_out = 1,
    .half = WEIR_HALF_FOLLOW,
};

weir_tensor *weir_add_many_at(weir_tensor *const *x, int x_count, const weir_op_opts *given)
{
    weir_op_opts opts;
    weir_tensor *first = x && x_count > 0 ? x[0] : NULL;
    weir_tensor *checked = op_opts(first, "add_many", given, &opts, sizeof opts);
    if (checked != first)
        return checked;
    return weir_op_apply(&(weir_apply){opts.src, opts.name, &op_add_many, NULL, x, x_count, NULL}, NULL);
}

/* ---- affine ---- */

static const weir_field affine_fields[] = {
    WEIR_FIELD_REAL(affine_attrs, scale),
    WEIR_FIELD_REAL(affine_attrs, shift),
};

static weir_status affine_kernel(const weir_kernel_args *args)
{
    const affine_attrs *attrs = args->attrs;
    const float scale = (float)attrs->scale, shift = (float)attrs->shift;
    const int64_t count = view_count(&args->out[0]);
    float x_block[REAL_BLOCK], y_block[REAL_BLOCK];
    for (int64_t at = 0, part; at < count; at += part) {
        part = real_part(args, count - at);
        const float *x = real_in(&args->in[0], at, part, x_block);
        float *y = real_out(&args->out[0], at, y_block);
        FAST_LOOP
        for (int64_t i = 0; i < part; i++)
            y[i] = scale * x[i] + shift;
        real_put(&args->out[0], at, part, y);
    }
    return WEIR_OK;
}

static void affine_signatures(const weir_op_args *args, weir_signature_list *list)
{
    const affine_attrs *attrs = args->attrs;
    sign_alike(args, list);
    if (attrs->shift == 0)
        sign_linear(args, list);
}

static void affine_cost(const weir_op_args *args, weir_cost *cost)
{
    cost_moved(args, cost, 2 * (double)weir_shape_count(&args->out[0].shape));
}

static void affine_backward(weir_grad_args *args)
{
    const affine_attrs *attrs = args->attrs;
    args->din[0] = weir_affine_at(args->dout[0], WEIR_OPTS_AT(args->src, weir_affine_opts, .scale = attrs->scale));
}

const weir_op op_affine = {
    .name = "affine",
    .fields = affine_fields,
    .field_count = 2,
    .attrs_bytes = sizeof(affine_attrs),
    .in_min = 1,
    .in_max = 1,
    .out_count = 1,
    .infer = infer_alike_real,
    .signatures = affine_signatures,
    .grad = affine_backward,
    .cost = affine_cost,
    .kernel = {[WEIR_CPU] = affine_kernel},
    .inplace = 1,
    .rows_in = 1,
    .rows_out = 1,
    .half = WEIR_HALF_FOLLOW,
};

weir_tensor *weir_affine_at(weir_tensor *x, const weir_affine_opts *given)
{
    weir_affine_opts opts;
    x = op_opts(x, "affine", given, &opts, sizeof opts);
    affine_attrs attrs = {opts.scale, opts.shift};
    return weir_op_apply(&(weir_apply){opts.src, opts.name, &op_affine, NULL, &x, 1, &attrs}, NULL);
}
