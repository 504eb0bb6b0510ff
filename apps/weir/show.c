/* weir show: a plan, for people, for programs, or for graphviz. */
#include "apps/common/options.h"
#include "apps/weir/command.h"
#include "apps/weir/show_picture.h"
#include "apps/weir/show_ranks.h"

#include <stdio.h>

static const char program[] = "weir show";

/* A failure of standard output is reported at the program's end. */
static int printed(weir_status status)
{
    return !status ? 0 : ferror(stdout) ? 1 : options_failed(program);
}

/* A name that nothing has is the command line's. */
static int list_plan(const weir_plan *plan, weir_list_opts *opts, bool json)
{
    opts->json = json;
    weir_status status = weir_plan_list_at(plan, stdout, opts);
    return status == WEIR_E_ARGUMENT ? options_wrong(program, "%s", options_error(program)) : printed(status);
}

int command_show(int argc, char **argv)
{
    const char *path = NULL;
    struct picture picture = {.dot = NULL};
    bool json = false;
    int ranks = 0, devices = 0;
    weir_list_opts list = {.size = sizeof list};
    options_list objects = {0};
    const options_entry table[] = {
        {"PLAN", OPTIONS_TEXT, &path, .file = OPTIONS_READS, .help = "a saved plan"},
        {"--json", OPTIONS_FLAG, &json, .help = "print one JSON object"},
        {"--svg", OPTIONS_TEXT, &picture.svg, .value = "FILE", .file = OPTIONS_WRITES,
         .help = "draw the stages and their phases (needs dot)"},
        {"--dot", OPTIONS_TEXT, &picture.dot, .value = "FILE", .file = OPTIONS_WRITES,
         .help = "write the picture for graphviz"},
        {"--every", OPTIONS_FLAG, &picture.every, .help = "draw every actor"},
        {"--tensors", OPTIONS_FLAG, &list.tensors, .help = "list logical tensors: dtype, devices, layout, source line"},
        {"--filter", OPTIONS_TEXT, &list.filter, .value = "GLOB", .help = "list only the actors, or tensors, with this name"},
        {"--device", OPTIONS_TEXT, &list.device, .value = "GLOB", .help = "list only these devices, as \"cpu:[0-3]\""},
        {"--stage", OPTIONS_INT, &list.stage, .min = 1, .max = 65536, .help = "list only this pipeline stage"},
        {"--ranks", OPTIONS_INT, &ranks, .min = 1, .max = 4096,
         .help = "show the traffic and memory of N ranks, each on a host of its own"},
        {"--devices", OPTIONS_INT, &devices, .min = 1, .max = 4096,
         .help = "devices per rank, for --ranks; default: shared out evenly"},
        COMMAND_OPS_OPTION(objects),
        {.name = NULL},
    };
    int status = options_parse(&(options_spec){program, "Print a plan.", table}, argc, argv);
    if (status < 0)
        status = command_load_ops(program, &objects);
    if (status >= 0)
        return status;
    weir_plan *plan = command_load(program, path, &status);
    if (!plan)
        return status;
    if (picture.svg || picture.dot)
        status = show_picture(plan, &picture);
    else if (ranks)
        status = printed(show_ranks(plan, ranks, devices, json, stdout));
    else if (list.tensors || list.filter || list.device || list.stage)
        status = list_plan(plan, &list, json);
    else
        status = printed((json ? weir_plan_json : weir_plan_show)(plan, stdout));
    weir_plan_free(plan);
    return status;
}
