/* graph/compile/ir/passes.c: see the header. */
#include "graph/compile/ir/passes.h"
#include "graph/base/error.h"

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
bool passes_verified = true;
#else
bool passes_verified = false;
#endif

bool passes_run(compile *c, const compile_pass *passes)
{
    for (; passes->name; passes++) {
        if (!passes->run(c))
            return false;
        int at = 0;
        const char *broken = passes_verified && passes->verifies ? passes->verifies(c, &at) : NULL;
        if (broken)
            return error_set(WEIR_E_GRAPH, "%s:%d: compile: a mistake of weir's: behind the pass %s %s (number %d); please report "
                             "it with the graph", c->opts.src.file, c->opts.src.line, passes->name, broken, at) == WEIR_OK;
    }
    return true;
}
