/* apps/weir/bench/gpt.c: `weir bench gpt`.
 *
 * Clocks and neighbours change while a benchmark runs. So every round does one step on one device, one pass over the
 * BLAS shapes on one thread, and the same for two: a slow spell hits all four alike, and the medians of the rounds
 * compare. Two rounds are not counted.
 *
 * A device has four rows at a time: one alone takes the 8 rows in two micro-batches, each of two its four at once. In
 * one micro-batch of 8, what forward saves for the last layer's backward phase is 186 MB of results of products and
 * attention, besides 131 MB of parameters and optimizer state, so no plan that repeats neither is below 317 MB; with
 * the widest temporaries it is 340 MB. Micro-batches of four rows save half as much and keep sums of gradients
 * instead: 279 MB, and a step takes no longer.
 */
#include "apps/weir/bench/gpt.h"
#include "apps/weir/bench/peers/sgemm.h"
#include "apps/common/model/gpt.h"
#include "apps/common/measure.h"

#include <stdlib.h>

#define WARM_ROUNDS 2
#define ROUNDS 9

/* One way to run the step: on `devices` devices, data parallel, a worker each. */
typedef struct side {
    int devices;
    gpt_config config;
    weir_plan *plan;       /* owned */
    weir_session *session; /* owned */
    bench_sgemm sgemm;
    double seconds[ROUNDS];
    int rounds;            /* of them that were taken */
    float loss;
} side;

typedef struct figures {
    double step_ms, share, gflops, tokens_per_s;
    double half_share, half_gflops; /* held against products in bf16; 0 in f32 */
    uint64_t planned_bytes;
    int micro;
} figures;

gpt_config bench_gpt_config(const text *corpus, int devices, int micro)
{
    return (gpt_config){
        .layers = 6, .dim = 384, .heads = 6, .seq = 256, .batch = 8, .layout = {.dp = devices, .micro = micro},
        .optimizer = weir_adamw(.lr = 3e-4), .recompute = true, .corpus = corpus,
    };
}

static weir_status side_open(side *s, const text *corpus, int devices, const bench_gpt_opts *opts)
{
    s->devices = devices;
    s->config = bench_gpt_config(corpus, devices, opts->micro ? opts->micro : BENCH_GPT_MICRO / devices);
    int64_t rows = (int64_t)s->config.batch * s->config.seq / devices;
    weir_status status = bench_sgemm_open(&s->sgemm, devices, s->config.layers, s->config.dim, GPT_VOCAB, rows,
                                          opts->precision > WEIR_F32);
    if (status)
        return status;
    weir_graph *graph = gpt_train_graph(&s->config);
    int micro = s->config.layout.micro;
    s->plan = graph ? weir_compile(graph, .precision = opts->precision, .micro_batches = micro) : NULL;
    weir_graph_free(graph);
    s->session = s->plan ? weir_session_open(s->plan, .workers = devices) : NULL;
    return s->session ? WEIR_OK : WEIR_E_STATE;
}

static void side_close(side *s)
{
    weir_session_close(s->session);
    weir_plan_free(s->plan);
    bench_sgemm_close(&s->sgemm);
}

/* One step, and one pass of BLAS; `round` is negative while warming up. */
static weir_status side_round(side *s, int round)
{
    double start = measure_seconds();
    weir_status status = weir_session_start(s->session, 1);
    for (int m = 0; m < s->config.layout.micro && !status; m++)
        status = weir_session_pull(s->session, "loss", WEIR_ARRAY(&s->loss, WEIR_F32), -1);
    status = status ? status : weir_session_wait(s->session, -1);
    if (round >= 0)
        s->seconds[s->rounds++] = measure_seconds() - start;
    bench_sgemm_round(&s->sgemm);
    if (round < 0)
        s->sgemm.rounds = 0;
    return status;
}

static figures side_figures(side *s)
{
    double seconds = measure_median(s->seconds, s->rounds), rate = bench_sgemm_rate(&s->sgemm);
    double half = bench_sgemm_rate_bf16(&s->sgemm), flops = gpt_step_flops(&s->config);
    return (figures){
        .step_ms = 1e3 * seconds,
        .share = flops / seconds / rate,
        .half_share = half > 0 ? flops / seconds / half : 0,
        .half_gflops = half / 1e9,
        .gflops = rate / 1e9,
        .tokens_per_s = s->config.batch * s->config.seq / seconds,
        .planned_bytes = weir_plan_bytes(s->plan, -1),
        .micro = s->config.layout.micro,
    };
}

static void write_json(const figures f[2], const gpt_config *c, int rounds, FILE *to)
{
    fprintf(to, "{\"rounds\": %d, \"micro\": %d, \"micro_2\": %d, \"model_gflop\": %.3f", rounds, f[0].micro,
            f[1].micro, gpt_step_flops(c) / 1e9);
    for (int i = 0; i < 2; i++) {
        fprintf(to, ", \"step_ms_%d\": %.2f, \"sgemm_share_%d\": %.4f", i + 1, f[i].step_ms, i + 1, f[i].share);
        fprintf(to, ", \"sgemm_gflops_%d\": %.2f, \"tokens_per_s_%d\": %.0f", i + 1, f[i].gflops, i + 1,
                f[i].tokens_per_s);
        if (f[i].half_share > 0)
            fprintf(to, ", \"gemm_share_%d\": %.4f, \"gemm_gflops_%d\": %.2f", i + 1, f[i].half_share, i + 1,
                    f[i].half_gflops);
    }
    fprintf(to, ", \"planned_bytes\": %llu, \"planned_bytes_2\": %llu}\n", (unsigned long long)f[0].planned_bytes,
            (unsigned long long)f[1].planned_bytes);
}

static void write_text(const figures f[2], const gpt_config *c, int rounds, FILE *to)
{
    fprintf(to, "GPT, 6 layers, dim 384, 6 heads, seq 256, batch 8, AdamW, %s: %.1f GFLOP a step\n",
            f[0].half_share > 0 ? "bf16" : "f32", gpt_step_flops(c) / 1e9);
    fprintf(to, "(6 per token and matrix element; attention 12 layers seq dim per token, halved: it is causal)\n");
    fprintf(to, "medians of %d rounds; %d micro-batches a step on one device, %d on two\n", rounds, f[0].micro,
            f[1].micro);
    for (int i = 0; i < 2; i++) {
        char bytes[32];
        fprintf(to, "%d device%s %8.1f ms a step, %6.0f tokens/s, %.2f of sgemm's %.1f GFLOP/s, planned %s\n", i + 1,
                i ? "s:" : ": ", f[i].step_ms, f[i].tokens_per_s, f[i].share, f[i].gflops,
                measure_bytes_text(f[i].planned_bytes, bytes));
        if (f[i].half_share > 0)
            fprintf(to, "           %.2f of %.1f GFLOP/s in bf16\n", f[i].half_share, f[i].half_gflops);
    }
}

text bench_gpt_corpus(void)
{
    text corpus = {.bytes = malloc(1 << 16), .files = 1};
    for (; corpus.bytes && corpus.count < 1 << 16; corpus.count++)
        corpus.bytes[corpus.count] = (uint8_t)(256 * weir_random_uniform(0, corpus.count));
    return corpus;
}

weir_status bench_gpt(bool json, bool quick, FILE *to)
{
    return bench_gpt_with(&(bench_gpt_opts){0}, json, quick, to);
}

weir_status bench_gpt_with(const bench_gpt_opts *opts, bool json, bool quick, FILE *to)
{
    text corpus = bench_gpt_corpus();
    side *sides = calloc(2, sizeof *sides);
    weir_status status = corpus.bytes && sides ? WEIR_OK : WEIR_E_MEMORY;
    for (int i = 0; i < 2 && !status; i++)
        status = side_open(&sides[i], &corpus, i + 1, opts);
    int rounds = quick ? 1 : ROUNDS;
    for (int round = -WARM_ROUNDS; round < rounds && !status; round++)
        for (int i = 0; i < 2 && !status; i++)
            status = side_round(&sides[i], round);
    if (!status) {
        figures f[2] = {side_figures(&sides[0]), side_figures(&sides[1])};
        (json ? write_json : write_text)(f, &sides[0].config, rounds, to);
    }
    for (int i = 0; sides && i < 2; i++)
        side_close(&sides[i]);
    free(sides);
    text_free(&corpus);
    return status;
}
