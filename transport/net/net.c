/* transport/net/net.c: the network's thread, the worker that takes its place at the ROUTER, and what other threads ask
 * of both. See net.h. */
#define _GNU_SOURCE
#include "transport/net/net.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "graph/base/error.h"
#include "transport/mail/park.h"
#include "transport/net/inside.h"

#define NS_PER_MS 1000000
#define BEATS_PER_LIMIT 20    /* a peer may have been silent for so much of the limit before it stops */
#define BEAT_MIN_NS 5000000   /* but no more often: well below what a peer may give (peer_may_sign()) */
#define FRAMES_PER_TURN 64    /* taken in before the loop looks elsewhere */
#define ENDING_MS 20          /* between two looks while somebody leaves */
#define WATCHED_MS 5          /* between two looks at what a worker watches, or whether it does */
#define WATCH_YIELD_NS (10 * SPIN_YIELD_NS) /* a worker that watches, and never sleeps, lets others run on its core */

/* ---- what other threads ask ---- */

weir_status net_request(struct net *net, uint32_t to, const struct wire_frame *frame, const void *payload,
                        size_t payload_bytes)
{
    struct request *request = request_new(frame, payload, payload_bytes);
    if (!request)
        return WEIR_E_MEMORY;
    request->to = to;
    outbox_add(&net->outbox, request);
    return WEIR_OK;
}

weir_status net_share(struct net *net, const struct transfer *transfer, uint32_t slot)
{
    struct request *request = request_new(&(struct wire_frame){0}, NULL, 0);
    if (!request)
        return WEIR_E_MEMORY;
    request->to = transfer->to;
    request->transfer = transfer;
    request->slot = slot;
    outbox_add(&net->outbox, request);
    return WEIR_OK;
}

struct net_life net_life_of(struct net *net, uint32_t rank)
{
    struct peer *peer = &net->peers.of[rank];
    pthread_mutex_lock(&net->peers.lock);
    struct net_life life = peer->life;
    pthread_mutex_unlock(&net->peers.lock);
    life.heard_ns = atomic_load_explicit(&peer->heard_ns, memory_order_relaxed);
    return life;
}

bool net_measure(struct net *net, uint32_t rank, struct measure *measure)
{
    struct bulk_line *line = net->peers.of[rank].bulk;
    pthread_mutex_lock(&net->sockets);
    if (line && line->stream)
        measure_look(&line->measure, line->stream->fd);
    bool known = line && line->measure.round_trip_us;
    if (known)
        *measure = line->measure;
    pthread_mutex_unlock(&net->sockets);
    return known;
}

bool net_here(struct net *net, uint32_t rank)
{
    return peer_is(&net->peers.of[rank], PEER_HERE);
}

const uint32_t *net_neighbours(const struct net *net, uint32_t *count)
{
    *count = net->peers.neighbours_count;
    return net->peers.neighbours;
}

bool net_neighbour(const struct net *net, uint32_t rank)
{
    return net->peers.of[rank].neighbour;
}

bool net_edge(const struct net *net, uint32_t rank)
{
    return net->peers.of[rank].edge;
}

/* ---- the loop ---- */

/* Whether there was one at least; *drained: there are no more. */
static bool frames_take(struct net *net, bool *drained)
{
    int count = 0;
    while (count < FRAMES_PER_TURN && net_receive(net)) {
        net_handle(net, &net->inbox.incoming);
        count++;
    }
    *drained = count < FRAMES_PER_TURN;
    return count > 0;
}

/* Whether a worker takes what comes: it watches, and has nothing else to do. */
static bool watched(const struct net *net)
{
    /* relaxed: who is wrong about it for a moment only does what the other does too */
    return net->watcher.worker_fd >= 0 && atomic_load_explicit(&net->watcher.watching, memory_order_relaxed);
}

/* Reads what was written to wake somebody up. */
static void event_clear(int event_fd)
{
    uint64_t count;
    while (read(event_fd, &count, sizeof(count)) > 0)
        continue; /* until there is none */
}

/* How long the net thread may sleep. With net->sockets held: a worker may find that a peer's connection has ended. */
static long sleep_ms(const struct net *net)
{
    int64_t left_ns = net->clock.next_beat_ns - park_now_ns();
    long left_ms = left_ns > 0 ? (long)(left_ns / NS_PER_MS) + 1 : 0, most_ms = left_ms;
    if (net->watcher.worker_fd >= 0) /* also of one that is busy: what it holds back goes out then */
        most_ms = WATCHED_MS;
    if ((net->peers.leaving || net->peers.cut_count) && most_ms > ENDING_MS)
        most_ms = ENDING_MS;
    return left_ms < most_ms ? left_ms : most_ms;
}

enum { ITEM_EVENT, ITEM_LIFE, ITEM_BULK, ITEM_ROUTER, ITEM_LINES, ITEMS };

/* Sleeps until something comes or time is due; what a worker watches is left to it. */
static void net_sleep(struct net *net, bool lines, long most_ms)
{
    zmq_pollitem_t items[ITEMS] = {
        [ITEM_EVENT] = {.fd = net->outbox.event_fd, .events = ZMQ_POLLIN},
        [ITEM_LIFE] = {.socket = net->channels[CHANNEL_LIFE].monitor, .events = ZMQ_POLLIN},
        [ITEM_BULK] = {.socket = net->channels[CHANNEL_BULK].monitor, .events = ZMQ_POLLIN},
        [ITEM_ROUTER] = {.socket = net->inbox.router, .events = ZMQ_POLLIN},
        [ITEM_LINES] = {.fd = net->bulk.epoll_fd, .events = ZMQ_POLLIN},
    };
    if (net->watcher.worker_fd >= 0) /* a worker may be at the socket itself; its descriptor is anybody's */
        items[ITEM_ROUTER] = (zmq_pollitem_t){.fd = net->watcher.router_fd, .events = ZMQ_POLLIN};
    int count = lines ? ITEMS : ITEM_ROUTER;
    if (zmq_poll(items, count, most_ms) > 0 && (items[ITEM_EVENT].revents & ZMQ_POLLIN))
        event_clear(net->outbox.event_fd);
    mailbox_awake(&net->route.mailbox);
}

static void net_loop(struct net *net)
{
    for (;;) {
        bool drained;
        /* acquire: pairs with the store in net_stop(); what was asked for before it is sent first */
        uint32_t stop = atomic_load_explicit(&net->stop, memory_order_acquire);
        pthread_mutex_lock(&net->sockets);
        /* taken before the messages and sent behind them: a run's last messages were posted before the BYE was asked
         * for, and a peer listens to nothing behind that */
        struct request *requests = outbox_take(&net->outbox);
        bool busy = net_take_messages(net) || requests;
        net_requests_send(net, requests);
        bulk_release(&net->bulk);
        if (bulk_may_write(&net->bulk)) { /* until the lines take no more; who watches sees when they do again */
            bulk_flush(&net->bulk, BULK_WRITE_TURN);
            busy |= bulk_may_write(&net->bulk);
        }
        busy |= frames_take(net, &drained);
        if (!watched(net) || stop) /* while a worker is busy what it has not written is, too */
            busy |= bulk_turn(&net->bulk, &drained);
        net_time(net, drained);
        bool over = stop == STOP_NOW || (stop == STOP_PARTED && net_parted(net));
        bool lines = !watched(net);
        bool idle = !over && !busy && (!lines || bulk_rest(&net->bulk)) && mailbox_asleep(&net->route.mailbox);
        long most_ms = sleep_ms(net);
        if (over) /* a failure that has just been heard of is passed on */
            net_requests_send(net, outbox_take(&net->outbox));
        pthread_mutex_unlock(&net->sockets);
        if (over)
            return;
        if (idle)
            net_sleep(net, lines, most_ms);
    }
}

static void *net_main(void *argument)
{
    net_loop(argument);
    return NULL;
}

static void deferred_handle(struct net *net)
{
    for (uint32_t i = 0; i < net->inbox.deferred_count; i++) {
        net_handle(net, &net->inbox.deferred[i]);
        incoming_clear(&net->inbox.deferred[i]);
        free(net->inbox.deferred[i].parts);
    }
    net->inbox.deferred_count = 0;
}

weir_status net_start(struct net *net)
{
    uint64_t one = 1;
    int64_t beat_ns = net->env->liveness_ns / BEATS_PER_LIMIT;
    net->clock.beat_ns = beat_ns > BEAT_MIN_NS ? beat_ns : BEAT_MIN_NS;
    net_forgive(net, park_now_ns());
    pthread_mutex_lock(&net->sockets);
    deferred_handle(net);
    net->begun = true;
    pthread_mutex_unlock(&net->sockets);
    if (net->watcher.worker_fd >= 0 && write(net->watcher.worker_fd, &one, sizeof(one)) < 0)
        return error_set(WEIR_E_MEMORY, "the worker cannot be woken");
    net->started = park_thread(&net->thread, "weir-net", net_main, net);
    return net->started ? WEIR_OK : error_set(WEIR_E_MEMORY, "no thread for the network");
}

/* ---- a worker at the ROUTER ---- */

/* Takes what there is, and lets go what was held back; whether the worker may sleep now. *begun: it is to watch the
 * ROUTER, too. */
static bool watch_turn(struct net *net, struct mailbox *mailbox, bool *begun)
{
    bool drained;
    pthread_mutex_lock(&net->sockets);
    *begun = net->begun;
    bulk_release(&net->bulk);
    bool busy = net->begun && (frames_take(net, &drained) | bulk_turn(&net->bulk, &drained));
    bool idle = !busy && (!net->begun || bulk_rest(&net->bulk)) && !mailbox_pending(mailbox) && mailbox_asleep(mailbox);
    pthread_mutex_unlock(&net->sockets);
    return idle;
}

/* As long as a wake-up takes (transport/mail/spin.h), from the last moment at which something came or went, which is returned.
 * It ends while much is on its way: a thread that sleeps then finds more bytes at each wake-up than one that looks all the
 * time, with which a sum of 16 MiB took a tenth longer. Only the lines are looked at: what comes over ZeroMQ has gone
 * through another thread. */
static int64_t watch_spin(struct net *net, struct mailbox *mailbox)
{
    int64_t now = park_now_ns(), moved_ns = now, end_ns = spin_until(&mailbox->spin, now);
    bool drained;
    for (; !mailbox_pending(mailbox) && now < end_ns; now = park_now_ns()) {
        if (!pthread_mutex_trylock(&net->sockets)) {
            bool moved = net->begun && bulk_turn(&net->bulk, &drained), flows = bulk_flows(&net->bulk);
            pthread_mutex_unlock(&net->sockets);
            if (!moved && flows)
                break;
            if (moved) { /* which may have taken longer than a spin */
                moved_ns = park_now_ns();
                end_ns = spin_until(&mailbox->spin, moved_ns);
                spin_met(&mailbox->spin);
            }
        }
        if (now >= net->watcher.yield_ns) {
            sched_yield();
            net->watcher.yield_ns = now + WATCH_YIELD_NS;
        }
        park_pause();
    }
    return moved_ns;
}

/* When `begun` becomes true the worker is woken; when it becomes false it will soon be told to end. */
static void watch_wait(struct mailbox_waiter *waiter, struct mailbox *mailbox)
{
    struct net *net = (struct net *)((char *)waiter - offsetof(struct net, watcher.waiter));
    atomic_store_explicit(&net->watcher.watching, true, memory_order_relaxed);
    for (bool begun; !mailbox_pending(mailbox);) {
        int64_t moved_ns = watch_spin(net, mailbox);
        if (!watch_turn(net, mailbox, &begun))
            continue;
        struct pollfd fds[3] = {{.fd = net->watcher.worker_fd, .events = POLLIN},
                                {.fd = net->watcher.router_fd, .events = POLLIN},
                                {.fd = net->bulk.epoll_fd, .events = POLLIN}};
        if (poll(fds, begun ? 3 : 1, -1) > 0 && (fds[0].revents & POLLIN))
            event_clear(net->watcher.worker_fd);
        mailbox_awake(mailbox);
        /* relaxed: the sleep ended behind the store */
        int64_t called_ns = atomic_load_explicit(&mailbox->ring->called_ns, memory_order_relaxed);
        spin_slept(&mailbox->spin, moved_ns, called_ns, park_now_ns());
    }
    atomic_store_explicit(&net->watcher.watching, false, memory_order_relaxed);
}

weir_status net_watch(struct net *net, struct mailbox *mailbox, struct mailbox_waiter **waiter)
{
    struct net_watcher *watcher = &net->watcher;
    size_t bytes = sizeof(watcher->router_fd);
    watcher->worker_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (watcher->worker_fd < 0 || zmq_getsockopt(net->inbox.router, ZMQ_FD, &watcher->router_fd, &bytes))
        return error_set(WEIR_E_MEMORY, "the worker cannot watch the network");
    watcher->waiter.wait = watch_wait;
    mailbox->event_fd = watcher->worker_fd;
    *waiter = &watcher->waiter;
    return WEIR_OK;
}
