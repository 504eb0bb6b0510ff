/* actors/cluster/hooks.c: what the network tells the session: by whoever is at its sockets
 * (transport/net/net.h). Nothing here waits. See cluster.h. */
#include "actors/cluster/cluster.h"

#include <stdarg.h>
#include <string.h>

#include "actors/watch/watch.h"
#include "graph/base/text.h"
#include "transport/mail/park.h"

void cluster_news(struct cluster *c)
{
    atomic_fetch_add_explicit(&c->news, 1, memory_order_release); /* pairs with the loads in round_wait() */
    park_wake(&c->news);
}

void cluster_lost(struct cluster *c, uint32_t culprit, const char *format, ...)
{
    char sentence[sizeof(c->owner->ending->failure.text)];
    va_list list;
    va_start(list, format);
    text_vprint(sentence, sizeof(sentence), format, list);
    va_end(list);
    c->owner->lost(c->owner, culprit, sentence);
}

static void hook_lost(void *ctx, uint32_t rank, const char *how)
{
    struct cluster *c = ctx;
    const weir_plan *plan = c->plan;
    struct net_life life = net_life_of(c->net, rank);
    char last[256] = "it had reported no firing yet";
    if (life.actor < plan->actors_count)
        snprintf(last, sizeof(last), "it last fired %.150s in step %lld",
                 plan_text(plan, plan->actors[life.actor].name), (long long)life.step);
    report_to_launcher(c->env.launcher, rank);
    cluster_lost(c, rank, "rank %u (pid %u on %s) is lost: %s; %s", rank, c->members[rank].pid,
                      c->members[rank].name, how, last);
}

static void hook_failed(void *ctx, uint32_t from, uint32_t culprit, const char *text)
{
    struct cluster *c = ctx;
    c->owner->told(c->owner, from, culprit, false, text);
}

static void hook_left(void *ctx, uint32_t rank, int64_t steps)
{
    struct cluster *c = ctx;
    /* seq_cst: pairs with the other order in cluster_start(): one of the two sees the other */
    atomic_store(&c->left[rank], steps);
    atomic_fetch_add(&c->left_count, 1);
    int64_t target = cluster_due(c);
    cluster_news(c);
    pthread_mutex_lock(&c->owner->ending->lock);
    bool over = steps >= target && cluster_rank_left(c);
    pthread_mutex_unlock(&c->owner->ending->lock);
    if (over)
        c->owner->leave_run(c->owner);
    if (steps < target)
        cluster_lost(c, rank,
                          "rank %u (pid %u on %s) closed its session after %lld steps; here a run is under way that "
                          "ends after %lld",
                          rank, c->members[rank].pid, c->members[rank].name, (long long)steps, (long long)target);
}

static void hook_broken(void *ctx, const char *sentence)
{
    struct cluster *c = ctx;
    cluster_lost(c, c->env.rank, "%s", sentence);
}

static void hook_beat(void *ctx, struct wire_frame *frame)
{
    struct cluster *c = ctx;
    c->owner->beat(c->owner, frame);
    frame->beat.fired += net_arriving(c->net);
    if (c->env.rank == 0)
        frame->beat.fired += cluster_fired(c);
}

static bool hook_value(void *ctx, uint32_t rank, uint32_t shard, uint64_t round, const void *data, size_t bytes)
{
    return cluster_round_take(ctx, rank, shard, round, data, bytes);
}

static uint32_t hook_sharing(void *ctx)
{
    const struct cluster *c = ctx;
    return atomic_load(&c->sharing) ? atomic_load(&c->shared_times) : 0;
}

static bool hook_hold(void *ctx, uint32_t rank, const struct wire_frame *frame)
{
    return cluster_take_hold(ctx, rank, frame);
}

static bool hook_end(void *ctx, const struct wire_frame *frame)
{
    return cluster_take_end(ctx, frame);
}

/* Rank 0 hears all, and passes on what ranks that are no neighbours of each other say. */
static void hook_waits(void *ctx, uint32_t rank, const void *entries, uint32_t count)
{
    struct cluster *c = ctx;
    c->owner->waits(c->owner, rank, entries, count);
    if (c->env.rank == 0)
        cluster_send_waits(c, rank, entries, count);
}

const struct net_hooks cluster_hooks = {.lost = hook_lost,
                                        .failed = hook_failed,
                                        .left = hook_left,
                                        .broken = hook_broken,
                                        .beat = hook_beat,
                                        .value = hook_value,
                                        .sharing = hook_sharing,
                                        .waits = hook_waits,
                                        .hold = hook_hold,
                                        .end = hook_end};

void cluster_fail(struct cluster *c)
{
    if (!c)
        return;
    const struct failure *failure = &c->owner->ending->failure;
    enum ending_state state = ending_state(c->owner->ending);
    struct wire_frame frame = {.kind = WIRE_FAIL, .fail = {.culprit = failure->culprit, .from = failure->reporter}};
    snprintf(frame.fail.text, sizeof(frame.fail.text), "%s", failure->text + failure->skipped);
    struct wire_frame end = {.kind = WIRE_END,
                             .end = {.culprit = failure->culprit, .from = failure->reporter, .what = WIRE_CANCELLED}};
    snprintf(end.end.text, sizeof(end.end.text), "%s", failure->text + failure->skipped);
    if (c->net && state != ENDING_FAILED_AT_END) /* of that they have been told */
        net_request(c->net, NET_NEIGHBOURS, state == ENDING_CANCELLED ? &end : &frame, NULL, 0);
    cluster_news(c);
}

/* ---- what the watch asks ---- */

/* Rank 0 says this of itself, too: so it counts everything that it has heard of. */
uint64_t cluster_fired(const struct cluster *c)
{
    uint64_t fired = 0;
    uint32_t count;
    const uint32_t *ranks = net_neighbours(c->net, &count);
    for (uint32_t i = 0; i < count; i++)
        fired += net_life_of(c->net, ranks[i]).fired;
    return fired;
}

uint64_t cluster_remote(const struct cluster *c, uint32_t *silent_rank, int64_t *silent_ns)
{
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
