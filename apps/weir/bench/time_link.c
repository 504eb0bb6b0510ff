/* apps/weir/bench/time_link.c: see the header. */
#include "apps/weir/bench/time_link.h"

#include "apps/common/measure.h"
#include "apps/weir/bench/link_plan.h"
#include "apps/weir/bench/ranks.h"
#include "apps/weir/bench/timed.h"
#include "apps/weir/measure_link.h"
#include "graph/base/error.h"

#include <math.h>

#define ROUND_SECONDS 0.2
#define QUICK_SECONDS 0.02
enum { FIRST_US = 300, SECOND_US = 500, ROUNDS = 3 };

/* ---- ops ---- */

static weir_status spin_first(const weir_kernel_args *args)
{
    (void)args;
    bench_spin(FIRST_US);
    return WEIR_OK;
}

static weir_status spin_second(const weir_kernel_args *args)
{
    (void)args;
    bench_spin(SECOND_US);
    return WEIR_OK;
}

static const weir_op op_first = {.name = "bench_time_first", .in_max = 1, .out_count = 1, .infer = bench_link_infer, .fits = bench_link_fits,
                                 .kernel = {[WEIR_CPU] = spin_first}};
static const weir_op op_second = {.name = "bench_time_second", .in_min = 1, .in_max = 1, .out_count = 1, .infer = bench_link_infer, .fits = bench_link_fits,
                                  .kernel = {[WEIR_CPU] = spin_second}};
static const weir_op op_last = {.name = "bench_time_last", .in_min = 1, .in_max = 1, .infer = bench_link_infer, .fits = bench_link_fits,
                                .kernel = {[WEIR_CPU] = spin_second}};

static weir_status ops_register(void)
{
    if (weir_op_find(op_first.name))
        return WEIR_OK;
    weir_status status = weir_op_register(&op_first);
    status = status ? status : weir_op_register(&op_second);
    return status ? status : weir_op_register(&op_last);
}

/* ---- cases ---- */

typedef struct shape_case {
    const char *name;
    size_t bytes;
    uint32_t slots;
    bool back;
} shape_case;

static const shape_case shapes[] = {
    {"64 B, 1 slot", 64, 1, false},       {"64 B, there and back", 64, 1, true},   {"64 KiB, 2 slots", 64 << 10, 2, false},
    {"1 MiB, 1 slot", 1 << 20, 1, false}, {"1 MiB, 2 slots", 1 << 20, 2, false},   {"1 MiB, there and back", 1 << 20, 1, true},
    {"4 MiB, 1 slot", 4 << 20, 1, false}, {"4 MiB, 4 slots", 4 << 20, 4, false},
};
enum { SHAPES = sizeof shapes / sizeof *shapes, WAYS = 3, CASES = SHAPES * WAYS };
static const char *const way_names[WAYS] = {[BENCH_SHM] = "shm", [BENCH_TCP] = "tcp", [BENCH_TCP_KEY] = "tcp+key"};

static weir_plan *shape_plan(const shape_case *s)
{
    return bench_link_plan(&(bench_link_shape){.bytes = s->bytes, .slots = s->slots, .first = &op_first, .second = s->back ? &op_second : &op_last,
                                                 .back = s->back});
}

static weir_status measure(const weir_plan *plan, const shape_case *s, enum bench_way way, bool quick, double *seconds)
{
    double each[ROUNDS];
    weir_status status = WEIR_OK;
    const int rounds = quick ? 1 : ROUNDS;
    const struct bench_ranks ranks = {.plan = plan, .round = {.bytes = s->bytes, .round_seconds = quick ? QUICK_SECONDS : ROUND_SECONDS}, .way = way};
    for (int i = 0; i < rounds && !status; i++)
        status = bench_ranks_run(2, &ranks, &each[i]);
    *seconds = status ? 0 : measure_median(each, rounds);
    return status;
}

static weir_status predict(const weir_plan *plan, const weir_rates *rates, enum bench_way way, double *seconds)
{
    weir_prediction p = {.steady = false};
    weir_status status = weir_predict(plan, rates, &p, .ranks = 2, .carrier = way == BENCH_SHM ? "shm" : "tcp", .no_key = way == BENCH_TCP);
    *seconds = p.step_s;
    return status;
}

static void print(int c, double measured, double predicted, bool json, FILE *to)
{
    const char *way = way_names[c / SHAPES], *shape = shapes[c % SHAPES].name;
    if (json)
        fprintf(to, "%s\"%s, %s\": {\"measured_s\": %.6f, \"predicted_s\": %.6f}", c ? ", " : "{", way, shape, measured, predicted);
    else
        fprintf(to, "%-8s %-24s measured %8.3f ms, predicted %8.3f ms, %+5.1f %%\n", way, shape, 1e3 * measured, 1e3 * predicted,
                100 * (predicted / measured - 1));
}

/* All processes first: weir_measure() starts threads. */
static weir_status compare(const weir_plan *const *plans, weir_rates *rates, bool json, bool quick, FILE *to)
{
    double measured[CASES], predicted = 0;
    weir_status status = measure_links(rates);
    const uint64_t process = rates->process;
    for (int c = 0; c < CASES && !status; c++)
        status = measure(plans[c % SHAPES], &shapes[c % SHAPES], (enum bench_way)(c / SHAPES), quick, &measured[c]);
    if (!status && !weir_measure(plans, SHAPES, .noisy = true, .add_to = rates))
        status = WEIR_E_STATE;
    rates->process = process;
    for (int c = 0; c < CASES && !status; c++) {
        status = predict(plans[c % SHAPES], rates, (enum bench_way)(c / SHAPES), &predicted);
        if (!status)
            print(c, measured[c], predicted, json, to);
    }
    fputs(json && !status ? "}\n" : "", to);
    return status;
}

weir_status bench_time_link(bool json, bool quick, FILE *to)
{
    const weir_plan *plans[SHAPES] = {NULL};
    weir_rates *rates = rates_new();
    weir_status status = rates ? ops_register() : error_set(WEIR_E_MEMORY, "no memory for rates");
    for (int i = 0; i < SHAPES && !status; i++)
        status = (plans[i] = shape_plan(&shapes[i])) ? WEIR_OK : WEIR_E_GRAPH;
    status = status ? status : compare(plans, rates, json, quick, to);
    weir_rates_free(rates);
    for (int i = 0; i < SHAPES; i++)
        weir_plan_free((weir_plan *)plans[i]);
    return status;
}
