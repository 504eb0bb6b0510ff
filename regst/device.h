/* regst/device.h: what the runtime needs from a kind of device, as one table of functions per kind.
 *
 *     memory space   an arena of planned bytes; the host reaches it through copies alone, unless `host` says otherwise
 *     queue          executes kernels in order
 *     mark           a point in a queue, behind all that was enqueued so far
 *
 * Nothing above this header asks which kind it is. Adding a kind is one file with its table and one line in device.c,
 * or device_register().
 *
 * There are two sorts of kinds. On one a kernel is done when it returns (CPU, disk): the calling thread is the queue,
 * and the table has no functions of queues. On the other a kernel is only enqueued, and the queue *runs ahead* of the
 * device: it is an object, and what happens on it is told by marks.
 *
 *     enqueue:   kernel kernel mark(5) kernel mark(6) kernel ...
 *     done:             5 <- a word that the device writes: all before mark 5 is over
 *
 * Marks of a queue are numbered 1, 2, ...; the number is the mark's *ticket*. A queue has room for so many marks that
 * have not passed: without room mark() must not be called. await() makes what follows on one queue begin after a mark
 * of another, and never holds up the host. `done` never goes back; one load tells it, without a call of the driver.
 *
 * If a kernel finds a value out of range when it runs (an id beyond a table), it says so in the queue's `refusal`
 * (weir/op.h), which is there before a mark behind it passes, on its own queue or on one that awaited it.
 *
 * A queue is used by one thread at a time; `done` may be read, and health() and abort() called, by any.
 *
 * A function of the tables reports one clear sentence as the error (graph/base/error.h), which names the device.
 */
#ifndef REGST_DEVICE_H
#define REGST_DEVICE_H

#include <stdatomic.h>

#include <weir/op.h>

struct device_ops;

/* The purpose of a queue; a kind may take it as a hint (priorities, copy engines). */
enum device_queue_kind { DEVICE_COMPUTE, DEVICE_COPY_IN, DEVICE_COPY_OUT, DEVICE_COLLECTIVE, DEVICE_QUEUE_KINDS };

/* A queue that runs ahead. The kind's own structure begins with this. */
struct device_queue {
    const struct device_ops *device;
    uint32_t index;               /* of the device within its kind */
    enum device_queue_kind kind;
    const _Atomic uint64_t *done; /* the newest mark that has passed; read with acquire, which pairs with the device's
                                     release (or its own order of writes to host memory) */
    const _Atomic uint64_t *put;  /* the newest mark that other queues may await: of a queue for collectives, which holds
                                     marks back until a meeting is enqueued. Read as `done` is. NULL: all that were made */
    const weir_refusal *refusal;  /* what kernels have said; NULL: they cannot */
    uint64_t marked;              /* the newest ticket; owned by the thread that uses the queue */
    uint64_t marks_max;           /* so many marks may be on their way, */
    uint32_t kernels_max;         /* and so many kernels, unless one firing has more: beyond some number the device would hold
                                     up the host. 0: it never does */
    void *native;                 /* what kernels get as args->queue (a CUstream) */
    bool timed;                   /* times() will be asked; set before anything is enqueued */
};

/* A group of devices that do things together, as one of its members sees it. The kind's own structure begins with
 * this. */
struct device_group {
    const struct device_ops *device;
    uint32_t self, count;         /* the number of this member, and how many there are */
    const struct device_rehearsal *rehearsals; /* the session's: the meetings that there will be, in the same order for all
                                     members; known when the group is joined */
    uint32_t rehearsal_count;
};

/* Calls that one launch may make. */
enum { DEVICE_JOINED_MAX = 256 };

/* Which group it is: for no other group of this or another session at the same time. For kinds without group_join() it is the
 * same for all members, for others the same for those of one process. */
struct device_group_id {
    uint64_t session;
    uint32_t number;
};

/* The key by which members in several processes find each other. */
enum { DEVICE_KEY_BYTES = 128 };

/* The members of a group do one of these: they hand views to each other, or add what each gives: the inputs i of all are
 * added, and output i of each is all of that sum, or the part of it by its place. All members have as many of either. */
enum device_collective { DEVICE_MOVES, DEVICE_REDUCE_SCATTER, DEVICE_ALL_REDUCE };

/* To the member `peer` goes the input `view` of a call, or from it comes the output `view`. It may be the member
 * itself. */
struct device_move {
    uint32_t peer, view;
};

/* Every member gives its input `give` to all, itself too; all of these have the same bytes, and what the member takes lies
 * in one piece, by place, from its output `take` on. */
struct device_gather {
    uint32_t give, take;
};

/* The member's part in a collective. Between two members, moves are in the order in which both list them. */
struct device_meeting {
    struct device_group *group;
    uint32_t number;              /* which collective it is: the same for all members */
    enum device_collective kind;
    const struct device_move *gives, *takes;
    uint32_t give_count, take_count;
    const struct device_gather *gathers; /* beside these moves, in the same order for all members: of groups that were
                                            joined with a key, and of none else */
    uint32_t gather_count;
};

/* A meeting, and views that it will have: what lies there when the group is joined is of no value, and may be written. */
struct device_rehearsal {
    const struct device_meeting *meeting;
    const weir_kernel_args *args;
};

/* A device, for people. */
struct device_facts {
    char name[96], more[160];     /* "NVIDIA H200"; "sm_90, 0000:18:00.0, driver for CUDA 13.0" */
    uint64_t bytes, free_bytes;   /* of memory; 0: not known */
    uint64_t cache_bytes;         /* of the cache that all of it shares; 0: not known */
};

struct device_ops {
    const char *name;
    bool host;   /* the host reads and writes its spaces in place; they may be shared between processes and sent */
    bool mapped; /* not that, but while nothing runs the host may follow pointers into its spaces (files) */

    /* Zeroed memory of `bytes` > 0 on device `index`, aligned to 64 bytes or more and backed by real pages, or a real
     * file; E_MEMORY or E_IO when there is none. `path`: the directory of a disk; of no meaning elsewhere. */
    weir_status (*space_new)(const char *path, uint32_t index, uint64_t bytes, void **space);
    void (*space_free)(void *space, uint64_t bytes);
    /* Memory that others made and several processes share, in the place of such a space: queues beside are to reach
     * it. Absent: they do. */
    weir_status (*space_adopt)(void *space, uint64_t bytes);
    void (*space_leave)(void *space, uint64_t bytes);

    /* Between the host and a space; return when it is done. Only while no queue of the device has anything to do. */
    weir_status (*copy_in)(void *to, const void *host, uint64_t bytes);
    weir_status (*copy_out)(void *host, const void *from, uint64_t bytes);

    /* How many devices there are; none is an error, which says why. And what one is, and how it reaches another:
     * "NVLink". Absent: not known. */
    weir_status (*count)(uint32_t *count);
    weir_status (*describe)(uint32_t index, struct device_facts *facts);
    const char *(*link)(uint32_t from, uint32_t to);

    /* Prepares the calling thread for the kernels of device `index`. */
    weir_status (*queue_open)(uint32_t index);

    /* ---- kinds that run ahead; all NULL on others ---- */

    weir_status (*queue_new)(uint32_t index, enum device_queue_kind kind, struct device_queue **queue);
    void (*queue_free)(struct device_queue *queue); /* idle, or aborted */

    /* The kernel that is called for an op; NULL: there is none. Absent: op->kernel[device_kernels(kind)], which is what
     * plans are checked for. */
    weir_kernel_fn (*kernel)(const weir_op *op);
    /* Does what the first such call would do besides: choose how, load code. Called for each kernel of a session while it
     * is opened, with the views of a firing, in a space that is all zeros, and leaves it so; returns when that is done.
     * Absent: there is nothing of the kind. */
    weir_status (*prepare)(struct device_queue *queue, weir_kernel_fn call, const weir_kernel_args *args);
    /* Enqueues the call; args and views are the runtime's again when it returns. Absent: the kernel is called with
     * args->queue, and enqueues by itself. An error is one that the call itself had; later ones come through
     * health(). */
    weir_status (*launch)(struct device_queue *queue, weir_kernel_fn call, const weir_kernel_args *args);

    /* The same for several calls of one kernel, whose errors are the first one's: by fewer launches than calls. `joins` says
     * whether it has a way for that; then up to DEVICE_JOINED_MAX calls may be given of which none touches what another
     * writes. Both or none; absent: there is no such kernel. */
    bool (*joins)(weir_kernel_fn call);
    weir_status (*launch_many)(struct device_queue *queue, weir_kernel_fn call, const weir_kernel_args *const *args,
                               uint32_t count);

    /* Enqueues the next mark: its ticket is queue->marked afterwards. There must be room. */
    weir_status (*mark)(struct device_queue *queue);
    /* Work that is enqueued on `queue` from now on begins after that mark of `other` has passed, which has been put (queue->put).
     * It may have passed meanwhile, and newer marks may stand in its place: then nothing is awaited. `other` may be in use
     * by another thread. */
    weir_status (*await)(struct device_queue *queue, struct device_queue *other, uint64_t ticket);

    /* ---- groups of devices; all NULL on kinds that do nothing together ---- */

    /* Makes the queue's device the member `place` of `count` of a group, of which `here` are this session's in this
     * process. Waits for no other member: the group is whole by the time that one of its meetings runs. Before
     * anything is enqueued, and freed when the queues rest or are aborted; groups are freed in the same order by all
     * processes. */
    weir_status (*group_new)(struct device_queue *queue, const struct device_group_id *id, uint32_t self, uint32_t count,
                             uint32_t here, struct device_group **group);
    void (*group_free)(struct device_group *group);
    /* In a group with members in several processes: where member 0 is, a new key is made, which all get. With it
     * group_join() is called, of each member again and again until *whole, or an error: it goes on as far as it can
     * without waiting for other processes; when it is whole, its meetings wait for nobody to be enqueued. One group after the other, in the same order by all processes, when all
     * members of this process are there. Absent: members find each other by the id. */
    weir_status (*group_key)(struct device_group *group, unsigned char key[DEVICE_KEY_BYTES]);
    weir_status (*group_join)(struct device_group *group, const unsigned char key[DEVICE_KEY_BYTES], bool *whole);
    /* Enqueues the member's part, with the views of a call. It runs when each member's queue has come to the same
     * meeting, and ends for all at about the same time. Members that come to different ones of a group are an error
     * of health(), or never go on. Meeting and views are the runtime's again when it returns, the lists of moves
     * stay. */
    weir_status (*meet)(struct device_queue *queue, const struct device_meeting *meeting, const weir_kernel_args *args);

    /* When what lies between the mark before `ticket` and `ticket` ran, by the host's monotonic clock; the mark must
     * have passed, and be one of the last marks_max. False, or absent: not known. */
    bool (*times)(struct device_queue *queue, uint64_t ticket, int64_t *start_ns, int64_t *end_ns);

    /* Whether the queue still works; else a sentence. May take microseconds. Any thread. */
    weir_status (*health)(struct device_queue *queue, char *error, size_t error_bytes);
    /* Ends what is under way as soon as it can be: when it returns, nothing of the queue touches memory any more,
     * unless it hangs. Nothing is enqueued any more, and no mark needs to pass. Any thread. */
    void (*abort)(struct device_queue *queue);
};

/* Whether a kind runs ahead. */
static inline bool device_runs_ahead(const struct device_ops *device)
{
    return device->mark != NULL;
}

/* The table of a kind; NULL when this process has none. */
const struct device_ops *device_find(uint32_t kind);

/* Makes a kind known to the process, or (NULL) unknown. `ops` is borrowed. Sessions that are open keep the table
 * that they have; kinds that come with a plugin are made known by regst/plugin.h. */
void device_register(uint32_t kind, const struct device_ops *ops);

/* Whether the host reaches the spaces of a kind in place: they may be shared between processes and sent. */
bool device_host(uint32_t kind);

extern const struct device_ops device_cpu, device_disk, device_pinned, device_mapped;

#endif
