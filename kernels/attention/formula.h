/* kernels/attention/formula.h: what the ops of attention are told, and how many keys a query sees; for all kinds of devices.
 * Any thread. */
#ifndef KERNELS_ATTENTION_FORMULA_H
#define KERNELS_ATTENTION_FORMULA_H

#include "kernels/elementwise/fastmath.h"

#include <stdbool.h>

struct attention_attrs {
    int64_t head_dim;
    int64_t causal;
    double scale;
};

struct kept_attrs {
    int64_t head_dim;
    double scale;
};

/* Keys that any of the queries before `end` sees, of `keys`. */
FORMULA int64_t keys_before(bool causal, int64_t keys, int64_t end)
{
    return causal && end < keys ? end : keys;
}

#endif
