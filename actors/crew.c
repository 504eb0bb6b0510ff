/* actors/crew.c: see the header. The lock is taken once a turn, by the thread itself, and never while anything is called
 * but an order to a mailbox. Rejected: one mailbox for all workers of a thread, which would make messages name a session
 * and every session know the others' edges. */
#define _GNU_SOURCE
#include "actors/crew.h"

#include <poll.h>
#include <sched.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "graph/base/error.h"
#include "transport/mail/park.h"

struct crew_thread {
    pthread_t thread;
    bool started;
    pthread_mutex_t lock;    /* of all that follows, but for what is the thread's */
    pthread_cond_t changed;  /* a worker has entered, or its turn is over, or it is `over` */
    struct worker *first;    /* borrowed list, by `next` */
    uint32_t count;
    struct worker *current;  /* whose turn it is; NULL: nobody's */
    int event_fd;            /* owned; -1: there has been one worker at most */
    bool over;               /* it is to end */
    uint32_t idle;           /* the thread's: turns on end in which there was nothing to do */
    int64_t idle_ns;         /* the thread's: since when */
};

struct crew {
    _Atomic uint32_t held;
    uint32_t places, first;
    char kind[4];
    pthread_mutex_t lock; /* one worker enters at a time */
    struct crew_thread threads[];
};

/* ---- whose turn it is; with the lock ---- */

static struct worker *next_of(const struct crew_thread *t, const struct worker *worker)
{
    return worker && worker->next ? worker->next : t->first;
}

/* The next that has not been stopped. NULL: the thread is to end. */
static struct worker *choose(struct crew_thread *t)
{
    for (;;) {
        struct worker *worker = t->current;
        for (uint32_t i = 0; i < t->count; i++) {
            worker = next_of(t, worker);
            if (!worker->left)
                return worker;
        }
        t->current = NULL;
        pthread_cond_broadcast(&t->changed);
        if (t->over)
            return NULL;
        pthread_cond_wait(&t->changed, &t->lock);
    }
}

static void drain(int fd)
{
    uint64_t count;
    while (read(fd, &count, sizeof(count)) > 0)
        continue;
}

static bool all_asleep(struct crew_thread *t)
{
    for (struct worker *worker = t->first; worker; worker = worker->next) {
        struct mailbox *mailbox = &worker->lane.mailbox;
        if (mailbox->event_fd < 0)
            mailbox->event_fd = t->event_fd;
        if (!worker->left && !mailbox_asleep(mailbox))
            return false;
    }
    return true;
}

/* Until one of them, or somebody who enters, has something for it. */
static void sleep_together(struct crew_thread *t)
{
    if (all_asleep(t)) {
        t->current = NULL;
        pthread_cond_broadcast(&t->changed);
        pthread_mutex_unlock(&t->lock);
        poll(&(struct pollfd){.fd = t->event_fd, .events = POLLIN}, 1, -1);
        drain(t->event_fd);
        pthread_mutex_lock(&t->lock);
    }
    for (struct worker *worker = t->first; worker; worker = worker->next)
        mailbox_awake(&worker->lane.mailbox);
}

/* A turn was for nothing. */
static void rest(struct crew_thread *t, const struct spin *spin)
{
    if (++t->idle < t->count)
        return;
    int64_t now = park_now_ns();
    if (t->idle < 2 * t->count)
        t->idle_ns = now;
    if (now < spin_until(spin, t->idle_ns)) {
        if (now - t->idle_ns > SPIN_YIELD_NS) {
            pthread_mutex_unlock(&t->lock);
            sched_yield();
            pthread_mutex_lock(&t->lock);
        }
        return;
    }
    t->idle = 0;
    sleep_together(t);
}

/* ---- the thread ---- */

static void take_turn(struct crew_thread *t, struct worker *worker)
{
    bool alone = t->count == 1, busy = true;
    t->current = worker;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    if (alone)
        worker_run(worker);
    else
        busy = worker_turn(worker);
    pthread_mutex_lock(&t->lock);
    worker->left |= worker->stopped;
    if (busy)
        t->idle = 0;
    else
        rest(t, &worker->lane.mailbox.spin);
}

static void *thread_main(void *argument)
{
    struct crew_thread *t = argument;
    struct worker *worker;
    pthread_mutex_lock(&t->lock);
    while ((worker = choose(t)) != NULL)
        take_turn(t, worker);
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

/* ---- who enters and leaves ---- */

/* The fewest workers; none of the same owner's counts for more. */
static struct crew_thread *find_thread(struct crew *crew, const struct worker_owner *owner)
{
    struct crew_thread *best = NULL;
    uint32_t least = UINT32_MAX;
    for (uint32_t i = 0; i < crew->places; i++) {
        struct crew_thread *t = &crew->threads[i];
        pthread_mutex_lock(&t->lock);
        uint32_t count = t->count;
        for (const struct worker *worker = t->first; worker; worker = worker->next)
            count += worker->owner == owner ? UINT16_MAX : 0;
        pthread_mutex_unlock(&t->lock);
        if (count < least) {
            least = count;
            best = t;
        }
    }
    return best;
}

static bool thread_start(struct crew *crew, struct crew_thread *t)
{
    char name[16];
    snprintf(name, sizeof(name), "weir-%s%u", crew->kind, (crew->first + (uint32_t)(t - crew->threads)) % 1000000);
    t->started = t->started || park_thread(&t->thread, name, thread_main, t);
    return t->started;
}

static void link_last(struct crew_thread *t, struct worker *worker)
{
    struct worker **end = &t->first;
    while (*end)
        end = &(*end)->next;
    *end = worker;
    worker->next = NULL;
    worker->thread = t;
    t->count++;
}

/* The thread may wait for a first worker, run one by itself, or sleep with several. With the lock. */
static void call_thread(struct crew_thread *t)
{
    uint64_t one = 1;
    pthread_cond_broadcast(&t->changed);
    if (t->current)
        mailbox_order(&t->current->lane.mailbox, LANE_JOIN);
    if (t->event_fd >= 0 && write(t->event_fd, &one, sizeof(one)) < 0)
        return; /* it is readable already */
}

static weir_status enter_thread(struct crew *crew, struct crew_thread *t, struct worker *worker)
{
    weir_status status = WEIR_OK;
    pthread_mutex_lock(&t->lock);
    if (t->first && t->event_fd < 0)
        t->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (t->first && t->event_fd < 0)
        status = error_set(WEIR_E_MEMORY, "no descriptor for workers to share a thread");
    if (!status && !thread_start(crew, t))
        status = error_set(WEIR_E_MEMORY, "no thread for worker %u", worker->number);
    if (!status) {
        link_last(t, worker);
        call_thread(t);
    }
    pthread_mutex_unlock(&t->lock);
    return status;
}

weir_status crew_enter(struct crew *crew, struct worker *worker)
{
    pthread_mutex_lock(&crew->lock);
    weir_status status = enter_thread(crew, find_thread(crew, worker->owner), worker);
    pthread_mutex_unlock(&crew->lock);
    return status;
}

void crew_leave(struct worker *worker)
{
    struct crew_thread *t = worker->thread;
    if (!t)
        return;
    pthread_mutex_lock(&t->lock);
    while (!worker->left && (t->current == worker || t->count == 1))
        pthread_cond_wait(&t->changed, &t->lock);
    while (t->current == worker) /* it has been stopped, and the thread is about to see that */
        pthread_cond_wait(&t->changed, &t->lock);
    struct worker **at = &t->first;
    while (*at != worker)
        at = &(*at)->next;
    *at = worker->next;
    t->count--;
    worker->thread = NULL;
    pthread_mutex_unlock(&t->lock);
}

bool crew_waits_turn(const struct worker *worker)
{
    struct crew_thread *t = worker->thread;
    pthread_mutex_lock(&t->lock);
    bool waits = t->current && t->current != worker;
    pthread_mutex_unlock(&t->lock);
    return waits;
}

/* ---- life ---- */

struct crew *crew_new(uint32_t places, const char *kind, uint32_t first)
{
    struct crew *crew = calloc(1, sizeof(*crew) + places * sizeof(crew->threads[0]));
    if (!crew)
        return NULL;
    atomic_init(&crew->held, 1);
    crew->places = places;
    crew->first = first;
    snprintf(crew->kind, sizeof(crew->kind), "%s", kind);
    pthread_mutex_init(&crew->lock, NULL);
    for (uint32_t i = 0; i < places; i++) {
        crew->threads[i].event_fd = -1;
        pthread_mutex_init(&crew->threads[i].lock, NULL);
        pthread_cond_init(&crew->threads[i].changed, NULL);
    }
    return crew;
}

void crew_hold(struct crew *crew)
{
    atomic_fetch_add_explicit(&crew->held, 1, memory_order_relaxed);
}

static void thread_end(struct crew_thread *t)
{
    pthread_mutex_lock(&t->lock);
    assert(!t->first);
    t->over = true;
    call_thread(t);
    pthread_mutex_unlock(&t->lock);
    if (t->started)
        pthread_join(t->thread, NULL);
    if (t->event_fd >= 0)
        close(t->event_fd);
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->changed);
}

void crew_release(struct crew *crew)
{
    /* acq_rel: what the others did is over when the last one lets go */
    if (!crew || atomic_fetch_sub_explicit(&crew->held, 1, memory_order_acq_rel) != 1)
        return;
    for (uint32_t i = 0; i < crew->places; i++)
        thread_end(&crew->threads[i]);
    pthread_mutex_destroy(&crew->lock);
    free(crew);
}

uint32_t crew_places(const struct crew *crew)
{
    return crew->places;
}
