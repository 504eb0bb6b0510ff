/* graph/model/ends.c: where a graph meets the outside: parameters, fetches, and the explicit layouts that the user
 * writes. Inputs are in input.c, calls in call.c.
 *
 * A value that varies in size is two tensors, the value and its length, and wherever one goes the other does.
 *
 * A fetched parameter is copied: whoever pulls late would otherwise hold up its update.
 */
#include "graph/model/ends.h"
#include "graph/base/base.h"
#include "graph/base/error.h"
#include "graph/base/names.h"
#include "kernels/common/ops.h"

#include <math.h>
#include <string.h>

enum { DELAY_MAX = 1 << 16 };

weir_shape ends_shape(const int64_t *dim)
{
    weir_shape shape = {0};
    while (shape.rank < WEIR_DIMS_MAX && dim[shape.rank]) {
        shape.dim[shape.rank] = dim[shape.rank];
        shape.rank++;
    }
    return shape;
}

/* A 0 ends the shape, so nothing may follow it. Reports. */
static bool shape_ends(weir_graph *g, weir_src src, const char *what, const int64_t *dim)
{
    const int rank = ends_shape(dim).rank;
    for (int d = rank; d < WEIR_DIMS_MAX; d++)
        if (dim[d]) {
            graph_mistake(g, src, "%s: dimension %d is 0, and %lld follows it; a dimension is at least 1", what, rank,
                          (long long)dim[d]);
            return false;
        }
    return true;
}

/* Whether the shape can be a tensor's: sizes of at least 1, bytes that fit. Reports. */
bool ends_shape_ok(weir_graph *g, weir_src src, const char *what, weir_dtype dtype, const int64_t *dim)
{
    const weir_shape shape = ends_shape(dim);
    bool sizes = shape_countable(&shape);
    if (!weir_dtype_bytes(dtype)) {
        graph_mistake(g, src, "%s: there is no dtype %d; there are " DTYPES_TEXT, what, (int)dtype);
        return false;
    }
    for (int d = 0; d < shape.rank; d++)
        sizes &= shape.dim[d] >= 1;
    if (!sizes) {
        char text[160];
        graph_mistake(g, src, "%s: %s is not a valid shape: each dimension must be at least 1, and there may be at most "
                      "2^57 - 1 elements", what, shape_text(&shape, text, sizeof text));
    }
    return sizes && shape_ends(g, src, what, dim);
}

static bool sbp_fits(const weir_type *type, weir_sbp sbp)
{
    if (WEIR_IS_S(sbp))
        return WEIR_S_DIM(sbp) >= 0 && WEIR_S_DIM(sbp) < type->shape.rank;
    return sbp == WEIR_B || (sbp == WEIR_P && weir_dtype_real(type->dtype));
}

/* Copies the user's SBP to `to`, with negative dimensions counted from the end. Reports what cannot be. */
bool ends_sbp(weir_graph *g, weir_src src, const char *what, const weir_type *type, const weir_mesh *mesh,
                    const weir_sbp *from, weir_sbp *to)
{
    char text[16], place[64], shape[160];
    for (int a = 0; a < WEIR_AXES_MAX; a++) {
        weir_sbp sbp = from[a];
        if (sbp == WEIR_AUTO)
            continue;
        if (a >= mesh->axes) {
            graph_mistake(g, src, "%s: %s for mesh axis %d, but the mesh %s has only %d ax%s", what, weir_sbp_text(sbp, text), a,
                          mesh_text(mesh, place, sizeof place), mesh->axes, mesh->axes == 1 ? "is" : "es");
            return false;
        }
        if (WEIR_IS_S(sbp) && WEIR_S_DIM(sbp) < 0)
            sbp += type->shape.rank;
        if (sbp > 0 && sbp < WEIR_DIMS_MAX) {
            graph_mistake(g, src, "%s: .sbp has the number %d on axis %d of the mesh %s; write WEIR_S(%d), WEIR_B or "
                          "WEIR_P", what, sbp, a, mesh_text(mesh, place, sizeof place), sbp);
            return false;
        }
        if (!sbp_fits(type, sbp)) {
            graph_mistake(g, src, "%s: %s on axis %d of the mesh %s does not fit a tensor %s %s%s", what,
                          weir_sbp_text(from[a], text), a, mesh_text(mesh, place, sizeof place),
                          weir_dtype_name(type->dtype), shape_text(&type->shape, shape, sizeof shape),
                          sbp == WEIR_P ? ": integers have no partial sums" : "");
            return false;
        }
        to[a] = sbp;
    }
    return true;
}

bool ends_by_hand(weir_graph *g, weir_src src, const char *what, const weir_type *type, const weir_mesh *mesh,
                  const weir_sbp *from, weir_sbp *to)
{
    if (!ends_sbp(g, src, what, type, mesh, from, to))
        return false;
    for (int a = 0; a < mesh->axes; a++)
        to[a] = to[a] == WEIR_AUTO ? WEIR_B : to[a];
    return true;
}

/* A mesh lives as long as its own graph. Reports. */
static bool mesh_of_graph(weir_graph *g, weir_src src, const char *what, const weir_mesh *mesh)
{
    if (mesh->graph != g)
        graph_mistake(g, src, "%s: the mesh belongs to another graph", what);
    return mesh->graph == g;
}

typed_attrs ends_typed(weir_dtype dtype, const weir_shape *shape)
{
    typed_attrs attrs = {.dtype = dtype, .rank = shape->rank};
    memcpy(attrs.dim, shape->dim, sizeof attrs.dim);
    return attrs;
}

static weir_tensor *shard_to(weir_tensor *x, weir_mesh *mesh, weir_src src, const char *what, const char *name,
                             const weir_sbp *sbp);

/* The last part of a name; prefixes come again. */
static const char *name_behind(const weir_tensor *x)
{
    const char *slash = strrchr(x->name, '/');
    return slash ? slash + 1 : x->name;
}

/* A value that varies in size takes its length along, and is whole. */
static weir_tensor *shard_length(const weir_tensor *x, weir_tensor *to, weir_src src)
{
    weir_graph *g = x->graph;
    for (int a = 0; a < WEIR_AXES_MAX; a++) {
        if (to->sbp[a] != WEIR_AUTO && to->sbp[a] != WEIR_B)
            return weir_mistake(to, src, "shard: \"%s\" varies in size, so its .sbp must be WEIR_B", x->name);
        to->sbp[a] = a < to->mesh->axes ? WEIR_B : WEIR_AUTO;
    }
    char *name = pool_text(&g->pool, "%s.length", name_behind(to));
    if (!name)
        return &g->poison;
    to->length = shard_to(x->length, to->mesh, src, "shard", name, to->sbp);
    return to->length->poisoned ? &g->poison : to;
}

/* The mapped tensor, or a mistake: it lies in one piece of a file, which CPUs read. */
static weir_tensor *mapped_lies(weir_tensor *t, weir_src src, const char *name)
{
    char place[64], sbp[8];
    if (t->mesh->kind != WEIR_CPU)
        return weir_mistake(t, src, "%s: a parameter that is .mapped is on CPUs, not on %s; without .mapped, "
                            "weir_session_load() copies it there", name, mesh_text(t->mesh, place, sizeof place));
    for (int a = 0; a < WEIR_AXES_MAX; a++)
        if (WEIR_IS_S(t->sbp[a]) && WEIR_S_DIM(t->sbp[a]))
            return weir_mistake(t, src, "%s: a parameter that is .mapped is B or S(0), not %s", name,
                                weir_sbp_text(t->sbp[a], sbp));
    return t;
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
    if (!node || !ends_sbp(g, src, what, &x->type, mesh, sbp, node->out[0]->sbp))
        return &g->poison;
    node->out[0]->mapped = x->mapped;
    if (x->mapped)
        return mapped_lies(node->out[0], src, x->name);
    return x->length ? shard_length(x, node->out[0], src) : node->out[0];
}

/* The output of a node on one device, laid out over `mesh`. */
weir_tensor *ends_spread(weir_tensor *x, weir_mesh *mesh, weir_src src, const weir_sbp *sbp)
{
    weir_graph *g = mesh->graph;
    char *name = pool_text(&g->pool, "%s.shard", name_behind(x));
    return name ? shard_to(x, mesh, src, x->node->name, name, sbp) : &g->poison;
}

/* The queue of a node that calls a function of the program's. */
void ends_queue(graph_node *node, const char *queue)
{
    if (queue)
        node->queue = pool_text(&node->in_graph->pool, "%s", queue);
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
        return graph_name_taken(g, w->opts->src, t->name), &g->poison;
    if (t->type.dtype != w->type.dtype || !weir_shape_equal(&t->type.shape, &w->type.shape) || t->delay != w->delay)
        return weir_mistake(t, w->opts->src,
                            "%s: a %s of %s %s%s, but the one of this name, made at %s:%d, is a %s of %s %s", t->name,
                            w->what, weir_dtype_name(w->type.dtype),
                            shape_text(&w->type.shape, want, sizeof want), w->delay > 1 ? " with another delay" : "",
                            t->src.file ? t->src.file : "?", t->src.line, t->delay ? "state" : "parameter",
                            weir_dtype_name(t->type.dtype), shape_text(&t->type.shape, have, sizeof have));
    if (t->mapped != w->opts->mapped)
        return weir_mistake(t, w->opts->src, "%s: is %s here, and %s at %s:%d; both must be the same", t->name,
                            w->opts->mapped ? ".mapped" : "not .mapped", t->mapped ? ".mapped" : "not .mapped",
                            t->src.file ? t->src.file : "?", t->src.line);
    t->asked |= bit;
    return t->average && graph_program_now(g)->averages ? t->average : t;
}

/* The tensor, or a mistake. */
static weir_tensor *mapped_ok(weir_tensor *t, const weir_param_opts *opts)
{
    if (!t->frozen)
        return weir_mistake(t, opts->src, "%s: a parameter that is .mapped cannot be trained; add .frozen = true", opts->name);
    if (opts->init.kind != WEIR_INIT_DEFAULT)
        return weir_mistake(t, opts->src, "%s: a parameter that is .mapped has the values of a file, and no .init", opts->name);
    return mapped_lies(t, opts->src, opts->name);
}

/* A tensor that no op makes. */
static weir_tensor *register_new(weir_graph *g, graph_name *name, const wanted *w)
{
    const weir_param_opts *opts = w->opts;
    char place[64];
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
    t->mapped = opts->mapped;
    t->trains = !t->frozen;
    t->src = opts->src;
    t->asked = UINT32_C(1) << g->program;
    name->shared = t;
    if (!t->mesh || !ends_sbp(g, opts->src, opts->name, &t->type, t->mesh, opts->sbp, t->sbp))
        return &g->poison;
    for (int a = 0; a < WEIR_AXES_MAX; a++)
        if (t->sbp[a] == WEIR_P)
            return weir_mistake(t, opts->src, "%s: a %s cannot be P, as on axis %d of the mesh %s", opts->name, w->what,
                                a, mesh_text(t->mesh, place, sizeof place));
    return t->mapped ? mapped_ok(t, opts) : t;
}

#define INIT_KINDS "write WEIR_VALUE(value), WEIR_NORMAL(deviation) or WEIR_UNIFORM(low, high)"

/* A number without a kind is a mistake that would pass for the default. NaN is nothing to begin with; infinite can be a
 * value, no bound or deviation. Reports. */
static bool init_ok(weir_graph *g, const weir_param_opts *opts)
{
    const weir_init *init = &opts->init;
    const bool drawn = init->kind == WEIR_INIT_NORMAL || init->kind == WEIR_INIT_UNIFORM;
    if ((int)init->kind < 0 || init->kind >= WEIR_INIT_KINDS)
        graph_mistake(g, opts->src, "%s: there is no kind of .init with the number %d; " INIT_KINDS, opts->name,
                      (int)init->kind);
    else if (init->kind == WEIR_INIT_DEFAULT && (init->a != 0 || signbit(init->a) || init->b != 0))
        graph_mistake(g, opts->src, "%s: .init has the number %g and no kind; " INIT_KINDS, opts->name,
                      init->a != 0 ? init->a : init->b);
    else if (init->kind == WEIR_INIT_ZERO && (init->a != 0 || init->b != 0))
        graph_mistake(g, opts->src, "%s: .init has the kind WEIR_INIT_ZERO and the number %g; " INIT_KINDS, opts->name,
                      init->a != 0 ? init->a : init->b);
    else if (isnan(init->a) || isnan(init->b) || (drawn && !(isfinite(init->a) && isfinite(init->b))))
        graph_mistake(g, opts->src, "%s: .init has the numbers %g and %g; both must be finite", opts->name, init->a, init->b);
    else if (init->kind == WEIR_INIT_NORMAL && init->a < 0)
        graph_mistake(g, opts->src, "%s: .init has a standard deviation of %g; it must be 0 or more", opts->name, init->a);
    else if (init->kind == WEIR_INIT_UNIFORM && init->a > init->b)
        graph_mistake(g, opts->src, "%s: .init goes from %g down to %g; the first number must not be above the second", opts->name, init->a, init->b);
    return !weir_graph_mistake(g);
}

static weir_tensor *register_get(weir_graph *g, const wanted *w)
{
    const weir_param_opts *opts = w->opts;
    if (!g) {
        graph_mistake(NULL, opts->src, "%s: the graph is NULL", opts->name ? opts->name : w->what);
        return NULL;
    }
    if (!opts->name)
        graph_mistake(g, opts->src, "%s: needs a .name: its initial values follow from it", w->what);
    if (!opts->name || !ends_shape_ok(g, opts->src, opts->name, w->type.dtype, opts->shape) || !init_ok(g, opts) ||
        !graph_scope_ok(g, opts->src, opts->name) || weir_graph_mistake(g))
        return &g->poison;
    int names = g->names_count;
    graph_name *name = graph_shared_name(g, opts->src, opts->name);
    if (!name)
        return &g->poison;
    if (name->shared)
        return register_again(g, name->shared, w);
    if (g->names_count == names) {
        graph_name_taken(g, opts->src, name->name);
        return &g->poison;
    }
    return register_new(g, name, w);
}

weir_tensor *weir_param_at(weir_graph *graph, weir_dtype dtype, const weir_param_opts *given)
{
    weir_param_opts opts;
    if (!graph_opts(graph, "param", given, &opts, sizeof opts))
        return &graph->poison;
    return register_get(graph, &(wanted){"parameter", {dtype, ends_shape(opts.shape)}, 0, &opts});
}

weir_tensor *weir_state_at(weir_graph *graph, weir_dtype dtype, const weir_state_opts *given)
{
    weir_state_opts opts;
    if (!graph_opts(graph, "state", given, &opts, sizeof opts))
        return &graph->poison;
    weir_param_opts like = {.src = opts.src, .name = opts.name, .mesh = opts.mesh, .init = opts.init, .frozen = true};
    memcpy(like.sbp, opts.sbp, sizeof like.sbp);
    memcpy(like.shape, opts.shape, sizeof like.shape);
    if (opts.delay < 0 || opts.delay > DELAY_MAX) {
        graph_mistake(graph, opts.src, "%s: a delay of %d steps; from 1 to %d can be", opts.name ? opts.name : "state",
                      opts.delay, DELAY_MAX);
        return graph ? &graph->poison : NULL;
    }
    return register_get(graph, &(wanted){"state", {dtype, ends_shape(opts.shape)}, opts.delay ? opts.delay : 1, &like});
}

void weir_fetch_at(weir_tensor *x, const weir_fetch_opts *given)
{
    weir_fetch_opts opts;
    if (!graph_opts(x ? x->graph : NULL, "fetch", given, &opts, sizeof opts))
        return;
    if (!x)
        graph_mistake(NULL, opts.src, "fetch: the tensor%s%s is NULL", opts.name ? " of " : "",
                      opts.name ? opts.name : "");
    if (!x || x->poisoned)
        return;
    const char *called = opts.name ? opts.name : graph_tensor_short_name(x);
    x = graph_copied(x, opts.src);
    if (x->poisoned)
        return;
    weir_graph *g = x->graph;
    weir_mesh *first = mesh_first(x->mesh);
    if (opts.slots < 0)
        graph_mistake(g, opts.src, "fetch: .slots is %d; it must be 1 or more, or 0 for the default", opts.slots);
    char *name = pool_text(&g->pool, "fetch/%s", called);
    if (!first || !name || graph_fetch_taken(g, opts.src, called))
        return;
    if (x->length && !opts.sink) {
        graph_mistake(g, opts.src, "fetch: \"%s\" varies in size: it needs a sink, or weir_length() of it is fetched",
                      x->name);
        return;
    }
    weir_tensor *in[] = {x, x->length};
    weir_scope scope = graph_scope_absolute(g, first, "");
    graph_node *node = graph_apply(
        &(weir_apply){.src = opts.src, .name = name, .op = &op_sink, .in = in, .in_count = x->length ? 2 : 1});
    weir_scope_leave(&scope);
    if (!node)
        return;
    /* the name that pull takes: the scope of names is its own */
    node->name = pool_text(&g->pool, "%s%s", g->programs.item[node->program].prefix, called);
    node->host = 1 + (opts.sink ? PLAN_SINK : PLAN_PULL);
    node->binding = (callback_binding){.fn.sink = opts.sink, .ctx = opts.ctx};
    node->fetch_slots = opts.slots ? opts.slots : 2;
    ends_queue(node, opts.sink ? opts.queue : NULL);
}

weir_tensor *weir_shard_at(weir_tensor *x, const weir_shard_opts *given)
{
    weir_shard_opts opts;
    const bool read = graph_opts(x ? x->graph : NULL, "shard", given, &opts, sizeof opts);
    if (!x)
        graph_mistake(NULL, opts.src, "shard: the tensor is NULL");
    if (!x || !read || x->poisoned || !graph_scope_ok(x->graph, opts.src, "shard"))
        return x ? &x->graph->poison : NULL;
    return shard_to(x, opts.mesh ? opts.mesh : x->mesh, opts.src, "shard", opts.name, opts.sbp);
}
