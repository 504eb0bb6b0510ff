/* graph/plan/prove/await.c: see the header.
 *
 * Needs only grow from turn to turn, so `all` and `own` are counts: so many firings of each actor. To need a firing is to
 * need those before it. Steps are played until both have moved on by a step's firings in a step, which they do once all
 * slots that are free at first have been used.
 */
#include "graph/plan/prove/await.h"

#include "graph/base/error.h"

#include <stdlib.h>

enum {
    STEPS_MAX = 64,         /* of a plan that has not settled by then it is not known, */
    FIRES_MAX = 1 << 24     /* nor of one whose firings in so many steps are more than can be counted */
};

/* Firings that are needed, by actor. */
struct needs {
    uint32_t *fired, *before; /* now, and a step ago */
    bool whole;               /* collectives are needed with all members */
};

struct awaits {
    const weir_plan *plan;
    uint32_t *memory;         /* owned: all arrays */
    uint32_t *first, *readers;
    uint32_t *member_of;      /* by actor: its collective; PLAN_NONE: it is in none */
    uint32_t *stack, stacked; /* actors whose needs are to be followed */
    uint32_t *on_stack;
    uint32_t *stands;         /* by actor: it is on the device, on a queue that may stand */
    uint32_t behind;          /* of these, those of which `all` has more firings than `own` */
    struct needs all, own;
};

/* ---- what a firing needs ---- */

static uint32_t is_behind(const struct awaits *x, uint32_t actor)
{
    return x->stands[actor] && x->all.fired[actor] > x->own.fired[actor];
}

static void need(struct awaits *x, const struct needs *needs, uint32_t actor, uint64_t firings)
{
    if (firings <= needs->fired[actor])
        return;
    x->behind -= is_behind(x, actor);
    needs->fired[actor] = (uint32_t)firings;
    x->behind += is_behind(x, actor);
    if (!x->on_stack[actor])
        x->stack[x->stacked++] = actor;
    x->on_stack[actor] = 1;
}

static uint64_t divide_up(uint64_t count, uint64_t by)
{
    return (count + by - 1) / by;
}

/* The slot that it reads at last. */
static void need_slot(struct awaits *x, const struct needs *needs, const plan_port *port, uint64_t firings)
{
    const plan_regst *regst = &x->plan->regsts[port->regst.i];
    uint64_t slots = divide_up(firings, port->hold);
    if (plan_port_counts(x->plan, port) && slots > regst->initial)
        need(x, needs, regst->producer.i, (slots - regst->initial) * regst->fill);
}

/* That its readers have let go of the slot that it fills at last. */
static void need_room(struct awaits *x, const struct needs *needs, uint32_t r, uint64_t firings)
{
    const plan_regst *regst = &x->plan->regsts[r];
    uint64_t filled = divide_up(firings, regst->fill), free_at_first = regst->slots - regst->initial;
    for (uint32_t i = x->first[r]; i < x->first[r + 1] && filled > free_at_first; i++) {
        const plan_port *port = &x->plan->ports[x->readers[i]];
        need(x, needs, port->actor.i, (filled - free_at_first) * port->hold);
    }
}

static void follow(struct awaits *x, const struct needs *needs)
{
    while (x->stacked) {
        uint32_t a = x->stack[--x->stacked], c = x->member_of[a];
        const plan_actor *actor = &x->plan->actors[a];
        uint64_t firings = needs->fired[a];
        x->on_stack[a] = 0;
        for (uint32_t p = 0; p < actor->ports.count; p++)
            need_slot(x, needs, &x->plan->ports[actor->ports.first + p], firings);
        for (uint32_t r = 0; r < actor->regsts.count; r++)
            need_room(x, needs, actor->regsts.first + r, firings);
        plan_range members = c == PLAN_NONE || !needs->whole ? (plan_range){0, 0} : x->plan->collectives[c].members;
        for (uint32_t m = 0; m < members.count; m++)
            need(x, needs, x->plan->members[members.first + m].i, firings);
    }
}

/* ---- turns ---- */

/* The collective's member on the device; PLAN_NONE: it has none. */
static uint32_t own_member(const struct awaits *x, uint32_t collective, plan_space_id space)
{
    plan_range members = x->plan->collectives[collective].members;
    for (uint32_t m = members.first; m < members.first + members.count; m++)
        if (plan_actor_space(x->plan, x->plan->members[m].i).i == space.i)
            return x->plan->members[m].i;
    return PLAN_NONE;
}

/* Whether it may stand behind an await. Collectives take their turns, and copies from the host await nothing. */
static bool may_stand(const struct awaits *x, uint32_t actor)
{
    uint32_t kind = x->plan->queues[x->plan->actors[actor].queue.i].kind;
    return kind != PLAN_COLLECTIVE && kind != PLAN_COPY_IN;
}

/* ---- steps ---- */

/* Whether each actor that is needed at all has moved on by a step's firings, or is as it was for good. */
static bool moved_by_a_step(const struct awaits *x, const struct needs *needs)
{
    for (uint32_t a = 0; a < x->plan->actors_count; a++)
        if (needs->fired[a] && needs->fired[a] - needs->before[a] != x->plan->actors[a].fires)
            return false;
    return true;
}

static void begin_step(const struct awaits *x, const struct needs *needs)
{
    for (uint32_t a = 0; a < x->plan->actors_count; a++)
        needs->before[a] = needs->fired[a];
}

/* Steps until every slot has been filled; STEPS_MAX: too many. */
static uint64_t steps_to_fill(const weir_plan *plan)
{
    uint64_t most = 1;
    for (uint32_t a = 0; a < plan->actors_count; a++)
        if (plan->actors[a].fires > FIRES_MAX)
            return STEPS_MAX;
    for (uint32_t r = 0; r < plan->regsts_count; r++) {
        const plan_regst *regst = &plan->regsts[r];
        uint64_t firings = (uint64_t)regst->slots * regst->fill;
        uint64_t steps = regst->producer.i == PLAN_NONE ? 1 : divide_up(firings, plan->actors[regst->producer.i].fires);
        most = steps > most ? steps : most;
    }
    return most;
}

/* A member that comes to a collective which needs something that may not have been launched then must not be awaited. */
static void take_turn(struct awaits *x, uint32_t collective, plan_space_id space, bool *may)
{
    uint32_t own = own_member(x, collective, space);
    uint32_t first = x->plan->members[x->plan->collectives[collective].members.first].i;
    need(x, &x->all, first, (uint64_t)x->all.fired[first] + 1);
    follow(x, &x->all);
    if (own == PLAN_NONE)
        return;
    need(x, &x->own, own, (uint64_t)x->own.fired[own] + 1);
    follow(x, &x->own);
    may[own] &= !x->behind;
}

/* Whether the program settles. */
static bool play_program(struct awaits *x, uint32_t program, plan_space_id space, uint64_t least, bool *may)
{
    for (uint64_t step = 0; step < STEPS_MAX; step++) {
        begin_step(x, &x->all);
        begin_step(x, &x->own);
        for (uint32_t t = 0; t < x->plan->turns_count; t++)
            if (plan_program_of(x->plan, &x->plan->collectives[x->plan->turns[t].i]) == program)
                take_turn(x, x->plan->turns[t].i, space, may);
        if (step >= least && moved_by_a_step(x, &x->all) && moved_by_a_step(x, &x->own))
            return true;
    }
    return false;
}

/* ---- a plan ---- */

static void awaits_begin(struct awaits *x, plan_space_id space)
{
    const weir_plan *plan = x->plan;
    plan_index_readers(plan, x->first, x->readers);
    for (uint32_t a = 0; a < plan->actors_count; a++) {
        x->member_of[a] = PLAN_NONE;
        x->stands[a] = plan_actor_space(x->plan, a).i == space.i && may_stand(x, a);
    }
    for (uint32_t c = 0; c < plan->collectives_count; c++)
        for (uint32_t m = 0; m < plan->collectives[c].members.count; m++)
            x->member_of[plan->members[plan->collectives[c].members.first + m].i] = c;
}

/* The members on the device, all alike. */
static void set_members(const struct awaits *x, plan_space_id space, bool may, bool *members)
{
    for (uint32_t c = 0; c < x->plan->collectives_count; c++) {
        uint32_t own = own_member(x, c, space);
        if (own != PLAN_NONE)
            members[own] = may;
    }
}

weir_status plan_may_await(const weir_plan *plan, plan_space_id space, bool *may)
{
    size_t actors = plan->actors_count, regsts = plan->regsts_count + (size_t)1;
    struct awaits x = {.plan = plan, .all.whole = true};
    uint64_t least = steps_to_fill(plan);
    bool settles = least < STEPS_MAX;
    x.memory = calloc(8 * actors + regsts + plan->ports_count + 1, sizeof *x.memory);
    if (!x.memory)
        return error_set(WEIR_E_MEMORY, "no memory to follow what collectives need");
    uint32_t *next = x.memory;
    uint32_t **const by_actor[] = {&x.member_of,  &x.stack,     &x.on_stack,  &x.stands,
                                    &x.all.fired, &x.all.before, &x.own.fired, &x.own.before};
    for (size_t i = 0; i < sizeof by_actor / sizeof *by_actor; i++, next += actors)
        *by_actor[i] = next;
    x.first = next;
    x.readers = next + regsts;
    awaits_begin(&x, space);
    set_members(&x, space, true, may);
    for (uint32_t p = 0; settles && p < plan->programs_count; p++)
        settles = play_program(&x, p, space, least, may);
    if (!settles)
        set_members(&x, space, false, may);
    free(x.memory);
    return WEIR_OK;
}
