/* apps/weir/bench/predict.c: see the header. */
#define _GNU_SOURCE
#include "apps/weir/bench/predict.h"

#include "actors/measure/measure.h"
#include "apps/common/measure.h"
#include "apps/weir/bench/gpt.h"
#include "apps/weir/bench/timed.h"
#include "apps/weir/bench/traced.h"
#include "graph/base/error.h"
#include "graph/time/call.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { CASES_MAX = 96, WORKERS = 2, ROUNDS = 5, QUICK = 8, HEAVIEST = 8 };
#define STEADY 1.05  /* rounds of a plan that are further apart do not count */
#define FIT 0.8      /* of all plans must be steady */
#define ORDER 0.97   /* of pairs of plans that are apart must be in the right order */

/* ---- which plans ---- */

typedef struct model_case {
    int layers, dim, heads, seq, batch; /* of a GPT; heads 0: an MLP of `layers` hidden layers, for `batch` rows */
    layout layout;
    weir_dtype precision;
    double memory;             /* of the bytes that the plan has without a limit; 0: no limit */
} model_case;

static const model_case models[] = {
    {.layers = 2, .dim = 64, .heads = 2, .seq = 64, .batch = 8},   {.layers = 8, .dim = 64, .heads = 2, .seq = 64, .batch = 8},
    {.layers = 4, .dim = 128, .heads = 4, .seq = 64, .batch = 8},  {.layers = 3, .dim = 192, .heads = 6, .seq = 128, .batch = 8},
    {.layers = 2, .dim = 384, .heads = 6, .seq = 64, .batch = 8},  {.layers = 2, .dim = 512, .heads = 8, .seq = 64, .batch = 8},
    {.layers = 4, .dim = 512, .batch = 128},
};
enum { MODELS = sizeof models / sizeof *models, LIMITED = 3 /* the model of the plans with a memory limit */ };

static const layout layouts[] = {
    {.dp = 1}, {.dp = 2}, {.dp = 2, .zero = true}, {.tp = 2}, {.pp = 2}, {.pp = 2, .micro = 2}, {.pp = 2, .micro = 4}, {.pp = 2, .micro = 8},
};

typedef struct case_list {
    model_case cases[CASES_MAX];
    int count;
} case_list;

static void add(case_list *l, const model_case *model, layout spread, weir_dtype precision, double memory)
{
    model_case *to = &l->cases[l->count++];
    *to = *model;
    to->layout = spread;
    to->precision = precision;
    to->memory = memory;
}

static void list_cases(case_list *l)
{
    const int count = sizeof layouts / sizeof *layouts;
    l->count = 0;
    for (int m = 0; m < MODELS; m++)
        for (int i = 0; i < count && (models[m].heads || i < 3); i++)
            if (models[m].layers > 2 || layouts[i].micro < 8)
                add(l, &models[m], layouts[i], WEIR_F32, 0);
    for (int m = 2; m < 6; m++) {
        add(l, &models[m], layouts[0], WEIR_BF16, 0);
        add(l, &models[m], layouts[1], WEIR_BF16, 0);
        add(l, &models[m], (layout){.dp = 2, .tp = 2}, WEIR_F32, 0);
    }
    add(l, &models[1], (layout){.pp = 4, .micro = 4}, WEIR_F32, 0);
    add(l, &models[2], (layout){.pp = 4, .micro = 4}, WEIR_F32, 0);
    for (int i = 0; i < 3; i++)
        add(l, &models[LIMITED], layouts[0], WEIR_F32, 0.9 - 0.15 * i);
}

/* "gpt 3 x 192, seq 128, dp 2 zero, bf16" */
static void write_name(const model_case *c, char *name, size_t bytes)
{
    const layout l = layout_full(c->layout);
    int at = snprintf(name, bytes, "%s %d x %d", c->heads ? "gpt" : "mlp", c->layers, c->dim);
    at += snprintf(name + at, bytes - (size_t)at, l.dp > 1 ? " dp %d%s" : "", l.dp, l.zero ? " zero" : "");
    at += snprintf(name + at, bytes - (size_t)at, l.tp > 1 ? " tp %d" : "", l.tp);
    at += snprintf(name + at, bytes - (size_t)at, l.pp > 1 ? " pp %d micro %d" : "", l.pp, l.micro);
    at += snprintf(name + at, bytes - (size_t)at, "%s", c->precision > WEIR_F32 ? " bf16" : "");
    snprintf(name + at, bytes - (size_t)at, c->memory > 0 ? " in %.0f %% of its bytes" : "", 100 * c->memory);
}

/* ---- plans ---- */

typedef struct built {
    char name[96];
    model_case is;
    gpt_config config;         /* borrowed by the plan's sources */
    weir_plan *plan;           /* owned */
    int pulls;                 /* of the loss, in a step */
} built;

static weir_status give_zeros(void *ctx, const weir_view *value, int64_t step, int micro)
{
    (void)ctx, (void)step, (void)micro;
    memset(value->data, 0, (size_t)weir_shape_count(&value->shape) * weir_dtype_bytes(value->dtype));
    return WEIR_OK;
}

static weir_graph *mlp_graph(const model_case *c, const layout *l)
{
    weir_graph *g = weir_graph_new("mlp");
    char devices[32];
    snprintf(devices, sizeof devices, "cpu:0-%d", l->dp - 1);
    WEIR_ON(weir_mesh_new(g, devices)) {
        weir_tensor *x = weir_input(g, WEIR_F32, {c->batch, c->dim}, .name = "x", .source = give_zeros, .sbp = {WEIR_S(0)});
        weir_tensor *labels = weir_input(g, WEIR_I32, {c->batch}, .name = "labels", .source = give_zeros, .sbp = {WEIR_S(0)});
        for (int i = 0; i < c->layers; i++)
            x = weir_gelu(weir_linear(x, c->dim, .init = WEIR_NORMAL(0.02)));
        x = weir_cross_entropy(weir_linear(x, 256, .init = WEIR_NORMAL(0.02)), labels, .name = "loss");
        weir_train(x, weir_adamw(.lr = 1e-3), .zero = {l->zero});
        weir_fetch(x, .name = "loss", .slots = 4);
    }
    return g;
}

static weir_graph *graph_of(built *b, const text *corpus)
{
    const model_case *c = &b->is;
    const layout l = layout_full(c->layout);
    b->pulls = l.micro;
    if (!c->heads)
        return mlp_graph(c, &l);
    b->config = (gpt_config){.layers = c->layers, .dim = c->dim, .heads = c->heads, .seq = c->seq, .batch = c->batch, .layout = c->layout,
                             .optimizer = weir_adamw(.lr = 1e-3), .recompute = c->memory > 0, .corpus = corpus};
    return gpt_train_graph(&b->config);
}

static weir_plan *compile(built *b, const text *corpus, const char *memory)
{
    weir_graph *graph = graph_of(b, corpus);
    weir_plan *plan = graph ? weir_compile(graph, .micro_batches = b->pulls, .precision = b->is.precision, .memory = memory) : NULL;
    weir_graph_free(graph);
    return plan;
}

static weir_status build(built *b, const model_case *c, const text *corpus)
{
    char memory[32];
    b->is = *c;
    write_name(c, b->name, sizeof b->name);
    b->is.memory = 0;
    b->plan = compile(b, corpus, NULL);
    if (b->plan && c->memory > 0) {
        snprintf(memory, sizeof memory, "%.0fB", c->memory * (double)weir_plan_bytes(b->plan, -1));
        weir_plan_free(b->plan);
        b->is.memory = c->memory;
        b->plan = compile(b, corpus, memory);
    }
    return b->plan ? WEIR_OK : WEIR_E_GRAPH;
}

/* ---- drift ---- */

static uint64_t weight_of(const weir_plan *plan, const weir_rates *rates, uint32_t kernel, char *call_text)
{
    const time_call *call = time_call_text(plan, kernel, call_text) ? rates_find(rates, call_text) : NULL;
    return call ? call->ps[TIME_WARM] * plan->actors[plan->kernels[kernel].actor.i].fires : 0;
}

static int by_weight(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x < *y) - (*x > *y);
}

/* How much longer the heaviest calls of a plan take now than by the rates. 1 if nothing of it was measured. */
static double drift(const sampler *s, const weir_plan *plan, const weir_rates *rates)
{
    double now = 0, then = 0;
    char *call_text = malloc(TIME_CALL_BYTES);
    uint64_t(*heavy)[2] = malloc((plan->kernels_count + (size_t)1) * sizeof *heavy);
    for (uint32_t k = 0; call_text && heavy && k < plan->kernels_count; k++) {
        heavy[k][0] = weight_of(plan, rates, k, call_text);
        heavy[k][1] = k;
    }
    if (call_text && heavy)
        qsort(heavy, plan->kernels_count, sizeof *heavy, by_weight);
    for (uint32_t i = 0; call_text && heavy && i < plan->kernels_count && i < HEAVIEST; i++) {
        const uint32_t kernel = (uint32_t)heavy[i][1];
        time_call again = {.text = NULL};
        const time_call *call = time_call_text(plan, kernel, call_text) ? rates_find(rates, call_text) : NULL;
        if (!call || !call->ps[TIME_WARM] || !measure_call(s, &(measure_beside){.stream = false}, plan, kernel, &again))
            continue;
        then += (double)heavy[i][0];
        now += (double)heavy[i][0] * (double)again.ps[TIME_WARM] / (double)call->ps[TIME_WARM];
    }
    free(call_text);
    free(heavy);
    return then > 0 ? now / then : 1;
}

/* ---- measured and predicted ---- */

typedef struct compared {
    double measured, spread, raw, corrected;
    double null;               /* seconds by 100 G operations a second on each worker */
    double trace;              /* error of all firing times */
    bool counts;
} compared;

/* The thread that pulls must get a processor as soon as there is a value: at real-time priority it goes before the workers, which have
 * the priority that it has now. */
static void go_first(bool first)
{
    int policy;
    struct sched_param param;
    if (pthread_getschedparam(pthread_self(), &policy, &param) || policy != SCHED_FIFO)
        return;
    param.sched_priority += first ? 1 : -1;
    pthread_setschedparam(pthread_self(), policy, &param);
}

static weir_status measure(const built *b, double guess, const char *trace, double *seconds, double *spread)
{
    weir_session *session = weir_session_open(b->plan, .cluster = {.alone = true}, .workers = WORKERS, .trace = trace);
    const bench_timed timed = {.session = session, .guess = guess, .rounds = ROUNDS, .pulled = "loss", .pulls = b->pulls};
    go_first(true);
    weir_status status = session ? bench_timed_run(&timed, seconds, spread) : WEIR_E_STATE;
    go_first(false);
    weir_session_close(session);
    return status;
}

static double null_seconds(const weir_plan *plan)
{
    double flops = 0;
    for (uint32_t k = 0; k < plan->kernels_count; k++)
        flops += time_call_cost(plan, k).flops * plan->actors[plan->kernels[k].actor.i].fires;
    return flops / 1e11 / (plan->queues_count > 1 ? WORKERS : 1);
}

static weir_status compare(const sampler *s, const built *b, const weir_rates *rates, compared *to)
{
    weir_prediction p = {.steady = false};
    bench_traced traced;
    *to = (compared){.counts = false};
    weir_status status = bench_traced_open(&traced);
    if (status)
        return status;
    status = weir_predict(b->plan, rates, &p, .workers = WORKERS);
    const double before = status ? 1 : drift(s, b->plan, rates);
    status = status ? status : measure(b, p.step_s, traced.real, &to->measured, &to->spread);
    status = status ? status : bench_traced_error(&traced, b->plan, rates, &(weir_predict_opts){.workers = WORKERS}, &to->trace);
    const double after = status ? 1 : drift(s, b->plan, rates);
    to->raw = p.step_s;
    to->corrected = p.step_s * (before + after) / 2;
    to->null = null_seconds(b->plan);
    to->counts = to->spread <= STEADY;
    bench_traced_close(&traced);
    return status;
}

/* ---- the answer ---- */

typedef struct errors {
    double value[CASES_MAX];
    int count;
} errors;

/* Errors of the plans that count, or, with `whole`, of all. */
static void print_errors(const char *name, const compared *all, int count, bool whole, size_t offset, FILE *to)
{
    errors e = {.count = 0};
    for (int i = 0; i < count; i++)
        if (whole || all[i].counts) {
            double predicted;
            memcpy(&predicted, (const char *)&all[i] + offset, sizeof predicted);
            e.value[e.count++] = fabs(predicted / all[i].measured - 1);
        }
    if (!e.count)
        return;
    const double median = measure_median(e.value, e.count);
    const double p90 = measure_quantile(e.value, e.count, 0.9), most = measure_quantile(e.value, e.count, 1);
    fprintf(to, "%-34s median %5.1f %%, 90th percentile %5.1f %%, most %5.1f %%\n", name, 100 * median, 100 * p90, 100 * most);
}

static void print_order(const compared *all, int count, FILE *to)
{
    double measured[CASES_MAX], corrected[CASES_MAX];
    int counted = 0;
    for (int i = 0; i < count; i++)
        if (all[i].counts) {
            measured[counted] = all[i].measured;
            corrected[counted++] = all[i].corrected;
        }
    const bench_pairs pairs = bench_pairs_of(measured, corrected, counted);
    fprintf(to, "%d of %d pairs of plans that are more than 5 %% apart are in the right order%s\n", pairs.right, pairs.count,
            pairs.right < ORDER * pairs.count ? ", fewer than 97 %" : "");
}

/* The error of all firing times of a plan, over the plans that count. */
static void print_traces(const compared *all, int count, FILE *to)
{
    errors e = {.count = 0};
    for (int i = 0; i < count; i++)
        if (all[i].counts)
            e.value[e.count++] = all[i].trace;
    if (e.count)
        fprintf(to, "%-34s median %5.1f %%, most %5.1f %%\n", "firing times of a plan", 100 * measure_median(e.value, e.count),
                100 * measure_quantile(e.value, e.count, 1));
}

static void print(const built *b, const compared *c, bool json, bool first, FILE *to)
{
    if (json)
        fprintf(to, "%s{\"plan\": \"%s\", \"measured_s\": %.6f, \"spread\": %.4f, \"predicted_s\": %.6f, \"corrected_s\": %.6f, \"null_s\": %.6f, "
                    "\"trace_error\": %.4f}", first ? "" : ", ", b->name, c->measured, c->spread, c->raw, c->corrected, c->null, c->trace);
    else
        fprintf(to, "%-34s measured %8.3f ms (%4.1f %% apart), predicted %8.3f %+5.1f %%, corrected %+5.1f %%, trace %4.1f %%%s\n", b->name, 1e3 * c->measured,
                100 * (c->spread - 1), 1e3 * c->raw, 100 * (c->raw / c->measured - 1), 100 * (c->corrected / c->measured - 1),
                100 * c->trace, c->counts ? "" : ", does not count");
    fflush(to);
}

static void print_all(const compared *all, int count, FILE *to)
{
    int steady = 0;
    for (int i = 0; i < count; i++)
        steady += all[i].counts;
    print_errors("predicted", all, count, false, offsetof(compared, raw), to);
    print_errors("corrected by what calls take now", all, count, false, offsetof(compared, corrected), to);
    print_errors("by 100 G operations a second", all, count, false, offsetof(compared, null), to);
    if (steady < count)
        print_errors("predicted, all plans", all, count, true, offsetof(compared, raw), to);
    print_traces(all, count, to);
    print_order(all, count, to);
    fprintf(to, "%d of %d plans are steady%s\n", steady, count, steady < FIT * count ? ": this machine is unfit to judge predictions now" : "");
}

/* ---- all of it ---- */

static weir_rates *rates_of(const char *path, const weir_plan *const *plans, int count)
{
    weir_rates *rates = path ? weir_rates_load(path) : NULL;
    weir_rates *all = weir_measure(plans, count, .noisy = true, .add_to = rates);
    if (!all) {
        weir_rates_free(rates);
        return NULL;
    }
    if (path && weir_rates_save(all, path)) {
        weir_rates_free(all);
        return NULL;
    }
    return all;
}

static weir_status compare_all(const built *plans, int count, const weir_rates *rates, bool json, FILE *to)
{
    compared all[CASES_MAX];
    sampler s;
    weir_status status = sampler_open(&s);
    for (int i = 0; i < count && !status; i++) {
        status = compare(&s, &plans[i], rates, &all[i]);
        if (!status)
            print(&plans[i], &all[i], json, i == 0, to);
    }
    if (!status && !json)
        print_all(all, count, to);
    sampler_close(&s);
    return status;
}

weir_status bench_predict(const char *path, bool json, bool quick, FILE *to)
{
    case_list l;
    const weir_plan *plans[CASES_MAX];
    int count = 0;
    list_cases(&l);
    text corpus = bench_gpt_corpus();
    built *all = calloc(CASES_MAX, sizeof *all);
    weir_status status = all && corpus.bytes ? WEIR_OK : error_set(WEIR_E_MEMORY, "no memory for the plans");
    for (int i = 0; i < l.count && !status; i += quick ? QUICK : 1) {
        status = build(&all[count], &l.cases[i], &corpus);
        plans[count] = all[count].plan;
        count += !status;
    }
    weir_rates *rates = status ? NULL : rates_of(path, plans, count);
    status = status ? status : rates ? WEIR_OK : WEIR_E_STATE;
    fputs(json ? "[" : "", to);
    status = status ? status : compare_all(all, count, rates, json, to);
    fputs(json ? "]\n" : "", to);
    weir_rates_free(rates);
    for (int i = 0; i < count; i++)
        weir_plan_free(all[i].plan);
    free(all);
    text_free(&corpus);
    return status;
}
