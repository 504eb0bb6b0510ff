/* weir show: a plan, for people, for programs, or for graphviz. */
#include "apps/common/options.h"
#include "apps/weir/command.h"

#include <errno.h>
#include <string.h>

static const char program[] = "weir show";

static int write_dot(const weir_plan *plan, const char *path)
{
    FILE *file = fopen(path, "w");
    if (!file)
        return options_wrong(program, "--dot: cannot write %s: %s", path, strerror(errno));
    weir_status status = weir_plan_dot(plan, file);
    if (fclose(file))
        return options_wrong(program, "--dot: cannot write %s: %s", path, strerror(errno));
    return status ? options_failed(program) : 0;
}

/* A name that nothing has is the command line's. */
static int list_plan(const weir_plan *plan, weir_list_opts *opts, bool json)
{
    opts->json = json;
    weir_status status = weir_plan_list_at(plan, stdout, *opts);
    return status == WEIR_E_ARGUMENT ? options_wrong(program, "%s", weir_error()) : status ? options_failed(program) : 0;
}

int command_show(int argc, char **argv)
{
    const char *path = NULL, *dot = NULL;
    bool json = false;
    weir_list_opts list = {.tensors = false};
    options_list objects = {0};
    const options_entry table[] = {
        {"PLAN", OPTIONS_TEXT, &path, .help = "a saved plan"},
        {"--json", OPTIONS_FLAG, &json, .help = "one JSON object"},
        {"--dot", OPTIONS_TEXT, &dot, .value = "FILE", .help = "write a graph for graphviz instead"},
        {"--tensors", OPTIONS_FLAG, &list.tensors, .help = "list logical tensors: type, devices, layout, line"},
        {"--filter", OPTIONS_TEXT, &list.filter, .value = "GLOB", .help = "list those of this name: actors, or tensors"},
        {"--device", OPTIONS_TEXT, &list.device, .value = "GLOB", .help = "list what is on these: \"cpu:[0-3]\""},
        {"--stage", OPTIONS_INT, &list.stage, .min = 1, .max = 65536, .help = "list what is of this stage of a pipeline"},
        COMMAND_OPS_OPTION(objects),
        {.name = NULL},
    };
    int status = options_parse(&(options_spec){program, "Prints a plan.", table}, argc, argv);
    if (status < 0)
        status = command_load_ops(program, &objects);
    if (status >= 0)
        return status;
    weir_plan *plan = command_load(program, path, &status);
    if (!plan)
        return status;
    if (dot)
        status = write_dot(plan, dot);
    else if (list.tensors || list.filter || list.device || list.stage)
        status = list_plan(plan, &list, json);
    else
        status = (json ? weir_plan_json : weir_plan_show)(plan, stdout) ? options_failed(program) : 0;
    weir_plan_free(plan);
    return status;
}
