/* lines.c: see the header. */
#include "kernels/index/lines.h"

#include "kernels/common/opts.h"
#include "kernels/common/ops.h"
#include "kernels/common/real.h"
#include "kernels/common/rules.h"
#include "kernels/index/index.h"
#include "kernels/shape/axis.h"

#include <string.h>
#include <weir/ops.h>

static const weir_field cumsum_fields[] = {
    WEIR_FIELD_INT(cumsum_attrs, axis),
    WEIR_FIELD_INT(cumsum_attrs, exclusive),
    WEIR_FIELD_INT(cumsum_attrs, reverse),
};
static const weir_field top_k_fields[] = {WEIR_FIELD_INT(top_k_attrs, axis), WEIR_FIELD_INT(top_k_attrs, count)};

/* ---- cumsum ---- */

static bool cumsum_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    const weir_dtype dtype = args->in[0].dtype;
    args->out[0] = args->in[0];
    if (!weir_dtype_real(dtype) && dtype != WEIR_I32 && dtype != WEIR_I64)
        return REFUSE("input 0 is %s, not f32, f16, bf16, i32 or i64", weir_dtype_name(dtype));
    return axis_is_right(((const cumsum_attrs *)args->attrs)->axis, args->in[0].shape.rank, error, error_bytes);
}

static void cumsum_signatures(const weir_op_args *args, weir_signature_list *list)
{
    sign_but(args, list, axis_of(((const cumsum_attrs *)args->attrs)->axis, args->in[0].shape.rank));
}

static void cumsum_cost(const weir_op_args *args, weir_cost *cost)
{
    cost_moved(args, cost, (double)weir_shape_count(&args->in[0].shape));
}

/* One line: `count` elements from `at` on, `step` apart; a step below 0 goes backwards. */
static void sum_reals(const weir_kernel_args *args, bool exclusive, int64_t at, int64_t step, int64_t count)
{
    float block[1], out_block[1];
    double sum = 0;
    for (int64_t i = 0; i < count; i++, at += step) {
        const double x = (double)*real_in(&args->in[0], at, 1, block);
        float *y = real_out(&args->out[0], at, out_block);
        *y = (float)(exclusive ? sum : sum + x);
        real_put(&args->out[0], at, 1, y);
        sum += x;
    }
}

#define SUM_INTEGERS(bits)                                                                                               \
    static void sum_##bits(const weir_kernel_args *args, bool exclusive, int64_t at, int64_t step, int64_t count)       \
    {                                                                                                                    \
        const int##bits##_t *x = args->in[0].data;                                                                       \
        int##bits##_t *y = args->out[0].data;                                                                            \
        uint64_t sum = 0;                                                                                                \
        for (int64_t i = 0; i < count; i++, at += step) {                                                                \
            const uint64_t all = sum + (uint64_t)x[at];                                                                  \
            y[at] = (int##bits##_t)(exclusive ? sum : all);                                                              \
            sum = all;                                                                                                   \
        }                                                                                                                \
    }
SUM_INTEGERS(32)
SUM_INTEGERS(64)

static weir_status cumsum_kernel(const weir_kernel_args *args)
{
    const cumsum_attrs *attrs = args->attrs;
    const weir_shape *x = &args->in[0].shape;
    const weir_dtype dtype = args->in[0].dtype;
    const int axis = axis_of(attrs->axis, x->rank);
    const int64_t count = x->dim[axis], step = inside(x, axis);
    for (int64_t o = 0; o < outside(x, axis); o++)
        for (int64_t i = 0; i < step; i++) {
            const int64_t first = o * count * step + i, at = attrs->reverse ? first + (count - 1) * step : first;
            (dtype == WEIR_I32 ? sum_32 : dtype == WEIR_I64 ? sum_64 : sum_reals)(args, attrs->exclusive != 0, at,
                                                                                 attrs->reverse ? -step : step, count);
        }
    return WEIR_OK;
}

/* Each dx is the sum of the dy that it went into: those behind it. */
static void cumsum_backward(weir_grad_args *args)
{
    cumsum_attrs attrs = *(const cumsum_attrs *)args->attrs;
    attrs.reverse = !attrs.reverse;
    args->din[0] = weir_op_apply(&(weir_apply){args->src, NULL, &op_cumsum, NULL, args->dout, 1, &attrs}, NULL);
}

const weir_op op_cumsum = {
    .name = "cumsum",
    .fields = cumsum_fields,
    .field_count = 3,
    .attrs_bytes = sizeof(cumsum_attrs),
    .in_min = 1,
    .in_max = 1,
    .out_count = 1,
    .infer = cumsum_infer,
    .signatures = cumsum_signatures,
    .grad = cumsum_backward,
    .cost = cumsum_cost,
    .kernel = {[WEIR_CPU] = cumsum_kernel},
    .half = WEIR_HALF_FOLLOW,
};

weir_tensor *weir_cumsum_at(weir_tensor *x, int axis, const weir_cumsum_opts *given)
{
    weir_cumsum_opts opts;
    x = op_opts(x, "cumsum", given, &opts, sizeof opts);
    const cumsum_attrs attrs = {axis, opts.exclusive, opts.reverse};
    return weir_op_apply(&(weir_apply){opts.src, opts.name, &op_cumsum, NULL, &x, 1, &attrs}, NULL);
}

/* ---- top_k ---- */

static bool top_k_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    const top_k_attrs *attrs = args->attrs;
    const weir_shape *x = &args->in[0].shape;
    if (!rule_all_real(args, error, error_bytes) || !axis_is_right(attrs->axis, x->rank, error, error_bytes))
        return false;
    const int axis = axis_of(attrs->axis, x->rank);
    if (attrs->count < 1 || attrs->count > x->dim[axis] || x->dim[axis] > INT32_MAX)
        return REFUSE("the %lld largest of %lld elements: it must be 1 to all of them", (long long)attrs->count,
                      (long long)x->dim[axis]);
    args->out[0] = args->in[0];
    args->out[0].shape.dim[axis] = attrs->count;
    args->out[1] = (weir_type){WEIR_I32, args->out[0].shape};
    return true;
}

static void top_k_signatures(const weir_op_args *args, weir_signature_list *list)
{
    sign_but_axis(args, list, axis_of(((const top_k_attrs *)args->attrs)->axis, args->in[0].shape.rank));
}

static void top_k_cost(const weir_op_args *args, weir_cost *cost)
{
    cost_moved(args, cost, 8 * (double)weir_shape_count(&args->in[0].shape));
}

/* The best of a line so far, on a CPU. */
static size_t top_k_workspace(const weir_op_args *args, weir_device_kind kind)
{
    const int64_t most = INT64_C(1) << 40, count = ((const top_k_attrs *)args->attrs)->count;
    return kind == WEIR_CUDA ? 0 : (size_t)(count < most ? count : most) * (sizeof(float) + sizeof(int32_t));
}

/* Finds the largest of the line whose first element is `first`; they are kept in order. */
static void best_of_line(const weir_kernel_args *args, int64_t first, int64_t step, int64_t size, int64_t count)
{
    float *best = args->workspace, block[1];
    int32_t *at = (int32_t *)(best + count);
    int64_t have = 0;
    for (int64_t i = 0; i < size; i++) {
        const float x = *real_in(&args->in[0], first + i * step, 1, block);
        if (have == count && !comes_first(x, best[count - 1]))
            continue;
        int64_t place = have < count ? have++ : count - 1;
        for (; place > 0 && comes_first(x, best[place - 1]); place--) {
            best[place] = best[place - 1];
            at[place] = at[place - 1];
        }
        best[place] = x;
        at[place] = (int32_t)i;
    }
}

static weir_status top_k_kernel(const weir_kernel_args *args)
{
    const top_k_attrs *attrs = args->attrs;
    const weir_shape *x = &args->in[0].shape;
    const int axis = axis_of(attrs->axis, x->rank);
    const int64_t size = x->dim[axis], step = inside(x, axis), count = attrs->count;
    const float *best = args->workspace;
    for (int64_t line = 0; line < outside(x, axis) * step; line++) {
        const int64_t o = line / step, to = o * count * step + line % step;
        float block[1];
        best_of_line(args, o * size * step + line % step, step, size, count);
        for (int64_t k = 0; k < count; k++) {
            float *value = real_out(&args->out[0], to + k * step, block);
            *value = best[k];
            real_put(&args->out[0], to + k * step, 1, value);
            view_i32(&args->out[1])[to + k * step] = ((const int32_t *)(best + count))[k];
        }
    }
    return WEIR_OK;
}

static void top_k_backward(weir_grad_args *args)
{
    const weir_shape x = weir_tensor_type(args->in[0]).shape;
    index_grad_attrs attrs = {.axis = ((const top_k_attrs *)args->attrs)->axis, .rank = x.rank};
    weir_tensor *in[2] = {args->out[1], args->dout[0]};
    memcpy(attrs.dim, x.dim, sizeof *attrs.dim * (size_t)x.rank);
    args->din[0] = weir_op_apply(&(weir_apply){args->src, NULL, &op_gather_elements_grad, NULL, in, 2, &attrs}, NULL);
}

const weir_op op_top_k = {
    .name = "top_k",
    .fields = top_k_fields,
    .field_count = 2,
    .attrs_bytes = sizeof(top_k_attrs),
    .in_min = 1,
    .in_max = 1,
    .out_count = 2,
    .infer = top_k_infer,
    .signatures = top_k_signatures,
    .grad = top_k_backward,
    .cost = top_k_cost,
    .workspace = top_k_workspace,
    .kernel = {[WEIR_CPU] = top_k_kernel},
    .half = WEIR_HALF_FOLLOW,
};

/* The smallest are the largest of the negated values. */
weir_tensor *weir_top_k_at(weir_tensor *x, int64_t count, int axis, weir_tensor **indices, const weir_top_k_opts *given)
{
    weir_top_k_opts opts;
    weir_tensor *out[2] = {NULL, NULL};
    x = op_opts(x, "top_k", given, &opts, sizeof opts);
    const top_k_attrs attrs = {axis, count};
    if (opts.smallest)
        x = weir_neg_at(x, WEIR_OPTS_AT(opts.src, weir_op_opts));
    out[0] = weir_op_apply(&(weir_apply){opts.src, opts.smallest ? NULL : opts.name, &op_top_k, NULL, &x, 1, &attrs}, out);
    if (indices)
        *indices = out[1] ? out[1] : out[0];
    return opts.smallest ? weir_neg_at(out[0], WEIR_OPTS_AT(opts.src, weir_op_opts, .name = opts.name)) : out[0];
}
