/* transport/net/life.c: signs of life, given and looked for. Every verdict on a peer is peer.c's. See net.h.
 *
 * Each turn costs what happened in it: ends of connections come from the two monitors, and only peers whose connection
 * has ended are looked at again. All neighbours are looked at once per beat.
 */
#include "transport/mail/park.h"
#include "transport/net/inside.h"

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
            peer_happens(&net->peers, rank, PEER_CUT, now);
}

void net_forgive(struct net *net, int64_t now)
{
    peers_forgive(&net->peers, now);
    for (uint32_t i = 0; i < net->bulk.lines_count; i++)
        net->bulk.lines[i]->taken_ns = now;
}

/* When bytes last came from a peer over its line: as the system says, or, where no socket brings them, when they were
 * read. */
static int64_t line_bytes_ns(const struct net *net, const struct peer *peer, int64_t now)
{
    const struct peer_line *line = &peer->line[CHANNEL_BULK];
    return net->bulk.streams ? line->heard_ns : watched_received_ns(&line->incoming, now);
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

/* A rank that leaves waits for those that are no neighbours, too; they give no signs of life. */
static void strangers_look(struct net *net, int64_t now)
{
    for (uint32_t r = 0; r < net->peers.count && net->peers.leaving; r++) {
        if (net->peers.of[r].neighbour || !net->peers.of[r].word_said)
            continue;
        int64_t sent_ns = channel_sent_ns(&net->channels[CHANNEL_BULK], r, now);
        sent_ns = sent_ns > net->clock.leaving_ns ? sent_ns : net->clock.leaving_ns;
        peer_judge_stranger(&net->peers, r, sent_ns, now);
    }
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
    peers_judge_cut(&net->peers, now, drained);
    strangers_look(net, now);
    if (now < clock->next_beat_ns)
        return;
    clock->next_beat_ns = now + clock->beat_ns;
    arriving_look(net, now);
    bulk_look(&net->bulk, now);
    beats_send(net);
    for (uint32_t i = 0; i < net->peers.neighbours_count; i++)
        peer_judge_silence(&net->peers, net->peers.neighbours[i], now);
}
