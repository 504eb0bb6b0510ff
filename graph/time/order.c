/* graph/time/order.c: see the header. */
#include "graph/time/order.h"

#include "graph/base/error.h"

#include <stdlib.h>

enum { ROOM = 16 }; /* at first */

static uint32_t worker_of(const orders *o, uint32_t actor)
{
    return o->worker[o->plan->actors[actor].queue.i];
}

static bool grow(order *of)
{
    const uint32_t room = of->room ? 2 * of->room : ROOM;
    uint32_t *list = malloc(room * sizeof *list);
    if (!list)
        return false;
    for (uint32_t i = 0; i < of->count; i++)
        list[i] = of->list[(of->first + i) % of->room];
    free(of->list);
    *of = (order){list, 0, of->count, room, of->turns};
    return true;
}

static bool append(order *of, uint32_t actor)
{
    if (of->count == of->room && !grow(of))
        return false;
    of->list[(of->first + of->count++) % of->room] = actor;
    return true;
}

/* A turn of each member's queue; queues of other programs' collectives have no part in it. */
static bool add_turn(orders *o, const plan_collective *c, uint32_t program)
{
    bool ok = true;
    for (uint32_t m = c->members.first; ok && m < c->members.first + c->members.count; m++) {
        const uint32_t actor = o->plan->members[m].i;
        order *of = &o->of[worker_of(o, actor)];
        of->turns = true;
        ok = o->plan->actors[actor].program.i != program || append(of, actor);
    }
    return ok;
}

weir_status orders_open(orders *o, const weir_plan *plan, uint32_t program, const uint32_t *worker, uint32_t workers, const uint32_t *launches)
{
    *o = (orders){plan, worker, launches, calloc(workers + (size_t)1, sizeof *o->of)};
    bool ok = o->of;
    for (uint32_t t = 0; ok && t < plan->turns_count; t++)
        ok = add_turn(o, &plan->collectives[plan->turns[t].i], program);
    for (uint32_t a = 0; ok && a < plan->actors_count; a++)
        if (launches[a] != PLAN_NONE && !o->of[worker_of(o, launches[a])].room)
            ok = grow(&o->of[worker_of(o, launches[a])]);
    return ok ? WEIR_OK : error_set(WEIR_E_MEMORY, "no memory for the order of %u workers", workers);
}

void orders_close(orders *o, uint32_t workers)
{
    for (uint32_t w = 0; o->of && w < workers; w++)
        free(o->of[w].list);
    free(o->of);
    *o = (orders){.of = NULL};
}

uint32_t orders_next(const orders *o, uint32_t worker)
{
    const order *of = &o->of[worker];
    return of->count ? of->list[of->first] : PLAN_NONE;
}

void orders_pass(orders *o, uint32_t worker)
{
    order *of = &o->of[worker];
    of->first = (of->first + 1) % (of->turns ? of->count : of->room);
    of->count -= !of->turns;
}

uint32_t orders_launch(orders *o, uint32_t actor, bool *ok)
{
    const uint32_t launched = o->of ? o->launches[actor] : PLAN_NONE;
    if (launched == PLAN_NONE)
        return PLAN_NONE;
    order *of = &o->of[worker_of(o, launched)];
    if (!of->turns && !append(of, launched))
        *ok = false;
    return worker_of(o, launched);
}
