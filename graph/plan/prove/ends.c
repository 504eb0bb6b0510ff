/* graph/plan/prove/ends.c: see ends.h. */
#include "graph/plan/prove/ends.h"

#include <string.h>

static void reach(uint64_t *end, uint64_t offset, uint64_t bytes)
{
    uint64_t at = offset + (bytes + PLAN_ALIGN - 1) / PLAN_ALIGN * PLAN_ALIGN;
    *end = bytes && at > *end ? at : *end;
}

static uint32_t queue_of(const weir_plan *plan, const plan_tensor *tensor)
{
    return plan->actors[tensor->owner].queue.i;
}

uint64_t plan_slot_end(const weir_plan *plan, uint32_t regst)
{
    const plan_range *tensors = &plan->regsts[regst].tensors;
    uint64_t end = 0;
    for (uint32_t t = tensors->first; t < tensors->first + tensors->count; t++)
        reach(&end, plan->tensors[t].offset, plan_tensor_bytes(&plan->tensors[t]));
    return end;
}

void plan_workspace_ends(const weir_plan *plan, uint64_t *end)
{
    memset(end, 0, plan->queues_count * sizeof *end);
    for (uint32_t t = 0; t < plan->tensors_count; t++)
        if (plan->tensors[t].home == PLAN_IN_TEMP)
            reach(&end[queue_of(plan, &plan->tensors[t])], plan->tensors[t].offset, plan_tensor_bytes(&plan->tensors[t]));
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        reach(&end[plan->actors[plan->kernels[k].actor.i].queue.i], plan->kernels[k].workspace_offset,
              plan->kernels[k].workspace_bytes);
}

void plan_space_ends(const weir_plan *plan, uint64_t *end)
{
    memset(end, 0, plan->spaces_count * sizeof *end);
    for (uint32_t s = 0; s < plan->spaces_count; s++)
        reach(&end[s], plan->spaces[s].snapshot_offset, plan->spaces[s].snapshot_bytes);
    for (uint32_t q = 0; q < plan->queues_count; q++)
        reach(&end[plan->queues[q].space.i], plan->queues[q].workspace_offset, plan->queues[q].workspace_bytes);
    for (uint32_t r = 0; r < plan->regsts_count; r++)
        reach(&end[plan->regsts[r].space.i], plan->regsts[r].offset,
              plan->regsts[r].slots * plan->regsts[r].slot_bytes);
    for (uint32_t t = 0; t < plan->tensors_count; t++)
        if (plan->tensors[t].home == PLAN_IN_STATE)
            reach(&end[plan->queues[queue_of(plan, &plan->tensors[t])].space.i], plan->tensors[t].offset,
                  plan_tensor_bytes(&plan->tensors[t]));
}

bool plan_knows_space(const weir_plan *plan, plan_space_id space)
{
    return !plan->part || plan->spaces[space.i].rank == plan->part - 1;
}
