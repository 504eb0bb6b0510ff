/* kernels/common/param.h: parameters that a DSL function makes for its op. Header-only; the graph's thread. */
#ifndef KERNELS_COMMON_PARAM_H
#define KERNELS_COMMON_PARAM_H

#include <math.h>
#include <stdio.h>
#include <weir/graph.h>

/* The parameter NAME/PART, on the mesh on which an op applied to `x` now would live. opts gives the rest. */
static inline weir_tensor *op_param(weir_tensor *x, const char *name, const char *part, weir_param_opts opts)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", name, part);
    opts.size = sizeof opts;
    opts.name = path;
    opts.mesh = weir_mesh_for(x);
    return weir_param_at(weir_tensor_graph(x), WEIR_F32, &opts);
}

/* The value that a DSL function that would look at `x` returns when there is nothing to look at: x is poisoned, or NULL,
 * which is a mistake. */
static inline weir_tensor *op_of_none(const weir_op *op, weir_tensor *x, weir_src src)
{
    return x ? x : weir_mistake(NULL, src, "%s: input 0 is NULL", op->name);
}

/* `fallback` for a parameter without an .init of the user's. Numbers without a kind are the user's mistake, which
 * weir_param_at() reports. */
static inline weir_init init_or(weir_init init, weir_init fallback)
{
    return init.kind == WEIR_INIT_DEFAULT && !init.a && !signbit(init.a) && !init.b ? fallback : init;
}

#endif
