/* kernels/common/opts.h: how a DSL function takes its options. Header-only; the graph's thread. */
#ifndef KERNELS_COMMON_OPTS_H
#define KERNELS_COMMON_OPTS_H

#include "graph/base/opts.h"

#include <weir/op.h>

/* Copies what was given to `own`; returns x, or, when there is something wrong with it, a poisoned tensor: what is built
 * on that is poisoned and quiet. */
static inline weir_tensor *op_opts(weir_tensor *x, const char *op, const void *given, void *own, size_t own_bytes)
{
    const char *wrong = opts_take(own, own_bytes, given);
    return wrong ? weir_mistake(x, opts_src(own), "%s: %s", op, wrong) : x;
}

#endif
