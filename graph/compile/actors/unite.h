/* graph/compile/actors/unite.h: several pops of a group become one that calls an op for all of them: the *early* one, which comes first,
 * stands for all, and the others go. So all that they read must be there by then. Behind the grouping; by one thread.
 */
#ifndef GRAPH_COMPILE_ACTORS_UNITE_H
#define GRAPH_COMPILE_ACTORS_UNITE_H

#include "graph/compile/ir/ir.h"

static inline pop *pop_of(const compile *c, int id)
{
    return &c->phys.op.item[id];
}

static inline ptensor *tensor_of(const compile *c, int id)
{
    return &c->phys.tensor.item[id];
}

enum { UNITED_MAX = BATCH_MAX, UNITED_OPERANDS = 1 + 2 * UNITED_MAX };

typedef struct union_call {
    const weir_op *op;
    int pop[UNITED_MAX], count;    /* the early one, and those that go */
    const pop *product;            /* that one of them whose attributes it has */
    const char *says, *last;       /* "SAYS early..last" is its name: what it is, and a name of a node */
    int in[UNITED_OPERANDS], out[UNITED_OPERANDS], in_count, out_count; /* ptensors */
    int inner;                     /* the ptensor that is no more, or -1 */
} union_call;

/* Whether the pop of the group `where` calls the op, and may be one of several. */
bool unite_calls(const compile *c, int id, const weir_op *op, int where);

/* Makes one call of them, if their operands and the rule of its op allow it. `position`: of pops in their group. */
bool unite(compile *c, const union_call *u, const int *position);

#endif
