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
#include <unistd.h>
#include <weir/weir.h>
#include <zmq.h>

#include "graph/plan/spread/spread.h"
#include "tests/support/played.h"
#include "tests/support/ranks.h"
#include "transport/mail/message.h"
#include "transport/line/bulk.h"
#include "transport/line/links.h"

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
    struct played played;
    void *life, *bulk;          /* sockets of ZeroMQ's; a rank with which there is an edge has no use for the second */
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
    setenv("WEIR_CARRIER", "ipc,tcp", 1);
    setenv("WEIR_JOIN", "20", 1);
    cr_assert_eq(pthread_create(&scene->session, NULL, session_run, scene), 0);
}

/* ---- rank 1 ---- */

static void say_life(struct player *p, struct wire_frame frame, const void *payload, size_t bytes)
{
    frame.rank = 1;
    played_say_on(&p->played, p->life, CHANNEL_LIFE, frame, payload, bytes);
}

static void say(struct player *p, enum channel_number number, struct wire_frame frame)
{
    if (number == CHANNEL_LIFE)
        say_life(p, frame, NULL, 0);
    else
        played_say(&p->played, frame, NULL, 0);
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
    *p = (struct player){
        .scene = scene, .played = {.rank = 1, .count = RANKS, .address = scene->address, .name = "protocol"}};
    find_transfer(p);
    played_meet(&p->played);
    cr_assert_str_eq(p->played.error, "");
    p->life = played_connect(&p->played, CHANNEL_LIFE, &p->played.keys, 1);
    say_life(p, played_hello(&p->played), NULL, 0);
    played_hear(&p->played);
    played_bring(&p->played);
    const struct wire_frame mark = {.kind = WIRE_VALUE, .value = {.shard = WIRE_MARK, .round = 1}};
    played_say(&p->played, mark, &opening, sizeof opening);
    for (int ms = 0; !atomic_load(&scene->runs) && ms < WAIT_MS; ms++)
        ranks_pause(1);
}

static void player_close(struct player *p)
{
    zmq_close(p->life);
    if (p->bulk)
        zmq_close(p->bulk);
    played_close(&p->played);
    links_close(&p->links);
    weir_plan_free(p->spread);
}

/* ---- what it says ---- */

/* A SLOT that is right but for what is told: `change` is added to the edge, the slot, the bytes or the shape. */
struct slot_change {
    uint32_t edge, slot, bytes, shape;
    bool initial;
};

static struct bulk_head slot_head(const struct player *p, struct slot_change change)
{
    return (struct bulk_head){.kind = BULK_SLOT,
                              .initial = change.initial,
                              .edge = p->out->leader + change.edge,
                              .slot = change.slot,
                              .shape = p->out->shape + change.shape,
                              .bytes = p->out->bytes + change.bytes};
}

static void say_slot(struct player *p, struct slot_change change)
{
    static const char zeros[1 << 12];
    struct bulk_head head = slot_head(p, change);
    played_head(&p->played, head);
    played_bytes(&p->played, zeros, head.bytes);
}

static void say_word(struct player *p, struct message message)
{
    uint64_t word = message_pack(message);
    played_head(&p->played, (struct bulk_head){.kind = BULK_WORDS, .bytes = sizeof word});
    played_bytes(&p->played, &word, sizeof word);
}

static uint32_t slots(const struct player *p)
{
    return p->spread->regsts[p->out->regst].slots;
}

static void slot_out_of_order(struct player *p) { say_slot(p, (struct slot_change){.slot = 1}); }
static void slot_of_no_number(struct player *p) { say_slot(p, (struct slot_change){.slot = slots(p)}); }
static void slot_of_another_edge(struct player *p) { say_slot(p, (struct slot_change){.edge = 1}); }
static void slot_of_no_edge(struct player *p) { say_slot(p, (struct slot_change){.edge = 1 << 30}); }
static void slot_too_long(struct player *p) { say_slot(p, (struct slot_change){.bytes = 8}); }
static void slot_of_another_shape(struct player *p) { say_slot(p, (struct slot_change){.shape = 1}); }
static void slot_at_the_start(struct player *p) { say_slot(p, (struct slot_change){.initial = true}); }

static void slots_without_credit(struct player *p)
{
    for (uint32_t i = 0; i < STEPS; i++)
        say_slot(p, (struct slot_change){.slot = i % slots(p)});
}

static void bulk_over_zeromq(struct player *p)
{
    p->bulk = played_connect(&p->played, CHANNEL_BULK, &p->played.keys, 1);
    p->played.sent[CHANNEL_BULK] = 0;
    played_say_on(&p->played, p->bulk, CHANNEL_BULK, played_hello(&p->played), NULL, 0);
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
    played_head(&p->played, (struct bulk_head){.kind = BULK_WORDS, .bytes = 12});
}

static void words_without_end(struct player *p)
{
    played_head(&p->played, (struct bulk_head){.kind = BULK_WORDS, .bytes = UINT64_C(1) << 40});
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

static void say_value(struct player *p, uint32_t shard, uint64_t round, const void *payload, size_t bytes)
{
    played_say(&p->played, (struct wire_frame){.kind = WIRE_VALUE, .value = {.shard = shard, .round = round}}, payload,
               bytes);
}

static void value_of_a_past_round(struct player *p)
{
    say_value(p, WIRE_MARK, 1, "12345678", 8);
}

/* Behind what the round is for: a status cut short, one that there is not, a text with a zero byte. */
static void say_mark(struct player *p, const char *note, size_t bytes)
{
    char mark[64] = {0};
    memcpy(mark + sizeof(uint64_t), note, bytes);
    say_value(p, WIRE_MARK, 2, mark, sizeof(uint64_t) + bytes);
}

static void mark_cut_short(struct player *p) { say_mark(p, "12", 2); }
static void mark_of_no_status(struct player *p) { say_mark(p, "zzzzwords", 9); }
static void mark_with_a_zero(struct player *p) { say_mark(p, "\1\0\0\0a\0b", 7); }

static void value_of_no_shard(struct player *p)
{
    say_value(p, 77, 2, "1234", 4);
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

/* An empty payload is one, too. */
static void beat_with_an_empty_payload(struct player *p)
{
    say_life(p, (struct wire_frame){.kind = WIRE_BEAT, .beat.actor = UINT32_MAX}, "", 0);
}

static void beat_with_a_frame_more(struct player *p)
{
    unsigned char header[WIRE_HEADER_MAX];
    struct wire_frame beat = {.kind = WIRE_BEAT, .rank = 1, .session = p->played.session, .beat.actor = UINT32_MAX,
                              .number = p->played.sent[CHANNEL_LIFE]++};
    size_t bytes = wire_encode(&beat, header);
    cr_assert(zmq_send(p->life, header, bytes, ZMQ_SNDMORE) >= 0 && zmq_send(p->life, "", 0, ZMQ_SNDMORE) == 0 &&
              zmq_send(p->life, "", 0, 0) == 0);
}

static void waits_of_another(struct player *p)
{
    say_life(p, (struct wire_frame){.kind = WIRE_WAITS, .waits = {.count = 1}}, "0123456789abcdef", 16);
}

static void hello_again(struct player *p) { say(p, CHANNEL_LIFE, (struct wire_frame){.kind = WIRE_HELLO}); }
static void hello_in_bulk(struct player *p) { say(p, CHANNEL_BULK, (struct wire_frame){.kind = WIRE_HELLO}); }

static void beat_in_bulk(struct player *p)
{
    say(p, CHANNEL_BULK, (struct wire_frame){.kind = WIRE_BEAT, .beat.actor = UINT32_MAX});
}

static void number_left_out(struct player *p)
{
    p->played.sent[CHANNEL_LIFE]++;
    say(p, CHANNEL_LIFE, (struct wire_frame){.kind = WIRE_BEAT, .beat.actor = UINT32_MAX});
}

static void number_left_out_in_bulk(struct player *p)
{
    p->played.sent[CHANNEL_BULK]++;
    say_value(p, WIRE_MARK, 2, "12345678", 8);
}

static void no_header(struct player *p) { cr_assert_geq(zmq_send(p->life, "hello", 5, 0), 0); }

static void no_header_in_bulk(struct player *p)
{
    played_head(&p->played, (struct bulk_head){.kind = BULK_FRAME, .count = 5, .bytes = 5});
    played_bytes(&p->played, "hello", 5);
}

static void frame_of_no_kind(struct player *p) { played_head(&p->played, (struct bulk_head){.kind = BULK_KIND_END}); }
static void frame_of_kind_0(struct player *p) { played_head(&p->played, (struct bulk_head){.kind = 0}); }

static void frame_with_others_fields(struct player *p)
{
    played_head(&p->played, (struct bulk_head){.kind = BULK_WORDS, .bytes = 8, .edge = 1});
}

static void frame_without_header(struct player *p)
{
    played_head(&p->played, (struct bulk_head){.kind = BULK_FRAME, .bytes = 64});
}

static void frame_without_end(struct player *p)
{
    played_head(&p->played, (struct bulk_head){.kind = BULK_FRAME, .count = 16, .bytes = UINT64_C(1) << 40});
}

/* ---- records ---- */

/* A mark that is right, as one record; its bytes. */
static size_t good_record(struct player *p, unsigned char *record)
{
    static const unsigned char mark[8];
    unsigned char text[BULK_HEAD_BYTES + WIRE_HEADER_MAX + sizeof mark], *header = text + BULK_HEAD_BYTES;
    const struct wire_frame frame = {.kind = WIRE_VALUE,
                                     .rank = 1,
                                     .session = p->played.session,
                                     .number = p->played.sent[CHANNEL_BULK]++,
                                     .value = {.shard = WIRE_MARK, .round = 2}};
    size_t count = wire_encode(&frame, header);
    bulk_head_encode(&(struct bulk_head){.kind = BULK_FRAME, .count = (uint16_t)count, .bytes = count + sizeof mark},
                     text);
    memcpy(header + count, mark, sizeof mark);
    count += BULK_HEAD_BYTES + sizeof mark;
    cr_assert(seal_write(p->played.box, &(struct iovec){text, count}, 1, count, record));
    return count + SEAL_OVER_BYTES;
}

/* With one bit changed, at this place: from the front, or below 0, from the end. */
static void say_changed(struct player *p, long at)
{
    unsigned char record[2048];
    size_t count = good_record(p, record);
    record[at < 0 ? (size_t)((long)count + at) : (size_t)at] ^= 1;
    played_raw(&p->played, record, count);
}

static void record_changed(struct player *p) { say_changed(p, SEAL_HEAD_BYTES + 3); }
static void record_with_another_tag(struct player *p) { say_changed(p, -1); }

static void record_repeated(struct player *p)
{
    unsigned char record[2048];
    size_t count = good_record(p, record);
    for (int i = 0; i < 2; i++)
        played_raw(&p->played, record, count);
}

static void record_left_out(struct player *p)
{
    unsigned char record[2048];
    good_record(p, record);
    played_raw(&p->played, record, good_record(p, record));
}

/* The length is not encrypted, but authenticated: one byte less of a record that has one more. */
static void record_shortened(struct player *p)
{
    unsigned char record[2048];
    size_t count = good_record(p, record);
    record[0]--;
    played_raw(&p->played, record, count);
}

static void say_length(struct player *p, uint32_t length) { played_raw(&p->played, &length, sizeof length); }
static void record_of_nothing(struct player *p) { say_length(p, 0); }
static void record_too_long(struct player *p) { say_length(p, BULK_RECORD_BYTES + 1); }
static void record_without_end(struct player *p) { say_length(p, UINT32_MAX); }

static void slot_not_encrypted(struct player *p)
{
    unsigned char bytes[BULK_HEAD_BYTES];
    struct bulk_head head = slot_head(p, (struct slot_change){.slot = 0});
    bulk_head_encode(&head, bytes);
    played_raw(&p->played, bytes, sizeof bytes);
    played_raw(&p->played, (char[256]){0}, 256);
}

/* ---- and an end ---- */

static void cut_within_a_slot(struct player *p)
{
    struct bulk_head head = slot_head(p, (struct slot_change){.slot = 0});
    played_head(&p->played, head);
    played_bytes(&p->played, (char[8]){0}, 8);
    close(p->played.line);
    p->played.line = -1;
}

/* ---- and what rank 0 says then ---- */

static void expect_lost(void (*breach)(struct player *), const char *name, const char *how, const char *sentence)
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
    cr_expect(strstr(scene.error, how), "%s: %s", name, scene.error);
    cr_expect(strstr(scene.error, sentence), "%s: %s", name, scene.error);
}

#define EXPECT_NAMED(breach, sentence) \
    expect_lost(breach, #breach, "rank 1 (pid 0 on player) is lost: it broke the protocol: ", sentence)

static void slots_wrong(void)
{
    EXPECT_NAMED(slot_out_of_order, "out of order");
    EXPECT_NAMED(slot_of_no_number, "for a slot that is not there");
    EXPECT_NAMED(slot_of_another_edge, "for an edge that does not lead from it");
    EXPECT_NAMED(slot_of_no_edge, "for an edge that does not lead from it");
    EXPECT_NAMED(slot_too_long, "in parts of other sizes");
    EXPECT_NAMED(slot_of_another_shape, "in parts of other sizes");
    EXPECT_NAMED(slot_at_the_start, "when nothing is being shared");
    EXPECT_NAMED(slots_without_credit, "without credit");
    EXPECT_NAMED(bulk_over_zeromq, "a second connection for register contents");
}

Test(protocol, register_contents_come_for_the_slot_whose_turn_it_is_and_with_credit)
{
    slots_wrong();
}

Test(protocol, register_contents_that_are_not_encrypted_are_looked_at_as_well)
{
    setenv("WEIR_INSECURE", "1", 1);
    slots_wrong();
}

static void frames_wrong(void)
{
    EXPECT_NAMED(frame_of_no_kind, "a frame of no kind");
    EXPECT_NAMED(frame_of_kind_0, "a frame of no kind");
    EXPECT_NAMED(frame_with_others_fields, "a frame with fields that its kind does not have");
    EXPECT_NAMED(frame_without_header, "a frame without a header");
    EXPECT_NAMED(frame_without_end, "a payload of 1099511627776 bytes");
    EXPECT_NAMED(words_without_end, "a payload of 1099511627776 bytes");
    EXPECT_NAMED(words_cut_short, "messages in a payload of another size");
    EXPECT_NAMED(no_header_in_bulk, "");
    EXPECT_NAMED(number_left_out_in_bulk, "frame 3 of rank 1 came where its frame 2 was due");
}

Test(protocol, a_stream_has_frames_that_there_are)
{
    frames_wrong();
    expect_lost(cut_within_a_slot, "cut_within_a_slot", "rank 1 (pid 0 on player) is lost: ", "its connection ended");
}

Test(protocol, a_stream_without_a_key_has_the_same_ones)
{
    setenv("WEIR_INSECURE", "1", 1);
    frames_wrong();
    expect_lost(cut_within_a_slot, "cut_within_a_slot", "rank 1 (pid 0 on player) is lost: ", "its connection ended");
}

Test(protocol, records_come_as_they_were_made_and_each_once)
{
    static const char changed[] = "a record that is not the next of its connection: changed, repeated or made up";
    static const char size[] = "a record of a size that there is none of";
    EXPECT_NAMED(record_changed, changed);
    EXPECT_NAMED(record_with_another_tag, changed);
    EXPECT_NAMED(record_repeated, changed);
    EXPECT_NAMED(record_left_out, changed);
    EXPECT_NAMED(record_shortened, changed);
    EXPECT_NAMED(record_of_nothing, size);
    EXPECT_NAMED(record_too_long, size);
    EXPECT_NAMED(record_without_end, size);
    EXPECT_NAMED(slot_not_encrypted, changed);
}

Test(protocol, messages_are_those_that_the_plan_lets_its_actors_send)
{
    EXPECT_NAMED(order, "which it may not send now");
    EXPECT_NAMED(ready_of_a_leader, "which it may not send now");
    EXPECT_NAMED(free_of_too_much, "which it may not send now");
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
    EXPECT_NAMED(beat_with_an_empty_payload, "BEAT with a payload");
    EXPECT_NAMED(beat_with_a_frame_more, "a message of more than 3 frames");
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
    EXPECT_NAMED(hello_in_bulk, "a HELLO on this connection");
    EXPECT_NAMED(beat_in_bulk, "a BEAT on this connection");
    EXPECT_NAMED(number_left_out, "came where its frame 1 was due");
    EXPECT_NAMED(no_header, "");
}

Test(protocol, signs_of_life_come_no_faster_than_they_should)
{
    EXPECT_NAMED(flood_of_beats, "BEAT");
}
