/* graph/compile/actors/hosts_arrive.c: what arrives from other hosts, in how many bytes: see hosts.h.
 *
 * A plan does not say it, since it depends on how ranks are spread (transport/line/links.h). Where hosts are known it is
 * counted for each kernel that reads, though those of one rank that read the same get it once, and what is gathered may
 * come to where it is to lie (graph/plan/lives/arrivals.h). So it is this at most.
 */
#include "graph/compile/actors/hosts.h"

#include "graph/base/base.h"
#include "kernels/common/ops.h"

/* Where both are cut from tensors of one shape. */
static uint64_t bytes_met(const slice *a, const slice *b, int rank)
{
    uint64_t count = 1;
    for (int d = 0; d < rank; d++) {
        int64_t start = a->start[d] > b->start[d] ? a->start[d] : b->start[d];
        int64_t a_end = a->start[d] + a->count[d], b_end = b->start[d] + b->count[d];
        int64_t end = a_end < b_end ? a_end : b_end;
        count *= end > start ? (uint64_t)(end - start) : 0;
    }
    return count;
}

/* The bytes that the kernel reads as its input. A conversion reads what meets its output. */
static uint64_t bytes_read(const compile *c, const pop *op, const ptensor *in)
{
    const ptensor *out = op->out_count ? &c->phys.tensor.item[op->out[0]] : NULL;
    const weir_type *type = &c->ir.tensors.item[in->tensor].type;
    if (!out || pop_op(c, op) != &op_box || !weir_shape_equal(&type->shape, &c->ir.tensors.item[out->tensor].type.shape))
        return in->bytes;
    uint64_t bytes = bytes_met(&in->part, &out->part, type->shape.rank) * weir_dtype_bytes(type->dtype);
    return (bytes + PLAN_ALIGN - 1) / PLAN_ALIGN * PLAN_ALIGN;
}

/* The bytes of one kernel's inputs that lie on other hosts, all slots. */
static uint64_t bytes_arriving(const compile *c, const pop *op)
{
    const phys *p = &c->phys;
    uint64_t bytes = 0;
    for (int i = 0; i < op->in_count; i++) {
        const ptensor *in = &p->tensor.item[op->in[i]];
        if (in->reg >= 0 && host_of(c, p->reg.item[in->reg].device) != host_of(c, op->device))
            bytes += (uint64_t)p->reg.item[in->reg].slots * bytes_read(c, op, in);
    }
    return bytes;
}

/* On each host but its own, by the first device there. */
static void pulled_arrives(compile *c, const pop *op)
{
    phys *p = &c->phys;
    const ptensor *in = &p->tensor.item[op->in[0]];
    if (in->reg < 0)
        return;
    for (int d = 0; d < p->device.count; d++)
        if (is_first_of_host(c, d) && host_of(c, d) != host_of(c, op->device))
            p->device.item[d].arriving += (uint64_t)p->reg.item[in->reg].slots * in->bytes;
}

void hosts_arriving(compile *c)
{
    phys *p = &c->phys;
    for (int d = 0; d < p->device.count; d++)
        p->device.item[d].arriving = 0;
    for (int i = 0; c->link && i < p->op.count; i++) {
        const pop *op = &p->op.item[i];
        if (op->dead)
            continue;
        p->device.item[op->device].arriving += bytes_arriving(c, op);
        if (is_pull(c, op))
            pulled_arrives(c, op);
    }
}

bool hosts_send(const compile *c, const reg *r, int device)
{
    const phys *p = &c->phys;
    for (int i = 0; c->link && i < r->readers.count; i++) {
        const group *reader = &p->group.item[r->readers.item[i]];
        bool pulled = is_pull(c, &p->op.item[reader->pops.item[0]]) && is_first_of_host(c, device);
        if ((reader->device == device || pulled) && host_of(c, device) != host_of(c, r->device))
            return true;
    }
    return false;
}
