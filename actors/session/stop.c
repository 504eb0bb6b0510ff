/* actors/session/stop.c: how a run begins and ends, and how it ends before its time.
 *
 * Each worker fires its actors as often as the run's steps ask, and is done. A run is made shorter by lowering the
 * limit up to which they go; the plan is live, so every step within the limit can be finished, and at its end the
 * session is as after a run of that many steps. Which step that is:
 *
 *     weir_session_stop(): asked = 1, ASK --> worker 0 --> HOLD to all workers
 *         each worker: says how many steps any of its actors has begun, and begins none beyond
 *         the last of them: the limit is the most that anybody said; LIMIT to all, which go on up to there
 *         (with other ranks they are asked first: cluster_stop.c)
 *
 * Sources that work ahead have begun the most; all else follows them. Nothing of it is on the way of a firing: HOLD and
 * LIMIT change the counter of firings left, which is looked at anyway.
 *
 * A stop holds until it has made a run shorter. If it comes between two runs the next ends before its first step; if it
 * comes in the last step of a run, so does the one after. So whoever goes by what a run has done, rather than by a flag
 * of its own, misses none.
 *
 * A source that has no more values (WEIR_END), or fails, limits the run too: to the steps before. Others may have begun
 * that step; what they did of it stays where it is, since no run follows: session_end_before(). If several such steps are
 * given, the first counts.
 *
 * That is so in main. A source of another program has values for what it is asked for, or fails as any kernel does:
 * what that program says is the user's question, not where the values end.
 *
 * While workers hold, the hold counts as one more of those that the run waits for (`running`): the run cannot end, and
 * no other begin, in the middle of it. Orders are given under the lock, so that HOLD is never before START.
 *
 * A rank that has no device has nothing to do in a run, and would be at its end at once, whatever the others do. It
 * waits, as one more of `running`, until one of them tells how the run has ended.
 *
 * A signal handler may be anywhere, so it takes no lock: it leaves the rest to worker 0.
 */
#include <errno.h>
#include <string.h>

#include "actors/cluster/cluster.h"
#include "actors/session/session.h"
#include "graph/base/error.h"
#include "transport/mail/park.h"

uint64_t session_run_number(const struct weir_session *s)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)&s->ending.lock;
    pthread_mutex_lock(lock);
    uint64_t run = s->run.number;
    pthread_mutex_unlock(lock);
    return run;
}

/* ---- begin and end ---- */

static int64_t ran(const struct weir_session *s, uint32_t program)
{
    return atomic_load_explicit(&s->progress.ran[program], memory_order_acquire); /* pairs with run_end() */
}

/* How many steps of main there can be since open. */
static int64_t steps_to_end(const struct weir_session *s)
{
    int64_t end = atomic_load_explicit(&s->ending.end, memory_order_relaxed);
    return end == INT64_MAX ? end : end - s->run.first_step;
}

/* Without the lock, which a child of fork() may find taken for ever. */
int64_t session_steps_of(const struct weir_session *s, uint32_t program)
{
    int64_t steps = ran(s, program), most = program ? INT64_MAX : steps_to_end(s);
    return steps < most ? steps : most;
}

int64_t session_steps(const struct weir_session *s)
{
    return session_steps_of(s, 0);
}

int64_t session_steps_all(const struct weir_session *s)
{
    int64_t steps = 0;
    for (uint32_t p = 0; p < s->plan->programs_count; p++)
        steps += session_steps_of(s, p);
    return steps;
}

bool session_at_rest(const struct weir_session *s)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)&s->ending.lock;
    pthread_mutex_lock(lock);
    bool over = s->run.phase == RUN_OVER;
    pthread_mutex_unlock(lock);
    return over;
}

uint32_t session_program(const struct weir_session *s)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)&s->ending.lock;
    pthread_mutex_lock(lock);
    uint32_t program = s->progress.program;
    pthread_mutex_unlock(lock);
    return program;
}

/* The step that the run began at. With the lock. */
static int64_t run_begin(const struct weir_session *s)
{
    return s->progress.program ? s->workers.owner.begins_at : s->run.first_step + ran(s, 0);
}

/* How many of so many steps of the run are before the end. With the lock. */
static int64_t steps_before_end(const struct weir_session *s, int64_t steps)
{
    int64_t most = s->progress.program ? INT64_MAX : steps_to_end(s);
    most = most == INT64_MAX ? steps : most - ran(s, 0);
    return most < 0 ? 0 : most < steps ? most : steps;
}

/* How many of so many steps the others have done, where that is known. With the lock. */
static int64_t steps_at_most(const struct weir_session *s, int64_t steps)
{
    int64_t most = s->run.most == INT64_MAX ? steps : s->run.most - run_begin(s);
    return most < steps ? most : steps;
}

/* Other ranks go by what this one still has to do. With the lock. */
static void limited(struct weir_session *s)
{
    int64_t limit = atomic_load_explicit(&s->workers.owner.limit, memory_order_relaxed);
    int64_t others = s->progress.program ? limit : 0;
    for (uint32_t p = 1; p < s->plan->programs_count; p++)
        others += ran(s, p);
    cluster_limited(s->built.cluster, others + ran(s, 0) + (s->progress.program ? 0 : limit), others);
}

weir_status session_begin(struct weir_session *s, uint32_t program, const weir_run_opts *run)
{
    struct ending *e = &s->ending;
    struct session_run *r = &s->run;
    pthread_mutex_lock(&e->lock);
    /* relaxed: the lock orders it with the look in session_asked() */
    r->number++;
    bool hold = atomic_load_explicit(&r->asked, memory_order_relaxed) || cluster_wants_hold(s->built.cluster);
    s->progress.program = s->workers.owner.program = program;
    s->workers.owner.steps = run->steps;
    s->workers.owner.begins_at = program ? run->first_step : -1;
    s->workers.owner.steps_end = run->steps + (program ? run->first_step : s->run.first_step + ran(s, 0));
    s->progress.start_ns = park_now_ns();
    r->begun = 0;
    r->awaited = s->workers.count;
    r->follows = cluster_follows(s->built.cluster, &r->most);
    /* relaxed: published to the workers by START */
    atomic_store_explicit(&s->workers.owner.limit, steps_before_end(s, steps_at_most(s, run->steps)), memory_order_relaxed);
    atomic_store_explicit(&s->workers.owner.hold, hold, memory_order_relaxed);
    atomic_store_explicit(&s->progress.running, s->workers.count + hold + r->follows, memory_order_relaxed);
    bool begins = ending_happens(e, ENDING_BEGINS);
    if (begins) {
        r->phase = hold ? RUN_HELD : RUN_GOES;
        session_order(s, LANE_START | (hold ? LANE_HOLD : 0));
        limited(s);
        if (hold)
            cluster_hold_began(s->built.cluster);
    }
    pthread_mutex_unlock(&e->lock);
    return begins ? WEIR_OK : ending_failure(e);
}

/* At rest: whether the session is at its end, and then how. Threads that wait for values look again. */
static void settle(struct weir_session *s)
{
    struct ending *e = &s->ending;
    if (s->run.first_step + ran(s, 0) < atomic_load_explicit(&e->end, memory_order_relaxed)) /* the lock's */
        ending_happens(e, ENDING_STOPS);
    else if (!e->last.failed)
        ending_happens(e, ENDING_ENDS);
    else
        session_fail_at_end(s);
    session_order_outside(s, LANE_REST);
}

/* All workers are done. */
static void run_end(struct weir_session *s)
{
    s->run.phase = RUN_OVER;
    s->progress.end_ns = park_now_ns();
    int64_t steps = atomic_load_explicit(&s->workers.owner.limit, memory_order_relaxed); /* the lock's */
    if (steps < s->workers.owner.steps)
        atomic_store_explicit(&s->run.asked, 0, memory_order_relaxed);
    cluster_tell_over(s->built.cluster, run_begin(s) + steps);
    atomic_fetch_add_explicit(&s->progress.ran[s->progress.program], steps, memory_order_release); /* pairs with ran() */
    settle(s);
}

void session_leave_run(struct weir_session *s)
{
    /* acq_rel: what all workers did happens before the last one's decrement, and so before REST */
    if (atomic_fetch_sub_explicit(&s->progress.running, 1, memory_order_acq_rel) != 1)
        return;
    pthread_mutex_lock(&s->ending.lock);
    /* a hold may have begun since, and have ended the run by now */
    if (s->run.phase != RUN_OVER && !atomic_load_explicit(&s->progress.running, memory_order_acquire))
        run_end(s);
    pthread_mutex_unlock(&s->ending.lock);
}

/* ---- hold and limit; with the lock ---- */

void session_hold_begin(struct weir_session *s)
{
    s->run.phase = RUN_HELD;
    /* relaxed: the order publishes it; in session_leave_run() the lock */
    atomic_store_explicit(&s->workers.owner.hold, true, memory_order_relaxed);
    atomic_fetch_add_explicit(&s->progress.running, 1, memory_order_relaxed);
    session_order(s, LANE_HOLD);
    cluster_hold_began(s->built.cluster);
}

void session_hold_end(struct weir_session *s, int64_t step)
{
    int64_t steps = step - run_begin(s); /* first_step may be negative: weir_session_load() */
    if (steps > s->workers.owner.steps)
        steps = s->workers.owner.steps;
    s->run.phase = RUN_LIMITED;
    /* relaxed: the order publishes them */
    atomic_store_explicit(&s->workers.owner.limit, steps_before_end(s, steps_at_most(s, steps)), memory_order_relaxed);
    atomic_store_explicit(&s->workers.owner.hold, false, memory_order_relaxed);
    limited(s);
    session_order(s, LANE_LIMIT);
}

bool session_followed(struct weir_session *s, int64_t step)
{
    struct session_run *r = &s->run;
    if (!r->follows)
        return false;
    r->follows = false;
    r->most = step;
    if (r->phase != RUN_HELD) /* else when that is over */
        session_hold_end(s, step);
    return true;
}

/* ---- what workers say ---- */

void session_asked(struct weir_session *s)
{
    pthread_mutex_lock(&s->ending.lock);
    if (s->run.phase == RUN_GOES && atomic_load_explicit(&s->run.asked, memory_order_relaxed))
        session_hold_begin(s);
    pthread_mutex_unlock(&s->ending.lock);
}

void session_held(struct weir_session *s, int64_t begun, bool again)
{
    struct session_run *r = &s->run;
    pthread_mutex_lock(&s->ending.lock);
    /* relaxed: the hold counts, so nobody ends the run meanwhile */
    atomic_fetch_add_explicit(&s->progress.running, again, memory_order_relaxed);
    r->begun = begun > r->begun ? begun : r->begun;
    bool last = --r->awaited == 0;
    int64_t step = run_begin(s) + r->begun;
    bool over = last && (!s->built.cluster || cluster_held(s->built.cluster, step));
    if (last && !s->built.cluster)
        session_hold_end(s, step);
    pthread_mutex_unlock(&s->ending.lock);
    if (over)
        session_leave_run(s);
}

/* ---- sources ---- */

/* Whether it makes all that it gives from nothing: it reads nothing, nor changes what an earlier step left. */
static bool makes_anew(const weir_plan *plan, const plan_actor *actor)
{
    for (uint32_t r = actor->regsts.first; r < actor->regsts.first + actor->regsts.count; r++)
        if (plan->regsts[r].initial)
            return false;
    return !actor->ports.count;
}

bool session_is_source(const struct weir_session *s, const struct actor_kernel *kernel)
{
    const weir_plan *plan = s->plan;
    uint32_t host = plan->kernels[kernel->id].host;
    if (host == PLAN_NONE)
        return false;
    return plan->hosts[host].kind == PLAN_SOURCE ||
           (plan->hosts[host].kind == PLAN_CALL && makes_anew(plan, &plan->actors[plan->kernels[kernel->id].actor.i]));
}

void session_end_source(struct weir_session *s, const struct actor *actor, const struct actor_kernel *kernel,
                        weir_status status, const char *sentence)
{
    struct last_step last = {.end = actor->step,
                             .failed = status != WEIR_END,
                             .status = status,
                             .culprit = built_rank(&s->built),
                             .from = built_rank(&s->built)};
    const plan_kernel *from = &s->plan->kernels[kernel->id];
    if (last.failed)
        session_describe(s, actor, kernel, sentence, last.text, sizeof(last.text));
    else
        snprintf(last.text, sizeof(last.text), "%s:%u: %s has come to its end: there is no value for step %lld",
                 plan_text(s->plan, from->file), from->line, plan_text(s->plan, from->name), (long long)actor->step);
    session_end_before(s, &last);
}

bool session_end_before(struct weir_session *s, const struct last_step *last)
{
    pthread_mutex_lock(&s->ending.lock);
    bool earlier = ending_before(&s->ending, last);
    if (earlier) {
        /* relaxed: the orders publish it */
        int64_t limit = atomic_load_explicit(&s->workers.owner.limit, memory_order_relaxed);
        atomic_store_explicit(&s->workers.owner.limit, steps_before_end(s, limit), memory_order_relaxed);
        cluster_tell_end(s->built.cluster, last);
        if (s->run.phase == RUN_OVER) {
            settle(s);
        } else {
            limited(s);
            session_order(s, LANE_LIMIT);
        }
    }
    pthread_mutex_unlock(&s->ending.lock);
    return earlier;
}

/* ---- the program ---- */

void weir_session_stop(weir_session *s)
{
    int before = errno;
    if (!caller_is_here(s))
        return;
    /* relaxed: the order publishes it */
    atomic_store_explicit(&s->run.asked, 1, memory_order_relaxed);
    mailbox_order(&s->workers.list[0].lane.mailbox, LANE_ASK);
    errno = before;
}
