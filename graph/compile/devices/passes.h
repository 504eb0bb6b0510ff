/* graph/compile/devices/passes.h: what each device holds and calls. */
#ifndef GRAPH_COMPILE_DEVICES_PASSES_H
#define GRAPH_COMPILE_DEVICES_PASSES_H

#include "graph/compile/ir/passes.h"

extern const compile_pass device_passes[]; /* nodes become shards and calls of each device */

/* Each in the file of its name. */
bool pass_copies(compile *c);
bool pass_lower(compile *c);

/* Shards that conversions hand to conversions are cut into chunks of at most so many bytes, as far as there may be that
 * many chunks. Tests shrink it; nothing else changes it. */
extern uint64_t lower_chunk_bytes;

verifier verify_calls; /* calls and shards know each other, and are on one device */

#endif
