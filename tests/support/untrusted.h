/* tests/support/untrusted.h: runs a plan that passed plan_validate(), whoever made it, where going astray shows.
 *
 *     if (plan_validate(plan) == WEIR_OK && untrusted_small(plan)) {
 *         untrusted_calls(plan, seed);
 *         untrusted_run(plan, seed);
 *     }
 *
 * In an arena everything lies wall to wall, and neither a sanitizer nor the processor sees a kernel reach over. So
 * untrusted_calls() calls each kernel once by itself, every operand in pages of its own that end (or begin) where no
 * page is: the libraries' code, which no sanitizer looks into, is caught too. untrusted_run() then runs one step in a
 * session, for the runtime's sake. Values are random, now and then wild. Kernels may refuse them: that is no fault.
 *
 * For suites and fuzz targets: knows nothing of Criterion. A fault is a crash; one of the runtime's (a live plan that
 * does not end) says so and aborts.
 */
#ifndef TESTS_SUPPORT_UNTRUSTED_H
#define TESTS_SUPPORT_UNTRUSTED_H

#include "graph/plan/form/plan.h"

/* Is it small enough to be run thousands of times, and live? */
bool untrusted_small(const weir_plan *plan);

/* One thread at a time. Returns how many kernels were called. */
int untrusted_calls(const weir_plan *plan, uint64_t seed);

/* Takes the graph that the plan keeps out of it, and tries to prove the plan against that, by playing it and kernel by kernel, if
 * this takes little memory and few steps: whether it can be proven is no matter. False: there was no proof to try. */
bool untrusted_proof(const weir_plan *plan);

/* Gives the plan, which has no bindings, functions of its own. False when the session cannot be opened (no such
 * device), or the plan is made for several processes: alone, one waits for the others for ever. */
bool untrusted_run(weir_plan *plan, uint64_t seed);

#endif
