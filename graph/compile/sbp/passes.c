/* graph/compile/sbp/passes.c: see the header. */
#include "graph/compile/sbp/passes.h"

static const char *choice_broken(const compile *c, const ir_node *node, int axis)
{
    if (node->choice[axis] < 0 || node->choice[axis] >= node->signature_count)
        return "a node has none of its signatures";
    for (int o = 0; o < node->out_count; o++)
        if (c->ir.tensors.item[node->out[o]].sbp[axis] != node_out_sbp(node, o, axis))
            return "an output of a node has another layout than the node makes";
    return NULL;
}

static const char *layout_broken(const ir_tensor *t, int axis)
{
    if (t->sbp[axis] == WEIR_AUTO)
        return "a tensor has no layout";
    if (t->fixed && t->fixed[axis] != WEIR_AUTO && t->mesh->shape[axis] > 1 && t->sbp[axis] != t->fixed[axis])
        return "a tensor has another layout than its user fixed";
    return NULL;
}

const char *verify_layouts(const compile *c, int *at)
{
    const char *broken = NULL;
    for (*at = 0; *at < c->ir.node_count; ++*at)
        for (int a = 0; a < c->ir.node[*at].mesh->axes; a++)
            if ((broken = choice_broken(c, &c->ir.node[*at], a)))
                return broken;
    for (*at = 0; *at < c->ir.tensors.count; ++*at)
        for (int a = 0; a < c->ir.tensors.item[*at].mesh->axes; a++)
            if ((broken = layout_broken(&c->ir.tensors.item[*at], a)))
                return broken;
    return NULL;
}

const char *verify_conversions(const compile *c, int *at)
{
    for (*at = 0; *at < c->ir.node_count; ++*at) {
        const ir_node *node = &c->ir.node[*at];
        for (int i = 0; i < node->in_count && node->origin; i++) {
            const ir_tensor *from = &c->ir.tensors.item[node->in[i]];
            weir_sbp read[WEIR_AXES_MAX] = {0};
            for (int a = 0; a < node->mesh->axes; a++)
                read[a] = node_in_sbp(node, i, a);
            if (!mesh_equal(from->mesh, node->mesh) || !sbp_equal(node->mesh, from->sbp, read))
                return "an input of a node lies otherwise than the node reads it";
        }
    }
    return verify_nodes(c, at);
}

const compile_pass layout_passes[] = {PASS(shard, verify_layouts), {NULL}};
const compile_pass conversion_passes[] = {PASS(box, verify_conversions), {NULL}};
