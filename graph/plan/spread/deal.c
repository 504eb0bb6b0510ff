/* graph/plan/spread/deal.c: see the header. */
#include "graph/plan/spread/deal.h"

#include "graph/base/error.h"

#include <stdlib.h>
#include <string.h>

#define IO_WORKERS_MAX 64 /* they sleep most of the time; but a plan may come from anywhere */

static bool is_of(const weir_plan *plan, uint32_t queue, uint32_t rank)
{
    return rank == PLAN_NONE || plan->spaces[plan->queues[queue].space.i].rank == rank;
}

/* Whether it is one of those that all queues of a device share a worker with. */
static bool is_device_queue(const weir_plan *plan, uint32_t queue, uint32_t rank)
{
    const uint32_t kind = plan->queues[queue].kind;
    return kind != PLAN_OUTSIDE && kind != PLAN_IO_QUEUE && is_of(plan, queue, rank);
}

/* Numbers the devices that have such queues; others get UINT32_MAX. Returns how many there are. */
static uint32_t number_devices(const weir_plan *plan, uint32_t rank, uint32_t *number)
{
    uint32_t count = 0;
    memset(number, 0xff, plan->spaces_count * sizeof *number);
    for (uint32_t q = 0; q < plan->queues_count; q++)
        if (is_device_queue(plan, q, rank) && number[plan->queues[q].space.i] == UINT32_MAX)
            number[plan->queues[q].space.i] = count++;
    return count;
}

weir_status plan_deal(const weir_plan *plan, uint32_t rank, uint32_t limit, uint32_t *of_queue, plan_workers *workers)
{
    uint32_t *number = malloc((plan->spaces_count + (size_t)1) * sizeof *number), io = 0;
    if (!number)
        return error_set(WEIR_E_MEMORY, "no memory for %u queues", plan->queues_count);
    const uint32_t devices = number_devices(plan, rank, number), most = devices < limit ? devices : limit;
    workers->compute = most ? most : 1;
    for (uint32_t q = 0; q < plan->queues_count; q++) {
        if (is_device_queue(plan, q, rank))
            of_queue[q] = number[plan->queues[q].space.i] % workers->compute;
        else if (plan->queues[q].kind == PLAN_IO_QUEUE && is_of(plan, q, rank))
            of_queue[q] = workers->compute + io++ % IO_WORKERS_MAX;
    }
    workers->all = workers->compute + (io < IO_WORKERS_MAX ? io : IO_WORKERS_MAX);
    free(number);
    return WEIR_OK;
}
