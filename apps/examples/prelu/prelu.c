/* prelu.c: the op, its gradient, and the function that puts it into a graph.
 *
 *     prelu        x, slope     -> y            y = x > 0 ? x : slope x
 *     prelu_grad   x, slope, dy -> dx, dslope   dx = x > 0 ? dy : slope dy,  dslope = sum over rows of x < 0 ? x dy : 0
 *
 * Kernels see shards: rows of x that may be some of the rows, and columns that may be some of the columns, then with as
 * many slopes. The signatures below are what promises that this is right, and prelu_check() tries it.
 */
#include "prelu.h"

#include <stdio.h>

/* ---- rules ---- */

/* Whether the slope fits x, and every later input is like x. */
static bool inputs_fit(const weir_op_args *args, char *error, size_t error_bytes)
{
    const weir_shape *x = &args->in[0].shape, *slope = &args->in[1].shape;
    if (args->in[0].dtype != WEIR_F32 || args->in[1].dtype != WEIR_F32)
        return snprintf(error, error_bytes, "x and slope are f32"), false;
    if (x->rank < 1 || slope->rank != 1 || slope->dim[0] != x->dim[x->rank - 1])
        return snprintf(error, error_bytes, "slope has one value for each column of x"), false;
    if (args->in_count > 2 && (args->in[2].dtype != WEIR_F32 || !weir_shape_equal(x, &args->in[2].shape)))
        return snprintf(error, error_bytes, "dy is not of the type of x"), false;
    return true;
}

static bool infer(weir_op_args *args, char *error, size_t error_bytes)
{
    if (!inputs_fit(args, error, error_bytes))
        return false;
    for (int i = 0; i < args->out_count; i++)
        args->out[i] = args->in[i]; /* y and dx are like x, dslope is like slope */
    return true;
}

/* Any dimension may be split. If it is not the last, all devices need all slopes, and the gradient of these is a sum over the
 * devices; with the columns the slopes are split as well. */
static void signatures(const weir_op_args *args, weir_signature_list *list)
{
    int last = args->in[0].shape.rank - 1;
    for (int d = 0; d <= last; d++) {
        weir_signature *s = weir_signature_new(list);
        for (int i = 0; i < args->in_count; i++)
            s->in[i] = i == 1 ? (d == last ? WEIR_S(0) : WEIR_B) : WEIR_S(d);
        s->out[0] = WEIR_S(d);
        if (args->out_count > 1)
            s->out[1] = d == last ? WEIR_S(0) : WEIR_P;
    }
}

/* ---- kernels ---- */

typedef struct part {
    int64_t rows, columns;
} part;

static part part_of(const weir_kernel_args *args)
{
    const weir_shape *shape = &args->in[0].shape;
    int64_t columns = shape->dim[shape->rank - 1];
    return (part){columns ? weir_shape_count(shape) / columns : 0, columns};
}

static weir_status kernel(const weir_kernel_args *args)
{
    part p = part_of(args);
    const float *x = args->in[0].data, *slope = args->in[1].data;
    float *y = args->out[0].data;
    for (int64_t r = 0; r < p.rows; r++)
        for (int64_t c = 0; c < p.columns; c++) {
            int64_t i = r * p.columns + c;
            y[i] = x[i] > 0 ? x[i] : slope[c] * x[i];
        }
    return WEIR_OK;
}

static weir_status grad_kernel(const weir_kernel_args *args)
{
    part p = part_of(args);
    const float *x = args->in[0].data, *slope = args->in[1].data, *dy = args->in[2].data;
    float *dx = args->out[0].data, *dslope = args->out[1].data;
    for (int64_t c = 0; c < p.columns; c++)
        dslope[c] = 0;
    for (int64_t r = 0; r < p.rows; r++)
        for (int64_t c = 0; c < p.columns; c++) {
            int64_t i = r * p.columns + c;
            bool up = x[i] > 0;
            dx[i] = up ? dy[i] : slope[c] * dy[i];
            dslope[c] += up ? 0 : x[i] * dy[i];
        }
    return WEIR_OK;
}

/* ---- the ops ---- */

static void grad(weir_grad_args *args);
static weir_status exact(const weir_kernel_args *args), grad_exact(const weir_kernel_args *args);

static const weir_op op_prelu = {
    .name = "prelu",
    .in_min = 2,
    .in_max = 2,
    .out_count = 1,
    .infer = infer,
    .signatures = signatures,
    .grad = grad,
    .kernel = {[WEIR_CPU] = kernel},
    .inplace = 1,  /* y may be made where x lies */
    .rows_in = 1,  /* and for some rows at a time, in one pass with the ops around it */
    .rows_out = 1,
    .cheap = true, /* so what it gives is better computed again than kept */
    .exact = exact,
};

static const weir_op op_prelu_grad = {
    .name = "prelu_grad",
    .in_min = 3,
    .in_max = 3,
    .out_count = 2,
    .infer = infer,
    .signatures = signatures,
    .kernel = {[WEIR_CPU] = grad_kernel},
    .exact = grad_exact,
};

static void grad(weir_grad_args *args)
{
    weir_tensor *in[3] = {args->in[0], args->in[1], args->dout[0]}, *out[2];
    weir_op_apply(WEIR_OF(weir_apply, .src = args->src, .op = &op_prelu_grad, .in = in, .in_count = 3), out);
    for (int i = 0; i < 2; i++)
        if (args->needed[i])
            args->din[i] = out[i];
}

/* ---- the graph ---- */

weir_tensor *prelu_at(weir_tensor *x, const prelu_opts *opts)
{
    weir_type type = weir_tensor_type(x);
    if (weir_tensor_poisoned(x))
        return x;
    if (type.shape.rank < 1)
        return weir_mistake(x, opts->src, "prelu: x is a scalar; it needs columns");
    const char *name = weir_name_for(x, opts->name, "prelu");
    char inner[512];
    snprintf(inner, sizeof inner, "%s/slope", name);
    weir_tensor *slope = weir_param_at(weir_tensor_graph(x), WEIR_F32,
                                       WEIR_OPTS_AT(opts->src, weir_param_opts,
                                                    .shape = {type.shape.dim[type.shape.rank - 1]}, .name = inner,
                                                    .mesh = weir_mesh_for(x),
                                                    .init = WEIR_VALUE(weir_option(opts->slope, 0.25))));
    weir_tensor *in[2] = {x, slope};
    return weir_op_apply(WEIR_OF(weir_apply, .src = opts->src, .name = name, .op = &op_prelu, .in = in, .in_count = 2), NULL);
}

/* ---- whether all of this is right ---- */

/* Sizes that do not divide, so that parts are of unequal size. */
weir_status prelu_check(void)
{
    weir_status status = weir_op_check(&op_prelu, .inputs = {WEIR_ARRAY(NULL, WEIR_F32, 7, 5), WEIR_ARRAY(NULL, WEIR_F32, 5)});
    return status ? status : weir_op_check(&op_prelu, .inputs = {WEIR_ARRAY(NULL, WEIR_F32, 5, 3, 6),
                                                                 WEIR_ARRAY(NULL, WEIR_F32, 6)});
}

/* ---- over exact numbers ---- */

/* As the kernels, for weir_plan_verify() and weir_gradients_verify(). The order of numbers is a random one here. */
static weir_status exact(const weir_kernel_args *args)
{
    const part p = part_of(args);
    const weir_exact *x = args->in[0].data, *slope = args->in[1].data, zero = weir_exact_int(0);
    weir_exact *y = args->out[0].data;
    for (int64_t i = 0; i < p.rows * p.columns; i++)
        y[i] = weir_exact_larger(args, x[i], zero) ? x[i] : weir_exact_mul(slope[i % p.columns], x[i]);
    return WEIR_OK;
}

static weir_status grad_exact(const weir_kernel_args *args)
{
    const part p = part_of(args);
    const weir_exact *x = args->in[0].data, *slope = args->in[1].data, *dy = args->in[2].data, zero = weir_exact_int(0);
    weir_exact *dx = args->out[0].data, *dslope = args->out[1].data;
    for (int64_t c = 0; c < p.columns; c++)
        dslope[c] = zero;
    for (int64_t i = 0; i < p.rows * p.columns; i++) {
        const int64_t c = i % p.columns;
        const bool up = weir_exact_larger(args, x[i], zero);
        dx[i] = up ? dy[i] : weir_exact_mul(slope[c], dy[i]);
        dslope[c] = up ? dslope[c] : weir_exact_add(dslope[c], weir_exact_mul(x[i], dy[i]));
    }
    return WEIR_OK;
}

/* ---- for who loads plans ---- */

weir_status weir_register_ops(void)
{
    weir_status status = weir_op_register(&op_prelu);
    return status ? status : weir_op_register(&op_prelu_grad);
}
