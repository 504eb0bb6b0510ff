/* transport/net/route.h: what crosses between this rank and those on the wire: who has the two ends of an edge, what
 * may be under way at it, and what workers have posted for other ranks.
 *
 *     worker --- READY, FREE ---> mailbox ---> out.c: a READY that carries a slot ---> SLOT     of the peer's line (bulk.h)
 *                                                     all others --------------------> WORDS
 *
 * For each edge between this rank and a wired one `outstanding` counts the slots that were made ready and not freed,
 * so that nothing is believed that credit does not allow; `passed` counts all that the other end has ever made ready,
 * or freed.
 *
 * Made when the session opens. Owner: who holds the network's sockets; the mailbox's, too.
 */
#ifndef TRANSPORT_NET_ROUTE_H
#define TRANSPORT_NET_ROUTE_H

#include "regst/arena.h"
#include "transport/mail/bus.h"
#include "transport/mail/mailbox.h"
#include "transport/line/links.h"

struct route {
    struct links *links;        /* borrowed, as arenas and bus */
    const struct arena *arenas;
    const struct bus *bus;
    struct mailbox mailbox;
    uint32_t *rank_of;          /* owned; by actor */
    uint32_t *first;            /* owned; by edge: that which messages for its branch name (graph/plan/spread/branch.h) */
    uint32_t *outstanding;      /* owned; by edge */
    uint64_t *passed;           /* owned; by edge */
    uint32_t *behind;           /* owned; by edge that shares a transfer with its leader: slots that came, not yet
                                   made ready to it */
    uint32_t *follower;         /* owned; by edge with a transfer: the next first of a branch that shares it; LINKS_NONE */
};

void route_close(struct route *route); /* also a zeroed one */

#endif
