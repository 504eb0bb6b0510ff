/* graph/plan/lives/window.c: see the header. */
#include "graph/plan/lives/window.h"
#include "graph/plan/form/view.h"

#include <string.h>

static const plan_tensor *operand_tensor(const weir_plan *plan, uint32_t operand)
{
    return &plan->tensors[plan->operands[operand].tensor.i];
}

/* Values of one slot that each firing of the producer's, or M of them, makes anew. */
static bool one_slot(const plan_regst *regst)
{
    return regst->slots == 1 && !regst->initial && regst->producer.i != PLAN_NONE;
}

/* The actor's port on the register, if each firing reads another value; else PLAN_NONE. */
static uint32_t port_on(const weir_plan *plan, plan_actor_id actor, plan_regst_id regst)
{
    const plan_range *ports = &plan->actors[actor.i].ports;
    for (uint32_t p = ports->first; p < ports->first + ports->count; p++)
        if (plan->ports[p].regst.i == regst.i)
            return plan->ports[p].hold == 1 && plan_port_counts(plan, &plan->ports[p]) ? p : PLAN_NONE;
    return PLAN_NONE;
}

/* Where the tensor may have a part within it: the space, or PLAN_NONE. */
static uint32_t host_space(const weir_plan *plan, const plan_tensor *tensor)
{
    if (tensor->home == PLAN_IN_TEMP)
        return plan_actor_space(plan, tensor->owner).i;
    if (tensor->home != PLAN_IN_REGST)
        return PLAN_NONE;
    const plan_regst *regst = &plan->regsts[tensor->owner];
    return one_slot(regst) && regst->fill == 1 ? regst->space.i : PLAN_NONE;
}

static bool same_place(const plan_tensor *a, const plan_tensor *b)
{
    return a->home == b->home && a->owner == b->owner;
}

/* Whether the gather alone writes the bytes. Another temporary is another part of the arena. */
static bool written_once(const weir_plan *plan, plan_actor_id actor, const window *w, uint64_t bytes)
{
    const plan_tensor *whole = &plan->tensors[w->tensor.i];
    const plan_range *kernels = &plan->actors[actor.i].kernels;
    uint64_t first = whole->offset + w->at, end = first + bytes;
    for (uint32_t k = kernels->first; k < kernels->first + kernels->count; k++) {
        const plan_range *out = &plan->kernels[k].out;
        for (uint32_t o = out->first; o < out->first + out->count; o++) {
            const plan_tensor *other = operand_tensor(plan, o);
            bool here = other == whole || (whole->home == PLAN_IN_REGST && same_place(other, whole));
            bool meets = here && other->offset < end && first < other->offset + plan_tensor_bytes(other);
            if (meets && (k != w->kernel.i || o != out->first))
                return false;
        }
    }
    return true;
}

/* Whether the kernel's operand, an input, may lie within its first output, or (`onto`) that within this operand, as the
 * op's rule says; fills `to` then. */
static bool kernel_lets(const weir_plan *plan, uint32_t k, uint32_t operand, bool onto, window *to)
{
    const plan_kernel *kernel = &plan->kernels[k];
    const weir_op *op = weir_op_find(plan_text(plan, kernel->op));
    if (!op || !(onto ? op->onto : op->stays) || kernel->accumulate || !kernel->out.count)
        return false;
    plan_call c;
    plan_call_begin(&c, plan, kernel);
    uint32_t outer = onto ? operand : kernel->out.first, inner = onto ? kernel->out.first : operand;
    const plan_tensor *part = operand_tensor(plan, inner), *whole = operand_tensor(plan, outer);
    int64_t place = (onto ? op->onto : op->stays)(&c.args, (int)(operand - kernel->in.first));
    if (place < 0 || part->dtype != whole->dtype)
        return false;
    uint64_t bytes = plan_tensor_bytes(whole), own = plan_tensor_bytes(part);
    uint64_t each = weir_dtype_bytes((weir_dtype)whole->dtype);
    *to = (window){{k}, operand, plan->operands[outer].tensor, (uint64_t)place * each};
    return own && (uint64_t)place <= bytes / each && own <= bytes - to->at;
}

static bool find_in(const weir_plan *plan, plan_regst_id part, plan_actor_id actor, uint32_t space, window *to)
{
    const plan_regst *regst = &plan->regsts[part.i];
    if (!one_slot(regst) || regst->producer.i == actor.i || regst->tensors.count != 1 ||
        plan->tensors[regst->tensors.first].offset)
        return false;
    uint32_t port = port_on(plan, actor, part), tensor = regst->tensors.first;
    const plan_range *kernels = &plan->actors[actor.i].kernels;
    for (uint32_t k = kernels->first; port != PLAN_NONE && k < kernels->first + kernels->count; k++) {
        const plan_range *in = &plan->kernels[k].in;
        for (uint32_t o = in->first; o < in->first + in->count; o++)
            if (plan->operands[o].port.i == port && plan->operands[o].tensor.i == tensor &&
                kernel_lets(plan, k, o, false, to))
                return host_space(plan, &plan->tensors[to->tensor.i]) == space &&
                       written_once(plan, actor, to, plan_tensor_bytes(&plan->tensors[tensor]));
    }
    return false;
}

bool window_find(const weir_plan *plan, plan_regst_id part, plan_actor_id actor, window *to)
{
    return find_in(plan, part, actor, plan->regsts[part.i].space.i, to);
}

bool window_comes(const weir_plan *plan, plan_regst_id part, plan_actor_id actor, window *to)
{
    return find_in(plan, part, actor, plan_actor_space(plan, actor.i).i, to);
}

/* In the arena, of what has one slot. */
static uint64_t tensor_first(const weir_plan *plan, const plan_tensor *tensor)
{
    return tensor->offset + (tensor->home == PLAN_IN_TEMP
                                 ? plan->queues[plan->actors[tensor->owner].queue.i].workspace_offset
                                 : plan->regsts[tensor->owner].offset);
}

uint64_t window_place(const weir_plan *plan, const window *w)
{
    return tensor_first(plan, &plan->tensors[w->tensor.i]) + w->at;
}

bool window_lies(const weir_plan *plan, plan_regst_id part, const window *w)
{
    return plan->regsts[part.i].offset == window_place(plan, w);
}

bool window_is(const weir_plan *plan, uint32_t kernel, uint32_t operand)
{
    const plan_kernel *k = &plan->kernels[kernel];
    const plan_tensor *part = operand_tensor(plan, operand);
    const plan_tensor *whole = k->out.count ? operand_tensor(plan, k->out.first) : NULL;
    window w;
    if (!whole || part->home != PLAN_IN_REGST || plan->operands[operand].port.i == PLAN_NONE ||
        host_space(plan, whole) != plan->regsts[part->owner].space.i || !kernel_lets(plan, kernel, operand, false, &w))
        return false;
    return one_slot(&plan->regsts[part->owner]) && tensor_first(plan, part) == tensor_first(plan, whole) + w.at;
}

uint64_t window_bytes(const weir_plan *plan)
{
    uint64_t bytes = 0;
    for (uint32_t k = 0; k < plan->kernels_count; k++) {
        const plan_range *in = &plan->kernels[k].in;
        for (uint32_t o = in->first; o < in->first + in->count; o++)
            if (window_is(plan, k, o))
                bytes += plan_tensor_bytes(operand_tensor(plan, o)) * plan->actors[plan->kernels[k].actor.i].fires;
    }
    return bytes;
}

/* ---- sums over a term ---- */

/* Whether the two, of one logical tensor, have elements in common. */
static bool boxes_meet(const weir_view *a, const plan_tensor *b)
{
    bool meet = a->shape.rank == (int)b->rank;
    for (uint32_t d = 0; d < b->rank && meet; d++)
        meet = a->shape.dim[d] > 0 && b->shape[d] > 0 && a->offset[d] < b->start[d] + b->shape[d] &&
               b->start[d] < a->offset[d] + a->shape.dim[d];
    return meet;
}

/* Whether the kernel may read, through this operand, bytes that the sum is written to. */
static bool reads_sum(const weir_plan *plan, uint32_t k, uint32_t operand, const window *w, const plan_tensor *sum)
{
    const plan_kernel *kernel = &plan->kernels[k];
    const plan_tensor *tensor = operand_tensor(plan, operand), *term = &plan->tensors[w->tensor.i];
    uint64_t first = term->offset + w->at, end = first + plan_tensor_bytes(sum);
    if (tensor->offset >= end || first >= tensor->offset + plan_tensor_bytes(tensor) ||
        (k == w->kernel.i && operand == w->operand))
        return false;
    const weir_op *op = weir_op_find(plan_text(plan, kernel->op));
    if (tensor != term || !op || !op->reads || !kernel->out.count)
        return true;
    plan_call c;
    plan_call_begin(&c, plan, kernel);
    int input = (int)(operand - kernel->in.first);
    weir_view part = c.in[input];
    op->reads(&c.args, input, &part);
    return !plan_view_within(&part, &c.in[input]) || boxes_meet(&part, sum);
}

static bool port_reads(const weir_plan *plan, uint32_t port, const window *w, const plan_tensor *part)
{
    const plan_actor *actor = &plan->actors[plan->ports[port].actor.i];
    if (plan->queues[actor->queue.i].kind == PLAN_OUTSIDE)
        return true;
    for (uint32_t k = actor->kernels.first; k < actor->kernels.first + actor->kernels.count; k++) {
        const plan_range *in = &plan->kernels[k].in;
        for (uint32_t o = in->first; o < in->first + in->count; o++)
            if (plan->operands[o].port.i == port && reads_sum(plan, k, o, w, part))
                return true;
    }
    return false;
}

bool window_is_read(const weir_plan *plan, uint32_t port, plan_tensor_id tensor, uint64_t at, const plan_tensor *part)
{
    window w = {{PLAN_NONE}, PLAN_NONE, tensor, at};
    return !plan->actors[plan->ports[port].actor.i].kernels.count || port_reads(plan, port, &w, part);
}

/* Whether none but the sum's own kernel reads what it is written over. */
static bool term_is_free(const weir_plan *plan, const lives *l, plan_regst_id term, const window *w,
                         const plan_tensor *sum)
{
    uint32_t count;
    const uint32_t *readers = lives_readers(l, term, &count);
    for (uint32_t i = 0; i < count; i++)
        if (port_reads(plan, readers[i], w, sum))
            return false;
    return true;
}

/* Whether the register has one tensor, which this kernel alone writes. */
static bool made_by(const weir_plan *plan, plan_regst_id regst, uint32_t kernel)
{
    const plan_regst *r = &plan->regsts[regst.i];
    const plan_range *kernels = &plan->actors[r->producer.i].kernels;
    for (uint32_t k = kernels->first; k < kernels->first + kernels->count; k++) {
        const plan_range *out = &plan->kernels[k].out;
        for (uint32_t o = out->first; o < out->first + out->count; o++) {
            const plan_tensor *tensor = operand_tensor(plan, o);
            if (tensor->home == PLAN_IN_REGST && tensor->owner == regst.i && (k != kernel || o != out->first))
                return false;
        }
    }
    return true;
}

/* The kernel that makes the sum of the term, and through which operand. */
static bool find_sum(const weir_plan *plan, plan_regst_id sum, plan_regst_id term, window *to)
{
    const plan_regst *regst = &plan->regsts[sum.i];
    uint32_t port = port_on(plan, regst->producer, term);
    const plan_range *kernels = &plan->actors[regst->producer.i].kernels;
    for (uint32_t k = kernels->first; port != PLAN_NONE && k < kernels->first + kernels->count; k++) {
        const plan_kernel *kernel = &plan->kernels[k];
        if (!kernel->out.count || plan->operands[kernel->out.first].tensor.i != regst->tensors.first)
            continue;
        for (uint32_t o = kernel->in.first; o < kernel->in.first + kernel->in.count; o++)
            if (plan->operands[o].port.i == port)
                return kernel_lets(plan, k, o, true, to);
    }
    return false;
}

bool window_onto(const weir_plan *plan, const lives *l, plan_regst_id sum, plan_regst_id term, window *to)
{
    const plan_regst *own = &plan->regsts[sum.i], *from = &plan->regsts[term.i];
    if (!one_slot(own) || !one_slot(from) || own->fill != 1 || own->space.i != from->space.i ||
        own->tensors.count != 1 || plan->tensors[own->tensors.first].offset)
        return false;
    return find_sum(plan, sum, term, to) && made_by(plan, sum, to->kernel.i) &&
           term_is_free(plan, l, term, to, &plan->tensors[own->tensors.first]);
}

bool window_is_onto(const weir_plan *plan, uint32_t kernel, uint32_t operand)
{
    const plan_kernel *k = &plan->kernels[kernel];
    const plan_tensor *term = operand_tensor(plan, operand);
    const plan_tensor *sum = k->out.count ? operand_tensor(plan, k->out.first) : NULL;
    window w;
    if (!sum || term->home != PLAN_IN_REGST || sum->home != PLAN_IN_REGST ||
        plan->operands[operand].port.i == PLAN_NONE || !one_slot(&plan->regsts[term->owner]) ||
        !one_slot(&plan->regsts[sum->owner]) || plan->regsts[term->owner].space.i != plan->regsts[sum->owner].space.i)
        return false;
    return kernel_lets(plan, kernel, operand, true, &w) && tensor_first(plan, sum) == tensor_first(plan, term) + w.at;
}
