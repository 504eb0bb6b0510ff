/* kernels/matmul/linear.c: y = x W + b, and what its gradient needs.
 *
 *     x [..., in]   W [in, out]   b [out]   y [..., out]           all dimensions of x but the last are rows
 *
 *     dx = dy W^T       matmul, b transposed
 *     dW = x^T dy       linear_dw: the rows of all dimensions folded into one contraction
 *     db = 1^T dy       linear_db: column sums
 *
 * The bias costs little: the result is filled with it, and the product adds to what it finds.
 *
 * linear_dw and linear_db accumulate: gradients of micro-batches are summed where they are made (beta = 1) instead of
 * by an op that reads and writes them again.
 *
 * linear_by_row is the same by another product, whose rows do not know of each other (rows.h): what a model that writes
 * one row a step needs to give the bits that it gives over a whole window.
 *
 * x, W and dy may be f16 or bf16, both factors of a product the same (but W of linear_by_row may be f32). y and dx then are too, or f32 where the graph
 * wants that (terms of a sum over devices); dW and db are f32, and so is the bias.
 *
 * Over a mesh axis: rows are data parallelism (W whole; dW comes out as partial sums); W split along `out` and along
 * `in` are the two halves of tensor parallelism (Shoeybi et al. 2019, arXiv:1909.08053).
 */
#include "kernels/cuda/chunks.h"
#include "kernels/common/lanes.h"
#include "kernels/matmul/factors.h"
#include "kernels/matmul/gemm.h"
#include "kernels/matmul/rows.h"
#include "kernels/matmul/sizes.h"
#include "kernels/common/ops.h"
#include "kernels/common/opts.h"
#include "kernels/common/param.h"
#include "kernels/common/real.h"
#include "kernels/common/rules.h"

#include <math.h>
#include <string.h>
#include <weir/ops.h>

/* ---- linear ---- */

/* All but whether x and W are of one dtype. */
static bool linear_sizes(weir_op_args *args, char *error, size_t error_bytes)
{
    const weir_shape *x = &args->in[0].shape, *w = &args->in[1].shape;
    if (args->in_count > 2 && args->in[2].dtype != WEIR_F32)
        return REFUSE("the bias is %s, not f32", weir_dtype_name(args->in[2].dtype));
    if (x->rank < 2 || w->rank != 2)
        return REFUSE("x has %d dimensions and the weight %d; it needs two or more, and two", x->rank, w->rank);
    if (shape_last(x) != w->dim[0])
        return REFUSE("inner sizes %lld and %lld differ", (long long)shape_last(x), (long long)w->dim[0]);
    if (args->in_count > 2 && (args->in[2].shape.rank != 1 || args->in[2].shape.dim[0] != w->dim[1]))
        return REFUSE("the bias does not have the size of the weight's last dimension, %lld", (long long)w->dim[1]);
    args->out[0] = (weir_type){args->in[0].dtype, *x};
    args->out[0].shape.dim[x->rank - 1] = w->dim[1];
    return true;
}

static bool linear_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    return factors_are_real(args, error, error_bytes) && linear_sizes(args, error, error_bytes);
}

/* W may be f32 where x is half: to make a copy of it takes longer than to multiply few rows with it. */
static bool linear_by_row_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    const bool mixed = args->in[1].dtype == WEIR_F32 && dtype_half(args->in[0].dtype);
    return (mixed || factors_are_real(args, error, error_bytes)) && linear_sizes(args, error, error_bytes);
}

static size_t linear_workspace(const weir_op_args *args, weir_device_kind kind)
{
    const int64_t in = args->in[1].shape.dim[0], out = args->in[1].shape.dim[1];
    if (kind == WEIR_CUDA)
        return product_bytes((double)shape_rows(&args->in[0].shape), out, in, args->in_count > 2);
    return factors_workspace(args, false, false, shape_rows(&args->in[0].shape), out, in);
}

static void linear_signature(weir_signature_list *list, weir_sbp x, weir_sbp w, weir_sbp b, weir_sbp y)
{
    weir_signature *s = weir_signature_new(list);
    s->in[0] = x;
    s->in[1] = w;
    s->in[2] = b;
    s->out[0] = y;
}

static void linear_signatures(const weir_op_args *args, weir_signature_list *list)
{
    int last = args->in[0].shape.rank - 1;
    for (int d = 0; d < last; d++)
        linear_signature(list, WEIR_S(d), WEIR_B, WEIR_B, WEIR_S(d));
    linear_signature(list, WEIR_B, WEIR_S(1), WEIR_S(0), WEIR_S(last));
    linear_signature(list, WEIR_S(last), WEIR_S(0), WEIR_P, WEIR_P);
    linear_signature(list, WEIR_P, WEIR_B, WEIR_P, WEIR_P);
}

static void linear_cost(const weir_op_args *args, weir_cost *cost)
{
    double out = (double)weir_shape_count(&args->out[0].shape);
    cost->flops = out * (2.0 * (double)args->in[1].shape.dim[0] + (args->in_count > 2));
    cost->bytes = (double)type_bytes(&args->out[0]);
    for (int i = 0; i < args->in_count; i++)
        cost->bytes += (double)type_bytes(&args->in[i]);
}

/* The result begins as the bias, if there is one: whether there is. */
static bool fill_with_bias(const weir_kernel_args *args, int64_t rows, int64_t out, float *y)
{
    const bool biased = args->in_count > 2;
    if (biased)
        for (int64_t row = 0; row < rows; row++)
            memcpy(y + row * out, args->in[2].data, (size_t)out * sizeof *y);
    return biased;
}

static weir_status linear_half(const weir_kernel_args *args)
{
    const int64_t in = args->in[1].shape.dim[0], out = args->in[1].shape.dim[1];
    half_product p = factors_product(args, false, false, shape_rows(&args->out[0].shape), out, in);
    p.bias = args->in_count > 2 ? view_f32(&args->in[2]) : NULL;
    gemm_half(&p);
    return WEIR_OK;
}

static weir_status linear_cpu(const weir_kernel_args *args)
{
    if (args->in[0].dtype != WEIR_F32)
        return linear_half(args);
    const int64_t in = args->in[1].shape.dim[0], out = args->in[1].shape.dim[1];
    const int64_t rows = shape_rows(&args->out[0].shape);
    const float *x = view_f32(&args->in[0]), *w = view_f32(&args->in[1]);
    float *y = view_f32(&args->out[0]);
    const bool biased = fill_with_bias(args, rows, out, y);
    gemm(false, false, rows, out, in, 1, x, in, w, out, biased, y, out, args->workspace);
    return WEIR_OK;
}

static size_t linear_by_row_workspace(const weir_op_args *args, weir_device_kind kind)
{
    return dtype_half(args->in[0].dtype) && kind != WEIR_CUDA ? gemm_rows_half_workspace(args->in[1].shape.dim[0]) : 0;
}

static weir_status linear_by_row_cpu(const weir_kernel_args *args)
{
    const int64_t in = args->in[1].shape.dim[0], out = args->in[1].shape.dim[1];
    const int64_t rows = shape_rows(&args->out[0].shape);
    if (dtype_half(args->in[0].dtype)) {
        gemm_rows_half(&(rows_product){rows, out, in, &args->in[0], &args->in[1], &args->out[0],
                                       args->in_count > 2 ? view_f32(&args->in[2]) : NULL, args->workspace});
        return WEIR_OK;
    }
    const float *x = view_f32(&args->in[0]), *w = view_f32(&args->in[1]);
    float *y = view_f32(&args->out[0]);
    const bool biased = fill_with_bias(args, rows, out, y);
    gemm_rows(rows, out, in, x, in, w, out, biased, y, out);
    return WEIR_OK;
}

static void linear_grad(weir_grad_args *args)
{
    weir_tensor *dy = args->dout[0], *x_dy[2] = {args->in[0], dy};
    if (args->needed[0])
        args->din[0] = weir_matmul_at(dy, args->in[1], WEIR_OPTS_AT(args->src, weir_matmul_opts, .trans_b = true));
    if (args->needed[1])
        args->din[1] = weir_op_apply(&(weir_apply){args->src, NULL, &op_linear_dw, NULL, x_dy, 2, NULL}, NULL);
    if (args->in_count > 2 && args->needed[2])
        args->din[2] = weir_op_apply(&(weir_apply){args->src, NULL, &op_linear_db, NULL, &dy, 1, NULL}, NULL);
}

#define LINEAR_OP(opname, infers, ...)              \
    const weir_op op_##opname = {                   \
        .name = #opname,                            \
        .in_min = 2,                                \
        .in_max = 3,                                \
        .out_count = 1,                             \
        .infer = infers,                            \
        .signatures = linear_signatures,            \
        .grad = linear_grad,                        \
        .cost = linear_cost,                        \
        .kernel = {[WEIR_CPU] = opname##_cpu},      \
        __VA_ARGS__                                 \
    };
LINEAR_OP(linear, linear_infer, .fits = fits_either, .workspace = linear_workspace, .half = WEIR_HALF_WANT,
          .full_in = 1 << 2, .either_out = true)
LINEAR_OP(linear_by_row, linear_by_row_infer, .fits = fits_either, .workspace = linear_by_row_workspace,
          .half = WEIR_HALF_FOLLOW, .full_in = 1 << 2, .either_in = 1 << 1, .either_out = true)

/* ---- dW = x^T dy ---- */

static bool linear_dw_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    const weir_shape *x = &args->in[0].shape, *dy = &args->in[1].shape;
    if (!factors_are_real(args, error, error_bytes))
        return false;
    if (x->rank < 1 || dy->rank != x->rank || shape_rows(x) != shape_rows(dy))
        return REFUSE("rows %lld and %lld differ", (long long)shape_rows(x), (long long)shape_rows(dy));
    args->out[0] = (weir_type){WEIR_F32, {2, {shape_last(x), shape_last(dy)}}};
    return true;
}

static void linear_dw_signatures(const weir_op_args *args, weir_signature_list *list)
{
    int last = args->in[0].shape.rank - 1;
    const weir_sbp split[][3] = {{WEIR_S(last), WEIR_B, WEIR_S(0)},
                                 {WEIR_B, WEIR_S(last), WEIR_S(1)},
                                 {WEIR_P, WEIR_B, WEIR_P},
                                 {WEIR_B, WEIR_P, WEIR_P}};
    for (int d = 0; d < last; d++)
        linear_signature(list, WEIR_S(d), WEIR_S(d), WEIR_B, WEIR_P);
    for (int i = 0; i < 4; i++)
        linear_signature(list, split[i][0], split[i][1], WEIR_B, split[i][2]);
}

static void linear_dw_cost(const weir_op_args *args, weir_cost *cost)
{
    cost->flops = 2.0 * (double)weir_shape_count(&args->in[0].shape) * (double)shape_last(&args->in[1].shape);
    cost->bytes = (double)(type_bytes(&args->in[0]) + type_bytes(&args->in[1]) + type_bytes(&args->out[0]));
}

static size_t linear_dw_workspace(const weir_op_args *args, weir_device_kind kind)
{
    const weir_shape *x = &args->in[0].shape;
    if (kind == WEIR_CUDA)
        return product_bytes((double)shape_last(x), shape_last(&args->in[1].shape), shape_rows(x), false);
    return factors_workspace(args, true, false, shape_last(x), shape_last(&args->in[1].shape), shape_rows(x));
}

static weir_status linear_dw_cpu(const weir_kernel_args *args)
{
    const int64_t rows = shape_rows(&args->in[0].shape);
    const int64_t in = shape_last(&args->in[0].shape), out = shape_last(&args->in[1].shape);
    half_product p = factors_product(args, true, false, in, out, rows);
    p.add = args->accumulate;
    if (args->in[0].dtype != WEIR_F32)
        gemm_half(&p);
    else
        gemm(true, false, in, out, rows, 1, view_f32(&args->in[0]), in, view_f32(&args->in[1]), out, args->accumulate,
             view_f32(&args->out[0]), out, args->workspace);
    return WEIR_OK;
}

const weir_op op_linear_dw = {
    .name = "linear_dw",
    .in_min = 2,
    .in_max = 2,
    .out_count = 1,
    .infer = linear_dw_infer,
    .signatures = linear_dw_signatures,
    .cost = linear_dw_cost,
    .workspace = linear_dw_workspace,
    .kernel = {[WEIR_CPU] = linear_dw_cpu},
    .accumulates = true,
    .half = WEIR_HALF_WANT,
};

/* ---- db = column sums of dy ---- */

static bool linear_db_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    if (!rule_all_real(args, error, error_bytes))
        return false;
    if (args->in[0].shape.rank < 1)
        return REFUSE("the input is a scalar");
    args->out[0] = (weir_type){WEIR_F32, {1, {shape_last(&args->in[0].shape)}}};
    return true;
}

static void linear_db_signatures(const weir_op_args *args, weir_signature_list *list)
{
    int last = args->in[0].shape.rank - 1;
    for (int d = 0; d < last; d++)
        linear_signature(list, WEIR_S(d), WEIR_B, WEIR_B, WEIR_P);
    linear_signature(list, WEIR_S(last), WEIR_B, WEIR_B, WEIR_S(0));
    linear_signature(list, WEIR_P, WEIR_B, WEIR_B, WEIR_P);
}

enum { COLUMNS = 240 }; /* of halves that are summed up at a time */

/* Columns [column, column + width) of row `row`. */
static const float *row_piece(const weir_view *x, int64_t row, int64_t column, int64_t width, float *block)
{
    return real_in(x, row * shape_last(&x->shape) + column, width, block);
}

static void columns_add(const weir_view *x, int64_t rows, int64_t column, int64_t width, double *restrict sum)
{
    float block[LANES_ROWS][COLUMNS];
    int64_t row = 0;
    for (; row + LANES_ROWS <= rows; row += LANES_ROWS) {
        const float *piece[LANES_ROWS];
        for (int k = 0; k < LANES_ROWS; k++)
            piece[k] = row_piece(x, row + k, column, width, block[k]);
        rows_add(piece, width, sum);
    }
    for (; row < rows; row++)
        row_add(row_piece(x, row, column, width, block[0]), width, sum);
}

static weir_status linear_db_cpu(const weir_kernel_args *args)
{
    const int64_t columns = shape_last(&args->in[0].shape);
    float *db = view_f32(&args->out[0]);
    double *sum = args->workspace;
    for (int64_t i = 0; i < columns && !args->continues; i++)
        sum[i] = args->accumulate ? (double)db[i] : 0;
    const int64_t most = real_halves(args) ? COLUMNS : columns;
    for (int64_t at = 0, part; at < columns; at += part) {
        part = columns - at < most ? columns - at : most;
        columns_add(&args->in[0], shape_rows(&args->in[0].shape), at, part, sum + at);
    }
    for (int64_t i = 0; i < columns; i++)
        db[i] = (float)sum[i];
    return WEIR_OK;
}

/* The sums; on a GPU those over the rows of each chunk. */
static size_t linear_db_workspace(const weir_op_args *args, weir_device_kind kind)
{
    const weir_shape *x = &args->in[0].shape;
    return kind == WEIR_CUDA ? chunks_bytes(shape_rows(x), shape_last(x)) : (size_t)shape_last(x) * sizeof(double);
}

static void linear_db_cost(const weir_op_args *args, weir_cost *cost)
{
    cost->flops = (double)weir_shape_count(&args->in[0].shape);
    cost->bytes = (double)(type_bytes(&args->in[0]) + type_bytes(&args->out[0]));
}

const weir_op op_linear_db = {
    .name = "linear_db",
    .in_min = 1,
    .in_max = 1,
    .out_count = 1,
    .infer = linear_db_infer,
    .signatures = linear_db_signatures,
    .cost = linear_db_cost,
    .workspace = linear_db_workspace,
    .kernel = {[WEIR_CPU] = linear_db_cpu},
    .accumulates = true,
    .rows_in = 1,
    .half = WEIR_HALF_FOLLOW,
};

/* ---- the DSL ---- */

static weir_tensor *linear_apply(const weir_op *op, weir_tensor *x, weir_tensor *weight, weir_tensor *bias,
                                 weir_src src, const char *name)
{
    weir_tensor *in[3] = {x, weight, bias};
    return weir_op_apply(&(weir_apply){src, name, op, NULL, in, bias ? 3 : 2, NULL}, NULL);
}

weir_tensor *weir_linear_with_at(weir_tensor *x, weir_tensor *weight, weir_tensor *bias, const weir_op_opts *given)
{
    weir_op_opts opts;
    x = op_opts(x, "linear_with", given, &opts, sizeof opts);
    return linear_apply(&op_linear, x, weight, bias, opts.src, opts.name);
}

static weir_tensor *linear_weight(weir_tensor *x, int64_t in, int64_t out, const char *name,
                                  const weir_linear_opts *opts)
{
    weir_param_opts param = {.shape = {in, out}, .src = opts->src, .frozen = opts->frozen};
    param.init = init_or(opts->init, (weir_init)WEIR_NORMAL(1 / sqrt((double)in)));
    memcpy(param.sbp, opts->weight, sizeof param.sbp);
    return op_param(x, name, "weight", param);
}

/* Where the columns of the weight are split, so is the bias. */
static weir_tensor *linear_bias(weir_tensor *x, int64_t out, const char *name, const weir_linear_opts *opts)
{
    weir_param_opts param = {.shape = {out}, .src = opts->src, .frozen = opts->frozen};
    for (int axis = 0; axis < WEIR_AXES_MAX; axis++)
        if (opts->weight[axis] == WEIR_S(1) || opts->weight[axis] == WEIR_S(-1))
            param.sbp[axis] = WEIR_S(0);
    return op_param(x, name, "bias", param);
}

/* A half x is multiplied with a weight of its dtype: with the parameter cast to it. */
static weir_tensor *weight_like(weir_dtype dtype, weir_tensor *weight, const char *name, weir_src src)
{
    char path[512];
    if (!dtype_half(dtype) || weir_tensor_poisoned(weight))
        return weight;
    snprintf(path, sizeof path, "%s/weight>%s", name, weir_dtype_name(dtype));
    return weir_cast_at(weight, dtype, WEIR_OPTS_AT(src, weir_op_opts, .name = path));
}

weir_tensor *weir_linear_at(weir_tensor *x, int64_t out, const weir_linear_opts *given)
{
    weir_linear_opts opts;
    x = op_opts(x, "linear", given, &opts, sizeof opts);
    const weir_op *op = opts.by_row ? &op_linear_by_row : &op_linear;
    if (weir_tensor_poisoned(x))
        return op_of_none(op, x, opts.src);
    weir_type type = weir_tensor_type(x);
    if (type.shape.rank < 2)
        return weir_mistake(x, opts.src, "linear: x has %d dimensions; it needs two or more", type.shape.rank);
    if (out < 1)
        return weir_mistake(x, opts.src, "linear: the size of the output is %lld; it must be at least 1", (long long)out);
    const char *name = weir_name_for(x, opts.name, "linear");
    weir_tensor *weight = linear_weight(x, shape_last(&type.shape), out, name, &opts);
    weight = weight_like(type.dtype, weight, name, opts.src);
    weir_tensor *bias = opts.no_bias ? NULL : linear_bias(x, out, name, &opts);
    return linear_apply(op, x, weight, bias, opts.src, name);
}
