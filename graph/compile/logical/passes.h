/* graph/compile/logical/passes.h: what is computed, and in which dtypes. */
#ifndef GRAPH_COMPILE_LOGICAL_PASSES_H
#define GRAPH_COMPILE_LOGICAL_PASSES_H

#include "graph/compile/ir/passes.h"

extern const compile_pass logical_passes[]; /* the graph becomes nodes, with dtypes and rules */
extern const compile_pass cast_passes[];    /* layouts are chosen: what is read in another dtype is cast */

/* Each in the file of its name; casts in precision.c. */
bool pass_scale(compile *c);
bool pass_precision(compile *c);
bool pass_casts(compile *c);
bool pass_fold(compile *c);

verifier verify_dtypes; /* what a node reads in has a dtype of the same kind */
verifier verify_rules;  /* each node has signatures, the first of which is all B */

#endif
