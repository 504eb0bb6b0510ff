/* transport/net/peers.h: the other ranks, as this one sees them: who is a neighbour, who is here, when each was last
 * heard.
 *
 *     ABSENT --HELLO--> HERE --BYE--> LEFT
 *        '---------------'- silent, cut off, or against the protocol -> LOST
 *
 * A rank's *neighbours* are those with which the plan has an edge, in either direction, and rank 0; rank 0's are all.
 * Both ends find the same, from the whole plan or from their parts. Signs of life, failures, marks of rounds and BYE go
 * between neighbours only; with others there is a connection only when a value has to go there.
 *
 * Owner: who holds the network's sockets, but for what is marked: any thread may ask for a peer's life and state.
 */
#ifndef TRANSPORT_NET_PEERS_H
#define TRANSPORT_NET_PEERS_H

#include <pthread.h>
#include <stdatomic.h>

#include "graph/plan/plan.h"
#include "transport/net/channel.h"
#include "transport/net/seal.h"

struct bulk_line;

enum peer_state { PEER_ABSENT, PEER_HERE, PEER_LEFT, PEER_LOST };

/* What a peer last said of itself. */
struct net_life {
    int64_t heard_ns; /* when (park_now_ns()) */
    uint64_t fired;
    int64_t step;
    uint32_t actor, state;
};

/* What goes to a peer, and comes from it, on one channel. */
struct peer_line {
    bool open;            /* HELLO was sent on it */
    uint64_t sent, heard; /* numbers of the next frames */
    int64_t heard_ns;     /* when the last came */
    int incoming_fd;      /* of the connection on which its frames come; -1: none that says when bytes came */
    unsigned char incoming_from[28]; /* the address at its other end: a descriptor may become another connection's */
};

struct peer {
    _Atomic uint32_t state;    /* any thread */
    _Atomic uint32_t bye_waits; /* the BYE to it waits to be sent; who makes it 0 subtracts it from byes_waiting */
    bool neighbour, edge;
    bool maps, hello;    /* this rank could map its memory; it has said the same of this rank's */
    bool wired;          /* slots of registers go to it, or come from it, over a connection */
    struct peer_line line[CHANNELS];
    int64_t ended_ns;    /* its connection ended without a BYE, then; 0: it did not */
    _Atomic int64_t heard_ns; /* any thread */
    int64_t signs_ns;         /* until when its signs of life are paid for; see peer_may_sign() */
    bool failed;              /* it has said FAIL */
    struct net_life life;     /* but heard_ns; under peers->lock */
    struct bulk_line *bulk;   /* borrowed; of one that is wired, when connections are made: goes for CHANNEL_BULK */
    uint32_t door_port;       /* where it is to be brought, as its HELLO said */
    uint64_t door_name;
    unsigned char secret[SEAL_SECRET_BYTES], own_secret[SEAL_SECRET_BYTES]; /* its, and that which it was told */
};

struct peers {
    struct peer *of;            /* owned; by rank; this rank's own means nothing */
    uint32_t count, me;
    uint32_t *neighbours;       /* owned */
    uint32_t neighbours_count;
    uint32_t here_count;        /* neighbours that are HERE and whose connections have not ended */
    uint32_t *ended;            /* owned: those that are HERE, and whose connection has ended */
    uint32_t ended_count;
    _Atomic uint32_t byes_waiting;
    pthread_mutex_t lock;       /* of lives */
};

weir_status peers_open(struct peers *peers, const weir_plan *plan, uint32_t count, uint32_t me);
void peers_close(struct peers *peers);

static inline bool peer_is(const struct peer *peer, enum peer_state state)
{
    /* acquire: pairs with the store in peer_become() */
    return atomic_load_explicit(&peer->state, memory_order_acquire) == (uint32_t)state;
}

void peer_become(struct peers *peers, uint32_t rank, enum peer_state state);

/* Its connection has ended, though it has not said BYE. */
void peer_ended(struct peers *peers, uint32_t rank, int64_t now);

/* The BYE to it has gone, or need not. Any thread. */
void peer_bye_gone(struct peers *peers, struct peer *peer);

/* Whether the peer may give one more sign of life (BEAT, WAITS) now: as many as PEER_SIGNS_PER_S of real time, and as
 * much as came in PEER_BACKLOG_NS more, which may have waited while this rank was itself stopped. */
#define PEER_SIGNS_PER_S 1000
#define PEER_BACKLOG_NS INT64_C(10000000000)
bool peer_may_sign(struct peer *peer, int64_t now);

/* Remembers the descriptor on which what the peer says comes. */
void peer_line_from(struct peer_line *line, int fd);

/* When bytes last came from the peer, on this line or any, of whatever is being received, as far as the system says; 0:
 * it does not. */
int64_t peer_line_bytes_ns(const struct peer_line *line, int64_t now);
int64_t peer_bytes_ns(const struct peer *peer, int64_t now);

#endif
