/* graph/verify/lookup.c: see the header. */
#include "graph/verify/lookup.h"

#include <stdlib.h>
#include <string.h>

#include "graph/base/base.h"
#include "kernels/core/core.h" /* seed_attrs */

struct lookup {
    const weir_graph *graph;
    int micros;
    uint64_t seed;
    const weir_tensor **same; /* owned; by tensor */
    int *first, *next;        /* owned; lists of nodes by their first inputs: 1 + the first, by list; 1 + the next, by node */
};

const weir_tensor *lookup_same(const lookup *l, const weir_tensor *tensor)
{
    return tensor ? l->same[tensor->id] : NULL;
}

static bool is_host(const graph_node *node, plan_host_kind kind)
{
    return node->host == 1 + (int)kind;
}

static uint64_t key_of(const lookup *l, const graph_node *node)
{
    return name_key(l->seed, graph_short_name(node));
}

static bool same_attrs(const graph_node *node, const plan_word *words)
{
    return !node->op->attrs_bytes || !memcmp(node->attrs, words, node->op->attrs_bytes);
}

/* Whether the node only hands on its input's value. */
static bool hands_on(const lookup *l, const graph_node *node)
{
    const char *op = node->op->name;
    if (node->in_count < 1 || node->out_count != 1 || node->updates)
        return false;
    const bool real = weir_dtype_real(node->in[0]->type.dtype) && weir_dtype_real(node->out[0]->type.dtype);
    return !strcmp(op, "shard") || !strcmp(op, "copy") || (!strcmp(op, "cast") && real) ||
           (!strcmp(op, "accumulate") && l->micros == 1);
}

/* Two nodes that compute the same of the same. */
static bool computes_the_same(const lookup *l, const graph_node *a, const graph_node *b)
{
    bool same = a->op == b->op && a->in_count == b->in_count && a->out_count == b->out_count && a->program == b->program &&
                a->fills == b->fills && !a->updates && !b->updates && !a->host && !b->host && !a->op->effect &&
                same_attrs(a, b->attrs) && (!rule_draws(a->op->name) || key_of(l, a) == key_of(l, b));
    for (int i = 0; same && i < a->in_count; i++)
        same = lookup_same(l, a->in[i]) == lookup_same(l, b->in[i]);
    return same;
}

/* The list of nodes that read this first: by tensor; the last is of nodes that read nothing. */
static int list_of(const lookup *l, const weir_tensor *tensor)
{
    return tensor ? tensor->id : l->graph->tensors.count;
}

/* A tensor that is not the graph's has an id below 0. */
static bool is_graphs(const weir_tensor *tensor)
{
    return !tensor || tensor->id >= 0;
}

/* Fills `same` and the lists, in the order of the graph. */
static void read_graph(lookup *l)
{
    for (int t = 0; t < l->graph->tensors.count; t++)
        l->same[t] = l->graph->tensors.item[t];
    for (int n = 0; n < l->graph->nodes.count; n++) {
        const graph_node *node = l->graph->nodes.item[n], *twin = NULL;
        const int list = list_of(l, node->in_count ? lookup_same(l, node->in[0]) : NULL);
        for (int i = l->first[list] - 1; !twin && i >= 0; i = l->next[i] - 1)
            if (computes_the_same(l, node, l->graph->nodes.item[i]))
                twin = l->graph->nodes.item[i];
        if (hands_on(l, node))
            l->same[node->out[0]->id] = lookup_same(l, node->in[0]);
        for (int o = 0; twin && o < node->out_count; o++)
            l->same[node->out[o]->id] = lookup_same(l, twin->out[o]);
        l->next[n] = l->first[list];
        l->first[list] = 1 + n;
    }
}

lookup *lookup_new(const weir_graph *graph, int micros, uint64_t seed)
{
    lookup *l = calloc(1, sizeof *l);
    if (!l)
        return NULL;
    *l = (lookup){.graph = graph, .micros = micros, .seed = seed};
    l->same = calloc((size_t)graph->tensors.count + 1, sizeof *l->same);
    l->first = calloc((size_t)graph->tensors.count + 1, sizeof *l->first);
    l->next = calloc((size_t)graph->nodes.count + 1, sizeof *l->next);
    if (l->same && l->first && l->next) {
        read_graph(l);
        return l;
    }
    lookup_free(l);
    return NULL;
}

void lookup_free(lookup *l)
{
    if (!l)
        return;
    free(l->same);
    free(l->first);
    free(l->next);
    free(l);
}

const graph_node *lookup_host(const lookup *l, const char *name, plan_host_kind kind)
{
    for (int n = 0; n < l->graph->nodes.count; n++)
        if (is_host(l->graph->nodes.item[n], kind) && !strcmp(l->graph->nodes.item[n]->name, name))
            return l->graph->nodes.item[n];
    return NULL;
}

bool lookup_same_shape(const rule_array *array, const weir_type *type)
{
    bool same = array->rank == type->shape.rank;
    for (int d = 0; same && d < array->rank; d++)
        same = array->global[d] == type->shape.dim[d];
    return same;
}

/* The op is the same, and so are its attributes: but for the gradient of the loss, in which the compiler divides by the number of
 * micro-batches. */
static bool fits_attrs(const lookup *l, const graph_node *node, const rule_call *call)
{
    if (strcmp(node->op->name, "grad_seed"))
        return same_attrs(node, call->words);
    const seed_attrs *attrs = node->attrs;
    const int64_t parts = node->micro && !attrs->whole ? l->micros : 1;
    return field_equal(field_real(rule_real(call, "value", 0)), field_div(field_real(attrs->value), field_int(parts)));
}

static bool reads_these(const lookup *l, const graph_node *node, const rule_call *call, const weir_tensor *const *in)
{
    bool same = call->in_count == node->in_count && call->out_count == node->out_count;
    for (int i = 0; same && i < node->in_count; i++)
        same = (!in[i] || in[i] == lookup_same(l, node->in[i])) && lookup_same_shape(&call->in[i], &node->in[i]->type);
    for (int o = 0; same && o < node->out_count; o++)
        same = lookup_same_shape(&call->out[o], &node->out[o]->type);
    return same;
}

const graph_node *lookup_node(const lookup *l, const rule_call *call, const weir_tensor *const *in, uint32_t program, const char *name)
{
    const graph_node *found = NULL;
    if (call->in_count && !is_graphs(in[0]))
        return NULL;
    const bool any = call->in_count && !in[0]; /* the first input is a term of 0: of any tensor */
    const int first = any ? l->graph->nodes.count : l->first[list_of(l, call->in_count ? in[0] : NULL)];
    for (int i = first - 1; i >= 0; i = any ? i - 1 : l->next[i] - 1) {
        const graph_node *node = l->graph->nodes.item[i];
        if (node->op != call->op || node->program != (int)program || !fits_attrs(l, node, call) ||
            !reads_these(l, node, call, in) || (rule_draws(node->op->name) && key_of(l, node) != call->key) ||
            (!call->in_count && strcmp(node->name, name)))
            continue;
        if (!found || !strcmp(node->name, name))
            found = node;
    }
    return found;
}

const weir_tensor *lookup_accumulated(const lookup *l, const weir_tensor *tensor)
{
    for (int i = l->first[list_of(l, lookup_same(l, tensor))] - 1; i >= 0; i = l->next[i] - 1) {
        const graph_node *node = l->graph->nodes.item[i];
        if (node->fills && !strcmp(node->op->name, "accumulate"))
            return node->out[0];
    }
    return NULL;
}
