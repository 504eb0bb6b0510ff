/* graph/model/input.c: inputs, the values that the program gives.
 *
 * An input is two nodes: a source on one device, which is where the program hands over the whole value, and a shard
 * that lays it out as asked. So inputs need no boxing of their own: the general rule deals them out.
 *
 * A source that is split is one node on all devices of the mesh, whose one signature for each axis is the layout that the
 * user gave, as with a call that is split. Each device calls the function for its own shard, so no value is sent.
 */
#include "graph/base/base.h"
#include "graph/model/ends.h"
#include "kernels/common/ops.h"

/* A request of weir_input(). */
typedef struct asked {
    weir_graph *graph;
    const weir_input_opts *opts;
    const char *what;    /* the word for it in mistakes */
    weir_type type;
    weir_mesh *mesh;
} asked;

/* Whether a source can give the shards of this layout; all axes have an SBP. Reports. */
static bool layout_splits(const asked *a, const weir_sbp *sbp)
{
    char place[64];
    bool splits = false;
    for (int axis = 0; axis < a->mesh->axes; axis++) {
        if (sbp[axis] == WEIR_P) {
            graph_mistake(a->graph, a->opts->src, "%s: .split with P on axis %d of the mesh %s; a source gives values, not terms of "
                          "a sum: use WEIR_B or WEIR_S(d)", a->what, axis, mesh_text(a->mesh, place, sizeof place));
            return false;
        }
        splits |= WEIR_IS_S(sbp[axis]);
    }
    if (!splits)
        graph_mistake(a->graph, a->opts->src, "%s: .split needs an .sbp that splits a dimension over an axis of the mesh %s, as "
                      ".sbp = {WEIR_S(0)}", a->what, mesh_text(a->mesh, place, sizeof place));
    return splits;
}

/* One signature for each axis of the mesh; NULL after a mistake. */
static const weir_signature *split_signatures(const asked *a)
{
    weir_sbp sbp[WEIR_AXES_MAX] = {WEIR_AUTO};
    if (!a->opts->source) {
        graph_mistake(a->graph, a->opts->src, "%s: .split needs a .source; a value that weir_session_push() gives is whole", a->what);
        return NULL;
    }
    if (!ends_by_hand(a->graph, a->opts->src, a->what, &a->type, a->mesh, a->opts->sbp, sbp) || !layout_splits(a, sbp))
        return NULL;
    weir_signature *all = POOL_NEW(&a->graph->pool, weir_signature, a->mesh->axes);
    for (int axis = 0; all && axis < a->mesh->axes; axis++)
        all[axis].out[0] = sbp[axis];
    return all;
}

/* The node, on the first device of the mesh or, split, on all. NULL after a mistake. */
static graph_node *source_node(const asked *a)
{
    const weir_input_opts *opts = a->opts;
    const typed_attrs attrs = ends_typed(a->type.dtype, &a->type.shape);
    const weir_signature *split = opts->split ? split_signatures(a) : NULL;
    weir_mesh *on = opts->split ? a->mesh : mesh_first(a->mesh);
    if (!on || (opts->split && !split))
        return NULL;
    weir_scope scope = graph_scope_on(on);
    graph_node *node =
        graph_apply(&(weir_apply){.src = opts->src, .name = opts->name, .op = &op_source, .graph = a->graph, .attrs = &attrs});
    weir_scope_leave(&scope);
    if (!node)
        return NULL;
    node->by_hand = split;
    node->host = 1 + (opts->source ? PLAN_SOURCE : PLAN_PUSH);
    node->binding =
        (callback_binding){.fn.source = opts->source, .ctx = opts->ctx, .save = opts->save, .restore = opts->restore};
    node->micro = node->out[0]->micro = opts->micro;
    ends_queue(node, opts->source ? opts->queue : NULL);
    return node;
}

weir_tensor *weir_input_at(weir_graph *graph, weir_dtype dtype, const weir_input_opts *given)
{
    weir_input_opts opts;
    const bool read = graph_opts(graph, "input", given, &opts, sizeof opts);
    asked a = {graph, &opts, opts.name ? opts.name : "input", {dtype, ends_shape(opts.shape)}, NULL};
    if (!graph) {
        graph_mistake(NULL, opts.src, "%s: the graph is NULL", a.what);
        return NULL;
    }
    if (!read || !ends_shape_ok(graph, opts.src, a.what, dtype, opts.shape) || !graph_scope_ok(graph, opts.src, a.what))
        return &graph->poison;
    a.mesh = graph_default_mesh(graph);
    graph_node *node = a.mesh ? source_node(&a) : NULL;
    if (!node)
        return &graph->poison;
    return opts.split ? node->out[0] : ends_spread(node->out[0], a.mesh, opts.src, opts.sbp);
}
