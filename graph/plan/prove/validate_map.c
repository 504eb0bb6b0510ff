/* graph/plan/prove/validate_map.c: do parts of an arena share bytes that may be needed at the same time?
 *
 * An arena's parts are registers, states, the snapshot, and each temporary and each kernel's scratch in the workspaces.
 * They are sorted by place; a walk from low to high keeps those that reach up to here. Two that meet must be apart by
 * graph/plan/lives/lives.h, or one holds what the other is to hold there (graph/plan/lives/window.h), and whatever is always there
 * meets nobody. Two temporaries of one queue may meet, for one actor
 * runs at a time, and what its kernels have there follows from their order (validate_op.c, validate_kernel.c); so
 * the workspaces of two queues, as wholes, do not meet.
 *
 * Every such pair is asked about, so how many there may be is bounded, by the size of the plan, as is the work of
 * lives.h: a file from anywhere must not keep a reader busy. In a part of a plan only the rank's own arenas are looked at:
 * kernels of others are not there, and their arenas are not here.
 */
#include "graph/plan/lives/map.h"
#include "graph/plan/prove/validate.h"
#include "graph/plan/lives/window.h"

#include <stdlib.h>

#define MEETINGS_PER_PART 256 /* comparisons; above this the plan is refused */
#define MEETINGS_MIN (1u << 16)

static const char *const part_array[] = {"regsts", "tensors", "kernels", "tensors", "spaces"};

/* ---- the walk ---- */

typedef struct open_part {
    const map_part *is;
    bool looked;       /* `life` is known: some part was asked about with this one */
    life_known life;
} open_part;

typedef struct walk {
    const weir_plan *plan;
    lives *known; /* borrowed: what somebody knows of this plan already; or NULL */
    lives *lives; /* made when something is first asked: owned, or the known ones */
    bool entered; /* the space that the walk is in */
    open_part *open;  /* parts that reach up to here: those outside of workspaces, and those in them */
    open_part *open_temps;
    size_t opened, opened_temps;
    uint64_t left; /* comparisons */
} walk;

static bool in_workspace(const map_part *x)
{
    return x->kind == MAP_TEMP || x->kind == MAP_SCRATCH;
}

static bool has_life(const map_part *x)
{
    return in_workspace(x) || x->kind == MAP_REGST;
}

static bool enter_space(walk *w, uint32_t space)
{
    if (!w->lives)
        w->lives = w->known ? w->known : lives_new(w->plan);
    w->entered = w->entered || (w->lives && lives_enter(w->lives, (plan_space_id){space}));
    return w->entered;
}

/* Whether `part` lies within what is gathered from it into `whole`. Counts as comparisons what it looks at. */
static bool in_window(walk *w, const map_part *x, const map_part *whole)
{
    const weir_plan *plan = w->plan;
    if (x->kind != MAP_REGST || plan->regsts[x->index].slots != 1 ||
        (whole->kind != MAP_REGST && whole->kind != MAP_TEMP))
        return false;
    plan_actor_id maker = whole->kind == MAP_TEMP ? whole->life.actor : plan->regsts[whole->index].producer;
    uint64_t cost = maker.i == PLAN_NONE ? UINT64_MAX : plan->actors[maker.i].kernels.count;
    if (cost > w->left)
        return false;
    window found;
    w->left -= cost;
    if (!window_find(plan, x->life.regst, maker, &found) || !window_lies(plan, x->life.regst, &found))
        return false;
    const plan_tensor *tensor = &plan->tensors[found.tensor.i];
    bool same = whole->kind == MAP_TEMP ? found.tensor.i == whole->index
                                         : tensor->home == PLAN_IN_REGST && tensor->owner == whole->index;
    return same && lives_in_turn(w->lives, &whole->life, &x->life);
}

/* Whether the sum is written over a part of the term that its own kernel alone reads. */
static bool is_onto(walk *w, const map_part *sum, const map_part *term)
{
    const weir_plan *plan = w->plan;
    window found;
    if (sum->kind != MAP_REGST || term->kind != MAP_REGST || plan->regsts[sum->index].slots != 1 ||
        plan->regsts[sum->index].producer.i == PLAN_NONE)
        return false;
    uint64_t cost = plan->actors[plan->regsts[sum->index].producer.i].kernels.count;
    uint32_t count;
    const uint32_t *readers = lives_readers(w->lives, term->life.regst, &count);
    for (uint32_t i = 0; i < count; i++)
        cost += plan->actors[plan->ports[readers[i]].actor.i].kernels.count;
    if (cost > w->left)
        return false;
    w->left -= cost;
    return window_onto(plan, w->lives, sum->life.regst, term->life.regst, &found) &&
           window_lies(plan, sum->life.regst, &found) && lives_in_turn(w->lives, &sum->life, &term->life);
}

static const life_known *look(const walk *w, open_part *x)
{
    if (!x->looked)
        x->life = lives_look(w->lives, x->is->life);
    x->looked = true;
    return &x->life;
}

static bool meets(walk *w, open_part *x, open_part *y)
{
    const map_part *a = x->is, *b = y->is;
    const char *one = part_array[a->kind], *other = part_array[b->kind];
    if (has_life(a) && has_life(b)) {
        if (!enter_space(w, a->space))
            return false;
        if (lives_apart_known(w->lives, look(w, x), look(w, y)))
            return true;
        if (in_window(w, a, b) || in_window(w, b, a) || is_onto(w, a, b) || is_onto(w, b, a))
            return true;
    }
    return REFUSE_PLAN("%s[%" PRIu32 "] and %s[%" PRIu32 "] overlap in the arena of spaces[%" PRIu32
                       "], and may be needed at the same time",
                       one, a->index, other, b->index, a->space);
}

/* Parts that end before `b` are taken out, the others must not mind it. */
static bool meets_all(walk *w, open_part *open, size_t *opened, open_part *b)
{
    size_t kept = 0;
    if (w->left < *opened)
        return REFUSE_PLAN("spaces[%" PRIu32 "]: too many parts of its arena share bytes to prove them all apart",
                           b->is->space);
    w->left -= *opened;
    for (size_t i = 0; i < *opened; i++) {
        if (open[i].is->space != b->is->space || open[i].is->end <= b->is->first)
            continue;
        if (kept < i)
            open[kept] = open[i];
        if (!meets(w, &open[kept++], b))
            return false;
    }
    *opened = kept;
    return true;
}

static bool walk_to(walk *w, const map_part *part)
{
    open_part b = {.is = part};
    if (!meets_all(w, w->open, &w->opened, &b))
        return false;
    if (in_workspace(part)) {
        w->open_temps[w->opened_temps++] = b;
        return true;
    }
    w->open[w->opened++] = b;
    return meets_all(w, w->open_temps, &w->opened_temps, &b);
}

static void leave_space(walk *w)
{
    w->entered = false;
    w->opened = w->opened_temps = 0;
}

static bool looked_at(const weir_plan *plan, uint32_t space)
{
    return !plan->part || plan->spaces[space].rank == plan->part - 1;
}

static bool walk_parts(walk *w, map_part *parts, size_t count)
{
    bool ok = true;
    for (size_t i = 0; ok && i < count; i++) {
        if (i && parts[i].space != parts[i - 1].space)
            leave_space(w);
        if (looked_at(w->plan, parts[i].space))
            ok = walk_to(w, &parts[i]);
    }
    if (w->lives != w->known)
        lives_free(w->lives);
    return ok;
}

/* ---- workspaces as wholes ---- */

static bool validate_workspaces(const weir_plan *plan, map_part *to)
{
    size_t count = 0;
    for (uint32_t q = 0; q < plan->queues_count; q++) {
        const plan_queue *queue = &plan->queues[q];
        if (queue->workspace_bytes)
            to[count++] = (map_part){.first = queue->workspace_offset,
                                     .end = queue->workspace_offset + queue->workspace_bytes,
                                     .space = queue->space.i,
                                     .index = q};
    }
    qsort(to, count, sizeof *to, map_compare);
    for (size_t i = 1; i < count; i++)
        if (to[i - 1].space == to[i].space && to[i - 1].end > to[i].first)
            return REFUSE_PLAN("queues[%" PRIu32 "] and queues[%" PRIu32 "] overlap in the arena of spaces[%" PRIu32
                               "]",
                               to[i - 1].index, to[i].index, to[i].space);
    return true;
}

size_t validate_map_bytes(const weir_plan *plan)
{
    return map_most(plan) * (sizeof(map_part) + 2 * sizeof(open_part)) + plan->tensors_count * sizeof(uint32_t);
}

bool validate_map(const weir_plan *plan, lives *known, void *scratch)
{
    size_t most = map_most(plan);
    map_part *parts = scratch;
    walk w = {.plan = plan,
              .known = known && lives_are_of(known, plan) ? known : NULL,
              .open = (open_part *)(parts + most)};
    w.open_temps = w.open + most;
    if (!validate_workspaces(plan, parts))
        return false;
    size_t count = map_parts(plan, parts, (uint32_t *)(w.open_temps + most));
    qsort(parts, count, sizeof *parts, map_compare);
    w.left = MEETINGS_MIN + (uint64_t)count * MEETINGS_PER_PART;
    return walk_parts(&w, parts, count);
}
