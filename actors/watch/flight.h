/* actors/watch/flight.h: the flight recorder: what a worker fired last.
 *
 * A ring in each worker that only it writes, and that any thread may read. Before a worker begins to fire an actor it
 * writes which one and at which firing; so the newest entry of a worker that hangs is what it hangs in. A worker that
 * fires an actor several times in a row writes once: the entry is the first of the row, and how long the row was
 * follows, at rest, from the actor's next entry or from where the actor now stands.
 *
 * It costs each row three stores and no locked instruction. A reader that is overtaken by 64 rows while it reads gets
 * a mixture of two entries; it sees that by looking at `fired` again, and every part of an entry is by itself one that
 * was written, so nothing else can come of it.
 */
#ifndef ACTORS_WATCH_FLIGHT_H
#define ACTORS_WATCH_FLIGHT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "graph/plan/form/plan.h"

#define FLIGHT_FIRINGS 64

struct flight_entry {
    _Atomic uint32_t actor; /* plan_actor_id */
    _Atomic int64_t firing; /* counted from step 0: step and micro-batch follow from it */
};

struct flight {
    _Atomic uint64_t fired;     /* rows written since the session opened; row n lies at n % FLIGHT_FIRINGS */
    _Atomic uint64_t passed;    /* times that marks of queues that run ahead have passed: nothing is fired, but moves */
    _Atomic int64_t steps_end;  /* the run that the worker is in goes up to this step, exclusive */
    bool failed;                /* the newest row ended with a firing that failed */
    struct flight_entry entries[FLIGHT_FIRINGS];
};

/* One row as its readers get it. */
struct flight_row {
    uint32_t actor;
    int64_t firing;
};

/* The worker's thread only. */
static inline void flight_record(struct flight *flight, uint32_t actor, int64_t firing)
{
    uint64_t fired = atomic_load_explicit(&flight->fired, memory_order_relaxed); /* only this thread writes it */
    struct flight_entry *entry = &flight->entries[fired % FLIGHT_FIRINGS];
    atomic_store_explicit(&entry->actor, actor, memory_order_relaxed);
    atomic_store_explicit(&entry->firing, firing, memory_order_relaxed);
    /* release: pairs with the load in flight_last() */
    atomic_store_explicit(&flight->fired, fired + 1, memory_order_release);
}

/* The worker's thread only. */
static inline void flight_passed(struct flight *flight)
{
    /* relaxed: only whether it has changed is of interest */
    atomic_fetch_add_explicit(&flight->passed, 1, memory_order_relaxed);
}

/* How much has happened, in rows and marks: it changes as long as anything moves. Any thread. */
static inline uint64_t flight_moved(const struct flight *flight)
{
    return atomic_load_explicit(&flight->fired, memory_order_relaxed) +
           atomic_load_explicit(&flight->passed, memory_order_relaxed);
}

/* The worker's thread only: a run begins, which goes up to this step. */
static inline void flight_begin(struct flight *flight, int64_t steps_end)
{
    /* relaxed: nothing hangs on it but a number in a report */
    atomic_store_explicit(&flight->steps_end, steps_end, memory_order_relaxed);
}

/* The newest row. False: nothing has been fired. */
bool flight_last(const struct flight *flight, struct flight_row *row);

/* The step, counted as the user's functions see it, in which this firing of the actor is. */
static inline int64_t flight_step(const weir_plan *plan, uint32_t actor, int64_t firing)
{
    return firing / plan->actors[actor].fires;
}

/* Whose recorder it is. */
struct flight_facts {
    const weir_plan *plan;
    uint32_t worker; /* its number */
    bool one_queue;  /* all of its actors are on one */
    int64_t (*firing)(const void *ctx, uint32_t actor); /* that the actor has come to */
    const void *ctx;
};

/* The last firings of a worker, a line, oldest first:
 *
 *     worker 0: step 15: x, stage (3 times); step 16: x, stage (failed)
 *
 * Firings that do not fit are left out: the oldest. Returns the length, 0 when nothing has been fired. At rest or after all
 * workers have halted. */
size_t flight_text(const struct flight *flight, const struct flight_facts *facts, char *text, size_t bytes);

#endif
