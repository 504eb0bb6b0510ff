/* transport/net/channel.h: a way out to many peers: one ROUTER that only sends, and one monitor of all its connections.
 *
 *     channel_begin(rank) channel_part() ... channel_part(last) ---> ROUTER ===> the peers' bound ROUTERs
 *                                                                       '--- monitor: stood, ended ---> channel_ended()
 *
 * A DEALER per peer, each with a monitor, would take five descriptors a peer; this takes one, that of the connection.
 * The ROUTER is told the name of each connection before it is made, so it can be addressed at once: what is sent before
 * the connection stands waits in its queue. The bound ROUTER of the peer knows the sender by the routing id that all
 * connections of a channel give.
 *
 * A rank has two channels, so that what is small and urgent never waits behind what is large: CHANNEL_LIFE (beats,
 * failures, waits) and CHANNEL_BULK (register contents and what has to stay in order with them).
 *
 * Owner: who holds the network's sockets.
 */
#ifndef TRANSPORT_NET_CHANNEL_H
#define TRANSPORT_NET_CHANNEL_H

#include <stdbool.h>
#include <zmq.h>

#include "transport/meet/keys.h"
#include "transport/line/measure.h"

enum channel_number { CHANNEL_LIFE, CHANNEL_BULK, CHANNELS };

struct endpoint;

struct channel {
    void *socket, *monitor;
    const struct keys *keys;    /* borrowed */
    struct endpoint *endpoints; /* owned; in the order of their texts: events name no other */
    uint32_t endpoints_count;
    uint32_t ranks;
    char **address;             /* owned; by rank: where it is connected to; NULL: it is not */
    bool *stood;                /* owned; by rank: its connection has stood */
    struct watched *connection; /* owned; by rank: that connection, once it is made */
};

struct channel_opts {
    void *zmq;               /* the context */
    const struct keys *keys;
    enum channel_number number;
    uint32_t ranks;
    int frames_max;          /* that wait for one peer */
    const void *routing_id;  /* by which peers know who sends */
    size_t routing_id_bytes;
};

weir_status channel_open(struct channel *channel, const struct channel_opts *opts);
void channel_close(struct channel *channel); /* also a zeroed one */

/* The peer, whose public key this is, can be sent to after this. */
weir_status channel_connect(struct channel *channel, uint32_t rank, const char *endpoint, const char *key);

/* Ends the connection; what has not been sent is dropped. Nothing happens when there is none. */
void channel_drop(struct channel *channel, uint32_t rank);

/* The rank of which the connection, which stood, has ended since this was last asked; UINT32_MAX: none. One that breaks
 * off while it is made is made again. */
uint32_t channel_ended(struct channel *channel);

/* When bytes were last sent to the rank; 0: nothing is known. After channel_ended(). */
int64_t channel_sent_ns(const struct channel *channel, uint32_t rank, int64_t now);

/* A message is begun, then gets its parts, of which the last has more == false. False and errno: it cannot be sent
 * (EAGAIN: the peer's queue is full). When a part fails the message is ended as it is; the peer then finds it
 * malformed. Takes over the part in any case. */
bool channel_begin(struct channel *channel, uint32_t rank);
bool channel_part(struct channel *channel, zmq_msg_t *part, bool more);
bool channel_bytes(struct channel *channel, const void *bytes, size_t count, bool more);
void channel_abort(struct channel *channel);

#endif
