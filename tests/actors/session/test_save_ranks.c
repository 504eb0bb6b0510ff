/* test_save_ranks.c: checkpoints of sessions of several ranks: each writes and reads what it holds, and all succeed or
 * all are told why not. Any number of ranks loads what any number has saved. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <weir/checkpoint.h>

#include "tests/support/effort.h"
#include "tests/support/folder.h"
#include "tests/support/learner.h"
#include "tests/support/ranks.h"

TestSuite(save_ranks, .init = folder_make, .fini = folder_remove, .timeout = 240);

enum { FIRST = 5, SECOND = 4, SEED = 20260103, PATH = 512 };
enum { PAIRS = EFFORT(24, 6, 6) };

/* The orders for ranks. */
struct job {
    const weir_plan *plan;
    char dir[PATH], other[PATH];
    bool async;
    bool learns_on; /* who loads trains on for the second part */
    const struct learned *want;
    double tolerance;
};

static void no_report(void *ctx, const char *said)
{
    (void)ctx, (void)said;
}

static weir_session *opened(const struct rank *rank, const weir_plan *plan)
{
    return weir_session_open(plan, .cluster = ranks_cluster(rank), .report = no_report);
}

#define RANK_LEARNED(rank, s, want, tolerance)                                  \
    do {                                                                        \
        struct learned got_ = learned_read(s);                                  \
        const char *differs_ = learned_differs(&got_, want, tolerance);         \
        learned_free(&got_);                                                    \
        RANK_IS(rank, !differs_, "%s", differs_);                               \
    } while (0)

/* The call is refused on every rank, with these words. */
#define RANK_TOLD(rank, call, ...)                                                                              \
    do {                                                                                                        \
        const char *parts_[] = {__VA_ARGS__};                                                                   \
        RANK_IS(rank, (call) != WEIR_OK, "%s went well", #call);                                                \
        for (size_t i_ = 0; i_ < sizeof parts_ / sizeof *parts_; i_++)                                          \
            RANK_IS(rank, strstr(weir_error(), parts_[i_]), "'%s' lacks '%s'", weir_error(), parts_[i_]);       \
    } while (0)

static struct learned undisturbed(const weir_plan *plan, int steps)
{
    weir_session *s = weir_session_open(plan, .workers = 2);
    cr_assert_not_null(s, "%s", weir_error());
    cr_assert_eq(weir_session_run(s, steps), WEIR_OK, "%s", weir_error());
    struct learned learned = learned_read(s);
    cr_assert_gt(learned.count, 20, "%s", weir_error());
    weir_session_close(s);
    return learned;
}

/* ---- going on ---- */

static void train_and_save(struct rank *rank)
{
    const struct job *job = rank->ctx;
    weir_session *s = opened(rank, job->plan);
    RANK_IS(rank, s, "%s", weir_error());
    RANK_OK(rank, weir_session_run(s, FIRST));
    RANK_OK(rank, weir_session_save(s, job->dir, .async = job->async));
    RANK_OK(rank, weir_session_run(s, SECOND));
    RANK_LEARNED(rank, s, job->want, 0); /* the save leaves no trace in it */
    RANK_OK(rank, weir_session_save_wait(s, -1));
    RANK_OK(rank, weir_session_close(s));
}

static void load_and_train(struct rank *rank)
{
    const struct job *job = rank->ctx;
    weir_session *s = opened(rank, job->plan);
    RANK_IS(rank, s, "%s", weir_error());
    RANK_OK(rank, weir_session_run(s, 2)); /* of which nothing is to be left */
    RANK_OK(rank, weir_session_load(s, job->dir));
    RANK_IS(rank, weir_session_step(s) == FIRST, "it is step %d", (int)weir_session_step(s));
    RANK_OK(rank, weir_session_run(s, SECOND));
    RANK_LEARNED(rank, s, job->want, job->tolerance);
    RANK_OK(rank, weir_session_close(s));
}

static int drawn(uint64_t *at, int below)
{
    return (int)(weir_random_uniform(SEED, (*at)++) * below);
}

struct pair {
    int from, to;             /* layouts */
    int ranks_from, ranks_to;
    enum ranks_link link;
    enum ranks_kind kind;
    bool async;
};

static struct pair pair_of(uint64_t i)
{
    uint64_t at = i * 16;
    struct pair p = {.from = drawn(&at, LEARNER_LAYOUTS), .to = drawn(&at, LEARNER_LAYOUTS)};
    p.to = i % 2 ? p.from : p.to;
    p.ranks_from = 1 + drawn(&at, 3);
    p.ranks_to = 1 + drawn(&at, 3);
    p.link = (enum ranks_link)drawn(&at, 3);
    p.kind = drawn(&at, 2) ? RANKS_THREADS : RANKS_PROCESSES;
    p.async = drawn(&at, 2);
#if defined(__SANITIZE_THREAD__)
    p.kind = RANKS_THREADS;
#endif
    return p;
}

static void expect_goes_on(struct pair p, const char *dir)
{
    struct learner_opts from = learner_layouts[p.from], to = learner_layouts[p.to];
    from.sure = to.sure = from.micro != to.micro;
    from.compile.snapshot = p.async;
    weir_plan *one = learner_plan_at(from), *other = learner_plan_at(to);
    cr_assert(one && other, "%s", weir_error());
    struct learned want = undisturbed(one, FIRST + SECOND);
    struct job job = {.plan = one, .async = p.async, .want = &want};
    snprintf(job.dir, sizeof job.dir, "%s", dir);
    ranks_free(ranks_run(train_and_save, &job, .count = p.ranks_from, .link = p.link, .kind = p.kind));
    job.plan = other;
    job.tolerance = p.from == p.to ? 0 : 1e-4;
    ranks_free(ranks_run(load_and_train, &job, .count = p.ranks_to, .link = p.link, .kind = p.kind));
    learned_free(&want);
    weir_plan_free(one);
    weir_plan_free(other);
}

Test(save_ranks, any_number_of_ranks_goes_on_with_what_any_number_has_saved)
{
    for (uint64_t i = 0; i < PAIRS; i++) {
        struct pair p = pair_of(i);
        fprintf(stderr, "seed %d, case %d: layout %d on %d ranks -> %d on %d, link %d, kind %d%s\n", SEED, (int)i,
                p.from, p.ranks_from, p.to, p.ranks_to, p.link, p.kind, p.async ? ", async" : "");
        expect_goes_on(p, folder_path("run-%d", (int)i));
    }
}

/* ---- what is not written anew ---- */

enum { ITEMS = 16 };

/* w lies on device 0, frozen, and is read on device 1. */
static weir_plan *frozen_plan(void)
{
    weir_graph *g = weir_graph_new("frozen");
    weir_mesh *here = weir_mesh_new(g, "cpu:0"), *there = weir_mesh_new(g, "cpu:1");
    weir_tensor *w = weir_param(g, WEIR_F32, {ITEMS}, .name = "w", .mesh = here, .frozen = true, .init = WEIR_VALUE(1));
    weir_tensor *moved = weir_shard(w, .mesh = there);
    weir_fetch(weir_mean(moved), .name = "mean");
    weir_plan *plan = weir_compile(g);
    weir_graph_free(g);
    cr_assert_not_null(plan, "%s", weir_error());
    return plan;
}

static weir_status mean_of_run(weir_session *s, float *mean)
{
    weir_array to = {mean, WEIR_F32, {0}};
    weir_status status = weir_session_start(s, 1);
    if (!status)
        status = weir_session_pull(s, "mean", &to, 20000);
    return status ? status : weir_session_wait(s, 20000);
}

static void write_and_load(struct rank *rank)
{
    const struct job *job = rank->ctx;
    float w[ITEMS], mean = 0;
    weir_session *s = opened(rank, job->plan);
    RANK_IS(rank, s, "%s", weir_error());
    for (int i = 0; i < ITEMS; i++)
        w[i] = 3;
    RANK_OK(rank, weir_session_write(s, "w", &(weir_array){w, WEIR_F32, {1, {ITEMS}}}));
    RANK_OK(rank, weir_session_save(s, job->dir));
    for (int i = 0; i < ITEMS; i++)
        w[i] = 5;
    RANK_OK(rank, weir_session_write(s, "w", &(weir_array){w, WEIR_F32, {1, {ITEMS}}}));
    RANK_OK(rank, mean_of_run(s, &mean));
    RANK_IS(rank, mean == 5, "it is %g", (double)mean);
    RANK_OK(rank, weir_session_load(s, job->dir));
    for (int i = 0; i < 2; i++) {
        RANK_OK(rank, mean_of_run(s, &mean));
        RANK_IS(rank, mean == 3, "it is %g", (double)mean);
    }
    RANK_OK(rank, weir_session_close(s));
}

Test(save_ranks, what_is_frozen_and_read_elsewhere_is_what_was_loaded)
{
    weir_plan *plan = frozen_plan();
    struct job job = {.plan = plan};
    for (enum ranks_link link = RANKS_SHM; link <= RANKS_TCP; link++) {
        snprintf(job.dir, sizeof job.dir, "%s", folder_path("run-%d", link));
        ranks_free(ranks_run(write_and_load, &job, .count = 2, .link = link, .kind = RANKS_THREADS));
    }
    weir_plan_free(plan);
}

/* ---- what one rank cannot do ---- */

/* `other` is what rank 1 takes for the folder. */
static void save_and_load_apart(struct rank *rank)
{
    const struct job *job = rank->ctx;
    const char *theirs = rank->number == 1 ? job->other : job->dir;
    const char *who = rank->number == 1 ? "" : "rank 1: ";
    weir_session *s = opened(rank, job->plan);
    RANK_IS(rank, s, "%s", weir_error());
    RANK_OK(rank, weir_session_run(s, FIRST));
    RANK_TOLD(rank, weir_session_save(s, theirs), who, job->other, "is not there for rank 1");
    RANK_OK(rank, weir_session_save(s, job->dir));
    RANK_OK(rank, weir_session_run(s, 1));
    RANK_TOLD(rank, weir_session_load(s, theirs), who, job->other);
    RANK_OK(rank, weir_session_run(s, SECOND - 1));
    RANK_LEARNED(rank, s, job->want, 0);
    RANK_OK(rank, weir_session_close(s));
}

Test(save_ranks, a_folder_that_one_rank_does_not_see_fails_all_and_nothing_changes)
{
    weir_plan *plan = learner_plan(.tp = 3);
    struct learned want = undisturbed(plan, FIRST + SECOND);
    struct job job = {.plan = plan, .want = &want};
    for (enum ranks_link link = RANKS_SHM; link <= RANKS_TCP; link++) {
        snprintf(job.dir, sizeof job.dir, "%s", folder_path("run-%d", link));
        snprintf(job.other, sizeof job.other, "%s", folder_path("elsewhere-%d", link));
        ranks_free(ranks_run(save_and_load_apart, &job, .count = 3, .link = link, .kind = RANKS_THREADS));
        cr_expect_eq(folder_entries(job.dir), 1, "only the checkpoint is left");
    }
    learned_free(&want);
    weir_plan_free(plan);
}

/* Only rank 1, which holds the second stage, reads what rank 1 has written. */
static void load_damaged(struct rank *rank)
{
    const struct job *job = rank->ctx;
    const char *who = rank->number == 1 ? "" : "rank 1: ";
    weir_session *s = opened(rank, job->plan);
    RANK_IS(rank, s, "%s", weir_error());
    RANK_OK(rank, weir_session_run(s, FIRST + 1));
    RANK_TOLD(rank, weir_session_load(s, job->dir), who, "rank-0001.safetensors: tensor ", "checksum");
    RANK_IS(rank, weir_session_step(s) == FIRST + 1, "it is step %d", (int)weir_session_step(s));
    RANK_OK(rank, weir_session_run(s, SECOND - 1));
    RANK_LEARNED(rank, s, job->want, 0);
    RANK_OK(rank, weir_session_close(s));
}

Test(save_ranks, a_damaged_shard_that_one_rank_reads_fails_all_and_nothing_changes)
{
    weir_plan *plan = learner_plan(.pp = 2);
    struct learned want = undisturbed(plan, FIRST + SECOND);
    struct job job = {.plan = plan, .want = &want};
    snprintf(job.dir, sizeof job.dir, "%s", folder_path("run"));
    ranks_free(ranks_run(train_and_save, &job, .count = 2, .link = RANKS_SHM, .kind = RANKS_THREADS));
    const char *file = folder_path("run/step-%08d/rank-0001.safetensors", FIRST);
    folder_flip(file, folder_size(file) - 3);
    for (enum ranks_link link = RANKS_SHM; link <= RANKS_TCP; link++)
        ranks_free(ranks_run(load_damaged, &job, .count = 2, .link = link, .kind = RANKS_THREADS));
    learned_free(&want);
    weir_plan_free(plan);
}

/* ---- other calls at the same time ---- */

static void load_while_others_save(struct rank *rank)
{
    const struct job *job = rank->ctx;
    weir_session *s = opened(rank, job->plan);
    RANK_IS(rank, s, "%s", weir_error());
    RANK_OK(rank, weir_session_save(s, job->dir));
    if (rank->number == 1)
        RANK_TOLD(rank, weir_session_load(s, job->dir), "loads a checkpoint", "saves a checkpoint", "the same calls");
    else
        RANK_TOLD(rank, weir_session_save(s, job->dir), "loads a checkpoint", "saves a checkpoint", "the same calls");
    RANK_OK(rank, weir_session_close(s));
}

/* Rank `runs` does. */
static void run_while_others_save(struct rank *rank, int runs)
{
    const struct job *job = rank->ctx;
    char who[16];
    snprintf(who, sizeof who, "rank %d runs", runs);
    weir_session *s = opened(rank, job->plan);
    RANK_IS(rank, s, "%s", weir_error());
    RANK_OK(rank, weir_session_run(s, 1));
    if (rank->number == runs)
        RANK_TOLD(rank, weir_session_run(s, 2), who, "saves a checkpoint", "the same calls");
    else
        RANK_TOLD(rank, weir_session_save(s, job->dir), who, "saves a checkpoint", "the same calls");
    RANK_OK(rank, weir_session_close(s));
}

static void first_runs_while_others_save(struct rank *rank)
{
    run_while_others_save(rank, 0);
}

static void last_runs_while_others_save(struct rank *rank)
{
    run_while_others_save(rank, 2);
}

/* All is well: the others wait for long until it comes. */
static void save_when_the_last_is_late(struct rank *rank)
{
    const struct job *job = rank->ctx;
    weir_session *s = opened(rank, job->plan);
    RANK_IS(rank, s, "%s", weir_error());
    RANK_OK(rank, weir_session_run(s, 1));
    if (rank->number == 2)
        ranks_pause(2500);
    RANK_OK(rank, weir_session_save(s, job->dir));
    RANK_OK(rank, weir_session_run(s, 1));
    RANK_OK(rank, weir_session_close(s));
}

Test(save_ranks, who_calls_something_else_is_named)
{
    static const rank_fn mixed[] = {load_while_others_save, first_runs_while_others_save, last_runs_while_others_save,
                                    save_when_the_last_is_late};
    weir_plan *plan = learner_plan(.dp = 3);
    struct job job = {.plan = plan};
    for (size_t m = 0; m < sizeof mixed / sizeof *mixed; m++)
        for (enum ranks_link link = RANKS_SHM; link <= RANKS_TCP; link++) {
            snprintf(job.dir, sizeof job.dir, "%s", folder_path("run-%d-%d", (int)m, link));
            ranks_free(ranks_run(mixed[m], &job, .count = 3, .link = link, .kind = RANKS_THREADS, .seconds = 20));
        }
    weir_plan_free(plan);
}

/* ---- ranks that are killed ---- */

enum { DELAY_US = 12000, TRIALS = 12, GONE_S = 8, TURNS = 500 };

struct kill_plot {
    struct job job;
    int victim, delay_us;
};

struct killed {
    double gone;     /* when the victim went */
    double told;     /* the others' call returned an error */
    double closed;
    int64_t saved;   /* step of the last save that this rank knows to be whole */
    char error[512];
};

static struct killed *killed_of(const struct ranks *ranks, int rank)
{
    return ranks->rank[rank].result;
}

static void *kill_later(void *argument)
{
    struct rank *rank = argument;
    const struct kill_plot *plot = rank->ctx;
    nanosleep(&(struct timespec){0, plot->delay_us * 1000L}, NULL);
    ((struct killed *)rank->result)->gone = ranks_seconds();
    kill(getpid(), SIGKILL);
    return NULL;
}

static weir_status step_and_save(weir_session *s, const struct job *job, struct killed *killed)
{
    weir_status status = weir_session_run(s, 1);
    if (!status)
        status = weir_session_save(s, job->dir, .async = job->async);
    if (!status) /* an asynchronous one has waited for the one before it */
        killed->saved = weir_session_step(s) - job->async;
    return status;
}

static void save_until_one_dies(struct rank *rank)
{
    const struct kill_plot *plot = rank->ctx;
    struct killed *killed = rank->result;
    pthread_t killer;
    weir_session *s = opened(rank, plot->job.plan);
    RANK_IS(rank, s, "%s", weir_error());
    RANK_OK(rank, step_and_save(s, &plot->job, killed));
    /* the second one ends here at a time, there at another: the victim may be gone before it has ended everywhere */
    weir_status status = step_and_save(s, &plot->job, killed);
    if (rank->number == plot->victim)
        RANK_IS(rank, !status && !pthread_create(&killer, NULL, kill_later, rank), "no thread");
    for (int turn = 0; !status && turn < TURNS; turn++)
        status = step_and_save(s, &plot->job, killed);
    killed->told = ranks_seconds();
    RANK_IS(rank, status, "all %d were saved", TURNS);
    snprintf(killed->error, sizeof killed->error, "%s", weir_error());
    RANK_OK(rank, weir_session_close(s));
    killed->closed = ranks_seconds();
}

/* In a new session, of one process: the last step that anybody took for saved, or a later one; whole. */
static void expect_last_good(const struct kill_plot *plot, int64_t saved)
{
    weir_session *s = weir_session_open(plot->job.plan, .workers = 2);
    cr_assert_not_null(s, "%s", weir_error());
    cr_assert_eq(weir_session_load(s, plot->job.dir), WEIR_OK, "%s", weir_error());
    int64_t step = weir_session_step(s);
    cr_expect_geq(step, saved);
    struct learned got = learned_read(s), want = undisturbed(plot->job.plan, (int)step);
    const char *differs = learned_differs(&got, &want, 0);
    cr_expect_null(differs, "step %d: %s", (int)step, differs);
    learned_free(&got);
    learned_free(&want);
    weir_session_close(s);
}

static void expect_survived(struct kill_plot *plot, enum ranks_link link)
{
    int64_t saved = 0;
    struct ranks *ranks = ranks_run(save_until_one_dies, plot, .count = 3, .link = link, .may_die = 1u << plot->victim,
                                    .result_bytes = sizeof(struct killed));
    double gone = killed_of(ranks, plot->victim)->gone;
    cr_expect_eq(ranks->rank[plot->victim].signal, SIGKILL);
    for (int r = 0; r < 3; r++) {
        const struct killed *killed = killed_of(ranks, r);
        saved = killed->saved > saved ? killed->saved : saved;
        if (r == plot->victim)
            continue;
        cr_expect(*killed->error, "rank %d was told nothing", r);
        cr_expect_lt(killed->told - gone, GONE_S, "rank %d was told after %.1f s: %s", r, killed->told - gone,
                     killed->error);
        cr_expect_lt(killed->closed - gone, GONE_S, "rank %d closed after %.1f s", r, killed->closed - gone);
        fprintf(stderr, "victim %d, rank %d: told after %.3f s, closed after %.3f s: %s\n", plot->victim, r,
                killed->told - gone, killed->closed - gone, killed->error);
    }
    expect_last_good(plot, saved);
    ranks_free(ranks);
}

Test(save_ranks, a_rank_that_is_killed_leaves_the_last_good_checkpoint)
{
#ifdef __SANITIZE_THREAD__
    cr_skip_test("no threads after fork() under ThreadSanitizer");
#endif
    weir_plan *plan = learner_plan(.dp = 3, .zero = true, .compile.snapshot = true);
    uint64_t at = 1 << 20;
    for (int i = 0; i < TRIALS; i++) {
        struct kill_plot plot = {.job = {.plan = plan, .async = i / 3 % 2}, .victim = i % 3};
        plot.delay_us = drawn(&at, DELAY_US);
        snprintf(plot.job.dir, sizeof plot.job.dir, "%s", folder_path("run-%d", i));
        expect_survived(&plot, (enum ranks_link)(i / 2 % 3));
    }
    weir_plan_free(plan);
}
