/* tests/transport/net/test_protocol.c: a rank that belongs to the session, has its own key and its own registers, and
 * says once what it may not say then. Rank 0 is a session that runs; rank 1 is played here: it meets, greets and gives
 * the mark of the opening round, then comes the one wrong frame. Rank 0 has to name it, say what was wrong, and fail.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>
#include <zmq.h>

#include "graph/base/base.h"
#include "graph/plan/spread.h"
#include "tests/support/ranks.h"
#include "transport/mail/message.h"
#include "transport/meet/meet.h"
#include "transport/net/inside.h"
#include "transport/net/links.h"

TestSuite(protocol, .timeout = 120);

enum { RANKS = 2, ITEMS = 6, STEPS = 100, WAIT_MS = 20000 };

struct scene {
    char address[32];
    weir_plan *plan;
    pthread_t session;
    _Atomic bool runs;
    weir_status status; /* of rank 0's run */
    char error[1024];
};

/* Rank 1 as it is played. */
struct player {
    struct scene *scene;
    weir_plan *spread;
    struct links links;
    const struct transfer *out; /* the one to rank 0 */
    void *context, *sockets[CHANNELS];
    struct keys keys;
    struct member members[RANKS];
    uint64_t session, sent[CHANNELS];
};

/* ---- rank 0 ---- */

/* A register on rank 1 that rank 0 reads; what it makes of it goes to both. */
static weir_plan *plan_new(void)
{
    weir_graph *g = weir_graph_new("protocol");
    weir_mesh *here = weir_mesh_new(g, "cpu:0"), *there = weir_mesh_new(g, "cpu:1");
    weir_tensor *x = weir_param(g, WEIR_F32, {ITEMS}, .name = "x", .mesh = there, .init = WEIR_UNIFORM(-1, 1));
    weir_tensor *passed = weir_shard(weir_affine(x, 2), .mesh = here);
    weir_fetch(weir_mean(passed), .name = "mean");
    weir_plan *plan = weir_compile(g);
    weir_graph_free(g);
    cr_assert_not_null(plan, "%s", weir_error());
    return plan;
}

static void no_report(void *ctx, const char *text)
{
    (void)ctx;
    (void)text;
}

/* Nothing is pulled, so the run does not end by itself. */
static void *session_run(void *arg)
{
    struct scene *scene = arg;
    weir_cluster_opts cluster = {.world_size = RANKS, .rank = 0, .address = scene->address};
    weir_session *session = weir_session_open(scene->plan, .cluster = cluster, .report = no_report);
    weir_status status = session ? weir_session_start(session, STEPS) : WEIR_E_PEER;
    atomic_store(&scene->runs, true);
    if (!status)
        status = weir_session_wait(session, WAIT_MS);
    scene->status = status;
    snprintf(scene->error, sizeof scene->error, "%s", status ? weir_error() : "");
    weir_session_close(session);
    return NULL;
}

static void scene_open(struct scene *scene)
{
    *scene = (struct scene){.plan = plan_new()};
    snprintf(scene->address, sizeof scene->address, "127.0.0.1:%d", ranks_port());
    setenv("WEIR_SHM", "0", 1);
    setenv("WEIR_JOIN", "20", 1);
    cr_assert_eq(pthread_create(&scene->session, NULL, session_run, scene), 0);
}

/* ---- rank 1 ---- */

static void meet(struct player *p)
{
    struct cluster_env env;
    const struct report report = {0};
    weir_cluster_opts opts = {.world_size = RANKS, .rank = 1, .address = p->scene->address, .name = "protocol"};
    struct member *card = &p->members[1];
    cr_assert_eq(cluster_env_read(&opts, &env), WEIR_OK, "%s", weir_error());
    cr_assert_eq(op_level(&env.level), WEIR_OK, "%s", weir_error());
    cr_assert_eq(keys_open(&p->keys, &env), WEIR_OK, "%s", weir_error());
    *card = (struct member){.name = "player", .tcp = "tcp://127.0.0.1:9", .segment_fd = -1};
    memcpy(card->key, p->keys.own_public_key, WEIR_KEY_BYTES);
    struct meet meet = {.zmq_context = p->context, .env = &env, .keys = &p->keys, .report = &report,
                        .members = p->members};
    cr_assert_eq(meet_session(&meet), WEIR_OK, "%s", weir_error());
    p->session = meet.session;
}

static void send_bytes(struct player *p, enum channel_number number, const void *bytes, size_t count, bool more)
{
    cr_assert_geq(zmq_send(p->sockets[number], bytes, count, more ? ZMQ_SNDMORE : 0), 0);
}

static void send_header(struct player *p, enum channel_number number, struct wire_frame frame, bool more)
{
    unsigned char bytes[WIRE_HEADER_MAX];
    frame.session = p->session;
    frame.rank = 1;
    frame.number = p->sent[number]++;
    send_bytes(p, number, bytes, wire_encode(&frame, bytes), more);
}

static void say(struct player *p, enum channel_number number, struct wire_frame frame)
{
    send_header(p, number, frame, false);
}

static void say_with(struct player *p, enum channel_number number, struct wire_frame frame, const void *payload,
                     size_t bytes)
{
    send_header(p, number, frame, true);
    send_bytes(p, number, payload, bytes, false);
}

static void connect_channel(struct player *p, enum channel_number number)
{
    unsigned char id[NET_ROUTING_ID_BYTES];
    int linger_ms = 0, no_limit = 0; /* rank 0 may be gone while it is flooded */
    void *socket = p->sockets[number] = zmq_socket(p->context, ZMQ_DEALER);
    memcpy(id, &p->session, sizeof p->session);
    memcpy(id + sizeof p->session, &(uint32_t){1}, sizeof(uint32_t));
    id[NET_ROUTING_ID_BYTES - 1] = (unsigned char)number;
    zmq_setsockopt(socket, ZMQ_LINGER, &linger_ms, sizeof linger_ms);
    zmq_setsockopt(socket, ZMQ_SNDHWM, &no_limit, sizeof no_limit);
    zmq_setsockopt(socket, ZMQ_ROUTING_ID, id, sizeof id);
    cr_assert_eq(keys_bus_client(&p->keys, socket, p->members[0].key), WEIR_OK, "%s", weir_error());
    cr_assert_eq(zmq_connect(socket, p->members[0].tcp), 0);
    say(p, number, (struct wire_frame){.kind = WIRE_HELLO});
}

static void find_transfer(struct player *p)
{
    p->spread = plan_spread(p->scene->plan, RANKS, 1);
    cr_assert_not_null(p->spread, "%s", weir_error());
    cr_assert_eq(links_open(&p->links, p->spread, 1, (const bool[RANKS]){true, false}), WEIR_OK);
    for (uint32_t i = 0; i < p->links.transfers_count; i++)
        if (p->links.transfers[i].from == 1)
            p->out = &p->links.transfers[i];
    cr_assert_not_null(p->out);
}

static void player_open(struct player *p, struct scene *scene)
{
    const uint64_t opening = 0;
    *p = (struct player){.scene = scene, .context = zmq_ctx_new()};
    find_transfer(p);
    meet(p);
    connect_channel(p, CHANNEL_LIFE);
    connect_channel(p, CHANNEL_BULK);
    const struct wire_frame mark = {.kind = WIRE_VALUE, .value = {.shard = WIRE_MARK, .round = 1}};
    say_with(p, CHANNEL_BULK, mark, &opening, sizeof opening);
    for (int ms = 0; !atomic_load(&scene->runs) && ms < WAIT_MS; ms++)
        ranks_pause(1);
}

static void player_close(struct player *p)
{
    for (int c = 0; c < CHANNELS; c++)
        zmq_close(p->sockets[c]);
    zmq_ctx_term(p->context);
    links_close(&p->links);
    weir_plan_free(p->spread);
}

/* ---- what it says ---- */

/* DATA that is right but for what is told: `change` is added to the edge, the slot or the bytes of its first span. */
struct data_change {
    uint32_t edge, slot, bytes;
    bool initial;
};

static void say_data(struct player *p, struct data_change change)
{
    static const char zeros[1 << 12];
    const struct span *spans = &p->links.spans[p->out->spans.first];
    send_header(p, CHANNEL_BULK,
                (struct wire_frame){.kind = WIRE_DATA,
                                    .data = {.edge = p->out->leader + change.edge,
                                             .slot = change.slot,
                                             .spans = p->out->spans.count,
                                             .initial = change.initial}},
                true);
    for (uint32_t i = 0; i < p->out->spans.count; i++)
        send_bytes(p, CHANNEL_BULK, zeros, spans[i].bytes + (i ? 0 : change.bytes), i + 1 < p->out->spans.count);
}

static void say_word(struct player *p, struct message message)
{
    uint64_t word = message_pack(message);
    say_with(p, CHANNEL_BULK, (struct wire_frame){.kind = WIRE_WORDS, .words.count = 1}, &word, sizeof word);
}

static uint32_t slots(const struct player *p)
{
    return p->spread->regsts[p->out->regst].slots;
}

static void data_out_of_order(struct player *p) { say_data(p, (struct data_change){.slot = 1}); }
static void data_of_no_slot(struct player *p) { say_data(p, (struct data_change){.slot = slots(p)}); }
static void data_of_another_edge(struct player *p) { say_data(p, (struct data_change){.edge = 1}); }
static void data_of_no_edge(struct player *p) { say_data(p, (struct data_change){.edge = 1 << 30}); }
static void data_too_long(struct player *p) { say_data(p, (struct data_change){.bytes = 8}); }
static void data_at_the_start(struct player *p) { say_data(p, (struct data_change){.initial = true}); }

static void data_without_credit(struct player *p)
{
    for (uint32_t i = 0; i < STEPS; i++)
        say_data(p, (struct data_change){.slot = i % slots(p)});
}

static void data_on_the_other_channel(struct player *p)
{
    say_with(p, CHANNEL_LIFE, (struct wire_frame){.kind = WIRE_DATA, .data.spans = 1}, "", 0);
}

static void order(struct player *p) { say_word(p, (struct message){.edge = p->out->leader, .count = 1, .kind = 5}); }
static void ready_of_a_leader(struct player *p)
{
    say_word(p, (struct message){.edge = p->out->leader, .count = 1, .kind = MESSAGE_READY});
}
static void free_of_too_much(struct player *p)
{
    say_word(p, (struct message){.edge = p->out->leader, .count = 9, .kind = MESSAGE_FREE});
}

static void words_cut_short(struct player *p)
{
    say_with(p, CHANNEL_BULK, (struct wire_frame){.kind = WIRE_WORDS, .words.count = 2}, "12345678", 8);
}

static void bye_of_too_many_steps(struct player *p)
{
    say(p, CHANNEL_BULK, (struct wire_frame){.kind = WIRE_BYE, .bye.steps = STEPS + 1});
}

static void bye_of_steps_below_0(struct player *p)
{
    say(p, CHANNEL_BULK, (struct wire_frame){.kind = WIRE_BYE, .bye.steps = -1});
}

static void flood_of_beats(struct player *p)
{
    for (int i = 0; i < 20000; i++)
        say(p, CHANNEL_LIFE, (struct wire_frame){.kind = WIRE_BEAT, .beat.actor = UINT32_MAX});
}

static void value_of_a_past_round(struct player *p)
{
    say_with(p, CHANNEL_BULK, (struct wire_frame){.kind = WIRE_VALUE, .value = {.shard = WIRE_MARK, .round = 1}},
             "12345678", 8);
}

/* Behind what the round is for: a status cut short, one that there is not, a text with a zero byte. */
static void say_mark(struct player *p, const char *note, size_t bytes)
{
    char mark[64] = {0};
    memcpy(mark + sizeof(uint64_t), note, bytes);
    say_with(p, CHANNEL_BULK, (struct wire_frame){.kind = WIRE_VALUE, .value = {.shard = WIRE_MARK, .round = 2}}, mark,
             sizeof(uint64_t) + bytes);
}

static void mark_cut_short(struct player *p) { say_mark(p, "12", 2); }
static void mark_of_no_status(struct player *p) { say_mark(p, "zzzzwords", 9); }
static void mark_with_a_zero(struct player *p) { say_mark(p, "\1\0\0\0a\0b", 7); }

static void value_of_no_shard(struct player *p)
{
    say_with(p, CHANNEL_BULK, (struct wire_frame){.kind = WIRE_VALUE, .value = {.shard = 77, .round = 2}}, "1234", 4);
}

static void fail_of_no_rank(struct player *p)
{
    say(p, CHANNEL_LIFE, (struct wire_frame){.kind = WIRE_FAIL, .fail = {.culprit = RANKS, .from = 1}});
}

/* Rank 0 alone asks. */
static void hold_asked_of_rank_0(struct player *p)
{
    say(p, CHANNEL_BULK, (struct wire_frame){.kind = WIRE_HOLD, .hold = {.what = WIRE_HOLD_ASK, .run = 1}});
}

static void hold_of_no_run(struct player *p)
{
    say(p, CHANNEL_BULK, (struct wire_frame){.kind = WIRE_HOLD, .hold = {.what = WIRE_HOLD_BEGUN}});
}

static void hold_answered_twice(struct player *p)
{
    for (int i = 0; i < 2; i++)
        say(p, CHANNEL_BULK,
            (struct wire_frame){.kind = WIRE_HOLD, .hold = {.what = WIRE_HOLD_BEGUN, .run = 9, .step = 9}});
}

static void end_of_no_rank(struct player *p)
{
    say(p, CHANNEL_BULK, (struct wire_frame){.kind = WIRE_END, .end = {.culprit = 1, .from = RANKS}});
}

static void end_before_no_step(struct player *p)
{
    say(p, CHANNEL_LIFE, (struct wire_frame){.kind = WIRE_END, .end = {.culprit = 1, .from = 1, .step = -1}});
}

static void waits_of_another(struct player *p)
{
    say_with(p, CHANNEL_LIFE, (struct wire_frame){.kind = WIRE_WAITS, .waits = {.count = 1}}, "0123456789abcdef", 16);
}

static void hello_again(struct player *p) { say(p, CHANNEL_LIFE, (struct wire_frame){.kind = WIRE_HELLO}); }

static void number_left_out(struct player *p)
{
    p->sent[CHANNEL_LIFE]++;
    say(p, CHANNEL_LIFE, (struct wire_frame){.kind = WIRE_BEAT, .beat.actor = UINT32_MAX});
}

static void no_header(struct player *p) { send_bytes(p, CHANNEL_LIFE, "hello", 5, false); }

/* ---- and what rank 0 says then ---- */

static void expect_named(void (*breach)(struct player *), const char *name, const char *sentence)
{
    struct scene scene;
    struct player player;
    scene_open(&scene);
    player_open(&player, &scene);
    breach(&player);
    pthread_join(scene.session, NULL);
    player_close(&player);
    weir_plan_free(scene.plan);
    cr_expect_eq(scene.status, WEIR_E_PEER, "%s: %s", name, weir_status_name(scene.status));
    cr_expect(strstr(scene.error, "rank 1 (pid 0 on player) is lost: it broke the protocol: "), "%s: %s", name,
              scene.error);
    cr_expect(strstr(scene.error, sentence), "%s: %s", name, scene.error);
}

#define EXPECT_NAMED(breach, sentence) expect_named(breach, #breach, sentence)

Test(protocol, register_contents_come_for_the_slot_whose_turn_it_is_and_with_credit)
{
    EXPECT_NAMED(data_out_of_order, "out of order");
    EXPECT_NAMED(data_of_no_slot, "for a slot that is not there");
    EXPECT_NAMED(data_of_another_edge, "for an edge that does not lead from it");
    EXPECT_NAMED(data_of_no_edge, "for an edge that does not lead from it");
    EXPECT_NAMED(data_too_long, "in frames of other sizes");
    EXPECT_NAMED(data_at_the_start, "when nothing is being shared");
    EXPECT_NAMED(data_without_credit, "without credit");
    EXPECT_NAMED(data_on_the_other_channel, "a DATA on this connection");
}

Test(protocol, messages_are_those_that_the_plan_lets_its_actors_send)
{
    EXPECT_NAMED(order, "which it may not send now");
    EXPECT_NAMED(ready_of_a_leader, "which it may not send now");
    EXPECT_NAMED(free_of_too_much, "which it may not send now");
    EXPECT_NAMED(words_cut_short, "2 messages in a payload of another size");
}

Test(protocol, a_session_speaks_of_what_it_did_and_of_itself)
{
    EXPECT_NAMED(bye_of_too_many_steps, "BYE");
    EXPECT_NAMED(bye_of_steps_below_0, "BYE");
    EXPECT_NAMED(value_of_a_past_round, "VALUE of shard");
    EXPECT_NAMED(mark_cut_short, "VALUE of shard");
    EXPECT_NAMED(mark_of_no_status, "VALUE of shard");
    EXPECT_NAMED(mark_with_a_zero, "VALUE of shard");
    EXPECT_NAMED(value_of_no_shard, "VALUE of shard 77 in round 2");
    EXPECT_NAMED(fail_of_no_rank, "a FAIL of rank 1, about rank 2");
    EXPECT_NAMED(waits_of_another, "WAITS with a payload that does not fit");
    EXPECT_NAMED(hold_asked_of_rank_0, "a HOLD 0 of run 1, step 0");
    EXPECT_NAMED(hold_of_no_run, "a HOLD 1 of run 0");
    EXPECT_NAMED(hold_answered_twice, "a HOLD 1 of run 9, step 9");
    EXPECT_NAMED(end_of_no_rank, "an END of rank 2, about rank 1");
    EXPECT_NAMED(end_before_no_step, "before step -1");
}

Test(protocol, frames_come_in_order_and_are_what_they_should_be)
{
    EXPECT_NAMED(hello_again, "a HELLO");
    EXPECT_NAMED(number_left_out, "came where its frame 1 was due");
    EXPECT_NAMED(no_header, "");
}

Test(protocol, signs_of_life_come_no_faster_than_they_should)
{
    EXPECT_NAMED(flood_of_beats, "BEAT");
}
