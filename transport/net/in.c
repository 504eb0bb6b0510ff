/* transport/net/in.c: frames that come from peers. Nothing in them is believed: each is held against what this peer may
 * say now, and the first that does not fit loses the peer. See net.h. */
#include <stdlib.h>
#include <string.h>

#include "graph/base/error.h"
#include "transport/net/inside.h"
#include "transport/mail/park.h"

#define NS_PER_S 1000000000
#define WAIT_BYTES 16 /* an entry of WAITS */

/* ---- taking them in ---- */

bool net_receive(struct net *net)
{
    bool broken, taken = inbox_take(&net->inbox, &broken);
    if (broken)
        net_unknown(net, "a message for which there is no memory");
    return taken;
}

/* ---- who ---- */

void net_unknown(struct net *net, const char *what)
{
    int64_t now = park_now_ns();
    if (net->inbox.unknown_ns && now - net->inbox.unknown_ns < NS_PER_S)
        return;
    net->inbox.unknown_ns = now;
    report_say(net->report, "ignored %s on the bus of rank %u", what, net->env->rank);
}

bool net_identify(struct net *net, const struct incoming *in, uint32_t *rank, enum channel_number *number)
{
    if (in->count < 2 || zmq_msg_size(&in->parts[0]) != NET_ROUTING_ID_BYTES)
        return false;
    const char *id = zmq_msg_data((zmq_msg_t *)&in->parts[0]);
    uint64_t session;
    memcpy(&session, id, sizeof(session));
    memcpy(rank, id + sizeof(session), sizeof(*rank));
    *number = (enum channel_number)(unsigned char)id[NET_ROUTING_ID_BYTES - 1];
    if (session != net->session || *rank >= net->env->size || *rank == net->env->rank || *number >= CHANNELS)
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
    const struct transfer *transfer = links_find(net->route.links, edge);
    if (net_reader_rank(net, edge) != net->env->rank || net_producer_rank(net, edge) != rank || !transfer ||
        transfer->leader == edge || message.count > net_slots(net, edge) - net->route.outstanding[edge] ||
        message.count > net->route.behind[edge])
        return false;
    net->route.outstanding[edge] += message.count;
    net->route.passed[edge] += message.count;
    net->route.behind[edge] -= message.count;
    bus_post(net->route.bus, net->plan->ports[edge].actor.i, message);
    return true;
}

static bool word_free(struct net *net, uint32_t rank, struct message message)
{
    uint32_t edge = message.edge;
    if (net_producer_rank(net, edge) != net->env->rank || net_reader_rank(net, edge) != rank ||
        message.count > net->route.outstanding[edge])
        return false;
    net->route.outstanding[edge] -= message.count;
    net->route.passed[edge] += message.count;
    bus_post(net->route.bus, net->plan->regsts[net->plan->ports[edge].regst.i].producer.i, message);
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

void net_words(struct net *net, uint32_t rank, const unsigned char *words, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t word;
        memcpy(&word, words + i * sizeof(word), sizeof(word));
        struct message message = message_unpack(word);
        if (!word_take(net, rank, message)) {
            peer_lose(&net->peers, rank, "it broke the protocol: a message for edge %u, kind %u, count %u, which it may not "
                     "send now", message.edge, message.kind, message.count);
            return;
        }
    }
}

/* ---- register contents ---- */

/* Whether all readers have freed the slot that comes next, also those who have not been told of it. */
static bool slot_is_free(const struct net *net, uint32_t leader)
{
    for (uint32_t port = leader; port != LINKS_NONE; port = net->route.follower[port])
        if (net->route.outstanding[port] + net->route.behind[port] >= net_slots(net, port))
            return false;
    return true;
}

/* Each slot that a register starts with comes once while it is shared, the oldest first. */
static const char *initial_wrong(struct net *net, struct transfer *transfer, const struct bulk_head *head)
{
    const plan_regst *regst = &net->plan->regsts[transfer->regst];
    uint32_t time = net->hooks.sharing(net->hooks.ctx);
    if (!time)
        return "when nothing is being shared";
    if (transfer->shared_time != time)
        transfer->shared_count = 0;
    transfer->shared_time = time;
    if (transfer->shared_count == regst->initial)
        return "which does not start full, or came already";
    uint32_t oldest = (transfer->next_slot + regst->slots - regst->initial % regst->slots) % regst->slots;
    return head->slot == (oldest + transfer->shared_count) % regst->slots ? NULL : "out of order";
}

/* Why the slot cannot be; NULL: it can. */
static const char *slot_wrong(struct net *net, uint32_t rank, const struct bulk_head *head)
{
    uint32_t edge = head->edge;
    struct transfer *transfer = edge < net->plan->ports_count ? links_find(net->route.links, edge) : NULL;
    if (!transfer || transfer->leader != edge || transfer->from != rank || transfer->to != net->env->rank)
        return "for an edge that does not lead from it";
    if (head->slot >= net->plan->regsts[transfer->regst].slots)
        return "for a slot that is not there";
    if (head->bytes != transfer->bytes || head->shape != transfer->shape)
        return "in parts of other sizes";
    if (head->initial)
        return initial_wrong(net, transfer, head);
    if (!plan_port_counts(net->plan, &net->plan->ports[edge]) || !slot_is_free(net, edge))
        return "without credit";
    return head->slot == transfer->next_slot ? NULL : "out of order";
}

struct transfer *net_slot_due(struct net *net, uint32_t rank, const struct bulk_head *head)
{
    const char *wrong = slot_wrong(net, rank, head);
    if (!wrong)
        return links_find(net->route.links, head->edge);
    peer_lose(&net->peers, rank, "it broke the protocol: SLOT %u of edge %u: %s", head->slot, head->edge, wrong);
    return NULL;
}

void net_slot_came(struct net *net, struct transfer *transfer, bool initial)
{
    if (initial) {
        transfer->shared_count++;
        return;
    }
    uint32_t slots = net->plan->regsts[transfer->regst].slots;
    transfer->next_slot = transfer->next_slot + 1 == slots ? 0 : transfer->next_slot + 1;
    net->route.outstanding[transfer->leader]++;
    net->route.passed[transfer->leader]++;
    for (uint32_t port = net->route.follower[transfer->leader]; port != LINKS_NONE; port = net->route.follower[port])
        net->route.behind[port]++;
    bus_post(net->route.bus, net->plan->ports[transfer->leader].actor.i,
             (struct message){.edge = transfer->leader, .kind = MESSAGE_READY, .count = 1});
}

/* ---- the session's own frames ---- */

static void handle_beat(struct net *net, uint32_t rank, const struct wire_frame *frame)
{
    struct net_life *life = &net->peers.of[rank].life;
    pthread_mutex_lock(&net->peers.lock);
    life->fired = frame->beat.fired;
    life->state = frame->beat.state;
    if (frame->beat.actor != UINT32_MAX) { /* the sender may not see what it fires just now */
        life->step = frame->beat.step;
        life->actor = frame->beat.actor;
    }
    pthread_mutex_unlock(&net->peers.lock);
}

/* A rank speaks for itself; rank 0 passes on what others said. */
static bool waits_fit(const struct net *net, uint32_t rank, uint32_t whose)
{
    return whose == rank || (rank == 0 && whose < net->env->size);
}

static void handle_payload(struct net *net, uint32_t rank, const struct wire_frame *frame,
                           const struct net_bytes *payload)
{
    const void *data = payload->data;
    size_t bytes = payload->count;
    if (!data && frame->kind == WIRE_VALUE && net->peers.of[rank].bulk)
        data = ""; /* over a line nothing tells an empty payload from none */
    if (!data || (frame->kind == WIRE_WAITS && (bytes != frame->waits.count * (size_t)WAIT_BYTES ||
                                               !waits_fit(net, rank, frame->waits.rank))))
        peer_lose(&net->peers, rank, "it broke the protocol: %s with a payload that does not fit", wire_kind_name(frame->kind));
    else if (frame->kind == WIRE_WAITS)
        net->hooks.waits(net->hooks.ctx, frame->waits.rank, data, frame->waits.count);
    else if (!net->hooks.value(net->hooks.ctx, rank, frame->value.shard, frame->value.round, data, bytes))
        peer_lose(&net->peers, rank, "it broke the protocol: VALUE of shard %u in round %llu, %zu bytes", frame->value.shard,
                 (unsigned long long)frame->value.round, bytes);
}

static void handle_fail(struct net *net, uint32_t rank, const struct wire_frame *frame)
{
    struct peer *peer = &net->peers.of[rank];
    bool again = peer->failed;
    peer->failed = net->clock.told_failed = true;
    if (again)
        peer_lose(&net->peers, rank, "it broke the protocol: a second FAIL");
    else if (frame->fail.culprit >= net->env->size || frame->fail.from >= net->env->size)
        peer_lose(&net->peers, rank, "it broke the protocol: a FAIL of rank %u, about rank %u", frame->fail.from,
                 frame->fail.culprit);
    else
        net->hooks.failed(net->hooks.ctx, frame->fail.from, frame->fail.culprit, frame->fail.text);
}

/* An edge between here and the peer on the wire, of which fewer slots have passed than so many steps make ready or
 * free; LINKS_NONE: there is none. A rank that has done its steps has sent all of that before the BYE. With several programs
 * it does not say which it has run how often: then it is believed. */
static uint32_t edge_short_of(const struct net *net, uint32_t rank, int64_t steps)
{
    const weir_plan *plan = net->plan;
    for (uint32_t edge = 0; edge < plan->ports_count && plan->programs_count == 1; edge++) {
        if (net->route.first[edge] != edge || !net_edge_with(net, edge, rank))
            continue;
        uint64_t each = plan->actors[plan->ports[edge].actor.i].fires / plan->ports[edge].hold;
        if (each && net->route.passed[edge] / each < (uint64_t)steps)
            return edge;
    }
    return LINKS_NONE;
}

/* A message over shared memory is not seen here: there a rank that says too much is believed. */
static void handle_bye(struct net *net, uint32_t rank, int64_t steps)
{
    uint32_t edge = steps >= 0 && net->peers.of[rank].wired ? edge_short_of(net, rank, steps) : LINKS_NONE;
    if (steps < 0)
        peer_lose(&net->peers, rank, "it broke the protocol: a BYE after %lld steps", (long long)steps);
    else if (edge != LINKS_NONE)
        peer_lose(&net->peers, rank, "it broke the protocol: a BYE after %lld steps, but edge %u has passed %llu slots",
                 (long long)steps, edge, (unsigned long long)net->route.passed[edge]);
    else {
        peer_happens(&net->peers, rank, PEER_SAYS_BYE, 0);
        if (net->peers.of[rank].neighbour) /* of others it only says that no value follows */
            net->hooks.left(net->hooks.ctx, rank, steps);
        net_last_word(net, rank, 0);
    }
}

/* The peer has read this rank's BYE, and all that came before it. */
static void handle_answer(struct net *net, uint32_t rank)
{
    if (net->peers.of[rank].word_said)
        peer_happens(&net->peers, rank, PEER_ANSWERS_BYE, 0);
    else
        peer_lose(&net->peers, rank, "it broke the protocol: an answer to a BYE that it was not sent");
}

static void handle_kind(struct net *net, uint32_t rank, const struct wire_frame *frame, const struct net_bytes *payload)
{
    switch (frame->kind) {
    case WIRE_BEAT:
        handle_beat(net, rank, frame);
        break;
    case WIRE_FAIL:
        handle_fail(net, rank, frame);
        break;
    case WIRE_BYE:
        if (frame->bye.answer)
            handle_answer(net, rank);
        else
            handle_bye(net, rank, frame->bye.steps);
        break;
    case WIRE_HOLD:
        if (!net->hooks.hold(net->hooks.ctx, rank, frame))
            peer_lose(&net->peers, rank, "it broke the protocol: a HOLD %u of run %llu, step %lld", frame->hold.what,
                     (unsigned long long)frame->hold.run, (long long)frame->hold.step);
        break;
    case WIRE_END:
        net->clock.told_failed |= frame->end.what == WIRE_CANCELLED;
        if (!net->hooks.end(net->hooks.ctx, frame))
            peer_lose(&net->peers, rank, "it broke the protocol: an END of rank %u, about rank %u, before step %lld",
                     frame->end.from, frame->end.culprit, (long long)frame->end.step);
        break;
    case WIRE_VALUE:
    case WIRE_WAITS:
        handle_payload(net, rank, frame, payload);
        break;
    default:
        peer_lose(&net->peers, rank, "it broke the protocol: a %s at this time", wire_kind_name(frame->kind));
    }
}

/* Whether the header is the peer's next on this channel. */
static bool header_fits(struct net *net, uint32_t rank, enum channel_number number, const struct net_bytes *header,
                        const struct net_bytes *payload, struct wire_frame *frame)
{
    struct peer_line *line = &net->peers.of[rank].line[number];
    if (wire_decode(header->data, header->count, frame)) {
        peer_lose(&net->peers, rank, "it broke the protocol: %s", weir_error());
        return false;
    }
    if (frame->session != net->session || frame->rank != rank || frame->number != line->heard) {
        peer_lose(&net->peers, rank, "it broke the protocol: frame %llu of rank %u came where its frame %llu was due",
                 (unsigned long long)frame->number, frame->rank, (unsigned long long)line->heard);
        return false;
    }
    if (payload->data && frame->kind != WIRE_VALUE && frame->kind != WIRE_WAITS) {
        peer_lose(&net->peers, rank, "it broke the protocol: %s with a payload", wire_kind_name(frame->kind));
        return false;
    }
    line->heard++;
    return true;
}

/* The first frame on a channel. That for signs of life is for neighbours. */
static void handle_first(struct net *net, uint32_t rank, enum channel_number number, const struct wire_frame *frame)
{
    struct peer *peer = &net->peers.of[rank];
    if (frame->kind != WIRE_HELLO) {
        peer_lose(&net->peers, rank, "it broke the protocol: its first frame is a %s", wire_kind_name(frame->kind));
        return;
    }
    if (number != CHANNEL_LIFE)
        return;
    peer->hello = frame->hello.shm;
    peer->door_port = frame->hello.port;
    peer->door_name = frame->hello.name;
    memcpy(peer->secret, frame->hello.secret, sizeof(peer->secret));
    if (peer->neighbour)
        peer_happens(&net->peers, rank, PEER_SAYS_HELLO, 0);
    else
        peer_lose(&net->peers, rank, "it broke the protocol: a connection for signs of life, though it is no neighbour");
}

/* Which kinds come on which channel: what is small on one, what has to keep its order with register contents on the
 * other, where there is one. From a rank that is no neighbour come only values, and BYE. */
static bool channel_fits(const struct peer *peer, enum channel_number number, uint32_t kind)
{
    if (kind == WIRE_VALUE || kind == WIRE_BYE)
        return peer->neighbour || number == CHANNEL_BULK;
    if (kind == WIRE_HOLD || kind == WIRE_END)
        return peer->neighbour;
    return peer->neighbour && number == CHANNEL_LIFE;
}

/* Whose sign of life the frame is, so that it counts against that rank's rate: rank 0 passes on WAITS of all. */
static struct peer *sign_of(struct net *net, uint32_t rank, const struct wire_frame *frame)
{
    bool passed_on = frame->kind == WIRE_WAITS && waits_fit(net, rank, frame->waits.rank);
    return &net->peers.of[passed_on ? frame->waits.rank : rank];
}

void net_frame(struct net *net, uint32_t rank, enum channel_number number, const struct net_bytes *header,
               const struct net_bytes *payload)
{
    struct wire_frame frame;
    struct peer *peer = &net->peers.of[rank];
    if (!peer_is_open(peer) || !header_fits(net, rank, number, header, payload, &frame))
        return;
    int64_t now = peer->line[number].heard_ns = park_now_ns();
    atomic_store_explicit(&peer->heard_ns, now, memory_order_relaxed);
    if ((frame.kind == WIRE_BEAT || frame.kind == WIRE_WAITS) && !peer_may_sign(sign_of(net, rank, &frame), now))
        peer_lose(&net->peers, rank, "it broke the protocol: more BEATs than %d a second", PEER_SIGNS_PER_S);
    else if (frame.number == 0) {
        handle_first(net, rank, number, &frame);
        explicit_bzero(&frame, sizeof(frame)); /* a secret is in it */
    } else if (channel_fits(peer, number, frame.kind))
        handle_kind(net, rank, &frame, payload);
    else
        peer_lose(&net->peers, rank, "it broke the protocol: a %s on this connection", wire_kind_name(frame.kind));
}

static struct net_bytes bytes_of(const struct incoming *in, uint32_t part)
{
    if (in->count <= part)
        return (struct net_bytes){NULL, 0};
    return (struct net_bytes){zmq_msg_data((zmq_msg_t *)&in->parts[part]), zmq_msg_size(&in->parts[part])};
}

/* With a peer on the wire that which ZeroMQ would carry as bulk has a connection of its own. */
void net_handle(struct net *net, struct incoming *in)
{
    uint32_t rank;
    enum channel_number number;
    if (!net_identify(net, in, &rank, &number)) {
        net_unknown(net, "a message of an unknown peer");
        return;
    }
    struct peer *peer = &net->peers.of[rank];
    bool first = !peer->line[number].heard;
    if (first)
        watch_connection(&peer->line[number].incoming, zmq_msg_get(&in->parts[1], ZMQ_SRCFD));
    const struct net_bytes header = bytes_of(in, 1), payload = bytes_of(in, 2);
    if (in->longer)
        peer_lose(&net->peers, rank, "it broke the protocol: a message of more than %d frames", INCOMING_PARTS_MAX);
    else if (number == CHANNEL_BULK && peer->wired)
        peer_lose(&net->peers, rank, "it broke the protocol: a second connection for register contents");
    else
        net_frame(net, rank, number, &header, &payload);
    if (first)
        explicit_bzero(zmq_msg_data(&in->parts[1]), header.count); /* the same */
}
