/* tests/actors/session/test_branches.c: a register with several readers on another worker, or another rank, is told of once:
 * one READY for all of them, and one FREE when the last has let go. Messages are counted in the mailboxes. */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <weir/weir.h>

#include "actors/cluster/cluster.h"
#include "actors/session/session.h"
#include "tests/support/chain.h"
#include "tests/support/ops.h"
#include "tests/support/ranks.h"
#include "tests/support/sdf.h"

TestSuite(branches, .timeout = 120);

enum { STEPS = 200, BESIDE = 3 };

#define OK(call) cr_assert_eq((call), WEIR_OK, "%s", weir_error())

/* One register, with so many slots, of cpu:0; readers on cpu:0, cpu:1 and cpu:2, the last of which holds a slot for `hold` of
 * its firings. */
static weir_plan *fan_plan(uint32_t slots, uint32_t hold, const uint32_t *readers)
{
    uint32_t queue[3];
    test_ops();
    sdf *s = sdf_new("fan", hold);
    for (int q = 0; q < 3; q++)
        queue[q] = sdf_device(s);
    uint32_t from = sdf_actor(s, queue[0], "from", .kernel = "test_none");
    uint32_t regst = sdf_regst(s, from, .slots = slots);
    for (int q = 0; q < 3; q++)
        for (uint32_t i = 0; i < readers[q]; i++) {
            bool last = q == 2 && i + 1 == readers[q];
            sdf_port(s, sdf_actor(s, queue[q], "to", .kernel = "test_none", .fires = last ? hold : 1), regst,
                     .hold = last ? hold : 1);
        }
    weir_plan *plan = sdf_plan(s);
    OK(plan_validate(plan));
    return plan;
}

/* The messages that a worker has been sent so far. */
static uint64_t messages(const weir_session *s, uint32_t worker)
{
    return atomic_load(&s->workers.list[worker].lane.mailbox.ring->tail);
}

static weir_session *session_of(const weir_plan *plan, int workers)
{
    weir_session *s = weir_session_open(plan, .workers = workers);
    cr_assert(s, "%s", weir_error());
    OK(weir_session_run(s, STEPS));
    return s;
}

/* With one slot no two messages of an edge can be merged. */
Test(branches, a_register_with_several_readers_on_each_of_two_workers_is_told_of_twice)
{
    for (uint32_t hold = 1; hold <= 3; hold += 2) {
        weir_plan *plan = fan_plan(1, hold, (const uint32_t[]){2, 4, 3});
        weir_session *s = session_of(plan, 3);
        cr_expect_eq(messages(s, 0), 2 * STEPS, "%llu FREEs", (unsigned long long)messages(s, 0));
        cr_expect_eq(messages(s, 1), STEPS, "%llu READYs", (unsigned long long)messages(s, 1));
        cr_expect_eq(messages(s, 2), STEPS, "%llu READYs", (unsigned long long)messages(s, 2));
        OK(weir_session_close(s));
        weir_plan_free(plan);
    }
}

Test(branches, devices_of_one_worker_are_told_together)
{
    weir_plan *plan = fan_plan(1, 1, (const uint32_t[]){0, 4, 3});
    weir_session *s = session_of(plan, 2); /* cpu:0 and cpu:2 are worker 0's */
    cr_expect_eq(messages(s, 0), STEPS);
    cr_expect_eq(messages(s, 1), STEPS);
    OK(weir_session_close(s));
    s = session_of(plan, 1);
    cr_expect_eq(messages(s, 0), 0);
    OK(weir_session_close(s));
    weir_plan_free(plan);
}

Test(branches, slots_come_free_in_order_however_far_readers_are_apart)
{
    for (uint32_t slots = 1; slots <= 5; slots++) {
        weir_plan *plan = fan_plan(slots, 4, (const uint32_t[]){1, 3, 3});
        weir_session *s = session_of(plan, 3);
        OK(weir_session_run(s, STEPS));
        cr_expect_leq(messages(s, 1), 2 * STEPS);
        cr_expect_leq(messages(s, 2), 2 * STEPS);
        OK(weir_session_close(s));
        weir_plan_free(plan);
    }
}

/* ---- over ranks ---- */

struct told {
    int values, wrong;
    uint64_t messages; /* to the rank's only worker, through shared memory */
};

static void run_chain(struct rank *rank)
{
    struct told *told = rank->result;
    struct seen seen = {.rank = rank};
    weir_session *s = chain_open(rank, rank->ctx, &seen);
    RANK_IS(rank, s, "%s", weir_error());
    RANK_OK(rank, weir_session_run(s, STEPS));
    *told = (struct told){seen.values, seen.wrong, messages(s, 0)};
    RANK_OK(rank, weir_session_close(s));
}

/* Over memory a register is told of with one READY and one FREE a step at most: rank r reads what the rank before it makes,
 * and makes what the next one reads, in each round of the chain. */
static void chain_agrees(enum ranks_link link, enum ranks_kind kind)
{
    weir_plan *plan = chain_plan_beside("test_sum", true, STAGES, BESIDE);
    struct ranks *ranks = ranks_run(run_chain, plan, .count = DEVICES, .link = link, .kind = kind,
                                    .result_bytes = sizeof(struct told));
    for (int r = 0; r < DEVICES; r++) {
        const struct told *told = ranks->rank[r].result;
        cr_expect_eq(told->values, r == DEVICES - 1 ? STEPS : 0);
        cr_expect_eq(told->wrong, 0);
        cr_expect_leq(told->messages, (uint64_t)2 * STEPS * (STAGES / DEVICES + 1), "%llu messages",
                      (unsigned long long)told->messages);
    }
    ranks_free(ranks);
    weir_plan_free(plan);
}

Test(branches, ranks_that_share_memory_are_told_once) { chain_agrees(RANKS_SHM, RANKS_PROCESSES); }
Test(branches, ranks_over_wires_are_told_once) { chain_agrees(RANKS_WIRE, RANKS_PROCESSES); }
Test(branches, ranks_as_threads_are_told_once) { chain_agrees(RANKS_SHM, RANKS_THREADS); }
Test(branches, ranks_as_threads_over_wires_are_told_once) { chain_agrees(RANKS_WIRE, RANKS_THREADS); }
