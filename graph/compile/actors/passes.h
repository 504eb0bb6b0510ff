/* graph/compile/actors/passes.h: calls become actors, and what they hand to each other registers. */
#ifndef GRAPH_COMPILE_ACTORS_PASSES_H
#define GRAPH_COMPILE_ACTORS_PASSES_H

#include "graph/compile/ir/passes.h"

extern const compile_pass actor_passes[];

/* Each in the file of its name; families in batch.c. */
bool pass_families(compile *c);
bool pass_group(compile *c);
bool pass_sequence(compile *c);
bool pass_batch(compile *c);
bool pass_epilogue(compile *c);
bool pass_fuse(compile *c);
bool pass_tie(compile *c);
bool pass_slots(compile *c);
bool pass_order(compile *c);

/* From how many bytes on a tensor gets a register of its own, and is worth an ordering edge (tie.c). Tests shrink it;
 * nothing else changes it. */
extern uint64_t group_own_bytes;
/* Whether updates wait for each other (tie.c). Tests turn it off; nothing else does. */
extern bool tie_orders;
/* Whether products take in what comes behind them, where a device can. Tests turn it off; nothing else does. */
extern bool epilogue_joins;
/* From how many bytes on a tensor that kernels share makes them one, and how many bytes a block of rows touches, about.
 * Tests shrink them; nothing else changes them. */
extern uint64_t fuse_bytes_min, fuse_block_bytes;

verifier verify_groups; /* each call is in one group, and each register knows who reads it */
verifier verify_slots;  /* and each register has slots, those that start full as many as are full */
verifier verify_order;  /* each group has a priority of its own */

#endif
