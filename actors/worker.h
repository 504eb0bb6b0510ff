/* actors/worker.h: what runs the actors of one or more queues, on a thread of its own or in turns with other workers.
 *
 *     forever: take what is in the mailbox; fire the ready actor that comes first;
 *              when none is ready: send what is unsent, tell the session if this run is over, wait for a message
 *
 * When unsent messages go out. Sending one by one costs an atomic operation and a cache miss each, so they are
 * merged; but a consumer that could run must not wait behind this worker's kernels. So before a firing the outbox is
 * sent if that firing is expected to take longer than sending does (LONG_NS), or if it and those since the outbox began
 * to fill are expected to exceed MERGE_NS. A long kernel never starts on top of unsent messages, and chains of short
 * firings are merged.
 *
 * An actor whose firings are short goes on for up to ROW_NS while it stays ready, before the worker looks again which
 * one is best: choosing costs as much as firing, and what the actor works with is in the cache. The order of firings
 * changes no result, only time.
 *
 * The expected time of a firing is what it last took. Firings that take long are all measured (which also gives the
 * queue's busy share); of short ones one in CLOCK_EVERY, since reading the clock would cost more than they do. With a
 * trace all are.
 *
 * A function of the program may wait for a result of the value that it gave last. So the worker sends everything before it
 * calls one, however short its calls were so far.
 *
 * Expectations grow stale: what took 20 ns may take 44 us in the next step. So the worker looks at the clock after each
 * row of ROW_LONG firings or more, and after PACE_EVERY rows of any length. If they took longer than short ones can, it
 * is *slow* until the next look: every firing is measured, so the costs are learned anew, rows are single firings, and
 * before each the outbox is sent. So when firings become long, a message waits once, behind one row of at most
 * ROW_MAX firings or behind PACE_EVERY short rows; after that the worker is slow, and no message waits. A worker that merely waited between its rows
 * counts as slow too: it has the time to look at the clock.
 *
 * A worker obeys orders (enum lane_order): START (a run), FAIL (fire no more), STOP (end), JOIN (it shares its thread),
 * LOOK (write down who waits for what, see actors/watch/watch.h), after at most one row of firings. It runs until STOP,
 * also between runs: frees and pushes arrive at any time.
 *
 * A run may end before its time (actors/session/stop.c tells why). HOLD: the worker tells how many steps any of its
 * actors has begun, and finishes those as far as it can, but begins none beyond them and is not done. LIMIT: it goes by
 * the owner's `limit` from now on, which is lower than it was, and by the owner's `hold`. Both set how many firings
 * each actor has left.
 *
 * For queues that run ahead of their device (actors/ahead.h) it looks at the marks between two rows. With nothing to fire it
 * waits until all of them have passed: it spins as long as at its mailbox, then sleeps for NAP_NS and longer at a time. The run
 * is over for it when they have. When it waits so, it asks every HEALTH_NS whether the queues are well; and when it hears of a
 * failure it ends what is under way on them. A refusal of a kernel is such a failure, which it sees with the next mark.
 *
 * Before it begins to fire an actor it says so in its flight recorder, which any thread may read
 * (actors/watch/flight.h).
 *
 * The worker owns its lane, its actors and its trace. The owner of the worker (struct worker_owner: a session) may read its
 * actors at rest (after done()) and after it has left its thread (actors/crew.h).
 */
#ifndef ACTORS_WORKER_H
#define ACTORS_WORKER_H

#include "actors/actor.h"
#include "actors/ahead.h"
#include "actors/watch/flight.h"
#include "actors/watch/trace.h"
#include "actors/watch/watch.h"

struct finite;

/* The questions of a worker to its owner, and its news. The worker's thread calls all of them, and none on its way from one
 * firing to the next unless something went wrong. */
struct worker_owner {
    /* By the worker's thread, before anything else: opens the queues of its devices. After an error, of which the
     * thread's error says why, it fires nothing. */
    weir_status (*open)(struct worker_owner *owner, uint32_t worker);
    void (*done)(struct worker_owner *owner);   /* the run is over for this worker */
    void (*halted)(struct worker_owner *owner); /* once: it has heard that it is to fire no more */
    /* A kernel of the actor failed with this sentence ("" for none); kernel NULL: its queue, which ran ahead; actor NULL:
     * open(). True: the worker halts. False: that firing is not to be, and the run has been limited to the steps before it. */
    bool (*failed)(struct worker_owner *owner, const struct actor *actor, const struct actor_kernel *kernel,
                   weir_status status, const char *sentence);
    /* In this firing a kernel of the actor got a value that it does not accept. The worker halts. */
    void (*refused)(struct worker_owner *owner, const struct actor *actor, const struct actor_kernel *kernel, int64_t firing,
                    const weir_refusal *refusal);
    void (*look)(struct worker_owner *owner, uint32_t worker); /* writes down what its actors lack, into its look */
    void (*asked)(struct worker_owner *owner);                 /* somebody may want the run to end early */
    /* The worker has begun `begun` steps of the run, and begins no more. `again`: it was done, and will be done once more,
     * after LIMIT. */
    void (*held)(struct worker_owner *owner, int64_t begun, bool again);

    const struct finite *finite; /* borrowed: by which actors/debug/finite.c looks at values; NULL: it does not */

    /* of the run that LANE_START begins; written before it is given */
    uint32_t program;   /* whose actors fire */
    int64_t begins_at;  /* the step that they begin at; < 0: they go on where they are */
    int64_t steps;
    int64_t steps_end; /* it goes up to this step, as the user's functions count, exclusive */
    _Atomic int64_t limit; /* of the steps: it ends after so many. Changes before LANE_LIMIT */
    _Atomic bool hold;     /* nobody begins another step. Becomes true before LANE_HOLD, false before LANE_LIMIT */
};

struct worker {
    struct lane lane;
    struct actor *actors;    /* borrowed: the session's array, by id */
    const struct edge_ends *ends; /* borrowed: the session's, by edge */
    struct actor **by_rank;  /* owned: this worker's actors */
    uint32_t actor_count;
    struct ahead_lane ahead; /* its queues that run ahead; what it points to is the session's */
    int64_t asked_ns;        /* when it last asked whether they are well */
    int64_t waited_ns;       /* expected time of firings since the outbox began to fill */
    int64_t paced_ns;        /* when worker_pace() last looked at the clock */
    uint32_t rows;           /* of firings, since then */
    bool slow;               /* the last of them were: all firings are measured, and nothing is merged */
    uint32_t running;        /* actors with firings left in this run; one more while it is held */
    bool held;               /* by HOLD: begins no step but the first `begun` */
    int64_t begun;
    bool halted;             /* by FAIL: takes messages, fires nothing */
    bool heard;              /* of the failure; has told so */
    bool reported;           /* has told that this run is over for it */
    struct trace trace;
    struct look look;        /* for the watch */
    struct worker_owner *owner; /* borrowed */
    uint32_t number;
    struct crew_thread *thread; /* borrowed; the crew's, as `next` and `left` */
    struct worker *next;
    bool left;               /* the thread knows that it has been stopped */
    bool opened;             /* its owner has opened its queues, or failed to */
    bool stopped;            /* by STOP */
    char error[512];         /* where its kernels write their sentence */
    _Alignas(APART_BYTES) struct flight flight;
};

#define WORKER_TURN 64

/* Runs it until it is stopped, or is to share its thread. */
void worker_run(struct worker *worker);

/* Its turn among several: until it has nothing to fire, or WORKER_TURN rows of firings long. False: there was nothing to
 * do. It must not have queues that run ahead. */
bool worker_turn(struct worker *worker);

void worker_close(struct worker *worker);

#endif
