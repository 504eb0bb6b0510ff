/* transport/net/net.h: this rank's end of the bus between processes, and the thread that runs it.
 *
 *     workers --- messages for ranks on the wire ---> mailbox --> +------------+ ---> lines: slots, messages, values
 *     any thread --- net_request() ---> outbox -----------------> | net thread | ---> life: signs of life, failures
 *     workers' mailboxes <--- READY, FREE, checked -------------- +------------+ <--- lines; ROUTER: all else that comes
 *
 * Every rank has one ROUTER on which it only receives, and two on which it only sends (transport/net/channel.h), and a
 * line (transport/line/bulk.h) to each rank with which the plan has edges and no memory is shared: what is small and
 * urgent never waits behind what is large. There are connections where there is an edge or a need: each rank gives
 * signs of life to its neighbours (transport/net/peer.h); a rank without a line gets a second connection when a value first has
 * to go to it.
 *
 * A message for an actor of a wired peer comes through the mailbox like one for a worker. The worker that has put it
 * there sends it itself when nobody else is at the sockets (a lock that workers only try); else the net thread does.
 * So nobody has to wake up for a message to go out. A READY for the leader of a transfer (transport/line/links.h) takes
 * the register's slot along, which is not written again before the reader's FREE, which comes after all bytes have
 * arrived. The plan's slots bound what is under way.
 *
 * The net thread takes what comes in, or a worker that watches because it has nothing else to do (net_watch()); then the net
 * thread only looks in now and then.
 *
 * Signs of life. A BEAT goes to every neighbour many times per liveness limit. A neighbour is lost in these cases:
 *
 *     - nothing was received from it for the limit, not even a byte of a frame that is still on its way
 *     - its connection has ended without a BYE, and nothing was received for 0.3 s (1.2 s while messages are unread), or only
 *       beats for the limit (peer.c)
 *     - its line accepts no bytes for the limit although bytes wait
 *     - it breaks the protocol
 *
 * A rank that was itself stopped first gives its peers time to be heard. The first loss fails the session, except for a rank
 * that leaves: it has done its part (peer.h).
 *
 * Life: open (sockets; the card says where) - meet (meeting) - greet (HELLO from all neighbours; who shares memory) -
 * route (what crosses) - start (the thread) - request, query - stop (BYE, the thread ends) - close. Until start all of
 * it belongs to the session's thread, then to whoever holds the sockets' lock: the net thread, a worker that watches,
 * any thread that flushes. net_request() and the queries may be called by any.
 */
#ifndef TRANSPORT_NET_NET_H
#define TRANSPORT_NET_NET_H

#include "regst/arena.h"
#include "transport/mail/bus.h"
#include "transport/line/links.h"
#include "transport/line/measure.h"
#include "transport/mail/mailbox.h"
#include "transport/meet/meet.h"
#include "transport/net/peer.h"
#include "transport/line/wire.h"

#define NET_ALL UINT32_MAX              /* every other rank */
#define NET_NEIGHBOURS (UINT32_MAX - 1)
#define NET_STATEMENT_BYTES (1u << 24)  /* of a VALUE that is a statement, at most */

struct net;

/* The functions of the session that the network calls. Each is called by whoever is at the sockets, one at a time: the net
 * thread, a worker that watches the ROUTER, a thread that sends and finds a peer gone, before start the session's. None
 * waits, or sends a bus message to another rank. */
struct net_hooks {
    void *ctx;
    peer_lost_fn lost;
    void (*failed)(void *ctx, uint32_t from, uint32_t culprit, const char *text); /* the session failed, `from` says */
    void (*left)(void *ctx, uint32_t rank, int64_t steps);       /* it has said BYE */
    void (*broken)(void *ctx, const char *sentence);             /* this rank cannot go on */
    void (*beat)(void *ctx, struct wire_frame *frame);           /* fills in frame->beat */
    bool (*value)(void *ctx, uint32_t rank, uint32_t shard, uint64_t round, const void *data, size_t bytes); /* false:
                                                                    it may not send that */
    uint32_t (*sharing)(void *ctx); /* how often initial register contents were allowed to come; 0: they may not */
    void (*waits)(void *ctx, uint32_t rank, const void *entries, uint32_t count); /* what actors of `rank` wait for */
    bool (*hold)(void *ctx, uint32_t rank, const struct wire_frame *frame); /* of a run; false: it may not say that */
    bool (*end)(void *ctx, const struct wire_frame *frame);                 /* of the session; false: it makes no sense */
};

/* Opens the sockets for a plan that is spread over the ranks, and writes where they listen into `card`. All pointers
 * are borrowed until close. */
weir_status net_open(struct net **net, const weir_plan *plan, const struct cluster_env *env,
                     const struct report *report, const struct net_hooks *hooks, struct member *card);

/* The meeting. `members`: env->size, this rank's own filled in. */
weir_status net_meet(struct net *net, struct member *members);

/* The session's number, the same on all ranks and never 0. After the meeting. */
uint64_t net_session(const struct net *net);

/* The ranks with which there are connections all the time; whether the plan has edges to one of them. From open on. */
const uint32_t *net_neighbours(const struct net *net, uint32_t *count);
bool net_neighbour(const struct net *net, uint32_t rank);
bool net_edge(const struct net *net, uint32_t rank);

/* Connects to the neighbours, tells each whether its memory could be mapped (`mapped`, by rank) and waits for the same
 * from all, at most env->join_ns. wired[r]: there are edges, and at least one side could not map. It stays as it is for ranks
 * that are no neighbours. */
weir_status net_greet(struct net *net, const bool *mapped, bool *wired);

/* The bytes that go to wired peers and come from them. `bus` leads to the local lanes already; actors of wired peers are
 * attached here. */
weir_status net_route(struct net *net, struct links *links, const struct arena *arenas, struct bus *bus);

/* From net_start() to net_stop() the mailbox's owner watches the ROUTER itself while it has nothing to do (*waiter is
 * how): then what comes for it needs no other thread to wake up. For the only worker of a rank, to whose mailbox no
 * other process posts. Before its thread starts. */
weir_status net_watch(struct net *net, struct mailbox *mailbox, struct mailbox_waiter **waiter);

/* Starts the thread. */
weir_status net_start(struct net *net);

/* Sends a frame (the head is filled in) with a copy of the payload, to one rank, NET_NEIGHBOURS or NET_ALL. Only a
 * VALUE goes to who is no neighbour. Any thread. */
weir_status net_request(struct net *net, uint32_t to, const struct wire_frame *frame, const void *payload,
                     size_t payload_bytes);

/* Sends the present contents of slot `slot` of the transfer: the reader finds them in its own slot, without a READY. Any
 * thread. */
weir_status net_share(struct net *net, const struct transfer *transfer, uint32_t slot);

struct net_life net_life_of(struct net *net, uint32_t rank);
bool net_here(struct net *net, uint32_t rank); /* neither lost nor gone */

/* Rises while bytes of a slot come in over a slow link: something moves, though nothing fires. Any thread. */
uint64_t net_arriving(struct net *net);

/* The measured line to the rank, also when it has ended. False: nothing is measured. Any thread. */
bool net_measure(struct net *net, uint32_t rank, struct measure *measure);

/* Says BYE when `steps` >= 0, sends what is left, ends the thread. After it no hook is called for what comes in. */
void net_stop(struct net *net, int64_t steps); /* < 0: the session failed; then nobody is waited for long */
void net_close(struct net *net); /* also NULL */

#endif
