/* actors/watch/watch.c: the thread that looks, and what workers write for it.
 *
 * Why a thread: nobody else is awake in a stall. Why workers are asked rather than looked at: their counters are plain
 * memory, on the hot path; and an answer is by itself the proof that a worker is not inside a kernel.
 *
 * An idle session wakes this thread four times per stall_ns; so a stall is noticed within 1.25 times that.
 */
#define _GNU_SOURCE
#include "actors/watch/watch.h"

#include <pthread.h>
#include <stdlib.h>

#include "actors/session/cluster.h"
#include "actors/session/session.h"
#include "graph/base/error.h"
#include "graph/plan/spread.h"
#include "transport/mail/park.h"

#define LOOKS_PER_STALL 4
#define ANSWER_NS 200000000 /* a worker that has not answered by then does not */
#define RANKS_NS 1000000000 /* the same for a rank, which asks its workers first, and may be far away */

/* What the watch knows of one worker. */
struct watched {
    uint64_t fired;     /* when last looked at */
    int64_t changed_ns; /* when it was first seen to be that */
    uint32_t asked;     /* LOOKs posted */
};

struct watch {
    struct weir_session *session; /* borrowed */
    int64_t stall_ns;
    pthread_t thread;
    _Atomic uint32_t events;  /* counts what the thread is to be woken for (a futex word) */
    _Atomic bool closing;

    /* the thread's */
    uint64_t fired;           /* of all, when last looked at */
    int64_t changed_ns;       /* when it was first seen to be that */
    bool reported;            /* since then */
    bool complete;            /* with the answers of all ranks */
    int64_t sent_ns;          /* when this rank last told the others */
    uint32_t rank;
    struct watched *workers;  /* owned */
    int64_t *running_ns;      /* owned, by worker */
    struct wait_entry *entries; /* owned: what all workers wrote */
    uint32_t count;
    char text[REPORT_BYTES];

    pthread_mutex_t lock;     /* of what follows; held while nothing is called but waits_...() */
    struct waits waits;
    bool told;                /* something is in `waits` */
    bool heard;               /* another rank told something that has not been looked at */
};

/* ---- the worker's part ---- */

static inline void look_add(struct look *look, const struct actor *actor, uint32_t regst)
{
    assert(look->count < look->room);
    look->entries[look->count++] = (struct wait_entry){actor->id, regst, actor->step};
}

static void look_actor(struct look *look, const struct worker *worker, const struct actor *actor)
{
    const struct weir_session *s = worker->session;
    const plan_actor *plan = &s->plan->actors[actor->id];
    for (uint32_t p = plan->ports.first; p < plan->ports.first + plan->ports.count; p++)
        if (s->ends[p].port && s->ends[p].port->reader.arrived == 0)
            look_add(look, actor, s->plan->ports[p].regst.i);
    for (uint32_t r = plan->regsts.first; r < plan->regsts.first + plan->regsts.count; r++)
        if (s->outs[r].regst.credits == 0)
            look_add(look, actor, r);
}

void look_write(struct look *look, const struct worker *worker)
{
    look->count = 0;
    for (uint32_t i = 0; look->entries && !worker->halted && i < worker->actor_count; i++)
        if (worker->by_rank[i]->left > 0 && worker->by_rank[i]->unmet > 0)
            look_actor(look, worker, worker->by_rank[i]);
    /* release: pairs with the load in await_answers() */
    atomic_fetch_add_explicit(&look->answered, 1, memory_order_release);
    park_wake(&look->answered);
}

void look_close(struct look *look)
{
    free(look->entries);
    look->entries = NULL;
}

static weir_status look_open(struct look *look, const struct worker *worker)
{
    const weir_plan *plan = worker->session->plan;
    for (uint32_t i = 0; i < worker->actor_count; i++) {
        const plan_actor *actor = &plan->actors[worker->by_rank[i]->id];
        look->room += actor->ports.count + actor->regsts.count;
    }
    look->entries = calloc(look->room + 1, sizeof(*look->entries));
    return look->entries ? WEIR_OK : error_set(WEIR_E_MEMORY, "no memory to watch worker %u", worker->number);
}

/* ---- asking ---- */

uint64_t watch_fired(const struct weir_session *session)
{
    uint64_t fired = 0;
    for (uint32_t w = 0; w < session->worker_count; w++)
        /* relaxed: only whether it has changed is of interest */
        fired += atomic_load_explicit(&session->workers[w].flight.fired, memory_order_relaxed);
    return fired;
}

/* A worker that has not answered the last one gets no other: it would answer both at once. */
static void post_looks(struct watch *watch)
{
    struct weir_session *s = watch->session;
    for (uint32_t w = 0; w < s->worker_count; w++) {
        struct watched *watched = &watch->workers[w];
        if (atomic_load_explicit(&s->workers[w].look.answered, memory_order_acquire) != watched->asked)
            continue;
        watched->asked++;
        mailbox_order(&s->workers[w].lane.mailbox, LANE_LOOK);
    }
}

static bool await_answer(struct look *look, uint32_t asked, int64_t deadline)
{
    for (;;) {
        /* acquire: pairs with the addition in look_write() */
        uint32_t answered = atomic_load_explicit(&look->answered, memory_order_acquire);
        if (answered == asked)
            return true;
        if (!park_wait(&look->answered, answered, deadline))
            return false;
    }
}

static void take_answer(struct watch *watch, const struct look *look)
{
    for (uint32_t i = 0; i < look->count; i++)
        watch->entries[watch->count++] = look->entries[i];
}

/* It is inside a kernel of what it recorded last. */
static void take_recorded(struct watch *watch, const struct flight *flight)
{
    struct flight_row row;
    if (flight_last(flight, &row))
        watch->entries[watch->count++] =
            (struct wait_entry){row.actor, PLAN_NONE, flight_step(watch->session, row.actor, row.firing)};
}

/* A rank whose program waits in a pull is not the one that keeps the others from publishing more. Alone there is one
 * pull for each value, and nothing to tell apart. */
static void take_pulls(struct watch *watch)
{
    const struct weir_session *s = watch->session;
    for (uint32_t h = 0; s->cluster && h < s->plan->hosts_count; h++) {
        const plan_host *host = &s->plan->hosts[h];
        if (host->kind != PLAN_PULL || !session_runs(s, host->actor.i))
            continue;
        int64_t waiting = atomic_load_explicit(&s->lane_of[host->actor.i]->waiting, memory_order_relaxed);
        uint32_t regst = s->plan->ports[s->plan->actors[host->actor.i].ports.first].regst.i;
        if (waiting)
            watch->entries[watch->count++] = (struct wait_entry){host->actor.i, regst, waiting - 1};
    }
}

/* Asks all workers, and puts what they say where the text is made from. */
static void look_around(struct watch *watch)
{
    struct weir_session *s = watch->session;
    int64_t deadline = park_now_ns() + ANSWER_NS;
    watch->count = 0;
    post_looks(watch);
    for (uint32_t w = 0; w < s->worker_count; w++) {
        struct worker *worker = &s->workers[w];
        if (await_answer(&worker->look, watch->workers[w].asked, deadline))
            take_answer(watch, &worker->look);
        else
            take_recorded(watch, &worker->flight);
    }
    take_pulls(watch);
    pthread_mutex_lock(&watch->lock);
    waits_put(&watch->waits, watch->rank, watch->entries, watch->count);
    watch->told = true;
    watch->heard = false;
    pthread_mutex_unlock(&watch->lock);
    watch->sent_ns = park_now_ns();
    session_send_waits(s, watch->entries, watch->count);
}

/* ---- other ranks ---- */

static void watch_event(struct watch *watch)
{
    /* release: pairs with the load in watch_sleep() */
    atomic_fetch_add_explicit(&watch->events, 1, memory_order_release);
    park_wake(&watch->events);
}

void watch_remote(struct watch *watch, uint32_t rank, const void *entries, uint32_t count)
{
    if (!watch || rank == watch->rank)
        return;
    pthread_mutex_lock(&watch->lock);
    waits_put(&watch->waits, rank, entries, count);
    watch->told = watch->heard = true;
    pthread_mutex_unlock(&watch->lock);
    watch_event(watch);
}

static bool all_answered(struct watch *watch)
{
    pthread_mutex_lock(&watch->lock);
    bool complete = waits_complete(&watch->waits);
    pthread_mutex_unlock(&watch->lock);
    return complete;
}

/* Sleeps until something is to be done. */
static bool watch_sleep(struct watch *watch, uint32_t events, int64_t deadline)
{
    /* acquire: pairs with the addition in watch_event() */
    return atomic_load_explicit(&watch->closing, memory_order_acquire) ||
           park_wait(&watch->events, events, deadline);
}

static void await_ranks(struct watch *watch)
{
    int64_t deadline = park_now_ns() + RANKS_NS;
    for (;;) {
        uint32_t events = atomic_load_explicit(&watch->events, memory_order_acquire);
        if (all_answered(watch) || atomic_load_explicit(&watch->closing, memory_order_acquire) ||
            !watch_sleep(watch, events, deadline))
            return;
    }
}

/* Another rank looks around: it needs to know what this one waits for. Not again when this one has just told. */
static void answer_ranks(struct watch *watch, int64_t now)
{
    pthread_mutex_lock(&watch->lock);
    bool heard = watch->heard;
    watch->heard = false;
    pthread_mutex_unlock(&watch->lock);
    if (heard && now - watch->sent_ns > watch->stall_ns / 2)
        look_around(watch);
    if (heard && !watch->complete)
        watch->reported = false; /* more is known now */
}

/* ---- noticing ---- */

/* Whether anything has moved, here or elsewhere, since it was last looked at. */
static bool has_moved(struct watch *watch, int64_t now, struct waits_about *about)
{
    const struct weir_session *s = watch->session;
    uint64_t fired = session_remote_fired(s, &about->silent_rank, &about->silent_ns);
    for (uint32_t w = 0; w < s->worker_count; w++) {
        uint64_t mine = atomic_load_explicit(&s->workers[w].flight.fired, memory_order_relaxed);
        if (mine != watch->workers[w].fired)
            watch->workers[w].changed_ns = now;
        watch->workers[w].fired = mine;
        fired += mine;
    }
    bool moved = fired != watch->fired;
    watch->fired = fired;
    return moved;
}

static bool is_running(const struct weir_session *s)
{
    /* acquire: what the run began with is visible */
    return atomic_load_explicit(&s->state, memory_order_acquire) == SESSION_RUNNING;
}

/* What was told belongs to the stall before. */
static void begin_again(struct watch *watch, int64_t now)
{
    watch->changed_ns = now;
    watch->reported = false;
    pthread_mutex_lock(&watch->lock);
    if (watch->told)
        waits_clear(&watch->waits);
    watch->told = false;
    pthread_mutex_unlock(&watch->lock);
}

static void tell_stall(struct watch *watch, struct waits_about *about)
{
    const struct weir_session *s = watch->session;
    int64_t now = park_now_ns();
    about->stalled_ns = now - watch->changed_ns;
    about->running_ns = watch->running_ns;
    for (uint32_t w = 0; w < s->worker_count; w++) {
        /* relaxed: a number to show */
        int64_t end = atomic_load_explicit(&s->workers[w].flight.steps_end, memory_order_relaxed);
        about->steps_end = end > about->steps_end ? end : about->steps_end;
        watch->running_ns[w] = now - watch->workers[w].changed_ns;
    }
    pthread_mutex_lock(&watch->lock);
    watch->complete = waits_complete(&watch->waits);
    waits_text(&watch->waits, about, watch->text, sizeof(watch->text));
    pthread_mutex_unlock(&watch->lock);
    report_say(&s->report, "%s", watch->text);
}

/* Nothing has moved for long. Asking takes a while; what moved meanwhile was no stall. */
static void look_into(struct watch *watch, struct waits_about *about)
{
    look_around(watch);
    await_ranks(watch);
    int64_t now = park_now_ns();
    if (has_moved(watch, now, about) || !is_running(watch->session))
        begin_again(watch, now);
    else if (!atomic_load_explicit(&watch->closing, memory_order_acquire)) {
        tell_stall(watch, about);
        watch->reported = true;
    }
}

static void watch_tick(struct watch *watch)
{
    struct waits_about about = {.silent_rank = UINT32_MAX};
    int64_t now = park_now_ns();
    answer_ranks(watch, now);
    if (has_moved(watch, now, &about) || !is_running(watch->session))
        begin_again(watch, now);
    else if (!watch->reported && now - watch->changed_ns >= watch->stall_ns)
        look_into(watch, &about);
}

static void *watch_main(void *argument)
{
    struct watch *watch = argument;
    for (;;) {
        uint32_t events = atomic_load_explicit(&watch->events, memory_order_acquire);
        if (atomic_load_explicit(&watch->closing, memory_order_acquire))
            return NULL;
        watch_tick(watch);
        watch_sleep(watch, events, park_now_ns() + watch->stall_ns / LOOKS_PER_STALL);
    }
}

/* ---- life ---- */

static weir_status watch_alloc(struct watch *watch)
{
    struct weir_session *s = watch->session;
    uint64_t room = s->worker_count + (uint64_t)s->plan->hosts_count;
    weir_status status = waits_open(&watch->waits, s->plan, s->worker_of, watch->rank);
    for (uint32_t w = 0; !status && w < s->worker_count; w++) {
        status = look_open(&s->workers[w].look, &s->workers[w]);
        room += s->workers[w].look.room;
    }
    watch->workers = calloc(s->worker_count + 1, sizeof(*watch->workers));
    watch->running_ns = calloc(s->worker_count + 1, sizeof(*watch->running_ns));
    watch->entries = calloc(room + 1, sizeof(*watch->entries));
    if (!status && (!watch->workers || !watch->running_ns || !watch->entries))
        status = error_set(WEIR_E_MEMORY, "no memory to watch %u workers", s->worker_count);
    return status;
}

static weir_status watch_start(struct watch *watch)
{
    bool started = park_thread(&watch->thread, "weir-watch", watch_main, watch);
    return started ? WEIR_OK : error_set(WEIR_E_MEMORY, "no thread to watch the workers");
}

static void watch_free(struct watch *watch)
{
    waits_close(&watch->waits);
    pthread_mutex_destroy(&watch->lock);
    free(watch->workers);
    free(watch->running_ns);
    free(watch->entries);
    free(watch);
}

weir_status watch_open(struct watch **out, struct weir_session *session, int64_t stall_ns)
{
    *out = NULL;
    if (stall_ns <= 0)
        return WEIR_OK;
    struct watch *watch = calloc(1, sizeof(*watch));
    if (!watch)
        return error_set(WEIR_E_MEMORY, "no memory for a watch");
    watch->session = session;
    watch->stall_ns = stall_ns;
    watch->rank = session->cluster ? session->cluster->env.rank : 0;
    watch->changed_ns = park_now_ns();
    pthread_mutex_init(&watch->lock, NULL);
    weir_status status = watch_alloc(watch);
    if (!status)
        status = watch_start(watch);
    if (status) {
        watch_free(watch);
        return status;
    }
    *out = watch;
    return WEIR_OK;
}

void watch_close(struct watch *watch)
{
    if (!watch)
        return;
    atomic_store_explicit(&watch->closing, true, memory_order_release); /* pairs with the loads of the thread */
    watch_event(watch);
    pthread_join(watch->thread, NULL);
    watch_free(watch);
}
