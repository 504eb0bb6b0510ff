/* tests/cuda/standin_nccl.c: a stand-in for the calls of NCCL that regst/cuda/nccl.c makes, between threads and
 * processes of one machine. Communicators are non-blocking, as they are asked to be.
 *
 * The members of a communicator have a board, a file in shared memory whose name the unique id is: for each pair a
 * channel of one chunk, and counts of who has come and who has finalized. A group of calls becomes, for each member,
 * one thing at the head of its stream, which stands there until all its sends were taken and all its receives have
 * come: so streams whose heads do not meet stand still for good, as real ones do.
 *
 * A call is enqueued only when the communicator was asked some times whether it is done: a caller that enqueues behind
 * it too early gets the wrong order. Calls before the stream's first mark are the rehearsal. Devices connect when a
 * kind of collective of a size, or a pair, is first used, and so wait for each other: later on that is misuse. A member
 * that goes is not noticed. Sums are made in the order of the members.
 */
#if __has_include(<nccl.h>)
#include <fcntl.h>
#include <nccl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "tests/cuda/standin_inside.h"

enum { CHUNK = 1 << 14, BUSY_MOST = 4, USED_MOST = 256 };
enum kind { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER };

struct channel {
    _Atomic uint64_t put, got; /* chunks */
    uint64_t bytes;            /* of the message that the chunk is of */
    unsigned char data[CHUNK];
};

struct board {
    _Atomic uint32_t joined, finalized;
    _Atomic int card[STANDIN_CARDS]; /* 1 + that of each member */
    struct channel channel[];  /* [from * count + to] */
};

struct ncclComm {
    struct ncclComm *next;     /* that the group of calls is about */
    struct board *board;
    size_t board_bytes;
    char path[64];
    int count, place, card;
    int busy;                  /* so often it is to be asked still, */
    int64_t until_ms;          /* and until then */
    uint32_t ops;              /* enqueued, and not over */
    struct used {              /* that were rehearsed */
        enum kind kind;
        size_t bytes;
    } used[USED_MOST];
    uint32_t used_count;
    bool *met;                 /* owned: and these members */
    bool joins, finalizes, gone;
    bool told;                 /* what it is at, and it was this: */
    ncclResult_t said;
    _Atomic bool aborted;
    struct op *pending;        /* called, and not enqueued */
};

struct flow {
    struct flow *next;
    struct channel *channel;
    unsigned char *at;
    uint64_t bytes, passed;
    bool gives;
};

struct sum {
    struct sum *next;
    unsigned char *terms;      /* owned: one after the other, by member; this one's is not there. NULL: `own` is copied */
    const unsigned char *own;
    void *to;
    size_t count;
    ncclDataType_t type;
};

struct op {
    struct ncclComm *comm;
    struct CUstream_st *stream;
    struct flow *flows, **last;
    struct sum *sums;
};

static char said_last[120]; /* what is wrong; "": nothing more is known */
static _Thread_local int depth;
static _Thread_local struct ncclComm *called;

/* ---- a call ---- */

static bool counted(const char *name)
{
    if (++standin.seen.nccl_calls != standin.is.fail_nccl)
        return true;
    snprintf(standin.seen.failed, sizeof standin.seen.failed, "%s", name);
    return false;
}

static bool enter(const char *name)
{
    bool well = standin_enter(name);
    return counted(name) && well;
}

static ncclResult_t leave(ncclResult_t result)
{
    pthread_mutex_unlock(&standin.lock);
    return result;
}

#define ENTER()                           \
    if (!enter(__func__))                 \
    return leave(ncclSystemError)

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

static void comm_free(struct ncclComm *comm)
{
    if (!comm->gone || comm->ops)
        return;
    munmap(comm->board, comm->board_bytes);
    free(comm->met);
    free(comm);
}

static void op_free(struct op *op)
{
    for (struct flow *flow = op->flows, *next; flow; flow = next) {
        next = flow->next;
        free(flow);
    }
    for (struct sum *sum = op->sums, *next; sum; sum = next) {
        next = sum->next;
        free(sum->terms);
        free(sum);
    }
    op->comm->ops--;
    comm_free(op->comm);
    free(op);
}

/* ---- what streams do; without the lock ---- */

static bool pass(struct flow *flow)
{
    struct channel *channel = flow->channel;
    uint64_t put = atomic_load(&channel->put), got = atomic_load(&channel->got);
    uint64_t most = flow->bytes - flow->passed < CHUNK ? flow->bytes - flow->passed : CHUNK;
    if (flow->gives && put == got && most) {
        memcpy(channel->data, flow->at + flow->passed, most);
        channel->bytes = flow->bytes;
        flow->passed += most;
        atomic_store(&channel->put, put + 1);
        return false;
    }
    if (flow->gives)
        return put == got && !most;
    if (put > got) {
        if (channel->bytes != flow->bytes)
            fprintf(stderr, "stand-in for NCCL: %llu bytes are taken, and %llu were given\n",
                    (unsigned long long)flow->bytes, (unsigned long long)channel->bytes);
        memcpy(flow->at + flow->passed, channel->data, most);
        flow->passed += most;
        atomic_store(&channel->got, got + 1);
    }
    return flow->passed == flow->bytes;
}

static float term_at(const unsigned char *from, size_t i, ncclDataType_t type)
{
    float value;
    uint32_t bits = 0;
    if (type == ncclFloat32)
        memcpy(&value, from + 4 * i, 4);
    else if (type == ncclFloat16) {
        _Float16 half;
        memcpy(&half, from + 2 * i, 2);
        value = (float)half;
    } else {
        memcpy((char *)&bits + 2, from + 2 * i, 2);
        memcpy(&value, &bits, 4);
    }
    return value;
}

static void put_at(unsigned char *to, size_t i, ncclDataType_t type, float value)
{
    uint32_t bits;
    if (type == ncclFloat32)
        memcpy(to + 4 * i, &value, 4);
    else if (type == ncclFloat16) {
        _Float16 half = (_Float16)value;
        memcpy(to + 2 * i, &half, 2);
    } else {
        memcpy(&bits, &value, 4);
        bits += 0x7fff + (bits >> 16 & 1);
        memcpy(to + 2 * i, (char *)&bits + 2, 2);
    }
}

static size_t item_of(ncclDataType_t type)
{
    return type == ncclFloat32 ? 4 : type == ncclUint8 ? 1 : 2;
}

static void add(const struct ncclComm *comm, const struct sum *sum)
{
    size_t bytes = sum->count * item_of(sum->type);
    if (!sum->terms)
        memmove(sum->to, sum->own, bytes);
    for (size_t i = 0; sum->terms && i < sum->count; i++) {
        float total = 0;
        for (int m = 0; m < comm->count; m++)
            total += term_at(m == comm->place ? sum->own : sum->terms + (size_t)m * bytes, i, sum->type);
        put_at(sum->to, i, sum->type, total);
    }
}

/* Messages of one channel go one after the other. */
static bool op_step(void *data)
{
    struct op *op = data;
    bool all = true;
    for (struct flow *flow = op->flows; flow; flow = flow->next) {
        bool first = true;
        for (struct flow *before = op->flows; before != flow; before = before->next)
            first &= before->channel != flow->channel || before->gives != flow->gives || !before->channel;
        if (!flow->channel)
            continue;
        if (first && pass(flow))
            flow->channel = NULL;
        else
            all = false;
    }
    if (atomic_load(&op->comm->aborted))
        return true;
    for (struct sum *sum = op->sums; all && sum; sum = sum->next)
        add(op->comm, sum);
    return all;
}

static void op_over(void *data)
{
    op_free(data);
}

/* ---- the library ---- */

static ncclResult_t get_version(int *version)
{
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

static ncclResult_t get_id(ncclUniqueId *id)
{
    ENTER();
    memset(id, 0, sizeof *id);
    uint64_t number[2];
    if (getrandom(number, sizeof number, 0) != sizeof number)
        return leave(ncclSystemError);
    snprintf(id->internal, sizeof id->internal, "/weir-standin-%016llx%016llx", (unsigned long long)number[0],
             (unsigned long long)number[1]);
    return leave(ncclSuccess);
}

static ncclResult_t init(ncclComm_t *made, int count, ncclUniqueId id, int place, ncclConfig_t *config)
{
    ENTER();
    struct ncclComm *comm = calloc(1, sizeof *comm);
    if (!comm || config->blocking || config->magic != 0xcafebeef || place >= count || count > STANDIN_CARDS || !depth) {
        standin_misuse("a communicator is not made as it is to be");
        free(comm);
        return leave(ncclInvalidArgument);
    }
    *comm = (struct ncclComm){.count = count, .place = place, .card = standin_card, .joins = true};
    snprintf(comm->path, sizeof comm->path, "%.60s", id.internal);
    comm->board_bytes = sizeof(struct board) + (size_t)count * (size_t)count * sizeof(struct channel);
    int file = shm_open(comm->path, O_RDWR | O_CREAT, 0600);
    void *at = file >= 0 && !ftruncate(file, (off_t)comm->board_bytes)
                   ? mmap(NULL, comm->board_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
                   : MAP_FAILED;
    if (file >= 0)
        close(file);
    if (at == MAP_FAILED) {
        free(comm);
        return leave(ncclSystemError);
    }
    comm->board = at;
    comm->met = calloc((size_t)count, sizeof *comm->met);
    if (!comm->met)
        abort();
    atomic_store(&comm->board->card[place], comm->card + 1);
    atomic_fetch_add(&comm->board->joined, 1);
    standin.seen.comms++;
    *made = comm;
    return leave(ncclInProgress);
}

static void enqueue_pending(struct ncclComm *comm)
{
    struct op *op = comm->pending;
    comm->pending = NULL;
    if (!op)
        return;
    if (standin.sticky)
        op_free(op);
    else
        standin_enqueue(op->stream, (struct run){.kind = RUN_MEET, .step = op_step, .call = op_over, .data = op});
}

/* Whether no two members that have joined are on one card, which NCCL takes for a mistake. */
static bool apart(const struct ncclComm *comm)
{
    for (int a = 0; a < comm->count; a++)
        for (int b = 0; b < a; b++)
            if (atomic_load(&comm->board->card[a]) == atomic_load(&comm->board->card[b])) {
                snprintf(said_last, sizeof said_last,
                         "Duplicate GPU detected : rank %d and rank %d both on CUDA device %x", b, a, 0x1000 * comm->card);
                return false;
            }
    return true;
}

/* How often it is asked depends on time: only what it has not said before counts as a call. */
static ncclResult_t async_error(ncclComm_t comm, ncclResult_t *is)
{
    bool well = standin_enter(__func__);
    if (comm->joins && atomic_load(&comm->board->joined) == (uint32_t)comm->count) {
        comm->joins = false;
        shm_unlink(comm->path);
    }
    bool finalizes = comm->finalizes && (comm->ops || atomic_load(&comm->board->finalized) < (uint32_t)comm->count);
    *is = comm->joins || comm->busy || finalizes ? ncclInProgress : ncclSuccess;
    if (comm->busy > 1 || (comm->busy && now_ms() >= comm->until_ms))
        comm->busy--;
    if (comm->pending && !comm->busy)
        enqueue_pending(comm);
    if (standin.is.nccl_error)
        *is = ncclRemoteError;
    if (!comm->joins && !apart(comm))
        *is = ncclInvalidUsage;
    well &= (comm->told && comm->said == *is) || counted(__func__);
    comm->told = true;
    comm->said = *is;
    return leave(well ? ncclSuccess : ncclSystemError);
}

static ncclResult_t finalize(ncclComm_t comm)
{
    ENTER();
    comm->finalizes = true;
    atomic_fetch_add(&comm->board->finalized, 1);
    return leave(ncclInProgress);
}

static ncclResult_t end(ncclComm_t comm, bool abort)
{
    ncclResult_t result = enter(abort ? "abort" : "destroy") || abort ? ncclSuccess : ncclSystemError;
    while (abort && standin.is.abort_hangs) {
        pthread_mutex_unlock(&standin.lock);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        pthread_mutex_lock(&standin.lock);
    }
    if (!abort && !comm->finalizes)
        standin_misuse("a communicator is destroyed that was not finalized");
    atomic_store(&comm->aborted, true);
    if (comm->joins)
        shm_unlink(comm->path);
    if (comm->pending)
        op_free(comm->pending);
    comm->pending = NULL;
    comm->gone = true;
    standin.seen.comms--;
    comm_free(comm);
    pthread_cond_signal(&standin.work);
    return leave(result);
}

static ncclResult_t destroy(ncclComm_t comm)
{
    return end(comm, false);
}

static ncclResult_t abort_comm(ncclComm_t comm)
{
    return end(comm, true);
}

static const char *error_string(ncclResult_t result)
{
    return result == ncclRemoteError ? "remote process exited or there was a network error"
           : result == ncclSystemError ? "unhandled system error"
           : result == ncclInvalidUsage ? "invalid usage"
           : result ? "an error" : "no error";
}

static const char *last_error(ncclComm_t comm)
{
    (void)comm;
    return said_last;
}

static ncclResult_t group_start(void)
{
    ENTER();
    depth++;
    return leave(ncclSuccess);
}

static ncclResult_t group_end(void)
{
    ncclResult_t result = !enter(__func__) ? ncclSystemError : called ? ncclInProgress : ncclSuccess;
    if (!depth--)
        standin_misuse("a group of calls ends that did not begin");
    for (struct ncclComm *comm = called, *next; comm; comm = next) {
        next = comm->next;
        comm->busy = 1 + (int)(standin.random++ % BUSY_MOST);
        comm->until_ms = now_ms() + standin.is.launch_ms;
        comm->next = NULL;
    }
    called = NULL;
    return leave(result);
}

/* ---- calls of a group ---- */

static struct op *op_of(struct ncclComm *comm, cudaStream_t stream)
{
    if (comm->joins || comm->finalizes || comm->busy || !depth || stream->card != comm->card)
        standin_misuse("a communicator is not ready for what is called");
    if (comm->pending)
        return comm->pending;
    struct op *op = calloc(1, sizeof *op);
    if (!op)
        abort();
    *op = (struct op){.comm = comm, .stream = stream};
    op->last = &op->flows;
    comm->pending = op;
    comm->ops++;
    comm->next = called;
    called = comm;
    return op;
}

static void flow_add(struct op *op, int from, int to, const void *at, uint64_t bytes)
{
    struct flow *flow = calloc(1, sizeof *flow);
    if (!flow)
        abort();
    *flow = (struct flow){.channel = &op->comm->board->channel[from * op->comm->count + to], .at = (unsigned char *)at,
                          .bytes = bytes, .gives = from == op->comm->place};
    *op->last = flow;
    op->last = &flow->next;
}

/* Two members that have not met before connect first, and so wait for each other. */
static void meets(struct ncclComm *comm, int peer, cudaStream_t stream)
{
    if (stream->marked && !comm->met[peer])
        standin_misuse("two devices move something without a rehearsal");
    comm->met[peer] = true;
}

static ncclResult_t send_to(const void *at, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                            cudaStream_t stream)
{
    ENTER();
    standin.seen.sends++;
    if (!standin_owns(at, count * item_of(type)))
        standin_misuse("what is sent is not all of one space");
    flow_add(op_of(comm, stream), comm->place, peer, at, count * item_of(type));
    meets(comm, peer, stream);
    return leave(ncclSuccess);
}

static ncclResult_t receive(void *at, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)
{
    ENTER();
    if (!standin_owns(at, count * item_of(type)))
        standin_misuse("what is received is not all of one space");
    flow_add(op_of(comm, stream), peer, comm->place, at, count * item_of(type));
    meets(comm, peer, stream);
    return leave(ncclSuccess);
}

static bool is_used(const struct ncclComm *comm, enum kind kind, size_t bytes)
{
    for (uint32_t i = 0; i < comm->used_count; i++)
        if (comm->used[i].kind == kind && comm->used[i].bytes == bytes)
            return true;
    return false;
}

/* The member's next collective of the kind. */
static struct op *op_of_all(struct ncclComm *comm, enum kind kind, size_t bytes, cudaStream_t stream)
{
    bool used = is_used(comm, kind, bytes);
    if (stream->marked && !used)
        standin_misuse("a collective is called without a rehearsal");
    if (!used && comm->used_count < USED_MOST)
        comm->used[comm->used_count++] = (struct used){kind, bytes};
    return op_of(comm, stream);
}

/* `count` elements of the sum come here; `apart`: each member's are others. */
static void sum_add(struct ncclComm *comm, const unsigned char *from, void *to, size_t count, ncclDataType_t type,
                    bool apart, cudaStream_t stream)
{
    size_t bytes = count * item_of(type);
    struct op *op = op_of_all(comm, apart ? REDUCE_SCATTER : ALL_REDUCE, bytes, stream);
    if (!standin_owns(from, bytes * (apart ? (size_t)comm->count : 1)) || !standin_owns(to, bytes))
        standin_misuse("what is added is not all of one space");
    struct sum *sum = calloc(1, sizeof *sum);
    unsigned char *terms = malloc(bytes * (size_t)comm->count + 1);
    if (!sum || !terms)
        abort();
    *sum = (struct sum){.next = op->sums, .terms = terms, .own = from + (apart ? (size_t)comm->place * bytes : 0),
                        .to = to, .count = count, .type = type};
    op->sums = sum;
    for (int m = 0; m < comm->count; m++)
        if (m != comm->place && bytes) {
            flow_add(op, comm->place, m, from + (apart ? (size_t)m * bytes : 0), bytes);
            flow_add(op, m, comm->place, terms + (size_t)m * bytes, bytes);
        }
}

static ncclResult_t all_reduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t how,
                               ncclComm_t comm, cudaStream_t stream)
{
    ENTER();
    if (how != ncclSum)
        return leave(ncclInvalidArgument);
    sum_add(comm, from, to, count, type, false, stream);
    return leave(ncclSuccess);
}

static ncclResult_t reduce_scatter(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t how,
                                   ncclComm_t comm, cudaStream_t stream)
{
    ENTER();
    if (how != ncclSum)
        return leave(ncclInvalidArgument);
    sum_add(comm, from, to, count, type, true, stream);
    return leave(ncclSuccess);
}

/* In place, or what is given does not touch what is taken. */
static ncclResult_t all_gather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm,
                               cudaStream_t stream)
{
    ENTER();
    size_t bytes = count * item_of(type), all = bytes * (size_t)comm->count;
    const unsigned char *give = from;
    unsigned char *take = to, *own = take + bytes * (size_t)comm->place;
    struct op *op = op_of_all(comm, ALL_GATHER, bytes, stream);
    struct sum *sum = calloc(1, sizeof *sum);
    if (!sum)
        abort();
    standin.seen.gathers++;
    if (!standin_owns(give, bytes) || !standin_owns(take, all))
        standin_misuse("what is gathered is not all of one space");
    if (give != own && give < take + all && take < give + bytes)
        standin_misuse("what is given lies in what is gathered, at another place");
    *sum = (struct sum){.next = op->sums, .own = give, .to = own, .count = count, .type = type};
    op->sums = sum;
    for (int m = 0; m < comm->count; m++)
        if (m != comm->place && bytes) {
            flow_add(op, comm->place, m, give, bytes);
            flow_add(op, m, comm->place, take + bytes * (size_t)m, bytes);
        }
    return leave(ncclSuccess);
}

/* ---- in the place of the loader ---- */

void *nccl_open(char *why, size_t bytes);
void *nccl_call(void *library, const char *name);

void *nccl_open(char *why, size_t bytes)
{
    if (standin.is.no_nccl)
        snprintf(why, bytes, "libnccl.so.2: cannot open shared object file");
    return standin.is.no_nccl ? NULL : &standin;
}

void *nccl_call(void *library, const char *name)
{
#define CALL_OF(call, function) {"nccl" #call, (void (*)(void))function}
    static const struct {
        const char *name;
        void (*function)(void);
    } calls[] = {
        CALL_OF(GetVersion, get_version),
        CALL_OF(GetUniqueId, get_id),
        CALL_OF(CommInitRankConfig, init),
        CALL_OF(CommGetAsyncError, async_error),
        CALL_OF(CommFinalize, finalize),
        CALL_OF(CommDestroy, destroy),
        CALL_OF(CommAbort, abort_comm),
        CALL_OF(GetErrorString, error_string),
        CALL_OF(GetLastError, last_error),
        CALL_OF(GroupStart, group_start),
        CALL_OF(GroupEnd, group_end),
        CALL_OF(Send, send_to),
        CALL_OF(Recv, receive),
        CALL_OF(AllReduce, all_reduce),
        CALL_OF(ReduceScatter, reduce_scatter),
        CALL_OF(AllGather, all_gather),
    };
    (void)library;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (!strcmp(calls[i].name, name))
            return *(void *const *)&calls[i].function;
    return NULL;
}
#endif
