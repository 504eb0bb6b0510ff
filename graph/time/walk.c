/* graph/time/walk.c: see the header. Points are few hundreds, so those that are looked for are found one after the other. */
#include "graph/time/walk.h"

#include "graph/base/error.h"
#include "graph/plan/prove/check.h"

#include <stdlib.h>
#include <string.h>

#define NOT_PLAYED WALK_NOT_PLAYED
#define DEAD (WALK_NOT_PLAYED - 1) /* no step ends */
enum { SLOTS_LEAST_MOST = 4, SLOTS_MOST = 1 << 17 };

static weir_status no_memory(void)
{
    return error_set(WEIR_E_MEMORY, "no memory to try other slots");
}

/* ---- bounds ---- */

/* Whether all that the actor does has a time. */
static bool is_timed(const weir_plan *plan, uint32_t actor)
{
    const plan_actor *of = &plan->actors[actor];
    bool timed = plan->queues[of->queue.i].kind == PLAN_COMPUTE && plan->spaces[plan_actor_space(plan, actor).i].kind == WEIR_CPU;
    for (uint32_t k = of->kernels.first; k < of->kernels.first + of->kernels.count; k++)
        timed &= plan->kernels[k].host == PLAN_NONE;
    return timed;
}

static bool may_change(const prediction *p, const plan_regst *r)
{
    return !r->fixed && !r->initial && r->slot_bytes && r->tensors.count && r->producer.i != PLAN_NONE &&
           p->plan->actors[r->producer.i].program.i == p->program && is_timed(p->plan, r->producer.i);
}

/* The most slots that the register can make use of. */
static uint32_t slots_most(const weir_plan *plan, const plan_regst *r, uint32_t now)
{
    const uint64_t written = plan->actors[r->producer.i].fires / (r->fill ? r->fill : 1), room = PLAN_BYTES_MAX / r->slot_bytes;
    uint64_t most = 2 * written > SLOTS_LEAST_MOST ? 2 * written : SLOTS_LEAST_MOST;
    most = most < SLOTS_MOST ? most : SLOTS_MOST;
    most = most < room ? most : room;
    return most > now ? (uint32_t)most : now;
}

weir_status walk_open(walk *w, prediction *p)
{
    const weir_plan *plan = p->plan;
    *w = (walk){.prediction = p, .best = PLAN_NONE};
    w->least = calloc(plan->regsts_count + (size_t)1, sizeof *w->least);
    w->most = calloc(plan->regsts_count + (size_t)1, sizeof *w->most);
    w->trial = calloc(plan->regsts_count + (size_t)1, sizeof *w->trial);
    if (!w->least || !w->most || !w->trial)
        return no_memory();
    for (uint32_t r = 0; r < plan->regsts_count; r++) {
        const bool may = may_change(p, &plan->regsts[r]);
        w->least[r] = may ? 1 : p->changes.slots[r];
        w->most[r] = may ? slots_most(plan, &plan->regsts[r], p->changes.slots[r]) : p->changes.slots[r];
    }
    for (uint32_t i = 0; i < plan->ports_count; i++) {
        const uint32_t r = plan->ports[i].regst.i;
        if (!is_timed(plan, plan->ports[i].actor.i) || !plan_port_counts(plan, &plan->ports[i]))
            w->least[r] = w->most[r] = p->changes.slots[r];
    }
    return WEIR_OK;
}

void walk_close(walk *w)
{
    for (uint32_t i = 0; i < w->count; i++)
        free(w->points[i].slots);
    free(w->points);
    free(w->least);
    free(w->most);
    free(w->trial);
    *w = (walk){0};
}

/* ---- points ---- */

static uint32_t find(const walk *w, const uint32_t *slots)
{
    uint32_t i = 0;
    while (i < w->count && memcmp(w->points[i].slots, slots, w->prediction->plan->regsts_count * sizeof *slots) != 0)
        i++;
    return i;
}

static bool points_grow(walk *w)
{
    const uint32_t room = w->room ? 2 * w->room : 64;
    walk_point *points = w->count < w->room ? w->points : realloc(w->points, room * sizeof *points);
    if (!points)
        return false;
    w->room = w->count < w->room ? w->room : room;
    w->points = points;
    return true;
}

/* The point with these slots, which is made if it is not there. PLAN_NONE: no memory. */
static uint32_t add(walk *w, const uint32_t *slots, uint32_t from)
{
    const weir_plan *plan = w->prediction->plan;
    const uint32_t there = find(w, slots);
    if (there < w->count)
        return there;
    walk_point point = {.slots = calloc(plan->regsts_count + (size_t)1, sizeof *slots), .ps = NOT_PLAYED, .from = from};
    if (!point.slots || !points_grow(w)) {
        free(point.slots);
        return PLAN_NONE;
    }
    memcpy(point.slots, slots, plan->regsts_count * sizeof *slots);
    for (uint32_t r = 0; r < plan->regsts_count; r++)
        point.bytes += slots[r] * plan->regsts[r].slot_bytes;
    w->points[w->count] = point;
    return w->count++;
}

/* The registers of a cycle that may get another slot, each once; the first `count` of `grow`. */
static uint32_t that_may_grow(const walk *w, const walk_point *at, const period_result *period, uint32_t *grow)
{
    uint32_t count = 0;
    for (uint32_t e = 0; e < period->count; e++) {
        const uint32_t r = period->cycle[e].kind == WEIR_BOUND_SLOT ? w->prediction->plan->ports[period->cycle[e].port].regst.i : PLAN_NONE;
        bool is_new = r != PLAN_NONE && at->slots[r] < w->most[r];
        for (uint32_t i = 0; i < count && is_new; i++)
            is_new = grow[i] != r;
        if (is_new)
            grow[count++] = r;
    }
    return count;
}

/* Plays a point. The registers that may get a slot then are the first *count of *grow, which the caller frees. */
static weir_status play(walk *w, uint32_t k, uint32_t **grow, uint32_t *count)
{
    clock_result played;
    period_result period;
    *grow = NULL;
    *count = 0;
    weir_status status = prediction_play(w->prediction, w->points[k].slots, &played, &period);
    if (status == WEIR_E_LIVE) {
        w->points[k].ps = DEAD;
        w->plays++;
        status = WEIR_OK;
    } else if (!status) {
        w->points[k].ps = played.period;
        w->plays++;
        w->firings += played.firings;
        *grow = malloc((period.count + (size_t)1) * sizeof **grow);
        status = *grow ? WEIR_OK : no_memory();
        *count = status ? 0 : that_may_grow(w, &w->points[k], &period, *grow);
    }
    free(played.busy);
    free(period.cycle);
    return status;
}

static bool is_over(const walk *w)
{
    return w->plays >= WALK_PLAYS || w->firings >= WALK_FIRINGS || (uint64_t)w->count * w->prediction->plan->regsts_count >= WALK_SLOTS;
}

/* ---- the walk ---- */

/* Gives the register that is too small what it needs. False: that is none of those that may get more. */
static bool raise_short(const walk *w, weir_plan *with, const check_result *result)
{
    const uint32_t r = result->short_of.i;
    if (r == PLAN_NONE || with->regsts[r].slots >= w->most[r])
        return false;
    const bool enough = result->slots_needed > with->regsts[r].slots && result->slots_needed <= w->most[r];
    with->regsts[r].slots = enough ? result->slots_needed : with->regsts[r].slots + 1;
    return true;
}

/* The fewest slots, raised to what makes the plan live, in `first`; where that is not found, those that were given. */
static weir_status find_first(const walk *w, uint32_t *first)
{
    weir_plan with = *w->prediction->plan;
    check_result result = {.live = false};
    with.regsts = malloc((with.regsts_count + (size_t)1) * sizeof *with.regsts);
    weir_status status = with.regsts ? WEIR_OK : no_memory();
    for (uint32_t r = 0; !status && r < with.regsts_count; r++) {
        with.regsts[r] = w->prediction->plan->regsts[r];
        with.regsts[r].slots = w->least[r];
        with.regsts[r].fixed = w->least[r] == w->most[r];
    }
    while (!status && !result.live) {
        status = check_play(&with, &result);
        if (!status && !result.live && !raise_short(w, &with, &result))
            break;
    }
    for (uint32_t r = 0; !status && r < with.regsts_count; r++)
        first[r] = result.live ? with.regsts[r].slots : w->prediction->changes.slots[r];
    free(with.regsts);
    return status;
}

/* The point that is to be played next, the one of the fewest bytes; PLAN_NONE: all have been. */
static uint32_t smallest(const walk *w)
{
    uint32_t best = PLAN_NONE;
    for (uint32_t i = 0; i < w->count; i++)
        if (w->points[i].ps == NOT_PLAYED && (best == PLAN_NONE || w->points[i].bytes < w->points[best].bytes))
            best = i;
    return best;
}

/* The point with one more slot each; PLAN_NONE: no memory. */
static uint32_t with_more(walk *w, uint32_t k, const uint32_t *grow, uint32_t count)
{
    memcpy(w->trial, w->points[k].slots, w->prediction->plan->regsts_count * sizeof *w->trial);
    for (uint32_t i = 0; i < count; i++)
        w->trial[grow[i]]++;
    return add(w, w->trial, k);
}

/* Plays the point and makes all that follow from it: behind an end, where only another order can help, from all registers. */
static weir_status branch(walk *w, uint32_t k)
{
    uint32_t *grow, count;
    weir_status status = play(w, k, &grow, &count);
    const bool ends = !status && !count && w->points[k].ps < DEAD;
    w->ends |= ends;
    for (uint32_t i = 0; i < count && !status; i++)
        status = with_more(w, k, &grow[i], 1) == PLAN_NONE ? no_memory() : WEIR_OK;
    for (uint32_t r = 0; ends && r < w->prediction->plan->regsts_count && w->count < WALK_PLAYS && !is_over(w) && !status; r++)
        if (w->points[k].slots[r] < w->most[r])
            status = with_more(w, k, &r, 1) == PLAN_NONE ? no_memory() : WEIR_OK;
    free(grow);
    return status;
}

static weir_status branch_on(walk *w)
{
    weir_status status = WEIR_OK;
    for (uint32_t k; !status && w->plays < WALK_BRANCHES && !is_over(w) && (k = smallest(w)) != PLAN_NONE;)
        status = branch(w, k);
    return status;
}

/* The point of the fewest bytes among those with the shortest steps, but for the slack. */
static uint32_t best_of(const walk *w)
{
    uint64_t least = NOT_PLAYED;
    uint32_t best = PLAN_NONE;
    for (uint32_t i = 0; i < w->count; i++)
        least = w->points[i].ps < least ? w->points[i].ps : least;
    for (uint32_t i = 0; i < w->count; i++)
        if (w->points[i].ps < DEAD && w->points[i].ps <= least + least / 1000 * WALK_SLACK &&
            (best == PLAN_NONE || w->points[i].bytes < w->points[best].bytes))
            best = i;
    return best;
}

/* All registers of a cycle gain at once. */
static weir_status run(walk *w)
{
    uint32_t k = best_of(w);
    weir_status status = WEIR_OK;
    while (!status && !w->ends && !is_over(w) && k != PLAN_NONE) {
        uint32_t *grow, count;
        status = play(w, k, &grow, &count);
        w->ends = !status && !count;
        if (count)
            k = with_more(w, k, grow, count);
        status = k == PLAN_NONE ? no_memory() : status;
        free(grow);
    }
    return status;
}

/* Tries the best point with other slots of one register; *better: it is the best now. */
static weir_status try(walk *w, uint32_t r, bool more, bool *better)
{
    const uint32_t k = w->best, slots = w->points[k].slots[r];
    uint32_t *grow = NULL, count;
    *better = false;
    if ((more ? slots >= w->most[r] : slots <= w->least[r]) || is_over(w))
        return WEIR_OK;
    memcpy(w->trial, w->points[k].slots, w->prediction->plan->regsts_count * sizeof *w->trial);
    w->trial[r] = more ? slots + 1 : slots - 1;
    const uint32_t tried = add(w, w->trial, k);
    if (tried == PLAN_NONE)
        return no_memory();
    weir_status status = w->points[tried].ps == NOT_PLAYED ? play(w, tried, &grow, &count) : WEIR_OK;
    free(grow);
    w->best = best_of(w);
    *better = w->best == tried;
    return status;
}

typedef struct sized {
    uint64_t bytes;
    uint32_t regst;
} sized;

static int larger_first(const void *a, const void *b)
{
    const sized *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes < y->bytes) - (x->bytes > y->bytes) : (x->regst > y->regst) - (x->regst < y->regst);
}

/* Changes one register after the other, the largest first, as long as that makes the best point better. */
static weir_status polish(walk *w)
{
    const weir_plan *plan = w->prediction->plan;
    sized *order = malloc((plan->regsts_count + (size_t)1) * sizeof *order);
    weir_status status = order ? WEIR_OK : no_memory();
    for (uint32_t r = 0; r < plan->regsts_count && order; r++)
        order[r] = (sized){plan->regsts[r].slot_bytes, r};
    if (order)
        qsort(order, plan->regsts_count, sizeof *order, larger_first);
    for (bool better = true, any; better && !status; better = any) {
        any = false;
        for (uint32_t i = 0; !status && i < 2 * plan->regsts_count; i++) {
            const bool more = i >= plan->regsts_count;
            do {
                status = try(w, order[i % plan->regsts_count].regst, more, &better);
                any |= better;
            } while (better && !status);
        }
    }
    free(order);
    return status;
}

/* The slots that were given, and at least the first ones: what has fewer than those is live. */
static weir_status begin(walk *w, const uint32_t *first)
{
    const uint32_t *given = w->prediction->changes.slots;
    for (uint32_t r = 0; r < w->prediction->plan->regsts_count; r++)
        w->trial[r] = given[r] > first[r] ? given[r] : first[r];
    weir_status status = add(w, w->trial, PLAN_NONE) == PLAN_NONE ? no_memory() : branch(w, 0);
    const uint32_t second = status ? PLAN_NONE : add(w, first, PLAN_NONE);
    w->ends &= second == 0; /* an end counts if it was found from the fewest slots */
    return status || second != PLAN_NONE ? status : no_memory();
}

weir_status walk_find(walk *w)
{
    uint32_t *first = calloc(w->prediction->plan->regsts_count + (size_t)1, sizeof *first);
    weir_status status = first ? find_first(w, first) : no_memory();
    status = status ? status : begin(w, first);
    free(first);
    status = status ? status : branch_on(w);
    status = status || w->ends ? status : run(w);
    w->best = status ? PLAN_NONE : best_of(w);
    if (!status && w->best == PLAN_NONE)
        status = error_set(WEIR_E_LIVE, "no step of the program ends, with any number of slots; weir check says why");
    return status ? status : polish(w);
}
