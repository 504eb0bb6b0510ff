/* tests/actors/watch/test_watch.c: what a session says when nothing happens: each kind of culprit is brought about on
 * purpose, and the report has to name it; and what it says after a failure. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <weir/session.h>

#include "actors/session/session.h"
#include "tests/support/ops.h"
#include "tests/support/sdf.h"

#define STALL_S 0.05
#define LONG_MS 20000 /* what a test waits for a report that has to come */

#define OK(call) cr_assert_eq((call), WEIR_OK, "%s", weir_error())
#define SAYS(told, part) cr_assert(strstr((told)->text, part), "'%s' does not say '%s'", (told)->text, part)
#define SAYS_NOT(told, part) cr_assert(!strstr((told)->text, part), "'%s' says '%s'", (told)->text, part)

#define SOURCE .kernel = "source", .host_kind = 1 + PLAN_SOURCE
#define SINK .kernel = "sink", .host_kind = 1 + PLAN_SINK
#define CALL .kernel = "call", .host_kind = 1 + PLAN_CALL
#define PUSH .host_kind = 1 + PLAN_PUSH
#define PULL .host_kind = 1 + PLAN_PULL

/* ---- a program's report function ---- */

struct told {
    pthread_mutex_t lock;
    char last[REPORT_BYTES]; /* under the lock */
    char text[REPORT_BYTES]; /* the report that the test looks at */
    atomic_int count;
    sem_t came;
};

static void tell(void *ctx, const char *text)
{
    struct told *told = ctx;
    pthread_mutex_lock(&told->lock);
    snprintf(told->last, sizeof(told->last), "%s", text);
    pthread_mutex_unlock(&told->lock);
    atomic_fetch_add(&told->count, 1);
    sem_post(&told->came);
}

static struct told *told_new(void)
{
    struct told *told = calloc(1, sizeof(*told));
    cr_assert_not_null(told);
    cr_assert_eq(sem_init(&told->came, 0, 0), 0);
    cr_assert_eq(pthread_mutex_init(&told->lock, NULL), 0);
    return told;
}

static void told_free(struct told *told)
{
    pthread_mutex_destroy(&told->lock);
    sem_destroy(&told->came);
    free(told);
}

/* Waits for a report that says this; the test's own timeout is the limit. On a busy machine others may come first: a
 * thread that gets no core for so long is a stall, too. */
static void await_report(struct told *told, const char *part)
{
    do {
        while (sem_wait(&told->came)) {
        }
        pthread_mutex_lock(&told->lock);
        memcpy(told->text, told->last, sizeof(told->text));
        pthread_mutex_unlock(&told->lock);
    } while (!strstr(told->text, part));
}

#define WATCHED(told) .stall_s = STALL_S, .report = tell, .report_ctx = (told)

/* ---- plans ---- */

static weir_plan *checked(weir_plan *plan)
{
    cr_assert_eq(plan_validate(plan), WEIR_OK, "%s", weir_error());
    return plan;
}

/* x -> a -> b -> y on two devices; x and y are pushed and pulled. */
static weir_plan *pipe_plan(void)
{
    test_ops();
    sdf *s = sdf_new("pipe", 1);
    uint32_t q = sdf_device(s), q2 = sdf_device(s), outside = sdf_outside(s, q);
    uint32_t x = sdf_actor(s, outside, "x", PUSH);
    uint32_t a = sdf_actor(s, q, "a", .kernel = "test_sum"), b = sdf_actor(s, q2, "b", .kernel = "test_sum");
    sdf_port(s, a, sdf_regst(s, x, .items = 1));
    sdf_port(s, b, sdf_regst(s, a, .items = 1));
    sdf_port(s, sdf_actor(s, outside, "y", PULL), sdf_regst(s, b, .items = 1, .slots = 2));
    return checked(sdf_plan(s));
}

/* x -> h0/q -> y: a source, a call and a sink, the call on a device of its own. */
static weir_plan *call_plan(uint32_t slots)
{
    sdf *s = sdf_new("call", 1);
    uint32_t q = sdf_device(s), q2 = sdf_device(s);
    uint32_t x = sdf_actor(s, q, "x", SOURCE), call = sdf_actor(s, q2, "h0/q", CALL);
    sdf_port(s, call, sdf_regst(s, x, .items = 1, .slots = slots));
    sdf_port(s, sdf_actor(s, q, "y", SINK), sdf_regst(s, call, .items = 1, .slots = slots));
    return checked(sdf_plan(s));
}

static weir_status give(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    (void)ctx, (void)dst, (void)step, (void)micro;
    return WEIR_OK;
}

static weir_status take(void *ctx, const weir_view *value, int64_t step, int micro)
{
    (void)ctx, (void)value, (void)step, (void)micro;
    return WEIR_OK;
}

/* Waits in step 3 until it is let go. */
static weir_status call_blocks(const weir_kernel_args *args)
{
    if (args->step == 3)
        while (sem_wait(args->host)) {
        }
    return WEIR_OK;
}

static weir_status source_blocks(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    (void)dst, (void)micro;
    if (step == 3)
        while (sem_wait(ctx)) {
        }
    return WEIR_OK;
}

static weir_array one(float *value)
{
    return (weir_array){value, WEIR_F32, {1, {1}}};
}

static void push(weir_session *session)
{
    float value = 0;
    weir_array array = one(&value);
    OK(weir_session_push(session, "x", &array, LONG_MS));
}

static void pull(weir_session *session)
{
    float value = 0;
    weir_array array = one(&value);
    OK(weir_session_pull(session, "y", &array, LONG_MS));
}

/* ---- stalls ---- */

Test(watch, names_the_input_that_nobody_pushes, .timeout = 120)
{
    struct told *told = told_new();
    weir_plan *plan = pipe_plan();
    for (int workers = 1; workers <= 2; workers++) {
        weir_session *session = weir_session_open(plan, WATCHED(told), .workers = workers, .first_step = 40);
        OK(weir_session_start(session, 5));
        for (int i = 0; i < 2; i++) {
            push(session);
            pull(session);
        }
        await_report(told, " s in step 42 of a run that ends after step 44:\n");
        SAYS(told, "nothing has fired for ");
        SAYS(told, "\n  b (cpu:1) waits for a (cpu:0), which has not written its input for step 42"
                   "\n  a (cpu:0) waits for x (cpu:0), which has not written its input for step 42"
                   "\n  input \"x\" (model.c:100) is empty: nothing has been pushed for step 42\n");
        SAYS_NOT(told, "rank");
        OK(weir_session_close(session));
    }
    weir_plan_free(plan);
    told_free(told);
}

Test(watch, names_the_fetch_that_nobody_pulls, .timeout = 120)
{
    struct told *told = told_new();
    weir_plan *plan = pipe_plan();
    weir_session *session = weir_session_open(plan, WATCHED(told), .workers = 2);
    OK(weir_session_start(session, 9));
    for (int i = 0; i < 4; i++) /* as many as there are slots */
        push(session);
    await_report(told, "fetch \"y\"");
    SAYS(told, "\n  a (cpu:0) waits for b (cpu:1), which has not read what it wrote before"
               "\n  b (cpu:1) waits for y (cpu:0), which has not read what it wrote before"
               "\n  fetch \"y\" (model.c:103) is full: nobody has pulled its 2 values\n");
    SAYS_NOT(told, "and ");
    OK(weir_session_close(session));
    weir_plan_free(plan);
    told_free(told);
}

Test(watch, names_the_kernel_that_does_not_return, .timeout = 120)
{
    sem_t go;
    sem_init(&go, 0, 0);
    struct told *told = told_new();
    weir_binding bindings[] = {{.name = "x", .source = give}, {.name = "y", .sink = take},
                               {.name = "h0/q", .call = call_blocks, .ctx = &go}, {0}};
    weir_plan *plan = call_plan(1);
    for (int workers = 1; workers <= 2; workers++) {
        weir_session *session = weir_session_open(plan, WATCHED(told), .workers = workers, .bindings = bindings);
        OK(weir_session_start(session, 10));
        await_report(told, "in step 3 of a run that ends after step 9:\n");
        SAYS(told, "kernel of h0/q (call, model.c:101) on cpu:1 has been running for ");
        SAYS(told, " s, in step 3\n");
        if (workers == 2)
            SAYS(told, "x (cpu:0) waits for h0/q (cpu:1), which has not read what it wrote before\n");
        sem_post(&go);
        OK(weir_session_wait(session, LONG_MS));
        OK(weir_session_close(session));
    }
    weir_plan_free(plan);
    told_free(told);
    sem_destroy(&go);
}

Test(watch, names_the_source_that_blocks, .timeout = 120)
{
    sem_t go;
    sem_init(&go, 0, 0);
    struct told *told = told_new();
    weir_binding bindings[] = {{.name = "x", .source = source_blocks, .ctx = &go}, {.name = "y", .sink = take},
                               {.name = "h0/q", .call = call_blocks, .ctx = &go}, {0}};
    weir_plan *plan = call_plan(1);
    weir_session *session = weir_session_open(plan, WATCHED(told), .workers = 2, .bindings = bindings);
    OK(weir_session_start(session, 10));
    await_report(told, "in step 3\n");
    SAYS(told, "h0/q (cpu:1) waits for x (cpu:0), which has not written its input for step 3\n"
               "  kernel of x (source, model.c:100) on cpu:0 has been running for ");
    sem_post(&go);
    sem_post(&go);
    OK(weir_session_wait(session, LONG_MS));
    OK(weir_session_close(session));
    weir_plan_free(plan);
    told_free(told);
    sem_destroy(&go);
}

/* "late" is behind the call on the same worker, so it has not been asked. */
Test(watch, an_actor_behind_a_kernel_that_hangs_waits_for_its_turn, .timeout = 120)
{
    sem_t go;
    sem_init(&go, 0, 0);
    test_ops();
    sdf *s = sdf_new("turn", 1);
    uint32_t q = sdf_device(s), q2 = sdf_device(s);
    uint32_t call = sdf_actor(s, q, "hang", CALL), late = sdf_actor(s, q, "late", .kernel = "test_sum");
    uint32_t user = sdf_actor(s, q2, "user", .kernel = "test_sum");
    sdf_port(s, user, sdf_regst(s, late, .items = 1));
    sdf_regst(s, call, .items = 1);
    sdf_regst(s, user, .items = 1);
    weir_plan *plan = checked(sdf_plan(s));
    struct told *told = told_new();
    weir_binding bindings[] = {{.name = "hang", .call = call_blocks, .ctx = &go}, {0}};
    weir_session *session = weir_session_open(plan, WATCHED(told), .workers = 2, .bindings = bindings);
    OK(weir_session_start(session, 8));
    await_report(told, "kernel of hang");
    SAYS(told, "user (cpu:1) waits for late (cpu:0), which has not written its input for step ");
    SAYS(told, "\n  late (cpu:0) waits for its turn, behind hang (cpu:0)"
               "\n  kernel of hang (call, model.c:100) on cpu:0 has been running for ");
    sem_post(&go);
    OK(weir_session_wait(session, LONG_MS));
    OK(weir_session_close(session));
    weir_plan_free(plan);
    told_free(told);
    sem_destroy(&go);
}

Test(watch, a_stall_is_told_once_and_again_after_something_has_fired, .timeout = 120)
{
    struct told *told = told_new();
    weir_plan *plan = pipe_plan();
    weir_session *session = weir_session_open(plan, WATCHED(told));
    OK(weir_session_start(session, 5));
    await_report(told, "pushed for step 0\n");
    usleep(5 * (useconds_t)(STALL_S * 1e6));
    cr_assert_eq(atomic_load(&told->count), 1);
    push(session);
    await_report(told, "pushed for step 1\n");
    int count = atomic_load(&told->count);
    usleep(5 * (useconds_t)(STALL_S * 1e6));
    cr_assert_eq(atomic_load(&told->count), count);
    OK(weir_session_close(session));
    weir_plan_free(plan);
    told_free(told);
}

/* Ten times the limit in all, but something fires all the time. */
static weir_status give_slowly(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    (void)ctx, (void)dst, (void)step, (void)micro;
    usleep(20000);
    return WEIR_OK;
}

Test(watch, says_nothing_of_a_slow_run_and_of_a_session_at_rest, .timeout = 60)
{
    sem_t go;
    sem_init(&go, 0, 1);
    struct told *told = told_new();
    weir_binding bindings[] = {{.name = "x", .source = give_slowly}, {.name = "y", .sink = take},
                               {.name = "h0/q", .call = call_blocks, .ctx = &go}, {0}};
    weir_plan *plan = call_plan(1);
    weir_session *session =
        weir_session_open(plan, .stall_s = 1, .report = tell, .report_ctx = told, .bindings = bindings);
    OK(weir_session_run(session, 100));
    OK(weir_session_close(session));
    session = weir_session_open(plan, WATCHED(told), .bindings = bindings);
    usleep(5 * (useconds_t)(STALL_S * 1e6));
    OK(weir_session_close(session));
    cr_assert_eq(atomic_load(&told->count), 0, "%s", told->last);
    weir_plan_free(plan);
    told_free(told);
    sem_destroy(&go);
}

Test(watch, is_not_there_when_it_is_not_wanted, .timeout = 120)
{
    struct told *told = told_new();
    weir_plan *plan = pipe_plan();
    weir_session *session = weir_session_open(plan, .stall_s = -1, .report = tell, .report_ctx = told);
    cr_assert_null(session->observed.watch);
    OK(weir_session_start(session, 5));
    cr_assert_eq(weir_session_wait(session, 300), WEIR_E_TIMEOUT);
    cr_assert_eq(atomic_load(&told->count), 0);
    OK(weir_session_close(session));
    weir_plan_free(plan);
    told_free(told);
}

/* Reports come, workers stop and memory goes, all at once. */
Test(watch, a_session_is_closed_while_it_stalls, .timeout = 60)
{
    struct told *told = told_new();
    weir_plan *plan = pipe_plan();
    for (int i = 0; i < 40; i++) {
        weir_session *session =
            weir_session_open(plan, .stall_s = 0.004, .report = tell, .report_ctx = told, .workers = 1 + i % 2);
        OK(weir_session_start(session, 5));
        usleep((useconds_t)(i % 10) * 1000);
        OK(weir_session_close(session));
    }
    weir_plan_free(plan);
    told_free(told);
}

/* ---- failures ---- */

/* x -> h0/q, which fails in step 17. */
static weir_plan *failing_plan(void)
{
    test_ops();
    sdf *s = sdf_new("fails", 1);
    uint32_t q = sdf_device(s), q2 = sdf_device(s);
    uint32_t x = sdf_actor(s, q, "x", SOURCE), bad = sdf_actor(s, q2, "h0/q", .kernel = "test_fail");
    sdf_port(s, bad, sdf_regst(s, x, .items = 1));
    sdf_regst(s, bad, .items = 1);
    return checked(sdf_plan(s));
}

Test(watch, a_failed_run_tells_its_last_firings_once, .timeout = 120)
{
    weir_plan *plan = failing_plan();
    weir_binding bindings[] = {{.name = "x", .source = give}, {0}};
    for (int workers = 1; workers <= 2; workers++) {
        struct told *told = told_new();
        weir_session *session = weir_session_open(plan, .report = tell, .report_ctx = told, .workers = workers,
                                                  .bindings = bindings);
        cr_assert_eq(weir_session_run(session, 100), WEIR_E_KERNEL);
        cr_assert_eq(weir_session_wait(session, -1), WEIR_E_KERNEL);
        cr_assert_eq(atomic_load(&told->count), 1);
        await_report(told, "");
        SAYS(told, "the last firings before the failure, oldest first:\nworker 0: step 0: x");
        SAYS(told, workers == 1 ? "step 16: x on cpu:0, h0/q on cpu:1; step 17: x on cpu:0, h0/q on cpu:1 (failed)\n"
                                : "worker 1: step 0: h0/q");
        SAYS(told, workers == 1 ? "" : "step 16: h0/q; step 17: h0/q (failed)\n");
        OK(weir_session_close(session));
        told_free(told);
    }
    weir_plan_free(plan);
}

Test(watch, the_recorder_keeps_the_last_rows_and_how_long_they_were, .timeout = 120)
{
    enum { STEPS = 10000 };
    static char text[16384];
    sdf *s = sdf_new("two", 2);
    test_ops();
    uint32_t q = sdf_device(s);
    uint32_t a = sdf_actor(s, q, "a", .kernel = "test_sum", .fires = 2);
    uint32_t b = sdf_actor(s, q, "b", .kernel = "test_sum");
    sdf_port(s, b, sdf_regst(s, a, .items = 1, .fill = 2));
    sdf_regst(s, b, .items = 1);
    weir_plan *plan = checked(sdf_plan(s));
    weir_session *session = weir_session_open(plan);
    OK(weir_session_run(session, STEPS));
    const struct flight *flight = &session->workers.list[0].flight;
    cr_assert_gt(atomic_load(&flight->fired), FLIGHT_FIRINGS);
    cr_assert_gt(session_flight_text(session, text, sizeof(text)), 0);
    int64_t firings = 0, rows = 1;
    for (const char *at = text; (at = strchr(at, ',')) != NULL; at++)
        rows++;
    for (const char *at = text; (at = strchr(at, ';')) != NULL; at++)
        rows++;
    cr_assert_eq(rows, FLIGHT_FIRINGS, "%s", text);
    for (const char *at = text; (at = strstr(at, "step ")) != NULL; at++)
        firings = atoll(at + 5);
    cr_assert_eq(firings, STEPS - 1, "%s", text);
    cr_assert_gt(session_flight_text(session, text, 200), 0, "what fits is told");
    cr_assert_lt(strlen(text), 200);
    cr_assert(strstr(text, "step 9999: b"), "%s", text);
    struct flight_row row;
    cr_assert(flight_last(flight, &row));
    cr_assert_eq(row.actor, b);
    cr_assert_eq(flight_step(session->plan, row.actor, row.firing), STEPS - 1);
    OK(weir_session_close(session));
    weir_plan_free(plan);
}
