/* tests/graph/compile/test_overlay.c: parts of an arena lie on the same bytes, and nobody can tell.
 *
 * Compiled plans of random models in random layouts are played kernel by kernel in random orders with a marker on every
 * stretch of bytes (tests/support/byte_game.h), and run beside the same plan in which nothing shares, for the same bits.
 * Plans into which a mistake is put, two parts that are needed at once on the same bytes, are refused by plan_validate()
 * and found by the game.
 */
#include "graph/base/error.h"
#include "graph/compile/actors/passes.h"
#include "graph/compile/ir/ir.h"
#include "graph/compile/memory/offsets.h"
#include "graph/plan/lives/lives.h"
#include "tests/support/byte_game.h"
#include "tests/support/effort.h"
#include "tests/support/mutate_plan.h"
#include "tests/support/random_model.h"
#include "tests/support/reference.h"
#include "tests/support/run.h"
#include "tests/support/sample_plan.h"
#include "tests/support/small_plans.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEED = 20261122, MODELS = EFFORT(FULL(12, 8), 6, 6), GAMES = 4, STEPS = 3 };

/* Models of tests are small; what is done with large tensors is to be done with theirs. */
static weir_plan *plan_of(uint64_t model, uint64_t laid)
{
    group_own_bytes = 64;
    weir_graph *g = random_model(model, laid);
    weir_plan *plan = weir_compile(g, .micro_batches = random_model_micro(model), .seed = model);
    cr_assert_not_null(plan, "model %" PRIu64 ", layout %" PRIu64 ": %s", model, laid, weir_error());
    weir_graph_free(g);
    return plan;
}

static weir_plan *plan_apart(uint64_t model, uint64_t laid)
{
    offsets_share = false;
    weir_plan *plan = plan_of(model, laid);
    offsets_share = true;
    return plan;
}

static uint64_t shared_bytes(const weir_plan *plan)
{
    uint64_t bytes = 0;
    for (uint32_t s = 0; s < plan->spaces_count; s++)
        bytes += plan_bytes_shared(plan, (plan_space_id){s});
    return bytes;
}

#if EFFORT(1, 1, 0) /* one thread plays */
Test(overlay, no_order_of_firings_needs_two_parts_on_the_same_bytes_at_once, .timeout = 300)
{
    int sharing = 0;
    char why[256];
    for (uint64_t model = 1; model <= MODELS; model++)
        for (uint64_t laid = 0; laid < 3; laid++) {
            weir_plan *plan = plan_of(model, laid * model);
            cr_expect(byte_game_all(plan, SEED + model, GAMES, why), "model %" PRIu64 ", layout %" PRIu64 ": %s", model,
                      laid * model, why);
            sharing += shared_bytes(plan) > 0;
            weir_plan_free(plan);
        }
    for (int i = 0; i < SMALL_PLANS; i++) {
        weir_plan *plan = small_plan(i);
        cr_expect(byte_game_all(plan, SEED, GAMES, why), "small plan %d: %s", i, why);
        cr_expect_gt(shared_bytes(plan), 0, "small plan %d", i);
        weir_plan_free(plan);
    }
    cr_expect_gt(sharing, 2 * MODELS, "%d plans share bytes", sharing);
}
#endif

Test(overlay, what_shares_bytes_computes_the_same_bits_in_fewer, .timeout = 300)
{
    for (uint64_t model = 1; model <= MODELS; model++) {
        weir_plan *alone = plan_apart(model, model), *together = plan_of(model, model);
        cr_expect_eq(shared_bytes(alone), 0);
        cr_expect_lt(weir_plan_bytes(together, -1), weir_plan_bytes(alone, -1), "model %" PRIu64, model);
        run a = run_plan(alone, STEPS, 1), b = run_plan(together, STEPS, 2);
        setenv("WEIR_POISON", "1", 1);
        run c = run_plan(together, STEPS, 2);
        unsetenv("WEIR_POISON");
        run_near(&b, &a, 0, "overlay");
        run_near(&c, &a, 0, "overlay, poisoned");
        run_free(&a);
        run_free(&b);
        run_free(&c);
        weir_plan_free(alone);
        weir_plan_free(together);
    }
}

/* ---- how small ---- */

static weir_plan *gpt_plan(const text *corpus, int layers, int dim, int rows, layout l)
{
    gpt_config config = {.layers = layers, .dim = dim, .heads = 8, .seq = 128, .batch = rows, .layout = l,
                         .corpus = corpus, .optimizer = weir_adamw(.lr = 1e-3, .clip_norm = 1)};
    weir_graph *g = gpt_train_graph(&config);
    weir_plan *plan = weir_compile(g);
    cr_assert_not_null(plan, "%s", weir_error());
    weir_graph_free(g);
    return plan;
}

static uint64_t gpt_bytes(const text *corpus, int layers, int dim, int rows, layout l)
{
    uint64_t most = 0;
    weir_plan *plan = gpt_plan(corpus, layers, dim, rows, l);
    for (uint32_t s = 0; s < plan->spaces_count; s++)
        most = plan->spaces[s].bytes > most ? plan->spaces[s].bytes : most;
    weir_plan_free(plan);
    return most;
}

/* An 8-layer GPT with 8 rows needs 249 MB when nothing is shared. Measured are 217 MB, and 1.01, 0.85, 0.56 and 0.33 of
 * that on a device of several. */
Test(overlay, a_device_of_several_needs_no_more_than_one_alone_or_a_part_of_it, .timeout = 120)
{
    text corpus = reference_text();
    double one = (double)gpt_bytes(&corpus, 8, 256, 8, (layout){1, 1, 1, 1, false});
    cr_expect_lt(one, 221e6);
    cr_expect_lt((double)gpt_bytes(&corpus, 8, 256, 16, (layout){2, 1, 1, 1, false}), 1.03 * one);
    cr_expect_lt((double)gpt_bytes(&corpus, 8, 256, 32, (layout){4, 1, 1, 1, true}), 0.87 * one);
    cr_expect_lt((double)gpt_bytes(&corpus, 8, 256, 8, (layout){1, 2, 1, 1, false}), 0.58 * one);
    cr_expect_lt((double)gpt_bytes(&corpus, 8, 256, 8, (layout){1, 4, 1, 1, false}), 0.35 * one);
    text_free(&corpus);
}

Test(overlay, a_part_of_a_gradient_that_another_device_fetches_has_an_edge_to_the_update, .timeout = 60)
{
    text corpus = reference_text();
    weir_plan *one = gpt_plan(&corpus, 8, 256, 8, (layout){1, 1, 1, 1, false});
    weir_plan *two = gpt_plan(&corpus, 8, 256, 16, (layout){2, 1, 1, 1, false});
    cr_expect_eq(plan_ordering_edges(one), 0);
    cr_expect_gt(plan_ordering_edges(two), 0);
    for (uint32_t r = 0; r < two->regsts_count; r++) {
        if (two->regsts[r].tensors.count)
            continue;
        cr_expect_eq(two->regsts[r].slot_bytes, 0);
        cr_expect_eq(two->actors[two->regsts[r].producer.i].phase, PLAN_UPDATE);
    }
    weir_plan_free(one);
    weir_plan_free(two);
    text_free(&corpus);
}

Test(overlay, two_compilations_of_one_graph_are_the_same_plan, .timeout = 60)
{
    weir_plan *a = plan_of(5, 9), *b = plan_of(5, 9);
    cr_expect_eq(a->hash, b->hash);
    weir_plan_free(a);
    weir_plan_free(b);
}

/* ---- what the validator allows ---- */

/* A place where something lies already, or none: whatever is there, the register may be laid over it. */
static uint64_t draw_place(const weir_plan *plan, uint32_t r, uint64_t *random)
{
    const plan_regst *over = &plan->regsts[mutate_draw(random) % plan->regsts_count];
    const plan_kernel *kernel = &plan->kernels[mutate_draw(random) % plan->kernels_count];
    const plan_queue *queue = &plan->queues[plan->actors[kernel->actor.i].queue.i];
    switch (mutate_draw(random) % 4) {
    case 0:
        return queue->workspace_offset + kernel->workspace_offset;
    case 1:
        return plan->regsts[r].offset + PLAN_ALIGN * (mutate_draw(random) % 4);
    default:
        return over->offset + over->slot_bytes * (mutate_draw(random) % over->slots);
    }
}

/* Moves registers onto what else there is, wherever plan_validate() has nothing against it. Returns how many. */
static int lay_over_others(weir_plan *plan, uint64_t *random, int draws)
{
    int moved = 0;
    for (int i = 0; i < draws; i++) {
        plan_regst *r = &plan->regsts[mutate_draw(random) % plan->regsts_count];
        uint64_t before = r->offset;
        r->offset = draw_place(plan, (uint32_t)(r - plan->regsts), random);
        bool ok = r->offset != before && plan_validate(plan) == WEIR_OK;
        moved += ok;
        r->offset = ok ? r->offset : before;
    }
    plan->hash = plan_hash(plan);
    return moved;
}

/* The compiler makes use of little that is allowed. */
Test(overlay, whatever_the_validator_allows_is_never_needed_at_once, .timeout = 300)
{
    enum { DRAWS = EFFORT(400, 100, 50) };
    int laid = 0;
    uint64_t random = SEED;
    char why[256];
    for (uint64_t model = 1; model <= MODELS; model++) {
        weir_plan *plan = plan_of(model, model), *moved = plan_copy(plan);
        laid += lay_over_others(moved, &random, DRAWS);
        cr_expect(byte_game_all(moved, random, EFFORT(4, 4, 1) * GAMES, why), "model %" PRIu64 ": %s", model, why);
        run want = run_plan(plan, STEPS, 1);
        setenv("WEIR_POISON", "1", 1);
        run got = run_plan(moved, STEPS, 2);
        unsetenv("WEIR_POISON");
        run_near(&got, &want, 0, "laid over others, poisoned");
        run_free(&want);
        run_free(&got);
        weir_plan_free(plan);
        weir_plan_free(moved);
    }
    for (int i = 0; i < EFFORT(SMALL_PLANS, SMALL_PLANS, 0); i++) { /* one thread plays */
        weir_plan *plan = small_plan(i);
        laid += lay_over_others(plan, &random, DRAWS);
        cr_expect(byte_game_all(plan, random, 4 * GAMES, why), "small plan %d: %s", i, why);
        weir_plan_free(plan);
    }
    cr_expect_gt(laid, MODELS + EFFORT(SMALL_PLANS, SMALL_PLANS, 0), "%d registers were laid over others", laid);
}

/* ---- plans with a mistake ----
 *
 * Two threads may well write the same bytes in these, which is the mistake: ThreadSanitizer would say so. */
#if EFFORT(1, 1, 0)

static uint64_t bytes_of(const weir_plan *plan, uint32_t r)
{
    return plan->regsts[r].slots * plan->regsts[r].slot_bytes;
}

/* Whether all of it is f32: a wrong index would end the run. */
static bool holds_floats(const weir_plan *plan, uint32_t r)
{
    const plan_range *tensors = &plan->regsts[r].tensors;
    for (uint32_t t = tensors->first; t < tensors->first + tensors->count; t++)
        if (plan->tensors[t].dtype != WEIR_F32)
            return false;
    return true;
}

/* Two registers of a space that are needed at once, of which the second can be moved onto the first; false: there are
 * none among those that were drawn. */
static bool draw_pair(const weir_plan *plan, uint64_t *random, uint32_t *a, uint32_t *b)
{
    for (int i = 0; i < 100; i++) {
        *a = (uint32_t)(mutate_draw(random) % plan->regsts_count);
        *b = (uint32_t)(mutate_draw(random) % plan->regsts_count);
        const plan_regst *x = &plan->regsts[*a], *y = &plan->regsts[*b];
        if (*a == *b || x->space.i != y->space.i || x->initial || y->initial || x->producer.i == PLAN_NONE ||
            y->producer.i == PLAN_NONE || !bytes_of(plan, *a) || !bytes_of(plan, *b) || !holds_floats(plan, *a) ||
            !holds_floats(plan, *b) || bytes_of(plan, *b) > bytes_of(plan, *a))
            continue;
        lives *known = lives_new(plan);
        cr_assert(known && lives_enter(known, x->space), "%s", weir_error());
        const life one = {.regst = {*a}, .actor = {PLAN_NONE}}, other = {.regst = {*b}, .actor = {PLAN_NONE}};
        bool meet = !lives_apart(known, &one, &other);
        lives_free(known);
        if (meet)
            return true;
    }
    return false;
}

static bool same_bits(const run *a, const run *b)
{
    bool same = a->count == b->count;
    for (int i = 0; i < a->count && same; i++)
        same = a->entry[i].count == b->entry[i].count &&
               !memcmp(a->entry[i].value, b->entry[i].value, (size_t)a->entry[i].count * sizeof *a->entry[i].value);
    return same;
}

/* Whether a poisoned run of the plan shows that something is wrong with it. */
static bool poison_finds(const weir_plan *plan, const run *right)
{
    setenv("WEIR_POISON", "1", 1);
    run wrong = run_plan(plan, STEPS, 1);
    unsetenv("WEIR_POISON");
    bool found = !same_bits(&wrong, right);
    run_free(&wrong);
    return found;
}

Test(overlay, two_registers_on_the_same_bytes_that_are_needed_at_once_are_refused_and_found, .timeout = 300)
{
    int refused = 0, played = 0, poisoned = 0;
    uint64_t random = SEED;
    for (uint64_t model = 1; model <= MODELS; model++) {
        weir_plan *plan = plan_apart(model, model);
        run right = run_plan(plan, STEPS, 1);
        for (int i = 0; i < 5; i++) {
            uint32_t a, b;
            char why[256];
            weir_plan *wrong = plan_copy(plan);
            if (draw_pair(wrong, &random, &a, &b)) {
                wrong->regsts[b].offset = wrong->regsts[a].offset;
                wrong->hash = plan_hash(wrong);
                cr_expect_eq(plan_validate(wrong), WEIR_E_PLAN);
                cr_expect(strstr(weir_error(), " overlap in the arena of "), "%s", weir_error());
                refused++;
                played += !byte_game_all(wrong, random, 4 * GAMES, why);
                poisoned += poison_finds(wrong, &right);
            }
            weir_plan_free(wrong);
        }
        run_free(&right);
        weir_plan_free(plan);
    }
    cr_expect_gt(refused, 3 * MODELS, "%d", refused);
    cr_expect_gt(10 * played, 9 * refused, "the game found %d of %d", played, refused);
    cr_expect_gt(10 * poisoned, 7 * refused, "poison found %d of %d", poisoned, refused);
}
#endif
