/* transport/net/inbox.h: the one way in: the ROUTER at which this rank listens, the message that is being looked at,
 * and those that came before they could be.
 *
 * A bound socket takes connections from anybody, so what comes in carries a name. Owner: who holds the network's
 * sockets.
 */
#ifndef TRANSPORT_NET_INBOX_H
#define TRANSPORT_NET_INBOX_H

#include <stdbool.h>
#include <zmq.h>

#include "transport/line/wire.h"

#define INCOMING_PARTS_MAX 3 /* of a message: who, header, payload */

/* A message of several frames, as it came. */
struct incoming {
    zmq_msg_t *parts; /* owned; INCOMING_PARTS_MAX of them, or NULL: none has come yet */
    uint32_t count;
    bool longer;      /* it had more */
};

struct inbox {
    void *router;
    struct incoming incoming;
    struct incoming *deferred; /* owned; came before they can be handled */
    uint32_t deferred_count, deferred_room;
    int64_t unknown_ns;        /* when an unknown peer was last reported */
};

void incoming_clear(struct incoming *in);

/* One message, if there is one, into inbox->incoming. *broken: there is no memory for it; it is gone. */
bool inbox_take(struct inbox *inbox, bool *broken);

/* Keeps the message for later. E_PEER when there are `most` of them. */
weir_status inbox_defer(struct inbox *inbox, uint64_t most);

void inbox_close(struct inbox *inbox);

#endif
