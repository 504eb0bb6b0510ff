/* transport/net/open.c: how this rank's end of the bus comes to be: sockets, the meeting, HELLO from all. See net.h.
 *
 * One DEALER per peer and one ROUTER, rather than a socket per pair: a bound socket takes connections from anybody, so
 * what comes in must carry a name (ROUTER), and what goes out must go to one peer only (DEALER). Once all have said
 * HELLO nobody else is to come; the ROUTER goes on listening only because ZeroMQ would close the connections that came
 * through the listener with it. A connection that has stood and ends is not made again: frames may have been lost with
 * it, so the peer is.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "graph/base/error.h"
#include "transport/net/inside.h"
#include "transport/mail/park.h"

#define GREET_EXTRA_NS 2000000000 /* beyond the liveness limit, for connections to be made */
#define CONTROL_FRAMES 4096       /* beats, values and the like under way to one peer, at most */
#define VALUE_SLACK 4096
#define WAIT_BYTES 16             /* an entry of WAITS */

/* ---- sockets ---- */

static weir_status zmq_failed(const char *what)
{
    return error_set(WEIR_E_PEER, "%s: %s", what, zmq_strerror(zmq_errno()));
}

/* Messages that can be under way to one peer: the plan's slots in both directions, and what the session says. */
static int frames_bound(const weir_plan *plan)
{
    uint64_t bound = CONTROL_FRAMES + (uint64_t)plan->shards_count;
    for (uint32_t p = 0; p < plan->ports_count; p++)
        bound += 2 * (uint64_t)plan->regsts[plan->ports[p].regst.i].slots;
    return bound < INT32_MAX ? (int)bound : INT32_MAX;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* The largest frame that a peer may send: bus messages; of WAITS an entry for each end of its actors, each pull and each
 * worker; a slot, or a part of one; a shard, which may be a state and larger than any slot. */
static int64_t frame_bound(const weir_plan *plan)
{
    uint64_t ends = plan->ports_count + (uint64_t)plan->regsts_count + plan->hosts_count + plan->spaces_count;
    uint64_t bytes = larger(NET_WORDS_MAX * sizeof(uint64_t), ends * WAIT_BYTES);
    for (uint32_t r = 0; r < plan->regsts_count; r++)
        bytes = larger(bytes, plan->regsts[r].slot_bytes);
    for (uint32_t i = 0; i < plan->shards_count; i++)
        bytes = larger(bytes, plan_tensor_bytes(&plan->tensors[plan->shards[i].i]));
    return (int64_t)(bytes + VALUE_SLACK);
}

static weir_status socket_common(struct net *net, void *socket)
{
    int frames = frames_bound(net->plan);
    if (!socket)
        return zmq_failed("no socket");
    weir_status status = keys_socket(socket, frame_bound(net->plan));
    if (!status && (!socket_set(socket, ZMQ_SNDHWM, frames) || !socket_set(socket, ZMQ_RCVHWM, frames)))
        status = zmq_failed("cannot set up a socket");
    return status;
}

static weir_status bind_one(struct net *net, const char *endpoint, char *bound, size_t bytes)
{
    if (zmq_bind(net->router, endpoint))
        return error_set(WEIR_E_PEER, "rank %u cannot listen at %s: %s", net->env->rank, endpoint,
                         zmq_strerror(zmq_errno()));
    if (zmq_getsockopt(net->router, ZMQ_LAST_ENDPOINT, bound, &bytes))
        return zmq_failed("the router's address");
    return WEIR_OK;
}

/* TCP for other hosts; for this one a Unix socket in the abstract namespace, which leaves no file. */
static weir_status router_bind(struct net *net, struct member *card)
{
    char endpoint[320];
    uint64_t name = 0;
    weir_status status = meet_bind_address(net->env, endpoint, sizeof(endpoint));
    if (!status)
        status = bind_one(net, endpoint, card->tcp, sizeof(card->tcp));
    if (status)
        return status;
    if (getrandom(&name, sizeof(name), 0) < 0)
        return WEIR_OK; /* TCP will do */
    snprintf(endpoint, sizeof(endpoint), "ipc://@weir-%016llx", (unsigned long long)name);
    if (bind_one(net, endpoint, card->ipc, sizeof(card->ipc)))
        card->ipc[0] = 0;
    return WEIR_OK;
}

static weir_status router_open(struct net *net, struct member *card)
{
    net->router = zmq_socket(net->zmq, ZMQ_ROUTER);
    weir_status status = socket_common(net, net->router);
    if (!status)
        status = keys_bus_server(&net->keys, net->router);
    if (!status)
        status = zap_watch(net->zap, net->router);
    return status ? status : router_bind(net, card);
}

weir_status net_open(struct net **to, const weir_plan *plan, const struct cluster_env *env,
                     const struct report *report, const struct net_hooks *hooks, struct member *card)
{
    struct net *net = *to = aligned_alloc(_Alignof(struct net), sizeof(*net));
    if (!net)
        return error_set(WEIR_E_MEMORY, "no memory for the network");
    *net = (struct net){.env = env, .report = report, .hooks = *hooks, .plan = plan, .event_fd = -1, .worker_fd = -1};
    net->requests_end = &net->requests;
    pthread_mutex_init(&net->lock, NULL);
    pthread_mutex_init(&net->sockets, NULL);
    net->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    net->zmq = zmq_ctx_new();
    net->peers = calloc(env->size, sizeof(*net->peers));
    if (net->event_fd < 0 || !net->zmq || !net->peers)
        return error_set(WEIR_E_MEMORY, "no memory for the network");
    for (uint32_t r = 0; r < env->size; r++)
        net->peers[r].life.actor = UINT32_MAX;
    zmq_ctx_set(net->zmq, ZMQ_MAX_SOCKETS, (int)(4 * env->size + 64));
    weir_status status = keys_open(&net->keys, env);
    if (!status)
        status = zap_open(&net->zap, net->zmq, &net->keys, report);
    memcpy(card->key, net->keys.own_public_key, WEIR_KEY_BYTES);
    return status ? status : router_open(net, card);
}

/* ---- meeting ---- */

static void identity_of(const struct net *net, unsigned char identity[NET_IDENTITY_BYTES])
{
    memcpy(identity, &net->session, sizeof(net->session));
    memcpy(identity + sizeof(net->session), &net->env->rank, sizeof(net->env->rank));
}

static weir_status dealer_open(struct net *net, uint32_t rank)
{
    struct peer *peer = &net->peers[rank];
    unsigned char identity[NET_IDENTITY_BYTES];
    char name[64];
    identity_of(net, identity);
    peer->dealer = zmq_socket(net->zmq, ZMQ_DEALER);
    weir_status status = socket_common(net, peer->dealer);
    if (!status)
        status = keys_bus_client(&net->keys, peer->dealer, net->members[rank].key);
    if (status)
        return status;
    snprintf(name, sizeof(name), "inproc://weir-monitor-%u", rank);
    if (zmq_setsockopt(peer->dealer, ZMQ_ROUTING_ID, identity, sizeof(identity)) ||
        zmq_socket_monitor(peer->dealer, name, ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED))
        return zmq_failed("cannot watch a connection");
    peer->monitor = zmq_socket(net->zmq, ZMQ_PAIR);
    if (!peer->monitor || !socket_set(peer->monitor, ZMQ_LINGER, 0) || zmq_connect(peer->monitor, name))
        return zmq_failed("cannot watch a connection");
    return WEIR_OK;
}

static weir_status dealer_connect(struct net *net, uint32_t rank)
{
    const struct member *me = &net->members[net->env->rank], *other = &net->members[rank];
    bool near = net->env->ipc && !strcmp(me->host, other->host) && other->ipc[0];
    const char *endpoint = near ? other->ipc : other->tcp;
    if (zmq_connect(net->peers[rank].dealer, endpoint))
        return error_set(WEIR_E_PEER, "rank %u cannot connect to rank %u at %s: %s", net->env->rank, rank, endpoint,
                         zmq_strerror(zmq_errno()));
    return WEIR_OK;
}

weir_status net_meet(struct net *net, struct member *members)
{
    struct meet meet = {.zmq_context = net->zmq,
                                    .env = net->env,
                                    .keys = &net->keys,
                                    .zap = net->zap,
                                    .report = net->report,
                                    .plan = net->plan,
                                    .members = members};
    weir_status status = meet_session(&meet);
    net->members = members;
    net->session = meet.session;
    if (!status)
        status = zap_members(net->zap, members->key, sizeof(*members), net->env->size);
    for (uint32_t r = 0; !status && r < net->env->size; r++) {
        if (r == net->env->rank)
            continue;
        status = dealer_open(net, r);
        if (!status)
            status = dealer_connect(net, r);
    }
    return status;
}

/* ---- greeting ---- */

/* Keeps a message for later, when there are links. A peer that keeps the protocol has no more under way than this. */
static weir_status defer(struct net *net)
{
    if (net->deferred_count >= (uint64_t)frames_bound(net->plan) * net->env->size)
        return error_set(WEIR_E_PEER, "more frames came early than can be under way");
    if (net->deferred_count == net->deferred_room) {
        uint32_t room = net->deferred_room ? 2 * net->deferred_room : 16;
        struct incoming *grown = realloc(net->deferred, room * sizeof(*grown));
        if (!grown)
            return error_set(WEIR_E_MEMORY, "no memory for frames that came early");
        net->deferred = grown;
        net->deferred_room = room;
    }
    net->deferred[net->deferred_count++] = net->incoming;
    net->incoming = (struct incoming){0};
    return WEIR_OK;
}

static weir_status greet_take(struct net *net, uint32_t *missing)
{
    weir_status status = WEIR_OK;
    while (!status && net_receive(net)) {
        uint32_t rank;
        if (!net_identify(net, &net->incoming, &rank)) {
            net_unknown(net, "a message of an unknown peer");
        } else if (peer_is(&net->peers[rank], PEER_ABSENT)) {
            net_handle(net, &net->incoming);
            *missing -= peer_is(&net->peers[rank], PEER_HERE);
            if (peer_is(&net->peers[rank], PEER_LOST))
                status = error_set(WEIR_E_PEER, "rank %u broke the protocol while the session opened", rank);
        } else {
            status = defer(net);
        }
    }
    return status;
}

/* Whether the connection to the peer, which stood, has ended since it was last asked. One that breaks off while it is
 * made is made again. */
bool peer_ended(struct peer *peer)
{
    bool ended = false;
    zmq_msg_t part;
    zmq_msg_init(&part);
    /* an event comes in two parts: its number, in 16 bits, and more; and an address */
    while (peer->monitor && TEMP_FAILURE_RETRY(zmq_msg_recv(&part, peer->monitor, ZMQ_DONTWAIT)) >= 0) {
        uint16_t event = 0;
        bool first = zmq_msg_more(&part) && zmq_msg_size(&part) >= sizeof(event);
        if (first)
            memcpy(&event, zmq_msg_data(&part), sizeof(event));
        if (event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED)
            peer->connected = true;
        ended |= event == ZMQ_EVENT_DISCONNECTED && peer->connected;
    }
    zmq_msg_close(&part);
    return ended;
}

static weir_status greet_missing(const struct net *net, int64_t waited_ns)
{
    char list[256] = "";
    size_t used = 0;
    for (uint32_t r = 0; r < net->env->size && used + 16 < sizeof(list); r++)
        if (r != net->env->rank && !peer_is(&net->peers[r], PEER_HERE))
            used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%u", used ? ", " : "", r);
    return error_set(WEIR_E_PEER, "rank %u met all others, but heard no more of rank %s for %.1f s", net->env->rank,
                     list, (double)waited_ns * 1e-9);
}

static weir_status greet_wait(struct net *net)
{
    uint32_t missing = net->env->size - 1;
    int64_t start = park_now_ns();
    weir_status status = WEIR_OK;
    for (;;) {
        status = greet_take(net, &missing);
        if (status || !missing)
            return status;
        int64_t now = park_now_ns();
        for (uint32_t r = 0; r < net->env->size; r++) {
            struct peer *peer = &net->peers[r];
            if (peer_ended(peer))
                peer->ended_ns = now; /* it is looked at again when the thread runs */
            if (peer->ended_ns && now - peer->ended_ns > NET_LEAVE_NS && peer_is(peer, PEER_ABSENT))
                return error_set(WEIR_E_PEER, "rank %u (pid %u on %s) ended while the session opened", r,
                                 net->members[r].pid, net->members[r].name);
        }
        if (now - start > net->env->liveness_ns + GREET_EXTRA_NS)
            return greet_missing(net, now - start);
        zmq_pollitem_t item = {.socket = net->router, .events = ZMQ_POLLIN};
        zmq_poll(&item, 1, 50);
    }
}

weir_status net_greet(struct net *net, const bool *mapped, bool *wired)
{
    for (uint32_t r = 0; r < net->env->size; r++) {
        struct wire_frame hello = {.kind = WIRE_HELLO, .hello.shm = mapped[r]};
        if (r == net->env->rank)
            continue;
        peer_become(&net->peers[r], PEER_HERE); /* it can be sent to */
        net_send(net, r, &hello, NULL, 0);
        peer_become(&net->peers[r], PEER_ABSENT);
    }
    weir_status status = greet_wait(net);
    for (uint32_t r = 0; !status && r < net->env->size; r++)
        wired[r] = net->peers[r].wired = r != net->env->rank && !(mapped[r] && net->peers[r].hello);
    return status;
}
