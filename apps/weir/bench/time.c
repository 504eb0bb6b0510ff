/* apps/weir/bench/time.c: see the header. */
#include "apps/weir/bench/time.h"

#include "apps/weir/bench/spin_plan.h"
#include "apps/weir/bench/time_link.h"
#include "apps/weir/bench/timed.h"
#include "apps/weir/bench/traced.h"
#include "graph/base/error.h"
#include "graph/time/rates.h"

#include <math.h>
#include <string.h>

enum { ROUNDS_QUICK = 1, TRACES_MOST = 5 };
#define TRACE_S 0.2
#define BOUND 0.03       /* of a step */
#define TRACE_BOUND 0.06 /* of all firing times */
#define ORDER 0.97       /* of pairs of plans */

/* ---- plans ---- */

enum { SHARING = -2 /* so many workers for each core */ };

typedef struct spin_case {
    const char *name;
    spin_shape shape;
    int workers;
} spin_case;

/* No two sums of times are equal: where two firings end at once, chance decides which actor is next. */
static const spin_case cases[] = {
    {"chain", {1, 3, {2100, 3300, 4700}, 1, 0, SPIN_ALONE}, 1},
    {"dp2", {2, 2, {3300, 2100}, 1, 0, SPIN_SPLIT}, 2},
    {"dp4 on two workers", {4, 2, {3300, 2100}, 1, 0, SPIN_SPLIT}, 2},
    {"dp4, two workers a core", {4, 2, {3300, 2100}, 1, 0, SPIN_SPLIT}, SHARING},
    {"tp2", {2, 3, {3300, 2100, 4100}, 1, 0, SPIN_GATHERED}, 2},
    {"pp2", {2, 2, {2100, 4700}, 1, 0, SPIN_ALONE}, 2},
    {"pp2, 2 micro-batches", {2, 2, {2100, 4700}, 2, 0, SPIN_ALONE}, 2},
    {"pp2, 4 micro-batches", {2, 3, {2100, 4700, 3300}, 4, 0, SPIN_ALONE}, 2},
    {"pp2, 8 micro-batches", {2, 2, {4700, 3300}, 8, 0, SPIN_ALONE}, 2},
    {"pp4 on two workers", {4, 4, {2100, 4700, 3300, 4100}, 4, 0, SPIN_ALONE}, 2},
    {"there and back, one slot", {2, 3, {3300, 2100, 4100}, 4, 1, SPIN_ALONE}, 2},
    {"there and back, two slots", {2, 3, {3300, 2100, 4100}, 4, 2, SPIN_ALONE}, 2},
    {"there and back, three slots", {2, 3, {3300, 2100, 4100}, 4, 3, SPIN_ALONE}, 2},
};
enum { CASES = sizeof cases / sizeof *cases };

/* A stage of a case takes so much longer. */
typedef struct spin_change {
    int of, stage;
    int64_t us;
} spin_change;

static const spin_change changes[] = {
    {0, 0, 1700}, {0, 1, 2300}, {0, 2, 900},  {1, 0, 1900}, {1, 1, 2700}, {2, 0, 1300}, {3, 1, 1900}, {4, 0, 1500}, {4, 1, 2900},  {4, 2, 1100},
    {5, 0, 1700}, {5, 1, 1900}, {6, 0, 3700}, {7, 1, 2300}, {7, 2, 1700}, {8, 0, 1300}, {9, 1, 1900}, {9, 2, 2900}, {10, 1, 2300}, {11, 0, 1100},
};
enum { CHANGES = sizeof changes / sizeof *changes };

/* ---- measured and predicted ---- */

static int workers_of(const spin_case *c, const weir_rates *rates)
{
    return c->workers == SHARING ? -SHARING * (int)rates->cores : c->workers;
}

static weir_status measure(const weir_plan *plan, const spin_case *c, const weir_rates *rates, double guess, int rounds, double *seconds)
{
    double spread;
    weir_session *session = weir_session_open(plan, .cluster = {.alone = true}, .workers = workers_of(c, rates));
    const bench_timed timed = {.session = session, .guess = guess, .cores = c->workers == SHARING ? (double)rates->cores : 0, .rounds = rounds,
                               .agree = BENCH_TIMED_AGREE};
    weir_status status = session ? bench_timed_run(&timed, seconds, &spread) : WEIR_E_STATE;
    weir_session_close(session);
    return status;
}

/* Traces a short run, again if other programs took its processors. */
static weir_status trace(const weir_plan *plan, int workers, double guess, const char *path)
{
    weir_status status = WEIR_OK;
    bool disturbed = true;
    for (int i = 0; i < TRACES_MOST && disturbed && !status; i++) {
        const double waited = bench_spin_waited();
        weir_session *session = weir_session_open(plan, .cluster = {.alone = true}, .workers = workers, .trace = path);
        status = session ? weir_session_run(session, (int64_t)(TRACE_S / guess) + 1) : WEIR_E_STATE;
        disturbed = bench_spin_disturbed(waited, TRACE_S);
        weir_session_close(session);
    }
    return status;
}

static weir_status predict(const weir_plan *plan, const weir_rates *rates, int workers, const char *const *set, double *seconds)
{
    weir_prediction p = {0};
    weir_status status = weir_predict(plan, rates, &p, .workers = workers, .set = set);
    *seconds = p.step_s;
    return status;
}

/* One slot more of each stage that has a fixed number. */
static weir_status predict_more_slots(const weir_plan *plan, const spin_case *c, const weir_rates *rates, double *seconds)
{
    char texts[SPIN_STAGES][48];
    const char *set[SPIN_STAGES + 1] = {NULL};
    for (int i = 0; c->shape.slots && i < c->shape.stages; i++) {
        snprintf(texts[i], sizeof texts[i], "slots(spin%d)=%d", i, c->shape.slots + 1);
        set[i] = texts[i];
    }
    return predict(plan, rates, workers_of(c, rates), set, seconds);
}

/* Times of the shortest spin in the place of those of the longest, and the other way round. */
static void swap_rates(weir_rates *rates)
{
    time_call *least = NULL, *most = NULL;
    for (uint32_t i = 0; i < rates->call_count; i++) {
        time_call *call = &rates->calls[i];
        if (strncmp(call->text, SPIN_OP, strlen(SPIN_OP)) != 0)
            continue;
        least = !least || call->ps[0] < least->ps[0] ? call : least;
        most = !most || call->ps[0] > most->ps[0] ? call : most;
    }
    for (int p = 0; least && p < TIME_PLACES; p++) {
        const uint64_t ps = least->ps[p];
        least->ps[p] = most->ps[p];
        most->ps[p] = ps;
    }
}

enum wrong { WRONG_RATES, WRONG_MORE, WRONG_LESS, WRONG_SLOTS, WRONG_CORES, WRONGS };
static const char *const wrong_names[WRONGS] = {"swapped rates", "one worker more", "one worker less", "one slot more", "a core for each worker"};

typedef struct compared {
    double measured, predicted, wrong[WRONGS];
    double trace, wrong_trace; /* errors of all firing times, also with swapped rates */
} compared;

static double error_of(double predicted, double measured)
{
    return measured > 0 ? predicted / measured - 1 : INFINITY;
}

static weir_status predict_wrong(const weir_plan *plan, const spin_case *c, weir_rates *rates, compared *to)
{
    const int workers = workers_of(c, rates);
    const uint64_t cores = rates->cores;
    weir_status status = predict(plan, rates, workers + 1, NULL, &to->wrong[WRONG_MORE]);
    status = status ? status : predict(plan, rates, workers > 1 ? workers - 1 : 1, NULL, &to->wrong[WRONG_LESS]);
    status = status ? status : predict_more_slots(plan, c, rates, &to->wrong[WRONG_SLOTS]);
    rates->cores = (uint64_t)workers + cores;
    status = status ? status : predict(plan, rates, workers, NULL, &to->wrong[WRONG_CORES]);
    rates->cores = cores;
    swap_rates(rates);
    status = status ? status : predict(plan, rates, workers, NULL, &to->wrong[WRONG_RATES]);
    swap_rates(rates);
    return status;
}

/* Threads that share a core take turns of any length, so the length of a single firing is known only where each has one. */
static weir_status compare_traces(const bench_traced *traced, const weir_plan *plan, const spin_case *c, weir_rates *rates, compared *to)
{
    const weir_predict_opts opts = {.workers = workers_of(c, rates)};
    if (c->workers == SHARING)
        return WEIR_OK;
    weir_status status = trace(plan, opts.workers, to->predicted, traced->real);
    status = status ? status : bench_traced_error(traced, plan, rates, &opts, &to->trace);
    swap_rates(rates);
    status = status ? status : bench_traced_error(traced, plan, rates, &opts, &to->wrong_trace);
    swap_rates(rates);
    return status;
}

static weir_status compare(const weir_plan *plan, const spin_case *c, weir_rates *rates, int rounds, compared *to)
{
    bench_traced traced;
    weir_status status = bench_traced_open(&traced);
    if (status)
        return status;
    status = predict(plan, rates, workers_of(c, rates), NULL, &to->predicted);
    status = status ? status : measure(plan, c, rates, to->predicted, rounds, &to->measured);
    status = status ? status : predict_wrong(plan, c, rates, to);
    status = status ? status : compare_traces(&traced, plan, c, rates, to);
    bench_traced_close(&traced);
    return status;
}

/* ---- what if ---- */

/* A step with the change. */
typedef struct changed {
    double measured, predicted, wrong; /* wrong: the next stage is said to be slower */
} changed;

static weir_status predict_change(const weir_plan *plan, const spin_change *change, int stage, const weir_rates *rates, double *seconds)
{
    const spin_case *c = &cases[change->of];
    const double us = (double)c->shape.us[change->stage];
    char text[48];
    snprintf(text, sizeof text, "speed(spin%d)=%.6f", stage, us / (us + (double)change->us));
    return predict(plan, rates, workers_of(c, rates), (const char *[]){text, NULL}, seconds);
}

static weir_status compare_change(const weir_plan *plan, const spin_change *change, const weir_rates *rates, int rounds, changed *to)
{
    const spin_case *c = &cases[change->of];
    spin_shape slower = c->shape;
    slower.us[change->stage] += change->us;
    weir_plan *with = spin_plan(&slower, c->name);
    weir_status status = with ? predict_change(plan, change, change->stage, rates, &to->predicted) : WEIR_E_GRAPH;
    status = status ? status : predict_change(plan, change, (change->stage + 1) % c->shape.stages, rates, &to->wrong);
    status = status ? status : measure(with, c, rates, to->predicted, rounds, &to->measured);
    weir_plan_free(with);
    return status;
}

/* By how much of a step the predicted change differs from the measured one. */
static double change_error(const compared *before, const changed *after, double predicted)
{
    return ((predicted - before->predicted) - (after->measured - before->measured)) / before->measured;
}

/* ---- the verdict ---- */

typedef struct all_compared {
    compared plan[CASES];
    changed change[CHANGES];
    struct two_processes {
        double measured, predicted, more_slots;
    } shared[BENCH_SHARED];
} all_compared;

/* A plan that is predicted with one slot more takes as long as the next one, which has it. */
static double slot_error(const compared *all, int i)
{
    const int slots = cases[i].shape.slots;
    if (!slots || i + 1 == CASES || cases[i + 1].shape.slots != slots + 1)
        return 0;
    return fabs(error_of(all[i].wrong[WRONG_SLOTS], all[i + 1].measured));
}

static bench_pairs pairs_of(const all_compared *all)
{
    double measured[CASES + CHANGES], predicted[CASES + CHANGES];
    for (int i = 0; i < CASES; i++) {
        measured[i] = all->plan[i].measured;
        predicted[i] = all->plan[i].predicted;
    }
    for (int i = 0; i < CHANGES; i++) {
        measured[CASES + i] = all->change[i].measured;
        predicted[CASES + i] = all->change[i].predicted;
    }
    return bench_pairs_of(measured, predicted, CASES + CHANGES);
}

/* Right predictions are off by no more than the bound, and wrong ones by more. */
static weir_status judge_one(const char *name, double worst, double bound, const char *wrong_name, double wrong)
{
    if (worst > bound)
        return error_set(WEIR_E_KERNEL, "%s is off by %.1f %%, more than %.0f %%", name, 100 * worst, 100 * bound);
    if (wrong <= bound)
        return error_set(WEIR_E_KERNEL, "predictions with %s are as good as others, so the comparison shows nothing", wrong_name);
    return WEIR_OK;
}

/* The worst of all, right predictions and wrong ones. */
typedef struct verdict {
    double worst, off[WRONGS], slot_more; /* slot_more: of two processes */
    double change, wrong_change, trace, wrong_trace;
    bench_pairs pairs;
} verdict;

static void raise_to(double *worst, double error)
{
    *worst = fmax(*worst, fabs(error));
}

static verdict verdict_of(const all_compared *all)
{
    verdict v = {.pairs = pairs_of(all)};
    for (int i = 0; i < CASES; i++) {
        const compared *c = &all->plan[i];
        raise_to(&v.worst, error_of(c->predicted, c->measured));
        raise_to(&v.worst, slot_error(all->plan, i));
        for (int w = 0; w < WRONGS; w++)
            raise_to(&v.off[w], error_of(c->wrong[w], c->measured));
        raise_to(&v.trace, c->trace);
        raise_to(&v.wrong_trace, c->wrong_trace);
    }
    for (int i = 0; i < BENCH_SHARED; i++) {
        raise_to(&v.worst, error_of(all->shared[i].predicted, all->shared[i].measured));
        raise_to(&v.slot_more, error_of(all->shared[i].more_slots, all->shared[i].measured));
    }
    for (int i = 0; i < CHANGES; i++) {
        raise_to(&v.change, change_error(&all->plan[changes[i].of], &all->change[i], all->change[i].predicted));
        raise_to(&v.wrong_change, change_error(&all->plan[changes[i].of], &all->change[i], all->change[i].wrong));
    }
    return v;
}

static void print_verdict(const verdict *v, bool json, FILE *to)
{
    if (json) {
        fprintf(to, ", \"worst\": %.4f, \"worst_change\": %.4f, \"worst_trace\": %.4f, \"pairs\": %d, \"pairs_right\": %d}\n", v->worst, v->change,
                v->trace, v->pairs.count, v->pairs.right);
        return;
    }
    fprintf(to, "the worst prediction is off by %.1f %%\n", 100 * v->worst);
    for (int w = 0; w < WRONGS; w++)
        fprintf(to, "with %s one is off by %.0f %%\n", wrong_names[w], 100 * v->off[w]);
    fprintf(to, "with one slot more one of two processes is off by %.0f %%\n", 100 * v->slot_more);
    fprintf(to, "the worst change is off by %.1f %% of a step; told for another op, by %.0f %%\n", 100 * v->change, 100 * v->wrong_change);
    fprintf(to, "the worst trace is off by %.1f %%; with swapped rates, by %.0f %%\n", 100 * v->trace, 100 * v->wrong_trace);
    fprintf(to, "%d of %d pairs of plans that are more than 5 %% apart are in the right order\n", v->pairs.right, v->pairs.count);
}

static weir_status judge(const verdict *v)
{
    weir_status status = WEIR_OK;
    for (int w = 0; w < WRONGS && !status; w++)
        status = judge_one("a prediction", v->worst, BOUND, wrong_names[w], v->off[w]);
    status = status ? status : judge_one("a prediction", v->worst, BOUND, "one slot more between processes", v->slot_more);
    status = status ? status : judge_one("a change", v->change, BOUND, "changes of other ops", v->wrong_change);
    status = status ? status : judge_one("a trace", v->trace, TRACE_BOUND, "swapped rates", v->wrong_trace);
    if (!status && v->pairs.right < ORDER * v->pairs.count)
        status = error_set(WEIR_E_KERNEL, "%d of %d pairs of plans are in the wrong order, more than 3 %%", v->pairs.count - v->pairs.right, v->pairs.count);
    return status;
}

/* ---- all of it ---- */

static void print(int i, const compared *c, bool json, FILE *to)
{
    if (json) {
        fprintf(to, "%s\"%s\": {\"measured_s\": %.6f, \"predicted_s\": %.6f", i ? ", " : "{", cases[i].name, c->measured, c->predicted);
        fprintf(to, cases[i].workers == SHARING ? "}" : ", \"trace_error\": %.4f}", c->trace);
        return;
    }
    fprintf(to, "%-28s measured %8.3f ms, predicted %8.3f ms, %+5.1f %%", cases[i].name, 1e3 * c->measured, 1e3 * c->predicted,
            100 * error_of(c->predicted, c->measured));
    fprintf(to, cases[i].workers == SHARING ? "\n" : "; trace %.1f %%\n", 100 * c->trace);
}

static void print_change(const spin_change *change, const compared *before, const changed *after, bool json, FILE *to)
{
    const char *name = cases[change->of].name;
    const double measured = after->measured - before->measured, predicted = after->predicted - before->predicted;
    if (json)
        fprintf(to, ", \"%s, spin%d + %d us\": {\"measured_change_s\": %.6f, \"predicted_change_s\": %.6f}", name, change->stage, (int)change->us, measured,
                predicted);
    else
        fprintf(to, "%-28s spin%d + %.1f ms: measured %+7.3f ms, predicted %+7.3f ms, %+4.1f %% of a step\n", name, change->stage,
                1e-3 * (double)change->us, 1e3 * measured, 1e3 * predicted, 100 * change_error(before, after, after->predicted));
}

static void print_shared(const char *name, const struct two_processes *c, bool json, FILE *to)
{
    if (json)
        fprintf(to, ", \"two processes, %s\": {\"measured_s\": %.6f, \"predicted_s\": %.6f}", name, c->measured, c->predicted);
    else
        fprintf(to, "two processes, %-21s  measured %8.3f ms, predicted %8.3f ms, %+5.1f %%\n", name, 1e3 * c->measured, 1e3 * c->predicted,
                100 * error_of(c->predicted, c->measured));
}

static weir_status compare_all(const weir_plan *const *plans, const bench_shared *shared, weir_rates *rates, bool json, int rounds, FILE *to)
{
    all_compared all = {.plan = {{.measured = 0}}};
    weir_status status = WEIR_OK;
    for (int i = 0; i < CASES && !status; i++) {
        status = compare(plans[i], &cases[i], rates, rounds, &all.plan[i]);
        if (!status)
            print(i, &all.plan[i], json, to), fflush(to);
    }
    for (int i = 0; i < BENCH_SHARED && !status; i++) {
        all.shared[i].measured = shared[i].measured;
        status = bench_shared_predict(&shared[i], rates, false, &all.shared[i].predicted);
        status = status ? status : bench_shared_predict(&shared[i], rates, true, &all.shared[i].more_slots);
        if (!status)
            print_shared(shared[i].name, &all.shared[i], json, to);
    }
    for (int i = 0; i < CHANGES && !status; i++) {
        status = compare_change(plans[changes[i].of], &changes[i], rates, rounds, &all.change[i]);
        if (!status)
            print_change(&changes[i], &all.plan[changes[i].of], &all.change[i], json, to), fflush(to);
    }
    if (status)
        return status;
    const verdict v = verdict_of(&all);
    print_verdict(&v, json, to);
    return judge(&v);
}

/* Calls of all plans; what processes measured stays. */
static weir_status measure_calls(const weir_plan *const *plans, const bench_shared *shared, weir_rates *rates)
{
    const weir_plan *all[CASES + BENCH_SHARED];
    const uint64_t process = rates->process;
    memcpy(all, plans, CASES * sizeof *all);
    for (int i = 0; i < BENCH_SHARED; i++)
        all[CASES + i] = shared[i].plan;
    const bool measured = weir_measure(all, CASES + BENCH_SHARED, .noisy = true, .add_to = rates);
    rates->process = process;
    return measured ? WEIR_OK : WEIR_E_STATE;
}

/* Processes first: sessions and weir_measure() start threads. */
weir_status bench_time(bool json, bool quick, FILE *to)
{
    const weir_plan *plans[CASES] = {NULL};
    bench_shared shared[BENCH_SHARED] = {{.plan = NULL}};
    weir_rates *rates = rates_new();
    weir_status status = rates ? WEIR_OK : error_set(WEIR_E_MEMORY, "no memory for rates");
    status = status ? status : bench_shared_measure(shared, rates, quick ? ROUNDS_QUICK : BENCH_SHARED_ROUNDS);
    for (int i = 0; i < CASES && !status; i++)
        status = (plans[i] = spin_plan(&cases[i].shape, cases[i].name)) ? WEIR_OK : WEIR_E_GRAPH;
    status = status ? status : measure_calls(plans, shared, rates);
    status = status ? status : compare_all(plans, shared, rates, json, quick ? ROUNDS_QUICK : BENCH_TIMED_ROUNDS, to);
    weir_rates_free(rates);
    bench_shared_free(shared);
    for (int i = 0; i < CASES; i++)
        weir_plan_free((weir_plan *)plans[i]);
    return status;
}
