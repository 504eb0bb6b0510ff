/* actors/cluster/stop.c: how the ranks agree on the step after which a run ends before its time. See stop.c for
 * what each does by itself, and docs/wire.md for the frames.
 *
 * Stop. A rank that is asked holds its own workers, and tells rank 0 how many steps they have begun; rank 0 asks all others
 * to hold the same run, and when it knows of all, tells the limit, the most that anybody has begun:
 *
 *     rank 2 (asked): holds  --BEGUN 17-->  rank 0: holds  --HOLD-->  rank 1: holds
 *                                           rank 0        <--BEGUN 19--
 *                     goes on  <--LIMIT 19--  rank 0  --LIMIT 19-->  goes on
 *
 * Runs are told apart by their numbers, as ranks may be several apart. A rank that has done all of the run already says so:
 * then that is how far it goes. A rank that has not come to it yet holds when it begins it.
 *
 * End. A rank whose source ends, or fails, tells its neighbours before which step, and each that learns something by
 * that tells its own. The lowest step counts.
 *
 * A rank without a device, which is *idle*, runs as long as others: who comes to the end of a run tells the idle ones
 * among its neighbours by a LIMIT, and so does rank 0 when it is one itself and has been told. Words about runs that an idle
 * rank has not begun yet are kept for then. An idle rank that did not wait would have done all of a run before anybody stops it:
 * rank 0 would find the whole run begun, and could make none shorter; and it would close its session while others still end
 * theirs. About 90 lines serve such ranks alone.
 *
 * LIMIT and END are passed on by all before they say BYE, on the same way, so nobody takes a rank for one that left in
 * the middle of a run when it has only heard of its end first.
 *
 * All of it is under the lock of owner->ending.
 */
#include <stdlib.h>
#include <string.h>

#include "actors/cluster/cluster.h"

/* ---- what is said ---- */

static void tell(struct cluster *c, uint32_t to, uint32_t what, uint64_t run, int64_t step)
{
    struct wire_frame frame = {.kind = WIRE_HOLD, .hold = {.what = what, .run = run, .step = step}};
    net_request(c->net, to, &frame, NULL, 0);
}

void cluster_tell_end(struct cluster *c, const struct last_step *last)
{
    struct wire_frame frame = {.kind = WIRE_END,
                               .end = {.culprit = last->culprit,
                                       .from = last->from,
                                       .what = last->failed ? WIRE_SOURCE_FAILED : WIRE_SOURCE_ENDED,
                                       .step = last->end}};
    if (!c)
        return;
    snprintf(frame.end.text, sizeof(frame.end.text), "%s", last->text);
    net_request(c->net, NET_NEIGHBOURS, &frame, NULL, 0);
}

void cluster_limited(struct cluster *c, int64_t steps, int64_t others)
{
    if (!c)
        return;
    /* seq_cst: as in cluster_start() */
    atomic_store(&c->others, others);
    atomic_store(&c->target, steps);
}

int64_t cluster_due(const struct cluster *c)
{
    int64_t target = atomic_load(&c->target);
    int64_t end = atomic_load_explicit(&c->owner->ending->end, memory_order_relaxed);
    if (end == INT64_MAX) /* none is known */
        return target;
    end += atomic_load(&c->others) - c->owner->run->first_step; /* only main's steps come to an end */
    return target < end ? target : end;
}

/* ---- hold ---- */

bool cluster_wants_hold(const struct cluster *c)
{
    bool wants = c && c->hold_run == c->owner->run->number;
    for (uint32_t r = 0; c && c->env.rank == 0 && r < c->env.size; r++)
        wants |= c->begun[r].run == c->owner->run->number;
    return wants;
}

void cluster_hold_began(struct cluster *c)
{
    if (c && c->env.rank == 0)
        tell(c, NET_NEIGHBOURS, WIRE_HOLD_ASK, c->owner->run->number, 0);
}

/* The steps of this run that the rank has begun, as far as is known; -1: it has not said. A rank that has left has done what
 * it had to. */
static int64_t begun_by(struct cluster *c, uint32_t rank, uint64_t run)
{
    if (c->begun[rank].run == run)
        return c->begun[rank].step;
    return c->begun[rank].run > run || atomic_load(&c->left[rank]) >= 0 ? WIRE_WHOLE_RUN : -1;
}

/* Rank 0: whether all have answered; then the limit is told, and set. */
static bool decide(struct cluster *c)
{
    struct session_run *r = c->owner->run;
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
    c->owner->limit(c->owner, most);
    return true;
}

bool cluster_held(struct cluster *c, int64_t step)
{
    c->begun[c->env.rank] = (struct begun){c->owner->run->number, step};
    if (c->env.rank == 0)
        return decide(c);
    tell(c, 0, WIRE_HOLD_BEGUN, c->owner->run->number, step);
    return false;
}

bool cluster_rank_left(struct cluster *c)
{
    return c->env.rank == 0 && decide(c);
}

/* ---- idle ranks ---- */

bool cluster_follows(struct cluster *c, int64_t *most)
{
    uint64_t run = c ? c->owner->run->number : 0;
    uint32_t kept = 0;
    *most = INT64_MAX;
    for (uint32_t i = 0; c && i < c->over_count; i++)
        if (c->over[i].run == run)
            *most = c->over[i].step;
        else if (c->over[i].run > run)
            c->over[kept++] = c->over[i];
    if (c)
        c->over_count = kept;
    return c && c->idle[c->env.rank] && *most == INT64_MAX;
}

void cluster_tell_over(struct cluster *c, int64_t step)
{
    for (uint32_t r = 0; c && r < c->env.size; r++)
        if (c->idle[r] && r != c->env.rank && net_neighbour(c->net, r) &&
            (!c->idle[c->env.rank] || c->env.rank == 0))
            tell(c, r, WIRE_HOLD_LIMIT, c->owner->run->number, step);
}

/* Notes a step of a run that has not begun here. Several tell of one. False: no memory. */
static bool keep_over(struct cluster *c, uint64_t run, int64_t step)
{
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
static void take_ask(struct cluster *c, uint64_t run)
{
    struct session_run *r = c->owner->run;
    struct begun *own = &c->begun[c->env.rank];
    if (run <= own->run)
        return; /* it has said so unasked */
    if (run > r->number) {
        c->hold_run = run;
    } else if (run < r->number || r->phase == RUN_OVER) {
        *own = (struct begun){run, WIRE_WHOLE_RUN};
        tell(c, 0, WIRE_HOLD_BEGUN, run, WIRE_WHOLE_RUN);
    } else if (r->phase == RUN_GOES) {
        c->owner->hold(c->owner);
    }
}

/* A rank holds, be it that it was asked to or that it was the first. */
static bool take_begun(struct cluster *c, uint32_t rank, uint64_t run, int64_t step)
{
    struct session_run *r = c->owner->run;
    c->begun[rank] = (struct begun){run, step};
    if (step != WIRE_WHOLE_RUN && (run < r->number || (run == r->number && r->phase == RUN_OVER)))
        tell(c, rank, WIRE_HOLD_LIMIT, run, WIRE_WHOLE_RUN);
    if (run == r->number && r->phase == RUN_GOES)
        c->owner->hold(c->owner);
    return decide(c);
}

/* Elsewhere a run is over, or limited, that goes on in this idle rank for as long. Counts how often it is to be left
 * here. */
static bool take_over(struct cluster *c, uint64_t run, int64_t step, int *leaves)
{
    if (!c->idle[c->env.rank] || step == WIRE_WHOLE_RUN)
        return true;
    if (run > c->owner->run->number)
        return keep_over(c, run, step);
    *leaves += run == c->owner->run->number && c->owner->follow(c->owner, step);
    return true;
}

/* Comes from rank 0, and from all neighbours that have heard of it. */
static bool take_limit(struct cluster *c, uint64_t run, int64_t step)
{
    struct session_run *r = c->owner->run;
    if (run != r->number || r->phase != RUN_HELD || r->awaited || c->env.rank == 0)
        return false;
    tell(c, NET_NEIGHBOURS, WIRE_HOLD_LIMIT, run, step);
    c->owner->limit(c->owner, step);
    return true;
}

/* Whether the rank may say that: rank 0 asks, all others answer, once for each run; a limit is no step that this rank
 * is past. */
static bool hold_fits(const struct cluster *c, uint32_t rank, const struct wire_frame *frame)
{
    const struct session_run *r = c->owner->run;
    uint64_t run = frame->hold.run;
    int64_t step = frame->hold.step;
    if (!run || step < 0)
        return false;
    if (frame->hold.what == WIRE_HOLD_ASK)
        return rank == 0;
    if (frame->hold.what == WIRE_HOLD_BEGUN)
        return c->env.rank == 0 && run > c->begun[rank].run;
    return run != r->number || r->phase != RUN_HELD || r->awaited ||
           step >= c->begun[c->env.rank].step;
}

bool cluster_take_hold(struct cluster *c, uint32_t rank, const struct wire_frame *frame)
{
    int over = 0;
    pthread_mutex_lock(&c->owner->ending->lock);
    bool fits = hold_fits(c, rank, frame);
    if (fits && frame->hold.what == WIRE_HOLD_ASK)
        take_ask(c, frame->hold.run);
    else if (fits && frame->hold.what == WIRE_HOLD_BEGUN)
        over = take_begun(c, rank, frame->hold.run, frame->hold.step);
    else if (fits)
        fits = take_over(c, frame->hold.run, frame->hold.step, &over);
    if (fits && frame->hold.what == WIRE_HOLD_LIMIT)
        over += take_limit(c, frame->hold.run, frame->hold.step);
    pthread_mutex_unlock(&c->owner->ending->lock);
    while (over--)
        c->owner->leave_run(c->owner);
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
        c->owner->told(c->owner, last.from, last.culprit, true, last.text);
    else
        c->owner->ends(c->owner, &last);
    return true;
}
