/* graph/compile/backend/emit.h: the devices' form becomes a plan. Slots, turns and offsets, which change while offsets are
 * looked for, are entered into it. */
#ifndef GRAPH_COMPILE_BACKEND_EMIT_H
#define GRAPH_COMPILE_BACKEND_EMIT_H

#include "graph/compile/ir/ir.h"

/* All but slots, turns, offsets and the hash. NULL: no memory. */
weir_plan *emit_plan(compile *c);

/* The slots that registers have now, and the turns of collectives that follow. False: no memory. */
bool emit_slots(const compile *c, weir_plan *plan);

/* The offsets that were found last, what was given up for a limit, and the hash. */
void emit_offsets(const compile *c, weir_plan *plan);

#endif
