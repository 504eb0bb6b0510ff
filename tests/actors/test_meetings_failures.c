/* tests/actors/test_meetings_failures.c: meetings of a member that fails, hangs or does not come: what a run is told of it. */
#include "tests/actors/meeting_plans.h"

TestSuite(meetings_failures, .init = test_ops, .timeout = 120);

static struct device_ops ops;

/* ---- failures ---- */

static weir_status (*meet_really)(struct device_queue *, const struct device_meeting *, const weir_kernel_args *);
static _Atomic int meets;

static weir_status meet_five_times(struct device_queue *queue, const struct device_meeting *meeting,
                                   const weir_kernel_args *args)
{
    if (queue->index == 1 && meets++ == 5)
        return error_set(WEIR_E_KERNEL, "nobody wants to");
    return meet_really(queue, meeting, args);
}

static void expect_parts(const char *text, const char *const *parts)
{
    for (const char *const *part = parts; *part; part++)
        cr_expect(strstr(text, *part), "'%s' does not say '%s'", text, *part);
}

Test(meetings_failures, a_meeting_that_is_not_taken_is_told_with_its_call)
{
    for (int workers = 1; workers < 3; workers++) {
        meetings m;
        weir_plan *plan = pair_plan(&m);
        fake_open(NULL);
        ops = *device_find(WEIR_FAKE);
        meet_really = ops.meet;
        ops.meet = meet_five_times;
        meets = 0;
        device_register(WEIR_FAKE, &ops);
        weir_session *s = opened(plan, workers);
        cr_expect_eq(weir_session_run(s, 100), WEIR_E_KERNEL);
        expect_parts(weir_error(), (const char *[]){"member 0 of 1 (collective) failed on fake:1 in step 5: nobody wants to", NULL});
        cr_expect_eq(weir_session_close(s), WEIR_OK, "%s", weir_error());
        fake_close_well();
        cr_expect_lt(m.taken[0], 20);
        weir_plan_free(plan);
    }
}

/* `meet_ms`: so long do members wait for each other; 0: for ever. */
static void expect_failure_of(fake_fault fault, uint32_t meet_ms, const char *const *parts)
{
    char told[REPORTED];
    for (int workers = 1; workers < 4; workers++) {
        meetings m;
        weir_plan *plan = pair_plan(&m);
        told[0] = 0;
        fake_open(&(fake_options){.seed = (unsigned)workers, .delay_us = 20, .meet_ms = meet_ms, .faults = {fault}});
        weir_session *s = weir_session_open(plan, .workers = workers, .report = tell, .report_ctx = told);
        cr_assert_not_null(s, "%s", weir_error());
        cr_expect_eq(weir_session_run(s, 100), WEIR_E_KERNEL);
        expect_parts(weir_error(), parts);
        cr_expect_eq(weir_session_close(s), WEIR_OK, "%s", weir_error());
        cr_expect_eq(m.wrong, 0);
        cr_expect_lt(m.taken[0], 20);
        const char *first = strstr(told, "the device failed");
        cr_expect(first && !strstr(first + 1, "the device failed"), "told once: %s", told);
        fake_close_well();
        weir_plan_free(plan);
    }
}

static void expect_failure(fake_fault fault, const char *const *parts)
{
    expect_failure_of(fault, 0, parts);
}

Test(meetings_failures, a_queue_that_dies_before_a_collective_is_told)
{
    expect_failure((fake_fault){.kind = FAKE_DIES, .device = 1, .queue = DEVICE_COLLECTIVE, .launch = 5},
                   (const char *[]){"the device failed: ", "; under way were member 0 of ", " in step 4",
                                    "; the first of them with fake:", NULL});
}

/* All have come, and then one gives nothing: it fails, or it hangs and the others lose patience. */
Test(meetings_failures, a_member_that_fails_in_a_meeting_is_told)
{
    expect_failure((fake_fault){.kind = FAKE_FAILS, .device = 1, .queue = DEVICE_COLLECTIVE, .launch = 5},
                   (const char *[]){"fake:1: the device failed: ", "; under way were member 0 of ", " in step 4", NULL});
}

Test(meetings_failures, a_member_that_hangs_in_a_meeting_is_told_by_those_that_wait_for_it)
{
    expect_failure_of((fake_fault){.kind = FAKE_HANGS, .device = 1, .queue = DEVICE_COLLECTIVE, .launch = 5}, 300,
                      (const char *[]){"the device failed: collective failed on fake:0: member 1 of group 0 does not give its part in collective 0",
                                       "; under way were member 0 of ", " in step 4", NULL});
}

Test(meetings_failures, a_member_whose_kernel_fails_is_told_and_the_others_end)
{
    expect_failure((fake_fault){.kind = FAKE_FAILS, .device = 1, .queue = DEVICE_COMPUTE, .launch = 9},
                   (const char *[]){"fake:1: the device failed: ", "; under way were ", NULL});
}

/* ---- stalls ---- */

static _Atomic bool go_on;

static void expect_stall(meetings *m, const weir_plan *plan, const fake_options *options, int workers,
                         const char *const *parts, const char *not)
{
    static char told[REPORTED];
    told[0] = 0;
    go_on = false;
    fake_open(options);
    weir_session *s = weir_session_open(plan, .workers = workers, .stall_s = 0.5, .report = tell, .report_ctx = told);
    cr_assert_not_null(s, "%s", weir_error());
    cr_assert_eq(weir_session_start(s, 100), WEIR_OK);
    cr_expect_eq(weir_session_wait(s, 2500), WEIR_E_TIMEOUT);
    go_on = true;
    cr_expect_eq(weir_session_close(s), WEIR_OK, "%s", weir_error());
    expect_parts(told, parts);
    cr_expect(!strstr(told, not), "%s", told);
    cr_expect(!strstr(told, "no firings left"), "all have some: %s", told);
    cr_expect_eq(m->wrong, 0);
    fake_close_well();
}

Test(meetings_failures, a_member_that_has_not_come_is_told)
{
    meetings_lane lane = meetings_of(PLAN_ALL_GATHER, 3);
    meetings m = {.lane = &lane, .lane_count = 1, .micro = 1};
    weir_plan *plan = meetings_plan(&m, NULL, 0);
    for (int workers = 1; workers < 4; workers++)
        expect_stall(&m, plan,
                     &(fake_options){.seed = 1, .faults = {{.kind = FAKE_HANGS, .device = 1, .queue = DEVICE_COPY_IN, .launch = 5}}},
                     workers,
                     (const char *[]){"(fake:0) has come to its collective, and waits for member 0 of 1 (fake:1), which has not come",
                                      "kernel of in 0 of 1 (copy, ", NULL},
                     "circle");
    weir_plan_free(plan);
}

/* Nobody loses patience: that it stalls is told once, with who is in the meeting, and the session closes. */
Test(meetings_failures, a_member_that_hangs_in_a_meeting_is_told_as_a_stall)
{
    meetings_lane lane = meetings_of(PLAN_ALL_GATHER, 3);
    meetings m = {.lane = &lane, .lane_count = 1, .micro = 1};
    weir_plan *plan = meetings_plan(&m, NULL, 0);
    for (int workers = 1; workers < 4; workers++)
        expect_stall(&m, plan,
                     &(fake_options){.seed = 1, .faults = {{.kind = FAKE_HANGS, .device = 1, .queue = DEVICE_COLLECTIVE, .launch = 5}}},
                     workers, (const char *[]){"kernel of member 0 of 1 (collective, ", NULL}, "has not come");
    weir_plan_free(plan);
}

/* Lane 0 has no value for step 4. */
static void stuck_gives(meetings *m, uint32_t lane, uint32_t device, int64_t step, int micro)
{
    (void)m, (void)micro;
    while (!lane && !device && step == 4 && !go_on)
        sleep_us(1000);
}

Test(meetings_failures, a_queue_that_stands_behind_a_collective_says_which_member_has_not_come)
{
    meetings_lane lanes[] = {meetings_of(PLAN_ALL_GATHER, 2), meetings_of(PLAN_SEND_RECV, 2)};
    lanes[1].from = 1;
    meetings m = {.lane = lanes, .lane_count = 2, .micro = 1, .gives = stuck_gives};
    weir_plan *plan = meetings_plan(&m, (uint32_t[]){0, 1}, 2);
    expect_stall(&m, plan, &(fake_options){.seed = 1}, 2 * MEETINGS_DEVICES,
                 (const char *[]){"waits for its turn, behind ", "member 0 of 1 (fake:1) has come to its collective, and waits for member 0 of 0 (fake:0), which has not come",
                                  "kernel of source 0 of 0 ", NULL},
                 "circle");
    weir_plan_free(plan);
}
