/* transport/net.c: the life of this rank's end of the bus, its thread's loop, and time. See net.h.
 *
 * One DEALER per peer and one ROUTER, rather than a socket per pair: a bound socket takes connections from anybody, so
 * what comes in must carry a name (ROUTER), and what goes out must go to one peer only (DEALER). Once all have said
 * HELLO nobody else is to come; the ROUTER goes on listening only because ZeroMQ would close the connections that came
 * through the listener with it. A connection that ends is not made again: frames may have been lost with it, so the
 * peer is.
 */
#define _GNU_SOURCE
#include "transport/net.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "graph/error.h"
#include "graph/spread.h"
#include "transport/net_inside.h"
#include "transport/park.h"

#define NS_PER_MS 1000000
#define BEATS_PER_LIMIT 20    /* a peer may have been silent for so much of the limit before it stops */
#define GREET_EXTRA_NS 2000000000 /* beyond the liveness limit, for connections to be made */
#define FRAMES_PER_TURN 64    /* taken in before the loop looks elsewhere */
#define LEAVE_NS 300000000    /* a BYE may be on its way when the other connection ends; and who leaves waits so long for
                                 those who leave at the same time */
#define ENDING_MS 20          /* between two looks while somebody leaves */
#define GLANCE_MS 5           /* between two looks at a ROUTER that a worker watches */
#define LINGER_EXTRA_MS 1000   /* beyond the liveness limit, for what was sent last to get away */
#define LINGER_FAILED_MS 500  /* the same when the session failed */
#define CONTROL_FRAMES 4096   /* beats, values and the like under way to one peer, at most */
#define VALUE_SLACK 4096
#define WAIT_BYTES 16          /* an entry of WAITS */

enum { STOP_NOW = 1, STOP_PARTED }; /* net->stop */

void peer_become(struct peer *peer, enum peer_state state)
{
    /* release: pairs with the load in peer_is() */
    atomic_store_explicit(&peer->state, state, memory_order_release);
}

void net_lose(struct net *net, uint32_t rank, const char *format, ...)
{
    char how[768];
    va_list list;
    struct peer *peer = &net->peers[rank];
    if (!peer_is(peer, PEER_HERE) && !peer_is(peer, PEER_ABSENT))
        return;
    va_start(list, format);
    vsnprintf(how, sizeof(how), format, list);
    va_end(list);
    peer_become(peer, PEER_LOST);
    net->hooks.lost(net->hooks.ctx, rank, how);
}

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

static bool socket_set(void *socket, int option, int value)
{
    return zmq_setsockopt(socket, option, &value, sizeof(value)) == 0;
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
    weir_status status = rendezvous_bind_address(net->env, endpoint, sizeof(endpoint));
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
        status = keys_server(&net->keys, net->router);
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
    net->tellings_end = &net->tellings;
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
        status = keys_client(&net->keys, peer->dealer);
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
    struct rendezvous rendezvous = {.zmq_context = net->zmq,
                                    .env = net->env,
                                    .keys = &net->keys,
                                    .zap = net->zap,
                                    .report = net->report,
                                    .plan = net->plan,
                                    .members = members};
    weir_status status = rendezvous_meet(&rendezvous);
    net->members = members;
    net->session = rendezvous.session;
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
            net_strange(net, "a message of a stranger");
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
static bool peer_ended(struct peer *peer)
{
    bool ended = false;
    zmq_msg_t part;
    zmq_msg_init(&part);
    /* an event comes in two parts: its number, in 16 bits, and more; and an address */
    while (peer->monitor && zmq_msg_recv(&part, peer->monitor, ZMQ_DONTWAIT) >= 0) {
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
            if (peer->ended_ns && now - peer->ended_ns > LEAVE_NS && peer_is(peer, PEER_ABSENT))
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

/* ---- routes ---- */

/* Ports that are counted, by actor, as messages number them (actors/build.c). */
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

/* Who shares a parcel, from its leader on. */
static void followers_list(struct net *net)
{
    for (uint32_t p = 0; p < net->plan->ports_count; p++)
        net->follower[p] = LINKS_NONE;
    for (uint32_t p = 0; p < net->plan->ports_count; p++) {
        const struct parcel *parcel = links_find(net->links, p);
        if (!parcel || parcel->leader == p)
            continue;
        net->follower[p] = net->follower[parcel->leader];
        net->follower[parcel->leader] = p;
    }
}

static bool parcel_room(struct net *net, struct parcel *parcel)
{
    size_t count = (size_t)net->plan->regsts[parcel->regst].slots * parcel->spans.count;
    if (parcel->to != net->env->rank)
        return true;
    parcel->data = calloc(count + 1, sizeof(*parcel->data));
    zmq_msg_t *frames = parcel->frames = calloc(count + 1, sizeof(zmq_msg_t));
    for (size_t i = 0; frames && i < count; i++)
        zmq_msg_init(&frames[i]);
    return parcel->data && frames;
}

/* With net->sockets held. */
static bool messages_take(struct net *net)
{
    struct message message;
    bool any = false;
    while (mailbox_take(&net->mailbox, &message)) {
        net_send_message(net, message);
        any = true;
    }
    if (any)
        net_flush(net);
    return any;
}

static void end_post(struct bus_end *end, struct message message)
{
    mailbox_put((struct mailbox *)end, message);
}

/* If somebody else is at the sockets, it may be the net thread, which looks into the mailbox again before it sleeps, or
 * another worker, which may have looked already; then the net thread sleeps, and is woken. */
static void end_flush(struct bus_end *end)
{
    struct net *net = (struct net *)((char *)end - offsetof(struct net, mailbox));
    if (pthread_mutex_trylock(&net->sockets)) {
        mailbox_call(&net->mailbox);
        return;
    }
    messages_take(net);
    pthread_mutex_unlock(&net->sockets);
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
    for (uint32_t i = 0; ok && i < links->parcels_count; i++) {
        const plan_regst *regst = &plan->regsts[links->parcels[i].regst];
        links->parcels[i].next_slot = regst->initial % (regst->slots ? regst->slots : 1);
        ok = parcel_room(net, &links->parcels[i]);
    }
    net->data = calloc(messages, sizeof(*net->data));
    if (!ok || !net->data || mailbox_open(&net->mailbox, messages, 0))
        return error_set(WEIR_E_MEMORY, "no memory for the links of rank %u", net->env->rank);
    net->mailbox.event_fd = net->event_fd;
    net->mailbox.end = (struct bus_end){.post = end_post, .flush = end_flush};
    for (uint32_t a = 0; a < plan->actors_count; a++)
        if (net->peers[net->rank_of[a]].wired)
            bus_attach(bus, a, &net->mailbox.end);
    return WEIR_OK;
}

/* ---- telling ---- */

static void event_set(int event_fd)
{
    uint64_t one = 1;
    if (write(event_fd, &one, sizeof(one)) < 0)
        return; /* full: it is set */
}

static void net_wake(struct net *net)
{
    event_set(net->event_fd);
}

static weir_status telling_add(struct net *net, struct telling *telling)
{
    pthread_mutex_lock(&net->lock);
    *net->tellings_end = telling;
    net->tellings_end = &telling->next;
    pthread_mutex_unlock(&net->lock);
    net_wake(net);
    return WEIR_OK;
}

weir_status net_tell(struct net *net, uint32_t rank, const struct wire_frame *frame, const void *payload,
                     size_t payload_bytes)
{
    struct telling *telling = malloc(sizeof(*telling) + payload_bytes);
    if (!telling)
        return error_set(WEIR_E_MEMORY, "no memory to send %zu bytes", payload_bytes);
    *telling = (struct telling){.rank = rank, .frame = *frame, .payload_bytes = payload_bytes};
    if (payload_bytes)
        memcpy(telling->payload, payload, payload_bytes);
    return telling_add(net, telling);
}

weir_status net_share(struct net *net, const struct parcel *parcel, uint32_t slot)
{
    struct telling *telling = calloc(1, sizeof(*telling));
    if (!telling)
        return error_set(WEIR_E_MEMORY, "no memory to send a slot");
    telling->rank = parcel->to;
    telling->parcel = parcel;
    telling->frame.data.slot = slot;
    return telling_add(net, telling);
}

static void telling_send(struct net *net, struct telling *telling)
{
    if (telling->parcel)
        net_send_parcel(net, telling->parcel, telling->frame.data.slot, true);
    for (uint32_t r = 0; !telling->parcel && r < net->env->size; r++)
        if (telling->rank == NET_ALL || telling->rank == r)
            net_send(net, r, &telling->frame, telling->payload, telling->payload_bytes);
}

/* Takes all that is to be told now. */
static struct telling *tellings_take(struct net *net)
{
    pthread_mutex_lock(&net->lock);
    struct telling *list = net->tellings;
    net->tellings = NULL;
    net->tellings_end = &net->tellings;
    pthread_mutex_unlock(&net->lock);
    return list;
}

static void tellings_send(struct net *net, struct telling *list)
{
    for (struct telling *next; list; list = next) {
        next = list->next;
        telling_send(net, list);
        free(list);
    }
}

struct net_life net_life_of(struct net *net, uint32_t rank)
{
    pthread_mutex_lock(&net->lock);
    struct net_life life = net->peers[rank].life;
    pthread_mutex_unlock(&net->lock);
    return life;
}

bool net_here(struct net *net, uint32_t rank)
{
    return peer_is(&net->peers[rank], PEER_HERE);
}

/* ---- the loop ---- */

static void beats_send(struct net *net)
{
    struct wire_frame frame = {.kind = WIRE_BEAT};
    net->hooks.beat(net->hooks.ctx, &frame);
    for (uint32_t r = 0; r < net->env->size; r++)
        net_send(net, r, &frame, NULL, 0);
}

/* A peer whose connection has ended may have said BYE on another one that is slower. */
static void peers_ended(struct net *net, int64_t now)
{
    for (uint32_t r = 0; r < net->env->size; r++) {
        struct peer *peer = &net->peers[r];
        if (peer_ended(peer) && !peer->ended_ns)
            peer->ended_ns = now;
        if (peer->ended_ns && now - peer->ended_ns > LEAVE_NS && peer_is(peer, PEER_HERE))
            net_lose(net, r, "its connection ended");
    }
}

static void peers_silent(struct net *net, int64_t now)
{
    for (uint32_t r = 0; r < net->env->size; r++) {
        if (!peer_is(&net->peers[r], PEER_HERE))
            continue;
        int64_t silent_ns = now - net_life_of(net, r).heard_ns;
        if (silent_ns > net->env->liveness_ns)
            net_lose(net, r, "nothing was heard from it for %.1f s", (double)silent_ns * 1e-9);
    }
}

/* This process, or its machine, stood still: what the peers sent meanwhile has to be read first. */
static void peers_forgive(struct net *net, int64_t now)
{
    pthread_mutex_lock(&net->lock);
    for (uint32_t r = 0; r < net->env->size; r++)
        net->peers[r].life.heard_ns = now;
    pthread_mutex_unlock(&net->lock);
}

static void net_time(struct net *net)
{
    int64_t now = park_now_ns();
    if (net->looked_ns && now - net->looked_ns > net->env->liveness_ns / 2)
        peers_forgive(net, now);
    net->looked_ns = now;
    peers_ended(net, now);
    if (now < net->next_beat_ns)
        return;
    net->next_beat_ns = now + net->beat_ns;
    beats_send(net);
    peers_silent(net, now);
}

static bool frames_take(struct net *net)
{
    int count = 0;
    while (count < FRAMES_PER_TURN && net_receive(net)) {
        net_handle(net, &net->incoming);
        count++;
    }
    return count > 0;
}

/* What was written to wake somebody up is read. */
static void event_clear(int event_fd)
{
    uint64_t count;
    while (read(event_fd, &count, sizeof(count)) > 0)
        continue; /* until there is none */
}

/* How long the net thread may sleep. */
static long sleep_ms(const struct net *net)
{
    int64_t left_ns = net->next_beat_ns - park_now_ns();
    long left_ms = left_ns > 0 ? (long)(left_ns / NS_PER_MS) + 1 : 0, most_ms = left_ms;
    if (net->worker_fd >= 0)
        most_ms = GLANCE_MS;
    if (net->leaving_ns && most_ms > ENDING_MS)
        most_ms = ENDING_MS;
    for (uint32_t r = 0; r < net->env->size; r++)
        if (net->peers[r].ended_ns && peer_is(&net->peers[r], PEER_HERE) && most_ms > ENDING_MS)
            most_ms = ENDING_MS;
    return left_ms < most_ms ? left_ms : most_ms;
}

/* Sleeps until something comes or time is due. The first item is the eventfd, the last the ROUTER. */
static void net_sleep(struct net *net, zmq_pollitem_t *items, int count)
{
    if (zmq_poll(items, net->worker_fd >= 0 ? count - 1 : count, sleep_ms(net)) > 0 && (items[0].revents & ZMQ_POLLIN))
        event_clear(net->event_fd);
    mailbox_awake(&net->mailbox);
}

/* ---- a worker at the ROUTER ---- */

/* Takes what there is; whether the worker may sleep now. *begun: it is to watch the ROUTER, too. */
static bool watch_turn(struct net *net, struct mailbox *mailbox, bool *begun)
{
    pthread_mutex_lock(&net->sockets);
    *begun = net->begun;
    bool busy = net->begun && frames_take(net);
    bool idle = !busy && !mailbox_pending(mailbox) && mailbox_asleep(mailbox);
    pthread_mutex_unlock(&net->sockets);
    return idle;
}

/* When `begun` becomes true the worker is woken; when it becomes false it will soon be told to end. */
static void watch_wait(struct mailbox_waiter *waiter, struct mailbox *mailbox)
{
    struct net *net = (struct net *)((char *)waiter - offsetof(struct net, waiter));
    while (!mailbox_pending(mailbox)) {
        bool begun;
        if (!watch_turn(net, mailbox, &begun))
            continue;
        struct pollfd fds[2] = {{.fd = net->worker_fd, .events = POLLIN}, {.fd = net->router_fd, .events = POLLIN}};
        if (poll(fds, begun ? 2 : 1, -1) > 0 && (fds[0].revents & POLLIN))
            event_clear(net->worker_fd);
        mailbox_awake(mailbox);
    }
}

weir_status net_watch(struct net *net, struct mailbox *mailbox, struct mailbox_waiter **waiter)
{
    size_t bytes = sizeof(net->router_fd);
    net->worker_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (net->worker_fd < 0 || zmq_getsockopt(net->router, ZMQ_FD, &net->router_fd, &bytes))
        return error_set(WEIR_E_MEMORY, "the worker cannot watch the network");
    net->waiter.wait = watch_wait;
    mailbox->event_fd = net->worker_fd;
    *waiter = &net->waiter;
    return WEIR_OK;
}

/* ---- the net thread ---- */

static zmq_pollitem_t *poll_items(const struct net *net, int *count)
{
    zmq_pollitem_t *items = calloc(2 + (size_t)net->env->size, sizeof(*items));
    if (!items)
        return NULL;
    items[0] = (zmq_pollitem_t){.fd = net->event_fd, .events = ZMQ_POLLIN};
    *count = 1;
    for (uint32_t r = 0; r < net->env->size; r++)
        if (net->peers[r].monitor)
            items[(*count)++] = (zmq_pollitem_t){.socket = net->peers[r].monitor, .events = ZMQ_POLLIN};
    items[(*count)++] = (zmq_pollitem_t){.socket = net->router, .events = ZMQ_POLLIN};
    return items;
}

static void deferred_handle(struct net *net)
{
    for (uint32_t i = 0; i < net->deferred_count; i++) {
        net_handle(net, &net->deferred[i]);
        incoming_clear(&net->deferred[i]);
        free(net->deferred[i].parts);
    }
    net->deferred_count = 0;
}

/* Whether this rank, which has said BYE, may go. What is on its way to a peer that goes at the same time would never
 * arrive, and closing the sockets would wait for it in vain; so the peers' own BYEs are awaited, but not for long. */
static bool net_parted(struct net *net)
{
    int64_t now = park_now_ns();
    if (!net->leaving_ns)
        net->leaving_ns = now;
    if (now - net->leaving_ns > LEAVE_NS)
        return true;
    for (uint32_t r = 0; r < net->env->size; r++)
        if (peer_is(&net->peers[r], PEER_HERE) && !net->peers[r].ended_ns)
            return false;
    return true;
}

static void net_loop(struct net *net, zmq_pollitem_t *items, int count)
{
    for (;;) {
        /* acquire: pairs with the store in net_stop(); what was told before it is sent first */
        uint32_t stop = atomic_load_explicit(&net->stop, memory_order_acquire);
        pthread_mutex_lock(&net->sockets);
        /* taken before the messages and sent behind them: a run's last messages were posted before the BYE was told, and
         * a peer listens to nothing behind that */
        struct telling *tellings = tellings_take(net);
        bool busy = messages_take(net) || tellings;
        tellings_send(net, tellings);
        busy |= frames_take(net);
        net_time(net);
        bool over = stop == STOP_NOW || (stop == STOP_PARTED && net_parted(net));
        bool idle = !over && !busy && mailbox_asleep(&net->mailbox);
        pthread_mutex_unlock(&net->sockets);
        if (over)
            return;
        if (idle)
            net_sleep(net, items, count);
    }
}

static void *net_main(void *argument)
{
    struct net *net = argument;
    int count;
    zmq_pollitem_t *items = poll_items(net, &count);
    if (items)
        net_loop(net, items, count);
    else
        net->hooks.broken(net->hooks.ctx, "no memory for the network's thread");
    free(items);
    return NULL;
}

weir_status net_start(struct net *net)
{
    sigset_t all, before;
    net->beat_ns = net->env->liveness_ns / BEATS_PER_LIMIT;
    peers_forgive(net, park_now_ns());
    pthread_mutex_lock(&net->sockets);
    deferred_handle(net);
    net->begun = true;
    pthread_mutex_unlock(&net->sockets);
    if (net->worker_fd >= 0)
        event_set(net->worker_fd);
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int failed = pthread_create(&net->thread, NULL, net_main, net);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        return error_set(WEIR_E_MEMORY, "no thread for the network");
    net->started = true;
    pthread_setname_np(net->thread, "weir-net");
    return WEIR_OK;
}

/* ---- the end ---- */

/* A worker that watches the ROUTER leaves it alone from now on: who is told of what comes in may be gone. */
static void net_deafen(struct net *net)
{
    pthread_mutex_lock(&net->sockets);
    net->begun = false;
    pthread_mutex_unlock(&net->sockets);
}

void net_stop(struct net *net, int64_t steps)
{
    struct wire_frame bye = {.kind = WIRE_BYE, .bye.steps = steps};
    if (!net)
        return;
    if (!net->started) {
        net_deafen(net);
        return;
    }
    int linger_ms = (int)(net->env->liveness_ns / NS_PER_MS) + LINGER_EXTRA_MS;
    if (steps >= 0)
        net_tell(net, NET_ALL, &bye, NULL, 0);
    /* release: pairs with the load in net_loop() */
    atomic_store_explicit(&net->stop, steps >= 0 ? STOP_PARTED : STOP_NOW, memory_order_release);
    net_wake(net);
    pthread_join(net->thread, NULL);
    net->started = false;
    net_deafen(net);
    for (uint32_t r = 0; r < net->env->size; r++)
        if (net->peers[r].dealer && peer_is(&net->peers[r], PEER_HERE) && !net->peers[r].ended_ns)
            socket_set(net->peers[r].dealer, ZMQ_LINGER, steps >= 0 ? linger_ms : LINGER_FAILED_MS);
}

static void peers_close(struct net *net)
{
    for (uint32_t r = 0; net->peers && r < net->env->size; r++) {
        if (net->peers[r].dealer)
            zmq_socket_monitor(net->peers[r].dealer, NULL, 0);
        if (net->peers[r].monitor)
            zmq_close(net->peers[r].monitor);
        if (net->peers[r].dealer)
            zmq_close(net->peers[r].dealer);
    }
    free(net->peers);
}

static void frames_close(struct net *net)
{
    for (uint32_t i = 0; net->links && i < net->links->parcels_count; i++) {
        const struct parcel *parcel = &net->links->parcels[i];
        zmq_msg_t *frames = parcel->frames;
        size_t count = (size_t)net->plan->regsts[parcel->regst].slots * parcel->spans.count;
        for (size_t f = 0; frames && f < count; f++)
            zmq_msg_close(&frames[f]);
    }
    for (uint32_t i = 0; i < net->deferred_count; i++) {
        incoming_clear(&net->deferred[i]);
        free(net->deferred[i].parts);
    }
    incoming_clear(&net->incoming);
    free(net->incoming.parts);
    free(net->deferred);
}

void net_close(struct net *net)
{
    if (!net)
        return;
    net_stop(net, -1);
    frames_close(net);
    peers_close(net);
    if (net->router) {
        zap_unwatch(net->zap, net->router);
        zmq_close(net->router);
    }
    zap_close(net->zap);
    if (net->zmq)
        zmq_ctx_term(net->zmq);
    for (struct telling *next, *telling = net->tellings; telling; telling = next) {
        next = telling->next;
        free(telling);
    }
    if (net->mailbox.ring)
        mailbox_close(&net->mailbox);
    if (net->event_fd >= 0)
        close(net->event_fd);
    if (net->worker_fd >= 0)
        close(net->worker_fd);
    free(net->rank_of);
    free(net->live_first);
    free(net->live);
    free(net->edge_first);
    free(net->edges);
    free(net->outstanding);
    free(net->behind);
    free(net->follower);
    free(net->data);
    pthread_mutex_destroy(&net->lock);
    pthread_mutex_destroy(&net->sockets);
    free(net);
}
