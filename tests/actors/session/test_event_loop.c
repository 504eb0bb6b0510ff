/* tests/actors/session/test_event_loop.c: a session in a loop of the program's own: what its descriptor says, and that no
 * wake-up is lost. The threads here wait in poll() or epoll_wait() without a time limit that counts: a test with a lost
 * wake-up does not end. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>
#include <weir/weir.h>

#include "tests/support/ranks.h"

TestSuite(event_loop, .timeout = 60);

enum { WAIT_MS = 50000, READY = 8 };

#define OK(call) cr_assert_eq((call), WEIR_OK, "%s", weir_error())

/* ---- plans ---- */

/* y = 2 x and z = 3 u: two ways through a plan, which have nothing to do with each other but the steps. */
static weir_plan *two_ways(void)
{
    weir_graph *g = weir_graph_new("two ways");
    weir_tensor *x = weir_input(g, WEIR_F32, {0}, .name = "x"), *u = weir_input(g, WEIR_F32, {0}, .name = "u");
    weir_fetch(weir_affine(x, 2), .name = "y");
    weir_fetch(weir_affine(u, 3), .name = "z");
    weir_plan *plan = weir_compile(g);
    weir_graph_free(g);
    cr_assert(plan, "%s", weir_error());
    return plan;
}

static weir_plan *one_way(void)
{
    weir_graph *g = weir_graph_new("one way");
    weir_fetch(weir_affine(weir_input(g, WEIR_F32, {0}, .name = "x"), 2), .name = "y");
    weir_plan *plan = weir_compile(g);
    weir_graph_free(g);
    cr_assert(plan, "%s", weir_error());
    return plan;
}

struct loop {
    weir_plan *plan;
    weir_session *session;
    int fd, epoll;
};

static struct loop loop_open(weir_plan *plan)
{
    struct loop l = {.plan = plan, .session = weir_session_open(plan), .epoll = epoll_create1(EPOLL_CLOEXEC)};
    cr_assert(l.session && l.epoll >= 0, "%s", weir_error());
    l.fd = weir_session_fd(l.session);
    cr_assert_geq(l.fd, 0, "%s", weir_error());
    cr_assert_eq(epoll_ctl(l.epoll, EPOLL_CTL_ADD, l.fd, &(struct epoll_event){.events = EPOLLIN}), 0);
    return l;
}

static void loop_close(struct loop *l)
{
    OK(weir_session_close(l->session));
    weir_plan_free(l->plan);
    close(l->epoll);
}

static bool readable(int fd)
{
    return poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 0) == 1;
}

static void await(const struct loop *l)
{
    struct epoll_event event;
    cr_assert_eq(epoll_wait(l->epoll, &event, 1, WAIT_MS), 1, "a wake-up was lost");
}

static const weir_ready *find(const weir_ready *list, int count, weir_ready_kind kind, const char *name)
{
    for (int i = 0; i < count; i++)
        if (list[i].kind == kind && !strcmp(list[i].name, name))
            return &list[i];
    return NULL;
}

static bool lists(weir_session *s, weir_ready_kind kind, const char *name)
{
    weir_ready list[READY];
    int count = weir_session_ready(s, list, READY);
    cr_assert(count >= 0 && count <= READY, "%s", weir_error());
    return find(list, count, kind, name) != NULL;
}

/* Sleeps until it is listed. */
static void await_ready(const struct loop *l, weir_ready_kind kind, const char *name)
{
    while (!lists(l->session, kind, name))
        await(l);
}

static weir_status push(weir_session *s, const char *name, float value, int timeout_ms)
{
    return weir_session_push(s, name, &(weir_array){&value, WEIR_F32, {0}}, timeout_ms);
}

static weir_status pull(weir_session *s, const char *name, float *value)
{
    return weir_session_pull(s, name, &(weir_array){value, WEIR_F32, {0}}, 0);
}

static float pulled(weir_session *s, const char *name)
{
    float value = 0;
    cr_assert_eq(pull(s, name, &value), WEIR_OK, "what was listed was not there: %s", weir_error());
    return value;
}

/* ---- what is listed ---- */

Test(event_loop, says_what_would_not_block)
{
    struct loop l = loop_open(two_ways());
    weir_ready list[READY];
    cr_expect(readable(l.fd), "it begins readable");
    int count = weir_session_ready(l.session, list, READY);
    cr_expect_eq(count, 3);
    cr_assert(find(list, count, WEIR_READY_WAIT, "main"));
    cr_assert(find(list, count, WEIR_READY_PUSH, "x") && find(list, count, WEIR_READY_PUSH, "u"));
    for (int i = 0; i < count; i++)
        cr_expect_eq(list[i].status, WEIR_OK);
    cr_expect_not(readable(l.fd), "what was told is not told again");
    cr_expect_eq(weir_session_ready(l.session, list, READY), 3, "but it is listed as long as it is so");
    OK(weir_session_start(l.session, 1));
    OK(push(l.session, "x", 21, 0));
    await_ready(&l, WEIR_READY_PULL, "y");
    cr_expect(lists(l.session, WEIR_READY_PULL, "y"));
    cr_expect_not(lists(l.session, WEIR_READY_PULL, "z"));
    cr_expect_not(lists(l.session, WEIR_READY_WAIT, "main"));
    cr_expect_eq(pulled(l.session, "y"), 42);
    OK(push(l.session, "u", 7, 0));
    await_ready(&l, WEIR_READY_PULL, "z");
    cr_expect_eq(pulled(l.session, "z"), 21);
    await_ready(&l, WEIR_READY_WAIT, "main");
    OK(weir_session_wait(l.session, 0));
    loop_close(&l);
}

Test(event_loop, has_one_descriptor_and_lists_without_it)
{
    weir_plan *plan = one_way();
    weir_session *s = weir_session_open(plan);
    cr_assert(s, "%s", weir_error());
    cr_expect(lists(s, WEIR_READY_PUSH, "x"));
    int fd = weir_session_fd(s);
    cr_expect(fd >= 0 && readable(fd), "somebody may have looked before there was one");
    cr_expect_eq(weir_session_fd(s), fd);
    OK(weir_session_close(s));
    errno = 0;
    cr_expect(fcntl(fd, F_GETFD) < 0 && errno == EBADF, "it is closed with the session");
    weir_plan_free(plan);
}

/* Entries that did not fit have not been told. */
Test(event_loop, stays_readable_while_there_is_more_than_room)
{
    struct loop l = loop_open(two_ways());
    weir_ready list[READY];
    cr_expect_eq(weir_session_ready(l.session, list, 1), 3);
    cr_expect_eq(list[0].kind, WEIR_READY_WAIT);
    cr_expect(readable(l.fd));
    cr_expect_eq(weir_session_ready(l.session, NULL, 0), 3);
    cr_expect(readable(l.fd));
    cr_expect_eq(weir_session_ready(l.session, list, 3), 3);
    cr_expect_not(readable(l.fd));
    loop_close(&l);
}

/* ---- no wake-up is lost ---- */

/* Any number of round trips, each of which sleeps until there is a value. */
Test(event_loop, goes_there_and_back_without_a_clock)
{
    enum { STEPS = 2000 };
    struct loop l = loop_open(one_way());
    OK(weir_session_start(l.session, STEPS));
    for (int i = 0; i < STEPS; i++) {
        await_ready(&l, WEIR_READY_PUSH, "x");
        OK(push(l.session, "x", (float)i, 0));
        await_ready(&l, WEIR_READY_PULL, "y");
        cr_assert_eq(pulled(l.session, "y"), 2 * (float)i);
    }
    await_ready(&l, WEIR_READY_WAIT, "main");
    OK(weir_session_wait(l.session, 0));
    loop_close(&l);
}

/* Both ways at their own pace; of each listing one value is used (`greedy`: all there are), and the loop sleeps only in
 * epoll_wait(). */
static void stream(int steps, bool greedy)
{
    struct loop l = loop_open(two_ways());
    static const char *const in[] = {"x", "u"}, *const out[] = {"y", "z"};
    int pushed[2] = {0}, got[2] = {0};
    float value;
    OK(weir_session_start(l.session, steps));
    while (got[0] < steps || got[1] < steps) {
        weir_ready list[READY];
        await(&l);
        int count = weir_session_ready(l.session, list, READY);
        for (int w = 0; w < 2; w++) {
            bool again = find(list, count, WEIR_READY_PUSH, in[w]) != NULL;
            for (; again && pushed[w] < steps && !push(l.session, in[w], (float)pushed[w], 0); again = greedy)
                pushed[w]++;
            again = find(list, count, WEIR_READY_PULL, out[w]) != NULL;
            cr_assert(!again || got[w] < steps);
            for (; again && !pull(l.session, out[w], &value); again = greedy)
                cr_assert_eq(value, (w ? 3 : 2) * (float)got[w]++);
        }
    }
    OK(weir_session_wait(l.session, WAIT_MS));
    loop_close(&l);
}

Test(event_loop, loses_none_when_one_value_is_used_at_a_time)
{
    stream(2000, false);
}

Test(event_loop, loses_none_when_all_there_is_is_used)
{
    stream(2000, true);
}

/* A thread of its own pushes and waits; the loop pulls. */
enum { THREAD_STEPS = 2000 };

static void *push_all(void *session)
{
    for (int i = 0; i < THREAD_STEPS; i++)
        if (push(session, "x", (float)i, WAIT_MS))
            return "a push failed";
    return NULL;
}

Test(event_loop, goes_beside_a_thread_that_waits_in_push)
{
    struct loop l = loop_open(one_way());
    pthread_t thread;
    void *wrong = NULL;
    OK(weir_session_start(l.session, THREAD_STEPS));
    cr_assert_eq(pthread_create(&thread, NULL, push_all, l.session), 0);
    for (int got = 0; got < THREAD_STEPS; got++) {
        await_ready(&l, WEIR_READY_PULL, "y");
        cr_assert_eq(pulled(l.session, "y"), 2 * (float)got);
    }
    pthread_join(thread, &wrong);
    cr_expect_null(wrong, "%s", (const char *)wrong);
    loop_close(&l);
}

/* The descriptor is asked for while another thread waits in pull. */
static void *pull_one(void *session)
{
    float value = 0;
    weir_status status = weir_session_pull(session, "y", &(weir_array){&value, WEIR_F32, {0}}, WAIT_MS);
    return status || value != 8 ? "the pull failed" : NULL;
}

Test(event_loop, may_be_asked_for_while_a_thread_waits)
{
    weir_plan *plan = one_way();
    weir_session *s = weir_session_open(plan);
    pthread_t thread;
    void *wrong = NULL;
    OK(weir_session_start(s, 2));
    cr_assert_eq(pthread_create(&thread, NULL, pull_one, s), 0);
    struct loop l = {.plan = plan, .session = s, .fd = weir_session_fd(s), .epoll = epoll_create1(0)};
    cr_assert_eq(epoll_ctl(l.epoll, EPOLL_CTL_ADD, l.fd, &(struct epoll_event){.events = EPOLLIN}), 0);
    cr_expect_geq(weir_session_ready(s, NULL, 0), 0);
    OK(push(s, "x", 4, 0));
    pthread_join(thread, &wrong);
    cr_expect_null(wrong, "%s", (const char *)wrong);
    OK(push(s, "x", 5, WAIT_MS));
    await_ready(&l, WEIR_READY_PULL, "y");
    cr_expect_eq(pulled(s, "y"), 10);
    loop_close(&l);
}

/* ---- ends ---- */

/* A loop that sleeps while the run ends, is cancelled, or fails, is woken. */
Test(event_loop, hears_of_the_end_of_a_run)
{
    struct loop l = loop_open(one_way());
    OK(weir_session_start(l.session, 1));
    while (lists(l.session, WEIR_READY_WAIT, "main"))
        continue;
    weir_session_stop(l.session);
    await_ready(&l, WEIR_READY_WAIT, "main");
    OK(weir_session_wait(l.session, 0));
    loop_close(&l);
}

static void *cancel_it(void *session)
{
    return weir_session_cancel(session) ? "cancel" : NULL;
}

Test(event_loop, hears_that_it_was_cancelled)
{
    struct loop l = loop_open(one_way());
    weir_ready list[READY];
    pthread_t thread;
    OK(weir_session_start(l.session, 1));
    weir_session_ready(l.session, list, READY);
    cr_assert_eq(pthread_create(&thread, NULL, cancel_it, l.session), 0);
    await_ready(&l, WEIR_READY_WAIT, "main");
    pthread_join(thread, NULL);
    int count = weir_session_ready(l.session, list, READY);
    cr_assert_eq(count, 3);
    for (int i = 0; i < count; i++)
        cr_expect_eq(list[i].status, WEIR_E_CANCELLED);
    float value;
    cr_expect_eq(pull(l.session, "y", &value), WEIR_E_CANCELLED);
    loop_close(&l);
}

static weir_status two_values(void *ctx, const weir_view *x, int64_t step, int micro)
{
    (void)ctx, (void)micro;
    if (step == 2)
        return WEIR_END;
    *(float *)x->data = (float)step;
    return WEIR_OK;
}

Test(event_loop, hears_of_the_end_of_the_values)
{
    weir_graph *g = weir_graph_new("ends");
    weir_tensor *x = weir_input(g, WEIR_F32, {0}, .name = "x", .source = two_values);
    weir_fetch(weir_affine(x, 2), .name = "y");
    struct loop l = loop_open(weir_compile(g));
    weir_ready list[READY];
    weir_graph_free(g);
    OK(weir_session_start(l.session, 10));
    for (int step = 0; step < 2; step++) {
        await_ready(&l, WEIR_READY_PULL, "y");
        cr_expect_eq(pulled(l.session, "y"), 2 * (float)step);
    }
    await_ready(&l, WEIR_READY_WAIT, "main");
    int count = weir_session_ready(l.session, list, READY);
    cr_expect_eq(count, 2);
    cr_expect_eq(list[0].status, WEIR_E_END);
    const weir_ready *y = find(list, count, WEIR_READY_PULL, "y");
    cr_assert(y && y->status == WEIR_E_END);
    cr_expect_eq(weir_session_wait(l.session, 0), WEIR_E_END);
    loop_close(&l);
}

/* ---- ranks ---- */

enum { RANK_STEPS = 300 };

/* Rank 0 pushes x, which rank 1 has half of; both pull the sum. */
static void loop_in_rank(struct rank *rank)
{
    weir_graph *g = weir_graph_new("ranks");
    weir_mesh_new(g, "cpu:0-1");
    weir_tensor *x = weir_input(g, WEIR_F32, {2}, .name = "x", .sbp = {WEIR_S(0)});
    weir_fetch(weir_sum(x), .name = "y");
    weir_plan *plan = weir_compile(g);
    weir_session *s = plan ? weir_session_open(plan, .cluster = ranks_cluster(rank)) : NULL;
    RANK_IS(rank, s, "%s", weir_error());
    int fd = weir_session_fd(s), pushed = 0, got = 0;
    RANK_IS(rank, fd >= 0, "%s", weir_error());
    RANK_OK(rank, weir_session_start(s, RANK_STEPS));
    for (bool over = false; !over;) {
        weir_ready list[READY];
        RANK_IS(rank, poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, WAIT_MS) == 1, "a wake-up was lost");
        int count = weir_session_ready(s, list, READY);
        float in[2] = {(float)pushed, 1}, out = 0;
        /* the rank that has no push of its own pushes the same */
        if (pushed < RANK_STEPS && !weir_session_push(s, "x", &(weir_array){in, WEIR_F32, {1, {2}}}, 0))
            pushed++;
        if (find(list, count, WEIR_READY_PULL, "y")) {
            RANK_OK(rank, weir_session_pull(s, "y", &(weir_array){&out, WEIR_F32, {0}}, 0));
            RANK_IS(rank, out == (float)got + 1, "step %d: %g", got, (double)out);
            got++;
        }
        over = got == RANK_STEPS && pushed == RANK_STEPS && find(list, count, WEIR_READY_WAIT, "main");
    }
    RANK_OK(rank, weir_session_wait(s, WAIT_MS));
    RANK_OK(rank, weir_session_close(s));
    weir_plan_free(plan);
    weir_graph_free(g);
}

Test(event_loop, hears_of_values_of_other_ranks_in_shared_memory)
{
    ranks_free(ranks_run(loop_in_rank, NULL, .count = 2, .link = RANKS_SHM));
    ranks_free(ranks_run(loop_in_rank, NULL, .count = 2, .link = RANKS_SHM, .kind = RANKS_THREADS));
}

Test(event_loop, hears_of_values_of_other_ranks_over_sockets)
{
    ranks_free(ranks_run(loop_in_rank, NULL, .count = 2, .link = RANKS_WIRE));
}
