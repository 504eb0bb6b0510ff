/* tests/actors/session/test_sdf.c: what weir_plan_check() says about a plan is what the runtime does with it.
 *
 * Random plans: several devices, actors that fire once or M times a step, registers with every fill and hold that
 * fits, several readers, feedback edges with too few initial slots or too few slots at all, so that about half of
 * them deadlock. A live one has to complete its steps on any number of workers; one that is not has to stall, and to
 * be closed.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <time.h>

#include <weir/session.h>

#include "tests/support/ops.h"
#include "tests/support/sdf.h"

#define ACTORS_MAX 9
#define STEPS 5
#define LIVE_MS 10000
#define STALL_MS 3

static uint32_t up_to(unsigned *seed, uint32_t limit)
{
    return (uint32_t)rand_r(seed) % limit;
}

/* A rate for one end of an edge: of `fires` firings, `tokens` per step. */
static uint32_t rate(uint32_t fires, uint32_t tokens)
{
    return fires / tokens;
}

static void random_edge(sdf *s, unsigned *seed, uint32_t from, uint32_t to, const uint32_t *fires)
{
    uint32_t smaller = fires[from] < fires[to] ? fires[from] : fires[to];
    uint32_t tokens = up_to(seed, 2) ? smaller : 1; /* slots that pass per step: divides both */
    bool back = to <= from;
    uint32_t slots = 1 + up_to(seed, 3);
    uint32_t initial = back ? up_to(seed, slots + 1) : up_to(seed, 8) == 0;
    uint32_t regst = sdf_regst(s, from, .slots = slots, .fill = rate(fires[from], tokens), .initial = initial);
    sdf_port(s, to, regst, .hold = rate(fires[to], tokens));
    for (uint32_t other = from + 1; fires[from] == 1 && other < to; other++) /* more readers */
        if (up_to(seed, 3) == 0 && tokens == 1)
            sdf_port(s, other, regst, .hold = fires[other]);
}

static weir_plan *random_plan(unsigned *seed)
{
    uint32_t micro = 1 + up_to(seed, 4), fires[ACTORS_MAX], queues[3];
    uint32_t actors = 2 + up_to(seed, ACTORS_MAX - 1);
    sdf *s = sdf_new("random", micro);
    for (int i = 0; i < 3; i++)
        queues[i] = sdf_device(s);
    for (uint32_t a = 0; a < actors; a++) {
        fires[a] = up_to(seed, 2) ? micro : 1;
        sdf_actor(s, queues[up_to(seed, 3)], "a", .fires = fires[a], .kernel = "test_none",
                  .priority = 1 + up_to(seed, 2) * 100 + a);
    }
    for (uint32_t a = 1; a < actors; a++)
        random_edge(s, seed, up_to(seed, a), a, fires);
    for (uint32_t i = up_to(seed, 3); i > 0; i--) {
        uint32_t from = up_to(seed, actors);
        random_edge(s, seed, from, up_to(seed, from + 1), fires);
    }
    return sdf_plan(s);
}

static void play(const weir_plan *plan, bool live, int workers, unsigned seed)
{
    weir_session *session = weir_session_open(plan, .workers = workers);
    cr_assert_not_null(session, "%s", weir_error());
    cr_assert_eq(weir_session_start(session, STEPS), WEIR_OK);
    weir_status status = weir_session_wait(session, live ? LIVE_MS : STALL_MS);
    cr_assert_eq(status, live ? WEIR_OK : WEIR_E_TIMEOUT, "seed %u, %d workers: the check says %s, the run %s", seed,
                 workers, live ? "live" : "not live", weir_status_name(status));
    if (live) { /* and again: a step returns to the start */
        cr_assert_eq(weir_session_start(session, 2 * STEPS), WEIR_OK);
        cr_assert_eq(weir_session_wait(session, LIVE_MS), WEIR_OK, "seed %u: the second run stalls", seed);
        weir_session_stats stats;
        weir_session_get_stats(session, &stats);
        cr_assert_eq(stats.steps, 3 * STEPS);
    }
    cr_assert_eq(weir_session_close(session), WEIR_OK);
}

Test(sdf, the_check_and_the_runtime_agree_on_random_graphs, .timeout = 60)
{
    unsigned start = (unsigned)time(NULL) * 1000;
    int live_count = 0, games = 150;
    test_ops();
    for (int game = 0; game < games; game++) {
        unsigned seed = start + (unsigned)game;
        weir_plan *plan = random_plan(&(unsigned){seed});
        cr_assert_eq(plan_validate(plan), WEIR_OK, "seed %u: %s", seed, weir_error());
        weir_status verdict = weir_plan_check(plan);
        cr_assert(verdict == WEIR_OK || verdict == WEIR_E_LIVE, "seed %u: %s", seed, weir_error());
        live_count += verdict == WEIR_OK;
        play(plan, verdict == WEIR_OK, 1 + game % 3, seed);
        weir_plan_free(plan);
    }
    cr_assert_gt(live_count, games / 8, "%d of %d plans are live (first seed %u)", live_count, games, start);
    cr_assert_lt(live_count, games - games / 8, "%d of %d plans are live (first seed %u)", live_count, games, start);
}

/* The same numbers come out of any interleaving: a feedback loop over three devices whose values depend on every
 * step. */
static float feedback_result(int workers)
{
    sdf *s = sdf_new("feedback", 2);
    uint32_t q[3] = {sdf_device(s), sdf_device(s), sdf_device(s)};
    uint32_t a = sdf_actor(s, q[0], "a", .kernel = "test_sum", .fires = 2);
    uint32_t b = sdf_actor(s, q[1], "b", .kernel = "test_sum", .fires = 2);
    uint32_t c = sdf_actor(s, q[2], "c", .kernel = "test_sum", .accumulate = true, .fires = 2);
    uint32_t loop = sdf_regst(s, c, .fill = 2, .slots = 2, .initial = 1, .items = 1, .init = WEIR_INIT_VALUE, .a = 0.5,
                              .param = "loop");
    uint32_t ab = sdf_regst(s, a, .slots = 2, .items = 1);
    sdf_port(s, a, loop, .hold = 2);
    sdf_port(s, b, ab);
    sdf_port(s, c, ab);
    sdf_port(s, c, sdf_regst(s, b, .items = 1));
    weir_plan *plan = sdf_plan(s);
    cr_assert_eq(plan_validate(plan), WEIR_OK, "%s", weir_error());
    cr_assert_eq(weir_plan_check(plan), WEIR_OK, "%s", weir_error());
    weir_session *session = weir_session_open(plan, .workers = workers);
    cr_assert_eq(weir_session_run(session, 20), WEIR_OK);
    float value = 0;
    cr_assert_eq(weir_session_read(session, "loop", &(weir_array){&value, WEIR_F32, {1, {1}}}), WEIR_OK, "%s",
                 weir_error());
    weir_session_close(session);
    weir_plan_free(plan);
    return value;
}

Test(sdf, the_number_of_workers_changes_no_bit, .timeout = 120)
{
    test_ops();
    float expected = 0.5f; /* per step: twice 2 (x + 1) + 1 + 1 */
    for (int i = 0; i < 20; i++)
        expected = 2 * (2 * (expected + 1) + 1 + 1);
    for (int round = 0; round < 5; round++)
        for (int workers = 1; workers <= 3; workers++)
            cr_assert_float_eq(feedback_result(workers), expected, 0);
}
