/* graph/plan/plan.c: what every user of a plan needs: its life, its sizes, its hash.
 *
 * The hash goes over values, not over memory: structures have padding, whose bytes mean nothing.
 */
#include "graph/plan/plan.h"

#include "graph/base/base.h"
#include "graph/plan/fields.h"

#include <stdlib.h>
#include <string.h>

void weir_plan_free(weir_plan *plan)
{
    if (!plan)
        return;
#define X(type, member) free(plan->member);
    PLAN_ARRAY_LIST(X)
#undef X
    free(plan->bindings);
    free(plan);
}

uint64_t plan_tensor_bytes(const plan_tensor *tensor)
{
    uint64_t bytes = weir_dtype_bytes((weir_dtype)tensor->dtype);
    for (uint32_t d = 0; d < tensor->rank; d++)
        bytes *= (uint64_t)tensor->shape[d];
    return bytes;
}

bool plan_same_part(const plan_tensor *a, const plan_tensor *b)
{
    return !memcmp(a->start, b->start, sizeof a->start) && !memcmp(a->shape, b->shape, sizeof a->shape);
}

bool plan_saves(const weir_plan *plan, const plan_param *param, uint32_t i)
{
    const plan_tensor_id *shards = &plan->shards[param->shards.first];
    uint32_t holders = 0, before = 0;
    for (uint32_t k = 0; k < param->shards.count; k++) {
        bool same = plan_same_part(&plan->tensors[shards[k].i], &plan->tensors[shards[i].i]);
        holders += same;
        before += same && k < i;
    }
    return holders && before == (uint32_t)(param - plan->params) % holders; /* it is one of them */
}

static uint64_t padded(uint64_t bytes)
{
    return (bytes + PLAN_ALIGN - 1) / PLAN_ALIGN * PLAN_ALIGN;
}

uint32_t plan_kept_slots(const weir_plan *plan, const plan_tensor *tensor)
{
    return tensor->home == PLAN_IN_REGST ? plan->regsts[tensor->owner].initial : 1;
}

uint64_t plan_snapshot_of(const weir_plan *plan, const plan_param *param, uint32_t i)
{
    const plan_tensor *tensor = &plan->tensors[plan->shards[param->shards.first + i].i];
    if (param->frozen || !plan_saves(plan, param, i))
        return 0;
    return plan_kept_slots(plan, tensor) * padded(plan_tensor_bytes(tensor));
}

static uint32_t space_of(const weir_plan *plan, const plan_tensor *tensor)
{
    return tensor->home == PLAN_IN_REGST ? plan->regsts[tensor->owner].space.i
                                         : plan->queues[plan->actors[tensor->owner].queue.i].space.i;
}

uint64_t plan_snapshot_bytes(const weir_plan *plan, plan_space_id space)
{
    uint64_t bytes = 0;
    for (uint32_t p = 0; p < plan->params_count; p++)
        for (uint32_t i = 0; i < plan->params[p].shards.count; i++)
            if (space_of(plan, &plan->tensors[plan->shards[plan->params[p].shards.first + i].i]) == space.i)
                bytes += plan_snapshot_of(plan, &plan->params[p], i);
    return bytes;
}

/* Eight bytes, the lowest first, on every machine. */
static uint64_t hash_value(uint64_t hash, uint64_t value)
{
    unsigned char bytes[8];
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(value >> 8 * i);
    return hash_more(hash, bytes, sizeof bytes);
}

static uint64_t hash_table(uint64_t hash, const weir_plan *plan, const plan_table *table)
{
    uint32_t count = plan_table_count(plan, table);
    const char *item = plan_table_items(plan, table);
    hash = hash_value(hash, count);
    for (uint32_t i = 0; i < count; i++, item += table->item_bytes) {
        if (!table->fields)
            hash = hash_more(hash, item, 1);
        for (uint32_t f = 0; table->fields && f < table->field_count; f++)
            for (uint32_t v = 0; v < table->fields[f].values; v++)
                hash = hash_value(hash, plan_field_get(&table->fields[f], item, v));
    }
    return hash;
}

uint64_t plan_hash(const weir_plan *plan)
{
    uint64_t hash = HASH_START;
    hash = hash_value(hash, plan->version);
    hash = hash_value(hash, plan->micro_batches);
    hash = hash_value(hash, plan->seed);
    hash = hash_value(hash, plan->ranks);
    hash = hash_value(hash, plan->part);
    hash = hash_value(hash, plan->whole);
    hash = hash_value(hash, plan->graph);
    hash = hash_value(hash, plan->name.i);
    for (int a = 0; a < PLAN_ARRAYS; a++)
        hash = hash_table(hash, plan, &plan_tables[a]);
    return hash;
}

uint64_t weir_plan_bytes(const weir_plan *plan, int device)
{
    if (device >= 0)
        return (uint32_t)device < plan->spaces_count ? plan->spaces[device].bytes : 0;
    uint64_t bytes = 0;
    for (uint32_t s = 0; s < plan->spaces_count; s++)
        bytes += plan->spaces[s].bytes;
    return bytes;
}

/* The space that a state lies in is that of its actor's queue. */
static uint64_t state_bytes(const weir_plan *plan, const plan_actor *actor, uint32_t space)
{
    uint64_t bytes = 0;
    if (plan->queues[actor->queue.i].space.i == space)
        for (uint32_t t = 0; t < actor->states.count; t++)
            bytes += padded(plan_tensor_bytes(&plan->tensors[actor->states.first + t]));
    return bytes;
}

void plan_bytes_by_kind(const weir_plan *plan, plan_space_id space, uint64_t bytes[PLAN_MEMS])
{
    memset(bytes, 0, PLAN_MEMS * sizeof *bytes);
    for (uint32_t r = 0; r < plan->regsts_count; r++)
        if (plan->regsts[r].space.i == space.i)
            bytes[plan->regsts[r].kind] += plan->regsts[r].slots * plan->regsts[r].slot_bytes;
    for (uint32_t a = 0; a < plan->actors_count; a++)
        bytes[PLAN_STATE] += state_bytes(plan, &plan->actors[a], space.i);
    bytes[PLAN_SNAPSHOT] = plan->spaces[space.i].snapshot_bytes;
    for (uint32_t q = 0; q < plan->queues_count; q++)
        if (plan->queues[q].space.i == space.i)
            bytes[PLAN_WORKSPACE] += padded(plan->queues[q].workspace_bytes);
}
