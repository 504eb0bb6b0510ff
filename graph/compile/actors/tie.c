/* graph/compile/actors/tie.c: ordering edges, for the sake of memory.
 *
 * When gradients are reduced, each device adds up a part of them and the others fetch it. A part's bytes could serve the
 * next forward pass, but that would have to know that all others have fetched: and the last that this device hears of
 * them in a step is older. One word is missing: "I have read it", from the reader to the last of the owner's actors, which
 * the next step waits for. That word is a register without bytes.
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
#include "graph/compile/actors/passes.h"
#include "graph/plan/lives/reach.h"

typedef struct ties {
    compile *c;
    int *last;                     /* by device: the group that the next step waits for, or -1 */
    bool *reader;                  /* by group: it may be tied */
    int *seen, walks;              /* by group: the last walk that came by; how many there were */
    int *met, met_count;           /* groups that the last walk came by */
    int *fetcher_first, *fetcher;  /* by device: groups of others that read a large register of its, in their order */
    reach paths;                   /* owned: from group to group, over registers that do not start full */
} ties;

static bool counts(const reg *r)
{
    return r->group >= 0 && !r->initial;
}

/* Whether it is a large one, and not followed by anything where it is. */
static bool is_fetched(const reg *r)
{
    return counts(r) && r->slot_bytes >= group_own_bytes;
}

static bool fires_late(const group *g)
{
    return g->phase == PLAN_UPDATE && !g->micro && g->queue != PLAN_OUTSIDE;
}

/* The group of main on each device that updates parameters, and of several the one that comes last. */
static void find_last(ties *t)
{
    const phys *p = &t->c->phys;
    for (int d = 0; d < p->device.count; d++)
        t->last[d] = NONE;
    for (int i = 0; i < p->group.count; i++) {
        const group *g = &p->group.item[i];
        bool updates = false;
        for (int r = 0; r < g->regs.count; r++)
            updates |= p->reg.item[g->regs.item[r]].initial > 0;
        if (g->program == 0 && fires_late(g) && updates)
            t->last[g->device] = i;
    }
}

/* Comes by the groups that come before `id` in a step, or behind it. */
static void walk(ties *t, int id, bool before)
{
    const phys *p = &t->c->phys;
    t->walks++;
    t->met_count = 0;
    for (int at = -1; at < t->met_count; at++) {
        const group *g = &p->group.item[at < 0 ? id : t->met[at]];
        for (int i = 0; i < (before ? g->reads.count : g->regs.count); i++) {
            const reg *r = &p->reg.item[before ? g->reads.item[i] : g->regs.item[i]];
            for (int k = 0; counts(r) && k < (before ? 1 : r->readers.count); k++) {
                int next = before ? r->group : r->readers.item[k];
                if (t->seen[next] == t->walks)
                    continue;
                t->seen[next] = t->walks;
                t->met[t->met_count++] = next;
            }
        }
    }
}

static bool followed_by_readers(ties *t, int id)
{
    bool any = false;
    walk(t, id, false);
    for (int i = 0; i < t->met_count; i++)
        any |= t->reader[t->met[i]];
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
    *r = (reg){.group = from, .device = g->device, .kind = PLAN_TRANSFER, .fill = 1, .slots = 1, .family = NONE};
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

/* Goes through the devices of others that group i reads large registers of; `last` is by device 1 + the last group that
 * was seen to. Lists the group, or counts it while there is no list. */
static void list_fetcher(ties *t, int i, int *last)
{
    const phys *p = &t->c->phys;
    const group *g = &p->group.item[i];
    for (int k = 0; k < g->reads.count; k++) {
        const reg *r = &p->reg.item[g->reads.item[k]];
        if (r->device == g->device || !is_fetched(r) || last[r->device] == i + 1)
            continue;
        last[r->device] = i + 1;
        t->reader[i] = true;
        if (t->fetcher)
            t->fetcher[t->fetcher_first[r->device]] = i;
        t->fetcher_first[r->device]++;
    }
}

/* Which groups may be tied, and the lists of those that fetch from each device. */
static bool find_readers(ties *t)
{
    const phys *p = &t->c->phys;
    int devices = p->device.count, sum = 0;
    for (int pass = 0; pass < 2; pass++) {
        int *last = POOL_NEW(&t->c->pool, int, devices + 1);
        for (int i = 0; i < p->group.count && last; i++)
            if (p->group.item[i].program == 0 && fires_late(&p->group.item[i]))
                list_fetcher(t, i, last);
        for (int d = devices; d > 0 && pass; d--)
            t->fetcher_first[d] = t->fetcher_first[d - 1];
        for (int d = 0; d < devices && !pass; d++) {
            int count = t->fetcher_first[d];
            t->fetcher_first[d] = sum;
            sum += count;
        }
        if (!pass)
            t->fetcher = POOL_NEW(&t->c->pool, int, sum + 1);
        else
            t->fetcher_first[0] = 0;
        if (!last || !t->fetcher)
            return false;
    }
    return true;
}

/* ---- who comes before whom ----
 *
 * Many readers and last actors are asked whether one comes before the other, so paths are found for as many devices at a time
 * as a row has columns. They are those from before any tie: one that has been made matters to a device whose last actor comes
 * behind another's, and there a walk is made instead.
 */

static bool find_paths(ties *t)
{
    const phys *p = &t->c->phys;
    size_t edges = 0;
    for (int r = 0; r < p->reg.count; r++)
        edges += counts(&p->reg.item[r]) ? (size_t)p->reg.item[r].readers.count : 0;
    if (!reach_open(&t->paths, (uint32_t)p->group.count, edges))
        return false;
    for (int r = 0; r < p->reg.count; r++)
        for (int k = 0; counts(&p->reg.item[r]) && k < p->reg.item[r].readers.count; k++)
            reach_add(&t->paths, (uint32_t)p->reg.item[r].group, (uint32_t)p->reg.item[r].readers.item[k], 0);
    return reach_close(&t->paths);
}

static bool comes_before(const ties *t, int id, int column)
{
    return reach_now(&t->paths, (uint32_t)id)[column / 64] >> column % 64 & 1;
}

static void tie_device(ties *t, int device, int column)
{
    int last = t->last[device];
    bool walks = t->paths.sequenced < t->paths.nodes;
    for (int d = 0; d < t->c->phys.device.count && !walks; d++)
        walks = t->last[d] >= 0 && t->last[d] != last && comes_before(t, t->last[d], column);
    if (walks)
        walk(t, last, true);
    for (int k = t->fetcher_first[device]; k < t->fetcher_first[device + 1]; k++) {
        int i = t->fetcher[k];
        if (t->reader[i] && !(walks ? t->seen[i] == t->walks : comes_before(t, i, column)))
            tie(t->c, i, last);
    }
}

static bool tie_devices(ties *t)
{
    uint32_t of[REACH_COLUMNS];
    int devices = t->c->phys.device.count, end = 0;
    bool ok = find_paths(t);
    for (int from = 0; from < devices && ok; from = end) {
        uint32_t columns = 0;
        for (end = from; end < devices && columns < REACH_COLUMNS; end++)
            if (t->last[end] >= 0)
                of[columns++] = (uint32_t)t->last[end];
        ok = reach_walk_now(&t->paths, of, columns);
        columns = 0;
        for (int d = from; d < end && ok && !t->c->pool.failed; d++)
            if (t->last[d] >= 0)
                tie_device(t, d, (int)columns++);
    }
    reach_free(&t->paths);
    return ok;
}

/* Orders the stores and fetches at their time, see offload.h. */
static void tie_waits(compile *c)
{
    for (int i = 0; i < c->phys.op.count && !c->pool.failed; i++) {
        const pop *op = &c->phys.op.item[i];
        for (int w = 0; w < op->waits.count; w++)
            tie(c, c->phys.op.item[op->waits.item[w]].group, op->group);
    }
}

/* The group that a device would fire before this one, were they one actor; -1: there is none. One of a greater depth may
 * wait for this one. */
static int group_before(const compile *c, int id)
{
    const group *g = &c->phys.group.item[id];
    for (int i = id - 1; i >= 0; i--) {
        const group *before = &c->phys.group.item[i];
        if (before->device == g->device && before->program == g->program && before->phase == g->phase &&
            before->micro == g->micro && before->queue == PLAN_COMPUTE && before->depth <= g->depth)
            return i;
    }
    return NONE;
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
    return NONE;
}

/* Ties those that read a large gradient of the group's to group `to`, but for those that come behind that. */
static void tie_readers(ties *t, int maker, int to)
{
    phys *p = &t->c->phys;
    walk(t, to, false);
    for (int i = 0; i < p->group.item[maker].regs.count; i++) {
        int id = p->group.item[maker].regs.item[i];
        for (int k = 0; is_fetched(&p->reg.item[id]) && k < p->reg.item[id].readers.count; k++) {
            int reader = p->reg.item[id].readers.item[k];
            if (fires_late(&p->group.item[reader]) && t->seen[reader] != t->walks)
                tie(t->c, reader, to);
        }
    }
}

static void tie_gradients(ties *t)
{
    for (int i = 0; i < t->c->phys.group.count && !t->c->pool.failed; i++) {
        int to = goes_back(&t->c->phys.group.item[i]) ? backward_behind(t->c, i) : NONE;
        if (to >= 0)
            tie_readers(t, i, to);
    }
}

bool tie_orders = true;

bool pass_tie(compile *c)
{
    if (!tie_orders)
        return true;
    int groups = c->phys.group.count, devices = c->phys.device.count;
    ties t = {.c = c,
              .last = POOL_NEW(&c->pool, int, devices + 1),
              .reader = POOL_NEW(&c->pool, bool, groups + 1),
              .seen = POOL_NEW(&c->pool, int, groups + 1),
              .met = POOL_NEW(&c->pool, int, groups + 1),
              .fetcher_first = POOL_NEW(&c->pool, int, devices + 1)};
    if (c->pool.failed)
        return false;
    tie_waits(c);
    tie_in_order(c);
    if (!find_readers(&t))
        return false;
    find_last(&t);
    for (int d = 0; d < devices; d++)
        if (t.last[d] >= 0)
            t.reader[t.last[d]] = false;
    for (int d = 0; d < devices; d++)
        if (t.last[d] >= 0 && followed_by_readers(&t, t.last[d]))
            t.last[d] = NONE;
    c->pool.failed |= !tie_devices(&t);
    if (c->tight && c->micro == 1)
        tie_gradients(&t);
    return !c->pool.failed;
}
