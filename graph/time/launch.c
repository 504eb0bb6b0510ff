/* graph/time/launch.c: see the header. */
#include "graph/time/launch.h"

#include "graph/base/base.h"
#include "graph/base/error.h"
#include "graph/plan/form/build.h"

#include <stdlib.h>
#include <string.h>

enum { STEPS_AHEAD = 2 };

typedef struct making {
    const weir_plan *from;
    plan_builder *to;
    uint32_t *port;        /* owned, as what follows; by port of `from`: its number in `to` */
    uint32_t *launch;      /* by actor of `from`: the one that launches it, or PLAN_NONE */
    uint32_t *regst;       /* by register of `from`: of its launches, or PLAN_NONE */
    uint32_t *ahead;       /* by actor of `from`: the register between its launches and it */
} making;

bool launches_device_queue(const weir_plan *plan, uint32_t queue)
{
    const plan_queue *of = &plan->queues[queue];
    return of->kind != PLAN_OUTSIDE && device_is_accelerator((weir_device_kind)plan->spaces[of->space.i].kind);
}

static bool on_device(const weir_plan *plan, uint32_t actor)
{
    return launches_device_queue(plan, plan->actors[actor].queue.i);
}

static plan_range range_of(uint32_t first, uint32_t end)
{
    return (plan_range){first, end - first};
}

/* ---- what is copied ---- */

static void copy_arrays(making *m)
{
    const weir_plan *from = m->from;
    weir_plan *plan = plan_builder_plan(m->to);
    plan->micro_batches = from->micro_batches, plan->seed = from->seed, plan->ranks = from->ranks, plan->name = from->name;
#define X(type, member)                                                                   \
    for (uint32_t i = plan_builder_plan(m->to)->member##_count; i < from->member##_count; i++) \
        plan_add_##member(m->to, from->member[i]);
    PLAN_RUN_LIST(X)
#undef X
    plan->ports_count = 0; /* those are made anew: an actor's lie together */
}

/* ---- launches ---- */

static void add_regsts(making *m, uint32_t actor, plan_actor *launch)
{
    const plan_actor *of = &m->from->actors[actor];
    const plan_space_id space = m->from->queues[of->queue.i].space;
    launch->regsts.first = plan_builder_plan(m->to)->regsts_count;
    for (uint32_t r = of->regsts.first; r < of->regsts.first + of->regsts.count; r++) {
        const plan_regst *like = &m->from->regsts[r];
        m->regst[r] = plan_add_regsts(m->to, (plan_regst){.producer = {m->launch[actor]}, .space = space, .slots = like->slots, .fill = like->fill,
                                                          .initial = like->initial, .fixed = 1});
    }
    m->ahead[actor] = plan_add_regsts(m->to, (plan_regst){.producer = {m->launch[actor]}, .space = space, .slots = STEPS_AHEAD * of->fires, .fill = 1,
                                                          .fixed = 1});
    launch->regsts.count = of->regsts.count + 1;
}

/* Launches are numbered, and have registers, before any port is made. */
static void add_launches(making *m, const uint32_t *queue)
{
    for (uint32_t a = 0, next = m->from->actors_count; a < m->from->actors_count; a++)
        m->launch[a] = on_device(m->from, a) ? next++ : PLAN_NONE;
    for (uint32_t a = 0; a < m->from->actors_count; a++) {
        const plan_actor *of = &m->from->actors[a];
        plan_actor launch = {.queue = {queue[of->queue.i]}, .name = of->name, .program = of->program, .phase = of->phase, .fires = of->fires,
                             .priority = of->priority};
        if (m->launch[a] == PLAN_NONE)
            continue;
        add_regsts(m, a, &launch);
        plan_add_actors(m->to, launch);
    }
}

static void add_queues(making *m, uint32_t *queue)
{
    for (uint32_t q = 0; q < m->from->queues_count; q++) {
        plan_queue of = m->from->queues[q];
        of.kind = PLAN_COMPUTE;
        queue[q] = launches_device_queue(m->from, q) ? plan_add_queues(m->to, of) : PLAN_NONE;
    }
}

/* ---- ports ---- */

static uint32_t add_port(making *m, uint32_t actor, uint32_t regst, uint32_t hold)
{
    return plan_add_ports(m->to, (plan_port){.actor = {actor}, .regst = {regst}, .hold = hold});
}

static bool made_by_launch(const making *m, const plan_port *port)
{
    return plan_port_counts(m->from, port) && m->regst[port->regst.i] != PLAN_NONE;
}

/* Its own, and those that wait for launches: of a device its own one, of others those of what they read. */
static plan_range add_ports(making *m, uint32_t actor)
{
    const plan_range *of = &m->from->actors[actor].ports;
    const bool device = m->launch[actor] != PLAN_NONE;
    const uint32_t first = plan_builder_plan(m->to)->ports_count;
    for (uint32_t p = of->first; p < of->first + of->count; p++)
        m->port[p] = plan_add_ports(m->to, m->from->ports[p]);
    if (device)
        add_port(m, actor, m->ahead[actor], 1);
    for (uint32_t p = of->first; !device && p < of->first + of->count; p++)
        if (made_by_launch(m, &m->from->ports[p]))
            add_port(m, actor, m->regst[m->from->ports[p].regst.i], m->from->ports[p].hold);
    return range_of(first, plan_builder_plan(m->to)->ports_count);
}

/* A launch reads what other launches make, and what the host does. */
static plan_range add_launch_ports(making *m, uint32_t actor)
{
    const plan_range *of = &m->from->actors[actor].ports;
    const uint32_t first = plan_builder_plan(m->to)->ports_count;
    for (uint32_t p = of->first; p < of->first + of->count; p++) {
        const plan_port *port = &m->from->ports[p];
        if (plan_port_counts(m->from, port))
            add_port(m, m->launch[actor], made_by_launch(m, port) ? m->regst[port->regst.i] : port->regst.i, port->hold);
    }
    return range_of(first, plan_builder_plan(m->to)->ports_count);
}

static void connect(making *m)
{
    for (uint32_t a = 0; !plan_builder_failed(m->to) && a < m->from->actors_count; a++) {
        const plan_range ports = add_ports(m, a), launch = m->launch[a] == PLAN_NONE ? (plan_range){0} : add_launch_ports(m, a);
        plan_builder_plan(m->to)->actors[a].ports = ports;
        if (m->launch[a] != PLAN_NONE)
            plan_builder_plan(m->to)->actors[m->launch[a]].ports = launch;
    }
    for (uint32_t o = 0; !plan_builder_failed(m->to) && o < m->from->operands_count; o++)
        if (m->from->operands[o].port.i != PLAN_NONE)
            plan_builder_plan(m->to)->operands[o].port.i = m->port[m->from->operands[o].port.i];
}

/* ---- the whole ---- */

static bool making_open(making *m, const weir_plan *from)
{
    *m = (making){from, plan_builder_new(), calloc(from->ports_count + (size_t)1, sizeof *m->port), malloc((from->actors_count + (size_t)1) * sizeof *m->launch),
                  malloc((from->regsts_count + (size_t)1) * sizeof *m->regst), malloc((from->actors_count + (size_t)1) * sizeof *m->ahead)};
    if (m->regst)
        memset(m->regst, 0xff, (from->regsts_count + (size_t)1) * sizeof *m->regst);
    return m->to && m->port && m->launch && m->regst && m->ahead;
}

static void making_close(making *m)
{
    plan_builder_free(m->to);
    free(m->port);
    free(m->launch);
    free(m->regst);
    free(m->ahead);
}

/* Fills the arrays by number of the new plan. */
static bool note(launches *l, const making *m)
{
    const weir_plan *plan = l->plan;
    l->launched = malloc((plan->actors_count + (size_t)1) * sizeof *l->launched);
    l->copied = malloc((plan->regsts_count + (size_t)1) * sizeof *l->copied);
    for (uint32_t a = 0; l->launched && a < plan->actors_count; a++)
        l->launched[a] = PLAN_NONE;
    for (uint32_t a = 0; l->launched && a < m->from->actors_count; a++)
        if (m->launch[a] != PLAN_NONE)
            l->launched[m->launch[a]] = a;
    for (uint32_t r = 0; l->copied && r < plan->regsts_count; r++)
        l->copied[r] = r;
    for (uint32_t r = 0; l->copied && r < m->from->regsts_count; r++)
        if (m->regst[r] != PLAN_NONE)
            l->copied[m->regst[r]] = r;
    return l->launched && l->copied;
}

static bool has_devices(const weir_plan *plan)
{
    bool has = false;
    for (uint32_t q = 0; q < plan->queues_count && !has; q++)
        has = launches_device_queue(plan, q);
    return has;
}

weir_status launches_open(launches *l, const weir_plan *plan)
{
    making m;
    *l = (launches){.regsts = plan->regsts_count};
    if (!has_devices(plan))
        return WEIR_OK;
    l->queue = malloc((2 * (size_t)plan->queues_count + 1) * sizeof *l->queue);
    bool ok = making_open(&m, plan) && l->queue;
    if (ok) {
        memset(l->queue, 0xff, (2 * (size_t)plan->queues_count + 1) * sizeof *l->queue);
        copy_arrays(&m);
        add_queues(&m, l->queue);
        add_launches(&m, l->queue);
        connect(&m);
        l->plan = plan_builder_take(m.to, NULL);
        m.to = NULL;
        ok = l->plan && note(l, &m);
    }
    making_close(&m);
    if (!ok)
        launches_close(l);
    return ok ? WEIR_OK : error_set(WEIR_E_MEMORY, "no memory for the launches of %u actors", plan->actors_count);
}

void launches_close(launches *l)
{
    weir_plan_free(l->plan);
    free(l->launched);
    free(l->queue);
    free(l->copied);
    *l = (launches){.plan = NULL};
}

void launches_slots(const launches *l, uint32_t *slots)
{
    for (uint32_t r = l->regsts; l->plan && r < l->plan->regsts_count; r++)
        slots[r] = slots[l->copied[r]];
}
