/* graph/model/autograd.c: the backward graph.
 *
 * Nodes are visited from the loss towards the inputs; each asks its op's gradient builder for the gradients of its
 * inputs given those of its outputs. Gradients are ordinary graph: the passes below do not know that it is a gradient, except
 * by its phase.
 *
 * A tensor with several readers has several contributions, which are added when its producer is reached: by then all
 * readers have been visited. Where there are more than a few (a weight that every layer uses), they are added as they
 * come, a few at a time and in their order, so that no more than these have to be kept. A parameter has no producer, so its readers are counted, and its gradient is handed over
 * with the last of them: early enough that reducing it over devices overlaps with the rest of the backward pass.
 *
 * A gradient has the line of the op that it is the gradient of, and a sum of gradients that of the tensor whose they are.
 *
 * A tensor that the user has cast to half precision may get a gradient in f32 (a weight's is a long sum), and the cast's own
 * gradient hands it on as it is. Contributions of several dtypes are added in f32; other ops than the cast are given the
 * gradient in the dtype of what they made.
 */
#include "graph/model/build.h"
#include "kernels/common/ops.h"

#include <string.h>

enum { TERMS_MAX = 4 }; /* contributions to one tensor that wait to be added */

typedef struct contribution {
    weir_tensor *gradient;
    struct contribution *next;
} contribution;

typedef struct backward {
    weir_graph *graph;
    contribution **of;   /* by tensor id, newest first: at most TERMS_MAX */
    int *terms;          /* by tensor id: how many */
    int *readers;        /* by tensor id: nodes on the way to the loss still to be visited */
    bool *reaches;       /* by node id: the loss depends on it */
    int tensors;         /* that existed when it began */
    autograd_done done;
    void *ctx;
} backward;

/* `x` in another dtype, on its own mesh. */
static weir_tensor *cast_to(backward *b, weir_tensor *x, weir_dtype dtype)
{
    if (x->type.dtype == dtype)
        return x;
    weir_scope scope = graph_scope_absolute(b->graph, x->mesh, pool_text(&b->graph->pool, "%s.", x->name));
    weir_tensor *y = weir_cast_at(x, dtype, WEIR_OPTS_AT(x->src, weir_op_opts, .name = weir_name_for(x, NULL, "cast")));
    weir_scope_leave(&scope);
    return y;
}

/* Terms of a sum are of one dtype: f32, when they differ. */
static void make_alike(backward *b, weir_tensor **terms, int count)
{
    bool alike = true;
    for (int i = 1; i < count; i++)
        alike &= terms[i]->type.dtype == terms[0]->type.dtype;
    for (int i = 0; i < count && !alike; i++)
        terms[i] = cast_to(b, terms[i], WEIR_F32);
}

/* Their sum, on t's mesh. */
static weir_tensor *sum_of(backward *b, weir_tensor *t, weir_tensor **terms, int count)
{
    make_alike(b, terms, count);
    weir_scope scope = graph_scope_absolute(b->graph, t->mesh, pool_text(&b->graph->pool, "%s.grad/", t->name));
    const char *name = weir_name_for(t, NULL, "sum");
    weir_tensor *sum = weir_add_many_at(terms, count, WEIR_OPTS_AT(t->src, weir_op_opts, .name = name));
    weir_scope_leave(&scope);
    return sum;
}

/* The sum of the contributions to t that wait, on t's mesh; NULL when there are none. */
static weir_tensor *collect(backward *b, weir_tensor *t)
{
    weir_tensor *all[TERMS_MAX];
    int count = 0;
    for (contribution *c = b->of[t->id]; c; c = c->next)
        all[count++] = c->gradient;
    return count > 1 ? sum_of(b, t, all, count) : count ? all[0] : NULL;
}

static void contribute(backward *b, weir_tensor *to, weir_tensor *gradient)
{
    contribution *c = POOL_NEW(&b->graph->pool, contribution, 1), *sum = NULL;
    bool full = b->terms[to->id] == TERMS_MAX;
    if (!c || (full && !(sum = POOL_NEW(&b->graph->pool, contribution, 1))))
        return;
    if (full) {
        *sum = (contribution){collect(b, to), NULL};
        b->of[to->id] = sum;
        b->terms[to->id] = 1;
    }
    *c = (contribution){gradient, b->of[to->id]};
    b->of[to->id] = c;
    b->terms[to->id]++;
}

/* Marks what the loss depends on, and counts the readers of each tensor among it. */
static void mark(backward *b, const weir_tensor *loss)
{
    weir_graph *g = b->graph;
    b->reaches[loss->node->id] = true;
    for (int n = loss->node->id; n >= 0; n--) {
        const graph_node *node = g->nodes.item[n];
        if (!b->reaches[n])
            continue;
        for (int i = 0; i < node->in_count; i++) {
            b->readers[node->in[i]->id]++;
            if (node->in[i]->node)
                b->reaches[node->in[i]->node->id] = true;
        }
    }
}

static void read_once_less(backward *b, weir_tensor *t)
{
    if (--b->readers[t->id] || t->node || !t->trains)
        return;
    weir_tensor *gradient = t->gradient = collect(b, t);
    if (gradient)
        b->done(b->ctx, t, cast_to(b, gradient, t->type.dtype));
}

/* The tensor that a gradient builder is to read for `t`: what a cheap op made is made again, on the mesh where it was. */
static weir_tensor *for_backward(weir_graph *g, weir_tensor *t)
{
    const graph_node *from = t->node;
    if (!g->recompute || !from || !from->op->cheap || from->out[0] != t || from->phase != PLAN_FORWARD)
        return t;
    if (!t->again) {
        weir_scope scope = graph_scope_absolute(g, from->mesh, "");
        graph_node *node = graph_apply(&(weir_apply){.src = from->src,
                                                     .name = pool_text(&g->pool, "%s.again", from->name),
                                                     .op = from->op,
                                                     .in = from->in,
                                                     .in_count = from->in_count,
                                                     .attrs = from->attrs});
        weir_scope_leave(&scope);
        t->again = node ? node->out[0] : t;
    }
    return t->again;
}

/* The gradient of a half may be f32. */
static bool gradient_dtype_ok(weir_dtype of, weir_dtype gradient)
{
    return gradient == of || (weir_dtype_real(of) && gradient == WEIR_F32);
}

/* Holds a gradient builder to what <weir/op.h> asks of it. */
static bool gradients_ok(const graph_node *node, const bool *needed, weir_tensor *const *din)
{
    weir_graph *g = node->out[0]->graph;
    for (int i = 0; i < node->in_count; i++) {
        const weir_type *type = &node->in[i]->type;
        if (!needed[i] || (din[i] && din[i]->poisoned))
            continue;
        if (!din[i])
            graph_mistake(g, node->src, "%s: its gradient builder made none for input %d", node->op->name, i);
        else if (!gradient_dtype_ok(type->dtype, din[i]->type.dtype) || !weir_shape_equal(&din[i]->type.shape, &type->shape))
            graph_mistake(g, node->src, "%s: its gradient for input %d has another type than the input", node->op->name, i);
    }
    return !weir_graph_mistake(g);
}

/* Calls the op's builder and files what it made. */
static void node_backward(backward *b, graph_node *node, weir_tensor *const *dout)
{
    weir_graph *g = b->graph;
    bool *needed = POOL_NEW(&g->pool, bool, node->in_count);
    weir_tensor **din = POOL_NEW(&g->pool, weir_tensor *, node->in_count);
    weir_tensor **in = POOL_NEW(&g->pool, weir_tensor *, node->in_count);
    if (!needed || !din || !in)
        return;
    for (int i = 0; i < node->in_count; i++) {
        needed[i] = node->in[i]->trains;
        in[i] = for_backward(g, node->in[i]);
    }
    if (!node->op->grad) {
        graph_mistake(g, node->src, "%s: has no gradient, and lies between the loss and what is trained",
                      node->op->name);
        return;
    }
    weir_grad_args args = {.graph = g, .src = node->src, .in = in, .in_count = node->in_count, .out = node->out,
                           .dout = dout, .out_count = node->out_count, .attrs = node->attrs, .needed = needed,
                           .din = din};
    weir_scope scope = graph_scope_absolute(g, node->mesh, pool_text(&g->pool, "%s.grad/", node->name));
    g->forward = node;
    node->op->grad(&args);
    g->forward = NULL;
    weir_scope_leave(&scope);
    node->gradients = din;
    for (int i = 0; i < node->in_count && gradients_ok(node, needed, din); i++)
        if (needed[i])
            contribute(b, node->in[i], din[i]);
}

static void node_visit(backward *b, graph_node *node)
{
    weir_tensor *dout[8] = {0};
    bool flows = false, trains = false;
    for (int i = 0; i < node->out_count; i++) {
        node->out[i]->gradient = dout[i] = collect(b, node->out[i]);
        if (dout[i] && node->op != &op_cast)
            dout[i] = cast_to(b, dout[i], node->out[i]->type.dtype);
        flows |= dout[i] != NULL;
        trains |= node->out[i]->trains;
    }
    if (flows && trains)
        node_backward(b, node, dout);
    for (int i = 0; i < node->in_count; i++)
        read_once_less(b, node->in[i]);
}

bool autograd(weir_tensor *loss, weir_tensor *seed, autograd_done done, void *ctx)
{
    weir_graph *g = loss->graph;
    int nodes = loss->node->id + 1;
    backward b = {.graph = g, .tensors = g->tensors.count, .done = done, .ctx = ctx};
    b.of = POOL_NEW(&g->pool, contribution *, b.tensors);
    b.readers = POOL_NEW(&g->pool, int, b.tensors);
    b.terms = POOL_NEW(&g->pool, int, b.tensors);
    b.reaches = POOL_NEW(&g->pool, bool, nodes);
    if (g->pool.failed)
        return false;
    mark(&b, loss);
    contribute(&b, loss, seed);
    for (int n = nodes - 1; n >= 0 && !weir_graph_mistake(g); n--)
        if (b.reaches[n])
            node_visit(&b, g->nodes.item[n]);
    return !weir_graph_mistake(g);
}
