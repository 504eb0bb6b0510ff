/* graph/compile/packing.h: what the parts of place() share: the blocks, who is in conflict with whom, the best that
 * has been found.
 *
 * Neighbours of a block are those that it is in conflict with, as lists one after the other: those of block v are
 * near[first[v]] to near[first[v + 1] - 1]. Blocks of no bytes have none and are nobody's.
 */
#ifndef GRAPH_COMPILE_PACKING_H
#define GRAPH_COMPILE_PACKING_H

#include "graph/base/pool.h"
#include "graph/compile/place.h"

typedef struct packing {
    pool pool;                     /* owned: all that follows */
    int count;
    const place_block *block;      /* borrowed */
    const uint64_t *conflict;      /* borrowed, or NULL: lives */
    int *first, *near;
    uint64_t *offset;              /* of the placement that is being made */
    uint64_t *best, height;        /* the best so far; UINT64_MAX before there is one */
    uint64_t bound;                /* no placement is lower */
    int64_t work;                  /* what is left of the budget */
} packing;

/* place_conflict.c: neighbours and the bound that they give. */
bool packing_neighbours(packing *x);
uint64_t packing_bound(packing *x);

/* place_greedy.c: each order in turn, until the bound is reached. */
bool packing_greedy(packing *x);

/* Compares the placement in `offset` with the best and keeps the lower. */
void packing_keep(packing *x);

static inline bool packing_done(const packing *x)
{
    return x->height <= x->bound;
}

/* Up to the next multiple of `align`. */
static inline uint64_t packing_align(uint64_t offset, uint64_t align)
{
    return align > 1 ? (offset + align - 1) / align * align : offset;
}

#endif
