/* tests/support/sample_plan.h: a small plan with one of everything, made by hand.
 *
 *     x (push) --> forward --h--> loss --loss--> (pull) loss          cpu:0: forward, backward, update
 *                   ^  ^   \       ^ \                                cpu:1: loss
 *              seed |  | w  h      |  dh                              M = 4 micro-batches
 *             (const)  |     \  labels (source)
 *                      |      v    v
 *                    update <-- backward            w: one slot, initially full, held for M firings
 *                     (m: state)   dw: fill M       h: 2 slots, read by loss and backward
 *
 * Its ops are the test's own: sample_mix and sample_update, which compute nothing of interest.
 */
#ifndef TESTS_SUPPORT_SAMPLE_PLAN_H
#define TESTS_SUPPORT_SAMPLE_PLAN_H

#include "graph/plan/form/fields.h"

/* Makes the sample's ops known; may be called again. */
void sample_ops_register(void);

/* A valid plan, which is live as long as h_slots >= 1. Owned by the caller. */
weir_plan *sample_plan(uint32_t micro_batches, uint32_t h_slots);

/* A copy that shares nothing; owned by the caller. */
weir_plan *plan_copy(const weir_plan *plan);

static inline void *item_of(weir_plan *plan, const plan_table *table, uint32_t item)
{
    return (char *)plan_table_items(plan, table) + item * table->item_bytes;
}

#endif
