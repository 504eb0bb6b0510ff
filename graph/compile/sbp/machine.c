/* graph/compile/sbp/machine.c: see the header. */
#include "graph/compile/sbp/machine.h"
#include "kernels/common/ops.h"

#define FLOPS_PER_S 1e11    /* of one device */
#define MEMORY_PER_S 1e10   /* bytes that the kernels of one device read and write */
#define COPY_PER_S 8e9      /* bytes that a core copies */
#define LINK_PER_S 5e9      /* bytes between two devices */
#define LINK_S 1e-6         /* latency of one conversion */
#define DISK_PER_S 1e9      /* bytes to a disk, or from it */
#define DISK_S 20e-6        /* a call for it, and the thread that makes it woken */
#define PARTIAL_S 1e-7      /* a sum left open has to be closed some day */

double convert_seconds(weir_sbp from, weir_sbp to, int parts, double longest, double bytes, bool same_mesh)
{
    double most = (parts - 1) * longest * bytes;
    if (!same_mesh)
        return LINK_S + bytes * (from == WEIR_P ? 2 : 1) * (WEIR_IS_S(to) ? longest : 1) / LINK_PER_S;
    if (from == to || parts == 1)
        return 0;
    if (from == WEIR_B)
        return bytes * (WEIR_IS_S(to) ? longest : 1.0 / parts) / MEMORY_PER_S;
    if (to == WEIR_P)
        return bytes / MEMORY_PER_S;
    if (from == WEIR_P)
        return (to == WEIR_B ? 2 : 1) * (LINK_S + most / LINK_PER_S);
    if (to == WEIR_B)
        return LINK_S + most / LINK_PER_S;
    return LINK_S + most / parts / LINK_PER_S; /* S(i) -> S(j) */
}

double longest_share(const ir_tensor *t, const weir_mesh *mesh, const weir_sbp *sbp, int dim, int axis)
{
    int64_t left = t->type.shape.dim[dim], parts = mesh->shape[axis];
    for (int a = 0; a < axis; a++)
        if (sbp[a] == WEIR_S(dim))
            left = (left + mesh->shape[a] - 1) / mesh->shape[a];
    return left ? (double)((left + parts - 1) / parts) / (double)left : 1;
}

/* The share of operand i (of inputs, then outputs) that one device works on at most. */
static double operand_share(const ir_graph *ir, const ir_node *node, int i, weir_sbp how, int axis)
{
    bool in = i < node->in_count;
    weir_sbp sbp[WEIR_AXES_MAX];
    for (int a = 0; a < axis; a++)
        sbp[a] = in ? node_in_sbp(node, i, a) : node_out_sbp(node, i - node->in_count, a);
    const ir_tensor *t = &ir->tensors.item[in ? node->in[i] : node->out[i - node->in_count]];
    return WEIR_IS_S(how) ? longest_share(t, node->mesh, sbp, WEIR_S_DIM(how), axis) : 1;
}

/* The share of the node's work that one device does at most by this signature. */
static double compute_share(const ir_graph *ir, const ir_node *node, const weir_signature *s, int axis)
{
    double share = 1;
    for (int i = 0; i < node->in_count && share == 1; i++)
        share = operand_share(ir, node, i, s->in[i], axis);
    for (int o = 0; o < node->out_count && share == 1; o++)
        share = operand_share(ir, node, node->in_count + o, s->out[o], axis);
    return share;
}

/* Seconds of the whole node on one device. */
static double work_s(const ir_node *node)
{
    return node->cost.flops / FLOPS_PER_S + node->cost.bytes / MEMORY_PER_S;
}

double compute_seconds(const ir_graph *ir, const ir_node *node, const weir_signature *s, int axis)
{
    double partial = 0;
    for (int o = 0; o < node->out_count; o++)
        partial += s->out[o] == WEIR_P ? PARTIAL_S : 0;
    return compute_share(ir, node, s, axis) * work_s(node) + partial;
}

double node_seconds(const ir_graph *ir, const ir_node *node)
{
    double share = 1;
    if (node->op == &op_box) {
        const ir_tensor *to = &ir->tensors.item[node->out[0]];
        return LINK_S + (double)shard_bytes(to, 0) / LINK_PER_S;
    }
    for (int a = 0; a < node->mesh->axes; a++)
        share *= compute_share(ir, node, &node->signature[node->choice[a]], a);
    return share * work_s(node);
}

double disk_seconds(uint64_t bytes)
{
    return DISK_S + (double)bytes / DISK_PER_S;
}

double transfer_seconds(uint64_t bytes)
{
    return LINK_S + (double)bytes / LINK_PER_S;
}

double copy_seconds(double bytes)
{
    return bytes / COPY_PER_S;
}
