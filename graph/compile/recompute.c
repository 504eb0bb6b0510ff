/* graph/compile/recompute.c: see recompute.h; what is repeated, where it stands, and the graph with it.
 *
 * What is repeated follows from what is dropped in one walk against the flow. Where it stands follows in another: each
 * repetition belongs to the first node of a later phase that reads it, or reads what is made of it, and stands right
 * before that one, in the order of forward. Conversions that a later phase asks for stand in forward, right behind what
 * they convert; of a dropped tensor they move back in the same way.
 *
 * A repetition needs nothing of the backward phase, so nothing would hold it back. It is therefore told of a tensor
 * that its first reader waits for (`after`), a gradient as a rule, and the group pass takes it to come as late as that.
 *
 * A parameter that is split (ZeRO) is gathered once a step, for all that read it. It is repeatable where the step has
 * one micro-batch; with more, those of forward and backward alternate. When it is dropped, both the gathering of
 * forward and its repetition become a part of the actors that read it: then a weight is there whole while one layer is
 * computed, and the shards are read once more.
 *
 * Not repeated is what has effects or a state, what the program around weir makes, what moves from one mesh to another
 * (the pass would repeat a whole stage for it), what is made once a step for several micro-batches, and what reads a
 * state that forward itself changes.
 */
#include "graph/compile/recompute.h"
#include "graph/base/error.h"
#include "kernels/core/core.h"
#include "kernels/ops.h"

#include <limits.h>
#include <string.h>

static const ir_tensor *tensor_at(const recompute *x, int t)
{
    return &x->base.tensors.item[t];
}

static bool is_later(const ir_node *node)
{
    return node->phase != PLAN_FORWARD;
}

/* ---- what there is ---- */

/* Whether what it begins with is another value already when the backward phase reads it. */
static bool changes_in_forward(const recompute *x, int t)
{
    const ir_tensor *from = tensor_at(x, t);
    return from->node < 0 && from->update >= 0 && !is_later(&x->base.node[from->update]);
}

static bool moves_away(const recompute *x, const ir_node *node)
{
    return node->op == &op_box && !mesh_equal(tensor_at(x, node->in[0])->mesh, node->mesh);
}

/* Whether it is a conversion, of a parameter as a rule, that is made once a step, which has one micro-batch. */
static bool gathers_once(const recompute *x, const ir_node *node)
{
    return node->op == &op_box && !node->micro && x->c->micro == 1;
}

static bool is_repeatable(const recompute *x, const ir_node *node)
{
    bool end = node->op == &op_source || node->op == &op_sink || node->op == &op_call;
    if (is_later(node) || end || node->op->states || node->updates >= 0 || (node->origin && node->origin->host))
        return false;
    for (int i = 0; i < node->in_count; i++)
        if (changes_in_forward(x, node->in[i]))
            return false;
    return (node->micro == x->micro || gathers_once(x, node)) && !moves_away(x, node);
}

static void find_roots(recompute *x)
{
    for (int t = 0; t < x->base.tensors.count; t++)
        x->root[t] = t;
    for (int n = 0; n < x->base.node_count; n++)
        if (x->base.node[n].op == &op_shard)
            x->root[x->base.node[n].out[0]] = x->root[x->base.node[n].in[0]];
}

/* And whether what is saved is saved once per micro-batch. */
static void find_saved(recompute *x)
{
    for (int n = 0; n < x->base.node_count; n++)
        for (int i = 0; i < x->base.node[n].in_count && is_later(&x->base.node[n]); i++) {
            int from = tensor_at(x, x->base.node[n].in[i])->node;
            if (from >= 0 && !is_later(&x->base.node[from]))
                x->saved[x->root[x->base.node[n].in[i]]] = true;
            x->micro |= x->base.node[n].micro;
        }
}

/* Readers come in order, makers before them. */
static void find_last(recompute *x)
{
    for (int n = 0; n < x->base.node_count; n++) {
        const ir_node *node = &x->base.node[n];
        for (int o = 0; o < node->out_count; o++)
            x->last[x->root[node->out[o]]] = n;
        for (int i = 0; i < node->in_count && !is_later(node); i++)
            x->last[x->root[node->in[i]]] = n;
    }
}

static void moves_begin(recompute *x, int nodes, int tensors)
{
    pool *p = &x->c->pool;
    x->moved = POOL_NEW(p, bool, tensors);
    x->fetcher = POOL_NEW(p, int, tensors);
    x->last = POOL_NEW(p, int, tensors);
    x->way = POOL_NEW(p, offload_way, tensors);
    x->stores = POOL_NEW(p, int, nodes);
    x->fetches = POOL_NEW(p, int, nodes);
    x->next_store = POOL_NEW(p, int, tensors);
    x->next_fetch = POOL_NEW(p, int, tensors);
}

bool recompute_begin(recompute *x, compile *c)
{
    int nodes = c->ir.node_count + 1, tensors = c->ir.tensors.count + 1;
    *x = (recompute){.c = c, .base = c->ir};
    moves_begin(x, nodes, tensors);
    x->root = POOL_NEW(&c->pool, int, tensors);
    x->saved = POOL_NEW(&c->pool, bool, tensors);
    x->dropped = POOL_NEW(&c->pool, bool, tensors);
    x->repeatable = POOL_NEW(&c->pool, bool, nodes);
    x->again = POOL_NEW(&c->pool, bool, nodes);
    x->late = POOL_NEW(&c->pool, bool, nodes);
    x->asker = POOL_NEW(&c->pool, int, nodes);
    x->head = POOL_NEW(&c->pool, int, nodes);
    x->next = POOL_NEW(&c->pool, int, nodes);
    x->event = POOL_NEW(&c->pool, again_event, 2 * (nodes + tensors));
    if (c->pool.failed)
        return error_set(WEIR_E_MEMORY, "no memory to compile \"%s\"", c->graph->name) == WEIR_OK;
    find_roots(x);
    find_saved(x);
    find_last(x);
    for (int n = 0; n < x->base.node_count; n++)
        x->repeatable[n] = is_repeatable(x, &x->base.node[n]);
    recompute_order(x);
    return true;
}

/* ---- what is repeated, and where it stands ---- */

static bool is_dropped(const recompute *x, int t)
{
    int from = tensor_at(x, t)->node;
    return from >= 0 && !is_later(&x->base.node[from]) && x->dropped[x->root[t]];
}

bool recompute_repeats(const recompute *x, int t)
{
    int from = tensor_at(x, t)->node, root = x->root[t];
    return from >= 0 && (x->moved[root] || (x->repeatable[from] && !(x->saved[root] && !x->dropped[root])));
}

bool recompute_reads_again(const recompute *x, const again_event *e, int t)
{
    if (e->again)
        return recompute_repeats(x, t);
    return is_later(&x->base.node[e->node]) && is_dropped(x, t);
}

static void mark_again(recompute *x)
{
    memset(x->again, 0, sizeof *x->again * (size_t)x->base.node_count);
    for (int n = x->base.node_count - 1; n >= 0; n--) {
        const ir_node *node = &x->base.node[n];
        for (int i = 0; i < node->in_count; i++) {
            const again_event as = {.node = n, .again = x->again[n]};
            if ((as.again || is_later(node)) && recompute_reads_again(x, &as, node->in[i]) &&
                !x->moved[x->root[node->in[i]]])
                x->again[tensor_at(x, node->in[i])->node] = true;
        }
    }
}

static void mark_late(recompute *x)
{
    for (int n = 0; n < x->base.node_count; n++) {
        const ir_node *node = &x->base.node[n];
        int in = node->in_count == 1 ? node->in[0] : -1, from = in >= 0 ? tensor_at(x, in)->node : -1;
        x->late[n] = is_later(node) && node->op == &op_box && from >= 0 && (is_dropped(x, in) || x->late[from]);
    }
}

/* Whether what the node reads there waits for a first reader. */
static bool waits(const recompute *x, int n, int t)
{
    const again_event e = {.node = n, .again = x->again[n]};
    int from = tensor_at(x, t)->node;
    return from >= 0 && (recompute_reads_again(x, &e, t) || (x->late[from] && is_later(&x->base.node[n])));
}

static void ask(recompute *x, int n, int asker)
{
    for (int i = 0; i < x->base.node[n].in_count; i++) {
        int t = x->base.node[n].in[i], root = x->root[t];
        if (!waits(x, n, t))
            continue;
        int *first = x->moved[root] && !x->late[tensor_at(x, t)->node] ? &x->fetcher[root] : &x->asker[tensor_at(x, t)->node];
        if (asker < *first)
            *first = asker;
    }
}

/* Those of later phases ask for themselves; then what is asked for asks for what it needs, against the flow. */
static void find_askers(recompute *x)
{
    for (int n = 0; n < x->base.node_count; n++) {
        x->asker[n] = INT_MAX;
        x->head[n] = x->stores[n] = x->fetches[n] = 0;
    }
    for (int t = 0; t < x->base.tensors.count; t++)
        x->fetcher[t] = INT_MAX;
    for (int n = 0; n < x->base.node_count; n++)
        if (is_later(&x->base.node[n]) && !x->late[n])
            ask(x, n, n);
    for (int n = x->base.node_count - 1; n >= 0; n--) {
        if (x->asker[n] == INT_MAX)
            continue;
        ask(x, n, x->asker[n]);
        x->next[n] = x->head[x->asker[n]];
        x->head[x->asker[n]] = n + 1;
    }
}

/* Whether it is gathered where it is read, in forward and once more behind it: then it is a part of the actors that
 * read it. */
static bool is_gathered_twice(const recompute *x, const ir_node *node)
{
    return gathers_once(x, node) && is_dropped(x, node->out[0]);
}

/* What the first reader of such a tensor, made by node n, waits for besides, or -1. */
static int awaited_with(const recompute *x, int n)
{
    bool reads = false;
    for (int k = n + 1; k < x->base.node_count && !reads; k++) {
        const ir_node *reader = &x->base.node[k];
        int other = -1;
        for (int i = 0; i < reader->in_count; i++) {
            int from = tensor_at(x, reader->in[i])->node;
            reads |= reader->in[i] == x->base.node[n].out[0];
            other = from >= 0 && x->base.node[from].micro == x->micro ? reader->in[i] : other;
        }
        if (reads)
            return other;
    }
    return -1;
}

/* What the asker waits for besides. */
static int awaited(const recompute *x, const ir_node *asker)
{
    for (int i = 0; i < asker->in_count; i++) {
        int from = tensor_at(x, asker->in[i])->node;
        if (from >= 0 && is_later(&x->base.node[from]) && !x->late[from] && x->base.node[from].updates < 0)
            return asker->in[i];
    }
    return -1;
}

static void find_ways(recompute *x)
{
    for (int t = x->base.tensors.count - 1; t >= 0; t--) {
        if (!x->moved[t] || x->fetcher[t] == INT_MAX)
            continue;
        offload_way *way = &x->way[t];
        *way = offload_find(&x->base, t, x->last[t], x->fetcher[t]);
        int before = way->ahead < 0 ? x->fetcher[t] : way->hold;
        x->next_store[t] = x->stores[before];
        x->stores[before] = t + 1;
        if (way->ahead < 0)
            continue;
        x->next_fetch[t] = x->fetches[way->ahead];
        x->fetches[way->ahead] = t + 1;
    }
}

static void enter_event(recompute *x, again_event e)
{
    x->event[x->event_count++] = e;
}

static void enter_move(recompute *x, int t, again_move move)
{
    enter_event(x, (again_event){.node = tensor_at(x, t)->node, .move = move, .tensor = t, .after = -1});
}

void recompute_order(recompute *x)
{
    mark_again(x);
    mark_late(x);
    find_askers(x);
    find_ways(x);
    x->event_count = 0;
    for (int n = 0; n < x->base.node_count; n++) {
        if (x->late[n])
            continue;
        for (int t = x->stores[n]; t; t = x->next_store[t - 1]) {
            enter_move(x, t - 1, MOVE_STORE);
            if (x->way[t - 1].ahead < 0) /* there is no time for it: it is back at once */
                enter_move(x, t - 1, MOVE_FETCH);
        }
        for (int at = x->head[n]; at; at = x->next[at - 1])
            enter_event(x, (again_event){
                               .node = at - 1, .again = x->again[at - 1], .after = awaited(x, &x->base.node[n])});
        int after = is_gathered_twice(x, &x->base.node[n]) ? awaited_with(x, n) : -1;
        enter_event(x, (again_event){.node = n, .after = after});
        for (int t = x->fetches[n]; t; t = x->next_fetch[t - 1])
            enter_move(x, t - 1, MOVE_FETCH);
    }
}

/* ---- the graph with it ---- */

typedef struct rewriting {
    const recompute *x;
    ir_graph to;
    int *copy;                     /* by tensor of the base: its repetition, or what is back from the disk; or -1 */
    int *filed;                    /* by tensor of the base: on the disk, or -1 */
    int *new_id;                   /* by node of the base */
    int *stored, *fetched;         /* by tensor of the base: the nodes */
} rewriting;

/* Another tensor like `t`; its index. */
static int tensor_like(rewriting *w, int t, const char *what)
{
    pool *p = &w->x->c->pool;
    const ir_tensor *from = tensor_at(w->x, t);
    ir_tensor *to = POOL_PUSH(p, &w->to.tensors);
    if (!to)
        return -1;
    *to = *from;
    to->name = pool_text(p, "%s.%s", from->name, what);
    to->update = -1;
    return w->to.tensors.count - 1;
}

static void move_tensor(rewriting *w, int t)
{
    int filed = tensor_like(w, t, "disk"), back = tensor_like(w, t, "back");
    const weir_mesh *disk = offload_mesh(w->x->c, tensor_at(w->x, t)->mesh);
    if (filed < 0 || back < 0 || !disk)
        return;
    ir_tensor *to = &w->to.tensors.item[filed];
    to->mesh = disk;
    to->origin = NULL;
    w->filed[t] = filed;
    for (int u = 0; u < w->x->base.tensors.count; u++) /* under all its names */
        if (w->x->root[u] == t)
            w->copy[u] = back;
}

static void tensors_begin(rewriting *w)
{
    const recompute *x = w->x;
    for (int t = 0; t < x->base.tensors.count; t++) {
        ir_tensor *to = POOL_PUSH(&x->c->pool, &w->to.tensors);
        if (to)
            *to = *tensor_at(x, t);
        w->copy[t] = w->filed[t] = -1;
    }
    for (int n = 0; n < x->base.node_count; n++)
        for (int o = 0; o < x->base.node[n].out_count && x->again[n]; o++)
            w->copy[x->base.node[n].out[o]] = tensor_like(w, x->base.node[n].out[o], "again");
    for (int t = 0; t < x->base.tensors.count; t++)
        if (x->moved[t] && x->fetcher[t] < INT_MAX)
            move_tensor(w, t);
}

/* Node k of the new graph, which moves a tensor. */
static bool write_move(rewriting *w, const again_event *e, int k)
{
    bool back = e->move == MOVE_FETCH;
    int t = e->tensor, from = back ? w->filed[t] : t, to = back ? w->copy[t] : w->filed[t];
    w->to.tensors.item[to].node = k;
    *(back ? &w->fetched[t] : &w->stored[t]) = k;
    return offload_copy(w->x->c, &w->x->base, t, from, to, back, &w->to.node[k]);
}

/* Node k of the new graph. */
static bool rewrite_node(rewriting *w, const again_event *e, int k)
{
    if (e->move)
        return write_move(w, e, k);
    pool *p = &w->x->c->pool;
    const ir_node *from = &w->x->base.node[e->node];
    ir_node *to = &w->to.node[k];
    *to = *from;
    to->after = e->after;
    to->micro |= w->x->micro && (e->again || is_gathered_twice(w->x, from));
    if (e->again) {
        to->name = pool_text(p, "%s.again", from->name);
        to->phase = PLAN_BACKWARD;
        to->again = true;
    } else {
        w->new_id[e->node] = k;
    }
    to->in = pool_copy(p, from->in, sizeof *to->in * (size_t)from->in_count);
    to->out = pool_copy(p, from->out, sizeof *to->out * (size_t)from->out_count);
    if (p->failed)
        return false;
    for (int i = 0; i < to->in_count; i++)
        if (recompute_reads_again(w->x, e, to->in[i]))
            to->in[i] = w->copy[to->in[i]];
    for (int o = 0; o < to->out_count; o++) {
        to->out[o] = e->again ? w->copy[to->out[o]] : to->out[o];
        w->to.tensors.item[to->out[o]].node = k;
    }
    return true;
}

static void write_wait(rewriting *w, int node, int on)
{
    ir_wait *wait = POOL_PUSH(&w->x->c->pool, &w->to.waits);
    if (wait)
        *wait = (ir_wait){.node = node, .on = on};
}

static void write_waits(rewriting *w)
{
    for (int t = 0; t < w->x->base.tensors.count; t++) {
        const offload_way *way = &w->x->way[t];
        if (w->filed[t] < 0 || way->ahead < 0)
            continue;
        write_wait(w, w->new_id[way->hold], w->stored[t]);
        write_wait(w, w->fetched[t], w->new_id[way->ahead]);
    }
}

static bool rewrite(rewriting *w)
{
    const recompute *x = w->x;
    pool *p = &x->c->pool;
    w->to.node = POOL_NEW(p, ir_node, x->event_count + 1);
    w->to.rules.item = x->base.rules.item;
    w->copy = POOL_NEW(p, int, x->base.tensors.count + 1);
    w->filed = POOL_NEW(p, int, x->base.tensors.count + 1);
    w->stored = POOL_NEW(p, int, x->base.tensors.count + 1);
    w->fetched = POOL_NEW(p, int, x->base.tensors.count + 1);
    w->new_id = POOL_NEW(p, int, x->base.node_count + 1);
    if (p->failed)
        return false;
    tensors_begin(w);
    for (int k = 0; k < x->event_count && !p->failed; k++, w->to.node_count++)
        if (!rewrite_node(w, &x->event[k], k))
            return false;
    for (int t = 0; t < x->base.tensors.count && !p->failed; t++)
        if (tensor_at(x, t)->update >= 0)
            w->to.tensors.item[t].update = w->new_id[tensor_at(x, t)->update];
    write_waits(w);
    return !p->failed;
}

bool recompute_apply(recompute *x, int rungs)
{
    memset(x->dropped, 0, sizeof *x->dropped * (size_t)x->base.tensors.count);
    memset(x->moved, 0, sizeof *x->moved * (size_t)x->base.tensors.count);
    for (int r = 0; r < rungs; r++) {
        x->dropped[x->ladder.item[r].tensor] = true;
        x->moved[x->ladder.item[r].tensor] = x->ladder.item[r].moved;
    }
    recompute_order(x);
    rewriting w = {.x = x};
    if (!rewrite(&w))
        return error_set(WEIR_E_MEMORY, "no memory to compile \"%s\"", x->c->graph->name) == WEIR_OK;
    x->c->ir = w.to;
    return true;
}
