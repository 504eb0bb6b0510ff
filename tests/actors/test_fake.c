/* tests/actors/test_fake.c: compiled plans on the fake accelerator (tests/support/fake.h) give the bits that they give on
 * CPUs, in every layout and whatever order the device takes things in: a GPT, models drawn at random, both kinds of
 * device in one plan, and two processes. actors/ahead.c is included here, with a variable that leaves out that a copy holds
 * its slot until it is done.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

enum rule { NONE, WROTE, READ, LATE, FREE, SKIP, ROOM, TURN, PUT };
static enum rule without;
#define AHEAD_WITHOUT(rule) (without == (rule))
#include "actors/ahead.c"

#include "graph/model/build.h"
#include "tests/support/effort.h"
#include "tests/support/fake.h"
#include "tests/support/fakes.h"
#include "tests/support/ranks.h"
#include "tests/support/run.h"

enum { STEPS = 2, SEEDS = EFFORT(FULL(20, 6), 2, 2), MODELS = EFFORT(FULL(24, 8), 3, 3), RANK_SEEDS = EFFORT(FULL(6, 3), 1, 2) };
enum { CREDIT_STEPS = 4, CREDIT_SEEDS = 6 };

static void with_fakes(void)
{
    mesh_takes_fakes = true;
}

TestSuite(fake, .init = with_fakes, .timeout = 300);

/* ---- runs ---- */

/* Kernels that take no time let most orders happen, some that take long let them overtake each other far. */
static fake_options drawn(uint64_t seed)
{
    return (fake_options){.seed = seed, .delay_us = seed % 3 == 2 ? 3 : 0};
}

static void same_with_seed(const weir_plan *plan, const run *want, uint64_t seed, double tolerance, const char *what)
{
    char where[120];
    fake_options options = drawn(seed);
    snprintf(where, sizeof where, "%s, seed %lu", what, (unsigned long)seed);
    options.kernels_max = seed % 2 ? 5 : 0;
    fake_open(&options);
    run got = run_plan(plan, STEPS, 1 + (int)(seed % 3));
    run_near(&got, want, tolerance, where);
    run_free(&got);
    fake_close_well();
}

static void same_run(const weir_plan *plan, const weir_plan *cpu, int seeds, double tolerance, const char *what)
{
    run want = run_plan(cpu, STEPS, 1);
    for (int seed = 0; seed < seeds; seed++)
        same_with_seed(plan, &want, (uint64_t)seed, tolerance, what);
    run_free(&want);
}

/* ---- a GPT ---- */

static void gpt_is_the_same(layout l, fakes_choice on, int seeds)
{
    struct fakes_pair pair = fakes_gpt_pair(l, on);
    same_run(pair.plan, pair.cpu, seeds, 0, pair.what);
    fakes_pair_free(&pair);
}

/* Under AddressSanitizer each layout is in one of the two ways. */
enum { ONE_WAY = EFFORT(0, 1, 0) };

#define GPT(d, t, p)                                                                   \
    Test(fake, gpt_dp##d##_tp##t##_pp##p)                                              \
    {                                                                                  \
        if (!ONE_WAY || (d + t + p) % 2)                                               \
            gpt_is_the_same((layout){d, t, p, 1, false}, fakes_all, SEEDS / 2);        \
        if (!ONE_WAY || (d + t + p) % 2 == 0)                                          \
            gpt_is_the_same((layout){d, t, p, 4, true}, fakes_all, SEEDS - SEEDS / 2); \
    }
GPT(1, 1, 1)
GPT(2, 1, 1)
GPT(1, 2, 1)
GPT(1, 1, 2)
#if EFFORT(1, 1, 0)
GPT(2, 2, 1)
GPT(2, 1, 2)
GPT(1, 2, 2)
#endif
#if EFFORT(FULL(1, 0), 0, 0)
GPT(4, 1, 1)
GPT(1, 4, 1)
GPT(1, 1, 4)
#endif

/* The stages lie on different devices, so which kind one is changes no layout. */
Test(fake, gpt_begins_on_a_cpu_and_goes_on_on_an_accelerator)
{
    gpt_is_the_same((layout){1, 1, 2, 4, false}, fakes_second_half, SEEDS);
    gpt_is_the_same((layout){1, 1, 2, 1, true}, fakes_second_half, SEEDS / 2);
}

/* ---- models drawn at random ---- */

static void model_is_the_same(uint64_t seed, fakes_choice on, double tolerance)
{
    struct fakes_pair pair = fakes_model_pair(seed, on);
    same_run(pair.plan, pair.cpu, 2, tolerance, pair.what);
    fakes_pair_free(&pair);
}

Test(fake, random_models_compute_the_same_bits)
{
    for (uint64_t seed = 0; seed < MODELS; seed++)
        model_is_the_same(seed, fakes_all, 0);
}

/* Meshes of different kinds share no device, so layouts may be chosen that add up in another order. */
Test(fake, random_models_compute_the_same_on_cpus_and_accelerators)
{
    for (uint64_t seed = 1000; seed < 1000 + MODELS; seed++)
        model_is_the_same(seed, fakes_odd, 1e-3);
}

/* ---- copies hold what they read ---- */

#if EFFORT(1, 0, 0) /* a race of the host's: ThreadSanitizer ends the test for it */
static bool same_values(const run *a, const run *b)
{
    for (int e = 0; e < a->count; e++)
        if (a->count != b->count || a->entry[e].count != b->entry[e].count ||
            memcmp(a->entry[e].value, b->entry[e].value, sizeof(double) * (size_t)a->entry[e].count))
            return false;
    return a->count > 0;
}

/* With how many seeds a source is seen to write anew what a copy in is yet to read. */
static int credits_missed(const weir_plan *plan, const run *want, enum rule rule)
{
    int missed = 0;
    for (uint64_t seed = 0; seed < CREDIT_SEEDS; seed++) {
        fake_open(&(fake_options){.seed = seed, .delay_us = 20});
        without = rule;
        run got = run_plan(plan, CREDIT_STEPS, 2);
        without = NONE;
        fake_seen seen = fake_close();
        missed += !same_values(&got, want) || seen.misuses || *seen.race;
        run_free(&got);
    }
    return missed;
}

Test(fake, a_copy_in_that_gives_its_slot_back_at_launch_is_seen)
{
    struct fakes_pair pair = fakes_gpt_pair((layout){1, 1, 1, 4, false}, fakes_all);
    run want = run_plan(pair.cpu, CREDIT_STEPS, 1);
    cr_expect_eq(credits_missed(pair.plan, &want, NONE), 0);
    cr_expect_geq(credits_missed(pair.plan, &want, FREE), CREDIT_SEEDS / 2);
    run_free(&want);
    fakes_pair_free(&pair);
}
#endif

/* ---- two processes ---- */

/* The orders for a rank, and what its result begins with: losses as they are pulled. */
struct shared_run {
    weir_plan *plan;
    int micro;
    uint64_t seed;
    bool fakes;
    struct fake_board *board;
};

/* ThreadSanitizer does not see what is ordered by the other process: that the worker of the memory beside an accelerator
 * writes where the device wrote, when the other rank has read it, which the accelerator's worker told it. One worker
 * sees both. */
enum { WORKERS = EFFORT(0, 0, 1) };

static void train_rank(struct rank *rank)
{
    const struct shared_run *shared = rank->ctx;
    fake_options options = drawn(shared->seed + (uint64_t)rank->number);
    float *loss = rank->result;
    options.shared = true;
    options.board = shared->board;
    if (shared->fakes)
        fake_open(&options);
    weir_session *s = weir_session_open(shared->plan, .workers = WORKERS, .cluster = ranks_cluster(rank));
    RANK_IS(rank, s, "%s", weir_error());
    RANK_OK(rank, weir_session_start(s, STEPS));
    for (int i = 0; i < STEPS * shared->micro; i++)
        RANK_OK(rank, weir_session_pull(s, "loss", &(weir_array){.data = &loss[i], .dtype = WEIR_F32}, 20000));
    RANK_OK(rank, weir_session_wait(s, 20000));
    RANK_OK(rank, weir_session_close(s));
    if (!shared->fakes)
        return;
    fake_seen seen = fake_close();
    RANK_IS(rank, !seen.misuses, "%s", seen.misuse);
    RANK_IS(rank, !*seen.race, "%s", seen.race);
}

static weir_plan *gpt_on(layout l, fakes_choice on)
{
    weir_plan *plan = fakes_gpt(l, on, (weir_compile_opts){.seed = 0});
    cr_assert_not_null(plan, "%s", weir_error());
    return plan;
}

static void ranks_agree(layout l, enum ranks_link link)
{
    struct shared_run shared = {.plan = gpt_on(l, NULL), .micro = l.micro};
    size_t bytes = (size_t)(STEPS * l.micro) * sizeof(float);
    struct ranks *want = ranks_run(train_rank, &shared, .count = 2, .link = link, .result_bytes = bytes);
    weir_plan_free(shared.plan);
    shared.plan = gpt_on(l, fakes_all);
    shared.fakes = true;
    for (shared.seed = 0; shared.seed < RANK_SEEDS; shared.seed++) {
        shared.board = fake_board_new();
        struct ranks *got = ranks_run(train_rank, &shared, .count = 2, .link = link, .result_bytes = bytes);
        for (int r = 0; r < 2; r++)
            cr_expect_arr_eq(got->rank[r].result, want->rank[r].result, bytes, "rank %d, seed %lu: other bits", r,
                             (unsigned long)shared.seed);
        ranks_free(got);
        fake_board_free(shared.board);
    }
    ranks_free(want);
    weir_plan_free(shared.plan);
}

Test(fake, two_processes_that_share_memory_give_the_same_bits)
{
    ranks_agree((layout){2, 1, 1, 2, true}, RANKS_SHM);
    ranks_agree((layout){1, 1, 2, 4, false}, RANKS_SHM);
}

Test(fake, two_processes_over_sockets_give_the_same_bits)
{
    ranks_agree((layout){2, 1, 2, 2, false}, RANKS_WIRE);
}
