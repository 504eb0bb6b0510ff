/* graph/model/state.c: what a state is set to.
 *
 * Setting is an update, as an optimizer's: a node of the last phase that writes the state's register in place, once all
 * of the step have read it. With a delay of D the register has D slots, all full at the start; so the slot that is free
 * then is the oldest, and what is written there is read D steps later. Nothing else is needed: no op knows of states.
 *
 * An update may read its own state (an append does) and nothing else that a step begins with: two updates of one actor
 * run one after the other, so the second would see what the first has just written, and two that read each other's
 * states would wait for each other. The input of an update is therefore computed, or copied, before.
 */
#include "graph/base/base.h"
#include "graph/model/build.h"
#include "kernels/common/ops.h"

#include <string.h>

static weir_tensor *apply_on(weir_mesh *mesh, weir_src src, const char *name, const weir_op *op, weir_tensor **in,
                             int in_count)
{
    weir_graph *g = mesh->graph;
    weir_scope scope = graph_scope_absolute(g, mesh, "");
    graph_node *node =
        graph_apply(&(weir_apply){.src = src, .name = name, .op = op, .graph = g, .in = in, .in_count = in_count});
    weir_scope_leave(&scope);
    return node ? node->out[0] : &g->poison;
}

weir_tensor *graph_copied(weir_tensor *x, weir_src src)
{
    const weir_tensor *from = x;
    while (from->node && from->node->op == &op_shard)
        from = from->node->in[0];
    if (x->poisoned || from->node)
        return x;
    char *name = pool_text(&x->graph->pool, "%s.copy", graph_tensor_short_name(x));
    weir_scope scope = graph_scope_absolute(x->graph, x->mesh, "");
    const char *fresh = name ? weir_name_for(x, NULL, name) : NULL;
    weir_tensor *copy = fresh ? apply_on(x->mesh, src, fresh, &op_copy, &x, 1) : &x->graph->poison;
    weir_scope_leave(&scope);
    return copy;
}

/* Whether the state can be set, here and to values of this type. `verb` is what is done. */
static bool set_ok(weir_tensor *state, const weir_tensor *value, weir_src src, const char *verb)
{
    weir_graph *g = state->graph;
    if (!state->delay)
        graph_mistake(g, src, "%s: \"%s\" is no state", verb, state->name);
    else if (value->graph != g) {
        graph_mistake(g, src, "%s: \"%s\" belongs to another graph", verb, value->name);
        graph_mistake(value->graph, src, "%s: the state \"%s\" belongs to another graph", verb, state->name);
    } else if (state->update)
        graph_mistake(g, src, "%s: \"%s\" is set already, at %s:%d", verb, state->name,
                      state->update->src.file ? state->update->src.file : "?", state->update->src.line);
    else if (value->micro)
        graph_mistake(g, src, "%s: \"%s\" exists once for every micro-batch, but a state is set once a step", verb,
                      value->name);
    return !weir_graph_mistake(g) && graph_use(state, src);
}

/* A tensor that is not NULL knows the graph that keeps the mistake. */
static bool given(weir_tensor *state, weir_tensor *value, weir_src src, const char *verb)
{
    const weir_tensor *other = state ? state : value;
    if (!state || !value)
        graph_mistake(other ? other->graph : NULL, src, "%s: the %s is NULL", verb, state ? "value" : "state");
    return state && value && !state->poisoned && !value->poisoned;
}

static bool type_ok(const weir_tensor *state, const weir_tensor *value, weir_src src)
{
    const weir_type *a = &state->type, *b = &value->type;
    char want[160], have[160];
    if (a->dtype == b->dtype && weir_shape_equal(&a->shape, &b->shape))
        return true;
    graph_mistake(state->graph, src, "state_set: \"%s\" is %s %s, the value \"%s\" is %s %s", state->name,
                  weir_dtype_name(a->dtype), shape_text(&a->shape, want, sizeof want), value->name,
                  weir_dtype_name(b->dtype), shape_text(&b->shape, have, sizeof have));
    return false;
}

/* From here on `op` of these makes what the state is next. */
static void update(weir_tensor *state, weir_src src, const char *verb, const weir_op *op, weir_tensor **in,
                   int in_count)
{
    weir_graph *g = state->graph;
    plan_phase before = g->phase;
    char *name = pool_text(&g->pool, "%s.%s", state->name, verb);
    g->phase = PLAN_UPDATE;
    weir_tensor *out = name ? apply_on(state->mesh, src, name, op, in, in_count) : &g->poison;
    g->phase = before;
    if (out->poisoned)
        return;
    out->node->updates = state;
    state->update = out->node;
}

void weir_state_set_at(weir_tensor *state, weir_tensor *value, weir_src src)
{
    if (!given(state, value, src, "state_set") || !set_ok(state, value, src, "state_set") ||
        !type_ok(state, value, src))
        return;
    value = graph_copied(value, src);
    if (!value->poisoned)
        update(state, src, "set", &op_copy, &value, 1);
}

void weir_state_append_at(weir_tensor *state, weir_tensor *rows, weir_tensor *position, weir_src src)
{
    if (!given(state, rows, src, "state_append") || !given(state, position, src, "state_append") ||
        !set_ok(state, rows, src, "state_append") || !set_ok(state, position, src, "state_append"))
        return;
    if (state->delay > 1) {
        graph_mistake(state->graph, src, "state_append: the state \"%s\" has .delay = %d; weir_state_append() needs a state with .delay = 1",
                      state->name, state->delay);
        return;
    }
    weir_tensor *in[3] = {state, graph_copied(rows, src), graph_copied(position, src)};
    if (!in[1]->poisoned && !in[2]->poisoned)
        update(state, src, "append", &op_append, in, 3);
}
