/* graph/plan/lives/map.h: what lies where in a plan's arenas: its parts, each with the life of what is in it.
 *
 * Registers (all slots of one are a part), states, snapshots, and each temporary and each kernel's scratch in the
 * workspaces. In a part of a plan (spread.h) those of other ranks' kernels are not there. Any thread.
 */
#ifndef GRAPH_PLAN_LIVES_MAP_H
#define GRAPH_PLAN_LIVES_MAP_H

#include "graph/plan/lives/lives.h"

typedef enum map_kind { MAP_REGST, MAP_TEMP, MAP_SCRATCH, MAP_STATE, MAP_SNAPSHOT } map_kind;

typedef struct map_part {
    uint64_t first, end; /* bytes of the arena */
    uint32_t space;
    map_kind kind;
    uint32_t index; /* of the register, tensor, kernel or space */
    life life;      /* of registers, temporaries and scratch */
} map_part;

/* Parts that there are at most. */
size_t map_most(const weir_plan *plan);

/* Puts them into `to`, which has room for map_most(); `at` has room for a number for each tensor. Returns how many. */
size_t map_parts(const weir_plan *plan, map_part *to, uint32_t *at);

/* By space, then by place, for qsort(). */
int map_compare(const void *a, const void *b);

#endif
