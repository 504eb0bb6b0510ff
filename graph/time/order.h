/* graph/time/order.h: the order in which queues of accelerators run what was launched on them.
 *
 *     queue of launches      launch A, launch B, launch A     the queue runs A, B, A, whichever of them may begin first
 *     queue of collectives   the plan's turns                 each device comes to its collectives in this order, step after step
 *
 * Here each such queue is a worker of the clock. Its next actor fires when it may; until then those behind it wait.
 */
#ifndef GRAPH_TIME_ORDER_H
#define GRAPH_TIME_ORDER_H

#include "graph/plan/form/plan.h"

typedef struct order {     /* of a worker */
    uint32_t *list;        /* owned: actors */
    uint32_t first, count, room; /* a ring; its room is a power of two, but that of turns */
    bool turns;            /* the list is that of a step, and begins again after its last actor */
} order;

typedef struct orders {
    const weir_plan *plan; /* borrowed, as the next two */
    const uint32_t *worker; /* by queue */
    const uint32_t *launches; /* by actor: that it launches; PLAN_NONE: it launches none */
    order *of;             /* owned; by worker; of other workers with no room */
} orders;

/* Finds the turns of the program. E_MEMORY. */
weir_status orders_open(orders *o, const weir_plan *plan, uint32_t program, const uint32_t *worker, uint32_t workers, const uint32_t *launches);
void orders_close(orders *o, uint32_t workers);

/* Whether the worker fires in such an order. */
static inline bool orders_has(const orders *o, uint32_t worker)
{
    return o->of && o->of[worker].room;
}

/* The actor that the worker fires next; PLAN_NONE: nothing is launched. */
uint32_t orders_next(const orders *o, uint32_t worker);

/* The worker begins to fire that actor. */
void orders_pass(orders *o, uint32_t worker);

/* A firing of the actor ends. Returns the worker on which something is launched by it, or PLAN_NONE. False in *ok: no memory. */
uint32_t orders_launch(orders *o, uint32_t actor, bool *ok);

#endif
