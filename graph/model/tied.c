/* graph/model/tied.c: weir_tied(), which finds the weight of a layer that is there and multiplies with it, transposed. The weight
 * has one gradient then, the sum over both layers.
 */
#include "graph/model/build.h"
#include "kernels/common/ops.h"

/* The weight that the layer multiplies with, or takes rows of; NULL: it is none. */
static weir_tensor *weight_of(const weir_tensor *layer)
{
    const graph_node *node = layer->node;
    const bool has = node && (node->op == &op_embedding || node->op == &op_linear || node->op == &op_linear_by_row);
    return has ? node->in[1] : NULL;
}

weir_tensor *weir_tied_at(weir_tensor *x, weir_tensor *layer, const weir_op_opts *given)
{
    weir_op_opts opts;
    weir_graph *g = x ? x->graph : layer ? layer->graph : NULL;
    const bool read = graph_opts(g, "tied", given, &opts, sizeof opts);
    if (!x || !layer)
        graph_mistake(g, opts.src, "tied: %s is NULL", x ? "the layer" : "x");
    if (!x || !layer || !read || x->poisoned || layer->poisoned)
        return g ? &g->poison : NULL;
    weir_tensor *weight = weight_of(layer);
    if (!weight)
        return weir_mistake(x, opts.src, "tied: \"%s\" is not the result of weir_embedding() or weir_linear(), so it has no weight",
                            layer->name);
    if (weight->type.dtype != x->type.dtype)
        weight = weir_cast_at(weight, x->type.dtype, WEIR_OPTS_AT(opts.src, weir_op_opts, ));
    return weir_matmul_at(x, weight, WEIR_OPTS_AT(opts.src, weir_matmul_opts, .name = opts.name, .trans_b = true));
}
