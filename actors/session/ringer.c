/* actors/session/ringer.c: the descriptor of a session whose pushes and pulls hear from other processes in shared memory.
 *
 * Another process that wakes the owner of a mailbox does so by the futex in the ring; it cannot write to an eventfd of this
 * one. So each such lane gets a thread, when the descriptor is asked for, that sleeps on that futex as long as the lane is
 * watched (MAILBOX_ELSEWHERE), and announces that it was woken:
 *
 *     the lane's owner: asleep = ELSEWHERE; watched + 1      the ringer: sees `watched` change; sleeps while asleep is
 *     another process:  asleep = AWAKE, wakes the futex                  ELSEWHERE; announces
 *
 * It may announce for nothing, as when the owner woke by itself. Rejected: waiting for several futexes at once
 * (futex_waitv), which needs Linux 5.16.
 */
#include <stdlib.h>

#include "actors/cluster/cluster.h"
#include "actors/session/session.h"
#include "graph/base/error.h"
#include "graph/plan/spread/spread.h"
#include "transport/mail/park.h"

struct ringer {
    struct weir_session *session; /* borrowed */
    struct mailbox *mailbox;      /* borrowed */
    _Atomic uint32_t watched;     /* how often the owner began to watch (a futex word) */
    _Atomic bool over;
    bool started;
    pthread_t thread;
};

static bool is_elsewhere(const struct ringer *r)
{
    return atomic_load(&r->mailbox->ring->asleep) == MAILBOX_ELSEWHERE;
}

static void *ringer_main(void *argument)
{
    struct ringer *r = argument;
    for (uint32_t seen = 0;;) {
        while (atomic_load(&r->watched) == seen && !atomic_load(&r->over))
            park_wait(&r->watched, seen, PARK_FOREVER);
        if (atomic_load(&r->over))
            return NULL;
        seen = atomic_load(&r->watched);
        while (is_elsewhere(r) && atomic_load(&r->watched) == seen && !atomic_load(&r->over))
            park_wait_shared(&r->mailbox->ring->asleep, MAILBOX_ELSEWHERE, PARK_FOREVER);
        session_announce(r->session);
    }
}

void ringer_watch(struct ringer *r)
{
    atomic_fetch_add(&r->watched, 1);
    park_wake(&r->watched);
}

/* Nobody watches any more. */
static void ringer_end(struct ringer *r)
{
    atomic_store(&r->over, true);
    atomic_store(&r->mailbox->ring->asleep, MAILBOX_AWAKE); /* the ringer sees it, or is asleep and is woken */
    park_wake_shared(&r->mailbox->ring->asleep);
    ringer_watch(r);
    if (r->started)
        pthread_join(r->thread, NULL);
}

static bool is_outside(const struct weir_session *s, uint32_t actor)
{
    return built_runs(&s->built, actor) && s->plan->queues[s->plan->actors[actor].queue.i].kind == PLAN_OUTSIDE;
}

/* The lane of a push or pull to which the port's edge brings messages of another process of this host; or NULL. */
static struct lane *posted_from_afar(const struct weir_session *s, const plan_port *port)
{
    uint32_t reader = port->actor.i, producer = s->plan->regsts[port->regst.i].producer.i;
    if (!plan_port_counts(s->plan, port) || built_runs(&s->built, reader) == built_runs(&s->built, producer))
        return NULL;
    uint32_t own = built_runs(&s->built, reader) ? reader : producer, other = own == reader ? producer : reader;
    return is_outside(s, own) && !s->built.cluster->wired[plan_rank_of(s->plan, other)] ? s->built.lane_of[own] : NULL;
}

static weir_status ringer_open(struct weir_session *s, struct lane *lane)
{
    struct ringer *r = &s->outside.ringers[s->outside.ringer_count];
    *r = (struct ringer){.session = s, .mailbox = &lane->mailbox};
    r->started = park_thread(&r->thread, "weir-ringer", ringer_main, r);
    if (!r->started)
        return error_set(WEIR_E_MEMORY, "weir_session_fd: no thread for what other processes post");
    s->outside.ringer_count++;
    lane->ringer = r;
    return WEIR_OK;
}

weir_status session_open_ringers(struct weir_session *s)
{
    weir_status status = WEIR_OK;
    if (s->built.cluster && !s->outside.ringers)
        s->outside.ringers = calloc(s->outside.count + (size_t)1, sizeof(*s->outside.ringers));
    if (s->built.cluster && !s->outside.ringers)
        return error_set(WEIR_E_MEMORY, "weir_session_fd: no memory");
    for (uint32_t p = 0; s->built.cluster && !status && p < s->plan->ports_count; p++) {
        struct lane *lane = posted_from_afar(s, &s->plan->ports[p]);
        if (lane && !lane->ringer)
            status = ringer_open(s, lane);
    }
    return status;
}

void session_close_ringers(struct weir_session *s)
{
    for (uint32_t i = 0; i < s->outside.ringer_count; i++)
        ringer_end(&s->outside.ringers[i]);
    free(s->outside.ringers);
}
