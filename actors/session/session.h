/* actors/session/session.h: the inside of a session (<weir/session.h>): everything that runs one plan, and how it ends.
 *
 * A session is made of parts. Each has a header, which says who owns it, and the files that make and change it:
 *
 *     built        memory, actors, edges, kernels          actors/built/, build.c, params.c (initial values, read, write)
 *     workers.h    threads and what they run               workers.c, owner.c (what workers ask of a session)
 *     outside.h    lanes of pushes and pulls               outside.c
 *     devices.h    queues that run ahead, groups           queues.c, groups.c
 *     callbacks.h  the user's functions                    callbacks.c
 *     progress.h   the run: begin, steps, stop             stop.c, stats.c
 *     observed.h   watch, reports, trace                   observe.c
 *     caller.h     who may call                            caller.c
 *     ending       why and how it ends (actors/ending.h)   failure.c
 *     cluster      other ranks (actors/cluster/)           ranks.c (what they see of this one)
 *     debug        actors/debug/debug.h                    actors/debug/
 *     weights.h    parameters that stay in files           weights.c
 *     snapshots    what lives from step to step, kept      actors/snapshot/, state.c
 *
 * actors/ending.h has the states of a session, and what makes it fail. A worker that sees a failure fires no more actors.
 * progress.firing counts the workers that have not seen it yet. A failed run returns only when it is 0, so no worker calls a
 * function of the user after that. Only the session's own thread starts a run.
 */
#ifndef ACTORS_SESSION_SESSION_H
#define ACTORS_SESSION_SESSION_H

#include <pthread.h>
#include <weir/session.h>

#include "actors/built/built.h"
#include "actors/cluster/owner.h"
#include "actors/crew.h"
#include "actors/debug/debug.h"
#include "actors/session/caller.h"
#include "actors/session/callbacks.h"
#include "actors/session/devices.h"
#include "actors/session/observed.h"
#include "actors/session/outside.h"
#include "actors/session/progress.h"
#include "actors/session/weights.h"
#include "actors/session/workers.h"
#include "actors/snapshot/snapshot.h"
#include "transport/mail/bus.h"

struct weir_session {
    const weir_plan *given;     /* held */
    const weir_plan *plan;      /* that, or `spread`; the same as built.plan */
    weir_plan *spread;          /* owned; with several ranks: the plan with an owner for every device */
    struct session_callers callers;
    struct session_callbacks callbacks;
    struct session_devices devices;
    struct session_workers workers;
    struct session_outside outside;
    struct built built;
    struct session_weights weights;
    struct session_debug debug;
    struct session_progress progress;
    struct session_run run;
    struct ending ending;
    struct session_observed observed;
    struct cluster_owner ranks; /* of the cluster: this session, as other ranks see it */
    struct snapshots snapshots; /* this session, as saving and loading see it */
    struct bus bus;
};

/* ---- build.c ---- */

/* Makes all of `built` that is not there yet; actors are at rest, with the registers' initial slots. Lanes must be known,
 * arenas open, bindings resolved. */
weir_status session_build(struct weir_session *session);
void session_unbuild(struct weir_session *session);

/* *call: the function that the kernel's device calls for `op` (NULL: an unknown op). An error where there is none. */
weir_status session_find_kernel(const struct weir_session *session, const plan_kernel *kernel, const weir_op *op,
                                weir_kernel_fn *call);

/* `sizes`: of each lane, how many actors, lines and messages under way it has to hold; first of the workers, then of the
 * outside lanes. */
void session_size_lanes(const struct weir_session *session, struct lane_size *sizes);

/* The number of an actor's lane: its worker, or the count of workers + its place among the outside actors; UINT32_MAX for
 * one that another rank runs. */
uint32_t session_lane_number(const struct weir_session *session, uint32_t actor);

/* ---- failure.c ---- */

/* The queue that the actor was launched on failed: this is what the device says. By the worker's thread. */
void session_fail_queue(struct weir_session *session, const struct actor *actor, const char *sentence);

/* A kernel of the actor failed with this status and sentence ("" for none). */
void session_fail_kernel(struct weir_session *session, const struct actor *actor, const struct actor_kernel *kernel,
                         weir_status status, const char *sentence);

/* In this firing a kernel of the actor got a value that it does not accept. By the worker's thread. */
void session_fail_refused(struct weir_session *session, const struct actor *actor, const struct actor_kernel *kernel,
                          int64_t firing, const weir_refusal *refusal);

/* A load has ended half way, and why. */
void session_fail_load(struct weir_session *session, weir_status status, const char *sentence);

/* Writes to `text` the sentence with the user's file and line. */
void session_describe(const struct weir_session *session, const struct actor *actor, const struct actor_kernel *kernel,
                      const char *sentence, char *text, size_t bytes);

/* A source failed, and all steps before have been done. With the lock of `ending`. */
void session_fail_at_end(struct weir_session *session);

/* The session, or a worker's queues, cannot be opened; `sentence` says why. Called when other ranks may wait for this one. */
void session_fail_open(struct weir_session *session, weir_status status, const char *sentence);

/* Another rank is why the session cannot go on. */
void session_fail_peer(struct weir_session *session, uint32_t culprit, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Rank `from` reports a failure that rank `culprit` caused. `cancelled`: rank `culprit` was told to end the session at once. */
void session_fail_remote(struct weir_session *session, uint32_t from, uint32_t culprit, bool cancelled,
                       const char *sentence);

/* Reports the failure, once, with the last firings before it. When nothing fires any more. */
void session_tell_failure(struct weir_session *session);

/* ---- session.c ---- */

/* Waits until no worker of a session that has failed fires any more. */
void session_await_halted(const struct weir_session *session);

weir_status session_closes(const struct weir_session *session, const char *function); /* E_STATE: it is to go */

void session_order(struct weir_session *session, uint32_t orders); /* to all workers */
void session_order_outside(struct weir_session *session, uint32_t orders); /* to all outside lanes; announced, too */

/* ---- owner.c ---- */

void session_own(struct weir_session *session); /* makes session->owner */

/* ---- ranks.c ---- */

void session_own_ranks(struct weir_session *session); /* makes session->ranks */

/* ---- params.c ---- */

/* E_ARGUMENT, in words that begin with "weir_session_" and `verb`, when there is none of this name. */
weir_status session_find_param(const struct weir_session *session, const char *verb, const char *name,
                               const plan_param **param);

/* Whether the user's array has the dtype and the logical shape of the tensor; the error starts with `what`. */
weir_status session_check_array(const char *what, const plan_tensor *tensor, const weir_array *value);

/* Fills what has an initial value. */
weir_status session_fill(struct weir_session *session);

/* ---- onnx.c ---- */

/* Whether a path names an ONNX file: it ends with .onnx, and is no folder. */
bool session_is_onnx(const char *path);
/* weir_session_load() of such a file. On all ranks. */
weir_status session_load_onnx(struct weir_session *session, const char *path, const weir_load_opts *opts);

/* ---- state.c ---- */

/* OK if values that live from step to step may be read: the session is at rest, or has failed and nothing fires any more. Else
 * E_STATE. */
weir_status session_check_still(const struct weir_session *session, const char *verb);

/* Whether the actor that changes the tensor failed in the middle of it. */
bool session_torn(const struct weir_session *session, const plan_tensor *tensor);

/* weir_session_step(), also of one that is being opened or closed. */
int64_t session_step(const struct weir_session *session);

/* The main program goes on at step `step`, whatever it did before. At rest. */
void session_set_step(struct weir_session *session, int64_t step);

void session_own_snapshots(struct weir_session *session); /* makes session->snapshots */

#endif
