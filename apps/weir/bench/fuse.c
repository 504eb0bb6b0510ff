/* apps/weir/bench/fuse.c: `weir bench fuse`.
 *
 * Chains over tensors of a size, in f32 and bf16, each in a graph that is compiled twice, with fusion and without:
 *
 *     inner        relu(2 m x + 1), of which nobody else needs what lies between
 *     norm         a residual and a norm; the sum is needed, too
 *     norm_grad    the gradient of a norm, to which that of the residual is added
 *     gelu_grad    the gradient of an activation, and of the bias before it
 *
 * States that nothing changes hold the inputs, and of what is made a row is looked at: so a step does nothing else.
 * Steps are taken in turns; a slow spell hits both alike. Where tensors are too small to be fused both sides are the
 * same.
 */
#include "apps/weir/bench/fuse.h"
#include "apps/common/measure.h"

#include <stdlib.h>

enum { ROUNDS = 15, WARM = 3, STEPS = 4, COLUMNS = 1024, SIDES = 2 };

typedef struct chain {
    const char *name;
    void (*build)(weir_graph *g, weir_dtype dtype, int64_t rows);
} chain;

static weir_tensor *state_of(weir_graph *g, weir_dtype dtype, int64_t rows, const char *name)
{
    return weir_state(g, dtype, {rows, COLUMNS}, .name = name);
}

static weir_status take_nothing(void *ctx, const weir_view *value, int64_t step, int micro)
{
    (void)ctx, (void)value, (void)step, (void)micro;
    return WEIR_OK;
}

/* Somebody needs it, but only looks at a row. */
static void need(weir_tensor *t, const char *name)
{
    weir_fetch(weir_slice(t, 0, 0, 1), .name = name, .sink = take_nothing);
}

static weir_tensor *apply(weir_src src, const char *op, weir_tensor *const *in, int in_count, weir_tensor **outs)
{
    return weir_op_apply(&(weir_apply){.src = src, .op = weir_op_find(op), .in = in, .in_count = in_count}, outs);
}

static void build_inner(weir_graph *g, weir_dtype dtype, int64_t rows)
{
    weir_tensor *m = state_of(g, dtype, rows, "m"), *x = state_of(g, dtype, rows, "x");
    need(weir_relu(weir_affine(weir_mul(m, x), 2, .shift = 1)), "y");
}

static void build_norm(weir_graph *g, weir_dtype dtype, int64_t rows)
{
    weir_tensor *sum = weir_add(state_of(g, dtype, rows, "x"), state_of(g, dtype, rows, "y"));
    need(weir_layernorm(sum), "norm");
    need(sum, "sum");
}

static void build_norm_grad(weir_graph *g, weir_dtype dtype, int64_t rows)
{
    weir_tensor *x = state_of(g, dtype, rows, "x"), *dy = state_of(g, dtype, rows, "dy"), *outs[3];
    weir_tensor *gain = weir_state(g, WEIR_F32, {COLUMNS}, .name = "gain", .init = WEIR_VALUE(1));
    weir_tensor *mean = weir_state(g, WEIR_F32, {rows}, .name = "mean");
    weir_tensor *rstd = weir_state(g, WEIR_F32, {rows}, .name = "rstd", .init = WEIR_VALUE(1));
    weir_tensor *dx = apply(WEIR_HERE, "layernorm_grad", (weir_tensor *[]){x, gain, mean, rstd, dy}, 5, outs);
    need(outs[1], "dgain");
    need(weir_add(dx, state_of(g, dtype, rows, "residual")), "sum");
}

static void build_gelu_grad(weir_graph *g, weir_dtype dtype, int64_t rows)
{
    weir_tensor *in[2] = {state_of(g, dtype, rows, "x"), state_of(g, dtype, rows, "dy")};
    weir_tensor *dx = apply(WEIR_HERE, "gelu_grad", in, 2, NULL);
    need(apply(WEIR_HERE, "linear_db", &dx, 1, NULL), "db");
    need(dx, "dx");
}

static const chain chains[] = {
    {"inner", build_inner}, {"norm", build_norm}, {"norm_grad", build_norm_grad}, {"gelu_grad", build_gelu_grad}};
static const int64_t row_counts[] = {512, 1024, 4096, 16384}; /* 2, 4, 17 and 67 MB a tensor in f32 */
enum { CHAINS = sizeof chains / sizeof *chains, SIZES = sizeof row_counts / sizeof *row_counts, DTYPES = 2 };

typedef struct side {
    weir_plan *plan;       /* owned */
    weir_session *session; /* owned */
    double seconds[ROUNDS];
} side;

static weir_status side_open(side *s, const chain *c, weir_dtype dtype, int64_t rows, bool apart)
{
    weir_graph *g = weir_graph_new(c->name);
    if (g) {
        weir_mesh_new(g, "cpu:0");
        c->build(g, dtype, rows);
    }
    s->plan = g ? weir_compile(g, .no_fusion = apart) : NULL;
    weir_graph_free(g);
    s->session = s->plan ? weir_session_open(s->plan, .workers = 1) : NULL;
    return s->session ? WEIR_OK : WEIR_E_STATE;
}

static weir_status side_round(side *s, int round)
{
    double start = measure_seconds();
    weir_status status = weir_session_run(s->session, STEPS);
    if (round >= 0)
        s->seconds[round] = (measure_seconds() - start) / STEPS;
    return status;
}

/* Medians of both sides, fused first. */
static weir_status run_chain(const chain *c, weir_dtype dtype, int64_t rows, int rounds, double medians[SIDES])
{
    side sides[SIDES] = {0};
    weir_status status = WEIR_OK;
    for (int i = 0; i < SIDES && !status; i++)
        status = side_open(&sides[i], c, dtype, rows, i == 1);
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

static void write_one(bool json, bool first, const chain *c, weir_dtype dtype, int64_t rows,
                      const double medians[SIDES], FILE *to)
{
    const char *name = weir_dtype_name(dtype);
    long mb = (long)(rows * COLUMNS * (int64_t)weir_dtype_bytes(dtype) / 1000000);
    if (json)
        fprintf(to, "%s\"%s_%s_%ldmb_us\": %.1f, \"%s_%s_%ldmb_apart_us\": %.1f", first ? "{" : ", ", c->name, name,
                mb, 1e6 * medians[0], c->name, name, mb, 1e6 * medians[1]);
    else
        fprintf(to, "%-9s %-4s %3ld MB a tensor: fused %8.1f us, apart %8.1f us, %.2f\n", c->name, name, mb,
                1e6 * medians[0], 1e6 * medians[1], medians[0] / medians[1]);
}

weir_status bench_fuse(bool json, bool quick, FILE *to)
{
    static const weir_dtype dtypes[] = {WEIR_F32, WEIR_BF16};
    weir_status status = WEIR_OK;
    for (int at = 0; at < CHAINS * DTYPES * (quick ? 1 : SIZES) && !status; at++) {
        const chain *c = &chains[at % CHAINS];
        weir_dtype dtype = dtypes[at / CHAINS % DTYPES];
        int64_t rows = row_counts[at / CHAINS / DTYPES];
        double medians[SIDES];
        status = run_chain(c, dtype, rows, quick ? 1 : ROUNDS, medians);
        if (!status)
            write_one(json, !at, c, dtype, rows, medians, to);
    }
    if (json && !status)
        fprintf(to, "}\n");
    return status;
}
