/* tests/transport/net/test_peer.c: which ranks are neighbours, by the plan, and by each rank's part of it; and the
 * states of a peer, in random orders of events, against a trivial model. */
#include <criterion/criterion.h>
#include <weir/weir.h>

#include "graph/plan/spread/spread.h"
#include "tests/support/mutate_plan.h"
#include "tests/support/ops.h"
#include "tests/support/sdf.h"
#include "transport/net/peer.h"

TestSuite(peer, .timeout = 120);

enum { RANKS = 6 };

/* Device after device, the last back to none: rank k reads what rank k - 1 has. Rank 5 has no device. */
static weir_plan *chain_new(void)
{
    uint32_t regst = 0;
    test_ops();
    sdf *s = sdf_new("chain", 1);
    for (int i = 0; i < RANKS - 1; i++) {
        uint32_t actor = sdf_actor(s, sdf_device(s), "stage", .kernel = "test_sum");
        if (i)
            sdf_port(s, actor, regst);
        regst = sdf_regst(s, actor, .slots = 2, .items = 1);
    }
    weir_plan *plan = sdf_plan(s), *spread = plan_spread(plan, RANKS, 1);
    cr_assert_not_null(spread, "%s", weir_error());
    weir_plan_free(plan);
    return spread;
}

/* Bit r: rank r is a neighbour. */
static unsigned neighbours_of(const weir_plan *plan, uint32_t rank)
{
    struct peers peers;
    unsigned ranks = 0;
    cr_assert_eq(peers_open(&peers, &(struct peers_opts){.plan = plan, .count = RANKS, .me = rank}), WEIR_OK);
    for (uint32_t i = 0; i < peers.neighbours_count; i++) {
        cr_assert(peers.of[peers.neighbours[i]].neighbour);
        ranks |= 1u << peers.neighbours[i];
    }
    peers_close(&peers);
    return ranks;
}

Test(peer, neighbours_are_those_with_edges_and_rank_0)
{
    static const unsigned expected[RANKS] = {0x3e, 0x05, 0x0b, 0x15, 0x09, 0x01};
    weir_plan *plan = chain_new();
    for (uint32_t r = 0; r < RANKS; r++)
        cr_expect_eq(neighbours_of(plan, r), expected[r], "rank %u has %x", r, neighbours_of(plan, r));
    weir_plan_free(plan);
}

Test(peer, a_part_of_the_plan_tells_a_rank_the_same)
{
    weir_plan *plan = chain_new();
    for (uint32_t r = 0; r < RANKS; r++) {
        weir_plan *part = plan_part(plan, r);
        cr_assert_not_null(part, "%s", weir_error());
        cr_expect_eq(neighbours_of(part, r), neighbours_of(plan, r));
        weir_plan_free(part);
    }
    weir_plan_free(plan);
}

/* ---- states ---- */

/* All that a peer's state depends on. */
struct model {
    bool neighbour, hello, bye, answered, said, gone, cut, faulty, left, lost;
};

static const char *model_state(const struct model *m)
{
    return m->lost ? "lost" : m->left ? "left" : m->bye ? "parting" : m->hello ? "here" : "absent";
}

static void model_happens(struct model *m, enum peer_event event, bool leaving)
{
    bool open = !m->lost && !m->left, parting = open && m->bye;
    m->gone |= event == PEER_WORD_GONE;
    if (!open)
        return;
    m->hello |= event == PEER_SAYS_HELLO && !parting;
    m->bye |= event == PEER_SAYS_BYE;
    m->cut |= event == PEER_CUT;
    m->lost = event == PEER_FAULT && !parting;
    m->left = !m->lost && ((m->bye && (m->gone || !m->neighbour || (parting && (event == PEER_CUT || event == PEER_FAULT)))) ||
                           (event == PEER_ANSWERS_BYE && !parting) || (event == PEER_CUT && leaving));
}

static bool model_awaited(const struct model *m)
{
    return !m->lost && !m->left && (m->bye || (m->said && !m->cut && (m->neighbour || !m->gone)));
}

static const char *state_name(const struct peer *peer)
{
    static const char *const names[PEER_STATES] = {"absent", "here", "parting", "left", "lost"};
    return names[atomic_load(&peer->state)];
}

struct losses {
    unsigned count[RANKS];
};

static void count_loss(void *ctx, uint32_t rank, const char *how)
{
    struct losses *losses = ctx;
    cr_expect_str_eq(how, "it is broken");
    losses->count[rank]++;
}

static void check_all(const struct peers *peers, const struct model *model, uint32_t me, uint64_t seed)
{
    uint32_t awaited = 0, cut = 0;
    for (uint32_t r = 0; r < RANKS; r++) {
        const struct peer *peer = &peers->of[r];
        bool open = peer_is_open(peer);
        cr_assert_str_eq(state_name(peer), model_state(&model[r]), "rank %u, seed %llu", r, (unsigned long long)seed);
        awaited += model_awaited(&model[r]);
        cut += open && model[r].cut && peer->neighbour && r != me;
    }
    cr_assert(peers->awaited == awaited && peers->cut_count == cut, "seed %llu", (unsigned long long)seed);
}

/* An event of the kind that the code around it reports: an answer comes only to a last word that was said. */
static void random_event(struct peers *peers, struct model *model, struct losses *losses, uint64_t *random)
{
    uint32_t rank = 2;
    while (rank == 2)
        rank = (uint32_t)(mutate_draw(random) % RANKS);
    enum peer_event event = (enum peer_event)(mutate_draw(random) % (PEER_EVENTS + 1));
    struct model *m = &model[rank];
    if (event == PEER_EVENTS) {
        peer_last_word(peers, rank);
        m->said = true;
    } else if (event == PEER_FAULT) {
        unsigned before = losses->count[rank];
        bool told = !peers->leaving && !m->left && !m->lost && !m->bye;
        peer_lose(peers, rank, "it is %s", "broken");
        cr_assert_eq(losses->count[rank], before + told);
        model_happens(m, event, peers->leaving);
    } else if ((event != PEER_ANSWERS_BYE && event != PEER_WORD_GONE) || m->said) {
        peer_happens(peers, rank, event, 100);
        model_happens(m, event, peers->leaving);
    }
}

static void random_life(const weir_plan *plan, uint64_t seed)
{
    struct losses losses = {.count = {0}};
    struct peers peers;
    struct model model[RANKS] = {{.hello = false}};
    uint64_t random = seed;
    const struct peers_opts opts = {plan, RANKS, 2, INT64_MAX, count_loss, &losses};
    cr_assert_eq(peers_open(&peers, &opts), WEIR_OK);
    for (uint32_t r = 0; r < RANKS; r++)
        model[r].neighbour = peers.of[r].neighbour;
    for (int i = 0; i < 40; i++) {
        if (mutate_draw(&random) % 40 == 0)
            peers_leave(&peers);
        random_event(&peers, model, &losses, &random);
        check_all(&peers, model, 2, seed);
    }
    peers_close(&peers);
}

Test(peer, states_are_those_of_a_trivial_model_in_any_order_of_events)
{
    weir_plan *plan = chain_new();
    for (uint64_t seed = 1; seed <= 20000; seed++)
        random_life(plan, seed);
    weir_plan_free(plan);
}

/* ---- verdicts ---- */

struct verdict {
    char how[256];
};

static void keep_verdict(void *ctx, uint32_t rank, const char *how)
{
    (void)rank;
    snprintf(((struct verdict *)ctx)->how, sizeof(((struct verdict *)ctx)->how), "%s", how);
}

/* Rank 2, which hears rank 1 at `now`; a limit of 5 s. */
static int64_t heard(struct peers *peers, const weir_plan *plan, struct verdict *verdict)
{
    const int64_t now = INT64_C(1000000000000);
    *verdict = (struct verdict){.how = ""};
    cr_assert_eq(peers_open(peers, &(struct peers_opts){plan, RANKS, 2, INT64_C(5000000000), keep_verdict, verdict}),
                 WEIR_OK);
    peer_happens(peers, 1, PEER_SAYS_HELLO, now);
    peers_forgive(peers, now);
    return now;
}

static const int64_t second = INT64_C(1000000000);

Test(peer, that_is_silent_for_the_limit_is_lost)
{
    struct verdict verdict;
    struct peers peers;
    weir_plan *plan = chain_new();
    int64_t now = heard(&peers, plan, &verdict);
    peer_judge_silence(&peers, 1, now + 5 * second);
    cr_expect_str_eq(verdict.how, "");
    peer_judge_silence(&peers, 1, now + 6 * second);
    cr_expect_str_eq(verdict.how, "nothing was heard from it for 6.0 s");
    cr_expect(peer_is(&peers.of[1], PEER_LOST));
    peers_close(&peers);
    weir_plan_free(plan);
}

Test(peer, whose_connection_ends_is_lost_when_it_says_no_more)
{
    struct verdict verdict;
    struct peers peers;
    weir_plan *plan = chain_new();
    int64_t now = heard(&peers, plan, &verdict);
    peer_happens(&peers, 1, PEER_CUT, now);
    peers_judge_cut(&peers, now + second / 5, true);
    peers_judge_cut(&peers, now + second, false);
    cr_expect_str_eq(verdict.how, "");
    peers_judge_cut(&peers, now + second / 2, true);
    cr_expect_str_eq(verdict.how, "its connection ended");
    peers_close(&peers);
    weir_plan_free(plan);
}

Test(peer, whose_line_takes_nothing_is_lost_though_it_gives_signs_of_life)
{
    struct verdict verdict;
    struct peers peers;
    weir_plan *plan = chain_new();
    int64_t now = heard(&peers, plan, &verdict);
    peer_judge_stuck(&peers, 1, now, 0, now + 60 * second);
    peer_judge_stuck(&peers, 1, now, 3 << 20, now + 5 * second);
    cr_expect_str_eq(verdict.how, "");
    peer_judge_stuck(&peers, 1, now, 3 << 20, now + 6 * second);
    cr_expect_str_eq(verdict.how, "the connection for register contents to it has taken nothing for 6.0 s, and 3.0 MiB wait");
    peers_close(&peers);
    weir_plan_free(plan);
}

Test(peer, cannot_fail_a_rank_that_leaves)
{
    struct verdict verdict;
    struct peers peers;
    weir_plan *plan = chain_new();
    int64_t now = heard(&peers, plan, &verdict);
    peer_happens(&peers, 3, PEER_SAYS_HELLO, now);
    peers_leave(&peers);
    peer_last_word(&peers, 1);
    peer_last_word(&peers, 3);
    peer_last_word(&peers, 5); /* no neighbour: it was sent a value */
    cr_expect_eq(peers.awaited, 3);
    peer_happens(&peers, 1, PEER_CUT, now);
    cr_expect(peer_is(&peers.of[1], PEER_LEFT));
    peer_judge_silence(&peers, 3, now + 6 * second);
    cr_expect(peer_is(&peers.of[3], PEER_LOST));
    peer_judge_stranger(&peers, 5, now + 3 * second, now + 6 * second);
    cr_expect_eq(peers.awaited, 1);
    peer_judge_stranger(&peers, 5, now + 3 * second, now + 9 * second);
    cr_expect_eq(peers.awaited, 0);
    cr_expect_str_eq(verdict.how, "");
    peers_close(&peers);
    weir_plan_free(plan);
}

Test(peer, signs_of_life_are_paid_for_by_time)
{
    struct peer peer = {.signs_ns = 0};
    int64_t now = PEER_BACKLOG_NS * 100, each = INT64_C(1000000000) / PEER_SIGNS_PER_S;
    int taken = 0;
    while (peer_may_sign(&peer, now))
        taken++;
    cr_expect_eq(taken, PEER_BACKLOG_NS / each);
    cr_expect_not(peer_may_sign(&peer, now));
    cr_expect(peer_may_sign(&peer, now + 3 * each));
}
