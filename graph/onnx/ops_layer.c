/* graph/onnx/ops_layer.c: products, reductions and norms. */
#include "graph/onnx/ops.h"

#include <math.h>
#include <string.h>

/* ---- products ---- */

/* A vector is a matrix with one row (a) or one column (b), which is dropped from the result. */
bool onnx_op_matmul(onnx_importer *im)
{
    weir_tensor *a = onnx_tensor_in(im, 0), *b = a ? onnx_tensor_in(im, 1) : NULL;
    if (!b)
        return false;
    const weir_shape sa = weir_tensor_type(a).shape, sb = weir_tensor_type(b).shape;
    if (!sa.rank || !sb.rank)
        return ONNX_WRONG(im, "an input is a scalar");
    if (sa.rank == 1)
        a = onnx_reshape(im, a, 2, (int64_t[]){1, sa.dim[0]}, onnx_name(im));
    if (sb.rank == 1)
        b = onnx_reshape(im, b, 2, (int64_t[]){sb.dim[0], 1}, onnx_name(im));
    const bool plain = sa.rank > 1 && sb.rank > 1;
    weir_tensor *y = weir_matmul_at(a, b, ONNX_OPTS(im, weir_matmul_opts, plain ? onnx_out_name(im, 0) : onnx_name(im)));
    if (!plain && !weir_tensor_poisoned(y)) {
        const weir_shape full = weir_tensor_type(y).shape;
        int64_t dim[WEIR_DIMS_MAX];
        int rank = 0;
        for (int d = 0; d < full.rank; d++)
            if (!(d == full.rank - 2 && sa.rank == 1) && !(d == full.rank - 1 && sb.rank == 1))
                dim[rank++] = full.dim[d];
        y = onnx_reshape(im, y, rank, dim, onnx_out_name(im, 0));
    }
    return onnx_set_alike(im, y);
}

/* alpha A B + beta C */
bool onnx_op_gemm(onnx_importer *im)
{
    weir_tensor *a = onnx_tensor_in(im, 0), *b = a ? onnx_tensor_in(im, 1) : NULL;
    weir_tensor *c = b && onnx_has_in(im->node, 2) ? onnx_tensor_in(im, 2) : NULL;
    const double alpha = onnx_real(im, "alpha", 1), beta = onnx_real(im, "beta", 1);
    const bool trans_a = onnx_int(im, "transA", 0), trans_b = onnx_int(im, "transB", 0);
    if (!b || im->status)
        return false;
    if (c && !trans_a && !trans_b && alpha == 1 && beta == 1 && weir_tensor_type(c).shape.rank == 1 &&
        weir_tensor_type(c).shape.dim[0] == weir_tensor_type(b).shape.dim[1])
        return onnx_set_alike(im, weir_linear_with_at(a, b, c, OUT(im)));
    weir_tensor *y = weir_matmul_at(a, b, ONNX_PART(im, weir_matmul_opts, .trans_a = trans_a, .trans_b = trans_b));
    if (alpha != 1)
        y = weir_affine_at(y, ONNX_PART(im, weir_affine_opts, .scale = alpha));
    if (c && beta != 1)
        c = weir_affine_at(c, ONNX_PART(im, weir_affine_opts, .scale = beta));
    if (c)
        y = weir_add_at(y, c, OUT(im));
    return onnx_set_alike(im, y);
}

/* ---- reductions ---- */

typedef weir_tensor *(*reduction)(weir_tensor *x, const weir_reduce_opts *opts);

static reduction reduction_of(const char *kind)
{
    return !strcmp(kind, "Mean") ? weir_mean_at : !strcmp(kind, "Max") ? weir_max_at : !strcmp(kind, "Min") ? weir_min_at
         : !strcmp(kind, "Prod") ? weir_prod_at : weir_sum_at;
}

weir_tensor *onnx_reduced(onnx_importer *im, weir_tensor *x, const char *kind, const int *axes, int count, bool keep, const char *name)
{
    weir_reduce_opts opts = {.size = sizeof opts, .src = im->src, .written = count ? ".axes" : "", .axis_count = count, .keep = keep, .name = name};
    if (count)
        memcpy(opts.axes, axes, sizeof *axes * (size_t)count);
    return reduction_of(kind)(x, &opts);
}

/* log sum exp(x), by the largest x of each sum. */
static weir_tensor *log_sum_exp(onnx_importer *im, weir_tensor *x, const int *axes, int count, bool keep)
{
    weir_tensor *most = onnx_reduced(im, x, "Max", axes, count, true, onnx_name(im));
    weir_tensor *from = weir_exp_at(weir_sub_at(x, most, PART(im)), PART(im));
    weir_tensor *sum = weir_log_at(onnx_reduced(im, from, "Sum", axes, count, keep, onnx_name(im)), PART(im));
    if (weir_tensor_poisoned(sum))
        return sum;
    const weir_shape shape = weir_tensor_type(sum).shape;
    return weir_add_at(sum, onnx_reshape(im, most, shape.rank, shape.dim, onnx_name(im)), PART(im));
}

/* ReduceX as f(the reduction of g(x)). */
static weir_tensor *reduced_as(onnx_importer *im, weir_tensor *x, const char *op, const int *axes, int count, bool keep)
{
    if (!strcmp(op, "LogSumExp"))
        return log_sum_exp(im, x, axes, count, keep);
    if (!strcmp(op, "SumSquare") || !strcmp(op, "L2"))
        x = weir_mul_at(x, x, PART(im));
    if (!strcmp(op, "L1"))
        x = weir_abs_at(x, PART(im));
    weir_tensor *y = onnx_reduced(im, x, op, axes, count, keep, onnx_name(im));
    if (!strcmp(op, "L2"))
        y = weir_sqrt_at(y, PART(im));
    return !strcmp(op, "LogSum") ? weir_log_at(y, PART(im)) : y;
}

bool onnx_op_reduce(onnx_importer *im)
{
    weir_tensor *x = onnx_tensor_in(im, 0);
    int axes[ONNX_DIMS_MAX], count = x ? onnx_axes(im, 1, weir_tensor_type(x).shape.rank, axes) : -1;
    if (count < 0)
        return false;
    if (!count && onnx_int(im, "noop_with_empty_axes", 0))
        return onnx_set_same(im, 0, 0);
    if (count > WEIR_DIMS_MAX)
        return ONNX_WRONG(im, "it has %d axes", count);
    weir_tensor *y = reduced_as(im, x, im->node->op + strlen("Reduce"), axes, count, onnx_int(im, "keepdims", 1));
    return onnx_set_alike(im, y);
}

/* An index is i64 in ONNX. */
bool onnx_op_arg(onnx_importer *im)
{
    weir_tensor *x = onnx_tensor_in(im, 0);
    const int axis = x ? onnx_axis(im, onnx_int(im, "axis", 0), weir_tensor_type(x).shape.rank) : -1;
    if (axis < 0)
        return false;
    if (onnx_int(im, "select_last_index", 0))
        return ONNX_UNSUPPORTED(im, "select_last_index: weir takes the first of equals");
    const weir_arg_opts *opts = ONNX_PART(im, weir_arg_opts, .written = ".axis, .keep", .axis = axis, .keep = onnx_int(im, "keepdims", 1));
    weir_tensor *at = strstr(im->node->op, "Max") ? weir_argmax_along_at(x, opts) : weir_argmin_along_at(x, opts);
    return onnx_set_tensor(im, 0, weir_cast_at(at, WEIR_I64, OUT(im)), ONNX_INT64);
}

bool onnx_op_global_pool(onnx_importer *im)
{
    weir_tensor *x = onnx_tensor_in(im, 0);
    int axes[WEIR_DIMS_MAX], count = 0;
    const int rank = x ? weir_tensor_type(x).shape.rank : 0;
    for (int d = 2; d < rank; d++)
        axes[count++] = d;
    if (!count)
        return x ? ONNX_WRONG(im, "its input has %d dimensions", rank) : false;
    const char *kind = strstr(im->node->op, "Max") ? "Max" : "Mean";
    return onnx_set_alike(im, onnx_reduced(im, x, kind, axes, count, true, onnx_out_name(im, 0)));
}

/* ---- softmax ---- */

/* log softmax(x) = x - max - log sum exp(x - max) */
weir_tensor *onnx_log_softmax(onnx_importer *im, weir_tensor *x)
{
    const int last[] = {weir_tensor_type(x).shape.rank - 1};
    weir_tensor *from = weir_sub_at(x, onnx_reduced(im, x, "Max", last, 1, true, onnx_name(im)), PART(im));
    weir_tensor *sum = onnx_reduced(im, weir_exp_at(from, PART(im)), "Sum", last, 1, true, onnx_name(im));
    return weir_sub_at(from, weir_log_at(sum, PART(im)), PART(im));
}

static weir_tensor *softmax_last(onnx_importer *im, weir_tensor *x)
{
    return *im->node->op == 'L' ? onnx_log_softmax(im, x) : weir_softmax_at(x, PART(im));
}

/* Before version 13 all dimensions from the axis on are one. */
static weir_tensor *softmax_flat(onnx_importer *im, weir_tensor *x, int axis)
{
    const weir_shape shape = weir_tensor_type(x).shape;
    int64_t dim[2] = {1, 1};
    for (int d = 0; d < shape.rank; d++)
        dim[d >= axis] *= shape.dim[d];
    x = onnx_reshape(im, x, 2, dim, onnx_name(im));
    return x ? onnx_reshape(im, softmax_last(im, x), shape.rank, shape.dim, onnx_name(im)) : NULL;
}

bool onnx_op_softmax(onnx_importer *im)
{
    weir_tensor *x = onnx_tensor_in(im, 0);
    const int rank = x ? weir_tensor_type(x).shape.rank : 0;
    const int axis = x ? onnx_axis(im, onnx_int(im, "axis", im->opset < 13 ? 1 : -1), rank) : -1;
    int perm[WEIR_DIMS_MAX];
    if (axis < 0)
        return false;
    if (im->opset < 13)
        return onnx_set_alike(im, softmax_flat(im, x, axis));
    for (int d = 0; d < rank; d++)
        perm[d] = d == axis ? rank - 1 : d == rank - 1 ? axis : d;
    weir_tensor *y = softmax_last(im, onnx_transpose(im, x, perm, onnx_name(im)));
    return onnx_set_alike(im, weir_tensor_poisoned(y) ? y : onnx_transpose(im, y, perm, onnx_name(im)));
}
