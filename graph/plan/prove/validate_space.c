/* graph/plan/prove/validate_space.c: who reaches what?
 *
 *     queues of            reach
 *     CPU, PINNED          CPU and PINNED spaces, of any rank: what lies elsewhere is mapped, or was sent
 *     DISK                 its own space, and what the host reaches
 *     an accelerator:
 *       compute,
 *       collective         its own space
 *       copy in, copy out  its own space and the PINNED one beside it; they run copies alone
 *
 * Operands of a kernel lie in a space that its queue reaches, and values of push and pull lie in the host's memory. So
 * a copy actor is the only connection of an accelerator with other devices, and a session never needs to share or send
 * an accelerator's memory. Workspaces and states lie in the queue's own space and need no check.
 */
#include "graph/plan/prove/validate.h"

#include "graph/base/base.h"

#include <string.h>

typedef struct spot {
    const weir_plan *plan;
    uint32_t index; /* of the kernel */
    const plan_kernel *kernel;
    const plan_queue *queue;
} spot;

#define SPACE_NAME(plan, space) plan_text(plan, (plan)->spaces[space].name)

static weir_device_kind space_kind(const weir_plan *plan, plan_space_id space)
{
    return (weir_device_kind)plan->spaces[space.i].kind;
}

static bool copies(uint32_t kind)
{
    return kind == PLAN_COPY_IN || kind == PLAN_COPY_OUT;
}

bool plan_queue_reaches(const weir_plan *plan, uint32_t queue, plan_space_id space)
{
    const plan_queue *from = &plan->queues[queue];
    if (from->space.i == space.i)
        return true;
    if (!device_is_accelerator(space_kind(plan, from->space)))
        return device_host_reaches(space_kind(plan, space));
    const plan_space *own = &plan->spaces[from->space.i], *to = &plan->spaces[space.i];
    return copies(from->kind) && to->kind == WEIR_PINNED && to->index == own->index && to->rank == own->rank;
}

/* ---- queues ---- */

static bool validate_queue_kind(const weir_plan *plan, uint32_t q)
{
    const plan_queue *queue = &plan->queues[q];
    bool accelerator = device_is_accelerator(space_kind(plan, queue->space));
    if (accelerator && (queue->kind == PLAN_OUTSIDE || queue->kind == PLAN_IO_QUEUE))
        return REFUSE_PLAN("queues[%" PRIu32 "].kind: the host's functions cannot run on %.60s, an accelerator", q,
                           SPACE_NAME(plan, queue->space.i));
    if (!accelerator && (copies(queue->kind) || queue->kind == PLAN_COLLECTIVE))
        return REFUSE_PLAN("queues[%" PRIu32 "].kind: only accelerators have such queues, %.60s is none", q,
                           SPACE_NAME(plan, queue->space.i));
    return true;
}

/* ---- kernels ---- */

static bool validate_operand_space(const spot *at, uint32_t o)
{
    const weir_plan *plan = at->plan;
    const plan_tensor *tensor = &plan->tensors[plan->operands[o].tensor.i];
    if (tensor->home != PLAN_IN_REGST)
        return true;
    plan_space_id space = plan->regsts[tensor->owner].space;
    return plan_queue_reaches(plan, (uint32_t)(at->queue - plan->queues), space) ||
           REFUSE_KERNEL(at, "operands[%" PRIu32 "] lies in %.60s, which a queue of %.60s does not reach", o,
                         SPACE_NAME(plan, space.i), SPACE_NAME(plan, at->queue->space.i));
}

static bool validate_operand_spaces(const spot *at, const plan_range *range)
{
    for (uint32_t o = range->first; o < range->first + range->count; o++)
        if (!validate_operand_space(at, o))
            return false;
    return true;
}

/* Whether the kernel's output is written to the side that the queue is for. */
static bool copies_there(const spot *at)
{
    const plan_tensor *out = &at->plan->tensors[at->plan->operands[at->kernel->out.first].tensor.i];
    bool own = out->home != PLAN_IN_REGST || at->plan->regsts[out->owner].space.i == at->queue->space.i;
    return own == (at->queue->kind == PLAN_COPY_IN);
}

static bool validate_copy(const spot *at)
{
    if (!copies(at->queue->kind))
        return true;
    if (strcmp(plan_text(at->plan, at->kernel->op), "copy"))
        return REFUSE_KERNEL(at, "only copies run on a queue for them");
    return copies_there(at) || REFUSE_KERNEL(at, "it copies the other way than its queue is for");
}

/* A kernel that devices run together is not called but told to meet. */
static bool validate_meets(const spot *at)
{
    bool meets = !strcmp(plan_text(at->plan, at->kernel->op), "collective");
    return meets == (at->queue->kind == PLAN_COLLECTIVE) ||
           REFUSE_KERNEL(at, "%.60s on %.60s, a queue %s collectives", plan_text(at->plan, at->kernel->op),
                         plan_text(at->plan, at->queue->name), meets ? "without" : "for");
}

static bool validate_kernel_space(const weir_plan *plan, uint32_t k)
{
    const plan_kernel *kernel = &plan->kernels[k];
    const spot at = {plan, k, kernel, &plan->queues[plan->actors[kernel->actor.i].queue.i]};
    if (kernel->host != PLAN_NONE && device_is_accelerator(space_kind(plan, at.queue->space)))
        return REFUSE_KERNEL(&at, "%.60s: a host function on %.60s, an accelerator", plan_text(plan, kernel->op),
                             SPACE_NAME(plan, at.queue->space.i));
    return validate_operand_spaces(&at, &kernel->in) && validate_operand_spaces(&at, &kernel->out) &&
           validate_copy(&at) && validate_meets(&at);
}

bool validate_spaces(const weir_plan *plan)
{
    for (uint32_t q = 0; q < plan->queues_count; q++)
        if (!validate_queue_kind(plan, q))
            return false;
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        if (!validate_kernel_space(plan, k))
            return false;
    return true;
}
