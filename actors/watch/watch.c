/* actors/watch/watch.c: the thread that looks, and what workers write for it.
 *
 * Why a thread: nobody else is awake in a stall. Why workers are asked rather than looked at: their counters are plain
 * memory, on the hot path; and an answer is by itself the proof that a worker is not inside a kernel.
 *
 * An idle session wakes this thread four times per stall_ns; so a stall is noticed within 1.25 times that.
 */
#define _GNU_SOURCE
#include "actors/watch/watch.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "graph/base/error.h"
#include "transport/mail/park.h"

#define LOOKS_PER_STALL 4
#define ANSWER_NS 200000000 /* a worker that has not answered by then does not */
#define TELL_MIN_NS 10000000 /* between two times that this rank answers others: it may not flood them */
#define RANKS_NS 1000000000 /* the same for a rank, which asks its workers first, and may be far away */

/* The watch's knowledge of one worker. */
struct watched {
    const struct flight *flight; /* borrowed */
    struct look *look;           /* borrowed */
    uint64_t fired;     /* when last looked at */
    int64_t changed_ns; /* when it was first seen to be that */
    uint32_t asked;     /* how often */
};

struct watch {
    struct watch_opts on; /* its `workers` are not looked at again */
    pthread_t thread;
    _Atomic uint32_t events;  /* counts what the thread is to be woken for (a futex word) */
    _Atomic bool closing;

    /* the thread's */
    uint64_t fired;           /* of all, when last looked at */
    int64_t changed_ns;       /* when it was first seen to be that */
    bool reported;            /* since then */
    bool complete;            /* with the answers of all ranks */
    bool held_up;             /* a worker that did not answer has waited for its thread, which other sessions use */
    int64_t sent_ns;          /* when this rank last told the others */
    struct watched *workers;  /* owned */
    int64_t *running_ns;      /* owned, by worker */
    struct wait_entry *entries; /* owned: what all workers wrote */
    uint32_t count;
    char text[WATCH_TEXT_BYTES];

    pthread_mutex_t lock;     /* of what follows; held while nothing is called but waits_...() */
    struct waits waits;
    bool told;                /* something is in `waits` */
    bool heard;               /* another rank told something that has not been looked at */
};

/* ---- the worker's part ---- */

weir_status look_open(struct look *look, uint32_t room)
{
    look->room = room;
    look->entries = calloc((size_t)room + 1, sizeof(*look->entries));
    return look->entries ? WEIR_OK : error_set(WEIR_E_MEMORY, "no memory to watch %u ends of actors", room);
}

void look_close(struct look *look)
{
    free(look->entries);
    look->entries = NULL;
}

void look_begin(struct look *look)
{
    look->count = 0;
}

void look_add(struct look *look, struct wait_entry entry)
{
    assert(!look->entries || look->count < look->room);
    if (look->entries)
        look->entries[look->count++] = entry;
}

void look_end(struct look *look)
{
    /* release: pairs with the load in await_answer() */
    atomic_fetch_add_explicit(&look->answered, 1, memory_order_release);
    park_wake(&look->answered);
}

/* ---- asking ---- */

/* A worker that has not answered the last time is not asked again: it would answer both at once. */
static void ask_all(struct watch *watch)
{
    for (uint32_t w = 0; w < watch->on.worker_count; w++) {
        struct watched *watched = &watch->workers[w];
        if (atomic_load_explicit(&watched->look->answered, memory_order_acquire) != watched->asked)
            continue;
        watched->asked++;
        watch->on.ask(watch->on.ctx, w);
    }
}

static bool await_answer(struct look *look, uint32_t asked, int64_t deadline)
{
    for (;;) {
        /* acquire: pairs with the addition in look_end() */
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
            (struct wait_entry){row.actor, PLAN_NONE, flight_step(watch->on.plan, row.actor, row.firing)};
}

/* Asks all workers, and puts what they say where the text is made from. */
static void look_around(struct watch *watch)
{
    int64_t deadline = park_now_ns() + ANSWER_NS;
    watch->count = 0;
    watch->held_up = false;
    ask_all(watch);
    for (uint32_t w = 0; w < watch->on.worker_count; w++) {
        const struct watched *watched = &watch->workers[w];
        if (await_answer(watched->look, watched->asked, deadline))
            take_answer(watch, watched->look);
        else if (watch->on.waits_turn(watch->on.ctx, w))
            watch->held_up = true;
        else
            take_recorded(watch, watched->flight);
    }
    watch->count += watch->on.pulls(watch->on.ctx, watch->entries + watch->count);
    pthread_mutex_lock(&watch->lock);
    waits_put(&watch->waits, watch->on.rank, watch->entries, watch->count);
    watch->told = true;
    watch->heard = false;
    pthread_mutex_unlock(&watch->lock);
    watch->sent_ns = park_now_ns();
    watch->on.tell_others(watch->on.ctx, watch->entries, watch->count);
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
    if (!watch || rank == watch->on.rank)
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
    int64_t pause_ns = watch->on.stall_ns / 2 > TELL_MIN_NS ? watch->on.stall_ns / 2 : TELL_MIN_NS;
    if (heard && now - watch->sent_ns > pause_ns)
        look_around(watch);
    if (heard && !watch->complete)
        watch->reported = false; /* more is known now */
}

/* ---- noticing ---- */

/* Whether anything has moved, here or elsewhere, since it was last looked at. */
static bool has_moved(struct watch *watch, int64_t now, struct waits_facts *facts)
{
    uint64_t fired = watch->on.others_fired(watch->on.ctx, &facts->silent_rank, &facts->silent_ns);
    for (uint32_t w = 0; w < watch->on.worker_count; w++) {
        /* relaxed: only whether it has changed is of interest */
        uint64_t mine = flight_moved(watch->workers[w].flight);
        if (mine != watch->workers[w].fired)
            watch->workers[w].changed_ns = now;
        watch->workers[w].fired = mine;
        fired += mine;
    }
    bool moved = fired != watch->fired;
    watch->fired = fired;
    return moved;
}

static bool is_running(struct watch *watch)
{
    return watch->on.running(watch->on.ctx);
}

/* Lines that were told belong to the stall before. */
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

static void tell_stall(struct watch *watch, struct waits_facts *facts)
{
    int64_t now = park_now_ns();
    facts->stalled_ns = now - watch->changed_ns;
    facts->running_ns = watch->running_ns;
    for (uint32_t w = 0; w < watch->on.worker_count; w++) {
        /* relaxed: a number to show */
        int64_t end = atomic_load_explicit(&watch->workers[w].flight->steps_end, memory_order_relaxed);
        facts->steps_end = end > facts->steps_end ? end : facts->steps_end;
        watch->running_ns[w] = now - watch->workers[w].changed_ns;
    }
    pthread_mutex_lock(&watch->lock);
    watch->complete = waits_complete(&watch->waits);
    waits_text(&watch->waits, facts, watch->text, sizeof(watch->text));
    pthread_mutex_unlock(&watch->lock);
    watch->on.report(watch->on.ctx, watch->text);
}

/* Nothing has moved for long. Asking takes a while; what moved meanwhile was no stall. A wait for a kernel of another session
 * on its thread is no stall either: that is told by the other's watch, if it takes so long. */
static void look_into(struct watch *watch, struct waits_facts *facts)
{
    look_around(watch);
    await_ranks(watch);
    int64_t now = park_now_ns();
    if (has_moved(watch, now, facts) || !is_running(watch) || watch->held_up)
        begin_again(watch, now);
    else if (!atomic_load_explicit(&watch->closing, memory_order_acquire)) {
        tell_stall(watch, facts);
        watch->reported = true;
    }
}

static void watch_tick(struct watch *watch)
{
    struct waits_facts facts = {.silent_rank = UINT32_MAX};
    int64_t now = park_now_ns();
    answer_ranks(watch, now);
    if (has_moved(watch, now, &facts) || !is_running(watch))
        begin_again(watch, now);
    else if (!watch->reported && now - watch->changed_ns >= watch->on.stall_ns)
        look_into(watch, &facts);
}

static void *watch_main(void *argument)
{
    struct watch *watch = argument;
    for (;;) {
        uint32_t events = atomic_load_explicit(&watch->events, memory_order_acquire);
        if (atomic_load_explicit(&watch->closing, memory_order_acquire))
            return NULL;
        watch_tick(watch);
        watch_sleep(watch, events, park_now_ns() + watch->on.stall_ns / LOOKS_PER_STALL);
    }
}

/* ---- life ---- */

static weir_status watch_alloc(struct watch *watch)
{
    const struct watch_opts *on = &watch->on;
    uint64_t room = on->worker_count + (uint64_t)on->plan->hosts_count;
    weir_status status = waits_open(&watch->waits, on->plan, on->worker_of, on->rank);
    watch->workers = calloc(on->worker_count + (size_t)1, sizeof(*watch->workers));
    watch->running_ns = calloc(on->worker_count + (size_t)1, sizeof(*watch->running_ns));
    for (uint32_t w = 0; watch->workers && w < on->worker_count; w++) {
        watch->workers[w].flight = on->workers[w].flight;
        watch->workers[w].look = on->workers[w].look;
        room += on->workers[w].look->room;
    }
    watch->entries = calloc(room + 1, sizeof(*watch->entries));
    if (!status && (!watch->workers || !watch->running_ns || !watch->entries))
        status = error_set(WEIR_E_MEMORY, "no memory to watch %u workers", on->worker_count);
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

weir_status watch_open(struct watch **out, const struct watch_opts *opts)
{
    *out = NULL;
    if (opts->stall_ns <= 0)
        return WEIR_OK;
    struct watch *watch = calloc(1, sizeof(*watch));
    if (!watch)
        return error_set(WEIR_E_MEMORY, "no memory for a watch");
    watch->on = *opts;
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
