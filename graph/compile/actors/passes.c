/* graph/compile/actors/passes.c: see the header. */
#include "graph/compile/actors/passes.h"

static const char *group_broken(const compile *c, int g, int *calls)
{
    const group *from = &c->phys.group.item[g];
    for (int i = 0; i < from->pops.count; i++) {
        const pop *op = &c->phys.op.item[from->pops.item[i]];
        *calls += !op->dead; /* those that batch and epilogue joined stay in the list, up to fuse */
        if (op->group != g)
            return "a group has a call that is in another group";
        if (op->device != from->device || op->phase != from->phase || op->micro != from->micro || op->depth != from->depth ||
            c->ir.node[op->node].program != from->program)
            return "a call has another device, phase, rate, depth or program than its group";
    }
    return NULL;
}

static const char *read_broken(const compile *c, const pop *op, int tensor)
{
    const phys *p = &c->phys;
    const ptensor *t = &p->tensor.item[ptensor_real(p, tensor)];
    const group *reader = &p->group.item[op->group];
    if (t->reg < 0)
        return t->producer >= 0 && p->op.item[t->producer].group == op->group ? NULL
               : "a tensor that leaves its group has no register";
    const reg *r = &p->reg.item[t->reg];
    return r->group == op->group || (list_has(r->readers.item, r->readers.count, op->group) &&
                                     list_has(reader->reads.item, reader->reads.count, t->reg))
               ? NULL : "a register and a group that reads it don't know each other";
}

static const char *reg_broken(const compile *c, int id)
{
    const reg *r = &c->phys.reg.item[id];
    uint64_t end = 0;
    for (int i = 0; i < r->tensors.count; i++) {
        const ptensor *t = &c->phys.tensor.item[r->tensors.item[i]];
        if (t->within != NONE)
            continue; /* it lies in one of the others */
        if (t->reg != id || t->device != r->device || t->offset != end)
            return "the tensors of a register don't lie one behind the other";
        if (t->producer >= 0 && c->phys.op.item[t->producer].group != r->group)
            return "a register has a tensor of another group";
        end += t->bytes;
    }
    return r->slot_bytes == end ? NULL : "a register has other bytes than its tensors";
}

const char *verify_groups(const compile *c, int *at)
{
    const phys *p = &c->phys;
    const char *broken = NULL;
    int calls = 0;
    for (*at = 0; *at < p->group.count; ++*at)
        if ((broken = group_broken(c, *at, &calls)))
            return broken;
    for (*at = 0; *at < p->op.count; ++*at) {
        const pop *op = &p->op.item[*at];
        calls -= !op->dead;
        for (int i = 0; i < op->in_count && !op->dead; i++)
            if ((broken = read_broken(c, op, op->in[i])))
                return broken;
    }
    if (calls)
        return "a call is in no group";
    for (*at = 0; *at < p->reg.count; ++*at)
        if ((broken = reg_broken(c, *at)))
            return broken;
    return NULL;
}

const char *verify_slots(const compile *c, int *at)
{
    for (*at = 0; *at < c->phys.reg.count; ++*at) {
        const reg *r = &c->phys.reg.item[*at];
        if (r->slots < 1 || r->slots < r->initial)
            return "a register has fewer slots than are full at the start, or none";
    }
    return verify_groups(c, at);
}

const char *verify_order(const compile *c, int *at)
{
    int64_t sum = 0, count = c->phys.group.count;
    for (*at = 0; *at < count; ++*at) {
        const int priority = c->phys.group.item[*at].priority;
        if (priority < 0 || priority >= count)
            return "a group's priority is no place in the order of all";
        sum += priority;
    }
    return sum == count * (count - 1) / 2 ? NULL : "two groups have one priority";
}

const compile_pass actor_passes[] = {PASS(families, NULL), PASS(group, verify_groups), PASS(sequence, verify_groups),
                             PASS(batch, verify_groups), PASS(epilogue, verify_groups), PASS(fuse, verify_groups),
                             PASS(tie, verify_groups), PASS(slots, verify_slots), PASS(order, verify_order), {NULL}};
