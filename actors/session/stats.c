/* actors/session/stats.c: what a run did, put together at rest from what each actor counted. Nothing is added up while
 * it runs. */
#include <string.h>

#include "actors/cluster/cluster.h"
#include "actors/session/session.h"
#include "transport/mail/cores.h"

#define QUEUES_MAX ((int)(sizeof(((weir_session_stats *)0)->queue) / sizeof(weir_queue_stats)))
#define NS_PER_S 1e9

/* One queue's actors. A firing that was not measured counts with the time of the last one that was, so the sum can
 * come out above the time there was. */
static void add_queue(const struct weir_session *s, uint32_t q, weir_queue_stats *stats, double seconds)
{
    const weir_plan *plan = s->plan;
    int64_t busy_ns = 0;
    *stats = (weir_queue_stats){.name = plan_text(plan, plan->queues[q].name),
                                .io = plan->queues[q].kind == PLAN_IO_QUEUE};
    for (uint32_t a = 0; a < plan->actors_count; a++) {
        if (plan->actors[a].queue.i != q)
            continue;
        busy_ns += s->built.actors[a].busy_ns;
        stats->firings += s->built.actors[a].firing - s->built.actors[a].run_start;
    }
    double busy = seconds > 0 ? (double)busy_ns / NS_PER_S / seconds : 0;
    stats->busy = busy < 1 ? busy : 1;
}

/* This process's queues, those of io or the others. Those beyond the room are left out. */
static void add_queues(const struct weir_session *s, bool io, weir_session_stats *stats)
{
    const weir_plan *plan = s->plan;
    for (uint32_t q = 0; q < plan->queues_count && stats->queue_count < QUEUES_MAX; q++)
        if (plan->queues[q].kind != PLAN_OUTSIDE && (plan->queues[q].kind == PLAN_IO_QUEUE) == io &&
            built_owns(&s->built, plan->queues[q].space.i))
            add_queue(s, q, &stats->queue[stats->queue_count++], stats->seconds);
}

/* Adds the bytes that arrive from other hosts, which lie beside the arenas. */
static void add_transfers(const struct weir_session *s, weir_session_stats *stats)
{
    const struct links *links = s->built.cluster ? &s->built.cluster->links : NULL;
    if (!links)
        return;
    stats->planned_bytes += links->receive_bytes;
    stats->arena_bytes += links->receive ? links->receive_bytes : 0;
}

/* A count that a kernel keeps; while a run is under way (`live`) only where the host sees it. -1: it is not to be had. */
static int64_t read_count(const struct weir_session *s, const plan_tensor *tensor, bool live)
{
    const struct arena *arena = &s->built.arenas[plan_tensor_space(s->plan, tensor).i];
    const char *from = arena_tensor(s->built.arenas, s->plan, tensor, live ? 0 : built_kept_slot(&s->built, tensor, 0));
    int32_t count = 0;
    if (live && (tensor->home == PLAN_IN_REGST || !arena_followed(arena)))
        return -1;
    if (arena_followed(arena))
        return __atomic_load_n((const int32_t *)(const void *)from, __ATOMIC_RELAXED); /* pairs with count_skipped() */
    return arena->device->copy_out(&count, from, sizeof(count)) ? -1 : count;
}

/* The op that takes the norm of the gradients counts skipped steps in a state; -1 where this rank does not hold it. */
static int64_t skipped_steps(const struct weir_session *s, bool live)
{
    static const char end[] = PLAN_SKIPPED;
    for (uint32_t p = 0; p < s->plan->params_count; p++) {
        const char *name = plan_text(s->plan, s->plan->params[p].name);
        size_t length = strlen(name), end_length = sizeof(end) - 1;
        const plan_tensor *tensor = built_shard(&s->built, &s->plan->params[p], 0);
        if (length <= end_length || strcmp(name + length - end_length, end) != 0 || tensor->dtype != WEIR_I32 ||
            plan_tensor_bytes(tensor) != sizeof(int32_t) || !built_owns_tensor(&s->built, tensor))
            continue;
        return read_count(s, tensor, live);
    }
    return -1;
}

/* Without outside queues, which do nothing by themselves. */
void weir_session_get_stats(const weir_session *s, weir_session_stats *stats)
{
    if (!stats)
        return;
    memset(stats, 0, sizeof(*stats));
    if (caller_check_open(s, "get_stats"))
        return;
    const weir_plan *plan = s->plan;
    enum ending_state state = ending_state(&s->ending);
    stats->steps = session_steps(s);
    const bool rests = state == ENDING_REST || state == ENDING_ENDED;
    stats->skipped = skipped_steps(s, !rests);
    stats->workers = (int)s->workers.compute_count;
    stats->cores = cores_count();
    stats->cores_online = cores_online();
    for (uint32_t i = 0; i < plan->spaces_count; i++) {
        if (!built_owns(&s->built, i) || plan->spaces[i].kind == WEIR_DISK || plan->spaces[i].kind == WEIR_MAPPED)
            continue;
        stats->planned_bytes += plan->spaces[i].bytes;
        stats->arena_bytes += s->built.arenas[i].base ? s->built.arenas[i].bytes : 0;
    }
    add_transfers(s, stats);
    if (!rests)
        return; /* the rest belongs to the workers */
    stats->seconds = (double)(s->progress.end_ns - s->progress.start_ns) / NS_PER_S;
    add_queues(s, false, stats);
    add_queues(s, true, stats);
}
