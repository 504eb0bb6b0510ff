/* graph/plan/prove/game.c: see the header. */
#include "graph/plan/prove/game.h"

#include "graph/base/error.h"

#include <stdlib.h>

static bool counts(const game *g, uint32_t port)
{
    return plan_port_counts(g->plan, &g->plan->ports[port]);
}

/* ---- set up ---- */

static void mark_initial(game *g)
{
    const weir_plan *plan = g->plan;
    for (uint32_t r = 0; r < plan->regsts_count; r++) {
        const plan_regst *regst = &plan->regsts[r];
        g->slots[r] = regst->slots;
        g->slowest[r] = game_readers(g, r);
        g->credit[r] = g->slowest[r] ? regst->slots - regst->initial : regst->slots;
        if (regst->producer.i != PLAN_NONE)
            g->unmet[regst->producer.i] += g->credit[r] == 0;
    }
    for (uint32_t p = 0; p < plan->ports_count; p++) {
        g->unread[p] = plan->regsts[plan->ports[p].regst.i].initial;
        g->unmet[plan->ports[p].actor.i] += g->unread[p] == 0;
    }
}

/* Every member is blocked until it is ready. */
static void mark_collectives(game *g, bool turns)
{
    const weir_plan *plan = g->plan;
    for (uint32_t a = 0; a < plan->actors_count; a++)
        g->member_of[a] = PLAN_NONE;
    for (uint32_t c = 0; c < plan->collectives_count; c++) {
        const plan_range *members = &plan->collectives[c].members;
        g->open[c] = PLAN_NONE;
        g->blocked[c] = members->count + turns;
        for (uint32_t m = members->first; m < members->first + members->count; m++)
            g->member_of[plan->members[m].i] = c;
    }
}

/* Links the turns of each queue and program, from the last to the first. `last`: per queue, and then which program's. */
static void link_turns(game *g, uint32_t *last, uint32_t *program)
{
    const weir_plan *plan = g->plan;
    uint32_t entries = 0;
    for (uint32_t t = 0; t < plan->turns_count; t++) {
        g->entry[t] = entries;
        entries += plan->collectives[plan->turns[t].i].members.count;
    }
    g->entry[plan->turns_count] = entries;
    for (uint32_t q = 0; q < plan->queues_count; q++)
        last[q] = PLAN_NONE;
    for (uint32_t t = plan->turns_count; t-- > 0;) {
        const plan_range *members = &plan->collectives[plan->turns[t].i].members;
        for (uint32_t m = 0; m < members->count; m++) {
            const plan_actor *actor = &plan->actors[plan->members[members->first + m].i];
            uint32_t *later = &last[actor->queue.i];
            if (*later != PLAN_NONE && program[actor->queue.i] != actor->program.i)
                *later = PLAN_NONE;
            if (*later != PLAN_NONE)
                g->behind[*later]++;
            g->next[g->entry[t] + m] = *later;
            *later = t;
            program[actor->queue.i] = actor->program.i;
        }
    }
}

static size_t turn_entries(const weir_plan *plan)
{
    size_t entries = 0;
    for (uint32_t t = 0; t < plan->turns_count; t++)
        entries += plan->collectives[plan->turns[t].i].members.count;
    return entries;
}

weir_status game_init(game *g, const weir_plan *plan, bool turns)
{
    size_t actors = plan->actors_count, ports = plan->ports_count, regsts = plan->regsts_count;
    size_t collectives = plan->collectives_count, entries = turns ? turn_entries(plan) : 0;
    size_t turn_count = turns ? plan->turns_count + (size_t)1 : 0, queues = turns ? 2 * (size_t)plan->queues_count : 0;
    uint32_t *memory = calloc(4 * actors + 4 * ports + 6 * regsts + 2 * collectives + 2 * turn_count + entries + queues + 1,
                              sizeof *memory);
    if (!memory)
        return error_set(WEIR_E_MEMORY, "no memory to check the plan");
    *g = (game){.plan = plan, .memory = memory, .steps = 1};
    struct {
        uint32_t **array;
        size_t count;
    } const parts[] = {{&g->fired, actors}, {&g->unmet, actors}, {&g->stack, actors}, {&g->member_of, actors},
                       {&g->unread, ports}, {&g->held, ports}, {&g->freed, ports}, {&g->readers, ports},
                       {&g->slots, regsts}, {&g->credit, regsts}, {&g->filled, regsts}, {&g->returned, regsts},
                       {&g->slowest, regsts}, {&g->first, regsts + 1}, {&g->blocked, collectives},
                       {&g->open, collectives}, {&g->behind, turn_count}, {&g->entry, turn_count}, {&g->next, entries}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; memory += parts[i++].count)
        *parts[i].array = memory;
    plan_index_readers(plan, g->first, g->readers);
    mark_initial(g);
    mark_collectives(g, turns);
    if (turns)
        link_turns(g, memory, memory + plan->queues_count);
    else
        g->behind = g->entry = g->next = NULL;
    return WEIR_OK;
}

void game_free(game *g)
{
    free(g->memory);
    g->memory = NULL;
}

void game_set_slots(game *g, uint32_t regst, uint32_t slots)
{
    const plan_regst *of = &g->plan->regsts[regst];
    bool was_short = g->credit[regst] == 0;
    g->credit[regst] += slots - g->slots[regst];
    g->slots[regst] = slots;
    if (of->producer.i == PLAN_NONE)
        return;
    if (was_short && g->credit[regst])
        g->unmet[of->producer.i]--;
    if (!was_short && !g->credit[regst])
        g->unmet[of->producer.i]++;
}

/* ---- firing ---- */

/* The last condition of one that fires by itself, or of a collective's member. */
static void unblocked(game *g, uint32_t actor)
{
    uint32_t c = g->member_of[actor];
    if (!game_has_firings(g, actor))
        return;
    if (c == PLAN_NONE)
        g->ready(g, actor);
    else if (--g->blocked[c] == 0)
        g->ready(g, g->plan->members[g->plan->collectives[c].members.first].i);
}

static void met(game *g, uint32_t actor)
{
    if (--g->unmet[actor] == 0)
        unblocked(g, actor);
}

static void slot_returned(game *g, uint32_t regst)
{
    if (g->credit[regst]++ == 0 && g->filled[regst] == 0)
        met(g, g->plan->regsts[regst].producer.i);
}

static void count_slowest(game *g, uint32_t regst)
{
    for (uint32_t i = g->first[regst]; i < g->first[regst + 1]; i++)
        g->slowest[regst] += g->freed[g->readers[i]] == g->returned[regst];
}

static void count_freed(game *g, uint32_t port)
{
    uint32_t regst = g->plan->ports[port].regst.i;
    if (g->freed[port]++ != g->returned[regst] || --g->slowest[regst])
        return;
    g->returned[regst]++;
    count_slowest(g, regst);
    slot_returned(g, regst);
}

static void count_ready(game *g, uint32_t port)
{
    if (g->unread[port]++ == 0)
        met(g, g->plan->ports[port].actor.i);
}

void game_told(game *g, uint32_t port, bool freed)
{
    if (freed)
        count_freed(g, port);
    else
        count_ready(g, port);
}

static void tell(game *g, uint32_t port, bool freed)
{
    if (g->tell)
        g->tell(g, port, freed);
    else
        game_told(g, port, freed);
}

/* The port lets go of its oldest slot. */
static void slot_free(game *g, uint32_t port)
{
    g->held[port] = 0;
    if (--g->unread[port] == 0)
        g->unmet[g->plan->ports[port].actor.i]++;
    tell(g, port, true);
}

static void publish(game *g, uint32_t regst)
{
    g->filled[regst] = 0;
    if (g->credit[regst] == 0)
        g->unmet[g->plan->regsts[regst].producer.i]++;
    for (uint32_t i = g->first[regst]; i < g->first[regst + 1]; i++)
        tell(g, g->readers[i], false);
    if (!game_readers(g, regst))
        slot_returned(g, regst);
}

/* Credit is taken when a slot is begun; while it is being filled the register asks for no more. */
static void write_slot(game *g, uint32_t regst)
{
    if (g->filled[regst]++ == 0)
        g->credit[regst]--;
    if (g->filled[regst] == g->plan->regsts[regst].fill)
        publish(g, regst);
}

static void read_slot(game *g, uint32_t port)
{
    const plan_port *of = &g->plan->ports[port];
    if (counts(g, port) && ++g->held[port] == of->hold)
        slot_free(g, port);
}

/* The actor counts as blocked while it fires, so that what it does to itself makes it ready no sooner than at the end, and
 * once. */
static void fire(game *g, uint32_t actor)
{
    const plan_actor *of = &g->plan->actors[actor];
    g->fired[actor]++;
    g->firings++;
    g->unmet[actor]++;
    for (uint32_t i = 0; i < of->ports.count; i++)
        read_slot(g, of->ports.first + i);
    for (uint32_t i = 0; i < of->regsts.count; i++)
        write_slot(g, of->regsts.first + i);
    met(g, actor);
}

/* ---- collectives ---- */

/* All queues have come to the turn: its collective may take it. */
static void turn_opens(game *g, uint32_t turn)
{
    uint32_t c = g->plan->turns[turn].i;
    g->open[c] = turn;
    if (--g->blocked[c] == 0)
        g->ready(g, g->plan->members[g->plan->collectives[c].members.first].i);
}

static void turn_taken(game *g, uint32_t turn)
{
    g->behind[turn] = PLAN_NONE;
    for (uint32_t e = g->entry[turn]; e < g->entry[turn + 1]; e++)
        if (g->next[e] != PLAN_NONE && --g->behind[g->next[e]] == 0)
            turn_opens(g, g->next[e]);
}

/* Nobody is told that it is ready before all members have fired. */
static void fire_together(game *g, uint32_t c)
{
    const plan_range *members = &g->plan->collectives[c].members;
    uint32_t turn = g->open[c];
    g->blocked[c] = members->count + 1;
    g->open[c] = PLAN_NONE;
    for (uint32_t m = members->first; m < members->first + members->count; m++)
        fire(g, g->plan->members[m].i);
    if (g->entry)
        turn_taken(g, turn);
    else if (--g->blocked[c] == 0)
        g->ready(g, g->plan->members[members->first].i);
}

void game_fire(game *g, uint32_t actor)
{
    if (g->member_of[actor] == PLAN_NONE)
        fire(g, actor);
    else
        fire_together(g, g->member_of[actor]);
}

void game_begin(game *g)
{
    for (uint32_t a = 0; a < g->plan->actors_count; a++)
        if (g->unmet[a] == 0)
            unblocked(g, a);
    for (uint32_t t = 0; g->entry && t < g->plan->turns_count; t++)
        if (g->behind[t] == 0)
            turn_opens(g, t);
}

bool game_finished(const game *g)
{
    for (uint32_t a = 0; a < g->plan->actors_count; a++)
        if (game_has_firings(g, a))
            return false;
    return true;
}

static bool port_is_initial(const game *g, uint32_t port)
{
    const plan_regst *regst = &g->plan->regsts[g->plan->ports[port].regst.i];
    return g->unread[port] == regst->initial && g->held[port] == 0;
}

static bool regst_is_initial(const game *g, uint32_t r)
{
    const plan_regst *regst = &g->plan->regsts[r];
    uint32_t credit = game_readers(g, r) ? g->slots[r] - regst->initial : g->slots[r];
    return g->credit[r] == credit && g->filled[r] == 0;
}

bool game_is_initial(const game *g)
{
    for (uint32_t p = 0; p < g->plan->ports_count; p++)
        if (!port_is_initial(g, p))
            return false;
    for (uint32_t r = 0; r < g->plan->regsts_count; r++)
        if (!regst_is_initial(g, r))
            return false;
    return true;
}
