/* graph/time/line.c: see the header. */
#include "graph/time/line.h"

#include "graph/base/error.h"
#include "graph/plan/spread/branch.h"

#include <stdlib.h>

static uint32_t producer_rank(const lines *l, uint32_t port)
{
    return plan_rank_of(l->plan, l->plan->regsts[l->plan->ports[port].regst.i].producer.i);
}

static uint32_t reader_rank(const lines *l, uint32_t port)
{
    return plan_rank_of(l->plan, l->plan->ports[port].actor.i);
}

/* How long the bytes of a register's value take to pass. */
static uint64_t passing(const lines *l, uint32_t port)
{
    const plan_regst *regst = &l->plan->regsts[l->plan->ports[port].regst.i];
    double bits = 0;
    for (uint32_t t = regst->tensors.first; t < regst->tensors.first + regst->tensors.count; t++)
        bits += 8 * (double)plan_tensor_bytes(&l->plan->tensors[t]);
    return l->changes->bits_s ? (uint64_t)(bits * TIME_PS_S / (double)l->changes->bits_s) : 0;
}

static uint64_t latency(const lines *l)
{
    return l->changes->has_latency ? l->changes->latency_ps : l->rates->process;
}

uint64_t lines_alone(const lines *l, uint32_t port, bool freed)
{
    if (producer_rank(l, port) == reader_rank(l, port))
        return l->rates->worker;
    return latency(l) + (freed ? 0 : passing(l, port));
}

uint64_t lines_message(lines *l, uint32_t port, bool freed, uint64_t now)
{
    const uint32_t from = producer_rank(l, port), to = reader_rank(l, port);
    if (from == to || freed || !l->changes->bits_s)
        return lines_alone(l, port, freed);
    const uint32_t first = l->first[port];
    if (first == port) {
        uint64_t *free_at = &l->free_at[from * l->plan->ranks + to];
        *free_at = (*free_at > now ? *free_at : now) + passing(l, port);
        l->arrives[port] = *free_at + latency(l);
    }
    return l->arrives[first] > now ? l->arrives[first] - now : 0;
}

weir_status lines_open(lines *l, const weir_plan *plan, const weir_rates *rates, const changes *set)
{
    *l = (lines){.plan = plan, .rates = rates, .changes = set};
    l->first = calloc(plan->ports_count + (size_t)1, sizeof *l->first);
    l->arrives = calloc(plan->ports_count + (size_t)1, sizeof *l->arrives);
    l->free_at = calloc((size_t)plan->ranks * plan->ranks + 1, sizeof *l->free_at);
    if (!l->first || !l->arrives || !l->free_at) {
        lines_close(l);
        return error_set(WEIR_E_MEMORY, "no memory for the lines of %u ranks", plan->ranks);
    }
    weir_status status = plan_branches(plan, PLAN_NONE, NULL, NULL, l->first);
    if (status)
        lines_close(l);
    return status;
}

void lines_close(lines *l)
{
    free(l->first);
    free(l->arrives);
    free(l->free_at);
    *l = (lines){0};
}
