/* tests/transport/net/test_peers.c: who is whose neighbour, by the plan, and by each rank's part of it; and the states
 * of a peer. */
#include <criterion/criterion.h>
#include <weir/weir.h>

#include "graph/plan/spread.h"
#include "tests/support/ops.h"
#include "tests/support/sdf.h"
#include "transport/net/peers.h"

TestSuite(peers, .timeout = 120);

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
    cr_assert_eq(peers_open(&peers, plan, RANKS, rank), WEIR_OK);
    for (uint32_t i = 0; i < peers.neighbours_count; i++) {
        cr_assert(peers.of[peers.neighbours[i]].neighbour);
        ranks |= 1u << peers.neighbours[i];
    }
    peers_close(&peers);
    return ranks;
}

Test(peers, neighbours_are_those_with_edges_and_rank_0)
{
    static const unsigned expected[RANKS] = {0x3e, 0x05, 0x0b, 0x15, 0x09, 0x01};
    weir_plan *plan = chain_new();
    for (uint32_t r = 0; r < RANKS; r++)
        cr_expect_eq(neighbours_of(plan, r), expected[r], "rank %u has %x", r, neighbours_of(plan, r));
    weir_plan_free(plan);
}

Test(peers, a_part_of_the_plan_tells_a_rank_the_same)
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

Test(peers, who_is_here_is_counted)
{
    weir_plan *plan = chain_new();
    struct peers peers;
    cr_assert_eq(peers_open(&peers, plan, RANKS, 2), WEIR_OK); /* neighbours: 0, 1, 3 */
    for (uint32_t r = 0; r < 4; r++)
        if (r != 2)
            peer_become(&peers, r, PEER_HERE);
    cr_expect_eq(peers.here_count, 3);
    peer_ended(&peers, 1, 100);
    peer_ended(&peers, 1, 200);
    peer_ended(&peers, 5, 100); /* no neighbour: it may come and go */
    cr_expect(peers.here_count == 2 && peers.ended_count == 1 && peers.of[1].ended_ns == 100);
    peer_become(&peers, 1, PEER_LEFT);
    peer_become(&peers, 3, PEER_LOST);
    cr_expect(peers.here_count == 1 && peers.ended_count == 0);
    peers_close(&peers);
    weir_plan_free(plan);
}

Test(peers, signs_of_life_are_paid_for_by_time)
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
