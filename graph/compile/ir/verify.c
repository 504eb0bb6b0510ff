/* graph/compile/ir/verify.c: see the header. */
#include "graph/compile/ir/verify.h"

static const ir_tensor *tensor_at(const compile *c, int t)
{
    return &c->ir.tensors.item[t];
}

static bool is_tensor(const compile *c, int t)
{
    return t >= 0 && t < c->ir.tensors.count;
}

bool list_has(const int *item, int count, int value)
{
    for (int i = 0; i < count; i++)
        if (item[i] == value)
            return true;
    return false;
}

static const char *node_broken(const compile *c, int n)
{
    const ir_node *node = &c->ir.node[n];
    for (int i = 0; i < node->in_count; i++) {
        if (!is_tensor(c, node->in[i]))
            return "a node reads a tensor that is not there";
        if (tensor_at(c, node->in[i])->node >= n && tensor_at(c, node->in[i])->update < 0)
            return "a node reads a tensor that is made behind it";
    }
    for (int o = 0; o < node->out_count; o++)
        if (!is_tensor(c, node->out[o]) || (tensor_at(c, node->out[o])->node != n && !tensor_at(c, node->out[o])->state_of))
            return "an output of a node doesn't know it";
    if (node->updates >= 0 && (!is_tensor(c, node->updates) || tensor_at(c, node->updates)->update != n))
        return "a parameter doesn't know the node that updates it";
    return NULL;
}

const char *verify_nodes(const compile *c, int *at)
{
    const char *broken = NULL;
    for (*at = 0; *at < c->ir.node_count; ++*at)
        if ((broken = node_broken(c, *at)))
            return broken;
    for (*at = 0; *at < c->ir.tensors.count; ++*at) {
        const ir_tensor *t = tensor_at(c, *at);
        if (t->node >= c->ir.node_count || t->update >= c->ir.node_count)
            return "a tensor's node is not there";
        if (t->node >= 0 && !list_has(c->ir.node[t->node].out, c->ir.node[t->node].out_count, *at))
            return "a tensor's node doesn't make it";
    }
    return NULL;
}
