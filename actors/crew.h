/* actors/crew.h: threads that run workers (actors/worker.h), of one session or of several.
 *
 *     crew --- thread 0: worker 0 of a session
 *          '-- thread 1: worker 1 of it, worker 0 of another one, of a third, ...
 *
 * A worker stays on the thread that it enters: that with the fewest. A thread begins with its first worker. It runs a
 * single worker as if there were no others (worker_run()): nothing is added to what a firing costs. When a second one
 * enters, which an order (LANE_JOIN) says, they take turns: a worker's turn ends when it has nothing to fire, or after
 * WORKER_TURN rows of firings; what it has to say to others is sent then. When none has anything to do for as long as each
 * spins at its mailbox, the thread sleeps in poll() on an eventfd, which all their mailboxes have.
 *
 * A thread that leaves waits for no other's turn: `current` says whose it is, and changes under the thread's lock, so a
 * worker whose turn it is not is taken off the list, and the thread never looks at it again. A worker that is alone leaves
 * when it has obeyed LANE_STOP.
 *
 * A crew belongs to the sessions that hold it; with the last one its threads end. All functions: any thread but the
 * crew's own.
 */
#ifndef ACTORS_CREW_H
#define ACTORS_CREW_H

#include "actors/worker.h"

struct crew;

/* Makes a crew of at most `places` threads, named "weir-" `kind` and a number, from `first` on. NULL: no memory. */
struct crew *crew_new(uint32_t places, const char *kind, uint32_t first);
void crew_hold(struct crew *crew);
void crew_release(struct crew *crew); /* also NULL */

/* How many threads it may have. */
uint32_t crew_places(const struct crew *crew);

/* The worker runs from now on: on a thread that has none of its owner's, if there is one. */
weir_status crew_enter(struct crew *crew, struct worker *worker);

/* It runs no more. It has been given LANE_STOP. Also one that has not entered. */
void crew_leave(struct worker *worker);

/* Whether another worker of its thread is firing at the moment. */
bool crew_waits_turn(const struct worker *worker);

#endif
