/* tests/actors/test_fast_reduce.c: sums that accelerators make themselves (weir_compile(.reduce = WEIR_FAST)), in sessions on
 * the fake one, which adds in the order of its members: models in the layouts that have sums learn what they learn on
 * CPUs, and have the same bits whenever they are run, in one process and in two.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "graph/model/build.h"
#include "tests/support/effort.h"
#include "tests/support/fake.h"
#include "tests/support/fakes.h"
#include "tests/support/ranks.h"
#include "tests/support/run.h"

enum { STEPS = 3, SEEDS = EFFORT(FULL(4, 3), 2, 2), MODELS = EFFORT(FULL(24, 8), 4, 3), RANK_SEEDS = EFFORT(FULL(4, 2), 1, 1) };

static const double NEAR = 1e-4; /* of another order of sums */
static const weir_compile_opts fast = {.reduce = WEIR_FAST};

static void with_fakes(void)
{
    mesh_takes_fakes = true;
}

TestSuite(fast_reduce, .init = with_fakes, .timeout = 300);

static weir_plan *gpt(layout l, fakes_choice on, weir_compile_opts opts)
{
    weir_plan *plan = fakes_gpt(l, on, opts);
    cr_assert_not_null(plan, "%s", weir_error());
    return plan;
}

static fake_options drawn(uint64_t seed)
{
    return (fake_options){.seed = seed, .delay_us = seed % 3 == 2 ? 3 : 0};
}

/* ---- one process ---- */

static run run_on_fakes(const weir_plan *plan, uint64_t seed)
{
    fake_options options = drawn(seed);
    fake_open(&options);
    run got = run_plan(plan, STEPS, 1 + (int)(seed % 3));
    fake_close_well();
    return got;
}

/* `plan` gives about what `cpu` does, and the same bits with every seed; both are freed. */
static void learns(weir_plan *plan, weir_plan *cpu, double near, const char *what)
{
    run want = run_plan(cpu, STEPS, 1), first = run_on_fakes(plan, 0);
    run_near(&first, &want, near, what);
    for (uint64_t seed = 1; seed < SEEDS; seed++) {
        run got = run_on_fakes(plan, seed);
        run_near(&got, &first, 0, what);
        run_free(&got);
    }
    run_free(&first);
    run_free(&want);
    weir_plan_free(plan);
    weir_plan_free(cpu);
}

static void gpt_learns(layout l)
{
    char what[80];
    snprintf(what, sizeof what, "dp%d tp%d pp%d micro %d zero %d", l.dp, l.tp, l.pp, l.micro, l.zero);
    weir_plan *plan = gpt(l, fakes_all, fast);
    cr_expect_gt(plan_fast_sums(plan), 0, "%s", what);
    learns(plan, gpt(l, NULL, fast), NEAR, what);
}

#define GPT(name, ...)                     \
    Test(fast_reduce, gpt_##name)          \
    {                                      \
        gpt_learns((layout){__VA_ARGS__}); \
    }
GPT(dp2, 2, 1, 1, 1, false)
GPT(dp2_zero, 2, 1, 1, 1, true)
GPT(tp2, 1, 2, 1, 1, false)
GPT(dp2_micro4_zero, 2, 1, 1, 4, true)
#if EFFORT(1, 1, 0)
GPT(dp2_tp2, 2, 2, 1, 1, false)
GPT(dp2_pp2_micro4, 2, 1, 2, 4, false)
#endif
#if EFFORT(FULL(1, 0), 0, 0)
GPT(dp4, 4, 1, 1, 1, false)
GPT(dp2_micro4, 2, 1, 1, 4, false)
GPT(dp2_tp2_micro2_zero, 2, 2, 1, 2, true)
GPT(tp2_pp2_micro4, 1, 2, 2, 4, false)
#endif

#if EFFORT(1, 0, 1)
Test(fast_reduce, in_half_precision_and_within_a_limit)
{
    layout l = {2, 2, 1, 1, false};
    weir_compile_opts half = fast, limited = fast;
    half.precision = WEIR_BF16;
    limited.memory = "4224KiB";
    if (EFFORT(true, false, false)) /* in half the same actors run */
        learns(gpt(l, fakes_all, half), gpt(l, NULL, half), 1e-2, "bf16");
    weir_plan *plan = gpt(l, fakes_all, limited);
    cr_expect_eq(plan->limits_count, 1, "nothing was given up");
    learns(plan, gpt(l, NULL, fast), NEAR, "limited");
}
#endif

Test(fast_reduce, random_models_compute_about_the_same)
{
    uint32_t sums = 0;
    for (uint64_t seed = 0; seed < MODELS; seed++) {
        char what[40];
        snprintf(what, sizeof what, "model %lu", (unsigned long)seed);
        weir_plan *plan = fakes_model(seed, fakes_all, fast), *cpu = fakes_model(seed, NULL, fast);
        cr_assert(plan && cpu, "%s: %s", what, weir_error());
        sums += plan_fast_sums(plan);
        run want = run_plan(cpu, STEPS, 1), got = run_on_fakes(plan, seed);
        run_near(&got, &want, 1e-3, what);
        run_free(&got);
        run_free(&want);
        weir_plan_free(plan);
        weir_plan_free(cpu);
    }
    cr_expect_gt(sums, 0, "no model has any");
}

/* ---- a member that does not go on ---- */

enum { REPORTED = 65536 };

static void tell(void *ctx, const char *report)
{
    char *told = ctx;
    snprintf(told + strlen(told), REPORTED - strlen(told), "%s\n", report);
}

static void drop_loss(weir_session *s, int64_t count)
{
    float loss;
    for (int64_t i = 0; i < count; i++)
        weir_session_pull(s, "loss", &(weir_array){.data = &loss, .dtype = WEIR_F32}, 20000);
}

/* The run fails for the fault of fake:1 with one report that says `what` and who was under way, and the session closes. */
static void sum_fails(fake_fault_kind kind, uint32_t meet_ms, const char *what)
{
    static char told[REPORTED];
    weir_plan *plan = gpt((layout){2, 1, 1, 1, false}, fakes_all, fast);
    for (int workers = 1; workers < 4; workers += 2) {
        fake_fault fault = {.kind = kind, .device = 1, .queue = DEVICE_COLLECTIVE, .launch = 4};
        told[0] = 0;
        fake_open(&(fake_options){.seed = (unsigned)workers, .meet_ms = meet_ms, .faults = {fault}});
        weir_session *s = weir_session_open(plan, .workers = workers, .stall_s = -1, .report = tell, .report_ctx = told);
        cr_assert_not_null(s, "%s", weir_error());
        cr_assert_eq(weir_session_start(s, 20), WEIR_OK, "%s", weir_error());
        drop_loss(s, 20);
        cr_expect_eq(weir_session_wait(s, 20000), WEIR_E_KERNEL);
        cr_expect(strstr(weir_error(), what) && strstr(weir_error(), "; under way were "), "'%s' does not say '%s'",
                  weir_error(), what);
        const char *first = strstr(told, "the device failed");
        cr_expect(first && !strstr(first + 1, "the device failed"), "told once: %s", told);
        cr_expect_eq(weir_session_close(s), WEIR_OK, "%s", weir_error());
        fake_close_well();
    }
    weir_plan_free(plan);
}

Test(fast_reduce, a_member_that_does_not_go_on_in_a_sum_is_told)
{
    sum_fails(FAKE_DIES, 0, "the device failed");
    sum_fails(FAKE_FAILS, 0, "fake:1");
    sum_fails(FAKE_HANGS, 300, "does not give its part in collective ");
}

/* ---- two processes ---- */

enum { WORKERS = EFFORT(0, 0, 1) }; /* as in tests/actors/test_fake.c */

/* The orders for a rank; its result are losses as they are pulled. */
struct shared_run {
    weir_plan *plan;
    int micro;
    uint64_t seed;
    struct fake_board *board;
};

static void pull_losses(struct rank *rank, weir_session *s, int count)
{
    float *loss = rank->result;
    RANK_IS(rank, s, "%s", weir_error());
    RANK_OK(rank, weir_session_start(s, STEPS));
    for (int i = 0; i < count; i++)
        RANK_OK(rank, weir_session_pull(s, "loss", &(weir_array){.data = &loss[i], .dtype = WEIR_F32}, 20000));
    RANK_OK(rank, weir_session_wait(s, 20000));
    RANK_OK(rank, weir_session_close(s));
}

static void train_rank(struct rank *rank)
{
    const struct shared_run *shared = rank->ctx;
    fake_options options = drawn(shared->seed + (uint64_t)rank->number);
    options.shared = true;
    options.board = shared->board;
    fake_open(&options);
    pull_losses(rank, weir_session_open(shared->plan, .workers = WORKERS, .cluster = ranks_cluster(rank)),
                STEPS * shared->micro);
    fake_seen seen = fake_close();
    RANK_IS(rank, !seen.misuses, "%s", seen.misuse);
    RANK_IS(rank, !*seen.race, "%s", seen.race);
}

/* The losses of one process, as its fetches are kept. */
static void losses_alone(const weir_plan *plan, float *loss, int count)
{
    run alone = run_on_fakes(plan, 0);
    const run_entry *entry = run_find(&alone, "loss");
    cr_assert(entry && entry->count == count);
    for (int i = 0; i < count; i++)
        loss[i] = (float)entry->value[i];
    run_free(&alone);
}

static void ranks_agree(layout l, enum ranks_link link)
{
    float want[16];
    int count = STEPS * l.micro;
    struct shared_run shared = {.plan = gpt(l, fakes_all, fast), .micro = l.micro};
    cr_assert_leq(count, 16);
    losses_alone(shared.plan, want, count);
    for (shared.seed = 0; shared.seed < RANK_SEEDS; shared.seed++) {
        shared.board = fake_board_new();
        struct ranks *got = ranks_run(train_rank, &shared, .count = 2, .link = link, .result_bytes = sizeof want);
        for (int r = 0; r < 2; r++)
            cr_expect_arr_eq(got->rank[r].result, want, (size_t)count * sizeof *want, "rank %d, seed %lu: other bits", r,
                             (unsigned long)shared.seed);
        ranks_free(got);
        fake_board_free(shared.board);
    }
    weir_plan_free(shared.plan);
}

Test(fast_reduce, two_processes_that_share_memory_give_the_bits_of_one)
{
    ranks_agree((layout){2, 1, 1, 1, false}, RANKS_SHM);
    ranks_agree((layout){2, 1, 1, 2, true}, RANKS_SHM);
}

Test(fast_reduce, two_processes_over_sockets_give_the_bits_of_one)
{
    ranks_agree((layout){2, 2, 1, 1, false}, RANKS_WIRE);
}
