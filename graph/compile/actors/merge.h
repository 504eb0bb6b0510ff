/* graph/compile/actors/merge.h: collectives that become one. */
#ifndef GRAPH_COMPILE_ACTORS_MERGE_H
#define GRAPH_COMPILE_ACTORS_MERGE_H

#include "graph/compile/ir/ir.h"

/* Whether two collectives are of the same devices, both move or both make the same kind of sum, and are small enough to be
 * one: bytes that a device gives, that it takes, operands. */
bool collectives_fit(const compile *c, int a, int b, uint64_t bytes_max);

/* Makes them one: what `b` moves is moved by `a`, whose members are in groups already; those of `b` are dead, and said to be
 * in the same groups. */
void collectives_merge(compile *c, int a, int b);

#endif
