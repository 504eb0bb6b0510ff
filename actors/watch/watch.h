/* actors/watch/watch.h: what a session says when nothing happens any more.
 *
 * A thread of its own looks at the workers' flight recorders. When neither they nor those of other ranks have moved
 * for stall_ns although a run is not over, it asks each worker (LANE_LOOK) to write down which conditions of its
 * actors do not hold (struct wait_entry). A worker that does not answer is inside a kernel, and its recorder says in
 * which. Ranks send each other what they found, and each follows the chain from what waits to what it waits for
 * (actors/watch/waits.h) and reports it. A stall is reported once; then again only after something has fired.
 *
 *     worker:  ... asleep --- LOOK ---> writes its entries, answered + 1 --> asleep ...
 *     watch:   asleep, stall/4 --> nothing has moved: posts LOOKs --> reads the entries of those that answered
 *
 * Owner: the session. The watch reads no counter of an actor: workers write, and the watch reads after they told so.
 * What workers write lies in the worker, so that a worker that answers late harms nobody.
 */
#ifndef ACTORS_WATCH_WATCH_H
#define ACTORS_WATCH_WATCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <weir/base.h>

#include "actors/watch/waits.h"

struct weir_session;
struct worker;
struct watch;

/* In each worker: its answer to LOOK. */
struct look {
    struct wait_entry *entries; /* owned; a place for each end of its actors */
    uint32_t room, count;
    _Atomic uint32_t answered;  /* LOOKs (a futex word) */
};

/* By the worker's thread, when it gets LOOK. Allocates nothing. */
void look_write(struct look *look, const struct worker *worker);
void look_close(struct look *look);

/* Starts the thread; stall_ns 0: no thread, nothing is watched. *watch is NULL then. After the workers are built. */
weir_status watch_open(struct watch **watch, struct weir_session *session, int64_t stall_ns);
void watch_close(struct watch *watch); /* joins it; also NULL; before the workers stop */

/* What another rank waits for, `count` entries at any address; any thread, but not after watch_close() has begun. Also
 * NULL. Entries are checked; those that make no sense are passed over. */
void watch_remote(struct watch *watch, uint32_t rank, const void *entries, uint32_t count);

/* What the workers of this process have recorded, all together; any thread. It moves when something fires. */
uint64_t watch_fired(const struct weir_session *session);

/* ---- what it needs of the session when there are other ranks (actors/session/cluster.c); with one rank: 0, nothing ---- */

/* Firings of all other ranks as last heard, and the rank that has been silent longest (UINT32_MAX: none for longer
 * than a beat), for how long. */
uint64_t session_remote_fired(const struct weir_session *session, uint32_t *silent_rank, int64_t *silent_ns);
void session_send_waits(struct weir_session *session, const struct wait_entry *entries, uint32_t count);

#endif
