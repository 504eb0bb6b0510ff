/* transport/net/life.c: signs of life, given and looked for. See net.h.
 *
 * Each turn costs what happened in it: ends of connections come from the two monitors, and only peers whose connection
 * has ended are looked at again. All neighbours are looked at once per beat.
 */
#include <stdarg.h>
#include <stdio.h>

#include "graph/base/locale.h"
#include "transport/mail/park.h"
#include "transport/net/inside.h"

#define BACKLOG_NS 1200000000 /* a peer whose connection has ended is given so long when there is more to take in */

void net_lose(struct net *net, uint32_t rank, const char *format, ...)
{
    char how[768];
    va_list list;
    struct peer *peer = &net->peers.of[rank];
    if (!peer_is(peer, PEER_HERE) && !peer_is(peer, PEER_ABSENT))
        return;
    va_start(list, format);
    text_vprint(how, sizeof(how), format, list);
    va_end(list);
    peer_become(&net->peers, rank, PEER_LOST);
    net->hooks.lost(net->hooks.ctx, rank, how);
}

static void beats_send(struct net *net)
{
    struct wire_frame frame = {.kind = WIRE_BEAT};
    net->hooks.beat(net->hooks.ctx, &frame);
    for (uint32_t i = 0; i < net->peers.neighbours_count; i++)
        net_send(net, net->peers.neighbours[i], &frame, NULL);
}

void net_connections_look(struct net *net, int64_t now)
{
    for (int c = 0; c < CHANNELS; c++)
        for (uint32_t rank; (rank = channel_ended(&net->channels[c])) != UINT32_MAX;)
            peer_ended(&net->peers, rank, now);
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Whether a peer to which the connection has ended says nothing any more; or gives signs of life, and for the whole
 * limit nothing else: then it does not leave, and what was on its way to it may be gone. */
static bool ended_for_good(const struct net *net, const struct peer *peer, int64_t now, bool drained)
{
    const struct peer_line *bulk = &peer->line[CHANNEL_BULK];
    int64_t heard_ns = later(atomic_load_explicit(&peer->heard_ns, memory_order_relaxed), peer->ended_ns);
    int64_t bulk_ns = later(bulk->heard_ns, peer->ended_ns), limit_ns = drained ? NET_LEAVE_NS : BACKLOG_NS;
    if (now - heard_ns > limit_ns && now - peer_bytes_ns(peer, now) > limit_ns)
        return true;
    return now - bulk_ns > net->env->liveness_ns && now - peer_line_bytes_ns(bulk, now) > net->env->liveness_ns;
}

/* It may have said BYE on another connection that is slower, and still brings bytes. */
static void ended_judge(struct net *net, int64_t now, bool drained)
{
    for (uint32_t i = net->peers.ended_count; i-- > 0;) {
        uint32_t rank = net->peers.ended[i];
        if (ended_for_good(net, &net->peers.of[rank], now, drained))
            net_lose(net, rank, "its connection ended");
    }
}

/* Bytes of a frame that is still on its way are a sign of life, too. */
static void silent_judge(struct net *net, uint32_t rank, int64_t now)
{
    struct peer *peer = &net->peers.of[rank];
    int64_t heard_ns = atomic_load_explicit(&peer->heard_ns, memory_order_relaxed);
    if (!peer_is(peer, PEER_HERE) || now - heard_ns <= net->env->liveness_ns)
        return;
    heard_ns = later(heard_ns, peer_bytes_ns(peer, now));
    atomic_store_explicit(&peer->heard_ns, heard_ns, memory_order_relaxed);
    if (now - heard_ns > net->env->liveness_ns)
        net_lose(net, rank, "nothing was heard from it for %.1f s", (double)(now - heard_ns) * 1e-9);
}

void net_forgive(struct net *net, int64_t now)
{
    for (uint32_t i = 0; i < net->peers.neighbours_count; i++)
        atomic_store_explicit(&net->peers.of[net->peers.neighbours[i]].heard_ns, now, memory_order_relaxed);
    for (uint32_t i = 0; i < net->peers.ended_count; i++)
        net->peers.of[net->peers.ended[i]].ended_ns = now;
}

/* When bytes last came from a peer over its line: as the system says, or, where no socket brings them, when they were
 * read. */
static int64_t line_bytes_ns(const struct net *net, const struct peer *peer, int64_t now)
{
    const struct peer_line *line = &peer->line[CHANNEL_BULK];
    return net->bulk.streams ? line->heard_ns : peer_line_bytes_ns(line, now);
}

/* A slot may take longer on its way than the watch waits for something to fire. */
static void arriving_look(struct net *net, int64_t now)
{
    for (uint32_t i = 0; i < net->peers.neighbours_count; i++) {
        const struct peer *peer = &net->peers.of[net->peers.neighbours[i]];
        if (!peer->wired || now - line_bytes_ns(net, peer, now) > net->clock.beat_ns)
            continue;
        /* relaxed: only whether it has changed is of interest */
        atomic_fetch_add_explicit(&net->arriving, 1, memory_order_relaxed);
        return;
    }
}

uint64_t net_arriving(struct net *net)
{
    return atomic_load_explicit(&net->arriving, memory_order_relaxed);
}

void net_time(struct net *net, bool drained)
{
    struct net_clock *clock = &net->clock;
    int64_t now = park_now_ns();
    /* this process, or its machine, stood still: what the peers sent meanwhile has to be read first */
    if (clock->looked_ns && now - clock->looked_ns > net->env->liveness_ns / 2)
        net_forgive(net, now);
    clock->looked_ns = now;
    net_connections_look(net, now);
    ended_judge(net, now, drained);
    if (now < clock->next_beat_ns)
        return;
    clock->next_beat_ns = now + clock->beat_ns;
    arriving_look(net, now);
    bulk_measure(net);
    beats_send(net);
    for (uint32_t i = 0; i < net->peers.neighbours_count; i++)
        silent_judge(net, net->peers.neighbours[i], now);
}
