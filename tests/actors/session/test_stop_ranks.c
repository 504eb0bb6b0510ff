/* tests/actors/session/test_stop_ranks.c: sessions of several ranks that end before their time: wherever somebody says
 * so, all end after the same step, and what they leave is what a run of so many steps leaves. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weir/weir.h>

#include "tests/support/ranks.h"

TestSuite(stop_ranks, .timeout = 240);

enum { ROWS = 4, WIDTH = 6, STEPS = 40, RANKS = 4, RUNS_MAX = 400, WAIT_MS = 30000, HOLD_MS = 500 };

#define LINKS(link) for (enum ranks_link link = RANKS_SHM; link <= RANKS_TCP; link++)

typedef struct {
    float first[WIDTH * WIDTH], second[WIDTH * WIDTH];
} weights;

/* ---- the model: data-parallel, or a pipeline, over as many devices as ranks ---- */

struct play {
    weir_plan *plan;
    weights *truth;     /* after each step, of a session of one rank */
    unsigned seed;
    int64_t end;        /* -1: none */
    int ender;          /* the device whose source ends */
    bool fails, cancels;
    int idle;           /* one more rank, which has no device */
    bool dies;          /* the ender's rank; in its source, while the others hold */
};

struct source {
    const struct play *play;
    bool ends;
    weir_session *session;
};

struct result {
    weir_status status;
    int64_t steps;
    int middle; /* runs that were ended in the middle */
    char error[512];
};

static weir_status give(void *ctx, const weir_view *x, int64_t step, int micro)
{
    const struct source *source = ctx;
    if (source && source->ends && step >= source->play->end && source->play->dies) {
        ranks_pause(HOLD_MS);
        kill(getpid(), SIGKILL);
    }
    if (source && source->ends && step >= source->play->end) {
        if (!source->play->cancels)
            return source->play->fails ? WEIR_E_IO : WEIR_END;
        weir_session_cancel(source->session);
    }
    for (int i = 0; i < ROWS * WIDTH; i++)
        ((float *)x->data)[i] = weir_random_normal((uint64_t)step * 2 + (uint64_t)micro, (uint64_t)i);
    return WEIR_OK;
}

static weir_mesh *mesh_of(weir_graph *g, int first, int count)
{
    char devices[32];
    snprintf(devices, sizeof devices, "cpu:%d-%d", first, first + count - 1);
    return weir_mesh_new(g, devices);
}

/* On four devices from this one on. */
static weir_plan *plan_new(bool pipeline, int device)
{
    weir_graph *g = weir_graph_new("stop_ranks");
    weir_mesh *first = mesh_of(g, device, pipeline ? 2 : 4), *last = pipeline ? mesh_of(g, device + 2, 2) : first;
    weir_tensor *x = weir_input(g, WEIR_F32, {ROWS, WIDTH}, .name = "x", .micro = true, .source = give,
                                .sbp = {S(0)});
    weir_tensor *y = weir_tanh(weir_linear(x, WIDTH, .name = "first"));
    WEIR_ON (last) {
        weir_tensor *b = weir_input(g, WEIR_F32, {ROWS, WIDTH}, .name = "b", .source = give);
        y = weir_linear(weir_shard(y, .mesh = last), WIDTH, .name = "second");
        weir_tensor *loss = weir_mean(weir_mul(y, weir_mul(y, b)));
        weir_train(loss, weir_adamw(.lr = 0.05));
        weir_fetch(loss, .name = "loss", .slots = 4);
    }
    weir_plan *plan = weir_compile(g, .micro_batches = 2);
    cr_assert_not_null(plan, "%s", weir_error());
    weir_graph_free(g);
    return plan;
}

static weir_status weights_read(weir_session *s, weights *w)
{
    weir_status status = weir_session_read(s, "first/weight", &(weir_array){w->first, WEIR_F32, {2, {WIDTH, WIDTH}}});
    return status ? status
                  : weir_session_read(s, "second/weight", &(weir_array){w->second, WEIR_F32, {2, {WIDTH, WIDTH}}});
}

/* Pulls what a run makes, until there is no more. Returns what it got. */
static int pull_all(weir_session *s, int most)
{
    float loss;
    int count = 0;
    while (count < most && !weir_session_pull(s, "loss", &(weir_array){&loss, WEIR_F32, {0}}, -1))
        count++;
    return count;
}

/* By a session of one rank. */
static weights *truth_new(const weir_plan *plan)
{
    weights *truth = calloc(STEPS + 1, sizeof *truth);
    struct source none = {0};
    weir_session *s = weir_session_open(plan, .cluster = {.alone = true},
                                        .bindings = (weir_binding[]){{.name = "x", .source = give, .ctx = &none},
                                                                     {.name = "b", .source = give, .ctx = &none}, {0}});
    cr_assert_not_null(s, "%s", weir_error());
    cr_assert(!weights_read(s, &truth[0]));
    for (int step = 1; step <= STEPS; step++) {
        cr_assert(!weir_session_start(s, 1));
        cr_assert_eq(pull_all(s, 2), 2);
        cr_assert(!weir_session_wait(s, WAIT_MS) && !weights_read(s, &truth[step]));
    }
    cr_assert(!weir_session_close(s));
    return truth;
}

static void play_open_on(struct play *play, bool pipeline, int device)
{
    *play = (struct play){.plan = plan_new(pipeline, device), .end = -1};
    play->truth = truth_new(play->plan);
}

static void play_open(struct play *play, bool pipeline)
{
    play_open_on(play, pipeline, 0);
}

static void play_close(struct play *play)
{
    free(play->truth);
    weir_plan_free(play->plan);
}

static void no_report(void *ctx, const char *text)
{
    (void)ctx, (void)text;
}

static weir_session *play_session(struct rank *rank, struct source sources[2])
{
    const struct play *play = rank->ctx;
    for (int i = 0; i < 2; i++)
        sources[i] = (struct source){.play = play, .ends = play->end >= 0 && play->ender == i};
    weir_session *s = weir_session_open(
        play->plan, .cluster = ranks_cluster(rank), .report = no_report,
        .bindings = (weir_binding[]){{.name = "x", .source = give, .ctx = &sources[0]},
                                     {.name = "b", .source = give, .ctx = &sources[1]}, {0}});
    sources[0].session = sources[1].session = s;
    return s;
}

static int64_t steps_of(const weir_session *s)
{
    weir_session_stats stats;
    weir_session_get_stats(s, &stats);
    return stats.steps;
}

/* ---- stop ---- */

/* Every rank runs what is left; some of them stop it, sooner or later, or before it begins. */
static void run_and_stop(struct rank *rank)
{
    const struct play *play = rank->ctx;
    struct result *result = rank->result;
    struct source sources[2];
    static _Thread_local weights now;
    unsigned random = play->seed * 31 + (unsigned)rank->number;
    weir_session *s = play_session(rank, sources);
    RANK_IS(rank, s, "%s", weir_error());
    for (int run = 0; run < RUNS_MAX && steps_of(s) < STEPS; run++) {
        int64_t before = steps_of(s);
        int what = rand_r(&random) % 6;
        if (what == 0)
            weir_session_stop(s);
        RANK_OK(rank, weir_session_start(s, STEPS - before));
        int taken = what == 1 ? pull_all(s, rand_r(&random) % 9) : 0;
        if (what == 1)
            weir_session_stop(s);
        taken += pull_all(s, INT32_MAX);
        RANK_OK(rank, weir_session_wait(s, WAIT_MS));
        int64_t steps = steps_of(s);
        RANK_IS(rank, taken == 2 * (steps - before), "%d values of %d steps", taken, (int)(steps - before));
        result->middle += steps > before && steps < STEPS;
        if (rand_r(&random) % 4 && play->seed % 2)
            continue; /* the next run begins while others are still in this one */
    }
    RANK_IS(rank, steps_of(s) == STEPS, "%d steps", (int)steps_of(s));
    RANK_OK(rank, weights_read(s, &now));
    RANK_IS(rank, !memcmp(&now, &play->truth[STEPS], sizeof now), "the weights differ");
    RANK_OK(rank, weir_session_close(s));
}

/* As above, and looks at the weights after each run: which is a round, so all must have come to the same step. */
static void run_stop_and_look(struct rank *rank)
{
    const struct play *play = rank->ctx;
    struct result *result = rank->result;
    struct source sources[2];
    static _Thread_local weights now;
    unsigned random = play->seed * 17 + (unsigned)rank->number;
    weir_session *s = play_session(rank, sources);
    RANK_IS(rank, s, "%s", weir_error());
    for (int run = 0; run < RUNS_MAX && steps_of(s) < STEPS; run++) {
        int64_t before = steps_of(s);
        RANK_OK(rank, weir_session_start(s, STEPS - before));
        if (rand_r(&random) % RANKS < 2) {
            pull_all(s, rand_r(&random) % 5);
            weir_session_stop(s);
        }
        pull_all(s, INT32_MAX);
        RANK_OK(rank, weir_session_wait(s, WAIT_MS));
        RANK_OK(rank, weights_read(s, &now));
        int64_t steps = steps_of(s);
        result->middle += steps > before && steps < STEPS;
        RANK_IS(rank, !memcmp(&now, &play->truth[steps], sizeof now), "the weights differ after %d", (int)steps);
    }
    RANK_IS(rank, steps_of(s) == STEPS, "%d steps", (int)steps_of(s));
    RANK_OK(rank, weir_session_close(s));
}

Test(stop_ranks, on_any_of_them_ends_all_after_one_step)
{
    int middle = 0;
    for (int pipeline = 0; pipeline < 2; pipeline++) {
        struct play play;
        play_open(&play, pipeline);
        LINKS (link) {
            for (play.seed = 0; play.seed < 6; play.seed++) {
                struct ranks *ranks = ranks_run(play.seed < 3 ? run_and_stop : run_stop_and_look, &play, .count = RANKS,
                                                .link = link, .kind = RANKS_THREADS,
                                                .result_bytes = sizeof(struct result));
                middle += ((struct result *)ranks->rank[0].result)->middle;
                ranks_free(ranks);
            }
        }
        play_close(&play);
    }
    cr_expect_gt(middle, 10);
}

/* One more rank than there are devices: the last or the first has none, and runs as long as the others. */
Test(stop_ranks, without_a_device_end_with_the_others)
{
    int middle = 0;
    setenv("WEIR_DEVICES", "1", 1);
    for (int first = 0; first < 2; first++) {
        struct play play;
        play_open_on(&play, false, first);
        LINKS (link) {
            for (play.seed = 0; play.seed < 4; play.seed++) {
                struct ranks *ranks = ranks_run(run_stop_and_look, &play, .count = RANKS + 1, .link = link,
                                                .kind = RANKS_THREADS, .result_bytes = sizeof(struct result));
                middle += ((struct result *)ranks->rank[first ? 0 : RANKS].result)->middle;
                ranks_free(ranks);
            }
        }
        play_close(&play);
    }
    unsetenv("WEIR_DEVICES");
    cr_expect_gt(middle, 10);
}

/* ---- end ---- */

static void run_to_end(struct rank *rank)
{
    const struct play *play = rank->ctx;
    struct result *result = rank->result;
    struct source sources[2];
    static _Thread_local weights now;
    weir_session *s = play_session(rank, sources);
    RANK_IS(rank, s, "%s", weir_error());
    int taken = 0;
    result->status = weir_session_start(s, STEPS); /* another rank may have cancelled by now */
    RANK_IS(rank, !result->status || (play->cancels && result->status == WEIR_E_CANCELLED), "%s", weir_error());
    if (!result->status) {
        taken = pull_all(s, INT32_MAX);
        result->status = weir_session_wait(s, WAIT_MS);
    }
    snprintf(result->error, sizeof result->error, "%s", weir_error());
    result->steps = steps_of(s);
    if (!play->cancels && rank->number < RANKS)
        RANK_IS(rank, taken == 2 * play->end, "%d values, %s", taken, result->error);
    if (result->status == WEIR_E_END) {
        RANK_OK(rank, weights_read(s, &now));
        RANK_IS(rank, !memcmp(&now, &play->truth[play->end], sizeof now), "the weights differ");
        RANK_IS(rank, weir_session_run(s, 1) == WEIR_E_END, "%s", weir_error());
    }
    RANK_OK(rank, weir_session_close(s));
}

static void expect_all(struct play *play, enum ranks_link link, weir_status here, weir_status there, const char *part)
{
    struct ranks *ranks = ranks_run(run_to_end, play, .count = RANKS + play->idle, .link = link,
                                    .kind = RANKS_THREADS, .result_bytes = sizeof(struct result));
    int own = 0;
    for (int r = 0; r < RANKS + play->idle; r++) {
        const struct result *result = ranks->rank[r].result;
        cr_expect(result->status == here || result->status == there, "rank %d: %d: %s", r, result->status,
                  result->error);
        cr_expect(strstr(result->error, part), "rank %d: %s", r, result->error);
        own += !strstr(result->error, "reports");
        if (!play->cancels)
            cr_expect_eq(result->steps, play->end, "rank %d: %d steps", r, (int)result->steps);
    }
    cr_expect_eq(own, 1);
    ranks_free(ranks);
}

Test(stop_ranks, end_together_when_a_source_does)
{
    for (int pipeline = 0; pipeline < 2; pipeline++) {
        struct play play;
        play_open(&play, pipeline);
        LINKS (link) {
            for (play.ender = 0; play.ender < 2; play.ender++) {
                play.end = 9 + play.ender;
                play.idle = play.ender;
                play.fails = play.cancels = false;
                expect_all(&play, link, WEIR_E_END, WEIR_E_END, "come to its end");
                play.fails = true;
                expect_all(&play, link, WEIR_E_IO, WEIR_E_PEER, "(source) failed on cpu:");
                play.cancels = true;
                expect_all(&play, link, WEIR_E_CANCELLED, WEIR_E_CANCELLED, "cancelled on rank");
            }
        }
        play_close(&play);
    }
}

/* ---- what goes wrong meanwhile ---- */

/* All hold soon after the start, but the rank that is in its source. */
static void stop_and_lose(struct rank *rank)
{
    struct result *result = rank->result;
    struct source sources[2];
    weir_session *s = play_session(rank, sources);
    RANK_IS(rank, s, "%s", weir_error());
    RANK_OK(rank, weir_session_start(s, STEPS));
    ranks_pause(HOLD_MS / 4);
    weir_session_stop(s);
    pull_all(s, INT32_MAX);
    result->status = weir_session_wait(s, WAIT_MS);
    snprintf(result->error, sizeof result->error, "%s", weir_error());
    result->steps = weir_session_step(s);
    RANK_OK(rank, weir_session_close(s));
}

/* The third rank of the pipeline has the source `b`. */
Test(stop_ranks, name_one_that_is_lost_while_they_hold)
{
    struct play play;
    play_open(&play, true);
    play.end = 2;
    play.ender = 1;
    play.dies = true;
    LINKS (link) {
        struct ranks *ranks = ranks_run(stop_and_lose, &play, .count = RANKS, .link = link,
                                        .result_bytes = sizeof(struct result), .may_die = 1 << 2);
        cr_expect_eq(ranks->rank[2].signal, SIGKILL);
        for (int r = 0; r < RANKS; r++) {
            const struct result *result = ranks->rank[r].result;
            if (r == 2)
                continue;
            cr_expect_eq(result->status, WEIR_E_PEER, "rank %d: %d: %s", r, result->status, result->error);
            cr_expect(strstr(result->error, "rank 2 (pid ") && strstr(result->error, "is lost"), "rank %d: %s", r,
                      result->error);
            cr_expect_leq(result->steps, play.end, "rank %d: step %d", r, (int)result->steps);
        }
        ranks_free(ranks);
    }
    play_close(&play);
}
