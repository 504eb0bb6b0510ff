/* kernels/loss/elements.c: losses that are a mean over elements, built of elementwise ops and a reduction: the compiler makes one
 * pass of the elementwise ones, and autograd their gradients.
 *
 *     mse                     mean((x - y)^2)
 *     binary_cross_entropy    mean(m + log(exp(x - m) + exp(-m)) - t x), m = max(x, 0)
 *
 * The second is log(1 + exp(x)) - t x with the larger of the two exponents taken out, so nothing overflows. The gradient through m
 * is 0, as it is in the value, and what is left is exp(x - m) / (exp(x - m) + exp(-m)) - t, also at x = 0.
 */
#include "kernels/common/opts.h"

#include <weir/ops.h>

static const weir_op_opts *at(const weir_loss_opts *opts, weir_op_opts *to)
{
    *to = (weir_op_opts){.size = sizeof *to, .src = opts->src};
    return to;
}

/* The mean of the terms, or their sum. */
static weir_tensor *reduced(weir_tensor *terms, const weir_loss_opts *opts)
{
    weir_reduce_opts over = {.size = sizeof over, .src = opts->src, .written = "", .name = opts->name};
    return opts->sum ? weir_sum_at(terms, &over) : weir_mean_at(terms, &over);
}

weir_tensor *weir_mse_at(weir_tensor *x, weir_tensor *y, const weir_loss_opts *given)
{
    weir_loss_opts opts;
    weir_op_opts op;
    x = op_opts(x, "mse", given, &opts, sizeof opts);
    weir_tensor *off = weir_sub_at(x, y, at(&opts, &op));
    return reduced(weir_mul_at(off, off, &op), &opts);
}

weir_tensor *weir_binary_cross_entropy_at(weir_tensor *x, weir_tensor *t, const weir_loss_opts *given)
{
    weir_loss_opts opts;
    weir_op_opts op;
    x = op_opts(x, "binary_cross_entropy", given, &opts, sizeof opts);
    weir_tensor *m = weir_relu_at(x, at(&opts, &op));
    weir_tensor *sum = weir_add_at(weir_exp_at(weir_sub_at(x, m, &op), &op), weir_exp_at(weir_neg_at(m, &op), &op), &op);
    weir_tensor *soft = weir_add_at(m, weir_log_at(sum, &op), &op);
    return reduced(weir_sub_at(soft, weir_mul_at(t, x, &op), &op), &opts);
}
