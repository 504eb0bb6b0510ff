/* dropout.c: zeroes a random part of a tensor and scales the rest up.
 *
 * Whether an element is dropped is a function of (the key of the op application, the number of the firing, the
 * element's index in the logical tensor), so all layouts drop the same ones and no generator has a state. Element g
 * draws from the group of 64 that it is in: word (g >> 4 & 3) of Philox at counter (g >> 6) * 16 + (g & 15). So a group
 * is 16 counters, which are computed at once, and their four words are 64 elements in order.
 *
 * The forward pass also gives a mask (u8, 1 where kept), which the backward pass reads: the gradient is another op
 * application with another key and its own count of firings, so it could not draw the same numbers again.
 */
#include "kernels/elementwise/fastmath.h"
#include "kernels/common/nest.h"
#include "kernels/common/ops.h"
#include "kernels/common/opts.h"
#include "kernels/random/dropout.h"
#include "kernels/common/real.h"
#include "kernels/common/rules.h"
#include "kernels/common/view.h"

#include <weir/ops.h>

static const weir_field dropout_fields[] = {WEIR_FIELD_REAL(dropout_attrs, rate)};

static bool rate_is_right(const weir_op_args *args, char *error, size_t error_bytes)
{
    const dropout_attrs *attrs = args->attrs;
    if (!(attrs->rate >= 0 && attrs->rate < 1))
        return REFUSE("rate %g is not in [0, 1)", attrs->rate);
    return true;
}

/* ---- dropout: x -> y, mask ---- */

static bool dropout_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    if (!infer_alike_real(args, error, error_bytes) || !rate_is_right(args, error, error_bytes))
        return false;
    args->out[1] = (weir_type){WEIR_U8, args->in[0].shape};
    return true;
}

static void dropout_signatures(const weir_op_args *args, weir_signature_list *list)
{
    sign_alike(args, list);
    sign_linear(args, list); /* every term of the sum loses the same elements */
}

static void dropout_cost(const weir_op_args *args, weir_cost *cost)
{
    cost_moved(args, cost, 20 * (double)weir_shape_count(&args->out[0].shape));
}

/* mask[i] for the logical elements g .. g + count, which are in one group. */
static void draw_group(const weir_kernel_args *args, uint32_t threshold, uint64_t g, uint8_t *mask, int64_t count)
{
    uint32_t word[4][PHILOX_LANES];
    uint8_t kept[GROUP];
    philox_lanes(args->key, g / GROUP * PHILOX_LANES, (uint64_t)args->firing, word);
    for (int w = 0; w < 4; w++)
        for (int l = 0; l < PHILOX_LANES; l++)
            kept[w * PHILOX_LANES + l] = word[w][l] >= threshold;
    memcpy(mask, kept + g % GROUP, (size_t)count);
}

/* mask[i] for the logical elements g .. g + count. */
static void draw(const weir_kernel_args *args, uint32_t threshold, uint64_t g, uint8_t *mask, int64_t count)
{
    int64_t i = 0;
    while (i < count) {
        int64_t left = GROUP - (int64_t)((g + (uint64_t)i) % GROUP);
        int64_t part = count - i < left ? count - i : left;
        draw_group(args, threshold, g + (uint64_t)i, mask + i, part);
        i += part;
    }
}

/* The shard is walked in runs that lie together in the logical tensor too. */
static void draw_mask(const weir_kernel_args *args, const weir_view *out, uint8_t *mask)
{
    int64_t stride[WEIR_DIMS_MAX] = {0}, first = 0;
    uint32_t threshold = dropout_threshold(args->attrs);
    nest_strides(&out->global, stride);
    for (int d = 0; d < out->shape.rank; d++)
        first += out->offset[d] * stride[d];
    nest n = nest_over(&out->shape);
    nest_operand(&n, stride);
    nest_collapse(&n);
    int64_t rows = nest_rows(&n), inner = nest_inner(&n), step = n.stride[0][n.rank - 1];
    nest_pos pos = {0};
    for (int64_t r = 0; r < rows; r++, nest_step(&n, &pos)) {
        uint64_t g = (uint64_t)(first + pos.at[0]);
        if (step == 1)
            draw(args, threshold, g, mask + r * inner, inner);
        else
            for (int64_t i = 0; i < inner; i++)
                draw(args, threshold, g + (uint64_t)(i * step), mask + r * inner + i, 1);
    }
}

static void apply_mask(const weir_kernel_args *args, const weir_view *x, const uint8_t *mask)
{
    const float scale = dropout_scale(args->attrs);
    const int64_t count = view_count(&args->out[0]);
    float x_block[REAL_BLOCK], y_block[REAL_BLOCK];
    for (int64_t at = 0, part; at < count; at += part, mask += part) {
        part = real_part(args, count - at);
        const float *from = real_in(x, at, part, x_block);
        float *y = real_out(&args->out[0], at, y_block);
        FAST_LOOP
        for (int64_t i = 0; i < part; i++)
            y[i] = dropout_value(from[i], scale, mask[i]);
        real_put(&args->out[0], at, part, y);
    }
}

static weir_status dropout_kernel(const weir_kernel_args *args)
{
    uint8_t *mask = args->out[1].data;
    draw_mask(args, &args->out[0], mask);
    apply_mask(args, &args->in[0], mask);
    return WEIR_OK;
}

static void dropout_backward(weir_grad_args *args)
{
    weir_tensor *in[2] = {args->out[1], args->dout[0]};
    args->din[0] = weir_op_apply(&(weir_apply){args->src, NULL, &op_dropout_grad, NULL, in, 2, args->attrs}, NULL);
}

const weir_op op_dropout = {
    .name = "dropout",
    .fields = dropout_fields,
    .field_count = 1,
    .attrs_bytes = sizeof(dropout_attrs),
    .in_min = 1,
    .in_max = 1,
    .out_count = 2,
    .infer = dropout_infer,
    .signatures = dropout_signatures,
    .grad = dropout_backward,
    .cost = dropout_cost,
    .kernel = {[WEIR_CPU] = dropout_kernel},
    .inplace = 1,
    .rows_in = 1,
    .rows_out = 1 << 0 | 1 << 1,
    .half = WEIR_HALF_FOLLOW,
};

weir_tensor *weir_dropout_at(weir_tensor *x, double rate, const weir_op_opts *given)
{
    weir_op_opts opts;
    x = op_opts(x, "dropout", given, &opts, sizeof opts);
    dropout_attrs attrs = {rate};
    if (x && !weir_tensor_poisoned(x) && rate >= 0 && rate < 1 && !weir_graph_trains(weir_tensor_graph(x)))
        return x;
    return weir_op_apply(&(weir_apply){opts.src, opts.name, &op_dropout, NULL, &x, 1, &attrs}, NULL);
}

/* ---- dropout_grad: mask, dy -> dx ---- */

static bool dropout_grad_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    if (args->in[0].dtype != WEIR_U8 || !weir_dtype_real(args->in[1].dtype))
        return REFUSE("a mask is u8 and a gradient f32, f16 or bf16, not %s and %s", weir_dtype_name(args->in[0].dtype),
                      weir_dtype_name(args->in[1].dtype));
    if (!weir_shape_equal(&args->in[0].shape, &args->in[1].shape))
        return REFUSE("the shapes of mask and gradient differ");
    args->out[0] = args->in[1];
    return rate_is_right(args, error, error_bytes);
}

static weir_status dropout_grad_kernel(const weir_kernel_args *args)
{
    apply_mask(args, &args->in[1], args->in[0].data);
    return WEIR_OK;
}

const weir_op op_dropout_grad = {
    .name = "dropout_grad",
    .fields = dropout_fields,
    .field_count = 1,
    .attrs_bytes = sizeof(dropout_attrs),
    .in_min = 2,
    .in_max = 2,
    .out_count = 1,
    .infer = dropout_grad_infer,
    .signatures = sign_alike_grad,
    .kernel = {[WEIR_CPU] = dropout_grad_kernel},
    .inplace = 2,
    .rows_in = 1 << 0 | 1 << 1,
    .rows_out = 1,
    .half = WEIR_HALF_FOLLOW,
};
