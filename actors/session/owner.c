/* actors/session/owner.c: the session as the owner of its workers (struct worker_owner in actors/worker.h): what they
 * ask of it when they begin, and tell it when a run is over, has failed, or is to be looked at. The core knows no
 * sessions.
 *
 * All of it is called by the workers' threads, several at once: what they share is atomic.
 */
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "actors/cluster/cluster.h"
#include "actors/session/session.h"
#include "graph/base/error.h"
#include "transport/mail/cores.h"
#include "transport/mail/park.h"

static struct weir_session *session_of(struct worker_owner *owner)
{
    return (struct weir_session *)((char *)owner - offsetof(struct weir_session, workers.owner));
}

/* Ranks of one host that may use the same cores take them one behind the other, each as many as it has workers. */
static uint32_t first_core(const struct weir_session *s)
{
    const struct cluster *c = s->built.cluster;
    uint32_t before = 0;
    for (uint32_t r = 0; c && r < c->env.rank; r++)
        if (!strcmp(c->members[r].host, c->members[c->env.rank].host))
            before += c->members[r].workers;
    return before;
}

static weir_status owner_open(struct worker_owner *owner, uint32_t worker)
{
    const struct weir_session *s = session_of(owner);
    weir_status status = WEIR_OK;
    caller_is_worker(worker < s->workers.compute_count ? (const void *)s->workers.crew : s);
    if (s->workers.pin && !s->workers.guest && worker < s->workers.compute_count && !cores_pin(first_core(s) + worker))
        return error_set(WEIR_E_UNSUPPORTED, "worker %u cannot be bound to a core: %s", worker, strerror(errno));
    for (uint32_t q = 0; !status && q < s->plan->queues_count; q++) {
        const plan_queue *queue = &s->plan->queues[q];
        const struct arena *arena = &s->built.arenas[queue->space.i];
        if (queue->kind != PLAN_OUTSIDE && s->workers.of_queue[q] == worker)
            status = arena->device->queue_open(arena->index);
    }
    return status;
}

static void owner_done(struct worker_owner *owner)
{
    session_leave_run(session_of(owner));
}

static void owner_asked(struct worker_owner *owner)
{
    session_asked(session_of(owner));
}

static void owner_held(struct worker_owner *owner, int64_t begun, bool again)
{
    session_held(session_of(owner), begun, again);
}

static void owner_halted(struct worker_owner *owner)
{
    struct weir_session *s = session_of(owner);
    /* acq_rel: what all workers did happens before the last one's decrement, and so before the end of wait_halted() */
    if (atomic_fetch_sub_explicit(&s->progress.firing, 1, memory_order_acq_rel) == 1) {
        park_wake(&s->progress.firing);
        session_announce(s);
    }
}

/* The run returns the status of the program's function, unless that status would mean something else to the caller. */
static weir_status status_to_report(const struct weir_session *s, const struct actor_kernel *kernel, weir_status status)
{
    bool host = s->plan->kernels[kernel->id].host != PLAN_NONE;
    bool other = status == WEIR_END || status == WEIR_E_END || status == WEIR_E_TIMEOUT || status == WEIR_E_PEER;
    return host && !other && status > WEIR_END && status < WEIR_E_CANCELLED ? status : WEIR_E_KERNEL;
}

static bool owner_failed(struct worker_owner *owner, const struct actor *actor, const struct actor_kernel *kernel,
                         weir_status status, const char *sentence)
{
    struct weir_session *s = session_of(owner);
    if (kernel && !actor->program && session_is_source(s, kernel)) {
        session_end_source(s, actor, kernel, status == WEIR_END ? status : status_to_report(s, kernel, status), sentence);
        return false;
    }
    if (actor && kernel)
        session_fail_kernel(s, actor, kernel, status_to_report(s, kernel, status), sentence);
    else if (actor)
        session_fail_queue(s, actor, sentence);
    else
        session_fail_open(s, WEIR_E_KERNEL, sentence);
    return true;
}

static void owner_refused(struct worker_owner *owner, const struct actor *actor, const struct actor_kernel *kernel,
                          int64_t firing, const weir_refusal *refusal)
{
    session_fail_refused(session_of(owner), actor, kernel, firing, refusal);
}

static void owner_look(struct worker_owner *owner, uint32_t worker)
{
    session_look(session_of(owner), worker);
}

void session_own(struct weir_session *s)
{
    s->workers.owner = (struct worker_owner){.open = owner_open,
                                     .done = owner_done,
                                     .halted = owner_halted,
                                     .failed = owner_failed,
                                     .refused = owner_refused,
                                     .asked = owner_asked,
                                     .held = owner_held,
                                     .look = owner_look};
}
