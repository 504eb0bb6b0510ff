/* tests/support/pace.h: the token game with a duration for every firing: how long a plan takes when each device does
 * one thing at a time, whichever of its ready actors comes first by priority, and messages take no time.
 */
#ifndef TESTS_SUPPORT_PACE_H
#define TESTS_SUPPORT_PACE_H

#include "graph/plan/form/plan.h"

/* When the last of so many steps of main is over. A firing takes 100 and the bytes that its kernels read and write
 * / 64; a push or pull takes no time. Fails the test when the plan stalls. */
double pace_play(const weir_plan *plan, uint32_t steps);

#endif
