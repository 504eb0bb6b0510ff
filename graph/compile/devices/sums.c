/* graph/compile/devices/sums.c: see the header. Devices of a group have the same part of the tensor, each a term of it. */
#include "graph/compile/devices/sums.h"
#include "graph/compile/sbp/sums.h"

/* The device's pop; false: no memory. */
static bool pop_make(compile *c, int n, int at)
{
    phys *p = &c->phys;
    const ir_node *node = &c->ir.node[n];
    pop *op = POOL_PUSH(&c->pool, &p->op);
    int *ends = POOL_NEW(&c->pool, int, 2);
    if (!op || !ends)
        return false;
    ends[0] = ptensor_at(p, node->in[0], at, 0);
    ends[1] = ptensor_at(p, node->out[0], at, 0);
    *op = (pop){.node = n, .device = p->tensor.item[ends[1]].device, .in_count = 1, .out_count = 1, .in = ends,
                .out = ends + 1, .phase = node->phase, .micro = node->micro, .queue = PLAN_COLLECTIVE,
                .exchange = NONE, .bytes_in = p->tensor.item[ends[0]].bytes, .bytes_out = p->tensor.item[ends[1]].bytes};
    p->tensor.item[ends[1]].producer = p->op.count - 1;
    return true;
}

/* The collective of the group whose first device is `at`. */
static bool group_make(compile *c, const ir_node *node, int first_pop, int axis, int at)
{
    phys *p = &c->phys;
    pcollective *of = POOL_PUSH(&c->pool, &p->collective);
    if (!of)
        return false;
    *of = (pcollective){.sum = node->sum};
    for (int k = 0; k < node->mesh->shape[axis]; k++) {
        int id = first_pop + at + k * sum_stride(node->mesh, axis), *member = POOL_PUSH(&c->pool, &of->members);
        if (!member)
            return false;
        *member = id;
        p->op.item[id].collective = p->collective.count - 1;
    }
    return true;
}

bool sum_lower(compile *c, int n)
{
    const ir_node *node = &c->ir.node[n];
    int first = c->phys.op.count;
    int axis = sum_axis(&c->ir.tensors.item[node->in[0]], &c->ir.tensors.item[node->out[0]]);
    for (int at = 0; at < node->mesh->count; at++)
        if (!pop_make(c, n, at))
            return false;
    for (int at = 0; at < node->mesh->count; at++)
        if (!mesh_coordinate(node->mesh, at, axis) && !group_make(c, node, first, axis, at))
            return false;
    return true;
}

int sum_sweep(compile *c, int last, bool *used)
{
    phys *p = &c->phys;
    int count = c->ir.node[p->op.item[last].node].mesh->count, first = last - count + 1;
    for (int i = first; i <= last; i++) {
        pcollective *of = &p->collective.item[p->op.item[i].collective];
        bool live = false, leads = of->members.count && of->members.item[0] == i;
        for (int m = 0; leads && m < of->members.count; m++)
            live |= used[p->op.item[of->members.item[m]].out[0]];
        for (int m = 0; leads && m < of->members.count; m++) {
            pop *op = &p->op.item[of->members.item[m]];
            op->dead = !live;
            used[op->in[0]] |= live;
        }
        of->members.count = leads && !live ? 0 : of->members.count;
    }
    return first;
}
