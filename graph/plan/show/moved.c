/* graph/plan/show/moved.c: see the header. An op's rule for what it reads may be the user's, so its answer is held against
 * the shard, as it is where pieces cross between processes. */
#include "graph/plan/show/moved.h"
#include "graph/plan/form/view.h"
#include "graph/plan/lives/window.h"

#include <string.h>

typedef struct call {
    const weir_plan *plan;
    const plan_kernel *kernel;
    const weir_op *op;
    weir_view in[WEIR_ARGS_MAX], out[WEIR_ARGS_MAX];
    weir_kernel_args args;
} call;

static int views_of(const weir_plan *plan, const plan_range *range, weir_view *views)
{
    for (uint32_t i = 0; i < range->count; i++)
        views[i] = plan_view_of(&plan->tensors[plan->operands[range->first + i].tensor.i]);
    return (int)range->count;
}

static void call_begin(call *c, const weir_plan *plan, uint32_t kernel)
{
    c->plan = plan;
    c->kernel = &plan->kernels[kernel];
    c->op = weir_op_find(plan_text(plan, c->kernel->op));
    c->args = (weir_kernel_args){.in = c->in, .out = c->out, .attrs = plan->words + c->kernel->attrs.first};
    c->args.in_count = views_of(plan, &c->kernel->in, c->in);
    c->args.out_count = views_of(plan, &c->kernel->out, c->out);
}

static bool within(const weir_view *part, const weir_view *whole)
{
    for (int d = 0; d < whole->shape.rank; d++)
        if (part->shape.dim[d] < 0 || part->shape.dim[d] > whole->shape.dim[d] || part->offset[d] < whole->offset[d] ||
            part->offset[d] - whole->offset[d] > whole->shape.dim[d] - part->shape.dim[d])
            return false;
    return true;
}

/* Bytes that the call reads of an input. */
static uint64_t input_bytes(const call *c, uint32_t i)
{
    weir_view part = c->in[i];
    if (c->op && c->op->reads)
        c->op->reads(&c->args, (int)i, &part);
    part.shape.rank = c->in[i].shape.rank;
    const weir_shape *read = within(&part, &c->in[i]) ? &part.shape : &c->in[i].shape;
    return (uint64_t)weir_shape_count(read) * weir_dtype_bytes(c->in[i].dtype);
}

static bool from_elsewhere(const weir_plan *plan, const plan_kernel *kernel, uint32_t operand)
{
    const plan_tensor *tensor = &plan->tensors[plan->operands[operand].tensor.i];
    uint32_t here = plan_actor_space(plan, kernel->actor.i).i;
    return tensor->home == PLAN_IN_REGST && plan->regsts[tensor->owner].space.i != here;
}

static uint64_t range_bytes(const weir_plan *plan, const plan_range *range)
{
    uint64_t bytes = 0;
    for (uint32_t o = range->first; o < range->first + range->count; o++)
        bytes += plan_tensor_bytes(&plan->tensors[plan->operands[o].tensor.i]);
    return bytes;
}

/* An update changes what its output holds already. */
static bool updates_parameter(const call *c)
{
    if (!c->kernel->out.count)
        return false;
    const plan_tensor *out = &c->plan->tensors[c->plan->operands[c->kernel->out.first].tensor.i];
    return out->home == PLAN_IN_REGST && c->plan->regsts[out->owner].kind == PLAN_PARAMETER;
}

plan_moved plan_kernel_moved(const weir_plan *plan, uint32_t kernel)
{
    call c;
    call_begin(&c, plan, kernel);
    uint64_t states = range_bytes(plan, &c.kernel->state);
    plan_moved moved = {.read = states, .written = states + range_bytes(plan, &c.kernel->out)};
    for (uint32_t i = 0; i < c.kernel->in.count; i++) {
        uint64_t bytes = input_bytes(&c, i);
        if (window_is(plan, kernel, c.kernel->in.first + i)) {
            moved.written -= bytes;
            continue;
        }
        moved.read += bytes;
        moved.transferred += from_elsewhere(plan, c.kernel, c.kernel->in.first + i) ? bytes : 0;
    }
    if (c.kernel->accumulate || updates_parameter(&c))
        moved.read += plan_tensor_bytes(&plan->tensors[plan->operands[c.kernel->out.first].tensor.i]);
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
