/* tests/graph/plan/test_collective.c: collectives in plans: what a plan may not have, the order that the game proves, what
 * they are called, and how they are shown. The plans are compiled, for accelerators that nobody has.
 */
#include "graph/base/error.h"
#include "graph/compile/ir/ir.h"
#include "graph/model/build.h"
#include "graph/plan/prove/check.h"
#include "graph/plan/form/fields.h"
#include "graph/plan/spread/spread.h"
#include "tests/support/effort.h"
#include "tests/support/sample_plan.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void with_fakes(void)
{
    mesh_takes_fakes = true;
}

TestSuite(collective, .init = with_fakes, .timeout = 60);

/* A partial sum over four devices becomes whole on all: they give each other their terms, and then the sums. */
static weir_plan *sum_plan(int micro)
{
    weir_graph *g = weir_graph_new("sum");
    weir_mesh_new(g, "fake:0-3");
    weir_tensor *x = weir_input(g, WEIR_F32, {64, 128}, .name = "x", .sbp = {WEIR_S(1)}, .micro = micro > 1);
    weir_tensor *w = weir_param(g, WEIR_F32, {128, 96}, .name = "w", .sbp = {WEIR_S(0)}, .init = WEIR_NORMAL(1));
    weir_tensor *y = weir_shard(weir_matmul(x, w), .sbp = {WEIR_B});
    weir_tensor *z = weir_shard(weir_gelu(y), .sbp = {WEIR_B});
    weir_fetch(weir_shard(z, .sbp = {WEIR_S(0)}), .name = "z");
    weir_plan *plan = weir_compile(g, .micro_batches = micro);
    cr_assert_not_null(plan, "%s", weir_error());
    weir_graph_free(g);
    return plan;
}

static char *seen(const weir_plan *plan, weir_status (*view)(const weir_plan *, FILE *))
{
    char *out = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&out, &bytes);
    cr_assert_eq(view(plan, to), WEIR_OK, "%s", weir_error());
    fclose(to);
    return out;
}

static void expect_has(const char *text, const char *part)
{
    cr_expect(strstr(text, part), "\"%s\" is not in\n%s", part, text);
}

/* ---- what is refused ---- */

static void expect_refused(const weir_plan *plan, const char *why)
{
    cr_expect_eq(plan_validate(plan), WEIR_E_PLAN, "lacks: %s", why);
    cr_expect(strstr(weir_error(), why), "'%s' lacks '%s'", weir_error(), why);
}

#define REFUSED(plan, field, value, why)     \
    do {                                     \
        uint32_t was_ = (uint32_t)(field);   \
        (field) = (value);                   \
        expect_refused((plan), (why));       \
        (field) = was_;                      \
    } while (0)

Test(collective, each_kind_of_fault_is_refused)
{
    weir_plan *plan = sum_plan(1);
    cr_assert_eq(plan->collectives_count, 2);
    plan_collective *terms = &plan->collectives[0];
    uint32_t member = plan->members[0].i, stranger = 0;
    while (plan->queues[plan->actors[stranger].queue.i].kind != PLAN_COMPUTE)
        stranger++;
    REFUSED(plan, terms->kind, PLAN_COLLECTIVE_KINDS, "collectives[0].kind: 6 of 6");
    REFUSED(plan, terms->kind, PLAN_ALL_GATHER, "collectives[0].kind: its moves are not of that kind");
    REFUSED(plan, terms->kind, PLAN_ALL_REDUCE, "collectives[0].moves: nothing is moved where it is added");
    REFUSED(plan, terms->group, 7, "collectives[0].group: 7 of 2");
    REFUSED(plan, terms->group, 1, "is not the number of these devices alone");
    REFUSED(plan, terms->members.count, 3, "are a collective's");
    REFUSED(plan, plan->members[1].i, member, "is one already");
    REFUSED(plan, plan->members[1].i, stranger, "a member of none");
    REFUSED(plan, plan->members[0].i, plan->members[1].i, "is one already");
    REFUSED(plan, plan->moves[0].from, 4, "moves[0].from: 4 of 4 members");
    REFUSED(plan, plan->moves[0].to, 4, "moves[0].to: 4 of 4 members");
    REFUSED(plan, plan->moves[0].to, plan->moves[0].from, "what is taken is not what is given");
    REFUSED(plan, plan->moves[0].give, 3, "moves[0].give: 3 of 3");
    REFUSED(plan, plan->moves[0].take, 3, "moves[0].take: 3 of 3");
    REFUSED(plan, plan->moves[0].give, plan->moves[1].give, "what is taken is not what is given");
    REFUSED(plan, plan->moves[0].bytes, 64, "moves[0].bytes: 64, and not the ");
    REFUSED(plan, plan->turns[0].i, 2, "turns[0].collective: 2 of 2");
    REFUSED(plan, plan->turns[0].i, 1, "has more of them than it fires");
    REFUSED(plan, plan->turns_count, 1, "turns less than it fires");
    plan_actor_id first = plan->members[0];
    plan->members[0] = plan->members[1];
    plan->members[1] = first;
    expect_refused(plan, "are not in the order of their devices");
    plan->members[1] = plan->members[0];
    plan->members[0] = first;
    cr_expect_eq(plan_validate(plan), WEIR_OK, "%s", weir_error());
    weir_plan_free(plan);
}

/* A member's kernel is a collective, and nothing else is. */
Test(collective, only_collectives_run_on_a_queue_for_them)
{
    weir_plan *plan = sum_plan(1);
    for (uint32_t a = 0; a < plan->actors_count; a++) {
        uint32_t was = plan->actors[a].queue.i, compute = was;
        if (plan->queues[was].kind != PLAN_COLLECTIVE)
            continue;
        while (plan->queues[compute].kind != PLAN_COMPUTE || plan->queues[compute].space.i != plan->queues[was].space.i)
            compute = (compute + 1) % plan->queues_count;
        plan->actors[a].priority += 1000;
        REFUSED(plan, plan->actors[a].queue.i, compute, "collective has no kernel for fake");
        plan->actors[a].priority -= 1000;
    }
    weir_plan_free(plan);
}

/* ---- the order ---- */

/* The sums cannot come before their terms. */
Test(collective, an_order_that_cannot_be_kept_is_refused_with_both_names)
{
    weir_plan *plan = sum_plan(1);
    cr_assert_eq(plan->turns_count, 2);
    cr_expect_eq(weir_plan_check(plan), WEIR_OK, "%s", weir_error());
    plan_collective_id first = plan->turns[0];
    plan->turns[0] = plan->turns[1];
    plan->turns[1] = first;
    cr_assert_eq(plan_validate(plan), WEIR_OK, "%s", weir_error());
    cr_expect_eq(weir_plan_check(plan), WEIR_E_LIVE);
    expect_has(weir_error(), "matmul>S(0).take waits for its turn behind matmul>S(0)>B.take");
    expect_has(weir_error(), "in an order that can not be kept");
    weir_plan_free(plan);
}

/* With four micro-batches no sum may come before its own terms; every other order is allowed. */
Test(collective, the_game_knows_which_orders_can_be_kept)
{
    enum { MICRO = 4 };
    weir_plan *plan = sum_plan(MICRO);
    uint32_t live = 0, dead = 0;
    cr_assert_eq(plan->turns_count, 2 * MICRO);
    srand(5);
    for (int round = 0; round < 200; round++) {
        for (uint32_t i = plan->turns_count - 1; i > 0; i--) {
            uint32_t k = (uint32_t)rand() % (i + 1);
            plan_collective_id other = plan->turns[i];
            plan->turns[i] = plan->turns[k];
            plan->turns[k] = other;
        }
        cr_assert_eq(plan_validate(plan), WEIR_OK, "%s", weir_error());
        int terms = 0, sums = 0;
        bool can = true;
        for (uint32_t t = 0; t < plan->turns_count; t++) {
            *(plan->turns[t].i == 0 ? &terms : &sums) += 1;
            can &= sums <= terms && terms - sums <= 4;
        }
        weir_status status = weir_plan_check(plan);
        cr_expect(can || status == WEIR_E_LIVE, "sums before their terms");
        live += status == WEIR_OK;
        dead += status != WEIR_OK;
    }
    cr_expect_gt(live, 0);
    cr_expect_gt(dead, 100);
    weir_plan_free(plan);
}

/* ---- what is said of them ---- */

Test(collective, is_shown)
{
    weir_plan *plan = sum_plan(1);
    char *show = seen(plan, weir_plan_show), *json = seen(plan, weir_plan_json), *dot = seen(plan, weir_plan_dot);
    expect_has(show, "; 2 collectives of 1 group, 144 KiB\n");
    expect_has(show, "matmul>S(0).take     all_to_all  forward  fake:0, fake:1, fake:2, fake:3      1         72.0 KiB");
    expect_has(show, "matmul>S(0)>B.take   all_gather  forward  fake:0, fake:1, fake:2, fake:3      1         72.0 KiB");
    expect_has(json, "\"collectives\":[");
    expect_has(json, "\"kind\":\"all_gather\"");
    expect_has(json, "\"turns\":[0,1]");
    expect_has(dot, "all_gather\\n  6.0 KiB\", style=dashed");
    free(show);
    free(json);
    free(dot);
    weir_plan_free(plan);
}

Test(collective, is_the_same_when_it_is_read_back_and_in_every_part)
{
    weir_plan *plan = sum_plan(4), *read;
    void *bytes;
    size_t count;
    cr_assert_eq(plan_encode(plan, &bytes, &count), WEIR_OK);
    cr_assert_not_null(read = plan_decode(bytes, count), "%s", weir_error());
    cr_expect_eq(plan_validate(read), WEIR_OK, "%s", weir_error());
    cr_expect_eq(plan_hash(read), plan_hash(plan));
    weir_plan *spread = plan_spread(plan, 2, 0);
    for (uint32_t r = 0; r < 2; r++) {
        weir_plan *part = plan_part(spread, r);
        cr_assert_not_null(part, "%s", weir_error());
        cr_assert_eq(part->turns_count, plan->turns_count);
        cr_expect_arr_eq(part->turns, plan->turns, sizeof *plan->turns * plan->turns_count);
        cr_expect_arr_eq(part->moves, plan->moves, sizeof *plan->moves * plan->moves_count);
        weir_plan_free(part);
    }
    free(bytes);
    weir_plan_free(read);
    weir_plan_free(spread);
    weir_plan_free(plan);
}

/* ---- whatever is changed ---- */

static uint64_t random_value(uint64_t was)
{
    switch (rand() % 5) {
    case 0:
        return was + 1;
    case 1:
        return was - 1;
    case 2:
        return (uint64_t)rand() % 10;
    case 3:
        return UINT64_MAX - (uint64_t)rand() % 3;
    default:
        return was ^ UINT64_C(1) << rand() % 32;
    }
}

static void change(weir_plan *plan)
{
    static const plan_array arrays[] = {PLAN_ARRAY_collectives, PLAN_ARRAY_members, PLAN_ARRAY_moves, PLAN_ARRAY_turns,
                                        PLAN_ARRAY_kernels, PLAN_ARRAY_actors};
    const plan_table *table = &plan_tables[arrays[rand() % 6]];
    const plan_field *field = &table->fields[(uint32_t)rand() % table->field_count];
    char *item = (char *)plan_table_items(plan, table) + (uint32_t)rand() % plan_table_count(plan, table) * table->item_bytes;
    uint32_t v = (uint32_t)rand() % field->values;
    plan_field_set(field, item, v, random_value(plan_field_get(field, item, v)));
}

/* Everything that reads plans, on what has passed. */
Test(collective, whatever_is_changed_is_refused_or_can_be_played_and_shown)
{
    enum { ROUNDS = EFFORT(4000, 2000, 400), SEED = 77 };
    weir_plan *plan = sum_plan(2);
    uint32_t accepted = 0;
    srand(SEED);
    for (int round = 0; round < ROUNDS; round++) {
        weir_plan *changed = plan_copy(plan);
        check_result result;
        for (int i = rand() % 2; i >= 0; i--)
            change(changed);
        if (plan_validate(changed) == WEIR_OK) {
            accepted++;
            cr_assert_eq(check_play(changed, &result), WEIR_OK);
            free(seen(changed, weir_plan_show));
            free(seen(changed, weir_plan_json));
            free(seen(changed, weir_plan_dot));
        }
        weir_plan_free(changed);
    }
    cr_expect_gt(accepted, ROUNDS / 100);
    cr_expect_lt(accepted, ROUNDS / 2);
    weir_plan_free(plan);
}
