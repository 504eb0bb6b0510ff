/* graph/compile/actors/passes.c: see the header. */
#include "graph/compile/actors/passes.h"

const compile_pass actor_passes[] = {PASS(families, verify_calls), PASS(group, verify_groups), PASS(sequence, verify_groups),
                             PASS(batch, verify_groups), PASS(epilogue, verify_groups), PASS(fuse, verify_groups),
                             PASS(tie, verify_groups), PASS(slots, verify_slots), PASS(order, verify_order), {NULL}};
