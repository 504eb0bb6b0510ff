/* graph/verify/author.c: see the header. */
#include "graph/verify/author.h"

#include <stdlib.h>
#include <string.h>

#include "graph/base/base.h"
#include "graph/base/error.h"
#include "graph/verify/bound.h"
#include "graph/verify/draw.h"
#include "kernels/core/core.h" /* seed_attrs */

enum { STATES_MAX = 4, BOUND_DEPTH = 16 };

/* A tensor: a copy for each micro-batch, if it exists so often; of a state one for each step that it waits. */
struct value {
    rule_array array; /* `at`: the first copy; owned */
    int copies;
};

struct author {
    const weir_graph *graph;
    int micros;
    uint64_t seed, key_seed;
    int64_t *steps;           /* owned; by program: that were made */
    struct value *values;     /* owned; by tensor */
    rule_array (*states)[STATES_MAX]; /* owned, and their elements; by node */
};

/* ---- arrays ---- */

static rule_array array_like(const weir_type *type)
{
    rule_array array = {.dtype = type->dtype, .rank = type->shape.rank, .count = weir_shape_count(&type->shape)};
    memcpy(array.shape, type->shape.dim, sizeof array.shape);
    memcpy(array.global, type->shape.dim, sizeof array.global);
    return array;
}

static bool array_new(rule_array *array, const weir_type *type, int copies)
{
    *array = array_like(type);
    array->at = calloc((size_t)array->count * (size_t)copies + 1, sizeof *array->at);
    return array->at != NULL;
}

static rule_array copy_of(const struct value *value, int copy)
{
    rule_array array = value->array;
    array.at += copy * array.count;
    return array;
}

/* What readers see: of a state the oldest. */
static rule_array array_of(const author *a, const weir_tensor *tensor, int micro)
{
    return copy_of(&a->values[tensor->id], tensor->micro ? micro : 0);
}

/* ---- inputs ---- */

/* The integers that a node takes in an input. */
static bound bound_at(const graph_node *node, int input)
{
    weir_type in[WEIR_ARGS_MAX];
    for (int i = 0; i < node->in_count; i++)
        in[i] = node->in[i]->type;
    return bound_of_input(node->op, node->attrs, in, node->in_count, input);
}

/* The integers that all readers of the tensor take, directly or behind ops that pass integers on. */
static bound bound_of(const author *a, const weir_tensor *tensor, int depth)
{
    bound all = bound_none();
    for (int n = 0; n < a->graph->nodes.count && depth < BOUND_DEPTH; n++) {
        const graph_node *node = a->graph->nodes.item[n];
        for (int i = 0; i < node->in_count; i++) {
            if (node->in[i] != tensor)
                continue;
            const bound own = bound_at(node, i);
            all = bound_of_both(all, own);
            for (int o = 0; own.below == BOUND_NONE && o < node->out_count; o++)
                if (!weir_dtype_real(node->out[o]->type.dtype))
                    all = bound_of_both(all, bound_of(a, node->out[o], depth + 1));
        }
    }
    return all;
}

static const graph_node *input_named(const author *a, const char *name)
{
    for (int n = 0; n < a->graph->nodes.count; n++) {
        const graph_node *node = a->graph->nodes.item[n];
        if ((node->host == 1 + PLAN_SOURCE || node->host == 1 + PLAN_PUSH) && !strcmp(node->name, name))
            return node;
    }
    return NULL;
}

bool author_input(const author *a, const char *name, int64_t step, int micro, const rule_array *array)
{
    const graph_node *node = input_named(a, name);
    if (!node)
        return false;
    draw_input(a->seed, name, step, micro, weir_dtype_real(array->dtype) ? bound_none() : bound_of(a, node->out[0], 0), array);
    return true;
}

/* ---- what lives from step to step ---- */

const weir_tensor *author_kept_named(const weir_graph *graph, const char *name)
{
    for (int t = 0; t < graph->tensors.count; t++) {
        const weir_tensor *tensor = graph->tensors.item[t];
        if (!tensor->node && !strcmp(tensor->name, name))
            return tensor;
    }
    return NULL;
}

void author_begin(const author *a, const char *name, const rule_array *array)
{
    const weir_tensor *tensor = weir_dtype_real(array->dtype) ? NULL : author_kept_named(a->graph, name);
    const int64_t begin = tensor && tensor->init.kind == WEIR_INIT_VALUE ? (int64_t)tensor->init.a : 0;
    draw_kept(a->seed, name, tensor ? &begin : NULL, array);
}

bool author_begins_so(const weir_graph *graph, uint64_t key_seed, const char *name, const plan_init *init)
{
    const weir_tensor *tensor = author_kept_named(graph, name);
    if (!tensor)
        return true;
    return init->kind == (uint32_t)tensor->init.kind && init->a == tensor->init.a && init->b == tensor->init.b &&
           init->key == name_key(key_seed, name);
}

void author_state_name(const graph_node *node, int s, char *name, size_t bytes)
{
    const char *of = node->updates ? node->updates->name : node->name;
    if (node->op->state_names[s])
        snprintf(name, bytes, "%s:%s.%s", of, node->op->name, node->op->state_names[s]);
    else
        snprintf(name, bytes, "%s:%s.%d", of, node->op->name, s);
}

static bool states_open(author *a, const graph_node *node)
{
    weir_type in[WEIR_ARGS_MAX], out[8], types[STATES_MAX];
    char name[512];
    if (!node->op->states)
        return true;
    for (int i = 0; i < node->in_count; i++)
        in[i] = node->in[i]->type;
    for (int o = 0; o < node->out_count; o++)
        out[o] = node->out[o]->type;
    const weir_op_args args = {node->op, in, node->in_count, out, node->out_count, node->attrs};
    const int count = node->op->states(&args, types);
    for (int s = 0; s < count; s++) {
        if (!array_new(&a->states[node->id][s], &types[s], 1))
            return false;
        author_state_name(node, s, name, sizeof name);
        author_begin(a, name, &a->states[node->id][s]);
    }
    return true;
}

static int copies_of(const weir_tensor *tensor, int micros)
{
    return tensor->delay > 1 ? tensor->delay : tensor->micro ? micros : 1;
}

/* An optimizer's states are as large as its parameters, and there are three at most. */
uint64_t author_bytes(const weir_graph *graph, int micros)
{
    uint64_t elements = 0;
    for (int t = 0; t < graph->tensors.count; t++) {
        const weir_tensor *tensor = graph->tensors.item[t];
        const uint64_t copies = (uint64_t)copies_of(tensor, micros) + (tensor->update ? 3 : 0);
        elements += (uint64_t)weir_shape_count(&tensor->type.shape) * copies;
    }
    return elements * sizeof(field_value);
}

static bool value_open(author *a, const weir_tensor *tensor)
{
    struct value *value = &a->values[tensor->id];
    value->copies = copies_of(tensor, a->micros);
    if (!array_new(&value->array, &tensor->type, value->copies))
        return false;
    for (int copy = 0; !tensor->node && copy < value->copies; copy++) {
        const rule_array array = copy_of(value, copy);
        author_begin(a, tensor->name, &array);
    }
    return true;
}

/* ---- open ---- */

/* A function of the program's is a random one of all that it reads; one that is split by hand is not, but only its author knows
 * of what. */
weir_status author_can(const weir_graph *graph)
{
    for (int n = 0; n < graph->nodes.count; n++) {
        const graph_node *node = graph->nodes.item[n];
        if (node->by_hand && node->host == 1 + PLAN_CALL)
            return error_set(WEIR_E_UNSUPPORTED, "%s:%d: %s: a call that is split by hand cannot be verified",
                             node->src.file ? node->src.file : "?", node->src.line, node->name);
    }
    return WEIR_OK;
}

weir_status author_open(author **to, const weir_graph *graph, int micros, uint64_t key_seed, uint64_t seed)
{
    author *a = *to = calloc(1, sizeof *a);
    bool ok = a != NULL;
    if (ok) {
        *a = (author){.graph = graph, .micros = micros, .seed = seed, .key_seed = key_seed};
        a->steps = calloc((size_t)graph->programs.count + 1, sizeof *a->steps);
        a->values = calloc((size_t)graph->tensors.count + 1, sizeof *a->values);
        a->states = calloc((size_t)graph->nodes.count + 1, sizeof *a->states);
        ok = a->steps && a->values && a->states;
    }
    for (int t = 0; ok && t < graph->tensors.count; t++)
        ok = value_open(a, graph->tensors.item[t]);
    for (int n = 0; ok && n < graph->nodes.count; n++)
        ok = states_open(a, graph->nodes.item[n]);
    if (ok)
        return WEIR_OK;
    author_close(a);
    *to = NULL;
    return error_set(WEIR_E_MEMORY, "no memory to compute the graph \"%s\" over the field", graph->name);
}

void author_close(author *a)
{
    if (!a)
        return;
    for (int t = 0; a->values && t < a->graph->tensors.count; t++)
        free(a->values[t].array.at);
    for (int n = 0; a->states && n < a->graph->nodes.count; n++)
        for (int s = 0; s < STATES_MAX; s++)
            free(a->states[n][s].at);
    free(a->steps);
    free(a->values);
    free(a->states);
    free(a);
}

/* ---- a step ---- */

static weir_status node_failed(const graph_node *node, const char *why)
{
    return error_set(WEIR_E_WRONG, "%s:%d: %s (%s) in the graph: %s", node->src.file ? node->src.file : "?", node->src.line,
                     node->name, node->op->name, why);
}

static weir_status node_fire(author *a, const graph_node *node, int micro, int times)
{
    rule_array in[WEIR_ARGS_MAX], out[8];
    char error[256] = "the values do not fit";
    for (int i = 0; i < node->in_count; i++)
        in[i] = array_of(a, node->in[i], micro);
    for (int o = 0; o < node->out_count; o++)
        out[o] = array_of(a, node->out[o], micro);
    rule_call call = {.op = node->op, .name = node->name, .words = node->attrs, .in = in, .in_count = node->in_count, .out = out,
                      .out_count = node->out_count, .state = a->states[node->id], .micro = micro, .micros = times,
                      .step = a->steps[node->program], .seed = a->seed, .accumulate = node->fills && micro > 0,
                      .key = name_key(a->key_seed, graph_short_name(node)), .error = error, .error_bytes = sizeof error};
    while (call.state_count < STATES_MAX && call.state[call.state_count].at)
        call.state_count++;
    if (!rule_find(node->op->name)(&call))
        return node_failed(node, error);
    const bool seed = !strcmp(node->op->name, "grad_seed");
    if (seed && node->micro && !((const seed_attrs *)node->attrs)->whole)
        out[0].at[0] = field_div(out[0].at[0], field_int(a->micros));
    return WEIR_OK;
}

weir_status author_node(author *a, const graph_node *node)
{
    const int times = node->micro || node->fills ? a->micros : 1;
    const bool source = node->host == 1 + PLAN_SOURCE || node->host == 1 + PLAN_PUSH;
    weir_status status = WEIR_OK;
    if (node->updates) { /* it changes what is there */
        const rule_array before = copy_of(&a->values[node->updates->id], 0);
        memcpy(a->values[node->out[0]->id].array.at, before.at, (size_t)before.count * sizeof *before.at);
    }
    for (int micro = 0; !status && micro < times; micro++) {
        if (source) {
            const rule_array out = array_of(a, node->out[0], micro);
            author_input(a, node->name, a->steps[node->program], micro, &out);
        } else if (!node->host || node->host == 1 + PLAN_CALL) {
            status = node_fire(a, node, micro, times);
        }
    }
    return status;
}

/* The step is over: what was set is what is read next, or comes behind what was set before. */
static void commit(author *a, const graph_node *node)
{
    struct value *kept = &a->values[node->updates->id];
    const size_t bytes = (size_t)kept->array.count * sizeof *kept->array.at;
    memmove(kept->array.at, kept->array.at + kept->array.count, bytes * (size_t)(kept->copies - 1));
    memcpy(kept->array.at + kept->array.count * (kept->copies - 1), a->values[node->out[0]->id].array.at, bytes);
}

weir_status author_step(author *a, int program)
{
    weir_status status = WEIR_OK;
    for (int n = 0; !status && n < a->graph->nodes.count; n++)
        if (a->graph->nodes.item[n]->program == program)
            status = author_node(a, a->graph->nodes.item[n]);
    for (int n = 0; !status && n < a->graph->nodes.count; n++)
        if (a->graph->nodes.item[n]->program == program && a->graph->nodes.item[n]->updates)
            commit(a, a->graph->nodes.item[n]);
    a->steps[program]++;
    return status;
}

/* ---- what came out ---- */

rule_array author_tensor(const author *a, const weir_tensor *tensor, int micro)
{
    return array_of(a, tensor, micro);
}

rule_array author_kept(const author *a, const char *name, weir_src *src)
{
    char own[512];
    const weir_tensor *tensor = author_kept_named(a->graph, name);
    if (tensor) {
        *src = tensor->src;
        return copy_of(&a->values[tensor->id], a->values[tensor->id].copies - 1);
    }
    for (int n = 0; n < a->graph->nodes.count; n++) {
        const graph_node *node = a->graph->nodes.item[n];
        for (int s = 0; s < STATES_MAX && a->states[n][s].at; s++) {
            author_state_name(node, s, own, sizeof own);
            *src = node->updates ? node->updates->src : node->src;
            if (!strcmp(own, name))
                return a->states[n][s];
        }
    }
    return (rule_array){.at = NULL};
}
