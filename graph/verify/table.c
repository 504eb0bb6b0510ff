/* graph/verify/table.c: see the header.
 *
 * The table is made with a builder of plans, whose arrays grow and whose texts are interned, and is then moved: its texts become
 * those of the table. So the plan's own arrays, and with them its hash, are not touched.
 */
#include "graph/verify/table.h"

#include <stdlib.h>
#include <string.h>

#include "graph/base/error.h"
#include "graph/plan/form/build.h"

/* ---- into the plan ---- */

static plan_str text_at(plan_builder *b, weir_src src)
{
    return plan_add_text(b, src.file);
}

static uint32_t node_id(const graph_node *node)
{
    return node ? (uint32_t)node->id : PLAN_NONE;
}

static void add_tensor(plan_builder *b, const weir_tensor *tensor)
{
    plan_graph_tensor to = {.name = plan_add_text(b, tensor->name), .file = text_at(b, tensor->src),
                            .line = (uint32_t)tensor->src.line, .node = {node_id(tensor->node)}, .micro = tensor->micro,
                            .trains = tensor->trains, .dtype = tensor->type.dtype, .rank = (uint32_t)tensor->type.shape.rank,
                            .update = {node_id(tensor->update)}, .asked = tensor->asked, .frozen = tensor->frozen,
                            .delay = (uint32_t)tensor->delay, .init = tensor->init.kind, .a = tensor->init.a,
                            .b = tensor->init.b};
    for (int d = 0; d < tensor->type.shape.rank; d++)
        to.shape[d] = tensor->type.shape.dim[d];
    plan_add_graph_tensors(b, to);
}

static plan_range add_inputs(plan_builder *b, const graph_node *node)
{
    const plan_range range = {plan_builder_plan(b)->graph_refs_count, (uint32_t)node->in_count};
    for (int i = 0; i < node->in_count; i++)
        plan_add_graph_refs(b, (plan_graph_tensor_id){(uint32_t)node->in[i]->id});
    return range;
}

static plan_range add_attributes(plan_builder *b, const graph_node *node)
{
    const plan_range range = {plan_builder_plan(b)->graph_words_count, (uint32_t)(node->op->attrs_bytes / sizeof(plan_word))};
    for (uint32_t w = 0; w < range.count; w++)
        plan_add_graph_words(b, ((const plan_word *)node->attrs)[w]);
    return range;
}

/* Outputs are made with their node, so they lie together. */
static void add_node(plan_builder *b, const graph_node *node)
{
    plan_graph_node to = {.op = plan_add_text(b, node->op->name), .name = plan_add_text(b, node->name),
                          .file = text_at(b, node->src), .line = (uint32_t)node->src.line,
                          .program = {(uint32_t)node->program}, .phase = node->phase, .host = (uint32_t)node->host,
                          .micro = node->micro, .fills = node->fills, .by_hand = node->by_hand != NULL,
                          .forward = {node_id(node->forward)},
                          .updates = {node->updates ? (uint32_t)node->updates->id : PLAN_NONE}};
    to.in = add_inputs(b, node);
    to.attrs = add_attributes(b, node);
    to.out = (plan_range){node->out_count ? (uint32_t)node->out[0]->id : 0, (uint32_t)node->out_count};
    plan_add_graph_nodes(b, to);
}

static void move_table(weir_plan *to, weir_plan *from)
{
#define X(type, member)                               \
    free(to->member);                                 \
    to->member = from->member;                        \
    to->member##_count = from->member##_count;        \
    from->member = NULL;                              \
    from->member##_count = 0;
    PLAN_GRAPH_LIST(X)
#undef X
    to->table_version = from->table_version;
    to->table_hash = from->table_hash;
}

static void move_texts(weir_plan *plan)
{
    plan->graph_strings = plan->strings;
    plan->graph_strings_count = plan->strings_count;
    plan->strings = NULL;
    plan->strings_count = 0;
}

weir_status table_keep(weir_plan *plan, const weir_graph *graph)
{
    plan_builder *b = plan_builder_new();
    for (int t = 0; b && t < graph->tensors.count; t++)
        add_tensor(b, graph->tensors.item[t]);
    for (int n = 0; b && n < graph->nodes.count; n++)
        add_node(b, graph->nodes.item[n]);
    if (b && graph->loss)
        plan_add_graph_losses(b, (plan_graph_loss){{(uint32_t)graph->loss->id}, text_at(b, graph->loss_src),
                                                   (uint32_t)graph->loss_src.line});
    weir_plan *made = b ? plan_builder_take(b, NULL) : NULL, none = {.strings = NULL};
    if (!made)
        return WEIR_E_MEMORY;
    move_texts(made);
    made->table_version = PLAN_TABLE_VERSION;
    made->table_hash = plan_table_hash(made);
    move_table(plan, made);
    weir_plan_free(made);
    const weir_status status = plan_validate_table(plan);
    if (status)
        move_table(plan, &none);
    return status;
}

/* ---- out of it ---- */

typedef struct reading {
    const weir_plan *plan;
    weir_graph *graph;
    const char *texts; /* the table's, in the graph's pool */
} reading;

static weir_src src_of(const reading *r, plan_str file, uint32_t line)
{
    return (weir_src){r->texts[file.i] ? r->texts + file.i : NULL, (int)line};
}

static bool read_programs(reading *r)
{
    weir_graph *g = r->graph;
    for (uint32_t p = 1; p < r->plan->programs_count; p++) {
        graph_program *program = POOL_PUSH(&g->pool, &g->programs);
        const char *name = pool_text(&g->pool, "%s", plan_text(r->plan, r->plan->programs[p].name));
        if (program)
            *program = (graph_program){.name = name, .prefix = name ? pool_text(&g->pool, "%s/", name) : NULL};
    }
    return !g->pool.failed;
}

static bool read_tensors(reading *r)
{
    for (uint32_t t = 0; t < r->plan->graph_tensors_count; t++) {
        const plan_graph_tensor *from = &r->plan->graph_tensors[t];
        weir_tensor *to = graph_tensor_new(r->graph);
        if (!to)
            return false;
        to->name = r->texts + from->name.i;
        to->src = src_of(r, from->file, from->line);
        to->type = (weir_type){.dtype = (weir_dtype)from->dtype, .shape.rank = (int)from->rank};
        memcpy(to->type.shape.dim, from->shape, from->rank * sizeof *from->shape);
        to->micro = from->micro;
        to->asked = from->asked;
        to->frozen = from->frozen;
        to->trains = from->trains;
        to->delay = (int)from->delay;
        to->init = (weir_init){.kind = (weir_init_kind)from->init, .a = from->a, .b = from->b};
    }
    return true;
}

/* Nobody compiles it, so it is enough that there is one. */
static const weir_signature some_signature;

static void read_members(const reading *r, graph_node *to, const plan_graph_node *from)
{
    *to = (graph_node){.id = r->graph->nodes.count - 1, .op = weir_op_find(r->texts + from->op.i),
                       .name = r->texts + from->name.i, .src = src_of(r, from->file, from->line),
                       .in_count = (int)from->in.count, .out_count = (int)from->out.count, .phase = (plan_phase)from->phase,
                       .in_graph = r->graph, .program = (int)from->program.i, .micro = from->micro, .host = (int)from->host,
                       .fills = from->fills, .by_hand = from->by_hand ? &some_signature : NULL};
    to->forward = from->forward.i == PLAN_NONE ? NULL : r->graph->nodes.item[from->forward.i];
    to->updates = from->updates.i == PLAN_NONE ? NULL : r->graph->tensors.item[from->updates.i];
    if (to->updates)
        to->updates->update = to;
}

static void read_operands(const reading *r, graph_node *to, const plan_graph_node *from)
{
    for (int i = 0; i < to->in_count; i++)
        to->in[i] = r->graph->tensors.item[r->plan->graph_refs[from->in.first + (uint32_t)i].i];
    for (int o = 0; o < to->out_count; o++) {
        to->out[o] = r->graph->tensors.item[from->out.first + (uint32_t)o];
        to->out[o]->node = to;
    }
}

static bool read_nodes(reading *r)
{
    weir_graph *g = r->graph;
    for (uint32_t n = 0; n < r->plan->graph_nodes_count; n++) {
        const plan_graph_node *from = &r->plan->graph_nodes[n];
        graph_node *to = POOL_NEW(&g->pool, graph_node, 1), **at = POOL_PUSH(&g->pool, &g->nodes);
        if (!to || !at)
            return false;
        *at = to;
        read_members(r, to, from);
        to->in = POOL_NEW(&g->pool, weir_tensor *, to->in_count);
        to->out = POOL_NEW(&g->pool, weir_tensor *, to->out_count);
        to->attrs = from->attrs.count ? pool_copy(&g->pool, r->plan->graph_words + from->attrs.first,
                                                  from->attrs.count * sizeof(plan_word)) : NULL;
        if (g->pool.failed)
            return false;
        read_operands(r, to, from);
    }
    return true;
}

static void read_loss(const reading *r)
{
    if (!r->plan->graph_losses_count)
        return;
    const plan_graph_loss *loss = &r->plan->graph_losses[0];
    r->graph->loss = r->graph->tensors.item[loss->tensor.i];
    r->graph->loss_src = src_of(r, loss->file, loss->line);
}

static bool read_table(reading *r)
{
    weir_graph *g = r->graph;
    g->of_plan = true;
    r->texts = pool_copy(&g->pool, r->plan->graph_strings, r->plan->graph_strings_count);
    if (!r->texts || !read_programs(r) || !read_tensors(r) || !read_nodes(r))
        return false;
    read_loss(r);
    return true;
}

weir_status weir_plan_graph(const weir_plan *plan, weir_graph **graph)
{
    if (error_null(graph, "weir_plan_graph", "graph"))
        return WEIR_E_ARGUMENT;
    *graph = NULL;
    if (error_null(plan, "weir_plan_graph", "plan"))
        return WEIR_E_ARGUMENT;
    if (!plan->table_version)
        return error_set(WEIR_E_ARGUMENT, "the plan \"%s\" does not keep its graph: compile it with weir_compile(.keep_graph = true), or "
                         "give --with-graph to the program that saves it", plan_text(plan, plan->name));
    reading r = {.plan = plan, .graph = weir_graph_new(plan_text(plan, plan->name))};
    weir_status status = WEIR_OK;
    if (!r.graph || !read_table(&r))
        status = error_set(WEIR_E_MEMORY, "no memory for the graph of \"%s\"", plan_text(plan, plan->name));
    else if (graph_hash(r.graph) != plan->graph)
        status = error_set(WEIR_E_PLAN, "the graph that the plan \"%s\" keeps is another model's: its hash is %016llx, and the plan "
                           "says %016llx", plan_text(plan, plan->name), (unsigned long long)graph_hash(r.graph),
                           (unsigned long long)plan->graph);
    if (!status)
        *graph = r.graph;
    else
        weir_graph_free(r.graph);
    return status;
}
