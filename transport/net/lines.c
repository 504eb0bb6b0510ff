/* transport/net/lines.c: lines (transport/line/bulk.h) between this rank and those on the wire: how they are made while a session opens,
 * and what they ask and tell.
 *
 * The higher one of two ranks connects, to the door of which the other's HELLO told. All connections are made at the
 * same time and none is waited for alone; so it does not matter in which order ranks come to this.
 */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "graph/base/error.h"
#include "transport/net/carrier.h"
#include "transport/mail/park.h"
#include "transport/net/inside.h"

/* ---- what lines ask and tell ---- */

static struct net *net_of(const struct bulk_owner *owner)
{
    return (struct net *)((char *)owner - offsetof(struct net, lines.owner));
}

static void line_cut(struct bulk_owner *owner, uint32_t rank)
{
    peer_happens(&net_of(owner)->peers, rank, PEER_CUT, park_now_ns());
}

static void line_word_gone(struct bulk_owner *owner, uint32_t rank)
{
    peer_happens(&net_of(owner)->peers, rank, PEER_WORD_GONE, 0);
}

static void line_heard(struct bulk_owner *owner, uint32_t rank)
{
    struct peer *peer = &net_of(owner)->peers.of[rank];
    int64_t now = peer->line[CHANNEL_BULK].heard_ns = park_now_ns();
    atomic_store_explicit(&peer->heard_ns, now, memory_order_relaxed);
}

static void line_lose(struct bulk_owner *owner, uint32_t rank, const char *how)
{
    peer_lose(&net_of(owner)->peers, rank, "%s", how);
}

static void line_stuck(struct bulk_owner *owner, uint32_t rank, int64_t taken_ns, uint64_t unsent, int64_t now)
{
    peer_judge_stuck(&net_of(owner)->peers, rank, taken_ns, unsent, now);
}

static bool line_over(const struct bulk_owner *owner, uint32_t rank)
{
    return peer_is_over(&net_of(owner)->peers.of[rank]);
}

static struct transfer *line_slot_due(struct bulk_owner *owner, uint32_t rank, const struct bulk_head *head)
{
    return net_slot_due(net_of(owner), rank, head);
}

static void line_slot_came(struct bulk_owner *owner, struct transfer *transfer, bool initial)
{
    net_slot_came(net_of(owner), transfer, initial);
}

static void line_words(struct bulk_owner *owner, uint32_t rank, const unsigned char *words, uint32_t count)
{
    net_words(net_of(owner), rank, words, count);
}

static void line_frame(struct bulk_owner *owner, uint32_t rank, const void *header, size_t header_bytes, const void *payload,
                       size_t payload_bytes)
{
    net_frame(net_of(owner), rank, CHANNEL_BULK, &(struct net_bytes){header, header_bytes},
              &(struct net_bytes){payload, payload_bytes});
}

static void line_broken(struct bulk_owner *owner, const char *what)
{
    struct net *net = net_of(owner);
    net->hooks.broken(net->hooks.ctx, what);
}

static uint32_t line_words_most(const struct bulk_owner *owner, uint32_t rank)
{
    const struct net *net = net_of(owner);
    uint32_t words = 0;
    for (uint32_t p = 0; p < net->plan->ports_count; p++)
        if (net_edge_with(net, p, rank))
            words += 2 * net_slots(net, p);
    return words;
}

void net_own_lines(struct net *net)
{
    net->lines.owner = (struct bulk_owner){.cut = line_cut,
                                           .word_gone = line_word_gone,
                                           .heard = line_heard,
                                           .lose = line_lose,
                                           .stuck = line_stuck,
                                           .over = line_over,
                                           .slot_due = line_slot_due,
                                           .slot_came = line_slot_came,
                                           .words = line_words,
                                           .frame = line_frame,
                                           .broken = line_broken,
                                           .words_most = line_words_most};
    net->bulk.owner = &net->lines.owner;
    net->bulk.frame_most = net_frame_bound(net->plan);
}

/* ---- making them ---- */

weir_status net_lines_open(struct net *net, const char *endpoint)
{
    net_own_lines(net);
    weir_status status = bulk_open(&net->bulk, &net->lines.owner, net->env->size,
                                   net->env->carriers & CLUSTER_UCX ? streams_ucx : NULL);
    if (status)
        return status;
    net->lines.door_open = true;
    return door_open(&net->lines.door, net->bulk.epoll_fd, endpoint, net->env->carriers & CLUSTER_IPC);
}

weir_status net_lines_hello(struct net *net, uint32_t rank, struct wire_frame *hello)
{
    struct peer *peer = &net->peers.of[rank];
    if (!peer->edge)
        return WEIR_OK;
    if (getrandom(peer->own_secret, sizeof(peer->own_secret), 0) != sizeof(peer->own_secret))
        return error_set(WEIR_E_UNSUPPORTED, "the system has no random numbers");
    hello->hello.port = net->lines.door.port;
    hello->hello.name = net->lines.door.name;
    memcpy(hello->hello.secret, peer->own_secret, sizeof(peer->own_secret));
    return WEIR_OK;
}

/* Makes a key that only the two ranks know, for one purpose; the lower rank's secret first. */
static weir_status derive(const struct net *net, uint32_t rank, const char *label, bool outwards,
                          unsigned char key[SEAL_SECRET_BYTES])
{
    const struct peer *peer = &net->peers.of[rank];
    uint32_t me = net->env->rank;
    unsigned char secrets[2 * SEAL_SECRET_BYTES];
    memcpy(secrets + (me < rank ? 0 : SEAL_SECRET_BYTES), peer->own_secret, SEAL_SECRET_BYTES);
    memcpy(secrets + (me < rank ? SEAL_SECRET_BYTES : 0), peer->secret, SEAL_SECRET_BYTES);
    weir_status status = seal_derive(net->bulk.sealing, secrets, net->session, label, outwards ? me : rank,
                                     outwards ? rank : me, key);
    explicit_bzero(secrets, sizeof(secrets));
    return status;
}

static weir_status boxes_make(struct net *net, struct bulk_line *line)
{
    unsigned char key[SEAL_SECRET_BYTES];
    if (!net->keys.curve)
        return WEIR_OK;
    weir_status status = derive(net, line->rank, "register contents", true, key);
    if (!status)
        status = seal_box_new(net->bulk.sealing, key, true, &line->out.box);
    if (!status)
        status = derive(net, line->rank, "register contents", false, key);
    if (!status)
        status = seal_box_new(net->bulk.sealing, key, false, &line->in.box);
    explicit_bzero(key, sizeof(key));
    return status;
}

static weir_status line_stands(struct net *net, struct bulk_line *line, int fd)
{
    struct peer_line *as = &net->peers.of[line->rank].line[CHANNEL_BULK];
    weir_status status = bulk_line_stands(line, fd);
    if (status)
        return status;
    as->open = true;
    as->sent = as->heard = 1; /* its first message was the greeting */
    as->heard_ns = line->taken_ns;
    watch_connection(&as->incoming, net->bulk.streams ? -1 : fd);
    return boxes_make(net, line);
}

/* Whether the peer is heard on it. */
static weir_status line_meet(const struct net *net, struct bulk_line *line)
{
    struct streams *streams = net->bulk.streams;
    if (!streams || !line->stream || line->stands) {
        line->stands = line->stream;
        return WEIR_OK;
    }
    weir_status status = streams->ops->meet(line->stream, line->out.box, line->in.box, &line->stands);
    return status ? error_set(status, "rank %u cannot bring register contents to rank %u and back over ucx: %s",
                              net->env->rank, line->rank, weir_error())
                  : WEIR_OK;
}

/* Whether the two ranks' connection is a Unix socket; else it is TCP. */
static bool is_local(const struct net *net, uint32_t rank)
{
    const struct member *me = &net->members[net->env->rank], *other = &net->members[rank];
    return carrier_of_frames(net->env, me, other) == &carrier_ipc && net->peers.of[rank].door_name;
}

/* Whether one that is allowed carries register contents between the two. Over UCX their connection carries none. */
static weir_status find_carrier(const struct net *net, uint32_t rank)
{
    char list[CLUSTER_CARRIERS_BYTES];
    unsigned carrying = CLUSTER_UCX | CLUSTER_TCP | (is_local(net, rank) ? CLUSTER_IPC : 0);
    if (net->env->carriers & carrying)
        return WEIR_OK;
    return error_set(WEIR_E_ARGUMENT, "rank %u (%s) and rank %u (%s) share no memory, and WEIR_CARRIER=%s allows nothing else "
                     "that carries register contents between them: add tcp or ucx, or on one host ipc, on all ranks",
                     net->env->rank, net->members[net->env->rank].name, rank, net->members[rank].name,
                     cluster_carriers_text(net->env->carriers, list));
}

static weir_status line_connect(const struct net *net, struct bulk_line *line)
{
    const struct peer *peer = &net->peers.of[line->rank];
    const struct member *other = &net->members[line->rank];
    bool local = is_local(net, line->rank);
    weir_status status = local ? door_connect_local(net->bulk.epoll_fd, peer->door_name, &line->connecting)
                               : door_connect_tcp(net->bulk.epoll_fd, other->tcp, peer->door_port, &line->connecting);
    if (status)
        return error_set(status, "rank %u cannot connect to rank %u over %s for register contents: %s", net->env->rank,
                         line->rank, local ? carrier_ipc.name : carrier_tcp.name, weir_error());
    return WEIR_OK;
}

weir_status net_lines_begin(struct net *net)
{
    weir_status status = WEIR_OK;
    for (uint32_t r = 0; !status && r < net->env->size; r++) {
        if (!net->peers.of[r].wired)
            continue;
        struct bulk_line *line = net->peers.of[r].bulk = bulk_line_new(&net->bulk, r);
        if (!line)
            return error_set(WEIR_E_MEMORY, "no memory for the connection to rank %u", r);
        status = find_carrier(net, r);
        if (!status && r < net->env->rank)
            status = line_connect(net, line);
    }
    return status;
}

static weir_status greet_other(struct net *net, struct bulk_line *line)
{
    struct door_greeting greeting = {.version = WIRE_VERSION, .rank = net->env->rank, .session = net->session};
    weir_status status = derive(net, line->rank, "ticket", true, greeting.ticket);
    int sent = status ? -1 : door_say(line->connecting, &greeting);
    if (status || !sent)
        return status;
    if (sent < 0)
        return error_set(WEIR_E_PEER, "rank %u cannot connect to rank %u for register contents: %s", net->env->rank,
                         line->rank, strerror(errno));
    int fd = line->connecting;
    line->connecting = -1;
    return line_stands(net, line, fd);
}

/* All bytes are looked at, wherever they begin to differ. */
static bool tickets_equal(const unsigned char *a, const unsigned char *b)
{
    unsigned char differ = 0;
    for (int i = 0; i < SEAL_SECRET_BYTES; i++)
        differ |= a[i] ^ b[i];
    return !differ;
}

/* Whose connection it is; NULL: nobody's who may come. */
static struct bulk_line *guest_line(struct net *net, const struct door_greeting *greeting)
{
    unsigned char ticket[SEAL_SECRET_BYTES];
    uint32_t rank = greeting->rank;
    if (greeting->version != WIRE_VERSION || greeting->session != net->session || rank >= net->env->size ||
        rank <= net->env->rank || !net->peers.of[rank].bulk || net->peers.of[rank].bulk->stream ||
        derive(net, rank, "ticket", false, ticket) || !tickets_equal(ticket, greeting->ticket))
        return NULL;
    return net->peers.of[rank].bulk;
}

static weir_status guests_take(struct net *net)
{
    struct door_greeting greeting;
    const char *refused;
    weir_status status = WEIR_OK;
    for (int fd = 0; !status && fd >= 0;) {
        fd = door_take(&net->lines.door, &greeting, &refused);
        struct bulk_line *line = fd >= 0 ? guest_line(net, &greeting) : NULL;
        if (line) {
            status = line_stands(net, line, fd);
        } else if (fd >= 0) {
            close(fd);
            refused = "a connection for register contents that is no rank's";
        }
        if (refused)
            net_unknown(net, refused);
    }
    return status;
}

weir_status net_lines_turn(struct net *net, uint32_t *missing)
{
    struct bulk *bulk = &net->bulk;
    weir_status status = guests_take(net);
    *missing = 0;
    if (bulk->streams)
        bulk->streams->ops->turn(bulk->streams);
    for (uint32_t i = 0; !status && i < bulk->lines_count; i++) {
        if (bulk->lines[i]->connecting >= 0)
            status = greet_other(net, bulk->lines[i]);
        if (!status)
            status = line_meet(net, bulk->lines[i]);
        *missing += !bulk->lines[i]->stands;
    }
    return status;
}

void net_lines_end(struct net *net)
{
    struct bulk *bulk = &net->bulk;
    if (net->lines.door_open)
        door_close(&net->lines.door);
    net->lines.door_open = false;
    for (uint32_t i = 0; i < bulk->lines_count; i++) {
        if (bulk->lines[i]->connecting >= 0)
            close(bulk->lines[i]->connecting);
        bulk->lines[i]->connecting = -1;
    }
}
