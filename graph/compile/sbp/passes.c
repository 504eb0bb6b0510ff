/* graph/compile/sbp/passes.c: see the header. */
#include "graph/compile/sbp/passes.h"

const compile_pass layout_passes[] = {PASS(shard, verify_layouts), {NULL}};
const compile_pass conversion_passes[] = {PASS(box, verify_conversions), {NULL}};
