/* allreduce_device.c: see the header. All ops are weir's own, so that they have kernels there. How many steps a round has
 * follows from the size: ranks that measured to find it would not agree.
 */
#include "apps/weir/bench/cards/allreduce_device.h"

#include "apps/common/measure.h"
#include "apps/common/ranks.h"
#include "graph/base/error.h"
#include "regst/plugin.h"

enum { DEVICES_MOST = 1024, WARM = 1, ROUNDS = 5, STEPS_MOST = 200, STEPS_LEAST = 10, QUICK_STEPS = 2 };
#define ROUND_BYTES (1 << 30) /* that a round adds up, within these bounds */
#define US 1e6

/* name, whether there is a sum, how it is made, text */
#define WAY_LIST(X)                                                 \
    X(moves, true, WEIR_SAME_BITS, "moved, and added in order")         \
    X(fast, true, WEIR_FAST, "as the communicator adds")            \
    X(kernels, false, WEIR_SAME_BITS, "without a sum: kernels alone")

enum {
#define X(name, sums, reduce, text) WAY_##name,
    WAY_LIST(X)
#undef X
        WAYS
};

static const struct way {
    const char *name, *text;
    bool sums;
    weir_reduce reduce;
} ways[WAYS] = {
#define X(name, sums, reduce, text) {#name, text, sums, reduce},
    WAY_LIST(X)
#undef X
};

struct side {
    weir_plan *plan;       /* owned */
    weir_session *session; /* owned */
    double seconds[ROUNDS];
};

struct bench {
    const char *device;
    uint32_t devices;
    bool quick;
    size_t sizes[BENCH_ALLREDUCE_SIZES];
    size_t sizes_count;
    double us[BENCH_ALLREDUCE_SIZES][WAYS];
};

/* A row of ones for each device, times what the last step came to, which is 1: the terms. The largest of their sum over all
 * rows, or over the one row that each device has, is taken; divided by how many were added it is 1 again. */
static weir_graph *sum_graph(const struct bench *bench, size_t bytes, bool sums)
{
    const int64_t rows = bench->devices, elements = (int64_t)bytes / 4;
    char on[48];
    weir_graph *g = weir_graph_new("allreduce");
    snprintf(on, sizeof on, "%s:0-%u", bench->device, bench->devices - 1);
    weir_mesh_new(g, on);
    weir_tensor *ones = weir_param(g, WEIR_F32, {rows, 1, elements}, .name = "ones", .frozen = true, .init = WEIR_VALUE(1),
                                   .sbp = {WEIR_S(0)});
    weir_tensor *one = weir_param(g, WEIR_F32, {rows, 1, 1}, .name = "one", .frozen = true, .init = WEIR_VALUE(1),
                                  .sbp = {WEIR_S(0)});
    weir_tensor *last = weir_state(g, WEIR_F32, {rows, 1, 1}, .name = "last", .init = WEIR_VALUE(1), .sbp = {WEIR_S(0)});
    weir_tensor *terms = weir_mul(ones, last, .name = "terms");
    weir_tensor *sum = weir_sum(terms, .axes = {sums ? 0 : 1}, .axis_count = 1, .keep = true, .name = "sum");
    if (sums)
        sum = weir_shard(weir_shard(sum, .sbp = {WEIR_P}), .sbp = {WEIR_B});
    weir_tensor *most = weir_max(sum, .axes = {2}, .axis_count = 1, .keep = true, .name = "most");
    weir_tensor *next = weir_mul(one, weir_affine(most, sums ? 1.0 / (double)rows : 1), .name = "next");
    weir_state_set(last, weir_shard(next, .sbp = {WEIR_S(0)}));
    return g;
}

static weir_status side_open(struct side *side, const struct bench *bench, size_t bytes, const struct way *way)
{
    weir_graph *graph = sum_graph(bench, bytes, way->sums);
    side->plan = weir_compile(graph, .reduce = way->reduce);
    weir_graph_free(graph);
    side->session = side->plan ? weir_session_open(side->plan) : NULL;
    return side->session ? WEIR_OK : WEIR_E_STATE; /* the sentence is there */
}

/* Each step divides by the number of devices, which rounds where that is no power of two. */
static weir_status side_check(struct side *side, const struct bench *bench)
{
    float last[DEVICES_MOST];
    weir_status status = weir_session_read(side->session, "last", WEIR_ARRAY(last, WEIR_F32, bench->devices, 1, 1));
    for (uint32_t d = 0; !status && d < bench->devices; d++)
        if (!(last[d] > 0.999F && last[d] < 1.001F))
            status = error_set(WEIR_E_STATE, "the sums came to %g of what they are", (double)last[d]);
    return status;
}

static weir_status side_close(struct side *side)
{
    weir_status status = weir_session_close(side->session);
    weir_plan_free(side->plan);
    return status;
}

/* ---- figures ---- */

static int steps_of(const struct bench *bench, size_t bytes)
{
    size_t steps = ROUND_BYTES / bytes;
    if (bench->quick)
        return QUICK_STEPS;
    return steps > STEPS_MOST ? STEPS_MOST : steps < STEPS_LEAST ? STEPS_LEAST : (int)steps;
}

/* `round` is negative while it warms up. */
static weir_status side_round(struct side *side, int round, int steps)
{
    const double start = measure_seconds();
    weir_status status = weir_session_run(side->session, steps);
    if (round >= 0)
        side->seconds[round] = (measure_seconds() - start) / steps;
    return status;
}

/* The ways take turns. */
static weir_status measure_size(struct bench *bench, size_t s)
{
    struct side sides[WAYS] = {{.plan = NULL}};
    const int rounds = bench->quick ? 1 : ROUNDS, steps = steps_of(bench, bench->sizes[s]);
    weir_status status = WEIR_OK;
    for (int w = 0; w < WAYS && !status; w++)
        status = side_open(&sides[w], bench, bench->sizes[s], &ways[w]);
    for (int round = -WARM; round < rounds && !status; round++)
        for (int w = 0; w < WAYS && !status; w++)
            status = side_round(&sides[w], round, steps);
    for (int w = 0; w < WAYS && !status; w++) {
        status = side_check(&sides[w], bench);
        bench->us[s][w] = measure_median(sides[w].seconds, rounds) * US;
    }
    for (int w = 0; w < WAYS; w++) {
        const weir_status closed = side_close(&sides[w]);
        status = status ? status : closed;
    }
    return status;
}

static void report_json(const struct bench *bench, FILE *to)
{
    fprintf(to, "{\"devices\": %u, \"processes\": %d, \"sums\": [", bench->devices, weir_world_size());
    for (size_t s = 0; s < bench->sizes_count; s++) {
        fprintf(to, "%s{\"bytes\": %zu", s ? ", " : "", bench->sizes[s]);
        for (int w = 0; w < WAYS; w++)
            fprintf(to, ", \"%s_us\": %.3f", ways[w].name, bench->us[s][w]);
        fprintf(to, "}");
    }
    fprintf(to, "]}\n");
}

static void report_table(const struct bench *bench, FILE *to)
{
    char text[32];
    fprintf(to, "%u devices, %d processes: us a step%-2s", bench->devices, weir_world_size(), "");
    for (size_t s = 0; s < bench->sizes_count; s++)
        fprintf(to, "%12s", measure_bytes_text(bench->sizes[s], text));
    for (int w = 0; w < WAYS; w++) {
        fprintf(to, "\n%-36s", ways[w].text);
        for (size_t s = 0; s < bench->sizes_count; s++)
            fprintf(to, "%12.1f", bench->us[s][w]);
    }
    fprintf(to, "\n");
}

/* ---- all of it ---- */

static weir_status choose(struct bench *bench, const bench_allreduce_opts *opts)
{
    const struct device_ops *kind = NULL;
    uint32_t there = 0;
    weir_status status = plugin_need(WEIR_CUDA);
    if (!status && !opts->ranks && weir_world_size() == 1) {
        kind = device_find(WEIR_CUDA);
        status = kind->count(&there);
    }
    bench->devices = opts->ranks ? (uint32_t)opts->ranks : kind ? there : (uint32_t)weir_world_size();
    if (!status && bench->devices < 2)
        return error_set(WEIR_E_UNSUPPORTED, "here is one device, and a sum takes two: weir launch -n 2 starts two processes");
    if (!status && bench->devices > DEVICES_MOST)
        bench->devices = DEVICES_MOST;
    bench->sizes_count = opts->bytes ? 1 : bench->quick ? BENCH_ALLREDUCE_QUICK_SIZES : BENCH_ALLREDUCE_SIZES;
    for (size_t s = 0; s < bench->sizes_count; s++)
        bench->sizes[s] = opts->bytes ? (size_t)opts->bytes / 4 * 4 : bench_allreduce_sizes[s];
    return status;
}

weir_status bench_allreduce_device(const char *device, const bench_allreduce_opts *opts, bool json, bool quick, FILE *to)
{
    struct bench bench = {.device = device, .quick = quick};
    weir_status status = choose(&bench, opts);
    for (size_t s = 0; s < bench.sizes_count && !status; s++)
        status = measure_size(&bench, s);
    if (!status && ranks_first())
        (json ? report_json : report_table)(&bench, to);
    return status;
}
