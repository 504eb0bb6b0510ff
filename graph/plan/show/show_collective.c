/* graph/plan/show/show_collective.c: what accelerators do together, for people. */
#include "graph/plan/show/show_inside.h"

#include <inttypes.h>
#include <stdlib.h>

enum { DEVICES_SHOWN = 8 };

/* By a ring of the members: what each gives goes once around, but for its own part; and the sum, where all have it. In a part
 * of a plan only its own rank's gives are known: they are all alike. */
static uint64_t moved_by_sum(const weir_plan *plan, const plan_collective *of)
{
    uint64_t bytes = 0, others = of->members.count - 1;
    for (uint32_t m = 0; m < of->members.count && !bytes; m++) {
        const plan_range *kernels = &plan_member(plan, of, m)->kernels;
        const plan_range *in = kernels->count ? &plan->kernels[kernels->first].in : NULL;
        for (uint32_t o = in ? in->first : 0; in && o < in->first + in->count; o++)
            bytes += plan_tensor_bytes(&plan->tensors[plan->operands[o].tensor.i]);
    }
    return bytes * others * (of->kind == PLAN_ALL_REDUCE ? 2 : 1);
}

/* Between devices. */
static uint64_t moved_by(const weir_plan *plan, const plan_collective *of)
{
    if (plan_adds(of))
        return moved_by_sum(plan, of);
    uint64_t bytes = 0;
    for (uint32_t m = of->moves.first; m < of->moves.first + of->moves.count; m++)
        bytes += plan->moves[m].from != plan->moves[m].to ? plan->moves[m].bytes : 0;
    return bytes;
}

static void put_row(const weir_plan *plan, FILE *table, uint32_t c)
{
    const plan_collective *of = &plan->collectives[c];
    const plan_actor *first = plan_member(plan, of, 0);
    show_text(table, plan_text(plan, first->name));
    fprintf(table, "\t%s\t%s\t", collective_text(of->kind), phase_text(first->phase));
    for (uint32_t m = 0; m < of->members.count && m < DEVICES_SHOWN; m++) {
        fputs(m ? ", " : "", table);
        show_text(table, plan_text(plan, plan->spaces[plan->queues[plan_member(plan, of, m)->queue.i].space.i].name));
    }
    if (of->members.count > DEVICES_SHOWN)
        fprintf(table, ", +%" PRIu32, of->members.count - DEVICES_SHOWN);
    fprintf(table, "\t%" PRIu32, first->fires);
    show_bytes(table, moved_by(plan, of));
    fputs("\t\n", table);
}

void show_collectives(const weir_plan *plan, FILE *table, uint32_t index)
{
    bool *shown = calloc(plan->collectives_count + (size_t)1, sizeof *shown);
    (void)index;
    fputs("collective, in turn\tkind\tphase\tdevices\tfires\tmoves each time\t\n", table);
    for (uint32_t t = 0; shown && t < plan->turns_count; t++) {
        if (!shown[plan->turns[t].i])
            put_row(plan, table, plan->turns[t].i);
        shown[plan->turns[t].i] = true;
    }
    free(shown);
}

uint64_t show_collectives_sum(const weir_plan *plan, const char *before, FILE *to)
{
    uint64_t bytes = 0;
    uint32_t groups = 0;
    char text[PLAN_TEXT_BYTES];
    for (uint32_t c = 0; c < plan->collectives_count; c++) {
        const plan_collective *of = &plan->collectives[c];
        groups = of->group >= groups ? of->group + 1 : groups;
        bytes += moved_by(plan, of) * plan_member(plan, of, 0)->fires;
    }
    if (plan->turns_count)
        fprintf(to, "%s%" PRIu32 " collective%s of %" PRIu32 " group%s, %s", before, plan->turns_count,
                plan->turns_count == 1 ? "" : "s", groups, groups == 1 ? "" : "s", bytes_text(bytes, text));
    uint32_t sums = plan_fast_sums(plan);
    if (sums)
        fprintf(to, "\n%" PRIu32 " of them add%s (fast reduce): bits may differ with the communicator and the spread", sums,
                sums == 1 ? "s" : "");
    return plan->turns_count;
}
