/* transport/net/close.c: how this rank's end of the bus ends. See net.h.
 *
 * BYE is behind all that was sent to a peer, be it a neighbour or one that was only sent a value. A slot of 64 MiB may
 * take many seconds to get away, so a rank that leaves waits, and gives signs of life, until each neighbour that lives
 * has read its BYE and said so (peer.h). Then nothing is on its way to any of them, nor from them, and the sockets can be
 * closed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "transport/mail/park.h"
#include "transport/net/inside.h"

#define NS_PER_MS 1000000
#define LINGER_EXTRA_MS 1000 /* beyond the liveness limit, for what was sent last to get away */
#define LINGER_FAILED_MS 500 /* the same when the session failed */

bool net_parted(struct net *net)
{
    return net->peers.leaving && (!net->peers.awaited || net->clock.told_failed);
}

/* A worker that watches the ROUTER leaves it alone from now on: who is told of what comes in may be gone. */
static void net_quiesce(struct net *net)
{
    pthread_mutex_lock(&net->sockets);
    net->begun = false;
    pthread_mutex_unlock(&net->sockets);
}

/* Waits until the last frames have got away: to those that are here, or read on until they have this rank's answer, it may;
 * to others it never will. If it is no neighbour, only the end of a connection shows that it is not here. */
static void linger(struct net *net, int linger_ms)
{
    for (uint32_t r = 0; r < net->peers.count; r++) {
        const struct peer *peer = &net->peers.of[r];
        bool here = peer_is(peer, PEER_HERE) || peer_is(peer, PEER_LEFT) ||
                    (!peer->neighbour && peer_is(peer, PEER_ABSENT));
        for (int c = 0; c < CHANNELS; c++)
            if (!here || peer->cut_ns)
                channel_drop(&net->channels[c], r);
    }
    net->bulk.linger_ns = (int64_t)linger_ms * NS_PER_MS;
    for (int c = 0; c < CHANNELS; c++)
        zmq_setsockopt(net->channels[c].socket, ZMQ_LINGER, &linger_ms, sizeof(linger_ms));
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
    if (steps >= 0)
        net_request(net, NET_ALL, &bye, NULL, 0);
    /* release: pairs with the load in net_loop() */
    atomic_store_explicit(&net->stop, steps >= 0 ? STOP_PARTED : STOP_NOW, memory_order_release);
    outbox_wake(&net->outbox);
    pthread_join(net->thread, NULL);
    net->started = false;
    net_quiesce(net);
    linger(net, steps >= 0 ? (int)(net->env->liveness_ns / NS_PER_MS) + LINGER_EXTRA_MS : LINGER_FAILED_MS);
}

void net_close(struct net *net)
{
    if (!net)
        return;
    net_stop(net, -1);
    net_lines_end(net);
    bulk_close(&net->bulk);
    route_close(&net->route);
    inbox_close(&net->inbox);
    for (int c = 0; c < CHANNELS; c++)
        channel_close(&net->channels[c]);
    if (net->inbox.router) {
        zap_unwatch(net->zap, net->inbox.router);
        zmq_close(net->inbox.router);
    }
    zap_close(net->zap);
    if (net->zmq)
        TEMP_FAILURE_RETRY(zmq_ctx_term(net->zmq)); /* a signal of the program's may interrupt it */
    outbox_close(&net->outbox);
    peers_close(&net->peers);
    if (net->watcher.worker_fd >= 0)
        close(net->watcher.worker_fd);
    pthread_mutex_destroy(&net->sockets);
    keys_close(&net->keys);
    free(net);
}
