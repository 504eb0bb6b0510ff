/* graph/compile/place_conflict.c: who is in conflict with whom, and what height that needs at the least.
 *
 * Blocks that are all in conflict with each other lie one above the other, so the bytes of any clique are a lower
 * bound. Of lives on a line the heaviest clique is the largest sum of what is alive at one time. In a matrix it is
 * hard to find; a greedy one is grown from each of the heaviest blocks.
 */
#include "graph/compile/packing.h"

#include <stdlib.h>
#include <string.h>

#define CLIQUES_MAX 32             /* blocks that a clique is grown from */

typedef struct event {             /* a life begins or ends; what ends at a time ends before what begins there */
    int64_t at;
    int v;                         /* block; ~block where its life ends */
} event;

static int event_order(const void *a, const void *b)
{
    const event *x = a, *y = b;
    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    if ((x->v < 0) != (y->v < 0))
        return x->v < 0 ? -1 : 1;
    return x->v < y->v ? -1 : x->v > y->v;
}

static bool is_alive(const place_block *b)
{
    return b->bytes && b->from < b->until;
}

/* The two events of every life, in order; *count becomes their number. */
static event *events_of(packing *x, int *count)
{
    event *list = POOL_NEW(&x->pool, event, 2 * x->count + 1);
    *count = 0;
    for (int v = 0; v < x->count && list; v++) {
        if (!is_alive(&x->block[v]))
            continue;
        list[(*count)++] = (event){x->block[v].from, v};
        list[(*count)++] = (event){x->block[v].until, ~v};
    }
    if (list)
        qsort(list, (size_t)*count, sizeof *list, event_order);
    return list;
}

/* Calls with each pair of blocks that are alive together: first to count neighbours, then to write them. */
static void pair_counted(packing *x, int *next, int a, int b)
{
    (void)x;
    next[a]++;
    next[b]++;
}

static void pair_written(packing *x, int *next, int a, int b)
{
    x->near[next[a]++] = b;
    x->near[next[b]++] = a;
}

typedef void pair_visit(packing *x, int *next, int a, int b);

static void pairs_of_lives(packing *x, const event *list, int count, int *alive, pair_visit *visit, int *next)
{
    int living = 0;
    for (int e = 0; e < count; e++) {
        int v = list[e].v;
        if (v >= 0) {
            for (int k = 0; k < living; k++)
                visit(x, next, v, alive[k]);
            alive[living++] = v;
            continue;
        }
        for (int k = 0; k < living; k++)
            if (alive[k] == ~v)
                alive[k--] = alive[--living];
    }
}

static void pairs_of_matrix(packing *x, pair_visit *visit, int *next)
{
    size_t words = ((size_t)x->count + 63) / 64;
    for (int a = 0; a < x->count; a++)
        for (size_t w = (size_t)a / 64; w < words && x->block[a].bytes; w++)
            for (uint64_t bits = x->conflict[(size_t)a * words + w]; bits; bits &= bits - 1) {
                int b = (int)(w * 64) + __builtin_ctzll(bits);
                if (b > a && b < x->count && x->block[b].bytes)
                    visit(x, next, a, b);
            }
}

bool packing_neighbours(packing *x)
{
    int count = 0, *next = POOL_NEW(&x->pool, int, x->count + 1), *alive = POOL_NEW(&x->pool, int, x->count + 1);
    event *list = x->conflict ? NULL : events_of(x, &count);
    x->first = POOL_NEW(&x->pool, int, x->count + 1);
    if (x->pool.failed)
        return false;
    x->conflict ? pairs_of_matrix(x, pair_counted, next) : pairs_of_lives(x, list, count, alive, pair_counted, next);
    for (int v = 0; v < x->count; v++) {
        x->first[v + 1] = x->first[v] + next[v];
        next[v] = x->first[v];
    }
    x->near = POOL_NEW(&x->pool, int, x->first[x->count] + 1);
    if (!x->near)
        return false;
    x->conflict ? pairs_of_matrix(x, pair_written, next) : pairs_of_lives(x, list, count, alive, pair_written, next);
    return true;
}

/* The largest sum of what is alive at one time. */
static uint64_t bound_of_lives(packing *x)
{
    int count = 0;
    event *list = events_of(x, &count);
    uint64_t bytes = 0, most = 0;
    for (int e = 0; e < count && list; e++) {
        bytes += list[e].v >= 0 ? x->block[list[e].v].bytes : -x->block[~list[e].v].bytes;
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* Bytes of a clique around v: of those that are in conflict with all in it, the one of most bytes joins it next.
 * `common` counts, by block, how many of the clique it is in conflict with. */
static uint64_t clique_around(const packing *x, int v, int *common)
{
    uint64_t bytes = x->block[v].bytes;
    memset(common, 0, sizeof *common * (size_t)x->count);
    for (int size = 1; v >= 0; size++) {
        int heaviest = -1;
        for (int k = x->first[v]; k < x->first[v + 1]; k++) {
            int u = x->near[k];
            if (++common[u] == size && (heaviest < 0 || x->block[u].bytes > x->block[heaviest].bytes))
                heaviest = u;
        }
        bytes += heaviest >= 0 ? x->block[heaviest].bytes : 0;
        v = heaviest;
    }
    return bytes;
}

static uint64_t bytes_around(const packing *x, int v)
{
    uint64_t bytes = x->block[v].bytes;
    for (int k = x->first[v]; k < x->first[v + 1]; k++)
        bytes += x->block[x->near[k]].bytes;
    return bytes;
}

/* The heaviest of the cliques around the blocks that have most bytes around them. */
static uint64_t bound_of_matrix(packing *x)
{
    int *common = POOL_NEW(&x->pool, int, x->count + 1);
    uint64_t *around = POOL_NEW(&x->pool, uint64_t, x->count + 1), most = 0;
    if (!common || !around)
        return 0;
    for (int v = 0; v < x->count; v++)
        around[v] = bytes_around(x, v);
    for (int i = 0; i < CLIQUES_MAX && i < x->count; i++) {
        int v = 0;
        for (int u = 1; u < x->count; u++)
            v = around[u] > around[v] ? u : v;
        if (around[v] <= most)
            break;
        uint64_t bytes = clique_around(x, v, common);
        most = bytes > most ? bytes : most;
        around[v] = 0;
    }
    return most;
}

uint64_t packing_bound(packing *x)
{
    uint64_t bound = x->conflict ? bound_of_matrix(x) : bound_of_lives(x);
    for (int v = 0; v < x->count; v++)
        if (x->block[v].fixed && x->block[v].bytes && x->block[v].offset + x->block[v].bytes > bound)
            bound = x->block[v].offset + x->block[v].bytes;
    return bound;
}
