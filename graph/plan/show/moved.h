/* graph/plan/show/moved.h: how many bytes a step moves, counted from the plan.
 *
 * A kernel's call reads its inputs (of each the part that its op says it reads), reads and writes its states, writes
 * its outputs, and reads one that it adds to or updates. Bytes that come from a register of another device are counted once
 * more, as transferred. Scratch memory is not counted: it is meant to stay in a cache; nor is what a function of the
 * program's does. So it says what a plan asks of memory, whatever the caches then spare.
 */
#ifndef GRAPH_PLAN_SHOW_MOVED_H
#define GRAPH_PLAN_SHOW_MOVED_H

#include "graph/plan/form/plan.h"

typedef struct plan_moved {
    uint64_t read, written;
    uint64_t transferred; /* of those read: from registers of other devices */
} plan_moved;

/* By one call of a kernel. */
plan_moved plan_kernel_moved(const weir_plan *plan, uint32_t kernel);

/* By an actor in a step of its program; by all actors of a queue, each in a step of its. Another rank's kernels,
 * which a part of a plan does not have, count nothing. */
plan_moved plan_actor_moved(const weir_plan *plan, uint32_t actor);
plan_moved plan_queue_moved(const weir_plan *plan, uint32_t queue);

#endif
