/* graph/plan/form/plan.c: what every user of a plan needs: its life, its sizes, its hash.
 *
 * The hash goes over values, not over memory: structures have padding, whose bytes mean nothing.
 */
#include "graph/plan/form/plan.h"

#include "graph/base/base.h"
#include "graph/base/error.h"
#include "graph/plan/form/fields.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

void plan_hold(const weir_plan *plan)
{
    atomic_fetch_add_explicit(&((weir_plan *)plan)->held, 1, memory_order_relaxed);
}

void weir_plan_free(weir_plan *plan)
{
    /* acq_rel: what the others did with it is over when the last one frees it */
    if (!plan || atomic_fetch_sub_explicit(&plan->held, 1, memory_order_acq_rel))
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

bool plan_is_mapped(const weir_plan *plan, const plan_param *param)
{
    const plan_tensor *shard = &plan->tensors[plan->shards[param->shards.first].i];
    return plan->spaces[plan_tensor_space(plan, shard).i].kind == WEIR_MAPPED;
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

plan_space_id plan_pinned_beside(const weir_plan *plan, plan_space_id space)
{
    const plan_space *of = &plan->spaces[space.i];
    uint32_t s = device_is_accelerator((weir_device_kind)of->kind) ? 0 : plan->spaces_count;
    while (s < plan->spaces_count && (plan->spaces[s].kind != WEIR_PINNED || plan->spaces[s].index != of->index ||
                                      plan->spaces[s].rank != of->rank))
        s++;
    return (plan_space_id){s < plan->spaces_count ? s : PLAN_NONE};
}

plan_space_id plan_snapshot_space(const weir_plan *plan, plan_space_id space)
{
    bool accelerator = device_is_accelerator((weir_device_kind)plan->spaces[space.i].kind);
    return accelerator ? plan_pinned_beside(plan, space) : space;
}

#define P1 HASH_PRIME
#define P2 (P1 * P1)
#define P4 (P2 * P2)

/* Eight bytes, the lowest first, on every machine. Most values are small, and what is left of them is zeros: each of
 * those is a multiplication by the prime, so all of them, and that of the last byte, are one by a power of it. */
static inline uint64_t hash_value(uint64_t hash, uint64_t value)
{
    enum { BYTES = 8 };
    static const uint64_t power[BYTES + 1] = {1, P1, P2, P2 * P1, P4, P4 * P1, P4 * P2, P4 * P2 * P1, P4 * P4};
    int left = BYTES;
    for (; value > 0xff; value >>= 8, left--)
        hash = (hash ^ (value & 0xff)) * HASH_PRIME;
    return (hash ^ value) * power[left];
}

static uint64_t hash_table(uint64_t hash, const weir_plan *plan, const plan_table *table)
{
    uint32_t count = plan_table_count(plan, table);
    const char *item = plan_table_items(plan, table);
    hash = hash_value(hash, count);
    if (!table->fields)
        return hash_more(hash, item, count);
    for (uint32_t i = 0; i < count; i++, item += table->item_bytes)
        for (uint32_t f = 0; f < table->field_count; f++)
            for (uint32_t v = 0; v < table->fields[f].values; v++)
                hash = hash_value(hash, plan_field_get(&table->fields[f], item, v));
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
    if (plan->rates)
        hash = hash_value(hash, plan->rates);
    for (int a = 0; a < PLAN_RUN_ARRAYS; a++)
        hash = hash_table(hash, plan, &plan_tables[a]);
    return hash;
}

uint64_t plan_table_hash(const weir_plan *plan)
{
    uint64_t hash = hash_value(HASH_START, plan->table_version);
    for (int a = PLAN_RUN_ARRAYS; a < PLAN_ARRAYS; a++)
        hash = hash_table(hash, plan, &plan_tables[a]);
    return hash;
}

uint64_t weir_plan_bytes(const weir_plan *plan, int device)
{
    if (error_null(plan, "weir_plan_bytes", "plan"))
        return 0;
    if (device >= 0)
        return (uint32_t)device < plan->spaces_count ? plan->spaces[device].bytes : 0;
    uint64_t bytes = 0;
    for (uint32_t s = 0; s < plan->spaces_count; s++)
        bytes += plan->spaces[s].kind == WEIR_DISK || plan->spaces[s].kind == WEIR_MAPPED ? 0 : plan->spaces[s].bytes;
    return bytes;
}

uint64_t plan_bytes_mapped(const weir_plan *plan)
{
    uint64_t bytes = 0;
    for (uint32_t s = 0; s < plan->spaces_count; s++)
        bytes += plan->spaces[s].kind == WEIR_MAPPED ? plan->spaces[s].bytes : 0;
    return bytes;
}

uint32_t plan_devices(const weir_plan *plan)
{
    uint32_t count = 0;
    for (uint32_t s = 0; s < plan->spaces_count; s++)
        count += plan->spaces[s].kind != WEIR_MAPPED;
    return count;
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

typedef struct stretch {
    uint64_t first, end;
} stretch;

static int compare_stretches(const void *a, const void *b)
{
    const stretch *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

static uint32_t space_stretches(const weir_plan *plan, uint32_t s, stretch *to)
{
    const plan_space *space = &plan->spaces[s];
    uint32_t count = 0;
    to[count++] = (stretch){space->snapshot_offset, space->snapshot_offset + space->snapshot_bytes};
    for (uint32_t r = 0; r < plan->regsts_count; r++) {
        const plan_regst *regst = &plan->regsts[r];
        if (regst->space.i == s)
            to[count++] = (stretch){regst->offset, regst->offset + regst->slots * regst->slot_bytes};
    }
    for (uint32_t t = 0; t < plan->tensors_count; t++) {
        const plan_tensor *tensor = &plan->tensors[t];
        if (tensor->home == PLAN_IN_STATE && plan_actor_space(plan, tensor->owner).i == s)
            to[count++] = (stretch){tensor->offset, tensor->offset + padded(plan_tensor_bytes(tensor))};
    }
    return count;
}

/* Bytes of the arena that are in some register, state or the snapshot; none without memory to sort them. */
static uint64_t bytes_covered(const weir_plan *plan, uint32_t space)
{
    stretch *all = malloc(((size_t)plan->regsts_count + plan->tensors_count + 1) * sizeof *all);
    uint64_t covered = 0, end = 0;
    uint32_t count = all ? space_stretches(plan, space, all) : 0;
    if (all)
        qsort(all, count, sizeof *all, compare_stretches);
    for (uint32_t i = 0; i < count; i++)
        if (all[i].end > end) {
            covered += all[i].end - (all[i].first > end ? all[i].first : end);
            end = all[i].end;
        }
    free(all);
    return covered;
}

static uint64_t bytes_of_parts(const weir_plan *plan, plan_space_id space, uint64_t bytes[PLAN_MEMS])
{
    uint64_t sum = plan->spaces[space.i].snapshot_bytes;
    memset(bytes, 0, PLAN_MEMS * sizeof *bytes);
    bytes[PLAN_SNAPSHOT] = sum;
    for (uint32_t r = 0; r < plan->regsts_count; r++)
        if (plan->regsts[r].space.i == space.i) {
            bytes[plan->regsts[r].kind] += plan->regsts[r].slots * plan->regsts[r].slot_bytes;
            sum += plan->regsts[r].slots * plan->regsts[r].slot_bytes;
        }
    for (uint32_t a = 0; a < plan->actors_count; a++) {
        uint64_t states = state_bytes(plan, &plan->actors[a], space.i);
        bytes[PLAN_STATE] += states;
        sum += states;
    }
    return sum;
}

void plan_bytes_by_kind(const weir_plan *plan, plan_space_id space, uint64_t bytes[PLAN_MEMS])
{
    bytes_of_parts(plan, space, bytes);
    bytes[PLAN_WORKSPACE] += plan->spaces[space.i].bytes - bytes_covered(plan, space.i);
}

uint64_t plan_bytes_shared(const weir_plan *plan, plan_space_id space)
{
    uint64_t bytes[PLAN_MEMS];
    return bytes_of_parts(plan, space, bytes) - bytes_covered(plan, space.i);
}

uint32_t plan_ordering_edges(const weir_plan *plan)
{
    uint32_t edges = 0;
    for (uint32_t r = 0; r < plan->regsts_count; r++)
        edges += !plan->regsts[r].tensors.count;
    return edges;
}

uint32_t plan_fast_sums(const weir_plan *plan)
{
    uint32_t sums = 0;
    for (uint32_t t = 0; t < plan->turns_count; t++)
        sums += plan_adds(&plan->collectives[plan->turns[t].i]);
    return sums;
}

void plan_index_readers(const weir_plan *plan, uint32_t *first, uint32_t *readers)
{
    uint32_t total = 0;
    for (uint32_t p = 0; p < plan->ports_count; p++)
        first[plan->ports[p].regst.i] += plan_port_counts(plan, &plan->ports[p]);
    for (uint32_t r = 0; r < plan->regsts_count; r++)
        first[r] = total += first[r]; /* where r's end: each goes in front of those that are there */
    first[plan->regsts_count] = total;
    for (uint32_t p = plan->ports_count; p-- > 0;)
        if (plan_port_counts(plan, &plan->ports[p]))
            readers[--first[plan->ports[p].regst.i]] = p;
}
