/* tests/transport/net/test_claims.c: who has the session's secret is not every rank of it. Rank 0 is a session; ranks 1
 * and 2 are played here: they meet it as they should, then say on its bus what they should not. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weir/weir.h>
#include <zmq.h>

#include "tests/support/played.h"
#include "tests/support/ranks.h"

TestSuite(claims, .timeout = 60);

enum { RANKS = 3 };

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

static void *meet(void *played)
{
    played_meet(played);
    return NULL;
}

/* Rank 0's session, and ranks 1 and 2, which have met it. */
struct stage {
    struct scene scene;
    pthread_t session;
    struct played players[RANKS - 1];
};

static void stage_open(struct stage *stage, const char *join_s)
{
    pthread_t threads[RANKS - 1];
    *stage = (struct stage){.scene.lock = PTHREAD_MUTEX_INITIALIZER};
    snprintf(stage->scene.address, sizeof stage->scene.address, "127.0.0.1:%d", ranks_port());
    setenv("WEIR_JOIN", join_s, 1);
    setenv("WEIR_CARRIER", "ipc,tcp", 1);
    cr_assert_eq(pthread_create(&stage->session, NULL, session_run, &stage->scene), 0);
    for (uint32_t p = 0; p < RANKS - 1; p++) {
        stage->players[p] =
            (struct played){.rank = p + 1, .count = RANKS, .address = stage->scene.address, .name = "claims"};
        cr_assert_eq(pthread_create(&threads[p], NULL, meet, &stage->players[p]), 0);
    }
    for (int p = 0; p < RANKS - 1; p++) {
        pthread_join(threads[p], NULL);
        cr_assert_str_eq(stage->players[p].error, "");
    }
}

static void stage_close(struct stage *stage)
{
    for (int p = 0; p < RANKS - 1; p++)
        played_close(&stage->players[p]);
}

/* ---- HELLO ---- */

static void *say_hello(struct played *player, const struct keys *keys, uint32_t rank)
{
    void *socket = played_connect(player, CHANNEL_LIFE, keys, rank);
    struct wire_frame hello = played_hello(player);
    hello.rank = rank;
    played_say_on(player, socket, CHANNEL_LIFE, hello, NULL, 0);
    return socket;
}

/* Rank 2 says HELLO in the name of `claimed`, with its own key or one that stands on no card; rank 1 only after it.
 * Expects rank 0's report, and the end of its session, as nobody says more. */
static void claim(uint32_t claimed, bool own_key, const char *report, const char *error)
{
    struct stage stage;
    setenv("WEIR_LIVENESS", "0.5", 1);
    stage_open(&stage, "3");
    struct played *players = stage.players;
    struct keys keys = players[1].keys;
    if (!own_key)
        cr_assert_eq(zmq_curve_keypair(keys.own_public_key, keys.own_secret), 0);
    ranks_pause(200); /* rank 0 is where it takes only keys of cards */
    void *first = say_hello(&players[1], &keys, claimed);
    ranks_pause(500);
    void *second = say_hello(&players[0], &players[0].keys, 1);
    pthread_join(stage.session, NULL);
    zmq_close(first);
    zmq_close(second);
    stage_close(&stage);
    cr_expect(strstr(stage.scene.reports, report), "'%s' does not say '%s'", stage.scene.reports, report);
    cr_expect(strstr(stage.scene.error, error), "'%s' does not say '%s'", stage.scene.error, error);
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
    claim(2, true, "", "there is no connection for register contents");
}

/* ---- the door ---- */

static const struct door_change {
    uint32_t version, rank; /* what is added to what is right */
    uint64_t session;
    unsigned char ticket;
} door_changes[] = {{.version = 1}, {.rank = 1}, {.rank = 7}, {.rank = -1}, {.session = 1}, {.ticket = 1}};

/* A wrong greeting at rank 0's door is turned away without a reason. */
static void greet_wrongly(const struct played *player)
{
    static const char garbage[DOOR_GREETING_BYTES] = "GET / HTTP/1.1";
    for (size_t i = 0; i < sizeof door_changes / sizeof *door_changes; i++) {
        struct door_greeting greeting = played_greeting(player);
        int fd = played_knock(player);
        greeting.version += door_changes[i].version;
        greeting.rank += door_changes[i].rank;
        greeting.session += door_changes[i].session;
        greeting.ticket[SEAL_SECRET_BYTES - 1] ^= door_changes[i].ticket;
        played_greet(fd, &greeting);
        cr_expect(played_ends(fd), "greeting %zu", i);
        close(fd);
    }
    int fd = played_knock(player);
    cr_assert_eq(write(fd, garbage, sizeof garbage), sizeof garbage);
    cr_expect(played_ends(fd));
    close(fd);
}

/* Its own connection, as it should be, and the same again: the ticket is good for one. */
static void bring_twice(struct played *player)
{
    played_bring(player);
    struct door_greeting greeting = played_greeting(player);
    int fd = played_knock(player);
    played_greet(fd, &greeting);
    cr_expect(played_ends(fd));
    close(fd);
}

static void say_mark(struct played *player)
{
    const uint64_t opening = 0;
    played_say(player, (struct wire_frame){.kind = WIRE_VALUE, .value = {.shard = WIRE_MARK, .round = 1}}, &opening,
               sizeof opening);
}

/* Rank 0's session opens all the same, and says so on both ends: the connections that stand are theirs. */
static void come_to_the_door(void)
{
    struct stage stage;
    struct played *players = stage.players;
    void *life[RANKS - 1];
    stage_open(&stage, "20");
    for (uint32_t p = 0; p < RANKS - 1; p++)
        life[p] = say_hello(&players[p], &players[p].keys, p + 1);
    for (int p = 0; p < RANKS - 1; p++)
        played_hear(&players[p]);
    int silent = played_knock(&players[1]), half = played_knock(&players[1]);
    cr_assert_eq(write(half, "WEIRBULK", 8), 8);
    greet_wrongly(&players[1]);
    bring_twice(&players[0]);
    greet_wrongly(&players[0]);
    played_bring(&players[1]);
    for (int p = 0; p < RANKS - 1; p++)
        say_mark(&players[p]);
    pthread_join(stage.session, NULL);
    cr_expect_str_eq(stage.scene.error, "");
    cr_expect(strstr(stage.scene.reports, "ignored a connection for register contents that is no rank's on the bus of "
                                          "rank 0"),
              "%s", stage.scene.reports);
    cr_expect(played_ends(silent) && played_ends(half) && played_ends(players[0].line) && played_ends(players[1].line));
    close(silent);
    close(half);
    for (int p = 0; p < RANKS - 1; p++)
        zmq_close(life[p]);
    stage_close(&stage);
}

Test(claims, at_the_door_are_proved_by_a_ticket)
{
    come_to_the_door();
}

Test(claims, at_the_door_are_proved_where_no_key_is_needed_too)
{
    setenv("WEIR_INSECURE", "1", 1);
    come_to_the_door();
}

Test(claims, of_whom_nobody_brings_a_connection_end_in_a_sentence)
{
    struct stage stage;
    struct played *players = stage.players;
    void *life[RANKS - 1];
    stage_open(&stage, "1");
    for (uint32_t p = 0; p < RANKS - 1; p++)
        life[p] = say_hello(&players[p], &players[p].keys, p + 1);
    played_hear(&players[0]);
    played_bring(&players[0]);
    pthread_join(stage.session, NULL);
    cr_expect(strstr(stage.scene.error, "between it and rank 2 there is no connection for register contents after 1."),
              "%s", stage.scene.error);
    for (int p = 0; p < RANKS - 1; p++)
        zmq_close(life[p]);
    stage_close(&stage);
}
