/* tests/actors/session/test_leave.c: ranks that have done their steps and close their sessions, while others are slow:
 * nobody is lost by that, and nothing that was sent. WEIR_TEST_RUNS=200 repeats each case that often. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weir/weir.h>

#include "graph/plan/prove/check.h"
#include "tests/support/chain.h"
#include "tests/support/effort.h"
#include "tests/support/ops.h"
#include "tests/support/ranks.h"
#include "tests/support/sdf.h"

TestSuite(leave, .timeout = 3600);

enum { RUNS_USUAL = 4, RANKS = 3 };

static int runs(int usual)
{
    const char *said = getenv("WEIR_TEST_RUNS");
    return said ? atoi(said) : usual;
}

/* A source on device 0, and on each of the others a stage that reads it and a sink. */
static weir_plan *fan(int devices, uint32_t items)
{
    char name[16];
    test_ops();
    sdf *s = sdf_new("fan", 1);
    uint32_t queue[RANKS], source;
    for (int d = 0; d < devices; d++)
        queue[d] = sdf_device(s);
    source = sdf_regst(s, sdf_actor(s, queue[0], "x", SOURCE), .slots = 2, .items = items);
    for (int d = 1; d < devices; d++) {
        snprintf(name, sizeof name, "y%d", d);
        uint32_t stage = sdf_actor(s, queue[d], "stage", .kernel = "test_sum");
        sdf_port(s, stage, source);
        uint32_t sink = sdf_actor(s, queue[d], name, SINK);
        sdf_port(s, sink, sdf_regst(s, stage, .slots = 1, .items = items));
    }
    weir_plan *plan = sdf_plan(s);
    cr_assert_eq(plan_validate(plan), WEIR_OK, "%s", weir_error());
    return plan;
}

struct scene {
    weir_plan *plan;
    int64_t steps;
    int slow;       /* this rank stops itself; -1: none */
    int64_t slow_at; /* in this step */
    int pause_ms;   /* in each step of the sinks */
};

struct outcome {
    int values, wrong, reports;
    char report[800];
};

struct watched_rank {
    struct rank *rank;
    const struct scene *scene;
    struct outcome *outcome;
};

static weir_status give(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    float *to = dst->data;
    (void)ctx;
    (void)micro;
    for (int64_t i = 0; i < dst->shape.dim[0]; i++)
        to[i] = (float)(step + i % 1000);
    return WEIR_OK;
}

static weir_status see(void *ctx, const weir_view *value, int64_t step, int micro)
{
    const struct watched_rank *w = ctx;
    const float *from = value->data;
    (void)micro;
    for (int64_t i = 0; i < value->shape.dim[0]; i++)
        w->outcome->wrong += from[i] != (float)(step + i % 1000 + 1);
    w->outcome->values++;
    if (w->rank->number == w->scene->slow && step == w->scene->slow_at)
        raise(SIGSTOP);
    if (w->scene->pause_ms)
        ranks_pause(w->scene->pause_ms);
    return WEIR_OK;
}

static void keep_report(void *ctx, const char *said)
{
    const struct watched_rank *w = ctx;
    if (!w->outcome->reports++)
        snprintf(w->outcome->report, sizeof w->outcome->report, "%s", said);
}

static void run_and_leave(struct rank *rank)
{
    const struct scene *scene = rank->ctx;
    struct watched_rank w = {rank, scene, rank->result};
    weir_session *s =
        weir_session_open(scene->plan, .cluster = ranks_cluster(rank), .report = keep_report, .report_ctx = &w,
                          .stall_s = EFFORT(10, 100, 100), /* a kernel is slow there */
                          .bindings = (weir_binding[]){{.name = "x", .source = give},
                                                       {.name = "y1", .sink = see, .ctx = &w},
                                                       {.name = scene->plan->spaces_count > 2 ? "y2" : NULL,
                                                        .sink = see, .ctx = &w},
                                                       {0}});
    RANK_IS(rank, s, "%s", weir_error());
    RANK_OK(rank, weir_session_run(s, scene->steps));
    RANK_OK(rank, weir_session_close(s));
}

static void expect_all(const struct scene *scene, int count, enum ranks_link link, int wake_ms, int i)
{
    struct ranks *ranks = ranks_run(run_and_leave, (void *)scene, .count = count, .link = link,
                                    .result_bytes = sizeof(struct outcome), .wake_ms = wake_ms, .seconds = 120);
    for (int r = 0; r < count; r++) {
        const struct outcome *o = ranks->rank[r].result;
        cr_expect_eq(o->values, r ? scene->steps : 0, "run %d, rank %d: %d values", i, r, o->values);
        cr_expect_eq(o->wrong, 0, "run %d, rank %d: %d wrong", i, r, o->wrong);
        cr_expect_eq(o->reports, 0, "run %d, rank %d reports: %s", i, r, o->report);
    }
    ranks_free(ranks);
}

Test(leave, a_rank_that_waits_for_a_slow_one_takes_no_other_for_lost)
{
    struct scene scene = {.plan = fan(3, 4 << 20), .steps = 2, .slow = 2};
    for (int i = 0; i < runs(RUNS_USUAL); i++)
        expect_all(&scene, 3, i % 2 ? RANKS_WIRE : RANKS_TCP, 900, i);
    weir_plan_free(scene.plan);
}

Test(leave, nobody_is_lost_while_large_registers_get_away)
{
    struct scene scene = {.plan = fan(3, 16 << 20), .steps = 2, .slow = -1};
    for (int i = 0; i < runs(2); i++)
        expect_all(&scene, 3, RANKS_TCP, 0, i);
    weir_plan_free(scene.plan);
}

/* The reader frees a register when the producer has closed its session, and has not read the last one. */
Test(leave, the_last_registers_arrive)
{
    struct scene scene = {.plan = fan(2, 2 << 20), .steps = 8, .slow = 1, .slow_at = 6};
    for (int i = 0; i < runs(RUNS_USUAL); i++)
        expect_all(&scene, 2, i % 2 ? RANKS_WIRE : RANKS_TCP, 700, i);
    weir_plan_free(scene.plan);
}

Test(leave, a_rank_that_shares_memory_waits_for_those_that_do_not)
{
    struct scene scene = {.plan = fan(3, 1 << 10), .steps = 2, .slow = 2};
    for (int i = 0; i < runs(1); i++)
        expect_all(&scene, 3, RANKS_SHM, 900, i);
    weir_plan_free(scene.plan);
}
