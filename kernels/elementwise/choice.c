/* choice.c: ops that choose between values, or say something of a value: where, masked, clip, logical_not, is_nan.
 *
 *     where    condition ? a : b, broadcasting over all three. A condition is u8, and true unless it is 0
 *     masked   condition ? x : 0, or the other way round: what the gradients of where, min2 and max2 are made of
 *     clip     x, but lo where it is below and hi where it is above
 *
 * where copies elements, so it takes every dtype; its loops are one for each width.
 */
#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/formula.h"
#include "kernels/common/nest.h"
#include "kernels/common/ops.h"
#include "kernels/common/opts.h"
#include "kernels/common/real.h"
#include "kernels/common/rules.h"
#include "kernels/common/view.h"
#include "kernels/reduce/reduce.h"

#include <math.h>
#include <weir/ops.h>

static bool rule_condition(const weir_op_args *args, char *error, size_t error_bytes)
{
    if (args->in[0].dtype != WEIR_U8)
        return REFUSE("the condition is %s, not u8", weir_dtype_name(args->in[0].dtype));
    return true;
}

static void choice_cost(const weir_op_args *args, weir_cost *cost)
{
    cost_moved(args, cost, (double)weir_shape_count(&args->out[0].shape));
}

/* A nest over the output, with each input as an operand. */
static nest nest_of_call(const weir_kernel_args *args)
{
    nest n = nest_over(&args->out[0].shape);
    for (int i = 0; i < args->in_count; i++)
        nest_broadcast(&n, &args->in[i].shape);
    nest_collapse(&n);
    return n;
}

/* ---- where ---- */

static bool where_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    if (!rule_condition(args, error, error_bytes))
        return false;
    if (args->in[1].dtype != args->in[2].dtype)
        return REFUSE("dtypes %s and %s differ", weir_dtype_name(args->in[1].dtype), weir_dtype_name(args->in[2].dtype));
    return infer_broadcast(args, args->in[1].dtype, error, error_bytes);
}

static void where_signatures(const weir_op_args *args, weir_signature_list *list)
{
    sign_broadcast(args, list);
    if (!weir_dtype_real(args->in[1].dtype))
        return;
    weir_signature *s = weir_signature_new(list);
    s->in[1] = s->in[2] = s->out[0] = WEIR_P;
}

/* y[i] = c[i] ? a[i] : b[i] of a row; a step of 0 repeats one element. */
typedef struct where_row {
    const uint8_t *c;
    const char *a, *b;
    int64_t c_step, a_step, b_step, count;
} where_row;

#define WHERE_ROW(bytes, type)                                                                            \
    static void where_row_##bytes(const where_row *r, char *y)                                            \
    {                                                                                                     \
        const type *a = (const type *)(const void *)r->a, *b = (const type *)(const void *)r->b;          \
        type *to = (type *)(void *)y;                                                                     \
        FAST_LOOP                                                                                         \
        for (int64_t i = 0; i < r->count; i++) {                                                          \
            const type yes = a[i * r->a_step], no = b[i * r->b_step];                                     \
            to[i] = r->c[i * r->c_step] ? yes : no;                                                       \
        }                                                                                                 \
    }
WHERE_ROW(8, uint64_t)
WHERE_ROW(4, uint32_t)
WHERE_ROW(2, uint16_t)
WHERE_ROW(1, uint8_t)

static weir_status where_kernel(const weir_kernel_args *args)
{
    static void (*const rows_of[])(const where_row *, char *) = {[8] = where_row_8, [4] = where_row_4, [2] = where_row_2,
                                                                 [1] = where_row_1};
    const size_t bytes = weir_dtype_bytes(args->out[0].dtype);
    const nest n = nest_of_call(args);
    const int64_t rows = nest_rows(&n), inner = nest_inner(&n);
    const int last = n.rank - 1;
    nest_pos pos = {0};
    for (int64_t r = 0; r < rows && inner; r++, nest_step(&n, &pos)) {
        const where_row row = {(const uint8_t *)args->in[0].data + pos.at[0],
                               (const char *)args->in[1].data + (size_t)pos.at[1] * bytes,
                               (const char *)args->in[2].data + (size_t)pos.at[2] * bytes,
                               n.stride[0][last], n.stride[1][last], n.stride[2][last], inner};
        rows_of[bytes](&row, (char *)args->out[0].data + (size_t)(r * inner) * bytes);
    }
    return WEIR_OK;
}

static void where_backward(weir_grad_args *args)
{
    for (int i = 1; i <= 2; i++) {
        const weir_type type = weir_tensor_type(args->in[i]);
        if (args->needed[i])
            args->din[i] = reduce_sum_to(choice_masked(args->in[0], args->dout[0], i == 2, args->src), &type.shape, args->src);
    }
}

const weir_op op_where = {
    .name = "where",
    .in_min = 3,
    .in_max = 3,
    .out_count = 1,
    .infer = where_infer,
    .signatures = where_signatures,
    .grad = where_backward,
    .cost = choice_cost,
    .kernel = {[WEIR_CPU] = where_kernel},
    .rows_in = 1 << 0 | 1 << 1 | 1 << 2,
    .rows_out = 1,
    .half = WEIR_HALF_FOLLOW,
};

weir_tensor *weir_where_at(weir_tensor *condition, weir_tensor *a, weir_tensor *b, const weir_op_opts *given)
{
    weir_op_opts opts;
    condition = op_opts(condition, "where", given, &opts, sizeof opts);
    weir_tensor *in[3] = {condition, a, b};
    return weir_op_apply(&(weir_apply){opts.src, opts.name, &op_where, NULL, in, 3, NULL}, NULL);
}

/* ---- masked ---- */

static const weir_field masked_fields[] = {WEIR_FIELD_INT(masked_attrs, inverted)};

static bool masked_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    if (!rule_condition(args, error, error_bytes))
        return false;
    if (!weir_dtype_real(args->in[1].dtype))
        return REFUSE("input 1 is %s, and only f32, f16 or bf16 will do", weir_dtype_name(args->in[1].dtype));
    return infer_broadcast(args, args->in[1].dtype, error, error_bytes);
}

static void masked_signatures(const weir_op_args *args, weir_signature_list *list)
{
    sign_broadcast(args, list);
    sign_linear_in(args, list, 1);
}

/* y[i] = c[i] is true, or false if inverted ? x[i] : 0 */
#define MASKED_ROW(bytes, type)                                                                                       \
    static void masked_row_##bytes(const where_row *r, char *y, bool inverted)                                        \
    {                                                                                                                 \
        const type *x = (const type *)(const void *)r->a;                                                             \
        type *to = (type *)(void *)y;                                                                                 \
        FAST_LOOP                                                                                                     \
        for (int64_t i = 0; i < r->count; i++) {                                                                      \
            const type yes = x[i * r->a_step];                                                                        \
            to[i] = (r->c[i * r->c_step] != 0) != inverted ? yes : 0;                                                 \
        }                                                                                                             \
    }
MASKED_ROW(4, uint32_t)
MASKED_ROW(2, uint16_t)

static weir_status masked_kernel(const weir_kernel_args *args)
{
    const masked_attrs *attrs = args->attrs;
    const size_t bytes = weir_dtype_bytes(args->out[0].dtype);
    const nest n = nest_of_call(args);
    const int64_t rows = nest_rows(&n), inner = nest_inner(&n);
    nest_pos pos = {0};
    for (int64_t r = 0; r < rows && inner; r++, nest_step(&n, &pos)) {
        const where_row row = {.c = (const uint8_t *)args->in[0].data + pos.at[0],
                               .a = (const char *)args->in[1].data + (size_t)pos.at[1] * bytes,
                               .c_step = n.stride[0][n.rank - 1], .a_step = n.stride[1][n.rank - 1], .count = inner};
        char *y = (char *)args->out[0].data + (size_t)(r * inner) * bytes;
        if (bytes == 4)
            masked_row_4(&row, y, attrs->inverted);
        else
            masked_row_2(&row, y, attrs->inverted);
    }
    return WEIR_OK;
}

const weir_op op_masked = {
    .name = "masked",
    .fields = masked_fields,
    .field_count = 1,
    .attrs_bytes = sizeof(masked_attrs),
    .in_min = 2,
    .in_max = 2,
    .out_count = 1,
    .infer = masked_infer,
    .signatures = masked_signatures,
    .cost = choice_cost,
    .kernel = {[WEIR_CPU] = masked_kernel},
    .rows_in = 1 << 0 | 1 << 1,
    .rows_out = 1,
    .half = WEIR_HALF_FOLLOW,
};

weir_tensor *choice_masked(weir_tensor *condition, weir_tensor *x, bool inverted, weir_src src)
{
    const masked_attrs attrs = {inverted};
    weir_tensor *in[2] = {condition, x};
    return weir_op_apply(&(weir_apply){src, NULL, &op_masked, NULL, in, 2, &attrs}, NULL);
}

/* ---- clip ---- */

static const weir_field clip_fields[] = {WEIR_FIELD_REAL(clip_attrs, lo), WEIR_FIELD_REAL(clip_attrs, hi)};

static bool clip_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    const clip_attrs *attrs = args->attrs;
    if (!(attrs->lo <= attrs->hi))
        return REFUSE(".lo is %g and .hi is %g; .lo is at most .hi", attrs->lo, attrs->hi);
    return infer_alike_real(args, error, error_bytes);
}

/* The bounds as f32. */
static void clip_loop(const clip_attrs *attrs, const float *x, float *y, int64_t count)
{
    const float lo = (float)attrs->lo, hi = (float)attrs->hi;
    FAST_LOOP
    for (int64_t i = 0; i < count; i++)
        y[i] = clip_of(x[i], lo, hi);
}

static void clip_grad_loop(const clip_attrs *attrs, const float *x, const float *dy, float *dx, int64_t count)
{
    const float lo = (float)attrs->lo, hi = (float)attrs->hi;
    FAST_LOOP
    for (int64_t i = 0; i < count; i++)
        dx[i] = clip_slope(x[i], lo, hi) ? dy[i] : 0;
}

/* clip of x, or the gradient from x and dy. */
static weir_status clip_run(const weir_kernel_args *args)
{
    const int64_t count = view_count(&args->out[0]);
    float x_block[REAL_BLOCK], dy_block[REAL_BLOCK];
    for (int64_t at = 0, part; at < count; at += part) {
        part = real_part(args, count - at);
        const float *x = real_in(&args->in[0], at, part, x_block);
        const float *dy = args->in_count > 1 ? real_in(&args->in[1], at, part, dy_block) : NULL;
        float *y = real_out(&args->out[0], at, dy ? dy_block : x_block);
        if (dy)
            clip_grad_loop(args->attrs, x, dy, y, part);
        else
            clip_loop(args->attrs, x, y, part);
        real_put(&args->out[0], at, part, y);
    }
    return WEIR_OK;
}

static void clip_backward(weir_grad_args *args)
{
    weir_tensor *in[2] = {args->in[0], args->dout[0]};
    args->din[0] = weir_op_apply(&(weir_apply){args->src, NULL, &op_clip_grad, NULL, in, 2, args->attrs}, NULL);
}

const weir_op op_clip = {
    .name = "clip",
    .fields = clip_fields,
    .field_count = 2,
    .attrs_bytes = sizeof(clip_attrs),
    .in_min = 1,
    .in_max = 1,
    .out_count = 1,
    .infer = clip_infer,
    .signatures = sign_alike,
    .grad = clip_backward,
    .cost = choice_cost,
    .kernel = {[WEIR_CPU] = clip_run},
    .inplace = 1,
    .rows_in = 1,
    .rows_out = 1,
    .half = WEIR_HALF_FOLLOW,
};

/* x, dy -> dx: dy where x lies within the bounds, which count as inside. */
const weir_op op_clip_grad = {
    .name = "clip_grad",
    .fields = clip_fields,
    .field_count = 2,
    .attrs_bytes = sizeof(clip_attrs),
    .in_min = 2,
    .in_max = 2,
    .out_count = 1,
    .infer = clip_infer,
    .signatures = sign_alike_grad,
    .cost = choice_cost,
    .kernel = {[WEIR_CPU] = clip_run},
    .inplace = 2,
    .rows_in = 1 << 0 | 1 << 1,
    .rows_out = 1,
    .half = WEIR_HALF_FOLLOW,
};

weir_tensor *weir_clip_at(weir_tensor *x, const weir_clip_opts *given)
{
    weir_clip_opts opts;
    x = op_opts(x, "clip", given, &opts, sizeof opts);
    const clip_attrs attrs = {weir_option(opts.lo, -INFINITY), weir_option(opts.hi, INFINITY)};
    return weir_op_apply(&(weir_apply){opts.src, opts.name, &op_clip, NULL, &x, 1, &attrs}, NULL);
}

/* ---- of one value, true or false ---- */

static bool not_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    if (args->in[0].dtype != WEIR_U8)
        return REFUSE("input 0 is %s, and only u8 will do", weir_dtype_name(args->in[0].dtype));
    args->out[0] = args->in[0];
    return true;
}

static weir_status not_kernel(const weir_kernel_args *args)
{
    const uint8_t *x = args->in[0].data;
    uint8_t *y = args->out[0].data;
    const int64_t count = view_count(&args->out[0]);
    FAST_LOOP
    for (int64_t i = 0; i < count; i++)
        y[i] = !x[i];
    return WEIR_OK;
}

static bool nan_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    args->out[0] = (weir_type){WEIR_U8, args->in[0].shape};
    return rule_all_real(args, error, error_bytes);
}

static weir_status nan_kernel(const weir_kernel_args *args)
{
    const int64_t count = view_count(&args->out[0]);
    uint8_t *y = args->out[0].data;
    float block[REAL_BLOCK];
    for (int64_t at = 0, part; at < count; at += part) {
        part = real_part(args, count - at);
        const float *x = real_in(&args->in[0], at, part, block);
        FAST_LOOP
        for (int64_t i = 0; i < part; i++)
            y[at + i] = x[i] != x[i];
    }
    return WEIR_OK;
}

#define TRUTH(opname, rule, run, over)                                                                       \
    const weir_op op_##opname = {                                                                            \
        .name = #opname,                                                                                     \
        .in_min = 1,                                                                                         \
        .in_max = 1,                                                                                         \
        .out_count = 1,                                                                                      \
        .infer = rule,                                                                                       \
        .signatures = sign_alike,                                                                            \
        .cost = choice_cost,                                                                                 \
        .kernel = {[WEIR_CPU] = run},                                                                        \
        .inplace = over,                                                                                     \
        .rows_in = 1,                                                                                        \
        .rows_out = 1,                                                                                       \
        .half = WEIR_HALF_FOLLOW,                                                                            \
    };
TRUTH(logical_not, not_infer, not_kernel, 1)
TRUTH(is_nan, nan_infer, nan_kernel, 0)

static weir_tensor *apply_one(const weir_op *op, const char *function, weir_tensor *x, const weir_op_opts *given)
{
    weir_op_opts opts;
    x = op_opts(x, function, given, &opts, sizeof opts);
    return weir_op_apply(&(weir_apply){opts.src, opts.name, op, NULL, &x, 1, NULL}, NULL);
}

weir_tensor *weir_not_at(weir_tensor *x, const weir_op_opts *given)
{
    return apply_one(&op_logical_not, "not", x, given);
}

weir_tensor *weir_is_nan_at(weir_tensor *x, const weir_op_opts *given)
{
    return apply_one(&op_is_nan, "is_nan", x, given);
}
