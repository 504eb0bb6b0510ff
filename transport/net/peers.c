/* transport/net/peers.c: see the header. */
#define _GNU_SOURCE
#include "transport/net/peers.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "graph/base/error.h"
#include "graph/plan/spread.h"

#define NS_PER_MS 1000000
#define NS_PER_S 1000000000

/* ---- neighbours ---- */

/* A rank that reads a register of another, in shared memory or not. */
static void edges_find(struct peers *peers, const weir_plan *plan)
{
    for (uint32_t p = 0; p < plan->ports_count; p++) {
        uint32_t from = plan->spaces[plan->regsts[plan->ports[p].regst.i].space.i].rank;
        uint32_t to = plan_rank_of(plan, plan->ports[p].actor.i);
        uint32_t other = from == peers->me ? to : to == peers->me ? from : peers->me;
        if (other != peers->me && other < peers->count)
            peers->of[other].edge = true;
    }
}

static void neighbours_list(struct peers *peers)
{
    for (uint32_t r = 0; r < peers->count; r++) {
        struct peer *peer = &peers->of[r];
        peer->neighbour = r != peers->me && (peer->edge || r == 0 || peers->me == 0);
        if (peer->neighbour)
            peers->neighbours[peers->neighbours_count++] = r;
    }
}

weir_status peers_open(struct peers *peers, const weir_plan *plan, uint32_t count, uint32_t me)
{
    *peers = (struct peers){.count = count, .me = me};
    pthread_mutex_init(&peers->lock, NULL);
    peers->of = calloc(count, sizeof(*peers->of));
    peers->neighbours = calloc(count, sizeof(*peers->neighbours));
    peers->ended = calloc(count, sizeof(*peers->ended));
    if (!peers->of || !peers->neighbours || !peers->ended)
        return error_set(WEIR_E_MEMORY, "no memory for %u ranks", count);
    for (uint32_t r = 0; r < count; r++) {
        peers->of[r].life.actor = UINT32_MAX;
        for (int c = 0; c < CHANNELS; c++)
            peers->of[r].line[c].incoming_fd = -1;
    }
    edges_find(peers, plan);
    neighbours_list(peers);
    return WEIR_OK;
}

void peers_close(struct peers *peers)
{
    if (peers->of)
        explicit_bzero(peers->of, peers->count * sizeof(*peers->of)); /* secrets */
    free(peers->of);
    free(peers->neighbours);
    free(peers->ended);
    pthread_mutex_destroy(&peers->lock);
}

/* ---- states ---- */

static bool counts_as_here(const struct peer *peer)
{
    return peer->neighbour && peer_is(peer, PEER_HERE) && !peer->ended_ns;
}

static void ended_remove(struct peers *peers, uint32_t rank)
{
    uint32_t i = 0;
    while (i < peers->ended_count && peers->ended[i] != rank)
        i++;
    if (i < peers->ended_count)
        peers->ended[i] = peers->ended[--peers->ended_count];
}

void peer_bye_gone(struct peers *peers, struct peer *peer)
{
    /* acq_rel: one of two that find it at once subtracts it */
    if (atomic_exchange_explicit(&peer->bye_waits, 0, memory_order_acq_rel))
        atomic_fetch_sub_explicit(&peers->byes_waiting, 1, memory_order_acq_rel);
}

void peer_become(struct peers *peers, uint32_t rank, enum peer_state state)
{
    struct peer *peer = &peers->of[rank];
    peers->here_count -= counts_as_here(peer);
    /* release: pairs with the load in peer_is() */
    atomic_store_explicit(&peer->state, state, memory_order_release);
    peers->here_count += counts_as_here(peer);
    if (state == PEER_LEFT || state == PEER_LOST) {
        ended_remove(peers, rank);
        peer_bye_gone(peers, peer);
    }
}

void peer_ended(struct peers *peers, uint32_t rank, int64_t now)
{
    struct peer *peer = &peers->of[rank];
    if (peer->ended_ns || (!peer_is(peer, PEER_HERE) && !peer_is(peer, PEER_ABSENT)))
        return;
    peers->here_count -= counts_as_here(peer);
    peer->ended_ns = now;
    if (peer->neighbour) /* of another nothing is awaited */
        peers->ended[peers->ended_count++] = rank;
    peer_bye_gone(peers, peer);
}

/* ---- signs of life ---- */

bool peer_may_sign(struct peer *peer, int64_t now)
{
    if (peer->signs_ns < now - PEER_BACKLOG_NS)
        peer->signs_ns = now - PEER_BACKLOG_NS;
    peer->signs_ns += NS_PER_S / PEER_SIGNS_PER_S;
    return peer->signs_ns <= now;
}


static bool address_of(int fd, unsigned char address[28])
{
    struct sockaddr_storage from;
    socklen_t bytes = sizeof(from);
    memset(&from, 0, sizeof(from));
    if (getpeername(fd, (struct sockaddr *)&from, &bytes) ||
        (from.ss_family != AF_INET && from.ss_family != AF_INET6))
        return false;
    memcpy(address, &from, 28); /* of a sockaddr_in6 all, of a sockaddr_in more than all */
    return true;
}

void peer_line_from(struct peer_line *line, int fd)
{
    line->incoming_fd = fd;
    if (line->incoming_fd >= 0 && !address_of(line->incoming_fd, line->incoming_from))
        line->incoming_fd = -1; /* a Unix socket: it is never slow */
}

/* A descriptor that has become another connection's has another address at its other end. */
int64_t peer_line_bytes_ns(const struct peer_line *line, int64_t now)
{
    struct tcp_info info;
    socklen_t bytes = sizeof(info);
    unsigned char from[28];
    if (line->incoming_fd < 0 || !address_of(line->incoming_fd, from) ||
        memcmp(from, line->incoming_from, sizeof(from)) ||
        getsockopt(line->incoming_fd, IPPROTO_TCP, TCP_INFO, &info, &bytes))
        return 0;
    return now - (int64_t)info.tcpi_last_data_recv * NS_PER_MS;
}

int64_t peer_bytes_ns(const struct peer *peer, int64_t now)
{
    int64_t newest = 0;
    for (int c = 0; c < CHANNELS; c++) {
        int64_t at = peer_line_bytes_ns(&peer->line[c], now);
        newest = at > newest ? at : newest;
    }
    return newest;
}
