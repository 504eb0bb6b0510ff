/* tests/graph/plan/test_arrivals.c: what comes from another rank, and where it may come to.
 *
 * All orders of kernels that credits allow are tried with it on a map of the bytes; and where it is not proven, some order
 * shows why. test_window.c, poisoned, and the tests of sessions check the ranks' results.
 */
#include "graph/compile/actors/passes.h"
#include "graph/compile/ir/ir.h"
#include "graph/plan/lives/arrivals.h"
#include "graph/plan/lives/window.h"
#include "tests/support/byte_game.h"
#include "tests/support/effort.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(arrivals, .timeout = 120);

enum { GAMES = EFFORT(60, 20, 5), LARGE = 256, ROWS = 384 };

typedef struct found {
    arrival *list; /* owned: of all ports on registers of other spaces */
    uint32_t count, proven;
} found;

static uint32_t space_of(const weir_plan *plan, uint32_t port)
{
    return plan->queues[plan->actors[plan->ports[port].actor.i].queue.i].space.i;
}

static found find(const weir_plan *plan)
{
    found f = {.list = calloc(plan->ports_count + (size_t)1, sizeof *f.list)};
    for (uint32_t p = 0; p < plan->ports_count; p++)
        if (plan->regsts[plan->ports[p].regst.i].space.i != space_of(plan, p))
            f.list[f.count++].port = p;
    cr_assert_eq(arrivals_prove(plan, f.list, f.count), WEIR_OK, "%s", weir_error());
    for (uint32_t i = 0; i < f.count; i++)
        f.proven += f.list[i].proven;
    return f;
}

/* Marks as proven all arrivals that lie in the gather's output by their kind. Returns how many. */
static uint32_t claim_all(const weir_plan *plan, found *f)
{
    uint32_t claimed = 0;
    for (uint32_t i = 0; i < f->count; i++) {
        const plan_port *port = &plan->ports[f->list[i].port];
        window w;
        if (f->list[i].proven || !window_comes(plan, port->regst, port->actor, &w))
            continue;
        f->list[i].proven = true;
        f->list[i].within = w.tensor;
        f->list[i].space.i = space_of(plan, f->list[i].port);
        f->list[i].place = window_place(plan, &w);
        claimed++;
    }
    return claimed;
}

static weir_plan *compiled(weir_graph *g, int micro)
{
    group_own_bytes = 64;
    weir_plan *plan = weir_compile(g, .micro_batches = micro);
    cr_assert_not_null(plan, "%s", weir_error());
    weir_graph_free(g);
    return plan;
}

/* A sum for all, step by step. With `loop`, what all have of it goes into a state that the next terms read. */
static weir_plan *summed(int devices, bool loop)
{
    char names[24];
    snprintf(names, sizeof names, "cpu:0-%d", devices - 1);
    weir_graph *g = weir_graph_new("sum");
    weir_mesh_new(g, names);
    weir_tensor *x = weir_input(g, WEIR_F32, {devices, ROWS, LARGE}, .name = "x", .sbp = {WEIR_S(0)});
    weir_tensor *last = weir_state(g, WEIR_F32, {0}, .name = "last", .sbp = {WEIR_B});
    weir_tensor *terms = weir_sum(loop ? weir_add(x, last) : x, .axes = {0}, .axis_count = 1);
    weir_tensor *part = weir_shard(terms, .sbp = {WEIR_P});
    weir_tensor *sum = weir_shard(part, .sbp = {WEIR_B});
    weir_tensor *own = weir_shard(sum, .sbp = {WEIR_S(0)});
    weir_tensor *mean = weir_shard(weir_mean(weir_mul(own, own)), .sbp = {WEIR_B});
    weir_state_set(last, mean);
    weir_fetch(mean, .name = "mean");
    return compiled(g, 1);
}

/* A parameter that is split over the devices, trained. */
static weir_plan *gathered(int devices, int micro)
{
    char names[24];
    snprintf(names, sizeof names, "cpu:0-%d", devices - 1);
    weir_graph *g = weir_graph_new("gather");
    weir_mesh_new(g, names);
    weir_tensor *x = weir_input(g, WEIR_F32, {8 * devices, LARGE}, .name = "x", .sbp = {WEIR_S(0)}, .micro = micro > 1);
    weir_tensor *w = weir_param(g, WEIR_F32, {LARGE, LARGE}, .name = "w", .sbp = {WEIR_S(0)});
    weir_tensor *v = weir_param(g, WEIR_F32, {LARGE, LARGE}, .name = "v", .sbp = {WEIR_B});
    weir_tensor *y = weir_matmul(weir_relu(weir_matmul(x, w)), v);
    weir_tensor *loss = weir_mean(weir_mul(y, y));
    weir_train(loss, weir_sgd(.lr = 0.1));
    weir_fetch(loss, .name = "loss");
    return compiled(g, micro);
}

static void play(weir_plan *plan, uint32_t at_least, uint64_t seed)
{
    char why[256] = "";
    found f = find(plan);
    cr_expect_geq(f.proven, at_least, "%u of %u are proven", f.proven, f.count);
    cr_expect(byte_game_arrivals(plan, f.list, f.count, seed, GAMES, why), "%s", why);
    free(f.list);
    weir_plan_free(plan);
}

Test(arrivals, sums_come_to_where_their_terms_were)
{
    for (int devices = 2; devices <= 4; devices++)
        play(summed(devices, true), (uint32_t)(devices * (devices - 1)), (uint64_t)devices);
}

Test(arrivals, every_order_that_credits_allow_keeps_what_is_needed)
{
    for (int devices = 2; devices <= 3; devices++)
        for (int micro = 1; micro <= 3; micro += 2)
            play(gathered(devices, micro), 0, (uint64_t)(10 * devices + micro));
    play(summed(2, false), 0, 1);
}

/* One that was let through without proof is found out. */
Test(arrivals, what_is_not_proven_is_not_so)
{
    uint32_t claimed = 0, caught = 0;
    weir_plan *plans[] = {gathered(2, 1), gathered(3, 1), gathered(2, 3), summed(2, false)};
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        char why[256] = "";
        found f = find(plans[i]);
        uint32_t more = claim_all(plans[i], &f);
        claimed += more;
        caught += more && !byte_game_arrivals(plans[i], f.list, f.count, i + 1, 4 * GAMES, why);
        free(f.list);
        weir_plan_free(plans[i]);
    }
    cr_expect_gt(claimed, 0);
    cr_expect_gt(caught, 0, "%u claims, none of which any order shows wrong", claimed);
}

/* A reader of what was gathered that may be late: without a token between it and the next part nothing is proven. */
Test(arrivals, the_next_part_waits_for_all_readers)
{
    weir_plan *plan = summed(2, true);
    found f = find(plan);
    cr_assert_gt(f.proven, 0);
    for (uint32_t i = 0; i < f.count; i++)
        if (f.list[i].proven) {
            plan_regst *regst = &plan->regsts[plan->ports[f.list[i].port].regst.i];
            cr_assert_eq(regst->slots, 1);
            regst->slots = 2; /* the next value may come while the one before is in use */
        }
    found now = find(plan);
    cr_expect_eq(now.proven, 0);
    free(f.list);
    free(now.list);
    weir_plan_free(plan);
}
