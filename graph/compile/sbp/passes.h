/* graph/compile/sbp/passes.h: which device has what of each tensor. */
#ifndef GRAPH_COMPILE_SBP_PASSES_H
#define GRAPH_COMPILE_SBP_PASSES_H

#include "graph/compile/ir/passes.h"

extern const compile_pass layout_passes[];     /* every tensor gets its SBP, every node its signature */
extern const compile_pass conversion_passes[]; /* what lies otherwise than it is read is converted by nodes */

/* Each in the file of its name. */
bool pass_shard(compile *c);
bool pass_box(compile *c);

verifier verify_layouts;     /* nodes have a signature, tensors what their maker makes, or their user fixed */
verifier verify_conversions; /* an input lies as it is read */

#endif
