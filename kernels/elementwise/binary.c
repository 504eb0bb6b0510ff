/* binary.c: y = a op b with NumPy's broadcasting, and the gradients.
 *
 * The walk over the output is collapsed (nest.h) until the innermost loop is one of three: both operands run, or one of
 * them stands still. So x [rows, n] + bias [n], x * scalar and a column [rows, 1] against a matrix all run at full
 * vector speed, and everything else is a nest of such loops.
 *
 * The gradient with respect to an operand that was repeated is summed over the repetitions by sum_to.
 */
#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/fastmath.h"
#include "kernels/common/nest.h"
#include "kernels/common/ops.h"
#include "kernels/common/opts.h"
#include "kernels/common/real.h"
#include "kernels/reduce/reduce.h"
#include "kernels/common/rules.h"
#include "kernels/common/view.h"

#include "graph/base/base.h"

#include <weir/ops.h>

/* ---- rules ---- */

bool broadcast_shapes(const weir_shape *a, const weir_shape *b, weir_shape *both)
{
    both->rank = a->rank > b->rank ? a->rank : b->rank;
    for (int d = 0; d < both->rank; d++) {
        int da = d - (both->rank - a->rank), db = d - (both->rank - b->rank);
        int64_t size_a = da < 0 ? 1 : a->dim[da], size_b = db < 0 ? 1 : b->dim[db];
        if (size_a != size_b && size_a != 1 && size_b != 1)
            return false;
        both->dim[d] = size_a == 1 ? size_b : size_a;
    }
    return true;
}

static bool binary_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    char a[RULES_SHAPE_TEXT], b[RULES_SHAPE_TEXT];
    if (!rule_all_real(args, error, error_bytes))
        return false;
    args->out[0] = (weir_type){.dtype = args->in[0].dtype};
    if (!broadcast_shapes(&args->in[0].shape, &args->in[1].shape, &args->out[0].shape))
        return REFUSE("shapes %s and %s do not broadcast", shape_text(&args->in[0].shape, a, sizeof a),
                      shape_text(&args->in[1].shape, b, sizeof b));
    return true;
}

/* How `in` lies when dimension d of `out` is split. */
static weir_sbp split_of(const weir_shape *in, const weir_shape *out, int d)
{
    int own = d - (out->rank - in->rank);
    return own >= 0 && in->dim[own] != 1 ? WEIR_S(own) : WEIR_B;
}

static void sign_splits(const weir_op_args *args, weir_signature_list *list)
{
    const weir_shape *out = &args->out[0].shape;
    for (int d = 0; d < out->rank; d++) {
        if (out->dim[d] == 1)
            continue;
        weir_signature *s = weir_signature_new(list);
        s->in[0] = split_of(&args->in[0].shape, out, d);
        s->in[1] = split_of(&args->in[1].shape, out, d);
        s->out[0] = WEIR_S(d);
    }
}

static void sign_sum(const weir_op_args *args, weir_signature_list *list)
{
    sign_splits(args, list);
    sign_linear(args, list);
}

static void sign_product(const weir_op_args *args, weir_signature_list *list)
{
    sign_splits(args, list);
    sign_linear_in(args, list, 0);
    sign_linear_in(args, list, 1);
}

static void sign_quotient(const weir_op_args *args, weir_signature_list *list)
{
    sign_splits(args, list);
    sign_linear_in(args, list, 0);
}

static void binary_cost(const weir_op_args *args, weir_cost *cost)
{
    cost_moved(args, cost, (double)weir_shape_count(&args->out[0].shape));
}

/* ---- kernels ---- */

/* One row of the output; stride_a and stride_b are 0 or 1. */
typedef void (*binary_row)(const float *a, int64_t stride_a, const float *b, int64_t stride_b, float *y, int64_t count);

/* The same of halves; a, b and y are the first elements of the row. */
static void half_row(const weir_kernel_args *args, binary_row row, const nest *n, int64_t a, int64_t b, int64_t y)
{
    const int64_t step_a = n->stride[0][n->rank - 1], step_b = n->stride[1][n->rank - 1], count = nest_inner(n);
    float a_block[REAL_BLOCK], b_block[REAL_BLOCK];
    for (int64_t at = 0, part; at < count; at += part) {
        part = real_part(args, count - at);
        const float *x0 = real_in(&args->in[0], a + at * step_a, step_a ? part : 1, a_block);
        const float *x1 = real_in(&args->in[1], b + at * step_b, step_b ? part : 1, b_block);
        float *to = step_a ? a_block : b_block;
        row(x0, step_a, x1, step_b, to, part);
        real_put(&args->out[0], y + at, part, to);
    }
}

static weir_status binary_run(const weir_kernel_args *args, binary_row row)
{
    const float *a = view_f32(&args->in[0]), *b = view_f32(&args->in[1]);
    float *y = view_f32(&args->out[0]);
    const bool half = real_halves(args);
    nest n = nest_over(&args->out[0].shape);
    nest_broadcast(&n, &args->in[0].shape);
    nest_broadcast(&n, &args->in[1].shape);
    nest_collapse(&n);
    int64_t rows = nest_rows(&n), inner = nest_inner(&n);
    nest_pos pos = {0};
    for (int64_t r = 0; half && r < rows && inner; r++, nest_step(&n, &pos))
        half_row(args, row, &n, pos.at[0], pos.at[1], r * inner);
    for (int64_t r = 0; !half && r < rows && inner; r++, nest_step(&n, &pos))
        row(a + pos.at[0], n.stride[0][n.rank - 1], b + pos.at[1], n.stride[1][n.rank - 1], y + r * inner, inner);
    return WEIR_OK;
}

/* An operand that stands still is read before the loop: y may lie in a's memory. */
#define BINARY(opname, op, signs)                                                                               \
    static void opname##_row(const float *a, int64_t stride_a, const float *b, int64_t stride_b, float *y,      \
                             int64_t count)                                                                     \
    {                                                                                                           \
        const float a0 = a[0], b0 = b[0];                                                                       \
        if (stride_a && stride_b) {                                                                             \
            FAST_LOOP                                                                                           \
            for (int64_t i = 0; i < count; i++)                                                                 \
                y[i] = a[i] op b[i];                                                                            \
        } else if (stride_a) {                                                                                  \
            FAST_LOOP                                                                                           \
            for (int64_t i = 0; i < count; i++)                                                                 \
                y[i] = a[i] op b0;                                                                              \
        } else {                                                                                                \
            FAST_LOOP                                                                                           \
            for (int64_t i = 0; i < count; i++)                                                                 \
                y[i] = a0 op (stride_b ? b[i] : b0);                                                            \
        }                                                                                                       \
    }                                                                                                           \
    static weir_status opname##_kernel(const weir_kernel_args *args)                                            \
    {                                                                                                           \
        return binary_run(args, opname##_row);                                                                  \
    }                                                                                                           \
    const weir_op op_##opname = {                                                                               \
        .name = #opname,                                                                                        \
        .in_min = 2,                                                                                            \
        .in_max = 2,                                                                                            \
        .out_count = 1,                                                                                         \
        .infer = binary_infer,                                                                                  \
        .signatures = signs,                                                                                    \
        .grad = opname##_backward,                                                                              \
        .cost = binary_cost,                                                                                    \
        .kernel = {[WEIR_CPU] = opname##_kernel},                                                               \
        .inplace = 1,                                                                                           \
        .rows_in = 1 << 0 | 1 << 1,                                                                             \
        .rows_out = 1,                                                                                          \
        .half = WEIR_HALF_FOLLOW,                                                                               \
    };                                                                                                          \
    weir_tensor *weir_##opname##_at(weir_tensor *a, weir_tensor *b, const weir_op_opts *given)                  \
    {                                                                                                           \
        weir_op_opts opts;                                                                                      \
        a = op_opts(a, #opname, given, &opts, sizeof opts);                                                     \
        weir_tensor *in[2] = {a, b};                                                                            \
        return weir_op_apply(&(weir_apply){opts.src, opts.name, &op_##opname, NULL, in, 2, NULL}, NULL);        \
    }

/* ---- gradients ---- */

/* din[i] = dy, summed to the shape of in[i] */
static void flows_back(weir_grad_args *args, int i, weir_tensor *dy)
{
    weir_type type = weir_tensor_type(args->in[i]);
    args->din[i] = reduce_sum_to(dy, &type.shape, args->src);
}

static void add_backward(weir_grad_args *args)
{
    for (int i = 0; i < 2; i++)
        if (args->needed[i])
            flows_back(args, i, args->dout[0]);
}

static void sub_backward(weir_grad_args *args)
{
    if (args->needed[0])
        flows_back(args, 0, args->dout[0]);
    if (!args->needed[1])
        return;
    flows_back(args, 1, args->dout[0]);
    args->din[1] = weir_neg_at(args->din[1], WEIR_OPTS_AT(args->src, weir_op_opts));
}

static void mul_backward(weir_grad_args *args)
{
    for (int i = 0; i < 2; i++)
        if (args->needed[i])
            flows_back(args, i, weir_mul_at(args->dout[0], args->in[1 - i], WEIR_OPTS_AT(args->src, weir_op_opts)));
}

/* d(a/b) = da / b - y db / b */
static void div_backward(weir_grad_args *args)
{
    weir_op_opts opts = {.size = sizeof opts, .src = args->src};
    weir_tensor *da = weir_div_at(args->dout[0], args->in[1], &opts);
    if (args->needed[0])
        flows_back(args, 0, da);
    if (!args->needed[1])
        return;
    flows_back(args, 1, weir_mul_at(da, args->out[0], &opts));
    args->din[1] = weir_neg_at(args->din[1], &opts);
}

BINARY(add, +, sign_sum)
BINARY(sub, -, sign_sum)
BINARY(mul, *, sign_product)
BINARY(div, /, sign_quotient)
