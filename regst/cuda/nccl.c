/* regst/cuda/nccl.c: groups with members in several processes, by NCCL. The library is found when the first one is
 * made, and calls for its header alone when it is compiled: who has no such group needs none.
 *
 * Communicators are non-blocking: whatever is called returns at once, and the communicator says by and by that it is
 * done, or what is wrong; so a process that never comes does not hang the others, who ask as long as the session has
 * patience. When a group is joined, each of its meetings is rehearsed once, with the memory that it will have: the library
 * connects devices for an algorithm when it is first used, and chooses that by kind and size. The launch
 * itself happens on a thread of NCCL's, and nothing may be enqueued behind it before that thread is done. That takes
 * some microseconds, which are waited for; but where switches add (NVLS) it waits for the processes of the host. So what
 * takes longer is looked at again when the queue is used, or asked how it is, and till then all behind it is held back.
 *
 * A meeting is one group of calls for all members of this process. Moves between two members are matched in the order
 * in which both list them, as NCCL does. Gathers are calls of their own, which between hosts take a ring: a part crosses
 * the network once for all devices of a host, and not once for each.
 *
 * Calls that end communicators wait for the library's own threads, which may wait for processes of this host that are
 * gone. They are made on a thread, for all communicators together, and waited for so long as is reasonable.
 */
#include "regst/cuda/group.h"

#include <dlfcn.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "graph/base/library.h"

#if !__has_include(<nccl.h>)

weir_status nccl_key(uint32_t index, unsigned char key[DEVICE_KEY_BYTES])
{
    (void)key;
    return the.host->error_set(WEIR_E_UNSUPPORTED,
                               "cuda:%u works with devices of other processes, which needs NCCL: this build of weir "
                               "was made without its header, nccl.h",
                               index);
}
weir_status nccl_join(struct hall *hall, const unsigned char key[DEVICE_KEY_BYTES], bool *whole)
{
    (void)hall, (void)key;
    *whole = false;
    return the.host->error_set(WEIR_E_UNSUPPORTED, "this build of weir was made without NCCL");
}
weir_status nccl_meet(const struct hall *hall)
{
    (void)hall;
    return the.host->error_set(WEIR_E_UNSUPPORTED, "this build of weir was made without NCCL");
}
weir_status nccl_launched(const struct hall *hall, bool *over)
{
    (void)hall;
    *over = true;
    return WEIR_OK;
}
weir_status nccl_health(const struct group *group, char *error, size_t error_bytes)
{
    (void)group, (void)error, (void)error_bytes;
    return WEIR_OK;
}
void nccl_abort(struct queue *queue)
{
    (void)queue;
}
void nccl_leave(struct hall *hall)
{
    (void)hall;
}

#else
#include <nccl.h>

enum { SPIN_MS = 2, LEAVE_MS = 5000, LOOK_NS = 100000 };
enum { LIBRARY_LEAST = 21800 }; /* 2.18: what is called has behaved so since */

#define NCCL_CALLS(X)                                                                                    \
    X(GetVersion) X(GetUniqueId) X(CommInitRankConfig) X(CommGetAsyncError) X(CommFinalize) X(CommDestroy) \
    X(CommAbort) X(GetErrorString) X(GetLastError) X(GroupStart) X(GroupEnd) X(Send) X(Recv) X(AllReduce)  \
    X(ReduceScatter) X(AllGather)

static struct {
#define X(name) __typeof__(&nccl##name) name;
    NCCL_CALLS(X)
#undef X
} nccl;
static char trouble[256]; /* "": none */
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* ---- the library ---- */

void *nccl_open(char *why, size_t bytes);
void *nccl_call(void *library, const char *name);

/* The two are weak: where a stand-in is linked, they are its own. */
__attribute__((weak)) void *nccl_open(char *why, size_t bytes)
{
    return library_open("libnccl.so.2", why, bytes);
}

__attribute__((weak)) void *nccl_call(void *library, const char *name)
{
    return dlsym(library, name);
}

static void find(void *library, const char *name, void *call)
{
    *(void **)call = nccl_call(library, name);
    if (!*(void **)call && !*trouble)
        snprintf(trouble, sizeof trouble, "the library has no %s", name);
}

static void fill(void)
{
    int version = 0;
    void *library = nccl_open(trouble, sizeof trouble);
    if (!library)
        return;
#define X(name) find(library, "nccl" #name, &nccl.name);
    NCCL_CALLS(X)
#undef X
    if (!*trouble && (nccl.GetVersion(&version) || version < LIBRARY_LEAST))
        snprintf(trouble, sizeof trouble, "the library is version %d.%d, and 2.18 is needed", version / 10000,
                 version / 100 % 100);
}

static weir_status not_there(uint32_t index)
{
    return the.host->error_set(WEIR_E_UNSUPPORTED,
                               "cuda:%u works with devices of other processes, which needs NCCL: %.200s", index,
                               trouble);
}

/* ---- errors ---- */

/* "cuda:1: group 3: ncclSend: remote process exited"; under way is well. */
static weir_status wrong(const struct group *group, const char *what, ncclResult_t result)
{
    if (result == ncclSuccess || result == ncclInProgress)
        return WEIR_OK;
    const char *more = nccl.GetLastError(group->comm);
    return the.host->error_set(WEIR_E_KERNEL, "cuda:%u: group %u: %s: %s%s%.120s", group->queue->head.index,
                               group->hall->id.number, what, nccl.GetErrorString(result), more && *more ? ": " : "",
                               more ? more : "");
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

/* The first member here. */
static const struct group *first_of(const struct hall *hall)
{
    for (uint32_t m = 0; m < hall->count; m++)
        if (hall->member[m])
            return hall->member[m];
    return NULL;
}

/* Whether some communicator is still at what was asked of it. */
static weir_status look(const struct hall *hall, const char *what, bool *busy)
{
    weir_status status = WEIR_OK;
    *busy = false;
    for (uint32_t m = 0; !status && m < hall->count; m++) {
        const struct group *group = hall->member[m];
        ncclResult_t is = ncclSuccess;
        if (!group)
            continue;
        if (!group->comm)
            return the.host->error_set(WEIR_E_STATE, "cuda:%u: the queue was aborted", group->queue->head.index);
        status = wrong(group, "ncclCommGetAsyncError", nccl.CommGetAsyncError(group->comm, &is));
        if (!status)
            status = wrong(group, what, is);
        *busy |= is == ncclInProgress;
    }
    return status;
}

static bool aborted(const struct hall *hall)
{
    for (uint32_t m = 0; m < hall->count; m++)
        /* relaxed: it is only to be seen some time */
        if (hall->member[m] && atomic_load_explicit(&hall->member[m]->queue->aborted, memory_order_relaxed))
            return true;
    return false;
}

weir_status nccl_launched(const struct hall *hall, bool *over)
{
    int64_t until = now_ms() + SPIN_MS;
    bool busy = false;
    weir_status status = look(hall, "a collective", &busy);
    while (!status && busy && !hall->launching && !aborted(hall) && now_ms() < until) {
        sched_yield();
        status = look(hall, "a collective", &busy);
    }
    *over = !busy;
    return status;
}

/* ---- what a meeting is ---- */

static weir_status copy_own(const struct queue *queue, const struct part *to, const struct part *from)
{
    if (!from || from->bytes != to->bytes)
        return the.host->error_set(WEIR_E_KERNEL, "cuda:%u: a member does not give itself what it takes",
                                   queue->head.index);
    if (!to->bytes || to->at == from->at)
        return WEIR_OK;
    return CALL(queue->head.index, cudaMemcpyAsync, to->at, from->at, to->bytes, cudaMemcpyDeviceToDevice,
                queue->stream);
}

/* Moves what the member moves to itself; before the group of calls. */
static weir_status move_own(const struct group *group, const struct deferred *at)
{
    const struct device_meeting *meeting = &at->meeting;
    weir_status status = WEIR_OK;
    uint32_t given = 0;
    for (uint32_t i = 0; !status && i < meeting->take_count; i++) {
        if (meeting->takes[i].peer != group->head.self)
            continue;
        while (given < meeting->give_count && meeting->gives[given].peer != group->head.self)
            given++;
        const struct part *from = given < meeting->give_count ? &at->parts[meeting->gives[given++].view] : NULL;
        status = copy_own(group->queue, &at->parts[at->in_count + (int)meeting->takes[i].view], from);
    }
    return status;
}

static weir_status call_moves(const struct group *group, const struct deferred *at)
{
    const struct device_meeting *meeting = &at->meeting;
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; !status && i < meeting->give_count; i++) {
        const struct part *part = &at->parts[meeting->gives[i].view];
        if (meeting->gives[i].peer != group->head.self && part->bytes)
            status = wrong(group, "ncclSend", nccl.Send(part->at, part->bytes, ncclUint8, (int)meeting->gives[i].peer,
                                                        group->comm, group->queue->stream));
    }
    for (uint32_t i = 0; !status && i < meeting->take_count; i++) {
        const struct part *part = &at->parts[at->in_count + (int)meeting->takes[i].view];
        if (meeting->takes[i].peer != group->head.self && part->bytes)
            status = wrong(group, "ncclRecv", nccl.Recv(part->at, part->bytes, ncclUint8, (int)meeting->takes[i].peer,
                                                        group->comm, group->queue->stream));
    }
    return status;
}

static weir_status call_sums(const struct group *group, const struct deferred *at)
{
    weir_status status = WEIR_OK;
    ncclDataType_t type = at->dtype == WEIR_F32 ? ncclFloat32 : at->dtype == WEIR_F16 ? ncclFloat16 : ncclBfloat16;
    size_t item = at->dtype == WEIR_F32 ? 4 : 2;
    for (int i = 0; !status && i < at->in_count; i++) {
        const struct part *from = &at->parts[i], *to = &at->parts[at->in_count + i];
        size_t count = to->bytes / item;
        if (!count)
            continue;
        status = at->meeting.kind == DEVICE_ALL_REDUCE
                     ? wrong(group, "ncclAllReduce", nccl.AllReduce(from->at, to->at, count, type, ncclSum, group->comm,
                                                                    group->queue->stream))
                     : wrong(group, "ncclReduceScatter", nccl.ReduceScatter(from->at, to->at, count, type, ncclSum,
                                                                            group->comm, group->queue->stream));
    }
    return status;
}

static weir_status call_gathers(const struct group *group, const struct deferred *at)
{
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; !status && i < at->meeting.gather_count; i++) {
        const struct device_gather *gather = &at->meeting.gathers[i];
        const struct part *from = &at->parts[gather->give], *to = &at->parts[at->in_count + (int)gather->take];
        status = wrong(group, "ncclAllGather", nccl.AllGather(from->at, to->at, from->bytes, ncclUint8, group->comm,
                                                              group->queue->stream));
    }
    return status;
}

static weir_status call_meeting(const struct group *group, const struct deferred *at)
{
    if (at->meeting.kind != DEVICE_MOVES)
        return call_sums(group, at);
    weir_status status = call_gathers(group, at);
    return status ? status : call_moves(group, at);
}

static weir_status begin_own(const struct group *group)
{
    struct queue *queue = group->queue;
    weir_status status = card_set(queue->head.index);
    if (!status)
        status = queue_put_start(queue, queue->first->ticket);
    return status || queue->first->meeting.kind != DEVICE_MOVES ? status : move_own(group, queue->first);
}

/* Ends the group of calls in any case, or this thread's next one would be a part of it. */
static weir_status end_calls(const struct hall *hall, weir_status status)
{
    ncclResult_t ended = nccl.GroupEnd();
    return status ? status : wrong(first_of(hall), "ncclGroupEnd", ended);
}

weir_status nccl_meet(const struct hall *hall)
{
    weir_status status = WEIR_OK;
    bool busy;
    if (hall->stage != HALL_WHOLE)
        return the.host->error_set(WEIR_E_STATE, "cuda:%u: group %u was not joined", first_of(hall)->queue->head.index,
                                   hall->id.number);
    for (uint32_t m = 0; !status && m < hall->count; m++)
        if (hall->member[m])
            status = begin_own(hall->member[m]);
    if (!status)
        status = look(hall, "an earlier call", &busy);
    if (!status)
        status = wrong(first_of(hall), "ncclGroupStart", nccl.GroupStart());
    if (status)
        return status;
    for (uint32_t m = 0; !status && m < hall->count; m++)
        status = hall->member[m] ? call_meeting(hall->member[m], hall->member[m]->queue->first) : WEIR_OK;
    return end_calls(hall, status);
}

/* ---- joining ---- */

weir_status nccl_key(uint32_t index, unsigned char key[DEVICE_KEY_BYTES])
{
    ncclUniqueId id;
    _Static_assert(sizeof id == DEVICE_KEY_BYTES, "a key holds NCCL's id");
    pthread_once(&once, fill);
    if (*trouble)
        return not_there(index);
    weir_status status = card_set(index);
    ncclResult_t result = status ? ncclSuccess : nccl.GetUniqueId(&id);
    if (result)
        status = the.host->error_set(WEIR_E_KERNEL, "cuda:%u: ncclGetUniqueId: %s", index, nccl.GetErrorString(result));
    if (!status)
        memcpy(key, &id, sizeof id);
    return status;
}

static weir_status make(struct hall *hall, const ncclUniqueId *id)
{
    weir_status status = wrong(first_of(hall), "ncclGroupStart", nccl.GroupStart());
    if (status)
        return status;
    for (uint32_t m = 0; !status && m < hall->count; m++) {
        struct group *group = hall->member[m];
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        status = group ? CALL(group->queue->head.index, cudaSetDevice, group->queue->card) : WEIR_OK;
        if (group && !status)
            status = wrong(group, "ncclCommInitRankConfig",
                           nccl.CommInitRankConfig(&group->comm, (int)hall->count, *id, (int)m, &config));
    }
    return end_calls(hall, status);
}

static weir_status rehearse_one(const struct group *group, uint32_t number)
{
    const struct device_rehearsal *rehearsal = &group->head.rehearsals[number];
    struct deferred *at = group_part(rehearsal->meeting, rehearsal->args);
    weir_status status = at ? card_set(group->queue->head.index)
                            : the.host->error_set(WEIR_E_MEMORY, "cuda:%u: no memory for a collective",
                                                  group->queue->head.index);
    if (!status)
        status = call_meeting(group, at);
    free(at);
    return status;
}

/* The next meeting. */
static weir_status rehearse(struct hall *hall)
{
    uint32_t number = hall->rehearsed++;
    weir_status status = wrong(first_of(hall), "ncclGroupStart", nccl.GroupStart());
    if (status)
        return status;
    for (uint32_t m = 0; !status && m < hall->count; m++)
        status = hall->member[m] ? rehearse_one(hall->member[m], number) : WEIR_OK;
    return end_calls(hall, status);
}

/* Whether it has run on all devices here. */
static weir_status rehearsed(struct hall *hall, bool *over)
{
    for (uint32_t m = 0; m < hall->count; m++) {
        const struct group *group = hall->member[m];
        if (!group)
            continue;
        cudaError_t is = cudaStreamQuery(group->queue->stream);
        *over = is == cudaSuccess;
        if (is == cudaErrorNotReady)
            cudaGetLastError();
        else if (is)
            return failed(group->queue->head.index, "cudaStreamQuery", is);
        if (!*over)
            return WEIR_OK;
    }
    return WEIR_OK;
}

weir_status nccl_join(struct hall *hall, const unsigned char key[DEVICE_KEY_BYTES], bool *whole)
{
    ncclUniqueId id;
    bool busy = false;
    weir_status status = WEIR_OK;
    memcpy(&id, key, sizeof id);
    pthread_once(&once, fill);
    *whole = hall->stage == HALL_WHOLE;
    if (*whole)
        return WEIR_OK;
    if (*trouble)
        return not_there(first_of(hall)->queue->head.index);
    if (hall->stage == HALL_NEW) {
        hall->stage = HALL_MADE;
        return make(hall, &id);
    }
    status = look(hall, hall->stage == HALL_MADE ? "ncclCommInitRankConfig" : "a collective", &busy);
    if (status || busy)
        return status;
    hall->stage = HALL_REHEARSES;
    if (hall->rehearsed < first_of(hall)->head.rehearsal_count)
        return rehearse(hall);
    status = rehearsed(hall, whole);
    if (!status && *whole)
        hall->stage = HALL_WHOLE;
    return status;
}

/* ---- health and end ---- */

weir_status nccl_health(const struct group *group, char *error, size_t error_bytes)
{
    ncclResult_t is = ncclSuccess;
    if (!group->comm || group->hall->stage != HALL_WHOLE)
        return WEIR_OK;
    ncclResult_t asked = nccl.CommGetAsyncError(group->comm, &is);
    is = asked ? asked : is;
    if (is == ncclSuccess || is == ncclInProgress)
        return WEIR_OK;
    const char *more = nccl.GetLastError(group->comm);
    if (error_bytes)
        snprintf(error, error_bytes, "cuda:%u: group %u: NCCL: %s%s%.120s", group->queue->head.index,
                 group->hall->id.number, nccl.GetErrorString(is), more && *more ? ": " : "", more ? more : "");
    return WEIR_E_KERNEL;
}

/* Communicators that a thread ends, whoever still waits for it: they are no group's any more. */
struct ending {
    _Atomic int state;
    bool well; /* nothing is under way */
    uint32_t count;
    ncclComm_t comm[]; /* owned */
};

enum ending_state { ENDING_RUNS, ENDING_OVER, ENDING_LEFT };

static void ending_add(struct ending *ending, struct group *group)
{
    if (ending && group->comm)
        ending->comm[ending->count++] = group->comm;
    group->comm = NULL;
}

static struct ending *ending_new(uint32_t count, bool well)
{
    struct ending *ending = calloc(1, sizeof *ending + count * sizeof(ncclComm_t));
    if (ending)
        ending->well = well;
    return ending;
}

/* Together, as each may wait for others of this process. */
static void *ending_run(void *data)
{
    struct ending *ending = data;
    card_set_own();
    bool grouped = nccl.GroupStart() == ncclSuccess;
    for (uint32_t i = 0; i < ending->count; i++)
        (ending->well ? nccl.CommDestroy : nccl.CommAbort)(ending->comm[i]);
    if (grouped)
        nccl.GroupEnd();
    if (atomic_exchange(&ending->state, ENDING_OVER) == ENDING_LEFT)
        free(ending);
    return NULL;
}

/* A program's signals are not for it, but those of its own making. */
static bool ending_start(struct ending *ending, pthread_t *thread)
{
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGPROF};
    sigset_t blocked, before;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        sigdelset(&blocked, own[i]);
    pthread_sigmask(SIG_BLOCK, &blocked, &before);
    bool started = !pthread_create(thread, NULL, ending_run, ending);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

/* False: it has not ended, and goes on by itself. Without memory, or a thread, nothing is ended. */
static bool ending_wait(struct ending *ending)
{
    int64_t until = now_ms() + LEAVE_MS;
    int runs = ENDING_RUNS;
    pthread_t thread;
    if (!ending || !ending->count || !ending_start(ending, &thread)) {
        bool none = ending && !ending->count;
        free(ending);
        return none;
    }
    while (atomic_load(&ending->state) == ENDING_RUNS && now_ms() < until)
        group_pause(LOOK_NS);
    if (atomic_compare_exchange_strong(&ending->state, &runs, ENDING_LEFT)) {
        pthread_detach(thread);
        return false;
    }
    pthread_join(thread, NULL);
    free(ending);
    return true;
}

void nccl_abort(struct queue *queue)
{
    struct group *group = NULL;
    uint32_t count = 0;
    while ((group = group_next(queue, group)) != NULL)
        count += group->comm != NULL;
    struct ending *ending = count ? ending_new(count, false) : NULL;
    while (count && (group = group_next(queue, group)) != NULL)
        ending_add(ending, group);
    if (count && !ending_wait(ending))
        the.cards[queue->card].hung = true;
}

/* Whether all members here have ended what they were at, so that nothing of theirs is needed elsewhere. */
static bool finalized(const struct hall *hall)
{
    int64_t until = now_ms() + LEAVE_MS;
    bool busy = true, well = true;
    for (uint32_t m = 0; well && m < hall->count; m++)
        if (hall->member[m] && hall->member[m]->comm)
            well = !wrong(hall->member[m], "ncclCommFinalize", nccl.CommFinalize(hall->member[m]->comm));
    while (well && busy && now_ms() < until) {
        well = !look(hall, "ncclCommFinalize", &busy);
        if (well && busy)
            group_pause(LOOK_NS);
    }
    return well && !busy;
}

void nccl_leave(struct hall *hall)
{
    bool there = false;
    for (uint32_t m = 0; m < hall->count; m++)
        there |= hall->member[m] && hall->member[m]->comm;
    bool well = there && hall->stage == HALL_WHOLE && !aborted(hall) && finalized(hall);
    struct ending *ending = there ? ending_new(hall->here, well) : NULL;
    for (uint32_t m = 0; there && m < hall->count; m++)
        if (hall->member[m])
            ending_add(ending, hall->member[m]);
    bool ended = !there || ending_wait(ending);
    for (uint32_t m = 0; !ended && m < hall->count; m++)
        if (hall->member[m])
            the.cards[hall->member[m]->queue->card].hung = true;
}
#endif
