/* actors/watch/watch.h: what a session says when nothing happens any more.
 *
 * A thread of its own looks at the workers' flight recorders. When neither they nor those of other ranks have moved
 * for stall_ns although a run is not over, it asks each worker (actors/worker.h) to write down which conditions of its
 * actors do not hold (struct wait_entry). A worker that does not answer is inside a kernel, and its recorder says in
 * which. Ranks send each other what they found, and each follows the chain from what waits to what it waits for
 * (actors/watch/waits.h) and reports it. A stall is reported once; then again only after something has fired.
 *
 *     worker:  ... asleep --- LOOK ---> writes its entries, answered + 1 --> asleep ...
 *     watch:   asleep, stall/4 --> nothing has moved: posts LOOKs --> reads the entries of those that answered
 *
 * It knows recorders, looks and a plan, and neither a session nor a worker: what else it asks for are functions that
 * its owner, the session, gives it. It reads no counter of an actor: workers write, and the watch reads after they told
 * so. Counters that workers write lie in the worker, so that a worker that answers late harms nobody.
 */
#ifndef ACTORS_WATCH_WATCH_H
#define ACTORS_WATCH_WATCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <weir/base.h>

#include "actors/watch/flight.h"
#include "actors/watch/waits.h"

#define WATCH_TEXT_BYTES 16384 /* of a report at most */

struct watch;

/* In each worker: its answer when it is asked. */
struct look {
    struct wait_entry *entries; /* owned */
    uint32_t room, count;
    _Atomic uint32_t answered;  /* how often (a futex word) */
};

/* Room for so many entries: one for each end of the worker's actors. */
weir_status look_open(struct look *look, uint32_t room);
void look_close(struct look *look); /* also a zeroed one */

/* By the worker's thread, when it is asked: begins, adds, ends, which is the answer. Allocates nothing. Nothing is
 * added to one that was not opened. */
void look_begin(struct look *look);
void look_add(struct look *look, struct wait_entry entry);
void look_end(struct look *look);

/* What is watched. `workers` is read when the watch is opened; all else is borrowed until it is closed. */
struct watch_worker {
    const struct flight *flight;
    struct look *look;
};
struct watch_opts {
    const weir_plan *plan;
    const uint32_t *worker_of; /* by queue, of those of rank `rank` */
    const struct watch_worker *workers;
    uint32_t worker_count;
    uint32_t rank;
    int64_t stall_ns;   /* 0: nothing is watched */

    /* By the watch's thread, without a lock. */
    void *ctx;
    bool (*running)(void *ctx);
    void (*ask)(void *ctx, uint32_t worker); /* to write its look; does not wait for it */
    bool (*waits_turn)(void *ctx, uint32_t worker); /* its thread runs another session's at the moment */
    uint32_t (*pulls)(void *ctx, struct wait_entry *entries); /* what this rank's program waits in, at most one for each
                                                                 of the plan's hosts; returns how many */
    void (*report)(void *ctx, const char *text);
    /* Firings of all other ranks as last heard, and what else shows that something moves between ranks (it rises); the
     * rank that has been silent longest (UINT32_MAX: none for longer than a beat), for how long. Alone: 0, none. */
    uint64_t (*others_fired)(void *ctx, uint32_t *silent_rank, int64_t *silent_ns);
    void (*tell_others)(void *ctx, const struct wait_entry *entries, uint32_t count);
};

/* Starts the thread. stall_ns 0: no thread, and *watch is NULL. */
weir_status watch_open(struct watch **watch, const struct watch_opts *opts);
void watch_close(struct watch *watch); /* joins it; also NULL; before the workers stop */

/* Notes the waits of another rank, `count` entries at any address; any thread, but not after watch_close() has begun. Also
 * NULL. Entries are checked; those that make no sense are passed over. */
void watch_remote(struct watch *watch, uint32_t rank, const void *entries, uint32_t count);

#endif
