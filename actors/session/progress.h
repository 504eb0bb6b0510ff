/* actors/session/progress.h: how a run begins, how far it is, and how it ends, also before its time: stop.c.
 */
#ifndef ACTORS_SESSION_PROGRESS_H
#define ACTORS_SESSION_PROGRESS_H

#include <weir/session.h>
#include "actors/actor.h"
#include "actors/ending.h"

struct session_progress {
    uint32_t program;         /* of the run that goes on, or of the last one */
    _Atomic int64_t *ran;     /* owned; by program: steps of the runs that are over */
    int64_t start_ns, end_ns; /* of the last run */
    int64_t open_ns;
    _Atomic uint32_t running; /* workers that are not done with this run; one more while it is held, and one more while it
                                 follows others' */
    _Atomic uint32_t firing;  /* workers that have not heard of a failure (a futex word) */
};

/* The run of the program begins. By the session's thread. */
weir_status session_begin(struct weir_session *session, uint32_t program, const weir_run_opts *run);

/* By a worker: it is done with the run. The last ends it. */
void session_leave_run(struct weir_session *session);

/* By a worker: somebody may have called weir_session_stop(); it has begun so many steps of the run, and holds (`again`:
 * it was done, and will leave the run once more). */
void session_asked(struct weir_session *session);
void session_held(struct weir_session *session, int64_t begun, bool again);

/* Whether the kernel is a source, or a call that reads nothing; it has no value for the step that its actor is in. */
bool session_is_source(const struct weir_session *session, const struct actor_kernel *kernel);
void session_end_source(struct weir_session *session, const struct actor *actor, const struct actor_kernel *kernel,
                        weir_status status, const char *sentence);

/* No step from last->end on is done. False: that is no news. Any thread. */
bool session_end_before(struct weir_session *session, const struct last_step *last);

/* Steps done since open; while a run is under way, before it. Whether none is. Any thread. */
int64_t session_steps(const struct weir_session *session);
int64_t session_steps_of(const struct weir_session *session, uint32_t program);
int64_t session_steps_all(const struct weir_session *session);
bool session_at_rest(const struct weir_session *session);

uint32_t session_program(const struct weir_session *session); /* of the run that goes on, or of the last one. Any thread */

/* How many runs have begun. Any thread. */
uint64_t session_run_number(const struct weir_session *session);

/* With the lock of `ending`: the run, which goes, is held; it ends before this step (WIRE_WHOLE_RUN: at its own end),
 * and then session_leave_run() is due without the lock. */
void session_hold_begin(struct weir_session *session);
bool session_followed(struct weir_session *session, int64_t step); /* the run that this rank follows is over elsewhere */
void session_hold_end(struct weir_session *session, int64_t step);

#endif
