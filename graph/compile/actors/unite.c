/* graph/compile/actors/unite.c: see the header. */
#include "graph/compile/actors/unite.h"

bool unite_calls(const compile *c, int id, const weir_op *op, int where)
{
    const pop *p = pop_of(c, id);
    return pop_op(c, p) == op && p->group == where && !p->dead && !p->accumulate && !p->waits.count && !p->awaited;
}

static bool is_one_of(const union_call *u, int id)
{
    for (int i = 0; i < u->count; i++)
        if (u->pop[i] == id)
            return true;
    return false;
}

/* Whether what a later pop reads is there when the early one runs, or made by it. */
static bool inputs_there(const compile *c, const union_call *u, const pop *late, const int *position)
{
    for (int i = 0; i < late->in_count; i++) {
        const ptensor *t = tensor_of(c, late->in[i]);
        const bool here = t->producer >= 0 && pop_of(c, t->producer)->group == late->group;
        if (here && !is_one_of(u, t->producer) && (t->parameter || position[t->producer] >= position[u->pop[0]]))
            return false;
    }
    return true;
}

/* Outputs are no parameters, and lie in no other tensor. */
static bool outputs_plain(const compile *c, const union_call *u)
{
    for (int o = 0; o < u->out_count; o++)
        if (tensor_of(c, u->out[o])->parameter || tensor_of(c, u->out[o])->within != NONE)
            return false;
    return true;
}

/* Whether the rule of the one op allows the call; its workspace is known then. */
static bool fits(const compile *c, const union_call *u, uint64_t *workspace)
{
    pop call = *u->product;
    weir_type types[2 * UNITED_OPERANDS];
    char error[256];
    call.in = (int *)u->in;
    call.in_count = u->in_count;
    call.out = (int *)u->out;
    call.out_count = u->out_count;
    pop_types(c, &call, types);
    const weir_op_args local = {u->op, types, u->in_count, types + u->in_count, u->out_count, call.attrs};
    if (!u->op->fits(&local, error, sizeof error))
        return false;
    *workspace = round_up(u->op->workspace(&local, device_kernels(c->phys.device.item[call.device].kind)));
    return true;
}

/* In the list the one call stands for all of them, once; `reads`: it is there at all. */
static void settle_readers(ptensor *t, const union_call *u, bool reads)
{
    int kept = 0;
    for (int r = 0; r < t->readers.count; r++) {
        const bool theirs = is_one_of(u, t->readers.item[r]);
        if (!theirs || reads)
            t->readers.item[kept++] = theirs ? u->pop[0] : t->readers.item[r];
        reads &= !theirs;
    }
    t->readers.count = kept;
}

static void join(compile *c, const union_call *u, uint64_t workspace)
{
    pop *early = pop_of(c, u->pop[0]);
    const char *name = pool_text(&c->pool, "%s %s..%s", u->says, c->ir.node[early->node].name, u->last);
    int *in = pool_copy(&c->pool, u->in, sizeof *in * (size_t)u->in_count);
    int *out = pool_copy(&c->pool, u->out, sizeof *out * (size_t)u->out_count);
    if (!name || !in || !out)
        return;
    for (int i = 0; i < u->in_count; i++)
        settle_readers(tensor_of(c, in[i]), u, true);
    for (int o = 0; o < u->out_count; o++) {
        settle_readers(tensor_of(c, out[o]), u, false);
        tensor_of(c, out[o])->producer = u->pop[0];
    }
    if (u->inner >= 0) {
        tensor_of(c, u->inner)->producer = NONE;
        tensor_of(c, u->inner)->readers.count = 0;
    }
    early->attrs = u->product->attrs;
    early->fused = u->op;
    early->fused_name = name;
    early->in = in;
    early->in_count = u->in_count;
    early->out = out;
    early->out_count = u->out_count;
    early->scratch = workspace;
    for (int i = 1; i < u->count; i++)
        pop_of(c, u->pop[i])->dead = true;
}

bool unite(compile *c, const union_call *u, const int *position)
{
    uint64_t workspace = 0;
    for (int i = 1; i < u->count; i++)
        if (!inputs_there(c, u, pop_of(c, u->pop[i]), position))
            return false;
    if (!outputs_plain(c, u) || !fits(c, u, &workspace))
        return false;
    join(c, u, workspace);
    return true;
}
