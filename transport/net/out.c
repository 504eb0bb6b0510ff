/* transport/net/out.c: frames that go to peers. See net.h. A profiler's signal may end any call of ZeroMQ's before it
 * has done something (EINTR); it is then made again. */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "transport/net/inside.h"

/* A frame cannot be sent: the peer takes nothing any more. The bound on what is under way is below the high-water mark,
 * so a peer that keeps the protocol never brings it here. */
static void send_failed(struct net *net, uint32_t rank)
{
    net_lose(net, rank, errno == EAGAIN ? "it does not take what is sent to it" : "it cannot be reached: %s",
             zmq_strerror(errno));
}

static bool part_send(void *dealer, zmq_msg_t *part, bool more)
{
    if (TEMP_FAILURE_RETRY(zmq_msg_send(part, dealer, ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0))) >= 0)
        return true;
    int error = errno;
    zmq_msg_close(part);
    errno = error;
    return false;
}

static bool bytes_send(void *dealer, const void *bytes, size_t count, bool more)
{
    zmq_msg_t part;
    if (zmq_msg_init_size(&part, count))
        return false;
    if (count)
        memcpy(zmq_msg_data(&part), bytes, count);
    return part_send(dealer, &part, more);
}

static bool header_send(struct net *net, struct peer *peer, struct wire_frame *frame, bool more)
{
    unsigned char bytes[WIRE_HEADER_MAX];
    frame->version = WIRE_VERSION;
    frame->session = net->session;
    frame->rank = net->env->rank;
    frame->number = peer->sent++;
    return bytes_send(peer->dealer, bytes, wire_encode(frame, bytes), more);
}

void net_send(struct net *net, uint32_t rank, struct wire_frame *frame, const void *payload, size_t payload_bytes)
{
    struct peer *peer = net_peer(net, rank);
    bool has_payload = frame->kind == WIRE_WORDS || frame->kind == WIRE_VALUE || frame->kind == WIRE_WAITS;
    if (!peer || !peer_is(peer, PEER_HERE))
        return;
    if (!header_send(net, peer, frame, has_payload) ||
        (has_payload && !bytes_send(peer->dealer, payload, payload_bytes, false)))
        send_failed(net, rank);
}

/* ---- register contents ---- */

static const char *slot_address(const struct net *net, const struct transfer *transfer, uint32_t slot)
{
    const plan_regst *regst = &net->plan->regsts[transfer->regst];
    return net->arenas[regst->space.i].base + regst->offset + slot * regst->slot_bytes;
}

/* A direct span's frame refers to the slot; a packed one's is a copy. */
static bool span_send(struct net *net, struct peer *peer, const struct transfer *transfer, uint32_t number, uint32_t slot,
                      bool more)
{
    const struct span *span = &net->links->spans[transfer->spans.first + number];
    const char *from = slot_address(net, transfer, slot);
    zmq_msg_t part;
    /* without a function to free them, ZeroMQ refers to the bytes and allocates nothing */
    int rc = span->direct ? zmq_msg_init_data(&part, (void *)(from + span->slot_offset), span->bytes, NULL, NULL)
                          : zmq_msg_init_size(&part, span->bytes);
    if (rc)
        return false;
    if (!span->direct)
        links_pack(net->links, net->plan, span, from, zmq_msg_data(&part));
    return part_send(peer->dealer, &part, more);
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
    bool sent = header_send(net, peer, &frame, transfer->spans.count || word_count);
    for (uint32_t i = 0; sent && i < transfer->spans.count; i++)
        sent = span_send(net, peer, transfer, i, slot, word_count || i + 1 < transfer->spans.count);
    if (sent && word_count)
        sent = bytes_send(peer->dealer, peer->words, word_count * sizeof(uint64_t), false);
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
    for (uint32_t i = 0; i < net->data_count; i++) {
        const struct outgoing_data *data = &net->data[i];
        bool last = --net->peers[data->transfer->to].data_count == 0;
        data_send(net, data->transfer, data->slot, false, last);
    }
    net->data_count = 0;
}

/* ---- bus messages ---- */

static void words_send(struct net *net, uint32_t rank)
{
    struct peer *peer = &net->peers[rank];
    struct wire_frame frame = {.kind = WIRE_WORDS, .words.count = peer->words_count};
    size_t bytes = peer->words_count * sizeof(uint64_t);
    peer->words_count = 0;
    net_send(net, rank, &frame, peer->words, bytes);
}

static void word_add(struct net *net, uint32_t rank, struct message message)
{
    struct peer *peer = &net->peers[rank];
    peer->words[peer->words_count++] = message_pack(message);
    if (peer->words_count == NET_WORDS_MAX)
        data_flush(net);
    if (peer->words_count == NET_WORDS_MAX)
        words_send(net, rank);
}

void net_flush(struct net *net)
{
    data_flush(net);
    for (uint32_t r = 0; r < net->env->size; r++)
        if (net->peers[r].words_count)
            words_send(net, r);
}

/* The transfer's one reader has let go of `count` slots: the memory of what came in them may be used for what comes next,
 * while it is still in the cache. */
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
    struct transfer *transfer = links_find(net->links, edge);
    bool carries = ready && transfer && transfer->leader == edge;
    if (ready)
        net->outstanding[edge] += message.count;
    else
        net->outstanding[edge] -= message.count;
    if (!ready && transfer && transfer->readers == 1)
        frames_drop(net, transfer, message.count);
    assert(net->outstanding[edge] <= net_slots(net, edge));
    if (!carries) {
        word_add(net, rank, message);
        return;
    }
    uint32_t slots = net->plan->regsts[transfer->regst].slots;
    for (uint32_t i = 0; i < message.count; i++) {
        net->data[net->data_count++] = (struct outgoing_data){transfer, transfer->next_slot};
        net->peers[rank].data_count++;
        transfer->next_slot = transfer->next_slot + 1 == slots ? 0 : transfer->next_slot + 1;
    }
}

/* ---- what workers post ---- */

bool net_take_messages(struct net *net)
{
    struct message message;
    bool any = false;
    while (mailbox_take(&net->mailbox, &message)) {
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
    struct net *net = (struct net *)((char *)end - offsetof(struct net, mailbox));
    if (pthread_mutex_trylock(&net->sockets)) {
        mailbox_call(&net->mailbox);
        return;
    }
    net_take_messages(net);
    pthread_mutex_unlock(&net->sockets);
}

void net_end_open(struct net *net)
{
    net->mailbox.end = (struct bus_end){.post = end_post, .flush = end_flush};
}
