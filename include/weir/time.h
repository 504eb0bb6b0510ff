/* weir/time.h: how long a step of a plan will take, before it runs.
 *
 *     weir_rates *rates = weir_measure((const weir_plan *const[]){plan}, 1);
 *     weir_prediction p;
 *     bool fast = rates && !weir_predict(plan, rates, &p) && p.step_s < 0.010;
 *     weir_rates_free(rates);
 *
 * A plan says what is computed, where, and who waits for whom, so its time follows from how long each kernel takes and how long
 * a message takes. *Rates* are these times, measured on a machine. A prediction plays the plan against a clock with them, in
 * whole picoseconds: the same plan and rates give the same answer everywhere, and the machine that predicts need not be the one
 * that was measured.
 */
#ifndef WEIR_TIME_H
#define WEIR_TIME_H

#include <weir/plan.h>
#include <weir/session.h>

WEIR_C_BEGIN

typedef struct weir_measure_opts {
    size_t size;
    weir_src src;
    bool noisy;         /* measure also while other programs disturb the machine: the rates say so [false: E_STATE] */
    weir_rates *add_to; /* rates to add to: calls that it has are not measured again. It stays the caller's, also on failure [new
                           rates] */
    void (*progress)(void *ctx, int done, int count); /* calls that are measured, of all [nobody] */
    void *ctx;          /* of progress */
} weir_measure_opts;

/* Measures this machine for some plans: each distinct call of their kernels on a CPU, with its operands in the core's cache, in
 * the cache of all cores, and in memory; and how long messages take between workers. Where cores share what they need, each is also
 * measured beside other threads that stream through memory, or compute. A call takes some 30 ms. If plans have accelerators and this machine
 * has one of the kind: each call on the first of them, copies to it and back, and launches. Calls of the program's own functions and of ops that
 * are not registered are not measured.
 *
 * The calling thread computes, and one on each other core meanwhile; measure with nothing else running, best at real-time
 * priority (chrt -f 50). The caller owns the result and frees it. NULL and weir_error(): E_STATE, the machine was too disturbed (it
 * says by how much); E_MEMORY. */
#define weir_measure(plans, count, ...) weir_measure_at(plans, count, WEIR_OPTS(weir_measure_opts, __VA_ARGS__))
weir_rates *weir_measure_at(const weir_plan *const *plans, int count, const weir_measure_opts *opts);

/* A text file, sorted and with a hash. Saving replaces it when it is whole. Loading checks it; NULL and weir_error(). */
weir_status weir_rates_save(const weir_rates *rates, const char *path);
weir_rates *weir_rates_load(const char *path);
void weir_rates_free(weir_rates *rates);

/* Adds the rates of another host, for plans that run on both: a step waits for the slowest host, so the longer time counts where both know
 * one, the smaller cache, and the fewer cores. E_ARGUMENT: the kernels have other levels (WEIR_CPU_LEVEL); `rates` is as it was. E_MEMORY:
 * some calls may be added. */
weir_status weir_rates_merge(weir_rates *rates, const weir_rates *other);

typedef struct weir_predicted_firing {
    const char *actor, *queue; /* the plan's texts */
    int number, micro;         /* of the actor in the plan; the micro-batch */
    int64_t step;
    double begin_s, end_s;     /* from the beginning of the first step */
} weir_predicted_firing;

typedef struct weir_predict_opts {
    size_t size;
    weir_src src;
    const char *program; /* ["main"] */
    int workers;         /* of each rank, as of weir_session_open() [one per device, at most the cores of the rates] */
    /* Changes to try, a list that ends with NULL: "bandwidth=10Gbit" and "latency=200us" of the lines between all ranks, "slots(h0)=3" of
     * the registers that hold a tensor, "workers(1)=2" of a rank, "speed(matmul)=2" of kernels: all of a device ("cpu:3"; not copies and
     * collectives of "cuda:0"), of an actor or of an op, or those of that name. Speeds of one kernel are multiplied [none] */
    const char *const *set;
    /* Told of each firing that is played, in the order of their ends; `firing` is borrowed for the call [nobody] */
    void (*fired)(void *ctx, const weir_predicted_firing *firing);
    void *ctx;           /* of fired */
    int ranks;           /* processes that the devices are dealt to, in rank order [the plan's: one, if it was not spread] */
    int per_host;        /* ranks of each host, in rank order [all] */
    const char *carrier; /* that values between ranks may take, a list as in WEIR_CARRIER: of those that reach the first of shm, ucx,
                            and tcp, for which ipc counts too ["shm,tcp"] */
    bool no_key;         /* lines are not encrypted [with a key, as sessions] */
} weir_predict_opts;

enum { WEIR_PREDICT_WORKERS = 64, WEIR_PREDICT_BOUNDS = 64, WEIR_PREDICT_LINES = 64, WEIR_PREDICT_QUEUES = 64 };

/* Why a firing waits for the one before it in the critical cycle. */
typedef enum weir_bound_kind {
    WEIR_BOUND_DATA,  /* it reads what that one wrote */
    WEIR_BOUND_SLOT,  /* it writes into a slot that that one freed: one more slot of the register may help */
    WEIR_BOUND_ORDER  /* the same worker fires it next */
} weir_bound_kind;

typedef struct weir_prediction {
    double step_s;       /* of a step among many, from the end of one to the end of the next */
    double first_s;      /* of the first step, which begins with nothing under way */
    bool steady;         /* each step takes the same time; else step_s is a mean */
    /* Shares of the time of all kernels, which add up to 1: of calls that were measured, of calls whose time follows from measured calls of
     * the same op, and of others (100 G operations and 10 GB a second). */
    double measured, scaled, guessed;
    int64_t firings;     /* that were played */
    int workers;
    struct weir_predicted_worker {
        int rank, number;
        double busy;     /* share of the time in which it fires, from 0 to 1 */
    } worker[WEIR_PREDICT_WORKERS]; /* the first ones; those of io come last in a rank */
    /* The critical cycle: firings of which each waits for the one before it, and the first for the last, a step or more earlier. No
     * step can be shorter than it takes: its time divided by the steps that it spans. Texts are the plan's. */
    double cycle_s;      /* that bound; equal to step_s but for rounding, if the steps are steady */
    int bounds;          /* of the cycle; 0: fewer than two steps were played */
    struct weir_predicted_bound {
        const char *actor, *queue, *regst; /* regst: a tensor of the register, of DATA and SLOT; else NULL */
        int micro;
        weir_bound_kind kind;
        double s;        /* of this firing, and of the message to the next */
    } bound[WEIR_PREDICT_BOUNDS]; /* the first ones */
    /* Lines between ranks that share no memory, the busiest first. The critical cycle does not know that values wait for each other on a
     * line: a step that a line bounds takes longer than cycle_s. */
    int lines;
    struct weir_predicted_line {
        int from, to;    /* ranks */
        double bytes;    /* of a step */
        double busy;     /* share of the time in which values occupy it, from 0 to 1 */
    } line[WEIR_PREDICT_LINES]; /* the first ones */
    int queues;          /* of accelerators, which run what workers launch */
    struct weir_predicted_queue {
        const char *name; /* the plan's text */
        int rank;
        double busy;     /* share of the time in which it runs something, from 0 to 1 */
    } queue[WEIR_PREDICT_QUEUES]; /* the first ones */
} weir_prediction;

/* Predicts the time of a step. Sources, sinks and calls of the program's own functions count as if they took no time. E_ARGUMENT:
 * there is no such program or carrier, the devices do not fit the ranks, or the rates lack a link, a card, its copies or its collectives.
 * E_MEMORY. Any thread. */
#define weir_predict(plan, rates, prediction, ...) \
    weir_predict_at(plan, rates, prediction, WEIR_OPTS(weir_predict_opts, __VA_ARGS__))
weir_status weir_predict_at(const weir_plan *plan, const weir_rates *rates, weir_prediction *prediction, const weir_predict_opts *opts);

/* Predicts the time of a step as this session runs it: with its workers, on its ranks and hosts, over its carriers, with or without a key.
 * Each rank may ask; the others need not. Texts are the session's, until it is closed. Errors as weir_predict(); E_UNSUPPORTED also:
 * some hosts have more ranks than others, or ranks of one host do not follow each other; or weir_plan_load_part() gave this rank its part
 * of the plan. E_STATE. */
weir_status weir_session_predict(weir_session *session, const weir_rates *rates, weir_prediction *prediction);

enum { WEIR_SLOTS_CHANGES = 64 };

/* The time of a step, and the bytes, with other slots. */
typedef struct weir_slots_point {
    double step_s;       /* as of weir_prediction */
    uint64_t bytes;      /* of the device that needs the most, if slots that are added or gone share none with others */
    uint64_t slot_bytes; /* of all slots on all devices */
    bool planned;        /* the slots that the plan has */
    int changes;         /* registers with other slots than in the point before: of the first one, than in the plan */
    struct weir_slots_change {
        const char *regst; /* a tensor of the register; the plan's text */
        int slots;         /* that it has now */
    } change[WEIR_SLOTS_CHANGES]; /* the first ones */
} weir_slots_point;

/* Finds how many slots a step needs: begins with as few as make the plan live, and gives one more to a register of the critical
 * cycle until another slot of any register makes no step shorter (Stuijk et al. 2006), or some hundred predictions have been made.
 * Tells `point` of the plan's own slots, then of the first ones, and of each change on the way from them to the best. Registers that
 * the user fixed, and those beside functions of the program or beside accelerators, keep their slots. The option .fired is not called. Errors as
 * weir_predict(); E_LIVE: the plan cannot run. Any thread. */
#define weir_predict_slots(plan, rates, point, ctx, ...) \
    weir_predict_slots_at(plan, rates, point, ctx, WEIR_OPTS(weir_predict_opts, __VA_ARGS__))
weir_status weir_predict_slots_at(const weir_plan *plan, const weir_rates *rates, void (*point)(void *ctx, const weir_slots_point *point),
                                  void *ctx, const weir_predict_opts *opts);

WEIR_C_END
#endif
