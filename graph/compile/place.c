/* graph/compile/place.c: one placement: neighbours, bound, orders, search.
 */
#include "graph/compile/packing.h"

#include <assert.h>
#include <string.h>

void packing_keep(packing *x)
{
    uint64_t height = 0;
    for (int v = 0; v < x->count; v++)
        if (x->block[v].bytes && x->offset[v] + x->block[v].bytes > height)
            height = x->offset[v] + x->block[v].bytes;
    if (height >= x->height)
        return;
    x->height = height;
    memcpy(x->best, x->offset, sizeof *x->best * (size_t)x->count);
}

/* What is known before any order is tried. */
static bool packing_open(packing *x, const place_problem *problem)
{
    *x = (packing){.count = problem->count, .block = problem->block, .conflict = problem->conflict,
                   .height = UINT64_MAX, .bound = problem->bound, .work = (int64_t)problem->budget};
    x->offset = POOL_NEW(&x->pool, uint64_t, x->count + 1);
    x->best = POOL_NEW(&x->pool, uint64_t, x->count + 1);
    if (!x->offset || !x->best || !packing_neighbours(x))
        return false;
    uint64_t bound = packing_bound(x);
    x->bound = bound > x->bound ? bound : x->bound;
    return !x->pool.failed;
}

bool place(place_problem *problem)
{
    assert(problem->count >= 0);
    packing x;
    bool good = packing_open(&x, problem) && packing_greedy(&x);
    for (int v = 0; v < x.count && good; v++)
        problem->block[v].offset = x.best[v];
    if (good) {
        problem->height = x.height;
        problem->lower_bound = x.bound < x.height ? x.bound : x.height;
    }
    pool_free(&x.pool);
    return good;
}
