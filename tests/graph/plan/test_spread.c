/* A plan on many ranks: spread, and in parts. Random models in random layouts are compiled and spread over one to five
 * ranks; what has to be the same is compared with the plan that they come from. */
#define _GNU_SOURCE /* open_memstream */
#include "graph/plan/prove/check.h"
#include "graph/base/error.h"
#include "graph/plan/form/fields.h"
#include "graph/plan/spread/spread.h"
#include "tests/support/random_model.h"
#include "tests/support/run.h"
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

Test(spread, devices_beyond_the_last_rank_are_named, .timeout = 120)
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

Test(spread, what_is_spread_is_copied_and_not_spread_again, .timeout = 120)
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

Test(spread, one_rank_changes_nothing, .timeout = 120)
{
    weir_plan *plan = small_plan(1), *spread = plan_spread(plan, 1, 0);
    cr_assert_not_null(spread, "%s", weir_error());
    cr_expect_eq(spread->hash, plan->hash);
    weir_plan_free(spread);
    weir_plan_free(plan);
}

Test(spread, pulls_of_one_name_are_of_different_ranks_and_one_value, .timeout = 120)
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

/* ---- values ---- */

enum { ROWS = 6, STEPS = 3 };

static weir_status take_loss(void *ctx, const weir_view *value, int64_t step, int micro)
{
    float *losses = ctx;
    if (value->shape.rank == 0)
        losses[step * 2 + micro] = *(const float *)value->data;
    return WEIR_OK;
}

/* Two stages of two devices each, trained. Its loss goes to a function: copies of a pull would all have to be served
 * where one process runs a plan that is spread. */
static weir_plan *stages_plan(float *losses)
{
    weir_graph *g = weir_graph_new("stages");
    weir_mesh *first = weir_mesh_new(g, "cpu:0-1"), *second = weir_mesh_new(g, "cpu:2-3");
    weir_tensor *x = NULL, *loss = NULL;
    WEIR_ON(first)
    {
        x = weir_input(g, WEIR_F32, {ROWS, 8}, .name = "x", .sbp = {WEIR_S(0)}, .micro = true);
        x = weir_gelu(weir_linear(x, 12, .name = "up", .init = WEIR_NORMAL(0.3)));
    }
    WEIR_ON(second)
    {
        weir_tensor *labels = weir_input(g, WEIR_I32, {ROWS}, .name = "labels", .sbp = {WEIR_S(0)}, .micro = true);
        weir_tensor *logits = weir_linear(x, RUN_CLASSES, .name = "down", .init = WEIR_NORMAL(0.3));
        loss = weir_cross_entropy(logits, labels, .name = "loss");
        weir_fetch(loss, .name = "loss", .sink = take_loss, .ctx = losses);
    }
    weir_train(loss, weir_adamw(.lr = 0.1, .clip_norm = 0.5));
    weir_plan *plan = weir_compile(g, .micro_batches = 2);
    cr_assert_not_null(plan, "%s", weir_error());
    weir_graph_free(g);
    return plan;
}

Test(spread, one_process_computes_the_same_bits_with_it, .timeout = 60)
{
    float losses[2 * STEPS] = {0}, spread_losses[2 * STEPS];
    weir_plan *plan = stages_plan(losses);
    run want = run_plan(plan, STEPS, 2);
    cr_assert_gt(losses[0], 0);
    for (uint32_t ranks = 1; ranks <= 4; ranks++) {
        weir_plan *spread = plan_spread(plan, ranks, 0);
        cr_assert_not_null(spread, "%s", weir_error());
        memcpy(spread_losses, losses, sizeof losses);
        memset(losses, 0, sizeof losses);
        run got = run_plan(spread, STEPS, 2);
        run_near(&got, &want, 0, "spread");
        cr_expect_arr_eq(losses, spread_losses, sizeof losses, "%u ranks", ranks);
        run_free(&got);
        weir_plan_free(spread);
    }
    run_free(&want);
    weir_plan_free(plan);
}

/* ---- parts ---- */

static weir_plan *part_of(const weir_plan *spread, uint32_t rank)
{
    weir_plan *part = plan_part(spread, rank);
    cr_assert_not_null(part, "rank %u: %s", rank, weir_error());
    return part;
}

/* Calls `test` for every part of what random models are spread to. */
static void each_part(void (*test)(const weir_plan *spread, const weir_plan *part, uint32_t rank))
{
    cr_log_info("seed %d", SEED);
    for (int i = 0; i < MODELS; i++) {
        weir_plan *plan = random_plan(i), *spread = spread_plan(plan, i);
        for (uint32_t rank = 0; rank < spread->ranks; rank++) {
            weir_plan *part = part_of(spread, rank);
            test(spread, part, rank);
            weir_plan_free(part);
        }
        weir_plan_free(spread);
        weir_plan_free(plan);
    }
}

static void part_is_sound(const weir_plan *spread, const weir_plan *part, uint32_t rank)
{
    assert_sound(part, "part", (int)rank);
    cr_expect_eq(part->ranks, spread->ranks);
    cr_expect_eq(part->part, rank + 1);
    cr_expect_eq(part->whole, spread->hash);
    cr_expect_leq(part->tensors_count, spread->tensors_count);
}

Test(part, of_random_models_is_valid_and_live, .timeout = 60)
{
    each_part(part_is_sound);
}

static void same_skeleton(const weir_plan *spread, const weir_plan *part, uint32_t rank)
{
    cr_assert_eq(part->spaces_count, spread->spaces_count);
    cr_assert_eq(part->queues_count, spread->queues_count);
    cr_assert_eq(part->actors_count, spread->actors_count);
    cr_assert_eq(part->ports_count, spread->ports_count);
    cr_assert_eq(part->regsts_count, spread->regsts_count);
    for (uint32_t a = 0; a < spread->actors_count; a++) {
        const plan_actor *x = &spread->actors[a], *y = &part->actors[a];
        cr_expect(x->queue.i == y->queue.i && x->fires == y->fires && x->priority == y->priority &&
                      x->ports.first == y->ports.first && x->ports.count == y->ports.count &&
                      x->regsts.first == y->regsts.first && x->regsts.count == y->regsts.count,
                  "rank %u: actor %u", rank, a);
        cr_expect_str_eq(plan_text(spread, x->name), plan_text(part, y->name));
    }
    for (uint32_t r = 0; r < spread->regsts_count; r++) {
        const plan_regst *x = &spread->regsts[r], *y = &part->regsts[r];
        cr_expect(x->producer.i == y->producer.i && x->space.i == y->space.i && x->slots == y->slots &&
                      x->fill == y->fill && x->initial == y->initial && x->offset == y->offset &&
                      x->slot_bytes == y->slot_bytes,
                  "rank %u: register %u", rank, r);
    }
    cr_expect_arr_eq(part->ports, spread->ports, spread->ports_count * sizeof *spread->ports);
    for (uint32_t s = 0; s < spread->spaces_count; s++)
        cr_expect(part->spaces[s].bytes == spread->spaces[s].bytes && part->spaces[s].rank == spread->spaces[s].rank);
}

Test(part, numbers_actors_ports_and_registers_as_the_whole_does, .timeout = 60)
{
    each_part(same_skeleton);
}

static void same_tensor(const weir_plan *a, uint32_t x, const weir_plan *b, uint32_t y)
{
    plan_tensor p = a->tensors[x], q = b->tensors[y];
    cr_assert_str_eq(plan_text(a, p.name), plan_text(b, q.name));
    q.name = p.name;
    cr_assert(p.home == q.home && p.owner == q.owner && p.dtype == q.dtype && p.rank == q.rank && p.offset == q.offset);
    cr_assert_arr_eq(p.shape, q.shape, sizeof p.shape);
    cr_assert_arr_eq(p.start, q.start, sizeof p.start);
    cr_assert_arr_eq(p.global, q.global, sizeof p.global);
}

static void same_operands(const weir_plan *a, plan_range x, const weir_plan *b, plan_range y)
{
    cr_assert_eq(x.count, y.count);
    for (uint32_t o = 0; o < x.count; o++) {
        const plan_operand *p = &a->operands[x.first + o], *q = &b->operands[y.first + o];
        cr_assert_eq(p->port.i, q->port.i);
        same_tensor(a, p->tensor.i, b, q->tensor.i);
    }
}

static void same_kernel(const weir_plan *a, const plan_kernel *x, const weir_plan *b, const plan_kernel *y)
{
    cr_assert_str_eq(plan_text(a, x->op), plan_text(b, y->op));
    cr_assert_str_eq(plan_text(a, x->name), plan_text(b, y->name));
    cr_assert(x->actor.i == y->actor.i && x->key == y->key && x->accumulate == y->accumulate && x->line == y->line &&
              x->workspace_offset == y->workspace_offset && x->workspace_bytes == y->workspace_bytes);
    same_operands(a, x->in, b, y->in);
    same_operands(a, x->out, b, y->out);
    same_operands(a, x->state, b, y->state);
    cr_assert_eq(x->attrs.count, y->attrs.count);
    if (x->attrs.count)
        cr_assert_arr_eq(a->words + x->attrs.first, b->words + y->attrs.first, x->attrs.count * sizeof *a->words);
    cr_assert_eq(x->host == PLAN_NONE, y->host == PLAN_NONE);
    if (x->host != PLAN_NONE)
        cr_assert_str_eq(plan_text(a, a->hosts[x->host].name), plan_text(b, b->hosts[y->host].name));
}

/* Whether the part has to have the actor's kernels: it runs here, or reads what lies here. */
static bool has_body(const weir_plan *spread, uint32_t actor, uint32_t rank)
{
    bool body = plan_rank_of(spread, actor) == rank;
    plan_range ports = spread->actors[actor].ports;
    for (uint32_t p = ports.first; p < ports.first + ports.count; p++)
        body |= spread->spaces[spread->regsts[spread->ports[p].regst.i].space.i].rank == rank;
    return body;
}

static void same_bodies(const weir_plan *spread, const weir_plan *part, uint32_t rank)
{
    uint32_t kernels = 0;
    for (uint32_t a = 0; a < spread->actors_count; a++) {
        plan_range x = spread->actors[a].kernels, y = part->actors[a].kernels;
        cr_assert_eq(y.count, has_body(spread, a, rank) ? x.count : 0);
        for (uint32_t k = 0; k < y.count; k++)
            same_kernel(spread, &spread->kernels[x.first + k], part, &part->kernels[y.first + k]);
        kernels += y.count;
    }
    cr_expect_eq(part->kernels_count, kernels);
}

Test(part, has_the_kernels_of_its_actors_and_of_their_readers, .timeout = 60)
{
    each_part(same_bodies);
}

static void same_params(const weir_plan *spread, const weir_plan *part, uint32_t rank)
{
    (void)rank;
    cr_assert_eq(part->params_count, spread->params_count);
    cr_assert_eq(part->shards_count, spread->shards_count);
    for (uint32_t p = 0; p < spread->params_count; p++)
        cr_expect_str_eq(plan_text(part, part->params[p].name), plan_text(spread, spread->params[p].name));
    for (uint32_t i = 0; i < spread->shards_count; i++)
        same_tensor(spread, spread->shards[i].i, part, part->shards[i].i);
}

Test(part, has_all_parameters_and_their_shards, .timeout = 60)
{
    each_part(same_params);
}

static void same_after_packing(const weir_plan *spread, const weir_plan *part, uint32_t rank)
{
    void *bytes = NULL;
    size_t count = 0;
    (void)spread;
    cr_assert_eq(plan_encode(part, &bytes, &count), WEIR_OK);
    weir_plan *again = plan_decode(bytes, count);
    cr_assert_not_null(again, "rank %u: %s", rank, weir_error());
    cr_expect_eq(again->hash, part->hash);
    cr_expect_eq(again->part, part->part);
    cr_expect_eq(again->whole, part->whole);
    weir_plan_free(again);
    free(bytes);
}

Test(part, comes_back_from_its_bytes, .timeout = 60)
{
    each_part(same_after_packing);
}

/* How the tensor starts, or NULL. */
static const plan_init *init_of(const weir_plan *plan, const plan_tensor *tensor)
{
    for (uint32_t i = 0; i < plan->inits_count; i++) {
        const plan_tensor *other = &plan->tensors[plan->inits[i].tensor.i];
        if (other->home == tensor->home && other->owner == tensor->owner && other->offset == tensor->offset)
            return &plan->inits[i];
    }
    return NULL;
}

/* Over all ranks, and by who runs them, kernels and starts add up to the whole: no more, no less. */
static void adds_up(const weir_plan *spread, int i)
{
    uint32_t kernels = 0, own_hosts = 0;
    for (uint32_t rank = 0; rank < spread->ranks; rank++) {
        weir_plan *part = part_of(spread, rank);
        for (uint32_t k = 0; k < part->kernels_count; k++)
            kernels += plan_rank_of(part, part->kernels[k].actor.i) == rank;
        for (uint32_t h = 0; h < part->hosts_count; h++)
            own_hosts += plan_rank_of(part, part->hosts[h].actor.i) == rank;
        for (uint32_t n = 0; n < spread->inits_count; n++) {
            const plan_tensor *tensor = &spread->tensors[spread->inits[n].tensor.i];
            bool state = tensor->home == PLAN_IN_STATE;
            uint32_t space = state ? spread->queues[spread->actors[tensor->owner].queue.i].space.i
                                   : spread->regsts[tensor->owner].space.i;
            const plan_init *init = init_of(part, tensor);
            if (spread->spaces[space].rank == rank)
                cr_expect(init && init->key == spread->inits[n].key && init->kind == spread->inits[n].kind,
                          "model %d, rank %u: init %u", SEED + i, rank, n);
            else
                cr_expect(!init || spread->regsts[tensor->owner].producer.i == PLAN_NONE);
        }
        weir_plan_free(part);
    }
    cr_expect_eq(kernels, spread->kernels_count);
    cr_expect_eq(own_hosts, spread->hosts_count);
}

Test(part, all_of_them_add_up_to_the_whole, .timeout = 60)
{
    for (int i = 0; i < MODELS; i++) {
        weir_plan *plan = random_plan(i), *spread = spread_plan(plan, i);
        adds_up(spread, i);
        weir_plan_free(spread);
        weir_plan_free(plan);
    }
}

Test(part, keeps_the_functions_of_its_hosts, .timeout = 120)
{
    float losses[2 * STEPS];
    weir_plan *plan = stages_plan(losses), *spread = plan_spread(plan, 2, 0), *part = part_of(spread, 1);
    int sinks = 0;
    for (uint32_t h = 0; h < part->hosts_count; h++)
        if (part->hosts[h].kind == PLAN_SINK) {
            cr_expect(part->bindings[h].fn.sink == take_loss && part->bindings[h].ctx == losses);
            sinks++;
        }
    cr_expect_eq(sinks, 1);
    weir_plan_free(part);
    weir_plan_free(spread);
    weir_plan_free(plan);
}

Test(part, is_made_of_a_whole_plan_for_a_rank_that_there_is, .timeout = 120)
{
    weir_plan *plan = small_plan(0), *spread = plan_spread(plan, 3, 0), *part = part_of(spread, 1);
    cr_expect_null(plan_part(spread, 3));
    cr_expect_null(plan_part(part, 1));
    cr_expect_null(plan_spread(part, 3, 0));
    cr_expect(strstr(weir_error(), "only the part of rank 1"), "%s", weir_error());
    weir_plan_free(part);
    weir_plan_free(spread);
    weir_plan_free(plan);
}

/* An end of this rank without a host would never be fired; other ranks' are fired there. */
Test(part, must_have_the_ends_of_its_own_rank, .timeout = 120)
{
    float losses[2 * STEPS];
    weir_plan *plan = stages_plan(losses), *spread = plan_spread(plan, 2, 0);
    for (uint32_t rank = 0; rank < 2; rank++) {
        weir_plan *part = part_of(spread, rank);
        cr_assert_lt(part->hosts_count, spread->hosts_count);
        part->part = 2 - rank;
        cr_expect_eq(plan_validate(part), WEIR_E_PLAN);
        cr_expect(strstr(weir_error(), "neither push nor pull"), "%s", weir_error());
        part->part = 0;
        part->whole = 0;
        cr_expect_eq(plan_validate(part), WEIR_E_PLAN);
        weir_plan_free(part);
    }
    weir_plan_free(spread);
    weir_plan_free(plan);
}

/* ---- what people and programs see ---- */

typedef weir_status (*view_fn)(const weir_plan *plan, FILE *to);

static void expect_view(view_fn view, const weir_plan *plan, const char *wanted)
{
    char *text = NULL;
    size_t bytes;
    FILE *to = open_memstream(&text, &bytes);
    cr_assert_eq(view(plan, to), WEIR_OK);
    fclose(to);
    cr_expect(strstr(text, wanted), "lacks '%s'", wanted);
    free(text);
}

Test(spread, views_tell_ranks, .timeout = 120)
{
    weir_plan *plan = small_plan(1), *spread = plan_spread(plan, 2, 0), *part = part_of(spread, 1);
    expect_view(weir_plan_show, spread, ", on 2 ranks, seed");
    expect_view(weir_plan_show, spread, "cpu:3 (rank 1)");
    expect_view(weir_plan_show, part, ", rank 1's part of ");
    expect_view(weir_plan_json, spread, "\"ranks\":2,\"bytes\"");
    expect_view(weir_plan_json, part, "\"ranks\":2,\"part\":1,\"whole\":\"");
    expect_view(weir_plan_dot, spread, "cpu:3, rank 1, ");
    weir_plan_free(part);
    weir_plan_free(spread);
    weir_plan_free(plan);
}

/* ---- faults ---- */

Test(spread, an_actor_writes_to_its_own_rank, .timeout = 120)
{
    weir_plan *plan = small_plan(1), *spread = plan_spread(plan, 2, 0);
    plan_regst *regst = spread->regsts;
    while (regst->producer.i == PLAN_NONE)
        regst++;
    for (uint32_t s = 0; s < spread->spaces_count; s++) {
        if (spread->spaces[s].rank == plan_rank_of(spread, regst->producer.i))
            continue;
        regst->space.i = s;
        cr_expect_eq(plan_validate(spread), WEIR_E_PLAN);
        cr_expect(strstr(weir_error(), "is another rank's than its producer"), "%s", weir_error());
    }
    weir_plan_free(spread);
    weir_plan_free(plan);
}

/* Three devices, all of rank 0 and 1: the others run nothing, and pull nothing. */
Test(spread, a_rank_without_devices_has_nothing, .timeout = 120)
{
    weir_plan *plan = small_plan(0), *spread = plan_spread(plan, 5, 2), *part = part_of(spread, 4);
    assert_sound(spread, "spread", 0);
    assert_sound(part, "part", 0);
    cr_expect_eq(spread->actors_count, plan->actors_count + 1);
    cr_expect_eq(part->kernels_count, 0);
    cr_expect_eq(part->hosts_count, 0);
    weir_plan_free(part);
    weir_plan_free(spread);
    weir_plan_free(plan);
}
