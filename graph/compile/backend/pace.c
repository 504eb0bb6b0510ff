/* graph/compile/backend/pace.c: see the header. */
#include "graph/compile/backend/pace.h"

#include "graph/base/error.h"

enum { TRIES = 12 }; /* points that are laid out for a limit: laying out takes long */

/* Whether main, which other programs may be without, does anything, and where times are known. */
static bool is_timed(const compile *c)
{
    bool timed = false;
    for (int g = 0; g < c->phys.group.count; g++)
        timed |= !c->phys.group.item[g].program;
    for (int d = 0; d < c->phys.device.count; d++) {
        const weir_device_kind kind = c->phys.device.item[d].kind;
        timed &= kind == WEIR_CPU || kind == WEIR_DISK || kind == WEIR_MAPPED;
    }
    return timed;
}

/* Workers of all hosts. */
static int workers_of(const compile *c)
{
    const int cores = c->rates->cores && c->rates->cores <= WEIR_DEVICES_MAX ? (int)c->rates->cores : 1;
    int hosts = 1;
    for (int d = 0; d < c->phys.device.count && c->opts.per_host; d++) {
        const int host = c->phys.device.item[d].index / c->opts.per_host;
        hosts = host >= hosts ? host + 1 : hosts;
    }
    return hosts * cores;
}

/* Registers that the user or a link gave slots keep them. */
static void keep_others(const compile *c, walk *w)
{
    for (int i = 0; i < c->phys.reg.count; i++) {
        const reg *r = &c->phys.reg.item[i];
        if (!slots_are_free(r) || r->ahead)
            w->least[r->plan_id] = w->most[r->plan_id] = (uint32_t)r->slots;
    }
}

static void set_slots(compile *c, const uint32_t *slots)
{
    for (int i = 0; i < c->phys.reg.count; i++)
        c->phys.reg.item[i].slots = (int)slots[c->phys.reg.item[i].plan_id];
}

bool pace_begin(pace *p, compile *c, weir_plan *plan)
{
    *p = (pace){.c = c, .opts = {.size = sizeof p->opts, .src = c->opts.src}, .at = PLAN_NONE};
    if (!is_timed(c))
        return true;
    p->opts.workers = workers_of(c);
    weir_status status = prediction_open(&p->prediction, plan, c->rates, &p->opts);
    status = status ? status : walk_open(&p->walk, &p->prediction);
    if (!status)
        keep_others(c, &p->walk);
    status = status ? status : walk_find(&p->walk);
    if (status == WEIR_E_LIVE) {
        walk_close(&p->walk); /* the loop of backend.c says what the plan is short of, or gives it that */
        return true;
    }
    for (int i = 0; i < c->phys.reg.count && !status; i++)
        c->phys.reg.item[i].wanted = (int)p->walk.points[p->walk.best].slots[c->phys.reg.item[i].plan_id];
    return !status || error_set(status, "%s:%d: compile: %s", c->opts.src.file, c->opts.src.line, weir_error()) == WEIR_OK;
}

/* The fastest point with longer steps than this one, and fewer bytes; of those as fast the smallest. */
static uint32_t next_point(const walk *w, const walk_point *than)
{
    const walk_point *best = NULL;
    for (uint32_t i = 0; i < w->count; i++) {
        const walk_point *p = &w->points[i];
        if (p->ps < WALK_NOT_PLAYED - 1 && p->ps > than->ps && p->bytes < than->bytes &&
            (!best || p->ps < best->ps || (p->ps == best->ps && p->bytes < best->bytes)))
            best = p;
    }
    return best ? (uint32_t)(best - w->points) : PLAN_NONE;
}

bool pace_next(pace *p)
{
    const walk *w = &p->walk;
    if (!w->count)
        return false;
    const uint32_t next = p->at == PLAN_NONE ? w->best : next_point(w, &w->points[p->at]);
    if (next == PLAN_NONE || p->tries++ == TRIES) {
        set_slots(p->c, p->prediction.changes.slots);
        return false;
    }
    set_slots(p->c, w->points[next].slots);
    p->at = next;
    return true;
}

void pace_end(pace *p)
{
    walk_close(&p->walk);
    prediction_close(&p->prediction);
}
