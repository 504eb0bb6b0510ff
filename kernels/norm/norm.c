/* kernels/norm/norm.c: layernorm and rmsnorm over the last dimension, and their gradients.
 *
 *     layernorm   x, gain, bias -> y, mean, rstd        y = (x - mean) rstd gain + bias     (Ba et al. 2016)
 *     rmsnorm     x, gain       -> y, rstd              y = x rstd gain                     (Zhang and Sennrich 2019)
 *
 * rmsnorm is layernorm with a mean of 0 that nothing depends on, so one row function serves both (`centred` says
 * which; it is a constant where it is inlined). The mean and rstd of each row are outputs, two floats a row, because
 * the backward pass needs them and computing them again would read x once more; the normalised x is not kept.
 *
 * With xhat = (x - mean) rstd and g = dy gain, over a row of C elements:
 *
 *     dx = rstd (g - sum(g)/C - xhat sum(g xhat)/C)     (without sum(g) for rmsnorm)
 *     dgain = sum over rows of dy xhat                  dbias = sum over rows of dy
 *
 * x, y, dy and dx may be f16 or bf16; the rest is f32. A row of halves is widened into the workspace first, and what
 * comes out of it is rounded once.
 *
 * A row is read twice in each kernel, the second time from the first-level cache. The variance is that of x - mean,
 * not E[x^2] - mean^2, which loses all digits when the mean is large. Sums that leave the range of f32 are taken once
 * more, of scaled values: so any row of finite values has its norm.
 */
#include "kernels/cuda/chunks.h"
#include "kernels/elementwise/fastmath.h"
#include "kernels/common/lanes.h"
#include "kernels/norm/formula.h"
#include "kernels/common/ops.h"
#include "kernels/common/opts.h"
#include "kernels/common/param.h"
#include "kernels/common/real.h"

#include <math.h>
#include <string.h>
#include <weir/ops.h>

static const weir_field norm_fields[] = {WEIR_FIELD_REAL(struct norm_attrs, eps)};
#define NORM_FIELDS .fields = norm_fields, .field_count = 1, .attrs_bytes = sizeof(struct norm_attrs)

/* ---- rules ---- */

static weir_type per_row(const weir_type *x)
{
    weir_type type = {WEIR_F32, x->shape};
    type.shape.rank--;
    type.shape.dim[type.shape.rank] = 0;
    return type;
}

static bool norm_inputs(const weir_op_args *args, int weights, char *error, size_t error_bytes)
{
    const weir_type *x = &args->in[0];
    if (!weir_dtype_real(x->dtype))
        return REFUSE("x is %s, not f32, f16 or bf16", weir_dtype_name(x->dtype));
    if (x->shape.rank < 1)
        return REFUSE("x is a scalar; there is no last dimension");
    for (int i = 1; i <= weights; i++) {
        const weir_type *weight = &args->in[i];
        if (weight->dtype != WEIR_F32 || weight->shape.rank != 1 || weight->shape.dim[0] != shape_last(&x->shape))
            return REFUSE("%s is not f32 of the size of x's last dimension, %lld", i == 1 ? "gain" : "bias",
                          (long long)shape_last(&x->shape));
    }
    return true;
}

static bool layernorm_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    if (!norm_inputs(args, 2, error, error_bytes))
        return false;
    args->out[0] = args->in[0];
    args->out[1] = args->out[2] = per_row(&args->in[0]);
    return true;
}

static bool rmsnorm_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    if (!norm_inputs(args, 1, error, error_bytes))
        return false;
    args->out[0] = args->in[0];
    args->out[1] = per_row(&args->in[0]);
    return true;
}

/* Two rows as f32, where they are not; on a GPU none. */
static size_t norm_workspace(const weir_op_args *args, weir_device_kind kind)
{
    return kind == WEIR_CUDA ? 0 : real_rows_bytes(&args->in[0], 2);
}

/* So for each of the rows that are done at once, and the sums over rows behind them; on a GPU the sums over the rows of
 * each chunk. */
static size_t norm_grad_workspace(const weir_op_args *args, weir_device_kind kind)
{
    const weir_shape *x = &args->in[0].shape;
    const size_t sums = (size_t)(args->out_count - 1);
    if (kind == WEIR_CUDA)
        return sums * chunks_bytes(shape_rows(x), shape_last(x));
    return LANES_ROWS * norm_workspace(args, kind) + sums * (size_t)shape_last(x) * sizeof(double);
}

/* Rows are independent: any dimension but the last may be split. */
static void norm_signatures(const weir_op_args *args, weir_signature_list *list)
{
    for (int d = 0; d + 1 < args->in[0].shape.rank; d++) {
        weir_signature *s = weir_signature_new(list);
        s->in[0] = WEIR_S(d);
        for (int i = 0; i < args->out_count; i++)
            s->out[i] = WEIR_S(d);
    }
}

static void norm_cost(const weir_op_args *args, weir_cost *cost)
{
    double count = (double)weir_shape_count(&args->in[0].shape);
    cost->flops = 7 * count;
    cost->bytes = 2 * (double)type_bytes(&args->in[0]);
}

/* x, gain, mean (layernorm alone), rstd, dy -> dx, dgain, dbias (layernorm alone) */
static bool norm_grad_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    const weir_type row = args->in[0].shape.rank ? per_row(&args->in[0]) : args->in[0];
    if (!norm_inputs(args, 1, error, error_bytes))
        return false;
    for (int i = 2; i + 1 < args->in_count; i++)
        if (args->in[i].dtype != WEIR_F32 || !weir_shape_equal(&args->in[i].shape, &row.shape))
            return REFUSE("input %d does not have one f32 value per row of x", i);
    const weir_type *dy = &args->in[args->in_count - 1];
    if (dy->dtype != args->in[0].dtype || !weir_shape_equal(&dy->shape, &args->in[0].shape))
        return REFUSE("dy is not of the dtype and shape of x");
    args->out[0] = args->in[0];
    for (int i = 1; i < args->out_count; i++)
        args->out[i] = args->in[1];
    return true;
}

static void norm_grad_signatures(const weir_op_args *args, weir_signature_list *list)
{
    for (int d = 0; d + 1 < args->in[0].shape.rank; d++) {
        weir_signature *s = weir_signature_new(list);
        for (int i = 0; i < args->in_count; i++)
            s->in[i] = i == 1 ? WEIR_B : WEIR_S(d);
        for (int i = 0; i < args->out_count; i++)
            s->out[i] = i == 0 ? WEIR_S(d) : WEIR_P;
    }
    weir_signature *partial = weir_signature_new(list); /* linear in dy */
    partial->in[args->in_count - 1] = WEIR_P;
    for (int i = 0; i < args->out_count; i++)
        partial->out[i] = WEIR_P;
}

static void norm_grad_cost(const weir_op_args *args, weir_cost *cost)
{
    double count = (double)weir_shape_count(&args->in[0].shape);
    cost->flops = 14 * count;
    cost->bytes = 3 * (double)type_bytes(&args->in[0]);
}

/* ---- rows ---- */

/* The mean; where the sum is beyond f32, of the sum in double. */
static inline float row_mean(const float *x, int64_t count)
{
    const float sum = row_sum(x, count);
    return isfinite(sum) ? sum / (float)count : (float)(row_total(x, count) / (double)count);
}

static inline float run_deviation(const float *x, int64_t count, float mean, float scale)
{
    lanes sum[2] = {};
    int64_t i = 0;
    for (; i + 2 * LANES <= count; i += 2 * LANES) {
        lanes a = (lanes_load(x + i) - mean) * scale, b = (lanes_load(x + i + LANES) - mean) * scale;
        sum[0] += a * a;
        sum[1] += b * b;
    }
    for (; i < count; i += LANES) {
        lanes a = count - i < LANES ? lanes_load_part(x + i, count - i, mean) : lanes_load(x + i);
        a = (a - mean) * scale;
        sum[0] += a * a;
    }
    sum[0] += sum[1];
    return lanes_sum(&sum[0]);
}

/* sum of ((x - mean) scale)^2 */
static inline float row_deviation(const float *x, int64_t count, float mean, float scale)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i += ROW_RUN)
        sum += (double)run_deviation(x + i, row_run(count - i), mean, scale);
    return (float)sum;
}

/* 1 / the standard deviation from `mean`, of which `squares` is the sum of squares without a scale. */
static inline float row_rstd(const float *x, int64_t count, float mean, float squares, double eps)
{
    const float scale = norm_scale(squares);
    if (scale != 1)
        squares = row_deviation(x, count, mean, scale);
    return norm_rstd(squares, scale, count, eps);
}

static inline void run_grad_sums(const float *x, float mean, const float *gain, const float *dy, int64_t count,
                                 double sums[2])
{
    lanes g_sum = {}, gx_sum = {};
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        lanes g = lanes_load(dy + i) * lanes_load(gain + i);
        g_sum += g;
        gx_sum += g * (lanes_load(x + i) - mean);
    }
    if (i < count) {
        lanes g = lanes_load_part(dy + i, count - i, 0) * lanes_load_part(gain + i, count - i, 0);
        g_sum += g;
        gx_sum += g * (lanes_load_part(x + i, count - i, 0) - mean);
    }
    sums[0] += (double)lanes_sum(&g_sum);
    sums[1] += (double)lanes_sum(&gx_sum);
}

/* sums[0] = sum of g, sums[1] = sum of g (x - mean), for g = dy gain. */
static inline void row_grad_sums(const float *x, float mean, const float *gain, const float *dy, int64_t count,
                                 float sums[2])
{
    double all[2] = {0};
    for (int64_t i = 0; i < count; i += ROW_RUN)
        run_grad_sums(x + i, mean, gain + i, dy + i, row_run(count - i), all);
    sums[0] = (float)all[0];
    sums[1] = (float)all[1];
}

typedef struct norm_row {
    const float *x, *dy;
    float *dx; /* may be dy */
    float mean, rstd, shift, tilt;
} norm_row;

/* sum of g xhat, where the sum of g (x - mean) is beyond f32. */
static float row_xhats(const norm_row *row, const float *gain, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += (double)(row->dy[i] * gain[i] * ((row->x[i] - row->mean) * row->rstd));
    return (float)sum;
}

static inline void row_prepare(norm_row *row, bool centred, const float *gain, int64_t count)
{
    const float per = 1 / (float)count;
    float sums[2];
    row_grad_sums(row->x, row->mean, gain, row->dy, count, sums);
    row->shift = centred ? sums[0] * per : 0;
    row->tilt = (isfinite(sums[1]) ? sums[1] * row->rstd : row_xhats(row, gain, count)) * per;
}

/* dx of `rows` rows, a constant, and their shares of dgain and dbias, one row after the other. */
static inline __attribute__((always_inline)) void rows_grad(const norm_row *row, int rows, bool centred, int64_t count,
                                                            const float *restrict gain, double *restrict dgain,
                                                            double *restrict dbias)
{
    norm_row at[LANES_ROWS];
    for (int r = 0; r < rows; r++)
        at[r] = row[r];
    FAST_LOOP
    for (int64_t i = 0; i < count; i++) {
        double gain_sum = dgain[i], bias_sum = centred ? dbias[i] : 0;
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            const float xhat = (at[r].x[i] - at[r].mean) * at[r].rstd, d = at[r].dy[i];
            at[r].dx[i] = norm_dx(at[r].rstd, d, gain[i], at[r].shift, xhat, at[r].tilt);
            gain_sum += (double)(d * xhat);
            bias_sum += (double)d;
        }
        dgain[i] = gain_sum;
        if (centred)
            dbias[i] = bias_sum;
    }
}

/* Row `i`, of which x and dy are in `block` where they are halves. An rmsnorm has no means. */
static norm_row row_of(const weir_kernel_args *args, bool centred, int64_t i, float *block)
{
    const int64_t count = shape_last(&args->in[0].shape);
    const weir_view *dy = &args->in[args->in_count - 1];
    norm_row row = {.x = real_in(&args->in[0], i * count, count, block),
                    .dy = real_in(dy, i * count, count, block + count),
                    .dx = real_out(&args->out[0], i * count, block + count),
                    .mean = centred ? view_f32(&args->in[2])[i] : 0,
                    .rstd = view_f32(&args->in[args->in_count - 2])[i]};
    row_prepare(&row, centred, view_f32(&args->in[1]), count);
    return row;
}

/* The sums over rows are added up in the workspace, as double: from zeros, unless the call continues another. */
static inline __attribute__((always_inline)) weir_status norm_grad(const weir_kernel_args *args, bool centred)
{
    const int64_t rows = shape_rows(&args->in[0].shape), count = shape_last(&args->in[0].shape);
    const int64_t each = dtype_half(args->in[0].dtype) ? 2 * count : 0;
    const float *gain = view_f32(&args->in[1]);
    float *const block = args->workspace;
    double *const sums = (double *)(block + LANES_ROWS * each);
    if (!args->continues)
        memset(sums, 0, (centred ? 2 : 1) * (size_t)count * sizeof *sums);
    for (int64_t i = 0, part; i < rows; i += part) {
        norm_row row[LANES_ROWS];
        part = rows - i < LANES_ROWS ? rows - i : LANES_ROWS;
        for (int64_t r = 0; r < part; r++)
            row[r] = row_of(args, centred, i + r, block + r * each);
        if (part == LANES_ROWS)
            rows_grad(row, LANES_ROWS, centred, count, gain, sums, sums + count);
        else
            for (int64_t r = 0; r < part; r++)
                rows_grad(&row[r], 1, centred, count, gain, sums, sums + count);
        for (int64_t r = 0; r < part; r++)
            real_put(&args->out[0], (i + r) * count, count, row[r].dx);
    }
    for (int o = 1; o < args->out_count; o++)
        for (int64_t i = 0; i < count; i++)
            view_f32(&args->out[o])[i] = (float)sums[(o - 1) * count + i];
    return WEIR_OK;
}

/* ---- layernorm ---- */

static weir_status layernorm_cpu(const weir_kernel_args *args)
{
    const struct norm_attrs *attrs = args->attrs;
    const int64_t rows = shape_rows(&args->in[0].shape), count = shape_last(&args->in[0].shape);
    const float *restrict gain = view_f32(&args->in[1]), *restrict bias = view_f32(&args->in[2]);
    float *means = view_f32(&args->out[1]), *rstds = view_f32(&args->out[2]);

    float *const block = args->workspace;
    for (int64_t row = 0; row < rows; row++) {
        const float *restrict x = real_in(&args->in[0], row * count, count, block);
        float *restrict y = real_out(&args->out[0], row * count, block + count);
        const float mean = row_mean(x, count);
        const float rstd = row_rstd(x, count, mean, row_deviation(x, count, mean, 1), attrs->eps);
        for (int64_t i = 0; i < count; i++)
            y[i] = layernorm_value(x[i], mean, rstd, gain[i], bias[i]);
        real_put(&args->out[0], row * count, count, y);
        means[row] = mean;
        rstds[row] = rstd;
    }
    return WEIR_OK;
}

static weir_status layernorm_grad_cpu(const weir_kernel_args *args)
{
    return norm_grad(args, true);
}

static void layernorm_backward(weir_grad_args *args)
{
    weir_tensor *in[5] = {args->in[0], args->in[1], args->out[1], args->out[2], args->dout[0]}, *d[3];
    weir_op_apply(&(weir_apply){args->src, NULL, &op_layernorm_grad, NULL, in, 5, NULL}, d);
    for (int i = 0; i < 3; i++)
        if (args->needed[i])
            args->din[i] = d[i];
}

const weir_op op_layernorm = {
    .name = "layernorm",
    NORM_FIELDS,
    .in_min = 3,
    .in_max = 3,
    .out_count = 3,
    .infer = layernorm_infer,
    .signatures = norm_signatures,
    .grad = layernorm_backward,
    .cost = norm_cost,
    .workspace = norm_workspace,
    .kernel = {[WEIR_CPU] = layernorm_cpu},
    .rows_in = 1,
    .rows_out = 1,
    .per_row_out = 1 << 1 | 1 << 2,
    .cheap = true,
    .half = WEIR_HALF_FOLLOW,
    .full_in = 1 << 1 | 1 << 2,
};

const weir_op op_layernorm_grad = {
    .name = "layernorm_grad",
    .in_min = 5,
    .in_max = 5,
    .out_count = 3,
    .infer = norm_grad_infer,
    .signatures = norm_grad_signatures,
    .cost = norm_grad_cost,
    .workspace = norm_grad_workspace,
    .kernel = {[WEIR_CPU] = layernorm_grad_cpu},
    .inplace = 5, /* dy */
    .rows_in = 1 << 0 | 1 << 4,
    .per_row_in = 1 << 2 | 1 << 3,
    .rows_out = 1,
    .half = WEIR_HALF_FOLLOW,
    .full_in = 1 << 1 | 1 << 2 | 1 << 3,
};

/* ---- rmsnorm ---- */

static weir_status rmsnorm_cpu(const weir_kernel_args *args)
{
    const struct norm_attrs *attrs = args->attrs;
    const int64_t rows = shape_rows(&args->in[0].shape), count = shape_last(&args->in[0].shape);
    const float *restrict gain = view_f32(&args->in[1]);
    float *rstds = view_f32(&args->out[1]);

    float *const block = args->workspace;
    for (int64_t row = 0; row < rows; row++) {
        const float *restrict x = real_in(&args->in[0], row * count, count, block);
        float *restrict y = real_out(&args->out[0], row * count, block + count);
        const float rstd = row_rstd(x, count, 0, row_dot(x, x, count), attrs->eps);
        for (int64_t i = 0; i < count; i++)
            y[i] = rmsnorm_value(x[i], rstd, gain[i]);
        real_put(&args->out[0], row * count, count, y);
        rstds[row] = rstd;
    }
    return WEIR_OK;
}

static weir_status rmsnorm_grad_cpu(const weir_kernel_args *args)
{
    return norm_grad(args, false);
}

static void rmsnorm_backward(weir_grad_args *args)
{
    weir_tensor *in[4] = {args->in[0], args->in[1], args->out[1], args->dout[0]}, *d[2];
    weir_op_apply(&(weir_apply){args->src, NULL, &op_rmsnorm_grad, NULL, in, 4, NULL}, d);
    for (int i = 0; i < 2; i++)
        if (args->needed[i])
            args->din[i] = d[i];
}

const weir_op op_rmsnorm = {
    .name = "rmsnorm",
    NORM_FIELDS,
    .in_min = 2,
    .in_max = 2,
    .out_count = 2,
    .infer = rmsnorm_infer,
    .signatures = norm_signatures,
    .grad = rmsnorm_backward,
    .cost = norm_cost,
    .workspace = norm_workspace,
    .kernel = {[WEIR_CPU] = rmsnorm_cpu},
    .rows_in = 1,
    .rows_out = 1,
    .per_row_out = 1 << 1,
    .cheap = true,
    .half = WEIR_HALF_FOLLOW,
    .full_in = 1 << 1,
};

const weir_op op_rmsnorm_grad = {
    .name = "rmsnorm_grad",
    .in_min = 4,
    .in_max = 4,
    .out_count = 2,
    .infer = norm_grad_infer,
    .signatures = norm_grad_signatures,
    .cost = norm_grad_cost,
    .workspace = norm_grad_workspace,
    .kernel = {[WEIR_CPU] = rmsnorm_grad_cpu},
    .inplace = 4, /* dy */
    .rows_in = 1 << 0 | 1 << 3,
    .per_row_in = 1 << 2,
    .rows_out = 1,
    .half = WEIR_HALF_FOLLOW,
    .full_in = 1 << 1 | 1 << 2,
};

/* ---- the DSL ---- */

static weir_tensor *norm_param(weir_tensor *x, const char *name, const char *part, double value, const weir_norm_opts *of)
{
    weir_type type = weir_tensor_type(x);
    weir_param_opts opts = {.shape = {shape_last(&type.shape)}, .src = of->src, .init = WEIR_VALUE(value), .frozen = of->frozen};
    return op_param(x, name, part, opts);
}

/* With gain and bias of its own where none are given. */
static weir_tensor *norm_apply(const weir_op *op, weir_tensor *x, weir_tensor *gain, weir_tensor *bias, weir_norm_opts opts)
{
    if (weir_tensor_poisoned(x))
        return op_of_none(op, x, opts.src);
    if (weir_tensor_type(x).shape.rank < 1)
        return weir_mistake(x, opts.src, "%s: x is a scalar; there is no last dimension", op->name);
    if (!(opts.eps >= 0 && isfinite(opts.eps)))
        return weir_mistake(x, opts.src, "%s: .eps is %g; it must be a finite number of 0 or more", op->name, opts.eps);
    struct norm_attrs attrs = {weir_option(opts.eps, 1e-5)};
    const char *name = weir_name_for(x, opts.name, op->name);
    weir_tensor *in[3] = {x, gain ? gain : norm_param(x, name, "gain", 1, &opts), bias};
    if (op->in_max > 2 && !bias)
        in[2] = norm_param(x, name, "bias", 0, &opts);
    return weir_op_apply(&(weir_apply){opts.src, name, op, NULL, in, op->in_max, &attrs}, NULL);
}

weir_tensor *weir_layernorm_at(weir_tensor *x, const weir_norm_opts *given)
{
    weir_norm_opts opts;
    x = op_opts(x, "layernorm", given, &opts, sizeof opts);
    return norm_apply(&op_layernorm, x, NULL, NULL, opts);
}

weir_tensor *weir_layernorm_with_at(weir_tensor *x, weir_tensor *gain, weir_tensor *bias, const weir_norm_opts *given)
{
    weir_norm_opts opts;
    x = op_opts(x, "layernorm", given, &opts, sizeof opts);
    return norm_apply(&op_layernorm, x, gain, bias, opts);
}

weir_tensor *weir_rmsnorm_at(weir_tensor *x, const weir_norm_opts *given)
{
    weir_norm_opts opts;
    x = op_opts(x, "rmsnorm", given, &opts, sizeof opts);
    return norm_apply(&op_rmsnorm, x, NULL, NULL, opts);
}

weir_tensor *weir_rmsnorm_with_at(weir_tensor *x, weir_tensor *gain, const weir_norm_opts *given)
{
    weir_norm_opts opts;
    x = op_opts(x, "rmsnorm", given, &opts, sizeof opts);
    return norm_apply(&op_rmsnorm, x, gain, NULL, opts);
}
