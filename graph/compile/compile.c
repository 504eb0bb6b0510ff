/* graph/compile/compile.c: weir_compile(): options (options.h), then the passes that decide what is computed where, then a plan of that: by
 * backend/ alone, or with a limit by budget/, which asks backend/ for several.
 */
#include "graph/base/base.h"
#include "graph/base/error.h"
#include "graph/base/opts.h"
#include "graph/compile/backend/backend.h"
#include "graph/compile/budget/limit.h"
#include "graph/compile/logical/passes.h"
#include "graph/compile/options.h"
#include "graph/compile/sbp/passes.h"
#include "graph/verify/verify.h"

static weir_plan *run_passes(compile *c)
{
    if (!passes_run(c, logical_passes) || !passes_run(c, layout_passes) || !passes_run(c, cast_passes) ||
        !passes_run(c, conversion_passes))
        return NULL;
    if (c->memory_max < UINT64_MAX)
        return limit_plan(c);
    backend_outcome o;
    return backend_plan(c, &o);
}

/* WEIR_VERIFY: the graph is still there, so what is compiled is proven to compute it, and its gradients to be gradients. */
static weir_plan *verified(const weir_graph *graph, weir_plan *plan, weir_src src)
{
    char why[1024];
    bool wanted;
    weir_status status = verify_wanted(&wanted);
    if (!status && wanted)
        status = weir_plan_verify(graph, plan);
    if (!status && wanted && graph->loss)
        status = weir_gradients_verify(graph);
    if (!status)
        return plan;
    snprintf(why, sizeof why, "%s", weir_error());
    weir_plan_free(plan);
    error_set(status, "%s:%d: compile: %s", src.file, src.line, why);
    return NULL;
}

weir_plan *weir_compile_at(const weir_graph *graph, const weir_compile_opts *given)
{
    weir_compile_opts opts;
    const bool stray = graph_stray_report(), memory = graph && graph->pool.failed; /* then NULL is what came of that */
    if ((stray && !memory) || opts_read(&opts, sizeof opts, given, "compile"))
        return NULL;
    if (!graph) {
        error_set(WEIR_E_ARGUMENT, "%s:%d: compile: the graph is NULL", opts.src.file, opts.src.line);
        return NULL;
    }
    compile c = {.graph = graph, .opts = opts};
    weir_plan *plan = options_take(&c) ? run_passes(&c) : NULL;
    if (!plan && c.pool.failed)
        backend_blame_call(&c, WEIR_E_MEMORY);
    pool_free(&c.pool);
    return plan ? verified(graph, plan, opts.src) : NULL;
}
