/* apps/weir/bench/fuse.c: `weir bench fuse`.
 *
 * Two chains over a tensor, each in a graph that is compiled twice, with fusion and without: `inner`, an update m =
 * relu(2 m x + 1), of which nobody else needs what lies between; and `norm`, a residual and a norm, where the sum is
 * needed too. States hold the tensors, so that a step does nothing else but a sum over the norm. Steps are taken in
 * turns; a slow spell hits both alike. The smallest size is one at which nothing is fused: both sides are the same
 * there.
 */
#include "apps/weir/bench/fuse.h"
#include "apps/common/measure.h"

#include <stdlib.h>

enum { ROUNDS = 15, WARM = 3, COLUMNS = 1024, SIDES = 2 };

typedef struct chain {
    const char *name;
    void (*build)(weir_graph *g, int64_t rows);
} chain;

static weir_tensor *state_of(weir_graph *g, int64_t rows, const char *name)
{
    return weir_state(g, WEIR_F32, {rows, COLUMNS}, .name = name);
}

static void build_inner(weir_graph *g, int64_t rows)
{
    weir_tensor *m = state_of(g, rows, "m"), *x = state_of(g, rows, "x");
    weir_state_set(m, weir_relu(weir_affine(weir_mul(m, x), 2, .shift = 1)));
}

static void build_norm(weir_graph *g, int64_t rows)
{
    weir_tensor *x = state_of(g, rows, "x"), *y = state_of(g, rows, "y");
    weir_tensor *sum = weir_add(x, y);
    weir_state_set(x, weir_layernorm(sum));
    weir_state_set(y, sum);
}

static const chain chains[] = {{"inner", build_inner}, {"norm", build_norm}};
static const int64_t row_counts[] = {512, 1024, 4096, 16384}; /* 2, 4, 17 and 67 MB a tensor */
enum { CHAINS = sizeof chains / sizeof *chains, SIZES = sizeof row_counts / sizeof *row_counts };

typedef struct side {
    weir_plan *plan;       /* owned */
    weir_session *session; /* owned */
    double seconds[ROUNDS];
} side;

static weir_status side_open(side *s, const chain *c, int64_t rows, bool apart)
{
    weir_graph *g = weir_graph_new(c->name);
    if (g) {
        weir_mesh_new(g, "cpu:0");
        c->build(g, rows);
    }
    s->plan = g ? weir_compile(g, .no_fusion = apart) : NULL;
    weir_graph_free(g);
    s->session = s->plan ? weir_session_open(s->plan, .workers = 1) : NULL;
    return s->session ? WEIR_OK : WEIR_E_STATE;
}

static weir_status side_round(side *s, int round)
{
    double start = measure_seconds();
    weir_status status = weir_session_run(s->session, 1);
    if (round >= 0)
        s->seconds[round] = measure_seconds() - start;
    return status;
}

/* Medians of both sides, fused first. */
static weir_status run_chain(const chain *c, int64_t rows, int rounds, double medians[SIDES])
{
    side sides[SIDES] = {0};
    weir_status status = WEIR_OK;
    for (int i = 0; i < SIDES && !status; i++)
        status = side_open(&sides[i], c, rows, i == 1);
    for (int round = -WARM; round < rounds && !status; round++)
        for (int i = 0; i < SIDES && !status; i++)
            status = side_round(&sides[i], round);
    for (int i = 0; i < SIDES; i++) {
        medians[i] = status ? 0 : measure_median(sides[i].seconds, rounds);
        weir_session_close(sides[i].session);
        weir_plan_free(sides[i].plan);
    }
    return status;
}

static void write_one(bool json, bool first, const chain *c, int64_t rows, const double medians[SIDES], FILE *to)
{
    long mb = (long)(rows * COLUMNS * 4 / 1000000);
    if (json)
        fprintf(to, "%s\"%s_%ldmb_us\": %.1f, \"%s_%ldmb_apart_us\": %.1f", first ? "{" : ", ", c->name, mb,
                1e6 * medians[0], c->name, mb, 1e6 * medians[1]);
    else
        fprintf(to, "%-6s %3ld MB a tensor: fused %8.1f us, apart %8.1f us, %.2f\n", c->name, mb, 1e6 * medians[0],
                1e6 * medians[1], medians[0] / medians[1]);
}

weir_status bench_fuse(bool json, bool quick, FILE *to)
{
    weir_status status = WEIR_OK;
    for (int c = 0; c < CHAINS; c++)
        for (int s = 0; s < (quick ? 1 : SIZES) && !status; s++) {
            double medians[SIDES];
            status = run_chain(&chains[c], row_counts[s], quick ? 1 : ROUNDS, medians);
            if (!status)
                write_one(json, !c && !s, &chains[c], row_counts[s], medians, to);
        }
    if (json && !status)
        fprintf(to, "}\n");
    return status;
}
