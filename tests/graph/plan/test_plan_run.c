/* tests/graph/plan/test_plan_run.c: what plan_validate() lets through can be run, whoever made it.
 *
 * Compiled plans among which every op occurs are changed at random, thousands of times. Most of what comes out is
 * refused. The rest is run: every kernel by itself between pages that do not exist, and of some of them a step in a
 * session. No plan may crash (run it under sanitizers, too: SAN=address,undefined), and every live plan must come to
 * its end.
 */
#include "graph/base/error.h"
#include "kernels/common/ops.h"
#include "tests/support/effort.h"
#include "tests/support/mutate_plan.h"
#include "tests/support/sample_plan.h"
#include "tests/support/small_plans.h"
#include "tests/support/untrusted.h"

#include <criterion/criterion.h>
#include <string.h>

enum { SEED = 20211, ROUNDS = EFFORT(4000, 2000, 400), SESSION_EVERY = 4 };

static bool calls_op(const weir_plan *plan, const char *name)
{
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        if (!strcmp(plan_text(plan, plan->kernels[k].op), name))
            return true;
    return false;
}

Test(plan_run, every_op_is_in_the_plans_that_are_changed, .timeout = 120)
{
    static const char *const names[] = {
#define X(name) #name,
        OPS_LIST(X)
#undef X
    };
    weir_plan *plans[SMALL_PLANS];
    for (int i = 0; i < SMALL_PLANS; i++)
        plans[i] = small_plan(i);
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        bool called = !strcmp(names[n], "shard"); /* which is gone after compiling */
        const weir_op *op = weir_op_find(names[n]);
        called |= op == &op_collective || !op->kernel[WEIR_CPU] || !strncmp(names[n], "fused_launch", 12); /* not on CPUs */
        for (int i = 0; i < SMALL_PLANS; i++)
            called |= calls_op(plans[i], names[n]);
        cr_expect(called, "no plan calls %s", names[n]);
    }
    for (int i = 0; i < SMALL_PLANS; i++)
        weir_plan_free(plans[i]);
}

Test(plan_run, compiled_plans_run_between_guards, .timeout = 60)
{
    for (int i = 0; i < SMALL_PLANS; i++) {
        weir_plan *compiled = small_plan(i), *plan = mutate_room(compiled);
        cr_assert(mutate_tighten(plan), "%s", weir_error());
        cr_assert(untrusted_small(plan), "plan %d has %llu bytes", i, (unsigned long long)weir_plan_bytes(plan, -1));
        cr_expect_gt(untrusted_calls(plan, SEED), 20);
        cr_expect(untrusted_run(plan, SEED), "%s", weir_error());
        weir_plan_free(compiled);
        weir_plan_free(plan);
    }
}

/* Returns how many of the rounds gave a plan that is valid, small and live; these have been run. */
static int run_changed(const weir_plan *base, uint64_t seed, int rounds)
{
    int ran = 0;
    uint64_t random = seed;
    for (int round = 0; round < rounds; round++) {
        weir_plan *plan = plan_copy(base);
        for (uint64_t i = mutate_draw(&random) % 3 + 1; i > 0; i--)
            mutate_plan(plan, &random);
        plan->hash = plan_hash(plan);
        if (mutate_tighten(plan) && untrusted_small(plan)) {
            untrusted_calls(plan, random);
            if (ran++ % SESSION_EVERY == 0)
                untrusted_run(plan, random);
        }
        weir_plan_free(plan);
    }
    return ran;
}

static void check_changed(int which)
{
    weir_plan *compiled = small_plan(which), *base = mutate_room(compiled);
    cr_log_info("seed %d", SEED + which);
    int ran = run_changed(base, (uint64_t)(SEED + which), ROUNDS);
    cr_expect(ran > ROUNDS / 20 && ran < ROUNDS * 3 / 4, "%d of %d were run", ran, ROUNDS);
    weir_plan_free(compiled);
    weir_plan_free(base);
}

Test(plan_run, a_changed_mlp_is_refused_or_runs, .timeout = 120)
{
    check_changed(0);
}

Test(plan_run, a_changed_gpt_is_refused_or_runs, .timeout = 120)
{
    check_changed(1);
}

Test(plan_run, a_changed_zoo_is_refused_or_runs, .timeout = 120)
{
    check_changed(2);
}

Test(plan_run, a_changed_pair_is_refused_or_runs, .timeout = 120)
{
    check_changed(3);
}
