/* graph/plan/lives/touch.c: see the header. */
#include "graph/plan/lives/touch.h"

#include <string.h>

#define NOWHERE UINT32_MAX /* a position behind all kernels */

static void touch_reads(const weir_plan *plan, touch *t, const plan_kernel *kernel, uint32_t position)
{
    const plan_operand *in = plan->operands + kernel->in.first;
    for (uint32_t i = 0; i < kernel->in.count; i++) {
        const plan_tensor *tensor = &plan->tensors[in[i].tensor.i];
        if (in[i].port.i != PLAN_NONE)
            t->last_read[in[i].port.i] = position;
        else if (tensor->home == PLAN_IN_REGST)
            t->last_use[tensor->owner] = position;
    }
}

static void touch_writes(const weir_plan *plan, touch *t, const plan_kernel *kernel, uint32_t position)
{
    const plan_operand *out = plan->operands + kernel->out.first;
    for (uint32_t i = 0; i < kernel->out.count; i++) {
        const plan_tensor *tensor = &plan->tensors[out[i].tensor.i];
        if (tensor->home != PLAN_IN_REGST)
            continue;
        t->last_use[tensor->owner] = position;
        if (t->first_write[tensor->owner] > position)
            t->first_write[tensor->owner] = position;
    }
}

/* A port that no kernel reads through, and a register that none writes, have the whole firing. */
static void find_positions(const weir_plan *plan, touch *t)
{
    memset(t->last_read, 0xff, plan->ports_count * sizeof *t->last_read);
    memset(t->first_write, 0xff, plan->regsts_count * sizeof *t->first_write);
    memset(t->last_use, 0xff, plan->regsts_count * sizeof *t->last_use);
    for (uint32_t a = 0; a < plan->actors_count; a++) {
        const plan_kernel *kernels = plan->kernels + plan->actors[a].kernels.first;
        for (uint32_t k = 0; k < plan->actors[a].kernels.count; k++) {
            touch_reads(plan, t, &kernels[k], k);
            touch_writes(plan, t, &kernels[k], k);
        }
    }
    for (uint32_t r = 0; r < plan->regsts_count; r++)
        t->first_write[r] = t->first_write[r] == NOWHERE ? 0 : t->first_write[r];
}

static bool on_outside_queue(const weir_plan *plan, uint32_t actor)
{
    return plan->queues[plan->actors[actor].queue.i].kind == PLAN_OUTSIDE;
}

static void find_outside(const weir_plan *plan, touch *t)
{
    for (uint32_t r = 0; r < plan->regsts_count; r++)
        t->outside[r] = plan->regsts[r].producer.i != PLAN_NONE && on_outside_queue(plan, plan->regsts[r].producer.i);
    for (uint32_t p = 0; p < plan->ports_count; p++)
        t->outside[plan->ports[p].regst.i] |= on_outside_queue(plan, plan->ports[p].actor.i);
}

void touch_find(const weir_plan *plan, touch *t)
{
    find_positions(plan, t);
    find_outside(plan, t);
}
