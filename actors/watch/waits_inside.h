/* actors/watch/waits_inside.h: what the files of waits.h share: waits.c finds who waits for whom, waits_text.c tells it. */
#ifndef ACTORS_WATCH_WAITS_INSIDE_H
#define ACTORS_WATCH_WAITS_INSIDE_H

#include "actors/watch/waits.h"

enum link_kind {
    LINK_END,   /* it waits for no actor */
    LINK_INPUT, /* it has nothing to read at `regst`; `next` is the producer */
    LINK_ROOM,  /* `regst` is full; `next` is a reader that has not let go of a slot */
    LINK_TURN,  /* its worker is inside a kernel of `next`, or `next` comes before it on its queue */
    LINK_MEMBER /* it stands in a collective to which `next` has not come */
};

struct waits_actor {
    bool told;      /* somebody said that it waits or fires; then in `step` */
    bool fires;
    bool first;     /* it is the oldest under way on its queue */
    bool turn;      /* it waits for its turn */
    int64_t step;
    int64_t passed; /* firings; of members of collectives */
    /* made for the text */
    enum link_kind kind;
    uint32_t regst, next;
    uint32_t depth;   /* links to its end; while it is being walked over DEPTH_WALKED */
    uint32_t end;     /* PLAN_NONE: not known yet */
    uint32_t ends;    /* chains that end here */
};

/* Links all actors. Returns the one whose chain is longest; PLAN_NONE when nobody waits. */
uint32_t waits_chain(struct waits *waits);

/* The first member of a collective, from the m-th on, that has not come to the meeting in which the actor stands;
 * PLAN_NONE: all have. *m is its place. */
uint32_t waits_absent(const struct waits *waits, uint32_t actor, uint32_t *m);

static inline bool waits_outside(const struct waits *waits, uint32_t actor)
{
    return waits->plan->queues[waits->plan->actors[actor].queue.i].kind == PLAN_OUTSIDE;
}

static inline uint32_t waits_queue_rank(const weir_plan *plan, uint32_t queue)
{
    return plan->spaces[plan->queues[queue].space.i].rank;
}

#endif
