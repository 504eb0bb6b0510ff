/* transport/net/net.c: the network's thread: its loop, its time, its end; and what other threads ask of it. See net.h. */
#define _GNU_SOURCE
#include "transport/net/net.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "graph/base/error.h"
#include "graph/plan/spread.h"
#include "transport/net/inside.h"
#include "transport/mail/park.h"

#define NS_PER_MS 1000000
#define BEATS_PER_LIMIT 20    /* a peer may have been silent for so much of the limit before it stops */
#define FRAMES_PER_TURN 64    /* taken in before the loop looks elsewhere */
#define ENDING_MS 20          /* between two looks while somebody leaves */
#define WATCHED_MS 5           /* between two looks at a ROUTER that a worker watches */
#define LINGER_EXTRA_MS 1000   /* beyond the liveness limit, for what was sent last to get away */
#define LINGER_FAILED_MS 500  /* the same when the session failed */

enum { STOP_NOW = 1, STOP_PARTED }; /* net->stop */

void peer_become(struct peer *peer, enum peer_state state)
{
    /* release: pairs with the load in peer_is() */
    atomic_store_explicit(&peer->state, state, memory_order_release);
}

void net_lose(struct net *net, uint32_t rank, const char *format, ...)
{
    char how[768];
    va_list list;
    struct peer *peer = &net->peers[rank];
    if (!peer_is(peer, PEER_HERE) && !peer_is(peer, PEER_ABSENT))
        return;
    va_start(list, format);
    vsnprintf(how, sizeof(how), format, list);
    va_end(list);
    peer_become(peer, PEER_LOST);
    net->hooks.lost(net->hooks.ctx, rank, how);
}

/* ---- requests of other threads ---- */

static void event_set(int event_fd)
{
    uint64_t one = 1;
    if (write(event_fd, &one, sizeof(one)) < 0)
        return; /* full: it is set */
}

static void net_wake(struct net *net)
{
    event_set(net->event_fd);
}

static weir_status request_add(struct net *net, struct request *request)
{
    pthread_mutex_lock(&net->lock);
    *net->requests_end = request;
    net->requests_end = &request->next;
    pthread_mutex_unlock(&net->lock);
    net_wake(net);
    return WEIR_OK;
}

weir_status net_request(struct net *net, uint32_t rank, const struct wire_frame *frame, const void *payload,
                     size_t payload_bytes)
{
    struct request *request = malloc(sizeof(*request) + payload_bytes);
    if (!request)
        return error_set(WEIR_E_MEMORY, "no memory to send %zu bytes", payload_bytes);
    *request = (struct request){.rank = rank, .frame = *frame, .payload_bytes = payload_bytes};
    if (payload_bytes)
        memcpy(request->payload, payload, payload_bytes);
    return request_add(net, request);
}

weir_status net_share(struct net *net, const struct transfer *transfer, uint32_t slot)
{
    struct request *request = calloc(1, sizeof(*request));
    if (!request)
        return error_set(WEIR_E_MEMORY, "no memory to send a slot");
    request->rank = transfer->to;
    request->transfer = transfer;
    request->frame.data.slot = slot;
    return request_add(net, request);
}

static void request_send(struct net *net, struct request *request)
{
    if (request->transfer)
        net_send_transfer(net, request->transfer, request->frame.data.slot, true);
    for (uint32_t r = 0; !request->transfer && r < net->env->size; r++)
        if (request->rank == NET_ALL || request->rank == r)
            net_send(net, r, &request->frame, request->payload, request->payload_bytes);
}

/* Takes all that is to be told now. */
static struct request *requests_take(struct net *net)
{
    pthread_mutex_lock(&net->lock);
    struct request *list = net->requests;
    net->requests = NULL;
    net->requests_end = &net->requests;
    pthread_mutex_unlock(&net->lock);
    return list;
}

static void requests_send(struct net *net, struct request *list)
{
    for (struct request *next; list; list = next) {
        next = list->next;
        request_send(net, list);
        free(list);
    }
}

struct net_life net_life_of(struct net *net, uint32_t rank)
{
    pthread_mutex_lock(&net->lock);
    struct net_life life = net->peers[rank].life;
    pthread_mutex_unlock(&net->lock);
    return life;
}

bool net_here(struct net *net, uint32_t rank)
{
    return peer_is(&net->peers[rank], PEER_HERE);
}

/* ---- the loop ---- */

static void beats_send(struct net *net)
{
    struct wire_frame frame = {.kind = WIRE_BEAT};
    net->hooks.beat(net->hooks.ctx, &frame);
    for (uint32_t r = 0; r < net->env->size; r++)
        net_send(net, r, &frame, NULL, 0);
}

/* A peer whose connection has ended may have said BYE on another one that is slower. */
static void peers_ended(struct net *net, int64_t now)
{
    for (uint32_t r = 0; r < net->env->size; r++) {
        struct peer *peer = &net->peers[r];
        if (peer_ended(peer) && !peer->ended_ns)
            peer->ended_ns = now;
        if (peer->ended_ns && now - peer->ended_ns > NET_LEAVE_NS && peer_is(peer, PEER_HERE))
            net_lose(net, r, "its connection ended");
    }
}

static void peers_silent(struct net *net, int64_t now)
{
    for (uint32_t r = 0; r < net->env->size; r++) {
        if (!peer_is(&net->peers[r], PEER_HERE))
            continue;
        int64_t silent_ns = now - net_life_of(net, r).heard_ns;
        if (silent_ns > net->env->liveness_ns)
            net_lose(net, r, "nothing was heard from it for %.1f s", (double)silent_ns * 1e-9);
    }
}

/* This process, or its machine, stood still: what the peers sent meanwhile has to be read first. */
static void peers_forgive(struct net *net, int64_t now)
{
    pthread_mutex_lock(&net->lock);
    for (uint32_t r = 0; r < net->env->size; r++)
        net->peers[r].life.heard_ns = now;
    pthread_mutex_unlock(&net->lock);
}

static void net_time(struct net *net)
{
    int64_t now = park_now_ns();
    if (net->looked_ns && now - net->looked_ns > net->env->liveness_ns / 2)
        peers_forgive(net, now);
    net->looked_ns = now;
    peers_ended(net, now);
    if (now < net->next_beat_ns)
        return;
    net->next_beat_ns = now + net->beat_ns;
    beats_send(net);
    peers_silent(net, now);
}

static bool frames_take(struct net *net)
{
    int count = 0;
    while (count < FRAMES_PER_TURN && net_receive(net)) {
        net_handle(net, &net->incoming);
        count++;
    }
    return count > 0;
}

/* What was written to wake somebody up is read. */
static void event_clear(int event_fd)
{
    uint64_t count;
    while (read(event_fd, &count, sizeof(count)) > 0)
        continue; /* until there is none */
}

/* How long the net thread may sleep. */
static long sleep_ms(const struct net *net)
{
    int64_t left_ns = net->next_beat_ns - park_now_ns();
    long left_ms = left_ns > 0 ? (long)(left_ns / NS_PER_MS) + 1 : 0, most_ms = left_ms;
    if (net->worker_fd >= 0)
        most_ms = WATCHED_MS;
    if (net->leaving_ns && most_ms > ENDING_MS)
        most_ms = ENDING_MS;
    for (uint32_t r = 0; r < net->env->size; r++)
        if (net->peers[r].ended_ns && peer_is(&net->peers[r], PEER_HERE) && most_ms > ENDING_MS)
            most_ms = ENDING_MS;
    return left_ms < most_ms ? left_ms : most_ms;
}

/* Sleeps until something comes or time is due. The first item is the eventfd, the last the ROUTER. */
static void net_sleep(struct net *net, zmq_pollitem_t *items, int count)
{
    if (zmq_poll(items, net->worker_fd >= 0 ? count - 1 : count, sleep_ms(net)) > 0 && (items[0].revents & ZMQ_POLLIN))
        event_clear(net->event_fd);
    mailbox_awake(&net->mailbox);
}

/* ---- a worker at the ROUTER ---- */

/* Takes what there is; whether the worker may sleep now. *begun: it is to watch the ROUTER, too. */
static bool watch_turn(struct net *net, struct mailbox *mailbox, bool *begun)
{
    pthread_mutex_lock(&net->sockets);
    *begun = net->begun;
    bool busy = net->begun && frames_take(net);
    bool idle = !busy && !mailbox_pending(mailbox) && mailbox_asleep(mailbox);
    pthread_mutex_unlock(&net->sockets);
    return idle;
}

/* When `begun` becomes true the worker is woken; when it becomes false it will soon be told to end. */
static void watch_wait(struct mailbox_waiter *waiter, struct mailbox *mailbox)
{
    struct net *net = (struct net *)((char *)waiter - offsetof(struct net, waiter));
    while (!mailbox_pending(mailbox)) {
        bool begun;
        if (!watch_turn(net, mailbox, &begun))
            continue;
        struct pollfd fds[2] = {{.fd = net->worker_fd, .events = POLLIN}, {.fd = net->router_fd, .events = POLLIN}};
        if (poll(fds, begun ? 2 : 1, -1) > 0 && (fds[0].revents & POLLIN))
            event_clear(net->worker_fd);
        mailbox_awake(mailbox);
    }
}

weir_status net_watch(struct net *net, struct mailbox *mailbox, struct mailbox_waiter **waiter)
{
    size_t bytes = sizeof(net->router_fd);
    net->worker_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (net->worker_fd < 0 || zmq_getsockopt(net->router, ZMQ_FD, &net->router_fd, &bytes))
        return error_set(WEIR_E_MEMORY, "the worker cannot watch the network");
    net->waiter.wait = watch_wait;
    mailbox->event_fd = net->worker_fd;
    *waiter = &net->waiter;
    return WEIR_OK;
}

/* ---- the net thread ---- */

static zmq_pollitem_t *poll_items(const struct net *net, int *count)
{
    zmq_pollitem_t *items = calloc(2 + (size_t)net->env->size, sizeof(*items));
    if (!items)
        return NULL;
    items[0] = (zmq_pollitem_t){.fd = net->event_fd, .events = ZMQ_POLLIN};
    *count = 1;
    for (uint32_t r = 0; r < net->env->size; r++)
        if (net->peers[r].monitor)
            items[(*count)++] = (zmq_pollitem_t){.socket = net->peers[r].monitor, .events = ZMQ_POLLIN};
    items[(*count)++] = (zmq_pollitem_t){.socket = net->router, .events = ZMQ_POLLIN};
    return items;
}

static void deferred_handle(struct net *net)
{
    for (uint32_t i = 0; i < net->deferred_count; i++) {
        net_handle(net, &net->deferred[i]);
        incoming_clear(&net->deferred[i]);
        free(net->deferred[i].parts);
    }
    net->deferred_count = 0;
}

/* Whether this rank, which has said BYE, may go. What is on its way to a peer that goes at the same time would never
 * arrive, and closing the sockets would wait for it in vain; so the peers' own BYEs are awaited, but not for long. */
static bool net_parted(struct net *net)
{
    int64_t now = park_now_ns();
    if (!net->leaving_ns)
        net->leaving_ns = now;
    if (now - net->leaving_ns > NET_LEAVE_NS)
        return true;
    for (uint32_t r = 0; r < net->env->size; r++)
        if (peer_is(&net->peers[r], PEER_HERE) && !net->peers[r].ended_ns)
            return false;
    return true;
}

static void net_loop(struct net *net, zmq_pollitem_t *items, int count)
{
    for (;;) {
        /* acquire: pairs with the store in net_stop(); what was told before it is sent first */
        uint32_t stop = atomic_load_explicit(&net->stop, memory_order_acquire);
        pthread_mutex_lock(&net->sockets);
        /* taken before the messages and sent behind them: a run's last messages were posted before the BYE was told, and
         * a peer listens to nothing behind that */
        struct request *requests = requests_take(net);
        bool busy = net_take_messages(net) || requests;
        requests_send(net, requests);
        busy |= frames_take(net);
        net_time(net);
        bool over = stop == STOP_NOW || (stop == STOP_PARTED && net_parted(net));
        bool idle = !over && !busy && mailbox_asleep(&net->mailbox);
        pthread_mutex_unlock(&net->sockets);
        if (over)
            return;
        if (idle)
            net_sleep(net, items, count);
    }
}

static void *net_main(void *argument)
{
    struct net *net = argument;
    int count;
    zmq_pollitem_t *items = poll_items(net, &count);
    if (items)
        net_loop(net, items, count);
    else
        net->hooks.broken(net->hooks.ctx, "no memory for the network's thread");
    free(items);
    return NULL;
}

weir_status net_start(struct net *net)
{
    net->beat_ns = net->env->liveness_ns / BEATS_PER_LIMIT;
    peers_forgive(net, park_now_ns());
    pthread_mutex_lock(&net->sockets);
    deferred_handle(net);
    net->begun = true;
    pthread_mutex_unlock(&net->sockets);
    if (net->worker_fd >= 0)
        event_set(net->worker_fd);
    net->started = park_thread(&net->thread, "weir-net", net_main, net);
    return net->started ? WEIR_OK : error_set(WEIR_E_MEMORY, "no thread for the network");
}

/* ---- the end ---- */

/* A worker that watches the ROUTER leaves it alone from now on: who is told of what comes in may be gone. */
static void net_quiesce(struct net *net)
{
    pthread_mutex_lock(&net->sockets);
    net->begun = false;
    pthread_mutex_unlock(&net->sockets);
}

void net_stop(struct net *net, int64_t steps)
{
    struct wire_frame bye = {.kind = WIRE_BYE, .bye.steps = steps};
    if (!net)
        return;
    if (!net->started) {
        net_quiesce(net);
        return;
    }
    int linger_ms = (int)(net->env->liveness_ns / NS_PER_MS) + LINGER_EXTRA_MS;
    if (steps >= 0)
        net_request(net, NET_ALL, &bye, NULL, 0);
    /* release: pairs with the load in net_loop() */
    atomic_store_explicit(&net->stop, steps >= 0 ? STOP_PARTED : STOP_NOW, memory_order_release);
    net_wake(net);
    pthread_join(net->thread, NULL);
    net->started = false;
    net_quiesce(net);
    for (uint32_t r = 0; r < net->env->size; r++)
        if (net->peers[r].dealer && peer_is(&net->peers[r], PEER_HERE) && !net->peers[r].ended_ns)
            socket_set(net->peers[r].dealer, ZMQ_LINGER, steps >= 0 ? linger_ms : LINGER_FAILED_MS);
}

static void peers_close(struct net *net)
{
    for (uint32_t r = 0; net->peers && r < net->env->size; r++) {
        if (net->peers[r].dealer)
            zmq_socket_monitor(net->peers[r].dealer, NULL, 0);
        if (net->peers[r].monitor)
            zmq_close(net->peers[r].monitor);
        if (net->peers[r].dealer)
            zmq_close(net->peers[r].dealer);
    }
    free(net->peers);
}

static void frames_close(struct net *net)
{
    for (uint32_t i = 0; net->links && i < net->links->transfers_count; i++) {
        const struct transfer *transfer = &net->links->transfers[i];
        zmq_msg_t *frames = transfer->frames;
        size_t count = (size_t)net->plan->regsts[transfer->regst].slots * transfer->spans.count;
        for (size_t f = 0; frames && f < count; f++)
            zmq_msg_close(&frames[f]);
    }
    for (uint32_t i = 0; i < net->deferred_count; i++) {
        incoming_clear(&net->deferred[i]);
        free(net->deferred[i].parts);
    }
    incoming_clear(&net->incoming);
    free(net->incoming.parts);
    free(net->deferred);
}

void net_close(struct net *net)
{
    if (!net)
        return;
    net_stop(net, -1);
    frames_close(net);
    peers_close(net);
    if (net->router) {
        zap_unwatch(net->zap, net->router);
        zmq_close(net->router);
    }
    zap_close(net->zap);
    if (net->zmq)
        zmq_ctx_term(net->zmq);
    for (struct request *next, *request = net->requests; request; request = next) {
        next = request->next;
        free(request);
    }
    if (net->mailbox.ring)
        mailbox_close(&net->mailbox);
    if (net->event_fd >= 0)
        close(net->event_fd);
    if (net->worker_fd >= 0)
        close(net->worker_fd);
    free(net->rank_of);
    free(net->outstanding);
    free(net->behind);
    free(net->follower);
    free(net->data);
    pthread_mutex_destroy(&net->lock);
    pthread_mutex_destroy(&net->sockets);
    free(net);
}
