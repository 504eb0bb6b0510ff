/* unary.c: y = f(x), and the gradients dx = slope(saved) dy, from the rows of kernels/common/elements.h.
 *
 * A gradient reads what the forward pass keeps anyway: the output where the derivative can be told from it, else the input. neg, exp and
 * log need no gradient op: they are -dy, y dy and dy / x. A flat function, such as floor, has the gradient 0 dy. Every gradient is linear in dy, so a partial dy goes through
 * (P -> P) without being summed first.
 *
 * The loops are written once, in the two macros UNARY and UNARY_GRAD; each makes a kernel and a definition of a row.
 * fastmath.h says why the loops vectorise.
 */
#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/formula.h"
#include "kernels/common/ops.h"
#include "kernels/common/opts.h"
#include "kernels/common/real.h"
#include "kernels/common/rules.h"
#include "kernels/common/view.h"

#include <weir/ops.h>

/* ---- integers ---- */

typedef enum whole_function {
    WHOLE_none,
#define NAME(X, name, f) WHOLE_##name,
    WHOLE_ROWS(NAME, )
#undef NAME
    WHOLES
} whole_function;

typedef void (*whole_loop)(const void *x, void *y, int64_t count);

#define WHOLE_LOOP(name, f, bits)                                              \
    static void name##_##bits##_loop(const void *x, void *y, int64_t count)    \
    {                                                                          \
        const uint##bits##_t *in = x;                                          \
        uint##bits##_t *out = y;                                               \
        FAST_LOOP                                                              \
        for (int64_t i = 0; i < count; i++)                                    \
            out[i] = f(in[i]);                                                 \
    }
#define WHOLE_LOOPS(X, name, f) WHOLE_LOOP(name, f, 32) WHOLE_LOOP(name, f, 64)
WHOLE_ROWS(WHOLE_LOOPS, )

static weir_status whole_run(const weir_kernel_args *args, whole_function f)
{
    static const whole_loop loops[WHOLES][2] = {
#define LOOPS(X, name, f) [WHOLE_##name] = {name##_32_loop, name##_64_loop},
        WHOLE_ROWS(LOOPS, )
#undef LOOPS
    };
    const bool wide = args->out[0].dtype == WEIR_I64;
    loops[f][wide](args->in[0].data, args->out[0].data, view_count(&args->out[0]));
    return WEIR_OK;
}

/* ---- definitions ---- */

/* f(x) with about `work` floating-point operations an element; `again`: the backward pass may compute it once more;
 * `policy`: of half precision; `whole`: the function of integers. */
#define UNARY(opname, function, work, signs, again, policy, whole)                                      \
    static weir_status opname##_kernel(const weir_kernel_args *args)                                    \
    {                                                                                                   \
        const int64_t count = view_count(&args->out[0]);                                                \
        float x_block[REAL_BLOCK], y_block[REAL_BLOCK];                                                 \
        if (WHOLE_##whole && !weir_dtype_real(args->out[0].dtype))                                      \
            return whole_run(args, WHOLE_##whole);                                                      \
        for (int64_t at = 0, part; at < count; at += part) {                                            \
            part = real_part(args, count - at);                                                         \
            const float *x = real_in(&args->in[0], at, part, x_block);                                  \
            float *y = real_out(&args->out[0], at, y_block);                                            \
            FAST_LOOP                                                                                   \
            for (int64_t i = 0; i < part; i++)                                                          \
                y[i] = function(x[i]);                                                                  \
            real_put(&args->out[0], at, part, y);                                                       \
        }                                                                                               \
        return WEIR_OK;                                                                                 \
    }                                                                                                   \
    static void opname##_cost(const weir_op_args *args, weir_cost *cost)                                \
    {                                                                                                   \
        cost_moved(args, cost, work * (double)weir_shape_count(&args->out[0].shape));                   \
    }                                                                                                   \
    const weir_op op_##opname = {                                                                       \
        .name = #opname,                                                                                \
        .in_min = 1,                                                                                    \
        .in_max = 1,                                                                                    \
        .out_count = 1,                                                                                 \
        .infer = WHOLE_##whole ? infer_alike_number : infer_alike_real,                                 \
        .signatures = signs,                                                                            \
        .grad = opname##_backward,                                                                      \
        .cost = opname##_cost,                                                                          \
        .kernel = {[WEIR_CPU] = opname##_kernel},                                                       \
        .inplace = 1,                                                                                   \
        .rows_in = 1,                                                                                   \
        .rows_out = 1,                                                                                  \
        .half = policy,                                                                                 \
        .cheap = again,                                                                                 \
    };                                                                                                  \
    weir_tensor *weir_##opname##_at(weir_tensor *x, const weir_op_opts *given)                          \
    {                                                                                                   \
        weir_op_opts opts;                                                                              \
        x = op_opts(x, #opname, given, &opts, sizeof opts);                                             \
        return weir_op_apply(&(weir_apply){opts.src, opts.name, &op_##opname, NULL, &x, 1, NULL}, NULL); \
    }

/* slope(saved) dy. The result may lie where dy does. */
#define UNARY_GRAD(opname, slope, work, policy)                                         \
    static weir_status opname##_kernel(const weir_kernel_args *args)                    \
    {                                                                                   \
        const int64_t count = view_count(&args->out[0]);                                \
        float saved_block[REAL_BLOCK], dy_block[REAL_BLOCK];                            \
        for (int64_t at = 0, part; at < count; at += part) {                            \
            part = real_part(args, count - at);                                         \
            const float *saved = real_in(&args->in[0], at, part, saved_block);          \
            const float *dy = real_in(&args->in[1], at, part, dy_block);                \
            float *dx = real_out(&args->out[0], at, dy_block);                          \
            FAST_LOOP                                                                   \
            for (int64_t i = 0; i < part; i++)                                          \
                dx[i] = slope(saved[i]) * dy[i];                                        \
            real_put(&args->out[0], at, part, dx);                                      \
        }                                                                               \
        return WEIR_OK;                                                                 \
    }                                                                                   \
    static void opname##_cost(const weir_op_args *args, weir_cost *cost)                \
    {                                                                                   \
        cost_moved(args, cost, work * (double)weir_shape_count(&args->out[0].shape));   \
    }                                                                                   \
    const weir_op op_##opname = {                                                       \
        .name = #opname,                                                                \
        .in_min = 2,                                                                    \
        .in_max = 2,                                                                    \
        .out_count = 1,                                                                 \
        .infer = infer_alike_real,                                                      \
        .signatures = sign_alike_grad,                                                  \
        .cost = opname##_cost,                                                          \
        .kernel = {[WEIR_CPU] = opname##_kernel},                                       \
        .inplace = 2,                                                                   \
        .rows_in = 1 << 0 | 1 << 1,                                                     \
        .rows_out = 1,                                                                  \
        .half = policy,                                                                 \
    };

/* din[0] = op(saved, dout[0]) */
static void backward_with(weir_grad_args *args, const weir_op *op, weir_tensor *saved)
{
    weir_tensor *in[2] = {saved, args->dout[0]};
    args->din[0] = weir_op_apply(&(weir_apply){.src = args->src, .op = op, .in = in, .in_count = 2}, NULL);
}

static void neg_backward(weir_grad_args *args)
{
    args->din[0] = weir_neg_at(args->dout[0], WEIR_OPTS_AT(args->src, weir_op_opts));
}

static void exp_backward(weir_grad_args *args)
{
    args->din[0] = weir_mul_at(args->out[0], args->dout[0], WEIR_OPTS_AT(args->src, weir_op_opts));
}

static void flat_backward(weir_grad_args *args)
{
    args->din[0] = weir_affine_at(args->dout[0], WEIR_OPTS_AT(args->src, weir_affine_opts, .scale = 0));
}

static void log_backward(weir_grad_args *args)
{
    args->din[0] = weir_div_at(args->dout[0], args->in[0], WEIR_OPTS_AT(args->src, weir_op_opts));
}

/* A function whose gradient is an op of its own, which reads what the forward pass keeps. */
#define SLOPED(X, name, function, work, again, policy, whole, saved, slope, slope_work) \
    UNARY_GRAD(name##_grad, slope, slope_work, policy)                           \
    static void name##_backward(weir_grad_args *args)                            \
    {                                                                            \
        backward_with(args, &op_##name##_grad, args->saved[0]);                  \
    }                                                                            \
    UNARY(name, function, work, sign_alike, again, policy, whole)

#define PLAIN(X, ...) UNARY(__VA_ARGS__)
FUNCTION_ROWS(PLAIN, )
SLOPE_ROWS(SLOPED, )

#define FLAT(X, name, function, work, policy, whole)                     \
    static void name##_backward(weir_grad_args *args)                    \
    {                                                                    \
        flat_backward(args);                                             \
    }                                                                    \
    UNARY(name, function, work, sign_alike, false, policy, whole)
FLAT_ROWS(FLAT, )
