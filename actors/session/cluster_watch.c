/* actors/session/cluster_watch.c: what the watch asks about other ranks, and what a report says of them. See
 * cluster.h. */
#include "actors/session/cluster.h"

#include "actors/session/session.h"
#include "actors/watch/watch.h"
#include "graph/plan/spread.h"
#include "transport/mail/park.h"

#define WAITERS_MAX 4 /* that a report names */

/* What rank 0 says of itself counts everything that it has heard of. */
uint64_t cluster_fired(const struct cluster *c)
{
    uint64_t fired = 0;
    uint32_t count;
    const uint32_t *ranks = net_neighbours(c->net, &count);
    for (uint32_t i = 0; i < count; i++)
        fired += net_life_of(c->net, ranks[i]).fired;
    return fired;
}

uint64_t session_remote_fired(const struct weir_session *session, uint32_t *silent_rank, int64_t *silent_ns)
{
    const struct cluster *c = session->cluster;
    uint32_t count = 0;
    const uint32_t *ranks = c ? net_neighbours(c->net, &count) : NULL;
    int64_t now = park_now_ns();
    *silent_rank = UINT32_MAX;
    *silent_ns = 0;
    for (uint32_t i = 0; i < count; i++) {
        int64_t heard_ns = net_life_of(c->net, ranks[i]).heard_ns;
        if (net_here(c->net, ranks[i]) && heard_ns && now - heard_ns > c->env.liveness_ns / 2 &&
            now - heard_ns > *silent_ns) {
            *silent_rank = ranks[i];
            *silent_ns = now - heard_ns;
        }
    }
    return c ? cluster_fired(c) + net_arriving(c->net) : 0;
}

void cluster_send_waits(struct cluster *c, uint32_t rank, const void *entries, uint32_t count)
{
    struct wire_frame frame = {.kind = WIRE_WAITS, .waits = {.count = count, .rank = rank}};
    net_request(c->net, NET_NEIGHBOURS, &frame, entries, count * sizeof(struct wait_entry));
}

void session_send_waits(struct weir_session *s, const struct wait_entry *entries, uint32_t count)
{
    if (s->cluster)
        cluster_send_waits(s->cluster, s->cluster->env.rank, entries, count);
}

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
                                 to->used ? "; " : "  for it waited here: ", plan_text(plan, plan->actors[actor].name),
                                 plan_text(plan, plan->queues[plan->actors[actor].queue.i].name),
                                 (long long)s->actors[actor].step, plan_text(plan, plan->actors[other].name), verb);
}

/* What the actor lacks, that an actor of the rank was to do. */
static void waiter_look(struct waiters *to, const struct weir_session *s, uint32_t a, uint32_t rank)
{
    const weir_plan *plan = s->plan;
    for (uint32_t p = plan->actors[a].ports.first; p < plan->actors[a].ports.first + plan->actors[a].ports.count; p++) {
        uint32_t producer = plan->regsts[plan->ports[p].regst.i].producer.i;
        if (s->ends[p].port && !s->ends[p].port->reader.arrived && plan_rank_of(plan, producer) == rank)
            waiter_add(to, s, a, "publish", producer);
    }
    for (uint32_t p = 0; p < plan->ports_count; p++) {
        const plan_regst *regst = &plan->regsts[plan->ports[p].regst.i];
        if (regst->producer.i == a && !s->outs[plan->ports[p].regst.i].regst.credits &&
            plan_rank_of(plan, plan->ports[p].actor.i) == rank)
            waiter_add(to, s, a, "free", plan->ports[p].actor.i);
    }
}

/* The member stands in a meeting, or comes to one, that members of the rank were to come to as well. */
static void waiter_meets(struct waiters *to, const struct weir_session *s, const plan_collective *collective,
                         uint32_t a, uint32_t rank)
{
    const weir_plan *plan = s->plan;
    if (!ahead_launched(&s->actors[a]))
        return;
    for (uint32_t m = collective->members.first; m < collective->members.first + collective->members.count; m++)
        if (plan_rank_of(plan, plan->members[m].i) == rank)
            waiter_add(to, s, a, "come", plan->members[m].i);
}

void cluster_waiters(const struct weir_session *s, uint32_t rank, char *text, size_t bytes)
{
    struct waiters to = {.text = text, .bytes = bytes - 1};
    text[0] = 0;
    for (uint32_t a = 0; a < s->plan->actors_count; a++)
        if (session_runs(s, a) && s->actors[a].kernel_count && s->actors[a].left > 0)
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
