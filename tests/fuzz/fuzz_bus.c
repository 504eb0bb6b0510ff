/* tests/fuzz/fuzz_bus.c: what a hostile rank may say on the bus once it has been let in.
 *
 * Rank 0 of two is a struct net made by hand, without sockets: a plan, links, a bus whose ends look at what is posted.
 * The input is a sequence of what rank 1 sends (frames that are nearly right, and raw ones; over ZeroMQ, and over the
 * line, there in pieces) and of what this rank's own actors do meanwhile (free a slot, publish one). After each the
 * counters have to be those that follow from what was posted, every message has to be one that its receiver can take,
 * and every slot that a reader was told of has to be what it then was.
 */
#include "graph/plan/spread/spread.h"
#include "tests/fuzz/bytes.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/small_plans.h"
#include "transport/net/inside.h"

#include <stdlib.h>
#include <string.h>

enum { SAID_MAX = 1 << 18, SESSION = 0x7765, PEER = 1, RANKS = 2 };

const char *const fuzz_corpus = "tests/fuzz/corpus/bus";

/* ---- rank 0 ---- */

struct listener { /* an end of the bus */
    struct bus_end end;
    struct fuzzed *to;
};

struct fuzzed {
    const weir_plan *plan;
    struct cluster_env env;
    struct report report;
    struct net *net;
    struct links links;
    struct bus bus;
    struct listener listener;
    uint32_t *ready;   /* by plan port: slots made ready and not freed, as it follows from what was posted */
    uint32_t *slot;    /* by plan port of this rank: the oldest of them */
    uint32_t *unseen;  /* of these so many were there at the start, and may be written while that is shared */
    uint64_t *sum;     /* by plan port and slot: of its bytes when it was made ready */
    uint32_t slots_most;
    bool shared;       /* what registers start with comes no more */
    struct stream stream; /* from which nothing is read */
    struct bulk_line line;
    unsigned char *said;  /* on the line, and not taken */
    size_t said_bytes;
};

static void expect(bool holds)
{
    if (!holds)
        __builtin_trap();
}

static uint32_t slots_of(const struct fuzzed *f, uint32_t port)
{
    return f->plan->regsts[f->plan->ports[port].regst.i].slots;
}

static uint64_t slot_sum(const struct fuzzed *f, uint32_t port, uint32_t slot)
{
    const struct transfer *transfer = links_find(&f->links, port);
    uint64_t sum = 0;
    for (uint32_t k = 0; transfer && k < transfer->spans.count; k++) {
        const struct span *span = &f->links.spans[transfer->spans.first + k];
        const char *at = links_receive(transfer, span, slot);
        expect(at >= f->links.receive && at + span->bytes <= f->links.receive + f->links.receive_bytes);
        for (uint64_t done = 0; done < span->bytes; done += sizeof sum) {
            uint64_t word = 0, left = span->bytes - done;
            memcpy(&word, at + done, left < sizeof word ? left : sizeof word);
            sum = sum * 31 + word;
        }
    }
    return sum;
}

static void made_ready(struct fuzzed *f, uint32_t port, uint32_t count)
{
    for (; count; count--) {
        uint32_t slot = (f->slot[port] + f->ready[port]++) % slots_of(f, port);
        f->sum[(size_t)port * f->slots_most + slot] = slot_sum(f, port, slot);
    }
}

/* Receives the messages for a worker. */
static void listen(struct bus_end *end, struct message message)
{
    struct fuzzed *f = ((struct listener *)end)->to;
    const struct net *net = f->net;
    uint32_t edge = message.edge;
    f->shared = true;
    expect(edge < f->plan->ports_count && message.count > 0 && !message.unused);
    if (message.kind == MESSAGE_READY) {
        expect(net_reader_rank(net, edge) == 0 && net_producer_rank(net, edge) == PEER);
        expect(message.count <= slots_of(f, edge) - f->ready[edge]);
        made_ready(f, edge, message.count);
    } else {
        expect(message.kind == MESSAGE_FREE);
        expect(net_producer_rank(net, edge) == 0 && net_reader_rank(net, edge) == PEER);
        expect(message.count <= f->ready[edge]);
        f->ready[edge] -= message.count;
    }
}

static void on_lost(void *ctx, uint32_t rank, const char *how)
{
    (void)ctx;
    expect(rank == PEER && how[0]);
}

/* A peer may pass on what another said. */
static void on_failed(void *ctx, uint32_t from, uint32_t culprit, const char *text)
{
    (void)ctx;
    expect(from < RANKS && culprit < RANKS && strlen(text) <= WIRE_TEXT_MAX);
}

static void on_left(void *ctx, uint32_t rank, int64_t steps)
{
    (void)ctx;
    expect(rank == PEER && steps >= 0);
}

static void on_said(void *ctx, const char *text)
{
    (void)ctx;
    (void)text;
}

static void on_beat(void *ctx, struct wire_frame *frame)
{
    (void)ctx;
    (void)frame;
}

static bool on_value(void *ctx, uint32_t rank, uint32_t shard, uint64_t round, const void *data, size_t bytes)
{
    unsigned sum = 0;
    (void)ctx;
    for (size_t i = 0; i < bytes; i++)
        sum += ((const unsigned char *)data)[i];
    return rank == PEER && (shard ^ round ^ sum) % 8 != 0;
}

static uint32_t on_sharing(void *ctx)
{
    return !((const struct fuzzed *)ctx)->shared;
}

static void on_waits(void *ctx, uint32_t rank, const void *entries, uint32_t count)
{
    uint64_t sum = 0;
    (void)ctx;
    for (size_t i = 0; i < count * (size_t)16; i++)
        sum += ((const unsigned char *)entries)[i];
    expect(rank == PEER && sum <= count * UINT64_C(16 * 255));
}

static const weir_plan *plan_of(int which)
{
    static weir_plan *plans[SMALL_PLANS];
    if (!plans[which]) {
        weir_plan *plan = small_plan(which);
        plans[which] = plan_spread(plan, RANKS, 0);
        weir_plan_free(plan);
        expect(plans[which] != NULL);
    }
    return plans[which];
}

static bool on_hold(void *ctx, uint32_t rank, const struct wire_frame *frame)
{
    (void)ctx;
    expect(rank == PEER && frame->hold.what < WIRE_HOLD_WHATS);
    return frame->hold.step >= 0;
}

static bool on_end(void *ctx, const struct wire_frame *frame)
{
    (void)ctx;
    expect(frame->end.what < WIRE_END_WHATS && strlen(frame->end.text) <= WIRE_TEXT_MAX);
    return frame->end.step >= 0;
}

static void stream_close(struct stream *stream)
{
    (void)stream;
}

static const struct stream_ops silent_ops = {.close = stream_close};

static void net_make(struct fuzzed *f)
{
    static struct member members[RANKS]; /* without keys */
    struct net *net = f->net = aligned_alloc(_Alignof(struct net), sizeof *net);
    expect(net != NULL);
    *net = (struct net){.env = &f->env, .report = &f->report, .plan = f->plan, .session = SESSION, .members = members};
    net->watcher.worker_fd = -1;
    net->hooks = (struct net_hooks){.ctx = f,
                                    .lost = on_lost,
                                    .failed = on_failed,
                                    .left = on_left,
                                    .broken = on_said,
                                    .beat = on_beat,
                                    .value = on_value,
                                    .sharing = on_sharing,
                                    .waits = on_waits,
                                    .hold = on_hold,
                                    .end = on_end};
    pthread_mutex_init(&net->sockets, NULL);
    expect(outbox_open(&net->outbox) == WEIR_OK);
    expect(peers_open(&net->peers, &(struct peers_opts){f->plan, RANKS, 0, INT64_MAX, on_lost, f}) == WEIR_OK);
    net->peers.of[PEER].wired = true;
    expect(links_open(&f->links, f->plan, 0, (const bool[RANKS]){false, true}) == WEIR_OK);
    expect(bus_open(&f->bus, f->plan->actors_count) == WEIR_OK);
    f->listener = (struct listener){{.post = listen}, f};
    for (uint32_t a = 0; a < f->plan->actors_count; a++)
        if (plan_rank_of(f->plan, a) == 0)
            bus_attach(&f->bus, a, &f->listener.end);
    net->bulk.epoll_fd = -1;
    expect(net_route(net, &f->links, NULL, &f->bus) == WEIR_OK);
    f->stream = (struct stream){&silent_ops, -1};
    net_own_lines(net);
    f->line = (struct bulk_line){.bulk = &net->bulk, .rank = PEER, .stream = &f->stream, .connecting = -1};
}

static void fuzzed_open(struct fuzzed *f, int which)
{
    *f = (struct fuzzed){.plan = plan_of(which), .env = {.rank = 0, .size = RANKS}, .report = {on_said, NULL, NULL}};
    uint32_t ports = f->plan->ports_count + 1;
    f->ready = calloc(ports, sizeof *f->ready);
    f->slot = calloc(ports, sizeof *f->slot);
    f->unseen = calloc(ports, sizeof *f->unseen);
    f->slots_most = 1;
    for (uint32_t p = 0; p < f->plan->ports_count; p++)
        f->slots_most = slots_of(f, p) > f->slots_most ? slots_of(f, p) : f->slots_most;
    f->sum = calloc((size_t)ports * f->slots_most, sizeof *f->sum);
    f->said = malloc(SAID_MAX);
    expect(f->ready && f->slot && f->unseen && f->sum && f->said);
    net_make(f);
    for (uint32_t p = 0; p < f->plan->ports_count; p++)
        f->ready[p] = f->unseen[p] = f->net->route.outstanding[p];
}

static void fuzzed_close(struct fuzzed *f)
{
    struct net *net = f->net;
    bulk_in_close(&f->line);
    net->route.links = NULL;
    links_close(&f->links);
    bus_close(&f->bus);
    net_close(net);
    free(f->ready);
    free(f->slot);
    free(f->unseen);
    free(f->sum);
    free(f->said);
}

/* ---- what holds all the time ---- */

/* A slot that the reader may read stays as it is until the reader frees it. */
static void slots_stay(const struct fuzzed *f, uint32_t port)
{
    for (uint32_t i = f->unseen[port]; i < f->ready[port]; i++) {
        uint32_t slot = (f->slot[port] + i) % slots_of(f, port);
        expect(f->sum[(size_t)port * f->slots_most + slot] == slot_sum(f, port, slot));
    }
}

static void all_holds(const struct fuzzed *f)
{
    for (uint32_t p = 0; p < f->plan->ports_count; p++) {
        expect(f->net->route.outstanding[p] == f->ready[p] && f->ready[p] <= slots_of(f, p));
        const struct transfer *transfer = links_find(&f->links, p);
        if (transfer && transfer->to == 0)
            slots_stay(f, p);
    }
}

/* ---- this rank's own actors ---- */

/* A reader here lets go of its oldest slot. */
static void free_one(struct fuzzed *f, uint32_t port)
{
    const struct transfer *transfer = links_find(&f->links, port);
    const plan_regst *regst = &f->plan->regsts[f->plan->ports[port].regst.i];
    if (!transfer || transfer->to != 0 || !f->ready[port] || regst->producer.i == PLAN_NONE)
        return;
    f->shared = true;
    f->ready[port]--;
    f->unseen[port] -= f->unseen[port] > 0;
    f->slot[port] = (f->slot[port] + 1) % regst->slots;
    net_send_message(f->net, (struct message){.edge = port, .kind = MESSAGE_FREE, .count = 1});
}

/* A register here is published to a reader of rank 1. */
static void publish_one(struct fuzzed *f, uint32_t port)
{
    const struct transfer *transfer = links_find(&f->links, port);
    if (!transfer || transfer->from != 0 || f->plan->regsts[transfer->regst].producer.i == PLAN_NONE ||
        f->ready[port] >= slots_of(f, port))
        return;
    f->ready[port]++;
    f->net->route.outstanding[port]++;
}

/* ---- rank 1 ---- */

struct sending { /* over ZeroMQ */
    zmq_msg_t part[8];
    uint32_t count;
};

static void part_add(struct sending *to, const void *bytes, size_t count)
{
    expect(to->count < 8 && !zmq_msg_init_size(&to->part[to->count], count));
    if (count)
        memcpy(zmq_msg_data(&to->part[to->count]), bytes, count);
    to->count++;
}

static void identity_add(struct sending *to, enum channel_number number, uint8_t wrong)
{
    unsigned char identity[NET_ROUTING_ID_BYTES];
    uint64_t session = wrong == 255 ? SESSION + 1 : SESSION;
    uint32_t rank = wrong == 254 ? 0 : wrong == 253 ? RANKS : PEER;
    memcpy(identity, &session, sizeof session);
    memcpy(identity + sizeof session, &rank, sizeof rank);
    identity[NET_ROUTING_ID_BYTES - 1] = wrong == 251 ? CHANNELS : (unsigned char)number;
    part_add(to, identity, wrong == 252 ? 3 : sizeof identity);
}

static void message_say(struct fuzzed *f, struct sending *to)
{
    net_handle(f->net, &(struct incoming){.parts = to->part, .count = to->count});
    for (uint32_t i = 0; i < to->count; i++)
        zmq_msg_close(&to->part[i]);
}

/* The line takes all that was said and not taken, as a copy that ends where it ends. */
static void line_take(struct fuzzed *f)
{
    unsigned char *copy = malloc(f->said_bytes + !f->said_bytes);
    expect(copy != NULL);
    memcpy(copy, f->said, f->said_bytes);
    size_t taken = bulk_take(&f->line, copy, f->said_bytes);
    free(copy);
    expect(taken <= f->said_bytes && f->said_bytes - taken < BULK_HEAD_BYTES);
    f->said_bytes -= taken;
    memmove(f->said, f->said + taken, f->said_bytes);
}

/* In pieces of so many bytes; 0: at once. */
static void line_say(struct fuzzed *f, const void *bytes, size_t count, uint8_t piece)
{
    for (size_t done = 0; done < count;) {
        size_t next = piece && piece < count - done ? piece : count - done;
        expect(next <= SAID_MAX - f->said_bytes);
        memcpy(f->said + f->said_bytes, (const char *)bytes + done, next);
        f->said_bytes += next;
        done += next;
        line_take(f);
    }
}

static void head_say(struct fuzzed *f, const struct bulk_head *head, uint8_t piece)
{
    unsigned char bytes[BULK_HEAD_BYTES];
    bulk_head_encode(head, bytes);
    line_say(f, bytes, sizeof bytes, piece);
}

static void fill_say(struct fuzzed *f, struct bytes *in, size_t count, uint8_t piece)
{
    unsigned char bytes[4096];
    memset(bytes, take(in), sizeof bytes);
    for (size_t done = 0; done < count; done += sizeof bytes)
        line_say(f, bytes, count - done < sizeof bytes ? count - done : sizeof bytes, piece);
}

static void words_say(struct fuzzed *f, struct bytes *in)
{
    uint64_t words[16];
    uint8_t piece = take(in);
    uint32_t count = 1 + take(in) % 15u, said = count + (take(in) == 255);
    for (uint32_t i = 0; i < count; i++) {
        struct message message = {.edge = take_below(in, f->plan->ports_count + 1)};
        uint8_t how = take(in);
        message.kind = (uint8_t)(how == 255 ? 255 : 1 + how % 2);
        message.count = how / 2 % 16 ? how / 2 % 16 : 1;
        if (how == 254)
            message.count = 0;
        message.unused = how == 253;
        words[i] = message_pack(message);
    }
    head_say(f, &(struct bulk_head){.kind = BULK_WORDS, .bytes = said * sizeof *words + (take(in) == 255)}, piece);
    line_say(f, words, count * sizeof *words, piece);
}

static void slot_say(struct fuzzed *f, struct bytes *in)
{
    uint8_t piece = take(in);
    const struct transfer *transfer = &f->links.transfers[take_below(in, f->links.transfers_count)];
    uint8_t how = take(in);
    const struct bulk_head head = {.kind = BULK_SLOT,
                                   .edge = how & 1 ? take(in) : transfer->leader,
                                   .slot = how & 2 ? take(in) : transfer->next_slot,
                                   .initial = (how & 48) == 48,
                                   .shape = transfer->shape ^ ((how & 12) == 12),
                                   .bytes = transfer->bytes + (take(in) == 255)};
    head_say(f, &head, piece);
    fill_say(f, in, head.bytes - (how >> 6 == 3 && head.bytes), piece);
}

static size_t header_make(struct fuzzed *f, struct wire_frame *frame, enum channel_number number, uint8_t wrong,
                          unsigned char bytes[WIRE_HEADER_MAX])
{
    frame->session = wrong == 255 ? 1 : SESSION;
    frame->rank = wrong == 254 ? 0 : PEER;
    frame->number = f->net->peers.of[PEER].line[number].heard + (wrong == 253);
    return wire_encode(frame, bytes);
}

static struct wire_frame other_frame(struct bytes *in, size_t *payload)
{
    static const uint32_t kinds[] = {WIRE_HELLO, WIRE_BEAT,  WIRE_FAIL, WIRE_BYE,
                                     WIRE_VALUE, WIRE_WAITS, WIRE_HOLD, WIRE_END};
    struct wire_frame frame = {.kind = kinds[take(in) % 8]};
    *payload = take(in);
    if (frame.kind == WIRE_WAITS)
        frame.waits.count = (uint32_t)(*payload / 16);
    if (frame.kind == WIRE_HOLD)
        frame.hold.step = take(in);
    if (frame.kind == WIRE_END)
        frame.end.what = take(in) % WIRE_END_WHATS;
    if (frame.kind == WIRE_VALUE) {
        frame.value.shard = take(in);
        frame.value.round = take(in);
    }
    if (frame.kind != WIRE_VALUE && frame.kind != WIRE_WAITS && *payload != 255)
        *payload = 0;
    return frame;
}

static void other_say(struct fuzzed *f, struct bytes *in)
{
    unsigned char bytes[WIRE_HEADER_MAX], fill[256];
    struct sending to = {.count = 0};
    size_t payload;
    enum channel_number number = (enum channel_number)(take(in) & 1);
    uint8_t how = take(in);
    struct wire_frame frame = other_frame(in, &payload);
    size_t count = header_make(f, &frame, number, take(in), bytes);
    if (number == CHANNEL_BULK && how < 250) {
        head_say(f, &(struct bulk_head){.kind = BULK_FRAME, .count = (uint16_t)count, .bytes = count + payload}, how);
        line_say(f, bytes, count, how);
        fill_say(f, in, payload, how);
        return;
    }
    identity_add(&to, number, how);
    part_add(&to, bytes, count);
    memset(fill, take(in), sizeof fill);
    if (payload)
        part_add(&to, fill, payload);
    message_say(f, &to);
}

static void raw_say(struct fuzzed *f, struct bytes *in)
{
    struct sending to = {.count = 0};
    enum channel_number number = (enum channel_number)(take(in) & 1);
    uint8_t how = take(in);
    size_t count = take(in);
    count = count < in->left ? count : in->left;
    const uint8_t *bytes = in->at;
    in->at += count;
    in->left -= count;
    if (number == CHANNEL_BULK && how < 250) {
        line_say(f, bytes, count, how);
        return;
    }
    identity_add(&to, number, how);
    part_add(&to, bytes, count);
    for (int more = take(in) % 4; more > 0; more--)
        part_add(&to, bytes, count / 2);
    message_say(f, &to);
}

static void say(struct fuzzed *f, struct bytes *in, uint8_t what)
{
    if (what == 0)
        words_say(f, in);
    else if (what == 1)
        slot_say(f, in);
    else if (what == 2)
        other_say(f, in);
    else
        raw_say(f, in);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes in = {data, size};
    struct fuzzed f;
    fuzzed_open(&f, take(&in) % SMALL_PLANS);
    if (take(&in) != 255) { /* it has said HELLO */
        peer_happens(&f.net->peers, PEER, PEER_SAYS_HELLO, 0);
        f.net->peers.of[PEER].line[CHANNEL_LIFE].heard = f.net->peers.of[PEER].line[CHANNEL_BULK].heard = 1;
    }
    while (in.left && !peer_is(&f.net->peers.of[PEER], PEER_LOST)) {
        uint8_t what = take(&in) % 8;
        if (what < 4)
            say(&f, &in, what);
        else if (what < 7)
            free_one(&f, take_below(&in, f.plan->ports_count));
        else
            publish_one(&f, take_below(&in, f.plan->ports_count));
        all_holds(&f);
    }
    fuzzed_close(&f);
    return 0;
}
