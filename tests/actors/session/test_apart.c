/* tests/actors/session/test_apart.c: sessions with spaces that the host cannot go to.
 *
 * They are the fake accelerator's (tests/support/fake.h): whoever follows a pointer into one faults, and only copies give
 * values. Values are read, written, visited, kept and computed as on CPUs, also where ranks share memory or send.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/base/base.h"
#include "graph/model/build.h"
#include "graph/plan/form/plan.h"
#include "regst/arena.h"
#include "tests/support/effort.h"
#include "tests/support/fake.h"
#include "tests/support/folder.h"
#include "tests/support/learner.h"
#include "tests/support/ranks.h"

enum { STEPS = 3, LAYOUTS = EFFORT(LEARNER_LAYOUTS, 4, 3) };

/* ThreadSanitizer does not see what other processes order (tests/actors/test_fake.c). */
enum { WORKERS = EFFORT(0, 0, 1) };

#define assert_ok(call) cr_assert_eq(call, WEIR_OK, "%s: %s", #call, weir_error())

static void with_device(void)
{
    folder_make();
    mesh_takes_fakes = true;
}

TestSuite(apart, .init = with_device, .fini = folder_remove, .timeout = 240);

static weir_session *opened(const weir_plan *plan)
{
    cr_assert_not_null(plan, "%s", weir_error());
    weir_session *s = weir_session_open(plan, .workers = 2);
    cr_assert_not_null(s, "%s", weir_error());
    return s;
}

static weir_plan *plan_on(struct learner_opts opts, bool fake)
{
    opts.fake = fake;
    opts.compile.snapshot = true;
    return learner_plan_at(opts);
}

static void expect_learned(weir_session *s, const struct learned *want, const char *what)
{
    struct learned got = learned_read(s);
    const char *differs = learned_differs(&got, want, 0);
    cr_expect_null(differs, "%s: %s", what, differs);
    learned_free(&got);
}

static struct learned learned_on_cpus(struct learner_opts opts, int steps, const char *dir)
{
    weir_plan *plan = plan_on(opts, false);
    weir_session *s = opened(plan);
    if (steps)
        assert_ok(weir_session_run(s, steps));
    if (dir)
        assert_ok(weir_session_save(s, dir));
    struct learned learned = learned_read(s);
    cr_assert_gt(learned.count, 5, "%s", weir_error());
    weir_session_close(s);
    weir_plan_free(plan);
    return learned;
}

/* ---- kinds ---- */

Test(apart, the_kinds_say_what_the_host_reaches)
{
    cr_expect(device_host(WEIR_CPU) && device_host(WEIR_PINNED));
    fake_open(NULL);
    cr_expect(!device_host(WEIR_DISK) && !device_host(WEIR_FAKE));
    cr_expect(!device_host(WEIR_CUDA), "there is none in this process");
    for (uint32_t kind = 0; kind < WEIR_DEVICE_KINDS; kind++)
        cr_expect(!device_find(kind) || device_host(kind) == device_host_reaches((weir_device_kind)kind),
                  "what may be shared is what plans are checked for: %u", kind);
    fake_close_well();
}

Test(apart, pinned_memory_is_zeroed_and_copied)
{
    const struct device_ops *pinned = device_find(WEIR_PINNED);
    char here[100], there[100];
    void *space = NULL;
    assert_ok(pinned->space_new(NULL, 3, sizeof here, &space));
    pinned->copy_out(here, space, sizeof here);
    for (size_t i = 0; i < sizeof here; i++)
        cr_assert_eq(here[i], 0);
    memset(here, 7, sizeof here);
    pinned->copy_in(space, here, sizeof here);
    pinned->copy_out(there, space, sizeof here);
    cr_expect_arr_eq(here, there, sizeof here);
    cr_expect_arr_eq(space, here, sizeof here);
    pinned->space_free(space, sizeof here);
}

/* ---- what is kept ---- */

Test(apart, initial_values_are_the_same)
{
    for (int l = 0; l < LEARNER_LAYOUTS; l++) {
        fake_open(NULL);
        struct learned want = learned_on_cpus(learner_layouts[l], 0, NULL);
        weir_plan *plan = plan_on(learner_layouts[l], true);
        weir_session *s = opened(plan);
        expect_learned(s, &want, "initial values");
        weir_session_close(s);
        weir_plan_free(plan);
        learned_free(&want);
        fake_close_well();
    }
}

Test(apart, what_is_written_is_read)
{
    fake_open(NULL);
    weir_plan *plan = plan_on((struct learner_opts){.dp = 2, .tp = 2}, true);
    weir_session *s = opened(plan);
    float given[8 * 16], got[8 * 16] = {0};
    for (int i = 0; i < 8 * 16; i++)
        given[i] = (float)i / 3;
    weir_array value = {.data = given, .dtype = WEIR_F32, .shape = {.rank = 2, .dim = {8, 16}}}, back = value;
    back.data = got;
    assert_ok(weir_session_write(s, "h0/up/weight", &value));
    assert_ok(weir_session_read(s, "h0/up/weight", &back));
    cr_expect_arr_eq(given, got, sizeof given);
    weir_session_close(s);
    weir_plan_free(plan);
    fake_close_well();
}

struct seen {
    double sum;
    int shards;
};

static weir_status add_one(void *ctx, const weir_shard *shard)
{
    struct seen *seen = ctx;
    float *value = shard->view.data;
    seen->shards++;
    cr_expect_eq(strncmp(shard->device, "fake:", 5), 0, "%s", shard->device);
    for (int64_t i = 0; i < weir_shape_count(&shard->view.shape); i++) {
        seen->sum += shard->again ? 0 : value[i];
        value[i] += 1;
    }
    return WEIR_OK;
}

Test(apart, what_is_visited_may_be_changed)
{
    fake_open(NULL);
    weir_plan *plan = plan_on((struct learner_opts){.dp = 2}, true);
    weir_session *s = opened(plan);
    float before[8 * 16], after[8 * 16];
    weir_array value = {.data = before, .dtype = WEIR_F32, .shape = {.rank = 2, .dim = {8, 16}}};
    assert_ok(weir_session_read(s, "h0/up/weight", &value));
    struct seen seen = {0};
    assert_ok(weir_session_visit(s, "h0/up/weight", add_one, &seen));
    value.data = after;
    assert_ok(weir_session_read(s, "h0/up/weight", &value));
    double sum = 0;
    for (int i = 0; i < 8 * 16; i++) {
        sum += before[i];
        cr_expect_eq(after[i], before[i] + 1);
    }
    cr_expect_eq(seen.shards, 2);
    cr_expect_eq(seen.sum, sum);
    weir_session_close(s);
    weir_plan_free(plan);
    fake_close_well();
}

/* Loaded from what CPUs have saved, saved, and loaded by CPUs. */
static void keeps_the_same(struct learner_opts layout, int number, bool async, bool memory)
{
    char from[300], to[300];
    snprintf(from, sizeof from, "%s", folder_path("cpu-%d", number));
    snprintf(to, sizeof to, "%s", folder_path("fake-%d", number));
    struct learned want = learned_on_cpus(layout, 2, from);
    weir_plan *plan = plan_on(layout, true), *cpu = plan_on(layout, false);
    weir_session *s = opened(plan);
    assert_ok(weir_session_load(s, from));
    expect_learned(s, &want, "loaded");
    assert_ok(weir_session_save(s, to, .async = async, .memory = memory));
    assert_ok(weir_session_save_wait(s, 20000));
    expect_learned(s, &want, "saved");
    weir_session_close(s);
    s = opened(cpu);
    assert_ok(weir_session_load(s, memory ? NULL : to, .memory = memory ? to : NULL));
    expect_learned(s, &want, "loaded by CPUs");
    weir_session_close(s);
    s = opened(plan);
    assert_ok(weir_session_load(s, memory ? NULL : to, .memory = memory ? to : NULL));
    expect_learned(s, &want, "loaded again");
    weir_session_close(s);
    learned_free(&want);
    weir_plan_free(plan);
    weir_plan_free(cpu);
}

Test(apart, checkpoints_are_the_same)
{
    for (int l = 0; l < LAYOUTS; l++) {
        fake_open(NULL);
        keeps_the_same(learner_layouts[l], l, l % 3 == 1, l % 3 == 2);
        fake_close_well();
    }
}

/* ---- runs ---- */

struct job {
    const weir_plan *plan;
    struct learned want;
    int devices; /* in all */
    struct fake_board *board;
};

static void fake_of_rank(struct fake_board *board)
{
    fake_open(&(fake_options){.shared = true, .board = board});
}

static void fake_leave(struct rank *rank)
{
    fake_seen seen = fake_close();
    RANK_IS(rank, !seen.misuses, "%s", seen.misuse);
    RANK_IS(rank, !*seen.race, "%s", seen.race);
}

static void learns(struct rank *rank)
{
    const struct job *job = rank->ctx;
    fake_of_rank(job->board);
    weir_session *s = weir_session_open(job->plan, .workers = WORKERS, .cluster = ranks_cluster(rank));
    RANK_IS(rank, s, "%s", weir_error());
    RANK_OK(rank, weir_session_run(s, STEPS));
    struct learned got = learned_read(s);
    const char *differs = learned_differs(&got, &job->want, 0);
    RANK_IS(rank, !differs, "%s", differs);
    learned_free(&got);
    RANK_OK(rank, weir_session_close(s));
    fake_leave(rank);
}

static void learns_the_same(struct learner_opts opts, int ranks, enum ranks_link link)
{
    weir_plan *plan = plan_on(opts, true);
    cr_assert_not_null(plan, "%s", weir_error());
    struct job job = {.plan = plan, .want = learned_on_cpus(opts, STEPS, NULL)};
    for (uint32_t s = 0; s < plan->spaces_count; s++)
        job.devices += plan->spaces[s].kind == WEIR_FAKE;
    ranks = ranks < job.devices ? ranks : job.devices;
    job.board = fake_board_new();
    if (job.devices % ranks == 0)
        ranks_free(ranks_run(learns, &job, .count = ranks, .link = link));
    fake_board_free(job.board);
    learned_free(&job.want);
    weir_plan_free(plan);
}

Test(apart, one_process_learns_the_cpus_bits)
{
    for (int l = 0; l < LAYOUTS; l++)
        learns_the_same(learner_layouts[l], 1, RANKS_SHM);
}

Test(apart, ranks_that_share_memory_learn_the_cpus_bits)
{
    for (int l = 1; l < LAYOUTS; l++)
        learns_the_same(learner_layouts[l], 2, RANKS_SHM);
}

Test(apart, ranks_that_send_learn_the_cpus_bits)
{
    for (int l = 1; l < LAYOUTS; l += 2)
        learns_the_same(learner_layouts[l], 2, l % 4 == 1 ? RANKS_WIRE : RANKS_TCP);
}

/* ---- programs ---- */

enum { ROWS = 64, CELLS = ROWS * ROWS, LOOKS = 4 };

/* Each step of main makes another state of the one that is there, which lies in halves; both programs look at the whole. */
static weir_plan *programs_on(const char *devices)
{
    weir_graph *g = weir_graph_new("programs");
    weir_mesh_new(g, devices);
    weir_tensor *s = weir_state(g, WEIR_F32, {ROWS, ROWS}, .name = "s", .sbp = {S(0)}, .init = WEIR_NORMAL(1));
    weir_tensor *whole = weir_shard(weir_gelu(weir_shard(s, .sbp = {B})), .sbp = {B});
    weir_fetch(whole, .name = "y");
    weir_state_set(s, weir_shard(weir_tanh(weir_matmul(whole, s)), .sbp = {S(0)}));
    WEIR_PROGRAM(g, "eval")
    {
        weir_tensor *again = weir_state(g, WEIR_F32, {ROWS, ROWS}, .name = "s", .sbp = {S(0)}, .init = WEIR_NORMAL(1));
        weir_fetch(weir_shard(weir_gelu(weir_shard(again, .sbp = {B})), .sbp = {B}), .name = "y");
    }
    weir_plan *plan = weir_compile(g, .seed = 8);
    cr_assert_not_null(plan, "%s", weir_error());
    weir_graph_free(g);
    return plan;
}

/* The losses that main, eval, main and eval see; each sees what main's step before it has made. */
static weir_status look(weir_session *s, float seen[LOOKS][CELLS])
{
    weir_status status = WEIR_OK;
    for (int i = 0; i < LOOKS && !status; i++) {
        status = weir_session_run(s, 1, .program = i % 2 ? "eval" : "main");
        if (!status)
            status = weir_session_pull(s, i % 2 ? "eval/y" : "y",
                                       &(weir_array){seen[i], WEIR_F32, {.rank = 2, .dim = {ROWS, ROWS}}}, 20000);
    }
    return status;
}

static void looks(struct rank *rank)
{
    const struct job *job = rank->ctx;
    fake_of_rank(job->board);
    weir_session *s = weir_session_open(job->plan, .workers = WORKERS, .cluster = ranks_cluster(rank));
    RANK_IS(rank, s, "%s", weir_error());
    RANK_OK(rank, look(s, rank->result));
    RANK_OK(rank, weir_session_close(s));
    fake_leave(rank);
}

Test(apart, programs_see_what_the_other_has_changed)
{
    static float want[LOOKS][CELLS];
    weir_plan *cpu = programs_on("cpu:0-1"), *plan = programs_on("fake:0-1");
    weir_session *s = opened(cpu);
    assert_ok(look(s, want));
    weir_session_close(s);
    cr_assert(memcmp(want[0], want[2], sizeof want[0]) && memcmp(want[1], want[3], sizeof want[1]));
    for (int count = 1; count <= 2; count++)
        for (enum ranks_link link = RANKS_SHM; link <= (count > 1 ? RANKS_TCP : RANKS_SHM); link++) {
            struct job job = {.plan = plan, .board = fake_board_new()};
            struct ranks *ranks = ranks_run(looks, &job, .count = count, .link = link, .result_bytes = sizeof want);
            for (int r = 0; r < count; r++)
                cr_expect(!memcmp(ranks->rank[r].result, want, sizeof want), "rank %d of %d, link %d", r, count, link);
            ranks_free(ranks);
            fake_board_free(job.board);
        }
    weir_plan_free(cpu);
    weir_plan_free(plan);
}
