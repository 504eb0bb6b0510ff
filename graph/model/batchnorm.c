/* graph/model/batchnorm.c: weir_batchnorm(), made of other ops.
 *
 *     x -> mean -> x - mean -> squares -> var ---> 1 / sqrt(var + eps) -+
 *            |         |                   |                  gain --> (x) -> scale -+
 *            |         '-------------------|--------------------------------------> (x) -> (+) bias
 *            '---> running_mean            '---> running_var
 *
 * The squares are of differences, so the variance does not suffer from a large mean. Means over a batch that is split are sums
 * of the devices' parts: the compiler adds one number per channel and statistic. The gradient is that of the parts, and needs no
 * rule of its own; so it is with proofs and accelerators.
 *
 * Not an op of its own: it would save a pass over the image or two, and need the statistics of all devices in its middle.
 */
#include "graph/base/base.h"
#include "graph/model/build.h"
#include "kernels/common/ops.h"
#include "kernels/common/param.h"

#include <math.h>

typedef struct batchnorm {
    weir_tensor *x; /* f32 */
    const weir_batchnorm_opts *opts;
    int64_t channels, count; /* elements of a channel */
    double momentum;
} batchnorm;

#define OP(...) WEIR_OPTS_AT(b->opts->src, weir_op_opts, __VA_ARGS__)
#define AFFINE(x, scale, shift) weir_affine_at(x, WEIR_OPTS_AT(b->opts->src, weir_affine_opts, scale, shift))

/* Per channel, with a dimension of 1 for each that is reduced. */
static weir_tensor *mean_of(const batchnorm *b, weir_tensor *x)
{
    weir_reduce_opts opts = {.size = sizeof opts, .src = b->opts->src, .keep = true};
    for (int d = 0; d < weir_tensor_type(x).shape.rank; d++)
        if (d != 1)
            opts.axes[opts.axis_count++] = d;
    return weir_mean_at(x, &opts);
}

/* [channels], so that it broadcasts over x. */
static weir_tensor *spread(const batchnorm *b, weir_tensor *of_channels)
{
    weir_dims_opts opts = {.size = sizeof opts, .src = b->opts->src, .dims = {b->channels}};
    const int rank = weir_tensor_type(b->x).shape.rank;
    for (int d = 2; d < rank; d++)
        opts.dims[d - 1] = 1;
    return rank > 2 ? weir_reshape_at(of_channels, &opts) : of_channels;
}

/* The reverse. */
static weir_tensor *gathered(const batchnorm *b, weir_tensor *x)
{
    return weir_reshape_at(x, WEIR_OPTS_AT(b->opts->src, weir_dims_opts, .dims = {b->channels}));
}

static weir_tensor *parameter(const batchnorm *b, const char *part, double value)
{
    const weir_param_opts opts = {.size = sizeof opts, .src = b->opts->src, .shape = {b->channels}, .name = part,
                                  .mesh = weir_mesh_for(b->x), .init = WEIR_VALUE(value), .frozen = b->opts->frozen};
    return weir_param_at(b->x->graph, WEIR_F32, &opts);
}

static weir_tensor *running(const batchnorm *b, const char *part, double value)
{
    const weir_state_opts opts = {.size = sizeof opts, .src = b->opts->src, .shape = {b->channels}, .name = part,
                                  .mesh = weir_mesh_for(b->x), .init = WEIR_VALUE(value)};
    return weir_state_at(b->x->graph, WEIR_F32, &opts);
}

/* ---- running statistics ---- */

static void move(const batchnorm *b, weir_tensor *state, weir_tensor *statistic)
{
    weir_tensor *kept = AFFINE(state, 1 - b->momentum, 0);
    weir_state_set_at(state, weir_add_at(kept, AFFINE(statistic, b->momentum, 0), OP()), b->opts->src);
}

/* The statistics with a 1 behind them, as sums over the micro-batches of a step. */
static weir_tensor *sum_of(const batchnorm *b, weir_tensor *mean, weir_tensor *var)
{
    const weir_src src = b->opts->src;
    weir_graph *g = mean->graph;
    weir_tensor *one = AFFINE(weir_slice_at(mean, 0, 0, 1, WEIR_OPTS_AT(src, weir_slice_opts, )), 0, 1);
    weir_tensor *each = weir_concat_at(0, WEIR_OPTS_AT(src, weir_concat_opts, .x = {mean, var, one}));
    const char *name = pool_text(&g->pool, "%ssum", graph_scope_prefix(g));
    weir_tensor *sum = each->poisoned || !name ? NULL : graph_step_sum(each, name);
    return sum ? sum : &g->poison;
}

/* One of the two: its mean over the micro-batches. */
static weir_tensor *part_of(const batchnorm *b, weir_tensor *sum, int part)
{
    const weir_src src = b->opts->src;
    weir_tensor *count = weir_slice_at(sum, 0, 2 * b->channels, 1, WEIR_OPTS_AT(src, weir_slice_opts, ));
    weir_tensor *of = weir_slice_at(sum, 0, part * b->channels, b->channels, WEIR_OPTS_AT(src, weir_slice_opts, ));
    return weir_div_at(of, count, OP());
}

/* In the last phase of a step, as nothing before waits for it. */
static void move_both(const batchnorm *b, weir_tensor *mean, weir_tensor *var)
{
    weir_graph *g = b->x->graph;
    mean = gathered(b, mean);
    var = AFFINE(gathered(b, var), (double)b->count / (double)(b->count - 1), 0);
    weir_tensor *sum = b->x->micro ? sum_of(b, mean, var) : NULL;
    const plan_phase before = g->phase;
    g->phase = PLAN_UPDATE;
    move(b, running(b, "running_mean", 0), sum ? part_of(b, sum, 0) : mean);
    move(b, running(b, "running_var", 1), sum ? part_of(b, sum, 1) : var);
    g->phase = before;
}

/* ---- the layer ---- */

/* x -> the result without the bias. */
static weir_tensor *normalised(const batchnorm *b)
{
    const bool trains = weir_graph_trains(b->x->graph);
    weir_tensor *gain = spread(b, parameter(b, "gain", 1));
    weir_tensor *mean = trains ? mean_of(b, b->x) : spread(b, running(b, "running_mean", 0));
    weir_tensor *centred = weir_sub_at(b->x, mean, OP());
    weir_tensor *var = trains ? mean_of(b, weir_mul_at(centred, centred, OP())) : spread(b, running(b, "running_var", 1));
    const double eps = weir_option(b->opts->eps, 1e-5);
    weir_tensor *scale = weir_reciprocal_at(weir_sqrt_at(AFFINE(var, 1, eps), OP()), OP());
    if (trains)
        move_both(b, mean, var);
    return weir_mul_at(centred, weir_mul_at(scale, gain, OP()), OP());
}

static weir_tensor *wrong(const batchnorm *b)
{
    const weir_type type = b->x->type;
    const weir_src src = b->opts->src;
    char text[160];
    if (type.dtype != WEIR_F32 && type.dtype != WEIR_F16 && type.dtype != WEIR_BF16)
        return weir_mistake(b->x, src, "batchnorm: x is %s; it must be f32, f16 or bf16", weir_dtype_name(type.dtype));
    if (type.shape.rank < 2)
        return weir_mistake(b->x, src, "batchnorm: x has %d dimensions; it needs a batch and channels", type.shape.rank);
    if (!(b->opts->eps >= 0 && isfinite(b->opts->eps)))
        return weir_mistake(b->x, src, "batchnorm: .eps is %g; it must be a finite number of 0 or more", b->opts->eps);
    if (!(b->momentum > 0 && b->momentum <= 1))
        return weir_mistake(b->x, src, "batchnorm: .momentum is %g; it must be more than 0 and at most 1", b->momentum);
    if (weir_graph_trains(b->x->graph) && b->count < 2)
        return weir_mistake(b->x, src, "batchnorm: x %s has one element per channel; a variance needs two or more",
                            shape_text(&type.shape, text, sizeof text));
    return NULL;
}

weir_tensor *weir_batchnorm_at(weir_tensor *x, const weir_batchnorm_opts *given)
{
    weir_batchnorm_opts opts;
    weir_graph *g = x ? x->graph : NULL;
    const bool read = graph_opts(g, "batchnorm", given, &opts, sizeof opts);
    if (!x)
        graph_mistake(NULL, opts.src, "batchnorm: input 0 is NULL");
    if (!x || !read || x->poisoned)
        return g ? &g->poison : NULL;
    const weir_dtype dtype = x->type.dtype;
    batchnorm b = {.x = x, .opts = &opts, .momentum = opts.momentum ? opts.momentum : 0.1};
    b.channels = x->type.shape.rank > 1 ? x->type.shape.dim[1] : 0;
    b.count = b.channels ? weir_shape_count(&x->type.shape) / b.channels : 0;
    weir_tensor *none = wrong(&b);
    if (none)
        return none;
    const char *name = weir_name_for(x, opts.name, "batchnorm");
    weir_scope scope = graph_scope_absolute(g, graph_scope_mesh(g), pool_text(&g->pool, "%s%s/", graph_scope_prefix(g), name));
    if (dtype != WEIR_F32)
        b.x = weir_cast_at(x, WEIR_F32, WEIR_OPTS_AT(opts.src, weir_op_opts, ));
    weir_tensor *y = normalised(&b), *bias = spread(&b, parameter(&b, "bias", 0));
    if (dtype != WEIR_F32)
        y = weir_add_at(y, bias, WEIR_OPTS_AT(opts.src, weir_op_opts, ));
    weir_scope_leave(&scope);
    return dtype != WEIR_F32 ? weir_cast_at(y, dtype, WEIR_OPTS_AT(opts.src, weir_op_opts, .name = name))
                             : weir_add_at(y, bias, WEIR_OPTS_AT(opts.src, weir_op_opts, .name = name));
}
