/* graph/compile/memory/windows.c: see the header. Registers with several tensors, and temporaries that are taken over in place, are
 * left alone. */
#include "graph/compile/memory/windows.h"
#include "graph/plan/lives/window.h"

#include <stdlib.h>

typedef struct looking {
    compile *c;
    POOL_LIST(window_wish) found;
} looking;

static void wish_for(looking *x, int r, int tensor, const window *w, bool onto)
{
    const phys *p = &x->c->phys;
    window_wish *to = w->at % PLAN_ALIGN ? NULL : POOL_PUSH(&x->c->pool, &x->found);
    if (to)
        *to = (window_wish){p->reg.item[r].device, r, tensor, onto, p->reg.item[r].slot_bytes, w->at, 0};
}

/* The register of the tensor, if it has one slot and another group of the pop's device fills it; else -1. */
static int reg_from(const phys *p, const pop *op, int tensor)
{
    const ptensor *t = &p->tensor.item[tensor];
    int r = t->device == op->device ? t->reg : -1;
    return r >= 0 && p->reg.item[r].group >= 0 && p->reg.item[r].group != op->group && p->reg.item[r].slots == 1 ? r : -1;
}

/* What the pop gathers from it. */
static void look_at_share(looking *x, const pop *op, int i)
{
    const phys *p = &x->c->phys;
    int r = reg_from(p, op, op->in[i]);
    window found;
    if (r >= 0 && p->reg.item[r].tensors.count == 1 &&
        window_find(x->c->known_of, (plan_regst_id){p->reg.item[r].plan_id}, (plan_actor_id){(uint32_t)op->group},
                    &found) &&
        found.tensor.i == p->tensor.item[op->out[0]].plan_id)
        wish_for(x, r, op->out[0], &found, false);
}

/* What the pop adds up of it. */
static void look_at_term(looking *x, const pop *op, int i)
{
    const phys *p = &x->c->phys;
    int term = reg_from(p, op, op->in[i]), sum = p->tensor.item[op->out[0]].reg;
    window found;
    if (term >= 0 && sum >= 0 && p->reg.item[sum].group == op->group &&
        window_onto(x->c->known_of, x->c->known, (plan_regst_id){p->reg.item[sum].plan_id},
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
    int devices = c->phys.device.count;
    list->first = POOL_NEW(&c->pool, int, devices + 1);
    for (int r = 0; r < c->phys.reg.count; r++)
        c->phys.reg.item[r].wish = 0;
    for (int i = list->count - 1; i >= 0; i--) {
        int *first = &c->phys.reg.item[list->item[i].reg].wish;
        list->item[i].next = *first;
        *first = i + 1;
    }
    for (int d = 0, i = 0; d <= devices && list->first; d++) {
        while (i < list->count && list->item[i].device < d)
            i++;
        list->first[d] = i;
    }
    return list->first;
}

bool windows_list(compile *c, window_list *list)
{
    looking x = {.c = c};
    for (int g = 0; g < c->phys.group.count; g++)
        for (int k = 0; k < c->phys.group.item[g].pops.count; k++)
            look_at(&x, &c->phys.op.item[c->phys.group.item[g].pops.item[k]]);
    if (x.found.count)
        qsort(x.found.item, (size_t)x.found.count, sizeof *x.found.item, compare_wishes);
    *list = (window_list){.item = x.found.item, .count = x.found.count};
    return !c->pool.failed && index_wishes(c, list);
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

typedef struct entering {
    compile *c;
    const lives *known;
    const window_list *list;
} entering;

static uint64_t place_of(const block *b)
{
    return b->host ? b->at : 0;
}

static bool in_turn(const entering *x, const window_wish *w, const block *guest, const block *host)
{
    life part = windows_life(x->c, guest), whole = windows_life(x->c, host);
    return w->onto ? lives_in_turn(x->known, &part, &whole) : lives_in_turn(x->known, &whole, &part);
}

/* Whether a register may lie in another part, with so many bytes from the start of that to its own. */
static bool wishes_for(const entering *x, const block *guest, const block *host, uint64_t from, uint64_t to)
{
    for (int i = guest->reg >= 0 ? x->c->phys.reg.item[guest->reg].wish : 0; i; i = x->list->item[i - 1].next) {
        const window_wish *w = &x->list->item[i - 1];
        uint64_t at = w->at;
        if (host_of(&x->c->phys, &x->c->phys.tensor.item[w->tensor], &at) == host && from + at == to)
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
    life one = windows_life(x->c, part), two = windows_life(x->c, other);
    return (part->reg >= 0 || other->reg >= 0) && lives_apart(x->known, &one, &two);
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

/* Whichever of the two lies alone joins the other. */
static bool enter(const entering *x, const window_wish *w)
{
    block *guest = x->c->phys.reg.item[w->reg].placed;
    uint64_t at = w->at;
    block *host = host_of(&x->c->phys, &x->c->phys.tensor.item[w->tensor], &at);
    if (!guest || !host || (guest->host && guest->host == host->host))
        return false;
    if (guest->host || guest->guest)
        return !host->host && place_of(guest) >= at &&
               put_within(x, host, guest->host ? guest->host : guest, place_of(guest) - at);
    return put_within(x, guest, host->host ? host->host : host, place_of(host) + at);
}

int windows_enter(compile *c, const lives *known, const window_list *list, int device)
{
    const entering x = {c, known, list};
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
