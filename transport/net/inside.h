/* transport/net/inside.h: what open.c (sockets, meeting), route.c (tables), net.c (the thread), in.c (frames
 * that come) and out.c (frames that go) share. See net.h. */
#ifndef TRANSPORT_NET_INSIDE_H
#define TRANSPORT_NET_INSIDE_H

#include <pthread.h>
#include <stdatomic.h>
#include <zmq.h>

#include "transport/mail/mailbox.h"
#include "transport/net/net.h"

#define NET_IDENTITY_BYTES 12 /* session, rank; little-endian */
#define NET_WORDS_MAX 1024    /* bus messages in one frame */
#define NET_LEAVE_NS 300000000 /* a BYE may be on its way when the other connection ends; and who leaves waits so long
                                  for those who leave at the same time */

enum peer_state { PEER_ABSENT, PEER_HERE, PEER_LEFT, PEER_LOST };

struct peer {
    void *dealer;        /* to it; NULL: this rank itself */
    void *monitor;       /* tells when that connection ends */
    _Atomic uint32_t state;
    bool connected;      /* the connection to it has stood */
    bool hello;          /* it has said it could map this rank's memory */
    bool wired;
    uint64_t sent, heard; /* numbers of the next frames */
    int64_t ended_ns;    /* its connection ended without a BYE, then; 0: it did not */
    struct net_life life; /* under net->lock */
    uint32_t words_count;
    uint32_t data_count; /* slots in net->data that go to it */
    uint64_t words[NET_WORDS_MAX];
};

/* A message of several frames, as it came. */
struct incoming {
    zmq_msg_t *parts; /* owned; `room` of them */
    uint32_t count, room;
};

/* A slot that is to be sent, when the messages that may go with it have been gathered. */
struct outgoing_data {
    const struct transfer *transfer;
    uint32_t slot;
};

/* A frame to be sent for another thread. */
struct request {
    struct request *next;
    uint32_t rank;
    struct wire_frame frame;
    const struct transfer *transfer; /* DATA: its payload lies in the slot */
    size_t payload_bytes;
    unsigned char payload[];
};

struct net {
    const struct cluster_env *env;
    const struct report *report;
    struct net_hooks hooks;
    struct keys keys;
    struct zap *zap;
    void *zmq;
    void *router;
    int event_fd;
    uint64_t session;
    struct member *members; /* borrowed */
    struct peer *peers;     /* owned; by rank */

    /* route */
    const weir_plan *plan;
    struct links *links;
    const struct arena *arenas;
    const struct bus *bus;
    struct mailbox mailbox; /* the owner is who holds `sockets` */
    uint32_t *rank_of;      /* by actor */
    struct outgoing_data *data; /* what READYs in the mailbox carry; room for all that can be under way */
    uint32_t data_count;
    uint32_t *outstanding;  /* by plan port that crosses: slots that were made ready and not freed */
    uint32_t *behind;       /* by plan port that shares a transfer with its leader: slots that came and were not yet made
                               ready to it */
    uint32_t *follower;     /* by plan port with a transfer: the next of those who share it; LINKS_NONE */

    struct mailbox_waiter waiter; /* of the worker that watches the ROUTER */
    int worker_fd;          /* an eventfd that wakes it; -1: none does */
    int router_fd;          /* readable when something may have happened at the ROUTER */
    bool begun;             /* frames may be handled: what came early has been, and net_stop() has not */

    pthread_t thread;
    bool started;
    _Atomic uint32_t stop;
    _Atomic uint32_t loop_state;
    pthread_mutex_t sockets; /* of all of the above: who holds it takes messages and frames, and sends */
    pthread_mutex_t lock;   /* of requests and of peers' lives; held for a few instructions */
    struct request *requests, **requests_end;
    struct incoming incoming;
    struct incoming *deferred; /* came before the links were there */
    uint32_t deferred_count, deferred_room;
    int64_t leaving_ns;     /* since when it only waits for the others' BYE; 0: not yet */
    int64_t looked_ns;      /* when the loop last came by */
    int64_t beat_ns;        /* between beats */
    int64_t next_beat_ns;
    int64_t unknown_ns;     /* when an unknown peer was last reported */
};

static inline struct peer *net_peer(struct net *net, uint32_t rank)
{
    return rank < net->env->size && rank != net->env->rank ? &net->peers[rank] : NULL;
}

static inline bool peer_is(const struct peer *peer, enum peer_state state)
{
    /* acquire: pairs with the store in peer_become() */
    return atomic_load_explicit(&peer->state, memory_order_acquire) == (uint32_t)state;
}

static inline bool socket_set(void *socket, int option, int value)
{
    return zmq_setsockopt(socket, option, &value, sizeof(value)) == 0;
}

void peer_become(struct peer *peer, enum peer_state state);

/* ---- the two ends of an edge (a plan port) ---- */

static inline uint32_t net_reader_rank(const struct net *net, uint32_t edge)
{
    return net->rank_of[net->plan->ports[edge].actor.i];
}

/* UINT32_MAX: it leads from a constant. */
static inline uint32_t net_producer_rank(const struct net *net, uint32_t edge)
{
    uint32_t producer = net->plan->regsts[net->plan->ports[edge].regst.i].producer.i;
    return producer == PLAN_NONE ? UINT32_MAX : net->rank_of[producer];
}

static inline uint32_t net_slots(const struct net *net, uint32_t edge)
{
    return net->plan->regsts[net->plan->ports[edge].regst.i].slots;
}

/* net.c */
void net_lose(struct net *net, uint32_t rank, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* open.c */
bool peer_ended(struct peer *peer);

/* out.c */
void net_end_open(struct net *net); /* the mailbox becomes an end of the bus */
bool net_take_messages(struct net *net); /* sends what is in the mailbox; with net->sockets held */
void net_send(struct net *net, uint32_t rank, struct wire_frame *frame, const void *payload, size_t payload_bytes);
void net_send_transfer(struct net *net, const struct transfer *transfer, uint32_t slot, bool initial);
void net_send_message(struct net *net, struct message message);
void net_flush(struct net *net);

/* in.c */
void net_unknown(struct net *net, const char *what);
bool net_receive(struct net *net); /* one message, if there is one, into net->incoming */
void net_handle(struct net *net, struct incoming *in);
void incoming_clear(struct incoming *in);
bool net_identify(struct net *net, const struct incoming *in, uint32_t *rank);

#endif
