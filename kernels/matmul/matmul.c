/* kernels/matmul/matmul.c: the batched matrix product, on top of gemm(), and of gemm_half() for f16 and bf16.
 *
 *     a [batch..., m, k] x b [batch..., k, n] -> [batch..., m, n]         each of a and b may be stored transposed
 *
 * Batch dimensions broadcast as NumPy's: a dimension of 1, or one that is missing, is repeated. A repeated matrix is read again for
 * each batch; it is never copied.
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
 * Where batches broadcast, the gradients are summed over what is repeated. A b without batch dimensions has the sum of db over the batch; for an a that is not transposed that is linear_dw,
 * which sums in the product itself and can accumulate over micro-batches.
 */
#include "graph/base/base.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/matmul/factors.h"
#include "kernels/matmul/gemm.h"
#include "kernels/matmul/sizes.h"
#include "kernels/reduce/reduce.h"
#include "kernels/shape/shape.h"
#include "kernels/common/ops.h"
#include "kernels/common/opts.h"
#include "kernels/common/rules.h"
#include "kernels/common/view.h"

#include <weir/ops.h>

const weir_field matmul_fields[MATMUL_FIELDS] = {
    WEIR_FIELD_INT(struct matmul_attrs, trans_a),
    WEIR_FIELD_INT(struct matmul_attrs, trans_b),
};

/* Whether the batch dimensions of both are equal, or b has none: then no gradient is summed, or db by linear_dw. */
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

/* The batch dimensions of the result go to out. */
static bool batch_broadcast(const weir_shape *a, const weir_shape *b, weir_shape *out)
{
    weir_shape batch_a = *a, batch_b = *b;
    batch_a.rank -= 2;
    batch_b.rank -= 2;
    return broadcast_shapes(&batch_a, &batch_b, out);
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
    args->out[0] = (weir_type){.dtype = args->in[0].dtype};
    if (!batch_broadcast(a, b, &args->out[0].shape))
        return REFUSE("batch dimensions of %s and %s do not broadcast", shape_text(a, a_text, sizeof a_text),
                      shape_text(b, b_text, sizeof b_text));
    product at = product_of(a, b, args->attrs);
    if (a->dim[at.a_k] != b->dim[at.b_k])
        return REFUSE("inner sizes %lld and %lld differ", (long long)a->dim[at.a_k], (long long)b->dim[at.b_k]);
    args->out[0].shape.rank = at.rank;
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

/* How a factor lies when batch dimension d of the result is split: whole where it is repeated. */
static weir_sbp batch_split(const weir_shape *factor, const weir_shape *out, int d)
{
    const int own = d - (out->rank - factor->rank);
    return own >= 0 && factor->dim[own] == out->dim[d] ? WEIR_S(own) : WEIR_B;
}

static void matmul_signatures(const weir_op_args *args, weir_signature_list *list)
{
    const weir_shape *a = &args->in[0].shape, *b = &args->in[1].shape, *out = &args->out[0].shape;
    const product at = product_of(a, b, args->attrs);
    for (int d = 0; d + 2 < at.rank; d++)
        signature(list, batch_split(a, out, d), batch_split(b, out, d), WEIR_S(d));
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
    const weir_shape *a = &args->in[0].shape, *b = &args->in[1].shape;
    const gemms g = gemms_of(a, b, attrs);
    const nest batches = batches_of(a, b, attrs);
    const half_product whole = factors_product(args, attrs->trans_a, attrs->trans_b, g.m, g.n, g.k);
    const size_t c_step = (size_t)(g.m * g.n) * weir_dtype_bytes(whole.c_dtype);
    nest_pos pos = {0};
    for (int64_t i = 0; i < g.count; i++, nest_step_outside(&batches, &pos, 0)) {
        half_product p = whole;
        p.a += pos.at[0] * g.m * g.k;
        p.b += pos.at[1] * g.k * g.n;
        p.c = (char *)p.c + (size_t)i * c_step;
        gemm_half(&p);
    }
    return WEIR_OK;
}

static weir_status matmul_cpu(const weir_kernel_args *args)
{
    const struct matmul_attrs *attrs = args->attrs;
    const weir_view *a = &args->in[0], *b = &args->in[1];
    const gemms g = gemms_of(&a->shape, &b->shape, attrs);
    const nest batches = batches_of(&a->shape, &b->shape, attrs);
    nest_pos pos = {0};
    if (a->dtype != WEIR_F32)
        return matmul_half(args);
    for (int64_t i = 0; i < g.count; i++, nest_step_outside(&batches, &pos, 0))
        gemm(attrs->trans_a, attrs->trans_b, g.m, g.n, g.k, 1, view_f32(a) + pos.at[0] * g.m * g.k,
             attrs->trans_a ? g.m : g.k, view_f32(b) + pos.at[1] * g.k * g.n, attrs->trans_b ? g.k : g.n, 0,
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

/* Batches that broadcast: each gradient is that of the repeated factor, summed to the factor's shape. */
static void broadcast_grad(weir_grad_args *args)
{
    const weir_shape a = weir_tensor_type(args->in[0]).shape, b = weir_tensor_type(args->in[1]).shape;
    if (args->needed[0])
        args->din[0] = reduce_sum_to(gradient_a(args, true), &a, args->src);
    if (args->needed[1])
        args->din[1] = reduce_sum_to(gradient_b(args, false), &b, args->src);
}

static void matmul_grad(weir_grad_args *args)
{
    const weir_shape a = weir_tensor_type(args->in[0]).shape, b = weir_tensor_type(args->in[1]).shape;
    if (!batch_equal(&a, &b)) {
        broadcast_grad(args);
        return;
    }
    if (args->needed[0])
        args->din[0] = gradient_a(args, a.rank == b.rank);
    if (args->needed[1])
        args->din[1] = gradient_b(args, a.rank != b.rank);
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

/* A b whose batch dimensions are all 1 is one matrix for all of a's batches. */
static weir_tensor *without_batches(weir_tensor *a, weir_tensor *b, weir_src src)
{
    const weir_shape first = weir_tensor_type(a).shape, second = weir_tensor_type(b).shape;
    bool one = second.rank > 2 && second.rank <= first.rank && !batch_equal(&first, &second);
    for (int d = 0; d + 2 < second.rank; d++)
        one &= second.dim[d] == 1;
    return one ? shape_reshape(b, &(weir_shape){2, {second.dim[second.rank - 2], second.dim[second.rank - 1]}}, src) : b;
}

weir_tensor *weir_matmul_at(weir_tensor *a, weir_tensor *b, const weir_matmul_opts *given)
{
    weir_matmul_opts opts;
    a = op_opts(a, "matmul", given, &opts, sizeof opts);
    struct matmul_attrs attrs = {opts.trans_a, opts.trans_b};
    weir_tensor *in[2] = {a, without_batches(a, b, opts.src)};
    return weir_op_apply(&(weir_apply){opts.src, opts.name, &op_matmul, NULL, in, 2, &attrs}, NULL);
}
