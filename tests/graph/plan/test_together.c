/* tests/graph/plan/test_together.c: the order of collectives: what the token game accepts comes to its end under the rule of
 * NCCL (tests/support/together.h) however hosts and queues are interleaved, and what it refuses never does. And whether queues
 * may await collectives (graph/plan/prove/await.h): where it is said that they may, all comes to its end. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/plan/prove/await.h"
#include "tests/support/effort.h"
#include "tests/support/fakes.h"
#include "tests/support/ops.h"
#include "tests/support/random_model.h"
#include "tests/support/sdf.h"
#include "tests/support/together.h"

TestSuite(together, .init = test_ops, .timeout = 300);

enum { SEEDS = 20, STEPS = 3, ITEMS = 4, DEVICES_MAX = 4 };

/* ---- what is held against what ---- */

enum { NEVER, SOMETIMES, ALWAYS };

/* How often a play comes to no end; `why` is the last one's. */
static int stalls(struct together *t, uint32_t steps, char why[TOGETHER_TEXT_BYTES])
{
    int count = 0;
    char said[TOGETHER_TEXT_BYTES];
    why[0] = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++)
        if (!together_play(t, steps, seed, said)) {
            count++;
            memcpy(why, said, sizeof said);
        }
    return count == SEEDS ? ALWAYS : count ? SOMETIMES : NEVER;
}

/* Which collectives are awaited by other queues of their devices. */
enum awaited { NOWHERE, WHERE_IT_MAY, EVERYWHERE };

/* By actor; how many members may not be, in *others. The caller frees it. */
static bool *may_await(const weir_plan *plan, uint32_t *others)
{
    bool *may = calloc(plan->actors_count + 1, sizeof *may);
    cr_assert_not_null(may);
    for (uint32_t q = 0; q < plan->queues_count; q++)
        if (plan->queues[q].kind == PLAN_COLLECTIVE)
            cr_assert_eq(plan_may_await(plan, plan->queues[q].space, may), WEIR_OK, "%s", weir_error());
    *others = 0;
    for (uint32_t m = 0; m < plan->members_count; m++)
        *others += !may[plan->members[m].i];
    return may;
}

static uint32_t may_not(const weir_plan *plan)
{
    uint32_t others;
    free(may_await(plan, &others));
    return others;
}

static int plan_stalls(const weir_plan *plan, uint32_t steps, enum awaited awaited, char why[TOGETHER_TEXT_BYTES])
{
    struct together *t = together_new(plan);
    uint32_t others;
    bool *may = may_await(plan, &others);
    for (uint32_t a = 0; a < plan->actors_count && awaited == EVERYWHERE; a++)
        may[a] = true;
    together_await(t, awaited == NOWHERE ? NULL : may);
    int how_often = stalls(t, steps, why);
    together_free(t);
    free(may);
    return how_often;
}

/* True: it is accepted. The game and the model must agree. */
static bool both_agree(const weir_plan *plan, const char *what)
{
    char why[TOGETHER_TEXT_BYTES], refused[400] = "";
    cr_assert_eq(plan_validate(plan), WEIR_OK, "%s: %s", what, weir_error());
    bool accepted = weir_plan_check(plan) == WEIR_OK;
    if (!accepted)
        snprintf(refused, sizeof refused, "%s", weir_error());
    int how_often = plan_stalls(plan, STEPS, NOWHERE, why);
    cr_assert_eq(how_often, accepted ? NEVER : ALWAYS, "%s: the game: %s; the model: %s, %s", what,
                 accepted ? "accepted" : refused, (const char *[]){"never stalls", "stalls at times", "stalls"}[how_often],
                 why);
    if (accepted)
        cr_assert_eq(plan_stalls(plan, STEPS, WHERE_IT_MAY, why), NEVER, "%s: with awaits: %s", what, why);
    return accepted;
}

/* ---- plans made by hand ---- */

struct hall {
    uint32_t count;
    uint32_t compute[DEVICES_MAX], queue[DEVICES_MAX];
    uint32_t host[DEVICES_MAX], in[DEVICES_MAX], out[DEVICES_MAX]; /* the host beside it, and copies from and to there */
};

static struct hall add_devices(sdf *s, uint32_t count)
{
    struct hall h = {.count = count};
    for (uint32_t d = 0; d < count; d++) {
        h.compute[d] = sdf_device_of(s, WEIR_FAKE, d, PLAN_COMPUTE);
        h.queue[d] = sdf_queue(s, h.compute[d], PLAN_COLLECTIVE);
        h.host[d] = sdf_device_of(s, WEIR_PINNED, d, PLAN_COMPUTE);
        h.in[d] = sdf_queue(s, h.compute[d], PLAN_COPY_IN);
        h.out[d] = sdf_queue(s, h.compute[d], PLAN_COPY_OUT);
    }
    return h;
}

/* The value of a device, as the host has it; and the host's value, as a device has it. */
static uint32_t to_host(sdf *s, const struct hall *h, uint32_t device, uint32_t reads, uint32_t fires, uint32_t hold)
{
    uint32_t actor = sdf_actor(s, h->out[device], "out", .kernel = "copy", .fires = fires);
    sdf_port(s, actor, reads, .hold = hold);
    return sdf_regst(s, actor, .items = ITEMS, .lies = 1 + h->host[device]);
}

static uint32_t to_device(sdf *s, const struct hall *h, uint32_t device, uint32_t reads, uint32_t fires, uint32_t slots)
{
    uint32_t relay = sdf_actor(s, h->host[device], "relay", .kernel = "test_sum", .fires = fires);
    sdf_port(s, relay, reads);
    uint32_t actor = sdf_actor(s, h->in[device], "in", .kernel = "copy", .fires = fires);
    sdf_port(s, actor, sdf_regst(s, relay, .items = ITEMS));
    return sdf_regst(s, actor, .items = ITEMS, .slots = slots);
}

/* A kernel that reads nothing, or one thing, and writes one. */
static uint32_t compute(sdf *s, const struct hall *h, uint32_t device, uint32_t reads)
{
    uint32_t actor = sdf_actor(s, h->compute[device], "compute", .kernel = "test_sum");
    if (reads != PLAN_NONE)
        sdf_port(s, actor, reads);
    return sdf_regst(s, actor, .items = ITEMS);
}

/* Each member gives what it reads first to the next one. */
static uint32_t ring(sdf *s, const uint32_t *actors, uint32_t count)
{
    sdf_move moves[DEVICES_MAX];
    for (uint32_t m = 0; m < count; m++)
        moves[m] = (sdf_move){.from = m, .to = (m + 1) % count};
    return sdf_collective(s, count == 2 ? PLAN_ALL_GATHER : PLAN_ALL_TO_ALL, actors, count, moves, count);
}

/* Each device d in `mask` gives regsts[d], which is then set to the register that it takes. Returns the collective. */
static uint32_t together(sdf *s, const struct hall *h, uint32_t mask, uint32_t *regsts, uint32_t fires, uint32_t hold,
                         uint32_t slots)
{
    uint32_t actors[DEVICES_MAX], count = 0;
    for (uint32_t d = 0; d < h->count; d++)
        if (mask >> d & 1) {
            actors[count] = sdf_actor(s, h->queue[d], "meet", .kernel = "collective", .fires = fires);
            sdf_port(s, actors[count], regsts[d], .hold = hold);
            regsts[d] = sdf_regst(s, actors[count++], .items = ITEMS, .slots = slots);
        }
    return ring(s, actors, count);
}

/* Both devices are in both collectives, which nothing orders. The second group has a third device, too. */
static weir_plan *two_groups(void)
{
    sdf *s = sdf_new("two", 1);
    struct hall h = add_devices(s, 3);
    uint32_t a[3], b[3];
    for (uint32_t d = 0; d < 3; d++) {
        a[d] = compute(s, &h, d, PLAN_NONE);
        b[d] = compute(s, &h, d, PLAN_NONE);
    }
    together(s, &h, 3, a, 1, 1, 1);
    together(s, &h, 7, b, 1, 1, 1);
    for (uint32_t d = 0; d < 3; d++)
        compute(s, &h, d, b[d]);
    weir_plan *plan = sdf_plan(s);
    cr_assert_eq(plan_validate(plan), WEIR_OK, "%s", weir_error());
    cr_assert_eq(plan->collectives[0].group + 1, plan->collectives[1].group);
    return plan;
}

static uint32_t queue_of(const weir_plan *plan, uint32_t device)
{
    uint32_t q = 0;
    while (plan->queues[q].kind != PLAN_COLLECTIVE || plan->spaces[plan->queues[q].space.i].index != device)
        q++;
    return q;
}

Test(together, two_groups_in_orders_that_cross_stall)
{
    char why[TOGETHER_TEXT_BYTES];
    weir_plan *plan = two_groups();
    struct together *t = together_new(plan);
    struct together_order *order = together_order(t, queue_of(plan, 0));
    cr_assert_eq(order->count, 2);
    order->collectives[0] = 1;
    order->collectives[1] = 0;
    cr_expect_eq(stalls(t, 1, why), ALWAYS);
    cr_expect(strstr(why, "fake:0 is at collectives[1]") && strstr(why, "fake:1 is at collectives[0]"), "%s", why);
    together_free(t);
    weir_plan_free(plan);
}

Test(together, two_groups_in_one_order_come_to_their_end)
{
    weir_plan *plan = two_groups();
    for (uint32_t first = 0; first < 2; first++) {
        plan->turns[0].i = first;
        plan->turns[1].i = 1 - first;
        cr_expect(both_agree(plan, "two groups"));
    }
    weir_plan_free(plan);
}

/* The second one gives what the first one took. */
Test(together, an_order_against_what_is_read_stalls)
{
    sdf *s = sdf_new("chain", 1);
    struct hall h = add_devices(s, 2);
    uint32_t regsts[2] = {compute(s, &h, 0, PLAN_NONE), compute(s, &h, 1, PLAN_NONE)};
    together(s, &h, 3, regsts, 1, 1, 1);
    regsts[1] = compute(s, &h, 1, regsts[1]);
    together(s, &h, 3, regsts, 1, 1, 1);
    weir_plan *plan = sdf_plan(s);
    cr_expect(both_agree(plan, "in order"));
    plan->turns[0].i = 1;
    plan->turns[1].i = 0;
    cr_expect_not(both_agree(plan, "against it"));
    cr_expect(strstr(weir_error(), "collective"), "%s", weir_error());
    weir_plan_free(plan);
}

/* Each micro-batch is given by the first one and then by the second: as many of the first may come before one of the second
 * as what lies between them has slots. */
Test(together, an_order_may_go_ahead_as_far_as_there_are_slots)
{
    for (uint32_t slots = 1; slots <= 3; slots++)
        for (uint32_t ahead = 1; ahead <= 4; ahead++) {
            char what[60];
            sdf *s = sdf_new("ahead", 4);
            struct hall h = add_devices(s, 2);
            uint32_t regsts[2];
            for (uint32_t d = 0; d < 2; d++)
                regsts[d] = sdf_regst(s, sdf_actor(s, h.compute[d], "source", .kernel = "test_sum", .fires = 4), .items = ITEMS);
            together(s, &h, 3, regsts, 4, 1, slots);
            together(s, &h, 3, regsts, 4, 1, 1);
            weir_plan *plan = sdf_plan(s);
            for (uint32_t t = 0, begun = 0, ended = 0; t < 8; t++) {
                bool more = begun < 4 && begun - ended < ahead;
                plan->turns[t].i = !more;
                begun += more;
                ended += !more;
            }
            snprintf(what, sizeof what, "%u ahead, %u slots", ahead, slots);
            cr_expect_eq(both_agree(plan, what), ahead <= slots, "%s", what);
            weir_plan_free(plan);
        }
}

/* The second device gives what a kernel of the first one makes, by way of the host. That kernel needs nothing of the
 * collective, and may be launched behind one that does. */
Test(together, a_queue_does_not_await_a_collective_that_needs_what_is_launched_behind)
{
    char why[TOGETHER_TEXT_BYTES];
    sdf *s = sdf_new("back", 1);
    struct hall h = add_devices(s, 2);
    uint32_t regsts[2] = {compute(s, &h, 0, PLAN_NONE), PLAN_NONE};
    uint32_t taken = sdf_actor(s, h.compute[0], "taken", .kernel = "test_sum"), behind = compute(s, &h, 0, PLAN_NONE);
    regsts[1] = to_device(s, &h, 1, to_host(s, &h, 0, behind, 1, 1), 1, 1);
    together(s, &h, 3, regsts, 1, 1, 1);
    sdf_port(s, taken, regsts[0]);
    sdf_regst(s, taken, .items = ITEMS);
    weir_plan *plan = sdf_plan(s);
    cr_expect(both_agree(plan, "round the back"));
    cr_expect_eq(may_not(plan), 1, "nobody needs the second device's kernels");
    cr_expect_eq(plan_stalls(plan, STEPS, EVERYWHERE, why), SOMETIMES);
    weir_plan_free(plan);
}

/* ---- plans drawn at random ---- */

struct value {
    uint32_t regst;
    bool per_micro; /* made once a micro-batch, not once a step */
};

struct drawing {
    sdf *s;
    struct hall hall;
    unsigned seed;
    uint32_t micro;
    struct value values[DEVICES_MAX][24];
    uint32_t count[DEVICES_MAX];
};

static uint32_t draw(struct drawing *x, uint32_t limit)
{
    return (uint32_t)rand_r(&x->seed) % limit;
}

static uint32_t fires_of(const struct drawing *x, bool per_micro)
{
    return per_micro ? x->micro : 1;
}

static void add_value(struct drawing *x, uint32_t device, uint32_t regst, bool per_micro)
{
    x->values[device][x->count[device]++] = (struct value){regst, per_micro};
}

/* One that an actor can read which fires once a micro-batch, or once a step. NULL: there is none. New ones more often. */
static const struct value *draw_value(struct drawing *x, uint32_t device, bool per_micro)
{
    for (int tries = 0; tries < 6; tries++) {
        uint32_t one = draw(x, x->count[device]), other = draw(x, x->count[device]);
        const struct value *value = &x->values[device][one > other ? one : other];
        if (per_micro || !value->per_micro)
            return value;
    }
    return NULL;
}

/* Reads one or two values; makes one. */
static void draw_compute(struct drawing *x, uint32_t device)
{
    bool per_micro = draw(x, 2), sums = per_micro && !draw(x, 4);
    uint32_t actor = sdf_actor(x->s, x->hall.compute[device], "compute", .kernel = "test_sum",
                               .fires = fires_of(x, per_micro), .accumulate = sums && x->micro > 1);
    const struct value *read = NULL;
    for (uint32_t i = 0; i <= draw(x, 2) && x->count[device]; i++) {
        const struct value *value = draw_value(x, device, per_micro);
        if (value && value != read)
            sdf_port(x->s, actor, value->regst, .hold = per_micro && !value->per_micro ? x->micro : 1);
        read = value ? value : read;
    }
    add_value(x, device, sdf_regst(x->s, actor, .items = ITEMS, .slots = 1 + draw(x, 2), .fill = sums ? x->micro : 1),
              per_micro && !sums);
}

/* Two or more devices give a value each, and take one. */
static void draw_collective(struct drawing *x)
{
    uint32_t actors[DEVICES_MAX], count = 0, mask = 0;
    bool per_micro = draw(x, 2);
    const struct value *gives[DEVICES_MAX] = {0};
    while (__builtin_popcount(mask) < 2)
        mask = draw(x, 1u << x->hall.count);
    for (uint32_t d = 0; d < x->hall.count; d++)
        if (mask >> d & 1 && !(gives[d] = draw_value(x, d, per_micro)))
            return;
    for (uint32_t d = 0; d < x->hall.count; d++) {
        if (!gives[d])
            continue;
        actors[count] = sdf_actor(x->s, x->hall.queue[d], "meet", .kernel = "collective", .fires = fires_of(x, per_micro));
        sdf_port(x->s, actors[count], gives[d]->regst, .hold = per_micro && !gives[d]->per_micro ? x->micro : 1);
        add_value(x, d, sdf_regst(x->s, actors[count++], .items = ITEMS, .slots = 1 + draw(x, 2)), per_micro);
    }
    ring(x->s, actors, count);
}

/* A value of a device goes by way of the host to another one, or to several one after the other. */
static void draw_relay(struct drawing *x)
{
    uint32_t from = draw(x, x->hall.count);
    bool per_micro = draw(x, 2);
    const struct value *value = draw_value(x, from, per_micro);
    if (!value)
        return;
    uint32_t fires = fires_of(x, per_micro), hold = per_micro && !value->per_micro ? x->micro : 1;
    uint32_t host = to_host(x->s, &x->hall, from, value->regst, fires, hold);
    for (uint32_t i = draw(x, 2) + 1; i--;) {
        uint32_t to = draw(x, x->hall.count);
        add_value(x, to, to_device(x->s, &x->hall, to, host, fires, 1 + draw(x, 2)), per_micro);
    }
}

/* Turns in which a step can be played, if there are any; or with two of them, or all, in other places. */
static void draw_turns(struct drawing *x, weir_plan *plan)
{
    uint32_t how = draw(x, 4);
    together_draw_turns(plan, x->seed, plan->turns);
    for (uint32_t i = plan->turns_count; i-- > 1 && how > 1;) {
        uint32_t a = how == 2 ? draw(x, plan->turns_count) : i, b = draw(x, how == 2 ? plan->turns_count : i + 1);
        plan_collective_id was = plan->turns[a];
        plan->turns[a] = plan->turns[b];
        plan->turns[b] = was;
        if (how == 2)
            break;
    }
}

static weir_plan *draw_plan(unsigned seed, bool relays)
{
    struct drawing x = {.s = sdf_new("drawn", 1 + seed % 3), .seed = seed, .micro = 1 + seed % 3};
    x.hall = add_devices(x.s, 2 + draw(&x, DEVICES_MAX - 1));
    for (uint32_t d = 0; d < x.hall.count; d++)
        draw_compute(&x, d);
    for (uint32_t i = 3 + draw(&x, 12); i--;)
        if (draw(&x, 2))
            draw_compute(&x, draw(&x, x.hall.count));
        else if (relays && draw(&x, 2))
            draw_relay(&x);
        else
            draw_collective(&x);
    weir_plan *plan = sdf_plan(x.s);
    draw_turns(&x, plan);
    return plan;
}

Test(together, random_plans_end_exactly_when_the_game_accepts_them)
{
    enum { PLANS = EFFORT(FULL(1500, 500), 200, 100) };
    int accepted = 0, refused = 0, groups = 0;
    for (unsigned seed = 1; seed <= PLANS; seed++) {
        char what[40];
        weir_plan *plan = draw_plan(seed, seed % 2);
        snprintf(what, sizeof what, "plan %u", seed);
        if (plan->turns_count > 1) {
            bool accepts = both_agree(plan, what);
            accepted += accepts;
            refused += !accepts;
            for (uint32_t c = 1; c < plan->collectives_count; c++)
                if (plan->collectives[c].group != plan->collectives[0].group) {
                    groups++;
                    break;
                }
        }
        weir_plan_free(plan);
    }
    printf("%d accepted, %d refused, %d of several groups\n", accepted, refused, groups);
    cr_expect_gt(accepted, PLANS / 4);
    cr_expect_gt(refused, PLANS / 8);
    cr_expect_gt(groups, PLANS / 4);
}

/* That some of those stall which may not shows that the rule is one; that not all do, that it asks for more than it must. */
Test(together, random_plans_end_with_awaits_where_they_may_and_stall_elsewhere)
{
    enum { PLANS = EFFORT(FULL(1500, 500), 200, 100) };
    int all = 0, not_all = 0, stalled = 0;
    for (unsigned seed = 1; seed <= PLANS; seed++) {
        char why[TOGETHER_TEXT_BYTES];
        weir_plan *plan = draw_plan(1000 + seed, true);
        if (plan->turns_count && weir_plan_check(plan) == WEIR_OK) {
            bool safe = !may_not(plan);
            int how_often = plan_stalls(plan, STEPS, EVERYWHERE, why);
            cr_assert(!safe || how_often == NEVER, "plan %u: %s", seed, why);
            all += safe;
            not_all += !safe;
            stalled += how_often != NEVER;
        }
        weir_plan_free(plan);
    }
    printf("in %d all may be awaited, in %d not; of these %d stall if they are\n", all, not_all, stalled);
    cr_expect_gt(all, PLANS / 8);
    cr_expect_gt(stalled, EFFORT(PLANS / 100, 1, 0));
}

/* ---- compiled plans ---- */

static void swap_turns(weir_plan *plan, uint32_t a, uint32_t b)
{
    plan_collective_id was = plan->turns[a];
    plan->turns[a] = plan->turns[b];
    plan->turns[b] = was;
}

static weir_plan *compile_model(uint64_t seed)
{
    weir_graph *g = random_model(seed / 3, seed + 1);
    fakes_put(g, fakes_all);
    weir_plan *plan = weir_compile(g, .micro_batches = random_model_micro(seed / 3), .seed = seed);
    cr_assert_not_null(plan, "seed %lu: %s", (unsigned long)seed, weir_error());
    weir_graph_free(g);
    return plan;
}

/* Also with two turns in each other's place, next to each other or far apart: against what is read, or not. */
Test(together, compiled_plans_come_to_their_end)
{
    enum { MODELS = EFFORT(12, 4, 2), SWAPS = 4 };
    unsigned random = 1;
    int with_turns = 0, accepted = 0, refused = 0;
    uint32_t members = 0, others = 0;
    mesh_takes_fakes = true;
    for (uint64_t seed = 0; seed < MODELS; seed++) {
        char what[40];
        weir_plan *plan = compile_model(seed);
        uint32_t turns = plan->turns_count;
        snprintf(what, sizeof what, "model %lu", (unsigned long)seed);
        cr_expect(both_agree(plan, what));
        members += plan->members_count;
        others += may_not(plan);
        with_turns += turns > 1;
        for (int i = 0; i < SWAPS && turns > 1; i++) {
            uint32_t a = (uint32_t)rand_r(&random) % turns, b = i % 2 ? (uint32_t)rand_r(&random) % turns : (a + 1) % turns;
            swap_turns(plan, a, b);
            bool accepts = both_agree(plan, what);
            accepted += accepts;
            refused += !accepts;
            swap_turns(plan, a, b);
        }
        weir_plan_free(plan);
    }
    printf("%d with turns; swapped: %d accepted, %d refused\n", with_turns, accepted, refused);
    printf("of %u members %u may not be awaited\n", members, others);
    cr_expect_lt(others, members / 5);
    cr_expect_gt(with_turns, MODELS / 3);
    cr_expect_gt(accepted, 0);
    cr_expect_gt(refused, MODELS / 3);
}

/* Every layout of up to four devices, with micro-batches, and with gathered weights. */
Test(together, a_gpt_may_await_all_of_its_collectives)
{
    for (int d = 1; d <= 4; d++)
        for (int t = 1; d * t <= 4; t++)
            for (int p = 1; d * t * p <= 4; p++)
                for (int zero = 0; zero <= (d > 1); zero++) {
                    weir_plan *plan = fakes_gpt((layout){d, t, p, p > 1 ? 4 : 1 + zero, zero}, fakes_all, (weir_compile_opts){0});
                    cr_assert_not_null(plan, "%d x %d x %d: %s", d, t, p, weir_error());
                    cr_expect_eq(may_not(plan), 0, "%d x %d x %d: %u of %u members may not be awaited", d, t, p, may_not(plan),
                                 plan->members_count);
                    weir_plan_free(plan);
                }
}
