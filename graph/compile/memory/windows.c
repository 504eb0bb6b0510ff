/* graph/compile/memory/windows.c: see the header. Registers with several tensors, and temporaries that are taken over in place, are
 * left alone. */
#include "graph/compile/memory/windows.h"
#include "graph/plan/lives/window.h"

#include <stdlib.h>

typedef struct looking {
    const offsets *of;
    compile *c;
    POOL_LIST(window_wish) found;
} looking;

static void wish_for(looking *x, int r, int tensor, const window *w, bool onto)
{
    const phys *p = &x->c->phys;
    window_wish *to = w->at % PLAN_ALIGN ? NULL : POOL_PUSH(&x->c->pool, &x->found);
    if (to)
        *to = (window_wish){p->reg.item[r].device, r, tensor, onto, p->reg.item[r].slot_bytes, w->at, NONE};
}

/* The register of the tensor, if it has one slot and another group of the pop's device fills it; else -1. */
static int reg_from(const phys *p, const pop *op, int tensor)
{
    const ptensor *t = &p->tensor.item[tensor];
    int r = t->device == op->device ? t->reg : NONE;
    return r >= 0 && p->reg.item[r].group >= 0 && p->reg.item[r].group != op->group && p->reg.item[r].slots == 1 ? r : NONE;
}

static void look_at_share(looking *x, const pop *op, int i)
{
    const phys *p = &x->c->phys;
    int r = reg_from(p, op, op->in[i]);
    window found;
    if (r >= 0 && p->reg.item[r].tensors.count == 1 &&
        window_find(x->of->plan, (plan_regst_id){p->reg.item[r].plan_id}, (plan_actor_id){(uint32_t)op->group},
                    &found) &&
        found.tensor.i == p->tensor.item[op->out[0]].plan_id)
        wish_for(x, r, op->out[0], &found, false);
}

static void look_at_term(looking *x, const pop *op, int i)
{
    const phys *p = &x->c->phys;
    int term = reg_from(p, op, op->in[i]), sum = p->tensor.item[op->out[0]].reg;
    window found;
    if (term >= 0 && sum >= 0 && p->reg.item[sum].group == op->group &&
        window_onto(x->of->plan, x->of->known, (plan_regst_id){p->reg.item[sum].plan_id},
                    (plan_regst_id){p->reg.item[term].plan_id}, &found) &&
        found.tensor.i == p->tensor.item[op->in[i]].plan_id)
        wish_for(x, sum, op->in[i], &found, true);
}

static void look_at(looking *x, const pop *op)
{
    for (int i = 0; i < op->in_count; i++) {
        if (pop_op(x->c, op)->stays)
            look_at_share(x, op, i);
        if (pop_op(x->c, op)->onto)
            look_at_term(x, op, i);
    }
}

static int compare_wishes(const void *a, const void *b)
{
    const window_wish *x = a, *y = b;
    if (x->device != y->device)
        return x->device < y->device ? -1 : 1;
    if (x->onto != y->onto)
        return x->onto ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return x->reg != y->reg ? (x->reg > y->reg) - (x->reg < y->reg) : (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

/* Links those of each register, and finds where those of each device begin. */
static bool index_wishes(compile *c, window_list *list)
{
    list->of_reg = POOL_NEW(&c->pool, int, c->phys.reg.count + 1);
    int devices = c->phys.device.count;
    list->first = POOL_NEW(&c->pool, int, devices + 1);
    for (int r = 0; r < c->phys.reg.count && list->of_reg; r++)
        list->of_reg[r] = NONE;
    for (int i = list->count - 1; i >= 0 && list->of_reg; i--) {
        int *first = &list->of_reg[list->item[i].reg];
        list->item[i].next = *first;
        *first = i;
    }
    for (int d = 0, i = 0; d <= devices && list->first; d++) {
        while (i < list->count && list->item[i].device < d)
            i++;
        list->first[d] = i;
    }
    return list->first && list->of_reg;
}

bool windows_list(const offsets *o, window_list *list)
{
    compile *c = o->c;
    looking x = {.of = o, .c = c};
    for (int g = 0; g < c->phys.group.count; g++)
        for (int k = 0; k < c->phys.group.item[g].pops.count; k++)
            look_at(&x, &c->phys.op.item[c->phys.group.item[g].pops.item[k]]);
    if (x.found.count)
        qsort(x.found.item, (size_t)x.found.count, sizeof *x.found.item, compare_wishes);
    *list = (window_list){.item = x.found.item, .count = x.found.count};
    return !c->pool.failed && index_wishes(c, list);
}

life windows_life(const offsets *o, const block *b)
{
    if (b->reg >= 0)
        return (life){.regst = {o->c->phys.reg.item[b->reg].plan_id}, .actor = {PLAN_NONE}};
    return (life){
        .regst = {PLAN_NONE}, .actor = {(uint32_t)b->group}, .from = (uint32_t)b->from, .to = (uint32_t)b->to};
}

/* The part that the tensor is placed with, and where in it; NULL: it is placed in another way. */
static block *host_of(const offsets *o, int tensor, uint64_t *at)
{
    const ptensor *t = &o->c->phys.tensor.item[tensor];
    if (t->reg >= 0) {
        *at += t->offset;
        return o->of_reg[t->reg];
    }
    const int of = o->temps.of_tensor[tensor];
    block *b = of >= 0 ? &o->temps.list.item[of] : NULL;
    return b && b->shares && b->tensors == 1 ? b : NULL;
}

typedef struct entering {
    const offsets *of;
    const window_list *list;
} entering;

static uint64_t place_of(const block *b)
{
    return b->host ? b->at : 0;
}

static bool in_turn(const entering *x, const window_wish *w, const block *guest, const block *host)
{
    life part = windows_life(x->of, guest), whole = windows_life(x->of, host);
    return w->onto ? lives_in_turn(x->of->known, &part, &whole) : lives_in_turn(x->of->known, &whole, &part);
}

/* Whether a register may lie in another part, with so many bytes from the start of that to its own. */
static bool wishes_for(const entering *x, const block *guest, const block *host, uint64_t from, uint64_t to)
{
    for (int i = guest->reg >= 0 ? x->list->of_reg[guest->reg] : NONE; i != NONE; i = x->list->item[i].next) {
        const window_wish *w = &x->list->item[i];
        uint64_t at = w->at;
        if (host_of(x->of, w->tensor, &at) == host && from + at == to)
            return in_turn(x, w, guest, host);
    }
    return false;
}

/* Whether the part may lie at this place of the host, beside one that is there. */
static bool gets_on(const entering *x, const block *part, uint64_t at, const block *other)
{
    uint64_t there = place_of(other);
    if (at >= there + other->bytes || there >= at + part->bytes ||
        wishes_for(x, part, other, there, at) || wishes_for(x, other, part, at, there))
        return true;
    life one = windows_life(x->of, part), two = windows_life(x->of, other);
    return (part->reg >= 0 || other->reg >= 0) && lives_apart(x->of->known, &one, &two);
}

/* Puts a part that is neither host nor guest there, if all that is there suffers it. */
static bool put_within(const entering *x, block *part, block *host, uint64_t at)
{
    if (part->host || part->guest || part == host || at % PLAN_ALIGN || at > host->bytes ||
        part->bytes > host->bytes - at || !gets_on(x, part, at, host))
        return false;
    for (const block *other = host->guest; other; other = other->next)
        if (!gets_on(x, part, at, other))
            return false;
    part->host = host;
    part->at = at;
    part->next = host->guest;
    host->guest = part;
    return true;
}

/* The one of the two that lies alone joins the other. */
static bool enter(const entering *x, const window_wish *w)
{
    block *guest = x->of->of_reg[w->reg];
    uint64_t at = w->at;
    block *host = host_of(x->of, w->tensor, &at);
    if (!guest || !host || (guest->host && guest->host == host->host))
        return false;
    if (guest->host || guest->guest)
        return !host->host && place_of(guest) >= at &&
               put_within(x, host, guest->host ? guest->host : guest, place_of(guest) - at);
    return put_within(x, guest, host->host ? host->host : host, place_of(host) + at);
}

int windows_enter(const offsets *o, const window_list *list, int device)
{
    const entering x = {o, list};
    int count = 0;
    for (int i = list->first[device]; i < list->first[device + 1]; i++)
        count += enter(&x, &list->item[i]);
    return count;
}

void windows_leave(block *const *part, int count)
{
    for (int i = 0; i < count; i++)
        part[i]->host = part[i]->guest = part[i]->next = NULL;
}
