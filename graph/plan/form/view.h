/* graph/plan/form/view.h: a tensor of a plan, and the call of a kernel, as ops are shown them: without data. */
#ifndef GRAPH_PLAN_FORM_VIEW_H
#define GRAPH_PLAN_FORM_VIEW_H

#include <weir/op.h>

#include "graph/plan/form/plan.h"

static inline weir_view plan_view_of(const plan_tensor *tensor)
{
    weir_view view = {.dtype = (weir_dtype)tensor->dtype};
    view.shape.rank = view.global.rank = (int)tensor->rank;
    for (uint32_t d = 0; d < tensor->rank; d++) {
        view.shape.dim[d] = tensor->shape[d];
        view.offset[d] = tensor->start[d];
        view.global.dim[d] = tensor->global[d];
    }
    return view;
}

/* A kernel's call: its views lie in it, so it stays where it is. */
typedef struct plan_call {
    weir_view in[WEIR_ARGS_MAX], out[WEIR_ARGS_MAX];
    weir_kernel_args args;
} plan_call;

static inline void plan_call_begin(plan_call *c, const weir_plan *plan, const plan_kernel *kernel)
{
    for (uint32_t i = 0; i < kernel->in.count; i++)
        c->in[i] = plan_view_of(&plan->tensors[plan->operands[kernel->in.first + i].tensor.i]);
    for (uint32_t i = 0; i < kernel->out.count; i++)
        c->out[i] = plan_view_of(&plan->tensors[plan->operands[kernel->out.first + i].tensor.i]);
    c->args = (weir_kernel_args){.in = c->in, .in_count = (int)kernel->in.count, .out = c->out,
                                 .out_count = (int)kernel->out.count, .attrs = plan->words + kernel->attrs.first};
}

/* Whether it is a part of the other: an op's rule for what it reads may be the user's, so its answer is held against the
 * shard. */
static inline bool plan_view_within(const weir_view *part, const weir_view *whole)
{
    if (part->shape.rank != whole->shape.rank)
        return false;
    for (int d = 0; d < whole->shape.rank; d++)
        if (part->shape.dim[d] < 0 || part->shape.dim[d] > whole->shape.dim[d] || part->offset[d] < whole->offset[d] ||
            part->offset[d] - whole->offset[d] > whole->shape.dim[d] - part->shape.dim[d])
            return false;
    return true;
}

#endif
