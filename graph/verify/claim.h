/* graph/verify/claim.h: what is known of a shard: of which of the graph's tensors it has a part, and how much of the value.
 *
 *     whole       each element is the logical one                         share 1
 *     a term      the elements of several such shards add up to it        a random share; those of all terms add up to 1
 *     in cells    some elements have one share, others another, or none    after a conversion that fills up with zeros
 *
 * A conversion (an op `box`) takes elements of some shards and adds up others. Its claim follows from its inputs' claims: the
 * op's rule is applied to arrays in which each input has its share of each logical value. Dimensions are cut where any operand or
 * cell begins or ends, and one element stands for all between two cuts, so the cost does not depend on sizes.
 *
 * Cells live in a pool. One thread.
 */
#ifndef GRAPH_VERIFY_CLAIM_H
#define GRAPH_VERIFY_CLAIM_H

#include "graph/base/pool.h"
#include "graph/model/build.h"
#include "graph/verify/rule.h"

/* A part of a shard, in logical indexes. */
typedef struct claim_cell {
    int64_t start[WEIR_DIMS_MAX], end[WEIR_DIMS_MAX];
    field_value share;
} claim_cell;

typedef struct claim {
    const weir_tensor *tensor; /* NULL: any, of which it is no part (a term that is 0) */
    field_value share, scale;
    bool known;
    const claim_cell *cells;  /* in the pool; where shares differ: outside of these they are 0. NULL: `share` everywhere */
    int cell_count;
} claim;

static inline bool claim_is_one(field_value share)
{
    return field_equal(share, field_int(1));
}

/* The whole value of a tensor. */
static inline claim claim_whole(const weir_tensor *tensor)
{
    return (claim){tensor, field_int(1), field_int(1), true, NULL, 0};
}

/* Whether it is the whole value. */
static inline bool claim_is_whole(const claim *c)
{
    return c->known && !c->cells && claim_is_one(c->share) && claim_is_one(c->scale);
}

/* One share for all elements: that of each cell, weighed with a random measure of it, which is 1 for the box. An op that is linear in
 * such a term makes a term of it: if these shares add up to 1, then so do those of each cell. */
field_value claim_mean_share(const claim *c, const rule_array *box, uint64_t seed);

/* The share of the element at these logical indexes. */
field_value claim_share_at(const claim *c, const int64_t *index, int rank);

/* The claim's shares for the output of an op `box`, whose inputs have these claims, all of one tensor. E_WRONG: the operands do not
 * fit each other; E_MEMORY. `error`: a sentence without names. */
weir_status claim_convert(claim *made, pool *p, const rule_call *call, const claim *claims, char *error, size_t error_bytes);

#endif
