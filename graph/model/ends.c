/* graph/model/ends.c: where a graph meets the outside: inputs, parameters, fetches, calls, and the explicit layouts
 * that the user writes.
 *
 * An input is two nodes: a source on one device, which is where the program hands over the whole value, and a shard
 * that lays it out as asked. So inputs need no boxing of their own: the general rule deals them out. A call is the
 * same: the user's function runs on one device, however large the mesh is, so it is called once for every value.
 *
 * Who fetches a parameter gets a copy: whoever pulls late would otherwise hold up its update.
 */
#include "graph/base/base.h"
#include "graph/model/build.h"
#include "graph/base/error.h"
#include "graph/base/opts.h"
#include "kernels/core/core.h"
#include "kernels/ops.h"

#include <string.h>

enum { DELAY_MAX = 1 << 16 };

static weir_shape shape_of(const int64_t *dim)
{
    weir_shape shape = {0};
    while (shape.rank < WEIR_DIMS_MAX && dim[shape.rank]) {
        shape.dim[shape.rank] = dim[shape.rank];
        shape.rank++;
    }
    return shape;
}

/* Whether the shape can be a tensor's: sizes of at least 1, bytes that fit. Reports. */
static bool shape_ok(weir_graph *g, weir_src src, const char *what, weir_dtype dtype, const weir_shape *shape)
{
    bool sizes = shape_countable(shape);
    if (!weir_dtype_bytes(dtype)) {
        graph_mistake(g, src, "%s: there is no dtype %d", what, (int)dtype);
        return false;
    }
    for (int d = 0; d < shape->rank; d++)
        sizes &= shape->dim[d] >= 1;
    if (!sizes) {
        char text[160];
        graph_mistake(g, src, "%s: %s is not a shape", what, shape_text(shape, text, sizeof text));
    }
    return sizes;
}

/* Copies the user's SBP to `to`, with negative dimensions counted from the end. Reports what cannot be. */
static bool sbp_set(weir_graph *g, weir_src src, const char *what, const weir_type *type, const weir_mesh *mesh,
                    const weir_sbp *from, weir_sbp *to)
{
    for (int a = 0; a < WEIR_AXES_MAX; a++) {
        weir_sbp sbp = from[a];
        if (sbp == WEIR_AUTO)
            continue;
        char text[8];
        if (a >= mesh->axes) {
            graph_mistake(g, src, "%s: %s on mesh axis %d, but the mesh has %d", what, weir_sbp_text(sbp, text), a,
                          mesh->axes);
            return false;
        }
        if (WEIR_IS_S(sbp) && WEIR_S_DIM(sbp) < 0)
            sbp += type->shape.rank;
        if (!(sbp == WEIR_B || (sbp == WEIR_P && weir_dtype_real(type->dtype)) ||
              (WEIR_IS_S(sbp) && WEIR_S_DIM(sbp) >= 0 && WEIR_S_DIM(sbp) < type->shape.rank))) {
            graph_mistake(g, src, "%s: %s on mesh axis %d does not fit a tensor of %d dimensions of %s",
                          what, weir_sbp_text(sbp, text), a, type->shape.rank, weir_dtype_name(type->dtype));
            return false;
        }
        to[a] = sbp;
    }
    return true;
}

/* A mesh lives as long as its own graph. Reports. */
static bool mesh_of_graph(weir_graph *g, weir_src src, const char *what, const weir_mesh *mesh)
{
    if (mesh->graph != g)
        graph_mistake(g, src, "%s: the mesh belongs to another graph", what);
    return mesh->graph == g;
}

static typed_attrs typed(weir_dtype dtype, const weir_shape *shape)
{
    typed_attrs attrs = {.dtype = dtype, .rank = shape->rank};
    memcpy(attrs.dim, shape->dim, sizeof attrs.dim);
    return attrs;
}

/* `what` is the word for it in mistakes. */
static weir_tensor *shard_to(weir_tensor *x, weir_mesh *mesh, weir_src src, const char *what, const char *name,
                             const weir_sbp *sbp)
{
    weir_graph *g = x->graph;
    if (!mesh_of_graph(g, src, "shard", mesh))
        return &g->poison;
    weir_scope scope = graph_scope_on(mesh);
    graph_node *node =
        graph_apply(&(weir_apply){.src = src, .name = name, .op = &op_shard, .in = &x, .in_count = 1, .graph = g});
    weir_scope_leave(&scope);
    if (!node || !sbp_set(g, src, what, &x->type, mesh, sbp, node->out[0]->sbp))
        return &g->poison;
    return node->out[0];
}

/* What a node on one device made, laid out over `mesh`. */
static weir_tensor *spread(graph_node *node, weir_mesh *mesh, weir_src src, const weir_sbp *sbp)
{
    weir_graph *g = mesh->graph;
    const char *slash = strrchr(node->name, '/'); /* the prefixes come again */
    char *name = pool_text(&g->pool, "%s.shard", slash ? slash + 1 : node->name);
    return name ? shard_to(node->out[0], mesh, src, node->name, name, sbp) : &g->poison;
}

weir_tensor *weir_input_at(weir_graph *graph, weir_dtype dtype, const weir_input_opts *given)
{
    weir_input_opts opts;
    if (!graph_opts(graph, "input", given, &opts, sizeof opts))
        return &graph->poison;
    weir_shape shape = shape_of(opts.shape);
    if (!shape_ok(graph, opts.src, "input", dtype, &shape))
        return &graph->poison;
    weir_mesh *mesh = graph_default_mesh(graph), *first = mesh ? mesh_first(mesh) : NULL;
    if (!first)
        return &graph->poison;
    typed_attrs attrs = typed(dtype, &shape);
    weir_scope scope = graph_scope_on(first);
    graph_node *node =
        graph_apply(&(weir_apply){.src = opts.src, .name = opts.name, .op = &op_source, .graph = graph, .attrs = &attrs});
    weir_scope_leave(&scope);
    if (!node)
        return &graph->poison;
    node->host = 1 + (opts.source ? PLAN_SOURCE : PLAN_PUSH);
    node->binding =
        (host_binding){.fn.source = opts.source, .ctx = opts.ctx, .save = opts.save, .restore = opts.restore};
    node->micro = node->out[0]->micro = opts.micro;
    return spread(node, mesh, opts.src, opts.sbp);
}

/* Which parameter or state is asked for; `what` is the word for it. */
typedef struct wanted {
    const char *what;
    weir_type type;
    int delay;
    const weir_param_opts *opts;
} wanted;

/* The one that is there, asked for by another program. */
static weir_tensor *register_again(weir_graph *g, weir_tensor *t, const wanted *w)
{
    uint32_t bit = UINT32_C(1) << g->program;
    char have[160], want[160];
    if (t->asked & bit)
        return weir_mistake(t, w->opts->src, "the name \"%s\" is already in use", t->name);
    if (t->type.dtype != w->type.dtype || !weir_shape_equal(&t->type.shape, &w->type.shape) || t->delay != w->delay)
        return weir_mistake(t, w->opts->src,
                            "%s: a %s of %s %s%s, but the one of this name, made at %s:%d, is a %s of %s %s", t->name,
                            w->what, weir_dtype_name(w->type.dtype),
                            shape_text(&w->type.shape, want, sizeof want), w->delay > 1 ? " with another delay" : "",
                            t->src.file ? t->src.file : "?", t->src.line, t->delay ? "state" : "parameter",
                            weir_dtype_name(t->type.dtype), shape_text(&t->type.shape, have, sizeof have));
    t->asked |= bit;
    return t;
}

/* A tensor that no op makes. */
static weir_tensor *register_new(weir_graph *g, graph_name *name, const wanted *w)
{
    const weir_param_opts *opts = w->opts;
    weir_tensor *t = graph_tensor_new(g);
    if (!t)
        return &g->poison;
    t->type = w->type;
    t->delay = w->delay;
    t->mesh = opts->mesh && mesh_of_graph(g, opts->src, opts->name, opts->mesh) ? opts->mesh : graph_default_mesh(g);
    t->name = name->name;
    t->init = opts->init;
    if (t->init.kind == WEIR_INIT_DEFAULT)
        t->init.kind = WEIR_INIT_ZERO;
    t->frozen = opts->frozen || w->type.dtype != WEIR_F32;
    t->trains = !t->frozen;
    t->src = opts->src;
    t->asked = UINT32_C(1) << g->program;
    name->shared = t;
    if (!t->mesh || !sbp_set(g, opts->src, opts->name, &t->type, t->mesh, opts->sbp, t->sbp))
        return &g->poison;
    for (int a = 0; a < WEIR_AXES_MAX; a++)
        if (t->sbp[a] == WEIR_P)
            return weir_mistake(t, opts->src, "%s: a %s cannot be P", opts->name, w->what);
    return t;
}

static weir_tensor *register_get(weir_graph *g, const wanted *w)
{
    const weir_param_opts *opts = w->opts;
    if (!opts->name)
        graph_mistake(g, opts->src, "%s: needs a .name: its initial values follow from it", w->what);
    if (!opts->name || !shape_ok(g, opts->src, opts->name, w->type.dtype, &w->type.shape) || weir_graph_mistake(g))
        return &g->poison;
    int names = g->names_count;
    graph_name *name = graph_shared_name(g, opts->name);
    if (!name)
        return &g->poison;
    if (name->shared)
        return register_again(g, name->shared, w);
    if (g->names_count == names) {
        graph_mistake(g, opts->src, "the name \"%s\" is already in use", name->name);
        return &g->poison;
    }
    return register_new(g, name, w);
}

weir_tensor *weir_param_at(weir_graph *graph, weir_dtype dtype, const weir_param_opts *given)
{
    weir_param_opts opts;
    if (!graph_opts(graph, "param", given, &opts, sizeof opts))
        return &graph->poison;
    return register_get(graph, &(wanted){"parameter", {dtype, shape_of(opts.shape)}, 0, &opts});
}

weir_tensor *weir_state_at(weir_graph *graph, weir_dtype dtype, const weir_state_opts *given)
{
    weir_state_opts opts;
    if (!graph_opts(graph, "state", given, &opts, sizeof opts))
        return &graph->poison;
    weir_param_opts like = {.src = opts.src, .name = opts.name, .mesh = opts.mesh, .init = opts.init, .frozen = true};
    memcpy(like.sbp, opts.sbp, sizeof like.sbp);
    if (opts.delay < 0 || opts.delay > DELAY_MAX) {
        graph_mistake(graph, opts.src, "%s: a delay of %d steps; from 1 to %d can be", opts.name ? opts.name : "state",
                      opts.delay, DELAY_MAX);
        return &graph->poison;
    }
    return register_get(graph, &(wanted){"state", {dtype, shape_of(opts.shape)}, opts.delay ? opts.delay : 1, &like});
}

void weir_fetch_at(weir_tensor *x, const weir_fetch_opts *given)
{
    weir_fetch_opts opts;
    if (!x || x->poisoned || !graph_opts(x->graph, "fetch", given, &opts, sizeof opts))
        return;
    const char *called = opts.name ? opts.name : graph_tensor_short_name(x);
    x = graph_copied(x, opts.src);
    if (x->poisoned)
        return;
    weir_graph *g = x->graph;
    weir_mesh *first = mesh_first(x->mesh);
    if (opts.slots < 0)
        graph_mistake(g, opts.src, "fetch: a register cannot have %d slots", opts.slots);
    char *name = pool_text(&g->pool, "fetch/%s", called);
    if (!first || !name)
        return;
    weir_scope scope = graph_scope_absolute(g, first, "");
    graph_node *node =
        graph_apply(&(weir_apply){.src = opts.src, .name = name, .op = &op_sink, .in = &x, .in_count = 1});
    weir_scope_leave(&scope);
    if (!node)
        return;
    /* the name that pull takes: the scope of names is its own */
    node->name = pool_text(&g->pool, "%s%s", g->programs.item[node->program].prefix, called);
    node->host = 1 + (opts.sink ? PLAN_SINK : PLAN_PULL);
    node->binding = (host_binding){.fn.sink = opts.sink, .ctx = opts.ctx};
    node->fetch_slots = opts.slots ? opts.slots : 2;
}

weir_tensor *weir_shard_at(weir_tensor *x, const weir_shard_opts *given)
{
    weir_shard_opts opts;
    if (!x || x->poisoned)
        return x;
    if (!graph_opts(x->graph, "shard", given, &opts, sizeof opts))
        return &x->graph->poison;
    return shard_to(x, opts.mesh ? opts.mesh : x->mesh, opts.src, "shard", opts.name, opts.sbp);
}

/* Where a call of these inputs would live if it were an op like others. */
static weir_mesh *call_mesh(weir_tensor *const *in, int in_count)
{
    for (int i = 0; i < in_count; i++)
        if (in[i]->node)
            return weir_mesh_for(in[i]);
    return weir_mesh_for(in[0]);
}

/* The function is called once, on the first device of the mesh; its value is then dealt out to the others. */
static weir_tensor *call_on(weir_mesh *mesh, weir_kernel_fn fn, const weir_call_opts *opts, const weir_apply *apply)
{
    weir_graph *g = mesh->graph;
    weir_mesh *first = mesh_first(mesh);
    if (!first)
        return &g->poison;
    weir_scope scope = graph_scope_on(first);
    graph_node *node = graph_apply(apply);
    weir_scope_leave(&scope);
    if (!node)
        return &g->poison;
    node->host = 1 + PLAN_CALL;
    node->binding = (host_binding){.fn.call = fn, .ctx = opts->ctx};
    node->out[0]->trains = false;
    return first == mesh ? node->out[0] : spread(node, mesh, opts->src, (weir_sbp[WEIR_AXES_MAX]){WEIR_AUTO});
}

weir_tensor *weir_call_at(weir_kernel_fn fn, const weir_call_opts *given)
{
    weir_call_opts opts;
    weir_tensor *first = given ? given->in[0] : NULL;
    if (!first && opts_read(&opts, sizeof opts, given, "call"))
        return NULL;
    if (first && !graph_opts(first->graph, "call", given, &opts, sizeof opts))
        return &first->graph->poison;
    int in_count = 0;
    while (in_count < 8 && opts.in[in_count])
        in_count++;
    if (!in_count) {
        error_set(WEIR_E_ARGUMENT, "%s:%d: call: needs at least one input", opts.src.file, opts.src.line);
        return NULL;
    }
    weir_graph *g = opts.in[0]->graph;
    weir_shape shape = shape_of(opts.shape);
    if (!fn)
        return weir_mistake(opts.in[0], opts.src, "call: the function is NULL");
    if (!shape_ok(g, opts.src, "call", opts.dtype, &shape))
        return &g->poison;
    typed_attrs attrs = typed(opts.dtype, &shape);
    weir_mesh *mesh = opts.in[0]->poisoned ? NULL : call_mesh(opts.in, in_count);
    return mesh ? call_on(mesh, fn, &opts,
                          &(weir_apply){.src = opts.src, .name = opts.name, .op = &op_call, .in = opts.in,
                                        .in_count = in_count, .attrs = &attrs})
                : &g->poison;
}
