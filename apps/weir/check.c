/* weir check: whether a plan is whole, and whether it is live. Loading checks the first, the token game the second. And whether it
 * computes the same as another plan, by weir_plan_same(). */
#include "apps/common/measure.h"
#include "apps/weir/command.h"
#include "graph/base/foreign.h"

#include <unistd.h>

static const char program[] = "weir check";

/* ---- two plans ---- */

static void show_part(void *ctx, double part)
{
    (void)ctx;
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r%s: comparing the plans, %.0f %%\r", program, 100 * part);
}

/* -1: they compute the same; else the exit status, after reporting. */
static int check_same(const weir_plan *plan, const char *other_path, const char *only)
{
    const weir_verify_opts opts = {.size = sizeof opts, .progress = show_part, .program = only};
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
    const options_entry table[] = {
        {"PLAN", OPTIONS_TEXT, &path, .file = OPTIONS_READS, .help = "a saved plan"},
        {"--same-as", OPTIONS_TEXT, &same_as, .value = "PLAN", .file = OPTIONS_READS,
         .help = "prove that it computes the same as this plan of the same model"},
        {"--program", OPTIONS_TEXT, &only, .value = "NAME", .help = "with --same-as: compare this program alone"},
        COMMAND_OPS_OPTION(objects),
        {.name = NULL},
    };
    int status = options_parse(&(options_spec){program, "Prove that a plan cannot deadlock.", table}, argc, argv);
    if (status < 0 && only && !same_as)
        status = options_wrong(program, "--program %s: give it with --same-as PLAN", only);
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
    if (status < 0 && same_as)
        foreign_put(stdout, path), fputs(": computes the same as ", stdout), foreign_put(stdout, same_as), puts("");
    weir_plan_free(plan);
    return status < 0 ? 0 : status;
}
