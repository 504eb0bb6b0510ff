/* regst/cuda/queue.c: streams as queues.
 *
 * A mark is an event and a word. The word, `done`, lies in pinned memory and is written by the stream itself (or copied,
 * where a driver does not know how to), behind all that was enqueued: the host sees by one load what has passed. The event
 * is what other streams wait for. Both have a ring of MARKS: that a mark has room means that the one before it in its place has
 * passed.
 *
 * An await by another thread must not take the event of a newer mark for that of its ticket, or it would wait for what may
 * wait for itself. So it looks at `done` under the lock under which the ring's next event is recorded: as long as
 * the ticket has not passed, its place is its own.
 *
 * Beside the word is what kernels refuse (weir_refusal), for all that are launched on the queue: one that writes there has
 * done so before the stream goes on.
 *
 * The clock that kernels read (args->clock) is a word of the device's. A launch whose firing, step or micro-batch is
 * another than the last one's is preceded by a kernel that sets it: it has the values as arguments, so nothing on the host has
 * to outlive the launch.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "graph/base/dtype.h"
#include "regst/cuda/driver.h"

enum { ABORT_MS = 10000, ABORT_LOOK_US = 50, ZERO_MS = 1 };

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

weir_status queue_open(uint32_t index)
{
    int card;
    return card_open(index, &card);
}

/* ---- life ---- */

/* Compute waits for what copies and collectives bring: these go first. */
static weir_status make_stream(struct queue *queue)
{
    int least = 0, greatest = 0;
    uint32_t index = queue->head.index;
    weir_status status = CALL(index, cudaDeviceGetStreamPriorityRange, &least, &greatest);
    if (status)
        return status;
    int priority = queue->head.kind == DEVICE_COMPUTE ? least : greatest;
    return CALL(index, cudaStreamCreateWithPriority, &queue->stream, cudaStreamNonBlocking, priority);
}

/* Whether the stream can write a word; else it is copied. */
static weir_status make_word(struct queue *queue)
{
    uint32_t index = queue->head.index;
    void *words = NULL, *tickets = NULL;
    weir_status status = CALL(index, cudaHostAlloc, &words, sizeof *queue->words, cudaHostAllocPortable);
    if (status)
        return status;
    queue->words = words;
    queue->words->refusal = (weir_refusal){.least = UINT64_MAX};
    queue->done = &queue->words->done;
    atomic_init(queue->done, 0);
    queue->head.done = queue->done;
    queue->head.refusal = &queue->words->refusal;
    if (the.write_value && !the.write_value(queue->stream, (CUdeviceptr)queue->done, 0, CU_STREAM_WRITE_VALUE_DEFAULT))
        return WEIR_OK;
    status = CALL(index, cudaHostAlloc, &tickets, MARKS * sizeof *queue->tickets, cudaHostAllocPortable);
    queue->tickets = tickets;
    return status ? status : CALL(index, cudaMalloc, &queue->ticket, sizeof *queue->tickets);
}

static weir_status make_clock(struct queue *queue)
{
    void *clock = NULL;
    weir_status status = CALL(queue->head.index, cudaMalloc, &clock, sizeof *queue->clock);
    queue->clock = clock;
    return status;
}

static weir_status make_events(struct queue *queue)
{
    weir_status status = WEIR_OK;
    for (int i = 0; !status && i < MARKS; i++)
        status = CALL(queue->head.index, cudaEventCreateWithFlags, &queue->ends[i], cudaEventDisableTiming);
    return status;
}

static void free_events(cudaEvent_t *events)
{
    for (int i = 0; i < MARKS; i++)
        if (events[i])
            cudaEventDestroy(events[i]);
}

/* With what was made; of cards that hang all is left to them. */
static void destroy(struct queue *queue)
{
    if (!cards_hang()) {
        free_events(queue->ends);
        free_events(queue->starts);
        if (queue->zero)
            cudaEventDestroy(queue->zero);
        if (queue->stream)
            cudaStreamDestroy(queue->stream);
        if (queue->clock)
            cudaFree(queue->clock);
        if (queue->ticket)
            cudaFree(queue->ticket);
        if (queue->tickets)
            cudaFreeHost(queue->tickets);
        if (queue->words)
            cudaFreeHost(queue->words);
    }
    pthread_mutex_destroy(&queue->lock);
    cudaGetLastError();
    free(queue);
}

weir_status queue_new(uint32_t index, enum device_queue_kind kind, struct device_queue **made)
{
    int card;
    weir_status status = card_open(index, &card);
    if (!status)
        status = card_load(index);
    struct queue *queue = status ? NULL : calloc(1, sizeof *queue);
    if (!queue)
        return status ? status : the.host->error_set(WEIR_E_MEMORY, "cuda:%u: no memory for a queue", index);
    pthread_mutex_init(&queue->lock, NULL);
    queue->head = (struct device_queue){.device = &cuda_ops, .index = index, .kind = kind, .marks_max = MARKS,
                                        .kernels_max = KERNELS};
    queue->card = card;
    queue->head.put = kind == DEVICE_COLLECTIVE ? &queue->put : NULL;
    queue->last = &queue->first;
    status = make_stream(queue);
    if (!status)
        status = make_word(queue);
    if (!status)
        status = make_clock(queue);
    if (!status)
        status = make_events(queue);
    if (!status) {
        queue->head.native = queue->stream;
        *made = &queue->head;
        return WEIR_OK;
    }
    destroy(queue);
    return status;
}

void queue_free(struct device_queue *head)
{
    struct queue *queue = queue_of(head);
    group_abort(queue);
    cudaSetDevice(queue->card);
    destroy(queue);
}

/* ---- times ---- */

/* The ring of events has no times until they are asked for. */
static weir_status make_timed(struct queue *queue)
{
    weir_status status = WEIR_OK;
    uint32_t index = queue->head.index;
    for (int i = 0; !status && i < MARKS; i++) {
        cudaEventDestroy(queue->ends[i]);
        queue->ends[i] = NULL;
        status = CALL(index, cudaEventCreateWithFlags, &queue->ends[i], cudaEventDefault);
        if (!status)
            status = CALL(index, cudaEventCreateWithFlags, &queue->starts[i], cudaEventDefault);
    }
    if (!status)
        status = CALL(index, cudaEventCreateWithFlags, &queue->zero, cudaEventDefault);
    if (!status)
        status = CALL(index, cudaEventRecord, queue->zero, queue->stream);
    if (!status)
        status = CALL(index, cudaStreamSynchronize, queue->stream);
    queue->zero_ns = now_ns();
    return status;
}

weir_status queue_put_start(struct queue *queue, uint64_t ticket)
{
    if (!queue->head.timed || queue->open)
        return WEIR_OK;
    weir_status status = queue->zero ? WEIR_OK : make_timed(queue);
    if (status)
        return status;
    queue->open = true;
    return CALL(queue->head.index, cudaEventRecord, queue->starts[ticket % MARKS], queue->stream);
}

/* A time is told as a float of milliseconds since an event, which after 1,000 s is off by 30 us. So the start of a ticket
 * becomes the zero of later ones when it is ZERO_MS behind the last; it changes places with that in the ring. */
static void move_zero(struct queue *queue, uint64_t ticket, int64_t start_ns)
{
    cudaEvent_t before = queue->zero;
    queue->zero = queue->starts[ticket % MARKS];
    queue->starts[ticket % MARKS] = before;
    queue->zero_ns = start_ns;
    queue->zero_ticket = ticket;
}

bool queue_times(struct device_queue *head, uint64_t ticket, int64_t *start_ns, int64_t *end_ns)
{
    struct queue *queue = queue_of(head);
    float start_ms = 0, length_ms = 0;
    if (!queue->zero || !queue_passed(queue, ticket))
        return false;
    card_set_own();
    const bool is_zero = ticket == queue->zero_ticket;
    cudaEvent_t start = is_zero ? queue->zero : queue->starts[ticket % MARKS], end = queue->ends[ticket % MARKS];
    bool known = !cudaEventElapsedTime(&start_ms, queue->zero, start) && !cudaEventElapsedTime(&length_ms, start, end);
    cudaGetLastError();
    if (!known)
        return false;
    *start_ns = queue->zero_ns + llround((double)start_ms * 1e6);
    *end_ns = *start_ns + llround((double)length_ms * 1e6);
    if (!is_zero && start_ms > ZERO_MS)
        move_zero(queue, ticket, *start_ns);
    return true;
}

/* ---- enqueueing ---- */

bool queue_passed(const struct queue *queue, uint64_t ticket)
{
    /* acquire: pairs with the device's order of writes */
    return atomic_load_explicit(queue->done, memory_order_acquire) >= ticket;
}

static weir_status check_open(const struct queue *queue)
{
    /* relaxed: it is a courtesy to who enqueues beside an abort */
    return atomic_load_explicit(&queue->aborted, memory_order_relaxed)
               ? the.host->error_set(WEIR_E_STATE, "cuda:%u: the queue was aborted", queue->head.index)
               : card_set(queue->head.index);
}

static bool same_time(const weir_clock *a, const weir_clock *b)
{
    return a->firing == b->firing && a->step == b->step && a->micro == b->micro;
}

static weir_status tell_clock(struct queue *queue, const weir_kernel_args *args)
{
    const weir_clock now = {.firing = args->firing, .step = args->step, .micro = args->micro};
    if (queue->begun && same_time(&now, &queue->told))
        return WEIR_OK;
    queue->told = now;
    queue->begun = true;
    return kernels_set_clock(args, queue->clock, now);
}

uint64_t view_bytes(const weir_view *view)
{
    uint64_t bytes = dtype_bytes(view->dtype);
    for (int d = 0; d < view->shape.rank; d++)
        bytes *= (uint64_t)view->shape.dim[d];
    return bytes;
}

static weir_status zero(const struct queue *queue, void *at, uint64_t bytes)
{
    return bytes ? CALL(queue->head.index, cudaMemset, at, 0, bytes) : WEIR_OK;
}

/* The bytes that a call wrote become zeros again. */
static weir_status clear(const struct queue *queue, const weir_kernel_args *args)
{
    uint32_t index = queue->head.index;
    weir_status status = CALL(index, cudaStreamSynchronize, queue->stream);
    if (!status)
        status = zero(queue, args->workspace, args->workspace_bytes);
    for (int i = 0; i < args->out_count && !status; i++)
        status = zero(queue, args->out[i].data, view_bytes(&args->out[i]));
    return status ? status : CALL(index, cudaStreamSynchronize, NULL);
}

static weir_kernel_args own_args(const struct queue *queue, const weir_kernel_args *args)
{
    weir_kernel_args own = *args;
    own.queue = queue->stream;
    own.clock = queue->clock;
    own.refusal = &queue->words->refusal;
    return own;
}

weir_status queue_prepare(struct device_queue *head, weir_kernel_fn call, const weir_kernel_args *args)
{
    struct queue *queue = queue_of(head);
    weir_kernel_args own = own_args(queue, args);
    weir_status status = card_set(head->index), called = status ? WEIR_OK : call(&own);
    if (!status && !called)
        status = clear(queue, args);
    if (status && args->error_bytes)
        snprintf(args->error, args->error_bytes, "%s", the.host->error());
    return status ? status : called;
}

/* Before a launch. */
static weir_status begin_launch(struct queue *queue, const weir_kernel_args *args)
{
    weir_status status = check_open(queue);
    if (!status)
        status = queue_put_start(queue, queue->head.marked + 1);
    if (status && args->error_bytes)
        snprintf(args->error, args->error_bytes, "%s", the.host->error());
    return status ? status : tell_clock(queue, args);
}

weir_status queue_launch(struct device_queue *head, weir_kernel_fn call, const weir_kernel_args *args)
{
    const weir_kernel_args own = own_args(queue_of(head), args);
    weir_status status = begin_launch(queue_of(head), &own);
    return status ? status : call(&own);
}

weir_status queue_launch_many(struct device_queue *head, weir_status (*call)(const weir_kernel_args *const *args, int count),
                              const weir_kernel_args *const *args, uint32_t count)
{
    weir_kernel_args own[DEVICE_JOINED_MAX];
    const weir_kernel_args *all[DEVICE_JOINED_MAX];
    for (uint32_t i = 0; i < count; i++) {
        own[i] = own_args(queue_of(head), args[i]);
        all[i] = &own[i];
    }
    weir_status status = begin_launch(queue_of(head), all[0]);
    return status ? status : call(all, (int)count);
}

/* ---- marks ---- */

static weir_status write_done(struct queue *queue, uint64_t ticket)
{
    uint32_t index = queue->head.index;
    void *done = (void *)queue->done;
    if (!queue->tickets) {
        CUresult result = the.write_value(queue->stream, (CUdeviceptr)done, ticket, CU_STREAM_WRITE_VALUE_DEFAULT);
        return failed(index, "cuStreamWriteValue64", (cudaError_t)result); /* errors of both interfaces have one list */
    }
    uint64_t *from = &queue->tickets[ticket % MARKS];
    *from = ticket;
    weir_status status = CALL(index, cudaMemcpyAsync, queue->ticket, from, sizeof *from, cudaMemcpyHostToDevice, queue->stream);
    return status ? status
                  : CALL(index, cudaMemcpyAsync, done, queue->ticket, sizeof *from, cudaMemcpyDeviceToHost, queue->stream);
}

weir_status queue_put_mark(struct queue *queue, uint64_t ticket)
{
    weir_status status = queue_put_start(queue, ticket);
    if (status)
        return status;
    pthread_mutex_lock(&queue->lock);
    status = CALL(queue->head.index, cudaEventRecord, queue->ends[ticket % MARKS], queue->stream);
    pthread_mutex_unlock(&queue->lock);
    queue->open = false;
    return status ? status : write_done(queue, ticket);
}

weir_status queue_mark(struct device_queue *head)
{
    struct queue *queue = queue_of(head);
    weir_status status = check_open(queue);
    if (!status)
        status = head->kind == DEVICE_COLLECTIVE ? group_mark(queue, head->marked + 1) : queue_put_mark(queue, head->marked + 1);
    if (!status)
        head->marked++;
    return status;
}

weir_status queue_put_await(struct queue *queue, struct queue *other, uint64_t ticket)
{
    weir_status status = WEIR_OK;
    pthread_mutex_lock(&other->lock);
    if (!queue_passed(other, ticket))
        status = CALL(queue->head.index, cudaStreamWaitEvent, queue->stream, other->ends[ticket % MARKS], 0);
    pthread_mutex_unlock(&other->lock);
    return status;
}

weir_status queue_await(struct device_queue *head, struct device_queue *other, uint64_t ticket)
{
    struct queue *queue = queue_of(head);
    weir_status status = check_open(queue);
    if (status)
        return status;
    return head->kind == DEVICE_COLLECTIVE ? group_await(queue, queue_of(other), ticket)
                                           : queue_put_await(queue, queue_of(other), ticket);
}

/* ---- health ---- */

/* The state of the stream, without a trace in the calling thread's last error. */
static cudaError_t look(const struct queue *queue)
{
    card_set_own();
    bool clean = cudaPeekAtLastError() == cudaSuccess;
    cudaError_t error = cudaStreamQuery(queue->stream);
    if (clean)
        cudaGetLastError();
    return error;
}

weir_status queue_health(struct device_queue *head, char *error, size_t error_bytes)
{
    struct queue *queue = queue_of(head);
    cudaError_t is = look(queue);
    if (is == cudaSuccess || is == cudaErrorNotReady)
        return head->kind == DEVICE_COLLECTIVE ? group_health(queue, error, error_bytes) : WEIR_OK;
    if (error_bytes)
        snprintf(error, error_bytes, "cuda:%u: %s (%s)", head->index, cudaGetErrorString(is), cudaGetErrorName(is));
    return WEIR_E_KERNEL;
}

/* A kernel cannot be ended. This waits for kernels under way for so long as is reasonable; then their memory is left to them.
 * Where one hangs already, others of the card may await it: they are not waited for. */
void queue_abort(struct device_queue *head)
{
    struct queue *queue = queue_of(head);
    int64_t until_ns = now_ns() + ABORT_MS * INT64_C(1000000);
    atomic_store_explicit(&queue->aborted, true, memory_order_relaxed);
    group_abort(queue);
    while (look(queue) == cudaErrorNotReady) {
        if (the.cards[queue->card].hung || now_ns() > until_ns) {
            the.cards[queue->card].hung = true;
            return;
        }
        nanosleep(&(struct timespec){.tv_nsec = ABORT_LOOK_US * 1000}, NULL);
    }
}
