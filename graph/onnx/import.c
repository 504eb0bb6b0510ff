/* graph/onnx/import.c: goes through the nodes of an ONNX file. values.c keeps the values of its names.
 *
 * It looks at all operators first, so that a user sees at once all that is missing, not one after the other. A graph inside of a
 * node (the branch of an If whose condition is known) is built in place: names of ONNX are unique over all graphs of a file.
 */
#include "graph/onnx/import.h"
#include "graph/onnx/fold.h"

#include "graph/base/base.h"
#include "graph/base/error.h"
#include "graph/base/names.h"
#include "graph/base/opts.h"
#include "graph/base/text.h"
#include "graph/model/build.h"

#include <string.h>

/* ---- faults ---- */

bool onnx_refuse(onnx_importer *im, weir_status status, const char *format, ...)
{
    char text[512];
    va_list list;
    if (im->status)
        return false;
    va_start(list, format);
    text_vprint(text, sizeof text, format, list);
    va_end(list);
    if (im->node)
        im->status = error_set(status, "%s:%d: %s%s%s: %s", im->path, im->node->number, im->node->op, *im->node->name ? " " : "",
                               im->node->name, text);
    else
        im->status = error_set(status, "%s: %s", im->path, text);
    return false;
}

bool onnx_no_memory(onnx_importer *im)
{
    return onnx_refuse(im, WEIR_E_MEMORY, "no memory to import it");
}

/* ---- nodes ---- */

static bool all_known(onnx_importer *im, const onnx_node *node)
{
    for (int i = 0; i < node->in.count; i++) {
        const onnx_value *value = *node->in.item[i] ? onnx_value_find(im, node->in.item[i]) : NULL;
        if (*node->in.item[i] && (!value || !value->known))
            return false;
    }
    return true;
}

static bool inputs_there(onnx_importer *im, const onnx_node *node)
{
    for (int i = 0; i < node->in.count; i++)
        if (*node->in.item[i] && !onnx_value_find(im, node->in.item[i]))
            return ONNX_WRONG(im, "its input %s is made by no node before it", node->in.item[i]);
    return true;
}

static bool convert_node(onnx_importer *im, const onnx_node *node)
{
    const onnx_operator *op = onnx_operator_find(node->op);
    im->node = node;
    im->src = (weir_src){im->path, node->number};
    im->made = 0;
    if (!inputs_there(im, node))
        return false;
    if (op->fold && (!op->convert || all_known(im, node)))
        return op->fold(im);
    return op->convert(im) && !im->status;
}

static bool take_initializers(onnx_importer *im, const onnx_graph *graph)
{
    for (int i = 0; i < graph->initializers.count; i++) {
        const onnx_initializer *from = &graph->initializers.item[i];
        if (onnx_value_find(im, from->name)) /* given by .value */
            continue;
        onnx_value *value = onnx_value_make(im, from->name);
        if (!value)
            return false;
        value->known = &from->array;
        value->type = from->array.type;
        value->weight = onnx_type_real(from->array.type);
    }
    return true;
}

static bool convert_nodes(onnx_importer *im, const onnx_graph *graph)
{
    for (int i = 0; i < graph->nodes.count; i++)
        if (!convert_node(im, &graph->nodes.item[i]))
            return false;
    return true;
}

bool onnx_inline(onnx_importer *im, const onnx_graph *graph)
{
    const onnx_node *outer = im->node;
    if (!take_initializers(im, graph) || !convert_nodes(im, graph))
        return false;
    im->node = outer;
    im->src.line = outer->number;
    for (int i = 0; i < outer->out.count && i < graph->outputs.count; i++) {
        const onnx_value *inner = onnx_value_find(im, graph->outputs.item[i].name);
        if (!inner)
            return ONNX_WRONG(im, "no node makes the output %s of its graph", graph->outputs.item[i].name);
        if (!onnx_set_value(im, i, inner))
            return false;
    }
    return true;
}

/* ---- operators that are not there ---- */

typedef struct missing {
    const char *op[32];
    int count[32], kinds;
    const onnx_node *first[32];
} missing;

static void look_for_missing(const onnx_graph *graph, missing *m)
{
    for (int i = 0; i < graph->nodes.count; i++) {
        const onnx_node *node = &graph->nodes.item[i];
        for (int k = 0; k < node->attributes.count; k++)
            if (node->attributes.item[k].g)
                look_for_missing(node->attributes.item[k].g, m);
        if (!*node->domain && onnx_operator_find(node->op))
            continue;
        int at = 0;
        while (at < m->kinds && strcmp(m->op[at], node->op) != 0)
            at++;
        if (at == (int)(sizeof m->op / sizeof *m->op))
            continue;
        if (at == m->kinds) {
            m->op[m->kinds++] = node->op;
            m->first[at] = node;
        }
        m->count[at]++;
    }
}

static bool none_missing(onnx_importer *im, const onnx_model *model)
{
    char bytes[700] = "";
    struct text text = {.bytes = bytes, .room = sizeof bytes};
    missing m = {0};
    look_for_missing(&model->graph, &m);
    for (int i = 0; i < m.kinds; i++)
        text_add(&text, "%s%s%s%s (%d: node %d %s)", i ? ", " : "", m.first[i]->domain, *m.first[i]->domain ? "." : "", m.op[i],
                 m.count[i], m.first[i]->number, m.first[i]->name);
    if (m.kinds)
        return ONNX_UNSUPPORTED(im, "these operators are not supported: %s", bytes);
    if (model->opset > ONNX_OPSET_MAX)
        return ONNX_UNSUPPORTED(im, "it uses version %lld of ONNX's operators; weir reads up to %d", (long long)model->opset,
                                ONNX_OPSET_MAX);
    return true;
}

/* ---- inputs and outputs ---- */

static int type_of(weir_dtype dtype)
{
    const int types[] = {ONNX_FLOAT, ONNX_FLOAT16, ONNX_BFLOAT16, ONNX_INT32, ONNX_INT64, ONNX_INT8, ONNX_UINT8};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (onnx_dtype(types[i]) == dtype)
            return types[i];
    return ONNX_NONE;
}

static const onnx_port *port_find(const onnx_graph *graph, const char *name)
{
    for (int i = 0; i < graph->inputs.count; i++)
        if (!strcmp(graph->inputs.item[i].name, name))
            return &graph->inputs.item[i];
    return NULL;
}

/* Refuses a name in the options that no input has. */
static bool input_there(onnx_importer *im, const onnx_graph *graph, const char *option, const char *name)
{
    char text[NAMES_TEXT_BYTES];
    struct names names = {.wanted = name};
    if (port_find(graph, name))
        return true;
    for (int i = 0; i < graph->inputs.count; i++)
        names_add(&names, graph->inputs.item[i].name);
    return ONNX_WRONG(im, "%s: the model has no input '%s'%s", option, name, names_text(&names, text, sizeof text));
}

/* Elements that a program gave. */
static bool given_elements(onnx_importer *im, const weir_onnx_value *given, onnx_array *from)
{
    onnx_initializer tensor;
    if (given->file) {
        im->status = onnx_tensor_read(im->pool, given->file, &tensor);
        *from = tensor.array;
        return !im->status;
    }
    if (!given->value || !given->value->data)
        return ONNX_WRONG(im, ".value of %s has no data", given->name);
    *from = (onnx_array){.type = type_of(given->value->dtype), .rank = given->value->shape.rank, .data = given->value->data};
    for (int d = 0; d < from->rank; d++)
        from->dim[d] = given->value->shape.dim[d];
    return true;
}

static bool take_value(onnx_importer *im, const onnx_graph *graph, const weir_onnx_value *given)
{
    const onnx_port *port = port_find(graph, given->name);
    onnx_array from = {0};
    if (!given_elements(im, given, &from))
        return false;
    onnx_array *array = onnx_array_new(im, port && onnx_type_bytes(port->type) ? port->type : from.type, from.rank, from.dim);
    onnx_value *value = array ? onnx_value_make(im, given->name) : NULL;
    if (!value)
        return false;
    array_convert(&from, array);
    value->known = array;
    value->type = array->type;
    return true;
}

/* The shape of an input: as the user gave it, else as the file has it. */
static bool input_shape(onnx_importer *im, const onnx_port *port, weir_shape *shape)
{
    for (int i = 0; i < WEIR_ONNX_NAMES_MAX && im->opts->shape[i].name; i++) {
        if (strcmp(im->opts->shape[i].name, port->name) != 0)
            continue;
        while (shape->rank < WEIR_DIMS_MAX && im->opts->shape[i].shape[shape->rank]) {
            shape->dim[shape->rank] = im->opts->shape[i].shape[shape->rank];
            shape->rank++;
        }
        return port->shaped && port->rank != shape->rank
                   ? ONNX_WRONG(im, "input %s has %d dimensions, and not the %d that are given for it", port->name, port->rank, shape->rank)
                   : true;
    }
    if (!port->shaped)
        return ONNX_WRONG(im, "the file gives input %s no shape: give it (--shape %s=1x3x224x224, .shape)", port->name, port->name);
    for (int d = 0; d < port->rank; d++)
        if (port->dim[d] <= 0)
            return ONNX_WRONG(im, "the file leaves dimension %d of input %s open%s%s: give its shape, which has %d dimensions "
                                  "(--shape %s=..., .shape)", d, port->name, port->symbol[d] ? ": " : "",
                              port->symbol[d] ? port->symbol[d] : "", port->rank, port->name);
    return onnx_shape_of(im, port->name, port->rank, port->dim, shape);
}

static const char *state_out(const onnx_importer *im, const char *in)
{
    for (int i = 0; i < WEIR_ONNX_NAMES_MAX && im->opts->state[i].in; i++)
        if (!strcmp(im->opts->state[i].in, in))
            return im->opts->state[i].out;
    return NULL;
}

static bool take_input(onnx_importer *im, const onnx_port *port)
{
    weir_shape shape = {0};
    const weir_dtype dtype = onnx_dtype(port->type);
    if (onnx_value_find(im, port->name))
        return true; /* known: an initializer, or given */
    if (!dtype)
        return ONNX_UNSUPPORTED(im, "input %s is of %s, which no tensor of weir has", port->name, onnx_type_name(port->type));
    if (!input_shape(im, port, &shape))
        return false;
    onnx_value *value = onnx_value_make(im, port->name);
    if (!value)
        return false;
    value->type = port->type;
    if (state_out(im, port->name)) {
        weir_state_opts opts = {.size = sizeof opts, .src = im->src, .name = onnx_fresh_name(im, port->name)};
        memcpy(opts.shape, shape.dim, sizeof opts.shape);
        value->tensor = weir_state_at(im->graph, dtype, &opts);
    } else {
        weir_input_opts opts = {.size = sizeof opts, .src = im->src, .name = onnx_fresh_name(im, port->name)};
        memcpy(opts.shape, shape.dim, sizeof opts.shape);
        value->tensor = weir_input_at(im->graph, dtype, &opts);
    }
    return true;
}

static bool take_inputs(onnx_importer *im, const onnx_graph *graph)
{
    const weir_onnx_opts *o = im->opts;
    for (int i = 0; i < WEIR_ONNX_NAMES_MAX && o->value[i].name; i++)
        if (!input_there(im, graph, ".value", o->value[i].name) || !take_value(im, graph, &o->value[i]))
            return false;
    for (int i = 0; i < WEIR_ONNX_NAMES_MAX && o->shape[i].name; i++)
        if (!input_there(im, graph, ".shape", o->shape[i].name))
            return false;
    for (int i = 0; i < WEIR_ONNX_NAMES_MAX && o->state[i].in; i++)
        if (!input_there(im, graph, ".state", o->state[i].in))
            return false;
    if (!take_initializers(im, graph))
        return false;
    for (int i = 0; i < graph->inputs.count; i++)
        if (!take_input(im, &graph->inputs.item[i]))
            return false;
    return true;
}

static bool set_states(onnx_importer *im)
{
    for (int i = 0; i < WEIR_ONNX_NAMES_MAX && im->opts->state[i].in; i++) {
        const weir_onnx_state *s = &im->opts->state[i];
        onnx_value *in = onnx_value_find(im, s->in), *out = s->out ? onnx_value_find(im, s->out) : NULL;
        weir_tensor *next = out ? onnx_tensor(im, out) : NULL;
        if (!next || !in || !in->tensor)
            return ONNX_WRONG(im, ".state: the model has no value '%s'", s->out ? s->out : "");
        weir_state_set_at(in->tensor, next, im->src);
    }
    return true;
}

/* Outputs get their names, and are fetched if that is asked for. An output that is known is a parameter. */
static bool take_output(onnx_importer *im, const onnx_port *port)
{
    onnx_value *value = onnx_value_find(im, port->name);
    weir_tensor *tensor = value ? onnx_tensor(im, value) : NULL;
    if (!value)
        return ONNX_WRONG(im, "no node makes the output %s", port->name);
    if (!tensor)
        return false;
    graph_alias *alias = strcmp(tensor->name, port->name) != 0 ? POOL_PUSH(im->pool, &im->graph->aliases) : NULL;
    if (alias)
        *alias = (graph_alias){port->name, tensor};
    if (im->opts->fetch)
        weir_fetch_at(tensor, WEIR_OPTS_AT(im->src, weir_fetch_opts, .name = port->name));
    return true;
}

static bool build(onnx_importer *im, const onnx_model *model)
{
    if (!none_missing(im, model) || !onnx_count_readers(im, &model->graph) || !take_inputs(im, &model->graph) || !convert_nodes(im, &model->graph))
        return false;
    im->node = NULL;
    im->src.line = model->nodes;
    if (!set_states(im))
        return false;
    for (int i = 0; i < model->graph.outputs.count; i++)
        if (!take_output(im, &model->graph.outputs.item[i]))
            return false;
    if (weir_graph_mistake(im->graph))
        im->status = error_set(WEIR_E_GRAPH, "%s", weir_graph_mistake(im->graph));
    return !im->status;
}

weir_graph *weir_graph_from_onnx_at(const char *path, const weir_onnx_opts *given)
{
    weir_onnx_opts opts;
    onnx_model model = {0};
    if (error_null(path, "weir_graph_from_onnx", "path") || opts_read(&opts, sizeof opts, given, "weir_graph_from_onnx"))
        return NULL;
    weir_graph *g = weir_graph_new(opts.name ? opts.name : path);
    if (!g)
        return NULL;
    onnx_importer im = {.graph = g, .pool = &g->pool, .opts = &opts, .path = pool_text(&g->pool, "%s", path)};
    im.src = (weir_src){im.path ? im.path : "", 0};
    bool built = im.path && !onnx_model_read(im.pool, im.path, &model);
    if (built && opts.devices)
        weir_mesh_new_at(g, opts.devices, WEIR_OPTS_AT(opts.src, weir_mesh_opts));
    im.opset = built ? model.opset : 0;
    if (built && build(&im, &model))
        return g;
    if (!im.path)
        error_set(WEIR_E_MEMORY, "no memory for a graph");
    weir_graph_free(g);
    return NULL;
}
