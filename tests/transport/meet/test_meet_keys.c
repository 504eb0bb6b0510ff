/* tests/transport/meet/test_meet_keys.c: meetings with keys, and what ranks get of a plan when they have met. */
#include "graph/plan/spread/spread.h"
#include "tests/support/party.h"
#include "tests/support/small_plans.h"
#include "transport/meet/frames.h"

#include <criterion/criterion.h>

TestSuite(meet_keys, .timeout = 60);

static const char *const levels[] = {"v1", "v3", "v4", NULL}; /* of the build */

/* A socket that speaks ZeroMQ with rank 0 and says what it likes. */
struct outsider {
    void *context, *socket;
};

static void outsider_free(struct outsider *outsider)
{
    zmq_close(outsider->socket);
    zmq_ctx_term(outsider->context);
}

static struct meet_frame join_of(const struct party *party, uint32_t rank)
{
    struct meet_frame frame = {.kind = MEET_JOIN};
    frame.join.plan_version = PLAN_VERSION;
    frame.join.rank = rank;
    frame.join.size = party->size;
    frame.join.card = party_card(&party->ranks[rank]);
    return frame;
}

/* ---- keys ---- */

static void give_key(struct party *party, const char *secret)
{
    for (uint32_t r = 0; r < PARTY_MAX; r++)
        strcpy(party->ranks[r].env.secret, secret);
}

Test(meet_keys, is_encrypted_with_a_key)
{
    struct party *party = party_new(4, 20);
    char secret[WEIR_KEY_BYTES];
    cr_assert_eq(weir_key_new(secret), WEIR_OK, "%s", weir_error());
    give_key(party, secret);
    party_start(party);
    party_wait(party);
    party_met(party);
    cr_assert_eq(party->report_count, 0, "%s", party->reports);
    party_free(party);
}

/* Rank 1 has this secret, the others another. */
static void keep_out(const char *secret, const char *report)
{
    struct party *party = party_new(3, 3);
    char ours[WEIR_KEY_BYTES];
    cr_assert_eq(weir_key_new(ours), WEIR_OK, "%s", weir_error());
    give_key(party, ours);
    strcpy(party->ranks[1].env.secret, secret);
    party_start(party);
    party_wait(party);
    for (uint32_t r = 0; r < 3; r += 2) {
        cr_expect_eq(party->ranks[r].status, WEIR_E_TIMEOUT);
        cr_expect(strstr(party->ranks[r].error, "1 of 3 ranks have not come"), "%s", party->ranks[r].error);
    }
    cr_expect_eq(party->ranks[1].status, WEIR_E_TIMEOUT);
    cr_expect(strstr(party->ranks[1].error, "does not answer as rank 0 would: it has another key"), "%s",
              party->ranks[1].error);
    cr_expect(strstr(party->reports, "refused a peer at "), "%s", party->reports);
    cr_expect(strstr(party->reports, report), "'%s' does not say '%s'", party->reports, report);
    cr_expect_leq(party->report_count, 5, "%s", party->reports);
    party_free(party);
}

Test(meet_keys, keeps_out_and_reports_another_key)
{
    char secret[WEIR_KEY_BYTES];
    cr_assert_eq(weir_key_new(secret), WEIR_OK, "%s", weir_error());
    keep_out(secret, "its key is not the session's");
}

Test(meet_keys, keeps_out_and_reports_who_has_no_key)
{
    keep_out("", "without a key");
}

/* One that found out the public key, but not the secret one: it has a pair of its own. */
Test(meet_keys, keeps_out_who_knows_the_public_key_alone)
{
    struct party *party = party_new(2, 2);
    struct keys keys;
    char ours[WEIR_KEY_BYTES];
    cr_assert_eq(weir_key_new(ours), WEIR_OK, "%s", weir_error());
    give_key(party, ours);
    cr_assert_eq(keys_open(&keys, &party->ranks[0].env), WEIR_OK, "%s", weir_error());
    party->ranks[1].absent = true;
    party_start(party);
    struct outsider outsider = {.context = zmq_ctx_new()};
    char public_key[WEIR_KEY_BYTES], secret[WEIR_KEY_BYTES], endpoint[64];
    int linger = 0;
    outsider.socket = zmq_socket(outsider.context, ZMQ_DEALER);
    cr_assert_eq(zmq_curve_keypair(public_key, secret), 0);
    cr_assert_eq(keys_client(&keys, outsider.socket), WEIR_OK, "%s", weir_error());
    zmq_setsockopt(outsider.socket, ZMQ_CURVE_PUBLICKEY, public_key, sizeof public_key);
    zmq_setsockopt(outsider.socket, ZMQ_CURVE_SECRETKEY, secret, sizeof secret);
    zmq_setsockopt(outsider.socket, ZMQ_LINGER, &linger, sizeof linger);
    snprintf(endpoint, sizeof endpoint, "tcp://127.0.0.1:%u", party->ranks[0].env.port);
    cr_assert_eq(zmq_connect(outsider.socket, endpoint), 0);
    unsigned char bytes[MEET_FRAME_MAX];
    static struct meet_frame frame;
    frame = join_of(party, 1);
    zmq_send(outsider.socket, bytes, meet_encode(&frame, bytes), 0);
    party_wait(party);
    party_says(party, WEIR_E_TIMEOUT, "1 of 2 ranks have not come");
    cr_expect(strstr(party->reports, "refused a peer at 127.0.0.1: its key is not the session's"), "%s", party->reports);
    outsider_free(&outsider);
    party_free(party);
}

/* ---- parts ---- */

struct part_case {
    struct rank *rank;
    const weir_plan *whole; /* NULL but for rank 0 */
    weir_plan *part;
};

static void *part_run(void *arg)
{
    struct part_case *one = arg;
    struct rank *rank = one->rank;
    struct keys keys;
    struct report report = {party_report, rank->party, NULL};
    void *context = zmq_ctx_new();
    struct meet meet = {.zmq_context = context, .env = &rank->env, .keys = &keys, .report = &report};
    rank->status = keys_open(&keys, &rank->env);
    if (rank->status == WEIR_OK)
        rank->status = meet_part(&meet, one->whole, &one->part);
    snprintf(rank->error, sizeof rank->error, "%s", rank->status == WEIR_OK ? "" : weir_error());
    zmq_ctx_term(context);
    return NULL;
}

Test(meet_keys, gives_every_rank_its_part_of_rank_0s_plan)
{
    enum { SIZE = 2 };
    struct party *party = party_new(SIZE, 20);
    struct part_case cases[SIZE] = {{.rank = NULL}};
    weir_plan *whole = small_plan(1), *spread = plan_spread(whole, SIZE, 0);
    cr_assert(spread, "%s", weir_error());
    for (uint32_t r = 0; r < SIZE; r++) {
        cases[r] = (struct part_case){.rank = &party->ranks[r], .whole = r ? NULL : whole};
        party->ranks[r].env.level = levels[r]; /* nothing is computed yet */
        cr_assert_eq(pthread_create(&party->ranks[r].thread, NULL, part_run, &cases[r]), 0);
    }
    party_wait(party);
    for (uint32_t r = 0; r < SIZE; r++) {
        weir_plan *expected = plan_part(spread, r);
        cr_assert_eq(party->ranks[r].status, WEIR_OK, "rank %u: %s", r, party->ranks[r].error);
        cr_assert_eq(cases[r].part->hash, expected->hash);
        cr_assert_eq(cases[r].part->part, r + 1);
        weir_plan_free(expected);
        weir_plan_free(cases[r].part);
    }
    weir_plan_free(spread);
    weir_plan_free(whole);
    party_free(party);
}

/* One asks for its part, the other opens a session: another rank 0 may be about to. */
Test(meet_keys, is_not_for_who_is_at_another_call)
{
    struct party *party = party_new(2, 1.5);
    struct part_case one = {.rank = &party->ranks[1]};
    strcpy(party->ranks[0].env.name, "train");
    cr_assert_eq(pthread_create(&party->ranks[0].thread, NULL, party_run, &party->ranks[0]), 0);
    cr_assert_eq(pthread_create(&party->ranks[1].thread, NULL, part_run, &one), 0);
    party_wait(party);
    party_says(party, WEIR_E_TIMEOUT, "rank 0 met for 'train', rank 1 wants 'part of a plan'");
    party_free(party);
}

/* A program that has another session of the same name open at the same time. */
Test(meet_keys, lets_a_second_session_of_the_same_name_wait)
{
    enum { SIZE = 2 };
    struct party *party[2] = {party_new(SIZE, 20), party_new(SIZE, 20)};
    for (int p = 0; p < 2; p++)
        for (uint32_t r = 0; r < SIZE; r++) {
            party[p]->ranks[r].env.port = party[0]->ranks[0].env.port;
            party[p]->ranks[r].workers = 3 + (uint32_t)p;
            cr_assert_eq(pthread_create(&party[p]->ranks[r].thread, NULL, party_run, &party[p]->ranks[r]), 0);
        }
    for (int p = 0; p < 2; p++)
        party_wait(party[p]);
    for (int p = 0; p < 2; p++)
        for (uint32_t r = 0; r < SIZE; r++)
            cr_expect_eq(party[p]->ranks[r].status, WEIR_OK, "%s", party[p]->ranks[r].error);
    cr_expect_neq(party[0]->ranks[0].session, party[1]->ranks[0].session);
    for (int p = 0; p < 2; p++)
        party_free(party[p]);
}
