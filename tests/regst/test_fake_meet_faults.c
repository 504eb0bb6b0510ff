/* tests/regst/test_fake_meet_faults.c: groups of the fake accelerator (tests/support/fake.h) see what a caller may
 * not do, find races whatever order was drawn, and fail as a real communicator does. */
#include <criterion/criterion.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/effort.h"
#include "tests/support/halls.h"
#include "tests/support/ranks.h"

TestSuite(fake_meet_faults, .timeout = 120);

enum { SEEDS = EFFORT(40, 15, 6) };

/* ---- faults ---- */

static bool all_nan(const struct halls *h, uint32_t device, uint32_t i)
{
    const float *at = fake_reach(halls_slot(h, device, i));
    bool all = true;
    for (int j = 0; j < BENCH_ITEMS; j++)
        all = all && isnan(at[j]);
    return all;
}

/* Device 1's second meeting goes wrong. If the meeting has begun (`begun`), the others take NaNs; they wait, and are
 * well, until they are aborted. */
static void goes_wrong(fake_fault_kind kind, const char *error, bool begun, uint64_t seed)
{
    fake_options options = halls_drawn(seed);
    options.faults[0] = (fake_fault){kind, 1, DEVICE_COLLECTIVE, 2};
    struct halls h = halls_open(&options, 0, 3);
    struct device_group **groups = halls_join_all(&h, 1);
    for (uint32_t d = 0; d < 3; d++) {
        halls_put(&h, d, 0, (float)d);
        halls_put(&h, d, 2, 77);
    }
    halls_ring(&h, groups, 1, 0, 1);
    halls_finish(&h);
    halls_ring(&h, groups, 2, 1, 2);
    for (uint32_t d = 0; d < 3; d++)
        bench_mark(h.queue[d]);
    if (error)
        halls_expect_ill(h.queue[1], error);
    while (fake_look().begun < (begun ? 6 : 3))
        sched_yield();
    ranks_pause(2);
    cr_expect_eq(halls_done(&h), 3, "a member is done with what another one did not do");
    for (uint32_t d = 0; d < 3; d++)
        cr_expect(d == 1 || !h.device->health(h.queue[d], NULL, 0));
    halls_abort(&h);
    for (uint32_t d = 0; d < 3; d++)
        cr_expect(begun ? all_nan(&h, d, 2) : halls_get(&h, d, 2) == 77, "seed %d, member %u: %g", (int)seed, d, halls_get(&h, d, 2));
    halls_put(&h, 0, 2, 5);
    ranks_pause(2);
    cr_expect_eq(halls_get(&h, 0, 2), 5, "something of an aborted queue touches memory");
    halls_close(&h);
}

Test(fake_meet_faults, others_wait_for_a_member_that_fails_until_they_are_aborted)
{
    for (uint64_t seed = 0; seed < SEEDS / 3; seed++)
        goes_wrong(FAKE_FAILS, "collective failed on fake:1: it was told to", true, seed);
}

Test(fake_meet_faults, others_wait_for_a_member_that_died_until_they_are_aborted)
{
    for (uint64_t seed = 0; seed < SEEDS / 3; seed++)
        goes_wrong(FAKE_DIES, "a queue of fake:1 is lost", false, seed);
}

Test(fake_meet_faults, others_wait_for_a_member_that_hangs_until_they_are_aborted)
{
    for (uint64_t seed = 0; seed < SEEDS / 3; seed++)
        goes_wrong(FAKE_HANGS, NULL, true, seed);
}

Test(fake_meet_faults, a_meeting_that_is_not_launched_is_not_counted)
{
    struct halls h = halls_open(&(fake_options){.faults = {{FAKE_LAUNCH_FAILS, 1, DEVICE_COLLECTIVE, 1}}}, 0, 2);
    struct device_group **groups = halls_join_all(&h, 1);
    halls_put(&h, 0, 0, 3);
    halls_pass_on(&h, 0, groups[0], 1, 1, 1, halls_slot(&h, 0, 0), halls_slot(&h, 0, 1));
    cr_expect_eq(halls_pass_on(&h, 1, groups[1], 1, 0, 0, halls_slot(&h, 1, 0), halls_slot(&h, 1, 1)), WEIR_E_KERNEL);
    cr_expect(strstr(weir_error(), "does not take collective"), "%s", weir_error());
    cr_expect_eq(halls_pass_on(&h, 1, groups[1], 1, 0, 0, halls_slot(&h, 1, 0), halls_slot(&h, 1, 1)), WEIR_OK);
    halls_finish(&h);
    cr_expect_eq(halls_get(&h, 1, 1), 3);
    halls_close(&h);
}

Test(fake_meet_faults, an_aborted_member_takes_nothing_more)
{
    struct halls h = halls_open(NULL, 0, 2);
    struct device_group **groups = halls_join_all(&h, 1);
    halls_put(&h, 0, 1, 8);
    halls_pass_on(&h, 0, groups[0], 1, 1, 1, halls_slot(&h, 0, 0), halls_slot(&h, 0, 1));
    h.device->abort(h.queue[0]);
    cr_expect_neq(halls_pass_on(&h, 0, groups[0], 2, 1, 1, halls_slot(&h, 0, 0), halls_slot(&h, 0, 1)), WEIR_OK);
    halls_pass_on(&h, 1, groups[1], 1, 0, 0, halls_slot(&h, 1, 0), halls_slot(&h, 1, 1));
    ranks_pause(5);
    cr_expect_eq(halls_get(&h, 0, 1), 8);
    halls_abort(&h);
    halls_close(&h);
}

/* ---- what no caller may do ---- */

Test(fake_meet_faults, sees_what_is_no_member_or_no_move)
{
    struct halls h = halls_open(NULL, 0, 2);
    struct device_group_id id = {.session = 0x5e55, .number = 1};
    struct device_group **groups = halls_join_all(&h, 1), *other;
    cr_expect_eq(h.device->group_new(h.queue[0], &id, 2, 2, 2, &other), WEIR_E_STATE);
    cr_expect_eq(h.device->group_new(h.queue[0], &id, 1, 2, 2, &other), WEIR_E_STATE);
    cr_expect_eq(h.device->group_new(h.queue[0], &id, 2, 3, 3, &other), WEIR_E_STATE);
    cr_expect_eq(fake_look().misuses, 3);
    cr_expect_eq(halls_pass_on(&h, 0, groups[1], 1, 1, 1, halls_slot(&h, 0, 0), halls_slot(&h, 0, 1)), WEIR_E_STATE, "another queue's group");
    cr_expect_eq(halls_pass_on(&h, 0, groups[0], 1, 3, 1, halls_slot(&h, 0, 0), halls_slot(&h, 0, 1)), WEIR_E_STATE, "a peer");
    weir_view in = bench_view(halls_slot(&h, 0, 0)), out = halls_vector(halls_slot(&h, 0, 1), WEIR_F32, 5);
    struct device_meeting adds = {.group = groups[0], .number = 4, .kind = DEVICE_REDUCE_SCATTER};
    cr_expect_eq(halls_meet(h.queue[0], &adds, &in, 1, &out, 1), WEIR_E_STATE, "bytes");
    cr_expect_eq(halls_meet(h.queue[0], &adds, (weir_view[]){in, in}, 2, &out, 1), WEIR_E_STATE, "an output for each");
    cr_expect_eq(fake_look().misuses, 7);
    halls_finish(&h);
    halls_expect_misuse(&h, "there is no such place");
}

Test(fake_meet_faults, sees_memory_of_the_hosts)
{
    struct halls h = halls_open(NULL, 0, 1);
    struct device_group **groups = halls_join_all(&h, 1);
    float host[BENCH_ITEMS];
    halls_pass_on(&h, 0, groups[0], 1, 0, 0, halls_slot(&h, 0, 0), host);
    halls_finish(&h);
    halls_expect_misuse(&h, "collective is given 128 bytes");
}

Test(fake_meet_faults, sees_a_group_freed_that_is_to_meet)
{
    struct halls h = halls_open(NULL, 0, 2);
    struct device_group **groups = halls_join_all(&h, 1);
    halls_pass_on(&h, 0, groups[0], 1, 1, 1, halls_slot(&h, 0, 0), halls_slot(&h, 0, 1));
    halls_expect_misuse(&h, "group 1 is freed while queue 1 is to meet");
}

Test(fake_meet_faults, sees_a_group_left_open)
{
    struct halls h = halls_open(NULL, 0, 1);
    halls_join_all(&h, 6);
    h.group_count = 0;
    halls_expect_misuse(&h, "member 0 of group 6 was left open");
}

/* ---- races ---- */

/* Both devices fill slot 0, meet, and add up what they took, on the compute queue; with or without each of the awaits:
 * of what is given, of what was taken, of what was given when it is filled again. */
static fake_seen fill_and_meet(uint64_t seed, bool awaits_fill, bool awaits_meeting, bool awaits_given)
{
    fake_options options = halls_drawn(seed);
    options.held = true; /* so that the host sees nothing done which it could order by */
    struct halls h = halls_open(&options, 0, 2);
    struct device_group **groups = halls_join_all(&h, 1);
    for (uint64_t i = 1; i <= 3; i++) {
        for (uint32_t d = 0; d < 2; d++) {
            if (awaits_given && i > 1)
                bench_await(h.compute[d], h.queue[d], i - 1);
            bench_launch(h.compute[d], bench_fill, 10 * i + d, NULL, halls_slot(&h, d, 0));
            bench_mark(h.compute[d]);
            if (awaits_fill)
                h.device->await(h.queue[d], h.compute[d], 2 * i - 1);
            halls_pass_on(&h, d, groups[d], 1, 1 - d, 1 - d, halls_slot(&h, d, 0), halls_slot(&h, d, (uint32_t)i));
            bench_mark(h.queue[d]);
            if (awaits_meeting)
                bench_await(h.compute[d], h.queue[d], i);
            bench_launch(h.compute[d], bench_copy, 0, halls_slot(&h, d, (uint32_t)i), halls_slot(&h, d, (uint32_t)i + 8));
            bench_mark(h.compute[d]);
        }
    }
    fake_go();
    for (uint32_t d = 0; d < 2; d++) {
        bench_wait(h.compute[d], 6);
        bench_wait(h.queue[d], 3);
        for (uint32_t i = 1; i <= 3 && awaits_fill && awaits_meeting; i++)
            cr_expect_eq(halls_get(&h, d, i + 8), (float)(10 * i + 1 - d));
    }
    halls_free(&h);
    return fake_close();
}

Test(fake_meet_faults, an_await_that_is_left_out_is_seen_in_every_order)
{
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        fake_seen well = fill_and_meet(seed, true, true, true);
        cr_assert(!well.misuses && !well.race[0], "%s%s", well.misuse, well.race);
        fake_seen no_fill = fill_and_meet(seed, false, true, true), no_meeting = fill_and_meet(seed, true, false, true);
        cr_assert(strstr(no_fill.race, "nothing orders") && strstr(no_fill.race, "collective"), "seed %d", (int)seed);
        cr_assert(strstr(no_meeting.race, "nothing orders") && strstr(no_meeting.race, "collective"), "seed %d",
                  (int)seed);
    }
}

/* The given bytes have been read when a meeting is over, and the taken bytes are awaited in any case. */
Test(fake_meet_faults, awaiting_a_meeting_is_enough_to_give_again)
{
    fake_seen seen = fill_and_meet(1, true, true, false);
    cr_expect(!seen.misuses && !seen.race[0], "%s%s", seen.misuse, seen.race);
}

/* A member's work before a meeting comes before another member's work after it: order goes through a meeting, but not
 * to the bytes that are taken at its end. */
Test(fake_meet_faults, order_goes_through_a_meeting)
{
    for (int late = 0; late < 2; late++) {
        struct halls h = halls_open(&(fake_options){.marks_max = 8}, 0, 2);
        struct device_group **groups = halls_join_all(&h, 1);
        bench_launch(h.compute[0], bench_fill, 3, NULL, halls_slot(&h, 0, 5));
        h.device->await(h.queue[0], h.compute[0], bench_mark(h.compute[0]));
        halls_ring(&h, groups, 1, 0, 1);
        bench_await(h.compute[1], h.queue[1], bench_mark(h.queue[1]));
        bench_launch(h.compute[1], bench_fill, 4, NULL, late ? halls_slot(&h, 0, 1) : halls_slot(&h, 0, 5));
        bench_finish(h.compute[1]);
        bench_finish(h.queue[0]);
        halls_free(&h);
        fake_seen seen = fake_close();
        cr_expect_eq(seen.misuses, 0, "%s", seen.misuse);
        cr_expect_eq(!*seen.race, !late, "%s", seen.race);
    }
}
