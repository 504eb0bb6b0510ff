/* tests/fuzz/fuzz_bulk.c: what may come over a line, as its stream hands it out: in pieces of any size, plain or in
 * records.
 *
 * Rank 0 of two is a struct net made by hand, whose line to rank 1 has a stream that gives what the input says: frames
 * that are right, raw bytes, records that are changed, repeated, left out or cut short. From the first record on that
 * is not as it was made nothing may be taken any more.
 */
#include "graph/plan/spread/spread.h"
#include "tests/fuzz/bytes.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/small_plans.h"
#include "transport/net/inside.h"

#include <stdlib.h>
#include <string.h>

enum { SESSION = 0x7765, PEER = 1, RANKS = 2, WAITING_MAX = 1 << 18, RECORD_MAX = BULK_RECORD_BYTES };

const char *const fuzz_corpus = "tests/fuzz/corpus/bulk";

static void expect(bool holds)
{
    if (!holds)
        __builtin_trap();
}

/* ---- the input ---- */

/* ---- rank 0 ---- */

/* The bytes on their way to this rank; its own writes are dropped. */
struct pipe {
    struct stream stream;
    unsigned char bytes[WAITING_MAX];
    size_t count;
    uint32_t random; /* of the sizes of pieces */
};

struct fuzzed {
    weir_plan *plan;
    struct cluster_env env;
    struct report report;
    struct member members[RANKS];
    struct net *net;
    struct links links;
    struct bus bus;
    struct bus_end end;
    struct bulk_line *line;     /* of the net */
    struct pipe pipe;
    struct seal_box *seals;     /* of rank 1; NULL: the line is plain */
    unsigned char said[RECORD_MAX];
    size_t said_bytes;          /* of the record that is being made */
    bool changed;               /* nothing may be taken any more */
};

static struct fuzzed *now;

static size_t piece(struct pipe *pipe)
{
    pipe->random = pipe->random * 1103515245u + 12345u;
    uint32_t bits = pipe->random >> 16;
    return 1 + (bits & 0x100 ? bits & 0xff : bits << 3 & 0xffff);
}

static ssize_t pipe_read(struct stream *stream, const struct iovec *parts, int count)
{
    struct pipe *pipe = (struct pipe *)stream;
    size_t most = piece(pipe), done = 0;
    most = most < pipe->count ? most : pipe->count;
    for (int i = 0; i < count && done < most; i++) {
        size_t each = parts[i].iov_len < most - done ? parts[i].iov_len : most - done;
        memcpy(parts[i].iov_base, pipe->bytes + done, each);
        done += each;
    }
    memmove(pipe->bytes, pipe->bytes + done, pipe->count - done);
    pipe->count -= done;
    return (ssize_t)done;
}

static ssize_t pipe_write(struct stream *stream, const struct iovec *parts, int count)
{
    (void)stream;
    ssize_t done = 0;
    for (int i = 0; i < count; i++)
        done += (ssize_t)parts[i].iov_len;
    return done;
}

static void pipe_close(struct stream *stream)
{
    (void)stream;
}

static const struct stream_ops pipe_ops = {.write = pipe_write, .read = pipe_read, .close = pipe_close};

static void on_message(struct bus_end *end, struct message message)
{
    (void)end;
    expect(!now->changed && message.edge < now->plan->ports_count && message.count > 0);
}

static void on_lost(void *ctx, uint32_t rank, const char *how)
{
    (void)ctx;
    expect(rank == PEER && how[0]);
}

static void on_left(void *ctx, uint32_t rank, int64_t steps)
{
    expect(!((const struct fuzzed *)ctx)->changed && rank == PEER && steps >= 0);
}

static void on_said(void *ctx, const char *text)
{
    (void)ctx;
    (void)text;
}

static bool on_value(void *ctx, uint32_t rank, uint32_t shard, uint64_t round, const void *data, size_t bytes)
{
    unsigned sum = shard + (unsigned)round;
    expect(!((const struct fuzzed *)ctx)->changed && rank == PEER);
    for (size_t i = 0; i < bytes; i++)
        sum += ((const unsigned char *)data)[i];
    return sum % 16 != 5;
}

static uint32_t on_sharing(void *ctx)
{
    (void)ctx;
    return 1;
}

static bool on_hold(void *ctx, uint32_t rank, const struct wire_frame *frame)
{
    expect(!((const struct fuzzed *)ctx)->changed && rank == PEER);
    return frame->hold.step >= 0;
}

static bool on_end(void *ctx, const struct wire_frame *frame)
{
    expect(!((const struct fuzzed *)ctx)->changed);
    return frame->end.step >= 0;
}

static struct seal_box *box_new(struct net *net, unsigned char first, bool writes)
{
    const unsigned char key[SEAL_SECRET_BYTES] = {first};
    struct seal_box *box;
    expect(seal_box_new(net->bulk.sealing, key, writes, &box) == WEIR_OK);
    return box;
}

static void line_make(struct fuzzed *f, bool sealed)
{
    struct net *net = f->net;
    net->bulk.epoll_fd = -1;
    net->bulk.lines = calloc(RANKS, sizeof *net->bulk.lines);
    net->bulk.waiting = calloc(RANKS, sizeof *net->bulk.waiting);
    struct bulk_line *line = f->line = calloc(1, sizeof *line);
    expect(net->bulk.lines && net->bulk.waiting && line);
    f->pipe.stream = (struct stream){&pipe_ops, -1};
    net_own_lines(net);
    *line = (struct bulk_line){.bulk = &net->bulk, .rank = PEER, .connecting = -1, .stream = &f->pipe.stream};
    net->bulk.lines[net->bulk.lines_count++] = net->peers.of[PEER].bulk = line;
    if (!sealed)
        return;
    expect(sealing_open(&net->bulk.sealing) == WEIR_OK);
    line->in.box = box_new(net, PEER, false);
    line->out.box = box_new(net, 0, true);
    f->seals = box_new(net, PEER, true);
}

static void net_make(struct fuzzed *f, bool sealed)
{
    struct net *net = f->net = aligned_alloc(_Alignof(struct net), sizeof *net);
    expect(net != NULL);
    *net = (struct net){
        .env = &f->env, .report = &f->report, .plan = f->plan, .session = SESSION, .members = f->members};
    net->watcher.worker_fd = -1;
    net->hooks = (struct net_hooks){.ctx = f,
                                    .lost = on_lost,
                                    .left = on_left,
                                    .broken = on_said,
                                    .value = on_value,
                                    .sharing = on_sharing,
                                    .hold = on_hold,
                                    .end = on_end};
    pthread_mutex_init(&net->sockets, NULL);
    expect(outbox_open(&net->outbox) == WEIR_OK);
    expect(peers_open(&net->peers, &(struct peers_opts){f->plan, RANKS, 0, INT64_MAX, on_lost, f}) == WEIR_OK);
    net->peers.of[PEER].wired = true;
    peer_happens(&net->peers, PEER, PEER_SAYS_HELLO, 0);
    net->peers.of[PEER].line[CHANNEL_BULK] =
        (struct peer_line){.open = true, .sent = 1, .heard = 1, .incoming.fd = -1};
    expect(links_open(&f->links, f->plan, 0, (const bool[RANKS]){false, true}) == WEIR_OK);
    expect(bus_open(&f->bus, f->plan->actors_count) == WEIR_OK);
    f->end.post = on_message;
    for (uint32_t a = 0; a < f->plan->actors_count; a++)
        if (plan_rank_of(f->plan, a) == 0)
            bus_attach(&f->bus, a, &f->end);
    line_make(f, sealed);
    expect(net_route(net, &f->links, NULL, &f->bus) == WEIR_OK);
}

static weir_plan *plan_of(void)
{
    static weir_plan *spread;
    if (!spread) {
        weir_plan *plan = small_plan(0);
        spread = plan_spread(plan, RANKS, 0);
        weir_plan_free(plan);
        expect(spread != NULL);
    }
    return spread;
}

static struct fuzzed *fuzzed_new(bool sealed, uint8_t random)
{
    struct fuzzed *f = now = calloc(1, sizeof *f);
    expect(f != NULL);
    f->plan = plan_of();
    f->env = (struct cluster_env){.rank = 0, .size = RANKS};
    f->report = (struct report){on_said, NULL, NULL};
    f->pipe.random = random;
    net_make(f, sealed);
    return f;
}

static void fuzzed_free(struct fuzzed *f)
{
    seal_box_free(f->seals);
    net_close(f->net);
    links_close(&f->links);
    bus_close(&f->bus);
    free(f);
}

/* ---- what comes ---- */

static bool is_lost(const struct fuzzed *f)
{
    return peer_is(&f->net->peers.of[PEER], PEER_LOST);
}

/* Until nothing is on its way any more, or nobody reads. */
static void read_all(struct fuzzed *f)
{
    bool drained;
    while (f->pipe.count && f->line->stream)
        expect(bulk_read(f->line, &drained) || !peer_is_open(&f->net->peers.of[PEER]));
    f->pipe.count = 0;
}

static void send_bytes(struct fuzzed *f, const unsigned char *bytes, size_t count)
{
    expect(f->pipe.count + count <= WAITING_MAX);
    memcpy(f->pipe.bytes + f->pipe.count, bytes, count);
    f->pipe.count += count;
}

enum { AS_IT_IS, CHANGED, REPEATED, LEFT_OUT, CUT, WAYS };

/* Makes a record from the frames so far, which may be damaged on its way. */
static void record_send(struct fuzzed *f, struct bytes *in, int way)
{
    static unsigned char record[RECORD_MAX + SEAL_OVER_BYTES];
    const struct iovec part = {f->said, f->said_bytes};
    size_t bytes = f->said_bytes + SEAL_OVER_BYTES;
    if (!f->said_bytes)
        return;
    expect(seal_write(f->seals, &part, 1, f->said_bytes, record));
    f->said_bytes = 0;
    size_t at = take_below(in, (uint32_t)bytes);
    bool heard = f->line->stream && !f->changed;
    if (way == CHANGED)
        record[at] ^= (unsigned char)(1u << take(in) % 8);
    else if (way == CUT)
        memmove(record + at, record + at + 1, --bytes - at);
    f->changed |= way == CHANGED || way == CUT || way == LEFT_OUT;
    if (way != LEFT_OUT)
        send_bytes(f, record, bytes);
    read_all(f);
    expect(!heard || way != CHANGED || at < SEAL_HEAD_BYTES || is_lost(f));
    if (way != REPEATED)
        return;
    heard &= f->line->stream != NULL;
    f->changed = true;
    send_bytes(f, record, bytes);
    read_all(f);
    expect(!heard || is_lost(f));
}

static void say(struct fuzzed *f, struct bytes *in, const void *bytes, size_t count)
{
    for (size_t done = 0; done < count && f->seals;) {
        size_t each = RECORD_MAX - f->said_bytes < count - done ? RECORD_MAX - f->said_bytes : count - done;
        memcpy(f->said + f->said_bytes, (const char *)bytes + done, each);
        f->said_bytes += each;
        done += each;
        if (f->said_bytes == RECORD_MAX)
            record_send(f, in, AS_IT_IS);
    }
    if (f->seals)
        return;
    send_bytes(f, bytes, count);
    if (f->pipe.count > WAITING_MAX / 2)
        read_all(f);
}

static void head_say(struct fuzzed *f, struct bytes *in, const struct bulk_head *head)
{
    unsigned char bytes[BULK_HEAD_BYTES];
    bulk_head_encode(head, bytes);
    say(f, in, bytes, sizeof bytes);
}

static void slot_say(struct fuzzed *f, struct bytes *in)
{
    const struct transfer *transfer = &f->links.transfers[take_below(in, f->links.transfers_count)];
    unsigned char fill[1024];
    head_say(f, in, &(struct bulk_head){.kind = BULK_SLOT,
                                        .edge = transfer->leader,
                                        .slot = transfer->next_slot,
                                        .shape = transfer->shape,
                                        .bytes = transfer->bytes});
    memset(fill, take(in), sizeof fill);
    for (uint64_t done = 0; done < transfer->bytes; done += sizeof fill)
        say(f, in, fill, transfer->bytes - done < sizeof fill ? transfer->bytes - done : sizeof fill);
}

static void words_say(struct fuzzed *f, struct bytes *in)
{
    uint64_t words[8];
    uint32_t count = 1 + take(in) % 8u;
    for (uint32_t i = 0; i < count; i++)
        words[i] = message_pack((struct message){.edge = take_below(in, f->plan->ports_count),
                                                 .kind = take(in) & 1 ? MESSAGE_READY : MESSAGE_FREE,
                                                 .count = 1});
    head_say(f, in, &(struct bulk_head){.kind = BULK_WORDS, .bytes = count * sizeof *words});
    say(f, in, words, count * sizeof *words);
}

static void value_say(struct fuzzed *f, struct bytes *in)
{
    unsigned char header[WIRE_HEADER_MAX], fill[256];
    struct wire_frame frame = {.kind = WIRE_VALUE, .session = SESSION, .rank = PEER};
    size_t payload = take(in);
    frame.number = f->net->peers.of[PEER].line[CHANNEL_BULK].heard;
    frame.value.round = take(in);
    memset(fill, take(in), sizeof fill);
    size_t count = wire_encode(&frame, header);
    head_say(f, in, &(struct bulk_head){.kind = BULK_FRAME, .count = (uint16_t)count, .bytes = count + payload});
    say(f, in, header, count);
    say(f, in, fill, payload);
}

static void raw_say(struct fuzzed *f, struct bytes *in)
{
    size_t count = take(in);
    count = count < in->left ? count : in->left;
    say(f, in, in->at, count);
    in->at += count;
    in->left -= count;
}

/* A reader here lets go of a slot. */
static void free_one(struct fuzzed *f, struct bytes *in)
{
    uint32_t edge = take_below(in, f->plan->ports_count);
    const struct transfer *transfer = links_find(&f->links, edge);
    if (!transfer || transfer->to != 0 || !f->net->route.outstanding[edge] ||
        f->plan->regsts[transfer->regst].producer.i == PLAN_NONE)
        return;
    net_send_message(f->net, (struct message){.edge = edge, .kind = MESSAGE_FREE, .count = 1});
    bulk_flush(&f->net->bulk, SIZE_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes in = {data, size};
    bool sealed = take(&in) & 1;
    struct fuzzed *f = fuzzed_new(sealed, take(&in));
    while (in.left && f->line->stream) {
        uint8_t what = take(&in) % 8;
        if (what == 0)
            slot_say(f, &in);
        else if (what == 1)
            words_say(f, &in);
        else if (what == 2)
            value_say(f, &in);
        else if (what == 3)
            raw_say(f, &in);
        else if (what == 4)
            free_one(f, &in);
        else if (what == 5 && sealed)
            record_send(f, &in, AS_IT_IS);
        else if (what == 6 && sealed)
            record_send(f, &in, take(&in) % WAYS);
        else
            read_all(f);
    }
    if (sealed)
        record_send(f, &in, AS_IT_IS);
    read_all(f);
    fuzzed_free(f);
    return 0;
}
