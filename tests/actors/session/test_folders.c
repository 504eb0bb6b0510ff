/* test_folders.c: snapshots in the memory of several hosts, which are folders here: what a host's folder has, what is
 * loaded when some are gone, and that nothing is ever put together of two different snapshots. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weir/checkpoint.h>

#include "tests/support/effort.h"
#include "tests/support/folder.h"
#include "tests/support/learner.h"
#include "tests/support/ranks.h"

TestSuite(folders, .init = folder_make, .fini = folder_remove, .timeout = 240);

enum { FIRST = 4, SECOND = 3, SEED = 20260104, PATH = 512, HOSTS_MAX = 3 };
enum { PAIRS = EFFORT(30, 6, 6) };

/* The orders for ranks. Rank r of n is on host r * hosts / n. */
struct job {
    const weir_plan *plan;
    int hosts, saves;      /* snapshots, of which the first is after FIRST steps and the others each one later */
    bool async;
    char host[HOSTS_MAX][PATH];
    char disk[PATH];       /* "": nothing is there */
    int64_t want_step;     /* of what is loaded */
    const struct learned *want; /* SECOND steps later */
    double tolerance;
    const char *reported;  /* words of the only report; NULL: there is none */
    _Atomic int reports, told;
};

static void keep_report(void *ctx, const char *said)
{
    struct job *job = ctx;
    job->reports++;
    job->told += job->reported && strstr(said, job->reported);
    if (!job->reported || !strstr(said, job->reported))
        fprintf(stderr, "report: %s\n", said);
}

static const char *folder_of(const struct job *job, const struct rank *rank)
{
    return job->host[rank->number * job->hosts / rank->count];
}

static weir_session *opened(const struct rank *rank, struct job *job)
{
    return weir_session_open(job->plan, .cluster = ranks_cluster(rank), .report = keep_report, .report_ctx = job);
}

#define RANK_LEARNED(rank, s, want, tolerance)                                  \
    do {                                                                        \
        struct learned got_ = learned_read(s);                                  \
        const char *differs_ = learned_differs(&got_, want, tolerance);         \
        learned_free(&got_);                                                    \
        RANK_IS(rank, !differs_, "%s", differs_);                               \
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

static struct job job_new(const weir_plan *plan, int hosts)
{
    static int number;
    struct job job = {.plan = plan, .hosts = hosts, .saves = 1, .want_step = FIRST};
    number++;
    for (int h = 0; h < HOSTS_MAX; h++)
        snprintf(job.host[h], PATH, "%s", folder_path("%d-host-%d", number, h));
    return job;
}

static void gone(const char *folder)
{
    char command[PATH + 16];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    cr_assert_eq(system(command), 0);
}

static void train_and_save(struct rank *rank)
{
    struct job *job = rank->ctx;
    weir_session *s = opened(rank, job);
    RANK_IS(rank, s, "%s", weir_error());
    RANK_OK(rank, weir_session_run(s, FIRST));
    for (int i = 0; i < job->saves; i++) {
        RANK_OK(rank, i ? weir_session_run(s, 1) : WEIR_OK);
        RANK_OK(rank, weir_session_save(s, folder_of(job, rank), .memory = true, .async = job->async));
    }
    RANK_OK(rank, weir_session_run(s, 1)); /* while it gets its name */
    RANK_OK(rank, weir_session_save_wait(s, -1));
    RANK_OK(rank, weir_session_close(s));
}

static void load_and_train(struct rank *rank)
{
    struct job *job = rank->ctx;
    weir_session *s = opened(rank, job);
    RANK_IS(rank, s, "%s", weir_error());
    RANK_OK(rank, weir_session_run(s, 2)); /* of which nothing is to be left */
    RANK_OK(rank, weir_session_load(s, *job->disk ? job->disk : NULL, .memory = folder_of(job, rank)));
    RANK_IS(rank, weir_session_step(s) == job->want_step, "it is step %d", (int)weir_session_step(s));
    RANK_OK(rank, weir_session_run(s, SECOND));
    RANK_LEARNED(rank, s, job->want, job->tolerance);
    RANK_OK(rank, weir_session_close(s));
}

static void save(struct job *job, int ranks, enum ranks_link link)
{
    ranks_free(ranks_run(train_and_save, job, .count = ranks, .link = link, .kind = RANKS_THREADS));
    cr_expect_eq(job->reports, 0);
}

/* By so many ranks on as many hosts as before. */
static void expect_loads(struct job *job, int ranks, enum ranks_link link, int64_t step)
{
    struct learned want = undisturbed(job->plan, (int)step + SECOND);
    job->want = &want;
    job->want_step = step;
    job->reports = job->told = 0;
    ranks_free(ranks_run(load_and_train, job, .count = ranks, .link = link, .kind = RANKS_THREADS));
    cr_expect_eq(job->reports, !!job->reported, "%d reports", job->reports);
    cr_expect_eq(job->told, !!job->reported, "not told: %s", job->reported);
    learned_free(&want);
}

/* Step folders of a host; each is a checkpoint of its own when it has everything. */
static int steps_in(const char *folder, bool *whole)
{
    DIR *open = opendir(folder);
    int count = 0;
    *whole = true;
    for (struct dirent *entry; open && (entry = readdir(open));) {
        char path[PATH + 300];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        weir_checkpoint *c = weir_checkpoint_open(path);
        *whole &= c && weir_checkpoint_verify(c, NULL, NULL) == WEIR_OK;
        weir_checkpoint_close(c);
        count++;
    }
    if (open)
        closedir(open);
    return count;
}

/* ---- what is where ---- */

Test(folders, each_host_of_replicas_has_the_whole_and_needs_no_other)
{
    weir_plan *plan = learner_plan(.dp = 4);
    bool whole;
    for (enum ranks_link link = RANKS_SHM; link <= RANKS_TCP; link++) {
        struct job job = job_new(plan, 2);
        save(&job, 4, link);
        cr_expect(steps_in(job.host[0], &whole) == 1 && whole);
        cr_expect(steps_in(job.host[1], &whole) == 1 && whole);
        gone(job.host[link == RANKS_WIRE]); /* then that host gets everything from the other */
        expect_loads(&job, 4, link, FIRST);
    }
    weir_plan_free(plan);
}

Test(folders, hosts_have_what_they_hold_and_only_all_of_them_everything)
{
    weir_plan *plan = learner_plan(.dp = 3, .zero = true);
    bool whole;
    struct job job = job_new(plan, 3);
    save(&job, 3, RANKS_TCP);
    for (int h = 0; h < 3; h++)
        cr_expect(steps_in(job.host[h], &whole) == 1 && !whole, "host %d", h);
    expect_loads(&job, 3, RANKS_TCP, FIRST);
    weir_plan_free(plan);
}

Test(folders, one_that_stays_beside_the_new_one_is_the_last_complete_one)
{
    weir_plan *plan = learner_plan(.pp = 2);
    bool whole;
    for (int async = 0; async < 2; async++) {
        struct job job = job_new(plan, 2);
        job.saves = 4;
        job.async = async;
        save(&job, 2, RANKS_WIRE);
        for (int h = 0; h < 2; h++)
            cr_expect_eq(steps_in(job.host[h], &whole), 2, "host %d", h);
        expect_loads(&job, 2, RANKS_WIRE, FIRST + 3);
        gone(folder_path("%s/step-%08d", strrchr(job.host[1], '/') + 1, FIRST + 3)); /* as if it was killed in between */
        expect_loads(&job, 2, RANKS_WIRE, FIRST + 2);
    }
    weir_plan_free(plan);
}

/* ---- what is not there ---- */

static void save_on_disk(struct rank *rank)
{
    struct job *job = rank->ctx;
    weir_session *s = opened(rank, job);
    RANK_IS(rank, s, "%s", weir_error());
    RANK_OK(rank, weir_session_run(s, FIRST - 1));
    RANK_OK(rank, weir_session_save(s, job->disk));
    RANK_OK(rank, weir_session_run(s, 1));
    RANK_OK(rank, weir_session_save(s, folder_of(job, rank), .memory = true));
    RANK_OK(rank, weir_session_close(s));
}

Test(folders, when_a_lost_host_had_the_only_copy_the_disk_is_loaded_and_that_is_said)
{
    weir_plan *plan = learner_plan(.dp = 2, .zero = true);
    struct job job = job_new(plan, 2);
    snprintf(job.disk, PATH, "%s", folder_path("disk"));
    ranks_free(ranks_run(save_on_disk, &job, .count = 2, .link = RANKS_TCP, .kind = RANKS_THREADS));
    expect_loads(&job, 2, RANKS_TCP, FIRST);
    gone(job.host[0]);
    job.reported = "the snapshot of step 4 is not complete any more: no host has ";
    expect_loads(&job, 2, RANKS_TCP, FIRST - 1);
    *job.disk = 0; /* then nothing is loaded, and what the session did stays */
    job.want_step = 2;
    expect_loads(&job, 2, RANKS_TCP, 2);
    weir_plan_free(plan);
}

Test(folders, what_is_later_on_disk_is_loaded_from_there)
{
    weir_plan *plan = learner_plan(.dp = 2);
    struct job job = job_new(plan, 2);
    snprintf(job.disk, PATH, "%s", folder_path("disk"));
    save(&job, 2, RANKS_SHM);
    ranks_free(ranks_run(save_on_disk, &job, .count = 2, .link = RANKS_SHM, .kind = RANKS_THREADS));
    gone(folder_path("disk/step-%08d", FIRST - 1));
    char later[PATH];
    snprintf(later, PATH, "%s", job.host[0]);
    struct job more = job;
    snprintf(more.host[0], PATH, "%s", folder_path("disk"));
    more.hosts = 1;
    more.saves = 2; /* its memory is the other's disk: each host has everything */
    save(&more, 2, RANKS_SHM);
    cr_expect(folder_has(folder_path("disk/step-%08d", FIRST + 1)));
    expect_loads(&job, 2, RANKS_SHM, FIRST + 1);
    weir_plan_free(plan);
}

/* Both hosts have step 4, each half of another run's. */
Test(folders, parts_of_two_snapshots_are_never_put_together)
{
    weir_plan *plan = learner_plan(.pp = 2);
    struct job one = job_new(plan, 2), other = job_new(plan, 2);
    save(&one, 2, RANKS_SHM);
    save(&other, 2, RANKS_SHM);
    memcpy(one.host[1], other.host[1], PATH);
    one.reported = "the snapshot of step 4 is not complete any more";
    expect_loads(&one, 2, RANKS_SHM, 2);
    weir_plan_free(plan);
}

Test(folders, nothing_is_loaded_where_nothing_is)
{
    weir_plan *plan = learner_plan(.dp = 2);
    struct job job = job_new(plan, 2);
    expect_loads(&job, 2, RANKS_SHM, 2);
    weir_plan_free(plan);
}

Test(folders, what_makes_no_sense_is_refused)
{
    weir_plan *plan = learner_plan(.dp = 1);
    weir_session *s = weir_session_open(plan);
    cr_assert_not_null(s, "%s", weir_error());
    cr_expect_eq(weir_session_save(s, folder_path("m"), .memory = true, .keep = 3), WEIR_E_ARGUMENT);
    cr_expect_eq(weir_session_save(s, folder_path("m"), .memory = true, .name = "best"), WEIR_E_ARGUMENT);
    cr_expect(strstr(weir_error(), "a folder in memory keeps the newest snapshot"), "%s", weir_error());
    cr_expect_eq(weir_session_load(s, NULL), WEIR_E_ARGUMENT);
    folder_write(folder_path("file"), "x", 1);
    cr_expect_eq(weir_session_save(s, folder_path("file/m"), .memory = true), WEIR_E_IO);
    cr_expect_eq(weir_session_save(s, folder_path("m"), .memory = true, .async = true), WEIR_OK, "%s", weir_error());
    weir_session_close(s);
    weir_plan_free(plan);
}

/* ---- any number of ranks and hosts ---- */

static int drawn(uint64_t *at, int below)
{
    return (int)(weir_random_uniform(SEED, (*at)++) * below);
}

Test(folders, any_number_of_ranks_goes_on_with_what_any_number_has_left_in_memory)
{
    for (uint64_t i = 0, at = 0; i < PAIRS; i++) {
        int layout = drawn(&at, LEARNER_LAYOUTS), from = 1 + drawn(&at, 4);
        int hosts = 1 + drawn(&at, HOSTS_MAX), to = hosts + drawn(&at, 5 - hosts); /* which see all of them */
        enum ranks_link link = (enum ranks_link)drawn(&at, 3);
        fprintf(stderr, "seed %d, case %d: layout %d on %d ranks -> %d, %d hosts, link %d\n", SEED, (int)i, layout,
                from, to, hosts, link);
        weir_plan *plan = learner_plan_at(learner_layouts[layout]);
        cr_assert_not_null(plan, "%s", weir_error());
        struct job job = job_new(plan, hosts);
        job.async = drawn(&at, 2);
        save(&job, from, link);
        expect_loads(&job, to, link, FIRST);
        weir_plan_free(plan);
    }
}

/* Each box of the new layout lies within one of the old. */
Test(folders, another_layout_goes_on_with_what_is_in_memory)
{
    weir_plan *plan = learner_plan(.dp = 2, .zero = true, .sure = true), *other = learner_plan(.tp = 2, .sure = true);
    struct job job = job_new(plan, 1);
    save(&job, 2, RANKS_SHM);
    struct learned want = undisturbed(plan, FIRST + SECOND);
    job.plan = other;
    job.want = &want;
    job.tolerance = 1e-4;
    ranks_free(ranks_run(load_and_train, &job, .count = 2, .link = RANKS_SHM, .kind = RANKS_THREADS));
    learned_free(&want);
    weir_plan_free(plan);
    weir_plan_free(other);
}

/* ---- what else is kept ---- */

static _Atomic int position; /* of the source, which runs on rank 0 alone */

static weir_status count_on(void *ctx, const weir_view *dst, int64_t step, int micro)
{
    (void)ctx, (void)step, (void)micro;
    *(float *)dst->data = (float)position++;
    return WEIR_OK;
}

static weir_status save_position(void *ctx, int64_t step, void *bytes, size_t *count)
{
    int now = position;
    (void)ctx, (void)step;
    memcpy(bytes, &now, *count = sizeof now);
    return WEIR_OK;
}

static weir_status restore_position(void *ctx, int64_t step, const void *bytes, size_t count, char *why, size_t room)
{
    int then = 0;
    (void)ctx, (void)step, (void)why, (void)room;
    memcpy(&then, bytes, count);
    position = then;
    return WEIR_OK;
}

/* A state that is read two steps later, on both devices; a source on the first. */
static weir_plan *late_plan(void)
{
    weir_graph *g = weir_graph_new("late");
    weir_mesh *both = weir_mesh_new(g, "cpu:0-1");
    weir_tensor *x = weir_input(g, WEIR_F32, {0}, .name = "x", .source = count_on, .save = save_position,
                                .restore = restore_position);
    weir_tensor *late = weir_state(g, WEIR_F32, {0}, .name = "late", .delay = 2, .mesh = both, .sbp = {B});
    weir_state_set(late, weir_add(weir_affine(late, 2), x));
    weir_fetch(late, .name = "value");
    weir_plan *plan = weir_compile(g);
    weir_graph_free(g);
    cr_assert_not_null(plan, "%s", weir_error());
    return plan;
}

static void run_late(struct rank *rank, weir_session *s, int64_t first, int64_t end)
{
    double kept[2] = {0, 0};
    for (int64_t step = 0; step < end; step++) {
        double was = kept[step % 2];
        kept[step % 2] = 2 * was + (double)step;
        if (step < first)
            continue;
        float value = -1;
        RANK_OK(rank, weir_session_start(s, 1));
        RANK_OK(rank, weir_session_pull(s, "value", &(weir_array){&value, WEIR_F32, {0}}, 20000));
        RANK_OK(rank, weir_session_wait(s, 20000));
        RANK_IS(rank, (double)value == was, "step %d: %g, not %g", (int)step, (double)value, was);
    }
}

static void leave_late(struct rank *rank)
{
    struct job *job = rank->ctx;
    weir_session *s = opened(rank, job);
    RANK_IS(rank, s, "%s", weir_error());
    run_late(rank, s, 0, 5);
    RANK_OK(rank, weir_session_save(s, folder_of(job, rank), .memory = true));
    RANK_OK(rank, weir_session_close(s));
}

static void find_late(struct rank *rank)
{
    struct job *job = rank->ctx;
    weir_session *s = opened(rank, job);
    RANK_IS(rank, s, "%s", weir_error());
    RANK_OK(rank, weir_session_load(s, NULL, .memory = folder_of(job, rank)));
    run_late(rank, s, 5, 9);
    RANK_OK(rank, weir_session_close(s));
}

Test(folders, a_host_that_comes_back_empty_gets_positions_of_sources_and_all_kept_values)
{
    weir_plan *plan = late_plan();
    for (int lost = 0; lost < 2; lost++) {
        struct job job = job_new(plan, 2);
        position = 0;
        ranks_free(ranks_run(leave_late, &job, .count = 2, .link = RANKS_TCP, .kind = RANKS_THREADS));
        gone(job.host[lost]);
        position = 1000;
        ranks_free(ranks_run(find_late, &job, .count = 2, .link = RANKS_TCP, .kind = RANKS_THREADS));
    }
    weir_plan_free(plan);
}
