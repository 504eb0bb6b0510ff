/* graph/compile/memory/temps.c: see the header. */
#include "graph/compile/memory/temps.h"
#include "kernels/common/ops.h"
#include "kernels/cuda/list.h"

typedef struct finding {
    compile *c;
    temps *to;
    int group;
    int *position;                 /* by pop: in its group */
} finding;

static bool is_temp(const phys *p, int tensor, int group_id)
{
    const ptensor *t = &p->tensor.item[tensor];
    return t->reg < 0 && !t->parameter && t->producer >= 0 && p->op.item[t->producer].group == group_id;
}

static int last_use(const finding *x, const ptensor *t)
{
    int last = x->position[t->producer];
    for (int r = 0; r < t->readers.count; r++)
        if (x->position[t->readers.item[r]] > last)
            last = x->position[t->readers.item[r]];
    return last;
}

/* Whether element i of both lies at the same bytes: a repeated operand, or one of narrower elements, would be
 * overwritten before it is read. */
static bool same_elements(const compile *c, const ptensor *a, const ptensor *b)
{
    const weir_type *x = &c->ir.tensors.item[a->tensor].type, *y = &c->ir.tensors.item[b->tensor].type;
    int64_t count_a = 1, count_b = 1;
    for (int d = 0; d < WEIR_DIMS_MAX; d++) {
        count_a *= d < x->shape.rank ? a->part.count[d] : 1;
        count_b *= d < y->shape.rank ? b->part.count[d] : 1;
    }
    return count_a == count_b && weir_dtype_bytes(x->dtype) == weir_dtype_bytes(y->dtype);
}

/* The block of the input that the pop may overwrite with its first output, or -1. */
static int block_in_place(const finding *x, const pop *op, int at, int out)
{
    const phys *p = &x->c->phys;
    int k = pop_op(x->c, op)->inplace - 1;
    if (out != 0 || k < 0 || k >= op->in_count || op->accumulate || p->tensor.item[op->out[0]].family != NONE)
        return NONE;
    int in = op->in[k];
    const ptensor *from = &p->tensor.item[in], *to = &p->tensor.item[op->out[0]];
    const int of = x->to->of_tensor[in];
    if (!is_temp(p, in, op->group) || of < 0 || from->family != NONE || !same_elements(x->c, from, to))
        return NONE;
    return x->to->list.item[of].to == at && last_use(x, from) == at ? of : NONE;
}

static int block_new(finding *x, uint64_t bytes, int from, int to)
{
    block *b = POOL_PUSH(&x->c->pool, &x->to->list);
    if (b)
        *b = (block){.reg = NONE, .group = x->group, .bytes = bytes, .from = from, .to = to, .tensors = 0};
    return x->to->list.count - 1;
}

/* The block of a family, beside each other; its own, where not all of the family are temporaries of the group. */
static int family_block(finding *x, const ptensor *t, int at)
{
    const phys *p = &x->c->phys;
    const family *f = &p->family.item[t->family];
    int *of_all = &x->to->of_family[t->family], last = at;
    for (int i = 0; i < f->count && *of_all < 0; i++) {
        if (!is_temp(p, f->tensor[i], x->group))
            return block_new(x, t->bytes, at, last_use(x, t));
        const int use = last_use(x, &p->tensor.item[f->tensor[i]]);
        last = use > last ? use : last;
    }
    return *of_all < 0 ? *of_all = block_new(x, t->bytes * (uint64_t)f->count, at, last) : *of_all;
}

/* Whether the group has a pop of the same op there. */
static bool is_alike(const finding *x, const pop *op, int at)
{
    const phys *p = &x->c->phys;
    const group *g = &p->group.item[x->group];
    return at >= 0 && at < g->pops.count &&
           x->c->ir.node[p->op.item[g->pops.item[at]].node].op == x->c->ir.node[op->node].op;
}

/* Whether calls of the op, one behind the other, may be one launch on cards (actors/session/queues.c). */
static bool is_joined(const weir_op *op)
{
#define X(name) || op == &op_##name
    return false CUDA_JOINED(X);
#undef X
}

/* Calls that may be one launch have a scratch each. */
static void find_scratch(finding *x, int id, int at)
{
    const pop *op = &x->c->phys.op.item[id];
    int first = at, last = at;
    bool joins = x->c->phys.device.item[op->device].kind == WEIR_CUDA && is_joined(x->c->ir.node[op->node].op);
    while (joins && is_alike(x, op, first - 1))
        first--;
    while (joins && is_alike(x, op, last + 1))
        last++;
    x->to->of_scratch[id] = block_new(x, op->scratch, first, last);
}

static void find_in_pop(finding *x, int id, int at)
{
    const phys *p = &x->c->phys;
    const pop *op = &p->op.item[id];
    for (int o = 0; o < op->out_count; o++) {
        if (!is_temp(p, op->out[o], op->group))
            continue;
        const ptensor *t = &p->tensor.item[op->out[o]];
        int last = last_use(x, t), of = t->family != NONE ? family_block(x, t, at) : block_in_place(x, op, at, o);
        if (of < 0)
            of = block_new(x, t->bytes, at, last);
        if (x->c->pool.failed)
            return;
        x->to->of_tensor[op->out[o]] = of;
        if (last > x->to->list.item[of].to)
            x->to->list.item[of].to = last;
        x->to->list.item[of].tensors++;
    }
    if (op->scratch)
        find_scratch(x, id, at);
}

/* `count` times "none". */
static int *no_blocks(compile *c, int count)
{
    int *list = POOL_NEW(&c->pool, int, count + 1);
    for (int i = 0; i < count && list; i++)
        list[i] = NONE;
    return list;
}

bool temps_find(compile *c, temps *to)
{
    const phys *p = &c->phys;
    *to = (temps){.of_tensor = no_blocks(c, p->tensor.count), .of_scratch = no_blocks(c, p->op.count),
                  .of_family = no_blocks(c, p->family.count)};
    finding x = {.c = c, .to = to, .position = POOL_NEW(&c->pool, int, p->op.count + 1)};
    for (x.group = 0; x.group < p->group.count && !c->pool.failed; x.group++) {
        const group *g = &p->group.item[x.group];
        for (int i = 0; i < g->pops.count; i++)
            x.position[g->pops.item[i]] = i;
        for (int i = 0; i < g->pops.count && !c->pool.failed; i++)
            find_in_pop(&x, g->pops.item[i], i);
    }
    return !c->pool.failed;
}
