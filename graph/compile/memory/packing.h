/* graph/compile/memory/packing.h: what the parts of place() share: blocks, who is in conflict with whom, the best so far.
 *
 * A packing is a problem, or one that a problem falls into. Its blocks all take place, and are numbered from 0.
 *
 * Neighbours of a block are those that it is in conflict with: of block v near[first[v]] to near[first[v + 1] - 1].
 *
 * A section is a set of blocks that are all in conflict with each other, so that their bytes lie one above the other:
 * of lives, what is alive at one time, in the order of time; of a matrix, cliques that cover all blocks. A block's
 * sections are a few runs of numbers, and of lives one: run[run_first[v]] to run[run_first[v + 1] - 1].
 */
#ifndef GRAPH_COMPILE_MEMORY_PACKING_H
#define GRAPH_COMPILE_MEMORY_PACKING_H

#include "graph/base/pool.h"
#include "graph/compile/memory/place.h"

typedef struct packing_run {       /* sections [from, to) */
    int from, to;
} packing_run;

typedef struct packing {
    pool *pool;                    /* borrowed */
    place_block *block;
    int *id;                       /* what they are in the problem */
    int count;
    bool lives;                    /* conflicts are lives that meet, not bits of a matrix */
    bool fixed;                    /* some blocks are */
    size_t *first;
    int *near;
    int sections;
    int *run_first;
    packing_run *run;
    uint64_t *offset;              /* of the placement that is being made */
    uint64_t *best, height;        /* the best so far; UINT64_MAX before there is one */
    uint64_t bound;                /* no placement is lower, or none lower is asked for */
    int64_t work;                  /* what is left of its budget */
} packing;

/* place_conflict.c: how many neighbours each block has; the neighbours, false where memory is short or they are too
 * many; the sections, and the bound that follows from them. */
bool packing_degrees(const packing *x, const place_problem *problem, int *degree);
bool packing_neighbours(packing *x, const place_problem *problem);
bool packing_sections(packing *x);

/* place_greedy.c: one order after the other, until the bound is reached or a part of the work is spent; at the least
 * one. */
bool packing_greedy(packing *x);

/* place_search.c: lowers the height, and raises the bound to what it has proven, while there is work left. */
bool packing_search(packing *x);

/* place.c: compares the placement in `offset` with the best and keeps the lower. */
void packing_keep(packing *x);

static inline bool packing_done(const packing *x)
{
    return x->height <= x->bound;
}

static inline int packing_degree(const packing *x, int v)
{
    return (int)(x->first[v + 1] - x->first[v]);
}

/* How long a block is there, where that is known; else how many others are there with it. */
static inline double packing_life(const packing *x, int v)
{
    const place_block *b = &x->block[v];
    return x->lives ? (double)((uint64_t)b->until - (uint64_t)b->from) : packing_degree(x, v);
}

/* Up to the next multiple of `align`. */
static inline uint64_t packing_align(uint64_t offset, uint64_t align)
{
    return align > 1 ? (offset + align - 1) / align * align : offset;
}

#endif
