/* tests/graph/plan/test_branch.c: which readers of a register are told together: all of one thread, and only those. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "graph/plan/spread/branch.h"
#include "graph/plan/spread/spread.h"
#include "tests/support/ops.h"
#include "tests/support/sdf.h"

TestSuite(branch, .timeout = 60);

enum { QUEUES = 4, READERS = 8 };

/* A register of the first queue, and a reader on each of these queues. The port of reader i has number i. */
static weir_plan *fan(weir_device_kind kind, const uint32_t *on, uint32_t readers)
{
    uint32_t queue[QUEUES];
    test_ops();
    sdf *s = sdf_new("fan", 1);
    for (uint32_t q = 0; q < QUEUES; q++)
        queue[q] = q || kind == WEIR_CPU ? sdf_device(s) : sdf_device_of(s, kind, 0, PLAN_COMPUTE);
    uint32_t regst = sdf_regst(s, sdf_actor(s, queue[0], "from"), .slots = 2);
    for (uint32_t i = 0; i < readers; i++)
        sdf_port(s, sdf_actor(s, queue[on[i]], "to"), regst);
    return sdf_plan(s);
}

static void expect_first(const weir_plan *plan, const uint32_t *thread_of, const uint32_t *part_of, const uint32_t *expected)
{
    uint32_t first[READERS];
    cr_assert_leq(plan->ports_count, READERS);
    cr_assert_eq(plan_branches(plan, 0, thread_of, part_of, first), WEIR_OK, "%s", weir_error());
    for (uint32_t p = 0; p < plan->ports_count; p++)
        cr_expect_eq(first[p], expected[p], "port %u is in the branch of %u and not of %u", p, first[p], expected[p]);
}

#define FIRST(plan, thread_of, part_of, ...) expect_first(plan, thread_of, part_of, (const uint32_t[]){__VA_ARGS__})

static const uint32_t mixed[] = {1, 2, 1, 0, 2, 1, 0, 3};

Test(branch, readers_of_one_queue_are_one_branch_but_for_the_producers_own)
{
    weir_plan *plan = fan(WEIR_CPU, mixed, READERS);
    FIRST(plan, NULL, NULL, 0, 1, 0, 3, 1, 0, 6, 7);
    weir_plan_free(plan);
}

Test(branch, readers_of_one_thread_are_one_branch)
{
    weir_plan *plan = fan(WEIR_CPU, mixed, READERS);
    const uint32_t apart[] = {0, 1, 2, 3}, two[] = {0, 1, 1, 0}, one[QUEUES] = {0};
    FIRST(plan, apart, NULL, 0, 1, 0, 3, 1, 0, 6, 7);
    FIRST(plan, two, NULL, 0, 0, 0, 3, 0, 0, 6, 7);
    FIRST(plan, one, NULL, 0, 1, 2, 3, 4, 5, 6, 7);
    weir_plan_free(plan);
}

Test(branch, readers_that_are_sent_different_parts_are_apart)
{
    weir_plan *plan = fan(WEIR_CPU, mixed, READERS);
    const uint32_t parts[] = {5, 9, 6, 0, 9, 5, 0, 0};
    FIRST(plan, NULL, parts, 0, 1, 2, 3, 1, 0, 6, 7);
    weir_plan_free(plan);
}

/* Thread 1 is another one in each of two processes; queue 1 is not thread 1. */
Test(branch, threads_of_another_process_are_not_known)
{
    weir_plan *whole = fan(WEIR_CPU, mixed, READERS), *plan = plan_spread(whole, 2, 2);
    const uint32_t one[QUEUES] = {0}, two[] = {0, 2, 0, 0};
    cr_assert(plan, "%s", weir_error());
    FIRST(plan, one, NULL, 0, 1, 2, 3, 1, 5, 6, 7);
    FIRST(plan, two, NULL, 0, 1, 0, 3, 1, 0, 6, 7);
    weir_plan_free(plan);
    weir_plan_free(whole);
}

Test(branch, readers_of_an_accelerators_register_are_alone)
{
    weir_plan *plan = fan(WEIR_FAKE, mixed, READERS);
    FIRST(plan, NULL, NULL, 0, 1, 2, 3, 4, 5, 6, 7);
    weir_plan_free(plan);
}

Test(branch, readers_that_the_program_calls_are_alone)
{
    test_ops();
    sdf *s = sdf_new("pulls", 1);
    uint32_t queue = sdf_device(s), outside = sdf_outside(s, queue);
    uint32_t regst = sdf_regst(s, sdf_actor(s, queue, "from"), .items = 4);
    sdf_port(s, sdf_actor(s, outside, "y", .host_kind = 1 + PLAN_PULL), regst);
    sdf_port(s, sdf_actor(s, outside, "z", .host_kind = 1 + PLAN_PULL), regst);
    weir_plan *plan = sdf_plan(s);
    FIRST(plan, NULL, NULL, 0, 1);
    weir_plan_free(plan);
}

Test(branch, a_port_that_reads_a_constant_is_in_none)
{
    sdf *s = sdf_new("constant", 1);
    uint32_t queue[] = {sdf_device(s), sdf_device(s)};
    uint32_t constant = sdf_regst(s, SDF_NOBODY, .items = 4, .queue = queue[0], .initial = 1);
    uint32_t made = sdf_regst(s, sdf_actor(s, queue[0], "from"));
    for (int i = 0; i < 2; i++) {
        uint32_t to = sdf_actor(s, queue[1], "to");
        sdf_port(s, to, constant);
        sdf_port(s, to, made);
    }
    weir_plan *plan = sdf_plan(s);
    FIRST(plan, NULL, NULL, PLAN_NONE, 1, PLAN_NONE, 1);
    weir_plan_free(plan);
}
