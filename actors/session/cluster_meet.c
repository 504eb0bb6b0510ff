/* actors/session/cluster_meet.c: how a session's ranks come together: what each puts in shared memory, who maps whose,
 * which way goes to which actor, and what readers find before the first step. See cluster.h. */
#define _GNU_SOURCE
#include "actors/session/cluster.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actors/session/session.h"
#include "graph/base/error.h"
#include "graph/plan/spread.h"
#include "transport/mail/cores.h"
#include "transport/net/carrier.h"

/* Where no segment can be had the ranks of this host are reached like those of others. */
weir_status cluster_share(struct weir_session *s, const struct lane_size *sizes)
{
    struct cluster *c = s->cluster;
    if (!c || !c->env.shm)
        return WEIR_OK;
    uint32_t lanes = s->worker_count + s->outside_count;
    uint64_t *capacities = calloc(lanes + (size_t)1, sizeof(*capacities));
    uint32_t *ring_of = calloc(s->plan->actors_count + (size_t)1, sizeof(*ring_of));
    weir_status status = capacities && ring_of ? WEIR_OK : error_set(WEIR_E_MEMORY, "no memory for %u lanes", lanes);
    for (uint32_t i = 0; !status && i < lanes; i++)
        capacities[i] = sizes[i].messages;
    for (uint32_t a = 0; !status && a < s->plan->actors_count; a++)
        ring_of[a] = session_lane_number(s, a);
    if (!status && share_create(&c->own, s->plan, c->here, capacities, lanes, ring_of) == WEIR_OK) {
        const struct carrier_here here = {.env = &c->env, .share = &c->own};
        status = carriers_listen(&here, &c->members[c->env.rank]);
    }
    free(capacities);
    free(ring_of);
    return status;
}

static void peer_map(struct weir_session *s, uint32_t rank)
{
    struct cluster *c = s->cluster;
    const struct member *me = &c->members[c->env.rank], *other = &c->members[rank];
    const struct carrier *carrier = net_edge(c->net, rank) ? carrier_of_registers(&c->env, me, other) : NULL;
    c->mapped[rank] = carrier && carrier->map(&c->peers[rank], s->plan, rank, other) == WEIR_OK;
}

/* Whether registers of the other are read where they lie, and the other way round. */
static bool shares(const struct cluster *c, uint32_t rank)
{
    return rank != c->env.rank && net_edge(c->net, rank) && !c->wired[rank];
}

/* Nobody posts to this rank's lanes from another process. */
static bool shares_none(const struct cluster *c)
{
    uint32_t count;
    const uint32_t *ranks = net_neighbours(c->net, &count);
    for (uint32_t i = 0; i < count; i++)
        if (shares(c, ranks[i]))
            return false;
    return true;
}

/* The only worker, when nothing else can wake it, takes in what comes over the wire; who waits for a device waits for
 * that too. */
static bool watches(const struct weir_session *s)
{
    return s->compute_count == 1 && shares_none(s->cluster) && !s->queues;
}

/* With more threads on this host than cores, a worker that spins keeps another from running; or the network, which is
 * two threads of each rank (its own, and ZeroMQ's) when something goes over the wire and a worker does not take it in
 * itself. A rank that may not use all cores has been given its own: then only its own threads count. A quota is of all. */
static void spin_less(struct weir_session *s)
{
    const struct cluster *c = s->cluster;
    uint32_t ranks_here = 0, threads = s->compute_count;
    for (uint32_t r = 0; r < c->env.size; r++) {
        ranks_here += !strcmp(c->members[r].host, c->members[c->env.rank].host);
        if (c->wired[r] && threads == s->compute_count && !watches(s))
            threads += 2;
    }
    bool bound = cores_in_mask() < cores_online();
    uint64_t all = (uint64_t)ranks_here * threads;
    if ((bound ? threads : all) <= (uint32_t)cores_in_mask() && all <= (uint32_t)cores_of_quota())
        return;
    for (uint32_t w = 0; w < s->worker_count; w++)
        s->workers[w].lane.mailbox.spin_ns = 0;
    for (uint32_t i = 0; i < s->outside_count; i++)
        s->outside[i].mailbox.spin_ns = 0;
}

weir_status cluster_meet(struct weir_session *s)
{
    struct cluster *c = s->cluster;
    if (!c)
        return WEIR_OK;
    c->members[c->env.rank].workers = s->compute_count;
    weir_status status = net_meet(c->net, c->members);
    for (uint32_t r = 0; !status && r < c->env.size; r++)
        peer_map(s, r);
    if (!status)
        status = net_greet(c->net, c->mapped, c->wired);
    if (status && ending_failure(&s->ending))
        return WEIR_E_PEER; /* it says more than that nobody was heard */
    if (status)
        return status;
    spin_less(s);
    for (uint32_t i = 0; i < s->plan->spaces_count; i++) {
        uint32_t rank = s->plan->spaces[i].rank;
        if (shares(c, rank))
            s->arenas[i].base = share_arena(&c->peers[rank], i);
    }
    return links_open(&c->links, s->plan, c->env.rank, c->wired);
}

weir_status cluster_route(struct weir_session *s)
{
    struct cluster *c = s->cluster;
    if (!c)
        return WEIR_OK;
    for (uint32_t a = 0; a < s->plan->actors_count; a++) {
        uint32_t rank = plan_rank_of(s->plan, a);
        struct share *share = &c->peers[rank];
        if (shares(c, rank))
            bus_attach(&s->bus, a, &share->senders[share->ring_of[a]].end);
    }
    weir_status status = net_route(c->net, &c->links, s->arenas, &s->bus);
    struct lane *lane = &s->workers[0].lane;
    return !status && watches(s) ? net_watch(c->net, &lane->mailbox, &lane->waiter) : status;
}

/* The first slot that is published and not read: at rest, `initial` of them follow. */
static uint32_t oldest_slot(const struct weir_session *s, uint32_t r)
{
    const plan_regst *regst = &s->plan->regsts[r];
    uint32_t next = s->outs[r].regst.slot;
    return (next + regst->slots - regst->initial % regst->slots) % regst->slots;
}

weir_status cluster_share_regst(struct weir_session *s, uint32_t r)
{
    struct cluster *c = s->cluster;
    const plan_regst *regst = &s->plan->regsts[r];
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; regst->initial && i < c->links.transfers_count; i++) {
        const struct transfer *transfer = &c->links.transfers[i];
        if (transfer->regst != r || transfer->from != c->env.rank)
            continue;
        for (uint32_t k = 0; !status && k < regst->initial; k++)
            status = net_share(c->net, transfer, (oldest_slot(s, r) + k) % regst->slots);
    }
    return status;
}

/* After this every rank can fire: whatever its actors may read at first is there. */
weir_status cluster_begin(struct weir_session *s)
{
    struct cluster *c = s->cluster;
    if (!c)
        return WEIR_OK;
    cluster_sharing(c, true);
    weir_status status = net_start(c->net);
    cluster_round_begin(c, ROUND_OPEN, 0);
    for (uint32_t i = 0; !status && i < c->links.transfers_count; i++) {
        const struct transfer *transfer = &c->links.transfers[i];
        bool first = !i || c->links.transfers[i - 1].regst != transfer->regst;
        if (transfer->from == c->env.rank && first)
            status = cluster_share_regst(s, transfer->regst);
    }
    if (!status)
        status = cluster_round_end(c, 0);
    cluster_round_close(c);
    cluster_sharing(c, false);
    return status;
}

void cluster_sharing(struct cluster *c, bool on)
{
    if (on)
        atomic_fetch_add(&c->shared_times, 1);
    atomic_store(&c->sharing, on);
}
