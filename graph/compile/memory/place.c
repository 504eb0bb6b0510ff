/* graph/compile/memory/place.c: takes a problem apart, and puts the placements of its parts together.
 *
 * A block that is in conflict with all others shares bytes with none, so such blocks lie at the bottom, one above the
 * other, and the rest is placed above them; nothing is lost by it, as the bytes that they take can be cut out of any
 * placement. Of the rest, blocks that no chain of conflicts connects are placed apart from each other. The part of the
 * highest bound comes first; those after it need not be lower than what has been reached.
 */
#include "graph/compile/memory/packing.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

typedef struct placement {
    place_problem *problem;        /* borrowed */
    pool pool;
    packing all;                   /* what is left when the bottom is laid */
    uint64_t base;                 /* bytes at the bottom */
    uint64_t height;               /* of the parts that are placed */
    uint64_t bound;                /* that has been proven for the whole */
    int *part, parts;              /* of every block of `all` */
} placement;

void packing_keep(packing *x)
{
    uint64_t height = 0;
    for (int v = 0; v < x->count; v++)
        if (x->offset[v] + x->block[v].bytes > height)
            height = x->offset[v] + x->block[v].bytes;
    if (height >= x->height)
        return;
    x->height = height;
    memcpy(x->best, x->offset, sizeof *x->best * (size_t)x->count);
}

static bool packing_room(packing *x, int count)
{
    x->block = POOL_NEW(x->pool, place_block, count + 1);
    x->id = POOL_NEW(x->pool, int, count + 1);
    x->offset = POOL_NEW(x->pool, uint64_t, count + 1);
    x->best = POOL_NEW(x->pool, uint64_t, count + 1);
    x->height = UINT64_MAX;
    return !x->pool->failed;
}

static void packing_add(packing *x, const place_block *block, int id)
{
    x->fixed |= block->fixed;
    x->id[x->count] = id;
    x->block[x->count++] = *block;
}

/* ---- the bottom ---- */

static bool takes_place(const place_problem *problem, const place_block *b)
{
    return b->bytes && (problem->conflict || b->from < b->until);
}

/* Blocks that take no place lie at 0. */
static bool blocks_collect(placement *p)
{
    place_problem *problem = p->problem;
    p->all = (packing){.pool = &p->pool, .lives = !problem->conflict};
    if (!packing_room(&p->all, problem->count))
        return false;
    for (int v = 0; v < problem->count; v++) {
        place_block *b = &problem->block[v];
        if (takes_place(problem, b))
            packing_add(&p->all, b, v);
        else if (!b->fixed)
            b->offset = 0;
    }
    return true;
}

/* Whether any order of blocks one above the other takes the same bytes. */
static bool has_no_padding(const packing *x)
{
    uint64_t align = x->count ? x->block[0].align : 0;
    for (int v = 0; v < x->count; v++)
        if (x->block[v].align != align || x->block[v].bytes % (align ? align : 1))
            return false;
    return !x->fixed;
}

/* Lays those that are in conflict with all others, and numbers the rest anew. */
static void bottom_lay(placement *p, const int *degree)
{
    packing *x = &p->all;
    int count = x->count, kept = 0;
    if (!has_no_padding(x))
        return;
    for (int v = 0; v < count; v++) {
        if (degree[v] < count - 1) {
            x->id[kept] = x->id[v];
            x->block[kept++] = x->block[v];
            continue;
        }
        p->problem->block[x->id[v]].offset = p->base;
        p->base += x->block[v].bytes;
    }
    x->count = kept;
}

/* ---- parts ---- */

/* Numbers the parts that chains of conflicts connect. */
static bool parts_number(placement *p)
{
    packing *x = &p->all;
    int *queue = POOL_NEW(&p->pool, int, x->count + 1);
    p->part = POOL_NEW(&p->pool, int, x->count + 1);
    if (!queue || !p->part)
        return false;
    memset(p->part, -1, sizeof *p->part * (size_t)x->count);
    for (int root = 0; root < x->count; root++) {
        int head = 0, tail = 0;
        if (p->part[root] >= 0)
            continue;
        p->part[root] = p->parts++;
        for (queue[tail++] = root; head < tail; head++)
            for (size_t k = x->first[queue[head]]; k < x->first[queue[head] + 1]; k++)
                if (p->part[x->near[k]] < 0) {
                    p->part[x->near[k]] = p->part[root];
                    queue[tail++] = x->near[k];
                }
    }
    return true;
}

/* An empty part for each, with room for its blocks. */
static bool parts_open(placement *p, packing *list)
{
    for (int v = 0; v < p->all.count; v++)
        list[p->part[v]].count++;
    for (int k = 0; k < p->parts; k++) {
        int count = list[k].count;
        list[k] = (packing){.pool = &p->pool, .lives = p->all.lives};
        list[k].first = POOL_NEW(&p->pool, size_t, count + 1);
        if (!list[k].first || !packing_room(&list[k], count))
            return false;
    }
    return true;
}

/* The blocks of each part with their neighbours, and its bound. `local` is for the numbers of blocks in their parts. */
static bool parts_fill(placement *p, packing *list, int *local)
{
    const packing *x = &p->all;
    for (int v = 0; v < x->count; v++) {
        packing *part = &list[p->part[v]];
        local[v] = part->count;
        packing_add(part, &x->block[v], x->id[v]);
        part->first[part->count] = part->first[part->count - 1] + (size_t)packing_degree(x, v);
    }
    for (int k = 0; k < p->parts; k++)
        list[k].near = POOL_NEW(&p->pool, int, list[k].first[list[k].count] + 1);
    for (int v = 0; v < x->count && !p->pool.failed; v++) {
        packing *part = &list[p->part[v]];
        for (size_t k = x->first[v]; k < x->first[v + 1]; k++)
            part->near[part->first[local[v]] + k - x->first[v]] = local[x->near[k]];
    }
    for (int k = 0; k < p->parts && !p->pool.failed; k++)
        if (!packing_sections(&list[k]))
            return false;
    return !p->pool.failed;
}

static int bound_order(const void *a, const void *b)
{
    const packing *x = a, *y = b;
    if (x->bound != y->bound)
        return x->bound < y->bound ? 1 : -1;
    return x->id[0] < y->id[0] ? -1 : x->id[0] > y->id[0];
}

static bool part_place(placement *p, packing *x, int64_t work)
{
    uint64_t proven = x->bound;
    x->work = work;
    x->bound = p->height > proven ? p->height : proven;
    if (!packing_greedy(x) || !packing_search(x))
        return false;
    for (int v = 0; v < x->count; v++)
        if (!x->block[v].fixed)
            p->problem->block[x->id[v]].offset = p->base + x->best[v];
    if (x->bound > proven && x->bound > p->height)
        proven = x->bound;
    p->bound = p->base + proven > p->bound ? p->base + proven : p->bound;
    p->height = x->height > p->height ? x->height : p->height;
    return true;
}

static bool parts_place(placement *p)
{
    int *local = POOL_NEW(&p->pool, int, p->all.count + 1);
    packing *list = POOL_NEW(&p->pool, packing, p->parts + 1);
    int64_t work = (int64_t)p->problem->budget, left = p->all.count;
    if (!local || !list || !parts_open(p, list) || !parts_fill(p, list, local))
        return false;
    qsort(list, (size_t)p->parts, sizeof *list, bound_order);
    for (int k = 0; k < p->parts; k++) {
        int64_t share = (int64_t)((double)work * (double)list[k].count / (double)left);
        if (!part_place(p, &list[k], share))
            return false;
        work -= share - (list[k].work > 0 ? list[k].work : 0);
        left -= list[k].count;
    }
    return true;
}

/* ---- all ---- */

static bool placement_make(placement *p)
{
    int *degree = blocks_collect(p) ? POOL_NEW(&p->pool, int, p->all.count + 1) : NULL;
    if (!degree || !packing_degrees(&p->all, p->problem, degree))
        return false;
    bottom_lay(p, degree);
    p->bound = p->problem->bound > p->base ? p->problem->bound : p->base;
    p->height = p->bound - p->base;
    if (!packing_neighbours(&p->all, p->problem) || !parts_number(p))
        return false;
    return parts_place(p);
}

/* What the blocks need, in the problem's own words. */
static uint64_t height_of(const place_problem *problem)
{
    uint64_t height = 0;
    for (int v = 0; v < problem->count; v++) {
        const place_block *b = &problem->block[v];
        if (takes_place(problem, b) && b->offset + b->bytes > height)
            height = b->offset + b->bytes;
    }
    return height;
}

bool place(place_problem *problem)
{
    assert(problem->count >= 0 && (problem->count == 0 || problem->block));
    placement p = {.problem = problem};
    bool good = placement_make(&p);
    if (good) {
        problem->height = height_of(problem);
        problem->lower_bound = p.bound < problem->height ? p.bound : problem->height;
    }
    pool_free(&p.pool);
    return good;
}
