/* tests/support/fake_engine.c: the thread that plays the fake device. It takes, again and again, a queue at random
 * of those whose first entry can go on, and does one thing to it:
 *
 *     mark       passes: `done` is stored; of a queue for collectives others may await it from some time before that
 *     await      passes, when the mark has
 *     launch     begins: what it will write is poisoned, and a time is drawn at which it is over
 *                then, no earlier than that: the CPU's kernel is called, without the lock
 *     meeting    in five steps: fake_meet.c
 *
 * So kernels of several queues are under way at once, and take their time together. One thread is enough to show the
 * orders in which queues can see each other's memory, since what a kernel writes is gone from when it begins; and
 * accesses that are in no order are found by their clocks (races.h) rather than by meeting.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/support/fake_inside.h"

#define POISON 0xff /* NaN in every real dtype, -1 in others */

uint64_t fake_draw(struct fake *fake)
{
    uint64_t z = fake->random += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

uint64_t fake_below(struct fake *fake, uint64_t limit)
{
    return fake_draw(fake) % limit;
}

int64_t fake_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

uint64_t fake_view_bytes(const weir_view *view)
{
    return view->data ? (uint64_t)weir_shape_count(&view->shape) * weir_dtype_bytes(view->dtype) : 0;
}

void fake_drop_entries(struct fake_queue *queue)
{
    while (queue->first) {
        struct fake_entry *entry = queue->first;
        queue->first = entry->next;
        free(entry);
    }
    queue->last = &queue->first;
    queue->unmarked = false;
}

/* Takes the first entry off. */
void fake_finish(struct fake_queue *queue)
{
    struct fake_entry *entry = queue->first;
    queue->first = entry->next;
    if (!queue->first)
        queue->last = &queue->first;
    free(entry);
}

/* ---- what can go on ---- */

static bool has_passed(const struct fake_queue *queue, uint64_t ticket)
{
    return !queue->freed && atomic_load_explicit(queue->done, memory_order_relaxed) >= ticket;
}

/* Whether its first entry can go on now; when it can later, `wake_ns` is no later than that. */
static bool can_go_on(const struct fake *fake, const struct fake_queue *queue, int64_t now_ns, int64_t *wake_ns)
{
    const struct fake_entry *entry = queue->first;
    if (!entry || queue->stuck || queue->aborted || fake->held)
        return false;
    if (entry->kind == FAKE_AWAIT)
        return has_passed(entry->other, entry->ticket);
    if (entry->kind == FAKE_MEET)
        return fake_meeting_ready(fake, entry, now_ns, wake_ns);
    if (entry->kind == FAKE_MARK || !entry->begun || entry->due_ns <= now_ns)
        return true;
    if (entry->due_ns < *wake_ns)
        *wake_ns = entry->due_ns;
    return false;
}

/* Sets when to look again, if none can go on. */
static struct fake_queue *pick(struct fake *fake, int64_t *wake_ns)
{
    struct fake_queue *able[FAKE_QUEUES_MAX];
    uint32_t count = 0;
    int64_t now_ns = fake_now_ns();
    *wake_ns = INT64_MAX;
    for (uint32_t q = 0; q < fake->queue_count; q++)
        if (can_go_on(fake, fake->queues[q], now_ns, wake_ns))
            able[count++] = fake->queues[q];
    return count ? able[fake_below(fake, count)] : NULL;
}

/* A queue for collectives puts a mark when it likes, and before it passes. */
static void put(struct fake_queue *queue)
{
    /* Pairs with the host's loads of *head.put. */
    atomic_store_explicit(&queue->put, queue->put + 1, memory_order_release);
}

/* Those with one that is not put, each or not; all when nothing else can go on. */
static void put_some(struct fake *fake, bool all)
{
    for (uint32_t q = 0; q < fake->queue_count; q++) {
        struct fake_queue *queue = fake->queues[q];
        bool waits = queue->head.kind == DEVICE_COLLECTIVE && !queue->freed && queue->put < queue->made;
        if (waits && (all || !fake_below(fake, 4)))
            put(queue);
    }
}

/* ---- launches ---- */

static bool overlap(const void *a, uint64_t a_bytes, const void *b, uint64_t b_bytes)
{
    const char *x = a, *y = b;
    return x < y + b_bytes && y < x + a_bytes;
}

static bool overlaps_any(const void *at, uint64_t bytes, const weir_view *views, int count)
{
    for (int i = 0; i < count; i++)
        if (overlap(at, bytes, views[i].data, fake_view_bytes(&views[i])))
            return true;
    return false;
}

/* The operands that the call only writes. */
void fake_poison(const struct fake_entry *entry)
{
    const weir_kernel_args *args = &entry->args;
    for (int i = 0; i < args->out_count && !entry->updates; i++) {
        void *at = args->out[i].data;
        uint64_t bytes = fake_view_bytes(&args->out[i]);
        bool adds = args->continues || (args->accumulate && !i);
        if (bytes && !adds && !overlaps_any(at, bytes, args->in, args->in_count))
            memset(at, POISON, bytes);
    }
    if (args->workspace_bytes && !args->continues)
        memset(args->workspace, POISON, args->workspace_bytes);
}

void fake_access_all(struct fake *fake, const struct fake_queue *queue, const struct fake_entry *entry, bool writes)
{
    const weir_view *views = writes ? entry->args.out : entry->args.in;
    for (int i = 0; i < (writes ? entry->args.out_count : entry->args.in_count); i++)
        races_access(fake->races, queue->id, views[i].data, fake_view_bytes(&views[i]), writes, entry->name);
}

/* Tells the detector of all that the call may touch. */
static void look_for_races(struct fake *fake, const struct fake_queue *queue, const struct fake_entry *entry)
{
    const weir_kernel_args *args = &entry->args;
    for (uint32_t q = 0; q < fake->queue_count; q++)
        races_await(fake->races, queue->id, q, entry->passed[q]);
    races_step(fake->races, queue->id);
    fake_access_all(fake, queue, entry, false);
    fake_access_all(fake, queue, entry, true);
    for (int i = 0; i < args->state_count; i++)
        races_access(fake->races, queue->id, args->state[i].data, fake_view_bytes(&args->state[i]), true, entry->name);
    if (args->workspace_bytes)
        races_access(fake->races, queue->id, args->workspace, args->workspace_bytes, true, entry->name);
}

int64_t fake_due_ns(struct fake *fake)
{
    int64_t delay_ns = 0;
    if (fake->options.delay_us)
        delay_ns = (int64_t)fake_below(fake, 2000 * (uint64_t)fake->options.delay_us);
    return fake_now_ns() + delay_ns;
}

void fake_die(struct fake_queue *queue)
{
    queue->stuck = true;
    queue->health = WEIR_E_KERNEL;
    snprintf(queue->error, sizeof queue->error, "a queue of fake:%" PRIu32 " is lost", queue->head.index);
}

static void begin(struct fake *fake, struct fake_queue *queue, struct fake_entry *entry)
{
    if (entry->fault == FAKE_DIES) {
        fake_die(queue);
        return;
    }
    if (fake->races)
        look_for_races(fake, queue, entry);
    fake_poison(entry);
    entry->begun = true;
    if (!queue->start_ns)
        queue->start_ns = fake_now_ns();
    entry->due_ns = fake_due_ns(fake);
    queue->stuck = entry->fault == FAKE_HANGS;
}

void fake_fail(struct fake_queue *queue, const struct fake_entry *entry, weir_status status)
{
    queue->stuck = true;
    queue->health = status;
    snprintf(queue->error, sizeof queue->error, "%s failed on fake:%" PRIu32 ": %.160s", entry->name, queue->head.index,
             entry->fault ? "it was told to" : entry->error[0] ? entry->error : "no reason is given");
}

/* Unlocks while the kernel runs. */
static void run(struct fake *fake, struct fake_queue *queue, struct fake_entry *entry)
{
    weir_status status = entry->fault ? WEIR_E_KERNEL : WEIR_OK;
    queue->running = true;
    pthread_mutex_unlock(&fake->lock);
    if (!status)
        status = entry->call(&entry->args);
    pthread_mutex_lock(&fake->lock);
    queue->running = false;
    queue->end_ns = fake_now_ns();
    if (status)
        fake_fail(queue, entry, status);
    fake_finish(queue);
    pthread_cond_broadcast(&fake->rest);
}

/* ---- marks ---- */

static void pass(struct fake *fake, struct fake_queue *queue, const struct fake_entry *entry)
{
    int64_t now_ns = fake_now_ns();
    struct fake_time *time = &queue->times[entry->ticket % FAKE_MARKS_MAX];
    time->start_ns = queue->start_ns ? queue->start_ns : now_ns;
    time->end_ns = queue->start_ns ? queue->end_ns : now_ns;
    queue->start_ns = queue->end_ns = 0;
    while (queue->head.kind == DEVICE_COLLECTIVE && queue->put < entry->ticket)
        put(queue);
    if (fake->races)
        races_mark(fake->races, queue->id, entry->ticket);
    /* Pairs with the host's loads of *head.done. */
    atomic_store_explicit(queue->done, entry->ticket, memory_order_release);
}

static void advance(struct fake *fake, struct fake_queue *queue)
{
    struct fake_entry *entry = queue->first;
    if (entry->kind == FAKE_LAUNCH) {
        if (entry->begun)
            run(fake, queue, entry);
        else
            begin(fake, queue, entry);
        return;
    }
    if (entry->kind == FAKE_MEET) {
        fake_meeting_advance(fake, queue, entry);
        return;
    }
    if (entry->kind == FAKE_MARK)
        pass(fake, queue, entry);
    else if (fake->races)
        races_await(fake->races, queue->id, entry->other->id, entry->ticket);
    fake_finish(queue);
}

static void sleep_until(struct fake *fake, int64_t wake_ns)
{
    struct timespec wake = {wake_ns / 1000000000, wake_ns % 1000000000};
    if (wake_ns == INT64_MAX)
        pthread_cond_wait(&fake->work, &fake->lock);
    else
        pthread_cond_timedwait(&fake->work, &fake->lock, &wake); /* by the monotonic clock: fake_open() */
}

void *fake_engine(void *opaque)
{
    struct fake *fake = opaque;
    device_cpu.queue_open(0);
    pthread_mutex_lock(&fake->lock);
    while (!fake->ending) {
        int64_t wake_ns;
        struct fake_queue *queue = pick(fake, &wake_ns);
        put_some(fake, !queue);
        if (queue)
            advance(fake, queue);
        else
            sleep_until(fake, wake_ns);
    }
    pthread_mutex_unlock(&fake->lock);
    return NULL;
}
