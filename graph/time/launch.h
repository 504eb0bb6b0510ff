/* graph/time/launch.h: a plan in which the host's part of each firing on an accelerator is an actor of its own.
 *
 *     the plan                H ---r---> A ---s---> B ---t---> H           A and B are on an accelerator, H is on the host
 *
 *     the one with launches   H ---r---> A' --s'--> B' --t'--> H           A' and B' launch: on the host's worker, by priority
 *                              \          |          |        /
 *                               ---r----> A ---s---> B --t----             A and B run: on their queue, in the order of launches
 *
 * This is how queues run ahead (actors/ahead.h): for other queues a value is there when the kernel that makes it is launched, and a
 * slot is free when the kernel that reads it is; the host is told of both when they are over. A launch needs a value of the host, or a
 * free slot there, as the firing itself does. It runs ahead of its firing by two steps at most: a queue that never stands idle is no faster
 * with more.
 *
 * Actors, queues, registers and tensors keep their numbers; those that launch, their queues and registers come behind them. Ports have others.
 */
#ifndef GRAPH_TIME_LAUNCH_H
#define GRAPH_TIME_LAUNCH_H

#include "graph/plan/form/plan.h"

typedef struct launches {
    weir_plan *plan;       /* owned; NULL: the plan has no accelerators, and is played as it is */
    uint32_t *launched;    /* owned, as all arrays: by actor: that it launches, or PLAN_NONE */
    uint32_t *queue;       /* by queue: where its launches are made, or PLAN_NONE */
    uint32_t *copied;      /* by register: whose slots it has, or its own number */
    uint32_t regsts;       /* of the given plan: those behind them carry no values */
} launches;

/* Whether the queue is one of an accelerator. */
bool launches_device_queue(const weir_plan *plan, uint32_t queue);

/* E_MEMORY. */
weir_status launches_open(launches *l, const weir_plan *plan);
void launches_close(launches *l);

/* Gives registers of launches the slots of those that they stand for. */
void launches_slots(const launches *l, uint32_t *slots);

#endif
