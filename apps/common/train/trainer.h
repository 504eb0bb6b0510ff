/* apps/common/train/trainer.h: what every training program does with its graph: compile it, keep the plan, run it while
 * telling how it goes, log it, and say what it took.
 *
 *     trainer t = {.program = "weir-gpt", .opts = {.steps = 100}, .items = "tokens", .items_per_step = 2048};
 *     int status = trainer_begin(&t);                    // -1, or an exit status that has been reported
 *     if (status < 0)
 *         status = trainer_train(&t, graph, micro);      // alike
 *     ... weir_session_read(t.session, ...) ...
 *     status = trainer_end(&t, status);
 *
 * In a cluster every rank does this with the same graph; the first one tells, logs and saves the plan, and each writes
 * a trace of its own (ranks.h).
 *
 * The fetch "loss" must be there to be pulled, once per micro-batch; the loss of a step is their mean. With .counted it is their
 * sum, divided by the sum of the fetch "count". Every --eval-every steps, and at the end, the program's own judgement is asked for, if it
 * has one: the session is then at rest, and all ranks are asked.
 *
 * SIGINT and SIGTERM (interrupt.h) end training after the step, on all ranks, also when one of them alone gets it: the
 * summary and the trace are written, and the exit status is 130 or 143. A signal before the session is open ends the
 * program at once.
 *
 * With --save the state is kept (saver.h): every --save-every steps or minutes, when a judgement is the best so far,
 * and at the end, also at one that a signal made.
 *
 * The program may also fetch norms of gradients (norms.h), which exist once a step.
 *
 * The log has a line per step, {"step": 7, "loss": ...}, whose number counts from the very first one, 0; a line per
 * judgement, {"steps": 8, "validation_loss": ...}, and at the end {"summary": true, "steps": 300, ...}: both with the
 * steps that were done then. A program that goes on from a checkpoint appends to it; of two lines of one step the later
 * counts. The folder of --log-dir gets the same scalars for TensorBoard (events.h). One thread.
 */
#ifndef APPS_COMMON_TRAIN_TRAINER_H
#define APPS_COMMON_TRAIN_TRAINER_H

#include "apps/common/train/events.h"
#include "apps/common/train/log.h"
#include "apps/common/train/norms.h"
#include "apps/common/options.h"
#include "apps/common/train/progress.h"
#include "apps/common/ranks.h"
#include "apps/common/train/saver.h"
#include "apps/common/train/workers.h"

#include <stdint.h>
#include <weir/weir.h>

typedef struct trainer_opts {
    int steps;
    uint64_t seed;
    const char *log;    /* one JSON object per step goes there */
    const char *log_dir; /* an event file for TensorBoard goes there */
    bool gradients;     /* the norms of gradients are fetched and logged: see norms.h */
    const char *trace;  /* Perfetto */
    const char *plan;   /* the compiled plan is saved there */
    const char *rates;  /* of weir measure: the time of a step is predicted, and told beside the measured one */
    const char *memory; /* limit per device, "512MiB" */
    const char *offload; /* where what it leaves no room for may wait, "disk:/var/tmp" */
    int per_host;       /* devices of one host, if conversions are to go within each first; else 0 */
    const char *link;   /* between hosts, "10Gbit 200us"; NULL: nothing is known of it */
    bool no_fusion;     /* each op a kernel of its own */
    bool fast_reduce;   /* accelerators add as their communicator does it */
    bool bf16, f16;     /* the precision of activations, their gradients and products; else f32 */
    int eval_every;     /* steps; 0: at the end only */
    saver_opts saver;
    int workers;
    bool pin;
    bool check_finite;  /* the first op that makes a NaN or an infinity ends the run */
    bool with_graph;    /* the plan that is saved keeps the graph */
    bool verify;        /* the plan is proven to compute the graph, and its gradients to be right, before the first step */
} trainer_opts;

/* Their entries for a program's table; `o` is a trainer_opts variable. */
#define TRAINER_OPTIONS(o)                                                                                            \
    {"--steps", OPTIONS_INT, &(o).steps, .min = 1, .max = 1e9,                                                         \
     .help = "total training steps, including those before --resume; the learning rate's schedule ends there"},       \
    {"--seed", OPTIONS_U64, &(o).seed, .help = "seed of initial values, data and sampling [0]"},                      \
    {"--memory", OPTIONS_TEXT, &(o).memory, .value = "SIZE", .help = "memory limit per device, as 512MiB"},           \
    {"--offload", OPTIONS_TEXT, &(o).offload, .value = "disk:DIR",                                                    \
     .help = "with --memory: let values wait in a file in DIR"},                                                      \
    {"--per-host", OPTIONS_INT, &(o).per_host, .min = 1, .max = WEIR_DEVICES_MAX,                                     \
     .help = "devices per host: convert within hosts first, then between; default: treat all alike"},                  \
    {"--link", OPTIONS_TEXT, &(o).link, .value = "RATE TIME",                                                         \
     .help = "bandwidth and round trip of the link between hosts, as '10Gbit 200us'; the plan keeps it full"},          \
    {"--no-fusion", OPTIONS_FLAG, &(o).no_fusion, .help = "run each op in a kernel of its own; on CPUs the same bits"}, \
    {"--fast-reduce", OPTIONS_FLAG, &(o).fast_reduce,                                                                 \
     .help = "let accelerators sum in their own order: faster, other bits; no effect on CPUs"},                       \
    {"--bf16", OPTIONS_FLAG, &(o).bf16, .help = "compute in bf16; parameters, sums and losses stay f32"},             \
    {"--f16", OPTIONS_FLAG, &(o).f16, .help = "compute in f16, with a scaled loss"},                                  \
    WORKERS_OPTIONS((o).workers, (o).pin),                                                                            \
    CHECK_FINITE_OPTION((o).check_finite),                                                                            \
    {"--verify", OPTIONS_FLAG, &(o).verify,                                                                           \
     .help = "before the first step, prove that the plan computes the model, and that gradients are right; for small models"},                      \
    {"--log", OPTIONS_TEXT, &(o).log, .value = "FILE", .file = OPTIONS_WRITES,                                        \
     .help = "write one JSON object per step, and a summary"},                                                        \
    {"--log-dir", OPTIONS_TEXT, &(o).log_dir, .value = "DIR",                                                         \
     .help = "write the same numbers to an event file in DIR, for TensorBoard"},                                      \
    {"--log-gradients", OPTIONS_FLAG, &(o).gradients,                                                                 \
     .help = "with --log or --log-dir: the norm of gradients of each layer, too"},                                    \
    {"--trace", OPTIONS_TEXT, &(o).trace, .value = "FILE", .file = OPTIONS_WRITES_RANKS,                              \
     .help = "write a trace for ui.perfetto.dev"},                                                                    \
    {"--plan", OPTIONS_TEXT, &(o).plan, .value = "FILE", .file = OPTIONS_WRITES,                                      \
     .help = "save the compiled plan"},                                                                               \
    {"--rates", OPTIONS_TEXT, &(o).rates, .value = "RATES", .file = OPTIONS_READS,                                    \
     .help = "compile for the machine that weir measure measured, and print predicted beside measured seconds of a step"}, \
    {"--with-graph", OPTIONS_FLAG, &(o).with_graph,                                                                   \
     .help = "with --plan: keep the model's graph in the plan, for weir check --graph"},                              \
    SAVER_OPTIONS((o).saver)

/* The same for a program that has a judgement; `what` says what it measures. */
#define TRAINER_EVAL_OPTION(o, what)                                                                                  \
    {"--eval-every", OPTIONS_INT, &(o).eval_every, .min = 1, .max = 1e9,                                              \
     .help = "steps between " what "; default: only at the end"}

/* How good a program finds what it trains. */
typedef struct trainer_judge {
    const char *name;  /* "validation_loss"; NULL: it has no judgement */
    bool most_is_best; /* as of an accuracy; else the least is, as of a loss */
    weir_status (*ask)(void *ctx, weir_session *session, double *value);
    void *ctx;
} trainer_judge;

/* Gives the session, at rest, the values with which a run begins; what it goes on from is loaded after that. False: it has reported. */
typedef struct trainer_start {
    bool (*give)(void *ctx, weir_session *session, const weir_plan *plan);
    void *ctx;
    const char *weights; /* that mapped parameters are in (weir_session_open); NULL: there are none */
} trainer_start;

typedef struct trainer {
    const char *program;
    trainer_opts opts;
    const char *items;       /* "tokens", "samples": what the rate counts */
    double items_per_step;
    trainer_judge judge;
    weir_optimizer optimizer; /* whose rate is logged */
    bool counted;            /* "loss" is a sum, of as many terms as the fetch "count" has */
    trainer_start start;     /* .give NULL: values begin as the graph says */
    norms norms;             /* that the graph fetches */
    saver saver;

    weir_plan *plan;         /* owned */
    weir_session *session;   /* owned; at rest after trainer_train() */
    log_file log;            /* owned */
    events_file events;      /* owned */
    progress progress;
    char trace[PATHS_BYTES]; /* this rank's */
    int micro;
    int first;               /* steps that were done before this process */
    int done;                /* steps, those included */
    bool unsaved;            /* the last save failed, which has been reported */
    int lost;                /* the first step with a loss that is NaN or infinite: nothing is to follow; -1: none */
    double lost_loss;        /* which is this */
    bool ended;              /* a run was stopped: a signal came, here or on another rank */
    double loss;             /* of the last step; NAN before it */
    double norm[NORMS_MAX];  /* of its gradients; NAN if the step was skipped */
    double judged;           /* what the judge said last; NAN before it */
    int judged_at;           /* steps that were done then */
    weir_rates *rates;       /* owned; NULL: nobody asked for a prediction */
    double seconds;          /* of all steps of this process together */
    uint64_t base_rss;       /* before the session was opened */
    uint64_t peak_rss;       /* after training */
    weir_session_stats stats;
    int64_t skipped;       /* steps that updated nothing, when it rested last; of all ranks */
} trainer;

/* Before the graph is built: what the program goes on from (--resume, or the checkpoint after which `weir launch` has
 * started it again), whose seed counts unless another was given, and whether all files can be written. t->judge is set.
 * Returns -1, or the exit status of what was reported; trainer_end() is then still to be called. */
int trainer_begin(trainer *t);

/* Takes `graph` (freed here; NULL when there was no memory for it). Returns -1, or the exit status of what was
 * reported. */
int trainer_train(trainer *t, weir_graph *graph, int micro);

/* The signal that has ended training before its time; of another rank's that is SIGTERM. 0: none came. Work that a program
 * does when it has trained does not begin then, or breaks off. */
int trainer_interrupted(const trainer *t);

/* "validation loss 1.2345" on stderr of the first rank, if training went on to its end and was judged there. */
void trainer_tell_judged(const trainer *t);

/* Writes the summary to the log, unless `status` is an exit status already; closes and frees everything. Returns the
 * exit status: 0, `status`, that of a signal, or that of what went wrong here. */
int trainer_end(trainer *t, int status);

#endif
