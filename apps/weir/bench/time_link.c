/* apps/weir/bench/time_link.c: see the header. */
#include "apps/weir/bench/time_link.h"

#include "apps/common/measure.h"
#include "apps/weir/bench/link_plan.h"
#include "apps/weir/bench/ranks.h"
#include "apps/weir/bench/timed.h"
#include "apps/weir/measure_link.h"
#include "graph/base/error.h"
#include "graph/plan/form/plan.h"

#include <string.h>

enum { ROUNDS = 3 };
#define GUESS_BYTES_S 1e9

typedef struct shape_case {
    const char *name;
    size_t bytes;
    uint32_t slots;
    bool back;
    int64_t first_us, second_us;
} shape_case;

static weir_plan *shape_plan(const shape_case *s)
{
    return bench_link_plan(&(bench_link_shape){.bytes = s->bytes, .slots = s->slots, .first = s->back ? &bench_link_pass : &bench_link_give,
                                                 .second = s->back ? &bench_link_pass : &bench_link_take, .first_us = s->first_us,
                                                 .second_us = s->second_us, .back = s->back});
}

static weir_status measure(const weir_plan *plan, const shape_case *s, enum bench_way way, int rounds, double *seconds)
{
    const struct bench_ranks ranks = {.plan = plan, .way = way, .rounds = rounds,
                                      .guess = 1e-6 * (double)(s->first_us + s->second_us) + (double)s->bytes / GUESS_BYTES_S};
    return bench_ranks_run(2, &ranks, seconds);
}

static weir_status predict(const weir_plan *plan, const weir_rates *rates, enum bench_way way, const char *const *set, double *seconds)
{
    weir_prediction p = {.steady = false};
    weir_status status = weir_predict(plan, rates, &p, .ranks = 2, .carrier = way == BENCH_SHM ? "shm" : "tcp", .no_key = way == BENCH_TCP, .set = set);
    *seconds = p.step_s;
    return status;
}

/* ---- in shared memory ---- */

static const shape_case shared[BENCH_SHARED] = {
    {"64 B, one slot", 64, 1, false, 2100, 3300},
    {"1 MiB, two slots", 1 << 20, 2, false, 2100, 3300},
    {"1 MiB, there and back", 1 << 20, 1, true, 2100, 3300},
    {"4 MiB, four slots", 4 << 20, 4, false, 4700, 4100},
};

/* Each round is a session of its own, as ranks cannot agree on whether to go on. */
static weir_status measure_shared(const weir_plan *plan, const shape_case *s, int rounds, double *seconds)
{
    double each[BENCH_SHARED_ROUNDS];
    int count = 0;
    weir_status status = WEIR_OK;
    for (; count < rounds && !status && !bench_timed_agree(each, count, BENCH_TIMED_AGREE); count++)
        status = measure(plan, s, BENCH_SHM, 1, &each[count]);
    *seconds = status ? 0 : measure_median(each, count);
    return status;
}

weir_status bench_shared_measure(bench_shared *all, weir_rates *rates, int rounds)
{
    memset(all, 0, BENCH_SHARED * sizeof *all);
    weir_status status = measure_process(rates);
    for (int i = 0; i < BENCH_SHARED && !status; i++) {
        all[i] = (bench_shared){shared[i].name, shape_plan(&shared[i]), 0};
        status = all[i].plan ? measure_shared(all[i].plan, &shared[i], rounds, &all[i].measured) : WEIR_E_GRAPH;
    }
    return status;
}

void bench_shared_free(bench_shared *all)
{
    for (int i = 0; i < BENCH_SHARED; i++)
        weir_plan_free(all[i].plan);
}

weir_status bench_shared_predict(const bench_shared *one, const weir_rates *rates, bool slot_more, double *seconds)
{
    const int slots = (int)one->plan->regsts[0].slots;
    char text[32];
    snprintf(text, sizeof text, "slots(bytes)=%d", slots + slot_more);
    return predict(one->plan, rates, BENCH_SHM, (const char *[]){text, NULL}, seconds);
}

/* ---- over TCP ---- */

static const shape_case shapes[] = {
    {"64 B, 1 slot", 64, 1, false, 300, 500},       {"64 B, there and back", 64, 1, true, 300, 500},
    {"64 KiB, 2 slots", 64 << 10, 2, false, 300, 500}, {"1 MiB, 1 slot", 1 << 20, 1, false, 300, 500},
    {"1 MiB, 2 slots", 1 << 20, 2, false, 300, 500}, {"1 MiB, there and back", 1 << 20, 1, true, 300, 500},
    {"4 MiB, 1 slot", 4 << 20, 1, false, 300, 500}, {"4 MiB, 4 slots", 4 << 20, 4, false, 300, 500},
};
enum { SHAPES = sizeof shapes / sizeof *shapes, WAYS = 2, CASES = SHAPES * WAYS };
static const enum bench_way ways[WAYS] = {BENCH_TCP, BENCH_TCP_KEY};
static const char *const way_names[WAYS] = {"tcp", "tcp+key"};

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
        status = measure(plans[c % SHAPES], &shapes[c % SHAPES], ways[c / SHAPES], quick ? 1 : ROUNDS, &measured[c]);
    if (!status && !weir_measure(plans, SHAPES, .noisy = true, .add_to = rates))
        status = WEIR_E_STATE;
    rates->process = process;
    for (int c = 0; c < CASES && !status; c++) {
        status = predict(plans[c % SHAPES], rates, ways[c / SHAPES], NULL, &predicted);
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
    weir_status status = rates ? WEIR_OK : error_set(WEIR_E_MEMORY, "no memory for rates");
    for (int i = 0; i < SHAPES && !status; i++)
        status = (plans[i] = shape_plan(&shapes[i])) ? WEIR_OK : WEIR_E_GRAPH;
    status = status ? status : compare(plans, rates, json, quick, to);
    weir_rates_free(rates);
    for (int i = 0; i < SHAPES; i++)
        weir_plan_free((weir_plan *)plans[i]);
    return status;
}
