/* graph/model/lora.c: weir_lora(), made of other ops.
 *
 *     x --- base layer ------------------------------> base --> (+) --> y
 *       '-- dropout --> x A^T --> alpha / rank --> (x) B^T -----'
 *
 * The middle has `rank` columns, so the factor is applied there. A and B have the shapes of a weight that torch keeps,
 * [outputs, inputs], and so need no transposing on the way to a file. Their gradients are those of the products, which add up over
 * micro-batches in place.
 */
#include "graph/base/base.h"
#include "graph/model/build.h"
#include "kernels/common/ops.h"
#include "kernels/common/param.h"
#include "kernels/common/real.h"

#include <math.h>
#include <string.h>

typedef struct lora {
    weir_tensor *x, *base;
    const weir_lora_opts *opts;
    const char *name;
    int64_t rank, in, out;
    double alpha;
} lora;

static int64_t last_of(const weir_tensor *x)
{
    return x->type.shape.dim[x->type.shape.rank - 1];
}

static bool rows_alike(const weir_shape *x, const weir_shape *base)
{
    if (x->rank < 2 || x->rank != base->rank)
        return false;
    return !memcmp(x->dim, base->dim, sizeof *x->dim * (size_t)(x->rank - 1));
}

static bool real_dtype(weir_dtype dtype)
{
    return dtype == WEIR_F32 || dtype_half(dtype);
}

/* NULL: nothing is. */
static weir_tensor *wrong(const lora *l)
{
    const weir_type *x = &l->x->type, *base = &l->base->type;
    const weir_src src = l->opts->src;
    char x_text[160], base_text[160];
    if (!real_dtype(x->dtype) || !real_dtype(base->dtype))
        return weir_mistake(l->x, src, "lora: x is %s and the base %s; both must be f32, f16 or bf16", weir_dtype_name(x->dtype),
                            weir_dtype_name(base->dtype));
    if (!rows_alike(&x->shape, &base->shape))
        return weir_mistake(l->x, src, "lora: x %s and the base %s must have two or more dimensions, all but the last one the same",
                            shape_text(&x->shape, x_text, sizeof x_text), shape_text(&base->shape, base_text, sizeof base_text));
    if (l->rank < 1)
        return weir_mistake(l->x, src, "lora: the rank is %lld; it must be at least 1", (long long)l->rank);
    if (!isfinite(l->alpha))
        return weir_mistake(l->x, src, "lora: alpha is %g; it must be a finite number", l->alpha);
    if (!(l->opts->dropout >= 0 && l->opts->dropout < 1))
        return weir_mistake(l->x, src, "lora: .dropout is %g; it must be at least 0 and less than 1", l->opts->dropout);
    return NULL;
}

/* A or B, in the dtype of x. */
static weir_tensor *factor(const lora *l, const char *part, weir_param_opts opts, const weir_sbp *sbp)
{
    weir_graph *g = l->x->graph;
    opts.size = sizeof opts;
    opts.src = l->opts->src;
    opts.mesh = weir_mesh_for(l->x);
    opts.frozen = l->opts->frozen;
    opts.name = pool_text(&g->pool, "%s.%s.weight", l->name, part);
    memcpy(opts.sbp, sbp, sizeof opts.sbp);
    weir_tensor *p = opts.name ? weir_param_at(g, WEIR_F32, &opts) : &g->poison;
    return dtype_half(l->x->type.dtype) ? weir_cast_at(p, l->x->type.dtype, WEIR_OPTS_AT(opts.src, weir_op_opts, )) : p;
}

/* The part that is added to the base. */
static weir_tensor *addend(const lora *l)
{
    const weir_src src = l->opts->src;
    const double bound = 1 / sqrt((double)l->in);
    const weir_init init = init_or(l->opts->init, (weir_init)WEIR_UNIFORM(-bound, bound));
    weir_tensor *a = factor(l, "lora_A", (weir_param_opts){.shape = {l->rank, l->in}, .init = init}, l->opts->a);
    weir_tensor *b = factor(l, "lora_B", (weir_param_opts){.shape = {l->out, l->rank}}, l->opts->b);
    weir_tensor *x = l->opts->dropout > 0 ? weir_dropout_at(l->x, l->opts->dropout, WEIR_OPTS_AT(src, weir_op_opts, )) : l->x;
    weir_tensor *h = weir_matmul_at(x, a, WEIR_OPTS_AT(src, weir_matmul_opts, .trans_b = true));
    h = weir_affine_at(h, WEIR_OPTS_AT(src, weir_affine_opts, .scale = l->alpha / (double)l->rank));
    h = weir_matmul_at(h, b, WEIR_OPTS_AT(src, weir_matmul_opts, .trans_b = true));
    const weir_dtype dtype = l->base->type.dtype;
    return h->poisoned || h->type.dtype == dtype ? h : weir_cast_at(h, dtype, WEIR_OPTS_AT(src, weir_op_opts, ));
}

weir_tensor *weir_lora_at(weir_tensor *x, weir_tensor *base, int64_t rank, double alpha, const weir_lora_opts *given)
{
    weir_lora_opts opts;
    weir_graph *g = x ? x->graph : base ? base->graph : NULL;
    const bool read = graph_opts(g, "lora", given, &opts, sizeof opts);
    if (!x || !base)
        graph_mistake(g, opts.src, "lora: %s is NULL", x ? "the base" : "x");
    if (!x || !base || !read || x->poisoned || base->poisoned)
        return g ? &g->poison : NULL;
    lora l = {.x = x, .base = base, .opts = &opts, .rank = rank, .alpha = alpha};
    weir_tensor *none = wrong(&l);
    if (none)
        return none;
    l.in = last_of(x);
    l.out = last_of(base);
    l.name = weir_name_for(x, opts.name, "lora");
    const char *sum = opts.name ? pool_text(&g->pool, "%s.lora", opts.name) : l.name; /* the base may have the name */
    return weir_add_at(base, addend(&l), WEIR_OPTS_AT(opts.src, weir_op_opts, .name = sum));
}
