/* graph/compile/actors/group.c: from kernel calls to actors and registers.
 *
 * A group is a run of pops of one device, program, phase and rate that fires as one actor. Joining saves messages and
 * registers, cutting lets others start earlier, so groups are maximal except:
 *   - an accelerator's queues for copies count as devices in what follows: there copies come together, and are under
 *     way while it computes;
 *   - a pop that reads from another device, or waits for something on one, starts a group, unless the open one waits for
 *     the same groups already; what is waited for ends one;
 *   - a pop whose output is read by another device in the same phase ends one; a gradient on its way to be reduced (read in
 *     a later phase, or in the update) when a bucket of bytes has come together, and so does a parameter on its way between
 *     accelerators;
 *   - a conversion that is a tier of a larger one (teams.h) is among its like, until a bucket of bytes has come together:
 *     those of one tier wait for the same devices (in the update they join what is open);
 *   - a chunk ends one, so that it is on its way while the next is made;
 *   - what an accelerator does with others is alone, so that it waits for nothing else; the members of a collective have
 *     one depth. Collectives of the same devices that wait for the same groups become one, up to a bucket of bytes a device: those
 *     that move, and those that make one kind of sum;
 *   - host functions, and what else runs on a device's io queues, are alone, so that a slow one holds up nothing else; and
 *     so is what asks for it (weir_op.actor).
 *
 * Groups are convex, so their graph has no circle. Let the depth of a pop be the number of times that a path within its phase
 * has to change devices to get to it, or to wait for a batch of all micro-batches. Pops of one group have one depth; an
 * edge between groups goes to a later phase, a higher depth, from once a step to once a micro-batch, or forward in the order of pops in which each group is a run.
 *
 * Registers: what a group makes and others read. Tensors with the same readers, kind and rates share one, unless they
 * are large: a register's bytes are needed from the first kernel that writes any of it to the last that reads any of it, so
 * one of its own gives them back sooner, and layout can put something else there. A tensor that has to go to another device
 * shares up to a larger size, because there each register is a message.
 */
#include "graph/base/error.h"
#include "graph/compile/actors/merge.h"
#include "graph/compile/actors/passes.h"
#include "kernels/core/core.h"
#include "kernels/common/ops.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKET = 1 << 22, BUCKET_AMONG_CARDS = 1 << 25 };
enum { MET_LOOKED_AT = 8 };         /* collectives that another may become a part of */
uint64_t group_own_bytes = 1 << 16;
enum { OWN_AWAY = 8 };             /* times as large must be what is read on another device */

static const ir_node *pop_node(const compile *c, const pop *op)
{
    return &c->ir.node[op->node];
}

/* Bytes that are worth a conversion, or a message, of their own. A meeting of cards is some hundred calls of the driver, and
 * their links take tens of MiB in a fraction of a millisecond. */
static uint64_t bucket_of(const compile *c, const pop *op)
{
    return c->phys.device.item[op->device].kind == WEIR_CUDA ? BUCKET_AMONG_CARDS : BUCKET;
}

/* Queues whose pops are groups of their own. The rest of a device's are a stream each: its copies, and all else. */
static bool alone_on(plan_queue_kind queue)
{
    return queue == PLAN_IO_QUEUE || queue == PLAN_OUTSIDE;
}

/* Whether the pops are of two streams. */
static bool apart(const pop *a, const pop *b)
{
    plan_queue_kind x = alone_on(a->queue) ? PLAN_COMPUTE : a->queue, y = alone_on(b->queue) ? PLAN_COMPUTE : b->queue;
    return a->device != b->device || x != y;
}

/* The pop that makes input i in the same step, or NULL (parameters are there from the step before). */
static const pop *input_maker(const compile *c, const pop *op, int i)
{
    const ptensor *t = &c->phys.tensor.item[ptensor_whole(&c->phys, op->in[i])];
    return t->parameter || t->producer < 0 ? NULL : &c->phys.op.item[t->producer];
}

/* The depth of what a repetition waits for without reading it, as far as this device made it. */
static int depth_after(const compile *c, const pop *op)
{
    int after = pop_node(c, op)->after, depth = 0;
    const weir_mesh *mesh = after >= 0 ? c->ir.tensors.item[after].mesh : NULL;
    for (int at = 0; mesh && at < mesh->count; at++) {
        const ptensor *t = &c->phys.tensor.item[ptensor_real(&c->phys, ptensor_at(&c->phys, after, at, 0))];
        const pop *from = t->producer >= 0 && !t->parameter ? &c->phys.op.item[t->producer] : NULL;
        if (from && from->device == op->device && from->phase == op->phase && from->depth > depth)
            depth = from->depth;
    }
    return depth;
}

/* Whether it is a step of a conversion that goes through a core (teams.h). There devices do not all do the same at one
 * time, so steps are told apart by depth even where one follows another on one device. */
static bool is_core_step(const compile *c, const pop *op)
{
    const ir_node *node = pop_node(c, op);
    const ir_tensor *tensors = c->ir.tensors.item;
    return node->op == &op_box &&
           (mesh_home(tensors[node->in[0]].mesh)->whole || mesh_home(tensors[node->out[0]].mesh)->whole);
}

static int own_depth(const compile *c, const pop *op)
{
    int depth = depth_after(c, op);
    bool step = is_core_step(c, op);
    for (int i = 0; i < op->in_count; i++) {
        const pop *from = input_maker(c, op, i);
        if (!from || from->phase != op->phase)
            continue;
        bool later = apart(from, op) || from->collective != NONE || (step && is_core_step(c, from)) ||
                     pop_node(c, from)->op == &op_batch;
        int reach = from->depth + later; /* one collective after another is one later */
        if (reach > depth)
            depth = reach;
    }
    for (int i = 0; i < op->waits.count; i++) {
        assert(c->phys.op.item);
        const pop *on = &c->phys.op.item[op->waits.item[i]];
        if (on->phase == op->phase && on->depth >= depth)
            depth = on->depth + 1;
    }
    return depth;
}

/* Members of a collective wait for what any of them waits for; the first that comes tells all. */
static int pop_depth(compile *c, const pop *op)
{
    int depth = own_depth(c, op);
    if (op->collective == NONE)
        return depth;
    const pcollective *of = &c->phys.collective.item[op->collective];
    if (&c->phys.op.item[of->members.item[0]] != op)
        return op->depth;
    for (int m = 1; m < of->members.count; m++) {
        int other = own_depth(c, &c->phys.op.item[of->members.item[m]]);
        depth = other > depth ? other : depth;
    }
    for (int m = 1; m < of->members.count; m++)
        c->phys.op.item[of->members.item[m]].depth = depth;
    return depth;
}

/* Which groups wait for which: a set of pairs, of groups that have many sources. Most have few, and a list tells them. */
enum { SOURCES_LISTED = 16 };

/* Whether the pop's device has copied it in before something else that the pop waits for, by all that depths tell. */
static bool copied_before(const pop *from, const pop *op)
{
    return from->queue == PLAN_COPY_IN && from->depth + 1 < op->depth;
}

typedef struct pairs {
    uint64_t *key;                 /* 0 where there is none; a power of two of them */
    size_t room, count;
} pairs;

typedef POOL_LIST(int) int_list;

typedef struct grouping {
    compile *c;
    phys *p;
    int_list *open;                /* by device: groups that pops may still join, one of each stream and depth */
    int_list *met;                 /* by device: collectives of which it is the first member's */
    pairs waits;
    bool *kept;                    /* by pop: between accelerators it moves what a step begins with */
    uint64_t *published;           /* by group: bytes that leave the queue, so far */
} grouping;

static uint64_t pair_key(int group_id, int source)
{
    return ((uint64_t)group_id + 1) << 32 | (uint32_t)source;
}

static uint64_t *pair_at(const pairs *set, uint64_t key)
{
    size_t at = (size_t)(key * UINT64_C(0x9E3779B97F4A7C15) >> 32);
    while (set->key[at & (set->room - 1)] && set->key[at & (set->room - 1)] != key)
        at++;
    return &set->key[at & (set->room - 1)];
}

static bool pairs_grow(pool *p, pairs *set)
{
    pairs more = {.room = set->room ? 2 * set->room : 1024, .count = set->count};
    more.key = POOL_NEW(p, uint64_t, more.room);
    for (size_t i = 0; i < set->room && more.key; i++)
        if (set->key[i])
            *pair_at(&more, set->key[i]) = set->key[i];
    if (more.key)
        *set = more;
    return more.key;
}

static void pair_add(pool *p, pairs *set, uint64_t key)
{
    if (2 * set->count >= set->room && !pairs_grow(p, set))
        return;
    uint64_t *at = pair_at(set, key);
    set->count += !*at;
    *at = key;
}

static bool is_source_of(const grouping *x, int id, int source)
{
    const group *g = &x->p->group.item[id];
    if (g->sources.count > SOURCES_LISTED && x->waits.room)
        return *pair_at(&x->waits, pair_key(id, source)) != 0;
    for (int s = 0; s < g->sources.count; s++)
        if (g->sources.item[s] == source)
            return true;
    return false;
}

static void add_source(grouping *x, int id, int source)
{
    if (is_source_of(x, id, source))
        return;
    group *g = &x->p->group.item[id];
    int *at = POOL_PUSH(&x->c->pool, &g->sources);
    if (!at)
        return;
    *at = source;
    int first = g->sources.count > SOURCES_LISTED + 1 ? g->sources.count - 1 : 0;
    for (int s = first; s < g->sources.count && g->sources.count > SOURCES_LISTED && !x->c->pool.failed; s++)
        pair_add(&x->c->pool, &x->waits, pair_key(id, g->sources.item[s]));
}

/* Whether every group of another device that the pop reads from is one that group `id` waits for anyway. */
static bool waits_already(const grouping *x, const pop *op, int id)
{
    for (int i = 0; i < op->in_count; i++) {
        const pop *from = input_maker(x->c, op, i);
        if (from && apart(from, op) && !is_source_of(x, id, from->group) && !copied_before(from, op))
            return false;
    }
    for (int i = 0; i < op->waits.count; i++)
        if (!is_source_of(x, id, x->p->op.item[op->waits.item[i]].group))
            return false;
    return true;
}

static void close_group(grouping *x, int id)
{
    int_list *open = &x->open[x->p->group.item[id].device];
    for (int i = 0; i < open->count; i++)
        if (open->item[i] == id) {
            open->item[i] = open->item[--open->count];
            return;
        }
}

/* Whether the pop makes what a further tier of a conversion reads. */
static bool is_tier(const compile *c, const pop *op)
{
    const ir_node *node = pop_node(c, op);
    const weir_mesh *mesh = node->op == &op_box ? c->ir.tensors.item[node->out[0]].mesh : NULL;
    return mesh && (mesh->home || mesh->whole);
}

static bool same_stream(const compile *c, const group *g, const pop *op)
{
    return !apart(&c->phys.op.item[g->pops.item[0]], op) && g->program == pop_node(c, op)->program &&
           g->phase == op->phase && g->micro == op->micro;
}

/* The group that the pop joins, or -1. Closes those that it may not join but would otherwise have. */
static int find_open(grouping *x, const pop *op, bool alone)
{
    const int_list *open = &x->open[op->device];
    for (int i = open->count - 1; i >= 0; i--) {
        int id = open->item[i];
        const group *g = &x->p->group.item[id];
        if (!same_stream(x->c, g, op))
            continue;
        if (alone) {
            close_group(x, id);
        } else if (g->depth == op->depth) {
            if (waits_already(x, op, id) && (g->tiers == is_tier(x->c, op) || op->phase == PLAN_UPDATE))
                return id;
            close_group(x, id);
        }
    }
    return NONE;
}

static int group_new(grouping *x, const pop *op)
{
    group *g = POOL_PUSH(&x->c->pool, &x->p->group);
    int *at = POOL_PUSH(&x->c->pool, &x->open[op->device]);
    if (!g || !at)
        return NONE;
    *g = (group){.device = op->device, .program = pop_node(x->c, op)->program,
                 .phase = op->phase, .micro = op->micro, .queue = op->queue, .io = op->io, .depth = op->depth,
                 .tiers = is_tier(x->c, op)};
    *at = x->p->group.count - 1;
    return *at;
}

/* Whether the pop copies parameters out, or converts or copies in what comes of that alone: all of that can begin with the
 * step, so nothing is won if each is on its way at once. */
static bool moves_kept(const grouping *x, const pop *op)
{
    const compile *c = x->c;
    const ir_node *node = pop_node(c, op);
    bool kept = op->in_count && (node->copies || node->op == &op_box);
    for (int i = 0; i < op->in_count && kept; i++) {
        const pop *from = input_maker(c, op, i);
        kept = from ? x->kept[from - x->p->op.item] : node->copies || c->ir.tensors.item[node->out[0]].parts;
    }
    return kept;
}

/* Ends the pop's group when what it makes should be on its way. */
static void maybe_end(grouping *x, const pop *op)
{
    uint64_t *published = &x->published[op->group];
    bool end = false, at_once = op->phase != PLAN_UPDATE && !x->kept[op - x->p->op.item] && !is_tier(x->c, op);
    for (int o = 0; o < op->out_count; o++) {
        const ptensor *t = &x->p->tensor.item[op->out[o]];
        bool leaves = false;
        for (int r = 0; r < t->readers.count && !t->parameter; r++) {
            const pop *reader = &x->p->op.item[t->readers.item[r]];
            leaves |= apart(reader, op);
            end |= apart(reader, op) && reader->phase == op->phase && at_once;
        }
        end |= t->chunk;
        *published += leaves ? t->bytes : 0;
    }
    if (end || op->awaited || *published >= bucket_of(x->c, op))
        close_group(x, op->group);
}

/* Whether what collective `of` waits for is what `open` waits for anyway, so that it may as well be a part of that. */
static bool meets_already(const grouping *x, const pcollective *of, const pcollective *open)
{
    const pop *first = &x->p->op.item[of->members.item[0]], *other = &x->p->op.item[open->members.item[0]];
    const group *g = &x->p->group.item[other->group];
    if (!same_stream(x->c, g, first) || first->depth != other->depth)
        return false;
    for (int m = 0; m < of->members.count; m++)
        if (!waits_already(x, &x->p->op.item[of->members.item[m]], x->p->op.item[open->members.item[m]].group))
            return false;
    return true;
}

static void add_sources(grouping *x, const pop *op, int id)
{
    for (int i = 0; i < op->in_count; i++) {
        const pop *from = input_maker(x->c, op, i);
        if (from && apart(from, op))
            add_source(x, id, from->group);
    }
    for (int i = 0; i < op->waits.count; i++)
        add_source(x, id, x->p->op.item[op->waits.item[i]].group);
}

static void add_sources_of(grouping *x, const pcollective *of, const pcollective *open)
{
    for (int m = 0; m < of->members.count; m++)
        add_sources(x, &x->p->op.item[of->members.item[m]], x->p->op.item[open->members.item[m]].group);
}

/* Joins a collective by its first member: all become part of one that is there, or it is one more. */
static bool join_collective(grouping *x, int id)
{
    const pop *op = &x->p->op.item[id];
    int of = op->collective;
    int_list *met = &x->met[op->device];
    for (int i = met->count - 1; i >= 0 && i >= met->count - MET_LOOKED_AT; i--)
        if (collectives_fit(x->c, met->item[i], of, bucket_of(x->c, op)) &&
            meets_already(x, &x->p->collective.item[of], &x->p->collective.item[met->item[i]])) {
            add_sources_of(x, &x->p->collective.item[of], &x->p->collective.item[met->item[i]]);
            collectives_merge(x->c, met->item[i], of);
            return true;
        }
    int *at = POOL_PUSH(&x->c->pool, met);
    if (at)
        *at = of;
    return false;
}

static void join(grouping *x, int id)
{
    pop *op = &x->p->op.item[id];
    op->depth = pop_depth(x->c, op);
    if (op->collective != NONE && x->p->collective.item[op->collective].members.item[0] == id && join_collective(x, id))
        return;
    bool alone = alone_on(op->queue) || op->queue == PLAN_COLLECTIVE || pop_node(x->c, op)->op->actor;
    x->kept[id] = moves_kept(x, op);
    op->group = find_open(x, op, alone);
    if (op->group < 0)
        op->group = group_new(x, op);
    if (op->group < 0)
        return; /* no memory */
    group *g = &x->p->group.item[op->group];
    int *at = POOL_PUSH(&x->c->pool, &g->pops);
    if (!at)
        return;
    *at = id;
    add_sources(x, op, op->group);
    if (alone)
        close_group(x, op->group);
    maybe_end(x, op);
}

/* ---- registers ---- */

static int number_order(const void *a, const void *b)
{
    const int *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* The groups that read the tensor, other than the one that makes it, in ascending order. */
static void reader_groups(compile *c, const ptensor *t, int maker, int_list *list)
{
    int kept = 0, last = -1;
    bool rising = true;
    for (int r = 0; r < t->readers.count; r++) {
        int g = c->phys.op.item[t->readers.item[r]].group;
        int *at = g == maker || g == last ? NULL : POOL_PUSH(&c->pool, list);
        if (!at)
            continue;
        *at = g;
        rising &= g > last;
        last = g;
    }
    if (rising)
        return;
    qsort(list->item, (size_t)list->count, sizeof *list->item, number_order);
    for (int i = 0; i < list->count; i++)
        if (!kept || list->item[kept - 1] != list->item[i])
            list->item[kept++] = list->item[i];
    list->count = kept;
}

/* The kind of what a step begins with. */
static plan_mem kept_kind(const compile *c, const ptensor *t)
{
    return c->ir.tensors.item[t->tensor].origin->delay ? PLAN_KEPT : PLAN_PARAMETER;
}

/* Whether the pop makes a copy of a parameter in another dtype. */
static bool copies_parameter(const compile *c, const pop *op)
{
    const ptensor *in = op->in_count ? &c->phys.tensor.item[op->in[0]] : NULL;
    return pop_node(c, op)->op == &op_cast && in && in->parameter && kept_kind(c, in) == PLAN_PARAMETER;
}

static plan_mem reg_kind(const compile *c, const ptensor *t)
{
    if (c->ir.tensors.item[t->tensor].state_of)
        return PLAN_STATE;
    if (t->parameter)
        return kept_kind(c, t);
    const pop *maker = &c->phys.op.item[t->producer];
    const ir_node *node = pop_node(c, maker);
    if (node->op == &op_source || node->op == &op_call)
        return PLAN_IO;
    if (node->op == &op_box || node->copies)
        return PLAN_TRANSFER;
    if (copies_parameter(c, maker))
        return PLAN_COPY;
    return maker->phase == PLAN_FORWARD || node->again ? PLAN_ACTIVATION : PLAN_GRADIENT;
}

/* Whether the tensor gets a register that no other joins. A register that starts full is never given back. Mapped tensors
 * lie apart in their files. */
static bool stands_alone(const compile *c, const ptensor *t, const int_list *readers)
{
    bool away = false;
    if (c->phys.device.item[t->device].kind == WEIR_MAPPED)
        return true;
    for (int i = 0; i < readers->count; i++)
        away |= c->phys.group.item[readers->item[i]].device != t->device;
    return !t->initial && t->bytes >= group_own_bytes * (away ? OWN_AWAY : 1);
}

static bool reg_fits(const reg *r, const reg *wanted, const int_list *readers)
{
    return r->group == wanted->group && r->device == wanted->device && r->kind == wanted->kind &&
           r->fill == wanted->fill && r->initial == wanted->initial && r->fixed == wanted->fixed &&
           r->family == wanted->family && (!r->fixed || r->slots == wanted->slots) &&
           (r->family != NONE || (!r->alone && r->readers.count == readers->count &&
                          (!readers->count ||
                           !memcmp(r->readers.item, readers->item, sizeof(int) * (size_t)readers->count))));
}

/* Appends a value that is not there yet to a list of ints. */
#define LIST_ADD(p, list, value)             \
    do {                                     \
        int *at_ = POOL_PUSH((p), (list));   \
        if (at_)                             \
            *at_ = (value);                  \
    } while (0)

/* A family has one register, which is read by all that read one of its tensors. */
static void add_readers(compile *c, int id, const int_list *readers)
{
    reg *r = &c->phys.reg.item[id];
    for (int i = 0; i < readers->count; i++) {
        LIST_ONCE(&c->pool, &r->readers, readers->item[i]);
        LIST_ONCE(&c->pool, &c->phys.group.item[readers->item[i]].reads, id);
    }
    qsort(r->readers.item, (size_t)r->readers.count, sizeof *r->readers.item, number_order);
}

static int reg_for(compile *c, const ptensor *t, int maker, const int_list *readers)
{
    phys *p = &c->phys;
    assert(maker >= 0 || readers->count > 0);
    int slots = t->slots ? t->slots : t->initial > 1 ? t->initial : 1;
    const reg wanted = {.group = maker, .device = t->device, .kind = reg_kind(c, t), .fill = t->fills ? c->micro : 1,
                        .slots = slots, .fixed = t->slots > 0, .initial = t->initial,
                        .alone = stands_alone(c, t, readers), .family = t->family};
    const int *near = maker >= 0 ? p->group.item[maker].regs.item : p->group.item[readers->item[0]].reads.item;
    int near_count = maker >= 0 ? p->group.item[maker].regs.count : p->group.item[readers->item[0]].reads.count;
    for (int i = near_count - 1; i >= 0 && (!wanted.alone || wanted.family != NONE); i--)
        if (reg_fits(&p->reg.item[near[i]], &wanted, readers)) {
            const int found = near[i];
            if (wanted.family != NONE)
                add_readers(c, found, readers);
            return found;
        }
    reg *r = POOL_PUSH(&c->pool, &p->reg);
    if (!r)
        return NONE;
    *r = wanted;
    int id = p->reg.count - 1;
    if (maker >= 0)
        LIST_ADD(&c->pool, &p->group.item[maker].regs, id);
    for (int i = 0; i < readers->count; i++) {
        LIST_ADD(&c->pool, &r->readers, readers->item[i]);
        LIST_ADD(&c->pool, &p->group.item[readers->item[i]].reads, id);
    }
    return id;
}

/* Whether the tensor needs a register although nobody reads it: the next step's parameter, or one that is made where
 * there is no workspace, as of a sum that others read. */
static bool lies_alone(const compile *c, const ptensor *t)
{
    const pop *maker = t->producer >= 0 ? &c->phys.op.item[t->producer] : NULL;
    return maker && (t->parameter || maker->queue == PLAN_IO_QUEUE || pop_node(c, maker)->sum != NONE);
}

/* A tensor that lies in another one is in its register, if somebody gives or takes it. Wholes come before their parts. */
static void place_within(compile *c, int id)
{
    ptensor *t = &c->phys.tensor.item[id];
    const ptensor *whole = &c->phys.tensor.item[ptensor_whole(&c->phys, id)];
    int *at = whole->reg < 0 || !t->moved ? NULL : POOL_PUSH(&c->pool, &c->phys.reg.item[whole->reg].tensors);
    if (!at)
        return;
    *at = id;
    t->producer = whole->producer;
    t->reg = whole->reg;
    t->offset = whole->offset + t->distance;
}

/* Gives the tensor a register when it leaves its group. */
static void place_tensor(compile *c, int id)
{
    ptensor *t = &c->phys.tensor.item[id];
    bool made = t->producer >= 0;
    if (t->within != NONE) {
        place_within(c, id);
        return;
    }
    if (t->alias >= 0 || (!t->parameter && (!made || c->phys.op.item[t->producer].dead)))
        return;
    int from = made ? c->phys.op.item[t->producer].group : NONE;
    int_list readers = {0};
    reader_groups(c, t, from, &readers);
    if (!readers.count && !lies_alone(c, t))
        return;
    t->reg = reg_for(c, t, from, &readers);
    if (t->reg < 0)
        return; /* no memory */
    reg *r = &c->phys.reg.item[t->reg];
    int *at = POOL_PUSH(&c->pool, &r->tensors);
    if (!at)
        return;
    *at = id;
    t->offset = r->slot_bytes;
    r->slot_bytes += t->bytes;
}

bool pass_group(compile *c)
{
    grouping x = {.c = c, .p = &c->phys, .open = POOL_NEW(&c->pool, int_list, c->phys.device.count + 1),
                  .met = POOL_NEW(&c->pool, int_list, c->phys.device.count + 1),
                  .kept = POOL_NEW(&c->pool, bool, c->phys.op.count + 1),
                  .published = POOL_NEW(&c->pool, uint64_t, c->phys.op.count + 1)};
    for (int i = 0; i < c->phys.op.count && !c->pool.failed; i++)
        if (!c->phys.op.item[i].dead)
            join(&x, i);
    for (int t = 0; t < c->phys.tensor.count && !c->pool.failed; t++)
        place_tensor(c, t);
    return !c->pool.failed || error_set(WEIR_E_MEMORY, "no memory to compile \"%s\"", c->graph->name) == WEIR_OK;
}
