/* tests/actors/session/test_session_failures.c: sessions that fail: what their program is told, what can still be pulled, and
 * what is not called any more. */
#include "tests/actors/session/chain_plans.h"

/* ---- failures ---- */

Test(session_failures, a_stalled_run_times_out_and_can_be_closed, .timeout = 120)
{
    weir_plan *plan = pipe_plan(1, 2);
    weir_session *session = weir_session_open(plan);
    OK(weir_session_start(session, 5));
    FAILS(WEIR_E_TIMEOUT, weir_session_wait(session, 20), "not over");
    FAILS(WEIR_E_STATE, weir_session_start(session, 1), "under way");
    FAILS(WEIR_E_STATE, weir_session_read(session, "w", NULL), "under way");
    OK(weir_session_close(session));
    weir_plan_free(plan);
}

static weir_plan *failing_plan(void)
{
    uint32_t queues[2];
    sdf *s = chain_begin(2, queues);
    uint32_t outside = sdf_outside(s, queues[0]);
    uint32_t x = sdf_actor(s, queues[0], "x", SOURCE);
    uint32_t bad = sdf_actor(s, queues[1], "h0/q", .kernel = "test_fail");
    sdf_port(s, bad, sdf_regst(s, x, .items = 4));
    sdf_port(s, sdf_actor(s, outside, "y", PULL), sdf_regst(s, bad, .slots = 2, .items = 4));
    return checked(sdf_plan(s));
}

/* Ignores the report of a failed run (tests/actors/watch/test_watch.c reads it). */
static void pass_over(void *ctx, const char *text)
{
    (void)ctx, (void)text;
}

static const weir_binding give_x[] = {{.name = "x", .source = give}, {0}};

Test(session_failures, a_failing_kernel_stops_everything_with_one_report, .timeout = 120)
{
    const char *report = "model.c:101: h0/q (test_fail) failed on cpu:1 in step 17: the sky fell";
    weir_plan *plan = failing_plan();
    weir_session *session = weir_session_open(plan, .bindings = give_x, .report = pass_over);
    float value[4];
    weir_array array = four(value);
    OK(weir_session_start(session, 1000));
    weir_status status = WEIR_OK;
    for (int i = 0; i < 18 && !status; i++)
        status = weir_session_pull(session, "y", &array, 10000);
    cr_assert_eq(status, WEIR_E_KERNEL);
    cr_assert_str_eq(weir_error(), report);
    FAILS(WEIR_E_KERNEL, weir_session_wait(session, -1), report);
    FAILS(WEIR_E_KERNEL, weir_session_pull(session, "y", &array, -1), report);
    FAILS(WEIR_E_KERNEL, weir_session_run(session, 1), report);
    OK(weir_session_close(session));
    weir_plan_free(plan);
}

/* The kernel before the pull fails in step 17: it has made 17 values, the last of which is not pulled. */
Test(session_failures, what_has_arrived_can_be_pulled_after_a_failure, .timeout = 120)
{
    weir_plan *plan = failing_plan();
    weir_session *session = weir_session_open(plan, .bindings = give_x, .report = pass_over);
    float value[4];
    weir_array array = four(value);
    int pulled = 0;
    OK(weir_session_start(session, 1000));
    for (; pulled < 16; pulled++)
        OK(weir_session_pull(session, "y", &array, 10000));
    FAILS(WEIR_E_KERNEL, weir_session_wait(session, 10000), "the sky fell");
    weir_ready ready[8];
    int pulls = 0;
    for (int i = weir_session_ready(session, ready, 8) - 1; i >= 0; i--)
        pulls += ready[i].kind == WEIR_READY_PULL && !ready[i].status;
    cr_expect_eq(pulls, 1, "the value is listed");
    for (; pulled < 17; pulled++)
        OK(weir_session_pull(session, "y", &array, 0));
    FAILS(WEIR_E_KERNEL, weir_session_pull(session, "y", &array, 0), "the sky fell");
    OK(weir_session_close(session));
    weir_plan_free(plan);
}

Test(session_failures, what_has_arrived_is_not_pulled_after_a_cancel, .timeout = 120)
{
    weir_plan *plan = failing_plan();
    weir_session *session = weir_session_open(plan, .bindings = give_x, .report = pass_over);
    float value[4];
    weir_array array = four(value);
    OK(weir_session_start(session, 2));
    OK(weir_session_pull(session, "y", &array, 10000));
    OK(weir_session_cancel(session));
    FAILS(WEIR_E_CANCELLED, weir_session_pull(session, "y", &array, 10000), "cancelled");
    OK(weir_session_close(session));
    weir_plan_free(plan);
}

struct refusal_of_a_sink {
    int64_t at;
    weir_status status;
};

static weir_status give_any(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    (void)ctx, (void)step, (void)micro;
    memset(dst->data, 0, 4 * sizeof(float));
    return WEIR_OK;
}

static weir_status see_until(void *ctx, const weir_view *value, int64_t step, int micro)
{
    const struct refusal_of_a_sink *refusal = ctx;
    (void)value, (void)micro;
    return step == refusal->at ? refusal->status : WEIR_OK;
}

/* A sink in its own words, whatever it says; but for those that would say something else of the run. */
Test(session_failures, fails_with_the_status_of_the_function_and_counts_the_steps_before, .timeout = 120)
{
    weir_plan *plan = chain_plan(2, 2, 2, 1);
    for (int status = WEIR_END; status <= WEIR_E_CANCELLED + 1; status++) {
        struct refusal_of_a_sink refusal = {.at = 23, .status = (weir_status)status};
        bool own = status != WEIR_END && status != WEIR_E_END && status != WEIR_E_TIMEOUT && status != WEIR_E_PEER &&
                   status < WEIR_E_CANCELLED;
        weir_binding bindings[] = {{.name = "x", .source = give_any},
                                   {.name = "y", .sink = see_until, .ctx = &refusal}, {0}};
        weir_session *session = weir_session_open(plan, .bindings = bindings, .first_step = 10, .report = pass_over);
        OK(weir_session_run(session, 10));
        FAILS(own ? (weir_status)status : WEIR_E_KERNEL, weir_session_run(session, 10), "failed on cpu:");
        cr_expect_eq(weir_session_step(session), 23, "the sink has done the steps before 23, and no more");
        OK(weir_session_close(session));
    }
    weir_plan_free(plan);
}

static weir_status refuse(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    (void)ctx, (void)dst, (void)micro;
    return step == 3 ? WEIR_E_IO : WEIR_OK;
}

Test(session_failures, a_source_that_gives_up_ends_the_run, .timeout = 120)
{
    struct seen seen = {0};
    weir_plan *plan = chain_plan(2, 2, 2, 1);
    weir_binding bindings[] = {{.name = "x", .source = refuse}, {.name = "y", .sink = see, .ctx = &seen}, {0}};
    weir_session *session = weir_session_open(plan, .bindings = bindings, .report = pass_over);
    FAILS(WEIR_E_IO, weir_session_run(session, 10), "model.c:100: x (source) failed on cpu:0 in step 3");
    cr_assert_eq(weir_session_step(session), 3);
    cr_assert_leq(seen.count, 3);
    OK(weir_session_close(session));
    weir_plan_free(plan);
}

static weir_status linger(void *ctx, const weir_view *value, int64_t step, int micro)
{
    (void)value, (void)step, (void)micro;
    atomic_store((atomic_int *)ctx, 1);
    usleep(20000);
    atomic_store((atomic_int *)ctx, 0);
    return WEIR_OK;
}

/* Fails while the sink lingers. */
static weir_status refuse_then(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    (void)dst, (void)micro;
    while (step == 3 && !atomic_load((atomic_int *)ctx))
        usleep(100);
    return step == 3 ? WEIR_E_IO : WEIR_OK;
}

Test(session_failures, no_function_of_the_user_runs_after_a_failed_run, .timeout = 120)
{
    atomic_int lingers = 0;
    weir_plan *plan = chain_plan(2, 2, 2, 1);
    weir_binding bindings[] = {{.name = "x", .source = refuse_then, .ctx = &lingers},
                               {.name = "y", .sink = linger, .ctx = &lingers}, {0}};
    weir_session *session = weir_session_open(plan, .bindings = bindings, .workers = 2, .report = pass_over);
    FAILS(WEIR_E_IO, weir_session_run(session, 10), "x (source) failed on cpu:0 in step 3");
    cr_assert_eq(atomic_load(&lingers), 0);
    OK(weir_session_close(session));
    weir_plan_free(plan);
}

Test(session_failures, a_host_without_a_function_is_named_at_open, .timeout = 120)
{
    weir_plan *plan = chain_plan(1, 1, 1, 1);
    cr_assert_null(weir_session_open(plan, .bindings = give_x));
    cr_assert(strstr(weir_error(), "model.c:102: the sink 'y' has no function"), "%s", weir_error());
    weir_binding wrong[] = {{.name = "y", .source = give}, {0}};
    cr_assert_null(weir_session_open(plan, .bindings = wrong));
    cr_assert(strstr(weir_error(), "y is a sink"), "%s", weir_error());
    weir_binding unknown[] = {{.name = "z", .source = give}, {0}};
    cr_assert_null(weir_session_open(plan, .bindings = unknown));
    cr_assert(strstr(weir_error(), "'z'"), "%s", weir_error());
    weir_plan_free(plan);
}

Test(session_failures, an_op_that_this_program_lacks_is_named_at_open, .timeout = 120)
{
    sdf *s = sdf_new("lacks", 1);
    sdf_actor(s, sdf_device(s), "h0/q", .kernel = "test_nothing");
    weir_plan *plan = sdf_plan(s);
    cr_assert_null(weir_session_open(plan));
    cr_assert(strstr(weir_error(), "model.c:100: h0/q: there is no op test_nothing"), "%s", weir_error());
    weir_plan_free(plan);
}
