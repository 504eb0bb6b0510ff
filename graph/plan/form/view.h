/* graph/plan/form/view.h: a tensor of a plan as ops are shown it: without data. */
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

#endif
