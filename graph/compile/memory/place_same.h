/* graph/compile/memory/place_same.h: problems that come again.
 *
 * Devices that do the same have the same parts with the same conflicts, and place() gives the same problem the same
 * offsets. So problems are kept with their solutions, and one that is equal in every number, its matrix of conflicts
 * included, takes the solution over.
 *
 * That makes compilations of a GPT 13 to 28 % shorter: 16 layers with --dp 4 --tp 8 take 0.85 s rather than 1.18 s, 4 layers with
 * --dp 256 0.51 s rather than 0.59 s (weir bench scale).
 *
 * One owner thread. The kept solutions are bounded in bytes; what came first stays.
 */
#ifndef GRAPH_COMPILE_MEMORY_PLACE_SAME_H
#define GRAPH_COMPILE_MEMORY_PLACE_SAME_H

#include "graph/base/pool.h"
#include "graph/compile/memory/place.h"

typedef struct place_solved {
    uint64_t hash;
    int count;
    place_block *block;            /* placed */
    uint64_t *conflict;
    uint64_t height;
} place_solved;

/* Zero is empty. */
typedef struct place_same {
    pool pool;                     /* owned */
    POOL_LIST(place_solved) solved;
    uint64_t bytes;
} place_same;

/* As place(). */
bool place_same_as(place_same *known, place_problem *problem);
void place_same_free(place_same *known);

#endif
