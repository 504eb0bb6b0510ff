/* tests/transport/net/test_frames.c: what a rank that has been let in may say on the bus, and when: a struct net made
 * by hand, without sockets, is rank 0 of two, and rank 1 says what each test wants. Random frames are fuzz_bus's. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "graph/base/error.h"
#include "graph/plan/spread/spread.h"
#include "tests/support/small_plans.h"
#include "transport/mail/park.h"
#include "transport/net/inside.h"

TestSuite(frames, .timeout = 120);

enum { RANKS = 2, PEER = 1, SESSION = 77, LIVENESS_MS = 1000 };

struct scene {
    weir_plan *plan;
    struct cluster_env env;
    struct report report;
    struct net *net;
    struct links links;
    struct bus bus;
    struct bus_end end;
    struct stream stream; /* from which nothing is read */
    struct bulk_line line;
    uint32_t sharing; /* what the session says of it */
    int64_t left;     /* steps of a BYE; -1: none was taken */
    int failures;     /* FAILs that were taken */
    char lost[768];   /* why the peer is; "": it is not */
};

static void on_lost(void *ctx, uint32_t rank, const char *how)
{
    struct scene *scene = ctx;
    cr_assert_eq(rank, PEER);
    snprintf(scene->lost, sizeof scene->lost, "%s", how);
}

static void on_failed(void *ctx, uint32_t from, uint32_t culprit, const char *text)
{
    struct scene *scene = ctx;
    cr_assert(from < RANKS && culprit < RANKS && text);
    scene->failures++;
}

static void on_left(void *ctx, uint32_t rank, int64_t steps)
{
    struct scene *scene = ctx;
    cr_assert_eq(rank, PEER);
    scene->left = steps;
}

static uint32_t on_sharing(void *ctx)
{
    return ((const struct scene *)ctx)->sharing;
}

static void on_message(struct bus_end *end, struct message message)
{
    cr_assert(end && message.count > 0);
}

static struct scene *scene_open(void)
{
    struct scene *s = calloc(1, sizeof *s);
    weir_plan *plan = small_plan(0);
    s->plan = plan_spread(plan, RANKS, 0);
    weir_plan_free(plan);
    cr_assert_not_null(s->plan, "%s", weir_error());
    s->env = (struct cluster_env){.rank = 0, .size = RANKS};
    s->left = -1;
    s->end.post = on_message;
    struct net *net = s->net = aligned_alloc(_Alignof(struct net), sizeof *net);
    *net = (struct net){.env = &s->env, .report = &s->report, .plan = s->plan, .session = SESSION};
    net->watcher.worker_fd = -1;
    net->members = calloc(RANKS, sizeof *net->members);
    net->hooks = (struct net_hooks){
        .ctx = s, .lost = on_lost, .failed = on_failed, .left = on_left, .sharing = on_sharing};
    pthread_mutex_init(&net->sockets, NULL);
    cr_assert_eq(outbox_open(&net->outbox), WEIR_OK);
    cr_assert_eq(peers_open(&net->peers, &(struct peers_opts){s->plan, RANKS, 0, INT64_MAX, on_lost, s}), WEIR_OK);
    cr_assert(net->peers.of[PEER].neighbour && net->peers.of[PEER].edge);
    net->peers.of[PEER].wired = true;
    cr_assert_eq(links_open(&s->links, s->plan, 0, (const bool[RANKS]){false, true}), WEIR_OK);
    cr_assert_eq(bus_open(&s->bus, s->plan->actors_count), WEIR_OK);
    for (uint32_t a = 0; a < s->plan->actors_count; a++)
        if (plan_rank_of(s->plan, a) == 0)
            bus_attach(&s->bus, a, &s->end);
    cr_assert_eq(net_route(net, &s->links, NULL, &s->bus), WEIR_OK);
    net->bulk.epoll_fd = -1;
    s->stream = (struct stream){&(const struct stream_ops){.write = NULL}, -1};
    net_own_lines(net);
    s->line = (struct bulk_line){.bulk = &net->bulk, .rank = PEER, .stream = &s->stream, .connecting = -1};
    return s;
}

static void scene_close(struct scene *s)
{
    free(s->line.in.body);
    free(s->net->members);
    net_close(s->net);
    links_close(&s->links);
    bus_close(&s->bus);
    weir_plan_free(s->plan);
    free(s);
}

static void part_add(struct incoming *in, const void *bytes, size_t count)
{
    cr_assert_eq(zmq_msg_init_size(&in->parts[in->count], count), 0);
    memcpy(zmq_msg_data(&in->parts[in->count]), bytes, count);
    in->count++;
}

/* It comes over ZeroMQ. */
static void say_message(struct scene *s, enum channel_number number, const unsigned char *header, size_t count)
{
    zmq_msg_t parts[2];
    struct incoming in = {.parts = parts};
    unsigned char id[NET_ROUTING_ID_BYTES];
    const uint64_t session = SESSION;
    const uint32_t rank = PEER;
    memcpy(id, &session, sizeof session);
    memcpy(id + sizeof session, &rank, sizeof rank);
    id[NET_ROUTING_ID_BYTES - 1] = (unsigned char)number;
    part_add(&in, id, sizeof id);
    part_add(&in, header, count);
    net_handle(s->net, &in);
    incoming_clear(&in);
}

/* It comes over the line. */
static void say_bytes(struct scene *s, const void *bytes, size_t count)
{
    cr_expect_eq(bulk_take(&s->line, bytes, count), count);
}

/* The peer says this, in order. */
static void say(struct scene *s, enum channel_number number, struct wire_frame frame)
{
    unsigned char bytes[BULK_HEAD_BYTES + WIRE_HEADER_MAX], *header = bytes + BULK_HEAD_BYTES;
    frame.session = SESSION;
    frame.rank = PEER;
    frame.number = s->net->peers.of[PEER].line[number].heard;
    size_t count = wire_encode(&frame, header);
    if (number == CHANNEL_LIFE) {
        say_message(s, number, header, count);
        return;
    }
    bulk_head_encode(&(struct bulk_head){.kind = BULK_FRAME, .count = (uint16_t)count, .bytes = count}, bytes);
    say_bytes(s, bytes, BULK_HEAD_BYTES + count);
}

/* A peer that has said HELLO, and made its connection for register contents. */
static struct scene *scene_greeted(void)
{
    struct scene *s = scene_open();
    say(s, CHANNEL_LIFE, (struct wire_frame){.kind = WIRE_HELLO});
    s->net->peers.of[PEER].line[CHANNEL_BULK].heard = 1;
    cr_assert(peer_is(&s->net->peers.of[PEER], PEER_HERE));
    return s;
}

static void expect_lost(struct scene *s, const char *why)
{
    cr_expect(strstr(s->lost, why), "'%s' does not say '%s'", s->lost, why);
    cr_expect(peer_is(&s->net->peers.of[PEER], PEER_LOST));
    scene_close(s);
}

/* ---- which channel ---- */

Test(frames, on_the_other_channel_are_refused)
{
    struct scene *s = scene_greeted();
    say(s, CHANNEL_BULK, (struct wire_frame){.kind = WIRE_BEAT});
    expect_lost(s, "a BEAT on this connection");
    s = scene_open();
    say(s, CHANNEL_LIFE, (struct wire_frame){.kind = WIRE_BEAT});
    expect_lost(s, "its first frame is a BEAT");
}

/* Register contents have a connection of their own, so ZeroMQ carries nothing in their place. */
Test(frames, over_zeromq_in_the_place_of_register_contents_are_refused)
{
    struct scene *s = scene_greeted();
    unsigned char header[WIRE_HEADER_MAX];
    const struct wire_frame frame = {.kind = WIRE_BYE, .session = SESSION, .rank = PEER, .number = 1};
    say_message(s, CHANNEL_BULK, header, wire_encode(&frame, header));
    cr_expect_eq(s->left, -1);
    expect_lost(s, "a second connection for register contents");
}

/* ---- how many ---- */

Test(frames, beats_that_waited_while_this_rank_was_stopped_are_taken)
{
    struct scene *s = scene_greeted();
    for (int i = 0; i < 5000; i++)
        say(s, CHANNEL_LIFE, (struct wire_frame){.kind = WIRE_BEAT, .beat.actor = UINT32_MAX});
    cr_expect_str_eq(s->lost, "");
    scene_close(s);
}

Test(frames, a_flood_of_beats_loses_the_peer)
{
    struct scene *s = scene_greeted();
    for (int i = 0; i < 1000000 && !*s->lost; i++)
        say(s, CHANNEL_LIFE, (struct wire_frame){.kind = WIRE_BEAT, .beat.actor = UINT32_MAX});
    expect_lost(s, "more BEATs than 1000 a second");
}

Test(frames, a_failure_is_said_once)
{
    struct scene *s = scene_greeted();
    say(s, CHANNEL_LIFE, (struct wire_frame){.kind = WIRE_FAIL, .fail = {1, 1, "x"}});
    cr_expect(s->failures == 1 && !*s->lost);
    say(s, CHANNEL_LIFE, (struct wire_frame){.kind = WIRE_FAIL, .fail = {1, 1, "x"}});
    cr_expect_eq(s->failures, 1);
    expect_lost(s, "a second FAIL");
}

/* ---- when a connection to it has ended ---- */

/* The connection to the peer has ended; on its own it goes on giving signs of life for `ms`, and `bulk` comes. */
static void live_on(struct scene *s, int ms, bool bulk)
{
    int64_t end_ns = park_now_ns() + ms * INT64_C(1000000);
    s->env.liveness_ns = s->net->peers.liveness_ns = LIVENESS_MS * INT64_C(1000000);
    s->net->clock.next_beat_ns = INT64_MAX; /* it has no sockets to send to */
    peer_happens(&s->net->peers, PEER, PEER_CUT, park_now_ns());
    while (!*s->lost && park_now_ns() < end_ns) {
        say(s, CHANNEL_LIFE, (struct wire_frame){.kind = WIRE_BEAT, .beat.actor = UINT32_MAX});
        if (bulk)
            s->net->peers.of[PEER].line[CHANNEL_BULK].heard_ns = park_now_ns();
        net_time(s->net, true);
        usleep(20000);
    }
}

/* Frames on their way over that connection may be lost, and nothing else would tell. */
Test(frames, of_life_do_not_keep_a_peer_to_which_the_connection_ended)
{
    struct scene *s = scene_greeted();
    live_on(s, LIVENESS_MS / 2, false);
    cr_expect_str_eq(s->lost, "");
    live_on(s, 5 * LIVENESS_MS, false);
    expect_lost(s, "its connection ended");
}

Test(frames, of_bulk_keep_it_for_its_bye_may_be_behind_them)
{
    struct scene *s = scene_greeted();
    live_on(s, 3 * LIVENESS_MS, true);
    cr_expect_str_eq(s->lost, "");
    say(s, CHANNEL_BULK, (struct wire_frame){.kind = WIRE_BYE});
    cr_expect_eq(s->left, 0);
    scene_close(s);
}

/* ---- BYE ---- */

Test(frames, a_bye_of_who_has_done_nothing_is_taken)
{
    struct scene *s = scene_greeted();
    say(s, CHANNEL_BULK, (struct wire_frame){.kind = WIRE_BYE, .bye.steps = 0});
    cr_expect_eq(s->left, 0);
    cr_expect_str_eq(s->lost, "");
    scene_close(s);
}

Test(frames, an_answer_to_a_bye_that_was_not_said_is_refused)
{
    struct scene *s = scene_greeted();
    say(s, CHANNEL_BULK, (struct wire_frame){.kind = WIRE_BYE, .bye.answer = true});
    cr_expect_eq(s->left, -1);
    expect_lost(s, "an answer to a BYE that it was not sent");
}

Test(frames, a_bye_after_steps_of_which_nothing_came_is_refused)
{
    struct scene *s = scene_greeted();
    say(s, CHANNEL_BULK, (struct wire_frame){.kind = WIRE_BYE, .bye.steps = 1});
    cr_expect_eq(s->left, -1);
    expect_lost(s, "a BYE after 1 steps, but edge ");
    s = scene_greeted();
    say(s, CHANNEL_BULK, (struct wire_frame){.kind = WIRE_BYE, .bye.steps = -1});
    expect_lost(s, "a BYE after -1 steps");
}

/* ---- what registers start with ---- */

/* From the peer, of a register that starts full, or does not. */
static const struct transfer *transfer_from_peer(const struct scene *s, bool full)
{
    for (uint32_t i = 0; i < s->links.transfers_count; i++) {
        const struct transfer *transfer = &s->links.transfers[i];
        if (transfer->from == PEER && (s->plan->regsts[transfer->regst].initial > 0) == full)
            return transfer;
    }
    cr_assert_fail("the plan has no such register");
    return NULL;
}

/* The head of a slot that may be the next of the transfer. */
static struct bulk_head slot_head(const struct transfer *transfer, uint32_t slot, bool initial)
{
    return (struct bulk_head){.kind = BULK_SLOT,
                              .initial = initial,
                              .edge = transfer->leader,
                              .slot = slot,
                              .shape = transfer->shape,
                              .bytes = transfer->bytes};
}

/* The head and, when the peer still is, so many bytes that are `fill`. */
static void say_slot(struct scene *s, const struct bulk_head *head, int fill)
{
    unsigned char *bytes = malloc(BULK_HEAD_BYTES + head->bytes);
    cr_assert(bytes);
    bulk_head_encode(head, bytes);
    memset(bytes + BULK_HEAD_BYTES, fill, head->bytes);
    say_bytes(s, bytes, BULK_HEAD_BYTES);
    if (!*s->lost)
        say_bytes(s, bytes + BULK_HEAD_BYTES, head->bytes);
    free(bytes);
}

static void say_initial(struct scene *s, const struct transfer *transfer, uint32_t slot)
{
    const struct bulk_head head = slot_head(transfer, slot, true);
    say_slot(s, &head, 0);
}

Test(frames, what_a_register_starts_with_comes_once_each_time_that_it_is_shared)
{
    struct scene *s = scene_greeted();
    const struct transfer *transfer = transfer_from_peer(s, true);
    uint32_t slots = s->plan->regsts[transfer->regst].initial;
    for (s->sharing = 1; s->sharing < 4; s->sharing++)
        for (uint32_t slot = 0; slot < slots; slot++)
            say_initial(s, transfer, slot);
    cr_expect_str_eq(s->lost, "");
    s->sharing = 3;
    say_initial(s, transfer, 0);
    expect_lost(s, "came already");
}

Test(frames, what_a_register_starts_with_comes_only_while_it_is_shared)
{
    struct scene *s = scene_greeted();
    say_initial(s, transfer_from_peer(s, true), 0);
    expect_lost(s, "when nothing is being shared");
}

Test(frames, a_register_that_starts_empty_is_not_shared)
{
    struct scene *s = scene_greeted();
    s->sharing = 1;
    say_initial(s, transfer_from_peer(s, false), 0);
    expect_lost(s, "which does not start full");
}

/* ---- register contents ---- */

static void expect_slot_lost(void (*change)(struct bulk_head *head), const char *why)
{
    struct scene *s = scene_greeted();
    const struct transfer *transfer = transfer_from_peer(s, false);
    struct bulk_head head = slot_head(transfer, transfer->next_slot, false);
    change(&head);
    say_slot(s, &head, 1);
    cr_expect_eq(s->net->route.outstanding[transfer->leader], 0);
    expect_lost(s, why);
}

static void other_edge(struct bulk_head *head) { head->edge = UINT32_MAX; }
static void no_slot(struct bulk_head *head) { head->slot = UINT32_MAX; }
static void later_slot(struct bulk_head *head) { head->slot++; }
static void other_bytes(struct bulk_head *head) { head->bytes += 4; }
static void other_shape(struct bulk_head *head) { head->shape++; }

Test(frames, of_a_slot_that_may_not_come_are_refused)
{
    expect_slot_lost(other_edge, "for an edge that does not lead from it");
    expect_slot_lost(no_slot, "for a slot that is not there");
    expect_slot_lost(other_bytes, "in parts of other sizes");
    expect_slot_lost(other_shape, "in parts of other sizes");
}

/* A transfer of a register with several slots. */
static const struct transfer *transfer_of_slots(const struct scene *s)
{
    for (uint32_t i = 0; i < s->links.transfers_count; i++) {
        const struct transfer *transfer = &s->links.transfers[i];
        if (transfer->from == PEER && !s->plan->regsts[transfer->regst].initial &&
            s->plan->regsts[transfer->regst].slots > 1 && s->plan->regsts[transfer->regst].producer.i != PLAN_NONE)
            return transfer;
    }
    cr_assert_fail("the plan has no such register");
    return NULL;
}

Test(frames, of_slots_come_in_order_and_no_more_than_there_is_credit_for)
{
    struct scene *s = scene_greeted();
    const struct transfer *transfer = transfer_of_slots(s);
    const uint32_t slots = s->plan->regsts[transfer->regst].slots;
    for (uint32_t slot = 0; slot < slots; slot++) {
        const struct bulk_head head = slot_head(transfer, slot, false);
        say_slot(s, &head, 1 + (int)slot);
        cr_expect_eq(s->net->route.outstanding[transfer->leader], slot + 1);
    }
    cr_expect_str_eq(s->lost, "");
    for (uint32_t slot = 0; slot < slots; slot++)
        for (uint32_t i = 0; i < transfer->spans.count; i++) {
            const struct span *span = &s->links.spans[transfer->spans.first + i];
            const char *at = links_receive(transfer, span, slot);
            cr_expect(at[0] == (char)(1 + slot) && at[span->bytes - 1] == (char)(1 + slot));
        }
    const struct bulk_head head = slot_head(transfer, 0, false);
    say_slot(s, &head, 9);
    cr_expect_eq(links_receive(transfer, &s->links.spans[transfer->spans.first], 0)[0], 1);
    expect_lost(s, "without credit");
    s = scene_greeted();
    struct bulk_head late = slot_head(transfer_of_slots(s), 0, false);
    later_slot(&late);
    say_slot(s, &late, 1);
    expect_lost(s, "out of order");
}
