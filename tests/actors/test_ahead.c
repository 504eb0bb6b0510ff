/* tests/actors/test_ahead.c: actors on queues that run ahead, on the fake accelerator (tests/support/fake.h).
 *
 * Random plans over the host and two devices give what they give on CPU devices, whatever order the device takes things
 * in; and do not when one of the rules of actors/ahead.h is left out. For that, that file is included here, with a
 * variable that leaves rules out: the suite's own is linked in the place of the library's.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weir/session.h>

enum rule { NONE, WROTE, READ, LATE, FREE, SKIP, ROOM, TURN, PUT };
static enum rule without;
#define AHEAD_WITHOUT(rule) (without == (rule))
#include "actors/ahead.c"

#include "tests/support/ahead_plans.h"
#include "tests/support/effort.h"
#include "tests/support/fake.h"
#include "tests/support/json.h"
#include "tests/support/ops.h"
#include "tests/support/sdf.h"

enum { GRAPHS = EFFORT(120, 40, 25), MUTANT_GRAPHS = 60, MUTANTS_SEEN = 5, SEED = 100, REPORTED = 32768 };

TestSuite(ahead, .timeout = 120);

/* ---- random plans ---- */

/* Runs it in two runs, the second of which goes on where the first ended. */
static weir_status run(const weir_plan *plan, int workers)
{
    weir_session *s = weir_session_open(plan, .workers = workers, .stall_s = -1);
    cr_assert_not_null(s, "%s", weir_error());
    weir_status status = weir_session_run(s, AHEAD_STEPS - 3);
    if (!status)
        status = weir_session_run(s, 3);
    weir_session_stats stats;
    weir_session_get_stats(s, &stats);
    cr_expect(status || stats.steps == AHEAD_STEPS);
    cr_assert_eq(weir_session_close(s), WEIR_OK, "%s", weir_error());
    return status;
}

static bool same(const struct ahead_result *a, const struct ahead_result *b)
{
    return a->count == b->count && a->count > 0 && !memcmp(a->value, b->value, sizeof(a->value));
}

/* The values of the seed's plan on CPU devices. False: it is not live. */
static bool wanted(unsigned seed, struct ahead_result *result)
{
    *result = (struct ahead_result){0};
    weir_plan *plan = ahead_plan(seed, false, result);
    if (!plan)
        return false;
    cr_assert_eq(run(plan, 1), WEIR_OK, "seed %u: %s", seed, weir_error());
    weir_plan_free(plan);
    return true;
}

static fake_seen run_ahead(unsigned seed, struct ahead_result *result, int workers, uint32_t delay_us)
{
    *result = (struct ahead_result){0};
    weir_plan *plan = ahead_plan(seed, true, result);
    cr_assert_not_null(plan, "seed %u: %s", seed, weir_error());
    fake_open(&(fake_options){.seed = seed * 7919 + (unsigned)workers, .delay_us = delay_us, .kernels_max = seed % 4});
    cr_assert_eq(run(plan, workers), WEIR_OK, "seed %u: %s", seed, weir_error());
    fake_seen seen = fake_close();
    weir_plan_free(plan);
    return seen;
}

Test(ahead, random_plans_give_what_they_give_on_the_cpu)
{
    struct ahead_result cpu, fake;
    uint64_t awaits = 0, marks = 0, meetings = 0;
    int live = 0;
    test_ops();
    for (unsigned seed = SEED; seed < SEED + GRAPHS; seed++) {
        if (!wanted(seed, &cpu))
            continue;
        live++;
        fake_seen seen = run_ahead(seed, &fake, 1 + (int)seed % 3, seed % 4 ? 5 : 0);
        cr_assert(same(&cpu, &fake), "seed %u: other values than on the CPU", seed);
        cr_assert_eq(seen.misuses, 0, "seed %u: %s", seed, seen.misuse);
        cr_assert_eq(seen.race[0], 0, "seed %u: %s", seed, seen.race);
        awaits += seen.awaits;
        marks += seen.marks;
        meetings += seen.begun;
    }
    cr_expect_gt(live, GRAPHS / 3);
    cr_expect_gt(awaits, 0);
    cr_expect_gt(meetings, GRAPHS);
    cr_expect_gt(marks, awaits);
}

/* ---- each rule is needed ---- */

/* In how many of the plans a rule is missed. */
static int missed(enum rule rule)
{
    struct ahead_result cpu, fake;
    int count = 0;
    test_ops();
    for (unsigned seed = SEED; seed < SEED + MUTANT_GRAPHS; seed++) {
        if (!wanted(seed, &cpu))
            continue;
        without = rule;
        fake_seen seen = run_ahead(seed, &fake, 2, 5);
        without = NONE;
        count += !same(&cpu, &fake) || seen.misuses || *seen.race;
    }
    return count;
}

Test(ahead, a_reader_that_does_not_await_what_was_written_is_seen)
{
    cr_expect_geq(missed(WROTE), MUTANTS_SEEN);
}

Test(ahead, a_writer_that_does_not_await_what_was_read_is_seen)
{
    cr_expect_geq(missed(READ), MUTANTS_SEEN);
}

Test(ahead, a_wait_that_is_left_out_too_early_is_seen)
{
    cr_expect_geq(missed(SKIP), MUTANTS_SEEN);
}

#if EFFORT(1, 1, 0) /* these are races of the host's: a sanitizer ends the test for them */
Test(ahead, a_host_that_is_told_at_launch_is_seen)
{
    cr_expect_geq(missed(LATE), MUTANTS_SEEN);
}

/* It writes anew what a copy is yet to read. */
Test(ahead, a_host_that_is_told_at_launch_that_a_slot_is_free_is_seen)
{
    cr_expect_geq(missed(FREE), MUTANTS_SEEN);
}
#endif

Test(ahead, a_mark_without_room_is_seen)
{
    cr_expect_geq(missed(ROOM), MUTANTS_SEEN);
}

/* ---- failures ---- */

/* source -> copy in -> a -> b -> copy out -> sink */
static weir_plan *line(callback_binding *bindings)
{
    sdf *s = sdf_new("line", 1);
    uint32_t host = sdf_device_of(s, WEIR_PINNED, 0, PLAN_COMPUTE), compute = sdf_device_of(s, WEIR_FAKE, 0, PLAN_COMPUTE);
    uint32_t in = sdf_queue(s, compute, PLAN_COPY_IN), out = sdf_queue(s, compute, PLAN_COPY_OUT);
    uint32_t queue[] = {host, in, compute, compute, out, host};
    const char *name[] = {"source", "give", "a", "b", "fetch", "sink"};
    const char *kernel[] = {"source", "copy", "test_sum", "test_sum", "copy", "sink"};
    uint32_t regst = 0;
    for (uint32_t i = 0; i < 6; i++) {
        uint32_t actor = sdf_actor(s, queue[i], name[i], .kernel = kernel[i],
                                   .host_kind = i == 0 ? 1 + PLAN_SOURCE : i == 5 ? 1 + PLAN_SINK : 0);
        if (i)
            sdf_port(s, actor, regst);
        if (i < 5)
            regst = sdf_regst(s, actor, .items = 1, .slots = 2, .lies = i == 4 ? 1 + host : 0);
    }
    weir_plan *plan = sdf_plan_bound(s, bindings);
    cr_assert_eq(plan_validate(plan), WEIR_OK, "%s", weir_error());
    return plan;
}

static weir_status give_step(void *ctx, const weir_view *to, int64_t step, int micro)
{
    (void)ctx, (void)micro;
    *(float *)to->data = (float)step;
    return WEIR_OK;
}

static weir_status take_count(void *ctx, const weir_view *value, int64_t step, int micro)
{
    (void)micro;
    *(int *)ctx += *(const float *)value->data == (float)step + 2;
    return WEIR_OK;
}

static weir_plan *counting_line(int *count)
{
    callback_binding *bindings = calloc(2, sizeof(*bindings));
    bindings[0].fn.source = give_step;
    bindings[1] = (callback_binding){.fn.sink = take_count, .ctx = count};
    *count = 0;
    return line(bindings);
}

/* All that the session said. */
static void tell(void *ctx, const char *text)
{
    char *told = ctx;
    snprintf(told + strlen(told), REPORTED - strlen(told), "%s\n", text);
}

static void tell_last(void *ctx, const char *text)
{
    snprintf(ctx, REPORTED, "%s", text);
}

static void expect_failure(fake_fault fault, const char *const *parts)
{
    char told[REPORTED] = "";
    int count;
    test_ops();
    for (int workers = 1; workers < 4; workers++) {
        weir_plan *plan = counting_line(&count);
        fake_open(&(fake_options){.seed = (unsigned)workers, .delay_us = 20, .marks_max = 4, .faults = {fault}});
        weir_session *s = weir_session_open(plan, .workers = workers, .report = tell, .report_ctx = told);
        cr_assert_not_null(s, "%s", weir_error());
        cr_expect_eq(weir_session_run(s, 100), WEIR_E_KERNEL);
        for (const char *const *part = parts; *part; part++)
            cr_expect(strstr(weir_error(), *part), "'%s' does not say '%s'", weir_error(), *part);
        cr_expect_eq(weir_session_run(s, 1), WEIR_E_KERNEL, "it has failed for ever");
        cr_expect_eq(weir_session_close(s), WEIR_OK, "%s", weir_error());
        cr_expect_lt(count, 100);
        fake_close_well();
        weir_plan_free(plan);
    }
}

Test(ahead, a_kernel_that_fails_late_is_reported_with_what_was_under_way)
{
    expect_failure((fake_fault){.kind = FAKE_FAILS, .queue = DEVICE_COMPUTE, .launch = 9},
                   (const char *const[]){"fake:0: the device failed: test_sum failed on fake:0", "; under way were ", " in step ", NULL});
}

Test(ahead, a_queue_that_dies_is_reported)
{
    expect_failure((fake_fault){.kind = FAKE_DIES, .queue = DEVICE_COPY_OUT, .launch = 5},
                   (const char *const[]){"model.c:104: fetch (copy) in step 4 on copy out fake:0: the device failed: ",
                                         "; under way were fetch in step 4", NULL});
}

Test(ahead, a_launch_that_fails_names_the_call)
{
    expect_failure((fake_fault){.kind = FAKE_LAUNCH_FAILS, .queue = DEVICE_COPY_OUT, .launch = 5},
                   (const char *const[]){"model.c:104: fetch (copy) failed on fake:0 in step 4", NULL});
}

Test(ahead, a_queue_that_never_finishes_is_told_as_a_stall_and_the_session_closes)
{
    char told[REPORTED] = "";
    int count;
    test_ops();
    weir_plan *plan = counting_line(&count);
    fake_open(&(fake_options){.seed = 1, .faults = {{.kind = FAKE_HANGS, .queue = DEVICE_COMPUTE, .launch = 9}}});
    weir_session *s = weir_session_open(plan, .stall_s = 0.5, .report = tell_last, .report_ctx = told);
    cr_assert_not_null(s, "%s", weir_error());
    cr_assert_eq(weir_session_start(s, 100), WEIR_OK);
    cr_expect_eq(weir_session_wait(s, 2000), WEIR_E_TIMEOUT);
    cr_expect_eq(weir_session_close(s), WEIR_OK, "%s", weir_error());
    cr_expect(strstr(told, "(fake:0) waits for "), "%s", told);
    cr_expect(strstr(told, " (test_sum, model.c:10"), "%s", told);
    cr_expect(!strstr(told, "kernel of fetch") && !strstr(told, "kernel of give"), "they do not run: %s", told);
    cr_expect(!strstr(told, "no firings left"), "all have some: %s", told);
    cr_expect_lt(count, 9);
    fake_close_well();
    weir_plan_free(plan);
}

Test(ahead, a_session_is_closed_in_the_middle_of_a_run)
{
    int count;
    test_ops();
    for (unsigned i = 0; i < 20; i++) {
        weir_plan *plan = counting_line(&count);
        fake_open(&(fake_options){.seed = i, .delay_us = 50});
        weir_session *s = weir_session_open(plan, .stall_s = -1);
        cr_assert_not_null(s, "%s", weir_error());
        cr_assert_eq(weir_session_start(s, 1000000), WEIR_OK);
        weir_session_wait(s, (int)i % 3);
        cr_expect_eq(weir_session_close(s), WEIR_OK, "%s", weir_error());
        fake_close_well();
        weir_plan_free(plan);
    }
}

/* A parameter that each step adds one to; the launch of step FAILED_IN fails when it runs. */
Test(ahead, what_was_under_way_at_a_failure_is_torn_and_not_counted)
{
    enum { FAILED_IN = 5 };
    weir_session_param param;
    test_ops();
    for (unsigned seed = 0; seed < 5; seed++) {
        sdf *s = sdf_new("counter", 1);
        uint32_t actor = sdf_actor(s, sdf_device_of(s, WEIR_FAKE, 0, PLAN_COMPUTE), "add", .kernel = "test_sum");
        sdf_port(s, actor, sdf_regst(s, actor, .slots = 2, .initial = 1, .items = 1, .init = WEIR_INIT_VALUE, .a = 1,
                                     .param = "sum"));
        weir_plan *plan = sdf_plan(s);
        cr_assert_eq(plan_validate(plan), WEIR_OK, "%s", weir_error());
        fake_open(&(fake_options){.seed = seed, .delay_us = 20,
                                  .faults = {{.kind = FAKE_FAILS, .queue = DEVICE_COMPUTE, .launch = FAILED_IN + 1}}});
        weir_session *session = weir_session_open(plan, .stall_s = -1);
        cr_assert_not_null(session, "%s", weir_error());
        cr_expect_eq(weir_session_run(session, 100), WEIR_E_KERNEL);
        cr_assert_eq(weir_session_params(session, &param, 1), 1, "%s", weir_error());
        cr_expect(param.torn);
        cr_expect_leq(param.step_most, FAILED_IN);
        cr_expect_leq(weir_session_step(session), param.step);
        cr_expect_eq(weir_session_close(session), WEIR_OK, "%s", weir_error());
        fake_close_well();
        weir_plan_free(plan);
    }
}

/* ---- what is seen of a run ---- */

Test(ahead, trace_and_statistics_tell_what_the_device_did)
{
    enum { STEPS = 20, DELAY_US = 200 };
    char path[] = "/tmp/weir-test-ahead-XXXXXX";
    int count;
    close(mkstemp(path));
    test_ops();
    weir_plan *plan = counting_line(&count);
    fake_open(&(fake_options){.seed = 3, .delay_us = DELAY_US});
    weir_session *s = weir_session_open(plan, .trace = path);
    cr_assert_not_null(s, "%s", weir_error());
    cr_assert_eq(weir_session_run(s, STEPS), WEIR_OK, "%s", weir_error());
    weir_session_stats stats;
    weir_session_get_stats(s, &stats);
    cr_expect_eq(count, STEPS);
    cr_assert_eq(stats.queue_count, 4);
    for (int q = 0; q < stats.queue_count; q++) {
        bool compute = !strcmp(stats.queue[q].name, "fake:0"), host = !strncmp(stats.queue[q].name, "pinned", 6);
        cr_expect_eq(stats.queue[q].firings, compute || host ? 2 * STEPS : STEPS, "%s", stats.queue[q].name);
        cr_expect(stats.queue[q].busy > 0 && stats.queue[q].busy <= 1, "%s: %g", stats.queue[q].name,
                  stats.queue[q].busy);
    }
    cr_assert_eq(weir_session_close(s), WEIR_OK, "%s", weir_error());
    fake_close_well();
    char *text = json_read(path);
    cr_expect(json_valid(text));
    cr_expect_eq(json_count(text, "\"ph\": \"X\""), 6 * STEPS);
    free(text);
    remove(path);
    weir_plan_free(plan);
}
