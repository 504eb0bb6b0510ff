/* Values on lines that share links, whose ends are known by hand. */
#include "graph/time/flow.h"
#include "graph/time/rates.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

enum { LINES = 8 };

/* When each value is there, by its port; nothing is sent later than those that are given. */
typedef struct sent {
    uint32_t line;
    uint64_t now, work, behind;
} sent;

static void play(flows *f, const sent *list, uint32_t count, uint64_t *there)
{
    uint64_t now = 0;
    for (uint32_t i = 0; i < count || flows_next(f, now) != FLOW_NONE;) {
        const uint64_t next = flows_next(f, now);
        uint32_t line;
        flow_value value;
        if (i < count && list[i].now <= next) {
            now = list[i].now;
            cr_assert(flows_send(f, list[i].line, (flow_value){.work = list[i].work, .behind = list[i].behind, .port = i}, now));
            i++;
            continue;
        }
        now = next;
        while (flows_take(f, now, &line, &value))
            there[value.port] = now;
    }
}

/* Lines from one host to others: 0 > 1, 0 > 2, ...; and 3 is that from another host to host 1. */
static flows opened(void)
{
    flows f;
    cr_assert(flows_open(&f, LINES, 2 * LINES));
    for (uint32_t i = 0; i < LINES; i++)
        f.of[i].links[0] = i == 3 ? 1 : 0, f.of[i].links[1] = LINES + (i == 3 ? 0 : i);
    return f;
}

#define PLAY(...)                                                    \
    flows f = opened();                                              \
    uint64_t there[16] = {0};                                        \
    const sent list[] = {__VA_ARGS__};                               \
    play(&f, list, sizeof list / sizeof *list, there);               \
    flows_close(&f)

Test(flow, one_alone_passes_at_full_speed_and_the_next_one_after_it)
{
    PLAY({0, 10, 100, 0}, {0, 20, 50, 30}, {0, 30, 7, 0});
    cr_expect_eq(there[0], 110);
    cr_expect_eq(there[1], 160);
    cr_expect_eq(there[2], 197, "behind what the one before it keeps the line for: %d", (int)there[2]);
}

Test(flow, two_of_equal_size_end_at_the_same_time)
{
    PLAY({0, 0, 1000, 0}, {1, 0, 1000, 0});
    cr_expect(there[0] == 2000 && there[1] == 2000, "%d, %d", (int)there[0], (int)there[1]);
}

Test(flow, a_short_one_ends_after_twice_its_time_and_the_long_one_after_both)
{
    PLAY({0, 0, 4000, 0}, {1, 0, 1000, 0});
    cr_expect_eq(there[1], 2000);
    cr_expect_eq(there[0], 5000);
}

Test(flow, one_that_comes_later_slows_the_other_from_then_on)
{
    PLAY({0, 0, 1000, 0}, {1, 600, 1000, 0});
    cr_expect_eq(there[0], 1400);
    cr_expect_eq(there[1], 2000);
}

/* Three lines leave host 0, of which one arrives where the line of another host does, too: that one gets what is left there. */
Test(flow, one_that_a_narrower_link_holds_back_leaves_the_rest_to_others)
{
    PLAY({0, 0, 1000000, 0}, {1, 0, 1000000, 0}, {2, 0, 1000000, 0}, {3, 0, 1000000, 0});
    cr_expect(there[0] >= 3000000 && there[0] <= 3000010 && there[1] == there[0] && there[2] == there[0], "%d", (int)there[0]);
    cr_expect(there[3] >= 1500000 && there[3] <= 1500010, "two thirds of its link: %d", (int)there[3]);
}

/* ---- in a prediction ---- */

static weir_status drop(void *ctx, const weir_view *value, int64_t step, int micro)
{
    (void)ctx, (void)value, (void)step, (void)micro;
    return WEIR_OK;
}

enum { ELEMENTS = 1 << 18 };

/* cpu:0 has two values, of which one goes to cpu:1 and one to cpu:2; `part` of the elements go to the latter. */
static weir_plan *two_lines(int part)
{
    weir_graph *g = weir_graph_new("lines");
    weir_tensor *a = NULL, *b = NULL;
    WEIR_ON(weir_mesh_new(g, "cpu:0"))
    {
        a = weir_input(g, WEIR_F32, {ELEMENTS}, .name = "a");
        b = weir_input(g, WEIR_F32, {ELEMENTS / part}, .name = "b");
    }
    WEIR_ON(weir_mesh_new(g, "cpu:1"))
        weir_fetch(weir_relu(a, .name = "first"), .name = "y", .sink = drop);
    WEIR_ON(weir_mesh_new(g, "cpu:2"))
        weir_fetch(weir_relu(b, .name = "second"), .name = "z", .sink = drop);
    weir_plan *plan = weir_compile(g);
    weir_graph_free(g);
    cr_assert_not_null(plan, "%s", weir_error());
    return plan;
}

static void note(void *ctx, const weir_predicted_firing *firing)
{
    double *begin = ctx;
    for (int i = 0; i < 2; i++)
        if (!firing->step && strstr(firing->actor, i ? "second" : "first"))
            begin[i] = firing->begin_s;
}

/* Two equal values end together. Short values follow each other while the long one passes, so that gets half of the link all the time. */
Test(flow, lines_of_a_host_get_equal_parts_of_the_bandwidth_that_is_set, .timeout = 60)
{
    const double whole = 8.0 * 4 * ELEMENTS / 1e9;
    static const double ends[][2] = {{2, 2}, {2, 0.5}};
    for (int i = 0; i < 2; i++) {
        weir_plan *plan = two_lines(i ? 4 : 1);
        weir_rates *rates = rates_new();
        double begin[2] = {0};
        weir_prediction p;
        cr_assert_not_null(rates);
        rates->cores = 64;
        cr_assert_eq(weir_predict(plan, rates, &p, .ranks = 3, .per_host = 1, .fired = note, .ctx = begin,
                                  .set = (const char *const[]){"bandwidth=1Gbit", "latency=0us", NULL}),
                     WEIR_OK, "%s", weir_error());
        for (int k = 0; k < 2; k++)
            cr_expect_float_eq(begin[k] / whole, ends[i][k], 0.01, "part %d, value %d: %g, not %g", i, k, begin[k] / whole, ends[i][k]);
        weir_rates_free(rates);
        weir_plan_free(plan);
    }
}
