/* transport/net/in.c: frames that come from peers. Nothing in them is believed: each is held against what this peer may
 * say now, and the first that does not fit loses the peer. See net.h. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "graph/base/error.h"
#include "transport/net/inside.h"
#include "transport/mail/park.h"

#define NS_PER_S 1000000000
#define ELEMENT_BYTES_MAX 8
#define PARTS_MAX (WIRE_SPANS_MAX + 3) /* of a message: who, header, spans, words */

/* ---- taking them in ---- */

void incoming_clear(struct incoming *in)
{
    for (uint32_t i = 0; i < in->count; i++)
        zmq_msg_close(&in->parts[i]);
    in->count = 0;
}

static bool incoming_room(struct incoming *in)
{
    if (in->count < in->room)
        return true;
    uint32_t room = in->room ? 2 * in->room : 16;
    /* a zmq_msg_t may be moved by copying its bytes only through zmq_msg_move() */
    zmq_msg_t *parts = calloc(room, sizeof(*parts));
    if (!parts)
        return false;
    for (uint32_t i = 0; i < in->count; i++) {
        zmq_msg_init(&parts[i]);
        zmq_msg_move(&parts[i], &in->parts[i]);
        zmq_msg_close(&in->parts[i]);
    }
    free(in->parts);
    in->parts = parts;
    in->room = room;
    return true;
}

bool net_receive(struct net *net)
{
    struct incoming *in = &net->incoming;
    bool more = true, kept = true;
    incoming_clear(in);
    while (more) {
        zmq_msg_t part;
        zmq_msg_init(&part);
        if (TEMP_FAILURE_RETRY(zmq_msg_recv(&part, net->router, ZMQ_DONTWAIT)) < 0) { /* EINTR: see out.c */
            zmq_msg_close(&part);
            return false; /* only before the first: a message comes whole */
        }
        more = zmq_msg_more(&part);
        kept = kept && in->count < PARTS_MAX && incoming_room(in);
        if (kept) {
            zmq_msg_init(&in->parts[in->count]);
            zmq_msg_move(&in->parts[in->count++], &part);
        }
        zmq_msg_close(&part);
    }
    if (!kept) {
        incoming_clear(in);
        net_unknown(net, "a message of too many frames, or for which there is no memory,");
    }
    return true;
}

/* ---- who ---- */

void net_unknown(struct net *net, const char *what)
{
    int64_t now = park_now_ns();
    if (net->unknown_ns && now - net->unknown_ns < NS_PER_S)
        return;
    net->unknown_ns = now;
    report_say(net->report, "ignored %s on the bus of rank %u", what, net->env->rank);
}

bool net_identify(struct net *net, const struct incoming *in, uint32_t *rank)
{
    if (in->count < 2 || zmq_msg_size(&in->parts[0]) != NET_IDENTITY_BYTES)
        return false;
    const char *identity = zmq_msg_data((zmq_msg_t *)&in->parts[0]);
    uint64_t session;
    memcpy(&session, identity, sizeof(session));
    memcpy(rank, identity + sizeof(session), sizeof(*rank));
    if (session != net->session || *rank >= net->env->size || *rank == net->env->rank)
        return false;
    if (keys_sender_is(&net->keys, &in->parts[1], net->members[*rank].key))
        return true;
    net_unknown(net, "a message in the name of a rank whose key the sender does not have");
    return false;
}

/* ---- bus messages ---- */

static bool word_ready(struct net *net, uint32_t rank, struct message message)
{
    uint32_t edge = message.edge;
    const struct transfer *transfer = links_find(net->links, edge);
    if (net_reader_rank(net, edge) != net->env->rank || net_producer_rank(net, edge) != rank || !transfer ||
        transfer->leader == edge || message.count > net_slots(net, edge) - net->outstanding[edge] ||
        message.count > net->behind[edge])
        return false;
    net->outstanding[edge] += message.count;
    net->behind[edge] -= message.count;
    bus_post(net->bus, net->plan->ports[edge].actor.i, message);
    return true;
}

static bool word_free(struct net *net, uint32_t rank, struct message message)
{
    uint32_t edge = message.edge;
    if (net_producer_rank(net, edge) != net->env->rank || net_reader_rank(net, edge) != rank ||
        message.count > net->outstanding[edge])
        return false;
    net->outstanding[edge] -= message.count;
    bus_post(net->bus, net->plan->regsts[net->plan->ports[edge].regst.i].producer.i, message);
    return true;
}

static bool word_take(struct net *net, uint32_t rank, struct message message)
{
    if (message.edge >= net->plan->ports_count || !message.count || message.unused)
        return false;
    return message.kind == MESSAGE_READY  ? word_ready(net, rank, message)
           : message.kind == MESSAGE_FREE ? word_free(net, rank, message)
                                          : false;
}

/* `part`: the frame that they are in, the last. */
static void handle_words(struct net *net, uint32_t rank, uint32_t count, struct incoming *in, uint32_t part)
{
    if (in->count != part + 1 || zmq_msg_size(&in->parts[part]) != count * sizeof(uint64_t)) {
        net_lose(net, rank, "it broke the protocol: %u messages in a payload of another size", count);
        return;
    }
    const char *words = zmq_msg_data(&in->parts[part]);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t word;
        memcpy(&word, words + i * sizeof(word), sizeof(word));
        struct message message = message_unpack(word);
        if (!word_take(net, rank, message)) {
            net_lose(net, rank, "it broke the protocol: a message for edge %u, kind %u, count %u, which it may not send now",
                     message.edge, message.kind, message.count);
            return;
        }
    }
}

/* ---- register contents ---- */

/* Whether all readers have freed the slot that comes next, also those who have not been told of it. */
static bool slot_is_free(const struct net *net, uint32_t leader)
{
    for (uint32_t port = leader; port != LINKS_NONE; port = net->follower[port])
        if (net->outstanding[port] + net->behind[port] >= net->plan->regsts[net->plan->ports[port].regst.i].slots)
            return false;
    return true;
}

/* Why the frame cannot be; NULL: it can. */
static const char *data_wrong(const struct net *net, uint32_t rank, const struct wire_frame *frame,
                              const struct incoming *in)
{
    uint32_t edge = frame->data.edge;
    const struct transfer *transfer = edge < net->plan->ports_count ? links_find(net->links, edge) : NULL;
    if (!transfer || transfer->leader != edge || transfer->from != rank || transfer->to != net->env->rank)
        return "for an edge that does not lead from it";
    const plan_regst *regst = &net->plan->regsts[transfer->regst];
    if (frame->data.slot >= regst->slots)
        return "for a slot that is not there";
    if (frame->data.spans != transfer->spans.count || in->count != 2 + transfer->spans.count + (frame->data.words != 0))
        return "in another number of frames";
    for (uint32_t i = 0; i < transfer->spans.count; i++)
        if (zmq_msg_size(&in->parts[2 + i]) != net->links->spans[transfer->spans.first + i].bytes)
            return "in frames of other sizes";
    if (frame->data.initial)
        return frame->data.words                        ? "with messages"
               : net->hooks.sharing(net->hooks.ctx) ? NULL
                                                    : "when nothing is being shared";
    if (regst->producer.i == PLAN_NONE || !slot_is_free(net, edge))
        return "without credit";
    return frame->data.slot == transfer->next_slot ? NULL : "out of order";
}

/* A small frame lies where it happened to come to lie among others; what a kernel is given is aligned. */
static void frame_move(zmq_msg_t *to, zmq_msg_t *from)
{
    zmq_msg_t copy;
    if ((uintptr_t)zmq_msg_data(from) % ELEMENT_BYTES_MAX && !zmq_msg_init_size(&copy, zmq_msg_size(from))) {
        memcpy(zmq_msg_data(&copy), zmq_msg_data(from), zmq_msg_size(from));
        zmq_msg_move(to, &copy);
        zmq_msg_close(&copy);
    } else {
        zmq_msg_move(to, from);
    }
}

/* Puts the frames where the reader looks; those that were there go. */
static void data_keep(struct transfer *transfer, uint32_t slot, struct incoming *in)
{
    zmq_msg_t *frames = (zmq_msg_t *)transfer->frames + (size_t)slot * transfer->spans.count;
    char **data = transfer->data + (size_t)slot * transfer->spans.count;
    for (uint32_t i = 0; i < transfer->spans.count; i++) {
        frame_move(&frames[i], &in->parts[2 + i]);
        data[i] = zmq_msg_data(&frames[i]);
    }
}

static void handle_data(struct net *net, uint32_t rank, const struct wire_frame *frame, struct incoming *in)
{
    const char *wrong = data_wrong(net, rank, frame, in);
    if (wrong) {
        net_lose(net, rank, "it broke the protocol: DATA for edge %u, slot %u: %s", frame->data.edge, frame->data.slot,
                 wrong);
        return;
    }
    struct transfer *transfer = links_find(net->links, frame->data.edge);
    const plan_regst *regst = &net->plan->regsts[transfer->regst];
    data_keep(transfer, frame->data.slot, in);
    if (frame->data.initial)
        return;
    transfer->next_slot = transfer->next_slot + 1 == regst->slots ? 0 : transfer->next_slot + 1;
    net->outstanding[transfer->leader]++;
    for (uint32_t port = net->follower[transfer->leader]; port != LINKS_NONE; port = net->follower[port])
        net->behind[port]++;
    bus_post(net->bus, net->plan->ports[transfer->leader].actor.i,
             (struct message){.edge = transfer->leader, .kind = MESSAGE_READY, .count = 1});
    if (frame->data.words)
        handle_words(net, rank, frame->data.words, in, 2 + transfer->spans.count);
}

/* ---- the session's own frames ---- */

static void handle_beat(struct net *net, uint32_t rank, const struct wire_frame *frame)
{
    struct net_life *life = &net->peers[rank].life;
    pthread_mutex_lock(&net->lock);
    life->fired = frame->beat.fired;
    life->step = frame->beat.step;
    life->actor = frame->beat.actor;
    life->state = frame->beat.state;
    pthread_mutex_unlock(&net->lock);
}

static void handle_payload(struct net *net, uint32_t rank, const struct wire_frame *frame, struct incoming *in)
{
    void *data = in->count == 3 ? zmq_msg_data(&in->parts[2]) : NULL;
    size_t bytes = in->count == 3 ? zmq_msg_size(&in->parts[2]) : 0;
    if (!data || (frame->kind == WIRE_WAITS && bytes != frame->waits.count * (size_t)16))
        net_lose(net, rank, "it broke the protocol: %s with a payload that does not fit", wire_kind_name(frame->kind));
    else if (frame->kind == WIRE_WAITS)
        net->hooks.waits(net->hooks.ctx, rank, data, frame->waits.count);
    else if (!net->hooks.value(net->hooks.ctx, rank, frame->value.shard, frame->value.round, data, bytes))
        net_lose(net, rank, "it broke the protocol: VALUE of shard %u in round %llu, %zu bytes", frame->value.shard,
                 (unsigned long long)frame->value.round, bytes);
}

static void handle_kind(struct net *net, uint32_t rank, const struct wire_frame *frame, struct incoming *in)
{
    switch (frame->kind) {
    case WIRE_WORDS:
        handle_words(net, rank, frame->words.count, in, 2);
        break;
    case WIRE_DATA:
        handle_data(net, rank, frame, in);
        break;
    case WIRE_BEAT:
        handle_beat(net, rank, frame);
        break;
    case WIRE_FAIL:
        if (frame->fail.culprit >= net->env->size) {
            net_lose(net, rank, "it broke the protocol: a FAIL of rank %u", frame->fail.culprit);
            break;
        }
        net->hooks.failed(net->hooks.ctx, rank, frame->fail.culprit, frame->fail.text);
        break;
    case WIRE_BYE:
        peer_become(&net->peers[rank], PEER_LEFT);
        net->hooks.left(net->hooks.ctx, rank, frame->bye.steps);
        break;
    case WIRE_VALUE:
    case WIRE_WAITS:
        handle_payload(net, rank, frame, in);
        break;
    default:
        net_lose(net, rank, "it broke the protocol: a %s at this time", wire_kind_name(frame->kind));
    }
}

/* Whether the kind may have frames behind the header; how many is looked at by who takes them. */
static bool has_payload(const struct wire_frame *frame)
{
    return frame->kind == WIRE_WORDS || frame->kind == WIRE_DATA || frame->kind == WIRE_VALUE ||
           frame->kind == WIRE_WAITS;
}

/* Whether the header is the peer's next. */
static bool header_fits(struct net *net, uint32_t rank, struct incoming *in, struct wire_frame *frame)
{
    struct peer *peer = &net->peers[rank];
    if (in->count < 2 || wire_decode(zmq_msg_data(&in->parts[1]), zmq_msg_size(&in->parts[1]), frame)) {
        net_lose(net, rank, "it broke the protocol: %s", in->count < 2 ? "a message without a header" : weir_error());
        return false;
    }
    if (frame->session != net->session || frame->rank != rank || frame->number != peer->heard) {
        net_lose(net, rank, "it broke the protocol: frame %llu of rank %u came where its frame %llu was due",
                 (unsigned long long)frame->number, frame->rank, (unsigned long long)peer->heard);
        return false;
    }
    if (!has_payload(frame) && in->count != 2) {
        net_lose(net, rank, "it broke the protocol: %s with a payload", wire_kind_name(frame->kind));
        return false;
    }
    peer->heard++;
    return true;
}

void net_handle(struct net *net, struct incoming *in)
{
    uint32_t rank;
    struct wire_frame frame;
    if (!net_identify(net, in, &rank)) {
        net_unknown(net, "a message of an unknown peer");
        return;
    }
    struct peer *peer = &net->peers[rank];
    if (peer_is(peer, PEER_LOST) || peer_is(peer, PEER_LEFT) || !header_fits(net, rank, in, &frame))
        return;
    pthread_mutex_lock(&net->lock);
    peer->life.heard_ns = park_now_ns();
    pthread_mutex_unlock(&net->lock);
    if (frame.kind == WIRE_HELLO && frame.number == 0) {
        peer->hello = frame.hello.shm;
        peer_become(peer, PEER_HERE);
    } else if (frame.number == 0) {
        net_lose(net, rank, "it broke the protocol: its first frame is a %s", wire_kind_name(frame.kind));
    } else {
        handle_kind(net, rank, &frame, in);
    }
}
