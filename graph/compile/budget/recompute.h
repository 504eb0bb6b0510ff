/* graph/compile/budget/recompute.h: results of forward that are computed once more in the backward phase instead of kept.
 *
 *     forward    a -> b -> c -> d            a is kept; b, c and d die with their last reader in forward
 *     backward   ... a -> b' -> c' -> d' -> gradients of d, c, b
 *
 * A tensor that forward makes and a later phase reads is *saved*: it is there while all behind it runs. To *drop* it
 * means that who reads it later reads a repetition of it. Repeated are the node that made it and whatever that needs,
 * up to what is saved and not dropped, what a step begins with, and what cannot be repeated. A repetition is a node of
 * the backward phase with the same op, shapes, layouts and key as the first, so it gives the same bits; it stands right
 * before the first node that asks for it, and what it made dies with the last.
 *
 * Where a disk is given, a tensor may be dropped in another way: it is moved there and comes back (offload.h), and who
 * reads it later reads what came back.
 *
 * The compiler decides which tensors to drop, under a limit (limit.c), not the graph's author; to the passes behind,
 * repetitions are nodes like any other.
 *
 * The *ladder* (ladder.c) is the order in which tensors are dropped, the cheapest in seconds per byte first, each
 * counted with those that are dropped already: rung r is the first r of them. It does not depend on the limit, so a
 * smaller limit goes further along the same way.
 */
#ifndef GRAPH_COMPILE_BUDGET_RECOMPUTE_H
#define GRAPH_COMPILE_BUDGET_RECOMPUTE_H

#include "graph/compile/budget/offload.h"

typedef enum again_move { MOVE_NONE, MOVE_STORE, MOVE_FETCH, MOVE_STATE_STORE, MOVE_STATE_FETCH } again_move;

typedef struct again_event {       /* a node's place in the order of all */
    int node;                      /* of the base */
    bool again;                    /* a repetition of it */
    again_move move;               /* of a tensor that it makes, to a disk or back, rather than the node itself */
    int tensor;                    /* then: which; of an update's state: its number */
    int after;                     /* of what waits for its first reader: a tensor that this one waits for, or -1 */
} again_event;

typedef struct again_rung {
    int tensor;                    /* dropped here, and from here on */
    bool kept;                     /* or no longer */
    bool moved;                    /* to a disk */
    int update;                    /* or the state of that update is; -1 */
    double seconds;                /* that a step takes longer, so far */
    double needs;                  /* bytes of the device that needs the most, as far as the ladder counts them, so far;
                                      0 in the middle of a batch */
} again_rung;

typedef struct recompute {         /* lives in the compilation's pool; one thread */
    compile *c;
    ir_graph base;                 /* as the box pass left it; never changed */
    int *root;                     /* by tensor: the tensor that it is only another name of */
    bool *saved, *dropped;         /* by tensor, if it is its own root */
    bool *moved;                   /* by tensor that is dropped: it comes back from a disk and is not made again */
    int *fetcher;                  /* by tensor that is moved: the first node that reads it when it is back */
    int *last;                     /* by tensor, if it is its own root: the last node of forward that reads it, or else
                                      the one that makes it */
    offload_way *way;              /* by tensor that is moved */
    bool *filed;                   /* by node: it updates, and its state waits on a disk */
    int *state_after;              /* by such a node: the one that its fetch waits for, or -1 */
    int *state_fetches, *next_state; /* by node: the first whose state is fetched behind it; the next; NONE */
    bool micro;                    /* the backward phase runs once per micro-batch */
    bool *repeatable, *again;      /* by node: may be, is repeated */
    bool *late;                    /* by node: a later conversion of what is repeated; it waits for its first reader */
    int *asker;                    /* by node: the first that reads the repetition, or what is late */
    int *head, *next;              /* by node: those that it asks for first, in order; NONE */
    int *stores, *fetches;         /* by node: the first tensor that is stored before it, fetched behind it; NONE */
    int *next_store, *next_fetch;  /* by tensor: the one after it; NONE */
    again_event *event;
    int event_count, event_max;
    POOL_LIST(again_rung) ladder;
    double needs;                  /* as of a rung, before the first */
} recompute;

/* For c->ir as the box pass leaves it; nothing is dropped. False: no memory. */
bool recompute_begin(recompute *x, compile *c);

/* Brings again, late and event in line with `dropped`. */
void recompute_order(recompute *x);

/* Whether a repetition reads a repetition of this input, not what forward made. */
bool recompute_repeats(const recompute *x, int tensor);

/* Whether the event, of recompute_order(), reads a repetition of this input. */
bool recompute_reads_again(const recompute *x, const again_event *e, int tensor);

/* Finds the ladder. False: no memory. */
bool recompute_ladder(recompute *x);

/* Puts behind the first `rungs` of the ladder those that move the states of updates to the disk, the largest first. False: no
 * memory, with an error. */
bool recompute_states(recompute *x, int rungs);

/* Brings dropped, moved, filed and what follows from them to what the first `rungs` of the ladder make of them. */
void recompute_drop(recompute *x, int rungs);

/* Sets c->ir to what it is with the first `rungs` of the ladder dropped. False: no memory. */
bool recompute_apply(recompute *x, int rungs);

#endif
