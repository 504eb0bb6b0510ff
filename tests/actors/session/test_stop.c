/* tests/actors/session/test_stop.c: runs that are ended before their time, in one process: after whichever step that
 * is, everything is as after a run that was asked for so many. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <weir/weir.h>

#include "tests/support/json.h"

TestSuite(stop, .timeout = 120);

#define OK(call) cr_assert_eq((call), WEIR_OK, "%s", weir_error())

enum { ROWS = 4, WIDTH = 6, STEPS = 60, MICRO_MAX = 3, WAIT_MS = 20000, ROUNDS = 12 };

/* ---- a model: micro-batches, a pipeline or copies, an optimizer that counts steps ---- */

struct shape {
    int devices, micro_batches;
    bool stages; /* of a pipeline, rather than copies */
};

static const struct shape shapes[] = {{1, 1, false}, {2, 1, false}, {4, 3, false}, {2, 3, true}, {3, 2, true}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* The actions of the model's functions, and the values that they saw. */
struct scene {
    weir_session *session;
    int64_t stop_at; /* the step in whose source the run is stopped; -1: never */
    bool stop_late;  /* in the sink rather */
    float loss[STEPS * MICRO_MAX];
    int losses;
};

static weir_status give(void *ctx, const weir_view *x, int64_t step, int micro)
{
    struct scene *scene = ctx;
    for (int i = 0; i < ROWS * WIDTH; i++)
        ((float *)x->data)[i] = weir_random_normal((uint64_t)step * MICRO_MAX + (uint64_t)micro, (uint64_t)i);
    if (!scene->stop_late && scene->stop_at == step)
        weir_session_stop(scene->session);
    return WEIR_OK;
}

static weir_status take(void *ctx, const weir_view *loss, int64_t step, int micro)
{
    struct scene *scene = ctx;
    (void)micro;
    cr_assert_lt(scene->losses, STEPS * MICRO_MAX);
    scene->loss[scene->losses++] = *(const float *)loss->data;
    if (scene->stop_late && scene->stop_at == step)
        weir_session_stop(scene->session);
    return WEIR_OK;
}

static weir_plan *model_plan(struct shape shape)
{
    char mesh[32];
    weir_graph *g = weir_graph_new("stopped");
    snprintf(mesh, sizeof mesh, "cpu:0-%d", shape.devices - 1);
    weir_mesh *first = weir_mesh_new(g, shape.stages ? "cpu:0" : mesh), *last = first;
    if (shape.stages)
        last = weir_mesh_new(g, shape.devices > 2 ? "cpu:1-2" : "cpu:1");
    weir_tensor *x = weir_input(g, WEIR_F32, {ROWS, WIDTH}, .name = "x", .micro = true, .source = give,
                                .sbp = {shape.stages ? WEIR_AUTO : S(0)});
    weir_tensor *y = weir_tanh(weir_linear(x, WIDTH, .name = "first"));
    WEIR_ON (last) {
        y = weir_linear(weir_shard(y, .mesh = last), WIDTH, .name = "second");
        weir_tensor *loss = weir_mean(weir_mul(y, y));
        weir_train(loss, weir_adamw(.lr = 0.05));
        weir_fetch(loss, .name = "loss", .sink = take);
    }
    weir_plan *plan = weir_compile(g, .micro_batches = shape.micro_batches);
    cr_assert_not_null(plan, "%s", weir_error());
    weir_graph_free(g);
    return plan;
}

static weir_session *model_open(const weir_plan *plan, struct scene *scene, int workers, const char *trace)
{
    weir_session *s = weir_session_open(
        plan, .workers = workers, .trace = trace,
        .bindings = (weir_binding[]){{.name = "x", .source = give, .ctx = scene},
                                     {.name = "loss", .sink = take, .ctx = scene}, {0}});
    cr_assert_not_null(s, "%s", weir_error());
    scene->session = s;
    return s;
}

/* Both weights, after so many steps. */
typedef struct {
    float first[WIDTH * WIDTH], second[WIDTH * WIDTH];
} weights;

static void weights_read(weir_session *s, weights *w)
{
    OK(weir_session_read(s, "first/weight", &(weir_array){w->first, WEIR_F32, {2, {WIDTH, WIDTH}}}));
    OK(weir_session_read(s, "second/weight", &(weir_array){w->second, WEIR_F32, {2, {WIDTH, WIDTH}}}));
}

/* The values of an undisturbed session after each step. */
struct truth {
    weights after[STEPS + 1];
    struct scene scene;
};

static struct truth *truth_new(const weir_plan *plan)
{
    struct truth *truth = calloc(1, sizeof *truth);
    truth->scene.stop_at = -1;
    weir_session *s = model_open(plan, &truth->scene, 1, NULL);
    weights_read(s, &truth->after[0]);
    for (int step = 1; step <= STEPS; step++) {
        OK(weir_session_run(s, 1));
        weights_read(s, &truth->after[step]);
    }
    OK(weir_session_close(s));
    return truth;
}

static int64_t steps_of(const weir_session *s)
{
    weir_session_stats stats;
    weir_session_get_stats(s, &stats);
    return stats.steps;
}

/* At rest everything is as after as many steps as the session says. */
static void expect_true(const struct truth *truth, weir_session *s, const struct scene *scene, int micro_batches)
{
    static weights now;
    int64_t steps = steps_of(s);
    weights_read(s, &now);
    cr_assert_eq(scene->losses, steps * micro_batches, "%d losses after %lld steps", scene->losses, (long long)steps);
    cr_assert_arr_eq(&now, &truth->after[steps], sizeof now, "weights after %lld steps", (long long)steps);
    cr_assert_arr_eq(scene->loss, truth->scene.loss, sizeof(float) * (size_t)scene->losses, "losses");
}

/* ---- at any moment ---- */

struct clock_stop {
    weir_session *session;
    long ns;
};

static void *stop_after(void *arg)
{
    const struct clock_stop *stop = arg;
    nanosleep(&(struct timespec){0, stop->ns}, NULL);
    weir_session_stop(stop->session);
    return NULL;
}

/* One run of all that is left, which another thread stops. Whether that was in the middle. */
static bool run_stopped(weir_session *s, unsigned *seed)
{
    struct clock_stop stop = {s, (long)(rand_r(seed) % 8 ? rand_r(seed) % 400000 : 0)};
    pthread_t thread;
    int64_t before = steps_of(s);
    if (rand_r(seed) % 8 == 0) {
        weir_session_stop(s); /* before it begins */
        OK(weir_session_run(s, STEPS - before));
        cr_assert_eq(steps_of(s), before);
        return false;
    }
    OK(weir_session_start(s, STEPS - before));
    cr_assert_eq(pthread_create(&thread, NULL, stop_after, &stop), 0);
    OK(weir_session_wait(s, WAIT_MS));
    pthread_join(thread, NULL);
    cr_assert_geq(steps_of(s), before);
    return steps_of(s) > before && steps_of(s) < STEPS;
}

Test(stop, at_any_moment_leaves_what_so_many_steps_leave)
{
    int middle = 0;
    for (int i = 0; i < SHAPES; i++) {
        weir_plan *plan = model_plan(shapes[i]);
        struct truth *truth = truth_new(plan);
        for (int round = 0; round < ROUNDS; round++) {
            struct scene scene = {.stop_at = -1};
            unsigned seed = (unsigned)(1000 * i + round);
            weir_session *s = model_open(plan, &scene, 1 + round % 4, NULL);
            for (int runs = 0; steps_of(s) < STEPS && runs < 1000; runs++) {
                middle += run_stopped(s, &seed);
                expect_true(truth, s, &scene, shapes[i].micro_batches);
            }
            cr_expect_eq(steps_of(s), STEPS, "seed %u", (unsigned)(1000 * i + round));
            OK(weir_session_close(s));
        }
        free(truth);
        weir_plan_free(plan);
    }
    cr_expect_gt(middle, SHAPES * ROUNDS / 4);
}

/* ---- from where ---- */

/* A source says so in a step that it has begun: that step is finished, and none that nobody had begun. */
Test(stop, from_a_source_or_a_sink_ends_the_run_with_that_step_or_soon_after)
{
    for (int i = 0; i < SHAPES; i++) {
        weir_plan *plan = model_plan(shapes[i]);
        struct truth *truth = truth_new(plan);
        for (int late = 0; late < 2; late++) {
            struct scene scene = {.stop_at = 20, .stop_late = late};
            weir_session *s = model_open(plan, &scene, 0, NULL);
            OK(weir_session_run(s, STEPS));
            int64_t steps = steps_of(s);
            cr_expect(steps > 20 && steps < 30, "%lld steps", (long long)steps);
            expect_true(truth, s, &scene, shapes[i].micro_batches);
            scene.stop_at = -1;
            OK(weir_session_run(s, STEPS - steps));
            cr_expect_eq(steps_of(s), STEPS);
            expect_true(truth, s, &scene, shapes[i].micro_batches);
            OK(weir_session_close(s));
        }
        free(truth);
        weir_plan_free(plan);
    }
}

static weir_session *signalled;

static void on_signal(int number)
{
    (void)number;
    weir_session_stop(signalled);
}

Test(stop, from_a_signal_handler_loses_no_signal)
{
    weir_plan *plan = model_plan(shapes[3]);
    struct truth *truth = truth_new(plan);
    struct scene scene = {.stop_at = -1};
    struct sigaction action = {.sa_handler = on_signal}, before;
    weir_session *s = signalled = model_open(plan, &scene, 2, NULL);
    sigaction(SIGUSR1, &action, &before);
    for (int k = 0; k < 20 && steps_of(s) < STEPS / 2; k++) {
        int64_t left = STEPS / 2 - steps_of(s);
        OK(weir_session_start(s, left));
        raise(SIGUSR1);
        OK(weir_session_wait(s, WAIT_MS));
        if (steps_of(s) == STEPS / 2)
            break; /* the stop may be for the next one */
        raise(SIGUSR1); /* at rest: the next run is over at once */
        int64_t steps = steps_of(s);
        OK(weir_session_run(s, 3));
        cr_assert_eq(steps_of(s), steps);
        OK(weir_session_run(s, 1));
        cr_assert_eq(steps_of(s), steps + 1);
        expect_true(truth, s, &scene, shapes[3].micro_batches);
    }
    sigaction(SIGUSR1, &before, NULL);
    OK(weir_session_close(s));
    free(truth);
    weir_plan_free(plan);
}

/* Also when it comes too late to make that run shorter. */
Test(stop, holds_until_it_has_made_a_run_shorter)
{
    weir_plan *plan = model_plan(shapes[0]);
    struct scene scene = {.stop_at = 4, .stop_late = true};
    weir_session *s = model_open(plan, &scene, 1, NULL);
    OK(weir_session_run(s, 5));
    cr_expect_eq(steps_of(s), 5);
    OK(weir_session_run(s, 5));
    cr_expect_eq(steps_of(s), 5);
    OK(weir_session_run(s, 5));
    cr_expect_eq(steps_of(s), 10);
    weir_session_stop(s);
    weir_session_stop(s); /* twice is once */
    OK(weir_session_run(s, 5));
    cr_expect_eq(steps_of(s), 10);
    OK(weir_session_run(s, 5));
    cr_expect_eq(steps_of(s), 15);
    OK(weir_session_close(s));
    weir_plan_free(plan);
}

Test(stop, leaves_a_trace_that_is_whole)
{
    char path[] = "/tmp/weir-stop-XXXXXX";
    cr_assert_geq(mkstemp(path), 0);
    weir_plan *plan = model_plan(shapes[3]);
    struct scene scene = {.stop_at = 7};
    weir_session *s = model_open(plan, &scene, 2, path);
    OK(weir_session_run(s, STEPS));
    OK(weir_session_close(s));
    char *text = json_read(path);
    cr_expect(json_valid(text) && json_count(text, "\"ph\": \"X\"") > 0);
    free(text);
    remove(path);
    weir_plan_free(plan);
}
