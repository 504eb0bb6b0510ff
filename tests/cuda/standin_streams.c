/* tests/cuda/standin_streams.c: the stand-in's streams and events, and the engine that runs them. The engine is
 * there as long as there is a stream. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/cuda/emulated.h"
#include "tests/cuda/standin_inside.h"

enum { MEET_LOOK_NS = 20000 };

#define ENTER()                     \
    if (!standin_enter(__func__))   \
    return standin_leave(standin_error)

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static uint64_t draw(uint64_t limit)
{
    standin.random = standin.random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (standin.random >> 33) % limit;
}

/* ---- the engine ---- */

static bool can_run(const struct CUstream_st *stream)
{
    const struct run *first = stream->first;
    return first && (first->kind != RUN_WAIT || first->event->passed >= first->number);
}

/* A stream whose head can run, drawn among them; NULL: none. */
static struct CUstream_st *choose(void)
{
    uint64_t count = 0;
    for (struct CUstream_st *s = standin.streams; s; s = s->next)
        count += can_run(s);
    uint64_t chosen = count ? draw(count) : 0;
    for (struct CUstream_st *s = standin.streams; s && count; s = s->next)
        if (can_run(s) && !chosen--)
            return s;
    return NULL;
}

static void let_go(struct run *run)
{
    if (run->kind == RUN_WAIT)
        run->event->awaited--;
    if (run->kind == RUN_MEET)
        run->call(run->data);
    free(run);
}

/* Kernels that never ran: their arguments are theirs to free, so that they are kept for good. */
static struct run *dropped;

static void drop(struct run *run)
{
    if (run->kind != RUN_KERNEL) {
        let_go(run);
        return;
    }
    run->next = dropped;
    dropped = run;
}

/* Nothing of any stream runs any more. */
static void drop_all(void)
{
    for (struct CUstream_st *s = standin.streams; s; s = s->next)
        while (s->first && !s->running) {
            struct run *run = s->first;
            s->first = run->next;
            drop(run);
        }
    for (struct CUstream_st *s = standin.streams; s; s = s->next)
        if (!s->first)
            s->last = &s->first;
}

static void do_run(struct run *run)
{
    char error[STANDIN_TEXT] = "";
    switch (run->kind) {
    case RUN_KERNEL:
        run->call(run->data);
        if (emulate_fault(error, sizeof error))
            standin_fault(error);
        return;
    case RUN_COPY:
        if (run->bytes == 8 && (uintptr_t)run->to % 8 == 0 && (uintptr_t)run->from % 8 == 0)
            __atomic_store_n((uint64_t *)run->to, *(const uint64_t *)run->from, __ATOMIC_RELEASE); /* it may be a mark */
        else
            memcpy(run->to, run->from, run->bytes);
        return;
    case RUN_WRITE:
        /* release: what came before is visible to who sees the word */
        __atomic_store_n((uint64_t *)run->to, run->value, __ATOMIC_RELEASE);
        return;
    default:
        return;
    }
}

/* Whether it is over; else it waits for others. */
static bool meet(const struct run *run)
{
    bool over = run->step(run->data);
    if (!over)
        nanosleep(&(struct timespec){.tv_nsec = MEET_LOOK_NS}, NULL);
    return over;
}

static void take_head(struct CUstream_st *stream)
{
    struct run *run = stream->first;
    bool over = true;
    stream->running = true;
    pthread_mutex_unlock(&standin.lock);
    if (run->kind == RUN_MEET)
        over = meet(run);
    else
        do_run(run);
    pthread_mutex_lock(&standin.lock);
    stream->running = false;
    if (!over && !standin.sticky)
        return;
    if (run->kind == RUN_RECORD) {
        run->event->passed = run->number > run->event->passed ? run->number : run->event->passed;
        if (standin.is.record_ns)
            standin.seen.clock_ns += standin.is.record_ns + (int64_t)(standin.seen.calls * 7919 % 1009);
        run->event->passed_ns = standin.is.record_ns ? standin.seen.clock_ns : now_ns();
    }
    stream->first = run->next;
    if (!stream->first)
        stream->last = &stream->first;
    let_go(run);
    if (++standin.seen.runs == standin.is.fail_run)
        standin.sticky = standin.is.fail_run_with ? (cudaError_t)standin.is.fail_run_with : cudaErrorIllegalAddress;
    if (standin.sticky)
        drop_all();
    pthread_cond_broadcast(&standin.rest);
}

static void *engine(void *nothing)
{
    pthread_mutex_lock(&standin.lock);
    emulate_seed(standin.random);
    while (!standin.ends) {
        struct CUstream_st *stream = choose();
        if (stream)
            take_head(stream);
        else
            pthread_cond_wait(&standin.work, &standin.lock);
    }
    pthread_mutex_unlock(&standin.lock);
    return nothing;
}

void standin_fault(const char *why)
{
    (void)why;
    pthread_mutex_lock(&standin.lock);
    standin.sticky = cudaErrorLaunchFailure;
    pthread_mutex_unlock(&standin.lock);
}

static struct run *copy_of(struct run run)
{
    struct run *made = malloc(sizeof *made);
    if (!made)
        abort();
    *made = run;
    made->next = NULL;
    return made;
}

void standin_enqueue(struct CUstream_st *stream, struct run run)
{
    struct run *made = copy_of(run);
    *stream->last = made;
    stream->last = &made->next;
    pthread_cond_signal(&standin.work);
}

static bool rests(const struct CUstream_st *stream)
{
    if (stream)
        return !stream->first;
    for (struct CUstream_st *s = standin.streams; s; s = s->next)
        if (s->first)
            return false;
    return true;
}

void standin_rest(struct CUstream_st *stream)
{
    while (!rests(stream))
        pthread_cond_wait(&standin.rest, &standin.lock);
}

/* ---- streams ---- */

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *made, unsigned flags, int priority)
{
    ENTER();
    struct CUstream_st *stream = calloc(1, sizeof *stream);
    if (!stream || flags != cudaStreamNonBlocking || priority > 0 || priority < -5) {
        free(stream);
        return standin_leave(cudaErrorInvalidValue);
    }
    stream->card = standin_card;
    stream->last = &stream->first;
    stream->next = standin.streams;
    standin.streams = stream;
    standin.seen.streams++;
    if (!standin.works) {
        standin.ends = false;
        standin.works = !pthread_create(&standin.engine, NULL, engine, NULL);
    }
    *made = stream;
    return standin_leave(cudaSuccess);
}

/* Enqueued work is done first. */
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    standin_enter(__func__);
    cudaError_t error = standin_error;
    standin_rest(stream);
    struct CUstream_st **link = &standin.streams;
    while (*link != stream)
        link = &(*link)->next;
    *link = stream->next;
    free(stream);
    standin.seen.streams--;
    bool end = standin.works && !standin.streams;
    if (end) {
        standin.works = false;
        standin.ends = true;
        pthread_cond_signal(&standin.work);
        pthread_mutex_unlock(&standin.lock);
        pthread_join(standin.engine, NULL);
        pthread_mutex_lock(&standin.lock);
    }
    return standin_leave(error);
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    ENTER();
    return standin_leave(stream->first ? cudaErrorNotReady : cudaSuccess);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    ENTER();
    if (stream)
        standin_rest(stream);
    return standin_leave(standin.sticky);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    ENTER();
    (void)flags;
    standin.seen.waits++;
    if (event->passed < event->recorded) {
        event->awaited++;
        standin_enqueue(stream, (struct run){.kind = RUN_WAIT, .event = event, .number = event->recorded});
    }
    return standin_leave(cudaSuccess);
}

/* ---- events ---- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *made, unsigned flags)
{
    ENTER();
    struct CUevent_st *event = calloc(1, sizeof *event);
    if (!event)
        return standin_leave(cudaErrorMemoryAllocation);
    event->timed = !(flags & cudaEventDisableTiming);
    standin.seen.events++;
    *made = event;
    return standin_leave(cudaSuccess);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    standin_enter(__func__);
    cudaError_t error = standin_error;
    if (event->awaited)
        standin_misuse("an event is destroyed that a stream is to wait for");
    standin_rest(NULL); /* records may be on their way */
    free(event);
    standin.seen.events--;
    return standin_leave(error);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    ENTER();
    event->recorded++;
    standin_enqueue(stream, (struct run){.kind = RUN_RECORD, .event = event, .number = event->recorded});
    return standin_leave(cudaSuccess);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    ENTER();
    if (!start->timed || !end->timed || !start->recorded || !end->recorded)
        return standin_leave(cudaErrorInvalidValue);
    if (start->passed < start->recorded || end->passed < end->recorded)
        return standin_leave(cudaErrorNotReady);
    *ms = (float)((double)(end->passed_ns - start->passed_ns) / 1e6);
    return standin_leave(cudaSuccess);
}

/* ---- what streams do ---- */

static cudaError_t copy(void *to, const void *from, size_t bytes, cudaStream_t stream)
{
    if (!standin_owns(to, bytes) || !standin_owns(from, bytes))
        standin_misuse("what is copied is not all of one space");
    standin.seen.copies++;
    standin_enqueue(stream, (struct run){.kind = RUN_COPY, .to = to, .from = from, .bytes = bytes});
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    ENTER();
    (void)kind;
    return standin_leave(copy(to, from, bytes, stream));
}

cudaError_t cudaMemcpyPeerAsync(void *to, int to_card, const void *from, int from_card, size_t bytes, cudaStream_t stream)
{
    ENTER();
    return standin_leave(to_card == from_card ? cudaErrorInvalidDevice : copy(to, from, bytes, stream));
}

static CUresult write_value(CUstream stream, CUdeviceptr to, cuuint64_t value, unsigned flags)
{
    bool goes_on = standin_enter("cuStreamWriteValue64") && flags == CU_STREAM_WRITE_VALUE_DEFAULT;
    stream->marked |= value > 0;
    if (goes_on)
        standin_enqueue(stream, (struct run){.kind = RUN_WRITE, .to = (void *)to, .value = value});
    pthread_mutex_unlock(&standin.lock);
    return goes_on ? CUDA_SUCCESS : standin_error ? (CUresult)standin_error : CUDA_ERROR_INVALID_VALUE;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version, unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *found)
{
    ENTER();
    (void)version, (void)flags;
    bool there = !strcmp(name, "cuStreamWriteValue64") && !standin.is.no_write_value;
    CUresult (*call)(CUstream, CUdeviceptr, cuuint64_t, unsigned) = there ? write_value : NULL;
    *function = *(void **)&call;
    *found = there ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return standin_leave(cudaSuccess);
}

bool standin_no_blas(const char *call)
{
    const char *lacks = standin.is.no_blas;
    return lacks && !strcmp(lacks, call ? call : "");
}

/* ---- kernels that are loaded, by card ---- */

enum { LOADED = 1 << 14 };

static struct {
    const void *kernel;
    int card;
} loaded[LOADED];

/* Its place, or the one that it may have. */
static size_t place_of(const void *kernel, int card)
{
    size_t at = ((uintptr_t)kernel / 16 * 31 + (size_t)card) % LOADED;
    while (loaded[at].kernel && (loaded[at].kernel != kernel || loaded[at].card != card))
        at = (at + 1) % LOADED;
    return at;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *kernel)
{
    ENTER();
    size_t at = place_of(kernel, standin_card);
    if (!loaded[at].kernel && ++standin.seen.loaded == LOADED)
        abort();
    loaded[at].kernel = kernel;
    loaded[at].card = standin_card;
    *attributes = (struct cudaFuncAttributes){.maxThreadsPerBlock = 1024};
    return standin_leave(cudaSuccess);
}

void standin_uses(void *stream, const void *kernel, const char *name)
{
    if (!stream)
        return;
    pthread_mutex_lock(&standin.lock);
    if (!loaded[place_of(kernel, ((struct CUstream_st *)stream)->card)].kernel) {
        char text[STANDIN_TEXT];
        snprintf(text, sizeof text, "%.100s is launched, and was not loaded on its card before", name);
        standin_misuse(text);
    }
    pthread_mutex_unlock(&standin.lock);
}

void standin_launch(void *stream, void (*call)(void *), void *data)
{
    if (!stream) {
        call(data);
        return;
    }
    standin_enter("a launch");
    struct CUstream_st *on = stream;
    if (on->card != standin_card)
        standin_misuse("a kernel is launched on a stream of a card that is not the thread's");
    standin.seen.kernels++;
    struct run run = {.kind = RUN_KERNEL, .call = call, .data = data};
    if (standin_error)
        drop(copy_of(run));
    else
        standin_enqueue(on, run);
    if (standin_error)
        standin_last = standin_error;
    pthread_mutex_unlock(&standin.lock);
}

bool standin_refused(char *error, size_t error_bytes)
{
    cudaError_t is = cudaGetLastError();
    if (is && error_bytes)
        snprintf(error, error_bytes, "the device takes no kernel: %s", cudaGetErrorString(is));
    return is != cudaSuccess;
}

void standin_call(void *stream, void (*call)(void *), void *data)
{
    standin_launch(stream, call, data);
}
