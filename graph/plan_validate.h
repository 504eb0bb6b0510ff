/* graph/plan_validate.h: the two halves of plan_validate(): plan_validate.c looks at the structure and the memory,
 * plan_validate_kernel.c at what is called and with what. A rule returns true, or refuses: sets the error, which names
 * the place ("actors[3].queue: 7 of 2"), and returns false. The first fault ends the check.
 */
#ifndef GRAPH_PLAN_VALIDATE_H
#define GRAPH_PLAN_VALIDATE_H

#include "graph/error.h"
#include "graph/plan.h"

#define REFUSE_PLAN(...) (error_set(WEIR_E_PLAN, __VA_ARGS__), false)

static inline bool range_has(const plan_range *range, uint32_t index)
{
    return index >= range->first && index - range->first < range->count;
}

/* first + bytes <= limit, without overflow */
static inline bool fits(uint64_t first, uint64_t bytes, uint64_t limit)
{
    return first <= limit && bytes <= limit - first;
}

/* For finding equal names: sorted by kind and name. */
typedef struct validate_name {
    const char *name;
    uint32_t kind, index;
} validate_name;

/* All rely on the structure having been checked. `scratch` is memory for one rule at a time: an extent per register,
 * queue and tensor, or a validate_name per parameter or host, whichever is more. */
bool validate_kernels(const weir_plan *plan, void *scratch);
bool validate_hosts(const weir_plan *plan, void *scratch);
bool validate_starts(const weir_plan *plan, void *scratch); /* params and inits */

#endif
