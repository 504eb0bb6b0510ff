/* graph/plan/lives/lives.c: lives.h says what is proven, and why it is true: the graphs, and the question. */
#include "graph/plan/lives/lives_inside.h"

#include "graph/base/error.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define WORK_MIN (UINT64_C(1) << 26) /* words of columns that are looked at, for all spaces together: so many */
#define WORK_PER_EDGE 1024           /* and so many more */

/* ---- the graphs ---- */

/* For its n-th slot `to` needs that `from` is done with slot n - tokens; a step has `slots` of them. With one slot a step
 * this takes all firings of `from`; with M, the first of `from` suffices for the first of `to`. */
static void add_steps(lives *l, uint32_t from, uint32_t to, uint32_t slots, uint32_t tokens)
{
    uint32_t steps = tokens / slots, rest = tokens % slots;
    uint32_t first = first_firing(l, from), last = last_firing(l, from), end = last_firing(l, to);
    reach_add(&l->steps, slots == 1 ? last : first, first_firing(l, to), steps + (rest > 0));
    reach_add(&l->steps, rest ? first : last, end, steps);
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
    if (regst->fill == 1 && port->hold == 1) {
        reach_add(&l->firings, maker, reader, regst->initial);
        reach_add(&l->firings, reader, maker, free);
    } else if (!regst->initial) {
        reach_add(&l->firings, maker, reader, 0); /* the reader waits for all firings of the step */
    }
}

static void add_edges(lives *l)
{
    const weir_plan *plan = l->plan;
    for (uint32_t a = 0; a < plan->actors_count; a++) {
        uint32_t first = first_firing(l, a), last = last_firing(l, a);
        if (first != last)
            reach_add(&l->steps, first, last, 0);
        reach_add(&l->steps, last, first, 1);
        reach_add(&l->firings, a, a, 1);
    }
    for (uint32_t p = 0; p < plan->ports_count; p++)
        if (plan_port_counts(plan, &plan->ports[p]))
            add_port(l, p);
}

/* ---- set up ---- */

/* The column of an actor in a space, which gets it one where it has none yet. `last` is by space 1 + the last actor
 * that got one; column_first has how many there are. */
static uint32_t column_in(lives *l, uint32_t space, uint32_t actor, uint32_t *last)
{
    if (last[space] != actor + 1)
        l->column_first[space]++;
    last[space] = actor + 1;
    return l->column_first[space] - 1;
}

/* Counts become the places where each begins. */
static void sum_up(uint32_t *first, uint32_t count)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i <= count; i++) {
        uint32_t here = i < count ? first[i] : 0;
        first[i] = sum;
        sum += here;
    }
}

/* The starts in a space are those of what its queues' actors have in the workspace, and of what producers write. */
static bool find_columns(lives *l)
{
    const weir_plan *plan = l->plan;
    uint32_t *last = calloc(plan->spaces_count + (size_t)1, sizeof *last);
    for (uint32_t a = 0; a < plan->actors_count && last; a++) {
        const plan_range *made = &plan->actors[a].regsts;
        l->actor_column[a] = column_in(l, plan_actor_space(plan, a).i, a, last);
        for (uint32_t r = made->first; r < made->first + made->count; r++)
            l->regst_column[r] = column_in(l, plan->regsts[r].space.i, a, last);
    }
    bool counted = last;
    free(last);
    sum_up(l->column_first, plan->spaces_count);
    l->columns = counted ? malloc((l->column_first[plan->spaces_count] + (size_t)1) * sizeof *l->columns) : NULL;
    for (uint32_t a = 0; a < plan->actors_count && l->columns; a++) {
        const plan_range *made = &plan->actors[a].regsts;
        l->columns[l->column_first[plan_actor_space(plan, a).i] + l->actor_column[a]] = a;
        for (uint32_t r = made->first; r < made->first + made->count; r++)
            l->columns[l->column_first[plan->regsts[r].space.i] + l->regst_column[r]] = a;
    }
    return l->columns;
}

/* On a shelf there are the actors first, by their columns, then the registers. */
static void find_ends(lives *l)
{
    const weir_plan *plan = l->plan;
    for (uint32_t r = 0; r < plan->regsts_count; r++)
        l->regst_end[r] = l->regst_first[plan->regsts[r].space.i]++;
    sum_up(l->regst_first, plan->spaces_count);
    for (uint32_t r = 0; r < plan->regsts_count; r++) {
        l->regsts[l->regst_first[plan->regsts[r].space.i] + l->regst_end[r]] = r;
        l->regst_end[r] += columns_of(l, plan->regsts[r].space.i);
    }
}

static bool lives_new_arrays(lives *l)
{
    const weir_plan *plan = l->plan;
    size_t actors = plan->actors_count, ports = plan->ports_count, regsts = plan->regsts_count;
    size_t spaces = plan->spaces_count;
    struct {
        uint32_t **array;
        size_t count;
    } arrays[] = {{&l->column_first, spaces + 1}, {&l->regst_first, spaces + 1}, {&l->regsts, regsts},
                  {&l->regst_end, regsts},        {&l->actor_column, actors},    {&l->regst_column, regsts},
                  {&l->reader_first, regsts + 1}, {&l->readers, ports},          {&l->touch.last_read, ports},
                  {&l->touch.first_write, regsts},      {&l->touch.last_use, regsts},
                  {&l->first_node, actors + 1},
                  {&l->self, actors}};
    size_t count = 1;
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        count += arrays[i].count;
    uint32_t *memory = l->memory = calloc(count, sizeof *memory);
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays && memory; memory += arrays[i++].count)
        *arrays[i].array = memory;
    l->touch.outside = calloc(2 * regsts + 1, 1);
    l->by_firings = l->touch.outside ? l->touch.outside + regsts : NULL;
    l->shelves = calloc(spaces + 1, sizeof *l->shelves);
    return memory && l->touch.outside && l->shelves;
}

/* Notes the registers of which each firing fills or reads one slot. */
static void find_firings(lives *l)
{
    const weir_plan *plan = l->plan;
    for (uint32_t r = 0; r < plan->regsts_count; r++) {
        uint32_t producer = plan->regsts[r].producer.i;
        l->by_firings[r] = producer != PLAN_NONE && plan->actors[producer].fires > 1 && plan->regsts[r].fill == 1;
        for (uint32_t i = l->reader_first[r]; i < l->reader_first[r + 1]; i++)
            l->by_firings[r] &= plan->ports[l->readers[i]].hold == 1;
    }
}

static bool make_graphs(lives *l)
{
    const weir_plan *plan = l->plan;
    size_t actors = plan->actors_count, ports = plan->ports_count;
    for (uint32_t a = 0; a < actors; a++)
        l->first_node[a + 1] = l->first_node[a] + 1 + (plan->actors[a].fires > 1);
    if (!reach_open(&l->steps, l->first_node[actors], 2 * actors + 4 * ports) ||
        !reach_open(&l->firings, (uint32_t)actors, actors + 2 * ports))
        return false;
    add_edges(l);
    l->edges = (uint64_t)l->steps.edge_count + l->firings.edge_count;
    l->rows = plan->micro_batches > 1 ? ROWS_OF_BOTH : ROWS_OF_STEPS;
    if (l->rows == ROWS_OF_STEPS)
        reach_free(&l->firings);
    return reach_close(&l->steps) && (l->rows == ROWS_OF_STEPS || reach_close(&l->firings));
}

bool lives_no_memory(void)
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
        touch_find(plan, &l->touch);
        find_firings(l);
        memset(l->self, 0xff, plan->actors_count * sizeof *l->self);
        if (find_columns(l) && make_graphs(l)) {
            find_ends(l);
            l->work = WORK_MIN + l->edges * WORK_PER_EDGE;
            return l;
        }
    }
    lives_free(l);
    lives_no_memory();
    return NULL;
}

void lives_free(lives *l)
{
    if (!l)
        return;
    lives_clear_shelves(l);
    reach_free(&l->steps);
    reach_free(&l->firings);
    free(l->shelves);
    free(l->columns);
    free(l->memory);
    free(l->touch.outside);
    free(l);
}

/* ---- of which plan ---- */

_Static_assert(sizeof(plan_actor) == 6 * 4 + 5 * 8 && sizeof(plan_port) == 3 * 4 && sizeof(plan_operand) == 2 * 4,
               "these are compared byte by byte, so they have no padding");

static bool same_counts(const weir_plan *a, const weir_plan *b)
{
    return a->spaces_count == b->spaces_count && a->queues_count == b->queues_count &&
           a->actors_count == b->actors_count && a->ports_count == b->ports_count &&
           a->regsts_count == b->regsts_count && a->tensors_count == b->tensors_count &&
           a->kernels_count == b->kernels_count && a->operands_count == b->operands_count &&
           a->micro_batches == b->micro_batches && a->part == b->part;
}

static bool same_regst(const plan_regst *a, const plan_regst *b)
{
    return a->producer.i == b->producer.i && a->space.i == b->space.i && a->slots == b->slots && a->fill == b->fill &&
           a->initial == b->initial;
}

static bool same_kernel(const plan_kernel *a, const plan_kernel *b)
{
    return a->in.first == b->in.first && a->in.count == b->in.count && a->out.first == b->out.first &&
           a->out.count == b->out.count;
}

#define SAME_ARRAY(a, b, member) (!(a)->member##_count || \
                                  !memcmp((a)->member, (b)->member, (a)->member##_count * sizeof *(a)->member))

bool lives_are_of(const lives *l, const weir_plan *plan)
{
    const weir_plan *own = l->plan;
    if (own == plan)
        return true;
    bool same = same_counts(own, plan) && SAME_ARRAY(own, plan, actors) && SAME_ARRAY(own, plan, ports) &&
                SAME_ARRAY(own, plan, operands);
    for (uint32_t s = 0; same && s < plan->spaces_count; s++)
        same = own->spaces[s].rank == plan->spaces[s].rank;
    for (uint32_t q = 0; same && q < plan->queues_count; q++)
        same = own->queues[q].space.i == plan->queues[q].space.i && own->queues[q].kind == plan->queues[q].kind;
    for (uint32_t r = 0; same && r < plan->regsts_count; r++)
        same = same_regst(&own->regsts[r], &plan->regsts[r]);
    for (uint32_t t = 0; same && t < plan->tensors_count; t++)
        same = own->tensors[t].home == plan->tensors[t].home && own->tensors[t].owner == plan->tensors[t].owner;
    for (uint32_t k = 0; same && k < plan->kernels_count; k++)
        same = same_kernel(&own->kernels[k], &plan->kernels[k]);
    return same;
}

/* ---- the question ---- */

/* A kernel of a firing. */
typedef struct event {
    uint32_t actor, position;
    bool once; /* what it has to do with belongs to this firing alone */
} event;

static bool by_steps(const lives *l, const reach *r)
{
    return r == &l->steps;
}

/* Whether it is filled or read in one firing, in this graph. */
static bool at_once(const lives *l, const reach *r, uint32_t actor, uint32_t firings)
{
    return by_steps(l, r) ? l->plan->actors[actor].fires == 1 : firings == 1;
}

static event life_start(const lives *l, const reach *r, const life *a)
{
    uint32_t actor = a->actor.i, position = a->from, fill = 1;
    if (a->regst.i != PLAN_NONE) {
        actor = l->plan->regsts[a->regst.i].producer.i;
        position = l->touch.first_write[a->regst.i];
        fill = l->plan->regsts[a->regst.i].fill;
    }
    return (event){.actor = actor, .position = position, .once = at_once(l, r, actor, fill)};
}

/* From the end of a firing of an actor to the start of one of its own. */
static uint32_t own_distance(const lives *l, const reach *r, event end, event start)
{
    if (end.once && start.once && end.position < start.position)
        return 0;
    return reach_knows(r, by_steps(l, r) ? last_firing(l, end.actor) : end.actor) ? 1 : FAR;
}

/* The same where the actor is one of those that end a's life. */
static uint32_t own_end(const lives *l, const reach *r, const life *a, event start)
{
    const weir_plan *plan = l->plan;
    event end = {start.actor, a->to, at_once(l, r, start.actor, 1)};
    if (a->regst.i == PLAN_NONE)
        return own_distance(l, r, end, start);
    uint32_t most = 0, first = l->reader_first[a->regst.i], last = l->reader_first[a->regst.i + 1];
    end.position = l->touch.last_use[a->regst.i];
    if (first == last)
        return own_distance(l, r, end, start);
    for (uint32_t i = first; i < last; i++) {
        const plan_port *port = &plan->ports[l->readers[i]];
        if (port->actor.i != start.actor)
            continue;
        end.position = l->touch.last_read[l->readers[i]];
        end.once = at_once(l, r, start.actor, port->hold);
        uint32_t each = own_distance(l, r, end, start);
        most = each > most ? each : most;
    }
    return most;
}

/* From the last of the ends of a's life to the start of b's. */
static uint32_t distance(const lives *l, const reach *r, const life_known *a, const life_known *b)
{
    uint32_t words = l->here->words;
    assert(a->rows);
    const uint64_t *now = a->rows + (size_t)(by_steps(l, r) ? ROW_NOW : ROW_NOW + 2) * words;
    uint32_t far = has_bit(now, b->column) ? 0 : has_bit(now + words, b->column) ? 1 : FAR;
    if (far == FAR || !has_bit(a->rows + (size_t)ROW_SELF * words, b->column))
        return far;
    uint32_t own = own_end(l, r, &a->life, life_start(l, r, &b->life));
    return own > far ? own : far;
}

bool lives_apart_in(const lives *l, const reach *r, const life_known *a, const life_known *b)
{
    uint32_t there = distance(l, r, a, b);
    return there < FAR && there + distance(l, r, b, a) <= 1;
}

static const uint64_t *end_rows(const lives *l, uint32_t end)
{
    return l->here->rows ? l->here->rows + (size_t)end * l->rows * l->here->words : NULL;
}

static life_known look_at_regst(const lives *l, life of)
{
    uint32_t r = of.regst.i, producer = l->plan->regsts[r].producer.i;
    bool always = l->plan->regsts[r].initial || producer == PLAN_NONE;
    return (life_known){.life = of,
                        .rows = always ? NULL : end_rows(l, l->regst_end[r]),
                        .column = l->regst_column[r],
                        .program = always ? 0 : l->plan->actors[producer].program.i,
                        .always = always,
                        .outside = l->touch.outside[r],
                        .by_firings = l->by_firings[r]};
}

/* For a part that is in the workspace, each firing of its actor is a life. */
life_known lives_look(const lives *l, life of)
{
    if (of.regst.i != PLAN_NONE)
        return look_at_regst(l, of);
    const plan_actor *actor = &l->plan->actors[of.actor.i];
    uint32_t column = l->actor_column[of.actor.i];
    return (life_known){.life = of,
                        .rows = end_rows(l, column),
                        .column = column,
                        .program = actor->program.i,
                        .by_firings = actor->fires > 1};
}

bool lives_apart_known(const lives *l, const life_known *a, const life_known *b)
{
    if (l->here->unknown || a->always || b->always)
        return false;
    if (a->program != b->program)
        return !a->outside && !b->outside;
    return lives_apart_in(l, &l->steps, a, b) || (a->by_firings && b->by_firings && lives_apart_in(l, &l->firings, a, b));
}

bool lives_apart(const lives *l, const life *a, const life *b)
{
    life_known one = lives_look(l, *a), other = lives_look(l, *b);
    return lives_apart_known(l, &one, &other);
}

/* ---- several parts as one ---- */

/* The kernel at the position in the actor, or its last. */
static uint32_t kernel_at(const weir_plan *plan, uint32_t actor, uint32_t position)
{
    const plan_range *kernels = &plan->actors[actor].kernels;
    return kernels->first + (position < kernels->count ? position : kernels->count ? kernels->count - 1 : 0);
}

void lives_kernels(const lives *l, const life *of, uint32_t *first, uint32_t *last)
{
    const weir_plan *plan = l->plan;
    uint32_t r = of->regst.i;
    if (r == PLAN_NONE) {
        *first = kernel_at(plan, of->actor.i, of->from);
        *last = kernel_at(plan, of->actor.i, of->to);
        return;
    }
    *first = *last = kernel_at(plan, plan->regsts[r].producer.i, l->touch.first_write[r]);
    for (uint32_t i = l->reader_first[r]; i < l->reader_first[r + 1]; i++) {
        uint32_t p = l->readers[i], kernel = kernel_at(plan, plan->ports[p].actor.i, l->touch.last_read[p]);
        *last = kernel > *last ? kernel : *last;
    }
}

static int bound_order(const void *a, const void *b)
{
    const lives_bound *x = a, *y = b;
    return x->actor < y->actor ? -1 : x->actor > y->actor;
}

/* One for each actor: the first position of starts, the last of ends. How many there are then. */
static int merge_bounds(lives_bound *list, int count, bool ends)
{
    int kept = 0;
    qsort(list, (size_t)count, sizeof *list, bound_order);
    for (int i = 0; i < count; i++) {
        lives_bound *to = kept ? &list[kept - 1] : NULL;
        if (!to || to->actor != list[i].actor) {
            list[kept++] = list[i];
            continue;
        }
        if (ends ? list[i].position > to->position : list[i].position < to->position)
            to->position = list[i].position;
        to->once[0] &= list[i].once[0];
        to->once[1] &= list[i].once[1];
    }
    return kept;
}

static lives_bound bound_at(const lives *l, uint32_t actor, uint32_t position, uint32_t firings)
{
    return (lives_bound){.actor = actor, .position = position,
                         .once = {at_once(l, &l->steps, actor, firings), at_once(l, &l->firings, actor, firings)}};
}

static lives_bound start_of(const lives *l, const life_known *part)
{
    uint32_t r = part->life.regst.i;
    const plan_regst *regst = r == PLAN_NONE ? NULL : &l->plan->regsts[r];
    lives_bound start = regst ? bound_at(l, regst->producer.i, l->touch.first_write[r], regst->fill)
                              : bound_at(l, part->life.actor.i, part->life.from, 1);
    start.column = part->column;
    return start;
}

/* At most as many as ends_most(). How many there are. */
static int ends_of(const lives *l, const life_known *part, lives_bound *end)
{
    uint32_t r = part->life.regst.i, first = r == PLAN_NONE ? 0 : l->reader_first[r];
    uint32_t last = r == PLAN_NONE ? 0 : l->reader_first[r + 1];
    if (r == PLAN_NONE)
        end[0] = bound_at(l, part->life.actor.i, part->life.to, 1);
    else if (first == last)
        end[0] = bound_at(l, l->plan->regsts[r].producer.i, l->touch.last_use[r], 1);
    for (uint32_t i = first; i < last; i++) {
        const plan_port *port = &l->plan->ports[l->readers[i]];
        end[i - first] = bound_at(l, port->actor.i, l->touch.last_read[l->readers[i]], port->hold);
    }
    return first == last ? 1 : (int)(last - first);
}

static int ends_most(const lives *l, const life_known *part)
{
    uint32_t r = part->life.regst.i;
    return r == PLAN_NONE ? 1 : (int)(l->reader_first[r + 1] - l->reader_first[r]) + 1;
}

/* Rows of selves are joined; of the others there is only what all have in common. */
static void join_rows(const lives *l, uint64_t *rows, const uint64_t *more)
{
    size_t words = l->here->words, self = ROW_SELF * words;
    for (size_t w = 0; w < l->rows * words; w++)
        rows[w] = w >= self && w < self + words ? rows[w] | more[w] : rows[w] & more[w];
}

bool lives_unite(const lives *l, const life_known *part, int count, pool *memory, lives_union *all)
{
    int ends = 0;
    *all = (lives_union){.always = l->here->unknown, .by_firings = true};
    for (int i = 0; i < count; i++) {
        all->always |= part[i].always || part[i].program != part[0].program;
        all->outside |= part[i].outside;
        all->by_firings &= part[i].by_firings;
    }
    for (int i = 0; i < count; i++)
        ends += ends_most(l, &part[i]);
    all->start = POOL_NEW(memory, lives_bound, count + 1);
    all->end = POOL_NEW(memory, lives_bound, ends + 1);
    if (!all->start || !all->end || !count)
        return all->start && all->end;
    all->starts = 1; /* of what is always needed nothing else is asked */
    if (all->always)
        return true;
    for (int i = 0; i < count; i++) {
        all->start[i] = start_of(l, &part[i]);
        all->ends += ends_of(l, &part[i], all->end + all->ends);
    }
    all->starts = merge_bounds(all->start, count, false);
    all->ends = merge_bounds(all->end, all->ends, true);
    all->program = part[0].program;
    all->rows = part[0].rows;
    if (count == 1)
        return true;
    uint64_t *rows = pool_copy(memory, part[0].rows, sizeof *rows * l->rows * l->here->words);
    for (int i = 1; i < count && rows; i++)
        join_rows(l, rows, part[i].rows);
    all->rows = rows;
    return rows;
}

/* As own_end(), for what ends in the actor of the start. */
static uint32_t own_union_end(const lives *l, const reach *r, const lives_union *a, const lives_bound *start)
{
    const lives_bound *end = bsearch(start, a->end, (size_t)a->ends, sizeof *end, bound_order);
    if (!end)
        return FAR;
    bool steps = by_steps(l, r);
    event from = {end->actor, end->position, end->once[!steps]}, to = {start->actor, start->position, start->once[!steps]};
    return own_distance(l, r, from, to);
}

/* From the last of the ends of a's lives to the first start of b's. */
static uint32_t union_distance(const lives *l, const reach *r, const lives_union *a, const lives_union *b)
{
    uint32_t words = l->here->words, most = 0;
    const uint64_t *self = a->rows + (size_t)ROW_SELF * words;
    const uint64_t *now = a->rows + (size_t)(by_steps(l, r) ? ROW_NOW : ROW_NOW + 2) * words, *within = now + words;
    for (int i = 0; i < b->starts && most < FAR; i++) {
        uint32_t column = b->start[i].column, far = has_bit(now, column) ? 0 : has_bit(within, column) ? 1 : FAR;
        if (far < FAR && has_bit(self, column)) {
            uint32_t own = own_union_end(l, r, a, &b->start[i]);
            far = own > far ? own : far;
        }
        most = far > most ? far : most;
    }
    return most;
}

static bool unions_apart_in(const lives *l, const reach *r, const lives_union *a, const lives_union *b)
{
    uint32_t there = union_distance(l, r, a, b);
    return there < FAR && there + union_distance(l, r, b, a) <= 1;
}

bool lives_unions_apart(const lives *l, const lives_union *a, const lives_union *b)
{
    if (!a->starts || !b->starts)
        return true;
    if (a->always || b->always)
        return false;
    if (a->program != b->program)
        return !a->outside && !b->outside;
    return unions_apart_in(l, &l->steps, a, b) || (a->by_firings && b->by_firings && unions_apart_in(l, &l->firings, a, b));
}

bool lives_in_turn(const lives *l, const life *whole, const life *part)
{
    uint32_t maker = whole->regst.i == PLAN_NONE ? whole->actor.i : l->plan->regsts[whole->regst.i].producer.i;
    life_known one = lives_look(l, *whole), other = lives_look(l, *part);
    if (l->here->unknown || one.always || other.always)
        return false;
    if (l->plan->actors[maker].fires == 1)
        return distance(l, &l->steps, &one, &other) <= 1;
    return one.by_firings && other.by_firings && distance(l, &l->firings, &one, &other) <= 1;
}

const uint32_t *lives_readers(const lives *l, plan_regst_id regst, uint32_t *count)
{
    *count = l->reader_first[regst.i + 1] - l->reader_first[regst.i];
    return l->readers + l->reader_first[regst.i];
}
