/* transport/net/peer.h: the other ranks, as this one sees them, and every judgement about whether one still lives.
 *
 *               HELLO          BYE                    last word gone
 *     ABSENT ----------> HERE ------> PARTING --------------------------> LEFT
 *        |                 |                      BYE answered              ^
 *        |                 |------------------------------------------------'
 *        '-----------------+--- silent, cut off, stuck, or against the protocol ---> LOST
 *
 * A rank that closes its session says BYE to its peers. A peer that goes on answers the BYE, and a peer that closes its
 * own session at the same time has said BYE itself; both are its *last word*, behind which it says nothing. So each of
 * the two knows when the other has read all that was sent to it, and a connection is closed only when both last words
 * have passed: TCP would throw away what still waits on a connection that is closed while bytes come.
 *
 * A rank that *leaves* has done all that the session asks of it. From then on no peer can fail the session here: one
 * whose connection ends has LEFT, and one that falls silent is LOST without a report. peers->awaited counts those that
 * the leaving rank still waits for.
 *
 * A rank's *neighbours* are those with which the plan has an edge, in either direction, and rank 0; rank 0's are all.
 * Both ends find the same, from the whole plan or from their parts. Signs of life, failures, marks of rounds and BYE go
 * between neighbours only; with others there is a connection only when a value has to go there. Such a rank has no
 * connection back, so it does not answer a BYE: it has LEFT at once, and the sender waits until ZeroMQ has written it.
 *
 * Nothing here sends or receives; the files around it (in.c, out.c, life.c, bulk.c) report events and ask for verdicts.
 *
 * Owner: the thread that holds the network's sockets. Any thread may ask for a peer's state and its net_life.
 */
#ifndef TRANSPORT_NET_PEER_H
#define TRANSPORT_NET_PEER_H

#include <pthread.h>
#include <stdatomic.h>

#include "graph/plan/form/plan.h"
#include "transport/net/channel.h"
#include "transport/line/measure.h"
#include "transport/line/seal.h"

struct bulk_line;

enum peer_state { PEER_ABSENT, PEER_HERE, PEER_PARTING, PEER_LEFT, PEER_LOST, PEER_STATES };

/* An event in the life of a peer. */
enum peer_event {
    PEER_SAYS_HELLO,
    PEER_SAYS_BYE,
    PEER_ANSWERS_BYE,
    PEER_WORD_GONE, /* this rank's last word to it is written, or never will be */
    PEER_CUT,       /* its connection has ended */
    PEER_FAULT,     /* one of the verdicts below, or it broke the protocol */
    PEER_EVENTS
};

/* The last that a peer said of itself. */
struct net_life {
    int64_t heard_ns; /* when (park_now_ns()) */
    uint64_t fired;
    int64_t step;
    uint32_t actor, state;
};

/* The channel to a peer, and from it. */
struct peer_line {
    bool open;             /* HELLO was sent on it */
    uint64_t sent, heard;  /* numbers of the next frames */
    int64_t heard_ns;      /* when the last came */
    struct watched incoming; /* the connection on which its frames come */
};

struct peer {
    _Atomic uint32_t state;  /* enum peer_state; any thread */
    bool neighbour, edge;
    bool maps, hello;        /* this rank could map its memory; it has said the same of this rank's */
    bool wired;              /* slots of registers go to it, or come from it, over a connection */
    bool word_said, word_gone; /* this rank's last word to it: queued; written */
    _Atomic bool word_freed;   /* of one that is no neighbour: ZeroMQ has written it. By ZeroMQ's thread */
    struct peer_line line[CHANNELS];
    int64_t cut_ns;          /* when its connection ended without a BYE; 0: it did not */
    _Atomic int64_t heard_ns; /* any thread */
    int64_t signs_ns;        /* until when its signs of life are paid for; see peer_may_sign() */
    bool failed;             /* it has said FAIL */
    struct net_life life;    /* but heard_ns; under peers->lock */
    struct bulk_line *bulk;  /* borrowed; of one that is wired, when connections are made: goes for CHANNEL_BULK */
    uint32_t door_port;      /* where it is to be brought, as its HELLO said */
    uint64_t door_name;
    unsigned char secret[SEAL_SECRET_BYTES], own_secret[SEAL_SECRET_BYTES]; /* its, and that which it was told */
};

/* Called when a peer is lost; `how` is the rest of a sentence. */
typedef void (*peer_lost_fn)(void *ctx, uint32_t rank, const char *how);

struct peers {
    struct peer *of;            /* owned; by rank; this rank's own means nothing */
    uint32_t count, me;
    uint32_t *neighbours;       /* owned */
    uint32_t neighbours_count;
    uint32_t *cut;              /* owned: neighbours that are ABSENT or HERE, and whose connection has ended */
    uint32_t cut_count;
    bool leaving;               /* this rank says BYE to all */
    uint32_t awaited;           /* peers whose last word, or the end of whose connection, is still to come; or to which
                                   this rank's last word is still to be written */
    int64_t liveness_ns;        /* how long a peer may be silent */
    peer_lost_fn lost;
    void *ctx;
    pthread_mutex_t lock;       /* of lives */
};

struct peers_opts {
    const weir_plan *plan;
    uint32_t count, me;  /* ranks; this one */
    int64_t liveness_ns;
    peer_lost_fn lost;
    void *ctx;
};

weir_status peers_open(struct peers *peers, const struct peers_opts *opts);
void peers_close(struct peers *peers);

/* ---- states ---- */

static inline bool peer_is(const struct peer *peer, enum peer_state state)
{
    /* acquire: pairs with the store in peer_happens() */
    return atomic_load_explicit(&peer->state, memory_order_acquire) == (uint32_t)state;
}

/* It has neither said BYE, nor answered one, nor been lost. */
static inline bool peer_is_open(const struct peer *peer)
{
    return peer_is(peer, PEER_ABSENT) || peer_is(peer, PEER_HERE);
}

/* Nothing comes from it any more, and nothing goes to it. */
static inline bool peer_is_over(const struct peer *peer)
{
    return peer_is(peer, PEER_LEFT) || peer_is(peer, PEER_LOST);
}

void peer_happens(struct peers *peers, uint32_t rank, enum peer_event event, int64_t now);

/* This rank's last word to the peer is queued. */
void peer_last_word(struct peers *peers, uint32_t rank);

/* This rank leaves: it says BYE to all next. */
void peers_leave(struct peers *peers);

/* ---- verdicts ---- */

/* The peer is lost, unless it is over or parting; `format`: how, as the rest of a sentence. */
void peer_lose(struct peers *peers, uint32_t rank, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Loses those whose connection has ended and that say nothing any more: a BYE may still come on a slower connection.
 * `drained`: nothing waits to be read. */
void peers_judge_cut(struct peers *peers, int64_t now, bool drained);

/* Loses the neighbour if nothing was heard from it for the limit, not even a byte of a frame that is still coming. */
void peer_judge_silence(struct peers *peers, uint32_t rank, int64_t now);

/* Loses the peer if its line has taken nothing since `taken_ns`, for longer than the limit, while `unsent` bytes wait. */
void peer_judge_stuck(struct peers *peers, uint32_t rank, int64_t taken_ns, uint64_t unsent, int64_t now);

/* Whether its connection ended so long ago that nothing follows on another one. */
bool peer_was_cut(const struct peer *peer, int64_t now);

/* While this rank leaves, of a rank that is no neighbour: looks whether BYE is written to it. Gives it up if nothing has
 * gone to it since `sent_ns` for longer than the limit: nothing else would tell that it is stopped. */
void peer_judge_stranger(struct peers *peers, uint32_t rank, int64_t sent_ns, int64_t now);

/* All neighbours count as heard now: this rank was stopped itself. */
void peers_forgive(struct peers *peers, int64_t now);

/* Whether the peer may give one more sign of life (BEAT, WAITS) now: as many as PEER_SIGNS_PER_S of real time, and as
 * much as came in PEER_BACKLOG_NS more, which may have waited while this rank was itself stopped. */
#define PEER_SIGNS_PER_S 1000
#define PEER_BACKLOG_NS INT64_C(10000000000)
bool peer_may_sign(struct peer *peer, int64_t now);

#endif
