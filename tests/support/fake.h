/* tests/support/fake.h: an accelerator without hardware, for tests: fake:0 to fake:15, a kind that runs ahead.
 *
 *     host ---launch, mark, await---> queue: launch launch mark(1) await launch mark(2)
 *                                     queue: launch mark(1)                                 one thread, the engine,
 *                                     queue: ...                                            takes a head at random
 *
 * It does what a device may do and a test's own machine never does:
 *   - Queues run in any order that marks and awaits leave open, drawn from a seed; each kernel takes a time of
 *     its own.
 *   - A call's views, attributes and arguments are copied at launch, and used when the host has long gone on.
 *   - Addresses of its spaces have a high bit, so that the host which follows one faults; its kernels are the CPU's,
 *     called without the bit.
 *   - A kernel's outputs and workspace are NaNs from its beginning until it is done. Operands that it adds to, or works
 *   on in place, are left alone.
 *   - Few marks fit: 2 to 16 a queue.
 *   - Members of a group meet when the heads of all their queues are the same meeting. Their outputs are NaNs from then
 *   on until their own end, each of which comes when it likes; sums are in the order of the members. Where one
 *     fails, dies or hangs, the others wait until they are aborted, as in a real communicator.
 *   - It fails when it is told to (`faults`).
 * It counts what no caller may do: a mark or a kernel without room, an await of a mark that was never made, two threads on one
 * queue, memory of the host's in a call, copies while a queue is at work, members that come to different meetings or do not
 * agree on bytes (health() says these, too), what is left open. And it looks for races
 * (tests/support/races.h), so that an await which is left out is told whatever order was drawn.
 *
 * While it is open, WEIR_FAKE and WEIR_PINNED are known to the process; PINNED is memory of the host's that kernels of
 * the fake device may reach. One at a time; open and close by one thread, while no session is open.
 */
#ifndef TESTS_SUPPORT_FAKE_H
#define TESTS_SUPPORT_FAKE_H

#include "regst/device.h"

enum {
    FAKE_DEVICES = 16,
    FAKE_QUEUES_MAX = 64, /* from open to close, those given back among them */
    FAKE_FAULTS_MAX = 4,
    FAKE_MEET_MS = 60000,
    FAKE_TEXT_BYTES = 320
};

typedef enum fake_fault_kind {
    FAKE_NO_FAULT,
    FAKE_FAILS,       /* the kernel fails when it runs: no mark of the queue passes any more, health() says why */
    FAKE_DIES,        /* the queue ends before the kernel: no mark passes any more, health() says that it is lost */
    FAKE_HANGS,       /* the kernel is never over, and health() finds nothing wrong */
    FAKE_LAUNCH_FAILS /* launch() itself returns an error, and enqueues nothing */
} fake_fault_kind;

/* A fault of one launch of every queue of this kind on this device. */
typedef struct fake_fault {
    fake_fault_kind kind;
    uint32_t device;
    enum device_queue_kind queue;
    uint64_t launch; /* the first is 1; 0 is the first, too */
} fake_fault;

typedef struct fake_options {
    uint64_t seed;
    uint32_t delay_us;  /* mean time that a kernel takes; 0: none */
    uint32_t marks_max; /* of every queue; 0: 2 to 16, drawn */
    uint32_t kernels_max; /* of every queue; 0: any number */
    bool held;          /* nothing runs until fake_go() */
    bool no_races;      /* do not look for races */
    bool shared;        /* PINNED memory may be what processes share, which the kind did not make */
    struct fake_board *board; /* groups have members in other processes, which have this one, too; NULL: they have not */
    uint32_t meet_ms;   /* so long does a member wait for the others, then its queue fails; 0: FAKE_MEET_MS */
    fake_fault faults[FAKE_FAULTS_MAX];
} fake_options;

/* The observations until it was closed. Sentences are "" when there is none. */
typedef struct fake_seen {
    uint64_t launches, marks, awaits, meetings;
    uint64_t begun;                /* of the meetings: all members had come */
    uint64_t misuses;              /* things that no caller may do, */
    char misuse[FAKE_TEXT_BYTES];  /* the first of them, */
    char race[FAKE_TEXT_BYTES];    /* and the first race */
} fake_seen;

/* The shared memory through which members in several processes meet. Made before these are forked, and freed when they
 * ended. */
struct fake_board;
struct fake_board *fake_board_new(void);
void fake_board_free(struct fake_board *board);

void fake_open(const fake_options *options); /* NULL: all 0 */

/* Ends the engine and takes the kinds away; what a test left open is freed, and counted as misuse. */
fake_seen fake_close(void);

/* The same, and fails the test if there was misuse or a race. */
void fake_close_well(void);

/* The observations so far. */
fake_seen fake_look(void);

/* From now on no entry of a queue begins; and all may again. */
void fake_hold(void);
void fake_go(void);

/* Marks that still fit. */
static inline uint64_t fake_room(const struct device_queue *queue)
{
    return queue->marks_max - (queue->marked - atomic_load_explicit(queue->done, memory_order_acquire));
}

/* Where the host finds what lies at an address of the device. Tests alone may look, when nothing runs. */
void *fake_reach(const void *address);

#endif
