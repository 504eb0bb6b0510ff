/* transport/net/inside.h: struct net, which puts the parts together, and what the files that work on it share. See
 * net.h.
 *
 *     open.c   sockets, the meeting, HELLO          in.c     what comes, held against what may come
 *     route.c  what crosses, and credits            out.c    frames that go
 *     life.c   beats, when what is looked at        net.c    the thread, the worker at the ROUTER
 *     close.c  BYE, and the end                      lines.c  connections for register contents
 *
 *     peer.h   the other ranks      channel.h  the ways out      outbox.h  requests of others
 *     route.h  what crosses         inbox.h    the way in        carrier.h what takes frames
 *     transport/line/bulk.h   register contents and messages, with door.h, stream.h, seal.h
 */
#ifndef TRANSPORT_NET_INSIDE_H
#define TRANSPORT_NET_INSIDE_H

#include <pthread.h>
#include <stdatomic.h>
#include <zmq.h>

#include "transport/line/bulk.h"
#include "transport/line/door.h"
#include "transport/mail/mailbox.h"
#include "transport/net/channel.h"
#include "transport/net/inbox.h"
#include "transport/net/net.h"
#include "transport/net/outbox.h"
#include "transport/net/peer.h"
#include "transport/net/route.h"

#define NET_ROUTING_ID_BYTES 13 /* session, rank, channel; little-endian */

/* When things were last done, and are due. The times of the thread that holds the sockets. */
struct net_clock {
    int64_t looked_ns;    /* when the loop last came by */
    int64_t beat_ns;      /* between beats */
    int64_t next_beat_ns;
    bool told_failed;     /* a peer has said that the session failed: who leaves waits for nobody */
    int64_t leaving_ns;   /* since when it leaves */
};

/* The worker that watches the ROUTER. */
struct net_watcher {
    struct mailbox_waiter waiter;
    int worker_fd; /* an eventfd that wakes it; -1: none does; owned */
    int router_fd; /* readable when something may have happened at the ROUTER */
    int64_t yield_ns; /* from when on it yields where it spins; the worker's own */
    _Atomic bool watching; /* it has nothing else to do now: what comes is its */
};

/* Lines are made while a session opens. */
struct net_lines {
    struct bulk_owner owner;
    struct door door; /* where other ranks bring theirs */
    bool door_open;
};

struct net {
    const struct cluster_env *env; /* borrowed, as the plan, the report and the members */
    const struct report *report;
    const weir_plan *plan;
    struct member *members;
    struct net_hooks hooks;
    struct keys keys;
    struct zap *zap;
    void *zmq;
    uint64_t session;

    struct peers peers;
    struct channel channels[CHANNELS];
    struct bulk bulk;
    struct net_lines lines;
    struct inbox inbox;
    struct outbox outbox; /* any thread */
    struct net_clock clock;
    _Atomic uint64_t arriving; /* beats in which register contents were coming in; any thread reads it */
    struct net_watcher watcher;
    struct route route;

    pthread_mutex_t sockets; /* who holds it owns all of the above that has no other owner */
    bool begun;             /* frames may be handled: what came early has been, and net_stop() has not */
    pthread_t thread;
    bool started;
    _Atomic uint32_t stop;
};

static inline struct peer *net_peer(struct net *net, uint32_t rank)
{
    return rank < net->env->size && rank != net->env->rank ? &net->peers.of[rank] : NULL;
}

static inline uint32_t net_slots(const struct net *net, uint32_t edge)
{
    return net->plan->regsts[net->plan->ports[edge].regst.i].slots;
}

/* The ranks of an edge's two ends; UINT32_MAX: it leads from a constant or another program, and carries no messages. */
static inline uint32_t net_reader_rank(const struct net *net, uint32_t edge)
{
    return net->route.rank_of[net->plan->ports[edge].actor.i];
}

static inline uint32_t net_producer_rank(const struct net *net, uint32_t edge)
{
    const plan_port *port = &net->plan->ports[edge];
    return plan_port_counts(net->plan, port) ? net->route.rank_of[net->plan->regsts[port->regst.i].producer.i] : UINT32_MAX;
}

/* Whether the edge is one between here and the peer. */
static inline bool net_edge_with(const struct net *net, uint32_t edge, uint32_t rank)
{
    uint32_t producer = net_producer_rank(net, edge), reader = net_reader_rank(net, edge), me = net->env->rank;
    return (producer == rank && reader == me) || (producer == me && reader == rank);
}

/* open.c */
weir_status net_line_open(struct net *net, uint32_t rank, enum channel_number number);
int net_frames_bound(const weir_plan *plan);
uint64_t net_frame_bound(const weir_plan *plan); /* bytes of what the session says, at most */

/* out.c */
void net_end_open(struct net *net); /* the mailbox becomes an end of the bus */
bool net_take_messages(struct net *net); /* what is in the mailbox goes to the lines; with net->sockets held */
weir_status net_hello(struct net *net, uint32_t rank, enum channel_number number);
void net_last_word(struct net *net, uint32_t rank, int64_t steps); /* BYE, or the answer to that of the peer */
void net_send(struct net *net, uint32_t rank, struct wire_frame *frame, zmq_msg_t *payload); /* NULL: none; it stays */
void net_send_message(struct net *net, struct message message);
void net_requests_send(struct net *net, struct request *list);

/* in.c */
void net_unknown(struct net *net, const char *what);
bool net_receive(struct net *net); /* one message, if there is one, into net->inbox */
void net_handle(struct net *net, struct incoming *in);
struct net_bytes {
    const void *data; /* NULL: there are none */
    size_t count;
};
void net_frame(struct net *net, uint32_t rank, enum channel_number number, const struct net_bytes *header,
               const struct net_bytes *payload);
void net_words(struct net *net, uint32_t rank, const unsigned char *words, uint32_t count);
struct transfer *net_slot_due(struct net *net, uint32_t rank, const struct bulk_head *head); /* NULL: it may not come */
void net_slot_came(struct net *net, struct transfer *transfer, bool initial);
bool net_identify(struct net *net, const struct incoming *in, uint32_t *rank, enum channel_number *number);

/* life.c */
void net_connections_look(struct net *net, int64_t now); /* which have ended */
void net_forgive(struct net *net, int64_t now);          /* all have been heard now */
void net_time(struct net *net, bool drained);            /* what is due; drained: nothing waits to be taken in */

/* lines.c */
void net_own_lines(struct net *net); /* makes net->lines.owner */
weir_status net_lines_open(struct net *net, const char *endpoint);
weir_status net_lines_hello(struct net *net, uint32_t rank, struct wire_frame *hello); /* what the peer has to know to connect */
weir_status net_lines_begin(struct net *net); /* connections with all ranks on the wire; turns until *missing is 0; and the end */
weir_status net_lines_turn(struct net *net, uint32_t *missing);
void net_lines_end(struct net *net);

/* close.c */
enum { STOP_NOW = 1, STOP_PARTED }; /* net->stop */
bool net_parted(struct net *net);

#endif
