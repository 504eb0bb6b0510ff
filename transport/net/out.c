/* transport/net/out.c: frames that go to peers. See net.h. */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "graph/base/error.h"
#include "transport/mail/park.h"
#include "transport/net/inside.h"

#define HOLD_PART 4              /* one in so many of a register's slots, at most, may have been freed without a word of it,
                                    while the only worker has more to do or spins: then many go together */
#define FLUSH_BYTES (256u << 10) /* a worker writes no more before it goes on */
#define REST_BYTES (1u << 20)    /* nor so much before it waits; then it writes and reads in turns */

/* A frame cannot be sent: the peer takes nothing any more. The bound on what is under way is below the high-water mark,
 * so a peer that keeps the protocol never brings it here. */
static void send_failed(struct net *net, uint32_t rank)
{
    peer_lose(&net->peers, rank, errno == EAGAIN ? "it does not take what is sent to it" : "it cannot be reached: %s",
             zmq_strerror(errno));
}

/* Only what is small or waits for nothing goes with the signs of life; what has to arrive behind register contents
 * takes their way, where there is one. */
static enum channel_number channel_for(const struct peer *peer, const struct wire_frame *frame)
{
    uint32_t kind = frame->kind;
    bool before_bye = kind == WIRE_VALUE || kind == WIRE_BYE || kind == WIRE_HOLD ||
                      (kind == WIRE_END && frame->end.what != WIRE_CANCELLED);
    return before_bye && peer->line[CHANNEL_BULK].open ? CHANNEL_BULK : CHANNEL_LIFE;
}

static void frame_number(const struct net *net, struct peer_line *line, struct wire_frame *frame)
{
    frame->version = WIRE_VERSION;
    frame->session = net->session;
    frame->rank = net->env->rank;
    frame->number = line->sent++;
}

static size_t header_write(struct net *net, struct peer_line *line, struct wire_frame *frame,
                           unsigned char bytes[WIRE_HEADER_MAX])
{
    frame_number(net, line, frame);
    return wire_encode(frame, bytes);
}

/* Begins a message. */
static bool header_send(struct net *net, uint32_t rank, enum channel_number number, struct wire_frame *frame, bool more)
{
    unsigned char bytes[WIRE_HEADER_MAX];
    size_t count = header_write(net, &net->peers.of[rank].line[number], frame, bytes);
    bool sent = channel_begin(&net->channels[number], rank) && channel_bytes(&net->channels[number], bytes, count, more);
    if (frame->kind == WIRE_HELLO)
        explicit_bzero(bytes, sizeof(bytes)); /* a secret is in it */
    return sent;
}

weir_status net_hello(struct net *net, uint32_t rank, enum channel_number number)
{
    struct peer *peer = &net->peers.of[rank];
    struct wire_frame hello = {.kind = WIRE_HELLO, .hello.shm = peer->maps};
    weir_status status = number == CHANNEL_LIFE ? net_lines_hello(net, rank, &hello) : WEIR_OK;
    peer->line[number].open = !status;
    if (!status && !header_send(net, rank, number, &hello, false))
        send_failed(net, rank);
    explicit_bzero(&hello, sizeof(hello));
    return status;
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
    if (!peer || !peer_is_open(peer) || peer->word_said || (peer->neighbour && !peer_is(peer, PEER_HERE)))
        return false;
    return frame->kind == WIRE_VALUE && frame->value.shard != WIRE_MARK ? line_needed(net, rank) : peer->neighbour;
}

void net_send(struct net *net, uint32_t rank, struct wire_frame *frame, zmq_msg_t *payload)
{
    zmq_msg_t part;
    if (!may_send(net, rank, frame))
        return;
    enum channel_number number = channel_for(&net->peers.of[rank], frame);
    if (number == CHANNEL_BULK && net->peers.of[rank].bulk) {
        frame_number(net, &net->peers.of[rank].line[number], frame);
        bulk_post_frame(net->peers.of[rank].bulk, frame, payload);
        return;
    }
    bool sent = header_send(net, rank, number, frame, payload != NULL);
    if (sent && payload) {
        zmq_msg_init(&part);
        zmq_msg_copy(&part, payload);
        sent = channel_part(&net->channels[number], &part, false);
    }
    if (!sent)
        send_failed(net, rank);
}

/* ---- the last word ---- */

struct stranger_word {
    struct peer *peer;
    _Atomic bool filled; /* what stands here was written before: ZeroMQ says so too, where no sanitizer can see it */
    unsigned char bytes[WIRE_HEADER_MAX];
};

/* ZeroMQ has written it, or lets go of it. By ZeroMQ's thread. */
static void word_freed(void *data, void *hint)
{
    struct stranger_word *word = hint;
    (void)data;
    /* acquire: pairs with the store in word_to_stranger() */
    if (atomic_load_explicit(&word->filled, memory_order_acquire))
        /* release: pairs with the load in peer_judge_stranger() */
        atomic_store_explicit(&word->peer->word_freed, true, memory_order_release);
    free(word);
}

/* To a rank that is no neighbour, which does not answer. False: it is not on its way. */
static bool word_to_stranger(struct net *net, uint32_t rank, struct wire_frame *frame)
{
    struct peer *peer = &net->peers.of[rank];
    struct stranger_word *word = malloc(sizeof(*word));
    zmq_msg_t part;
    if (!word)
        return false;
    word->peer = peer;
    size_t count = header_write(net, &peer->line[CHANNEL_BULK], frame, word->bytes);
    atomic_store_explicit(&word->filled, true, memory_order_release); /* pairs with the load in word_freed() */
    if (zmq_msg_init_data(&part, word->bytes, count, word_freed, word)) {
        free(word);
        return false;
    }
    if (channel_begin(&net->channels[CHANNEL_BULK], rank))
        return channel_part(&net->channels[CHANNEL_BULK], &part, false);
    zmq_msg_close(&part);
    return false;
}

/* Whether the peer can be told. A neighbour that is not here yet hears of the end by that of the connection; a rank that
 * is no neighbour needs no BYE if it was sent nothing. */
static bool may_part(const struct net *net, const struct peer *peer)
{
    if (peer == &net->peers.of[net->env->rank] || peer->word_said || peer_is_over(peer))
        return false;
    return peer->neighbour ? !peer_is(peer, PEER_ABSENT) : peer->line[CHANNEL_BULK].open && !peer->cut_ns;
}

void net_last_word(struct net *net, uint32_t rank, int64_t steps)
{
    struct peer *peer = &net->peers.of[rank];
    struct wire_frame frame = {.kind = WIRE_BYE, .bye = {.steps = steps, .answer = peer_is(peer, PEER_PARTING)}};
    if (!may_part(net, peer))
        return;
    enum channel_number number = channel_for(peer, &frame);
    bool waits = false;
    peer_last_word(&net->peers, rank);
    if (number == CHANNEL_BULK && peer->bulk) {
        frame_number(net, &peer->line[number], &frame);
        bulk_post_frame(peer->bulk, &frame, NULL);
        waits = peer->bulk->stream && !peer->bulk->writes_over; /* until it is written */
    } else if (!peer->neighbour) {
        waits = word_to_stranger(net, rank, &frame);
    } else if (!header_send(net, rank, number, &frame, false)) { /* ZeroMQ writes it by itself, and it is answered */
        send_failed(net, rank);
    }
    if (!waits)
        peer_happens(&net->peers, rank, PEER_WORD_GONE, 0);
}

/* ---- what other threads ask for ---- */

static void request_send_one(struct net *net, uint32_t rank, struct request *request)
{
    if (request->frame.kind == WIRE_BYE)
        net_last_word(net, rank, request->frame.bye.steps);
    else
        net_send(net, rank, &request->frame, request->has_payload ? &request->payload : NULL);
}

static void request_send(struct net *net, struct request *request)
{
    struct peers *peers = &net->peers;
    struct bulk_line *line = request->transfer ? peers->of[request->to].bulk : NULL;
    if (request->frame.kind == WIRE_BYE) {
        peers_leave(peers);
        net->clock.leaving_ns = park_now_ns();
    }
    if (line)
        bulk_post_slot(line, request->transfer, request->slot, true);
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

/* ---- bus messages ---- */

/* A READY of a transfer's leader takes the slots along. */
static void slots_post(struct bulk_line *line, struct transfer *transfer, uint32_t slots, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        bulk_post_slot(line, transfer, transfer->next_slot, false);
        transfer->next_slot = transfer->next_slot + 1 == slots ? 0 : transfer->next_slot + 1;
    }
}

void net_send_message(struct net *net, struct message message)
{
    uint32_t edge = message.edge;
    bool ready = message.kind == MESSAGE_READY;
    uint32_t rank = ready ? net_reader_rank(net, edge) : net_producer_rank(net, edge);
    struct transfer *transfer = links_find(net->route.links, edge);
    struct bulk_line *line = net->peers.of[rank].bulk;
    if (ready)
        net->route.outstanding[edge] += message.count;
    else
        net->route.outstanding[edge] -= message.count;
    assert(net->route.outstanding[edge] <= net_slots(net, edge));
    if (!line)
        return;
    if (ready && transfer && transfer->leader == edge)
        slots_post(line, transfer, net_slots(net, edge), message.count);
    else
        bulk_post_word(line, message, ready || net->watcher.worker_fd < 0 ? 0 : net_slots(net, edge) / HOLD_PART);
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
    return any;
}

static void end_post(struct bus_end *end, struct message message)
{
    mailbox_put((struct mailbox *)end, message);
}

/* The rest of a large message is left to the net thread, or to this one when it has nothing else to do.
 *
 * If somebody else is at the sockets, it may be the net thread, which looks into the mailbox again before it sleeps, or
 * another worker, which may have looked already; then the net thread sleeps, and is woken. */
static void end_flush(struct bus_end *end, bool rests)
{
    struct net *net = (struct net *)((char *)end - offsetof(struct net, route.mailbox));
    if (pthread_mutex_trylock(&net->sockets)) {
        mailbox_call(&net->route.mailbox);
        return;
    }
    net_take_messages(net);
    bool all = bulk_flush(&net->bulk, rests ? REST_BYTES : FLUSH_BYTES);
    pthread_mutex_unlock(&net->sockets);
    if (!all)
        mailbox_call(&net->route.mailbox);
}

void net_end_open(struct net *net)
{
    net->route.mailbox.end = (struct bus_end){.post = end_post, .flush = end_flush};
}
