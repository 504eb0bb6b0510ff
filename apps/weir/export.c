/* weir export: makes an ONNX model from a plan that keeps its graph, and from the parameters of a checkpoint. */
#include "apps/weir/command.h"
#include "graph/base/foreign.h"

static const char program[] = "weir export";

static int export(const weir_plan *plan, const char *path, const weir_to_onnx_opts *opts)
{
    weir_graph *graph = NULL;
    const bool made = !weir_plan_graph(plan, &graph) && !weir_graph_to_onnx_at(graph, path, opts);
    weir_graph_free(graph);
    if (!made)
        return options_wrong(program, "%s", weir_error()), 1;
    foreign_put(stdout, path);
    printf(": the model\n");
    return 0;
}

int command_export(int argc, char **argv)
{
    const char *path = NULL, *model = NULL;
    options_list fetches = {0}, objects = {0};
    weir_to_onnx_opts opts = {.size = sizeof opts, .src = WEIR_HERE};
    const options_entry table[] = {
        {"PLAN", OPTIONS_TEXT, &path, .file = OPTIONS_READS, .help = "a plan that was saved with its graph (--with-graph)"},
        {"-o", OPTIONS_TEXT, &model, .value = "FILE", .file = OPTIONS_WRITES, .help = "write the model here"},
        {"--params", OPTIONS_TEXT, &opts.params, .value = "PATH", .file = OPTIONS_READS,
         .help = "a checkpoint, or a .safetensors or .gguf file, with the values of the parameters"},
        {"--program", OPTIONS_TEXT, &opts.program, .value = "NAME", .help = "export this program of the plan; default: main"},
        {"--fetch", OPTIONS_LIST, &fetches, .value = "NAME", .help = "an output; default: all fetches that the forward pass makes"},
        COMMAND_OPS_OPTION(objects),
        {.name = NULL},
    };
    int status = options_parse(&(options_spec){program, "Make an ONNX model from a plan that keeps its graph.", table}, argc, argv);
    if (status < 0 && !model)
        status = options_wrong(program, "needs -o FILE, for the model");
    if (status < 0 && fetches.count >= WEIR_ONNX_NAMES_MAX)
        status = options_wrong(program, "--fetch: at most %d can be given", WEIR_ONNX_NAMES_MAX - 1);
    if (status < 0)
        status = command_load_ops(program, &objects);
    if (status >= 0)
        return status;
    for (int i = 0; i < fetches.count; i++)
        opts.fetch[i] = fetches.value[i];
    weir_plan *plan = command_load(program, path, &status);
    if (plan && model)
        status = export(plan, model, &opts);
    weir_plan_free(plan);
    return status;
}
