/* gpt_device.c: see the header. */
#include "apps/weir/bench/cards/gpt_device.h"

#include "apps/common/model/gpt.h"
#include "apps/common/measure.h"
#include "apps/weir/bench/gpt.h"
#include "graph/plan/form/plan.h"
#include "regst/plugin.h"

#include <math.h>
#include <sys/resource.h>

enum { WARM = 2, ROUNDS = 5, PRODUCTS = 16, PRODUCT_SIDE = 8192, PRODUCT_SIDE_QUICK = 64 };

/* A session on the device, and what it took. */
struct side {
    weir_plan *plan;       /* owned */
    weir_session *session; /* owned */
    const char *fetch;     /* that is pulled once a step */
    int steps;             /* of a round */
    bool apart;            /* each op is a kernel of its own */
    double seconds[ROUNDS], host[ROUNDS]; /* of a step */
    float value;           /* the last one pulled */
};

static double host_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static weir_status side_open(struct side *s, weir_graph *graph)
{
    s->plan = graph ? weir_compile(graph, .precision = WEIR_BF16, .no_fusion = s->apart) : NULL;
    weir_graph_free(graph);
    s->session = s->plan ? weir_session_open(s->plan) : NULL;
    return s->session ? WEIR_OK : WEIR_E_STATE;
}

static void side_close(struct side *s)
{
    weir_session_close(s->session);
    weir_plan_free(s->plan);
}

/* `round` is negative while it warms up. */
static weir_status side_round(struct side *s, int round)
{
    const double start = measure_seconds(), host = host_seconds();
    weir_status status = weir_session_start(s->session, s->steps);
    for (int step = 0; step < s->steps && !status; step++)
        status = weir_session_pull(s->session, s->fetch, WEIR_ARRAY(&s->value, WEIR_F32), -1);
    status = status ? status : weir_session_wait(s->session, -1);
    if (round >= 0) {
        s->seconds[round] = (measure_seconds() - start) / s->steps;
        s->host[round] = (host_seconds() - host) / s->steps;
    }
    return status;
}

static weir_status side_rounds(struct side *s)
{
    weir_status status = WEIR_OK;
    for (int round = -WARM; round < ROUNDS && !status; round++)
        status = side_round(s, round);
    return status;
}

/* A chain of products of square matrices. */
static weir_graph *products(const char *device, int64_t side)
{
    char on[32];
    weir_graph *g = weir_graph_new("products");
    snprintf(on, sizeof on, "%s:0", device);
    WEIR_ON(weir_mesh_new(g, on)) {
        weir_tensor *x = weir_param(g, WEIR_F32, {side, side}, .name = "x", .init = WEIR_NORMAL(1));
        weir_tensor *w = weir_param(g, WEIR_F32, {side, side}, .name = "w", .init = WEIR_NORMAL(1 / sqrt((double)side)));
        for (int i = 0; i < PRODUCTS; i++)
            x = weir_matmul(x, w);
        weir_fetch(weir_max(x), .name = "max");
    }
    return g;
}

static uint64_t planned_bytes(const weir_plan *plan)
{
    uint64_t bytes = 0;
    for (uint32_t s = 0; s < plan->spaces_count; s++)
        bytes += plan->spaces[s].kind == WEIR_CUDA ? plan->spaces[s].bytes : 0;
    return bytes;
}

/* Bytes that the device has left; 0: not known. */
static uint64_t free_bytes(void)
{
    const struct device_ops *cuda = plugin_need(WEIR_CUDA) ? NULL : device_find(WEIR_CUDA);
    struct device_facts facts = {.free_bytes = 0};
    return cuda && cuda->describe && !cuda->describe(0, &facts) ? facts.free_bytes : 0;
}

static gpt_config config_of(const bench_gpt_device_opts *opts, const text *corpus, bool quick)
{
    gpt_config c = {.layers = 12, .dim = 768, .heads = 12, .seq = 1024, .vocab = 50304, .batch = 64};
    if (quick)
        c = (gpt_config){.layers = 2, .dim = 32, .heads = 2, .seq = 32, .vocab = 320, .batch = 2};
    c.batch = opts->batch ? opts->batch : c.batch;
    c.device = opts->device;
    c.optimizer = weir_adamw(.lr = 3e-4);
    c.corpus = corpus;
    return c;
}

static void write_figures(const gpt_config *c, struct side *step, struct side *product, double product_flops, uint64_t used,
                          bool json, FILE *to)
{
    const double seconds = measure_median(step->seconds, ROUNDS), rate = product_flops / measure_median(product->seconds, ROUNDS);
    const double tokens = (double)c->batch * c->seq / seconds, share = gpt_step_flops(c) / seconds / rate;
    const double host = 1e6 * measure_median(step->host, ROUNDS);
    const unsigned long long planned = (unsigned long long)planned_bytes(step->plan);
    fprintf(to,
            json ? "{\"layers\": %d, \"dim\": %d, \"heads\": %d, \"seq\": %d, \"vocab\": %d, \"batch\": %d, \"loss\": %.4f, "
                 : "GPT, %d layers, dim %d, %d heads, seq %d, vocabulary %d, batch %d, AdamW, bf16; loss %.4f\n",
            c->layers, c->dim, c->heads, c->seq, c->vocab, c->batch, (double)step->value);
    fprintf(to,
            json ? "\"step_ms\": %.3f, \"tokens_per_s\": %.0f, \"gemm_tflops\": %.6f, \"gemm_share\": %.4f, "
                 : "%.3f ms a step, %.0f tokens/s; products alone %.3f TFLOP/s, of which the step has %.4f\n",
            1e3 * seconds, tokens, rate / 1e12, share);
    fprintf(to,
            json ? "\"host_us_per_step\": %.1f, \"planned_bytes\": %llu, \"used_bytes\": %llu}\n"
                 : "%.1f us of the host's processors a step; planned %llu bytes, the device has %llu less\n",
            host, planned, (unsigned long long)used);
}

weir_status bench_gpt_device(const bench_gpt_device_opts *opts, bool json, bool quick, FILE *to)
{
    const int64_t side = quick ? PRODUCT_SIDE_QUICK : PRODUCT_SIDE;
    const int steps = opts->steps ? opts->steps : quick ? 1 : 10;
    text corpus = bench_gpt_corpus();
    const gpt_config config = config_of(opts, &corpus, quick);
    struct side product = {.fetch = "max", .steps = steps}, step = {.fetch = "loss", .steps = steps, .apart = opts->no_fusion};
    weir_status status = corpus.bytes ? plugin_need(WEIR_CUDA) : WEIR_E_MEMORY;
    status = status ? status : side_open(&product, products(opts->device, side));
    status = status ? status : side_rounds(&product);
    weir_session_close(product.session);
    product.session = NULL;
    const uint64_t before = status ? 0 : free_bytes();
    status = status ? status : side_open(&step, gpt_train_graph(&config));
    const uint64_t after = status ? 0 : free_bytes();
    status = status ? status : side_rounds(&step);
    if (!status)
        write_figures(&config, &step, &product, 2.0 * PRODUCTS * (double)(side * side * side), before - after, json, to);
    side_close(&step);
    side_close(&product);
    text_free(&corpus);
    return status;
}
