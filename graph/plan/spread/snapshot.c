/* graph/plan/spread/snapshot.c: what snapshots take, of all spaces at once.
 *
 * There may be thousands of accelerators, each with a space beside it, and as many shards of each parameter. So neither
 * is looked for among all others: both are sorted, spaces by device and shards by the part that they hold.
 */
#include "graph/plan/form/plan.h"

#include "graph/base/base.h"
#include "graph/base/error.h"

#include <stdlib.h>
#include <string.h>

typedef struct beside {            /* a PINNED space */
    uint32_t index, rank, space;
} beside;

typedef struct holder {            /* a shard of a parameter */
    const plan_tensor *tensor;
    uint32_t shard;
} holder;

typedef struct measuring {
    const weir_plan *plan;
    uint32_t *to;                  /* by space: where its snapshot lies, or PLAN_NONE */
    holder *holders;               /* of one parameter */
} measuring;

/* ---- where ---- */

static int compare_beside(const void *a, const void *b)
{
    const beside *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (x->index != y->index)
        return x->index < y->index ? -1 : 1;
    return (x->space > y->space) - (x->space < y->space);
}

/* The first PINNED space of the device, of `count` that are sorted; PLAN_NONE: there is none. */
static uint32_t find_beside(const beside *list, uint32_t count, const plan_space *device)
{
    const beside wanted = {.index = device->index, .rank = device->rank, .space = 0};
    uint32_t from = 0, to = count;
    while (from < to) {
        uint32_t middle = from + (to - from) / 2;
        if (compare_beside(&list[middle], &wanted) < 0)
            from = middle + 1;
        else
            to = middle;
    }
    bool there = from < count && list[from].index == wanted.index && list[from].rank == wanted.rank;
    return there ? list[from].space : PLAN_NONE;
}

/* As plan_snapshot_space(), for all. If two accelerators are one device, the first has what is beside it. */
static bool find_places(measuring *m)
{
    const weir_plan *plan = m->plan;
    beside *list = malloc((plan->spaces_count + (size_t)1) * sizeof *list);
    bool *taken = calloc(plan->spaces_count + (size_t)1, sizeof *taken);
    uint32_t count = 0;
    for (uint32_t s = 0; s < plan->spaces_count && list; s++)
        if (plan->spaces[s].kind == WEIR_PINNED)
            list[count++] = (beside){plan->spaces[s].index, plan->spaces[s].rank, s};
    if (list)
        qsort(list, count, sizeof *list, compare_beside);
    for (uint32_t s = 0; s < plan->spaces_count && list && taken; s++) {
        const plan_space *space = &plan->spaces[s];
        bool accelerator = device_is_accelerator((weir_device_kind)space->kind);
        uint32_t to = accelerator ? find_beside(list, count, space) : s;
        bool second = accelerator && to != PLAN_NONE && taken[to];
        m->to[s] = second ? PLAN_NONE : to;
        if (accelerator && to != PLAN_NONE)
            taken[to] = true;
    }
    bool ok = list && taken;
    free(list);
    free(taken);
    return ok;
}

/* ---- how much ---- */

static int compare_holders(const void *a, const void *b)
{
    const holder *x = a, *y = b;
    int order = memcmp(x->tensor->start, y->tensor->start, sizeof x->tensor->start);
    if (!order)
        order = memcmp(x->tensor->shape, y->tensor->shape, sizeof x->tensor->shape);
    return order ? order : (x->shard > y->shard) - (x->shard < y->shard);
}

static void add_shard(const measuring *m, const plan_tensor *tensor, uint64_t *bytes)
{
    uint32_t to = m->to[plan_tensor_space(m->plan, tensor).i];
    uint64_t each = (plan_tensor_bytes(tensor) + PLAN_ALIGN - 1) / PLAN_ALIGN * PLAN_ALIGN;
    if (to != PLAN_NONE)
        bytes[to] += plan_kept_slots(m->plan, tensor) * each;
}

/* The holder that plan_saves() names, of those that hold one part. */
static void add_param(measuring *m, uint32_t p, uint64_t *bytes)
{
    plan_range shards = m->plan->params[p].shards;
    for (uint32_t i = 0; i < shards.count; i++)
        m->holders[i] = (holder){&m->plan->tensors[m->plan->shards[shards.first + i].i], i};
    qsort(m->holders, shards.count, sizeof *m->holders, compare_holders);
    for (uint32_t first = 0, end; first < shards.count; first = end) {
        for (end = first + 1; end < shards.count && plan_same_part(m->holders[first].tensor, m->holders[end].tensor); end++)
            ;
        add_shard(m, m->holders[first + p % (end - first)].tensor, bytes);
    }
}

static uint32_t most_shards(const weir_plan *plan)
{
    uint32_t most = 0;
    for (uint32_t p = 0; p < plan->params_count; p++)
        most = plan->params[p].shards.count > most ? plan->params[p].shards.count : most;
    return most;
}

weir_status plan_snapshot_bytes(const weir_plan *plan, uint64_t *bytes)
{
    measuring m = {.plan = plan,
                   .to = malloc((plan->spaces_count + (size_t)1) * sizeof *m.to),
                   .holders = malloc((most_shards(plan) + (size_t)1) * sizeof *m.holders)};
    bool ok = m.to && m.holders && find_places(&m);
    memset(bytes, 0, plan->spaces_count * sizeof *bytes);
    for (uint32_t p = 0; p < plan->params_count && ok; p++)
        if (!plan->params[p].frozen)
            add_param(&m, p, bytes);
    free(m.to);
    free(m.holders);
    return ok ? WEIR_OK : error_set(WEIR_E_MEMORY, "no memory to measure snapshots");
}
