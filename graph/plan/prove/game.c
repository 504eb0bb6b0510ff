/* graph/plan/prove/game.c: see the header. */
#include "graph/plan/prove/game.h"

#include "graph/base/error.h"

#include <stdlib.h>

/* ---- set up ---- */

static void mark_initial(game *g, const uint32_t *first)
{
    const weir_plan *plan = g->plan;
    for (uint32_t a = 0; a < plan->actors_count; a++)
        g->actors[a] = (game_actor){.fires = plan->actors[a].fires, .member_of = PLAN_NONE};
    for (uint32_t r = 0; r < plan->regsts_count; r++) {
        const plan_regst *of = &plan->regsts[r];
        const uint32_t readers = first[r + 1] - first[r], credit = readers ? of->slots - of->initial : of->slots;
        g->regsts[r] = (game_regst){of->producer.i, of->fill, of->slots, .credit = credit, .slowest = readers, .first = first[r]};
        if (of->producer.i != PLAN_NONE)
            g->actors[of->producer.i].unmet += credit == 0;
    }
    g->regsts[plan->regsts_count].first = first[plan->regsts_count];
    for (uint32_t p = 0; p < plan->ports_count; p++) {
        const plan_port *of = &plan->ports[p];
        g->ports[p] = (game_port){.actor = of->actor.i, .regst = of->regst.i, .hold = plan_port_counts(plan, of) ? of->hold : 0,
                                  .unread = plan->regsts[of->regst.i].initial};
        g->actors[of->actor.i].unmet += g->ports[p].unread == 0;
    }
}

/* Every member is blocked until it is ready. */
static void mark_collectives(game *g, bool turns)
{
    const weir_plan *plan = g->plan;
    for (uint32_t c = 0; c < plan->collectives_count; c++) {
        const plan_range *members = &plan->collectives[c].members;
        g->open[c] = PLAN_NONE;
        g->blocked[c] = members->count + turns;
        for (uint32_t m = members->first; m < members->first + members->count; m++)
            g->actors[plan->members[m].i].member_of = c;
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
    const size_t actors = plan->actors_count, ports = plan->ports_count, regsts = plan->regsts_count + (size_t)1;
    const size_t collectives = plan->collectives_count, entries = turns ? turn_entries(plan) : 0;
    const size_t turn_count = turns ? plan->turns_count + (size_t)1 : 0, queues = turns ? 2 * (size_t)plan->queues_count : 0;
    const size_t rest = queues > regsts ? queues : regsts; /* room that is needed here alone */
    uint32_t *memory = calloc(actors + ports + 2 * collectives + 2 * turn_count + entries + rest + 1, sizeof *memory);
    *g = (game){.plan = plan, .memory = memory, .steps = 1, .actors = calloc(actors + 1, sizeof *g->actors),
                .ports = calloc(ports + 1, sizeof *g->ports), .regsts = calloc(regsts, sizeof *g->regsts)};
    if (!memory || !g->actors || !g->ports || !g->regsts) {
        game_free(g);
        return error_set(WEIR_E_MEMORY, "no memory to check the plan");
    }
    struct {
        uint32_t **array;
        size_t count;
    } const parts[] = {{&g->readers, ports}, {&g->stack, actors}, {&g->blocked, collectives}, {&g->open, collectives},
                       {&g->behind, turn_count}, {&g->entry, turn_count}, {&g->next, entries}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; memory += parts[i++].count)
        *parts[i].array = memory;
    plan_index_readers(plan, memory, g->readers);
    mark_initial(g, memory);
    mark_collectives(g, turns);
    if (turns)
        link_turns(g, memory, memory + plan->queues_count);
    else
        g->behind = g->entry = g->next = NULL;
    return WEIR_OK;
}

void game_free(game *g)
{
    free(g->actors);
    free(g->ports);
    free(g->regsts);
    free(g->memory);
    *g = (game){.plan = NULL};
}

void game_set_slots(game *g, uint32_t regst, uint32_t slots)
{
    game_regst *of = &g->regsts[regst];
    const bool was_short = of->credit == 0;
    of->credit += slots - of->slots;
    of->slots = slots;
    if (of->producer == PLAN_NONE)
        return;
    if (was_short && of->credit)
        g->actors[of->producer].unmet--;
    if (!was_short && !of->credit)
        g->actors[of->producer].unmet++;
}

/* ---- firing ---- */

/* The last condition of one that fires by itself, or of a collective's member. */
static void unblocked(game *g, uint32_t actor)
{
    const uint32_t c = g->actors[actor].member_of;
    if (!game_has_firings(g, actor))
        return;
    if (c == PLAN_NONE)
        g->ready(g, actor);
    else if (--g->blocked[c] == 0)
        g->ready(g, g->plan->members[g->plan->collectives[c].members.first].i);
}

static void met(game *g, uint32_t actor)
{
    if (--g->actors[actor].unmet == 0)
        unblocked(g, actor);
}

static void slot_returned(game *g, game_regst *regst)
{
    if (regst->credit++ == 0 && regst->filled == 0)
        met(g, regst->producer);
}

static void count_slowest(const game *g, game_regst *regst)
{
    for (uint32_t i = regst->first; i < (regst + 1)->first; i++)
        regst->slowest += g->ports[g->readers[i]].freed == regst->returned;
}

static void count_freed(game *g, game_port *port)
{
    game_regst *regst = &g->regsts[port->regst];
    if (port->freed++ != regst->returned || --regst->slowest)
        return;
    regst->returned++;
    count_slowest(g, regst);
    slot_returned(g, regst);
}

void game_told(game *g, uint32_t port, bool freed)
{
    if (freed)
        count_freed(g, &g->ports[port]);
    else if (g->ports[port].unread++ == 0)
        met(g, g->ports[port].actor);
}

static void tell(game *g, uint32_t port, bool freed)
{
    if (g->tell)
        g->tell(g, port, freed);
    else
        game_told(g, port, freed);
}

static void publish(game *g, game_regst *regst)
{
    regst->filled = 0;
    if (regst->credit == 0)
        g->actors[regst->producer].unmet++;
    for (uint32_t i = regst->first; i < (regst + 1)->first; i++)
        tell(g, g->readers[i], false);
    if (regst->first == (regst + 1)->first)
        slot_returned(g, regst);
}

/* Credit is taken when a slot is begun; while it is being filled the register asks for no more. */
static void write_slot(game *g, game_regst *regst)
{
    if (regst->filled++ == 0)
        regst->credit--;
    if (regst->filled == regst->fill)
        publish(g, regst);
}

/* With the last firing that holds it the port lets go of its oldest slot. */
static void read_slot(game *g, uint32_t port)
{
    game_port *of = &g->ports[port];
    if (!of->hold || ++of->held != of->hold)
        return;
    of->held = 0;
    if (--of->unread == 0)
        g->actors[of->actor].unmet++;
    tell(g, port, true);
}

/* The actor counts as blocked while it fires, so that what it does to itself makes it ready no sooner than at the end, and
 * once. */
static void fire(game *g, uint32_t actor)
{
    const plan_actor *of = &g->plan->actors[actor];
    g->actors[actor].fired++;
    g->firings++;
    g->actors[actor].unmet++;
    for (uint32_t i = 0; i < of->ports.count; i++)
        read_slot(g, of->ports.first + i);
    for (uint32_t i = 0; i < of->regsts.count; i++)
        write_slot(g, &g->regsts[of->regsts.first + i]);
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
    if (g->actors[actor].member_of == PLAN_NONE)
        fire(g, actor);
    else
        fire_together(g, g->actors[actor].member_of);
}

void game_begin(game *g)
{
    for (uint32_t a = 0; a < g->plan->actors_count; a++)
        if (g->actors[a].unmet == 0)
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
    return g->ports[port].unread == regst->initial && g->ports[port].held == 0;
}

static bool regst_is_initial(const game *g, uint32_t r)
{
    const plan_regst *regst = &g->plan->regsts[r];
    const game_regst *now = &g->regsts[r];
    return now->credit == now->slots - (game_readers(g, r) ? regst->initial : 0) && now->filled == 0;
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
