/* transport/net/route.c: what crosses between this rank and those on the wire, as tables: who has the two ends of
 * an edge, and what may be under way at it. See net.h. */
#include <stdlib.h>

#include "graph/base/error.h"
#include "graph/plan/spread/branch.h"
#include "graph/plan/spread/spread.h"
#include "transport/net/inside.h"

static bool tables_make(struct net *net)
{
    const weir_plan *plan = net->plan;
    size_t actors = plan->actors_count + (size_t)1, ports = plan->ports_count + (size_t)1;
    net->route.rank_of = calloc(actors, sizeof(*net->route.rank_of));
    net->route.outstanding = calloc(ports, sizeof(*net->route.outstanding));
    net->route.passed = calloc(ports, sizeof(*net->route.passed));
    net->route.behind = calloc(ports, sizeof(*net->route.behind));
    net->route.follower = calloc(ports, sizeof(*net->route.follower));
    net->route.first = calloc(ports, sizeof(*net->route.first));
    if (!net->route.rank_of || !net->route.outstanding || !net->route.passed || !net->route.behind ||
        !net->route.follower || !net->route.first ||
        plan_branches(plan, net->env->rank, NULL, net->route.links->transfer_of, net->route.first))
        return false;
    for (uint32_t a = 0; a < plan->actors_count; a++)
        net->route.rank_of[a] = plan_rank_of(plan, a);
    return true;
}

/* Whether messages name the port's edge, and its two ends are this rank and a wired one. */
static bool port_crosses(const struct net *net, uint32_t port)
{
    if (net->route.first[port] != port)
        return false;
    uint32_t from = net_producer_rank(net, port), to = net_reader_rank(net, port);
    return (from == net->env->rank && net->peers.of[to].wired) || (to == net->env->rank && net->peers.of[from].wired);
}

/* The ranks that share a transfer, from its leader on. */
static void followers_list(struct net *net)
{
    for (uint32_t p = 0; p < net->plan->ports_count; p++)
        net->route.follower[p] = LINKS_NONE;
    for (uint32_t p = 0; p < net->plan->ports_count; p++) {
        const struct transfer *transfer = links_find(net->route.links, p);
        if (!transfer || transfer->leader == p || net->route.first[p] != p)
            continue;
        net->route.follower[p] = net->route.follower[transfer->leader];
        net->route.follower[transfer->leader] = p;
    }
}

weir_status net_route(struct net *net, struct links *links, const struct arena *arenas, struct bus *bus)
{
    const weir_plan *plan = net->plan;
    uint64_t messages = 16;
    net->route.links = links;
    net->route.arenas = arenas;
    net->route.bus = bus;
    bool ok = tables_make(net);
    if (ok)
        followers_list(net);
    for (uint32_t p = 0; ok && p < plan->ports_count; p++) {
        if (!port_crosses(net, p))
            continue;
        const plan_regst *regst = &plan->regsts[plan->ports[p].regst.i];
        net->route.outstanding[p] = regst->initial;
        messages += regst->slots;
    }
    for (uint32_t i = 0; ok && i < links->transfers_count; i++) {
        const plan_regst *regst = &plan->regsts[links->transfers[i].regst];
        links->transfers[i].next_slot = regst->initial % (regst->slots ? regst->slots : 1);
    }
    if (!ok || mailbox_open(&net->route.mailbox, messages, spin_fixed(0)))
        return error_set(WEIR_E_MEMORY, "no memory for the links of rank %u", net->env->rank);
    net->route.mailbox.event_fd = net->outbox.event_fd;
    net_end_open(net);
    for (uint32_t a = 0; a < plan->actors_count; a++)
        if (net->peers.of[net->route.rank_of[a]].wired)
            bus_attach(bus, a, &net->route.mailbox.end);
    weir_status status = links_receive_open(links, arenas);
    return status ? status : bulk_route(&net->bulk, plan, links, arenas);
}

void route_close(struct route *route)
{
    if (route->mailbox.ring)
        mailbox_close(&route->mailbox);
    free(route->rank_of);
    free(route->outstanding);
    free(route->passed);
    free(route->behind);
    free(route->follower);
    free(route->first);
}
