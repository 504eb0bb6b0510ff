/* graph/model/build.c: graphs, names, mistakes, and weir_op_apply(), through which every op enters a graph.
 *
 * A mistake is reported where it is made and never again: the graph keeps the first sentence, and the tensor that comes
 * back is poisoned. The alternative, a status from every builder call, would put an error check after each line of a
 * model.
 *
 * Names are checked at once, by a hash set, because they are the identity of parameters: initial values, checkpoints
 * and the agreement between processes hang on them.
 */
#include "graph/model/build.h"
#include "graph/base/base.h"
#include "graph/base/error.h"
#include "graph/base/locale.h"
#include "graph/base/opts.h"
#include "kernels/common/ops.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first mistake of this thread's that no graph could keep, as the call was given NULL in place of what would have
 * led to one. The next weir_compile() reports it: who calls functions that return nothing would not hear of it. */
static _Thread_local char stray[640];

weir_graph *weir_graph_new(const char *name)
{
    weir_graph *g = calloc(1, sizeof *g);
    if (!g) {
        error_set(WEIR_E_MEMORY, "no memory for a graph");
        return NULL;
    }
    g->made_ns = graph_now_ns();
    g->name = pool_text(&g->pool, "%s", name ? name : "graph");
    g->poison = (weir_tensor){.graph = g, .id = -1, .poisoned = true, .name = "poisoned"};
    graph_program *main = POOL_PUSH(&g->pool, &g->programs);
    if (main)
        *main = (graph_program){.name = "main", .prefix = "", .trains = true};
    return g;
}

void weir_graph_free(weir_graph *graph)
{
    if (!graph)
        return;
    pool_free(&graph->pool);
    free(graph);
}

const char *weir_graph_mistake(const weir_graph *graph)
{
    if (!graph)
        return *stray ? stray : "the graph is NULL";
    return graph->mistake ? graph->mistake : graph->pool.failed ? "no memory for the graph" : NULL;
}

/* ---- mistakes ---- */

static void mistake_stray(weir_src src, const char *text)
{
    error_set(WEIR_E_ARGUMENT, "%s:%d: %s", src.file ? src.file : "?", src.line, text);
    if (!*stray)
        snprintf(stray, sizeof stray, "%s", weir_error());
}

static void mistake_list(weir_graph *g, weir_src src, const char *format, va_list list)
{
    char text[512];
    if (g && weir_graph_mistake(g))
        return;
    text_vprint(text, sizeof text, format, list);
    if (g)
        g->mistake = pool_text(&g->pool, "%s:%d: %s", src.file ? src.file : "?", src.line, text);
    else
        mistake_stray(src, text);
}

bool graph_stray_report(void)
{
    if (!*stray)
        return false;
    error_set(WEIR_E_GRAPH, "%s", stray);
    *stray = '\0';
    return true;
}

void graph_mistake(weir_graph *graph, weir_src src, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    mistake_list(graph, src, format, list);
    va_end(list);
}

bool graph_opts(weir_graph *graph, const char *what, const void *given, void *own, size_t own_bytes)
{
    const char *wrong = opts_take(own, own_bytes, given);
    if (wrong)
        graph_mistake(graph, opts_src(own), "%s: %s", what, wrong);
    return !wrong;
}

weir_tensor *weir_mistake(weir_tensor *near, weir_src src, const char *format, ...)
{
    if (!near || !near->poisoned) {
        va_list list;
        va_start(list, format);
        mistake_list(near ? near->graph : NULL, src, format, list);
        va_end(list);
    }
    return near ? &near->graph->poison : NULL;
}

/* ---- where something is built ---- */

weir_mesh *graph_default_mesh(weir_graph *g)
{
    weir_mesh *mesh = graph_scope_mesh(g);
    if (mesh)
        return mesh;
    return g->meshes.count ? g->meshes.item[0] : weir_mesh_new(g, "cpu:0");
}

weir_mesh *weir_mesh_for(weir_tensor *x)
{
    if (!x)
        return NULL;
    weir_mesh *mesh = graph_scope_mesh(x->graph);
    if (mesh)
        return mesh;
    return x->mesh ? x->mesh : graph_default_mesh(x->graph);
}

/* ---- names ---- */

/* Where the name is, or belongs. */
static graph_name *name_slot(graph_name *table, int room, const char *name)
{
    uint64_t mask = (uint64_t)room - 1, at = name_hash(name) & mask;
    while (table[at].name && strcmp(table[at].name, name))
        at = (at + 1) & mask;
    return &table[at];
}

static bool names_make_room(weir_graph *g)
{
    if (g->names_count * 2 < g->names_room)
        return true;
    int room = g->names_room ? g->names_room * 2 : 256;
    graph_name *table = POOL_NEW(&g->pool, graph_name, room);
    if (!table)
        return false;
    for (int i = 0; i < g->names_room; i++)
        if (g->names[i].name)
            *name_slot(table, room, g->names[i].name) = g->names[i];
    g->names = table;
    g->names_room = room;
    return true;
}

/* The entry of a name that is in use, or NULL. */
static graph_name *name_find(weir_graph *g, const char *name)
{
    graph_name *slot = name && g->names_room ? name_slot(g->names, g->names_room, name) : NULL;
    return slot && slot->name ? slot : NULL;
}

/* Enters the name; false when it is in use (or there is no memory). `name` is kept, not copied. */
static bool name_take(weir_graph *g, weir_src src, const char *name)
{
    if (!name || !names_make_room(g) || name_find(g, name))
        return false;
    *name_slot(g->names, g->names_room, name) = (graph_name){.name = name, .src = src, .next = 1};
    g->names_count++;
    return true;
}

/* `name` as it is known outside. */
static char *name_behind_prefixes(weir_graph *g, const char *name)
{
    return pool_text(&g->pool, "%s%s%s", graph_program_now(g)->prefix, graph_scope_prefix(g), name);
}

/* `base`, or when that is in use `base_1`, `base_2`, ...: the first that is not. */
static const char *name_fresh(weir_graph *g, const char *base)
{
    graph_name *taken = name_find(g, name_behind_prefixes(g, base));
    while (taken && !g->pool.failed) {
        char *name = pool_text(&g->pool, "%s_%d", base, taken->next++);
        if (!name_find(g, name_behind_prefixes(g, name ? name : base)))
            return name;
    }
    return base;
}

const char *weir_name_for(weir_tensor *x, const char *name, const char *op)
{
    return name || !x ? name : name_fresh(x->graph, op ? op : "op");
}

void graph_name_taken(weir_graph *g, weir_src src, const char *full)
{
    const graph_name *there = name_find(g, full);
    if (there)
        graph_mistake(g, src, "the name \"%s\" is already in use, since %s:%d", full,
                      there->src.file ? there->src.file : "?", there->src.line);
}

bool graph_fetch_taken(weir_graph *g, weir_src src, const char *called)
{
    const char *prefix = graph_program_now(g)->prefix;
    const graph_name *there = name_find(g, pool_text(&g->pool, "%sfetch/%s", prefix, called));
    if (there)
        graph_mistake(g, src, "fetch: \"%s%s\" is fetched already, at %s:%d; give one of the two a .name of its own",
                      prefix, called, there->src.file ? there->src.file : "?", there->src.line);
    return there;
}

bool graph_name_used(weir_graph *g, const char *full)
{
    return name_find(g, full);
}

const char *graph_full_name(weir_graph *g, weir_src src, const char *name)
{
    const char *full = name_behind_prefixes(g, name);
    if (!name_take(g, src, full))
        graph_name_taken(g, src, full);
    return full;
}

graph_name *graph_shared_name(weir_graph *g, weir_src src, const char *name)
{
    const char *full = pool_text(&g->pool, "%s%s", graph_scope_prefix(g), name);
    graph_name *there = name_find(g, full);
    return there || !name_take(g, src, full) ? there : name_find(g, full);
}

const char *graph_short_name(const graph_node *node)
{
    return node->name + strlen(node->in_graph->programs.item[node->program].prefix);
}

const char *graph_tensor_short_name(const weir_tensor *x)
{
    return x->node ? x->name + strlen(x->graph->programs.item[x->node->program].prefix) : x->name;
}

/* ---- tensors and nodes ---- */

weir_tensor *graph_tensor_new(weir_graph *g)
{
    weir_tensor *t = POOL_NEW(&g->pool, weir_tensor, 1);
    weir_tensor **at = POOL_PUSH(&g->pool, &g->tensors);
    if (!t || !at)
        return NULL;
    *t = (weir_tensor){.graph = g, .id = g->tensors.count - 1};
    *at = t;
    return t;
}

static weir_mesh *apply_mesh(const weir_apply *a, weir_graph *g)
{
    if (graph_scope_mesh(g))
        return graph_scope_mesh(g);
    for (int i = 0; i < a->in_count; i++)
        if (a->in[i]->node)
            return a->in[i]->mesh;
    return a->in_count ? a->in[0]->mesh : graph_default_mesh(g);
}

static weir_graph *apply_graph(const weir_apply *a)
{
    for (int i = 0; a->in && i < a->in_count; i++)
        if (a->in[i])
            return a->in[i]->graph;
    return a->graph;
}

bool graph_use(weir_tensor *x, weir_src src)
{
    const weir_graph *g = x->graph;
    x->used |= UINT32_C(1) << g->program;
    if (x->delay > 1 && x->used & (x->used - 1))
        graph_mistake(x->graph, src, "\"%s\" has a delay of %d steps: only one program can use it", x->name, x->delay);
    return !weir_graph_mistake(g);
}

/* Programs share parameters and states. */
static bool apply_program_ok(const weir_apply *a, weir_graph *g, weir_tensor *in)
{
    if (!in->node)
        return graph_use(in, a->src);
    if (in->node->program == g->program)
        return true;
    graph_mistake(g, a->src, "%s: \"%s\" is computed in the program %s; %s can read only parameters and states of it",
                  a->op->name, in->name, g->programs.item[in->node->program].name, graph_program_now(g)->name);
    return false;
}

/* Whether an input is there; the mistake is reported where the graph is known. */
static bool apply_input_there(const weir_apply *a, weir_graph *g, int i)
{
    if (!a->in[i])
        graph_mistake(g, a->src, "%s: input %d is NULL", a->op->name, i);
    return a->in[i];
}

/* All graphs hear of it, as the program may have meant any of them. */
static bool apply_input_ours(const weir_apply *a, weir_graph *g, const weir_tensor *in)
{
    if (in->graph == g)
        return true;
    graph_mistake(g, a->src, "%s: \"%s\" belongs to another graph", a->op->name, in->name);
    graph_mistake(in->graph, a->src, "%s: \"%s\" belongs to this graph, and another input to another", a->op->name,
                  in->name);
    return false;
}

static bool apply_inputs_known(const weir_apply *a, weir_graph *g)
{
    const int least = a->op->in_min, most = a->op->in_max, given = a->in ? a->in_count : 0;
    if (given < least || given > most || given != a->in_count) {
        if (least == most)
            graph_mistake(g, a->src, "%s: takes %d inputs, not %d", a->op->name, least, given);
        else
            graph_mistake(g, a->src, "%s: takes %d to %d inputs, not %d", a->op->name, least, most, given);
        return false;
    }
    for (int i = 0; i < a->in_count; i++)
        if (!apply_input_there(a, g, i) || !apply_input_ours(a, g, a->in[i]))
            return false;
    return true;
}

/* A value that varies in size is for those alone who look at its length. */
static bool apply_length_ok(const weir_apply *a, weir_graph *g, const weir_tensor *in)
{
    if (!in->length || a->op == &op_call || a->op == &op_sink || a->op == &op_shard)
        return true;
    graph_mistake(g, a->src, "%s: \"%s\" varies in size; only weir_call(), weir_shard() and a weir_fetch() with a .sink can read it", a->op->name, in->name);
    return false;
}

/* Whether the inputs can be looked at; reports what is wrong with them. */
static bool apply_inputs_ok(const weir_apply *a, weir_graph *g)
{
    if (!apply_inputs_known(a, g))
        return false;
    for (int i = 0; i < a->in_count; i++)
        if (a->in[i]->poisoned || !apply_program_ok(a, g, a->in[i]) || !apply_length_ok(a, g, a->in[i]))
            return false;
    return !weir_graph_mistake(g) && graph_scope_ok(g, a->src, a->op->name);
}

/* How many outputs there are; -1 after a mistake. */
static int apply_infer(const weir_apply *a, weir_graph *g, weir_type *out)
{
    weir_type in_few[8];
    weir_type *in = a->in_count <= 8 ? in_few : POOL_NEW(&g->pool, weir_type, a->in_count);
    if (!in)
        return -1;
    for (int i = 0; i < a->in_count; i++)
        in[i] = a->in[i]->type;
    weir_op_args args = {a->op, in, a->in_count, out, a->op->out_count, a->attrs};
    char error[256] = "";
    if (!a->op->infer(&args, error, sizeof error)) {
        graph_mistake(g, a->src, "%s: %s", a->op->name, *error ? error : "wrong inputs");
        return -1;
    }
    assert(args.out_count == a->op->out_count ||
           (a->op->out_fewer && args.out_count >= 0 && args.out_count < a->op->out_count));
    for (int o = 0; o < args.out_count; o++)
        if (!shape_countable(&out[o].shape)) {
            char text[160];
            graph_mistake(g, a->src, "%s: a result of shape %s has too many elements", a->op->name,
                          shape_text(&out[o].shape, text, sizeof text));
            return -1;
        }
    return args.out_count;
}

static graph_node *node_new(const weir_apply *a, weir_graph *g, const char *full, int out_count)
{
    graph_node *node = POOL_NEW(&g->pool, graph_node, 1);
    graph_node **at = POOL_PUSH(&g->pool, &g->nodes);
    if (!node || !at)
        return NULL;
    *at = node;
    *node = (graph_node){.id = g->nodes.count - 1,
                         .op = a->op,
                         .name = full,
                         .src = a->src,
                         .mesh = apply_mesh(a, g),
                         .in_count = a->in_count,
                         .out_count = out_count,
                         .phase = g->phase,
                         .forward = g->forward,
                         .in_graph = g,
                         .program = g->program};
    node->in = pool_copy(&g->pool, a->in, sizeof *a->in * (size_t)a->in_count);
    node->out = POOL_NEW(&g->pool, weir_tensor *, out_count);
    node->attrs = a->op->attrs_bytes ? pool_copy(&g->pool, a->attrs, a->op->attrs_bytes) : NULL;
    for (int i = 0; i < a->in_count; i++) {
        const graph_node *from = a->in[i]->node;
        node->micro |= a->in[i]->micro;
        if (from && from->phase > node->phase)
            node->phase = from->phase; /* phases only go forward: forward, backward, update */
    }
    return g->pool.failed ? NULL : node;
}

static bool node_trains(const graph_node *node)
{
    for (int i = 0; i < node->in_count; i++)
        if (node->in[i]->trains)
            return true;
    return false;
}

static void node_outputs(graph_node *node, weir_graph *g, const weir_type *types)
{
    for (int i = 0; i < node->out_count; i++) {
        weir_tensor *t = graph_tensor_new(g);
        if (!t)
            return;
        t->type = types[i];
        t->mesh = node->mesh;
        t->name = i ? pool_text(&g->pool, "%s:%d", node->name, i) : node->name;
        t->node = node;
        t->micro = node->micro;
        t->trains = weir_dtype_real(types[i].dtype) && node_trains(node);
        t->src = node->src;
        node->out[i] = t;
    }
}

static weir_tensor *apply_poisoned(const weir_apply *a, weir_graph *g, weir_tensor **outs)
{
    if (outs)
        for (int i = 0; i < a->op->out_count; i++)
            outs[i] = &g->poison;
    return &g->poison;
}

graph_node *graph_apply(const weir_apply *a)
{
    weir_graph *g = apply_graph(a);
    weir_type types[8] = {0};
    int out_count = apply_inputs_ok(a, g) ? apply_infer(a, g, types) : -1;
    if (out_count < 0)
        return NULL;
    const char *full = graph_full_name(g, a->src, a->name ? a->name : name_fresh(g, a->op->name));
    graph_node *node = full ? node_new(a, g, full, out_count) : NULL;
    if (node)
        node_outputs(node, g, types);
    return node && !weir_graph_mistake(g) ? node : NULL;
}

static bool apply_op_known(const weir_apply *a, weir_graph *g)
{
    const weir_op *op = a->op;
    if (!op || !op->name)
        graph_mistake(g, a->src, "op_apply: .op is NULL or has no name: weir_op_find() gives NULL for an op that is "
                      "not registered");
    else if (op_fault(op))
        graph_mistake(g, a->src, "%s: the op %s", op->name, op_fault(op));
    else if (op->attrs_bytes && !a->attrs)
        graph_mistake(g, a->src, "%s: .attrs is NULL, but the op has attributes", op->name);
    else
        return true;
    return false;
}

weir_tensor *weir_op_apply_of(const weir_apply *given, size_t given_bytes, weir_tensor **outs)
{
    weir_apply own;
    if (!given) {
        graph_mistake(NULL, (weir_src){0}, "op_apply: what is to be applied is NULL");
        return NULL;
    }
    const char *wrong = opts_copy(&own, sizeof own, given, given_bytes);
    const weir_apply *apply = wrong ? given : &own; /* a newer one has what this version knows, too */
    weir_graph *g = apply_graph(apply);
    bool known = apply_op_known(apply, g);
    if (!g) {
        if (known && apply_inputs_known(apply, NULL))
            graph_mistake(NULL, apply->src, "%s: the graph is NULL", apply->op->name);
        return NULL;
    }
    if (!known)
        return &g->poison;
    if (wrong)
        graph_mistake(g, apply->src, "%s: %s", apply->op->name, wrong);
    graph_node *node = graph_apply(apply);
    if (!node)
        return apply_poisoned(apply, g, outs);
    if (outs)
        memcpy(outs, node->out, sizeof *outs * (size_t)node->out_count);
    return node->out_count ? node->out[0] : NULL;
}

/* ---- which model it is ---- */

static uint64_t hash_parameter(uint64_t hash, const weir_tensor *x)
{
    int64_t numbers[2 + WEIR_DIMS_MAX] = {x->type.dtype, x->type.shape.rank};
    for (int d = 0; d < x->type.shape.rank; d++)
        numbers[2 + d] = x->type.shape.dim[d];
    return hash_more(hash_more(hash, x->name, strlen(x->name) + 1), numbers, sizeof numbers);
}

/* A loss is the same one whether its classes are whole or in groups, which is where it runs: that decides its ops, and these
 * the name of a loss that the program gives none. */
static uint64_t hash_node(uint64_t hash, const graph_node *node)
{
    const char *op = node->op->name, *name = node->name;
    if (node->op == &op_class_lse)
        return hash;
    if (node->op == &op_class_loss || node->op == &op_cross_entropy)
        op = op_cross_entropy.name, name = "";
    return hash_more(hash_more(hash, name, strlen(name) + 1), op, strlen(op) + 1);
}

uint64_t graph_hash(const weir_graph *g)
{
    uint64_t hash = HASH_START;
    for (int t = 0; t < g->tensors.count; t++)
        if (!g->tensors.item[t]->node && g->tensors.item[t]->asked & 1)
            hash = hash_parameter(hash, g->tensors.item[t]);
    for (int n = 0; n < g->nodes.count; n++) {
        const graph_node *node = g->nodes.item[n];
        if (node->phase == PLAN_FORWARD && node->op != &op_shard && node->program == 0)
            hash = hash_node(hash, node);
    }
    return hash;
}

/* ---- queries ---- */

weir_graph *weir_tensor_graph(const weir_tensor *x)
{
    return x ? x->graph : NULL;
}

weir_type weir_tensor_type(const weir_tensor *x)
{
    return x ? x->type : (weir_type){.dtype = WEIR_DTYPE_NONE};
}

const char *weir_tensor_name(const weir_tensor *x)
{
    return x ? x->name : "NULL";
}

weir_mesh *weir_tensor_mesh(const weir_tensor *x)
{
    return x ? x->mesh : NULL;
}

weir_tensor *weir_length(const weir_tensor *x)
{
    return x ? x->length : NULL;
}

bool weir_tensor_poisoned(const weir_tensor *x)
{
    return !x || x->poisoned;
}

void weir_slots_at(weir_tensor *x, int slots, weir_src src)
{
    if (!x)
        graph_mistake(NULL, src, "slots: the tensor is NULL");
    if (!x || x->poisoned)
        return;
    if (slots < 1)
        graph_mistake(x->graph, src, "slots: a register needs at least one slot, not %d, for \"%s\"", slots, x->name);
    else if (x->delay)
        graph_mistake(x->graph, src, "slots: the state \"%s\" has as many slots as its .delay", x->name);
    else if (!x->node && slots > 1)
        graph_mistake(x->graph, src, "slots: the parameter \"%s\" is changed in place and has one slot, not %d",
                      x->name, slots);
    x->slots = slots;
    if (x->length)
        weir_slots_at(x->length, slots, src);
    if (x->node && x->node->op == &op_shard && x->node->in[0]->node && x->node->in[0]->node->host)
        x->node->in[0]->slots = slots; /* an input: also where the value comes in */
}
