/* tests/support/fake_inside.h: what the files of the fake accelerator share: fake.c (the device's table, the
 * host's side), fake_space.c (memory) and fake_engine.c (what runs).
 *
 * All of it is under `lock`, but for `done` words, which the host reads, and kernels under way, which run without it:
 * their entry and their queue stay while queue->running is set. Queues are kept until fake_close(), their `done` words
 * go with queue_free(), so that reading one later is seen by AddressSanitizer.
 */
#ifndef TESTS_SUPPORT_FAKE_INSIDE_H
#define TESTS_SUPPORT_FAKE_INSIDE_H

#include <pthread.h>

#include "tests/support/fake.h"
#include "tests/support/races.h"

#define FAKE_BIT (UINT64_C(1) << 62) /* no address of a process has it, and none can be followed that has */

enum { FAKE_MARKS_MAX = 64, FAKE_CALLS_MAX = 512 };

enum fake_entry_kind { FAKE_LAUNCH, FAKE_MARK, FAKE_AWAIT };

struct fake_entry {
    struct fake_entry *next;
    enum fake_entry_kind kind;
    uint64_t ticket;          /* of a mark, or awaited */
    struct fake_queue *other; /* awaited */
    /* A launch. */
    fake_fault_kind fault;
    bool begun;               /* its outputs are poisoned, and it is over at due_ns */
    int64_t due_ns;
    const char *name;         /* of the op */
    bool updates;             /* its outputs are left as they are */
    weir_kernel_fn call;
    weir_kernel_args args;    /* views are this entry's, their addresses without the bit; so are the attributes */
    char error[FAKE_TEXT_BYTES];
    uint64_t passed[FAKE_QUEUES_MAX]; /* what the host could know of each queue when it launched */
    weir_view views[];
};

struct fake_time {
    int64_t start_ns, end_ns;
};

struct fake_queue {
    struct device_queue head;
    _Atomic uint64_t *done;   /* owned */
    uint32_t id;
    struct fake_entry *first, **last;
    bool running;             /* the engine is in its first entry, without the lock */
    bool stuck;               /* failed, died or hangs: nothing more runs */
    bool aborted, freed;
    bool unmarked;            /* something is enqueued behind the newest mark */
    weir_status health;
    char error[FAKE_TEXT_BYTES];
    uint64_t launches;        /* that were enqueued */
    int64_t start_ns, end_ns; /* of what ran since the last mark; 0: nothing did */
    struct fake_time times[FAKE_MARKS_MAX];
    atomic_flag busy;         /* a thread is enqueueing */
};

struct fake_space {
    struct fake_space *next;
    char *at;                 /* without the bit */
    uint64_t bytes;
    uint32_t index;
    bool pinned;
};

/* A kernel that the device was asked for. */
struct fake_call {
    weir_kernel_fn call;
    const char *name;         /* of the op; of the first one, where several share it */
    size_t attrs_bytes;       /* the fewest of those */
    bool updates;             /* what it writes it reads too: a parameter */
};

struct fake {
    fake_options options;
    pthread_mutex_t lock;
    pthread_cond_t work;      /* for the engine: there may be something to do */
    pthread_cond_t rest;      /* a kernel is over */
    pthread_t engine;
    bool held, ending;
    uint64_t random;
    struct fake_queue *queues[FAKE_QUEUES_MAX];
    uint32_t queue_count;
    struct fake_space *spaces;
    struct fake_call calls[FAKE_CALLS_MAX];
    uint32_t call_count;
    struct races *races;      /* NULL: not looked for */
    fake_seen seen;
};

extern struct fake *fake_the; /* the one that is open; NULL: none is */

/* The next random number; one below `limit` > 0. */
uint64_t fake_draw(struct fake *fake);
uint64_t fake_below(struct fake *fake, uint64_t limit);

int64_t fake_now_ns(void);

/* The first stays. */
void fake_misuse(struct fake *fake, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Bytes that a view has; 0 when it has no memory. */
uint64_t fake_view_bytes(const weir_view *view);

/* The space that all `bytes` > 0 at an address lie in; NULL: none. */
struct fake_space *fake_space_at(const void *address, uint64_t bytes);

/* Of the device's table, and that of pinned memory. */
weir_status fake_space_new(const char *path, uint32_t index, uint64_t bytes, void **space);
weir_status fake_pinned_new(const char *path, uint32_t index, uint64_t bytes, void **space);
void fake_space_free(void *address, uint64_t bytes);
void fake_copy_in(void *to, const void *host, uint64_t bytes);
void fake_copy_out(void *host, const void *from, uint64_t bytes);

/* Frees what is enqueued; not while it runs. */
void fake_drop_entries(struct fake_queue *queue);

/* The engine's thread, until `ending`. */
void *fake_engine(void *fake);

#endif
