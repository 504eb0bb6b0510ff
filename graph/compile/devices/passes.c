/* graph/compile/devices/passes.c: see the header. */
#include "graph/compile/devices/passes.h"

const compile_pass device_passes[] = {PASS(copies, verify_conversions), PASS(lower, verify_calls), {NULL}};
