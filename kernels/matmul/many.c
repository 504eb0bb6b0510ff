/* kernels/matmul/many.c: products of one tensor by one call, which the compiler makes of several for devices whose library makes
 * a batch of products as one (graph/compile/actors/batch.c): there is none in a graph, and no CPU has them.
 *
 *     linear_many         x, W0, W1, ... [, b0, b1, ...] -> y0 = x W0 + b0, y1 = x W1 + b1, ...
 *     linear_dw_many      x, dy0, dy1, ...               -> dW0 = x^T dy0, dW1 = x^T dy1, ...     f32; none accumulates
 *
 * All products are alike in dtypes and shapes. The rule of the single op is asked about each.
 */
#include "graph/base/base.h"
#include "kernels/matmul/sizes.h"
#include "kernels/common/ops.h"
#include "kernels/common/rules.h"
#include "kernels/common/view.h"

/* The call of product i, whose inputs go to `in`. */
static weir_op_args product_of_many(const weir_op_args *args, const weir_op *op, int i, weir_type in[3])
{
    const int count = args->out_count;
    const weir_op_args call = {op, in, args->in_count > 1 + count ? 3 : 2, args->out + i, 1, NULL};
    in[0] = args->in[0];
    in[1] = args->in[1 + i];
    if (call.in_count > 2)
        in[2] = args->in[1 + count + i];
    return call;
}

static bool are_alike(const weir_type *types, int count)
{
    for (int i = 1; i < count; i++)
        if (!type_equal(&types[i], &types[0]))
            return false;
    return true;
}

static bool many_fit(const weir_op_args *args, const weir_op *op, char *error, size_t error_bytes)
{
    const int count = args->out_count;
    weir_type in[3];
    if (count < 1 || (args->in_count != 1 + count && args->in_count != 1 + 2 * count))
        return REFUSE("%d inputs and %d outputs are no products", args->in_count, count);
    if (!are_alike(args->in + 1, count) || !are_alike(args->out, count))
        return REFUSE("the products are not alike");
    for (int i = 0; i < count; i++) {
        const weir_op_args call = product_of_many(args, op, i, in);
        if (!fits_either(&call, error, error_bytes))
            return false;
    }
    return true;
}

static bool linear_many_fits(const weir_op_args *args, char *error, size_t error_bytes)
{
    return many_fit(args, &op_linear, error, error_bytes);
}

static bool linear_dw_many_fits(const weir_op_args *args, char *error, size_t error_bytes)
{
    return (args->in_count == 1 + args->out_count || REFUSE("a weight's gradient has no bias")) &&
           many_fit(args, &op_linear_dw, error, error_bytes);
}

/* The workspace of one product, and room for the biases of all. */
static size_t many_workspace(const weir_op_args *args, const weir_op *op, weir_device_kind kind)
{
    weir_type in[3];
    const weir_op_args call = product_of_many(args, op, 0, in);
    const size_t biases = call.in_count > 2 ? (size_t)(args->out_count - 1) * product_bias_bytes(shape_last(&in[2].shape)) : 0;
    return op->workspace(&call, kind) + biases;
}

static size_t linear_many_workspace(const weir_op_args *args, weir_device_kind kind)
{
    return many_workspace(args, &op_linear, kind);
}

static size_t linear_dw_many_workspace(const weir_op_args *args, weir_device_kind kind)
{
    return many_workspace(args, &op_linear_dw, kind);
}

const weir_op op_linear_many = {
    .name = "linear_many",
    .in_min = 2,
    .in_max = 1 + 2 * PRODUCTS_MAX,
    .out_count = PRODUCTS_MAX,
    .out_fewer = true,
    .infer = infer_never,
    .fits = linear_many_fits,
    .workspace = linear_many_workspace,
};

const weir_op op_linear_dw_many = {
    .name = "linear_dw_many",
    .in_min = 2,
    .in_max = 1 + PRODUCTS_MAX,
    .out_count = PRODUCTS_MAX,
    .out_fewer = true,
    .infer = infer_never,
    .fits = linear_dw_many_fits,
    .workspace = linear_dw_many_workspace,
};
