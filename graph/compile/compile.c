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
#include "graph/time/rates.h"
#include "graph/verify/table.h"
#include "graph/verify/verify.h"

#include <stdlib.h>

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

/* The graph is still there, so what is compiled can keep it, and is proven to compute it if WEIR_VERIFY says so. */
static weir_plan *finished(const weir_graph *graph, weir_plan *plan, bool keep_graph, weir_src src)
{
    char why[1024];
    weir_status status = keep_graph ? table_keep(plan, graph) : WEIR_OK;
    if (!status)
        status = verify_if_wanted(graph, plan);
    if (!status)
        return plan;
    snprintf(why, sizeof why, "%s", weir_error());
    weir_plan_free(plan);
    error_set(status, "%s:%d: compile: %s", src.file, src.line, why);
    return NULL;
}

/* The caller's rates, or those of the file that WEIR_RATES names: *loaded, which the caller frees. False: an error. */
static bool rates_take(compile *c, weir_rates **loaded)
{
    const char *path = getenv("WEIR_RATES");
    *loaded = !c->opts.rates && path && *path ? weir_rates_load(path) : NULL;
    if (!c->opts.rates && path && *path && !*loaded)
        return error_set(WEIR_E_ARGUMENT, "%s:%d: compile: WEIR_RATES: %s", c->opts.src.file, c->opts.src.line, weir_error()), false;
    c->rates = c->opts.rates ? c->opts.rates : *loaded;
    if (c->rates && !rates_hash(c->rates, &c->rates_hash))
        c->pool.failed = true;
    return !c->pool.failed;
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
    weir_rates *loaded = NULL;
    weir_plan *plan = options_take(&c) && rates_take(&c, &loaded) ? run_passes(&c) : NULL;
    if (!plan && c.pool.failed)
        backend_blame_call(&c, WEIR_E_MEMORY);
    pool_free(&c.pool);
    weir_rates_free(loaded);
    return plan ? finished(graph, plan, opts.keep_graph, opts.src) : NULL;
}
