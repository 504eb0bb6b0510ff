/* apps/weir/bench/allreduce.c: the compiler makes the conversion, as it does for a model's gradients. For the time of
 * a single one the terms of a step wait for the result of the step before on the same device, as a state does.
 */
#include "apps/weir/bench/allreduce.h"

#include <stdlib.h>
#include <string.h>

#include "apps/weir/bench/ranks.h"
#include "apps/common/measure.h"
#include "graph/base/error.h"

#define ROUNDS 3
#define ROUND_SECONDS 0.2
#define QUICK_SECONDS 0.01
#define FILLS 2  /* firings in which a source writes: as many as a register between devices has slots */
#define CHECKS 2 /* firings in which results are checked; none of these is timed (bench_round_first()) */
#define US 1e6

const size_t bench_allreduce_sizes[BENCH_ALLREDUCE_SIZES] = {4, 64 << 10, 1 << 20, 16 << 20, 64 << 20};
static const uint32_t counts[] = {2, 4};
#define SIZES BENCH_ALLREDUCE_SIZES
#define COUNTS (sizeof counts / sizeof *counts)

/* ---- ops ---- */

typedef struct terms_attrs {
    int64_t elements;
} terms_attrs;

static const weir_field terms_fields[] = {WEIR_FIELD_INT(terms_attrs, elements)};

static float term(int64_t element)
{
    return (float)(1 + element % 61);
}

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
        out[i] = term(i);
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
    float devices = in[0] / term(0);
    for (int64_t i = 0; args->firing < CHECKS && i < args->in[0].shape.dim[0]; i++)
        if (devices < 2 || in[i] != devices * term(i)) {
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

/* What a step's terms read is a state that is set to what the sum of the step before came to, device by device; or, where
 * steps may overlap, a constant. Nothing but the sum goes from device to device, and no function of the program's, which
 * would have a thread of its own, is called. */
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

static weir_status time_sum(const struct bench_round *round, uint32_t devices, enum bench_way way, bool chain,
                            double *seconds)
{
    struct bench_ranks ranks = {.round = *round, .way = way};
    weir_graph *graph = sum_graph(round->bytes, devices, chain);
    weir_plan *plan = weir_compile(graph);
    weir_status status = plan ? WEIR_OK : WEIR_E_GRAPH; /* the sentence is there */
    ranks.plan = plan;
    if (!status)
        status = bench_ranks_run(devices, &ranks, seconds);
    weir_plan_free(plan);
    weir_graph_free(graph);
    return status;
}

static weir_status time_shm(const struct bench_round *round, uint32_t devices, double *seconds)
{
    return time_sum(round, devices, BENCH_SHM, true, seconds);
}

static weir_status time_shm_steady(const struct bench_round *round, uint32_t devices, double *seconds)
{
    return time_sum(round, devices, BENCH_SHM, false, seconds);
}

static weir_status time_tcp(const struct bench_round *round, uint32_t devices, double *seconds)
{
    return time_sum(round, devices, BENCH_TCP, true, seconds);
}

static weir_status time_tcp_key(const struct bench_round *round, uint32_t devices, double *seconds)
{
    return time_sum(round, devices, BENCH_TCP_KEY, true, seconds);
}

static weir_status time_tcp_steady(const struct bench_round *round, uint32_t devices, double *seconds)
{
    return time_sum(round, devices, BENCH_TCP, false, seconds);
}

/* ---- by hand ---- */

/* All inputs, then all outputs. */
struct bare {
    struct bench_round round;
    struct bench_team *team;
    float *memory; /* shared */
};

static float *bare_part(const struct bare *bare, uint32_t array, size_t element)
{
    return bare->memory + array * (bare->round.bytes / 4) + element;
}

static void bare_add(float *restrict to, const float *restrict from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] += from[i];
}

/* The first sum is written, the others are added. */
static void bare_sum(float *restrict to, const float *restrict a, const float *restrict b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] = a[i] + b[i];
}

static bool play_bare(void *side, uint32_t rank, int64_t count)
{
    const struct bare *bare = side;
    uint32_t ranks = bare->team->count;
    size_t elements = bare->round.bytes / 4;
    for (int64_t i = 0; i < count; i++) {
        size_t first = elements * rank / ranks, end = elements * (rank + 1) / ranks;
        bench_team_barrier(bare->team);
        float *own = bare_part(bare, ranks + rank, first);
        bare_sum(own, bare_part(bare, 0, first), bare_part(bare, 1, first), end - first);
        for (uint32_t r = 2; r < ranks; r++)
            bare_add(own, bare_part(bare, r, first), end - first);
        bench_team_barrier(bare->team);
        for (uint32_t r = 0; r < ranks; r++) {
            first = elements * r / ranks, end = elements * (r + 1) / ranks;
            if (r != rank)
                memcpy(bare_part(bare, ranks + rank, first), bare_part(bare, ranks + r, first), (end - first) * 4);
        }
    }
    return true;
}

static weir_status member_bare(struct bench_team *team, uint32_t rank, void *ctx)
{
    struct bare bare = *(struct bare *)ctx;
    bare.team = team;
    bench_team_pin(team, rank);
    for (size_t i = 0; i < bare.round.bytes / 4; i++)
        *bare_part(&bare, rank, i) = term((int64_t)i);
    bench_team_play(team, rank, &bare.round, play_bare, &bare);
    float last = *bare_part(&bare, team->count + rank, bare.round.bytes / 4 - 1);
    if (last != (float)team->count * term((int64_t)bare.round.bytes / 4 - 1))
        return error_set(WEIR_E_STATE, "the bare loop's sum is %g", (double)last);
    return WEIR_OK;
}

static weir_status time_bare(const struct bench_round *round, uint32_t ranks, double *seconds)
{
    size_t bytes = 2 * ranks * round->bytes;
    struct bare bare = {.round = *round, .memory = bench_team_memory(bytes)};
    weir_status status = bare.memory ? bench_team_run(ranks, member_bare, &bare, seconds)
                                     : error_set(WEIR_E_MEMORY, "no memory for %zu bytes", bytes);
    bench_team_release(bare.memory, bytes);
    return status;
}

/* ---- all of it ---- */

/* name, over, text */
#define MEASURE_LIST(X)                                          \
    X(bare, SHM, "bare loop over shared memory")                 \
    X(shm, SHM, "shared memory")                                 \
    X(shm_steady, SHM, "shared memory, steps overlap")           \
    X(tcp, TCP, "TCP without a key")                             \
    X(tcp_steady, TCP, "TCP without a key, steps overlap")       \
    X(tcp_key, TCP, "TCP, encrypted")

enum {
#define X(name, over, text) MEASURE_##name,
    MEASURE_LIST(X)
#undef X
        MEASURES
};

struct measure {
    const char *name, *text;
    bench_over over;
    weir_status (*run)(const struct bench_round *round, uint32_t ranks, double *seconds);
};

static const struct measure measures[MEASURES] = {
#define X(name, over, text) {#name, text, BENCH_OVER_##over, time_##name},
    MEASURE_LIST(X)
#undef X
};

struct bench {
    int rounds;
    uint32_t counts[COUNTS];
    size_t sizes[SIZES];
    size_t counts_count, sizes_count;
    bench_over over;
    double seconds[COUNTS][SIZES][MEASURES][ROUNDS];
    double us[COUNTS][SIZES][MEASURES], of_bare[COUNTS][SIZES]; /* medians */
};

static bool measured(const struct bench *bench, int m)
{
    return !bench->over || bench->over == measures[m].over;
}

static weir_status measure_round(struct bench *bench, int i, double round_seconds)
{
    weir_status status = WEIR_OK;
    for (size_t c = 0; c < bench->counts_count; c++)
        for (size_t s = 0; s < bench->sizes_count; s++)
            for (int m = 0; m < MEASURES && !status; m++) {
                if (!measured(bench, m))
                    continue;
                struct bench_round round = {.bytes = bench->sizes[s], .round_seconds = round_seconds};
                status = measures[m].run(&round, bench->counts[c], &bench->seconds[c][s][m][i]);
            }
    return status;
}

/* The ratio first: medians sort. */
static void take_medians(struct bench *bench)
{
    for (size_t c = 0; c < bench->counts_count; c++)
        for (size_t s = 0; s < bench->sizes_count; s++) {
            double ratio[ROUNDS];
            for (int i = 0; i < bench->rounds && measured(bench, MEASURE_shm); i++)
                ratio[i] = bench->seconds[c][s][MEASURE_shm][i] / bench->seconds[c][s][MEASURE_bare][i];
            if (measured(bench, MEASURE_shm))
                bench->of_bare[c][s] = measure_median(ratio, bench->rounds);
            for (int m = 0; m < MEASURES; m++)
                if (measured(bench, m))
                    bench->us[c][s][m] = measure_median(bench->seconds[c][s][m], bench->rounds) * US;
        }
}

static void report_json(const struct bench *bench, FILE *to)
{
    fprintf(to, "{\"sums\": [");
    for (size_t c = 0; c < bench->counts_count; c++)
        for (size_t s = 0; s < bench->sizes_count; s++) {
            fprintf(to, "%s{\"ranks\": %u, \"bytes\": %zu", c || s ? ", " : "", bench->counts[c], bench->sizes[s]);
            for (int m = 0; m < MEASURES; m++)
                if (measured(bench, m))
                    fprintf(to, ", \"%s_us\": %.3f", measures[m].name, bench->us[c][s][m]);
            if (measured(bench, MEASURE_shm))
                fprintf(to, ", \"shm_of_bare\": %.3f", bench->of_bare[c][s]);
            fprintf(to, "}");
        }
    fprintf(to, "]}\n");
}

static void report_table(const struct bench *bench, FILE *to)
{
    char text[32];
    for (size_t c = 0; c < bench->counts_count; c++) {
        fprintf(to, "%u ranks: us per sum of %-12s", bench->counts[c], "");
        for (size_t s = 0; s < bench->sizes_count; s++)
            fprintf(to, "%12s", measure_bytes_text(bench->sizes[s], text));
        for (int m = 0; m < MEASURES; m++) {
            if (!measured(bench, m))
                continue;
            fprintf(to, "\n%-34s", measures[m].text);
            for (size_t s = 0; s < bench->sizes_count; s++)
                fprintf(to, "%12.1f", bench->us[c][s][m]);
        }
        if (measured(bench, MEASURE_shm))
            fprintf(to, "\n%-34s", "shm_of_bare");
        for (size_t s = 0; s < bench->sizes_count && measured(bench, MEASURE_shm); s++)
            fprintf(to, "%12.2f", bench->of_bare[c][s]);
        fprintf(to, "\n");
    }
}

static void choose(struct bench *bench, const bench_allreduce_opts *opts, bool quick)
{
    bench->rounds = quick ? 1 : ROUNDS;
    bench->over = opts->over;
    bench->counts_count = opts->ranks ? 1 : COUNTS;
    bench->sizes_count = opts->bytes ? 1 : quick ? BENCH_ALLREDUCE_QUICK_SIZES : SIZES;
    for (size_t c = 0; c < bench->counts_count; c++)
        bench->counts[c] = opts->ranks ? (uint32_t)opts->ranks : counts[c];
    for (size_t s = 0; s < bench->sizes_count; s++)
        bench->sizes[s] = opts->bytes ? (size_t)opts->bytes / 4 * 4 : bench_allreduce_sizes[s];
}

weir_status bench_allreduce_with(const bench_allreduce_opts *opts, bool json, bool quick, FILE *to)
{
    struct bench *bench = calloc(1, sizeof *bench);
    weir_status status = bench ? weir_op_register(&op_terms) : WEIR_E_MEMORY;
    status = status ? status : weir_op_register(&op_whole);
    if (!status)
        choose(bench, opts, quick);
    for (int i = 0; !status && i < bench->rounds; i++)
        status = measure_round(bench, i, quick ? QUICK_SECONDS : ROUND_SECONDS);
    if (!status) {
        take_medians(bench);
        (json ? report_json : report_table)(bench, to);
    }
    free(bench);
    return status;
}

weir_status bench_allreduce(bool json, bool quick, FILE *to)
{
    return bench_allreduce_with(&(bench_allreduce_opts){0}, json, quick, to);
}
