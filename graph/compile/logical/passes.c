/* graph/compile/logical/passes.c: see the header. */
#include "graph/compile/logical/passes.h"

const compile_pass logical_passes[] = {{"new", ir_new, verify_nodes}, PASS(scale, verify_nodes), PASS(precision, verify_dtypes),
                               PASS(rules, verify_rules), {NULL}};
const compile_pass cast_passes[] = {PASS(casts, verify_dtypes), PASS(fold, verify_dtypes), {NULL}};
