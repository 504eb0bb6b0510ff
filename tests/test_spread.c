/* A plan on many ranks: spread, and in parts. Random models in random layouts are compiled and spread over one to five
 * ranks; what has to be the same is compared with the plan that they come from. */
#include "graph/check.h"
#include "graph/error.h"
#include "graph/plan_fields.h"
#include "graph/spread.h"
#include "tests/support/random_model.h"
#include "tests/support/run.h"
#include "tests/support/sample_plan.h"
#include "tests/support/small_plans.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

enum { SEED = 4201, MODELS = 24, RANKS_MAX = 5 };

static weir_plan *random_plan(int i)
{
    uint64_t model = (uint64_t)(SEED + i);
    weir_graph *graph = random_model(model, model * 7 + 1);
    weir_plan *plan = weir_compile(graph, .micro_batches = random_model_micro(model));
    cr_assert_not_null(plan, "model %d: %s", SEED + i, weir_error());
    weir_graph_free(graph);
    return plan;
}

/* Over how many ranks the test spreads plan i, and by how many devices each: as many as are needed for one index. */
static uint32_t ranks_for(int i)
{
    return 1 + (uint32_t)i % RANKS_MAX;
}

static weir_plan *spread_plan(const weir_plan *plan, int i)
{
    weir_plan *spread = plan_spread(plan, ranks_for(i), 0);
    cr_assert_not_null(spread, "model %d: %s", SEED + i, weir_error());
    return spread;
}

static void assert_sound(const weir_plan *plan, const char *what, int i)
{
    cr_assert_eq(plan_validate(plan), WEIR_OK, "%s %d: %s", what, SEED + i, weir_error());
    cr_assert_eq(weir_plan_check(plan), WEIR_OK, "%s %d: %s", what, SEED + i, weir_error());
    cr_assert_eq(plan->hash, plan_hash(plan));
}

/* Calls `test` for each random plan and what becomes of it. */
static void each_model(void (*test)(const weir_plan *plan, const weir_plan *spread, int i))
{
    cr_log_info("seed %d", SEED);
    for (int i = 0; i < MODELS; i++) {
        weir_plan *plan = random_plan(i), *spread = spread_plan(plan, i);
        test(plan, spread, i);
        weir_plan_free(spread);
        weir_plan_free(plan);
    }
}

/* ---- spread ---- */

static void spread_is_sound(const weir_plan *plan, const weir_plan *spread, int i)
{
    (void)plan;
    cr_assert_eq(spread->ranks, ranks_for(i));
    assert_sound(spread, "spread", i);
}

Test(spread, random_models_stay_valid_and_live, .timeout = 60)
{
    each_model(spread_is_sound);
}

/* All elements of the plan are there with the same values at the same places, but for the ranks of spaces. */
static void same_elements(const weir_plan *plan, const weir_plan *spread, int i)
{
    for (int t = 0; t < PLAN_ARRAYS; t++) {
        const plan_table *table = &plan_tables[t];
        const char *a = plan_table_items(plan, table), *b = plan_table_items(spread, table);
        uint32_t count = plan_table_count(plan, table);
        cr_assert_leq(count, plan_table_count(spread, table));
        for (uint32_t k = 0; k < count; k++, a += table->item_bytes, b += table->item_bytes) {
            cr_assert(table->fields || *a == *b);
            for (uint32_t f = 0; table->fields && f < table->field_count; f++)
                for (uint32_t v = 0; v < table->fields[f].values; v++)
                    cr_assert(!strcmp(table->fields[f].name, "rank") ||
                                  plan_field_get(&table->fields[f], a, v) == plan_field_get(&table->fields[f], b, v),
                              "model %d: %s[%u].%s", SEED + i, table->name, k, table->fields[f].name);
        }
    }
    cr_assert_eq(plan->kernels_count, spread->kernels_count);
    cr_assert_eq(plan->regsts_count, spread->regsts_count);
    cr_assert_eq(plan->spaces_count, spread->spaces_count);
}

Test(spread, changes_nothing_of_what_is_computed, .timeout = 60)
{
    each_model(same_elements);
}

static void ranks_follow_indexes(const weir_plan *plan, const weir_plan *spread, int i)
{
    uint32_t most = 0;
    (void)plan;
    for (uint32_t s = 0; s < spread->spaces_count; s++)
        most = spread->spaces[s].index > most ? spread->spaces[s].index : most;
    uint32_t devices = most / ranks_for(i) + 1;
    for (uint32_t s = 0; s < spread->spaces_count; s++)
        cr_expect_eq(spread->spaces[s].rank, spread->spaces[s].index / devices, "model %d: %s", SEED + i,
                     plan_text(spread, spread->spaces[s].name));
}

Test(spread, devices_go_to_ranks_in_order_of_their_indexes, .timeout = 60)
{
    each_model(ranks_follow_indexes);
}

static bool rank_has_device(const weir_plan *plan, uint32_t rank)
{
    for (uint32_t s = 0; s < plan->spaces_count; s++)
        if (plan->spaces[s].rank == rank)
            return true;
    return false;
}

static int pulls_on(const weir_plan *plan, uint32_t rank, const char *name)
{
    int count = 0;
    for (uint32_t h = 0; h < plan->hosts_count; h++)
        count += plan->hosts[h].kind == PLAN_PULL && plan_rank_of(plan, plan->hosts[h].actor.i) == rank &&
                 !strcmp(plan_text(plan, plan->hosts[h].name), name);
    return count;
}

static void one_pull_each(const weir_plan *plan, const weir_plan *spread, int i)
{
    uint32_t added = 0;
    for (uint32_t h = 0; h < plan->hosts_count; h++) {
        const char *name = plan_text(plan, plan->hosts[h].name);
        for (uint32_t rank = 0; plan->hosts[h].kind == PLAN_PULL && rank < spread->ranks; rank++) {
            int wanted = rank_has_device(spread, rank);
            cr_expect_eq(pulls_on(spread, rank, name), wanted, "model %d: %s on rank %u", SEED + i, name, rank);
            added += (uint32_t)wanted;
        }
        added -= plan->hosts[h].kind == PLAN_PULL;
    }
    cr_expect_eq(spread->hosts_count, plan->hosts_count + added);
    cr_expect_eq(spread->actors_count, plan->actors_count + added);
    cr_expect_eq(spread->ports_count, plan->ports_count + added);
    for (uint32_t h = plan->hosts_count; h < spread->hosts_count; h++) {
        cr_expect_null((void *)spread->bindings[h].fn.source);
        cr_expect_eq(spread->hosts[h].kind, PLAN_PULL);
    }
}

Test(spread, every_rank_with_a_device_has_every_pull_once, .timeout = 60)
{
    each_model(one_pull_each);
}

Test(spread, devices_beyond_the_last_rank_are_named, .timeout = 20)
{
    weir_plan *plan = small_plan(0); /* cpu:0-2 */
    cr_expect_null(plan_spread(plan, 2, 1));
    cr_expect(strstr(weir_error(), "cpu:2"), "%s", weir_error());
    cr_expect_null(plan_spread(plan, 0, 0));
    cr_expect_null(plan_spread(plan, PLAN_RANKS_MAX + 1, 0));
    weir_plan *spread = plan_spread(plan, 2, 2);
    cr_assert_not_null(spread, "%s", weir_error());
    cr_expect_eq(spread->spaces[1].rank, 0);
    cr_expect_eq(spread->spaces[2].rank, 1);
    weir_plan_free(spread);
    weir_plan_free(plan);
}

Test(spread, what_is_spread_is_copied_and_not_spread_again, .timeout = 20)
{
    weir_plan *plan = small_plan(0), *spread = plan_spread(plan, 3, 0), *again = plan_spread(spread, 3, 0);
    cr_assert_not_null(again, "%s", weir_error());
    cr_expect_eq(again->hash, spread->hash);
    cr_expect_null(plan_spread(spread, 2, 0));
    cr_expect(strstr(weir_error(), "3 ranks already"), "%s", weir_error());
    weir_plan_free(again);
    weir_plan_free(spread);
    weir_plan_free(plan);
}

Test(spread, one_rank_changes_nothing, .timeout = 20)
{
    weir_plan *plan = small_plan(1), *spread = plan_spread(plan, 1, 0);
    cr_assert_not_null(spread, "%s", weir_error());
    cr_expect_eq(spread->hash, plan->hash);
    weir_plan_free(spread);
    weir_plan_free(plan);
}

Test(spread, pulls_of_one_name_are_of_different_ranks_and_one_value, .timeout = 20)
{
    weir_plan *plan = random_plan(3), *spread = plan_spread(plan, 2, 0);
    cr_assert_gt(spread->hosts_count, plan->hosts_count);
    plan_host *copy = &spread->hosts[spread->hosts_count - 1];
    plan_str was = copy->name;
    for (uint32_t h = 0; h < plan->hosts_count; h++)
        if (plan->hosts[h].kind == PLAN_PULL && plan->hosts[h].name.i != was.i)
            copy->name = plan->hosts[h].name;
    cr_assert_neq(copy->name.i, was.i);
    cr_expect_eq(plan_validate(spread), WEIR_E_PLAN);
    copy->name = was;
    cr_expect_eq(plan_validate(spread), WEIR_OK, "%s", weir_error());
    for (uint32_t s = 0; s < spread->spaces_count; s++)
        spread->spaces[s].rank = 0;
    cr_expect_eq(plan_validate(spread), WEIR_E_PLAN);
    cr_expect(strstr(weir_error(), "is also that of"), "%s", weir_error());
    weir_plan_free(spread);
    weir_plan_free(plan);
}
