/* kernels/optim/scalars.h: which input of an update is which.
 *
 *     gradient [, scale] [, rate] [, states that are moved]
 *
 * The scale is a scalar and the rate has one dimension, of 1: so either may be left out. For the CPU's kernels and those of a GPU
 * alike. Pure functions; any thread.
 */
#ifndef KERNELS_OPTIM_SCALARS_H
#define KERNELS_OPTIM_SCALARS_H

#include "kernels/optim/formula.h"

#include <weir/op.h>

/* For an update with `moved` states as inputs. */
static inline struct update_scalars update_scalars_of(const weir_kernel_args *args, int moved)
{
    struct update_scalars found = {NULL, NULL};
    for (int i = 1; i < args->in_count - moved; i++) {
        const float *at = (const float *)args->in[i].data;
        if (args->in[i].shape.rank)
            found.rate = at;
        else
            found.scale = at;
    }
    return found;
}

#endif
