/* actors/session/stop.c: how a run begins and ends, and how it ends before its time.
 *
 * Each worker fires its actors as often as the run's steps ask, and is done. A run is made shorter by lowering the limit
 * up to which they go; the plan is live, so every step within the limit can be finished, and at its end the session is
 * as after a run of that many steps. Which step that is:
 *
 *     weir_session_stop(): asked = 1, ASK --> worker 0 --> HOLD to all workers
 *         each worker: says how many steps any of its actors has begun, and begins none beyond
 *         the last of them: the limit is the most that anybody said; LIMIT to all, which go on up to there
 *
 * Sources that work ahead have begun the most; all else follows them. Nothing of it is on the way of a firing: HOLD and
 * LIMIT change the counter of firings left, which is looked at anyway.
 *
 * A stop holds until it has made a run shorter. If it comes between two runs the next ends before its first step; if it
 * comes in the last step of a run, so does the one after. So whoever goes by what a run has done, rather than by a flag
 * of its own, misses none.
 *
 * While workers hold, the hold counts as one more of those that the run waits for (`running`): the run cannot end, and
 * no other begin, in the middle of it. Orders are given under the lock, so that HOLD is never before START.
 *
 * A signal handler may be anywhere, so it takes no lock: it leaves the rest to worker 0.
 */
#include <errno.h>

#include "actors/session/cluster.h"
#include "actors/session/session.h"
#include "graph/base/error.h"
#include "transport/mail/park.h"

weir_status ending_open(struct ending *ending)
{
    if (pthread_mutex_init(&ending->lock, NULL))
        return error_set(WEIR_E_MEMORY, "no memory for a lock");
    ending->open = true;
    return WEIR_OK;
}

void ending_close(struct ending *ending)
{
    if (ending->open)
        pthread_mutex_destroy(&ending->lock);
    ending->open = false;
}

/* ---- begin and end ---- */

weir_status session_begin(struct weir_session *s, int64_t steps)
{
    struct ending *e = &s->ending;
    uint32_t rest = SESSION_REST;
    pthread_mutex_lock(&e->lock);
    /* relaxed: the lock orders it with the look in session_asked() */
    bool hold = atomic_load_explicit(&e->asked, memory_order_relaxed);
    s->steps = s->owner.steps = steps;
    s->owner.steps_end = s->first_step + s->steps_done + steps;
    s->run_start_ns = park_now_ns();
    e->begun = 0;
    e->awaited = s->worker_count;
    /* relaxed: published to the workers by START */
    atomic_store_explicit(&s->owner.limit, steps, memory_order_relaxed);
    atomic_store_explicit(&s->owner.hold, hold, memory_order_relaxed);
    atomic_store_explicit(&s->running, s->worker_count + hold, memory_order_relaxed);
    bool begins = atomic_compare_exchange_strong_explicit(&s->state, &rest, SESSION_RUNNING, memory_order_acq_rel,
                                                          memory_order_acquire);
    if (begins) {
        e->phase = hold ? RUN_HELD : RUN_GOES;
        session_order(s, LANE_START | (hold ? LANE_HOLD : 0));
    }
    pthread_mutex_unlock(&e->lock);
    return begins ? WEIR_OK : session_failure(s);
}

/* All workers are done. The outside lanes' threads may wait for what does not come any more. */
static void run_end(struct weir_session *s)
{
    struct ending *e = &s->ending;
    uint32_t running = SESSION_RUNNING;
    e->phase = RUN_OVER;
    s->run_end_ns = park_now_ns();
    s->steps = atomic_load_explicit(&s->owner.limit, memory_order_relaxed); /* the lock's */
    if (s->steps < s->owner.steps)
        atomic_store_explicit(&e->asked, 0, memory_order_relaxed);
    /* release: pairs with the load in weir_session_wait(). Fails if a failure came first. */
    if (atomic_compare_exchange_strong_explicit(&s->state, &running, SESSION_REST, memory_order_acq_rel,
                                                memory_order_relaxed))
        park_wake(&s->state);
    for (uint32_t i = 0; i < s->outside_count; i++)
        mailbox_order(&s->outside[i].mailbox, LANE_REST);
}

void session_leave_run(struct weir_session *s)
{
    /* acq_rel: what all workers did happens before the last one's decrement, and so before REST */
    if (atomic_fetch_sub_explicit(&s->running, 1, memory_order_acq_rel) != 1)
        return;
    pthread_mutex_lock(&s->ending.lock);
    /* a hold may have begun since, and have ended the run by now */
    if (s->ending.phase != RUN_OVER && !atomic_load_explicit(&s->running, memory_order_acquire))
        run_end(s);
    pthread_mutex_unlock(&s->ending.lock);
}

/* ---- hold and limit; with the lock ---- */

static void hold_begin(struct weir_session *s)
{
    s->ending.phase = RUN_HELD;
    /* relaxed: the order publishes it; in session_leave_run() the lock */
    atomic_store_explicit(&s->owner.hold, true, memory_order_relaxed);
    atomic_fetch_add_explicit(&s->running, 1, memory_order_relaxed);
    session_order(s, LANE_HOLD);
}

static void hold_end(struct weir_session *s, int64_t steps)
{
    s->ending.phase = RUN_LIMITED;
    /* relaxed: the order publishes them */
    atomic_store_explicit(&s->owner.limit, steps, memory_order_relaxed);
    atomic_store_explicit(&s->owner.hold, false, memory_order_relaxed);
    session_order(s, LANE_LIMIT);
}

/* ---- what workers say ---- */

void session_asked(struct weir_session *s)
{
    struct ending *e = &s->ending;
    pthread_mutex_lock(&e->lock);
    if (e->phase == RUN_GOES && atomic_load_explicit(&e->asked, memory_order_relaxed))
        hold_begin(s);
    pthread_mutex_unlock(&e->lock);
}

void session_held(struct weir_session *s, int64_t begun)
{
    struct ending *e = &s->ending;
    pthread_mutex_lock(&e->lock);
    e->begun = begun > e->begun ? begun : e->begun;
    bool last = --e->awaited == 0;
    if (last)
        hold_end(s, e->begun);
    pthread_mutex_unlock(&e->lock);
    if (last)
        session_leave_run(s);
}

/* ---- the program ---- */

void weir_session_stop(weir_session *s)
{
    int before = errno;
    if (!s || !caller_is_here(s))
        return;
    /* relaxed: the order publishes it */
    atomic_store_explicit(&s->ending.asked, 1, memory_order_relaxed);
    mailbox_order(&s->workers[0].lane.mailbox, LANE_ASK);
    errno = before;
}
