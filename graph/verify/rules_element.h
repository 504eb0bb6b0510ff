/* graph/verify/rules_element.h: what the rules of elements and those of reductions ask of their operands.
 *
 * Pure functions but for the sentence that a refusal writes; any thread.
 */
#ifndef GRAPH_VERIFY_RULES_ELEMENT_H
#define GRAPH_VERIFY_RULES_ELEMENT_H

#include "graph/verify/rule.h"

static inline field_value zero(void)
{
    return field_int(0);
}

/* The first `ins` inputs and the first `outs` outputs are there, and all have one shape. */
static inline bool all_alike(const rule_call *call, int ins, int outs)
{
    if (!rule_has_operands(call, ins, outs))
        return false;
    for (int i = 1; i < ins; i++)
        if (!rule_same_shape(&call->in[0], &call->in[i]))
            return rule_refuse(call, "the shape of input %d is not that of input 0", i);
    for (int o = 0; o < outs; o++)
        if (!rule_same_shape(&call->in[0], &call->out[o]))
            return rule_refuse(call, "the shape of output %d is not that of input 0", o);
    return true;
}

static inline bool has_rows(const rule_call *call)
{
    return call->in[0].rank > 0 || rule_refuse(call, "input 0 is a scalar and has no last dimension");
}

static inline bool has_count(const rule_call *call, const char *what, const rule_array *array, int64_t count)
{
    if (array->count == count)
        return true;
    return rule_refuse(call, "%s has %lld elements; it needs %lld", what, (long long)array->count, (long long)count);
}

/* Writes out[0]'s element `at`, or adds to it. For the ops with .accumulates. */
static inline void put_term(const rule_call *call, int64_t at, field_value value)
{
    field_value *to = &call->out[0].at[at];
    *to = call->accumulate ? field_add(*to, value) : value;
}

#endif
