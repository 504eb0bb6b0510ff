/* apps/weir/bench/allreduce.c: the compiler makes the conversion, as it does for a model's gradients. For the time of
 * a single one the terms of a step wait for the result of the step before on the same device, as a state does.
 */
#include "apps/weir/bench/allreduce.h"

#include "apps/weir/bench/figures.h"
#include "apps/weir/bench/peers/allreduce_bare.h"
#include "graph/base/error.h"

#define ROUNDS 3
#define ROUND_SECONDS 0.2
#define QUICK_SECONDS 0.01
#define FILLS 2  /* firings in which a source writes: as many as a register between devices has slots */
#define CHECKS 2 /* firings in which results are checked; none of these is timed (bench_round_first()) */

const size_t bench_allreduce_sizes[BENCH_ALLREDUCE_SIZES] = {4, 64 << 10, 1 << 20, 16 << 20, 64 << 20};
static const uint32_t counts[] = {2, 4};
#define COUNTS (sizeof counts / sizeof *counts)

/* ---- ops ---- */

typedef struct terms_attrs {
    int64_t elements;
} terms_attrs;

static const weir_field terms_fields[] = {WEIR_FIELD_INT(terms_attrs, elements)};

static bool terms_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    (void)error, (void)error_bytes;
    const terms_attrs *attrs = args->attrs;
    args->out[0] = (weir_type){WEIR_F32, {.rank = 1, .dim = {attrs->elements}}};
    return true;
}

static void terms_signatures(const weir_op_args *args, weir_signature_list *list)
{
    (void)args;
    weir_signature *signature = weir_signature_new(list);
    signature->in[0] = WEIR_S(0);
    signature->out[0] = WEIR_P;
}

static weir_status terms_kernel(const weir_kernel_args *args)
{
    float *out = args->out[0].data;
    for (int64_t i = 0; args->firing < FILLS && i < args->out[0].shape.dim[0]; i++)
        out[i] = bench_term(i);
    return WEIR_OK;
}

typedef struct whole_attrs {
    int64_t devices;
} whole_attrs;

static const weir_field whole_fields[] = {WEIR_FIELD_INT(whole_attrs, devices)};

/* An element per device, so that each is wanted. */
static bool whole_infer(weir_op_args *args, char *error, size_t error_bytes)
{
    (void)error, (void)error_bytes;
    const whole_attrs *attrs = args->attrs;
    args->out[0] = (weir_type){WEIR_F32, {.rank = 1, .dim = {attrs->devices}}};
    return true;
}

static void whole_signatures(const weir_op_args *args, weir_signature_list *list)
{
    (void)args;
    weir_signature_new(list)->out[0] = WEIR_S(0);
}

static bool whole_fits(const weir_op_args *local, char *error, size_t error_bytes)
{
    (void)error, (void)error_bytes;
    return local->out[0].dtype == WEIR_F32 && local->in[0].dtype == WEIR_F32;
}

/* Each device's term is the same, so the sum says how many there were. */
static weir_status whole_kernel(const weir_kernel_args *args)
{
    const float *in = args->in[0].data;
    float devices = in[0] / bench_term(0);
    for (int64_t i = 0; args->firing < CHECKS && i < args->in[0].shape.dim[0]; i++)
        if (devices < 2 || in[i] != devices * bench_term(i)) {
            snprintf(args->error, args->error_bytes, "element %lld of a sum is %g", (long long)i, (double)in[i]);
            return WEIR_E_KERNEL;
        }
    *(float *)args->out[0].data = devices;
    return WEIR_OK;
}

static const weir_op op_terms = {.name = "bench_terms", .fields = terms_fields, .field_count = 1,
                                 .attrs_bytes = sizeof(terms_attrs), .in_min = 1, .in_max = 1, .out_count = 1,
                                 .infer = terms_infer, .signatures = terms_signatures,
                                 .kernel = {[WEIR_CPU] = terms_kernel}};
static const weir_op op_whole = {.name = "bench_whole", .fields = whole_fields, .field_count = 1,
                                 .attrs_bytes = sizeof(whole_attrs), .in_min = 1, .in_max = 1, .out_count = 1,
                                 .infer = whole_infer, .fits = whole_fits, .signatures = whole_signatures, .kernel = {[WEIR_CPU] = whole_kernel}};

/* ---- plans ---- */

/* The terms of a step read a state that is set to what the sum of the step before came to, device by device; or, where steps
 * may overlap, a constant. Nothing but the sum goes from device to device, and no function of the program's, which would have
 * a thread of its own, is called. */
static weir_graph *sum_graph(size_t bytes, uint32_t devices, bool chain)
{
    char names[16];
    weir_graph *g = weir_graph_new("allreduce");
    snprintf(names, sizeof names, "cpu:0-%u", devices - 1);
    weir_mesh_new(g, names);
    weir_tensor *last = weir_state(g, WEIR_F32, {devices}, .name = "last", .sbp = {WEIR_S(0)});
    weir_tensor *token =
        chain ? last : weir_param(g, WEIR_F32, {devices}, .name = "token", .frozen = true, .sbp = {WEIR_S(0)});
    whole_attrs each = {devices};
    terms_attrs attrs = {(int64_t)bytes / 4};
    weir_tensor *terms =
        weir_op_apply(&(weir_apply){WEIR_HERE, "terms", &op_terms, g, &token, 1, &attrs}, NULL);
    weir_tensor *sum = weir_shard(weir_shard(terms, .sbp = {WEIR_P}), .sbp = {WEIR_B});
    weir_tensor *whole = weir_op_apply(&(weir_apply){WEIR_HERE, "whole", &op_whole, g, &sum, 1, &each}, NULL);
    weir_state_set(last, weir_shard(whole, .sbp = {WEIR_S(0)}));
    return g;
}

static weir_status time_sum(const struct bench_round *round, enum bench_way way, bool chain, double *seconds)
{
    struct bench_ranks ranks = {.round = *round, .way = way};
    weir_graph *graph = sum_graph(round->bytes, round->ranks, chain);
    weir_plan *plan = weir_compile(graph);
    weir_status status = plan ? WEIR_OK : WEIR_E_GRAPH; /* the sentence is there */
    ranks.plan = plan;
    if (!status)
        status = bench_ranks_run(round->ranks, &ranks, seconds);
    weir_plan_free(plan);
    weir_graph_free(graph);
    return status;
}

static weir_status time_shm(const struct bench_round *round, double *seconds)
{
    return time_sum(round, BENCH_SHM, true, seconds);
}

static weir_status time_shm_steady(const struct bench_round *round, double *seconds)
{
    return time_sum(round, BENCH_SHM, false, seconds);
}

static weir_status time_tcp(const struct bench_round *round, double *seconds)
{
    return time_sum(round, BENCH_TCP, true, seconds);
}

static weir_status time_tcp_key(const struct bench_round *round, double *seconds)
{
    return time_sum(round, BENCH_TCP_KEY, true, seconds);
}

static weir_status time_tcp_steady(const struct bench_round *round, double *seconds)
{
    return time_sum(round, BENCH_TCP, false, seconds);
}

/* ---- all of it ---- */

/* name, over, function, text */
#define MEASURE_LIST(X)                                                             \
    X(bare, SHM, bench_bare_shm, "bare loop over shared memory")                    \
    X(shm, SHM, time_shm, "shared memory")                                          \
    X(shm_steady, SHM, time_shm_steady, "shared memory, steps overlap")             \
    X(bare_tcp, TCP, bench_bare_tcp, "bare loop over sockets")                      \
    X(tcp, TCP, time_tcp, "TCP without a key")                                      \
    X(tcp_steady, TCP, time_tcp_steady, "TCP without a key, steps overlap")         \
    X(tcp_key, TCP, time_tcp_key, "TCP, encrypted")

enum {
#define X(name, over, function, text) MEASURE_##name,
    MEASURE_LIST(X)
#undef X
        MEASURES
};

static const struct bench_measure measures[MEASURES] = {
#define X(name, over, function, text) {#name, text, BENCH_OVER_##over, function},
    MEASURE_LIST(X)
#undef X
};
static const struct bench_ratio ratios[] = {
    {"shm_of_bare", MEASURE_shm, MEASURE_bare},
    {"tcp_of_bare", MEASURE_tcp, MEASURE_bare_tcp},
    {"tcp_key_of_bare", MEASURE_tcp_key, MEASURE_bare_tcp},
};

static void report_json(const struct bench_figures *f, FILE *to)
{
    fprintf(to, "{\"sums\": [");
    for (int c = 0; c < f->cell_count; c++) {
        const struct bench_round *round = &f->cell[c].round;
        fprintf(to, "%s{\"ranks\": %u, \"bytes\": %zu", c ? ", " : "", round->ranks, round->bytes);
        bench_figures_json(f, &f->cell[c], to);
        fprintf(to, "}");
    }
    fprintf(to, "]}\n");
}

/* A table for each number of ranks. */
static void report_table(const struct bench_figures *f, FILE *to)
{
    for (int c = 0, end; c < f->cell_count; c = end) {
        for (end = c; end < f->cell_count && f->cell[end].round.ranks == f->cell[c].round.ranks;)
            end++;
        fprintf(to, "%u ranks: us per sum of %-12s", f->cell[c].round.ranks, "");
        bench_figures_table(f, &f->cell[c], end - c, to);
    }
}

static void choose(struct bench_figures *f, const bench_allreduce_opts *opts, bool quick)
{
    size_t sizes = opts->bytes ? 1 : quick ? BENCH_ALLREDUCE_QUICK_SIZES : BENCH_ALLREDUCE_SIZES;
    *f = (struct bench_figures){.measures = measures, .measure_count = MEASURES, .ratios = ratios,
                                .ratio_count = sizeof ratios / sizeof *ratios, .rounds = quick ? 1 : ROUNDS,
                                .over = opts->over, .unit = "us", .per_second = 1e6, .decimals = 3, .text_width = 34,
                                .us_decimals = 1};
    for (size_t c = 0; c < (opts->ranks ? 1 : COUNTS); c++)
        for (size_t s = 0; s < sizes; s++)
            f->cell[f->cell_count++].round = (struct bench_round){
                .ranks = opts->ranks ? (uint32_t)opts->ranks : counts[c],
                .bytes = opts->bytes ? (size_t)opts->bytes / 4 * 4 : bench_allreduce_sizes[s],
                .round_seconds = quick ? QUICK_SECONDS : ROUND_SECONDS};
}

weir_status bench_allreduce_with(const bench_allreduce_opts *opts, bool json, bool quick, FILE *to)
{
    struct bench_figures f;
    choose(&f, opts, quick);
    weir_status status = weir_op_register(&op_terms);
    status = status ? status : weir_op_register(&op_whole);
    status = status ? status : bench_figures_take(&f);
    if (!status)
        (json ? report_json : report_table)(&f, to);
    return status;
}

weir_status bench_allreduce(bool json, bool quick, FILE *to)
{
    return bench_allreduce_with(&(bench_allreduce_opts){0}, json, quick, to);
}
