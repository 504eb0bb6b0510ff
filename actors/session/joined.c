/* actors/session/joined.c: which kernels of an actor one launch may make (device_ops.launch_many): those that follow each
 * other, are of one op, and of which none touches what another writes. A model's update is hundreds of small kernels of a few
 * ops, one after the other in one actor.
 *
 * Bytes are compared, not tensors: a plan may place a kernel's output over an input that an earlier kernel has used up. Such
 * kernels cannot run at once.
 */
#include "actors/session/session.h"

/* Where an operand, or a kernel's scratch, lies; all slots of a register count. */
struct extent {
    uint32_t space;
    uint64_t first, end;
};

static uint32_t queue_of(const weir_plan *plan, uint32_t actor)
{
    return plan->actors[actor].queue.i;
}

static struct extent extent_of_tensor(const weir_plan *plan, const plan_tensor *tensor)
{
    uint64_t bytes = plan_tensor_bytes(tensor);
    if (tensor->home == PLAN_IN_REGST) {
        const plan_regst *regst = &plan->regsts[tensor->owner];
        uint64_t first = regst->offset + tensor->offset;
        return (struct extent){regst->space.i, first, first + (regst->slots - 1) * regst->slot_bytes + bytes};
    }
    const plan_queue *queue = &plan->queues[queue_of(plan, tensor->owner)];
    uint64_t first = tensor->offset + (tensor->home == PLAN_IN_TEMP ? queue->workspace_offset : 0);
    return (struct extent){queue->space.i, first, first + bytes};
}

static struct extent extent_of_scratch(const weir_plan *plan, const plan_kernel *kernel)
{
    const plan_queue *queue = &plan->queues[queue_of(plan, kernel->actor.i)];
    uint64_t first = queue->workspace_offset + kernel->workspace_offset;
    return (struct extent){queue->space.i, first, first + kernel->workspace_bytes};
}

/* The i-th thing that the kernel touches; what it writes comes first. False: there are not so many. */
static bool touched(const weir_plan *plan, const plan_kernel *kernel, uint32_t i, struct extent *extent)
{
    const plan_range *ranges[] = {&kernel->out, &kernel->state, &kernel->in};
    if (i == 0) {
        *extent = extent_of_scratch(plan, kernel);
        return true;
    }
    i--;
    for (int r = 0; r < 3; r++) {
        if (i < ranges[r]->count) {
            *extent = extent_of_tensor(plan, &plan->tensors[plan->operands[ranges[r]->first + i].tensor.i]);
            return true;
        }
        i -= ranges[r]->count;
    }
    return false;
}

static uint32_t written_count(const plan_kernel *kernel)
{
    return 1 + kernel->out.count + kernel->state.count;
}

static bool overlap(const struct extent *a, const struct extent *b)
{
    return a->space == b->space && a->first < b->end && b->first < a->end;
}

/* Whether `b` touches what `a` writes. */
static bool disturbs(const weir_plan *plan, const plan_kernel *a, const plan_kernel *b)
{
    struct extent x, y;
    for (uint32_t i = 0; i < written_count(a); i++)
        for (uint32_t k = 0; touched(plan, a, i, &x) && touched(plan, b, k, &y); k++)
            if (overlap(&x, &y))
                return true;
    return false;
}

/* Whether the kernel may be one of those from `first` on. */
static bool may_join(const struct weir_session *s, uint32_t first, uint32_t k)
{
    const weir_plan *plan = s->plan;
    const struct actor_kernel *kernels = s->built.kernels;
    if (kernels[k].call != kernels[first].call || kernels[k].accumulate || k - first == DEVICE_JOINED_MAX)
        return false;
    for (uint32_t j = first; j < k; j++)
        if (disturbs(plan, &plan->kernels[j], &plan->kernels[k]) || disturbs(plan, &plan->kernels[k], &plan->kernels[j]))
            return false;
    return true;
}

static void join_kernels(struct weir_session *s, const struct device_ops *device, const plan_range *kernels)
{
    for (uint32_t k = kernels->first, next; k < kernels->first + kernels->count; k = next) {
        bool joins = s->built.kernels[k].call && device->joins(s->built.kernels[k].call);
        for (next = k + 1; joins && next < kernels->first + kernels->count && may_join(s, k, next); next++)
            continue;
        s->built.kernels[k].joined = next - k > 1 ? next - k : 0;
    }
}

void session_join_kernels(struct weir_session *s)
{
    for (uint32_t a = 0; a < s->plan->actors_count; a++) {
        uint32_t queue = queue_of(s->plan, a);
        const struct device_ops *device = s->built.arenas[s->plan->queues[queue].space.i].device;
        if (built_runs(&s->built, a) && session_queue(s, queue) && device->joins)
            join_kernels(s, device, &s->plan->actors[a].kernels);
    }
}
