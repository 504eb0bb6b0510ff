/* tests/actors/session/test_session.c: sessions over hand-made plans: runs, values in and out, rates, errors,
 * parameters, traces. Each plan is small enough to know by heart what must come out. */
#include "tests/actors/session/chain_plans.h"

/* ---- functions that plans call ---- */

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

Test(session, workers_spin_as_long_as_the_user_says, .timeout = 120)
{
    static const char *const budgets[] = {"0", "5.5", "always", NULL};
    struct seen seen = {0};
    weir_plan *plan = chain_plan(2, 3, 2, 1);
    for (size_t i = 0; i < sizeof budgets / sizeof *budgets; i++) {
        seen.count = 0;
        weir_session *session = weir_session_open(plan, .bindings = CHAIN_BINDINGS(&seen), .workers = 2, .spin = budgets[i]);
        cr_assert_not_null(session, "%s", weir_error());
        for (int run = 0; run < 5; run++)
            OK(weir_session_run(session, 7));
        cr_assert_eq(seen.count, 35);
        OK(weir_session_close(session));
    }
    cr_expect_null(weir_session_open(plan, .bindings = CHAIN_BINDINGS(&seen), .spin = "soon"));
    cr_expect(strstr(weir_error(), "test_session.c:49: weir_session_open: .spin is 'soon': give the microseconds that a thread spins before it sleeps (0: it sleeps "
                                   "at once), or 'always'"), "%s", weir_error());
    weir_plan_free(plan);
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
