/* transport/net/outbox.c: see the header. */
#define _GNU_SOURCE
#include "transport/net/outbox.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "graph/base/error.h"

weir_status outbox_open(struct outbox *outbox)
{
    *outbox = (struct outbox){.event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    outbox->end = &outbox->first;
    pthread_mutex_init(&outbox->lock, NULL);
    return outbox->event_fd < 0 ? error_set(WEIR_E_MEMORY, "no descriptor for the network's thread") : WEIR_OK;
}

void outbox_close(struct outbox *outbox)
{
    for (struct request *next, *request = outbox->first; request; request = next) {
        next = request->next;
        request_free(request);
    }
    if (outbox->event_fd >= 0)
        close(outbox->event_fd);
    pthread_mutex_destroy(&outbox->lock);
}

void outbox_wake(struct outbox *outbox)
{
    uint64_t one = 1;
    if (write(outbox->event_fd, &one, sizeof(one)) < 0)
        return; /* full: it is set */
}

void outbox_add(struct outbox *outbox, struct request *request)
{
    pthread_mutex_lock(&outbox->lock);
    *outbox->end = request;
    outbox->end = &request->next;
    pthread_mutex_unlock(&outbox->lock);
    outbox_wake(outbox);
}

struct request *outbox_take(struct outbox *outbox)
{
    pthread_mutex_lock(&outbox->lock);
    struct request *list = outbox->first;
    outbox->first = NULL;
    outbox->end = &outbox->first;
    pthread_mutex_unlock(&outbox->lock);
    return list;
}

struct request *request_new(const struct wire_frame *frame, const void *payload, size_t bytes)
{
    struct request *request = calloc(1, sizeof(*request));
    if (request && payload && zmq_msg_init_size(&request->payload, bytes)) {
        free(request);
        request = NULL;
    }
    if (!request) {
        error_set(WEIR_E_MEMORY, "no memory to send %zu bytes", bytes);
        return NULL;
    }
    request->frame = *frame;
    request->has_payload = payload != NULL;
    if (payload)
        memcpy(zmq_msg_data(&request->payload), payload, bytes);
    return request;
}

void request_free(struct request *request)
{
    if (request->has_payload)
        zmq_msg_close(&request->payload);
    free(request);
}
