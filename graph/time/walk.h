/* graph/time/walk.h: with how few slots a step takes how long.
 *
 * A register can gain from another slot only if its slot is an edge of the critical cycle (period.h). So the walk begins with as
 * few slots as make the plan live, plays it, and goes on with one more slot for a register of that cycle, for each such register
 * (Stuijk, Geilen and Basten, "Exploring trade-offs in buffer requirements and throughput constraints", DAC 2006). A *point* is
 * such a vector of slots. When the cycle has no slot that may grow, no vector gives shorter steps.
 *
 *     (1 1 1)  12.0 ms     cycle: slots of a, b
 *       +- (2 1 1)  9.1 ms    cycle: slots of b
 *       |     '- (2 2 1)  8.0 ms    no slot: the end
 *       '- (1 2 1)  12.0 ms
 *
 * The point of the fewest bytes is played first, so the first end has the fewest bytes of all. That takes too long where many
 * registers need slots: after WALK_BRANCHES plays, all registers of a cycle gain a slot at once.
 *
 * All this holds for one order of firings on each worker. But workers fire by priority, so other slots may make another order, and
 * steps that are shorter, or longer with more slots. So behind an end all registers gain a slot, one at a time, as long as there are
 * plays left for branches. At last each register of the best point gets a slot less, and a slot more, as long as that is better.
 *
 * The walk ends in any case after WALK_PLAYS plays, or WALK_FIRINGS firings, or when its points have WALK_SLOTS registers. The same
 * plan and rates make the same walk on every machine.
 */
#ifndef GRAPH_TIME_WALK_H
#define GRAPH_TIME_WALK_H

#include "graph/time/predict.h"

enum { WALK_BRANCHES = 128, WALK_PLAYS = 256, WALK_FIRINGS = 4000000, WALK_SLOTS = 1 << 24 };
#define WALK_NOT_PLAYED UINT64_MAX

/* So much longer, in thousandths, a step may be with the slots that are best: less time is not worth a slot. */
enum { WALK_SLACK = 1 };

typedef struct walk_point {
    uint32_t *slots;       /* owned; by register */
    uint64_t bytes;        /* of all slots */
    uint64_t ps;           /* of a step; WALK_NOT_PLAYED; one less: no step ends */
    uint32_t from;         /* the point that it was made from; PLAN_NONE: the first, and the one that was given */
} walk_point;

typedef struct walk {
    prediction *prediction; /* borrowed */
    uint32_t *least, *most; /* owned, as all arrays; by register */
    uint32_t *trial;       /* slots that are looked for */
    walk_point *points;
    uint32_t count, room;
    uint32_t plays;
    uint64_t firings;
    bool ends;             /* a point was found whose cycle has no slot that may grow */
    uint32_t best;         /* of those played, with the shortest steps but for WALK_SLACK: the one of the fewest bytes */
} walk;

/* Sets the fewest and the most slots of each register, for `p`'s program: from 1 to twice as many as a step writes, at least 4, and
 * at least the plan's own. A register keeps its slots if the user fixed them, if it starts with values or has no bytes, and if an
 * actor outside of CPUs or a function of the program reads or writes it. Closed also after a failure. E_MEMORY. */
weir_status walk_open(walk *w, prediction *p);
void walk_close(walk *w);

/* Walks between `least` and `most`. The plan's own slots are a point, too: the first. E_LIVE: nothing in these bounds is live.
 * E_MEMORY. */
weir_status walk_find(walk *w);

#endif
