/* graph/compile/budget/recompute.c: see recompute.h; what is repeated, where it stands, and the graph with it.
 *
 * The repeated nodes follow from the dropped tensors in one walk against the flow. Where it stands follows in another: each
 * repetition belongs to the first node of a later phase that reads it, or reads what is made of it, and stands right before
 * that one, in the order of forward. Conversions that a later phase asks for stand in forward, right behind what they
 * convert; of a dropped tensor they move back in the same way.
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
#include "graph/compile/budget/recompute.h"
#include "graph/base/error.h"
#include "kernels/core/core.h"
#include "kernels/common/ops.h"

#include <limits.h>
#include <string.h>

enum { STATES_AHEAD = 2 };         /* updates that a state is fetched ahead of its own */

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
    return node->op == &op_box && !mesh_equal(mesh_user(tensor_at(x, node->in[0])->mesh), mesh_user(node->mesh));
}

/* Whether it is a conversion, of a parameter as a rule, that is made once a step, which has one micro-batch. */
static bool gathers_once(const recompute *x, const ir_node *node)
{
    return node->op == &op_box && !node->micro && x->c->micro == 1;
}

static bool is_repeatable(const recompute *x, const ir_node *node)
{
    bool end = node->op == &op_source || node->op == &op_batch || node->op->effect || node->op->open;
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
    x->filed = POOL_NEW(p, bool, nodes);
    x->state_after = POOL_NEW(p, int, nodes);
    x->state_fetches = POOL_NEW(p, int, nodes);
    x->next_state = POOL_NEW(p, int, nodes);
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
    x->event_max = 2 * (nodes + tensors + OFFLOAD_STATES * nodes);
    x->event = POOL_NEW(&c->pool, again_event, x->event_max);
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
        int in = node->in_count == 1 ? node->in[0] : NONE, from = in >= 0 ? tensor_at(x, in)->node : NONE;
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
        int from = tensor_at(x, t)->node;
        int *first = x->moved[root] && !x->late[from] ? &x->fetcher[root] : &x->asker[from];
        if (asker < *first)
            *first = asker;
    }
}

/* Nodes of later phases ask for themselves; then what is asked for asks for what it needs, against the flow. */
static void find_askers(recompute *x)
{
    for (int n = 0; n < x->base.node_count; n++) {
        x->asker[n] = INT_MAX;
        x->head[n] = x->stores[n] = x->fetches[n] = NONE;
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
        x->head[x->asker[n]] = n;
    }
}

/* Whether it is gathered where it is read, in forward and once more behind it: then it is a part of the actors that
 * read it. */
static bool is_gathered_twice(const recompute *x, const ir_node *node)
{
    return gathers_once(x, node) && is_dropped(x, node->out[0]);
}

/* The tensor that the first reader of such a tensor, made by node n, waits for besides, or NONE. */
static int awaited_with(const recompute *x, int n)
{
    bool reads = false;
    for (int k = n + 1; k < x->base.node_count && !reads; k++) {
        const ir_node *reader = &x->base.node[k];
        int other = NONE;
        for (int i = 0; i < reader->in_count; i++) {
            int from = tensor_at(x, reader->in[i])->node;
            reads |= reader->in[i] == x->base.node[n].out[0];
            other = from >= 0 && x->base.node[from].micro == x->micro ? reader->in[i] : other;
        }
        if (reads)
            return other;
    }
    return NONE;
}

/* The tensor that the asker waits for besides. */
static int awaited(const recompute *x, const ir_node *asker)
{
    for (int i = 0; i < asker->in_count; i++) {
        int from = tensor_at(x, asker->in[i])->node;
        if (from >= 0 && is_later(&x->base.node[from]) && !x->late[from] && x->base.node[from].updates < 0)
            return asker->in[i];
    }
    return NONE;
}

static void find_ways(recompute *x)
{
    for (int t = x->base.tensors.count - 1; t >= 0; t--) {
        if (!x->moved[t] || x->fetcher[t] == INT_MAX)
            continue;
        offload_way *way = &x->way[t];
        *way = offload_find(x->c->rates, &x->base, t, x->last[t], x->fetcher[t]);
        int before = way->ahead < 0 ? x->fetcher[t] : way->hold;
        x->next_store[t] = x->stores[before];
        x->stores[before] = t;
        if (way->ahead < 0)
            continue;
        x->next_fetch[t] = x->fetches[way->ahead];
        x->fetches[way->ahead] = t;
    }
}

/* Behind which node the state of update `n` is fetched: the update so many before it, or else what last comes before all
 * updates. */
static int find_state_after(const recompute *x, int n)
{
    int left = STATES_AHEAD;
    const ir_node *node = &x->base.node[n];
    for (int at = n - 1; at >= 0; at--) {
        const ir_node *other = &x->base.node[at];
        if (!mesh_equal(other->mesh, node->mesh) || other->program != node->program)
            continue;
        if (x->filed[at] && !--left)
            return at;
        if (other->updates < 0 && offload_anchor(other, node->mesh, false))
            return at;
    }
    return NONE;
}

static void find_states_after(recompute *x)
{
    for (int n = 0; n < x->base.node_count; n++)
        x->state_fetches[n] = NONE;
    for (int n = x->base.node_count - 1; n >= 0; n--) {
        int after = x->filed[n] ? find_state_after(x, n) : NONE;
        x->state_after[n] = after;
        if (after < 0)
            continue;
        x->next_state[n] = x->state_fetches[after];
        x->state_fetches[after] = n;
    }
}

static void enter_event(recompute *x, again_event e)
{
    x->event[x->event_count++] = e;
}

static void enter_move(recompute *x, int t, again_move move)
{
    enter_event(x, (again_event){.node = tensor_at(x, t)->node, .move = move, .tensor = t, .after = NONE});
}

static void enter_states(recompute *x, int n, again_move move)
{
    for (int s = 0; s < offload_states(&x->base.node[n]); s++)
        enter_event(x, (again_event){.node = n, .move = move, .tensor = s, .after = NONE});
}

void recompute_order(recompute *x)
{
    mark_again(x);
    mark_late(x);
    find_askers(x);
    find_ways(x);
    find_states_after(x);
    x->event_count = 0;
    for (int n = 0; n < x->base.node_count; n++) {
        if (x->late[n])
            continue;
        for (int t = x->stores[n]; t != NONE; t = x->next_store[t]) {
            enter_move(x, t, MOVE_STORE);
            if (x->way[t].ahead == NONE) /* there is no time for it: it is back at once */
                enter_move(x, t, MOVE_FETCH);
        }
        for (int at = x->head[n]; at != NONE; at = x->next[at])
            enter_event(x, (again_event){.node = at, .again = x->again[at], .after = awaited(x, &x->base.node[n])});
        if (x->filed[n] && x->state_after[n] < 0)
            enter_states(x, n, MOVE_STATE_FETCH);
        int after = is_gathered_twice(x, &x->base.node[n]) ? awaited_with(x, n) : NONE;
        enter_event(x, (again_event){.node = n, .after = after});
        if (x->filed[n])
            enter_states(x, n, MOVE_STATE_STORE);
        for (int u = x->state_fetches[n]; u != NONE; u = x->next_state[u])
            enter_states(x, u, MOVE_STATE_FETCH);
        for (int t = x->fetches[n]; t != NONE; t = x->next_fetch[t])
            enter_move(x, t, MOVE_FETCH);
    }
}

/* ---- the graph with it ---- */

typedef struct state_move {        /* a state of an update that waits on a disk: tensors and nodes of the new graph */
    int filed, from, to;
    int stored, fetched;
} state_move;

typedef struct rewriting {
    const recompute *x;
    ir_graph to;
    int *copy;                     /* by tensor of the base: its repetition, or -1 */
    int *filed, *back;             /* by tensor of the base that is moved: on the disk, and back; or -1 */
    int *new_id;                   /* by node of the base */
    int *stored, *fetched;         /* by tensor of the base: the nodes */
    state_move (*state)[OFFLOAD_STATES]; /* by node of the base, if its state is filed */
} rewriting;

/* Another tensor like `t`; its index. */
static int tensor_like(rewriting *w, int t, const char *what)
{
    pool *p = &w->x->c->pool;
    const ir_tensor *from = tensor_at(w->x, t);
    ir_tensor *to = POOL_PUSH(p, &w->to.tensors);
    if (!to)
        return NONE;
    *to = *from;
    to->name = pool_text(p, "%s.%s", from->name, what);
    to->update = NONE;
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
    w->back[t] = back;
}

static int read_again(const rewriting *w, int t)
{
    int root = w->x->root[t];
    return w->x->moved[root] ? w->back[root] : w->copy[t];
}

/* A tensor like the parameter that node `n` updates, for its state. */
static int tensor_state(rewriting *w, int n, const char *what)
{
    int id = tensor_like(w, w->x->base.node[n].updates, what);
    if (id < 0)
        return NONE;
    ir_tensor *to = &w->to.tensors.item[id];
    to->origin = NULL;
    to->fixed = NULL;
    to->micro = false;
    return id;
}

static void move_state(rewriting *w, int n, int s)
{
    const weir_mesh *disk = offload_mesh(w->x->c, tensor_at(w->x, w->x->base.node[n].updates)->mesh);
    state_move *m = &w->state[n][s];
    *m = (state_move){tensor_state(w, n, "state.disk"), tensor_state(w, n, "state.old"), tensor_state(w, n, "state.new"),
                      .stored = NONE, .fetched = NONE};
    if (m->filed < 0 || m->from < 0 || m->to < 0 || !disk)
        return;
    ir_tensor *filed = &w->to.tensors.item[m->filed];
    filed->mesh = disk;
    filed->node = NONE;
    filed->state_of = &w->x->base.node[n];
    filed->state = s;
}

static void tensors_begin(rewriting *w)
{
    const recompute *x = w->x;
    for (int t = 0; t < x->base.tensors.count; t++) {
        ir_tensor *to = POOL_PUSH(&x->c->pool, &w->to.tensors);
        if (to)
            *to = *tensor_at(x, t);
        w->copy[t] = w->filed[t] = w->back[t] = NONE;
    }
    for (int n = 0; n < x->base.node_count; n++)
        for (int o = 0; o < x->base.node[n].out_count && x->again[n]; o++)
            w->copy[x->base.node[n].out[o]] = tensor_like(w, x->base.node[n].out[o], "again");
    for (int t = 0; t < x->base.tensors.count; t++)
        if (x->moved[t] && x->fetcher[t] < INT_MAX)
            move_tensor(w, t);
    for (int n = 0; n < x->base.node_count; n++)
        for (int s = 0; s < offload_states(&x->base.node[n]) && x->filed[n]; s++)
            move_state(w, n, s);
}

/* Node k of the new graph, which moves a state. */
static bool write_state_move(rewriting *w, const again_event *e, int k)
{
    bool back = e->move == MOVE_STATE_FETCH;
    state_move *m = &w->state[e->node][e->tensor];
    ir_node *to = &w->to.node[k];
    if (!offload_copy(w->x->c, &w->to, back ? m->from : m->filed, &w->x->base.node[e->node], back ? m->filed : m->to,
                      back ? m->from : m->filed, PLAN_UPDATE, to))
        return false;
    const ir_node *update = &w->x->base.node[e->node];
    to->name = pool_text(&w->x->c->pool, "%s:%s.%s.%s", tensor_at(w->x, update->updates)->name, update->op->name,
                         update->op->state_names[e->tensor], back ? "fetch" : "store");
    *(back ? &m->fetched : &m->stored) = k;
    w->to.tensors.item[back ? m->from : m->filed].node = back ? k : NONE;
    if (!back) {
        to->updates = m->filed;
        w->to.tensors.item[m->filed].update = k;
    }
    return true;
}

/* The update with its state as inputs and outputs. */
static bool take_states(rewriting *w, const again_event *e, ir_node *to, int k)
{
    pool *p = &w->x->c->pool;
    int states = offload_states(to), *in = POOL_NEW(p, int, to->in_count + states), *out = POOL_NEW(p, int, 1 + states);
    if (!in || !out)
        return false;
    memcpy(in, to->in, sizeof *in * (size_t)to->in_count);
    out[0] = to->out[0];
    for (int s = 0; s < states; s++) {
        const state_move *m = &w->state[e->node][s];
        in[to->in_count + s] = m->from;
        out[1 + s] = m->to;
        w->to.tensors.item[m->to].node = k;
    }
    to->in = in;
    to->out = out;
    to->in_count += states;
    to->out_count += states;
    to->op = offload_update(to->op);
    to->reads = NULL;
    return true;
}

/* Node k of the new graph, which moves a tensor. */
static bool write_move(rewriting *w, const again_event *e, int k)
{
    bool back = e->move == MOVE_FETCH;
    int t = e->tensor, from = back ? w->filed[t] : t, to = back ? w->back[t] : w->filed[t];
    w->to.tensors.item[to].node = k;
    *(back ? &w->fetched[t] : &w->stored[t]) = k;
    return offload_copy(w->x->c, &w->to, t, &w->x->base.node[tensor_at(w->x, t)->node], from, to,
                        back ? PLAN_BACKWARD : PLAN_FORWARD, &w->to.node[k]);
}

/* Node k of the new graph. */
static bool rewrite_node(rewriting *w, const again_event *e, int k)
{
    if (e->move)
        return e->move <= MOVE_FETCH ? write_move(w, e, k) : write_state_move(w, e, k);
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
            to->in[i] = read_again(w, to->in[i]);
    for (int o = 0; o < to->out_count; o++) {
        to->out[o] = e->again ? w->copy[to->out[o]] : to->out[o];
        w->to.tensors.item[to->out[o]].node = k;
    }
    return !w->x->filed[e->node] || e->again || take_states(w, e, to, k);
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

/* A fetch waits for an update that is some way ahead; and that many further on, for the bytes, an update for a store. */
static void write_state_waits(rewriting *w)
{
    const recompute *x = w->x;
    for (int n = 0; n < x->base.node_count; n++)
        for (int s = 0; s < offload_states(&x->base.node[n]) && x->filed[n]; s++) {
            int after = x->state_after[n];
            if (after >= 0)
                write_wait(w, w->state[n][s].fetched, w->new_id[after]);
            if (after >= 0 && x->filed[after] && s < offload_states(&x->base.node[after]))
                write_wait(w, w->new_id[n], w->state[after][s].stored);
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
    w->back = POOL_NEW(p, int, x->base.tensors.count + 1);
    w->stored = POOL_NEW(p, int, x->base.tensors.count + 1);
    w->fetched = POOL_NEW(p, int, x->base.tensors.count + 1);
    w->state = (state_move(*)[OFFLOAD_STATES])POOL_NEW(p, state_move, OFFLOAD_STATES * (x->base.node_count + 1));
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
    write_state_waits(w);
    return !p->failed;
}

void recompute_drop(recompute *x, int rungs)
{
    memset(x->dropped, 0, sizeof *x->dropped * (size_t)x->base.tensors.count);
    memset(x->moved, 0, sizeof *x->moved * (size_t)x->base.tensors.count);
    memset(x->filed, 0, sizeof *x->filed * (size_t)x->base.node_count);
    for (int r = 0; r < rungs; r++) {
        if (x->ladder.item[r].update >= 0) {
            x->filed[x->ladder.item[r].update] = true;
            continue;
        }
        x->dropped[x->ladder.item[r].tensor] = !x->ladder.item[r].kept;
        x->moved[x->ladder.item[r].tensor] = x->ladder.item[r].moved;
    }
    recompute_order(x);
}

bool recompute_apply(recompute *x, int rungs)
{
    recompute_drop(x, rungs);
    rewriting w = {.x = x};
    if (!rewrite(&w))
        return error_set(WEIR_E_MEMORY, "no memory to compile \"%s\"", x->c->graph->name) == WEIR_OK;
    x->c->ir = w.to;
    return true;
}
