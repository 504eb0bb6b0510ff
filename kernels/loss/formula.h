/* kernels/loss/formula.h: rows that are left out, how rows are weighed, and which classes a group has; for all kinds of
 * devices. Pure functions; any thread.
 */
#ifndef KERNELS_LOSS_FORMULA_H
#define KERNELS_LOSS_FORMULA_H

#include "kernels/elementwise/fastmath.h"

#include <stdbool.h>

/* The attributes of the cross-entropy's ops. */
typedef struct label_attrs {
    int64_t ignore; /* 1: rows labelled ignore_index do not count */
    int64_t ignore_index;
} label_attrs;

/* The attributes of the ops of classes.c. */
typedef struct class_attrs {
    label_attrs label;
    int64_t groups; /* of classes, in all */
} class_attrs;

FORMULA bool label_ignored(const label_attrs *attrs, int32_t label)
{
    return attrs->ignore && label == attrs->ignore_index;
}

/* 1 / number of rows that count. */
FORMULA double weight_of(double rows)
{
    return 1 / (rows > 1 ? rows : 1);
}

/* The factor of a row's gradient, for `share` = weight_of(rows). */
FORMULA float loss_weight(float dloss, double share)
{
    return (float)((double)dloss * share);
}

/* The gradient of a logit that is not the label's, whose weight is taken off where it is. */
FORMULA float logit_grad(float x, float lse, float weight)
{
    return fast_exp(x - lse) * weight;
}

/* The first class, of `classes`, that group `group` of `groups` has; groups differ by one at most. */
FORMULA int64_t group_first(int64_t classes, int64_t groups, int64_t group)
{
    int64_t longer = classes % groups;
    return group * (classes / groups) + (group < longer ? group : longer);
}

/* Where in a shard of `classes` classes from `first` on the label's class lies; -1: in another shard. */
FORMULA int64_t class_at(int64_t first, int64_t classes, int32_t label)
{
    int64_t at = label - first;
    return at >= 0 && at < classes ? at : -1;
}

#endif
