/* actors/session/outside.c: the session's descriptor, for programs that wait in a loop of their own.
 *
 *     worker --message--> mailbox of a push or pull --asleep: ELSEWHERE--> the descriptor (an eventfd)
 *     the end of a run, a failure ---------------- session_announce() ---> the descriptor
 *
 * It is the handshake by which a thread in push or pull sleeps: the lane's mailbox says that its owner is asleep, and
 * whoever posts wakes it, here by writing to the eventfd. So a firing costs what it did, and a session whose program
 * asks for no descriptor has none.
 *
 * Each push and pull is at any time *told* (weir_session_ready() has listed it, and it was not used since), *watched*
 * (its mailbox is asleep), or the descriptor is readable because of it. A message may come without a value or room (of
 * several edges one), so what wakes is looked at, and watched again, by the next call of weir_session_ready().
 *
 * The descriptor is emptied first, then everything is looked at. A change after the first is written again; what came before
 * it is seen by the second. `rung` saves system calls: it is set by who writes and cleared between the two.
 *
 * Where other processes post to the mailbox a thread tells of it (ringers).
 *
 * A lane has one owner at a time (session_take_lane()): a thread in push or pull, or one that looks. A thread that is done
 * with a push or pull lets go and then looks itself, so one who found the lane taken may pass it over.
 *
 * Ringers. The descriptor of a session whose pushes and pulls hear from other processes in shared memory.
 *
 * Another process that wakes the owner of a mailbox does so by the futex in the ring; it cannot write to an eventfd of this
 * one. So each such lane gets a thread, when the descriptor is asked for, that sleeps on that futex as long as the lane is
 * watched (MAILBOX_ELSEWHERE), and announces that it was woken:
 *
 *     the lane's owner: asleep = ELSEWHERE; watched + 1      the ringer: sees `watched` change; sleeps while asleep is
 *     another process:  asleep = CALLED, wakes the futex                  ELSEWHERE; announces
 *
 * It may announce for nothing, as when the owner woke by itself. Rejected: waiting for several futexes at once
 * (futex_waitv), which needs Linux 5.16.
 */
#include <sched.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "actors/cluster/cluster.h"
#include "actors/session/session.h"
#include "graph/base/error.h"
#include "graph/plan/spread/spread.h"
#include "transport/mail/park.h"

/* ---- who owns a lane ---- */

static bool lane_try(struct lane *lane, uint32_t use)
{
    uint32_t none = LANE_UNUSED;
    /* seq_cst: pairs with the store in lane_leave() */
    return atomic_compare_exchange_strong(&lane->used, &none, use);
}

static void lane_leave(struct lane *lane)
{
    atomic_store(&lane->used, LANE_UNUSED);
}

/* A thread that looks is soon done. */
bool session_take_lane(struct lane *lane)
{
    while (!lane_try(lane, LANE_CALLED)) {
        if (atomic_load(&lane->used) == LANE_CALLED)
            return false;
        sched_yield();
    }
    return true;
}

/* ---- the descriptor ---- */

void session_announce(struct weir_session *s)
{
    int fd = atomic_load(&s->outside.ready_fd); /* seq_cst: pairs with the store in weir_session_fd() */
    uint64_t one = 1;
    /* seq_cst: pairs with the exchange in fd_empty() */
    if (UNLIKELY(fd >= 0) && !atomic_exchange(&s->outside.rung, true) && write(fd, &one, sizeof(one)) < 0)
        return; /* the counter is full: it is readable already */
}

static void fd_empty(struct weir_session *s)
{
    uint64_t count;
    while (read(atomic_load(&s->outside.ready_fd), &count, sizeof(count)) > 0)
        continue; /* until there is none */
    atomic_exchange(&s->outside.rung, false);
}

/* By the lane's owner, when the actor may not fire. False: something has come meanwhile. */
static bool lane_watch(struct weir_session *s, struct actor *actor)
{
    struct mailbox *mailbox = &actor->lane->mailbox;
    if (mailbox->event_fd < 0)
        mailbox->event_fd = atomic_load(&s->outside.ready_fd);
    bool asleep = mailbox_asleep(mailbox);
    if (asleep && actor->lane->ringer)
        ringer_watch(actor->lane->ringer);
    return asleep;
}

/* Orders are not kept: what they tell of is announced, too. */
static void watch_again(struct weir_session *s, struct actor *actor)
{
    if (!lane_try(actor->lane, LANE_LOOKED_AT))
        return;
    do {
        mailbox_orders(&actor->lane->mailbox);
        lane_drain(actor->lane, s->built.ends);
        if (!actor->unmet)
            session_announce(s);
    } while (actor->unmet && !lane_watch(s, actor));
    lane_leave(actor->lane);
}

void session_let_go(struct weir_session *s, struct actor *actor)
{
    lane_leave(actor->lane);
    /* seq_cst: behind the store. Either this thread sees that there is a descriptor, or the first look finds the lane
     * unused. */
    if (UNLIKELY(atomic_load(&s->outside.ready_fd) >= 0))
        watch_again(s, actor);
}

static weir_status fd_open(struct weir_session *s)
{
    if (atomic_load(&s->outside.ready_fd) >= 0)
        return WEIR_OK;
    weir_status status = session_open_ringers(s);
    if (status)
        return status;
    int fd = eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC); /* nothing has been told yet */
    if (fd < 0)
        return error_set(WEIR_E_MEMORY, "weir_session_fd: there is no descriptor left");
    atomic_store(&s->outside.ready_fd, fd);
    return WEIR_OK;
}

int weir_session_fd(weir_session *s)
{
    if (session_enter(s, "fd"))
        return -1;
    pthread_mutex_lock(&s->ending.lock);
    weir_status status = fd_open(s);
    pthread_mutex_unlock(&s->ending.lock);
    session_exit(s);
    return status ? -1 : atomic_load(&s->outside.ready_fd);
}

void session_close_fd(struct weir_session *s)
{
    int fd = atomic_load(&s->outside.ready_fd);
    if (fd >= 0)
        close(fd);
}

/* ---- what would not block ---- */

struct listing {
    weir_ready *list; /* borrowed */
    int room, count;
};

static void list_add(struct listing *l, weir_ready ready)
{
    if (l->count < l->room)
        l->list[l->count] = ready;
    l->count++;
}

/* One that is not listed is watched. */
static void look_at_host(struct weir_session *s, const plan_host *host, struct listing *listing)
{
    struct actor *actor = &s->built.actors[host->actor.i];
    bool push = host->kind == PLAN_PUSH, comes;
    weir_status status;
    if (!lane_try(actor->lane, LANE_LOOKED_AT))
        return; /* who is in push or pull will look */
    do {
        comes = session_turn_comes(s, actor, push ? "push" : "pull", &status);
    } while (!comes && atomic_load(&s->outside.ready_fd) >= 0 && !lane_watch(s, actor));
    lane_leave(actor->lane);
    if (comes)
        list_add(listing, (weir_ready){push ? WEIR_READY_PUSH : WEIR_READY_PULL, plan_text(s->plan, host->name), status});
}

/* After a failure, as in wait: when nothing fires any more. */
static void look_at_run(const struct weir_session *s, struct listing *listing)
{
    uint32_t program = session_program(s);
    weir_status status = ending_failure(&s->ending);
    /* acquire: pairs with the decrement in owner_halted() */
    bool over = status ? !atomic_load_explicit(&s->progress.firing, memory_order_acquire) : session_at_rest(s);
    if (over && !status && !program)
        status = ending_ended(&s->ending, built_rank(&s->built));
    if (over)
        list_add(listing, (weir_ready){WEIR_READY_WAIT, plan_text(s->plan, s->plan->programs[program].name), status});
}

int weir_session_ready(weir_session *s, weir_ready *list, int room)
{
    struct listing listing = {list, room, 0};
    if (session_enter(s, "ready"))
        return -1;
    if (atomic_load(&s->outside.ready_fd) >= 0)
        fd_empty(s);
    look_at_run(s, &listing);
    for (uint32_t h = 0; h < s->plan->hosts_count; h++) {
        const plan_host *host = &s->plan->hosts[h];
        if ((host->kind == PLAN_PUSH || host->kind == PLAN_PULL) && built_runs(&s->built, host->actor.i))
            look_at_host(s, host, &listing);
    }
    if (listing.count > room)
        session_announce(s); /* the rest have not been told */
    session_exit(s);
    return listing.count;
}

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
