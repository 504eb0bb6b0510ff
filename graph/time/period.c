/* graph/time/period.c: see the header.
 *
 * A policy gives each node one of the edges that lead to it. Followed backwards, these end in cycles; each node has the ratio of
 * the cycle behind it, and a potential, the longest way from there as far as the policy knows. An edge that promises more takes the
 * place of the node's. When none does, the largest ratio is the answer.
 */
#include "graph/time/period.h"

#include "graph/base/error.h"

#include <math.h>
#include <stdlib.h>

enum { ROUNDS_MAX = 1000, WORK_MAX = 100000000 /* edges that are looked at: a second or two; any cycle is a bound */ };
#define EPSILON 1e-9

typedef struct edge {
    uint32_t from, to;     /* nodes */
    uint32_t port;
    uint8_t kind;
    int32_t tokens;
    uint64_t ps;
} edge;

typedef struct graph {
    const period_spec *spec;
    uint32_t first_step;   /* of those whose firings are the nodes */
    uint32_t nodes;
    uint32_t *first;       /* owned, all arrays: by actor, its first node */
    uint32_t *actor;       /* by node */
    uint32_t *worker;      /* by node */
    uint64_t *ps;          /* by node: its duration */
    uint32_t *last;        /* by worker: the node that it fired last, or PLAN_NONE; and the repetition of that firing */
    int32_t *last_at;
    edge *edges;
    uint32_t edge_count, edge_room;
    uint32_t *in;          /* by node: where its edges begin, once they are sorted by `to` */
    uint32_t *policy;      /* by node: an edge */
    double *ratio, *potential;
    uint32_t *mark;        /* by node: the walk that came to it first */
    uint32_t *trail;
} graph;

/* ---- nodes and edges ---- */

static bool add_edge(graph *g, edge e)
{
    if (g->edge_count == g->edge_room) {
        const uint32_t room = g->edge_room ? 2 * g->edge_room : 1024;
        edge *edges = realloc(g->edges, room * sizeof *edges);
        if (!edges)
            return false;
        g->edges = edges;
        g->edge_room = room;
    }
    g->edges[g->edge_count++] = e;
    return true;
}

/* Firings of an actor among the nodes. */
static uint32_t fires_of(const graph *g, uint32_t actor)
{
    return g->spec->plan->actors[actor].fires * g->spec->unroll;
}

/* Which repetition a firing is of, counted from that of the nodes: 0, or before or behind it. */
static int32_t repetition(const graph *g, const period_firing *f)
{
    const int64_t fires = g->spec->plan->actors[f->actor].fires, first = fires * g->first_step, all = fires * g->spec->unroll;
    const int64_t from = (int64_t)f->firing - first;
    return (int32_t)(from >= 0 ? from / all : -((-from + all - 1) / all));
}

static uint32_t node_of(const graph *g, const period_firing *f)
{
    const uint32_t fires = fires_of(g, f->actor), first = g->spec->plan->actors[f->actor].fires * g->first_step;
    return g->first[f->actor] + (uint32_t)((int64_t)f->firing - first - (int64_t)repetition(g, f) * fires);
}

/* From the actor's firing number `firing`, counted from the first node; it may be of an earlier repetition. */
static bool add_from(graph *g, uint32_t actor, int64_t firing, uint32_t to, weir_bound_kind kind, uint32_t port)
{
    const int64_t fires = fires_of(g, actor);
    const int64_t step = firing >= 0 ? firing / fires : -((-firing + fires - 1) / fires);
    const uint32_t from = g->first[actor] + (uint32_t)(firing - step * fires);
    const bool far = g->worker[from] != g->worker[to];
    return add_edge(g, (edge){from, to, port, (uint8_t)kind, (int32_t)-step,
                              g->ps[from] + (far ? g->spec->message(g->spec->ctx, port, kind == WEIR_BOUND_SLOT) : 0)});
}

/* The reader's firing n needs value n / hold; the register had some before the producer's first. */
static bool add_data(graph *g, uint32_t p)
{
    const weir_plan *plan = g->spec->plan;
    const plan_port *port = &plan->ports[p];
    const plan_regst *regst = &plan->regsts[port->regst.i];
    for (int64_t n = 0; n < fires_of(g, port->actor.i); n++) {
        const int64_t value = n / port->hold - (int64_t)regst->initial;
        if (!add_from(g, regst->producer.i, (value + 1) * regst->fill - 1, g->first[port->actor.i] + (uint32_t)n, WEIR_BOUND_DATA, p))
            return false;
    }
    return true;
}

/* The producer's firing that begins a value needs the slot that the reader has freed `slots` values before. */
static bool add_slot(graph *g, uint32_t p)
{
    const weir_plan *plan = g->spec->plan;
    const plan_port *port = &plan->ports[p];
    const plan_regst *regst = &plan->regsts[port->regst.i];
    const int64_t slots = g->spec->slots ? g->spec->slots[port->regst.i] : regst->slots;
    for (int64_t n = 0; n < fires_of(g, regst->producer.i); n += regst->fill) {
        const int64_t value = n / regst->fill + (int64_t)regst->initial - slots;
        if (!add_from(g, port->actor.i, (value + 1) * port->hold - 1, g->first[regst->producer.i] + (uint32_t)n, WEIR_BOUND_SLOT, p))
            return false;
    }
    return true;
}

/* Consecutive firings of each worker, as they were played. */
static bool add_orders(graph *g)
{
    const period_spec *s = g->spec;
    for (uint64_t i = 0; i < s->count; i++) {
        const period_firing *f = &s->firings[i];
        if (f->worker == PLAN_NONE)
            continue;
        const uint32_t node = node_of(g, f), last = g->last[f->worker];
        const int32_t at = repetition(g, f);
        if (at == 0 && last != PLAN_NONE &&
            !add_edge(g, (edge){last, node, PLAN_NONE, WEIR_BOUND_ORDER, -g->last_at[f->worker], g->ps[last]}))
            return false;
        g->last[f->worker] = node;
        g->last_at[f->worker] = at;
    }
    return true;
}

static bool add_edges(graph *g)
{
    const weir_plan *plan = g->spec->plan;
    for (uint32_t p = 0; p < plan->ports_count; p++)
        if (plan->actors[plan->ports[p].actor.i].program.i == g->spec->program && plan_port_counts(plan, &plan->ports[p]) &&
            (!add_data(g, p) || !add_slot(g, p)))
            return false;
    return add_orders(g);
}

/* By the node that they lead to: counts them, and puts each behind those of its node. */
static bool sort_edges(graph *g)
{
    edge *sorted = malloc((g->edge_count + (size_t)1) * sizeof *sorted);
    if (!sorted)
        return false;
    for (uint32_t e = 0; e < g->edge_count; e++)
        g->in[g->edges[e].to + 1]++;
    for (uint32_t node = 0; node < g->nodes; node++)
        g->in[node + 1] += g->in[node];
    for (uint32_t e = 0; e < g->edge_count; e++)
        sorted[g->in[g->edges[e].to]++] = g->edges[e];
    for (uint32_t node = g->nodes; node > 0; node--) /* each has moved to where the next one's begin */
        g->in[node] = g->in[node - 1];
    g->in[0] = 0;
    free(g->edges);
    g->edges = sorted;
    return true;
}

static void set_nodes(graph *g)
{
    const period_spec *s = g->spec;
    for (uint32_t a = 0; a < s->plan->actors_count; a++)
        for (uint32_t n = 0; s->plan->actors[a].program.i == s->program && n < fires_of(g, a); n++)
            g->actor[g->first[a] + n] = a;
    for (uint64_t i = 0; i < s->count; i++) {
        const period_firing *f = &s->firings[i];
        if (repetition(g, f))
            continue;
        const uint32_t node = node_of(g, f);
        g->ps[node] = f->end - f->begin;
        g->potential[node] = (double)f->begin;
        g->worker[node] = f->worker;
    }
}

/* ---- Howard ---- */

/* The ratio of the cycle of the policy that the node is on; its tokens are never 0, as the plan is live. */
static double cycle_ratio(const graph *g, uint32_t node)
{
    double ps = 0, tokens = 0;
    uint32_t at = node;
    do {
        const edge *e = &g->edges[g->policy[at]];
        ps += (double)e->ps;
        tokens += e->tokens;
        at = e->from;
    } while (at != node);
    return tokens > 0 ? ps / tokens : 0;
}

/* The nodes of a walk get their values, from its end back to its start; `root` has them. */
static void settle(graph *g, uint32_t length, uint32_t root)
{
    while (length--) {
        const uint32_t node = g->trail[length];
        const edge *e = &g->edges[g->policy[node]];
        if (node == root)
            continue;
        g->ratio[node] = g->ratio[e->from];
        g->potential[node] = g->potential[e->from] + (double)e->ps - g->ratio[node] * e->tokens;
    }
}

/* From each node backwards along the policy, to a node that has its values or to a cycle. A node without edges bounds nothing. */
static void evaluate(graph *g)
{
    for (uint32_t n = 0; n < g->nodes; n++)
        g->mark[n] = PLAN_NONE;
    for (uint32_t start = 0; start < g->nodes; start++) {
        uint32_t at = start, length = 0;
        while (g->mark[at] == PLAN_NONE && g->policy[at] != PLAN_NONE) {
            g->mark[at] = start;
            g->trail[length++] = at;
            at = g->edges[g->policy[at]].from;
        }
        if (g->policy[at] == PLAN_NONE || g->mark[at] == start) {
            g->ratio[at] = g->policy[at] == PLAN_NONE ? 0 : cycle_ratio(g, at);
            g->potential[at] = 0;
        }
        settle(g, length, at);
    }
}

/* The edge that promises the node most: the largest ratio, or (`longer`) of those with its own ratio the longest way. */
static uint32_t most_promising(const graph *g, uint32_t node, bool longer, double least)
{
    double most = longer ? g->potential[node] : g->ratio[node];
    uint32_t best = g->policy[node];
    for (uint32_t e = g->in[node]; e < g->in[node + 1]; e++) {
        const edge *by = &g->edges[e];
        const double ratio = g->ratio[by->from], promised = longer ? g->potential[by->from] + (double)by->ps - ratio * by->tokens : ratio;
        if (promised <= most + least || (longer && ratio < g->ratio[node] - least))
            continue;
        most = promised;
        best = e;
    }
    return best;
}

static bool improve(graph *g, bool longer, double least)
{
    bool better = false;
    for (uint32_t node = 0; node < g->nodes; node++) {
        const uint32_t e = most_promising(g, node, longer, least);
        better |= e != g->policy[node];
        g->policy[node] = e;
        if (!longer && e != PLAN_NONE)
            g->ratio[node] = g->ratio[g->edges[e].from]; /* those behind it in this round see it already */
    }
    return better;
}

static double scale_of(const graph *g)
{
    double sum = 1;
    for (uint32_t n = 0; n < g->nodes; n++)
        sum += (double)g->ps[n];
    return sum;
}

/* Each node waited longest for one other, as it was played: that is the edge to begin with. */
static void begin_as_played(graph *g)
{
    const double period = (double)g->spec->period * g->spec->unroll;
    for (uint32_t n = 0; n < g->nodes; n++) {
        double latest = 0;
        g->policy[n] = PLAN_NONE;
        for (uint32_t e = g->in[n]; e < g->in[n + 1]; e++) {
            const edge *by = &g->edges[e];
            const double at = g->potential[by->from] + (double)by->ps - period * by->tokens;
            if (g->policy[n] == PLAN_NONE || at > latest) {
                g->policy[n] = e;
                latest = at;
            }
        }
    }
}

static double largest_ratio(const graph *g)
{
    double most = 0;
    for (uint32_t n = 0; n < g->nodes; n++)
        most = g->ratio[n] > most ? g->ratio[n] : most;
    return most;
}

/* No cycle takes longer than the period as it was played, since all its edges held then: one that takes as long is the answer. */
static void iterate(graph *g)
{
    const double least = EPSILON * scale_of(g);
    const double played = (double)g->spec->period * g->spec->unroll;
    const uint64_t rounds = WORK_MAX / (g->edge_count + (uint64_t)1) + 1;
    begin_as_played(g);
    for (uint64_t round = 0; round < ROUNDS_MAX && round < rounds; round++) {
        evaluate(g);
        if (played > 0 && largest_ratio(g) >= played * (1 - EPSILON))
            return;
        if (!improve(g, false, least) && !improve(g, true, least))
            return;
    }
    evaluate(g);
}

/* ---- the answer ---- */

/* A node on the cycle that lies behind `node`. */
static uint32_t on_cycle(const graph *g, uint32_t node)
{
    for (uint32_t i = 0; i <= g->nodes; i++)
        node = g->edges[g->policy[node]].from;
    return node;
}

static weir_status conclude(const graph *g, period_result *to)
{
    uint32_t best = 0, count = 0;
    for (uint32_t n = 1; n < g->nodes; n++)
        best = g->ratio[n] > g->ratio[best] ? n : best;
    to->ps = g->nodes ? g->ratio[best] / g->spec->unroll : 0;
    if (!g->nodes || g->policy[best] == PLAN_NONE || to->ps <= 0)
        return WEIR_OK;
    const uint32_t start = on_cycle(g, best);
    uint32_t at = start;
    do {
        count++;
        at = g->edges[g->policy[at]].from;
    } while (at != start);
    to->cycle = malloc(count * sizeof *to->cycle);
    to->count = to->cycle ? count : 0;
    for (uint32_t i = to->count; i-- > 0;) {
        const edge *e = &g->edges[g->policy[at]];
        const uint32_t from = g->actor[e->from];
        to->cycle[i] = (period_edge){from, g->actor[at], (e->from - g->first[from]) % g->spec->plan->actors[from].fires, (weir_bound_kind)e->kind, e->port, e->ps, e->tokens};
        at = e->from;
    }
    return to->cycle ? WEIR_OK : WEIR_E_MEMORY;
}

/* A firing of a collective's members is one node, which has the edges of all of them. */
static void number_nodes(graph *g)
{
    const weir_plan *plan = g->spec->plan;
    for (uint32_t a = 0; a < plan->actors_count; a++)
        g->first[a] = PLAN_NONE;
    for (uint32_t c = 0; c < plan->collectives_count; c++)
        for (uint32_t m = 1; m < plan->collectives[c].members.count; m++)
            g->first[plan_member(plan, &plan->collectives[c], m) - plan->actors] = 0;
    for (uint32_t a = 0; a < plan->actors_count; a++)
        if (g->first[a] == PLAN_NONE) {
            g->first[a] = g->nodes;
            g->nodes += plan->actors[a].program.i == g->spec->program ? fires_of(g, a) : 0;
        }
    for (uint32_t c = 0; c < plan->collectives_count; c++)
        for (uint32_t m = 1; m < plan->collectives[c].members.count; m++)
            g->first[plan_member(plan, &plan->collectives[c], m) - plan->actors] = g->first[plan_member(plan, &plan->collectives[c], 0) - plan->actors];
}

static bool graph_new(graph *g)
{
    const weir_plan *plan = g->spec->plan;
    g->first = calloc(plan->actors_count + (size_t)1, sizeof *g->first);
    if (g->first)
        number_nodes(g);
    const size_t nodes = g->nodes + (size_t)1, workers = g->spec->workers + (size_t)1;
    g->actor = calloc(nodes, sizeof *g->actor);
    g->worker = calloc(nodes, sizeof *g->worker);
    g->ps = calloc(nodes, sizeof *g->ps);
    g->in = calloc(nodes + 1, sizeof *g->in);
    g->policy = calloc(nodes, sizeof *g->policy);
    g->ratio = calloc(nodes, sizeof *g->ratio);
    g->potential = calloc(nodes, sizeof *g->potential);
    g->mark = calloc(nodes, sizeof *g->mark);
    g->trail = calloc(nodes, sizeof *g->trail);
    g->last = malloc(workers * sizeof *g->last);
    g->last_at = calloc(workers, sizeof *g->last_at);
    for (size_t w = 0; g->last && w < workers; w++)
        g->last[w] = PLAN_NONE;
    return g->first && g->actor && g->worker && g->ps && g->in && g->policy && g->ratio && g->potential && g->mark && g->trail && g->last &&
           g->last_at;
}

static void graph_free(graph *g)
{
    void *const arrays[] = {g->first, g->actor, g->worker, g->ps, g->in, g->policy, g->ratio, g->potential, g->mark, g->trail, g->last,
                            g->last_at, g->edges};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        free(arrays[i]);
}

weir_status period_find(const period_spec *spec, period_result *result)
{
    graph g = {.spec = spec, .first_step = spec->steps - 1 - spec->unroll};
    *result = (period_result){0};
    weir_status status = graph_new(&g) ? WEIR_OK : WEIR_E_MEMORY;
    if (!status) {
        set_nodes(&g);
        status = add_edges(&g) && sort_edges(&g) ? WEIR_OK : WEIR_E_MEMORY;
    }
    if (!status) {
        iterate(&g);
        status = conclude(&g, result);
    }
    graph_free(&g);
    return status ? error_set(status, "no memory to find the cycle that bounds a step") : WEIR_OK;
}
