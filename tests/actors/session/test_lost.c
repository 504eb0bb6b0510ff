/* tests/actors/session/test_lost.c: sessions of several ranks that end badly: a rank fails, leaves, dies, stops, has
 * another plan, or posts what no actor does. The others have to say who it was, and soon. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <weir/weir.h>

#include "actors/cluster/cluster.h"
#include "actors/session/session.h"
#include "tests/support/chain.h"
#include "tests/support/ranks.h"

TestSuite(lost, .timeout = 120);

enum { WAIT_MS = 30000 };
#define LIVENESS "1" /* s */

static void no_report(void *ctx, const char *said)
{
    (void)ctx;
    (void)said;
}

/* ---- failures ---- */

struct outcome {
    weir_status status;
    double seconds, end; /* from when the run began; and on the clock */
    double gone;         /* when the culprit went */
    int values, wrong;
    char error[1200];
};

/* The acts of a rank in a session that ends badly. */
struct plot {
    weir_plan *plan, *other;
    int64_t steps, culprit_steps;
    int culprit;
    int64_t stop_at;
    double kill_s, stop_s;
    bool leaves; /* the culprit closes in the middle */
};

static void act_out(struct rank *rank)
{
    const struct plot *plot = rank->ctx;
    struct outcome *outcome = rank->result;
    bool bad = rank->number == plot->culprit;
    struct seen seen = {.stop_at = bad ? plot->stop_at : 0,
                        .kill_s = bad ? plot->kill_s : 0,
                        .stop_s = bad ? plot->stop_s : 0,
                        .gone = &outcome->gone};
    seen.pause_from = plot->leaves ? 1 : 0;
    weir_session *s = chain_open(rank, plot->plan, &seen);
    RANK_IS(rank, s, "%s", weir_error());
    double start = seen.start = ranks_seconds();
    if (bad && plot->leaves) {
        RANK_OK(rank, weir_session_start(s, plot->steps));
        ranks_pause(100);
    } else {
        outcome->status = weir_session_run(s, bad && plot->culprit_steps ? plot->culprit_steps : plot->steps);
        snprintf(outcome->error, sizeof outcome->error, "%s", outcome->status ? weir_error() : "");
    }
    outcome->end = ranks_seconds();
    outcome->seconds = outcome->end - start;
    RANK_OK(rank, weir_session_close(s));
    outcome->values = seen.values;
    outcome->wrong = seen.wrong;
}

static const struct outcome *outcome_of(const struct ranks *ranks, int rank)
{
    return ranks->rank[rank].result;
}

static void expect_said(const struct ranks *ranks, int rank, weir_status status, const char *part)
{
    const struct outcome *outcome = outcome_of(ranks, rank);
    cr_expect_eq(outcome->status, status, "rank %d: status %d: %s", rank, outcome->status, outcome->error);
    cr_expect(strstr(outcome->error, part), "rank %d: '%s' does not say '%s'", rank, outcome->error, part);
}

Test(lost, a_kernel_that_fails_on_one_rank_fails_all)
{
    struct plot plot = {.plan = chain_plan("test_fail", true, STAGES), .steps = 1000, .culprit = 1};
    BOTH_LINKS (link) {
        struct ranks *ranks = ranks_run(act_out, &plot, .count = 4, .link = link, .kind = RANKS_THREADS,
                                        .result_bytes = sizeof(struct outcome));
        expect_said(ranks, 1, WEIR_E_KERNEL, "the sky fell");
        for (int r = 0; r < 4; r++) {
            if (r != 1) {
                expect_said(ranks, r, WEIR_E_PEER, "rank 1 reports");
                expect_said(ranks, r, WEIR_E_PEER, "(test_fail) failed on cpu:1 in step 17: the sky fell");
            }
        }
        const char *origin = outcome_of(ranks, 1)->error;
        cr_expect(strstr(outcome_of(ranks, 0)->error, origin), "'%s' does not say '%s'", outcome_of(ranks, 0)->error,
                  origin);
        ranks_free(ranks);
    }
    weir_plan_free(plot.plan);
}

Test(lost, a_rank_that_ran_fewer_steps_and_closed_is_named_with_its_steps)
{
    struct plot plot = {
        .plan = chain_plan("test_sum", true, STAGES), .steps = 1000, .culprit = 2, .culprit_steps = 7};
    BOTH_LINKS (link) {
        struct ranks *ranks = ranks_run(act_out, &plot, .count = 4, .link = link, .kind = RANKS_THREADS,
                                        .result_bytes = sizeof(struct outcome));
        cr_expect_eq(outcome_of(ranks, 2)->status, WEIR_OK);
        for (int r = 0; r < 4; r++) {
            if (r == 2)
                continue;
            expect_said(ranks, r, WEIR_E_PEER, "rank 2 (pid ");
            expect_said(ranks, r, WEIR_E_PEER, "closed its session after 7 steps");
        }
        ranks_free(ranks);
    }
    weir_plan_free(plot.plan);
}

Test(lost, a_rank_that_closes_in_the_middle_of_a_run_fails_the_others)
{
    struct plot plot = {.plan = chain_plan("test_sum", true, STAGES), .steps = 1000000, .culprit = 0, .leaves = true};
    BOTH_LINKS (link) {
        struct ranks *ranks = ranks_run(act_out, &plot, .count = 2, .link = link, .kind = RANKS_THREADS,
                                        .result_bytes = sizeof(struct outcome));
        expect_said(ranks, 1, WEIR_E_PEER, "rank 0 (pid ");
        expect_said(ranks, 1, WEIR_E_PEER, "closed its session after 0 steps");
        cr_expect_eq(outcome_of(ranks, 1)->wrong, 0);
        ranks_free(ranks);
    }
    weir_plan_free(plot.plan);
}

/* `seconds`: from when the culprit was gone to when the others' run ended. */
static void expect_lost(const struct ranks *ranks, int culprit, double seconds)
{
    char who[64];
    snprintf(who, sizeof who, "rank %d (pid %d on ", culprit, (int)ranks->rank[culprit].pid);
    for (int r = 0; r < ranks->count; r++) {
        if (r == culprit)
            continue;
        expect_said(ranks, r, WEIR_E_PEER, who);
        expect_said(ranks, r, WEIR_E_PEER, "is lost");
        expect_said(ranks, r, WEIR_E_PEER, "it last fired ");
        expect_said(ranks, r, WEIR_E_PEER, " in step ");
        double late = outcome_of(ranks, r)->end - outcome_of(ranks, culprit)->gone;
        cr_expect_lt(late, seconds, "rank %d noticed after %.2f s", r, late);
    }
}

/* The sink's rank is the culprit. It goes when beats have told what it fires. */
static void lose(struct plot *plot, enum ranks_link link, double seconds)
{
    plot->plan = chain_plan("test_sum", true, STAGES);
    plot->culprit = 3;
    plot->steps = 1000000000;
    setenv("WEIR_LIVENESS", LIVENESS, 1);
    struct ranks *ranks =
        ranks_run(act_out, plot, .count = 4, .link = link, .result_bytes = sizeof(struct outcome), .may_die = 1 << 3);
    expect_lost(ranks, 3, seconds);
    ranks_free(ranks);
    weir_plan_free(plot->plan);
}

/* A connection that ends shows at once, silence after the limit; and the machine may be busy. */
Test(lost, a_killed_rank_is_noticed_and_named_through_memory)
{
    lose(&(struct plot){.kill_s = 1}, RANKS_SHM, 10);
}

Test(lost, a_killed_rank_is_noticed_and_named_over_wires)
{
    lose(&(struct plot){.kill_s = 1}, RANKS_WIRE, 10);
}

Test(lost, a_stopped_rank_is_noticed_and_named_through_memory)
{
    lose(&(struct plot){.stop_s = 1}, RANKS_SHM, 12);
}

Test(lost, a_stopped_rank_is_noticed_and_named_over_wires)
{
    lose(&(struct plot){.stop_s = 1}, RANKS_WIRE, 12);
}

Test(lost, a_killed_rank_is_noticed_and_named_over_ucx)
{
    lose(&(struct plot){.kill_s = 1}, RANKS_UCX, 10);
}

Test(lost, a_stopped_rank_is_noticed_and_named_over_ucx)
{
    lose(&(struct plot){.stop_s = 1}, RANKS_UCX, 12);
}

Test(lost, a_rank_that_stood_still_for_a_while_goes_on)
{
    struct plot plot = {.plan = chain_plan("test_sum", true, STAGES), .steps = 2000, .culprit = 3, .stop_at = 1000};
    setenv("WEIR_LIVENESS", "5", 1);
    BOTH_LINKS (link) {
        struct ranks *ranks = ranks_run(act_out, &plot, .count = 4, .link = link, .wake_ms = 300,
                                        .result_bytes = sizeof(struct outcome));
        for (int r = 0; r < 4; r++)
            cr_expect_eq(outcome_of(ranks, r)->status, WEIR_OK, "rank %d: %s", r, outcome_of(ranks, r)->error);
        cr_expect_eq(outcome_of(ranks, 3)->values, 2000);
        cr_expect_eq(outcome_of(ranks, 3)->wrong, 0);
        cr_expect_gt(outcome_of(ranks, 0)->seconds, 0.3);
        ranks_free(ranks);
    }
    weir_plan_free(plot.plan);
}

static void open_another_plan(struct rank *rank)
{
    const struct plot *plot = rank->ctx;
    struct seen seen = {0};
    weir_session *s = chain_open(rank, rank->number == plot->culprit ? plot->other : plot->plan, &seen);
    RANK_IS(rank, !s, "the session opened");
    RANK_IS(rank, strstr(weir_error(), "rank 1's graph is not rank 0's"), "'%s' does not say what differs", weir_error());
    *(int *)rank->result = 1;
}

Test(lost, ranks_of_different_plans_do_not_open)
{
    struct plot plot = {.plan = chain_plan("test_sum", true, STAGES), .culprit = 1};
    plot.other = chain_plan("test_sum", true, STAGES + 1);
    struct ranks *ranks =
        ranks_run(open_another_plan, &plot, .count = 2, .kind = RANKS_THREADS, .result_bytes = sizeof(int));
    cr_expect(*(int *)ranks->rank[0].result && *(int *)ranks->rank[1].result);
    ranks_free(ranks);
    weir_plan_free(plot.plan);
    weir_plan_free(plot.other);
}

/* ---- what another process may not post ---- */

/* As message.h lays it out, and what no actor's line sends. */
struct forged {
    const char *what;
    unsigned char word[8]; /* edge (4), count (2), kind, 0; lowest byte first */
};

static const struct forged forgeries[] = {
    {"START", {0, 0, 0, 0, 1, 0, 3, 0}},
    {"FAIL", {0, 0, 0, 0, 1, 0, 4, 0}},
    {"STOP", {0, 0, 0, 0, 1, 0, 5, 0}},
    {"LOOK", {0, 0, 0, 0, 1, 0, 6, 0}},
    {"no kind", {0, 0, 0, 0, 1, 0, 0, 0}},
    {"a kind that is none", {0, 0, 0, 0, 1, 0, 255, 0}},
    {"an edge that is not there", {255, 255, 255, 255, 1, 0, 1, 0}},
    {"a READY for an edge whose reader is on the other rank", {2, 0, 0, 0, 1, 0, 1, 0}},
    {"a READY of more slots than there are", {0, 0, 0, 0, 255, 255, 1, 0}},
    {"a FREE of more slots than there are", {0, 0, 0, 0, 255, 255, 2, 0}},
    {"a READY of none", {0, 0, 0, 0, 0, 0, 1, 0}},
    {"a last byte that is not 0", {0, 0, 0, 0, 1, 0, 1, 9}},
};

enum { FORGERIES = sizeof forgeries / sizeof forgeries[0] };

struct forging {
    weir_plan *plan;
    const struct forged *forged;
    int64_t run; /* steps that are to be done meanwhile; 0: the ranks are at rest */
    _Atomic bool *opened; /* rank 0 has; in shared memory */
};

/* As a process would that maps the ring and knows nothing of weir. */
static void post_word(struct mailbox *box, const unsigned char bytes[8])
{
    uint64_t word, ticket = atomic_fetch_add(&box->ring->tail, 1);
    memcpy(&word, bytes, sizeof word);
    atomic_store(&box->cells[ticket & box->mask], word);
    mailbox_call(box);
}

static void forge(struct rank *rank)
{
    const struct forging *forging = rank->ctx;
    struct outcome *outcome = rank->result;
    struct seen seen = {0};
    weir_session *s = chain_open(rank, forging->plan, &seen);
    RANK_IS(rank, s, "%s", weir_error());
    if (forging->run)
        weir_session_start(s, forging->run); /* fails when the other rank was quicker */
    if (rank->number == 0)
        atomic_store(forging->opened, true);
    while (!atomic_load(forging->opened))
        ranks_pause(1);
    if (rank->number == 1)
        post_word(&s->built.cluster->peers[0].senders[0], forging->forged->word);
    double end = ranks_seconds() + 20;
    while (!(outcome->status = ending_failure(&s->ending)) && ranks_seconds() < end)
        ranks_pause(1);
    snprintf(outcome->error, sizeof outcome->error, "%s", outcome->status ? weir_error() : "");
    RANK_OK(rank, weir_session_close(s));
}

static void forge_each(rank_fn forge_as, weir_plan *plan, int64_t run, const struct forged *forged, size_t count)
{
    struct forging forging = {.plan = plan, .run = run};
    forging.opened = mmap(NULL, 1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert(forging.opened != MAP_FAILED);
    for (size_t i = 0; i < count; i++) {
        forging.forged = &forged[i];
        atomic_store(forging.opened, false);
        struct ranks *ranks =
            ranks_run(forge_as, &forging, .count = 2, .link = RANKS_SHM, .result_bytes = sizeof(struct outcome));
        cr_expect(outcome_of(ranks, 0)->status, "%s went by unseen", forging.forged->what);
        expect_said(ranks, 0, WEIR_E_PEER, "another process posted");
        expect_said(ranks, 1, WEIR_E_PEER, "rank 0 reports");
        ranks_free(ranks);
    }
    munmap(forging.opened, 1);
    weir_plan_free(forging.plan);
}

static void forge_all(rank_fn forge_as, weir_plan *plan, int64_t run)
{
    forge_each(forge_as, plan, run, forgeries, FORGERIES);
}

/* The lane of a push has no thread but the one that pushes. */
static void forge_to_a_push(struct rank *rank)
{
    const struct forging *forging = rank->ctx;
    struct outcome *outcome = rank->result;
    float value[ITEMS] = {0};
    weir_session *s = weir_session_open(forging->plan, .cluster = ranks_cluster(rank), .report = no_report);
    RANK_IS(rank, s, "%s", weir_error());
    uint32_t push = forging->plan->hosts[0].actor.i;
    if (rank->number == 1) {
        const struct share *share = &s->built.cluster->peers[0];
        post_word(&share->senders[share->ring_of[push]], forging->forged->word);
        atomic_store(forging->opened, true);
    }
    while (!atomic_load(forging->opened))
        ranks_pause(1);
    while (rank->number == 1 && !outcome->status) {
        outcome->status = ending_failure(&s->ending);
        ranks_pause(1);
    }
    if (rank->number == 0)
        outcome->status = weir_session_push(s, "x", &(weir_array){value, WEIR_F32, {1, {ITEMS}}}, WAIT_MS);
    snprintf(outcome->error, sizeof outcome->error, "%s", outcome->status ? weir_error() : "");
    RANK_OK(rank, weir_session_close(s));
}

Test(lost, a_word_that_no_actor_posts_fails_a_push)
{
    forge_all(forge_to_a_push, chain_plan("test_sum", false, 2), 0);
}

Test(lost, a_word_that_no_actor_posts_fails_a_session_at_rest)
{
    forge_all(forge, chain_plan("test_sum", true, 2), 0);
}

Test(lost, a_word_that_no_actor_posts_fails_a_session_that_runs)
{
    forge_all(forge, chain_plan("test_sum", true, 2), INT64_C(1) << 40);
}

/* The port of `name`'s n-th actor. */
static unsigned char port_of(const weir_plan *plan, const char *name, int n)
{
    uint32_t a = 0;
    while (strcmp(plan_text(plan, plan->actors[a].name), name) || n--)
        a++;
    return (unsigned char)plan->actors[a].ports.first;
}

/* Stages 1 and 2 of four devices on two ranks: the first is read on rank 0, as is what stands beside it; those beside stage 2
 * are on rank 1. */
Test(lost, a_word_for_one_of_several_readers_that_are_told_together_fails_a_session)
{
    weir_plan *plan = chain_plan_beside("test_sum", true, 6, 2);
    const unsigned char near = port_of(plan, "beside", 2), there = port_of(plan, "beside", 4), here = port_of(plan, "beside", 8);
    const struct forged forged[] = {
        {"a READY behind a pointer", {near, 0, 0, 0, 1, 0, 1, 0}},
        {"a READY for the second of a branch", {here, 0, 0, 0, 1, 0, 1, 0}},
        {"a FREE by the second of a branch", {there, 0, 0, 0, 1, 0, 2, 0}},
    };
    forge_each(forge, plan, INT64_C(1) << 40, forged, sizeof forged / sizeof *forged);
}
