/* graph/compile/backend/emit_collective.h: what the emit pass leaves to others. */
#ifndef GRAPH_COMPILE_BACKEND_EMIT_COLLECTIVE_H
#define GRAPH_COMPILE_BACKEND_EMIT_COLLECTIVE_H

#include "graph/compile/ir/ir.h"
#include "graph/plan/form/build.h"

/* Adds collectives, and a turn for each firing, to a plan that has all else. False: no memory. */
bool emit_collectives(compile *c, plan_builder *b);

#endif
