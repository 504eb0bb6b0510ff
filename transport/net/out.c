/* transport/net/out.c: frames that go to peers. See net.h. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "graph/base/error.h"
#include "transport/net/inside.h"

/* A frame cannot be sent: the peer takes nothing any more. The bound on what is under way is below the high-water mark,
 * so a peer that keeps the protocol never brings it here. */
static void send_failed(struct net *net, uint32_t rank)
{
    net_lose(net, rank, errno == EAGAIN ? "it does not take what is sent to it" : "it cannot be reached: %s",
             zmq_strerror(errno));
}

/* Only what is small or waits for nothing goes with the signs of life; what has to arrive behind register contents
 * takes their way, where there is one. */
static enum channel_number channel_for(const struct peer *peer, const struct wire_frame *frame)
{
    uint32_t kind = frame->kind;
    if (kind == WIRE_WORDS || kind == WIRE_DATA)
        return CHANNEL_BULK;
    bool before_bye = kind == WIRE_VALUE || kind == WIRE_BYE || kind == WIRE_HOLD ||
                      (kind == WIRE_END && frame->end.what != WIRE_CANCELLED);
    return before_bye && peer->line[CHANNEL_BULK].open ? CHANNEL_BULK : CHANNEL_LIFE;
}

static size_t header_write(struct net *net, struct peer_line *line, struct wire_frame *frame,
                           unsigned char bytes[WIRE_HEADER_MAX])
{
    frame->version = WIRE_VERSION;
    frame->session = net->session;
    frame->rank = net->env->rank;
    frame->number = line->sent++;
    return wire_encode(frame, bytes);
}

/* Begins a message. */
static bool header_send(struct net *net, uint32_t rank, enum channel_number number, struct wire_frame *frame, bool more)
{
    unsigned char bytes[WIRE_HEADER_MAX];
    size_t count = header_write(net, &net->peers.of[rank].line[number], frame, bytes);
    return channel_begin(&net->channels[number], rank) && channel_bytes(&net->channels[number], bytes, count, more);
}

void net_hello(struct net *net, uint32_t rank, enum channel_number number)
{
    struct peer *peer = &net->peers.of[rank];
    struct wire_frame hello = {.kind = WIRE_HELLO, .hello.shm = peer->maps};
    peer->line[number].open = true;
    if (!header_send(net, rank, number, &hello, false))
        send_failed(net, rank);
}

/* To a rank that is no neighbour there is a connection from when a value first goes there. One with which memory is
 * shared has that for signs of life alone. */
static bool line_needed(struct net *net, uint32_t rank)
{
    struct peer *peer = &net->peers.of[rank];
    if ((peer->edge && !peer->wired) || peer->line[CHANNEL_BULK].open)
        return true;
    if (!net_line_open(net, rank, CHANNEL_BULK))
        return true;
    net->hooks.broken(net->hooks.ctx, weir_error());
    return false;
}

static bool may_send(struct net *net, uint32_t rank, const struct wire_frame *frame)
{
    const struct peer *peer = net_peer(net, rank);
    if (!peer || (peer->neighbour && !peer_is(peer, PEER_HERE)) || peer_is(peer, PEER_LOST) ||
        peer_is(peer, PEER_LEFT))
        return false;
    if (frame->kind == WIRE_BYE) /* which would never get away to one that has gone without a word to this rank */
        return peer->neighbour || (peer->line[CHANNEL_BULK].open && !peer->ended_ns);
    return frame->kind == WIRE_VALUE && frame->value.shard != WIRE_MARK ? line_needed(net, rank) : peer->neighbour;
}

void net_send(struct net *net, uint32_t rank, struct wire_frame *frame, zmq_msg_t *payload)
{
    zmq_msg_t part;
    if (!may_send(net, rank, frame))
        return;
    enum channel_number number = channel_for(&net->peers.of[rank], frame);
    bool sent = header_send(net, rank, number, frame, payload != NULL);
    if (sent && payload) {
        zmq_msg_init(&part);
        zmq_msg_copy(&part, payload);
        sent = channel_part(&net->channels[number], &part, false);
    }
    if (!sent)
        send_failed(net, rank);
}

/* ---- BYE ---- */

struct bye {
    struct peers *peers;
    struct peer *peer;
    _Atomic bool filled; /* what stands here was written before: ZeroMQ says so too, where no sanitizer can see it */
    unsigned char bytes[WIRE_HEADER_MAX];
};

/* ZeroMQ has written it, or lets go of it. By ZeroMQ's thread. */
static void bye_gone(void *data, void *hint)
{
    struct bye *bye = hint;
    (void)data;
    /* acquire: pairs with the store in net_bye() */
    if (atomic_load_explicit(&bye->filled, memory_order_acquire))
        peer_bye_gone(bye->peers, bye->peer);
    free(bye);
}

void net_bye(struct net *net, uint32_t rank, struct wire_frame *frame)
{
    struct peer *peer = &net->peers.of[rank];
    struct bye *bye = malloc(sizeof(*bye));
    zmq_msg_t part;
    if (!bye || !may_send(net, rank, frame)) {
        free(bye);
        return;
    }
    enum channel_number number = channel_for(peer, frame);
    bye->peers = &net->peers;
    bye->peer = peer;
    size_t count = header_write(net, &peer->line[number], frame, bye->bytes);
    atomic_store_explicit(&bye->filled, true, memory_order_release); /* pairs with the load in bye_gone() */
    if (zmq_msg_init_data(&part, bye->bytes, count, bye_gone, bye)) {
        free(bye);
        return;
    }
    atomic_fetch_add_explicit(&net->peers.byes_waiting, 1, memory_order_relaxed);
    atomic_store_explicit(&peer->bye_waits, 1, memory_order_release);
    if (!channel_begin(&net->channels[number], rank))
        zmq_msg_close(&part);
    else
        channel_part(&net->channels[number], &part, false);
}

/* ---- what other threads ask for ---- */

static void request_send_one(struct net *net, uint32_t rank, struct request *request)
{
    if (request->frame.kind == WIRE_BYE)
        net_bye(net, rank, &request->frame);
    else
        net_send(net, rank, &request->frame, request->has_payload ? &request->payload : NULL);
}

static void request_send(struct net *net, struct request *request)
{
    const struct peers *peers = &net->peers;
    if (request->transfer)
        net_send_transfer(net, request->transfer, request->frame.data.slot, true);
    else if (request->to == NET_NEIGHBOURS)
        for (uint32_t i = 0; i < peers->neighbours_count; i++)
            request_send_one(net, peers->neighbours[i], request);
    else if (request->to == NET_ALL) /* each kind goes to whom it may: may_send() */
        for (uint32_t r = 0; r < peers->count; r++)
            request_send_one(net, r, request);
    else
        request_send_one(net, request->to, request);
}

void net_requests_send(struct net *net, struct request *list)
{
    for (struct request *next; list; list = next) {
        next = list->next;
        request_send(net, list);
        request_free(list);
    }
}

/* ---- register contents ---- */

static const char *slot_address(const struct net *net, const struct transfer *transfer, uint32_t slot)
{
    const plan_regst *regst = &net->plan->regsts[transfer->regst];
    return net->route.arenas[regst->space.i].base + regst->offset + slot * regst->slot_bytes;
}

/* A direct span's frame refers to the slot; a packed one's is a copy. */
static bool span_send(struct net *net, const struct transfer *transfer, uint32_t number, uint32_t slot, bool more)
{
    const struct span *span = &net->route.links->spans[transfer->spans.first + number];
    const char *from = slot_address(net, transfer, slot);
    struct channel *bulk = &net->channels[CHANNEL_BULK];
    zmq_msg_t part;
    /* without a function to free them, ZeroMQ refers to the bytes and allocates nothing */
    int rc = span->direct ? zmq_msg_init_data(&part, (void *)(from + span->slot_offset), span->bytes, NULL, NULL)
                          : zmq_msg_init_size(&part, span->bytes);
    if (rc) {
        channel_abort(bulk);
        return false;
    }
    if (!span->direct)
        links_pack(net->route.links, net->plan, span, from, zmq_msg_data(&part));
    return channel_part(bulk, &part, more);
}

/* `words`: the peer's gathered messages go along. */
static void data_send(struct net *net, const struct transfer *transfer, uint32_t slot, bool initial, bool words)
{
    struct peer *peer = net_peer(net, transfer->to);
    uint32_t word_count = words && peer ? peer->words_count : 0;
    struct wire_frame frame = {.kind = WIRE_DATA,
                               .data = {.edge = transfer->leader,
                                        .slot = slot,
                                        .spans = transfer->spans.count,
                                        .initial = initial,
                                        .words = word_count}};
    if (!peer || !peer_is(peer, PEER_HERE))
        return;
    bool sent = header_send(net, transfer->to, CHANNEL_BULK, &frame, transfer->spans.count || word_count);
    for (uint32_t i = 0; sent && i < transfer->spans.count; i++)
        sent = span_send(net, transfer, i, slot, word_count || i + 1 < transfer->spans.count);
    if (sent && word_count)
        sent = channel_bytes(&net->channels[CHANNEL_BULK], peer->words, word_count * sizeof(uint64_t), false);
    if (word_count)
        peer->words_count = 0;
    if (!sent)
        send_failed(net, transfer->to);
}

void net_send_transfer(struct net *net, const struct transfer *transfer, uint32_t slot, bool initial)
{
    data_send(net, transfer, slot, initial, false);
}

/* The last slot for a peer takes along what else there is to say to it: whoever shares a transfer hears of it then. */
static void data_flush(struct net *net)
{
    for (uint32_t i = 0; i < net->route.data_count; i++) {
        const struct outgoing_data *data = &net->route.data[i];
        bool last = --net->peers.of[data->transfer->to].data_count == 0;
        data_send(net, data->transfer, data->slot, false, last);
    }
    net->route.data_count = 0;
}

/* ---- bus messages ---- */

static void words_send(struct net *net, uint32_t rank)
{
    struct peer *peer = &net->peers.of[rank];
    uint32_t count = peer->words_count;
    struct wire_frame frame = {.kind = WIRE_WORDS, .words.count = count};
    peer->words_count = 0;
    if (!count || !peer_is(peer, PEER_HERE))
        return;
    if (!header_send(net, rank, CHANNEL_BULK, &frame, true) ||
        !channel_bytes(&net->channels[CHANNEL_BULK], peer->words, count * sizeof(uint64_t), false))
        send_failed(net, rank);
}

static void word_add(struct net *net, uint32_t rank, struct message message)
{
    struct peer *peer = &net->peers.of[rank];
    peer_waits(&net->peers, rank);
    peer->words[peer->words_count++] = message_pack(message);
    if (peer->words_count < NET_WORDS_MAX)
        return;
    data_flush(net);
    words_send(net, rank);
}

void net_flush(struct net *net)
{
    struct peers *peers = &net->peers;
    data_flush(net);
    for (uint32_t i = 0; i < peers->waiting_count; i++) {
        peers->of[peers->waiting[i]].waits = false;
        words_send(net, peers->waiting[i]);
    }
    peers->waiting_count = 0;
}

/* The transfer's one reader has let go of `count` slots: the memory of what came in them may be used for what comes
 * next, while it is still in the cache. */
static void frames_drop(struct net *net, struct transfer *transfer, uint32_t count)
{
    uint32_t slots = net->plan->regsts[transfer->regst].slots;
    for (uint32_t i = 0; i < count; i++) {
        zmq_msg_t *frames = (zmq_msg_t *)transfer->frames + (size_t)transfer->free_slot * transfer->spans.count;
        for (uint32_t k = 0; k < transfer->spans.count; k++) {
            zmq_msg_close(&frames[k]);
            zmq_msg_init(&frames[k]);
        }
        transfer->free_slot = transfer->free_slot + 1 == slots ? 0 : transfer->free_slot + 1;
    }
}

void net_send_message(struct net *net, struct message message)
{
    uint32_t edge = message.edge;
    bool ready = message.kind == MESSAGE_READY;
    uint32_t rank = ready ? net_reader_rank(net, edge) : net_producer_rank(net, edge);
    struct transfer *transfer = links_find(net->route.links, edge);
    bool carries = ready && transfer && transfer->leader == edge;
    if (ready)
        net->route.outstanding[edge] += message.count;
    else
        net->route.outstanding[edge] -= message.count;
    if (!ready && transfer && transfer->readers == 1)
        frames_drop(net, transfer, message.count);
    assert(net->route.outstanding[edge] <= net_slots(net, edge));
    if (!carries) {
        word_add(net, rank, message);
        return;
    }
    uint32_t slots = net->plan->regsts[transfer->regst].slots;
    for (uint32_t i = 0; i < message.count; i++) {
        net->route.data[net->route.data_count++] = (struct outgoing_data){transfer, transfer->next_slot};
        net->peers.of[rank].data_count++;
        transfer->next_slot = transfer->next_slot + 1 == slots ? 0 : transfer->next_slot + 1;
    }
}

/* ---- what workers post ---- */

bool net_take_messages(struct net *net)
{
    struct message message;
    bool any = false;
    while (mailbox_take(&net->route.mailbox, &message)) {
        net_send_message(net, message);
        any = true;
    }
    if (any)
        net_flush(net);
    return any;
}

static void end_post(struct bus_end *end, struct message message)
{
    mailbox_put((struct mailbox *)end, message);
}

/* If somebody else is at the sockets, it may be the net thread, which looks into the mailbox again before it sleeps, or
 * another worker, which may have looked already; then the net thread sleeps, and is woken. */
static void end_flush(struct bus_end *end)
{
    struct net *net = (struct net *)((char *)end - offsetof(struct net, route.mailbox));
    if (pthread_mutex_trylock(&net->sockets)) {
        mailbox_call(&net->route.mailbox);
        return;
    }
    net_take_messages(net);
    pthread_mutex_unlock(&net->sockets);
}

void net_end_open(struct net *net)
{
    net->route.mailbox.end = (struct bus_end){.post = end_post, .flush = end_flush};
}
