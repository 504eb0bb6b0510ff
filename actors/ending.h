/* actors/ending.h: how a session ends: the one state that it is in, where its values end, and why it failed.
 *
 *     state            a run    the run   the values  a source  something  it is
 *                      begins   is over   end         failed    else fails cancelled
 *     REST             RUNNING  REST      ENDED       AT_END    FAILED     CANCELLED
 *     RUNNING          RUNNING  REST      ENDED       AT_END    FAILED     CANCELLED
 *     ENDED            RUNNING  ENDED     ENDED       AT_END    FAILED     CANCELLED
 *     FAILED_AT_END    -        -         -           -         FAILED     FAILED
 *     FAILED           -        -         -           -         -          -
 *     CANCELLED        -        -         -           -         -          -
 *
 * ENDED: a source of main has no more values, and all steps before are done. Only another program runs then.
 * FAILED_AT_END: a source failed instead. All that the steps before made can still be pulled, until something else fails.
 * The last two columns of a source come only when all steps before are done.
 *
 * The first of several failures has the word: its sentence is written before the state tells of it, and does not change.
 * The lock is held while the state changes and while all are told of it, the other ranks too. So a
 * thread that has seen a failure and takes the lock once knows that they have been told (ending_await_sent()).
 *
 * This part knows no sessions: failure.c fails one, stop.c begins and ends its runs.
 */
#ifndef ACTORS_ENDING_H
#define ACTORS_ENDING_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <weir/base.h>

enum ending_state {
    ENDING_REST,
    ENDING_RUNNING,
    ENDING_ENDED,
    ENDING_FAILED_AT_END,
    ENDING_FAILED,
    ENDING_CANCELLED,
    ENDING_STATES
};

enum ending_event {
    ENDING_BEGINS,
    ENDING_STOPS,
    ENDING_ENDS,
    ENDING_FAILS_AT_END,
    ENDING_FAILS,
    ENDING_CANCELS,
    ENDING_EVENTS
};

/* The session ends before a step: a source has no value for it. */
struct last_step {
    int64_t end;            /* that step, as the user's functions count */
    bool failed;            /* rather than said WEIR_END */
    weir_status status;     /* then: what its function returned; of another rank's source E_PEER */
    uint32_t culprit, from; /* the source's rank; the rank whose sentence it is */
    char text[960];         /* fits a failure's text behind the words that say whose it is */
};

struct failure {
    weir_status status;
    uint32_t culprit; /* the rank that failed first, as far as is known */
    uint32_t reporter;  /* the rank whose sentence it is */
    uint32_t skipped;    /* where that begins in the text */
    char text[1024];
};

struct ending {
    pthread_mutex_t lock;
    bool open;
    _Atomic uint32_t state; /* enum ending_state (a futex word). Changes under the lock */
    _Atomic int64_t end;    /* last.end; INT64_MAX: none is known. Changes under the lock */
    struct last_step last;
    struct failure failure; /* written before the state tells of it, and never again */
    bool reported;          /* with the last firings before it */
};

weir_status ending_open(struct ending *ending);
void ending_close(struct ending *ending); /* also a zeroed one */

static inline enum ending_state ending_state(const struct ending *ending)
{
    /* acquire: pairs with the store in ending_happens(): what the workers did is seen, and a failure's sentence */
    return (enum ending_state)atomic_load_explicit(&ending->state, memory_order_acquire);
}

static inline bool ending_failed(const struct ending *ending)
{
    return ending_state(ending) >= ENDING_FAILED_AT_END;
}

/* With the lock. Returns whether the state has changed, and wakes who waits for that. */
bool ending_happens(struct ending *ending, enum ending_event event);

/* With the lock: one of the three that fail happens, for this reason. True: it is the first, and all are to be told. */
bool ending_fails(struct ending *ending, enum ending_event event, const struct failure *failure);

/* With the lock: no step from last->end on is to be done. False: that is no news. A failure says more than an end at
 * the same step. */
bool ending_before(struct ending *ending, const struct last_step *last);

/* Sets the calling thread's error to the sentence and returns the failure's status; OK: it has not failed. */
weir_status ending_failure(const struct ending *ending);

/* The same, but OK for FAILED_AT_END: for who may still pull what was made before. */
weir_status ending_failure_for_pull(const struct ending *ending);

/* ENDED: E_END, with the sentence of the source; a failure: as ending_failure(); else OK. `rank`: this one. */
weir_status ending_ended(const struct ending *ending, uint32_t rank);

/* Waits until the other ranks have been told of a failure that was seen here: the network is not to end in between. */
void ending_await_sent(struct ending *ending);

#endif
