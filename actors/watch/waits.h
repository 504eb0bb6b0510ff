/* actors/watch/waits.h: who waits for whom: what is known of it, and the text that it becomes.
 *
 * A condition that does not hold is told in entries, one for each condition that an actor with firings left lacks:
 *
 *     {actor, regst, step}   `actor`, in `step`, lacks a slot of `regst`: one to fill if it produces it, else one to
 *                            read
 *     {actor, fires, step}   `actor` has been inside its kernels all the time; or what it launched on an accelerator is
 *                            the oldest under way on its queue, and awaits nothing
 *     {actor, first, step}   it is that oldest one, whether it awaits something or not
 *     {actor, turn, step}    `actor` waits for its turn, on a queue for collectives
 *
 * and of such queues, whether somebody there lacks something or not,
 *
 *     {actor, head, step}    `actor` is the one whose turn it is
 *     {actor, passed, count} so many of `actor`'s firings are over, since step 0
 *
 * Which actor has to do something about it follows from the plan: the producer of what is empty; a reader of what is
 * full that is not itself without a slot of it; the head of its queue, if it lacks nothing but its turn. A collective that
 * stands does so for a member that has not come: one that neither stands, too, nor has as many firings behind
 * it. So each actor that waits points to another, and following the
 * pointers ends at a culprit, which does not wait for an actor:
 *
 *     loss --empty--> h3/down --empty--> h0/q --empty--> tokens, a push: nobody pushes
 *                                                        (or: a pull: nobody pulls; a kernel that does not return;
 *                                                         a rank that did not answer, or has not started; a circle)
 *
 * The longest chain is told, from the waiting actor of lowest number if there are several; of other chains their ends.
 *
 * No thread of its own: who uses it sees to it that one thread at a time does. Plain data about a plan; other ranks'
 * entries are checked here.
 */
#ifndef ACTORS_WATCH_WAITS_H
#define ACTORS_WATCH_WAITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weir/base.h>

#include "graph/plan/form/plan.h"

/* As it goes over the wire, all little-endian. */
struct wait_entry {
    uint32_t actor;
    uint32_t regst; /* or one of those below, which no register has */
    int64_t step;   /* of WAITS_PASSED the firings */
};
#define WAITS_FIRES PLAN_NONE
#define WAITS_TURN (PLAN_NONE - 1)
#define WAITS_HEAD (PLAN_NONE - 2)
#define WAITS_PASSED (PLAN_NONE - 3)
#define WAITS_FIRST (PLAN_NONE - 4)
_Static_assert(sizeof(struct wait_entry) == 16, "16 bytes on the wire");

struct waits {
    const weir_plan *plan;     /* borrowed */
    const uint32_t *worker_of; /* borrowed; by queue, of those of rank `rank` */
    uint32_t rank;
    bool *empty;               /* owned, by port */
    bool *full;                /* owned, by register */
    bool *answered;            /* owned, by rank */
    struct waits_actor *actors; /* owned, by actor */
    uint32_t *meets;           /* owned, by actor: the collective that it is a member of, or PLAN_NONE */
    uint32_t *head;            /* owned, by queue: whose turn it is, or PLAN_NONE */
    uint32_t *blocker;         /* owned, by register: the port that keeps it full; when the text is made */
    uint32_t *busy;            /* owned, by queue: the actor that keeps its worker busy; when the text is made */
    uint32_t *path;            /* owned, room for all actors; when the text is made */
};

/* The words of the report beside who waits. Times in ns. */
struct waits_facts {
    int64_t stalled_ns;   /* nothing has fired */
    int64_t steps_end;    /* the run ends before this step */
    const int64_t *running_ns; /* borrowed; by worker of this rank: how long it has been in its kernel */
    uint32_t silent_rank; /* UINT32_MAX: none */
    int64_t silent_ns;
};

weir_status waits_open(struct waits *waits, const weir_plan *plan, const uint32_t *worker_of, uint32_t rank);
void waits_close(struct waits *waits);

void waits_clear(struct waits *waits);

/* Takes in what a rank says, `count` entries at any address, instead of what it said before. Entries about other ranks'
 * actors, and those that the plan does not allow, are passed over. */
void waits_put(struct waits *waits, uint32_t rank, const void *entries, uint32_t count);

/* Whether all ranks have answered. */
bool waits_complete(const struct waits *waits);

/* The report; returns its length. Does not allocate. */
size_t waits_text(struct waits *waits, const struct waits_facts *facts, char *text, size_t bytes);

#endif
