/* kernels/matmul/epilogue.c: products with what comes right behind them, which the compiler makes of two calls for
 * devices whose library does both in one (graph/compile/actors/epilogue.c): there is none in a graph, and no CPU has them.
 *
 *     linear_gelu         x, W [, b] -> y = gelu(z), z = x W + b      z only where someone reads it
 *     matmul_gelu_grad    a, b, z    -> dz = gelu'(z) (a b)           attributes are matmul's
 *     linear_dw_db        x, dy      -> dW = x^T dy, db = 1^T dy      both f32; neither accumulates
 *
 * Each is called with what the two were called with, and their rules are asked about it.
 */
#include "graph/base/base.h"
#include "kernels/cuda/chunks.h"
#include "kernels/matmul/sizes.h"
#include "kernels/common/ops.h"
#include "kernels/common/rules.h"
#include "kernels/common/view.h"

/* The call of the product within, with the first of its inputs, and one output. */
static weir_op_args product_within(const weir_op_args *local, const weir_op *op, int in_count)
{
    weir_op_args call = *local;
    call.op = op;
    call.in_count = in_count;
    call.out_count = 1;
    return call;
}

/* ---- linear_gelu ---- */

static bool linear_gelu_fits(const weir_op_args *local, char *error, size_t error_bytes)
{
    const weir_op_args call = product_within(local, &op_linear, local->in_count);
    if (!local->out_count)
        return REFUSE("there is no output");
    if (!op_linear.fits(&call, error, error_bytes))
        return false;
    return local->out_count < 2 || type_equal(&local->out[0], &local->out[1]) ||
           REFUSE("what gelu is computed of is not like its result");
}

static size_t linear_gelu_workspace(const weir_op_args *args, weir_device_kind kind)
{
    const weir_op_args call = product_within(args, &op_linear, args->in_count);
    return op_linear.workspace(&call, kind);
}

const weir_op op_linear_gelu = {
    .name = "linear_gelu",
    .in_min = 2,
    .in_max = 3,
    .out_count = 2,
    .out_fewer = true,
    .infer = infer_never,
    .fits = linear_gelu_fits,
    .workspace = linear_gelu_workspace,
};

/* ---- matmul_gelu_grad ---- */

/* The library takes matrices that lie at equal distances. */
static bool is_one_run(const weir_op_args *local)
{
    const nest batches = batches_of(&local->in[0].shape, &local->in[1].shape, local->attrs);
    return batches.rank == 1;
}

static bool matmul_gelu_grad_fits(const weir_op_args *local, char *error, size_t error_bytes)
{
    const weir_op_args call = product_within(local, &op_matmul, 2);
    return op_matmul.fits(&call, error, error_bytes) &&
           (is_one_run(local) || REFUSE("the batches of the factors do not lie at equal distances")) &&
           (type_equal(&local->in[2], &local->out[0]) || REFUSE("input 2 and the output differ in type"));
}

static size_t matmul_gelu_grad_workspace(const weir_op_args *args, weir_device_kind kind)
{
    const weir_op_args call = product_within(args, &op_matmul, 2);
    return op_matmul.workspace(&call, kind);
}

const weir_op op_matmul_gelu_grad = {
    .name = "matmul_gelu_grad",
    .fields = matmul_fields,
    .field_count = MATMUL_FIELDS,
    .attrs_bytes = sizeof(struct matmul_attrs),
    .in_min = 3,
    .in_max = 3,
    .out_count = 1,
    .infer = infer_never,
    .fits = matmul_gelu_grad_fits,
    .workspace = matmul_gelu_grad_workspace,
};

/* ---- linear_dw_db ---- */

static bool linear_dw_db_fits(const weir_op_args *local, char *error, size_t error_bytes)
{
    weir_type dw = {0}, db = {0};
    weir_op_args dw_call = product_within(local, &op_linear_dw, 2), sums = product_within(local, &op_linear_db, 1);
    dw_call.out = &dw;
    sums.in = &local->in[1];
    sums.out = &db;
    if (!op_linear_dw.infer(&dw_call, error, error_bytes) || !op_linear_db.infer(&sums, error, error_bytes))
        return false;
    return (type_equal(&dw, &local->out[0]) && type_equal(&db, &local->out[1])) ||
           REFUSE("an output is not of the dtype and shape that the op makes");
}

/* One behind the other, where they are made apart. */
static size_t linear_dw_db_workspace(const weir_op_args *args, weir_device_kind kind)
{
    const weir_op_args dw_call = product_within(args, &op_linear_dw, 2);
    const weir_shape *dy = &args->in[1].shape;
    const size_t bytes = op_linear_dw.workspace(&dw_call, kind), sums = chunks_bytes(shape_rows(dy), shape_last(dy));
    return bytes > sums ? bytes : sums;
}

const weir_op op_linear_dw_db = {
    .name = "linear_dw_db",
    .in_min = 2,
    .in_max = 2,
    .out_count = 2,
    .infer = infer_never,
    .fits = linear_dw_db_fits,
    .workspace = linear_dw_db_workspace,
};
