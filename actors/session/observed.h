/* actors/session/observed.h: what others see of a session: the watch, reports, the trace. observe.c has it.
 */
#ifndef ACTORS_SESSION_OBSERVED_H
#define ACTORS_SESSION_OBSERVED_H

#include <weir/session.h>
#include "actors/watch/watch.h"
#include "transport/meet/report.h"
#include "transport/line/wire.h"

struct session_observed {
    struct trace_file trace;    /* owned */
    struct watch *watch;        /* owned; NULL: nobody watches */
    int64_t stall_ns;
    struct report report;
    char name[REPORT_NAME + 1]; /* in reports and traces */
};

/* Starts the watch, when stall_ns is not 0. After the workers are built. */
weir_status session_watch(struct weir_session *session, int64_t stall_ns);

/* By the worker's thread: what its actors lack, into its look. */
void session_look(struct weir_session *session, uint32_t worker);

/* The last firings of all workers, a line for each (actors/watch/flight.h); what does not fit is left out: of each, the
 * oldest. Returns the length, 0 when nothing has been fired. At rest or after all workers have halted. */
size_t session_flight_text(const struct weir_session *session, char *text, size_t bytes);

/* Fills the sign of life with the work that this rank has done. */
void session_beat(const struct weir_session *session, struct wire_frame *frame);

/* "these waited for it here: ...", one line: what this rank's actors lacked of another's. "" when nothing. When no worker
 * fires any more. */
void session_waiters(const struct weir_session *session, uint32_t rank, char *text, size_t bytes);

#endif
