/* actors/session/onnx.c: parameters of a session and values of ONNX files, both ways (include/weir/onnx.h). */
#include <stdlib.h>
#include <string.h>

#include "actors/session/session.h"
#include "graph/base/base.h"
#include "graph/base/error.h"
#include "graph/base/opts.h"
#include "graph/onnx/export.h"

#include <weir/checkpoint.h>
#include <weir/onnx.h>

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

static bool has_param(const struct weir_session *s, const char *name)
{
    for (uint32_t i = 0; i < s->plan->params_count; i++)
        if (!strcmp(plan_text(s->plan, s->plan->params[i].name), name))
            return true;
    return false;
}

weir_status weir_session_write_values(weir_session *s, const weir_graph *graph)
{
    weir_graph_value *list = NULL;
    int count = 0;
    weir_status status = caller_check_outside(s, "write_values");
    if (!status)
        status = list_values(graph, "weir_session_write_values", &list, &count);
    for (int i = 0; !status && i < count; i++)
        if (has_param(s, list[i].name))
            status = weir_session_write(s, list[i].name, &list[i].value);
    free(list);
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
