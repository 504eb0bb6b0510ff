/* graph/model/find.c: tensors by their names, and the values that a graph brings along from a file (include/weir/onnx.h). */
#include "graph/base/error.h"
#include "graph/base/names.h"
#include "graph/model/build.h"

#include <weir/onnx.h>

static weir_tensor *find(const weir_graph *g, const char *name)
{
    for (int i = 0; i < g->aliases.count; i++)
        if (!strcmp(g->aliases.item[i].name, name))
            return g->aliases.item[i].tensor;
    for (int i = 0; i < g->tensors.count; i++)
        if (g->tensors.item[i]->name && !strcmp(g->tensors.item[i]->name, name))
            return g->tensors.item[i];
    return NULL;
}

weir_tensor *weir_graph_tensor(weir_graph *graph, const char *name)
{
    char text[NAMES_TEXT_BYTES];
    struct names names = {.wanted = name};
    if (error_null(graph, "weir_graph_tensor", "graph") || error_null(name, "weir_graph_tensor", "name"))
        return NULL;
    weir_tensor *found = find(graph, name);
    for (int i = 0; !found && i < graph->tensors.count; i++)
        if (graph->tensors.item[i]->name)
            names_add(&names, graph->tensors.item[i]->name);
    if (!found)
        error_set(WEIR_E_ARGUMENT, "weir_graph_tensor: the graph has no tensor '%s'%s", name, names_text(&names, text, sizeof text));
    return found;
}

int weir_graph_values(const weir_graph *graph, weir_graph_value *list, int room)
{
    for (int i = 0; graph && list && i < graph->values.count && i < room; i++) {
        const graph_value *value = &graph->values.item[i];
        weir_array array = {.dtype = value->tensor->type.dtype, .shape = value->tensor->type.shape};
        array.data = (void *)(uintptr_t)value->data; /* read only, as the header says */
        list[i] = (weir_graph_value){value->tensor->name, value->tensor->frozen, array};
    }
    return graph ? graph->values.count : 0;
}
