/* kernels/matmul/matmul.c: the batched matrix product, on top of gemm(), and of gemm_half() for f16 and bf16.
 *
 *     a [batch..., m, k] x b [batch..., k, n] -> [batch..., m, n]         each of a and b may be stored transposed
 *
 * When b has no batch dimensions all of a's rows meet the same b, so the batch is folded into m and the product is
 * one gemm (unless a is stored transposed: then its batches do not lie below each other, and it is one gemm per
 * batch).
 *
 * The gradient is two more products, of which the only question is which operand stands where:
 *
 *     stored        da                 db
 *     A  B          dY B^T             A^T dY
 *     A  B^T        dY B               dY^T A
 *     A^T B         B dY^T             A dY
 *     A^T B^T       B^T dY^T           dY^T A^T
 *
 * A b without batch dimensions has the sum of db over the batch; for an a that is not transposed that is linear_dw,
 * which sums in the product itself and can accumulate over micro-batches.
 */
#include "graph/base/base.h"
#include "kernels/matmul/factors.h"
#include "kernels/matmul/gemm.h"
#include "kernels/matmul/sizes.h"
#include "kernels/common/ops.h"
#include "kernels/common/opts.h"
#include "kernels/common/rules.h"
#include "kernels/common/view.h"

#include <weir/ops.h>

const weir_field matmul_fields[MATMUL_FIELDS] = {
    WEIR_FIELD_INT(struct matmul_attrs, trans_a),
    WEIR_FIELD_INT(struct matmul_attrs, trans_b),
};

static bool batch_equal(const weir_shape *a, const weir_shape *b)
{
    if (b->rank == 2)
        return true;
    if (a->rank != b->rank)
        return false;
    for (int d = 0; d + 2 < a->rank; d++)
        if (a->dim[d] != b->dim[d])
            return false;
    return true;
}

static bool matmul_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    const weir_shape *a = &args->in[0].shape, *b = &args->in[1].shape;
    char a_text[64], b_text[64];
    if (!factors_are_real(args, error, error_bytes))
        return false;
    for (int i = 0; i < 2; i++)
        if (args->in[i].shape.rank < 2)
            return REFUSE("input %d has %d dimensions; a matrix has two or more", i, args->in[i].shape.rank);
    if (!batch_equal(a, b))
        return REFUSE("batch dimensions of %s and %s differ", shape_text(a, a_text, sizeof a_text),
                      shape_text(b, b_text, sizeof b_text));
    product at = product_of(a, b, args->attrs);
    if (a->dim[at.a_k] != b->dim[at.b_k])
        return REFUSE("inner sizes %lld and %lld differ", (long long)a->dim[at.a_k], (long long)b->dim[at.b_k]);
    args->out[0] = (weir_type){args->in[0].dtype, *a};
    args->out[0].shape.dim[at.rank - 2] = a->dim[at.a_m];
    args->out[0].shape.dim[at.rank - 1] = b->dim[at.b_n];
    return true;
}

static void signature(weir_signature_list *list, weir_sbp a, weir_sbp b, weir_sbp out)
{
    weir_signature *s = weir_signature_new(list);
    s->in[0] = a;
    s->in[1] = b;
    s->out[0] = out;
}

static void matmul_signatures(const weir_op_args *args, weir_signature_list *list)
{
    product at = product_of(&args->in[0].shape, &args->in[1].shape, args->attrs);
    for (int d = 0; d + 2 < at.rank; d++)
        signature(list, WEIR_S(d), at.batched ? WEIR_S(d) : WEIR_B, WEIR_S(d));
    signature(list, WEIR_S(at.a_m), WEIR_B, WEIR_S(at.rank - 2));
    signature(list, WEIR_B, WEIR_S(at.b_n), WEIR_S(at.rank - 1));
    signature(list, WEIR_S(at.a_k), WEIR_S(at.b_k), WEIR_P);
    signature(list, WEIR_P, WEIR_B, WEIR_P);
    signature(list, WEIR_B, WEIR_P, WEIR_P);
}

static void matmul_cost(const weir_op_args *args, weir_cost *cost)
{
    product at = product_of(&args->in[0].shape, &args->in[1].shape, args->attrs);
    cost->flops = 2.0 * (double)weir_shape_count(&args->out[0].shape) * (double)args->in[0].shape.dim[at.a_k];
    cost->bytes = (double)(type_bytes(&args->in[0]) + type_bytes(&args->in[1]) + type_bytes(&args->out[0]));
}

static size_t matmul_workspace(const weir_op_args *args, weir_device_kind kind)
{
    const struct matmul_attrs *attrs = args->attrs;
    const gemms g = gemms_of(&args->in[0].shape, &args->in[1].shape, attrs);
    if (kind == WEIR_CUDA)
        return product_bytes((double)g.count * (double)g.m, g.n, g.k, false);
    return factors_workspace(args, attrs->trans_a, attrs->trans_b, g.m, g.n, g.k);
}

static weir_status matmul_half(const weir_kernel_args *args)
{
    const struct matmul_attrs *attrs = args->attrs;
    const gemms g = gemms_of(&args->in[0].shape, &args->in[1].shape, attrs);
    half_product p = factors_product(args, attrs->trans_a, attrs->trans_b, g.m, g.n, g.k);
    const size_t c_step = (size_t)(g.m * g.n) * weir_dtype_bytes(p.c_dtype);
    for (int64_t i = 0; i < g.count; i++) {
        gemm_half(&p);
        p.a += g.m * g.k;
        p.b += args->in[1].shape.rank > 2 ? g.k * g.n : 0;
        p.c = (char *)p.c + c_step;
    }
    return WEIR_OK;
}

static weir_status matmul_cpu(const weir_kernel_args *args)
{
    const struct matmul_attrs *attrs = args->attrs;
    const weir_view *a = &args->in[0], *b = &args->in[1];
    const gemms g = gemms_of(&a->shape, &b->shape, attrs);
    const int64_t b_step = b->shape.rank > 2 ? g.k * g.n : 0;
    if (a->dtype != WEIR_F32)
        return matmul_half(args);
    for (int64_t i = 0; i < g.count; i++)
        gemm(attrs->trans_a, attrs->trans_b, g.m, g.n, g.k, 1, view_f32(a) + i * g.m * g.k,
             attrs->trans_a ? g.m : g.k, view_f32(b) + i * b_step, attrs->trans_b ? g.k : g.n, 0,
             view_f32(&args->out[0]) + i * g.m * g.n, g.n, args->workspace);
    return WEIR_OK;
}

/* ---- gradient ---- */

static weir_tensor *times(const weir_grad_args *args, weir_tensor *a, bool trans_a, weir_tensor *b, bool trans_b)
{
    return weir_matmul_at(a, b, WEIR_OPTS_AT(args->src, weir_matmul_opts, .trans_a = trans_a, .trans_b = trans_b));
}

static weir_tensor *swapped(const weir_grad_args *args, weir_tensor *x)
{
    int rank = weir_tensor_type(x).shape.rank;
    weir_dims_opts opts = {.size = sizeof opts, .src = args->src};
    for (int d = 0; d < rank; d++)
        opts.dims[d] = d;
    opts.dims[rank - 2] = rank - 1;
    opts.dims[rank - 1] = rank - 2;
    return weir_transpose_at(x, &opts);
}

static weir_tensor *batch_sum(const weir_grad_args *args, weir_tensor *x)
{
    weir_reduce_opts opts = {.size = sizeof opts, .src = args->src,
                             .axis_count = weir_tensor_type(x).shape.rank - 2};
    for (int d = 0; d < opts.axis_count; d++)
        opts.axes[d] = d;
    return weir_sum_at(x, &opts);
}

static weir_tensor *gradient_a(const weir_grad_args *args, bool batched)
{
    const struct matmul_attrs *attrs = args->attrs;
    weir_tensor *b = args->in[1], *dy = args->dout[0];
    if (!attrs->trans_a)
        return times(args, dy, false, b, !attrs->trans_b);
    if (batched)
        return times(args, b, attrs->trans_b, dy, true);
    return swapped(args, times(args, dy, false, b, !attrs->trans_b)); /* b cannot stand on the left */
}

static weir_tensor *gradient_b(const weir_grad_args *args, bool summed)
{
    const struct matmul_attrs *attrs = args->attrs;
    weir_tensor *a = args->in[0], *dy = args->dout[0];
    if (summed && !attrs->trans_a) {
        weir_tensor *rows[2] = {attrs->trans_b ? dy : a, attrs->trans_b ? a : dy};
        return weir_op_apply(&(weir_apply){args->src, NULL, &op_linear_dw, NULL, rows, 2, NULL}, NULL);
    }
    weir_tensor *db = attrs->trans_b ? times(args, dy, true, a, attrs->trans_a)
                                     : times(args, a, !attrs->trans_a, dy, false);
    return summed ? batch_sum(args, db) : db;
}

static void matmul_grad(weir_grad_args *args)
{
    int rank_a = weir_tensor_type(args->in[0]).shape.rank, rank_b = weir_tensor_type(args->in[1]).shape.rank;
    if (args->needed[0])
        args->din[0] = gradient_a(args, rank_a == rank_b);
    if (args->needed[1])
        args->din[1] = gradient_b(args, rank_a != rank_b);
}

const weir_op op_matmul = {
    .name = "matmul",
    .fields = matmul_fields,
    .field_count = MATMUL_FIELDS,
    .attrs_bytes = sizeof(struct matmul_attrs),
    .in_min = 2,
    .in_max = 2,
    .out_count = 1,
    .infer = matmul_infer,
    .fits = fits_either,
    .signatures = matmul_signatures,
    .grad = matmul_grad,
    .cost = matmul_cost,
    .workspace = matmul_workspace,
    .kernel = {[WEIR_CPU] = matmul_cpu},
    .half = WEIR_HALF_WANT,
    .either_out = true,
};

weir_tensor *weir_matmul_at(weir_tensor *a, weir_tensor *b, const weir_matmul_opts *given)
{
    weir_matmul_opts opts;
    a = op_opts(a, "matmul", given, &opts, sizeof opts);
    struct matmul_attrs attrs = {opts.trans_a, opts.trans_b};
    weir_tensor *in[2] = {a, b};
    return weir_op_apply(&(weir_apply){opts.src, opts.name, &op_matmul, NULL, in, 2, &attrs}, NULL);
}
