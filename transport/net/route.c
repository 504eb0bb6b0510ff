/* transport/net/route.c: what crosses between this rank and those on the wire, as tables: which plan port a message's
 * port is, and what may be under way at it. See net.h. */
#include <stdlib.h>

#include "graph/base/error.h"
#include "graph/plan/spread.h"
#include "transport/net/inside.h"

/* Ports that are counted, by actor, as messages number them (actors/session/build.c). */
static void live_list(struct net *net)
{
    const weir_plan *plan = net->plan;
    uint32_t count = 0;
    for (uint32_t a = 0; a < plan->actors_count; a++) {
        const plan_range *ports = &plan->actors[a].ports;
        net->live_first[a] = count;
        for (uint32_t p = ports->first; p < ports->first + ports->count; p++)
            if (plan->regsts[plan->ports[p].regst.i].producer.i != PLAN_NONE)
                net->live[count++] = p;
    }
    net->live_first[plan->actors_count] = count;
}

/* Out-edges, by producer, as messages number them: a register after the other, and of one its ports in order. */
static bool edge_list(struct net *net)
{
    const weir_plan *plan = net->plan;
    uint32_t *first = calloc((size_t)plan->regsts_count + 1, sizeof(*first)), count = 0;
    if (!first)
        return false;
    for (uint32_t p = 0; p < plan->ports_count; p++)
        first[plan->ports[p].regst.i]++;
    for (uint32_t a = 0; a < plan->actors_count; a++) {
        const plan_range *regsts = &plan->actors[a].regsts;
        net->edge_first[a] = count;
        for (uint32_t r = regsts->first; r < regsts->first + regsts->count; r++) {
            uint32_t readers = first[r];
            first[r] = count;
            count += readers;
        }
    }
    net->edge_first[plan->actors_count] = count;
    for (uint32_t p = 0; p < plan->ports_count; p++)
        if (plan->regsts[plan->ports[p].regst.i].producer.i != PLAN_NONE)
            net->edges[first[plan->ports[p].regst.i]++] = p;
    free(first);
    return true;
}

static bool tables_make(struct net *net)
{
    const weir_plan *plan = net->plan;
    size_t actors = plan->actors_count + (size_t)1, ports = plan->ports_count + (size_t)1;
    net->rank_of = calloc(actors, sizeof(*net->rank_of));
    net->live_first = calloc(actors, sizeof(*net->live_first));
    net->live = calloc(ports, sizeof(*net->live));
    net->edge_first = calloc(actors, sizeof(*net->edge_first));
    net->edges = calloc(ports, sizeof(*net->edges));
    net->outstanding = calloc(ports, sizeof(*net->outstanding));
    net->behind = calloc(ports, sizeof(*net->behind));
    net->follower = calloc(ports, sizeof(*net->follower));
    if (!net->rank_of || !net->live_first || !net->live || !net->edge_first || !net->edges || !net->outstanding ||
        !net->behind || !net->follower)
        return false;
    for (uint32_t a = 0; a < plan->actors_count; a++)
        net->rank_of[a] = plan_rank_of(plan, a);
    live_list(net);
    return edge_list(net);
}

/* Whether the port's two ends are this rank and a wired one. */
static bool port_crosses(const struct net *net, uint32_t port)
{
    const weir_plan *plan = net->plan;
    const plan_regst *regst = &plan->regsts[plan->ports[port].regst.i];
    if (regst->producer.i == PLAN_NONE)
        return false;
    uint32_t from = net->rank_of[regst->producer.i], to = net->rank_of[plan->ports[port].actor.i];
    return (from == net->env->rank && net->peers[to].wired) || (to == net->env->rank && net->peers[from].wired);
}

/* Who shares a transfer, from its leader on. */
static void followers_list(struct net *net)
{
    for (uint32_t p = 0; p < net->plan->ports_count; p++)
        net->follower[p] = LINKS_NONE;
    for (uint32_t p = 0; p < net->plan->ports_count; p++) {
        const struct transfer *transfer = links_find(net->links, p);
        if (!transfer || transfer->leader == p)
            continue;
        net->follower[p] = net->follower[transfer->leader];
        net->follower[transfer->leader] = p;
    }
}

/* The leader's number among the ports of its actor that are counted. One that reads a constant is told of nothing, and
 * has none. */
static uint16_t leader_number(const struct net *net, const struct transfer *transfer)
{
    uint32_t actor = net->plan->ports[transfer->leader].actor.i, first = net->live_first[actor], number = first;
    while (number < net->live_first[actor + 1] && net->live[number] != transfer->leader)
        number++;
    return (uint16_t)(number - first);
}

static bool transfer_room(struct net *net, struct transfer *transfer)
{
    size_t count = (size_t)net->plan->regsts[transfer->regst].slots * transfer->spans.count;
    if (transfer->to != net->env->rank)
        return true;
    transfer->data = calloc(count + 1, sizeof(*transfer->data));
    zmq_msg_t *frames = transfer->frames = calloc(count + 1, sizeof(zmq_msg_t));
    for (size_t i = 0; frames && i < count; i++)
        zmq_msg_init(&frames[i]);
    return transfer->data && frames;
}

weir_status net_route(struct net *net, struct links *links, const struct arena *arenas, struct bus *bus)
{
    const weir_plan *plan = net->plan;
    uint64_t messages = 16;
    bool ok = tables_make(net);
    net->links = links;
    net->arenas = arenas;
    net->bus = bus;
    if (ok)
        followers_list(net);
    for (uint32_t p = 0; ok && p < plan->ports_count; p++) {
        if (!port_crosses(net, p))
            continue;
        const plan_regst *regst = &plan->regsts[plan->ports[p].regst.i];
        net->outstanding[p] = regst->initial;
        messages += regst->slots;
    }
    for (uint32_t i = 0; ok && i < links->transfers_count; i++) {
        const plan_regst *regst = &plan->regsts[links->transfers[i].regst];
        links->transfers[i].next_slot = regst->initial % (regst->slots ? regst->slots : 1);
        links->transfers[i].number = leader_number(net, &links->transfers[i]);
        ok = transfer_room(net, &links->transfers[i]);
    }
    net->data = calloc(messages, sizeof(*net->data));
    if (!ok || !net->data || mailbox_open(&net->mailbox, messages, 0))
        return error_set(WEIR_E_MEMORY, "no memory for the links of rank %u", net->env->rank);
    net->mailbox.event_fd = net->event_fd;
    net_end_open(net);
    for (uint32_t a = 0; a < plan->actors_count; a++)
        if (net->peers[net->rank_of[a]].wired)
            bus_attach(bus, a, &net->mailbox.end);
    return WEIR_OK;
}
