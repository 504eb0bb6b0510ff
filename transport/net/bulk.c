/* transport/net/bulk.c: lines come to be, take turns, and go. See bulk.h.
 *
 * Of two ranks the higher one connects, to the door of which the other's HELLO told. All connections are made at the
 * same time and none is waited for alone; so it does not matter in which order ranks come to this.
 */
#include "transport/net/bulk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <unistd.h>

#include "graph/base/error.h"
#include "transport/line/carrier.h"
#include "transport/mail/park.h"
#include "transport/net/inside.h"

#define ASK_EACH 4 /* so few lines are asked one by one, without asking which of them can be read */
#define EVENTS 32

/* ---- life ---- */

/* By what makes streams; those of sockets are made one by one. */
static weir_status (*const carriers[CLUSTER_CARRIERS])(struct streams **streams, int epoll_fd) = {
    [CLUSTER_UCX] = streams_ucx};

weir_status bulk_open(struct net *net, const char *endpoint)
{
    struct bulk *bulk = &net->bulk;
    bulk->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    bulk->lines = calloc(net->env->size, sizeof(*bulk->lines));
    bulk->waiting = calloc(net->env->size, sizeof(*bulk->waiting));
    bulk->held = calloc(net->env->size, sizeof(*bulk->held));
    if (bulk->epoll_fd < 0 || !bulk->lines || !bulk->waiting || !bulk->held)
        return error_set(WEIR_E_MEMORY, "no memory for connections to %u ranks", net->env->size);
    weir_status status = sealing_open(&bulk->sealing);
    if (!status) {
        status = door_open(&bulk->door, bulk->epoll_fd, endpoint, net->env->ipc);
        bulk->door_open = true;
    }
    if (!status && carriers[net->env->carrier])
        status = carriers[net->env->carrier](&bulk->streams, bulk->epoll_fd);
    return status;
}

static void line_free(struct bulk_line *line)
{
    bulk_end(line);
    bulk_out_close(line);
    bulk_in_close(line);
    free(line);
}

void bulk_close(struct net *net)
{
    struct bulk *bulk = &net->bulk;
    bulk_meet_end(net);
    for (uint32_t i = 0; i < bulk->lines_count; i++)
        line_free(bulk->lines[i]);
    if (bulk->streams)
        bulk->streams->ops->close(bulk->streams, bulk->linger_ns);
    free(bulk->lines);
    free(bulk->waiting);
    free(bulk->held);
    sealing_close(bulk->sealing);
    if (bulk->epoll_fd >= 0)
        close(bulk->epoll_fd);
}

/* A peer that has left, or is lost, has ended already. */
void bulk_end(struct bulk_line *line)
{
    if (!line->stream)
        return;
    epoll_ctl(line->net->bulk.epoll_fd, EPOLL_CTL_DEL, line->stream->fd, NULL);
    measure_look(&line->measure, line->stream->fd);
    line->stream->ops->close(line->stream);
    line->stream = NULL;
    if (line->out.queue)
        bulk_queue_drop(line);
    peer_happens(&line->net->peers, line->rank, PEER_CUT, park_now_ns());
}

weir_status bulk_route(struct net *net)
{
    weir_status status = links_receive_open(net->route.links, net->route.arenas);
    for (uint32_t i = 0; !status && i < net->bulk.lines_count; i++) {
        status = bulk_out_open(net->bulk.lines[i]);
        if (!status)
            status = bulk_in_open(net->bulk.lines[i]);
    }
    return status;
}

/* ---- meeting ---- */

weir_status bulk_hello(struct net *net, uint32_t rank, struct wire_frame *hello)
{
    struct peer *peer = &net->peers.of[rank];
    if (!peer->edge)
        return WEIR_OK;
    if (getrandom(peer->own_secret, sizeof(peer->own_secret), 0) != sizeof(peer->own_secret))
        return error_set(WEIR_E_UNSUPPORTED, "the system has no random numbers");
    hello->hello.port = net->bulk.door.port;
    hello->hello.name = net->bulk.door.name;
    memcpy(hello->hello.secret, peer->own_secret, sizeof(peer->own_secret));
    return WEIR_OK;
}

/* What only the two ranks know, made for one purpose; the lower rank's secret first. */
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

static weir_status boxes_make(struct bulk_line *line)
{
    struct net *net = line->net;
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

/* The connection stands, and is the peer's; the line's from here on. */
static weir_status line_stands(struct bulk_line *line, int fd)
{
    struct net *net = line->net;
    struct peer_line *as = &net->peers.of[line->rank].line[CHANNEL_BULK];
    line->stream = net->bulk.streams ? net->bulk.streams->ops->make(net->bulk.streams, fd) : stream_socket(fd);
    if (!line->stream)
        return error_set(WEIR_E_MEMORY, "no memory for the connection to rank %u", line->rank);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = line};
    epoll_ctl(net->bulk.epoll_fd, EPOLL_CTL_DEL, fd, NULL); /* that it is being made */
    if (epoll_ctl(net->bulk.epoll_fd, EPOLL_CTL_ADD, fd, &event))
        return error_set(WEIR_E_MEMORY, "no memory to wait for rank %u", line->rank);
    as->open = true;
    as->sent = as->heard = 1; /* its first message was the greeting */
    as->heard_ns = line->taken_ns = park_now_ns();
    watch_connection(&as->incoming, net->bulk.streams ? -1 : fd);
    return boxes_make(line);
}

/* Whether the peer is heard on it. */
static weir_status line_meet(struct bulk_line *line)
{
    struct streams *streams = line->net->bulk.streams;
    if (!streams || !line->stream || line->stands) {
        line->stands = line->stream;
        return WEIR_OK;
    }
    weir_status status = streams->ops->meet(line->stream, line->out.box, line->in.box, &line->stands);
    return status ? error_set(status, "rank %u cannot bring register contents to rank %u and back over %s: %s",
                              line->net->env->rank, line->rank, cluster_carrier_name(line->net->env->carrier),
                              weir_error())
                  : WEIR_OK;
}

static weir_status line_connect(struct bulk_line *line)
{
    struct net *net = line->net;
    const struct peer *peer = &net->peers.of[line->rank];
    const struct member *other = &net->members[line->rank];
    const struct carrier *carrier = carrier_of_frames(net->env, &net->members[net->env->rank], other);
    bool local = carrier == &carrier_ipc && peer->door_name;
    weir_status status = local ? door_connect_local(net->bulk.epoll_fd, peer->door_name, &line->connecting)
                               : door_connect_tcp(net->bulk.epoll_fd, other->tcp, peer->door_port, &line->connecting);
    if (status)
        return error_set(status, "rank %u cannot connect to rank %u over %s for register contents: %s", net->env->rank,
                         line->rank, local ? carrier_ipc.name : carrier_tcp.name, weir_error());
    return WEIR_OK;
}

weir_status bulk_meet_begin(struct net *net)
{
    struct bulk *bulk = &net->bulk;
    weir_status status = WEIR_OK;
    for (uint32_t r = 0; !status && r < net->env->size; r++) {
        struct bulk_line *line = net->peers.of[r].wired ? calloc(1, sizeof(*line)) : NULL;
        if (!net->peers.of[r].wired)
            continue;
        if (!line)
            return error_set(WEIR_E_MEMORY, "no memory for the connection to rank %u", r);
        *line = (struct bulk_line){.net = net, .rank = r, .connecting = -1};
        net->peers.of[r].bulk = bulk->lines[bulk->lines_count++] = line;
        if (r < net->env->rank)
            status = line_connect(line);
    }
    return status;
}

static weir_status greet_other(struct bulk_line *line)
{
    struct net *net = line->net;
    struct door_greeting greeting = {.version = WIRE_VERSION, .rank = net->env->rank, .session = net->session};
    weir_status status = derive(net, line->rank, "ticket", true, greeting.ticket);
    int said = status ? -1 : door_say(line->connecting, &greeting);
    if (status || !said)
        return status;
    if (said < 0)
        return error_set(WEIR_E_PEER, "rank %u cannot connect to rank %u for register contents: %s", net->env->rank,
                         line->rank, strerror(errno));
    int fd = line->connecting;
    line->connecting = -1;
    return line_stands(line, fd);
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
        fd = door_take(&net->bulk.door, &greeting, &refused);
        struct bulk_line *line = fd >= 0 ? guest_line(net, &greeting) : NULL;
        if (line) {
            status = line_stands(line, fd);
        } else if (fd >= 0) {
            close(fd);
            refused = "a connection for register contents that is no rank's";
        }
        if (refused)
            net_unknown(net, refused);
    }
    return status;
}

weir_status bulk_meet_turn(struct net *net, uint32_t *missing)
{
    struct bulk *bulk = &net->bulk;
    weir_status status = guests_take(net);
    *missing = 0;
    if (bulk->streams)
        bulk->streams->ops->turn(bulk->streams);
    for (uint32_t i = 0; !status && i < bulk->lines_count; i++) {
        if (bulk->lines[i]->connecting >= 0)
            status = greet_other(bulk->lines[i]);
        if (!status)
            status = line_meet(bulk->lines[i]);
        *missing += !bulk->lines[i]->stands;
    }
    return status;
}

void bulk_meet_end(struct net *net)
{
    struct bulk *bulk = &net->bulk;
    if (bulk->door_open)
        door_close(&bulk->door);
    bulk->door_open = false;
    for (uint32_t i = 0; i < bulk->lines_count; i++) {
        if (bulk->lines[i]->connecting >= 0)
            close(bulk->lines[i]->connecting);
        bulk->lines[i]->connecting = -1;
    }
}

/* ---- turns ---- */

/* What another carrier could not take it takes when it moves. */
static void line_watch(struct bulk_line *line)
{
    if (line->net->bulk.streams || !line->stream || line->watches_writing == line->out.blocked)
        return;
    line->watches_writing = line->out.blocked;
    struct epoll_event event = {.events = EPOLLIN | (line->out.blocked ? EPOLLOUT : 0), .data.ptr = line};
    epoll_ctl(line->net->bulk.epoll_fd, EPOLL_CTL_MOD, line->stream->fd, &event);
}

bool bulk_flush(struct net *net, size_t most)
{
    struct bulk *bulk = &net->bulk;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < bulk->waiting_count; i++) {
        struct bulk_line *line = bulk->waiting[i];
        bool done = bulk_write(line, most);
        line_watch(line);
        line->out.listed = !done;
        if (!done)
            bulk->waiting[kept++] = line;
    }
    bulk->waiting_count = kept;
    return kept == 0;
}

/* Those that can be read; few are simply tried, and all of them where no descriptor tells. */
static bool lines_read(struct net *net, bool *drained)
{
    struct bulk *bulk = &net->bulk;
    struct epoll_event events[EVENTS];
    bool any = false;
    if (bulk->lines_count <= ASK_EACH || bulk->streams) {
        for (uint32_t i = 0; i < bulk->lines_count; i++)
            any |= bulk->lines[i]->stream && bulk_read(bulk->lines[i], drained);
        return any;
    }
    int count = epoll_wait(bulk->epoll_fd, events, EVENTS, 0);
    for (int i = 0; i < count; i++) {
        struct bulk_line *line = events[i].data.ptr;
        any |= (events[i].events & ~(uint32_t)EPOLLOUT) && line->stream && bulk_read(line, drained);
    }
    return any;
}

/* A line that was blocked may still be. */
bool bulk_may_write(const struct net *net)
{
    const struct bulk *bulk = &net->bulk;
    for (uint32_t i = 0; i < bulk->waiting_count; i++)
        if (!bulk->waiting[i]->out.blocked)
            return true;
    return false;
}

/* A line may be dead while other connections live: packets of one size or port are lost. Both ends of it have something
 * to send sooner or later, which is then never acknowledged. */
static void stuck_look(struct bulk_line *line, int64_t now)
{
    if (!line->stream->ops->under_way)
        return;
    uint64_t under_way = line->stream->ops->under_way(line->stream), taken = line->written - under_way;
    bool waits = under_way || line->out.blocked;
    if (!waits || taken != line->taken)
        line->taken_ns = now;
    line->taken = taken;
    peer_judge_stuck(&line->net->peers, line->rank, line->taken_ns, waits ? under_way + bulk_queued(line) : 0, now);
}

void bulk_look(struct net *net, int64_t now)
{
    for (uint32_t i = 0; i < net->bulk.lines_count; i++) {
        struct bulk_line *line = net->bulk.lines[i];
        if (!line->stream)
            continue;
        measure_look(&line->measure, line->stream->fd);
        stuck_look(line, now);
    }
}

bool bulk_turn(struct net *net, bool *drained)
{
    struct streams *streams = net->bulk.streams;
    bool any = streams && streams->ops->turn(streams);
    any |= lines_read(net, drained);
    if (net->bulk.waiting_count)
        bulk_flush(net, BULK_WRITE_TURN);
    return any || bulk_may_write(net);
}

/* Connections beside which another carrier's streams go say nothing any more but that they end: with that of a peer that
 * has gone. What it had sent still comes. */
static bool ends_look(struct bulk *bulk)
{
    struct epoll_event events[EVENTS];
    bool any = false;
    int count = epoll_wait(bulk->epoll_fd, events, EVENTS, 0);
    for (int i = 0; i < count; i++) {
        struct bulk_line *line = events[i].data.ptr;
        if (!line || !line->stands || !line->stream)
            continue;
        epoll_ctl(bulk->epoll_fd, EPOLL_CTL_DEL, line->stream->fd, NULL);
        peer_happens(&line->net->peers, line->rank, PEER_CUT, park_now_ns());
        any = true;
    }
    return any;
}

bool bulk_rest(struct net *net)
{
    struct bulk *bulk = &net->bulk;
    return !bulk->streams || (!ends_look(bulk) && bulk->streams->ops->rest(bulk->streams));
}
