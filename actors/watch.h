/* actors/watch.h: what a session says when nothing happens any more, and when it fails.
 *
 * Flight recorder. Each worker keeps its last FLIGHT_FIRINGS firings in a ring that only it writes; a firing costs one
 * store of 16 bytes. When a run fails they are written to the report.
 *
 * Stall. A thread of its own looks at the workers' firing counts. When neither they nor those of other ranks have
 * changed for stall_ns although a run is not over, it asks each worker (MESSAGE_LOOK) to write down which of its actors
 * wait, and for whom (struct wait_entry); a worker that does not answer is inside a kernel, and its recorder says in
 * which. Ranks send each other what they found, and each follows the chain from what waits to what it waits for until
 * it ends at a culprit: an input that nobody pushes, a fetch that nobody pulls, a kernel that has run for so long, a
 * rank that says nothing. The report is one text with one line per link. A stall is reported once; then again only
 * after something has fired.
 *
 * Owner: the session. Looking reads no counter of a running worker: workers write, the watch reads after they told so.
 */
#ifndef ACTORS_WATCH_H
#define ACTORS_WATCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <weir/base.h>

struct weir_session;
struct watch;

#define FLIGHT_FIRINGS 64

struct flight_entry {
    uint32_t actor;
    uint32_t micro;
    int64_t step;
};

/* In each worker. `fired` counts all firings; the entry of firing n lies at n % FLIGHT_FIRINGS. It is written before the
 * kernels are called, so the last one is what a worker that hangs is doing. */
struct flight {
    _Atomic uint64_t fired;
    struct flight_entry entries[FLIGHT_FIRINGS];
};

enum wait_why {
    WAIT_INPUT = 1, /* `actor` has nothing to read at a port; `on` is the producer of its register `regst` */
    WAIT_ROOM,      /* its register `regst` has no free slot; `on` is a reader that has not freed one */
    WAIT_FIRING     /* it has been inside its kernels all the time */
};

/* As it goes over the wire, all little-endian. */
struct wait_entry {
    uint32_t actor, on, regst, why;
};
_Static_assert(sizeof(struct wait_entry) == 16, "16 bytes on the wire");

/* Starts the thread; stall_ns 0: no thread, nothing is watched. *watch is NULL then. After the workers are built. */
weir_status watch_open(struct watch **watch, struct weir_session *session, int64_t stall_ns);
void watch_close(struct watch *watch); /* joins it; also NULL; before the workers stop */

/* What another rank waits for; any thread. Entries are checked. */
void watch_remote(struct watch *watch, uint32_t rank, const struct wait_entry *entries, uint32_t count);

/* The last firings of all workers as text, oldest first ("worker 0: step 3.1 h0/q on cpu:0; ..."), for the report of a
 * failure. At rest or after all workers have halted. */
void watch_flight_text(const struct weir_session *session, char *text, size_t bytes);

/* ---- what it needs of the session when there are other ranks (actors/cluster.c); with one rank: 0, nothing ---- */

/* Firings of all other ranks as last heard, and the rank that has been silent longest (UINT32_MAX: none for longer
 * than a beat), for how long. */
uint64_t session_remote_fired(const struct weir_session *session, uint32_t *silent_rank, int64_t *silent_ns);
void session_send_waits(struct weir_session *session, const struct wait_entry *entries, uint32_t count);

#endif
