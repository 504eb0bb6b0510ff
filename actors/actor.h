/* actors/actor.h: the actor as it runs: counters, and the kernels that a firing calls.
 *
 *                    a port has no slot            all conditions are met
 *     idle (unmet > 0) <----------------- fired -----------------------> ready (unmet == 0; in the lane's ready set)
 *         |                                 ^                               |
 *         '--- READY, FREE or START meets the last condition ---------------'--- chosen by the lane: calls its kernels
 *
 * The conditions of an actor are: each port has a slot to read; each register has a slot to fill; there are firings
 * left in this run (and, on a queue that runs ahead of its device, there is room for another mark, and it is the actor's
 * turn, where turns are taken: actors/ahead.h). `unmet` counts those that do not hold. Every event changes one counter, and
 * `unmet` when that counter leaves or reaches zero: O(1), whatever the fan-in.
 *
 * The other end of an edge is either on the same lane, and is reached through a pointer, or on another, and is reached
 * through the lane's outbox. Several readers on one other lane get one message for all of them (a relay, see below). Nothing
 * else differs.
 *
 * An actor, its ports and its registers are touched by the thread of its lane alone. Each struct is apart from others
 * (APART_BYTES), so that neighbours in an array may belong to different workers. Invariants: actor_check().
 */
#ifndef ACTORS_ACTOR_H
#define ACTORS_ACTOR_H

#include <weir/op.h>

#include "actors/lane.h"
#include "graph/base/base.h"
#include "regst/regst.h"

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

struct actor;
struct actor_edge;
struct actor_ahead;

/* A view that has to follow the slots of a ring: *data = base + slot * (the ring's) stride. */
struct slot_patch {
    void **data;
    char *base;
};

/* The views of one ring that follow it. None when the ring has one slot: those pointers never change. */
struct slot_patches {
    const struct slot_patch *patch; /* borrowed from the session's array */
    uint32_t count;
    uint64_t stride;
};

/* An input port: the reader's end of an edge. */
struct actor_port {
    _Alignas(APART_BYTES) struct regst_reader reader;
    struct actor *actor;
    struct actor_edge *edge; /* the producer's end, or a relay's, when it is on the same lane */
    struct outgoing free;    /* used when it is not; of a relay's first port: the relay's */
    struct slot_patches patches;
};

/* An output register. Or a *relay*: it stands for a register of another lane in front of several readers on this one (a branch,
 * graph/plan/spread/branch.h). A READY for the branch fills a slot of the relay; when the last reader has freed the slot, the
 * relay's FREE goes out. */
struct actor_out {
    _Alignas(APART_BYTES) struct regst regst;
    struct actor *actor;      /* NULL: a relay */
    struct actor_edge *edges; /* one per reader on this lane, one per branch on others */
    uint32_t edge_count;
    struct slot_patches patches;
};

struct actor_edge {
    _Alignas(APART_BYTES) struct actor_out *out;
    struct actor_port *port; /* the reader's end, when it is on the same lane */
    struct outgoing ready;   /* used when it is not */
    uint32_t cursor;         /* the next slot that this reader, or branch, will free */
};

/* Both ends of an edge: what a message's edge leads to. In one table by edge, whichever lanes they belong to. */
struct edge_ends {
    struct actor_port *port;  /* NULL: the port reads a constant, there is nothing to count */
    struct actor_edge *edge;  /* the register's; of all ports of a branch the same */
    struct actor_out *relay;  /* of the first port of a branch of several; else NULL */
};

struct actor_kernel {
    _Alignas(APART_BYTES) weir_kernel_fn call; /* NULL: devices do it together, and their meeting is what is called */
    const struct actor_out *accumulate; /* adds to what is in its slot when that has been fired into; NULL: never */
    weir_kernel_args args;
    uint32_t id; /* plan_kernel_id */
    uint32_t joined; /* kernels from here on that one launch may make; 0: it alone */
    const struct poisoned *poisoned; /* of a debug run (actors/debug/poison.c), or NULL; nobody else looks */
};

struct actor {
    _Alignas(APART_BYTES) uint32_t unmet;
    uint32_t rank; /* in the lane's ready set */
    struct lane *lane;
    struct actor_port *ports;
    struct actor_out *outs;
    struct actor_kernel *kernels;
    uint32_t port_count, out_count;
    uint32_t kernel_count;
    int64_t left;    /* firings in this run */
    int64_t firing;  /* counted from step 0, wherever the session began */
    uint32_t micro;  /* firing % fires */
    uint32_t fires;  /* per step */
    int64_t step;    /* firing / fires */
    struct actor_ahead *ahead; /* of a queue that runs ahead (actors/ahead.h); else NULL */

    /* cost, kept by the worker */
    uint32_t cost_ns;   /* of a firing, as last measured */
    uint32_t row;       /* so many firings may go by before the worker chooses again */
    uint32_t unclocked; /* firings until the next one that is measured */
    bool rows;          /* firings in a row are settled together */

    /* seldom used */
    uint32_t id;    /* plan_actor_id */
    uint32_t program;
    bool foreign;    /* it calls a function of the program's: how long that takes is never known */
    int64_t busy_ns;   /* in this run */
    int64_t run_start; /* `firing` when this run began */
    int64_t measured;  /* `firing` after the last one that was measured */
};

/* Counts the conditions that do not hold now, and sets or clears the ready bit. Before the first message. */
void actor_settle(struct actor *actor);

/* Asserts what must hold between two firings. */
void actor_check(const struct actor *actor);

/* Fires up to `count` times, as long as all conditions are met: calls the kernels in order, publishes, frees, counts.
 * Returns how often it fired. When a kernel fails, it stops at once: *status is set, and *failed is the kernel, whose
 * sentence is in its args.error. */
uint32_t actor_fire(struct actor *actor, uint32_t count, weir_status *status, struct actor_kernel **failed);

/* Does the work behind a firing's kernels; an outside actor, which has none, is fired by this alone. */
void actor_fired(struct actor *actor);

/* Between two firings: so many are left in this run, rather than what was left before. */
void actor_allow(struct actor *actor, int64_t left);

/* Takes the messages out of the lane's mailbox, up to one that the lane's guard refuses. `ends`: by edge. */
void lane_drain(struct lane *lane, const struct edge_ends *ends);

/* One more condition holds, or fails. */
static inline void actor_met(struct actor *actor)
{
    assert(actor->unmet > 0);
    if (--actor->unmet == 0)
        ready_add(&actor->lane->ready, actor->rank);
}

#endif
