/* tests/graph/compile/test_hosts.c: how many slots a link between hosts asks for, of whom it does not, what a limit takes
 * away again, and that no bit changes. */
#include "graph/compile/options.h"
#include "graph/plan/form/plan.h"
#include "tests/support/learner.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(hosts, .timeout = 120);

enum { ITEMS = 16384, BYTES = 4 * ITEMS, FULL = 96 }; /* slots of 64 KiB that 1 Gbit/s brings on their way in 50 ms */
static const char gigabit[] = "1Gbit 50ms";

/* ---- the text ---- */

Test(hosts, a_link_is_a_bandwidth_and_a_round_trip)
{
    static const struct {
        const char *text;
        double bytes;
    } links[] = {{"10Gbit 200us", 250e3}, {"1Gbit 50ms", 6.25e6}, {"8bit 1s", 1},         {"2.5mbit  0.5ms", 156.25},
                 {"1tbit 10us", 1.25e6},  {"64kbit 3s", 24000},    {"64Kbit 3s", 24000},   {"0.25gbit 12.5us", 390.625},
                 {"1Tbit 100us", 12.5e6}};
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
        double bytes = 0;
        cr_expect(link_parse(links[i].text, &bytes), "%s", links[i].text);
        cr_expect_float_eq(bytes, links[i].bytes, 1e-9 * links[i].bytes, "%s: %g", links[i].text, bytes);
    }
}

Test(hosts, what_is_no_link_is_refused)
{
    static const char *const texts[] = {
        "", "10Gbit", "200us", "200us 10Gbit", "10 Gbit 200us", "10Gbit200us", "10Gbit 200", "10 200us", "10Gbit 200us ",
        " 10Gbit 200us", "10Gbps 200us", "10GB 200us", "-1Gbit 200us", "1e3Gbit 200us", "0x1Gbit 200us", "infbit 1s",
        "nanbit 1s", "10Gbit 0us", "0Gbit 200us", "10.Gbit 200us", ".5Gbit 200us", "1,5Gbit 200us", "10Gbit,200us",
        "10Gbit 200us 3", "10Gbit 200usec", "10Gbitx 200us", "10000Tbit 1us", "1Gbit 1001s", "10Gbit\t200us"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        double bytes = 0;
        cr_expect_not(link_parse(texts[i], &bytes), "\"%s\": %g", texts[i], bytes);
    }
}

/* ---- models ---- */

struct places {
    weir_graph *graph;
    weir_mesh *on[4];
};

static struct places places_new(void)
{
    struct places p = {weir_graph_new("hosts"), {NULL}};
    char device[16];
    for (int i = 0; i < 4; i++) {
        snprintf(device, sizeof device, "cpu:%d", i);
        p.on[i] = weir_mesh_new(p.graph, device);
    }
    return p;
}

static weir_status draw(void *ctx, const weir_view *x, int64_t step, int micro)
{
    (void)ctx;
    for (int64_t i = 0; i < weir_shape_count(&x->shape); i++)
        ((float *)x->data)[i] = weir_random_normal((uint64_t)(step * 100 + micro), (uint64_t)i);
    return WEIR_OK;
}

static weir_tensor *drawn(const struct places *p, int at, bool micro, const char *name)
{
    weir_tensor *x = NULL;
    WEIR_ON(p->on[at])
        x = weir_input(p->graph, WEIR_F32, {ITEMS}, .name = name, .micro = micro, .source = draw);
    return x;
}

/* The same value, times 2, on another device. */
static weir_tensor *passed(const struct places *p, weir_tensor *x, int to)
{
    return weir_shard(weir_affine(x, 2), .mesh = p->on[to]);
}

#define compiled(places, ...) compiled_at(places, WEIR_OPTS(weir_compile_opts, __VA_ARGS__))
static weir_plan *compiled_at(struct places p, const weir_compile_opts *opts)
{
    weir_plan *plan = weir_compile_at(p.graph, opts);
    cr_assert_not_null(plan, "%s", weir_error());
    cr_expect_eq(weir_plan_check(plan), WEIR_OK, "%s", weir_error());
    return plan;
}

/* The largest number of slots of what device `from` writes and device `to` reads, of registers with bytes; and, when
 * both are the same, with a name that begins so. */
static int slots_between(const weir_plan *plan, int from, int to, const char *writer)
{
    int most = 0;
    for (uint32_t i = 0; i < plan->ports_count; i++) {
        const plan_port *port = &plan->ports[i];
        const plan_regst *regst = &plan->regsts[port->regst.i];
        const plan_space *at = &plan->spaces[plan->queues[plan->actors[port->actor.i].queue.i].space.i];
        if (regst->producer.i == PLAN_NONE || regst->initial || !regst->slot_bytes)
            continue;
        const char *name = plan_text(plan, plan->actors[regst->producer.i].name);
        if ((int)plan->spaces[regst->space.i].index == from && (int)at->index == to && (int)regst->slots > most &&
            (!writer || !strncmp(name, writer, strlen(writer))))
            most = (int)regst->slots;
    }
    return most;
}

/* ---- what gets how many ---- */

/* x on device 0, its double on device `to`, of which a mean is pulled. */
static struct places stream(int to)
{
    struct places p = places_new();
    weir_fetch(weir_mean(passed(&p, drawn(&p, 0, false, "x"), to)), .name = "mean");
    return p;
}

Test(hosts, a_stream_to_another_host_gets_what_fills_the_link_and_one_slot_more)
{
    struct places p = stream(1);
    weir_plan *without = compiled(p), *with = compiled(p, .link = gigabit), *narrow = compiled(p, .link = "1Gbit 200us"),
              *none = compiled(p, .link = "1kbit 1us");
    cr_expect_eq(slots_between(without, 0, 1, NULL), 2);
    cr_expect_eq(slots_between(with, 0, 1, NULL), FULL + 1, "%d", slots_between(with, 0, 1, NULL));
    cr_expect_eq(slots_between(narrow, 0, 1, NULL), 2, "less than a slot is under way");
    cr_expect_eq(slots_between(none, 0, 1, NULL), 2);
    /* who pulls on the other host waits as long, and a mean costs next to nothing: but there are no more of them */
    cr_expect_eq(slots_between(with, 1, 1, NULL), FULL + 1, "%d", slots_between(with, 1, 1, NULL));
    cr_expect_eq(slots_between(with, 0, 0, "x"), 2, "the source need not be ahead of the link");
    weir_plan_free(without), weir_plan_free(with), weir_plan_free(narrow), weir_plan_free(none);
    weir_graph_free(p.graph);
}

Test(hosts, what_stays_on_a_host_gets_no_more)
{
    struct places near = stream(1), far = stream(3);
    weir_plan *within = compiled(near, .link = gigabit, .per_host = 2), *plain = compiled(near, .per_host = 2),
              *between = compiled(far, .link = gigabit, .per_host = 2), *one = compiled(far, .link = gigabit, .per_host = 4);
    cr_expect_eq(slots_between(within, 0, 1, NULL), slots_between(plain, 0, 1, NULL));
    cr_expect_eq(slots_between(one, 0, 3, NULL), slots_between(plain, 0, 1, NULL));
    cr_expect_eq(slots_between(between, 0, 3, NULL), FULL + 1);
    weir_plan_free(within), weir_plan_free(plain), weir_plan_free(between), weir_plan_free(one);
    weir_graph_free(near.graph), weir_graph_free(far.graph);
}

/* Registers that go over one link fill it together. */
Test(hosts, registers_of_one_link_share_it)
{
    struct places p = places_new();
    weir_tensor *x = drawn(&p, 0, false, "x"), *y = passed(&p, x, 1), *z = weir_shard(weir_affine(x, 3), .mesh = p.on[1]);
    weir_fetch(weir_mean(weir_add(y, z)), .name = "mean");
    weir_plan *plan = compiled(p, .link = gigabit);
    cr_expect_eq(slots_between(plan, 0, 1, NULL), FULL / 2 + 1, "%d", slots_between(plan, 0, 1, NULL));
    weir_plan_free(plan);
    weir_graph_free(p.graph);
}

/* x goes to device 1 and comes back, and meets what has waited on device 0. */
static struct places there_and_back(void)
{
    struct places p = places_new();
    weir_tensor *x = drawn(&p, 0, false, "x"), *kept = NULL, *back = NULL;
    WEIR_ON(p.on[0], .name = "kept")
        kept = weir_affine(x, 3);
    WEIR_ON(p.on[1], .name = "there")
        back = weir_affine(x, 5);
    WEIR_ON(p.on[0], .name = "met")
        weir_fetch(weir_mean(weir_add(kept, back)), .name = "mean");
    return p;
}

Test(hosts, what_waits_beside_a_link_gets_as_many_as_are_under_way)
{
    struct places p = there_and_back();
    weir_plan *plan = compiled(p, .link = gigabit), *without = compiled(p);
    cr_expect_eq(slots_between(plan, 1, 0, NULL), FULL + 1, "%d", slots_between(plan, 1, 0, NULL));
    /* x is read there, and here when it has come back: its register alone has them */
    cr_expect_eq(slots_between(plan, 0, 1, NULL), slots_between(plan, 0, 0, "x"));
    cr_expect_leq(slots_between(plan, 0, 0, "kept"), 2);
    int waits = slots_between(plan, 0, 0, NULL), waited = slots_between(without, 0, 0, NULL);
    cr_expect(waits >= FULL + 1 && waits <= FULL + 2, "%d", waits);
    cr_expect_leq(waited, 2);
    weir_plan_free(plan), weir_plan_free(without);
    weir_graph_free(p.graph);
}

/* Device 0 begins a later step with device 1's result from x. */
static weir_plan *loop_plan(int delay, bool back)
{
    struct places p = places_new();
    weir_tensor *state = NULL, *x = drawn(&p, 0, false, "x"), *y;
    WEIR_ON(p.on[0])
        state = weir_state(p.graph, WEIR_F32, {ITEMS}, .name = "state", .delay = delay);
    WEIR_ON(p.on[0])
        x = weir_add(x, state);
    y = passed(&p, x, 1);
    weir_state_set(state, back ? weir_shard(y, .mesh = p.on[0]) : x);
    weir_fetch(weir_mean(y), .name = "mean");
    weir_plan *plan = compiled(p, .link = gigabit);
    weir_graph_free(p.graph);
    return plan;
}

Test(hosts, nothing_is_ahead_of_what_it_waits_for_itself)
{
    static const int delays[] = {1, 3, 8};
    for (size_t i = 0; i < sizeof delays / sizeof *delays; i++) {
        weir_plan *loop = loop_plan(delays[i], true), *own = loop_plan(delays[i], false);
        cr_expect_eq(slots_between(loop, 0, 1, NULL), delays[i] > 2 ? delays[i] : 2, "%d for %d",
                     slots_between(loop, 0, 1, NULL), delays[i]);
        cr_expect_eq(slots_between(own, 0, 1, NULL), FULL + 1, "a loop of its own keeps nobody from being ahead");
        weir_plan_free(loop), weir_plan_free(own);
    }
}

/* ---- training ---- */

static weir_plan *pipeline(int micro, const char *link)
{
    weir_plan *plan = learner_plan(.pp = 2, .micro = micro, .compile = {.src = WEIR_HERE, .link = link});
    cr_assert_not_null(plan, "%s", weir_error());
    cr_expect_eq(weir_plan_check(plan), WEIR_OK, "%s", weir_error());
    return plan;
}

/* The most slots of what forward makes on device 0 for its own backward phase. */
static int saved_slots(const weir_plan *plan)
{
    int most = 0;
    for (uint32_t i = 0; i < plan->ports_count; i++) {
        const plan_regst *regst = &plan->regsts[plan->ports[i].regst.i];
        const plan_actor *reader = &plan->actors[plan->ports[i].actor.i];
        if (regst->producer.i == PLAN_NONE || plan->spaces[regst->space.i].index || regst->initial)
            continue;
        if (plan->actors[regst->producer.i].phase == PLAN_FORWARD && reader->phase == PLAN_BACKWARD &&
            !plan->spaces[plan->queues[reader->queue.i].space.i].index && (int)regst->slots > most)
            most = (int)regst->slots;
    }
    return most;
}

Test(hosts, a_pipeline_has_as_many_micro_batches_under_way_as_a_step_has)
{
    enum { MICRO = 8 };
    weir_plan *near = pipeline(MICRO, NULL), *slow = pipeline(MICRO, "1Gbit 50ms"), *fast = pipeline(MICRO, "1kbit 1us"),
              *one = pipeline(1, "1Gbit 50ms"), *one_near = pipeline(1, NULL);
    cr_expect_eq(saved_slots(near), 2);
    cr_expect_eq(saved_slots(slow), MICRO, "%d", saved_slots(slow));
    cr_expect_eq(saved_slots(fast), 2, "%d: a link as fast as this keeps nothing waiting", saved_slots(fast));
    cr_expect_eq(slots_between(slow, 0, 1, NULL), MICRO, "%d", slots_between(slow, 0, 1, NULL));
    cr_expect_eq(slots_between(slow, 1, 0, NULL), MICRO, "%d", slots_between(slow, 1, 0, NULL));
    cr_expect_eq(slots_between(one, 0, 1, NULL), slots_between(one_near, 0, 1, NULL), "a step waits for the one before");
    weir_plan_free(near), weir_plan_free(slow), weir_plan_free(fast), weir_plan_free(one), weir_plan_free(one_near);
}

static struct learned learn(const weir_plan *plan)
{
    weir_session *s = weir_session_open(plan);
    cr_assert_not_null(s, "%s", weir_error());
    cr_assert_eq(weir_session_run(s, 3), WEIR_OK, "%s", weir_error());
    struct learned now = learned_read(s);
    cr_assert_geq(now.count, 0, "%s", weir_error());
    weir_session_close(s);
    return now;
}

Test(hosts, a_link_changes_no_bit)
{
    for (int i = 0; i < LEARNER_LAYOUTS; i++) {
        struct learner_opts opts = learner_layouts[i];
        opts.compile.src = WEIR_HERE;
        weir_plan *without = learner_plan_at(opts);
        opts.compile.link = gigabit;
        weir_plan *with = learner_plan_at(opts);
        cr_assert(without && with, "%s", weir_error());
        struct learned got = learn(with), want = learn(without);
        const char *differs = learned_differs(&got, &want, 0);
        cr_expect_null(differs, "layout %d: %s", i, differs);
        learned_free(&got), learned_free(&want);
        weir_plan_free(without), weir_plan_free(with);
    }
}

/* ---- within a limit ---- */

static weir_plan *limited(struct places p, uint64_t bytes)
{
    char limit[32];
    snprintf(limit, sizeof limit, "%llu", (unsigned long long)bytes);
    return weir_compile(p.graph, .link = gigabit, .memory = limit);
}

static void pulls_the_same(const weir_plan *a, const weir_plan *b)
{
    enum { STEPS = 5 };
    const weir_plan *const plans[] = {a, b};
    float mean[2][STEPS];
    for (int i = 0; i < 2; i++) {
        weir_session *s = weir_session_open(plans[i]);
        cr_assert_not_null(s, "%s", weir_error());
        cr_assert_eq(weir_session_start(s, STEPS), WEIR_OK, "%s", weir_error());
        for (int k = 0; k < STEPS; k++)
            cr_assert_eq(weir_session_pull(s, "mean", &(weir_array){&mean[i][k], WEIR_F32, {0}}, -1), WEIR_OK);
        cr_assert_eq(weir_session_wait(s, -1), WEIR_OK, "%s", weir_error());
        weir_session_close(s);
    }
    cr_expect_eq(memcmp(mean[0], mean[1], sizeof mean[0]), 0);
}

/* Bytes of a device, with what waits there of the other's. */
static uint64_t needs(const weir_plan *plan, int device)
{
    return weir_plan_bytes(plan, device) + (uint64_t)slots_between(plan, 1 - device, device, NULL) * BYTES;
}

Test(hosts, a_limit_takes_slots_of_a_link_until_the_plan_fits)
{
    struct places p = there_and_back();
    weir_plan *whole = compiled(p, .link = gigabit), *least = compiled(p);
    uint64_t most = needs(whole, 0) > needs(whole, 1) ? needs(whole, 0) : needs(whole, 1), base = needs(least, 0);
    cr_assert_geq(most, base + FULL * BYTES);
    for (int part = 1; part < 4; part++) {
        uint64_t bytes = base + (most - base) * (uint64_t)part / 4;
        weir_plan *plan = limited(p, bytes);
        cr_assert_not_null(plan, "%s", weir_error());
        int there = slots_between(plan, 0, 1, NULL), back = slots_between(plan, 1, 0, NULL);
        cr_expect_leq(needs(plan, 0), bytes + 4096, "4 KiB are means and the like");
        cr_expect_leq(needs(plan, 1), bytes + 4096);
        cr_expect_gt(there, FULL * part / 10, "%d in part %d: none of a way loses all", there, part);
        cr_expect_gt(back, FULL * part / 10, "%d in part %d", back, part);
        cr_expect_eq(weir_plan_check(plan), WEIR_OK, "%s", weir_error());
        pulls_the_same(plan, whole);
        weir_plan_free(plan);
    }
    weir_plan *fits = limited(p, most + 2 * 4096 * 64); /* with the means */
    cr_assert_not_null(fits, "%s", weir_error());
    cr_expect_eq(slots_between(fits, 0, 1, NULL), slots_between(whole, 0, 1, NULL), "what fits stays");
    weir_plan_free(fits), weir_plan_free(whole), weir_plan_free(least);
    weir_graph_free(p.graph);
}

/* All of x arrives at a device that has next to nothing of its own. */
Test(hosts, the_smallest_limit_counts_what_arrives)
{
    static const char words[] = "The smallest limit that would do is ";
    struct places p = stream(1);
    cr_assert_null(weir_compile(p.graph, .link = gigabit, .memory = "1"));
    const char *said = strstr(weir_error(), words);
    cr_assert_not_null(said, "%s", weir_error());
    cr_expect_not_null(strstr(weir_error(), " arrive from other hosts"), "%s", weir_error());
    weir_plan *plan = limited(p, strtoull(said + strlen(words), NULL, 10));
    cr_assert_not_null(plan, "%s", weir_error());
    cr_expect_eq(slots_between(plan, 0, 1, NULL), 1);
    weir_plan_free(plan);
    weir_graph_free(p.graph);
}
