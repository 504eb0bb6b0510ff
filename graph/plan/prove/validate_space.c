/* graph/plan/prove/validate_space.c: who reaches what?
 *
 *     queues of            reach
 *     CPU, PINNED          CPU and PINNED spaces, of any rank: what lies elsewhere is mapped, or was sent
 *     CPU                  the MAPPED one beside it
 *     DISK                 its own space, and what the host reaches
 *     an accelerator:
 *       compute,
 *       collective         its own space
 *       copy in, copy out  its own space and the PINNED one beside it; they run copies alone
 *
 * A MAPPED space has no queue, and holds constants alone: shards of parameters that are in one piece in a file.
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
    const plan_space *own = &plan->spaces[from->space.i], *to = &plan->spaces[space.i];
    if (to->kind == WEIR_MAPPED)
        return own->kind == WEIR_CPU && to->index == own->index && to->rank == own->rank;
    if (!device_is_accelerator(space_kind(plan, from->space)))
        return device_host_reaches(space_kind(plan, space));
    return copies(from->kind) && to->kind == WEIR_PINNED && to->index == own->index && to->rank == own->rank;
}

/* ---- queues ---- */

static bool validate_queue_kind(const weir_plan *plan, uint32_t q)
{
    const plan_queue *queue = &plan->queues[q];
    bool accelerator = device_is_accelerator(space_kind(plan, queue->space));
    if (space_kind(plan, queue->space) == WEIR_MAPPED)
        return REFUSE_PLAN("queues[%" PRIu32 "].space: nothing runs on %.60s, which is a file", q,
                           SPACE_NAME(plan, queue->space.i));
    if (accelerator && (queue->kind == PLAN_OUTSIDE || queue->kind == PLAN_IO_QUEUE))
        return REFUSE_PLAN("queues[%" PRIu32 "].kind: the host's functions cannot run on %.60s, an accelerator", q,
                           SPACE_NAME(plan, queue->space.i));
    if (!accelerator && (copies(queue->kind) || queue->kind == PLAN_COLLECTIVE))
        return REFUSE_PLAN("queues[%" PRIu32 "].kind: only accelerators have such queues, %.60s is none", q,
                           SPACE_NAME(plan, queue->space.i));
    return true;
}

/* ---- what is mapped ---- */

/* The shard is one piece of the tensor in the file. */
static bool is_one_piece(const plan_tensor *tensor)
{
    for (uint32_t d = 1; d < tensor->rank; d++)
        if (tensor->shape[d] != tensor->global[d])
            return false;
    return true;
}

static bool validate_mapped_regst(const weir_plan *plan, uint32_t r)
{
    const plan_regst *regst = &plan->regsts[r];
    if (space_kind(plan, regst->space) != WEIR_MAPPED)
        return true;
    if (regst->producer.i != PLAN_NONE || regst->kind != PLAN_PARAMETER || regst->slots != 1 || regst->tensors.count != 1)
        return REFUSE_PLAN("regsts[%" PRIu32 "].space: %.60s has constants of one tensor, which are parameters", r,
                           SPACE_NAME(plan, regst->space.i));
    return is_one_piece(&plan->tensors[regst->tensors.first]) ||
           REFUSE_PLAN("tensors[%" PRIu32 "].shape: not one piece of what a file has", regst->tensors.first);
}

/* Counts the mapped registers that are shards of the parameter, each once: all of its shards, or none. */
static bool validate_mapped_param(const weir_plan *plan, uint32_t p, uint8_t *marks, uint32_t *regsts)
{
    const plan_param *param = &plan->params[p];
    uint32_t count = 0;
    for (uint32_t s = param->shards.first; s < param->shards.first + param->shards.count; s++) {
        const plan_tensor *tensor = &plan->tensors[plan->shards[s].i];
        if (space_kind(plan, plan_tensor_space(plan, tensor)) != WEIR_MAPPED)
            continue;
        count++;
        *regsts += !marks[tensor->owner];
        marks[tensor->owner] = 1;
    }
    return !count || (count == param->shards.count && param->frozen && param->kind == PLAN_KEEP_PARAMETER) ||
           REFUSE_PLAN("params[%" PRIu32 "] (%.60s): %" PRIu32 " of its %" PRIu32 " shards are mapped; a frozen parameter "
                       "has all or none", p, plan_text(plan, param->name), count, param->shards.count);
}

/* Every mapped register is a shard of some parameter, so that its place in a file can be found by that one's name. `marks` has
 * a byte for each register. */
static bool validate_mapped(const weir_plan *plan, uint8_t *marks)
{
    uint32_t regsts = 0, found = 0;
    memset(marks, 0, plan->regsts_count);
    for (uint32_t r = 0; r < plan->regsts_count; r++) {
        if (!validate_mapped_regst(plan, r))
            return false;
        regsts += space_kind(plan, plan->regsts[r].space) == WEIR_MAPPED;
    }
    for (uint32_t p = 0; p < plan->params_count; p++)
        if (!validate_mapped_param(plan, p, marks, &found))
            return false;
    return regsts == found ||
           REFUSE_PLAN("regsts: %" PRIu32 " are mapped, and %" PRIu32 " of these are parameters", regsts, found);
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

bool validate_spaces(const weir_plan *plan, void *scratch)
{
    for (uint32_t s = 0; s < plan->spaces_count; s++)
        if (plan->spaces[s].kind == WEIR_MAPPED && plan->spaces[s].snapshot_bytes)
            return REFUSE_PLAN("spaces[%" PRIu32 "].snapshot_bytes: %.60s is a file", s, SPACE_NAME(plan, s));
    for (uint32_t q = 0; q < plan->queues_count; q++)
        if (!validate_queue_kind(plan, q))
            return false;
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        if (!validate_kernel_space(plan, k))
            return false;
    return validate_mapped(plan, scratch);
}
