/* graph/onnx/export.c: which nodes of a graph go into an ONNX file, what their values are called there, and the loop over them.
 *
 * An output of the file is a fetch that the forward pass makes. From these the nodes that they need are found, backwards: since the
 * nodes of a graph are in a topological order, one pass does it. A state that a node reads is an input of the file, and what it is set
 * to an output, which needs nodes again, so that is repeated until nothing is added. A state that this program does not set is a
 * parameter, as the average of a parameter is.
 */
#include "graph/onnx/emit.h"

#include "graph/base/base.h"
#include "graph/base/error.h"
#include "graph/base/names.h"
#include "graph/base/text.h"

#include <stdarg.h>
#include <string.h>

enum { GRAPH_INPUT = 11, GRAPH_OUTPUT = 12 };

/* ---- faults ---- */

bool export_fault(onnx_exporter *ex, weir_status status, const char *format, ...)
{
    char text[700];
    va_list list;
    if (ex->status)
        return false;
    va_start(list, format);
    text_vprint(text, sizeof text, format, list);
    va_end(list);
    ex->status = error_set(status, "%s: %s", ex->path, text);
    return false;
}

bool export_no_memory(onnx_exporter *ex)
{
    return export_fault(ex, WEIR_E_MEMORY, "no memory to export the graph");
}

/* ---- names ---- */

static size_t place_of(const onnx_exporter *ex, const char *name)
{
    size_t hash = 5381;
    for (const char *c = name; *c; c++)
        hash = hash * 33 + (unsigned char)*c;
    size_t at = hash & (size_t)(ex->taken_room - 1);
    while (ex->taken[at] && strcmp(ex->taken[at], name) != 0)
        at = (at + 1) & (size_t)(ex->taken_room - 1);
    return at;
}

static bool is_taken(const onnx_exporter *ex, const char *name)
{
    return ex->taken_room && ex->taken[place_of(ex, name)];
}

static bool grow_names(onnx_exporter *ex)
{
    const char **old = ex->taken;
    const int room = ex->taken_room;
    if (2 * (ex->taken_count + 1) <= room)
        return true;
    ex->taken_room = room ? 2 * room : 256;
    ex->taken = POOL_NEW(&ex->pool, const char *, ex->taken_room);
    if (!ex->taken)
        return ex->taken_room = 0, export_no_memory(ex);
    for (int i = 0; i < room; i++)
        if (old[i])
            ex->taken[place_of(ex, old[i])] = old[i];
    return true;
}

const char *export_name(onnx_exporter *ex, const char *wanted)
{
    const char *name = wanted;
    for (int i = 2; name && is_taken(ex, name); i++)
        name = pool_text(&ex->pool, "%s_%d", wanted, i);
    if (!name || !grow_names(ex))
        return export_no_memory(ex), NULL;
    ex->taken[place_of(ex, name)] = name;
    ex->taken_count++;
    return name;
}

/* ---- types ---- */

int export_type(weir_dtype dtype)
{
    static const int type[WEIR_DTYPES] = {[WEIR_F32] = ONNX_FLOAT, [WEIR_I32] = ONNX_INT32,   [WEIR_U8] = ONNX_UINT8, [WEIR_F16] = ONNX_FLOAT16,
                                          [WEIR_BF16] = ONNX_BFLOAT16, [WEIR_I64] = ONNX_INT64, [WEIR_I8] = ONNX_INT8};
    return type[dtype];
}

/* A ValueInfoProto as field `field` of the graph. */
static void put_port(struct proto_out *to, int field, const char *name, const weir_type *type)
{
    struct proto_out port = {0}, of = {0}, tensor = {0}, shape = {0};
    for (int d = 0; d < type->shape.rank; d++) {
        struct proto_out dim = {0};
        proto_put_number(&dim, 1, type->shape.dim[d]);
        proto_put_message(&shape, 1, &dim);
    }
    proto_put_number(&tensor, 1, export_type(type->dtype));
    proto_put_message(&tensor, 2, &shape);
    proto_put_message(&of, 1, &tensor);
    proto_put_text(&port, 1, name);
    proto_put_message(&port, 2, &of);
    proto_put_message(to, field, &port);
}

/* ---- which nodes ---- */

static bool is_op(const graph_node *node, const char *op)
{
    return !strcmp(node->op->name, op);
}

static const char *file_of(const graph_node *node)
{
    return node->src.file ? node->src.file : "?";
}

static bool sets_state(const graph_node *node)
{
    return node->updates && node->updates->delay > 0;
}

/* Whether it is a part of training: a gradient, an update of a parameter, or made of one. */
static bool *find_late(onnx_exporter *ex)
{
    const weir_graph *g = ex->graph;
    bool *late = POOL_NEW(&ex->pool, bool, g->nodes.count + 1);
    for (int n = 0; late && n < g->nodes.count; n++) {
        const graph_node *node = g->nodes.item[n];
        late[n] = node->phase == PLAN_BACKWARD || (node->phase == PLAN_UPDATE && !sets_state(node));
        for (int i = 0; i < node->in_count && !late[n]; i++)
            late[n] = node->in[i]->node && late[node->in[i]->node->id];
    }
    return late ? late : (export_no_memory(ex), NULL);
}

static bool wanted(const onnx_export_opts *opts, const char *name)
{
    const char *const *fetch = opts->fetch;
    while (fetch && *fetch && strcmp(*fetch, name) != 0)
        fetch++;
    return !opts->fetch || !*opts->fetch || *fetch;
}

static bool find_program(onnx_exporter *ex, const char *name)
{
    struct names names = {.wanted = name};
    char text[NAMES_TEXT_BYTES];
    for (int p = 0; p < ex->graph->programs.count; p++) {
        const char *own = p ? ex->graph->programs.item[p].name : "main";
        ex->program = p;
        if (!strcmp(name ? name : "main", own))
            return true;
        names_add(&names, own);
    }
    return export_fault(ex, WEIR_E_ARGUMENT, "the graph has no program '%s'%s", name, names_text(&names, text, sizeof text));
}

static bool is_fetch(const onnx_exporter *ex, const graph_node *node)
{
    return node->program == ex->program && is_op(node, "sink");
}

/* Each that was asked for has to be there, and made by the forward pass. */
static bool check_fetches(onnx_exporter *ex, const onnx_export_opts *opts, const bool *late)
{
    for (const char *const *fetch = opts->fetch; fetch && *fetch; fetch++) {
        struct names names = {.wanted = *fetch};
        char text[NAMES_TEXT_BYTES];
        const graph_node *found = NULL;
        for (int n = 0; n < ex->graph->nodes.count; n++) {
            const graph_node *node = ex->graph->nodes.item[n];
            if (!is_fetch(ex, node))
                continue;
            names_add(&names, graph_short_name(node));
            found = strcmp(graph_short_name(node), *fetch) ? found : node;
        }
        if (!found)
            return export_fault(ex, WEIR_E_ARGUMENT, "the graph fetches no '%s'%s", *fetch, names_text(&names, text, sizeof text));
        if (late[found->id])
            return export_fault(ex, WEIR_E_ARGUMENT, "the fetch '%s' is made by training, and an ONNX file has the forward pass alone", *fetch);
    }
    return true;
}

static bool need_fetches(onnx_exporter *ex, const onnx_export_opts *opts, const bool *late)
{
    int count = 0;
    for (int n = 0; n < ex->graph->nodes.count; n++) {
        const graph_node *node = ex->graph->nodes.item[n];
        if (is_fetch(ex, node) && !late[n] && wanted(opts, graph_short_name(node)))
            ex->needed[n] = ++count;
    }
    if (!count)
        return export_fault(ex, WEIR_E_ARGUMENT, "the forward pass of program '%s' fetches nothing: the outputs of an ONNX file are its weir_fetch()s",
                            ex->program ? ex->graph->programs.item[ex->program].name : "main");
    return true;
}

/* The node that sets the state, as this program does it; NULL: it is a parameter here. */
static const graph_node *setter_of(const onnx_exporter *ex, const weir_tensor *x, const bool *late)
{
    const graph_node *update = x->delay > 0 ? x->update : NULL;
    return update && update->program == ex->program && !late[update->id] ? update : NULL;
}

/* One pass; whether a state was found whose setter is behind its reader. */
static bool need_inputs(onnx_exporter *ex, const bool *late)
{
    bool again = false;
    for (int n = ex->graph->nodes.count - 1; n >= 0; n--) {
        const graph_node *node = ex->graph->nodes.item[n];
        for (int i = 0; ex->needed[n] && i < node->in_count; i++) {
            const graph_node *from = node->in[i]->node ? node->in[i]->node : setter_of(ex, node->in[i], late);
            again |= from && from->id > n && !ex->needed[from->id];
            if (from)
                ex->needed[from->id] = true;
        }
    }
    return again;
}

/* All of those that have no conversion, at once. */
static bool check_ops(onnx_exporter *ex)
{
    char bytes[500] = "";
    struct text list = {.bytes = bytes, .room = sizeof bytes};
    int count = 0;
    for (int n = 0; n < ex->graph->nodes.count; n++) {
        const graph_node *node = ex->graph->nodes.item[n];
        if (!ex->needed[n] || is_op(node, "source") || is_op(node, "sink") || export_find(node->op->name))
            continue;
        if (list.used < sizeof bytes / 2)
            text_add(&list, "%s%s (%s:%d)", count ? ", " : "", node->op->name, file_of(node), node->src.line);
        else if (list.bytes[list.used - 1] != '.')
            text_add(&list, ", ...");
        count++;
    }
    return !count || export_fault(ex, WEIR_E_UNSUPPORTED, "%d op%s of the graph %s no form in ONNX: %s", count, count > 1 ? "s" : "",
                                  count > 1 ? "have" : "has", bytes);
}

/* ---- names of what the file begins and ends with ---- */

static const weir_tensor *root_of(const weir_tensor *x)
{
    while (x->node && (is_op(x->node, "shard") || is_op(x->node, "copy") || is_op(x->node, "dropout")))
        x = x->node->in[0];
    return x;
}

static void name_input(onnx_exporter *ex, const weir_tensor *x, const char *wanted)
{
    const char *name = export_name(ex, wanted);
    ex->name[x->id] = name;
    if (name)
        put_port(&ex->inputs, GRAPH_INPUT, name, &x->type);
}

/* A value that has a name already, as inputs do, gets another one at the end. */
static const char *name_output(onnx_exporter *ex, const weir_tensor *x, const char *wanted)
{
    const weir_tensor *root = root_of(x);
    const char *name = export_name(ex, wanted);
    if (name)
        put_port(&ex->outputs, GRAPH_OUTPUT, name, &x->type);
    if (root->node && !ex->name[root->id])
        ex->name[root->id] = name;
    return name;
}

static void name_inputs(onnx_exporter *ex)
{
    for (int n = 0; n < ex->graph->nodes.count; n++)
        if (ex->needed[n] && is_op(ex->graph->nodes.item[n], "source"))
            name_input(ex, ex->graph->nodes.item[n]->out[0], graph_short_name(ex->graph->nodes.item[n]));
}

static bool name_states(onnx_exporter *ex)
{
    for (int n = 0; n < ex->graph->nodes.count; n++) {
        const graph_node *node = ex->graph->nodes.item[n];
        if (!ex->needed[n] || !sets_state(node))
            continue;
        if (node->updates->delay > 1)
            return export_fault(ex, WEIR_E_UNSUPPORTED, "the state \"%s\" has .delay = %d; in an ONNX file it can be 1", node->updates->name,
                                node->updates->delay);
        const char *next = pool_text(&ex->pool, "%s.next", node->updates->name);
        name_input(ex, node->updates, node->updates->name);
        ex->name[node->out[0]->id] = next ? export_name(ex, next) : NULL;
        if (ex->name[node->out[0]->id])
            put_port(&ex->outputs, GRAPH_OUTPUT, ex->name[node->out[0]->id], &node->updates->type);
    }
    return true;
}

static void name_params(onnx_exporter *ex)
{
    bool *read = POOL_NEW(&ex->pool, bool, ex->graph->tensors.count + 1);
    for (int n = 0; read && n < ex->graph->nodes.count; n++)
        for (int i = 0; ex->needed[n] && i < ex->graph->nodes.item[n]->in_count; i++)
            read[ex->graph->nodes.item[n]->in[i]->id] |= !ex->graph->nodes.item[n]->in[i]->node;
    for (int t = 0; read && t < ex->graph->tensors.count; t++) {
        const weir_tensor *x = ex->graph->tensors.item[t], **param = read[t] && !ex->name[t] ? POOL_PUSH(&ex->pool, &ex->params) : NULL;
        if (!param)
            continue;
        *param = x;
        ex->name[t] = export_name(ex, x->name);
    }
}

/* ---- conversion ---- */

static bool convert(onnx_exporter *ex, const graph_node *node, const char *output)
{
    ex->node = node;
    ex->why = NULL;
    if (is_op(node, "source"))
        return true;
    if (is_op(node, "sink")) {
        if (strcmp(emit_in(ex, 0), output) != 0)
            EMIT(ex, output, "Identity", emit_in(ex, 0));
        return true;
    }
    return export_find(node->op->name)(ex) ||
           export_fault(ex, WEIR_E_UNSUPPORTED, "%s:%d: %s: %s", file_of(node), node->src.line, node->op->name,
                        ex->why ? ex->why : "it has no form in ONNX");
}

bool export_nodes(onnx_exporter *ex, const onnx_export_opts *opts)
{
    const weir_graph *g = ex->graph;
    const bool *late = find_program(ex, opts->program) ? find_late(ex) : NULL;
    ex->needed = POOL_NEW(&ex->pool, bool, g->nodes.count + 1);
    ex->name = POOL_NEW(&ex->pool, const char *, g->tensors.count + 1);
    const char **output = POOL_NEW(&ex->pool, const char *, g->nodes.count + 1);
    if (!late || !ex->needed || !ex->name || !output)
        return export_no_memory(ex);
    if (!check_fetches(ex, opts, late) || !need_fetches(ex, opts, late))
        return false;
    while (need_inputs(ex, late))
        ;
    if (!check_ops(ex))
        return false;
    name_inputs(ex);
    if (!name_states(ex))
        return false;
    for (int n = 0; n < g->nodes.count; n++)
        if (ex->needed[n] && is_op(g->nodes.item[n], "sink"))
            output[n] = name_output(ex, g->nodes.item[n]->in[0], graph_short_name(g->nodes.item[n]));
    name_params(ex);
    for (int n = 0; n < g->nodes.count && !ex->status && !ex->pool.failed; n++)
        if (ex->needed[n] && !convert(ex, g->nodes.item[n], output[n]))
            return false;
    return !ex->status && (!ex->pool.failed || export_no_memory(ex));
}

weir_status onnx_export(const weir_graph *graph, const char *path, const onnx_export_opts *opts)
{
    onnx_exporter ex = {.graph = graph, .path = path};
    if (graph->mistake)
        export_fault(&ex, WEIR_E_GRAPH, "the graph has a mistake: %s", graph->mistake);
    else if (export_nodes(&ex, opts))
        ex.status = export_write(&ex, opts);
    proto_free(&ex.nodes);
    proto_free(&ex.constants);
    proto_free(&ex.inputs);
    proto_free(&ex.outputs);
    proto_free(&ex.making);
    pool_free(&ex.pool);
    return ex.status;
}
