/* test_io.c: functions of the program's that take their time hold up nobody but those who need what they make.
 *
 * That two things happen at the same time is proven without a clock: each of them waits until the other has begun, so
 * one thread that ran both would never get on (and here fails after a while). The op `test_meet` is what computes.
 */
#define _GNU_SOURCE
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <weir/weir.h>

#include "actors/session/session.h"
#include "graph/plan/form/plan.h"
#include "tests/support/json.h"
#include "tests/support/random_model.h"
#include "tests/support/run.h"
#include "tests/support/sample_plan.h"
#include "transport/mail/cores.h"

enum { STEPS = 6, ITEMS = 4, PATIENCE_S = 10 };

/* ---- who has begun what ---- */

enum who { KERNEL, SOURCE, SINK, WHO };

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int64_t begun[WHO];   /* steps */
    enum who other;       /* that the kernel meets */
    int64_t missed;
    pthread_t thread[WHO];
    bool elsewhere[WHO];  /* it was called by more than one thread */
} met = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void begin(enum who who, int64_t step)
{
    pthread_mutex_lock(&met.lock);
    met.elsewhere[who] |= met.begun[who] && !pthread_equal(met.thread[who], pthread_self());
    met.thread[who] = pthread_self();
    met.begun[who] = step + 1;
    pthread_cond_broadcast(&met.changed);
    pthread_mutex_unlock(&met.lock);
}

/* Waits until the other has begun the step, if there is such a step. */
static void await(enum who other, int64_t step)
{
    struct timespec deadline;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += PATIENCE_S;
    pthread_mutex_lock(&met.lock);
    while (step >= 0 && step < STEPS && !met.missed && met.begun[other] <= step)
        met.missed += pthread_cond_timedwait(&met.changed, &met.lock, &deadline) == ETIMEDOUT;
    pthread_mutex_unlock(&met.lock);
}

static bool meet_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    (void)error, (void)error_bytes;
    args->out[0] = args->in[0];
    return true;
}

/* y = x + 1. Beside the kernel of a step runs the source of the next, or the sink of the one before. It takes long
 * enough for its worker not to keep back what it has to tell others (actors/worker.h). */
static weir_status meet_kernel(const weir_kernel_args *args)
{
    begin(KERNEL, args->step);
    usleep(20);
    if (met.other != KERNEL)
        await(met.other, args->step + (met.other == SOURCE ? 1 : -1));
    for (int i = 0; i < ITEMS; i++)
        ((float *)args->out[0].data)[i] = ((const float *)args->in[0].data)[i] + 1;
    return WEIR_OK;
}

static const weir_op op_meet = {.name = "test_meet",
                                .in_min = 1,
                                .in_max = 1,
                                .out_count = 1,
                                .infer = meet_infer,
                                .kernel = {[WEIR_CPU] = meet_kernel}};

static weir_status give(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    (void)micro;
    begin(SOURCE, step);
    if (met.other == SOURCE)
        await(KERNEL, step - 1);
    for (int i = 0; i < ITEMS; i++)
        ((float *)dst->data)[i] = (float)step;
    if (ctx)
        usleep(*(const unsigned *)ctx);
    return WEIR_OK;
}

static weir_status take(void *ctx, const weir_view *value, int64_t step, int micro)
{
    (void)ctx, (void)micro;
    begin(SINK, step);
    if (met.other == SINK)
        await(KERNEL, step + 1);
    return ((const float *)value->data)[ITEMS - 1] == (float)step + 1 ? WEIR_OK : WEIR_E_ARGUMENT;
}

/* `sinks`: the queue of the sink; NULL: the source's. */
static weir_plan *meeting(unsigned *sleep_us, const char *sinks)
{
    weir_graph *g = weir_graph_new("meeting");
    cr_assert_eq(weir_op_register(&op_meet), WEIR_OK, "%s", weir_error());
    weir_tensor *x = weir_input(g, WEIR_F32, {ITEMS}, .name = "x", .source = give, .ctx = sleep_us);
    weir_tensor *y =
        weir_op_apply(&(weir_apply){.src = WEIR_HERE, .name = "y", .op = &op_meet, .in = &x, .in_count = 1}, NULL);
    weir_fetch(y, .name = "out", .sink = take, .queue = sinks);
    weir_plan *plan = weir_compile(g);
    cr_assert_not_null(plan, "%s", weir_error());
    weir_graph_free(g);
    return plan;
}

/* Where two wait for each other, no third may be behind one of them: the source of the next step, behind the sink. */
static void run_meeting(enum who other, const char *trace)
{
    weir_plan *plan = meeting(NULL, other == KERNEL ? NULL : "sinks");
    met.other = other;
    weir_session *s = weir_session_open(plan, .workers = 1, .trace = trace);
    cr_assert_not_null(s, "%s", weir_error());
    cr_expect_eq(weir_session_run(s, STEPS), WEIR_OK, "%s", weir_error());
    cr_expect_eq(weir_session_close(s), WEIR_OK, "%s", weir_error());
    weir_plan_free(plan);
    cr_expect_eq(met.missed, 0, "they did not meet");
    for (int who = 0; who < WHO; who++)
        cr_expect_eq(met.begun[who], STEPS);
}

TestSuite(io, .timeout = 60);

Test(io, a_source_runs_while_the_step_before_computes)
{
    run_meeting(SOURCE, NULL);
}

Test(io, a_sink_runs_while_the_next_step_computes)
{
    run_meeting(SINK, NULL);
}

/* ---- in the trace ---- */

struct span {
    double start, end;
};

/* The time of the actor's event in that step. */
static struct span span_of(const char *json, const char *actor, int step)
{
    char name[64], number[32];
    struct span span = {0};
    snprintf(name, sizeof name, "{\"name\": \"%s\", \"ph\": \"X\"", actor);
    snprintf(number, sizeof number, "\"step\": %d,", step);
    for (const char *at = strstr(json, name); at; at = strstr(at + 1, name)) {
        const char *end = strchr(at, '\n'), *here = strstr(at, number);
        if (!here || here > end)
            continue;
        span.start = strtod(strstr(at, "\"ts\": ") + 6, NULL);
        span.end = span.start + strtod(strstr(at, "\"dur\": ") + 7, NULL);
        return span;
    }
    cr_assert_fail("the trace has no %s in step %d", actor, step);
    return span;
}

Test(io, the_trace_shows_both_at_the_same_time)
{
    char path[] = "/tmp/weir-io-XXXXXX";
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    run_meeting(SOURCE, path);
    char *json = json_read(path);
    cr_expect(json_valid(json));
    cr_expect_eq(json_count(json, "\"args\": {\"name\": \"io cpu:0\"}"), 1);
    for (int step = 0; step + 1 < STEPS; step++) {
        struct span kernel = span_of(json, "y", step), source = span_of(json, "x", step + 1);
        cr_expect(kernel.start < source.end && source.start < kernel.end, "step %d: %.3f to %.3f and %.3f to %.3f", step,
                  kernel.start, kernel.end, source.start, source.end);
    }
    free(json);
    close(fd);
    unlink(path);
}

/* ---- threads ---- */

Test(io, functions_of_a_device_are_called_by_one_thread_that_computes_nothing)
{
    run_meeting(KERNEL, NULL);
    for (int who = 0; who < WHO; who++)
        cr_expect_not(met.elsewhere[who]);
    cr_expect(pthread_equal(met.thread[SOURCE], met.thread[SINK]));
    cr_expect_not(pthread_equal(met.thread[SOURCE], met.thread[KERNEL]));
}

Test(io, their_thread_is_no_worker_and_never_spins)
{
    weir_plan *plan = meeting(NULL, NULL);
    weir_session *s = weir_session_open(plan);
    weir_session_stats stats;
    cr_assert_not_null(s, "%s", weir_error());
    cr_assert_eq(weir_session_run(s, STEPS), WEIR_OK, "%s", weir_error());
    weir_session_get_stats(s, &stats);
    cr_expect_eq(stats.workers, 1);
    cr_assert_eq(stats.queue_count, 2);
    cr_expect_str_eq(stats.queue[0].name, "cpu:0");
    cr_expect(!stats.queue[0].io && stats.queue[1].io);
    cr_expect_str_eq(stats.queue[1].name, "io cpu:0");
    cr_expect_eq(stats.queue[0].firings, STEPS);
    cr_expect_eq(stats.queue[1].firings, 2 * STEPS);
    cr_assert_eq(s->workers.count, 2);
    cr_expect_eq(s->workers.list[1].lane.mailbox.spin.least_ns, 0);
    weir_session_close(s);
    weir_plan_free(plan);
}

static int64_t cpu_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* The source sleeps for 600 ms, and takes hardly any processor time in them. */
Test(io, a_source_that_sleeps_costs_no_core)
{
    unsigned sleep_us = 200000;
    weir_plan *plan = meeting(&sleep_us, NULL);
    weir_session *s = weir_session_open(plan);
    cr_assert_not_null(s, "%s", weir_error());
    int64_t before = cpu_ms();
    cr_assert_eq(weir_session_run(s, 3), WEIR_OK, "%s", weir_error());
    cr_expect_lt(cpu_ms() - before, 450);
    weir_session_close(s);
    weir_plan_free(plan);
}

static weir_status look(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    (void)step, (void)micro;
    memset(dst->data, 0, ITEMS * sizeof(float));
    return sched_getaffinity(0, sizeof(cpu_set_t), ctx) ? WEIR_E_IO : WEIR_OK;
}

Test(io, pinning_leaves_it_all_cores)
{
    cpu_set_t cores;
    weir_graph *g = weir_graph_new("pinned");
    weir_fetch(weir_neg(weir_input(g, WEIR_F32, {ITEMS}, .name = "x", .source = look, .ctx = &cores)), .name = "y");
    weir_plan *plan = weir_compile(g);
    cr_assert_not_null(plan, "%s", weir_error());
    weir_session *s = weir_session_open(plan, .pin = true);
    cr_assert_not_null(s, "%s", weir_error());
    cr_assert_eq(weir_session_run(s, 1), WEIR_OK, "%s", weir_error());
    cr_expect_eq(CPU_COUNT(&cores), cores_in_mask());
    weir_session_close(s);
    weir_plan_free(plan);
    weir_graph_free(g);
}

/* ---- calls ---- */

static weir_status add_ten(const weir_kernel_args *args)
{
    for (int i = 0; i < ITEMS; i++)
        ((float *)args->out[0].data)[i] = ((const float *)args->in[0].data)[i] + 10;
    return WEIR_OK;
}

static _Atomic int nobody_calls;

static weir_status count_call(const weir_kernel_args *args)
{
    (void)args;
    nobody_calls++;
    return WEIR_OK;
}

/* Readers of a call wait for it; a call whose value nobody reads is called all the same. */
Test(io, calls_are_in_the_middle_of_a_step)
{
    weir_graph *g = weir_graph_new("calls");
    weir_tensor *x = weir_input(g, WEIR_F32, {ITEMS}, .name = "x", .micro = true);
    weir_tensor *a = weir_call(add_ten, {weir_neg(x)}, .name = "a", .dtype = WEIR_F32, .shape = {ITEMS});
    weir_call(count_call, {a}, .name = "nobody", .dtype = WEIR_F32, .shape = {1000});
    weir_fetch(weir_add(a, weir_neg(a)), .name = "zero");
    weir_fetch(a, .name = "a");
    weir_plan *plan = weir_compile(g, .micro_batches = 3);
    cr_assert_not_null(plan, "%s", weir_error());
    for (uint32_t q = 0; q < plan->queues_count; q++)
        cr_expect(plan->queues[q].kind != PLAN_IO_QUEUE || !plan->queues[q].workspace_bytes);
    run r = run_plan(plan, STEPS, 1);
    for (int i = 0; i < STEPS * 3 * ITEMS; i++) {
        cr_expect_eq(run_find(&r, "zero")->value[i], 0);
        double x_i = run_input("x", WEIR_F32, i / (3 * ITEMS), i / ITEMS % 3, i % ITEMS);
        cr_expect_float_eq(run_find(&r, "a")->value[i], 10 - x_i, 1e-5);
    }
    cr_expect_eq(nobody_calls, 3 * STEPS);
    run_free(&r);
    weir_plan_free(plan);
    weir_graph_free(g);
}

/* ---- a source that waits for what was made of its last value ---- */

enum { ASKING_STEPS = 5000, ASKS_EVERY = 3, ASK_US = 20, ASKS_MAX = PATIENCE_S * 1000000 / ASK_US };

static atomic_llong heard; /* steps */
static atomic_bool deaf;

/* The worker must send the source's last value before the source waits, though the source has always been quick. */
static weir_status give_when_heard(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    (void)ctx, (void)micro;
    for (int i = 0; step % ASKS_EVERY == 0 && !deaf && heard < step; i++) {
        if (i == ASKS_MAX)
            deaf = true;
        usleep(ASK_US);
    }
    for (int i = 0; i < ITEMS; i++)
        ((float *)dst->data)[i] = (float)step;
    return WEIR_OK;
}

Test(io, a_source_may_wait_for_what_was_made_of_its_last_value, .timeout = 120)
{
    weir_graph *g = weir_graph_new("asking");
    weir_fetch(weir_relu(weir_input(g, WEIR_F32, {ITEMS}, .name = "x", .source = give_when_heard)), .name = "out");
    weir_plan *plan = weir_compile(g);
    cr_assert_not_null(plan, "%s", weir_error());
    weir_session *s = weir_session_open(plan, .stall_s = -1);
    cr_assert_not_null(s, "%s", weir_error());
    cr_expect_eq(weir_session_start(s, ASKING_STEPS), WEIR_OK, "%s", weir_error());
    for (heard = 0; heard < ASKING_STEPS; heard++) {
        float out[ITEMS];
        cr_assert_eq(weir_session_pull(s, "out", &(weir_array){.data = out, .dtype = WEIR_F32, .shape = {1, {ITEMS}}}, -1),
                     WEIR_OK, "%s", weir_error());
        cr_assert_eq(out[0], (float)heard);
    }
    cr_expect_eq(weir_session_wait(s, -1), WEIR_OK, "%s", weir_error());
    cr_expect(!deaf, "it waited in vain for step %lld", (long long)heard);
    cr_expect_eq(weir_session_close(s), WEIR_OK);
    weir_plan_free(plan);
    weir_graph_free(g);
}

/* ---- other kernels on such a queue ---- */

static bool only_converts(const weir_plan *plan, const plan_actor *actor)
{
    bool converts = actor->kernels.count && !actor->temps.count && !actor->states.count;
    for (uint32_t k = actor->kernels.first; k < actor->kernels.first + actor->kernels.count; k++)
        converts &= !strcmp(plan_text(plan, plan->kernels[k].op), "box");
    return converts;
}

/* One io queue for each space, behind those that are there; actors that convert move there. Returns how many. */
static int move_conversions(weir_plan *plan)
{
    int moved = 0;
    uint32_t first = plan->queues_count;
    plan->queues = realloc(plan->queues, (first + plan->spaces_count) * sizeof *plan->queues);
    cr_assert_not_null(plan->queues);
    for (uint32_t s = 0; s < plan->spaces_count; s++)
        plan->queues[plan->queues_count++] = (plan_queue){.space = {s}, .kind = PLAN_IO_QUEUE, .name = plan->spaces[s].name};
    for (uint32_t a = 0; a < plan->actors_count; a++)
        if (only_converts(plan, &plan->actors[a])) {
            plan->actors[a].queue.i = first + plan->queues[plan->actors[a].queue.i].space.i;
            moved++;
        }
    plan->hash = plan_hash(plan);
    return moved;
}

Test(io, conversions_may_run_there_and_change_no_bit)
{
    int moved = 0;
    for (uint64_t model = 1; model <= 6; model++) {
        weir_graph *g = random_model(model, model);
        weir_plan *plan = weir_compile(g, .micro_batches = random_model_micro(model), .seed = model);
        cr_assert_not_null(plan, "%s", weir_error());
        weir_plan *other = plan_copy(plan);
        moved += move_conversions(other);
        cr_assert_eq(plan_validate(other), WEIR_OK, "%s", weir_error());
        cr_assert_eq(weir_plan_check(other), WEIR_OK, "%s", weir_error());
        run a = run_plan(plan, STEPS, 2), b = run_plan(other, STEPS, 2);
        run_near(&b, &a, 0, "conversions on queues of their own");
        run_free(&a);
        run_free(&b);
        weir_plan_free(other);
        weir_plan_free(plan);
        weir_graph_free(g);
    }
    cr_expect_gt(moved, 10);
}
