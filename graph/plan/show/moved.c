/* graph/plan/show/moved.c: see the header. */
#include "graph/plan/show/moved.h"
#include "graph/plan/form/view.h"
#include "graph/plan/lives/window.h"

static uint64_t input_bytes(const plan_call *c, const weir_op *op, uint32_t i)
{
    weir_view part = c->in[i];
    if (op && op->reads)
        op->reads(&c->args, (int)i, &part);
    part.shape.rank = c->in[i].shape.rank;
    const weir_shape *read = plan_view_within(&part, &c->in[i]) ? &part.shape : &c->in[i].shape;
    return (uint64_t)weir_shape_count(read) * weir_dtype_bytes(c->in[i].dtype);
}

static bool from_elsewhere(const weir_plan *plan, const plan_kernel *kernel, uint32_t operand)
{
    const plan_tensor *tensor = &plan->tensors[plan->operands[operand].tensor.i];
    uint32_t here = plan_actor_space(plan, kernel->actor.i).i;
    return tensor->home == PLAN_IN_REGST && plan->regsts[tensor->owner].space.i != here &&
           plan->spaces[plan->regsts[tensor->owner].space.i].kind != WEIR_MAPPED;
}

static uint64_t range_bytes(const weir_plan *plan, const plan_range *range)
{
    uint64_t bytes = 0;
    for (uint32_t o = range->first; o < range->first + range->count; o++)
        bytes += plan_tensor_bytes(&plan->tensors[plan->operands[o].tensor.i]);
    return bytes;
}

/* An update changes what its output holds already. */
static bool updates_parameter(const weir_plan *plan, const plan_kernel *kernel)
{
    if (!kernel->out.count)
        return false;
    const plan_tensor *out = &plan->tensors[plan->operands[kernel->out.first].tensor.i];
    return out->home == PLAN_IN_REGST && plan->regsts[out->owner].kind == PLAN_PARAMETER;
}

plan_moved plan_kernel_moved(const weir_plan *plan, uint32_t kernel)
{
    const plan_kernel *of = &plan->kernels[kernel];
    const weir_op *op = weir_op_find(plan_text(plan, of->op));
    plan_call c;
    plan_call_begin(&c, plan, of);
    uint64_t states = range_bytes(plan, &of->state);
    plan_moved moved = {.read = states, .written = states + range_bytes(plan, &of->out)};
    for (uint32_t i = 0; i < of->in.count; i++) {
        uint64_t bytes = input_bytes(&c, op, i);
        if (window_is(plan, kernel, of->in.first + i)) {
            moved.written -= bytes;
            continue;
        }
        moved.read += bytes;
        moved.transferred += from_elsewhere(plan, of, of->in.first + i) ? bytes : 0;
    }
    if (of->accumulate || updates_parameter(plan, of))
        moved.read += plan_tensor_bytes(&plan->tensors[plan->operands[of->out.first].tensor.i]);
    return moved;
}

static void add(plan_moved *sum, const plan_moved *more, uint64_t times)
{
    sum->read += more->read * times;
    sum->written += more->written * times;
    sum->transferred += more->transferred * times;
}

plan_moved plan_actor_moved(const weir_plan *plan, uint32_t actor)
{
    const plan_range *kernels = &plan->actors[actor].kernels;
    plan_moved sum = {0};
    for (uint32_t k = kernels->first; k < kernels->first + kernels->count; k++) {
        plan_moved one = plan_kernel_moved(plan, k);
        add(&sum, &one, plan->actors[actor].fires);
    }
    return sum;
}

plan_moved plan_queue_moved(const weir_plan *plan, uint32_t queue)
{
    plan_moved sum = {0};
    for (uint32_t a = 0; a < plan->actors_count; a++)
        if (plan->actors[a].queue.i == queue) {
            plan_moved one = plan_actor_moved(plan, a);
            add(&sum, &one, 1);
        }
    return sum;
}
