/* tests/transport/net/test_claims.c: who has the session's secret is not every rank of it. Rank 0 is a session; ranks 1
 * and 2 are played here: they meet it as they should, then say on its bus what they should not. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>
#include <zmq.h>

#include "graph/base/base.h"
#include "tests/support/ranks.h"
#include "transport/meet/meet.h"
#include "transport/net/wire.h"

TestSuite(claims, .timeout = 60);

enum { RANKS = 3, IDENTITY_BYTES = 13 }; /* session, rank, channel */

struct scene {
    char address[32];
    pthread_mutex_t lock;
    char reports[4096];
    char error[1024]; /* of rank 0's session; "": it opened */
};

static void keep_report(void *ctx, const char *text)
{
    struct scene *scene = ctx;
    pthread_mutex_lock(&scene->lock);
    size_t count = strlen(scene->reports);
    snprintf(scene->reports + count, sizeof scene->reports - count, "%s\n", text);
    pthread_mutex_unlock(&scene->lock);
}

static weir_plan *plan_new(void)
{
    weir_graph *g = weir_graph_new("claims");
    WEIR_ON(weir_mesh_new(g, "cpu:0-2"))
    {
        weir_fetch(weir_sum(weir_relu(weir_input(g, WEIR_F32, {3, 2}, .name = "x")), .name = "sum"), .name = "sum");
    }
    weir_plan *plan = weir_compile(g);
    weir_graph_free(g);
    return plan;
}

static void *session_run(void *arg)
{
    struct scene *scene = arg;
    weir_plan *plan = plan_new();
    weir_cluster_opts cluster = {.world_size = RANKS, .rank = 0, .address = scene->address};
    weir_session *session =
        weir_session_open(plan, .cluster = cluster, .report = keep_report, .report_ctx = scene);
    snprintf(scene->error, sizeof scene->error, "%s", session ? "" : weir_error());
    weir_session_close(session);
    weir_plan_free(plan);
    return NULL;
}

/* A rank that has met the others. */
struct player {
    struct scene *scene;
    uint32_t rank;
    pthread_t thread;
    void *context;
    struct keys keys;
    struct member members[RANKS];
    uint64_t session;
    char error[1024];
};

static void *player_run(void *arg)
{
    struct player *player = arg;
    struct cluster_env env;
    const struct report report = {0};
    weir_cluster_opts opts = {
        .world_size = RANKS, .rank = (int)player->rank, .address = player->scene->address, .name = "claims"};
    weir_status status = cluster_env_read(&opts, &env);
    if (status == WEIR_OK)
        status = op_level(&env.level);
    if (status == WEIR_OK)
        status = keys_open(&player->keys, &env);
    player->context = zmq_ctx_new();
    struct member *card = &player->members[player->rank];
    *card = (struct member){.name = "player", .tcp = "tcp://127.0.0.1:9", .segment_fd = -1};
    memcpy(card->key, player->keys.own_public_key, WEIR_KEY_BYTES);
    struct meet meet = {.zmq_context = player->context, .env = &env, .keys = &player->keys, .report = &report,
                        .members = player->members};
    if (status == WEIR_OK)
        status = meet_session(&meet);
    snprintf(player->error, sizeof player->error, "%s", status == WEIR_OK ? "" : weir_error());
    player->session = meet.session;
    return NULL;
}

/* HELLO on rank 0's bus in the name of `rank`. Returns the socket. */
static void *say_hello(const struct player *player, const struct keys *keys, uint32_t rank)
{
    unsigned char identity[IDENTITY_BYTES] = {0}, header[WIRE_HEADER_MAX];
    struct wire_frame hello = {.kind = WIRE_HELLO, .rank = rank, .session = player->session};
    int linger = 0;
    void *socket = zmq_socket(player->context, ZMQ_DEALER);
    memcpy(identity, &player->session, sizeof player->session);
    memcpy(identity + sizeof player->session, &rank, sizeof rank);
    zmq_setsockopt(socket, ZMQ_LINGER, &linger, sizeof linger);
    zmq_setsockopt(socket, ZMQ_ROUTING_ID, identity, sizeof identity);
    cr_assert_eq(keys_bus_client(keys, socket, player->members[0].key), WEIR_OK, "%s", weir_error());
    cr_assert_eq(zmq_connect(socket, player->members[0].tcp), 0);
    zmq_send(socket, header, wire_encode(&hello, header), 0);
    return socket;
}

/* Rank 2 says HELLO in the name of `claimed`, with its own key or one that stands on no card; rank 1 only after it.
 * What rank 0 then reports, and how its session ends, as nobody says more. */
static void claim(uint32_t claimed, bool own_key, const char *report, const char *error)
{
    struct scene scene = {.lock = PTHREAD_MUTEX_INITIALIZER};
    struct player players[RANKS - 1] = {{.scene = &scene, .rank = 1}, {.scene = &scene, .rank = 2}};
    pthread_t session;
    snprintf(scene.address, sizeof scene.address, "127.0.0.1:%d", ranks_port());
    setenv("WEIR_LIVENESS", "0.5", 1);
    setenv("WEIR_JOIN", "3", 1);
    setenv("WEIR_SHM", "0", 1);
    cr_assert_eq(pthread_create(&session, NULL, session_run, &scene), 0);
    for (int p = 0; p < RANKS - 1; p++)
        cr_assert_eq(pthread_create(&players[p].thread, NULL, player_run, &players[p]), 0);
    for (int p = 0; p < RANKS - 1; p++) {
        pthread_join(players[p].thread, NULL);
        cr_assert_str_eq(players[p].error, "");
    }
    struct keys keys = players[1].keys;
    if (!own_key)
        cr_assert_eq(zmq_curve_keypair(keys.own_public_key, keys.own_secret), 0);
    ranks_pause(200); /* rank 0 is where it takes only keys of cards */
    void *first = say_hello(&players[1], &keys, claimed);
    ranks_pause(500);
    void *second = say_hello(&players[0], &players[0].keys, 1);
    pthread_join(session, NULL);
    zmq_close(first);
    zmq_close(second);
    for (int p = 0; p < RANKS - 1; p++)
        zmq_ctx_term(players[p].context);
    cr_expect(strstr(scene.reports, report), "'%s' does not say '%s'", scene.reports, report);
    cr_expect(strstr(scene.error, error), "'%s' does not say '%s'", scene.error, error);
}

Test(claims, to_another_rank_are_ignored_and_reported)
{
    claim(1, true, "ignored a message in the name of a rank whose key the sender does not have on the bus of rank 0",
          "heard no more of rank 1, 2");
}

Test(claims, with_a_key_that_stands_on_no_card_are_refused_and_reported)
{
    claim(2, false, "refused a peer at 127.0.0.1: its key is that of no rank", "heard no more of rank 2");
}

Test(claims, to_ones_own_rank_are_good)
{
    claim(2, true, "", "is lost");
}
