/* transport/net/share.h: what a rank's session puts in shared memory: its arenas and the rings of its mailboxes, so
 * that the ranks of the same host read its registers where they lie and post to its lanes as its own threads do.
 *
 *     segment   [ head | arena offset by space | ring by actor | rings: offset, capacity | rings ... | arenas ... ]
 *
 * The tables say where things are; who maps a segment checks each of them against its size and the plan before it uses
 * one. Ranks of one host can do no more to each other beyond that than one user's processes can do anyway.
 *
 * Owner: the session. Filled before any peer is told of it.
 */
#ifndef TRANSPORT_NET_SHARE_H
#define TRANSPORT_NET_SHARE_H

#include "graph/plan/form/plan.h"
#include "regst/segment.h"
#include "transport/mail/mailbox.h"

struct share_ring {
    uint64_t offset, capacity;
};

struct share {
    struct segment segment;
    void *tables;             /* owned: of a mapped segment, a copy: what has been checked cannot change */
    uint64_t *arena_offset;   /* by space; 0: elsewhere. All three point into the segment, or the copy */
    uint32_t *ring_of;        /* by actor; UINT32_MAX: elsewhere */
    struct share_ring *rings;
    uint32_t ring_count;
    struct mailbox *senders;  /* owned; by ring; of a mapped segment */
};

/* A segment with arenas for the spaces for which `here` is set, and `ring_count` rings of these capacities; lane_of[a]
 * is the ring of actor a, UINT32_MAX for one elsewhere. */
weir_status share_create(struct share *share, const weir_plan *plan, const bool *here, const uint64_t *capacities,
                         uint32_t ring_count, const uint32_t *ring_of);

/* Maps the segment of rank `rank`. E_UNSUPPORTED when that cannot be, or what is in it does not fit the plan. */
weir_status share_map(struct share *share, const weir_plan *plan, uint32_t rank, uint32_t pid, int fd, uint64_t bytes,
                      uint64_t cookie);

void share_close(struct share *share); /* also a zeroed one */

char *share_arena(const struct share *share, uint32_t space); /* NULL: not in it */
void *share_ring(const struct share *share, uint32_t ring);

#endif
