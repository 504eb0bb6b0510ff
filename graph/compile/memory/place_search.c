/* graph/compile/memory/place_search.c: looks for placements that are no higher than a target.
 *
 * Every placement can be pushed down until each block lies at 0 or directly on another, so only such placements are
 * looked for. They are built from the bottom up: `low` of an open block is the lowest place that those placed leave it.
 * Of the open blocks the lowest is taken (of several, the first in an order of priorities), and there are two ways on:
 *
 *     it lies at its `low`;                    the neighbours' lows rise above it
 *     it does not; then it will lie on a       its own low rises to the least top that an open
 *     neighbour that is still open             neighbour can have; where there is none, nowhere
 *
 * No neighbour fits below the lowest open block, so nothing is missed, and both ways are tried before the block that
 * was decided before it is decided anew.
 *
 * After each decision every section says how high it will become: its open blocks, in the order of their lows, one
 * above the other, none below its low. Where that is above the target there is no way on. Only sections whose lows
 * have changed are asked.
 *
 * One such search, cut off after a number of decisions, finds placements close to the bound where orders alone are
 * several per cent above it. So it is run as dives: for targets between the bound and the best height, by bisection,
 * with three orders of priorities each; then again with twice the decisions, and with priorities that are shaken. What
 * a search has been through to its end without a placement raises the bound: small problems end so, with a proof.
 *
 * The idea of building from the bottom and asking sections is that of Moffitt, "MiniMalloc: A Lightweight Memory
 * Allocator for Hardware-Accelerated Machine Learning" (ASPLOS 2023); the two ways on are those of schedulers ("now or
 * later").
 */
#include "graph/compile/memory/packing.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

typedef enum outcome { FOUND, NONE, CUT_OFF } outcome; /* NONE: it has been through all */

typedef struct decision {
    int v, undo;                   /* the length of the list of changes before it */
    bool later;                    /* the second way is being tried */
} decision;

typedef struct change {
    int v;
    uint64_t low;                  /* before */
} change;

typedef struct priority {
    double key[3];                 /* the largest first; of equal ones the next decides, then the number */
    int v;
} priority;

typedef struct search {
    packing *x;
    uint64_t target, unit;         /* heights are multiples of `unit` */
    uint64_t *low;
    uint64_t *load;                /* by section: how high it becomes at the least */
    int *open, open_count;         /* blocks, by their lows */
    bool *placed;
    int *turn;                     /* by block: its number in the order of priorities */
    priority *order;
    double *crowd;                 /* by block: bytes of its fullest section */
    int from, to;                  /* sections that have changed since they were asked */
    POOL_LIST(decision) path;
    POOL_LIST(change) changes;
    uint64_t random;
} search;

/* ---- what follows from a decision ---- */

static void section_touched(search *s, int v)
{
    const packing *x = s->x;
    for (int r = x->run_first[v]; r < x->run_first[v + 1]; r++) {
        s->from = x->run[r].from < s->from ? x->run[r].from : s->from;
        s->to = x->run[r].to > s->to ? x->run[r].to : s->to;
    }
}

static void low_rises(search *s, int v, uint64_t low)
{
    change *c = POOL_PUSH(s->x->pool, &s->changes);
    if (c)
        *c = (change){v, s->low[v]};
    s->low[v] = low;
    section_touched(s, v);
}

/* Puts the open blocks into the order of their lows; few are out of it. */
static void open_sort(search *s)
{
    for (int i = 1; i < s->open_count; i++) {
        int v = s->open[i], k = i;
        for (; k > 0 && s->low[s->open[k - 1]] > s->low[v]; k--)
            s->open[k] = s->open[k - 1];
        s->open[k] = v;
    }
}

/* Lays block v onto its sections, as far as they have changed. */
static void load_add(search *s, int v)
{
    const packing *x = s->x;
    uint64_t low = s->low[v], bytes = x->block[v].bytes, *load = s->load;
    for (int r = x->run_first[v]; r < x->run_first[v + 1]; r++) {
        int from = x->run[r].from > s->from ? x->run[r].from : s->from;
        int to = x->run[r].to < s->to ? x->run[r].to : s->to;
        for (int k = from; k < to; k++)
            load[k] = (load[k] > low ? load[k] : low) + bytes;
        s->x->work -= 2 + (to > from ? (to - from) / 4 : 0);
    }
}

/* Whether no section that has changed becomes higher than the target. */
static bool sections_fit(search *s)
{
    uint64_t most = 0;
    open_sort(s);
    for (int k = s->from; k < s->to; k++)
        s->load[k] = 0;
    for (int i = 0; i < s->open_count; i++)
        load_add(s, s->open[i]);
    for (int k = s->from; k < s->to; k++)
        most = s->load[k] > most ? s->load[k] : most;
    s->x->work -= s->open_count;
    s->from = s->x->sections;
    s->to = 0;
    return most <= s->target;
}

/* ---- the two ways ---- */

/* The lowest open block, of several the one whose turn comes first. */
static int lowest(const search *s)
{
    int best = s->open[0];
    for (int i = 1; i < s->open_count && s->low[s->open[i]] == s->low[best]; i++)
        if (s->turn[s->open[i]] < s->turn[best])
            best = s->open[i];
    return best;
}

static bool lies_now(search *s, int v)
{
    packing *x = s->x;
    uint64_t top = s->low[v] + x->block[v].bytes;
    decision *d = POOL_PUSH(x->pool, &s->path);
    if (d)
        *d = (decision){v, s->changes.count, false};
    int at = 0;
    while (s->open[at] != v)
        at++;
    memmove(s->open + at, s->open + at + 1, sizeof *s->open * (size_t)(--s->open_count - at));
    s->placed[v] = true;
    section_touched(s, v);
    for (size_t k = x->first[v]; k < x->first[v + 1]; k++) {
        int u = x->near[k];
        if (!s->placed[u] && s->low[u] < top)
            low_rises(s, u, packing_align(top, x->block[u].align));
    }
    x->work -= 2 * packing_degree(x, v) + at;
    return sections_fit(s);
}

/* The least top that an open neighbour can have, or UINT64_MAX. */
static uint64_t least_top(search *s, int v)
{
    const packing *x = s->x;
    uint64_t least = UINT64_MAX;
    for (size_t k = x->first[v]; k < x->first[v + 1]; k++) {
        int u = x->near[k];
        if (!s->placed[u] && s->low[u] + x->block[u].bytes < least)
            least = s->low[u] + x->block[u].bytes;
    }
    s->x->work -= packing_degree(x, v);
    return least;
}

static bool lies_later(search *s, int v)
{
    uint64_t least = least_top(s, v);
    if (least > s->target)
        return false;
    assert(least > s->low[v]);
    low_rises(s, v, packing_align(least, s->x->block[v].align));
    return sections_fit(s);
}

static void undo_to(search *s, int count)
{
    while (s->changes.count > count) {
        const change *c = &s->changes.item[--s->changes.count];
        s->low[c->v] = c->low;
    }
}

/* Back to the last decision whose second way is left, and on from there. False: there is none. */
static bool step_back(search *s)
{
    while (s->path.count) {
        decision *d = &s->path.item[s->path.count - 1];
        undo_to(s, d->undo);
        if (!d->later) {
            d->later = true;
            s->placed[d->v] = false;
            s->open[s->open_count++] = d->v;
            if (lies_later(s, d->v))
                return true;
        } else {
            s->path.count--;
        }
    }
    return false;
}

/* ---- a dive ---- */

static void dive_start(search *s)
{
    const packing *x = s->x;
    memset(s->low, 0, sizeof *s->low * (size_t)x->count);
    memset(s->placed, 0, sizeof *s->placed * (size_t)x->count);
    for (int i = 0; i < x->count; i++)
        s->open[i] = s->order[i].v;
    s->open_count = x->count;
    s->path.count = s->changes.count = 0;
    s->from = 0;
    s->to = x->sections;
}

/* Tries to stay at or below the target, with so many decisions at the most. */
static outcome dive(search *s, int64_t decisions)
{
    packing *x = s->x;
    dive_start(s);
    bool fits = sections_fit(s);
    for (; fits && s->open_count; decisions--) {
        if (decisions <= 0 || x->work <= 0 || x->pool->failed)
            return CUT_OFF;
        if (!lies_now(s, lowest(s)))
            fits = step_back(s);
    }
    if (!fits)
        return NONE;
    memcpy(x->offset, s->low, sizeof *x->offset * (size_t)x->count);
    packing_keep(x);
    return FOUND;
}

/* ---- priorities ---- */

static int priority_order(const void *a, const void *b)
{
    const priority *x = a, *y = b;
    for (int k = 0; k < 3; k++)
        if (x->key[k] != y->key[k])
            return x->key[k] < y->key[k] ? 1 : -1;
    return x->v - y->v;
}

/* The next number of a sequence (splitmix64). */
static uint64_t draw(search *s)
{
    uint64_t z = s->random += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

/* By life, by what is around and by area, each of which comes first in one `kind`; `shaken` by so many per cent. */
static void prioritize(search *s, int kind, uint64_t shaken)
{
    static const int rotation[3][3] = {{0, 1, 2}, {2, 1, 0}, {2, 0, 1}};
    packing *x = s->x;
    for (int v = 0; v < x->count; v++) {
        double life = packing_life(x, v), by[3] = {life, life * (double)x->block[v].bytes, s->crowd[v]};
        priority *p = &s->order[v];
        for (int k = 0; k < 3; k++)
            p->key[k] = by[rotation[kind][k]] * (double)(100 + (shaken ? draw(s) % shaken : 0));
        p->v = v;
    }
    qsort(s->order, (size_t)x->count, sizeof *s->order, priority_order);
    for (int i = 0; i < x->count; i++)
        s->turn[s->order[i].v] = i;
    x->work -= 64 * (int64_t)x->count;
}

/* By block, the bytes of its fullest section. */
static void crowds(search *s)
{
    const packing *x = s->x;
    s->from = 0;
    s->to = x->sections;
    for (int v = 0; v < x->count; v++)
        load_add(s, v);
    for (int v = 0; v < x->count; v++)
        for (int r = x->run_first[v]; r < x->run_first[v + 1]; r++)
            for (int k = x->run[r].from; k < x->run[r].to; k++)
                s->crowd[v] = (double)s->load[k] > s->crowd[v] ? (double)s->load[k] : s->crowd[v];
}

/* ---- targets ---- */

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* What every height is a multiple of. */
static uint64_t unit_of(const packing *x)
{
    uint64_t unit = 0;
    for (int v = 0; v < x->count; v++)
        unit = common_divisor(unit, x->block[v].bytes);
    for (int v = 0; v < x->count; v++)
        if (x->block[v].align > 1 && unit % x->block[v].align)
            return 1;
    return unit;
}

static outcome dive_by_each_priority(search *s, uint64_t target, int64_t decisions, int round)
{
    outcome result = CUT_OFF;
    s->target = target;
    for (int kind = 0; kind < 3 && result == CUT_OFF && s->x->work > 0; kind++) {
        prioritize(s, kind, round > 2 ? 30 : 0);
        result = dive(s, decisions);
    }
    if (result == NONE)
        s->x->bound = packing_align(target + 1, s->unit);
    return result;
}

/* Targets between the bound and the height, the bound itself first, then the middle of what is left; until what is
 * left is a small part of the height, the smaller the later the round. */
static void targets(search *s, int64_t decisions, int round)
{
    packing *x = s->x;
    uint64_t floor = x->bound, target = floor, least = x->height >> (round < 8 ? 6 + round : 14);
    while (x->work > 0 && !x->pool->failed && floor < x->height) {
        if (dive_by_each_priority(s, target, decisions, round) != FOUND)
            floor = target + s->unit;
        floor = x->bound > floor ? x->bound : floor;
        if (floor + least >= x->height)
            break;
        target = floor + (x->height - floor) / 2 / s->unit * s->unit;
    }
}

static bool search_open(search *s, packing *x)
{
    *s = (search){.x = x, .unit = unit_of(x)};
    s->low = POOL_NEW(x->pool, uint64_t, x->count + 1);
    s->load = POOL_NEW(x->pool, uint64_t, x->sections + 1);
    s->open = POOL_NEW(x->pool, int, x->count + 1);
    s->placed = POOL_NEW(x->pool, bool, x->count + 1);
    s->turn = POOL_NEW(x->pool, int, x->count + 1);
    s->order = POOL_NEW(x->pool, priority, x->count + 1);
    s->crowd = POOL_NEW(x->pool, double, x->count + 1);
    return !x->pool->failed;
}

bool packing_search(packing *x)
{
    search s;
    if (packing_done(x) || x->fixed || x->work <= 0)
        return true;
    if (!search_open(&s, x))
        return false;
    crowds(&s);
    x->bound = packing_align(x->bound, s.unit);
    int64_t decisions = 2 * (int64_t)x->count;
    for (int round = 0; !packing_done(x) && x->work > 0 && !x->pool->failed; round++, decisions *= 2)
        targets(&s, decisions, round);
    return !x->pool->failed;
}
