/* actors/session/session.h: the inside of a session (<weir/session.h>): everything that runs one plan, and how it ends.
 *
 *     session.c   open, start, wait, close            build.c   plan -> actors, ports, registers, edges, kernels
 *     host.c      bindings, push, pull                params.c  initial values, read, write
 *     stats.c     what a run did                      failure.c how it fails, or is cancelled
 *     owner.c     what workers ask of it              observe.c what the watch and reports see of it
 *     announce.c  the descriptor, what would not block
 *     ringer.c    the same for what other processes post
 *     caller.c    who may not call                    stop.c    how a run begins, and ends, also before its time
 *     queues.c    queues that run ahead               groups.c  what devices do together
 *     joined.c    several kernels by one launch       ranks.c   what other ranks see of it
 *
 *     actors/ending.c    the state of its end         actors/snapshot/  what lives from step to step, saved and loaded
 *     actors/cluster/    what there is with others    actors/debug/     runs that look at values, or spoil bytes
 *
 * actors/ending.h has the states that a session is in, and what makes it fail. A worker that hears of a failure fires no more;
 * `firing` counts those that have not heard of it, so that a run that failed returns only when nobody calls a function of
 * the user's any more. Only the session's own thread starts a run.
 */
#ifndef ACTORS_SESSION_SESSION_H
#define ACTORS_SESSION_SESSION_H

#include <pthread.h>
#include <weir/session.h>

#include "actors/actor.h"
#include "actors/cluster/owner.h"
#include "actors/crew.h"
#include "actors/session/caller.h"
#include "actors/watch/watch.h"
#include "actors/worker.h"
#include "graph/plan/form/plan.h"
#include "regst/arena.h"
#include "transport/mail/bus.h"
#include "transport/meet/report.h"
#include "transport/line/wire.h"

enum session_closing { CLOSING_NOT, CLOSING_WAKES, CLOSING_ALONE }; /* who waits inside is to go; nobody does */

struct cluster;

struct weir_session {
    struct home home;
    const weir_plan *given;  /* held */
    const weir_plan *plan;   /* that, or `spread` */
    weir_plan *spread;       /* owned; with several ranks: the plan with an owner for every device */
    struct cluster *cluster; /* owned; NULL: this process runs the whole plan */
    int64_t stall_ns;
    bool pin;                /* workers are bound to cores */
    bool poisons;            /* it is a debug run (actors/debug/poison.c) */
    bool checks_finite;      /* what kernels compute is looked at (actors/debug/finite.c) */
    const char *directory;   /* borrowed while it is opened: where disks' files are made; NULL: where the plan says */
    host_binding *bindings; /* owned; parallel to the plan's hosts */
    bool keeps;             /* some kernel has an `open` */
    uint32_t opened;        /* kernels, the first, whose `open` was called where there is one */
    struct arena *arenas;   /* by space */
    struct bus bus;

    struct crew *crew;      /* held: threads of those that compute, maybe of other sessions too */
    struct crew *beside;    /* owned: those of the others */
    bool guest;             /* the crew was another session's first */
    struct worker_owner owner; /* of the workers */
    struct cluster_owner ranks; /* of the cluster: this session, as other ranks see it */
    struct worker *workers; /* owned */
    uint32_t worker_count;
    uint32_t compute_count; /* of them: the first, which share the compute queues; the others have io queues */
    uint32_t *worker_of;    /* by queue; of outside queues it means nothing */
    struct lane *outside;   /* one per outside actor */
    uint32_t outside_count;
    struct lane **lane_of;  /* by actor */
    struct session_queues *queues; /* owned: those that run ahead of their devices; NULL: there is none */
    struct session_groups *groups; /* owned: what they do together; NULL: nothing */

    /* built from the plan, all owned; ids are the plan's unless said otherwise */
    struct actor *actors;
    struct actor_port *ports;    /* without those that read constants */
    struct edge_ends *ends;      /* by plan port */
    struct actor_out *outs;
    struct actor_edge *edges;    /* by register, and in it by port */
    struct actor_kernel *kernels;
    uint32_t *pending;
    weir_view *views;            /* by operand */
    struct slot_patch *patches;
    struct poison *poison;       /* NULL: it is no debug run */
    struct finite *finite;       /* NULL: nothing is looked at */
    struct lane_guard guard;     /* of the lanes, when other processes post to them */

    uint32_t program;      /* of the run that goes on, or of the last one */
    _Atomic int64_t *ran;  /* owned; by program: steps of the runs that are over */
    int64_t run_start_ns, run_end_ns;
    int64_t open_ns;
    struct trace_file trace; /* owned */
    struct watch *watch; /* owned; NULL: nobody watches */
    struct report report;
    char name[REPORT_NAME + 1]; /* in reports and traces */

    struct saver *saver; /* owned; NULL: nothing has been saved yet */

    struct ending ending;
    struct session_run run;
    _Atomic uint32_t running; /* workers that are not done with this run; one more while it is held, and one more while
                                 it follows others' */
    _Atomic uint32_t firing;  /* workers that have not heard of a failure (a futex word) */
    struct ringer *ringers;   /* owned; by lanes to which other processes post, with the descriptor */
    uint32_t ringer_count;
    _Atomic int ready_fd;     /* owned; -1: nobody has asked for one */
    _Atomic bool rung;        /* it is readable, or is about to be */
    struct place *place;      /* in the list of those that are open; NULL: it is not, yet */
    _Atomic uint32_t closing; /* enum session_closing */
};

/* Whether this process runs the actor, or owns the space. */
bool session_runs(const struct weir_session *session, uint32_t actor);
bool session_owns(const struct weir_session *session, uint32_t space);
uint32_t session_rank(const struct weir_session *session); /* this process's; alone: 0 */

/* ---- build.c ---- */

/* Makes everything from `lane_of` down to `patches`; actors are at rest, with the registers' initial slots. Lanes
 * must be known, arenas open, bindings resolved. */
weir_status session_build(struct weir_session *session);
void session_unbuild(struct weir_session *session);

/* The function that the kernel's device calls for its op (NULL: nobody knows that); an error where there is none. */
weir_status session_find_kernel(const struct weir_session *session, const plan_kernel *kernel, const weir_op *op,
                                weir_kernel_fn *call);

/* A view of the whole tensor without data; and as it lies in a slot. */
weir_view session_type_view(const plan_tensor *tensor);
weir_view session_view(const struct weir_session *session, const plan_tensor *tensor, uint32_t slot);

/* Whether what the port reads comes over the network, rather than being read where it lies. */
bool session_wired(const struct weir_session *session, uint32_t port);

/* Whether that comes to where the reader's kernel would put it. */
bool session_comes_in_place(const struct weir_session *session, uint32_t port);

/* Lines and messages under way of each lane. By worker, then by outside lane. */
void session_size_lanes(const struct weir_session *session, struct lane_size *sizes);

/* The number of an actor's lane: its worker, or worker_count + its place among the outside actors; UINT32_MAX for one
 * that another rank runs. */
uint32_t session_lane_number(const struct weir_session *session, uint32_t actor);

/* ---- queues.c ---- */

/* Opens the queues of this process's devices that run ahead: when arenas are open. */
weir_status session_open_queues(struct weir_session *session);

/* Prepares their kernels (device_ops.prepare): while arenas are zeros. */
weir_status session_prepare_kernels(const struct weir_session *session);

/* Ties them to actors, edges and workers: when all is built, before an actor is settled. */
weir_status session_tie_queues(struct weir_session *session);

/* Which kernels on them one launch may make (joined.c). */
void session_join_kernels(struct weir_session *session);

/* After the workers. */
void session_close_queues(struct weir_session *session);

/* That of a plan queue; NULL: it does not run ahead, or not here. */
struct ahead_queue *session_queue(const struct weir_session *session, uint32_t queue);

/* By the worker's thread: adds the oldest firing under way on each of its queues to its look, and what it awaits. */
void session_look_at_queues(const struct weir_session *session, struct worker *worker);

/* The firings under way, oldest first, as many as fit. By the thread that launches them. */
void session_under_way(const struct weir_session *session, const struct ahead_queue *queue, char *text, size_t bytes);

/* ---- groups.c ---- */

/* This process's members of collectives join their groups, and get their turns and meetings: when queues are tied,
 * before an actor is settled. E_UNSUPPORTED when a kind of device does nothing together. */
weir_status session_open_groups(struct weir_session *session);
weir_status session_join_groups(struct weir_session *session); /* with those of other ranks; when they are heard */

/* After the workers, before the queues. */
void session_close_groups(struct weir_session *session);

/* The devices that the actor does its part with, "fake:1, fake:3"; "" when it is a member of no collective. */
void session_companions(const struct weir_session *session, uint32_t actor, char *text, size_t bytes);

/* ---- failure.c ---- */

/* The queue that the actor was launched on failed: this is what the device says. By the worker's thread. */
void session_fail_queue(struct weir_session *session, const struct actor *actor, const char *sentence);

/* A kernel of the actor failed with this status and sentence ("" for none). */
void session_fail_kernel(struct weir_session *session, const struct actor *actor, const struct actor_kernel *kernel,
                         weir_status status, const char *sentence);

/* A kernel of the actor met, when it ran in this firing, what it cannot take. By the worker's thread. */
void session_fail_refused(struct weir_session *session, const struct actor *actor, const struct actor_kernel *kernel,
                          int64_t firing, const weir_refusal *refusal);

/* What is to be loaded is half there, and why. */
void session_fail_load(struct weir_session *session, weir_status status, const char *sentence);

/* That sentence with the user's file and line. */
void session_describe(const struct weir_session *session, const struct actor *actor, const struct actor_kernel *kernel,
                      const char *sentence, char *text, size_t bytes);

/* A source failed, and all steps before have been done. With the lock of `ending`. */
void session_fail_at_end(struct weir_session *session);

/* It cannot be opened, or a worker could not open its queues, and why; when others may wait for it. */
void session_fail_open(struct weir_session *session, weir_status status, const char *sentence);

/* Another rank is why the session cannot go on. */
void session_fail_peer(struct weir_session *session, uint32_t culprit, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Rank `from` says so. `cancelled`: rank `culprit` was told to end the session at once. */
void session_fail_told(struct weir_session *session, uint32_t from, uint32_t culprit, bool cancelled,
                       const char *sentence);

/* Reports the failure, once, with the last firings before it. When nothing fires any more. */
void session_tell_failure(struct weir_session *session);

/* ---- session.c ---- */

/* Waits until no worker of a session that has failed fires any more. */
void session_await_halted(const struct weir_session *session);

weir_status session_closes(const struct weir_session *session, const char *function); /* E_STATE: it is to go */

void session_order(struct weir_session *session, uint32_t orders); /* to all workers */
void session_order_outside(struct weir_session *session, uint32_t orders); /* to all outside lanes; announced, too */

/* ---- announce.c ---- */

/* Something that weir_session_ready() lists may have changed. Any thread. */
void session_announce(struct weir_session *session);

/* The thread owns the outside lane, for a push or pull; false: another thread is in it. And is done. */
bool session_take_lane(struct lane *lane);
void session_let_go(struct weir_session *session, struct actor *actor);

void session_close_fd(struct weir_session *session);

/* ---- ringer.c ---- */

/* For the descriptor, with the lock of `ending`: threads that hear what other processes post to pushes and pulls. */
weir_status session_open_ringers(struct weir_session *session);
void session_close_ringers(struct weir_session *session); /* when nobody is inside any more */

void ringer_watch(struct ringer *ringer); /* by the lane's owner, which sleeps elsewhere now */

/* ---- stop.c ---- */

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

/* ---- owner.c ---- */

void session_own(struct weir_session *session); /* makes session->owner */

/* ---- ranks.c ---- */

void session_own_ranks(struct weir_session *session); /* makes session->ranks */

/* ---- observe.c ---- */

/* Starts the watch, when stall_ns is not 0. After the workers are built. */
weir_status session_watch(struct weir_session *session, int64_t stall_ns);

/* By the worker's thread: what its actors lack, into its look. */
void session_look(struct weir_session *session, uint32_t worker);

/* The last firings of all workers, a line for each (actors/watch/flight.h); what does not fit is left out: of each, the
 * oldest. Returns the length, 0 when nothing has been fired. At rest or after all workers have halted. */
size_t session_flight_text(const struct weir_session *session, char *text, size_t bytes);

/* What this rank has done, for its sign of life. */
void session_beat(const struct weir_session *session, struct wire_frame *frame);

/* "for it waited here: ...", one line: what this rank's actors lacked of another's. "" when nothing. When no worker
 * fires any more. */
void session_waiters(const struct weir_session *session, uint32_t rank, char *text, size_t bytes);

/* ---- host.c ---- */

/* Gives each source, sink and call a function; E_ARGUMENT names the one without. */
weir_status session_bind(struct weir_session *session, const weir_session_opts *opts);

/* By the owner of an outside actor's lane: takes what has come. Whether push or pull (`verb`) would not wait now, and
 * what it would return. */
bool session_turn_comes(struct weir_session *session, struct actor *actor, const char *verb, weir_status *status);

/* Opens what this process's kernels keep (weir/op.h), when all is built and other ranks can be told that it failed; and
 * closes it, when nothing is fired any more, before kernels go. Closing does nothing where nothing was opened. */
weir_status session_open_calls(struct weir_session *session);
void session_close_calls(struct weir_session *session);

/* With other ranks: takes what they have still to publish for this rank's pulls, and drops it, so that they can end
 * their run. At rest. */
void session_drop_pulls(struct weir_session *session);

/* ---- actors/snapshot/state.c ---- */

/* For whoever looks at what lives from step to step: at rest, or failed, and then nothing fires any more. */
weir_status session_check_still(const struct weir_session *session, const char *verb);

/* Whether the actor that changes the tensor failed in the middle of it. */
bool session_torn(const struct weir_session *session, const plan_tensor *tensor);

/* weir_session_step(), also of one that is being opened or closed. */
int64_t session_step(const struct weir_session *session);

/* The main program goes on at step `step`, whatever it did before. At rest. */
void session_set_step(struct weir_session *session, int64_t step);

/* ---- actors/snapshot/save.c ---- */

/* Has the system give the pages of the snapshots now, rather than in the first save. */
void session_touch_snapshots(const struct weir_session *session);

/* Waits for a save that is being written. Also when there has been none. end: and there will be none. */
void session_await_save(struct weir_session *session);
void session_end_saves(struct weir_session *session);

/* ---- params.c ---- */

/* E_ARGUMENT, in words that begin with "weir_session_" and `verb`, when there is none of this name. */
weir_status session_find_param(const struct weir_session *session, const char *verb, const char *name,
                               const plan_param **param);

/* Shard `i` of a parameter; whether an earlier one has the same elements; whether this rank holds it. */
const plan_tensor *session_shard(const struct weir_session *session, const plan_param *param, uint32_t i);
bool session_shard_again(const struct weir_session *session, const plan_param *param, uint32_t i);
bool session_owns_tensor(const struct weir_session *session, const plan_tensor *tensor);

/* The slot in which the k-th oldest is now of the values of a shard that are kept from step to step. */
uint32_t session_kept_slot(const struct weir_session *session, const plan_tensor *tensor, uint32_t k);

/* Whether the user's array has the dtype and the logical shape of the tensor; the error starts with `what`. */
weir_status session_check_array(const char *what, const plan_tensor *tensor, const weir_array *value);

/* Where the reader at a plan port finds the tensor now, in a slot of its register. */
const char *session_port_data(const struct weir_session *session, uint32_t port, const plan_tensor *tensor,
                              uint32_t slot);

/* Fills what has an initial value. */
weir_status session_fill(struct weir_session *session);

/* ---- actors/debug/finite.c, poison.c ---- */

/* A session that checks values, or is a debug run, calls its kernels through a function in front of them. These put it there when
 * kernels, ports and registers are built, in this order: the second spoils outputs that nobody reads. The others free what was
 * made for it; without, it is NULL. */
weir_status session_check_finite(struct weir_session *session);
weir_status session_poison(struct weir_session *session);
void session_unfinite(struct weir_session *session);
void session_unpoison(struct weir_session *session);

/* OK, or the error: of what is pushed, and of what is pulled where it was made by a device whose kernels are not looked at.
 * Without .check_finite: OK. */
weir_status finite_pushed(const struct weir_session *session, const char *name, const weir_array *value);
weir_status finite_pulled(const struct weir_session *session, const char *name, const weir_array *value, int64_t step);

#endif
