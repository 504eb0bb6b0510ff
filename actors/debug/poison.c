/* actors/debug/poison.c: a debug run, in which bytes that nobody needs hold nothing that anybody could use.
 *
 * Parts of an arena lie on the same bytes when the plan proves that they are never needed at the same time. With
 * `.poison` (or WEIR_POISON=1) a session acts on that proof: whatever begins to be needed is filled with ones, which is
 * NaN to a float of any width, before the kernel that first writes it, and what is needed no longer right after the
 * kernel that last reads it. So a proof that is wrong, a kernel that reads what it never wrote, or more than its op says,
 * shows as NaN in what is computed, or as an index out of range, instead of as a value that may happen to be right.
 *
 *     temporaries, scratch    before their first kernel, after their last
 *     slots of registers      before the kernel that first writes them; after the last kernel of their reader, where
 *                             they have one, and it sees the bytes themselves (others cannot tell who is last)
 *
 * Registers that start full, states and snapshots are left alone; so is memory that the host cannot reach. Results are the
 * same bits as without. A session that is not poisoned pays nothing: kernels are called through a function that is put in
 * front of them when the session is built.
 *
 * A *stretch* is filled before or after a kernel. All of them are found from the plan when the session is built, and
 * lie in one array, those of a kernel beside each other: first those before it. Where a slot is, and whether this firing is
 * the first or last that has to do with it, the counters of register and port tell, which belong to the kernel's own
 * thread.
 *
 * The parts that a tensor is gathered from may lie within it (graph/plan/lives/window.h): they are there before it, and are
 * read after it. So a stretch of the tensor is cut around it, and the end of the part's own life leaves it as it is.
 */
#include "actors/debug/debug.h"

#include "graph/base/error.h"
#include "graph/plan/lives/window.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define POISON 0xff

struct stretch {
    uint32_t kernel;
    bool after;
    char *base;                      /* of the first slot, or of what is no slot */
    uint64_t bytes;
    const struct actor_out *out;     /* the slot that it fills; only when this firing is its first */
    const struct actor_port *port;   /* the slot that it reads; only when this firing is its last */
};

struct poisoned {
    weir_kernel_fn call;             /* the op's own */
    uint32_t first, count;           /* stretches */
    const struct poison *all;
};

struct poison {
    const weir_plan *plan;           /* borrowed */
    struct built *built;             /* borrowed */
    struct stretch *stretches;       /* owned */
    uint32_t count, room;
    struct poisoned *kernels;        /* owned; by kernel */
    struct within *windows;          /* owned: where they are, in ascending order; until all is found */
    uint32_t window_count;
};

/* The bytes of a register that lies within a tensor. */
struct within {
    const char *first, *end;
    uint32_t regst;
    bool onto;                       /* it is written over what was there, which is a term of it */
};

/* ---- while it runs ---- */

static void fill(const struct stretch *stretch)
{
    uint32_t slot = 0;
    if (stretch->out) {
        if (stretch->out->regst.filled)
            return;
        slot = stretch->out->regst.slot;
    } else if (stretch->port) {
        const struct regst_reader *reader = &stretch->port->reader;
        if (reader->hold > 1 && reader->held + 1 < reader->hold)
            return;
        slot = reader->slot;
    }
    memset(stretch->base + slot * stretch->bytes, POISON, stretch->bytes);
}

static weir_status call_poisoned(const weir_kernel_args *args)
{
    const struct actor_kernel *kernel =
        (const struct actor_kernel *)((const char *)args - offsetof(struct actor_kernel, args));
    const struct poisoned *p = kernel->poisoned;
    const struct stretch *stretch = p->all->stretches + p->first, *end = stretch + p->count;
    for (; stretch < end && !stretch->after; stretch++)
        fill(stretch);
    weir_status status = p->call(args);
    for (; stretch < end && !status; stretch++)
        fill(stretch);
    return status;
}

/* ---- what is filled when ---- */

static struct stretch *add(struct poison *poison, uint32_t kernel, bool after)
{
    if (poison->count == poison->room) {
        uint32_t room = 2 * poison->room + 64;
        struct stretch *more = realloc(poison->stretches, room * sizeof *more);
        if (!more)
            return NULL;
        poison->stretches = more;
        poison->room = room;
    }
    poison->stretches[poison->count] = (struct stretch){.kernel = kernel, .after = after};
    return &poison->stretches[poison->count++];
}

/* The first or the last kernel of the actor that has the tensor (of this register, where it is not PLAN_NONE, through
 * this port) among its inputs or outputs; PLAN_NONE: none has. */
struct use {
    uint32_t tensor, regst, port;
    bool reads, writes;
};

static bool is_used(const weir_plan *plan, const plan_range *range, const struct use *use)
{
    for (uint32_t o = range->first; o < range->first + range->count; o++) {
        const plan_operand *operand = &plan->operands[o];
        const plan_tensor *tensor = &plan->tensors[operand->tensor.i];
        bool in_regst = use->regst != PLAN_NONE && tensor->home == PLAN_IN_REGST && tensor->owner == use->regst;
        if ((operand->tensor.i == use->tensor || in_regst) && operand->port.i == use->port)
            return true;
    }
    return false;
}

static uint32_t find_use(const weir_plan *plan, uint32_t actor, struct use use, bool last)
{
    const plan_range *kernels = &plan->actors[actor].kernels;
    uint32_t found = PLAN_NONE;
    for (uint32_t k = kernels->first; k < kernels->first + kernels->count && (last || found == PLAN_NONE); k++)
        if ((use.reads && is_used(plan, &plan->kernels[k].in, &use)) ||
            (use.writes && is_used(plan, &plan->kernels[k].out, &use)))
            found = k;
    return found;
}

/* Whether the kernel has another temporary among these operands on some of the same bytes: one works in place. */
static bool shares_place(const weir_plan *plan, const plan_range *range, uint32_t t)
{
    const plan_tensor *one = &plan->tensors[t];
    for (uint32_t o = range->first; o < range->first + range->count; o++) {
        const plan_tensor *other = &plan->tensors[plan->operands[o].tensor.i];
        if (plan->operands[o].tensor.i != t && other->home == PLAN_IN_TEMP &&
            one->offset < other->offset + plan_tensor_bytes(other) &&
            other->offset < one->offset + plan_tensor_bytes(one))
            return true;
    }
    return false;
}

/* A register with windows has one slot. */
static bool add_whole(struct poison *poison, struct stretch stretch)
{
    struct stretch *to = stretch.bytes ? add(poison, stretch.kernel, stretch.after) : NULL;
    if (to)
        *to = stretch;
    return to || !stretch.bytes;
}

/* Whether the window is in what is left of the stretch, and not all of it. */
static bool holds(const struct stretch *stretch, const struct stretch *rest, const struct within *w)
{
    return rest->base <= w->first && w->end <= rest->base + rest->bytes &&
           (uint64_t)(w->end - w->first) < stretch->bytes;
}

/* As one, or as what windows leave of it. */
static bool add_around(struct poison *poison, struct stretch stretch)
{
    struct stretch rest = stretch;
    bool ok = true;
    for (uint32_t i = 0; ok && i < poison->window_count; i++) {
        const struct within *w = &poison->windows[i];
        if (!holds(&stretch, &rest, w))
            continue;
        struct stretch before = rest;
        before.bytes = (uint64_t)(w->first - rest.base);
        ok = add_whole(poison, before);
        rest.bytes = (uint64_t)(rest.base + rest.bytes - w->end);
        rest.base += w->end - rest.base;
    }
    return ok && add_whole(poison, rest);
}

static bool add_stretch(struct poison *poison, uint32_t kernel, bool after, char *base, uint64_t bytes)
{
    return add_around(poison, (struct stretch){.kernel = kernel, .after = after, .base = base, .bytes = bytes});
}

static bool add_temp(struct poison *poison, uint32_t t)
{
    const weir_plan *plan = poison->plan;
    const plan_tensor *tensor = &plan->tensors[t];
    struct use use = {.tensor = t, .regst = PLAN_NONE, .port = PLAN_NONE, .reads = true, .writes = true};
    uint32_t first = find_use(plan, tensor->owner, use, false), last = find_use(plan, tensor->owner, use, true);
    char *base = arena_tensor(poison->built->arenas, plan, tensor, 0);
    bool ok = true;
    if (first != PLAN_NONE && !shares_place(plan, &plan->kernels[first].in, t))
        ok = add_stretch(poison, first, false, base, plan_tensor_bytes(tensor));
    if (ok && last != PLAN_NONE && !shares_place(plan, &plan->kernels[last].out, t))
        ok = add_stretch(poison, last, true, base, plan_tensor_bytes(tensor));
    return ok;
}

static bool add_scratch(struct poison *poison, uint32_t k)
{
    void *scratch = poison->built->kernels[k].args.workspace;
    uint64_t bytes = poison->plan->kernels[k].workspace_bytes;
    return add_stretch(poison, k, false, scratch, bytes) && add_stretch(poison, k, true, scratch, bytes);
}

static uint32_t readers_of(const weir_plan *plan, uint32_t r)
{
    uint32_t readers = 0;
    for (uint32_t p = 0; p < plan->ports_count; p++)
        readers += plan->ports[p].regst.i == r;
    return readers;
}

static char *slots_of(const struct poison *poison, uint32_t r)
{
    const struct arena *arena = &poison->built->arenas[poison->plan->regsts[r].space.i];
    return arena->base ? arena->base + poison->plan->regsts[r].offset : NULL;
}

static bool is_window(const struct poison *poison, uint32_t r, bool onto)
{
    for (uint32_t i = 0; i < poison->window_count; i++)
        if (poison->windows[i].regst == r && poison->windows[i].onto >= onto)
            return true;
    return false;
}

static bool add_written(struct poison *poison, uint32_t r)
{
    const plan_regst *regst = &poison->plan->regsts[r];
    struct use use = {.tensor = PLAN_NONE, .regst = r, .port = PLAN_NONE, .writes = true};
    const bool stays = regst->initial || is_window(poison, r, true);
    uint32_t first = stays ? PLAN_NONE : find_use(poison->plan, regst->producer.i, use, false);
    if (first == PLAN_NONE || !regst->slot_bytes)
        return true;
    return add_around(poison, (struct stretch){.kernel = first, .base = slots_of(poison, r), .bytes = regst->slot_bytes,
                                                  .out = &poison->built->outs[r]});
}

static bool add_read(struct poison *poison, uint32_t p)
{
    const plan_port *port = &poison->plan->ports[p];
    const plan_regst *regst = &poison->plan->regsts[port->regst.i];
    struct use use = {.tensor = PLAN_NONE, .regst = port->regst.i, .port = p, .reads = true};
    if (regst->initial || regst->producer.i == PLAN_NONE || !regst->slot_bytes || !slots_of(poison, port->regst.i) ||
        built_transfer(poison->built, p) || readers_of(poison->plan, port->regst.i) != 1 ||
        is_window(poison, port->regst.i, false))
        return true;
    uint32_t last = find_use(poison->plan, port->actor.i, use, true);
    struct stretch slot = {.kernel = last, .after = true, .base = slots_of(poison, port->regst.i),
                           .bytes = regst->slot_bytes, .port = poison->built->ends[p].port};
    return last == PLAN_NONE || add_around(poison, slot);
}

static bool add_actor(struct poison *poison, uint32_t a)
{
    const plan_actor *actor = &poison->plan->actors[a];
    bool ok = true;
    for (uint32_t t = actor->temps.first; ok && t < actor->temps.first + actor->temps.count; t++)
        ok = add_temp(poison, t);
    for (uint32_t k = actor->kernels.first; ok && k < actor->kernels.first + actor->kernels.count; k++)
        ok = add_scratch(poison, k);
    for (uint32_t r = actor->regsts.first; ok && r < actor->regsts.first + actor->regsts.count; r++)
        ok = add_written(poison, r);
    for (uint32_t p = actor->ports.first; ok && p < actor->ports.first + actor->ports.count; p++)
        ok = add_read(poison, p);
    return ok;
}

static int compare_windows(const void *a, const void *b)
{
    const struct within *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

static void see_window(struct poison *poison, uint32_t operand, bool onto)
{
    const plan_tensor *tensor = &poison->plan->tensors[poison->plan->operands[operand].tensor.i];
    const char *first = slots_of(poison, tensor->owner);
    if (first)
        poison->windows[poison->window_count++] =
            (struct within){first, first + poison->plan->regsts[tensor->owner].slot_bytes, tensor->owner, onto};
}

/* A shard that another rank sends to where it is gathered is there before the gathered tensor is. */
static void see_arrival(struct poison *poison, uint32_t operand)
{
    const plan_operand *of = &poison->plan->operands[operand];
    const plan_tensor *tensor = &poison->plan->tensors[of->tensor.i];
    const char *first = built_port_data(poison->built, of->port.i, tensor, 0);
    poison->windows[poison->window_count++] =
        (struct within){first, first + plan_tensor_bytes(tensor), tensor->owner, false};
}

/* The windows that kernels of this process gather from, and sums that they write over a term. */
static bool find_windows(struct poison *poison)
{
    const weir_plan *plan = poison->plan;
    poison->windows = calloc(plan->operands_count + (size_t)1, sizeof *poison->windows);
    for (uint32_t k = 0; k < plan->kernels_count && poison->windows; k++) {
        const plan_range *in = &plan->kernels[k].in;
        for (uint32_t o = in->first; o < in->first + in->count && built_runs(poison->built, plan->kernels[k].actor.i); o++)
            if (built_comes_in_place(poison->built, plan->operands[o].port.i))
                see_arrival(poison, o);
            else if (window_is(plan, k, o))
                see_window(poison, o, false);
            else if (window_is_onto(plan, k, o))
                see_window(poison, plan->kernels[k].out.first, true);
    }
    if (poison->windows && poison->window_count)
        qsort(poison->windows, poison->window_count, sizeof *poison->windows, compare_windows);
    return poison->windows;
}

static int compare_stretches(const void *a, const void *b)
{
    const struct stretch *x = a, *y = b;
    if (x->kernel != y->kernel)
        return x->kernel < y->kernel ? -1 : 1;
    return x->after - y->after;
}

/* Puts call_poisoned() in front of the kernels that have stretches. */
static void stand_in_front(struct poison *poison)
{
    if (!poison->stretches)
        return;
    qsort(poison->stretches, poison->count, sizeof *poison->stretches, compare_stretches);
    for (uint32_t i = 0; i < poison->count; i++) {
        struct actor_kernel *kernel = &poison->built->kernels[poison->stretches[i].kernel];
        struct poisoned *to = &poison->kernels[poison->stretches[i].kernel];
        if (!to->count++)
            *to = (struct poisoned){.call = kernel->call, .first = i, .count = 1, .all = poison};
        kernel->call = call_poisoned;
        kernel->poisoned = to;
    }
}

static bool host_reaches(const struct poison *poison, uint32_t actor)
{
    const weir_plan *plan = poison->plan;
    return device_host(plan->spaces[plan_actor_space(plan, actor).i].kind);
}

weir_status debug_poison(struct session_debug *debug, struct built *built)
{
    struct poison *poison = debug->poison = calloc(1, sizeof *poison);
    const weir_plan *plan = built->plan;
    if (poison) {
        poison->plan = plan;
        poison->built = built;
        poison->kernels = calloc(plan->kernels_count + (size_t)1, sizeof *poison->kernels);
    }
    bool ok = poison && poison->kernels && find_windows(poison);
    for (uint32_t a = 0; ok && a < plan->actors_count; a++)
        if (built_runs(built, a) && host_reaches(poison, a))
            ok = add_actor(poison, a);
    if (!ok)
        return error_set(WEIR_E_MEMORY, "no memory to poison what is not needed");
    stand_in_front(poison);
    return WEIR_OK;
}

void debug_close(struct session_debug *debug)
{
    if (debug->poison) {
        free(debug->poison->windows);
        free(debug->poison->stretches);
        free(debug->poison->kernels);
    }
    free(debug->poison);
    finite_close(debug->finite);
}
