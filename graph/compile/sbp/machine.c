/* graph/compile/sbp/machine.c: see the header. */
#include "graph/compile/sbp/machine.h"
#include "graph/time/fit.h"
#include "kernels/common/ops.h"

/* The model. */
#define FLOPS_PER_S 1e11    /* of one device */
#define MEMORY_PER_S 1e10   /* bytes that the kernels of one device read and write */
#define COPY_PER_S 8e9      /* bytes that a core copies */
#define LINK_PER_S 5e9      /* bytes between two devices */
#define LINK_S 1e-6         /* latency of one conversion */
#define DISK_PER_S 1e9      /* bytes to a disk, or from it */
#define DISK_S 20e-6        /* a call for it, and the thread that makes it woken */
#define PARTIAL_S 1e-7      /* a sum left open has to be closed some day */

/* A conversion's latency: until a device knows that another is done. */
static double hand_s(const weir_rates *rates)
{
    return rates && rates->worker ? (double)rates->worker / TIME_PS_S : LINK_S;
}

/* One device reads so many bytes and writes as many; `per_s`: the model's. */
static double moved_s(const weir_rates *rates, const weir_op *op, double bytes, double per_s)
{
    const double measured = rates ? seconds_of(rates, op->name, 0, 2 * bytes) : 0;
    return measured > 0 ? measured : bytes / per_s;
}

static double link_s(const weir_rates *rates, double bytes)
{
    return hand_s(rates) + moved_s(rates, &op_box, bytes, LINK_PER_S);
}

double convert_seconds(const weir_rates *rates, weir_sbp from, weir_sbp to, int parts, double longest, double bytes, bool same_mesh)
{
    double most = (parts - 1) * longest * bytes;
    if (!same_mesh)
        return link_s(rates, bytes * (from == WEIR_P ? 2 : 1) * (WEIR_IS_S(to) ? longest : 1));
    if (from == to || parts == 1)
        return 0;
    if (from == WEIR_B)
        return moved_s(rates, &op_box, bytes * (WEIR_IS_S(to) ? longest : 1.0 / parts), MEMORY_PER_S);
    if (to == WEIR_P)
        return moved_s(rates, &op_box, bytes, MEMORY_PER_S);
    if (from == WEIR_P)
        return (to == WEIR_B ? 2 : 1) * link_s(rates, most);
    if (to == WEIR_B)
        return link_s(rates, most);
    return link_s(rates, most / parts); /* S(i) -> S(j) */
}

double longest_share(const ir_tensor *t, const weir_mesh *mesh, const weir_sbp *sbp, int dim, int axis)
{
    int64_t left = t->type.shape.dim[dim], parts = mesh->shape[axis];
    for (int a = 0; a < axis; a++)
        if (sbp[a] == WEIR_S(dim))
            left = (left + mesh->shape[a] - 1) / mesh->shape[a];
    return left ? (double)((left + parts - 1) / parts) / (double)left : 1;
}

/* How operand i (of inputs, then outputs) lies by a signature. */
static weir_sbp operand_sbp(const ir_node *node, const weir_signature *s, int i)
{
    return i < node->in_count ? s->in[i] : s->out[i - node->in_count];
}

static const ir_tensor *operand(const ir_graph *ir, const ir_node *node, int i)
{
    return &ir->tensors.item[i < node->in_count ? node->in[i] : node->out[i - node->in_count]];
}

/* The share of operand i that one device works on at most. */
static double operand_share(const ir_graph *ir, const ir_node *node, int i, weir_sbp how, int axis)
{
    bool in = i < node->in_count;
    weir_sbp sbp[WEIR_AXES_MAX];
    for (int a = 0; a < axis; a++)
        sbp[a] = in ? node_in_sbp(node, i, a) : node_out_sbp(node, i - node->in_count, a);
    return WEIR_IS_S(how) ? longest_share(operand(ir, node, i), node->mesh, sbp, WEIR_S_DIM(how), axis) : 1;
}

/* The share of the node's work that one device does at most by this signature. */
static double compute_share(const ir_graph *ir, const ir_node *node, const weir_signature *s, int axis)
{
    double share = 1;
    for (int i = 0; i < node->in_count + node->out_count && share == 1; i++)
        share = operand_share(ir, node, i, operand_sbp(node, s, i), axis);
    return share;
}

static double operand_bytes(const ir_graph *ir, const ir_node *node, int i)
{
    const ir_tensor *t = operand(ir, node, i);
    const weir_dtype dtype = i < node->in_count ? node_reads(ir, node, i) : t->type.dtype;
    return (double)weir_shape_count(&t->type.shape) * (double)weir_dtype_bytes(dtype);
}

/* Seconds of one device that does such a share of the node, and whose operands have so many bytes. */
static double work_s(const weir_rates *rates, const ir_node *node, double share, double bytes)
{
    const bool counts = rates && node->mesh->kind == WEIR_CPU;
    const double most = bytes > share * node->cost.bytes ? bytes : share * node->cost.bytes;
    const double measured = counts ? seconds_of(rates, node->op->name, share * node->cost.flops, most) : 0;
    return measured > 0 ? measured : share * (node->cost.flops / FLOPS_PER_S + node->cost.bytes / MEMORY_PER_S);
}

double compute_seconds(const weir_rates *rates, const ir_graph *ir, const ir_node *node, const weir_signature *s, int axis)
{
    double partial = 0, bytes = 0;
    for (int o = 0; o < node->out_count; o++)
        partial += s->out[o] == WEIR_P ? PARTIAL_S : 0;
    for (int i = 0; i < node->in_count + node->out_count && rates; i++)
        bytes += operand_share(ir, node, i, operand_sbp(node, s, i), axis) * operand_bytes(ir, node, i);
    return work_s(rates, node, compute_share(ir, node, s, axis), bytes) + partial;
}

double node_seconds(const weir_rates *rates, const ir_graph *ir, const ir_node *node)
{
    double share = 1, bytes = 0;
    if (node->op == &op_box)
        return transfer_seconds(rates, shard_bytes(&ir->tensors.item[node->out[0]], 0));
    for (int a = 0; a < node->mesh->axes; a++)
        share *= compute_share(ir, node, &node->signature[node->choice[a]], a);
    for (int i = 0; i < node->in_count + node->out_count && rates; i++) {
        double part = operand_bytes(ir, node, i);
        for (int a = 0; a < node->mesh->axes; a++)
            part *= operand_share(ir, node, i, operand_sbp(node, &node->signature[node->choice[a]], i), a);
        bytes += part;
    }
    return work_s(rates, node, share, bytes);
}

double disk_seconds(uint64_t bytes)
{
    return DISK_S + (double)bytes / DISK_PER_S;
}

double transfer_seconds(const weir_rates *rates, uint64_t bytes)
{
    return link_s(rates, (double)bytes);
}

double copy_seconds(const weir_rates *rates, double bytes)
{
    return moved_s(rates, &op_copy, bytes, COPY_PER_S);
}
