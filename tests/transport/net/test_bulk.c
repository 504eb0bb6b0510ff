/* tests/transport/net/test_bulk.c: the heads of frames, and lines: two nets made by hand, without a session. Rank 1
 * reads registers of rank 0. The messages that arrive at rank 1 are held against those that rank 0 posted, in their
 * order, and slots byte for byte. With and without keys, over a socket that takes and gives as much as each test
 * wants. */
#include "graph/plan/spread/spread.h"
#include "tests/support/mutate_plan.h"
#include "tests/support/ops.h"
#include "tests/support/sdf.h"
#include "transport/net/inside.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

TestSuite(bulk, .timeout = 120);

/* ---- a stream that takes and gives as much as a test wants ---- */

struct valve {
    struct stream stream;
    struct stream *socket; /* owned */
    size_t most;           /* of a call, at random up to that; 0: nothing, SIZE_MAX: all */
    uint64_t random;
    int writes;            /* calls that wrote something */
};

static ssize_t valve_pass(struct valve *valve, const struct iovec *parts, int count, bool writes)
{
    struct iovec cut[BULK_PARTS];
    size_t left = valve->most == SIZE_MAX ? SIZE_MAX : valve->most ? 1 + mutate_draw(&valve->random) % valve->most : 0;
    int used = 0;
    cr_assert_leq(count, BULK_PARTS);
    for (; used < count && left; used++) {
        cut[used] = parts[used];
        cut[used].iov_len = parts[used].iov_len < left ? parts[used].iov_len : left;
        left -= cut[used].iov_len;
    }
    if (!used)
        return 0;
    return (writes ? valve->socket->ops->write : valve->socket->ops->read)(valve->socket, cut, used);
}

static ssize_t valve_write(struct stream *stream, const struct iovec *parts, int count)
{
    ssize_t done = valve_pass((struct valve *)stream, parts, count, true);
    ((struct valve *)stream)->writes += done > 0;
    return done;
}

static ssize_t valve_read(struct stream *stream, const struct iovec *parts, int count)
{
    return valve_pass((struct valve *)stream, parts, count, false);
}

static void valve_close(struct stream *stream)
{
    struct valve *valve = (struct valve *)stream;
    valve->socket->ops->close(valve->socket);
    free(valve);
}

static const struct stream_ops valve_ops = {.write = valve_write, .read = valve_read, .close = valve_close};

static struct valve *valve_new(int fd)
{
    struct valve *valve = calloc(1, sizeof *valve);
    cr_assert(valve);
    *valve = (struct valve){.stream = {&valve_ops, -1}, .socket = stream_socket(fd), .most = SIZE_MAX, .random = 5};
    return valve;
}

/* ---- two ranks ---- */

enum { RANKS = 2, SESSION = 77, LOG_MAX = 4096 };

/* Registers of rank 0: larger than what is read, or sealed, at once; of a few kilobytes; of a few bytes; and one that
 * is packed though it is large. */
enum { BIG, MIDDLE, SMALL, PACKED, REGSTS };

static const uint32_t items_of[REGSTS] = {100001, 5003, 5, 50021}, slots_of[REGSTS] = {3, 5, 64, 2};

struct scene;

struct said {
    struct message message;
    uint64_t round; /* of a VALUE; 0: it is a message */
};

struct end {
    struct scene *scene;
    struct cluster_env env;
    struct report report;
    struct member members[RANKS];
    struct net *net;
    struct links links;
    struct bus bus;
    struct bus_end bus_end;
    struct bulk_line *line; /* of the net */
    struct valve *valve;    /* its stream, while it has one */
    struct said log[LOG_MAX];
    uint32_t log_count;
    uint64_t value_bytes;
    bool broken, left;
    char lost[768];
};

struct scene {
    weir_plan *plan;
    struct arena *arenas; /* of rank 0's spaces */
    struct end end[RANKS];
    uint32_t edge[REGSTS];
    uint32_t sent[REGSTS], came[REGSTS], freed[REGSTS]; /* slots */
};

/* The byte of a register's n-th slot. */
static unsigned char byte_of(int regst, uint32_t n, uint64_t at)
{
    return (unsigned char)(at * 31 + at / 251 + n * 7 + (uint64_t)regst * 101);
}

static int regst_of(const struct scene *s, uint32_t edge)
{
    int regst = 0;
    while (regst < REGSTS && s->edge[regst] != edge)
        regst++;
    cr_assert_lt(regst, REGSTS);
    return regst;
}

static void slot_check(struct scene *s, int regst)
{
    const struct links *links = &s->end[1].links;
    const struct transfer *transfer = links_find(links, s->edge[regst]);
    const struct span *span = &links->spans[transfer->spans.first];
    uint32_t n = s->came[regst]++;
    const char *at = links_receive(transfer, span, n % slots_of[regst]);
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < span->bytes; i++)
        wrong += (unsigned char)at[i] != byte_of(regst, n, i);
    cr_assert_eq(wrong, 0, "register %d, slot %u: %llu bytes are others", regst, n, (unsigned long long)wrong);
}

static void on_message(struct bus_end *bus_end, struct message message)
{
    struct end *end = (struct end *)((char *)bus_end - offsetof(struct end, bus_end));
    cr_assert(message.count && end->log_count < LOG_MAX);
    end->log[end->log_count++] = (struct said){.message = message};
    for (int i = 0; message.kind == MESSAGE_READY && i < message.count; i++)
        slot_check(end->scene, regst_of(end->scene, message.edge));
}

static bool on_value(void *ctx, uint32_t rank, uint32_t shard, uint64_t round, const void *data, size_t bytes)
{
    struct end *end = ctx;
    uint64_t wrong = 0;
    for (size_t i = 0; i < bytes; i++)
        wrong += ((const unsigned char *)data)[i] != byte_of(9, (uint32_t)round, i);
    cr_assert(!wrong && rank < RANKS && shard == 1 && end->log_count < LOG_MAX);
    end->log[end->log_count++] = (struct said){.round = round};
    end->value_bytes += bytes;
    return true;
}

static void on_lost(void *ctx, uint32_t rank, const char *how)
{
    struct end *end = ctx;
    cr_assert_lt(rank, RANKS);
    snprintf(end->lost, sizeof end->lost, "%s", how);
}

static void on_left(void *ctx, uint32_t rank, int64_t steps)
{
    cr_assert(rank < RANKS && steps == 0);
    ((struct end *)ctx)->left = true;
}

static void on_broken(void *ctx, const char *sentence)
{
    cr_assert(sentence[0]);
    ((struct end *)ctx)->broken = true;
}

static weir_plan *plan_make(void)
{
    test_ops();
    sdf *s = sdf_new("lines", 1);
    uint32_t first = sdf_device(s), second = sdf_device(s);
    for (int i = 0; i < REGSTS; i++) {
        uint32_t writer = sdf_actor(s, first, "writer", .kernel = "test_sum");
        uint32_t reader = sdf_actor(s, second, "reader", .kernel = "test_sum");
        sdf_port(s, reader, sdf_regst(s, writer, .slots = slots_of[i], .items = items_of[i]));
        sdf_regst(s, reader, .slots = 1, .items = items_of[i]);
    }
    weir_plan *plan = sdf_plan(s), *spread = plan_spread(plan, RANKS, 0);
    cr_assert_not_null(spread, "%s", weir_error());
    weir_plan_free(plan);
    return spread;
}

/* Registers are told apart by their sizes. */
static void edges_find(struct scene *s)
{
    const struct links *links = &s->end[0].links;
    cr_assert_eq(links->transfers_count, REGSTS);
    for (uint32_t i = 0; i < REGSTS; i++)
        for (int regst = 0; regst < REGSTS; regst++)
            if (links->transfers[i].bytes == items_of[regst] * sizeof(float))
                s->edge[regst] = links->transfers[i].leader;
}

/* Both ends would find so, if the piece did not lie in one run. */
static void span_pack(struct end *end, uint32_t edge)
{
    const struct transfer *transfer = links_find(&end->links, edge);
    cr_assert_eq(transfer->spans.count, 1);
    end->links.spans[transfer->spans.first].direct = false;
}

static void end_open(struct scene *s, uint32_t rank, int fd, bool sealed)
{
    struct end *end = &s->end[rank];
    const uint32_t other = 1 - rank;
    *end = (struct end){.scene = s, .env = {.rank = rank, .size = RANKS}, .bus_end.post = on_message};
    struct net *net = end->net = aligned_alloc(_Alignof(struct net), sizeof *net);
    *net = (struct net){.env = &end->env, .report = &end->report, .plan = s->plan, .session = SESSION};
    net->members = end->members;
    net->watcher.worker_fd = net->bulk.epoll_fd = -1;
    net->hooks = (struct net_hooks){
        .ctx = end, .lost = on_lost, .left = on_left, .value = on_value, .broken = on_broken};
    pthread_mutex_init(&net->sockets, NULL);
    cr_assert_eq(outbox_open(&net->outbox), WEIR_OK);
    cr_assert_eq(peers_open(&net->peers, &(struct peers_opts){s->plan, RANKS, rank, INT64_MAX, on_lost, end}), WEIR_OK);
    struct peer *peer = &net->peers.of[other];
    peer->wired = true;
    peer_happens(&net->peers, other, PEER_SAYS_HELLO, 0);
    peer->line[CHANNEL_BULK] = (struct peer_line){.open = true, .sent = 1, .heard = 1, .incoming.fd = -1};
    cr_assert_eq(links_open(&end->links, s->plan, rank, (const bool[RANKS]){rank == 1, rank == 0}), WEIR_OK);
    cr_assert_eq(bus_open(&end->bus, s->plan->actors_count), WEIR_OK);
    for (uint32_t a = 0; a < s->plan->actors_count; a++)
        if (plan_rank_of(s->plan, a) == rank)
            bus_attach(&end->bus, a, &end->bus_end);
    net->bulk.lines = calloc(RANKS, sizeof *net->bulk.lines);
    net->bulk.waiting = calloc(RANKS, sizeof *net->bulk.waiting);
    struct bulk_line *line = end->line = calloc(1, sizeof *line);
    cr_assert(net->bulk.lines && net->bulk.waiting && line);
    end->valve = valve_new(fd);
    net_own_lines(net);
    *line = (struct bulk_line){.bulk = &net->bulk, .rank = other, .connecting = -1, .stream = &end->valve->stream};
    net->bulk.lines[net->bulk.lines_count++] = peer->bulk = line;
    for (uint32_t from = 0; sealed && from < RANKS; from++) {
        const unsigned char key[SEAL_SECRET_BYTES] = {(unsigned char)(1 + from)};
        if (!net->bulk.sealing)
            cr_assert_eq(sealing_open(&net->bulk.sealing), WEIR_OK, "%s", weir_error());
        cr_assert_eq(seal_box_new(net->bulk.sealing, key, from == rank, from == rank ? &line->out.box : &line->in.box),
                     WEIR_OK);
    }
}

static struct scene *scene_open(bool sealed)
{
    struct scene *s = calloc(1, sizeof *s);
    int fds[2];
    s->plan = plan_make();
    s->arenas = calloc(s->plan->spaces_count, sizeof *s->arenas);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    for (uint32_t i = 0; i < s->plan->spaces_count; i++)
        cr_assert(s->arenas[i].base = calloc(1, s->plan->spaces[i].bytes + 1));
    for (uint32_t rank = 0; rank < RANKS; rank++)
        end_open(s, rank, fds[rank], sealed);
    edges_find(s);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        struct end *end = &s->end[rank];
        span_pack(end, s->edge[PACKED]);
        cr_assert_eq(net_route(end->net, &end->links, s->arenas, &end->bus), WEIR_OK, "%s", weir_error());
    }
    return s;
}

static void scene_close(struct scene *s)
{
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        net_close(s->end[rank].net);
        links_close(&s->end[rank].links);
        bus_close(&s->end[rank].bus);
    }
    for (uint32_t i = 0; i < s->plan->spaces_count; i++)
        free(s->arenas[i].base);
    free(s->arenas);
    weir_plan_free(s->plan);
    free(s);
}

/* ---- what ranks do ---- */

static bool may_slot(const struct scene *s, int regst)
{
    return s->end[0].net->route.outstanding[s->edge[regst]] < slots_of[regst];
}

/* Rank 0 writes the register's next slot and makes it ready. */
static void post_slot(struct scene *s, int regst)
{
    const plan_regst *of = &s->plan->regsts[links_find(&s->end[0].links, s->edge[regst])->regst];
    uint32_t n = s->sent[regst]++;
    char *at = s->arenas[of->space.i].base + of->offset + n % slots_of[regst] * of->slot_bytes;
    for (uint64_t i = 0; i < items_of[regst] * sizeof(float); i++)
        at[i] = (char)byte_of(regst, n, i);
    net_send_message(s->end[0].net, (struct message){.edge = s->edge[regst], .kind = MESSAGE_READY, .count = 1});
}

/* Rank 1 lets go of the oldest. */
static void post_free(struct scene *s, int regst)
{
    s->freed[regst]++;
    net_send_message(s->end[1].net, (struct message){.edge = s->edge[regst], .kind = MESSAGE_FREE, .count = 1});
}

static void post_value(struct scene *s, uint64_t round, size_t bytes)
{
    zmq_msg_t payload;
    cr_assert_eq(zmq_msg_init_size(&payload, bytes), 0);
    for (size_t i = 0; i < bytes; i++)
        ((unsigned char *)zmq_msg_data(&payload))[i] = byte_of(9, (uint32_t)round, i);
    struct wire_frame frame = {.kind = WIRE_VALUE, .value = {.shard = 1, .round = round}};
    net_send(s->end[0].net, 1, &frame, &payload);
    zmq_msg_close(&payload);
}

static void write_some(struct scene *s, uint32_t rank)
{
    bulk_flush(&s->end[rank].net->bulk, BULK_WRITE_TURN);
}

static bool read_some(struct scene *s, uint32_t rank)
{
    bool drained = true;
    return s->end[rank].line->stream && bulk_read(s->end[rank].line, &drained);
}

/* Until nothing moves any more. */
static void pump(struct scene *s)
{
    for (bool any = true; any;) {
        any = false;
        for (uint32_t rank = 0; rank < RANKS; rank++) {
            write_some(s, rank);
            any |= read_some(s, 1 - rank);
        }
        any |= (s->end[0].net->bulk.waiting_count && s->end[0].valve->most) ||
               (s->end[1].net->bulk.waiting_count && s->end[1].valve->most);
    }
}

static void expect_whole(const struct scene *s)
{
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        cr_expect_str_eq(s->end[rank].lost, "");
        cr_expect_not(s->end[rank].broken);
        cr_expect_not_null(s->end[rank].line->stream);
    }
    for (int regst = 0; regst < REGSTS; regst++)
        cr_expect_eq(s->came[regst], s->sent[regst], "register %d: %u of %u", regst, s->came[regst], s->sent[regst]);
}

/* With and without keys. */
static void both_ways(void (*test)(struct scene *s))
{
    for (int sealed = 0; sealed < 2; sealed++) {
        struct scene *s = scene_open(sealed);
        test(s);
        scene_close(s);
    }
}

/* ---- slots ---- */

static void all_slots(struct scene *s)
{
    for (int round = 0; round < 3; round++) {
        for (int regst = 0; regst < REGSTS; regst++)
            while (may_slot(s, regst))
                post_slot(s, regst);
        pump(s);
        expect_whole(s);
        for (int regst = 0; regst < REGSTS; regst++)
            while (s->freed[regst] < s->sent[regst])
                post_free(s, regst);
        pump(s);
        for (int regst = 0; regst < REGSTS; regst++)
            cr_expect_eq(s->end[0].net->route.outstanding[s->edge[regst]], 0);
    }
}

Test(bulk, slots_of_all_sizes_come_whole)
{
    both_ways(all_slots);
}

/* A receiver that reads nothing, then a few bytes at a time, while the sender may write as little. */
static void stalled(struct scene *s)
{
    int small = 4096;
    setsockopt(s->end[0].valve->socket->fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    for (int regst = 0; regst < REGSTS; regst++)
        post_slot(s, regst);
    for (int i = 0; i < 20; i++)
        write_some(s, 0);
    cr_expect(s->end[0].line->out.blocked);
    cr_expect(s->end[0].net->bulk.waiting_count == 1 && s->came[BIG] == 0);
    s->end[0].valve->most = 3000;
    s->end[1].valve->most = 1000;
    pump(s);
    expect_whole(s);
}

Test(bulk, a_receiver_that_stalls_gets_all_in_the_end)
{
    both_ways(stalled);
}

static void byte_by_byte(struct scene *s)
{
    s->end[0].valve->most = s->end[1].valve->most = 3;
    for (int i = 0; i < 20; i++)
        post_slot(s, SMALL);
    post_value(s, 1, 100);
    post_slot(s, MIDDLE);
    pump(s);
    expect_whole(s);
    cr_expect_eq(s->end[1].value_bytes, 100);
}

Test(bulk, what_comes_in_pieces_of_a_few_bytes_is_put_together)
{
    both_ways(byte_by_byte);
}

static void together(struct scene *s)
{
    for (uint32_t i = 0; i < slots_of[SMALL]; i++)
        post_slot(s, SMALL);
    post_value(s, 1, 10);
    write_some(s, 0);
    cr_expect_eq(s->end[0].valve->writes, 1, "%d writes", s->end[0].valve->writes);
    pump(s);
    expect_whole(s);
}

Test(bulk, what_is_small_shares_a_write)
{
    both_ways(together);
}

/* ---- messages ---- */

static void merged(struct scene *s)
{
    for (int i = 0; i < 6; i++)
        post_slot(s, SMALL);
    post_slot(s, MIDDLE);
    pump(s);
    for (int i = 0; i < 5; i++)
        post_free(s, SMALL);
    post_free(s, MIDDLE);
    post_free(s, SMALL);
    cr_expect_eq(s->end[1].line->out.queue_count, 1);
    pump(s);
    const struct said *log = s->end[0].log;
    cr_assert_eq(s->end[0].log_count, 3);
    cr_expect(log[0].message.edge == s->edge[SMALL] && log[0].message.count == 5);
    cr_expect(log[1].message.edge == s->edge[MIDDLE] && log[1].message.count == 1);
    cr_expect(log[2].message.edge == s->edge[SMALL] && log[2].message.count == 1);
    expect_whole(s);
}

Test(bulk, messages_that_say_the_same_are_one)
{
    both_ways(merged);
}

/* ---- what the session says ---- */

static void large_values(struct scene *s)
{
    static const size_t sizes[] = {1, BULK_READ_BYTES, 2 * BULK_RECORD_BYTES + 1, BULK_SMALL_BYTES + 1, 1 << 20};
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        post_value(s, i + 1, sizes[i]);
        bytes += sizes[i];
    }
    pump(s);
    expect_whole(s);
    cr_expect_eq(s->end[1].value_bytes, bytes);
    cr_expect_eq(s->end[1].log_count, sizeof(sizes) / sizeof(sizes[0]));
}

Test(bulk, values_larger_than_all_buffers_come_whole)
{
    both_ways(large_values);
}

/* Posted messages and slots of all kinds arrive in their order. */
static void in_order(struct scene *s)
{
    static struct said expected[LOG_MAX];
    struct end *reader = &s->end[1];
    uint32_t count = 0, checked = 0;
    uint64_t random = 1984, round = 0;
    s->end[0].valve->most = s->end[1].valve->most = 60000;
    for (int i = 0; i < 1500; i++) {
        int regst = (int)(mutate_draw(&random) % (2 * REGSTS));
        if (regst >= REGSTS)
            regst = SMALL;
        if (mutate_draw(&random) % 5 == 0) {
            post_value(s, ++round, mutate_draw(&random) % 3000);
            expected[count++] = (struct said){.round = round};
        } else if (may_slot(s, regst)) {
            post_slot(s, regst);
            expected[count++] = (struct said){.message.edge = s->edge[regst]};
        } else if (s->freed[regst] < s->came[regst]) {
            post_free(s, regst);
        }
        if (mutate_draw(&random) % 4 == 0) {
            write_some(s, 0);
            write_some(s, 1);
            read_some(s, 0);
            read_some(s, 1);
        }
    }
    pump(s);
    expect_whole(s);
    cr_assert_gt(count, 300);
    cr_assert_eq(reader->log_count, count);
    for (; checked < count; checked++)
        cr_assert(reader->log[checked].round == expected[checked].round &&
                  reader->log[checked].message.edge == expected[checked].message.edge, "%u of %u", checked, count);
}

Test(bulk, all_comes_in_the_order_in_which_it_was_posted)
{
    both_ways(in_order);
}

/* ---- BYE ---- */

/* It has gone when it is written, and not when it is in a record that waits. */
static void bye_waits(struct scene *s)
{
    struct net *net = s->end[0].net;
    s->end[0].valve->most = 0;
    post_slot(s, SMALL);
    peers_leave(&net->peers);
    net_last_word(net, 1, 0);
    for (int i = 0; i < 3; i++) {
        write_some(s, 0);
        cr_expect(net->peers.awaited == 1 && !net->peers.of[1].word_gone);
    }
    s->end[0].valve->most = SIZE_MAX;
    write_some(s, 0);
    cr_expect(net->peers.awaited == 1 && net->peers.of[1].word_gone);
    read_some(s, 1);
    cr_expect_eq(s->came[SMALL], 1);
    cr_expect(s->end[1].left);
    cr_expect_str_eq(s->end[1].lost, "");
    cr_expect(peer_is(&s->end[1].net->peers.of[0], PEER_PARTING));
    post_slot(s, SMALL); /* nothing follows the last word */
    cr_expect_eq(s->end[0].line->out.queue_count, 0);
    write_some(s, 1); /* the answer */
    cr_expect(peer_is(&s->end[1].net->peers.of[0], PEER_LEFT));
    read_some(s, 0);
    cr_expect(peer_is(&net->peers.of[1], PEER_LEFT) && net->peers.awaited == 0);
    cr_expect_null(s->end[0].line->stream);
    read_some(s, 1);
    cr_expect_null(s->end[1].line->stream);
}

Test(bulk, a_bye_is_answered_when_all_before_it_has_been_read)
{
    both_ways(bye_waits);
}

/* ---- the end ---- */

static void peer_gone(struct scene *s)
{
    bulk_end(s->end[1].line);
    for (int i = 0; i < 3; i++)
        post_slot(s, BIG);
    post_value(s, 1, 1 << 20);
    net_last_word(s->end[0].net, 1, 0);
    write_some(s, 0);
    cr_expect(s->end[0].line->writes_over && s->end[0].line->out.queue_count == 0);
    cr_expect(s->end[0].net->peers.awaited == 0 && s->end[0].net->peers.cut_count == 1);
    post_slot(s, SMALL); /* goes nowhere */
    post_value(s, 2, 10);
    cr_expect_eq(s->end[0].line->out.queue_count, 0);
    cr_expect_not(read_some(s, 0));
    cr_expect_null(s->end[0].line->stream);
    cr_expect_not(s->end[0].broken);
}

Test(bulk, nothing_waits_for_a_peer_that_has_gone)
{
    both_ways(peer_gone);
}

static void wrong_bytes(struct scene *s)
{
    static const unsigned char garbage[4096] = {1, 2, 3};
    cr_assert_eq(write(s->end[0].valve->socket->fd, garbage, sizeof garbage), (ssize_t)sizeof garbage);
    read_some(s, 1);
    cr_expect(strstr(s->end[1].lost, "it broke the protocol"), "'%s'", s->end[1].lost);
    cr_expect_null(s->end[1].line->stream);
    cr_expect_eq(s->end[1].log_count, 0);
}

Test(bulk, who_sends_something_else_is_lost)
{
    both_ways(wrong_bytes);
}

/* ---- memory ---- */

#ifdef COUNTS_ALLOCATIONS
static void nothing_allocated(struct scene *s)
{
    all_slots(s);
    s->end[0].log_count = s->end[1].log_count = 0;
    long before = atomic_load(&allocations);
    cr_assert_gt(before, 0, "the counting works");
    all_slots(s);
    cr_expect_eq(atomic_load(&allocations), before);
}

Test(bulk, slots_and_messages_allocate_nothing)
{
    both_ways(nothing_allocated);
}
#endif
