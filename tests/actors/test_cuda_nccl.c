/* tests/actors/test_cuda_nccl.c: CUDA devices of several processes that do things together, by NCCL. Devices are
 * emulated and the library is a stand-in (tests/support/card.h, tests/cuda/standin_nccl.c).
 *
 * A session of several ranks computes the bits of one that has all devices; one whose sums the devices make is near.
 * A refusal of the library, a rank that goes, and a library that is not there give one report each on every rank,
 * nothing is left, and the sessions close.
 */
#include <criterion/criterion.h>
#include <fnmatch.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "graph/plan/form/plan.h"
#include "regst/plugin.h"
#include "tests/support/card.h"
#include "tests/support/effort.h"
#include "tests/support/learner.h"
#include "tests/support/ranks.h"

enum { STEPS = 2, STRIDE = EFFORT(3, 11, 11), CALLS = 300 };

/* ThreadSanitizer does not see what other processes order, and is not to see threads after fork(); nor does a real driver
 * live on in a child. */
static enum ranks_kind kind(void)
{
    return card_real() ? RANKS_THREADS : EFFORT(RANKS_PROCESSES, RANKS_PROCESSES, RANKS_THREADS);
}

/* The library takes one device per card. */
static void with_cards(void)
{
    unsetenv("WEIR_CUDA_LOGICAL");
    setenv("STANDIN_CARDS", "16", 1);
}

TestSuite(cuda_nccl, .init = with_cards, .timeout = 300);

/* ---- the same bits ---- */

struct job {
    weir_plan *plan;
    standin_options of[4]; /* by rank */
    const struct learned *want;
    double tolerance;
    int steps;
    _Atomic int *ended; /* shared: ranks that have ended their first step */
};

static weir_session *opened(struct rank *rank, const struct job *job)
{
    if (rank->kind == RANKS_PROCESSES)
        card_set(&job->of[rank->number]); /* its own, from now on */
    return weir_session_open(job->plan, .cluster = ranks_cluster(rank), .workers = 2);
}

static void expect_nothing_left(struct rank *rank)
{
    const char *left = rank->kind == RANKS_PROCESSES ? card_left() : NULL;
    RANK_IS(rank, !left, "%s", left);
}

static void learn(struct rank *rank)
{
    const struct job *job = rank->ctx;
    weir_session *s = opened(rank, job);
    RANK_IS(rank, s, "%s", weir_error());
    RANK_OK(rank, weir_session_run(s, job->steps));
    struct learned got = learned_read(s);
    const char *differs = learned_differs(&got, job->want, job->tolerance);
    RANK_IS(rank, got.count > 5, "%d parameters: %s", got.count, weir_error());
    RANK_IS(rank, !differs, "%s", differs);
    learned_free(&got);
    RANK_OK(rank, weir_session_close(s));
    expect_nothing_left(rank);
}

static weir_plan *plan_of(struct learner_opts opts)
{
    opts.cuda = true;
    weir_plan *plan = learner_plan_at(opts);
    cr_assert_not_null(plan, "%s", weir_error());
    return plan;
}

/* The values that one process learns that has all devices. */
static struct learned learned_alone(const weir_plan *plan, int steps)
{
    weir_session *s = weir_session_open(plan, .workers = 2);
    cr_assert_not_null(s, "%s", weir_error());
    cr_assert_eq(weir_session_run(s, steps), WEIR_OK, "%s", weir_error());
    struct learned learned = learned_read(s);
    weir_session_close(s);
    return learned;
}

static int launch_ms; /* of rank 1 */

static void spread_is_the_same(struct learner_opts opts, int ranks, enum ranks_link link, double tolerance)
{
    card_open(NULL);
    card_need((uint32_t)((opts.dp ? opts.dp : 1) * (opts.tp ? opts.tp : 1) * (opts.pp ? opts.pp : 1)));
    struct job job = {.plan = plan_of(opts), .tolerance = tolerance, .steps = STEPS};
    struct learned want = learned_alone(job.plan, STEPS);
    card_close();
    job.want = &want;
    for (int r = 0; r < 4; r++)
        job.of[r] = (standin_options){.seed = 1 + (uint64_t)r, .launch_ms = r == 1 ? launch_ms : 0};
    ranks_free(ranks_run(learn, &job, .count = ranks, .link = link, .kind = kind()));
    learned_free(&want);
    weir_plan_free(job.plan);
}

Test(cuda_nccl, two_processes_learn_the_bits_of_one)
{
    spread_is_the_same((struct learner_opts){.dp = 2}, 2, RANKS_SHM, 0);
}

Test(cuda_nccl, two_that_send_do_so_with_parts_of_the_state_each)
{
    spread_is_the_same((struct learner_opts){.dp = 2, .zero = true}, 2, RANKS_TCP, 0);
}

Test(cuda_nccl, two_processes_of_two_devices_each)
{
    spread_is_the_same((struct learner_opts){.dp = 4}, 2, RANKS_SHM, 0);
    spread_is_the_same((struct learner_opts){.dp = 2, .tp = 2, .micro = 2}, 2, RANKS_WIRE, 0);
}

#if EFFORT(1, 1, 0)
/* Work behind a launch is held back, and no worker waits for it. */
Test(cuda_nccl, launches_may_take_their_time)
{
    launch_ms = 15;
    spread_is_the_same((struct learner_opts){.dp = 4}, 2, RANKS_SHM, 0);
    spread_is_the_same((struct learner_opts){.dp = 2, .tp = 2, .micro = 2}, 2, RANKS_SHM, 0);
}

Test(cuda_nccl, stages_and_replicas_over_four_processes)
{
    spread_is_the_same((struct learner_opts){.dp = 2, .pp = 2, .micro = 2, .zero = true}, 4, RANKS_SHM, 0);
}
#endif

/* ---- all_gathers ---- */

struct called {
    uint64_t gathers, sends;
};

static void call(struct rank *rank)
{
    const struct job *job = rank->ctx;
    struct called *called = rank->result;
    weir_session *s = opened(rank, job);
    RANK_IS(rank, s, "%s", weir_error());
    standin_seen before = card_look();
    RANK_OK(rank, weir_session_run(s, job->steps));
    *called = (struct called){card_look().gathers - before.gathers, card_look().sends - before.sends};
    RANK_OK(rank, weir_session_close(s));
    expect_nothing_left(rank);
}

/* The calls of a step of the plan on two ranks. */
static void expect_calls(weir_plan *plan, bool gathers, bool sends)
{
    struct job job = {.plan = plan, .steps = 1};
    struct ranks *ranks = ranks_run(call, &job, .count = 2, .link = RANKS_SHM, .kind = kind(),
                                    .result_bytes = sizeof(struct called));
    for (int r = 0; r < 2; r++) {
        const struct called *called = ranks->rank[r].result;
        cr_expect_eq(called->gathers > 0, gathers, "rank %d: %d", r, (int)called->gathers);
        cr_expect_eq(called->sends > 0, sends, "rank %d: %d", r, (int)called->sends);
    }
    ranks_free(ranks);
}

static plan_tensor *taken(weir_plan *plan, const plan_collective *of, const plan_move *move)
{
    const plan_actor *actor = &plan->actors[plan->members[of->members.first + move->to].i];
    return &plan->tensors[plan->operands[plan->kernels[actor->kernels.first].out.first + move->take].tensor.i];
}

/* One of two members takes the parts of both in the wrong order. Returns how often. */
static int swap_takes(weir_plan *plan, uint32_t member)
{
    int swapped = 0;
    for (uint32_t c = 0; c < plan->collectives_count; c++) {
        const plan_collective *of = &plan->collectives[c];
        const plan_move *end = plan->moves + of->moves.first + of->moves.count;
        for (const plan_move *own = plan->moves + of->moves.first; own < end; own++)
            for (const plan_move *move = plan->moves + of->moves.first; own->from == own->to && move < end; move++) {
                if (own->to != member || move->to != member || move->from == member || move->give != own->give)
                    continue;
                plan_tensor *a = taken(plan, of, own), *b = taken(plan, of, move);
                uint64_t offset = a->offset;
                a->offset = b->offset;
                b->offset = offset;
                swapped++;
            }
    }
    return swapped;
}

Test(cuda_nccl, what_all_give_all_is_gathered)
{
    if (card_real())
        cr_skip_test("a real library does not say what was called");
    card_open(NULL);
    weir_plan *plan = plan_of((struct learner_opts){.dp = 2, .zero = true});
    expect_calls(plan, true, true); /* what is small lies apart, to begin where a tensor may */
    weir_plan_free(plan);
}

Test(cuda_nccl, where_one_member_takes_otherwise_all_move)
{
    if (card_real())
        cr_skip_test("a real library does not say what was called");
    card_open(NULL);
    weir_plan *plan = plan_of((struct learner_opts){.dp = 2, .zero = true});
    cr_assert_gt(swap_takes(plan, 1), 0);
    expect_calls(plan, false, true);
    weir_plan_free(plan);
}

Test(cuda_nccl, sums_by_the_devices_are_near)
{
    struct learner_opts opts = {.dp = 2, .compile.reduce = WEIR_FAST};
    spread_is_the_same(opts, 2, RANKS_SHM, 1e-4);
    opts.zero = true;
    spread_is_the_same(opts, 2, RANKS_SHM, 1e-4);
}

/* ---- what goes wrong ---- */

struct told {
    weir_status status;
    bool opened;
    double seconds, closed;
    char error[512], failed[48];
};

/* Its session's life, whatever happens. */
static void live(struct rank *rank)
{
    const struct job *job = rank->ctx;
    struct told *told = rank->result;
    double begun = ranks_seconds();
    weir_session *s = opened(rank, job);
    told->opened = s != NULL;
    told->status = s ? weir_session_run(s, job->steps) : WEIR_E_STATE;
    snprintf(told->error, sizeof told->error, "%s", told->status ? weir_error() : "");
    if (s)
        RANK_OK(rank, weir_session_close(s));
    told->seconds = ranks_seconds() - begun;
    snprintf(told->failed, sizeof told->failed, "%s", card_look().failed);
    expect_nothing_left(rank);
}

static struct ranks *lived(struct job *job, uint32_t may_die)
{
    return ranks_run(live, job, .count = 2, .link = RANKS_SHM, .may_die = may_die, .result_bytes = sizeof(struct told));
}

static const struct told *told_of(const struct ranks *ranks, int r)
{
    return ranks->rank[r].result;
}

static void skip_without_processes(void)
{
    if (kind() == RANKS_THREADS)
        cr_skip_test("what goes wrong is a process's own affair");
}

/* Rank r's call with this number fails. Returns whether it made as many. */
static bool expect_told(struct job *job, int r, uint64_t number, int *failures)
{
    job->of[r] = (standin_options){.seed = number, .fail_nccl = number};
    job->of[!r] = (standin_options){.seed = number};
    struct ranks *ranks = lived(job, 0);
    const struct told *one = told_of(ranks, r), *other = told_of(ranks, !r);
    bool reached = *one->failed;
    *failures += one->status != WEIR_OK;
    fprintf(stderr, "call %d of rank %d, %s: %s | %s\n", (int)number, r, one->failed, one->error, other->error);
    bool named = strstr(one->error, "nccl") || strstr(one->error, "NCCL");
    cr_expect(!one->status || named, "call %d, %s: \"%s\"", (int)number, one->failed, one->error);
    cr_expect(!one->status || strstr(other->error, "rank"), "call %d, %s: the other was told \"%s\"", (int)number,
              one->failed, other->error);
    cr_expect(!strchr(one->error, '\n') && !strchr(other->error, '\n'));
    cr_expect(one->seconds < 20 && other->seconds < 20, "call %d, %s: %f s, %f s", (int)number, one->failed,
              one->seconds, other->seconds);
    ranks_free(ranks);
    return reached;
}

Test(cuda_nccl, each_call_may_fail_on_one_rank)
{
    skip_without_processes();
    card_open(NULL);
    for (int r = 0; r < 2; r++) {
        struct learner_opts opts = {.dp = 2, .zero = r == 1, .compile.reduce = r == 1 ? WEIR_FAST : WEIR_SAME_BITS};
        struct job job = {.plan = plan_of(opts), .steps = 1};
        uint64_t number = 1;
        int failures = 0;
        while (number <= CALLS && expect_told(&job, r, number, &failures))
            number += STRIDE;
        cr_expect(number <= CALLS, "there are more calls");
        cr_expect_gt(failures, 30 / STRIDE);
        weir_plan_free(job.plan);
    }
}

Test(cuda_nccl, a_library_that_is_not_there_is_one_sentence_on_all_ranks)
{
    skip_without_processes();
    card_open(NULL);
    struct job job = {.plan = plan_of((struct learner_opts){.dp = 2}), .steps = 1};
    for (int r = 0; r < 2; r++) {
        job.of[r] = (standin_options){.no_nccl = true};
        job.of[!r] = (standin_options){.seed = 1};
        struct ranks *ranks = lived(&job, 0);
        for (int each = 0; each < 2; each++) {
            cr_expect_not(told_of(ranks, each)->opened);
            char want[200], told[40] = "";
            if (each != r)
                snprintf(told, sizeof told, "rank %d*: ", r);
            snprintf(want, sizeof want,
                     "%scuda:%d works with devices of other processes, which needs NCCL: libnccl.so.2: cannot open shared "
                     "object file",
                     told, r);
            cr_expect(!fnmatch(want, told_of(ranks, each)->error, 0), "rank %d: %s", each, told_of(ranks, each)->error);
        }
        ranks_free(ranks);
    }
    weir_plan_free(job.plan);
}

Test(cuda_nccl, two_ranks_on_one_card_are_refused)
{
    skip_without_processes();
    setenv("WEIR_CUDA_LOGICAL", "2", 1);
    setenv("STANDIN_CARDS", "1", 1);
    card_open(NULL);
    struct job job = {.plan = plan_of((struct learner_opts){.dp = 2}), .steps = 1};
    struct ranks *ranks = lived(&job, 0);
    for (int each = 0; each < 2; each++) {
        const struct told *told = told_of(ranks, each);
        cr_expect_not(told->opened);
        cr_expect(strstr(told->error, "invalid usage: Duplicate GPU detected : rank 0 and rank 1 both on"), "rank %d: %s", each,
                  told->error);
    }
    ranks_free(ranks);
    weir_plan_free(job.plan);
}

Test(cuda_nccl, what_a_communicator_says_later_is_told)
{
    skip_without_processes();
    card_open(NULL);
    struct job job = {.plan = plan_of((struct learner_opts){.dp = 2}), .steps = 1, .of = {{.nccl_error = true}}};
    struct ranks *ranks = lived(&job, 0);
    cr_expect_str_eq(told_of(ranks, 0)->error, "cuda:0: group 0: ncclCommInitRankConfig: remote process exited or there was a "
                                               "network error");
    cr_expect_str_eq(told_of(ranks, 1)->error, "rank 0 reports: cuda:0: group 0: ncclCommInitRankConfig: remote process exited "
                                               "or there was a network error");
    ranks_free(ranks);
    weir_plan_free(job.plan);
}

/* ---- a rank that goes ---- */

static void go_after_a_step(struct rank *rank)
{
    const struct job *job = rank->ctx;
    struct told *told = rank->result;
    weir_session *s = opened(rank, job);
    RANK_IS(rank, s, "%s", weir_error());
    RANK_OK(rank, weir_session_run(s, 1));
    atomic_fetch_add(job->ended, 1);
    while (rank->number == 1 && atomic_load(job->ended) < 2)
        ranks_pause(1);
    if (rank->number == 1)
        kill(getpid(), SIGKILL);
    double begun = ranks_seconds();
    told->status = weir_session_run(s, 50);
    told->seconds = ranks_seconds() - begun;
    snprintf(told->error, sizeof told->error, "%s", told->status ? weir_error() : "");
    begun = ranks_seconds();
    RANK_OK(rank, weir_session_close(s));
    told->closed = ranks_seconds() - begun;
    if (!job->of[rank->number].abort_hangs)
        expect_nothing_left(rank);
}

/* Two ranks, of which the second one goes. */
static struct ranks *went(struct job *job, enum ranks_link link)
{
    job->ended = mmap(NULL, sizeof *job->ended, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(job->ended, MAP_FAILED);
    struct ranks *ranks =
        ranks_run(go_after_a_step, job, .count = 2, .link = link, .may_die = 2, .result_bytes = sizeof(struct told));
    munmap(job->ended, sizeof *job->ended);
    return ranks;
}

/* The library itself may wait for the one that is gone: it is left waiting, and the session ends. */
Test(cuda_nccl, communicators_that_do_not_end_are_left)
{
    skip_without_processes();
    card_open(NULL);
    struct job job = {.plan = plan_of((struct learner_opts){.dp = 2}), .of = {{.abort_hangs = true}}};
    struct ranks *ranks = went(&job, RANKS_SHM);
    const struct told *told = told_of(ranks, 0);
    cr_expect(strstr(told->error, "rank 1"), "%s", told->error);
    cr_expect(told->seconds + told->closed < 25, "%f s, %f s", told->seconds, told->closed);
    ranks_free(ranks);
    weir_plan_free(job.plan);
}

Test(cuda_nccl, a_rank_that_is_killed_is_told_and_its_communicators_are_aborted)
{
    skip_without_processes();
    card_open(NULL);
    for (enum ranks_link link = RANKS_SHM; link <= RANKS_TCP; link++) {
        struct job job = {.plan = plan_of((struct learner_opts){.dp = 2})};
        struct ranks *ranks = went(&job, link);
        cr_expect_neq(told_of(ranks, 0)->status, WEIR_OK);
        /* Its last firing is known if it has reported it in time. */
        cr_expect(!fnmatch("rank 1 (pid [0-9]* on *) is lost: its connection ended; it *fir*", told_of(ranks, 0)->error, 0),
                  "%s", told_of(ranks, 0)->error);
        cr_expect_lt(told_of(ranks, 0)->seconds, 15, "%s", told_of(ranks, 0)->error);
        ranks_free(ranks);
        weir_plan_free(job.plan);
    }
}
