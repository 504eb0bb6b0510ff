/* graph/compile/memory/offsets.c: where everything lies.
 *
 * An arena holds, from low to high:
 *
 *     what is always needed   registers that start full, constants, states, the snapshot; and what is very small
 *     the rest                registers that are full for a part of a step, and temporaries: two of them may lie at the
 *                             same bytes where graph/plan/lives/lives.h proves that they are never needed at the same time
 *
 * Lives follow from who fires when, not from where anything lies. So a plan is written with no offsets yet, lives.h is
 * asked about every pair, place() finds offsets, which are entered into that plan, and plan_validate() looks at all that
 * overlaps once more. It takes over what lives.h has found out, as long as nothing of the plan that it rests on differs;
 * who loads the plan from a file finds it out anew.
 *
 * Inside a group temporaries live from the pop that makes them to the last that reads them, and those whose lives do
 * not meet may share. A kernel that may work in place takes over the memory of an input that dies with it. A queue runs
 * one actor at a time, so temporaries of its other groups are no hindrance at all; registers are, unless they are dead
 * then. A queue's workspace is the stretch from its lowest temporary to its highest, with registers in between.
 *
 * Parts of less than 2^-SMALL of a device's bytes, and together of less than 2^-SMALLS, are left out and have bytes of
 * their own. The others are placed by parts.c. Every part is padded to PLAN_ALIGN.
 */
#include "graph/base/error.h"
#include "graph/compile/ir/ir.h"
#include "graph/compile/memory/parts.h"
#include "graph/compile/memory/windows.h"
#include "graph/plan/lives/lives.h"
#include "kernels/cuda/list.h"
#include "kernels/common/ops.h"

#include <stdlib.h>
#include <string.h>

enum { SMALL = 16, SMALLS = 12 };
/* Of an arena without windows, where there is no limit: the share that they may add, and that which makes them the main
 * thing. */
enum { WINDOWS_COST = 32, WINDOWS_MAIN = 4 };
bool offsets_share = true;

/* ---- temporaries ---- */

typedef struct finding {
    compile *c;
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
    if (out != 0 || k < 0 || k >= op->in_count || op->accumulate || p->tensor.item[op->out[0]].family)
        return -1;
    int in = op->in[k];
    const ptensor *from = &p->tensor.item[in], *to = &p->tensor.item[op->out[0]];
    if (!is_temp(p, in, op->group) || from->block < 0 || from->family || !same_elements(x->c, from, to))
        return -1;
    return p->temp.item[from->block].to == at && last_use(x, from) == at ? from->block : -1;
}

static int block_new(finding *x, uint64_t bytes, int from, int to)
{
    block *b = POOL_PUSH(&x->c->pool, &x->c->phys.temp);
    if (b)
        *b = (block){.reg = -1, .group = x->group, .bytes = bytes, .from = from, .to = to, .tensors = 0};
    return x->c->phys.temp.count - 1;
}

/* The block of a family, beside each other; its own, where not all of the family are temporaries of the group. */
static int family_block(finding *x, const ptensor *t, int at)
{
    const phys *p = &x->c->phys;
    family *f = &x->c->phys.family.item[t->family - 1];
    int last = at;
    for (int i = 0; i < f->count && f->block < 0; i++) {
        if (!is_temp(p, f->tensor[i], x->group))
            return block_new(x, t->bytes, at, last_use(x, t));
        const int use = last_use(x, &p->tensor.item[f->tensor[i]]);
        last = use > last ? use : last;
    }
    return f->block < 0 ? f->block = block_new(x, t->bytes * (uint64_t)f->count, at, last) : f->block;
}

/* Whether the group has a pop of the same op there. */
static bool is_alike(const finding *x, const pop *op, int at)
{
    const phys *p = &x->c->phys;
    const group *g = &p->group.item[x->group];
    return at >= 0 && at < g->pops.count &&
           x->c->ir.node[p->op.item[g->pops.item[at]].node].op == x->c->ir.node[op->node].op;
}

/* Whether calls of the op, one behind the other, may be one launch on cards (actors/session/joined.c). */
static bool is_joined(const weir_op *op)
{
#define X(name) || op == &op_##name
    return false CUDA_JOINED(X);
#undef X
}

/* Calls that may be one launch have a scratch each. */
static void find_scratch(finding *x, pop *op, int at)
{
    int first = at, last = at;
    bool joins = x->c->phys.device.item[op->device].kind == WEIR_CUDA && is_joined(x->c->ir.node[op->node].op);
    while (joins && is_alike(x, op, first - 1))
        first--;
    while (joins && is_alike(x, op, last + 1))
        last++;
    op->scratch_block = block_new(x, op->scratch, first, last);
}

static void find_in_pop(finding *x, int id, int at)
{
    phys *p = &x->c->phys;
    pop *op = &p->op.item[id];
    for (int o = 0; o < op->out_count; o++) {
        if (!is_temp(p, op->out[o], op->group))
            continue;
        ptensor *t = &p->tensor.item[op->out[o]];
        int last = last_use(x, t);
        t->block = t->family ? family_block(x, t, at) : block_in_place(x, op, at, o);
        if (t->block < 0)
            t->block = block_new(x, t->bytes, at, last);
        else if (last > p->temp.item[t->block].to)
            p->temp.item[t->block].to = last;
        p->temp.item[t->block].tensors++;
    }
    if (op->scratch)
        find_scratch(x, op, at);
}

static bool find_temps(compile *c)
{
    phys *p = &c->phys;
    finding x = {.c = c, .position = POOL_NEW(&c->pool, int, p->op.count + 1)};
    if (!x.position)
        return false;
    for (int t = 0; t < p->tensor.count; t++)
        p->tensor.item[t].block = -1;
    for (int i = 0; i < p->op.count; i++)
        p->op.item[i].scratch_block = -1;
    for (int f = 0; f < p->family.count; f++)
        p->family.item[f].block = -1;
    for (x.group = 0; x.group < p->group.count; x.group++) {
        const group *g = &p->group.item[x.group];
        for (int i = 0; i < g->pops.count; i++)
            x.position[g->pops.item[i]] = i;
        for (int i = 0; i < g->pops.count && !c->pool.failed; i++)
            find_in_pop(&x, g->pops.item[i], i);
    }
    p->temps_found = !c->pool.failed;
    return p->temps_found;
}

/* ---- what there is on each device ---- */

typedef struct by_device {         /* those of device d: item[first[d]] up to item[first[d + 1]], in ascending order */
    int *first, *item;
} by_device;

static int reg_device(const phys *p, int r)
{
    return p->reg.item[r].device;
}

static int temp_device(const phys *p, int t)
{
    return p->group.item[p->temp.item[t].group].device;
}

static int state_device(const phys *p, int s)
{
    return p->op.item[p->state.item[s].pop].device;
}

static bool list_by_device(compile *c, int count, int (*device)(const phys *p, int i), by_device *list)
{
    int devices = c->phys.device.count, *next = POOL_NEW(&c->pool, int, devices + 1);
    list->first = POOL_NEW(&c->pool, int, devices + 1);
    list->item = POOL_NEW(&c->pool, int, count + 1);
    if (!next || !list->first || !list->item)
        return false;
    for (int i = 0; i < count; i++)
        list->first[device(&c->phys, i) + 1]++;
    for (int d = 0; d < devices; d++)
        list->first[d + 1] += next[d] = list->first[d];
    for (int i = 0; i < count; i++)
        list->item[next[device(&c->phys, i)]++] = i;
    return true;
}

/* ---- the arena of a device ---- */

typedef struct laying {
    compile *c;
    lives *known;                  /* borrowed */
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
    phys *p = &a->c->phys;
    for EACH_OF_DEVICE (a, regs, r) {
        const reg *from = &p->reg.item[*r];
        *regs = (block){.reg = *r, .bytes = reg_bytes(from)};
        if (offsets_share && from->group >= 0 && !from->initial && regs->bytes)
            a->part[a->count++] = regs;
        regs++;
    }
    for EACH_OF_DEVICE (a, temps, t)
        if (p->temp.item[*t].bytes)
            a->part[a->count++] = &p->temp.item[*t];
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
    if (a->count)
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
    phys *p = &a->c->phys;
    uint64_t bytes = 0, most = 0;
    int of = -1;
    for EACH_OF_DEVICE (a, temps, t) {
        block *b = &p->temp.item[*t];
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
            if ((int)to->kind != kind || to->shares)
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
    parts all = {.c = a->c, .known = a->all->known, .same = &a->all->same, .device = a->device, .part = a->part,
                 .count = a->count};
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

/* What the arena may take with windows. What has guests is needed for longer, which can make it larger. Where there is no
 * limit, what is not copied is worth a small share of it; or, where that is a good part of all there is, its own bytes. */
static uint64_t most_with_windows(const arena *a, uint64_t without)
{
    uint64_t share = without / WINDOWS_COST, guests = guest_bytes(a);
    if (a->c->memory_max != UINT64_MAX)
        return without;
    return without + (guests > share && guests >= without / WINDOWS_MAIN ? guests : share);
}

static bool place_with_windows(arena *a)
{
    compile *c = a->c;
    const uint64_t *bytes = &c->phys.device.item[a->device].bytes;
    if (!place_parts(a))
        return false;
    uint64_t without = *bytes;
    if (c->hasty || !windows_enter(c, a->all->known, &a->all->windows, a->device))
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
    phys *p = &a->c->phys;
    pdevice *d = &p->device.item[a->device];
    uint64_t low = UINT64_MAX, high = 0;
    for EACH_OF_DEVICE (a, temps, t) {
        const block *b = &p->temp.item[*t];
        if (!b->bytes)
            continue;
        low = b->offset < low ? b->offset : low;
        high = b->offset + b->bytes > high ? b->offset + b->bytes : high;
    }
    d->workspace_offset = high ? low : 0;
    d->workspace = high ? high - low : 0;
}

static void share(phys *p, block *part)
{
    if (part->reg < 0) {
        part->shares = true;
        return;
    }
    p->reg.item[part->reg].shares = true;
    p->reg.item[part->reg].placed = part;
}

static bool lay_out(laying *all, int device)
{
    compile *c = all->c;
    phys *p = &c->phys;
    arena a = {.c = c, .all = all, .device = device};
    int reg_count = count_of_device(&all->regs, device), temp_count = count_of_device(&all->temps, device);
    block *regs = POOL_NEW(&c->pool, block, reg_count + 1);
    a.part = POOL_NEW(&c->pool, block *, reg_count + temp_count + 1);
    if (!regs || !a.part)
        return false;
    if (!choose_parts(&a, regs))
        return false;
    for (int i = 0; i < a.count; i++)
        share(p, a.part[i]);
    lay_bottom(&a);
    if (!place_with_windows(&a))
        return false;
    for (int i = 0; i < a.count; i++)
        if (a.part[i]->reg >= 0)
            p->reg.item[a.part[i]->reg].offset = a.part[i]->offset;
    find_workspace(&a);
    return true;
}

/* Offsets of what lies in a workspace count from where that begins. */
static void enter_temps(phys *p)
{
    for (int i = 0; i < p->op.count; i++) {
        pop *op = &p->op.item[i];
        uint64_t from = p->device.item[op->device].workspace_offset;
        for (int o = 0; o < op->out_count; o++) {
            ptensor *t = &p->tensor.item[op->out[o]];
            const bool beside = t->family && p->family.item[t->family - 1].block == t->block;
            if (t->block >= 0)
                t->offset = t->bytes ? p->temp.item[t->block].offset - from + (beside ? t->bytes * (uint64_t)t->family_at : 0) : 0;
        }
        if (op->scratch_block >= 0)
            op->scratch_offset = p->temp.item[op->scratch_block].offset - from;
    }
}

static void forget_shares(phys *p)
{
    for (int r = 0; r < p->reg.count; r++) {
        p->reg.item[r].shares = false;
        p->reg.item[r].placed = NULL;
    }
    for (int t = 0; t < p->temp.count; t++) {
        p->temp.item[t].shares = false;
        p->temp.item[t].guest = p->temp.item[t].host = NULL;
    }
}

static bool lay_out_all(compile *c)
{
    const phys *p = &c->phys;
    laying all = {.c = c, .known = c->known};
    bool ok = (c->hasty || windows_list(c, &all.windows)) && list_by_device(c, p->reg.count, reg_device, &all.regs) &&
              list_by_device(c, p->temp.count, temp_device, &all.temps) &&
              list_by_device(c, p->state.count, state_device, &all.states);
    for (int d = 0; d < p->device.count && ok; d++)
        ok = lay_out(&all, d);
    place_same_free(&all.same);
    return ok;
}

void offsets_forget(compile *c)
{
    lives_free(c->known);
    weir_plan_free(c->known_of);
    c->known = NULL;
    c->known_of = NULL;
}

bool pass_offsets(compile *c)
{
    offsets_forget(c);
    bool ok = c->phys.temps_found || find_temps(c);
    c->known_of = ok ? pass_emit(c) : NULL;
    c->known = c->known_of ? lives_new(c->known_of) : NULL;
    forget_shares(&c->phys);
    ok = c->known && lay_out_all(c);
    if (ok)
        enter_temps(&c->phys);
    c->pool.failed |= !ok;
    return ok || error_set(WEIR_E_MEMORY, "no memory to compile \"%s\"", c->graph->name) == WEIR_OK;
}
