/* graph/verify/rules_model.h: sums over rows, for the rules of attention, embeddings and losses.
 *
 * exp is an oracle. The maximum that a kernel subtracts before it computes exp cancels over the reals, so no rule has it.
 * A softmax is exp(x) / sum of exp, and a log-sum-exp is log(sum of exp).
 *
 * Kept sums. Some ops keep the log-sum-exp of a row, or of a part of it, for ops that compute exp(x - lse), or the sum of
 * exp(lse) over the parts. log is a permutation with an inverse, so the rules of these ops compute the kept sum from its logarithm. To all
 * other ops the logarithm is a value like any other, so an op that adds two of them gets no sum of exponentials.
 */
#ifndef GRAPH_VERIFY_RULES_MODEL_H
#define GRAPH_VERIFY_RULES_MODEL_H

#include "graph/verify/rule.h"

/* Whether `array` has one dimension more than `rows`, behind the same ones. */
static inline bool has_row_for_each(const rule_array *array, const rule_array *rows)
{
    return array->rank == rows->rank + 1 && rule_same_leading(array, rows, rows->rank);
}

static inline void clear(field_value *to, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = field_int(0);
}

/* to += by * from */
static inline void add_scaled(field_value *to, const field_value *from, field_value by, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = field_add(to[i], field_mul(by, from[i]));
}

static inline void scale_row(field_value *x, field_value by, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        x[i] = field_mul(by, x[i]);
}

static inline field_value exp_of(const rule_call *call, field_value x)
{
    return field_oracle_of(call->seed, "exp", x);
}

static inline field_value log_of(const rule_call *call, field_value x)
{
    return field_log(call->seed, x);
}

/* The sum whose logarithm was kept. */
static inline field_value kept_sum(const rule_call *call, field_value lse)
{
    return field_unlog(call->seed, lse);
}

#endif
