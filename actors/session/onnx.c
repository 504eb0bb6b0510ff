/* actors/session/onnx.c: parameters of a session and values of ONNX files, both ways (include/weir/onnx.h). */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "actors/cluster/cluster.h"
#include "actors/session/session.h"
#include "graph/base/base.h"
#include "graph/base/error.h"
#include "graph/base/opts.h"
#include "graph/onnx/export.h"
#include "graph/onnx/model.h"

#include <weir/checkpoint.h>
#include <weir/onnx.h>

enum { LOADS_ONNX = 8 }; /* what ranks agree on, beside the options of other loads */

/* ---- from a file that a graph was read from ---- */

static weir_status list_values(const weir_graph *graph, const char *call, weir_graph_value **list, int *count)
{
    *count = weir_graph_values(graph, NULL, 0);
    *list = calloc((size_t)*count + 1, sizeof **list);
    if (!*list)
        return error_set(WEIR_E_MEMORY, "%s: no memory for a list of %d values", call, *count);
    weir_graph_values(graph, *list, *count);
    return WEIR_OK;
}

static const plan_param *find_param(const struct weir_session *s, const char *name)
{
    for (uint32_t i = 0; i < s->plan->params_count; i++)
        if (!strcmp(plan_text(s->plan, s->plan->params[i].name), name))
            return &s->plan->params[i];
    return NULL;
}

weir_status weir_session_write_values(weir_session *s, const weir_graph *graph)
{
    weir_graph_value *list = NULL;
    int count = 0;
    weir_status status = caller_check_outside(s, "write_values");
    if (!status)
        status = list_values(graph, "weir_session_write_values", &list, &count);
    for (int i = 0; !status && i < count; i++)
        if (find_param(s, list[i].name))
            status = weir_session_write(s, list[i].name, &list[i].value);
    free(list);
    return status;
}

/* ---- from a file alone: it is imported again, with the sizes of the session's inputs ---- */

bool session_is_onnx(const char *path)
{
    const size_t length = path ? strlen(path) : 0;
    struct stat found;
    return length > 5 && !strcmp(path + length - 5, ".onnx") && (stat(path, &found) || !S_ISDIR(found.st_mode));
}

/* The shape that the session has for this name, of an input of main or of a state that was one in the file. False: none. */
static bool size_of(const struct weir_session *s, const char *name, weir_shape *shape)
{
    const plan_param *state = find_param(s, name);
    weir_host_info info;
    for (int h = 0; h < weir_plan_host_count(s->plan); h++)
        if (!weir_plan_host(s->plan, h, &info) && !strcmp(info.name, name) && (info.kind == WEIR_HOST_PUSH || info.kind == WEIR_HOST_SOURCE))
            return *shape = info.type.shape, true;
    if (!state || state->kind != PLAN_KEEP_STATE)
        return false;
    const plan_tensor *tensor = built_shard(&s->built, state, 0);
    *shape = (weir_shape){.rank = (int)tensor->rank};
    memcpy(shape->dim, tensor->global, sizeof shape->dim);
    return true;
}

static weir_status import(const struct weir_session *s, const char *path, weir_src src, weir_graph **graph)
{
    weir_onnx_opts opts = {.size = sizeof opts, .src = src};
    pool p = {0};
    onnx_model model;
    int count = 0;
    weir_status status = onnx_model_read(&p, path, &model);
    for (int i = 0; !status && i < model.graph.inputs.count && count < WEIR_ONNX_NAMES_MAX - 1; i++) {
        weir_shape shape;
        if (!size_of(s, model.graph.inputs.item[i].name, &shape))
            continue;
        opts.shape[count].name = model.graph.inputs.item[i].name;
        memcpy(opts.shape[count++].shape, shape.dim, sizeof shape.dim);
    }
    *graph = status ? NULL : weir_graph_from_onnx_at(path, &opts);
    pool_free(&p);
    return *graph ? WEIR_OK : status ? status : WEIR_E_ARGUMENT;
}

/* Each parameter of either has to be one of the other, but with .partial; those of both have to be alike. */
static weir_status check_values(const struct weir_session *s, const char *path, const weir_load_opts *opts, const weir_graph_value *list, int count)
{
    weir_status status = WEIR_OK;
    for (int i = 0; !status && i < count; i++) {
        const plan_param *param = find_param(s, list[i].name);
        char what[256];
        snprintf(what, sizeof what, "weir_session_load: '%.200s'", list[i].name);
        if (param)
            status = session_check_array(what, built_shard(&s->built, param, 0), &list[i].value);
        else if (!opts->partial)
            status = error_set(WEIR_E_ARGUMENT, "weir_session_load: the session has no '%s', which is in %s", list[i].name, path);
    }
    for (uint32_t p = 0; !status && !opts->partial && p < s->plan->params_count; p++) {
        const char *name = plan_text(s->plan, s->plan->params[p].name);
        int i = 0;
        while (i < count && strcmp(list[i].name, name) != 0)
            i++;
        if (i == count && s->plan->params[p].kind == PLAN_KEEP_PARAMETER)
            status = error_set(WEIR_E_ARGUMENT, "weir_session_load: %s has no '%s', which is a parameter here", path, name);
    }
    return status;
}

weir_status session_load_onnx(struct weir_session *s, const char *path, const weir_load_opts *opts)
{
    struct cluster *cluster = s->built.cluster;
    weir_graph *graph = NULL;
    weir_graph_value *list = NULL;
    int count = 0;
    weir_status status = import(s, path, opts->src, &graph);
    if (!status)
        status = list_values(graph, "weir_session_load", &list, &count);
    if (!status)
        status = check_values(s, path, opts, list, count);
    if (cluster)
        status = cluster_agree(cluster, ROUND_LOAD, LOADS_ONNX, status, NULL);
    for (int i = 0; !status && i < count; i++)
        if (find_param(s, list[i].name))
            status = weir_session_write(s, list[i].name, &list[i].value);
    free(list);
    weir_graph_free(graph);
    return status;
}

/* ---- to a file ---- */

/* Where the values of parameters come from: the first of these that is there. */
typedef struct origin {
    const char *path;            /* of the ONNX file, for errors */
    weir_session *session;
    weir_checkpoint *checkpoint; /* owned */
    const char *params;          /* its path */
    weir_graph_value *list;      /* owned: of the graph's own file */
    int count, next;             /* values are asked for in the list's order, mostly */
} origin;

static weir_status from_checkpoint(const origin *from, const char *name, weir_array *value)
{
    const weir_checkpoint_tensor *tensor = weir_checkpoint_find(from->checkpoint, name);
    if (!tensor)
        return error_set(WEIR_E_ARGUMENT, "%s: the checkpoint %s has no \"%s\"", from->path, from->params, name);
    return weir_checkpoint_read(from->checkpoint, tensor, tensor->slots - 1, NULL, value);
}

static weir_status from_list(origin *from, const char *name, weir_array *value)
{
    for (int i = 0; i < from->count; i++) {
        const weir_graph_value *own = &from->list[(from->next + i) % from->count];
        if (strcmp(own->name, name) != 0)
            continue;
        memcpy(value->data, own->value.data, (size_t)weir_shape_count(&value->shape) * weir_dtype_bytes(value->dtype));
        from->next = (from->next + i + 1) % from->count;
        return WEIR_OK;
    }
    return error_set(WEIR_E_ARGUMENT, "%s: the parameter \"%s\" has no value: give a .session or .params (weir export: --params)", from->path, name);
}

static weir_status read_value(void *ctx, const char *name, weir_array *value)
{
    origin *from = ctx;
    if (!value->data && !from->session)
        return error_set(WEIR_E_MEMORY, "%s: no memory for the value of \"%s\"", from->path, name);
    return from->session ? weir_session_read(from->session, name, value)
           : from->checkpoint ? from_checkpoint(from, name, value) : from_list(from, name, value);
}

static weir_status open_origin(origin *from, const weir_graph *graph)
{
    if (from->session)
        return session_check_still(from->session, "read");
    if (!from->params)
        return list_values(graph, "weir_graph_to_onnx", &from->list, &from->count);
    from->checkpoint = weir_checkpoint_open(from->params);
    return from->checkpoint ? WEIR_OK : WEIR_E_IO;
}

weir_status weir_graph_to_onnx_at(const weir_graph *graph, const char *path, const weir_to_onnx_opts *given)
{
    weir_to_onnx_opts opts;
    if (error_null(graph, "weir_graph_to_onnx", "graph") || error_null(path, "weir_graph_to_onnx", "path"))
        return WEIR_E_ARGUMENT;
    weir_status status = opts_read(&opts, sizeof opts, given, "weir_graph_to_onnx");
    if (status)
        return status;
    if (opts.session && opts.params)
        return error_set(WEIR_E_ARGUMENT, "weir_graph_to_onnx: give .session or .params, not both");
    origin from = {.path = path, .session = opts.session, .params = opts.params};
    const bool writes = !opts.session || !built_rank(&opts.session->built);
    status = open_origin(&from, graph);
    if (!status)
        status = onnx_export(graph, path, &(onnx_export_opts){.program = opts.program, .fetch = opts.fetch, .read = read_value, .ctx = &from,
                                                              .writes = writes});
    weir_checkpoint_close(from.checkpoint);
    free(from.list);
    return status;
}
