/* graph/compile/memory/offsets.c: where everything lies.
 *
 * An arena holds, from low to high:
 *
 *     what is always needed   registers that start full, constants, states, the snapshot; and what is very small
 *     the rest                registers that are full for a part of a step, and temporaries: two of them may lie at the
 *                             same bytes where graph/plan/lives/lives.h proves that they are never needed at the same time
 *
 * Temporaries of a group whose lives don't meet may share (temps.h). A queue runs one actor at a time, so those of its other
 * groups are no hindrance at all; registers are, unless they are dead then. A queue's workspace is the stretch from its lowest temporary to its highest, with registers in between.
 *
 * Parts of less than 2^-SMALL of a device's bytes, and together of less than 2^-SMALLS, are left out and have bytes of
 * their own. The others are placed by parts.c. Every part is padded to PLAN_ALIGN.
 */
#include "graph/compile/memory/parts.h"
#include "graph/compile/memory/windows.h"

#include <stdlib.h>
#include <string.h>

enum { SMALL = 16, SMALLS = 12 };
bool offsets_share = true;

/* ---- what there is on each device ---- */

typedef struct by_device {         /* those of device d: item[first[d]] up to item[first[d + 1]], in ascending order */
    int *first, *item;
} by_device;

static int reg_device(const offsets *o, int r)
{
    return o->c->phys.reg.item[r].device;
}

static int temp_device(const offsets *o, int t)
{
    return o->c->phys.group.item[o->temps.list.item[t].group].device;
}

static int state_device(const offsets *o, int s)
{
    return o->c->phys.op.item[o->c->phys.state.item[s].pop].device;
}

static bool list_by_device(const offsets *o, int count, int (*device)(const offsets *o, int i), by_device *list)
{
    compile *c = o->c;
    int devices = c->phys.device.count, *next = POOL_NEW(&c->pool, int, devices + 1);
    list->first = POOL_NEW(&c->pool, int, devices + 1);
    list->item = POOL_NEW(&c->pool, int, count + 1);
    if (!next || !list->first || !list->item)
        return false;
    for (int i = 0; i < count; i++)
        list->first[device(o, i) + 1]++;
    for (int d = 0; d < devices; d++)
        list->first[d + 1] += next[d] = list->first[d];
    for (int i = 0; i < count; i++)
        list->item[next[device(o, i)]++] = i;
    return true;
}

/* ---- the arena of a device ---- */

typedef struct laying {
    offsets *of;
    place_same same;               /* owned */
    window_list windows;
    by_device regs, temps, states;
} laying;

typedef struct arena {
    compile *c;
    laying *all;
    int device;
    int count;
    block **part;                  /* what shares: registers that are not always full, and temporaries */
    uint64_t bottom;               /* bytes of what does not, which lies below */
} arena;

static uint64_t reg_bytes(const reg *r)
{
    return r->slot_bytes * (uint64_t)r->slots;
}

static uint64_t part_bytes(const arena *a)
{
    uint64_t bytes = 0;
    for (int i = 0; i < a->count; i++)
        bytes += a->part[i]->bytes;
    return bytes;
}

/* Goes through a list's part for the device. */
#define EACH_OF_DEVICE(a, list, i)                                                                   \
    (const int *i = (a)->all->list.item + (a)->all->list.first[(a)->device],                         \
               *i##_end = (a)->all->list.item + (a)->all->list.first[(a)->device + 1]; i < i##_end; i++)

static int count_of_device(const by_device *list, int device)
{
    return list->first[device + 1] - list->first[device];
}

static void list_parts(arena *a, block *regs)
{
    const temps *of = &a->all->of->temps;
    for EACH_OF_DEVICE (a, regs, r) {
        const reg *from = &a->c->phys.reg.item[*r];
        *regs = (block){.reg = *r, .bytes = reg_bytes(from)};
        if (offsets_share && from->group >= 0 && !from->initial && regs->bytes)
            a->part[a->count++] = regs;
        regs++;
    }
    for EACH_OF_DEVICE (a, temps, t)
        if (of->list.item[*t].bytes)
            a->part[a->count++] = &of->list.item[*t];
}

static int smaller_first(const void *a, const void *b)
{
    const block *x = *(block *const *)a, *y = *(block *const *)b;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* The bytes of the largest that are left out: parts of less than 2^-SMALL, as long as together they are less than
 * 2^-SMALLS. Equally large ones are left out together, or not at all. */
static uint64_t most_left_out(const arena *a, block **by_bytes)
{
    uint64_t bytes = part_bytes(a), sum = 0, most = 0;
    if (a->count > 0)
        memcpy(by_bytes, a->part, sizeof(block *) * (size_t)a->count);
    qsort(by_bytes, (size_t)a->count, sizeof(block *), smaller_first);
    for (int i = 0; i < a->count && by_bytes[i]->bytes < bytes >> SMALL; i++) {
        sum += by_bytes[i]->bytes;
        if (sum >= bytes >> SMALLS)
            break;
        if (i + 1 == a->count || by_bytes[i + 1]->bytes > by_bytes[i]->bytes)
            most = by_bytes[i]->bytes;
    }
    return most;
}

static bool choose_parts(arena *a, block *regs)
{
    list_parts(a, regs);
    block **by_bytes = POOL_NEW(&a->c->pool, block *, a->count + 1);
    if (!by_bytes)
        return false;
    uint64_t most = most_left_out(a, by_bytes);
    int kept = 0;
    for (int i = 0; i < a->count; i++)
        if (a->part[i]->bytes > most)
            a->part[kept++] = a->part[i];
    a->count = kept;
    return true;
}

/* Temporaries that share with nothing are small: those of a group lie one behind the other, those of different groups
 * at the same bytes. */
static void stack_smalls(arena *a)
{
    uint64_t bytes = 0, most = 0;
    int of = NONE;
    for EACH_OF_DEVICE (a, temps, t) {
        block *b = &a->all->of->temps.list.item[*t];
        if (b->shares)
            continue;
        bytes = b->group == of ? bytes : 0;
        of = b->group;
        b->offset = a->bottom + bytes;
        bytes += b->bytes;
        most = bytes > most ? bytes : most;
    }
    a->bottom += most;
}

/* Lays out what does not share: registers and states by kind, the snapshot, the smallest temporaries. */
static void lay_bottom(arena *a)
{
    phys *p = &a->c->phys;
    pdevice *d = &p->device.item[a->device];
    for (int kind = 0; kind < PLAN_MEMS; kind++) {
        for EACH_OF_DEVICE (a, regs, r) {
            reg *to = &p->reg.item[*r];
            if ((int)to->kind != kind || a->all->of->of_reg[*r])
                continue;
            to->offset = a->bottom;
            a->bottom += reg_bytes(to);
        }
        for EACH_OF_DEVICE (a, states, s) {
            if (kind != PLAN_STATE || p->op.item[p->state.item[*s].pop].dead)
                continue;
            p->state.item[*s].offset = a->bottom;
            a->bottom += p->state.item[*s].bytes;
        }
    }
    d->snapshot_offset = d->snapshot ? a->bottom : 0;
    a->bottom += d->snapshot;
    stack_smalls(a);
}

/* Finds places for the parts, above the bottom. */
static bool place_parts(arena *a)
{
    parts all = {.of = a->all->of, .same = &a->all->same, .device = a->device, .part = a->part, .count = a->count};
    if (!parts_place(&all))
        return false;
    for (int i = 0; i < a->count; i++)
        a->part[i]->offset += a->bottom;
    a->c->phys.device.item[a->device].bytes = a->bottom + all.height;
    return true;
}

/* The same with guests within their hosts, which are all that is placed then. */
static bool place_hosts(arena *a)
{
    arena hosts = *a;
    hosts.count = 0;
    hosts.part = POOL_NEW(&a->c->pool, block *, a->count + 1);
    for (int i = 0; i < a->count && hosts.part; i++)
        if (!a->part[i]->host)
            hosts.part[hosts.count++] = a->part[i];
    bool ok = hosts.part && place_parts(&hosts);
    for (int i = 0; i < a->count && ok; i++)
        if (a->part[i]->host)
            a->part[i]->offset = a->part[i]->host->offset + a->part[i]->at;
    return ok;
}

static uint64_t guest_bytes(const arena *a)
{
    uint64_t bytes = 0;
    for (int i = 0; i < a->count; i++)
        bytes += a->part[i]->host ? a->part[i]->bytes : 0;
    return bytes;
}

/* The most that the arena may take with windows. A part with guests is needed for longer, which can make it larger. Where
 * there is no limit, and they are a good part of all there is, what is not copied is worth its own bytes. */
static uint64_t most_with_windows(const arena *a, uint64_t without)
{
    uint64_t guests = guest_bytes(a);
    return a->c->memory_max == UINT64_MAX && guests >= without / 4 ? without + guests : without;
}

static bool place_with_windows(arena *a)
{
    const offsets *o = a->all->of;
    const uint64_t *bytes = &a->c->phys.device.item[a->device].bytes;
    if (!place_parts(a))
        return false;
    uint64_t without = *bytes;
    if (o->hasty || !windows_enter(o, &a->all->windows, a->device))
        return true;
    bool ok = place_hosts(a);
    if (!ok || *bytes <= most_with_windows(a, without))
        return ok;
    windows_leave(a->part, a->count);
    return place_parts(a);
}

/* The stretch that the device's temporaries lie in. */
static void find_workspace(const arena *a)
{
    pdevice *d = &a->c->phys.device.item[a->device];
    uint64_t low = UINT64_MAX, high = 0;
    for EACH_OF_DEVICE (a, temps, t) {
        const block *b = &a->all->of->temps.list.item[*t];
        if (!b->bytes)
            continue;
        low = b->offset < low ? b->offset : low;
        high = b->offset + b->bytes > high ? b->offset + b->bytes : high;
    }
    d->workspace_offset = high ? low : 0;
    d->workspace = high ? high - low : 0;
}

static bool lay_out(laying *all, int device)
{
    compile *c = all->of->c;
    arena a = {.c = c, .all = all, .device = device};
    int reg_count = count_of_device(&all->regs, device), temp_count = count_of_device(&all->temps, device);
    block *regs = POOL_NEW(&c->pool, block, reg_count + 1);
    a.part = POOL_NEW(&c->pool, block *, reg_count + temp_count + 1);
    if (!regs || !a.part || !choose_parts(&a, regs))
        return false;
    for (int i = 0; i < a.count; i++)
        if (a.part[i]->reg >= 0)
            all->of->of_reg[a.part[i]->reg] = a.part[i];
        else
            a.part[i]->shares = true;
    lay_bottom(&a);
    if (!place_with_windows(&a))
        return false;
    for (int i = 0; i < a.count; i++)
        if (a.part[i]->reg >= 0)
            c->phys.reg.item[a.part[i]->reg].offset = a.part[i]->offset;
    find_workspace(&a);
    return true;
}

/* Offsets of what lies in a workspace count from where that begins. */
static void enter_temps(const offsets *o)
{
    phys *p = &o->c->phys;
    const block *temp = o->temps.list.item;
    for (int i = 0; i < p->op.count; i++) {
        pop *op = &p->op.item[i];
        uint64_t from = p->device.item[op->device].workspace_offset;
        for (int k = 0; k < op->out_count; k++) {
            ptensor *t = &p->tensor.item[op->out[k]];
            const int at = o->temps.of_tensor[op->out[k]];
            const bool beside = t->family != NONE && o->temps.of_family[t->family] == at;
            if (at >= 0)
                t->offset = t->bytes ? temp[at].offset - from + (beside ? t->bytes * (uint64_t)t->family_at : 0) : 0;
        }
        if (o->temps.of_scratch[i] >= 0)
            op->scratch_offset = temp[o->temps.of_scratch[i]].offset - from;
    }
}

static bool lay_out_all(offsets *o)
{
    const phys *p = &o->c->phys;
    laying all = {.of = o};
    bool ok = (o->hasty || windows_list(o, &all.windows)) && list_by_device(o, p->reg.count, reg_device, &all.regs) &&
              list_by_device(o, o->temps.list.count, temp_device, &all.temps) &&
              list_by_device(o, p->state.count, state_device, &all.states);
    for (int d = 0; d < p->device.count && ok; d++)
        ok = lay_out(&all, d);
    place_same_free(&all.same);
    return ok;
}

bool offsets_begin(offsets *o, compile *c, bool hasty)
{
    *o = (offsets){.c = c, .hasty = hasty, .of_reg = POOL_NEW(&c->pool, block *, c->phys.reg.count + 1)};
    return temps_find(c, &o->temps);
}

bool offsets_find(offsets *o, const weir_plan *plan, lives *known)
{
    o->plan = plan;
    o->known = known;
    for (int r = 0; r < o->c->phys.reg.count; r++)
        o->of_reg[r] = NULL;
    for (int t = 0; t < o->temps.list.count; t++) {
        block *b = &o->temps.list.item[t];
        b->shares = false;
        b->guest = b->host = NULL;
    }
    if (!lay_out_all(o))
        return false;
    enter_temps(o);
    return true;
}
