/* weir check: whether a plan is whole, and whether it is live. Loading checks the first, the token game the second. With --graph
 * also whether it computes the graph that it keeps, and with --same-as whether it computes the same as another plan.
 */
#include "apps/common/measure.h"
#include "apps/weir/command.h"
#include "graph/base/foreign.h"

#include <unistd.h>

static const char program[] = "weir check";

static void show_proven(void *ctx, double part)
{
    (void)ctx;
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r%s: proving, %.0f %%\r", program, 100 * part);
}

/* Proves the plan against the graph that it keeps. -1, or the exit status after reporting. */
static int check_graph(const weir_plan *plan, const char *path, bool local)
{
    const double start = measure_seconds();
    weir_graph *graph = NULL;
    weir_status status = weir_plan_graph(plan, &graph);
    if (!status)
        status = weir_plan_verify(graph, plan, .local = local, .progress = show_proven);
    weir_graph_free(graph);
    if (status == WEIR_E_WRONG || status == WEIR_E_UNSUPPORTED)
        return options_wrong(program, "%s", weir_error()), 1; /* with the line of the plan's program */
    if (status)
        return options_failed(program);
    foreign_put(stdout, path);
    printf(": computes the graph that it keeps, %s; proven in %.1f s\n",
           local ? "each kernel judged alone" : "whatever order its actors fire in", measure_seconds() - start);
    return -1;
}

/* ---- two plans ---- */

/* -1: they compute the same; else the exit status, after reporting. */
static int check_same(const weir_plan *plan, const char *other_path, const char *only)
{
    const weir_verify_opts opts = {.size = sizeof opts, .progress = show_proven, .program = only};
    int status;
    weir_plan *other = command_load(program, other_path, &status);
    if (other && weir_plan_same_at(plan, other, &opts)) {
        options_wrong(program, "%s", weir_error()); /* with the line of the plan's program */
        status = 1;
    }
    weir_plan_free(other);
    return status;
}

/* ---- the command ---- */

int command_check(int argc, char **argv)
{
    const char *path = NULL, *same_as = NULL, *only = NULL;
    options_list objects = {0};
    bool graph = false, local = false;
    const options_entry table[] = {
        {"PLAN", OPTIONS_TEXT, &path, .file = OPTIONS_READS, .help = "a saved plan"},
        {"--graph", OPTIONS_FLAG, &graph,
         .help = "prove that the plan computes the graph that it keeps (.keep_graph, --with-graph); for small models"},
        {"--local", OPTIONS_FLAG, &local, .help = "with --graph: judge each kernel alone; for plans of many devices"},
        {"--same-as", OPTIONS_TEXT, &same_as, .value = "PLAN", .file = OPTIONS_READS,
         .help = "prove that it computes the same as this plan of the same model"},
        {"--program", OPTIONS_TEXT, &only, .value = "NAME", .help = "with --same-as: compare this program alone"},
        COMMAND_OPS_OPTION(objects),
        {.name = NULL},
    };
    int status = options_parse(&(options_spec){program, "Prove that a plan cannot deadlock.", table}, argc, argv);
    if (status < 0 && only && !same_as)
        status = options_wrong(program, "--program %s: give it with --same-as PLAN", only);
    if (status < 0 && local && !graph)
        status = options_wrong(program, "--local: give it with --graph");
    if (status < 0)
        status = command_load_ops(program, &objects);
    if (status >= 0)
        return status;
    weir_plan *plan = command_load(program, path, &status);
    if (!plan)
        return status;
    char bytes[32];
    if (weir_plan_check(plan))
        status = options_failed(program);
    if (status < 0 && same_as)
        status = check_same(plan, same_as, only);
    if (status < 0)
        foreign_put(stdout, path), printf(": live and bounded under every order of firings; %s\n",
                                          measure_bytes_text(weir_plan_bytes(plan, -1), bytes));
    if (status < 0 && graph)
        status = check_graph(plan, path, local);
    if (status < 0 && same_as)
        foreign_put(stdout, path), fputs(": computes the same as ", stdout), foreign_put(stdout, same_as), puts("");
    weir_plan_free(plan);
    return status < 0 ? 0 : status;
}
