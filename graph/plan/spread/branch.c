/* graph/plan/spread/branch.c: see the header. Ports are sorted by what a branch has in common; neighbours are then one. */
#include "graph/plan/spread/branch.h"

#include <stdlib.h>

#include "graph/base/base.h"
#include "graph/base/error.h"

struct reader {
    uint32_t regst, thread, part, port;
};

static int compare_readers(const void *a, const void *b)
{
    const struct reader *x = a, *y = b;
    if (x->regst != y->regst)
        return x->regst < y->regst ? -1 : 1;
    if (x->thread != y->thread)
        return x->thread < y->thread ? -1 : 1;
    if (x->part != y->part)
        return x->part < y->part ? -1 : 1;
    return x->port < y->port ? -1 : x->port > y->port;
}

/* Whether the reader at the port may be told together with others; then `reader` has what such have in common. */
static bool find_reader(const weir_plan *plan, uint32_t rank, const uint32_t *thread_of, uint32_t p, struct reader *reader)
{
    const uint32_t regst = plan->ports[p].regst.i, to = plan->ports[p].actor.i, from = plan->regsts[regst].producer.i;
    const uint32_t to_queue = plan->actors[to].queue.i, from_queue = plan->actors[from].queue.i;
    const bool here = thread_of && plan_rank_of(plan, to) == rank && plan_rank_of(plan, from) == rank;
    if (plan->queues[to_queue].kind == PLAN_OUTSIDE ||
        device_is_accelerator((weir_device_kind)plan->spaces[plan_actor_space(plan, from).i].kind))
        return false;
    *reader = (struct reader){.regst = regst, .thread = here ? plan->queues_count + thread_of[to_queue] : to_queue, .port = p};
    if (here && plan->queues[from_queue].kind != PLAN_OUTSIDE)
        return thread_of[from_queue] != thread_of[to_queue];
    return from_queue != to_queue;
}

weir_status plan_branches(const weir_plan *plan, uint32_t rank, const uint32_t *thread_of, const uint32_t *part_of,
                          uint32_t *first)
{
    struct reader *readers = calloc(plan->ports_count + (size_t)1, sizeof(*readers));
    uint32_t count = 0;
    if (!readers)
        return error_set(WEIR_E_MEMORY, "no memory for the readers of %u registers", plan->regsts_count);
    for (uint32_t p = 0; p < plan->ports_count; p++) {
        const bool counts = plan_port_counts(plan, &plan->ports[p]);
        first[p] = counts ? p : PLAN_NONE;
        if (counts && find_reader(plan, rank, thread_of, p, &readers[count]))
            readers[count++].part = part_of ? part_of[p] : 0;
    }
    qsort(readers, count, sizeof(*readers), compare_readers);
    for (uint32_t i = 1; i < count; i++) {
        const struct reader *before = &readers[i - 1], *reader = &readers[i];
        if (before->regst == reader->regst && before->thread == reader->thread && before->part == reader->part)
            first[reader->port] = first[before->port];
    }
    free(readers);
    return WEIR_OK;
}
