/* graph/plan/prove/game.h: the token game's board: the marking of a plan, and what a firing does to it. check.h says what the
 * game proves; check.c plays it, and turns.c plays it against a clock.
 *
 * Marking. A port has its unread slots and the firings that it has held the current one; a register has its free slots
 * and the firings that it has filled the current one. A slot is free again when the last of its readers has let go of
 * it. Readers free in order, so a register needs no entry per slot: each reader counts what it freed, and a slot comes
 * back when the slowest reader's count rises. `slowest` is how many readers are at that count; when it reaches zero
 * the count rises and they are counted anew, which happens once per slot: O(1) per event and edge.
 *
 * A collective fires when all its members may, and all at once. With turns it must also be the next on each member's
 * queue: each turn counts the queues that have not come to it yet, and a firing brings its queues on to their next ones.
 *
 * Programs are played side by side: what one reads of another's is there throughout, so no step of one has anything to
 * do with a step of another, and each comes to its end as if it were alone.
 *
 * Each actor counts its unmet conditions, as it does at run time; a collective counts its members that may not fire, and
 * one more while it is not its turn. At zero the player is told, once, and fires it when he likes: nothing takes that
 * away again.
 *
 * A firing tells others two things: a register has a new value, and a reader is done with one. Both count at once, unless the
 * player has a function `tell`; then they count when he says so (game_told()): messages take time.
 */
#ifndef GRAPH_PLAN_PROVE_GAME_H
#define GRAPH_PLAN_PROVE_GAME_H

#include "graph/plan/form/plan.h"

/* A structure has the marking and those numbers of the plan that a firing needs with it, so a firing touches few lines of the cache. */
typedef struct game_actor {
    uint32_t fired, unmet;
    uint32_t fires;        /* per step */
    uint32_t member_of;    /* its collective; PLAN_NONE: it is in none */
} game_actor;

typedef struct game_port {
    uint32_t actor, regst;
    uint32_t hold;         /* 0: it does not count slots */
    uint32_t unread, held, freed;
    uint32_t mark;         /* the player's own */
} game_port;

typedef struct game_regst {
    uint32_t producer, fill, slots;
    uint32_t credit, filled, returned, slowest;
    uint32_t first;        /* in readers; there is one more than registers */
} game_regst;

typedef struct game game;
struct game {
    const weir_plan *plan; /* borrowed */
    void (*ready)(game *g, uint32_t actor); /* it may fire now; of a collective's, the first member */
    void (*tell)(game *g, uint32_t port, bool freed); /* the port's register has a value for it, or it has freed one; NULL: that
                              counts at once */
    uint32_t steps;        /* so many are played [1]; more than one without turns alone */
    uint32_t firings;
    game_actor *actors;    /* owned, as the next two */
    game_port *ports;
    game_regst *regsts;
    uint32_t *memory;      /* owned: all arrays below */
    uint32_t *readers;     /* ports, those of one register beside each other */
    uint32_t *stack;       /* per actor; the player's own */
    uint32_t stacked;
    /* per collective */
    uint32_t *blocked;     /* members that may not fire, and 1 while it is not its turn */
    uint32_t *open;        /* the turn that is its to take now, or PLAN_NONE */
    /* per turn; none of these when the game is played without */
    uint32_t *behind;      /* queues of its members that have not come to it; PLAN_NONE: it was taken */
    uint32_t *entry;       /* in `next`: one entry for each member; one more than there are turns */
    uint32_t *next;        /* the turn that comes next on that member's queue, or PLAN_NONE */
};

/* At the initial marking. Nobody has been told to be ready. E_MEMORY. */
weir_status game_init(game *g, const weir_plan *plan, bool turns);
void game_free(game *g);

/* Gives one register other slots than the plan does: before the first firing. */
void game_set_slots(game *g, uint32_t regst, uint32_t slots);

/* Tells of all that are ready at first. */
void game_begin(game *g);

/* Fires one that was told to be ready: of a collective, all members. */
void game_fire(game *g, uint32_t actor);

/* A message that `tell` was given counts now. */
void game_told(game *g, uint32_t port, bool freed);

/* Whether every actor has fired as often as in the steps that are played, */
bool game_finished(const game *g);
/* and the marking is what it was. */
bool game_is_initial(const game *g);

static inline uint32_t game_readers(const game *g, uint32_t regst)
{
    return g->regsts[regst + 1].first - g->regsts[regst].first;
}

static inline bool game_has_firings(const game *g, uint32_t actor)
{
    return g->actors[actor].fired < (uint64_t)g->actors[actor].fires * g->steps;
}

#endif
