/* graph/compile/ir/passes.h: a pass of the compiler, as the lists of rooms name it, and how a list is run. */
#ifndef GRAPH_COMPILE_IR_PASSES_H
#define GRAPH_COMPILE_IR_PASSES_H

#include "graph/compile/ir/verify.h"

typedef struct compile_pass {
    const char *name;
    bool (*run)(compile *c);       /* false: an error, which it has set */
    verifier *verifies;            /* that what it promises is so; NULL: it promises nothing that can be seen in the form */
} compile_pass;

#define PASS(name, verifies) {#name, pass_##name, verifies}

/* Until one fails; the list ends with one without a name. */
bool passes_run(compile *c, const compile_pass *passes);

/* Whether what each pass promises is verified behind it; a promise that is broken is WEIR_E_GRAPH. So it is in builds with a
 * sanitizer; tests turn it on. */
extern bool passes_verified;

#endif
