/* tests/actors/session/test_side_by_side.c: several sessions in one process: of one plan and of several, from several
 * threads, each with workers of its own or all with those of one. Each gives the results that it gives alone, whatever else
 * runs; what goes wrong in one stays there. */
#define _GNU_SOURCE
#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weir/weir.h>

#include "tests/support/fake.h"
#include "tests/support/fakes.h"
#include "tests/support/ranks.h"

TestSuite(side_by_side, .timeout = 120);

enum { WAIT_MS = 100000, SESSIONS = 4, STEPS = 300 };

#define OK(call) cr_assert_eq((call), WEIR_OK, "%s", weir_error())

/* ---- ops ---- */

/* An op of a session meets one of these: it waits at a gate, fails, or calls a session. */
static _Atomic bool gate_open, gate_reached;
static weir_session *to_be_called;
static _Atomic int refused;

static bool infer_same(weir_op_args *args, char *error, size_t error_bytes)
{
    (void)error, (void)error_bytes;
    args->out[0] = args->in[0];
    return true;
}

static weir_status copy(const weir_kernel_args *args)
{
    memcpy(args->out[0].data, args->in[0].data, sizeof(float));
    return WEIR_OK;
}

static weir_status wait_at_gate(const weir_kernel_args *args)
{
    atomic_store(&gate_reached, true);
    while (!atomic_load(&gate_open))
        sched_yield();
    return copy(args);
}

static weir_status fail(const weir_kernel_args *args)
{
    snprintf(args->error, args->error_bytes, "it was told to");
    return WEIR_E_KERNEL;
}

static weir_status call_other(const weir_kernel_args *args)
{
    static const char reason[] = "by an op of one that it shares workers with";
    refused += weir_session_run(to_be_called, 1) == WEIR_E_STATE && strstr(weir_error(), reason);
    refused += weir_session_close(to_be_called) == WEIR_E_STATE && strstr(weir_error(), reason);
    return copy(args);
}

enum { OP_GATE, OP_FAIL, OP_CALL, OPS };
#define OP(text, fn) \
    {.name = text, .in_min = 1, .in_max = 1, .out_count = 1, .infer = infer_same, .kernel = {[WEIR_CPU] = fn}}
static const weir_op ops[OPS] = {
    [OP_GATE] = OP("side_gate", wait_at_gate), [OP_FAIL] = OP("side_fail", fail), [OP_CALL] = OP("side_call", call_other)};

/* ---- plans ---- */

static weir_plan *compiled(weir_graph *g)
{
    weir_plan *plan = weir_compile(g);
    weir_graph_free(g);
    cr_assert(plan, "%s", weir_error());
    return plan;
}

/* y = what the op makes of 2 x, on one device. */
static weir_plan *op_plan(const weir_op *op)
{
    weir_graph *g = weir_graph_new(op ? op->name : "doubling");
    weir_tensor *y = weir_affine(weir_input(g, WEIR_F32, {1}, .name = "x"), 2);
    if (op)
        y = weir_op_apply(&(weir_apply){.src = WEIR_HERE, .op = op, .in = &y, .in_count = 1}, NULL);
    weir_fetch(y, .name = "y");
    return compiled(g);
}

/* A parameter that is pulled toward what is pushed, on two devices, two micro-batches. */
static weir_plan *learning_plan(void)
{
    weir_graph *g = weir_graph_new("learning");
    weir_mesh_new(g, "cpu:0-1");
    weir_tensor *x = weir_input(g, WEIR_F32, {8, 4}, .name = "x", .sbp = {WEIR_S(0)});
    weir_tensor *error = weir_sub(weir_linear(x, 1, .name = "line"), weir_linear(x, 1, .name = "other"));
    weir_tensor *loss = weir_mean(weir_mul(error, error));
    weir_train(loss, weir_sgd(.lr = 0.01));
    weir_fetch(loss, .name = "loss");
    return compiled(g);
}

/* ---- what one does ---- */

struct one {
    const weir_plan *plan;
    weir_session *workers_of;
    float seed;
    float losses[STEPS];
    char wrong[512];
};

static weir_status teach(weir_session *s, struct one *one)
{
    float in[32];
    weir_status status = weir_session_start(s, STEPS);
    for (int step = 0; step < STEPS && !status; step++) {
        for (int i = 0; i < 32; i++)
            in[i] = one->seed + (float)((i * 7 + step * 3) % 11) / 11;
        status = weir_session_push(s, "x", &(weir_array){in, WEIR_F32, {2, {8, 4}}}, WAIT_MS);
        if (!status)
            status = weir_session_pull(s, "loss", &(weir_array){&one->losses[step], WEIR_F32, {0}}, WAIT_MS);
    }
    return status ? status : weir_session_wait(s, WAIT_MS);
}

/* Opens, runs and closes. */
static void *live(void *ctx)
{
    struct one *one = ctx;
    weir_session *s = weir_session_open(one->plan, .workers_of = one->workers_of, .stall_s = -1);
    if (!s || teach(s, one))
        snprintf(one->wrong, sizeof one->wrong, "%s", weir_error());
    if (s && weir_session_close(s))
        snprintf(one->wrong, sizeof one->wrong, "%s", weir_error());
    return NULL;
}

static struct one alone(const weir_plan *plan, float seed)
{
    struct one one = {.plan = plan, .seed = seed};
    live(&one);
    cr_assert(!*one.wrong, "%s", one.wrong);
    return one;
}

/* Each in a thread of its own; with the bits of one that is alone. */
static void live_together(weir_session *workers_of)
{
    weir_plan *plan = learning_plan();
    static struct one ones[SESSIONS];
    pthread_t threads[SESSIONS];
    for (int i = 0; i < SESSIONS; i++) {
        ones[i] = (struct one){.plan = plan, .seed = (float)(i % 2), .workers_of = workers_of};
        cr_assert_eq(pthread_create(&threads[i], NULL, live, &ones[i]), 0);
    }
    for (int i = 0; i < SESSIONS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < SESSIONS; i++) {
        struct one same = alone(plan, ones[i].seed);
        cr_assert(!*ones[i].wrong, "%s", ones[i].wrong);
        cr_expect(!memcmp(ones[i].losses, same.losses, sizeof same.losses), "session %d has other bits", i);
    }
    weir_plan_free(plan);
}

Test(side_by_side, sessions_of_several_threads_have_the_bits_of_one_alone)
{
    live_together(NULL);
}

static void share_with(int workers)
{
    weir_plan *plan = learning_plan();
    weir_session *first = weir_session_open(plan, .workers = workers);
    struct one one = {.plan = plan, .seed = 1};
    cr_assert(first, "%s", weir_error());
    live_together(first);
    OK(teach(first, &one));
    struct one same = alone(plan, 1);
    cr_expect(!memcmp(one.losses, same.losses, sizeof same.losses));
    OK(weir_session_close(first));
    weir_plan_free(plan);
}

Test(side_by_side, sessions_that_share_one_worker_do_too)
{
    share_with(1);
}

Test(side_by_side, sessions_that_share_two_workers_do_too)
{
    share_with(2);
}

/* ---- lives ---- */

static float doubled(weir_session *s, float x)
{
    float y = 0;
    OK(weir_session_push(s, "x", &(weir_array){&x, WEIR_F32, {1, {1}}}, WAIT_MS));
    OK(weir_session_pull(s, "y", &(weir_array){&y, WEIR_F32, {1, {1}}}, WAIT_MS));
    return y;
}

/* The threads stay for the others, whichever session ends first. */
Test(side_by_side, workers_live_as_long_as_one_of_their_sessions)
{
    weir_plan *plan = op_plan(NULL);
    for (int last = 0; last < 3; last++) {
        weir_session *s[3] = {weir_session_open(plan, .workers = 1)};
        for (int i = 1; i < 3; i++)
            s[i] = weir_session_open(plan, .workers_of = s[i - 1]);
        for (int i = 0; i < 3; i++) {
            cr_assert(s[i], "%s", weir_error());
            OK(weir_session_start(s[i], 2));
            cr_expect_eq(doubled(s[i], (float)i), 2 * (float)i);
        }
        for (int i = 1; i < 3; i++)
            OK(weir_session_close(s[(last + i) % 3]));
        cr_expect_eq(doubled(s[last], 5), 10);
        OK(weir_session_wait(s[last], WAIT_MS));
        OK(weir_session_close(s[last]));
    }
    weir_plan_free(plan);
}

/* Followed by a number. */
static int threads_named(const char *prefix)
{
    char name[32];
    size_t length = strlen(prefix);
    int count = 0;
    FILE *list = popen("cat /proc/$PPID/task/*/comm", "r");
    while (list && fgets(name, sizeof name, list))
        count += !strncmp(name, prefix, length) && name[length] >= '0' && name[length] <= '9';
    if (list)
        pclose(list);
    return count;
}

/* Not more than the first session says, however many there are. */
Test(side_by_side, shared_workers_are_no_more_than_the_first_session_has_room_for)
{
    weir_plan *plan = op_plan(NULL);
    weir_session *s[6] = {weir_session_open(plan, .workers = 2)};
    for (int i = 1; i < 6; i++)
        s[i] = weir_session_open(plan, .workers_of = s[0]);
    for (int i = 0; i < 6; i++) {
        cr_assert(s[i], "%s", weir_error());
        OK(weir_session_start(s[i], 1));
        cr_expect_eq(doubled(s[i], 4), 8);
    }
    cr_expect_eq(threads_named("weir-"), 2);
    for (int i = 0; i < 6; i++)
        OK(weir_session_close(s[i]));
    cr_expect_eq(threads_named("weir-"), 0);
    weir_plan_free(plan);
}

/* ---- what one of them does ---- */

static void register_ops(void)
{
    for (size_t i = 0; i < OPS; i++)
        OK(weir_op_register(&ops[i]));
}

static void push_one(weir_session *s, float x)
{
    OK(weir_session_push(s, "x", &(weir_array){&x, WEIR_F32, {1, {1}}}, WAIT_MS));
}

/* The thread is inside a kernel of the one while the other is closed. Were close to wait for it, this would not end. */
Test(side_by_side, close_does_not_wait_for_a_kernel_of_another_session)
{
    register_ops();
    weir_plan *plan = op_plan(NULL), *gated = op_plan(&ops[OP_GATE]);
    weir_session *a = weir_session_open(plan, .workers = 1), *b = weir_session_open(gated, .workers_of = a);
    cr_assert(a && b, "%s", weir_error());
    OK(weir_session_start(b, 1));
    push_one(b, 3);
    while (!atomic_load(&gate_reached))
        sched_yield();
    OK(weir_session_close(a));
    atomic_store(&gate_open, true);
    float y = 0;
    OK(weir_session_pull(b, "y", &(weir_array){&y, WEIR_F32, {1, {1}}}, WAIT_MS));
    cr_expect_eq(y, 6);
    OK(weir_session_wait(b, WAIT_MS));
    OK(weir_session_close(b));
    weir_plan_free(plan);
    weir_plan_free(gated);
}

static void say_nothing(void *ctx, const char *report)
{
    (void)ctx, (void)report;
}

Test(side_by_side, what_fails_in_one_leaves_the_other_alone)
{
    register_ops();
    weir_plan *plan = op_plan(NULL), *failing = op_plan(&ops[OP_FAIL]);
    weir_session *a = weir_session_open(plan, .workers = 1);
    weir_session *b = weir_session_open(failing, .workers_of = a, .report = say_nothing);
    cr_assert(a && b, "%s", weir_error());
    OK(weir_session_start(a, 3));
    OK(weir_session_start(b, 1));
    cr_expect_eq(doubled(a, 1), 2);
    push_one(b, 1);
    cr_expect_eq(weir_session_wait(b, WAIT_MS), WEIR_E_KERNEL);
    cr_expect(strstr(weir_error(), "it was told to"), "%s", weir_error());
    cr_expect_eq(doubled(a, 2), 4);
    OK(weir_session_close(b));
    cr_expect_eq(doubled(a, 3), 6);
    OK(weir_session_wait(a, WAIT_MS));
    OK(weir_session_close(a));
    weir_plan_free(plan);
    weir_plan_free(failing);
}

Test(side_by_side, cancel_and_stop_are_of_one_session)
{
    weir_plan *plan = op_plan(NULL);
    weir_session *a = weir_session_open(plan, .workers = 1), *b = weir_session_open(plan, .workers_of = a);
    weir_session *c = weir_session_open(plan, .workers_of = b);
    cr_assert(a && b && c, "%s", weir_error());
    OK(weir_session_start(a, 2));
    OK(weir_session_start(b, 1000));
    OK(weir_session_start(c, 1000));
    OK(weir_session_cancel(b));
    cr_expect_eq(weir_session_wait(b, WAIT_MS), WEIR_E_CANCELLED);
    weir_session_stop(c);
    OK(weir_session_wait(c, WAIT_MS));
    cr_expect_eq(doubled(a, 1), 2);
    cr_expect_eq(doubled(a, 2), 4);
    OK(weir_session_wait(a, WAIT_MS));
    OK(weir_session_close(a));
    OK(weir_session_close(b));
    OK(weir_session_close(c));
    weir_plan_free(plan);
}

/* It would wait for a worker that is its own thread. */
Test(side_by_side, an_op_may_not_wait_for_a_session_of_the_same_workers)
{
    register_ops();
    weir_plan *plan = op_plan(NULL), *calling = op_plan(&ops[OP_CALL]);
    weir_session *a = weir_session_open(plan, .workers = 1), *b = weir_session_open(calling, .workers_of = a);
    cr_assert(a && b, "%s", weir_error());
    to_be_called = a;
    OK(weir_session_start(b, 1));
    cr_expect_eq(doubled(b, 4), 8);
    cr_expect_eq(refused, 2);
    OK(weir_session_close(b));
    OK(weir_session_close(a));
    weir_plan_free(plan);
    weir_plan_free(calling);
}

/* ---- names ---- */

struct heard {
    pthread_mutex_t lock;
    char text[8192];
};

static void hear(void *ctx, const char *report)
{
    struct heard *heard = ctx;
    pthread_mutex_lock(&heard->lock);
    size_t used = strlen(heard->text);
    snprintf(heard->text + used, sizeof heard->text - used, "%s\n", report);
    pthread_mutex_unlock(&heard->lock);
}

static void fail_session(weir_session *s)
{
    cr_assert(s, "%s", weir_error());
    OK(weir_session_start(s, 1));
    push_one(s, 1);
    cr_expect_eq(weir_session_wait(s, WAIT_MS), WEIR_E_KERNEL);
}

/* A failure's report with the last firings; of the first session, of one with a number, of one with a name. */
Test(side_by_side, reports_say_which_session_it_is)
{
    static struct heard heard[3];
    static const char *const names[] = {"session 'side_fail': ", "session 'side_fail (2)': ", "session 'mine': "};
    register_ops();
    weir_plan *plan = op_plan(&ops[OP_FAIL]);
    weir_session *s[3];
    for (int i = 0; i < 3; i++) {
        pthread_mutex_init(&heard[i].lock, NULL);
        s[i] = weir_session_open(plan, .report = hear, .report_ctx = &heard[i], .cluster.name = i == 2 ? "mine" : NULL);
    }
    for (int i = 0; i < 3; i++)
        fail_session(s[i]);
    for (int i = 0; i < 3; i++) {
        OK(weir_session_close(s[i]));
        cr_expect(!strncmp(heard[i].text, names[i], strlen(names[i])), "%s", heard[i].text);
        cr_expect(strstr(heard[i].text, "the last firings before the failure"), "%s", heard[i].text);
    }
    weir_plan_free(plan);
}

/* A stall names the session, too: nobody pushes. */
Test(side_by_side, stalls_and_traces_say_which_session_it_is)
{
    static struct heard heard;
    char path[] = "/tmp/weir-side-XXXXXX", trace[4096] = "";
    int fd = mkstemp(path);
    weir_plan *plan = op_plan(NULL);
    pthread_mutex_init(&heard.lock, NULL);
    weir_session *a = weir_session_open(plan, .workers = 1);
    weir_session *b = weir_session_open(plan, .workers_of = a, .trace = path, .stall_s = 0.05, .report = hear,
                                        .report_ctx = &heard);
    cr_assert(a && b && fd >= 0, "%s", weir_error());
    OK(weir_session_start(b, 1));
    for (bool told = false; !told; sched_yield()) {
        pthread_mutex_lock(&heard.lock);
        told = *heard.text;
        pthread_mutex_unlock(&heard.lock);
    }
    cr_expect_eq(doubled(b, 1), 2);
    OK(weir_session_wait(b, WAIT_MS));
    OK(weir_session_close(b));
    OK(weir_session_close(a));
    cr_expect(!strncmp(heard.text, "session 'doubling (2)': ", 24), "%s", heard.text);
    cr_assert_gt(read(fd, trace, sizeof trace - 1), 0);
    cr_expect(strstr(trace, "\"doubling (2)\""), "%s", trace);
    close(fd);
    unlink(path);
    weir_plan_free(plan);
}

/* ---- what cannot be ---- */

Test(side_by_side, options_that_do_not_go_together_are_told)
{
    weir_plan *plan = op_plan(NULL);
    weir_session *a = weir_session_open(plan);
    cr_assert(a, "%s", weir_error());
    cr_expect_null(weir_session_open(plan, .workers = 2, .workers_of = a));
    cr_expect(strstr(weir_error(), "there are both workers and workers_of") && strstr(weir_error(), "test_side_by_side.c"),
              "%s", weir_error());
    OK(weir_session_close(a));
    cr_expect_null(weir_session_open(plan, .workers_of = a));
    cr_expect(strstr(weir_error(), "weir_session_open: this session has been closed"), "%s", weir_error());
    weir_plan_free(plan);
}

static void share_in_rank(struct rank *rank)
{
    weir_plan *plan = learning_plan(), *small = op_plan(NULL);
    weir_session *alone = weir_session_open(small, .cluster.alone = true);
    weir_session *s = weir_session_open(plan, .cluster = ranks_cluster(rank));
    RANK_IS(rank, alone && s, "%s", weir_error());
    RANK_IS(rank, !weir_session_open(small, .cluster.alone = true, .workers_of = s), "it was opened");
    RANK_IS(rank, strstr(weir_error(), "a session of several ranks shares no workers"), "%s", weir_error());
    RANK_OK(rank, weir_session_close(s));
    RANK_OK(rank, weir_session_close(alone));
    weir_plan_free(plan);
    weir_plan_free(small);
}

Test(side_by_side, workers_of_ranks_are_not_shared)
{
    ranks_free(ranks_run(share_in_rank, NULL, .count = 2, .link = RANKS_SHM));
}

Test(side_by_side, workers_of_accelerators_are_not_shared)
{
    fake_open(NULL);
    struct fakes_pair pair = fakes_model_pair(1, fakes_all);
    weir_plan *plan = op_plan(NULL);
    weir_session *cpu = weir_session_open(plan), *ahead = weir_session_open(pair.plan);
    cr_assert(cpu && ahead, "%s", weir_error());
    cr_expect_null(weir_session_open(plan, .workers_of = ahead));
    cr_expect(strstr(weir_error(), "workers of accelerators are not shared"), "%s", weir_error());
    cr_expect_null(weir_session_open(pair.plan, .workers_of = cpu));
    cr_expect(strstr(weir_error(), "workers of accelerators are not shared"), "%s", weir_error());
    OK(weir_session_close(ahead));
    OK(weir_session_close(cpu));
    fakes_pair_free(&pair);
    fake_close_well();
    weir_plan_free(plan);
}
