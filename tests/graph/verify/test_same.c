/* tests/graph/verify/test_same.c: two plans of one model are proven to compute the same, however they were compiled; and a plan
 * that was made wrong is told from the right one, with the parameter named that it makes wrong.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

#include "apps/common/model/gpt.h"
#include "graph/compile/actors/passes.h"
#include "graph/compile/budget/offload.h"
#include "graph/plan/form/plan.h"
#include "tests/support/effort.h"
#include "tests/support/folder.h"
#include "tests/support/mutate_plan.h"
#include "tests/support/ops.h"
#include "tests/support/random_model.h"
#include "tests/support/run.h"
#include "tests/support/sample_plan.h"

TestSuite(same, .timeout = 600);

enum { MODELS = EFFORT(FULL(100, 12), 4, 1), LAYOUTS = 4, SEED = 4711 };

/* ---- models ---- */

static text corpus = {.bytes = (uint8_t *)"a text of which nobody reads a word", .count = 35};

static weir_graph *gpt_with(layout lies, weir_optimizer optimizer)
{
    const gpt_config config = {.layers = 2, .dim = 8, .heads = 2, .seq = 4, .vocab = 64, .batch = 8, .layout = lies,
                               .optimizer = optimizer, .corpus = &corpus};
    weir_graph *g = gpt_train_graph(&config);
    cr_assert(g && !weir_graph_mistake(g), "%s", g ? weir_graph_mistake(g) : "no memory");
    return g;
}

static weir_plan *gpt_plan(layout lies, weir_compile_opts opts)
{
    weir_graph *g = gpt_with(lies, weir_adamw(.lr = 0.01, .clip_norm = 1));
    opts.size = sizeof opts;
    opts.micro_batches = lies.micro ? lies.micro : 1;
    weir_plan *plan = weir_compile_at(g, &opts);
    cr_assert(plan, "%s", weir_error());
    weir_graph_free(g);
    return plan;
}

/* ---- plans that compute the same ---- */

static void expect_same(const weir_plan *a, const weir_plan *b, const char *what)
{
    cr_expect_eq(weir_plan_same(a, b, .seed = SEED), WEIR_OK, "%s: %s", what, weir_error());
}

/* Frees the second plan. */
static void expect_same_as(const weir_plan *a, weir_plan *b, const char *what)
{
    expect_same(a, b, what);
    weir_plan_free(b);
}

static const layout layouts[] = {{.dp = 2}, {.dp = 2, .zero = true}, {.tp = 2}, {.tp = 4}, {.dp = 2, .tp = 2}, {.pp = 2},
                                 {.dp = 2, .tp = 2, .pp = 2, .zero = true}};
enum { GPTS = sizeof layouts / sizeof *layouts };

Test(same, a_gpt_is_the_same_in_every_layout_and_precision)
{
    const weir_dtype precisions[] = {WEIR_F32, WEIR_BF16, WEIR_F16};
    weir_plan *one = gpt_plan((layout){0}, (weir_compile_opts){0});
    for (int i = 0; i < GPTS; i++)
        for (int p = 0; p < 3; p++)
            expect_same_as(one, gpt_plan(layouts[i], (weir_compile_opts){.precision = precisions[p]}), "gpt");
    weir_plan_free(one);
}

Test(same, a_gpt_is_the_same_without_fusion_and_on_hosts)
{
    weir_plan *one = gpt_plan((layout){.dp = 2, .tp = 2}, (weir_compile_opts){0});
    expect_same_as(one, gpt_plan((layout){.dp = 2, .tp = 2}, (weir_compile_opts){.no_fusion = true}), "without fusion");
    expect_same_as(one, gpt_plan((layout){.dp = 2, .tp = 2}, (weir_compile_opts){.per_host = 2}), "on hosts of two devices");
    weir_plan_free(one);
}

Test(same, a_gpt_is_the_same_in_any_number_of_micro_batches)
{
    weir_plan *one = gpt_plan((layout){0}, (weir_compile_opts){0});
    for (int micro = 1; micro <= 4; micro *= 2)
        for (int i = 0; i < GPTS; i++) {
            layout lies = layouts[i];
            lies.micro = micro;
            expect_same_as(one, gpt_plan(lies, (weir_compile_opts){0}), "micro-batches");
        }
    weir_plan_free(one);
}

/* The classes are whole, or in groups: those of a mesh of one, two or four devices. */
Test(same, a_loss_is_the_same_however_its_classes_are_grouped)
{
    const layout lies[] = {{0}, {.tp = 2}, {.tp = 4}, {.dp = 2, .tp = 2}};
    weir_plan *plans[4];
    for (int i = 0; i < 4; i++)
        plans[i] = gpt_plan(lies[i], (weir_compile_opts){.no_fusion = true});
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            expect_same(plans[i], plans[j], "groups of classes");
    for (int i = 0; i < 4; i++)
        cr_expect_eq(plans[i]->graph, plans[0]->graph, "the hash of the graph depends on the layout");
    for (int i = 0; i < 4; i++)
        weir_plan_free(plans[i]);
}

static void compile_again_within(layout lies, weir_compile_opts opts, const weir_plan *whole, const char *what)
{
    static const char words[] = "The smallest limit that would do is ";
    weir_graph *g = gpt_with(lies, weir_adamw(.lr = 0.01, .clip_norm = 1));
    char limit[32];
    opts.size = sizeof opts;
    opts.micro_batches = lies.micro;
    opts.memory = "1";
    cr_assert_null(weir_compile_at(g, &opts));
    const char *least = strstr(weir_error(), words);
    cr_assert(least, "%s", weir_error());
    snprintf(limit, sizeof limit, "%llu", strtoull(least + strlen(words), NULL, 10));
    opts.memory = limit;
    weir_plan *plan = weir_compile_at(g, &opts);
    cr_assert(plan, "%s", weir_error());
    cr_expect_eq(plan->limits_count, 1, "%s: nothing was given up", what);
    cr_expect(!opts.offload || plan->limits->moved, "%s: nothing was moved", what);
    expect_same_as(whole, plan, what);
    weir_graph_free(g);
}

Test(same, a_limit_changes_nothing)
{
    const layout lies[] = {{.micro = 2}, {.dp = 2, .micro = 2, .zero = true}, {.tp = 2, .pp = 2, .micro = 4}};
    group_own_bytes = 1024; /* the model is small, so smaller things are worth a repetition or a move */
    offload_window = 0.1;
    folder_make();
    char disk[300];
    snprintf(disk, sizeof disk, "disk:%s", folder_path("."));
    for (int i = 0; i < 3; i++) {
        weir_plan *whole = gpt_plan(lies[i], (weir_compile_opts){0});
        compile_again_within(lies[i], (weir_compile_opts){0}, whole, "a limit");
        compile_again_within(lies[i], (weir_compile_opts){.offload = disk}, whole, "a limit with a disk");
        weir_plan_free(whole);
    }
    folder_remove();
}

Test(same, random_models_are_the_same_in_random_layouts)
{
    for (uint64_t model = 0; model < MODELS; model++) {
        weir_plan *plans[LAYOUTS];
        for (int i = 0; i < LAYOUTS; i++) {
            weir_graph *g = random_model(SEED + model, (uint64_t)i);
            plans[i] = weir_compile(g, .micro_batches = random_model_micro(SEED + model), .seed = model);
            cr_assert(plans[i], "%s", weir_error());
            weir_graph_free(g);
        }
        for (int i = 1; i < LAYOUTS; i++) {
            char what[64];
            snprintf(what, sizeof what, "model %llu, layouts %d and %d", (unsigned long long)model, i - 1, i);
            expect_same(plans[i - 1], plans[i], what);
        }
        for (int i = 0; i < LAYOUTS; i++)
            weir_plan_free(plans[i]);
    }
}
