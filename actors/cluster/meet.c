/* actors/cluster/meet.c: how a session's ranks come together: what each puts in shared memory, who maps whose,
 * which way goes to which actor, and what readers find before the first step. See cluster.h. */
#define _GNU_SOURCE
#include "actors/cluster/cluster.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "graph/base/error.h"
#include "graph/plan/spread/spread.h"
#include "transport/mail/cores.h"
#include "transport/net/carrier.h"

/* Where no segment can be had the ranks of this host are reached like those of others. */
weir_status cluster_share(struct cluster *c, const struct lane_size *sizes, uint32_t lanes, const uint32_t *ring_of)
{
    if (!c || !(c->env.carriers & CLUSTER_SHM))
        return WEIR_OK;
    uint64_t *capacities = calloc(lanes + (size_t)1, sizeof(*capacities));
    weir_status status = capacities ? WEIR_OK : error_set(WEIR_E_MEMORY, "no memory for %u lanes", lanes);
    for (uint32_t i = 0; !status && i < lanes; i++)
        capacities[i] = sizes[i].messages;
    if (!status && share_create(&c->own, c->plan, c->here, capacities, lanes, ring_of) == WEIR_OK) {
        const struct carrier_here here = {.env = &c->env, .share = &c->own};
        status = carriers_listen(&here, &c->members[c->env.rank]);
    }
    free(capacities);
    return status;
}

static void peer_map(struct cluster *c, uint32_t rank)
{
    const struct member *me = &c->members[c->env.rank], *other = &c->members[rank];
    const struct carrier *carrier = net_edge(c->net, rank) ? carrier_of_registers(&c->env, me, other) : NULL;
    c->mapped[rank] = carrier && carrier->map(&c->peers[rank], c->plan, rank, other) == WEIR_OK;
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
static bool watches(const struct cluster *c)
{
    return c->worker_is_free && shares_none(c);
}

/* The network is two threads of each rank (its own, and ZeroMQ's) when something goes over the wire and a worker does not
 * take it in itself. A rank that may not use all cores has been given its own: then only its own threads count. A quota is
 * of all. */
bool cluster_crowded(const struct cluster *c)
{
    uint32_t ranks_here = 0, computing = c->members[c->env.rank].workers, threads = computing;
    for (uint32_t r = 0; r < c->env.size; r++) {
        ranks_here += !strcmp(c->members[r].host, c->members[c->env.rank].host);
        if (c->wired[r] && threads == computing && !watches(c))
            threads += 2;
    }
    bool bound = cores_in_mask() < cores_online();
    uint64_t all = (uint64_t)ranks_here * threads;
    return (bound ? threads : all) > (uint32_t)cores_in_mask() || all > (uint32_t)cores_of_quota();
}

weir_status cluster_meet(struct cluster *c, uint32_t computing, bool free, struct arena *arenas)
{
    if (!c)
        return WEIR_OK;
    c->worker_is_free = free;
    c->members[c->env.rank].workers = computing;
    weir_status status = net_meet(c->net, c->members);
    for (uint32_t r = 0; !status && r < c->env.size; r++)
        peer_map(c, r);
    if (!status)
        status = net_greet(c->net, c->mapped, c->wired);
    if (status && ending_failure(c->owner->ending))
        return WEIR_E_PEER; /* it says more than that nobody was heard */
    if (status)
        return status;
    for (uint32_t i = 0; i < c->plan->spaces_count; i++) {
        uint32_t rank = c->plan->spaces[i].rank;
        if (shares(c, rank))
            arenas[i].base = share_arena(&c->peers[rank], i);
    }
    return links_open(&c->links, c->plan, c->env.rank, c->wired);
}

weir_status cluster_route(struct cluster *c, struct arena *arenas, struct bus *bus, struct lane *lane)
{
    if (!c)
        return WEIR_OK;
    for (uint32_t a = 0; a < c->plan->actors_count; a++) {
        uint32_t rank = plan_rank_of(c->plan, a);
        struct share *share = &c->peers[rank];
        if (shares(c, rank))
            bus_attach(bus, a, &share->senders[share->ring_of[a]].end);
    }
    weir_status status = net_route(c->net, &c->links, arenas, bus);
    return !status && watches(c) ? net_watch(c->net, &lane->mailbox, &lane->waiter) : status;
}

/* The first slot that is published and not read: at rest, `initial` of them follow. */
static uint32_t oldest_slot(const struct cluster *c, uint32_t r)
{
    const plan_regst *regst = &c->plan->regsts[r];
    uint32_t next = c->owner->slot(c->owner, r);
    return (next + regst->slots - regst->initial % regst->slots) % regst->slots;
}

weir_status cluster_share_regst(struct cluster *c, uint32_t r)
{
    const plan_regst *regst = &c->plan->regsts[r];
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; regst->initial && i < c->links.transfers_count; i++) {
        const struct transfer *transfer = &c->links.transfers[i];
        if (transfer->regst != r || transfer->from != c->env.rank)
            continue;
        for (uint32_t k = 0; !status && k < regst->initial; k++)
            status = net_share(c->net, transfer, (oldest_slot(c, r) + k) % regst->slots);
    }
    return status;
}

/* After this every rank can fire: whatever its actors may read at first is there. */
weir_status cluster_begin(struct cluster *c)
{
    if (!c)
        return WEIR_OK;
    cluster_sharing(c, true);
    weir_status status = net_start(c->net);
    cluster_round_begin(c, ROUND_OPEN, 0);
    for (uint32_t i = 0; !status && i < c->links.transfers_count; i++) {
        const struct transfer *transfer = &c->links.transfers[i];
        bool first = !i || c->links.transfers[i - 1].regst != transfer->regst;
        if (transfer->from == c->env.rank && first)
            status = cluster_share_regst(c, transfer->regst);
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
