/* tests/fuzz/fuzz_bus.c: what a hostile rank may say on the bus once it has been let in.
 *
 * Rank 0 of two is a struct net made by hand, without sockets: a plan, links, a bus whose ends look at what is posted.
 * The input is a sequence of what rank 1 sends (frames that are nearly right, and raw headers) and of what this rank's
 * own actors do meanwhile (free a slot, publish one). After each frame the counters have to be those that follow from
 * what was posted, every message has to be one that its receiver can take, and every byte of every slot that a reader
 * was told of has to be there: a sanitizer sees one that is not.
 */
#include "graph/plan/spread.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/small_plans.h"
#include "transport/net/inside.h"

#include <stdlib.h>
#include <string.h>

enum { PAYLOAD_MAX = 1 << 16, SESSION = 0x7765, PEER = 1, RANKS = 2 };

const char *const fuzz_corpus = "tests/fuzz/corpus/bus";

struct bytes {
    const uint8_t *at;
    size_t left;
};

static uint8_t take(struct bytes *in)
{
    if (!in->left)
        return 0;
    in->left--;
    return *in->at++;
}

static uint32_t take_below(struct bytes *in, uint32_t limit)
{
    uint32_t value = take(in);
    value |= (uint32_t)take(in) << 8;
    return limit ? value % limit : 0;
}

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
    uint32_t *unseen;  /* of these so many were there at the start, without contents */
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

/* What a worker would be told. */
static void listen(struct bus_end *end, struct message message)
{
    struct fuzzed *f = ((struct listener *)end)->to;
    const struct net *net = f->net;
    uint32_t edge = message.edge;
    expect(edge < f->plan->ports_count && message.count > 0 && !message.unused);
    if (message.kind == MESSAGE_READY) {
        expect(net_reader_rank(net, edge) == 0 && net_producer_rank(net, edge) == PEER);
        expect(message.count <= slots_of(f, edge) - f->ready[edge]);
        f->ready[edge] += message.count;
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
    (void)ctx;
    return 1;
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
    expect(peers_open(&net->peers, f->plan, RANKS, 0) == WEIR_OK);
    net->peers.of[PEER].wired = true;
    expect(links_open(&f->links, f->plan, 0, (const bool[RANKS]){false, true}) == WEIR_OK);
    expect(bus_open(&f->bus, f->plan->actors_count) == WEIR_OK);
    f->listener = (struct listener){{.post = listen}, f};
    for (uint32_t a = 0; a < f->plan->actors_count; a++)
        if (plan_rank_of(f->plan, a) == 0)
            bus_attach(&f->bus, a, &f->listener.end);
    expect(net_route(net, &f->links, NULL, &f->bus) == WEIR_OK);
}

static void fuzzed_open(struct fuzzed *f, int which)
{
    *f = (struct fuzzed){.plan = plan_of(which), .env = {.rank = 0, .size = RANKS}, .report = {on_said, NULL, NULL}};
    uint32_t ports = f->plan->ports_count + 1;
    f->ready = calloc(ports, sizeof *f->ready);
    f->slot = calloc(ports, sizeof *f->slot);
    f->unseen = calloc(ports, sizeof *f->unseen);
    expect(f->ready && f->slot && f->unseen);
    net_make(f);
    for (uint32_t p = 0; p < f->plan->ports_count; p++)
        f->ready[p] = f->unseen[p] = f->net->route.outstanding[p];
}

static void fuzzed_close(struct fuzzed *f)
{
    struct net *net = f->net;
    for (uint32_t i = 0; i < f->links.transfers_count; i++) {
        const struct transfer *transfer = &f->links.transfers[i];
        zmq_msg_t *frames = transfer->frames;
        for (size_t k = 0; frames && k < (size_t)f->plan->regsts[transfer->regst].slots * transfer->spans.count; k++)
            zmq_msg_close(&frames[k]);
    }
    net->route.links = NULL;
    links_close(&f->links);
    bus_close(&f->bus);
    net_close(net);
    free(f->ready);
    free(f->slot);
    free(f->unseen);
}

/* ---- what holds all the time ---- */

/* Every byte that the reader may look at. */
static void slots_read(const struct fuzzed *f, uint32_t port, const struct transfer *transfer)
{
    static volatile unsigned char sink;
    for (uint32_t i = 0; i < f->ready[port]; i++) {
        uint32_t slot = (f->slot[port] + i) % slots_of(f, port);
        char *const *data = transfer->data + (size_t)slot * transfer->spans.count;
        for (uint32_t k = 0; k < transfer->spans.count && i >= f->unseen[port]; k++) {
            expect(data[k] != NULL);
            for (uint64_t b = 0; b < f->links.spans[transfer->spans.first + k].bytes; b++)
                sink = (unsigned char)(sink ^ (unsigned char)data[k][b]);
        }
    }
}

static void all_holds(const struct fuzzed *f)
{
    for (uint32_t p = 0; p < f->plan->ports_count; p++) {
        expect(f->net->route.outstanding[p] == f->ready[p] && f->ready[p] <= slots_of(f, p));
        const struct transfer *transfer = links_find(&f->links, p);
        if (transfer && transfer->to == 0)
            slots_read(f, p, transfer);
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
    f->ready[port]--;
    f->unseen[port] -= f->unseen[port] > 0;
    f->slot[port] = (f->slot[port] + 1) % regst->slots;
    net_send_message(f->net, (struct message){.edge = port, .kind = MESSAGE_FREE, .count = 1});
    f->net->peers.of[PEER].words_count = 0; /* would go out */
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

struct sending {
    zmq_msg_t part[WIRE_SPANS_MAX];
    uint32_t count;
};

static void part_add(struct sending *to, const void *bytes, size_t count)
{
    expect(to->count < WIRE_SPANS_MAX && !zmq_msg_init_size(&to->part[to->count], count));
    if (count)
        memcpy(zmq_msg_data(&to->part[to->count]), bytes, count);
    to->count++;
}

static void part_fill(struct sending *to, struct bytes *in, size_t count)
{
    expect(to->count < WIRE_SPANS_MAX && !zmq_msg_init_size(&to->part[to->count], count));
    memset(zmq_msg_data(&to->part[to->count]), take(in), count);
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

static void header_add(struct sending *to, struct fuzzed *f, struct wire_frame *frame, enum channel_number number,
                       uint8_t wrong)
{
    unsigned char bytes[WIRE_HEADER_MAX];
    frame->session = wrong == 255 ? 1 : SESSION;
    frame->rank = wrong == 254 ? 0 : PEER;
    frame->number = f->net->peers.of[PEER].line[number].heard + (wrong == 253);
    part_add(to, bytes, wire_encode(frame, bytes));
}

static void words_say(struct sending *to, struct fuzzed *f, struct bytes *in)
{
    uint64_t words[16];
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
    header_add(to, f, &(struct wire_frame){.kind = WIRE_WORDS, .words.count = said}, CHANNEL_BULK, take(in));
    part_add(to, words, count * sizeof *words);
}

static void data_say(struct sending *to, struct fuzzed *f, struct bytes *in)
{
    const struct transfer *transfer = &f->links.transfers[take_below(in, f->links.transfers_count)];
    uint8_t how = take(in);
    struct wire_frame frame = {.kind = WIRE_DATA,
                               .data = {.edge = how & 1 ? take(in) : transfer->leader,
                                        .slot = how & 2 ? take(in) : transfer->next_slot,
                                        .spans = transfer->spans.count + ((how & 12) == 12),
                                        .initial = (how & 48) == 48}};
    header_add(to, f, &frame, CHANNEL_BULK, take(in));
    for (uint32_t i = 0; i < transfer->spans.count; i++) {
        uint64_t bytes = f->links.spans[transfer->spans.first + i].bytes + (how >> 6 == 3);
        part_fill(to, in, bytes < PAYLOAD_MAX ? bytes : PAYLOAD_MAX);
    }
}

static void other_say(struct sending *to, struct fuzzed *f, struct bytes *in, enum channel_number number)
{
    struct wire_frame frame = {.kind = 1 + take(in) % (WIRE_KIND_END - 1u)};
    size_t payload = take(in);
    bool has_payload = frame.kind == WIRE_VALUE || frame.kind == WIRE_WAITS || frame.kind == WIRE_WORDS;
    if (frame.kind == WIRE_WAITS)
        frame.waits.count = (uint32_t)(payload / 16);
    if (frame.kind == WIRE_HOLD)
        frame.hold.step = take(in);
    if (frame.kind == WIRE_END)
        frame.end.what = take(in) % WIRE_END_WHATS;
    if (frame.kind == WIRE_VALUE) {
        frame.value.shard = take(in);
        frame.value.round = take(in);
    }
    header_add(to, f, &frame, number, take(in));
    if (has_payload || payload == 255)
        part_fill(to, in, payload);
}

static void raw_say(struct sending *to, struct bytes *in)
{
    size_t count = take(in);
    count = count < in->left ? count : in->left;
    part_add(to, in->at, count);
    in->at += count;
    in->left -= count;
    for (int more = take(in) % 4; more > 0; more--)
        part_fill(to, in, take(in));
}

static void say(struct fuzzed *f, struct bytes *in, uint8_t what)
{
    static struct sending to;
    enum channel_number number = what < 2 ? CHANNEL_BULK : (enum channel_number)(take(in) & 1);
    to.count = 0;
    identity_add(&to, number, take(in));
    if (what == 0)
        words_say(&to, f, in);
    else if (what == 1)
        data_say(&to, f, in);
    else if (what == 2)
        other_say(&to, f, in, number);
    else if (what == 3)
        raw_say(&to, in);
    net_handle(f->net, &(struct incoming){.parts = to.part, .count = to.count, .room = WIRE_SPANS_MAX});
    for (uint32_t i = 0; i < to.count; i++)
        zmq_msg_close(&to.part[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes in = {data, size};
    struct fuzzed f;
    fuzzed_open(&f, take(&in) % SMALL_PLANS);
    if (take(&in) != 255) { /* it has said HELLO */
        peer_become(&f.net->peers, PEER, PEER_HERE);
        f.net->peers.of[PEER].line[CHANNEL_LIFE].heard = f.net->peers.of[PEER].line[CHANNEL_BULK].heard = 1;
    }
    while (in.left && !peer_is(&f.net->peers.of[PEER], PEER_LOST)) {
        uint8_t what = take(&in) % 8;
        if (what < 5)
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
