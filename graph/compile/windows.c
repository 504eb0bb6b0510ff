/* graph/compile/windows.c: see the header. Registers with several tensors, and temporaries that are taken over in place, are
 * left alone. */
#include "graph/compile/windows.h"
#include "graph/plan/window.h"

#include <stdlib.h>

typedef struct looking {
    compile *c;
    POOL_LIST(window_wish) found;
} looking;

/* The register that the pop reads input i from, if another group of its device fills it; else -1. */
static int own_reg(const phys *p, const pop *op, int i)
{
    const ptensor *t = &p->tensor.item[op->in[i]];
    int maker = t->reg >= 0 ? p->reg.item[t->reg].group : -1;
    return t->device == op->device && maker >= 0 && maker != op->group ? t->reg : -1;
}

static void look_at_input(looking *x, const pop *op, int i)
{
    const phys *p = &x->c->phys;
    const weir_plan *plan = x->c->known_of;
    int r = own_reg(p, op, i);
    window found;
    if (r < 0 || p->reg.item[r].slots != 1 || p->reg.item[r].tensors.count != 1 ||
        !window_find(plan, (plan_regst_id){p->reg.item[r].plan_id}, (plan_actor_id){(uint32_t)op->group}, &found) ||
        found.tensor.i != p->tensor.item[op->out[0]].plan_id || found.at % PLAN_ALIGN)
        return;
    window_wish *to = POOL_PUSH(&x->c->pool, &x->found);
    if (to)
        *to = (window_wish){op->device, r, op->out[0], p->reg.item[r].slot_bytes, found.at};
}

static int compare_wishes(const void *a, const void *b)
{
    const window_wish *x = a, *y = b;
    if (x->device != y->device)
        return x->device < y->device ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return (x->reg > y->reg) - (x->reg < y->reg);
}

bool windows_list(compile *c, window_list *list)
{
    looking x = {.c = c};
    for (int g = 0; g < c->phys.group.count; g++)
        for (int k = 0; k < c->phys.group.item[g].pops.count; k++) {
            const pop *op = &c->phys.op.item[c->phys.group.item[g].pops.item[k]];
            for (int i = 0; i < op->in_count && pop_op(c, op)->stays; i++)
                look_at_input(&x, op, i);
        }
    if (x.found.count)
        qsort(x.found.item, (size_t)x.found.count, sizeof *x.found.item, compare_wishes);
    *list = (window_list){x.found.item, x.found.count};
    return !c->pool.failed;
}

life windows_life(const compile *c, const block *b)
{
    if (b->reg >= 0)
        return (life){.regst = {c->phys.reg.item[b->reg].plan_id}, .actor = {PLAN_NONE}};
    return (life){
        .regst = {PLAN_NONE}, .actor = {(uint32_t)b->group}, .from = (uint32_t)b->from, .to = (uint32_t)b->to};
}

/* The part that the tensor is placed with, and where in it; NULL: it is placed in another way. */
static block *host_of(phys *p, const ptensor *t, uint64_t *at)
{
    if (t->reg >= 0) {
        *at += t->offset;
        return p->reg.item[t->reg].placed;
    }
    block *b = t->block >= 0 ? &p->temp.item[t->block] : NULL;
    return b && b->shares && b->tensors == 1 ? b : NULL;
}

static bool enter(compile *c, const lives *known, const window_wish *w)
{
    block *guest = c->phys.reg.item[w->reg].placed;
    uint64_t at = w->at;
    block *host = host_of(&c->phys, &c->phys.tensor.item[w->tensor], &at);
    if (!guest || !host || guest->host || guest->guest || host->host || at % PLAN_ALIGN ||
        at > host->bytes || guest->bytes > host->bytes - at)
        return false;
    life part = windows_life(c, guest), whole = windows_life(c, host);
    if (!lives_in_turn(known, &whole, &part))
        return false;
    guest->host = host;
    guest->at = at;
    guest->next = host->guest;
    host->guest = guest;
    return true;
}

int windows_enter(compile *c, const lives *known, const window_list *list, int device)
{
    int count = 0;
    for (int i = 0; i < list->count; i++)
        if (list->item[i].device == device)
            count += enter(c, known, &list->item[i]);
    return count;
}

void windows_leave(compile *c, const window_list *list, int device)
{
    for (int i = 0; i < list->count; i++) {
        block *guest = list->item[i].device == device ? c->phys.reg.item[list->item[i].reg].placed : NULL;
        if (guest && guest->host)
            guest->host = guest->host->guest = NULL;
    }
}
