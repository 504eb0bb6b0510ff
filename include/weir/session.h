/* weir/session.h: run a plan.
 *
 *     weir_session *s = weir_session_open(plan, .trace = "run.json");
 *     weir_status st = weir_session_run(s, 100);      // 100 steps
 *     weir_session_close(s);
 *
 * Opening allocates every byte that the run will use, starts the workers and fills the parameters. A run of n steps ends
 * when every actor has fired as often as n steps need (fewer if it is stopped). The session is then at rest: the program
 * may read and write parameters, and the next run continues with the next step. Values come in through sources and
 * weir_session_push(), and go out through sinks and weir_session_pull(). push waits while the plan has no room, pull
 * while there is no value.
 *
 * Sources, sinks and calls run on threads of their own: one for each device that has any, and one for each .queue that they
 * name (at most 64 threads). A thread that waits uses no core. So a run of several steps or micro-batches hides a source that
 * takes less time than the computing does.
 *
 * Any number of sessions, of one plan or of several, run side by side. With .workers_of = other, a session uses the worker
 * threads of `other`. The sessions that share them use at most `other`'s .workers threads together (default: cores), and
 * each has the same results as alone. Their workers take turns on a thread, between firings: a long kernel delays the
 * other sessions of its thread, and a stop waits for at most one turn of each. An error of one session does not touch the
 * others, and close waits for none of them. The threads live until the last session that shares them is closed, in any order.
 * Each session has its own threads for sources, sinks and calls. .pin of the first session counts for all.
 * E_UNSUPPORTED: one of them has several ranks, or accelerators.
 *
 * The name of a session is .cluster.name, or else the plan's name. If a session of that name is open in this process
 * already, a number follows: "gpt (2)". The trace has this name, and so do reports ("session 'gpt (2)': ...") of a session
 * with a .cluster.name, or while several sessions are open.
 *
 * A process has the cores of the mask that it was started with, from taskset, srun, a container or `weir launch`. If the
 * quota of its control groups (cpu.max: docker --cpus, CPUQuota=) is worth fewer, it has that many, rounded up. A later
 * change of the mask by the program or a library (OMP_PROC_BIND makes libgomp bind the thread of main()) takes no core away
 * from the workers. Ranks of one host that pin divide the cores of their masks in rank order, one core per worker, and
 * begin again at the first core when none is left.
 *
 * A source without further values returns WEIR_END. The session finishes the earlier steps on all ranks, and their values
 * can be pulled. After that run, wait, push and pull return WEIR_E_END, and so does every later run; the session is at
 * rest. If several sources end, the one with the fewest steps counts. If a source ends at a later micro-batch of a step,
 * pull may have returned values of the earlier ones. If a source fails, the session finishes the earlier steps in the same
 * way before it fails.
 *
 * A failed session stays failed: push, pull, run and wait return the same error; close it. After run, or wait, has returned
 * that error (not E_TIMEOUT), no thread calls a function of the program any more. The learned values can still be read
 * (read, params, visit), with the step that they belong to.
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
 *     close               any                             no new calls; threads in push, pull and wait return E_STATE
 *
 *     NULL in place of a session returns E_ARGUMENT; for close, stop and cancel it means that there is nothing to do. A
 *     session that was closed, or that another thread is closing, returns E_STATE, also from a second close. This holds only
 *     until a later session gets the same address: then the call reaches that one. If two threads push, or pull, the same
 *     name, the second one gets E_STATE
 *
 *     save and load: on all ranks, at rest. The session may run and be read while an asynchronous save is being written;
 *     the next save, load and close wait for that save, and cancel gives it up. The thread that calls save and load also
 *     calls the sources' save and restore
 *
 *     inside a source, a sink or a call (on their device's thread): all functions of other sessions. On their own session
 *     only stop, cancel, and push and pull with a timeout, during which that thread does nothing else; the others return
 *     WEIR_E_STATE, because the session would wait for itself
 *     inside the open and close of a call or an op: all functions of other sessions, none of their own
 *     inside a function that gets a report: stop; the others return WEIR_E_STATE
 *     inside a signal handler: stop
 *     in a child of fork(): no function of a session that the parent opened. All return WEIR_E_STATE; close releases
 *     nothing, for the parent still uses it. get_stats and step return what held at the fork. The child may build graphs,
 *     compile, and open sessions of its own. Until it ends or calls exec() it holds the parent's connections open, so
 *     other ranks notice the end of the parent only by its silence
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
    int workers;                   /* threads that compute [one per device, at most one per core, see above]; there are never
                                      more than devices (stats.workers); the results are the same with any number */
    weir_session *workers_of;      /* use the threads of that session, see above [threads of its own] */
    bool pin;                      /* bind worker k to the k-th core, see above [WEIR_PIN, or not] */
    bool poison;                   /* a debug run: fills memory with NaN while the plan does not need it, which shows a
                                      kernel that reads it all the same; slower, same results [WEIR_POISON, or not] */
    bool check_finite;             /* a NaN or infinity that a CPU kernel writes fails the run (E_KERNEL). The error names
                                      the op, with file and line, the step, the micro-batch, the output and the element.
                                      Values of accelerators are checked where they reach the host: in sinks, calls and
                                      pulls. With .precision = WEIR_F16 only the forward pass is checked, because gradients
                                      may overflow. Each rank checks its own values. Same results; each value is read once
                                      more [false] */
    const char *offload;           /* "disk:DIRECTORY": replaces the directory that the plan was compiled with
                                      [WEIR_OFFLOAD, or the plan's] */
    const char *trace;             /* file that gets a Chrome/Perfetto trace when the session closes; the process in it
                                      has the session's name, see above [none] */
    int64_t trace_events;          /* the trace keeps the last so many events of each worker, 1 to 2^32 [2^18] */
    const weir_binding *bindings;  /* replace those that the plan got from its graph; the list ends with a NULL name */
    int64_t first_step;            /* number of the first step, for schedules and random streams [0] */
    weir_cluster_opts cluster;     /* [from the environment] */
    double stall_s;                /* report when nothing moved for that long; < 0: never [WEIR_STALL, or 10] */
    weir_report_fn report;         /* receives reports [they go to stderr] */
    void *report_ctx;
    const char *spin;              /* how long a thread that waits spins before it sleeps: microseconds; "0": it sleeps at once;
                                      "always": it never sleeps, for programs that own their cores [WEIR_SPIN, or about as long
                                      as wake-ups take, which is measured all the time; "0" with more workers than cores] */
    const char *weights;           /* file that has the parameters with .mapped, by their names: see weir_session_open() [none] */
} weir_session_opts;

/* NULL and weir_error() when there is no memory, no thread, an op without a kernel, a host function without a
 * binding. You may free the plan before you close the session, which holds what it needs of it.
 *
 * .weights is whatever weir_checkpoint_open() opens: a .safetensors file, several with their index, a GGUF file, a checkpoint. Its
 * files are mapped read-only, once for the session, and each parameter with .mapped (weir_param()) lies where its file has it. A
 * session touches only pages that hold its rank's parts; sessions and processes of a host share them. A tensor must have the
 * parameter's name, dtype and shape; u8 [.., blocks, bytes of a block] takes the blocks of a quantised tensor of a GGUF file as they
 * are. E_ARGUMENT, with the tensor's name: it is missing, is another, begins at a byte that is no multiple of its elements' size, or is
 * stored in parts; or a plan with such parameters gets no .weights, or one without them gets it. Checksums are not compared.
 * Do not shorten a file while a session maps it: the process would end by SIGBUS. Replace it by rename(). */
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

/* start begins n > 0 steps and returns. wait waits until they are done (timeout_ms < 0: for ever). run does both.
 * E_STATE: a run is under way (start), or this thread may not call, see above. E_END: a source of main has no more values;
 * the earlier steps were done.
 *     weir_session_run(s, 100);                          // of main
 *     weir_session_run(s, 10, .program = "eval");
 * A run of main continues with the step after the last one, which weir_session_step() returns. A run of another program
 * always begins with .first_step, so that its result does not depend on earlier runs. A program reads the values of other
 * programs as their last run left them. With several ranks, a run of another program than the last one begins when all
 * ranks have called it. */
#define weir_session_start(session, ...) weir_session_start_at(session, WEIR_OPTS(weir_run_opts, .steps = __VA_ARGS__))
#define weir_session_run(session, ...) weir_session_run_at(session, WEIR_OPTS(weir_run_opts, .steps = __VA_ARGS__))
/* A failed run returns E_KERNEL if a kernel or a device failed. If a source, sink or call failed, it returns the status that
 * this function returned, such as E_IO (but E_KERNEL in place of END, E_END, E_TIMEOUT, E_PEER and E_CANCELLED, which have
 * another meaning here). The other ranks return E_PEER with the first rank's message. After weir_session_cancel() it
 * returns E_CANCELLED. */
weir_status weir_session_start_at(weir_session *session, const weir_run_opts *opts);
weir_status weir_session_wait(weir_session *session, int timeout_ms);
weir_status weir_session_run_at(weir_session *session, const weir_run_opts *opts);

/* Ends the run under way, on all ranks, after the steps that some actor has already begun. Any number of ranks may call it.
 * run and wait return WEIR_OK; the session is at rest, get_stats returns the number of steps that were done, and the next
 * run continues from there, with the same results as if this run had been given that number. The program still has to
 * push and pull the values of a step that has begun.
 *
 * If no run is under way, a stop ends the next run before its first step. If the run is already in its last step, the stop
 * ends the run after it. To see whether a stop came, compare the number of steps done with .steps.
 *
 * May be called by any thread, by a function that the session calls, and in a signal handler, at any time between open and
 * close. Does not wait. In a child of fork() it does nothing. */
void weir_session_stop(weir_session *session);

/* Ends the session as soon as the kernels under way return. run, wait, push and pull return WEIR_E_CANCELLED on all ranks.
 * The session is then in the same state as after a failure, but nothing is reported. May be called by any thread and by a
 * function that the session calls. Does not wait. Returns OK also if the session has failed already. E_STATE: in a child of
 * fork(), or in a report. */
weir_status weir_session_cancel(weir_session *session);

/* Copies one value of the input `name` into the plan's own memory. E_TIMEOUT: no room came in time (timeout_ms < 0: wait for
 * ever). E_ARGUMENT: a wrong name, dtype or shape; the session goes on. E_STATE: no run is under way (or it has ended
 * meanwhile), and so no room will come. Values may be pushed before start. */
weir_status weir_session_push(weir_session *session, const char *name, const weir_array *value, int timeout_ms);
/* Copies the next value of the fetch `name` to value->data; value->dtype and shape must be the fetch's. Errors as push has
 * them. A value that had arrived before the session failed can still be pulled, but not after a cancel. */
weir_status weir_session_pull(weir_session *session, const char *name, weir_array *value, int timeout_ms);

/* ---- in an event loop ----
 *
 * A program with a loop of its own (poll, epoll, libuv, GLib) adds weir_session_fd() to it, for reading, and calls
 * weir_session_ready() whenever the descriptor is readable:
 *
 *     weir_ready ready[8];
 *     int count = weir_session_ready(s, ready, 8);
 *     for (int i = 0; i < count && i < 8; i++)
 *         if (ready[i].kind == WEIR_READY_PULL)
 *             weir_session_pull(s, ready[i].name, &value, 0);     // a value that was listed is there
 *
 * weir_session_ready() makes the descriptor unreadable and lists all calls that would not block now. After that
 *
 *     a call that it did not list   makes the descriptor readable as soon as it would not block any more
 *     a call that it did list       stays possible until the program pushes or pulls this name; the descriptor does not
 *                                   become readable for it before that. After the push or pull it does, as soon as the
 *                                   next one of this name would not block either (this can be at once)
 *
 * So no wake-up is lost, whether the program takes one value for each listing or all there are (until E_TIMEOUT), and a push
 * that has room, or a fetch that the program does not pull, does not keep the loop awake. The descriptor is readable at the
 * start, and it may become readable although nothing new is listed. Do not read from it, write to it or close it. */

/* Returns the session's eventfd, always the same; weir_session_close() closes it. -1 and weir_error(): the process has no
 * descriptor left. Before the first call a session has none, and pays nothing for it. In a session whose ranks share memory,
 * each input and fetch of the program whose other end is on another rank then gets a thread, which sleeps. Any thread, any
 * time. */
int weir_session_fd(weir_session *session);

typedef enum weir_ready_kind {
    WEIR_READY_WAIT, /* weir_session_wait(): no run is under way, and no function of the program is being called */
    WEIR_READY_PUSH,
    WEIR_READY_PULL
} weir_ready_kind;

typedef struct weir_ready {
    weir_ready_kind kind;
    const char *name;   /* of the input or fetch; for WAIT, of the program that ran last. Owned by the plan */
    weir_status status; /* that the call would return now: OK (there is room, or a value), E_END, E_KERNEL, ... */
} weir_ready;

/* Writes at most `room` of the calls that would not block now to `list`, in the plan's order, WAIT first. Returns how many
 * there are; if these are more than `room`, the descriptor stays readable. -1 and weir_error(): this thread may not call. An
 * input or fetch that another thread is pushing or pulling now is not listed; the descriptor becomes readable after that
 * call. Inputs and fetches of other ranks are never listed. Does not wait, and needs no descriptor. One thread at a time,
 * beside all functions but close; also inside a source, a sink or a call. */
int weir_session_ready(weir_session *session, weir_ready *list, int room);

/* ---- what lives from step to step ----
 *
 * Parameters, an optimizer's state ("h0/q/weight:adamw.m") and every other value that a later step reads have names
 * (weir_plan_param()). These functions need a session at rest; while it runs they return E_STATE.
 *
 * All of them but write also work in a failed session. They wait until no function of the program is being called any more.
 * Such a run ended in the middle of a step, so some parameters may have its update and others not; `step` of each says
 * which. Other ranks take no part then: read returns a value if this rank has all its shards, else E_PEER and names the
 * rank that has a missing one; visit passes the shards that are here. */

/* Returns the number of the next step: first_step plus the steps done since, or since the loaded checkpoint's step. In a
 * failed session: the first step that not all actors of this rank have done. While a run is under way: the step that it began
 * with. -1: there is no such session. */
int64_t weir_session_step(const weir_session *session);

typedef struct weir_session_param {
    const char *name;     /* owned by the plan */
    weir_param_kind kind;
    weir_type type;       /* logical */
    bool frozen;          /* nothing in the plan changes it */
    int slots;            /* values kept: 1; more for a state that is read with a .delay of several steps */
    int shards;           /* that this rank holds */
    int64_t step;         /* its shards here have the updates of all steps before this one; frozen: the session's step */
    int64_t step_most;    /* equal to `step`; after a failure, the step of the shard with the most updates */
    bool torn;            /* the update of one of its shards failed half-way */
} weir_session_param;

/* Writes at most `room` of them to `list`, in the plan's order, and returns how many there are; -1 and weir_error() if this
 * thread may not call. */
int weir_session_params(const weir_session *session, weir_session_param *list, int room);

/* Reads the whole logical value `name` from its shards on all ranks, or writes it to them. If a state has several slots,
 * read returns the newest, and write sets all. E_ARGUMENT: write to a parameter with .mapped. */
weir_status weir_session_read(weir_session *session, const char *name, weir_array *value);
weir_status weir_session_write(weir_session *session, const char *name, const weir_array *value);

/* A shard of a value, in place. */
typedef struct weir_shard {
    const char *name;
    weir_param_kind kind;
    weir_view view;       /* its data may be changed during the visit, but for a parameter with .mapped; other ranks are not told
                             of a change */
    const char *device;   /* "cpu:2"; data lies in its memory. If the host cannot reach that: in a copy, written back later */
    bool again;           /* an earlier shard of this rank, or one of another rank, has the same elements. Shards of a parameter
                             with .mapped may also overlap: readers with different layouts have different shards */
    int slot;             /* 0 is the oldest value kept, slots - 1 the newest */
    int64_t step;         /* the view has the updates of all steps before this one */
    bool torn;            /* the update of that step failed half-way */
} weir_shard;
/* Anything but WEIR_OK ends the visit. */
typedef weir_status (*weir_visit_fn)(void *ctx, const weir_shard *shard);

/* Calls `fn` for each shard of `name` (NULL: of all values) that this rank holds, in the plan's order. No other rank takes
 * part, and only shards of an accelerator are copied. Returns the last status of `fn`. */
weir_status weir_session_visit(weir_session *session, const char *name, weir_visit_fn fn, void *ctx);

/* ---- checkpoints ----
 *
 *     weir_session_save(s, "runs/a", .keep = 3);      // makes runs/a/step-00000100
 *     weir_session_load(s, "runs/a");                 // the newest that is whole
 *
 * A checkpoint is a folder below a root (docs/checkpoint.md, <weir/checkpoint.h>). It contains everything that lives from
 * step to step but parameters with .mapped, which stay in their files, the step, and the positions of sources. It appears under its name only when all of it is on the disk; a
 * save that fails or is killed before that leaves the older checkpoints as they were. It has names and logical shapes but no
 * layouts: a checkpoint of any layout, number of ranks or ZeRO setting loads into any other of the same model. In the
 * same layout the run then continues bit for bit as if it had not ended.
 *
 * With several ranks all call save and load, with the same arguments, and see one file system. All ranks write at the same
 * time, each the shards that it holds; if several hold the same elements, one of them writes these. A call that fails on
 * one rank fails on all. */

typedef struct weir_save_opts {
    size_t size;
    weir_src src;
    const char *name;    /* of the folder in `dir` [step-00000100, for 100 steps done] */
    bool async;          /* return after the copy to the plan's snapshot slot (weir_compile(.snapshot = true)), and write while
                            the session continues: weir_session_save_wait() */
    bool memory;         /* `dir` lies in memory (a tmpfs), and may be another folder on each host; see below */
    int keep;            /* keep only the newest so many of the folders in `dir` that are named after steps [0: all] */
    const char *program; /* that saves, with its version, as a note in the checkpoint: "weir-gpt 1" */
} weir_save_opts;

/* Saves the state of a session at rest as a new folder in `dir`, which it makes if it does not exist. It replaces a checkpoint
 * of the same name, and nothing else: a file, or a folder with anything but a checkpoint in it, fails the save. From its
 * first save in `dir` until it is closed a session locks `dir` for its process (weir_checkpoint_lock_take()). A save first
 * waits for an earlier one that is still being written. It does not write a frozen tensor again that a checkpoint in `dir`
 * has. E_IO: it cannot write, something is in the way, or another program saves there. E_STATE: a run is under way.
 * E_ARGUMENT: a bad name, or async without a slot. E_CANCELLED: the session was cancelled meanwhile. E_PEER: another rank
 * failed. After an error the incomplete checkpoint is removed from the disk, and the session can go on. */
#define weir_session_save(session, dir, ...) \
    weir_session_save_at(session, dir, WEIR_OPTS(weir_save_opts, __VA_ARGS__))
weir_status weir_session_save_at(weir_session *session, const char *dir, const weir_save_opts *opts);

/* Waits until the last save is on the disk and returns its status; OK if there was none. E_TIMEOUT: it is still being
 * written after timeout_ms (< 0: wait for ever). May be called while a run is under way. A save that fails after
 * weir_session_save() has returned is also reported. */
weir_status weir_session_save_wait(weir_session *session, int timeout_ms);

/* Snapshots. With .memory each rank names a folder in the memory of its host that outlives the process; the ranks of one host
 * name the same folder and write to it all that they hold. If several of them hold the same elements, one writes these. So a
 * folder is complete if its host holds everything; otherwise only all folders together are complete. The call returns when
 * the values are copied; .async needs no slot in the plan then, for all that is left to do is to name the snapshot. A folder
 * keeps its last complete snapshot until the next one is complete; .keep and .name do not work with .memory.
 *
 * weir_session_load() with .memory = that folder looks for the newest snapshot of which every shard is in the folder of
 * some rank, and loads it if its step is later than that of `dir`. Ranks receive from others the shards that their own host
 * lacks, for example after it has restarted. The layout and the number of ranks may differ from those of the save; each shard
 * must be complete in one of the folders. If there is no such snapshot, `dir` is loaded, and a report names a shard that is
 * missing. */

typedef struct weir_load_opts {
    size_t size;
    weir_src src;
    bool parameters; /* load only parameters: no optimizer's or other state, not the step, no sources */
    bool partial;    /* ignore values that only the checkpoint has, or only the session */
    const char *memory; /* this rank's folder of snapshots [none]. `dir` may then be NULL, and it is no error if nothing is
                           found and nothing loaded */
} weir_load_opts;

/* Loads a checkpoint, the newest one of a folder of them, or a .safetensors or .gguf file into a session at rest, also one that has run.
 * It loads values, sources and the step, from which schedules and dropout continue (weir_session_step()). A source that had
 * ended stays ended. Everything is checked first: names, types and shapes must equal the session's, and the bytes that this
 * rank needs must be undamaged (checksums). E_ARGUMENT or E_IO names the first that is wrong, and then nothing has changed (but
 * sources that were restored before another one refused). A disk that fails after that fails the session.
 *
 * An .onnx file gives parameters alone: those that weir_graph_from_onnx() (<weir/onnx.h>) makes of it, where its inputs have the sizes
 * that they have in the plan. So a plan of that model needs no file of parameters. The model cannot have inputs that were fixed
 * by .value. */
#define weir_session_load(session, dir, ...) \
    weir_session_load_at(session, dir, WEIR_OPTS(weir_load_opts, __VA_ARGS__))
weir_status weir_session_load_at(weir_session *session, const char *dir, const weir_load_opts *opts);

typedef struct weir_queue_stats {
    const char *name;   /* "cpu:0"; owned by the plan */
    double busy;        /* share of the last run's time in kernels, 0..1 */
    int64_t firings;    /* actor firings in the last run */
    bool io;            /* it has a thread of its own, for functions of the program */
} weir_queue_stats;
typedef struct weir_session_stats {
    int64_t steps;         /* of main, done since open */
    int64_t skipped;       /* steps so far, with those of loaded checkpoints, that updated nothing, because the norm of their
                              gradients was not finite, or .count of weir_train() was 0. -1: unknown, because the plan
                              computes no norm, or another rank computes it, or an accelerator does and a run is under
                              way */
    double seconds;        /* of the last run, from start to rest */
    uint64_t planned_bytes; /* of this rank's devices, and of its receive slots (`weir show --ranks`) */
    uint64_t arena_bytes;  /* allocated for these; equals planned_bytes. Neither counts values in files */
    int workers;           /* threads that compute */
    int cores;             /* that this process may use, by its mask and its quota */
    int cores_online;      /* that the machine has */
    int queue_count;
    weir_queue_stats queue[64];
} weir_session_stats;
void weir_session_get_stats(const weir_session *session, weir_session_stats *stats); /* at rest */

#define WEIR_LINK_BYTES 48
/* The network link between this rank and another, measured by TCP on the connection for register contents. */
typedef struct weir_link {
    char text[WEIR_LINK_BYTES]; /* "9410Mbit 210us", as weir_compile(.link) takes it */
    double bytes_per_s;         /* the highest rate of delivery to that rank */
    double round_trip_s;        /* the shortest of the last minutes */
    bool full;                  /* data waited to be sent most of the time, so this is the link's capacity. Else the link may
                                   carry more: compile for a faster one to find out */
} weir_link;
/* Returns what was measured so far, while the session runs or rests, also inside a source, a sink or a call. E_ARGUMENT: no
 * such rank, or this rank sends it no register contents over a network (it is on the same host, or there are none to send).
 * E_STATE: nothing was sent yet. E_UNSUPPORTED: the connection is not TCP. */
weir_status weir_session_link(weir_session *session, int rank, weir_link *link);

WEIR_C_END
#endif
