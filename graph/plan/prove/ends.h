/* graph/plan/prove/ends.h: where the contents of a plan's memory end: of slots, workspaces and arenas.
 *
 * A session takes the memory that a plan says, so a valid plan says no more than it has something for. All functions
 * need ids and sizes that are valid; nothing else. Pure; any thread.
 */
#ifndef GRAPH_PLAN_PROVE_ENDS_H
#define GRAPH_PLAN_PROVE_ENDS_H

#include "graph/plan/form/plan.h"

/* The end of one slot of the register, after its last tensor. */
uint64_t plan_slot_end(const weir_plan *plan, uint32_t regst);

/* The end of each queue's workspace (end[queues_count]): of temporaries, and of what kernels ask for. */
void plan_workspace_ends(const weir_plan *plan, uint64_t *end);

/* The end of each arena (end[spaces_count]): of registers, states, workspaces, the snapshot. */
void plan_space_ends(const weir_plan *plan, uint64_t *end);

/* Whether the plan has what lies in the space: a rank's part of a plan lacks what lies in those of others. */
bool plan_knows_space(const weir_plan *plan, plan_space_id space);

#endif
