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

static bool list_has(const int *item, int count, int value)
{
    for (int i = 0; i < count; i++)
        if (item[i] == value)
            return true;
    return false;
}

/* ---- the logical form ---- */

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
        if (!is_tensor(c, node->out[o]) || tensor_at(c, node->out[o])->node != n)
            return "an output of a node doesn't know it";
    if (node->updates >= 0 && (!is_tensor(c, node->updates) || tensor_at(c, node->updates)->update != n))
        return "a parameter doesn't know the node that updates it";
    return NULL;
}

const char *verify_nodes(const compile *c, int *at)
{
    const char *broken = NULL;
    for (*at = 0; *at < c->ir.node_count && !broken; ++*at)
        broken = node_broken(c, *at);
    for (*at = 0; *at < c->ir.tensors.count && !broken; ++*at) {
        const ir_tensor *t = tensor_at(c, *at);
        if (t->node >= c->ir.node_count || t->update >= c->ir.node_count)
            broken = "a tensor's node is not there";
        else if (t->node >= 0 && !list_has(c->ir.node[t->node].out, c->ir.node[t->node].out_count, *at))
            broken = "a tensor's node doesn't make it";
    }
    return broken;
}

const char *verify_dtypes(const compile *c, int *at)
{
    for (*at = 0; *at < c->ir.node_count; ++*at) {
        const ir_node *node = &c->ir.node[*at];
        for (int i = 0; i < node->in_count; i++)
            if (weir_dtype_real(node_reads(&c->ir, node, i)) != weir_dtype_real(tensor_at(c, node->in[i])->type.dtype))
                return "a node reads real numbers as integers, or the other way round";
    }
    return verify_nodes(c, at);
}

const char *verify_rules(const compile *c, int *at)
{
    for (*at = 0; *at < c->ir.node_count; ++*at) {
        const ir_node *node = &c->ir.node[*at];
        if (node->signature_count < 1)
            return "a node has no signature";
        for (int i = 0; i < node->in_count; i++)
            if (node->signature[0].in[i] != WEIR_B)
                return "the first signature of a node splits an input";
    }
    return NULL;
}

static const char *choice_broken(const compile *c, const ir_node *node, int axis)
{
    if (node->choice[axis] < 0 || node->choice[axis] >= node->signature_count)
        return "a node has none of its signatures";
    for (int o = 0; o < node->out_count; o++)
        if (tensor_at(c, node->out[o])->sbp[axis] != node_out_sbp(node, o, axis))
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
        for (int a = 0; a < tensor_at(c, *at)->mesh->axes; a++)
            if ((broken = layout_broken(tensor_at(c, *at), a)))
                return broken;
    return NULL;
}

const char *verify_conversions(const compile *c, int *at)
{
    for (*at = 0; *at < c->ir.node_count; ++*at) {
        const ir_node *node = &c->ir.node[*at];
        for (int i = 0; i < node->in_count && node->origin; i++) {
            const ir_tensor *from = tensor_at(c, node->in[i]);
            weir_sbp read[WEIR_AXES_MAX] = {0};
            for (int a = 0; a < node->mesh->axes; a++)
                read[a] = node_in_sbp(node, i, a);
            if (from->mesh != node->mesh || !sbp_equal(node->mesh, from->sbp, read))
                return "an input of a node lies otherwise than the node reads it";
        }
    }
    return verify_nodes(c, at);
}

/* ---- the devices' form ---- */

const char *verify_calls(const compile *c, int *at)
{
    const phys *p = &c->phys;
    for (*at = 0; *at < p->op.count; ++*at) {
        const pop *op = &p->op.item[*at];
        for (int i = 0; i < op->in_count && !op->dead; i++) {
            const ptensor *t = &p->tensor.item[ptensor_whole(p, ptensor_real(p, op->in[i]))];
            if (!list_has(t->readers.item, t->readers.count, *at))
                return "a shard doesn't know a call that reads it";
        }
        for (int o = 0; o < op->out_count && !op->dead; o++) {
            const ptensor *t = &p->tensor.item[op->out[o]];
            if (t->device != op->device || t->producer != *at)
                return "a shard is on another device than the call that makes it, or doesn't know it";
        }
    }
    return NULL;
}

static const char *group_broken(const compile *c, int g, int *calls)
{
    const group *from = &c->phys.group.item[g];
    for (int i = 0; i < from->pops.count; i++, ++*calls) {
        const pop *op = &c->phys.op.item[from->pops.item[i]];
        if (op->dead || op->group != g)
            return "a group has a call that is dead, or in another group";
        if (op->device != from->device || op->phase != from->phase || op->micro != from->micro || op->level != from->level ||
            c->ir.node[op->node].program != from->program)
            return "a call has another device, phase, rate, level or program than its group";
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
