/* Messages over links between ranks, with made-up rates. */
#include "graph/time/call.h"
#include "graph/time/rates.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

#define US UINT64_C(1000000) /* picoseconds */
enum { ELEMENTS = 1 << 18, BYTES = 4 * ELEMENTS };
enum { PRODUCER_US = 700, CONSUMER_US = 1100, WORKER_NS = 300, PROCESS_NS = 400 };

/* ---- plans ---- */

static weir_status drop(void *ctx, const weir_view *value, int64_t step, int micro)
{
    (void)ctx, (void)value, (void)step, (void)micro;
    return WEIR_OK;
}

/* cpu:0 makes values of 1 MiB for cpu:1. */
static weir_plan *stream_plan(void)
{
    weir_graph *g = weir_graph_new("stream");
    weir_tensor *x = NULL;
    WEIR_ON(weir_mesh_new(g, "cpu:0"))
    {
        x = weir_input(g, WEIR_F32, {ELEMENTS}, .name = "x");
        weir_slots(x, 16);
        x = weir_relu(x, .name = "made");
    }
    WEIR_ON(weir_mesh_new(g, "cpu:1"))
    {
        x = weir_tanh(x, .name = "taken");
        weir_slots(x, 16);
        weir_fetch(x, .name = "y", .sink = drop);
    }
    weir_plan *plan = weir_compile(g);
    weir_graph_free(g);
    cr_assert_not_null(plan, "%s", weir_error());
    return plan;
}

/* Four devices get a quarter each from cpu:0, and each needs all. */
static weir_plan *gather_plan(void)
{
    weir_graph *g = weir_graph_new("gather");
    weir_tensor *x = NULL;
    WEIR_ON(weir_mesh_new(g, "cpu:0-3"))
    {
        x = weir_relu(weir_input(g, WEIR_F32, {ELEMENTS}, .name = "x", .sbp = {WEIR_S(0)}), .name = "part");
        x = weir_tanh(weir_shard(x, .sbp = {WEIR_B}), .name = "all");
        weir_fetch(weir_sum(x), .name = "y", .sink = drop);
    }
    weir_plan *plan = weir_compile(g);
    weir_graph_free(g);
    cr_assert_not_null(plan, "%s", weir_error());
    return plan;
}

/* ---- rates ---- */

static void add_calls(weir_rates *rates, const weir_plan *plan)
{
    char *text = malloc(TIME_CALL_BYTES);
    for (uint32_t k = 0; k < plan->kernels_count; k++) {
        if (!time_call_text(plan, k, text))
            continue;
        const uint64_t ps = !strncmp(text, "tanh ", 5) ? CONSUMER_US * US : !strncmp(text, "relu ", 5) ? PRODUCER_US * US : 0;
        cr_assert(rates_add(rates, &(time_call){.text = text, .ps = {ps, ps, ps}, .samples = 9}));
    }
    free(text);
}

static weir_rates *rates_of(const weir_plan *plan, uint64_t cores)
{
    weir_rates *r = rates_new();
    cr_assert_not_null(r);
    add_calls(r, plan);
    r->l2 = 1 << 20, r->l3 = 1 << 25, r->worker = WORKER_NS * 1000, r->process = PROCESS_NS * 1000, r->cores = cores;
    return r;
}

static void add_point(time_link *link, uint64_t bytes, uint64_t once_us, uint64_t stream_us, uint64_t sends_us, uint64_t receives_us)
{
    cr_assert(curve_add(&link->once, bytes, once_us * US) && curve_add(&link->stream, bytes, stream_us * US) &&
              curve_add(&link->sends, bytes, sends_us * US) && curve_add(&link->receives, bytes, receives_us * US));
}

static weir_prediction predicted(const weir_plan *plan, const weir_rates *rates, weir_predict_opts opts)
{
    weir_prediction p;
    opts.size = sizeof opts;
    opts.src = WEIR_HERE;
    cr_assert_eq(weir_predict_at(plan, rates, &p, &opts), WEIR_OK, "%s", weir_error());
    return p;
}

#define predict(plan, rates, ...) predicted(plan, rates, (weir_predict_opts){__VA_ARGS__})
#define SET(...) ((const char *const[]){__VA_ARGS__, NULL})

/* ---- tests ---- */

/* A producer with s slots makes s values a round trip, until it, the consumer or the link is always busy. */
Test(line, slots_help_until_a_round_trip_is_full, .timeout = 60)
{
    weir_plan *plan = stream_plan();
    weir_rates *rates = rates_of(plan, 64);
    const double latency = 0.025, passes = 8.0 * BYTES / 1e9, made = PRODUCER_US * 1e-6, taken = CONSUMER_US * 1e-6;
    const double trip = made + latency + passes + taken + latency, least = fmax(fmax(made, taken), passes);
    int knee = 0;
    double before = INFINITY;
    for (int slots = 1; slots <= 10; slots++) {
        char text[32];
        snprintf(text, sizeof text, "slots(made)=%d", slots);
        const weir_prediction p = predict(plan, rates, .ranks = 2, .set = SET("bandwidth=1Gbit", "latency=25ms", text));
        cr_expect_float_eq(p.step_s, fmax(least, trip / slots), 1e-6 * trip, "%d slots: %g s, not %g", slots, p.step_s, fmax(least, trip / slots));
        knee = p.step_s < before * (1 - 1e-6) ? slots : knee;
        before = p.step_s;
    }
    cr_expect_eq(knee, (int)ceil(trip / least), "the knee is at %d slots", knee);
    weir_rates_free(rates);
    weir_plan_free(plan);
}

Test(line, a_measured_link_takes_what_its_curves_say, .timeout = 60)
{
    weir_plan *plan = stream_plan();
    weir_rates *rates = rates_of(plan, 64);
    time_link *link = &rates->links[TIME_HOSTS][TIME_TCP_KEY];
    add_point(link, 64, 50, 1, 0, 0);
    add_point(link, BYTES / 2, 450, 1500, 0, 0);
    add_point(link, 2 * BYTES, 3450, 6000, 0, 0); /* 1 MiB: a third of the way: 1450 and 3000 */
    const weir_prediction one = predict(plan, rates, .ranks = 2, .per_host = 1, .set = SET("slots(made)=1")),
                          many = predict(plan, rates, .ranks = 2, .per_host = 1, .set = SET("slots(made)=9"));
    cr_expect_float_eq(one.step_s, (PRODUCER_US + 1450 + CONSUMER_US + 50) * 1e-6, 1e-9, "%g", one.step_s);
    cr_expect_float_eq(many.step_s, 3000e-6, 1e-9, "%g", many.step_s);
    cr_expect_eq(many.lines, 1);
    cr_expect(many.line[0].from == 0 && many.line[0].to == 1 && many.line[0].busy > 0.9 && many.line[0].busy <= 1);
    cr_expect_geq(many.line[0].bytes, BYTES);
    weir_rates_free(rates);
    weir_plan_free(plan);
}

Test(line, ranks_of_a_host_share_memory_and_others_do_not, .timeout = 60)
{
    weir_plan *plan = gather_plan();
    weir_rates *rates = rates_of(plan, 64);
    add_point(&rates->links[TIME_HOSTS][TIME_TCP_KEY], 64, 50, 1, 0, 0);
    add_point(&rates->links[TIME_LOOPBACK][TIME_TCP], 64, 10, 1, 0, 0);
    cr_expect_eq(predict(plan, rates, .ranks = 4).lines, 0);
    cr_expect_eq(predict(plan, rates, .ranks = 4, .per_host = 2).lines, 8);
    cr_expect_eq(predict(plan, rates, .ranks = 4, .per_host = 1).lines, 12);
    cr_expect_eq(predict(plan, rates, .ranks = 4, .carrier = "tcp", .no_key = true).lines, 12);
    cr_expect_eq(predict(plan, rates, .carrier = "tcp").lines, 0, "one process");
    weir_rates_free(rates);
    weir_plan_free(plan);
}

/* On four ranks, each of them reads the quarters of three others, and three read one from rank 0; on two, each reads a half, and one from
 * rank 0. */
Test(line, a_value_passes_once_to_a_rank_and_no_more_of_it_than_is_read, .timeout = 60)
{
    weir_plan *plan = gather_plan();
    weir_rates *rates = rates_of(plan, 64);
    for (int ranks = 2; ranks <= 4; ranks += 2) {
        const weir_prediction p = predict(plan, rates, .ranks = ranks, .set = SET("bandwidth=1Gbit", "latency=1ms"));
        double bytes = 0;
        for (int i = 0; i < p.lines; i++)
            bytes += p.line[i].bytes;
        const double least = (ranks == 4 ? 15 : 6) * BYTES / 4.0;
        cr_expect(bytes >= least && bytes < 1.001 * least, "%d ranks: %.0f bytes, not %.0f", ranks, bytes, least);
    }
    weir_rates_free(rates);
    weir_plan_free(plan);
}

Test(line, a_longer_latency_or_less_bandwidth_makes_no_step_shorter, .timeout = 60)
{
    static const char *const latencies[] = {"latency=0us", "latency=10us", "latency=1ms", "latency=2ms", "latency=50ms"},
                            *const bandwidths[] = {"bandwidth=100Gbit", "bandwidth=10Gbit", "bandwidth=1Gbit", "bandwidth=100Mbit"};
    weir_plan *plans[] = {stream_plan(), gather_plan()};
    for (int i = 0; i < 2; i++) {
        weir_rates *rates = rates_of(plans[i], 64);
        double before = 0;
        for (size_t l = 0; l < sizeof latencies / sizeof *latencies; l++) {
            const weir_prediction p = predict(plans[i], rates, .ranks = 2, .set = SET("bandwidth=1Gbit", latencies[l]));
            cr_expect_geq(p.step_s, before * (1 - 1e-9), "%s", latencies[l]);
            before = p.step_s;
        }
        before = 0;
        for (size_t b = 0; b < sizeof bandwidths / sizeof *bandwidths; b++) {
            const weir_prediction p = predict(plans[i], rates, .ranks = 2, .set = SET("latency=1ms", bandwidths[b]));
            cr_expect_geq(p.step_s, before * (1 - 1e-9), "%s", bandwidths[b]);
            before = p.step_s;
        }
        weir_rates_free(rates);
        weir_plan_free(plans[i]);
    }
}

static void scale_curve(time_curve *c, uint64_t by)
{
    for (uint32_t i = 0; i < c->count; i++)
        c->ps[i] *= by;
}

Test(line, rates_that_are_three_times_as_long_make_a_step_three_times_as_long, .timeout = 60)
{
    weir_plan *plan = gather_plan();
    weir_rates *rates = rates_of(plan, 2);
    time_link *link = &rates->links[TIME_HOSTS][TIME_TCP];
    add_point(link, 64, 31, 2, 3, 4);
    add_point(link, BYTES, 1900, 1500, 400, 600);
    const double once = predict(plan, rates, .ranks = 4, .per_host = 2, .no_key = true).step_s;
    for (uint32_t c = 0; c < rates->call_count; c++)
        for (int place = 0; place < TIME_PLACES; place++)
            rates->calls[c].ps[place] *= 3;
    scale_curve(&link->once, 3), scale_curve(&link->stream, 3), scale_curve(&link->sends, 3), scale_curve(&link->receives, 3);
    rates->worker *= 3, rates->process *= 3;
    cr_expect_float_eq(predict(plan, rates, .ranks = 4, .per_host = 2, .no_key = true).step_s, 3 * once, 1e-5 * once);
    weir_rates_free(rates);
    weir_plan_free(plan);
}

/* Two workers on two cores write and read the bytes themselves; on more cores threads of the network do, but for the first 256 KiB. */
Test(line, workers_pay_for_bytes_where_no_core_is_left, .timeout = 60)
{
    weir_plan *plan = stream_plan();
    weir_rates *full = rates_of(plan, 2), *wide = rates_of(plan, 64);
    add_point(&full->links[TIME_LOOPBACK][TIME_TCP_KEY], 64, 10, 1, 0, 0);
    add_point(&full->links[TIME_LOOPBACK][TIME_TCP_KEY], BYTES, 1000, 300, 800, 200);
    wide->links[TIME_LOOPBACK][TIME_TCP_KEY] = full->links[TIME_LOOPBACK][TIME_TCP_KEY];
    const weir_prediction f = predict(plan, full, .ranks = 2, .carrier = "tcp", .set = SET("slots(made)=8")),
                          w = predict(plan, wide, .ranks = 2, .carrier = "tcp", .set = SET("slots(made)=8"));
    cr_expect_float_eq(f.step_s, (PRODUCER_US + 800) * 1e-6, 1e-8, "%g", f.step_s);
    cr_expect_float_eq(w.step_s, CONSUMER_US * 1e-6, 1e-8, "%g", w.step_s);
    const weir_prediction slow = predict(plan, full, .ranks = 2, .carrier = "tcp", .set = SET("slots(made)=8", "speed(cpu:1)=0.5"));
    cr_expect_float_eq(slow.step_s, (2 * CONSUMER_US + 200) * 1e-6, 1e-8, "%g", slow.step_s);
    weir_rates_free(full);
    weir_rates_free(wide);
    weir_plan_free(plan);
}

/* The worker writes for 1000 us, but 200 us after it has begun the value is there. The reader's worker takes 2000 us to read it, which begins
 * then; so for 1100 us it has to read on after the producer's firing. */
Test(line, a_value_that_passes_faster_than_it_is_written_is_there_before_its_firing_ends, .timeout = 60)
{
    weir_plan *plan = stream_plan();
    weir_rates *rates = rates_of(plan, 2);
    add_point(&rates->links[TIME_LOOPBACK][TIME_TCP_KEY], 64, 10, 1, 0, 0);
    add_point(&rates->links[TIME_LOOPBACK][TIME_TCP_KEY], BYTES, 200, 100, 1000, 2000);
    const weir_prediction p = predict(plan, rates, .ranks = 2, .carrier = "tcp");
    const double there = PRODUCER_US + 200, read_on = 2000 - there;
    cr_expect_float_eq(p.first_s, (PRODUCER_US + 1000 + read_on + CONSUMER_US) * 1e-6, 3e-6, "%g", p.first_s);
    weir_rates_free(rates);
    weir_plan_free(plan);
}

/* Rank 0 sends two quarters to each of three. Its lines take them side by side; they share the one link of its host. */
Test(line, lines_of_a_host_share_its_link, .timeout = 60)
{
    weir_plan *plan = gather_plan();
    weir_rates *rates = rates_of(plan, 64);
    const double quarter = 8.0 * BYTES / 4 / 1e8;
    static const int per_host[] = {0, 1, 2}, quarters[] = {2, 6, 6};
    for (int i = 0; i < 3; i++) {
        const weir_prediction p = predict(plan, rates, .ranks = 4, .per_host = per_host[i], .set = SET("bandwidth=100Mbit", "latency=0us"));
        cr_expect(p.step_s >= 0.999 * quarters[i] * quarter && p.step_s < (quarters[i] + 0.5) * quarter, "%d ranks a host: %g quarters, not %d",
                  per_host[i], p.step_s / quarter, quarters[i]);
    }
    weir_rates_free(rates);
    weir_plan_free(plan);
}

/* A spread plan has queues and actors that the caller's has not; nothing of it is left in the answer. */
Test(line, the_answer_names_what_the_plan_has, .timeout = 60)
{
    weir_plan *plan = gather_plan();
    weir_rates *rates = rates_of(plan, 64);
    const weir_prediction p = predict(plan, rates, .ranks = 4, .set = SET("bandwidth=1Gbit", "latency=1ms"));
    cr_assert_gt(p.bounds, 0);
    for (int i = 0; i < p.bounds && i < WEIR_PREDICT_BOUNDS; i++) {
        cr_expect(strlen(p.bound[i].actor) && strstr(p.bound[i].queue, "cpu:"), "%s on %s", p.bound[i].actor, p.bound[i].queue);
        cr_expect(p.bound[i].actor >= plan->strings && p.bound[i].actor < plan->strings + plan->strings_count);
    }
    weir_rates_free(rates);
    weir_plan_free(plan);
}

Test(line, a_link_that_cannot_be_is_one_sentence, .timeout = 60)
{
    weir_plan *plan = stream_plan();
    weir_rates *rates = rates_of(plan, 64);
    static const struct {
        weir_predict_opts opts;
        const char *says;
    } wrong[] = {{{.ranks = 2, .per_host = 1}, "no link hosts tcp+key from rank 0 to rank 1: weir measure --between"},
                 {{.ranks = 2, .carrier = "tcp", .no_key = true}, "no link loopback tcp from rank 0 to rank 1: weir measure"},
                 {{.ranks = 2, .carrier = "ucx"}, "no link loopback ucx+key"},
                 {{.ranks = 2, .carrier = "pigeon"}, "no carrier \"pigeon\"; allowed: shm, ipc, tcp, ucx"},
                 {{.ranks = 2, .carrier = "shm,pigeon"}, "no carrier \"pigeon\""},
                 {{.ranks = 2, .carrier = "tcp,"}, "no carrier \"\""},
                 {{.ranks = 2, .per_host = 1, .carrier = "shm,ucx"}, "no link hosts ucx+key"},
                 {{.ranks = 2, .carrier = "ipc"}, "no link loopback tcp+key"},
                 {{.carrier = ""}, "no carrier \"\""},
                 {{.ranks = 2, .per_host = 1, .carrier = "shm"}, "shared memory does not reach from rank 0 to rank 1"},
                 {{.ranks = -2}, ".ranks is -2, and must be 1 or more"},
                 {{.per_host = -1}, ".per_host is -1"},
                 {{.ranks = 1 << 30}, "can be spread over 1 to"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        weir_predict_opts opts = wrong[i].opts;
        weir_prediction p;
        opts.size = sizeof opts;
        opts.src = WEIR_HERE;
        cr_expect_eq(weir_predict_at(plan, rates, &p, &opts), WEIR_E_ARGUMENT);
        cr_expect(strstr(weir_error(), wrong[i].says), "%zu: %s", i, weir_error());
    }
    weir_prediction p;
    cr_expect_eq(weir_predict(plan, rates, &p, .ranks = 2, .per_host = 1, .set = SET("latency=1ms")), WEIR_E_ARGUMENT, "bytes are not known");
    weir_rates_free(rates);
    weir_plan_free(plan);
}
