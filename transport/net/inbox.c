/* transport/net/inbox.c: see the header. */
#define _GNU_SOURCE
#include "transport/net/inbox.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "graph/base/error.h"

void incoming_clear(struct incoming *in)
{
    for (uint32_t i = 0; i < in->count; i++)
        zmq_msg_close(&in->parts[i]);
    in->count = 0;
    in->longer = false;
}

bool inbox_take(struct inbox *inbox, bool *broken)
{
    struct incoming *in = &inbox->incoming;
    bool more = true;
    incoming_clear(in);
    if (!in->parts)
        in->parts = calloc(INCOMING_PARTS_MAX, sizeof(*in->parts));
    *broken = false;
    while (more) {
        zmq_msg_t part;
        zmq_msg_init(&part);
        if (TEMP_FAILURE_RETRY(zmq_msg_recv(&part, inbox->router, ZMQ_DONTWAIT)) < 0) { /* EINTR: see channel.c */
            zmq_msg_close(&part);
            return false; /* only before the first: a message comes whole */
        }
        more = zmq_msg_more(&part);
        *broken = !in->parts;
        in->longer = in->count == INCOMING_PARTS_MAX;
        if (!*broken && !in->longer) {
            zmq_msg_init(&in->parts[in->count]);
            zmq_msg_move(&in->parts[in->count++], &part);
        }
        zmq_msg_close(&part);
    }
    return true;
}

weir_status inbox_defer(struct inbox *inbox, uint64_t most)
{
    if (inbox->deferred_count >= most)
        return error_set(WEIR_E_PEER, "more frames came early than can be under way");
    if (inbox->deferred_count == inbox->deferred_room) {
        uint32_t room = inbox->deferred_room ? 2 * inbox->deferred_room : 16;
        struct incoming *grown = realloc(inbox->deferred, room * sizeof(*grown));
        if (!grown)
            return error_set(WEIR_E_MEMORY, "no memory for frames that came early");
        inbox->deferred = grown;
        inbox->deferred_room = room;
    }
    inbox->deferred[inbox->deferred_count++] = inbox->incoming;
    inbox->incoming = (struct incoming){0};
    return WEIR_OK;
}

void inbox_close(struct inbox *inbox)
{
    for (uint32_t i = 0; i < inbox->deferred_count; i++) {
        incoming_clear(&inbox->deferred[i]);
        free(inbox->deferred[i].parts);
    }
    incoming_clear(&inbox->incoming);
    free(inbox->incoming.parts);
    free(inbox->deferred);
}
