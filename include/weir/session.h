/* weir/session.h: run a plan.
 *
 *     weir_session *s = weir_session_open(plan, .trace = "run.json");
 *     weir_status st = weir_session_run(s, 100);      // 100 steps
 *     weir_session_close(s);
 *
 * Opening allocates every byte that the run will use, starts the workers and fills the parameters. A run of n steps is
 * over when every actor has fired as often as n steps ask, or as fewer do when it is stopped; the session is then at
 * rest: parameters may be read and written, and the next run goes on at the next step. Values come in through sources
 * and weir_session_push(), and go out through sinks and weir_session_pull(); push waits while the plan has no room,
 * pull while there is no value.
 *
 * Sources, sinks and calls run beside the workers: for each device that has any, and for each .queue that they name
 * there (up to 64 in all; further ones share these threads), there is a thread that waits for them, and costs no core
 * while it does. So a slow one is hidden behind the computing of a run of several steps, or
 * micro-batches, as long as it takes less time than that.
 *
 * Any number of sessions, of one plan or of several, run side by side. With .workers_of the threads that compute are those
 * that another session has, or has room for: all that share them have at most as many as its .workers says (cores, if it
 * says nothing), however many sessions there are, and each session's results are as if it were alone. A worker of each
 * takes turns with those of others, between firings: a kernel that takes long holds up the others of its thread, and a stop
 * waits for at most one turn of each. An error of one is not the others', and close waits for none of them. The threads live
 * until the last session that shares them is closed, in any order. Sources, sinks and calls have threads of their session's.
 * .pin is that of the first. E_UNSUPPORTED: one of them has several ranks, or accelerators.
 *
 * A session is called what .cluster.name says, or as its plan, with a number when it is not the first of the process. Its
 * trace says so, and so do reports ("session 'gpt (2)': ...") where it has a name of its own or others are open.
 *
 * Cores are those of the mask that the process was started with, as taskset, srun, a container or `weir launch` gave
 * it; or as many as its control groups' quota of time is worth (cpu.max: docker --cpus, CPUQuota=), rounded up, if these are
 * fewer. A later change by libraries or the program (OMP_PROC_BIND has libgomp bind the thread that main() runs on) takes no
 * core away from the workers. Ranks of one host that pin take the cores of their masks one behind the other in rank order,
 * each as many as it has workers, and begin again where there are no more.
 *
 * A source that has no more values says WEIR_END. The steps before are finished, on all ranks; what they made can be
 * pulled; then run, wait, push and pull return WEIR_E_END, and so does every run after. The session is at rest. If several
 * sources end, the one with the fewest steps counts. If a step ends at a later micro-batch, pull may have given values of the
 * earlier ones. When a source fails, all steps before are finished in the same way, and what they made can be pulled, before
 * the session has failed.
 *
 * A failed session stays failed: push, pull, run and wait return the same error; close it. When the run that failed, or
 * wait before its time was over, has returned it, no function that the user gave is being called any more. The learned values
 * can still be looked at (read, params, visit), with the step that they belong to.
 *
 * Each function may be called by these threads, at these times:
 *
 *                         thread                          at the same time, of the same session
 *     open                any                             (sessions of several ranks: by name, <weir/cluster.h>)
 *     run, start, wait,   any, one of these at a time     push, pull
 *     read, write, step,
 *     params, visit,
 *     get_stats, save,
 *     load, save_wait
 *     push, pull          any, one per input or fetch     all but close
 *     stop, cancel        any                             all but close
 *     fd, ready, link     any, ready one at a time        all but close
 *     close               any                             nothing may begin; those in push, pull, wait are sent away
 *
 *     NULL: E_ARGUMENT; close, stop and cancel take it for nothing to do. A session that has been closed, or is being
 *     closed by another thread: E_STATE, from a second close too, as long as no session that was opened later lies where it
 *     lay. Two threads in push, or in pull, of the same name: the second one gets E_STATE
 *
 *     save and load: on all ranks, at rest. While an asynchronous save is being written the session may run and be read;
 *     the next save, load and close wait for it, and a session that is cancelled gives it up. A source's save and
 *     restore are called by the thread that calls save and load
 *
 *     inside a source, a sink or a call (on their device's thread): another session's functions like anywhere. On the session
 *     itself only stop, cancel, and push and pull with a timeout, which hold up that thread; the others return
 *     WEIR_E_STATE, as it would wait for itself
 *     inside the open and close of a call or an op: another session's functions; of the session itself none
 *     inside a function that gets a report: stop; the others return WEIR_E_STATE
 *     inside a signal handler: stop
 *     in a child of fork(): of a session that it has of its parent none; they return WEIR_E_STATE, close too, which
 *     releases nothing then: the parent goes on. get_stats and step say what was when the child was made. It may build
 *     graphs, compile, and open sessions of its own. Until it ends or calls exec() it holds the parent's connections
 *     open, so other ranks notice the end of the parent only by its silence
 */
#ifndef WEIR_SESSION_H
#define WEIR_SESSION_H

#include <weir/cluster.h>
#include <weir/plan.h>

WEIR_C_BEGIN

typedef struct weir_session weir_session;

/* Gives the source, sink or call of this name in the plan (again) a function. Exactly one of the three is set. */
typedef struct weir_binding {
    const char *name;
    weir_source_fn source;
    weir_sink_fn sink;
    weir_kernel_fn call;
    void *ctx;
    weir_source_save_fn save; /* of a source's position [none] */
    weir_source_restore_fn restore;
    weir_open_fn open;        /* of a call's state [none] */
    weir_close_fn close;
} weir_binding;

typedef struct weir_session_opts {
    size_t size;
    weir_src src;
    size_t binding_size;           /* sizeof(weir_binding), which weir_session_open() sets */
    int workers;                   /* that compute [as devices, at most as cores, see above]; more than there are devices
                                      would have no work, and are not started (stats.workers); changes no result */
    weir_session *workers_of;      /* that compute are those of another session, see above [its own] */
    bool pin;                      /* worker k is bound to the k-th of those cores [WEIR_PIN, or not] */
    bool poison;                   /* a debug run: memory that the plan does not need at the time is filled with NaN, so
                                      that a kernel that reads it is noticed; slower, same results [WEIR_POISON, or not] */
    bool check_finite;             /* a NaN or infinity that a kernel makes on a CPU ends the run as its failure (E_KERNEL):
                                      the sentence names the op, with file and line, its step and micro-batch, which
                                      output and where in it. Values of accelerators are looked at where they reach the
                                      host, in sinks, calls and pulls: then it names these. With .precision = WEIR_F16
                                      gradients may overflow, and only forward is looked at. Each rank looks at its own.
                                      It changes no result; each value that is made is read once more [false] */
    const char *offload;           /* "disk:DIRECTORY": where what the plan lets wait on a disk does so here, rather than
                                      where it was compiled for [WEIR_OFFLOAD, or what the plan says] */
    const char *trace;             /* file that gets a Chrome/Perfetto trace when the session closes; the process in it
                                      has the session's name, see above [none] */
    int64_t trace_events;          /* kept, per worker, the last ones [1 << 18] */
    const weir_binding *bindings;  /* before those that the plan got from its graph; ends at name NULL */
    int64_t first_step;            /* number of the first step, for schedules and random streams [0] */
    weir_cluster_opts cluster;     /* [what the environment says] */
    double stall_s;                /* report when nothing moved for so long; < 0: never [WEIR_STALL, or 10] */
    weir_report_fn report;         /* gets reports [they go to stderr] */
    void *report_ctx;
} weir_session_opts;

/* NULL and weir_error() when there is no memory, no thread, an op without a kernel, a host function without a
 * binding. The session keeps the plan: it may be freed before the session is closed. */
#define weir_session_open(plan, ...) \
    weir_session_open_at(plan, WEIR_OPTS(weir_session_opts, .binding_size = sizeof(weir_binding), __VA_ARGS__))
weir_session *weir_session_open_at(const weir_plan *plan, const weir_session_opts *opts);

/* Stops the workers and frees everything. May be called in any state, also on NULL; values not pulled are lost. Other
 * threads that are in push, pull or wait return E_STATE, and close waits until they have. E_IO: the trace cannot be
 * written. E_STATE: nothing was closed, in a child of fork() or inside a callback. */
weir_status weir_session_close(weir_session *session);

typedef struct weir_run_opts {
    size_t size;
    weir_src src;
    int64_t steps;
    const char *program; /* weir_graph_program() ["main"] */
    int64_t first_step;  /* number of its first step, for a program other than main [0] */
} weir_run_opts;

/* start: begins n > 0 steps and returns. wait: until they are over (timeout_ms < 0: for ever). run: both. E_STATE: a
 * run is under way (start), or the caller may not call. E_END: a source of main has no more values; steps before that
 * were done.
 *     weir_session_run(s, 100);                          // of main
 *     weir_session_run(s, 10, .program = "eval");
 * Steps of main are counted from run to run: where one has ended the next goes on, and weir_session_step() tells where
 * that is. The steps of another program begin at .first_step in each run, so that the run is the same whatever ran before. A
 * program reads what others have made as their last run left it. With several ranks the first run of another program than
 * before begins when all ranks have called for it. */
#define weir_session_start(session, ...) weir_session_start_at(session, WEIR_OPTS(weir_run_opts, .steps = __VA_ARGS__))
#define weir_session_run(session, ...) weir_session_run_at(session, WEIR_OPTS(weir_run_opts, .steps = __VA_ARGS__))
/* When the run fails: E_KERNEL of a kernel or a device; of a source, a sink or a call the status that it returned, as
 * E_IO (E_KERNEL for END, E_END, E_TIMEOUT, E_PEER and E_CANCELLED, which say something else here); E_PEER on the other
 * ranks, with the sentence of the first; E_CANCELLED after weir_session_cancel(). */
weir_status weir_session_start_at(weir_session *session, const weir_run_opts *opts);
weir_status weir_session_wait(weir_session *session, int timeout_ms);
weir_status weir_session_run_at(weir_session *session, const weir_run_opts *opts);

/* Ends the run under way, on all ranks, after the earliest step with which all can end, which is soon: no actor begins
 * a step that none has begun yet. Any rank may say so, or several. run and wait return WEIR_OK; the session is at rest,
 * get_stats tells how many steps were done, and the next run goes on from there, with the same results as if this one
 * had been asked for that many. A step that has begun is finished: values for it still have to be pushed, and pulled.
 *
 * A stop holds until it has made a run shorter. One that comes at rest ends the next run before its first step; one
 * that comes when a run is in its last step anyway, the run after it. To learn whether there was one, compare the steps done
 * with those asked for.
 *
 * From any thread, a function of the session's and a signal handler, at any time between open and close. Does not wait.
 * In a child of fork() it does nothing. */
void weir_session_stop(weir_session *session);

/* Ends the session at once: as soon as the kernels under way return. run, wait, push and pull return WEIR_E_CANCELLED,
 * on all ranks; it is as after a failure, but nothing is reported. From any thread, also from a function of the
 * session's; does not wait. OK also when the session has failed already. E_STATE: in a child of fork(), or in a
 * report. */
weir_status weir_session_cancel(weir_session *session);

/* Copies one value of the input `name` into the plan's own memory. WEIR_E_TIMEOUT when there is no room in time (< 0:
 * wait for ever); WEIR_E_ARGUMENT for a wrong name, dtype or shape, which harms nothing. Values may be pushed before
 * start. If the session is at rest and no run will make room (or a value), the call would wait for ever and returns E_STATE
 * instead; also when the run ends meanwhile. */
weir_status weir_session_push(weir_session *session, const char *name, const weir_array *value, int timeout_ms);
/* Copies the next value of the fetch `name` to value->data; value->dtype and shape must be right. A value that has arrived
 * is given out also when the session has failed since, but not when it was cancelled. */
weir_status weir_session_pull(weir_session *session, const char *name, weir_array *value, int timeout_ms);

/* ---- in an event loop ----
 *
 * A program that waits in a loop of its own (poll, epoll, libuv, GLib) adds the session's descriptor to it, for reading,
 * and calls weir_session_ready() whenever it is readable:
 *
 *     weir_ready ready[8];
 *     int count = weir_session_ready(s, ready, 8);
 *     for (int i = 0; i < count && i < 8; i++)
 *         if (ready[i].kind == WEIR_READY_PULL)
 *             weir_session_pull(s, ready[i].name, &value, 0);     // a value that was listed is there
 *
 * Being readable is an edge: it says that something would not block that weir_session_ready() has not listed since it was
 * last used. weir_session_ready() makes the descriptor unreadable and then lists all that would not block at the
 * moment, whether it has listed it before or not. From then on
 *
 *     what it did not list   makes the descriptor readable when it would not block any more
 *     what it did list       stays so, silently, until it is used: nothing makes it block but a push or pull of this
 *                            name. Each of these looks again when it is done. If the next one would not block either,
 *                            the descriptor becomes readable at once, else when it would not
 *
 * So no wake-up is lost, whether one value is taken for each listing or all there are (until E_TIMEOUT), and a push that has
 * room, or a pull that nobody wants, does not keep the loop awake. It may become readable for nothing; then nothing new is
 * listed. It begins readable. The program does not read from it, write to it or close it. */

/* An eventfd of the session's, always the same, closed with it; a child of fork() that keeps it open makes nothing of it.
 * -1 and weir_error(): there is no descriptor left. Until the first call a session has none, and it costs nothing. With
 * ranks that share memory each push and pull that they reach gets a thread with it, which sleeps. Any thread, any time. */
int weir_session_fd(weir_session *session);

typedef enum weir_ready_kind {
    WEIR_READY_WAIT, /* weir_session_wait(): no run is under way; after a failure, no function is called any more */
    WEIR_READY_PUSH,
    WEIR_READY_PULL
} weir_ready_kind;

typedef struct weir_ready {
    weir_ready_kind kind;
    const char *name;   /* of the input or fetch; of WAIT the program's that runs, or ran last. Owned by the plan */
    weir_status status; /* what the call would return now: OK, there is room, or a value; E_END, E_KERNEL, ... */
} weir_ready;

/* Fills in at most `room` of all that would not block now, in the plan's order, WAIT first, and returns how many there are;
 * when that is more, the descriptor stays readable. -1 and weir_error(): the caller may not ask. A lane that another thread
 * is in at the moment is not listed; that thread looks at it; nor is what another rank pushes and pulls. Does not wait, also
 * without a descriptor. One thread at a time, at the same time as all but close; also from inside a source, a sink or a
 * call. */
int weir_session_ready(weir_session *session, weir_ready *list, int room);

/* ---- what lives from step to step ----
 *
 * Parameters, an optimizer's state ("h0/q/weight:adamw.m") and every other value that a later step reads have names
 * (weir_plan_param()). All of this is for a session at rest; while it runs it is E_STATE.
 *
 * In a session that has failed everything here but write works too, when no function is called any more (it waits for that,
 * as wait does). The run stopped in the middle: some parameters have seen the update of a step, others have not, and `step`
 * of each tells. Then no other rank is asked: read gives what this rank has all shards of, else E_PEER, which says whose is
 * missing; visit gives the shards that are here. */

/* The number of the next step: first_step and those done since; after a load that which it loaded. In a session that has
 * failed: the first that not all actors of this rank have done. While a run is under way: that which it began with. -1: there
 * is no such session. */
int64_t weir_session_step(const weir_session *session);

typedef struct weir_session_param {
    const char *name;     /* owned by the plan */
    weir_param_kind kind;
    weir_type type;       /* logical */
    bool frozen;          /* nothing in the plan changes it */
    int slots;            /* values that are kept of it: 1, but of a state that is read with a delay of several steps */
    int shards;           /* that this rank holds */
    int64_t step;         /* they have seen the updates of all steps before this one. They all do the same but after a */
    int64_t step_most;    /* failure: then this is the step of the one that has seen most. Of frozen ones: the session's */
    bool torn;            /* the update of one of them has failed half-way */
} weir_session_param;

/* Fills in at most `room` of them, in the plan's order, and returns how many there are; -1 and weir_error() when the
 * caller may not ask. */
int weir_session_params(const weir_session *session, weir_session_param *list, int room);

/* The whole logical value `name`, put together from (or dealt out to) its shards. If a state has several slots, read gives
 * the newest, and write sets all. */
weir_status weir_session_read(weir_session *session, const char *name, weir_array *value);
weir_status weir_session_write(weir_session *session, const char *name, const weir_array *value);

/* A part of a value, where it lies. */
typedef struct weir_shard {
    const char *name;
    weir_param_kind kind;
    weir_view view;       /* its data may be changed while it is visited; other ranks then do not hear of it */
    const char *device;   /* "cpu:2"; data is in its memory, or, where the host cannot go there, a copy that goes back */
    bool again;           /* an earlier shard, of this rank or another, has the same elements */
    int slot;             /* 0 is the oldest value of those that are kept, slots - 1 the newest */
    int64_t step;         /* the view has seen the updates of all steps before this one */
    bool torn;            /* the update of that step has failed half-way */
} weir_shard;
/* Anything but WEIR_OK ends the visit. */
typedef weir_status (*weir_visit_fn)(void *ctx, const weir_shard *shard);

/* Calls `fn` for each shard that this rank holds of `name` (NULL: of everything), in the plan's order. No other
 * rank takes part, and nothing is copied but what lies on an accelerator. Returns what `fn` returned last. */
weir_status weir_session_visit(weir_session *session, const char *name, weir_visit_fn fn, void *ctx);

/* ---- checkpoints ----
 *
 *     weir_session_save(s, "runs/a", .keep = 3);      // makes runs/a/step-00000100
 *     weir_session_load(s, "runs/a");                 // the newest that is whole
 *
 * A checkpoint is a folder below a root (docs/checkpoint.md, <weir/checkpoint.h>) that has everything that lives from
 * step to step, the step, and the positions of sources. It appears under its name when all of it is on the disk:
 * whatever fails or is killed before leaves those that were there as they were. It knows names and logical shapes, not
 * layouts: one that was saved from any layout, number of ranks or ZeRO setting loads into any other of the same model.
 * In the same layout the run then goes on bit for bit as if it had not ended.
 *
 * With several ranks all call save and load, with the same arguments, and see one file system. Each writes what it
 * holds, at the same time as the others; of elements that several hold one writes. A call that fails fails on all of
 * them. */

typedef struct weir_save_opts {
    size_t size;
    weir_src src;
    const char *name;    /* of the folder in `dir` [step-00000100, after the number of steps that are done] */
    bool async;          /* returns when all has been copied to the plan's snapshot slot (weir_compile(.snapshot = true)),
                            and is written while the session goes on: weir_session_save_wait() */
    bool memory;         /* `dir` lies in memory (a tmpfs), and may be another folder on each host; see below */
    int keep;            /* of the folders in `dir` that are named after steps so many stay, the newest [0: all] */
    const char *program; /* a note of who saved it: "weir-gpt 1" */
} weir_save_opts;

/* Saves the state of a session at rest as a new folder in `dir`, which is made when it is not there. A checkpoint of the
 * same name is replaced, and nothing else is: a file, or a folder with anything but a checkpoint in it, fails the save.
 * From its first save in it until it is closed a session keeps `dir` for its process (weir_checkpoint_lock_take()).
 * Waits first for a save that is still being written. A frozen tensor is not written again while a checkpoint in `dir` has it. E_IO: it
 * cannot be written, something is in the way, or another program saves there; E_STATE: a run is under way; E_ARGUMENT: no such name, or async without a slot; E_CANCELLED: the
 * session was cancelled meanwhile; E_PEER: another rank failed. A checkpoint that fails is removed from the disk. The session
 * goes on as if nothing had been. */
#define weir_session_save(session, dir, ...) \
    weir_session_save_at(session, dir, WEIR_OPTS(weir_save_opts, __VA_ARGS__))
weir_status weir_session_save_at(weir_session *session, const char *dir, const weir_save_opts *opts);

/* Waits until the last save is on the disk, and returns what became of it; OK when there was none. E_TIMEOUT: it is
 * still being written after timeout_ms (< 0: for ever). Also while a run is under way. A save that fails after
 * weir_session_save() has returned is reported besides. */
weir_status weir_session_save_wait(weir_session *session, int timeout_ms);

/* Snapshots. With .memory each rank names a folder that outlives its process, in the memory of its host: ranks of one
 * host the same. In each folder the ranks that see it write all that they hold, of elements that several of them hold
 * one; so where every host holds everything each folder has the whole, and elsewhere all have it together. The call
 * returns when that is copied, also with .async, which needs no room in the plan then: all that is left to do is to name
 * it. For snapshots in a folder the last complete one stays until the next is complete; .keep and .name are for others.
 *
 * weir_session_load() with .memory = that folder loads the newest snapshot of which every shard is in the folder of some
 * rank, when that is of a later step than what `dir` has: ranks whose hosts lack a shard, as one that has come back
 * empty does, are sent it by others. The layout and the number of ranks may be others, but each shard has to be whole in
 * one of the folders. Otherwise `dir` is loaded; a report says what nobody had. */

typedef struct weir_load_opts {
    size_t size;
    weir_src src;
    bool parameters; /* these alone: no optimizer's or other state, not the step, no sources */
    bool partial;    /* what only the checkpoint has, or only the session, is passed over, and no error */
    const char *memory; /* this rank's folder of snapshots [none]. `dir` may then be NULL; where nothing is found at all
                           nothing is loaded, and that is no error */
} weir_load_opts;

/* Loads a checkpoint, the newest of a folder of them, or a .safetensors file into a session at rest, whatever it did
 * before. Values, the step (weir_session_step() is then that of the checkpoint: schedules, dropout and sources go on
 * from there), sources. One whose values have come to their end stays there. Everything is looked at first: names, types and shapes must be those of the session, all bytes
 * that this rank needs those that were saved; E_ARGUMENT or E_IO names the first that is not, and nothing has changed
 * then (but sources that were restored before another refused). A disk that fails after that makes the session fail. */
#define weir_session_load(session, dir, ...) \
    weir_session_load_at(session, dir, WEIR_OPTS(weir_load_opts, __VA_ARGS__))
weir_status weir_session_load_at(weir_session *session, const char *dir, const weir_load_opts *opts);

typedef struct weir_queue_stats {
    const char *name;   /* "cpu:0"; owned by the plan */
    double busy;        /* share of the last run's time in kernels, 0..1 */
    int64_t firings;    /* actor firings in the last run */
    bool io;            /* it has a thread of its own, for functions of the program's */
} weir_queue_stats;
typedef struct weir_session_stats {
    int64_t steps;         /* of main, done since open */
    int64_t skipped;       /* steps, those of loaded checkpoints included, that updated nothing, because the norm of their
                              gradients was not finite, or nothing was counted (.count of weir_train()); so far, where a run
                              is under way. -1: nothing in the plan takes the norm, or another rank does, or it is an
                              accelerator's that runs */
    double seconds;        /* the last run, from start to rest */
    uint64_t planned_bytes; /* of this rank's devices, and of what arrives from ranks on other hosts: the receive slots
                               that `weir show --ranks` tells of */
    uint64_t arena_bytes;  /* allocated for these; equals planned_bytes. Neither counts what lies in files */
    int workers;           /* threads that compute */
    int cores;             /* that this process may use, by its mask and its quota of time */
    int cores_online;      /* that the machine has */
    int queue_count;
    weir_queue_stats queue[64];
} weir_session_stats;
void weir_session_get_stats(const weir_session *session, weir_session_stats *stats); /* at rest */

#define WEIR_LINK_BYTES 48
/* The line between this rank and another, as TCP has measured it on the connection for register contents. */
typedef struct weir_link {
    char text[WEIR_LINK_BYTES]; /* "9410Mbit 210us", as weir_compile(.link) takes it */
    double bytes_per_s;         /* that were delivered to that rank, at most */
    double round_trip_s;        /* the least of the last minutes */
    bool full;                  /* there was more to send most of the time, so this is what the link carries. Else it may
                                   carry more: a plan for one that is wider finds out */
} weir_link;
/* Tells what was measured until then, while the session runs or rests, also from inside a source, a sink or a call.
 * E_ARGUMENT: no such rank, or one that nothing is sent to over a network: of the same host, or without registers to
 * exchange. E_STATE: nothing was sent yet. E_UNSUPPORTED: its connection is none of TCP's. */
weir_status weir_session_link(weir_session *session, int rank, weir_link *link);

WEIR_C_END
#endif
