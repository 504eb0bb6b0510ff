/* graph/plan/spread/deal.h: which worker of a process runs which queue. A session deals so, and so does who predicts it.
 *
 *     cpu:0's queues -> worker 0     cpu:1's -> worker 1     cpu:2's -> worker 0     an io queue -> a worker of its own
 */
#ifndef GRAPH_PLAN_SPREAD_DEAL_H
#define GRAPH_PLAN_SPREAD_DEAL_H

#include "graph/plan/form/plan.h"

typedef struct plan_workers {
    uint32_t compute; /* the first ones, which share the queues of devices; at least 1 */
    uint32_t all;     /* those and the ones of io */
} plan_workers;

/* Numbers the workers of a rank (PLAN_NONE: of a process that runs the whole plan) from 0 on, in of_queue[queues_count], whose other
 * places stay as they are. All queues of its k-th device go to worker k modulo their number, which is at most `limit`. Each io queue
 * gets a worker of its own, as long as there are not very many. Those outside have none. E_MEMORY. */
weir_status plan_deal(const weir_plan *plan, uint32_t rank, uint32_t limit, uint32_t *of_queue, plan_workers *workers);

#endif
