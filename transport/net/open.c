/* transport/net/open.c: how this rank's end of the bus comes to be: sockets, the meeting, HELLO from all neighbours.
 * See net.h.
 *
 * One ROUTER listens; what goes out goes through the two channels. Once all neighbours have said HELLO nobody but who
 * has a value to give is still to come; the ROUTER goes on listening, for those and because ZeroMQ would close the
 * connections that came through the listener with it. ZeroMQ makes a connection that has stood and ends again; but
 * frames may have been lost with it, so a peer that does not leave is lost (peer.c).
 *
 * The channel for signs of life is connected to every neighbour. A connection for register contents (bulk.h) follows
 * when both sides have said whether they share memory, to those with which there are edges and no memory in common.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "graph/base/error.h"
#include "transport/net/carrier.h"
#include "transport/net/inside.h"
#include "transport/mail/cores.h"
#include "transport/mail/park.h"

#define CONTROL_FRAMES 4096       /* beats, values and the like under way to one peer, at most */
#define VALUE_SLACK 4096
#define WAIT_BYTES 16             /* an entry of WAITS */
#define SOCKETS_MAX 64            /* connections are not counted */
#define GREET_LOOK_MS 50
#define DESCRIPTORS_OWN 24        /* of ZeroMQ, the threads and the program, at least */

/* ---- sockets ---- */

static weir_status zmq_failed(const char *what)
{
    return error_set(WEIR_E_PEER, "%s: %s", what, zmq_strerror(zmq_errno()));
}

/* Messages that can be under way to one peer over ZeroMQ. */
int net_frames_bound(const weir_plan *plan)
{
    uint64_t bound = CONTROL_FRAMES + (uint64_t)plan->shards_count;
    return bound < INT32_MAX ? (int)bound : INT32_MAX;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* The largest frame that a peer may send: of WAITS an entry for each end of its actors, each pull and each worker; a
 * shard, which may be a state, with as many values as are kept of it; a statement. */
uint64_t net_frame_bound(const weir_plan *plan)
{
    uint64_t ends = plan->ports_count + (uint64_t)plan->regsts_count + plan->hosts_count + plan->spaces_count;
    uint64_t bytes = larger(ends * WAIT_BYTES, NET_STATEMENT_BYTES);
    for (uint32_t i = 0; i < plan->shards_count; i++) {
        const plan_tensor *shard = &plan->tensors[plan->shards[i].i];
        bytes = larger(bytes, plan_tensor_bytes(shard) * larger(plan_kept_slots(plan, shard), 1));
    }
    return bytes + VALUE_SLACK;
}

static weir_status router_open(struct net *net, struct member *card)
{
    int frames = net_frames_bound(net->plan);
    void *router = net->inbox.router = zmq_socket(net->zmq, ZMQ_ROUTER);
    if (!router)
        return zmq_failed("no socket");
    weir_status status = keys_socket(router, (int64_t)net_frame_bound(net->plan), net->env->size);
    if (!status && zmq_setsockopt(router, ZMQ_RCVHWM, &frames, sizeof(frames)))
        status = zmq_failed("cannot set up a socket");
    if (!status)
        status = keys_bus_server(&net->keys, router);
    if (!status)
        status = zap_watch(net->zap, router);
    const struct carrier_here here = {.env = net->env, .router = router};
    if (!status)
        status = carriers_listen(&here, card);
    return status ? status : net_lines_open(net, card->tcp);
}

/* ZeroMQ's thread would inherit the mask of this one, which may have been bound. */
static void use_cores(void *zmq)
{
    for (int i = 0; i < cores_in_mask(); i++)
        if (cores_at((uint32_t)i) >= 0)
            zmq_ctx_set(zmq, ZMQ_THREAD_AFFINITY_CPU_ADD, cores_at((uint32_t)i));
}

/* A connection each way for every neighbour, and one with bulk. Where there are too few ZeroMQ tries on
 * without a word. */
static weir_status descriptors_suffice(const struct net *net)
{
    struct rlimit limit;
    uint64_t needed = 2 * (uint64_t)net->peers.neighbours_count + DESCRIPTORS_OWN;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= needed)
        return WEIR_OK;
    return error_set(WEIR_E_PEER, "rank %u has %u neighbours and needs %llu descriptors or more; it may have %llu "
                     "(ulimit -n)", net->env->rank, net->peers.neighbours_count, (unsigned long long)needed,
                     (unsigned long long)limit.rlim_cur);
}

static weir_status parts_open(struct net *net)
{
    weir_status status = outbox_open(&net->outbox);
    if (!status)
        status = peers_open(&net->peers, &(struct peers_opts){.plan = net->plan,
                                                              .count = net->env->size,
                                                              .me = net->env->rank,
                                                              .liveness_ns = net->env->liveness_ns,
                                                              .lost = net->hooks.lost,
                                                              .ctx = net->hooks.ctx});
    if (!status)
        status = descriptors_suffice(net);
    net->zmq = zmq_ctx_new();
    if (!status && !net->zmq)
        status = error_set(WEIR_E_MEMORY, "no memory for the network");
    if (status)
        return status;
    zmq_ctx_set(net->zmq, ZMQ_MAX_SOCKETS, SOCKETS_MAX);
    use_cores(net->zmq);
    status = keys_open(&net->keys, net->env);
    return status ? status : zap_open(&net->zap, net->zmq, &net->keys, net->report);
}

weir_status net_open(struct net **to, const weir_plan *plan, const struct cluster_env *env,
                     const struct report *report, const struct net_hooks *hooks, struct member *card)
{
    struct net *net = *to = aligned_alloc(_Alignof(struct net), sizeof(*net));
    if (!net)
        return error_set(WEIR_E_MEMORY, "no memory for the network");
    *net = (struct net){.env = env, .report = report, .hooks = *hooks, .plan = plan};
    net->watcher.worker_fd = -1;
    net->outbox.event_fd = -1;
    net->bulk.epoll_fd = -1;
    pthread_mutex_init(&net->sockets, NULL);
    weir_status status = parts_open(net);
    memcpy(card->key, net->keys.own_public_key, WEIR_KEY_BYTES);
    return status ? status : router_open(net, card);
}

/* ---- meeting ---- */

static weir_status channel_make(struct net *net, enum channel_number number)
{
    unsigned char id[NET_ROUTING_ID_BYTES];
    const struct channel_opts opts = {.zmq = net->zmq,
                                      .keys = &net->keys,
                                      .number = number,
                                      .ranks = net->env->size,
                                      .frames_max = net_frames_bound(net->plan),
                                      .routing_id = id,
                                      .routing_id_bytes = sizeof(id)};
    memcpy(id, &net->session, sizeof(net->session));
    memcpy(id + sizeof(net->session), &net->env->rank, sizeof(net->env->rank));
    id[NET_ROUTING_ID_BYTES - 1] = (unsigned char)number;
    return channel_open(&net->channels[number], &opts);
}

weir_status net_line_open(struct net *net, uint32_t rank, enum channel_number number)
{
    const struct member *me = &net->members[net->env->rank], *other = &net->members[rank];
    const struct carrier *carrier = carrier_of_frames(net->env, me, other);
    weir_status status = channel_connect(&net->channels[number], rank, carrier->endpoint(other), other->key);
    if (status)
        return error_set(status, "rank %u cannot connect to rank %u over %s: %s", net->env->rank, rank, carrier->name,
                         weir_error());
    return net_hello(net, rank, number);
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
    for (int c = 0; !status && c < CHANNELS; c++)
        status = channel_make(net, (enum channel_number)c);
    return status;
}

uint64_t net_session(const struct net *net)
{
    return net->session;
}

/* ---- greeting ---- */

/* Until all neighbours have said HELLO nothing else is looked at. */
static weir_status greet_take(struct net *net, uint32_t *missing)
{
    uint64_t most = (uint64_t)net_frames_bound(net->plan) * net->env->size;
    weir_status status = WEIR_OK;
    while (!status && net_receive(net)) {
        uint32_t rank;
        enum channel_number number;
        if (!net_identify(net, &net->inbox.incoming, &rank, &number)) {
            net_unknown(net, "a message of an unknown peer");
        } else if (number == CHANNEL_LIFE && peer_is(&net->peers.of[rank], PEER_ABSENT)) {
            net_handle(net, &net->inbox.incoming);
            *missing -= peer_is(&net->peers.of[rank], PEER_HERE);
            if (peer_is(&net->peers.of[rank], PEER_LOST))
                status = error_set(WEIR_E_PEER, "rank %u broke the protocol while the session opened", rank);
        } else {
            status = inbox_defer(&net->inbox, most);
        }
    }
    return status;
}

static weir_status greet_missing(const struct net *net, int64_t waited_ns)
{
    char list[256] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < net->peers.neighbours_count && used + 16 < sizeof(list); i++) {
        uint32_t rank = net->peers.neighbours[i];
        if (!peer_is(&net->peers.of[rank], PEER_HERE))
            used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%u", used ? ", " : "", rank);
    }
    return error_set(WEIR_E_PEER, "rank %u met all others, but heard no more of rank %s for %.1f s", net->env->rank,
                     list, (double)waited_ns * 1e-9);
}

/* The ranks that had not said HELLO when their connections ended. One that had is looked at again when the thread runs. */
static weir_status greet_ended(struct net *net, int64_t now)
{
    net_connections_look(net, now);
    for (uint32_t i = 0; i < net->peers.cut_count; i++) {
        uint32_t rank = net->peers.cut[i];
        const struct peer *peer = &net->peers.of[rank];
        if (peer_is(peer, PEER_ABSENT) && peer_was_cut(peer, now))
            return error_set(WEIR_E_PEER, "rank %u (pid %u on %s) ended while the session opened", rank,
                             net->members[rank].pid, net->members[rank].name);
    }
    return WEIR_OK;
}

/* The same for those whose connection for register contents has not come. */
static weir_status lines_ended(struct net *net, int64_t now)
{
    net_connections_look(net, now);
    for (uint32_t i = 0; i < net->bulk.lines_count; i++) {
        const struct bulk_line *line = net->bulk.lines[i];
        const struct peer *peer = &net->peers.of[line->rank];
        if (!line->stands && (peer_is(peer, PEER_LOST) || peer_was_cut(peer, now)))
            return error_set(WEIR_E_PEER, "rank %u (pid %u on %s) ended while the session opened", line->rank,
                             net->members[line->rank].pid, net->members[line->rank].name);
    }
    return WEIR_OK;
}

static weir_status lines_missing(const struct net *net, int64_t waited_ns)
{
    const struct bulk *bulk = &net->bulk;
    uint32_t rank = 0;
    for (uint32_t i = 0; i < bulk->lines_count; i++)
        rank = bulk->lines[i]->stands ? rank : bulk->lines[i]->rank;
    return error_set(WEIR_E_PEER, "rank %u met all others, but between it and rank %u there is no connection for "
                     "register contents after %.1f s (%s port %u)", net->env->rank, rank, (double)waited_ns * 1e-9,
                     rank < net->env->rank ? "that rank's" : "this rank's",
                     rank < net->env->rank ? net->peers.of[rank].door_port : net->lines.door.port);
}

static weir_status greet_wait(struct net *net)
{
    uint32_t missing = net->peers.neighbours_count;
    int64_t start = park_now_ns();
    for (;;) {
        weir_status status = greet_take(net, &missing);
        if (status || !missing)
            return status;
        int64_t now = park_now_ns();
        status = greet_ended(net, now);
        if (!status && now - start > net->env->join_ns)
            status = greet_missing(net, now - start);
        if (status)
            return status;
        zmq_pollitem_t item = {.socket = net->inbox.router, .events = ZMQ_POLLIN};
        zmq_poll(&item, 1, GREET_LOOK_MS);
    }
}

/* Until all lines stand. A message that comes meanwhile over ZeroMQ is kept. */
static weir_status lines_wait(struct net *net)
{
    int64_t start = park_now_ns();
    for (uint32_t missing, none = 0;;) {
        weir_status status = net_lines_turn(net, &missing);
        if (status || !missing)
            return status;
        int64_t now = park_now_ns();
        status = greet_take(net, &none);
        if (!status)
            status = lines_ended(net, now);
        if (!status && now - start > net->env->join_ns)
            status = lines_missing(net, now - start);
        if (status)
            return status;
        zmq_pollitem_t items[] = {{.socket = net->inbox.router, .events = ZMQ_POLLIN},
                                  {.fd = net->bulk.epoll_fd, .events = ZMQ_POLLIN}};
        zmq_poll(items, 2, bulk_rest(&net->bulk) ? GREET_LOOK_MS : 0);
    }
}

weir_status net_greet(struct net *net, const bool *mapped, bool *wired)
{
    const struct peers *peers = &net->peers;
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; !status && i < peers->neighbours_count; i++) {
        peers->of[peers->neighbours[i]].maps = mapped[peers->neighbours[i]];
        status = net_line_open(net, peers->neighbours[i], CHANNEL_LIFE);
    }
    if (!status)
        status = greet_wait(net);
    for (uint32_t i = 0; i < peers->neighbours_count; i++) {
        uint32_t rank = peers->neighbours[i];
        struct peer *peer = &peers->of[rank];
        wired[rank] = peer->wired = peer->edge && !(peer->maps && peer->hello);
    }
    if (!status)
        status = net_lines_begin(net);
    if (!status)
        status = lines_wait(net);
    net_lines_end(net);
    return status;
}
