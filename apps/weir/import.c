/* weir import: makes a plan and a file of parameters from an ONNX model. `weir run` runs the two.
 *
 * The file of parameters has the name of the plan with .params.safetensors in the place of .plan.
 */
#include "apps/common/npy.h"
#include "apps/common/paths.h"
#include "apps/common/tensors.h"
#include "apps/weir/command.h"
#include "graph/base/foreign.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char program[] = "weir import";

enum { NAME_BYTES = 256 }; /* of an input or output */

/* Options as they are on the command line, and as the library takes them. */
struct import {
    const char *model, *plan, *params;
    options_list shapes, values, states;
    weir_onnx_opts opts;
    weir_compile_opts compile;
    char params_path[PATHS_BYTES];
    char names[3 * WEIR_ONNX_NAMES_MAX][NAME_BYTES];
    int name_count;
    struct tensors given;                 /* owned: the values */
};

/* The part before the '=', and what is behind it. NULL after reporting. */
static const char *name_of(struct import *im, const char *option, const char *text, const char **behind)
{
    const char *equals = strchr(text, '=');
    if (!equals || equals == text || !equals[1])
        return options_wrong(program, "%s %s: give NAME=...", option, text), NULL;
    if (equals - text >= NAME_BYTES)
        return options_wrong(program, "%s: a name can have at most %d bytes", option, NAME_BYTES - 1), NULL;
    *behind = equals + 1;
    char *name = im->names[im->name_count++];
    memcpy(name, text, (size_t)(equals - text));
    return name;
}

static bool few_enough(const char *option, int count)
{
    if (count < WEIR_ONNX_NAMES_MAX)
        return true;
    options_wrong(program, "%s: at most %d can be given", option, WEIR_ONNX_NAMES_MAX - 1);
    return false;
}

/* "1x3x224x224"; "scalar" for no dimensions. */
static bool take_shape(struct import *im, const char *text, weir_onnx_shape *shape)
{
    const char *at = "";
    int rank = 0;
    shape->name = name_of(im, "--shape", text, &at);
    if (!shape->name || !strcmp(at, "scalar"))
        return shape->name;
    for (char *end;; at = end + 1) {
        const long long dim = strtoll(at, &end, 10);
        if (end == at || dim < 1 || (*end && *end != 'x') || rank == WEIR_DIMS_MAX) {
            options_wrong(program, "--shape %s: give sizes from 1 on with an x between them, at most %d: image=1x3x224x224", text,
                          WEIR_DIMS_MAX);
            return false;
        }
        shape->shape[rank++] = dim;
        if (!*end)
            return true;
    }
}

/* A number becomes a scalar; the library converts it to the input's type. */
static bool take_number(struct import *im, const char *name, double number, weir_onnx_value *value)
{
    const bool whole = number == (double)(int32_t)number;
    struct tensor *t = tensors_add(&im->given, name, whole ? WEIR_I32 : WEIR_F32, &(weir_shape){.rank = 0}, 1);
    if (!t)
        return options_wrong(program, "no memory"), false;
    if (whole)
        *(int32_t *)t->value.data = (int32_t)number;
    else
        *(float *)t->value.data = (float)number;
    value->name = name;
    return true;
}

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), tail = strlen(end);
    return length >= tail && !strcmp(text + length - tail, end);
}

static bool take_value(struct import *im, const char *text, weir_onnx_value *value)
{
    const char *at = "", *name = name_of(im, "--value", text, &at);
    char *end;
    if (!name)
        return false;
    const double number = strtod(at, &end);
    if (end != at && !*end)
        return take_number(im, name, number, value);
    value->name = name;
    if (ends_with(at, ".pb"))
        value->file = at;
    else if (!npy_read_file(&im->given, at, name))
        return options_wrong(program, "--value %s: %s", name, tensors_error()), false;
    return true;
}

/* Where tensors lie is known when all are there. */
static void point_at_values(struct import *im)
{
    for (int i = 0; i < im->values.count && im->opts.value[i].name; i++) {
        const struct tensor *t = im->opts.value[i].file ? NULL : tensors_find(&im->given, im->opts.value[i].name);
        im->opts.value[i].value = t ? &t->value : NULL;
    }
}

static bool take_options(struct import *im)
{
    bool ok = few_enough("--shape", im->shapes.count) && few_enough("--value", im->values.count) &&
              few_enough("--state", im->states.count);
    for (int i = 0; i < im->shapes.count && ok; i++)
        ok = take_shape(im, im->shapes.value[i], &im->opts.shape[i]);
    for (int i = 0; i < im->values.count && ok; i++)
        ok = take_value(im, im->values.value[i], &im->opts.value[i]);
    for (int i = 0; i < im->states.count && ok; i++)
        ok = (im->opts.state[i].in = name_of(im, "--state", im->states.value[i], &im->opts.state[i].out));
    point_at_values(im);
    return ok;
}

/* The plan's path, with another end. */
static void name_params(struct import *im)
{
    const int stem = (int)strlen(im->plan) - (ends_with(im->plan, ".plan") ? 5 : 0);
    snprintf(im->params_path, sizeof im->params_path, "%.*s.params.safetensors", stem, im->plan);
    im->params = im->params ? im->params : im->params_path;
}

static weir_status save_params(const struct import *im, const weir_graph *graph)
{
    const int count = weir_graph_values(graph, NULL, 0);
    weir_graph_value *list = calloc((size_t)count + 1, sizeof *list);
    weir_checkpoint_writer *writer = list && count ? weir_checkpoint_create(im->params, .program = "weir import") : NULL;
    weir_status status = !list ? WEIR_E_MEMORY : count && !writer ? WEIR_E_IO : WEIR_OK;
    weir_graph_values(graph, list, list ? count : 0);
    for (int i = 0; i < count && !status; i++)
        status = weir_checkpoint_add(writer, &(weir_checkpoint_value){.name = list[i].name, .frozen = list[i].frozen, .slots = 1,
                                                                      .value = list[i].value});
    if (status)
        weir_checkpoint_abandon(writer);
    else if (writer)
        status = weir_checkpoint_finish(writer);
    free(list);
    return status;
}

/* Names of models are a stranger's. */
static void tell_port(const weir_host_info *info)
{
    printf("  %s ", info->kind == WEIR_HOST_PUSH ? "input " : "output");
    foreign_put(stdout, info->name);
    printf(" %s [", weir_dtype_name(info->type.dtype));
    for (int d = 0; d < info->type.shape.rank; d++)
        printf("%s%lld", d ? ", " : "", (long long)info->type.shape.dim[d]);
    printf("]\n");
}

static void tell(const struct import *im, const weir_graph *graph, const weir_plan *plan)
{
    const int count = weir_graph_values(graph, NULL, 0);
    weir_host_info info;
    foreign_put(stdout, im->plan);
    printf(": the plan\n");
    if (count) {
        foreign_put(stdout, im->params);
        printf(": its %d parameters\n", count);
    }
    for (int i = 0; i < weir_plan_host_count(plan); i++)
        if (!weir_plan_host(plan, i, &info))
            tell_port(&info);
}

static int import(struct import *im)
{
    weir_graph *graph = weir_graph_from_onnx_at(im->model, &im->opts);
    weir_plan *plan = graph ? weir_compile_at(graph, &im->compile) : NULL;
    const bool made = plan && !save_params(im, graph) && !weir_plan_save(plan, im->plan);
    if (made)
        tell(im, graph, plan);
    weir_plan_free(plan);
    weir_graph_free(graph);
    return made ? 0 : (options_wrong(program, "%s", weir_error()), 1);
}

int command_import(int argc, char **argv)
{
    struct import im = {.opts = {.size = sizeof im.opts, .src = WEIR_HERE, .fetch = true}, .compile = {.size = sizeof im.compile, .src = WEIR_HERE}};
    const options_entry table[] = {
        {"MODEL", OPTIONS_TEXT, &im.model, .file = OPTIONS_READS, .help = "an ONNX file"},
        {"-o", OPTIONS_TEXT, &im.plan, .value = "FILE", .file = OPTIONS_WRITES, .help = "write the plan here"},
        {"--params", OPTIONS_TEXT, &im.params, .value = "FILE", .file = OPTIONS_WRITES,
         .help = "write the parameters here; default: the plan's path with .params.safetensors"},
        {"--shape", OPTIONS_LIST, &im.shapes, .value = "NAME=1x3x64x64",
         .help = "the sizes of an input; needed where the model leaves them open"},
        {"--value", OPTIONS_LIST, &im.values, .value = "NAME=VALUE",
         .help = "fix an input: a number, a .npy file or a .pb file; needed where sizes depend on it"},
        {"--state", OPTIONS_LIST, &im.states, .value = "IN=OUT", .help = "make an output the input of the next step"},
        {"--devices", OPTIONS_TEXT, &im.opts.devices, .value = "LIST", .help = "split the model over these devices, such as cpu:0-1"},
        {"--with-graph", OPTIONS_FLAG, &im.compile.keep_graph, .help = "keep the graph in the plan, for weir check --graph"},
        {.name = NULL},
    };
    int status = options_parse(&(options_spec){program, "Make a plan from an ONNX model.", table}, argc, argv);
    if (status < 0 && !im.plan)
        status = options_wrong(program, "needs -o FILE, for the plan");
    if (status < 0)
        status = command_check_readable(program, im.model);
    if (status < 0 && im.plan) {
        name_params(&im);
        status = take_options(&im) ? import(&im) : OPTIONS_WRONG;
    }
    tensors_free(&im.given);
    return status;
}
