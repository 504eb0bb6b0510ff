/* tests/actors/session/test_end.c: how sessions of one process come to their end: they are closed or cancelled while
 * others wait in them, a source has no more values, or fails. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <weir/weir.h>

#include "actors/session/session.h"
#include "tests/support/json.h"

TestSuite(end, .timeout = 60);

#define OK(call) cr_assert_eq((call), WEIR_OK, "%s", weir_error())
#define FAILS(wanted, call, part)                                                        \
    do {                                                                                 \
        weir_status got_ = (call);                                                       \
        cr_assert_eq(got_, wanted, "%d: %s", (int)got_, weir_error());                   \
        cr_assert(strstr(weir_error(), part), "'%s' does not say '%s'", weir_error(), part); \
    } while (0)

enum { WAIT_MS = 20000, ROUNDS = 20, MICRO = 3, ENDS = 7, ASKED = 40 };

static void pause_us(long us)
{
    nanosleep(&(struct timespec){0, us * 1000}, NULL);
}

static void no_report(void *ctx, const char *said)
{
    atomic_int *reports = ctx;
    (void)said;
    if (reports)
        atomic_fetch_add(reports, 1);
}

/* ---- who waits inside ---- */

/* Values pushed into x can be pulled from y. */
static weir_plan *pipe_plan(void)
{
    weir_graph *g = weir_graph_new("pipe");
    weir_tensor *x = weir_input(g, WEIR_F32, {2}, .name = "x");
    weir_fetch(weir_tanh(x), .name = "y");
    weir_plan *plan = weir_compile(g);
    cr_assert_not_null(plan, "%s", weir_error());
    weir_graph_free(g);
    return plan;
}

struct caller {
    weir_session *session;
    enum { PUSHES, PULLS, WAITS } does;
    pthread_t thread;
    weir_status status;
    char error[256];
};

static void *call(void *argument)
{
    struct caller *caller = argument;
    float value[2] = {0};
    weir_array array = {value, WEIR_F32, {1, {2}}};
    caller->status = caller->does == PUSHES  ? weir_session_push(caller->session, "x", &array, WAIT_MS)
                     : caller->does == PULLS ? weir_session_pull(caller->session, "y", &array, -1)
                                             : weir_session_wait(caller->session, -1);
    snprintf(caller->error, sizeof caller->error, "%s", weir_error());
    return NULL;
}

static void caller_start(struct caller *caller, weir_session *s, int does)
{
    *caller = (struct caller){.session = s, .does = does};
    cr_assert_eq(pthread_create(&caller->thread, NULL, call, caller), 0);
}

static void caller_expect(struct caller *caller, weir_status status, const char *part)
{
    pthread_join(caller->thread, NULL);
    cr_expect_eq(caller->status, status, "%d: %s", (int)caller->status, caller->error);
    cr_expect(strstr(caller->error, part), "'%s' does not say '%s'", caller->error, part);
}

/* A thread that closes a session must know that no thread is about to enter: waits until `count` have. */
static void await_inside(weir_session *s, uint32_t count)
{
    while (atomic_load(&s->callers.entry->inside) != count)
        pause_us(100);
}

Test(end, close_sends_away_who_waits_in_pull_and_wait)
{
    weir_plan *plan = pipe_plan();
    for (int round = 0; round < ROUNDS; round++) {
        weir_session *s = weir_session_open(plan);
        struct caller pulls, waits;
        OK(weir_session_start(s, 5)); /* nobody pushes */
        caller_start(&pulls, s, PULLS);
        caller_start(&waits, s, WAITS);
        await_inside(s, 2);
        pause_us(round % 2 ? 0 : 200 * round);
        OK(weir_session_close(s));
        caller_expect(&pulls, WEIR_E_STATE, "weir_session_pull: the session is being closed");
        caller_expect(&waits, WEIR_E_STATE, "weir_session_wait: the session is being closed");
    }
    weir_plan_free(plan);
}

Test(end, close_sends_away_who_waits_in_push)
{
    weir_plan *plan = pipe_plan();
    float value[2] = {0};
    weir_array array = {value, WEIR_F32, {1, {2}}};
    for (int round = 0; round < ROUNDS; round++) {
        weir_session *s = weir_session_open(plan);
        struct caller pushes;
        while (!weir_session_push(s, "x", &array, 0))
            continue;
        caller_start(&pushes, s, PUSHES);
        await_inside(s, 1);
        pause_us(round % 2 ? 0 : 200 * round);
        OK(weir_session_close(s));
        caller_expect(&pushes, WEIR_E_STATE, "weir_session_push: the session is being closed");
    }
    weir_plan_free(plan);
}

Test(end, who_would_wait_for_ever_at_rest_is_told_so)
{
    weir_plan *plan = pipe_plan();
    weir_session *s = weir_session_open(plan);
    float value[2] = {0};
    weir_array array = {value, WEIR_F32, {1, {2}}};
    FAILS(WEIR_E_STATE, weir_session_pull(s, "y", &array, -1), "no value for 'y', and the session is at rest");
    int room = 0;
    while (!weir_session_push(s, "x", &array, -1))
        room++;
    cr_assert(strstr(weir_error(), "no room for 'x', and the session is at rest"), "%s", weir_error());
    cr_assert_gt(room, 0);
    OK(weir_session_run(s, 1));
    OK(weir_session_pull(s, "y", &array, -1));
    FAILS(WEIR_E_STATE, weir_session_pull(s, "y", &array, -1), "at rest");
    FAILS(WEIR_E_TIMEOUT, weir_session_pull(s, "y", &array, 5), "within 5 ms"); /* somebody may begin a run */
    OK(weir_session_push(s, "x", &array, -1));
    OK(weir_session_close(s));
    weir_plan_free(plan);
}

/* One of two values comes. */
Test(end, a_puller_hears_when_the_run_ends_without_a_value_for_it)
{
    weir_plan *plan = pipe_plan();
    float value[2] = {0};
    weir_array array = {value, WEIR_F32, {1, {2}}};
    for (int round = 0; round < ROUNDS; round++) {
        weir_session *s = weir_session_open(plan);
        struct caller pulls;
        OK(weir_session_start(s, 1));
        OK(weir_session_push(s, "x", &array, WAIT_MS));
        OK(weir_session_pull(s, "y", &array, WAIT_MS));
        caller_start(&pulls, s, PULLS);
        caller_expect(&pulls, WEIR_E_STATE, "at rest");
        OK(weir_session_close(s));
    }
    weir_plan_free(plan);
}

/* ---- cancel ---- */

static void *cancel_soon(void *session)
{
    pause_us(3000);
    OK(weir_session_cancel(session));
    return NULL;
}

Test(end, cancel_ends_a_run_and_who_waits_in_it_without_a_report)
{
    weir_plan *plan = pipe_plan();
    for (int round = 0; round < ROUNDS; round++) {
        atomic_int reports = 0;
        struct caller pulls, waits;
        pthread_t thread;
        weir_session *s = weir_session_open(plan, .report = no_report, .report_ctx = &reports);
        OK(weir_session_start(s, 5));
        caller_start(&pulls, s, PULLS);
        caller_start(&waits, s, WAITS);
        await_inside(s, 2);
        cr_assert_eq(pthread_create(&thread, NULL, cancel_soon, s), 0);
        FAILS(WEIR_E_CANCELLED, weir_session_wait(s, WAIT_MS), "cancelled");
        pthread_join(thread, NULL);
        caller_expect(&pulls, WEIR_E_CANCELLED, "cancelled");
        caller_expect(&waits, WEIR_E_CANCELLED, "cancelled");
        FAILS(WEIR_E_CANCELLED, weir_session_run(s, 1), "cancelled");
        OK(weir_session_cancel(s)); /* again */
        OK(weir_session_close(s));
        cr_assert_eq(reports, 0);
    }
    weir_plan_free(plan);
}

/* ---- sources that end, or fail ---- */

struct sources {
    int64_t ends[2];     /* the step before which each ends */
    int micro;           /* and the micro-batch of it */
    weir_status status;  /* with this */
    weir_session *session;
    int64_t cancel_at;   /* a step, from 1 */
};

static weir_status give(struct sources *sources, int which, const weir_view *x, int64_t step, int micro)
{
    if (step > sources->ends[which] || (step == sources->ends[which] && micro >= sources->micro))
        return sources->status;
    for (int i = 0; i < 2; i++)
        ((float *)x->data)[i] = (float)(step + 1);
    if (sources->cancel_at && step == sources->cancel_at)
        OK(weir_session_cancel(sources->session));
    return WEIR_OK;
}

static weir_status give_a(void *ctx, const weir_view *x, int64_t step, int micro)
{
    return give(ctx, 0, x, step, micro);
}

static weir_status give_b(void *ctx, const weir_view *x, int64_t step, int micro)
{
    return give(ctx, 1, x, step, micro);
}

/* w counts its steps; y is pulled, one value for each micro-batch. */
static weir_plan *two_plan(int micro_batches)
{
    weir_graph *g = weir_graph_new("two");
    weir_tensor *a = weir_input(g, WEIR_F32, {2}, .name = "a", .micro = true, .source = give_a);
    weir_tensor *b = weir_input(g, WEIR_F32, {2}, .name = "b", .micro = true, .source = give_b);
    weir_tensor *w = weir_param(g, WEIR_F32, {2}, .name = "w");
    weir_tensor *loss = weir_mean(weir_mul(weir_add(a, b), w));
    weir_train(loss, weir_sgd(.lr = 1));
    weir_fetch(weir_add(a, b), .name = "y");
    weir_plan *plan = weir_compile(g, .micro_batches = micro_batches);
    cr_assert_not_null(plan, "%s", weir_error());
    weir_graph_free(g);
    return plan;
}

static weir_session *two_open(const weir_plan *plan, struct sources *sources, const char *trace)
{
    weir_session *s = weir_session_open(
        plan, .workers = 2, .report = no_report, .trace = trace,
        .bindings = (weir_binding[]){{.name = "a", .source = give_a, .ctx = sources},
                                     {.name = "b", .source = give_b, .ctx = sources}, {0}});
    cr_assert_not_null(s, "%s", weir_error());
    sources->session = s;
    return s;
}

static float weight(weir_session *s)
{
    float w[2];
    OK(weir_session_read(s, "w", &(weir_array){w, WEIR_F32, {1, {2}}}));
    return w[0];
}

struct puller {
    weir_session *session;
    int values;
    weir_status status;
    char error[512];
};

/* All that there is, until it is told otherwise. */
static void *pull_all(void *argument)
{
    struct puller *p = argument;
    float value[2];
    weir_array array = {value, WEIR_F32, {1, {2}}};
    while (!(p->status = weir_session_pull(p->session, "y", &array, -1))) {
        cr_assert_float_eq(value[0], 2 * (float)(p->values / MICRO + 1), 0);
        p->values++;
    }
    snprintf(p->error, sizeof p->error, "%s", weir_error());
    return NULL;
}

/* All of the steps before; of the step that was begun, what was pulled before the source came to its end. */
static void expect_values(const struct puller *puller, int micro)
{
    cr_expect(puller->values >= ENDS * MICRO && puller->values <= ENDS * MICRO + micro, "%d values", puller->values);
}

/* The weight that a session has which was asked for so many steps. */
static float weight_after(const weir_plan *plan, int64_t steps)
{
    struct sources sources = {.ends = {ASKED, ASKED}};
    struct puller puller = {0};
    pthread_t thread;
    weir_session *s = puller.session = two_open(plan, &sources, NULL);
    OK(weir_session_start(s, steps));
    cr_assert_eq(pthread_create(&thread, NULL, pull_all, &puller), 0);
    OK(weir_session_wait(s, WAIT_MS));
    pthread_join(thread, NULL);
    float w = weight(s);
    OK(weir_session_close(s));
    return w;
}

/* Either source may end first, at any micro-batch: the steps before are whole, and none is after. */
Test(end, a_source_without_more_values_ends_the_session_after_the_steps_before)
{
    weir_plan *plan = two_plan(MICRO);
    float wanted = weight_after(plan, ENDS);
    for (int round = 0; round < 2 * MICRO; round++) {
        struct sources sources = {.micro = round / 2, .status = WEIR_END};
        struct puller puller = {0};
        pthread_t thread;
        sources.ends[round % 2] = ENDS;
        sources.ends[1 - round % 2] = ENDS + round % 3;
        weir_session *s = puller.session = two_open(plan, &sources, NULL);
        OK(weir_session_start(s, ASKED));
        cr_assert_eq(pthread_create(&thread, NULL, pull_all, &puller), 0);
        FAILS(WEIR_E_END, weir_session_wait(s, WAIT_MS), "has come to its end");
        pthread_join(thread, NULL);
        cr_expect_eq(puller.status, WEIR_E_END, "%d: %s", (int)puller.status, puller.error);
        expect_values(&puller, sources.micro);
        cr_expect_eq(weir_session_step(s), ENDS);
        cr_expect_float_eq(weight(s), wanted, 0);
        FAILS(WEIR_E_END, weir_session_run(s, 1), "has come to its end");
        cr_expect_eq(weir_session_step(s), ENDS);
        OK(weir_session_close(s));
    }
    weir_plan_free(plan);
}

Test(end, a_run_up_to_the_last_step_is_a_whole_one)
{
    weir_plan *plan = two_plan(1);
    struct sources sources = {.ends = {2, 2}, .status = WEIR_END};
    float value[2];
    weir_array array = {value, WEIR_F32, {1, {2}}};
    weir_session *s = two_open(plan, &sources, NULL);
    for (int i = 0; i < 2; i++) {
        OK(weir_session_run(s, 1));
        OK(weir_session_pull(s, "y", &array, WAIT_MS));
    }
    FAILS(WEIR_E_END, weir_session_run(s, 1), "there is no value for step 2");
    FAILS(WEIR_E_END, weir_session_pull(s, "y", &array, -1), "there is no value for step 2");
    cr_expect_eq(weir_session_step(s), 2);
    OK(weir_session_close(s));
    weir_plan_free(plan);
}

/* In many rounds: who pulls may look while the session is failing. */
Test(end, a_source_that_fails_takes_no_finished_step_with_it)
{
    weir_plan *plan = two_plan(MICRO);
    for (int round = 0; round < ROUNDS; round++) {
        struct sources sources = {.ends = {ENDS, ENDS + 1}, .micro = 1, .status = WEIR_E_IO};
        struct puller puller = {0};
        pthread_t thread;
        weir_session *s = puller.session = two_open(plan, &sources, NULL);
        OK(weir_session_start(s, ASKED));
        cr_assert_eq(pthread_create(&thread, NULL, pull_all, &puller), 0);
        FAILS(WEIR_E_IO, weir_session_wait(s, WAIT_MS), "a (source) failed on cpu:0 in step 7");
        pthread_join(thread, NULL);
        cr_expect_eq(puller.status, WEIR_E_IO, "%d: %s", (int)puller.status, puller.error);
        expect_values(&puller, sources.micro);
        cr_expect_eq(weir_session_step(s), ENDS);
        FAILS(WEIR_E_IO, weir_session_run(s, 1), "a (source) failed on cpu:0 in step 7");
        OK(weir_session_close(s));
    }
    weir_plan_free(plan);
}

/* ---- traces ---- */

static void expect_trace(weir_plan *plan, struct sources sources, weir_status status)
{
    char path[] = "/tmp/weir-end-XXXXXX";
    struct puller puller = {0};
    pthread_t thread;
    cr_assert_geq(mkstemp(path), 0);
    weir_session *s = puller.session = two_open(plan, &sources, path);
    OK(weir_session_start(s, ASKED));
    cr_assert_eq(pthread_create(&thread, NULL, pull_all, &puller), 0);
    cr_expect_eq(weir_session_wait(s, WAIT_MS), status, "%s", weir_error());
    pthread_join(thread, NULL);
    OK(weir_session_close(s));
    char *text = json_read(path);
    cr_expect(json_valid(text) && json_count(text, "\"ph\": \"X\"") > 0);
    free(text);
    remove(path);
}

Test(end, leaves_a_trace_that_is_whole_however_it_came)
{
    weir_plan *plan = two_plan(MICRO);
    expect_trace(plan, (struct sources){.ends = {ENDS, ENDS}, .status = WEIR_END}, WEIR_E_END);
    expect_trace(plan, (struct sources){.ends = {ENDS, ENDS}, .status = WEIR_E_IO}, WEIR_E_IO);
    expect_trace(plan, (struct sources){.ends = {ASKED, ASKED}, .cancel_at = ENDS}, WEIR_E_CANCELLED);
    weir_plan_free(plan);
}
