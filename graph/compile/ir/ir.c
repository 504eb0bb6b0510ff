/* graph/compile/ir/ir.c: the logical form from the user's graph, and small functions that several passes use. */
#include "graph/compile/ir/ir.h"
#include "graph/base/error.h"

#include <string.h>

struct weir_signature_list {
    pool *pool;
    weir_signature *item;
    int count, room;
    const weir_op_args *args;
    weir_signature spare; /* handed out when there is no memory */
};

static void signature_all_b(weir_signature *s, const weir_op_args *args)
{
    *s = (weir_signature){.granules = 0};
    for (int i = 0; i < args->in_count; i++)
        s->in[i] = WEIR_B;
    for (int o = 0; o < args->out_count; o++)
        s->out[o] = WEIR_B;
}

weir_signature *weir_signature_new(weir_signature_list *list)
{
    weir_signature *s = POOL_PUSH(list->pool, list);
    if (!s)
        s = &list->spare;
    signature_all_b(s, list->args);
    return s;
}

/* The cost of an op that defines none: look at each byte once. */
static void cost_default(const weir_op_args *args, weir_cost *cost)
{
    for (int i = 0; i < args->in_count + args->out_count; i++) {
        const weir_type *t = i < args->in_count ? &args->in[i] : &args->out[i - args->in_count];
        cost->bytes += (double)weir_shape_count(&t->shape) * (double)weir_dtype_bytes(t->dtype);
    }
}

static bool signatures_equal(const ir_rules *rules, const weir_signature_list *list)
{
    const weir_op_args *args = list->args;
    if (rules->op != args->op || rules->in_count != args->in_count || rules->count != list->count)
        return false;
    for (int s = 0; s < list->count; s++) {
        const weir_signature *a = &rules->item[s], *b = &list->item[s];
        if (a->granules != b->granules || memcmp(a->in, b->in, sizeof *a->in * (size_t)args->in_count) ||
            memcmp(a->out, b->out, sizeof *a->out * (size_t)args->out_count))
            return false;
    }
    return true;
}

/* A lasting copy of the list. Most nodes of an op have the same one, so they share it: a signature is large. */
static const ir_rules *signatures_keep(compile *c, const weir_signature_list *list)
{
    for (int r = c->ir.rules.count - 1; r >= 0; r--)
        if (signatures_equal(&c->ir.rules.item[r], list))
            return &c->ir.rules.item[r];
    ir_rules *rules = POOL_PUSH(&c->pool, &c->ir.rules);
    if (!rules)
        return NULL;
    *rules = (ir_rules){.op = list->args->op, .in_count = list->args->in_count, .count = list->count};
    rules->item = pool_copy(&c->pool, list->item, sizeof *list->item * (size_t)list->count);
    return rules;
}

/* The types that the node reads and makes. */
static void types_in_use(const compile *c, const ir_node *node, weir_type *types)
{
    for (int i = 0; i < node->in_count; i++)
        types[i] = (weir_type){node_reads(&c->ir, node, i), c->ir.tensors.item[node->in[i]].type.shape};
    for (int o = 0; o < node->out_count; o++)
        types[node->in_count + o] = c->ir.tensors.item[node->out[o]].type;
}

/* The same as the graph has them. It can be laid out as in f32: what then must not be in half is seen to by those who
 * choose. */
static void types_in_graph(const compile *c, const ir_node *node, weir_type *types)
{
    types_in_use(c, node, types);
    for (int i = 0; i < node->in_count + node->out_count && node->origin; i++)
        types[i] = (i < node->in_count ? node->origin->in[i] : node->origin->out[i - node->in_count])->type;
}

/* Asks the op's rules about the node: signatures and cost. `list` is used for one node after the other. */
static bool node_rules(compile *c, ir_node *node, weir_signature_list *list)
{
    weir_type *types = POOL_NEW(&c->pool, weir_type, node->in_count + node->out_count + 1);
    if (!types)
        return false;
    weir_op_args args = {node->op, types, node->in_count, types + node->in_count, node->out_count, node->attrs};
    types_in_graph(c, node, types);
    list->count = 0;
    list->args = &args;
    weir_signature_new(list);
    const weir_signature *given = node->origin ? node->origin->by_hand : NULL;
    for (int a = 0; given && a < node->mesh->axes; a++)
        *weir_signature_new(list) = given[a];
    if (node->op->signatures && !given)
        node->op->signatures(&args, list);
    const ir_rules *rules = signatures_keep(c, list);
    list->args = NULL;
    if (!rules)
        return false;
    node->signature = rules->item;
    node->signature_count = rules->count;
    types_in_use(c, node, types);
    if (node->op->cost)
        node->op->cost(&args, &node->cost);
    else
        cost_default(&args, &node->cost);
    return !c->pool.failed;
}

/* 1 + the parameter whose values in a file the tensor has; 0: it has others. */
static int mapped_of(const compile *c, const weir_tensor *t)
{
    if (!t->mapped)
        return 0;
    return t->node ? c->ir.tensors.item[t->node->in[0]->id].mapped : t->id + 1;
}

static void tensors_copy(compile *c)
{
    for (int t = 0; t < c->graph->tensors.count; t++) {
        const weir_tensor *from = c->graph->tensors.item[t];
        ir_tensor *to = POOL_PUSH(&c->pool, &c->ir.tensors);
        if (to)
            *to = (ir_tensor){.name = from->name,
                              .src = from->src,
                              .type = from->type,
                              .mesh = from->mesh,
                              .fixed = from->sbp,
                              .origin = from,
                              .node = from->node ? from->node->id : NONE,
                              .update = from->update ? from->update->id : NONE,
                              .micro = from->micro,
                              .mapped = mapped_of(c, from)};
    }
}

static bool node_copy(compile *c, const graph_node *from, ir_node *to)
{
    *to = (ir_node){.name = from->name,
                    .src = from->src,
                    .op = from->op,
                    .origin = from,
                    .mesh = from->mesh,
                    .attrs = from->attrs,
                    .phase = from->phase,
                    .program = from->program,
                    .micro = from->micro,
                    .in_count = from->in_count,
                    .out_count = from->out_count,
                    .sum = NONE,
                    .after = NONE,
                    .updates = from->updates ? from->updates->id : NONE,
                    .choice = {NONE, NONE, NONE}};
    to->in = POOL_NEW(&c->pool, int, to->in_count + 1);
    to->out = POOL_NEW(&c->pool, int, to->out_count + 1);
    if (c->pool.failed)
        return false;
    for (int i = 0; i < to->in_count; i++)
        to->in[i] = from->in[i]->id;
    for (int o = 0; o < to->out_count; o++)
        to->out[o] = from->out[o]->id;
    return true;
}

bool ir_had_memory(const compile *c)
{
    return !c->pool.failed || error_set(WEIR_E_MEMORY, "no memory to compile \"%s\"", c->graph->name) == WEIR_OK;
}

bool ir_new(compile *c)
{
    tensors_copy(c);
    c->ir.node_count = c->graph->nodes.count;
    c->ir.node = POOL_NEW(&c->pool, ir_node, c->ir.node_count + 1);
    for (int n = 0; n < c->ir.node_count && !c->pool.failed; n++)
        node_copy(c, c->graph->nodes.item[n], &c->ir.node[n]);
    return ir_had_memory(c);
}

bool pass_rules(compile *c)
{
    weir_signature_list list = {.pool = &c->pool};
    for (int n = 0; n < c->ir.node_count && !c->pool.failed; n++)
        node_rules(c, &c->ir.node[n], &list);
    return ir_had_memory(c);
}

void ir_renumber(compile *c, ir_node *order, int count)
{
    for (int n = 0; n < count; n++) {
        for (int o = 0; o < order[n].out_count; o++)
            c->ir.tensors.item[order[n].out[o]].node = n;
        if (order[n].updates >= 0)
            c->ir.tensors.item[order[n].updates].update = n;
    }
    c->ir.node = order;
    c->ir.node_count = count;
}

bool node_ask(compile *c, ir_node *node)
{
    weir_signature_list list = {.pool = &c->pool};
    return node_rules(c, node, &list);
}

void slice_cut(slice *part, int d, int k, int parts)
{
    int64_t each = part->count[d] / parts, longer = part->count[d] % parts;
    part->start[d] += k * each + (k < longer ? k : longer);
    part->count[d] = each + (k < longer);
}

slice slice_of(const weir_shape *shape, const weir_mesh *mesh, const weir_sbp *sbp, int at)
{
    slice part = {0};
    for (int d = 0; d < shape->rank; d++)
        part.count[d] = shape->dim[d];
    for (int i = 0; i < mesh->axes; i++) {
        int a = mesh_cut(mesh, i);
        if (WEIR_IS_S(sbp[a]))
            slice_cut(&part, WEIR_S_DIM(sbp[a]), mesh_coordinate(mesh, at, a), mesh->shape[a]);
    }
    return part;
}

bool slices_meet(const slice *a, const slice *b, int rank)
{
    for (int d = 0; d < rank; d++)
        if (a->start[d] + a->count[d] <= b->start[d] || b->start[d] + b->count[d] <= a->start[d])
            return false;
    return true;
}

uint64_t shard_bytes(const ir_tensor *t, int at)
{
    slice part = slice_of(&t->type.shape, t->mesh, t->sbp, at);
    uint64_t count = 1;
    for (int d = 0; d < t->type.shape.rank; d++)
        count *= (uint64_t)part.count[d];
    return round_up(count * weir_dtype_bytes(t->type.dtype));
}
