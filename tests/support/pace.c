/* tests/support/pace.c: see the header. Time moves from the end of one firing to the next; plans of tests are small, so
 * whoever may fire is looked for among all.
 */
#include "tests/support/pace.h"

#include <criterion/criterion.h>
#include <stdlib.h>

typedef struct pace {
    const weir_plan *plan;
    uint32_t steps;
    double now;
    uint32_t *fired, *unread, *held, *let_go, *free, *filled, *given; /* owned: by actor, port, register */
    double *until, *cost;                                            /* owned: by actor: firing until; or -1 */
    bool *busy;                                                      /* owned: by queue */
    uint32_t *reader_first, *readers;                                /* owned: plan_index_readers() */
} pace;

static bool counts(const pace *p, uint32_t port)
{
    return plan_port_counts(p->plan, &p->plan->ports[port]);
}

static bool outside(const pace *p, uint32_t a)
{
    return p->plan->queues[p->plan->actors[a].queue.i].kind == PLAN_OUTSIDE;
}

static double bytes_of(const weir_plan *plan, const plan_range *range)
{
    double bytes = 0;
    for (uint32_t o = range->first; o < range->first + range->count; o++)
        bytes += (double)plan_tensor_bytes(&plan->tensors[plan->operands[o].tensor.i]);
    return bytes;
}

static double cost_of(const pace *p, uint32_t a)
{
    const plan_range *kernels = &p->plan->actors[a].kernels;
    double cost = outside(p, a) ? 0 : 100;
    for (uint32_t k = kernels->first; k < kernels->first + kernels->count; k++)
        cost += (bytes_of(p->plan, &p->plan->kernels[k].in) + bytes_of(p->plan, &p->plan->kernels[k].out)) / 64;
    return cost;
}

static bool may_fire(const pace *p, uint32_t a)
{
    const plan_actor *actor = &p->plan->actors[a];
    if (actor->program.i || p->until[a] >= 0 || p->fired[a] == p->steps * actor->fires ||
        (!outside(p, a) && p->busy[actor->queue.i]))
        return false;
    for (uint32_t i = actor->ports.first; i < actor->ports.first + actor->ports.count; i++)
        if (counts(p, i) && !p->unread[i])
            return false;
    for (uint32_t r = actor->regsts.first; r < actor->regsts.first + actor->regsts.count; r++)
        if (!p->free[r])
            return false;
    return true;
}

static uint32_t reader_count(const pace *p, uint32_t r)
{
    return p->reader_first[r + 1] - p->reader_first[r];
}

static void publish(pace *p, uint32_t r)
{
    p->filled[r] = 0;
    p->free[r] -= reader_count(p, r) > 0;
    for (uint32_t i = p->reader_first[r]; i < p->reader_first[r + 1]; i++)
        p->unread[p->readers[i]]++;
}

static void let_go(pace *p, uint32_t port)
{
    uint32_t r = p->plan->ports[port].regst.i, least = UINT32_MAX;
    p->held[port] = 0;
    p->unread[port]--;
    p->let_go[port]++;
    for (uint32_t i = p->reader_first[r]; i < p->reader_first[r + 1]; i++)
        least = p->let_go[p->readers[i]] < least ? p->let_go[p->readers[i]] : least;
    p->free[r] += least - p->given[r];
    p->given[r] = least;
}

static void end_firing(pace *p, uint32_t a)
{
    const plan_actor *actor = &p->plan->actors[a];
    p->until[a] = -1;
    p->busy[actor->queue.i] = false;
    p->fired[a]++;
    for (uint32_t r = actor->regsts.first; r < actor->regsts.first + actor->regsts.count; r++)
        if (++p->filled[r] == p->plan->regsts[r].fill)
            publish(p, r);
    for (uint32_t i = actor->ports.first; i < actor->ports.first + actor->ports.count; i++)
        if (counts(p, i) && ++p->held[i] == p->plan->ports[i].hold)
            let_go(p, i);
}

/* Lets begin whoever may, in the order of priority; false: nobody. */
static bool begin_one(pace *p)
{
    uint32_t best = PLAN_NONE;
    for (uint32_t a = 0; a < p->plan->actors_count; a++)
        if (may_fire(p, a) && (best == PLAN_NONE || p->plan->actors[a].priority < p->plan->actors[best].priority))
            best = a;
    if (best == PLAN_NONE)
        return false;
    p->until[best] = p->now + p->cost[best];
    p->busy[p->plan->actors[best].queue.i] = true;
    return true;
}

/* To the end of the firing that is over first; false: nobody fires. */
static bool go_on(pace *p)
{
    uint32_t first = PLAN_NONE;
    for (uint32_t a = 0; a < p->plan->actors_count; a++)
        if (p->until[a] >= 0 && (first == PLAN_NONE || p->until[a] < p->until[first]))
            first = a;
    if (first == PLAN_NONE)
        return false;
    p->now = p->until[first];
    end_firing(p, first);
    return true;
}

static void *zeros(size_t count, size_t bytes)
{
    void *memory = calloc(count + 1, bytes);
    cr_assert_not_null(memory);
    return memory;
}

static void set_up(pace *p)
{
    const weir_plan *plan = p->plan;
    size_t actors = plan->actors_count, ports = plan->ports_count, regsts = plan->regsts_count, word = sizeof(uint32_t);
    p->fired = zeros(actors, word), p->until = zeros(actors, sizeof(double)), p->cost = zeros(actors, sizeof(double));
    p->unread = zeros(ports, word), p->held = zeros(ports, word), p->let_go = zeros(ports, word);
    p->free = zeros(regsts, word), p->filled = zeros(regsts, word), p->given = zeros(regsts, word);
    p->busy = zeros(plan->queues_count, sizeof(bool));
    p->reader_first = zeros(regsts + 1, word), p->readers = zeros(ports, word);
    plan_index_readers(plan, p->reader_first, p->readers);
    for (uint32_t a = 0; a < actors; a++) {
        p->until[a] = -1;
        p->cost[a] = cost_of(p, a);
    }
    for (uint32_t i = 0; i < ports; i++)
        p->unread[i] = plan->regsts[plan->ports[i].regst.i].initial;
    for (uint32_t r = 0; r < regsts; r++)
        p->free[r] = plan->regsts[r].slots - (reader_count(p, r) ? plan->regsts[r].initial : 0);
}

double pace_play(const weir_plan *plan, uint32_t steps)
{
    pace p = {.plan = plan, .steps = steps};
    set_up(&p);
    do {
        while (begin_one(&p))
            ;
    } while (go_on(&p));
    for (uint32_t a = 0; a < plan->actors_count; a++)
        cr_assert(plan->actors[a].program.i || p.fired[a] == steps * plan->actors[a].fires, "actor %u waits", a);
    void *const all[] = {p.fired, p.unread, p.held, p.let_go, p.free, p.filled, p.given, p.until, p.cost, p.busy,
                         p.reader_first, p.readers};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    return p.now;
}
