/* transport/line/links.h: what a register's readers on another host need of it, and how it is cut into frames.
 *
 *     register slot     [ tensor a . . . . . | tensor b . . . . | tensor c ]
 *     pieces               [ rows 4-7 of a ]   [ all of b       ] [ c      ]      what the port's kernels read
 *     spans                [ direct        ]   [ direct         ] [ packed ]      sent one behind the other
 *     receive slot         [ direct        ][ direct        ][ packed ]           each at a multiple of 64
 *
 * A *transfer* belongs to a port whose producer and reader are on different ranks with no memory in common. Its
 * *pieces* are the slices that the reader's kernels touch: what their ops say that they read (`reads` in weir/op.h; of
 * weir's own only a conversion does, the part of the source that meets its output), else the whole tensor. A piece that
 * is contiguous in the slot is sent from where it lies and used where it arrived (a *direct* span); those that are not,
 * and small ones, are packed row by row. Both ends compute the same from the same plan, so what is sent need not say
 * what is in it; `shape`, a number made of the spans' sizes, shows when they did not.
 *
 * A register of another program makes no edge: it comes whenever that program has run and this one is about to.
 *
 * Ports of one rank and program that read the same pieces of the same register share a transfer: it is sent for the
 * first of them, the *leader*; to others of another branch (graph/plan/spread/branch.h) goes the bare READY.
 *
 * The receiver has a *receive slot* for each slot of the register, in memory of exactly links->receive_bytes, which is
 * there before the first step. The next value is written there when by credit all readers have freed it. A gathered value
 * comes to where it is to lie, and has none, where that is proven (graph/plan/lives/arrivals.h).
 *
 * Made when the session opens; then what is sent or has arrived in a transfer belongs to whoever is at the network's
 * sockets (transport/net/net.h). A reader looks at the pointers of a slot only after the READY that came behind them.
 */
#ifndef TRANSPORT_LINE_LINKS_H
#define TRANSPORT_LINE_LINKS_H

#include "graph/plan/form/plan.h"
#include "regst/arena.h"

#define LINKS_NONE UINT32_MAX

struct piece {
    uint32_t tensor; /* plan tensor */
    uint32_t span;   /* within the transfer */
    int64_t start[WEIR_DIMS_MAX], count[WEIR_DIMS_MAX]; /* in the logical tensor */
    uint64_t slot_offset; /* of its first element */
    uint64_t span_offset;
    uint64_t bytes; /* packed */
    bool contiguous;
};

struct span {
    plan_range pieces;
    uint64_t slot_offset; /* of a direct one */
    uint64_t bytes;
    uint64_t receive_offset; /* in a receive slot */
    bool direct;
};

struct transfer {
    uint32_t leader; /* plan port, which is the edge that messages name */
    uint32_t regst;
    uint32_t program;  /* of its readers; of a constant 0 */
    uint32_t from, to; /* ranks */
    plan_range pieces, spans;
    uint64_t bytes;     /* of all spans */
    uint32_t next_slot; /* sender: to be sent next; receiver: expected next */
    uint32_t shared_time, shared_count; /* receiver: when slots of what it starts with came (net_hooks.sharing); how
                                           many */
    uint32_t shape;          /* a number made of the spans' sizes */
    uint64_t receive_bytes;  /* of a receive slot: a multiple of 64 */
    uint64_t receive_offset; /* receiver: of receive slot 0 within all; slot s follows at s * receive_bytes */
    char *receive;           /* receiver: it; borrowed from the links, or from the arena where it is in place */
    bool in_place;           /* receiver: there is no receive slot: it comes to */
    plan_space_id space;     /* this space's arena, */
    uint64_t place;          /* from this byte on */
};

struct links {
    struct piece *pieces;
    struct span *spans;
    struct transfer *transfers;
    uint32_t pieces_count, spans_count, transfers_count;
    uint32_t *transfer_of;  /* by plan port; LINKS_NONE */
    uint32_t *piece_of;   /* by plan operand: the piece that it reads; LINKS_NONE */
    uint64_t receive_bytes; /* of all receive slots of this rank */
    uint64_t in_place_bytes; /* of what comes without */
    char *receive;          /* owned; NULL until links_receive_open() */
};

/* Transfers between `rank` and the ranks for which `wired` is set. */
weir_status links_open(struct links *links, const weir_plan *plan, uint32_t rank, const bool *wired);
void links_close(struct links *links);

/* Takes the memory of all receive slots: links->receive_bytes, zeroed and real, whose beginning is a page's. E_MEMORY.
 * `arenas`, by space, are borrowed: what comes in place is received there. */
weir_status links_receive_open(struct links *links, const struct arena *arenas);

/* The port's transfer, or NULL. */
static inline struct transfer *links_find(const struct links *links, uint32_t port)
{
    uint32_t number = links->transfer_of ? links->transfer_of[port] : LINKS_NONE;
    return number != LINKS_NONE ? &links->transfers[number] : NULL;
}

/* Where the span lies in the transfer's receive slot. */
static inline char *links_receive(const struct transfer *transfer, const struct span *span, uint32_t slot)
{
    return transfer->receive + slot * transfer->receive_bytes + span->receive_offset;
}

/* Copies the pieces of a packed span from the slot at `slot` into `to`. */
void links_pack(const struct links *links, const weir_plan *plan, const struct span *span, const char *slot, char *to);

#endif
