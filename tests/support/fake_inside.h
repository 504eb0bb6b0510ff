/* tests/support/fake_inside.h: what the files of the fake accelerator share: fake.c (the device's table, the
 * host's side), fake_space.c (memory), fake_engine.c (what runs) and fake_meet.c (what members of groups do).
 *
 * All of it is under `lock`, but for `done` words, which the host reads, and kernels under way, which run without it:
 * their entry and their queue stay while queue->running is set. Queues are kept until fake_close(), their `done` words
 * go with queue_free(), so that reading one later is seen by AddressSanitizer.
 */
#ifndef TESTS_SUPPORT_FAKE_INSIDE_H
#define TESTS_SUPPORT_FAKE_INSIDE_H

#include <pthread.h>

#include "tests/support/fake.h"
#include "tests/support/fake_board.h"
#include "tests/support/races.h"

#define FAKE_BIT (UINT64_C(1) << 62) /* no address of a process has it, and none can be followed that has */

enum { FAKE_MARKS_MAX = 64, FAKE_CALLS_MAX = 512 };

enum fake_entry_kind { FAKE_LAUNCH, FAKE_MARK, FAKE_AWAIT, FAKE_MEET };

struct fake_group {
    struct device_group head;
    struct fake_group *next;
    struct fake_queue *queue; /* its member's */
    struct device_group_id id;
    struct board_group *board;
    uint64_t meetings;        /* that were enqueued */
};

/* A member's next action: it comes to a meeting, waits for the others, gives, waits until all gave, takes. */
enum fake_phase { FAKE_COMES, FAKE_WAITS, FAKE_GIVES, FAKE_GAVE, FAKE_TAKES };

struct fake_meeting {
    struct device_meeting is;
    struct fake_group *group;
    uint64_t count;           /* of the group's meetings, it among them */
    enum fake_phase phase;
    int64_t give_up_ns;       /* when it waits no more */
};

struct fake_entry {
    struct fake_entry *next;
    enum fake_entry_kind kind;
    uint64_t ticket;          /* of a mark, or awaited */
    struct fake_queue *other; /* awaited */
    struct fake_meeting meeting;
    /* A launch, and the views of a meeting. */
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
    _Atomic uint64_t put;     /* of a queue for collectives: the newest mark that others may await */
    uint64_t made;            /* marks that were enqueued */
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
    struct fake_group *groups;
    struct fake_board *board; /* the options', or owned */
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

/* Functions of the device's table, and of that of pinned memory. */
weir_status fake_space_new(const char *path, uint32_t index, uint64_t bytes, void **space);
weir_status fake_pinned_new(const char *path, uint32_t index, uint64_t bytes, void **space);
void fake_space_free(void *address, uint64_t bytes);
weir_status fake_copy_in(void *to, const void *host, uint64_t bytes);
weir_status fake_copy_out(void *host, const void *from, uint64_t bytes);

/* Enqueueing: takes the lock, unless another thread is at it; makes an entry of a call (NULL: a meeting's), which
 * from now on is the device's; gives the lock back. Without an entry it is E_KERNEL. */
weir_status fake_enter(struct fake_queue *queue);
struct fake_entry *fake_copy_call(struct fake_queue *queue, weir_kernel_fn call, const weir_kernel_args *args);
weir_status fake_leave(struct fake_queue *queue, struct fake_entry *entry);
/* Enqueues the call, unless it is to fail. */
weir_status fake_leave_with_call(struct fake_queue *queue, struct fake_entry *entry, const weir_kernel_args *args);

/* The engine's actions on a call: its outputs are poisoned; its queue ends before it, or with it; it is over. */
void fake_poison(const struct fake_entry *entry);
void fake_access_all(struct fake *fake, const struct fake_queue *queue, const struct fake_entry *entry, bool writes);
int64_t fake_due_ns(struct fake *fake);
void fake_die(struct fake_queue *queue);
void fake_fail(struct fake_queue *queue, const struct fake_entry *entry, weir_status status);
void fake_finish(struct fake_queue *queue);

/* Functions of the device's table; see fake_meet.c. */
weir_status fake_group_new(struct device_queue *queue, const struct device_group_id *id, uint32_t place, uint32_t count,
                           uint32_t here, struct device_group **group);
void fake_group_free(struct device_group *group);
weir_status fake_meet(struct device_queue *queue, const struct device_meeting *meeting, const weir_kernel_args *args);
void fake_free_groups(struct fake *fake); /* those that were left open */

/* Of the engine: whether the meeting at the head of a queue can go on, or when to look again; and it goes on. */
bool fake_meeting_ready(const struct fake *fake, const struct fake_entry *entry, int64_t now_ns, int64_t *wake_ns);
void fake_meeting_advance(struct fake *fake, struct fake_queue *queue, struct fake_entry *entry);

/* Frees what is enqueued; not while it runs. */
void fake_drop_entries(struct fake_queue *queue);

/* The engine's thread, until `ending`. */
void *fake_engine(void *fake);

#endif
