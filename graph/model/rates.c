/* graph/model/rates.c: from once a micro-batch to once a step, and back.
 *
 * Both are what registers can do anyway: a batch is made as a sum of gradients is, M firings fill one slot and publish
 * it once, each its own row of it; and who takes it apart reads one slot for M firings, as a parameter is read.
 */
#include "graph/model/build.h"
#include "kernels/core/core.h"
#include "kernels/common/ops.h"

weir_tensor *weir_batch_at(weir_tensor *x, int64_t n, weir_src src)
{
    if (!x)
        graph_mistake(NULL, src, "batch: the tensor is NULL");
    if (!x || x->poisoned)
        return x;
    if (!x->micro)
        return weir_mistake(x, src, "batch: \"%s\" exists once a step; only a tensor that depends on a .micro input can be batched", x->name);
    batch_attrs attrs = {.values = n};
    graph_node *node =
        graph_apply(&(weir_apply){.src = src, .op = &op_batch, .in = &x, .in_count = 1, .attrs = &attrs});
    if (!node)
        return &x->graph->poison;
    node->fills = true;
    node->out[0]->micro = node->out[0]->trains = false;
    return node->out[0];
}

weir_tensor *graph_step_sum(weir_tensor *each, const char *name)
{
    if (!each->micro)
        return each;
    weir_scope scope = graph_scope_absolute(each->graph, each->mesh, "");
    graph_node *node =
        graph_apply(&(weir_apply){.src = each->src, .name = name, .op = &op_accumulate, .in = &each, .in_count = 1});
    weir_scope_leave(&scope);
    if (!node)
        return NULL;
    node->fills = true;
    node->out[0]->micro = false;
    return node->out[0];
}

weir_tensor *weir_unbatch_at(weir_tensor *x, weir_src src)
{
    if (!x)
        graph_mistake(NULL, src, "unbatch: the tensor is NULL");
    if (!x || x->poisoned)
        return x;
    if (x->micro)
        return weir_mistake(x, src, "unbatch: \"%s\" exists once for every micro-batch already; only a tensor that exists once a step can be taken apart", x->name);
    graph_node *node = graph_apply(&(weir_apply){.src = src, .op = &op_unbatch, .in = &x, .in_count = 1});
    if (!node)
        return &x->graph->poison;
    node->micro = node->out[0]->micro = true;
    node->out[0]->trains = false;
    return node->out[0];
}
