/* actors/session/cluster_stop.c: how the ranks agree on the step after which a run ends before its time. See stop.c for
 * what each does by itself, and docs/wire.md for the frames.
 *
 * Stop. Whoever is asked holds its own workers, and tells rank 0 how many steps they have begun; rank 0 asks all others
 * to hold the same run, and when it knows of all, tells the limit, the most that anybody has begun:
 *
 *     rank 2 (asked): holds  --BEGUN 17-->  rank 0: holds  --HOLD-->  rank 1: holds
 *                                           rank 0        <--BEGUN 19--
 *                     goes on  <--LIMIT 19--  rank 0  --LIMIT 19-->  goes on
 *
 * Runs are told apart by their numbers, as ranks may be several apart. Who has done all of the run already says so:
 * then that is how far it goes. Who has not come to it yet holds when it begins it.
 *
 * End. A rank whose source ends, or fails, tells its neighbours before which step, and each that learns something by
 * that tells its own. The lowest step counts.
 *
 * A rank without a device, which is *idle*, runs as long as others: who comes to the end of a run tells the idle ones
 * among its neighbours by a LIMIT, and so does rank 0 when it is one itself and has been told. What comes of runs that an
 * idle rank has not begun yet is kept for then.
 *
 * LIMIT and END are passed on by all before they say BYE, on the same way, so nobody takes a rank for one that left in
 * the middle of a run when it has only heard of its end first.
 *
 * All of it is under the lock of the session's `ending`.
 */
#include <stdlib.h>
#include <string.h>

#include "actors/session/cluster.h"
#include "actors/session/session.h"

/* ---- what is said ---- */

static void tell(struct cluster *c, uint32_t to, uint32_t what, uint64_t run, int64_t step)
{
    struct wire_frame frame = {.kind = WIRE_HOLD, .hold = {.what = what, .run = run, .step = step}};
    net_request(c->net, to, &frame, NULL, 0);
}

void cluster_tell_end(struct weir_session *s, const struct last_step *last)
{
    struct wire_frame frame = {.kind = WIRE_END,
                               .end = {.culprit = last->culprit,
                                       .from = last->from,
                                       .what = last->failed ? WIRE_SOURCE_FAILED : WIRE_SOURCE_ENDED,
                                       .step = last->end}};
    if (!s->cluster)
        return;
    snprintf(frame.end.text, sizeof(frame.end.text), "%s", last->text);
    net_request(s->cluster->net, NET_NEIGHBOURS, &frame, NULL, 0);
}

void cluster_limited(struct weir_session *s)
{
    struct cluster *c = s->cluster;
    int64_t limit = atomic_load_explicit(&s->owner.limit, memory_order_relaxed), others = s->program ? limit : 0;
    for (uint32_t p = 1; p < s->plan->programs_count; p++)
        others += s->ran[p];
    if (!c)
        return;
    /* seq_cst: as in cluster_start() */
    atomic_store(&c->others, others);
    atomic_store(&c->target, others + s->steps_done + (s->program ? 0 : limit));
}

int64_t cluster_due(const struct cluster *c)
{
    int64_t target = atomic_load(&c->target);
    int64_t end = atomic_load_explicit(&c->session->ending.end, memory_order_relaxed);
    if (end == INT64_MAX) /* none is known */
        return target;
    end += atomic_load(&c->others) - c->session->first_step; /* only main's steps come to an end */
    return target < end ? target : end;
}

/* ---- hold ---- */

bool cluster_wants_hold(const struct weir_session *s)
{
    const struct cluster *c = s->cluster;
    bool wants = c && c->hold_run == s->run.number;
    for (uint32_t r = 0; c && c->env.rank == 0 && r < c->env.size; r++)
        wants |= c->begun[r].run == s->run.number;
    return wants;
}

void cluster_hold_began(struct weir_session *s)
{
    if (s->cluster && s->cluster->env.rank == 0)
        tell(s->cluster, NET_NEIGHBOURS, WIRE_HOLD_ASK, s->run.number, 0);
}

/* What the rank has begun of this run, as far as is known; -1: it has not said. Who has left has done what it had
 * to. */
static int64_t begun_by(struct cluster *c, uint32_t rank, uint64_t run)
{
    if (c->begun[rank].run == run)
        return c->begun[rank].step;
    return c->begun[rank].run > run || atomic_load(&c->left[rank]) >= 0 ? WIRE_WHOLE_RUN : -1;
}

/* Rank 0: whether all have answered; then the limit is told, and set. */
static bool decide(struct weir_session *s)
{
    struct cluster *c = s->cluster;
    struct session_run *r = &s->run;
    int64_t most = 0;
    if (r->phase != RUN_HELD || r->awaited)
        return false;
    for (uint32_t rank = 0; rank < c->env.size; rank++) {
        int64_t step = begun_by(c, rank, r->number);
        if (step < 0)
            return false;
        most = step > most ? step : most;
    }
    tell(c, NET_NEIGHBOURS, WIRE_HOLD_LIMIT, r->number, most);
    session_hold_end(s, most);
    return true;
}

bool cluster_held(struct weir_session *s, int64_t step)
{
    struct cluster *c = s->cluster;
    c->begun[c->env.rank] = (struct begun){s->run.number, step};
    if (c->env.rank == 0)
        return decide(s);
    tell(c, 0, WIRE_HOLD_BEGUN, s->run.number, step);
    return false;
}

bool cluster_rank_left(struct weir_session *s)
{
    return s->cluster->env.rank == 0 && decide(s);
}

/* ---- idle ranks ---- */

bool cluster_follows(struct weir_session *s, int64_t *most)
{
    struct cluster *c = s->cluster;
    uint32_t kept = 0;
    *most = INT64_MAX;
    for (uint32_t i = 0; c && i < c->over_count; i++)
        if (c->over[i].run == s->run.number)
            *most = c->over[i].step;
        else if (c->over[i].run > s->run.number)
            c->over[kept++] = c->over[i];
    if (c)
        c->over_count = kept;
    return c && c->idle[c->env.rank] && *most == INT64_MAX;
}

void cluster_tell_over(struct weir_session *s, int64_t step)
{
    struct cluster *c = s->cluster;
    for (uint32_t r = 0; c && r < c->env.size; r++)
        if (c->idle[r] && r != c->env.rank && net_neighbour(c->net, r) &&
            (!c->idle[c->env.rank] || c->env.rank == 0))
            tell(c, r, WIRE_HOLD_LIMIT, s->run.number, step);
}

/* Of a run that has not begun here. Several tell of one. False: no memory. */
static bool keep_over(struct weir_session *s, uint64_t run, int64_t step)
{
    struct cluster *c = s->cluster;
    for (uint32_t i = 0; i < c->over_count; i++)
        if (c->over[i].run == run)
            return true;
    if (c->over_count == c->over_room) {
        uint32_t room = c->over_room ? 2 * c->over_room : 16;
        struct begun *grown = realloc(c->over, room * sizeof(*grown));
        if (!grown)
            return false;
        c->over = grown;
        c->over_room = room;
    }
    c->over[c->over_count++] = (struct begun){run, step};
    return true;
}

/* ---- what others say; with the lock ---- */

/* Rank 0 wants the run held. One that is over here went to its end, and so will it everywhere. */
static void take_ask(struct weir_session *s, uint64_t run)
{
    struct cluster *c = s->cluster;
    struct session_run *r = &s->run;
    struct begun *own = &c->begun[c->env.rank];
    if (run <= own->run)
        return; /* it has said so unasked */
    if (run > r->number) {
        c->hold_run = run;
    } else if (run < r->number || r->phase == RUN_OVER) {
        *own = (struct begun){run, WIRE_WHOLE_RUN};
        tell(c, 0, WIRE_HOLD_BEGUN, run, WIRE_WHOLE_RUN);
    } else if (r->phase == RUN_GOES) {
        session_hold_begin(s);
    }
}

/* A rank holds, be it that it was asked to or that it was the first. */
static bool take_begun(struct weir_session *s, uint32_t rank, uint64_t run, int64_t step)
{
    struct session_run *r = &s->run;
    s->cluster->begun[rank] = (struct begun){run, step};
    if (step != WIRE_WHOLE_RUN && (run < r->number || (run == r->number && r->phase == RUN_OVER)))
        tell(s->cluster, rank, WIRE_HOLD_LIMIT, run, WIRE_WHOLE_RUN);
    if (run == r->number && r->phase == RUN_GOES)
        session_hold_begin(s);
    return decide(s);
}

/* Elsewhere a run is over, or limited, that goes on in this idle rank for as long. Counts how often it is to be left
 * here. */
static bool take_over(struct weir_session *s, uint64_t run, int64_t step, int *leaves)
{
    if (!s->cluster->idle[s->cluster->env.rank] || step == WIRE_WHOLE_RUN)
        return true;
    if (run > s->run.number)
        return keep_over(s, run, step);
    *leaves += run == s->run.number && session_followed(s, step);
    return true;
}

/* Comes from rank 0, and from all neighbours that have heard of it. */
static bool take_limit(struct weir_session *s, uint64_t run, int64_t step)
{
    struct session_run *r = &s->run;
    if (run != r->number || r->phase != RUN_HELD || r->awaited || s->cluster->env.rank == 0)
        return false;
    tell(s->cluster, NET_NEIGHBOURS, WIRE_HOLD_LIMIT, run, step);
    session_hold_end(s, step);
    return true;
}

/* Whether the rank may say that: rank 0 asks, all others answer, once for each run; a limit is no step that this rank
 * is past. */
static bool hold_fits(const struct weir_session *s, uint32_t rank, const struct wire_frame *frame)
{
    const struct cluster *c = s->cluster;
    uint64_t run = frame->hold.run;
    int64_t step = frame->hold.step;
    if (!run || step < 0)
        return false;
    if (frame->hold.what == WIRE_HOLD_ASK)
        return rank == 0;
    if (frame->hold.what == WIRE_HOLD_BEGUN)
        return c->env.rank == 0 && run > c->begun[rank].run;
    return run != s->run.number || s->run.phase != RUN_HELD || s->run.awaited ||
           step >= c->begun[c->env.rank].step;
}

bool cluster_take_hold(struct cluster *c, uint32_t rank, const struct wire_frame *frame)
{
    struct weir_session *s = c->session;
    int over = 0;
    pthread_mutex_lock(&s->ending.lock);
    bool fits = hold_fits(s, rank, frame);
    if (fits && frame->hold.what == WIRE_HOLD_ASK)
        take_ask(s, frame->hold.run);
    else if (fits && frame->hold.what == WIRE_HOLD_BEGUN)
        over = take_begun(s, rank, frame->hold.run, frame->hold.step);
    else if (fits)
        fits = take_over(s, frame->hold.run, frame->hold.step, &over);
    if (fits && frame->hold.what == WIRE_HOLD_LIMIT)
        over += take_limit(s, frame->hold.run, frame->hold.step);
    pthread_mutex_unlock(&s->ending.lock);
    while (over--)
        session_leave_run(s);
    return fits;
}

bool cluster_take_end(struct cluster *c, const struct wire_frame *frame)
{
    struct last_step last = {.end = frame->end.step,
                             .failed = frame->end.what == WIRE_SOURCE_FAILED,
                             .status = WEIR_E_PEER,
                             .culprit = frame->end.culprit,
                             .from = frame->end.from};
    if (last.culprit >= c->env.size || last.from >= c->env.size || last.end < 0)
        return false;
    snprintf(last.text, sizeof(last.text), "%.*s", (int)sizeof(last.text) - 1, frame->end.text);
    if (frame->end.what == WIRE_CANCELLED)
        session_fail_told(c->session, last.from, last.culprit, true, last.text);
    else
        session_end_before(c->session, &last);
    return true;
}
