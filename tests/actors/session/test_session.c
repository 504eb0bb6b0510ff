/* tests/actors/session/test_session.c: sessions over hand-made plans: runs, values in and out, rates, errors,
 * parameters, traces. Each plan is small enough to know by heart what must come out. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <weir/session.h>

#include "tests/support/json.h"
#include "tests/support/ops.h"
#include "tests/support/sdf.h"

#define OK(call) cr_assert_eq((call), WEIR_OK, "%s", weir_error())
#define FAILS(status, call, part)                                                                \
    do {                                                                                         \
        cr_assert_eq((call), status, "%s", weir_error());                                        \
        cr_assert(strstr(weir_error(), part), "'%s' does not say '%s'", weir_error(), part);     \
    } while (0)

static weir_plan *checked(weir_plan *plan)
{
    cr_assert_eq(plan_validate(plan), WEIR_OK, "%s", weir_error());
    return plan;
}

/* ---- functions that plans call ---- */

/* What a sink was given, in order. */
struct seen {
    float value[4096];
    int64_t step[4096];
    int micro[4096];
    int count;
};

static weir_status see(void *ctx, const weir_view *value, int64_t step, int micro)
{
    struct seen *seen = ctx;
    cr_assert_lt(seen->count, 4096);
    seen->value[seen->count] = *(const float *)value->data;
    seen->step[seen->count] = step;
    seen->micro[seen->count++] = micro;
    return WEIR_OK;
}

/* 10 * step + micro in every element. */
static weir_status give(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    (void)ctx;
    for (int64_t i = 0; i < dst->shape.dim[0]; i++)
        ((float *)dst->data)[i] = (float)(10 * step + micro);
    return WEIR_OK;
}

#define SOURCE .kernel = "source", .host_kind = 1 + PLAN_SOURCE
#define SINK .kernel = "sink", .host_kind = 1 + PLAN_SINK
#define PUSH .host_kind = 1 + PLAN_PUSH
#define PULL .host_kind = 1 + PLAN_PULL

/* in -> stages that add 1 -> out, over so many devices. */
static sdf *chain_begin(uint32_t devices, uint32_t *queues)
{
    test_ops();
    sdf *s = sdf_new("chain", 1);
    for (uint32_t i = 0; i < devices; i++)
        queues[i] = sdf_device(s);
    return s;
}

static weir_plan *chain_plan(uint32_t devices, uint32_t stages, uint32_t slots, uint32_t items)
{
    uint32_t queues[8];
    sdf *s = chain_begin(devices, queues);
    uint32_t last = sdf_actor(s, queues[0], "x", SOURCE);
    uint32_t regst = sdf_regst(s, last, .slots = slots, .items = items);
    for (uint32_t i = 0; i < stages; i++) {
        last = sdf_actor(s, queues[i % devices], "stage", .kernel = "test_sum");
        sdf_port(s, last, regst);
        regst = sdf_regst(s, last, .slots = slots, .items = items);
    }
    sdf_port(s, sdf_actor(s, queues[devices - 1], "y", SINK), regst);
    return checked(sdf_plan(s));
}

#define CHAIN_BINDINGS(seen) \
    (weir_binding[]){{.name = "x", .source = give}, {.name = "y", .sink = see, .ctx = (seen)}, {0}}

/* ---- runs ---- */

Test(session, runs_a_chain_and_delivers_every_value_in_order, .timeout = 120)
{
    for (uint32_t slots = 1; slots <= 3; slots++) {
        struct seen seen = {0};
        weir_plan *plan = chain_plan(4, 9, slots, 5);
        for (int workers = 1; workers <= 4; workers++) {
            seen.count = 0;
            weir_session *session =
                weir_session_open(plan, .workers = workers, .bindings = CHAIN_BINDINGS(&seen));
            cr_assert_not_null(session, "%s", weir_error());
            OK(weir_session_run(session, 100));
            cr_assert_eq(seen.count, 100);
            for (int i = 0; i < 100; i++) {
                cr_assert_float_eq(seen.value[i], 10 * i + 9, 0, "slots %u, workers %d, step %d: %g", slots, workers, i,
                                   seen.value[i]);
                cr_assert_eq(seen.step[i], i);
            }
            OK(weir_session_close(session));
        }
        weir_plan_free(plan);
    }
}

Test(session, a_run_after_a_run_continues, .timeout = 120)
{
    struct seen seen = {0};
    weir_plan *plan = chain_plan(2, 3, 2, 1);
    weir_session *session = weir_session_open(plan, .bindings = CHAIN_BINDINGS(&seen), .first_step = 1000);
    for (int run = 0; run < 20; run++)
        OK(weir_session_run(session, 1 + run % 3));
    weir_session_stats stats;
    weir_session_get_stats(session, &stats);
    cr_assert_eq(stats.steps, seen.count);
    for (int i = 0; i < seen.count; i++)
        cr_assert_eq(seen.step[i], 1000 + i);
    OK(weir_session_close(session));
    weir_plan_free(plan);
}

Test(session, two_are_open_at_once_and_do_not_mix, .timeout = 120)
{
    struct seen first = {0}, second = {0};
    weir_plan *plan = chain_plan(2, 4, 2, 3);
    weir_session *a = weir_session_open(plan, .bindings = CHAIN_BINDINGS(&first));
    weir_session *b = weir_session_open(plan, .bindings = CHAIN_BINDINGS(&second), .first_step = 500);
    OK(weir_session_start(a, 200));
    OK(weir_session_start(b, 300));
    OK(weir_session_wait(a, 10000));
    OK(weir_session_wait(b, 10000));
    cr_assert_eq(first.count, 200);
    cr_assert_eq(second.count, 300);
    cr_assert_float_eq(second.value[299], 10 * 799 + 4, 0);
    OK(weir_session_close(a));
    OK(weir_session_close(b));
    weir_plan_free(plan);
}

Test(session, opens_and_closes_again_and_again, .timeout = 120)
{
    weir_plan *plan = chain_plan(2, 2, 1, 1);
    for (int i = 0; i < 30; i++) {
        struct seen seen = {0};
        weir_session *session = weir_session_open(plan, .bindings = CHAIN_BINDINGS(&seen));
        if (i % 3)
            OK(weir_session_run(session, i % 3));
        cr_assert_eq(seen.count, i % 3);
        OK(weir_session_close(session));
    }
    OK(weir_session_close(NULL));
    weir_plan_free(plan);
}

/* More edges to an actor, and more slots to a register, than 16 bits count. */
Test(session, an_actor_has_any_number_of_ends, .timeout = 60)
{
    enum { ENDS = 70000, STEPS = 3 };
    test_ops();
    sdf *s = sdf_new("wide", 1);
    uint32_t left = sdf_device(s), right = sdf_device(s);
    uint32_t from = sdf_actor(s, left, "from", .kernel = "test_none");
    uint32_t to = sdf_actor(s, right, "to", .kernel = "test_none");
    uint32_t back = sdf_regst(s, to, .slots = ENDS, .initial = ENDS);
    for (int i = 0; i < ENDS; i++)
        sdf_port(s, to, sdf_regst(s, from, .slots = 2));
    sdf_port(s, from, back);
    weir_plan *plan = checked(sdf_plan(s));
    weir_session *session = weir_session_open(plan, .workers = 2);
    cr_assert_not_null(session, "%s", weir_error());
    OK(weir_session_run(session, STEPS));
    weir_session_stats stats;
    weir_session_get_stats(session, &stats);
    cr_assert_eq(stats.queue[0].firings + stats.queue[1].firings, 2 * STEPS);
    OK(weir_session_close(session));
    weir_plan_free(plan);
}

/* A worker that always has something to fire, and to which nothing is sent, still hears that it is to end. */
Test(session, a_busy_worker_obeys, .timeout = 120)
{
    test_ops();
    sdf *s = sdf_new("busy", 1);
    sdf_actor(s, sdf_device(s), "always", .kernel = "test_none");
    weir_plan *plan = checked(sdf_plan(s));
    for (int i = 0; i < 100; i++) {
        weir_session *session = weir_session_open(plan, .workers = 1);
        cr_assert_not_null(session, "%s", weir_error());
        OK(weir_session_start(session, INT64_C(1) << 40));
        OK(weir_session_close(session));
    }
    weir_plan_free(plan);
}

Test(session, refuses_what_does_not_fit_its_state, .timeout = 120)
{
    struct seen seen = {0};
    weir_plan *plan = chain_plan(1, 1, 1, 1);
    cr_assert_null(weir_session_open(NULL));
    cr_assert_null(weir_session_open(plan, .workers = -1, .bindings = CHAIN_BINDINGS(&seen)));
    weir_session *session = weir_session_open(plan, .bindings = CHAIN_BINDINGS(&seen));
    FAILS(WEIR_E_ARGUMENT, weir_session_start(session, 0), "0 steps");
    FAILS(WEIR_E_ARGUMENT, weir_session_start(session, -5), "-5 steps");
    OK(weir_session_wait(session, -1));
    OK(weir_session_close(session));
    weir_plan_free(plan);
}

/* ---- rates ---- */

/* A source gives M micro-batches; "acc" sums M of them into one slot; "grow" reads the sum once a step; a constant is
 * added to each. */
Test(session, micro_batches_accumulate_into_one_slot, .timeout = 120)
{
    enum { M = 4 };
    struct seen seen = {0};
    test_ops();
    sdf *s = sdf_new("rates", M);
    uint32_t q = sdf_device(s), q2 = sdf_device(s);
    uint32_t x = sdf_actor(s, q, "x", SOURCE, .fires = M);
    uint32_t acc = sdf_actor(s, q2, "acc", .kernel = "test_sum", .fires = M, .accumulate = true);
    uint32_t y = sdf_actor(s, q, "y", SINK);
    uint32_t constant =
        sdf_regst(s, SDF_NOBODY, .queue = q, .items = 3, .initial = 1, .init = WEIR_INIT_VALUE, .a = 100);
    sdf_port(s, acc, sdf_regst(s, x, .slots = 2, .items = 3));
    sdf_port(s, acc, constant, .hold = M);
    sdf_port(s, y, sdf_regst(s, acc, .fill = M, .slots = 2, .items = 3));
    weir_plan *plan = checked(sdf_plan(s));
    for (int workers = 1; workers <= 2; workers++) {
        seen.count = 0;
        weir_session *session = weir_session_open(plan, .workers = workers, .bindings = CHAIN_BINDINGS(&seen));
        OK(weir_session_run(session, 50));
        cr_assert_eq(seen.count, 50);
        for (int i = 0; i < 50; i++)
            cr_assert_float_eq(seen.value[i], M * (10 * i + 101) + 0 + 1 + 2 + 3, 0, "step %d: %g", i, seen.value[i]);
        OK(weir_session_close(session));
    }
    weir_plan_free(plan);
}

/* A parameter: one slot, starts full, held by its reader for M firings, then changed in place by "update". */
static weir_plan *parameter_plan(uint32_t micro)
{
    test_ops();
    sdf *s = sdf_new("parameter", micro);
    uint32_t q = sdf_device(s), q2 = sdf_device(s);
    uint32_t update = sdf_actor(s, q, "update", .kernel = "test_sum");
    uint32_t use = sdf_actor(s, q2, "use", .kernel = "test_sum", .fires = micro);
    uint32_t y = sdf_actor(s, q2, "y", SINK, .fires = micro);
    uint32_t w = sdf_regst(s, update, .items = 2, .initial = 1, .init = WEIR_INIT_VALUE, .a = 7, .param = "w");
    sdf_port(s, use, w, .hold = micro);
    sdf_port(s, y, sdf_regst(s, use, .items = 2));
    return checked(sdf_plan(s));
}

#define SEE_Y(seen) (weir_binding[]){{.name = "y", .sink = see, .ctx = (seen)}, {0}}

Test(session, a_parameter_is_held_by_its_readers_and_then_updated_in_place, .timeout = 120)
{
    struct seen seen = {0};
    weir_plan *plan = parameter_plan(3);
    weir_session *session = weir_session_open(plan, .bindings = SEE_Y(&seen));
    OK(weir_session_run(session, 10));
    cr_assert_eq(seen.count, 30);
    for (int i = 0; i < 30; i++) {
        /* step 0 reads the initial value, then what update wrote: 1 */
        cr_assert_float_eq(seen.value[i], i < 3 ? 8 : 2, 0);
        cr_assert_eq(seen.step[i], i / 3);
        cr_assert_eq(seen.micro[i], i % 3);
    }
    OK(weir_session_close(session));
    weir_plan_free(plan);
}

Test(session, parameters_are_read_and_written_at_rest, .timeout = 120)
{
    struct seen seen = {0};
    float value[2] = {0, 0};
    weir_array array = {value, WEIR_F32, {1, {2}}};
    weir_plan *plan = parameter_plan(2);
    weir_session *session = weir_session_open(plan, .bindings = SEE_Y(&seen));
    OK(weir_session_read(session, "w", &array));
    cr_assert_float_eq(value[1], 7, 0);
    value[0] = value[1] = 41;
    OK(weir_session_write(session, "w", &array));
    OK(weir_session_run(session, 1));
    cr_assert_float_eq(seen.value[0], 42, 0);
    OK(weir_session_read(session, "w", &array));
    cr_assert_float_eq(value[0], 1, 0);
    FAILS(WEIR_E_ARGUMENT, weir_session_read(session, "v", &array), "'v'");
    array.shape.dim[0] = 3;
    FAILS(WEIR_E_ARGUMENT, weir_session_write(session, "w", &array), "[3]");
    OK(weir_session_close(session));
    weir_plan_free(plan);
}

Test(session, a_sharded_parameter_starts_and_reads_like_a_whole_one, .timeout = 120)
{
    enum { N = 11 };
    const uint32_t cut[] = {0, 4, 8, N};
    sdf *s = sdf_new("shards", 1);
    uint32_t q[3];
    for (int i = 0; i < 3; i++) {
        q[i] = sdf_device(s);
        sdf_regst(s, SDF_NOBODY, .queue = q[i], .initial = 1, .items = cut[i + 1] - cut[i], .start = cut[i],
                  .global = N, .init = WEIR_INIT_NORMAL, .a = 0.5, .param = "w");
    }
    weir_plan *plan = sdf_plan(s);
    for (uint32_t i = 0; i < 3; i++)
        plan->inits[i].key = 99;
    checked(plan);
    weir_session *session = weir_session_open(plan);
    float value[N], again[N];
    OK(weir_session_read(session, "w", &(weir_array){value, WEIR_F32, {1, {N}}}));
    for (uint64_t i = 0; i < N; i++) {
        cr_assert_float_eq(value[i], (float)(0.5 * weir_random_normal(99, i)), 0);
        value[i] = (float)i;
    }
    OK(weir_session_write(session, "w", &(weir_array){value, WEIR_F32, {1, {N}}}));
    OK(weir_session_read(session, "w", &(weir_array){again, WEIR_F32, {1, {N}}}));
    cr_assert_arr_eq(value, again, sizeof(value));
    OK(weir_session_close(session));
    weir_plan_free(plan);
}

/* ---- push and pull ---- */

static weir_plan *pipe_plan(uint32_t slots, uint32_t stages)
{
    uint32_t queues[2];
    sdf *s = chain_begin(2, queues);
    uint32_t outside = sdf_outside(s, queues[0]);
    uint32_t x = sdf_actor(s, outside, "x", PUSH);
    uint32_t regst = sdf_regst(s, x, .slots = slots, .items = 4);
    for (uint32_t i = 0; i < stages; i++) {
        uint32_t stage = sdf_actor(s, queues[i % 2], "stage", .kernel = "test_sum");
        sdf_port(s, stage, regst);
        regst = sdf_regst(s, stage, .slots = slots, .items = 4);
    }
    sdf_port(s, sdf_actor(s, outside, "y", PULL), regst);
    return checked(sdf_plan(s));
}

static weir_array four(float *value)
{
    return (weir_array){value, WEIR_F32, {1, {4}}};
}

Test(session, takes_what_is_pushed_and_gives_it_to_pull, .timeout = 120)
{
    weir_plan *plan = pipe_plan(2, 3);
    weir_session *session = weir_session_open(plan);
    OK(weir_session_start(session, 100));
    for (int i = 0; i < 100; i++) {
        float in[4] = {(float)i, 1, 2, 3}, out[4];
        weir_array from = four(in), to = four(out);
        OK(weir_session_push(session, "x", &from, 5000));
        OK(weir_session_pull(session, "y", &to, 5000));
        cr_assert_float_eq(out[0], i + 3, 0);
        cr_assert_float_eq(out[3], 6, 0);
    }
    OK(weir_session_wait(session, 5000));
    OK(weir_session_close(session));
    weir_plan_free(plan);
}

Test(session, pushes_before_start_wait_in_the_slots_that_the_plan_has, .timeout = 120)
{
    weir_plan *plan = pipe_plan(3, 1);
    weir_session *session = weir_session_open(plan);
    float value[4] = {0};
    weir_array array = four(value);
    for (int i = 0; i < 3; i++) {
        value[0] = (float)i;
        OK(weir_session_push(session, "x", &array, 0));
    }
    FAILS(WEIR_E_TIMEOUT, weir_session_push(session, "x", &array, 10), "no room for 'x'");
    FAILS(WEIR_E_TIMEOUT, weir_session_pull(session, "y", &array, 10), "no value for 'y'");
    OK(weir_session_run(session, 2));
    for (int i = 0; i < 2; i++) {
        OK(weir_session_pull(session, "y", &array, 1000));
        cr_assert_float_eq(value[0], i + 1, 0);
    }
    FAILS(WEIR_E_TIMEOUT, weir_session_pull(session, "y", &array, 0), "no value"); /* two steps, two values */
    OK(weir_session_run(session, 1));
    OK(weir_session_pull(session, "y", &array, 1000));
    cr_assert_float_eq(value[0], 3, 0);
    OK(weir_session_close(session));
    weir_plan_free(plan);
}

Test(session, a_wrong_push_is_refused_with_both_shapes_and_harms_nothing, .timeout = 120)
{
    weir_plan *plan = pipe_plan(1, 1);
    weir_session *session = weir_session_open(plan);
    float value[8] = {5};
    weir_array wrong = {value, WEIR_F32, {2, {2, 4}}};
    FAILS(WEIR_E_ARGUMENT, weir_session_push(session, "x", &wrong, 0), "f32 [2, 4]");
    FAILS(WEIR_E_ARGUMENT, weir_session_push(session, "x", &wrong, 0), "f32 [4]");
    FAILS(WEIR_E_ARGUMENT, weir_session_push(session, "x", &wrong, 0), "model.c:100");
    wrong = (weir_array){value, WEIR_I32, {1, {4}}};
    FAILS(WEIR_E_ARGUMENT, weir_session_push(session, "x", &wrong, 0), "i32 [4]");
    wrong.shape.rank = 100;
    FAILS(WEIR_E_ARGUMENT, weir_session_push(session, "x", &wrong, 0), "wrong rank");
    FAILS(WEIR_E_ARGUMENT, weir_session_push(session, "y", &wrong, 0), "there is 'x'");
    FAILS(WEIR_E_ARGUMENT, weir_session_pull(session, "x", &wrong, 0), "there is 'y'");
    FAILS(WEIR_E_ARGUMENT, weir_session_push(session, "x", NULL, 0), "no array");
    weir_array right = four(value);
    OK(weir_session_push(session, "x", &right, 0));
    OK(weir_session_run(session, 1));
    OK(weir_session_pull(session, "y", &right, 0));
    cr_assert_float_eq(value[0], 6, 0);
    OK(weir_session_close(session));
    weir_plan_free(plan);
}

struct feeder {
    weir_session *session;
    int count;
};

static void *feed(void *argument)
{
    struct feeder *feeder = argument;
    for (int i = 0; i < feeder->count; i++) {
        float value[4] = {(float)i};
        weir_array array = four(value);
        cr_assert_eq(weir_session_push(feeder->session, "x", &array, -1), WEIR_OK);
    }
    return NULL;
}

Test(session, one_thread_pushes_while_another_pulls, .timeout = 120)
{
    enum { COUNT = 5000 };
    weir_plan *plan = pipe_plan(4, 5);
    weir_session *session = weir_session_open(plan);
    struct feeder feeder = {session, COUNT};
    pthread_t thread;
    OK(weir_session_start(session, COUNT));
    cr_assert_eq(pthread_create(&thread, NULL, feed, &feeder), 0);
    for (int i = 0; i < COUNT; i++) {
        float value[4];
        weir_array array = four(value);
        OK(weir_session_pull(session, "y", &array, 10000));
        cr_assert_float_eq(value[0], i + 5, 0);
    }
    pthread_join(thread, NULL);
    OK(weir_session_wait(session, 1000));
    OK(weir_session_close(session));
    weir_plan_free(plan);
}

/* ---- failures ---- */

Test(session, a_stalled_run_times_out_and_can_be_closed, .timeout = 120)
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

/* What a failed run reports beside its error (tests/actors/watch/test_watch.c looks at it). */
static void pass_over(void *ctx, const char *text)
{
    (void)ctx, (void)text;
}

static const weir_binding give_x[] = {{.name = "x", .source = give}, {0}};

Test(session, a_failing_kernel_stops_everything_with_one_report, .timeout = 120)
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
Test(session, what_has_arrived_can_be_pulled_after_a_failure, .timeout = 120)
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

Test(session, what_has_arrived_is_not_pulled_after_a_cancel, .timeout = 120)
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
Test(session, fails_with_the_status_of_the_function_and_counts_the_steps_before, .timeout = 120)
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

Test(session, a_source_that_gives_up_ends_the_run, .timeout = 120)
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

Test(session, no_function_of_the_user_runs_after_a_failed_run, .timeout = 120)
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

Test(session, a_host_without_a_function_is_named_at_open, .timeout = 120)
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

Test(session, an_op_that_this_program_lacks_is_named_at_open, .timeout = 120)
{
    sdf *s = sdf_new("lacks", 1);
    sdf_actor(s, sdf_device(s), "h0/q", .kernel = "test_nothing");
    weir_plan *plan = sdf_plan(s);
    cr_assert_null(weir_session_open(plan));
    cr_assert(strstr(weir_error(), "model.c:100: h0/q: there is no op test_nothing"), "%s", weir_error());
    weir_plan_free(plan);
}

/* ---- memory, statistics, trace ---- */

Test(session, allocates_the_planned_bytes_and_tells_what_it_did, .timeout = 120)
{
    struct seen seen = {0};
    weir_plan *plan = chain_plan(3, 5, 2, 1000);
    weir_session *session = weir_session_open(plan, .workers = 2, .bindings = CHAIN_BINDINGS(&seen));
    OK(weir_session_run(session, 1000));
    weir_session_stats stats;
    weir_session_get_stats(session, &stats);
    cr_assert_eq(stats.planned_bytes, weir_plan_bytes(plan, -1));
    cr_assert_eq(stats.arena_bytes, stats.planned_bytes);
    cr_assert_eq(stats.steps, 1000);
    cr_assert_eq(stats.workers, 2);
    cr_assert_eq(stats.queue_count, 3);
    cr_assert_gt(stats.seconds, 0);
    int64_t firings = 0;
    for (int q = 0; q < 3; q++) {
        firings += stats.queue[q].firings;
        cr_assert_gt(stats.queue[q].busy, 0);
        cr_assert_leq(stats.queue[q].busy, 1);
    }
    cr_assert_eq(firings, 7 * 1000);
    cr_assert_str_eq(stats.queue[2].name, "cpu:2");
    OK(weir_session_close(session));
    weir_plan_free(plan);
}

Test(session, writes_a_trace_that_is_json_with_one_track_per_queue, .timeout = 120)
{
    struct seen seen = {0};
    uint32_t queues[2];
    char path[] = "/tmp/weir_trace_XXXXXX";
    close(mkstemp(path));
    sdf *s = chain_begin(2, queues);
    uint32_t x = sdf_actor(s, queues[0], "x", SOURCE);
    uint32_t odd = sdf_actor(s, queues[1], "a \"b\"\\\n\x01", .kernel = "test_sum");
    sdf_port(s, odd, sdf_regst(s, x, .items = 2));
    sdf_port(s, sdf_actor(s, queues[1], "y", SINK), sdf_regst(s, odd, .items = 2));
    weir_plan *plan = checked(sdf_plan(s));
    weir_session *session =
        weir_session_open(plan, .workers = 2, .bindings = CHAIN_BINDINGS(&seen), .trace = path, .trace_events = 50);
    OK(weir_session_run(session, 200));
    OK(weir_session_close(session));

    char *text = json_read(path);
    cr_assert(json_valid(text), "the trace is not JSON:\n%.2000s", text);
    cr_assert_eq(json_count(text, "\"ph\": \"X\""), 100, "the last 50 of each worker");
    cr_assert_eq(json_count(text, "\"thread_name\""), 2);
    cr_assert(strstr(text, "\"a \\\"b\\\"\\\\\\u000a\\u0001\""));
    cr_assert(strstr(text, "\"step\": 199"));
    free(text);
    remove(path);
    weir_plan_free(plan);
}

Test(session, a_trace_that_cannot_be_written_is_refused_at_open, .timeout = 120)
{
    struct seen seen = {0};
    weir_plan *plan = chain_plan(1, 1, 1, 1);
    cr_assert_null(weir_session_open(plan, .bindings = CHAIN_BINDINGS(&seen), .trace = "/no/such/folder/trace.json"));
    cr_assert(strstr(weir_error(), "/no/such/folder/trace.json"), "%s", weir_error());
    weir_plan_free(plan);
}

/* Workspace, states and keys reach the kernel. */
static weir_status look(const weir_kernel_args *args)
{
    int64_t *calls = args->host;
    cr_assert_eq((uintptr_t)args->workspace % 64, 0);
    cr_assert_eq(args->workspace_bytes, 100);
    memset(args->workspace, 0xee, args->workspace_bytes);
    cr_assert_eq(args->state_count, 2);
    float *state = args->state[1].data;
    cr_assert_float_eq(*state, (float)*calls, 0, "a state is kept from firing to firing");
    *state += 1;
    cr_assert_eq(args->firing, (*calls)++);
    cr_assert_eq(args->step, args->firing / 2);
    cr_assert_eq(args->micro, args->firing % 2);
    cr_assert_not(args->accumulate);
    return WEIR_OK;
}

Test(session, a_call_gets_its_context_state_and_workspace, .timeout = 120)
{
    int64_t calls = 0;
    sdf *s = sdf_new("call", 2);
    uint32_t a = sdf_actor(s, sdf_device(s), "look", .fires = 2, .kernel = "call", .host_kind = 1 + PLAN_CALL,
                           .states = 2, .workspace = 100);
    sdf_regst(s, a, .items = 3, .slots = 2);
    weir_plan *plan = sdf_plan(s);
    weir_session *session = weir_session_open(plan, .bindings = (weir_binding[]){
                                                        {.name = "look", .call = look, .ctx = &calls}, {0}});
    cr_assert_not_null(session, "%s", weir_error());
    OK(weir_session_run(session, 40));
    cr_assert_eq(calls, 80);
    OK(weir_session_close(session));
    weir_plan_free(plan);
}
