/* apps/weir/bench/scale.c: `weir bench scale`.
 *
 * A plan that is compiled within a second is compiled several times, and the median counts; larger ones are compiled
 * once. Each is freed before the next, so memory is that of the largest.
 */
#include "apps/weir/bench/scale.h"
#include "apps/weir/bench/gpt.h"
#include "apps/common/measure.h"
#include "graph/base/error.h"
#include "graph/plan/form/plan.h"
#include "graph/time/rates.h"

#include <stdlib.h>

enum { ROUNDS = 5, LAYERS = BENCH_SCALE_LAYERS };
enum { L2_BYTES = 1 << 20, FIRING_PS = 10000, MESSAGE_PS = 200000 }; /* of the machine that plans are predicted for */
#define SECONDS_MAX 1.0 /* that rounds after the first may take */

typedef struct size {
    int layers, dp, tp, pp;
} size;

static const size sizes[] = {{LAYERS, 8, 1, 1},   {LAYERS, 16, 1, 1},  {LAYERS, 32, 1, 1},   {LAYERS, 64, 1, 1},
                             {LAYERS, 128, 1, 1}, {LAYERS, 256, 1, 1}, {LAYERS, 512, 1, 1}, {LAYERS, 1024, 1, 1},
                             {64, 16, 8, 8}};

typedef struct figures {
    double compile_s, predict_s;
    int64_t firings;       /* that the prediction played */
    size_t plan_bytes;
    uint32_t ports;
} figures;

static int64_t devices_of(const size *s)
{
    return (int64_t)s->dp * s->tp * s->pp;
}

static weir_plan *compile_size(const gpt_config *config, double *seconds)
{
    weir_graph *graph = gpt_train_graph(config);
    double start = measure_seconds();
    weir_plan *plan = graph ? weir_compile(graph, .micro_batches = config->layout.micro) : NULL;
    *seconds = measure_seconds() - start;
    weir_graph_free(graph);
    return plan;
}

/* On a machine with a core for each device, by guessed times of all calls. */
static weir_status predict(const weir_plan *plan, figures *f)
{
    weir_prediction p;
    weir_rates *rates = rates_new();
    if (!rates)
        return error_set(WEIR_E_MEMORY, "no memory for rates");
    rates->cores = plan->spaces_count;
    rates->l2 = L2_BYTES;
    rates->l3 = plan->spaces_count * L2_BYTES;
    rates->same = FIRING_PS;
    rates->worker = MESSAGE_PS;
    const double start = measure_seconds();
    weir_status status = weir_predict(plan, rates, &p);
    f->predict_s = measure_seconds() - start;
    f->firings = status ? 0 : p.firings;
    weir_rates_free(rates);
    return status;
}

static weir_status take_figures(const weir_plan *plan, figures *f)
{
    void *bytes = NULL;
    weir_status status = predict(plan, f);
    status = status ? status : plan_encode(plan, &bytes, &f->plan_bytes);
    f->ports = plan->ports_count;
    free(bytes);
    return status;
}

static weir_status measure_size(const size *s, const text *corpus, int rounds, figures *f)
{
    gpt_config config = {.layers = s->layers, .dim = 128, .heads = 4, .seq = 128, .batch = s->dp * s->pp,
                         .layout = {.dp = s->dp, .tp = s->tp, .pp = s->pp, .micro = s->pp},
                         .optimizer = weir_adamw(.lr = 2e-3), .corpus = corpus};
    double seconds[ROUNDS], spent = 0;
    weir_status status = WEIR_OK;
    int taken = 0;
    for (; !status && taken < rounds && spent < SECONDS_MAX; taken++) {
        weir_plan *plan = compile_size(&config, &seconds[taken]);
        spent += seconds[taken];
        status = !plan ? WEIR_E_STATE : taken ? WEIR_OK : take_figures(plan, f);
        weir_plan_free(plan);
    }
    f->compile_s = status ? 0 : measure_median(seconds, taken);
    return status;
}

static void write_size(bool json, bool first, const size *s, const figures *f, FILE *to)
{
    if (json)
        fprintf(to, "%s{\"layers\": %d, \"dp\": %d, \"tp\": %d, \"pp\": %d, \"devices\": %lld, \"compile_s\": %.4f, "
                "\"predict_s\": %.4f, \"predicted_firings\": %lld, \"plan_bytes\": %zu, \"ports\": %u}", first ? "" : ", ",
                s->layers, s->dp, s->tp, s->pp, (long long)devices_of(s), f->compile_s, f->predict_s, (long long)f->firings,
                f->plan_bytes, f->ports);
    else
        fprintf(to, "%s%6d %4d x %2d x %2d %7lld %9.3f %9.3f %8lld %11zu %10u\n",
                first ? "layers dp x tp x pp devices compile_s predict_s  firings  plan_bytes      ports\n" : "", s->layers, s->dp, s->tp,
                s->pp, (long long)devices_of(s), f->compile_s, f->predict_s, (long long)f->firings, f->plan_bytes, f->ports);
    fflush(to);
}

static int or_one(int value)
{
    return value ? value : 1;
}

weir_status bench_scale(const bench_scale_opts *opts, bool json, bool quick, FILE *to)
{
    const size own = {opts->layers ? opts->layers : LAYERS, or_one(opts->dp), or_one(opts->tp), or_one(opts->pp)};
    bool one = opts->layers || opts->dp || opts->tp || opts->pp;
    const size *list = one ? &own : sizes;
    text corpus = bench_gpt_corpus();
    weir_status status = corpus.bytes ? WEIR_OK : WEIR_E_MEMORY;
    bool first = true;
    fprintf(to, "%s", json ? "{\"plans\": [" : "");
    for (size_t i = 0; i < (one ? 1 : sizeof sizes / sizeof *sizes) && !status; i++) {
        figures f = {.compile_s = 0};
        if (opts->devices && devices_of(&list[i]) > opts->devices)
            continue;
        status = measure_size(&list[i], &corpus, quick ? 1 : ROUNDS, &f);
        if (!status)
            write_size(json, first, &list[i], &f, to);
        first = false;
    }
    fprintf(to, "%s", json && !status ? "]}\n" : "");
    text_free(&corpus);
    return status;
}
