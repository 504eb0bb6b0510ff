/* graph/compile/memory/place_greedy.c: placements by one order each.
 *
 * Blocks are taken in an order, and each is put at the lowest place (first fit) or into the tightest gap (best fit)
 * that those placed before leave it. No order is best for all: large blocks first leaves few gaps, long lives first
 * keeps what stays below what changes, and the number of bytes around a block says where space will be short.
 */
#include "graph/compile/memory/packing.h"

#include <stdlib.h>
#include <string.h>

enum { MANY = 16 };               /* conflicts are many when they are one of so many pairs */

typedef struct rank {              /* a block and what it is ordered by: the largest first, then the next, then by id */
    double key, next;
    int v;
} rank;

typedef struct span {              /* bytes that a neighbour takes */
    uint64_t from, to;
} span;

typedef struct greedy {
    packing *x;
    rank *order;
    span *taken;
    bool *placed;
    bool many;                     /* most blocks have so many neighbours that all are gone through for them: */
    int *rising, risen;            /* then those that are placed, by their offsets */
    int *around;                   /* and by block, 1 + the one whose neighbour it last was */
    bool best_fit;
} greedy;

static int rank_order(const void *a, const void *b)
{
    const rank *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? 1 : -1;
    if (x->next != y->next)
        return x->next < y->next ? 1 : -1;
    return x->v < y->v ? -1 : x->v > y->v;
}

static int span_order(const void *a, const void *b)
{
    const span *x = a, *y = b;
    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    return x->to < y->to ? -1 : x->to > y->to;
}

static void take_span(greedy *g, int u, int *count)
{
    g->taken[(*count)++] = (span){g->x->offset[u], g->x->offset[u] + g->x->block[u].bytes};
}

/* The spans of v's neighbours that are placed, from the lowest up. */
static int spans_around(greedy *g, int v)
{
    packing *x = g->x;
    int count = 0;
    for (size_t k = x->first[v]; k < x->first[v + 1]; k++)
        if (g->many)
            g->around[x->near[k]] = v + 1;
        else if (g->placed[x->near[k]])
            take_span(g, x->near[k], &count);
    for (int i = 0; i < g->risen; i++)
        if (g->around[g->rising[i]] == v + 1)
            take_span(g, g->rising[i], &count);
    if (!g->many)
        qsort(g->taken, (size_t)count, sizeof *g->taken, span_order);
    x->work -= packing_degree(x, v) + 32 * (int64_t)count;
    return count;
}

static void set_placed(greedy *g, int v)
{
    uint64_t offset = g->x->offset[v];
    int from = 0, to = g->risen;
    g->placed[v] = true;
    if (!g->many)
        return;
    while (from < to) {
        int middle = from + (to - from) / 2;
        if (g->x->offset[g->rising[middle]] <= offset)
            from = middle + 1;
        else
            to = middle;
    }
    memmove(&g->rising[from + 1], &g->rising[from], (size_t)(g->risen++ - from) * sizeof *g->rising);
    g->rising[from] = v;
}

/* The lowest place for v, or of the gaps that it fits into the tightest. */
static uint64_t place_among(const greedy *g, int v, int count)
{
    const place_block *b = &g->x->block[v];
    uint64_t at = 0, best = UINT64_MAX, tightest = UINT64_MAX;
    for (int k = 0; k < count; k++) {
        const span *s = &g->taken[k];
        if (s->from >= at && s->from - at >= b->bytes && s->from - at - b->bytes < tightest) {
            best = at;
            tightest = s->from - at - b->bytes;
            if (!g->best_fit)
                break;
        }
        at = s->to > at ? packing_align(s->to, b->align) : at;
    }
    return best == UINT64_MAX ? at : best;
}

static void place_in_order(greedy *g)
{
    packing *x = g->x;
    g->risen = 0;
    memset(g->around, 0, (size_t)x->count * sizeof *g->around);
    for (int v = 0; v < x->count; v++) {
        g->placed[v] = false;
        x->offset[v] = x->block[v].fixed ? x->block[v].offset : 0;
        if (x->block[v].fixed)
            set_placed(g, v);
    }
    for (int i = 0; i < x->count; i++) {
        int v = g->order[i].v;
        if (g->placed[v])
            continue;
        x->offset[v] = place_among(g, v, spans_around(g, v));
        set_placed(g, v);
    }
    packing_keep(x);
}

static double around_of(const packing *x, int v)
{
    uint64_t bytes = x->block[v].bytes;
    for (size_t k = x->first[v]; k < x->first[v + 1]; k++)
        bytes += x->block[x->near[k]].bytes;
    return (double)bytes;
}

/* What is computed here is rounded once, so that no compiler and no processor orders blocks in another way.
 * name, what is ordered by, then by */
#define ORDERS(X)                                          \
    X(area, bytes * life, bytes)                           \
    X(size, bytes, life)                                   \
    X(life, life, bytes)                                   \
    X(crowd, around_of(x, v) * bytes, bytes)               \
    X(around, around_of(x, v), bytes)                      \
    X(first, x->lives ? -(double)b->from : 0, bytes)       \
    X(last, x->lives ? (double)b->until : 0, bytes)

typedef rank rank_of(const packing *x, int v);

#define ORDER_DEFINE(name, by, then)                                             \
    static rank rank_by_##name(const packing *x, int v)                          \
    {                                                                            \
        const place_block *b = &x->block[v];                                     \
        double bytes = (double)b->bytes, life = packing_life(x, v);              \
        (void)bytes, (void)life;                                                 \
        return (rank){(by), (then), v};                                          \
    }
ORDERS(ORDER_DEFINE)

static rank_of *const orders[] = {
#define X(name, by, then) rank_by_##name,
    ORDERS(X)
#undef X
};

bool packing_greedy(packing *x)
{
    greedy g = {.x = x, .many = x->first[x->count] > (size_t)x->count * (size_t)x->count / MANY,
                .order = POOL_NEW(x->pool, rank, x->count + 1),
                .taken = POOL_NEW(x->pool, span, x->count + 1), .placed = POOL_NEW(x->pool, bool, x->count + 1),
                .rising = POOL_NEW(x->pool, int, x->count + 1), .around = POOL_NEW(x->pool, int, x->count + 1)};
    if (x->pool->failed)
        return false;
    int64_t enough = x->work - x->work / 4;
    for (size_t o = 0; o < 2 * sizeof orders / sizeof *orders; o++) {
        if (packing_done(x) || (o && x->work <= enough))
            break;
        for (int v = 0; v < x->count; v++)
            g.order[v] = orders[o / 2](x, v);
        qsort(g.order, (size_t)x->count, sizeof *g.order, rank_order);
        g.best_fit = o % 2;
        place_in_order(&g);
    }
    return true;
}
