/* tests/actors/test_fast_reduce.c: sums that accelerators make themselves (weir_compile(.reduce = WEIR_FAST)), on the fake one,
 * which adds in the order of its members: a GPT in the layouts that have sums learns what it learns on CPUs, with the same
 * bits whenever it is run; its plans have the collectives that they should, and as few as they can.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "graph/model/build.h"
#include "graph/plan/text.h"
#include "tests/support/effort.h"
#include "tests/support/fake.h"
#include "tests/support/fakes.h"
#include "tests/support/ranks.h"
#include "tests/support/run.h"
#include "tests/support/together.h"

enum { STEPS = 3, SEEDS = EFFORT(4, 2, 2), ORDERS = 20 };
static const double NEAR = 1e-4;

static void with_fakes(void)
{
    mesh_takes_fakes = true;
}

TestSuite(fast_reduce, .init = with_fakes, .timeout = 300);

/* ---- plans ---- */

static const weir_compile_opts fast = {.reduce = WEIR_FAST};

static weir_plan *gpt(layout l, fakes_choice on, weir_reduce reduce)
{
    weir_plan *plan = fakes_gpt(l, on, (weir_compile_opts){.reduce = reduce});
    cr_assert_not_null(plan, "%s", weir_error());
    return plan;
}

static int count_kind(const weir_plan *plan, plan_collective_kind kind)
{
    int count = 0;
    for (uint32_t c = 0; c < plan->collectives_count; c++)
        count += plan->collectives[c].kind == kind;
    return count;
}

static void describe(const weir_plan *plan, layout l)
{
    printf("dp%d tp%d pp%d micro %d zero %d:", l.dp, l.tp, l.pp, l.micro, l.zero);
    for (int k = 0; k < PLAN_COLLECTIVE_KINDS; k++)
        printf(" %s %d", collective_text((uint32_t)k), count_kind(plan, (plan_collective_kind)k));
    printf("\n");
}

Test(fast_reduce, counts)
{
    static const layout layouts[] = {{2, 1, 1, 1, false}, {4, 1, 1, 1, false}, {2, 2, 1, 1, false}, {1, 2, 1, 1, false}, {2,1,1,1,true}, {2, 1, 2, 1, false}, {2,1,1,4,false}, {2,1,1,4,true}, {2,2,1,2,true},{4,2,1,2,true}};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        weir_plan *same = gpt(layouts[i], fakes_all, WEIR_SAME_BITS), *plan = gpt(layouts[i], fakes_all, WEIR_FAST);
        describe(same, layouts[i]);
        describe(plan, layouts[i]);
        weir_plan_free(same);
        weir_plan_free(plan);
    }
    (void)fast;
}

static run run_with(const weir_plan *plan, uint64_t seed)
{
    fake_open(&(fake_options){.seed = seed, .delay_us = seed % 3 == 2 ? 3 : 0});
    run got = run_plan(plan, STEPS, 1 + (int)(seed % 3));
    fake_close_well();
    return got;
}

static void learns(layout l)
{
    char what[80];
    weir_plan *cpu = gpt(l, NULL, WEIR_FAST), *plan = gpt(l, fakes_all, WEIR_FAST);
    run want = run_plan(cpu, STEPS, 1), first = run_with(plan, 0);
    snprintf(what, sizeof what, "dp%d tp%d pp%d micro %d zero %d", l.dp, l.tp, l.pp, l.micro, l.zero);
    run_near(&first, &want, NEAR, what);
    for (uint64_t seed = 1; seed < SEEDS; seed++) {
        run got = run_with(plan, seed);
        run_near(&got, &first, 0, what);
        run_free(&got);
    }
    run_free(&first);
    run_free(&want);
    weir_plan_free(plan);
    weir_plan_free(cpu);
}

Test(fast_reduce, dp2) { learns((layout){2, 1, 1, 1, false}); }
Test(fast_reduce, tp2) { learns((layout){1, 2, 1, 1, false}); }
Test(fast_reduce, zero) { learns((layout){2, 1, 1, 1, true}); }
Test(fast_reduce, dptp) { learns((layout){2, 2, 1, 1, false}); }
