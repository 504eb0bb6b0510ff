/* graph/compile/memory/place_conflict.c: who is in conflict with whom, and what height that needs at the least.
 *
 * Blocks that are all in conflict with each other lie one above the other, so the bytes of any clique are a lower
 * bound. Of lives on a line the heaviest clique is the largest sum of what is alive at one time, and all cliques that
 * no other contains are found by going through time once. In a matrix they are hard to find: greedy ones are grown
 * from blocks that no clique has yet, those with most bytes around them first.
 */
#include "graph/compile/memory/packing.h"

#include <stdlib.h>
#include <string.h>

#define NEAR_MAX (UINT64_C(1) << 29) /* neighbours in all: 2 GiB of them */

#define CLIQUE_WORK INT64_C(20000000) /* neighbours that are looked at to grow cliques */

/* ---- neighbours ---- */

static int number_order(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* How many of `count` sorted numbers are less than `limit`. */
static int numbers_below(const int64_t *sorted, int count, int64_t limit)
{
    int from = 0, to = count;
    while (from < to) {
        int middle = from + (to - from) / 2;
        if (sorted[middle] < limit)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

/* A life meets those that begin before it ends, but for those that end before it begins. */
static bool degrees_of_lives(const packing *x, int *degree)
{
    int64_t *from = POOL_NEW(x->pool, int64_t, x->count + 1), *until = POOL_NEW(x->pool, int64_t, x->count + 1);
    if (!from || !until)
        return false;
    for (int v = 0; v < x->count; v++) {
        from[v] = x->block[v].from;
        until[v] = x->block[v].until;
    }
    qsort(from, (size_t)x->count, sizeof *from, number_order);
    qsort(until, (size_t)x->count, sizeof *until, number_order);
    for (int v = 0; v < x->count; v++)
        degree[v] = numbers_below(from, x->count, x->block[v].until) -
                    numbers_below(until, x->count, x->block[v].from + 1) - 1;
    return true;
}

/* A row of the matrix, without the block itself and those that take no place. */
static uint64_t row_word(const packing *x, const place_problem *problem, const uint64_t *taking, int v, size_t word)
{
    size_t words = ((size_t)problem->count + 63) / 64, id = (size_t)x->id[v];
    uint64_t bits = problem->conflict[id * words + word] & taking[word];
    return word == id / 64 ? bits & ~(UINT64_C(1) << (id % 64)) : bits;
}

/* A bit for each block of the packing, as the matrix numbers them. */
static uint64_t *row_mask(const packing *x, const place_problem *problem)
{
    uint64_t *mask = POOL_NEW(x->pool, uint64_t, problem->count / 64 + 1);
    for (int v = 0; v < x->count && mask; v++)
        mask[x->id[v] / 64] |= UINT64_C(1) << (x->id[v] % 64);
    return mask;
}

static bool degrees_of_matrix(const packing *x, const place_problem *problem, int *degree)
{
    const uint64_t *mask = row_mask(x, problem);
    size_t words = ((size_t)problem->count + 63) / 64;
    for (int v = 0; v < x->count && mask; v++)
        for (size_t w = 0; w < words; w++)
            degree[v] += __builtin_popcountll(row_word(x, problem, mask, v, w));
    return mask;
}

bool packing_degrees(const packing *x, const place_problem *problem, int *degree)
{
    return x->lives ? degrees_of_lives(x, degree) : degrees_of_matrix(x, problem, degree);
}

static bool neighbours_of_matrix(packing *x, const place_problem *problem, size_t *next)
{
    const uint64_t *mask = row_mask(x, problem);
    int *local = POOL_NEW(x->pool, int, problem->count + 1);
    size_t words = ((size_t)problem->count + 63) / 64;
    if (!mask || !local)
        return false;
    for (int v = 0; v < x->count; v++)
        local[x->id[v]] = v;
    for (int v = 0; v < x->count; v++)
        for (size_t w = 0; w < words; w++)
            for (uint64_t bits = row_word(x, problem, mask, v, w); bits; bits &= bits - 1)
                x->near[next[v]++] = local[w * 64 + (size_t)__builtin_ctzll(bits)];
    return true;
}

typedef struct moment {            /* when a life begins or ends; at one time ends come first */
    int64_t at;
    int v;                         /* block; ~block where its life ends */
} moment;

static int moment_order(const void *a, const void *b)
{
    const moment *x = a, *y = b;
    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    if ((x->v < 0) != (y->v < 0))
        return x->v < 0 ? -1 : 1;
    return x->v < y->v ? -1 : x->v > y->v;
}

static moment *moments(const packing *x)
{
    moment *list = POOL_NEW(x->pool, moment, 2 * x->count + 1);
    for (int v = 0; v < x->count && list; v++) {
        list[2 * v] = (moment){x->block[v].from, v};
        list[2 * v + 1] = (moment){x->block[v].until, ~v};
    }
    if (list)
        qsort(list, 2 * (size_t)x->count, sizeof *list, moment_order);
    return list;
}

static bool neighbours_of_lives(packing *x, size_t *next)
{
    const moment *list = moments(x);
    int *alive = POOL_NEW(x->pool, int, x->count + 1), living = 0;
    if (!list || !alive)
        return false;
    for (int m = 0; m < 2 * x->count; m++) {
        int v = list[m].v;
        for (int k = 0; k < living && v >= 0; k++) {
            x->near[next[v]++] = alive[k];
            x->near[next[alive[k]]++] = v;
        }
        if (v >= 0)
            alive[living++] = v;
        for (int k = 0; k < living && v < 0; k++)
            if (alive[k] == ~v)
                alive[k] = alive[--living];
    }
    return true;
}

bool packing_neighbours(packing *x, const place_problem *problem)
{
    int *degree = POOL_NEW(x->pool, int, x->count + 1);
    size_t *next = POOL_NEW(x->pool, size_t, x->count + 1);
    x->first = POOL_NEW(x->pool, size_t, x->count + 1);
    if (!degree || !next || !x->first || !packing_degrees(x, problem, degree))
        return false;
    for (int v = 0; v < x->count; v++) {
        next[v] = x->first[v];
        x->first[v + 1] = x->first[v] + (size_t)degree[v];
    }
    x->near = x->first[x->count] <= NEAR_MAX ? POOL_NEW(x->pool, int, x->first[x->count] + 1) : NULL;
    if (!x->near)
        return false;
    return x->lives ? neighbours_of_lives(x, next) : neighbours_of_matrix(x, problem, next);
}

/* ---- sections ---- */

/* One wherever a life begins and the next moment is an end: there no other section contains it. */
static bool sections_of_lives(packing *x)
{
    const moment *list = moments(x);
    uint64_t bytes = 0;
    x->run = POOL_NEW(x->pool, packing_run, x->count + 1);
    if (!list || !x->run)
        return false;
    for (int m = 0; m < 2 * x->count; m++) {
        int v = list[m].v;
        bytes += v >= 0 ? x->block[v].bytes : -x->block[~v].bytes;
        x->bound = bytes > x->bound ? bytes : x->bound;
        if (v < 0) {
            x->run[~v].to = x->sections;
            continue;
        }
        x->run[v].from = x->sections;
        x->sections += list[m + 1].v < 0;
    }
    for (int v = 0; v <= x->count; v++)
        x->run_first[v] = v;
    return true;
}

typedef struct cliques {
    int *member, count;            /* of the one that is grown; room for all blocks */
    int *by_bytes, *rank;          /* blocks, the largest first; of a block its place among them */
    uint64_t *row;                 /* by rank: a bit for each neighbour, by rank */
    uint64_t *common;              /* of the one that is grown: who is in conflict with all members */
    size_t words;                  /* of a row */
    int64_t work;                  /* that may still be spent on growing */
    POOL_LIST(packing_run) runs;   /* .from: block, .to: section */
} cliques;

typedef struct weight {
    uint64_t bytes;
    int v;
} weight;

static int weight_order(const void *a, const void *b)
{
    const weight *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x->v - y->v;
}

static void rank_blocks(const packing *x, cliques *c, weight *list)
{
    for (int v = 0; v < x->count; v++)
        list[v] = (weight){x->block[v].bytes, v};
    qsort(list, (size_t)x->count, sizeof *list, weight_order);
    for (int i = 0; i < x->count; i++) {
        c->by_bytes[i] = list[i].v;
        c->rank[list[i].v] = i;
    }
    for (int v = 0; v < x->count; v++)
        for (size_t k = x->first[v]; k < x->first[v + 1]; k++) {
            size_t near = (size_t)c->rank[x->near[k]];
            c->row[(size_t)c->rank[v] * c->words + near / 64] |= UINT64_C(1) << near % 64;
        }
}

static bool cliques_open(const packing *x, cliques *c)
{
    size_t count = (size_t)x->count + 1, words = ((size_t)x->count + 63) / 64;
    weight *list = POOL_NEW(x->pool, weight, count);
    *c = (cliques){.member = POOL_NEW(x->pool, int, count),
                   .by_bytes = POOL_NEW(x->pool, int, count),
                   .rank = POOL_NEW(x->pool, int, count),
                   .row = POOL_NEW(x->pool, uint64_t, count * words),
                   .common = POOL_NEW(x->pool, uint64_t, words + 1),
                   .words = words,
                   .work = CLIQUE_WORK};
    if (!x->pool->failed)
        rank_blocks(x, c, list);
    return !x->pool->failed;
}

/* Of those that are in conflict with all in it, the one of most bytes joins it next. Returns its bytes. */
static uint64_t clique_grow(const packing *x, cliques *c, int v)
{
    uint64_t bytes = 0;
    memset(c->common, 0xff, c->words * sizeof *c->common);
    for (c->count = 0; v >= 0;) {
        const uint64_t *row = c->row + (size_t)c->rank[v] * c->words;
        size_t heaviest = c->words;
        c->member[c->count++] = v;
        bytes += x->block[v].bytes;
        for (size_t w = c->words; w-- > 0;)
            if (c->common[w] && (c->common[w] &= row[w]))
                heaviest = w;
        c->work -= packing_degree(x, v);
        v = heaviest < c->words ? c->by_bytes[heaviest * 64 + (size_t)__builtin_ctzll(c->common[heaviest])] : -1;
    }
    return bytes;
}

typedef struct seed {
    uint64_t around;               /* bytes of a block and its neighbours */
    int v;
} seed;

static int seed_order(const void *a, const void *b)
{
    const seed *x = a, *y = b;
    if (x->around != y->around)
        return x->around < y->around ? 1 : -1;
    return x->v - y->v;
}

static seed *seeds(const packing *x)
{
    seed *list = POOL_NEW(x->pool, seed, x->count + 1);
    for (int v = 0; v < x->count && list; v++) {
        list[v] = (seed){x->block[v].bytes, v};
        for (size_t k = x->first[v]; k < x->first[v + 1]; k++)
            list[v].around += x->block[x->near[k]].bytes;
    }
    if (list)
        qsort(list, (size_t)x->count, sizeof *list, seed_order);
    return list;
}

/* What was noted block by block becomes a list for each block. */
static bool sections_sort(packing *x, const cliques *c, int *next)
{
    x->run = POOL_NEW(x->pool, packing_run, c->runs.count + 1);
    for (int r = 0; r < c->runs.count; r++)
        x->run_first[c->runs.item[r].from + 1]++;
    for (int v = 0; v < x->count; v++) {
        x->run_first[v + 1] += x->run_first[v];
        next[v] = x->run_first[v];
    }
    for (int r = 0; r < c->runs.count && x->run; r++) {
        int section = c->runs.item[r].to;
        x->run[next[c->runs.item[r].from]++] = (packing_run){section, section + 1};
    }
    return x->run;
}

static bool sections_of_matrix(packing *x)
{
    cliques c;
    bool *has = POOL_NEW(x->pool, bool, x->count + 1);
    const seed *list = seeds(x);
    if (!cliques_open(x, &c))
        return false;
    for (int i = 0; i < x->count && !x->pool->failed && c.work > 0; i++) {
        if (has[list[i].v])
            continue;
        uint64_t bytes = clique_grow(x, &c, list[i].v);
        x->bound = bytes > x->bound ? bytes : x->bound;
        for (int m = 0; m < c.count; m++) {
            packing_run *run = POOL_PUSH(x->pool, &c.runs);
            if (run)
                *run = (packing_run){c.member[m], x->sections};
            has[c.member[m]] = true;
        }
        x->sections++;
    }
    return !x->pool->failed && sections_sort(x, &c, c.member);
}

bool packing_sections(packing *x)
{
    x->run_first = POOL_NEW(x->pool, int, x->count + 2);
    if (!x->run_first || !(x->lives ? sections_of_lives(x) : sections_of_matrix(x)))
        return false;
    for (int v = 0; v < x->count; v++) {
        const place_block *b = &x->block[v];
        uint64_t least = b->bytes + (b->fixed ? b->offset : 0);
        x->bound = least > x->bound ? least : x->bound;
    }
    return true;
}
