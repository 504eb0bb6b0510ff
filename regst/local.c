/* regst/local.c: see the header. */
#include "regst/local.h"

#include <stdlib.h>

/* Devices of a kind: of the plan, of this rank, of this rank before a given one, and the largest number. */
struct devices {
    uint32_t all, own, before, most;
};

static struct devices devices_of(const weir_plan *plan, const bool *elsewhere, const plan_space *of)
{
    struct devices d = {0};
    for (uint32_t s = 0; s < plan->spaces_count; s++) {
        const plan_space *space = &plan->spaces[s];
        const bool own = !elsewhere || !elsewhere[s];
        if (space->kind != of->kind)
            continue;
        d.all++;
        d.own += own;
        d.before += own && space->index < of->index;
        d.most = space->index > d.most ? space->index : d.most;
    }
    return d;
}

uint32_t local_index(const weir_plan *plan, const bool *elsewhere, uint32_t space, uint32_t count, int rank)
{
    const plan_space *of = &plan->spaces[space];
    const struct devices d = devices_of(plan, elsewhere, of);
    if (d.own == d.all)
        return of->index;
    if (count == d.own)
        return d.before;
    if (d.most < count || rank < 0)
        return of->index;
    const uint64_t local = (uint64_t)rank * d.own + d.before;
    return local < count ? (uint32_t)local : of->index;
}

int local_rank(void)
{
    static const char *const names[] = {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = getenv(names[i]);
        char *end = NULL;
        const long rank = text ? strtol(text, &end, 10) : -1;
        if (text && end != text && !*end && rank >= 0 && rank < INT16_MAX)
            return (int)rank;
    }
    return -1;
}
