/* transport/net/outbox.h: frames that other threads want sent, in the order in which they asked.
 *
 *     any thread --- outbox_add() ---> list ---> the net thread takes all at once and sends them
 *
 * A request owns its payload as a ZeroMQ message, so that one that goes to many is copied once. Any thread may add; its
 * lock is held for a few instructions. The thread that takes, and sends, holds the network's sockets.
 */
#ifndef TRANSPORT_NET_OUTBOX_H
#define TRANSPORT_NET_OUTBOX_H

#include <pthread.h>
#include <zmq.h>

#include "transport/line/links.h"
#include "transport/line/wire.h"

struct request {
    struct request *next;
    uint32_t to;                     /* a rank, or NET_ALL, NET_NEIGHBOURS */
    struct wire_frame frame;
    const struct transfer *transfer; /* not NULL: a slot of it, as it is then, instead of a frame */
    uint32_t slot;
    bool has_payload;
    zmq_msg_t payload;
};

struct outbox {
    pthread_mutex_t lock;
    struct request *first, **end;
    int event_fd; /* wakes who takes; owned */
};

weir_status outbox_open(struct outbox *outbox);
void outbox_close(struct outbox *outbox);

/* Takes over the request. */
void outbox_add(struct outbox *outbox, struct request *request);
void outbox_wake(struct outbox *outbox);

/* All that is there; NULL: nothing. */
struct request *outbox_take(struct outbox *outbox);

/* With a copy of the payload; NULL bytes: none. NULL and E_MEMORY. */
struct request *request_new(const struct wire_frame *frame, const void *payload, size_t bytes);
void request_free(struct request *request);

#endif
