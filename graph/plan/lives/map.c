/* graph/plan/lives/map.c: see the header. */
#include "graph/plan/lives/map.h"

static uint64_t workspace_of(const weir_plan *plan, uint32_t actor)
{
    return plan->queues[plan->actors[actor].queue.i].workspace_offset;
}

static size_t put(map_part *to, size_t count, map_part each, uint64_t bytes)
{
    each.end = each.first + bytes;
    if (bytes)
        to[count++] = each;
    return count;
}

/* ---- the parts ---- */

static size_t put_regsts(const weir_plan *plan, map_part *to, size_t count)
{
    for (uint32_t r = 0; r < plan->regsts_count; r++) {
        const plan_regst *regst = &plan->regsts[r];
        map_part each = {.first = regst->offset, .space = regst->space.i, .kind = MAP_REGST, .index = r,
                         .life = {.regst = {r}, .actor = {PLAN_NONE}}};
        count = put(to, count, each, regst->slots * regst->slot_bytes);
    }
    return count;
}

static size_t put_snapshots_and_states(const weir_plan *plan, map_part *to, size_t count)
{
    for (uint32_t s = 0; s < plan->spaces_count; s++) {
        map_part each = {.first = plan->spaces[s].snapshot_offset, .space = s, .kind = MAP_SNAPSHOT, .index = s};
        count = put(to, count, each, plan->spaces[s].snapshot_bytes);
    }
    for (uint32_t t = 0; t < plan->tensors_count; t++) {
        const plan_tensor *tensor = &plan->tensors[t];
        if (tensor->home != PLAN_IN_STATE)
            continue;
        map_part each = {.first = tensor->offset, .space = plan_actor_space(plan, tensor->owner).i,
                         .kind = MAP_STATE, .index = t};
        count = put(to, count, each, plan_tensor_bytes(tensor));
    }
    return count;
}

/* Where the temporaries are among those to be sorted: put when a kernel of the actor first has them, and made longer
 * by those that follow. */
static size_t put_temp(const weir_plan *plan, map_part *to, size_t count, uint32_t t, uint32_t position, uint32_t *at)
{
    const plan_tensor *tensor = &plan->tensors[t];
    if (tensor->home != PLAN_IN_TEMP)
        return count;
    if (at[t] != PLAN_NONE) {
        to[at[t]].life.to = position;
        return count;
    }
    uint32_t actor = tensor->owner;
    map_part each = {.first = workspace_of(plan, actor) + tensor->offset, .space = plan_actor_space(plan, actor).i,
                     .kind = MAP_TEMP, .index = t,
                     .life = {.regst = {PLAN_NONE}, .actor = {actor}, .from = position, .to = position}};
    size_t more = put(to, count, each, plan_tensor_bytes(tensor));
    if (more > count)
        at[t] = (uint32_t)count;
    return more;
}

static size_t put_kernel(const weir_plan *plan, map_part *to, size_t count, uint32_t k, uint32_t *at)
{
    const plan_kernel *kernel = &plan->kernels[k];
    const plan_range *ranges[] = {&kernel->in, &kernel->out};
    uint32_t actor = kernel->actor.i, position = k - plan->actors[actor].kernels.first;
    for (int r = 0; r < 2; r++)
        for (uint32_t o = ranges[r]->first; o < ranges[r]->first + ranges[r]->count; o++)
            count = put_temp(plan, to, count, plan->operands[o].tensor.i, position, at);
    map_part each = {.first = workspace_of(plan, actor) + kernel->workspace_offset, .space = plan_actor_space(plan, actor).i,
                 .kind = MAP_SCRATCH, .index = k,
                 .life = {.regst = {PLAN_NONE}, .actor = {actor}, .from = position, .to = position}};
    return put(to, count, each, kernel->workspace_bytes);
}

/* A kernel is nobody's but its actor's, and its temporaries are that actor's too. */
size_t map_parts(const weir_plan *plan, map_part *to, uint32_t *at)
{
    size_t count = put_snapshots_and_states(plan, to, put_regsts(plan, to, 0));
    for (uint32_t t = 0; t < plan->tensors_count; t++)
        at[t] = PLAN_NONE;
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        count = put_kernel(plan, to, count, k, at);
    return count;
}

int map_compare(const void *a, const void *b)
{
    const map_part *x = a, *y = b;
    if (x->space != y->space)
        return x->space < y->space ? -1 : 1;
    return (x->first > y->first) - (x->first < y->first);
}

size_t map_most(const weir_plan *plan)
{
    return (size_t)plan->spaces_count + plan->queues_count + plan->regsts_count + plan->tensors_count +
           plan->kernels_count + 1;
}
