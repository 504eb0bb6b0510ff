/* tests/support/ahead_plans.h: random plans over the host and two accelerators, for tests of queues that run ahead.
 *
 *     source --> host actors <--copies--> fake:0 <--copies, collectives--> fake:1 <--copies--> host actors --> sink
 *
 * Several actors with sums for kernels, of which each is on one of the queues, with rates, slots and a feedback loop; what
 * one reads on another device goes there by copy actors on the devices' copy queues, through the host's memory; or by
 * collectives of the two, some of which give what another one took, or what was copied in. The
 * same seed makes the same plan with CPU devices in the place of all queues: so what the sink gets can be compared.
 */
#ifndef TESTS_SUPPORT_AHEAD_PLANS_H
#define TESTS_SUPPORT_AHEAD_PLANS_H

#include "graph/plan/form/plan.h"

enum { AHEAD_ITEMS = 4, AHEAD_STEPS = 7, AHEAD_MICRO_MAX = 3, AHEAD_VALUES = AHEAD_STEPS * AHEAD_MICRO_MAX };

/* The values that the sink gets, firing after firing. The source gives what depends on step and micro-batch. */
struct ahead_result {
    int count;
    float value[AHEAD_VALUES][AHEAD_ITEMS];
};

/* The plan, or NULL when that of the seed is not live. Fails the test when it is no plan. `result` is borrowed by it, and
 * is to be zeroed before a run. test_ops() must have been called. */
weir_plan *ahead_plan(unsigned seed, bool accelerators, struct ahead_result *result);

#endif
