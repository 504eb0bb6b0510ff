/* tests/actors/session/test_callers.c: who may not call a session is told so, rather than left to wait or to crash: a
 * child of fork(), a function that a worker calls, one that gets a report, one that comes late or has no session, two
 * threads at the same push or pull. */
#define _GNU_SOURCE
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weir/weir.h>

#include "tests/support/ranks.h"

TestSuite(callers, .timeout = 60);

enum { WAIT_MS = 20000, CHILD_S = 30, WIDTH = 64, ROWS = 48 };

#define OK(call) cr_assert_eq((call), WEIR_OK, "%s", weir_error())

/* In a child, where an assertion of the test's would be lost: says what does not hold, and counts it. */
static int wrong;
#define HOLDS(x)                                                                      \
    do {                                                                              \
        if (!(x)) {                                                                   \
            fprintf(stderr, "child: %s:%d: %s (%s)\n", __FILE__, __LINE__, #x, weir_error()); \
            wrong++;                                                                  \
        }                                                                             \
    } while (0)

/* ---- plans ---- */

static weir_array scalar(float *value)
{
    return (weir_array){value, WEIR_F32, {0}};
}

static weir_array eight(float *value)
{
    return (weir_array){value, WEIR_F32, {1, {8}}};
}

/* y = 2 * the sum of x, and a parameter. */
static weir_plan *doubling_plan(void)
{
    weir_graph *g = weir_graph_new("doubling");
    weir_mesh_new(g, "cpu:0-1");
    weir_tensor *x = weir_input(g, WEIR_F32, {8}, .name = "x", .sbp = {S(0)});
    weir_tensor *w = weir_param(g, WEIR_F32, {8}, .name = "w", .init = WEIR_VALUE(2));
    weir_fetch(weir_sum(weir_mul(x, w)), .name = "y");
    weir_plan *plan = weir_compile(g);
    weir_graph_free(g);
    return plan;
}

static weir_status give(void *ctx, const weir_view *x, int64_t step, int micro)
{
    (void)ctx, (void)micro;
    for (int i = 0; i < ROWS * WIDTH; i++)
        ((float *)x->data)[i] = weir_random_normal((uint64_t)step, (uint64_t)i);
    return WEIR_OK;
}

/* Large enough for the libraries that multiply matrices and run convolutions. */
static weir_plan *training_plan(void)
{
    weir_graph *g = weir_graph_new("training");
    weir_tensor *x = weir_input(g, WEIR_F32, {ROWS, WIDTH}, .name = "x", .source = give);
    weir_tensor *y = weir_linear(weir_gelu(weir_linear(x, 256, .name = "up")), WIDTH, .name = "down");
    weir_train(weir_mean(weir_mul(y, y)), weir_sgd(.lr = 0.1));
    weir_plan *plan = weir_compile(g);
    weir_graph_free(g);
    return plan;
}

static weir_status train(const weir_plan *plan, float *weight)
{
    weir_session *s = weir_session_open(plan);
    weir_status status = s ? weir_session_run(s, 3) : WEIR_E_MEMORY;
    if (!status)
        status = weir_session_read(s, "down/weight", &(weir_array){weight, WEIR_F32, {2, {256, WIDTH}}});
    weir_session_close(s);
    return status;
}

static weir_status double_once(weir_session *s, float x, float *y)
{
    float in[8] = {x, 1};
    weir_array from = eight(in), to = scalar(y);
    weir_status status = weir_session_push(s, "x", &from, WAIT_MS);
    return status ? status : weir_session_pull(s, "y", &to, WAIT_MS);
}

/* ---- children ---- */

#ifdef __SANITIZE_THREAD__
#define NEEDS_CHILDREN() cr_skip_test("no threads after fork() under ThreadSanitizer")
#else
#define NEEDS_CHILDREN() (void)0
#endif

/* Runs `fn` in a child, which must end well and in time. */
static void in_child(void (*fn)(void *ctx), void *ctx)
{
    int status = -1;
    fflush(NULL);
    pid_t pid = fork();
    cr_assert(pid >= 0);
    if (!pid) {
        alarm(CHILD_S);
        fn(ctx);
        _exit(wrong != 0);
    }
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert_eq(status, 0, "the child ended with %s %d", WIFSIGNALED(status) ? "signal" : "status",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

#define IS_REFUSED(call) HOLDS((call) == WEIR_E_STATE && strstr(weir_error(), "this is a child of it"))

/* Every function of the session that it has of its parent. */
static void call_all(void *ctx)
{
    weir_session *s = ctx;
    weir_session_stats stats;
    float y, w[8];
    weir_array x = eight(w), value = scalar(&y);
    IS_REFUSED(weir_session_start(s, 1));
    IS_REFUSED(weir_session_wait(s, -1));
    IS_REFUSED(weir_session_run(s, 1));
    IS_REFUSED(weir_session_push(s, "x", &x, -1));
    IS_REFUSED(weir_session_pull(s, "y", &value, -1));
    IS_REFUSED(weir_session_read(s, "w", &x));
    IS_REFUSED(weir_session_write(s, "w", &x));
    IS_REFUSED(weir_session_visit(s, "w", NULL, NULL));
    IS_REFUSED(weir_session_save(s, "/proc/nowhere"));
    IS_REFUSED(weir_session_load(s, "/proc/nowhere"));
    IS_REFUSED(weir_session_save_wait(s, -1));
    IS_REFUSED(weir_session_cancel(s));
    HOLDS(weir_session_fd(s) == -1 && strstr(weir_error(), "this is a child of it"));
    HOLDS(weir_session_ready(s, NULL, 0) == -1 && strstr(weir_error(), "this is a child of it"));
    HOLDS(weir_session_params(s, NULL, 0) == -1);
    HOLDS(weir_session_step(s) >= 0);
    weir_session_get_stats(s, &stats);
    IS_REFUSED(weir_session_close(s));
}

/* The same in a child of the child; and what is not the session's goes on. */
static void call_all_and_go_on(void *ctx)
{
    float y = 0;
    call_all(ctx);
    in_child(call_all, ctx);
    weir_plan *plan = doubling_plan();
    weir_session *s = weir_session_open(plan);
    HOLDS(s);
    HOLDS(!weir_session_start(s, 1) && !double_once(s, 20, &y) && !weir_session_wait(s, WAIT_MS) && y == 42);
    HOLDS(!weir_session_close(s));
    weir_plan_free(plan);
}

Test(callers, in_a_child_are_told_so_and_the_parent_goes_on)
{
    float y = 0;
    NEEDS_CHILDREN();
    weir_plan *plan = doubling_plan();
    weir_session *s = weir_session_open(plan, .stall_s = -1);
    cr_assert(s, "%s", weir_error());
    OK(weir_session_start(s, 1)); /* AddressSanitizer holds locks while a thread begins, and its child would wait for them */
    OK(double_once(s, 1, &y));
    OK(weir_session_wait(s, WAIT_MS));
    in_child(call_all_and_go_on, s);
    OK(weir_session_start(s, 3));
    OK(double_once(s, 2, &y));
    in_child(call_all_and_go_on, s); /* in the middle of a run */
    OK(double_once(s, 4, &y));
    cr_assert_float_eq(y, 10, 0);
    OK(double_once(s, 6, &y));
    cr_assert_float_eq(y, 14, 0);
    OK(weir_session_wait(s, WAIT_MS));
    OK(weir_session_close(s));
    weir_plan_free(plan);
}

struct training {
    weir_plan *plan;
    float weight[256 * WIDTH];
};

static void train_again(void *ctx)
{
    static float weight[256 * WIDTH];
    struct training *training = ctx;
    HOLDS(!train(training->plan, weight));
    HOLDS(!memcmp(weight, training->weight, sizeof weight));
}

/* Libraries that keep threads keep them over fork(), too, if they may. */
Test(callers, in_a_child_may_open_sessions_of_their_own)
{
    static struct training training;
    NEEDS_CHILDREN();
    training.plan = training_plan();
    cr_assert(training.plan, "%s", weir_error());
    OK(train(training.plan, training.weight));
    in_child(train_again, &training);
    weir_plan_free(training.plan);
}

/* ---- children of ranks ---- */

static void fork_in_session(struct rank *rank)
{
    float y = 0;
    weir_plan *plan = doubling_plan();
    weir_session *s = weir_session_open(plan, .cluster = ranks_cluster(rank));
    RANK_IS(rank, s, "%s", weir_error());
    RANK_OK(rank, weir_session_start(s, 2));
    RANK_OK(rank, double_once(s, 1, &y));
    in_child(call_all, s);
    RANK_OK(rank, double_once(s, 3, &y));
    RANK_IS(rank, y == 8, "it is %g", (double)y);
    RANK_OK(rank, weir_session_wait(s, WAIT_MS));
    RANK_OK(rank, weir_session_close(s));
    weir_plan_free(plan);
}

Test(callers, in_children_of_ranks_are_told_so_and_the_ranks_go_on)
{
    NEEDS_CHILDREN();
    ranks_free(ranks_run(fork_in_session, NULL, .count = 2, .link = RANKS_SHM));
    ranks_free(ranks_run(fork_in_session, NULL, .count = 2, .link = RANKS_WIRE));
}

/* ---- callbacks ---- */

struct inside {
    const weir_plan *plan;
    weir_session *session, *other;
    int refused, ran;
};

static bool refuses(weir_status status, const char *text)
{
    return status == WEIR_E_STATE && strstr(weir_error(), text);
}

/* A source that calls what would wait for it, and a session that would not. */
static weir_status meddle(void *ctx, const weir_view *x, int64_t step, int micro)
{
    static const char text[] = "called by a source, a sink or a call of this session";
    struct inside *inside = ctx;
    float w[8], y;
    weir_array array = eight(w);
    inside->refused += refuses(weir_session_wait(inside->session, -1), text);
    inside->refused += refuses(weir_session_run(inside->session, 1), text);
    inside->refused += refuses(weir_session_start(inside->session, 1), text);
    inside->refused += refuses(weir_session_read(inside->session, "w", &array), text);
    inside->refused += refuses(weir_session_write(inside->session, "w", &array), text);
    inside->refused += refuses(weir_session_visit(inside->session, NULL, NULL, NULL), text);
    inside->refused += refuses(weir_session_save(inside->session, "/proc/nowhere"), text);
    inside->refused += refuses(weir_session_load(inside->session, "/proc/nowhere"), text);
    inside->refused += refuses(weir_session_save_wait(inside->session, -1), text);
    inside->refused += refuses(weir_session_close(inside->session), text);
    inside->ran += !weir_session_start(inside->other, 1) && !double_once(inside->other, 1, &y) &&
                   !weir_session_wait(inside->other, WAIT_MS);
    ((float *)x->data)[0] = (float)(step + micro);
    return WEIR_OK;
}

Test(callers, from_a_source_are_told_so_and_may_use_another_session)
{
    struct inside inside = {.refused = 0};
    weir_graph *g = weir_graph_new("source");
    weir_tensor *x = weir_input(g, WEIR_F32, {1}, .name = "x", .source = meddle, .ctx = &inside);
    weir_tensor *w = weir_param(g, WEIR_F32, {1}, .name = "w", .init = WEIR_VALUE(2));
    weir_fetch(weir_sum(weir_mul(x, w)), .name = "y");
    weir_plan *plan = weir_compile(g), *other = doubling_plan();
    cr_assert(plan && other, "%s", weir_error());
    weir_graph_free(g);
    inside.session = weir_session_open(plan);
    inside.other = weir_session_open(other);
    cr_assert(inside.session && inside.other, "%s", weir_error());
    OK(weir_session_start(inside.session, 2));
    for (int step = 0; step < 2; step++) {
        float y;
        weir_array to = scalar(&y);
        OK(weir_session_pull(inside.session, "y", &to, WAIT_MS));
        cr_expect_float_eq(y, 2 * step, 0);
    }
    OK(weir_session_wait(inside.session, WAIT_MS));
    cr_expect_eq(inside.refused, 20);
    cr_expect_eq(inside.ran, 2);
    OK(weir_session_close(inside.session));
    OK(weir_session_close(inside.other));
    weir_plan_free(plan);
    weir_plan_free(other);
}

static void call_from_report(void *ctx, const char *text)
{
    struct inside *inside = ctx;
    float w[8];
    weir_array array = eight(w);
    (void)text;
    inside->refused += refuses(weir_session_wait(inside->session, -1), "called by a function that gets a report");
    inside->refused += refuses(weir_session_push(inside->session, "x", &array, -1), "gets a report");
    inside->refused += refuses(weir_session_save(inside->session, "/proc/nowhere"), "gets a report");
    inside->refused += refuses(weir_session_load(inside->session, "/proc/nowhere"), "gets a report");
    inside->refused += refuses(weir_session_save_wait(inside->session, -1), "gets a report");
    inside->refused += refuses(weir_session_close(inside->session), "gets a report");
    inside->refused += !weir_session_open(inside->plan) && refuses(WEIR_E_STATE, "weir_session_open");
    inside->ran++;
}

/* A run that is under way is not saved, and nothing is put in its place; what has been saved can be waited for. */
Test(callers, in_the_middle_of_a_run_are_told_that_it_is_under_way)
{
    static const char text[] = "a run is under way";
    float y;
    weir_plan *plan = doubling_plan();
    weir_session *s = weir_session_open(plan);
    cr_assert(s, "%s", weir_error());
    OK(weir_session_start(s, 1));
    cr_expect(refuses(weir_session_save(s, "/proc/nowhere"), text), "%s", weir_error());
    cr_expect(refuses(weir_session_load(s, "/proc/nowhere"), text), "%s", weir_error());
    OK(weir_session_save_wait(s, -1));
    OK(double_once(s, 1, &y));
    OK(weir_session_wait(s, WAIT_MS));
    OK(weir_session_close(s));
    weir_plan_free(plan);
}

/* The watch reports a run for which nobody pushes. */
Test(callers, from_a_report_are_told_so)
{
    weir_plan *plan = doubling_plan();
    struct inside inside = {.plan = plan};
    inside.session = weir_session_open(plan, .stall_s = 0.1, .report = call_from_report, .report_ctx = &inside);
    cr_assert(inside.session, "%s", weir_error());
    OK(weir_session_start(inside.session, 1));
    cr_assert_eq(weir_session_wait(inside.session, 2000), WEIR_E_TIMEOUT);
    OK(weir_session_close(inside.session));
    cr_expect_geq(inside.ran, 1);
    cr_expect_eq(inside.refused, 7 * inside.ran);
    weir_plan_free(plan);
}

/* ---- late, or without a session ---- */

/* Every function says the same of `s`. */
static void call_in_vain(weir_session *s, weir_status status, const char *text)
{
    weir_session_stats stats;
    float y, w[8];
    weir_array x = eight(w), value = scalar(&y);
    int told = 0;
#define TELLS(call) (told += (call) && strstr(weir_error(), text) != NULL)
    TELLS(weir_session_start(s, 1) == status);
    TELLS(weir_session_wait(s, -1) == status);
    TELLS(weir_session_run(s, 1) == status);
    TELLS(weir_session_push(s, "x", &x, -1) == status);
    TELLS(weir_session_pull(s, "y", &value, 0) == status);
    TELLS(weir_session_read(s, "w", &x) == status);
    TELLS(weir_session_write(s, "w", &x) == status);
    TELLS(weir_session_visit(s, "w", NULL, NULL) == status);
    TELLS(weir_session_save(s, "/proc/nowhere") == status);
    TELLS(weir_session_load(s, "/proc/nowhere") == status);
    TELLS(weir_session_save_wait(s, -1) == status);
    TELLS(weir_session_params(s, NULL, 0) == -1);
    TELLS(weir_session_fd(s) == -1);
    TELLS(weir_session_ready(s, NULL, 0) == -1);
    TELLS(weir_session_step(s) == -1);
    cr_expect_eq(told, 15);
    weir_session_get_stats(s, &stats);
    cr_expect(stats.workers == 0 && strstr(weir_error(), text));
    weir_session_stop(s);
}

Test(callers, without_a_session_are_told_so)
{
    call_in_vain(NULL, WEIR_E_ARGUMENT, "there is no session");
    OK(weir_session_close(NULL));
    OK(weir_session_cancel(NULL));
}

Test(callers, after_close_are_told_so)
{
    weir_plan *plan = doubling_plan();
    weir_session *s = weir_session_open(plan);
    cr_assert(s, "%s", weir_error());
    OK(weir_session_close(s));
    call_in_vain(s, WEIR_E_STATE, "has been closed, or is being closed");
    cr_expect(refuses(weir_session_close(s), "weir_session_close: this session has been closed"), "%s", weir_error());
    cr_expect(refuses(weir_session_cancel(s), "has been closed"), "%s", weir_error());
    weir_plan_free(plan);
}

static void *close_it(void *session)
{
    return (void *)(intptr_t)weir_session_close(session);
}

/* More sessions than the first piece of the list has places for; each is closed by two threads, of which one does. */
Test(callers, that_close_at_the_same_time_are_one_that_does_and_one_that_is_told)
{
    enum { SESSIONS = 70 };
    static weir_session *sessions[SESSIONS];
    weir_plan *plan = doubling_plan();
    for (int i = 0; i < SESSIONS; i++) {
        sessions[i] = weir_session_open(plan, .workers = 1, .stall_s = -1);
        cr_assert(sessions[i], "%s", weir_error());
    }
    for (int i = SESSIONS - 1; i >= 0; i--) {
        pthread_t thread;
        void *other;
        cr_assert_eq(pthread_create(&thread, NULL, close_it, sessions[i]), 0);
        weir_status own = weir_session_close(sessions[i]);
        pthread_join(thread, &other);
        cr_expect_eq(own + (intptr_t)other, WEIR_E_STATE, "%d and %d", own, (int)(intptr_t)other);
    }
    weir_plan_free(plan);
}

/* The session needs it until it is closed, and as long has it. */
Test(callers, that_free_the_plan_first_leave_it_to_the_session)
{
    float y = 0;
    weir_plan *plan = doubling_plan();
    weir_session *s = weir_session_open(plan), *other = weir_session_open(plan);
    cr_assert(s && other, "%s", weir_error());
    weir_plan_free(plan);
    OK(weir_session_close(other));
    OK(weir_session_start(s, 1));
    OK(double_once(s, 3, &y));
    cr_expect_eq(y, 8);
    OK(weir_session_wait(s, WAIT_MS));
    OK(weir_session_close(s));
}

/* ---- two at once ---- */

/* In its own turn of the two: one waits in pull, the other is told so. */
static void *pull_in_vain(void *session)
{
    float y;
    weir_array to = scalar(&y);
    weir_status status;
    do
        status = weir_session_pull(session, "y", &to, 0);
    while (status == WEIR_E_TIMEOUT);
    return (void *)(intptr_t)(refuses(status, "weir_session_pull: another thread is in weir_session_pull for 'y'"));
}

Test(callers, two_in_the_same_pull_are_told_so)
{
    float y;
    void *told;
    pthread_t thread;
    weir_array to = scalar(&y);
    weir_plan *plan = doubling_plan();
    weir_session *s = weir_session_open(plan);
    cr_assert(s, "%s", weir_error());
    cr_assert_eq(pthread_create(&thread, NULL, pull_in_vain, s), 0);
    weir_status status;
    do
        status = weir_session_pull(s, "y", &to, 1);
    while (status == WEIR_E_TIMEOUT && pthread_tryjoin_np(thread, &told));
    if (status == WEIR_E_STATE) { /* it was this thread that was told */
        cr_expect(strstr(weir_error(), "another thread is in weir_session_pull"), "%s", weir_error());
        OK(weir_session_cancel(s));
        pthread_join(thread, NULL);
    } else {
        cr_expect(told);
    }
    OK(weir_session_close(s));
    weir_plan_free(plan);
}
