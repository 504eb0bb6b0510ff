/* actors/session/workers.c: see the header. */
#include "actors/session/session.h"

#include <stdlib.h>
#include <string.h>

#include "actors/cluster/cluster.h"
#include "graph/base/error.h"
#include "graph/plan/spread/deal.h"
#include "transport/mail/cores.h"
#include "transport/mail/park.h"

/* ---- which worker runs what ---- */

weir_status session_assign_queues(struct weir_session *s)
{
    plan_workers workers;
    s->workers.of_queue = calloc(s->plan->queues_count + 1, sizeof(*s->workers.of_queue));
    if (!s->workers.of_queue)
        return error_set(WEIR_E_MEMORY, "no memory for %u queues", s->plan->queues_count);
    const uint32_t rank = s->built.cluster ? s->built.cluster->env.rank : PLAN_NONE;
    weir_status status = plan_deal(s->plan, rank, crew_places(s->workers.crew), s->workers.of_queue, &workers);
    if (status)
        return status;
    s->workers.compute_count = workers.compute;
    s->workers.count = workers.all;
    return WEIR_OK;
}

weir_status session_unsupported(const weir_session_opts *opts, const char *why)
{
    return error_set(WEIR_E_UNSUPPORTED, "%s:%d: weir_session_open: %s", opts->src.file, opts->src.line, why);
}

/* The threads that compute: other sessions' too, or up to so many of its own. */
weir_status session_open_crew(struct weir_session *s, const weir_session_opts *opts)
{
    uint32_t wanted = opts->workers > 0 ? (uint32_t)opts->workers : (uint32_t)cores_count();
    s->workers.guest = opts->workers_of != NULL;
    if (!s->workers.guest)
        s->workers.crew = crew_new(wanted, "", 0);
    else if (s->built.cluster || opts->workers_of->built.cluster)
        return session_unsupported(opts, "a session of several ranks shares no workers");
    else if (opts->workers_of->devices.queues)
        return session_unsupported(opts, "workers of accelerators are not shared");
    else
        crew_hold(s->workers.crew = opts->workers_of->workers.crew);
    return s->workers.crew ? WEIR_OK : error_set(WEIR_E_MEMORY, "no memory for %u workers", wanted);
}

/* ---- lanes ---- */

static uint32_t count_outside(const struct weir_session *s)
{
    const weir_plan *plan = s->plan;
    uint32_t count = 0;
    for (uint32_t a = 0; a < plan->actors_count; a++)
        count += plan->queues[plan->actors[a].queue.i].kind == PLAN_OUTSIDE && built_runs(&s->built, a);
    return count;
}

/* Every actor's lane; NULL for those of other ranks. Lanes are not open yet. */
static void assign_lanes(struct weir_session *s)
{
    struct lane *outside = s->outside.lanes;
    for (uint32_t a = 0; a < s->plan->actors_count; a++) {
        uint32_t queue = s->plan->actors[a].queue.i;
        bool is_outside = s->plan->queues[queue].kind == PLAN_OUTSIDE;
        if (built_runs(&s->built, a))
            s->built.lane_of[a] = is_outside ? outside++ : &s->workers.list[s->workers.of_queue[queue]].lane;
    }
}

weir_status session_alloc_lanes(struct weir_session *s)
{
    s->outside.count = count_outside(s);
    s->workers.list = aligned_alloc(APART_BYTES, s->workers.count * sizeof(*s->workers.list));
    s->outside.lanes = aligned_alloc(APART_BYTES, (s->outside.count + 1) * sizeof(*s->outside.lanes));
    s->built.lane_of = calloc(s->plan->actors_count + 1, sizeof(*s->built.lane_of));
    if (s->workers.list)
        memset(s->workers.list, 0, s->workers.count * sizeof(*s->workers.list));
    if (s->outside.lanes)
        memset(s->outside.lanes, 0, (s->outside.count + 1) * sizeof(*s->outside.lanes));
    if (!s->workers.list || !s->outside.lanes || !s->built.lane_of)
        return error_set(WEIR_E_MEMORY, "no memory for %u workers", s->workers.count);
    assign_lanes(s);
    return WEIR_OK;
}

static weir_status open_lane(struct weir_session *s, struct lane *lane, uint32_t number, const struct lane_size *size,
                             struct spin spin)
{
    bool shared = s->built.cluster && s->built.cluster->own.segment.base;
    weir_status status = lane_open(lane, size, spin, shared ? share_ring(&s->built.cluster->own, number) : NULL);
    lane->guard = shared ? &s->outside.guard : NULL;
    return status;
}

static weir_status open_worker(struct weir_session *s, uint32_t number, const struct lane_size *size, struct spin spin)
{
    struct worker *worker = &s->workers.list[number];
    worker->owner = &s->workers.owner;
    worker->number = number;
    worker->reported = true; /* nothing to report before the first run */
    worker->by_rank = calloc(size->actors + 1, sizeof(*worker->by_rank));
    if (!worker->by_rank)
        return error_set(WEIR_E_MEMORY, "no memory for worker %u", number);
    return open_lane(s, &worker->lane, number, size, spin);
}

static void refuse_message(struct lane_guard *guard, struct message message)
{
    struct weir_session *s = (struct weir_session *)((char *)guard - offsetof(struct weir_session, outside.guard));
    session_fail_peer(s, s->built.cluster->env.rank,
                      "another process posted to rank %u what no actor does: edge %u, kind %u, count %u",
                      s->built.cluster->env.rank, message.edge, message.kind, message.count);
}

static struct spin choose_spin(const struct weir_session *s)
{
    if (s->workers.spin_ns >= 0)
        return spin_fixed(s->workers.spin_ns);
    return spin_measured(s->workers.compute_count <= (uint32_t)cores_count() ? park_wake_cost_ns() : 0);
}

/* Threads that are bound, or run the workers of other sessions, too, stay where they are. */
static weir_status open_team(struct weir_session *s)
{
    const uint32_t count = s->workers.compute_count;
    if (count < 2 || count > (uint32_t)cores_count() || s->workers.pin || s->workers.guest)
        return WEIR_OK;
    struct mailbox_team *team = &s->workers.team;
    *team = (struct mailbox_team){.members = calloc(count, sizeof(*team->members)), .count = count};
    if (!team->members)
        return error_set(WEIR_E_MEMORY, "no memory for a list of %u workers", count);
    for (uint32_t w = 0; w < count; w++) {
        team->members[w] = &s->workers.list[w].lane.mailbox;
        team->members[w]->team = team;
    }
    return WEIR_OK;
}

weir_status session_open_lanes(struct weir_session *s, const struct lane_size *sizes)
{
    s->outside.guard = (struct lane_guard){.edge_count = s->plan->ports_count, .refuse = refuse_message};
    const struct spin none = spin_fixed(0), spin = choose_spin(s);
    weir_status status = WEIR_OK;
    for (uint32_t w = 0; !status && w < s->workers.count; w++)
        status = open_worker(s, w, &sizes[w], w < s->workers.compute_count ? spin : none);
    for (uint32_t i = 0; !status && i < s->outside.count; i++)
        status = open_lane(s, &s->outside.lanes[i], s->workers.count + i, &sizes[s->workers.count + i], spin);
    return status ? status : open_team(s);
}

/* ---- from start to stop ---- */

weir_status session_start_workers(struct weir_session *s)
{
    uint32_t beside = s->workers.count - s->workers.compute_count;
    s->workers.beside = beside ? crew_new(beside, "io-", s->workers.compute_count) : NULL;
    weir_status status = beside && !s->workers.beside ? error_set(WEIR_E_MEMORY, "no memory for %u threads", beside) : WEIR_OK;
    /* relaxed: the threads that are started see it */
    atomic_store_explicit(&s->progress.firing, s->workers.count, memory_order_relaxed);
    for (uint32_t w = 0; !status && w < s->workers.count; w++) {
        s->workers.list[w].actors = s->built.actors;
        s->workers.list[w].ends = s->built.ends;
        status = crew_enter(w < s->workers.compute_count ? s->workers.crew : s->workers.beside, &s->workers.list[w]);
    }
    return status;
}

/* One that never entered has nothing to stop. */
void session_stop_workers(struct weir_session *s)
{
    for (uint32_t w = 0; s->workers.list && w < s->workers.count; w++)
        if (s->workers.list[w].thread)
            mailbox_order(&s->workers.list[w].lane.mailbox, LANE_STOP);
    for (uint32_t w = 0; s->workers.list && w < s->workers.count; w++)
        crew_leave(&s->workers.list[w]);
    crew_release(s->workers.beside);
    crew_release(s->workers.crew);
}

void session_close_lanes(struct weir_session *s)
{
    for (uint32_t w = 0; s->workers.list && w < s->workers.count; w++)
        worker_close(&s->workers.list[w]);
    for (uint32_t i = 0; s->outside.lanes && i < s->outside.count; i++)
        lane_close(&s->outside.lanes[i]);
    free(s->workers.list);
    free(s->workers.team.members);
    free(s->outside.lanes);
    free(s->built.lane_of);
    free(s->workers.of_queue);
}
