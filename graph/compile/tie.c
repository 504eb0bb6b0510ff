/* graph/compile/tie.c: ordering edges, for the sake of memory.
 *
 * When gradients are reduced, each device adds up a part of them and the others fetch it. A part's bytes could serve the
 * next forward pass, but that would have to know that all others have fetched: and the last that this device hears of
 * them in a step is older. What is missing is one word: "I have read it", from the reader to the last of the owner's
 * actors, which the next step waits for. That word is a register without bytes.
 *
 *     cpu:0   sum ----> gather -----> update --(parameters)--> forward of the next step
 *              '-----------------.      ^
 *     cpu:1            gather <--'      |  tie
 *                        '--------------'
 *
 * The update waits for its own gathers anyway, which take as long as the neighbour's, so it is not later for it; where
 * stages are uneven it may be, by a few per cent of a step. A tie is made for readers in the update phase alone: those of
 * the other phases are followed by something that the owner waits for. None is made if the last actor has followers among
 * readers: ties lead from readers to last actors, so no circle can come of them.
 *
 * Where something waits on a disk meanwhile (offload.h), stores and fetches are tied as that asks for, and the actors of
 * a device to each other, in their order.
 */
#include "graph/compile/ir.h"

typedef struct ties {
    compile *c;
    int *last;                     /* by device: the group that the next step waits for, or -1 */
    bool *reader;                  /* by group: it may be tied */
    bool *seen;                    /* by group: a walk's own */
    int *stack;
} ties;

static bool counts(const reg *r)
{
    return r->group >= 0 && !r->initial;
}

/* Whether the group reads a large register of this device's, where it is not followed by anything. */
static bool fetches_from(const compile *c, int id, int device)
{
    const group *g = &c->phys.group.item[id];
    for (int i = 0; i < g->reads.count; i++) {
        const reg *r = &c->phys.reg.item[g->reads.item[i]];
        if (r->device == device && counts(r) && r->slot_bytes >= group_own_bytes)
            return true;
    }
    return false;
}

static bool fires_late(const group *g)
{
    return g->phase == PLAN_UPDATE && !g->micro && g->queue != PLAN_OUTSIDE;
}

/* The group of main on the device that updates parameters, and of several the one that comes last. */
static int last_of(const compile *c, int device)
{
    int last = -1;
    for (int i = 0; i < c->phys.group.count; i++) {
        const group *g = &c->phys.group.item[i];
        bool updates = false;
        for (int r = 0; r < g->regs.count; r++)
            updates |= c->phys.reg.item[g->regs.item[r]].initial > 0;
        if (g->device == device && g->program == 0 && fires_late(g) && updates)
            last = i;
    }
    return last;
}

/* Marks the groups that come before `id` in a step, or behind it. */
static void walk(ties *t, int id, bool before)
{
    const phys *p = &t->c->phys;
    int count = 1;
    for (int i = 0; i < p->group.count; i++)
        t->seen[i] = false;
    t->stack[0] = id;
    while (count) {
        const group *g = &p->group.item[t->stack[--count]];
        for (int i = 0; i < (before ? g->reads.count : g->regs.count); i++) {
            const reg *r = &p->reg.item[before ? g->reads.item[i] : g->regs.item[i]];
            for (int k = 0; counts(r) && k < (before ? 1 : r->readers.count); k++) {
                int next = before ? r->group : r->readers.item[k];
                if (t->seen[next])
                    continue;
                t->seen[next] = true;
                t->stack[count++] = next;
            }
        }
    }
}

static bool followed_by_readers(ties *t, int id)
{
    bool any = false;
    walk(t, id, false);
    for (int i = 0; i < t->c->phys.group.count; i++)
        any |= t->seen[i] && t->reader[i];
    return any;
}

/* The register without bytes that the group makes, new if there is none; NULL: no memory. */
static reg *tie_of(compile *c, int from)
{
    group *g = &c->phys.group.item[from];
    for (int i = 0; i < g->regs.count; i++)
        if (!c->phys.reg.item[g->regs.item[i]].tensors.count)
            return &c->phys.reg.item[g->regs.item[i]];
    reg *r = POOL_PUSH(&c->pool, &c->phys.reg);
    int *at = POOL_PUSH(&c->pool, &g->regs);
    if (!r || !at)
        return NULL;
    *r = (reg){.group = from, .device = g->device, .kind = PLAN_TRANSFER, .fill = 1, .slots = 1};
    *at = c->phys.reg.count - 1;
    return r;
}

static void tie(compile *c, int from, int to)
{
    reg *r = tie_of(c, from);
    if (!r)
        return;
    LIST_ONCE(&c->pool, &r->readers, to);
    LIST_ONCE(&c->pool, &c->phys.group.item[to].reads, (int)(r - c->phys.reg.item));
}

static void tie_device(ties *t, int device)
{
    int last = t->last[device];
    if (last < 0)
        return;
    walk(t, last, true);
    for (int i = 0; i < t->c->phys.group.count; i++)
        if (t->reader[i] && !t->seen[i] && t->c->phys.group.item[i].device != device &&
            fetches_from(t->c, i, device))
            tie(t->c, i, last);
}

static void find_readers(ties *t)
{
    const phys *p = &t->c->phys;
    for (int i = 0; i < p->group.count; i++)
        for (int d = 0; d < p->device.count; d++)
            t->reader[i] |= p->group.item[i].program == 0 && fires_late(&p->group.item[i]) &&
                            p->group.item[i].device != d && fetches_from(t->c, i, d);
}

/* What was to be stored or fetched at its time, see offload.h. */
static void tie_waits(compile *c)
{
    for (int i = 0; i < c->phys.op.count && !c->pool.failed; i++) {
        const pop *op = &c->phys.op.item[i];
        for (int w = 0; w < op->waits.count; w++)
            tie(c, c->phys.op.item[op->waits.item[w]].group, op->group);
    }
}

/* The group that a device would fire before this one, were they one actor; -1: there is none. One of a higher level may
 * wait for this one. */
static int group_before(const compile *c, int id)
{
    const group *g = &c->phys.group.item[id];
    for (int i = id - 1; i >= 0; i--) {
        const group *before = &c->phys.group.item[i];
        if (before->device == g->device && before->program == g->program && before->phase == g->phase &&
            before->micro == g->micro && before->queue == PLAN_COMPUTE && before->level <= g->level)
            return i;
    }
    return -1;
}

/* Stores and fetches cut a device's actors into many, whose order would be an accident of who is ready first: and nothing
 * could be said of what is still needed then. They run one at a time anyway, so they are told to keep their order. */
static void tie_in_order(compile *c)
{
    for (int i = 0; i < c->phys.group.count && c->ir.waits.count && !c->pool.failed; i++) {
        const group *g = &c->phys.group.item[i];
        int before = g->queue != PLAN_COMPUTE || g->phase == PLAN_UPDATE ? -1 : group_before(c, i);
        if (before >= 0)
            tie(c, before, i);
    }
}

/* ---- where memory is short ----
 *
 * Where a limit is too small, gradients are given back before the backward phase is over: an actor of it waits until
 * those that its device made LAG actors before have been read. By then they are, as a rule, for what reduces them
 * comes before what is left of the phase (order.c); but without a tie nothing says so. A device may then be no more
 * than LAG actors ahead of another, which is why it is done under a limit alone, and what is alive is the gradients
 * of a few actors, a bucket each (group.c), rather than all. It needs a step of one micro-batch: with more, gradients
 * are sums that stay.
 */

enum { LAG = 2 };

static bool goes_back(const group *g)
{
    return g->phase == PLAN_BACKWARD && g->program == 0 && g->queue == PLAN_COMPUTE;
}

/* The actor of the backward phase that is the LAG-th behind group `id` on its device, or -1. */
static int backward_behind(const compile *c, int id)
{
    int left = LAG;
    for (int i = id + 1; i < c->phys.group.count; i++) {
        const group *g = &c->phys.group.item[i];
        if (goes_back(g) && g->device == c->phys.group.item[id].device && !--left)
            return i;
    }
    return -1;
}

/* Ties those that read a large gradient of the group's to group `to`, but for those that come behind that. */
static void tie_readers(ties *t, int maker, int to)
{
    phys *p = &t->c->phys;
    walk(t, to, false);
    for (int i = 0; i < p->group.item[maker].regs.count; i++) {
        int id = p->group.item[maker].regs.item[i];
        bool large = counts(&p->reg.item[id]) && p->reg.item[id].slot_bytes >= group_own_bytes;
        for (int k = 0; large && k < p->reg.item[id].readers.count; k++) {
            int reader = p->reg.item[id].readers.item[k];
            if (fires_late(&p->group.item[reader]) && !t->seen[reader])
                tie(t->c, reader, to);
        }
    }
}

static void tie_gradients(ties *t)
{
    for (int i = 0; i < t->c->phys.group.count && !t->c->pool.failed; i++) {
        int to = goes_back(&t->c->phys.group.item[i]) ? backward_behind(t->c, i) : -1;
        if (to >= 0)
            tie_readers(t, i, to);
    }
}

bool pass_tie(compile *c)
{
    int groups = c->phys.group.count, devices = c->phys.device.count;
    ties t = {.c = c,
              .last = POOL_NEW(&c->pool, int, devices + 1),
              .reader = POOL_NEW(&c->pool, bool, groups + 1),
              .seen = POOL_NEW(&c->pool, bool, groups + 1),
              .stack = POOL_NEW(&c->pool, int, groups + 1)};
    if (c->pool.failed)
        return false;
    tie_waits(c);
    tie_in_order(c);
    find_readers(&t);
    for (int d = 0; d < devices; d++)
        if ((t.last[d] = last_of(c, d)) >= 0)
            t.reader[t.last[d]] = false;
    for (int d = 0; d < devices; d++)
        if (t.last[d] >= 0 && followed_by_readers(&t, t.last[d]))
            t.last[d] = -1;
    for (int d = 0; d < devices && !c->pool.failed; d++)
        tie_device(&t, d);
    if (c->tight && c->micro == 1)
        tie_gradients(&t);
    return !c->pool.failed;
}
