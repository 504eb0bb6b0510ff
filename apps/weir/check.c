/* weir check: whether a plan is whole, and whether it is live. Loading checks the first, the token game the second. */
#include "apps/common/measure.h"
#include "apps/weir/command.h"
#include "graph/base/foreign.h"

static const char program[] = "weir check";

int command_check(int argc, char **argv)
{
    const char *path = NULL;
    options_list objects = {0};
    const options_entry table[] = {
        {"PLAN", OPTIONS_TEXT, &path, .file = OPTIONS_READS, .help = "a saved plan"},
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
    weir_plan_free(plan);
    return status < 0 ? 0 : status;
}
