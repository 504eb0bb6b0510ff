/* weir check: whether a plan is whole, and whether it is live. Loading checks the first, the token game the second. With --graph
 * also whether it computes the graph that it keeps.
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
static int check_graph(const weir_plan *plan, const char *path)
{
    const double start = measure_seconds();
    weir_graph *graph = NULL;
    weir_status status = weir_plan_graph(plan, &graph);
    if (!status)
        status = weir_plan_verify(graph, plan, .progress = show_proven);
    weir_graph_free(graph);
    if (status == WEIR_E_WRONG || status == WEIR_E_UNSUPPORTED)
        return options_wrong(program, "%s", weir_error()), 1; /* with the line of the plan's program */
    if (status)
        return options_failed(program);
    foreign_put(stdout, path);
    printf(": computes the graph that it keeps, whatever order its actors fire in; proven in %.1f s\n",
           measure_seconds() - start);
    return -1;
}

int command_check(int argc, char **argv)
{
    const char *path = NULL;
    options_list objects = {0};
    bool graph = false;
    const options_entry table[] = {
        {"PLAN", OPTIONS_TEXT, &path, .file = OPTIONS_READS, .help = "a saved plan"},
        {"--graph", OPTIONS_FLAG, &graph,
         .help = "prove that the plan computes the graph that it keeps (.keep_graph, --with-graph); for small models"},
        COMMAND_OPS_OPTION(objects),
        {.name = NULL},
    };
    int status = options_parse(&(options_spec){program, "Prove that a plan cannot deadlock.", table}, argc, argv);
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
    else
        foreign_put(stdout, path), printf(": live and bounded under every order of firings; %s\n",
                                          measure_bytes_text(weir_plan_bytes(plan, -1), bytes));
    if (status < 0 && graph)
        status = check_graph(plan, path);
    weir_plan_free(plan);
    return status < 0 ? 0 : status;
}
