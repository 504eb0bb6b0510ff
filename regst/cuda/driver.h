/* regst/cuda/driver.h: the driver of CUDA devices (regst/device.h), inside. It is a plugin (regst/plugin.h): it calls
 * CUDA's runtime, which it is linked with, and of libweir what `the.host` has.
 *
 *     cards.c    which devices there are: index / logical is the card, which WEIR_CUDA_LOGICAL devices share
 *     space.c    memory: one allocation per arena, pinned memory, copies
 *     queue.c    streams and their marks, launches, the clock of kernels
 *     group.c    collectives; nccl.c, those with other processes
 *     plugin.c   the tables, and which kernels there are
 *     kernels.cu what the driver itself runs on a device
 *
 * A stream takes work from any thread, but a thread has a *current* card, and launches go to it alone: whoever enqueues
 * calls card_set() first, and every other entry card_set_own(). Errors of CUDA's are sticky after a fault of a kernel:
 * every later call returns them. Functions that free go on all the same, and report nothing.
 */
#ifndef REGST_CUDA_DRIVER_H
#define REGST_CUDA_DRIVER_H

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <pthread.h>

#include "regst/cuda/kernels.h"
#include "regst/plugin.h"

/* A stream takes about a thousand calls before a launch waits; a kernel of an op is one to four of them. */
enum { CARDS_MAX = 64, MARKS = 256, KERNELS = 256, TEXT_BYTES = 320 };

struct card {
    struct cudaDeviceProp is;
    bool loaded;      /* all kernels are there */
    _Atomic bool hung; /* a kernel never ended: freeing would wait for it */
};

typedef CUresult (*write_value_fn)(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags);

struct driver {
    const struct plugin_host *host;
    struct card cards[CARDS_MAX];
    uint32_t card_count, logical; /* devices of a card */
    weir_status absent;           /* why there is none, */
    char why[TEXT_BYTES];
    write_value_fn write_value;   /* NULL: not there */
    pthread_mutex_t lock;         /* of cards */
    _Atomic int own;              /* 1 + a card that this process works with; 0: none yet */
};
extern struct driver the;

extern const struct device_ops cuda_ops;

/* ---- cards.c ---- */

void cards_find(void);
weir_status cards_count(uint32_t *count);
weir_status cards_describe(uint32_t index, struct device_facts *facts);
const char *cards_link(uint32_t from, uint32_t to);

/* The card of a device, which is there and has kernels; and makes it the calling thread's. */
weir_status card_of(uint32_t index, int *card);
weir_status card_open(uint32_t index, int *card);
weir_status card_set(uint32_t index);
/* A card that this process works with becomes the calling thread's, for calls that are of none in particular: of a thread
 * that has none they would open a context on the first card, some 500 MB that nobody uses. */
void card_set_own(void);
/* Whether a card hangs. Freeing waits for all cards, so what they have is left to them. */
bool cards_hang(void);
/* Loads all kernels, if it has not been done: no launch has to, later. It is the calling thread's card. */
weir_status card_load(uint32_t index);
static inline int card_at(uint32_t index)
{
    return (int)(index / the.logical);
}

/* "cuda:1: cudaMalloc: out of memory"; WEIR_OK when nothing is wrong. The last error of the calling thread stays. */
weir_status failed(uint32_t index, const char *what, cudaError_t error);
#define CALL(index, name, ...) failed(index, #name, name(__VA_ARGS__))

/* "3.2 GB". Returns `text`. */
const char *bytes_text(uint64_t bytes, char text[24]);

/* ---- space.c ---- */

weir_status space_new(const char *path, uint32_t index, uint64_t bytes, void **space);
void space_free(void *space, uint64_t bytes);
weir_status space_copy_in(void *to, const void *host, uint64_t bytes);
weir_status space_copy_out(void *host, const void *from, uint64_t bytes);
weir_status pinned_new(const char *path, uint32_t index, uint64_t bytes, void **space);
void pinned_free(void *space, uint64_t bytes);
weir_status pinned_adopt(void *space, uint64_t bytes);
void pinned_leave(void *space, uint64_t bytes);

/* ---- queue.c ---- */

struct deferred;

struct words {
    _Alignas(64) _Atomic uint64_t done;
    _Alignas(64) weir_refusal refusal;
};

struct queue {
    struct device_queue head;
    int card;
    cudaStream_t stream;
    struct words *words;        /* owned, pinned: what the device writes */
    _Atomic uint64_t *done;     /* in `words` */
    uint64_t *tickets;          /* owned, pinned: where write_value is not there, what is copied to `done`, */
    void *ticket;               /* by way of this word of the device's; owned */
    weir_clock *clock;          /* owned, the device's */
    weir_clock told;            /* what it will be when all that is enqueued has run */
    bool begun;                 /* `told` says something; */
    bool open;                  /* and something was launched after the newest mark, at times[].start */
    pthread_mutex_t lock;       /* of `ends`: await() of others and mark() */
    cudaEvent_t ends[MARKS], starts[MARKS]; /* owned; of ticket t at t % MARKS; `starts`: where the queue is timed */
    cudaEvent_t zero;           /* owned; recorded at zero_ns by the host's clock */
    int64_t zero_ns;
    uint64_t zero_ticket;       /* whose start it was; 0: none's */
    _Atomic bool aborted;
    /* of a queue for collectives: what its thread has brought, the newest first, until who has group_lock takes it */
    struct deferred *_Atomic brought;
    _Atomic bool stirred;       /* it is in the list of queues that have something there, */
    struct queue *next_stirred; /* which goes on here */
    /* under group_lock */
    struct deferred *first, **last;
    _Atomic uint64_t put;       /* the newest mark that is in the stream; read by any thread */
    struct queue *next;         /* that is to go on */
    bool waits;                 /* to go on: it is in that list */
    weir_status status;         /* what is wrong, apart from the stream */
    char error[TEXT_BYTES];
};

static inline struct queue *queue_of(struct device_queue *head)
{
    return (struct queue *)head;
}

weir_status queue_open(uint32_t index);
weir_status queue_new(uint32_t index, enum device_queue_kind kind, struct device_queue **made);
void queue_free(struct device_queue *head);
uint64_t view_bytes(const weir_view *view);
weir_status queue_prepare(struct device_queue *head, weir_kernel_fn call, const weir_kernel_args *args);
weir_status queue_launch(struct device_queue *head, weir_kernel_fn call, const weir_kernel_args *args);
weir_status queue_launch_many(struct device_queue *head, weir_status (*call)(const weir_kernel_args *const *args, int count),
                              const weir_kernel_args *const *args, uint32_t count);
weir_status queue_mark(struct device_queue *head);
weir_status queue_await(struct device_queue *head, struct device_queue *other, uint64_t ticket);
bool queue_times(struct device_queue *head, uint64_t ticket, int64_t *start_ns, int64_t *end_ns);
weir_status queue_health(struct device_queue *head, char *error, size_t error_bytes);
void queue_abort(struct device_queue *head);

/* Now, whoever is the caller: only one thread at a time. */
weir_status queue_put_mark(struct queue *queue, uint64_t ticket);
weir_status queue_put_await(struct queue *queue, struct queue *other, uint64_t ticket);
weir_status queue_put_start(struct queue *queue, uint64_t ticket);
bool queue_passed(const struct queue *queue, uint64_t ticket);

/* ---- group.c ---- */

weir_status group_new(struct device_queue *head, const struct device_group_id *id, uint32_t self, uint32_t count,
                      uint32_t here, struct device_group **made);
void group_free(struct device_group *head);
weir_status group_key(struct device_group *head, unsigned char key[DEVICE_KEY_BYTES]);
weir_status group_join(struct device_group *head, const unsigned char key[DEVICE_KEY_BYTES], bool *whole);
weir_status group_meet(struct device_queue *head, const struct device_meeting *meeting, const weir_kernel_args *args);

/* On a queue for collectives: enqueued behind the meetings that it waits for. */
weir_status group_mark(struct queue *queue, uint64_t ticket);
weir_status group_await(struct queue *queue, struct queue *other, uint64_t ticket);
weir_status group_health(struct queue *queue, char *error, size_t error_bytes);
void group_abort(struct queue *queue);

#endif
