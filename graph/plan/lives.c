/* graph/plan/lives.c: lives.h says what is proven, and why it is true. */
#include "graph/plan/lives.h"

#include "graph/base/error.h"

#include <stdlib.h>
#include <string.h>

#define NOWHERE UINT32_MAX              /* a position behind all kernels */
#define REACH_BYTES_MAX (UINT64_C(1) << 29)
#define WORK_MIN (UINT64_C(1) << 26) /* words of columns that are looked at, for all spaces together: so many */
#define WORK_PER_EDGE 1024           /* and so many more */

typedef struct edge {
    uint32_t from, to, tokens;
} edge;

/* One of the two graphs. A column is an actor that something in the space may begin with. */
typedef struct order {
    uint32_t nodes, edge_count;
    edge *edges;          /* owned: by `from` once all are there */
    uint32_t *first;      /* owned: a node's first edge; one more than there are nodes */
    uint32_t *sequence;   /* owned: nodes, each before those that its edges without tokens lead to */
    uint32_t sequenced;
    uint64_t *now, *next; /* owned; of a space, per node: the columns that are reached with no token; with one at
                             most */
} order;

struct lives {
    const weir_plan *plan;
    uint64_t work;          /* that is left for spaces */
    uint32_t *column;       /* by actor, or PLAN_NONE: of a space */
    uint32_t words;         /* of a row of columns; 0: nothing is known */
    uint32_t *reader_first; /* by register, in readers; one more than there are registers */
    uint32_t *readers;      /* ports */
    uint32_t *last_read;    /* by port: the last kernel that reads through it */
    uint32_t *first_write;  /* by register: the first kernel that writes there */
    uint32_t *last_use;     /* by register: the last kernel of its producer that touches it */
    uint8_t *outside;       /* by register: an end of it is on an outside queue */
    order steps, firings;
};

/* ---- the graphs ---- */

static void add(order *o, uint32_t from, uint32_t to, uint32_t tokens)
{
    if (tokens <= 1) /* with more it proves nothing */
        o->edges[o->edge_count++] = (edge){from, to, tokens};
}

static uint32_t first_firing(uint32_t actor)
{
    return 2 * actor;
}

static uint32_t last_firing(const weir_plan *plan, uint32_t actor)
{
    return 2 * actor + (plan->actors[actor].fires > 1);
}

/* What `to` needs for its n-th slot is that `from` is done with slot n - tokens; a step has `slots` of them. With one
 * slot a step this takes all firings of `from`; with M, the first of `from` suffices for the first of `to`. */
static void add_steps(lives *l, uint32_t from, uint32_t to, uint32_t slots, uint32_t tokens)
{
    order *o = &l->steps;
    uint32_t steps = tokens / slots, rest = tokens % slots;
    uint32_t first = first_firing(from), last = last_firing(l->plan, from), end = last_firing(l->plan, to);
    add(o, slots == 1 ? last : first, first_firing(to), steps + (rest > 0));
    add(o, rest ? first : last, end, steps);
}

static void add_port(lives *l, uint32_t p)
{
    const weir_plan *plan = l->plan;
    const plan_port *port = &plan->ports[p];
    const plan_regst *regst = &plan->regsts[port->regst.i];
    uint32_t maker = regst->producer.i, reader = port->actor.i, fires = plan->actors[maker].fires;
    uint32_t free = regst->slots - regst->initial;
    add_steps(l, maker, reader, fires / regst->fill, regst->initial);
    add_steps(l, reader, maker, fires / regst->fill, free);
    if (fires == 1 || plan->actors[reader].fires == 1)
        return;
    order *o = &l->firings;
    if (regst->fill == 1 && port->hold == 1) {
        add(o, maker, reader, regst->initial);
        add(o, reader, maker, free);
    } else if (!regst->initial) {
        add(o, maker, reader, 0); /* the reader waits for all firings of the step */
    }
}

static void add_edges(lives *l)
{
    const weir_plan *plan = l->plan;
    for (uint32_t a = 0; a < plan->actors_count; a++) {
        uint32_t first = first_firing(a), last = last_firing(plan, a);
        if (first != last)
            add(&l->steps, first, last, 0);
        add(&l->steps, last, first, 1);
        add(&l->firings, a, a, 1);
    }
    for (uint32_t p = 0; p < plan->ports_count; p++)
        if (plan_port_counts(plan, &plan->ports[p]))
            add_port(l, p);
}

/* Puts the edges of a node beside each other. */
static bool index_edges(order *o)
{
    edge *sorted = calloc((size_t)o->edge_count + 1, sizeof *sorted);
    if (!sorted)
        return false;
    for (uint32_t e = 0; e < o->edge_count; e++)
        o->first[o->edges[e].from + 1]++;
    for (uint32_t n = 0; n < o->nodes; n++)
        o->first[n + 1] += o->first[n];
    for (uint32_t e = o->edge_count; e-- > 0;)
        sorted[--o->first[o->edges[e].from + 1]] = o->edges[e];
    memmove(o->first, o->first + 1, o->nodes * sizeof *o->first);
    o->first[o->nodes] = o->edge_count;
    free(o->edges);
    o->edges = sorted;
    return true;
}

/* Kahn's algorithm. What is on or behind a circle is left out. */
static bool sequence_nodes(order *o)
{
    uint32_t *waits = calloc((size_t)o->nodes + 1, sizeof *waits);
    if (!waits)
        return false;
    for (uint32_t e = 0; e < o->edge_count; e++)
        waits[o->edges[e].to] += !o->edges[e].tokens;
    for (uint32_t n = 0; n < o->nodes; n++)
        if (!waits[n])
            o->sequence[o->sequenced++] = n;
    for (uint32_t at = 0; at < o->sequenced; at++) {
        uint32_t n = o->sequence[at];
        for (uint32_t e = o->first[n]; e < o->first[n + 1]; e++)
            if (!o->edges[e].tokens && !--waits[o->edges[e].to])
                o->sequence[o->sequenced++] = o->edges[e].to;
    }
    free(waits);
    return true;
}

/* ---- who is reached ---- */

/* Adds to `row` what is reached over one edge: the node at its end, and what that reaches, by `rows`. */
static void reach_over(uint64_t *row, const uint64_t *rows, uint32_t to, uint32_t column, uint32_t words)
{
    const uint64_t *behind = rows + (size_t)to * words;
    for (uint32_t w = 0; w < words; w++)
        row[w] |= behind[w];
    if (column != PLAN_NONE)
        row[column / 64] |= UINT64_C(1) << column % 64;
}

/* `column_of` gives a node's column. First what is reached without a token, then what with one. */
static void reach(order *o, const uint32_t *column_of, uint32_t words)
{
    for (uint32_t at = o->sequenced; at-- > 0;) {
        uint32_t n = o->sequence[at];
        for (uint32_t e = o->first[n]; e < o->first[n + 1]; e++)
            if (!o->edges[e].tokens)
                reach_over(o->now + (size_t)n * words, o->now, o->edges[e].to, column_of[o->edges[e].to], words);
    }
    for (uint32_t at = o->sequenced; at-- > 0;) {
        uint32_t n = o->sequence[at];
        uint64_t *row = o->next + (size_t)n * words;
        memcpy(row, o->now + (size_t)n * words, words * sizeof *row);
        for (uint32_t e = o->first[n]; e < o->first[n + 1]; e++)
            reach_over(row, o->edges[e].tokens ? o->now : o->next, o->edges[e].to, column_of[o->edges[e].to], words);
    }
}

/* ---- set up ---- */

/* What begins in the space is what its queues' actors have in the workspace, and what producers write. */
static uint32_t choose_columns(lives *l, plan_space_id space)
{
    const weir_plan *plan = l->plan;
    uint32_t count = 0;
    memset(l->column, 0xff, plan->actors_count * sizeof *l->column);
    for (uint32_t r = 0; r < plan->regsts_count; r++)
        if (plan->regsts[r].space.i == space.i && plan->regsts[r].producer.i != PLAN_NONE)
            l->column[plan->regsts[r].producer.i] = 0;
    for (uint32_t a = 0; a < plan->actors_count; a++)
        if (plan->queues[plan->actors[a].queue.i].space.i == space.i || l->column[a] != PLAN_NONE)
            l->column[a] = count++;
    return count;
}

static void touch_reads(lives *l, const plan_kernel *kernel, uint32_t position)
{
    const plan_operand *in = l->plan->operands + kernel->in.first;
    for (uint32_t i = 0; i < kernel->in.count; i++) {
        const plan_tensor *tensor = &l->plan->tensors[in[i].tensor.i];
        if (in[i].port.i != PLAN_NONE)
            l->last_read[in[i].port.i] = position;
        else if (tensor->home == PLAN_IN_REGST)
            l->last_use[tensor->owner] = position;
    }
}

static void touch_writes(lives *l, const plan_kernel *kernel, uint32_t position)
{
    const plan_operand *out = l->plan->operands + kernel->out.first;
    for (uint32_t i = 0; i < kernel->out.count; i++) {
        const plan_tensor *tensor = &l->plan->tensors[out[i].tensor.i];
        if (tensor->home != PLAN_IN_REGST)
            continue;
        l->last_use[tensor->owner] = position;
        if (l->first_write[tensor->owner] > position)
            l->first_write[tensor->owner] = position;
    }
}

/* A port that no kernel reads through, and a register that none writes, have the whole firing. */
static void find_positions(lives *l)
{
    const weir_plan *plan = l->plan;
    memset(l->last_read, 0xff, plan->ports_count * sizeof *l->last_read);
    memset(l->first_write, 0xff, plan->regsts_count * sizeof *l->first_write);
    memset(l->last_use, 0xff, plan->regsts_count * sizeof *l->last_use);
    for (uint32_t a = 0; a < plan->actors_count; a++) {
        const plan_kernel *kernels = plan->kernels + plan->actors[a].kernels.first;
        for (uint32_t k = 0; k < plan->actors[a].kernels.count; k++) {
            touch_reads(l, &kernels[k], k);
            touch_writes(l, &kernels[k], k);
        }
    }
    for (uint32_t r = 0; r < plan->regsts_count; r++)
        l->first_write[r] = l->first_write[r] == NOWHERE ? 0 : l->first_write[r];
}

static bool on_outside_queue(const weir_plan *plan, uint32_t actor)
{
    return plan->queues[plan->actors[actor].queue.i].kind == PLAN_OUTSIDE;
}

static void find_outside(lives *l)
{
    const weir_plan *plan = l->plan;
    for (uint32_t r = 0; r < plan->regsts_count; r++)
        l->outside[r] = plan->regsts[r].producer.i != PLAN_NONE && on_outside_queue(plan, plan->regsts[r].producer.i);
    for (uint32_t p = 0; p < plan->ports_count; p++)
        l->outside[plan->ports[p].regst.i] |= on_outside_queue(plan, plan->ports[p].actor.i);
}

static bool order_new(order *o, uint32_t nodes, size_t edges)
{
    o->nodes = nodes;
    o->edges = malloc((edges + 1) * sizeof *o->edges);
    o->first = calloc((size_t)nodes + 1, sizeof *o->first);
    o->sequence = malloc(((size_t)nodes + 1) * sizeof *o->sequence);
    return o->edges && o->first && o->sequence;
}

static bool lives_new_arrays(lives *l)
{
    const weir_plan *plan = l->plan;
    size_t actors = plan->actors_count, ports = plan->ports_count, regsts = plan->regsts_count;
    uint32_t *memory = calloc(actors + 2 * ports + 3 * regsts + 2, sizeof *memory);
    l->column = memory;
    if (!memory)
        return false;
    l->reader_first = memory += actors;
    l->readers = memory += regsts + 1;
    l->last_read = memory += ports;
    l->first_write = memory += ports;
    l->last_use = memory + regsts;
    l->outside = calloc(regsts + 1, 1);
    return l->outside && order_new(&l->steps, 2 * (uint32_t)actors, 2 * actors + 4 * ports) &&
           order_new(&l->firings, (uint32_t)actors, actors + 2 * ports);
}

static bool no_memory(void)
{
    return error_set(WEIR_E_MEMORY, "no memory to prove what may share bytes") == WEIR_OK;
}

lives *lives_new(const weir_plan *plan)
{
    lives *l = calloc(1, sizeof *l);
    if (l)
        l->plan = plan;
    if (l && lives_new_arrays(l)) {
        plan_index_readers(plan, l->reader_first, l->readers);
        find_positions(l);
        find_outside(l);
        add_edges(l);
        l->work = WORK_MIN + (uint64_t)(l->steps.edge_count + l->firings.edge_count) * WORK_PER_EDGE;
        if (index_edges(&l->steps) && index_edges(&l->firings) && sequence_nodes(&l->steps) &&
            sequence_nodes(&l->firings))
            return l;
    }
    lives_free(l);
    no_memory();
    return NULL;
}

static void order_leave(order *o)
{
    free(o->now);
    free(o->next);
    o->now = o->next = NULL;
}

static void order_free(order *o)
{
    order_leave(o);
    free(o->edges);
    free(o->first);
    free(o->sequence);
}

void lives_free(lives *l)
{
    if (!l)
        return;
    order_free(&l->steps);
    order_free(&l->firings);
    free(l->column);
    free(l->outside);
    free(l);
}

/* ---- a space ---- */

static uint64_t order_work(const order *o, uint32_t words)
{
    return ((uint64_t)o->nodes + o->edge_count) * words;
}

static bool order_enter(order *o, const uint32_t *column_of, uint32_t words)
{
    size_t rows = (size_t)o->nodes * words + 1;
    o->now = calloc(rows, sizeof *o->now);
    o->next = calloc(rows, sizeof *o->next);
    if (!o->now || !o->next)
        return false;
    reach(o, column_of, words);
    return true;
}

/* The columns of the nodes of each graph: of those where an actor's step, or firing, begins. */
static bool enter_orders(lives *l)
{
    uint32_t actors = l->plan->actors_count;
    uint32_t *of_steps = malloc((2 * (size_t)actors + 1) * sizeof *of_steps);
    if (!of_steps)
        return false;
    for (uint32_t a = 0; a < actors; a++) {
        of_steps[2 * a] = l->column[a];
        of_steps[2 * a + 1] = PLAN_NONE;
    }
    bool ok = order_enter(&l->steps, of_steps, l->words) && order_enter(&l->firings, l->column, l->words);
    free(of_steps);
    return ok;
}

bool lives_enter(lives *l, plan_space_id space)
{
    order_leave(&l->steps);
    order_leave(&l->firings);
    l->words = (choose_columns(l, space) + 63) / 64;
    uint64_t rows = (uint64_t)l->steps.nodes * l->words;
    uint64_t work = order_work(&l->steps, l->words) + order_work(&l->firings, l->words);
    if (work > l->work || rows * 2 * sizeof(uint64_t) > REACH_BYTES_MAX) {
        l->words = 0;
        return true;
    }
    l->work -= work;
    return enter_orders(l) || no_memory();
}

/* ---- the question ---- */

enum { FAR = 2 }; /* tokens: two or more, or no path */

/* A kernel of a firing, by its place in a graph. */
typedef struct event {
    uint32_t actor, node, position;
    bool once; /* what it has to do with belongs to this firing alone */
} event;

static bool by_steps(const lives *l, const order *o)
{
    return o == &l->steps;
}

/* What is filled or read in one firing, in this graph. */
static bool at_once(const lives *l, const order *o, uint32_t actor, uint32_t firings)
{
    return by_steps(l, o) ? l->plan->actors[actor].fires == 1 : firings == 1;
}

static uint32_t end_node(const lives *l, const order *o, uint32_t actor)
{
    return by_steps(l, o) ? last_firing(l->plan, actor) : actor;
}

static event life_start(const lives *l, const order *o, const life *a)
{
    uint32_t actor = a->actor.i, position = a->from, fill = 1;
    if (a->regst.i != PLAN_NONE) {
        actor = l->plan->regsts[a->regst.i].producer.i;
        position = l->first_write[a->regst.i];
        fill = l->plan->regsts[a->regst.i].fill;
    }
    return (event){.actor = actor, .position = position, .once = at_once(l, o, actor, fill)};
}

static uint32_t distance(const lives *l, const order *o, event end, event start)
{
    if (end.actor == start.actor && end.once && start.once && end.position < start.position)
        return 0;
    uint32_t column = l->column[start.actor];
    size_t word = (size_t)end.node * l->words + column / 64;
    return o->now[word] >> column % 64 & 1 ? 0 : o->next[word] >> column % 64 & 1 ? 1 : FAR;
}

static uint32_t from_reader(const lives *l, const order *o, uint32_t p, event start)
{
    const plan_port *port = &l->plan->ports[p];
    uint32_t actor = port->actor.i;
    event end = {actor, end_node(l, o, actor), l->last_read[p], at_once(l, o, actor, port->hold)};
    return distance(l, o, end, start);
}

/* From the last of the ends of a's life. */
static uint32_t from_ends(const lives *l, const order *o, const life *a, event start)
{
    uint32_t most = 0, actor = a->actor.i, position = a->to;
    if (a->regst.i != PLAN_NONE) {
        uint32_t first = l->reader_first[a->regst.i], end = l->reader_first[a->regst.i + 1];
        for (uint32_t i = first; i < end && most < FAR; i++) {
            uint32_t each = from_reader(l, o, l->readers[i], start);
            most = each > most ? each : most;
        }
        if (first < end)
            return most;
        actor = l->plan->regsts[a->regst.i].producer.i;
        position = l->last_use[a->regst.i];
    }
    return distance(l, o, (event){actor, end_node(l, o, actor), position, at_once(l, o, actor, 1)}, start);
}

/* Whether each firing of the ends of this life fills or reads one slot. */
static bool life_of_firings(const lives *l, const life *a)
{
    const weir_plan *plan = l->plan;
    if (a->regst.i == PLAN_NONE)
        return plan->actors[a->actor.i].fires > 1;
    const plan_regst *regst = &plan->regsts[a->regst.i];
    bool all = plan->actors[regst->producer.i].fires > 1 && regst->fill == 1;
    for (uint32_t i = l->reader_first[a->regst.i]; i < l->reader_first[a->regst.i + 1]; i++)
        all &= plan->ports[l->readers[i]].hold == 1;
    return all;
}

static bool apart_in(const lives *l, const order *o, const life *a, const life *b)
{
    uint32_t there = from_ends(l, o, a, life_start(l, o, b));
    return there < FAR && there + from_ends(l, o, b, life_start(l, o, a)) <= 1;
}

static bool always_needed(const lives *l, const life *a)
{
    return a->regst.i != PLAN_NONE &&
           (l->plan->regsts[a->regst.i].initial || l->plan->regsts[a->regst.i].producer.i == PLAN_NONE);
}

static uint32_t life_program(const lives *l, const life *a)
{
    uint32_t actor = a->regst.i == PLAN_NONE ? a->actor.i : l->plan->regsts[a->regst.i].producer.i;
    return l->plan->actors[actor].program.i;
}

static bool ends_outside(const lives *l, const life *a)
{
    return a->regst.i != PLAN_NONE && l->outside[a->regst.i];
}

bool lives_apart(const lives *l, const life *a, const life *b)
{
    if (!l->words || always_needed(l, a) || always_needed(l, b))
        return false;
    if (life_program(l, a) != life_program(l, b))
        return !ends_outside(l, a) && !ends_outside(l, b);
    return apart_in(l, &l->steps, a, b) ||
           (life_of_firings(l, a) && life_of_firings(l, b) && apart_in(l, &l->firings, a, b));
}
