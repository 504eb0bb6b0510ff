/* tests/support/fake.c: the fake device's table, and what the host does to its queues. */
#include "tests/support/fake_inside.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/base/error.h"

struct fake *fake_the;
static const struct device_ops *pinned_before; /* known while none was open */

void fake_misuse(struct fake *fake, const char *format, ...)
{
    va_list args;
    if (fake->seen.misuses++)
        return;
    va_start(args, format);
    vsnprintf(fake->seen.misuse, sizeof fake->seen.misuse, format, args);
    va_end(args);
}

/* ---- queues ---- */

static struct fake_queue *queue_of(struct device_queue *queue)
{
    return (struct fake_queue *)queue;
}

static weir_status fake_queue_open(uint32_t index)
{
    return index < FAKE_DEVICES ? WEIR_OK : error_set(WEIR_E_UNSUPPORTED, "there is no fake:%" PRIu32, index);
}

static weir_status fake_queue_new(uint32_t index, enum device_queue_kind kind, struct device_queue **made)
{
    if (index >= FAKE_DEVICES || (unsigned)kind >= DEVICE_QUEUE_KINDS)
        return error_set(WEIR_E_UNSUPPORTED, "fake:%" PRIu32 " has no queue of kind %d", index, (int)kind);
    pthread_mutex_lock(&fake_the->lock);
    bool full = fake_the->queue_count == FAKE_QUEUES_MAX;
    struct fake_queue *queue = full ? NULL : calloc(1, sizeof *queue);
    _Atomic uint64_t *done = queue ? calloc(1, sizeof *done) : NULL;
    if (done) {
        uint32_t drawn = 2 + (uint32_t)fake_below(fake_the, 15), told = fake_the->options.marks_max;
        queue->head = (struct device_queue){.device = device_find(WEIR_FAKE), .index = index, .kind = kind,
                                            .done = done, .marks_max = told ? told : drawn,
                                            .kernels_max = fake_the->options.kernels_max};
        queue->done = done;
        queue->head.put = kind == DEVICE_COLLECTIVE ? &queue->put : NULL;
        queue->id = fake_the->queue_count;
        queue->last = &queue->first;
        atomic_flag_clear(&queue->busy);
        fake_the->queues[fake_the->queue_count++] = queue;
        *made = &queue->head;
    } else {
        free(queue);
    }
    pthread_mutex_unlock(&fake_the->lock);
    return done ? WEIR_OK : error_set(WEIR_E_MEMORY, "the fake device has no more queues");
}

/* Under the lock: what was enqueued goes, when the engine is out of it. */
static void empty(struct fake_queue *queue)
{
    while (queue->running)
        pthread_cond_wait(&fake_the->rest, &fake_the->lock);
    fake_drop_entries(queue);
}

static void fake_queue_free(struct device_queue *head)
{
    struct fake_queue *queue = queue_of(head);
    pthread_mutex_lock(&fake_the->lock);
    if (queue->freed || (!queue->aborted && (queue->first || queue->running || queue->unmarked)))
        fake_misuse(fake_the, "queue %" PRIu32 " is freed %s", queue->id,
                    queue->freed ? "twice" : "while it is at work");
    queue->aborted = true;
    empty(queue);
    if (!queue->freed)
        free(queue->done);
    queue->freed = true;
    queue->head.done = NULL;
    pthread_mutex_unlock(&fake_the->lock);
}

static void fake_abort(struct device_queue *head)
{
    struct fake_queue *queue = queue_of(head);
    pthread_mutex_lock(&fake_the->lock);
    queue->aborted = true;
    pthread_cond_signal(&fake_the->work);
    while (queue->running)
        pthread_cond_wait(&fake_the->rest, &fake_the->lock);
    pthread_mutex_unlock(&fake_the->lock);
}

static weir_status fake_health(struct device_queue *head, char *error, size_t error_bytes)
{
    struct fake_queue *queue = queue_of(head);
    pthread_mutex_lock(&fake_the->lock);
    weir_status status = queue->health;
    if (status && error_bytes)
        snprintf(error, error_bytes, "%s", queue->error);
    pthread_mutex_unlock(&fake_the->lock);
    return status;
}

static bool fake_times(struct device_queue *head, uint64_t ticket, int64_t *start_ns, int64_t *end_ns)
{
    struct fake_queue *queue = queue_of(head);
    uint64_t done = atomic_load_explicit(queue->done, memory_order_acquire);
    if (!ticket || ticket > done || done - ticket >= head->marks_max)
        return false;
    pthread_mutex_lock(&fake_the->lock);
    struct fake_time time = queue->times[ticket % FAKE_MARKS_MAX];
    pthread_mutex_unlock(&fake_the->lock);
    *start_ns = time.start_ns;
    *end_ns = time.end_ns;
    return true;
}

/* ---- enqueueing ---- */

weir_status fake_enter(struct fake_queue *queue)
{
    bool alone = !atomic_flag_test_and_set_explicit(&queue->busy, memory_order_acquire);
    pthread_mutex_lock(&fake_the->lock);
    if (!alone)
        fake_misuse(fake_the, "two threads use queue %" PRIu32 " at once", queue->id);
    if (queue->freed)
        fake_misuse(fake_the, "queue %" PRIu32 " is used after it was freed", queue->id);
    if (!alone || queue->freed || queue->aborted) {
        if (alone)
            atomic_flag_clear_explicit(&queue->busy, memory_order_release);
        pthread_mutex_unlock(&fake_the->lock);
        return error_set(WEIR_E_STATE, "queue %" PRIu32 " of the fake device takes nothing more", queue->id);
    }
    return WEIR_OK;
}

weir_status fake_leave(struct fake_queue *queue, struct fake_entry *entry)
{
    if (entry) {
        *queue->last = entry;
        queue->last = &entry->next;
        queue->unmarked = entry->kind != FAKE_MARK;
        pthread_cond_signal(&fake_the->work);
    }
    pthread_mutex_unlock(&fake_the->lock);
    atomic_flag_clear_explicit(&queue->busy, memory_order_release);
    return entry ? WEIR_OK : WEIR_E_KERNEL;
}

static struct fake_entry *entry_new(enum fake_entry_kind kind, uint64_t ticket, size_t more_bytes)
{
    struct fake_entry *entry = calloc(1, sizeof *entry + more_bytes);
    if (!entry)
        abort();
    entry->kind = kind;
    entry->ticket = ticket;
    return entry;
}

static weir_status fake_mark(struct device_queue *head)
{
    struct fake_queue *queue = queue_of(head);
    weir_status status = fake_enter(queue);
    if (status)
        return status;
    if (!fake_room(head))
        fake_misuse(fake_the, "queue %" PRIu32 " is given a mark that it has no room for", queue->id);
    fake_the->seen.marks++;
    queue->made = ++head->marked;
    return fake_leave(queue, entry_new(FAKE_MARK, head->marked, 0));
}

static weir_status fake_await(struct device_queue *head, struct device_queue *other, uint64_t ticket)
{
    struct fake_queue *queue = queue_of(head), *of = queue_of(other);
    weir_status status = fake_enter(queue);
    if (status)
        return status;
    if (of->freed || other == head || !ticket || ticket > other->marked)
        fake_misuse(fake_the, "queue %" PRIu32 " awaits mark %" PRIu64 " of queue %" PRIu32 ", which has made %" PRIu64,
                    queue->id, ticket, of->id, other->marked);
    if (other->put && ticket > atomic_load_explicit(&of->put, memory_order_relaxed))
        fake_misuse(fake_the, "queue %" PRIu32 " awaits mark %" PRIu64 " of queue %" PRIu32 ", which has not put it", queue->id,
                    ticket, of->id);
    fake_the->seen.awaits++;
    struct fake_entry *entry = entry_new(FAKE_AWAIT, ticket, 0);
    entry->other = of;
    return fake_leave(queue, entry);
}

/* Whether another launch is one too many: more are under way than may be, of this firing and one before. */
static bool is_too_many(const struct fake_queue *queue)
{
    uint64_t kernels = 1, before = 0;
    for (const struct fake_entry *entry = queue->first; entry; entry = entry->next) {
        kernels += entry->kind == FAKE_LAUNCH || entry->kind == FAKE_MEET;
        before += entry->kind == FAKE_MARK;
    }
    return queue->head.kernels_max && before && kernels > queue->head.kernels_max;
}

/* ---- launching ---- */

/* Host functions, and what lies in files, are no accelerator's. */
static bool is_of_host(const weir_op *op)
{
    return !strcmp(op->name, "source") || !strcmp(op->name, "sink") || !strcmp(op->name, "call");
}

/* Optimizers change parameters where they lie. */
static bool updates(const weir_op *op)
{
    return op->states || strstr(op->name, "_moved");
}

static weir_kernel_fn fake_kernel(const weir_op *op)
{
    weir_kernel_fn call = is_of_host(op) ? NULL : op->kernel[WEIR_CPU];
    if (!call)
        return NULL;
    pthread_mutex_lock(&fake_the->lock);
    uint32_t i = 0;
    while (i < fake_the->call_count && fake_the->calls[i].call != call)
        i++;
    if (i < fake_the->call_count && fake_the->calls[i].attrs_bytes > op->attrs_bytes)
        fake_the->calls[i].attrs_bytes = op->attrs_bytes;
    if (i == fake_the->call_count && i < FAKE_CALLS_MAX)
        fake_the->calls[fake_the->call_count++] = (struct fake_call){call, op->name, op->attrs_bytes, updates(op)};
    pthread_mutex_unlock(&fake_the->lock);
    return call;
}

/* The views' copies, without the bit; `next` is where they go. */
static const weir_view *copy_views(const struct fake_entry *entry, const weir_view *from, int count, weir_view **next)
{
    weir_view *to = *next;
    for (int i = 0; i < count; i++) {
        uint64_t bytes = fake_view_bytes(&from[i]);
        to[i] = from[i];
        to[i].data = fake_reach(from[i].data);
        bool shared = fake_the->options.shared && from[i].data == fake_reach(from[i].data);
        if (bytes && !shared && !fake_space_at(from[i].data, bytes))
            fake_misuse(fake_the, "%s is given %" PRIu64 " bytes at %p, which are no device's", entry->name, bytes,
                        from[i].data);
    }
    *next += count;
    return to;
}

static fake_fault_kind fault_now(const struct fake_queue *queue)
{
    for (int i = 0; i < FAKE_FAULTS_MAX; i++) {
        const fake_fault *fault = &fake_the->options.faults[i];
        if (fault->kind && fault->device == queue->head.index && fault->queue == queue->head.kind &&
            queue->launches == fault->launch + !fault->launch)
            return fault->kind;
    }
    return FAKE_NO_FAULT;
}

struct fake_entry *fake_copy_call(struct fake_queue *queue, weir_kernel_fn call, const weir_kernel_args *args)
{
    const struct fake_call *known = NULL;
    for (uint32_t i = 0; i < fake_the->call_count && !known; i++)
        known = fake_the->calls[i].call == call ? &fake_the->calls[i] : NULL;
    size_t attrs_bytes = known && args->attrs ? known->attrs_bytes : 0;
    size_t views = (size_t)args->in_count + (size_t)args->out_count + (size_t)args->state_count;
    struct fake_entry *entry = entry_new(call ? FAKE_LAUNCH : FAKE_MEET, 0, views * sizeof(weir_view) + attrs_bytes);
    weir_view *next = entry->views;
    entry->name = known ? known->name : call ? "a kernel" : "collective";
    entry->updates = known && known->updates;
    entry->call = call;
    entry->args = *args;
    entry->args.in = copy_views(entry, args->in, args->in_count, &next);
    entry->args.out = copy_views(entry, args->out, args->out_count, &next);
    entry->args.state = copy_views(entry, args->state, args->state_count, &next);
    if (attrs_bytes)
        entry->args.attrs = memcpy(next, args->attrs, attrs_bytes);
    if (args->workspace_bytes && !fake_space_at(args->workspace, args->workspace_bytes))
        fake_misuse(fake_the, "%s is given a workspace that is no device's", entry->name);
    entry->args.workspace = fake_reach(args->workspace);
    entry->args.error = entry->error;
    entry->args.error_bytes = sizeof entry->error;
    queue->launches++;
    entry->fault = fault_now(queue);
    for (uint32_t q = 0; q < fake_the->queue_count; q++)
        if (!fake_the->queues[q]->freed)
            entry->passed[q] = atomic_load_explicit(fake_the->queues[q]->done, memory_order_relaxed);
    return entry;
}

weir_status fake_leave_with_call(struct fake_queue *queue, struct fake_entry *entry, const weir_kernel_args *args)
{
    if (entry->fault != FAKE_LAUNCH_FAILS)
        return fake_leave(queue, entry);
    const char *name = entry->name;
    free(entry);
    fake_leave(queue, NULL);
    if (args->error_bytes)
        snprintf(args->error, args->error_bytes, "the fake device does not take %s", name);
    return error_set(WEIR_E_KERNEL, "the fake device does not take %s", name);
}

static weir_status fake_launch(struct device_queue *head, weir_kernel_fn call, const weir_kernel_args *args)
{
    struct fake_queue *queue = queue_of(head);
    weir_status status = fake_enter(queue);
    if (status)
        return status;
    fake_the->seen.launches++;
    if (is_too_many(queue))
        fake_misuse(fake_the, "queue %" PRIu32 " is given more than %" PRIu32 " kernels", queue->id, head->kernels_max);
    return fake_leave_with_call(queue, fake_copy_call(queue, call, args), args);
}

/* ---- open and close ---- */

static const struct device_ops fake_ops = {
    .name = "fake",
    .space_new = fake_space_new,
    .space_free = fake_space_free,
    .copy_in = fake_copy_in,
    .copy_out = fake_copy_out,
    .queue_open = fake_queue_open,
    .queue_new = fake_queue_new,
    .queue_free = fake_queue_free,
    .kernel = fake_kernel,
    .launch = fake_launch,
    .mark = fake_mark,
    .await = fake_await,
    .group_new = fake_group_new,
    .group_free = fake_group_free,
    .meet = fake_meet,
    .times = fake_times,
    .health = fake_health,
    .abort = fake_abort,
};

/* Kernels of the host's run beside the device, on its pinned memory. */
static weir_kernel_fn pinned_kernel(const weir_op *op)
{
    return op->kernel[WEIR_CPU];
}

static struct device_ops pinned_ops;

void fake_open(const fake_options *options)
{
    cr_assert_null(fake_the, "the fake device is open");
    fake_the = calloc(1, sizeof *fake_the);
    cr_assert_not_null(fake_the);
    fake_the->options = options ? *options : (fake_options){0};
    cr_assert_leq(fake_the->options.marks_max, FAKE_MARKS_MAX);
    fake_the->random = fake_the->options.seed;
    fake_the->held = fake_the->options.held;
    fake_the->races = fake_the->options.no_races ? NULL : races_new();
    fake_the->board = fake_the->options.board ? fake_the->options.board : fake_board_new();
    pthread_mutex_init(&fake_the->lock, NULL);
    pthread_condattr_t by_clock;
    pthread_condattr_init(&by_clock);
    pthread_condattr_setclock(&by_clock, CLOCK_MONOTONIC);
    pthread_cond_init(&fake_the->work, &by_clock);
    pthread_condattr_destroy(&by_clock);
    pthread_cond_init(&fake_the->rest, NULL);
    pinned_ops = device_cpu;
    pinned_ops.name = "pinned";
    pinned_ops.space_new = fake_pinned_new;
    pinned_ops.space_free = fake_space_free;
    pinned_ops.kernel = pinned_kernel;
    pinned_before = device_find(WEIR_PINNED);
    device_register(WEIR_FAKE, &fake_ops);
    device_register(WEIR_PINNED, &pinned_ops);
    cr_assert_eq(pthread_create(&fake_the->engine, NULL, fake_engine, fake_the), 0);
}

fake_seen fake_look(void)
{
    pthread_mutex_lock(&fake_the->lock);
    fake_seen seen = fake_the->seen;
    if (fake_the->races)
        snprintf(seen.race, sizeof seen.race, "%s", races_found(fake_the->races));
    pthread_mutex_unlock(&fake_the->lock);
    return seen;
}

static void set_held(bool held)
{
    pthread_mutex_lock(&fake_the->lock);
    fake_the->held = held;
    pthread_cond_signal(&fake_the->work);
    pthread_mutex_unlock(&fake_the->lock);
}

void fake_hold(void)
{
    set_held(true);
}

void fake_go(void)
{
    set_held(false);
}

/* Closes what a test left open. */
static void free_left(void)
{
    fake_free_groups(fake_the);
    for (uint32_t q = 0; q < fake_the->queue_count; q++) {
        struct fake_queue *queue = fake_the->queues[q];
        if (!queue->freed) {
            fake_misuse(fake_the, "queue %" PRIu32 " was left open", q);
            fake_drop_entries(queue);
            free(queue->done);
        }
        free(queue);
    }
    while (fake_the->spaces) {
        struct fake_space *space = fake_the->spaces;
        fake_misuse(fake_the, "a space of %" PRIu64 " bytes was left open", space->bytes);
        fake_the->spaces = space->next;
        device_cpu.space_free(space->at, space->bytes);
        free(space);
    }
}

fake_seen fake_close(void)
{
    pthread_mutex_lock(&fake_the->lock);
    fake_the->ending = true;
    pthread_cond_signal(&fake_the->work);
    pthread_mutex_unlock(&fake_the->lock);
    pthread_join(fake_the->engine, NULL);
    free_left();
    fake_seen seen = fake_look();
    device_register(WEIR_FAKE, NULL);
    device_register(WEIR_PINNED, pinned_before);
    races_free(fake_the->races);
    if (!fake_the->options.board)
        fake_board_free(fake_the->board);
    pthread_cond_destroy(&fake_the->rest);
    pthread_cond_destroy(&fake_the->work);
    pthread_mutex_destroy(&fake_the->lock);
    free(fake_the);
    fake_the = NULL;
    return seen;
}

void fake_close_well(void)
{
    fake_seen seen = fake_close();
    cr_expect_eq(seen.misuses, 0, "%s", seen.misuse);
    cr_expect_eq(seen.race[0], 0, "%s", seen.race);
}
