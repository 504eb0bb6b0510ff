/* apps/weir/bench/time.c: see the header. */
#include "apps/weir/bench/time.h"

#include "apps/weir/bench/timed.h"
#include "graph/base/error.h"
#include "graph/time/rates.h"

#include <math.h>
#include <string.h>

enum { ROUNDS_QUICK = 3, ELEMENTS = 16, INPUT_SLOTS = 4 /* the source need not wake up in time */ };
#define BOUND 0.03

/* ---- the op ---- */

typedef struct spin_attrs {
    int64_t us;
} spin_attrs;

static weir_status spin(const weir_kernel_args *args)
{
    bench_spin(((const spin_attrs *)args->attrs)->us);
    memcpy(args->out[0].data, args->in[0].data, (size_t)weir_shape_count(&args->in[0].shape) * sizeof(float));
    return WEIR_OK;
}

static bool spin_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    (void)error, (void)error_bytes;
    args->out[0] = args->in[0];
    return true;
}

static void spin_signatures(const weir_op_args *args, weir_signature_list *list)
{
    for (int d = 0; d < args->in[0].shape.rank; d++) {
        weir_signature *s = weir_signature_new(list);
        s->in[0] = s->out[0] = WEIR_S(d);
    }
}

static const weir_field spin_fields[] = {WEIR_FIELD_INT(spin_attrs, us)};
static const weir_op spin_op = {.name = "bench_spin", .fields = spin_fields, .field_count = 1, .attrs_bytes = sizeof(spin_attrs), .in_min = 1,
                                .in_max = 1, .out_count = 1, .infer = spin_infer, .signatures = spin_signatures, .kernel = {[WEIR_CPU] = spin}};

static weir_tensor *add_spin(weir_tensor *x, const char *name, int64_t us)
{
    return weir_op_apply(&(weir_apply){WEIR_HERE, name, &spin_op, weir_tensor_graph(x), &x, 1, &(spin_attrs){us}}, NULL);
}

/* ---- plans ---- */

enum { STAGES = 4, SHARING = -2 /* so many workers for each core */ };

typedef struct spin_case {
    const char *name;
    int devices, stages;     /* a stage is on devices 0 .. devices - 1, or, in turn, on one of them */
    int64_t us[STAGES];          /* of each stage */
    int micro, slots;        /* 0: as the compiler chooses */
    int workers;
    enum { ALONE, SPLIT, GATHERED } parts; /* SPLIT: all devices have a part of each stage, and the last gathers; GATHERED: each gathers */
} spin_case;

/* No two sums of times are equal: where two firings end at once, chance decides which actor is next. */
static const spin_case cases[] = {
    {"chain", 1, 3, {2100, 3300, 4700}, 1, 0, 1, ALONE},
    {"dp2", 2, 2, {3300, 2100}, 1, 0, 2, SPLIT},
    {"dp4 on two workers", 4, 2, {3300, 2100}, 1, 0, 2, SPLIT},
    {"dp4, two workers a core", 4, 2, {3300, 2100}, 1, 0, SHARING, SPLIT},
    {"tp2", 2, 3, {3300, 2100, 4100}, 1, 0, 2, GATHERED},
    {"pp2", 2, 2, {2100, 4700}, 1, 0, 2, ALONE},
    {"pp2, 2 micro-batches", 2, 2, {2100, 4700}, 2, 0, 2, ALONE},
    {"pp2, 4 micro-batches", 2, 3, {2100, 4700, 3300}, 4, 0, 2, ALONE},
    {"pp2, 8 micro-batches", 2, 2, {4700, 3300}, 8, 0, 2, ALONE},
    {"pp4 on two workers", 4, 4, {2100, 4700, 3300, 4100}, 4, 0, 2, ALONE},
    {"there and back, one slot", 2, 3, {3300, 2100, 4100}, 4, 1, 2, ALONE},
    {"there and back, two slots", 2, 3, {3300, 2100, 4100}, 4, 2, 2, ALONE},
    {"there and back, three slots", 2, 3, {3300, 2100, 4100}, 4, 3, 2, ALONE},
};
enum { CASES = sizeof cases / sizeof *cases };

static weir_tensor *stage(weir_graph *g, const spin_case *c, weir_tensor *x, int i)
{
    char device[32], name[32];
    snprintf(name, sizeof name, "spin%d", i);
    snprintf(device, sizeof device, c->parts ? "cpu:0-%d" : "cpu:%d", c->parts ? c->devices - 1 : i % c->devices);
    WEIR_ON(weir_mesh_new(g, device))
    {
        x = add_spin(x, name, c->us[i]);
        if (c->slots)
            weir_slots(x, c->slots);
        if (c->parts == GATHERED)
            x = weir_shard(x, .sbp = {WEIR_B});
    }
    return x;
}

static weir_status give_zeros(void *ctx, const weir_view *value, int64_t step, int micro)
{
    (void)ctx, (void)step, (void)micro;
    memset(value->data, 0, (size_t)weir_shape_count(&value->shape) * sizeof(float));
    return WEIR_OK;
}

static weir_status drop(void *ctx, const weir_view *value, int64_t step, int micro)
{
    (void)ctx, (void)value, (void)step, (void)micro;
    return WEIR_OK;
}

static weir_plan *case_plan(const spin_case *c)
{
    weir_graph *g = weir_graph_new(c->name);
    weir_tensor *x = NULL;
    char device[32];
    snprintf(device, sizeof device, c->parts ? "cpu:0-%d" : "cpu:0", c->devices - 1);
    WEIR_ON(weir_mesh_new(g, device))
        x = weir_input(g, WEIR_F32, {ELEMENTS}, .name = "x", .source = give_zeros, .micro = c->micro > 1, .sbp = {c->parts ? WEIR_S(0) : WEIR_B});
    weir_slots(x, INPUT_SLOTS);
    for (int i = 0; i < c->stages; i++)
        x = stage(g, c, x, i);
    weir_fetch(x, .name = "y", .sink = drop);
    weir_plan *plan = weir_compile(g, .micro_batches = c->micro);
    weir_graph_free(g);
    return plan;
}

/* ---- measured and predicted ---- */

static int workers_of(const spin_case *c, const weir_rates *rates)
{
    return c->workers == SHARING ? -SHARING * (int)rates->cores : c->workers;
}

static weir_status measure(const weir_plan *plan, int workers, double guess, int rounds, double *seconds)
{
    double spread;
    weir_session *session = weir_session_open(plan, .cluster = {.alone = true}, .workers = workers);
    weir_status status = session ? bench_timed_run(&(bench_timed){session, guess, rounds, NULL, 0}, seconds, &spread) : WEIR_E_STATE;
    weir_session_close(session);
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
    char texts[STAGES][48];
    const char *set[STAGES + 1] = {NULL};
    for (int i = 0; c->slots && i < c->stages; i++) {
        snprintf(texts[i], sizeof texts[i], "slots(spin%d)=%d", i, c->slots + 1);
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
        if (strncmp(call->text, spin_op.name, strlen(spin_op.name)) != 0)
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

/* ---- all of it ---- */

enum wrong { WRONG_RATES, WRONG_MORE, WRONG_LESS, WRONG_SLOTS, WRONG_CORES, WRONGS };
static const char *const wrong_names[WRONGS] = {"swapped rates", "one worker more", "one worker less", "one slot more", "a core for each worker"};

typedef struct compared {
    double measured, predicted, wrong[WRONGS];
} compared;

static double error_of(double predicted, double measured)
{
    return measured > 0 ? predicted / measured - 1 : INFINITY;
}

static weir_status compare(const weir_plan *plan, const spin_case *c, weir_rates *rates, int rounds, compared *to)
{
    const int workers = workers_of(c, rates);
    const uint64_t cores = rates->cores;
    weir_status status = predict(plan, rates, workers, NULL, &to->predicted);
    status = status ? status : measure(plan, workers, to->predicted, rounds, &to->measured);
    status = status ? status : predict(plan, rates, workers + 1, NULL, &to->wrong[WRONG_MORE]);
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

/* A plan that is predicted with one slot more takes as long as the next one, which has it. */
static double what_if_error(const compared *all, int i)
{
    if (!cases[i].slots || i + 1 == CASES || cases[i + 1].slots != cases[i].slots + 1)
        return 0;
    return fabs(error_of(all[i].wrong[WRONG_SLOTS], all[i + 1].measured));
}

static weir_status judge(const compared *all, bool json, FILE *to)
{
    double worst = 0, off[WRONGS] = {0};
    for (int i = 0; i < CASES; i++) {
        worst = fmax(worst, fmax(fabs(error_of(all[i].predicted, all[i].measured)), what_if_error(all, i)));
        for (int w = 0; w < WRONGS; w++)
            off[w] = fmax(off[w], fabs(error_of(all[i].wrong[w], all[i].measured)));
    }
    fprintf(to, json ? ", \"worst\": %.4f" : "the worst prediction is off by %.1f %%\n", json ? worst : 100 * worst);
    for (int w = 0; w < WRONGS && !json; w++)
        fprintf(to, "with %s one is off by %.0f %%\n", wrong_names[w], 100 * off[w]);
    fputs(json ? "}\n" : "", to);
    if (worst > BOUND)
        return error_set(WEIR_E_KERNEL, "a prediction is off by %.1f %%, more than %.0f %%", 100 * worst, 100 * BOUND);
    for (int w = 0; w < WRONGS; w++)
        if (off[w] <= BOUND)
            return error_set(WEIR_E_KERNEL, "predictions with %s are as good as others, so the comparison shows nothing", wrong_names[w]);
    return WEIR_OK;
}

static void print(int i, const compared *c, bool json, FILE *to)
{
    if (json)
        fprintf(to, "%s\"%s\": {\"measured_s\": %.6f, \"predicted_s\": %.6f}", i ? ", " : "{", cases[i].name, c->measured, c->predicted);
    else
        fprintf(to, "%-28s measured %8.3f ms, predicted %8.3f ms, %+5.1f %%\n", cases[i].name, 1e3 * c->measured, 1e3 * c->predicted,
                100 * error_of(c->predicted, c->measured));
}

weir_status bench_time(bool json, bool quick, FILE *to)
{
    weir_plan *plans[CASES] = {NULL};
    compared all[CASES] = {{0}};
    weir_status status = weir_op_find(spin_op.name) ? WEIR_OK : weir_op_register(&spin_op);
    for (int i = 0; i < CASES && !status; i++)
        status = (plans[i] = case_plan(&cases[i])) ? WEIR_OK : WEIR_E_GRAPH;
    weir_rates *rates = status ? NULL : weir_measure((const weir_plan *const *)plans, CASES, .noisy = true);
    status = status ? status : rates ? WEIR_OK : WEIR_E_STATE;
    for (int i = 0; i < CASES && !status; i++) {
        status = compare(plans[i], &cases[i], rates, quick ? ROUNDS_QUICK : BENCH_TIMED_ROUNDS, &all[i]);
        if (!status)
            print(i, &all[i], json, to);
    }
    status = status ? status : judge(all, json, to);
    weir_rates_free(rates);
    for (int i = 0; i < CASES; i++)
        weir_plan_free(plans[i]);
    return status;
}
