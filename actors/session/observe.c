/* actors/session/observe.c: what is told of a session when it stands still, has failed, or is asked by other ranks: the
 * watch and the flight recorders (actors/watch/) know neither sessions nor workers, and get here what they need to
 * know.
 */
#include <stdlib.h>
#include <string.h>

#include "actors/cluster/cluster.h"
#include "actors/session/session.h"
#include "graph/base/error.h"
#include "graph/plan/spread/spread.h"

_Static_assert(WATCH_TEXT_BYTES <= REPORT_BYTES, "a stall's report is kept whole");

/* ---- recorders ---- */

static bool of_one_queue(const struct worker *worker, const weir_plan *plan)
{
    for (uint32_t i = 1; i < worker->actor_count; i++)
        if (plan->actors[worker->by_rank[i]->id].queue.i != plan->actors[worker->by_rank[0]->id].queue.i)
            return false;
    return true;
}

static int64_t firing_of(const void *ctx, uint32_t actor)
{
    const struct weir_session *s = ctx;
    return s->built.actors[actor].firing;
}

size_t session_flight_text(const struct weir_session *s, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = 0;
    for (uint32_t w = 0; w < s->workers.count; w++) {
        struct flight_facts facts = {.plan = s->plan,
                                     .worker = w,
                                     .one_queue = of_one_queue(&s->workers.list[w], s->plan),
                                     .firing = firing_of,
                                     .ctx = s};
        used += flight_text(&s->workers.list[w].flight, &facts, text + used, (bytes - used) / (s->workers.count - w));
    }
    return used;
}

void session_beat(const struct weir_session *s, struct wire_frame *frame)
{
    frame->beat.state = ending_failed(&s->ending) ? 2 : ending_state(&s->ending) == ENDING_RUNNING;
    frame->beat.actor = UINT32_MAX;
    for (uint32_t w = 0; w < s->workers.count; w++) {
        const struct flight *flight = &s->workers.list[w].flight;
        struct flight_row row;
        frame->beat.fired += flight_moved(flight);
        if (!flight_last(flight, &row))
            continue;
        int64_t step = flight_step(s->plan, row.actor, row.firing);
        if (frame->beat.actor == UINT32_MAX || step > frame->beat.step) {
            frame->beat.actor = row.actor;
            frame->beat.step = step;
        }
    }
}

/* ---- a worker's answer ---- */

/* A queue with launches under way lacks nothing to read yet: it is they that keep the slots. */
static void look_at_actor(struct look *look, const struct weir_session *s, const struct actor *actor)
{
    const plan_actor *plan = &s->plan->actors[actor->id];
    bool reads = !ahead_launched(actor);
    for (uint32_t p = plan->ports.first; p < plan->ports.first + plan->ports.count; p++)
        if (reads && s->built.ends[p].port && s->built.ends[p].port->reader.arrived == 0)
            look_add(look, (struct wait_entry){actor->id, s->plan->ports[p].regst.i, actor->step});
    for (uint32_t r = plan->regsts.first; r < plan->regsts.first + plan->regsts.count; r++)
        if (s->built.outs[r].regst.credits == 0)
            look_add(look, (struct wait_entry){actor->id, r, actor->step});
    if (reads && ahead_waits_turn(actor))
        look_add(look, (struct wait_entry){actor->id, WAITS_TURN, actor->step});
}

/* For a member of a collective: whose turn it is, and how far it has come. */
static void look_at_member(struct look *look, const struct actor *actor)
{
    int64_t passed = actor->firing - ahead_launched(actor);
    if (actor->left > 0 && !ahead_waits_turn(actor))
        look_add(look, (struct wait_entry){actor->id, WAITS_HEAD, actor->step});
    look_add(look, (struct wait_entry){actor->id, WAITS_PASSED, passed});
}

static bool is_member(const struct actor *actor)
{
    return actor->ahead && actor->ahead->turns;
}

void session_look(struct weir_session *s, uint32_t number)
{
    struct worker *worker = &s->workers.list[number];
    look_begin(&worker->look);
    for (uint32_t i = 0; !worker->halted && i < worker->actor_count; i++)
        if (worker->by_rank[i]->left > 0 && worker->by_rank[i]->unmet > 0)
            look_at_actor(&worker->look, s, worker->by_rank[i]);
    for (uint32_t i = 0; !worker->halted && i < worker->actor_count; i++)
        if (is_member(worker->by_rank[i]))
            look_at_member(&worker->look, worker->by_rank[i]);
    if (!worker->halted)
        session_look_at_queues(s, worker);
    look_end(&worker->look);
}

static weir_status open_look(const struct weir_session *s, struct worker *worker)
{
    uint32_t room = 2 * worker->ahead.count;
    for (uint32_t i = 0; i < worker->actor_count; i++) {
        const plan_actor *actor = &s->plan->actors[worker->by_rank[i]->id];
        room += actor->ports.count + actor->regsts.count + (is_member(worker->by_rank[i]) ? 3 : 0);
    }
    return look_open(&worker->look, room);
}

/* ---- who waits for another rank ---- */

#define WAITERS_MAX 4 /* that a report names */

struct waiters {
    char *text;
    size_t bytes, used;
    uint32_t count;
};

static void waiter_add(struct waiters *to, const struct weir_session *s, uint32_t actor, const char *verb,
                       uint32_t other)
{
    const weir_plan *plan = s->plan;
    if (to->count++ >= WAITERS_MAX || to->used >= to->bytes)
        return;
    to->used += (size_t)snprintf(to->text + to->used, to->bytes - to->used, "%s%.100s (%s, step %lld) for %.100s to %s",
                                 to->used ? "; " : "  these waited for it here: ", plan_text(plan, plan->actors[actor].name),
                                 plan_text(plan, plan->queues[plan->actors[actor].queue.i].name),
                                 (long long)s->built.actors[actor].step, plan_text(plan, plan->actors[other].name), verb);
}

/* Adds all that the actor lacks and that an actor of the rank was to do. */
static void waiter_look(struct waiters *to, const struct weir_session *s, uint32_t a, uint32_t rank)
{
    const weir_plan *plan = s->plan;
    for (uint32_t p = plan->actors[a].ports.first; p < plan->actors[a].ports.first + plan->actors[a].ports.count; p++) {
        uint32_t producer = plan->regsts[plan->ports[p].regst.i].producer.i;
        if (s->built.ends[p].port && !s->built.ends[p].port->reader.arrived && plan_rank_of(plan, producer) == rank)
            waiter_add(to, s, a, "publish", producer);
    }
    for (uint32_t p = 0; p < plan->ports_count; p++) {
        const plan_regst *regst = &plan->regsts[plan->ports[p].regst.i];
        if (regst->producer.i == a && !s->built.outs[plan->ports[p].regst.i].regst.credits &&
            plan_rank_of(plan, plan->ports[p].actor.i) == rank)
            waiter_add(to, s, a, "free", plan->ports[p].actor.i);
    }
}

/* The member stands in a meeting, or comes to one, that members of the rank were to come to as well. */
static void waiter_meets(struct waiters *to, const struct weir_session *s, const plan_collective *collective,
                         uint32_t a, uint32_t rank)
{
    const weir_plan *plan = s->plan;
    if (!ahead_launched(&s->built.actors[a]))
        return;
    for (uint32_t m = collective->members.first; m < collective->members.first + collective->members.count; m++)
        if (plan_rank_of(plan, plan->members[m].i) == rank)
            waiter_add(to, s, a, "come", plan->members[m].i);
}

void session_waiters(const struct weir_session *s, uint32_t rank, char *text, size_t bytes)
{
    struct waiters to = {.text = text, .bytes = bytes - 1};
    text[0] = 0;
    for (uint32_t a = 0; a < s->plan->actors_count; a++)
        if (built_runs(&s->built, a) && s->built.actors[a].kernel_count && s->built.actors[a].left > 0)
            waiter_look(&to, s, a, rank);
    for (uint32_t c = 0; c < s->plan->collectives_count; c++)
        for (uint32_t i = 0; i < s->plan->collectives[c].members.count; i++)
            waiter_meets(&to, s, &s->plan->collectives[c],
                         s->plan->members[s->plan->collectives[c].members.first + i].i, rank);
    if (to.used >= to.bytes)
        to.used = to.bytes - 1;
    if (to.used)
        snprintf(text + to.used, bytes - to.used, "\n");
}

/* ---- what the watch asks for ---- */

static bool watch_running(void *ctx)
{
    const struct weir_session *s = ctx;
    return ending_state(&s->ending) == ENDING_RUNNING;
}

static void watch_ask(void *ctx, uint32_t worker)
{
    const struct weir_session *s = ctx;
    mailbox_order(&s->workers.list[worker].lane.mailbox, LANE_LOOK);
}

static bool watch_waits_turn(void *ctx, uint32_t worker)
{
    const struct weir_session *s = ctx;
    return crew_waits_turn(&s->workers.list[worker]);
}

/* A rank whose program waits in a pull is not the one that keeps the others from publishing more. Alone there is one
 * pull for each value, and nothing to tell apart. */
static uint32_t watch_pulls(void *ctx, struct wait_entry *entries)
{
    const struct weir_session *s = ctx;
    uint32_t count = 0;
    for (uint32_t h = 0; s->built.cluster && h < s->plan->hosts_count; h++) {
        const plan_host *host = &s->plan->hosts[h];
        if (host->kind != PLAN_PULL || !built_runs(&s->built, host->actor.i))
            continue;
        int64_t waiting = atomic_load_explicit(&s->built.lane_of[host->actor.i]->waiting, memory_order_relaxed);
        uint32_t regst = s->plan->ports[s->plan->actors[host->actor.i].ports.first].regst.i;
        if (waiting)
            entries[count++] = (struct wait_entry){host->actor.i, regst, waiting - 1};
    }
    return count;
}

static void watch_report(void *ctx, const char *text)
{
    const struct weir_session *s = ctx;
    size_t length = strlen(text);
    report_say(&s->observed.report, "%.*s\n", (int)(length && text[length - 1] == '\n' ? length - 1 : length), text);
}

static uint64_t watch_others_fired(void *ctx, uint32_t *silent_rank, int64_t *silent_ns)
{
    const struct weir_session *s = ctx;
    return cluster_remote(s->built.cluster, silent_rank, silent_ns);
}

static void watch_tell_others(void *ctx, const struct wait_entry *entries, uint32_t count)
{
    const struct weir_session *s = ctx;
    if (s->built.cluster)
        cluster_send_waits(s->built.cluster, s->built.cluster->env.rank, entries, count);
}

weir_status session_watch(struct weir_session *s, int64_t stall_ns)
{
    struct watch_worker *workers = calloc(s->workers.count + (size_t)1, sizeof(*workers));
    weir_status status = workers ? WEIR_OK : error_set(WEIR_E_MEMORY, "no memory to watch %u workers", s->workers.count);
    for (uint32_t w = 0; stall_ns > 0 && !status && w < s->workers.count; w++) {
        workers[w] = (struct watch_worker){&s->workers.list[w].flight, &s->workers.list[w].look};
        status = open_look(s, &s->workers.list[w]);
    }
    struct watch_opts opts = {.plan = s->plan,
                              .worker_of = s->workers.of_queue,
                              .workers = workers,
                              .worker_count = s->workers.count,
                              .rank = built_rank(&s->built),
                              .stall_ns = stall_ns,
                              .ctx = s,
                              .running = watch_running,
                              .ask = watch_ask,
                              .waits_turn = watch_waits_turn,
                              .pulls = watch_pulls,
                              .report = watch_report,
                              .others_fired = watch_others_fired,
                              .tell_others = watch_tell_others};
    if (!status)
        status = watch_open(&s->observed.watch, &opts);
    free(workers);
    return status;
}
