/* The token game: hand-made plans that are live and dead, what it says about the dead ones, and random plans against a
 * slow player that shares nothing with it. */
#include "graph/plan/prove/check.h"
#include "graph/base/error.h"
#include "graph/plan/form/build.h"
#include "tests/support/sample_plan.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

/* ---- plans of bare actors: no tensors, no kernels, one queue ---- */

enum { ACTORS_MAX = 8, EDGES_MAX = 16 };

typedef struct edge {
    uint32_t from, to; /* from PLAN_NONE: a constant */
    uint32_t slots; /* 0: see net_plan */
    uint32_t fill, hold, initial;
    uint32_t fixed;
} edge;

typedef struct net {
    uint32_t micro;
    uint32_t actors, edges;
    uint32_t fires[ACTORS_MAX];
    edge edge[EDGES_MAX];
} net;

static uint32_t or_one(uint32_t value)
{
    return value ? value : 1;
}

static void add_regsts(plan_builder *builder, const net *of, uint32_t a, plan_regst_id *regst)
{
    weir_plan *plan = plan_builder_plan(builder);
    for (uint32_t e = 0; e < of->edges; e++) {
        const edge *x = &of->edge[e];
        if (x->from != a)
            continue;
        char name[32];
        snprintf(name, sizeof name, "e%u", e);
        plan_tensor tensor = {.name = plan_add_text(builder, name), .home = PLAN_IN_REGST, .owner = plan->regsts_count,
                              .dtype = WEIR_F32};
        plan_regst made = {.producer = {a}, .slots = x->slots, .fill = or_one(x->fill), .initial = x->initial,
                           .fixed = x->fixed, .offset = plan->spaces[0].bytes, .slot_bytes = PLAN_ALIGN,
                           .tensors = {plan_add_tensors(builder, tensor), 1}};
        plan->spaces[0].bytes += PLAN_ALIGN * (uint64_t)x->slots;
        regst[e].i = plan_add_regsts(builder, made);
    }
}

/* Every edge is a register with one reader, but for those with 0 slots: they are one more reader of the register of
 * the edge before. */
static weir_plan *net_plan(const net *of)
{
    plan_builder *builder = plan_builder_new();
    weir_plan *plan = plan_builder_plan(builder);
    plan_regst_id regst[EDGES_MAX];
    net own = *of;
    plan->micro_batches = or_one(of->micro);
    plan_add_programs(builder, (plan_program){plan_add_text(builder, "main")});
    plan_add_spaces(builder, (plan_space){.name = plan_add_text(builder, "cpu:0")});
    plan_add_queues(builder, (plan_queue){.kind = PLAN_COMPUTE, .name = plan_add_text(builder, "cpu:0")});
    for (uint32_t e = 0; e < of->edges; e++)
        if (own.edge[e].slots == 0)
            own.edge[e].from = ACTORS_MAX + 1; /* has no register of its own */
    add_regsts(builder, &own, PLAN_NONE, regst);
    for (uint32_t a = 0; a < of->actors; a++) {
        char name[2] = {(char)('a' + a), '\0'};
        plan_actor actor = {.name = plan_add_text(builder, name), .fires = or_one(of->fires[a]), .priority = a};
        actor.regsts.first = plan->regsts_count;
        add_regsts(builder, &own, a, regst);
        actor.regsts.count = plan->regsts_count - actor.regsts.first;
        plan_add_actors(builder, actor);
    }
    for (uint32_t e = 1; e < of->edges; e++)
        if (own.edge[e].slots == 0)
            regst[e] = regst[e - 1];
    for (uint32_t a = 0; a < of->actors; a++) {
        plan->actors[a].ports.first = plan->ports_count;
        for (uint32_t e = 0; e < of->edges; e++)
            if (of->edge[e].to == a)
                plan_add_ports(builder, (plan_port){{a}, regst[e], or_one(of->edge[e].hold)});
        plan->actors[a].ports.count = plan->ports_count - plan->actors[a].ports.first;
    }
    plan = plan_builder_finish(builder, NULL);
    cr_assert_not_null(plan, "%s", weir_error());
    return plan;
}

static check_result play(const net *of)
{
    check_result result;
    weir_plan *plan = net_plan(of);
    cr_assert_eq(plan_validate(plan), WEIR_OK, "%s", weir_error());
    cr_assert_eq(check_play(plan, &result), WEIR_OK);
    cr_expect_eq(weir_plan_check(plan), result.live ? WEIR_OK : WEIR_E_LIVE);
    weir_plan_free(plan);
    return result;
}

#define assert_says(result, part) cr_assert(strstr((result).text, part), "'%s' lacks '%s'", (result).text, part)

/* ---- by hand ---- */

Test(check, a_chain_completes_and_every_firing_is_counted, .timeout = 120)
{
    check_result r = play(&(net){.micro = 5, .actors = 3, .fires = {5, 5, 5}, .edges = 2,
                                 .edge = {{0, 1, .slots = 1}, {1, 2, .slots = 1}}});
    cr_expect(r.live);
    cr_expect_eq(r.firings, 15);
    cr_expect_str_eq(r.text, "");
}

Test(check, a_parameter_goes_round_once_a_step, .timeout = 120)
{
    /* a: forward, reads the parameter of b for 4 firings; fills a gradient with 4 firings */
    net parameter = {.micro = 4, .actors = 2, .fires = {4, 1}, .edges = 2,
                     .edge = {{0, 1, .slots = 1, .fill = 4}, {1, 0, .slots = 1, .hold = 4, .initial = 1}}};
    check_result r = play(&parameter);
    cr_expect(r.live, "%s", r.text);
    cr_expect_eq(r.firings, 5);
}

Test(check, a_circle_in_which_nothing_starts_full_is_dead, .timeout = 120)
{
    check_result r = play(&(net){.actors = 2, .edges = 2, .edge = {{0, 1, .slots = 4}, {1, 0, .slots = 4}}});
    cr_expect_not(r.live);
    cr_expect_eq(r.short_of.i, PLAN_NONE);
    cr_expect_eq(r.slots_needed, 0);
    assert_says(r, "a waits for b, b waits for a: none of them can be the first");
}

Test(check, an_actor_that_reads_itself_needs_a_slot_to_start_with, .timeout = 120)
{
    cr_expect_not(play(&(net){.actors = 1, .edges = 1, .edge = {{0, 0, .slots = 2}}}).live);
    cr_expect(play(&(net){.actors = 1, .edges = 1, .edge = {{0, 0, .slots = 2, .initial = 1}}}).live);
    check_result r = play(&(net){.actors = 1, .edges = 1, .edge = {{0, 0, .slots = 1, .initial = 1}}});
    cr_expect_not(r.live);
    cr_expect_eq(r.slots_needed, 2);
    assert_says(r, "a waits for a free slot of e0 (1 slot; read by a): register e0 needs at least 2 slots");
}

/* a's output is needed again by c (edge 1), after b has collected 3 of them (edge 0 is held, edge 2 comes once). */
static net saved_activation(uint32_t slots)
{
    return (net){.micro = 3, .actors = 3, .fires = {3, 3, 1}, .edges = 3,
                 .edge = {{0, 1, .slots = 1}, {0, 2, .slots = slots}, {1, 2, .slots = 1, .fill = 3}}};
}

Test(check, tells_how_many_slots_a_saved_activation_needs, .timeout = 120)
{
    /* c fires 3 times but only after all 3 of b: so a must be able to keep 3. */
    net of = saved_activation(1);
    of.fires[2] = 3;
    of.edge[2].hold = 3;
    check_result r = play(&of);
    cr_expect_not(r.live);
    cr_expect_eq(r.short_of.i, 1);
    cr_expect_eq(r.slots_needed, 3);
    assert_says(r, "a waits for a free slot of e1 (1 slot; read by c), c waits for b, b waits for a: "
                   "register e1 needs at least 3 slots");
    for (uint32_t slots = 1; slots <= 5; slots++) {
        of.edge[1].slots = slots;
        cr_expect_eq(play(&of).live, slots >= 3, "%u slots", slots);
    }
}

Test(check, says_that_a_register_was_fixed_by_the_program, .timeout = 120)
{
    net of = saved_activation(2);
    of.fires[2] = 3;
    of.edge[2].hold = 3;
    of.edge[1].fixed = 1;
    check_result r = play(&of);
    cr_expect_eq(r.slots_needed, 3);
    assert_says(r, "(the program fixed it at 2)");
}

Test(check, when_two_registers_are_short_names_one_and_no_number, .timeout = 120)
{
    /* Two saved activations, of a for d and of b for d: raising one leaves the other. */
    net of = {.micro = 4, .actors = 4, .fires = {4, 4, 4, 4}, .edges = 5,
              .edge = {{0, 1, .slots = 1}, {1, 2, .slots = 1}, {0, 3, .slots = 1}, {1, 3, .slots = 1},
                       {2, 3, .slots = 1, .fill = 4, .hold = 4}}};
    check_result r = play(&of);
    cr_expect_not(r.live);
    cr_expect_neq(r.short_of.i, PLAN_NONE);
    cr_expect_eq(r.slots_needed, 0);
    assert_says(r, "needs more than 1 slot");
}

Test(check, a_slot_is_free_only_when_its_slowest_reader_lets_go, .timeout = 120)
{
    /* b and c read the same register; c waits for all of b. */
    net of = {.micro = 3, .actors = 3, .fires = {3, 3, 3}, .edges = 3,
              .edge = {{0, 1, .slots = 2}, {0, 2, .slots = 0}, {1, 2, .slots = 1, .fill = 3, .hold = 3}}};
    check_result r = play(&of);
    cr_expect_not(r.live);
    cr_expect_eq(r.slots_needed, 3);
    assert_says(r, "read by c");
    of.edge[0].slots = 3;
    cr_expect(play(&of).live);
}

Test(check, constants_are_read_for_ever, .timeout = 120)
{
    check_result r = play(&(net){.micro = 9, .actors = 2, .fires = {9, 9}, .edges = 2,
                                 .edge = {{PLAN_NONE, 0, .slots = 1, .initial = 1}, {0, 1, .slots = 2}}});
    cr_expect(r.live, "%s", r.text);
    cr_expect_eq(r.firings, 18);
}

Test(check, a_register_that_nobody_reads_never_fills_up, .timeout = 120)
{
    check_result r = play(&(net){.micro = 6, .actors = 1, .fires = {6}, .edges = 1,
                                 .edge = {{0, ACTORS_MAX, .slots = 1, .fill = 2}}});
    cr_expect(r.live, "%s", r.text);
}

Test(check, weir_plan_check_explains_and_a_dead_file_is_not_loaded, .timeout = 120)
{
    net of = {.actors = 2, .edges = 2, .edge = {{0, 1, .slots = 1}, {1, 0, .slots = 1}}};
    weir_plan *plan = net_plan(&of);
    char path[] = "/tmp/weir-test-check-XXXXXX";
    cr_assert(mkstemp(path) >= 0);
    cr_expect_eq(weir_plan_check(plan), WEIR_E_LIVE);
    cr_expect(strstr(weir_error(), "a waits for b"), "%s", weir_error());
    cr_expect_eq(weir_plan_save(plan, path), WEIR_OK);
    cr_expect_null(weir_plan_load(path));
    cr_expect(strstr(weir_error(), path) == weir_error() && strstr(weir_error(), ": not live: "), "%s", weir_error());
    remove(path);
    weir_plan_free(plan);
}

Test(check, the_sample_plan_is_live_with_any_number_of_slots, .timeout = 120)
{
    for (uint32_t micro = 1; micro <= 5; micro++)
        for (uint32_t slots = 1; slots <= 3; slots++) {
            weir_plan *plan = sample_plan(micro, slots);
            cr_expect_eq(weir_plan_check(plan), WEIR_OK, "%s", weir_error());
            weir_plan_free(plan);
        }
}

/* ---- against a slow player ---- */

/* Slots as they are: each has a state of its own, and every actor is tried in random order until none can fire. */
enum { SLOTS_MAX = 8 };
typedef struct slow {
    const net *of;
    uint32_t written[EDGES_MAX], read[EDGES_MAX]; /* firings into and out of the edge */
    uint32_t fired[ACTORS_MAX];
} slow;

static uint32_t published(const slow *s, uint32_t e)
{
    return s->of->edge[e].initial + s->written[e] / or_one(s->of->edge[e].fill);
}

static uint32_t freed(const slow *s, uint32_t e)
{
    return s->read[e] / or_one(s->of->edge[e].hold);
}

static bool slow_can_fire(const slow *s, uint32_t a)
{
    if (s->fired[a] == or_one(s->of->fires[a]))
        return false;
    for (uint32_t e = 0; e < s->of->edges; e++) {
        const edge *x = &s->of->edge[e];
        bool filling = s->written[e] % or_one(x->fill) != 0;
        if (x->to == a && published(s, e) <= freed(s, e))
            return false;
        if (x->from == a && !filling && published(s, e) - freed(s, e) >= x->slots)
            return false;
    }
    return true;
}

static void slow_fire(slow *s, uint32_t a)
{
    s->fired[a]++;
    for (uint32_t e = 0; e < s->of->edges; e++) {
        s->read[e] += s->of->edge[e].to == a;
        s->written[e] += s->of->edge[e].from == a;
    }
}

static bool slow_play(const net *of)
{
    slow s = {.of = of};
    uint32_t idle = 0;
    while (idle < 20 * of->actors) {
        uint32_t a = (uint32_t)rand() % of->actors;
        idle++;
        if (slow_can_fire(&s, a)) {
            slow_fire(&s, a);
            idle = 0;
        }
    }
    for (uint32_t a = 0; a < of->actors; a++)
        if (slow_can_fire(&s, a))
            return slow_play(of); /* unlucky: was not tried */
    for (uint32_t a = 0; a < of->actors; a++)
        if (s.fired[a] < or_one(of->fires[a]))
            return false;
    return true;
}

static uint32_t random_divisor(uint32_t of)
{
    uint32_t divisor;
    do
        divisor = 1 + (uint32_t)rand() % of;
    while (of % divisor);
    return divisor;
}

/* An edge whose two rates agree: published a step = fires / fill = fires / hold. */
static edge random_edge(const net *of)
{
    uint32_t from = (uint32_t)rand() % of->actors, to = (uint32_t)rand() % of->actors;
    uint32_t published_count = of->fires[from] < of->fires[to] ? random_divisor(of->fires[from])
                                                               : random_divisor(of->fires[to]);
    edge x = {from, to, .slots = 1 + (uint32_t)rand() % 3, .fill = of->fires[from] / published_count,
              .hold = of->fires[to] / published_count};
    x.initial = rand() % 3 == 0 || from >= to ? (uint32_t)rand() % (x.slots + 1) : 0;
    return x;
}

static net random_net(void)
{
    static const uint32_t micros[] = {1, 2, 3, 4, 6};
    net of = {.micro = micros[rand() % 5], .actors = 1 + (uint32_t)rand() % ACTORS_MAX};
    for (uint32_t a = 0; a < of.actors; a++)
        of.fires[a] = rand() % 4 ? of.micro : 1;
    of.edges = (uint32_t)rand() % (of.actors + 4);
    for (uint32_t e = 0; e < of.edges; e++)
        of.edge[e] = random_edge(&of);
    return of;
}

Test(check, random_plans_are_live_exactly_when_a_slow_player_finishes_them, .timeout = 60)
{
    enum { SEED = 20240917, ROUNDS = 3000 };
    uint32_t live = 0, raised = 0;
    srand(SEED);
    cr_log_info("seed %d", SEED);
    for (int round = 0; round < ROUNDS; round++) {
        net of = random_net();
        check_result r = play(&of);
        cr_assert_eq(r.live, slow_play(&of), "seed %d, round %d: %s", SEED, round, r.text);
        cr_assert_eq(r.live, r.text[0] == '\0');
        live += r.live;
        if (!r.slots_needed)
            continue;
        /* The advised number of slots is right, and the least. Registers are numbered by producer: find the edge. */
        uint32_t e = 0;
        char name[32];
        for (; e < of.edges; e++) {
            snprintf(name, sizeof name, "register e%u ", e);
            if (strstr(r.text, name))
                break;
        }
        cr_assert_lt(e, of.edges, "%s", r.text);
        of.edge[e].slots = r.slots_needed;
        cr_assert(slow_play(&of), "seed %d, round %d: %s", SEED, round, r.text);
        of.edge[e].slots = r.slots_needed - 1;
        cr_assert_not(slow_play(&of), "seed %d, round %d: %s", SEED, round, r.text);
        raised++;
    }
    cr_assert(live > ROUNDS / 10 && live < ROUNDS * 9 / 10, "%u live", live);
    cr_assert_gt(raised, 50);
}
