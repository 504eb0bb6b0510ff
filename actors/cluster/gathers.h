/* actors/cluster/gathers.h: which parts of a collective are gathers, as a library has them: of an input every member
 * gives equal parts to all, itself too, and each takes them in one piece, by giver.
 *
 * The first follows from the plan's moves, which all ranks have. Where a member takes what only its own rank may know:
 * a part of a plan says of other ranks' actors no more than who they are. So a rank refuses a gather that its members
 * take otherwise, and what one has refused all move (groups.c). Buckets have both kinds, so it is asked of each input.
 */
#ifndef ACTORS_CLUSTER_GATHERS_H
#define ACTORS_CLUSTER_GATHERS_H

#include <stdbool.h>

#include "graph/plan/form/plan.h"

/* An input that every member gives to all, itself too. */
struct gather {
    uint32_t collective, give;
    uint64_t bytes; /* of each member */
};

struct gathers {
    struct gather *of; /* owned; by collective, then by input */
    uint32_t count;
    bool full;         /* there was no memory for all */
};

/* All that the moves allow. E_MEMORY; then, too, gathers->of is to be freed. */
weir_status gathers_find(struct gathers *gathers, const weir_plan *plan);

/* Which output of the member `to`, whose rank this is, takes the first one's; and whether all lies in one piece behind
 * it, by giver. */
bool gather_in_one_piece(const weir_plan *plan, const struct gather *gather, uint32_t to, uint32_t *take);

#endif
